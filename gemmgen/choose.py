"""Which schedule computes a product where none is named. One function, for every place that has to choose.

Where a cost model knows the device and the types, it chooses by the sizes: for CPUs `gemmgen.cpu`, for GPUs of CUDA
the prior (`gemmgen.choice`). For other types and devices, and where sizes are not known, it is the first row of `MENU`
that the product's types, layouts and assumptions allow on the target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache

from gemmgen import candidates
from gemmgen.candidates import PARTS, WAYS, Shape, Way, blocks_of, reaches
from gemmgen.cpu.panels import USUAL, choose_panels
from gemmgen.errors import ScheduleError
from gemmgen.invariant import USUAL_ROWS, choose_by_model, problem, reference
from gemmgen.ir.dtypes import C64, C128, F64, FLOAT8, FLOAT16, I8, DType
from gemmgen.ir.target import BLOCK_FEATURES, Target
from gemmgen.options import build_schedule
from gemmgen.passes.validate import is_possible, validate
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.sum_order import sum_order

#: m, n and k, as far as they are known.
Sizes = tuple[int | None, int | None, int | None]

#: For products of few elements, whose time is that of the call: one kernel for all of them, compiled once.
SMALL_PRESET = "naive_16x16"
#: Multiply-adds, counted for whole groups of that preset, up to which a product is small beside vectors. 13 us there,
#: as many as a kernel with vectors takes; at 64^3 23 and 14, at 128^3 180 and 31 (Intel's runtime, 12 us a call).
SMALL_BESIDE_VECTORS = 32**3
#: Rows of C up to which a tile of several rows is mostly empty: those of a group of that preset.
FEW_ROWS = 16
#: Rounds of the main loop that a part of K has at least: fewer would not fill the ring.
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Offer:
    """A row of the menu.

    Attributes:
        named: the schedule (`gemmgen.candidates`), or what it starts from.
        dtypes: of A and B, of the products that it is for; empty for all.
        needs: features of the targets that it is for.
        sets: the fields that differ from the named one's, as `--set` writes them.
        largest: m, n and k at most; 0 for any sizes, known or not.
        rows: m at most; 0 for any.
        packs: whether matrices may be packed for it, and C may be stored by threads instead of TMA.
    """

    named: str
    dtypes: tuple[DType, ...] = ()
    needs: frozenset[str] = frozenset()
    sets: tuple[str, ...] = ()
    largest: int = 0
    rows: int = 0
    packs: bool = True

    def suits(self, spec: GemmSpec, sizes: Sizes, target: Target) -> bool:
        """Whether it is for such products on such a target. Whether it can be had, `is_possible` says."""
        limits = (self.rows or self.largest, self.largest, self.largest)
        fits = all(not most or (size is not None and size <= most) for size, most in zip(sizes, limits, strict=True))
        return fits and self.needs <= target.features and (not self.dtypes or spec.dtype in self.dtypes)


_WARPGROUP, _WARP, _ASYNC = frozenset({"wgmma"}), frozenset({"mma"}), frozenset({"async_copy"})
_CPU = frozenset({"vectors"})
#: What computes products that no cost model knows, the best first. Of each row the plain schedule is tried first, then
#: with C stored by threads, where its lines begin anywhere, then with B, with A and with both packed: packing serves
#: lines that begin anywhere, orders that an instruction does not take, and prologues.
MENU: tuple[Offer, ...] = (
    Offer(SMALL_PRESET, largest=32),
    # A CPU, of what its vectors don't compute: complex numbers and prologues. Its compiler makes vectors of work-items,
    # and soon, where these are short.
    Offer(SMALL_PRESET, (C64, C128), _CPU),
    Offer(SMALL_PRESET, needs=_CPU, rows=FEW_ROWS),
    Offer("vec4_4x4", needs=_CPU),
    # Block reads of Intel's sub-groups.
    Offer("L3_SIMD_32x2_1x8", needs=BLOCK_FEATURES),
    Offer("sg16_block_16x2_k32", needs=BLOCK_FEATURES),
    # Tensor cores, by warpgroups. Only A from registers can be converted from what it is stored in, or B where operands
    # are swapped.
    Offer("wgmma_128x256_s4", FLOAT16, _WARPGROUP),
    Offer("wgmma_128x256_s4", FLOAT16, _WARPGROUP, ("a.memory=private",), packs=False),
    Offer(
        "wgmma_128x256_s4",
        FLOAT16,
        _WARPGROUP,
        ("tile=64x2", "group=4x64", "epilogue_stages=0", "b.memory=private"),
        packs=False,
    ),
    Offer("wgmma_f8_128x256_s4", FLOAT8, _WARPGROUP),
    Offer("wgmma_s8_128x256_s4", (I8,), _WARPGROUP),
    # Tensor cores, by warps.
    Offer("mma_8x16_16x8", FLOAT16, _WARP),
    Offer("mma_f8_8x16_16x8", FLOAT8, _WARP),
    Offer("mma_s8_8x16_16x8", (I8,), _WARP),
    Offer("mma_f64_4x8_16x8", (F64,), _WARP),
    # Multiply-adds of single work-items. Sums of 16 bytes, complex128's, are too many for a GPU's registers by 8x8.
    Offer("async_8x8_8x16", needs=_ASYNC),
    Offer("lds_8x8_16x16_k8"),
    Offer("lds_8x8_16x16_k8", sets=("tile=4x4", "thread_vector=4x4")),
)


def choose(spec: GemmSpec, shape: Shape | None, device: Target, products: int = 1, invariant: bool = False) -> Schedule:
    """The schedule for a product.

    Args:
        shape: m, n and k where they are known.
        device: a real one's limits and features.
        products: of a batch.
        invariant: whether a row of C has the same bits whatever m and the number of products: all schedules for one n
            and k then have one order of sums. Nothing is rounded to TF32 then.

    Raises: ScheduleError where not even the most portable one will do.
    """
    if invariant and spec.accumulator.is_float:
        spec = replace(spec, allow_tf32=False)
        return _in_one_order(spec, _sizes(spec, shape), device)
    return by_sizes(spec, shape, device, products) or _of_menu(spec, _sizes(spec, shape), device, products)


@lru_cache(maxsize=1024)
def is_faster_in_two(spec: GemmSpec, shape: Shape, device: Target, products: int = 1) -> bool:
    """Whether a gated product takes less time as two products, the second of which reads what the first has stored: by
    the cost model, or where the schedule of these can't keep both sums in one thread.

    Args:
        shape: of the product; n is all columns of B.
    """
    half, (m, n, k) = replace(spec, epilogue=()), shape
    if "async_copy" in device.features:
        from gemmgen.choice.epilogue import work
        from gemmgen.choice.gpu import ranked
        from gemmgen.choice.machine import machine_of

        machine = machine_of(device)
        applied = work(spec) / machine.cores / machine.clock + spec.result.size / machine.memory
        asked = (spec, shape), (half, (m, n // 2, k))
        one, two = (next((us for us, _ in ranked(x, sizes, device, products)), None) for x, sizes in asked)
        if one is not None and two is not None:
            return one > 2 * two + products * m * n // 2 * applied
    return not is_possible(spec, choose(half, (m, n // 2, k), device, products), device)


def by_sizes(spec: GemmSpec, shape: Shape | None, device: Target, products: int = 1) -> Schedule | None:
    """What a cost model chooses for sizes, the spec's or the shape's; None where there is none for the device and the
    types, or where it would have to know more of the sizes.
    """
    m, n, k = _sizes(spec, shape)
    if "vectors" not in device.features:
        if m is None or n is None or k is None or "async_copy" not in device.features:
            return None
        from gemmgen.choice.gpu import choose_for_gpu

        return choose_for_gpu(spec, (m, n, k), device, products)
    if m is not None and n is not None and k is not None and _is_small_beside_vectors(m, n, k, products):
        small = candidates.load(SMALL_PRESET).schedule
        if is_possible(spec, small, device):
            return small
    return choose_panels(spec, shape, device)


def _in_one_order(spec: GemmSpec, sizes: Sizes, device: Target) -> Schedule:
    """The schedule with the order of sums that follows from all but m. Raises: ScheduleError where none has it."""
    m, n, k = (max(1, size or usual) for size, usual in zip(sizes, USUAL, strict=True))
    found = choose_by_model(spec, (m, n, k), device)
    if found is not None:
        return found
    usual = USUAL_ROWS, sizes[1], sizes[2]
    order = sum_order(_of_menu(reference(spec), usual, device, 1), k)
    for offer in MENU:
        for schedule in _ways(offer, usual, device, 1) if offer.suits(spec, usual, device) else ():
            if sum_order(schedule, k) == order and is_possible(spec, schedule, device):
                return schedule
    assert order is not None
    raise ScheduleError(problem(order, (m, n, k)))


def _sizes(spec: GemmSpec, shape: Shape | None) -> Sizes:
    """The spec's, and what it leaves open as the shape has it."""
    m, n, k = shape or (None, None, None)
    return spec.m or m, spec.n or n, spec.k or k


