"""Kernels with epilogues in each language, under version control and compiled with warnings as errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgen import driver
from gemmgen.options import read_document
from gemmgen.source import Source
from tests.support.golden import Golden
from tests.support.sycl import host_check
from tests.support.tools import clang, nvcc

FOLDER = Path(__file__).parent / "epilogues"
NAMES = sorted(file.stem for file in FOLDER.glob("*.toml"))
LANGUAGES = {"opencl": ".cl", "cuda": ".cu", "sycl": ".hpp"}

#: Where work-items compute on vectors, which CUDA has none of.
VECTORS = {"bias_gelu_vectors"}
#: By matrix instructions of CUDA.
WARPS = {
    "bias_residual_gelu_by_warpgroups",
    "int8_weights_by_warps",
    "scales_by_blocks",
    "swiglu_by_warpgroups",
    "swiglu_by_warps",
}
#: Those of Hopper.
WARPGROUPS = {"bias_residual_gelu_by_warpgroups", "scales_by_blocks", "swiglu_by_warpgroups"}
NOT_IN = {"cuda": VECTORS, "opencl": WARPS, "sycl": WARPS}


def emit(name: str, backend: str) -> Source:
    document = read_document((FOLDER / f"{name}.toml").read_text(), name)
    return driver.emit(document.spec, document.schedule, backend)


@pytest.mark.parametrize(("name", "backend"), [(name, x) for name in NAMES for x in LANGUAGES if name not in NOT_IN[x]])
def test_emitted_file(name: str, backend: str, golden: Golden) -> None:
    golden.check(FOLDER / f"{name}{LANGUAGES[backend]}", emit(name, backend).text)


@pytest.mark.parametrize("name", sorted({*NAMES} - WARPS))
def test_clang_takes_it(name: str) -> None:
    clang(FOLDER / f"{name}.cl", "-cl-std=CL1.2")


@pytest.mark.parametrize("name", sorted({*NAMES} - VECTORS))
def test_nvcc_takes_it(name: str, tmp_path: Path) -> None:
    arch = "sm_90a" if name in WARPGROUPS else "sm_80"
    report = nvcc(FOLDER / f"{name}.cu", arch, tmp_path)
    assert "0 bytes spill stores" in report
    assert "C75" not in report, "no instruction waits for another"


def test_gcc_takes_the_types(tmp_path: Path) -> None:
    """All at once, which takes little longer than one."""
    file = tmp_path / "all.cpp"
    file.write_text("".join(f'#include "{FOLDER / name}.hpp"\n' for name in NAMES if name not in WARPS))
    host_check(file)
