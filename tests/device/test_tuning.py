"""Tuning on this machine's CPU: what is measured is checked, what is found is taken, what is imported is checked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gemmgen
from gemmgen import GemmSpec, candidates
from gemmgen.api import kernels, on_disk
from gemmgen.choose import choose
from gemmgen.cpu.machine import MEASURED
from gemmgen.ir.target import calibrate, measured_on
from gemmgen.runtime import cache
from gemmgen.runtime.opencl_devices import DeviceInfo, devices
from gemmgen.schedule import Schedule
from gemmgen.tuning import measure, recorded
from gemmgen.tuning.device import key_of
from gemmgen.tuning.job import Job, Outcome
from gemmgen.tuning.measure import Problem
from gemmgen.tuning.records import Measurement, Store

#: Intel's runtime for CPUs, which pip installs.
DEVICES = [device for device in devices() if device.type == "cpu" and "Intel" in device.platform][:1]
CPUS = [device for device in devices() if device.type == "cpu"]
on_cpu = pytest.mark.parametrize("device", DEVICES, ids=["intel"] * len(DEVICES))
SHAPE = (70, 90, 50)
#: A schedule that is not what the model chooses for `SHAPE`.
OTHER = candidates.load("cpu_6x64_copied").schedule.but(name=None, kc=96)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Records of this test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv(cache.OFF, "answers")
    monkeypatch.setattr(recorded, "_books", {})
    return Store()


def job(device: DeviceInfo, schedule: Schedule | None = None, spec: GemmSpec | None = None) -> Job:
    spec = spec or GemmSpec()
    chosen = choose(spec, SHAPE, device.target, 2 if spec.batched else 1)
    return Job("opencl", device.number, spec, SHAPE, 2 if spec.batched else 1, schedule or chosen, budget=0.01)


def record(device: DeviceInfo, checked: bool = True, seconds: float = 1e-6) -> Measurement:
    return Measurement(GemmSpec(), SHAPE, 1, OTHER, seconds, 0.0, 9, checked=checked)


@on_cpu
@pytest.mark.parametrize(
    "spec",
    [
        GemmSpec(),
        GemmSpec(dtype="float64", a_order="col", c_order="col"),
        GemmSpec(batched=True),
        GemmSpec(epilogue=("bias", "gelu")),
        GemmSpec(epilogue=("swiglu", "bias")),
    ],
    ids=lambda spec: spec.label() + spec.then(),
)
def test_what_is_right_has_a_time(device: DeviceInfo, spec: GemmSpec) -> None:
    outcome = measure.measure(job(device, spec=spec))
    assert outcome.problem is None
    assert outcome.seconds > 0
    assert outcome.runs >= 3


@on_cpu
def test_what_is_wrong_has_none(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """One element that is off by the least that there is, and one that was never written."""
    right = measure.problem_of(GemmSpec(), SHAPE, 1)
    expected = np.array(right.right)
    expected[3, 4] = np.nextafter(expected[3, 4], np.float32(np.inf))
    monkeypatch.setattr(measure, "problem_of", lambda *_: replace(right, right=expected))
    outcome = measure.measure(job(device))
    assert outcome.problem == "wrong result: 1 of 6300 elements are wrong, the first at (3, 4)"
    result = np.array(right.right)
    result[1, 1] = np.nan
    assert isinstance(right, Problem)
    assert "the first at (1, 1)" in str(right.fault(result, 0.0))


@on_cpu
def test_what_is_slow_is_given_up(device: DeviceInfo) -> None:
    outcome = measure.measure(replace(job(device), cutoff=1e-9, budget=10.0))
    assert outcome.is_early
    assert outcome.runs < 50


@on_cpu
def test_what_cant_be_built_is_said(device: DeviceInfo) -> None:
    outcome = measure.measure(job(device, candidates.load("wgmma_128x256_s4").schedule))
    assert outcome.problem is not None
    assert outcome.seconds == 0


@on_cpu
def test_jobs_and_outcomes_pass_from_process_to_process(device: DeviceInfo) -> None:
    before = job(device, OTHER, GemmSpec(epilogue=("clamp(0, 6)",), b_order="col"))
    assert Job.read(before.text()) == before
    outcome = Outcome(1.5, 0.1, 3, None, True)
    assert Outcome.read(outcome.text()) == outcome


@on_cpu
def test_gemm_takes_what_was_measured(device: DeviceInfo, store: Store) -> None:
    key = key_of("opencl", device, device.target)
    a, b = np.ones(SHAPE[::2], np.float32), np.ones(SHAPE[:0:-1], np.float32)
    spec = GemmSpec(m=70, n=90, k=50)
    assert choose(spec, None, device.target) != OTHER
    store.add(key, [record(device)])
    before = len(kernels._answers)
    assert (gemmgen.gemm(a, b, device=device.number) == 50).all()
    (found,) = [slot.value for slot in list(kernels._answers._slots.values())[before:]]
    assert on_disk.read(found.question.named) == OTHER  # type: ignore[attr-defined]
    compiled = gemmgen.compile(spec, device=device.number)
    assert "kc96" in compiled.source.name


@on_cpu
def test_a_second_process_reads_no_records(device: DeviceInfo, store: Store, tmp_path: Path) -> None:
    """What they say is kept, with what was measured on the device, until a file of theirs is another."""
    key, told = key_of("opencl", device, device.target), {"memory_line": 7.5}
    store.add(key, [record(device)])
    store.change(key, lambda records: replace(records, machine=told))
    code = f"""
