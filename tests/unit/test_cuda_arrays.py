"""What the CUDA runtime makes of arrays, as far as it goes without a GPU."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.api.libraries import Gpu
from gemmgen.api.matmul import Operand
from gemmgen.errors import DeviceError, ScheduleError, SpecError
from gemmgen.ir.expr import Var, ceil_div
from gemmgen.runtime import cuda_driver, nvrtc
from gemmgen.runtime.build import build_failure, check_device
from gemmgen.runtime.cuda import CudaKernel
from gemmgen.runtime.cuda_arrays import as_matrix, placement_problems
from gemmgen.runtime.cuda_build import ERROR_LINE, WORDS, grid_problems
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, target_of
from gemmgen.runtime.cuda_memory import memory_of
from gemmgen.runtime.views import DeviceMatrix
from gemmgen.spec import GemmSpec
from tests.support.arrays import check_gemm
from tests.support.tools import ran

H200 = CudaDeviceInfo(0, "H200", (9, 0), 132, 232448, 1024, 1 << 37)


@pytest.fixture(autouse=True)
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of a driver's: an address's GPU is its high part."""
    monkeypatch.setattr(cuda_driver, "pointer_device", lambda pointer: pointer >> 40)


@dataclass
class Foreign:
    """An array of some library."""

    __cuda_array_interface__: dict[str, object]


def foreign(*shape: int, pointer: int = 1 << 20, readonly: bool = False, typestr: str = "<f4") -> Foreign:
    return Foreign({"shape": shape, "typestr": typestr, "data": (pointer, readonly), "strides": None, "version": 3})


def problems(spec: GemmSpec, alignment: int = 1, device: int | None = None, **arrays: object) -> tuple[str, ...]:
    found: list[str] = []
    known = {name: as_matrix(name, arrays.get(name), found) for name in "abc"}
    found += placement_problems(known, alignment, device, "c")
    with pytest.raises(SpecError) as caught:
        check_gemm(spec, known["a"], known["b"], known["c"], kinds=lambda _: found)
    return caught.value.problems


def test_interface() -> None:
    found: list[str] = []
    matrix = as_matrix("a", foreign(3, 4), found)
    assert isinstance(matrix, DeviceMatrix)
    assert (matrix.shape, matrix.strides, matrix.dtype, matrix.device) == ((3, 4), (16, 4), np.dtype("f4"), 0)
    assert as_matrix("c", None, found) is None
    assert not found


def test_every_problem_at_once() -> None:
    listed = problems(
        GemmSpec(ld_multiple=4),
        alignment=16,
        a=foreign(3, 4, pointer=(1 << 20) + 4),
        b=foreign(4, 5, pointer=1 << 40),
        c=foreign(3, 5, readonly=True),
    )
    for text in (
        "several GPUs (a on 0, b on 1, c on 0)",
        "a begins 4 bytes past a multiple of 16",
        "c is read-only",
        "c overlaps a",
        "b has leading dimension 5, not a multiple of 4",
    ):
        assert any(text in problem for problem in listed), (text, listed)


def test_host_arrays_and_other_things() -> None:
    listed = problems(GemmSpec(), a=np.zeros((2, 2), np.float32), b="x")
    assert any(x.startswith("a is a NumPy array, in the host's memory: pass cupy.asarray(a)") for x in listed)
    assert any("b is of type str, not an array in a GPU's memory" in problem for problem in listed)


def test_bound_to_another_gpu() -> None:
    listed = problems(GemmSpec(), device=1, a=foreign(2, 2), b=foreign(2, 2))
    assert any("arrays are on GPU 0, but the kernel was compiled for GPU 1" in problem for problem in listed)


@pytest.mark.parametrize(
    ("capability", "name"), [((7, 5), "sm_75"), ((8, 7), "sm_86"), ((9, 0), "sm_90a"), ((10, 3), "sm_100")]
)
def test_nearest_target(capability: tuple[int, int], name: str) -> None:
    assert target_of(replace(H200, capability=capability)).name == name


def test_too_old() -> None:
    with pytest.raises(DeviceError, match=r"older than compute capability 7\.5"):
        target_of(replace(H200, capability=(7, 0)))


def test_limits_of_a_gpu() -> None:
    preset = presets.load("smem_8x8_double")
    source = driver.emit(preset.spec, preset.schedule, "cuda")
    check_device(source, "H200", target_of(H200), WORDS)
    small = target_of(replace(H200, shared_bytes=16384, max_threads=128))
    with pytest.raises(ScheduleError) as error:
        check_device(source, "H200", small, WORDS)
    assert len(error.value.problems) == 2
    with pytest.raises(DeviceError, match="needs image_block_read"):
        check_device(replace(source, requires=frozenset({"image_block_read"})), "H200", target_of(H200), WORDS)
    entry = replace(source.entry_points[0], grid=(ceil_div(Var("m"), 8), ceil_div(Var("n"), 8)))
    assert not grid_problems(entry, entry.groups({"m": 65_535 * 8, "n": 2**30}))
    assert "65,536 blocks along the rows of C > 65,535" in grid_problems(entry, (1, 65_536, 1))[0]


def test_a_log_quotes_the_line() -> None:
    preset = presets.load("naive")
    source = driver.emit(preset.spec, preset.schedule, "cuda")
    log = "/tmp/x.cu(1): error: nonsense\n1 error detected"
    text = build_failure(source, "NVRTC does not compile naive for H200", log, ERROR_LINE)
    assert text.splitlines()[0] == "NVRTC does not compile naive for H200; its log:"
    assert text.splitlines()[-1] == f"    1 | {source.text.splitlines()[0]}"


