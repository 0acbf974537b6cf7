"""Cases drawn by hypothesis: presets with some fields changed; rings, warpgroups and sweeps put together from scratch.

Simple choices come first, since a case that fails is shrunk towards them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import get_args

from hypothesis import strategies as st

from gemmgen import driver, presets
from gemmgen.fuzz import fields
from gemmgen.fuzz.case import Case, Data
from gemmgen.fuzz.checks import Place
from gemmgen.fuzz.data import POWERS_OF_TWO
from gemmgen.fuzz.epilogues import epilogues
from gemmgen.fuzz.sweeping import sweeping
from gemmgen.fuzz.warpgroups import orders, warpgroups
from gemmgen.ir.dtypes import C64, C128, F32, FLOAT8, RESULTS, STORED, DType, accumulator
from gemmgen.ir.target import Target
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec

CHANGES: dict[str, st.SearchStrategy[object]] = {
    **{key: st.sampled_from(values) for key, values in fields.VALUES.items() if "." not in key},
    "tile": st.tuples(st.sampled_from([1, 2, 3, 4, 8, 16]), st.sampled_from([1, 2, 3, 4, 8])),
    "group": st.tuples(st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from([1, 4, 8, 16])),
    "run": st.tuples(st.sampled_from([1, 2, 3, 4, 8, 16]), st.sampled_from([1, 2, 3, 4])),
    # Groups of different parts of K run one after the other in the interpreter.
    "split": st.sampled_from([1, 2, 3]),
}
OPERAND_CHANGES: dict[str, st.SearchStrategy[object]] = {
    key: st.sampled_from(values) for key, values in fields.OPERAND_VALUES.items()
}
#: Tiles and groups that most fields of rings go with; others are refused so often that little would be run.
SHAPES = [((2, 4), (4, 8)), ((4, 4), (4, 8)), ((4, 4), (8, 4)), ((4, 8), (2, 16)), ((8, 8), (4, 8)), ((3, 4), (4, 8))]
#: Of M, N and K; the most of them.
LEAST, MOST = 0, (90, 90, 150)

#: Complex factors, also of whole numbers exact.
TURNS = (1j, -1 + 2j)

#: Requests for a place.
Kind = Callable[[Place], st.SearchStrategy[tuple[GemmSpec, Schedule]]]


# --- schedules ------------------------------------------------------------------------------------


@cache
def takers(backend: str, target: Target) -> tuple[tuple[str, ...], ...]:
    """The presets that a target can take, those of each method. Warps and warpgroups that multiply as one are left out:
    few of the fields that are changed mean anything to them.
    """
    methods: dict[str, tuple[str, ...]] = {}
    for name in presets.names():
        preset = presets.load(name)
        alone = not preset.schedule.by_warps and not preset.schedule.by_warpgroups
        if alone and not driver.refusals(preset.spec, preset.schedule, backend, target):
            methods[preset.schedule.method] = (*methods.get(preset.schedule.method, ()), name)
    return tuple(methods.values())


@st.composite
def changed_presets(draw: st.DrawFn, place: Place) -> tuple[GemmSpec, Schedule]:
    """A preset with up to four fields changed, and its spec."""
    flat: dict[str, object] = {}
    operands: dict[str, dict[str, object]] = {"a": {}, "b": {}}
    for _ in range(draw(st.integers(0, 4))):
        operand = draw(st.sampled_from([None, None, "a", "b"]))
        known = CHANGES if operand is None else OPERAND_CHANGES
        field = draw(st.sampled_from(sorted(known)))
        (flat if operand is None else operands[operand])[field] = draw(known[field])
    of_a_method = draw(st.sampled_from(takers(place.backend, place.target)))
    preset = presets.load(draw(st.sampled_from(of_a_method)))
    base = preset.schedule
    # Groups of different parts of K run one after the other in the interpreter.
    flat.setdefault("split", min(base.split, 3))
    a, b = (replace(old, **operands[x]) for x, old in (("a", base.a), ("b", base.b)))  # type: ignore[arg-type]
    return preset.spec, replace(base, name=None, a=a, b=b, **flat)  # type: ignore[arg-type]


@st.composite
def ring_operands(draw: st.DrawFn, asynchronous: bool) -> Operand:
    """The way of an operand through a ring of tiles."""
    width, pad = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([0, 4]))
    return Operand("local", width, transposed=draw(st.booleans()), pad=pad, async_copy=asynchronous)


@st.composite
def rings(draw: st.DrawFn, place: Place) -> tuple[GemmSpec, Schedule]:
    """Tiles in local memory, with as many fields departing from the usual as chance has it."""
    features = place.target.features
    tile, group = draw(st.sampled_from(SHAPES))
    warps = [None, *((r, c) for r, c in ((4, 8), (8, 4), (2, 16)) if group[0] % r == 0 and group[1] % c == 0)]
    warp = draw(st.sampled_from(warps if "reused_local_memory" in features else warps[:1]))
    slices, across = draw(st.sampled_from([1, 1, 2, 4])), draw(st.booleans())
    mbarrier = draw(st.sampled_from([0, 1, 2, 3])) if "mbarrier" in features else 0
    asynchronous = "async_copy" in features and (mbarrier > 0 or draw(st.integers(0, 3)) > 0)
    stages = draw(st.integers(3, 5)) * mbarrier if mbarrier else draw(st.integers(1, 4))
    run = draw(st.sampled_from([tile, (1, 4), (1, 2), (tile[0], 2)]))
    split = draw(st.sampled_from([1, 1, 2, 3, 8]))
    return GemmSpec(), Schedule(
        tile=tile,
        group=group,
        run=run,
        k_step=slices * draw(st.sampled_from([2, 4])),
        a=draw(ring_operands(asynchronous)),
        b=draw(ring_operands(asynchronous)),
        stages=stages,
        mbarrier=mbarrier,
        slices=slices,
        split=split,
        atomic=split > 1 and "atomic_add" in features and draw(st.booleans()),
        raster=draw(st.sampled_from([0, 1, 2, 3])),
        prefetch=not asynchronous and draw(st.booleans()),
        register_stages=2 if across else draw(st.integers(1, 2)),
        warp=warp,
        stagger=warp is not None and draw(st.booleans()),
        across=across,
        snake=draw(st.booleans()),
        c_width=draw(st.sampled_from([w for w in (1, 2, 4) if run[1] % w == 0])),
    )


def of_warpgroups(place: Place) -> st.SearchStrategy[tuple[GemmSpec, Schedule]]:
    """Nothing where there are none."""
    return warpgroups() if "wgmma" in place.target.features else st.nothing()


def sweeps(place: Place) -> st.SearchStrategy[tuple[GemmSpec, Schedule]]:
    """Nothing where there are no vectors."""
    return sweeping(place.target) if "vectors" in place.target.features else st.nothing()


#: All that there are.
KINDS: tuple[Kind, ...] = (changed_presets, rings, of_warpgroups, sweeps)


# --- specs ----------------------------------------------------------------------------------------


@st.composite
def types(draw: st.DrawFn, base: GemmSpec) -> GemmSpec:
    """Types and orders."""
    dtype: DType = (
        draw(st.sampled_from([F32, F32, *(x for x in RESULTS if x not in FLOAT8), C64, C128]))
        if base.dtype == F32
        else base.dtype
    )
    result = draw(st.sampled_from(RESULTS[dtype])) if base.dtype == F32 else base.c_dtype
    stored = draw(st.sampled_from([None, None, None, *STORED.get(dtype, ())])) if base.dtype == F32 else None
    return replace(
        base,
        dtype=dtype,
        c_dtype=None if dtype == F32 else result,
        a_order=draw(orders),
        b_order=draw(orders),
        c_order=draw(orders),
        conj_a=dtype.real is not None and draw(st.booleans()),
        conj_b=dtype.real is not None and draw(st.booleans()),
        a_dtype=stored if draw(st.booleans()) else None,
        b_dtype=stored if draw(st.booleans()) else None,
    )


@st.composite
def specs(draw: st.DrawFn, base: GemmSpec) -> GemmSpec:
    """Factors, batches and an epilogue, without sizes."""
    more = [] if base.dtype.real is None else list(TURNS)
    beta = draw(st.sampled_from([None, 0.0, 1.0, -1.0, *more]))
    # Of 0 and 1 nothing would be left to do.
    alpha = draw(st.sampled_from([None, 1.0, -2.0, *more, *([] if beta == 1 else [0.0])]))
    batched = draw(st.sampled_from([False, False, False, True]))
    return replace(
        base,
        alpha=alpha,
        beta=beta,
        batched=batched,
        listed=batched and draw(st.booleans()),
        epilogue=draw(epilogues(accumulator(base.dtype))),
        wide=draw(st.sampled_from([False, False, False, True])),
    )


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


@st.composite
def sized(draw: st.DrawFn, spec: GemmSpec, schedule: Schedule) -> tuple[GemmSpec, tuple[int, int, int]]:
    """Sizes, and what the spec promises or folds of them."""
    units = [draw(st.sampled_from([1, 1, whole])) for whole in (*schedule.block_tile, schedule.round_depth)]
    sizes = [_up(draw(st.integers(LEAST, most)), unit) for most, unit in zip(MOST, units, strict=True)]
    (m, n, k), (of_m, of_n, of_k) = sizes, units
    promised = draw(st.sampled_from([1, 1, 4])) if spec.ld_multiple == 1 else spec.ld_multiple
    spec = replace(spec, multiple_of=(of_m, of_n, of_k), ld_multiple=promised)
    if draw(st.integers(0, 2)) == 0 and 0 not in sizes:
        spec = replace(spec, m=m, n=n, k=k)
    return spec, (m, n, k)


# --- cases ----------------------------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn, places: Sequence[Place], kinds: Sequence[Kind] = KINDS) -> tuple[Case, Place]:
    """A case that is not refused, and the place that it is for."""
    place = draw(st.sampled_from(places))
    chosen = st.one_of([kind(place) for kind in kinds])
    spec, schedule = draw(chosen.flatmap(_with_spec).filter(lambda pair: _taken(pair[0], pair[1], place)))
    spec, size = draw(sized(spec, schedule).filter(lambda pair: _taken(pair[0], schedule, place)))
    # Parts of complex products are sums, which are not exact.
    kinds = [kind for kind in get_args(Data) if kind != "short" or spec.dtype.real is None]
    data: Data = draw(st.sampled_from(kinds))
    factors: list[complex] = [x for x in (*POWERS_OF_TWO, 1.5) if data == "normal" or x in POWERS_OF_TWO]
    factors += [] if spec.dtype.real is None else TURNS
    factors = factors if spec.accumulator.is_float else [1.0, -2.0]
    # Vectors that must be aligned begin where memory does.
    later = st.sampled_from([0, 0, 1, 3, 8]) if "unaligned_vectors" in place.target.features else st.just(0)
    return Case(
        spec,
        schedule,
        size,
        place.backend,
        place.name,
        count=draw(st.sampled_from([1, 2, 3, 0])) if spec.batched else 1,
        pads=(draw(st.integers(0, 5)), draw(st.integers(0, 5)), draw(st.integers(0, 5))),
        offsets=(draw(later), draw(later), draw(later)),
        alpha=draw(st.sampled_from([*factors, 0.0])) if spec.alpha is None else spec.alpha,
        beta=draw(st.sampled_from([0.0, *factors])) if spec.beta is None else spec.beta,
        data=data,
        seed=draw(st.integers(0, 2**16)),
    ), place


def _with_spec(pair: tuple[GemmSpec, Schedule]) -> st.SearchStrategy[tuple[GemmSpec, Schedule]]:
    spec, schedule = pair
    typed = st.just(spec) if schedule.by_warpgroups or schedule.vector > 1 else types(spec)
    return st.tuples(typed.flatmap(specs), st.just(schedule))


def _taken(spec: GemmSpec, schedule: Schedule, place: Place) -> bool:
    return not driver.refusals(spec, schedule, place.backend, place.target)
