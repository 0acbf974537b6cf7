"""The space of schedules: every named one is a point, points and schedules are one to one, draws repeat."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from gemmgen import GemmSpec, candidates
from gemmgen.ir.target import TARGETS, Target
from gemmgen.passes.validate import is_possible
from gemmgen.schedule import Schedule, Value
from gemmgen.schedule.cpu_panel import CpuPanel
from gemmgen.schedule.flat import MAINLOOPS
from gemmgen.schedule.mainloop import Mainloop
from gemmgen.tuning.order import ordered
from gemmgen.tuning.space import Space, is_precise, is_redundant, known_schedules, space_of, spaces

CPU = TARGETS["cpu"]


@pytest.mark.parametrize("mainloop", MAINLOOPS)
def test_every_mainloop_has_axes(mainloop: type[Mainloop]) -> None:
    """A new one needs its row in `gemmgen/tuning/space.py`."""
    assert any(space.mainloop is mainloop for target in TARGETS.values() for space in spaces(GemmSpec(), target))


def _takers(spec: GemmSpec, schedule: Schedule) -> list[Target]:
    """The targets that run a schedule as it says: block reads and images are single loads on others."""
    asks = {"block_read"} if schedule.a.block_read or schedule.b.block_read else set()
    asks |= {"image_block_read"} if "image" in (schedule.a.memory, schedule.b.memory) else set()
    return [t for t in TARGETS.values() if asks <= t.features and is_possible(spec, schedule, t)]


@pytest.mark.parametrize("name", candidates.names())
def test_every_named_schedule_is_a_point(name: str) -> None:
    named = candidates.load(name)
    takers = _takers(named.spec, named.schedule)
    assert takers
    for target in takers:
        space = space_of(named.schedule, named.spec, target)
        point = space.point(named.schedule)
        assert point is not None, target.name
        assert space.schedule(point) == space.of_device(named.schedule)


def _space(target: Target, mainloop: type[Mainloop], dtype: str = "float32") -> Space:
    spec = GemmSpec(dtype=dtype, ld_multiple=16)
    return next(space for space in spaces(spec, target) if space.mainloop is mainloop)


@pytest.mark.parametrize("target", ["cpu", "intel", "portable", "sm_80", "sm_90a", "gfx942"])
def test_draws_are_legal_and_repeat(target: str) -> None:
    for space in spaces(GemmSpec(ld_multiple=16), TARGETS[target]):
        near = known_schedules(space)
        drawn = list(space.sample(8, 1, near)) if near or space.mainloop is CpuPanel else []
        assert drawn == (list(space.sample(8, 1, near)) if drawn else [])
        assert len({schedule for _, schedule in drawn}) == len(drawn)
        for point, schedule in drawn:
            assert is_possible(space.spec, schedule, space.target)
            assert space.point(schedule) == point


def test_draws_differ_by_seed() -> None:
    space = _space(CPU, CpuPanel)
    assert list(space.sample(8, 1)) != list(space.sample(8, 2))


def test_points_come_in_order_and_once() -> None:
    space = _space(CPU, CpuPanel).narrowed({"tile.rows": (6, 4), "tile.columns": (2, 4), "vector": (16,)})
    first = list(islice(space.points(), 200))
    assert first == list(islice(space.points(), 200))
    assert len({schedule for _, schedule in first}) == len(first)
    assert first[0][1].tile == (6, 32)


def test_a_narrowed_space_is_counted() -> None:
    """All points of a small one, each legal: what a recorded exhaustive table holds."""
    one: dict[str, tuple[Value, ...]] = {axis.name: axis.values[:1] for axis in _space(CPU, CpuPanel).axes}
    kept: dict[str, tuple[Value, ...]] = {
        "vector": (8, 16),
        "tile.rows": (4, 6),
        "kc": (0, 256),
        "b.memory": ("global", "private"),
    }
    found = [schedule for _, schedule in _space(CPU, CpuPanel).narrowed(one | kept).points()]
    # In place with kc = 0 or 256; a copy needs a depth.
    assert len(found) == 2 * 2 * 3


def test_likeliest_first() -> None:
    assert spaces(GemmSpec(), CPU)[0].mainloop is CpuPanel
    assert all(space.mainloop is not CpuPanel for space in spaces(GemmSpec(dtype="int8"), CPU))
    assert spaces(GemmSpec(dtype="bfloat16"), TARGETS["sm_90a"])[0].mainloop.__name__ == "WarpgroupMma"


def test_more_than_a_shape_fills_is_redundant() -> None:
    schedule = candidates.load("cpu_6x64_prefetched").schedule
    assert not is_redundant(schedule, (4096, 4096, 4096))
    assert is_redundant(schedule, (64, 64, 4096))
    assert is_redundant(schedule.but(split_k=8), (4096, 4096, 64))


def test_a_search_rounds_where_that_is_allowed() -> None:
    target, spec = TARGETS["sm_90a"], GemmSpec(b_order="col", ld_multiple=4)
    plain, rounded = (
        {schedule.atom for schedule in islice(ordered(x, (512, 512, 512), target), 12)}
        for x in (spec, replace(spec, allow_tf32=True))
    )
    assert plain == {"fma"}
    assert "wgmma_tf32" in rounded


def test_a_search_takes_no_rounded_products() -> None:
    rounds = candidates.load("wgmma_tf32_128x256_s4").schedule
    assert not is_precise(rounds, GemmSpec())
    assert is_precise(rounds, GemmSpec(allow_tf32=True))
    assert is_precise(candidates.load("cpu_6x64_prefetched").schedule, GemmSpec())
