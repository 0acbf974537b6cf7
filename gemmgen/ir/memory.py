"""The memories of the interpreter that work-items share: what an access does, and when it is a fault. Registers, which
each has for itself, are in `registers.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol

import numpy as np

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.fault import FaultKind, KernelFault
from gemmgen.ir.lanes import Active, Bools, Floats, Index, Ints, Lanes, Site, Value
from gemmgen.ir.launches import Launch
from gemmgen.ir.numeric import numpy_dtype, poison
from gemmgen.ir.races import Accesses, Conflict
from gemmgen.ir.walk import evaluate


class Memory(Protocol):
    """A buffer at run time. Indexes hold one value for all lanes or one a lane."""

    def read(self, index: Sequence[Index], active: Active, site: Site) -> Value:
        """The elements; inactive lanes get anything."""

    def write(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """Set the active lanes' elements."""


class Base:
    """What all of them share: bounds, addresses and messages."""

    def __init__(self, lanes: Lanes, buffer: Buffer, sizes: dict[str, int], sites: Sequence[Site]) -> None:
        self._lanes, self._name, self._sites = lanes, buffer.name, sites
        self._shape = tuple(evaluate(extent, sizes) for extent in buffer.shape)
        self._dtype = numpy_dtype(buffer.dtype)

    def _inside(self, axis: int, coordinate: Index, active: Active) -> Index | None:
        """The active lanes' coordinates, or None if one of them is outside."""
        extent = self._shape[axis]
        if not isinstance(coordinate, np.ndarray):
            return coordinate if 0 <= coordinate < extent else None
        picked = coordinate if active.full else coordinate[active.lanes]
        return picked if picked.min() >= 0 and picked.max() < extent else None

    def _outside(self, axis: int, index: Sequence[Index], active: Active, site: Site) -> NoReturn:
        picked = np.broadcast_to(active.pick(index[axis]), active.lanes.shape)
        bad = (picked < 0) | (picked >= self._shape[axis])
        position = int(np.argmax(bad))
        why = f"coordinate {axis} must lie in 0..{self._shape[axis]}"
        self._fault("out-of-bounds", position, index, active, site, why)

    def _fault(
        self, kind: FaultKind, position: int, index: Sequence[Index], active: Active, site: Site, why: str
    ) -> NoReturn:
        lane = int(active.lanes[position])
        place = ", ".join(str(int(i[lane]) if isinstance(i, np.ndarray) else i) for i in index)
        who = self._lanes.who(self._lanes.first + lane)
        raise KernelFault(kind, site.text, f"{who} at {self._name}[{place}]: {why}")


class Strided(Base):
    """Memory whose elements have addresses.

    Attributes:
        addressed: whether instructions name these addresses; registers are named one by one.
        strides, start: what an address is made of.
    """

    addressed = True

    def __init__(self, lanes: Lanes, buffer: Buffer, sizes: dict[str, int], sites: Sequence[Site]) -> None:
        super().__init__(lanes, buffer, sizes, sites)
        self.strides = tuple(evaluate(stride, sizes) for stride in buffer.layout.strides)
        self._size = 0
        self.start: Index = 0

    @property
    def size(self) -> int:
        """Elements that there are, padding included; of a group's memory."""
        return self._size

    def _locate(self, index: Sequence[Index], active: Active, site: Site) -> Index:
        """The active lanes' addresses, without gaps; one number if all address the same."""
        address = active.pick(self.start)
        for axis, coordinate in enumerate(index):
            inside = self._inside(axis, coordinate, active)
            if inside is None:
                self._outside(axis, index, active, site)
            address = address + inside * self.strides[axis]
        for end in (address,) if not isinstance(address, np.ndarray) else (int(address.min()), int(address.max())):
            if not 0 <= end < self._size:
                position = int(np.argmax(np.broadcast_to(address == end, active.lanes.shape)))
                self._fault("out-of-bounds", position, index, active, site, f"address {end} of {self._size} elements")
        return address

    def locate(self, index: Sequence[Index], active: Active, site: Site) -> Index:
        """The active lanes' addresses in their group's memory, without gaps."""
        return self._locate(index, active, site)

    def advance(self, by: Index) -> None:
        """Begin elsewhere."""
        self.start = self.start + by


class _Shared(Strided):
    """Memory that several work-items see: the order of their accesses matters."""

    _ADVICE = "with no barrier between"

    def _clash(self, conflict: Conflict, now: str, index: Sequence[Index], active: Active, site: Site) -> NoReturn:
        other = self._lanes.who(self._other(conflict.lane))
        verb = "wrote" if conflict.wrote else "read"
        where = f"in `{self._sites[conflict.site].text}`" if conflict.site is not None else "in the same statement"
        why = f"{now} what {other} {verb} {where}, {self._ADVICE}"
        self._fault("race", conflict.position, index, active, site, why)

    def _other(self, lane: int) -> int:
        return lane