import sys
import numpy as np
import gemmgen
from gemmgen.api import kernels, on_disk
from gemmgen.ir.target import measured_on
gemmgen.gemm(np.ones({SHAPE[::2]}, np.float32), np.ones({SHAPE[:0:-1]}, np.float32), device={device.number})
(asked,) = [slot.value.question for slot in kernels._answers._slots.values()]
loaded = [name in sys.modules for name in ("gemmgen.tuning.recorded", "gemmgen.schedule")]
named = asked.named and on_disk.read(asked.named).kc
print(named, dict(measured_on(asked.target)), *loaded)
"""
    own = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    own.pop(cache.OFF)

    def said() -> str:
        made = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    assert [said(), said()] == [f"96 {told} True True", f"96 {told} False False"]
    store.change(key, lambda records: replace(records, lines=()))
    assert said() == f"None {told} True True"


@on_cpu
def test_near_sizes_take_it_too(device: DeviceInfo, store: Store) -> None:
    store.add(key_of("opencl", device, device.target), [record(device)])

    def ask(*shape: int) -> recorded.Found | None:
        m, n, k = shape
        return recorded.ask("opencl", device, device.target, GemmSpec(), (m, n, k))

    found = ask(70, 90, 50)
    assert found is not None
    assert (found.how, found.schedule) == ("exact", OTHER)
    near = ask(72, 90, 52)
    assert near is not None
    assert (near.how, near.shape) == ("near", SHAPE)
    assert ask(700, 90, 50) is None
    assert recorded.ask("opencl", device, device.target, GemmSpec(dtype="float64"), SHAPE) is None
    assert recorded.ask("opencl", device, device.target, GemmSpec(), None) is None


@on_cpu
def test_records_can_be_turned_off(device: DeviceInfo, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add(key_of("opencl", device, device.target), [record(device)])
    monkeypatch.setenv(cache.OFF, "tuned")
    assert recorded.ask("opencl", device, device.target, GemmSpec(), SHAPE) is None


@on_cpu
def test_a_strangers_record_is_checked_before_use(
    device: DeviceInfo, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is replaced by this device's own; one whose result is wrong is dropped."""
    key = key_of("opencl", device, device.target)
    store.add(key, [record(device, checked=False, seconds=1e-12)])
    found = recorded.ask("opencl", device, device.target, GemmSpec(), SHAPE)
    assert found is not None
    (line,) = store.read(key).lines
    assert line.checked
    assert line.seconds > 1e-9

    store.change(key, lambda records: replace(records, lines=()))
    store.add(key, [record(device, checked=False)])
    monkeypatch.setattr(measure, "measure", lambda _: Outcome(problem="wrong result: all of it"))
    assert recorded.ask("opencl", device, device.target, GemmSpec(), SHAPE) is None
    assert store.read(key).lines == ()


