"""Which schedule with vectors a CPU computes a product by: the cheapest of some thousand, by the prior.

How deep K is cut decides the order of sums, so that is chosen for one core: the same sizes give the same bits on any
number of them. What does not depend on the sizes is listed once for a type, its layouts and a device, as arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gemmgen.checks.cpu_panel import rounds_sums
from gemmgen.cpu import prior
from gemmgen.cpu.machine import Machine, derived, machine_of
from gemmgen.cpu.prior import Panels, Shape
from gemmgen.ir.target import Target
from gemmgen.passes.validate import problems_as_asked
from gemmgen.records import dataclass
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec

#: What is assumed of sizes that are not known yet.
USUAL: Shape = (2048, 2048, 2048)
#: Tiles (rows, vectors) that leave room for a line of B and an element of A, by how many vector registers there are.
TILES = {32: ((6, 4), (12, 2), (14, 1)), 16: ((6, 2), (12, 1))}
#: More of them for a copy of B: fewer columns are left over. With A by columns they take a tenth longer than 6x64. What
#: is wider than the others is for a C that is as wide: it reads a twentieth more of B than it hides.
TILES_BESIDE_COPY = {32: ((8, 3), (5, 5)), 16: ()}
MOST_VECTORS = 4
#: Bytes of vectors from which on a CPU has 32 registers of them (AVX-512), not 16.
MANY_REGISTERS = 64
#: Tiles that a work-item computes at most, downwards and across.
DOWN, ACROSS = (4, 11, 22, 43, 86, 171, 342, 683), (1, 2, 4)
#: The same where a tile's rows of A pass all panels of B's copy before the next ones.
ACROSS_BY_ROWS = (4, 8, 16)
#: The same where tiles go down in blocks of so many, for macro-kernels much longer than those.
M_BLOCKS, DOWN_IN_BLOCKS, ACROSS_IN_BLOCKS = (8, 16), (86, 171, 342, 683), (4,)
#: The same where vectors lie along K, (rows, columns).
TILES_ALONG_K = {
    32: ((8, 1), (8, 2), (4, 3), (4, 4), (4, 6), (2, 8), (1, 8)),
    16: ((8, 1), (4, 2), (3, 3), (2, 4), (1, 6)),
}
#: How deep blocks of K are there, and up to how many columns B is transposed for it.
DEPTHS_ALONG_K, TRANSPOSED = (1024, 4096, 16384), 16
#: Of C's rows, times the tallest tile's, up to which tiles are so tall that no row is left over.
EVEN = 2
#: What vectors a tile may have where it is as tall as C, and their bytes at most: each row of B is a stream of its own
#: from memory, of which hardware fetches some lines ahead.
WIDE, WIDE_BYTES = (8, 6, 4, 3, 2, 1), 256
#: Rows of B in place at a time, where one tile is as tall as C. Rows of C up to which 16-bit floats are in parts of K
#: for it.
FEW_LINES, FEW_ROWS = (8, 16), 5
#: Rows of C up to which the first tile of a column may copy B: more of them hide a copy of all panels, whose loop over
#: K is written out. And bytes of B, as many as its pages of 4 KiB have addresses kept: its lines of a tile are a page
#: each, and wait for those of other pages.
MOST_FUSED, MOST_FUSED_BYTES = 200, 2048 * 4096
#: How deep blocks of K are; a K up to the next number goes at once. What is shallow is copied only to be transposed.
DEPTHS, AT_ONCE, SHALLOW = (256, 512, 1024), 1024, 32
#: K is cut into parts of at least this depth where C has few tiles.
LONG, FEW_TILES, MOST_PARTS = 8192, 16, 16
#: Steps of K in an iteration beside a copy of B; how many steps ahead lines of B in place are prefetched, and those
#: that the first tile of a column copies.
WRITTEN_OUT, B_PREFETCH, FUSED_PREFETCH = 4, 8, 16
#: Where B comes from.
IN_PLACE, COPIED = Operand(), Operand(memory="private")


class _Form(NamedTuple):
    """A tile and how its operands are read: what decides whether a target can run a schedule."""

    tile: tuple[int, int]
    vector: int
    copied: bool
    split: int
    dot: bool = False
    fused: bool = False

    def schedule(self, **more: object) -> Schedule:
        """With some fields more."""
        own = {"tile": self.tile, "vector": self.vector, "split_k": self.split, "dot_product": self.dot}
        own["fused_copy"] = self.fused
        given: dict[str, object] = {"kc": self.vector if self.dot else 1, **own, **more}
        return Schedule.of(name=None, group=(1, 1), b=COPIED if self.copied else IN_PLACE, **given)


class _Sizes(NamedTuple):
    """All of the sizes that candidates themselves depend on, so that few lists of them serve all sizes."""

    m: int
    n: int
    k: int
    parts: int

    @classmethod
    def of(cls, spec: GemmSpec, shape: Shape, target: Target, parts: int) -> _Sizes:
        (m, n, k), widest = shape, target.vector_bytes // spec.accumulator.size
        if n > widest:  # whole vectors, and whether there is a part of one
            n = n // widest * widest + (n % widest > 0)
        tiles = *_tiles_in_place(m, target), *TILES_BESIDE_COPY[_registers(target)]
        most = max(vectors for _, vectors in tiles) * widest + 1
        bounds = sorted({widest - 1, SHALLOW, *DEPTHS, AT_ONCE, *DEPTHS_ALONG_K})
        depth = next((bound for bound in bounds if k <= bound), bounds[-1] + 1)
        return cls(min(m, EVEN * _tallest(target) + 1), min(n, most), depth, parts)


@dataclass(frozen=True)
class _Candidates:
    """Schedules as arrays.

    Attributes:
        forms, form: those that there are, and the number of each candidate's.
        more_down, more_across: tiles that C must have more than, for the lengths of a macro-kernel to be useful.
        fewest: K at least.
        order: a number for each order of sums.
    """

    forms: tuple[_Form, ...]
    panels: Panels
    form: npt.NDArray[np.intp]
    more_down: prior.Numbers
    more_across: prior.Numbers
    least_k: prior.Numbers
    order: prior.Numbers

    def useful(self, spec: GemmSpec, shape: Shape) -> _Candidates:
        """Those for a shape."""
        m, n, k = shape
        tiles = np.ceil(m / self.panels.rows), np.ceil(n / self.panels.cols)
        which = (tiles[0] > self.more_down) & (tiles[1] > self.more_across) & (k >= self.least_k)
        may_fuse = m <= MOST_FUSED and n * k * spec.dtype.size <= MOST_FUSED_BYTES
        which &= (self.panels.fused == 0) | may_fuse
        return self.take(which)

    def take(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> _Candidates:
        """Some of them."""
        return _Candidates(
            self.forms,
            self.panels.take(which),
            self.form[which],
            self.more_down[which],
            self.more_across[which],
            self.least_k[which],
            self.order[which],
        )

    def schedule(self, at: int, spec: GemmSpec, shape: Shape, target: Target) -> Schedule:
        """One of them, for a shape."""
        p = self.panels
        form, kc = self.forms[int(self.form[at])], int(p.kc[at])
        return form.schedule(
            macro_kernel=(int(p.down[at]), int(p.across[at])),
            grid_multiple=(int(p.even_down[at]), int(p.even_across[at])),
            kc=kc,
            mc=int(p.mc[at]),
            block_k=_steps(spec, form, min(shape[2], kc)),
            b_prefetch=_ahead(spec, form, shape, kc, target),
        )


def _steps(spec: GemmSpec, form: _Form, depth: int) -> int:
    """Steps of K in an iteration beside a copy of B. Where A is by columns or converted, they stay apart: compilers
    load neighbours of several as one vector, to shuffle them.
    """
    is_ready = form.copied and not form.dot and not form.fused
    by_lines = spec.a_order == "row" and spec.element("a") == spec.accumulator
    return WRITTEN_OUT if is_ready and by_lines and depth >= WRITTEN_OUT else 1


def _ahead(spec: GemmSpec, form: _Form, shape: Shape, kc: int, target: Target) -> int:
    """How many steps of K ahead lines of B in place are prefetched, where it is large or a tile copies it as it
    multiplies: hardware fetches no line ahead that is a row further. It follows a few rows at a time.
    """
    is_in_place = not form.copied and not form.dot and kc not in FEW_LINES
    is_large = shape[1] * shape[2] * spec.dtype.size > derived(target).second / 2
    if "cache_prefetch" not in target.features:
        return 0
    return FUSED_PREFETCH if form.fused else B_PREFETCH if is_in_place and is_large else 0


# --- the choice -----------------------------------------------------------------------------------


def choose_panels(spec: GemmSpec, shape: Shape | None, target: Target) -> Schedule | None:
    """The schedule for a product on a CPU; None where the target is none, or vectors can't compute the product."""
    if "vectors" not in target.features:
        return None
    known = (spec.m, spec.n, spec.k)
    m, n, k = (size or asked for size, asked in zip(known, shape or USUAL, strict=True))
    return _choose(_free(spec), (m, n, k), target, machine_of(target))


