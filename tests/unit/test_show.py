"""The IR as text."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import ASYNC_COPY, SCALAR, VECTOR, AxisLayout, ThreadValueLayout
from gemmgen.ir.dtypes import BOOL, F32, I32
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Select, Var
from gemmgen.ir.instructions import FMA
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.show import headline, show, show_expr, show_stmt
from gemmgen.ir.stmt import (
    Alloc,
    Comment,
    CooperativeCopy,
    EpilogueStore,
    Fill,
    For,
    FragmentLoad,
    If,
    Let,
    Mma,
    PointerIncrement,
    PointerInit,
    Reduction,
    Registers,
    Stmt,
    Store,
    Tile,
    VectorCopy,
)
from gemmgen.ir.synchronization import AsyncGroup, Barrier, Mbarrier, Pipe, PipeOp

X, Y, Z = Var("x"), Var("y"), Var("z")
M, K, K0 = Var("m"), Var("k"), Var("k0")
ZERO = Const(0)
A = Buffer("a", F32, Space.GLOBAL, Layout.pitched(M, K, Var("lda")), writable=False)
C = Buffer("c", F32, Space.GLOBAL, Layout.pitched(M, M, M))
SHARED = Buffer("a_shared", F32, Space.LOCAL, Layout.packed(2, 16, 4, pad=1))
FRAG = Registers(
    Buffer("a_frag", F32, Space.PRIVATE, Layout.packed(4, 4)), ThreadValueLayout(AxisLayout(4), AxisLayout(4))
)
VIEW = Buffer("a_tile", F32, Space.VIEW, Layout.packed(16, 4, pad=1))
PIPE = Pipe("tiles", 2, "barrier")
SLOT = Tile(SHARED, (ZERO, ZERO, ZERO), 16, 4, pipe=PIPE)
SOURCE = Tile(A, (Var("row"), K0), 16, 4)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (Bin("*", Bin("+", X, Y), Z), "(x + y) * z"),
        (Bin("+", X, Bin("*", Y, Z)), "x + y * z"),
        (Bin("-", Bin("-", X, Y), Z), "x - y - z"),
        (Bin("-", X, Bin("-", Y, Z)), "x - (y - z)"),
        (Bin("/", X, Bin("*", Y, Z)), "x / (y * z)"),
        (Bin("%", Bin("/", X, Y), Z), "x / y % z"),
        (Bin("&&", Bin("<", X, Y), Bin("&&", Bin("<=", Y, Z), Bin("!=", X, Z))), "x < y && y <= z && x != z"),
        (Bin("==", Bin("<", X, Y), Bin("<", Y, Z)), "(x < y) == (y < z)"),
        (Bin("+", Bin("&", X, Bin("-", Y, Const(1))), Z), "(x & (y - 1)) + z"),
        (Bin("==", Bin("&", X, Y), Const(0)), "(x & y) == 0"),
        (Bin("min", Bin("+", X, Y), Z), "min(x + y, z)"),
        (Bin("*", Select(Bin("<", X, Y), X, Y), Z), "(x < y ? x : y) * z"),
        (Select(Bin("<", X, Y), X, Select(Bin("<", Y, Z), Y, Z)), "x < y ? x : y < z ? y : z"),
        (Load(A, (X, Bin("+", Y, Const(1)))), "a[x, y + 1]"),
        (Call("fma", (X, Y, Z), I32), "fma(x, y, z)"),
        (Const(1, BOOL), "true"),
        (Const(2, F32), "2.0"),
        (Bin("*", X, Const(-3)), "x * (-3)"),
    ],
)
def test_expressions_have_no_needless_parentheses(node: Expr, text: str) -> None:
    assert show_expr(node) == text


@pytest.mark.parametrize(
    ("stmt", "text"),
    [
        (Alloc(SHARED), "alloc a_shared: local float32[2, 16, 4] strides (80, 5, 1)"),
        (Alloc(FRAG.buffer), "alloc a_frag: private float32[4, 4]"),
        (
            Alloc(SHARED, reuses=True),
            "alloc a_shared: local float32[2, 16, 4] strides (80, 5, 1), reusing local memory",
        ),
        (Let(X, Y + 1), "let x: int32 = y + 1"),
        (Store(C, (X, Y), Const(0.0, F32)), "c[x, y] = 0.0"),
        (
            VectorCopy(FRAG.buffer, (ZERO, ZERO), A, (X, K0), VECTOR, 4),
            "a_frag[0, 0] <- vector_copy vector x4 a[x, k0]",
        ),
        (
            VectorCopy(FRAG.buffer, (ZERO, ZERO), VIEW, (X, K0), VECTOR, 4, ahead=True),
            "a_frag[0, 0] <- vector_copy vector x4 ahead a_tile[x, k0]",
        ),
        (
            VectorCopy(SHARED, (ZERO, X, Y), A, (X, K0), ASYNC_COPY, 4, valid=K - K0),
            "a_shared[0, x, y] <- vector_copy async_copy x4 a[x, k0], k - k0 of them inside",
        ),
        (PointerInit(VIEW, SHARED, (ZERO, X, Y * 4)), "pointer a_tile = &a_shared[0, x, y * 4]"),
        (PointerIncrement(VIEW, Select(Bin("<", X, Y), Const(-80), Const(80))), "pointer a_tile += x < y ? (-80) : 80"),
        (AsyncGroup("commit"), "commit async group"),
        (AsyncGroup("wait", 2), "wait until 2 async groups are pending"),
        (Mbarrier("init", "tiles_full", 4, X), "init mbarriers tiles_full[4]"),
        (Mbarrier("arrive", "tiles_empty", 4, X % 4), "arrive at mbarrier tiles_empty[x % 4]"),
        (Mbarrier("arrive_copies", "tiles_full", 4, X), "arrive with copies at mbarrier tiles_full[x]"),
        (Mbarrier("wait", "tiles_full", 4, X, X // 4 % 2), "wait for mbarrier tiles_full[x] parity x / 4 % 2"),
        (Barrier(), "barrier local"),
        (Barrier("none"), "barrier (no memory)"),
        (Comment("Whole steps."), "# Whole steps."),
        (Fill(FRAG, Const(0.0, F32)), "fill a_frag = 0.0"),
        (FragmentLoad(FRAG, SLOT, VECTOR, 4), "a_frag <- fragment_load vector x4 a_shared[0, 0, 0] 16x4 of tiles"),
        (
            FragmentLoad(FRAG, SLOT, VECTOR, 4, ahead=True),
            "a_frag <- fragment_load vector x4 ahead a_shared[0, 0, 0] 16x4 of tiles",
        ),
        (Reduction(FRAG, SLOT, 4, VECTOR, 2), "a_frag <- reduction of 4 vector x2 a_shared[0, 0, 0] 16x4 of tiles"),
        (
            EpilogueStore(Tile(C, (X, Y), 4, 4), FRAG, Const(1.0, F32), Const(0.0, F32), VECTOR, 4),
            "epilogue_store x4 c[x, y] 4x4 = 1.0 * a_frag",
        ),
        (
            CooperativeCopy(SLOT, SOURCE, VECTOR, 4),
            "a_shared[0, 0, 0] 16x4 of tiles <- cooperative_copy x4 a[row, k0] 16x4",
        ),
        (
            CooperativeCopy(SLOT, SOURCE, VECTOR, 4, "load", FRAG.buffer),
            "a_shared[0, 0, 0] 16x4 of tiles <- cooperative_copy load x4 a[row, k0] 16x4 via a_frag",
        ),
        (Mma(FRAG, FRAG, FRAG, X, ZERO, 4, FMA), "mma fma a_frag += a_frag[k x] * a_frag[k 0] depth 4"),
        (
            EpilogueStore(Tile(C, (X, Y), 4, 4), FRAG, Var("alpha", F32), Const(0.0, F32), SCALAR),
            "epilogue_store c[x, y] 4x4 = alpha * a_frag",
        ),
        (
            EpilogueStore(Tile(C, (X, Y), 4, 4, transposed=True), FRAG, Const(1.0, F32), Var("beta", F32), SCALAR),
            "epilogue_store c[x, y] 4x4 transposed = 1.0 * a_frag + beta * c",
        ),
        (PipeOp("acquire", PIPE), "acquire tiles (2 stages, sync barrier)"),
        (PipeOp("wait", Pipe("p", 8, "mbarrier", batch=2)), "wait p (8 stages, 2 at a time, sync mbarrier)"),
        (PipeOp("wait", Pipe("p", 1, "none", True)), "wait p (1 stage, sync none, through registers)"),
    ],
)
def test_statements(stmt: Stmt, text: str) -> None:
    assert show_stmt(stmt) == text


def test_blocks_are_indented() -> None:
    branch = If(Bin("<", X, Y), (Barrier(),), (Comment("else"),))
    loop = For(K0, ZERO, K - K % 8, 8, (branch,), unroll=True, exact=True)
    assert headline(loop) == "for k0 in 0..k - k % 8 step 8 (unroll, exact):"
    assert show_stmt(loop).splitlines()[1:] == [
        "  if x < y:",
        "    barrier local",
        "  else:",
        "    # else",
    ]
    assert show_stmt(For(K0, ZERO, K, 1, ())) == "for k0 in 0..k:\n  nothing"


def test_a_kernel_begins_with_its_head() -> None:
    params = (M, K, A, Var("lda"), C, Var("alpha", F32))
    kernel = Kernel("gemm", params, (Barrier(),), (2, 8), ((M + 31) // 32, Const(4)), 8, nonnegative=(K - 1,))
    assert (
        show(kernel)
        == """\
kernel gemm
  param m: int32
  param k: int32
  param a: global float32[m, k] strides (lda, 1), read only
  param lda: int32
  param c: global float32[m, m], written
  param alpha: float32
  group 2 x 8
  grid (m + 31) / 32 x 4
  sub_group 8
  assume k - 1 >= 0

  barrier local
"""
    )


def test_emitting_needs_no_numpy() -> None:
    code = "import sys, gemmgen.ir.show, gemmgen.ir.verify, gemmgen.ir.pipe_checks; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
