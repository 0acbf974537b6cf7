"""Tiles of A and B in shared memory: a group stages them there, and every thread, or warp, reads what it multiplies.

Tiles are staged by plain loads, by way of registers, by asynchronous copies or by TMA, in a ring that is handed over by
barriers, by groups of copies or by mbarriers (`passes/pipeline.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from gemmgen.checks.capacity import VECTOR_BYTES
from gemmgen.checks.roles import MOST_LINES
from gemmgen.checks.tma_ring import BOX_BYTES
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import ALIGNED_VECTOR, ASYNC_COPY, SCALAR, CopyAtom, ThreadValueLayout
from gemmgen.ir.expr import Const, Expr, as_int
from gemmgen.ir.kernel import Limit
from gemmgen.ir.stmt import Alloc, Body, CooperativeCopy, Tile
from gemmgen.ir.synchronization import Pipe, PipeOp, Sync, WarpSpecialization
from gemmgen.problem import Problem
from gemmgen.records import cached_property, dataclass
from gemmgen.schedulers import BEFORE

#: Steps that read both operands from shared memory, at a time: of more, a compiler begins with all reads, which takes
#: twice the registers and leaves room for half the waves.
MOST_STEPS = 8


@dataclass(frozen=True)
class SharedTiles:
    """Those of one mainloop, none of which it may have.

    Attributes:
        name: of the ring.
        first_of: the tiles whose ring's first slot these lie in, if they have no ring of their own.
    """

    problem: Problem
    name: str = "tiles"
    first_of: SharedTiles | None = None

    @cached_property
    def pipe(self) -> Pipe:
        """How the ring is handed over."""
        s = self.problem.schedule
        through_registers = any(map(self.problem.passes_registers, "ab"))
        copied = any(self.problem.operand(x).async_copy and not self.problem.passes_registers(x) for x in "ab")
        sync: Sync = "mbarrier" if s.mbarrier else "async_group" if copied else "barrier"
        leads = sync != "barrier" or "leading_barriers" in self.problem.target.features
        pipe = Pipe(self.name, s.stages, sync, through_registers, leads, batch=max(1, s.mbarrier))
        pipe = replace(pipe, before=BEFORE) if s.stream_k else pipe
        high, wide = s.group
        return replace(pipe, roles=WarpSpecialization(high * wide, high, s.setmaxnreg)) if s.tma else pipe

    def tile(self, name: str) -> Tile | None:
        """The ring of an operand's tiles, if it passes through; `transposed` is meant against the natural A [row][k],
        B [k][col].
        """
        if self.first_of is not None:
            ring = self.first_of.tile(name)
            return None if ring is None else replace(ring, pipe=None)
        s, spec, operand = self.problem.schedule, self.problem.spec, self.problem.operand(name)
        if operand.memory != "local":
            return None
        rows, cols = (s.block_tile[0], s.block_k) if name == "a" else (s.block_k, s.block_tile[1])
        transposed = s.staged(name, spec.order(name)).transposed
        slow, fast = (cols, rows) if transposed else (rows, cols)
        ring_of = (s.stages,) if s.stages > 1 else ()
        layout = Layout.packed(*ring_of, slow, fast, pad=operand.pad)
        buffer = Buffer(f"{name}_shared", spec.made(name), Space.LOCAL, layout)
        origin = (Const(0),) * (len(ring_of) + 2)
        return Tile(buffer, origin, rows, cols, transposed, self.pipe if ring_of else None)

    # --- what it relies on -------------------------------------------------------------------------

    @property
    def multiples(self) -> tuple[tuple[int, int], ...]:
        """TMA tiles, of a batch of steps, begin on multiples of so many bytes."""
        s = self.problem.schedule
        size = self.problem.spec.dtype.size
        return tuple((length * self._batch * size, BOX_BYTES) for length in s.block_tile) if s.tma else ()

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Batches of a ring, and lines of TMA tiles."""
        s = self.problem.schedule
        found = [Limit(s.stages, 3 * s.mbarrier, None, "mbarriers hand over 3 batches")] if s.mbarrier else []
        if s.tma:
            lines = (*s.block_tile, self._batch)
            found += [Limit(length, None, MOST_LINES, "TMA tiles have no longer sides") for length in lines]
            found.append(Limit(s.block_k, 2, None, "a TMA tile has several lines"))
        return tuple(found)

    @property
    def _batch(self) -> int:
        """How deep a batch is that mbarriers hand over."""
        return self.problem.schedule.block_k * self.problem.schedule.mbarrier

    # --- filled -----------------------------------------------------------------------------------

    def handed_over(self, k0: Expr, inner: Body) -> Body:
        """A step of K at `k0`, its tiles staged before `inner` reads them."""
        stages = (*self._stage("a", k0), *self._stage("b", k0))
        if not stages:
            return inner
        produce = (PipeOp("acquire", self.pipe), *stages, PipeOp("commit", self.pipe))
        return (*produce, PipeOp("wait", self.pipe), *inner, PipeOp("release", self.pipe))

    def _stage(self, name: str, k0: Expr) -> Body:
        """An operand's tile filled."""
        problem, tile = self.problem, self.tile(name)
        if tile is None:
            return ()
        atom, width = self._cooperative_instruction(name, tile)
        made = None if name in problem.packed else problem.prologue(name)
        vias = self._vias(name, tile, width) or (None,) * len(problem.parts_of(name))
        parts = staged_parts(problem, name, problem.source(name), tile, k0)
        return tuple(
            CooperativeCopy(part, source, atom, width, via=via, prologue=made)
            for (part, source), via in zip(parts, vias, strict=True)
        )

    def _cooperative_instruction(self, name: str, tile: Tile) -> tuple[CopyAtom, int]:
        """What fills a tile, and how many neighbours it moves."""
        operand, matrix = self.problem.operand(name), self.problem.source(name)
        if operand.async_copy and not self.problem.passes_registers(name):
            along = tile.transposed == self.problem.is_transposed(name)
            return ASYNC_COPY, ASYNC_COPY.widest(operand.width, matrix.dtype.size) if along else 1
        if operand.async_copy and self.problem.schedule.prefetch:
            return SCALAR, 1
        return self.problem.vector(operand.width, max(matrix.dtype, tile.buffer.dtype, key=lambda dtype: dtype.size))

    def _vias(self, name: str, tile: Tile, width: int) -> tuple[Buffer, ...]:
        """Registers of a tile's parts, if it is loaded before the arithmetic and stored to shared memory after it."""
        s = self.problem.schedule
        if not self.problem.passes_registers(name):
            return ()
        threads, parts = s.all_work_items[0] * s.all_work_items[1], len(self.problem.parts_of(name))
        layout = Layout.packed(-(-tile.rows * tile.cols // (parts * width * threads)), width)
        dtype = self.problem.source(name).dtype
        return tuple(
            Buffer(f"{name}_next" if part == 0 else f"{name}_up_next", dtype, Space.PRIVATE, layout)
            for part in range(parts)
        )

    def allocations(self, name: str) -> Body:
        """An operand's tiles, and the registers that they pass through."""
        tile = self.tile(name)
        if tile is None:
            return ()
        vias = self._vias(name, tile, self._cooperative_instruction(name, tile)[1])
        return (Alloc(tile.buffer), *map(Alloc, vias))

    # --- read -------------------------------------------------------------------------------------

    def load_instruction(self, tile: Tile, fragment: ThreadValueLayout) -> tuple[CopyAtom, int]:
        """What fills a thread's registers: vectors where its elements and the tile's lines are made of them."""
        if fragment.transposed != tile.transposed:
            return SCALAR, 1
        axis, dtype = fragment.rows if fragment.transposed else fragment.cols, tile.buffer.dtype
        run = axis.vector if axis.lanes > 1 else axis.values
        between_rows = as_int(tile.buffer.layout.strides[-2])
        if between_rows is not None and "unaligned_vectors" not in self.problem.target.features:
            run = gcd(run, between_rows)
        width = next(w for w in (4, 2, 1) if run % w == 0 and w * dtype.size <= VECTOR_BYTES)
        if width > 1 and between_rows is not None and between_rows % width == 0:
            return ALIGNED_VECTOR, width
        return self.problem.vector(width, dtype)

    def unrolled_steps(self, rounds: int) -> int:
        """How many of a step's inner steps are unrolled together, out of so many: as many as compilers read from shared
        memory without running out of registers.
        """
        s = self.problem.schedule
        staged = [(name, tile) for name in "ab" if (tile := self.tile(name)) is not None]
        ahead = s.register_stages > 1
        if ahead and s.prefetch and not self.problem.all_packed:
            # Gen9's compiler would not unroll them at all beside the guards of copies: registers by a variable's value.
            return rounds
        if staged and (few := self.problem.target.unrolled_steps):
            # Where lines of a tile go along K, compilers read several steps at once.
            if ahead or any(tile.transposed == (name == "b") for name, tile in staged):
                return few
            return 2 * few if rounds <= MOST_STEPS else MOST_STEPS
        return MOST_STEPS if len(staged) == 2 and not ahead else rounds


def staged_parts(problem: Problem, name: str, matrix: Buffer, tile: Tile, k0: Expr) -> Iterator[tuple[Tile, Tile]]:
    """The parts of an operand's tile, each with where it comes from, for the step of K at `k0`."""
    parts, transposed = problem.parts_of(name), problem.is_transposed(name)
    rows, cols = (tile.rows // len(parts), tile.cols) if name == "a" else (tile.rows, tile.cols // len(parts))
    for first, begin in parts:
        down, on = (first, 0) if (name == "a") != tile.transposed else (0, first)
        origin = (*tile.origin[:-2], tile.origin[-2] + down, tile.origin[-1] + on)
        logical = (begin, k0) if name == "a" else (k0, begin)
        source = Tile(matrix, logical[::-1] if transposed else logical, rows, cols, transposed)
        yield (tile if len(parts) == 1 else replace(tile, origin=origin, rows=rows, cols=cols)), source
