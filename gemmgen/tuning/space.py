"""Every legal schedule of a mainloop for a device: axes with their values, all points in order, points at random.

A point names one value on each axis. The same point is always the same schedule. Presets and candidates are points like
all others. Fields that no axis names are as the mainloop has them by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gemmgen import candidates
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import F32, I8
from gemmgen.ir.instructions import product_error
from gemmgen.ir.target import Target
from gemmgen.methods import flatten, unflatten
from gemmgen.passes.validate import is_possible
from gemmgen.records import dataclass
from gemmgen.schedule import Flat, Schedule, Value
from gemmgen.schedule.cpu_panel import CpuPanel
from gemmgen.schedule.direct import Direct, Gemv, SubGroup
from gemmgen.schedule.dpas import Dpas, DpasBlock2D, JointMatrix
from gemmgen.schedule.mainloop import ELEMENT_BYTES, Mainloop
from gemmgen.schedule.shared_memory import SharedMemory
from gemmgen.schedule.tma_ring import TmaRing
from gemmgen.schedule.warp_mma import DirectMma, Mfma, WarpMma
from gemmgen.schedule.warpgroup_mma import WarpgroupMma
from gemmgen.spec import GemmSpec

Shape = tuple[int, int, int]
#: A value on each axis, by the axis' name.
Point = dict[str, Value]
Condition = Callable[[Point], bool]
#: Draws for each schedule that is wanted, and values that one differs in from the one it is drawn near to.
_TRIES, _CHANGES = 100, 5


@dataclass(frozen=True, slots=True)
class Axis:
    """The values of one field of a schedule, or of one number of a pair.

    Attributes:
        name: the field; of one number of a pair, with `.rows` or `.columns`.
        values: all that is tried, in order.
        unit: what this one's values are multiples of, at a point.
        when: whether the field means anything at a point. Elsewhere the point has the first of `values`, and the
            schedule what the mainloop has by itself.
    """

    name: str
    values: tuple[Value, ...]
    unit: Callable[[Point], int] = lambda _: 1
    when: Condition = lambda _: True

    @property
    def key(self) -> str:
        """The field."""
        return self.name.removesuffix(".rows").removesuffix(".columns")

    @property
    def is_ordered(self) -> bool:
        """Whether its values are numbers, of which near ones do nearly the same."""
        return len(self.values) > 2 and all(isinstance(value, int) for value in self.values)


@dataclass(frozen=True, slots=True)
class Space:
    """The schedules of a mainloop for a product on a device.

    Attributes:
        mainloop: its record.
        axes: in the order in which points are written; an axis comes after those that its condition and unit name.
    """

    mainloop: type[Mainloop]
    axes: tuple[Axis, ...]
    spec: GemmSpec
    target: Target

    def narrowed(self, values: Mapping[str, tuple[Value, ...]]) -> Space:
        """The same with other values on some axes."""
        axes = tuple(replace(axis, values=values.get(axis.name, axis.values)) for axis in self.axes)
        return replace(self, axes=axes)

    def holding(self, schedules: Iterable[Schedule]) -> Space:
        """The same with the least values on each axis that some schedules need."""
        points = [point for schedule in schedules if (point := self.point(schedule)) is not None]
        found = {axis.name: {point[axis.name] for point in points} for axis in self.axes}
        return self.narrowed({axis.name: tuple(x for x in axis.values if x in found[axis.name]) for axis in self.axes})

    def schedule(self, point: Point) -> Schedule | None:
        """The schedule of a point; None where it can't be, or the device or the product refuses it."""
        flat: Flat = {}
        for axis in self.axes:
            value = point[axis.name]
            if not axis.when(point):
                continue
            if axis.key == axis.name:
                flat[axis.key] = value
                continue
            assert isinstance(value, int)
            number, pair = value * axis.unit(point), flat.get(axis.key, (0, 0))
            assert isinstance(pair, tuple)
            flat[axis.key] = (number, pair[1]) if axis.name.endswith(".rows") else (pair[0], number)
        try:
            found = unflatten(flat)
        except ScheduleError:
            return None
        if type(found.mainloop) is not self.mainloop:
            return None
        return found if is_possible(self.spec, found, self.target) else None

    def point(self, schedule: Schedule) -> Point | None:
        """The point of a schedule, without what means nothing on the device; None where it lies outside."""
        if type(schedule.mainloop) is not self.mainloop:
            return None
        schedule = self.of_device(schedule)
        flat, point = flatten(schedule), Point()
        for axis in self.axes:
            value = flat[axis.key]
            if not axis.when(point):
                value = axis.values[0]
            elif axis.key != axis.name and isinstance(value, tuple):
                value, rest = divmod(value[axis.name.endswith(".columns")], axis.unit(point))
                value = None if rest else value
            if value not in axis.values:
                return None
            point[axis.name] = value
        # Fields without an axis are as the mainloop has them by itself.
        return point if self.schedule(point) == schedule else None

    def of_device(self, schedule: Schedule) -> Schedule:
        """A schedule without its name, and without what only compilers of other devices read."""
        plain = schedule.but(name=None)
        return plain if self.target.multiprocessor_register_bytes or not plain.min_blocks else plain.but(min_blocks=0)

    def points(self) -> Iterator[tuple[Point, Schedule]]:
        """Every legal one, in the order of the axes' values."""
        yield from self._below(Point(), 0)

    def _below(self, point: Point, depth: int) -> Iterator[tuple[Point, Schedule]]:
        if depth == len(self.axes):
            schedule = self.schedule(point)
            if schedule is not None:
                yield dict(point), schedule
            return
        axis = self.axes[depth]
        for value in axis.values if axis.when(point) else axis.values[:1]:
            point[axis.name] = value
            yield from self._below(point, depth + 1)
        del point[axis.name]

    def sample(self, count: int, seed: int, near: Sequence[Schedule] = ()) -> Iterator[tuple[Point, Schedule]]:
        """Legal ones at random, each once: the same for the same seed, at most `count`.

        Args:
            near: legal ones, from which those that are drawn differ in a few values, and then these from those. Where
                few points are legal, other draws find none.
        """
        draw, found = random.Random(seed), set[Schedule]()
        known = [point for schedule in near if (point := self.point(schedule)) is not None]
        for _ in range(count * _TRIES):
            point = self._near(draw.choice(known), draw) if known else self._anywhere(draw)
            schedule = self.schedule(point)
            if schedule is not None and schedule not in found:
                found.add(schedule)
                if known:
                    known.append(point)
                yield point, schedule
                if len(found) == count:
                    return

    def near(self, schedule: Schedule, draw: random.Random) -> Schedule | None:
        """One that differs from a schedule in a few values; None where that lies outside, or the draw is illegal."""
        point = self.point(schedule)
        return None if point is None else self.schedule(self._near(point, draw))

    def _anywhere(self, draw: random.Random) -> Point:
        point = Point()
        for axis in self.axes:
            point[axis.name] = draw.choice(axis.values) if axis.when(point) else axis.values[0]
        return point

    def _near(self, start: Point, draw: random.Random) -> Point:
        changed = {axis.name for axis in draw.sample(self.axes, draw.randint(1, min(_CHANGES, len(self.axes))))}
        point = Point()
        for axis in self.axes:
            value = draw.choice(axis.values) if axis.name in changed else start[axis.name]
            point[axis.name] = value if axis.when(point) else axis.values[0]
        return point


