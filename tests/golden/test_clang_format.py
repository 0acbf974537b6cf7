"""Emitted files are as clang-format leaves them, by the style at the top level; no line is too long, either."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gemmgen import driver, presets
from gemmgen.backends.layout import LIMIT
from gemmgen.errors import LoweringError, ScheduleError
from gemmgen.project import LANGUAGES, project_files
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.support.draws import Request, draw
from tests.support.tools import tool

#: Files of C, by what their names end in.
SUFFIXES = (".c", ".cl", ".cpp", ".cu", ".h", ".hip", ".hpp")
#: Requests that are drawn; about one of four can be had.
DRAWN = range(240)
#: What each form's file ends in.
ENDINGS = {
    ("opencl", "kernel"): ".cl",
    ("opencl", "header"): ".h",
    ("sycl", "kernel"): ".cpp",
    ("sycl", "header"): ".hpp",
    ("sycl", "main"): "_main.cpp",
    ("cuda", None): ".cu",
    ("hip", None): ".hip",
}


def kept(root: Path) -> list[Path]:
    """The files of C under version control that gemmgen emits."""
    folders = (root / "generated", root / "tests" / "golden")
    return sorted(x for folder in folders for x in folder.rglob("*") if x.suffix in SUFFIXES)


def forms(request: Request) -> Iterator[tuple[str, str]]:
    """(end of the file's name, text) of each form that a request can be had in."""
    for (backend, form), ending in ENDINGS.items():
        if backend == request.place.backend:
            try:
                source = driver.emit(request.spec, request.schedule(), backend, request.place.target, form)
            except (LoweringError, ScheduleError):
                # What no header launches, or no program checks.
                continue
            yield ending, source.text


@pytest.fixture
def is_formatted(root: Path) -> Callable[[list[Path]], None]:
    """Fails with what clang-format would change."""
    program = tool("clang-format")

    def check(files: list[Path]) -> None:
        command = [program, "--dry-run", "-Werror", f"--style=file:{root}/.clang-format", *map(str, files)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert files
        assert result.returncode == 0, "\n".join(result.stderr.splitlines()[:40])

    return check


def test_no_line_is_too_long(root: Path) -> None:
    long = [
        f"{file.relative_to(root)}:{number}"
        for file in kept(root)
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if len(line) > LIMIT
    ]
    assert not long


def test_files_that_are_kept(is_formatted: Callable[[list[Path]], None], root: Path) -> None:
    is_formatted(kept(root))


@pytest.mark.parametrize("part", range(4))
def test_requests_drawn_at_random(part: int, is_formatted: Callable[[list[Path]], None], tmp_path: Path) -> None:
    files = []
    for number in DRAWN[part::4]:
        request = draw(number)
        if request.problems():
            continue
        for ending, text in forms(request):
            assert max(map(len, text.splitlines())) <= LIMIT, number
            file = tmp_path / f"drawn{number}{ending}"
            file.write_text(text)
            files.append(file)
    is_formatted(files)


@pytest.mark.parametrize("backend", LANGUAGES)
def test_projects(backend: str, is_formatted: Callable[[list[Path]], None], tmp_path: Path) -> None:
    smem = presets.load("smem_8x8").schedule
    asked: list[tuple[GemmSpec, Schedule]] = [(GemmSpec(), smem), (GemmSpec(), smem.but(split_k=4, name=None))]
    files = []
    for number, (spec, schedule) in enumerate(asked):
        for name, text in project_files(spec, schedule, backend).items():
            file = tmp_path / f"{number}_{name}"
            file.write_text(text)
            files += [file] if file.suffix in SUFFIXES else []
    is_formatted(files)
