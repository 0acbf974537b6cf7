"""Kernels built by hand: right ones give the right product, and each broken one is reported for what it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen.errors import FaultKind, KernelFault
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import IMAGE_BLOCK_READ, SCALAR, VECTOR, block_read
from gemmgen.ir.dtypes import F32, I32
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Select, Var, compare
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Alloc, Body, For, If, Let, Stmt, Store, VectorCopy
from gemmgen.ir.synchronization import Barrier
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify
from gemmgen.simulator.execute import run

INTEL = TARGETS["intel"]
TILE = 4
M, N, K = Var("m"), Var("n"), Var("k")
ROW, COL, K0, KK = Var("row"), Var("col"), Var("k0"), Var("kk")
A = Buffer("a", F32, Space.GLOBAL, Layout.pitched(M, K, K), writable=False)
B = Buffer("b", F32, Space.GLOBAL, Layout.pitched(K, N, N), writable=False)
C = Buffer("c", F32, Space.GLOBAL, Layout.pitched(M, N, N))
ACC = Buffer("acc", F32, Space.PRIVATE, Layout.packed(1))
ZERO = Const(0)


def group_id(dimension: int) -> Expr:
    return Call("group_id", (Const(dimension),), I32)


def local_id(dimension: int) -> Expr:
    return Call("local_id", (Const(dimension),), I32)


LROW, LCOL, LANE = local_id(1), local_id(0), Call("lane_id", (), I32)


def shared(name: str, stages: int) -> Buffer:
    return Buffer(name, F32, Space.LOCAL, Layout.packed(stages, TILE, TILE, pad=1))


def fill_slot(stages: int, slot: Expr, k0: Expr) -> Body:
    """Each work-item brings one element of A and one of B."""
    return (
        Store(shared("a_shared", stages), (slot, LROW, LCOL), Load(A, (ROW, k0 + LCOL))),
        VectorCopy(shared("b_shared", stages), (slot, LROW, LCOL), B, (k0 + LROW, COL), SCALAR, 1),
    )


def multiply(stages: int, slot: Expr) -> Body:
    a = Load(shared("a_shared", stages), (slot, LROW, KK))
    b = Load(shared("b_shared", stages), (slot, KK, LCOL))
    return (For(KK, ZERO, Const(TILE), 1, (Store(ACC, (ZERO,), Call("fma", (a, b, Load(ACC, (ZERO,))), F32)),)),)


def tiled_gemm(loop: Body, prologue: Body = (), stages: int = 1) -> Kernel:
    """C = A @ B by groups of 4x4 work-items that share tiles in local memory."""
    body = (
        Let(ROW, group_id(1) * TILE + LROW),
        Let(COL, group_id(0) * TILE + LCOL),
        Alloc(shared("a_shared", stages)),
        Alloc(shared("b_shared", stages)),
        Alloc(ACC),
        Store(ACC, (ZERO,), Const(0.0, F32)),
        *prologue,
        For(K0, ZERO, K, TILE, loop),
        Store(C, (ROW, COL), Load(ACC, (ZERO,))),
    )
    grid = ((M + TILE - 1) // TILE, (N + TILE - 1) // TILE)
    return Kernel("tiled", (M, N, K, A, B, C), body, (TILE, TILE), grid)


def in_turn(*, before: bool = True, between: bool = True) -> Kernel:
    """One slot, a barrier on either side of filling it."""
    first, second = ((Barrier(),) if wanted else () for wanted in (before, between))
    return tiled_gemm((*first, *fill_slot(1, ZERO, K0), *second, *multiply(1, ZERO)))


def ring(stages: int, ahead: int) -> Kernel:
    """`ahead` tiles are on their way while one is used; one barrier a step."""
    step = K0 // TILE
    prologue = tuple(s for i in range(ahead) for s in fill_slot(stages, Const(i % stages), Const(i * TILE)))
    upcoming = fill_slot(stages, (step + ahead) % stages, K0 + ahead * TILE)
    loop = (Barrier(), If(K0 + ahead * TILE < K, upcoming), *multiply(stages, step % stages))
    return tiled_gemm(loop, prologue, stages)


def product(kernel: Kernel, m: int = 12, n: int = 8, k: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """The kernel's C and the right one."""
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    c = np.full(m * n, np.nan, np.float32)
    run(kernel, {"m": m, "n": n, "k": k, "a": a.ravel(), "b": b.ravel(), "c": c})
    return c.reshape(m, n), a.astype(np.float64) @ b.astype(np.float64)


