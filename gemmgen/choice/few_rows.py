"""Kernels for products of few rows or few columns on GPUs of CUDA: each element of the long operand is read once and
used a few times, so that memory is what they wait for. Work-items load it directly, many loads at a time.

Which one that is follows from how the long operand lies:

- Its lines lie along K (B by columns, as a layer's weights): lanes of a warp lie along K, too, and add up their sums by
  shuffles (mainloop `Gemv`).
- Its lines lie across K: lanes lie along a line, the slices of a block and the blocks of split-K along K.

Beside these stand warps that multiply what their lanes load by matrix instructions (mainloop `DirectMma`): weights of
fewer bits, and 16-bit floats whose lines no tensor map takes, of more rows than elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice, product
from math import gcd

import numpy as np

from gemmgen.candidates import PARTS, Shape
from gemmgen.choice.columns import LINE, Numbers, as_stored, lie_along_k
from gemmgen.choice.loads import Lanes, Loads, account_of_lanes, account_of_loads
from gemmgen.choice.machine import WARP, Machine, machine_of
from gemmgen.epilogue import OPERANDS
from gemmgen.ir.copy_instructions import PAIR
from gemmgen.ir.dtypes import F32, FLOAT16, I4, I8
from gemmgen.ir.instructions import ACROSS, LINES, MMA_HIGH, MMA_WIDE
from gemmgen.ir.target import Target
from gemmgen.passes.validate import problems_as_asked
from gemmgen.schedule import Operand, Schedule
from gemmgen.schedule.warp_mma import DIRECT_LANES, LANE_DEPTH, neighbours
from gemmgen.spec import GemmSpec

#: Rows, or columns, at most; of float32 whose lines lie along K, which other kernels transpose element by element. A
#: work-item has up to so many rows.
FEW, FEW_BESIDE_TRANSPOSED, OWN_ROWS = 8, 48, 16
#: Bytes of a load, and of a line of the long operand that a block reads at least: memory gives no fewer at once.
LOAD, BURST = 16, 64
#: Times as many rows that a product has as a work-item has, at most.
FEWER = 4
#: Columns of a work-item where lanes lie along K, and warps of a block.
COLUMNS, WARPS = (1, 2, 4), (1, 2, 4, 8)
#: Lanes along a line, and slices, of a block of so many work-items at least and at most, where lanes lie across K.
LANES, SLICES, LEAST, MOST = (8, 16, 32), (8, 16, 32), 128, 512
#: Elements of the long operand that a work-item asks for at once.
AHEAD = 32
#: Blocks of a multiprocessor that parts of K are to give it.
FILLED = (1, 2, 4)
#: Rows up to which lanes load weights for matrix instructions; warps of a multiprocessor then, and of a block at least
#: and at most.
MMA_ROWS, MMA_WARPS, LEAST_WARPS, MOST_WARPS = 16, 28, 4, 16
#: Of elements as they are, whose lines begin anywhere: rows at most; columns of a lane, warps, and loads of a step that
#: are tried.
MOST_ROWS, OWN_COLUMNS, MANY_WARPS, ROUNDS = 64, (2, 4, 6, 8, 12), (4, 6, 8, 12, 16), (1, 2, 4)
#: Bytes of the short operand that a work-item holds at most: `ptxas` spills where it has more.
HELD = 256


def candidates(spec: GemmSpec, shape: Shape, target: Target, products: int = 1) -> tuple[Schedule, ...]:
    """The kernel for a product of few rows or columns as it is asked for; none where they are not few.

    Args:
        products: of a batch.
    """
    if "async_copy" not in target.features or products > 1 or spec.batched or min(shape) < 1:
        return ()
    if min(shape[:2]) > MOST_ROWS:
        return ()
    return (*_candidates(spec, shape, target, machine_of(target)), *_by_mma(spec, shape, target))


@lru_cache(maxsize=1024)
def _candidates(spec: GemmSpec, shape: Shape, target: Target, machine: Machine) -> tuple[Schedule, ...]:
    each = (ranked(spec, shape, target, machine), _lines_anywhere(spec, shape, target, machine))
    legal = ((x for x in found if not problems_as_asked(spec, x, target)) for found in each)
    return tuple(x for found in legal for x in islice(found, 1))


def ranked(spec: GemmSpec, shape: Shape, target: Target, machine: Machine) -> Iterator[Schedule]:
    """All such kernels, the cheapest by the model first; a device may refuse some."""
    (m, n, _), few = shape, min(shape[:2])
    mirrored = n < m
    along_k = lie_along_k(spec)[not mirrored]
    transposed = along_k and spec.dtype == F32 and max(m, n) >= FEW_BESIDE_TRANSPOSED
    if few > (FEW_BESIDE_TRANSPOSED if transposed else FEW):
        return
    found = tuple((_along_k if along_k else _across_k)(spec, shape, mirrored, target))
    costs = {x: sum(account_of_loads(spec, x, shape, machine).values()) for x in found}
    for loads in sorted(costs, key=lambda x: costs[x]):
        yield _schedule(loads, shape, mirrored)


@lru_cache(maxsize=1024)
def _by_mma(spec: GemmSpec, shape: Shape, target: Target) -> tuple[Schedule, ...]:
    """Weights in fewer bits by few rows: lanes make elements for a warp's matrix instructions."""
    (m, n, k), stored = shape, spec.element("b")
    if m > MMA_ROWS or stored not in (I4, I8) or spec.dtype not in FLOAT16:
        return ()
    names = [name for name in spec.operands if OPERANDS[name].of == "b"]
    taken = [OPERANDS[name] for name in names]
    # Of one row, multiply-adds that make elements one by one are hidden behind memory better than instructions of
    # matrices are.
    if m == 1 and not all(operand.dtype or "scale" in name for name, operand in zip(names, taken, strict=True)):
        return ()
    # Lanes of a line have a group of weights together, which share a scale.
    width = min([_width(spec, "b", k), *(operand.group // ACROSS for operand in taken if operand.group > 1)])
    a = Operand(width=min(8, _width(spec, "a", k)))
    if max(a.width, width) < LANE_DEPTH:  # no GPU has timed lanes that load fewer than an instruction takes
        return ()
    # More rows are loaded again for fewer columns, or take more registers: then there are half as many warps.
    tall = up(m, LINES)
    depth, own = width * ACROSS, tall * MMA_WIDE
    # Loads of less than 16 bytes are more at a time: a line of the cache of each column.
    steps = LINE // int(stored.bytes_of(depth)) // tall**2 if stored.bytes_of(width) < LOAD else 1
    blocks, warps, most = up(n, own * LINES), 1, MOST_WARPS if steps <= 1 or tall > 1 else MOST_WARPS // 2
    while 2 * warps * depth <= k and warps < most:
        if warps >= LEAST_WARPS and 3 * blocks * warps * tall > 2 * MMA_WARPS * target.cores:
            break
        warps *= 2
    steps = max(1, min(steps, k // (warps * depth)))
    schedule = Schedule.of(
        direct=True,
        atom="mma",
        tile=(MMA_HIGH * tall, own),
        group=DIRECT_LANES,
        block_k=warps * steps * depth,
        sliced_k=warps,
        a=a,
        b=Operand(width=width),
    )
    return () if problems_as_asked(spec, schedule, target) else (schedule,)


def _lines_anywhere(spec: GemmSpec, shape: Shape, target: Target, machine: Machine) -> Iterator[Schedule]:
    """B of 16-bit floats whose lines begin at no multiple of 16 bytes, so that TMA can't read them: lanes load what a
    warp multiplies. The cheapest by the model first.
    """
    (m, n, k), plain = shape, all(as_stored(spec, x) for x in "ab")
    if m > MOST_ROWS or spec.dtype not in FLOAT16 or not plain:
        return
    # Three rows by lines across K took 41 us by multiply-adds on an H200, and 50 so. No GPU has timed a single row.
    if m == 1 or (m <= FEW and not lie_along_k(spec)[1]):
        return
    if spec.ld_unit("b") * spec.dtype.size % LOAD == 0:
        return
    rows, costs, found = MMA_HIGH * up(m, LINES), list[Numbers](), list[Lanes]()
    own, warps, rounds, fills = np.array([*product(OWN_COLUMNS, MANY_WARPS, ROUNDS, (0, *FILLED))], np.float64).T
    for widths in _widths(spec):
        step = warps * rounds * (neighbours(*widths) * ACROSS)
        most = np.minimum(target.cores * fills / np.ceil(n / (own * LINES)), k / (2 * step))
        parts = np.array(PARTS, np.float64)[np.maximum(0, np.searchsorted(PARTS, most, side="right") - 1)]
        lanes = Lanes(rows, own, warps, parts, step, *widths)
        cost = np.sum([*account_of_lanes(spec, lanes, shape, machine).values()], axis=0)
        costs.append(np.where(lanes.is_held(spec), cost, np.inf))
        found.append(lanes)
    for place in np.argsort(np.concatenate(costs), kind="stable"):
        lanes, at = found[place // len(own)], place % len(own)
        if not np.isfinite(costs[place // len(own)][at]):
            return
        yield Schedule.of(
            direct=True,
            atom="mma",
            tile=(rows, int(lanes.wide[at])),
            group=DIRECT_LANES,
            block_k=int(lanes.block_k[at]),
            sliced_k=int(lanes.sliced_k[at]),
            split_k=int(lanes.split_k[at]),
            a=Operand(width=lanes.width_a),
            b=Operand(width=lanes.width_b),
        )


def _widths(spec: GemmSpec) -> Iterable[tuple[int, int]]:
    """Elements of a lane's load of A, and of B: along K as many as lines allow, or 16 bytes wherever they begin, across
    K single ones.
    """
    (by_k, b_by_k), most = lie_along_k(spec), LOAD // spec.dtype.size
    of_a, of_b = (gcd(spec.ld_unit(name), most) for name in "ab")
    width_b = of_b if b_by_k else 1
    # Where A could be loaded by more than B, lanes have no more neighbours for that.
    allowed = min(of_a, max(width_b, LANE_DEPTH)) if by_k else 1, width_b
    return dict.fromkeys((allowed, (most if by_k else 1, most if b_by_k else 1)))


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


def _short(spec: GemmSpec, rows: int, shape: Shape, mirrored: bool) -> int:
    """Elements of a load of the short operand: along K, where its lines lie so, else what divides its lines."""
    name, order = ("b", spec.b_order) if mirrored else ("a", spec.a_order)
    if (order == "col") == mirrored:
        return min(_width(spec, name, shape[2]), _held(spec, rows))
    return min(rows, _width(spec, name, min(shape[:2])))


def _rows(few: int) -> Iterator[int]:
    """Rows of a work-item."""
    most = min(OWN_ROWS, 1 << (few - 1).bit_length())
    yield from (rows for rows in (most, most // 2, most // 4) if rows and few <= FEWER * rows)


def _along_k(spec: GemmSpec, shape: Shape, mirrored: bool, target: Target) -> Iterator[Loads]:
    """Lanes along K: a block has few columns, and all of K unless there are too few blocks then."""
    few, cols, k = *sorted(shape[:2]), shape[2]
    long = "ba"[mirrored]
    load = _width(spec, long, k)
    for rows, columns, warps in product(_rows(few), COLUMNS, WARPS):
        # Sums and operands of many rows fill the registers that many warps would share.
        width = min(load, _held(spec, rows))
        own = 2 * columns if rows >= FEW and spec.dtype.size == 4 else columns
        step, many = WARP * width * warps, rows >= FEW and spec.dtype.size >= F32.size
        if warps > (WARPS[-2] if many else WARPS[-1]) or (warps > 1 and step >= 2 * k):
            continue
        # A work-item has as many bytes of each column under way, however narrow its loads are.
        most = max(1, LOAD // spec.element(long).bytes_of(load)) * (2 if rows >= FEW and own == COLUMNS[-1] else 1)
        for rounds in dict.fromkeys((1, most)):
            if rounds > 1 and step * rounds > k:
                continue
            parts = _parts(target.cores // up(cols, own), k // (2 * step * rounds))
            widths = min(width, _short(spec, rows, shape, mirrored)), width
            yield _loads((rows, own), (1, 1), WARP, warps, parts, step * rounds, widths, mirrored, spec)


def _across_k(spec: GemmSpec, shape: Shape, mirrored: bool, target: Target) -> Iterator[Loads]:
    """Lanes along a line of the cache, slices and parts along K, as many as fill the device."""
    few, cols, k = *sorted(shape[:2]), shape[2]
    stored, rows = spec.element("ba"[mirrored]), next(_rows(few))
    width = min(_width(spec, "ba"[mirrored], cols), _held(spec, rows))
    widths = _short(spec, rows, shape, mirrored), width
    for lanes, slices in product(LANES, SLICES):
        if stored.bytes_of(lanes * width) < BURST or not LEAST <= lanes * slices <= MOST:
            continue
        for own in dict.fromkeys((width, max(width, COLUMNS[-1]))):
            depth = slices * max(widths[0], AHEAD // own)
            blocks = up(cols, lanes * own)
            wanted = (1, *(target.cores * x // blocks for x in FILLED))
            for parts in dict.fromkeys(_parts(x, k // depth) for x in wanted):
                found = _loads((rows, own), (1, lanes), 1, slices, parts, depth, widths, mirrored, spec)
                # A block by itself has nothing to do while it waits.
                if found.resident > 1:
                    yield found


def _parts(wanted: int, most: int) -> int:
    """Parts of K: no more than are wanted, nor than have a step each."""
    return PARTS[max(0, bisect_right(PARTS, min(wanted, most)) - 1)]


def _loads(
    tile: tuple[int, int],
    group: tuple[int, int],
    lanes: int,
    slices: int,
    parts: int,
    block_k: int,
    widths: tuple[int, int],
    mirrored: bool,
    spec: GemmSpec,
) -> Loads:
    """What the model looks at, its rows for columns where it is mirrored."""
    by_fours = lanes > 1 and spec.dtype == I8
    if mirrored:
        tile, group, widths = tile[::-1], group[::-1], widths[::-1]
    return Loads(tile, group, lanes, slices, parts, block_k, *widths, by_fours)


def _schedule(of: Loads, shape: Shape, mirrored: bool) -> Schedule:
    """The schedule, by a name that says what it is."""
    few = min(shape[:2])
    rows, own = of.tile[::-1] if mirrored else of.tile
    short, width = (of.width_b, of.width_a) if mirrored else (of.width_a, of.width_b)
    along_k = of.lanes_along_k > 1
    vector = 1, own if along_k else width
    by = f"{of.sliced_k}x{of.block_k // (of.sliced_k * of.lanes_along_k * (width if along_k else 1))}"
    lines = "" if along_k else f"_{max(of.group)}lanes"
    said = f"{'gemv' if along_k else 'across'}_{rows}x{own}{lines}_by{by}" + (f"_rows{few}" if few > rows else "")
    said += f"_w{short}x{width}" if short != width else f"_w{width}"
    return Schedule.of(
        name=said + ("_mirrored" if mirrored else "") + (f"_split{of.split_k}" if of.split_k > 1 else ""),
        tile=of.tile,
        group=of.group,
        thread_vector=vector[::-1] if mirrored else vector,
        a=Operand(width=of.width_a),
        b=Operand(width=of.width_b),
        block_k=of.block_k,
        sliced_k=of.sliced_k,
        split_k=of.split_k,
        # Blocks of the same columns run together, so that the cache has these.
        threadblock_swizzle=up(few, rows) if few > rows and not mirrored else 0,
        **({"lanes_along_k": of.lanes_along_k} if along_k else {}),
        **({"atom": "dp4a"} if of.by_fours else {}),
    )
