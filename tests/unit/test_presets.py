from __future__ import annotations

import pytest

from gemmgen import candidates, driver, presets
from gemmgen.backends import BACKENDS
from gemmgen.cli.request import Request
from gemmgen.errors import ScheduleError
from gemmgen.kernel_names import kernel_name
from gemmgen.names import name_problem


def test_every_listed_preset_is_there_once() -> None:
    names = presets.names()
    assert len(names) == len(set(names))
    assert {"naive", "L3_SIMD_32x2_1x8", "block_read_32x2_1x8"} <= set(names)
    assert names[0] == "naive"


def test_candidates_are_the_presets_and_others() -> None:
    assert candidates.names() == (*presets.names(), *presets.unlisted())
    assert not set(presets.names()) & set(presets.unlisted())
    assert "candidates.toml" not in presets.names() and len(presets.names()) < 70


@pytest.mark.parametrize("name", candidates.names())
def test_preset(name: str) -> None:
    preset = candidates.load(name)
    assert preset.name == kernel_name(preset.schedule, preset.spec) == name
    assert name_problem(name) is None
    assert preset.summary
    assert "\n" not in preset.summary
    assert [b for b in BACKENDS if not driver.refusals(preset.spec, preset.schedule, b)], "no backend can take it"


@pytest.mark.parametrize("name", [n for n in presets.names() if n.startswith(("L3_", "block_read_"))])
def test_names_say_tile_and_group(name: str) -> None:
    schedule = presets.load(name).schedule
    (rows, cols), (height, width) = schedule.tile, schedule.group
    assert f"_{rows}x{cols}_{height}x{width}" in name


def test_the_nearest_are_suggested() -> None:
    with pytest.raises(ScheduleError, match="L3_SIMD_32x2_1x8"):
        presets.load("L3_SIMD_32x2")
    with pytest.raises(ScheduleError):
        presets.load("../presets/naive")


@pytest.mark.parametrize("name", presets.unlisted())
def test_what_the_choice_picks_goes_by_its_name_too(name: str) -> None:
    known = candidates.load(name)
    spec, schedule, _ = Request(preset=name).resolve()
    assert (spec, schedule, name in presets.names()) == (known.spec, known.schedule, False)
