"""What the verifier asks of expressions, names, synchronisation and TMA copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from typing import NoReturn

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import BOOL, F32, I8, I32, I64, DType
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Select, Var, as_int
from gemmgen.ir.functions import ARITY, FAST, MATH
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.operands import PART_BYTES
from gemmgen.ir.show import headline, show_expr
from gemmgen.ir.stmt import Body, For, If, Let, Stmt, TmaCopy
from gemmgen.ir.swizzle import LINES_BYTES
from gemmgen.ir.synchronization import AsyncGroup, Barrier, DependentLaunch, Mbarrier, StoreGroup, SyncStmt
from gemmgen.ir.target import Target
from gemmgen.ir.walk import walk_expr
from gemmgen.records import dataclass

#: Calls whose value differs between the work-items of a group.
_VARYING = frozenset({"local_id", "lane_id", "shuffle", "shuffle_xor", "broadcast"})


@dataclass(slots=True)
class Scope:
    """What is visible at a place.

    Attributes:
        variables: names -> type.
        buffers: names -> the declaration.
        varying: variables that differ between the work-items of a group.
        divergent: whether work-items of a group may part ways before they get here.
        role: whether this is a side of an `If` of roles.
        own: buffers that have been declared since work-items parted ways.
    """

    variables: dict[str, DType] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    varying: set[str] = field(default_factory=set)
    divergent: bool = False
    role: bool = False
    own: set[str] = field(default_factory=set)

    def inner(self, divergent: bool = False, role: bool = False) -> Scope:
        """A block inside: what it adds ends with it."""
        parts, own = self.divergent or divergent, set[str]() if divergent else set(self.own)
        return Scope(dict(self.variables), dict(self.buffers), set(self.varying), parts, self.role or role, own)

    def name(self, kernel: Kernel) -> None:
        """Make all names known that a kernel binds where all work-items go, or all of a role, in loops too;
        and how many products there are.
        """
        self._name(kernel.body)
        if kernel.grid_z is not None:
            self.variables[kernel.grid_z.name] = kernel.grid_z.dtype

    def _name(self, body: Body) -> None:
        for stmt in body:
            match stmt:
                case Let(var, _):
                    self.variables[var.name] = var.dtype
                case For():
                    self.variables[stmt.var.name] = stmt.var.dtype
                    self._name(stmt.body)
                case If(roles=True):
                    self._name((*stmt.then, *stmt.orelse))

    def varies(self, node: Expr) -> bool:
        """Whether the value may differ between the work-items of a group, as far as can be told."""
        if isinstance(node, Call) and node.function == "any_in_group":
            return False
        for part in walk_expr(node):
            match part:
                case Var(name, _) if name in self.varying:
                    return True
                case Call(function, _, _) if function in _VARYING:
                    return True
                case Load(buffer, _) if buffer.space is Space.PRIVATE and not buffer.places:
                    return True
        return False


#: What lanes give each other: the value, and an integer that says whose.
_EXCHANGES = ("broadcast", "shuffle", "shuffle_xor")
_OF_SUB_GROUPS = ("lane_id", "sub_group_size", *_EXCHANGES)
#: Functions whose arguments are all of the type that comes out.
_ALIKE = ("fma", "conj", "tf32", "tf32_head", "tf32_rest", "tf32_finite_rest")
#: Functions of one argument, whose type is another matter: whether it fits what comes out, and what is wrong else.
_OF_OTHERS: dict[str, tuple[Callable[[DType, DType], bool], str]] = {
    "convert": (lambda given, made: given not in (BOOL, made), "converts nothing"),
    "any_in_group": (lambda given, made: given == made == BOOL, "asks for no condition"),
    "nibble": (lambda given, made: (given, made) == (I8, F32), "makes no float32 of a byte"),
}


def expr_problems(node: Expr) -> Iterator[str]:
    """What is wrong with the types of a node's own operands."""
    match node:
        case Const(value, dtype):
            if not dtype.is_float and not isinstance(value, int):
                yield f"{value} is not of type {dtype}"
            if dtype.real is None and type(value) is complex:
                yield f"{value} is no {dtype}"
        case Bin():
            yield from _operator_problems(node)
        case Select(condition, then, other):
            if condition.dtype != BOOL:
                yield f"the condition {show_expr(condition)} is {condition.dtype}"
            if then.dtype != other.dtype:
                yield f"the sides of {show_expr(node)} differ in type: {then.dtype} and {other.dtype}"
        case _:
            return


def _operator_problems(node: Bin) -> Iterator[str]:
    op, a, b = node.op, node.a.dtype, node.b.dtype
    if a != b and not {a, b} <= {I32, I64}:
        yield f"the operands of {show_expr(node)} differ in type: {a} and {b}"
    if a == BOOL and op not in ("&&", "==", "!="):
        yield f"{op} on bool"
    if op == "&&" and a != BOOL:
        yield f"&& on {a}"
    if (a.real is not None and op not in ("+", "*", "==", "!=")) or (a.is_float and op in ("%", "&", "^")):
        yield f"{op} on {a}"


