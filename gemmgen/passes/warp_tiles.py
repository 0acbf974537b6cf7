"""Expand tiles that a warp multiplies as one: loads of whole lines into its operands, and matrix instructions."""

from __future__ import annotations

from collections.abc import Callable

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.expr import Call, Const, Expr, Load, Var, as_int
from gemmgen.ir.stmt import Alloc, Body, Copy, Mma, Move, Multiply, Registers, Store
from gemmgen.ir.warp_matrix import HIGH, LINES, WIDE, WarpAtom
from gemmgen.passes.loops import loop
from gemmgen.passes.positions import LANE, WARP_COL, WARP_ROW

ROW, COL, ELEMENT = Var("i"), Var("j"), Var("e")
#: Gives a value a name at the kernel's top.
Namer = Callable[[str, Expr, int], Expr]


def load_lines(copy: Copy, named: Namer) -> Body:
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
    band, half = (odd, upper) if matrices.bands_first else (upper, odd)
    line, k = band * bands.lanes + (WARP_ROW if of_a else WARP_COL), half * (depth.extent // 2)
    line, k = (line, k + LANE % LINES) if matrices.turned else (line + LANE % LINES, k)
    name, axis, var = ("a", "row", ROW) if of_a else ("b", "col", COL)
    own, own_k = named(f"{name}_line_{axis}", line, 1), named(f"{name}_line_k", k, 1)
    own = own + var * (at_once * bands.lanes)
    place = src.at(own, own_k) if of_a else src.at(own_k, own)
    to = (var * at_once, Const(0)) if of_a else (Const(0), var * at_once)
    move = Move(copy.dst.buffer, copy.dst.at(*to), src.buffer, place, copy.atom, copy.width, ahead=copy.ahead)
    return loop(var, bands.values // at_once, (move,))


def multiply_by_warp(mma: Mma, atom: WarpAtom) -> Body:
    """Instructions over the bands of A and of B."""
    if atom.products > 1:
        return multiply_in_terms(mma, atom)
    acc, a, b = mma.acc, mma.a, mma.b
    zero = Const(0)
    step = Multiply(
        acc.buffer,
        acc.at(ROW * HIGH, COL * WIDE),
        a.buffer,
        a.at(ROW * HIGH, zero),
        b.buffer,
        b.at(zero, COL),
        atom,
    )
    rows, cols = acc.fragment.rows.values // HIGH, acc.fragment.cols.values // WIDE
    rounded = (*_rounded(a), *_rounded(b)) if atom.rounds else ()
    return (*rounded, *loop(ROW, rows, loop(COL, cols, (step,))))


def _rounded(operand: Registers) -> Body:
    """An operand's elements as the instruction takes them; it would drop the bits that it lacks."""
    fragment = operand.fragment
    slow, fast = (fragment.cols, fragment.rows) if fragment.transposed else (fragment.rows, fragment.cols)
    place = operand.at(*((ELEMENT, ROW) if fragment.transposed else (ROW, ELEMENT)))
    value = Call("tf32", (Load(operand.buffer, place),), operand.buffer.dtype)
    return loop(ROW, slow.values, loop(ELEMENT, fast.values, (Store(operand.buffer, place, value),)))


# --- elements in two terms ------------------------------------------------------------------------


def multiply_in_terms(mma: Mma, atom: WarpAtom) -> Body:
    """Three products of heads and rests, small ones first, of a column of tiles at a time, so that instructions which
    follow each other need not wait for each other's sums. Elements are their own heads: the instruction cuts them.
    """
    a, b, acc = mma.a, mma.b, mma.acc
    (a_rest, rest_of_a), (b_rest, rest_of_b) = _rest_of(a), _rest_of(b)
    rows, cols = acc.fragment.rows.values // HIGH, acc.fragment.cols.values // WIDE

    def product(left: Registers, right: Registers) -> Body:
        to = acc.at(ROW * HIGH, COL * WIDE)
        a_at, b_at = left.at(ROW * HIGH, Const(0)), right.at(Const(0), COL)
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
