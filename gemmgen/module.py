"""A source as a Python module of its own: the kernel's text, and the few lines that launch it."""

from __future__ import annotations

import builtins
import keyword
from typing import Literal

from gemmgen.backends.files import environment
from gemmgen.backends.opencl_launcher import REQUIRED_SIZE
from gemmgen.epilogue import odd_columns
from gemmgen.errors import LoweringError, ScheduleError
from gemmgen.ir.dtypes import BF16
from gemmgen.ir.expr import Bin, Const, Expr, Select, Var, mul
from gemmgen.records import dataclass
from gemmgen.runtime.cuda_build import GRID_LIMITS
from gemmgen.source import Argument, EntryPoint, Source
from gemmgen.spec import GemmSpec, Order

#: C's operators as Python spells them -> how tightly they bind (integers are never negative here).
_OPERATORS = {
    "&&": ("and", 1),
    "==": ("==", 2),
    "!=": ("!=", 2),
    "<": ("<", 2),
    "<=": ("<=", 2),
    "&": ("&", 3),
    "+": ("+", 4),
    "-": ("-", 4),
    "*": ("*", 5),
    "/": ("//", 5),
    "%": ("%", 5),
}

#: Names that the modules' skeletons use themselves.
_TAKEN = frozenset(
    "ALIGNMENT BUILD_OPTIONS EXTENSIONS MODULE Path SHARED_BYTES SOURCE buffer check cl cl_array cp "
    "default_context default_queue expect_sub_groups image lru_cache np once os pitch platforms program sys "
    "tempfile threading view warnings wraps".split()
) | frozenset(dir(builtins))


def python(node: Expr, outer: int = 0) -> str:
    """An integer expression as Python, in no more parentheses than it needs.

    Args:
        outer: how tightly the operator around it binds.
    """
    match node:
        case Const(value):
            return str(value)
        case Var(name):
            return name
        case Bin("min", a, b):
            return f"min({python(a)}, {python(b)})"
        case Bin(op, a, b):
            symbol, level = _OPERATORS[op]
            text = f"{python(a, level)} {symbol} {python(b, level + 1)}"
            return f"({text})" if level < outer else text
        case Select(condition, then, other):
            return f"({python(then)} if {python(condition)} else {python(other)})"
        case _:
            raise LoweringError(f"a launch geometry holds a {type(node).__name__}")


@dataclass(frozen=True, slots=True)
class _Operand:
    """A matrix as the template names it."""

    name: str
    extents: str
    order: Order
    output: bool
    note: str = ""

    @property
    def shape(self) -> str:
        return self.extents.strip("()")

    @property
    def major(self) -> str:
        return {"row": "row", "col": "column"}[self.order]

    @property
    def checked(self) -> str:
        """As `check` is given it: an output that may be None stands for its neighbour."""
        return f"{self.name}=a if {self.name} is None else {self.name}" if self.note else f"{self.name}={self.name}"

    @property
    def slow(self) -> int:
        return 0 if self.order == "row" else 1

    @property
    def forc(self) -> str:
        return "C" if self.order == "row" else "F"

    @property
    def contiguous(self) -> str:
        return "np.ascontiguousarray" if self.order == "row" else "np.asfortranarray"


def _only_kernel(source: Source) -> EntryPoint:
    """Raises: ScheduleError for what a module does not launch."""
    if source.operation == "gemm" and source.spec.is_wide:
        raise ScheduleError("a Python module counts in 32 bits: leave out --wide, or use gemmgen.compile")
    if source.operation == "gemm" and source.spec.batched:
        raise ScheduleError("a Python module takes no batches: leave out --batched, or use gemmgen.compile")
    if source.operation == "gemm" and source.spec.grouped:
        raise ScheduleError("a Python module takes no groups: leave out --grouped, or use gemmgen.grouped")
    if source.operation == "gemm" and (source.spec.operands or source.spec.names_c):
        taken = ", ".join(source.spec.operands or ("c",))
        raise ScheduleError(f"a Python module takes no arrays but A and B, but this one {taken}: use gemmgen.compile")
    if len(source.entry_points) > 1:
        raise ScheduleError(
            "a Python module holds one kernel, but split, packed and dpas need more: use gemmgen.compile"
        )
    if source.entry_points[0].maps:
        raise ScheduleError("a Python module makes no tensor maps, which wgmma takes: use gemmgen.compile")
    dtype = source.spec.dtype
    types = {source.spec.result, *map(source.spec.element, "ab")}
    if source.operation == "gemm" and (types != {dtype} or dtype == BF16):
        raise ScheduleError(
            f"a Python module takes matrices of one type that NumPy has, not {source.spec.label()}: use gemmgen.compile"
        )
    return source.entry_points[0]


