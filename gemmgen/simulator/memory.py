"""Memory in the simulator: what an access does, and when it is a fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NoReturn, Protocol, cast

import numpy as np
import numpy.typing as npt

from gemmgen.errors import FaultKind, KernelFault, LoweringError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.expr import Expr, Var
from gemmgen.ir.numeric import numpy_dtype, poison
from gemmgen.ir.walk import evaluate, walk_expr
from gemmgen.records import dataclass
from gemmgen.simulator.lanes import Active, Bools, Floats, Index, Ints, Lanes, Site, Value
from gemmgen.simulator.launches import Launch
from gemmgen.simulator.races import Accesses, Conflict

#: Who sees by a barrier what was written before: each sub-group, the work-items of a role, each group, each cluster.
MemoryScope = Literal["sub_group", "role", "group", "cluster"]


class Memory(Protocol):
    """A buffer at run time. Indexes hold one value for all lanes or one a lane."""

    def read(self, index: Sequence[Index], active: Active, site: Site) -> Value:
        """The elements; inactive lanes get anything."""

    def write(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """Set the active lanes' elements."""


def unknown(extent: Expr, sizes: dict[str, int]) -> frozenset[str]:
    """The names in an extent that no argument gives: what a kernel loads from memory, as groups' sizes are."""
    return frozenset(x.name for x in walk_expr(extent) if isinstance(x, Var)) - sizes.keys()


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What all memory of a run knows of it: its lanes, the sizes by their names, and its statements."""

    lanes: Lanes
    sizes: dict[str, int]
    sites: Sequence[Site]


class Base:
    """What all of them share: bounds, addresses and messages."""

    def __init__(self, run: Run, buffer: Buffer) -> None:
        self._lanes, self._name, self._sites = run.lanes, buffer.name, run.sites
        self._extents = buffer.shape
        self.measure(run.sizes)
        self._dtype = numpy_dtype(buffer.dtype)

    def measure(self, sizes: dict[str, int]) -> None:
        """Work out the extents; those that the kernel has yet to load are 0 until then, so that nothing is inside."""
        self._shape = tuple(0 if unknown(extent, sizes) else evaluate(extent, sizes) for extent in self._extents)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents, slowest first."""
        return self._shape

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
        why = f"coordinate {axis} must be in 0..{self._shape[axis]}"
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
        strides, base, start: what an address is made of.
    """

    addressed = True

    def __init__(self, run: Run, buffer: Buffer) -> None:
        super().__init__(run, buffer)
        self.strides = tuple(evaluate(stride, run.sizes) for stride in buffer.layout.strides)
        self.base = evaluate(buffer.layout.base, run.sizes)
        self._size = 0
        self.start: Index = self.base

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

    def _check(self, conflict: Conflict | None, now: str, index: Sequence[Index], active: Active, site: Site) -> None:
        """Raises: KernelFault if there is one."""
        if conflict is None:
            return
        other = self._lanes.who(self._other(conflict.lane))
        verb = "wrote" if conflict.wrote else "read"
        where = f"in `{self._sites[conflict.site].text}`" if conflict.site is not None else "in the same statement"
        why = f"{now} what {other} {verb} {where}, {self._ADVICE}"
        self._fault("race", conflict.position, index, active, site, why)

    def _other(self, lane: int) -> int:
        return lane


class LocalMemory(_Shared):
    """A group's local memory, padding included; each group has its own stretch of one array."""

    def __init__(self, run: Run, buffer: Buffer) -> None:
        super().__init__(run, buffer)
        self._size = buffer.elements
        run.lanes.on_load(self.allocate)
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
        self._check(conflict, "reads", index, active, site)
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
        self._overwritten(addresses, index, active, site)
        self._data[addresses] = value[active.lanes] if isinstance(value, np.ndarray) else value
        self._written[addresses] = True

    def _overwritten(self, addresses: Ints, index: Sequence[Index], active: Active, site: Site) -> None:
        """What was there is ordered before; no barrier of the group orders a copy that nobody has waited for."""
        conflict = self._accesses.write(addresses, active.lanes, site.number, self._lanes.time)
        self._check(conflict, "writes", index, active, site)
        under_way = self._under_way[addresses]
        if under_way.any():
            self._fault("race", int(np.argmax(under_way)), index, active, site, "a copy to it is still under way")

    def begin(self, index: Sequence[Index], active: Active, site: Site) -> Ints:
        """An asynchronous store begins: gives its addresses, whose content is undefined until it lands."""
        addresses = self._locate(index, active, site) + self._base[active.lanes]
        self._overwritten(addresses, index, active, site)
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

    def publish(self, active: Active, scope: MemoryScope, until: int | None = None) -> None:
        """What was done before (or up to a time) is ordered before what follows: in each sub-group of the active lanes,
        among the active lanes of a role, or in each active group.
        """
        if scope == "sub_group":
            self._accesses.meet(active.mask, self._lanes.lanes_of_sub_group())
        elif scope == "role":
            self._accesses.forget(0, len(self._data), until, active.mask)
        elif active.full:
            self._accesses.forget(0, len(self._data), until)
        else:
            for group in np.unique(self._lanes.base[active.lanes]):
                self._accesses.forget(int(group) * self._size, (int(group) + 1) * self._size, until)

    def _other(self, lane: int) -> int:
        return self._lanes.first + lane


