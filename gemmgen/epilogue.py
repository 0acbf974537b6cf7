"""Epilogues: functions that are applied to C's elements before they are stored, one after the other.

A function is a row of `FUNCTIONS`: its formula, in the language of `gemmgen.formulas`, over `acc`, what the functions
before it have made of the element; `c`, what C held before; `row` and `col`; and the operands, which a row of
`OPERANDS` describes. Nothing else in gemmgen knows a function by its name. A row of `GATES` takes two sums, and begins
an epilogue.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from itertools import pairwise, product
from typing import Literal

from gemmgen.errors import SpecError
from gemmgen.formulas import formula, parse
from gemmgen.ir.dtypes import F32, I8, DType
from gemmgen.ir.expr import Expr, Var
from gemmgen.ir.walk import walk_expr
from gemmgen.records import dataclass

#: More functions in a row are no epilogue that somebody wrote.
MOST = 16
EXPRESSION = "expr:"
#: What a function is given that is to be computed as its formula says, where targets have a faster way.
EXACT = "exact"


@dataclass(frozen=True, slots=True)
class Function:
    """A row: the formula, and the names of numbers that are given with the function, as in `clamp(0, 6)`.

    Attributes:
        ascending: whether each of those numbers must be at least the one before.
        derivative: by `acc`, as a formula that may also name `result`, what the function has made of it; None where
            `gemmgen.derivatives` finds one that does as well. Named because it needs the result alone, or because the
            one that is found overflows.
        fast: the same by functions of `ir.functions.FAST`; None where the formula is as fast.
        in_two: of a gate, the functions that make the same of the first half's sums, one after the other; `up` is what
            another product has made of the second half.
    """

    formula: str
    parameters: tuple[str, ...] = ()
    ascending: bool = False
    derivative: str | None = None
    fast: str | None = None
    in_two: tuple[str, ...] = ()


FUNCTIONS: dict[str, Function] = {
    "bias": Function("acc + bias"),
    "row_bias": Function("acc + row_bias"),
    "scale": Function("acc * scale"),
    "row_scale": Function("acc * row_scale"),
    "residual": Function("acc + residual"),
    # Such that NaN stays NaN.
    "relu": Function("0 if acc < 0 else acc", derivative="1 if result > 0 else 0"),
    "leaky_relu": Function("acc * slope if acc < 0 else acc", ("slope",)),
    "gelu": Function(
        "0.5 * acc * (1 + erf(acc * 0.7071067811865476))",
        derivative="0.5 * (1 + erf(acc * 0.7071067811865476)) + 0.3989422804014327 * acc * exp(-0.5 * acc * acc)",
        fast="acc * fast_normal_cdf(acc)",
    ),
    "gelu_tanh": Function(
        "0.5 * acc * (1 + tanh(0.7978845608028654 * (acc + 0.044715 * acc * acc * acc)))",
        fast="acc * fast_sigmoid(acc * (1.5957691216057308 + 0.07135481282553677 * acc * acc))",
    ),
    "silu": Function(
        "acc / (1 + exp(-acc))",
        derivative="(1 + acc * (1 - 1 / (1 + exp(-acc)))) / (1 + exp(-acc))",
        fast="acc * fast_sigmoid(acc)",
    ),
    "sigmoid": Function("1 / (1 + exp(-acc))", derivative="result * (1 - result)", fast="fast_sigmoid(acc)"),
    "tanh": Function("tanh(acc)", derivative="1 - result * result"),
    "clamp": Function("low if acc < low else high if acc > high else acc", ("low", "high"), ascending=True),
}

#: Functions that make one element of two sums, which begin an epilogue: `acc` and `UP`.
GATES: dict[str, Function] = {
    "swiglu": Function(
        "acc / (1 + exp(-acc)) * up",
        derivative="(1 + acc * (1 - 1 / (1 + exp(-acc)))) / (1 + exp(-acc)) * up",
        fast="acc * fast_sigmoid(acc) * up",
        in_two=("silu", "expr: acc * up"),
    ),
    "geglu": Function(
        "0.5 * acc * (1 + erf(acc * 0.7071067811865476)) * up",
        derivative=(
            "(0.5 * (1 + erf(acc * 0.7071067811865476)) + 0.3989422804014327 * acc * exp(-0.5 * acc * acc)) * up"
        ),
        fast="acc * fast_normal_cdf(acc) * up",
        in_two=("gelu", "expr: acc * up"),
    ),
}
NAMED = {**FUNCTIONS, **GATES}


@dataclass(frozen=True, slots=True)
class Operand:
    """What a formula may name besides: an array that a call passes by that name.

    Attributes:
        axes: the sizes that it has: `n`, an element for each column of C; `m`, one for each row; `mn`, one for each
            element; `k`, one for each column of A or row of B; `g`, one for each group of neighbours along K and each
            row of A or column of B, group by group; `t`, one for each tile of as many rows as columns, tiles beside one
            another across K first; ``, a single one.
        letter: what its leading dimension `ld<letter>` and its `stride_<letter>` go by, of a matrix.
        of: the matrix whose elements go through the formula: C, of whose type it is then; A or B, and it is of the
            type of sums.
        group: neighbours along K that share an element; of tiles, their rows and columns.
        dtype: its type, where that is always the same.
    """

    axes: Literal["n", "m", "mn", "k", "g", "t", ""]
    letter: str = ""
    of: Literal["a", "b", "c"] = "c"
    group: int = 1
    dtype: DType | None = None

    def extents(self, m: int, n: int, k: int) -> tuple[int, ...]:
        """Its shape for a product of these sizes."""
        if self.axes in ("g", "t"):
            lines = m if self.of == "a" else n
            return (-(-k // self.group) * (lines if self.axes == "g" else -(-lines // self.group)),)
        sizes = {"m": m, "n": n, "k": k}
        return tuple(sizes[axis] for axis in self.axes) or (1,)

    @property
    def each(self) -> str:
        """In words."""
        if self.axes == "g":
            along_k, lines = ("columns", "row") if self.of == "a" else ("rows", "column")
            return f"each group of {self.group} {along_k}, and each {lines}, of {self.of.upper()}"
        if self.axes == "t":
            return f"each tile of {self.group}x{self.group} of {self.of.upper()}"
        along_rows = {"a": "m", "b": "k", "c": "m"}[self.of]
        words = {"": "all", "mn": "each element", along_rows: "each row"}
        return f"{words.get(self.axes, 'each column')} of {self.of.upper()}"


#: Neighbours along K that may share a scale; rows and columns of tiles that do.
GROUPS, TILE = (32, 64, 128), 128


def _of_groups(matrix: Literal["a", "b"]) -> dict[str, Operand]:
    kinds = product((("scale", None), ("shift", None), ("zero", I8)), GROUPS)
    of_lines = {f"{matrix}_{kind}_{group}": Operand("g", "", matrix, group, dtype) for (kind, dtype), group in kinds}
    return of_lines | {f"{matrix}_scale_{TILE}x{TILE}": Operand("t", of=matrix, group=TILE)}


#: In the order in which they follow C as a kernel's arguments: first those of prologues (`gemmgen.prologue`).
OPERANDS: dict[str, Operand] = {
    "a_scale": Operand("m", of="a"),
    "a_shift": Operand("m", of="a"),
    "a_zero": Operand("m", of="a", dtype=I8),
    "a_scale_k": Operand("k", of="a"),
    "a_shift_k": Operand("k", of="a"),
    "a_factor": Operand("", of="a"),
    **_of_groups("a"),
    "b_scale": Operand("n", of="b"),
    "b_shift": Operand("n", of="b"),
    "b_zero": Operand("n", of="b", dtype=I8),
    "b_scale_k": Operand("k", of="b"),
    "b_shift_k": Operand("k", of="b"),
    "b_factor": Operand("", of="b"),
    **_of_groups("b"),
    "bias": Operand("n"),
    "row_bias": Operand("m"),
    "scale": Operand("n"),
    "row_scale": Operand("m"),
    "residual": Operand("mn", "r"),
}
#: What a function has made of `acc`, in a derivative.
RESULT = "result"
#: Of a gated product: the sum of the same column in the second half of B's columns, `acc` being that in the first half.
UP = "up"
_NAMES_UP = re.compile(rf"\b{UP}\b")
#: What a formula may name.
NAMES = ("acc", "c", "row", "col", *(name for name, operand in OPERANDS.items() if operand.of == "c"))


@dataclass(frozen=True, slots=True)
class Applied:
    """A function as it is asked for.

    Attributes:
        name: of the row, or `expr`.
        text: how it is written: `gelu`, `clamp(0, 6)`, `expr: acc * 2`.
        formula: as Python prints it.
        value: the same over variables by the names of `NAMES`.
        derivative: by `acc`, over these and `RESULT`, if its row names one.
        fast: its row's fast formula, as Python prints it, and over variables; None where there is none, or the exact
            one was asked for.
        names: those that it uses.
    """

    name: str
    text: str
    formula: str
    value: Expr
    derivative: Expr | None = None
    fast: tuple[str, Expr] | None = None
    names: frozenset[str] = field(init=False)

    @property
    def short(self) -> str:
        """In a word, for a sentence about the product."""
        return "a formula" if self.name == "expr" else self.text

    def __post_init__(self) -> None:
        # Once: each call of a kernel asks for them.
        found = frozenset(node.name for node in walk_expr(self.value) if isinstance(node, Var))
        object.__setattr__(self, "names", found)

    @property
    def is_gate(self) -> bool:
        """Whether it makes one element of two sums."""
        return UP in self.names

    def in_two(self, up: str) -> tuple[str, ...]:
        """Of a gate, the same by two products, of which the second half's is read by this name, `residual` or `c`."""
        texts = GATES[self.name].in_two if self.name in GATES else (f"{EXPRESSION} {self.formula}",)
        return tuple(_NAMES_UP.sub(up, text) for text in texts)


