"""SYCL kernels from Python: bad input, the caches, crashes of the compiler, and USM of other libraries."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import gemmgen
from gemmgen import driver, presets
from gemmgen.errors import DeviceError, ScheduleError, SpecError
from gemmgen.runtime.sycl import SyclKernel
from gemmgen.runtime.sycl_arrays import own_queue
from gemmgen.runtime.sycl_devices import pick, sycl_devices, target_of
from gemmgen.runtime.sycl_library import Helper, helper
from gemmgen.source import Source
from gemmgen.spec import GemmSpec
from tests.support import sycl
from tests.support.tools import ran

pytestmark = sycl.needs_device


def source(name: str = "naive") -> Source:
    preset = presets.load(name)
    return driver.emit(preset.spec, preset.schedule, "sycl", target_of(pick()), "kernel")


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**{k: v for k, v in os.environ.items() if k != "OCL_ICD_FILENAMES"}, **variables}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def naive() -> SyclKernel:
    return SyclKernel.from_source(source())


def ones(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.ones(shape, np.float32)


# --- the compiler ---------------------------------------------------------------------------------


def test_a_build_error_shows_the_emitted_line() -> None:
    good = source()
    bad = replace(good, text=good.text.replace("float acc = 0.0f;", "float acc = zero;"))
    with pytest.raises(DeviceError, match="does not compile naive") as caught:
        SyclKernel.from_source(bad)
    assert "undeclared identifier 'zero'" in str(caught.value)
    number = bad.text.splitlines().index("        float acc = zero;") + 1
    assert f"{number:5d} |         float acc = zero;" in str(caught.value).splitlines()


def test_a_crash_of_the_compiler_leaves_this_process_alive() -> None:
    """The run-time compiler crashes on this function of an extension (2026.2)."""
    good = source()
    include = "#include <sycl/ext/oneapi/group_local_memory.hpp>\n#include <sycl/multi_ptr.hpp>\n"
    head, brace, body = good.text.rpartition("{\n")
    extension = "sycl::ext::oneapi::"
    crash = (
        f"    auto memory = {extension}group_local_memory_for_overwrite<float[16]>(\n"
        f"        {extension}this_work_item::get_work_group<2>());\n"
        "    (*memory)[0] = 1.0f;\n    c[0] = (*memory)[0];\n"
    )
    bad = replace(good, text=include + head + brace + crash + body)
    with pytest.raises(DeviceError, match="ended with signal SIG"):
        SyclKernel.from_source(bad)


def test_a_kernel_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "gemmgen" / "sycl"
    SyclKernel.from_source(source())
    (kept,) = folder.iterdir()
    made = kept.read_bytes()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("compiled again")

    with monkeypatch.context() as without:
        without.setattr(subprocess, "run", refuse)
        SyclKernel.from_source(source())
    kept.write_bytes(b"torn")
    assert np.array_equal(SyclKernel.from_source(source())(ones(3, 4), ones(4, 5)), 4 * ones(3, 5))
    assert kept.read_bytes() == made
    assert list(folder.iterdir()) == [kept]


USE = "import gemmgen, numpy as np; x = np.ones((4, 4), 'f'); print(gemmgen.gemm(x, x, backend='sycl').sum())"


def test_a_helper_of_somebody_elses_is_not_loaded(tmp_path: Path) -> None:
    """By its name it would be the one; it is made anew. Nor is a pipe waited for, in any place of the cache."""
    assert python(USE, XDG_CACHE_HOME=str(tmp_path)).stdout == "64.0\n"
    folder = tmp_path / "gemmgen" / "sycl"
    files = {file: file.read_bytes() for file in folder.iterdir()}
    assert {file.name.split("-")[0] for file in files} == {"helper", "executable"}
    for file in files:
        file.unlink()
        if file.name.startswith("helper"):
            file.symlink_to("/bin/true")
        else:
            os.mkfifo(file)
    result = python(USE, XDG_CACHE_HOME=str(tmp_path))
    assert (result.stdout, result.stderr) == ("64.0\n", "")
    assert not any(file.is_symlink() for file in files)
    assert all(file.is_file() for file in files)


def test_where_nothing_can_be_kept_it_computes_and_says_so_once() -> None:
    result = python(USE, XDG_CACHE_HOME="/proc/none")
    assert result.stdout == "64.0\n"
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("gemmgen keeps nothing on disk")


def test_ctrl_c_is_heard_in_a_call() -> None:
    code = """
