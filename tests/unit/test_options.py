from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from gemmgen.backends import BACKENDS
from gemmgen.backends.constants import LINES
from gemmgen.errors import ScheduleError, SpecError
from gemmgen.kernel_names import kernel_name
from gemmgen.methods import METHODS, defaults, departures, flatten, options_of
from gemmgen.names import name_problem
from gemmgen.options import FIELDS, build_schedule, build_spec, read_document, schedule_to_toml
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec
from tests.support.schedules import schedules as anything

pairs = st.tuples(st.integers(1, 64), st.integers(1, 64))
usual = st.builds(
    defaults,
    st.sampled_from(METHODS),
    st.none() | st.tuples(st.integers(1, 16), st.integers(1, 8)),
    st.none() | st.tuples(st.sampled_from([1, 4, 8]), st.sampled_from([8, 16, 64])),
    st.none() | st.integers(1, 16),
    st.none(),
)
schedules = usual | anything


def problems_of(**options: object) -> tuple[str, ...]:
    build = cast("type[Schedule]", build_schedule)
    with pytest.raises(ScheduleError) as error:
        build(**options)  # type: ignore[arg-type]
    return error.value.problems


# --- defaults and what follows --------------------------------------------------------------------


def test_defaults() -> None:
    schedule = build_schedule()
    a, b = Operand(width=2, block_read=True, shuffle=True), Operand(width=2, block_read=True)
    assert schedule == Schedule.of(tile=(32, 2), group=(1, 8), thread_vector=(32, 1), block_k=16, sub_group=8, a=a, b=b)
    assert options_of(schedule) == "--method simd --tile 32x2 --group 1x8"


@pytest.mark.parametrize("method", METHODS)
def test_a_method_makes_schedules_of_its_own(method: str) -> None:
    assert build_schedule(method).method == method


@pytest.mark.parametrize(
    ("tile", "width"), [("32x2", 2), ("8x4", 4), ("8x8", 8), ("8x16", 8), ("8x3", 1), ("8x6", 2), ("8x12", 4)]
)
def test_width_of_b_follows_the_tile(tile: str, width: int) -> None:
    assert build_schedule(tile=tile).b.width == width


def test_sub_group_and_depth_follow_the_group_and_the_other_way_round() -> None:
    wide = build_schedule(group="4x16")
    assert (wide.sub_group, wide.block_k) == (16, 16)
    asked = build_schedule(sub_group=16)
    assert (asked.group, asked.block_k, departures(asked)) == ((1, 16), 16, {})
    short = build_schedule(block_k=8)
    assert (short.group, short.sub_group, departures(short)) == ((1, 8), 8, {"block_k": 8})
    # As deep as registers allow, 8 being a sub-group's lanes.
    tiles = ("64x1", "32x2", "16x2", "16x4", "8x4")
    assert [build_schedule(tile=tile).block_k for tile in tiles] == [32, 16, 32, 8, 32]
    # Where a step of B is too long for them, it is read in parts of as many as a sub-group has lanes.
    assert [build_schedule(tile=tile).b_sub_step for tile in tiles] == [0, 0, 0, 0, 8]
    assert departures(build_schedule(tile="8x4", block_k=32)) == {}
    assert build_schedule(group="1x64").sub_group == 32


def test_slm_follows_the_tile() -> None:
    assert build_schedule("slm", tile="6x4").thread_vector == (6, 4)
    odd = build_schedule("slm", tile="6x3", block_k="6")
    assert (odd.thread_vector, odd.a.width, odd.b.width) == ((6, 1), 2, 1)


def test_block_read_follows_the_tile_and_the_depth() -> None:
    schedule = build_schedule("block_read", tile="12x1", group="1x16")
    assert (schedule.a.width, schedule.b.width) == (4, 8)


def test_what_is_set_does_not_follow() -> None:
    schedule = build_schedule(
        "slm", tile="4x8", block_k=16, sets=["a.width=2", "thread_vector=2x2", "b.memory = local"]
    )
    assert (schedule.thread_vector, schedule.a.width, schedule.b.memory) == ((2, 2), 2, "local")


