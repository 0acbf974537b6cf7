"""Every field of every schedule, changed alone and in pairs: refused with a remedy, or it shows. Nothing is taken and
ignored, nothing is an error of ours, and head comments say what the kernels hold.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import cache

import pytest

from gemmgen import candidates, driver
from gemmgen.errors import ScheduleError, SpecError
from gemmgen.ir.dtypes import BF16, F16, F64, I8, DType
from gemmgen.ir.target import Target
from gemmgen.methods import flatten, unflatten
from gemmgen.schedule import KEYS, Flat, Schedule, Value
from gemmgen.source import Source
from gemmgen.spec import GemmSpec
from tests.support import heads

BACKENDS = ("opencl", "cuda", "sycl")
#: Of each field, what is tried.
VALUES = {key: field.tries for key, field in KEYS.items()}
#: Of all presets on all backends, how many each value is tried on, drawn anew for each value and always alike; and
#: how many pairs.
SAMPLE, PAIRS = 6, 400
#: Words that a remedy begins with.
REMEDIES = (
    "use",
    "leave",
    "drop",
    "set",
    "give",
    "let",
    "pass",
    "store",
    "choose",
    "read",
    "multiply",
    "call",
    "one",
)

Place = tuple[str, str]


def told(source: Source) -> tuple[object, ...]:
    """All that is delivered but the head comment."""
    lines = source.text.splitlines()
    begin = next(number for number, line in enumerate(lines) if not line.startswith("//"))
    options = source.build_options, source.gpu_options, source.requires, source.workspaces, source.alignment
    return tuple(lines[begin:]), source.entry_points, *options


def documented(schedule: Schedule, changes: Mapping[str, Value], target: Target) -> bool:
    """Whether the fields' documentation says that all of these changes may mean nothing: of a schedule as it is after
    them.
    """
    return all(_documented(schedule, key, target) for key in changes)


def _documented(s: Schedule, key: str, target: Target) -> bool:
    field = key.rpartition(".")[2]
    match field:
        case "thread_vector":
            return 1 in s.group
        case "width":
            return "unaligned_vectors" not in target.features or s.by_blocks
        case "block_read":
            return "block_read" not in target.features
        case "min_blocks":
            return not target.multiprocessor_register_bytes
        case "c_width":
            return s.epilogue_stages > 0 or "unaligned_vectors" not in target.features
        case "epilogue_stages":
            return s.epilogue_stages > 0
    return False


@cache
def places() -> list[Place]:
    """Presets and the backends that can take them."""
    loaded = [candidates.load(name) for name in candidates.names()]
    return [(p.name, x) for p in loaded for x in BACKENDS if not driver.refusals(p.spec, p.schedule, x)]


@cache
def target_of(place: Place) -> Target:
    preset = candidates.load(place[0])
    return driver.default_target(preset.spec, preset.schedule, place[1])


def emitted(place: Place, flat: Flat, spec: GemmSpec | None = None) -> tuple[Schedule, Source] | None:
    """What a schedule gives; None where it is refused, each problem with a remedy."""
    name, backend = place
    spec = spec or candidates.load(name).spec
    try:
        schedule = unflatten(flat, "product")
        source, program = driver.emit_program(spec, schedule, backend, target_of(place))
    except (ScheduleError, SpecError) as error:
        for problem in error.problems:
            assert any(word in problem.replace(",", " ").split() for word in REMEDIES), problem
        return None
    assert heads.problems(source, program) == []
    return schedule, source


@cache
def plain(place: Place) -> tuple[object, ...]:
    """What a preset tells as it is."""
    found = emitted(place, flatten(candidates.load(place[0]).schedule))
    assert found is not None
    return told(found[1])


def check(place: Place, changes: dict[str, Value]) -> None:
    base = flatten(candidates.load(place[0]).schedule)
    found = emitted(place, {**base, **changes})
    if found is None:
        return
    schedule, source = found
    shows = told(source) != plain(place) or documented(schedule, changes, target_of(place))
    assert shows, f"{place}: {changes} is taken, and nothing but the head comment differs"


def single() -> Iterator[tuple[str, Value]]:
    for key, values in VALUES.items():
        yield from ((key, value) for value in values)


def test_every_field_has_values() -> None:
    assert set(VALUES) == set(flatten(Schedule()))


@pytest.mark.parametrize("key", VALUES)
def test_one_field(key: str) -> None:
    rng = random.Random(key)
    for value in VALUES[key]:
        drawn = rng.sample(places(), SAMPLE)
        for place in drawn:
            if flatten(candidates.load(place[0]).schedule)[key] != value:
                check(place, {key: value})


#: What was taken and ignored, or an error of ours.
FOUND = [
    ("mbarrier_8x16_16x16_boxes_packed", {"persistent": True}),
    ("mbarrier_8x16_16x16_boxes_packed", {"cluster": (2, 1)}),
    ("mbarrier_8x16_16x16_boxes_packed", {"cluster": (1, 2)}),
    ("mbarrier_8x16_16x16_boxes_packed", {"epilogue_stages": 1}),
    ("mbarrier_8x16_16x16_boxes_packed", {"ordered_epilogue": True}),
    ("mbarrier_8x16_16x16_boxes_packed", {"a.width": 4}),
    ("mbarrier_8x16_16x16_boxes_packed", {"b.width": 8}),
    ("wgmma_128x256_s4", {"c_width": 2}),
    ("wgmma_f8_128x256_s4_turns", {"group": (1, 8)}),
    ("mma_8x16_16x8", {"barrier": True}),
    ("naive", {"serpentine": True}),
    ("lds_8x8_16x16_k1", {"a.pad": 4}),
    ("lds_8x8_16x16_k1", {"b.pad": 8}),
]


@pytest.mark.parametrize(("name", "changes"), FOUND, ids=str)
def test_what_had_no_meaning_is_refused(name: str, changes: dict[str, Value]) -> None:
    place = name, "cuda"
    assert emitted(place, {**flatten(candidates.load(name).schedule), **changes}) is None


def test_pairs_of_fields() -> None:
    rng = random.Random(20)
    for _ in range(PAIRS):
        place, keys = rng.choice(places()), rng.sample(sorted(VALUES), 2)
        flat = flatten(candidates.load(place[0]).schedule)
        changes = {key: value for key in keys if (value := rng.choice(VALUES[key])) != flat[key]}
        if changes:
            check(place, changes)


def test_slots_are_counted_as_there_are_boxes() -> None:
    """A preset asks for no more than there are; who asks for more is told how many there are."""
    place = "wgmma_64x16_s8", "cuda"
    found = emitted(place, {**flatten(candidates.load(place[0]).schedule), "epilogue_stages": 2})
    assert found is not None and "1 stage in shared memory, stored by TMA" in heads.head_of(found[1])


def test_a_head_that_lies_is_found() -> None:
    preset = candidates.load("smem_8x8_double")
    source, program = driver.emit_program(preset.spec, preset.schedule, "opencl")
    assert heads.problems(source, program) == []
    for true, false in (
        ("8x8 per work-item", "8x4 per work-item"),
        ("16x16 per group", "8x16 per group"),
        ("2 stages in", "3 stages in"),
    ):
        lying = replace(source, text=source.text.replace(true, false, 1))
        assert len(heads.problems(lying, program)) == 1
    persistent = replace(source, text=source.text.replace("Multiply", "persistent groups", 1))
    assert len(heads.problems(persistent, program)) == 1


#: Of each field of a spec, values to try.
TYPES: tuple[DType, ...] = (F16, BF16, F64, I8)
SPECS: dict[str, tuple[object, ...]] = {
    "m": (1, 100),
    "n": (1, 100),
    "k": (1, 100),
    "dtype": TYPES,
    "a_order": ("row", "col"),
    "b_order": ("row", "col"),
    "c_order": ("row", "col"),
    "alpha": (0.0, 1.0, -2.5),
    "beta": (0.0, 1.0, 0.5),
    "multiple_of": ((1, 1, 1), (16, 16, 16), (1, 256, 32)),
    "ld_multiple": (1, 4, 16),
    "c_dtype": TYPES,
    "batched": (True,),
    "listed": (True,),
    "grouped": ("rows", "k"),
    "conj_a": (True,),
    "conj_b": (True,),
    "epilogue": (("relu",), ("bias", "gelu"), ("residual",)),
    "wide": (True,),
    "a_dtype": TYPES,
    "b_dtype": TYPES,
    "prologue_a": ("a * 2",),
    "prologue_b": ("b * b_scale",),
    "emulate": (True,),
    "allow_tf32": (True,),
}


def test_every_field_of_a_spec_has_values() -> None:
    assert set(SPECS) == {field.name for field in fields(GemmSpec)}


@pytest.mark.parametrize("key", SPECS)
def test_one_field_of_a_spec(key: str) -> None:
    rng = random.Random(key)
    for value in SPECS[key]:
        for place in rng.sample(places(), SAMPLE):
            preset = candidates.load(place[0])
            try:
                spec = replace(preset.spec, **{key: value})  # type: ignore[arg-type]
            except SpecError:
                continue
            emitted(place, flatten(preset.schedule), spec)
