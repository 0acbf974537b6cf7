"""Requests drawn at random over all records of a schedule, for all targets.

A draw departs from a named schedule, from what a method makes by itself or from nothing, in one to four fields, each
with a value that its record names as worth trying. By its number alone it is the same each time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from gemmgen import candidates, driver
from gemmgen.backends import BACKENDS
from gemmgen.backends import backend as find_backend
from gemmgen.errors import ScheduleError, UserError
from gemmgen.fuzz.checks import Place
from gemmgen.ir.dtypes import BF16, F16, F32, F64, FLOAT8, I8, RESULTS, DType
from gemmgen.methods import METHODS, defaults
from gemmgen.schedule import PLAIN, Flat, Operand, Pair, Schedule, Value
from gemmgen.schedule.cpu_panel import CpuPanel
from gemmgen.schedule.direct import Direct, Gemv, SubGroup
from gemmgen.schedule.dpas import Dpas, DpasBlock2D
from gemmgen.schedule.epilogues import Epilogue, Registers, Staged
from gemmgen.schedule.fields import meanings
from gemmgen.schedule.flat import MAINLOOPS
from gemmgen.schedule.mainloop import Mainloop
from gemmgen.schedule.schedulers import AtomicSplitK, ClusterSplitK, Scheduler, SplitK, StreamK
from gemmgen.schedule.shared_memory import SharedMemory
from gemmgen.schedule.tma_ring import TmaRing
from gemmgen.schedule.warp_mma import DirectMma, Mfma
from gemmgen.schedule.warpgroup_mma import WarpgroupMma
from gemmgen.spec import GemmSpec
from tests.support.schedules import memories_of, values

#: Tiles and groups that the simulator is quick with.
SHAPES: Mapping[str, tuple[tuple[Pair, Pair], ...]] = {
    "Direct": (((1, 1), (4, 8)), ((2, 4), (4, 4)), ((3, 2), (8, 4)), ((4, 4), (1, 8)), ((4, 4), (4, 8))),
    "Gemv": (((1, 4), (1, 1)), ((4, 4), (1, 1)), ((8, 2), (1, 1)), ((1, 2), (1, 4)), ((2, 2), (2, 2))),
    "SubGroup": (((8, 1), (1, 8)), ((8, 2), (1, 8)), ((16, 1), (1, 16)), ((8, 2), (2, 16)), ((4, 1), (2, 8))),
    "SharedMemory": (((4, 4), (4, 8)), ((2, 4), (8, 4)), ((4, 8), (2, 16)), ((3, 4), (4, 8)), ((8, 4), (4, 4))),
    "TmaRing": (((4, 4), (8, 16)), ((8, 8), (8, 16)), ((4, 8), (8, 16)), ((8, 8), (16, 8)), ((8, 4), (16, 8))),
    "WarpMma": (((4, 8), (8, 4)), ((4, 4), (16, 4)), ((4, 8), (8, 8)), ((8, 8), (16, 8)), ((2, 4), (8, 8))),
    "DirectMma": (((2, 2), (4, 8)), ((2, 4), (4, 8)), ((4, 2), (4, 8)), ((4, 4), (4, 8)), ((6, 2), (4, 8))),
    "WarpgroupMma": (
        *(((2, 16), (32, 4)), ((2, 32), (32, 4)), ((2, 16), (64, 4)), ((2, 32), (32, 8)), ((4, 16), (32, 4))),
        *(((16, 2), (4, 32)), ((32, 2), (4, 64))),
    ),
    "Dpas": (((8, 1), (1, 8)), ((16, 1), (1, 8)), ((8, 2), (1, 16)), ((32, 2), (1, 8))),
    "DpasBlock2D": (((8, 1), (1, 16)), ((8, 2), (2, 32)), ((16, 1), (2, 16)), ((32, 2), (1, 16))),
    "JointMatrix": (((16, 1), (1, 16)), ((16, 2), (2, 32)), ((32, 1), (2, 16)), ((32, 2), (1, 16))),
    "Mfma": (((4, 1), (4, 16)), ((8, 2), (4, 16)), ((4, 2), (8, 16)), ((4, 1), (4, 32))),
    "CpuPanel": (((2, 16), (1, 1)), ((3, 8), (1, 1)), ((6, 16), (1, 1)), ((4, 2), (1, 1))),
}
#: What each instruction multiplies.
TYPES: Mapping[str, tuple[DType, ...]] = {
    "fma": (F32, F32, F32, *(x for x in RESULTS if x not in FLOAT8)),
    "dpas": (F16, BF16),
    "joint_matrix": (F16, BF16, I8),
    "mfma": (F16,),
    "mma": (F16, BF16),
    "mma_s8": (I8,),
    "mma_f8": FLOAT8,
    "mma_f64": (F64,),
    "wgmma": (F16, BF16),
    "wgmma_s8": (I8,),
    "wgmma_f8": FLOAT8,
}


@cache
def places() -> tuple[Place, ...]:
    """Every target of every language."""
    return tuple(Place.named(name, target) for name in BACKENDS for target in find_backend(name).targets)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for: a schedule with some fields changed, a product and where it is to run."""

    base: Schedule
    changes: Flat
    spec: GemmSpec
    place: Place

    def schedule(self) -> Schedule:
        """Raises: ScheduleError."""
        return self.base.but(**self.changes, name=None)

    @property
    def made(self) -> bool:
        """Whether there is such a schedule, whoever takes it."""
        try:
            self.schedule()
        except ScheduleError:
            return False
        return True

    def problems(self) -> tuple[str, ...]:
        """Why it can't be had."""
        try:
            schedule = self.schedule()
        except ScheduleError as error:
            return error.problems
        return driver.refusals_of(self.spec, schedule, self.place.backend, self.place.target)

    def __str__(self) -> str:
        try:
            text = reproducer(self.schedule())
        except ScheduleError:
            text = f"{reproducer(self.base)}.but(**{self.changes})"
        return f"{text}\n    {self.spec.label()} {_said(self.spec)} for {self.place.backend}, {self.place.name}"


