"""A kernel, the program it belongs to, and what either holds and needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields, replace

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.constants import is_free
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Call, Const, Expr, Load, Var
from gemmgen.ir.sizes import EXTENTS, GROUPS, Workspace
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    Comment,
    For,
    If,
    Let,
    Multiply,
    Prefetch,
    Registers,
    Return,
    Stmt,
    Store,
    Tile,
    TmaCopy,
    VectorCopy,
)
from gemmgen.ir.synchronization import DependentLaunch, Mbarrier, MultiplyGroup, SetMaxRegisters, StoreGroup
from gemmgen.ir.walk import (
    bodies,
    exprs,
    in_numbers,
    map_body_exprs,
    map_expr,
    of_kind,
    places,
    substitute,
    walk,
    walk_expr,
)
from gemmgen.records import dataclass

#: Bytes of a private array from which on it lies in memory.
LARGEST_IN_REGISTERS = 8192
#: The variables of loops over rows and columns of a work-item's own, along K, and over the elements of a vector.
ROW, COL, DEPTH, ELEMENT = Var("i"), Var("j"), Var("p"), Var("e")


@dataclass(frozen=True, slots=True)
class Limit:
    """Bounds of a number that is made of named constants.

    Attributes:
        number: the number.
        least, most: the bounds, or None.
        reason: what sets them, for a message.
    """

    number: int
    least: int | None
    most: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel.

    Attributes:
        name: identifier of the emitted function.
        params: its arguments in order: matrices (`Buffer`) and scalars (`Var`).
        body: what every work-item runs.
        group: work-items of a group (rows, columns); columns are dimension 0, the fastest.
        grid: groups along (rows, columns), as functions of the scalar parameters.
        sub_group: lanes of a sub-group that the kernel requires, or None.
        nonnegative: expressions assumed to be >= 0 wherever the kernel runs; bounds checks are folded with them.
        assumptions: conditions that the launcher guarantees, such as `lda % 4 == 0`.
        grid_z: the third dimension of the grid; None where it has two.
        persistent: whether fewer groups than `grid` says will do, as each goes on until all of C is done: as many are
            launched as a device runs at once.
        cluster: how many groups next to each other run together and copy for one another.
        swapped: whether it computes C^T = B^T A^T, and its names are those of that: C^T's rows, and so on.
        large_grf: whether it is compiled for twice as many registers a thread, and half as many threads.
        min_blocks: groups that the compiler must leave registers for at once; 0 for any number.
        compiled_for: lanes of a sub-group that it is compiled for, though any would do; None where compilers choose.
        multiples: (number, unit) of named constants that the body takes for multiples of each other.
        limits: bounds that the body relies on.
    """

    name: str
    params: tuple[Buffer | Var, ...]
    body: Body
    group: tuple[int, int]
    grid: tuple[Expr, Expr]
    sub_group: int | None = None
    nonnegative: tuple[Expr, ...] = ()
    assumptions: tuple[Expr, ...] = ()
    grid_z: Var | None = None
    persistent: bool = False
    cluster: int = 1
    swapped: bool = False
    large_registers: bool = False
    min_blocks: int = 0
    compiled_for: int | None = None
    multiples: tuple[tuple[int, int], ...] = ()
    limits: tuple[Limit, ...] = ()

    @property
    def scalars(self) -> tuple[Var, ...]:
        return tuple(p for p in self.params if isinstance(p, Var))

    @property
    def matrices(self) -> tuple[Buffer, ...]:
        return tuple(p for p in self.params if isinstance(p, Buffer))

    @property
    def given(self) -> tuple[Buffer | Var, ...]:
        """The arguments that a caller gives: no matrices whose addresses are given instead."""
        listed = {p.addresses.name for p in self.matrices if p.addresses is not None}
        return tuple(p for p in self.params if p.name not in listed)

    @property
    def launch_params(self) -> tuple[Buffer | Var, ...]:
        """What its launch depends on: the arguments, the grid's third dimension, and the groups that a device runs."""
        params = self.params if self.grid_z is None else (*self.params, self.grid_z)
        return (*params, GROUPS) if self.asks_device and GROUPS not in params else params

    @property
    def asks_device(self) -> bool:
        """Whether its grid depends on how many groups the device runs at once."""
        return any(part == GROUPS for extent in self.grid for part in walk_expr(extent))

    @property
    def launcher_params(self) -> tuple[Buffer | Var, ...]:
        """What a caller gives for a launch; what the device says is no part of it."""
        given = tuple(p for p in self.given if p != GROUPS)
        return given if self.grid_z is None else (*given, self.grid_z)

    @property
    def prepacks(self) -> bool:
        """Whether all that it does is to lay out A and B for the kernel that multiplies them."""
        written = [p for p in self.matrices if p.writable]
        return bool(written) and all(p.prepacked for p in written)

    @property
    def extents(self) -> tuple[Var, ...]:
        """Of those, the integers that must not be zero (`EXTENTS`)."""
        return tuple(p for p in self.launch_params if isinstance(p, Var) and p.name in EXTENTS)


