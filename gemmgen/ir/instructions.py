"""The table of instructions that add a product to accumulators: who runs one, its shape, and its thread-value layouts.

`Instruction` holds for each of them which lane and register has which element of A, B and C (the TV layouts), where A
and B lie, and what it asks of a target. The simulator's semantics follows from that (`simulator/semantics.py`); a
backend adds the text of a call. A new instruction is a row of `INSTRUCTIONS`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from gemmgen.errors import LoweringError
from gemmgen.ir.copy_instructions import AxisLayout, ThreadValueLayout
from gemmgen.ir.dtypes import BF16, F8_E4M3, F8_E5M2, F16, F32, F64, FLOAT8, I8, I16, I32, DType, accumulator
from gemmgen.ir.expr import Const, Expr, Var
from gemmgen.records import dataclass

#: Who runs an instruction as one: a work-item, a sub-group, a warp of 32 lanes (AMD: a wavefront of 64), or four warps
#: that follow each other.
Scope = Literal["thread", "sub_group", "warp", "warpgroup"]
#: Where an operand lies: in registers by its TV layout, or in local memory, whole.
OperandPlace = Literal["registers", "local"]

LANE = Var("lane")
#: Bytes of a register.
WORD_BYTES = 4
#: Rows of a matrix of 8 x 16 bytes, of which operands of a warp's and a warpgroup's instructions are made.
LINES = 8
#: Lanes of a warp, which stand in eight lines of `ACROSS`.
WARP_LANES, ACROSS = 32, 4
#: Bytes of a line of the 8 x 16 bytes that `ldmatrix` calls a matrix; an operand is two of them deep.
MATRIX_LINE_BYTES = 16
#: Registers that an accumulator of `mma.sync`, of 16 x 8, takes along each axis.
MMA_HIGH = MMA_WIDE = 2
#: Lanes of a warpgroup, and rows of the sums that they have.
WARPGROUP_LANES, WARPGROUP_ROWS = 128, 64
#: Bytes of a line of a tile in local memory, whose parts of 16 bytes swizzle.
TILE_LINE_BYTES = 128
#: Bytes of a line that one `wgmma` multiplies by.
WGMMA_DEPTH_BYTES = 32
#: Columns of the sums of `wgmma` come by eights, up to these.
WGMMA_COLS, WGMMA_MOST_COLS = 8, 256
#: Of products of 8-bit floats and the sum that they are added to, Hopper keeps about so many bits, counted from the
#: largest of them (DeepSeek-V3 Technical Report, section 3.5.2); float32 holds 24.
FLOAT8_KEPT = 14
#: Rows of A and of the sums of `dpas`, and words of B.
DPAS_ROWS = 8
#: As many lanes as `dpas` has columns, on Xe-HPG and on Xe-HPC.
DPAS_LANES = (8, 16)
#: Types that `dpas` takes, and what its functions call them.
DPAS_TYPES = {F16: "f16", BF16: "bf16", I8: "i8"}
#: Bits of the significand that `dpas` of float32 looks at (TF32).
TF32_DIGITS = 11
#: Lanes, and columns, of `joint_matrix`; and the most rows for each type of which compilers of Xe-HPC and Xe2 load a
#: fragment of A, and tell where an element of the sums stands.
JOINT_MATRIX_LANES = 16
JOINT_MATRIX_ROWS = {F16: 16, BF16: 16, I8: 8}
_PTX = "https://docs.nvidia.com/cuda/parallel-thread-execution/index.html#"
_INTEL = "https://registry.khronos.org/OpenCL/extensions/intel/cl_intel_subgroup_matrix_multiply_accumulate.html"
_SYCL = "https://github.com/intel/llvm/blob/sycl/sycl/doc/extensions/experimental/sycl_ext_matrix/"
_CDNA = "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/instruction-set-architectures/"
_ELEMENT = ThreadValueLayout(AxisLayout(1), AxisLayout(1))


@dataclass(frozen=True, slots=True)
class Instruction:
    """c [rows, cols] += a [rows, depth] @ b [depth, cols], by the lanes of a scope as one.

    Attributes:
        name: how schedules ask for it.
        scope: who runs it.
        of: the type of A's and B's elements; None where any type of numbers will do.
        rows, cols, depth: its shape, M x N x K.
        a, b, c: TV layouts: which lane and value holds which element. Of an operand in local memory, the whole of it.
        lanes: of a sub-group that runs it.
        needs: features of the target.
        a_place, b_place: where A and B lie.
        a_word, b_word: what the registers of A and B are declared as, where they hold several elements each, which are
            neighbours of a lane; None where a register of the array is an element.
        is_async: whether it goes on while the scope does, so that a group of them is waited for.
        short: what the maker's manual calls the type that it multiplies.
        link, layout_link: where it is defined, and where its layouts are.
        digits: of the significand, what it multiplies by; fewer than the type has where the last bits are lost. 0 for
            all of them.
        cuts: whether it drops those bits itself; else elements are rounded before.
        products: how many of it make one product. With 3 an element is the sum of two, a high part and a low one; the
            product of both low parts is left out.
        kept: bits of what it adds up, counted from the largest; 0 where they are those of the sums.
        a_transposed, b_transposed: whether K is the slow axis of an operand's tile in local memory.
        b_pairs: whether a byte of B's registers holds two of its elements, of 4 bits.
        paired: whether rows of A and of the sums are numbered in another order, by which the two of a lane, for the
            instruction eight apart, are neighbours: so `ldmatrix` brings those of a byte.
        order: where it is expanded to loops, how those over rows `i`, depth `k` and columns `j` nest, outermost first.
        snake: whether odd rows then go through their columns backwards (serpentine order).
    """

    name: str
    scope: Scope
    of: DType | None = None
    rows: int = 1
    cols: int = 1
    depth: int = 1
    a: ThreadValueLayout = _ELEMENT
    b: ThreadValueLayout = _ELEMENT
    c: ThreadValueLayout = _ELEMENT
    lanes: int = 1
    needs: frozenset[str] = frozenset()
    a_place: OperandPlace = "registers"
    b_place: OperandPlace = "registers"
    a_word: DType | None = None
    b_word: DType | None = None
    is_async: bool = False
    short: str = ""
    link: str = ""
    layout_link: str = ""
    digits: int = 0
    cuts: bool = False
    products: int = 1
    kept: int = 0
    a_transposed: bool = False
    b_transposed: bool = False
    b_pairs: bool = False
    paired: bool = False
    order: tuple[Literal["i", "j", "k"], ...] = ()
    snake: bool = False

    @property
    def dtype(self) -> DType:
        """The type of A's and B's elements."""
        if self.of is None:
            raise LoweringError(f"{self.name} is of any type")
        return self.of

    @property
    def sums(self) -> DType:
        """The type of the accumulators."""
        return accumulator(self.dtype)

    @property
    def threads(self) -> int:
        """Lanes of the whole scope."""
        return WARPGROUP_LANES if self.scope == "warpgroup" else self.lanes

    @property
    def is_expanded(self) -> bool:
        """Whether a product of tiles is expanded to loops of it, each on elements or vectors of a work-item's own."""
        return bool(self.order)

    @property
    def held(self) -> bool:
        """Whether A is in registers, and not in local memory."""
        return self.a_place == "registers"

    @property
    def a_register(self) -> DType:
        """What the registers of A are declared as."""
        return self.a_word or self.dtype

    @property
    def b_register(self) -> DType:
        """What the registers of B are declared as."""
        return self.b_word or self.dtype

    @property
    def line(self) -> int:
        """Elements of a line of local memory that operands come by."""
        return (TILE_LINE_BYTES if self.scope == "warpgroup" else MATRIX_LINE_BYTES) // self.dtype.size

    @property
    def terms(self) -> int:
        """Numbers that an element is the sum of."""
        return 1 if self.products == 1 else 2

    @property
    def rounds(self) -> bool:
        """Whether elements must be rounded before, or split into a high and a low part."""
        return 0 < self.digits < self.dtype.digits and not self.cuts

    @property
    def rounded_by_tma(self) -> bool:
        """Whether TMA rounds elements as it loads them: by tensor maps of type TFLOAT32."""
        return self.scope == "warpgroup" and 0 < self.digits < self.dtype.digits and self.products == 1

    @property
    def of_heads(self) -> Instruction:
        """The instruction alone, which takes elements by their high parts."""
        return replace(self, products=1, cuts=True)

    @property
    def error(self) -> float:
        """How far a product of two elements may be off before it is summed, as a part of it."""
        if not 0 < self.digits < self.dtype.digits:
            return 0.0
        if self.products > 1:
            # The low parts' product, each less than 2^(1 - digits) of its element; less than that by what is cut.
            return 2 * (2 * 0.5**self.digits) ** 2
        return (1 + (2 if self.cuts and not self.rounded_by_tma else 1) * 0.5**self.digits) ** 2 - 1


