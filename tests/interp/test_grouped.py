"""Grouped products in the interpreter: every kind of groups, every mainloop that takes them, nothing beyond a group."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.choose import choose
from gemmgen.errors import KernelFault, ScheduleError
from gemmgen.ir.dtypes import BF16, F8_E4M3, F16, F32, F64, I8, DType
from gemmgen.ir.expr import Const
from gemmgen.ir.sizes import GROUP_ROWS
from gemmgen.ir.stmt import If, Let
from gemmgen.ir.target import TARGETS
from gemmgen.options import build_schedule
from gemmgen.schedule import Schedule
from gemmgen.simulator.execute import run_program
from gemmgen.spec import GemmSpec, Grouped, Order
from tests.support.broken import broken_main, changed, faults
from tests.support.grouped import ENDS, OTHERS, TOTAL, Groups, interpret

#: A plain loop, local memory, sub-groups, a ring of cp.async and of mbarriers, slices, lanes along K, vectors of a CPU.
NAMES = {
    "naive": "portable",
    "lds_8x8_16x16_k16_double": "portable",
    "smem_8x8": "sm_90",
    "L3_SIMD_8x4_1x8": "intel",
    "async_8x4_8x16": "sm_90",
    "mbarrier_8x8_4x8_slices8": "sm_90",
    "gemv_4x4": "sm_90",
    "cpu_6x16_v8_copied": "cpu",
}
KINDS: tuple[Grouped, ...] = ("rows", "k")


def spec_of(kind: Grouped, name: str = "", **more: object) -> GemmSpec:
    """In the orders by which all of these take groups."""
    spec = GemmSpec(grouped=kind, a_order="col" if kind == "k" else "row")
    spec = replace(spec, a_order="row") if name.startswith("gemv") and kind == "k" else spec
    return replace(spec, **more)  # type: ignore[arg-type]


def possible(kind: Grouped) -> list[str]:
    """Lanes along K read rows of A, of which a group's part begins anywhere."""
    tall = {"L3_SIMD_8x4_1x8": "a block read along A's columns", "gemv_4x4": "rows of A"}
    return [name for name in NAMES if kind == "rows" or name not in tall]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in possible(kind)])
