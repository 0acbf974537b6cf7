"""A product by `joint_matrix` of SYCL: sub-groups load fragments of A and B from the matrices as they are.

Loads are told how large a matrix is: they bring zeros for what lies past it, and ask of it what 2D block reads ask.
Where a matrix does not lie so, and for what is left of K, fragments are filled element by element.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen import epilogues
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.constants import said
from gemmgen.ir.copy_instructions import (
    ThreadValueLayout,
    fragment_load,
)
from gemmgen.ir.expr import Const, Expr, Var
from gemmgen.ir.instructions import Instruction, joint_matrix
from gemmgen.ir.kernel import COL as J
from gemmgen.ir.kernel import DEPTH as P
from gemmgen.ir.kernel import ROW as I
from gemmgen.ir.kernel import loop
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    Comment,
    For,
    Let,
    Multiply,
    Registers,
    VectorCopy,
)
from gemmgen.ir.synchronization import Barrier
from gemmgen.mainloops.sub_group_tiles import SubGroupTiles
from gemmgen.positions import (
    K0,
    K_MAIN,
)
from gemmgen.records import cached_property, dataclass

#: How far the words go that hold B's lines, if these are rows.
N_WORDS = Var("n_words")


@dataclass(frozen=True)
class JointMatrix(SubGroupTiles):
    """The mainloop of one kernel."""

    @cached_property
    def instruction(self) -> Instruction:
        return joint_matrix(self.problem.spec.dtype)

    @property
    def _down(self) -> int:
        """Fragments of a sub-group's rows."""
        return self.schedule.tile[0] // self.instruction.rows

    @property
    def _across(self) -> int:
        """Fragments of its columns."""
        return self.schedule.tile[1]

    @cached_property
    def acc(self) -> Registers:
        """The sums, a fragment after the other."""
        buffer = Buffer(
            "acc", self.problem.sums, Space.PRIVATE, Layout.packed(self._down, self._across, self.instruction.rows)
        )
        whole = ThreadValueLayout(self.threads.rows, self.threads.cols, transposed=True)
        return Registers(buffer, whole, opaque=self.instruction.c)

    def _fragments(self, name: str) -> Buffer:
        """Those of A or B for one instruction along K."""
        layout, count = (self.instruction.a, self._down) if name == "a" else (self.instruction.b, self._across)
        values = layout.rows.values * layout.cols.values
        return Buffer(f"{name}_frag", self.instruction.dtype, Space.PRIVATE, Layout.packed(count, values))

    def _store(self) -> Body:
        """C, or a part's share of it, element by element."""
        comment, update = epilogues.store_from_registers(self.problem, self.acc)
        place = (*update.dst.origin[:-2], *self._place)
        return comment, replace(update, dst=replace(update.dst, origin=place))

    def _names(self) -> Body:
        """How far whole words go of B's lines as well."""
        *names, k_main = super()._names()
        return *names, Let(N_WORDS, self._n_words), k_main

    @cached_property
    def _n_words(self) -> Expr:
        """The same of B, but with the last word whole: what it holds past the matrix only gets into columns past C."""
        n, word = self.problem.n, self._word
        return n if self.problem.spec.multiple_of[1] % word == 0 else n + (Const(word) - n % word) % word

    def _along_k(self) -> Body:
        """The main loop by checked loads, then what they leave."""
        s, end, depth = self.schedule, self.scheduler.k_end, self.instruction.depth
        steps = loop(P, s.block_k // depth, self._sub_step(K0 + P * depth, self._k_words, False))
        return (
            Comment(f"Steps of {said(s.block_k)} along K, with zeros past the matrices' ends."),
            For(K0, self.scheduler.k_start, K_MAIN, s.block_k, (Barrier("none"), *steps) if s.barrier else steps),
            *self._rest(depth, self._sub_step(K0, end, True)),
        )

    def _sub_step(self, k0: Expr, end: Expr, by_elements: bool) -> Body:
        """As deep in K as a fragment: all loads before the products."""
        (row, col), atom, problem, zero = self._place, self.instruction, self.problem, Const(0)
        a, b = self._fragments("a"), self._fragments("b")
        of_a, of_b = fragment_load(atom.a, by_elements), fragment_load(atom.b, by_elements)
        at, extent = (k0, col + J * atom.cols), (end, problem.n if by_elements or self._by_columns else N_WORDS)
        if self._by_columns:
            of_b = fragment_load(ThreadValueLayout(atom.b.cols, atom.b.rows), by_elements)
            at, extent = at[::-1], extent[::-1]
        place = row + I * atom.rows, k0
        load_a = VectorCopy(a, (I, zero), self._a, place, of_a, of_a.widths[0], extent=(problem.m, end))
        load_b = VectorCopy(b, (J, zero), self._b, at, of_b, of_b.widths[0], extent=extent)
        multiply = Multiply(self.acc.buffer, (I, J, zero), a, (I, zero), b, (J, zero), atom)
        return (
            *(Alloc(a), *loop(I, self._down, (load_a,))),
            *(Alloc(b), *loop(J, self._across, (load_b,))),
            *loop(J, self._across, loop(I, self._down, (multiply,))),
        )