class LocalMemory(_Shared):
    """A group's local memory, padding included; each group has its own stretch of one array."""

    def __init__(self, lanes: Lanes, buffer: Buffer, sizes: dict[str, int], sites: Sequence[Site]) -> None:
        super().__init__(lanes, buffer, sizes, sites)
        self._size = buffer.elements
        lanes.on_load(self.allocate)
        self.allocate()

    def allocate(self) -> None:
        """Undefined content, for each of the groups that run now."""
        total = self._lanes.groups * self._size
        self._data: Floats = np.zeros(total, self._dtype)
        self._written: Bools = np.zeros(total, np.bool_)
        self._under_way: Bools = np.zeros(total, np.bool_)
        self._accesses = Accesses(total)
        self._base = self._lanes.base * self._size

    def read(self, index: Sequence[Index], active: Active, site: Site) -> Value:
        """Loads of the active lanes."""
        return self.read_at(self._locate(index, active, site), index, active, site)

    def read_at(self, address: Index, index: Sequence[Index], active: Active, site: Site) -> Value:
        """Loads by address; the index is for messages."""
        addresses = address + self._base[active.lanes]
        conflict = self._accesses.read(addresses, active.lanes, site.number, self._lanes.time)
        if conflict is not None:
            self._clash(conflict, "reads", index, active, site)
        written = self._written[addresses]
        if not written.all():
            self._fault("unwritten", int(np.argmin(written)), index, active, site, "nothing was written there")
        return active.spread(self._data[addresses])

    def peek(self, index: Sequence[Index], active: Active, site: Site) -> Value:
        """Loads that nobody may need: NaN, so that a use shows, where nothing was written."""
        return self.peek_at(self._locate(index, active, site), index, active, site)

    def peek_at(self, address: Index, index: Sequence[Index], active: Active, site: Site) -> Value:
        """The same by address."""
        addresses = address + self._base[active.lanes]
        if self._written[addresses].all():
            return self.read_at(address, index, active, site)
        nothing = self._dtype.type(poison(self._dtype))
        return active.spread(np.where(self._written[addresses], self._data[addresses], nothing))

    def write(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """Stores of the active lanes."""
        addresses = self._locate(index, active, site) + self._base[active.lanes]
        conflict = self._accesses.write(addresses, active.lanes, site.number, self._lanes.time)
        if conflict is not None:
            self._clash(conflict, "writes", index, active, site)
        self._not_under_way(addresses, index, active, site)
        self._data[addresses] = value[active.lanes] if isinstance(value, np.ndarray) else value
        self._written[addresses] = True

    def _not_under_way(self, addresses: Ints, index: Sequence[Index], active: Active, site: Site) -> None:
        """No barrier of the group orders what comes after a copy that nobody has waited for."""
        under_way = self._under_way[addresses]
        if under_way.any():
            self._fault("race", int(np.argmax(under_way)), index, active, site, "a copy to it is still under way")

    def begin(self, index: Sequence[Index], active: Active, site: Site) -> Ints:
        """An asynchronous store begins: gives its addresses, whose content is undefined until it lands."""
        addresses = self._locate(index, active, site) + self._base[active.lanes]
        conflict = self._accesses.write(addresses, active.lanes, site.number, self._lanes.time)
        if conflict is not None:
            self._clash(conflict, "writes", index, active, site)
        self._not_under_way(addresses, index, active, site)
        self._written[addresses] = False
        self._under_way[addresses] = True
        return addresses

    def land(self, addresses: Ints, value: Floats, lanes: Ints, site: Site, for_all: bool = False) -> None:
        """What was begun is there, as if each lane had just stored it; or `for_all` to see, as after a barrier."""
        if not for_all:
            self._accesses.write(addresses, lanes, site.number, self._lanes.time)
        self._data[addresses] = value
        self._written[addresses] = True
        self._under_way[addresses] = False

    def retire(self) -> bool:
        """Give the memory up to another buffer; False if an access is not ordered before what follows."""
        self._written[:] = False
        return self._accesses.settled

    def publish(self, active: Active, until: int | None = None) -> None:
        """What was done before (or up to a time) is ordered before what follows, in each active group."""
        if active.full:
            self._accesses.forget(0, len(self._data), until)
            return
        for group in np.unique(self._lanes.base[active.lanes]):
            self._accesses.forget(int(group) * self._size, (int(group) + 1) * self._size, until)

    def _other(self, lane: int) -> int:
        return self._lanes.first + lane


class ViewMemory(Strided):
    """A place in local memory that each work-item has for itself."""

    def __init__(
        self, lanes: Lanes, buffer: Buffer, sizes: dict[str, int], sites: Sequence[Site], memory: LocalMemory
    ) -> None:
        super().__init__(lanes, buffer, sizes, sites)
        self.memory, self._size = memory, memory.size

    def point(self, index: Sequence[Index], active: Active, site: Site) -> None:
        """Begin at an element; all work-items of the groups do."""
        start = self.memory.locate(index, active, site)
        self.start = active.spread(start) if isinstance(start, np.ndarray) else start

    def read(self, index: Sequence[Index], active: Active, site: Site) -> Value:
        """Loads of the active lanes."""
        return self.memory.read_at(self._locate(index, active, site), index, active, site)

    def peek(self, index: Sequence[Index], active: Active, site: Site) -> Value:
        """Loads that nobody may need."""
        return self.memory.peek_at(self._locate(index, active, site), index, active, site)

    def write(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """Raises: LoweringError."""
        raise LoweringError(f"`{site.text}` writes by view {self._name}")


class GlobalMemory(_Shared):
    """A flat array of the host. No barrier orders accesses to it: nothing in the IR publishes global memory. Other
    kernels of the stream may touch it, too: `launch` says so.
    """

    _ADVICE = "and no barrier orders global memory"

    def __init__(
        self,
        lanes: Lanes,
        buffer: Buffer,
        sizes: dict[str, int],
        sites: Sequence[Site],
        data: Floats,
        launch: Launch | None = None,
    ) -> None:
        super().__init__(lanes, buffer, sizes, sites)
        self._data, self._size, self._launch = data, min(len(data), buffer.reach), launch
        lanes.on_load(self._begin)
        # What nobody may write to cannot be raced for.
        self._accesses = Accesses(len(data)) if buffer.writable else None

    def _begin(self) -> None:
        """Where the groups that run next find it."""
        self.start = 0

    def _touch(self, address: Index, lanes: Ints, writes: bool, site: Site) -> None:
        """Tell the launch, in which other kernels may run meanwhile."""
        if self._launch is not None:
            self._launch.touch(self._name, self._data, np.broadcast_to(address, lanes.shape), lanes, writes, site)

    def read(self, index: Sequence[Index], active: Active, site: Site) -> Value:
        """Loads of the active lanes."""
        address = self._locate(index, active, site)
        self._touch(address, active.lanes, False, site)
        if self._accesses is None:
            return active.spread(self._data[address]) if isinstance(address, np.ndarray) else self._data[address]
        addresses = np.broadcast_to(address, active.lanes.shape)
        conflict = self._accesses.read(addresses, self._lanes.first + active.lanes, site.number)
        if conflict is not None:
            self._clash(conflict, "reads", index, active, site)
        return active.spread(self._data[addresses])

    def write(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """Stores of the active lanes."""
        if self._accesses is None:
            raise LoweringError(f"`{site.text}` writes to {self._name}, which is read only")
        addresses = np.broadcast_to(self._locate(index, active, site), active.lanes.shape)
        self._touch(addresses, active.lanes, True, site)
        conflict = self._accesses.write(addresses, self._lanes.first + active.lanes, site.number)
        if conflict is not None:
            self._clash(conflict, "writes", index, active, site)
        self._data[addresses] = value[active.lanes] if isinstance(value, np.ndarray) else value

    def add(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """Additions that may meet: only a plain access of somebody else's is in their way."""
        if self._accesses is None:
            raise LoweringError(f"`{site.text}` adds to {self._name}, which is read only")
        addresses = np.broadcast_to(self._locate(index, active, site), active.lanes.shape)
        self._touch(addresses, active.lanes, True, site)
        conflict = self._accesses.read(addresses, self._lanes.first + active.lanes, site.number)
        if conflict is not None:
            self._clash(conflict, "adds to", index, active, site)
        np.add.at(self._data, addresses, value[active.lanes] if isinstance(value, np.ndarray) else value)


class ImageMemory(Base):
    """A 2D image. What lies outside of it is undefined, so it reads as NaN: any use of it shows."""

    # Its methods have the arguments that `Memory` asks for, needed or not.
    # ruff: noqa: ARG002

    def __init__(
        self, lanes: Lanes, buffer: Buffer, sizes: dict[str, int], sites: Sequence[Site], data: Floats
    ) -> None:
        super().__init__(lanes, buffer, sizes, sites)
        self._data = data

    def read(self, index: Sequence[Index], active: Active, site: Site) -> Value:
        """Loads of the active lanes."""
        shape = active.lanes.shape
        row, column = (np.broadcast_to(active.pick(i), shape) for i in index)
        rows, columns = (min(a, b) for a, b in zip(self._shape, self._data.shape, strict=True))
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        out = np.full(shape, poison(self._data.dtype), self._data.dtype)
        out[inside] = self._data[row[inside], column[inside]]
        return active.spread(out)

    def write(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """Raises: LoweringError."""
        raise LoweringError(f"`{site.text}` writes to image {self._name}")