@lru_cache(maxsize=256)
def _choose(spec: GemmSpec, shape: Shape, target: Target, machine: Machine) -> Schedule | None:
    found = _candidates(spec, _Sizes.of(spec, shape, target, _parts(spec, shape)), target).useful(spec, shape)
    costs = prior.cycles(spec, found.panels, shape, machine)
    if not costs.size:
        return None
    # The first of equal costs, in an order of the candidates' own.
    alone = found.panels.cores == 1
    order = found.order[np.argmin(np.where(alone, costs, np.inf))]
    wanted = (found.panels.cores == target.cores) & (found.order == order)
    return found.schedule(int(np.argmin(np.where(wanted, costs, np.inf))), spec, shape, target)


def liked(spec: GemmSpec, shape: Shape, target: Target, count: int) -> list[Schedule]:
    """The cheapest by the model, of each tile, depth, way to B and sharing out the cheapest alone."""
    found, costs = _with_costs(spec, shape, target, target.cores, _parts(spec, shape), machine_of(target))
    kinds: dict[tuple[float, ...], int] = {}
    p = found.panels
    for at in np.argsort(costs, kind="stable"):
        kind = float(found.form[at]), p.kc[at], p.even_down[at], p.even_across[at]
        kinds.setdefault(kind, int(at))
    return [found.schedule(at, spec, shape, target) for at in list(kinds.values())[:count]]