#: What a prologue's arrays are of a matrix, in their order: per line, per step of K, one for all, per group, per tile.
_OF_PROLOGUES = (
    *("scale", "shift", "zero", "scale_k", "shift_k", "factor"),
    *(f"{kind}_{group}" for kind in ("scale", "shift", "zero") for group in (32, 64, 128)),
    "scale_128x128",
)
#: How parameters follow each other; others come after them.
_ORDER = (
    *("rows", "cols", "m", "n", "k", "group_count", "offsets"),
    *("alpha", "a", "a_list", "lda", "stride_a", "b", "b_list", "ldb", "stride_b"),
    *("a_packed", "b_packed", "workspace", "beta", "c", "c_list", "ldc", "stride_c"),
    *(f"{matrix}_{what}" for matrix in "ab" for what in _OF_PROLOGUES),
    *("bias", "row_bias", "scale", "row_scale", "residual", "ldr", "stride_r"),
)


def together(program: Program) -> Kernel:
    """All kernels as one, to ask what a file with them holds: the main one's head, every body, and every parameter."""
    others = [kernel for kernel in program.kernels if kernel is not program.main]
    names: dict[str, Buffer | Var] = {}
    for kernel in program.kernels:
        for param in kernel.params:
            known = names.get(param.name, param)
            if isinstance(known, Buffer) and isinstance(param, Buffer):
                # What one kernel reads, as TMA tiles it may be, another has written.
                tile, rounded = known.tma_tile or param.tma_tile, known.rounded or param.rounded
                param = replace(param if param.writable else known, tma_tile=tile, rounded=rounded)
            names[param.name] = param
    body = (*program.main.body, *(stmt for kernel in others for stmt in kernel.body))
    multiples = tuple(pair for kernel in program.kernels for pair in kernel.multiples)
    limits = tuple(limit for kernel in program.kernels for limit in kernel.limits)
    return replace(program.main, params=in_order(names.values()), body=body, multiples=multiples, limits=limits)


def in_order(params: Iterable[Buffer | Var]) -> tuple[Buffer | Var, ...]:
    """Parameters as they follow each other."""
    return tuple(sorted(params, key=lambda p: _ORDER.index(p.name) if p.name in _ORDER else len(_ORDER)))


@dataclass(frozen=True, slots=True)
class Program:
    """What runs for one request.

    Attributes:
        kernels: in the order in which they run.
        workspaces: the global memory that one passes on to another.
        before: how many of the kernels run before the main one.
    """

    kernels: tuple[Kernel, ...]
    workspaces: tuple[Workspace, ...] = ()
    before: int = 0

    @property
    def main(self) -> Kernel:
        """The kernel that computes the product."""
        return self.kernels[self.before]

    @property
    def name(self) -> str:
        """What the file and its launcher go by."""
        return self.main.name


# --- what a kernel holds and needs -----------------------------------------------------------------


