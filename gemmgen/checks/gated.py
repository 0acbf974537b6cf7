"""What a gated product asks of a schedule: each thread holds the sums of a column in both halves of B's columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gemmgen.ir.instructions import WGMMA_COLS
from gemmgen.ir.swizzle import LINES_BYTES
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: The mainloops whose threads do.
MAINLOOPS = ("Direct", "SharedMemory", "WarpMma", "WarpgroupMma")
#: What to do where none of them will.
INSTEAD = "multiply by the second half first, then by the first with epilogue silu, 'expr: acc * residual'"


def gated_problems(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """Problems of a schedule with the gate of a spec's epilogue, if that has one."""
    if spec.gate is None:
        return
    gate, mainloop = spec.gate.short, type(s.mainloop).__name__
    if mainloop not in MAINLOOPS or any(o.shuffle or o.block_read or o.memory == "image" for o in (s.a, s.b)):
        yield (
            f"{gate} takes two sums that one thread must hold, but threads of {mainloop} hold others: use --method "
            f"slm, mma or wgmma, or {INSTEAD}"
        )
        return
    if s.operands_swapped:
        yield f"{gate} takes two columns of B, which are rows where operands are swapped: leave out operands_swapped"
    if s.b.prepacked:
        remedy = "use --method slm" if s.atom == "wgmma_3xtf32" else "leave out b.prepacked"
        yield f"{gate} takes columns of both halves of B, which a packed B has elsewhere: {remedy}"
    if s.split_k > 1 or s.stream_k or s.sliced_k > 1 or s.lanes_along_k > 1:
        yield f"{gate} takes whole sums, but this schedule adds parts of K up: leave out split_k, stream_k and sliced_k"
    if s.by_warpgroups and s.warpgroups[1] > 1:
        yield f"{gate} takes two columns of one thread, but warpgroups beside one another share them: use group 64x4"
    yield from _halves(spec, s, gate)


def may_be_packed(spec: GemmSpec, names: Iterable[str]) -> bool:
    """Whether kernels before may lay out all of these operands, as remedies of other checks say."""
    return spec.gate is None or "b" not in names


def _halves(spec: GemmSpec, s: Schedule, gate: str) -> Iterator[str]:
    """Half of a thread's columns must be made of what it holds, loads and stores at a time."""
    half, rows_of_b = s.tile[1] // 2, s.read_order("b", spec.b_order) == "row"
    unit = max(s.thread_vector[1], s.c_width)
    if not s.by_warpgroups and s.b.memory == "global" and rows_of_b:
        unit = max(unit, s.b.width)
    if s.tile[1] % 2 or half % unit:
        yield (
            f"{gate} makes half as many columns of C of a thread's {s.tile[1]}, in vectors of {unit}: use a tile of "
            f"{2 * unit} columns or a multiple"
        )
    cols, element = s.block_tile[1] // 2, spec.element("b").size
    if s.by_warpgroups and (part := WGMMA_COLS if not rows_of_b else int(LINES_BYTES[-1] // element)) and cols % part:
        yield (
            f"a block's {s.block_tile[1]} columns of B are {cols} of each half, loaded {part} at a time: use a tile of "
            f"{2 * part} columns or a multiple"
        )
