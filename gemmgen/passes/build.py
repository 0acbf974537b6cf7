"""Build the kernel: a whole GEMM in about a dozen statements on tiles."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from gemmgen.ir.atoms import BROADCAST_FMA, FMA, FMA_SNAKE, VECTOR, Spread
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.expr import Const, Expr, Var, all_of, both, number
from gemmgen.ir.kernel import Kernel, Program
from gemmgen.ir.meetings import Barrier
from gemmgen.ir.pipe import PipeOp
from gemmgen.ir.stmt import Alloc, Body, Comment, Copy, Fill, For, If, Mma, Registers, Stage, Stmt, Tile, Update
from gemmgen.ir.target import Target
from gemmgen.ir.workspace import Workspace
from gemmgen.methods import slug
from gemmgen.passes import epilogue, prologue
from gemmgen.passes.along_k import AlongK
from gemmgen.passes.columns import Columns
from gemmgen.passes.dpas import build_dpas
from gemmgen.passes.expand import COL as J
from gemmgen.passes.expand import ROW as I
from gemmgen.passes.pack import build_pack
from gemmgen.passes.parts import add_part, instead_of_nan, part_of
from gemmgen.passes.plan import MOST_UNROLLED, UNROLLED_FROM_LOCAL, Path, Plan
from gemmgen.passes.positions import (
    BATCH_COUNT,
    COL,
    COL0,
    K0,
    KK,
    LOCAL_COL,
    PART,
    ROW,
    ROW0,
    SLICE,
    depending,
)
from gemmgen.passes.put_down import by_local_memory
from gemmgen.passes.shares import build_shares, whole_or_share
from gemmgen.passes.stream import BLOCK, SEGMENT, SEGMENTS
from gemmgen.passes.sub_group_size import unless_in_sub_groups_of
from gemmgen.passes.swap import of_transpose
from gemmgen.passes.sweep import build_sweep
from gemmgen.passes.total import build_scale, build_start, build_total
from gemmgen.passes.validate import is_transposed
from gemmgen.passes.warpgroups import build_warpgroups
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Multiply-adds that take as long as an element of A or B from global memory (on an H200 26 of float32).
FED = 25


def build(spec: GemmSpec, schedule: Schedule, target: Target) -> Program:
    """The kernels of a validated request, in statements on tiles."""
    if is_transposed(spec, schedule, target):
        return of_transpose(_program(spec.transposed(), schedule, target, transposed=True))
    return _program(spec, schedule, target)


def _program(spec: GemmSpec, schedule: Schedule, target: Target, transposed: bool = False) -> Program:
    if spec.alpha == 0:
        scale = build_scale(Plan(spec, Schedule(), target))
        return Program((replace(scale, name=slug(schedule)),))
    if schedule.atom == "dpas":
        return build_dpas(spec, schedule, target, transposed)
    if schedule.by_warpgroups:
        return build_warpgroups(spec, schedule, target, transposed)
    if schedule.vector > 1:
        return build_sweep((AlongK if schedule.along_k else Columns)(spec, schedule, target, transposed))
    gemm = _Gemm(spec, schedule, target, transposed)
    before: tuple[Kernel, ...] = (build_pack(gemm),) if gemm.packed else ()
    count = BATCH_COUNT if spec.batched else Const(1)
    between = tuple(Workspace(x.name, x.dtype, size * count, gemm.reach(x)) for x, size in gemm.workspaces())
    if schedule.stream:
        return Program((*before, gemm.kernel(), build_shares(gemm)), between, len(before))
    if schedule.split == 1:
        return Program((*before, gemm.kernel()), between, len(before))
    if schedule.atomic:
        # Parts are added to C as it is where all of it stays.
        before = (*before, *(() if spec.beta == 1 else (build_start(gemm),)))
        return Program((*before, gemm.kernel()), between, len(before))
    return Program((*before, gemm.kernel(), build_total(gemm)), between, len(before))


class _Gemm(Plan):
    """The statements of one kernel."""

    # --- the product ------------------------------------------------------------------------------

    def _source(self, path: Path, k: Expr) -> Tile:
        """The tile of the matrix that a fill at depth `k` reads."""
        shape = path.registers.fragment.shape
        sub_group_row = ROW if self.rows.lanes > 1 and path.per_block else ROW0
        logical = (sub_group_row, k) if path.name == "a" else (k, COL0)
        origin = logical[::-1] if path.transposed else logical
        return Tile(path.matrix, origin, *shape, path.transposed)

    def _fill(self, path: Path, k0: Expr, kk: Expr) -> Body:
        if self.schedule.slices > 1:
            kk = SLICE * self.slice_depth + kk
        if path.staged is None:
            made = None if path.name in self.packed else prologue.step(self, path.name, in_registers=True)
            return (Copy(path.registers, self._source(path, k0 + kk), path.atom, path.width, prologue=made),)
        along_fast = path.staged.transposed == (path.name == "b")
        offset = (Const(0), kk) if along_fast else (kk, Const(0))
        tile = replace(
            path.staged,
            origin=(*path.staged.origin[:-2], *offset),
            rows=path.registers.fragment.shape[0],
            cols=path.registers.fragment.shape[1],
        )
        return (Copy(path.registers, tile, path.atom, path.width),)

    def _stage(self, path: Path, k0: Expr) -> Body:
        if path.staged is None:
            return ()
        operand = self.schedule.a if path.name == "a" else self.schedule.b
        logical = (ROW0, k0) if path.name == "a" else (k0, COL0)
        origin = logical[::-1] if path.transposed else logical
        source = Tile(path.matrix, origin, path.staged.rows, path.staged.cols, path.transposed)
        atom, width = self.stage_atom(path, operand)
        made = None if path.name in self.packed else prologue.step(self, path.name)
        return (Stage(path.staged, source, atom, width, via=self.via(path, width), prologue=made),)

    def _inner_steps(self, k0: Expr) -> Body:
        """The products of one step of K."""
        per_step = [p for p in (self.a, self.b) if not p.per_block]
        pipe = self.register_pipe if any(p.registers.pipe for p in per_step) else None
        fills = tuple(s for p in per_step for s in self._fill(p, k0, KK))
        allocs = tuple(Alloc(p.registers.buffer) for p in per_step)
        a_k = KK if self.a.per_block else Const(0)
        plain = BROADCAST_FMA if self.a.per_block else FMA_SNAKE if self.schedule.snake else FMA
        atom = self.warp_atom or plain
        sums = self.acc if self._added is None else part_of(self.acc)
        mma = Mma(sums, self.a.registers, self.b.registers, a_k, Const(0), self.depth, atom, self.spec.conj)
        then = () if self._added is None else (self._added,)
        body: Body
        if pipe is not None:
            produce = (PipeOp("acquire", pipe), *fills, PipeOp("commit", pipe))
            body = (*produce, PipeOp("wait", pipe), mma, *then, PipeOp("release", pipe))
        else:
            step_barrier = (Barrier("none"),) if self.schedule.barrier and not self.schedule.b_step else ()
            body = (*allocs, *fills, *step_barrier, mma, *then)
        rounds = self.slice_depth // self.depth
        by_warp = self.warp_atom is not None
        unroll = pipe is not None or self.a.per_block or by_warp or self.slice_depth <= MOST_UNROLLED
        at_once, most = 0, self._unrolled_steps(rounds)
        if rounds > most and not by_warp and not (pipe is not None and pipe.across):
            unroll, at_once = False, most
        steps = For(KK, Const(0), Const(self.slice_depth), self.depth, body, unroll, exact=True, at_once=at_once)
        return (*allocs, steps) if pipe is not None and not pipe.across else (steps,)

    def _unrolled_steps(self, rounds: int) -> int:
        """How many steps within one of K are unrolled together, out of so many."""
        staged = [path for path in (self.a, self.b) if path.staged is not None]
        ahead = self.schedule.register_stages > 1
        if ahead and self.schedule.prefetch and not self.all_packed:
            # Gen9's compiler would not unroll them at all beside the guards of copies: registers by a variable's value.
            return rounds
        if staged and (few := self.target.unrolled_steps):
            # Where lines of a tile go along K, compilers read several steps at once.
            along_k = any(p.staged is not None and p.staged.transposed == (p.name == "b") for p in staged)
            if along_k or ahead:
                return few
            return 2 * few if rounds <= UNROLLED_FROM_LOCAL else UNROLLED_FROM_LOCAL
        return UNROLLED_FROM_LOCAL if len(staged) == 2 and not ahead else rounds

    @property
    def _added(self) -> If | None:
        """Where instructions add to a part, what adds that to the accumulators, after a step of K."""
        if self.warp_atom is None or self.warp_atom.products == 1:
            return None
        return If(Const(self.slice_depth - self.depth) <= KK, add_part(self.acc))

    def _whole_step(self, k0: Expr, blocks: Body) -> Body:
        """The products of one step of K, as one: B first, since a row of A is needed no sooner than its arithmetic."""
        fills = (Alloc(self.b.registers.buffer), *self._fill(self.b, k0, Const(0)))
        meet = (Barrier("none"),) if self.schedule.barrier else ()
        mma = Mma(self.acc, self.a.registers, self.b.registers, Const(0), Const(0), self.depth, BROADCAST_FMA)
        return (*fills, *meet, *blocks, mma)

    def _step(self, k0: Expr) -> Body:
        """One step of K: stage, fill, multiply."""
        stages = (*self._stage(self.a, k0), *self._stage(self.b, k0))
        blocks = tuple(
            s
            for p in (self.a, self.b)
            if p.per_block
            for s in (Alloc(p.registers.buffer), *self._fill(p, k0, Const(0)))
        )
        s = self.schedule
        meet = (Barrier("none"),) if s.barrier and s.b_step else ()
        is_whole = s.by_blocks and not s.b_step
        inner = self._whole_step(k0, blocks) if is_whole else (*blocks, *meet, *self._inner_steps(k0))
        if not stages:
            return inner
        produce = (PipeOp("acquire", self.pipe), *stages, PipeOp("commit", self.pipe))
        return (*produce, PipeOp("wait", self.pipe), *inner, PipeOp("release", self.pipe))

    def _product(self) -> Body:
        step = self.schedule.k_step
        has_rest = self.k_stop != self.k_end
        between = {x.name for x, _ in self.workspaces()}
        main = For(K0, self.k_start, self.k_stop, step, self._step(K0), exact=self.exact_k or has_rest)
        out: list[Stmt] = [Alloc(self.acc.buffer), Fill(self.acc, number(0, self.sums))]
        if self._added is not None:
            out += [Alloc(part_of(self.acc).buffer), Fill(part_of(self.acc), number(0, self.sums))]
        awaited = self.awaited(*(path.matrix for path in (self.a, self.b) if path.matrix.name in between))
        say: Body = ()
        if has_rest:
            edge = "; at the edge of C there are none" if self.inside else ""
            say = (Comment(f"Whole steps of {step} along K{edge}."),)
        elif not self.exact_k:
            say = (Comment("Along K; copies bring zeros for what lies past it."),)
        along_k = (*self._whole_and_edge(main), *(self._rest() if has_rest else ()))
        if self._added is not None:
            along_k = (*along_k, *instead_of_nan(self.acc, _OfHeads(self).product()))
        if self.schedule.stream:
            # Awaited before the first of several loops. Between them the group meets: who is early would overwrite what
            # others still read, beyond the loop's end too.
            awaited, along_k = (), (*along_k, Barrier())
        if self.asks_alpha:
            out += [*awaited, *self.unless_zero((*say, *along_k))]
        else:
            out += [*say, *awaited, *along_k]
        if self.schedule.atomic and self.spec.beta != 1 and not self.packed:
            out += self.awaited(self.c)
        if self.result != self.c and not self._waits_for_memory:
            out += self.released()
        return (*out, *self._store())

    def _whole_and_edge(self, main: For) -> Body:
        """The main loop; twice where registers are filled by vectors from a matrix that may end within one: once for
        groups that are inside as a whole, whose loads ask nothing.
        """
        inside: list[Expr] = []
        for axis, (path, origin) in enumerate(((self.a, ROW0), (self.b, COL0))):
            size, block = (self.m, self.n)[axis], self.schedule.block_tile[axis]
            known = (self.spec.m, self.spec.n)[axis] or self.spec.multiple_of[axis]
            ends_within = path.transposed == (path.name == "a") and path.atom == VECTOR and path.width > 1
            if path.staged is None and ends_within and known % block:
                inside.append(origin + block <= size)
        if not inside:
            return (main,)
        return (If(all_of(inside), (main,), (Comment("At the edge of C, each load asks whether it is inside."), main)),)

    def _store(self) -> Body:
        """C, from the accumulators or from the sum over slices."""
        vector = self.vector(self.schedule.c_width, self.spec.result)
        zero = number(0, self.sums)
        tile = Tile(self.c, (ROW0, COL0) if self.spec.c_order == "row" else (COL0, ROW0), *self.schedule.block_tile)
        tile = replace(tile, transposed=self.spec.c_order == "col")
        comment, beta = Comment(self.update_comment()), self.beta
        if self.schedule.atomic:
            comment, beta = Comment("This part's share is added to C."), zero
            vector = self.adding(self.schedule.c_width)
        elif self.schedule.split > 1:
            tile = Tile(self.result, (PART, ROW0, COL0), *self.schedule.block_tile)
            comment, beta = Comment("This part's share of C."), zero
            vector = self.vector(self.schedule.c_width, self.sums)
        steps = epilogue.steps(self) if self.result == self.c else ()
        store = Update(tile, self.acc, self.alpha, beta, *vector, steps)
        if self.schedule.stream:
            return whole_or_share(self, comment, store)
        if self.schedule.slices == 1:
            return (comment, store)
        where = "to where the tiles were; then each one" if self.reuses else "is put down; then each work-item"
        say = f"Every slice's sum {where} adds up a part of the block."
        return by_local_memory(self, say, SLICE, comment, store, Barrier())

    def _rest(self) -> Body:
        """What is left of K after whole steps."""
        past = "" if self.exact_k else "; what lies past it counts as zero"
        say = Comment(f"The rest of K, at the edge of C all of it{past}." if self.inside else f"The rest of K{past}.")
        s, lanes = self.schedule, self.schedule.sub_group or 1
        if not s.by_blocks:
            return (If(self._has_rest(), (say, *self._step(self.k_stop))),)
        # Each lane loads for itself, behind a guard; a long step of such loads takes more registers than there are.
        if s.b.memory == "image":
            short = _Gemm(self.spec, replace(s, k_step=lanes, b=replace(s.b, width=min(s.b.width, lanes))), self.target)
        else:
            target = replace(self.target, features=self.target.features - {"block_read"})
            short = _Gemm(self.spec, replace(s, k_step=lanes, a=replace(s.a, width=1), b_step=0), target)
        short.units = self.units  # what is packed has lines as long as the main loop's steps make them
        if s.k_step == lanes:
            return (If(self._has_rest(), (say, *short._step(self.k_stop))),)
        rest = For(K0, self.k_stop, self.k_end, lanes, short._step(K0), exact=self.exact_k)
        return (If(self._has_rest(), (say, rest)),) if s.split > 1 else (say, rest)

    def _has_rest(self) -> Expr:
        """Whether anything is left; of the parts of K, the one that holds it."""
        begun = (self.k_start <= self.k_stop,) if self.schedule.split > 1 else ()
        return all_of((*begun, self.k_stop < self.k_end))

    def _allocs(self) -> Body:
        """Local memory, and registers that outlive a step of K."""
        out: list[Stmt] = []
        for path, operand in ((self.a, self.schedule.a), (self.b, self.schedule.b)):
            if path.staged is not None:
                out.append(Alloc(path.staged.buffer))
                via = self.via(path, self.stage_atom(path, operand)[1])
                out += [] if via is None else [Alloc(via)]
            if self.schedule.across:
                out.append(Alloc(path.registers.buffer))
        return tuple(out)

    # --- the kernel -------------------------------------------------------------------------------

    @property
    def _waits_for_memory(self) -> bool:
        """Whether a product has room for the next kernel's groups from its start, since memory is what it waits for:
        they cost others' arithmetic, and gather where a few multiprocessors happen to be idle.
        """
        rows, cols = self.schedule.block_tile
        return rows * cols < FED * (rows + cols)

    @property
    def result(self) -> Buffer:
        """Where the kernel leaves what it sums."""
        in_parts = self.schedule.split > 1 and not self.schedule.atomic
        return self.workspace(writable=True) if in_parts else self.c

    def kernel(self) -> Kernel:
        """All of it."""
        s = self.schedule
        body = self._product()
        finishing = epilogue.matrices(self) if self.result == self.c else ()
        to_product = self.to_product(self.a.matrix, self.b.matrix, self.result, *finishing)
        if s.tile == (1, 1) and s.method == "naive" and not s.barrier and s.slices == 1:
            inside = both(_position(ROW, ROW0, self.rows) < self.m, _position(COL, COL0, self.cols) < self.n)
            body = (If(inside, body),)
        names: Body = self.positions()
        if s.stream:
            of_each, names = depending(names, BLOCK)
            awaited = self.awaited(*(x for x, _ in self.workspaces() if x.packed))
            say = Comment("Whole blocks first, then an equal piece of all that is left.")
            body = (*awaited, For(SEGMENT, Const(0), SEGMENTS, 1, (say, *of_each, *body)), *self.released())
        share = (*((PART,) if self.result != self.c else ()), *self._own_element())
        unless = unless_in_sub_groups_of(s.sub_group, self.target, self.result, share, s.tile, self.sums)
        early = self.released() if self.result != self.c and self._waits_for_memory else ()
        return Kernel(
            name=self.name,
            params=self._params(),
            body=(*names, *early, *to_product, *unless, *self._allocs(), *body),
            group=s.all_work_items,
            grid=self.grid(),
            sub_group=s.sub_group if self.warp_atom is None else self.warp_atom.lanes,
            facts=self.facts(),
            promises=self.promises(),
            layers=BATCH_COUNT if self.spec.batched else None,
        )

    def _own_element(self) -> tuple[Expr, Expr]:
        """The place in C of row `i` and column `j` of a work-item's tile, by its place in the group, not its lane."""
        row = _position(ROW, ROW0, self.rows) + self.rows.step(I)
        col = COL0 + LOCAL_COL * self.cols.run + self.cols.step(J)
        return (row, col) if self.result != self.c or self.spec.c_order == "row" else (col, row)

    def _params(self) -> tuple[Buffer | Var, ...]:
        order: list[Expr | Buffer] = [self.m, self.n, self.k, self.alpha]
        order += self.per_matrix(self.a.matrix, self.b.matrix)
        order += [self.workspace(writable=True)] if self.schedule.stream else []
        order += [] if self.schedule.split > 1 else [self.beta]
        order += self.per_matrix(self.c) if self.result == self.c else [self.result]
        order += prologue.parameters(self, {"a", "b"} - {*self.packed})
        order += epilogue.parameters(self) if self.result == self.c else ()
        return tuple(p for p in order if isinstance(p, Buffer | Var))