def expect(kind: FaultKind, statement: str, kernel: Kernel) -> KernelFault:
    """The fault that the kernel must end in, of this kind and in a statement that contains this text."""
    with pytest.raises(KernelFault) as caught:
        product(kernel)
    assert caught.value.kind == kind
    assert statement in caught.value.statement
    assert str(caught.value).startswith(f"{kind}: ")
    assert statement in str(caught.value)
    return caught.value


def tiny(*body: Stmt, sub_group: int | None = None, group: tuple[int, int] = (1, 8)) -> Kernel:
    """One or two groups of a row of work-items, with the parameters of a product."""
    return Kernel("tiny", (M, N, K, A, B, C), body, group, (Const(1), Const(2)), sub_group)


# --- right ones -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel", [in_turn(), ring(2, 1), ring(3, 1), ring(3, 2)], ids=["in turn", "2 slots", "3 slots", "2 ahead"]
)
def test_right_kernels_multiply(kernel: Kernel) -> None:
    verify(kernel, INTEL)
    ours, right = product(kernel)
    np.testing.assert_allclose(ours, right, rtol=1e-5, atol=1e-5)


def test_groups_in_several_turns_are_the_same_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, _ = product(ring(2, 1))
    monkeypatch.setattr("gemmgen.simulator.execute.MOST_LANES", 2 * TILE * TILE)
    np.testing.assert_array_equal(product(ring(2, 1))[0], at_once)


def test_fma_rounds_once() -> None:
    x = np.float32(1 + 2**-12)
    kernel = tiny(If(LCOL < 1, (Store(C, (ZERO, group_id(0)), fma_of_a()),)))
    c = np.zeros(2, np.float32)
    run(kernel, {"m": 1, "n": 2, "k": 2, "a": np.array([x, -1], np.float32), "b": np.zeros(4, np.float32), "c": c})
    assert c[0] == np.float32(float(x) * float(x) - 1.0)
    assert c[0] != x * x - np.float32(1)


def fma_of_a() -> Expr:
    a = Load(A, (ZERO, ZERO))
    return Call("fma", (a, a, Load(A, (ZERO, Const(1)))), F32)


def test_a_loop_may_end_earlier_for_some_work_items() -> None:
    count = Store(ACC, (ZERO,), Bin("+", Load(ACC, (ZERO,)), Const(1.0, F32)))
    column = group_id(0) * 8 + LCOL
    kernel = tiny(
        Alloc(ACC),
        Store(ACC, (ZERO,), Const(0.0, F32)),
        For(KK, ZERO, column, 1, (count,)),
        Store(C, (ZERO, column), Load(ACC, (ZERO,))),
    )
    c = np.zeros(16, np.float32)
    run(kernel, {"m": 1, "n": 16, "k": 1, "a": c.copy(), "b": c.copy(), "c": c})
    np.testing.assert_array_equal(c, np.arange(16))


def test_what_select_and_conjunction_leave_out_is_not_evaluated() -> None:
    column = group_id(0) * 8 + LCOL
    positive = compare("!=", Load(A, (ZERO, column)), Const(0.0, F32))
    guarded = Select(Bin("&&", column < 5, positive), Load(A, (ZERO, column)), Const(-1.0, F32))
    c = np.zeros(16, np.float32)
    a = np.array([3, 0, 4, 0, 5], np.float32)
    run(
        tiny(Store(C, (ZERO, column), guarded)),
        {"m": 1, "n": 16, "k": 5, "a": a, "b": np.zeros(80, np.float32), "c": c},
    )
    np.testing.assert_array_equal(c, [3, -1, 4, -1, 5] + [-1] * 11)


