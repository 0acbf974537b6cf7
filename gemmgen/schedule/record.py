"""How to compute it: a closed, hashable, TOML-serialisable record of four axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Generic, Literal, TypeVar, cast

from gemmgen.errors import ScheduleError, UserError
from gemmgen.names import name_problem
from gemmgen.records import dataclass
from gemmgen.schedule.direct import Direct
from gemmgen.schedule.epilogues import Epilogue, Registers
from gemmgen.schedule.fields import AddressPayloads, Atom, Flat, Pair, Value, meanings
from gemmgen.schedule.flat import (
    AXES,
    Key,
    Parts,
    assembled,
    axis_of,
    checked,
    keys_of,
    misplaced,
    said,
    without_being_said,
)
from gemmgen.schedule.mainloop import Mainloop, Method
from gemmgen.schedule.operand import Operand
from gemmgen.schedule.schedulers import OneTile, TileScheduler
from gemmgen.schedule.tiling import ThreadTiling, Tiling
from gemmgen.schedule.warp_mma import DirectMma, Mfma, WarpMma
from gemmgen.schedule.warpgroup_mma import WARPGROUP, WarpgroupMma, is_swapped

_Kind = TypeVar("_Kind")
_NOWHERE = object()


class View(Generic[_Kind]):
    """A field of one of the members, as a field of the schedule to be read.

    Args:
        absent: what stands for a field that no member has.
    """

    def __init__(self, absent: _Kind) -> None:
        self.absent = absent
        self.name = self.axis = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.axis = name, axis_of(name)

    def __get__(self, schedule: Schedule, owner: type) -> _Kind:
        found: object = getattr(getattr(schedule, self.axis), self.name, _NOWHERE)
        if found is _NOWHERE:
            found = without_being_said(schedule.parts, self.name, cast("Value", self.absent))
        return cast("_Kind", found)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How to compute a product: a tile scheduler, a mainloop and an epilogue on a tiling.

    Each axis is one of a closed set of records (`gemmgen.schedule.flat.AXES`), which hold the fields that mean
    something there. All of these can be read of the schedule as well (`schedule.stages`): where no member has one, that
    is the value that says so. `Schedule.of` makes a schedule from such fields, and `but` one with others.

    Attributes:
        name: of the kernel; None derives one (`kernel_names.kernel_name`).
    """

    tiling: Tiling = field(default_factory=ThreadTiling)
    mainloop: Mainloop = field(default_factory=Direct)
    epilogue: Epilogue = field(default_factory=Registers)
    scheduler: TileScheduler = field(default_factory=OneTile)
    name: str | None = None

    tile = View[Pair]((1, 1))
    group = View[Pair]((16, 16))
    thread_vector = View[Pair]((1, 1))
    block_k = View(1)
    sub_group = View[int | None](None)
    b_sub_step = View(0)
    stages = View(1)
    mbarrier = View(0)
    tma = View(False)
    sliced_k = View(1)
    lanes_along_k = View(1)
    split_k = View(1)
    cluster_reduction = View(1)
    stream_k = View(False)
    atomic = View(False)
    threadblock_swizzle = View(0)
    prefetch = View(False)
    min_blocks = View(0)
    register_stages = View(1)
    lane_arrangement = View[Pair | None](None)
    lane_swizzle = View(False)
    across_tiles = View(False)
    serpentine = View(False)
    barrier = View(False)
    atom = View[Atom]("fma")
    block_2d = View(False)
    direct = View(False)
    prefetch_distance = View(0)
    address_payloads = View[AddressPayloads]("none")
    tf32 = View(False)
    block_writes = View(False)
    large_grf = View(False)
    c_width = View(1)
    epilogue_stages = View(0)
    ordered_epilogue = View(False)
    vector = View(1)
    dot_product = View(False)
    macro_kernel = View[Pair]((1, 1))
    grid_multiple = View[Pair]((1, 1))
    kc = View(0)
    mc = View(0)
    b_prefetch = View(0)
    fused_copy = View(False)
    c_prefetch = View(False)
    producer_threads = View(0)
    setmaxnreg = View[Pair]((0, 0))
    persistent = View(False)
    cluster = View[Pair]((1, 1))
    serial_launch = View(False)

    def __post_init__(self) -> None:
        """Raises: ScheduleError where members do not go together, and for a name that must not reach a source."""
        problems = _apart(self)
        name: object = self.name
        if name is not None and not isinstance(name, str):
            problems.append(f"name = {self.name!r} is of type {type(self.name).__name__}: give text, or None")
        elif name is not None and (problem := name_problem(name)):
            problems.append(problem)
        if problems:
            raise ScheduleError(problems)

    def _repr_svg_(self) -> str | None:
        """The picture that a notebook shows; None where there is none."""
        import gemmgen  # the public name: nothing here knows who draws

        try:
            return gemmgen.draw(None, self).svg
        except UserError:
            return None

    @classmethod
    def of(cls, *, name: str | None = None, **given: object) -> Schedule:
        """The schedule of these fields, A's and B's as `a=Operand(...)` or one by one as `**{"a.width": 4}`.

        Raises: ScheduleError with every problem.
        """
        return cls._of(given, {}, name)

    def but(self, **changes: object) -> Schedule:
        """The same with other values of some fields, each by its own name. Raises: ScheduleError."""
        name = cast("str | None", changes.pop("name", self.name))
        if not changes:
            return replace(self, name=name)
        own, implied = said(self.parts, PLAIN)
        return self._of({**own, **_written(changes)}, implied, name)

    @classmethod
    def _of(cls, given: Mapping[str, object], implied: Flat, name: str | None) -> Schedule:
        try:
            parts = assembled(checked(_written(given), KEYS), KEYS, PLAIN, implied)
        except ScheduleError as error:
            # That nothing of what is wrong hides the rest.
            wrong = name_problem(name) if isinstance(name, str) else None
            raise ScheduleError([*error.problems, *([] if wrong is None else [wrong])]) from None
        return cls(*parts, name)

    @property
    def parts(self) -> Parts:
        """A member of each axis."""
        return self.tiling, self.mainloop, self.epilogue, self.scheduler

    @property
    def a(self) -> Operand:
        """A's way into registers."""
        return self.mainloop.a

    @property
    def b(self) -> Operand:
        """B's way into registers."""
        return self.mainloop.b

    @property
    def by_blocks(self) -> bool:
        """Whether sub-groups read both operands by block reads, from buffers or from images."""
        return self.a.shuffle and self.b.block_read and self.a.memory == self.b.memory != "local"

    @property
    def whole_steps(self) -> bool:
        """Whether a step's values of B are all loaded before its arithmetic: so that the group can meet between, or so
        that compilers unroll the step as one.
        """
        return (self.barrier or self.by_blocks) and not self.b_sub_step

    @property
    def block_tile(self) -> tuple[int, int]:
        """Rows and columns of C that a group computes."""
        return self.tile[0] * self.group[0], self.tile[1] * self.group[1]

    @property
    def warpgroups(self) -> tuple[int, int]:
        """Warpgroups that multiply (above one another, beside one another)."""
        (high, wide), (rows, cols) = self.group, WARPGROUP
        return high // rows, wide // cols

    @property
    def all_work_items(self) -> tuple[int, int]:
        """Work-items of a group (rows, columns), those of all slices one above the other, and then the producers; those
        that share elements of C are beside one another.
        """
        high, wide = self.group
        if self.by_warpgroups and not self.operands_swapped:
            # Four wide, as warpgroups are, whichever way these lie.
            high, wide = high * wide // WARPGROUP[1], WARPGROUP[1]
        return high * self.sliced_k + self.producer_threads // max(1, wide), wide * self.lanes_along_k

    @property
    def round_depth(self) -> int:
        """How deep in K one round of the main loop goes."""
        return self.block_k * max(1, self.mbarrier)

    @property
    def asynchronous(self) -> bool:
        """Whether local memory is filled by asynchronous copies, which load zeros past K."""
        return self.a.async_copy or self.b.async_copy

    @property
    def method(self) -> Method:
        """The family it belongs to."""
        return self.mainloop.method

    @property
    def by_warps(self) -> bool:
        """Whether a warp multiplies as one."""
        return isinstance(self.mainloop, WarpMma | DirectMma | Mfma)

    @property
    def by_warpgroups(self) -> bool:
        """Whether warpgroups multiply tiles that a producer loads."""
        return isinstance(self.mainloop, WarpgroupMma)

    @property
    def partial_sums(self) -> int:
        """Sums of parts of K that a second kernel adds up, where there is more than one."""
        return self.split_k // max(1, self.cluster_reduction)

    @property
    def operands_swapped(self) -> bool:
        """Whether warpgroups multiply with their operands swapped, C^T = B^T A^T: so say the lanes of a group 4x32,
        which lie along C's columns. Of C a block then has few rows, and 64 columns of each warpgroup.
        """
        return self.by_warpgroups and is_swapped(self.group)

    def operand(self, name: str) -> Operand:
        """The path of A (`a`) or B (`b`)."""
        return {"a": self.a, "b": self.b}[name]

    def staged(self, name: str, order: str) -> Operand:
        """The path of A or B; where warps multiply, its shared tile has the order of the matrix."""
        operand = self.operand(name)
        follows = self.by_warps and not operand.prepacked
        return replace(operand, transposed=order == "col") if follows else operand

    def read_order(self, name: str, order: str) -> Literal["row", "col"]:
        """How the product reads A or B: as the matrix lies, `order`, or as it is laid out before."""
        operand = self.operand(name)
        transposed = operand.transposed if operand.prepacked else order == "col"
        return "col" if transposed else "row"

    def tile_line(self, name: str, order: str) -> int:
        """Elements along the fast axis of A's or B's tile: of a step along K, or, where that is its slow axis, of the
        block.
        """
        along_k = (self.read_order(name, order) == "row") == (name == "a")
        return self.block_k if along_k else self.block_tile[name == "b"]


