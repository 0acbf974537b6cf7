"""TMA stores in CUDA C++, and what stages sums in shared memory before them: the statements, and the functions that
they call. TMA loads (`cuda_warpgroups.py`) take the coordinates of a tile from here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemmgen.backends.clike import CLike
from gemmgen.backends.files import section, sections
from gemmgen.errors import LoweringError
from gemmgen.ir.atoms import CopyAtom
from gemmgen.ir.dtypes import BF16, F16
from gemmgen.ir.expr import Expr
from gemmgen.ir.meetings import StoreGroup
from gemmgen.ir.stmt import Body, BoxCopy, Move
from gemmgen.ir.swizzle import mask
from gemmgen.ir.walk import walk
from gemmgen.launch import map_name

#: Two of these types together -> their type, and what makes one of two floats.
_PAIRS = {F16: ("__half2", "__floats2half2_rn"), BF16: ("__nv_bfloat162", "__floats2bfloat162_rn")}


def store_box(stmt: BoxCopy, printer: CLike) -> str:
    """The statement that begins a store."""
    matrix, own = map_name(stmt.dst, printer.kernel), printer.address(stmt.src, stmt.src_index)
    return f"store_box(&{matrix}, {place(stmt.dst_index, printer)}, {own});"


def store_group(stmt: StoreGroup) -> str:
    """The statement about stores under way."""
    return f"stores_{stmt.verb}" + (f"<{stmt.pending}>();" if stmt.verb == "wait" else "();")


def puts(move: Move) -> bool:
    """Whether it goes to lines that swizzle."""
    return bool(move.dst.layout.swizzle)


def put(move: Move, printer: CLike) -> str:
    """The statement that puts down a part of the sums."""
    to, own = printer.address(move.dst, move.dst_index), printer.address(move.src, move.src_index)
    if move.atom.matrices is None:
        return f"{_function(move.atom)}({to}, {own});"
    row, col = move.src_index
    return f"{_function(move.atom)}({to}, {own}, {printer.address(move.src, (row + 1, col))});"


def _function(atom: CopyAtom) -> str:
    if atom.matrices is None:
        return "put2_turned" if atom.element_step == (1, 0) else "put2"
    return "put_matrices_turned" if atom.matrices.turned else "put_matrices"


def store_functions(body: Body, types: Mapping[str, str], source: str) -> list[str]:
    """The functions that a kernel's statements call, each once."""
    stmts = list(walk(body))
    used = {f"stores_{s.verb}" for s in stmts if isinstance(s, StoreGroup)}
    used |= {"store_box" for s in stmts if isinstance(s, BoxCopy) and s.tells is None}
    moves = {(s.atom, s.dst.dtype, s.src.dtype): s for s in stmts if isinstance(s, Move) and puts(s)}
    lines = sections(source, used, **words(body))
    for line in {s.dst.layout.swizzle for s in moves.values()}:  # of C, and so one
        lines += section(source, "swizzled", line=line, mask=mask(line))
    for (atom, dtype, sums), move in moves.items():
        element, function = types[dtype.name], _function(atom)
        if atom.matrices is None:
            hold, length = "f" if dtype.is_float else "r", move.dst.layout.swizzle // dtype.size
            lines += section(source, function, element=element, hold=hold, length=length)
            continue
        if dtype not in _PAIRS:
            raise LoweringError(f"CUDA makes no pairs of {dtype}")
        pair, make = _PAIRS[dtype]
        said = {"lines": "turned", "trans": ".trans"} if atom.matrices.turned else {"lines": "8 x 8", "trans": ""}
        said |= {"function": function, "below": " " * len(function), "sum": types[sums.name]}
        lines += section(source, "put_matrices", element=element, pair=pair, make=make, **said)
    return lines


def place(index: Sequence[Expr], printer: CLike) -> str:
    """The coordinates of a TMA tile as PTX counts them, from the fast axis."""
    return ", ".join(map(printer.expr, reversed(index)))


def words(body: Body) -> dict[str, str]:
    """What TMA functions of one matrix and of a batch of them differ in."""
    copies = [stmt for stmt in walk(body) if isinstance(stmt, BoxCopy)]
    if not any(len(matrix.shape) > 2 for copy in copies for matrix in (copy.dst, copy.src) if matrix.box is not None):
        return {"rank": "2", "which": "", "given": "", "fourth": "", "fifth": "", "sixth": ""}
    operands = {"fourth": ", %4", "fifth": ", %5", "sixth": ", %6"}
    return {"rank": "3", "which": "int batch, ", "given": ', "r"(batch)', **operands}
