"""The meaning of a lowered kernel: run it in lock step on NumPy and report what is undefined.

All work-items of all groups are lanes of one array axis; each statement is executed by all active lanes before the next
one. A device may choose many other orders, so every pair of accesses whose order matters and that no barrier orders is
reported as a race, whatever the result. The kernels of a program run one after the other; `launches.py` compares those
that a device may run beside each other.

A barrier with `memory="none"` publishes no writes: it ends no epoch, and accesses on both sides of it still race.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import cast

import numpy as np

from gemmgen.errors import KernelFault, LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.copy_instructions import BYTE_OF_PAIR, PAIR, CopyAtom
from gemmgen.ir.dtypes import F32, I32, I64
from gemmgen.ir.expr import Const, Expr, Var
from gemmgen.ir.kernel import Kernel, Program, awaits_others
from gemmgen.ir.numeric import convert, numpy_dtype
from gemmgen.ir.stmt import (
    Alloc,
    Block,
    BlockPayload,
    Body,
    Comment,
    For,
    FragmentApply,
    If,
    Let,
    Multiply,
    PayloadAdvance,
    PlaceStmt,
    PointerIncrement,
    PointerInit,
    Prefetch,
    Return,
    Stmt,
    Store,
    TmaCopy,
    VectorCopy,
)
from gemmgen.ir.synchronization import (
    AsyncGroup,
    Barrier,
    DependentLaunch,
    Mbarrier,
    MultiplyGroup,
    SetMaxRegisters,
    StoreGroup,
)
from gemmgen.ir.walk import evaluate, of_kind, places
from gemmgen.simulator.addresses import Pointers, alignment_check, pointer_step, prefetch_step
from gemmgen.simulator.block_io import (
    advance_step,
    block_2d_prefetch_step,
    block_2d_step,
    payload_step,
)
from gemmgen.simulator.evaluate import (
    Cell,
    Evaluator,
    IndexCode,
    Reference,
    Scope,
    literal,
    nibble,
    require_uniform,
    require_whole,
)
from gemmgen.simulator.in_flight import CopyInFlight, all_come, group_step
from gemmgen.simulator.lanes import Active, Floats, Index, Lanes, Site, Value, agreed, by_lanes
from gemmgen.simulator.launches import Stream
from gemmgen.simulator.memory import (
    ClusterMemory,
    GlobalMemory,
    ImageMemory,
    LocalMemory,
    PrivateMemory,
    Run,
    ViewMemory,
    unknown,
)
from gemmgen.simulator.semantics import Numbers, load_step, multiply_step, neighbour, put_step
from gemmgen.simulator.synchronization import Group, barrier_step, mbarrier_step, one_by_one, runs
from gemmgen.simulator.tiles import BoxedMatrix, RingMemory, TileMemory
from gemmgen.simulator.tma import store_step, tma_step
from gemmgen.simulator.warpgroups import Multiplications

Argument = int | float | complex | Floats


def integers(kernel: Kernel, arguments: Mapping[str, Argument]) -> dict[str, int]:
    """The integer arguments, after a check of all names."""
    names = [p.name for p in kernel.launch_params]
    if sorted(names) != sorted(arguments):
        raise ValueError(f"kernel {kernel.name} takes {', '.join(names)}, not {', '.join(arguments)}")
    sizes: dict[str, int] = {}
    for var in kernel.launch_params:
        value = arguments[var.name]
        if isinstance(var, Var) and not var.dtype.is_float and isinstance(value, int | float):
            sizes[var.name] = int(value)
    return sizes


def named(kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """The integer arguments, and what the top of the kernel makes of these alone: shapes may be named so."""
    known = dict(sizes)
    for stmt in kernel.body:
        if isinstance(stmt, Let) and stmt.var.dtype in (I32, I64):
            with suppress(LoweringError):
                known[stmt.var.name] = evaluate(stmt.value, known)
    return known


def array(buffer: Buffer, value: Argument) -> Floats:
    """The matrix, after a check of its type. Raises: ValueError."""
    dimensions = 2 if buffer.space is Space.IMAGE else 1
    if not isinstance(value, np.ndarray) or value.ndim != dimensions or value.dtype.name != buffer.dtype.name:
        raise ValueError(f"argument {buffer.name} is not an array of {buffer.dtype} with {dimensions} dimension(s)")
    return value


class Returned(Exception):
    """All work-items are through."""


def returned(active: Active) -> None:
    """All work-items end here."""
    if not active.full:
        raise LoweringError("some work-items return without the others")
    raise Returned


def check_together(lanes: Lanes, index: list[Index], active: Active, site: Site) -> None:
    """A sub-group's instruction: all lanes execute it, with the same coordinates."""
    require_whole(lanes, active, site)
    for coordinate in index:
        require_uniform(lanes, coordinate, active, site, "a coordinate")