class ViewMemory(Strided):
    """A place in local memory that each work-item has for itself."""

    def __init__(self, run: Run, buffer: Buffer, memory: LocalMemory) -> None:
        super().__init__(run, buffer)
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
    """A flat array of the host. Of the barriers only those of sub-groups order accesses to it, each in its own. Other
    kernels of the stream may touch it, too: `launch` says so.
    """

    _ADVICE = "and no barrier orders global memory"

    def __init__(self, run: Run, buffer: Buffer, data: Floats, launch: Launch | None = None) -> None:
        super().__init__(run, buffer)
        self._data, self._size, self._launch = data, min(len(data), buffer.reach), launch
        run.lanes.on_load(self._begin)
        # What nobody may write to cannot be raced for.
        self._accesses = Accesses(len(data)) if buffer.writable else None
        self._stored_again = buffer.stored_again

    def _begin(self) -> None:
        """Where the groups that run next find it."""
        self.start = self.base

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
        self._check(conflict, "reads", index, active, site)
        return active.spread(self._data[addresses])

    def write(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """Stores of the active lanes."""
        values = value[active.lanes] if isinstance(value, np.ndarray) else value
        new = active if not self._stored_again else self._storing_others(index, values, active, site)
        if new is not None:
            addresses = self._changed(index, new, site, "writes")
            self._data[addresses] = value[new.lanes] if isinstance(value, np.ndarray) else value

    def _storing_others(self, index: Sequence[Index], values: Value, active: Active, site: Site) -> Active | None:
        """Those of the active lanes that store what is not there yet."""
        addresses = np.broadcast_to(self._locate(index, active, site), active.lanes.shape)
        again = np.zeros(len(active.mask), np.bool_)
        again[active.lanes] = self.is_there(addresses, values, self._lanes.first + active.lanes)
        return active.narrow(~again)

    def is_there(self, addresses: Ints, values: Value, lanes: Ints) -> Bools:
        """Whether the same bits were stored before, or another group stores them at once."""
        groups = lanes // self._lanes.group_size
        bits = _bits(np.broadcast_to(np.asarray(values, self._data.dtype), addresses.shape))
        _, first, which = np.unique(addresses, return_index=True, return_inverse=True)
        at_once = first[which]
        again: Bools = (groups[at_once] != groups) & (bits == bits[at_once]).all(1)
        if self._accesses is not None:
            again |= self._accesses.was_written(addresses) & (bits == _bits(self._data[addresses])).all(1)
        return again

    def add(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """Additions that may meet: only a plain access of somebody else's is in their way."""
        addresses = self._changed(index, active, site, "adds to")
        np.add.at(self._data, addresses, value[active.lanes] if isinstance(value, np.ndarray) else value)

    def _changed(self, index: Sequence[Index], active: Active, site: Site, verb: Literal["writes", "adds to"]) -> Ints:
        """The addresses that the active lanes change, if nobody is in their way."""
        if self._accesses is None:
            raise LoweringError(f"`{site.text}` {verb} {self._name}, which is read only")
        addresses = np.broadcast_to(self._locate(index, active, site), active.lanes.shape)
        self._touch(addresses, active.lanes, True, site)
        access = self._accesses.write if verb == "writes" else self._accesses.read
        self._check(access(addresses, self._lanes.first + active.lanes, site.number), verb, index, active, site)
        return addresses

    def publish_in_sub_groups(self, active: Active) -> None:
        """What the active lanes did is ordered before what others of their sub-groups do next."""
        if self._accesses is not None:
            some = np.zeros(self._lanes.grid_items, np.bool_)
            some[self._lanes.first + active.lanes] = True
            self._accesses.meet(some, self._lanes.lanes_of_sub_group())


def _bits(values: Floats) -> npt.NDArray[np.uint8]:
    """Bytes of each."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.itemsize)


class ImageMemory(Base):
    """A 2D image. What lies outside of it is undefined, so it reads as NaN: any use of it shows."""

    # Its methods have the arguments that `Memory` asks for, needed or not.
    # ruff: noqa: ARG002

    def __init__(self, run: Run, buffer: Buffer, data: Floats) -> None:
        super().__init__(run, buffer)
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


class PrivateMemory(Strided):
    """Registers: for each element one value a lane.

    An element is None until it is written. Where only some lanes wrote it, `_partial` says which.
    """

    addressed = False

    def __init__(self, run: Run, buffer: Buffer) -> None:
        super().__init__(run, buffer)
        self._size = buffer.elements
        self.allocate()

    def allocate(self) -> None:
        """Start with undefined content, as each declaration does."""
        self._elements: list[Value | None] = [None] * self._size
        self._partial: dict[int, Bools] = {}

    def _locate(self, index: Sequence[Index], active: Active, site: Site) -> Index:
        """The general rule, but at once where all lanes name one register by numbers, which is nearly always."""
        address = 0
        for coordinate, extent, stride in zip(index, self._shape, self.strides, strict=True):
            if isinstance(coordinate, np.ndarray) or not 0 <= coordinate < extent:
                return super()._locate(index, active, site)
            address += coordinate * stride
        return address if address < self._size else super()._locate(index, active, site)

    def read(self, index: Sequence[Index], active: Active, site: Site) -> Value:
        """One register, or one of several for each lane."""
        address = self._locate(index, active, site)
        if not isinstance(address, np.ndarray):
            return self._read_one(address, index, active, site)
        out: Floats = np.zeros(self._lanes.count, self._dtype)
        for one, some in self._by_address(address, active):
            out = np.where(some.mask, self._read_one(one, index, some, site), out)
        return out

    def _read_one(self, address: int, index: Sequence[Index], active: Active, site: Site) -> Value:
        value = self._elements[address]
        if value is None:
            self._fault("unwritten", 0, index, active, site, "nothing was written there")
        if self._partial and (mask := self._partial.get(address)) is not None:
            written = mask[active.lanes]
            if not written.all():
                self._fault("unwritten", int(np.argmin(written)), index, active, site, "nothing was written there")
        return value

    def write(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """The same for stores."""
        if not isinstance(value, np.ndarray):
            value = cast(Value, self._dtype.type(value))
        elif self._dtype.kind == "i":
            value = self._whole(value, site)
        elif value.dtype != self._dtype:
            raise LoweringError(f"`{site.text}` stores {value.dtype} into {self._name} of {self._dtype}")
        address = self._locate(index, active, site)
        if not isinstance(address, np.ndarray):
            self._write_one(address, value, active)
            return
        for one, some in self._by_address(address, active):
            self._write_one(one, value, some)

    def now(self) -> list[Value | None]:
        """What all of them hold: the same objects for as long as nobody writes to them."""
        return list(self._elements)

    def _whole(self, value: Value, site: Site) -> Value:
        """An integer as it is stored: indexes are worked out in 64 bits here, and must fit the 32 of the kernel."""
        stored = np.asarray(value).astype(self._dtype)
        if (stored != value).any():
            raise LoweringError(f"`{site.text}` stores a number that {self._dtype} does not hold into {self._name}")
        return stored

    def _write_one(self, address: int, value: Value, active: Active) -> None:
        if active.full:
            self._elements[address] = value
            self._partial.pop(address, None)
            return
        old = self._elements[address]
        if old is None:
            self._elements[address] = np.where(active.mask, value, self._dtype.type(0))
            self._partial[address] = active.mask
            return
        self._elements[address] = np.where(active.mask, value, old)
        if address in self._partial:
            self._partial[address] = self._partial[address] | active.mask

    def _by_address(self, address: Ints, active: Active) -> list[tuple[int, Active]]:
        """Lane by lane different registers: each address with the lanes that use it."""
        places = active.spread(address)
        parts = ((int(one), active.narrow(places == one)) for one in np.unique(address))
        return [(one, some) for one, some in parts if some is not None]


class ClusterMemory(LocalMemory):
    """A plane in each group's local memory, which that group reads, and every group of the cluster writes to.

    What one of them meets for orders nothing that others wrote: only a meeting of all does. Nobody writes to a group
    that may not have begun.
    """

    def __init__(self, run: Run, buffer: Buffer) -> None:
        self._groups, self._plane = buffer.distributed, buffer.elements
        super().__init__(run, buffer)

    def allocate(self) -> None:
        """Undefined content, all planes of a cluster one after the other."""
        self._size = self._plane
        super().allocate()
        self._size = self._plane * self._groups
        self._base = self._lanes.base // self._groups * self._size
        self._begun = False

    def read(self, index: Sequence[Index], active: Active, site: Site) -> Value:
        """Loads of the active lanes, each from its own group's plane."""
        self._not_others(index, active, site, "that is another group's plane")
        return super().read(index, active, site)

    def write(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """Stores of the active lanes."""
        if not self._begun:
            self._not_others(index, active, site, "that group may not have begun")
        super().write(index, value, active, site)

    def _not_others(self, index: Sequence[Index], active: Active, site: Site, why: str) -> None:
        others = np.not_equal(active.pick(index[0]), self._lanes.base[active.lanes] % self._groups)
        if others.any():
            self._fault("race", int(np.argmax(others)), index, active, site, why)

    def publish(self, active: Active, scope: MemoryScope, until: int | None = None) -> None:
        """A group alone orders nothing."""
        if scope == "cluster":
            super().publish(active, scope, until)

    def has_begun(self) -> None:
        """All groups of the cluster have met, so that each has shared memory."""
        self._begun = True
