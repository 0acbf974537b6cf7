"""Kernels for products of few rows or few columns on GPUs of CUDA: each element of the long operand is read once and
used a few times, so that memory is what they wait for. Work-items load it directly, many loads at a time.

Which one that is follows from how the long operand lies:

- Its lines lie along K (B by columns, as a layer's weights): lanes of a warp lie along K, too, and add up their sums by
  shuffles (mainloop `Gemv`).
- Its lines lie across K: lanes lie along a line, the slices of a block and the blocks of split-K along K.
"""

from __future__ import annotations

from functools import lru_cache

from gemmgen.candidates import PARTS, Shape
from gemmgen.ir.copy_instructions import PAIR
from gemmgen.ir.dtypes import F32, I8
from gemmgen.ir.target import Target
from gemmgen.passes.validate import problems_as_asked
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec

#: Rows, or columns, at most; of float32 whose lines lie along K, which other kernels transpose element by element. A
#: work-item has up to so many rows.
FEW, FEW_BESIDE_TRANSPOSED, OWN_ROWS = 8, 48, 16
#: Bytes of a load, and of a line of the cache.
LOAD, LINE = 16, 128
#: Work-items of a warp.
WARP = 32
#: Columns of a work-item, and warps of a block, where lanes lie along K.
COLUMNS, WARPS = 4, 8
#: Warps of a multiprocessor at least, where they make elements.
MADE = 16
#: Steps along K of which the last one would leave most of a block's warps without work.
SHORT = 4 / 3
#: Work-items of a block where they lie across K, and of a multiprocessor.
BLOCK, FULL = 256, 1024
#: Elements along K that a work-item loads before it multiplies, where lines lie across K.
AHEAD = 4
#: Bytes of the short operand that a work-item holds at most: `ptxas` spills where it has more.
HELD = 256


def candidates(spec: GemmSpec, shape: Shape, target: Target, products: int = 1) -> tuple[Schedule, ...]:
    """The kernel for a product of few rows or columns as it is asked for; none where they are not few.

    Args:
        products: of a batch.
    """
    if "async_copy" not in target.features or products > 1 or spec.batched or min(shape) < 1:
        return ()
    return _candidates(spec, shape, target) if min(shape[:2]) <= FEW_BESIDE_TRANSPOSED else ()


@lru_cache(maxsize=1024)
def _candidates(spec: GemmSpec, shape: Shape, target: Target) -> tuple[Schedule, ...]:
    m, n, k = shape
    mirrored = n < m
    order = spec.a_order if mirrored else spec.b_order
    along_k = (order == "row") == mirrored
    few = min(m, n)
    transposed = along_k and spec.dtype == F32 and max(m, n) >= FEW_BESIDE_TRANSPOSED
    if few > (FEW_BESIDE_TRANSPOSED if transposed else FEW):
        return ()
    rows = min(OWN_ROWS, 1 << (few - 1).bit_length())
    made = _along_k if along_k else _across_k
    schedule = made(spec, (rows, few), max(m, n), k, mirrored, target)
    return () if problems_as_asked(spec, schedule, target) else (schedule,)