import time, numpy as np, gemmgen
large, a = np.ones((256, 256), "f"), np.ones((1700, 1700), "f")
kernel = gemmgen.compile(None, "naive", backend="sycl")
kernel(large, large)
print("started", flush=True)
try:
    kernel(a, a)
except KeyboardInterrupt:
    begin = time.monotonic()
assert (kernel(large, large) == 256).all()
print("the kernel went on" if time.monotonic() - begin > 0.3 else "not heard before its end")
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=300) == ("the kernel went on\n", "")


def test_without_gxx_the_error_names_the_command(tmp_path: Path) -> None:
    code = "import gemmgen; gemmgen.compile(None, 'naive', backend='sycl')"
    result = python(code, PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    assert "DeviceError: g++ is not on PATH" in result.stderr
    assert "apt-get install g++" in result.stderr


def test_without_the_wheel_the_error_names_the_command(tmp_path: Path) -> None:
    code = (
        f"import sys; sys.prefix = {str(tmp_path)!r}\nfrom importlib import metadata\n"
        "def lost(name): raise metadata.PackageNotFoundError(name)\nmetadata.files = lost\n"
        "import gemmgen; gemmgen.compile(None, 'naive', backend='sycl')"
    )
    assert "DeviceError: no SYCL runtime in this environment" in (error := python(code).stderr)
    assert 'pip install "gemmgen[sycl]"' in error


@pytest.mark.parametrize("selector", ["opencl:cpu", "*:cpu", "opencl:0"])
def test_selector(selector: str) -> None:
    code = "import gemmgen; print(len(gemmgen.sycl_devices()), gemmgen.compile(None, 'naive', backend='sycl').device)"
    result = python(code, ONEAPI_DEVICE_SELECTOR=selector)
    assert result.returncode == 0, result.stderr
    if selector == "opencl:0":
        assert result.stdout.startswith("1 0: ")


def test_a_selector_that_leaves_nothing() -> None:
    result = python("import gemmgen; gemmgen.sycl_devices()", ONEAPI_DEVICE_SELECTOR="hip:gpu")
    assert "DeviceError: SYCL shows no device: unset ONEAPI_DEVICE_SELECTOR" in result.stderr
    result = python("import gemmgen; gemmgen.sycl_devices()", ONEAPI_DEVICE_SELECTOR="cpu")
    assert "ONEAPI_DEVICE_SELECTOR is 'cpu': unset it, or name one like opencl:cpu" in result.stderr


# --- what a device lacks --------------------------------------------------------------------------


def test_a_device_without_the_sub_group_size() -> None:
    lacking = replace(pick(), sub_group_sizes=(4, 32))
    with pytest.raises(DeviceError, match=r"needs sub-groups of 16, but .* has 4, 32: use one of those"):
        SyclKernel.from_source(source("sg16_block_16x2"), lacking)
    with pytest.raises(ScheduleError, match="sub_group = 16 is not a size of target"):
        gemmgen.compile(None, "sg16_block_16x2", backend="sycl", device=lacking)


def test_a_device_without_usm() -> None:
    with pytest.raises(DeviceError, match="it has no shared USM"):
        SyclKernel.from_source(source(), replace(pick(), usm=False))
    for info in sycl_devices():
        if info.lacks is not None:
            with pytest.raises(DeviceError, match="can't run kernels, as"):
                pick(info.number)


def test_a_device_with_little_local_memory() -> None:
    with pytest.raises(ScheduleError, match="B of local memory > 1,024 B"):
        SyclKernel.from_source(source("smem_8x8"), replace(pick(), local_bytes=1024))


def test_devices_by_name() -> None:
    info = pick()
    assert pick(info.name.upper()) == pick(str(info.number)) == pick(info.number) == info
    for wrong in ("nobody", 99):
        with pytest.raises(DeviceError, match="no SYCL device matches"):
            pick(wrong)
    with pytest.raises(DeviceError, match="of type float"):
        pick(1.5)


# --- arrays ---------------------------------------------------------------------------------------


@dataclass
class Foreign:
    """An array of some library."""

    __sycl_usm_array_interface__: Mapping[str, object]


def test_addresses_that_are_no_usm(naive: SyclKernel) -> None:
    host = ones(4, 4)
    interface = {"shape": (4, 4), "typestr": "<f4", "strides": None, "data": (host.ctypes.data, False), "syclobj": None}
    x = Foreign(interface)
    with pytest.raises(SpecError, match=r"a is not in USM .* or pass a copy of it, np\.array") as caught:
        naive(x, x)
    assert len(caught.value.problems) == 2


def test_calls_with_own_usm_are_prepared(monkeypatch: pytest.MonkeyPatch, naive: SyclKernel) -> None:
    """A later call with other arrays is replayed; memory that is free, and other kinds of calls, are looked at."""
    a, b, c = naive.empty((5, 7)), naive.empty((7, 3)), naive.empty((5, 3))
    np.asarray(b)[...] = np.arange(21).reshape(7, 3)
    for turn in range(3):
        np.asarray(a)[...], np.asarray(c)[...] = turn + 1, 1
        expected = (turn + 1) * np.asarray(b).sum(axis=0) * np.ones((5, 1))
        assert naive(a, b, c, alpha=1.0, beta=2.0) is c
        assert (np.asarray(c) == expected + 2).all()
        made = naive(a, b)
        assert type(made) is type(a) and (np.asarray(made) == expected).all()
        if not turn:
            monkeypatch.setattr(naive, "_looked_at", None)
    monkeypatch.undo()
    square = naive.empty((4, 4))
    with pytest.raises(SpecError, match="c overlaps a in memory"):
        naive(square, square, square)
    c.release()
    assert naive.again(a, b, c, 1.0, 2.0, {}) is None


def test_views_into_usm(naive: SyclKernel) -> None:
    """An offset and strides, counted in elements, as the protocol has them."""
    memory = naive.empty((6, 8))
    inside = np.asarray(memory)
    inside[...] = np.arange(48).reshape(6, 8)
    view = inside[1:4, 2:5]
    place = {"shape": (3, 3), "typestr": "<f4", "strides": (8, 1), "offset": 10, "data": (memory.address, False)}
    x = Foreign({**place, "syclobj": None})
    assert np.array_equal(np.asarray(naive(x, x)), view @ view)
    readonly = Foreign({**place, "data": (memory.address, True), "syclobj": None})
    with pytest.raises(SpecError, match="c is read-only"):
        naive(x, x, readonly)
    with pytest.raises(SpecError, match="c overlaps a in memory"):
        naive(x, x, x)


def test_bad_arrays(naive: SyclKernel) -> None:
    usm = naive.empty((4, 4))
    with pytest.raises(SpecError, match="two kinds are mixed"):
        naive(usm, ones(4, 4))
    with pytest.raises(TypeError, match="unexpected keyword argument 'return_event'"):
        naive(usm, usm, return_event=True)
    with pytest.raises(SpecError, match="b is of type list, neither NumPy's nor in USM"):
        naive(usm, [1])
    with pytest.raises(SpecError, match="float64, not float32"):
        naive(np.ones((4, 4)), ones(4, 4))
    with pytest.raises(SpecError, match="so k = 4, but a says k = 5"):
        naive(ones(3, 5), ones(4, 5))
    with pytest.raises(SpecError, match="does not give its USM away"):
        naive(Foreign({}), Foreign({}))
    with pytest.raises(SpecError, match="is a gemm kernel: call it with a and b"):
        naive.transpose(ones(2, 2))


def test_more_than_32_bits_reach(naive: SyclKernel) -> None:
    wide = np.lib.stride_tricks.as_strided(ones(4), (4, 1), (2**32, 4), writeable=False)
    with pytest.raises(SpecError, match="more than the 2147483647 that 32-bit indices reach"):
        naive(wide, ones(1, 1))


def test_a_workspace_that_is_too_large() -> None:
    """Where sizes are folded, by whoever emits it."""
    schedule, target = presets.load("sg16_block_16x1_split4").schedule, target_of(pick())
    told = r"the workspace has 4,294,967,296 elements.*: use a lower split"
    with pytest.raises(ScheduleError, match=told):
        driver.emit(GemmSpec(m=2**15, n=2**15, k=8), schedule, "sycl", target, "kernel")
    source = driver.emit(GemmSpec(k=8), schedule, "sycl", target, "kernel")
    with pytest.raises(SpecError, match=told):
        SyclKernel.from_source(source)(ones(2**15, 8), ones(8, 2**15))


def test_no_usm_is_leaked_by_a_failure(monkeypatch: pytest.MonkeyPatch, naive: SyclKernel) -> None:
    kept: list[int] = []
    allocate, free = Helper.allocate, Helper.free

    def counted(self: Helper, queue: int, size: int) -> int:
        kept.append(address := allocate(self, queue, size))
        return address

    def given_back(self: Helper, queue: int, memory: int) -> None:
        kept.remove(memory)
        free(self, queue, memory)

    def fail(*_: object) -> int:
        raise DeviceError("the kernel failed")

    monkeypatch.setattr(Helper, "allocate", counted)
    monkeypatch.setattr(Helper, "free", given_back)
    copying = SyclKernel.from_source(source(), replace(pick(), system=False))
    parts = SyclKernel.from_source(source("sg16_block_16x1_split4"))
    for gemm in (copying, parts):
        gemm(ones(9, 8), ones(8, 7))
        assert not kept
        with monkeypatch.context() as broken:
            broken.setattr(Helper, "launch", fail)
            with pytest.raises(DeviceError, match="the kernel failed"):
                gemm(ones(9, 8), ones(8, 7))
        assert not kept
    naive.empty((3, 3))
    assert not kept


def test_from_several_threads(naive: SyclKernel) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        a = np.full((60, 50), number, np.float32)
        wrong.extend(number for _ in range(20) if not (naive(a, ones(50, 40)) == 50 * number).all())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_calls_that_are_made_again(naive: SyclKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of NumPy's arrays, by the kernel and by `gemm`: nothing is checked twice but what like arrays differ in."""
    checked: list[object] = []
    request = SyclKernel._request

    def count_and_check(*args: object) -> object:
        checked.append(args)
        return request(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(SyclKernel, "_request", count_and_check)
    rng = np.random.default_rng(7)
    reached = naive.device.system
    a, b, c = (np.zeros((1, 1), np.float32),) * 3
    for count in range(3):
        a, b, c = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((13, 17), (17, 21), (13, 21)))
        expected = (2 + count) * (a @ b) - c
        assert naive(a, b, c, alpha=2 + count, beta=-1) is c
        assert (c == expected).all()
        assert (gemmgen.gemm(a, b, backend="sycl") == a @ b).all()
        assert (gemmgen.gemm(a.T, a, backend="sycl") == a.T @ a).all()
        checked[:] = checked[: 0 if count == 0 or not reached else None]
    assert not checked
    with pytest.raises(SpecError, match="c overlaps a in memory"):
        naive(a, a.T, a)
    with pytest.raises(SpecError, match="exceeds float32"):
        naive(a, b, c, alpha=1e40, beta=-1)


def test_lines_that_break_an_assumption() -> None:
    """NumPy's arrays are copied to USM; what the kernel makes in USM is padded, and may be an argument again."""
    plain = source()
    spec = replace(plain.spec, ld_multiple=(8, 4, 16))
    text = plain.text.replace("float acc = 0.0f;", "float acc = lda % 8 || ldb % 4 || ldc % 16 ? 0.0f / 0.0f : 0.0f;")
    assert text != plain.text
    gemm = SyclKernel.from_source(replace(plain, text=text, spec=spec))
    rng = np.random.default_rng(3)
    a, b, c = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((145, 17), (17, 145), (145, 145)))
    for _ in range(2):
        assert (gemm(a, b) == a @ b).all()
        expected = 2 * (a @ b) - c
        assert gemm(a, b, c, alpha=2, beta=-1) is c
        assert (c == expected).all()
    left, right = gemm.empty((145, 17)), gemm.empty((17, 145))
    for x, usm in ((a, left), (b, right)):
        np.asarray(usm)[...] = x
        assert usm.strides[0] % 64 == 0
    for _ in range(2):
        made = gemm(left, right)
        assert (np.asarray(made) == a @ b).all()
        assert gemm(left, right, made, beta=1) is made
        assert (np.asarray(made) == 2 * (a @ b)).all()


def test_workspaces_of_prepared_calls() -> None:
    """A kernel with split-K: its memory is that of one call, from several threads at once."""
    gemm = gemmgen.compile(GemmSpec(), "sg16_block_16x1_split4", backend="sycl")
    assert gemm.source.workspaces
    rng = np.random.default_rng(8)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((40, 64), (64, 24)))
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: gemm(a, b), range(12)):
            assert (result == a @ b).all()


