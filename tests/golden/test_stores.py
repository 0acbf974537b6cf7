"""Stores by TMA from a C whose lines are columns of the sums: emitted files, compiled with warnings as errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgen import driver
from gemmgen.options import read_document
from tests.support.golden import Golden
from tests.support.tools import nvcc

FOLDER = Path(__file__).parent / "stores"
NAMES = sorted(file.stem for file in FOLDER.glob("*.toml"))


@pytest.mark.parametrize("name", NAMES)
def test_emitted_file(name: str, golden: Golden) -> None:
    document = read_document((FOLDER / f"{name}.toml").read_text(), name)
    golden.check(FOLDER / f"{name}.cu", driver.emit(document.spec, document.schedule, "cuda").text)


@pytest.mark.parametrize("name", NAMES)
def test_nvcc_takes_it(name: str, tmp_path: Path) -> None:
    report = nvcc(FOLDER / f"{name}.cu", "sm_90a", tmp_path)
    assert "0 bytes spill stores" in report
    assert "C75" not in report, "no instruction waits for another"