def _is_small_beside_vectors(m: int, n: int, k: int, products: int) -> bool:
    rows, cols = candidates.load(SMALL_PRESET).schedule.group
    return products * (-(-m // rows) * rows) * (-(-n // cols) * cols) * max(1, k) <= SMALL_BESIDE_VECTORS


@lru_cache(maxsize=1024)
def _of_menu(spec: GemmSpec, sizes: Sizes, device: Target, products: int) -> Schedule:
    """The first one that will do. Raises: ScheduleError with what the last one lacks."""
    for offer in MENU:
        if offer.suits(spec, sizes, device):
            for schedule in _ways(offer, sizes, device, products):
                if is_possible(spec, schedule, device):
                    return schedule
    last = _made(MENU[-1], WAYS[0])
    validate(spec, last, device)
    return last


def _ways(offer: Offer, sizes: Sizes, device: Target, products: int) -> Iterator[Schedule]:
    """An offer by each way of storing C and of laying matrices out."""
    for way in WAYS if offer.packs else WAYS[:1]:
        yield from _in_parts(offer, way, sizes, device, products)
        plain = _made(offer, way)
        if offer.packs and plain.epilogue_stages:
            yield plain.but(epilogue_stages=0, name=None)


def _in_parts(offer: Offer, way: Way, sizes: Sizes, device: Target, products: int) -> Iterator[Schedule]:
    """With K in as many parts as C leaves the device idle, where that leaves every part some rounds of the main loop;
    then as one.
    """
    m, n, k = sizes
    plain = _made(offer, way)
    if m is None or n is None or k is None or offer.largest or "vectors" in device.features:
        yield plain
    elif reaches(plain, (m, n, k)):
        deepest, idle = k // (ROUNDS * plain.round_depth), device.cores // blocks_of(plain, (m, n, k), products)
        parts = max((x for x in PARTS if x <= min(deepest, idle)), default=1)
        if parts > 1 and reaches(split := _made(offer, way, parts), (m, n, k), products):
            yield split
        yield plain


@cache
def _made(offer: Offer, way: Way, parts: int = 1) -> Schedule:
    schedule = candidates.varied(offer.named, parts, way)
    return build_schedule(sets=offer.sets, base=schedule) if offer.sets else schedule
