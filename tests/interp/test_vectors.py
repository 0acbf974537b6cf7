"""Work-items with vectors of their own: every form of them at every kind of edge, in the interpreter."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.build import build
from gemmgen.driver import run_passes
from gemmgen.errors import ScheduleError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import BF16, C64, F16, F32, F64, I8, I32, I64, DType
from gemmgen.ir.expr import Const, Load, Var, number
from gemmgen.ir.stmt import EpilogueStore, For, PointerInit, Prefetch, Store
from gemmgen.ir.target import TARGETS
from gemmgen.ir.vectors import loop_problem
from gemmgen.ir.walk import evaluate, walk
from gemmgen.methods import defaults
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.broken import broken, changed, faults
from tests.support.epilogues import Finished
from tests.support.problems import Problem, check_products, interpret
from tests.support.refusals import Made, made

CPU = TARGETS["cpu"]
IN_PLACE = defaults("vector", (3, 8)).but(vector=4, macro_kernel=(2, 2))
COPIED = IN_PLACE.but(b=Operand(memory="private"), kc=4, macro_kernel=(3, 2))
FORMS = {
    "in place": IN_PLACE,
    "in place, K in blocks": IN_PLACE.but(kc=3),
    "in place, K in parts": IN_PLACE.but(split_k=3, grid_multiple=(2, 1)),
    "copied": COPIED,
    "copied, rows in blocks": COPIED.but(mc=2),
    "copied, even": COPIED.but(grid_multiple=(1, 3)),
    "copied, K in parts": COPIED.but(split_k=2),
    "copied, C prefetched": COPIED.but(c_prefetch=True),
    "copied, C prefetched, K in parts": COPIED.but(split_k=2, c_prefetch=True),
    "copied, steps written out": COPIED.but(kc=8, block_k=4),
    "copied, B prefetched": COPIED.but(block_k=2, b_prefetch=3),
    "in place, B prefetched": IN_PLACE.but(b_prefetch=3),
    "copied by the first tile": COPIED.but(fused_copy=True),
    "copied by the first tile, B prefetched": COPIED.but(fused_copy=True, b_prefetch=3, grid_multiple=(2, 1)),
    "copied by the first tile, K in parts": COPIED.but(fused_copy=True, split_k=2),
    "copied, a panel prefetched": COPIED.but(macro_kernel=(3, 1), tile=(1, 4), b_prefetch=1),
}
#: Whole tiles, ragged ones, narrower and shorter than a tile, more groups than tiles.
SIZES = ((6, 16, 8), (7, 21, 9), (2, 5, 3), (13, 9, 1), (1, 1, 1))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_16_bit_floats_are_converted(form: str, dtype: DType, rng: np.random.Generator) -> None:
    """Where C has as few digits as A and B, its sums are stored once, or wait in the workspace of parts."""
    schedule = FORMS[form]
    c_dtype = F32 if schedule.kc and schedule.split_k == 1 else None
    for spec in (GemmSpec(dtype=dtype, c_dtype=c_dtype), GemmSpec(dtype=dtype, c_dtype=c_dtype, a_order="col")):
        program = driver.lower_program(spec, schedule, CPU)
        for size in SIZES:
            check_products(program, spec, rng, size, factors=(1.5, -0.5))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [I8, I32, I64], ids=str)
def test_whole_numbers_to_the_last_bit(form: str, dtype: DType, rng: np.random.Generator) -> None:
    """On CPUs they had the schedules of GPUs: int8 of 512 cubed took 13 times as long, and a first call 10 times."""
    for spec in (GemmSpec(dtype=dtype), GemmSpec(dtype=dtype, a_order="col", epilogue=("bias", "relu"))):
        program = driver.lower_program(spec, FORMS[form], CPU)
        for size in SIZES[1:3]:
            problem = Finished.random(rng, spec, *size, 3, -2)
            problem.check(problem.interpret(program))


def test_the_last_tile_of_a_column_begins_earlier_where_c_is_not_read(rng: np.random.Generator) -> None:
    """So that it stores whole vectors; it reads no row past the last one, and stays in its own work-item's block."""
    for schedule in (IN_PLACE, COPIED, COPIED.but(mc=1), COPIED.but(mc=2)):
        program = driver.lower_program(GemmSpec(), schedule, CPU)
        for size, beta in product(((7, 16, 5), (13, 16, 5), (2, 8, 9)), (0.0, 2.0)):
            check_products(program, GemmSpec(), rng, size, factors=(1.5, beta))
        assert "min(own_row, row_end - MR)" in driver.emit(GemmSpec(), schedule, target=CPU).text
    for spec in (GemmSpec(m=6), GemmSpec(epilogue=("expr: acc + c",))):
        assert "own_row" not in driver.emit(spec, IN_PLACE, target=CPU).text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("beta", [0.0, 1.0, None])
