"""What prologues have against a schedule: formulas for elements, and scales of sums of 8-bit floats."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.checks.gated import may_be_packed
from gemmgen.epilogue import OPERANDS
from gemmgen.schedule import Schedule
from gemmgen.schedule.warpgroup_mma import WarpgroupMma
from gemmgen.spec import GemmSpec


def prologue_problems(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """Where elements are nowhere at hand before they are multiplied."""
    for name, operand in (("a", s.a), ("b", s.b)):
        if spec.prologue(name) is None or operand.prepacked:
            continue
        if operand.async_copy and not (s.by_warps and s.atom == "mma"):
            yield (
                f"prologue_{name}, but {name}.async_copy fills local memory past the registers: "
                + (f"set {name}.prepacked, so that a kernel before applies it, or " * may_be_packed(spec, name))
                + "use a schedule without async_copy"
            )
        elif operand.block_read or operand.shuffle:
            before = (
                "" if operand.memory == "image" else f"set {name}.prepacked, so that a kernel before applies it, or "
            )
            yield (
                f"prologue_{name} is applied by single work-items, not in block reads: {before}use --method slm "
                "(no preset)"
            )


def sum_scale_problems(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """What is wrong with a schedule for `a * a_scale_128` and `b * b_scale_128x128` of 8-bit floats."""
    scales = {name: scale for name in "ab" if (scale := spec.sum_scale(name)) is not None}
    if not scales:
        return
    said, groups = " and ".join(scales.values()), {OPERANDS[scale].group for scale in scales.values()}
    if len(groups) > 1:
        yield f"{said} are of groups of different sizes along K: scale A and B in groups of one size"
        return
    (group,) = groups
    if type(s.mainloop) is not WarpgroupMma:
        yield (
            f"{said} of {spec.dtype}: {type(s.mainloop).__name__} does not scale sums: use atom wgmma_f8 "
            f"(sm_90a), as wgmma_f8_128x128 has it, or dtype bfloat16 with {spec.dtype} as the stored type"
        )
        return
    if s.operands_swapped or s.a.memory == "private" or s.a.prepacked or s.b.prepacked:
        yield f"{said}, but operands are swapped, packed or in registers: use group 64x4, say, and tiles as they are"
    if group % s.block_k and s.block_k != 2 * group:
        yield f"{said} hold for {group} along K, which steps of {s.block_k} overlap: use block_k {group}"
    cols = s.block_tile[1]
    if OPERANDS[scales.get("b", "bias")].axes == "g":
        yield f"{scales['b']} has a scale for each column, which sums are not scaled by: use b_scale_{group}x{group}"
    elif "b" in scales and group % cols:
        yield f"{scales['b']} holds for {group} columns, of which a block has {cols}: use one whose columns divide them"