def test_a_call_takes_only_its_own_backends_places() -> None:
    preset = presets.load("naive")
    kernel = CudaKernel(driver.emit(preset.spec, preset.schedule, "cuda"))
    with pytest.raises(TypeError, match="unexpected keyword argument 'queue'"):
        kernel(1, 2, queue=3)  # type: ignore[call-overload]
    with pytest.raises(SpecError, match=r"call \.transpose\(a\)"):
        CudaKernel(driver.emit_transpose(GemmSpec(), backend="cuda"))(1, 2)


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # What NVRTC said of itself before is kept on disk.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(DeviceError, match=r"as there is no driver \(libcuda\.so\.1: cannot open.*install NVIDIA's"):
        unwrapped(cuda_driver.library)()
    with pytest.raises(DeviceError, match=r"NVRTC, which compiles for CUDA, can't be loaded.*nvidia-cuda-nvrtc"):
        unwrapped(nvrtc.nvrtc)(13)
    with pytest.raises(DeviceError, match=r"can't be loaded \(gone: cannot open.*nvidia-cuda-nvrtc"):
        nvrtc.Nvrtc("gone").compile("", "empty", ())


def unwrapped(function: Callable[..., object]) -> Callable[..., object]:
    """The function behind a cache."""
    return cast("Callable[..., object]", getattr(function, "__wrapped__"))  # noqa: B009


def test_cupy_that_can_not_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy" / "__init__.py").write_text("raise ImportError('CuPy is not correctly installed.')")
    with monkeypatch.context() as patch:
        for name in [name for name in sys.modules if name.partition(".")[0] == "cupy"]:
            patch.delitem(sys.modules, name)
        patch.syspath_prepend(str(tmp_path))
        with pytest.raises(DeviceError) as error:
            memory_of("cupy")
    assert "CuPy can't be imported (CuPy is not correctly installed.): pip uninstall" in str(error.value)


@pytest.mark.parametrize("major", [13, 12])
def test_nvrtc_is_found_in_torchs_packages(major: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of CUDA 13 lie in one folder, those of CUDA 12 in one each. What the driver does not run is not tried."""
    for version, part in ((13, "cu13"), (12, "cuda_nvrtc")):
        folder = tmp_path / "nvidia" / part / "lib"
        folder.mkdir(parents=True)
        (folder / f"libnvrtc.so.{version}").touch()
    monkeypatch.setattr(nvrtc, "_package_folders", lambda: [tmp_path / "nvidia"])
    first = next(iter(nvrtc.candidates(major)))
    assert first == str(
        tmp_path / "nvidia" / ("cu13" if major == 13 else "cuda_nvrtc") / "lib" / f"libnvrtc.so.{major}"
    )
    assert all("13" not in Path(path).name for path in nvrtc.candidates(12))


def test_importing_a_shipped_kernel_needs_no_gpu() -> None:
    script = """
import sys
import gemmgen.generated.cuda as shipped
for name in shipped.__all__[:1]:
    getattr(shipped, name)
assert not {"cupy", "torch", "pyopencl"} & set(sys.modules)
"""
    ran([sys.executable, "-c", script])


def test_blocks_of_fewer_threads_than_a_warp_are_not_shipped() -> None:
    """The preset can still be emitted by its name; both say why nobody should."""
    with pytest.raises(
        ImportError, match="blocks of 8 threads leave 24 of a warp's 32 lanes idle: take preset smem_8x8"
    ):
        from gemmgen.generated.cuda import L3_SIMD_32x2_1x8  # noqa: F401
    shipped = import_module("gemmgen.generated.cuda")
    with pytest.raises(AttributeError, match="did you mean"):
        shipped.__getattr__("smem_8x9")
    preset = presets.load("L3_SIMD_32x2_1x8")
    text = driver.emit(preset.spec, preset.schedule, "cuda").text
    assert "// Note       blocks of 8 threads leave 24 of a warp's 32 lanes idle: take preset smem_8x8" in text
    full = presets.load("smem_8x8")
    assert "Note" not in driver.emit(full.spec, full.schedule, "cuda").text.partition("#ifndef")[0]


@pytest.mark.parametrize(
    ("shape", "strides", "pointer", "expected"),
    [
        ((64, 64), None, 1 << 20, True),
        ((64, 60), None, 1 << 20, False),
        ((64, 60), (128, 2), 1 << 20, True),
        ((60, 64), (2, 128), 1 << 20, True),
        ((64, 64), None, (1 << 20) + 8, False),
        ((1, 60), None, 1 << 20, True),
    ],
)
def test_lines_that_boxes_can_begin_at(
    shape: tuple[int, int], strides: tuple[int, int] | None, pointer: int, expected: bool
) -> None:
    """A single line has no next one."""
    interface: dict[str, object] = {
        "shape": shape,
        "typestr": "<f2",
        "data": (pointer, False),
        "strides": strides,
        "version": 3,
    }
    matrix = as_matrix("a", Foreign(interface), [])
    assert isinstance(matrix, DeviceMatrix)
    operand = Operand(matrix, matrix.shape, matrix.strides, matrix.dtype)
    assert Gpu(is_torch=False).begins_lines(operand, 8) is expected
