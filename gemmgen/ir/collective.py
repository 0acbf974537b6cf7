"""What work-items do as one, in the interpreter: loads and stores of sub-groups, and returning early."""

from __future__ import annotations

from gemmgen.errors import LoweringError
from gemmgen.ir.atoms import CopyAtom
from gemmgen.ir.evaluate import require_uniform, require_whole
from gemmgen.ir.lanes import Active, Index, Lanes, Site


class Returned(Exception):
    """All work-items are through."""


def returned(active: Active) -> None:
    """All work-items end here."""
    if not active.full:
        raise LoweringError("some work-items return without the others")
    raise Returned


def check_together(lanes: Lanes, index: list[Index], active: Active, site: Site) -> None:
    """A sub-group's instruction: all lanes execute it, with the same coordinates."""
    require_whole(lanes, active, site)
    for coordinate in index:
        require_uniform(lanes, coordinate, active, site, "a coordinate")


def element(lanes: Lanes, index: list[Index], atom: CopyAtom, number: int) -> list[Index]:
    """Where an element of each lane lies."""
    out = list(index)
    for axis, (step, lane_step) in enumerate(zip(atom.element_step, atom.lane_step, strict=True)):
        offset: Index = step * number
        if lane_step:
            offset = offset + lane_step * lanes.lane_id()
        if lane_step or step * number:
            out[axis - 2] = out[axis - 2] + offset
    return out
