"""The prior and the designs that it weighs, the constants of devices, and the records that come with gemmgen."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path

import pytest

from gemmgen import GemmSpec, tuning
from gemmgen.cli.tune import _sized, _weighted
from gemmgen.errors import UserError
from gemmgen.ir.target import TARGETS
from gemmgen.passes.validate import is_possible
from gemmgen.schedule import Schedule
from gemmgen.tuning import designs, machine, order, prior
from gemmgen.tuning.device import DeviceKey
from gemmgen.tuning.job import Job, Outcome, promised
from gemmgen.tuning.recorded import Book, by_prior, recorded
from gemmgen.tuning.records import Measurement, Records, Store, kind_of, parse
from gemmgen.tuning.space import known_schedules, space_of, spaces

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
    found = designs.of_target(spec, TARGETS[target])
    assert len(found) >= 16
    for schedule in found:
        assert is_possible(spec, schedule, TARGETS[target])
        space = space_of(schedule, spec, TARGETS[target])
        point = space.point(schedule)
        assert point is not None, schedule
        assert space.schedule(point) == schedule


@pytest.mark.parametrize(("target", "dtype"), CASES)
def test_many_points_around_the_presets_are_legal(target: str, dtype: str) -> None:
    """Every sampled point validates; presets and designs are what it is sampled around."""
    spec = spec_of(dtype)
    for space in spaces(spec, TARGETS[target]):
        own = [each for each in designs.of_target(spec, TARGETS[target]) if space.point(each) is not None]
        near = known_schedules(space) + own[:20]
        for point, schedule in space.sample(60, 7, near) if near else ():
            assert is_possible(spec, schedule, space.target)
            assert space.point(schedule) == point


@pytest.mark.parametrize(("target", "dtype"), CASES)
@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (100, 3000, 776), (33, 1000, 8192)])
def test_the_cheapest_comes_first_and_can_be_built(target: str, dtype: str, shape: tuple[int, int, int]) -> None:
    spec = spec_of(dtype)
    first = list(islice(designs.ranked(spec, shape, TARGETS[target]), 5))
    assert first
    assert [cost for cost, _ in first] == sorted(cost for cost, _ in first)
    assert all(is_possible(spec, schedule, TARGETS[target]) for _, schedule in first)


def test_columns_depend_on_alignment_alone() -> None:
    """What is kept for a class of sizes is what single schedules of each size come to."""
    spec, shape = spec_of("bfloat16"), (1000, 1016, 984)
    known, constants = designs.of_target(spec, HOPPER), machine.machine_of(HOPPER)
    made = prior.designs(spec, known, shape, constants)
    costs = prior.microseconds(spec, made, shape, constants)
    at = int(costs.argmin())
    assert order.cost(spec, known[at], shape, HOPPER) == pytest.approx(costs[at])


def test_parts_of_k_are_for_few_blocks() -> None:
    """The model splits K where C leaves multiprocessors idle, and nowhere else."""
    spec = spec_of("bfloat16")
    assert next(designs.ranked(spec, (64, 64, 65536), HOPPER))[1].split_k > 1
    assert next(designs.ranked(spec, (8192, 8192, 512), HOPPER))[1].split_k == 1


def test_regret_beside_the_fitted_model() -> None:
    """On the figures that the fitted model was fitted to, the prior loses at most 3 % more by its choices."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        judge = import_module("prior_regret")
    finally:
        sys.path.pop(0)
    files = sorted((ROOT / "benchmarks" / "results" / "2026-11-22_h200").glob("rows*.json"))
    found = judge.regrets(files)
    for dtype in ("bfloat16", "float32"):
        assert judge.geomean(found["prior", dtype]) <= 1.03 * judge.geomean(found["fitted", dtype])


def test_constants_of_a_device_are_what_it_says() -> None:
    told, other = machine.machine_of(HOPPER), machine.machine_of(replace(HOPPER, memory_rate=1_000_000, cores=66))
    assert (told.cores, told.clock, other.cores) == (132, 1980, 66)
    assert told.memory == pytest.approx(machine.REACHED * 3_352_320)
    # A product of few rows takes as long as its matrix takes to come from memory.
    spec, shape = spec_of("bfloat16"), (32, 16384, 16384)
    fast, slow = (next(designs.ranked(spec, shape, HOPPER, machine=each))[0] for each in (told, other))
    assert slow > 2 * fast


def test_measured_constants_replace_derived_ones() -> None:
    target = replace(HOPPER, cores=131)
    before = machine.machine_of(target)
    machine.calibrate(target, {"wgmma": 1000.0, "launch": 0.0, "cores": 3.0})
    after = machine.machine_of(target)
    assert after == replace(before, wgmma=1000.0)


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
        assert is_possible(promised(made.spec, made.shape), made.schedule, HOPPER)


