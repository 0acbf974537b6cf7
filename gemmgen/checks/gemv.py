"""What a product has against schedules whose lanes lie along K."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.checks.dp4a import dp4a_problems
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec


def gemv_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with lanes that share elements of C, each with a remedy."""
    yield from dp4a_problems(spec, s, target)
    for name, number in (("lanes_along_k", s.lanes_along_k), ("tile's rows", s.tile[0]), ("tile's columns", s.tile[1])):
        if number & (number - 1):
            yield f"{name} = {number}, but lanes along K share out sums by halves: use a power of two"
    for axis, name in ((0, "rows"), (1, "columns")):
        if s.group[axis] > 1 and s.thread_vector[axis] != s.tile[axis]:
            whole = "x".join(str(s.tile[x] if s.group[x] > 1 else s.thread_vector[x]) for x in (0, 1))
            yield (
                f"thread_vector of {s.thread_vector[axis]} {name}, but lanes along K share out neighbours of a tile's "
                f"{s.tile[axis]}: use thread_vector {whole}"
            )
    round_ = depth_of(spec, s) * s.lanes_along_k * s.sliced_k
    if s.block_k % round_:
        yield (
            f"block_k = {s.block_k} is not made of rounds of {round_}, which {s.lanes_along_k * s.sliced_k} work-items "
            f"load along K: use block_k {round_}, or a multiple of it"
        )


def depth_of(spec: GemmSpec, s: Schedule) -> int:
    """Neighbours along K that a work-item loads at a time."""
    widths = ((s.a, s.read_order("a", spec.a_order) == "row"), (s.b, s.read_order("b", spec.b_order) == "col"))
    return max(4 if s.atom == "dp4a" else 1, *(operand.width if along else 1 for operand, along in widths))
