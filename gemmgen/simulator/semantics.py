"""What matrix instructions do, on NumPy: the reference that they must match.

The semantics of an instruction follows from its TV layouts: the elements of A, B and C are gathered from all lanes'
registers into matrices, multiplied, and the sums scattered back. Operands in local memory are gathered from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import cast

import numpy as np
import numpy.typing as npt

from gemmgen.errors import LoweringError
from gemmgen.ir.copy_instructions import ThreadValueLayout
from gemmgen.ir.dtypes import F32, DType
from gemmgen.ir.instructions import ACROSS, LINES, MATRIX_LINE_BYTES, WARP_LANES, Instruction
from gemmgen.ir.numeric import convert, numpy_dtype, of_pairs
from gemmgen.ir.operands import TRANSPOSED_BYTES
from gemmgen.ir.stmt import VectorCopy
from gemmgen.ir.walk import evaluate
from gemmgen.simulator.evaluate import Reference, require_whole
from gemmgen.simulator.lanes import Active, Index, Ints, Lanes, Site, Value
from gemmgen.simulator.memory import Memory
from gemmgen.simulator.tiles import TileMemory

#: What an element of an operand is, as a number.
Numbers = npt.NDArray[np.number]
#: [lane, row value, column value] -> a row, and a column.
Places = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


@cache
def places(layout: ThreadValueLayout, lanes: int) -> Places:
    """Where in its tile each register of each of so many lanes belongs."""
    rows, cols = layout.rows, layout.cols
    at = np.zeros((2, lanes, rows.values, cols.values), np.int64)
    for lane in range(lanes):
        row_lane, col_lane = (evaluate(axis.lane, {"lane": lane}) for axis in (rows, cols))
        for row in range(rows.values):
            for col in range(cols.values):
                at[:, lane, row, col] = rows.element(row_lane, row), cols.element(col_lane, col)
    return at[0], at[1]


def gather(layout: ThreadValueLayout, registers: Numbers) -> Numbers:
    """[unit, lane, row value, column value] -> [unit, row, column], where a unit is all lanes of a scope."""
    out = np.zeros((len(registers), *layout.shape), registers.dtype)
    rows, cols = places(layout, registers.shape[1])
    out[:, rows, cols] = registers
    return out


def scatter(layout: ThreadValueLayout, matrices: Numbers, lanes: int) -> Numbers:
    """The inverse of `gather`."""
    rows, cols = places(layout, lanes)
    return matrices[:, rows, cols]


def product(instruction: Instruction, c: Numbers, a: Numbers, b: Numbers) -> Numbers:
    """The new sums, [unit, row, column], from matrices [unit, row, k] and [unit, k, column]."""
    # A type that holds products, and what they come to, as they are.
    wide = np.float64 if instruction.sums.is_float else np.int64
    left, right = (significant(x, instruction.digits).astype(wide) for x in (a, b))
    with np.errstate(over="ignore"):
        return cast(Numbers, (c.astype(wide) + left @ right).astype(numpy_dtype(instruction.sums)))


def multiply(instruction: Instruction, c: Numbers, a: Numbers, b: Numbers) -> Numbers:
    """The new accumulators; each operand is [unit, lane, row value, column value]."""
    layouts = instruction.c, instruction.a, instruction.b
    sums = product(instruction, *(gather(x, registers) for x, registers in zip(layouts, (c, a, b), strict=True)))
    return scatter(instruction.c, sums, c.shape[1])


def significant(value: Numbers, digits: int) -> Numbers:
    """Elements without what the instruction does not look at: the last bits of float32, as TF32 has fewer."""
    if value.dtype != np.float32 or not 0 < digits < F32.digits:
        return value
    kept = np.int32(-1 << (F32.digits - digits))
    return cast(Numbers, (np.ascontiguousarray(value).view(np.int32) & kept).view(np.float32))


def multiply_step(
    instruction: Instruction, operands: Sequence[Reference], lanes: Lanes, site: Site
) -> Callable[[Active], None]:
    """What an instruction does whose sums, A and B begin at these registers of private arrays."""
    layouts = (instruction.c, instruction.a, instruction.b)
    words = (None, instruction.a_word, instruction.b_word)

    def step(active: Active) -> None:
        if instruction.scope != "thread":
            require_whole(lanes, active, site)
        found = [(x.memory, x.at(active)) for x in operands]
        in_pairs = (False, False, instruction.b_pairs)
        read = [
            _of_pairs(layout, memory, index, active, site)
            if pairs
            else _registers(layout, memory, index, active, site)
            if word is None
            else unpacked(layout, _words(layout, instruction.dtype, word, memory, index, active, site), instruction)
            for layout, word, pairs, (memory, index) in zip(layouts, words, in_pairs, found, strict=True)
        ]
        c, a, b = (x.reshape(-1, instruction.threads, *x.shape[1:]) for x in read)
        after = multiply(instruction, c, a, b)
        memory, index = found[0]
        for row in range(instruction.c.rows.values):
            for col in range(instruction.c.cols.values):
                value = after[:, :, row, col].reshape(-1)
                memory.write(_register(index, instruction.c, row, col), cast(Value, value), active, site)

    return step


def _registers(layout: ThreadValueLayout, memory: Memory, index: list[Index], active: Active, site: Site) -> Numbers:
    """An operand, [lane, row value, column value]."""
    count = len(active.mask)
    values = [
        [
            np.broadcast_to(np.asarray(memory.read(_register(index, layout, row, col), active, site)), count)
            for col in range(layout.cols.values)
        ]
        for row in range(layout.rows.values)
    ]
    return np.stack([np.stack(row, axis=-1) for row in values], axis=-2)


def _of_pairs(layout: ThreadValueLayout, memory: Memory, index: list[Index], active: Active, site: Site) -> Numbers:
    """The same of an operand whose registers are bytes of two neighbours of a column."""
    halves = replace(layout, rows=replace(layout.rows, values=layout.rows.values // 2))
    return of_pairs(_registers(halves, memory, index, active, site), 1, layout.rows.values)


def _words(
    layout: ThreadValueLayout, dtype: DType, word: DType, memory: Memory, index: list[Index], active: Active, site: Site
) -> Numbers:
    """The words that hold an operand's elements, neighbours in an array: [lane, word]."""
    count = layout.rows.values * layout.cols.values * dtype.size // word.size
    read = (np.asarray(memory.read(neighbour(index, e), active, site)) for e in range(count))
    values = np.stack([np.broadcast_to(x, len(active.mask)) for x in read], axis=-1)
    return np.ascontiguousarray(values.astype(numpy_dtype(word)))


