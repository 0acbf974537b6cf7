"""Searches on recorded tables in the place of a device: every legal schedule of a small space, measured once on a CPU
(benchmarks/tuning_table.py), and what the prior did not rule out on a GPU (benchmarks/exhaustive.py).
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean

import pytest
import typer

from gemmgen import GemmSpec
from gemmgen.cli import tune as command
from gemmgen.ir.target import CPU_PRIVATE_BYTES, TARGETS
from gemmgen.schedule.cpu_panel import CpuPanel
from gemmgen.tuning.device import DeviceKey
from gemmgen.tuning.job import Outcome
from gemmgen.tuning.records import Line, Measurement, Records, Store, parse
from gemmgen.tuning.runners import MOST_AT_ONCE
from gemmgen.tuning.space import spaces
from gemmgen.tuning.study import STRATEGIES, Place, Product, Progress, Search, Strategy, open_storage
from tests.support.replay import Replay
from tests.support.tables import H200, Table, tables

pytest.importorskip("optuna")
TABLE = Path(__file__).resolve().parents[1] / "support" / "tuning_table.jsonl"
PRODUCT = Product(GemmSpec(), (256, 384, 512))
SEEDS, TRIALS = range(3), 30
#: Schedules that are measured of a product of the GPU's tables; every so many of its products are searched here.
TRIALS_ON_GPU, EVERY = 40, 6


@cache
def table() -> Records:
    return parse(TABLE.read_text(), TABLE.name)


@cache
def place() -> Place:
    """The device of the table, as far as the models look at it."""
    key, cpu = table().key, replace(TARGETS["cpu"], register_bytes=65536, private_bytes=CPU_PRIVATE_BYTES)
    features, caches = cpu.features | {"sub_groups"}, (48 << 10, 2 << 20, 0)
    target = replace(cpu, name=key.device, cores=key.cores, features=features, caches=caches)
    return Place("opencl", None, target, key)


def searched(
    strategy: Strategy, seed: int, trials: int = TRIALS, store: Store | None = None
) -> tuple[Replay, Progress]:
    replay = Replay.of_records(table().lines)
    storage = None if store is None else open_storage(None, store, place().key)
    search = Search(replay, place(), PRODUCT, store, storage, strategy, seed, only=list(replay.times))
    return replay, search.run(600, trials)


@cache
def of_gpu() -> list[Table]:
    """Drawn shapes of all four types, each by up to 415 schedules on an H200."""
    return tables("2026-11-29_h200/exhaustive_*")


def searched_on_gpu(table: Table, strategy: Strategy, seed: int, trials: int = TRIALS_ON_GPU) -> Replay:
    """A search that is run as by 16 cores."""
    times = {schedule.but(name=None): Outcome(us * 1e-6, 0.0, 1) for schedule, us in table.us.items()}
    replay, key = Replay(times, MOST_AT_ONCE), DeviceKey("cuda", H200.name, H200.cores, "", "", "")
    product, where = Product(table.spec, table.shape), Place("cuda", None, H200, key)
    Search(replay, where, product, strategy=strategy, seed=seed, only=list(times)).run(600, trials)
    return replay


def test_the_table_is_exhaustive() -> None:
    """All legal schedules of the least space that has these, but for what figures rule out."""
    schedules = [line.measurement().schedule for line in table().lines]
    space = next(x for x in spaces(PRODUCT.spec, place().target) if x.mainloop is CpuPanel)
    points = {schedule for _, schedule in space.holding(schedules).points()}
    assert set(schedules) <= points
    assert len(schedules) > 0.5 * len(points)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_strategy_measures_each_schedule_once(strategy: Strategy) -> None:
    replay, progress = searched(strategy, 0)
    assert len(replay.asked) == len(set(replay.asked)) == TRIALS == progress.trials
    assert progress.failed == 0
    assert progress.best <= progress.untuned


def test_the_same_seed_searches_the_same() -> None:
    assert searched("tpe", 1, 12)[0].asked == searched("tpe", 1, 12)[0].asked
    assert searched("tpe", 1, 12)[0].asked != searched("tpe", 2, 12)[0].asked


def test_how_they_converge() -> None:
    """Best so far as a multiple of the table's best, in the mean over seeds: docs/tuning.md has the figures."""
    found = {strategy: mean(searched(strategy, seed)[0].regret(TRIALS) for seed in SEEDS) for strategy in STRATEGIES}
    assert found["prior"] <= 1.03
    assert found["prior"] <= found["random"]
    assert max(found.values()) <= 1.15


