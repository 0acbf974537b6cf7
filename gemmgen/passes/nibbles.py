"""Elements that lie two to a byte, as the bytes that they are: loads of bytes, and halves taken out in registers.

Until here a matrix of int4 has a place for each element, as any other, so that bounds are checked by elements. A vector
of them is loaded as bytes of half the number. Registers hold the numbers, in float32.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import BYTE_OF_PAIR, PAIR, in_pairs
from gemmgen.ir.dtypes import F32, FLOAT16, I8
from gemmgen.ir.expr import Call, Const, Expr, Load, ceil_div
from gemmgen.ir.kernel import ELEMENT, Kernel, loop
from gemmgen.ir.stmt import Alloc, Block, Body, PointerIncrement, Stmt, Store, VectorCopy, made_of
from gemmgen.ir.walk import map_body, map_body_exprs

_Part = TypeVar("_Part")
#: Elements of a word: so many become 16-bit floats at a time, by their bits.
PAIRS_OF_WORD = 8


def nibbles(kernel: Kernel) -> Kernel:
    """The kernel with bytes in place of pairs of elements."""
    if not any(matrix.dtype.pairs for matrix in kernel.matrices):
        return kernel
    body = map_body_exprs(map_body(kernel.body, _statement), _expression)
    return replace(kernel, params=_in_bytes(kernel.params), body=_in_bytes(body))


def _statement(stmt: Stmt) -> Body:
    match stmt:
        case VectorCopy() if stmt.src.dtype.pairs and stmt.src.space is Space.GLOBAL:
            return _loaded(stmt)
        case PointerIncrement(view, by) if view.dtype.pairs:
            return (replace(stmt, by=in_pairs(by)),)
    return (stmt,)


def _loaded(move: VectorCopy) -> Body:
    """A load into registers: of an element, or of bytes, whose halves go to registers one by one."""
    if move.width == 1:
        return (Store(move.dst, move.dst_index, made_of(move, Load(move.src, move.src_index), _held(move.dst).dtype)),)
    pairs, first = in_bytes(move.src), (*move.src_index[:-1], in_pairs(move.src_index[-1]))
    count = move.width // PAIR
    loaded = Buffer(f"{move.src.name}_pairs", I8, Space.PRIVATE, Layout.packed(count))
    load: Stmt = Store(loaded, (Const(0),), Load(pairs, first))
    if count > 1:
        load = replace(
            move, dst=loaded, dst_index=(Const(0),), src=pairs, src_index=first, width=count, zero_point=None
        )
    if _held(move.dst).dtype in FLOAT16 and move.width % PAIRS_OF_WORD == 0:
        taken_apart = replace(move, src=loaded, src_index=(Const(0),), atom=BYTE_OF_PAIR)
        return (Block((Alloc(loaded), load, taken_apart)),)
    value = _half(Load(loaded, (in_pairs(ELEMENT),)), ELEMENT)
    at = (*move.dst_index[:-1], move.dst_index[-1] + ELEMENT)
    store = Store(move.dst, at, made_of(move, value, _held(move.dst).dtype))
    return (Block((Alloc(loaded), load, *loop(ELEMENT, move.width, (store,)))),)


def _expression(node: Expr) -> Expr:
    match node:
        case Load(buffer, (*planes, place)) if buffer.dtype.pairs and buffer.space is Space.GLOBAL:
            return _half(Load(in_bytes(buffer), (*planes, in_pairs(place))), place)
        case Load(buffer, index) if buffer.dtype.pairs:
            return Load(_held(buffer), index)
        case Const(value, dtype) if dtype.pairs:
            return Const(float(value.real), F32)
        case Call("convert", (value,), dtype) if value.dtype == dtype or dtype.pairs:
            return value
    return node


def _half(pair: Load, place: Expr) -> Expr:
    """One of the elements of a byte."""
    return Call("nibble", (pair, place % PAIR), F32)


def _held(registers: Buffer) -> Buffer:
    """What holds the numbers."""
    return replace(registers, dtype=F32) if registers.dtype.pairs else registers


def in_bytes(matrix: Buffer) -> Buffer:
    """The matrix of bytes, whose lines are half as long."""
    layout, step = matrix.layout, matrix.batch_stride
    shape = (*layout.shape[:-1], ceil_div(layout.shape[-1], PAIR))
    strides = (*map(in_pairs, layout.strides[:-1]), layout.strides[-1])
    layout = replace(layout, shape=shape, strides=strides)
    return replace(matrix, dtype=I8, layout=layout, batch_stride=None if step is None else in_pairs(step))


def _in_bytes(part: _Part) -> _Part:
    """Whatever part of a kernel it is, with buffers of bytes, or of numbers, in place of those of pairs."""
    return cast(_Part, _replaced(part))


def _replaced(node: object) -> object:
    if isinstance(node, Buffer):
        return node if not node.dtype.pairs else in_bytes(node) if node.space is Space.GLOBAL else _held(node)
    if isinstance(node, tuple):
        return tuple(map(_replaced, node))
    if not is_dataclass(node) or isinstance(node, type):
        return node
    changed = {
        x.name: new for x in fields(node) if (new := _replaced(getattr(node, x.name))) is not getattr(node, x.name)
    }
    return replace(node, **changed) if changed else node
