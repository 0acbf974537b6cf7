"""Files of records: what is written is read again, strangers' lines are data, writers lose nothing of each other's."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgen import GemmSpec, candidates
from gemmgen.errors import ScheduleError, UserError
from gemmgen.tuning.device import DeviceKey
from gemmgen.tuning.records import Line, Measurement, Records, Store, kind_of, parse, spec_text
from tests.support.cli import refused

KEY = DeviceKey("opencl", "A (CPU) 3.0 GHz", 4, "1.2", "OpenCL 3", "0.1.0")


def measured(name: str = "cpu_6x64_copied", seconds: float = 1e-3, **changes: object) -> Measurement:
    plain = Measurement(GemmSpec(), (64, 48, 32), 1, candidates.load(name).schedule.but(name=None), seconds, 0.1, 9)
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["naive", "cpu_6x64_copied", "async_8x8_8x16", "wgmma_128x256_s4", "dpas_32x2_1x8"])
def test_a_line_is_read_as_it_was_written(name: str) -> None:
    spec = GemmSpec(dtype="bfloat16", b_order="col", epilogue=("bias", "clamp(0, 6)"), batched=True)
    before = measured(name, spec=spec, products=3)
    text = Records(KEY, (Line.of(before),)).text()
    found = parse(text, "file")
    assert found.key == KEY
    assert [line.measurement() for line in found.lines] == [before]


def test_factors_and_sizes_are_no_kind() -> None:
    spec = GemmSpec(m=64, alpha=2.0, beta=0.0, ld_multiple=4, dtype="float16")
    assert kind_of(spec) == GemmSpec(dtype="float16")
    assert spec_text(kind_of(spec)) == '{"dtype": "float16"}'


def test_merging_prefers_what_was_compared(tmp_path: Path) -> None:
    store = Store(tmp_path / "tuned")
    store.add(KEY, [measured(seconds=2e-3, compared=True, runs=20)])
    store.add(KEY, [measured(seconds=1e-3, runs=5), measured("cpu_4x4_along_k")])
    lines = store.read(KEY).lines
    assert {(line.seconds, line.compared) for line in lines} == {(2e-3, True), (1e-3, False)}
    assert store.read(replace(KEY, driver="1.3")).lines == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shape": [1, 2]}, "three whole numbers"),
        ({"shape": [1, 2, True]}, "three whole numbers"),
        ({"shape": [1, 2, 1 << 40]}, "three whole numbers"),
        ({"milliseconds": 0}, "above 0"),
        ({"milliseconds": float("nan")}, "above 0"),
        ({"milliseconds": "1"}, "above 0"),
        ({"runs": -1}, "from 1"),
        ({"checked": 1}, "true or false"),
        ({"spec": []}, "no measured configuration"),
        ({"schedule": "x" * 9000}, "characters >"),
    ],
)
def test_a_strangers_line_is_refused(changes: dict[str, object], said: str) -> None:
    head, line = Records(KEY, (Line.of(measured()),)).text().splitlines()
    text = f"{head}\n{json.dumps(json.loads(line) | changes)}\n"
    with pytest.raises(UserError, match="line 2"):
        parse(text, "theirs.jsonl")
    problems: list[str] = []
    assert parse(text, "theirs.jsonl", problems).lines == ()
    assert said in problems[0]


@pytest.mark.parametrize(
    "schedule",
    [
        {"tile": "6x64", "vector": 16, "kc": -1},
        {"tile": "__import__('os').system('true')"},
        {"name": "a*/ b"},
        {"b": {"memory": "private", "nonsense": 1}},
        {"tile": [1, 2]},
    ],
)
def test_a_strangers_schedule_is_refused(schedule: object) -> None:
    head, line = Records(KEY, (Line.of(measured()),)).text().splitlines()
    found = parse(f"{head}\n{json.dumps(json.loads(line) | {'schedule': schedule})}\n", "theirs.jsonl")
    with pytest.raises(ScheduleError):
        found.lines[0].measurement()


@pytest.mark.parametrize("head", ["", "{}", "[" * 100_000, '{"format": "gemmgen tuned", "version": 9}', "\x00"])
def test_another_file_holds_no_records(head: str) -> None:
    with pytest.raises(UserError, match="theirs"):
        parse(head, "theirs.jsonl")


def test_a_damaged_line_costs_itself_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "tuned")
    store.add(KEY, [measured(), measured("cpu_4x4_along_k")])
    path = store.folder / KEY.file_name
    path.write_text("\n".join([*path.read_text().splitlines()[:2], '{"half']) + "\n")
    assert len(store.read(KEY).lines) == 1


def test_only_the_users_own_files_are_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "tuned")
    store.add(KEY, [measured()])
    path = store.folder / KEY.file_name
    assert store.folder.stat().st_mode & 0o777 == 0o700
    path.chmod(0o666)
    assert store.read(KEY).lines == ()
    path.chmod(0o600)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert store.read(KEY).lines == ()


def test_a_place_that_cant_be_written(tmp_path: Path) -> None:
    (tmp_path / "tuned").write_text("a file")
    store = Store(tmp_path / "tuned")
    assert store.read(KEY).lines == ()
    with pytest.raises(OSError, match="tuned"):
        store.add(KEY, [measured()])


def test_writers_lose_nothing_of_each_others(tmp_path: Path) -> None:
    store = Store(tmp_path / "tuned")

    def write(number: int) -> None:
        for k in range(1, 6):
            store.add(KEY, [measured(shape=(number, 1, k))])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(1, 5)]
    child = os.fork()
    if child == 0:
        write(9)
        os._exit(0)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert len(store.read(KEY).lines) == 25


def test_every_mistake_of_a_command_is_named() -> None:
    said = refused("tune", "--shapes", "3x4,0x1x2", "--dtype", "nope", "--minutes", "0", "--seed", "-1")
    for part in ("--minutes 0", "--seed -1", "dtype 'nope'", "size '3x4'", "size 0x1x2"):
        assert part in said
