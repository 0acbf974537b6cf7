"""Every SYCL file that is kept, built by icpx as a project builds it; the programs run on the CPU device.

The CI's job with icpx runs these: the compiler is in Intel's own repository alone.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgen import driver, presets
from gemmgen.ir.dtypes import BF16
from gemmgen.project import project_files
from gemmgen.source import Source
from gemmgen.spec import GemmSpec
from tests.support import skips, sycl

ROOT = Path(__file__).resolve().parents[2]
#: All headers under version control: presets', the transposes', and those with epilogues.
HEADERS = sorted([*(ROOT / "generated" / "sycl").rglob("*.hpp"), *(ROOT / "tests" / "golden").rglob("*.hpp")])
OPTIONS = ("-fsycl", "-std=c++17", "-O3", "-fp-model=precise", *sycl.STRICT)
ICPX = shutil.which("icpx")

pytestmark = pytest.mark.skipif(ICPX is None, reason=f"{skips.ICPX}: .github/workflows/ci.yml installs it")


def icpx(*arguments: str | Path) -> None:
    sycl.run([str(ICPX), *OPTIONS, *map(str, arguments)])


@pytest.mark.parametrize("header", HEADERS, ids=lambda file: file.stem)
def test_a_header_builds(header: Path, tmp_path: Path) -> None:
    caller = tmp_path / "caller.cpp"
    caller.write_text(f'#include "{header}"\n')
    icpx("-c", caller, "-o", tmp_path / "caller.o")


def builds_and_passes(source: Source, folder: Path) -> None:
    program, binary = folder / f"{source.name}.cpp", folder / source.name
    program.write_text(source.text)
    icpx(program, "-o", binary)
    assert sycl.run([str(binary)]).endswith("passed\n")


@pytest.mark.parametrize("name", sycl.names())
def test_a_program_passes(name: str, tmp_path: Path) -> None:
    builds_and_passes(sycl.emit(name, "main"), tmp_path)


@pytest.mark.parametrize("block", [8, 16, 32])
def test_a_transpose_passes(block: int, tmp_path: Path) -> None:
    builds_and_passes(driver.emit_transpose(GemmSpec(), block, "sycl", form="main"), tmp_path)


@pytest.mark.parametrize(
    ("name", "spec"),
    [("smem_8x8", GemmSpec()), ("smem_8x8_double_packed", GemmSpec(batched=True)), ("naive", GemmSpec(dtype=BF16))],
)
def test_a_project_is_right(name: str, spec: GemmSpec, tmp_path: Path) -> None:
    files = project_files(spec, replace(presets.load(name).schedule, name=name), "sycl")
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    icpx(tmp_path / "main.cpp", "-o", tmp_path / name)
    assert "right, bit for bit" in sycl.run([str(tmp_path / name), "131", "75", "37"])
