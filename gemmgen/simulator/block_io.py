"""2D block reads, writes and prefetches in the simulator: what each lane gets, and what they ask of a matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from gemmgen.errors import KernelFault, LoweringError
from gemmgen.ir.buffer import Space
from gemmgen.ir.copy_instructions import (
    BLOCK_2D_LINE,
    BLOCK_2D_MOST,
    BLOCK_2D_PITCH,
    BLOCK_2D_START,
    BLOCK_2D_WORD,
    CopyAtom,
)
from gemmgen.ir.dtypes import DType
from gemmgen.ir.numeric import numpy_dtype, poison
from gemmgen.ir.stmt import PayloadAdvance, Prefetch, VectorCopy
from gemmgen.simulator.evaluate import IndexCode, Reference, require_uniform, require_whole
from gemmgen.simulator.lanes import Active, Bools, Index, Lanes, Site, Value, agreed
from gemmgen.simulator.memory import GlobalMemory
from gemmgen.simulator.semantics import places


def block_2d_step(
    move: VectorCopy, source: Reference, target: Reference, extent: Sequence[IndexCode], lanes: Lanes, site: Site
) -> Callable[[Active], None]:
    """What a 2D block read or write does: each lane has its elements of the blocks. Past the extent it reads zeros, and
    writes nothing.
    """
    loads = move.dst.space is Space.PRIVATE
    (outer, given), (own, held) = (source, move.src), (target, move.dst)
    if not loads:
        (outer, given), (own, held) = (own, held), (outer, given)
    matrix = outer.within(GlobalMemory, site, "moves no 2D block of a matrix")
    col_unit = 1 if move.atom.block is None else move.atom.block.col_unit

    def step(active: Active) -> None:
        (row, col), size = _agreed(outer.index, extent, lanes, active, site)
        at = [row, col * col_unit]
        if move.atom.aligned:
            _check_matrix(given.dtype.size, matrix, (at, size), active, site)
        begin = own.at(active)
        for element in range(move.width):
            place, register = _place(move.atom, at, element, lanes), _register(begin, element, held.extents)
            inside = np.broadcast_to((place[0] < size[0]) & (place[1] < size[1]), len(active.mask))
            if loads:
                value = _read(matrix, given.dtype, place, inside, active, site)
                own.memory.write(register, value, active, site)
                continue
            value, (holds, _) = own.memory.read(register, active, site), active.split(inside)
            if holds is not None:
                matrix.write(place, value, holds, site)

    return step


def _read(
    matrix: GlobalMemory, dtype: DType, place: Sequence[Index], inside: Bools, active: Active, site: Site
) -> Value:
    """An element of each lane, zero where it is not inside."""
    values, word = np.zeros(len(active.mask), numpy_dtype(dtype)), max(1, BLOCK_2D_WORD // dtype.size)
    # Told of whole words, it reads what a line's last one holds past the matrix.
    past = inside & (place[1] >= matrix.shape[-1]) & (place[1] < matrix.shape[-1] + -matrix.shape[-1] % word)
    values[past] = poison(values.dtype)
    holds, _ = active.split(inside & ~past)
    if holds is not None:
        read = matrix.read(place, holds, site)
        values[holds.lanes] = read[holds.lanes] if isinstance(read, np.ndarray) else read
    return cast(Value, values)


def block_2d_prefetch_step(
    stmt: Prefetch, block: Reference, extent: Sequence[IndexCode], lanes: Lanes, site: Site
) -> Callable[[Active], None]:
    """What a 2D block prefetch does: nothing, but it asks what a read does."""
    matrix = block.within(GlobalMemory, site, "prefetches no 2D block of a matrix")

    def step(active: Active) -> None:
        at = _agreed(block.index, extent, lanes, active, site)
        _check_matrix(stmt.buffer.dtype.size, matrix, at, active, site)

    return step


def payload_step(payload: Reference, index: Sequence[IndexCode], lanes: Lanes, site: Site) -> Callable[[Active], None]:
    """What fills an address payload: row and column of the block, which all lanes of a whole sub-group say alike."""

    def step(active: Active) -> None:
        at, numbers = _agreed(index, payload.index, lanes, active, site)
        for axis, place in enumerate(at):
            payload.memory.write([*numbers, axis], cast(Value, place), active, site)

    return step


def advance_step(stmt: PayloadAdvance, payload: Reference, site: Site) -> Callable[[Active], None]:
    """What moves the block of an address payload."""

    def step(active: Active) -> None:
        place: list[Index] = [*payload.at(active), stmt.axis]
        payload.memory.write(place, payload.memory.read(place, active, site) + stmt.by, active, site)

    return step


def _agreed(
    index: Sequence[IndexCode], extent: Sequence[IndexCode], lanes: Lanes, active: Active, site: Site
) -> tuple[list[Index], list[Index]]:
    """Where a block begins and how large the matrix is, which all lanes of a whole sub-group say alike."""
    require_whole(lanes, active, site)
    at, size = [code(active) for code in index], [code(active) for code in extent]
    for number in (*at, *size):
        require_uniform(lanes, number, active, site, "a coordinate")
    return at, size


def _place(atom: CopyAtom, at: Sequence[Index], element: int, lanes: Lanes) -> list[Index]:
    """Row and column of an element of each lane."""
    if atom.fragment is not None:
        row, col = divmod(element, atom.fragment.cols.values)
        of_lanes = (axis[lanes.lane_id(), row, col] for axis in places(atom.fragment, lanes.lanes_of_sub_group()))
        return [begin + further for begin, further in zip(at, of_lanes, strict=True)]
    if (block := atom.block) is None:
        raise LoweringError(f"{atom.name} reads no 2D block")
    lane = lanes.lane_id() % block.lanes
    apart = np.array([block.lane_offset(x) for x in range(block.lanes)])
    return [
        begin + further + apart[lane, axis]
        for axis, (begin, further) in enumerate(zip(at, atom.offset(element), strict=True))
    ]


def _register(to: Sequence[Index], element: int, extents: Sequence[int]) -> list[Index]:
    """Where a lane's element goes in an array, whose lines follow one another, from the beginning of a line on."""
    index = list(to)
    for axis in range(len(index) - 1, -1, -1):
        element, place = divmod(element, extents[axis]) if axis else (0, element)
        index[axis] = index[axis] + place if place else index[axis]
    return index


