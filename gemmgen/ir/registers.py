"""Registers, in the interpreter: what an access does, and when it is a fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.lanes import Active, Bools, Floats, Index, Ints, Lanes, Site, Value
from gemmgen.ir.memory import Strided


class PrivateMemory(Strided):
    """Registers: for each element one value a lane.

    An element is None until it is written. Where only some lanes wrote it, `_partial` says which.
    """

    addressed = False

    def __init__(self, lanes: Lanes, buffer: Buffer, sizes: dict[str, int], sites: Sequence[Site]) -> None:
        super().__init__(lanes, buffer, sizes, sites)
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
