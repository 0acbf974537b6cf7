"""What a grouped product has against a schedule."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.schedule.cpu_panel import CpuPanel
from gemmgen.schedule.direct import Direct, Gemv, SubGroup
from gemmgen.schedule.mainloop import Mainloop
from gemmgen.schedule.schedulers import OneTile, Persistent
from gemmgen.schedule.shared_memory import SharedMemory
from gemmgen.schedule.warp_mma import WarpMma
from gemmgen.schedule.warpgroup_mma import WarpgroupMma
from gemmgen.spec import GemmSpec

#: Mainloops that find matrices by pointers, which a group moves to where its own begin.
MAINLOOPS: tuple[type[Mainloop], ...] = (Direct, Gemv, SharedMemory, SubGroup, WarpMma, CpuPanel)
#: Of each kind, the matrices that groups share out, with the order in which a group's part is whole lines.
_IN_LINES = {"rows": {"a": "row", "c": "row"}, "k": {"a": "col", "b": "row"}}


def grouped_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule for groups, each with a remedy."""
    if spec.grouped is None:
        return
    if type(s.mainloop) is WarpgroupMma:
        yield from _by_tensor_maps(spec, s)
    elif type(s.mainloop) not in MAINLOOPS:
        yield (
            f"a grouped product, but {type(s.mainloop).__name__} finds A and B by other means than pointers that a "
            "group can move: use a preset such as smem_8x8, async_8x8_8x16 or mma_8x16_16x8"
        )
    persistent = type(s.scheduler) is Persistent and type(s.mainloop) is WarpgroupMma
    if type(s.scheduler) is not OneTile and not persistent:
        yield (
            f"a grouped product deals out blocks by offsets, but the scheduler is {type(s.scheduler).__name__}: use "
            "split_k 1, without atomic, stream_k, persistent and clusters"
        )
    packed = [name for name, operand in (("a", s.a), ("b", s.b)) if operand.prepacked]
    if packed:
        names = " and ".join(f"{name}.prepacked" for name in packed)
        yield f"{names}, but a group's matrices are packed by no kernel: leave it out"
    if any(operand.memory == "image" for operand in (s.a, s.b)):
        yield "an image holds one matrix, of which a group has a part: use a preset that reads buffers"
    yield from _misaligned(spec, s, target)


def _by_tensor_maps(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """What loads and stores by tensor maps can't do for groups."""
    if s.operands_swapped:
        group = "group 64x4" if s.group[0] < s.group[1] else "another group"
        yield f"group {s.group[0]}x{s.group[1]} swaps A and B, of which groups have lines: use {group}"
    if spec.grouped == "k":
        return
    if s.ordered_epilogue:
        yield "ordered_epilogue ends with a work-group's last block, which groups of rows leave unknown: leave it out"
    if s.cluster != (1, 1):
        yield f"cluster {s.cluster[0]}x{s.cluster[1]} shares tiles between blocks, which groups divide: use cluster 1x1"


def _misaligned(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """Matrices of which a group's part begins within a line, where instructions need whole vectors to begin."""
    if "unaligned_vectors" in target.features and not s.by_blocks:
        return
    for name, order in _IN_LINES[spec.grouped or "rows"].items():
        if spec.order(name) != order:
            by = {"row": "rows", "col": "columns"}[order]
            yield (
                f"a group's part of {name.upper()} begins within a line of it, where vectors can't: store "
                f"{name.upper()} by {by} (--layout)"
            )
