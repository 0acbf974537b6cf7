"""A constant of an emitted file is free, or guarded: with another value that no guard refuses the text is the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

import pytest

from gemmgen import driver, presets
from gemmgen.errors import ScheduleError
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Lines that say what constants are, and what they may be.
_DEFINED = re.compile(r"^(?:constexpr int (.*); //.*|#define ([A-Z_]+) ([A-Z_0-9 /*+()]+))$", re.MULTILINE)
_GUARD = re.compile(
    r"^(?:static_assert\((.*?),\s+\"[^;]*\"\);|#if ((?!defined).*)\n(?:#error.*\n)+#endif)$", re.MULTILINE
)
#: The bytes of a tile of shared memory.
_SIZEOF = re.compile(r"sizeof\((\w+)((?:\[[^\]]+\])+)\)")
#: A member of a struct of shared memory, and the bytes of its elements.
_MEMBER = re.compile(r"^    (?:    )?(?:alignas\((\d+)\) )?([\w ]+?) \w+((?:\[[^\]]+\])+);", re.MULTILINE)
_BYTES = {"float": 4, "double": 8, "unsigned long long": 8, "__nv_bfloat16": 2, "signed char": 1, "__nv_fp8_e4m3": 1}
#: Lines that change how fast a file is, and not what it computes.
_SPEED = re.compile(r"^ *(?:#pragma (?:GCC )?unroll.*|griddepcontrol_launch_dependents\(\);)\n", re.MULTILINE)
#: The same of blocks of a multiprocessor: other tiles may leave no room for as many.
_BLOCKS = re.compile(r"(?<=::THREADS), \d(?=\))")
#: What a device has too little of, which compilers or launches say.
_CAPACITY = re.compile(r"(?:local memory|registers) .* on this target")
#: Changes whose file has a shorter formula for the same number: of a part of K that is whole by then, of a line that
#: all work-items have.
SHORTER = {("smem_8x8_double_packed", "block_k", 32), ("mma_8x8_16x16_prefetch", "tile", (8, 16))}


def values_in(text: str) -> dict[str, int]:
    """What a file defines."""
    found: dict[str, int] = {}
    for line, name, value in _DEFINED.findall(text):
        for one, formula in [part.split(" = ") for part in line.split(", ")] if line else [(name, value)]:
            found[one] = int(eval(formula.replace("/", "//"), {}, dict(found)))
    return found


def refuses(text: str, values: dict[str, int]) -> bool:
    """Whether a guard of a file stops a compiler that sees these values."""
    for holds, fails in _GUARD.findall(text):
        condition = (holds or fails).replace("/", "//").replace("&&", "and").replace("||", "or")
        if "sizeof(Shared)" in condition:
            condition = condition.replace("sizeof(Shared)", str(shared_bytes(text, values)))
        condition = _SIZEOF.sub(
            lambda tile: f"({_BYTES[tile[1]]}{tile[2].replace('[', ' * (').replace(']', ')')})", condition
        )
        if bool(eval(condition, {}, dict(values))) != bool(holds):
            return True
    return False


def shared_bytes(text: str, values: Mapping[str, int]) -> int:
    """What the tiles of a file's struct of shared memory take."""
    end = 0
    for alignment, kind, dimensions in _MEMBER.findall(text):
        if kind not in _BYTES:
            continue
        extents = [eval(x.replace("/", "//"), {}, dict(values)) for x in re.findall(r"\[([^\]]+)\]", dimensions)]
        unit = int(alignment or _BYTES[kind])
        end = -(-end // unit) * unit + _BYTES[kind] * prod(extents)
    return end


def below(text: str) -> str:
    """A file without its head comment, its constants and their guards, and what changes its speed alone."""
    body = _SPEED.sub("", _GUARD.sub("", _DEFINED.sub("", _BLOCKS.sub("", text[text.index("\n\n") :]))))
    return re.sub(r"\n\n+", "\n", re.sub(r"^// .*\.\n(?=\n)|^#undef [A-Z_]+$", "", body, flags=re.MULTILINE))


def others(s: Schedule) -> Iterator[Mapping[str, object]]:
    """Other values of a schedule's fields that have names in the text."""
    rows, cols = s.tile
    for times in (1, 3, 4, 6, 8):
        yield {"tile": (rows * times // 2, cols)}
        yield {"tile": (rows, cols * times // 2)}
        yield {"block_k": s.block_k * times // 2}
    yield from ({"stages": s.stages + more} for more in sorted({-2, -1, 1, 2, -s.mbarrier} - {0}))
    yield from ({"block_k": s.block_k * 2, "stages": s.stages // 2} for _ in range(s.stages >= 4))
    yield from ({"threadblock_swizzle": rows} for rows in (2, 4, 8, 32) if s.threadblock_swizzle)
    yield from ({"split_k": parts} for parts in (2, 3, 16) if s.split_k > 1)


def compared(spec: GemmSpec, schedule: Schedule, backend: str) -> tuple[set[str], list[str]]:
    """The constants that were changed with the text staying as it is, and those where it did not."""
    target = driver.default_target(spec, schedule, backend)
    if schedule.min_blocks:
        # Other tiles may leave no room for as many blocks: that takes speed, and changes nothing else.
        schedule = schedule.but(min_blocks=0, name=schedule.name)
    base = driver.emit(spec, schedule, backend, target)
    known, body = values_in(base.text), below(base.text)
    same: set[str] = set()
    wrong: list[str] = []
    for changes in others(schedule):
        try:
            other = driver.emit(spec, schedule.but(**changes, name=base.name), backend, target)
        except ScheduleError as error:
            wrong += unrefused(base.text, schedule, changes, error)
            continue
        values = {**known, **{k: v for k, v in values_in(other.text).items() if k in known}}
        changed = {name for name in known if values[name] != known[name]}
        if changed and not refuses(base.text, values):
            same |= changed
            shorter = any((base.name, key, value) in SHORTER for key, value in changes.items())
            wrong += [] if shorter or below(other.text) == body else [f"{base.name} {backend} {changes}"]
    return same, wrong


def unrefused(text: str, schedule: Schedule, changes: Mapping[str, object], error: ScheduleError) -> list[str]:
    """What no schedule may have, by hand: a guard refuses it, but for what a device has too little of."""
    known, edits = values_in(text), dict[str, int]()
    for field, value in changes.items():
        if isinstance(value, tuple):
            sides = zip(("BM", "BN"), value, schedule.tile, strict=True)
            edits |= {x: known[x] * new // old for x, new, old in sides if new != old and x in known}
        elif (name := {"block_k": "BK", "stages": "STAGES"}.get(field, "")) in known and isinstance(value, int):
            edits[name] = value
    problems = [problem for problem in error.problems if not _CAPACITY.search(problem)]
    for name, value in edits.items():
        text = re.sub(rf"(\b{name} = |#define {name} )\d+", rf"\g<1>{value}", text)
    if not edits or not problems or refuses(text, values_in(text)):
        return []
    return [f"{edits}: {problem}" for problem in problems]


@pytest.mark.parametrize("backend", ["cuda", "opencl", "sycl"])
@pytest.mark.parametrize("name", presets.names())
def test_what_no_guard_refuses_leaves_the_text_as_it_is(name: str, backend: str) -> None:
    preset = presets.load(name)
    if driver.refusals(preset.spec, preset.schedule, backend):
        return
    assert not compared(preset.spec, preset.schedule, backend)[1]


@pytest.mark.parametrize(
    ("name", "backend", "free"),
    [
        ("wgmma_128x256_s4", "cuda", {"BK", "STAGES", "GROUP_M"}),
        ("wgmma_f8_128x256_s4", "cuda", {"BK", "STAGES", "GROUP_M"}),
        ("wgmma_16x64_s8_joined2", "cuda", {"BK", "STAGES"}),
        ("mma_8x16_16x8", "cuda", {"STAGES", "GROUP_M"}),
        ("mma_8x16_16x8", "cuda", {"BM", "BN", "BK"}),
        ("smem_8x8", "cuda", {"BM", "BN", "BK"}),
        ("smem_8x8", "opencl", {"BM", "BN", "BK"}),
        ("smem_8x8_double", "sycl", {"BM", "BN", "BK"}),
        ("async_8x8_16x16", "cuda", {"BM", "BN", "BK", "STAGES"}),
        ("mbarrier_8x16_16x16", "cuda", {"BM", "BN", "BK", "STAGES", "GROUP_M"}),
        ("mbarrier_8x16_16x16_boxes_packed", "cuda", {"BM", "BN", "STAGES", "GROUP_M"}),
        ("lds_8x8_16x16_k8", "opencl", {"BM", "BN", "BK"}),
    ],
)
def test_these_are_free(name: str, backend: str, free: set[str]) -> None:
    preset = presets.load(name)
    assert free <= compared(preset.spec, preset.schedule, backend)[0]


@pytest.mark.parametrize(
    "sizes",
    [{"m": 128, "n": 256, "k": 64}, {"m": 100, "n": 90, "k": 67}, {"multiple_of": (256, 256, 64)}, {"k": 5}],
    ids=str,
)
@pytest.mark.parametrize(
    ("name", "backend"), [("smem_8x8", "opencl"), ("async_8x8_16x16", "cuda"), ("mma_8x16_16x8", "cuda")]
)
def test_known_sizes_are_guarded_where_checks_are_left_out(name: str, backend: str, sizes: dict[str, int]) -> None:
    """A tile that does not divide a size would write past C, and a step that does not divide K read past A."""
    preset = presets.load(name)
    spec = replace(preset.spec, **sizes)  # type: ignore[arg-type]
    assert not compared(spec, preset.schedule, backend)[1]
    text = driver.emit(spec, preset.schedule, backend).text
    values = values_in(text)
    assert not refuses(text, values)
    if sizes.get("m") == 128:
        assert refuses(text, values | {"BM": values["BM"] * 3})


@pytest.mark.parametrize("backend", ["cuda", "opencl", "sycl"])
def test_half_of_a_gated_tile_keeps_its_vectors(backend: str) -> None:
    """Where half is one vector, its columns are counted as its elements, which two vectors are not."""
    preset = presets.load("lds_8x8_16x16_k8")
    text = driver.emit(replace(preset.spec, epilogue=("swiglu",)), preset.schedule, backend).text
    values = values_in(text)
    assert not refuses(text, values)
    assert refuses(text, values | {"BN": values["BN"] * 2, "TN": values["TN"] * 2})