def test_a_base_keeps_its_own_choices_and_lets_the_rest_follow() -> None:
    base = build_schedule("slm", name="preset").but(stages=2, a=Operand("local", 4, pad=1))
    changed = build_schedule(base=base, tile="4x4")
    assert (changed.thread_vector, changed.stages, changed.a.pad, changed.name) == ((4, 4), 2, 1, None)
    wide = build_schedule(base=build_schedule(group="1x16"), tile="8x4")
    assert (wide.group, wide.sub_group, wide.block_k) == ((1, 16), 16, 16)


def test_a_base_that_is_not_changed_keeps_its_name() -> None:
    base = build_schedule("naive", name="mine")
    assert build_schedule(base=base, tile="1x1").name == "mine"
    assert build_schedule(base=base, name="other").name == "other"


def test_lanes_can_be_taken_away() -> None:
    schedule = build_schedule(sets=["sub_group=none"])
    assert schedule.sub_group is None
    assert departures(schedule) == {"sub_group": None}


# --- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tile",
    [
        "32x",
        "x2",
        "0x2",
        "-1x2",
        "axb",
        "",
        "32",
        "2.5x2",
        "32x2x1",
        "100000x100000",
        "9" * 5000 + "x1",
        "³x2",
        "３２x2",
    ],
)
@pytest.mark.parametrize("key", ["tile", "group"])
def test_bad_pairs(key: str, tile: str) -> None:
    assert any(key in problem for problem in problems_of(**{key: tile}))


@pytest.mark.parametrize("number", ["0", "-1", "two", "1.5", "", "9" * 30, "1e3", "８"])
@pytest.mark.parametrize("key", ["block_k", "sub_group"])
def test_bad_numbers(key: str, number: str) -> None:
    assert len(problems_of(**{key: number})) == 1


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("stages=two", "whole numbers from 1 to 64"),
        ("stage=2", "did you mean stages"),
        ("a.widht=2", "a.width"),
        ("barrier=1", "neither true nor false"),
        ("barrier=yes", "neither true nor false"),
        ("a.memory=lokal", "did you mean local"),
        ("a.pad=-1", "-1 < 0"),
        ("b.width=33", "33 > 32"),
        ("tile", "give one, --set tile=32x2"),
        ("name=a b", "identifier"),
        ("=3", "no field"),
    ],
)
def test_bad_settings(setting: str, part: str) -> None:
    (problem,) = problems_of(sets=[setting])
    assert part in problem


def test_every_problem_at_once() -> None:
    found = problems_of(
        method="smid",
        tile="32x",
        group="0x2",
        block_k="zero",
        sub_group=-8,
        sets=["stages=two", "stagez=2", "tile=3x3", "prefetch=maybe"],
        name="2fast",
    )
    for part in ("simd", "'32x'", "rows = 0", "zero", "-8", "two", "stages", "twice", "maybe", "2fast"):
        assert any(part in problem for problem in found), part


def test_a_field_given_twice_is_told_as_it_is_written() -> None:
    assert problems_of(tile="4x4", sets=["tile=3x3"]) == ("tile is given twice, as 4x4 and 3x3: leave one out",)
    assert problems_of(sub_group="none", sets=["sub_group=8"])[0].startswith("sub_group is given twice, as none and 8")
    assert problems_of(sets=["stages=0", "stages=2"])[1] == "stages is given twice, as 0 and 2: leave one out"


def test_a_method_cannot_contradict_the_base() -> None:
    assert "naive" in problems_of(method="slm", base=build_schedule("naive"))[0]
    assert build_schedule("naive", base=build_schedule("naive"), tile="2x2").tile == (2, 2)


@pytest.mark.parametrize(
    "name",
    [
        "float", "kernel", "__kernel", "get_global_id", "min", "dot", "float4", "class", "template", "_Bool", "main",
        "a__b", "as_float4", "convert_int", "intel_sub_group_shuffle", "sub_group_any", "threadIdx", "barrier",
        "CLK_X", "NULL", "block_read", "block_read8", "image_block_read4", "COPY4", "copy4", "cp_async_commit_group",
        "wgmma_fence", "a_map", "ACC", "mbarrier_arrive_expect_tx", "multiply", "LOAD4", "STORE2", "LOAD_LOCAL4",
        "gamma", "y0", "j1", "exit", "malloc", "stdin", "EOF", "linux", "sqrtf", "scalbnl", "index", "int32_t",
        "", "2x", "a b", "a-b", "é", "a;", "a\n", "x" * 65,
    ],
)  # fmt: skip
def test_bad_names(name: str) -> None:
    assert name_problem(name) is not None
    with pytest.raises(ScheduleError):
        build_schedule(name=name)