def up(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def _width(spec: GemmSpec, name: str, line: int) -> int:
    """Elements of a load along lines of A or B, of so many, which may lie one behind the other. Those in pairs count as
    bytes.
    """
    stored = spec.element(name)
    pair = PAIR if stored.pairs else 1
    width, unit = max(1, LOAD // stored.size), up(line, pair)
    while spec.ld_unit(name) % width and unit % width:
        width //= 2
    return width * pair


def _held(spec: GemmSpec, rows: int) -> int:
    """Elements of each row of the short operand that a work-item holds at most."""
    return max(1, HELD // (rows * spec.dtype.size))


# --- lines along K --------------------------------------------------------------------------------


def _along_k(spec: GemmSpec, high: tuple[int, int], cols: int, k: int, mirrored: bool, target: Target) -> Schedule:
    """Lanes along K: a block has few columns, and all of K unless there are too few blocks then.

    Args:
        high: rows of a work-item, and of the product.
    """
    (rows, few), size, long = high, spec.dtype.size, "ba"[mirrored]
    load = _width(spec, long, k)
    width = min(load, _held(spec, rows))
    short = min(width, _short(spec, high, k, mirrored))
    # Sums and operands of eight rows fill the registers that many warps would share.
    many = rows >= FEW or (2 * rows >= FEW and size != 4)
    warps, own = WARPS // 2 if many else WARPS, 2 * COLUMNS if rows >= FEW and size == 4 else COLUMNS
    # A work-item has as many bytes of each column under way, however narrow its loads are.
    rounds = max(1, LOAD // spec.element(long).bytes_of(load)) * (2 if rows >= FEW and own == COLUMNS else 1)
    while warps > 1 and WARP * width * rounds * warps >= 2 * k:
        warps //= 2
    depth = WARP * width * rounds * warps
    if warps == WARPS and 1 < k / depth < SHORT:
        warps, depth = warps // 2, depth // 2
    while own > 1 and up(cols, own) < 2 * target.cores:
        own //= 2
    # Where elements are made, threads are busy, and fewer slices have fewer sums to add up.
    while spec.element(long) != spec.dtype and warps > 1 and up(cols, own) * warps >= 2 * MADE * target.cores:
        warps, depth = warps // 2, depth // 2
    parts = _parts(target.cores // up(cols, own), k // (2 * depth))
    return _made(
        f"gemv_{rows}x{own}_by{warps}x{rounds}" + (f"_rows{few}" if few > rows else ""),
        (rows, own),
        (1, own),
        (Operand(width=short), Operand(width=width)),
        mirrored,
        parts,
        # Blocks of the same columns run together, so that the cache has these.
        threadblock_swizzle=up(few, rows) if few > rows and not mirrored else 0,
        block_k=depth,
        sliced_k=warps,
        lanes_along_k=WARP,
        group=(1, 1),
        **({"atom": "dp4a"} if spec.dtype == I8 else {}),
    )


# --- lines across K -------------------------------------------------------------------------------


def _across_k(spec: GemmSpec, high: tuple[int, int], cols: int, k: int, mirrored: bool, target: Target) -> Schedule:
    """Lanes along a line of the cache, slices and parts along K, as many as fill the device."""
    (rows, _), long = high, "ba"[mirrored]
    width = min(_width(spec, long, cols), _held(spec, rows))
    lanes = min(WARP, max(1, LINE // spec.element(long).bytes_of(width)))
    slices = BLOCK // lanes
    short = _short(spec, high, k, mirrored)
    ahead, own = max(AHEAD, short), max(COLUMNS, width)
    blocks = up(cols, lanes * own)
    parts = _parts(target.cores * (FULL // BLOCK) // blocks, k // (slices * ahead))
    return _made(
        f"across_{rows}x{own}",
        (rows, own),
        (1, width),
        (Operand(width=short), Operand(width=width)),
        mirrored,
        parts,
        block_k=slices * ahead,
        sliced_k=slices,
        group=(1, lanes),
    )


def _short(spec: GemmSpec, high: tuple[int, int], k: int, mirrored: bool) -> int:
    """Elements of a load of the short operand: along K, where its lines lie so, else what divides its lines."""
    name, order = ("b", spec.b_order) if mirrored else ("a", spec.a_order)
    if (order == "col") == mirrored:
        return min(_width(spec, name, k), _held(spec, high[0]))
    return min(high[0], _width(spec, name, high[1]))


def _parts(wanted: int, most: int) -> int:
    """Parts of K: no more than are wanted, nor than have a step each."""
    return max((x for x in PARTS if x <= min(wanted, most)), default=1)


def _made(
    name: str,
    tile: tuple[int, int],
    vector: tuple[int, int],
    operands: tuple[Operand, Operand],
    mirrored: bool,
    parts: int,
    **others: object,
) -> Schedule:
    """The schedule, its rows for columns where it is mirrored."""
    a, b = operands[::-1] if mirrored else operands
    pairs = {"tile": tile, "thread_vector": vector, "group": others.pop("group")}
    transposed = {key: pair[::-1] if mirrored else pair for key, pair in pairs.items()}  # type: ignore[index]
    widths = f"w{a.width}x{b.width}" if a.width != b.width else f"w{a.width}"
    said = f"{name}_{widths}" + ("_mirrored" if mirrored else "") + (f"_split{parts}" if parts > 1 else "")
    return Schedule.of(name=said, a=a, b=b, split_k=parts, **transposed, **others)