# --- instructions of a thread, and of a sub-group that shuffles -----------------------------------

#: One multiply-add a lane, all operands in its own registers.
FMA = Instruction("fma", "thread", order=("k", "i", "j"))
#: The same, odd rows backwards: at each turn an operand stays where the last instruction had it.
FMA_SNAKE = replace(FMA, snake=True)
#: A multiply-add whose A comes from another lane's register; `k` inside `i`, so that a value of A is
#: fetched just before its use and registers stay free.
BROADCAST_FMA = Instruction("broadcast_fma", "sub_group", order=("i", "k", "j"), needs=frozenset({"sub_groups"}))
#: One multiply-add a vector of a work-item's own: an element of A by a vector of B, all columns of which it has.
VECTOR_FMA = Instruction("vector_fma", "thread", order=("k", "i", "j"), needs=frozenset({"vectors"}))
#: The same of neighbours along K, a dot product: part of a row of A by part of a column of B, each element to a sum of
#: its own.
VECTOR_FMA_ALONG_K = Instruction("vector_fma_along_k", "thread", order=("i", "j"), needs=frozenset({"vectors"}))

#: Elements of a word of `DP4A`.
FOURS = 4
#: A dot product of four neighbours along K of a row of A and of a column of B, added to a lane's own sum: `dp4a`.
DP4A = Instruction(
    "dp4a",
    "thread",
    I8,
    depth=FOURS,
    a=ThreadValueLayout(AxisLayout(1), AxisLayout(FOURS)),
    b=ThreadValueLayout(AxisLayout(FOURS), AxisLayout(1), transposed=True),
    order=("k", "i", "j"),
)


