"""Schedules over all records, for all targets: refused with advice that leads to one that is accepted, or right.

`GEMMGEN_DRAWS=10000 pytest -m slow -s tests/interp/test_every_schedule.py` is the whole of it, of which a few hundred
draws are made by themselves.
"""

from __future__ import annotations

import os
import sys

import pytest

from gemmgen import driver
from gemmgen.fuzz.case import Case
from gemmgen.fuzz.checks import Place
from gemmgen.ir.dtypes import C128, F16, F32, I8, DType
from gemmgen.schedule import Flat, Operand, Schedule
from gemmgen.spec import GemmSpec
from tests.support.tally import Tally, all_members, wrong

DRAWS = int(os.environ.get("GEMMGEN_DRAWS", "300"))
#: Of these on, every member has been run, each often, and every field with two values.
ENOUGH = 5000
#: Of what is accepted after advice, so many are run as well: one in this number.
RUN_ONE_IN = 4


def test_draws() -> None:
    """No internal error, no head comment that differs from the IR, no refusal without a way out, no wrong result."""
    tally = Tally()
    for number in range(DRAWS):
        tally.add(number, run_advised=number % RUN_ONE_IN == 0)
    sys.stdout.write(tally.report())
    assert not tally.failures, tally.report()
    assert tally.run >= DRAWS // 5
    if DRAWS >= ENOUGH:
        few = {member: tally.members[member] for member in all_members() if tally.members[member] < 30}
        assert not few and not tally.fields_with_one_value()


PACKED = Schedule.of(tile=(3, 2), group=(8, 4), a=Operand(prepacked=True))
SIMD = Schedule.of(
    tile=(8, 2),
    group=(1, 16),
    thread_vector=(8, 1),
    block_k=16,
    sub_group=16,
    split_k=2,
    a=Operand(block_read=True, shuffle=True),
    b=Operand(block_read=True),
)
ASYNC_A = Schedule.of(
    tile=(8, 4),
    group=(8, 4),
    thread_vector=(8, 4),
    block_k=8,
    lane_arrangement=(8, 4),
    a=Operand("local", 4, async_copy=True),
    b=Operand(width=4),
)
IMAGE_A = Schedule.of(
    tile=(8, 1),
    group=(1, 8),
    thread_vector=(8, 1),
    block_k=32,
    sub_group=8,
    a=Operand("image", block_read=True, shuffle=True),
    b=Operand(block_read=True, prepacked=True),
)


@pytest.mark.parametrize(
    ("schedule", "dtype", "place"),
    [
        # Packed lines that are no whole words, or no whole vectors.
        (PACKED, F16, ("cuda", "sm_90")),
        (PACKED.but(block_k=3), I8, ("cuda", "sm_80")),
        (PACKED.but(split_k=2), F16, ("hip", "gfx942")),
        (PACKED.but(block_k=3), F16, ("sycl", "sycl")),
        # Addresses that count from the loop's variable, where that begins within K.
        (SIMD, F32, ("opencl", "xe_hpc")),
        (SIMD.but(split_k=4), F32, ("sycl", "xe_hpc")),
        # One operand alone by cp.async, of which the head says so.
        (ASYNC_A, F32, ("cuda", "sm_80")),
        # An image that is none of the first kernel's arguments, as that packs the other operand.
        (IMAGE_A, F32, ("opencl", "intel")),
    ],
)
@pytest.mark.parametrize("k", [7, 33, 64])
def test_what_was_wrong_once(schedule: Schedule, dtype: DType, place: tuple[str, str], k: int) -> None:
    spec = GemmSpec(dtype=dtype)
    case = Case(spec, schedule, (25, 17, k), *place, pads=(1, 2, 3), alpha=2.0, beta=-1.0, data="whole")
    assert wrong(case, Place.named(*place)) is None


def test_a_box_of_slots_of_one_line() -> None:
    """Which no kernel could be printed for."""
    ring = Schedule.of(
        tile=(4, 4),
        group=(8, 16),
        tma=True,
        stages=16,
        mbarrier=4,
        lane_arrangement=(4, 8),
        a=Operand("local", transposed=True, async_copy=True, prepacked=True),
        b=Operand("local", async_copy=True, prepacked=True),
    )
    place = Place.named("cuda", "sm_90a")
    assert driver.refusals(GemmSpec(), ring, "cuda", place.target) == (
        "block_k = 1, but a TMA tile fills slots of several lines: use block_k 2 or more",
    )
    assert not driver.refusals(GemmSpec(), ring.but(block_k=2), "cuda", place.target)


RING = Schedule.of(
    tile=(4, 4),
    group=(8, 16),
    tma=True,
    stages=16,
    mbarrier=4,
    block_k=2,
    a=Operand("local", transposed=True, async_copy=True, prepacked=True),
    b=Operand("local", async_copy=True, prepacked=True),
)
IN_STEPS = Schedule.of(tile=(8, 8), block_k=64, barrier=True, a=Operand(prepacked=True), b=Operand(prepacked=True))
BY_DPAS = Schedule.of(tile=(8, 2), group=(1, 16), block_k=16, sub_group=16, atom="dpas", large_grf=True)
WIDE = Schedule.of(
    tile=(2, 4), group=(8, 4), a=Operand("local", 8, transposed=True), b=Operand("local"), thread_vector=(2, 4)
)


@pytest.mark.parametrize(
    ("schedule", "spec", "place", "problem", "remedy"),
    [
        (
            RING.but(tile=(3, 4), group=(1, 32)),
            GemmSpec(),
            ("cuda", "sm_90a"),
            "a block's 3 rows are no multiple of TMA's 16 bytes: use a multiple of 4, for example group 4x32",
            {"group": (4, 32)},
        ),
        (
            RING.but(group=(2, 8), producer_threads=32),
            GemmSpec(),
            ("cuda", "sm_90a"),
            "group 2x8 has 16 work-items, but consumers are whole warps, as producers are: use group 4x8, say",
            {"group": (4, 8)},
        ),
        (
            IN_STEPS,
            GemmSpec(dtype=C128),
            ("cuda", "sm_90"),
            (
                "registers 9,344 B per work-item > 1,020 B on this target (C alone takes 1,024 B): use a smaller tile "
                "and a smaller block_k, by --tile 4x8 --set block_k=1"
            ),
            {"tile": (4, 8), "block_k": 1},
        ),
        (
            IN_STEPS.but(block_k=256),
            GemmSpec(),
            ("cuda", "sm_90"),
            (
                "registers 8,480 B per work-item > 1,020 B on this target (C alone takes 256 B): use block_k 16 "
                "instead of 256"
            ),
            {"block_k": 16},
        ),
        (
            BY_DPAS,
            GemmSpec(dtype=F16, batched=True),
            ("opencl", "xe_hpc"),
            (
                "atom dpas multiplies one product, not a batch: call it for each, or use --set atom=fma "
                "--set large_grf=false"
            ),
            {"atom": "fma", "large_grf": False},
        ),
        (
            WIDE,
            GemmSpec(),
            ("cuda", "sm_80"),
            "a.width = 8 does not divide the tile's fast axis = 1: use a.width 1, or block_k 8",
            {"block_k": 8},
        ),
    ],
)
def test_advice_that_led_nowhere(
    schedule: Schedule, spec: GemmSpec, place: tuple[str, str], problem: str, remedy: Flat
) -> None:
    target = Place.named(*place).target
    refused = driver.refusals(spec, schedule, place[0], target)
    assert problem in refused
    assert not driver.refusals(spec, schedule.but(**remedy), place[0], target)
