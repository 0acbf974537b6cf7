"""The pictures of schedules: well-formed, and true to who stores what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.backends import BACKENDS
from gemmgen.banks import local_accesses
from gemmgen.costs import buffers
from gemmgen.drawing import Drawing, draw, draw_banks, draw_waves
from gemmgen.drawing.banks import BANKS, LANES
from gemmgen.drawing.charts import Ceiling, roofline
from gemmgen.drawing.schedule import owners_of
from gemmgen.drawing.waves import blocks_in_order
from gemmgen.driver import build_program
from gemmgen.errors import ScheduleError, SpecError
from gemmgen.ir.buffer import Space
from gemmgen.ir.target import TARGETS
from gemmgen.options import build_schedule
from gemmgen.passes.swap import swap
from gemmgen.simulator.lanes import Active, Index, Site
from gemmgen.simulator.memory import LocalMemory
from gemmgen.spec import GemmSpec
from tests.support.cli import printed, refused
from tests.support.problems import Problem, interpret

SVG = "{http://www.w3.org/2000/svg}"


def drawn(name: str) -> Drawing:
    preset = presets.load(name)
    backend = next(x for x in BACKENDS if not driver.refusals(preset.spec, preset.schedule, x))
    return draw(preset.spec, preset.schedule, driver.default_target(preset.spec, preset.schedule, backend))


@pytest.mark.parametrize("name", presets.names())
def test_every_preset(name: str) -> None:
    """Well-formed, nothing outside of the picture, and one work-item's sums as large as its tile."""
    preset = presets.load(name)
    root = ET.fromstring(drawn(name)._repr_svg_())
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for rect in root.iter(f"{SVG}rect"):
        left, top, wide, high = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        assert left >= 0 and top >= 0 and left + wide <= width and top + high <= height
    backend = next(x for x in BACKENDS if not driver.refusals(preset.spec, preset.schedule, x))
    target = driver.default_target(preset.spec, preset.schedule, backend)
    owners = owners_of(swap(build_program(preset.spec, preset.schedule, target).main), preset.schedule)
    rows, cols = preset.schedule.tile
    # Lanes along K exchange their sums, until each holds its share of the tile.
    share = max(1, rows * cols // preset.schedule.lanes_along_k)
    assert sum(rows * cols for _, _, rows, cols in owners.own) == share
    # Together the warps own each element once.
    assert sum(rows * cols for warp in owners.warps for _, _, rows, cols in warp) == owners.rows * owners.cols
    assert (owners.rows, owners.cols) == preset.schedule.block_tile


def test_warps_of_wgmma() -> None:
    """Each warp of a warpgroup owns 16 rows of 64, over all columns."""
    preset = presets.load("wgmma_128x256_s4")
    program = build_program(preset.spec, preset.schedule, TARGETS["sm_90a"])
    owners = owners_of(program.main, preset.schedule)
    assert owners.warps == tuple(((16 * warp, 0, 16, 256),) for warp in range(8))
    assert owners.lanes == 32


def test_a_schedule_without_warps() -> None:
    preset = presets.load("smem_8x8")
    owners = owners_of(build_program(preset.spec, preset.schedule, TARGETS["intel"]).main, preset.schedule)
    assert owners.lanes is None and len(owners.warps) == 1
    assert owners.own == ((0, 0, 4, 4), (0, 64, 4, 4), (64, 0, 4, 4), (64, 64, 4, 4))


# --- bank conflicts -------------------------------------------------------------------------------

ADDRESSED = ("smem_8x8", "smem_8x8_double", "async_8x8_16x16", "mma_8x16_16x8", "lds_8x8_16x16_k8", "L3_SLM_8x8_8x16")


@pytest.mark.parametrize("name", ADDRESSED)
def test_banks_are_of_the_addresses_that_the_simulator_sees(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each word of the picture is one that the lane accesses when the interpreter runs the kernel."""
    preset = presets.load(name)
    target = driver.default_target(preset.spec, preset.schedule, "cuda")
    seen: set[tuple[str, int, int]] = set()
    locate = LocalMemory._locate

    def noted(self: LocalMemory, index: Sequence[Index], active: Active, site: Site) -> Index:
        found = locate(self, index, active, site)
        places = np.broadcast_to(found, active.lanes.shape) * sizes[self._name] // 4
        seen.update((self._name, int(lane), int(word)) for lane, word in zip(active.lanes, places, strict=True))
        return found

    monkeypatch.setattr(LocalMemory, "_locate", noted)
    kernel = driver.lower(preset.spec, preset.schedule, target)
    sizes = {buffer.name: buffer.dtype.size for buffer in buffers(kernel, Space.LOCAL)}
    rows, cols = preset.schedule.block_tile
    rng = np.random.default_rng(1)
    problem = Problem.of(rng, preset.spec, rows, cols, 8 * preset.schedule.block_k, 1, 0)
    interpret(kernel, preset.spec, problem, pad=0)
    accesses = local_accesses(kernel, LANES, BANKS)
    drawn = {
        (access.buffer, lane, word)
        for access in accesses
        for lane, words in enumerate(words for part in access.passes for words in part)
        for word in words
    }
    if preset.schedule.by_warps:
        # A lane of ldmatrix names a row whose words other lanes get.
        drawn, seen = ({(buffer, 0, word) for buffer, _, word in x} for x in (drawn, seen))
    assert drawn and drawn <= seen
    text = draw_banks(preset.spec, preset.schedule, target).svg
    for access in accesses:
        assert access.ways == 1 or f"{access.ways:g}-way conflict" in text


def test_a_conflict_is_drawn_in_red_until_rows_are_padded() -> None:
    texts = []
    for pad in (0, 1):
        sets = [f"a.pad={pad}", "a.width=1", "b.width=1", "b.memory=local"]
        schedule = build_schedule("slm", tile="1x1", group="32x1", block_k=32, sets=sets)
        texts.append(draw_banks(GemmSpec(), schedule, TARGETS["portable"]).svg)
    assert "32-way conflict: 1 pass of 32 lanes, 32 clocks" in texts[0] and 'class="bad full"' in texts[0]
    assert "conflict:" not in texts[1] and 'class="bad full"' not in texts[1]


def test_no_banks_without_local_memory() -> None:
    with pytest.raises(ScheduleError, match="no work-item addresses local memory"):
        draw_banks(GemmSpec(), presets.load("naive").schedule, TARGETS["sm_90a"])


# --- waves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", presets.names())
def test_each_block_has_its_groups(name: str) -> None:
    """Of 8x6 blocks each is computed once, or by one group for each part of K."""
    preset = presets.load(name)
    schedule, target = preset.schedule, TARGETS["sm_90a"]
    if schedule.stream_k or driver.refusals(preset.spec, schedule, "cuda"):
        return
    kernel, (rows, cols) = swap(build_program(preset.spec, schedule, target).main), schedule.block_tile
    sizes = {"m": 7 * rows + 1, "n": 5 * cols + 1, "k": 4096}
    found = Counter(blocks_in_order(kernel, sizes, (rows, cols), 13))
    assert found.keys() == {(row, col) for row in range(8) for col in range(6)}
    assert set(found.values()) == {schedule.partial_sums * schedule.cluster_reduction}


def test_a_threadblock_swizzle_shares_more() -> None:
    """The first wave of 132 groups: 16 block rows and 9 block columns of 16x32 blocks, as bands of 16 rows leave."""
    preset = presets.load("wgmma_128x256_s4")
    text = draw_waves(preset.spec, preset.schedule, TARGETS["sm_90a"]).svg
    assert "512 groups, 4 waves; the last is 88% full" in text and "16 block rows of A, 9 block columns of B" in text
    without = replace(preset.schedule, scheduler=replace(preset.schedule.scheduler, threadblock_swizzle=0))
    assert "9 block rows of A, 16 block columns of B" in draw_waves(preset.spec, without, TARGETS["sm_90a"]).svg


def test_no_waves() -> None:
    with pytest.raises(ScheduleError, match=r"intel does not say how many cores.*|more than 4096"):
        draw_waves(GemmSpec(m=1 << 16, n=1 << 16), presets.load("smem_8x8").schedule, TARGETS["intel"])
    with pytest.raises(ScheduleError, match="stream-K"):
        draw_waves(GemmSpec(), presets.load("mbarrier_8x16_16x16_stream").schedule, TARGETS["sm_90a"])


# --- charts ---------------------------------------------------------------------------------------


def test_charts() -> None:
    """Well-formed; a higher share is drawn higher, and labels do not overlap."""
    ceilings = [Ceiling("low", 100, 0.2, "local memory"), Ceiling("high", 100, 0.9, "issue slots")]
    root = ET.fromstring(roofline("sm_x", 1000, 100, [*ceilings, Ceiling("next", 100, 0.89, "memory")]).svg)
    low, high, _ = (float(dot.attrib["cy"]) for dot in root.iter(f"{SVG}circle"))
    assert high < low
    heights = sorted(float(x.attrib["y"]) for x in root.iter(f"{SVG}text") if "at most" in (x.text or ""))
    assert len(heights) == 3 and all(b - a >= 16 for a, b in pairwise(heights))


def test_words() -> None:
    text = drawn("wgmma_128x256_s4").svg
    for part in ("B: 64x256, 4 stages", "128 more work-items only load", "one TMA tile", "a_shared: 4 x 1 x 128 x 64"):
        assert part in text, part


@pytest.mark.parametrize("name", presets.names())
def test_notebooks_show_schedules(name: str) -> None:
    """A schedule by itself: in the first type that it can multiply."""
    preset = presets.load(name)
    assert preset._repr_svg_() == drawn(name).svg
    alone = preset.schedule._repr_svg_()
    assert alone is not None and f">{preset.name}: C = " in alone


def test_notebooks_show_sources() -> None:
    source = driver.emit(GemmSpec(), presets.load("naive").schedule)
    text = source._repr_html_()
    assert "<code>naive</code>" in text and "<details><summary>Source, " in text
    assert "__kernel" in text and "&lt;" in text and " < " not in text


def test_alpha_zero() -> None:
    with pytest.raises(SpecError, match="no product to draw"):
        draw(GemmSpec(alpha=0), presets.load("naive").schedule, TARGETS["intel"])


@pytest.mark.parametrize("view", [(), ("--view", "banks"), ("--view", "waves", "--resident", "2")])
def test_command(view: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "picture.svg"
    assert printed("explain", "--preset", "smem_8x8", "--backend", "cuda", "--svg", file, *view) == ""
    assert ET.parse(file).getroot().tag == f"{SVG}svg"


def test_refused_views() -> None:
    text = refused("explain", "--preset", "naive", "--view", "bnks", "--resident", "99")
    for part in ("did you mean banks", "add --svg", "--resident is for --view waves", "give 1 to 32"):
        assert part in text
