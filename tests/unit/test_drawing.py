"""The pictures of schedules: well-formed, and true to who stores what."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gemmgen import driver, presets
from gemmgen.drawing import Drawing, draw, owners_of
from gemmgen.driver import build_program
from gemmgen.errors import SpecError
from gemmgen.ir.target import TARGETS
from gemmgen.passes.swap import swap
from gemmgen.spec import GemmSpec
from tests.support.cli import printed

SVG = "{http://www.w3.org/2000/svg}"


def drawn(name: str) -> Drawing:
    preset = presets.load(name)
    backend = "opencl" if not driver.refusals(preset.spec, preset.schedule) else "cuda"
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
    backend = "opencl" if not driver.refusals(preset.spec, preset.schedule) else "cuda"
    target = driver.default_target(preset.spec, preset.schedule, backend)
    owners = owners_of(swap(build_program(preset.spec, preset.schedule, target).main), preset.schedule)
    tile = preset.schedule.tile
    assert sum(rows * cols for _, _, rows, cols in owners.own) == tile[0] * tile[1]
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


def test_words() -> None:
    text = drawn("wgmma_128x256_s4").svg
    for part in ("B: 64x256, 4 stages", "128 more work-items only load", "one TMA tile", "a_shared: 4 x 1 x 128 x 64"):
        assert part in text, part


def test_alpha_zero() -> None:
    with pytest.raises(SpecError, match="no product to draw"):
        draw(GemmSpec(alpha=0), presets.load("naive").schedule, TARGETS["intel"])


def test_command(tmp_path: Path) -> None:
    file = tmp_path / "picture.svg"
    assert printed("explain", "--preset", "tile_8x8", "--svg", file) == ""
    assert ET.parse(file).getroot().tag == f"{SVG}svg"
