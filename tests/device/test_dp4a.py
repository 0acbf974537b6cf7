"""Dot products of four neighbours of int8: in the interpreter, on the devices of this machine, and by compilers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.errors import ScheduleError
from gemmgen.inspect.code import Kind
from gemmgen.inspect.jobs import file_jobs, inspect
from gemmgen.inspect.machine import choose
from gemmgen.inspect.report import Report
from gemmgen.ir.dtypes import BF16, I8
from gemmgen.ir.target import TARGETS
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import DeviceInfo, target_of
from gemmgen.runtime.sycl import SyclKernel
from gemmgen.runtime.sycl_devices import SyclDeviceInfo
from gemmgen.runtime.sycl_devices import target_of as sycl_target
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec
from tests.device.naive import DEVICES
from tests.device.test_sycl_presets import DEVICES as SYCL_DEVICES
from tests.support import hip
from tests.support.problems import Problem, check_products, layouts
from tests.support.tools import tool

#: From global memory; by tiles of local memory with lines along K; with registers filled ahead, and the next tile.
SCHEDULES = {
    "direct": Schedule.of(tile=(2, 3), group=(4, 4), block_k=8, a=Operand(width=4), b=Operand(width=8), atom="dp4a"),
    "singles": Schedule.of(tile=(2, 3), group=(4, 4), block_k=8, atom="dp4a"),
    "one": Schedule.of(group=(4, 4), block_k=4, atom="dp4a"),
    "local": Schedule.of(
        tile=(4, 4),
        group=(4, 4),
        block_k=16,
        a=Operand("local", 4, pad=4),
        b=Operand("local", 4, transposed=True, pad=4),
        atom="dp4a",
    ),
    "ahead": Schedule.of(
        tile=(4, 2),
        group=(4, 4),
        block_k=8,
        stages=2,
        register_stages=2,
        prefetch=True,
        a=Operand("local", 4, transposed=True),
        b=Operand("local"),
        atom="dp4a",
    ),
}
SPEC = GemmSpec(dtype=I8)
#: Lines of both operands along K, which "direct" loads by vectors.
ALONG_K = GemmSpec(dtype=I8, b_order="col")
SIZES = ((33, 17, 9), (16, 16, 32), (1, 1, 1), (5, 70, 45))


@pytest.mark.parametrize("name", SCHEDULES)
def test_interpreted(name: str, rng: np.random.Generator) -> None:
    """Bit for bit, in all layouts, with lines that begin anywhere."""
    specs = [ALONG_K] * 8 if name == "direct" else [*layouts(SPEC)]
    cases = [*zip(specs, SIZES * 2, strict=True)]
    for target, some in (("portable", cases), ("sm_80", cases[:2])):
        for spec, size in some:
            check_products(
                driver.lower_program(spec, SCHEDULES[name], TARGETS[target]), spec, rng, size, factors=(3.0, -2.0)
            )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_opencl(name: str, device: DeviceInfo, rng: np.random.Generator) -> None:
    for spec in (ALONG_K,) if name == "direct" else (SPEC, ALONG_K):
        source = driver.emit(spec, SCHEDULES[name], target=target_of(device.handle))
        gemm = CompiledKernel.from_source(source, device)
        for size in SIZES:
            problem = Problem.of(rng, spec, *size, -2.0, 3.0)
            b = problem.b if spec.b_order == "row" else np.asfortranarray(problem.b)
            problem.check(gemm(problem.a, b, problem.c.copy(), alpha=-2, beta=3))


@pytest.mark.parametrize("device", SYCL_DEVICES)
@pytest.mark.parametrize("name", ["singles", "local"])
def test_sycl(name: str, device: SyclDeviceInfo, rng: np.random.Generator) -> None:
    source = driver.emit(SPEC, SCHEDULES[name], "sycl", sycl_target(device), "kernel")
    gemm = SyclKernel.from_source(source, device)
    for size in SIZES:
        problem = Problem.of(rng, SPEC, *size, -2.0, 3.0)
        problem.check(gemm(problem.a, problem.b, problem.c.copy(), alpha=-2, beta=3))


@pytest.mark.parametrize("target", hip.EMULATED)
def test_hip(target: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """AMD's compiler, too, knows it by the sum; the machine code is right where there is an emulator."""
    source = hip.emitted(SPEC, SCHEDULES["local"], target)
    code = hip.compiled(source, target, tool("clang"), tmp_path)
    assert hip.assembly(source, target, tool("clang"), tmp_path).count("v_dot4") >= 4 * 4 * 16 // 4
    hip.emulator()
    m, n, k = SIZES[0]
    a, b = (rng.integers(-128, 128, shape, np.int8) for shape in ((m, k), (k, n)))
    c = np.ones((m, n), np.int32)
    scalars: dict[str, float | int] = {"m": m, "n": n, "k": k, "lda": k, "ldb": n, "ldc": n, "alpha": 2, "beta": 3}
    hip.product(source, code, target, {"a": a, "b": b, "c": c}, scalars)
    assert np.array_equal(c, 2 * (a.astype(np.int32) @ b) + 3)


@pytest.mark.parametrize("device", ["tgllp", "dg2-g10"])
def test_intels_gpus_have_the_instruction(device: str, tmp_path: Path) -> None:
    """Their compiler knows it by the sum: of 2022, which links no `dot`, and of today, which makes the same of both."""
    tool("ocloc"), tool("iga64")
    file = tmp_path / "kernel.cl"
    file.write_text(driver.emit(ALONG_K, SCHEDULES["local"]).text)
    (report,) = inspect(file_jobs(file, None, choose([device])))
    assert isinstance(report, Report) and report.loop is not None
    multiplying = [x.text for x in report.loop.instructions if x.kind is Kind.FMA]
    assert multiplying and all("dp4a" in text for text in multiplying)


@pytest.mark.parametrize(
    ("spec", "changes", "said"),
    [
        (GemmSpec(dtype=BF16), {}, "atom dp4a multiplies int8, not bfloat16: use dtype int8, or atom fma"),
        (GemmSpec(), {"block_k": 6}, "atom dp4a multiplies int8, not float32"),
        (SPEC, {"block_k": 6}, "block_k = 6 is not made of the 4 that atom dp4a multiplies at a time: use block_k 4, "),
        (
            SPEC,
            {"b": Operand(width=4), "tile": (1, 4), "thread_vector": (1, 4)},
            "b.width = 4 loads neighbours",
        ),
        (SPEC, {"serpentine": True}, "serpentine orders multiply-adds, not atom dp4a: drop it, or use atom fma"),
    ],
)
def test_refused(spec: GemmSpec, changes: dict[str, object], said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        driver.emit(spec, SCHEDULES["one"].but(**changes))
