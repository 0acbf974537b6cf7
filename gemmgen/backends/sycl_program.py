"""The program in SYCL that checks itself: what it says about its matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import F32
from gemmgen.ir.kernel import Kernel
from gemmgen.spec import GemmSpec, Order

#: Sizes that tell rows from columns, and a size to be timed.
SHAPES = ((509, 258, 131), (512, 512, 512))
#: For the run-time arguments: exact in float32, and other than 0 and 1.
ALPHA, BETA = 1.5, 0.25


def program_words(kernel: Kernel, spec: GemmSpec, between: Sequence[tuple[str, str]]) -> Mapping[str, object]:
    """What a program that checks itself says about its matrices: sizes, strides, and the plain loop's arithmetic.

    Args:
        between: the memory between kernels: arguments and how many elements each has.

    Raises: ScheduleError for what a program does not check.
    """
    if spec.batched or {spec.dtype, *map(spec.element, "ab")} != {F32}:
        raise ScheduleError(f"form main checks single products of float32, not {spec.label()}: use form header")
    if spec.epilogue:
        raise ScheduleError(f"form main checks plain products, not {', '.join(spec.epilogue)}: use form header")
    if formulas := [text for text in (spec.prologue_a, spec.prologue_b) if text]:
        raise ScheduleError(f"form main checks plain products, not prologues ({', '.join(formulas)}): use form header")
    transpose = kernel.scalars[0].name == "rows"
    arguments = ", ".join(["queue", *(p.name for p in kernel.params)])
    if transpose:
        sizes = [f"{rows}, {cols}" for rows, cols, _ in SHAPES]
        return {"transpose": True, "arguments": arguments, "sizes": sizes}
    scalars = [(name, f"{value!r}f") for name, value in (("alpha", ALPHA), ("beta", BETA))]
    return {
        "transpose": False,
        "arguments": arguments,
        "workspaces": between,
        "sizes": list(dict.fromkeys(_sizes(shape, spec) for shape in SHAPES)),
        "scalars": [(name, value) for name, value in scalars if getattr(spec, name) is None],
        "matrices": [_matrix(spec, *each) for each in (("a", "m", "k"), ("b", "k", "n"), ("c", "m", "n"))],
        "a_at": _at("i", "p", "lda", spec.a_order),
        "b_at": _at("p", "j", "ldb", spec.b_order),
        "c_at": _at("i", "j", "ldc", spec.c_order),
        "expected": _expected(spec),
    }


def _sizes(shape: tuple[int, int, int], spec: GemmSpec) -> str:
    """m, n and k: those that the spec fixes, else the nearest that meet its assumptions."""
    fixed = (spec.m, spec.n, spec.k)
    assumed = zip(fixed, shape, spec.multiple_of, strict=True)
    return ", ".join(str(-(-wish // unit) * unit if size is None else size) for size, wish, unit in assumed)


def _matrix(spec: GemmSpec, name: str, rows: str, cols: str) -> Mapping[str, str]:
    """A matrix' leading dimension, as the spec assumes it, and how many elements it takes."""
    unit = spec.ld_unit(name)
    lines, length = (rows, cols) if spec.order(name) == "row" else (cols, rows)
    if unit == 1:
        return {"name": name, "pitch": length, "elements": f"std::size_t({rows}) * {cols}"}
    return {
        "name": name,
        "pitch": f"({length} + {unit - 1}) / {unit} * {unit}",
        "elements": f"std::size_t({lines}) * ld{name}",
    }


def _at(row: str, col: str, pitch: str, order: Order) -> str:
    slow, fast = (row, col) if order == "row" else (col, row)
    return f"{slow} * {pitch} + {fast}"


def _expected(spec: GemmSpec) -> str:
    alpha = "alpha" if spec.alpha is None else repr(float(spec.alpha.real))
    beta = "beta" if spec.beta is None else repr(float(spec.beta.real))
    return f"{alpha} * sum + {beta} * before[{_at('i', 'j', 'ldc', spec.c_order)}]"