@pytest.mark.parametrize("letter", ["x", "-", "\n"])
def test_a_name_that_is_too_long_is_not_repeated_whole(letter: str) -> None:
    problem = name_problem(letter * 5000)
    assert problem is not None
    assert "5000 > 64 characters" in problem
    assert len(problem) < 250


def test_no_function_of_an_emitted_file_can_be_a_kernels_name(root: Path) -> None:
    """Neither those of the templates, nor their macros; what begins with the kernel's own name can't be."""
    found: set[str] = set()
    templates = (file for name in (*BACKENDS, "simt") for file in (root / "templates" / name).glob("*.j2"))
    for file in templates:
        text = re.sub(r"\{\{[^}]*\b(?:width|w)\b[^}]*\}\}", "4", file.read_text())
        found |= set(re.findall(r"^(?:__device__|static inline|inline)[^(\n]*?(?<!\}})\b(\w+)\(", text, re.MULTILINE))
        found |= set(re.findall(r"^#define (\w+)(?![\w{])", text, re.MULTILINE))
    # Functions of which the template has one text for several names.
    names = found | {
        "load_32x32",
        "read_vnni_32x32",
        "load_transposed_16x16",
        "prefetch_32x32",
        "stmatrix_x4",
        "stmatrix_x4_trans",
        "conjugate",
        "cadd",
        "cmul",
        "cfma",
        "COPY4",
        "COPY_LOCAL4",
    }
    assert len(names) > 45
    assert not [name for name in names if name_problem(name) is None]


def test_no_constant_of_an_emitted_file_can_be_a_kernels_name() -> None:
    names = {name for line, _ in LINES for name in line}
    assert not [name for name in sorted(names) if name_problem(name) is None]


@pytest.mark.parametrize("name", ["gemm", "_gemm", "x" * 64, "L3_SIMD_32x2_1x8", "kernels", "float5", "mine2"])
def test_good_names(name: str) -> None:
    assert name_problem(name) is None
    assert kernel_name(build_schedule(name=name), GemmSpec()) == name


# --- names of schedules ---------------------------------------------------------------------------


@given(schedules, schedules)
def test_options_tell_schedules_apart(one: Schedule, other: Schedule) -> None:
    assert (one == other) == (options_of(one) == options_of(other))


@given(schedules, st.data())
def test_options_tell_neighbours_apart(one: Schedule, data: st.DataObject) -> None:
    flat, other = flatten(one), flatten(data.draw(schedules))
    key = data.draw(st.sampled_from(sorted(flat)))
    try:
        neighbour = one.but(**{key: other[key]})
    except ScheduleError:
        reject()
    assert (one == neighbour) == (options_of(one) == options_of(neighbour))


@given(schedules)
def test_kernels_names_are_identifiers(schedule: Schedule) -> None:
    assert re.fullmatch(r"gemm_f32_[A-Za-z0-9_]*", kernel_name(schedule, GemmSpec()))


@given(st.sampled_from(METHODS), pairs, pairs)
def test_defaults_depart_from_nothing(method: str, tile: tuple[int, int], group: tuple[int, int]) -> None:
    assert departures(defaults(method, tile, group)) == {}


# --- TOML -----------------------------------------------------------------------------------------


@given(schedules, st.none() | st.just("mine"))
def test_toml_round_trip(schedule: Schedule, name: str | None) -> None:
    schedule = replace(schedule, name=name)
    assert read_document(schedule_to_toml(schedule), "here").schedule == schedule


@given(schedules)
def test_set_round_trip(schedule: Schedule) -> None:
    def text(value: object) -> str:
        return "x".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()

    flat = flatten(schedule)
    assert set(flat) == set(FIELDS)
    assert build_schedule(sets=[f"{key}={text(value)}" for key, value in flat.items()]) == schedule


def test_toml_starts_from_its_method() -> None:
    text = 'summary = "x"\nmethod = "block_read"\ntile = "16x2"\n[b]\nwidth = 4\n'
    text += '[spec]\nb_order = "col"\nmultiple_of = [4, 2, 1]\nld_multiple = [8, 8, 1]\n'
    document = read_document(text, "here")
    assert document.summary == "x"
    assert document.schedule == defaults("block_read", (16, 2)).but(b=Operand("image", 4, block_read=True))
    assert (document.spec.b_order, document.spec.multiple_of) == ("col", (4, 2, 1))
    assert document.spec.ld_multiple == (8, 8, 1)


