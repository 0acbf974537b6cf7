"""Schedules as records: every member and field is written, read back and refused elsewhere; nothing else fails."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from gemmgen import driver, presets
from gemmgen.errors import ScheduleError, SpecError
from gemmgen.ir.dtypes import BF16, F16, F32, I8
from gemmgen.ir.target import TARGETS
from gemmgen.kernel_names import kernel_name
from gemmgen.methods import change, defaults, flatten, unflatten
from gemmgen.options import FIELDS, build_schedule, read_document, schedule_to_toml
from gemmgen.passes.validate import problems_as_asked
from gemmgen.schedule import AXES, KEYS, PLAIN, Flat, Operand, Schedule, Value, text_of
from gemmgen.schedule.direct import Direct
from gemmgen.schedule.dpas import Dpas
from gemmgen.schedule.fields import meanings
from gemmgen.schedule.flat import MAINLOOPS, SCHEDULERS
from gemmgen.schedule.schedulers import OneTile, Persistent, SplitK
from gemmgen.schedule.shared_memory import SharedMemory
from gemmgen.schedule.tiling import ThreadTiling, Tiling
from gemmgen.schedule.warp_mma import WarpMma
from gemmgen.schedule.warpgroup_mma import WarpgroupMma
from gemmgen.spec import GemmSpec
from tests.support.cli import printed
from tests.support.remedies import proposals
from tests.support.schedules import flats, schedules, values

#: A schedule of each mainloop, by its method or a preset.
EXAMPLES: tuple[Schedule, ...] = (
    defaults("naive"),
    defaults("gemv"),
    defaults("simd"),
    defaults("block_read"),
    presets.load("mbarrier_8x16_16x16").schedule,
    presets.load("mbarrier_8x16_16x16_boxes_packed").schedule,
    defaults("mma"),
    defaults("mma_direct"),
    defaults("wgmma"),
    presets.load("wgmma_128x256_s4").schedule,
    defaults("dpas"),
    presets.load("dpas_32x4_8x64_block_2d").schedule,
    defaults("joint_matrix"),
    defaults("mfma"),
    presets.load("cpu_6x64_copied").schedule,
)


def test_views_are_the_records_fields() -> None:
    """The one list of names that types need is that of the records."""
    own = {name for members in AXES.values() for member in members for name in meanings(member)}
    choices = [*(loop.chosen_by for loop in MAINLOOPS), *(scheduler.chosen_by for scheduler in SCHEDULERS)]
    chosen = {choice.key for choice in choices if choice is not None}
    of_operands = {f"{x}.{name}" for x in "ab" for name in meanings(Operand)}
    assert own | chosen | of_operands == set(PLAIN) == set(KEYS) == set(FIELDS) == set(flatten(Schedule()))
    assert flatten(Schedule()) == PLAIN


def test_every_field_says_what_it_is() -> None:
    for members in AXES.values():
        for member in members:
            assert {item.name for item in fields(member)} - {"a", "b"} == set(meanings(member))
    for key, field in KEYS.items():
        assert 10 < len(field.help) < 100 and field.like and field.members, key
        assert len(set(field.tries)) > 1, key


def test_every_field_is_listed() -> None:
    text = printed("fields")
    for key, field in KEYS.items():
        assert field.help in text and re.search(rf"(?m)^    (a\.\|)?{re.escape(key.replace('a.', 'b.'))} ", text), key
    for members in AXES.values():
        for member in members:
            assert f" {member.__name__}: " in text


def test_every_mainloop_has_an_example() -> None:
    assert {type(schedule.mainloop) for schedule in EXAMPLES} == set(MAINLOOPS)


@pytest.mark.parametrize("schedule", EXAMPLES, ids=lambda x: kernel_name(x, GemmSpec()))
def test_every_field_of_a_member_is_written_and_read(schedule: Schedule) -> None:
    """One by one, from the command line, from TOML and in Python."""
    found = 0
    for part in schedule.parts:
        for key, (annotation, meaning) in meanings(type(part)).items():
            for value in values(annotation, meaning):
                if key in schedule.mainloop.without:
                    continue
                try:
                    changed = schedule.but(**{key: value})
                except ScheduleError:
                    continue
                found += 1
                assert flatten(changed)[key] == value
                assert read_document(schedule_to_toml(changed), "it").schedule == changed
                assert unflatten(flatten(changed), changed.name) == changed
                sets = [f"{key}={text_of(value)}"]
                assert flatten(build_schedule(sets=sets, base=schedule))[key] == value
    assert found > 10


@given(schedules)
@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_every_schedule_is_written_and_read(schedule: Schedule) -> None:
    assert read_document(schedule_to_toml(schedule), "it").schedule == schedule
    assert unflatten(flatten(schedule)) == schedule
    assert schedule.but() == schedule and hash(schedule.but()) == hash(schedule)


def foreign(schedule: Schedule) -> dict[str, Value]:
    """The keys of other members, each with a value that says that it is there."""
    flat = flatten(schedule)
    own = {name for part in schedule.parts for name in meanings(type(part))} - schedule.mainloop.without
    found: dict[str, Value] = {}
    for key, field in KEYS.items():
        operand, _, name = key.rpartition(".")
        held = name in schedule.mainloop.operand_keys(operand, getattr(schedule, operand)) if operand else key in own
        # What chooses another member is no key of this one.
        choosing = field.kind in ("Atom", "Memory") or key in ("vector", "tma", "stream_k", "atomic", "persistent")
        choosing = choosing or key in ("block_2d", "direct", "lanes_along_k")
        choosing = (
            choosing or name in ("block_read", "shuffle") or key in ("split_k", "cluster_reduction", "epilogue_stages")
        )
        # Where a group is one sub-group, it follows.
        choosing = choosing or (key == "sub_group" and isinstance(schedule.mainloop, Dpas))
        if not held and not choosing:
            # Where C is staged, 1 says as well that work-items store nothing.
            harmless = 1 if key == "c_width" else None
            found[key] = next(x for x in field.tries if x not in (flat[key], harmless, None))
    return found


@pytest.mark.parametrize("schedule", EXAMPLES, ids=lambda x: kernel_name(x, GemmSpec()))
def test_a_key_of_another_member_is_refused_with_a_remedy_that_works(schedule: Schedule) -> None:
    for key, value in foreign(schedule).items():
        if key == "register_stages" and isinstance(value, int) and value > 2:
            continue
        with pytest.raises(ScheduleError) as caught:
            change(schedule, {key: value})
        problem = next(problem for problem in caught.value.problems if problem.startswith(f"{key} = "))
        assert "means nothing to" in problem, problem
        remedies = [remedy for remedy in proposals(problem) if remedy[0] == "--set" and remedy[1].startswith(f"{key}=")]
        assert remedies, problem
        for _, text in remedies:
            assert build_schedule(sets=[text], base=schedule) == schedule


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(ScheduleError) as caught:
        defaults("naive").but(stages=3, mbarrier=2, cluster=(2, 1), sliced_k=0)
    assert len(caught.value.problems) == 4


def test_members_that_do_not_go_together_are_refused() -> None:
    for parts, problem in (
        ((ThreadTiling(), Dpas()), "tiling ThreadTiling does not go with mainloop Dpas: use Tiling"),
        ((Tiling(), Direct()), "tiling Tiling does not go with mainloop Direct: use ThreadTiling"),
    ):
        with pytest.raises(ScheduleError, match=problem):
            Schedule(parts[0], parts[1])
    with pytest.raises(ScheduleError, match="scheduler Persistent does not go with mainloop SharedMemory: use OneTile"):
        Schedule(ThreadTiling(), SharedMemory(a=Operand("local")), scheduler=Persistent())
    with pytest.raises(ScheduleError, match=r"a.pad = 4 means nothing to mainloop Direct: leave it out"):
        Schedule(mainloop=Direct(a=Operand(pad=4)))
    with pytest.raises(ScheduleError, match="threadblock_swizzle = 8 means nothing to mainloop Dpas"):
        Schedule(Tiling((8, 2), (1, 8), 16), Dpas(), scheduler=OneTile(8))
    assert Schedule(mainloop=Direct(), scheduler=SplitK(split_k=2)).split_k == 2


def test_the_member_follows_from_the_keys() -> None:
    local = Operand("local")
    made = build_schedule("naive", sets=["a.memory=local", "stages=2"])
    assert isinstance(made.mainloop, SharedMemory) and made.stages == 2
    assert isinstance(defaults("naive").but(a=local, b=local, stages=2).mainloop, SharedMemory)
    ring = presets.load("mbarrier_8x16_16x16_boxes_packed").schedule
    assert isinstance(ring.but(tma=False, producer_threads=0, setmaxnreg=(0, 0)).mainloop, SharedMemory)
    assert defaults("wgmma").but(epilogue_stages=2).but(epilogue_stages=0) == defaults("wgmma")
    assert defaults("wgmma").but(persistent=True).scheduler == Persistent(8)
    swapped = defaults("wgmma").but(tile=(64, 2), group=(4, 32))
    assert isinstance(swapped.mainloop, WarpgroupMma) and swapped.thread_vector == (2, 1)
    # The width of a copy follows the instruction.
    bytes_of = {"mma": 8, "mma_s8": 16, "mma_f64": 2}
    for atom, width in bytes_of.items():
        changed = defaults("mma").but(atom=atom)
        assert isinstance(changed.mainloop, WarpMma) and changed.a.width == changed.b.width == width


@given(flats(), st.sampled_from(sorted(TARGETS)), st.sampled_from([F32, F16, BF16, I8]), st.data())
@settings(suppress_health_check=list(HealthCheck), max_examples=300, deadline=None)
def test_any_keys_are_a_schedule_or_refused(flat: Flat, target: str, dtype: object, data: st.DataObject) -> None:
    """Those of one member with one or two of any others: no other error, and a kernel where there is no problem."""
    for key in data.draw(st.lists(st.sampled_from(sorted(KEYS)), max_size=2)):
        flat[key] = data.draw(st.sampled_from(KEYS[key].tries))
    backend = {"cuda": "cuda", "sm": "cuda", "sycl": "sycl"}.get(target.partition("_")[0], "opencl")
    try:
        spec = replace(GemmSpec(), dtype=dtype)  # type: ignore[arg-type]
        schedule = unflatten(flat)
        if not problems_as_asked(spec, schedule, TARGETS[target]):
            driver.emit(spec, schedule, backend, TARGETS[target])
    except (ScheduleError, SpecError):
        reject()