@pytest.mark.parametrize("beta", [0.0, -0.5])
def test_groups(kind: Grouped, name: str, beta: float, rng: np.random.Generator) -> None:
    schedule = candidates.load(name).schedule
    groups = Groups.of(rng, spec_of(kind), factors=(1.5, beta))
    interpret(groups, schedule, TARGETS[NAMES[name]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ends", OTHERS, ids=["one", "rows", "none", "alone"])
@pytest.mark.parametrize("name", ["naive", "async_8x4_8x16"])
def test_other_groups(kind: Grouped, ends: tuple[int, ...], name: str, rng: np.random.Generator) -> None:
    groups = Groups.of(rng, spec_of(kind), ends, (17, 9), pad=0)
    interpret(groups, candidates.load(name).schedule, TARGETS[NAMES[name]])


@pytest.mark.parametrize(("name", "dtype"), [("mma_4x8_16x8", BF16), ("mma_4x8_16x8", F16), ("mma_s8_8x16_16x8", I8)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pad", [0, 3])
def test_matrix_instructions(name: str, dtype: DType, kind: Grouped, pad: int, rng: np.random.Generator) -> None:
    spec = spec_of(kind, dtype=dtype)
    groups = Groups.of(rng, spec, sizes=(40, 24), pad=pad, factors=(2.0, 1.0))
    interpret(groups, candidates.load(name).schedule, TARGETS["sm_90"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta", [0.0, -0.5])
@pytest.mark.parametrize("ends", [ENDS, *OTHERS[:3]], ids=["several", "one", "rows", "none"])
def test_elements_loaded_ahead_and_lines_of_c(
    kind: Grouped, beta: float, ends: tuple[int, ...], rng: np.random.Generator
) -> None:
    """No line behind a group is stored."""
    schedule = candidates.load("mma_8x8_16x16_prefetch").schedule.but(tile=(2, 4), group=(16, 8))
    groups = Groups.of(rng, spec_of(kind, dtype=BF16), ends, sizes=(41, 23), pad=3, factors=(2.0, beta))
    interpret(groups, schedule, TARGETS["sm_90"])


@pytest.mark.parametrize("changes", [{"c_width": 2}, {"c_width": 8}, {"tile": (4, 16), "c_width": 1}], ids=str)
@pytest.mark.parametrize(("name", "dtype"), [("wgmma_128x256_s4", BF16), ("wgmma_f8_128x256_s4", F8_E4M3)])
@pytest.mark.parametrize("orders", ["row", "col"])
def test_warpgroups(
    name: str, dtype: DType, orders: Order, changes: dict[str, object], rng: np.random.Generator
) -> None:
    """TMA loads rows of the next group as well; stores end where a group does."""
    b_order: Order = "col" if dtype == F8_E4M3 else orders
    spec = GemmSpec(grouped="rows", dtype=dtype, c_dtype=BF16, b_order=b_order, ld_multiple=16)
    schedule = candidates.load(name).schedule.but(**{"tile": (2, 16), **changes, "epilogue_stages": 0})
    interpret(Groups.of(rng, spec, sizes=(48, 64), pad=16), schedule, TARGETS["sm_90a"])


#: Stores by threads, by TMA; two blocks that share tiles; operands of 64-byte lines.
OF_K: dict[str, dict[str, object]] = {
    "threads": {"epilogue_stages": 0, "c_width": 8},
    "pairs": {"epilogue_stages": 0, "c_width": 2},
    "tma": {},
    "cluster": {"cluster": (2, 1)},
    "across": {"cluster": (1, 2), "tile": (2, 32)},
    "shallow": {"block_k": 16, "stages": 2},
    "persistent": {"persistent": True, "block_k": 16, "stages": 3},
    "persistent, pairs": {"persistent": True, "epilogue_stages": 0, "c_width": 2, "threadblock_swizzle": 0},
    "turns": {"persistent": True, "epilogue_stages": 2, "ordered_epilogue": True, "group": (64, 4)},
}


def of_k(changes: dict[str, object]) -> Schedule:
    return candidates.load("wgmma_128x256_s4").schedule.but(**{"tile": (2, 16), **changes})


@pytest.mark.parametrize("changes", OF_K.values(), ids=OF_K)
@pytest.mark.parametrize("factors", [(1.5, 0.0), (2.0, -0.5)])
def test_warpgroups_along_k(changes: dict[str, object], factors: tuple[float, float], rng: np.random.Generator) -> None:
    spec = spec_of("k", dtype=BF16, ld_multiple=8)
    interpret(Groups.of(rng, spec, sizes=(144, 72), pad=16, factors=factors), of_k(changes), TARGETS["sm_90a"])


#: The same of groups of rows.
OF_ROWS: dict[str, dict[str, object]] = {name: OF_K[name] for name in ("tma", "shallow", "persistent")}
OF_ROWS |= {"persistent, by threads": {"persistent": True, "epilogue_stages": 0, "c_width": 8}}


@pytest.mark.parametrize("changes", OF_ROWS.values(), ids=OF_ROWS)
@pytest.mark.parametrize("ends", [ENDS, *OTHERS[:3]], ids=["several", "one", "rows", "none"])
def test_rows_that_tma_stores(changes: dict[str, object], ends: tuple[int, ...], rng: np.random.Generator) -> None:
    """Not a row of the next group; with ends of lines that are no whole vectors."""
    spec = spec_of("rows", dtype=BF16, ld_multiple=8)
    groups = Groups.of(rng, spec, ends, sizes=(76, 72), pad=20 if ends == ENDS else 4)
    interpret(groups, of_k(changes), TARGETS["sm_90a"])


#: Gates by registers, shared memory, matrix instructions, and TMA loads of both halves.
GATED: dict[str, tuple[str, DType, dict[str, object]]] = {
    "tile_8x8": ("portable", F32, {}),
    "smem_8x8": ("portable", F32, {}),
    "async_8x8_16x16": ("sm_90", F32, {}),
    "mma_8x16_16x8": ("sm_90", BF16, {}),
    "mma_8x8_16x16_prefetch": ("sm_90", BF16, {}),
    "wgmma_128x256_s4": ("sm_90a", BF16, {}),
    "wgmma_128x256_s4_turns": ("sm_90a", BF16, {"ordered_epilogue": False}),
}


@pytest.mark.parametrize("name", GATED)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("b_order", ["row", "col"])
def test_gates(name: str, kind: Grouped, b_order: Order, rng: np.random.Generator) -> None:
    """Of each group the same columns of both halves of its B."""
    target, dtype, changes = GATED[name]
    b_order = "row" if kind == "k" else b_order
    spec = spec_of(kind, dtype=dtype, b_order=b_order, ld_multiple=8 if name.startswith("wgmma") else 1)
    spec = replace(spec, epilogue=("swiglu", "bias"))
    groups = Groups.of(rng, spec, sizes=(72, 40), pad=8, factors=(1.5, 0.0))
    bias = rng.standard_normal((len(ENDS), groups.c.shape[-1])).astype(groups.c.dtype)
    schedule = candidates.load(name).schedule.but(name=None, **changes)
    interpret(groups.with_operands(bias=bias), schedule, TARGETS[target])


@pytest.mark.parametrize("ends", OTHERS, ids=["one", "rows", "none", "alone"])
def test_other_groups_along_k_by_warpgroups(ends: tuple[int, ...], rng: np.random.Generator) -> None:
    spec = spec_of("k", dtype=F16, ld_multiple=8)
    interpret(Groups.of(rng, spec, ends, (72, 40), pad=8), of_k({}), TARGETS["sm_90a"])


@pytest.mark.parametrize("group", [1, 3, 4, 5])
@pytest.mark.parametrize("changes", [{}, {"persistent": True}], ids=["one block", "persistent"])
def test_nothing_of_neighbours_is_added(group: int, changes: dict[str, object], rng: np.random.Generator) -> None:
    """All other groups are full of NaN, and so is what lies behind the last one."""
    groups = Groups.of(rng, spec_of("k", dtype=BF16, ld_multiple=8), sizes=(72, 40), pad=8, factors=(1.0, 0.0))
    groups.leave(group)
    interpret(groups, of_k(changes), TARGETS["sm_90a"], only=group)


def test_ends_are_read_once_the_kernel_before_is_done() -> None:
    """It may have written them."""
    text = driver.emit(spec_of("k", dtype=BF16, ld_multiple=8), of_k({}), "cuda", TARGETS["sm_90a"]).text
    kernel = text[text.index("__global__") :]
    assert kernel.index("griddepcontrol_wait()") < kernel.index("offsets[group - 1]")


def test_offsets_past_the_end_leave_groups_behind_it_empty(rng: np.random.Generator) -> None:
    """By a kernel that counts its steps: a group begins past the end of K."""
    groups = Groups.of(rng, spec_of("k", dtype=BF16, ld_multiple=8), (5, 67, 67), (72, 40), pad=8)
    interpret(groups, of_k({"persistent": True}), TARGETS["sm_90a"], offsets=(5, 999, 1000))


@pytest.mark.parametrize(("dtype", "b_order"), [(BF16, "row"), (F8_E4M3, "col")], ids=str)
def test_what_is_chosen_on_hopper(dtype: DType, b_order: Order, rng: np.random.Generator) -> None:
    spec = GemmSpec(grouped="rows", dtype=dtype, c_dtype=BF16, b_order=b_order, ld_multiple=16)
    schedule = choose(spec, (10, 48, 64), TARGETS["sm_90a"], len(ENDS))
    assert schedule.by_warpgroups
    interpret(Groups.of(rng, spec, sizes=(48, 64), pad=16), schedule, TARGETS["sm_90a"])


@pytest.mark.parametrize("ends", [ENDS, OTHERS[0]], ids=["several", "one"])
def test_scales_of_sums(ends: tuple[int, ...], rng: np.random.Generator) -> None:
    """As DeepSeek-V3 has them: those of A for the rows of all groups, those of B for each group."""
    both = {"prologue_a": "a * a_scale_128", "prologue_b": "b * b_scale_128x128"}
    spec = GemmSpec(grouped="rows", dtype=F8_E4M3, b_order="col", ld_multiple=16, **both)  # type: ignore[arg-type]
    groups = Groups.of(rng, spec, ends, sizes=(144, 272), pad=16).with_operands(
        a_scale_128=rng.standard_normal(3 * TOTAL, np.float32),
        b_scale_128x128=rng.standard_normal((len(ends), 3 * 2), np.float32),
    )
    schedule = choose(spec, (10, 144, 272), TARGETS["sm_90a"], len(ends))
    assert schedule.by_warpgroups
    interpret(groups, schedule, TARGETS["sm_90a"])
    for depth, persistent in ((128, False), (256, False), (256, True)):
        made = schedule.but(block_k=depth, stages=2, persistent=persistent, name=None)
        interpret(groups, made, TARGETS["sm_90a"])


def test_the_interpreter_sees_loads_outside_of_the_matrix(rng: np.random.Generator) -> None:
    """Offsets that begin below 0 name lines before the first."""
    groups = Groups.of(rng, spec_of("k", dtype=BF16, ld_multiple=8), (5, 67), (72, 40), pad=8)
    with pytest.raises(KernelFault, match="the TMA load goes past the elements of a"):
        interpret(groups, of_k({}), TARGETS["sm_90a"], offsets=(-5, 67))


def test_what_tensor_maps_rule_out() -> None:
    schedule = candidates.load("wgmma_128x256_s4").schedule
    with pytest.raises(ScheduleError, match="cluster 2x1 shares tiles between blocks, which groups divide"):
        driver.emit(GemmSpec(grouped="rows", dtype=BF16, ld_multiple=8), schedule.but(cluster=(2, 1)), "cuda")
    swapped = schedule.but(tile=(64, 2), group=(4, 64), epilogue_stages=0)
    with pytest.raises(ScheduleError, match="group 4x64 swaps A and B, of which groups have lines: use group 64x4"):
        driver.emit(spec_of("k", dtype=BF16, ld_multiple=8), swapped, "cuda")
    turns = schedule.but(persistent=True, ordered_epilogue=True)
    with pytest.raises(ScheduleError, match="ordered_epilogue ends with a work-group's last block, which groups"):
        driver.emit(GemmSpec(grouped="rows", dtype=BF16, ld_multiple=8), turns, "cuda")
    with pytest.raises(ScheduleError, match="a group's part of B begins within a line of it"):
        driver.emit(spec_of("k", dtype=BF16, ld_multiple=8, b_order="col"), schedule, "cuda")


@pytest.mark.parametrize("dtype", [F32, F64, I8])
@pytest.mark.parametrize("orders", ["row col row", "col row row", "row row col", "col col col"])
@pytest.mark.parametrize("kind", KINDS)
def test_orders_where_vectors_begin_anywhere(
    dtype: DType, orders: str, kind: Grouped, rng: np.random.Generator
) -> None:
    a, b, c = orders.split()
    spec = GemmSpec(grouped=kind, dtype=dtype, a_order=_order(a), b_order=_order(b), c_order=_order(c))
    schedule = candidates.load("smem_8x8").schedule.but(tile=(2, 2), group=(4, 4), block_k=4, thread_vector=(2, 2))
    interpret(Groups.of(rng, spec, factors=(2.0, -1.0)), schedule, TARGETS["cpu"])


def _order(text: str) -> Order:
    return "col" if text == "col" else "row"


@pytest.mark.parametrize(("method", "group"), [("gemv", None), ("naive", "1x32")])
def test_blocks_of_one_row(method: str, group: str | None, rng: np.random.Generator) -> None:
    """There are more of them than rows: those without a row have nothing to do."""
    schedule = build_schedule(method, group=group)
    interpret(Groups.of(rng, spec_of("rows"), factors=(1.5, -0.5)), schedule, TARGETS["sm_90"])


@pytest.mark.parametrize("kind", KINDS)
def test_alpha_of_zero_reads_neither(kind: Grouped, rng: np.random.Generator) -> None:
    """For rows the host passes k = 0; groups of K ask for alpha themselves."""
    groups = Groups.of(rng, spec_of(kind), factors=(0.0, 2.0), sizes=(17, 9))
    groups.a[...] = np.nan
    groups = groups if kind == "k" else replace(groups, a=groups.a[:, :0], b=groups.b[:, :0])
    interpret(
        replace(groups, a=np.array(groups.a), b=np.array(groups.b)), candidates.load("naive").schedule, TARGETS["cpu"]
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["naive", "smem_8x8", "cpu_6x16_v8_copied"])
def test_each_group_has_operands_of_its_own(kind: Grouped, name: str, rng: np.random.Generator) -> None:
    spec = spec_of(kind, epilogue=("bias", "row_bias", "residual", "expr: acc + row * 0.25 - col"))
    plain = Groups.of(rng, spec, sizes=(17, 29))
    (rows, cols), many = plain.c.shape[-2:], len(ENDS)
    lead = () if kind == "rows" else (many,)
    groups = plain.with_operands(
        bias=rng.standard_normal((many, cols), np.float32),
        row_bias=rng.standard_normal((*lead, rows), np.float32),
        residual=rng.standard_normal((*lead, rows, cols), np.float32),
    )
    interpret(groups, candidates.load(name).schedule, TARGETS["portable" if NAMES[name] != "cpu" else "cpu"])


@pytest.mark.parametrize("changes", [{}, {"persistent": True}, {"persistent": True, "epilogue_stages": 0}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_operands_of_warpgroups(kind: Grouped, changes: dict[str, object], rng: np.random.Generator) -> None:
    """By pointers, or where a kernel goes from one group to another, by coordinates."""
    functions = ("bias", "row_bias", "residual", "expr: acc + row * 0.25 - col")
    spec = spec_of(kind, dtype=BF16, ld_multiple=8, epilogue=functions)
    plain, many = Groups.of(rng, spec, sizes=(72, 44), pad=4, factors=(1.0, 0.0)), len(ENDS)
    (rows, cols), lead = plain.c.shape[-2:], () if kind == "rows" else (many,)
    groups = plain.with_operands(
        bias=rng.standard_normal((many, cols)).astype(plain.c.dtype),
        row_bias=rng.standard_normal((*lead, rows)).astype(plain.c.dtype),
        residual=rng.standard_normal((*lead, rows, cols)).astype(plain.c.dtype),
    )
    interpret(groups, of_k(changes), TARGETS["sm_90a"])


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_past_the_end_are_taken_for_it(kind: Grouped, rng: np.random.Generator) -> None:
    """Nobody on the host sees them: what they name beyond the matrices is neither read nor written."""
    groups = Groups.of(rng, spec_of(kind), (5, 67, 67), (17, 9))
    interpret(groups, candidates.load("naive").schedule, TARGETS["cpu"], offsets=(5, 99, 1000))


def test_the_interpreter_sees_a_group_written_by_another(rng: np.random.Generator) -> None:
    """A group that is a row too long writes a row of the next one's: a race."""
    spec = spec_of("rows")
    program = driver.lower_program(spec, candidates.load("naive").schedule, TARGETS["cpu"])
    longer = broken_main(program, changed(Let, lambda s: replace(s, value=s.value + Const(1)), var=GROUP_ROWS))
    groups = Groups.of(rng, spec, (8, 16), (8, 4), pad=0)
    known: dict[str, object] = {"m": 67, "n": 8, "k": 4, "group_count": 2, "alpha": 1.0, "beta": 0.0}
    known |= {"a": groups.a.reshape(-1), "b": groups.b.reshape(-1), "c": groups.c.reshape(-1)}
    known |= {"lda": 4, "ldb": 8, "ldc": 8, "stride_b": 32, "offsets": np.array(groups.ends, np.int32)}
    with faults("race"):
        run_program(longer, known)  # type: ignore[arg-type]


def test_surplus_groups_return_before_they_read(rng: np.random.Generator) -> None:
    """Without the return they would read rows of A that their group does not have."""
    spec = spec_of("rows")
    program = driver.lower_program(spec, candidates.load("smem_8x8").schedule, TARGETS["cpu"])
    returns = [s for s in program.main.body if isinstance(s, If) and not s.orelse and len(s.then) == 1]
    assert len(returns) == 1
    interpret(Groups.of(rng, spec, (0, 0, 0, 0, 1), (17, 9)), candidates.load("smem_8x8").schedule, TARGETS["cpu"])