def call_problems(node: Call, kernel: Kernel, target: Target) -> Iterator[str]:
    """What is wrong with a call in a kernel, the gravest first."""
    name, args = node.function, node.args
    if name not in ARITY:
        yield f"no function {name}"
        return
    if len(args) != ARITY[name]:
        yield f"{name} takes {ARITY[name]} arguments, not {len(args)}"
        return
    if name in _OF_SUB_GROUPS:
        if "sub_groups" not in target.features:
            yield f"{name} needs sub_groups, which {target.name} lacks"
        if kernel.sub_group is None:
            yield f"{name} in a kernel that requires no sub-group size"
    if name in FAST and "fast_functions" not in target.features:
        yield f"{name} needs fast_functions, which {target.name} lacks"
    if name in ("group_id", "group_count", "local_id"):
        dimensions = (0, 1, 2) if name == "group_id" and kernel.grid_z is not None else (0, 1)
        if as_int(args[0]) not in dimensions:
            yield f"{show_expr(node)} has no constant dimension of {', '.join(map(str, dimensions))}"
    if name in _EXCHANGES and args[1].dtype != I32:
        yield f"{show_expr(args[1])} is {args[1].dtype}, not an integer"
    if name in _OF_OTHERS:
        fits, what = _OF_OTHERS[name]
        if not fits(args[0].dtype, node.dtype):
            yield f"{show_expr(node)} {what}"
        return
    if name == "begins_on":
        yield from () if isinstance(args[0], Load) and node.dtype == BOOL else (f"{show_expr(node)} names no element",)
        return
    if name == "nan":
        yield from () if node.dtype.is_float else (f"{show_expr(node)} is {node.dtype}, which has none",)
        return
    if name == "conj" and node.dtype.real is None:
        yield f"{show_expr(node)} is {node.dtype}, not complex"
    alike = name in MATH or name in FAST or name in _ALIKE
    values = args if alike else args[:1] if name in _EXCHANGES else None
    for dtype in (I32,) if values is None else (value.dtype for value in values):
        if dtype != node.dtype:
            yield f"{name} and its arguments differ in type: {node.dtype} and {dtype}"


def sync_problems(stmt: SyncStmt, scope: Scope, target: Target) -> Iterator[str]:
    """What is wrong with a barrier. In a role only mbarriers may stand where they have parted."""
    match stmt:
        case AsyncGroup(verb, pending):
            yield from lacking("async_copy", target, "an asynchronous group")
            if pending < 0:
                yield f"{pending} groups cannot be pending"
            if verb == "fence":
                yield "asynchronous copies have no fence"
        case DependentLaunch(verb):
            yield from lacking("dependent_launch", target, f"{verb} of kernels")
        case Barrier():
            if scope.divergent and not (scope.role and (stmt.role_items or stmt.of_sub_group)):
                yield "a barrier where work-items of a group may have parted ways"
        case StoreGroup(_, pending):
            yield from lacking("tensor_maps", target, "a TMA store")
            if pending < 0:
                yield f"{pending} groups cannot be pending"
        case Mbarrier(_, _, _, index, parity):
            yield from lacking("mbarrier", target, "an mbarrier")
            if scope.divergent and not scope.role:
                yield "a barrier where work-items of a group may have parted ways"
            yield from (f"{show_expr(x)} is {x.dtype}, not an integer" for x in (index, parity) if x.dtype != I32)
        case _:
            yield from lacking("wgmma", target, "a role")
            if not scope.role:
                yield "what only a role may do"


def lacking(feature: str, target: Target, who: str) -> Iterator[str]:
    """That a target lacks a feature."""
    if feature not in target.features:
        yield f"{who} needs {feature}, which {target.name} lacks"


def tma_copy_problems(stmt: TmaCopy, target: Target) -> Iterator[str]:
    """What is wrong with a TMA copy."""
    yield from lacking("tensor_maps", target, "a TMA copy")
    spaces = (Space.GLOBAL, Space.LOCAL) if stmt.mbarrier is not None else (Space.LOCAL, Space.GLOBAL)
    if (stmt.src.space, stmt.dst.space) != spaces:
        yield "a TMA copy that tells an mbarrier goes from global to local memory, another the other way"
        return
    matrix, tile = (stmt.src, stmt.dst) if stmt.mbarrier is not None else (stmt.dst, stmt.src)
    if tile.dtype != matrix.dtype:
        yield f"{tile.name} and {matrix.name} differ in type: {tile.dtype} and {matrix.dtype}"
    if matrix.tma_tile is None:
        yield f"{matrix.name} has no TMA tiles"
        return
    lines, length = map(as_int, tile.shape[-2:])
    if not tile.layout.swizzle and stmt.mbarrier is not None:
        if (
            matrix.tma_tile[0] % (lines or 1)
            or matrix.tma_tile[1] != length
            or as_int(tile.layout.strides[-2]) != length
        ):
            shape = f"{matrix.tma_tile[0]}x{matrix.tma_tile[1]}"
            yield f"a TMA tile of {shape} is not made of tiles of {tile.name}, or has gaps there"
        return
    # A tile that is loaded fills whole lines, alone or with others; one that is stored may be a part of a line.
    # The last of a row of them may be narrower: its lines are as far apart. The last that is stored may have fewer.
    high, wide = matrix.tma_tile
    alone = stmt.mbarrier is not None and matrix.multicast == 1
    narrow = not 0 < wide <= (length or 0) or wide * matrix.dtype.size % PART_BYTES
    some = stmt.mbarrier is None and 0 < high <= (lines or 0)
    if narrow or ((lines or 0) % high and not some) or (alone and lines not in (high, 2 * high)):
        yield f"a TMA tile of {high}x{wide} is not what {tile.name} is made of"
    elif (length or 0) * matrix.dtype.size != tile.layout.swizzle or tile.layout.swizzle not in LINES_BYTES:
        yield f"the lines of {tile.name} are not {', '.join(map(str, LINES_BYTES))} bytes that swizzle"


