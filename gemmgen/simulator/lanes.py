"""Work-items as lanes of one NumPy axis: who they are and which of them are active."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gemmgen.errors import LoweringError
from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Call, Const
from gemmgen.ir.instructions import LANE
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.show import headline
from gemmgen.ir.stmt import For, FragmentApply, Let, Stmt
from gemmgen.ir.walk import map_expr, substitute
from gemmgen.records import dataclass

Ints = npt.NDArray[np.int64]
#: Of any of the types that matrices and sums have.
Floats = npt.NDArray[np.number]
Bools = npt.NDArray[np.bool_]
Array = Ints | Floats | Bools

#: What an expression yields: one value for all lanes, or an array with one value a lane. Arrays are never
#: changed once made, so that a name and a register can share one.
Value = int | float | np.number | np.bool_ | Array
#: An integer value.
Index = int | Ints

_Element = TypeVar("_Element", bound=np.generic)
_Number = TypeVar("_Number", int, Ints)


@dataclass(frozen=True, slots=True, eq=False)
class Active:
    """The lanes that execute a statement; never none of them.

    Attributes:
        lanes: their numbers, ascending.
        mask: the same as one flag a lane.
        full: whether all lanes are active.
    """

    lanes: Ints
    mask: Bools
    full: bool

    def narrow(self, condition: Bools) -> Active | None:
        """Those for which `condition` holds; None if it is nobody."""
        mask = condition if self.full else condition & self.mask
        lanes = np.flatnonzero(mask)
        if len(lanes) == len(self.lanes):
            return self
        return Active(lanes, mask, False) if len(lanes) else None

    def split(self, condition: Value) -> tuple[Active | None, Active | None]:
        """Those for which `condition` holds, and the others."""
        if not isinstance(condition, np.ndarray):
            return (self, None) if condition else (None, self)
        truth = condition.astype(np.bool_, copy=False)
        return self.narrow(truth), self.narrow(~truth)

    def pick(self, values: Index) -> Index:
        """The active lanes' values, without gaps."""
        return values[self.lanes] if isinstance(values, np.ndarray) and not self.full else values

    def spread(self, values: npt.NDArray[_Element]) -> npt.NDArray[_Element]:
        """The inverse of `pick`: inactive lanes get zero."""
        if self.full:
            return values
        out = np.zeros(len(self.mask), values.dtype)
        out[self.lanes] = values
        return out


@dataclass(frozen=True, slots=True)
class Site:
    """A statement, by a number that fits into an array."""

    number: int
    statement: Stmt

    @property
    def text(self) -> str:
        """As messages quote it."""
        return headline(self.statement)


def place_of(group: _Number, grid: tuple[int, int, int]) -> tuple[_Number, _Number, _Number]:
    """Where the groups of these numbers stand along columns, rows and layers."""
    _, rows, cols = grid
    return group % cols, group // cols % rows, group // (rows * cols)