def reproducer(schedule: Schedule) -> str:
    """A line of Python that makes the schedule."""
    flat = {key: value for key, value in flat_of(schedule).items() if value != PLAIN[key]}
    return f"Schedule.of(**{flat})"


def flat_of(schedule: Schedule) -> Flat:
    flat: Flat = {}
    for key in PLAIN:
        operand, _, name = key.rpartition(".")
        flat[key] = getattr(getattr(schedule, operand) if operand else schedule, name)
    return flat


def _said(spec: GemmSpec) -> str:
    plain = GemmSpec(dtype=spec.dtype)
    return str({key: str(x) for key in GemmSpec.__slots__ if (x := getattr(spec, key)) != getattr(plain, key)})


# --- draws ----------------------------------------------------------------------------------------


def draw(number: int) -> Request:
    """The request of that number; each mainloop has its turn, those with most fields more often."""
    rng = random.Random(number)
    turns: tuple[type[Mainloop], ...] = (*MAINLOOPS, WarpgroupMma, WarpgroupMma, CpuPanel)
    loop = turns[number % len(turns)]
    out, tiles = rng.choice(loop.epilogues), rng.choice(loop.schedulers)
    how = rng.random()
    if how < 0.06:
        base, spec = Schedule(), None
        changes = _from_nothing(rng, loop, out, tiles)
    else:
        named = _named(loop.__name__) if how < 0.4 else ()
        base, spec = rng.choice(named) if named else (rng.choice(_by_methods(loop.__name__)), None)
        changes = _axes(rng, base, out, tiles)
        if spec is not None and rng.random() < 0.7:
            changes |= _smaller(rng, loop, base)
        changes |= _few_fields(rng, loop, out, tiles, base)
    atom = str(changes.get("atom", base.atom))
    request = Request(base, changes, _spec(rng, loop, atom, spec), rng.choice(places()))
    if rng.random() < 0.08:
        return request
    meant = [replace(request, place=place) for place in rng.sample(_meant(loop.__name__), len(_meant(loop.__name__)))]
    found = request
    for found in meant:
        if not found.problems():
            return found
    return found


def _plain(loop: str, schedule: Schedule) -> GemmSpec:
    """A product that a mainloop takes."""
    plain = GemmSpec(dtype=TYPES.get(schedule.atom, (F32,))[0])
    return replace(plain, b_order="col", ld_multiple=16) if loop == DirectMma.__name__ else plain