def tma_tile_bytes(matrix: Buffer) -> int:
    """The bytes of a TMA load, zeros included."""
    rows, cols = matrix.tma_tile or (0, 0)
    return rows * cols * matrix.dtype.size


class Checker:
    """Knows the kernel, the target and what is being checked."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self._kernel, self._target = kernel, target
        # What is being checked, for messages: put into words only where there is one.
        self._at: Stmt | str = "its head"

    def _integers(self, nodes: tuple[Expr, ...], scope: Scope) -> None:
        self._exprs(nodes, scope)
        for node in nodes:
            self._integer(node)

    # --- expressions ------------------------------------------------------------------------------

    def _exprs(self, roots: Iterable[Expr], scope: Scope) -> None:
        for root in roots:
            for node in walk_expr(root):
                self._expr(node, scope)

    def _expr(self, node: Expr, scope: Scope) -> None:
        match node:
            case Var(name, dtype):
                bound = scope.variables.get(name)
                if bound is None:
                    self._fail(f"{name} is not bound")
                self._same(bound, dtype, f"{name} where it is bound and where it is used")
            case Load(buffer, index):
                self._element(buffer, index, scope)
            case Call():
                self._hold(call_problems(node, self._kernel, self._target))
            case _:
                self._hold(expr_problems(node))

    # --- buffers and names ------------------------------------------------------------------------

    def _element(self, buffer: Buffer, index: tuple[Expr, ...], scope: Scope, written: bool = False) -> None:
        self._declared(buffer, scope)
        self._rank(buffer, len(index))
        for coordinate in index:
            self._integer(coordinate)
        if written:
            self._require(buffer.writable and buffer.space is not Space.IMAGE, f"{buffer.name} is read only")

    def _declared(self, buffer: Buffer, scope: Scope) -> None:
        declaration = scope.buffers.get(buffer.name)
        if declaration is None:
            self._fail(f"{buffer.name} is not declared")
        # Tiles may end as TMA tiles of their own, each of which has a map.
        alike = declaration == (buffer if buffer.tma_tile is None else replace(buffer, tma_tile=declaration.tma_tile))
        self._require(alike, f"{buffer.name} is not used as it was declared")

    def _rank(self, buffer: Buffer, coordinates: int) -> None:
        rank = len(buffer.shape)
        self._require(coordinates == rank, f"{buffer.name} has {rank} dimensions, its index {coordinates}")

    def _bind(self, name: Var | Buffer, scope: Scope) -> None:
        taken = name.name in scope.variables or name.name in scope.buffers
        self._require(not taken, f"{name.name} already has a meaning here")
        if isinstance(name, Var):
            scope.variables[name.name] = name.dtype
        else:
            scope.buffers[name.name] = name
            scope.own.add(name.name)

    # --- the target -------------------------------------------------------------------------------

    def _needs(self, features: frozenset[str], who: str) -> None:
        missing = features - self._target.features
        self._require(not missing, f"{who} needs {listed(sorted(missing))}, which {self._target.name} lacks")

    def _sub_group(self, who: str) -> None:
        self._require(self._kernel.sub_group is not None, f"{who} in a kernel that requires no sub-group size")

    # --- messages ---------------------------------------------------------------------------------

    def _integer(self, node: Expr) -> None:
        if node.dtype != I32:
            self._fail(f"{show_expr(node)} is {node.dtype}, not an integer")

    def _same(self, a: DType, b: DType, what: str) -> None:
        if a != b:
            self._fail(f"{what} differ in type: {a} and {b}")

    def _hold(self, problems: Iterable[str]) -> None:
        for problem in problems:
            self._fail(problem)

    def _require(self, holds: bool, problem: str) -> None:
        if not holds:
            self._fail(problem)

    def _fail(self, problem: str) -> NoReturn:
        at = self._at if isinstance(self._at, str) else f"`{headline(self._at)}`"
        raise LoweringError(f"kernel {self._kernel.name}, {at}: {problem}")


def listed(items: Iterable[int | str]) -> str:
    """Words for a message."""
    return ", ".join(map(str, items))