def test_how_they_converge_on_a_gpu() -> None:
    """Where the first 28 were the prior's, and one in two of what followed, 88 % of all 96 products were within 3 %.
    One seed may be unlucky with a product, so there are two.
    """
    assert len(of_gpu()) == 96
    sample = of_gpu()[::EVERY]
    found = [searched_on_gpu(each, "prior", seed).regret(TRIALS_ON_GPU) for each in sample for seed in (0, 1)]
    assert max(found) <= 1.08
    assert sum(regret <= 1.03 for regret in found) >= 0.9 * len(found)


def test_a_search_goes_on(tmp_path: Path) -> None:
    """The same search again has what it measured, and measures other schedules."""
    store = Store(tmp_path / "tuned")
    first, _ = searched("prior", 0, 6, store)
    assert len(store.read(place().key).lines) == 6
    second, _ = searched("prior", 0, 6, store)
    assert set(first.asked).isdisjoint(second.asked)
    assert len(store.read(place().key).lines) == 12


class _Interrupted(Replay):
    """Ctrl-C while the fourth schedule is measured."""

    def run(self, jobs):  # type: ignore[no-untyped-def]
        for index, outcome in super().run(jobs):
            if len(self.asked) == 4:
                raise KeyboardInterrupt
            yield index, outcome


def test_ctrl_c_loses_nothing(tmp_path: Path) -> None:
    store, replay = Store(tmp_path / "tuned"), _Interrupted.of_records(table().lines)
    search = Search(replay, place(), PRODUCT, store, only=list(replay.times))
    with pytest.raises(KeyboardInterrupt):
        search.run(600, 10)
    assert len(store.read(place().key).lines) == 3


class _Wrong(Replay):
    """Of every other schedule the result is wrong."""

    def run(self, jobs):  # type: ignore[no-untyped-def]
        for index, outcome in super().run(jobs):
            wrong = len(self.asked) % 2 == 0
            yield index, replace(outcome, problem="wrong result: 1 of 9") if wrong else outcome


def test_a_wrong_result_has_no_time(tmp_path: Path) -> None:
    store, replay = Store(tmp_path / "tuned"), _Wrong.of_records(table().lines)
    progress = Search(replay, place(), PRODUCT, store, only=list(replay.times)).run(600, 10)
    assert (progress.failed, len(progress.wrong)) == (5, 5)
    kept = {line.measurement().schedule for line in store.read(place().key).lines}
    assert kept == set(replay.asked[::2])


class _Failing(Replay):
    """No schedule can be measured."""

    def run(self, jobs):  # type: ignore[no-untyped-def]
        for index, _ in super().run(jobs):
            yield index, Outcome(problem=f"refused {len(self.asked)}: use another")


def test_where_every_schedule_fails_the_first_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command said nothing, and that it had succeeded."""
    replay, shape = _Failing.of_records(table().lines), "x".join(map(str, PRODUCT.shape))
    progress = Search(replay, place(), PRODUCT, only=list(replay.times)).run(600, 3)
    said = f"{shape} float32: 3 schedules were tried, and none has a time; the first: "
    assert progress.fault is not None
    assert progress.fault.startswith(said) and progress.fault.endswith(": refused 1: use another")
    assert searched("prior", 0, 3)[1].fault is None

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(command, "_place", lambda *_: place())
    monkeypatch.setattr(command, "_runner", lambda *_: _Failing({}))
    with pytest.raises(typer.Exit) as ended:
        command.tune(shapes=shape, minutes=0.01, as_json=True)
    out, err = capsys.readouterr()
    assert ended.value.exit_code == 1
    assert "and none has a time; the first: " in err and ": refused 1: use another" in err
    (row,) = json.loads(out)["tuned"]
    assert row["failed"] > 0 and row["untuned_ms"] is row["best_ms"] is row["schedule"] is None


def test_a_comparison_decides() -> None:
    """What took turns is ranked before what was looked at once."""
    one = table().lines[0].measurement()
    quick = Line.of(replace(one, seconds=1e-9, compared=False))
    slow = Line.of(Measurement(one.spec, one.shape, 1, one.schedule, 1.0, 0.0, 9, compared=True))
    assert slow.rank < quick.rank