def test_times(naive: SyclKernel) -> None:
    seconds = naive.time(ones(100, 100), ones(100, 100), iterations=3)
    assert len(seconds) == 3
    assert all(0 < s < 10 for s in seconds)


def test_generated_kernels_are_importable() -> None:
    import gemmgen.generated.sycl as generated

    assert set(sycl.shipped()) == set(generated.__all__)
    x = np.arange(19 * 19, dtype=np.float32).reshape(19, 19) % 5
    assert np.array_equal(generated.naive(x, x), x @ x)
    assert generated.naive.source.text == (Path(str(generated.__file__)).parent / "naive.cpp").read_text()


def test_dpctl_arrays(tmp_path: Path) -> None:
    """USM of the default context, and of a context of its own, in which the kernel is loaded for the call."""
    pytest.importorskip("dpctl", reason="dpctl is not installed: pip install dpctl")
    icd = next(Path(sys.prefix, "lib").glob("libintelocl.so"), None)
    script = tmp_path / "script.py"
    script.write_text(DPCTL)
    variables = {"OCL_ICD_FILENAMES": str(icd)} if icd else {}
    environment = {**os.environ, **variables}
    result = ran([sys.executable, str(script)], env=environment)
    assert result.stdout.split() == ["True"] * 4


DPCTL = """
import dpctl, dpctl.memory, gemmgen, numpy as np

class Matrix:
    def __init__(self, queue, rows, cols):
        self.memory, self.shape = dpctl.memory.MemoryUSMShared(rows * cols * 4, queue=queue), (rows, cols)
        self.view = np.frombuffer(memoryview(self.memory), np.float32).reshape(rows, cols)

    @property
    def __sycl_usm_array_interface__(self):
        own = self.memory.__sycl_usm_array_interface__
        return {**own, "shape": self.shape, "typestr": "<f4", "strides": None, "data": (own["data"][0], False)}

gemm = gemmgen.compile(None, "naive", backend="sycl")
device = dpctl.SyclDevice()
for queue in (dpctl.SyclQueue(device), dpctl.SyclQueue(dpctl.SyclContext(device), device)):
    a, b, c = (Matrix(queue, *shape) for shape in ((30, 40), (40, 50), (30, 50)))
    a.view[...], b.view[...] = 2, 3
    print(gemm(a, b, c) is c and (c.view == 240).all())
    fresh = gemm(a, b)
    del queue
    print((np.asarray(fresh) == 240).all())
"""


def test_helper_reports_in_words() -> None:
    queue = own_queue(pick())
    assert helper().kernels(queue.handle, b"no SYCLBIN", ["naive"]) is None
    assert helper().text()
    with pytest.raises(DeviceError, match="no queue"):
        helper().queue(99)


def test_what_a_spec_folds() -> None:
    spec = GemmSpec(m=8, n=8, k=8, alpha=2.0, beta=0.0, multiple_of=(8, 8, 8))
    gemm = gemmgen.compile(spec, "naive", backend="sycl")
    assert np.array_equal(gemm(ones(8, 8), ones(8, 8)), 16 * ones(8, 8))
    with pytest.raises(SpecError, match="made for m = 8"):
        gemm(ones(9, 8), ones(8, 8))