def render_module(source: Source) -> str:
    """A module of one function named as the kernel, which needs numpy and pyopencl or CuPy, but no gemmgen.

    Raises: ScheduleError for a backend that Python cannot run, and for a kernel name that Python or the module uses.
    """
    if source.name in _TAKEN or keyword.iskeyword(source.name):
        raise ScheduleError(f"name {source.name!r} has a meaning in the Python module: choose another name")
    entry = _only_kernel(source)
    dtype = source.spec.dtype
    operands = _operands(source)
    slow = {x.name: x.slow for x in operands}
    head = source.text.split("\n", 1)[0].removeprefix("//").strip()
    (high, wide), (rows, cols) = entry.group, entry.grid
    skeletons = environment().overlay(trim_blocks=True, lstrip_blocks=True)
    try:
        skeleton = skeletons.get_template(f"{source.backend}/module.py.j2")
    except FileNotFoundError as error:
        raise ScheduleError(f"backend {source.backend} has no Python modules: leave out --python") from error
    return skeleton.render(
        name=source.name,
        dtype=dtype.name,
        computes=head.removeprefix(f"{source.name}:").strip(),
        transpose=source.operation == "transpose",
        options=_list(source.build_options),
        extensions=_list(source.extensions),
        text=source.text,
        operands=operands,
        parameters=_parameters(source),
        formula=_formula(source),
        reads_c=_reads(source),
        columns=_columns(source.spec),
        gate=source.spec.gate,
        odd=odd_columns(source.spec.gate.short, "has {b.shape[1]}") if source.spec.gate else "",
        assumptions=_assumptions(source.spec) if source.operation == "gemm" else [],
        global_size=f"({python(mul(cols, wide))}, {python(mul(rows, high))})",
        local_size=f"({wide}, {high})",
        free_lanes=None if REQUIRED_SIZE in source.extensions else entry.sub_group,
        across=python(cols),
        down=python(rows),
        grid_limits=GRID_LIMITS[1:],
        shared=entry.dynamic_bytes,
        alignment=source.alignment,
        assumed=source.spec.ld_multiple != 1,
        arguments=[_argument(argument, slow, operands[-1].name, source.spec) for argument in entry.arguments],
        skips={"alpha", "k"} <= {argument.name for argument in entry.arguments},
        has_images=any(argument.kind == "image" for argument in entry.arguments),
        has_pitches=any(argument.name.startswith("ld") for argument in entry.arguments),
    )


def _operands(source: Source) -> tuple[_Operand, ...]:
    spec = source.spec
    if source.operation == "transpose":
        note = "; None allocates it"
        return _Operand("a", "(rows, cols)", "row", False), _Operand("b", "(cols, rows)", "row", True, note)
    note = "" if _reads(source) == "always" else "; None allocates it"
    return (
        _Operand("a", "(m, k)", spec.a_order, False),
        _Operand("b", "(k, n)" if spec.gate is None else f"(k, {spec.halves} * n)", spec.b_order, False),
        _Operand("c", "(m, n)", spec.c_order, True, note),
    )


def _reads(source: Source) -> Literal["never", "maybe", "always"]:
    """Whether the kernel reads what its result holds before."""
    if source.operation == "transpose" or source.spec.beta == 0:
        return "never"
    return "maybe" if source.spec.beta is None else "always"


def _parameters(source: Source) -> str:
    if source.operation == "transpose":
        return "a, b=None"
    scalars = [("alpha", source.spec.alpha, "1.0"), ("beta", source.spec.beta, "0.0")]
    run_time = [f"{name}={default}" for name, folded, default in scalars if folded is None]
    return ", ".join(["a", "b", "c" if _reads(source) == "always" else "c=None", *run_time])


def _formula(source: Source) -> str:
    if source.operation == "transpose":
        return "B = transpose of A."
    made = "" if source.spec.gate is None else source.spec.then()
    return f"{source.spec.formula('@')}{made}."


def _columns(spec: GemmSpec) -> str:
    """Columns of C, by those of B."""
    return "b.shape[1]" if spec.gate is None else f"b.shape[1] // {spec.halves}"


def _assumptions(spec: GemmSpec) -> list[tuple[str, str]]:
    """What sizes the kernel was made for: a condition that must not hold, and what to say if it does."""
    found = []
    for axis, size, unit in zip("mnk", (spec.m, spec.n, spec.k), spec.multiple_of, strict=True):
        if size is not None:
            found.append((f"{axis} != {size}", f"{axis} = {{{axis}}}, but the kernel was made for {size}"))
        elif unit > 1:
            found.append((f"{axis} % {unit}", f"{axis} = {{{axis}}} is no multiple of {unit}"))
    return found


def _argument(argument: Argument, slow: dict[str, int], result: str, spec: GemmSpec) -> str:
    """A kernel argument as Python."""
    name = argument.name
    if argument.kind == "scalar":
        return f"np.{argument.dtype}({name})"
    if argument.kind == "int":
        if not name.startswith("ld"):
            return f"np.{argument.dtype}({name})"
        matrix = name.removeprefix("ld")
        unit = "" if spec.ld_multiple == 1 else f", {spec.ld_unit('c' if matrix == result else matrix)}"
        return f"pitch({'out' if matrix == result else matrix}, {slow[matrix]}{unit})"
    if argument.kind == "image":
        return f"image(queue, {name}, {slow[name]})"
    return f"buffer({'out' if argument.writable else name})"


def _list(items: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{item}"' for item in items) + "]"
