"""What mainloops have in common: how A and B come from global memory to what multiplies them, step by step along K."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import ClassVar, Literal

from gemmgen.records import dataclass
from gemmgen.schedule.epilogues import Epilogue, Registers
from gemmgen.schedule.fields import (
    Chosen,
    Flat,
    MatrixAtom,
    Memory,
    Record,
    ThreadAtom,
    WarpAtom,
    WarpgroupAtom,
    flag,
    number,
    pair,
    word,
)
from gemmgen.schedule.operand import Operand
from gemmgen.schedule.schedulers import AtomicSplitK, OneTile, Scheduler, SplitK
from gemmgen.schedule.tiling import ThreadTiling, Tiling

#: The fields of A, and of B, that mean something.
OperandKeys = Mapping[str, frozenset[str]]
Method = Literal["naive", "gemv", "slm", "simd", "block_read", "mma_direct", MatrixAtom, "vector"]
#: Bytes of an element that a matrix instruction multiplies.
ELEMENT_BYTES: Mapping[WarpAtom | WarpgroupAtom, int] = {
    "mma": 2,
    "mma_s8": 1,
    "mma_f8": 1,
    "mma_f64": 8,
    "mma_tf32": 4,
    "mma_3xtf32": 4,
    "wgmma": 2,
    "wgmma_s8": 1,
    "wgmma_f8": 1,
    "wgmma_tf32": 4,
    "wgmma_3xtf32": 4,
}


def both(*fields: str) -> OperandKeys:
    """The same fields of A and of B."""
    return dict.fromkeys("ab", frozenset(fields))


#: Fields of operands that instructions take as they are, that work-items load, that sub-groups read, and that pass
#: through local memory.
NO_OPERANDS = both()
LOADED = both("width", "prepacked")
OF_SUB_GROUPS = {
    "a": LOADED["a"] | {"memory", "block_read", "shuffle"},
    "b": LOADED["b"] | {"memory", "block_read"},
}
IN_LOCAL_MEMORY = both("width", "prepacked", "memory", "transposed", "pad", "async_copy")


#: Fields that several members have, each of one meaning: slots of a ring, reading ahead, parts of a step, tiles of a
#: batch, loading ahead, reading on into the next tile, registers of a thread, order of the arithmetic, meeting before
#: each step.
stages_field = partial(number, help="slots of the ring in local memory", like=2, most=64, tries=(1, 2, 3, 4, 6, 12, 16))
register_stages_field = partial(number, 1, "2 where the next step's operands are read ahead of use", 2, 2, (1, 2, 3))
slices_field = partial(number, 1, "parts of each step of K, each with work-items of its own", 4, 32, (1, 2, 4))
_BATCHES = "tiles for each pair of mbarriers; 0 for barriers of the group"
mbarrier_field = partial(number, help=_BATCHES, like=4, most=32, tries=(0, 1, 2, 3, 4))
prefetch_field = partial(flag, "the next tile is loaded into registers ahead")
across_field = partial(flag, "reading ahead goes on from one tile to the next")
large_grf_field = partial(flag, "twice as many registers a thread, and half as many threads (Intel)")
snake_field = partial(flag, "every other row of the arithmetic goes backwards")
barrier_field = partial(flag, "a barrier before each step, so that work-items share the cache")
#: The same of roles: who loads, their registers, and when kernels begin.
_PRODUCERS = "work-items of a group that only load: a warp or a warpgroup"
producers_field = partial(number, 128, _PRODUCERS, 128, 128, (0, 32, 128))
_REGISTERS = "registers of each work-item that multiplies x of each producer; 0x0 as launched"
_LIKE = "232x40 (of a work-item that computes x of a producer)"
registers_field = partial(pair, (0, 0), _REGISTERS, _LIKE, 255, ((0, 0), (232, 40), (240, 24)), least=0)
late_field = partial(flag, "its kernels begin when those before them are over")


def thread_atom_field() -> ThreadAtom:
    """What a work-item multiplies by."""
    return word("fma", "what multiplies: a work-item by multiply-adds or, of int8, by fours along K", "dp4a")


@dataclass(frozen=True, slots=True)
class Mainloop(Record):
    """What the members have in common.

    Attributes:
        a, b: the operands' way into registers.
    """

    #: The fields of the other axes that go with it, but for those that mean nothing `without` all the same.
    tiling: ClassVar[type[Tiling]] = ThreadTiling
    epilogues: ClassVar[tuple[type[Epilogue], ...]] = (Registers,)
    schedulers: ClassVar[tuple[type[Scheduler], ...]] = (OneTile, SplitK, AtomicSplitK)
    without: ClassVar[frozenset[str]] = frozenset()
    #: Where its operands may come from.
    memories: ClassVar[tuple[Memory, ...]] = ("global", "local", "image")
    chosen_by: ClassVar[Chosen | None] = None
    #: The fields of A, and of B, that mean something to it, whatever their other fields say.
    operands: ClassVar[OperandKeys] = NO_OPERANDS
    #: The family it belongs to, where that is always the same.
    family: ClassVar[Method]

    a: Operand = field(default_factory=Operand)
    b: Operand = field(default_factory=Operand)

    @classmethod
    def fixed(cls, atom: str, tiling: Tiling) -> Flat:
        """The values of fields that it leaves no choice of, where they are not those of a plain schedule."""
        return {}

    @classmethod
    def operand_keys(cls, name: str, operand: Operand) -> frozenset[str]:
        """The fields of A or B that mean something to it."""
        return cls.operands[name]

    @property
    def free(self) -> frozenset[str]:
        """Constants whose values may be changed in the emitted text: rows of a threadblock swizzle always may."""
        return frozenset({"GROUP_M"})

    @property
    def method(self) -> Method:
        """The family it belongs to."""
        return self.family