def test_every_form(form: str, beta: float | None, rng: np.random.Generator) -> None:
    spec = GemmSpec(beta=beta, alpha=1.0 if beta == 1 else None)
    program = driver.lower_program(spec, FORMS[form], CPU)
    for size in SIZES:
        problem = Problem.random(rng, *size, 1.0 if beta == 1 else 1.5, -0.5 if beta is None else beta)
        problem.check(interpret(program, spec, problem))


def test_whole_vectors_at_the_edge_of_a_c_that_is_not_read(rng: np.random.Generator) -> None:
    """The last tile of a line, which begins earlier, stores columns of the one before again; of a C that lies by
    columns, or that an epilogue reads, it does not.
    """
    for beta in (0.0, 2.0):
        check_products(
            driver.lower_program(GemmSpec(), IN_PLACE, CPU), GemmSpec(), rng, (6, 21, 5), factors=(1.5, beta)
        )
    again = "beta == 0.0f && col_begin <= col0 ? col0 : own_col"
    assert again in driver.emit(GemmSpec(), IN_PLACE, target=CPU).text
    for spec in (GemmSpec(c_order="col"), GemmSpec(epilogue=("expr: acc + c",))):
        assert "first_col" not in driver.emit(spec, IN_PLACE, target=CPU).text


@pytest.mark.parametrize("n", [1, 3, 4, 5, 7, 8, 9, 11, 13])
def test_vectors_begin_earlier_beside_a_copy(n: int, rng: np.random.Generator) -> None:
    """Those that would end past the last column hold the columns before it: all of B is copied, and C stored, by
    vectors. Sums that wait in C are added once; a vector that is part of no other vector's tile is stored by elements.
    """
    by_columns = GemmSpec(b_order="col")
    for schedule, spec in (
        *((COPIED.but(**more), GemmSpec()) for more in ({}, {"mc": 1}, {"split_k": 2}, {"macro_kernel": (3, 1)})),
        (COPIED, by_columns),
    ):
        program = driver.lower_program(spec, schedule, CPU)
        for beta in (0.0, 2.0):
            check_products(program, spec, rng, (7, n, 9), factors=(1.5, beta))


def test_vectors_begin_earlier_where_they_may_store_columns_twice() -> None:
    text = driver.emit(GemmSpec(), COPIED, target=CPU).text
    assert "const int col = min(col0 + j * 4, n - 4);" in text
    assert "vstore4(c_values[j], 0, &c[(row0 + i) * ldc + min(col + j * 4, n - 4)]);" in text
    for spec in (GemmSpec(n=16), GemmSpec(c_order="col")):
        assert "begin earlier" not in driver.emit(spec, COPIED, target=CPU).text


@pytest.mark.parametrize("form", FORMS)
def test_no_depth_at_all(form: str, rng: np.random.Generator) -> None:
    problem = Problem.random(rng, 5, 9, 0, 1.5, -0.5)
    problem.check(interpret(driver.lower_program(GemmSpec(), FORMS[form], CPU), GemmSpec(), problem))


@pytest.mark.parametrize(
    ("a", "b", "c"), [("col", "row", "row"), ("row", "col", "row"), ("col", "col", "col"), ("row", "row", "col")]
)
def test_orders(a: Order, b: Order, c: Order, rng: np.random.Generator) -> None:
    spec, problem = GemmSpec(a_order=a, b_order=b, c_order=c), Problem.integers(rng, 7, 21, 9)
    for form, schedule in FORMS.items():
        by_lines = "copied" not in form or "by the first tile" in form
        if (b == "col" and by_lines) or (c == "col" and form == "copied, C prefetched"):
            continue
        result = interpret(driver.lower_program(spec, schedule, CPU), spec, problem)
        assert np.array_equal(result, problem.expected)


@pytest.mark.parametrize("form", FORMS)
def test_sizes_that_are_known_need_no_guards(form: str, rng: np.random.Generator) -> None:
    """Intel's compiler made a kernel of 2048 a quarter slower over a condition that always held."""
    spec = GemmSpec(m=12, n=48, k=24)
    text = driver.emit(spec, FORMS[form], "opencl", CPU).text
    assert not re.search(r"k0\)? < 24|col0.* [<?] 48", re.sub(r"for \(.*\)", "", text)), text
    for alpha in (0.0, 1.5):
        check_products(driver.lower_program(spec, FORMS[form], CPU), spec, rng, (12, 48, 24), factors=(alpha, -0.5))


