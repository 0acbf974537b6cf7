"""Which schedule computes a product where none is named. One function, for every place that has to choose."""

from __future__ import annotations

from dataclasses import replace

from gemmgen import presets
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import FLOAT8
from gemmgen.ir.target import Target
from gemmgen.ir.warp_matrix import warp_atom
from gemmgen.passes.validate import validate
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.sweeps import choose_sweep
from gemmgen.waves import choose_tiles

#: For devices whose sub-groups read blocks.
BLOCK_PRESET = "L3_SIMD_32x2_1x8"
#: For those with asynchronous copies, where sizes or types are none that the model knows.
ASYNC_PRESET = "async_8x8_8x16"
#: For those with matrix instructions of a warp that have the types' own.
MATRIX_PRESET = "mma_8x16_16x8"
#: For 8-bit floats, which nothing else multiplies: both operands along K by tensor maps; laid out so before; by warps.
FLOAT8_PRESETS = ("wgmma_f8_128x256_s4", "wgmma_f8_128x256_s4_packed", "mma_f8_8x16_16x8")
#: For all others, and for what the first two refuse.
PORTABLE_PRESET = "lds_8x8_16x16_k8"
#: For products of few elements, whose time is that of the call; compiled in 0.1 s where the others take 1 s or more.
SMALL_PRESET = "naive_16x16"
#: Multiplications up to which a product is small: on a CPU no tiling is faster there.
SMALL = 128**3
#: Features that the first asks for, by which a device is picked that has them.
BLOCK_FEATURES = frozenset({"sub_groups", "block_read", "required_sub_group_size"})


def by_model(spec: GemmSpec, shape: tuple[int, int, int] | None, device: Target, products: int = 1) -> Schedule | None:
    """What a cost model says where there is one: of CPUs `gemmgen.sweeps`, of GPUs of CUDA `gemmgen.waves`."""
    return choose_sweep(spec, shape, device) or choose_tiles(spec, shape, device, products)


def choose(spec: GemmSpec, shape: tuple[int, int, int] | None, device: Target, products: int = 1) -> Schedule:
    """The schedule for a product.

    Args:
        shape: m, n and k where they are known.
        device: a real one's limits and features.
        products: of a batch.

    Raises: ScheduleError where not even the most portable one will do.
    """
    if spec.dtype in FLOAT8:
        return _first_of(FLOAT8_PRESETS, spec, device)
    if shape is not None and products * shape[0] * shape[1] * shape[2] <= SMALL:
        wanted = SMALL_PRESET
    elif (chosen := by_model(spec, shape, device, products)) is not None:
        return chosen
    elif device.features >= BLOCK_FEATURES:
        wanted = BLOCK_PRESET
    elif "mma" in device.features and warp_atom("mma", spec.dtype) is not None:
        wanted = MATRIX_PRESET
    elif "async_copy" in device.features:
        wanted = ASYNC_PRESET
    else:
        wanted = PORTABLE_PRESET
    portable = presets.load(PORTABLE_PRESET).schedule
    for schedule in (presets.load(wanted).schedule, portable):
        try:
            validate(spec, schedule, device)
        except ScheduleError:
            continue
        return schedule
    # Sums of 16 bytes, complex128's, are too many for a GPU's registers.
    smaller = replace(portable, tile=(4, 4), run=(4, 4), name=None)
    validate(spec, smaller, device)
    return smaller


def _first_of(names: tuple[str, ...], spec: GemmSpec, device: Target) -> Schedule:
    """The first preset that will do. Raises: ScheduleError with what the last one lacks."""
    for name in names[:-1]:
        schedule = presets.load(name).schedule
        try:
            validate(spec, schedule, device)
        except ScheduleError:
            continue
        return schedule
    schedule = presets.load(names[-1]).schedule
    validate(spec, schedule, device)
    return schedule
