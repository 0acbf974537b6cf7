"""Matrix instructions of a warp in CUDA C++: the statements, and the functions with PTX that they call."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gemmgen.backends.clike import CLike
from gemmgen.backends.files import section, sections
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Space
from gemmgen.ir.dtypes import F32, F64, I32
from gemmgen.ir.expr import Call
from gemmgen.ir.stmt import Body, Move, Multiply
from gemmgen.ir.walk import exprs, walk, walk_expr
from gemmgen.ir.warp_matrix import WarpAtom

#: Functions of elements before they are multiplied -> those that they are printed as.
MATRIX_CALLS = {
    "tf32": "to_tf32",
    "tf32_head": "head_in_tf32",
    "tf32_rest": "rest_in_tf32",
    "tf32_finite_rest": "finite_rest_in_tf32",
}
#: Bytes that a lane gets of a matrix.
WORD = 4
#: Size of an element -> what that is.
_PARTS = {4: "an element", 2: "two neighbours", 1: "four neighbours"}
#: Type of the sums -> what PTX calls it, and how assembler takes it.
_SUMS = {F32: ("f32", "f"), I32: ("s32", "r")}


def multiply(stmt: Multiply, printer: CLike) -> str:
    """The statement: rows 0 to 7 of the sums and of A, then rows 8 to 15, then B. Raises: LoweringError."""
    if not isinstance(stmt.atom, WarpAtom):
        raise LoweringError(f"CUDA has no {stmt.atom.name}")
    below = ((*index[:-2], index[-2] + 1, index[-1]) for index in (stmt.acc_index, stmt.a_index))
    acc_below, a_below = below
    places = ((stmt.acc, stmt.acc_index), (stmt.acc, acc_below), (stmt.a, stmt.a_index), (stmt.a, a_below))
    texts = [printer.address(buffer, index) for buffer, index in (*places, (stmt.b, stmt.b_index))]
    return f"{_function(stmt.atom)}({', '.join(texts)});"


def load(move: Move, printer: CLike) -> str:
    """The statement that fills an operand by lines."""
    to, line = printer.address(move.dst, move.dst_index), printer.address(move.src, move.src_index)
    return f"{_loader(move)}({to}, {line});"


def _function(atom: WarpAtom) -> str:
    return f"mma_m16n8k{atom.depth}"


def _loader(move: Move) -> str:
    operand, _, turned = move.atom.name.removeprefix("ldmatrix_").partition("_")
    return f"load_{operand}{_matrices(move)}" + (f"_{turned}" if turned else "")


def _matrices(move: Move) -> int:
    """How many a statement loads."""
    return move.width * move.src.dtype.size // WORD


def _loads_lines(move: Move) -> bool:
    return move.atom.matrices is not None and move.dst.space is Space.PRIVATE


def _load_lines(name: str, move: Move, types: Mapping[str, str], source: str) -> list[str]:
    turned = move.atom.matrices is not None and move.atom.matrices.turned
    return section(
        source,
        name.removesuffix("_turned"),
        function=name,
        element=types[move.src.dtype.name],
        trans=".trans" if turned else "",
        part=f"{_PARTS[move.src.dtype.size]} of a {'column' if turned else 'line'}",
    )


def functions(body: Body, types: Mapping[str, str], source: str, features: Collection[str]) -> list[str]:
    """The functions that a kernel's statements call, each once."""
    called = {n.function for s in walk(body) for root in exprs(s) for n in walk_expr(root) if isinstance(n, Call)}
    named = {MATRIX_CALLS[name] for name in called & MATRIX_CALLS.keys()}
    lines = sections(source, named)
    loads = {_loader(s): s for s in walk(body) if isinstance(s, Move) and _loads_lines(s)}
    for name, move in sorted(loads.items()):
        lines += _load_lines(name, move, types, source)
    for atom in dict.fromkeys(_multiplies(body)):
        lines += _multiplier(atom, types, source, features)
    return lines


def _multiplier(atom: WarpAtom, types: Mapping[str, str], source: str, features: Collection[str]) -> list[str]:
    if atom.dtype is F64:
        return section(source, "mma_f64" if "tall_f64" in features else "mma_f64_by_eight", function=_function(atom))
    kind, constraint = _SUMS[atom.sums]
    words = {"depth": atom.depth, "short": atom.short, "kind": kind, "hold": constraint}
    element, total = types[atom.dtype.name], types[atom.sums.name]
    return section(source, "mma", function=_function(atom), element=element, total=total, **words)


def _multiplies(body: Body) -> list[WarpAtom]:
    return [s.atom for s in walk(body) if isinstance(s, Multiply) and isinstance(s.atom, WarpAtom)]