def element(lanes: Lanes, index: list[Index], atom: CopyAtom, number: int) -> list[Index]:
    """Where an element of each lane lies."""
    out = list(index)
    for axis, (step, lane_step) in enumerate(zip(atom.offset(number), atom.lane_step, strict=True)):
        offset: Index = step
        if lane_step:
            offset = offset + lane_step * lanes.lane_id()
        if lane_step or step:
            out[axis - 2] = out[axis - 2] + offset
    return out


#: Groups run in turns of at most this many work-items, to bound memory.
MOST_LANES = 65536

_Step = Callable[[Active], None]


def run(
    kernel: Kernel,
    arguments: Mapping[str, Argument],
    resident: int = 2,
    sub_group_size: int | None = None,
    stream: Stream | None = None,
    early: bool = False,
) -> None:
    """Run a kernel of instructions.

    Args:
        arguments: by parameter name: numbers; flat arrays of the buffer's type for global memory, changed
            in place; arrays [rows, columns] for images.
        sub_group_size: what the kernel is told if it asks; None for what it requires.
        resident: how many groups there are at most of a persistent kernel; of any number the result is the same.
        stream: the kernels before it, which may still run where it is launched `early`; None if they are complete.

    Raises:
        KernelFault: the kernel's behaviour is undefined.
        LoweringError: it still has statements on tiles, or is not a valid kernel.
        ValueError: the arguments do not fit the parameters.
    """
    _Run(kernel, arguments, resident, sub_group_size or kernel.sub_group, stream, early).run()


