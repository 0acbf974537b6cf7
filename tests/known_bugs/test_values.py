"""What other libraries' kernels got wrong in the values of C. Each test is named after what went wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import KernelFault
from gemmgen.fuzz.case import Case
from gemmgen.fuzz.checks import WrongResult, interpreted
from gemmgen.fuzz.data import Numbers
from gemmgen.ir.expr import Bin, Const, Expr, Select, Var
from gemmgen.ir.kernel import Program
from gemmgen.ir.stmt import Body, If, Stmt, VectorCopy
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import map_body, map_body_exprs
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.problems import layouts

#: One of each way to memory, and a target that takes it.
FAMILIES = {
    "naive": "portable",
    "L3_SIMD_8x4_1x8": "intel",
    "block_read_16x2_1x8": "intel",
    "lds_8x8_16x16_k16_double": "portable",
    "smem_8x8_double": "sm_75",
    "async_8x4_8x16": "sm_90",
    "mbarrier_8x8_4x8_slices8": "sm_90",
    "mbarrier_8x8_2x16_split8": "sm_90",
    "mbarrier_8x16_8x8_slices4_packed": "sm_90",
}
families = pytest.mark.parametrize("name", FAMILIES)


def lowered(name: str, spec: GemmSpec | None = None, **changes: object) -> Program:
    schedule = candidates.load(name).schedule
    schedule = schedule.but(**{"split_k": min(schedule.split_k, 3), **changes})
    return driver.lower_program(spec or GemmSpec(), schedule, TARGETS[FAMILIES[name]])


def case(name: str, size: tuple[int, int, int], **changes: object) -> Case:
    schedule = candidates.load(name).schedule
    return Case(GemmSpec(), schedule, size, target=FAMILIES[name], **{"data": "whole", **changes})  # type: ignore[arg-type]


def require_right(program: Program, what: Case) -> None:
    numbers = Numbers.of(what)
    problem = numbers.problem(interpreted(program, numbers))
    if problem is not None:
        raise WrongResult(problem)


def with_main(program: Program, change: Body) -> Program:
    """The program with another body for its main kernel."""
    kernels = tuple(replace(k, body=change) if k is program.main else k for k in program.kernels)
    assert kernels != program.kernels, "nothing was broken"
    return replace(program, kernels=kernels)


# --- beta = 0 -------------------------------------------------------------------------------------


@families
@pytest.mark.parametrize("size", [(128, 128, 8), (129, 131, 9), (1, 1, 1), (3, 130, 5)])
def test_nan_in_c_comes_through_a_beta_of_zero(name: str, size: tuple[int, int, int]) -> None:
    """0 * NaN is NaN: C must not be read. In whole tiles, and in those at the edge, which other code stores."""
    what = case(name, size, pads=(0, 0, 3))
    assert np.isnan(Numbers.of(what).c).all()
    require_right(lowered(name), what)
    require_right(lowered(name, GemmSpec(beta=0.0)), what)


@pytest.mark.parametrize("where", ["everywhere", "at the edge"])
def test_the_test_before_can_fail(where: str) -> None:
    """`beta == 0 ? ... : ...` taken out of all stores, and of those that a vector store leaves to the edge."""

    def careless(node: Expr) -> Expr:
        match node:
            case Select(Bin("==", Var("beta"), Const(0.0)), _, other):
                return other
        return node

    def at_the_edge(stmt: Stmt) -> Body:
        if isinstance(stmt, If) and any(isinstance(s, VectorCopy) and s.dst.name == "c" for s in stmt.then):
            return (replace(stmt, orelse=map_body_exprs(stmt.orelse, careless)),)
        return (stmt,)

    program = lowered("async_8x4_8x16")
    body = program.main.body
    changed = map_body_exprs(body, careless) if where == "everywhere" else map_body(body, at_the_edge)
    broken = with_main(program, changed)
    with pytest.raises(WrongResult, match=r"not exact; the first at .*nan"):
        require_right(broken, case("async_8x4_8x16", (65, 67, 9)))
    if where == "at the edge":
        require_right(broken, case("async_8x4_8x16", (64, 64, 8)))


@families
@pytest.mark.parametrize("beta", [0.0, -1.0])
def test_a_k_of_zero_leaves_garbage_or_forgets_beta(name: str, beta: float) -> None:
    """C = beta C; with beta 0 it is all zeros. A and B have no elements."""
    require_right(lowered(name), case(name, (17, 37, 0), beta=beta))


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["naive", "lds_8x8_16x16_k16_double", "async_8x4_8x16"])
def test_transposes_differ_at_7_11_15(name: str) -> None:
    for spec in layouts(GemmSpec()):
        program = lowered(name, spec, c_width=1)
        for size in ((7, 11, 15), (15, 7, 11), (11, 15, 7)):
            require_right(program, replace(case(name, size, pads=(1, 2, 3), beta=1.0), spec=spec))


@families
def test_sizes_of_7_and_64_with_padded_lines(name: str) -> None:
    program = lowered(name)
    for m in (7, 64):
        for n in (7, 64):
            for k in (7, 64):
                require_right(program, case(name, (m, n, k), pads=(5, 3, 1), beta=-1.0))


@pytest.mark.parametrize("group", [(2, 8), (8, 2)])
@pytest.mark.parametrize("tile", [(2, 8), (8, 2), (4, 4)])
@pytest.mark.parametrize("order", ["row", "col"])
def test_blocks_that_are_not_square(group: tuple[int, int], tile: tuple[int, int], order: Order) -> None:
    """MWG != NWG with tiles in registers: rows were taken for columns where work-items share out a tile."""
    operand = Operand("local", 2)
    schedule = Schedule.of(
        tile=tile,
        group=group,
        thread_vector=(2, 2),
        block_k=4,
        a=operand,
        b=replace(operand, transposed=True),
        stages=2,
    )
    spec = GemmSpec(a_order=order, b_order=order, c_order=order)
    program = driver.lower_program(spec, schedule, TARGETS["portable"])
    for size in ((33, 65, 9), (64, 32, 8), (5, 70, 13)):
        require_right(program, Case(spec, schedule, size, target="portable", data="whole", pads=(1, 2, 3)))


@families
def test_a_last_step_of_one(name: str) -> None:
    """K one past a number of whole rounds, and K = 1: code for the rest of K that is never whole."""
    program, depth = lowered(name), candidates.load(name).schedule.round_depth
    for k in (1, depth + 1, 3 * depth + 1):
        require_right(program, case(name, (9, 10, k), pads=(0, 0, 0)))


@pytest.mark.parametrize("name", ["smem_8x8_double", "async_8x4_8x16", "mbarrier_8x8_4x8_slices8"])
def test_odd_m_or_k_misaligns_vectors(name: str) -> None:
    """Lines that begin where no vector may stand: with an odd leading dimension every second one does."""
    for order, size in (("row", (33, 64, 17)), ("col", (33, 64, 16)), ("row", (32, 63, 16))):
        spec = GemmSpec(a_order=order, b_order=order)  # type: ignore[arg-type]
        require_right(lowered(name, spec), replace(case(name, size), spec=spec))


@pytest.mark.parametrize("name", ["smem_8x8_double", "async_8x4_8x16"])
def test_the_interpreter_sees_vectors_that_are_misaligned(name: str) -> None:
    """The same kernels, made for lines that begin where vectors may, on lines that do not."""
    spec = GemmSpec(ld_multiple=4)
    require_right(lowered(name, spec), replace(case(name, (32, 64, 16), pads=(4, 4, 4)), spec=spec))
    with pytest.raises(KernelFault, match=r"alignment: .* moves 4 elements from [123] past a multiple of 4"):
        require_right(lowered(name, spec), case(name, (32, 64, 16), pads=(1, 1, 1)))


@families
def test_a_launch_covers_c_in_whole_groups(name: str) -> None:
    """A global size that is no multiple of the local one is an error in OpenCL 1.2, and leaves C's edge out if cut."""
    preset = candidates.load(name)
    backend = "cuda" if driver.refusals(preset.spec, preset.schedule) else "opencl"
    source = driver.emit(preset.spec, preset.schedule, backend)
    (entry,) = (entry for entry in source.entry_points if entry.name == source.name)
    rows, cols = preset.schedule.block_tile
    for m in (1, rows - 1 or 1, rows, rows + 1, 7 * rows + 3):
        for n in (1, cols - 1 or 1, cols, cols + 1, 5 * cols + 3):
            layers, down, across = entry.groups({"m": m, "n": n, "k": 100})
            blocks = -(-m // rows) * -(-n // cols)
            assert layers * down * across == blocks * preset.schedule.split_k
    assert entry.group == preset.schedule.all_work_items