def _position(own: Var, origin: Var, spread: Spread) -> Expr:
    return own if spread.lanes > 1 else origin


class _OfHeads(_Gemm):
    """The product of elements by their heads alone, a tile after the other, where the first of the ring lies."""

    def __init__(self, whole: _Gemm) -> None:
        alone = replace(whole.schedule, stages=1, register_stages=1, across=False)
        super().__init__(whole.spec, alone, whole.target)
        self._whole = whole
        self.warp_atom = None if whole.warp_atom is None else whole.warp_atom.of_heads
        self.pipe = replace(self.pipe, name="heads")

    @cached_property
    def acc(self) -> Registers:
        return part_of(super().acc)

    @cached_property
    def a(self) -> Path:
        return self._here(super().a, self._whole.a)

    @cached_property
    def b(self) -> Path:
        return self._here(super().b, self._whole.b)

    @staticmethod
    def _here(path: Path, whole: Path) -> Path:
        staged = None if whole.staged is None else replace(whole.staged, pipe=None)
        buffer = replace(path.registers.buffer, name=f"{path.name}_head")
        return replace(path, staged=staged, registers=replace(path.registers, buffer=buffer))

    def product(self) -> Body:
        """The loop along K."""
        return (For(K0, self.k_start, self.k_stop, self.schedule.k_step, self._step(K0), exact=self.exact_k),)
