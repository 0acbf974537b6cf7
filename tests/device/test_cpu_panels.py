"""CPUs by OpenCL: what is chosen runs, is right, and gives the same bits on any number of threads."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import gemmgen
from gemmgen import driver
from gemmgen.cpu.panels import choose_panels
from gemmgen.errors import DeviceError
from gemmgen.ir.dtypes import F64
from gemmgen.ir.target import CPU_FEATURES
from gemmgen.kernel_names import kernel_name
from gemmgen.runtime import limits
from gemmgen.runtime.call import WorkspaceSizes
from gemmgen.runtime.opencl_build import check_workspaces
from gemmgen.runtime.opencl_devices import DeviceInfo, target_of
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec, Order
from tests.device.naive import CPUS, DEVICES
from tests.support.cli import printed
from tests.support.problems import Problem

#: Short and ragged; K in blocks; K in parts; vectors along K.
SIZES = ((3, 200, 70), (67, 70, 1000), (6, 64, 17000), (67, 3, 1003))
#: A transposed copy of which a macro-kernel has one panel: with panels inside its lines a fault of Intel's compiler
#: ends the process.
ONE_PANEL = Schedule.of(
    tile=(4, 3),
    group=(1, 1),
    vector=16,
    dot_product=True,
    macro_kernel=(64, 1),
    kc=512,
    b=Operand(memory="private"),
    name="one_panel",
)


@pytest.mark.parametrize("device", CPUS)
def test_what_is_chosen_is_right(device: DeviceInfo, rng: np.random.Generator) -> None:
    assert device.features >= CPU_FEATURES
    target = target_of(device.handle)
    assert target.cores >= 1
    assert target.vector_bytes in (16, 32, 64)
    for m, n, k in SIZES:
        gemm = gemmgen.compile(GemmSpec(m=m, n=n, k=k), device=device)
        chosen = choose_panels(GemmSpec(m=m, n=n, k=k), None, target)
        assert chosen is not None
        assert gemm.source.name == kernel_name(chosen, GemmSpec())
        problem = Problem.random(rng, m, n, k, 1.5, -0.5)
        problem.check(gemm(problem.a, problem.b, problem.c.copy(), alpha=1.5, beta=-0.5))
    if target.vector_bytes == 64:
        problem, one_panel = Problem.random(rng, 9, 3, 1003), gemmgen.compile(GemmSpec(), ONE_PANEL, device=device)
        problem.check(one_panel(problem.a, problem.b, problem.c.copy()))


@pytest.mark.parametrize("device", CPUS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_by_vectors(device: DeviceInfo, dtype: str, rng: np.random.Generator) -> None:
    """In place, transposed, as a vector, and with K in parts."""
    element = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    shapes: tuple[tuple[tuple[int, int, int], Order], ...]
    shapes = (((67, 70, 90), "row"), ((67, 70, 90), "col"), ((1, 300, 1100), "row"), ((9, 65, 2100), "row"))
    for (m, n, k), b_order in shapes:
        a, b = (rng.standard_normal(size, np.float32).astype(element) for size in ((m, k), (k, n)))
        b = np.asfortranarray(b) if b_order == "col" else b
        c = gemmgen.gemm(a, b, device=device)
        chosen = choose_panels(GemmSpec(m=m, n=n, k=k, dtype=dtype, b_order=b_order), None, target_of(device.handle))
        assert chosen is not None
        right = a.astype(np.float64) @ b.astype(np.float64)
        scale = np.sqrt(k) * 2.0 ** (-8 if dtype == "bfloat16" else -11)
        assert np.abs(c.astype(np.float64) - right).max() <= 4 * scale


@pytest.mark.parametrize("device", CPUS)
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_whole_numbers_by_vectors(device: DeviceInfo, dtype: str, rng: np.random.Generator) -> None:
    """To the last bit, also of sums that wrap; in place, transposed, in few rows, and with an epilogue by vectors."""
    of_all = np.iinfo(dtype).min, np.iinfo(dtype).max
    wide = np.int32 if dtype == "int8" else np.dtype(dtype)
    for (m, n, k), order in product(((67, 70, 90), (3, 300, 1100), (9, 65, 2100)), ("C", "F")):
        a, b = (rng.integers(*of_all, size, dtype, endpoint=True) for size in ((m, k), (k, n)))
        bias, right = rng.integers(-99, 99, n).astype(wide), a.astype(wide) @ b.astype(wide)
        given = np.array(b, order=order)  # type: ignore[call-overload]
        c = gemmgen.gemm(a, given, dtype=wide, device=device, epilogue=["bias", "relu"], bias=bias)
        assert np.array_equal(c, np.maximum(right + bias, 0))
    assert choose_panels(GemmSpec(m=67, n=70, k=90, dtype=dtype), None, target_of(device.handle)) is not None


@pytest.mark.parametrize("device", CPUS[:1])
def test_run_chooses_where_nothing_is_said(device: DeviceInfo) -> None:
    sizes = ("-M", "70", "-N", "65", "-K", "33", "-i", "1", "-v")
    asked = "\ngemm_f32_naive_1x1\n"
    assert asked not in (chosen := printed("run", *sizes)) and "\ngemm_f32_" in chosen
    assert asked in printed("run", "--method", "naive", *sizes)


BITS = """
import hashlib, numpy as np, gemmgen
from gemmgen.spec import GemmSpec, Order
rng = np.random.default_rng(0)
for m, n, k in ((300, 200, 1300), (12, 64, 17000)):
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in ((m, k), (k, n)))
    gemm = gemmgen.compile(GemmSpec(m=m, n=n, k=k))
    print(hashlib.sha256(gemm(a, b).tobytes()).hexdigest())
