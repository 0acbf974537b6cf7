"""`gemmgen export`: a library in C around emitted kernels."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from gemmgen.cli.output import deliver, path_problems, write
from gemmgen.cli.request import attempt, complete_presets
from gemmgen.errors import UserError

if TYPE_CHECKING:
    from gemmgen.export.kernels import Choice
    from gemmgen.export.routines import Routine

T = TypeVar("T")
EXAMPLES = "\n\n".join(
    (
        "[bold]Examples[/bold]",
        "gemmgen export --blas -o libgemmgen_blas.so",
        "LD_PRELOAD=$PWD/libgemmgen_blas.so ./program",
        "gemmgen export --blas --dtype float64 --source -o gemmgen_blas.c",
        "gemmgen export --blas --preset smem_8x8_double,tile_8x8 -o libgemmgen_blas.so",
    )
)


def complete_dtypes(incomplete: str) -> list[str]:
    """Element types of the BLAS, for the shell."""
    from gemmgen.export.routines import ROUTINES

    return [str(routine.dtype) for routine in ROUTINES if str(routine.dtype).startswith(incomplete)]


def export(
    blas: Annotated[
        bool, typer.Option("--blas", help="cblas_sgemm, sgemm_ and their like, for programs that call a BLAS.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="The library; a folder/ takes the source alone."),
    ] = None,
    source: Annotated[
        bool, typer.Option("--source", help="The source alone, which needs no compiler; without -o it is printed.")
    ] = False,
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE[,...]",
            help="Element types, all if nothing is said: float32, float64, complex64, complex128.",
            autocompletion=complete_dtypes,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,...]",
            help="Presets of the kernels, the best first, in place of those that are known to serve.",
            autocompletion=complete_presets,
        ),
    ] = None,
) -> None:
    """Build a shared library with the interface of the BLAS, whose products run on an OpenCL device.

    $CC compiles it, or cc. Its source is one file of C99 that needs neither OpenCL's headers nor gemmgen; its head
    comment says how to build and use it.
    """
    problems = [] if blas else ["nothing is said to export: --blas is what there is"]
    path, source = _destination(output, source)
    problems += _output_problems(path, source)
    text, command = _library(problems, dtype, preset, source)
    if command is None or path is None:
        deliver(text, path)
        return

    from gemmgen.export.compiler import shared_library
    from gemmgen.runtime.icd import intel_cpu_library

    known = intel_cpu_library()
    content = shared_library(text, command, [] if known is None else [("GEMMGEN_BLAS_OPENCL", str(known))])
    write(path, lambda file: file.write(content))


def _library(problems: list[str], dtype: str | None, preset: str | None, source: bool) -> tuple[str, list[str] | None]:
    """The library's source, and what compiles it, if it is to be compiled. Raises: UserError with every problem."""
    from gemmgen.export.blas import blas_source
    from gemmgen.export.compiler import compiler_command

    routines = attempt(problems, _routines, dtype)
    choices = None if preset is None else attempt(problems, _choices, preset)
    command = None if source else attempt(problems, compiler_command)
    text = attempt(problems, blas_source, routines, choices) if routines and (choices or preset is None) else None
    if problems or text is None:
        raise UserError(problems)
    return text, command


def _destination(output: str | None, source: bool) -> tuple[Path | None, bool]:
    """What -o names, and whether that is a source: in a folder it is."""
    from gemmgen.export.blas import LIBRARY

    if output is None:
        return None, source
    if not output:
        raise UserError("-o names no file: give one such as libgemmgen_blas.so")
    path = Path(output)
    return (path / f"{LIBRARY}.c", True) if path.is_dir() or output.endswith("/") else (path, source)


def _output_problems(path: Path | None, source: bool) -> list[str]:
    """What is wrong with -o."""
    if path is None:
        return [] if source else ["nothing is said about where to: -o libgemmgen_blas.so, or --source to print"]
    problems = path_problems(path, "libgemmgen_blas.so")
    if path.suffix == ".c" and not source:
        problems.append(f"-o {path} is named like a source, and a library is built: add --source, or name a .so")
    if path.exists() and not problems and not os.access(path, os.W_OK):
        problems.append(f"-o {path} can't be written to: choose another")
    return problems


def _routines(dtype: str | None) -> list[Routine]:
    """The rows of the table that are wanted. Raises: UserError."""
    from gemmgen.export.routines import ROUTINES

    known = {str(routine.dtype): routine for routine in ROUTINES}
    return _listed("dtype", dtype, known.__getitem__, list(known)) if dtype is not None else list(ROUTINES)


def _choices(preset: str) -> tuple[Choice, ...]:
    """The presets that are wanted. Raises: UserError."""
    from gemmgen.export.kernels import Choice
    from gemmgen.presets import names

    return tuple(_listed("preset", preset, Choice, names()))


def _listed(what: str, text: str, make: Callable[[str], T], known: list[str] | tuple[str, ...]) -> list[T]:
    """What the names of a list with commas mean. Raises: UserError with each that means nothing."""
    from gemmgen.errors import suggest

    given = list(dict.fromkeys(text.split(",")))
    problems = [f"{what} {name!r} is not to be had: {suggest(name, known)}" for name in given if name not in known]
    if problems:
        raise UserError(problems)
    return [make(name) for name in given]
