"""A of warpgroups in registers, transposed, converted and made by prologues on the way; and one thing wrong each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.banks import local_accesses
from gemmgen.errors import FaultKind
from gemmgen.ir.dtypes import BF16, F8_E4M3, F8_E5M2, F16, F32, I8, DType, accumulator
from gemmgen.ir.expr import Bin, Expr
from gemmgen.ir.instructions import cut_sums, product_error
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.numeric import tf32
from gemmgen.ir.stmt import Body, For, If, Stmt, VectorCopy
from gemmgen.ir.synchronization import Mbarrier, MultiplyGroup
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import map_body_exprs, walk
from gemmgen.methods import defaults
from gemmgen.oracle import answer
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.broken import Rewrite, broken, changed, dropped, faults
from tests.support.problems import Problem, check_products, interpret

SM_90A = TARGETS["sm_90a"]
PAIR, ONE, SWAPPED = ((4, 8), (64, 4)), ((2, 8), (32, 4)), ((4, 2), (4, 32))


def held(method: str, shape: tuple[tuple[int, int], tuple[int, int]], **changes: object) -> Schedule:
    """With A in registers, or B where operands are swapped."""
    base = defaults(method, *shape).but(stages=2, producer_threads=32, setmaxnreg=(0, 0))
    operand = {name: replace(getattr(base, name), memory="private") for name in ("b" if base.operands_swapped else "a")}
    return base.but(**operand, **changes)


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize(
    ("method", "dtype", "shape", "other"),
    [
        ("wgmma", BF16, ((4, 8), (32, 8)), "row"),
        ("wgmma", F16, SWAPPED, "row"),
        ("wgmma_tf32", F32, PAIR, "col"),
        ("wgmma_tf32", F32, SWAPPED, "row"),
        ("wgmma_f8", F8_E4M3, ONE, "col"),
        ("wgmma_f8", F8_E5M2, SWAPPED, "row"),
        ("wgmma_s8", I8, PAIR, "col"),
    ],
)
def test_either_order(
    method: str,
    dtype: DType,
    shape: tuple[tuple[int, int], tuple[int, int]],
    other: Order,
    order: Order,
    rng: np.random.Generator,
) -> None:
    schedule = held(method, shape)
    mine, its = ("b", "a") if schedule.operands_swapped else ("a", "b")
    spec = GemmSpec(dtype=dtype, c_dtype=accumulator(dtype), ld_multiple=16)
    spec = replace(spec, **{f"{mine}_order": order, f"{its}_order": other})  # type: ignore[arg-type]
    rows, cols = schedule.block_tile
    problem = Problem.of(rng, spec, rows + 3, cols + 5, 200, -2, 3)
    found = interpret(driver.lower_program(spec, schedule, SM_90A), spec, problem, 8)
    atom, matrices = (method, dtype), (problem.a, problem.b, problem.c)
    right = answer(spec, matrices, (-2, 3), product_error=product_error(*atom), cut=cut_sums(*atom))
    assert right.holds(found).all()


@pytest.mark.parametrize("shape", [ONE, SWAPPED])
def test_a_step_of_one_instruction(shape: tuple[tuple[int, int], tuple[int, int]], rng: np.random.Generator) -> None:
    """Of whose fragments there is one, and which bytes that are transposed don't fill; found by `gemmgen fuzz`."""
    schedule, spec = held("wgmma", shape, block_k=16), GemmSpec(dtype=BF16, ld_multiple=16)
    mine, order = ("b", "row") if schedule.operands_swapped else ("a", "col")
    for changes in ({}, {f"{mine}_dtype": I8, f"{mine}_order": order}):
        spec = replace(spec, **changes)  # type: ignore[arg-type]
        check_products(driver.lower(spec, schedule, SM_90A), spec, rng, (70, 67, 72), pad=8)
        assert "wgmma_m64n" in driver.emit(spec, schedule, "cuda", SM_90A).text


