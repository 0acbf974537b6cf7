"""The invariants that every pass keeps: checked between each two of them."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.checker import Checker, listed, sync_problems, tma_copy_problems
from gemmgen.ir.checker import Scope as _Scope
from gemmgen.ir.copy_instructions import CopyAtom
from gemmgen.ir.dtypes import BOOL, I32, I64, DType
from gemmgen.ir.elementwise import (
    ELEMENT_COL,
    ELEMENT_K,
    ELEMENT_LINE,
    ELEMENT_OWN,
    ELEMENT_OWN_COL,
    ELEMENT_ROW,
    ELEMENT_STEP_K,
    Step,
    element,
    old,
)
from gemmgen.ir.expr import Const, Expr, Load, as_int
from gemmgen.ir.kernel import Kernel, fragments_of
from gemmgen.ir.show import show_expr, show_index
from gemmgen.ir.sizes import GROUPS
from gemmgen.ir.stmt import (
    Alloc,
    Block,
    BlockPayload,
    Body,
    Comment,
    CooperativeCopy,
    EpilogueStore,
    Fill,
    For,
    FragmentApply,
    FragmentLoad,
    If,
    Let,
    Mma,
    Multiply,
    PayloadAdvance,
    PlaceStmt,
    PointerIncrement,
    Prefetch,
    Reduction,
    Registers,
    Return,
    Stmt,
    Store,
    Tile,
    TileStmt,
    TmaCopy,
    VectorCopy,
)
from gemmgen.ir.synchronization import PipeOp
from gemmgen.ir.target import Target
from gemmgen.ir.vectors import loop_problem
from gemmgen.ir.walk import bodies, exprs, places, walk_expr


def verify(kernel: Kernel, target: Target) -> None:
    """Check a kernel, on tiles or on instructions.

    Raises: LoweringError that names the kernel, the statement and the invariant that is broken.
    """
    _Verifier(kernel, target).check()


class _Verifier(Checker):
    """Walks a kernel with the scope of each place."""

    def check(self) -> None:
        """All of the kernel."""
        scope = _Scope()
        for param in self._kernel.params:
            self._bind(param, scope)
        for param in self._kernel.matrices:
            self._require(
                param.space in (Space.GLOBAL, Space.IMAGE), f"{param.space.value} buffer {param.name} is a parameter"
            )
        launch = scope.inner()
        if self._kernel.asks_device:
            launch.variables[GROUPS.name] = GROUPS.dtype
        self._integers(self._kernel.grid, launch)
        self._body(self._kernel.body, scope)
        self._at = "its fragments"
        self._hold(_fragment_problems(self._kernel.body))
        # Shapes and facts may speak of what is named where all go, and of how many products there are.
        scope.name(self._kernel)
        for param in self._kernel.matrices:
            self._at = f"the shape of {param.name}"
            # An image has no pitch of its own.
            strides = param.layout.strides if param.space is Space.GLOBAL else ()
            self._exprs((*param.shape, *strides), scope)
        self._at = "its facts"
        self._integers(self._kernel.nonnegative, scope)

    # --- statements -------------------------------------------------------------------------------

    def _body(self, body: Body, scope: _Scope) -> None:
        for stmt in body:
            self._at = stmt
            self._exprs(exprs(stmt), scope)
            self._touched(stmt, scope)
            self._stmt(stmt, scope)

    def _touched(self, stmt: Stmt, scope: _Scope) -> None:
        """The elements, tiles and registers that a statement names, as its kind declares them."""
        for (name, _), (buffer, index) in zip(stmt.PLACES, places(stmt), strict=True):
            self._element(buffer, index, scope, written=name in stmt.WRITES)
        for name in stmt.CHILDREN:
            match getattr(stmt, name):
                case Tile(buffer, origin):
                    self._element(buffer, origin, scope, written=name in stmt.WRITES)
                case Registers() as registers:
                    self._registers(registers, scope)

    def _stmt(self, stmt: Stmt, scope: _Scope) -> None:
        match stmt:
            case Alloc(buffer):
                self._alloc(buffer, scope)
            case Let(var, value):
                widened = var.dtype if (var.dtype, value.dtype) == (I64, I32) else value.dtype
                self._same(var.dtype, widened, f"{var.name} and its value")
                self._bind(var, scope)
                if scope.varies(value):
                    scope.varying.add(var.name)
            case Store(buffer, index, value):
                self._same(buffer.dtype, value.dtype, f"{buffer.name} and the value")
                parted = scope.divergent and buffer.name not in scope.own
                differs = parted or any(map(scope.varies, (*index, value)))
                self._require(
                    not (buffer.places and differs), f"{buffer.name} may differ between work-items of a group"
                )
            case VectorCopy():
                self._move(stmt)
            case Multiply():
                self._multiply(stmt)
            case For():
                self._for(stmt, scope)
            case If(condition, then, orelse):
                self._require(condition.dtype == BOOL, f"the condition is {condition.dtype}, not bool")
                varies = scope.varies(condition)
                self._body(then, scope.inner(varies, stmt.roles))
                self._body(orelse, scope.inner(varies, stmt.roles))
            case Block(body, apart):
                self._body(body, scope.inner(apart is not None))
            case FragmentApply():
                self._apply(stmt, scope)
            case TmaCopy():
                self._hold(tma_copy_problems(stmt, self._target))
            case PipeOp(_, pipe):
                self._require(pipe.stages >= 1, f"pipe {pipe.name} has {pipe.stages} stages")
                self._require(pipe.stages % pipe.batch == 0, f"pipe {pipe.name} has batches of different sizes")
            case _ if isinstance(stmt, TileStmt):
                self._on_tiles(stmt, scope)
            case _ if isinstance(stmt, PlaceStmt):
                self._place(stmt, scope)
            case Return() | Comment():
                together = not scope.divergent or isinstance(stmt, Comment)
                self._require(together, "some of a group's work-items may return without the others")
                self._require("\n" not in getattr(stmt, "text", ""), "a comment of more than one line")
            case _:
                self._hold(sync_problems(stmt, scope, self._target))

    def _alloc(self, buffer: Buffer, scope: _Scope) -> None:
        self._require(
            buffer.space in (Space.LOCAL, Space.PRIVATE, Space.POINTERS),
            f"{buffer.space.value} buffer {buffer.name} is declared",
        )
        for extent in (*buffer.shape, *buffer.layout.strides):
            size = as_int(extent)
            self._require(size is not None and size > 0, f"{buffer.name} has extent {show_expr(extent)}")
        self._bind(buffer, scope)

    def _payload(self, stmt: BlockPayload | PayloadAdvance, scope: _Scope) -> None:
        if isinstance(stmt, BlockPayload):
            self._extent(stmt.atom, stmt.extent)
        self._needs(stmt.atom.needs, "an address payload")
        self._element(stmt.payload, (*stmt.which, Const(0)), scope, written=True)

    def _place(self, stmt: PlaceStmt, scope: _Scope) -> None:
        if isinstance(stmt, BlockPayload | PayloadAdvance):
            self._payload(stmt, scope)
            return
        if isinstance(stmt, Prefetch):
            in_caches = stmt.buffer.space in (Space.GLOBAL, Space.PRIVATE)
            self._require(in_caches, f"{stmt.buffer.name} is {stmt.buffer.space.value}, which can't be prefetched")
            self._needs(frozenset({"cache_prefetch"}) if stmt.atom is None else stmt.atom.needs, "a prefetch")
            self._extent(stmt.atom, stmt.extent)
            return
        if isinstance(stmt, PointerIncrement):
            self._require(stmt.view.space in (Space.VIEW, Space.GLOBAL), f"{stmt.view.name} cannot be moved")
            self._declared(stmt.view, scope)
            self._require(stmt.by.dtype in (I32, I64), f"{show_expr(stmt.by)} is {stmt.by.dtype}, not an integer")
            return
        alone = stmt.which is None
        what, into = (Space.VIEW, Space.LOCAL) if alone else (Space.POINTERS, Space.GLOBAL)
        self._require(stmt.view.space is what, f"{stmt.view.name} is {stmt.view.space.value}, not {what.value}")
        self._require(stmt.buffer.space is into, f"{stmt.buffer.name} is {stmt.buffer.space.value}, not {into.value}")
        self._same(stmt.view.dtype, stmt.buffer.dtype, f"{stmt.view.name} and {stmt.buffer.name}")
        if stmt.which is None:
            self._bind(stmt.view, scope)
        else:
            self._integer(stmt.which)
            self._declared(stmt.view, scope)

    def _for(self, stmt: For, scope: _Scope) -> None:
        self._require(stmt.step >= 1, f"step {stmt.step} < 1")
        if stmt.vector and (problem := loop_problem(stmt)) is not None:
            self._fail(problem)
        self._integer(stmt.start)
        self._integer(stmt.stop)
        self._same(stmt.var.dtype, I32, f"{stmt.var.name} and its bounds")
        start_varies = scope.varies(stmt.start)
        inner = scope.inner(start_varies or scope.varies(stmt.stop))
        self._bind(stmt.var, inner)
        if start_varies:
            inner.varying.add(stmt.var.name)
        self._body(stmt.body, inner)

    def _apply(self, stmt: FragmentApply, scope: _Scope) -> None:
        self._needs(frozenset({"joint_matrix"}), "joint_matrix_apply")
        self._sub_group("joint_matrix_apply")
        self._element(stmt.fragment, (*stmt.index, Const(0)), scope)
        inner = scope.inner(divergent=True)
        for var in (stmt.row, stmt.col, stmt.element):
            self._bind(var, inner)
            inner.varying.add(var.name)
        self._body(stmt.body, inner)

    def _move(self, stmt: VectorCopy) -> None:
        self._convertible(stmt.dst, stmt.src, "both sides of the move")
        self._atom_width(stmt, stmt.src if stmt.src.space is not Space.PRIVATE else stmt.dst)
        self._needs(stmt.atom.needs, f"atom {stmt.atom.name}")
        if any(stmt.atom.lane_step) or stmt.atom.matrices is not None or stmt.atom.fragment is not None:
            self._sub_group(f"atom {stmt.atom.name}")
        if stmt.valid is not None:
            self._require(
                stmt.atom.edge in ("zero_fill", "part"), f"atom {stmt.atom.name} can move no part of its elements"
            )
            self._integer(stmt.valid)
        if stmt.byte_place is not None:
            numbers = {Space.GLOBAL: 1, Space.IMAGE: 2}.get(stmt.src.space)
            self._require(
                numbers == len(stmt.byte_place), f"{len(stmt.byte_place)} numbers for a place in {stmt.src.name}"
            )
            for number in stmt.byte_place:
                self._integer(number)
        if stmt.from_element is not None:
            self._require(stmt.byte_place is not None and stmt.src.space is Space.GLOBAL, "an element to count from")
            self._integer(stmt.from_element)
        self._extent(stmt.atom, stmt.extent)
        if stmt.atom.is_async:
            there = (stmt.src.space, stmt.dst.space) == (Space.GLOBAL, Space.LOCAL)
            self._require(there, f"atom {stmt.atom.name} goes from global to local memory")

    def _extent(self, atom: CopyAtom | None, extent: tuple[Expr, ...]) -> None:
        """How large a matrix is that an instruction is told the size of."""
        asked = 2 if atom is not None and atom.edge == "bounded" else 0
        self._require(len(extent) == asked, f"{len(extent)} extents of a matrix, not {asked}")
        for number in extent:
            self._integer(number)

    def _multiply(self, stmt: Multiply) -> None:
        atom = stmt.atom
        for (buffer, _), dtype in zip(places(stmt), (atom.sums, atom.a_register, atom.b_register), strict=True):
            self._same(buffer.dtype, dtype, f"{buffer.name} and its registers of {atom.name}")
        self._needs(atom.needs, atom.name)
        alone = atom.scope == "thread"
        self._require(
            alone or self._kernel.sub_group == atom.lanes, f"{atom.name} of {atom.lanes} lanes in other sub-groups"
        )

    def _convertible(self, dst: Buffer, src: Buffer, what: str) -> None:
        """Elements change their type on the way into registers or out of them."""
        if Space.PRIVATE not in (dst.space, src.space) or BOOL in (dst.dtype, src.dtype):
            self._same(dst.dtype, src.dtype, what)

    def _atom_width(self, stmt: VectorCopy | FragmentLoad, src: Buffer) -> None:
        atom, width = stmt.atom, stmt.width
        what = f"{width} of {src.dtype}" if width in atom.widths else f"{width}"
        moves = atom.moves_elements(width, src.dtype)
        self._require(moves, f"atom {atom.name} moves {listed(atom.widths)} elements, not {what}")
        reads_image = "image_block_read" in atom.needs
        self._require(not reads_image or src.space is Space.IMAGE, f"{src.name} is no image")

    # --- statements on tiles ----------------------------------------------------------------------

    def _on_tiles(self, stmt: TileStmt, scope: _Scope) -> None:
        match stmt:
            case Fill(dst, value):
                self._same(dst.buffer.dtype, value.dtype, f"{dst.buffer.name} and the value")
            case FragmentLoad(dst, src, atom, _):
                self._convertible(dst.buffer, src.buffer, "both sides of the copy")
                self._prologue(stmt.prologue, scope.inner())
                self._atom_width(stmt, src.buffer)
                self._needs(atom.needs, f"atom {atom.name}")
            case CooperativeCopy(dst, src):
                if stmt.prologue is None:
                    self._same(dst.buffer.dtype, src.buffer.dtype, "both sides of the stage")
                self._prologue(stmt.prologue, scope.inner())
                self._require((dst.rows, dst.cols) == (src.rows, src.cols), "the tiles differ in size")
                self._require(stmt.part == "all" or stmt.via is not None, f"a {stmt.part} with no registers between")
                if stmt.via is not None:
                    self._declared(stmt.via, scope)
            case Mma(acc):
                self._needs(stmt.atom.needs, f"atom {stmt.atom.name}")
                self._require(acc.buffer.dtype.real is not None or not any(stmt.conj), "conjugates of real numbers")
            case Reduction(planes=planes, atom=atom):
                self._needs(atom.needs, f"atom {atom.name}")
                self._require(planes >= 1, f"a sum of {planes} tiles")
            case EpilogueStore(acc=acc, alpha=alpha, beta=beta, atom=atom):
                self._needs(atom.needs, f"atom {atom.name}")
                for factor in (alpha, beta):
                    self._same(acc.buffer.dtype, factor.dtype, f"{acc.buffer.name} and {show_expr(factor)}")
                self._steps(stmt.steps, acc.buffer.dtype, scope.inner())

    def _steps(self, steps: tuple[Step, ...], dtype: DType, scope: _Scope) -> None:
        for name in (element(dtype), old(dtype), ELEMENT_ROW, ELEMENT_COL, ELEMENT_OWN, ELEMENT_OWN_COL):
            self._bind(name, scope)
        for step in steps:
            self._exprs((step.value,), scope)
            self._same(step.value.dtype, dtype, f"{step.name} and the sums")

    def _prologue(self, prologue: Step | None, scope: _Scope) -> None:
        if prologue is not None:
            for name in (element(prologue.value.dtype), ELEMENT_K, ELEMENT_LINE, ELEMENT_OWN, ELEMENT_STEP_K):
                self._bind(name, scope)
            self._exprs((prologue.value,), scope)

    def _registers(self, registers: Registers, scope: _Scope) -> None:
        buffer = registers.buffer
        self._declared(buffer, scope)
        self._require(buffer.space is Space.PRIVATE, f"{buffer.name} is {buffer.space.value}, not private")
        self._rank(buffer, 2 + (registers.slot is not None) + (registers.opaque is not None))
        if registers.slot is not None:
            self._integer(registers.slot)


# --- fragments, of which no kernel may know which lane has which element ---------------------------


def _fragment_problems(body: Body) -> Iterator[str]:
    """Elements of fragments that are reached otherwise than by the `FragmentApply` around them."""
    fragments = fragments_of(body)
    return _reached(body, fragments, None) if fragments else iter(())


def _reached(body: Body, fragments: dict[Buffer, str], here: FragmentApply | None) -> Iterator[str]:
    for stmt in body:
        by_elements = isinstance(stmt, Store) or (isinstance(stmt, VectorCopy) and stmt.atom.fragment is None)
        reached = places(stmt) if by_elements else []
        reached += [(x.buffer, x.index) for root in exprs(stmt) for x in walk_expr(root) if isinstance(x, Load)]
        for buffer, index in reached:
            if buffer in fragments and (here is None or (buffer, index) != (here.fragment, here.place)):
                yield f"{show_index(buffer, index)} is an element of a fragment, which only its FragmentApply reaches"
        inner = stmt if isinstance(stmt, FragmentApply) else here
        for held in bodies(stmt):
            yield from _reached(held, fragments, inner)
