"""What stores of boxes do, what puts elements down before them, and how a sub-group meets in between, on NumPy.

A store reads local memory by a way of its own, the asynchronous proxy, while its work-item goes on (PTX ISA, "Proxies",
"Async proxy"). So a work-item's elements are there for it once that has fenced them, and other work-items' once they
have met since; and none may be overwritten before it has waited for the store, and they have met again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from gemmgen.errors import LoweringError
from gemmgen.ir.cluster_memory import ClusterMemory
from gemmgen.ir.evaluate import IndexCode, require_whole
from gemmgen.ir.expr import as_int
from gemmgen.ir.fault import KernelFault
from gemmgen.ir.lanes import Active, Index, Ints, Lanes, Site, Value
from gemmgen.ir.mbarrier_meaning import Group
from gemmgen.ir.meetings import Barrier, StoreGroup
from gemmgen.ir.memory import Memory
from gemmgen.ir.numeric import convert
from gemmgen.ir.stmt import BoxCopy, Move
from gemmgen.ir.tile_memory import BoxedMatrix, TileMemory
from gemmgen.ir.warp_matrix import ACROSS, LANES, LINES

Codes = Sequence[IndexCode]


def put_step(
    move: Move, source: tuple[Memory, Codes], target: tuple[TileMemory, Codes], lanes: Lanes, site: Site
) -> Callable[[Active], None]:
    """Elements of a work-item's registers to lines that swizzle: neighbours of its own, side by side or one below the
    other; or by `stmatrix`, where lane 8 q + i has the coordinates of line i of matrix q for all of the warp, and all
    lanes the elements.
    """
    (memory, src_index), (tile, dst_index) = source, target
    matrices, (down, on) = move.atom.matrices, move.atom.element_step

    def step(active: Active) -> None:
        require_whole(lanes, active, site)
        begins = [code(active) for code in dst_index]
        own = [code(active) for code in src_index]
        for element in range(move.width):
            row, col, place = _part(begins, lanes, active, element, move) if matrices else (0, element, begins)
            index: list[Index] = [*own[:-2], own[-2] + row, own[-1] + col]
            value = cast(Value, convert(memory.read(index, active, site), move.dst.dtype))
            at = place if matrices else [*begins[:-2], begins[-2] + down * element, begins[-1] + on * element]
            tile.put(at, value, active, site)

    return step


def _part(
    begins: Sequence[Index], lanes: Lanes, active: Active, element: int, move: Move
) -> tuple[int, int, list[Index]]:
    """Of a lane's element of a matrix: its row and column among the registers, and where it goes."""
    per = 4 // move.dst.dtype.size
    matrix, e = divmod(element, per)
    matrices = move.atom.matrices
    if matrices is None:
        raise LoweringError(f"{move.atom.name} puts down no matrices")
    band, half = (matrix % 2, matrix // 2) if matrices.bands_first else divmod(matrix, 2)
    number = lanes.everyone.lanes % LANES
    line, place = number // ACROSS, number % ACROSS * per + e
    if matrices.turned:
        line, place = place, line
    of = cast(Ints, lanes.everyone.lanes - number + matrix * LINES + line)
    at = [np.broadcast_to(begin, len(active.mask))[of] for begin in begins]
    return band, half * per + e, [*at[:-1], at[-1] + place]


def store_step(
    stmt: BoxCopy, source: tuple[Memory, Codes], target: tuple[Memory, Codes], group: Group, site: Site
) -> Callable[[Active], None]:
    """What the store of a box begins. Its elements arrive at once: nobody may change them until it has read them."""
    (tile, src_index), (matrix, dst_index) = source, target
    if not isinstance(matrix, BoxedMatrix) or not isinstance(tile, TileMemory):
        raise LoweringError(f"`{site.text}` stores no boxes of tiles")
    rows, cols = stmt.dst.box or (0, 0)
    line = as_int(stmt.src.layout.strides[-2]) or 0
    offsets = ((np.arange(rows)[:, None] * line + np.arange(cols)) * tile.item).reshape(-1)

    def act(active: Active) -> None:
        begin = np.broadcast_to(tile.locate([code(active) for code in src_index], active, site), active.lanes.shape)
        places = [np.broadcast_to(active.pick(code(active)), active.lanes.shape) for code in dst_index]
        for i, lane in enumerate(map(int, active.lanes)):
            first = int(begin[i]) * tile.item
            if first % (LINES * tile.swizzle):
                raise KernelFault("alignment", site.text, f"a box of lines that swizzle can't begin at byte {first}")
            addresses, values = tile.begin_store(first + offsets, lane, site)
            matrix.put([int(place[i]) for place in places], values.reshape(rows, cols), lane, site)
            group.stores.begin(tile, addresses, lane)

    return act


def store_group_step(stmt: StoreGroup, group: Group, site: Site) -> Callable[[Active], None]:
    """What a statement about them does, each work-item for its own."""

    def act(active: Active) -> None:
        match stmt.verb:
            case "fence":
                for memory in group.memories:
                    if isinstance(memory, TileMemory):
                        memory.fence(active)
            case "commit":
                group.stores.commit(active)
            case "wait":
                for reading in group.stores.wait(stmt.pending, active):
                    reading.tile.end_store(reading.addresses, reading.lane, site)

    return act


def barrier_step(stmt: Barrier, group: Group, site: Site) -> Callable[[Active], None]:
    """What a barrier does: of a group, of a role, or of each sub-group for itself."""
    lanes = group.lanes

    def barrier(active: Active) -> None:
        if stmt.of_sub_group:
            _sub_groups_meet(group, active, site)
            return
        if stmt.role_items and lanes.each_group(active) != stmt.role_items:
            raise KernelFault("divergent barrier", site.text, "not all work-items of the role come")
        if not stmt.role_items and not lanes.whole(active, lanes.group_size):
            away = lanes.missing(active)
            raise KernelFault("divergent barrier", site.text, f"{lanes.who(away)} does not come")
        spread = [x for x in group.memories if isinstance(x, ClusterMemory)] if stmt.groups > 1 else []
        if not all(memory.meet(stmt.part) for memory in spread):
            raise KernelFault("divergent barrier", site.text, "nobody has arrived that is waited for")
        if stmt.memory == "local" and stmt.part != "arrive":
            for memory in group.memories:
                memory.publish(active)
            for phases in group.phases.values():
                phases.meet()

    return barrier


def _sub_groups_meet(group: Group, active: Active, site: Site) -> None:
    """What the work-items of each did to tiles and to matrices in boxes comes before what they do next."""
    require_whole(group.lanes, active, site)
    for memory in (*group.memories, *group.matrices):
        if isinstance(memory, TileMemory | BoxedMatrix):
            memory.meet(active)
