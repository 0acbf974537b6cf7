"""Expressions as closures over lanes: translated once, run for every statement that is executed."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import NoReturn, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from gemmgen.errors import KernelFault, LoweringError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.dtypes import BOOL, F32, F64, DType
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Select, Var
from gemmgen.ir.functions import LOG2_E, NORMAL_TAIL, SIGMOID
from gemmgen.ir.numeric import OF_TF32, convert
from gemmgen.ir.show import show_expr
from gemmgen.ir.stmt import VectorCopy, in_bytes
from gemmgen.records import dataclass
from gemmgen.simulator.lanes import Active, Bools, Floats, Index, Lanes, Site, Value
from gemmgen.simulator.memory import Memory

Numbers = NDArray[np.generic]

_each_erf = np.vectorize(math.erf, otypes=[np.float64])


def _erf(x: Numbers) -> Numbers:
    # Of a number a number, as NumPy's own functions have it, and no array without dimensions.
    result: Numbers = _each_erf(x)[()]
    return result


def _rsqrt(x: Numbers) -> Numbers:
    return np.divide(1.0, np.sqrt(x))


def _polynomial(coefficients: Sequence[float], x: Numbers) -> Numbers:
    result = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = np.add(np.multiply(result, x), coefficient)
    return result


def _fast_sigmoid(x: Numbers) -> Numbers:
    power = np.exp2(np.multiply(-LOG2_E, np.abs(x)))
    sigmoid = _polynomial(SIGMOID, power)
    result: Numbers = np.where(np.less(x, 0), np.multiply(power, sigmoid), sigmoid)[()]
    return result


def _fast_normal_cdf(x: Numbers) -> Numbers:
    beyond = np.exp2(_polynomial(NORMAL_TAIL, np.abs(x)))
    result: Numbers = np.where(np.less(x, 0), beyond, np.subtract(1.0, beyond))[()]
    return result


#: In the type of the arguments: float64 for floats.
MEANINGS: dict[str, Callable[..., Numbers]] = {
    "neg": np.negative,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "tanh": np.tanh,
    "erf": _erf,
    "abs": np.abs,
    "min": np.fmin,
    "max": np.fmax,
    "fast_sigmoid": _fast_sigmoid,
    "fast_normal_cdf": _fast_normal_cdf,
}


Code = Callable[[Active], Value]
IndexCode = Callable[[Active], Index]

_Meaning = TypeVar("_Meaning")

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Elements that a statement touches: their memory, and what works out each coordinate."""

    memory: Memory
    index: tuple[IndexCode, ...]

    def at(self, active: Active) -> list[Index]:
        """The coordinates."""
        return [code(active) for code in self.index]

    def within(self, kind: type[_Kind], site: Site, fault: str) -> _Kind:
        """The memory, which must be of a kind. Raises: LoweringError, that the statement does what it can't."""
        if not isinstance(self.memory, kind):
            raise LoweringError(f"`{site.text}` {fault}")
        return self.memory