def test_sub_group_functions_exchange_values() -> None:
    value = Load(A, (group_id(0), LCOL))
    swapped = Bin("+", Call("shuffle_xor", (value, Const(1)), F32), Call("broadcast", (value, Const(2)), F32))
    swapped = Bin("+", swapped, Call("shuffle", (value, (LCOL + 1) % 4), F32))
    kernel = tiny(Store(C, (group_id(0), LCOL), swapped), sub_group=4)
    verify(kernel, INTEL)
    a, c = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    run(kernel, {"m": 2, "n": 8, "k": 8, "a": a, "b": np.zeros(64, np.float32), "c": c})
    lanes = np.arange(16)
    first = lanes // 4 * 4
    np.testing.assert_array_equal(c, (lanes ^ 1) + (first + 2) + (first + (lanes + 1) % 4))


def test_a_block_read_deals_neighbours_out_to_lanes() -> None:
    frag = Buffer("frag", F32, Space.PRIVATE, Layout.packed(2))
    kernel = tiny(
        Alloc(frag),
        VectorCopy(frag, (ZERO,), A, (group_id(0), ZERO), block_read(8), 2),
        Store(C, (group_id(0), LCOL), Load(frag, (ZERO,))),
        Store(C, (group_id(0), LCOL + 8), Load(frag, (Const(1),))),
        sub_group=8,
    )
    a, c = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    run(kernel, {"m": 2, "n": 16, "k": 16, "a": a, "b": np.zeros(256, np.float32), "c": c})
    np.testing.assert_array_equal(c, a)


def test_an_image_reads_as_nan_outside() -> None:
    image = Buffer("a", F32, Space.IMAGE, Layout.pitched(M, K, K), writable=False)
    frag = Buffer("frag", F32, Space.PRIVATE, Layout.packed(2))
    body = (
        Alloc(frag),
        VectorCopy(frag, (ZERO,), image, (Const(1), Const(-1)), IMAGE_BLOCK_READ, 2),
        Store(C, (ZERO, LCOL), Load(frag, (ZERO,))),
        Store(C, (Const(1), LCOL), Load(frag, (Const(1),))),
    )
    kernel = Kernel("image", (M, N, K, image, C), body, (1, 4), (Const(1), Const(1)), 4)
    c = np.zeros(8, np.float32)
    run(kernel, {"m": 2, "n": 4, "k": 4, "a": np.arange(8, dtype=np.float32).reshape(2, 4), "c": c})
    np.testing.assert_array_equal(c, [np.nan, 4, 5, 6] + [np.nan] * 4)


# --- races ----------------------------------------------------------------------------------------


def test_no_barrier_before_use() -> None:
    fault = expect("race", "acc[0] = fma(a_shared[0, local_id(1), kk]", in_turn(between=False))
    assert "wrote in `a_shared[0, local_id(1), local_id(0)] = " in fault.detail


def test_no_barrier_before_the_next_tile() -> None:
    fault = expect("race", "a_shared[0, local_id(1), local_id(0)] = ", in_turn(before=False))
    assert "read in `acc[0] = fma(" in fault.detail
    assert "with no barrier between" in fault.detail


@pytest.mark.parametrize(("stages", "ahead"), [(2, 2), (3, 3)])
def test_a_slot_too_few(stages: int, ahead: int) -> None:
    expect("race", "acc[0] = fma(a_shared[k0 / 4 % ", ring(stages, ahead))


@pytest.mark.parametrize("apart", [1, 4], ids=["neighbours", "of another sub-group"])
def test_a_barrier_of_sub_groups_orders_memory_in_each_of_them(apart: int) -> None:
    """Work-items exchange what they put down, of sub-groups of four in a group of eight."""
    line = Buffer("line", F32, Space.LOCAL, Layout.packed(8))

    def exchanged(*between: Stmt) -> Kernel:
        put = Store(line, (LCOL,), Load(A, (ZERO, LCOL)))
        take = Store(C, (ZERO, group_id(0)), Load(ACC, (ZERO,)))
        taken = Store(ACC, (ZERO,), Load(line, (Bin("^", LCOL, Const(apart)),)))
        return tiny(Alloc(line), Alloc(ACC), put, *between, taken, If(LCOL < 1, (take,)), sub_group=4)

    expect("race", "acc[0] = line", exchanged())
    product(exchanged(Barrier()))
    weaker = exchanged(Barrier(of_sub_group=True))
    if apart == 1:
        product(weaker)
    else:
        expect("race", "acc[0] = line", weaker)


