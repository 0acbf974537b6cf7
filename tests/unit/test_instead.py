"""No preset spills on one of Intel's GPUs that it is for: by the figures that are kept of both compilers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gemmgen import candidates, presets
from gemmgen.inspect.instead import instead, rules
from gemmgen.inspect.machine import machines
from tests.support import baseline
from tests.support.baseline import Figures

#: The compiler of Gen8 to Gen11, and that of later chips.
COMPILERS = ("ocloc-legacy", "ocloc")


def rows(root: Path) -> Iterator[tuple[str, str, Figures]]:
    """Preset, chip and figures, of schedules that at least one of Intel's chips takes."""
    kept = [baseline.read(root, compiler).presets for compiler in COMPILERS]
    for name in candidates.names():
        found = {chip: figures for part in kept for chip, figures in part.get(name, {}).items()}
        if any("refused" not in figures for figures in found.values()):
            yield from ((name, chip, figures) for chip, figures in found.items())


def test_no_preset_spills_where_it_is_for(root: Path) -> None:
    known = {(name, chip): figures for name, chip, figures in rows(root)}
    assert len(known) > 200
    spilling = {key: f for key, f in known.items() if ("refused" in f or f["scratch"]) and instead(*key) is None}
    assert not spilling, "make it fit, or name another preset in gemmgen/inspect/instead.toml"


def test_what_to_take_instead_does_not_spill(root: Path) -> None:
    known = {(name, chip): figures for name, chip, figures in rows(root)}
    for rule in rules():
        assert rule.take in presets.names()
        assert set(rule.chips) <= set(machines())
        for chip in rule.chips:
            assert instead(rule.take, chip) is None, (rule, chip)
            if chip in baseline.TARGETS:
                assert known[rule.take, chip].get("scratch") == 0, (rule, chip)


@pytest.mark.parametrize(
    ("name", "chip", "take"),
    [("smem_8x8_double", "tgllp", "smem_8x8_reg_double"), ("block_read_32x2_1x8", "bmg", "sg16_block_16x2")],
)
def test_it_is_said(name: str, chip: str, take: str) -> None:
    assert str(instead(name, chip)).endswith(f": take --preset {take}")
    assert instead(name, "dg2-g10") is None