def by_order(spec: GemmSpec, shape: Shape, target: Target, cores: int, rows: int) -> Iterator[tuple[float, Schedule]]:
    """The cheapest of each order of sums, each with its cycles. Parts of K are those of a C of so many rows.

    What was measured decides nothing here: an order holds before a calibration and after it.
    """
    found, costs = _with_costs(spec, shape, target, cores, _parts(spec, (rows, *shape[1:])), derived(target))
    seen: set[tuple[float, float]] = set()
    for at in np.argsort(costs, kind="stable"):
        kind = float(found.order[at]), found.panels.copied[at]
        if kind not in seen:
            seen.add(kind)
            yield float(costs[at]), found.schedule(int(at), spec, shape, target)


def cycles(spec: GemmSpec, schedules: Sequence[Schedule], shape: Shape, target: Target) -> prior.Numbers:
    """What the busiest core takes for a product by each schedule."""
    return prior.cycles(spec, prior.panels(schedules, target.cores), shape, machine_of(target))


def account(spec: GemmSpec, s: Schedule, shape: Shape, target: Target) -> dict[str, float]:
    """The cycles of the busiest core, by what they go to."""
    found = prior.account(spec, prior.panels([s], target.cores), shape, machine_of(target))
    return {name: float(part[0]) for name, part in found.items()}


def _with_costs(
    spec: GemmSpec, shape: Shape, target: Target, cores: int, parts: int, machine: Machine
) -> tuple[_Candidates, prior.Numbers]:
    """The candidates for so many cores."""
    spec, target = _free(spec), replace(target, cores=cores) if cores != target.cores else target
    found = _candidates(spec, _Sizes.of(spec, shape, target, parts), target).useful(spec, shape)
    found = found.take(found.panels.cores == cores)
    return found, prior.cycles(spec, found.panels, shape, machine)


def _free(spec: GemmSpec) -> GemmSpec:
    """The spec without its sizes, which decide nothing about what a target can run."""
    return replace(spec, m=None, n=None, k=None)