@cache
def _meant(loop: str) -> tuple[Place, ...]:
    """Targets that take one of the named schedules of a mainloop, or where there are none, one of its methods'."""
    tried = _named(loop) or tuple((s, _plain(loop, s)) for s in _by_methods(loop))
    return tuple(
        place
        for place in places()
        if any(not driver.refusals(spec, schedule, place.backend, place.target) for schedule, spec in tried)
    )


def _smaller(rng: random.Random, loop: type[Mainloop], base: Schedule) -> Flat:
    """A tile and a group in the place of those of a schedule, and what follows of them."""
    tile, group = rng.choice(SHAPES[loop.__name__])
    changes: Flat = {"tile": tile, "group": group}
    if loop is SubGroup:
        if base.sub_group not in (None, group[1]):
            return {}
        changes["thread_vector"] = (tile[0], 1)
    elif loop is Gemv:
        changes["thread_vector"] = tile
    elif loop in (Direct, SharedMemory, TmaRing) and (
        tile[0] % base.thread_vector[0] or tile[1] % base.thread_vector[1]
    ):
        changes["thread_vector"] = (1, base.c_width)
    warp = base.lane_arrangement if loop in (SharedMemory, TmaRing) else None
    if warp is not None and (group[0] % warp[0] or group[1] % warp[1]):
        changes |= {"lane_arrangement": None, "lane_swizzle": False}
    return changes


@cache
def _named(loop: str) -> tuple[tuple[Schedule, GemmSpec], ...]:
    """The named schedules of a mainloop, and the products that they are for."""
    found = map(candidates.load, candidates.names())
    return tuple((x.schedule, x.spec) for x in found if type(x.schedule.mainloop).__name__ == loop)


@cache
def _by_methods(loop: str) -> tuple[Schedule, ...]:
    """What methods make by themselves of small tiles."""
    if loop == TmaRing.__name__:
        (ring, _), *_ = _named(loop)
        shapes = [x for x in SHAPES[loop] if x[0][0] % ring.thread_vector[0] == 0 == x[0][1] % ring.thread_vector[1]]
        return tuple(ring.but(tile=tile, group=group) for tile, group in shapes)
    if loop == DpasBlock2D.__name__:
        return tuple(defaults("dpas", tile, group, 32, 16).but(block_2d=True) for tile, group in SHAPES[loop])
    found = [defaults(method, tile, group) for method in METHODS for tile, group in SHAPES[loop]]
    return tuple(x for x in found if type(x.mainloop).__name__ == loop)


def _axes(rng: random.Random, base: Schedule, out: type[Epilogue], tiles: type[Scheduler]) -> Flat:
    """The members of an epilogue and of a scheduler in the place of those that a schedule has."""
    changes: Flat = {}
    if type(base.scheduler) is not tiles:
        if base.scheduler.chosen_by is not None:
            changes[base.scheduler.chosen_by.key] = False
        changes |= {"split_k": 1} if base.split_k > 1 else {}
        changes |= {"cluster_reduction": 1} if base.cluster_reduction > 1 else {}
        if tiles.chosen_by is not None:
            changes[tiles.chosen_by.key] = True
        if tiles in (SplitK, AtomicSplitK, ClusterSplitK):
            changes["split_k"] = rng.choice((2, 2, 3, 4))
        if tiles is ClusterSplitK:
            changes["cluster_reduction"] = 2
            changes["split_k"] = rng.choice((2, 4))
        if tiles is StreamK and base.mbarrier == 0:
            changes |= {"mbarrier": 1, "stages": 4, "a.async_copy": True, "b.async_copy": True}
        if base.cluster != (1, 1) and "split_k" in changes:
            changes["cluster"] = (1, 1)
    if out is Staged and base.epilogue_stages == 0:
        changes["epilogue_stages"] = rng.choice((1, 2))
        changes["c_width"] = 1
    if out is Registers and base.epilogue_stages > 0:
        changes |= {"epilogue_stages": 0, "ordered_epilogue": False}
    return changes


