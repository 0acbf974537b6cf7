"""Designs as points of the space that is searched, measured constants, and the records that come with gemmgen."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from gemmgen import GemmSpec, tuning
from gemmgen.choice import gpu
from gemmgen.choose import choose
from gemmgen.cli.tune import _products, _sized, _weighted
from gemmgen.errors import UserError
from gemmgen.ir.target import TARGETS
from gemmgen.options import build_spec
from gemmgen.options.specs import SpecTexts
from gemmgen.passes.validate import is_possible
from gemmgen.schedule import Schedule
from gemmgen.tuning import order
from gemmgen.tuning import recorded as recorded_module
from gemmgen.tuning.device import DeviceKey
from gemmgen.tuning.job import Job, Outcome, assuming_no_gaps
from gemmgen.tuning.recorded import Book, recorded
from gemmgen.tuning.records import Measurement, Records, Store, kind_of, parse
from gemmgen.tuning.space import known_schedules, space_of, spaces
from tests.support.designs import of_target

ROOT = Path(__file__).resolve().parents[2]
HOPPER = replace(TARGETS["sm_90a"], clock=1980, memory_rate=3_352_320, cache_bytes=50 << 20)
KINDS = {
    "sm_90a": ("bfloat16", "float16", "float8_e4m3fn", "int8", "float32"),
    "sm_80": ("bfloat16", "float32"),
    "sm_90": ("bfloat16", "float32"),
}
CASES = [(target, dtype) for target, dtypes in KINDS.items() for dtype in dtypes]


def spec_of(dtype: str) -> GemmSpec:
    along_k = dtype.startswith("float8") or dtype == "int8"
    return GemmSpec(dtype=dtype, b_order="col" if along_k else "row", ld_multiple=16)


@pytest.mark.parametrize(("target", "dtype"), CASES)
def test_designs_are_legal_points_of_the_space(target: str, dtype: str) -> None:
    spec = spec_of(dtype)
    found = of_target(spec, TARGETS[target])
    assert len(found) >= 12
    for schedule in found:
        if not is_possible(spec, schedule, TARGETS[target]):
            continue
        schedule = schedule.but(name=None)
        space = space_of(schedule, spec, TARGETS[target])
        point = space.point(schedule)
        assert point is not None, schedule
        assert space.schedule(point) == schedule


@pytest.mark.parametrize(("target", "dtype"), CASES)
def test_many_points_around_the_presets_are_legal(target: str, dtype: str) -> None:
    """Every sampled point validates; presets and designs are what it is sampled around."""
    spec = spec_of(dtype)
    for space in spaces(spec, TARGETS[target]):
        own = [each for each in of_target(spec, TARGETS[target]) if space.point(each) is not None]
        near = known_schedules(space) + own[:20]
        for point, schedule in space.sample(60, 7, near) if near else ():
            assert is_possible(spec, schedule, space.target)
            assert space.point(schedule) == point


def test_constants_are_kept_with_records(tmp_path: Path) -> None:
    store = Store(tmp_path / "tuned")
    store.change(KEY, lambda records: replace(records, machine={"memory": 3e6}))
    assert store.read(KEY).machine == {"memory": 3e6}
    head = json.loads(Records(KEY, (), {"memory": 3e6}).text())
    head["machine"] = {"memory": "x", "launch": -1, "other": 2.0, "fma": 90}
    assert parse(json.dumps(head), "file").machine == {"fma": 90.0}


# --- records that come with gemmgen ---------------------------------------------------------------

KEY = DeviceKey("cuda", "NVIDIA H100 80GB HBM3", 132, "another", "another", "0.0")


@pytest.mark.parametrize("path", tuning.shipped("cuda"), ids=lambda path: path.stem)
def test_shipped_records_are_legal(path: Path) -> None:
    records = parse(path.read_text(), path.name)
    assert records.machine
    for line in records.lines:
        made = line.measurement()
        assert line.checked
        assert is_possible(assuming_no_gaps(made.spec, made.shape), made.schedule, HOPPER)


def test_shipped_records_serve_any_driver(tmp_path: Path) -> None:
    spec = assuming_no_gaps(GemmSpec(dtype="bfloat16", b_order="col"), (2048, 768, 768))
    found = recorded(Book(KEY, Store(tmp_path), HOPPER), spec, (2048, 768, 768), HOPPER)
    assert found is not None
    assert found.how == "exact"
    other = Book(replace(KEY, device="NVIDIA A10"), Store(tmp_path), HOPPER)
    assert recorded(other, spec, (2048, 768, 768), HOPPER) is None


def test_a_kind_of_product_is_named_once(tmp_path: Path) -> None:
    """Whatever sizes and assumptions are: to name it takes as long as half of a choice."""
    book, shape = Book(KEY, Store(tmp_path), HOPPER), (2048, 768, 768)
    recorded_module._texts_alike.cache_clear()
    for units in ((8, 8, 8), (8, 16, 8), (16, 16, 16), 1):
        recorded(book, GemmSpec(dtype="bfloat16", b_order="col", ld_multiple=units), shape, HOPPER)
    assert recorded_module._texts_alike.cache_info().misses == 1


def test_sizes_near_by_differ_by_half_at_most() -> None:
    known = [(1536, 768, 768), (1537, 768, 768), (1024, 512, 768), (1024, 511, 768), (1024, 768, 1152), (900, 800, 700)]
    found = recorded_module._nearest_sizes(known, (1024, 768, 768))
    assert {shape for _, shape in found} == {known[0], known[2], known[4], known[5]}
    assert found == sorted(found)
    assert found[1][0] == pytest.approx(math.log2(1.5))


def test_float16_takes_what_bfloat16_has(tmp_path: Path) -> None:
    shape = (2048, 768, 768)
    book = Book(KEY, Store(tmp_path), HOPPER)
    own, other = (
        recorded(book, assuming_no_gaps(GemmSpec(dtype=dtype, b_order="col"), shape), shape, HOPPER)
        for dtype in ("bfloat16", "float16")
    )
    assert own is not None
    assert other is not None
    assert (other.schedule, other.how) == (own.schedule, "near")


@pytest.mark.parametrize("bits", ["int4", "int8"])
@pytest.mark.parametrize("group", [None, 32])
def test_weights_in_fewer_bits_can_be_looked_up(bits: str, group: int | None, tmp_path: Path) -> None:
    """int4 has one order, and was looked up in both: each such call on a GPU with records failed until 2026-11-27."""
    shape, scale = (1, 4096, 4096), "b_scale" if group is None else f"b_scale_{group}"
    spec = GemmSpec(dtype="bfloat16", b_dtype=bits, b_order="col", prologue_b=f"b * {scale}")
    found = recorded(Book(KEY, Store(tmp_path), HOPPER), assuming_no_gaps(spec, shape), shape, HOPPER)
    assert found is None or found.how == "near"


def test_the_users_own_come_before(tmp_path: Path) -> None:
    store, shape = Store(tmp_path / "tuned"), (2048, 768, 768)
    spec = assuming_no_gaps(GemmSpec(dtype="bfloat16", b_order="col"), shape)
    schedule = list(islice(gpu.ranked(spec, shape, HOPPER), 30))[-1][1]
    store.add(KEY, [Measurement(kind_of(spec), shape, 1, schedule, 1.0, 0.0, 9)])
    found = recorded(Book(KEY, store, HOPPER), spec, shape, HOPPER)
    assert found is not None
    assert found.schedule == schedule


# --- near by --------------------------------------------------------------------------------------


def test_the_model_is_set_right_by_what_was_measured_near_by(tmp_path: Path) -> None:
    """Two schedules that the model thinks equal: the one that was faster at sizes near by is taken."""
    store, key = Store(tmp_path / "tuned"), replace(KEY, device="other")
    spec = spec_of("float32")
    first = [x.but(name=None) for _, x in islice(gpu.ranked(spec, (1024, 1024, 1024), HOPPER), 2)]
    for shape, times in (((1024, 1024, 1024), (2e-3, 1e-3)), ((992, 1024, 1024), (1.9e-3, 0.9e-3))):
        made = zip(first, times, strict=True)
        store.add(key, [Measurement(kind_of(spec), shape, 1, each, seconds, 0.0, 9) for each, seconds in made])
    found = recorded(Book(key, store, HOPPER), spec, (1000, 1024, 1024), HOPPER)
    assert found is not None
    assert (found.how, found.schedule) == ("near", first[1])
    assert recorded(Book(key, store, HOPPER), spec, (64, 1024, 1024), HOPPER) is None


# --- the search -----------------------------------------------------------------------------------


class ByPrior:
    """A device on which the model is right."""

    width = 12

    def __init__(self) -> None:
        self.asked: list[Schedule] = []

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        for index, job in enumerate(jobs):
            self.asked.append(job.schedule)
            spec = assuming_no_gaps(job.spec, job.shape)
            yield index, Outcome((order.cost(spec, job.schedule, job.shape, HOPPER) or 0.0) * 1e-6, 0.01, 9)

    def compare(self, jobs: Sequence[Job], budget: float) -> list[Outcome]:
        del budget
        return [outcome for _, outcome in self.run(jobs)]

    def close(self) -> None:
        """Nothing is held."""


def test_a_gpus_search_measures_what_was_compiled_ahead_and_its_neighbours() -> None:
    pytest.importorskip("optuna")
    from gemmgen.tuning.study import Place, Product, Search

    device, shape = ByPrior(), (512, 3072, 768)
    told: list[int] = []
    search = Search(device, Place("cuda", None, HOPPER, KEY), Product(GemmSpec(dtype="bfloat16"), shape))
    ahead = [job.schedule for job in search.first(device.width)]
    progress = search.run(60, 40, lambda: told.append(len(device.asked)))
    assert progress.trials == len(set(device.asked)) == 40
    assert set(ahead) <= set(device.asked[: device.width + 1])
    assert told == [1 + device.width]
    spec = assuming_no_gaps(GemmSpec(dtype="bfloat16"), shape)
    assert all(is_possible(spec, each, HOPPER) for each in device.asked)
    from_order = set(islice(order.ordered(spec, shape, HOPPER), 40))
    assert set(device.asked) - from_order


def test_lines_of_a_model_have_types_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "layers.txt"
    file.write_text("64x32x16 3 bfloat16 row,col\n64x32x16\n128 2 float16  # a comment\n64x64x64 row,col\n")
    found = _sized(_weighted(file, {"dtype": "float32"}))
    assert [(x.shape, x.weight, str(x.spec.dtype), x.spec.b_order) for x in found] == [
        ((64, 32, 16), 3.0, "bfloat16", "col"),
        ((64, 32, 16), 1.0, "float32", "row"),
        ((128, 128, 128), 2.0, "float16", "row"),
        ((64, 64, 64), 1.0, "float32", "col"),
    ]
    file.write_text("64 1 float17\n64 1 row,row,row,row\n")
    with pytest.raises(UserError, match="float17"):
        _weighted(file, {})


def test_where_nothing_measured_near_by_can_be_used_the_prior_has_chosen(tmp_path: Path) -> None:
    """Lines that TMA can read there, and not here: the model has weighed all else in the same call."""
    store, key = Store(tmp_path / "tuned"), replace(KEY, device="other")
    near, shape = (1024, 1024, 1024), (1024, 1024, 1020)
    spec = assuming_no_gaps(GemmSpec(dtype="bfloat16", b_order="col"), near)
    _, schedule = next(gpu.ranked(spec, near, HOPPER))
    store.add(key, [Measurement(kind_of(spec), near, 1, schedule, 1e-9, 0.0, 9)])
    odd = assuming_no_gaps(GemmSpec(dtype="bfloat16", b_order="col"), shape)
    assert not is_possible(odd, schedule, HOPPER)
    found = recorded(Book(key, store, HOPPER), odd, shape, HOPPER)
    assert found is not None
    assert (found.how, found.schedule) == ("prior", choose(odd, shape, HOPPER))


def test_weights_in_fewer_bits_are_tuned_by_what_they_are(tmp_path: Path) -> None:
    """Types and formulas hold for each line of a file as well, whose own layout comes first."""
    said: SpecTexts = {"dtype": "bfloat16", "b_dtype": "int4", "prologue_b": "b * b_scale_128", "layout": "row,col"}
    file = tmp_path / "layers.txt"
    file.write_text("4x4096x4096 2 bfloat16 col,col\n")
    (of_file,) = _products(None, file, None, said, "cuda")
    (of_size,) = _products("4x4096x4096", None, None, said, "cuda")
    assert of_size.spec == build_spec(**said)
    assert of_file.spec == replace(of_size.spec, a_order="col")
    with pytest.raises(UserError) as error:
        _products(None, None, file, said, "cuda")
    assert [x.split()[0] for x in error.value.problems] == ["--dtype", "--b-dtype", "--prologue-b", "--layout"]