# --- candidates -----------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _candidates(spec: GemmSpec, sizes: _Sizes, target: Target) -> _Candidates:
    """All that are worth a thought, and that the target can run: for one core, and for all that it has."""
    forms: list[_Form] = []
    tables, parts = [np.empty((0, 5 + 14))], sizes.parts
    orders: dict[tuple[int, int], int] = {}
    evens = np.array([(*even, cores) for even, cores in _evens(target.cores)])
    for form, depths in (*_of_columns(spec, sizes, target), *_along_k(spec, sizes, target)):
        depths = depths if _holds_sums(spec, parts) else (0,) if not form.copied else ()
        if not depths or not _is_possible(spec, form, 0 in depths, target):
            continue
        kernels = _kernels(sizes.m <= form.tile[0], form.copied, form.dot, form.fused)
        numbers = [orders.setdefault((depth, form.vector if form.dot else 1), len(orders)) for depth in depths]
        found = np.indices((len(kernels), len(depths), len(evens))).reshape(3, -1)
        (mc, down, across, *more), depth, order = kernels[found[0]].T, np.array(depths)[found[1]], found[1]
        block = depth * (1 if form.fused else across) * form.tile[1] * spec.accumulator.size
        own = np.broadcast_to((*form.tile, form.vector, form.copied, form.dot), (len(mc), 5)).T
        *even, cores = evens[found[2]].T
        least = (depth + 1) * ((depth > 0) & (not form.copied))
        first = np.full(len(mc), len(forms)), *more, least, np.array(numbers)[order]
        last = depth, mc, np.full(len(mc), form.split), cores, np.full(len(mc), form.fused)
        rows = np.stack([*first, *own, down, across, *even, *last], axis=1)
        tables.append(rows[(block <= target.private_bytes) | (not form.copied)])
        forms.append(form)
    table = np.concatenate(tables).astype(np.float64)
    at, down, across, least, order = table.T[:5].copy()
    return _Candidates(tuple(forms), Panels.of(table[:, 5:]), at.astype(np.intp), down, across, least, order)