class Lanes:
    """The groups that run together: lane = group-major, then local row, then local column.

    Attributes:
        count: lanes, all groups together.
        group_size: work-items of a group.
        first: number of the first lane in the whole grid.
        everyone: all lanes.
        base: each lane's group, counted from the first that runs now.
        time: how often work-items arrived at an mbarrier; tells accesses apart that one orders and another does not.
        role: of those who wait for an mbarrier now, where work-items have roles.
        cluster: groups of a cluster.
    """

    def __init__(self, kernel: Kernel, grid: tuple[int, int, int]) -> None:
        rows, self._columns = kernel.group
        self.grid = grid
        self.group_size = rows * self._columns
        self.sub_group, self.cluster = kernel.sub_group, kernel.cluster
        if self.sub_group is not None and self.group_size % self.sub_group:
            raise LoweringError(f"kernel {kernel.name}: {self.group_size} work-items are not whole sub-groups")
        self._on_load: list[Callable[[], None]] = []
        self.time = 0
        self.role: Active | None = None
        self.load(0, 0)

    @property
    def grid_items(self) -> int:
        """Work-items of all groups."""
        layers, rows, cols = self.grid
        return layers * rows * cols * self.group_size

    def on_load(self, action: Callable[[], None]) -> None:
        """Have `action` run whenever other groups take their turn."""
        self._on_load.append(action)

    def load(self, first_group: int, groups: int) -> None:
        """Let the next `groups` groups be the ones that run."""
        self.groups = groups
        self.count = groups * self.group_size
        self.first = first_group * self.group_size
        lanes = np.arange(self.count, dtype=np.int64)
        self.everyone = Active(lanes, np.ones(self.count, np.bool_), True)
        self.base = lanes // self.group_size
        self._group = first_group + self.base
        self._item = lanes % self.group_size
        for action in self._on_load:
            action()

    def group_id(self, dimension: int) -> Index:
        """Index of the group: along columns (0), rows (1) or layers (2)."""
        return place_of(self._group, self.grid)[dimension]

    def group_count(self, dimension: int) -> int:
        """How many groups there are along a dimension of the grid."""
        return self.grid[2 - dimension]

    def local_id(self, dimension: int) -> Index:
        """Index of the work-item in its group: along columns (0) or rows (1)."""
        return self._item % self._columns if dimension == 0 else self._item // self._columns

    def lane_id(self) -> Ints:
        """Index of the work-item in its sub-group."""
        return self._item % self.lanes_of_sub_group()

    def lanes_of_sub_group(self) -> int:
        """The size of a sub-group. Raises: LoweringError if the kernel fixes none."""
        if self.sub_group is None:
            raise LoweringError("a sub-group operation in a kernel that requires no sub-group size")
        return self.sub_group

    def whole(self, active: Active, size: int) -> bool:
        """Whether every block of `size` lanes is active or inactive as one."""
        if active.full:
            return True
        blocks = active.mask.reshape(-1, size)
        return bool((blocks == blocks[:, :1]).all())

    def each_group(self, active: Active) -> int | None:
        """How many lanes of every group are active; None if not as many of each."""
        came = active.mask.reshape(self.groups, -1).sum(axis=1)
        return int(came[0]) if (came == came[0]).all() else None

    def of_cluster(self, lane: int, groups: int) -> tuple[int, ...]:
        """The lanes that stand in the groups of a cluster as this one does in its own, itself among them."""
        group, item = divmod(lane, self.group_size)
        first = group // groups * groups
        return tuple((first + number) * self.group_size + item for number in range(groups))

    def missing(self, active: Active) -> int:
        """A work-item of the grid that is not active though others of its group are."""
        came = active.mask.reshape(-1, self.group_size)
        group = int(np.argmax(came.any(axis=1) & ~came.all(axis=1)))
        return self.first + group * self.group_size + int(np.argmin(came[group]))

    def who(self, lane: int) -> str:
        """A lane of the whole grid, in the reader's terms."""
        group, item = divmod(lane, self.group_size)
        place = f"({item // self._columns}, {item % self._columns})"
        col, row, layer = place_of(group, self.grid)
        of_layer = f"{layer}, " if self.grid[0] > 1 else ""
        return f"work-item {place} of group ({of_layer}{row}, {col})"


def agreed(value: Index, active: Active) -> Index:
    """One number where all active lanes have the same."""
    if not isinstance(value, np.ndarray):
        return value
    own = value[active.lanes]
    return int(own[0]) if (own == own[0]).all() else value


def by_lanes(stmt: FragmentApply) -> For:
    """A statement on fragments as a loop of each lane over the elements that it has."""
    axes, lane = (stmt.layout.rows, stmt.layout.cols), Call("lane_id", (), I32)
    starts = (map_expr(axis.start, substitute({LANE: lane})) for axis in axes)
    steps = (axis.step(stmt.element) if axis.values > 1 else Const(0) for axis in axes)
    names = (Let(var, start + step) for var, start, step in zip((stmt.row, stmt.col), starts, steps, strict=True))
    values = stmt.layout.rows.values * stmt.layout.cols.values
    return For(stmt.element, Const(0), Const(values), 1, (*names, *stmt.body))
