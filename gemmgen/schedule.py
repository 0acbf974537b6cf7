"""How to compute it: a closed, hashable, TOML-serialisable record."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from gemmgen.errors import ScheduleError
from gemmgen.fields import field_problems
from gemmgen.names import name_problem

Memory = Literal["global", "local", "image", "private"]
#: Matrix instructions; each is a method of its own, too.
MatrixAtom = Literal[
    "dpas",
    "mma",
    "mma_s8",
    "mma_f8",
    "mma_f64",
    "mma_tf32",
    "mma_3xtf32",
    "wgmma",
    "wgmma_s8",
    "wgmma_f8",
    "wgmma_tf32",
    "wgmma_3xtf32",
]
Atom = Literal["fma", MatrixAtom]
Method = Literal["naive", "slm", "simd", "block_read", MatrixAtom, "vector"]
#: Work-items of a warpgroup (rows, columns).
WARPGROUP = (32, 4)


@dataclass(frozen=True, slots=True)
class Operand:
    """The way of A or B from global memory into registers.

    Attributes:
        memory: where registers are filled from: `global`, an `image`, `local` memory that the group
            fills together, or (B of vectors) a `private` array that the work-item copies a block to. Where warpgroups
            multiply, where from: `local` memory, or, of A (of B where operands are swapped), `private` arrays,
            registers, which are filled from there.
        width: elements that one load from global memory moves (rows, for an image), or as many of them as the target's
            instructions and the matrix' alignment allow. Where a target has no block reads, or neighbours in the matrix
            are none in the local tile, single elements are moved.
        block: whether a sub-group loads by block reads instead of per-lane loads.
        share: whether lanes hold different elements and pass them around the sub-group.
        transposed: whether local memory holds the tile with K as its slow axis for A (fast for B).
        pad: elements added to each row of the local tile.
        async_copy: whether local memory is filled by asynchronous copies, past the registers.
        packed: whether a kernel before the product lays the matrix out anew: in the order of its local tile, in whole
            tiles, zeros past K. It costs a pass over the matrix, and spares the product all narrow copies.
        streamed: whether caches are told that what boxes bring of it is read once, or about once: they let go of that
            before all else.
    """

    memory: Memory = "global"
    width: int = 1
    block: bool = False
    share: bool = False
    transposed: bool = False
    pad: int = 0
    async_copy: bool = False
    packed: bool = False
    streamed: bool = False

    def __post_init__(self) -> None:
        """Raises: ScheduleError with every field of a wrong type; sizes are checked against the rest later."""
        memories = get_args(Memory)
        kinds = {"Memory": (f"one of {', '.join(memories)}", lambda x: isinstance(x, str) and x in memories)}
        if problems := field_problems(self, kinds):
            raise ScheduleError(problems)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How to compute a product.

    Attributes:
        tile: rows and columns of C that a work-item computes.
        group: work-items of a group (rows, columns). A warpgroup is 32x4 of them: 64x4 are two above one another, 32x8
            two beside one another, and 4x32 one along C's columns (`swapped`).
        run: neighbouring rows and columns that a work-item owns before the next work-item's begin; where the group has
            one work-item along an axis, all are its own.
        k_step: depth that one iteration of the main loop covers.
        sub_group: lanes of a sub-group; None where none is needed.
        a, b: the operands' way into registers.
        b_step: where sub-groups read both operands by blocks from buffers, how deep B is read at a time, while all of
            the step's A is in registers: longer steps, whose reads of A are wider. 0 reads B's part of a step at once,
            and A's as it is needed.
        stages: slots of the ring in local memory.
        mbarrier: tiles of that ring that a pair of mbarriers hands over at a time; 0 where barriers of the group do.
        boxes: whether one of the producers begins the copies to that ring, of boxes by tensor maps, a batch of tiles at
            once; if not, all work-items copy a share of each tile.
        slices: parts of each step of K, each with work-items of its own, whose sums meet in local memory.
        split: parts of all of K, each with groups of its own, whose sums a second kernel adds up.
        joined: neighbouring ones of those parts whose groups run together in a cluster and add up their sums in local
            memory; where that is all of them, there is no second kernel.
        stream: whether all of C's blocks and K's batches are dealt out evenly to as many groups as a device runs at
            once, one on each multiprocessor (stream-K): each computes whole blocks and parts of two, which a second
            kernel adds up; if not, each has one block.
        atomic: whether the parts of K are added to C one by one as they come, instead of by a second kernel: quicker,
            but in no fixed order, so that the last bits differ from run to run.
        raster: rows of groups that are walked column by column, so that neighbours in time are neighbours in C; 0
            where rows are walked one after the other.
        prefetch: whether the next tile is loaded into registers before the current tile's arithmetic and
            stored to local memory after it.
        register_stages: 2 where the next step's operands are read from local memory ahead of use.
        warp: how the lanes of a warp lie over the rows and columns of the group's work-items, so that they read few
            different elements; None where they follow the group's rows.
        stagger: whether neighbouring lanes of a warp lie in different rows, so that no two of them read the same
            elements of A: the hardware then answers reads faster than where it has to merge them.
        across: whether that goes on from one tile to the next, whose first operands are read before the last step's
            arithmetic.
        snake: whether every other row of the arithmetic goes backwards, so that the element of B at the turn is used
            twice in a row.
        barrier: whether the group meets before each step's arithmetic, only to stay in step for the cache; a group of
            one sub-group, which is in step anyway, so keeps compilers from moving loads among the arithmetic.
        atom: what multiplies and adds: `fma`, a work-item by itself; `dpas`, a sub-group by matrix
            instructions, whose operands a kernel before packs; `mma`, a warp by matrix instructions of 16-bit
            floats, `mma_s8` of int8, `mma_f8` of 8-bit floats, `mma_f64` of float64, `mma_tf32` of float32
            rounded to TF32, with 10 bits after the point, `mma_3xtf32` by three of those for each, of elements
            taken apart in two, with sums as good as float32's; `wgmma`, a warpgroup by matrix instructions on
            local memory, which work-items of their own fill; `wgmma_s8`, `wgmma_f8` and `wgmma_tf32` by those
            of int8, 8-bit floats and float32 cut to TF32, `wgmma_3xtf32` by three of
            those for each, of elements that a kernel before takes apart.
        large_registers: whether a thread of an Intel GPU gets twice as many registers, of which there are then half as
            many threads: a build option.
        producers: work-items of a group beside those that compute: a warp or a warpgroup, one of which begins all
            copies to local memory. They are no part of `group`.
        registers: that each work-item which computes has, and each producer, where they hand some over; 0x0 where they
            keep what the compiler gave them.
        persistent: whether there are no more groups than a device runs at once, each of which computes one block of C
            after the other, so that the first tiles of the next are on their way while C is stored.
        cluster: rows and columns of groups that run together and copy for one another: each brings a part of the tiles
            of B that those above one another have in common, or of the tiles of A that those beside one another have.
        late: whether its kernels begin when those before them are over, on devices where they would begin early: groups
            that wait on idle multiprocessors cost what waits for memory more than a launch does.
        c_width: elements of C that one store writes, where they are inside and work-items store them, or as many of
            them as the target's instructions move. Where boxes are stored it means nothing: 1, or what the method has.
        c_stages: slots of local memory from which C is stored by boxes, a warp's lines at a time, where warpgroups
            multiply; no more than a warp has boxes. 0 where work-items store it.
        c_turns: whether the warpgroups of a group store their rows one after the other, so that the first of them
            multiplies for the next block while the others still store.
        vector: neighbouring columns that a work-item computes as one vector of its own, by the vector instructions of a
            CPU; 1 where it computes single elements.
        along_k: whether such a vector is of neighbours along K instead, each of which sums a part of an element of C:
            where C has few columns or B has its columns in lines, vectors of columns would be mostly empty or gathered.
        sweep: tiles (rows, columns) that a work-item with vectors computes at most, one after the other: the caches
            then serve them all, and a core has few work-items.
        even: groups along rows and columns come in multiples of these, so that each core has as many.
        k_block: how deep in K the tiles of a sweep go before they all go on, so that their part of B stays in a cache;
            sums wait in C meanwhile. 0 is all of K.
        m_block: where B is copied, how many tiles of a column are computed before those right of them, so that their
            part of A stays in a cache. 0 is all of them.
        b_prefetch: how many steps of K before they are read lines of B's copy are brought to the first level of the
            cache; 0 leaves that to the processor.
        c_prefetch: whether a tile of C is brought to the cache, row by row, while its sum is made; where B is copied.
        name: of the kernel; None derives one (`methods.slug`).
    """

    tile: tuple[int, int] = (1, 1)
    group: tuple[int, int] = (16, 16)
    run: tuple[int, int] = (1, 1)
    k_step: int = 1
    sub_group: int | None = None
    a: Operand = field(default_factory=Operand)
    b: Operand = field(default_factory=Operand)
    b_step: int = 0
    stages: int = 1
    mbarrier: int = 0
    boxes: bool = False
    slices: int = 1
    split: int = 1
    joined: int = 1
    stream: bool = False
    atomic: bool = False
    raster: int = 0
    prefetch: bool = False
    register_stages: int = 1
    warp: tuple[int, int] | None = None
    stagger: bool = False
    across: bool = False
    snake: bool = False
    barrier: bool = False
    atom: Atom = "fma"
    large_registers: bool = False
    c_width: int = 1
    c_stages: int = 0
    c_turns: bool = False
    vector: int = 1
    along_k: bool = False
    sweep: tuple[int, int] = (1, 1)
    even: tuple[int, int] = (1, 1)
    k_block: int = 0
    m_block: int = 0
    b_prefetch: int = 0
    c_prefetch: bool = False
    producers: int = 0
    registers: tuple[int, int] = (0, 0)
    persistent: bool = False
    cluster: tuple[int, int] = (1, 1)
    late: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        """Raises: ScheduleError with every field of a wrong type, and a name that must not reach a source."""
        problems = field_problems(
            self,
            {
                "Operand": ("a gemmgen.Operand", lambda x: isinstance(x, Operand)),
                "str": ("text", lambda x: isinstance(x, str)),
                "Atom": (f"one of {', '.join(get_args(Atom))}", lambda x: x in get_args(Atom)),
            },
        )
        if isinstance(self.name, str) and (problem := name_problem(self.name)):
            problems.append(problem)
        if problems:
            raise ScheduleError(problems)

    @property
    def by_blocks(self) -> bool:
        """Whether sub-groups read both operands by block reads, from buffers or from images."""
        return self.a.share and self.b.block and self.a.memory == self.b.memory != "local"

    @property
    def whole_steps(self) -> bool:
        """Whether a step's values of B are all loaded before its arithmetic: so that the group can meet between, or so
        that compilers unroll the step as one.
        """
        return (self.barrier or self.by_blocks) and not self.b_step

    @property
    def block_tile(self) -> tuple[int, int]:
        """Rows and columns of C that a group computes."""
        return self.tile[0] * self.group[0], self.tile[1] * self.group[1]

    @property
    def warpgroups(self) -> tuple[int, int]:
        """Warpgroups that multiply (above one another, beside one another)."""
        (high, wide), (rows, cols) = self.group, WARPGROUP
        return high // rows, wide // cols

    @property
    def all_work_items(self) -> tuple[int, int]:
        """Work-items of a group (rows, columns), those of all slices one above the other, and then the producers."""
        high, wide = self.group
        if self.by_warpgroups and not self.swapped:
            # Four wide, as warpgroups are, whichever way these lie.
            high, wide = high * wide // WARPGROUP[1], WARPGROUP[1]
        return high * self.slices + self.producers // max(1, wide), wide

    @property
    def round_depth(self) -> int:
        """How deep in K one round of the main loop goes."""
        return self.k_step * max(1, self.mbarrier)

    @property
    def asynchronous(self) -> bool:
        """Whether local memory is filled by asynchronous copies, which bring zeros for what lies past K."""
        return self.a.async_copy or self.b.async_copy

    @property
    def method(self) -> Method:
        """The family it belongs to."""
        operands = (self.a, self.b)
        if self.atom != "fma":
            return self.atom
        if self.vector > 1:
            return "vector"
        if any(o.memory == "local" for o in operands):
            return "slm"
        if any(o.memory == "image" for o in operands):
            return "block_read"
        return "simd" if any(o.share or o.block for o in operands) else "naive"

    @property
    def by_warps(self) -> bool:
        """Whether a warp multiplies as one."""
        return self.atom not in ("fma", "dpas") and not self.by_warpgroups

    @property
    def by_warpgroups(self) -> bool:
        """Whether a warpgroup multiplies as one, tiles that others bring."""
        return self.atom.startswith("wgmma")

    @property
    def planes(self) -> int:
        """Sums of parts of K that a second kernel adds up, where there is more than one."""
        return self.split // max(1, self.joined)

    @property
    def swapped(self) -> bool:
        """Whether warpgroups multiply with their operands swapped, C^T = B^T A^T: so say the lanes of a group 4x32,
        which lie along C's columns. Of C a block then has few rows, and 64 columns of each warpgroup.
        """
        (high, wide), (rows, cols) = self.group, WARPGROUP
        return self.by_warpgroups and high % rows != 0 and high % cols == 0 and wide % rows == 0

    def staged(self, name: str, order: str) -> Operand:
        """The way of A or B; where warps multiply, its local tile has the order of the matrix, whichever that is."""
        operand = self.a if name == "a" else self.b
        follows = self.by_warps and not operand.packed
        return replace(operand, transposed=order == "col") if follows else operand

    def read_order(self, name: str, order: str) -> Literal["row", "col"]:
        """How the product reads A or B: as the matrix lies, `order`, or as it is laid out before."""
        operand = self.a if name == "a" else self.b
        turned = operand.transposed if operand.packed else order == "col"
        return "col" if turned else "row"

    def tile_line(self, name: str, order: str) -> int:
        """Elements along the fast axis of A's or B's tile: of a step along K, or, where that is its slow axis, of the
        block.
        """
        along_k = (self.read_order(name, order) == "row") == (name == "a")
        return self.k_step if along_k else self.block_tile[name == "b"]
