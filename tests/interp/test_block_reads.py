"""Block reads from buffers: addresses held by lanes, and a main loop that no guard stands in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.errors import LoweringError, ScheduleError, SpecError
from gemmgen.ir.affine import conjunction
from gemmgen.ir.buffer import Space
from gemmgen.ir.dtypes import BF16, F16, I8, DType
from gemmgen.ir.expr import Bin, Const, Select, Var, all_of, select
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import For, If, Let, Stmt, Store, VectorCopy
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import walk
from gemmgen.options import build_schedule
from gemmgen.passes.guard import unswitch
from gemmgen.positions import K0, K_MAIN
from gemmgen.runtime.views import View, check_spans
from gemmgen.schedule import Schedule
from gemmgen.simulator.execute import run
from gemmgen.spec import GemmSpec, Order
from tests.support.broken import Rewrite, broken, broken_main, changed, dropped, faults
from tests.support.problems import Problem, check_products, interpret

SCHEDULE = build_schedule("simd", tile="4x2", group="1x8", block_k=16)
#: B in parts of a step.
PARTS = build_schedule("simd", tile="4x2", group="2x8", block_k=16, sets=["b_sub_step=8"])
#: Rows of A for two reads.
TALL = build_schedule("simd", tile="16x2", group="1x8", block_k=8)
#: Block reads of B only: their guard stands in the main loop, which is written twice.
ONE = build_schedule(
    "slm", tile="4x2", group="2x8", sub_group=8, sets=["thread_vector=4x1", "b.block_read=true", "b.width=2"]
)


def multiply(kernel: Kernel, m: int, n: int, k: int) -> None:
    """Against NumPy, with leading dimensions of their own."""
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k + 3), (k, n + 1), (m, n)))
    flat = c.ravel().copy()
    sizes = {"m": m, "n": n, "k": k, "lda": k + 3, "ldb": n + 1, "ldc": n}
    run(kernel, {**sizes, "alpha": 1.0, "beta": 0.0, "a": a.ravel(), "b": b.ravel(), "c": flat})
    assert np.array_equal(flat.reshape(m, n), a[:, :k] @ b[:, :n])


def main_loops(kernel: Kernel) -> list[For]:
    return [s for s in walk(kernel.body) if isinstance(s, For) and not s.unroll]


@pytest.mark.parametrize("schedule", [SCHEDULE, PARTS, ONE], ids=["whole", "parts", "one"])
@pytest.mark.parametrize("size", [(4, 16, 16), (5, 17, 33), (3, 40, 47), (9, 32, 15), (8, 15, 64)])
def test_products(schedule: Schedule, size: tuple[int, int, int]) -> None:
    multiply(driver.lower(GemmSpec(), schedule), *size)


@pytest.mark.parametrize("split_k", [1, 3])
def test_a_short_k_leaves_no_empty_branch(split_k: int) -> None:
    """Nor a check whether a block is inside, whose vectors there are none of."""
    schedule = build_schedule("slm", sets=[f"split_k={split_k}"])
    text = driver.emit(GemmSpec(m=5, n=1000, k=3), schedule).text
    assert "All of K" in text and "Whole steps" not in text and "<= 1000" not in text and "k_main" not in text
    problem = Problem.random(np.random.default_rng(3), 5, 1000, 3, 1.0, 0.5)
    spec = GemmSpec(m=5, n=1000, k=3)
    problem.check(interpret(driver.lower_program(spec, schedule, TARGETS["portable"]), spec, problem))


@pytest.mark.parametrize("split_k", [1, 3])
@pytest.mark.parametrize("known", [{"k": 15}, {"n": 13}, {"m": 9, "n": 13, "k": 15}, {"n": 13, "k": 37}], ids=str)
def test_sizes_without_a_whole_step_have_no_main_loop(known: dict[str, int], split_k: int) -> None:
    """Where no block of C is inside, or K is shorter than a step, one loop of single loads is all."""
    spec, schedule = GemmSpec(**known), SCHEDULE.but(split_k=split_k)  # type: ignore[arg-type]
    program = driver.lower_program(spec, schedule, TARGETS["intel"])
    assert len([s for s in main_loops(program.kernels[0]) if s.var == K0]) == 1
    text = driver.emit(spec, schedule).text
    assert "k_main" not in text and "block read" not in text
    sizes = {"m": 9, "n": 13, "k": 37 if "n" in known else 15} | known
    problem = Problem.random(np.random.default_rng(3), sizes["m"], sizes["n"], sizes["k"], 1.0, 0.5)
    problem.check(interpret(program, spec, problem))


@pytest.mark.parametrize(("multiple_of", "order"), [((1, 1, 16), "row"), ((4, 1, 16), "col"), ((1, 16, 1), "col")])
def test_products_where_something_is_assumed(multiple_of: tuple[int, int, int], order: Order) -> None:
    schedule = build_schedule("simd", tile="8x2", group="1x8", block_k=16, sets=["a.width=1", "b_sub_step=8"])
    spec = GemmSpec(multiple_of=multiple_of, a_order=order)
    m, n, k = (-(-size // unit) * unit for size, unit in zip((13, 21, 47), multiple_of, strict=True))
    problem = Problem.random(np.random.default_rng(3), m, n, k, 1.0, 0.5)
    problem.check(interpret(driver.lower_program(spec, schedule, TARGETS["intel"]), spec, problem))


@pytest.mark.parametrize("schedule", [SCHEDULE, PARTS], ids=["whole", "parts"])
def test_the_main_loop_has_no_guard_and_does_not_run_at_the_edge(schedule: Schedule) -> None:
    kernel = driver.lower(GemmSpec(), schedule)
    fast, rest = main_loops(kernel)
    assert not [s for s in walk(kernel.body) if isinstance(s, If) and fast in walk(s.then)]
    assert not [s for s in walk(fast.body) if isinstance(s, If)]
    assert [s.atom.name for s in walk(fast.body) if isinstance(s, VectorCopy)] == ["block_read", "block_read"]
    assert not [s for s in walk(rest.body) if isinstance(s, VectorCopy) and s.atom.name == "block_read"]
    assert "const int k_main = col0 + BN <= n ? k - k % 16 : 0;" in driver.emit(GemmSpec(), schedule).text


def test_a_main_loop_of_other_loads_stands_twice_and_once_without_a_guard() -> None:
    fast, *others = main_loops(driver.lower(GemmSpec(), ONE))
    assert not [s for s in walk(fast.body) if isinstance(s, If)]
    assert [s for s in walk(fast.body) if isinstance(s, VectorCopy) and s.atom.name == "block_read"]
    by_blocks = [[s for s in walk(x.body) if isinstance(s, VectorCopy) and s.atom.name == "block_read"] for x in others]
    assert [] in by_blocks


def test_parts_that_no_step_has_are_refused() -> None:
    odd = build_schedule(tile="8x4", sets=["b_sub_step=5"])
    assert driver.refusals(GemmSpec(), odd) == (
        "b_sub_step = 5 does not divide block_k = 32: use one of 1, 2, 4, 8, 16, 32",
    )
    with pytest.raises(ScheduleError, match="b_sub_step = 4 means nothing to mainloop SharedMemory: leave it out"):
        build_schedule("slm", sets=["b_sub_step=4"])


def test_there_is_no_rest_where_sizes_are_assumed() -> None:
    spec = GemmSpec(multiple_of=(4, 16, 16))
    (loop,) = main_loops(driver.lower(spec, SCHEDULE))
    assert not [s for s in walk(loop.body) if isinstance(s, If)]


def test_what_single_work_items_load_keeps_its_guard() -> None:
    before = driver.lower(GemmSpec(), build_schedule("slm", tile="4x4"), stop_after="predicate")
    assert unswitch(before) == before


def test_no_address_arithmetic_in_the_loop_but_one_step_of_all_lanes() -> None:
    fast = main_loops(driver.lower(GemmSpec(), SCHEDULE))[0]
    reads = [s for s in walk(fast.body) if isinstance(s, VectorCopy)]
    assert all(read.byte_place is not None for read in reads)
    kept = [s for s in walk(fast.body) if isinstance(s, Store) and s.buffer.name.endswith("_at")]
    assert [s.buffer.name for s in kept] == ["b_at", "a_at"]
    assert all(s.buffer.space is Space.PRIVATE for s in kept)


def test_many_addresses_along_rows_count_from_the_loops_variable() -> None:
    kernel = driver.lower(GemmSpec(), build_schedule("simd", tile="32x2"))
    fast = main_loops(kernel)[0]
    reads = [s for s in walk(fast.body) if isinstance(s, VectorCopy)]
    assert [(read.src.name, read.from_element) for read in reads] == [("b", None), ("a", Var("k0"))]
    assert {s.buffer.name for s in walk(fast.body) if isinstance(s, Store)} == {"b_at", "acc"}
    multiply(kernel, 33, 17, 40)
    elsewhere = changed(VectorCopy, lambda s: replace(s, from_element=Const(16)), lambda s: s.from_element)
    with pytest.raises(LoweringError, match="place in bytes"):
        multiply(broken(kernel, elsewhere), 33, 17, 40)


@pytest.mark.parametrize(
    ("rewrite", "message"),
    [
        (dropped(Store, lambda s: s.buffer.name == "b_at" and "b_at" in repr(s.value)), "place in bytes"),
        (
            changed(Store, lambda s: replace(s, value=s.value + Const(2**31)), lambda s: s.buffer.name == "a_at"),
            "int32 does not hold",
        ),
    ],
    ids=["addresses that never move on", "more than 32 bits"],
)
def test_the_interpreter_finds_wrong_addresses(rewrite: Rewrite, message: str) -> None:
    with pytest.raises(LoweringError, match=message):
        multiply(broken(driver.lower(GemmSpec(), SCHEDULE), rewrite), 4, 16, 32)


def test_matrices_span_what_bytes_in_32_bits_reach() -> None:
    source = driver.emit(GemmSpec(), SCHEDULE)
    assert source.span == 2**29
    assert "A and B span less than 2^29 elements" in source.text
    assert driver.emit(GemmSpec(), SCHEDULE, "cuda").span == 2**31
    assert driver.emit(GemmSpec(), SCHEDULE, target=TARGETS["khr"]).span == 2**31
    long = View(2**14, 2**15, "row", 2**15)
    check_spans({"a": long, "c": long}, {"a": 2**29 + 1})
    with pytest.raises(SpecError, match=r"a spans 536870912 elements .* 536870911"):
        check_spans({"a": long, "c": long}, {"a": 2**29})


# --- elements of less than a word -----------------------------------------------------------------


@pytest.mark.parametrize("schedule", [SCHEDULE, PARTS, ONE], ids=["whole", "parts", "one"])
@pytest.mark.parametrize("dtype", [BF16, F16, I8], ids=str)
def test_narrow_elements(dtype: DType, schedule: Schedule, rng: np.random.Generator) -> None:
    """In lines that begin on multiples of a word, and in others, which lanes read one by one."""
    for order in ("row", "col"):
        # Of a column-major A a read brings rows, of which a tile must have more.
        schedule = TALL if order == "col" and schedule != ONE else schedule
        spec = GemmSpec(dtype=dtype, a_order=order)
        program = driver.lower_program(spec, schedule, TARGETS["intel"])
        assert any(isinstance(s, VectorCopy) and s.atom.name == "block_read" for s in walk(program.main.body))
        for pad, size in ((0, (8, 32, 32)), (3, (5, 17, 33)), (1, (9, 32, 15)), (4, (4, 16, 48))):
            check_products(program, spec, rng, size, factors=(2.0, -1.0), pad=pad)


def test_narrow_elements_between_words_are_found(rng: np.random.Generator) -> None:
    """Where the question of where lines begin is left out."""
    spec = GemmSpec(dtype=BF16)
    program = driver.lower_program(spec, SCHEDULE, TARGETS["intel"])

    def unasked(stmt: Let) -> Stmt:
        assert isinstance(stmt.value, Select)
        asked = [x for x in conjunction(stmt.value.condition) if not (isinstance(x, Bin) and x.op == "==")]
        return replace(stmt, value=select(all_of(asked), stmt.value.then, stmt.value.other))

    problem = Problem.of(rng, spec, 8, 33, 33, 1.0, 0.0)
    with faults("alignment", "1 past a multiple of 2"):
        interpret(broken_main(program, changed(Let, unasked, var=K_MAIN)), spec, problem, 0)


def test_narrow_elements_have_functions_of_their_own() -> None:
    for dtype, kind, extension in ((BF16, "_us", "short"), (I8, "_uc", "char")):
        text = driver.emit(GemmSpec(dtype=dtype), SCHEDULE).text
        assert f"intel_sub_group_block_read{kind}2(" in text and f"cl_intel_subgroups_{extension} : enable" in text
        assert "matrices that begin on multiples of 4 bytes" in text
    assert "_us" not in driver.emit(GemmSpec(), SCHEDULE).text
    # Whole lines of assumed lengths need no question.
    assert "ldb %" not in driver.emit(GemmSpec(dtype=BF16, ld_multiple=8), SCHEDULE).text