def test_a_barrier_without_memory_orders_nothing() -> None:
    loop = (Barrier(), *fill_slot(1, ZERO, K0), Barrier("none"), *multiply(1, ZERO))
    expect("race", "acc[0] = fma(", tiled_gemm(loop))


def test_two_work_items_write_one_element_at_once() -> None:
    one = Buffer("one", F32, Space.LOCAL, Layout.packed(1))
    fault = expect("race", "one[0] = 1.0", tiny(Alloc(one), Store(one, (ZERO,), Const(1.0, F32))))
    assert "in the same statement" in fault.detail


def test_two_groups_write_one_element_of_c() -> None:
    fault = expect("race", "c[0, local_id(0)] = 1.0", tiny(Store(C, (ZERO, LCOL), Const(1.0, F32))))
    assert "group (0, 0)" in fault.detail
    assert "group (0, 1)" in fault.detail


def test_groups_of_different_turns_race_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemmgen.simulator.execute.MOST_LANES", 8)
    fault = expect("race", "c[0, local_id(0)] = 1.0", tiny(Store(C, (ZERO, LCOL), Const(1.0, F32))))
    assert "group (0, 0)" in fault.detail
    assert "group (0, 1)" in fault.detail


def test_reading_what_another_wrote_to_c() -> None:
    at = group_id(0)
    write = Store(C, (at, LCOL), Const(1.0, F32))
    other = Store(C, (at, LCOL), Load(C, (at, (LCOL + 1) % 8)))
    expect("race", "c[group_id(0), local_id(0)] = c[", tiny(write, Barrier(), other))


# --- out of bounds --------------------------------------------------------------------------------


def test_a_column_too_far_in_global_memory() -> None:
    kernel = tiled_gemm((Barrier(), *fill_slot(1, ZERO, K0 + 1), Barrier(), *multiply(1, ZERO)))
    fault = expect("out-of-bounds", "a_shared[0, local_id(1), local_id(0)] = a[row, k0 + local_id(0) + 1]", kernel)
    assert "at a[0, 16]: coordinate 1 must be in 0..16" in fault.detail
    assert "work-item (0, 3) of group (0, 0)" in fault.detail


def test_padding_of_local_memory_is_out_of_bounds() -> None:
    padded = shared("padded", 1)
    kernel = tiny(Alloc(padded), If(LCOL < 1, (Store(padded, (ZERO, ZERO, Const(TILE)), Const(0.0, F32)),)))
    expect("out-of-bounds", "padded[0, 0, 4] = 0.0", kernel)


def test_a_register_too_far() -> None:
    expect("out-of-bounds", "acc[1] = 0.0", tiny(Alloc(ACC), Store(ACC, (Const(1),), Const(0.0, F32))))


def test_a_vector_past_the_end_of_a_row() -> None:
    frag = Buffer("frag", F32, Space.PRIVATE, Layout.packed(4))
    kernel = tiny(Alloc(frag), VectorCopy(frag, (ZERO,), A, (ZERO, Const(13)), VECTOR, 4))
    expect("out-of-bounds", "frag[0] <- vector_copy vector x4 a[0, 13]", kernel)


def test_an_array_smaller_than_its_shape() -> None:
    c = np.zeros(7, np.float32)
    with pytest.raises(KernelFault, match="address 7 of 7 elements") as caught:
        run(
            replace(tiny(Store(C, (ZERO, LCOL), Const(1.0, F32))), grid=(Const(1), Const(1))),
            {"m": 1, "n": 8, "k": 1, "a": c, "b": c, "c": c},
        )
    assert caught.value.kind == "out-of-bounds"


# --- unwritten ------------------------------------------------------------------------------------