def _of_columns(spec: GemmSpec, sizes: _Sizes, target: Target) -> Iterator[tuple[_Form, tuple[int, ...]]]:
    """Vectors of neighbouring columns: tiles, ways to B, and how deep blocks of K can be."""
    m, n, k, parts = sizes
    by_lines = spec.b_order == "row"
    # Deeper than K is needless, but a copy has to say how deep it is at most.
    enough = next((depth for depth in DEPTHS if depth >= k), DEPTHS[-1])
    depths = (*((0,) if by_lines and k <= AT_ONCE else ()), *(depth for depth in DEPTHS if depth <= enough))
    widest, fitting = target.vector_bytes // spec.accumulator.size, _lanes(spec, n, target)
    beside_copy = _tiles(m, TILES_BESIDE_COPY, target) if spec.a_order == "row" else []
    beside_copy = [tile for tile in beside_copy if tile[1] <= MOST_VECTORS or tile[1] == _up(n, widest)]
    ways = dict.fromkeys([*product(_tiles_in_place(m, target), (False, True)), *((tile, True) for tile in beside_copy)])
    seen: set[tuple[int, int, bool, int]] = set()
    for ((rows, vectors), copied), lanes in product(ways, {fitting: 0, widest: 0}):
        # In place, a C narrower than a tile goes the slow way; a copy has no edges.
        vectors = min(vectors, max(1, _up(n, lanes) if copied else n // lanes))
        if lanes > fitting and not copied:
            continue
        if (by_lines and copied and k <= SHALLOW) or not (copied or by_lines):
            continue
        if (way := (rows, vectors, copied, lanes)) in seen:
            continue
        seen.add(way)
        few = FEW_LINES if m <= _tallest(target) and not copied else ()
        if spec.c_order == "col" and by_lines and not copied:
            few = (0, *few)  # what waits in C goes there and back an element at a time
        kept = tuple(dict.fromkeys(depth for depth in (*few, *depths) if depth or not copied))
        yield _Form((rows, vectors * lanes), lanes, copied, parts), kept
        if copied and by_lines and rows < m and vectors * lanes <= n:
            yield _Form((rows, vectors * lanes), lanes, copied, parts, fused=True), kept


def _along_k(spec: GemmSpec, sizes: _Sizes, target: Target) -> Iterator[tuple[_Form, tuple[int, ...]]]:
    """The same of vectors along K, for which B that has lines is transposed by a copy."""
    m, n, k, parts = sizes
    lanes, transposed = target.vector_bytes // spec.accumulator.size, spec.b_order == "row"
    if k < lanes or (transposed and n > TRANSPOSED):
        return
    enough = next((depth for depth in DEPTHS_ALONG_K if depth >= k), DEPTHS_ALONG_K[-1])
    depths = tuple(depth for depth in DEPTHS_ALONG_K if depth <= enough)
    for rows, cols in TILES_ALONG_K[_registers(target)]:
        tile = _even(m, rows, EVEN * _tallest(target)), _even(n, cols, lanes)
        yield _Form(tile, lanes, transposed, parts, dot=True), depths if transposed else (0, *depths)


@cache
def _kernels(is_one_row: bool, copied: bool, dot: bool, fused: bool) -> npt.NDArray[np.intp]:
    """Tiles of a column before those right of them, tiles of a work-item at most along rows and columns, and how many
    of each C must have more for that; a row each. Where B is read in place, and once, work-items are wide, so that
    neighbouring tiles find pages and the ends of lines.
    """
    found: list[tuple[int, int, int, int, int]] = []
    wide = DOWN if is_one_row else DOWN[1:] if fused else ACROSS
    for (down, more_down), (across, more_across) in product(_after(DOWN), _after(wide)):
        found.append((0, down, across, more_down, more_across))
    if dot or (copied and not is_one_row and not fused):
        lengths = DOWN if is_one_row else (1, *ACROSS_BY_ROWS) if dot else ACROSS_BY_ROWS
        for (down, more_down), (across, more_across) in product(_after(DOWN), _after(lengths)):
            found.append((1, down, across, max(1, more_down), max(1, more_across)))
    if copied and not dot and not fused:
        for mc, (down, more), across in product(M_BLOCKS, _after(DOWN_IN_BLOCKS), ACROSS_IN_BLOCKS):
            found.append((mc, down, across, max(M_BLOCKS[0], more), 0))
    return np.array(found)


def _after(lengths: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Each with the one before."""
    return zip(lengths, (0, *lengths), strict=False)


def _holds_sums(spec: GemmSpec, parts: int) -> bool:
    """Whether what is stored between blocks of K has all digits of the sums: C, or the workspace of K's parts."""
    return parts > 1 or not rounds_sums(spec)


@lru_cache(maxsize=4096)
def _is_possible(spec: GemmSpec, form: _Form, at_once: bool, target: Target) -> bool:
    return not problems_as_asked(spec, form.schedule(kc=0) if at_once else form.schedule(), target)


def _evens(cores: int) -> tuple[tuple[tuple[int, int], int], ...]:
    """What numbers of work-items are multiples of, for one core and for several."""
    one: tuple[tuple[int, int], int] = ((1, 1), 1)
    return (one,) if cores == 1 else (one, ((cores, 1), cores), ((1, cores), cores), ((1, 1), cores))


def _registers(target: Target) -> int:
    return 32 if target.vector_bytes >= MANY_REGISTERS else 16


def _tiles_in_place(m: int, target: Target) -> tuple[tuple[int, int], ...]:
    """Rows and vectors of tiles; where C has few rows also tiles as tall, with what vectors registers have room for."""
    registers = _registers(target)
    wide = [width for width in WIDE if width * target.vector_bytes <= WIDE_BYTES]
    own = [(m, width) for width in wide if m <= _tallest(target) and width * (m + 1) < registers]
    return tuple(dict.fromkeys([*_tiles(m, TILES, target), *own]))


def _tiles(m: int, tiles: dict[int, tuple[tuple[int, int], ...]], target: Target) -> list[tuple[int, int]]:
    """Those for a target's registers, where C has few rows no taller than that each has as many."""
    few = EVEN * _tallest(target)
    return [(_even(m, rows, few), vectors) for rows, vectors in tiles[_registers(target)]]


def _even(size: int, unit: int, few: int) -> int:
    """Of few things the part that each of as many units takes, with the least left over."""
    return unit if size > few else _up(size, _up(size, unit))


def _tallest(target: Target) -> int:
    """Rows of a tile at most."""
    return max(rows for rows, _ in TILES[_registers(target)])


def _lanes(spec: GemmSpec, n: int, target: Target) -> int:
    """Elements of a vector: as wide as the target's, unless C is narrower."""
    lanes = target.vector_bytes // spec.accumulator.size
    while lanes > 2 and lanes > n:
        lanes //= 2
    return lanes


def _parts(spec: GemmSpec, shape: Shape) -> int:
    """Parts of K, by the sizes, types and orders alone, since the order of sums depends on them."""
    m, n, k = shape
    fewest = 2 if rounds_sums(spec) and k > _in_registers(spec, m) else 1
    tiles = _up(m, 6) * _up(n, 64)
    return fewest if tiles >= FEW_TILES else max(fewest, min(MOST_PARTS, k // LONG))


def _in_registers(spec: GemmSpec, m: int) -> int:
    """How deep K may be for sums to stay in registers along all of it, where C would round them between blocks of K.
    Those of a deeper K wait in the workspace of parts.
    """
    if spec.a_order == spec.b_order == "col":
        return SHALLOW  # B must be copied in blocks
    return AT_ONCE if m <= FEW_ROWS and spec.b_order == "row" else 2 * AT_ONCE


def _up(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)