def _written(given: Mapping[str, object]) -> dict[str, object]:
    """With the operands' fields one by one."""
    flat: dict[str, object] = {}
    for key, value in given.items():
        whole = isinstance(value, Operand) and key in ("a", "b")
        flat |= {f"{key}.{x}": getattr(value, x) for x in meanings(Operand)} if whole else {key: value}
    return flat


def _apart(s: Schedule) -> list[str]:
    """Members that do not go together."""
    loop = s.mainloop
    if wrong := [axis for axis, part in zip(AXES, s.parts, strict=True) if type(part) not in AXES[axis]]:
        return [f"{axis} = {getattr(s, axis)!r} is not one of {_listed(AXES[axis])}: use one" for axis in wrong]
    taken: dict[str, tuple[type, ...]] = {
        "tiling": (loop.tiling,),
        "epilogue": loop.epilogues,
        "scheduler": loop.schedulers,
    }
    apart = [
        f"{axis} {type(getattr(s, axis)).__name__} does not go with mainloop {type(loop).__name__}: use "
        f"{_listed(members)}"
        for axis, members in taken.items()
        if type(getattr(s, axis)) not in members
    ]
    return apart or list(misplaced(s.parts, PLAIN))


def _listed(members: tuple[type, ...]) -> str:
    return ", ".join(member.__name__ for member in members)


def _plain() -> Flat:
    """What stands for each field that is not there, in the order in which schedules are written."""
    flat: Flat = {}
    for key, view in vars(Schedule).items():
        if isinstance(view, View):
            flat[key] = cast("Value", view.absent)
        if key == "sub_group":
            flat |= {f"{x}.{name}": getattr(Operand(), name) for x in "ab" for name in meanings(Operand)}
    return flat


#: What stands for each field that is not there.
PLAIN: Mapping[str, Value] = _plain()
#: Every field that can be written: of the command line, of TOML and of `Schedule.of`.
KEYS: Mapping[str, Key] = keys_of(PLAIN)
