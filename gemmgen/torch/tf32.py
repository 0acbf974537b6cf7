"""TF32 where torch allows it: `torch.backends.cuda.matmul.allow_tf32`, `torch.set_float32_matmul_precision`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import torch

from gemmgen import candidates
from gemmgen.candidates import WAYS
from gemmgen.errors import ScheduleError
from gemmgen.schedule import Schedule

#: Schedules for float32 in TF32 -> the elements of a block of C: by warpgroups, the largest first; the last by warps.
BLOCKS = {
    "wgmma_tf32_128x256_s4": 128 * 256,
    "wgmma_tf32_64x128_s4": 64 * 128,
    "wgmma_tf32_64x64_s8": 64 * 64,
    "mma_tf32_8x16_16x8": 128 * 128,
}
#: Products with a smaller extent are limited by memory, and those of fewer multiply-adds by the launch: their float32
#: schedules are as fast, and exact.
LEAST_EXTENT, LEAST_WORK = 64, 256**3
#: Blocks of C that occupy a GPU: the multiprocessors of an H100 or H200. With fewer a smaller block is tried first.
OCCUPIED = 132

#: A product -> the schedule that took it; None if none did.
_known: dict[Hashable, Schedule | None] = {}
_MOST_KNOWN = 4096


def is_allowed(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether this product may be rounded to TF32 and is large enough to gain from it."""
    return (
        a.dtype is torch.float32
        and b.dtype is torch.float32
        and a.is_cuda
        and a.dim() > 1
        and b.dim() > 1
        and min(*a.shape[-2:], *b.shape[-2:]) >= LEAST_EXTENT
        and a.numel() * min(b.shape[-2:]) >= LEAST_WORK
        and is_enabled()
    )


def is_enabled() -> bool:
    """Whether torch's flags allow TF32 in products of float32 on a GPU."""
    flags = torch.backends.cuda.matmul
    # Since torch 2.9 there are two names for the flag, and reading the old one raises if the new one was set.
    precision = getattr(flags, "fp32_precision", None)
    return bool(flags.allow_tf32) if precision is None else precision == "tf32"


def fastest(
    a: torch.Tensor, b: torch.Tensor, kind: Hashable, compute: Callable[[Schedule | None], torch.Tensor]
) -> torch.Tensor:
    """What `compute` returns for the first schedule that takes the product; in float32 if none rounds to TF32.

    Args:
        kind: what else decides whether a schedule takes it: transposition, the epilogue.
        compute: the product by a schedule, or by the one that gemmgen chooses. Raises: ScheduleError.
    """
    aligned = a.data_ptr() % 16 == 0, b.data_ptr() % 16 == 0
    key = a.shape, a.stride(), b.shape, b.stride(), aligned, a.device, kind
    if key in _known:
        return compute(_known[key])
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    elements = a.numel() // max(1, min(a.shape[-2:])) * min(b.shape[-2:])
    for schedule in _schedules(elements):
        try:
            result = compute(schedule)
        except ScheduleError:
            continue
        _known[key] = schedule
        return result
    _known[key] = None
    return compute(None)


def _schedules(elements: int) -> Iterator[Schedule]:
    """The schedules to try for about so many elements of C: tensor memory accesses as they are, with operands packed
    where those can't read them, and then the one that any GPU from sm_80 on takes.
    """
    *warpgroups, warps = BLOCKS
    name = next((name for name in warpgroups if elements >= OCCUPIED * BLOCKS[name]), warpgroups[-1])
    for packed in WAYS:
        yield candidates.varied(name, packed=packed)
    yield candidates.load(warps).schedule