_OPERATORS: dict[str, Callable[[Value, Value], Value]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "^": operator.xor,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(slots=True, eq=False)
class Cell:
    """The current value of a bound name."""

    value: Value = 0


@dataclass(slots=True)
class Scope:
    """What names mean at a place of the kernel."""

    cells: dict[str, Cell] = field(default_factory=dict)
    memories: dict[str, Memory] = field(default_factory=dict)

    def inner(self) -> Scope:
        """A block inside: what it adds ends with it."""
        return Scope(dict(self.cells), dict(self.memories))

    def cell(self, name: str) -> Cell:
        """The value of a name. Raises: LoweringError."""
        return _look_up(name, self.cells)

    def memory(self, name: str) -> Memory:
        """The buffer of a name. Raises: LoweringError."""
        return _look_up(name, self.memories)


def _look_up(name: str, names: Mapping[str, _Meaning]) -> _Meaning:
    if name not in names:
        raise LoweringError(f"{name} is not declared where it is used")
    return names[name]


class Evaluator:
    """Translates expressions for the groups of `lanes`."""

    def __init__(self, lanes: Lanes, sub_group_size: int | None = None) -> None:
        self._lanes, self._sub_group_size = lanes, sub_group_size

    def index(self, node: Expr, scope: Scope, site: Site) -> IndexCode:
        """An expression that must be an integer."""
        if node.dtype.is_float or node.dtype == BOOL:
            raise LoweringError(f"`{site.text}` needs an integer where it has {show_expr(node)}")
        return cast(IndexCode, self.expr(node, scope, site))

    def reference(self, buffer: Buffer, index: Sequence[Expr], scope: Scope, site: Site) -> Reference:
        """Elements of a buffer."""
        return Reference(scope.memory(buffer.name), tuple(self.index(i, scope, site) for i in index))

    def expr(self, node: Expr, scope: Scope, site: Site) -> Code:
        """The closure that yields the value of `node`."""
        match node:
            case Const(value, dtype):
                constant = literal(value, dtype)
                return lambda _active: constant
            case Var(name, _):
                cell = scope.cell(name)
                return lambda _active: cell.value
            case Bin("&&", a, b):
                return self._both(self.expr(a, scope, site), self.expr(b, scope, site))
            case Bin():
                return self._bin(node, scope, site)
            case Select(condition, then, other):
                return self._select(*(self.expr(part, scope, site) for part in (condition, then, other)))
            case Load(buffer, index):
                loaded = self.reference(buffer, index, scope, site)
                return lambda active: loaded.memory.read(loaded.at(active), active, site)
            case Call():
                return self._call(node, scope, site)

    def place_check(self, move: VectorCopy, scope: Scope, site: Site) -> Callable[[Active], None]:
        """What finds an address, worked out before, that is not that of the move's coordinates."""
        if move.byte_place is None:
            return lambda _active: None
        start = Const(0) if move.from_element is None else move.from_element * move.src.dtype.size
        counted = [self.index(start + number, scope, site) for number in move.byte_place]
        places = [self.index(number, scope, site) for number in in_bytes(move)]

        def check(active: Active) -> None:
            for one, other in zip(counted, places, strict=True):
                if np.any(active.pick(one(active)) != active.pick(other(active))):
                    raise LoweringError(f"`{site.text}`: the place in bytes is not that of the element")

        return check

    def _bin(self, node: Bin, scope: Scope, site: Site) -> Code:
        a, b = self.expr(node.a, scope, site), self.expr(node.b, scope, site)
        if node.op == "min":
            return lambda active: _minimum(a(active), b(active))
        operation = _OPERATORS[node.op]
        if node.op in ("/", "%") and not node.dtype.is_float:
            text = show_expr(node)

            def divide(active: Active) -> Value:
                left, right = cast(Index, a(active)), cast(Index, b(active))
                _check_natural(left, 0, text, active, site)
                _check_natural(right, 1, text, active, site)
                # Inactive lanes may hold a zero.
                right = np.maximum(right, 1) if isinstance(right, np.ndarray) else right
                return operation(left, right)

            return divide
        operation = operator.truediv if node.op == "/" else operation
        return lambda active: operation(a(active), b(active))

    @staticmethod
    def _both(a: Code, b: Code) -> Code:
        def both(active: Active) -> Value:
            left = a(active)
            holds, _ = active.split(left)
            if holds is None:
                return False
            right = b(holds)
            return cast(Bools, left) & cast(Bools, right) if isinstance(left, np.ndarray) else right

        return both

    @staticmethod
    def _select(condition: Code, then: Code, other: Code) -> Code:
        def choose(active: Active) -> Value:
            value = condition(active)
            holds, fails = active.split(value)
            if holds is None or fails is None:
                return then(active) if fails is None else other(active)
            return cast(Value, np.where(cast(Bools, value), then(holds), other(fails)))

        return choose

    def _call(self, node: Call, scope: Scope, site: Site) -> Code:
        lanes = self._lanes
        match node.function, node.args:
            case "group_id", (Const(int(axis)),) if axis in (0, 1, 2):
                return _per_load(lanes, lambda: lanes.group_id(axis))
            case "group_count", (Const(int(axis)),) if axis in (0, 1):
                count = lanes.group_count(axis)
                return lambda _active: count
            case "local_id", (Const(int(axis)),) if axis in (0, 1):
                return _per_load(lanes, lambda: lanes.local_id(axis))
            case "lane_id", ():
                lanes.lanes_of_sub_group()
                return _per_load(lanes, lanes.lane_id)
            case "sub_group_size", ():
                size = self._sub_group_size
                if size is None:
                    raise LoweringError(f"`{site.text}`: the kernel requires no sub-group size")
                return lambda _active: size
            case "nan", ():
                not_a_number = literal(math.nan, node.dtype)
                return lambda _active: not_a_number
            case "fma", (a, b, c):
                return _fma(node.dtype, *(self.expr(part, scope, site) for part in (a, b, c)))
            case "conj", (value,):
                operand = self.expr(value, scope, site)
                return lambda active: cast(Value, np.conj(operand(active)))
            case "convert", (value,):
                inner, dtype = self.expr(value, scope, site), node.dtype
                return lambda active: cast(Value, convert(inner(active), dtype))
            case "nibble", (pair, half):
                byte, place = self.index(pair, scope, site), self.index(half, scope, site)
                return lambda active: nibble(byte(active), place(active))
            case name, args if name in OF_TF32:
                codes, meaning = [self.expr(part, scope, site) for part in args], OF_TF32[name]
                return lambda active: cast(Value, meaning(*(code(active) for code in codes)))
            case "begins_on", (Load(), Const()):
                return lambda active: np.ones(active.mask.shape, bool)  # arrays of NumPy do
            case "any_in_group", (condition,):
                return self._any_in_group(self.expr(condition, scope, site), site)
            case "broadcast" | "shuffle" | "shuffle_xor" as name, (value, lane):
                given, whose = self.expr(value, scope, site), self.index(lane, scope, site)
                if name == "broadcast":
                    return self._broadcast(given, whose, site)
                return self._shuffle(given, whose, site, of_own=name == "shuffle_xor")
            case name, args if name in MEANINGS:
                return _math(name, node.dtype, [self.expr(arg, scope, site) for arg in args])
        raise LoweringError(f"`{site.text}`: no function {show_expr(node)}")

    def _any_in_group(self, condition: Code, site: Site) -> Code:
        lanes = self._lanes

        def any_in_group(active: Active) -> Value:
            if not lanes.whole(active, lanes.group_size):
                away = lanes.who(lanes.missing(active))
                raise KernelFault("divergent barrier", site.text, f"{away} does not come")
            found = np.broadcast_to(np.asarray(condition(active)), active.mask.shape) & active.mask
            return np.repeat(found.reshape(-1, lanes.group_size).any(axis=1), lanes.group_size)

        return any_in_group

    def _broadcast(self, value: Code, lane: IndexCode, site: Site) -> Code:
        lanes, size = self._lanes, self._lanes.lanes_of_sub_group()

        def broadcast(active: Active) -> Value:
            source = lane(active)
            require_whole(lanes, active, site)
            require_uniform(lanes, source, active, site, "the lane to broadcast from")
            _require_lane(source, size, active, site)
            values = value(active)
            if not isinstance(values, np.ndarray):
                return values
            rows = values.reshape(-1, size)
            if not isinstance(source, np.ndarray):
                return cast(Value, np.repeat(rows[:, source], size))
            chosen = source.reshape(-1, size)[:, 0] % size
            return cast(Value, np.repeat(rows[np.arange(len(rows)), chosen], size))

        return broadcast

    def _shuffle(self, value: Code, lane: IndexCode, site: Site, of_own: bool) -> Code:
        lanes, size = self._lanes, self._lanes.lanes_of_sub_group()

        def shuffle(active: Active) -> Value:
            require_whole(lanes, active, site)
            source = lanes.lane_id() ^ lane(active) if of_own else lane(active)
            _require_lane(source, size, active, site)
            values = value(active)
            if not isinstance(values, np.ndarray):
                return values
            first = lanes.everyone.lanes // size * size
            return values[first + source % size]

        return shuffle


def literal(value: complex, dtype: DType) -> Value:
    """A constant or a scalar argument, in its type."""
    if dtype.is_float:
        return cast(Value, convert(value, dtype))
    return bool(value) if dtype == BOOL else int(value.real)


def require_whole(lanes: Lanes, active: Active, site: Site) -> None:
    """Raises: KernelFault unless each sub-group executes `site` as one."""
    size = lanes.lanes_of_sub_group()
    if not lanes.whole(active, size):
        blocks = active.mask.reshape(-1, size)
        mixed = int(np.argmax(blocks.any(axis=1) & ~blocks.all(axis=1))) * size
        away = int(np.argmin(active.mask[mixed : mixed + size]))
        _diverged(lanes.who(lanes.first + mixed + away) + " does not take part", site)


def require_uniform(lanes: Lanes, values: Index, active: Active, site: Site, what: str) -> None:
    """Raises: KernelFault unless `values` agree within each active sub-group."""
    if not isinstance(values, np.ndarray):
        return
    blocks = values.reshape(-1, lanes.lanes_of_sub_group())
    differ = (blocks != blocks[:, :1]).ravel() & active.mask
    if differ.any():
        lane = int(np.argmax(differ))
        _diverged(f"{what} differs at {lanes.who(lanes.first + lane)}: {int(values[lane])}", site)


def _require_lane(source: Index, size: int, active: Active, site: Site) -> None:
    picked = np.asarray(active.pick(source))
    bad = (picked < 0) | (picked >= size)
    if bad.any():
        _diverged(f"lane {int(picked.flat[int(np.argmax(bad))])} of {size}", site)


def _diverged(detail: str, site: Site) -> NoReturn:
    raise KernelFault("divergent sub-group operation", site.text, detail)


def _check_natural(value: Index, least: int, text: str, active: Active, site: Site) -> None:
    smallest = int(np.min(active.pick(value))) if isinstance(value, np.ndarray) else value
    if smallest < least:
        raise KernelFault("arithmetic", site.text, f"{text} has operand {smallest}, less than {least}")


def _minimum(a: Value, b: Value) -> Value:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return cast(Value, np.minimum(a, b))
    return min(a, b)


def _per_load(lanes: Lanes, value: Callable[[], Index]) -> Code:
    """A value that depends only on which groups run."""
    cell = Cell()

    def refresh() -> None:
        cell.value = value()

    lanes.on_load(refresh)
    return lambda _active: cell.value


def nibble(pair: Index, half: Index) -> Value:
    """Half of a byte, two's complement: a shift to the left, and one to the right that keeps the sign."""
    bits = (np.asarray(pair, np.int64) >> 4 * np.asarray(half, np.int64)) & 15
    return cast(Value, ((bits ^ 8) - 8).astype(np.float32))


def _math(name: str, dtype: DType, args: Sequence[Code]) -> Code:
    """A function of numbers; of floats computed in float64 and rounded once, which every device comes near."""
    meaning, inner = MEANINGS[name], F64 if dtype.is_float else dtype

    def math(active: Active) -> Value:
        values = (convert(arg(active), inner) for arg in args)
        return cast(Value, convert(meaning(*values), dtype))

    return math


def _fma(dtype: DType, a: Code, b: Code, c: Code) -> Code:
    """A product of two floats is exact in double precision, so that only the sum is rounded (and then the
    result, to a float: the rare double rounding is below anything that a device guarantees). In other types each
    operation is rounded, as devices without a fused one do.
    """

    def fma(active: Active) -> Value:
        if dtype != F32:
            return a(active) * b(active) + c(active)
        product = np.multiply(a(active), b(active), dtype=np.float64)
        return cast(Floats, np.add(product, c(active), dtype=np.float64).astype(np.float32))

    return fma
