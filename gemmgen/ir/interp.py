"""The meaning of a lowered kernel: run it in lock step on NumPy and report what is undefined.

All work-items of all groups are lanes of one array axis; each statement is executed by all active lanes
before the next one. That order is one of many that a device may choose, so every pair of accesses whose
order matters and that no barrier orders is reported as a race, whatever the result.

A barrier with `memory="none"` makes work-items meet but publishes no writes: it ends no epoch, and
accesses on both sides of it still race.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gemmgen.errors import LoweringError
from gemmgen.ir.atoms import CopyAtom
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.evaluate import (
    Cell,
    Evaluator,
    IndexCode,
    Scope,
    literal,
    require_uniform,
    require_whole,
)
from gemmgen.ir.expr import Expr
from gemmgen.ir.fault import KernelFault
from gemmgen.ir.flights import Flight, Flights
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.lanes import Active, Floats, Index, Lanes, Site
from gemmgen.ir.memory import GlobalMemory, ImageMemory, LocalMemory, PrivateMemory
from gemmgen.ir.stmt import (
    Alloc,
    AsyncGroup,
    Barrier,
    Block,
    Body,
    Comment,
    Copy,
    Fill,
    For,
    If,
    Let,
    Mma,
    Move,
    PipeOp,
    Stage,
    Stmt,
    Store,
    Update,
    in_bytes,
)
from gemmgen.ir.visit import evaluate

#: Groups run in turns of at most this many work-items, to bound memory.
MOST_LANES = 65536

Argument = int | float | Floats
_Step = Callable[[Active], None]


def run(kernel: Kernel, arguments: Mapping[str, Argument]) -> None:
    """Run a kernel of instructions.

    Args:
        arguments: by parameter name: numbers; flat arrays of the buffer's type for global memory, changed
            in place; arrays [rows, columns] for images.

    Raises:
        KernelFault: the kernel's behaviour is undefined.
        LoweringError: it still has statements on tiles, or is not a valid kernel.
        ValueError: the arguments do not fit the parameters.
    """
    _Run(kernel, arguments).run()


class _Run:
    """One execution: translates the kernel once, then runs it for group after group."""

    def __init__(self, kernel: Kernel, arguments: Mapping[str, Argument]) -> None:
        self._kernel = kernel
        self._sizes = _integers(kernel, arguments)
        rows, cols = (evaluate(extent, self._sizes) for extent in kernel.grid)
        self._groups = rows * cols
        self._lanes = Lanes(kernel, (rows, cols))
        self._evaluator = Evaluator(self._lanes)
        self._sites: list[Site] = []
        self._locals: list[LocalMemory] = []
        self._flights = Flights()
        self._body = self._block(kernel.body, self._parameters(arguments))

    def run(self) -> None:
        """All groups, a share of them at a time."""
        share = max(1, MOST_LANES // self._lanes.group_size)
        with np.errstate(all="ignore"):
            for first in range(0, self._groups, share):
                self._lanes.load(first, min(share, self._groups - first))
                self._flights.clear()
                self._body(self._lanes.everyone)

    def _parameters(self, arguments: Mapping[str, Argument]) -> Scope:
        scope = Scope()
        for var in self._kernel.scalars:
            value = arguments[var.name]
            if isinstance(value, np.ndarray):
                raise ValueError(f"argument {var.name} is an array, not a number")
            scope.cells[var.name] = Cell(literal(value, var.dtype))
        for buffer in self._kernel.matrices:
            data = _array(buffer, arguments[buffer.name])
            kind = ImageMemory if buffer.space is Space.IMAGE else GlobalMemory
            scope.memories[buffer.name] = kind(self._lanes, buffer, self._sizes, self._sites, data)
        return scope

    # --- translation ------------------------------------------------------------------------------

    def _block(self, body: Body, scope: Scope) -> _Step:
        steps = [step for stmt in body if (step := self._step(stmt, scope)) is not None]

        def block(active: Active) -> None:
            for step in steps:
                step(active)

        return block

    def _step(self, stmt: Stmt, scope: Scope) -> _Step | None:
        """What a statement does; declarations are added to `scope`."""
        site = Site(len(self._sites), stmt)
        self._sites.append(site)
        match stmt:
            case Comment():
                return None
            case Alloc(buffer):
                return self._alloc(buffer, scope)
            case Let():
                return self._let(stmt, scope, site)
            case Store():
                return self._store(stmt, scope, site)
            case Move():
                return self._move(stmt, scope, site)
            case For():
                return self._for(stmt, scope, site)
            case If():
                return self._if(stmt, scope, site)
            case Block(body):
                return self._block(body, scope.inner())
            case Barrier():
                return self._barrier(stmt, site)
            case AsyncGroup():
                return self._async_group(stmt, site)
            case Fill() | Copy() | Stage() | Mma() | Update() | PipeOp():
                raise LoweringError(f"kernel {self._kernel.name}: `{site.text}` is not an instruction: lower it first")

    def _alloc(self, buffer: Buffer, scope: Scope) -> _Step | None:
        if buffer.space is Space.LOCAL:
            # One for the whole kernel, wherever it is declared.
            memory = LocalMemory(self._lanes, buffer, self._sizes, self._sites)
            self._locals.append(memory)
            scope.memories[buffer.name] = memory
            return None
        registers = PrivateMemory(self._lanes, buffer, self._sizes, self._sites)
        scope.memories[buffer.name] = registers
        return lambda _active: registers.allocate()

    def _let(self, stmt: Let, scope: Scope, site: Site) -> _Step:
        code = self._evaluator.expr(stmt.value, scope, site)
        cell = scope.cells[stmt.var.name] = Cell()

        def let(active: Active) -> None:
            cell.value = code(active)

        return let

    def _store(self, stmt: Store, scope: Scope, site: Site) -> _Step:
        memory = scope.memory(stmt.buffer.name)
        index = self._indexes(stmt.index, scope, site)
        value = self._evaluator.expr(stmt.value, scope, site)

        def store(active: Active) -> None:
            memory.write([code(active) for code in index], value(active), active, site)

        return store

    def _if(self, stmt: If, scope: Scope, site: Site) -> _Step:
        condition = self._evaluator.expr(stmt.condition, scope, site)
        then, orelse = self._block(stmt.then, scope.inner()), self._block(stmt.orelse, scope.inner())

        def branch(active: Active) -> None:
            holds, fails = active.split(condition(active))
            if holds is not None:
                then(holds)
            if fails is not None:
                orelse(fails)

        return branch

    def _for(self, stmt: For, scope: Scope, site: Site) -> _Step:
        start = self._evaluator.index(stmt.start, scope, site)
        stop = self._evaluator.index(stmt.stop, scope, site)
        inner = scope.inner()
        cell = inner.cells[stmt.var.name] = Cell()
        body = self._block(stmt.body, inner)

        def loop(active: Active) -> None:
            first, last = _agreed(start(active), active), _agreed(stop(active), active)
            if isinstance(first, int) and isinstance(last, int):
                for value in range(first, last, stmt.step):
                    cell.value = value
                    body(active)
                return
            # Lanes that are through wait for the others.
            position = first + np.zeros(len(active.mask), np.int64)
            rest = active.narrow(position < last)
            while rest is not None:
                cell.value = position
                body(rest)
                position = position + stmt.step
                rest = rest.narrow(position < last)

        return loop

    def _barrier(self, stmt: Barrier, site: Site) -> _Step:
        lanes, memories = self._lanes, self._locals

        def barrier(active: Active) -> None:
            if not lanes.whole(active, lanes.group_size):
                away = _missing(lanes, active)
                raise KernelFault("divergent barrier", site.text, f"{lanes.who(away)} does not come")
            if stmt.memory == "local":
                for memory in memories:
                    memory.publish(active)

        return barrier

    def _async_group(self, stmt: AsyncGroup, site: Site) -> _Step:
        flights = self._flights

        def group(active: Active) -> None:
            if not active.full:
                raise KernelFault("pipe", site.text, "not every work-item comes, so that groups cannot be counted")
            if stmt.verb == "commit":
                flights.commit()
            else:
                flights.wait(stmt.pending)

        return group

    # --- moves ------------------------------------------------------------------------------------

    def _move(self, stmt: Move, scope: Scope, site: Site) -> _Step:
        if stmt.atom.is_async:
            return self._async_move(stmt, scope, site)
        src, dst = scope.memory(stmt.src.name), scope.memory(stmt.dst.name)
        src_index = self._indexes(stmt.src_index, scope, site)
        dst_index = self._indexes(stmt.dst_index, scope, site)
        # The atom's steps hold for its memory side; on the other side the elements are neighbours.
        loads = stmt.src.space is not Space.PRIVATE
        together = any(stmt.atom.lane_step)
        places: tuple[tuple[IndexCode, IndexCode], ...] = ()
        if stmt.byte_place is not None:
            counted = self._indexes(stmt.byte_place, scope, site)
            places = tuple(zip(counted, self._indexes(in_bytes(stmt), scope, site), strict=True))

        def move(active: Active) -> None:
            source, target = [c(active) for c in src_index], [c(active) for c in dst_index]
            if together:
                self._check_together(source if loads else target, active, site)
            for counted, place in places:
                _check_offset(counted(active), place(active), active, site)
            # All elements are read before one is written.
            values = [
                src.read(self._element(source, stmt.atom, e) if loads else _neighbour(source, e), active, site)
                for e in range(stmt.width)
            ]
            for e, value in enumerate(values):
                index = _neighbour(target, e) if loads else self._element(target, stmt.atom, e)
                dst.write(index, value, active, site)

        return move

    def _async_move(self, stmt: Move, scope: Scope, site: Site) -> _Step:
        """Begins a copy; elements that are not inside the matrix become zero and are not read."""
        src, dst = scope.memory(stmt.src.name), scope.memory(stmt.dst.name)
        if not isinstance(dst, LocalMemory):
            raise LoweringError(f"`{site.text}` does not go to local memory")
        src_index = self._indexes(stmt.src_index, scope, site)
        dst_index = self._indexes(stmt.dst_index, scope, site)
        inside = None if stmt.valid is None else self._evaluator.index(stmt.valid, scope, site)

        def move(active: Active) -> None:
            source, target = [c(active) for c in src_index], [c(active) for c in dst_index]
            valid = stmt.width if inside is None else inside(active)
            for e in range(stmt.width):
                values = np.zeros(len(active.mask), stmt.dst.dtype.name)
                holds, _ = active.split(valid > e if isinstance(valid, np.ndarray) else np.bool_(valid > e))
                if holds is not None:
                    read = src.read(_neighbour(source, e), holds, site)
                    values[holds.lanes] = read[holds.lanes] if isinstance(read, np.ndarray) else read
                addresses = dst.begin(_neighbour(target, e), active, site)
                self._flights.begin(Flight(dst, addresses, values[active.lanes], active.lanes, site))

        return move

    def _check_together(self, index: list[Index], active: Active, site: Site) -> None:
        """A sub-group's instruction: all lanes execute it, with the same coordinates."""
        require_whole(self._lanes, active, site)
        for coordinate in index:
            require_uniform(self._lanes, coordinate, active, site, "a coordinate")

    def _element(self, index: list[Index], atom: CopyAtom, element: int) -> list[Index]:
        """Where element `element` of each lane lies."""
        out = list(index)
        for axis, (step, lane_step) in enumerate(zip(atom.element_step, atom.lane_step, strict=True)):
            offset: Index = step * element
            if lane_step:
                offset = offset + lane_step * self._lanes.lane_id()
            if lane_step or step * element:
                out[axis - 2] = out[axis - 2] + offset
        return out

    def _indexes(self, index: tuple[Expr, ...], scope: Scope, site: Site) -> tuple[IndexCode, ...]:
        return tuple(self._evaluator.index(i, scope, site) for i in index)