def gate_of(texts: Sequence[str]) -> str | None:
    """The function that begins an epilogue if it makes one element of two sums, as it is written. What is wrong with it
    `applied` says.
    """
    first = texts[0].strip() if texts and isinstance(texts[0], str) else ""
    if first.startswith(EXPRESSION):
        return first if _NAMES_UP.search(first.removeprefix(EXPRESSION)) else None
    return first if first.partition("(")[0].strip() in GATES else None


def odd_columns(gate: str, b: str) -> str:
    """The problem of a B that has no two halves of columns; `b` says what it has or is."""
    return f"{gate} takes two halves of b's columns, but b {b}: pass an even number"


@lru_cache(maxsize=256)
def applied(texts: tuple[str, ...], sums: DType) -> tuple[Applied, ...]:
    """The functions, where `sums` is what they are computed in. Raises: SpecError with every problem."""
    if len(texts) > MOST:
        raise SpecError(f"the epilogue has {len(texts)} > {MOST} functions: join some into one `expr: ...`")
    problems: list[str] = []
    found = []
    for text in texts:
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        try:
            found.append(_applied(text.strip(), sums))
        except SpecError as error:
            problems += (f"epilogue {shown!r}: {problem}" for problem in error.problems)
    if problems:
        raise SpecError(problems)
    return tuple(found)


