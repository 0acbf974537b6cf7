"""The schedules that a choice picks from: the presets, and those of `candidates.toml` beside them; and what becomes of
one where a product has K in parts, or matrices packed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from gemmgen import presets
from gemmgen.ir.sizes import REACHED
from gemmgen.schedule import Operand, Schedule
from gemmgen.schedule.epilogues import Epilogue, Registers, Staged
from gemmgen.schedule.schedulers import ClusterSplitK, OneTile, Persistent, Scheduler, SplitK, StreamK
from gemmgen.schedule.shared_memory import SharedMemory
from gemmgen.spec import GemmSpec

#: Whether A and B are packed.
Way = tuple[bool, bool]
WAYS: tuple[Way, ...] = ((False, False), (False, True), (True, False), (True, True))
Shape = tuple[int, int, int]
#: Numbers of parts of K; few, so that a process compiles few kernels.
PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128)
#: Bytes of a line of a TMA tile, which is how deep a step of warpgroups is, and of a vector.
LINE, VECTOR = 128, 16


@cache
def names() -> tuple[str, ...]:
    """Every schedule's name: the presets', then those of the file."""
    return (*presets.names(), *presets.unlisted())


#: The schedule of a name, with what it is for.
load = presets.load


@cache
def varied(name: str, parts: int = 1, packed: Way = (False, False), stream: bool = False, joined: int = 1) -> Schedule:
    """A named schedule as a product asks for it. Arguments, and what it raises: as `changed`."""
    return changed(load(name).schedule.but(name=name), parts, packed, stream, joined)


@cache
def changed(
    plain: Schedule, parts: int = 1, packed: Way = (False, False), stream: bool = False, joined: int = 1
) -> Schedule:
    """A schedule as a product asks for it, by a name that says so if it has one.

    Packed operands leave C's lines free to begin anywhere, and parts of K are no C: neither is stored by TMA, nor by
    groups that stay.

    Args:
        parts: of K, of which a cluster adds up `joined`.
        packed: whether a kernel before lays out A, and B.
        stream: whether blocks are dealt out evenly to the groups that the device runs at once.

    Raises: ScheduleError where there is no such schedule.
    """
    boxes = plain.epilogue_stages if parts == 1 and not any(packed) else 0
    stays = plain.persistent and boxes > 0
    loop, band = plain.mainloop, plain.threadblock_swizzle
    if packed != (loop.a.prepacked, loop.b.prepacked):
        # Instructions on elements of two bytes turn what lies across; of all others both operands lie along K.
        along_k = plain.by_warpgroups and plain.atom != "wgmma"
        a = _packed(plain, loop.a, packed[0], False if along_k else None)
        loop = replace(loop, a=a, b=_packed(plain, loop.b, packed[1], True if along_k else None))
        if isinstance(loop, SharedMemory) and any(packed):
            loop = replace(loop, min_blocks=loop.min_blocks or _min_blocks(plain))
    epilogue: Epilogue
    if boxes:
        epilogue = Staged(boxes, plain.ordered_epilogue and stays)
    else:
        # Work-items store the sums of a cluster as they store their own; warpgroups whole vectors of them.
        keeps = joined == plain.cluster_reduction or (joined > 1 and isinstance(loop, SharedMemory))
        epilogue = Registers(plain.c_width if keeps else 4 if joined > 1 else 1)
    scheduler: Scheduler = Persistent(band) if stays else OneTile(band)
    if stream:
        scheduler = StreamK(band)
    elif parts > 1:
        scheduler = ClusterSplitK(band, parts, joined) if joined > 1 else SplitK(band, parts)
    name = plain.name and _varied_name(plain.name, parts, packed, stream, joined)
    return Schedule(plain.tiling, loop, epilogue, scheduler, name)


def _packed(plain: Schedule, operand: Operand, packed: bool, transposed: bool | None) -> Operand:
    """An operand that a kernel before lays out, or does not. What warps read by ldmatrix keeps its padding: without it
    eight rows begin in the same bank.
    """
    if not packed:
        return replace(operand, prepacked=False)
    stored = operand.transposed if transposed is None else transposed
    return replace(operand, prepacked=True, pad=operand.pad if plain.by_warps else 0, transposed=stored)


def _min_blocks(plain: Schedule) -> int:
    """Blocks of a multiprocessor that registers are left for where a matrix is packed: with fewer addresses, 128
    registers do for 64 sums. Unpacked, kernels that were bounded so were up to a fifth slower on an H200.
    """
    (rows, cols), (high, wide) = plain.tile, plain.group
    by_copies = plain.atom == "fma" and plain.asynchronous
    return 4 if by_copies and (rows * cols, high * wide) == (64, 128) else 0


def _varied_name(name: str, parts: int, packed: Way, stream: bool, joined: int) -> str:
    for suffix in ("_split", "_joined", "_packed"):
        name = name.partition(suffix)[0]
    name += (f"_split{parts}" if parts > joined else "") + (f"_joined{joined}" if joined > 1 else "")
    which = {(True, True): "_packed", (True, False): "_packed_a", (False, True): "_packed_b"}.get(packed, "")
    return name + which + ("_stream" if stream else "")


# --- for a product's sizes ------------------------------------------------------------------------


def blocks_of(s: Schedule, shape: Shape, products: int) -> int:
    """Of C, those of a cluster all or none."""
    (m, n, _), (rows, cols), (high, wide) = shape, s.block_tile, s.cluster
    return _whole(-(-m // rows), high) * _whole(-(-n // cols), wide) * products


def reaches(s: Schedule, shape: Shape, products: int = 1) -> bool:
    """Whether indices reach all of what is packed, and of the sums of K's parts."""
    m, n, k = shape
    laid = (m, s.block_tile[0], s.a.prepacked), (n, s.block_tile[1], s.b.prepacked)
    packed = all(_whole(size, unit) * _whole(k, s.block_k) < REACHED for size, unit, packed in laid if packed)
    return packed and (s.split_k == 1 or s.split_k * m * n * products < REACHED)


def short_lines(spec: GemmSpec, shape: Shape) -> tuple[bool, bool]:
    """Whether lines of A, and of B, are shorter than a TMA tile's."""
    m, n, k = shape
    box = LINE // spec.dtype.size
    return (k if spec.a_order == "row" else m) < box, (n if spec.b_order == "row" else k) < box


def _whole(extent: int, unit: int) -> int:
    return -(-extent // unit) * unit