class _Run:
    """One execution: translates the kernel once, then runs it for group after group."""

    def __init__(
        self,
        kernel: Kernel,
        arguments: Mapping[str, Argument],
        resident: int,
        sub_group_size: int | None,
        stream: Stream | None,
        early: bool,
    ) -> None:
        self._kernel = kernel
        self._sizes = named(kernel, integers(kernel, arguments))
        rows, cols = (evaluate(extent, self._sizes) for extent in kernel.grid)
        cols = min(cols, resident * kernel.cluster) if kernel.persistent else cols
        layers = 1 if kernel.grid_z is None else self._sizes[kernel.grid_z.name]
        self._lanes = Lanes(kernel, (layers, rows, cols))
        self._launch = stream.launch(kernel, self._lanes, early) if stream is not None else None
        self._evaluator = Evaluator(self._lanes, sub_group_size)
        self._sites: list[Site] = []
        self._memory = Run(self._lanes, self._sizes, self._sites)
        self._group = Group(self._lanes)
        self._multiplications = Multiplications(self._lanes, self._group.products)
        extents = [extent for matrix in kernel.matrices for extent in matrix.shape]
        self._loaded = frozenset[str]().union(*(unknown(extent, self._sizes) for extent in extents))
        self._body = self._block(kernel.body, self._parameters(arguments))

    def run(self) -> None:
        """All groups, a share of them at a time; where each loads places of its own, one."""
        alone = any(matrix.places for matrix in self._kernel.matrices)
        most = 1 if alone else max(1, MOST_LANES // self._lanes.group_size)
        with np.errstate(all="ignore"):
            for first, groups in runs(self._kernel, self._sizes, self._lanes.grid, most):
                self._lanes.load(first, groups)
                self._group.clear()
                self._multiplications.clear()
                with suppress(Returned):
                    self._body(self._lanes.everyone)
                if self._group.stores.busy:
                    raise KernelFault("race", self._kernel.name, "local memory ends while TMA stores read it")
                if self._group.touches_others:
                    detail = "a group may end while others of its cluster still write to it: no barrier of the cluster"
                    raise KernelFault("race", self._kernel.name, detail)

    def _parameters(self, arguments: Mapping[str, Argument]) -> Scope:
        scope = Scope()
        for var in self._kernel.scalars:
            value = arguments[var.name]
            if isinstance(value, np.ndarray):
                raise ValueError(f"argument {var.name} is an array, not a number")
            scope.cells[var.name] = Cell(literal(value, var.dtype))
        for buffer in self._kernel.matrices:
            data = array(buffer, arguments[buffer.name])
            kind, known = GlobalMemory if buffer.tma_tile is None else BoxedMatrix, (self._memory, buffer, data)
            memory = ImageMemory(*known) if buffer.space is Space.IMAGE else kind(*known, self._launch)
            scope.memories[buffer.name] = memory
            self._group.matrices.extend([memory] if isinstance(memory, GlobalMemory) else [])
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
            case Comment() | SetMaxRegisters() | Return():
                return returned if isinstance(stmt, Return) else None
            case Alloc(buffer, reuses):
                return self._alloc(buffer, reuses, scope, site)
            case Let():
                return self._let(stmt, scope, site)
            case Store():
                return self._store(stmt, scope, site)
            case VectorCopy():
                return self._move(stmt, scope, site)
            case For():
                return self._for(stmt, scope, site)
            case If():
                return self._if(stmt, scope, site)
            case FragmentApply():
                return self._apply(stmt, scope, site)
            case Block(body, apart, parts):
                step = self._block(body, scope.inner())
                return step if apart is None else one_by_one(self._evaluator.index(apart, scope, site), parts, step)
            case Barrier() | AsyncGroup() | Mbarrier() | MultiplyGroup() | StoreGroup() | DependentLaunch():
                return self._sync(stmt, scope, site)
            case TmaCopy():
                return self._tma_copy(stmt, scope, site)
            case _ if isinstance(stmt, PlaceStmt):
                return self._place(stmt, scope, site)
            case Multiply():
                return self._multiply(stmt, scope, site)
            case _:
                raise LoweringError(f"kernel {self._kernel.name}: `{site.text}` is not an instruction: lower it first")

    def _place(self, stmt: PlaceStmt, scope: Scope, site: Site) -> _Step | None:
        """What pointers, prefetches and address payloads do."""
        match stmt:
            case PointerInit():
                return self._point(stmt, scope, site)
            case PointerIncrement():
                return self._advance(stmt, scope, site)
            case Prefetch(buffer, index, _, None):
                return prefetch_step(self._evaluator.reference(buffer, index, scope, site), site)
            case Prefetch(buffer, index, _, _, extent):
                block = self._evaluator.reference(buffer, index, scope, site)
                return block_2d_prefetch_step(stmt, block, self._indexes(extent, scope, site), self._lanes, site)
            case BlockPayload(payload, which, _, index):
                filled = self._evaluator.reference(payload, which, scope, site)
                return payload_step(filled, self._indexes(index, scope, site), self._lanes, site)
            case PayloadAdvance(payload, which):
                return advance_step(stmt, self._evaluator.reference(payload, which, scope, site), site)

    def _alloc(self, buffer: Buffer, reuses: bool, scope: Scope, site: Site) -> _Step | None:
        if buffer.space is Space.LOCAL:
            # One for the whole kernel, wherever it is declared.
            before = tuple(self._group.memories) if reuses else ()
            filled = any(s.dst == buffer for s in of_kind(TmaCopy, self._kernel.body))
            plain = ClusterMemory if buffer.distributed > 1 else LocalMemory
            kind = TileMemory if buffer.layout.swizzle else RingMemory if filled else plain
            memory = kind(self._memory, buffer)
            self._group.memories.append(memory)
            scope.memories[buffer.name] = memory

            def retire(_active: Active) -> None:
                copies = self._group.copies.busy or any(phases.busy for phases in self._group.phases.values())
                if any(not old.retire() for old in before) or copies:
                    raise KernelFault("race", site.text, "the local memory below it may still be in use: no barrier")

            return retire if before else None
        if buffer.space is Space.POINTERS:
            scope.memories[buffer.name] = Pointers(self._memory, buffer)
            return None
        registers = PrivateMemory(self._memory, buffer)
        scope.memories[buffer.name] = registers
        return lambda _active: registers.allocate()

    def _point(self, stmt: PointerInit, scope: Scope, site: Site) -> _Step:
        (to,) = self._places(stmt, scope, site)
        if stmt.which is not None:
            return pointer_step(self._evaluator.reference(stmt.view, (stmt.which,), scope, site), to, site)
        memory = to.within(LocalMemory, site, "points to no local memory")
        view = scope.memories[stmt.view.name] = ViewMemory(self._memory, stmt.view, memory)
        return lambda active: view.point(to.at(active), active, site)

    def _advance(self, stmt: PointerIncrement, scope: Scope, site: Site) -> _Step:
        view = scope.memory(stmt.view.name)
        if not isinstance(view, ViewMemory | GlobalMemory):
            raise LoweringError(f"`{site.text}` moves neither a view nor a matrix")
        by = self._evaluator.index(stmt.by, scope, site)
        return lambda active: view.advance(by(active))

    def _let(self, stmt: Let, scope: Scope, site: Site) -> _Step:
        code = self._evaluator.expr(stmt.value, scope, site)
        cell = scope.cells[stmt.var.name] = Cell()

        def let(active: Active) -> None:
            cell.value = code(active)

        def extent(active: Active) -> None:
            let(active)
            self._sizes[stmt.var.name] = int(agreed(cast(Index, cell.value), active))
            for matrix in self._group.matrices:
                matrix.measure(self._sizes)

        return extent if stmt.var.name in self._loaded else let

    def _apply(self, stmt: FragmentApply, scope: Scope, site: Site) -> _Step:
        loop = self._for(by_lanes(stmt), scope, site)

        def apply(active: Active) -> None:
            require_whole(self._lanes, active, site)
            loop(active)

        return apply

    def _store(self, stmt: Store, scope: Scope, site: Site) -> _Step:
        (to,), value = self._places(stmt, scope, site), self._evaluator.expr(stmt.value, scope, site)

        def store(active: Active) -> None:
            to.memory.write(to.at(active), value(active), active, site)

        return store

    def _if(self, stmt: If, scope: Scope, site: Site) -> _Step:
        condition = self._evaluator.expr(stmt.condition, scope, site)
        then, orelse = self._block(stmt.then, scope.inner()), self._block(stmt.orelse, scope.inner())

        def branch(active: Active) -> None:
            holds, fails = active.split(condition(active))
            if stmt.roles and holds is not None and fails is not None:
                self._group.roles.run((partial(then, holds), partial(orelse, fails)))
                return
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
            first, last = agreed(start(active), active), agreed(stop(active), active)
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

    def _sync(
        self,
        stmt: Barrier | AsyncGroup | Mbarrier | MultiplyGroup | StoreGroup | DependentLaunch,
        scope: Scope,
        site: Site,
    ) -> _Step | None:
        match stmt:
            case DependentLaunch():
                return None if self._launch is None else partial(self._launch.step, stmt)
            case Barrier():
                return barrier_step(stmt, self._group, site)
            case AsyncGroup():
                return group_step(stmt, self._group.copies, site, all_come(site))
            case Mbarrier():
                rank = () if stmt.rank is None else (stmt.rank,)
                codes = self._indexes((stmt.index, stmt.parity, *rank), scope, site)
                return mbarrier_step(stmt, codes, self._group, site)
            case MultiplyGroup():
                waited = None if stmt.sums is None else scope.memory(stmt.sums.name)
                return self._multiplications.step(stmt, waited, site)
            case StoreGroup():
                return group_step(stmt, self._group.stores, site, fence=self._group.fence)

    def _multiply(self, stmt: Multiply, scope: Scope, site: Site) -> _Step:
        operands = self._places(stmt, scope, site)
        if stmt.atom.is_async:
            accumulate = None if stmt.accumulate is None else self._evaluator.index(stmt.accumulate, scope, site)
            return self._multiplications.multiply(stmt, stmt.atom, operands, accumulate, site)
        return multiply_step(stmt.atom, operands, self._lanes, site)

    def _tma_copy(self, stmt: TmaCopy, scope: Scope, site: Site) -> _Step:
        dst, src = self._places(stmt, scope, site)
        if stmt.mbarrier is None:
            return store_step(stmt, src, dst, self._group, site)
        barrier = self._evaluator.index(stmt.mbarrier.index, scope, site)
        return tma_step(stmt, stmt.mbarrier, src, dst, barrier, self._group, site)

    # --- moves ------------------------------------------------------------------------------------

    def _move(self, stmt: VectorCopy, scope: Scope, site: Site) -> _Step:
        if stmt.atom.is_async:
            return self._async_vector_copy(stmt, scope, site)
        if stmt.valid is not None:
            return self._part_of_vector(stmt, scope, site)
        target, source = self._places(stmt, scope, site)
        if stmt.atom.edge == "bounded":
            return block_2d_step(stmt, source, target, self._indexes(stmt.extent, scope, site), self._lanes, site)
        dst, src = target.memory, source.memory
        aligned = alignment_check(stmt, src, dst, self._lanes, site)
        # The atom's steps hold for its memory side; on the other side the elements are neighbours.
        loads = stmt.src.space is not Space.PRIVATE
        read = src.peek if stmt.ahead and isinstance(src, ViewMemory | LocalMemory) else src.read
        if isinstance(dst, TileMemory):
            return put_step(stmt, source, target, self._lanes, site)
        if stmt.atom.matrices is not None:
            return load_step(stmt, read, source, target, self._lanes, site)
        together, keeps = any(stmt.atom.lane_step), stmt.src.dtype == stmt.dst.dtype
        write = dst.write
        if stmt.atom.adds:
            write = target.within(GlobalMemory, site, f"adds to {stmt.dst.space.value} memory").add
        check = self._evaluator.place_check(stmt, scope, site)
        zero = None if stmt.zero_point is None else self._evaluator.expr(stmt.zero_point, scope, site)

        def move(active: Active) -> None:
            begin, to = source.at(active), target.at(active)
            if together:
                check_together(self._lanes, begin if loads else to, active, site)
            check(active)
            aligned(begin, to, active)
            # All elements are read before one is written.
            if stmt.atom == BYTE_OF_PAIR:
                bytes_ = [cast(Index, read(neighbour(begin, e), active, site)) for e in range(stmt.width // PAIR)]
                values = [nibble(bytes_[e // PAIR], e % PAIR) for e in range(stmt.width)]
            else:
                values = [
                    read(element(self._lanes, begin, stmt.atom, e) if loads else neighbour(begin, e), active, site)
                    for e in range(stmt.width)
                ]
            if zero is not None:
                point = cast(Numbers, convert(zero(active), F32))
                values = [cast(Numbers, convert(value, F32)) - point for value in values]
            for e, value in enumerate(values):
                value = value if keeps else cast(Value, convert(value, stmt.dst.dtype))
                index = neighbour(to, e) if loads else element(self._lanes, to, stmt.atom, e)
                write(index, value, active, site)

        return move

    def _part_of_vector(self, stmt: VectorCopy, scope: Scope, site: Site) -> _Step:
        """Moves those of the elements that are inside the matrix; the others it reads as zeros."""
        target, source = self._places(stmt, scope, site)
        dst, src = target.memory, source.memory
        inside = self._evaluator.index(stmt.valid or Const(stmt.width), scope, site)
        loads, keeps = stmt.src.space is not Space.PRIVATE, stmt.src.dtype == stmt.dst.dtype
        zero = cast(Value, numpy_dtype(stmt.dst.dtype).type(0))

        def move(active: Active) -> None:
            begin, to = source.at(active), target.at(active)
            valid = inside(active)
            for e in range(stmt.width):
                holds, _ = active.split(np.greater(valid, e))
                if loads:
                    dst.write(neighbour(to, e), zero, active, site)
                if holds is not None:
                    value = src.read(neighbour(begin, e), holds, site)
                    value = value if keeps else cast(Value, convert(value, stmt.dst.dtype))
                    dst.write(neighbour(to, e), value, holds, site)

        return move

    def _async_vector_copy(self, stmt: VectorCopy, scope: Scope, site: Site) -> _Step:
        """Begins a copy; elements that are not inside the matrix become zero and are not read."""
        target, source = self._places(stmt, scope, site)
        dst, src = target.within(LocalMemory, site, "does not go to local memory"), source.memory
        aligned = alignment_check(stmt, src, dst, self._lanes, site)
        inside = None if stmt.valid is None else self._evaluator.index(stmt.valid, scope, site)

        def move(active: Active) -> None:
            begin, to = source.at(active), target.at(active)
            aligned(begin, to, active)
            valid = stmt.width if inside is None else inside(active)
            for e in range(stmt.width):
                values = np.zeros(len(active.mask), numpy_dtype(stmt.dst.dtype))
                holds, _ = active.split(valid > e if isinstance(valid, np.ndarray) else np.bool_(valid > e))
                if holds is not None:
                    read = src.read(neighbour(begin, e), holds, site)
                    values[holds.lanes] = read[holds.lanes] if isinstance(read, np.ndarray) else read
                addresses = dst.begin(neighbour(to, e), active, site)
                copy = CopyInFlight(dst, addresses, values[active.lanes], active.lanes, site)
                self._group.copies.issue(copy, int(active.lanes[0]))

        return move

    def _places(self, stmt: Stmt, scope: Scope, site: Site) -> list[Reference]:
        """The memory that a statement touches, and where."""
        return [self._evaluator.reference(x, index, scope, site) for x, index in places(stmt)]

    def _indexes(self, index: tuple[Expr, ...], scope: Scope, site: Site) -> tuple[IndexCode, ...]:
        return tuple(self._evaluator.index(i, scope, site) for i in index)


def run_program(
    program: Program,
    arguments: Mapping[str, Argument],
    resident: int = 2,
    early: Collection[str] | None = None,
) -> None:
    """Run the kernels of a program.

    Args:
        arguments: by parameter name, those of all kernels and the workspaces; the rest as `interp.run` takes them.
        resident: how many groups there are at most of a persistent kernel.
        early: the names of the kernels that are launched before those in front of them are complete; None for those
            that wait, which is what launchers do.

    Raises: KernelFault, LoweringError, ValueError as `interp.run` does.
    """
    if early is None:
        early = [kernel.name for kernel in program.kernels if awaits_others(kernel)]
    stream = Stream() if early else None
    for kernel in program.kernels:
        run(kernel, _own(kernel, program, arguments), resident, stream=stream, early=kernel.name in early)


def _own(kernel: Kernel, program: Program, arguments: Mapping[str, Argument]) -> dict[str, Argument]:
    """A kernel's arguments. What one kernel writes element by element another may read in words."""
    workspaces = {workspace.name for workspace in program.workspaces}
    own = {p.name: arguments[p.name] for p in kernel.launch_params}
    for p in kernel.matrices:
        if p.name in workspaces:
            own[p.name] = cast(Floats, np.asarray(own[p.name]).view(numpy_dtype(p.dtype)))
    return own