# --- commands -------------------------------------------------------------------------------------


def command(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_DATA_HOME": str(folder), cache.OFF: "answers"}
    line = [sys.executable, "-m", "gemmgen", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, env=environment, timeout=300, check=False)


@on_cpu
def test_tune_and_what_follows(device: DeviceInfo, tmp_path: Path) -> None:
    """Tuned, shown, exported, imported elsewhere, emitted."""
    pytest.importorskip("optuna")
    made = command(
        tmp_path / "a", "tune", "--shapes", "64x96x80", "--minutes", 0.15, "--device", device.number, "--json"
    )
    assert made.returncode == 0, made.stderr
    (told,) = json.loads(made.stdout)["tuned"]
    assert told["measured"] >= 1
    assert told["best_ms"] > 0
    assert "products: 1;" in command(tmp_path / "a", "tuned", "list").stdout
    file = tmp_path / "records.jsonl"
    out = command(tmp_path / "a", "tuned", "export", "--device", device.number, "-o", file)
    assert out.returncode == 0, out.stderr
    again = command(tmp_path / "b", "tuned", "import", file, "--device", device.number)
    assert "each is checked before its first use" in again.stdout
    shown = json.loads(command(tmp_path / "b", "tuned", "show", "--device", device.number, "--json").stdout)["tuned"]
    assert [row["checked"] for row in shown] == [False]
    merged = command(tmp_path / "a", "tuned", "merge", file, file)
    assert merged.stdout == file.read_text()
    (kept,) = (tmp_path / "b").rglob("*.jsonl")
    kept.write_bytes(b"\xff damaged")
    damaged = command(tmp_path / "b", "tuned", "show", "--device", device.number)
    assert damaged.returncode == 2
    assert f"{kept} has no record of" in damaged.stderr
    assert "restore it, or delete it" in damaged.stderr


@pytest.mark.parametrize("device", CPUS, ids=lambda device: device.platform.split("(")[0].split()[0])
def test_a_cpu_is_calibrated(device: DeviceInfo, store: Store, tmp_path: Path, rng: np.random.Generator) -> None:
    """Its constants are kept with its records, and the first product takes them."""
    pytest.importorskip("optuna")
    made = command(tmp_path, "tune", "--calibrate", "--device", device.number)
    assert made.returncode == 0, made.stderr
    assert "cycles in a microsecond" in made.stderr
    (file,) = store.folder.glob("*.jsonl")
    found = json.loads(file.read_text().splitlines()[0])["machine"]
    wanted = set(MEASURED) - ({"threads"} if device.target.cores == 1 else set())
    assert found.keys() == wanted
    calibrate(device.target, {})
    a, b = (rng.standard_normal(size, dtype=np.float32) for size in ((71, 53), (53, 97)))
    assert gemmgen.gemm(a, b, device=device.number).shape == (71, 97)  # of no other test
    assert dict(measured_on(device.target)) == found
    calibrate(device.target, {})


def test_what_tune_refuses(tmp_path: Path) -> None:
    wrong = command(tmp_path, "tune", "--shapes", "1x2", "--minutes", 0, "--local", 0)
    assert wrong.returncode == 2
    for said in ("--minutes 0", "--local 0", "size '1x2'"):
        assert said in wrong.stderr
    assert "at most 100,000" in command(tmp_path, "tune", "--minutes", "1e9").stderr
    (tmp_path / "notes.txt").write_text("root:x:0:0")
    wrong = command(tmp_path, "tune", "--trace", tmp_path / "notes.txt")
    assert wrong.returncode == 2 and f"--trace {tmp_path}/notes.txt is no Python script (" in wrong.stderr
    (script := tmp_path / "broken.py").write_text("import gemmgen\nraise KeyError('of its own')\n")
    wrong = command(tmp_path, "tune", "--trace", script)
    assert f"gemmgen: --trace {script} failed in line 2 (KeyError: 'of its own')" in wrong.stderr
    (lines := tmp_path / "layers.txt").write_text("64x64x64\nsmall 3\n64 1 float33\n")
    wrong = command(tmp_path, "tune", "--model", lines)
    assert f"{lines}, line 2: size 'small'" in wrong.stderr and f"{lines}, line 3: dtype 'float33'" in wrong.stderr
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "gemmgen").write_text("a file")
    wrong = command(blocked, "tune", "--shapes", 64)
    assert "XDG_DATA_HOME" in wrong.stderr
    assert "did you mean" in command(tmp_path, "tuned", "lst").stderr
    assert "takes files" in command(tmp_path, "tuned", "import").stderr
    assert "holds no records" in command(tmp_path, "tuned", "import", __file__).stderr
    assert "give -M, -N and -K" in command(tmp_path, "emit", "--tuned").stderr
    for name in ("emit", "explain"):
        assert "--device 0 is for --tuned" in command(tmp_path, name, "--device", "0", "--tile", "4x4").stderr
        asked = command(tmp_path, name, "--tuned", "-M", 8, "-N", 8, "-K", 8, "--device", "no such device")
        assert "no device matches" in asked.stderr