def _applied(text: str, sums: DType) -> Applied:
    if text.startswith(EXPRESSION):
        tree = parse(text.removeprefix(EXPRESSION))
        value = formula(tree, (*NAMES, UP), sums)  # checked before it is printed, which others may be too deep for
        printed = ast.unparse(tree)
        return Applied("expr", f"{EXPRESSION} {printed}", printed, value)
    name, given, exact = _written(parse(text, "gelu or clamp(0, 6)"))
    row = NAMED[name]
    if exact and row.fast is None:
        raise SpecError(f"{name} is always exact: leave ({EXACT}) out")
    if len(given) != (count := len(row.parameters)):
        numbers = f"{count} number{'s' * (count != 1)}"
        raise SpecError(f"{name} takes {numbers}, not {len(given)}: write {name}({', '.join(row.parameters)})")
    if row.ascending and not all(a <= b for a, b in pairwise(given)):
        raise SpecError(f"{' <= '.join(row.parameters)} does not hold: exchange the numbers")
    filled = _Filled(dict(zip(row.parameters, given, strict=True)))
    body = filled.visit(parse(row.formula))
    value = formula(body, (*NAMES, UP), sums, placed=False)  # nobody wrote it
    derivative = formula(filled.visit(parse(row.derivative)), (*NAMES, UP, RESULT), sums) if row.derivative else None
    fast = None
    if row.fast is not None and not exact and sums == F32:
        of_fast = parse(row.fast)
        fast = ast.unparse(of_fast), formula(of_fast, (*NAMES, UP), sums, fast=True)
    said = (EXACT,) if exact else tuple(map(repr, given))
    return Applied(name, f"{name}({', '.join(said)})" if said else name, ast.unparse(body), value, derivative, fast)


def _written(tree: ast.expr) -> tuple[str, list[int | float], bool]:
    """The name of a function, the numbers given with it, and whether it is to be exact. Raises: SpecError."""
    exact = False
    match tree:
        case ast.Name(name):
            args: list[ast.expr] = []
        case ast.Call(ast.Name(name), [ast.Name(word)], []) if word == EXACT:
            args, exact = [], True
        case ast.Call(ast.Name(name), args, []):
            pass
        case ast.Tuple(several) if len(several) > 1:
            texts = ", ".join(repr(ast.unparse(each)) for each in several)
            options = " ".join(f"--epilogue {ast.unparse(each)}" for each in several)
            raise SpecError(f"{len(several)} functions in one text: give each by itself, [{texts}] or {options}")
        case _:
            raise SpecError(f"neither a function nor `{EXPRESSION} acc * 2`: give one of {', '.join(NAMED)}")
    if name not in NAMED:
        from difflib import get_close_matches

        near = get_close_matches(name, NAMED, 3, 0.5)
        hint = f"did you mean {' or '.join(near)}" if near else f"give one of {', '.join(NAMED)}"
        raise SpecError(f"no function {name[:40]!r}: {hint}, or write `{EXPRESSION} acc * 2`")
    if args and not NAMED[name].parameters:
        or_exact = f" or {name}({EXACT})" if NAMED[name].fast else ""
        raise SpecError(f"{name} takes no numbers: write {name}{or_exact}")
    return name, [_number(arg) for arg in args], exact


def _number(node: ast.expr) -> int | float:
    match node:
        case ast.Constant(int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)) if not isinstance(value, bool):
            return -value
    raise SpecError(f"what begins at character {node.col_offset + 1} is no number: give one such as 0.5")


class _Filled(ast.NodeTransformer):
    """A formula with numbers in place of a row's parameters."""

    def __init__(self, values: dict[str, int | float]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._values:
            return node
        return ast.copy_location(ast.Constant(self._values[node.id]), node)