"""


def test_the_same_bits_on_any_number_of_threads() -> None:
    """One processor, or one thread of the runtime's, or all: what is chosen differs, the sums do not."""
    alone = {0: lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}), 1: None, 2: None}
    few = {"CL_CONFIG_CPU_TBB_NUM_WORKERS": "1", "POCL_MAX_PTHREAD_COUNT": "1"}
    found = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", BITS],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | (few if number == 1 else {}),
            preexec_fn=prepare,
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout
        for number, prepare in alone.items()
    }  # fmt: skip
    assert len(found) == 1


SMALL_STACK = """
import numpy as np, gemmgen
from gemmgen.runtime.opencl_devices import devices, target_of
for device in devices():
    target = target_of(device.handle)
    assert device.type != "cpu" or target.private_bytes <= 1 << 19, target.private_bytes
gemm = gemmgen.compile(gemmgen.GemmSpec(b_order="col"), device=device)
a, b = np.ones((40, 900), np.float32), np.ones((300, 900), np.float32)
assert (gemm(a, b.T) == 900).all()
print(gemm.source.text)
"""


def test_private_arrays_fit_a_small_stack() -> None:
    """Where a block of 2 MiB would end the process."""
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SMALL_STACK],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20)),
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-1000:]
    head = " ".join(found.stdout.split("\n\n", 1)[0].replace("//", "").split())
    assert "to private memory" in head, head


def test_a_process_that_may_not_use_all_processors(tmp_path: Path) -> None:
    """By taskset, and by either version of cgroups."""
    allowed = len(os.sched_getaffinity(0))
    assert limits.processors(tmp_path) == allowed
    for files, processors in (
        ({"cpu.max": "max 100000"}, allowed),
        ({"cpu.max": "100000 100000"}, 1),
        ({"cpu.max": "20000 100000"}, 1),
        ({"cpu.max": "90000000 100000"}, allowed),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, allowed),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "50000"}, 1),
    ):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{text}\n")
        assert limits.processors(folder) == processors, files


@pytest.mark.parametrize("device", DEVICES[:1])
def test_memory_between_kernels_that_no_buffer_can_have(device: DeviceInfo) -> None:
    source = driver.emit(GemmSpec(dtype=F64), Schedule.of(tile=(1, 1), group=(1, 1), split_k=1024))
    side = int((device.handle.max_mem_alloc_size / 8192) ** 0.5) + 64
    if 1024 * side * side >= 2**31:
        pytest.skip("the device's buffers are larger than 32-bit indices reach")
    with pytest.raises(DeviceError, match=r"workspace takes .* use a lower split"):
        check_workspaces(WorkspaceSizes(source).bytes({"m": side, "n": side, "k": 1}), device.handle)
