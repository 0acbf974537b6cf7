"""What a schedule's tiles ask of the caches, where sub-groups share tiles through them: a roofline of L1 and of L2.

Counted from the tiles, beside what was published of the device. Nothing was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gemmgen.inspect.machine import Machine
from gemmgen.schedule import Schedule
from gemmgen.schedule.dpas import BLOCK_2D_LANES
from gemmgen.spec import GemmSpec

#: Bytes of an element that a device's peak of its matrix units is given for: those half as large go at twice the speed.
_PEAK_BYTES = 2


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that a floating-point operation takes, a multiply-add being two.

    Attributes:
        l1: that sub-groups read, each its own tiles of A and B.
        l2: that a work-group reads, if all that its sub-groups share stays in L1.
        size: bytes of an element.
    """

    l1: float
    l2: float
    size: int


def traffic(spec: GemmSpec, schedule: Schedule) -> Traffic | None:
    """That of a schedule; None where tiles are not shared through caches alone."""
    if not schedule.block_2d:
        return None
    rows, cols = schedule.tile
    high, wide = schedule.block_tile
    size = spec.dtype.size
    return Traffic(_bytes_a_flop(rows, cols * BLOCK_2D_LANES, size), _bytes_a_flop(high, wide, size), size)


def _bytes_a_flop(rows: int, cols: int, size: int) -> float:
    return (rows + cols) * size / (2 * rows * cols)


def cache_needs(machine: Machine, asked: Traffic | None) -> Iterator[str]:
    """What the caches must deliver if the matrix units shall never wait, beside what they do."""
    f = machine.figures
    if asked is None or f.matrix_flops_per_clock is None or f.cores is None or f.clock_ghz is None:
        return
    peak = f.cores * f.clock_ghz * f.matrix_flops_per_clock * _PEAK_BYTES / asked.size
    for name, share, gbs in (("L1", asked.l1, f.l1_gbs), ("L2", asked.l2, f.l2_gbs)):
        published = "not published" if gbs is None else f"{gbs / 1000:,.1f} TB/s published"
        enough = "" if gbs is None else f", enough for {min(1.0, gbs / (peak * share)):.2f} of the peak"
        yield f"tiles take {peak * share / 1000:,.1f} TB/s from {name} at the matrix units' peak; {published}{enough}"
