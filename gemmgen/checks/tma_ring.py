"""What a target, and a product, have against rings that a producer fills by TMA."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from gemmgen.checks.roles import ALIGNMENT, MOST_LINES, role_problems
from gemmgen.checks.types import lacks
from gemmgen.ir.dtypes import F32
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Bytes on whose multiples TMA tiles begin in shared memory.
BOX_BYTES = 128
#: The extent along the lines of each operand's TMA tiles.
_ACROSS = {"a": "rows", "b": "columns"}


def tma_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule that loads by TMA, each with a remedy."""
    yield from lacks("tma", ("wgmma", "tensor_maps"), target, "target sm_90a, or leave them out")
    yield from role_problems(s, target)
    if spec.batched:
        yield "TMA goes by a map of one matrix, not of a batch: leave tma out, or call the kernel for each"
    if spec.dtype != F32 or any(spec.read(name, name in packed(s)) != F32 for name in "ab"):
        yield f"TMA rings are of float32, but {spec.label()}: leave tma out"
    for name, order in (("a", spec.a_order), ("b", spec.b_order)):
        transposed = name == "a"
        if (s.read_order(name, order) == "col") != transposed:
            yield (
                f"TMA keeps a matrix' order, but {name.upper()} is {order}-major: store it by "
                f"{'columns' if transposed else 'rows'}, or set {name}.prepacked, so that a kernel before transposes it"
            )
        if name not in packed(s) and spec.ld_unit(name) * spec.dtype.size % ALIGNMENT:
            unit = ALIGNMENT // spec.dtype.size
            yield (
                f"TMA tiles of {name.upper()} have lines that begin on multiples of {ALIGNMENT} bytes, but leading "
                f"dimensions are multiples of {spec.ld_units}: pass --ld-multiple {unit}, or set {name}.prepacked"
            )
    yield from _extents(spec, s)


def _extents(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """How long and how many the lines of a TMA tile may be."""
    for name, length in lengths(s).items():
        if length > MOST_LINES:
            yield f"a block's {length} {_ACROSS[name]} > {MOST_LINES} of a TMA tile: use a smaller tile"
        if length * spec.dtype.size % ALIGNMENT:
            unit = ALIGNMENT // spec.dtype.size
            times = unit // gcd(unit, length)
            rows, cols = (s.group[0] * times, s.group[1]) if name == "a" else (s.group[0], s.group[1] * times)
            yield (
                f"a block's {length} {_ACROSS[name]} are no multiple of TMA's {ALIGNMENT} bytes: use a "
                f"multiple of {unit}, for example group {rows}x{cols}"
            )
        elif length * spec.dtype.size * s.round_depth % BOX_BYTES:
            size = length * spec.dtype.size * s.round_depth
            yield f"a TMA tile of {name.upper()} has {size} bytes, no multiple of {BOX_BYTES}: use a larger block_k"
    if s.block_k == 1:
        yield "block_k = 1, but a TMA tile fills slots of several lines: use block_k 2 or more"
    if s.round_depth > MOST_LINES:
        yield f"a batch is {s.round_depth} deep > {MOST_LINES} lines of a TMA tile: use a smaller block_k or mbarrier"


def lengths(s: Schedule) -> dict[str, int]:
    """Elements of a line of each operand's TMA tile."""
    return dict(zip("ab", s.block_tile, strict=True))


def packed(s: Schedule) -> str:
    """The names of the operands that a kernel before lays out."""
    return "a" * s.a.prepacked + "b" * s.b.prepacked