def unpacked(layout: ThreadValueLayout, words: Numbers, instruction: Instruction) -> Numbers:
    """The elements that words [lane, word] hold, [lane, row value, column value]."""
    held = words.view(numpy_dtype(instruction.dtype))
    rows, cols = layout.rows.values, layout.cols.values
    if layout.transposed:
        return held.reshape(-1, cols, rows).swapaxes(1, 2)
    return held.reshape(-1, rows, cols)


def _register(index: list[Index], layout: ThreadValueLayout, row: int, col: int) -> list[Index]:
    """Where a register of an operand lies whose first one is at `index`; an axis of one may have been dropped."""
    slow, fast = (col, row) if layout.transposed else (row, col)
    if not index:  # a single element
        return index
    out = [*index[:-1], index[-1] + fast]
    if slow:
        out[-2] = out[-2] + slow
    return out


def neighbour(index: list[Index], element: int) -> list[Index]:
    """Where the element so many places further on lies; a single one may have no index at all."""
    return [*index[:-1], index[-1] + element] if element else index


def load_step(
    move: VectorCopy,
    read: Callable[[Sequence[Index], Active, Site], Value],
    source: Reference,
    target: Reference,
    lanes: Lanes,
    site: Site,
) -> Callable[[Active], None]:
    """What `ldmatrix` does: lane 8 q + i has the coordinates of line i of matrix q, for all of the warp."""
    size = move.src.dtype.size
    per = MATRIX_LINE_BYTES // size // ACROSS
    matrices = move.atom.matrices
    if matrices is None:
        raise LoweringError(f"`{site.text}` loads no matrices")

    def step(active: Active) -> None:
        require_whole(lanes, active, site)
        begins = [np.broadcast_to(code(active), len(active.mask)) for code in source.index]
        own = lanes.everyone.lanes % WARP_LANES
        first = lanes.everyone.lanes - own
        values = []
        for element in range(move.width):
            matrix, e = divmod(element, per)
            line, place = own // ACROSS, own % ACROSS * per + e
            if matrices.transposed:  # elements of two bytes, or as many that make two
                (e, part), parts = divmod(e, TRANSPOSED_BYTES // size), TRANSPOSED_BYTES // size
                line, place = own % ACROSS * 2 + e, own // ACROSS * parts + part
            of = cast(Ints, first + matrix * LINES + line)
            index: list[Index] = [begin[of] for begin in begins]
            values.append(read([*index[:-1], index[-1] + place], active, site))
        at = target.at(active)
        for element, value in enumerate(values):
            matrix, e = divmod(element, per)
            band, half = (matrix % 2, matrix // 2) if matrices.rows_first else divmod(matrix, 2)
            index = [*at[:-1], at[-1] + (half * per + e)]
            if band:
                index[-2] = index[-2] + 1
            target.memory.write(index, value, active, site)

    return step


def put_step(
    move: VectorCopy, source: Reference, target: Reference, lanes: Lanes, site: Site
) -> Callable[[Active], None]:
    """Elements of a work-item's registers to lines that swizzle: neighbours of its own, side by side or one below the
    other; or by `stmatrix`, where lane 8 q + i has the coordinates of line i of matrix q for all of the warp, and all
    lanes the elements.
    """
    tile = target.within(TileMemory, site, "puts nothing down in lines that swizzle")
    matrices, (down, on) = move.atom.matrices, move.atom.element_step

    def step(active: Active) -> None:
        require_whole(lanes, active, site)
        begins, own = target.at(active), source.at(active)
        for element in range(move.width):
            row, col, place = _part(begins, lanes, active, element, move) if matrices else (0, element, begins)
            index: list[Index] = [*own[:-2], own[-2] + row, own[-1] + col]
            value = cast(Value, convert(source.memory.read(index, active, site), move.dst.dtype))
            at = place if matrices else [*begins[:-2], begins[-2] + down * element, begins[-1] + on * element]
            tile.put(at, value, active, site)

    return step


def _part(
    begins: Sequence[Index], lanes: Lanes, active: Active, element: int, move: VectorCopy
) -> tuple[int, int, list[Index]]:
    """Of a lane's element of a matrix: its row and column among the registers, and where it goes."""
    per = 4 // move.dst.dtype.size
    matrix, e = divmod(element, per)
    matrices = move.atom.matrices
    if matrices is None:
        raise LoweringError(f"{move.atom.name} puts down no matrices")
    band, half = (matrix % 2, matrix // 2) if matrices.rows_first else divmod(matrix, 2)
    number = lanes.everyone.lanes % WARP_LANES
    line, place = number // ACROSS, number % ACROSS * per + e
    if matrices.transposed:
        line, place = place, line
    of = cast(Ints, lanes.everyone.lanes - number + matrix * LINES + line)
    at = [np.broadcast_to(begin, len(active.mask))[of] for begin in begins]
    return band, half * per + e, [*at[:-1], at[-1] + place]
