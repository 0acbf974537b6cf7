"""What becomes of a schedule for a product's sizes: parts of K, packed matrices, and blocks of C."""

from __future__ import annotations

from gemmgen.ir.workspace import REACHED
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

Shape = tuple[int, int, int]
#: Numbers of parts of K; few, so that a process compiles few kernels.
PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128)
#: Rounds of the main loop that a part of K has at least: fewer would not fill the ring.
ROUNDS = 4
#: Bytes of a line of a TMA tile, and of a vector.
LINE, VECTOR = 128, 16


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