def _check_matrix(
    size: int,
    matrix: GlobalMemory,
    place: tuple[Sequence[Index], Sequence[Index]],
    active: Active,
    site: Site,
) -> None:
    """What the extension asks (its section "Restrictions"), of elements of `size` bytes.

    Raises: KernelFault where the hardware's result is undefined.
    """
    (_, col), (rows, cols) = place
    line, many = (np.max(active.pick(x)) for x in (cols, rows))
    # A line ends where its last word does.
    line = -(-int(line) * size // BLOCK_2D_WORD) * BLOCK_2D_WORD
    pitch = matrix.strides[-2] * size
    start = agreed(matrix.start, active)
    asked = {
        f"lines lie {pitch} bytes apart, no multiple of {BLOCK_2D_PITCH}": pitch % BLOCK_2D_PITCH,
        f"a line of {line} bytes is shorter than {BLOCK_2D_LINE}": line < BLOCK_2D_LINE,
        f"a line of {line} bytes is longer than the {pitch} from one to the next": line > pitch,
        f"{max(line, int(many))} > {BLOCK_2D_MOST} bytes of a line, or lines": max(line, many) > BLOCK_2D_MOST,
        "a matrix without lines": many <= 0,
        f"a column that begins on no multiple of {BLOCK_2D_WORD} bytes": np.any(
            active.pick(col) * size % BLOCK_2D_WORD
        ),
        f"a matrix that begins on no multiple of {BLOCK_2D_START} bytes": np.any(start * size % BLOCK_2D_START),
    }
    for what, is_wrong in asked.items():
        if is_wrong:
            raise KernelFault("alignment", site.text, f"a 2D block read, but {what}")
