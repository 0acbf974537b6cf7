"""A of warpgroups in registers: where it lies there, what brings it, and what is refused.

A matrix instruction reads A's tile along K alone, unless elements have two bytes, and takes it as it is. By way of
registers it is turned, converted, or made by a prologue, where nothing has to be read or written a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gemmgen.ir.atoms import ALIGNED_VECTOR, SCALAR, CopyAtom, Fragment, Spread
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.steps import Step
from gemmgen.ir.stmt import Copy, Registers, Tile
from gemmgen.ir.warp_matrix import line_atom
from gemmgen.ir.warpgroup_matrix import DEPTH_BYTES, TURN_BYTES, WORD_BYTES, WarpgroupAtom
from gemmgen.schedule import Schedule


def is_held(s: Schedule, name: str) -> bool:
    """Whether an operand is multiplied from registers."""
    return (s.a if name == "a" else s.b).memory == "private"


def registers_of_a(atom: WarpgroupAtom, k_step: int, rows: Spread, lane: Expr) -> Registers:
    """A step's A, the fragments of its instructions after one another."""
    fragment = Fragment(rows, replace(atom.a.cols, lane=lane))
    shape = k_step // atom.depth, rows.values, fragment.cols.values
    return Registers(Buffer("a_frag", atom.dtype, Space.PRIVATE, Layout.packed(*shape)), fragment, Const(0))


def fill(dst: Registers, src: Tile, of: Tile, made: Step | None) -> Copy:
    """What brings it there from its tile, which box copies fill from `of`."""
    atom, width = _instruction(dst, src, made is not None)
    return Copy(dst, src, atom, width, prologue=made, of=of)


def _instruction(dst: Registers, src: Tile, changes: bool) -> tuple[CopyAtom, int]:
    """The one that reads the tile, and what it brings a work-item."""
    dtype, run = dst.buffer.dtype, dst.fragment.cols.run
    atom = line_atom("a", src.transposed, dtype.size)
    if atom is not None and not changes and src.buffer.dtype == dtype:
        return atom, 4 * WORD_BYTES // dtype.size
    # One transposing ldmatrix of bytes fills the fragments of one instruction on bytes, or of two on 2-byte elements.
    # It does not fit TF32, nor a block K shorter than that.
    fits = src.buffer.dtype.size == 1 and dtype.size <= 2 and src.cols % DEPTH_BYTES == 0
    if src.transposed and fits:
        return TURN_BYTES, TURN_BYTES.widths[0]
    return (SCALAR, 1) if src.transposed or run == 1 else (ALIGNED_VECTOR, run)


def register_problems(s: Schedule, atom: WarpgroupAtom) -> Iterator[str]:
    """What can't be multiplied from there."""
    able = "b" if s.swapped else "a"
    for name, operand in (("a", s.a), ("b", s.b)):
        if operand.memory not in ("local", "private"):
            yield f"{name}.memory = {operand.memory!r}, but atom {s.atom} takes tiles of local memory: use 'local'"
        elif name != able and operand.memory == "private":
            remedy = "group 64x4, say, by which they are not" if s.swapped else "group 4x32, say, by which they are"
            yield (
                f"{name}.memory = 'private', but instructions take their first operand from registers, which is {able} "
                f"where operands are {'' if s.swapped else 'not '}swapped: use {able}.memory, or {remedy}"
            )
    if is_held(s, able) and atom.terms > 1:
        yield f"{able}.memory = 'private', but atom {s.atom} multiplies tiles of heads and of rests: use 'local'"


def registers_held(s: Schedule, atom: WarpgroupAtom) -> int:
    """Registers that a work-item has of A beside its sums."""
    rows = s.tile[1 if s.swapped else 0]
    return rows * s.k_step * atom.dtype.size // (4 * WORD_BYTES) if is_held(s, "b" if s.swapped else "a") else 0