@pytest.mark.parametrize("form", ["in place", "copied", "in place, K in parts"])
def test_float64_and_sizes_that_are_known(form: str, rng: np.random.Generator) -> None:
    for spec, size in product((GemmSpec(dtype=F64), GemmSpec(m=6, n=16, k=8), GemmSpec(multiple_of=(3, 8, 1))), SIZES):
        size = (6, 16, 8) if spec.m or spec.multiple_of != (1, 1, 1) else size
        check_products(driver.lower_program(spec, FORMS[form], CPU), spec, rng, size, factors=(1.5, -0.5))


def test_whole_tiles_ask_nothing_of_sizes() -> None:
    text = driver.emit(GemmSpec(multiple_of=(3, 8, 1)), IN_PLACE, target=CPU).text
    assert "if (row0" not in text
    assert "col0 + NR <= n" not in text
    assert "col0 + NR <= n" in driver.emit(GemmSpec(), IN_PLACE, target=CPU).text


def test_the_same_bits_however_c_is_shared_out(rng: np.random.Generator) -> None:
    problem = Problem.random(rng, 25, 43, 11)
    for schedule in (IN_PLACE, COPIED):
        others = [
            schedule.but(macro_kernel=sweep, grid_multiple=even)
            for sweep in ((1, 1), (4, 3))
            for even in ((1, 1), (3, 2))
        ]
        results = [interpret(driver.lower(GemmSpec(), s, CPU), GemmSpec(), problem) for s in others]
        assert all(np.array_equal(results[0], result) for result in results)


def test_groups_are_shared_out_evenly() -> None:
    kernel = driver.lower(GemmSpec(), IN_PLACE.but(macro_kernel=(4, 3), grid_multiple=(4, 1)), CPU)
    down, across = (evaluate(extent, {"m": 100, "n": 100}) for extent in kernel.grid)
    assert (down, across) == (12, 5)  # of 34 tiles, 9 groups of 4 are 12 of 3; of 13 tiles, 5 groups of 3


def test_a_tile_that_begins_early_writes_its_own_columns_only(rng: np.random.Generator) -> None:
    """Without `EpilogueStore.first` two groups write the same element, which the interpreter reports."""
    kernel = build(GemmSpec(), IN_PLACE.but(macro_kernel=(1, 1)), CPU).main
    wrong = broken(kernel, changed(EpilogueStore, lambda s: replace(s, first=None)))
    problem = Problem.random(rng, 3, 21, 4)
    problem.check(interpret(run_passes(kernel, CPU), GemmSpec(), problem))
    with faults("race"):
        interpret(run_passes(wrong, CPU), GemmSpec(), problem)


E, ROUND = Var("e"), Var("i")
ARRAY = Buffer("acc", F32, Space.PRIVATE, Layout.packed(16), vector=4)
OTHER = Buffer("part", F32, Space.PRIVATE, Layout.packed(16))
ONE = number(1, F32)


@pytest.mark.parametrize(
    ("store", "width", "problem"),
    [
        (Store(ARRAY, (E,), ONE), 4, None),
        (Store(ARRAY, (ROUND * 4 + E,), Load(OTHER, (ROUND + E,))), 4, None),
        (Store(ARRAY, (ROUND + E,), ONE), 4, "acc is not stored to by whole vectors"),
        (Store(ARRAY, (E,), ONE), 8, "acc is not stored to by whole vectors"),
        (Store(ARRAY, (E * 4,), ONE), 4, "acc is not stored to by whole vectors"),
        (Store(OTHER, (E,), Load(ARRAY, (E + 1,))), 4, "acc is not read by whole vectors"),
        (Store(OTHER, (E,), Load(OTHER, (E + 1,))), 4, "a round needs what another makes of part"),
    ],
)
def test_what_one_instruction_can_do(store: Store, width: int, problem: str | None) -> None:
    found = loop_problem(For(E, Const(0), Const(width), 1, (store,), vector=True))
    assert (found is None) if problem is None else (found is not None and problem in found)


