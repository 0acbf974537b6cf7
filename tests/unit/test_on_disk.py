"""Answers that are kept on disk: found again by the same question alone, and never believed where they are damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from gemmgen import driver, presets
from gemmgen.api import on_disk
from gemmgen.errors import LoweringError
from gemmgen.ir.dtypes import C64
from gemmgen.ir.target import TARGETS
from gemmgen.runtime import cache
from gemmgen.spec import GemmSpec


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where answers go."""
    monkeypatch.delenv(cache.OFF)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(on_disk, "_written", count())
    return tmp_path / "gemmgen" / "answers"


def asked(*about: object) -> bool:
    """Whether the answer had to be worked out."""
    counted: list[int] = []

    def work_out() -> int:
        counted.append(1)
        return 7

    assert on_disk.remembered("number", about, work_out) == 7
    return bool(counted)


def test_the_same_question_is_answered_once(folder: Path) -> None:
    assert asked(GemmSpec(), TARGETS["cpu"])
    assert not asked(GemmSpec(), TARGETS["cpu"])
    assert asked(GemmSpec(k=5), TARGETS["cpu"])
    assert asked(GemmSpec(), TARGETS["intel"])
    assert len(list(folder.iterdir())) == 3
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


def test_a_set_is_the_same_in_every_process(folder: Path) -> None:
    assert asked(TARGETS["cpu"])
    script = "from gemmgen.ir.target import TARGETS; from gemmgen.api import on_disk; print(on_disk.remembered("
    script += "'number', (TARGETS['cpu'],), lambda: 8))"
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
        assert result.stdout == "7\n", result.stderr
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:-1] + b"x"])
def test_what_is_damaged_is_worked_out_anew(folder: Path, damage: object) -> None:
    assert asked(1)
    (file,) = folder.iterdir()
    assert callable(damage)
    file.write_bytes(damage(file.read_bytes()))
    assert asked(1)
    assert not asked(1)


def test_another_version_asks_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(1)
    monkeypatch.setattr(on_disk, "_made_by", lambda: b"another")
    assert asked(1)
    assert len(list(folder.iterdir())) == 2


def test_somebody_elses_file_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(1)
    assert list(folder.iterdir())
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    assert asked(1)


def test_neither_grows_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST_FILES", 4)
    for number in range(9):
        assert asked(number)
        assert len(list(folder.iterdir())) <= 4
    assert not asked(8)
    monkeypatch.setattr(on_disk, "MOST_WRITTEN", 0)
    assert asked(9)
    assert asked(9)


def test_where_nothing_can_be_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.parent.parent.joinpath("gemmgen").write_text("in the way")
    assert asked(1)
    assert asked(1)
    monkeypatch.setenv(cache.OFF, "1")
    assert asked(1)


def test_a_start_from_there_is_without_passes_and_printers(folder: Path) -> None:
    pytest.importorskip("pyopencl")
    script = """
import sys
import numpy as np
import gemmgen
a, b = np.ones((40, 50), np.float32), np.ones((50, 60), np.float32)
assert (gemmgen.gemm(a, b) == 50).all()
unwanted = {"gemmgen.driver", "gemmgen.choose", "gemmgen.passes", "gemmgen.schedule", "gemmgen.ir.stmt", "jinja2"}
print(*sorted(unwanted & set(sys.modules)))
"""
    told = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout for _ in range(2)]
    assert told == ["gemmgen.choose gemmgen.driver gemmgen.ir.stmt gemmgen.passes gemmgen.schedule jinja2\n", "\n"]
    assert sorted(file.name.split("-")[0] for file in folder.iterdir()) == ["choice", "product", "source"]


def test_what_a_call_on_a_gpu_imports(folder: Path) -> None:
    """Without a device: the modules that `Library` and `selection` name, and records' stamps."""
    script = """
import sys
from gemmgen import tuning
from gemmgen.api import gemm
from gemmgen.runtime import cuda, cuda_devices, nvrtc, variants
assert tuning.has_records("cuda") and tuning.stamps() == ()
unwanted = {"choice", "choose", "driver", "ir.stmt", "passes", "schedule", "tuning.recorded", "tuning.records"}
others = {"cupy", "jinja2", "ml_dtypes", "platformdirs", "pyopencl", "torch"}
ours = {name.removeprefix("gemmgen.") for name in sys.modules if name.startswith("gemmgen.")}
print(*sorted(unwanted & ours), *sorted(others & set(sys.modules)), len(ours))
"""
    environment = {**os.environ, "XDG_DATA_HOME": str(folder.parent), "GEMMGEN_NO_CACHE": ""}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout.strip().isdecimal(), done.stdout + done.stderr
    assert int(done.stdout) <= 57


@pytest.mark.parametrize("name", ["naive", "L3_SIMD_32x2_1x8", "wgmma_128x256_s4", "cpu_6x64", "dpas_32x2_1x8"])
def test_records_come_back_as_they_were(name: str) -> None:
    preset = presets.load(name)
    backend = "cuda" if name.startswith("wgmma") else "opencl"
    source = driver.emit(preset.spec, preset.schedule, backend, TARGETS["sm_90a"] if backend == "cuda" else None)
    for answer in (source, (preset.schedule, GemmSpec(alpha=1 + 2j, dtype=C64)), (1.5, None, True, "x")):
        assert on_disk._read(json.loads(json.dumps(on_disk._as_written(answer)))) == answer


def test_what_is_no_record_is_refused() -> None:
    with pytest.raises(LoweringError, match="PosixPath"):
        on_disk._as_written(Path())


def test_nothing_is_executed_to_read_an_answer(folder: Path) -> None:
    """A pickle, whole and bound to the question, is an answer that can't be read."""
    assert asked(1)
    (file,) = folder.iterdir()
    kind, _, key = file.name.partition("-")
    data = file.read_bytes()
    assert kind == "number" and data[:20].hex() == key
    bomb = b"cbuiltins\nexec\n(S'raise SystemExit(9)'\ntR."
    cache.DiskCache("answers").write(kind, data[:32], bomb)
    assert bomb in file.read_bytes()
    assert asked(1)
    assert not asked(1)