@on_cpu
def test_a_trace_has_what_a_script_asks_for(device: DeviceInfo, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    script = tmp_path / "model.py"
    (tmp_path / "sizes_of_it.py").write_text("import sys\nassert len(sys.argv) == 1\n")
    script.write_text(
        "import numpy as np, gemmgen, sizes_of_it\n"
        f"for n in (32, 48): gemmgen.gemm(np.ones((40, 24), 'f'), np.ones((24, n), 'f'), device={device.number})\n"
    )
    made = command(tmp_path, "tune", "--trace", script, "--minutes", 0.1, "--device", device.number, "--json")
    assert made.returncode == 0, made.stderr
    assert [row["product"].split()[0] for row in json.loads(made.stdout)["tuned"]] == ["40x32x24", "40x48x24"]


# --- several workers ------------------------------------------------------------------------------


@on_cpu
def test_a_lost_worker_costs_nothing(device: DeviceInfo, tmp_path: Path) -> None:
    """Two workers of Dask on this machine, one of which is killed on the way."""
    pytest.importorskip("distributed")
    code = f"""
import os, signal
from pathlib import Path
from gemmgen import GemmSpec
from gemmgen.tuning.device import key_of
from gemmgen.tuning.measure import device_of
from gemmgen.tuning.records import Store
from gemmgen.tuning.study import Place, Product, Search
from gemmgen.tuning.workers import DaskRunner

if __name__ == "__main__":
    target = device_of("opencl", {device.number}).target
    key = key_of("opencl", device_of("opencl", {device.number}), target)
    runner, store = DaskRunner("opencl", None, 2), Store(Path({str(tmp_path / "tuned")!r}))
    workers = list(runner.client.run(os.getpid).values())
    assert len(workers) == 2
    killed = []

    def tell(progress):
        if progress.trials == 3 and not killed:
            killed.append(workers[0])
            os.kill(workers[0], {int(signal.SIGKILL)})

    search = Search(runner, Place("opencl", {device.number}, target, key), Product(GemmSpec(), (60, 70, 80)), store,
                    tell=tell)
    progress = search.run(600, trials=8)
    print(len(killed), progress.trials, progress.failed, len(store.read(key).lines))
    runner.close()
"""
    script = tmp_path / "two.py"
    script.write_text(code)
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=400, check=False)
    assert result.stdout.split() == ["1", "8", "0", "8"], result.stderr[-2000:]
