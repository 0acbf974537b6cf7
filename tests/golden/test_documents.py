"""Kernels under version control that no preset has: epilogues, grouped products, TMA stores of a transposed C.

Each is emitted in all languages that can express it, and compiled with warnings as errors.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgen import driver
from gemmgen.options import Document, read_document
from tests.support.golden import Golden
from tests.support.sycl import host_check
from tests.support.tools import clang, nvcc

FOLDER = Path(__file__).parent
LANGUAGES = {"opencl": ".cl", "cuda": ".cu", "sycl": ".hpp"}
DOCUMENTS = {
    f"{file.parent.name}/{file.stem}": read_document(file.read_text(), file.stem) for file in FOLDER.glob("*/*.toml")
}


def expressible(language: str) -> list[str]:
    """The documents that a language takes."""

    def refused(document: Document) -> bool:
        return bool(driver.refusals(document.spec, document.schedule, language))

    return sorted(name for name, document in DOCUMENTS.items() if not refused(document))


NAMES = {language: expressible(language) for language in LANGUAGES}


@pytest.mark.parametrize(("name", "language"), [(name, x) for x, names in NAMES.items() for name in names])
def test_emitted_file(name: str, language: str, golden: Golden) -> None:
    text = driver.emit(DOCUMENTS[name].spec, DOCUMENTS[name].schedule, language).text
    golden.check(FOLDER / f"{name}{LANGUAGES[language]}", text)


def test_no_other_files(golden: Golden) -> None:
    expected = {FOLDER / f"{name}{LANGUAGES[language]}" for language, names in NAMES.items() for name in names}
    folders = {(FOLDER / name).parent for name in DOCUMENTS}
    golden.check_no_orphans((x for folder in folders for x in folder.iterdir() if x.suffix != ".toml"), expected)


@pytest.mark.parametrize("name", NAMES["opencl"])
def test_clang_takes_it(name: str) -> None:
    clang(FOLDER / f"{name}.cl", "-cl-std=CL1.2")


@pytest.mark.parametrize("name", NAMES["cuda"])
def test_nvcc_takes_it(name: str, tmp_path: Path) -> None:
    arch = "sm_90a" if DOCUMENTS[name].schedule.by_warpgroups else "sm_80"
    report = nvcc(FOLDER / f"{name}.cu", arch, tmp_path)
    assert "0 bytes spill stores" in report
    assert "C75" not in report, "no instruction waits for another"


def test_gcc_takes_the_types(tmp_path: Path) -> None:
    """All at once, which takes little longer than one."""
    file = tmp_path / "all.cpp"
    file.write_text("".join(f'#include "{FOLDER / name}.hpp"\n' for name in NAMES["sycl"]))
    host_check(file)