@pytest.mark.parametrize(
    ("shape", "order", "stored", "formula"),
    [
        (ONE, "row", I8, "X * X_scale"),
        (ONE, "col", F8_E4M3, "(X + 1) * X_scale"),
        (SWAPPED, "row", I8, "(X + 1) * X_scale"),
        (SWAPPED, "col", F8_E5M2, "X * X_scale"),
        (SWAPPED, "col", I8, None),
        (SWAPPED, "row", I8, "X * X_scale + 0 * ({})"),
    ],
)
def test_stored_otherwise_and_made(
    shape: tuple[tuple[int, int], tuple[int, int]],
    order: Order,
    stored: DType,
    formula: str | None,
    rng: np.random.Generator,
) -> None:
    """Past K is zero, whatever the formula makes of that."""
    schedule = held("wgmma", shape)
    mine = "b" if schedule.operands_swapped else "a"
    place = "col + k" if mine == "b" else "row + k"
    text = None if formula is None else formula.replace("X", mine).format(place)
    spec = GemmSpec(dtype=BF16, c_dtype=F32, ld_multiple=16)
    spec = replace(spec, **{f"{mine}_dtype": stored, f"{mine}_order": order, f"prologue_{mine}": text})  # type: ignore[arg-type]
    rows, cols = schedule.block_tile
    m, n, k = rows + 3, cols + 5, 200
    problem = Problem.of(rng, spec, m, n, k, 1.0, 0.0)
    scale = np.float32(2) ** (np.arange(m if mine == "a" else n, dtype=np.float32) % 4)
    given = {} if text is None else {f"{mine}_scale": scale}
    found = interpret(driver.lower_program(spec, schedule, SM_90A), spec, problem, 16, given)
    a, b = problem.a.astype(np.float64), problem.b.astype(np.float64)
    more = 1 if text is not None and "1)" in text else 0
    along = scale if text is not None else np.ones_like(scale)
    a, b = ((a + more) * along[:, None], b) if mine == "a" else (a, (b + more) * along)
    expected = a @ b
    assert np.allclose(found, expected, rtol=1e-2, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("shape", [PAIR, SWAPPED])
def test_what_a_prologue_makes_is_rounded_to_tf32(
    shape: tuple[tuple[int, int], tuple[int, int]], rng: np.random.Generator
) -> None:
    """Once, after it is made: TMA rounds the other operand, and the instruction would cut elements."""
    schedule = held("wgmma_tf32", shape)
    mine = "b" if schedule.operands_swapped else "a"
    spec = GemmSpec(b_order="col", ld_multiple=4, alpha=1.0, beta=0.0)
    spec = replace(spec, **{f"prologue_{mine}": f"{mine} * {mine}_scale_k"})  # type: ignore[arg-type]
    (rows, cols), depth = schedule.block_tile, 32
    problem = Problem.of(rng, spec, rows, cols, depth, 1.0, 0.0)
    # Of each sum one product is not zero, and its other element is 1.
    one = np.zeros((depth, cols) if mine == "a" else (rows, depth), np.float32)
    one[0 if mine == "a" else slice(None), slice(None) if mine == "a" else 0] = 1
    problem = replace(problem, b=one) if mine == "a" else replace(problem, a=one)
    scale = rng.uniform(1, 2, depth).astype(np.float32)
    found = interpret(driver.lower_program(spec, schedule, SM_90A), spec, problem, 4, {f"{mine}_scale_k": scale})
    loaded = problem.a[:, :1] if mine == "a" else problem.b[:1]
    made = np.asarray(tf32(loaded.astype(np.float32) * scale[0]), np.float32)
    assert np.array_equal(found, np.broadcast_to(made, (rows, cols)))


@pytest.mark.parametrize("shape", [PAIR, SWAPPED])
@pytest.mark.parametrize(("method", "dtype"), [("wgmma_tf32", F32), ("wgmma", BF16)])
def test_arrays_along_k_are_not_read_past_its_end(
    shape: tuple[tuple[int, int], tuple[int, int]], method: str, dtype: DType, rng: np.random.Generator
) -> None:
    """Where the last step reaches further: the interpreter refuses a read outside of an array."""
    schedule = held(method, shape)
    mine = "b" if schedule.operands_swapped else "a"
    stored: dict[str, object] = {} if dtype == F32 else {f"{mine}_dtype": I8}
    changed_spec = {**stored, f"prologue_{mine}": f"({mine} - {mine}_shift_k) * {mine}_scale_k"}
    spec = GemmSpec(dtype=dtype, c_dtype=F32, b_order="col", ld_multiple=16, alpha=1.0, beta=0.0)
    spec = replace(spec, **changed_spec)  # type: ignore[arg-type]
    (rows, cols), k = schedule.block_tile, schedule.block_k + 5
    problem = Problem.of(rng, spec, rows, cols, k, 1.0, 0.0)
    scale, shift = (rng.integers(1, 3, k).astype(np.float32) for _ in range(2))
    given = {f"{mine}_scale_k": scale, f"{mine}_shift_k": shift}
    found = interpret(driver.lower_program(spec, schedule, SM_90A), spec, problem, 16, given)
    a, b = problem.a.astype(np.float64), problem.b.astype(np.float64)
    a, b = ((a - shift) * scale, b) if mine == "a" else (a, (b - shift[:, None]) * scale[:, None])
    assert np.allclose(found, a @ b, rtol=1e-2, atol=2e-2 * np.abs(a @ b).max())


def test_pairs_of_int4_end_where_an_array_along_k_does() -> None:
    """An odd K ends within a byte, whose other half has no scale."""
    spec = GemmSpec(dtype=BF16, c_dtype=F32, a_dtype="int4", prologue_a="a * a_scale_k", b_order="col", ld_multiple=32)
    text = driver.emit(spec, held("wgmma", PAIR), "cuda", SM_90A).text
    assert "a_scale_k[min(k0 + tile_byte * 2 + e, k - 1)]" in text


@pytest.mark.parametrize(("shape", "orders"), [(PAIR, ("col", "col")), (SWAPPED, ("row", "row"))])
def test_words_across_k_are_read_without_bank_conflicts(
    shape: tuple[tuple[int, int], tuple[int, int]], orders: tuple[Order, Order]
) -> None:
    spec = GemmSpec(dtype=F32, a_order=orders[0], b_order=orders[1], ld_multiple=4)
    reads = local_accesses(driver.lower(spec, held("wgmma_tf32", shape), SM_90A), 32, 32)
    assert [access for access in reads if not access.is_store]
    assert all(access.clocks == len(access.passes) == 1 for access in reads), reads


@pytest.mark.parametrize(("dtype", "pending"), [(None, 3), (I8, 1)])
def test_registers_are_filled_while_other_instructions_are_under_way(dtype: DType | None, pending: int) -> None:
    spec = GemmSpec(dtype=BF16, c_dtype=F32, a_order="col", a_dtype=dtype, ld_multiple=16)
    kernel = driver.lower(spec, held("wgmma", ONE), SM_90A)
    waits = [s.pending for s in walk(kernel.body) if isinstance(s, MultiplyGroup) and s.verb == "wait"]
    assert waits == [pending, 0]


def test_what_stays_the_same_along_k_is_read_in_front_of_the_loop() -> None:
    spec = GemmSpec(dtype=BF16, b_dtype=I8, prologue_b="b * b_scale - b_shift * b_factor", ld_multiple=16)
    text = driver.emit(spec, held("wgmma", SWAPPED), "cuda", SM_90A).text
    before, _, rest = text.partition('extern "C" __global__')[2].partition("for (int k0")
    loop = rest.partition("wgmma_fence")[0]
    for name in ("b_scale", "b_shift"):
        assert f"own_{name}[i] = {name}[min(" in before
        assert f"own_{name}[" in loop and f" {name}[" not in loop
    assert "own_b_factor = b_factor[0];" in before and "b_factor[0]" not in loop


# --- one thing wrong ------------------------------------------------------------------------------


SPEC = GemmSpec(dtype=BF16, c_dtype=F32, a_order="col", ld_multiple=8)


def run(kernel: Kernel, k: int = 320) -> None:
    check_products(kernel, SPEC, np.random.default_rng(2), (64, 32, k), factors=(1.0, 0.0), pad=8)


def gives_back(stmt: Stmt) -> bool:
    inside = stmt.then if isinstance(stmt, If) else ()
    return any(isinstance(s, Mbarrier) and (s.verb, s.name) == ("arrive", "tiles_empty") for s in inside)


def given_back_unread(loop: For) -> Stmt:
    """The arrival before the reads: copies may overwrite what is still read."""
    return replace(loop, body=tuple(sorted(loop.body, key=lambda s: not gives_back(s))))


def gives_slots_back(loop: For) -> bool:
    return any(gives_back(s) for s in loop.body)


def behind_the_fence(stmt: Stmt) -> Body:
    if isinstance(stmt, MultiplyGroup) and stmt.verb == "fence":
        return ()
    return (MultiplyGroup("fence"), stmt) if isinstance(stmt, VectorCopy) and stmt.atom.matrices else (stmt,)


@pytest.mark.parametrize(
    ("rewrite", "kind", "detail", "k"),
    [
        # Filled before what takes them is complete.
        (
            changed(MultiplyGroup, lambda s: replace(s, pending=s.pending + 1), verb="wait", sums=None),
            "race",
            "",
            320,
        ),
        # Without the wait at a step's end the next step's A takes the place of what is being multiplied. Two steps in
        # two slots, so that no copy does.
        (dropped(MultiplyGroup, verb="wait", sums=None), "race", "written meanwhile", 128),
        (behind_the_fence, "pipe", "written after the fence", 320),
        (changed(For, given_back_unread, gives_slots_back), "race", "", 320),
    ],
    ids=[
        "filled too early",
        "written while they are read",
        "written behind the fence",
        "a slot given back before it is read",
    ],
)
def test_one_thing_wrong(rewrite: Rewrite, kind: FaultKind, detail: str, k: int) -> None:
    wrong = broken(driver.lower(SPEC, held("wgmma", ONE), SM_90A), rewrite)
    with faults(kind, detail):
        run(wrong, k)


def test_lines_read_as_if_they_did_not_swizzle() -> None:
    def plain(node: Expr) -> Expr:
        return node.a if isinstance(node, Bin) and node.op == "^" else node

    kernel = driver.lower(SPEC, held("wgmma", ONE), SM_90A)
    with pytest.raises(AssertionError, match="elements off"):
        run(replace(kernel, body=map_body_exprs(kernel.body, plain)))
