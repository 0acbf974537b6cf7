"""Mbarriers, views, sums and memory that is used twice: what the verifier asks of them, and how the IR is walked."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import SCALAR, VECTOR, AxisLayout, ThreadValueLayout
from gemmgen.ir.dtypes import F32, I32
from gemmgen.ir.expr import Call, Const, Expr, Var
from gemmgen.ir.kernel import Kernel, local_bytes, uses_features
from gemmgen.ir.show import show_stmt
from gemmgen.ir.stmt import Alloc, For, If, PointerIncrement, PointerInit, Reduction, Registers, Stmt, Tile, VectorCopy
from gemmgen.ir.synchronization import Barrier, Mbarrier, Pipe, PipeOp
from gemmgen.ir.target import FEATURES, TARGETS
from gemmgen.ir.verify import verify
from gemmgen.ir.walk import exprs, map_stmt_exprs, substitute, walk_expr

K, X, Y = Var("k"), Var("x"), Var("y")
ZERO, HALF = Const(0), Const(0.5, F32)
A = Buffer("a", F32, Space.GLOBAL, Layout.pitched(K, K, K), writable=False)
RING = Buffer("ring", F32, Space.LOCAL, Layout.packed(4, 8, 8))
VIEW = Buffer("view", F32, Space.VIEW, Layout.packed(8, 8))
PLANES = Buffer("planes", F32, Space.LOCAL, Layout.packed(2, 8, 8))
REGS = Buffer("regs", F32, Space.PRIVATE, Layout.packed(4, 4))
TILE = Registers(REGS, ThreadValueLayout(AxisLayout(4), AxisLayout(4)))
LOCAL_ID = Call("local_id", (ZERO,), I32)
#: Everything at once, which no device has, so that a lack is the only reason to refuse.
ALL = replace(TARGETS["sm_90"], name="all", features=frozenset(FEATURES))


def kernel(*body: Stmt) -> Kernel:
    return Kernel("broken", (K, A), body, (4, 8), (Const(1), Const(1)))


def mbarrier_at(index: Expr, parity: Expr = ZERO) -> Mbarrier:
    return Mbarrier("wait", "full", 4, index, parity)


GOOD: tuple[Stmt, ...] = (
    Alloc(RING),
    Alloc(REGS),
    Mbarrier("init", "full", 4, LOCAL_ID),
    Barrier(),
    PointerInit(VIEW, RING, (ZERO, LOCAL_ID, ZERO)),
    For(
        X,
        ZERO,
        K,
        1,
        (mbarrier_at(X % 4, X // 4 % 2), Mbarrier("arrive", "full", 4, X % 4), PointerIncrement(VIEW, Const(64))),
    ),
    VectorCopy(REGS, (ZERO, ZERO), VIEW, (ZERO, LOCAL_ID), VECTOR, 4, ahead=True),
    PipeOp("acquire", Pipe("p", 8, "mbarrier", batch=4)),
    Barrier(),
    Alloc(PLANES, reuses=True),
    Reduction(TILE, Tile(PLANES, (ZERO, ZERO, ZERO), 4, 4), 2, VECTOR, 4),
)


@pytest.mark.parametrize("stop", range(len(GOOD) + 1))
def test_a_valid_kernel_passes(stop: int) -> None:
    verify(kernel(*GOOD[:stop]), ALL)


def below(*stmts: Stmt) -> tuple[Stmt, ...]:
    return (Alloc(RING), Alloc(REGS), *stmts)


BROKEN: dict[str, tuple[tuple[Stmt, ...], str]] = {
    "a wait of some": ((If(LOCAL_ID < 1, (mbarrier_at(ZERO),)),), "a barrier where work-items of a group may have"),
    "an arrival of some": (
        (If(LOCAL_ID < 1, (Mbarrier("arrive", "full", 4, ZERO),)),),
        "`arrive at mbarrier full[0]`: a barrier where work-items",
    ),
    "in a loop of one's own": ((For(X, ZERO, LOCAL_ID, 1, (mbarrier_at(X),)),), "a barrier where work-items"),
    "unbound index": ((mbarrier_at(X),), "`wait for mbarrier full[x] parity 0`: x is not bound"),
    "unbound parity": ((mbarrier_at(ZERO, Y),), "y is not bound"),
    "float index": ((mbarrier_at(HALF),), "0.5 is float32, not an integer"),
    "float parity": ((mbarrier_at(ZERO, HALF),), "0.5 is float32, not an integer"),
    "uneven batches": ((PipeOp("wait", Pipe("p", 6, "mbarrier", batch=4)),), "pipe p has batches of different sizes"),
    "a view of global memory": (
        (PointerInit(VIEW, A, (ZERO, ZERO)),),
        "`pointer view = &a[0, 0]`: a is global, not local",
    ),
    "no view": (below(PointerInit(REGS, RING, (ZERO, ZERO, ZERO))), "regs is private, not view"),
    "a view of what is not declared": ((PointerInit(VIEW, RING, (ZERO, ZERO, ZERO)),), "ring is not declared"),
    "a view's rank": (below(PointerInit(VIEW, RING, (ZERO, ZERO))), "ring has 3 dimensions, its index 2"),
    "a view's type": (
        below(PointerInit(replace(VIEW, dtype=I32), RING, (ZERO, ZERO, ZERO))),
        "view and ring differ in type",
    ),
    "a view twice": (below(*(PointerInit(VIEW, RING, (ZERO, ZERO, ZERO)),) * 2), "view already has a meaning here"),
    "an unbound start": (below(PointerInit(VIEW, RING, (X, ZERO, ZERO))), "x is not bound"),
    "a view that is declared": ((Alloc(VIEW),), "view buffer view is declared"),
    "moved before it points": ((PointerIncrement(VIEW, ZERO),), "`pointer view += 0`: view is not declared"),
    "moved what is no view": (below(PointerIncrement(RING, ZERO)), "ring cannot be moved"),
    "moved by a fraction": (
        below(PointerInit(VIEW, RING, (ZERO,) * 3), PointerIncrement(VIEW, HALF)),
        "0.5 is float32, not an",
    ),
    "moved by what is unbound": (
        below(PointerInit(VIEW, RING, (ZERO,) * 3), PointerIncrement(VIEW, X)),
        "x is not bound",
    ),
    "a view after its block": (
        below(If(K < 1, (PointerInit(VIEW, RING, (ZERO,) * 3),)), PointerIncrement(VIEW, ZERO)),
        "view is not declared",
    ),
    "sum of nothing": (below(Reduction(TILE, Tile(RING, (ZERO,) * 3, 4, 4), 0, SCALAR)), "a sum of 0 tiles"),
    "sum of what is not declared": (
        (Alloc(REGS), Reduction(TILE, Tile(PLANES, (ZERO,) * 3, 4, 4), 2, SCALAR)),
        "planes is not declared",
    ),
    "sum into local memory": (
        below(Reduction(replace(TILE, buffer=RING), Tile(RING, (ZERO,) * 3, 4, 4), 2, SCALAR)),
        "ring is local, not private",
    ),
    "sum at an unbound place": (below(Reduction(TILE, Tile(RING, (X, ZERO, ZERO), 4, 4), 2, SCALAR)), "x is not bound"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_kernel_is_rejected(name: str) -> None:
    body, message = BROKEN[name]
    with pytest.raises(LoweringError, match=re.escape(message)) as caught:
        verify(kernel(*body), ALL)
    assert str(caught.value).startswith("kernel broken, `")


def test_older_devices_have_no_mbarriers() -> None:
    with pytest.raises(LoweringError, match="an mbarrier needs mbarrier, which sm_80 lacks"):
        verify(kernel(mbarrier_at(ZERO)), TARGETS["sm_80"])
    assert uses_features(kernel(mbarrier_at(ZERO))) == {"mbarrier"}
    assert uses_features(kernel(Barrier())) == frozenset()


# --- walking --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stmt",
    [
        mbarrier_at(X, X // 4 % 2),
        Mbarrier("arrive", "full", 4, X + Y),
        PointerInit(VIEW, RING, (X, Y, X + 1)),
        PointerIncrement(VIEW, X * 64),
        Reduction(TILE, Tile(RING, (X, Y, ZERO), 4, 4), 2, SCALAR),
        VectorCopy(REGS, (X, ZERO), VIEW, (ZERO, Y), SCALAR, 1, ahead=True),
        VectorCopy(RING, (X, Y, ZERO), A, (ZERO, Y), SCALAR, 1, valid=X + Y),
    ],
    ids=lambda stmt: type(stmt).__name__,
)
def test_every_expression_is_seen_and_rewritten(stmt: Stmt) -> None:
    """What `exprs` yields is what is rewritten: no variable is left, and the text shows both in the same places."""
    names = {part.name for root in exprs(stmt) for part in walk_expr(root) if isinstance(part, Var)}
    assert names == set(re.findall(r"\b[xy]\b", show_stmt(stmt)))
    rewritten = map_stmt_exprs(stmt, substitute({X: Const(5), Y: Const(6)}))
    assert not [part for root in exprs(rewritten) for part in walk_expr(root) if isinstance(part, Var)]
    assert type(rewritten) is type(stmt)
    assert getattr(rewritten, "ahead", None) == getattr(stmt, "ahead", None)


def test_memory_that_is_used_twice_counts_once() -> None:
    ring, planes = RING.bytes, PLANES.bytes
    assert (ring, planes) == (1024, 512)
    assert local_bytes(kernel(Alloc(RING), Alloc(PLANES))) == ring + planes
    assert local_bytes(kernel(Alloc(RING), Alloc(PLANES, reuses=True))) == ring
    large = replace(PLANES, layout=Layout.packed(8, 8, 8))
    assert local_bytes(kernel(Alloc(RING), Alloc(large, reuses=True))) == large.bytes