def test_an_accumulator_that_was_not_cleared() -> None:
    fill = fill_slot(1, ZERO, K0)
    kernel = tiled_gemm((Barrier(), *fill, Barrier(), *multiply(1, ZERO)))
    body = tuple(s for s in kernel.body if not (isinstance(s, Store) and s.buffer is ACC))
    expect("unwritten", "acc[0] = fma(", replace(kernel, body=body))


def test_local_memory_that_nobody_filled() -> None:
    fill = fill_slot(1, ZERO, K0)
    expect("unwritten", "acc[0] = fma(", tiled_gemm((Barrier(), fill[0], Barrier(), *multiply(1, ZERO))))


def test_a_register_that_only_some_lanes_wrote() -> None:
    column = group_id(0) * 8 + LCOL
    kernel = tiny(
        Alloc(ACC),
        If(LCOL < 3, (Store(ACC, (ZERO,), Const(0.0, F32)),)),
        Store(C, (ZERO, column), Load(ACC, (ZERO,))),
    )
    kernel = replace(kernel, grid=(Const(1), Const(1)))
    fault = expect("unwritten", "c[0, group_id(0) * 8 + local_id(0)] = acc[0]", kernel)
    assert "work-item (0, 3)" in fault.detail


def test_a_declaration_in_a_loop_starts_anew() -> None:
    first = If(compare("==", KK, 0), (Store(ACC, (ZERO,), Const(0.0, F32)),))
    again = Store(ACC, (ZERO,), Load(ACC, (ZERO,)))
    expect("unwritten", "acc[0] = acc[0]", tiny(For(KK, ZERO, Const(2), 1, (Alloc(ACC), first, again))))


# --- divergence -----------------------------------------------------------------------------------


def test_a_barrier_that_some_do_not_reach() -> None:
    fault = expect("divergent barrier", "barrier local", tiny(If(LCOL < 4, (Barrier(),))))
    assert "work-item (0, 4) of group (0, 0) does not come" in fault.detail


def test_a_barrier_that_whole_groups_skip_is_fine() -> None:
    product(tiny(If(group_id(0) < 1, (Barrier(),))))


def test_a_broadcast_that_some_lanes_do_not_execute() -> None:
    value = Call("broadcast", (Load(A, (ZERO, LCOL)), ZERO), F32)
    kernel = tiny(Alloc(ACC), If(LCOL < 2, (Store(ACC, (ZERO,), value),)), sub_group=4)
    expect("divergent sub-group operation", "acc[0] = broadcast(a[0, local_id(0)], 0)", kernel)


def test_a_broadcast_from_different_lanes() -> None:
    value = Call("broadcast", (Load(A, (ZERO, LCOL)), LANE), F32)
    kernel = tiny(Alloc(ACC), Store(ACC, (ZERO,), value), sub_group=4)
    expect("divergent sub-group operation", "acc[0] = broadcast(a[0, local_id(0)], lane_id())", kernel)


def test_a_broadcast_from_a_lane_too_far() -> None:
    value = Call("broadcast", (Load(A, (ZERO, LCOL)), Const(4)), F32)
    kernel = tiny(Alloc(ACC), Store(ACC, (ZERO,), value), sub_group=4)
    assert "lane 4 of 4" in expect("divergent sub-group operation", "broadcast(", kernel).detail


def test_a_block_read_with_a_lane_in_its_address() -> None:
    kernel = tiny(Alloc(ACC), VectorCopy(ACC, (ZERO,), A, (ZERO, LANE), block_read(4), 1), sub_group=4)
    expect("divergent sub-group operation", "acc[0] <- vector_copy block_read x1 a[0, lane_id()]", kernel)


# --- the rest -------------------------------------------------------------------------------------


def test_a_negative_dividend() -> None:
    expect("arithmetic", "let x: int32 = (local_id(0) - 1) / 2", tiny(Let(Var("x"), (LCOL - 1) // 2)))


def test_work_items_may_read_one_element_together() -> None:
    product(tiny(Alloc(ACC), Store(ACC, (ZERO,), Load(A, (ZERO, ZERO)))))
