"""TMA loads and TMA stores, on NumPy.

A store reads local memory by a way of its own, the asynchronous proxy, while its work-item goes on (PTX ISA, "Proxies",
"Async proxy"). So a work-item's elements are there for it once that has fenced them, and other work-items' once they
have met since; and none may be overwritten before it has waited for the store, and they have met again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from gemmgen.errors import KernelFault
from gemmgen.ir.checker import tma_tile_bytes
from gemmgen.ir.expr import as_int
from gemmgen.ir.instructions import LINES
from gemmgen.ir.numeric import tf32_by_tma
from gemmgen.ir.stmt import TmaCopy
from gemmgen.ir.synchronization import Mbarrier
from gemmgen.simulator.evaluate import IndexCode, Reference
from gemmgen.simulator.in_flight import CopyInFlight, StoreInFlight
from gemmgen.simulator.lanes import Active, Site, agreed
from gemmgen.simulator.synchronization import Group
from gemmgen.simulator.tiles import BoxedMatrix, TileMemory


def store_step(
    stmt: TmaCopy, source: Reference, target: Reference, group: Group, site: Site
) -> Callable[[Active], None]:
    """What the TMA store begins. Its elements arrive at once: nobody may change them until it has read them."""
    tile = source.within(TileMemory, site, "stores no TMA tiles")
    matrix = target.within(BoxedMatrix, site, "stores no TMA tiles of a matrix")
    rows, cols = stmt.dst.tma_tile or (0, 0)
    line = as_int(stmt.src.layout.strides[-2]) or 0
    offsets = ((np.arange(rows)[:, None] * line + np.arange(cols)) * tile.item).reshape(-1)

    def act(active: Active) -> None:
        begin = np.broadcast_to(tile.locate(source.at(active), active, site), active.lanes.shape)
        places = [np.broadcast_to(active.pick(x), active.lanes.shape) for x in target.at(active)]
        each = np.stack([group.lanes.base[active.lanes], *places])
        if np.unique(each, axis=1).shape[1] < len(active.lanes):
            raise KernelFault("race", site.text, "another work-item of the group stores what the TMA store writes")
        for i, lane in enumerate(map(int, active.lanes)):
            first = int(begin[i]) * tile.item
            if first % (LINES * tile.swizzle):
                raise KernelFault(
                    "alignment", site.text, f"a TMA tile of lines that swizzle can't begin at byte {first}"
                )
            addresses, values = tile.begin_store(first + offsets, lane, site)
            matrix.put([int(place[i]) for place in places], values.reshape(rows, cols), lane, site)
            group.stores.issue(StoreInFlight(tile, addresses, lane), lane)

    return act


def tma_step(
    stmt: TmaCopy,
    tells: Mbarrier,
    source: Reference,
    target: Reference,
    barrier: IndexCode,
    group: Group,
    site: Site,
) -> Callable[[Active], None]:
    """What a TMA copy begins, one work-item of each group."""
    matrix = source.within(BoxedMatrix, site, "copies no TMA tiles of a matrix")
    tile = target.within(TileMemory, site, "copies no TMA tiles")
    rows, cols = stmt.src.tma_tile or (0, 0)
    line = as_int(stmt.dst.layout.strides[-2]) or 0
    offsets = (np.arange(rows)[:, None] * line + np.arange(cols)).reshape(-1) * tile.item
    phases = group.barriers(tells.name)

    def fault(detail: str) -> NoReturn:
        raise KernelFault("pipe", site.text, detail)

    def act(active: Active) -> None:
        if group.lanes.each_group(active) != 1:
            fault("not one work-item of each group begins it")
        which = agreed(barrier(active), active)
        if isinstance(which, np.ndarray):
            fault("work-items mean different barriers")
        if problem := phases.problem(which, stmt.src.multicast > 1):
            fault(problem)
        group.touches_others |= stmt.src.multicast > 1
        begin = np.broadcast_to(tile.locate(target.at(active), active, site), active.lanes.shape)
        places = [np.broadcast_to(active.pick(x), active.lanes.shape) for x in source.at(active)]
        copies = []
        for i, lane in enumerate(map(int, active.lanes)):
            values = matrix.box([int(place[i]) for place in places], rows, cols, lane, site).reshape(-1)
            values = tf32_by_tma(values.astype(np.float32)) if stmt.src.rounded else values
            for to in group.lanes.of_cluster(lane, stmt.src.multicast):
                addresses = tile.begin_tma_tile(int(begin[i]) * tile.item + offsets, to, site, to != lane)
                copies.append(CopyInFlight(tile, addresses, values, np.full(len(addresses), to, np.int64), site))
        # All groups copy at once, so that each gets as many boxes as it sends.
        if problem := phases.bring(which, copies, tma_tile_bytes(stmt.src) * stmt.src.multicast):
            fault(problem)
        group.roles.happened()

    return act
