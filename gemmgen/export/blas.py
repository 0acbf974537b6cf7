"""The C source of the exported BLAS."""

from __future__ import annotations

from collections.abc import Sequence

from gemmgen.backends.files import environment
from gemmgen.backends.lines import wrapped
from gemmgen.errors import ScheduleError
from gemmgen.export.compiler import FLAGS, LIBRARIES
from gemmgen.export.kernels import Choice, Kernel, Recipe, kernels_of
from gemmgen.export.routines import ROUTINES, Routine

#: The name of the library, and of its source.
LIBRARY = "gemmgen_blas"


def blas_source(routines: Sequence[Routine] = ROUTINES, choices: tuple[Choice, ...] | None = None) -> str:
    """The library's source, kernels included.

    Args:
        choices: presets, if not those that are known to serve.

    Raises: ScheduleError for presets that it can't use, with every reason.
    """
    parts, problems = [], list[str]()
    for routine in routines:
        try:
            parts.append((routine, *kernels_of(routine, choices)))
        except ScheduleError as error:
            problems += error.problems
    if problems:
        raise ScheduleError(problems)
    kernels = [kernel for _, own, _ in parts for kernel in own]
    skeletons = environment().overlay(trim_blocks=True, lstrip_blocks=True)
    return skeletons.get_template("export/blas.c.j2").render(
        library=LIBRARY,
        flags=" ".join(FLAGS),
        libraries=" ".join(LIBRARIES),
        names=[routine.name for routine in routines],
        complex=any(routine.complex for routine in routines),
        span=min(kernel.span for kernel in kernels),
        kernels=kernels,
        routines=[_row(routine, own, recipes) for routine, own, recipes in parts],
    )


def _row(routine: Routine, kernels: tuple[Kernel, ...], recipes: tuple[Recipe, ...]) -> dict[str, object]:
    """What the skeleton is told of a routine."""
    return {
        "letter": routine.letter,
        "c_type": routine.c_type,
        "complex": routine.complex,
        "conj": routine.conj,
        "real": routine.real,
        "recipes": list(map(str, recipes)),
        "kernels": [kernel.name for kernel in kernels],
        "fortran": _fortran(routine),
        "cblas": _cblas(routine),
        # Complex numbers are passed by their addresses.
        "alpha": "alpha" if routine.complex else "&alpha",
        "beta": "beta" if routine.complex else "&beta",
    }


def _fortran(routine: Routine) -> list[str]:
    """The head of `sgemm_`: all by reference."""
    real = routine.c_type
    texts = ["const char *transa", "const char *transb", "const int *m", "const int *n", "const int *k"]
    texts += [f"const {real} *alpha", f"const {real} *a", "const int *lda", f"const {real} *b", "const int *ldb"]
    return wrapped(f"void {routine.name}_(", [*texts, f"const {real} *beta", f"{real} *c", "const int *ldc"])


def _cblas(routine: Routine) -> list[str]:
    """The head of `cblas_sgemm`."""
    value, pointer = (f"{routine.c_type} ", f"{routine.c_type} *")
    if routine.complex:
        value, pointer = "const void *", "void *"
    texts = ["int layout", "int transa", "int transb", "int m", "int n", "int k", f"{value}alpha"]
    texts += [f"const {pointer}a", "int lda", f"const {pointer}b", "int ldb", f"{value}beta", f"{pointer}c", "int ldc"]
    return wrapped(f"void cblas_{routine.name}(", texts)
