"""What matrix instructions of a warpgroup and the copies that fill their tiles do, on NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, cast

import numpy as np

from gemmgen.errors import LoweringError
from gemmgen.ir import warp_meaning
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.evaluate import IndexCode
from gemmgen.ir.expr import as_int
from gemmgen.ir.fault import KernelFault
from gemmgen.ir.flights import Flight
from gemmgen.ir.lanes import Active, Ints, Lanes, Site, Value, agreed
from gemmgen.ir.mbarrier_meaning import Group
from gemmgen.ir.meeting_checks import box_bytes
from gemmgen.ir.meetings import Mbarrier, MultiplyGroup
from gemmgen.ir.memory import Memory, ViewMemory
from gemmgen.ir.numeric import numpy_dtype, poison
from gemmgen.ir.registers import PrivateMemory
from gemmgen.ir.stmt import BoxCopy, Multiply
from gemmgen.ir.tile_memory import BoxedMatrix, TileMemory
from gemmgen.ir.warp_meaning import Numbers, Places, significant
from gemmgen.ir.warpgroup_matrix import LANES, LINE_BYTES, LINES, ROWS, WarpgroupAtom

Index = Sequence[IndexCode]


def sum_places(atom: WarpgroupAtom) -> Places:
    """[lane, row value, column value] -> the row, and the column, that a register of the sums belongs to."""
    return warp_meaning.places(atom.c, LANES)


def places(
    atom: WarpgroupAtom, extent: int, turned: bool, leading: int, stride: int, line_bytes: int = LINE_BYTES
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
    line, along = (k, outer) if turned else (outer, k)
    block, along = (along // wide, along % wide) if turned else (0 * along, along)
    return cast(Ints, block * leading + line // LINES * stride + line % LINES * line_bytes + along * size)


@dataclass
class _Sums:
    """Registers that instructions add to."""

    memory: Memory
    index: list[int]
    atom: WarpgroupAtom
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
    number: int = 0
    fenced: bool = False
    #: What is to be done when the instructions begun since the last group are over, and those of each group.
    open: list[Callable[[], None]] = field(default_factory=list)
    committed: list[list[Callable[[], None]]] = field(default_factory=list)
    #: Registers that A is taken from, and what they held at the last fence.
    held: list[tuple[PrivateMemory, list[Value | None]]] = field(default_factory=list)
    sums: dict[tuple[int, ...], _Sums] = field(default_factory=dict)

    def clear(self) -> None:
        """Other groups run now."""
        self.open, self.committed, self.sums, self.fenced = [], [], {}, False
        self.held = [(memory, []) for memory, _ in self.held]

    def step(self, stmt: MultiplyGroup, site: Site) -> Callable[[Active], None]:
        """What a statement about them does."""

        def act(active: Active) -> None:
            self._warpgroups(active, site)
            match stmt.verb:
                case "fence":
                    self.fenced = True
                    self.held = [(memory, memory.now()) for memory, _ in self.held]
                case "commit":
                    self.committed.append(self.open)
                    self.open = []
                    self.number += 1
                case "wait":
                    self._wait(stmt, site)

        return act

    def _wait(self, stmt: MultiplyGroup, site: Site) -> None:
        while len(self.committed) > stmt.pending:
            for over in self.committed.pop(0):
                over()
        if stmt.sums is None:
            return
        if self.open or self.committed:
            raise KernelFault("pipe", site.text, "sums are used while instructions add to them")
        for sums in self.sums.values():
            rows, cols = sum_places(sums.atom)
            _put(sums, sums.values[:, rows, cols].astype(numpy_dtype(sums.atom.sums)))
        self.sums, self.fenced = {}, False

    def _warpgroups(self, active: Active, site: Site) -> Ints:
        """The lanes of each warpgroup, all of which must take part."""
        item = active.lanes % self.lanes.group_size
        begins = active.lanes[item % LANES == 0]
        expected = (begins[:, None] + np.arange(LANES)).reshape(-1)
        if len(expected) != len(active.lanes) or (expected != active.lanes).any():
            away = np.setxor1d(expected, active.lanes)
            who = self.lanes.who(self.lanes.first + int(away[0]))
            raise KernelFault("divergent sub-group operation", site.text, f"{who} does not take part")
        return cast(Ints, expected.reshape(-1, LANES))

    def multiply(
        self, stmt: Multiply, atom: WarpgroupAtom, operands: Sequence[tuple[Memory, Index]], site: Site
    ) -> Callable[[Active], None]:
        """What an instruction does whose A and B begin where views of tiles say."""
        (acc, acc_index), a, b = operands
        held = self._held(*a, stmt.a, atom, site) if atom.held else None
        sides = ((*a, stmt.a, ROWS, atom.a_turned), (*b, stmt.b, atom.cols, atom.b_turned))[atom.held :]
        exact = warp_meaning.exact(atom.sums)
        # In elements that are whole lines, so that a layout's strides are those of lines.
        bytes_of = [
            places(atom, extent, turned, *_descriptor(buffer.layout.strides, atom), buffer.layout.swizzle)
            for _, _, buffer, extent, turned in sides
        ]

        def act(active: Active) -> None:
            warpgroups = self._warpgroups(active, site)
            tiles = [
                self._read(memory, index, offsets, warpgroups, active, site, atom)
                for (memory, index, *_), offsets in zip(sides, bytes_of, strict=True)
            ]
            left, right = tiles if held is None else (held(active), *tiles)
            sums = self._sums(acc, [agreed(code(active), active) for code in acc_index], atom, active, site)
            total = sums.values.astype(exact) + left @ right.swapaxes(-1, -2)
            sums.values = total.astype(numpy_dtype(atom.sums))

        return act

    def _read(
        self,
        view: Memory,
        index: Index,
        offsets: Ints,
        warpgroups: Ints,
        active: Active,
        site: Site,
        atom: WarpgroupAtom,
    ) -> Numbers:
        """An operand of each warpgroup, [warpgroup, row or column, place along K], in a type that holds products."""
        if not isinstance(view, ViewMemory) or not isinstance(view.memory, TileMemory):
            raise LoweringError(f"`{site.text}` multiplies what is no view of a tile")
        tile = view.memory
        begin = active.spread(
            np.broadcast_to(view.locate([code(active) for code in index], active, site), active.lanes.shape)
        )
        out = []
        for lanes in warpgroups:
            own = begin[lanes]
            first = int(own[0]) * tile.item
            if (own != own[0]).any() or first % 16 or first // tile.swizzle % LINES:
                raise KernelFault("alignment", site.text, f"a warpgroup's tile can't begin at byte {first}")
            values, addresses = tile.take(first + offsets, int(lanes[0]), self.number, site)
            self.open.append(partial(tile.over, addresses, self.number))
            out.append(significant(values, atom.digits).astype(warp_meaning.exact(atom.sums)))
        return np.stack(out)

    def _held(
        self, memory: Memory, index: Index, buffer: Buffer, atom: WarpgroupAtom, site: Site
    ) -> Callable[[Active], Numbers]:
        """What takes A of each warpgroup from registers, [warpgroup, row, place along K], which nobody may write to
        after the fence before, nor until the instruction is over.
        """
        if not isinstance(memory, PrivateMemory):
            raise LoweringError(f"`{site.text}` takes A from no registers")
        self.held.append((memory, []))
        places = warp_meaning.places(atom.a, LANES)

        def changed(before: list[Value | None], at: Sequence[int]) -> bool:
            now = memory.now()
            return len(now) != len(before) or any(now[i] is not before[i] for i in at)

        def take(active: Active) -> Numbers:
            *which, row, col = (agreed(code(active), active) for code in index)
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
            shape = (-1, LANES, atom.a.rows.values, atom.a.cols.values)
            out = np.zeros((len(active.lanes) // LANES, *atom.a.shape), warp_meaning.exact(atom.sums))
            out[:, places[0], places[1]] = significant(registers, atom.digits).reshape(shape)

            def over() -> None:
                if changed(seen, at):
                    raise KernelFault("race", site.text, "registers that A is taken from are written meanwhile")

            self.open.append(over)
            return cast(Numbers, out)

        return take

    def _sums(self, memory: Memory, index: list[object], atom: WarpgroupAtom, active: Active, site: Site) -> _Sums:
        """The sums as they are, taken from registers where no instruction adds to them yet."""
        if not isinstance(memory, PrivateMemory) or not all(isinstance(i, int) for i in index):
            raise LoweringError(f"`{site.text}` adds to no registers")
        place = cast("list[int]", index)
        key = (id(memory), *place)
        if key in self.sums:
            return self.sums[key]
        if not self.fenced:
            raise KernelFault("pipe", site.text, "sums that others have written are added to without a fence")
        rows, cols = sum_places(atom)
        values = np.zeros((len(active.lanes) // LANES, ROWS, atom.cols), numpy_dtype(atom.sums))
        sums = self.sums[key] = _Sums(memory, place, atom, active, site, cast(Numbers, values))
        registers = np.stack([_registers(sums, row) for row in range(atom.c.rows.values)], axis=-2)
        values[:, rows, cols] = registers.reshape(-1, LANES, *registers.shape[1:])
        _put(sums, np.full((len(values), LANES, *registers.shape[1:]), poison(values.dtype), values.dtype))
        return sums


def _descriptor(strides: Sequence[object], atom: WarpgroupAtom) -> tuple[int, int]:
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


def box_step(
    stmt: BoxCopy,
    tells: Mbarrier,
    src: tuple[Memory, Index],
    dst: tuple[Memory, Index],
    barrier: IndexCode,
    group: Group,
    site: Site,
) -> Callable[[Active], None]:
    """What a box copy begins, one work-item of each group."""
    (matrix, src_index), (tile, dst_index) = src, dst
    if not isinstance(matrix, BoxedMatrix) or not isinstance(tile, TileMemory):
        raise LoweringError(f"`{site.text}` copies no boxes to tiles")
    rows, cols = stmt.src.box or (0, 0)
    line = as_int(stmt.dst.layout.strides[-2]) or 0
    offsets = (np.arange(rows)[:, None] * line + np.arange(cols)).reshape(-1) * tile.item
    phases = group.barriers(tells.name)

    def fault(detail: str) -> NoReturn:
        raise KernelFault("pipe", site.text, detail)

    def act(active: Active) -> None:
        if group.lanes.each_group(active) != 1:
            fault("not one work-item of each group begins it")
        which = agreed(barrier(active), active)
        if isinstance(which, np.ndarray):
            fault("work-items mean different barriers")
        if problem := phases.problem(which):
            fault(problem)
        begin = np.broadcast_to(tile.locate([code(active) for code in dst_index], active, site), active.lanes.shape)
        places = [np.broadcast_to(active.pick(code(active)), active.lanes.shape) for code in src_index]
        flights = []
        for i, lane in enumerate(map(int, active.lanes)):
            values = matrix.box([int(place[i]) for place in places], rows, cols, lane, site).reshape(-1)
            for to in group.lanes.of_cluster(lane, stmt.src.shared):
                addresses = tile.begin_box(int(begin[i]) * tile.item + offsets, to, site)
                flights.append(Flight(tile, addresses, values, np.full(len(addresses), to, np.int64), site))
        # All groups copy at once, so that each gets as many boxes as it sends.
        if problem := phases.bring(which, flights, box_bytes(stmt.src) * stmt.src.shared):
            fault(problem)
        group.turns.happened()

    return act
