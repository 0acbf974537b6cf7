"""Matrix instructions of warpgroups and TMA copies: who holds what, where it lies, what is printed and what refused."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import ScheduleError
from gemmgen.ir.copy_instructions import AxisLayout
from gemmgen.ir.dtypes import BF16, F16, F32
from gemmgen.ir.expr import Const, Var
from gemmgen.ir.instructions import TILE_LINE_BYTES, WARPGROUP_LANES, WGMMA_INSTRUCTIONS, Instruction, wgmma_form
from gemmgen.ir.swizzle import LINES_BYTES, swizzled
from gemmgen.ir.target import TARGETS, Target
from gemmgen.ir.walk import evaluate
from gemmgen.methods import defaults
from gemmgen.module import render_module
from gemmgen.runtime.cuda_launch import encoded
from gemmgen.schedule import Schedule
from gemmgen.simulator import semantics
from gemmgen.simulator.warpgroups import places
from gemmgen.source import Source
from gemmgen.spec import GemmSpec, Order
from tests.support.refusals import Made, made
from tests.support.tools import nvcc, tool

SM_90A = TARGETS["sm_90a"]
SPEC = GemmSpec(dtype=BF16, ld_multiple=8)
WGMMA = defaults("wgmma")


# --- who holds what -------------------------------------------------------------------------------


@pytest.mark.parametrize("atom", WGMMA_INSTRUCTIONS, ids=lambda x: f"{x.name}-{x.dtype}")
def test_lanes_hold_of_a_what_the_manual_says(atom: Instruction) -> None:
    """What PTX has at element i of a thread's A: four bytes of K, eight rows further down, the next 16 bytes."""
    rows, cols = semantics.places(atom.a, WARPGROUP_LANES)
    word = 4 // atom.dtype.size
    for thread, i in ((37, 0), (70, word), (127, 2 * word), (13, 4 * word - 1)):
        warp, lane = divmod(thread, 32)
        row, k = i // word % 2, i // (2 * word) * word + i % word
        assert rows[thread, row, k] == 16 * warp + lane // 4 + 8 * row
        assert cols[thread, row, k] == 4 * word * (i // (2 * word)) + lane % 4 * word + i % word
    assert atom.layout_link.endswith(f"wgmma-64n{atom.depth}")


def test_lanes_hold_what_the_manual_says() -> None:
    """Register d[i] of a thread in PTX's table, of the first row or the one eight further down."""
    rows, cols = semantics.places(wgmma_form(WGMMA_INSTRUCTIONS[0], 64).c, WARPGROUP_LANES)
    for thread, i in ((0, 0), (37, 2), (127, 31), (70, 13)):
        warp, lane = divmod(thread, 32)
        row, col = i // 2 % 2, i // 4 * 2 + i % 2
        assert rows[thread, row, col] == 16 * warp + lane // 4 + 8 * row
        assert cols[thread, row, col] == 8 * (i // 4) + 2 * (lane % 4) + i % 2


@pytest.mark.parametrize(
    "spread",
    [
        AxisLayout(2, 32, 1, repeats=2, inner_lanes=8),
        AxisLayout(8, 12, 2, repeats=2, inner_lanes=3),
        AxisLayout(4, 6, 2),
    ],
)
def test_spreads_of_two_levels(spread: AxisLayout) -> None:
    """An owner for each element, and expressions that say the same as numbers."""
    found = {
        spread.element(lane, value): (lane, value) for lane in range(spread.lanes) for value in range(spread.values)
    }
    assert sorted(found) == list(range(spread.extent))
    for element, (lane, value) in found.items():
        assert spread.owner(element) == (lane, value)
        own = replace(spread, lane=Const(lane))
        assert evaluate(own.start + own.step(Const(value)), {}) == element


# --- where it lies --------------------------------------------------------------------------------


@pytest.mark.parametrize("line", LINES_BYTES)
def test_swizzled_lines_hold_each_byte_once(line: int) -> None:
    """Only parts of 16 bytes of a line change places, and of eight lines no two that are a bank's width apart have the
    same part in the same banks.
    """
    at = np.arange(4096)
    moved = swizzled(at, line)
    assert sorted(moved.tolist()) == at.tolist()
    assert (moved // line == at // line).all()
    assert (moved % 16 == at % 16).all()
    parts = moved[0 : 8 * line : line] % TILE_LINE_BYTES
    assert sorted(parts.tolist()) == list(range(0, TILE_LINE_BYTES, 16))
    again = swizzled(at + 8 * line, line)
    assert np.array_equal(again, moved + 8 * line)


def test_swizzles_as_the_manual_draws_them() -> None:
    """PTX ISA, "Tensor swizzling modes": parts of 16 bytes by lines of 128."""
    drawn = {line: (swizzled(np.arange(0, 1024, 16), line) // 16).reshape(8, 8)[:3] % 8 for line in LINES_BYTES}
    assert drawn[128].tolist() == [[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6], [2, 3, 0, 1, 6, 7, 4, 5]]
    assert drawn[64].tolist() == [[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6], [2, 3, 0, 1, 6, 7, 4, 5]]
    assert drawn[32].tolist() == [[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6], [0, 1, 2, 3, 4, 5, 6, 7]]
    assert swizzled(np.array([3 * 128 + 2 * 16 + 5]), TILE_LINE_BYTES).tolist() == [3 * 128 + (2 ^ 3) * 16 + 5]


@pytest.mark.parametrize("line", LINES_BYTES)
@pytest.mark.parametrize("transposed", [False, True])
def test_descriptors_name_each_element_of_a_tile_once(transposed: bool, line: int) -> None:
    """All instructions along a line together; a step begins 32 bytes or sixteen lines after the one before."""
    atom, steps = WGMMA_INSTRUCTIONS[0], line // 32
    step, leading = (16 * line, steps * 16 * line) if transposed else (32, 16)
    found = [places(atom, 128, transposed, leading, 8 * line, line) + i * step for i in range(steps)]
    together = np.stack(found).ravel()
    assert sorted(together.tolist()) == list(range(0, 128 * steps * 16 * 2, 2))


# --- what is printed ------------------------------------------------------------------------------


def emitted(schedule: Schedule = WGMMA, spec: GemmSpec = SPEC) -> Source:
    return driver.emit(spec, schedule, "cuda", SM_90A)


def test_a_source_says_which_maps_its_host_makes() -> None:
    """Rows of A in one box of K's depth; of a row-major B TMA tiles of 64 columns; lines as they are stored."""
    (entry,) = emitted().entry_points
    a, b = entry.maps
    assert (a.name, a.operand, a.dtype, a.box, a.pitch, a.swizzle) == ("a_map", "a", BF16, (128, 64), Var("lda"), 128)
    assert (b.operand, b.box, b.swizzle) == ("b", (64, 64), 128)
    sizes = {"m": 3, "n": 5, "k": 7}
    assert [(evaluate(x.lines, sizes), evaluate(x.length, sizes)) for x in (a, b)] == [(3, 7), (7, 5)]
    kinds = {argument.name: argument.kind for argument in entry.arguments}
    assert [name for name, kind in kinds.items() if kind == "map"] == ["a_map", "b_map"]
    assert not {"a", "lda", "b", "ldb"} & set(kinds)
    transposed = emitted(spec=replace(SPEC, a_order="col", b_order="col")).entry_points[0].maps
    assert [x.box for x in transposed] == [(64, 64), (256, 64)]


def test_shared_memory_begins_where_lines_may_swizzle() -> None:
    """All of it is asked for at the launch, mbarriers behind the tiles, so that nothing of a fixed size lies before."""
    source = emitted()
    assert "extern __shared__ __align__(1024) unsigned char shared_memory[];" in source.text
    assert "\n    __shared__" not in source.text and "alignas(1024) __nv_bfloat16 a[STAGES]" in source.text
    tiles = 4 * (128 + 256) * 64 * 2
    assert source.entry_points[0].dynamic_bytes == tiles + 1024, "mbarriers, up to what tiles begin on multiples of"
    assert source.alignment == 16
    assert source.requires >= {"wgmma", "tensor_maps", "mbarrier"}


def test_the_host_code_is_for_this_chip_alone() -> None:
    text = emitted().text
    assert "-gencode arch=compute_90a,code=sm_90a" in text
    assert "2, a, m, k, lda, BM, 64)" in text
    assert driver.default_target(SPEC, WGMMA, "cuda").name == "sm_90a"
    assert "wgmma" not in driver.emit(SPEC, defaults("mma"), "cuda", SM_90A).text


EITHER: tuple[Order, Order] = ("row", "col")


def test_modules_that_make_no_maps_are_refused() -> None:
    spec = replace(SPEC, dtype=F16, c_dtype=F16)
    with pytest.raises(ScheduleError, match="makes no tensor maps"):
        render_module(emitted(spec=spec))


ORDERS = [replace(SPEC, a_order=a, b_order=b, dtype=t) for a, b, t in product(EITHER, EITHER, (BF16, F16))]


@pytest.mark.parametrize("spec", ORDERS[3::4], ids=lambda s: f"{s.a_order}-{s.b_order}-{s.dtype}")
def test_nvcc_takes_every_order(spec: GemmSpec, tmp_path: Path) -> None:
    """Without warnings, among them that instructions had to wait for each other (C7510), and without spills."""
    # K is folded, so that there is no name to ask whether there are any elements.
    report = nvcc(emitted(spec=replace(spec, k=200)).text, "sm_90a", tmp_path)
    assert "0 bytes spill stores" in report


@pytest.mark.parametrize("name", ["wgmma_128x256_s4", "wgmma_64x64_s8", "wgmma_tf32_128x256_s4"])
def test_instructions_of_the_main_loop(name: str, tmp_path: Path) -> None:
    """Four matrix instructions between one wait for copies and one for instructions; nothing else multiplies."""
    preset = candidates.load(name)
    nvcc(emitted(preset.schedule, preset.spec).text, "sm_90a", tmp_path)
    command = [tool("nvdisasm"), "-c", "kernel.cubin"]
    listing = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    cols = preset.schedule.block_tile[1]
    kind = "8.F32.TF32" if preset.spec.dtype == F32 else "16.F32.BF16"
    wanted = (f"HGMMA.64x{cols}x{kind}", "WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR", "UTMALDG.2D", "PHASECHK")
    lines = listing.splitlines()
    found = [word for line in lines for word in wanted if word in line]
    step = [wanted[4], wanted[1], *[wanted[0]] * 4, wanted[2]]
    assert any(found[i : i + len(step)] == step for i in range(len(found))), found
    boxes = 1 + (cols // 64 if preset.spec.b_order == "row" else 1)
    assert (found.count(wanted[0]), found.count("UTMALDG.2D")) == (4, boxes)
    at = [i for i, line in enumerate(lines) if wanted[0] in line]
    handed_over = [line for line in lines[at[0] : at[-1]] if "R2UR" in line]
    assert not handed_over, "descriptors are worked out once for a warp, not by each of its lanes"
    assert listing.count("USETMAXREG") == (2 if preset.schedule.setmaxnreg[0] else 0)


def test_a_call_makes_maps_where_there_is_something_to_copy() -> None:
    """Of no elements the map is empty, and no driver is asked."""
    (entry,) = emitted().entry_points
    sizes = {"m": 5, "n": 6, "k": 0, "lda": 8, "ldb": 8, "ldc": 8}
    assert [encoded(each, 256, sizes) for each in entry.maps] == [None, None]
    assert len(entry.arguments) == 9


# --- what is refused ------------------------------------------------------------------------------


def refused(schedule: Made, spec: GemmSpec = SPEC, target: Target = SM_90A) -> str:
    with pytest.raises(ScheduleError) as error:
        driver.emit(spec, made(schedule), "cuda", target)
    return "\n".join(error.value.problems)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"setmaxnreg": (240, 40)}, "are 66,560 of a block's 64,512 (168 for each of 384 work-items)"),
        ({"setmaxnreg": (230, 40)}, "no multiples of 8"),
        ({"setmaxnreg": (232, 40), "producer_threads": 32}, "set by whole warpgroups"),
        ({"setmaxnreg": (0, 0), "producer_threads": 64}, "use 128, a warpgroup, or 32, a warp"),
        ({"tile": (4, 64)}, "256 sums of a work-item and 24 registers besides > 232"),
        ({"tile": (2, 23), "c_width": 2}, "a block's 92 columns of B, multiplied by 8"),
        ({"tile": (2, 80), "c_width": 2}, "a multiple of 8 up to 256"),
        ({"tile": (3, 64)}, "no pairs of rows"),
        ({"group": (40, 4)}, "not made of warpgroups of 32x4"),
        (
            {"group": (32, 8), "tile": (4, 12), "c_width": 2},
            "48 columns of B are TMA tiles of 64, within which no other may",
        ),
        ({"group": (256, 4)}, "1024 work-items and 128 producers > 1024"),
        ({"block_k": 48}, "lines of bfloat16 are 16, 32 or 64 long: use block_k 64"),
        ({"stages": 1}, "stages = 1 < 2: give 2 to 64"),
        ({"stages": 5}, "local memory 245,840 B > 232,448 B on this target: use 4 stages"),
        ({"c_width": 16}, "use 2, which a work-item has, or 1, 4 or 8 by way of local memory"),
        ({"tile": (2, 48), "c_width": 8}, "128x192 of C in runs of 8 can't be dealt out evenly to 256: use c_width 2"),
        (
            {"a": replace(WGMMA.a, memory="global")},
            "a.memory = global, but mainloop WarpgroupMma reads a from local or private",
        ),
        (
            {"b": replace(WGMMA.b, memory="private")},
            "which is a where operands are not swapped: use a.memory, or group",
        ),
        (
            {"a": replace(WGMMA.a, memory="private"), "tile": (4, 48), "stages": 2},
            "192 sums of a work-item and 56 registers besides",
        ),
        ({"sliced_k": 2}, "sliced_k = 2 means nothing to mainloop WarpgroupMma"),
        ({"prefetch": True, "across_tiles": True}, "prefetch = true means nothing"),
    ],
    ids=str,
)
def test_schedules(changes: dict[str, object], said: str) -> None:
    assert said in refused(partial(WGMMA.but, **changes))


def test_no_prologue_is_dropped() -> None:
    for name in "ab":
        with_prologue = replace(SPEC, **{f"prologue_{name}": f"{name} * 2"})  # type: ignore[arg-type]
        said = refused(WGMMA, with_prologue)
        assert f"prologue_{name}, but TMA loads go straight to shared memory" in said
        assert f"let a kernel before apply it (--set {name}.prepacked=true)" in said


def test_head_comments_count_the_barriers() -> None:
    source = emitted()
    (entry,) = source.entry_points
    assert f"{entry.dynamic_bytes:,} bytes of shared memory" in source.text


def test_a_warp_stores_lines_element_by_element() -> None:
    by_lines = WGMMA.but(
        tile=(2, 16), group=(32, 4), producer_threads=32, setmaxnreg=(0, 0), epilogue_stages=0, c_width=1
    )
    text = emitted(by_lines, SPEC).text
    assert "so that warps store whole" in text
    assert "const int sum_col = local_index % BN;" in text
    assert "c[c_row * ldc + first_col] =" in text or "c[c_row * ldc + first_col] = " in text
    # 72 columns are no part of 128 threads.
    assert "can't be dealt out evenly to 128: use c_width 2" in refused(partial(by_lines.but, tile=(2, 18)))


def test_single_elements_of_a_column_major_c_go_from_registers() -> None:
    """Of parts of K too, which a second kernel adds up; 32x4 groups could not deal out lines of 2x64 evenly."""
    schedule = WGMMA.but(
        tile=(2, 64), group=(32, 4), producer_threads=32, setmaxnreg=(0, 0), epilogue_stages=0, c_width=1, split_k=2
    )
    assert "so that warps store whole" not in emitted(schedule, replace(SPEC, c_order="col")).text


def test_types_strides_and_targets() -> None:
    assert "not float32: use dtype bfloat16 or float16, or atom wgmma_tf32 or wgmma_3xtf32 or " in refused(
        WGMMA, GemmSpec()
    )
    coarse = defaults("wgmma_tf32")
    transposed = refused(coarse, GemmSpec(ld_multiple=4, a_order="col"))
    assert "a is col-major: store it row-major, or let a kernel before turn it (--set a.prepacked=true)" in transposed
    assert "b is row-major: store it col-major, or let" in transposed
    assert "(--set b.prepacked=true --set b.transposed=true)" in transposed
    packed = coarse.but(b=replace(coarse.b, prepacked=True))
    assert "but b is packed row-major: use --set b.transposed=true" in refused(packed, GemmSpec(ld_multiple=4))
    transposed_b = replace(WGMMA.b, transposed=True)
    assert "b.transposed = true means nothing" in refused(partial(WGMMA.but, b=transposed_b))
    assert "pass --ld-multiple 4" in refused(coarse, GemmSpec(b_order="col"))
    odd = refused(WGMMA, GemmSpec(dtype=F16))
    assert "pass --ld-multiple 8, or let a kernel before lay them out" in odd
    assert "(--set a.prepacked=true --set b.prepacked=true)" in odd
    assert "not of a list" in refused(WGMMA, replace(SPEC, batched=True, listed=True))
    both = refused(WGMMA.but(stages=5), target=TARGETS["sm_90"])
    assert "lacks tensor_maps, wgmma: use target sm_90a" in both
    assert "use 4 stages instead of 5" in both
    assert "lacks tensor_maps, wgmma" in refused(WGMMA, target=TARGETS["sm_100"])
    alone = partial(Schedule.of, producer_threads=32)
    assert "producer_threads = 32 means nothing to mainloop Direct" in refused(alone, GemmSpec(dtype=F32))