def known_schedules(space: Space) -> list[Schedule]:
    """The presets and the other named schedules that are points of a space."""
    named = (space.of_device(candidates.load(name).schedule) for name in candidates.names())
    return [schedule for schedule in named if space.point(schedule) is not None]


def spaces(spec: GemmSpec, target: Target) -> tuple[Space, ...]:
    """The spaces of all mainloops that such a device may have for such a product, the likeliest to be fast first."""
    features = target.features
    found: list[type[Mainloop]] = []
    for mainloop, feature in _NEEDS:
        if feature is None or feature in features:
            found.append(mainloop)
    if "vectors" in features and spec.dtype.is_float and spec.dtype.size >= 4 and spec.dtype.real is None:
        # Work-items with vectors are the fast way on a CPU, wherever they can compute the product.
        found.sort(key=lambda mainloop: mainloop is not CpuPanel)
    else:
        found = [mainloop for mainloop in found if mainloop is not CpuPanel]
    return tuple(Space(each, _AXES[each](spec, target), spec, target) for each in found)


def space_of(schedule: Schedule, spec: GemmSpec, target: Target) -> Space:
    """The space of a schedule's mainloop, whether it holds the schedule or not."""
    mainloop = type(schedule.mainloop)
    return Space(mainloop, _AXES[mainloop](spec, target), spec, target)


