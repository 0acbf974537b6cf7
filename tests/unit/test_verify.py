"""Every invariant, broken once: the message names the kernel, the statement and what is wrong."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import IMAGE_BLOCK_READ, SCALAR, VECTOR, AxisLayout, ThreadValueLayout, block_read
from gemmgen.ir.dtypes import BOOL, F32, I32
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Select, Var
from gemmgen.ir.instructions import BROADCAST_FMA, FMA
from gemmgen.ir.kernel import Kernel
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
    Registers,
    Stmt,
    Store,
    Tile,
    VectorCopy,
)
from gemmgen.ir.synchronization import Barrier, Pipe, PipeOp
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify

M, K, ALPHA = Var("m"), Var("k"), Var("alpha", F32)
ZERO, ONE, HALF = Const(0), Const(1), Const(0.5, F32)
X, STEP = Var("x"), Var("i")
A = Buffer("a", F32, Space.GLOBAL, Layout.pitched(M, K, K), writable=False)
IMAGE = Buffer("image", F32, Space.IMAGE, Layout.pitched(M, K, Var("no_such_pitch")), writable=True)
C = Buffer("c", F32, Space.GLOBAL, Layout.pitched(M, M, M))
LOCAL = Buffer("shared", F32, Space.LOCAL, Layout.packed(4, 4))
REGS = Buffer("regs", F32, Space.PRIVATE, Layout.packed(4, 4))
TILE = Registers(REGS, ThreadValueLayout(AxisLayout(4), AxisLayout(4)))
IN_SLOTS = replace(TILE, slot=ZERO)
LANE = Call("lane_id", (), I32)


def local_id(dimension: int = 0) -> Expr:
    return Call("local_id", (Const(dimension),), I32)


def kernel(*body: Stmt, sub_group: int | None = 8) -> Kernel:
    return Kernel(
        "broken", (M, K, ALPHA, A, IMAGE, C), body, (2, 8), ((M + 15) // 16, ONE), sub_group, nonnegative=(M - 1,)
    )


def store(value: Expr, *index: Expr) -> Store:
    return Store(C, index or (ZERO, ZERO), value)


GOOD: tuple[Stmt, ...] = (
    Comment("All kinds of statements."),
    Let(X, local_id() * 4),
    Alloc(LOCAL),
    Alloc(REGS),
    Fill(TILE, Const(0.0, F32)),
    FragmentLoad(TILE, Tile(A, (ZERO, X), 4, 4), VECTOR, 4),
    CooperativeCopy(Tile(LOCAL, (ZERO, ZERO), 4, 4), Tile(A, (ZERO, X), 4, 4), VECTOR, 4),
    PipeOp("acquire", Pipe("p", 2, "none")),
    For(STEP, ZERO, K, 4, (Mma(TILE, TILE, TILE, ZERO, ZERO, 1, BROADCAST_FMA), Barrier())),
    For(STEP, ZERO, K, 4, (VectorCopy(REGS, (ZERO, ZERO), A, (ZERO, STEP), block_read(8), 4),)),
    VectorCopy(REGS, (ZERO, ZERO), IMAGE, (ZERO, ZERO), IMAGE_BLOCK_READ, 4),
    If(Call("group_id", (ONE,), I32) < K, (Barrier(),), (Barrier("none"),)),
    Store(REGS, (ZERO, ONE), Call("fma", (ALPHA, Call("broadcast", (HALF, ONE), F32), Load(LOCAL, (ZERO, ONE))), F32)),
    If(Bin("&&", X < K, ZERO < X), (Let(Var("y"), LANE),), (Let(Var("y"), ZERO),)),
    EpilogueStore(Tile(C, (ZERO, ZERO), 4, 4), TILE, ALPHA, Const(0.0, F32), SCALAR),
)


@pytest.mark.parametrize("stop", range(len(GOOD) + 1))
def test_a_valid_kernel_passes(stop: int) -> None:
    verify(kernel(*GOOD[:stop]), TARGETS["intel"])


def below(*stmts: Stmt) -> tuple[Stmt, ...]:
    return (Alloc(LOCAL), Alloc(REGS), *stmts)


BROKEN: dict[str, tuple[tuple[Stmt, ...], str]] = {
    # names
    "unbound": ((Let(X, Var("q") + 1),), "`let x: int32 = q + 1`: q is not bound"),
    "unbound after its block": (
        (If(K < 1, (Let(X, ZERO),)), store(HALF, X, ZERO)),
        "`c[x, 0] = 0.5`: x is not bound",
    ),
    "unbound in itself": ((Let(X, X + 1),), "x is not bound"),
    "unbound after the loop": ((For(STEP, ZERO, K, 1, ()), Let(X, STEP)), "i is not bound"),
    "rebound": ((Let(X, ZERO), Let(X, ONE)), "`let x: int32 = 1`: x already has a meaning here"),
    "parameter shadowed": ((For(M, ZERO, ONE, 1, ()),), "`for m in 0..1:`: m already has a meaning here"),
    "shadowed inside": ((Let(X, ZERO), For(X, ZERO, ONE, 1, ())), "x already has a meaning here"),
    "declared twice": ((Alloc(REGS), Alloc(REGS)), "regs already has a meaning here"),
    "other type": ((store(Var("m", F32)),), "m where it is bound and where it is used differ in type"),
    # buffers
    "undeclared": ((Store(REGS, (ZERO, ZERO), HALF),), "`regs[0, 0] = 0.5`: regs is not declared"),
    "undeclared load": ((store(Load(LOCAL, (ZERO, ZERO))),), "shared is not declared"),
    "undeclared tile": ((Fill(TILE, HALF),), "`fill regs = 0.5`: regs is not declared"),
    "no parameter": ((Store(replace(C, name="d"), (ZERO, ZERO), HALF),), "d is not declared"),
    "other declaration": (
        (Store(replace(C, layout=Layout.packed(4, 4)), (ZERO, ZERO), HALF),),
        "c is not used as it was declared",
    ),
    "global declared": ((Alloc(replace(A, name="d")),), "global buffer d is declared"),
    "run-time size": (
        (Alloc(replace(REGS, layout=Layout.pitched(M, ONE, ONE))),),
        "`alloc regs: private float32[m, 1]`: regs has extent m",
    ),
    "rank": ((store(HALF, ZERO),), "`c[0] = 0.5`: c has 2 dimensions, its index 1"),
    "rank of a load": ((store(Load(A, (ZERO,))),), "a has 2 dimensions, its index 1"),
    "rank of registers": (below(Fill(IN_SLOTS, HALF)), "regs has 2 dimensions, its index 3"),
    "float index": ((store(HALF, HALF, ZERO),), "0.5 is float32, not an integer"),
    "read only": ((Store(A, (ZERO, ZERO), HALF),), "`a[0, 0] = 0.5`: a is read only"),
    "image written": ((Store(IMAGE, (ZERO, ZERO), HALF),), "image is read only"),
    "tile written": (
        below(EpilogueStore(Tile(A, (ZERO, ZERO), 4, 4), TILE, ALPHA, HALF, SCALAR)),
        "`epilogue_store a[0, 0] 4x4 = alpha * regs + 0.5 * a`: a is read only",
    ),
    "not private": (below(Fill(replace(TILE, buffer=LOCAL), HALF)), "shared is local, not private"),
    # types
    "operands": ((Let(X, Bin("+", M, HALF)),), "the operands of m + 0.5 differ in type: int32 and float32"),
    "let": ((Let(X, HALF),), "x and its value differ in type"),
    "value": ((store(ONE),), "`c[0, 0] = 1`: c and the value differ in type"),
    "condition": ((If(M, ()),), "`if m:`: the condition is int32, not bool"),
    "select": ((Let(X, Select(M, ZERO, ONE)),), "the condition m is int32"),
    "sides": ((Let(X, Select(M < 1, ZERO, HALF)),), "the sides of m < 1 ? 0 : 0.5 differ in type"),
    "conjunction": ((If(Bin("&&", M, K), ()),), "&& on int32"),
    "sum of conditions": ((If(Bin("<", M < 1, K < 1), ()),), "< on bool"),
    "remainder of floats": ((store(Bin("%", ALPHA, HALF)),), "% on float32"),
    "literal": ((Let(X, Const(1.5, I32)),), "1.5 is not of type int32"),
    "loop": ((For(Var("f", F32), ZERO, K, 1, ()),), "f and its bounds differ in type"),
    # loops
    "step": ((For(STEP, ZERO, K, 0, ()),), "`for i in 0..k step 0:`: step 0 < 1"),
    # functions and atoms
    "function": ((Let(X, Call("sin", (), I32)),), "no function sin"),
    "arity": ((Let(X, Call("lane_id", (ZERO,), I32)),), "lane_id takes 0 arguments, not 1"),
    "dimension": ((Let(X, Call("local_id", (K,), I32)),), "local_id(k) has no constant dimension of 0, 1"),
    "fma": ((store(Call("fma", (HALF, ONE, HALF), F32)),), "fma and its arguments differ in type"),
    "width": (
        below(VectorCopy(REGS, (ZERO, ZERO), A, (ZERO, ZERO), VECTOR, 3)),
        "`regs[0, 0] <- vector_copy vector x3 a[0, 0]`: atom vector moves 2, 4, 8, 16 elements, not 3",
    ),
    "copy width": (
        below(FragmentLoad(TILE, Tile(A, (ZERO, ZERO), 4, 4), SCALAR, 4)),
        "atom scalar moves 1 elements, not 4",
    ),
    "no image": (below(VectorCopy(REGS, (ZERO, ZERO), A, (ZERO, ZERO), IMAGE_BLOCK_READ, 4)), "a is no image"),
    "move to what is read only": (
        below(VectorCopy(A, (ZERO, ZERO), REGS, (ZERO, ZERO), SCALAR, 1)),
        "a is read only",
    ),
    # barriers
    "divergent": ((If(local_id() < 1, (Barrier(),)),), "`barrier local`: a barrier where work-items of a group may"),
    "divergent by name": (
        (Let(X, local_id(1)), Let(Var("y"), X + M), If(Var("y") < K, (For(STEP, ZERO, K, 1, (Barrier("none"),)),))),
        "`barrier (no memory)`: a barrier where",
    ),
    "divergent else": ((If(LANE < 1, (), (Barrier(),)),), "a barrier where"),
    "divergent loop": ((For(STEP, ZERO, local_id(), 1, (Barrier(),)),), "a barrier where"),
    "divergent start": ((For(STEP, local_id(), K, 1, (If(STEP < K, (Barrier(),)),)),), "a barrier where"),
    # the rest
    "tiles": (
        below(CooperativeCopy(Tile(LOCAL, (ZERO, ZERO), 4, 4), Tile(A, (ZERO, ZERO), 8, 4), SCALAR)),
        "the tiles differ in size",
    ),
    "half a stage": (
        below(CooperativeCopy(Tile(LOCAL, (ZERO, ZERO), 4, 4), Tile(A, (ZERO, ZERO), 4, 4), SCALAR, part="load")),
        "a load with no registers between",
    ),
    "no stages": ((PipeOp("wait", Pipe("p", 0, "none")),), "pipe p has 0 stages"),
    "comment": ((Comment("one\ntwo"),), "a comment of more than one line"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_kernel_is_rejected(name: str) -> None:
    body, message = BROKEN[name]
    with pytest.raises(LoweringError, match=re.escape(message)) as caught:
        verify(kernel(*body), TARGETS["intel"])
    assert str(caught.value).startswith("kernel broken, `")


@pytest.mark.parametrize(
    ("stmt", "message"),
    [
        (Let(X, LANE), "lane_id needs sub_groups, which portable lacks"),
        (store(Call("broadcast", (HALF, ZERO), F32)), "broadcast needs sub_groups"),
        (Mma(TILE, TILE, TILE, ZERO, ZERO, 1, BROADCAST_FMA), "atom broadcast_fma needs sub_groups"),
        (VectorCopy(REGS, (ZERO, ZERO), A, (ZERO, ZERO), block_read(8), 4), "atom block_read needs block_read"),
        (FragmentLoad(TILE, Tile(A, (ZERO, ZERO), 4, 4), block_read(8), 4), "atom block_read needs block_read"),
    ],
)
def test_what_the_target_lacks(stmt: Stmt, message: str) -> None:
    with pytest.raises(LoweringError, match=message):
        verify(kernel(*below(stmt)), TARGETS["portable"])
    verify(kernel(*below(Mma(TILE, TILE, TILE, ZERO, ZERO, 1, FMA))), TARGETS["portable"])


@pytest.mark.parametrize("stmt", [Let(X, LANE), VectorCopy(REGS, (ZERO, ZERO), A, (ZERO, ZERO), block_read(8), 4)])
def test_sub_groups_need_a_size(stmt: Stmt) -> None:
    with pytest.raises(LoweringError, match="in a kernel that requires no sub-group size"):
        verify(kernel(*below(stmt), sub_group=None), TARGETS["intel"])


def test_the_head() -> None:
    good = kernel()
    for head in (
        replace(good, params=(M, *good.params)),
        replace(good, params=good.params[1:]),
        replace(good, params=(*good.params, LOCAL)),
        replace(good, grid=(X, ONE)),
    ):
        with pytest.raises(LoweringError, match="kernel broken, its head: "):
            verify(head, TARGETS["intel"])


def test_facts_speak_of_names_at_the_top() -> None:
    named = replace(kernel(Let(X, M + 1)), nonnegative=(X - 1,))
    verify(named, TARGETS["intel"])
    verify(replace(kernel(For(Var("i"), Const(0), M, 1, (Let(X, M + 1),))), nonnegative=(X - 1,)), TARGETS["intel"])
    inside = replace(kernel(If(M < K, (Let(X, M + 1),))), nonnegative=(X - 1,))
    for broken in (replace(named, body=()), inside, replace(named, nonnegative=(Bin("<", M, K),))):
        with pytest.raises(LoweringError, match="kernel broken, its facts: "):
            verify(broken, TARGETS["intel"])
    assert (M < K).dtype == BOOL
