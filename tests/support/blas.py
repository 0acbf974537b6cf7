"""What tests of the exported BLAS share: the library, and programs that call it in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from gemmgen.errors import UserError
from gemmgen.export.blas import blas_source, compiler_command

ROOT = Path(__file__).resolve().parents[2]
#: Where Debian's libblas-test puts the test programs of the reference BLAS.
PROGRAMS = tuple(Path("/usr/lib").glob("*/blas"))


@cache
def why_no_compiler() -> str | None:
    """The reason to skip, or None."""
    try:
        compiler_command()
    except UserError as error:
        return str(error)
    return None


@cache
def source() -> str:
    return blas_source()


def reference_program(name: str) -> Path | None:
    """A test program of the reference BLAS."""
    return next((folder / name for folder in PROGRAMS if (folder / name).is_file()), None)


def run(
    command: Sequence[str | Path], settings: Mapping[str, str], text: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A program with settings of the library, none inherited."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GEMMGEN_BLAS")}
    return subprocess.run(
        list(map(str, command)),
        input=text,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        cwd=cwd or ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), **settings},
        timeout=300,
    )


def call(task: str, library: Path, **settings: str) -> str:
    """What a task of `tests.support.blas_calls` leaves on standard error; it must succeed."""
    result = run([sys.executable, "-m", "tests.support.blas_calls", task, library], settings)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout == "done\n", result.stdout + result.stderr
    return result.stderr