def is_precise(schedule: Schedule, spec: GemmSpec) -> bool:
    """Whether a search may take it unasked: the same bits in every run, and products as exact as elements are."""
    return not schedule.atomic and (spec.allow_tf32 or not product_error(schedule.atom, spec.dtype))


def is_redundant(schedule: Schedule, shape: Shape) -> bool:
    """Whether a schedule does on this shape what a smaller number in one of its fields does, too."""
    (rows, cols), (down, across), (m, n, k) = schedule.tile, schedule.macro_kernel, shape
    most = (_reaching(_SWEEPS, -(-m // rows)), _reaching(_SWEEPS, -(-n // cols)))
    too_deep = schedule.kc > _reaching(_DEPTHS, k)
    too_far = schedule.mc > 1 and schedule.mc >= min(down, -(-m // rows))
    return down > most[0] or across > most[1] or too_deep or too_far or schedule.split_k > max(1, k // 32)


def _reaching(values: tuple[int, ...], size: int) -> int:
    """The least of the values that is as large; the largest if none is."""
    return next((value for value in values if value >= size), values[-1])


# --- axes -----------------------------------------------------------------------------------------

_TIMES = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_POWERS = (1, 2, 4, 8, 16, 32)
_WIDTHS = (1, 2, 4, 8, 16)
_SPLITS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
#: How the lanes of a warp lie.
_WARPS: tuple[Value, ...] = (None, (4, 8), (8, 4), (2, 16), (16, 2))
_SWIZZLES = (0, 2, 4, 8, 12, 16)
#: Tiles that a work-item with vectors computes along an axis.
_SWEEPS = (1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 43, 64, 86, 128, 171, 256, 342, 512, 683, 1024)
#: Depths of panels.
_DEPTHS = (0, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192, 16384)


def _is(name: str, *values: Value) -> Condition:
    return lambda point: point.get(name) in values


def _copied(point: Point) -> bool:
    """Whether a work-item with vectors of columns copies B."""
    return point["b.memory"] == "private" and not point["dot_product"]


def _has_blocks_of_rows(point: Point) -> bool:
    """Whether a work-item may compute some tiles of a column and then others right of them."""
    return (point["b.memory"] == "private" and not point["fused_copy"]) or bool(point["dot_product"])


def _is_copied_before(point: Point) -> bool:
    """Whether a copy of B is complete before a tile reads it."""
    return _copied(point) and not point["fused_copy"]


def _is_split(point: Point) -> bool:
    return point["split_k"] != 1


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _is_arranged(point: Point) -> bool:
    return point["lane_arrangement"] is not None


def _cpu_panel(_: GemmSpec, target: Target) -> tuple[Axis, ...]:
    grid = tuple(sorted({1, 2, 3, target.cores}))
    prefetches = (0, 4, 8, 16) if "cache_prefetch" in target.features else (0,)
    return (
        Axis("vector", (2, 4, 8, 16)),
        Axis("dot_product", (False, True)),
        Axis("b.memory", ("global", "private")),
        Axis("group.rows", (1,)),
        Axis("group.columns", (1,)),
        Axis("tile.rows", (*range(1, 17),)),
        # Vectors of columns; of a dot product, columns.
        Axis("tile.columns", (*range(1, 9), 12, 16), unit=lambda x: 1 if x["dot_product"] else _number(x["vector"])),
        Axis("macro_kernel.rows", _SWEEPS),
        Axis("macro_kernel.columns", _SWEEPS),
        Axis("grid_multiple.rows", grid),
        Axis("grid_multiple.columns", grid),
        Axis("kc", _DEPTHS),
        Axis("fused_copy", (False, True), when=_copied),
        Axis("mc", (0, 1, 2, 4, 8, 16, 32, 64), when=_has_blocks_of_rows),
        Axis("block_k", (1, 2, 4, 8), when=_is_copied_before),
        Axis("b_prefetch", prefetches, when=lambda x: not x["dot_product"]),
        Axis("c_prefetch", (False, True) if len(prefetches) > 1 else (False,), when=_is_copied_before),
        Axis("split_k", _SPLITS),
    )


def _thread_tiles() -> tuple[Axis, ...]:
    """A work-item's neighbouring elements, so many times along rows and columns; and work-items."""
    return (
        Axis("thread_vector.rows", (1, 2, 3, 4, 6, 8, 16, 24, 32)),
        Axis("thread_vector.columns", (1, 2, 3, 4, 6, 8, 16)),
        Axis("tile.rows", _TIMES, unit=lambda x: _number(x["thread_vector.rows"])),
        Axis("tile.columns", _TIMES, unit=lambda x: _number(x["thread_vector.columns"])),
        Axis("group.rows", _POWERS),
        Axis("group.columns", _POWERS),
    )


def _parts_of_k(target: Target) -> tuple[Axis, ...]:
    atomic = (False, True) if "atomic_add" in target.features else (False,)
    return (
        Axis("split_k", _SPLITS),
        Axis("atomic", atomic, when=_is_split),
        Axis("threadblock_swizzle", _SWIZZLES),
        Axis("c_width", (1, 2, 4, 8)),
    )


def _lanes(target: Target) -> tuple[Value, ...]:
    return (None, *(size for size in target.sub_group_sizes if size >= 8))


def _direct(_: GemmSpec, target: Target) -> tuple[Axis, ...]:
    return (
        *_thread_tiles(),
        Axis("block_k", _POWERS),
        Axis("a.width", _WIDTHS),
        Axis("b.width", _WIDTHS),
        Axis("sliced_k", (1, 2, 4, 8)),
        Axis("barrier", (False, True)),
        Axis("serpentine", (False, True)),
        *_parts_of_k(target),
    )


def _gemv(spec: GemmSpec, target: Target) -> tuple[Axis, ...]:
    return (
        Axis("atom", ("fma", "dp4a") if spec.dtype == I8 else ("fma",)),
        *_thread_tiles(),
        Axis("block_k", tuple(32 << power for power in range(9))),
        Axis("a.width", _WIDTHS),
        Axis("b.width", _WIDTHS),
        Axis("lanes_along_k", (8, 16, 32)),
        Axis("sliced_k", (1, 2, 4, 8)),
        *_parts_of_k(target),
    )


def _sub_group(_: GemmSpec, target: Target) -> tuple[Axis, ...]:
    memories = ("global", "image") if "image_block_read" in target.features else ("global",)
    blocks = (False, True) if "block_read" in target.features else (False,)
    return (
        *_thread_tiles(),
        Axis("sub_group", _lanes(target)[1:] or (None,)),
        Axis("block_k", (*_POWERS, 64)),
        Axis("a.memory", memories),
        Axis("b.memory", memories),
        Axis("a.width", _WIDTHS),
        Axis("b.width", _WIDTHS),
        Axis("a.block_read", blocks),
        Axis("b.block_read", blocks),
        Axis("a.shuffle", (False, True)),
        Axis("b_sub_step", (0, 2, 4, 8, 16)),
        Axis("barrier", (False, True)),
        Axis("serpentine", (False, True)),
        Axis("large_grf", (False, True)),
        *_parts_of_k(target),
    )


def _shared_memory(_: GemmSpec, target: Target) -> tuple[Axis, ...]:
    copies = (False, True) if "async_copy" in target.features else (False,)
    warps = _WARPS if "reused_local_memory" in target.features else (None,)
    each = (
        axis
        for x in "ab"
        for axis in (
            Axis(f"{x}.memory", ("local", "global")),
            Axis(f"{x}.width", _WIDTHS),
            Axis(f"{x}.transposed", (False, True), when=_is(f"{x}.memory", "local")),
            Axis(f"{x}.pad", (0, 1, 4, 8), when=_is(f"{x}.memory", "local")),
            Axis(f"{x}.async_copy", copies, when=_is(f"{x}.memory", "local")),
            Axis(f"{x}.prepacked", (False, True)),
        )
    )
    return (
        *_thread_tiles(),
        Axis("block_k", (*_POWERS, 64)),
        *each,
        Axis("sub_group", _lanes(target)),
        Axis("b.block_read", (False, True) if "block_read" in target.features else (False,)),
        Axis("stages", (1, 2, 3, 4, 5, 6, 8, 12, 16)),
        Axis("mbarrier", (0, 1, 2, 4) if "mbarrier" in target.features else (0,)),
        Axis("sliced_k", (1, 2, 4, 8)),
        Axis("prefetch", (False, True)),
        Axis("min_blocks", (0, 1, 2, 4) if target.multiprocessor_register_bytes else (0,)),
        Axis("register_stages", (1, 2)),
        Axis("across_tiles", (False, True), when=_is("register_stages", 2)),
        Axis("serpentine", (False, True)),
        Axis("lane_arrangement", warps),
        Axis("lane_swizzle", (False, True), when=_is_arranged),
        Axis("stream_k", (False, True) if "mbarrier" in target.features else (False,)),
        *_parts_of_k(target),
        Axis("cluster_reduction", (1, 2, 4, 8) if "clusters" in target.features else (1,), when=_is_split),
    )


def _tma_ring(_: GemmSpec, target: Target) -> tuple[Axis, ...]:
    each = (Axis(f"{x}.{key}", (False, True)) for x in "ab" for key in ("prepacked", "evict_first"))
    return (
        Axis("tma", (True,)),
        *_thread_tiles(),
        Axis("lane_arrangement", _WARPS),
        Axis("lane_swizzle", (False, True), when=_is_arranged),
        Axis("block_k", (*_POWERS, 64)),
        *each,
        Axis("stages", (2, 3, 4, 6, 8, 12, 16)),
        Axis("mbarrier", (1, 2, 3, 4)),
        Axis("producer_threads", (128, 32)),
        Axis("setmaxnreg", ((0, 0), (160, 32), (232, 40), (240, 24))),
        Axis("serial_launch", (False, True)),
        Axis("register_stages", (1, 2)),
        Axis("across_tiles", (False, True), when=_is("register_stages", 2)),
        Axis("serpentine", (False, True)),
        Axis("stream_k", (False, True)),
        *_parts_of_k(target),
    )


def _atoms(prefix: str, spec: GemmSpec) -> tuple[Value, ...]:
    """The instructions of a kind for elements of so many bytes; all of them where there is none, so that an axis has a
    value.
    """
    own = tuple(atom for atom in ELEMENT_BYTES if atom.partition("_")[0] == prefix)
    return tuple(atom for atom in own if ELEMENT_BYTES[atom] == spec.dtype.size) or own


def _warp_mma(spec: GemmSpec, target: Target) -> tuple[Axis, ...]:
    each = (Axis(f"{x}.{key}", values) for x in "ab" for key, values in _OF_WARPS)
    return (
        Axis("atom", _atoms("mma", spec)),
        Axis("tile.rows", (2, 4, 6, 8, 12, 16)),
        Axis("tile.columns", (2, 4, 6, 8, 12, 16, 24, 32)),
        Axis("group.rows", (8, 16, 32, 64)),
        Axis("group.columns", (4, 8, 16, 32)),
        Axis("block_k", (8, 16, 32, 64, 128)),
        *each,
        Axis("stages", (1, 2, 3, 4, 5, 6, 8)),
        Axis("sliced_k", (1, 2, 4)),
        Axis("prefetch", (False, True) if spec.dtype.size < 4 else (False,)),
        Axis("register_stages", (1, 2)),
        Axis("across_tiles", (False, True), when=_is("register_stages", 2)),
        *_parts_of_k(target),
    )


_OF_WARPS: tuple[tuple[str, tuple[Value, ...]], ...] = (("pad", (0, 4, 8, 16)), ("prepacked", (False, True)))


def _warpgroup_mma(spec: GemmSpec, _: Target) -> tuple[Axis, ...]:
    each = (
        axis
        for x in "ab"
        for axis in (
            Axis(f"{x}.memory", ("local", "private")),
            Axis(f"{x}.prepacked", (False, True)),
            Axis(f"{x}.transposed", (False, True), when=_is(f"{x}.prepacked", True)),
            Axis(f"{x}.evict_first", (False, True)),
        )
    )
    return (
        Axis("atom", _atoms("wgmma", spec)),
        # Rows of a warpgroup and columns by the instruction's steps of 8; where operands are swapped, the other way.
        Axis("tile.rows", (*range(2, 65, 2),)),
        Axis("tile.columns", (*range(2, 65, 2),)),
        Axis("group.rows", (4, 8, 32, 64, 96)),
        Axis("group.columns", (4, 8, 32, 64)),
        Axis("block_k", (16, 32, 64, 128, *((2 * spec.sum_group,) if spec.sum_group else ()))),
        *each,
        Axis("stages", (2, 3, 4, 5, 6, 7, 8, 10, 12)),
        Axis("producer_threads", (128, 32)),
        Axis("setmaxnreg", ((0, 0), (160, 32), (232, 40), (240, 24))),
        Axis("cluster", ((1, 1), (2, 1), (1, 2), (4, 1), (1, 4))),
        Axis("serial_launch", (False, True)),
        Axis("persistent", (False, True)),
        Axis("epilogue_stages", (0, 1, 2, 3, 4)),
        Axis("ordered_epilogue", (False, True), when=lambda x: x["epilogue_stages"] != 0),
        Axis("c_width", (1, 2, 4), when=_is("epilogue_stages", 0)),
        Axis("split_k", _SPLITS),
        Axis("cluster_reduction", (1, 2, 4), when=_is_split),
        Axis("threadblock_swizzle", _SWIZZLES),
    )


def _dpas(_: GemmSpec, target: Target) -> tuple[Axis, ...]:
    return (
        Axis("atom", ("dpas",)),
        Axis("tile.rows", (8, 16, 24, 32, 40)),
        Axis("tile.columns", (1, 2, 3, 4, 5, 6, 8)),
        Axis("group.rows", (1,)),
        Axis("group.columns", _lanes(target)[1:] or (8, 16)),
        Axis("block_k", (16, 32, 64)),
        Axis("large_grf", (False, True) if target.large_register_bytes else (False,)),
    )


def _dpas_block_2d(spec: GemmSpec, _: Target) -> tuple[Axis, ...]:
    return (
        Axis("atom", ("dpas",)),
        Axis("block_2d", (True,)),
        Axis("tile.rows", (8, 16, 24, 32, 40)),
        Axis("tile.columns", (1, 2, 3, 4, 5, 6, 8)),
        Axis("group.rows", (1, 2, 4, 8, 16)),
        Axis("group.columns", (16, 32, 64, 128)),
        Axis("block_k", (16, 32, 64, 128, 256)),
        Axis("barrier", (False, True)),
        Axis("prefetch_distance", (0, 1, 2, 3, 4)),
        Axis("tf32", (spec.dtype == F32,)),
        Axis("address_payloads", ("none", "prefetches", "all")),
        Axis("block_writes", (False, True)),
        # SYCL's target is any device: those with these instructions have the option.
        Axis("large_grf", (False, True)),
        Axis("split_k", _SPLITS),
        Axis("threadblock_swizzle", _SWIZZLES),
    )


def _joint_matrix(_: GemmSpec, target: Target) -> tuple[Axis, ...]:
    return (
        Axis("atom", ("joint_matrix",)),
        Axis("tile.rows", (8, 16, 32, 48)),
        Axis("tile.columns", (1, 2, 3, 4, 6, 8)),
        Axis("group.rows", (1, 2, 4, 8, 16)),
        Axis("group.columns", (16, 32, 64, 128)),
        Axis("block_k", (16, 32, 64, 128)),
        Axis("barrier", (False, True)),
        Axis("large_grf", (False, True) if target.large_register_bytes else (False,)),
        Axis("split_k", _SPLITS),
        Axis("threadblock_swizzle", _SWIZZLES),
    )


def _direct_mma(_: GemmSpec, target: Target) -> tuple[Axis, ...]:
    return (
        Axis("direct", (True,)),
        Axis("atom", ("mma",)),
        Axis("tile.rows", (2, 4)),
        Axis("tile.columns", (2, 4)),
        Axis("group.rows", (4,)),
        Axis("group.columns", (8,)),
        Axis("a.width", (8,)),
        Axis("b.width", (8, 16, 32)),
        Axis("block_k", (128, 256, 512, 1024)),
        Axis("sliced_k", (1, 2, 4, 8)),
        *(axis for axis in _parts_of_k(target) if axis.name != "c_width"),
    )


def _mfma(_: GemmSpec, target: Target) -> tuple[Axis, ...]:
    return (
        Axis("atom", ("mfma",)),
        Axis("tile.rows", (4, 8, 16, 32)),
        Axis("tile.columns", (1, 2, 4, 8)),
        Axis("group.rows", (4, 8, 16)),
        Axis("group.columns", (16, 32, 64)),
        Axis("block_k", (8, 16, 32)),
        *(axis for axis in _parts_of_k(target) if axis.name != "c_width"),
    )


_AXES: Mapping[type[Mainloop], Callable[[GemmSpec, Target], tuple[Axis, ...]]] = {
    WarpgroupMma: _warpgroup_mma,
    WarpMma: _warp_mma,
    DirectMma: _direct_mma,
    Mfma: _mfma,
    Dpas: _dpas,
    DpasBlock2D: _dpas_block_2d,
    JointMatrix: _joint_matrix,
    CpuPanel: _cpu_panel,
    TmaRing: _tma_ring,
    SharedMemory: _shared_memory,
    SubGroup: _sub_group,
    Direct: _direct,
    Gemv: _gemv,
}
#: The feature without which a device has none of a mainloop's schedules.
_NEEDS: tuple[tuple[type[Mainloop], str | None], ...] = (
    (WarpgroupMma, "wgmma"),
    (WarpMma, "mma"),
    (DirectMma, "mma"),
    (Mfma, "mfma"),
    (JointMatrix, "joint_matrix"),
    (DpasBlock2D, "block_read"),
    (Dpas, "intel_sub_groups"),
    (CpuPanel, "vectors"),
    (TmaRing, "tensor_maps"),
    (SharedMemory, None),
    (SubGroup, "sub_groups"),
    (Direct, None),
    (Gemv, None),
)