def _neighbour(index: list[Index], element: int) -> list[Index]:
    # A single element may have no index at all.
    return [*index[:-1], index[-1] + element] if element else index


def _check_offset(counted: Index, place: Index, active: Active, site: Site) -> None:
    """An address that was worked out before must be that of the coordinates."""
    if np.any(active.pick(counted) != active.pick(place)):
        raise LoweringError(f"`{site.text}`: the place in bytes is not that of the element")


def _agreed(value: Index, active: Active) -> Index:
    """One number where all active lanes have the same."""
    if not isinstance(value, np.ndarray):
        return value
    own = value[active.lanes]
    return int(own[0]) if (own == own[0]).all() else value


def _missing(lanes: Lanes, active: Active) -> int:
    """A work-item of the grid that is not active though others of its group are."""
    came = active.mask.reshape(-1, lanes.group_size)
    group = int(np.argmax(came.any(axis=1) & ~came.all(axis=1)))
    return lanes.first + group * lanes.group_size + int(np.argmin(came[group]))


# --- arguments ------------------------------------------------------------------------------------


def _integers(kernel: Kernel, arguments: Mapping[str, Argument]) -> dict[str, int]:
    """The integer arguments, after a check of all names."""
    names = [p.name for p in kernel.params]
    if sorted(names) != sorted(arguments):
        raise ValueError(f"kernel {kernel.name} takes {', '.join(names)}, not {', '.join(arguments)}")
    sizes: dict[str, int] = {}
    for var in kernel.scalars:
        value = arguments[var.name]
        if not var.dtype.is_float and not isinstance(value, np.ndarray):
            sizes[var.name] = int(value)
    return sizes


def _array(buffer: Buffer, value: Argument) -> Floats:
    dimensions = 2 if buffer.space is Space.IMAGE else 1
    if not isinstance(value, np.ndarray) or value.ndim != dimensions or value.dtype.name != buffer.dtype.name:
        raise ValueError(f"argument {buffer.name} is not an array of {buffer.dtype} with {dimensions} dimension(s)")
    return value
