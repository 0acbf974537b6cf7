"""Kernels that are not run at all: pipes out of order, tiles that are not lowered, arguments that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from gemmgen.errors import KernelFault, LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import SCALAR, AxisLayout, ThreadValueLayout
from gemmgen.ir.dtypes import F32
from gemmgen.ir.expr import Const
from gemmgen.ir.instructions import FMA
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.pipe_checks import check_pipes
from gemmgen.ir.stmt import Alloc, Body, CooperativeCopy, Fill, For, FragmentLoad, If, Mma, Registers, Stmt, Tile
from gemmgen.ir.synchronization import Pipe, PipeOp, PipeVerb
from gemmgen.simulator.execute import run
from tests.interp.test_broken_kernels import K0, KK, TILE, ZERO, A, K, product, shared, tiny

PIPE = Pipe("tiles", 2, "barrier")
SLOTS = Tile(shared("a_shared", 2), (ZERO, ZERO, ZERO), TILE, TILE, pipe=PIPE)
WHOLE = Tile(A, (ZERO, K0), TILE, TILE)
FRAG = Registers(
    Buffer("a_frag", F32, Space.PRIVATE, Layout.packed(TILE, TILE)),
    ThreadValueLayout(AxisLayout(TILE), AxisLayout(TILE)),
)
STAGE, READ = CooperativeCopy(SLOTS, WHOLE, SCALAR), FragmentLoad(FRAG, SLOTS, SCALAR)


def verb(name: PipeVerb) -> PipeOp:
    return PipeOp(name, PIPE)


ACQUIRE, COMMIT, WAIT, RELEASE = verb("acquire"), verb("commit"), verb("wait"), verb("release")


def piped(*body: Stmt) -> Kernel:
    return tiny(For(K0, ZERO, K, TILE, body))


def test_pipes_in_order() -> None:
    inner = For(KK, ZERO, Const(TILE), 1, (READ, Mma(FRAG, FRAG, FRAG, ZERO, ZERO, 1, FMA)))
    check_pipes(piped(ACQUIRE, STAGE, COMMIT, WAIT, inner, RELEASE))


@pytest.mark.parametrize(
    ("body", "statement"),
    [
        ((ACQUIRE, STAGE, WAIT, READ, RELEASE), "wait tiles (2 stages, sync barrier)"),
        (
            (STAGE, ACQUIRE, COMMIT, WAIT, READ, RELEASE),
            "a_shared[0, 0, 0] 4x4 of tiles <- cooperative_copy x1 a[0, k0] 4x4",
        ),
        (
            (ACQUIRE, STAGE, COMMIT, READ, WAIT, RELEASE),
            "a_frag <- fragment_load scalar x1 a_shared[0, 0, 0] 4x4 of tiles",
        ),
        (
            (ACQUIRE, STAGE, COMMIT, WAIT, RELEASE, READ),
            "a_frag <- fragment_load scalar x1 a_shared[0, 0, 0] 4x4 of tiles",
        ),
        ((ACQUIRE, STAGE, COMMIT, WAIT, READ), "for k0 in 0..k step 4:"),
        ((ACQUIRE, ACQUIRE, STAGE, COMMIT, WAIT, READ, RELEASE), "acquire tiles"),
        ((RELEASE, ACQUIRE, STAGE, COMMIT, WAIT), "release tiles"),
        ((ACQUIRE, STAGE, If(K0 < 4, (COMMIT,)), WAIT, READ, RELEASE), "if k0 < 4:"),
        (
            (ACQUIRE, STAGE, FragmentLoad(FRAG, WHOLE, SCALAR), COMMIT, WAIT, RELEASE),
            "a_frag <- fragment_load scalar x1 a[0, k0] 4x4",
        ),
    ],
    ids=[
        "no commit",
        "fill too early",
        "read too early",
        "read too late",
        "no release",
        "twice",
        "transposed",
        "if",
        "ahead",
    ],
)
def test_pipes_out_of_order(body: Body, statement: str) -> None:
    with pytest.raises(KernelFault) as caught:
        check_pipes(piped(*body))
    assert caught.value.kind == "pipe"
    assert caught.value.statement.startswith(statement)
    assert "tiles" in caught.value.detail


def test_a_pipe_that_is_not_given_back() -> None:
    with pytest.raises(KernelFault, match="pipe tiles ends after commit"):
        check_pipes(tiny(ACQUIRE, COMMIT))


def test_tiles_have_to_be_lowered() -> None:
    registers = Registers(
        Buffer("acc", F32, Space.PRIVATE, Layout.packed(1, 1)), ThreadValueLayout(AxisLayout(1), AxisLayout(1))
    )
    with pytest.raises(LoweringError, match=r"`fill acc = 0\.0` is not an instruction: lower it first"):
        product(tiny(Alloc(registers.buffer), Fill(registers, Const(0.0, F32))))


def test_arguments_have_to_fit() -> None:
    with pytest.raises(ValueError, match="takes m, n, k, a, b, c"):
        run(tiny(), {"m": 1})
    doubles = np.zeros(1)
    with pytest.raises(ValueError, match="argument a is not an array of float32"):
        run(tiny(), {"m": 1, "n": 1, "k": 1, "a": doubles, "b": doubles, "c": doubles})
