"""Cases drawn by hypothesis: presets with some fields changed; rings, warpgroups and panels put together from scratch;
specs, formulas of epilogues, sizes and numbers.

Simple choices come first, since a case that fails is shrunk towards them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import get_args

from hypothesis import strategies as st

from gemmgen import candidates, driver, epilogue
from gemmgen.checks.cpu_panel import WIDTHS
from gemmgen.epilogue import EXPRESSION, FUNCTIONS
from gemmgen.errors import ScheduleError
from gemmgen.fuzz.case import Case, Data, round_up
from gemmgen.fuzz.checks import Place
from gemmgen.fuzz.data import POWERS_OF_TWO
from gemmgen.ir.dtypes import BF16, C64, C128, F16, F32, F64, FLOAT8, I8, RESULTS, STORED, DType, accumulator
from gemmgen.ir.swizzle import LINES_BYTES
from gemmgen.ir.target import Target
from gemmgen.methods import defaults
from gemmgen.schedule import KEYS, Operand, Schedule
from gemmgen.spec import GemmSpec, Order

CHANGES: dict[str, st.SearchStrategy[object]] = {
    **{key: st.sampled_from(field.tries) for key, field in KEYS.items() if "." not in key},
    "tile": st.tuples(st.sampled_from([1, 2, 3, 4, 8, 16]), st.sampled_from([1, 2, 3, 4, 8])),
    "group": st.tuples(st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from([1, 4, 8, 16])),
    "thread_vector": st.tuples(st.sampled_from([1, 2, 3, 4, 8, 16]), st.sampled_from([1, 2, 3, 4])),
    # Groups of different parts of K run one after the other in the interpreter.
    "split_k": st.sampled_from([1, 2, 3]),
}
OPERAND_CHANGES: dict[str, st.SearchStrategy[object]] = {
    key.removeprefix("a."): st.sampled_from(field.tries) for key, field in KEYS.items() if key.startswith("a.")
}
#: Tiles and groups that most fields of rings go with; others are refused so often that little would be run.
SHAPES = [((2, 4), (4, 8)), ((4, 4), (4, 8)), ((4, 4), (8, 4)), ((4, 8), (2, 16)), ((8, 8), (4, 8)), ((3, 4), (4, 8))]
#: Of M, N and K; the most of them.
LEAST, MOST = 0, (90, 90, 150)

#: Complex factors, also of whole numbers exact.
TURNS = (1j, -1 + 2j)

#: What warpgroups multiply, and by what. 8-bit floats are left out: what their sums lose shows even in small whole
#: numbers.
WARPGROUP_TYPES: tuple[tuple[str, DType], ...] = (
    ("wgmma", BF16),
    ("wgmma", F16),
    ("wgmma_tf32", F32),
    ("wgmma_s8", I8),
)
#: Work-items: one warpgroup, two above and beside one another; the same lying along columns swaps operands.
WARPGROUPS = ((32, 4), (64, 4), (32, 8))
#: Rows of a warpgroup's 64 that a work-item has, and columns.
ROWS, COLS = (2, 2, 4), (4, 8, 12, 16, 20, 32)
#: What may be made of an element on its way to registers, in whole numbers that bfloat16 has.
PROLOGUES = (None, None, "{} * 2", "abs({}) - 1")
#: Numbers for functions that are given some.
ARGUMENTS = {"leaky_relu": ("0.25", "-2", "0"), "clamp": ("-1, 1", "0, 6", "-3, -3")}
#: Functions of whole numbers.
WHOLE_FUNCTIONS = ("bias", "row_bias", "relu", "clamp", "residual", "scale", "row_scale")
LEAVES = ("acc", "acc", *epilogue.NAMES)
#: Formulas of one part, of two and of four, such that no argument is outside of what a function takes.
OF_ONE = (
    *("-({})", "abs({})", "tanh({})", "erf({})", "exp(min({}, 3))", "log(1 + abs({}))", "sqrt(abs({}))"),
    *("rsqrt(1 + abs({}))", "{} / 8"),
)
OF_TWO = ("({} + {})", "({} - {})", "({} * {})", "min({}, {})", "max({}, {})", "({} / (2 + abs({})))")
OF_FOUR = ("({} if {} < {} else {})", "({} if {} >= {} else {})", "(fma({}, {}, {}) - {})")
#: The same of whole numbers, whose sums must not leave their type.
WHOLE_OF_ONE, WHOLE_OF_TWO, WHOLE_OF_FOUR = ("-({})", "abs({})"), OF_TWO[:2] + OF_TWO[3:5], OF_FOUR[:2]

orders: st.SearchStrategy[Order] = st.sampled_from(("row", "col"))

#: Requests for a place.
Kind = Callable[[Place], st.SearchStrategy[tuple[GemmSpec, Schedule]]]


# --- schedules ------------------------------------------------------------------------------------


@cache
def takers(backend: str, target: Target) -> tuple[tuple[str, ...], ...]:
    """The presets that a target can take, those of each method. Warps and warpgroups that multiply as one are left out:
    few of the fields that are changed mean anything to them.
    """
    methods: dict[str, tuple[str, ...]] = {}
    for name in candidates.names():
        preset = candidates.load(name)
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
    preset = candidates.load(draw(st.sampled_from(of_a_method)))
    base = preset.schedule
    # Groups of different parts of K run one after the other in the interpreter.
    flat.setdefault("split_k", min(base.split_k, 3))
    flat |= {f"{name}.{key}": value for name, own in operands.items() for key, value in own.items()}
    return preset.spec, _changed(base.but(name=None), flat)


def _changed(base: Schedule, changes: dict[str, object]) -> Schedule:
    """With all of these, or with those of them, one after the other, that can be."""
    try:
        return base.but(**changes)
    except ScheduleError:
        for key, value in changes.items():
            with suppress(ScheduleError):
                base = base.but(**{key: value})
    return base


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
    joined = draw(st.sampled_from([1, split])) if "clusters" in features and slices == 1 else 1
    return GemmSpec(), Schedule.of(
        tile=tile,
        group=group,
        thread_vector=run,
        block_k=slices * draw(st.sampled_from([2, 4])),
        a=draw(ring_operands(asynchronous)),
        b=draw(ring_operands(asynchronous)),
        stages=stages,
        mbarrier=mbarrier,
        sliced_k=slices,
        split_k=split,
        cluster_reduction=joined,
        atomic=split > joined and "atomic_add" in features and draw(st.booleans()),
        threadblock_swizzle=draw(st.sampled_from([0, 1, 2, 3])),
        prefetch=not asynchronous and draw(st.booleans()),
        register_stages=2 if across else draw(st.integers(1, 2)),
        lane_arrangement=warp,
        lane_swizzle=warp is not None and draw(st.booleans()),
        across_tiles=across,
        serpentine=draw(st.booleans()),
        c_width=draw(st.sampled_from([w for w in (1, 2, 4) if run[1] % w == 0])),
    )


def warpgroups(place: Place) -> st.SearchStrategy[tuple[GemmSpec, Schedule]]:
    """Blocks of one or two warpgroups, and a spec that goes with them; nothing where there are none."""
    return _warpgroups() if "wgmma" in place.target.features else st.nothing()


@st.composite
def _warpgroups(draw: st.DrawFn) -> tuple[GemmSpec, Schedule]:
    atom, dtype = draw(st.sampled_from(WARPGROUP_TYPES))
    swapped, held = draw(st.booleans()), draw(st.booleans())
    schedule = draw(_warpgroup_tiles(atom, dtype, swapped))
    schedule = draw(_warpgroup_stores(draw(_warpgroup_roles(schedule))))
    mine, its = ("b", "a") if swapped else ("a", "b")
    if held:
        own = replace(getattr(schedule, mine), memory="private")
        schedule = schedule.but(**{mine: own})
    return draw(_warpgroup_specs(dtype, mine, its, held)), schedule


@st.composite
def _warpgroup_tiles(draw: st.DrawFn, atom: str, dtype: DType, swapped: bool) -> Schedule:
    """Tiles, and a ring of them."""
    tile, group = (draw(st.sampled_from(ROWS)), draw(st.sampled_from(COLS))), draw(st.sampled_from(WARPGROUPS))
    line = draw(st.sampled_from(LINES_BYTES[::-1]))
    shape = (tile[::-1], group[::-1]) if swapped else (tile, group)
    schedule = defaults(atom, *shape, line // dtype.size)
    return schedule.but(stages=draw(st.integers(2, 4)), threadblock_swizzle=draw(st.sampled_from([0, 1, 2, 3])))


@st.composite
def _warpgroup_roles(draw: st.DrawFn, schedule: Schedule) -> Schedule:
    """Who copies, for whom, and for how long."""
    clusters = st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2), (4, 1), (1, 4)])
    schedule = schedule.but(persistent=draw(st.booleans()), cluster=draw(clusters), serial_launch=draw(st.booleans()))
    # Registers are handed over by whole warpgroups alone.
    return schedule.but(producer_threads=32, setmaxnreg=(0, 0)) if draw(st.booleans()) else schedule


@st.composite
def _warpgroup_stores(draw: st.DrawFn, schedule: Schedule) -> Schedule:
    """How C is stored: by TMA, one warpgroup after the other, by work-items, or as parts of K."""
    if draw(st.booleans()):
        schedule = schedule.but(epilogue_stages=draw(st.integers(1, 3)))
        several = schedule.group[0] * schedule.group[1] > 128
        return schedule.but(ordered_epilogue=several and schedule.persistent and draw(st.booleans()))
    schedule, parts = schedule.but(c_width=draw(st.sampled_from([1, 2, 4]))), draw(st.booleans())
    if not parts:
        return schedule
    split, joined = draw(st.sampled_from([2, 3, 4])), draw(st.sampled_from([2, 1]))
    return schedule.but(split_k=split, cluster_reduction=joined, persistent=False, cluster=(1, 1))


@st.composite
def _warpgroup_specs(draw: st.DrawFn, dtype: DType, mine: str, its: str, held: bool) -> GemmSpec:
    """Orders that instructions turn, and what the way to registers does to elements."""
    stored = I8 if held and dtype.size == 2 and draw(st.booleans()) else None
    made = draw(st.sampled_from(PROLOGUES)) if stored is not None else None
    # Of elements that no instruction turns lines lie along K.
    along_k: dict[str, Order] = {"a": "row", "b": "col"}
    order = draw(orders)
    changes: dict[str, object] = {
        f"{its}_order": order if dtype.size == 2 else along_k[its],
        f"{mine}_order": draw(orders) if held or dtype.size == 2 else along_k[mine],
        f"{mine}_dtype": stored,
        f"prologue_{mine}": None if made is None else made.format(mine),
    }
    spec = GemmSpec(dtype=dtype, c_dtype=draw(st.sampled_from(RESULTS[dtype])), c_order=draw(orders), ld_multiple=16)
    return replace(spec, **changes)  # type: ignore[arg-type]


def panels(place: Place) -> st.SearchStrategy[tuple[GemmSpec, Schedule]]:
    """Work-items with vectors, B in place or copied: tiles, blocks and macro-kernels so small that small matrices have
    many, and a spec that goes with them; nothing where there are no vectors.
    """
    return _panels(place.target) if "vectors" in place.target.features else st.nothing()


@st.composite
def _panels(draw: st.DrawFn, target: Target) -> tuple[GemmSpec, Schedule]:
    dtype = draw(st.sampled_from((F32, F64)))
    vector = draw(st.sampled_from([width for width in WIDTHS if width * dtype.size <= target.vector_bytes]))
    along_k, copied = draw(st.booleans()), draw(st.booleans())
    rows, vectors = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    depths = [vector, 2 * vector] if along_k else [1, 3, 8, 32]
    schedule = Schedule.of(
        tile=(rows, vectors if along_k else vectors * vector),
        group=(1, 1),
        vector=vector,
        dot_product=along_k,
        macro_kernel=(draw(st.integers(1, 4)), draw(st.integers(1, 3))),
        grid_multiple=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        kc=draw(st.sampled_from(depths if copied else [0, *depths])),
        mc=draw(st.integers(0, 3)) if copied or along_k else 0,
        split_k=draw(st.sampled_from([1, 1, 2, 3])),
        b=Operand(memory="private") if copied else Operand(),
    )
    a_order, b_order, c_order = draw(orders), draw(orders), draw(orders)
    if along_k or not copied:
        # Only a copy turns B.
        b_order = "row" if along_k == copied else "col"
    a_order = "row" if along_k else a_order
    if copied and not along_k:
        k_step = draw(st.sampled_from([step for step in (1, 2, 4) if schedule.kc % step == 0]))
        asks = "cache_prefetch" in target.features
        b_prefetch = draw(st.sampled_from([0, 1, 8])) if asks else 0
        c_prefetch = asks and c_order == "row" and draw(st.booleans())
        if b_order == "row" and not schedule.mc and draw(st.booleans()):
            schedule = schedule.but(b_prefetch=b_prefetch, fused_copy=True)
        else:
            schedule = schedule.but(block_k=k_step, b_prefetch=b_prefetch, c_prefetch=c_prefetch)
    return GemmSpec(dtype=dtype, a_order=a_order, b_order=b_order, c_order=c_order), schedule


#: All kinds of requests.
KINDS: tuple[Kind, ...] = (changed_presets, rings, warpgroups, panels)


# --- epilogues ------------------------------------------------------------------------------------

# What is drawn stays far from the largest number of the sums' type, beyond which there is no bound to hold results to.


def formulas(dtype: DType) -> st.SearchStrategy[str]:
    """Texts of formulas, where `dtype` is that of the sums; the simplest is `acc`."""
    numbers = ("0.5", "2", "-1.25") if dtype.is_float else ("2", "-7", "100")
    shapes = (OF_ONE, OF_TWO, OF_FOUR) if dtype.is_float else (WHOLE_OF_ONE, WHOLE_OF_TWO, WHOLE_OF_FOUR)

    def larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        made = [
            st.tuples(st.sampled_from(shape), *[parts] * count) for shape, count in zip(shapes, (1, 2, 4), strict=True)
        ]
        return st.one_of(made).map(lambda drawn: drawn[0].format(*drawn[1:]))

    return st.recursive(st.sampled_from((*LEAVES, *numbers)), larger, max_leaves=4)


@st.composite
def epilogues(draw: st.DrawFn, dtype: DType) -> tuple[str, ...]:
    """None in most cases; else a formula, functions of the table, each once, or both."""
    kind = draw(st.sampled_from(["none", "none", "none", "table", "formula", "both"]))
    if kind == "none" or dtype.real is not None:
        return ()
    known = tuple(FUNCTIONS) if dtype.is_float else WHOLE_FUNCTIONS
    out: list[str] = []
    if kind != "formula":
        for name in draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True)):
            given = draw(st.sampled_from(ARGUMENTS[name])) if name in ARGUMENTS else None
            out.append(name if given is None else f"{name}({given})")
    if kind != "table":
        # Before the others, as those of the table grow by no more than a cube.
        out.insert(0, f"{EXPRESSION} {draw(formulas(dtype))}")
    return tuple(out)


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
    stored = (
        draw(st.sampled_from([None, None, None, *(x for x in STORED.get(dtype, ()) if not x.pairs)]))
        if base.dtype == F32
        else None
    )
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


@st.composite
def sized(draw: st.DrawFn, spec: GemmSpec, schedule: Schedule) -> tuple[GemmSpec, tuple[int, int, int]]:
    """Sizes, and what the spec assumes or folds of them."""
    units = [draw(st.sampled_from([1, 1, whole])) for whole in (*schedule.block_tile, schedule.round_depth)]
    sizes = [round_up(draw(st.integers(LEAST, most)), unit) for most, unit in zip(MOST, units, strict=True)]
    (m, n, k), (of_m, of_n, of_k) = sizes, units
    assumed = draw(st.sampled_from([1, 1, 4])) if spec.ld_multiple == 1 else spec.ld_multiple
    spec = replace(spec, multiple_of=(of_m, of_n, of_k), ld_multiple=assumed)
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