def idle_without(kernel: Kernel, size: Var) -> bool:
    """Whether a kernel has no groups where a size is zero, though it may have some where others are not."""
    return any(map_expr(in_numbers(extent), substitute({size: Const(0)})) == Const(0) for extent in kernel.grid)


def allocs(kernel: Kernel, space: Space) -> list[Alloc]:
    """The declarations of arrays in a space."""
    return [s for s in of_kind(Alloc, kernel.body) if s.buffer.space is space]


def local_bytes(kernel: Kernel) -> int:
    """Local memory of a group, in bytes."""
    local = allocs(kernel, Space.LOCAL)
    own, reused = (sum(s.buffer.bytes for s in local if s.reuses is reuses) for reuses in (False, True))
    return max(own, reused)


def memory_bytes(kernel: Kernel) -> int:
    """Private arrays of a work-item that no registers hold, in bytes."""
    private = {s.buffer for s in allocs(kernel, Space.PRIVATE)}
    return sum(buffer.bytes for buffer in private if buffer.bytes > LARGEST_IN_REGISTERS)


def expressions(kernel: Kernel) -> Iterator[Expr]:
    """Every expression of a kernel, those inside others too."""
    return (node for stmt in walk(kernel.body) for root in exprs(stmt) for node in walk_expr(root))


def addressed(kernel: Kernel) -> frozenset[str]:
    """The matrices that it reads or writes by addresses of its own, not by TMA."""
    found = {node.buffer for node in expressions(kernel) if isinstance(node, Load)}
    for stmt in walk(kernel.body):
        found |= {buffer for buffer, _ in places(stmt)} if isinstance(stmt, VectorCopy | Store) else set()
    return frozenset(buffer.name for buffer in found if buffer.space is Space.GLOBAL)


def awaits_others(kernel: Kernel) -> bool:
    """Whether a kernel waits for those before it, and so may be launched before they are complete."""
    return any(stmt.verb == "await" for stmt in of_kind(DependentLaunch, kernel.body))


def uses_calls(kernel: Kernel, functions: Collection[str]) -> bool:
    """Whether any of these functions is called."""
    return any(isinstance(node, Call) and node.function in functions for node in expressions(kernel))


def conversions(kernel: Kernel) -> set[tuple[DType, DType, int]]:
    """Every change of type in a kernel of instructions: from what, to what, and how many elements at a time; those in
    the meaning of matrix instructions, too.
    """
    moves = {(s.src.dtype, s.dst.dtype, s.width) for s in of_kind(VectorCopy, kernel.body)}
    nodes = expressions(kernel)
    calls = {(n.args[0].dtype, n.dtype, 1) for n in nodes if isinstance(n, Call) and n.function == "convert"}
    factors = {(s.atom.dtype, s.atom.sums, 1) for s in of_kind(Multiply, kernel.body)}
    return {change for change in moves | calls | factors if change[0] != change[1]}


#: Features of a target -> the statements that need them, whatever their instruction is.
_FEATURES: dict[str, frozenset[type[Stmt]]] = {
    "mbarrier": frozenset({Mbarrier}),
    "dependent_launch": frozenset({DependentLaunch}),
    "tensor_maps": frozenset({TmaCopy, StoreGroup}),
    "wgmma": frozenset({MultiplyGroup, SetMaxRegisters}),
    "cache_prefetch": frozenset({Prefetch}),
}


def uses_features(kernel: Kernel) -> frozenset[str]:
    """The features of a target that the kernel's instructions need."""
    needs = frozenset({"sub_groups"} if kernel.sub_group else ())
    needs |= frozenset({"clusters"} if kernel.cluster > 1 else ())
    needs |= {p.dtype.needs for p in kernel.params if p.dtype.needs is not None}
    # A 2D block read says what it needs.
    kinds = {type(stmt) for stmt in walk(kernel.body) if not isinstance(stmt, Prefetch) or stmt.atom is None}
    needs |= {feature for feature, of in _FEATURES.items() if kinds & of}
    return needs.union(*(s.atom.needs for s in walk(kernel.body) if isinstance(s, VectorCopy | Multiply)))


