"""Expand a product of fragments: multiply-adds of single elements, or matrix instructions of a warp and their loads."""

from __future__ import annotations

from collections.abc import Callable

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import AxisLayout
from gemmgen.ir.expr import Call, Const, Expr, Load, Var, as_int, compare, conj, select
from gemmgen.ir.instructions import BROADCAST_FMA, LINES, MMA_HIGH, MMA_WIDE, Instruction
from gemmgen.ir.kernel import COL, DEPTH, ELEMENT, ROW, loop
from gemmgen.ir.stmt import Alloc, Body, Comment, FragmentLoad, Let, Mma, Multiply, Registers, Store, VectorCopy
from gemmgen.positions import LANE, WARP_COL, WARP_ROW

# --- multiply-adds --------------------------------------------------------------------------------


def multiply_adds(mma: Mma, atom: Instruction) -> Body:
    """Multiply-adds over rows, columns and depth, nested as the atom asks."""
    if atom.depth > 1:
        return _dot_products(mma, atom)
    acc, a, b = mma.acc, mma.a, mma.b
    a_k, b_k = mma.a_k + DEPTH, mma.b_k + DEPTH
    counts = {"i": acc.fragment.rows.values, "j": acc.fragment.cols.values, "k": mma.depth}
    turn = Var("turn")
    column: Expr = turn if atom.snake and counts["i"] > 1 else COL
    broadcast = atom is BROADCAST_FMA
    a_value: Expr = _shared(a, ROW, a_k) if broadcast else Load(a.buffer, a.at(ROW, a_k))
    b_value: Expr = Load(b.buffer, b.at(b_k, column))
    a_value, b_value = (conj(x) if c else x for x, c in zip((a_value, b_value), mma.conj, strict=True))
    at, dtype = acc.at(ROW, column), acc.buffer.dtype
    names = {"i": ROW, "j": COL, "k": DEPTH}
    shared = Var("a_value", dtype)
    factor = shared if broadcast else a_value
    body: Body = (Store(acc.buffer, at, Call("fma", (factor, b_value, Load(acc.buffer, at)), dtype)),)
    if column is turn:
        forward = compare("==", ROW % 2, 0)
        body = (Let(turn, select(forward, COL, Const(counts["j"] - 1) - COL)), *body)
    for axis in reversed(atom.order):
        body = loop(names[axis], counts[axis], body)
        if axis == "j" and broadcast:
            body = (Let(shared, a_value), *body)
    return body


