"""Schedules drawn by hypothesis over all records: every member of every axis, every field of each."""

from __future__ import annotations

from hypothesis import strategies as st

from gemmgen.errors import ScheduleError
from gemmgen.methods import unflatten
from gemmgen.schedule import Flat, Memory, Operand, Value
from gemmgen.schedule.cpu_panel import CpuPanel
from gemmgen.schedule.direct import SubGroup
from gemmgen.schedule.dpas import Dpas
from gemmgen.schedule.fields import WORDS, Meaning, meanings
from gemmgen.schedule.flat import MAINLOOPS
from gemmgen.schedule.mainloop import Mainloop
from gemmgen.schedule.shared_memory import SharedMemory
from gemmgen.schedule.tma_ring import TmaRing
from gemmgen.schedule.warpgroup_mma import WarpgroupMma

#: Where operands of a mainloop come from, A and B.
_MEMORIES: dict[type[Mainloop], list[tuple[Memory, Memory]]] = {
    SubGroup: [("global", "global"), ("image", "image"), ("image", "global")],
    SharedMemory: [("local", "local"), ("local", "global"), ("global", "local")],
    WarpgroupMma: [("local", "local"), ("private", "local"), ("local", "private")],
    CpuPanel: [("global", "global"), ("global", "private")],
}


def memories_of(loop: type[Mainloop]) -> list[tuple[Memory, Memory]]:
    """Where its operands may come from, A and B."""
    return _MEMORIES.get(loop, [("global", "global")])


def values(annotation: str, meaning: Meaning) -> list[Value]:
    """Those that a field may have in its record."""
    tries = WORDS.get(annotation, meaning.tries)

    def fits(value: Value) -> bool:
        numbers = value if isinstance(value, tuple) else (value,)
        return all(not isinstance(x, int) or meaning.least <= x <= meaning.most for x in numbers)

    return [value for value in tries if fits(value)]


@st.composite
def flats(draw: st.DrawFn) -> Flat:
    """The keys of a schedule; those of one mainloop, of an epilogue and of a scheduler that go with it."""
    loop = draw(st.sampled_from(MAINLOOPS))
    out, tiles = draw(st.sampled_from(loop.epilogues)), draw(st.sampled_from(loop.schedulers))
    flat: Flat = {"atom": "dpas"} if loop is Dpas else {"tma": True} if loop is TmaRing else {}
    if tiles.chosen_by is not None:
        flat[tiles.chosen_by.key] = True
    for part in (loop.tiling, loop, out, tiles):
        for key, (annotation, meaning) in meanings(part).items():
            if key not in loop.without:
                flat[key] = draw(st.sampled_from(values(annotation, meaning)))
    for name, memory in zip("ab", draw(st.sampled_from(memories_of(loop))), strict=True):
        packed = draw(st.booleans())
        own = loop.operand_keys(name, Operand(memory=memory, prepacked=packed))
        flat |= {f"{name}.memory": memory} if "memory" in own else {}
        flat |= {f"{name}.prepacked": packed} if "prepacked" in own else {}
        for key in sorted(own - {"memory", "prepacked"}):
            flat[f"{name}.{key}"] = draw(st.sampled_from(values(*meanings(Operand)[key])))
    return flat


def _is_possible(flat: Flat) -> bool:
    try:
        unflatten(flat)
    except ScheduleError:
        return False
    return True


#: Schedules of all members; whether a target takes them is another question.
schedules = flats().filter(_is_possible).map(unflatten)