def test_every_problem_of_a_file_at_once() -> None:
    text = (
        'tile = [3, 2]\nname = "float"\nmethod = "slim"\nsummary = 3\na = 3\nstagse = 2\nbarrier = "perhaps"\n'
        '[b]\nwidht = 2\nwidth = 1.5\n[spec]\nm = -1\nq = 2\nalpha = "x"\na_order = "z"\n'
        'dtype = "float31"\nmultiple_of = [1, 2]\n'
    )
    with pytest.raises(ScheduleError) as error:
        read_document(text, "f.toml")
    found = error.value.problems
    assert all(problem.startswith("f.toml: ") for problem in found)
    for part in (
        "[3, 2]",
        "float",
        "slim",
        "summary",
        "a = 3",
        "stages",
        "perhaps",
        "b.width",
        "1.5",
        "M = -1 is",
        "'q'",
        "'x'",
    ):
        assert any(part in problem for problem in found), part
    for part in ("float31", "layout", "1,2"):
        assert any(part in problem for problem in found), part


def test_a_table_that_no_document_has() -> None:
    with pytest.raises(
        ScheduleError, match=r"unknown table 'schedule': write its fields above \[a\], \[b\] and \[spec\]"
    ):
        read_document('[schedule]\ntile = "8x8"\n', "f.toml")


def test_what_is_no_toml() -> None:
    with pytest.raises(ScheduleError, match=r"f\.toml: not TOML"):
        read_document("tile = 32x2", "f.toml")


# --- specs ----------------------------------------------------------------------------------------


def test_leading_dimensions_of_each_matrix() -> None:
    spec = build_spec(layout="row,col", ld_multiple="8, 16,1")
    assert [spec.ld_unit(name) for name in "abc"] == [8, 16, 1]
    assert [spec.transposed().ld_unit(name) for name in "abc"] == [16, 8, 1]
    assert build_spec(ld_multiple="8,8,8") == build_spec(ld_multiple="8"), "one number where all are equal"
    for text, problem in (("8,8", "give one whole number or three"), ("8,x,1", "'x' is no size"), ("0", "is no size")):
        with pytest.raises(SpecError, match=problem):
            build_spec(ld_multiple=text)
    with pytest.raises(SpecError, match="multiples of -1 < 1"):
        GemmSpec(ld_multiple=(8, -1, 8))
    with pytest.raises(SpecError, match="give a whole number, or three: for A, B and C"):
        GemmSpec(ld_multiple=(8, 8))  # type: ignore[arg-type]


def test_spec() -> None:
    spec = build_spec(m="64", k="32", dtype="float32", layout="row,col", alpha="2", beta="0", multiple_of="4,1,8")
    assert (spec.m, spec.n, spec.k, spec.alpha, spec.beta) == (64, None, 32, 2.0, 0.0)
    assert (spec.a_order, spec.b_order, spec.c_order, spec.multiple_of) == ("row", "col", "row", (4, 1, 8))
    assert spec.ld_multiple == 1
    changed = build_spec(beta="1", base=spec)
    assert (changed.m, changed.alpha, changed.beta, changed.b_order) == (64, 2.0, 1.0, "col")


@pytest.mark.parametrize("size", [1, 2**31 - 1025])
def test_the_limits_that_a_message_names_are_taken(size: int) -> None:
    assert build_spec(m=str(size)).m == size
    with pytest.raises(SpecError, match=f"from 1 to {2**31 - 1025}"):
        build_spec(m=str(2**31 - 1024))


def test_every_problem_of_a_spec_at_once() -> None:
    with pytest.raises(SpecError) as error:
        build_spec(m="0", n="-3", k="x", dtype="float31", layout="diagonal", alpha="nan", beta="two", multiple_of="4,x")
    assert len(error.value.problems) >= 8


@pytest.mark.parametrize("alpha", ["1e39", "-1e39", "inf", "1e999"])
def test_what_float32_cannot_hold_is_not_folded(alpha: str) -> None:
    with pytest.raises(SpecError):
        build_spec(alpha=alpha)
