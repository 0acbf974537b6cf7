"""`gemmgen export`: a library in C around emitted kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from gemmgen.cli.declared import Text, complete_presets, completing, flag, option
from gemmgen.cli.output import deliver, examples, path_problems, write
from gemmgen.errors import UserError, attempt

if TYPE_CHECKING:
    from gemmgen.export.blas import Choice, Routine

T = TypeVar("T")
EXAMPLES = examples(
    "gemmgen export --blas -o libgemmgen_blas.so",
    "LD_PRELOAD=$PWD/libgemmgen_blas.so ./program",
    "gemmgen export --blas --dtype float64 --source -o gemmgen_blas.c",
    "gemmgen export --blas --preset smem_8x8_double,tile_8x8 -o libgemmgen_blas.so",
)


complete_types = completing(lambda: (str(x.dtype) for x in import_module("gemmgen.export.blas").ROUTINES))
_DTYPE = "Element types, all if nothing is said: float32, float64, complex64, complex128."
_PRESET = "Presets of the kernels, the best first, in place of those that are known to serve."


def export(
    blas: Annotated[bool, flag("--blas", "cblas_sgemm, sgemm_ and their like, for programs that call a BLAS.")] = False,
    output: Annotated[Text, option("-o --output", "FILE", "The library; a folder/ takes the source alone.")] = None,
    source: Annotated[
        bool, flag("--source", "The source alone, which needs no compiler; without -o it is printed.")
    ] = False,
    dtype: Annotated[Text, option("--dtype", "TYPE[,...]", _DTYPE, complete_types)] = None,
    preset: Annotated[Text, option("--preset", "NAME[,...]", _PRESET, complete_presets)] = None,
) -> None:
    """Build a shared library with the interface of the BLAS, whose products run on an OpenCL device.

    $CC compiles it, or cc. Its source is one file of C99 that needs neither OpenCL's headers nor gemmgen; its head
    comment says how to build and use it.
    """
    from gemmgen.export.blas import shared_library
    from gemmgen.runtime.icd import intel_cpu_library

    problems = [] if blas else ["nothing is said to export: --blas is what there is"]
    path, source = _destination(output, source)
    problems += _output_problems(path, source)
    text, command = _library(problems, dtype, preset, source)
    if command is None or path is None:
        deliver(text, path)
        return
    known = intel_cpu_library()
    content = shared_library(text, command, [] if known is None else [("GEMMGEN_BLAS_OPENCL", str(known))])
    write(path, lambda file: file.write(content))


def _library(problems: list[str], dtype: str | None, preset: str | None, source: bool) -> tuple[str, list[str] | None]:
    """The library's source, and its compiler if it is to be compiled. Raises: UserError with every problem."""
    from gemmgen.export.blas import CHOICES, ROUTINES, Choice, blas_source, compiler_command
    from gemmgen.presets import names

    known = {str(routine.dtype): routine for routine in ROUTINES}
    routines: Sequence[Routine] | None = ROUTINES
    choices: Sequence[Choice] | None = CHOICES
    if dtype is not None:
        routines = attempt(problems, _listed, "dtype", dtype, known)
    if preset is not None:
        every = {name: Choice(name) for name in names()}
        choices = attempt(problems, _listed, "preset", preset, every, "gemmgen presets")
    command = None if source else attempt(problems, compiler_command)
    text = attempt(problems, blas_source, routines, choices) if routines and choices else None
    if problems or text is None:
        raise UserError(problems)
    return text, command


def _destination(output: str | None, source: bool) -> tuple[Path | None, bool]:
    """The path of -o, and whether it is for the source. In a folder it is."""
    from gemmgen.export.blas import LIBRARY

    if output is None:
        return None, source
    if not output:
        raise UserError("-o names no file: give one such as libgemmgen_blas.so")
    path = Path(output)
    return (path / f"{LIBRARY}.c", True) if path.is_dir() or output.endswith("/") else (path, source)


def _output_problems(path: Path | None, source: bool) -> list[str]:
    """Problems with -o."""
    if path is None:
        return [] if source else ["nothing is said about where to: -o libgemmgen_blas.so, or --source to print"]
    problems = path_problems(path, "libgemmgen_blas.so")
    if path.suffix == ".c" and not source:
        problems.append(f"-o {path} is named like a source, and a library is built: add --source, or name a .so")
    if path.exists() and not problems and not os.access(path, os.W_OK):
        problems.append(f"-o {path} can't be written to: choose another")
    return problems


def _listed(what: str, text: str, known: Mapping[str, T], listing: str = "") -> list[T]:
    """The values of a comma-separated list of names. Raises: UserError with each unknown name."""
    from gemmgen.errors import suggest

    given = list(dict.fromkeys(text.split(",")))
    unknown = [name for name in given if name not in known]
    problems = [f"{what} {name!r} is not to be had: {suggest(name, known, listing)}" for name in unknown]
    if problems:
        raise UserError(problems)
    return [known[name] for name in given]