def _dot_products(mma: Mma, atom: Instruction) -> Body:
    """The same by an instruction that goes deeper than an element."""
    acc, a, b = mma.acc, mma.a, mma.b
    a_at, b_at = a.at(ROW, mma.a_k + DEPTH * atom.depth), b.at(mma.b_k + DEPTH * atom.depth, COL)
    body: Body = (Multiply(acc.buffer, acc.at(ROW, COL), a.buffer, a_at, b.buffer, b_at, atom),)
    counts = {"i": acc.fragment.rows.values, "j": acc.fragment.cols.values, "k": mma.depth // atom.depth}
    for axis in reversed(atom.order):
        body = loop({"i": ROW, "j": COL, "k": DEPTH}[axis], counts[axis], body)
    return body


def _shared(registers: Registers, row: Expr, k: Expr) -> Expr:
    """A's element (row, k), from the lane of the sub-group that holds it."""
    fragment = registers.fragment
    row_value, row_lane = _holder(fragment.rows, row)
    k_value, k_lane = _holder(fragment.cols, k)
    element = Load(registers.buffer, registers.at(row_value, k_value))
    return Call("broadcast", (element, k_lane if fragment.cols.lanes > 1 else row_lane), registers.buffer.dtype)


def _holder(spread: AxisLayout, element: Expr) -> tuple[Expr, Expr]:
    """The (value, lane) that holds an element of an axis dealt out to lanes one by one."""
    if spread.lanes == 1:
        return element, Const(0)
    if spread.values == 1:
        return Const(0), element
    return element // spread.lanes, element % spread.lanes


# --- matrix instructions of a warp ----------------------------------------------------------------

#: Gives a value a name at the kernel's top.
Namer = Callable[[str, Expr, int], Expr]


def load_lines(copy: FragmentLoad, named: Namer) -> Body:
    """An operand by `ldmatrix`. A band is eight of its rows (of B, columns); as deep as an instruction of the
    arithmetic it is two matrices. Lanes 8 to 15 name the lines of the second matrix, and so on.
    """
    fragment, src, matrices = copy.dst.fragment, copy.src, copy.atom.matrices
    if matrices is None:
        raise LoweringError(f"{copy.atom.name} loads no matrices")
    of_a = not fragment.transposed
    bands, depth = (fragment.rows, fragment.cols) if of_a else (fragment.cols, fragment.rows)
    at_once = copy.width // depth.values
    odd, upper = LANE // LINES % 2, LANE // (2 * LINES)
    band, half = (odd, upper) if matrices.rows_first else (upper, odd)
    # A load brings no more bands than lie side by side, where any do.
    apart = bands.lanes if bands.repeats == 1 else bands.inner_lanes
    line, k = band * apart + (WARP_ROW if of_a else WARP_COL) * bands.repeats, half * (depth.extent // 2)
    line, k = (line, k + LANE % LINES) if matrices.transposed else (line + LANE % LINES, k)
    name, axis, var = ("a", "row", ROW) if of_a else ("b", "col", COL)
    own, own_k = named(f"{name}_line_{axis}", line, 1), named(f"{name}_line_k", k, 1)
    own = own + bands.step(var * at_once)
    place = src.at(own, own_k) if of_a else src.at(own_k, own)
    to = (var * at_once, Const(0)) if of_a else (Const(0), var * at_once)
    move = VectorCopy(copy.dst.buffer, copy.dst.at(*to), src.buffer, place, copy.atom, copy.width, ahead=copy.ahead)
    return loop(var, bands.values // at_once, (move,))


def multiply_by_warp(mma: Mma, atom: Instruction) -> Body:
    """Instructions over the bands of A and of B."""
    if atom.products > 1:
        return multiply_in_terms(mma, atom)
    acc, a, b = mma.acc, mma.a, mma.b
    high, wide, rounds = atom.c.rows.values, atom.c.cols.values, mma.depth // atom.depth
    k = DEPTH * atom.a.cols.values if rounds > 1 else Const(0)
    step = Multiply(
        acc.buffer,
        acc.at(ROW * high, COL * wide),
        a.buffer,
        a.at(ROW * atom.a.rows.values, k),
        b.buffer,
        b.at(k, COL * atom.b.cols.values),
        atom,
    )
    rows, cols = acc.fragment.rows.values // high, acc.fragment.cols.values // wide
    rounded = (*_rounded(a), *_rounded(b)) if atom.rounds else ()
    mirrored = atom.rows < atom.cols
    say = (Comment("Operands are exchanged: columns of B are the instruction's rows."),) if mirrored else ()
    return (*rounded, *say, *loop(DEPTH, rounds, loop(ROW, rows, loop(COL, cols, (step,)))))


def _rounded(operand: Registers) -> Body:
    """An operand's elements as the instruction takes them; it would drop the bits that it lacks."""
    fragment = operand.fragment
    slow, fast = (fragment.cols, fragment.rows) if fragment.transposed else (fragment.rows, fragment.cols)
    place = operand.at(*((ELEMENT, ROW) if fragment.transposed else (ROW, ELEMENT)))
    value = Call("tf32", (Load(operand.buffer, place),), operand.buffer.dtype)
    return loop(ROW, slow.values, loop(ELEMENT, fast.values, (Store(operand.buffer, place, value),)))


# --- elements in two terms ------------------------------------------------------------------------


def multiply_in_terms(mma: Mma, atom: Instruction) -> Body:
    """Three products of heads and rests, small ones first, of a column of tiles at a time, so that instructions which
    follow each other need not wait for each other's sums. Elements are their own heads: the instruction cuts them.
    """
    a, b, acc = mma.a, mma.b, mma.acc
    (a_rest, rest_of_a), (b_rest, rest_of_b) = _rest_of(a), _rest_of(b)
    rows, cols = acc.fragment.rows.values // MMA_HIGH, acc.fragment.cols.values // MMA_WIDE

    def product(left: Registers, right: Registers) -> Body:
        to = acc.at(ROW * MMA_HIGH, COL * MMA_WIDE)
        a_at, b_at = left.at(ROW * MMA_HIGH, Const(0)), right.at(Const(0), COL)
        return loop(ROW, rows, (Multiply(acc.buffer, to, left.buffer, a_at, right.buffer, b_at, atom.of_heads),))

    column = (*product(a_rest, b), *product(a, b_rest), *product(a, b))
    return (*rest_of_a, *rest_of_b, *loop(COL, cols, column))


def _rest_of(operand: Registers) -> tuple[Registers, Body]:
    """What an operand's elements have beside their heads, and the statements that work it out."""
    buffer, fragment = operand.buffer, operand.fragment
    layout = Layout.packed(*(extent for extent in map(as_int, buffer.shape[-2:]) if extent is not None))
    name = f"{buffer.name.partition('_')[0]}_rest"
    rest = Registers(Buffer(name, buffer.dtype, Space.PRIVATE, layout), fragment)
    slow, fast = (fragment.cols, fragment.rows) if fragment.transposed else (fragment.rows, fragment.cols)
    at = (ELEMENT, ROW) if fragment.transposed else (ROW, ELEMENT)
    value = Call("tf32_finite_rest", (Load(buffer, operand.at(*at)),), buffer.dtype)
    each = loop(ELEMENT, fast.values, (Store(rest.buffer, rest.at(*at), value),))
    return rest, (Alloc(rest.buffer), *loop(ROW, slow.values, each))
