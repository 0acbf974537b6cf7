"""What asynchronous matrix instructions of a warpgroup do, on NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import cast

import numpy as np

from gemmgen.errors import KernelFault, LoweringError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.expr import as_int
from gemmgen.ir.instructions import LINES, TILE_LINE_BYTES, WARPGROUP_LANES, WARPGROUP_ROWS, Instruction
from gemmgen.ir.numeric import numpy_dtype, poison
from gemmgen.ir.stmt import Multiply
from gemmgen.ir.synchronization import MultiplyGroup
from gemmgen.records import dataclass
from gemmgen.simulator.evaluate import IndexCode, Reference
from gemmgen.simulator.in_flight import ProductInFlight, Queue, group_step
from gemmgen.simulator.lanes import Active, Ints, Lanes, Site, Value, agreed
from gemmgen.simulator.memory import Memory, PrivateMemory, ViewMemory
from gemmgen.simulator.semantics import Numbers, gather, product, scatter
from gemmgen.simulator.tiles import TileMemory


def places(
    atom: Instruction, extent: int, transposed: bool, leading: int, stride: int, line_bytes: int = TILE_LINE_BYTES
) -> Ints:
    """[row of A or column of B, place along K] -> bytes from where the operand begins, before they swizzle, as its
    descriptor has them (PTX ISA, "Matrix Descriptor Format", "Strides").

    Args:
        leading: bytes from a block of a line's width to the next, where K is the slow axis.
        stride: bytes from eight lines to the next eight.
    """
    size = atom.dtype.size
    wide = line_bytes // size
    outer, k = np.meshgrid(np.arange(extent), np.arange(atom.depth), indexing="ij")
    line, along = (k, outer) if transposed else (outer, k)
    block, along = (along // wide, along % wide) if transposed else (0 * along, along)
    return cast(Ints, block * leading + line // LINES * stride + line % LINES * line_bytes + along * size)


@dataclass
class _Sums:
    """Registers that instructions add to."""

    memory: Memory
    index: list[int]
    atom: Instruction
    active: Active
    site: Site
    values: Numbers


@dataclass
class Multiplications:
    """The matrix instructions that are under way.

    Their sums are kept here until somebody has waited for all of them: meanwhile the registers hold NaN, so that a use
    too early shows. What they read stays noted as being read.
    """

    lanes: Lanes
    queue: Queue
    fenced: bool = False
    #: Registers that A is taken from, and what they held at the last fence.
    held: list[tuple[PrivateMemory, list[Value | None]]] = field(default_factory=list)
    sums: dict[tuple[int, ...], _Sums] = field(default_factory=dict)

    def clear(self) -> None:
        """Other groups run now."""
        self.sums, self.fenced = {}, False
        self.held = [(memory, []) for memory, _ in self.held]

    def step(self, stmt: MultiplyGroup, waited: Memory | None, site: Site) -> Callable[[Active], None]:
        """What a statement about them does.

        Args:
            waited: the registers whose sums are there then.
        """

        def together(active: Active) -> None:
            self._warpgroups(active, site)

        def fence(_active: Active) -> None:
            self.fenced = True
            self.held = [(memory, memory.now()) for memory, _ in self.held]

        def sums_are_there() -> None:
            if self.queue.adds_to(waited):
                raise KernelFault("pipe", site.text, "sums are used while instructions add to them")
            there = {place: sums for place, sums in self.sums.items() if sums.memory is waited}
            for sums in there.values():
                _put(sums, scatter(sums.atom.c, sums.values, WARPGROUP_LANES))
            self.sums, self.fenced = {place: self.sums[place] for place in self.sums if place not in there}, False

        return group_step(stmt, self.queue, site, together, fence, None if waited is None else sums_are_there)

    def _warpgroups(self, active: Active, site: Site) -> Ints:
        """The lanes of each warpgroup, all of which must take part."""
        item = active.lanes % self.lanes.group_size
        begins = active.lanes[item % WARPGROUP_LANES == 0]
        expected = (begins[:, None] + np.arange(WARPGROUP_LANES)).reshape(-1)
        if len(expected) != len(active.lanes) or (expected != active.lanes).any():
            away = np.setxor1d(expected, active.lanes)
            who = self.lanes.who(self.lanes.first + int(away[0]))
            raise KernelFault("divergent sub-group operation", site.text, f"{who} does not take part")
        return cast(Ints, expected.reshape(-1, WARPGROUP_LANES))

    def multiply(
        self, stmt: Multiply, atom: Instruction, operands: Sequence[Reference], accumulate: IndexCode | None, site: Site
    ) -> Callable[[Active], None]:
        """What an instruction does whose A and B begin where views of tiles say.

        Args:
            accumulate: where this is 0, the sums begin at zero.
        """
        acc, a, b = operands
        held = self._held(a, stmt.a, acc.memory, atom, site) if atom.held else None
        sides = ((a, stmt.a, WARPGROUP_ROWS, atom.a_transposed), (b, stmt.b, atom.cols, atom.b_transposed))[atom.held :]
        # In elements that are whole lines, so that a layout's strides are those of lines.
        bytes_of = [
            places(atom, extent, transposed, *_descriptor(buffer.layout.strides, atom), buffer.layout.swizzle)
            for _, buffer, extent, transposed in sides
        ]

        def act(active: Active) -> None:
            warpgroups = self._warpgroups(active, site)
            tiles = [
                self._read(operand, acc.memory, offsets, warpgroups, active, site)
                for (operand, *_), offsets in zip(sides, bytes_of, strict=True)
            ]
            left, right = tiles if held is None else (held(active), *tiles)
            anew = accumulate is not None and not agreed(accumulate(active), active)
            sums = self._sums(acc.memory, [agreed(x, active) for x in acc.at(active)], atom, active, anew, site)
            sums.values = product(atom, sums.values, left, right.swapaxes(-1, -2))

        return act

    def _read(
        self, operand: Reference, sums: Memory, offsets: Ints, warpgroups: Ints, active: Active, site: Site
    ) -> Numbers:
        """An operand of each warpgroup, [warpgroup, row or column, place along K].

        Args:
            sums: what the instruction adds to.
        """
        view = operand.within(ViewMemory, site, "multiplies what is no view")
        tile = Reference(view.memory, ()).within(TileMemory, site, "multiplies what is no view of a tile")
        begin = active.spread(np.broadcast_to(view.locate(operand.at(active), active, site), active.lanes.shape))
        out = []
        for lanes in warpgroups:
            own = begin[lanes]
            first = int(own[0]) * tile.item
            if (own != own[0]).any() or first % 16 or first // tile.swizzle % LINES:
                raise KernelFault("alignment", site.text, f"a warpgroup's tile can't begin at byte {first}")
            lane = int(lanes[0])
            number = self.queue.groups_of(lane)
            values, addresses = tile.take(first + offsets, lane, number, site)
            self.queue.issue(ProductInFlight(partial(tile.over, addresses, number), sums), lane)
            out.append(values)
        return np.stack(out)

    def _held(
        self, operand: Reference, buffer: Buffer, sums: Memory, atom: Instruction, site: Site
    ) -> Callable[[Active], Numbers]:
        """What takes A of each warpgroup from registers, [warpgroup, row, place along K], which nobody may write to
        after the fence before, nor until the instruction is over.
        """
        memory = operand.within(PrivateMemory, site, "takes A from no registers")
        self.held.append((memory, []))

        def changed(before: list[Value | None], at: Sequence[int]) -> bool:
            now = memory.now()
            return len(now) != len(before) or any(now[i] is not before[i] for i in at)

        def take(active: Active) -> Numbers:
            *which, row, col = (agreed(x, active) for x in operand.at(active))
            if not all(isinstance(x, int) for x in (*which, row, col)):
                raise LoweringError(f"`{site.text}`: work-items name other registers")
            high, wide = (as_int(extent) or 1 for extent in buffer.shape[-2:])
            # Where a step is one instruction, there is none to be named.
            begin = which[0] * high if which else 0
            at = [
                int((begin + row + i) * wide + col + j)
                for i in range(atom.a.rows.values)
                for j in range(atom.a.cols.values)
            ]
            seen = next(before for other, before in self.held if other is memory)
            if changed(seen, at):
                raise KernelFault("pipe", site.text, "registers that A is taken from were written after the fence")
            values = [
                np.broadcast_to(np.asarray(memory.read([*which, row + i, col + j], active, site)), len(active.mask))
                for i in range(atom.a.rows.values)
                for j in range(atom.a.cols.values)
            ]
            registers = np.stack(values, axis=-1)[active.lanes]
            shape = (-1, WARPGROUP_LANES, atom.a.rows.values, atom.a.cols.values)
            out = gather(atom.a, registers.reshape(shape))

            def over() -> None:
                if changed(seen, at):
                    raise KernelFault("race", site.text, "registers that A is taken from are written meanwhile")

            self.queue.issue(ProductInFlight(over, sums), int(active.lanes[0]))
            return out

        return take

    def _sums(
        self, memory: Memory, index: list[object], atom: Instruction, active: Active, anew: bool, site: Site
    ) -> _Sums:
        """The sums as they are, taken from registers where no instruction adds to them yet; `anew` they are zeros."""
        if not isinstance(memory, PrivateMemory) or not all(isinstance(i, int) for i in index):
            raise LoweringError(f"`{site.text}` adds to no registers")
        place = cast("list[int]", index)
        key = (id(memory), *place)
        if key in self.sums and not anew:
            return self.sums[key]
        if not self.fenced:
            raise KernelFault("pipe", site.text, "sums that others have written are added to without a fence")
        sums = self.sums[key] = _Sums(memory, place, atom, active, site, np.zeros(0))
        if anew:
            shape = (-1, WARPGROUP_LANES, atom.c.rows.values, atom.c.cols.values)
            own = len(active.lanes) * atom.c.rows.values * atom.c.cols.values
            registers = np.zeros(own, numpy_dtype(atom.sums)).reshape(shape)
        else:
            read = np.stack([_registers(sums, row) for row in range(atom.c.rows.values)], axis=-2)
            registers = read.reshape(-1, WARPGROUP_LANES, *read.shape[1:])
        sums.values = gather(atom.c, registers)
        _put(sums, np.full_like(registers, poison(registers.dtype)))
        return sums


def _descriptor(strides: Sequence[object], atom: Instruction) -> tuple[int, int]:
    """(leading, stride) in bytes, of a view [block, line, element]."""
    block, line = (as_int(stride) or 0 for stride in strides[:2])  # type: ignore[arg-type]
    return block * atom.dtype.size, LINES * line * atom.dtype.size


def _registers(sums: _Sums, row: int) -> Numbers:
    """[active lane, column value] of one of a lane's rows."""
    high, wide = sums.index
    count = len(sums.active.mask)
    read = (
        sums.memory.read([high + row, wide + col], sums.active, sums.site) for col in range(sums.atom.c.cols.values)
    )
    return np.stack([np.broadcast_to(np.asarray(x), count)[sums.active.lanes] for x in read], axis=-1)


def _put(sums: _Sums, values: Numbers) -> None:
    """Writes [warpgroup, lane, row value, column value] to the registers."""
    high, wide = sums.index
    for row in range(values.shape[2]):
        for col in range(values.shape[3]):
            own = sums.active.spread(np.ascontiguousarray(values[:, :, row, col].reshape(-1)))
            sums.memory.write([high + row, wide + col], cast(Value, own), sums.active, sums.site)