def _few_fields(
    rng: random.Random, loop: type[Mainloop], out: type[Epilogue], tiles: type[Scheduler], base: Schedule
) -> Flat:
    """One to four fields of the members, each with one of its values."""
    known: dict[str, list[Value]] = {}
    for part in (loop.tiling, loop, out, tiles):
        known |= {key: values(*meaning) for key, meaning in meanings(part).items() if key not in loop.without}
    for name, operand in (("a", base.a), ("b", base.b)):
        for key in sorted(loop.operand_keys(name, operand)):
            known[f"{name}.{key}"] = list(loop.memories) if key == "memory" else values(*meanings(Operand)[key])
    count = rng.choice((1, 1, 1, 1, 2, 2, 3, 4))
    changes = {key: rng.choice(known[key]) for key in rng.sample(sorted(known), min(count, len(known)))}
    # What no named schedule goes without is set with the field that it rules out.
    if loop is TmaRing and changes.get("register_stages") == 1:
        changes["across_tiles"] = False
    if loop is SubGroup and changes.get("serpentine"):
        changes |= {"a.shuffle": False, "a.block_read": False}
    if not changes.keys().isdisjoint(("tile", "group")) and rng.random() < 0.8:
        changes |= dict(zip(("tile", "group"), rng.choice(SHAPES[loop.__name__]), strict=True))
    return changes


def _from_nothing(rng: random.Random, loop: type[Mainloop], out: type[Epilogue], tiles: type[Scheduler]) -> Flat:
    """Every field of the members."""
    flat: Flat = (
        {"atom": "dpas"}
        if loop is Dpas
        else {"atom": "dpas", "block_2d": True}
        if loop is DpasBlock2D
        else {"atom": "mfma"}
        if loop is Mfma
        else {"tma": True}
        if loop is TmaRing
        else {}
    )
    if tiles.chosen_by is not None:
        flat[tiles.chosen_by.key] = True
    for part in (loop.tiling, loop, out, tiles):
        for key, meaning in meanings(part).items():
            if key not in loop.without:
                flat[key] = rng.choice(values(*meaning))
    for name, memory in zip("ab", rng.choice(memories_of(loop)), strict=True):
        packed = rng.random() < 0.5
        own = loop.operand_keys(name, Operand(memory=memory, prepacked=packed))
        flat |= {f"{name}.memory": memory} if "memory" in own else {}
        flat |= {f"{name}.prepacked": packed} if "prepacked" in own else {}
        for key in sorted(own - {"memory", "prepacked"}):
            flat[f"{name}.{key}"] = rng.choice(values(*meanings(Operand)[key]))
    return flat


def _spec(rng: random.Random, loop: type[Mainloop], atom: str, known: GemmSpec | None) -> GemmSpec:
    """A product of what is multiplied, stored any way."""
    types = TYPES.get(atom, (F32,))
    if loop in (TmaRing, SubGroup, CpuPanel):
        types = (F64, F32) if loop is CpuPanel else (F32,) if rng.random() < 0.9 else types
    dtype = known.dtype if known is not None and known.dtype in types and atom != "fma" else rng.choice(types)
    aligned = loop in (TmaRing, WarpgroupMma, DirectMma)
    a_order, b_order, c_order = (rng.choice(("row", "row", "row", "col")) for _ in range(3))
    if loop in (TmaRing, SubGroup) and rng.random() < 0.8:
        a_order = b_order = c_order = "row"
    if loop is DirectMma or (loop is WarpgroupMma and dtype.size != 2):
        a_order, b_order = "row", "col"
    given: dict[str, object] = {
        "a_order": a_order,
        "b_order": b_order,
        "c_order": c_order,
        "alpha": rng.choice((None, None, 1.0, -2.0)),
        "beta": rng.choice((None, None, 0.0, 1.0)),
        "ld_multiple": rng.choice((16, 16, 16, 1) if aligned else (1, 1, 1, 4)),
        "c_dtype": rng.choice(RESULTS[dtype]) if rng.random() < 0.5 else None,
        "batched": rng.random() < 0.05,
    }
    try:
        return replace(GemmSpec(dtype=dtype), **given)  # type: ignore[arg-type]
    except UserError:
        return GemmSpec(dtype=dtype)
