"""What the kernels of a product do, in a few lines for a reader: tiles, threads, the operands' way, what multiplies.

Everything is read off the kernels as they are built, before passes expand them, and nothing off the schedule: no line
can say what the kernels don't do. Head comments hold these lines, and `gemmgen explain` prints them above its figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from gemmgen.backends.clike import Words
from gemmgen.backends.text import Notes
from gemmgen.banks import inlined
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.copy_instructions import ThreadValueLayout
from gemmgen.ir.dtypes import F32, F64
from gemmgen.ir.expr import Bin, Call, Const, Expr, as_int
from gemmgen.ir.instructions import Instruction
from gemmgen.ir.kernel import Kernel, Program
from gemmgen.ir.stmt import (
    CooperativeCopy,
    EpilogueStore,
    For,
    FragmentLoad,
    Let,
    Mma,
    Multiply,
    PointerInit,
    Prefetch,
    Reduction,
    Registers,
    Stmt,
    TileMma,
    TmaCopy,
    VectorCopy,
)
from gemmgen.ir.synchronization import Barrier, DependentLaunch, Pipe, PipeOp, WarpSpecialization
from gemmgen.ir.walk import evaluate, walk, walk_expr
from gemmgen.passes.swap import swap
from gemmgen.records import cached_property
from gemmgen.spec import GemmSpec

#: Threads of a warp and of a warpgroup.
WARP, WARPGROUP = 32, 128
_SINGLE = "single elements"


def summary(spec: GemmSpec, program: Program, printed: Program, words: Words) -> Notes:
    """The lines about a product's kernels.

    Args:
        program: as it is built (`driver.build_program`).
        printed: after all passes, which may find that C is too narrow for a TMA tile.
    """
    if not any(isinstance(s, Mma | TileMma | Multiply) for s in walk(program.main.body)):
        alone = f"an element of C per {words.work_item}: A and B are not multiplied"
        return [("Tile", [alone])]
    reader = _Reader(spec, program, printed, words)
    notes = [
        ("Tile", reader.tile()),
        ("Loops", reader.loops()),
        (f"{words.work_item}s".capitalize(), reader.work_items()),
        ("A", reader.way("a")),
        ("B", reader.way("b")),
        ("Pipeline", reader.pipeline()),
        ("Multiply", reader.multiply()),
        ("C", reader.way_of_c()),
        ("Prefetch", reader.prefetch()),
        ("Grid", reader.grid()),
    ]
    return [(label, lines) for label, lines in notes if lines]


class _Reader:
    """Reads a program as it is built.

    Attributes:
        kernel: the main one, in C's names where it computes C^T.
        body: its statements, those inside others too.
    """

    def __init__(self, spec: GemmSpec, program: Program, printed: Program, words: Words) -> None:
        self.spec = spec
        self.program = program
        self.words = words
        self.box_stores = [s for s in walk(printed.main.body) if isinstance(s, TmaCopy) and s.mbarrier is None]
        self.transposed = program.main.swapped
        self.kernel: Kernel = swap(program.main)
        self.body: list[Stmt] = list(walk(self.kernel.body))
        self.lets: dict[str, Expr] = {s.var.name: s.value for s in self.body if isinstance(s, Let)}

    # --- what there is ----------------------------------------------------------------------------

    @cached_property
    def update(self) -> EpilogueStore:
        """What stores a block of C, or of a part of it."""
        found = (s for s in self.body if isinstance(s, EpilogueStore) and s.dst.buffer.space is Space.GLOBAL)
        return next(found)

    @cached_property
    def product(self) -> Mma | TileMma | Multiply:
        """What multiplies in the main loop."""
        return next(s for s in self.body if isinstance(s, Mma | TileMma | Multiply))

    @cached_property
    def fragment(self) -> ThreadValueLayout:
        """The part of a block that a work-item has."""
        return self.update.acc.fragment if isinstance(self.product, Multiply) else self.product.acc.fragment

    @cached_property
    def vector(self) -> int:
        """Elements of a work-item's own vectors; 1 for none."""
        return 1 if isinstance(self.product, Multiply) else self.product.acc.buffer.vector

    @cached_property
    def block(self) -> tuple[int, int]:
        """Rows and columns of C that a group computes; of vectors, those at a time."""
        stored = self.update.dst
        # What is stored line by line was put down as a block before.
        put = next(s.dst for s in self.body if isinstance(s, EpilogueStore))
        tile = put if put.rows > stored.rows == 1 else stored
        lines = (tile.cols, tile.rows) if tile.transposed else (tile.rows, tile.cols)
        return lines[::-1] if self.spec.c_order == "col" and stored.buffer.name == "c" else lines

    @cached_property
    def pipes(self) -> tuple[Pipe, ...]:
        """The rings, each once."""
        return tuple(dict.fromkeys(s.pipe for s in self.body if isinstance(s, PipeOp)))

    @cached_property
    def ring(self) -> Pipe | None:
        """That of tiles in local memory."""
        return next((pipe for pipe in self.pipes if pipe.sync != "none"), None)

    @property
    def roles(self) -> WarpSpecialization | None:
        return None if self.ring is None else self.ring.roles

    def sums(self) -> Iterator[Reduction]:
        """What adds up parts of a block that lie in local memory."""
        return (s for s in self.body if isinstance(s, Reduction))

    def loop(self, name: str) -> For | None:
        """The outermost loop over a variable in which something is multiplied."""
        loops = (s for s in self.body if isinstance(s, For) and s.var.name == name)
        return next((s for s in loops if any(x is self.product for x in walk(s.body))), None)

    # --- lines ------------------------------------------------------------------------------------

    def tile(self) -> list[str]:
        """What a group and a work-item compute."""
        (rows, cols), words = self.block, self.words
        along_k = self.loop("k0")
        if self.vector > 1:
            return [f"{rows}x{cols} of C at a time, in vectors of {self.vector}"]
        own = self.fragment.rows.values, self.fragment.cols.values
        high, wide = own[::-1] if self.transposed else own
        text = f"{rows}x{cols} of C per {words.group}, {high}x{wide // self.spec.halves} per {words.work_item}"
        text += f", {along_k.step} along K per step" if along_k is not None else ""
        within = self.loop("kk")
        if self._by_lanes() and along_k is not None and within is not None and within.step < along_k.step:
            text += f", in sub-steps of {within.step}"
        return [text + (", computed as C^T = B^T * A^T" if self.transposed else "")]

    def loops(self) -> list[str]:
        """Of vectors, the loops around what multiplies."""
        nest = [s for s in self.body if isinstance(s, For) and any(x is self.product for x in walk(s.body))]
        text = ", ".join(f"{s.var.name} by {s.step}" for s in nest)
        return [f"outermost first: {text}"] if self.vector > 1 else []

    def work_items(self) -> list[str]:
        """Who is in a group, and what each does."""
        (high, wide), words = self.kernel.group, self.words
        if self.roles is not None:
            return self._roles(self.roles)
        text, along_k = f"{high}x{wide} per {words.group}", self._lanes_along_k()
        if (slices := self._slices(high * wide)) > 1:
            text = f"{high * wide} per {words.group}, {slices} slices of each step along K (sliced-K)"
            text += f", each of {along_k} lanes" if along_k > 1 else ""
        elif along_k > 1:
            text = f"{high * wide} per {words.group}, {along_k} lanes along K"
        lanes = self.kernel.sub_group
        if lanes is not None and words.work_item != "thread" and "warp" not in self.lets:
            text += f", {words.sub_group}s of {lanes}"
        if "warp" in self.lets:
            text += f", {words.sub_group}s of {self._warp()}"
        return [text, *self._lanes()]

    def _slices(self, work_items: int) -> int:
        """Parts of a step of K that work-items of their own multiply."""
        rows, cols = self.block
        spread = self.fragment.rows, self.fragment.cols
        owners = rows * cols // max(1, spread[0].values * spread[1].values) * self._lanes_along_k()
        return work_items // owners if self.vector == 1 and owners and "slice" in self.lets else 1

    def _lanes_along_k(self) -> int:
        """Lanes that share elements of C."""
        match self.lets.get("lane_k"):
            case Bin("%", _, Const(int(lanes))):
                return int(lanes)
            case Call("local_id", (Const(int(dimension)),)):
                return self.kernel.group[1 - int(dimension)]
        return 1

    def _warp(self) -> str:
        """Rows and columns of the threads of a warp, and whether neighbours are in different rows."""
        lanes = range(self.kernel.sub_group or WARP)
        places = [(self._at("local_row", lane), self._at("local_col", lane)) for lane in lanes]
        rows, cols = ({place[axis] for place in places} for axis in (0, 1))
        return f"{len(rows)}x{len(cols)} {self.words.work_item}s" + (", lanes swizzled" if self._swizzled else "")

    def _lanes(self) -> list[str]:
        """What the arrangement of a warp's lanes is for."""
        if self.product.atom.scope == "warp":
            as_mma = ["lanes of a warp as mma.sync has its accumulators"]
            return as_mma if self.product.atom.name != "mfma" else []
        if "warp" not in self.lets:
            return []
        ways = ["a warp reads few different elements of A and B, next to one another: no bank conflicts"]
        if self._swizzled:
            ways.append("neighbouring lanes read different rows of A: no read of shared memory is a broadcast")
        return ways

    @property
    def _swizzled(self) -> bool:
        """Whether neighbouring lanes are in different rows."""
        return self._at("local_row", 0) != self._at("local_row", 1)

    def _at(self, name: str, local_index: int) -> int:
        """What a variable is for a work-item of the first warp."""
        lets = {x: value for x, value in self.lets.items() if x != "local_index"}
        return evaluate(inlined(lets[name], lets), {"local_index": local_index})

    def _roles(self, roles: WarpSpecialization) -> list[str]:
        """Consumers and producers."""
        (high, wide), (more, fewer) = self.kernel.group, roles.registers
        producers = high * wide - roles.consumers
        stores = "multiply, then store C"
        if (slices := self._slices(roles.consumers)) > 1:
            stores = f"multiply, {slices} slices of each step along K (sliced-K), then store C"
        if roles.storing:
            stores += ", one warpgroup while another multiplies (ordered epilogue)"
        kept, given = (f", {count} registers per thread" if count else "" for count in (more, fewer))
        return [
            f"{_warps('consumer', roles.consumers)}{kept}: {stores}",
            f"{_warps('producer', producers)}{given}: one thread loads A and B",
        ]

    # --- the operands' way ------------------------------------------------------------------------

    def way(self, operand: str) -> list[str]:
        """How A or B comes from memory to what multiplies."""
        source, steps = self._steps(operand)
        if source is None:
            return []
        parts = ["image" if source.space is Space.IMAGE else self.words.buffer]
        parts += ["prepacked by a kernel before"] if source.prepacked else []
        for step in steps:
            parts += self._step(step, operand)
        if self._passed_around(operand):
            parts.append(f"passed around the {self.words.sub_group} by shuffles")
        return [", ".join(parts)]

    def _steps(self, operand: str) -> tuple[Buffer | None, list[CooperativeCopy | FragmentLoad | VectorCopy]]:
        """The matrix that is read, and the copies of it, each where the one before ends."""
        matrices = (p for p in self.kernel.matrices if p.name in (operand, f"{operand}_packed"))
        source = next(iter(sorted(matrices, key=lambda p: not p.prepacked)), None)
        at, steps = "" if source is None else source.name, list[CooperativeCopy | FragmentLoad | VectorCopy]()
        for stmt in self.body:
            match stmt:
                case PointerInit(view, buffer) if buffer.name == at:
                    at = view.name
                case CooperativeCopy() | FragmentLoad() if stmt.src.buffer.name == at:
                    at = stmt.dst.buffer.name
                    steps.append(stmt)
                case VectorCopy(dst, _, src) if src.name == at:
                    at = dst.name
                    steps.append(stmt)
        return source, steps

    def _step(self, step: CooperativeCopy | FragmentLoad | VectorCopy, operand: str) -> Iterator[str]:
        """A copy in words."""
        match step:
            case CooperativeCopy(dst, src):
                yield from self._staged(step)
            case FragmentLoad(dst, src):
                shared = src.buffer.space is Space.LOCAL
                if step.atom.matrices is not None:
                    yield "ldmatrix.trans" if step.atom.matrices.transposed else "ldmatrix"
                elif not shared:
                    yield _loads(step.atom.name, step.width)
                elif isinstance(self.product, TileMma):
                    yield "from there to registers"
                elif step.width > 1 and src.transposed == (operand == "b"):
                    yield f"read along K by {step.width}"
                if (pipe := dst.pipe) is not None and pipe.stages > 1:
                    yield "registers double-buffered" + (" across tiles" if pipe.across_tiles else "")
            case VectorCopy(dst, _, src):
                if step.atom.block is not None:
                    # Where a matrix does not lie as they ask, lanes load; that is the same in few words.
                    if step.atom.aligned:
                        how = "transposing " if step.atom.block.transposed else ""
                        yield f"{how}2D block reads of {'x'.join(map(str, step.atom.block.shape))}"
                elif step.atom.fragment is not None:
                    if step.atom.aligned:
                        shape = "x".join(map(str, step.atom.fragment.shape))
                        yield f"joint_matrix_load_checked of {shape}"
                elif dst.name.endswith("_block"):
                    yield f"copied in blocks of {'x'.join(map(str, dst.extents))} to private memory"
                else:
                    yield f"block reads of {step.width} words"

    def _staged(self, stage: CooperativeCopy) -> Iterator[str]:
        """A tile on its way to local memory."""
        source, to, words = stage.src.buffer, stage.dst.buffer, self.words
        pipe = stage.dst.pipe
        elements = f"{stage.width} elements" if stage.width > 1 else _SINGLE
        if source.tma_tile is not None:
            yield "TMA"
        elif stage.atom.is_async:
            yield f"cp.async of {elements}"
        else:
            yield f"loads of {elements}"
        stages = 1 if pipe is None else pipe.stages
        yield f"{stages} stages in {words.local_memory}" if stages > 1 else f"to {words.local_memory}"
        if stage.dst.transposed != stage.src.transposed:
            yield "transposed"
        if padding := _padding(to):
            yield f"rows padded by {padding}"
        if to.layout.swizzle:
            yield f"{to.layout.swizzle}-byte swizzle"
        if source.multicast > 1:
            yield f"multicast to {source.multicast} {words.group}s"
        if source.evict_first:
            yield "evicted from L2 first"

    def _passed_around(self, operand: str) -> bool:
        return self._by_lanes() and operand == ("b" if self.transposed else "a")

    def _by_lanes(self) -> bool:
        """Whether a multiply-add takes an element from another lane."""
        atom = self.product.atom
        return atom.is_expanded and "sub_groups" in atom.needs

    def pipeline(self) -> list[str]:
        """How tiles are handed over."""
        ring, words = self.ring, self.words
        if ring is None:
            before = takewhile(lambda s: s is not self.product, self._main_loop())
            by_itself = next((s for s in before if isinstance(s, Barrier) and s.memory == "none"), None)
            split = by_itself is not None and by_itself.part == "arrive"
            whole = "a barrier before the arithmetic of each step"
            halves = "a split barrier: arrive before the arithmetic of each step, wait after it"
            return [halves if split else whole] if by_itself else []
        if ring.stages == 1:
            return []
        if ring.sync in ("mbarrier", "roles"):
            each = "each stage" if ring.batch == 1 else f"every {ring.batch} stages"
            return [f"a full and an empty mbarrier for {each}"]
        through = "is loaded into registers before the arithmetic, and stored after it"
        if ring.sync == "async_group":
            held = [s.src.buffer.name.upper() for s in self._main_loop() if isinstance(s, CooperativeCopy) and s.via]
            return [
                "cp.async groups, then a barrier",
                *([f"the next stage of {' and '.join(held)} {through}"] * bool(held)),
            ]
        if ring.through_registers:
            return [f"the next stage {through}"]
        return [f"a barrier for each stage of {words.local_memory}"]

    def _main_loop(self) -> Iterator[Stmt]:
        """What runs in each step along K."""
        found = self.loop("k0")
        return iter(()) if found is None else walk(found.body)

    # --- arithmetic -------------------------------------------------------------------------------

    def multiply(self) -> list[str]:
        """What multiplies."""
        product, atom = self.product, self.product.atom
        match atom.scope:
            case "warpgroup":
                text = f"wgmma m64n{self._columns()}k{atom.depth}, sums in {atom.sums}"
                if isinstance(product, TileMma) and isinstance(product.a, Registers):
                    text += f", {'B' if self.transposed else 'A'} from registers"
            case "warp" if atom.name == "mfma":
                text = f"v_mfma_f32_{atom.rows}x{atom.cols}x{atom.depth}_{atom.short}, sums in {atom.sums}"
            case "warp":
                # Of float64 it may be several instructions of 8x8x4.
                size = "of 16x8x" if atom.dtype == F64 else "m16n8k"
                text = f"mma.sync {size}{atom.depth}, sums in {atom.sums}"
            case "sub_group" if atom.name == "joint_matrix":
                text = f"joint_matrix_mad of {atom.rows}x{atom.cols}x{atom.depth}, sums in {atom.sums}"
            case "sub_group" if not atom.is_expanded:
                text = f"matrix instructions of the {self.words.sub_group} (dpas), sums in {atom.sums}"
            case _:
                names = {
                    "fma": "fused multiply-add",
                    "broadcast_fma": "fused multiply-add",
                    "dp4a": "dot products of four neighbours along K (dp4a), sums in int32",
                    "vector_fma": f"fused multiply-add of vectors of {self.vector}",
                    "vector_fma_along_k": f"dot products along K, in vectors of {self.vector}",
                }
                return [names[atom.name] + (", rows in serpentine order" if atom.snake else "")]
        if atom.scope in ("warp", "warpgroup") and atom.dtype == F32:
            text += ", 3xTF32: three products for each" if atom.products > 1 else f", {self._rounded(atom)}"
        return [text]

    def _rounded(self, atom: Instruction) -> str:
        """Where elements are rounded to TF32."""
        if not atom.rounded_by_tma:
            return "A and B rounded to TF32"
        if not any(isinstance(s, FragmentLoad) and s.prologue is not None for s in self.body):
            return "A and B rounded to TF32 as TMA loads them"
        made, other = "BA" if self.transposed else "AB"
        return f"{made} rounded to TF32 after its prologue, {other} as TMA loads it"

    def _columns(self) -> int:
        """Of an instruction of a warpgroup."""
        assert isinstance(self.product, TileMma)
        return min(self.product.b.cols, self.product.atom.cols)

    # --- C ----------------------------------------------------------------------------------------

    def way_of_c(self) -> list[str]:
        """How sums come to be stored."""
        update, words, parts = self.update, self.words, list[str]()
        for total in self.sums():
            planes = total.src.buffer.distributed
            if planes > 1:
                parts.append(f"parts of K added up across a cluster of {planes} (distributed {words.local_memory})")
            elif total.planes > 1:
                parts.append(f"slices added up in {words.local_memory}")
            else:
                parts.append(f"staged in {words.local_memory}")
        atom_adds = update.atom.adds
        if self.box_stores:
            src = self.box_stores[0].src
            slots = (as_int(src.shape[0]) or 1) if len(src.shape) > 2 else 1
            parts.append(f"{slots} {'stages' if slots > 1 else 'stage'} in {words.local_memory}, stored by TMA")
        elif atom_adds:
            parts.append("atomic additions, in no fixed order")
        else:
            writes = any(isinstance(s, VectorCopy) and s.atom.name == "block_2d_write" for s in walk(tuple(self.body)))
            parts += ["2D block writes where beta is 0"] * writes
            parts.append(f"stores of {update.width} elements" if update.width > 1 else f"stores of {_SINGLE}")
            if self._exchanged():
                parts.append("for which lanes exchange sums")
        if update.dst.buffer.name == "workspace":
            parts.append("to the workspace")
        return [", ".join(parts)]

    def _exchanged(self) -> bool:
        """Whether lanes have other columns of C than of their sums."""
        if self.product.atom.scope != "warp" or any(self.sums()):
            return False
        return self.update.acc.fragment.cols.vector > self.product.atom.c.cols.vector

    def grid(self) -> list[str]:
        """How blocks of C, and parts of K, come to groups."""
        kernel, words, parts = self.kernel, self.words, list[str]()
        if kernel.asks_device:
            parts.append(f"stream-K: a {words.group} per multiprocessor, parts of blocks added up by a second kernel")
        elif kernel.persistent:
            parts.append(f"persistent {words.group}s, each loops over tiles of C")
        if added := " and ".join(self._added_up()):
            count = self._split()
            parts.append(f"split-K: {count} parts, {added}" if count else f"split-K: parts {added}")
        if kernel.cluster > 1 and not self._in_cluster():
            parts.append(f"clusters of {kernel.cluster} {words.group}s with TMA multicast")
        if rows := self._swizzle():
            lines = "columns" if self.transposed else "rows"
            parts.append(f"threadblock swizzle over {rows} {lines} of {words.group}s")
        if any(isinstance(s, DependentLaunch) for s in self.body):
            parts.append("programmatic dependent launch")
        return ["; ".join(parts)] if parts else []

    def _added_up(self) -> Iterator[str]:
        """Who adds up parts of K."""
        if self.update.atom.adds:
            yield "added to C by atomic additions"
        if self._in_cluster():
            yield f"added up by clusters of {self.kernel.cluster} {self.words.group}s"
        if self.program.kernels[self.program.before + 1 :] and not self.kernel.asks_device:
            yield "added up by a second kernel"

    def _in_cluster(self) -> bool:
        """Whether the groups of a cluster add up parts of K."""
        return any(s.src.buffer.distributed > 1 for s in self.sums())

    def prefetch(self) -> list[str]:
        """What is asked for before it is read or written."""
        names = dict.fromkeys(s.buffer.name for s in self.body if isinstance(s, Prefetch))
        return [", ".join(name.upper() if len(name) == 1 else name for name in names)] if names else []

    def _split(self) -> int | None:
        """Parts that K is in: a part is K divided by so many steps, times the depth of one. None where a K that is
        known leaves nothing of that to read.
        """
        inside = list(walk_expr(self.lets["k_part"])) if "k_part" in self.lets else []
        divisor = next((as_int(x.b) for x in inside if isinstance(x, Bin) and x.op == "/"), None)
        factor = next((as_int(x.b) for x in inside if isinstance(x, Bin) and x.op == "*"), None)
        return None if divisor is None else divisor // (factor or 1)

    def _swizzle(self) -> int:
        """Rows of blocks that neighbouring groups take."""
        value = self.lets.get("band_row")
        return 0 if not isinstance(value, Bin) else as_int(value.b) or 0


def _warps(role: str, threads: int) -> str:
    """So many threads, as warps and warpgroups."""
    unit, name = (WARPGROUP, "warpgroup") if threads % WARPGROUP == 0 else (WARP, "warp")
    count = threads // unit
    return f"{count} {role} {name}{'s' if count > 1 else ''}"


def _loads(atom: str, width: int) -> str:
    """Loads of an instruction in words."""
    if atom == "image_block_read":
        return f"block reads of {width} rows"
    if atom == "block_read":
        return "block reads" + (f" of {width} segments" if width > 1 else "")
    return f"loads of {width} elements" if width > 1 else f"loads of {_SINGLE}"


def _padding(buffer: Buffer) -> int:
    """Elements between the lines of a tile."""
    if len(buffer.shape) < 2 or buffer.layout.swizzle:
        return 0
    return (as_int(buffer.layout.strides[-2]) or 0) - (as_int(buffer.shape[-1]) or 0)
