"""Bank conflicts: which addresses of local memory the lanes of a warp access together, by the lowered kernel.

A bank delivers one word of 4 bytes a clock. Lanes that access one word are served together. Lanes that access different
words of one bank wait for each other: that is a conflict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Var
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Block, Body, For, If, Let, Stmt, Store, VectorCopy
from gemmgen.ir.walk import exprs, map_expr, walk_expr
from gemmgen.records import dataclass

#: Run-time sizes and leading dimensions, where a kernel has not folded them.
SIZE = 4096
BANK_BYTES = 4
#: Bytes that all lanes of a pass access together. An access of 8 or 16 bytes takes passes of half or a quarter warp.
_PASS_BYTES = 128
Names = dict[str, int]
#: The words of each lane of a pass.
Pass = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class LocalAccess:
    """An access of a whole warp to local memory, in the main loop.

    Attributes:
        bytes: of one lane.
        times: how often it runs in a step of the main loop.
        passes: the words of each lane, in the order in which the hardware serves them.
        banks: of the device.
    """

    buffer: str
    is_store: bool
    bytes: int
    times: int
    passes: tuple[Pass, ...]
    banks: int

    @property
    def words(self) -> int:
        """Different words of all lanes. A bank delivers one a clock, however compilers join accesses."""
        return len({word for part in self.passes for own in part for word in own})

    @property
    def clocks(self) -> int:
        """Clocks that the banks take."""
        return sum(max(self.loads_of_banks(part).values()) for part in self.passes)

    @property
    def ways(self) -> float:
        """How many times longer conflicts make it; 1 without any."""
        return max(1.0, self.clocks / len(self.passes))

    def loads_of_banks(self, part: Pass) -> Counter[int]:
        """Bank -> how many different words a pass accesses there."""
        return Counter(word % self.banks for word in {word for own in part for word in own})


def local_accesses(kernel: Kernel, lanes: int, banks: int) -> tuple[LocalAccess, ...]:
    """The accesses of a group's first warp in the first step of the main loop.

    Args:
        lanes: of a warp.
        banks: of the device.
    """
    sizes = {v.name: SIZE for v in kernel.scalars if not v.dtype.is_float}
    group = kernel.group[0] * kernel.group[1]
    names = [_start(kernel, lane, sizes) for lane in range(min(lanes, group))]
    return tuple(_Walk(banks).body(kernel.body, names, 0))


def _start(kernel: Kernel, lane: int, sizes: Mapping[str, int]) -> Names:
    """The names that a lane begins with; built-ins stand among them under names that no variable has."""
    rows, columns = divmod(lane, kernel.group[1])
    ids = {"local_id 0": columns, "local_id 1": rows, "lane_id": lane % (kernel.sub_group or lane + 1)}
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
            case VectorCopy() if stmt.src.space is Space.LOCAL:
                yield from self._access(stmt.src, stmt.src_index, stmt.width, False, lanes, times)
            case VectorCopy() if stmt.dst.space is Space.LOCAL:
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
            tuple((place * buffer.dtype.size + byte) // BANK_BYTES for byte in range(0, size, BANK_BYTES))
            for place in places
        ]
        at_a_time = max(1, _PASS_BYTES // max(size, BANK_BYTES))
        passes = tuple(tuple(words[i : i + at_a_time]) for i in range(0, len(words), at_a_time))
        yield LocalAccess(buffer.name, is_store, size, times, passes, self.banks)


def inlined(node: Expr, lets: Mapping[str, Expr]) -> Expr:
    """An expression with the values of its variables in their place, as far as they have any."""
    return map_expr(node, lambda x: inlined(lets[x.name], lets) if isinstance(x, Var) and x.name in lets else x)


def value_of(node: Expr, names: Mapping[str, int]) -> int | None:
    """An integer expression's value; None where it depends on what is not known."""

    def known(part: Expr) -> Expr:
        match part:
            case Var(name) if name in names:
                return Const(names[name])
            case Call(function, args):
                name = " ".join((function, *(str(a.value) for a in args if isinstance(a, Const))))
                return Const(names[name]) if name in names else part
            case Bin("&", Const(int(x)), Const(int(y))):
                return Const(x & y)
            case Bin("^", Const(int(x)), Const(int(y))):
                return Const(x ^ y)
        return part

    result = map_expr(node, known)
    return result.value if isinstance(result, Const) and isinstance(result.value, int) else None
