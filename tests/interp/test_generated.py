"""The kernels of `generated/`, those of each language: the interpreter has nothing against them, and they are right."""

from __future__ import annotations

import pytest

from gemmgen import driver, presets
from gemmgen.backends import BACKENDS
from gemmgen.errors import UserError
from gemmgen.fuzz.case import Case, Data
from gemmgen.fuzz.checks import Place
from gemmgen.ir.kernel import Program
from gemmgen.presets import Preset
from tests.support.tally import wrong


def programs(preset: Preset) -> list[tuple[Place, Program]]:
    """What each language prints of a preset, where it can; once what several print."""
    found: list[tuple[Place, Program]] = []
    for backend in BACKENDS:
        try:
            target = driver.default_target(preset.spec, preset.schedule, backend)
            program = driver.lower_program(preset.spec, preset.schedule, target)
        except UserError:
            continue
        if program not in (known for _, known in found):
            found.append((Place.named(backend, target.name), program))
    return found


def sizes(preset: Preset) -> tuple[tuple[int, int, int], ...]:
    """A ragged block after a whole one, and K that goes around a ring; whole blocks of a cluster; a single element."""
    schedule = preset.schedule
    rows, cols = schedule.block_tile
    found = (
        (rows + 5, cols + 3, schedule.block_k * schedule.split_k * (schedule.stages + 1) + 1),
        (rows * schedule.cluster[0], cols * schedule.cluster[1], schedule.round_depth * schedule.split_k * 2),
        (1, 1, 1),
    )
    m, n, k = preset.spec.multiple_of
    return tuple((-(-rows // m) * m, -(-cols // n) * n, -(-depth // k) * k) for rows, cols, depth in found)


@pytest.mark.parametrize("name", presets.names())
def test_no_false_alarm(name: str) -> None:
    preset = presets.load(name)
    # Heads and rests give whole numbers only about.
    data: Data = "normal" if "3xtf32" in preset.schedule.atom else "whole"
    spec, schedule = preset.spec, preset.schedule
    tried = programs(preset)
    assert tried
    for place, _ in tried:
        for size in sizes(preset):
            case = Case(
                spec,
                schedule,
                size,
                place.backend,
                place.name,
                pads=(1, 2, 3),
                alpha=2.0 if spec.alpha is None else spec.alpha,
                beta=-1.0 if spec.beta is None else spec.beta,
                data=data,
            )
            assert wrong(case, place) is None
