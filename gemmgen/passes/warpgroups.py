"""A product by matrix instructions of warpgroups, whose tiles other warps bring: a kernel with roles."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from gemmgen.errors import LoweringError
from gemmgen.ir.atoms import SCALAR, Spread
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import I64, DType
from gemmgen.ir.expr import Const, Expr, Var, compare, convert, number
from gemmgen.ir.kernel import Kernel, Program
from gemmgen.ir.meetings import RANK, Barrier, Roles, StoreGroup
from gemmgen.ir.pipe import Pipe, PipeOp
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    Comment,
    Fill,
    For,
    Let,
    Registers,
    Stage,
    Tile,
    TileMma,
    Update,
)
from gemmgen.ir.swizzle import line_bytes
from gemmgen.ir.target import Target
from gemmgen.ir.warpgroup_matrix import LANES, WarpgroupAtom, stored_box, warpgroup_atom
from gemmgen.ir.workspace import Workspace
from gemmgen.methods import slug
from gemmgen.passes import epilogue, prologue
from gemmgen.passes.in_registers import fill, registers_of_a
from gemmgen.passes.of_batch import of_batch, reading_of_batch, which
from gemmgen.passes.pack import build_pack
from gemmgen.passes.parts import add_part, part_of
from gemmgen.passes.plan import WIDTHS
from gemmgen.passes.positions import (
    BATCH,
    BATCH_COUNT,
    COL0,
    K0,
    LOCAL_COL,
    LOCAL_ROW,
    PART,
    ROW0,
    WAVE,
    WAVES,
    depending,
)
from gemmgen.passes.put_down import by_local_memory
from gemmgen.passes.swap import turned
from gemmgen.passes.total import build_total
from gemmgen.passes.warpgroup_checks import SUM_PAD, TURNED_PAD
from gemmgen.passes.warpgroup_positions import WarpgroupPositions
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Where the sum ends in a kernel that asks for alpha itself.
K_LAST = Var("k_last")


def build_warpgroups(spec: GemmSpec, schedule: Schedule, target: Target, transposed: bool = False) -> Program:
    """The kernel of a validated request, with one before that lays out A or B anew, and one behind that adds up where K
    is split.
    """
    plan = _Warpgroups(spec, schedule, target, transposed)
    product = _Swapped(spec, schedule, target, transposed) if schedule.swapped else plan
    before = (build_pack(plan),) if plan.packed else ()
    after = () if schedule.planes == 1 else (build_total(plan, early=True),)
    count = BATCH_COUNT if spec.batched else Const(1)
    between = tuple(Workspace(x.name, x.dtype, size * count, x.reach) for x, size in plan.workspaces())
    return Program((*before, product.kernel(), *after), between, len(before))


class _Warpgroups(WarpgroupPositions):
    """The statements of the kernel."""

    def __init__(self, spec: GemmSpec, schedule: Schedule, target: Target, transposed: bool = False) -> None:
        super().__init__(spec, schedule, target, transposed)
        high, wide = schedule.group
        storing = high * wide // LANES if schedule.c_turns else 0
        roles = Roles(high * wide, high, schedule.registers, self.clustered // schedule.joined, storing)
        self.pipe = Pipe("tiles", schedule.stages, "roles", roles=roles)

    @cached_property
    def rows(self) -> Spread:
        """As the instruction has them: a warpgroup's 64 rows together, a lane's two eight apart."""
        s = self.schedule
        if self.atom.paired:
            return Spread(s.tile[0], s.group[0], 2, LOCAL_ROW)
        return Spread(s.tile[0], s.group[0], 1, LOCAL_ROW, turns=2, near=8)

    @cached_property
    def cols(self) -> Spread:
        """As the instruction has them: pairs, a warpgroup's columns together."""
        own, lanes = self.schedule.tile[1], self.schedule.group[1]
        if self.across == 1:
            return Spread(own, lanes, 2, LOCAL_COL)
        return Spread(own, lanes, 2, LOCAL_COL, turns=own // 2, near=4)

    @cached_property
    def atom(self) -> WarpgroupAtom:
        """The instruction for all columns of a warpgroup."""
        atom = warpgroup_atom(self.schedule.atom, self.spec.dtype)
        if atom is None:
            raise LoweringError(f"no {self.schedule.atom} of {self.spec.dtype}")
        a_turned, b_turned = self.is_transposed("a"), not self.is_transposed("b")
        cols, held = self.schedule.block_tile[1] // self.across, self.schedule.a.memory == "private"
        paired = held and a_turned and self.spec.element("a").size == 1
        return replace(atom, cols=cols, a_turned=a_turned, b_turned=b_turned, held=held, paired=paired)

    def _element(self, name: str) -> DType:
        """What an operand's tile holds: what it is stored in, where prologues are applied to registers."""
        return self.spec.element(name) if self.atom.held and name == "a" else self.spec.made(name)

    def _has_slow_k(self, name: str) -> bool:
        return self.atom.a_turned if name == "a" else self.atom.b_turned

    def _extents(self, name: str) -> tuple[int, int]:
        """Of an operand's tile, in storage order."""
        outer, depth = self.schedule.block_tile[0 if name == "a" else 1], self.schedule.k_step * self.atom.terms
        return (depth, outer) if self._has_slow_k(name) else (outer, depth)

    def _line(self, name: str) -> int:
        """Elements of a line of an operand's tile."""
        size = self._element(name).size
        order = self.spec.a_order if name == "a" else self.spec.b_order
        return line_bytes(self.schedule.tile_line(name, order) * size) // size

    def packed_matrix(self, name: str, writable: bool) -> Buffer:
        """An operand in whole tiles; of elements in two terms, a line of heads and then their rests, and so on."""
        matrix = super().packed_matrix(name, writable)
        slow, fast = matrix.shape
        long = Layout.pitched(slow, fast * self.atom.terms, matrix.layout.strides[0] * self.atom.terms)
        return replace(matrix, layout=long) if self.atom.terms > 1 else matrix

    def boxed(self, name: str) -> Buffer:
        """An operand as tensor maps have it: boxes as wide as a line of the tile. Packed ones have no gaps. Of a tile
        that groups share each brings some boxes, or some lines of every box.
        """
        matrix = self.source(name)
        if name in self.packed:
            lines, length = matrix.shape
            step = convert(lines, I64) * length if self.spec.batched else None
            matrix = replace(matrix, layout=Layout.pitched(lines, length, length), step=step)
        (slow, fast), shared = self._extents(name), self.schedule.cluster[1 if name == "a" else 0]
        line = min(fast, self._line(name))
        by_boxes = fast % (line * shared) == 0
        streamed = (self.schedule.a if name == "a" else self.schedule.b).streamed
        box = slow if by_boxes else slow // shared, line
        return of_batch(replace(matrix, box=box, shared=shared, streamed=streamed))

    def tile(self, name: str) -> Tile:
        """The ring of an operand's tiles, each [box][line][element]; the last box may be narrower than its lines."""
        slow, fast = self._extents(name)
        line, element = self._line(name), self._element(name)
        layout = Layout.packed(self.schedule.stages, -(-fast // line), slow, line)
        layout = replace(layout, swizzle=line * element.size)
        buffer = Buffer(f"{name}_shared", element, Space.LOCAL, layout)
        rows, cols = self._logical(name)
        zero = Const(0)
        return Tile(buffer, (zero, zero, zero, zero), rows, cols, self.is_transposed(name), self.pipe)

    def _logical(self, name: str) -> tuple[int, int]:
        (rows, cols), depth = self.schedule.block_tile, self.schedule.k_step * self.atom.terms
        return (rows, depth) if name == "a" else (depth, cols)

    def _source(self, name: str) -> Tile:
        """Where the boxes of a step come from."""
        k0 = K0 if self.atom.terms == 1 else K0 * self.atom.terms
        logical = (ROW0, k0) if name == "a" else (k0, COL0)
        transposed = self.is_transposed(name)
        origin = logical[::-1] if transposed else logical
        matrix = self.boxed(name)
        return Tile(matrix, (*which(matrix), *origin), *self._logical(name), transposed)

    def _stage(self, name: str) -> Stage:
        """The boxes of a step."""
        return Stage(self.tile(name), self._source(name), SCALAR)

    @cached_property
    def held_a(self) -> Registers:
        """A step's A in registers, where it is multiplied from there."""
        lane = LOCAL_COL if self.across == 1 else LOCAL_COL % 4
        return registers_of_a(self.atom, self.schedule.k_step, self.rows, lane)

    def _multiply(self, sums: Registers) -> Body:
        """The products of a step."""
        if not self.atom.held:
            return (TileMma(sums, self.tile("a"), self.tile("b"), self.atom),)
        made = None if "a" in self.packed else prologue.step(self, "a")
        filled = fill(self.held_a, self.tile("a"), self._source("a"), made)
        return (filled, TileMma(sums, self.held_a, self.tile("b"), self.atom))

    @property
    def reuses(self) -> bool:
        """Sums that go by local memory lie where the tiles were, unless those of the next block are there by then, or
        others of a cluster put them down, who do not know whether a tile is still read.
        """
        return not self.schedule.persistent and self.schedule.joined == 1

    @cached_property
    def partial(self) -> Buffer:
        """A plane of sums, its rows so far apart that a warp's pairs lie in different banks; of a cluster a plane from
        each group, of those lines that this one adds up.
        """
        joined, (lines, length) = self.schedule.joined, self.put_down
        planes = (joined, joined) if joined > 1 else (1,)
        layout = Layout.packed(*planes, lines // joined, length, pad=TURNED_PAD if self.flipped else SUM_PAD)
        return Buffer("sums", self.sums, Space.LOCAL, layout, spread=joined)

    @property
    def flipped(self) -> bool:
        """Of sums that a cluster adds up, as they are stored then."""
        whole = self.schedule.planes == 1
        return self.schedule.joined > 1 and (self.spec.c_order == "col" if whole else self.swapped)

    def _product(self) -> Body:
        pipe, s, zero = self.pipe, self.schedule, number(0, self.sums)
        sums = self.acc
        fresh: Body = ()
        added: Body = ()
        if self.atom.terms > 1:
            sums, added = part_of(self.acc), add_part(self.acc)
            fresh = (Alloc(sums.buffer), Fill(sums, zero))
        step = (
            PipeOp("acquire", pipe),
            self._stage("a"),
            self._stage("b"),
            PipeOp("commit", pipe),
            PipeOp("wait", pipe),
            *self._multiply(sums),
            PipeOp("release", pipe),
            *added,
        )
        said = "C^T = B^T * A^T: columns of C are the rows of the sums."
        return (
            *((Alloc(self.held_a.buffer),) if self.atom.held else ()),
            Alloc(self.acc.buffer),
            Fill(self.acc, zero),
            *fresh,
            *((Comment(said),) if self.rows_are_columns else ()),
            For(K0, self.k_start, K_LAST if self.asks_alpha else self.k_stop, s.k_step, step, exact=self.exact_k),
            *self._last_left(),
            *self._store(),
        )

    def _last_left(self) -> Body:
        """Slots that C was put down in are read by stores for some time after, for most of which there is K to go."""
        if not (self.schedule.persistent and self.schedule.c_stages):
            return ()
        return (StoreGroup("wait", 0), Barrier(of_sub_group=True))

    @property
    def result(self) -> Buffer:
        """Where the kernel leaves what it sums."""
        return self.own_c if self.schedule.planes == 1 else self.workspace(writable=True)

    @cached_property
    def own_c(self) -> Buffer:
        """C as this kernel has it, in boxes where it is stored so."""
        c = of_batch(self.c)
        return replace(c, box=self._box) if self.schedule.c_stages else c

    @property
    def _box(self) -> tuple[int, int]:
        """What a warp stores at a time."""
        return stored_box(self.atom.cols, self.spec.result, self.spec.c_order == "col")

    def promises(self) -> tuple[Expr, ...]:
        """Of C's lines, too."""
        length, unit = (self.n, 1) if self.spec.c_order == "row" else (self.m, 0)
        known = (width for width in WIDTHS if self.spec.multiple_of[unit] % width == 0)
        return (*super().promises(), *(compare("==", length % width, 0) for width in known))

    @property
    def _slots(self) -> Buffer | None:
        """Where boxes of C are put down before they are stored, one of each warp at a time."""
        if not self.schedule.c_stages:
            return None
        (lines, length), size = self._box, self.c.dtype.size
        line, cols = line_bytes(length * size), lines if self.spec.c_order == "col" else length
        boxes = -(-self.atom.cols // cols) * (self.schedule.tile[0] // 2)
        warps = self.rows.lanes * self.across * 4 // self.atom.lanes
        layout = Layout.packed(min(boxes, self.schedule.c_stages), warps * lines, line // size)
        return Buffer("c_shared", self.c.dtype, Space.LOCAL, replace(layout, swizzle=line))

    def _store(self) -> Body:
        """C, or a part's share of it, from registers or by way of local memory."""
        s, whole = self.schedule, self.result == self.own_c
        turned = (self.spec.c_order == "col") if whole else self.swapped
        origin = (COL0, ROW0) if turned else (ROW0, COL0)
        planes = which(self.own_c) if whole else (PART,)
        tile = Tile(self.result, (*planes, *origin), *self.put_down, turned and not self.flipped)
        vector = self.vector(s.c_width, self.spec.result if whole else self.sums)
        steps = tuple(map(reading_of_batch, epilogue.steps(self, self.flipped)))
        store = Update(tile, self.acc, self.alpha, self.beta, *vector, steps)
        comment = Comment(self.update_comment())
        if not whole:
            store = replace(store, beta=number(0, self.sums), steps=())
            comment = Comment("This part's share of C.")
        if self._slots is not None:
            atom, width = self.vector(1 if turned else s.run[1], self.spec.result)
            return (comment, replace(store, atom=atom, width=width, via=self._slots))
        meet = Barrier(role_items=s.group[0] * s.group[1])
        if s.joined > 1:
            return self._joined(comment, store, meet)
        if s.c_width <= s.run[1]:
            return (comment, store)
        way = "where the tiles were" if self.reuses else "shared memory of their own"
        say = f"By way of {way}, so that warps store whole lines."
        return by_local_memory(self, say, Const(0), comment, store, meet)

    def _joined(self, comment: Comment, store: Update, meet: Barrier) -> Body:
        """The sums of a cluster's groups, each of which stores a share of the lines."""
        together, tile = replace(meet, groups=self.schedule.joined), store.dst
        line = tile.origin[-2] + RANK * (self.put_down[0] // self.schedule.joined)
        share = replace(store, dst=replace(tile, origin=(*tile.origin[:-2], line, tile.origin[-1])))
        say = "Each block of the cluster gets some lines of all parts of K, and adds them up."
        begun = Comment("By now all of the cluster have begun, and have shared memory."), replace(together, part="wait")
        return (*begun, *by_local_memory(self, say, RANK, comment, share, together))

    def kernel(self) -> Kernel:
        """All of it."""
        ends = (Let(K_LAST, self.end_unless_zero(self.k_start, self.k_stop)),) if self.asks_alpha else ()
        shared = [self.tile("a").buffer, self.tile("b").buffer]
        left: Body = ()
        if self._slots is not None:
            shared.append(self._slots)
            left = (Comment("No one leaves before stores have read what they store."), StoreGroup("wait", 0))
        # Wide lines first: eight lines begin on a multiple of their bytes.
        tiles: Body = tuple(map(Alloc, sorted(shared, key=lambda x: -x.layout.swizzle)))
        names, product = (*self.positions(), *self.warpgroup(), *ends), self._product()
        if self.schedule.persistent:
            of_each, names = depending(names, WAVE)
            product = (For(WAVE, Const(0), WAVES, 1, (*of_each, *product)),)
        matrices = self.per_matrix(self.boxed("a"), self.boxed("b"))
        made = prologue.parameters(self, {"a"} - {*self.packed}) if self.atom.held else ()
        finish = (self.beta, *self.per_matrix(self.own_c), *made, *map(_alike, epilogue.parameters(self)))
        whole = self.schedule.planes == 1
        params = (self.m, self.n, self.k, self.alpha, *matrices, *(finish if whole else (self.result, *made)))
        params = (*params, *((BATCH_COUNT,) if self.batch_in_line else ()))
        used = [p for p in params if isinstance(p, Buffer)]
        joined = self.schedule.joined
        moved = () if whole else self.to_product(self.result)
        begun: Body = (Barrier(groups=joined, part="arrive"),) if joined > 1 else ()
        return Kernel(
            name=self.name,
            params=tuple(p for p in params if isinstance(p, Buffer | Var)),
            # Blocks of the next kernel, if it waits as this one does, wait where this one leaves room.
            body=(*names, *begun, *self.awaited(*used), *self.released(), *tiles, *moved, *product, *left),
            group=self.schedule.all_work_items,
            grid=self.grid(),
            sub_group=self.atom.lanes,
            facts=(*self.facts(), *((BATCH_COUNT - BATCH - 1,) if self.spec.batched else ())),
            promises=self.promises(),
            layers=self.layers,
            persistent=self.schedule.persistent,
            cluster=self.clustered,
            swapped=self.swapped,
        )


def _alike(param: Buffer | Var) -> Buffer | Var:
    """A parameter as this kernel has it."""
    return of_batch(param) if isinstance(param, Buffer) else param


class _Swapped(_Warpgroups):
    """Those of a kernel that computes C^T = B^T A^T; kernels before and after it know C alone."""

    swapped = True

    def __init__(self, spec: GemmSpec, schedule: Schedule, target: Target, transposed: bool = False) -> None:
        super().__init__(*turned(spec, schedule), target, transposed)
        self._name = slug(schedule)

    @property
    def name(self) -> str:
        """As the schedule has it, not its turned twin."""
        return self._name
