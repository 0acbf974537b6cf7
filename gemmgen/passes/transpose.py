"""The packing kernel: B = transpose of A, a square block per sub-group, by shuffles.

Lane l of a sub-group of S lanes reads column l of an S x S block, a row at a time, so that every read is
contiguous across the sub-group. log2(S) rounds then exchange halves between lanes that differ in one bit
of their number, as in the transpose by shuffles of Intel's oneAPI GPU Optimization Guide, after which lane
l holds row l; every write is contiguous too.
"""

from __future__ import annotations

from gemmgen.errors import ScheduleError
from gemmgen.ir.atoms import SCALAR
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import BOOL, F32, I32, DType
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Var, ceil_div, compare, select
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Alloc, Body, Comment, Let, Move, Stmt, Store
from gemmgen.ir.target import Target
from gemmgen.names import name_problem
from gemmgen.passes.expand import ROW as I
from gemmgen.passes.loops import loop
from gemmgen.passes.positions import call
from gemmgen.passes.sub_group_size import unless_in_sub_groups_of
from gemmgen.passes.types import lacking
from gemmgen.spec import GemmSpec

ROWS, COLS, ROW0, COL0, LANE, INDEX = (Var(n) for n in ("rows", "cols", "row0", "col0", "lane", "i"))


def build_transpose(spec: GemmSpec, block: int, target: Target, name: str | None = None) -> Kernel:
    """The kernel that transposes a matrix of `rows` x `cols`. Raises: ScheduleError."""
    dtype = spec.dtype
    _validate(block, dtype, target, name)
    a = Buffer("a", dtype, Space.GLOBAL, Layout.pitched(ROWS, COLS, Var("lda")), writable=False)
    b = Buffer("b", dtype, Space.GLOBAL, Layout.pitched(COLS, ROWS, Var("ldb")))
    tile = Buffer("tile", dtype, Space.PRIVATE, Layout.packed(block))
    read = Move(tile, (INDEX,), a, (ROW0 + INDEX, COL0 + LANE), SCALAR, 1)
    write = Store(b, (COL0 + INDEX, ROW0 + LANE), Load(tile, (INDEX,)))
    body: Body = (
        Let(LANE, Call("lane_id", (), I32)),
        Let(ROW0, Call("group_id", (Const(1),), I32) * block),
        Let(COL0, Call("group_id", (Const(0),), I32) * block),
        *unless_in_sub_groups_of(block, target, b, (COL0 + I, ROW0 + call("local_id", 0)), (block, 1), dtype),
        Alloc(tile),
        Comment("Each lane reads a column of the block."),
        *loop(INDEX, block, (read,)),
        *_rounds(tile, block),
        Comment("Each lane now holds a row."),
        *loop(INDEX, block, (write,)),
    )
    grid = (ceil_div(ROWS, block), ceil_div(COLS, block))
    params = (ROWS, COLS, a, Var("lda"), b, Var("ldb"))
    return Kernel(name or f"transpose_sg{block}", params, body, (1, block), grid, block)


def _rounds(tile: Buffer, block: int) -> Body:
    """Exchange across one bit of the lane number after the other."""
    out: list[Stmt] = []
    bit = 1
    while bit < block:
        out.append(Comment(f"Exchange between lanes that differ in bit {bit} of their number."))
        out += loop(INDEX, block // 2, _exchange(tile, bit))
        bit *= 2
    return tuple(out)


def _exchange(tile: Buffer, bit: int) -> Body:
    """Registers r and r + bit of a lane against those of lane ^ bit."""
    low: Expr = INDEX // bit * (2 * bit) + INDEX % bit
    lower, upper = Load(tile, (Var("low"),)), Load(tile, (Var("low") + bit,))
    is_low = Var("is_low", BOOL)
    given = Var("received", tile.dtype)
    received = Call("shuffle_xor", (select(is_low, upper, lower), Const(bit)), tile.dtype)
    return (
        Let(Var("low"), low),
        Let(is_low, compare("==", Bin("&", LANE, Const(bit)), 0)),
        Let(given, received),
        Store(tile, (Var("low"),), select(is_low, lower, given)),
        Store(tile, (Var("low") + bit,), select(is_low, given, upper)),
    )


def _validate(block: int, dtype: DType, target: Target, name: str | None) -> None:
    problems = []
    if name is not None and (problem := name_problem(name)) is not None:
        problems.append(problem)
    problems += lacking(dtype, target)
    if dtype.size < F32.size:
        problems.append(f"dtype {dtype}, but lanes exchange registers of 4 or 8 bytes: use float32 or float64")
    if dtype.real is not None:
        problems.append(f"dtype {dtype}, but lanes exchange real numbers: transpose it on the host, or use --layout")
    if block < 2 or block & (block - 1):
        problems.append(f"sub-group size {block} is not a power of two from 2 up: use 8, 16 or 32")
    if "sub_groups" not in target.features:
        problems.append(f"target {target.name!r} has no sub-groups to shuffle in: use target intel or khr")
    elif target.sub_group_sizes and block not in target.sub_group_sizes:
        sizes = ", ".join(map(str, target.sub_group_sizes))
        problems.append(f"sub-group size {block} is not one of target {target.name!r}: use one of {sizes}")
    if problems:
        raise ScheduleError(problems)
