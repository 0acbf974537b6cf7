"""How many lanes a kernel is compiled for, and how many registers a thread has then: so that its arrays fit."""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.kernel import Kernel
from gemmgen.ir.live import live
from gemmgen.ir.target import FILLED_BY_WIDEST, Target


def lanes_and_registers(kernel: Kernel, target: Target) -> Kernel:
    """The kernel with both; as it is where its schedule says them, and where compilers choose well."""
    if kernel.sub_group is not None or not target.large_register_bytes:
        return kernel
    held = sum(buffer.bytes for buffer in live(kernel.body))
    if target.fits(held, max(target.sub_group_sizes), FILLED_BY_WIDEST):
        return kernel
    narrow = target.narrow_sub_group
    large = not target.fits(held, narrow or min(target.sub_group_sizes))
    return replace(kernel, compiled_for=narrow, large_registers=large)
