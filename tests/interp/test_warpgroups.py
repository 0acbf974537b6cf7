"""Products by warpgroups whose tiles others bring: layouts, types, rings; and one thing wrong each, which shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import FaultKind
from gemmgen.ir.dtypes import BF16, F16, F32
from gemmgen.ir.expr import Const, Var, compare
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.numeric import tf32_by_tma
from gemmgen.ir.stmt import For, If, Multiply, PointerInit, Stmt, TmaCopy
from gemmgen.ir.synchronization import Barrier, Mbarrier, MultiplyGroup
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import walk
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.broken import Rewrite, broken, changed, dropped, faults
from tests.support.problems import Matrix, Problem, check_products, interpret, layouts

SM_90A = TARGETS["sm_90a"]
SPEC = GemmSpec(dtype=BF16, c_dtype=F32, ld_multiple=8)
#: Steps of K that are fewer than the slots, as many, more; a single element of each; several blocks.
SIZES = ((1, 1, 1), (65, 70, 200), (130, 64, 64), (200, 136, 330))


def small(**changes: object) -> Schedule:
    """128x64 of C a block, by two warpgroups."""
    base = defaults("wgmma", (2, 16), (64, 4)).but(stages=3, threadblock_swizzle=2)
    return base.but(**changes)


def check(spec: GemmSpec, schedule: Schedule, rng: np.random.Generator, sizes: object = SIZES) -> None:
    program = driver.lower_program(spec, schedule, SM_90A)
    for m, n, k in sizes:  # type: ignore[attr-defined]
        check_products(program, spec, rng, (m, n, k), pad=8)


@pytest.mark.parametrize("spec", list(layouts(SPEC)), ids=lambda s: f"{s.a_order}-{s.b_order}-{s.c_order}")
def test_layouts(spec: GemmSpec, rng: np.random.Generator) -> None:
    check(spec, small(c_width=8 if spec.c_order == "row" else 1), rng, SIZES[:2])


@pytest.mark.parametrize("order", [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")], ids="-".join)
def test_steps_of_several_lines(order: tuple[Order, Order], rng: np.random.Generator) -> None:
    """Lines along K lie side by side, those across it below one another."""
    spec = replace(SPEC, a_order=order[0], b_order=order[1])
    check(spec, small(block_k=128, stages=2), rng, SIZES[1:2])


@pytest.mark.parametrize(
    "changes", [{"split_k": 2}, {"tile": (16, 2), "group": (4, 64), "c_width": 1, "thread_vector": (2, 1)}], ids=str
)
def test_several_lines_of_parts_and_of_swapped_operands(changes: dict[str, object], rng: np.random.Generator) -> None:
    check(SPEC, small(block_k=192, stages=2, **changes), rng, SIZES[1:2])


@pytest.mark.parametrize(
    "changes",
    [
        {"stages": 2, "c_width": 2},
        {"stages": 5, "c_width": 8},
        {"group": (32, 4), "producer_threads": 32, "setmaxnreg": (0, 0)},
        {"tile": (4, 16), "group": (32, 4)},
        {"tile": (4, 32)},
        {"split_k": 3},
        {"group": (96, 4), "setmaxnreg": (160, 32), "threadblock_swizzle": 0},
        {"tile": (2, 26), "c_width": 2},
        {"group": (32, 8)},
        {"group": (32, 8), "tile": (4, 8), "c_width": 8},
    ],
    ids=[
        "two slots",
        "five slots",
        "a warp copies",
        "two turns",
        "two turns of two",
        "parts of K",
        "three warpgroups",
        "half a TMA tile",
        "beside one another",
        "within a TMA tile",
    ],
)
def test_rings_and_roles(changes: dict[str, object], rng: np.random.Generator) -> None:
    check(SPEC, small(**changes), rng, SIZES[3:])


@pytest.mark.parametrize("order", ["row", "col"])
def test_float16_and_its_own_c(order: str, rng: np.random.Generator) -> None:
    spec = replace(SPEC, dtype=F16, c_dtype=F16, b_order=order)  # type: ignore[arg-type]
    check(spec, small(), rng, SIZES[1:2])


def test_integers_are_exact_and_whole_tiles_ask_nothing(rng: np.random.Generator) -> None:
    spec = replace(SPEC, multiple_of=(128, 64, 64), alpha=1.0, beta=0.0)
    kernel = driver.lower(spec, small(), SM_90A)
    asked = [s for s in walk(kernel.body) if isinstance(s, If) and not s.roles]
    assert len(asked) == 2, "the one that copies, and the lane of a warp that arrives"
    problem = replace(Problem.integers(rng, 256, 128, 320), spec=spec).typed(spec)
    result = interpret(kernel, spec, problem, 8)
    assert np.array_equal(result, problem.expected)


@pytest.mark.parametrize("alpha", [0.0, -2.0])
def test_parts_of_a_folded_k(alpha: float, rng: np.random.Generator) -> None:
    """Of which one has nothing, and all may have: kernels ask for alpha themselves. Found by `gemmgen fuzz`."""
    spec = replace(SPEC, k=70)
    check_products(
        driver.lower_program(spec, small(split_k=3), SM_90A), spec, rng, (20, 24, 70), factors=(alpha, 0.5), pad=8
    )


def test_nothing_along_k_leaves_beta_times_c(rng: np.random.Generator) -> None:
    program = driver.lower_program(SPEC, small(), SM_90A)
    check_products(program, SPEC, rng, (20, 24, 0), factors=(2.0, 0.5), pad=8)


@pytest.mark.parametrize("name", [name for name in candidates.names() if candidates.load(name).schedule.by_warpgroups])
def test_presets(name: str, rng: np.random.Generator) -> None:
    preset = candidates.load(name)
    program = driver.lower_program(preset.spec, preset.schedule, SM_90A)
    few = preset.schedule.split_k > 8  # parts of K, most of which have nothing to add
    problem = Problem.of(rng, preset.spec, *((33, 60, 200) if few else (70, 264, 328)), 1.5, -0.5)
    problem = problem if preset.spec.accumulator.is_float else replace(problem, alpha=3, beta=-2)
    result = interpret(program, preset.spec, problem, 8)
    if preset.schedule.atom == "wgmma_tf32":  # which TMA rounds elements for, and nothing else does
        problem = replace(problem, a=rounded(problem.a), b=rounded(problem.b))
    problem.check(result)


def rounded(matrix: Matrix) -> Matrix:
    """Its numbers as TMA rounds them."""
    kept = tf32_by_tma(matrix.astype(np.float32))
    assert not np.array_equal(kept, matrix)
    return kept


# --- one thing wrong ------------------------------------------------------------------------------


def run(kernel: Kernel) -> None:
    """Seven steps of K in three slots: each slot is used again."""
    check_products(kernel, SPEC, np.random.default_rng(2), (128, 64, 448), factors=(1.0, 0.0), pad=8)


def wrong(rewrite: Rewrite) -> Kernel:
    return broken(driver.lower(SPEC, small(), SM_90A), rewrite, SM_90A)


def test_as_it_is_nothing_is_wrong() -> None:
    run(driver.lower(SPEC, small(), SM_90A))


def given_back_too_early(stmt: If) -> Stmt:
    """The slot of this step instead of the one before."""
    (arrive,) = stmt.then
    assert isinstance(arrive, Mbarrier)
    return If(compare("==", Var("local_index") % 32, 0), (replace(arrive, index=Var("stage")),))


def arrives(stmt: If) -> bool:
    return len(stmt.then) == 1 and isinstance(arrive := stmt.then[0], Mbarrier) and arrive.verb == "arrive"


def copies(stmt: If) -> bool:
    return any(isinstance(s, For) and any(isinstance(x, TmaCopy) for x in s.body) for s in stmt.then)


def further(stmt: PointerInit) -> Stmt:
    """Sixteen bytes further on is another place where lines swizzle, for a descriptor only along a line."""
    *outer, line, element = stmt.index
    return replace(stmt, index=(*outer, line + 1, element))


@pytest.mark.parametrize(
    ("rewrite", "kind", "detail"),
    [
        (
            dropped(Mbarrier, verb="wait", name="tiles_empty"),
            "race",
            "a copy to the same place of a_shared is still under way",
        ),
        (dropped(Mbarrier, verb="wait", name="tiles_full"), "unwritten", "nothing was written"),
        # Arrivals before the instructions of the step before are over: what `wait 1` is for.
        (dropped(MultiplyGroup, verb="wait", sums=None), "race", "a copy overwrites what .* reads"),
        (changed(If, given_back_too_early, arrives), "race", "a copy overwrites what .* reads"),
        # Over tiles that another warpgroup may still multiply; taken up before all are there.
        (dropped(Barrier, lambda s: s.role_items, only=0), "race", "may still be in use"),
        (dropped(Barrier, lambda s: s.role_items, only=1), "race", "reads what .* wrote"),
        (dropped(MultiplyGroup, verb="fence"), "pipe", "without a fence"),
        (changed(Mbarrier, lambda s: replace(s, bytes=s.bytes + 128), verb="expect"), "pipe", "never ends"),
        (changed(Mbarrier, lambda s: replace(s, bytes=s.bytes - 128), verb="expect"), "pipe", "bytes where"),
        (
            changed(Mbarrier, lambda s: replace(s, arrivals=7), verb="init", name="tiles_empty"),
            "pipe",
            "8 arrivals where 7",
        ),
        (changed(Mbarrier, lambda s: replace(s, arrivals=9), verb="init", name="tiles_empty"), "pipe", "never ends"),
        # The parity that is over from the start: tiles are read before they came.
        (
            changed(Mbarrier, lambda s: replace(s, parity=Const(1)), verb="wait", name="tiles_full"),
            "unwritten",
            "nothing was written",
        ),
        (dropped(Barrier, role_items=0), "pipe", "may not be ready yet"),
        (changed(If, lambda s: s.then, copies), "pipe", "128 arrivals where 1|not one work-item"),
        (
            changed(Multiply, lambda s: If(Var("local_row") < 48, (s,))),
            "divergent sub-group operation",
            "does not take part",
        ),
        (changed(PointerInit, further, lambda s: s.view.name == "b_tile"), "alignment", "can't begin at byte"),
    ],
    ids=[
        "copies over what is read",
        "reads of what nobody waited for",
        "slots given back while they are read",
        "slots given back a step too early",
        "sums put down over tiles in use",
        "sums taken up too early",
        "sums without a fence",
        "more bytes than the boxes",
        "fewer bytes than the boxes",
        "fewer arrivals than warps",
        "more arrivals than warps",
        "phases of another turn",
        "barriers that copies may not see",
        "every thread copies",
        "half a warpgroup multiplies nothing",
        "tiles that begin between lines",
    ],
)
def test_one_thing_wrong(rewrite: Rewrite, kind: FaultKind, detail: str) -> None:
    kernel = wrong(rewrite)
    with faults(kind, detail):
        run(kernel)


def test_sums_read_too_early() -> None:
    """They are NaN until somebody has waited for them."""
    with pytest.raises(AssertionError, match="elements off"):
        run(wrong(dropped(MultiplyGroup, lambda s: s.sums is not None)))