# --- parts of a body -------------------------------------------------------------------------------


def loop(var: Var, count: int, body: Body) -> Body:
    """`count` unrolled rounds; no loop for a single one, unless a reader may change how many."""
    if count == 1 and not is_free(count):
        return map_body_exprs(body, substitute({var: Const(0)}))
    return (For(var, Const(0), Const(count), 1, body, unroll=True, exact=True),)


def each_register(tile: Registers, *body: Stmt) -> Body:
    """Statements for each register of a tile, in row `i` and column `j` of those that a work-item has."""
    return loop(ROW, tile.fragment.rows.values, loop(COL, tile.fragment.cols.values, body))


def live(body: Body, but: Collection[str] = ()) -> list[Buffer]:
    """The private arrays, `but` those of some names, where they take most at once: each is there from its declaration
    to the last statement of its block that names it.
    """
    own: list[tuple[Buffer, int, int]] = []
    for i, stmt in enumerate(body):
        if isinstance(stmt, Alloc) and stmt.buffer.space is Space.PRIVATE and stmt.buffer.name not in but:
            last = max((j for j in range(i + 1, len(body)) if stmt.buffer.name in _named(body[j])), default=i)
            own.append((stmt.buffer, i, last))
    most: list[Buffer] = []
    for i, stmt in enumerate(body):
        around = [buffer for buffer, first, last in own if first <= i <= last]
        most = max(most, around, *([*around, *live(inner, but)] for inner in bodies(stmt)), key=_bytes)
    return most


def _named(stmt: Stmt) -> set[str]:
    """The arrays that a statement, or one below it, reads or writes."""
    names: set[str] = set()
    for one in walk((stmt,)):
        parts = [getattr(one, field.name) for field in fields(one)]
        names |= {part.name for part in parts if isinstance(part, Buffer)}
        names |= {part.buffer.name for part in parts if isinstance(part, Tile | Registers)}
        names |= {node.buffer.name for root in exprs(one) for node in walk_expr(root) if isinstance(node, Load)}
    return names


def _bytes(buffers: Sequence[Buffer]) -> int:
    return sum(buffer.bytes for buffer in buffers)


def arguments(*values: Buffer | Expr | None) -> tuple[Buffer | Var, ...]:
    """What a kernel takes of these: what is folded into its text is no argument."""
    return tuple(x for x in values if isinstance(x, Buffer | Var))


def fragments_of(body: Body) -> dict[Buffer, str]:
    """The arrays of fragments, and what instructions use them for."""
    found: dict[Buffer, str] = {}
    for stmt in of_kind(Multiply, body):
        if stmt.atom.name == "joint_matrix":
            found |= {stmt.a: "a", stmt.b: "b", stmt.acc: "accumulator"}
    return found


def end_of_names(body: Body) -> int:
    """Behind the names at a kernel's top, and the search for a group that some of them need."""
    return _last(body, Let)


def end_of_search(body: Body) -> int:
    """Behind that search, whose surplus groups return; 0 where there is none."""
    return _last(body, If)


def _last(body: Body, kind: type[Stmt]) -> int:
    """Behind the last statement of a kind among those at the top that all work-items agree on."""
    found = 0
    for number, stmt in enumerate(body):
        if not _finds_places(stmt) and not isinstance(stmt, Comment):
            break
        found = number + 1 if isinstance(stmt, kind) else found
    return found


def _finds_places(stmt: Stmt) -> bool:
    """Whether it does nothing but name what all work-items of a group agree on, wait for other kernels, or return."""
    match stmt:
        case Alloc(buffer) | Store(buffer, _, _):
            return buffer.places
        case For(body=body):
            return all(map(_finds_places, body))
        case If():
            return all(map(_finds_places, (*stmt.then, *stmt.orelse)))
    return isinstance(stmt, Let | Return | DependentLaunch)
