"""Tiles of local memory in lines that swizzle, and the matrices whose TMA tiles are copied there, at run time.

Addresses are counted in elements as they are elsewhere; where an element lies follows from its address by `swizzled`,
as copies and matrix instructions have it. What work-items read by themselves is what lies at the place that they name:
they have to exchange the parts of lines in what they ask for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmgen.errors import KernelFault, LoweringError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.operands import PART_BYTES
from gemmgen.ir.swizzle import swizzled
from gemmgen.simulator.lanes import Active, Bools, Floats, Index, Ints, Site, Value
from gemmgen.simulator.memory import GlobalMemory, LocalMemory, MemoryScope, Run
from gemmgen.simulator.races import Accesses, Conflict

#: What is said of an element: TMA stores see it; its writer has fenced it; nobody has.
_SEEN, _FENCED, _PUT = 0, 1, 2
#: Reads of matrix instructions under way have times from here on, which no arrival has.
UNDER_WAY = 2**62


class TileMemory(LocalMemory):
    """A group's local memory for tiles that TMA copies fill and warpgroups multiply."""

    # Its methods have the arguments that `Memory` asks for, needed or not.
    # ruff: noqa: ARG002

    def __init__(self, run: Run, buffer: Buffer) -> None:
        super().__init__(run, buffer)
        self.swizzle, self.item = buffer.layout.swizzle, buffer.dtype.size

    def allocate(self) -> None:
        super().allocate()
        self._given_up = False
        count = len(self._data)
        self._state: Ints = np.zeros(count, np.int64)
        self._putter: Ints = np.zeros(count, np.int64)
        self._leaving: Bools = np.zeros(count, np.bool_)
        # What instructions read and other groups of the cluster, which copy to the same places, may not know of.
        self._of_cluster = Accesses(count if self._lanes.cluster > 1 else 0)

    def retire(self) -> bool:
        self._given_up = True
        return super().retire()

    def write(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """Raises: LoweringError."""
        raise LoweringError(f"`{site.text}` writes to {self._name}, whose elements change places")

    def begin_tma_tile(self, places: Ints, lane: int, site: Site, by_others: bool = False) -> Ints:
        """A lane begins a copy to these bytes, as they are counted: gives the addresses, undefined until it lands. Or
        another group of the cluster does, to where that lane's copies go.
        """
        if self._given_up:
            raise KernelFault("race", site.text, f"a copy to {self._name}, in whose place something else lies by now")
        addresses: Ints = swizzled(places, self.swizzle) // self.item + self._base[lane]
        lanes = np.full(len(addresses), lane, np.int64)
        self._meets(self._accesses.write(addresses, lanes, site.number, self._lanes.time), "a copy overwrites", site)
        if by_others:
            conflict = self._of_cluster.write(addresses, lanes, site.number, self._lanes.time)
            self._meets(conflict, "a copy of another group overwrites", site)
        if self._under_way[addresses].any():
            raise KernelFault("race", site.text, f"a copy to the same place of {self._name} is still under way")
        self._written[addresses] = False
        self._under_way[addresses] = True
        return addresses

    def land(self, addresses: Ints, value: Floats, lanes: Ints, site: Site, for_all: bool = False) -> None:
        super().land(addresses, value, lanes, site, for_all)
        self._accesses.landed(addresses)
        if self._lanes.cluster > 1:
            self._of_cluster.landed(addresses)

    def take(self, places: Ints, lane: int, group: int, site: Site) -> tuple[Floats, Ints]:
        """What a warpgroup, named by its first lane, reads at these bytes by instructions of a group of them that are
        under way; and the addresses, for `over`.
        """
        if places.size and not 0 <= places.min() <= places.max() < self._size * self.item:
            raise KernelFault("out-of-bounds", site.text, f"a tile of {self._name} ends past its {self._size} elements")
        addresses = swizzled(places, self.swizzle) // self.item + self._base[lane]
        flat = addresses.reshape(-1)
        if self._under_way[flat].any():
            raise KernelFault("race", site.text, f"a copy to {self._name} is still under way: nobody waited for it")
        if not self._written[flat].all():
            raise KernelFault("unwritten", site.text, f"nothing was written to a part of {self._name}")
        lanes = np.full(len(flat), lane, np.int64)
        self._meets(self._accesses.read(flat, lanes, site.number, UNDER_WAY + group), "instructions read", site)
        if self._lanes.cluster > 1:
            self._of_cluster.read(flat, lanes, site.number, UNDER_WAY + group)
        return self._data[addresses], flat

    def over(self, addresses: Ints, group: int) -> None:
        """Nothing of that group of instructions reads there any more."""
        self._accesses.over(addresses, UNDER_WAY + group, self._lanes.time)
        if self._lanes.cluster > 1:
            self._of_cluster.over(addresses, UNDER_WAY + group, self._lanes.time)

    # --- TMA stores --------------------------------------------------------------------------

    def put(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """Each active lane writes an element to its place, as lines swizzle."""
        places = np.broadcast_to(self._locate(index, active, site), active.lanes.shape) * self.item
        addresses = swizzled(places, self.swizzle) // self.item + self._base[active.lanes]
        if self._leaving[addresses].any():
            raise KernelFault("race", site.text, f"a store still reads {self._name} there: nobody waited for it")
        self._overwritten(addresses, index, active, site)
        self._data[addresses] = value[active.lanes] if isinstance(value, np.ndarray) else value
        self._written[addresses] = True
        self._state[addresses], self._putter[addresses] = _PUT, active.lanes

    def fence(self, active: Active) -> None:
        """Stores of the active lanes are visible to their own TMA stores, and to those of others after a barrier."""
        self._state[(self._state == _PUT) & active.mask[self._putter]] = _FENCED

    def begin_store(self, places: Ints, lane: int, site: Site) -> tuple[Ints, Floats]:
        """A lane begins to store these bytes, as they are counted: gives their addresses, for `end_store`, and what
        lies there.
        """
        addresses: Ints = swizzled(places, self.swizzle) // self.item + self._base[lane]
        if not self._written[addresses].all():
            raise KernelFault("unwritten", site.text, f"nothing was written to a part of {self._name}")
        lanes = np.full(len(addresses), lane, np.int64)
        self._meets(self._accesses.read(addresses, lanes, site.number, self._lanes.time), "a store reads", site)
        own = self._putter[addresses] == lane
        if (self._state[addresses] > np.where(own, _FENCED, _SEEN)).any():
            detail = f"a store may not see what was written to {self._name}: no fence of the writer before they met"
            raise KernelFault("race", site.text, detail)
        self._leaving[addresses] = True
        return addresses, self._data[addresses]

    def end_store(self, addresses: Ints, lane: int, site: Site) -> None:
        """The lane knows that the store has read all, as if it just had done so itself."""
        self._leaving[addresses] = False
        self._accesses.read(addresses, np.full(len(addresses), lane, np.int64), site.number, self._lanes.time)

    def publish(self, active: Active, scope: MemoryScope, until: int | None = None) -> None:
        """In a role, what the others did before they arrived is ordered before what follows."""
        if until is None:
            self._state[(self._state == _FENCED) & active.mask[self._putter]] = _SEEN
        records = [self._accesses, self._of_cluster] if scope == "cluster" else [self._accesses]
        if until is None or self._lanes.role is None:
            super().publish(active, scope, until)
            if scope == "cluster":
                self._of_cluster.forget(0, len(self._data), until)
            return
        others = np.ones(self._lanes.count, np.bool_)
        others[self._lanes.role.lanes] = False
        for record in records:
            record.forget(0, len(self._data), until, others)

    def _meets(self, conflict: Conflict | None, now: str, site: Site) -> None:
        """Raises: KernelFault if there is one."""
        if conflict is None:
            return
        other = self._lanes.who(self._lanes.first + conflict.lane)
        verb = "writes" if conflict.wrote else "reads"
        where = f" in `{self._sites[conflict.site].text}`" if conflict.site is not None else ""
        raise KernelFault("race", site.text, f"{now} what {other} {verb} in {self._name}{where}, with no order between")


class RingMemory(TileMemory):
    """Tiles in plain lines that TMA copies fill, and single work-items read."""

    def read_at(self, address: Index, index: Sequence[Index], active: Active, site: Site) -> Value:
        return LocalMemory.read_at(self, address, index, active, site)

    def peek_at(self, address: Index, index: Sequence[Index], active: Active, site: Site) -> Value:
        """What nobody needs may be overwritten meanwhile."""
        return active.spread(self._data[address + self._base[active.lanes]])


class BoxedMatrix(GlobalMemory):
    """A matrix that a tensor map stands for: outside of it there are zeros."""

    def _matrix(self, place: Sequence[int]) -> tuple[int, int, int]:
        """Where a TMA tile's matrix begins, one of a batch if it has three coordinates, and its extents: none where
        there is no such matrix.
        """
        if len(place) == 2:
            return self.base, *self._shape  # type: ignore[return-value]
        (count, high, wide), number = self._shape, place[0]
        return (self.base + number * self.strides[0], high, wide) if 0 <= number < count else (0, 0, 0)

    def box(self, place: Sequence[int], rows: int, cols: int, lane: int, site: Site) -> Floats:
        """The elements of a TMA tile that begins there, row by row, which a lane asks for."""
        (begin, high, wide), pitch, (row, col) = self._matrix(place), self.strides[-2], place[-2:]
        out = np.zeros((rows, cols), self._dtype)
        inside = max(0, min(rows, high - row)), max(0, min(cols, wide - col))
        at = begin + (row + np.arange(inside[0]))[:, None] * pitch + col + np.arange(inside[1])
        if at.size and not 0 <= at.min() <= at.max() < self._size:
            raise KernelFault("out-of-bounds", site.text, f"the TMA load goes past the elements of {self._name}")
        self._touch(at.reshape(-1), np.full(at.size, lane, np.int64), False, site)
        out[: inside[0], : inside[1]] = self._data[at]
        return out

    def put(self, place: Sequence[int], values: Floats, lane: int, site: Site) -> None:
        """A lane stores a TMA tile, as far as it is inside; but of a line always whole parts of 16 bytes, so that
        elements past the matrix are overwritten (seen on an H200; Triton's manual warns of it, too).
        """
        if self._accesses is None:
            raise LoweringError(f"`{site.text}` writes to {self._name}, which is read only")
        (begin, high, wide), pitch, (row, col) = self._matrix(place), self.strides[-2], place[-2:]
        unit = PART_BYTES // self._data.itemsize
        rows, cols = row + np.arange(values.shape[0]), col + np.arange(values.shape[1])
        some, part = rows < high, cols < -(-wide // unit) * unit
        addresses = begin + (rows[some][:, None] * pitch + cols[part]).reshape(-1)
        if len(addresses) and addresses.max() >= self._size:
            raise KernelFault("out-of-bounds", site.text, f"the TMA store ends past the elements of {self._name}")
        if len(addresses) and addresses.min() < 0:
            raise KernelFault("out-of-bounds", site.text, f"the TMA store begins before the elements of {self._name}")
        stored = values[np.ix_(some, part)].reshape(-1)
        lanes = np.full(len(addresses), self._lanes.first + lane, np.int64)
        if self._stored_again:
            new = ~self.is_there(addresses, stored, lanes)
            addresses, stored, lanes = addresses[new], stored[new], lanes[new]
        self._touch(addresses, lanes - self._lanes.first, True, site)
        conflict = self._accesses.write(addresses, lanes, site.number)
        if conflict is not None:
            detail = f"{self._lanes.who(conflict.lane)} was at an element of {self._name} that the TMA store writes"
            raise KernelFault("race", site.text, f"{detail}, and no barrier orders global memory")
        self._data[addresses] = stored
