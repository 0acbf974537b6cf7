"""A schedule whose numbers have names: a kernel built from it says `BM` where it means the tile's rows."""

from __future__ import annotations

from collections.abc import Callable

from gemmgen.ir.constants import named
from gemmgen.schedule.cpu_panel import CpuPanel
from gemmgen.schedule.fields import Pair
from gemmgen.schedule.record import Schedule, View

_TILE, _GROUP, _CLUSTER, _SWEEP = (vars(Schedule)[key] for key in ("tile", "group", "cluster", "macro_kernel"))


class _Number:
    """A field by a name of its own."""

    def __init__(self, view: View[int], name: str) -> None:
        self.view, self.name = view, name

    def __get__(self, schedule: NamedSchedule, owner: type) -> int:
        return named(self.name, self.view.__get__(schedule, owner), self.name in schedule.free)


class _Pair:
    """Two of them."""

    def __init__(self, get: Callable[[NamedSchedule], Pair]) -> None:
        self.get = get

    def __get__(self, schedule: NamedSchedule, owner: type) -> Pair:
        return self.get(schedule)


class NamedSchedule(Schedule):
    """The same schedule, read in names. It equals no `Schedule`, since what is built of it differs."""

    __slots__ = ()

    @classmethod
    def of_schedule(cls, schedule: Schedule) -> NamedSchedule:
        """What a kernel is built from."""
        return cls(*schedule.parts, schedule.name)

    def but(self, **changes: object) -> Schedule:
        """As of a plain schedule, whose fields are plain numbers."""
        plain = Schedule(*self.parts, self.name).but(**{key: _plain(value) for key, value in changes.items()})
        return NamedSchedule.of_schedule(plain)

    @property
    def free(self) -> frozenset[str]:
        """The constants that may be changed in the text: not a block's rows or columns of which a thread has but one,
        for which there is no loop.
        """
        single = {name for name, own in zip(("BM", "BN"), _TILE.__get__(self, type(self)), strict=True) if own == 1}
        return self.mainloop.free - single

    block_k = _Number(vars(Schedule)["block_k"], "BK")
    stages = _Number(vars(Schedule)["stages"], "STAGES")
    threadblock_swizzle = _Number(vars(Schedule)["threadblock_swizzle"], "GROUP_M")
    split_k = _Number(vars(Schedule)["split_k"], "SPLIT_K")
    sliced_k = _Number(vars(Schedule)["sliced_k"], "SLICES")
    producer_threads = _Number(vars(Schedule)["producer_threads"], "PRODUCERS")
    lanes_along_k = _Number(vars(Schedule)["lanes_along_k"], "LANES_K")
    kc = _Number(vars(Schedule)["kc"], "KC")
    mc = _Number(vars(Schedule)["mc"], "MC")

    def _tile(self) -> Pair:
        """Of a thread; the micro-tile of a CPU's kernel."""
        rows, cols = _TILE.__get__(self, type(self))
        if self.by_warpgroups:
            wide = self.group[1]
            return rows, cols if wide != 4 else self.block_tile[1] // wide
        return self._pair("MR NR" if isinstance(self.mainloop, CpuPanel) else "TM TN", (rows, cols))

    def _group(self) -> Pair:
        """Threads above and beside one another; of warpgroups, all consumers."""
        high, wide = _GROUP.__get__(self, type(self))
        if self.by_warpgroups:
            return (named("CONSUMERS", high * wide) // wide, wide) if wide == 4 else (high, wide)
        return self._pair("THREADS_M THREADS_N", (high, wide))

    def _cluster(self) -> Pair:
        """Blocks of a cluster above and beside one another: a line of them."""
        high, wide = _CLUSTER.__get__(self, type(self))
        return named("CLUSTER", high), named("CLUSTER", wide)

    def _macro_kernel(self) -> Pair:
        """Tiles of a CPU's thread, above and beside one another."""
        down, across = _SWEEP.__get__(self, type(self))
        return named("TILES_M", down), named("TILES_N", across)

    tile, group, cluster, macro_kernel = _Pair(_tile), _Pair(_group), _Pair(_cluster), _Pair(_macro_kernel)

    @property
    def block_tile(self) -> Pair:
        """The tile of C of a block."""
        (rows, cols), (high, wide) = _TILE.__get__(self, type(self)), _GROUP.__get__(self, type(self))
        if isinstance(self.mainloop, CpuPanel) and (high, wide) == (1, 1):
            return self.tile
        return self._pair("BM BN", (rows * high, cols * wide))

    def _pair(self, names: str, numbers: Pair) -> Pair:
        # A thread's tile follows from the block's.
        (one, other), free = names.split(), self.free
        freely = [(f"B{name[1:]}" if name[0] == "T" else name) in free for name in (one, other)]
        return named(one, numbers[0], freely[0]), named(other, numbers[1], freely[1])


def _plain(value: object) -> object:
    """Without names."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