def test_shipped_records_serve_any_driver(tmp_path: Path) -> None:
    spec = promised(GemmSpec(dtype="bfloat16", b_order="col"), (2048, 768, 768))
    found = recorded(Book(KEY, Store(tmp_path), HOPPER), spec, (2048, 768, 768), HOPPER)
    assert found is not None
    assert found.how == "exact"
    other = Book(replace(KEY, device="NVIDIA A10"), Store(tmp_path), HOPPER)
    assert recorded(other, spec, (2048, 768, 768), HOPPER) is None


def test_float16_takes_what_bfloat16_has(tmp_path: Path) -> None:
    shape = (2048, 768, 768)
    book = Book(KEY, Store(tmp_path), HOPPER)
    own, other = (
        recorded(book, promised(GemmSpec(dtype=dtype, b_order="col"), shape), shape, HOPPER)
        for dtype in ("bfloat16", "float16")
    )
    assert own is not None
    assert other is not None
    assert (other.schedule, other.how) == (own.schedule, "near")


def test_the_users_own_come_before(tmp_path: Path) -> None:
    store, shape = Store(tmp_path / "tuned"), (2048, 768, 768)
    spec = promised(GemmSpec(dtype="bfloat16", b_order="col"), shape)
    schedule = list(islice(designs.ranked(spec, shape, HOPPER), 30))[-1][1]
    store.add(KEY, [Measurement(kind_of(spec), shape, 1, schedule, 1.0, 0.0, 9)])
    found = recorded(Book(KEY, store, HOPPER), spec, shape, HOPPER)
    assert found is not None
    assert found.schedule == schedule


# --- near by --------------------------------------------------------------------------------------


def test_the_model_is_set_right_by_what_was_measured_near_by(tmp_path: Path) -> None:
    """Two schedules that the model thinks equal: the one that was faster at sizes near by is taken."""
    store, key = Store(tmp_path / "tuned"), replace(KEY, device="other")
    spec = spec_of("float32")
    first = [schedule for _, schedule in islice(designs.ranked(spec, (1024, 1024, 1024), HOPPER), 2)]
    for shape, times in (((1024, 1024, 1024), (2e-3, 1e-3)), ((1100, 1024, 1024), (2.2e-3, 1.1e-3))):
        made = zip(first, times, strict=True)
        store.add(key, [Measurement(kind_of(spec), shape, 1, each, seconds, 0.0, 9) for each, seconds in made])
    found = recorded(Book(key, store, HOPPER), spec, (1050, 1000, 1024), HOPPER)
    assert found is not None
    assert (found.how, found.schedule) == ("near", first[1])
    assert recorded(Book(key, store, HOPPER), spec, (64, 1000, 1024), HOPPER) is None


def test_the_prior_chooses_for_warpgroups_alone() -> None:
    shape = (1000, 1016, 984)
    found = by_prior(spec_of("bfloat16"), shape, HOPPER)
    assert found is not None
    assert (found.how, str(found), found.schedule.by_warpgroups) == ("prior", "the prior", True)
    assert by_prior(spec_of("float32"), shape, HOPPER) is None
    assert by_prior(spec_of("bfloat16"), (4, 1016, 984), HOPPER) is None
    assert by_prior(spec_of("bfloat16"), shape, TARGETS["sm_90"]) is None
    assert by_prior(replace(spec_of("bfloat16"), epilogue=("gelu",)), shape, HOPPER) is None


# --- the search -----------------------------------------------------------------------------------


class ByPrior:
    """A device on which the model is right."""

    width = 12

    def __init__(self) -> None:
        self.asked: list[Schedule] = []

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        for index, job in enumerate(jobs):
            self.asked.append(job.schedule)
            spec = promised(job.spec, job.shape)
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
    spec = promised(GemmSpec(dtype="bfloat16"), shape)
    assert all(is_possible(spec, each, HOPPER) for each in device.asked)
    from_order = set(islice(order.ordered(spec, shape, HOPPER), 40))
    assert set(device.asked) - from_order


def test_lines_of_a_model_have_types_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "layers.txt"
    file.write_text("64x32x16 3 bfloat16 row,col\n64x32x16\n128 2 float16  # a comment\n64x64x64 row,col\n")
    found = _sized(_weighted(file, "float32", None, []))
    assert [(x.shape, x.weight, str(x.spec.dtype), x.spec.b_order) for x in found] == [
        ((64, 32, 16), 3.0, "bfloat16", "col"),
        ((64, 32, 16), 1.0, "float32", "row"),
        ((128, 128, 128), 2.0, "float16", "row"),
        ((64, 64, 64), 1.0, "float32", "col"),
    ]
    file.write_text("64 1 float17\n64 1 row,row,row,row\n")
    with pytest.raises(UserError, match="float17"):
        _weighted(file, None, None, [])