REFUSED: dict[str, tuple[Made, GemmSpec, str, str]] = {
    "no vectors": (IN_PLACE, GemmSpec(), "intel", r"vector = 4, but target 'intel' has none .*--target cpu"),
    "width": (IN_PLACE.but(vector=3, tile=(3, 6)), GemmSpec(), "cpu", "vector = 3 is no vector of OpenCL C"),
    "doubles": (
        IN_PLACE.but(vector=16, tile=(3, 16)),
        GemmSpec(dtype=F64),
        "cpu",
        "vector = 16 of float64 is 128 B > 64 B on target 'cpu': use vector 8",
    ),
    "columns": (IN_PLACE.but(tile=(3, 6)), GemmSpec(), "cpu", "6 columns are no whole vectors of 4"),
    "type": (IN_PLACE, GemmSpec(dtype=C64), "cpu", "vectors hold no complex64: use dtype float32, or method slm"),
    "sums that C would round": (
        IN_PLACE.but(kc=3),
        GemmSpec(dtype=BF16),
        "cpu",
        "c_dtype bfloat16 would round the sums .*: set kc = 0, or split_k = 2, or use c_dtype float32",
    ),
    "B": (IN_PLACE, GemmSpec(b_order="col"), "cpu", "set b.memory = 'private', which transposes it"),
    "group": (IN_PLACE.but(group=(2, 1)), GemmSpec(), "cpu", "group 2x1, but .* use group 1x1"),
    "others": (partial(IN_PLACE.but, stages=2), GemmSpec(), "cpu", "stages = 2 means nothing to mainloop CpuPanel"),
    "local": (
        partial(IN_PLACE.but, b=Operand(memory="local")),
        GemmSpec(),
        "cpu",
        "b.memory = local, but mainloop CpuPanel reads b from global or private: use",
    ),
    "prefetched in place": (IN_PLACE.but(c_prefetch=True), GemmSpec(), "cpu", "c_prefetch is for a copy of B"),
    "prefetched along K": (
        IN_PLACE.but(dot_product=True, vector=4, tile=(3, 2), b_prefetch=8),
        GemmSpec(b_order="col"),
        "cpu",
        "b_prefetch is for lines of B that are a step each, but dot_product reads along K: leave it out",
    ),
    "written out in place": (
        IN_PLACE.but(block_k=4),
        GemmSpec(),
        "cpu",
        "block_k is for a copy of B by vectors of columns: set b.memory = 'private', or leave it out",
    ),
    "rows of C between iterations": (
        COPIED.but(kc=6, block_k=3, c_prefetch=True),
        GemmSpec(),
        "cpu",
        "a row of C in 64 steps, no multiple of block_k 3: use 4",
    ),
    "no whole iterations": (COPIED.but(block_k=3), GemmSpec(), "cpu", "kc = 4 .* of block_k 3: use a multiple"),
    "prefetched columns": (
        COPIED.but(c_prefetch=True, block_k=3),  # alone it is computed as C^T by rows
        GemmSpec(c_order="col"),
        "cpu",
        "c_prefetch prefetches rows of C, but C is column-major: leave it out",
    ),
    "rows": (IN_PLACE.but(mc=2), GemmSpec(), "cpu", "mc = 2 is for a copy of B.* or use macro_kernel 2x2"),
    "fused in place": (IN_PLACE.but(fused_copy=True), GemmSpec(), "cpu", "fused_copy is for a copy of B by vectors"),
    "fused columns": (
        COPIED.but(fused_copy=True),
        GemmSpec(b_order="col"),
        "cpu",
        "but B is column-major: leave it out",
    ),
    "fused with more": (
        COPIED.but(fused_copy=True, mc=2, block_k=2),
        GemmSpec(),
        "cpu",
        "one panel of B at a time, read step by step: leave out mc, block_k",
    ),
    "depth": (COPIED.but(kc=0), GemmSpec(), "cpu", "kc = 0 gives no depth"),
    "stack": (
        COPIED.but(tile=(6, 64), macro_kernel=(1, 16), kc=1024),
        GemmSpec(),
        "cpu",
        r"the block of B, 1024 x 1024, takes 4,194,304 B > 2,097,152 B of a thread's stack .*: use kc 512",
    ),
    "registers": (
        IN_PLACE.but(tile=(14, 64)),
        GemmSpec(),
        "cpu",
        "3,840 B per work-item > 2,048 B .* tile, such as 14x32",
    ),
    "macro_kernel": (
        partial(Schedule.of, macro_kernel=(2, 2)),
        GemmSpec(),
        "cpu",
        "macro_kernel = 2x2 means nothing to mainloop Direct: leave it out",
    ),
    "private": (
        partial(Schedule.of, b=Operand(memory="private")),
        GemmSpec(),
        "cpu",
        "b.memory = private means nothing to mainloop Direct",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_remedy(name: str) -> None:
    schedule, spec, target, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=message):
        driver.emit(spec, made(schedule), target=TARGETS[target])


def test_languages_without_vectors_say_so() -> None:
    (problem,) = driver.refusals(GemmSpec(), IN_PLACE, "cuda")
    assert "use --target cpu, or method slm" in problem
    unconverted = replace(CPU, features=CPU.features - {"converted_vectors"})
    with pytest.raises(ScheduleError, match="dtype float16, but target 'cpu' has no vectors of it"):
        driver.emit(GemmSpec(dtype=F16), IN_PLACE, target=unconverted)


PREFETCHED = COPIED.but(kc=256, c_prefetch=True)


def test_each_row_of_c_is_asked_for_once_and_only_those_that_are_there(rng: np.random.Generator) -> None:
    """The interpreter looks at each address: 4 rows are one and a third tiles, 13 columns no whole number of them."""
    for spec, split in product((GemmSpec(), GemmSpec(a_order="col"), GemmSpec(dtype=F64, beta=0.0)), (1, 2)):
        program = driver.lower_program(spec, PREFETCHED.but(split_k=split), CPU)
        check_products(program, spec, rng, (4, 13, 300), factors=(1.5, 0.0 if spec.beta == 0 else -0.5))
        asked = [s for s in walk(program.kernels[0].body) if isinstance(s, Prefetch)]
        assert [s.buffer.name for s in asked] == ["c" if split == 1 else "workspace"]


def test_pointers_reach_no_further_than_their_matrix(rng: np.random.Generator) -> None:
    program, spec = driver.lower_program(GemmSpec(), PREFETCHED, CPU), GemmSpec()
    further = changed(PointerInit, lambda s: replace(s, index=(s.index[0], s.index[1] + 1)))
    past = changed(Prefetch, lambda s: replace(s, index=(s.index[0] + 4, s.index[1])))
    for wrong in (further, past):
        kernel, problem = broken(program.kernels[0], wrong), Problem.random(rng, 4, 13, 70, 1.0, 0.0)
        with faults("out-of-bounds"):
            interpret(replace(program, kernels=(kernel,)), spec, problem)


def test_pointers_keep_loads_of_a_short() -> None:
    """Without them each step works out all rows' places anew: 12x32 was 0.57 times as fast."""
    text = driver.emit(GemmSpec(), COPIED, "opencl", CPU).text
    assert "a_frag[i] = a_rows[i][k0];" in text
    assert "__global const float *a_rows[MR];" in text


def test_what_is_left_of_k_needs_no_loop_where_k_is_known() -> None:
    written_out = COPIED.but(kc=8, block_k=4)
    for spec, loops in (
        (GemmSpec(k=24), 1),
        (GemmSpec(multiple_of=(1, 1, 4)), 1),
        (GemmSpec(k=26), 2),
        (GemmSpec(), 2),
    ):
        assert driver.emit(spec, written_out, "opencl", CPU).text.count("acc[i][j] = fma(") == loops


def test_parts_of_k_that_are_known_are_not_cut_by_iterations(rng: np.random.Generator) -> None:
    """K of 20 in three parts: 7, 7 and 6 steps, though 20 is five times four."""
    written_out = COPIED.but(kc=8, block_k=4, split_k=3)
    for spec in (GemmSpec(k=20), GemmSpec(multiple_of=(1, 1, 4))):
        check_products(driver.lower_program(spec, written_out, CPU), spec, rng, (7, 21, 20), factors=(1.5, -0.5))


def test_lines_of_b_in_place_are_asked_for_ahead() -> None:
    """Past the last step of K the last line once more: pointers stay inside."""
    text = driver.emit(GemmSpec(), IN_PLACE.but(b_prefetch=3), "opencl", CPU).text
    assert "__builtin_prefetch(&b[min(k0 + 3, k_main - 1) * ldb + col0]);" in text


def test_what_is_asked_for_ahead_lies_in_the_copy() -> None:
    """Lines past a panel's last one are behind it, where there is room for them."""
    text = driver.emit(GemmSpec(), COPIED.but(b_prefetch=3), "opencl", CPU).text
    assert "__builtin_prefetch(&b_block[panel][k0 + 3][0]);" in text
    assert "float4 b_block[TILES_N][KC + 3][NR / 4];" in text and "#define KC 4\n" in text
