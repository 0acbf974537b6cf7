"""Kernels of grouped products in each language, under version control and compiled with warnings as errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgen import driver
from gemmgen.options import read_document
from tests.support.golden import Golden
from tests.support.sycl import host_check
from tests.support.tools import clang, nvcc

FOLDER = Path(__file__).parent / "grouped"
#: Name -> the languages that have it.
FILES = {
    "experts": {"opencl": ".cl", "cuda": ".cu", "sycl": ".hpp"},
    "experts_by_warpgroups": {"cuda": ".cu"},
    "weight_gradient": {"cuda": ".cu"},
    "weight_gradient_by_warpgroups": {"cuda": ".cu"},
}


@pytest.mark.parametrize(("name", "backend"), [(name, x) for name, languages in FILES.items() for x in languages])
def test_emitted_file(name: str, backend: str, golden: Golden) -> None:
    document = read_document((FOLDER / f"{name}.toml").read_text(), name)
    text = driver.emit(document.spec, document.schedule, backend).text
    golden.check(FOLDER / f"{name}{FILES[name][backend]}", text)


def test_clang_takes_it() -> None:
    clang(FOLDER / "experts.cl", "-cl-std=CL1.2")


@pytest.mark.parametrize("name", FILES)
def test_nvcc_takes_it(name: str, tmp_path: Path) -> None:
    arch = "sm_90a" if name.endswith("_by_warpgroups") else "sm_80"
    report = nvcc(FOLDER / f"{name}.cu", arch, tmp_path)
    assert "0 bytes spill stores" in report
    assert "C75" not in report, "no instruction waits for another"


def test_gcc_takes_the_types(tmp_path: Path) -> None:
    file = tmp_path / "all.cpp"
    file.write_text(f'#include "{FOLDER / "experts.hpp"}"\n')
    host_check(file)