# --- dpas -----------------------------------------------------------------------------------------


def dpas(dtype: DType, lanes: int, b_pairs: bool = False) -> Instruction:
    """`intel_sub_group_*_matrix_mad_k*` (cl_intel_subgroup_matrix_multiply_accumulate): 8 rows by as many columns as
    the sub-group has lanes. Operands are vectors of eight words, each of several neighbours along K. Of float32, which
    it multiplies as TF32, a word is an element, and 16 lanes stand on two rows of A
    (cl_intel_subgroup_matrix_multiply_accumulate_tf32). What it does with the last 13 bits is not documented; here they
    are cut.

    Args:
        lanes: 8 or 16, as many as the device's smallest sub-group has.
        b_pairs: whether B is of 4 bits, where A is int8.
    """
    packed = WORD_BYTES // dtype.size
    depth = DPAS_ROWS * packed
    own, lines = max(1, depth // lanes), max(1, lanes // depth)
    column = AxisLayout(1, lanes, 1, LANE)
    row = AxisLayout(DPAS_ROWS) if lines == 1 else AxisLayout(DPAS_ROWS // lines, lines, 1, LANE // depth)
    along = LANE if lines == 1 else LANE % depth
    return Instruction(
        "dpas",
        "sub_group",
        dtype,
        *(DPAS_ROWS, lanes, depth),
        a=ThreadValueLayout(row, AxisLayout(own, lanes // lines, own, along)),
        b=ThreadValueLayout(AxisLayout(depth), column, transposed=True),
        c=ThreadValueLayout(AxisLayout(DPAS_ROWS), column, transposed=True),
        lanes=lanes,
        # What software stands in with where there is no such instruction.
        needs=frozenset({"sub_groups", "intel_sub_groups", "block_read"}),
        # All lanes together hold the whole depth of a row of A.
        a_word=None if dtype == F32 else I32 if own == packed else I16,
        b_word=None if dtype == F32 else I32,
        short=DPAS_TYPES.get(dtype, "tf32"),
        link=_INTEL,
        digits=TF32_DIGITS if dtype == F32 else 0,
        cuts=dtype == F32,
        b_pairs=b_pairs,
    )


def of_elements(instruction: Instruction) -> Instruction:
    """`dpas` whose operands lie in arrays of elements, as 2D block reads bring them: of A a lane's own neighbours of a
    row, then the next row; of B its whole column. What packs operands is read by Intel's own functions; these are not.
    """
    own = instruction.a.cols.values
    a, needs = replace(instruction.a, transposed=own == 1), instruction.needs - {"intel_sub_groups"}
    return replace(instruction, a=a, a_word=None, b_word=None, needs=needs)


def joint_matrix(dtype: DType) -> Instruction:
    """`joint_matrix_mad` (sycl_ext_oneapi_matrix) on Xe-HPC and Xe2. Operands are fragments, which the sub-group holds
    as one. The extension does not say which lane has which element, so that kernels must not ask. These layouts are the
    simulator's own.
    """
    rows, lanes, depth = JOINT_MATRIX_ROWS[dtype], JOINT_MATRIX_LANES, DPAS_ROWS * WORD_BYTES // dtype.size
    across = lanes // rows
    column = AxisLayout(1, lanes, 1, LANE)
    return Instruction(
        "joint_matrix",
        "sub_group",
        dtype,
        *(rows, lanes, depth),
        # A row lies in one lane, or in two neighbours.
        a=ThreadValueLayout(
            AxisLayout(1, rows, 1, LANE // across),
            AxisLayout(depth // across, across, depth // across, LANE % across if across > 1 else Const(0)),
        ),
        b=ThreadValueLayout(AxisLayout(depth), column, transposed=True),
        c=ThreadValueLayout(AxisLayout(rows), column, transposed=True),
        lanes=lanes,
        needs=frozenset({"joint_matrix"}),
        short=DPAS_TYPES[dtype],
        link=_SYCL + "sycl_ext_oneapi_matrix.asciidoc",
    )


JOINT_MATRIX_INSTRUCTIONS = tuple(map(joint_matrix, JOINT_MATRIX_ROWS))
DPAS_INSTRUCTIONS = (*(dpas(dtype, lanes) for dtype in DPAS_TYPES for lanes in DPAS_LANES), dpas(F32, DPAS_LANES[-1]))


# --- mma.sync -------------------------------------------------------------------------------------


def _mma(name: str, dtype: DType, short: str, section: str, lines: int = 2, digits: int = 0) -> Instruction:
    """`mma.sync.aligned.m16n8k*.row.col` (PTX ISA, "Warp Level Matrix Instructions"). Lane / 4 stands on one axis, lane
    % 4 on the other, where it holds words of neighbours.

    Args:
        section: of the PTX ISA, with pictures of the layouts.
        lines: of 16 bytes, how deep in K it goes.
    """
    line = MATRIX_LINE_BYTES // dtype.size
    depth = lines * line
    rows = AxisLayout(MMA_HIGH, LINES, 1, LANE // ACROSS)
    k = AxisLayout(depth // ACROSS, ACROSS, max(1, line // ACROSS), LANE % ACROSS)
    return Instruction(
        name,
        "warp",
        dtype,
        *(MMA_HIGH * LINES, LINES, depth),
        a=ThreadValueLayout(rows, k),
        b=ThreadValueLayout(k, AxisLayout(1, LINES, 1, LANE // ACROSS), transposed=True),
        c=ThreadValueLayout(rows, AxisLayout(MMA_WIDE, ACROSS, MMA_WIDE, LANE % ACROSS)),
        lanes=WARP_LANES,
        needs=frozenset({"mma", "fp8"} if dtype in FLOAT8 else {"mma"}),
        short=short,
        link=_PTX + section,
        layout_link=_PTX + section,
        digits=digits or dtype.digits,
        kept=FLOAT8_KEPT if dtype in FLOAT8 else 0,
    )


def mirrored(instruction: Instruction) -> Instruction:
    """`mma.sync` with its operands exchanged: C^T = B^T A^T. Eight rows of A and sixteen columns of B."""
    a, b, c = instruction.b, instruction.a, instruction.c
    return replace(
        instruction,
        rows=instruction.cols,
        cols=instruction.rows,
        a=ThreadValueLayout(a.cols, a.rows),
        b=ThreadValueLayout(b.cols, b.rows, transposed=True),
        c=ThreadValueLayout(c.cols, c.rows, transposed=True),
    )


_DEEP, _FLAT = "warp-level-matrix-fragment-mma-16816-float", "warp-level-matrix-fragment-mma-1688"
_BYTES = "warp-level-matrix-fragment-mma-16832"
MMA_INSTRUCTIONS = (
    _mma("mma", BF16, "bf16", _DEEP),
    _mma("mma", F16, "f16", _DEEP),
    _mma("mma_s8", I8, "s8", _BYTES),
    _mma("mma_f8", F8_E4M3, "e4m3", _BYTES),
    _mma("mma_f8", F8_E5M2, "e5m2", _BYTES),
    _mma("mma_f64", F64, "f64", _FLAT, lines=4),
    _mma("mma_tf32", F32, "tf32", _FLAT, digits=11),
    replace(_mma("mma_3xtf32", F32, "tf32", _FLAT, digits=11), products=3),
)


# --- MFMA -----------------------------------------------------------------------------------------

#: Lanes of a wavefront of CDNA, which stand in four quarters of sixteen.
WAVEFRONT_LANES, QUARTER = 64, 16


def _mfma(dtype: DType, short: str) -> Instruction:
    """`v_mfma_f32_16x16x16_*` (AMD Instinct MI300 ISA, "Matrix fused-multiply-add"): a lane holds four neighbours along
    K of a row of A and of a column of B, and of a column of the sums four neighbouring rows.
    """
    lane, four = AxisLayout(1, QUARTER, 1, LANE % QUARTER), AxisLayout(4, 4, 4, LANE // QUARTER)
    return Instruction(
        "mfma",
        "warp",
        dtype,
        *(QUARTER, QUARTER, QUARTER),
        a=ThreadValueLayout(lane, four),
        b=ThreadValueLayout(four, lane, transposed=True),
        c=ThreadValueLayout(four, lane, transposed=True),
        lanes=WAVEFRONT_LANES,
        needs=frozenset({"mfma"}),
        short=short,
        link=_CDNA,
        digits=dtype.digits,
    )


MFMA_INSTRUCTIONS = (_mfma(F16, "f16"),)


# --- wgmma ----------------------------------------------------------------------------------------


def _wgmma(name: str, dtype: DType, short: str, digits: int = 0) -> Instruction:
    """`wgmma.mma_async.sync.aligned.m64n*k*` (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"), which takes
    A and B from local memory, as TMA puts them, in its narrowest form.
    """
    depth = WGMMA_DEPTH_BYTES // dtype.size
    plain = Instruction(
        name,
        "warpgroup",
        dtype,
        *(WARPGROUP_ROWS, WGMMA_COLS, depth),
        lanes=WARP_LANES,
        needs=frozenset({"wgmma"}),
        b_place="local",
        is_async=True,
        short=short,
        link=f"{_PTX}asynchronous-warpgroup-level-matrix-instructions-wgmma-mma",
        layout_link=f"{_PTX}asynchronous-warpgroup-level-matrix-register-fragment-wgmma-64n{depth}",
        digits=digits or dtype.digits,
        cuts=True,
        kept=FLOAT8_KEPT if dtype in FLOAT8 else 0,
    )
    return wgmma_form(plain, WGMMA_COLS)


def wgmma_form(
    instruction: Instruction,
    cols: int,
    a_transposed: bool = False,
    b_transposed: bool = False,
    held: bool = False,
    paired: bool = False,
) -> Instruction:
    """The form of `wgmma` with so many columns, and with A in registers where it is `held`; the other arguments are
    attributes of `Instruction`.
    """
    # Each warp has sixteen rows, a lane two, eight apart or side by side.
    line: Expr = LANE // ACROSS
    rows = (
        AxisLayout(2, LINES * 4, 2, line) if paired else AxisLayout(2, LINES * 4, 1, line, repeats=2, inner_lanes=LINES)
    )
    depth, own = instruction.depth, WORD_BYTES // instruction.dtype.size
    return replace(
        instruction,
        cols=cols,
        a=ThreadValueLayout(rows, AxisLayout(depth // ACROSS, ACROSS, own, LANE % ACROSS)),
        b=ThreadValueLayout(AxisLayout(depth), AxisLayout(cols)),
        c=ThreadValueLayout(rows, AxisLayout(cols // ACROSS, ACROSS, 2, LANE % ACROSS)),
        a_place="registers" if held else "local",
        a_transposed=a_transposed,
        b_transposed=b_transposed,
        paired=paired,
    )


WGMMA_INSTRUCTIONS = (
    _wgmma("wgmma", BF16, "bf16"),
    _wgmma("wgmma", F16, "f16"),
    _wgmma("wgmma_s8", I8, "s8"),
    _wgmma("wgmma_f8", F8_E4M3, "e4m3"),
    _wgmma("wgmma_f8", F8_E5M2, "e5m2"),
    _wgmma("wgmma_tf32", F32, "tf32", 11),
    replace(_wgmma("wgmma_3xtf32", F32, "tf32", 11), products=3),
)


# --- the table ------------------------------------------------------------------------------------

#: All instructions. Of `wgmma` each stands for its wider forms, too.
INSTRUCTIONS: tuple[Instruction, ...] = (
    *(FMA, FMA_SNAKE, BROADCAST_FMA, VECTOR_FMA, VECTOR_FMA_ALONG_K, DP4A),
    *DPAS_INSTRUCTIONS,
    *JOINT_MATRIX_INSTRUCTIONS,
    *MFMA_INSTRUCTIONS,
    *MMA_INSTRUCTIONS,
    *WGMMA_INSTRUCTIONS,
)


def matrix_instruction(name: str, dtype: DType, scope: Scope | None = None) -> Instruction | None:
    """The instruction that a schedule's atom means for a type, if it is one of that scope; None if there is none."""
    found = (x for x in INSTRUCTIONS if (x.name, x.of) == (name, dtype))
    return next((x for x in found if scope in (None, x.scope)), None)


def product_error(name: str, dtype: DType) -> float:
    """How far a schedule's atom may be off in a product of two elements, beside what sums lose: nothing, in most."""
    found = matrix_instruction(name, dtype)
    return 0.0 if found is None else found.error


def cut_sums(name: str, dtype: DType) -> tuple[int, int] | None:
    """How many bits of what it adds up a schedule's atom keeps, and how many products it adds at a time; None where it
    keeps what its sums hold.
    """
    found = matrix_instruction(name, dtype)
    return None if found is None or not found.kept else (found.kept, found.depth)
