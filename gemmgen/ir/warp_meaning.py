"""What matrix instructions of a warp do, on NumPy: the software that they are held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import cast

import numpy as np
import numpy.typing as npt

from gemmgen.errors import LoweringError
from gemmgen.ir.atoms import Fragment
from gemmgen.ir.dtypes import F32, DType
from gemmgen.ir.evaluate import IndexCode, require_whole
from gemmgen.ir.lanes import Active, Index, Ints, Lanes, Site, Value
from gemmgen.ir.memory import Memory
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.ir.stmt import Move
from gemmgen.ir.walk import evaluate
from gemmgen.ir.warp_matrix import ACROSS, LANES, LINE_BYTES, LINES, TURNED_BYTES, WarpAtom

#: What an element of a warp's operand is, as a number.
Numbers = npt.NDArray[np.number]
#: [lane, row value, column value] -> a row, and a column.
Places = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


@cache
def places(fragment: Fragment, lanes: int = LANES) -> Places:
    """Where in its tile each register of each of so many lanes belongs."""
    rows, cols = fragment.rows, fragment.cols
    at = np.zeros((2, lanes, rows.values, cols.values), np.int64)
    for lane in range(lanes):
        row_lane, col_lane = (evaluate(axis.lane, {"lane": lane}) for axis in (rows, cols))
        for row in range(rows.values):
            for col in range(cols.values):
                at[:, lane, row, col] = rows.element(row_lane, row), cols.element(col_lane, col)
    return at[0], at[1]


def exact(sums: DType) -> type[np.float64 | np.int64]:
    """A type that holds products, and what they come to, as they are."""
    return np.float64 if sums.is_float else np.int64


def multiply(atom: WarpAtom, acc: Numbers, a: Numbers, b: Numbers) -> Numbers:
    """The new accumulators; each operand is [warp, lane, row value, column value]."""
    wide = exact(atom.sums)
    left, right = (_matrix(f, significant(x, atom.digits), wide) for f, x in ((atom.a, a), (atom.b, b)))
    sums = _matrix(atom.c, acc, wide) + left @ right
    rows, cols = places(atom.c)
    with np.errstate(over="ignore"):
        return cast(Numbers, sums.astype(numpy_dtype(atom.sums))[:, rows, cols])


def _matrix(fragment: Fragment, registers: Numbers, wide: type[np.float64 | np.int64]) -> Numbers:
    """[warp, row, column], in a type that holds products."""
    out = np.zeros((len(registers), *fragment.shape), wide)
    rows, cols = places(fragment)
    out[:, rows, cols] = registers
    return out


def significant(value: Numbers, digits: int) -> Numbers:
    """Elements without what the instruction does not look at: the last bits of float32, as TF32 has fewer."""
    if value.dtype != np.float32 or digits >= F32.digits:
        return value
    kept = np.int32(-1 << (F32.digits - digits))
    return cast(Numbers, (np.ascontiguousarray(value).view(np.int32) & kept).view(np.float32))


def multiply_step(
    atom: WarpAtom, operands: Sequence[tuple[Memory, Sequence[IndexCode]]], lanes: Lanes, site: Site
) -> Callable[[Active], None]:
    """What an instruction does whose sums, A and B begin at these registers of private arrays."""
    fragments = (atom.c, atom.a, atom.b)

    def step(active: Active) -> None:
        require_whole(lanes, active, site)
        found = [(memory, [code(active) for code in index]) for memory, index in operands]
        read = [
            _registers(fragment, memory, index, active, site)
            for fragment, (memory, index) in zip(fragments, found, strict=True)
        ]
        after = multiply(atom, *read)
        memory, index = found[0]
        for row in range(atom.c.rows.values):
            for col in range(atom.c.cols.values):
                value = after[:, :, row, col].reshape(-1)
                memory.write(_register(index, atom.c, row, col), cast(Value, value), active, site)

    return step


def _registers(fragment: Fragment, memory: Memory, index: list[Index], active: Active, site: Site) -> Numbers:
    """An operand, [warp, lane, row value, column value]."""
    count = len(active.mask)
    values = [
        [
            np.broadcast_to(np.asarray(memory.read(_register(index, fragment, row, col), active, site)), count)
            for col in range(fragment.cols.values)
        ]
        for row in range(fragment.rows.values)
    ]
    together = np.stack([np.stack(row, axis=-1) for row in values], axis=-2)
    return together.reshape(-1, LANES, fragment.rows.values, fragment.cols.values)


def _register(index: list[Index], fragment: Fragment, row: int, col: int) -> list[Index]:
    """Where a register of a fragment lies whose first one is at `index`; an axis of one may have been dropped."""
    slow, fast = (col, row) if fragment.transposed else (row, col)
    out = [*index[:-1], index[-1] + fast]
    if slow:
        out[-2] = out[-2] + slow
    return out


def load_step(
    move: Move,
    source: tuple[Callable[[Sequence[Index], Active, Site], Value], Sequence[IndexCode]],
    target: tuple[Memory, Sequence[IndexCode]],
    lanes: Lanes,
    site: Site,
) -> Callable[[Active], None]:
    """What `ldmatrix` does: lane 8 q + i has the coordinates of line i of matrix q, for all of the warp."""
    size = move.src.dtype.size
    per = LINE_BYTES // size // ACROSS
    matrices = move.atom.matrices
    if matrices is None:
        raise LoweringError(f"`{site.text}` loads no matrices")
    read, src_index = source
    memory, dst_index = target

    def step(active: Active) -> None:
        require_whole(lanes, active, site)
        begins = [np.broadcast_to(code(active), len(active.mask)) for code in src_index]
        own = lanes.everyone.lanes % LANES
        first = lanes.everyone.lanes - own
        values = []
        for element in range(move.width):
            matrix, e = divmod(element, per)
            line, place = own // ACROSS, own % ACROSS * per + e
            if matrices.turned:  # elements of two bytes, or as many that make two
                (e, part), parts = divmod(e, TURNED_BYTES // size), TURNED_BYTES // size
                line, place = own % ACROSS * 2 + e, own // ACROSS * parts + part
            of = cast(Ints, first + matrix * LINES + line)
            index: list[Index] = [begin[of] for begin in begins]
            values.append(read([*index[:-1], index[-1] + place], active, site))
        at = [code(active) for code in dst_index]
        for element, value in enumerate(values):
            matrix, e = divmod(element, per)
            band, half = (matrix % 2, matrix // 2) if matrices.bands_first else divmod(matrix, 2)
            index = [*at[:-1], at[-1] + (half * per + e)]
            if band:
                index[-2] = index[-2] + 1
            memory.write(index, value, active, site)

    return step
