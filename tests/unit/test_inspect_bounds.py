"""Devices' figures, occupancy, bank conflicts and bounds, against numbers worked out by hand."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import pytest

from gemmgen import driver
from gemmgen.banks import local_accesses
from gemmgen.errors import ScheduleError
from gemmgen.inspect import bounds
from gemmgen.inspect.code import Instruction, Kind, Resources
from gemmgen.inspect.machine import Figures, choose, machines
from gemmgen.ir.target import TARGETS
from gemmgen.options import build_schedule
from gemmgen.spec import GemmSpec


@pytest.mark.parametrize(
    ("target", "gflops"),
    [
        ("bdw", 331.2),  # the seeds' two devices
        ("hsw", 832),
        ("skl", 441.6),
        ("dg2-g10", 17203),
        ("pvc", 52429),
        ("sm_80", 19492),
        ("sm_90a", 66908),
        ("gfx906", 13248),
        ("gfx942", 163430),
        ("gfx1100", 61440),
        ("xe_hp_sdv", None),  # never published
    ],
)
def test_peaks(target: str, gflops: float | None) -> None:
    peak = machines()[target].peak_gflops
    assert peak == (None if gflops is None else pytest.approx(gflops, rel=1e-3))


@pytest.mark.parametrize("target", machines())
def test_every_number_has_a_source(target: str) -> None:
    text = (files("gemmgen.inspect") / "machines" / f"{target}.toml").read_text()
    table = tomllib.loads(text)
    assert all(set(entry) == {"value", "source"} for entry in table["figures"].values())
    assert all(len(source) > 5 for source in machines()[target].sources.values())
    known = Figures(**{name: entry["value"] for name, entry in table["figures"].items()})
    assert machines()[target].figures == known


def test_names_and_patterns() -> None:
    assert [m.target for m in choose(["gfx906", "sm_9*"])] == ["gfx906", "sm_90", "sm_90a"]
    assert {m.target for m in choose(["all"])} == set(machines()) - {"hsw"}  # nothing compiles for it here
    assert [m.target for m in choose(["hsw"])] == ["hsw"]
    with pytest.raises(ScheduleError, match="did you mean gfx906") as caught:
        choose(["gfx9006", "sk"])
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("target", "resources", "threads", "limit"),
    [
        # 128 registers of 65536 for 32 lanes: 16 warps; a block of 8 warps fits twice.
        ("sm_90", Resources(32, 128, 0, "", 16384, 256), 16, "registers"),
        ("sm_80", Resources(32, 32, 0, "", 0, 1024), 64, ""),
        # 100 KiB of the SM's 228 for each block of 4 warps.
        ("sm_90", Resources(32, 32, 0, "", 102400, 128), 8, "local memory"),
        ("sm_86", Resources(32, 32, 0, "", 0, 32), 16, "groups per SM"),
        ("skl", Resources(8, 128, 0, "", 0, 8), 7, ""),
        ("pvc", Resources(16, 256, 0, "", 0, 16), 4, "registers"),
        # 16,640 bytes take 32 KiB: two groups of 16 threads on 8 EUs.
        ("skl", Resources(8, 128, 0, "", 16640, 128), 4, "local memory"),
        # 8 EUs hold 56 threads: one group of 32, and a rest that no group fits in.
        ("skl", Resources(8, 128, 0, "", 16640, 256), 4, "group size"),
        ("skl", Resources(8, 128, 0, "", 40000, 128), 2, "local memory"),
        ("gfx906", Resources(64, 222, 0, "", 0, 256), 1, "registers"),
        ("gfx906", Resources(64, 84, 0, "", 0, 256), 3, "registers"),
        ("gfx906", Resources(64, 24, 0, "", 32768, 256), 2, "local memory"),
        ("gfx90a", Resources(64, 222, 0, "", 0, 256), 2, "registers"),
        ("gfx1100", Resources(32, 229, 0, "", 0, 256), 6, "registers"),
    ],
)
def test_occupancy(target: str, resources: Resources, threads: float, limit: str) -> None:
    room = bounds.occupancy(machines()[target], resources)
    assert room is not None
    assert (room.threads, room.limit) == (threads, limit)


def test_occupancy_of_the_unknown_is_unknown() -> None:
    assert bounds.occupancy(machines()["sm_90"], Resources()) is None


def test_ports() -> None:
    """On sm_86 a core issues 4 instructions a clock and multiplies 128 lanes: 3 of 4 instructions leave 0.75."""
    code = [Instruction(Kind.FMA, "", 32)] * 3 + [Instruction(Kind.LOAD, "")]
    assert bounds.issue_share(machines()["sm_86"], 32, code, 96, 16) == pytest.approx(0.75)
    # sm_80 multiplies 64 lanes a clock, so that every other slot is free for something else.
    assert bounds.issue_share(machines()["sm_80"], 32, code, 96, 16) == 1
    # AMD's vector units see no load, unless a wave is alone and nobody else can issue it.
    assert bounds.issue_share(machines()["gfx906"], 64, code, 192, 2) == 1
    assert bounds.issue_share(machines()["gfx906"], 64, code, 192, 1) == pytest.approx(0.75)


def test_no_bound_without_figures() -> None:
    code = [Instruction(Kind.FMA, "", 8)]
    assert bounds.issue_share(machines()["xe_hp_sdv"], 8, code, 8, 8) is None
    assert bounds.memory_share(machines()["xe_hp_sdv"], (64, 64, 64)) is None
    assert bounds.Bound({"issue slots": None, "memory": 0.5}).share is None


def test_scratch_memory_takes_a_bound_that_nothing_limits() -> None:
    """What is below 1 is a bound all the same."""
    assert bounds.Bound({"issue slots": 1.0}).share == 1
    assert bounds.Bound({"issue slots": 1.0}, scratch=118).share is None
    assert bounds.Bound({"issue slots": 0.9}, scratch=118).share == 0.9


def test_the_roofline_of_a_small_product() -> None:
    """64 cubed: 2 * 64^3 flops over 3 * 64^2 floats, 10.7 flops a byte, of 25.6 GB/s."""
    assert bounds.memory_share(machines()["bdw"], (64, 64, 64)) == pytest.approx(32 / 3 * 25.6 / 331.2)


@pytest.mark.parametrize(("pad", "ways"), [(0, 32), (1, 1), (2, 2), (4, 4)])
def test_bank_conflicts_follow_from_the_layout(pad: int, ways: float) -> None:
    """32 work-items read a column of a tile that is 32 wide: all in one bank, until its rows are padded."""
    sets = [f"a.pad={pad}", "a.width=1", "b.width=1", "b.memory=local"]
    schedule = build_schedule("slm", tile="1x1", group="32x1", block_k=32, sets=sets)
    kernel = driver.lower(GemmSpec(), schedule, TARGETS["portable"])
    (load,) = (x for x in local_accesses(kernel, 32, 32) if (x.buffer, x.is_store) == ("a_shared", False))
    assert (load.bytes, load.times, load.ways, load.words) == (4, 32, ways, 32)


def test_lanes_that_read_one_word_are_served_together() -> None:
    schedule = build_schedule(
        "slm", tile="8x8", group="16x16", block_k=8, sets=["a.transposed=true", "thread_vector=4x4"]
    )
    kernel = driver.lower(GemmSpec(), schedule, TARGETS["portable"])
    found = {(x.buffer, x.is_store): x for x in local_accesses(kernel, 32, 32)}
    assert found["a_shared", False].ways == 1
    assert found["a_shared", False].words == 2 * 4  # two rows of work-items, vectors of 4
