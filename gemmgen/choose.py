"""Which schedule computes a product where none is named. One function, for every place that has to choose."""

from __future__ import annotations

from dataclasses import replace

from gemmgen import presets
from gemmgen.ir.dtypes import FLOAT8
from gemmgen.ir.target import BLOCK_FEATURES, Target
from gemmgen.ir.warp_matrix import warp_atom
from gemmgen.passes.validate import is_possible, validate
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.sweeps import choose_sweep
from gemmgen.tiles import choose_tiles

#: For devices whose sub-groups read blocks.
BLOCK_PRESET = "L3_SIMD_32x2_1x8"
#: For those with asynchronous copies, where sizes or types are none that the model knows.
ASYNC_PRESET = "async_8x8_8x16"
#: For those with matrix instructions of a warp that have the types' own.
MATRIX_PRESET = "mma_8x16_16x8"
#: For 8-bit floats, which nothing else multiplies, of any size: both operands along K by tensor maps; laid out so
#: before; by warps.
FLOAT8_PRESETS = ("wgmma_f8_128x256_s4_turns", "wgmma_f8_128x256_s4_packed", "mma_f8_8x16_16x8")
#: For all others, and for what the first two refuse.
PORTABLE_PRESET = "lds_8x8_16x16_k8"
#: For products of few elements, whose time is that of the call: one kernel for all of them, compiled once.
SMALL_PRESET = "naive_16x16"
#: Multiplications up to which a product is small: tilings are no faster there, and take longer to compile.
SMALL = 128**3
#: The same where vectors can be had, counted as that preset makes them: for its whole groups. 13 us there, as many as a
#: kernel with vectors takes; at 64^3 23 and 14, at 128^3 180 and 31 (Intel's runtime, 12 us a call).
SMALL_BESIDE_VECTORS = 32**3


def choose(spec: GemmSpec, shape: tuple[int, int, int] | None, device: Target, products: int = 1) -> Schedule:
    """The schedule for a product.

    Args:
        shape: m, n and k where they are known.
        device: a real one's limits and features.
        products: of a batch.

    Raises: ScheduleError where not even the most portable one will do.
    """
    if spec.dtype in FLOAT8:
        of_any_size = tuple(presets.load(name).schedule for name in FLOAT8_PRESETS)
        return choose_tiles(spec, shape, device, products) or _first_of(of_any_size, spec, device)
    return by_sizes(spec, shape, device, products) or _for_any_size(spec, device)


def by_sizes(spec: GemmSpec, shape: tuple[int, int, int] | None, device: Target, products: int = 1) -> Schedule | None:
    """What is chosen for sizes, the spec's or the shape's: where they are small one kernel for all, else what a cost
    model says: of CPUs `gemmgen.sweeps`, of GPUs of CUDA `gemmgen.tiles`. None where there is no model.
    """
    known = (spec.m, spec.n, spec.k)
    m, n, k = (size or asked for size, asked in zip(known, shape or (None, None, None), strict=True))
    if m is not None and n is not None and k is not None and _is_small(m, n, k, products, device):
        small = presets.load(SMALL_PRESET).schedule
        if is_possible(spec, small, device):
            return small
    return choose_sweep(spec, shape, device) or choose_tiles(spec, shape, device, products)


def _is_small(m: int, n: int, k: int, products: int, device: Target) -> bool:
    if "vectors" not in device.features:
        return products * m * n * k <= SMALL
    rows, cols = presets.load(SMALL_PRESET).schedule.group
    return products * (-(-m // rows) * rows) * (-(-n // cols) * cols) * max(1, k) <= SMALL_BESIDE_VECTORS


def _for_any_size(spec: GemmSpec, device: Target) -> Schedule:
    """By the device's features. Raises: ScheduleError."""
    if device.features >= BLOCK_FEATURES:
        wanted = BLOCK_PRESET
    elif "mma" in device.features and warp_atom("mma", spec.dtype) is not None:
        wanted = MATRIX_PRESET
    elif "async_copy" in device.features:
        wanted = ASYNC_PRESET
    else:
        wanted = PORTABLE_PRESET
    portable = presets.load(PORTABLE_PRESET).schedule
    # Sums of 16 bytes, complex128's, are too many for a GPU's registers by the usual tiles.
    smaller = replace(portable, tile=(4, 4), run=(4, 4), name=None)
    return _first_of((presets.load(wanted).schedule, portable, smaller), spec, device)


def _first_of(schedules: tuple[Schedule, ...], spec: GemmSpec, device: Target) -> Schedule:
    """The first one that will do. Raises: ScheduleError with what the last one lacks."""
    for schedule in schedules[:-1]:
        if is_possible(spec, schedule, device):
            return schedule
    schedule = schedules[-1]
    validate(spec, schedule, device)
    return schedule
