"""Which addresses of local memory the lanes of a thread touch together: bank conflicts, predicted from the IR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, takewhile

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Select, Var
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Block, Body, For, If, Let, Move, Stmt, Store
from gemmgen.ir.walk import exprs, walk_expr

#: What run-time sizes and leading dimensions are taken to be.
SIZE = 4096
_BANK_BYTES = 4
#: Lanes that an access of 8 or 16 bytes is served in at a time: a half and a quarter of a warp.
_PASS_BYTES = 128
Names = dict[str, int]


@dataclass(frozen=True, slots=True)
class LocalAccess:
    """An access of a whole thread to local memory, in the main loop.

    Attributes:
        bytes: of one lane.
        times: how often it runs in a step of the main loop.
        clocks: that the banks take for it; `least` without any conflict and without any sharing.
        words: different ones of all lanes: a bank delivers one a clock, however compilers join accesses.
    """

    buffer: str
    is_store: bool
    bytes: int
    times: int
    clocks: int
    least: int
    words: int

    @property
    def ways(self) -> float:
        """How many times longer conflicts make it; 1 without any."""
        return max(1.0, self.clocks / self.least)


def local_accesses(kernel: Kernel, lanes: int, banks: int) -> tuple[LocalAccess, ...]:
    """The accesses of the first thread of a group in the first round of the main loop."""
    sizes = {v.name: SIZE for v in kernel.scalars if not v.dtype.is_float}
    group = kernel.group[0] * kernel.group[1]
    names = [_Lane(kernel, lane).start(sizes) for lane in range(min(lanes, group))]
    return tuple(_Walk(banks).body(kernel.body, names, 0))


@dataclass(frozen=True, slots=True)
class _Lane:
    kernel: Kernel
    number: int

    def start(self, sizes: Mapping[str, int]) -> Names:
        """The names that a lane begins with; built-ins stand among them under names that no variable has."""
        columns = self.kernel.group[1]
        ids = {
            "local_id 0": self.number % columns,
            "local_id 1": self.number // columns,
            "lane_id": self.number % (self.kernel.sub_group or self.number + 1),
        }
        return {**sizes, **ids, "group_id 0": 0, "group_id 1": 0}


@dataclass(frozen=True, slots=True)
class _Walk:
    banks: int

    def body(self, body: Body, lanes: list[Names], times: int) -> Iterator[LocalAccess]:
        """The accesses below; `times` is 0 outside of the main loop, where nothing counts."""
        lanes = [dict(names) for names in lanes]
        for stmt in body:
            if times:
                yield from self._accesses(stmt, lanes, times)
            match stmt:
                case Let(var, value):
                    for names in lanes:
                        if (number := value_of(value, names)) is not None:
                            names[var.name] = number
                case For():
                    yield from self._loop(stmt, lanes, times)
                case If(condition, then, orelse):
                    yield from self.body(then, [x for x in lanes if value_of(condition, x) != 0], times)
                    yield from self.body(orelse, [x for x in lanes if value_of(condition, x) == 0], times)
                case Block(inner):
                    yield from self.body(inner, lanes, times)

    def _loop(self, loop: For, lanes: list[Names], times: int) -> Iterator[LocalAccess]:
        if not lanes:
            return
        start, stop = value_of(loop.start, lanes[0]), value_of(loop.stop, lanes[0])
        if start is None or stop is None or start >= stop:
            return
        for names in lanes:
            names[loop.var.name] = start
        is_main = loop.var.name == "k0"
        rounds = 1 if is_main else len(range(start, stop, loop.step))
        yield from self.body(loop.body, lanes, rounds * (times or int(is_main)))

    def _accesses(self, stmt: Stmt, lanes: list[Names], times: int) -> Iterator[LocalAccess]:
        match stmt:
            case Move() if stmt.src.space is Space.LOCAL:
                yield from self._access(stmt.src, stmt.src_index, stmt.width, False, lanes, times)
            case Move() if stmt.dst.space is Space.LOCAL:
                yield from self._access(stmt.dst, stmt.dst_index, stmt.width, True, lanes, times)
            case Store(buffer, index, _) if buffer.space is Space.LOCAL:
                yield from self._access(buffer, index, 1, True, lanes, times)
        for node in (n for root in exprs(stmt) for n in walk_expr(root)):
            if isinstance(node, Load) and node.buffer.space is Space.LOCAL:
                yield from self._access(node.buffer, node.index, 1, False, lanes, times)

    def _access(
        self, buffer: Buffer, index: tuple[Expr, ...], width: int, is_store: bool, lanes: list[Names], times: int
    ) -> Iterator[LocalAccess]:
        offset = buffer.layout.offset(index)
        found = [value_of(offset, names) for names in lanes]
        places = [place for place in found if place is not None]
        if not places or len(places) < len(found):
            return
        size = width * buffer.dtype.size
        words = [
            [(place * buffer.dtype.size + byte) // _BANK_BYTES for byte in range(0, size, _BANK_BYTES)]
            for place in places
        ]
        at_a_time = max(1, _PASS_BYTES // max(size, _BANK_BYTES))
        passes = [words[i : i + at_a_time] for i in takewhile(lambda i: i < len(words), count(0, at_a_time))]
        clocks = sum(self._most(part) for part in passes)
        different = len({word for own in words for word in own})
        yield LocalAccess(buffer.name, is_store, size, times, clocks, len(passes), different)

    def _most(self, words: list[list[int]]) -> int:
        """The most different words of one bank: each takes a clock, equal ones are served together."""
        return max(Counter(word % self.banks for word in {w for own in words for w in own}).values())


def value_of(node: Expr, names: Mapping[str, int]) -> int | None:
    """An integer expression's value; None where it depends on what is not known."""
    match node:
        case Const(value):
            return value if isinstance(value, int) else None
        case Var(name, _):
            return names.get(name)
        case Call(function, args, _):
            return names.get(" ".join((function, *(str(a.value) for a in args if isinstance(a, Const)))))
        case Select(condition, then, other):
            holds = value_of(condition, names)
            return None if holds is None else value_of(then if holds else other, names)
        case Bin(op, a, b):
            left, right = value_of(a, names), value_of(b, names)
            return None if left is None or right is None else _combine(op, left, right)
    return None


def _combine(op: str, a: int, b: int) -> int | None:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a // b if b else None
        case "%":
            return a % b if b else None
        case "min":
            return min(a, b)
        case "&":
            return a & b
        case "&&":
            return int(bool(a) and bool(b))
        case "<":
            return int(a < b)
        case "<=":
            return int(a <= b)
        case "==":
            return int(a == b)
        case "!=":
            return int(a != b)
    return None
