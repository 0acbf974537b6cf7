"""Files of caches: what is no file of this user alone is neither read, nor written to, nor waited for."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import platformdirs
import pytest

import gemmgen
from gemmgen.api import aside, calibration
from gemmgen.runtime import cache
from gemmgen.runtime.cache import DiskCache, digest, in_memory, loadable
from tests.support.cli import printed

QUESTION, OTHER = digest("a question"), digest("another")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files go."""
    monkeypatch.delenv(cache.OFF, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gemmgen" / "some"


@pytest.fixture
def kept(folder: Path) -> DiskCache:
    """A cache with one answer."""
    some = DiskCache("some")
    some.write("word", QUESTION, b"answer")
    assert some.read("word", QUESTION) == b"answer"
    return some


def only_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def make_link(file: Path) -> None:
    aside = file.rename(file.parents[2] / "aside")
    file.symlink_to(aside)


def make_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def make_anothers(file: Path) -> None:
    """As whom else the tests run can't give files away, that one's word is as good: it is the same comparison."""
    if os.geteuid() == 0:
        os.chown(file, 4321, 4321)
    else:
        file.unlink()
        file.symlink_to("/etc/passwd")


def make_writable(file: Path) -> None:
    file.chmod(0o666)


def damage(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1] + b"x")


@pytest.mark.parametrize("plant", [make_link, make_pipe, make_anothers, make_writable, damage])
def test_a_planted_file_is_not_believed(kept: DiskCache, folder: Path, plant: Callable[[Path], None]) -> None:
    """Reading a pipe would wait for somebody who writes."""
    file = only_file(folder)
    plant(file)
    assert kept.read("word", QUESTION) is None
    kept.write("word", QUESTION, b"again")
    assert kept.read("word", QUESTION) == b"again"
    assert stat.S_ISREG(only_file(folder).lstat().st_mode)
    aside = folder.parents[1] / "aside"
    assert not aside.exists() or b"again" not in aside.read_bytes()


def test_an_answer_is_bound_to_its_question(kept: DiskCache, folder: Path) -> None:
    """Under the name of another question's answer, it is none."""
    own = only_file(folder)
    kept.write("word", OTHER, b"other")
    (others,) = set(folder.iterdir()) - {own}
    others.replace(own)
    assert kept.read("word", QUESTION) is None
    assert kept.read("word", OTHER) is None


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_may_write_to_is_not_used(
    kept: DiskCache, folder: Path, mode: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache, "_told", threading.Lock())
    folder.chmod(mode)
    assert kept.read("word", QUESTION) is None
    for _ in range(3):
        kept.write("word", OTHER, b"new")
    assert len(list(folder.iterdir())) == 1
    (record,) = caplog.records
    assert "others may write to it: chmod go-w" in record.getMessage()


def test_another_users_folder_is_not_used(kept: DiskCache, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert kept.read("word", QUESTION) is None
    kept.write("word", OTHER, b"new")
    assert len(list(folder.iterdir())) == 1


def test_what_is_made_is_for_this_user_alone(kept: DiskCache, folder: Path) -> None:
    assert [path.stat().st_mode & 0o777 for path in (folder.parent, folder, only_file(folder))] == [0o700, 0o700, 0o600]


def test_a_full_disk_leaves_nothing_half_written_and_is_told_once(tmp_path: Path) -> None:
    """By a limit of the length of files, for which writes fail as for a full disk."""
    code = """
import resource
from gemmgen.runtime.cache import DiskCache, digest
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
for name in ("some", "more"):
    for number in range(3):
        DiskCache(name).write("word", digest(str(number)), b"x" * 1000)
        assert DiskCache(name).read("word", digest(str(number))) is None
"""
    # Nor may Python leave its own files behind, cut off.
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), cache.OFF: "", "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("\n") == 1
    assert "gemmgen keeps nothing on disk" in result.stderr
    assert "File too large" in result.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(("value", "kept"), [("1", False), ("more,some", False), ("more", True), ("", True)])
def test_off(folder: Path, monkeypatch: pytest.MonkeyPatch, value: str, kept: bool) -> None:
    monkeypatch.setenv(cache.OFF, value)
    some = DiskCache("some")
    some.write("word", QUESTION, b"answer")
    assert some.read("word", QUESTION) == (b"answer" if kept else None)
    assert folder.exists() == kept


def test_names_that_are_none_are_told_of_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And those that are names still count."""
    monkeypatch.setenv(cache.OFF, "anwers, opencl")
    assert cache.is_off("opencl") and not cache.is_off("answers") and not folder.exists()
    (said,) = caplog.messages
    assert said == f"{cache.OFF}: 'anwers' means nothing here: did you mean answers?"
    for value in ("", "0", "1", *cache.NAMES, ",".join(cache.NAMES)):
        monkeypatch.setenv(cache.OFF, value)
        assert cache.is_off("tuned") == (value == "1" or "tuned" in value)
    assert len(caplog.messages) == 1


def test_names_of_caches_stand_apart_from_sizes() -> None:
    lines = printed("cache").splitlines()[::2]
    assert all(re.match(r"\w+ +\d", line) for line in lines), lines


def test_every_cache_can_be_named() -> None:
    made = (
        re.findall(r'= DiskCache\("(\w+)"\)', file.read_text()) for file in Path(gemmgen.__file__).parent.rglob("*.py")
    )
    assert {name for names in made for name in names} == {*cache.NAMES} - {"tuned"}


@pytest.mark.parametrize("variable", [calibration.VARIABLE, aside.VARIABLE])
def test_what_is_neither_on_nor_off_is_told_of_once(
    variable: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for value, is_on in (("maybe", True), ("maybe", True), ("0", False), ("1", True), ("", True)):
        monkeypatch.setenv(variable, value)
        assert cache.is_switched_on(variable) == is_on
    assert caplog.messages == [f"{variable}: 'maybe' means nothing here: give one of 0, 1"]


@pytest.mark.parametrize("value", [None, "", "/somewhere", "relative"])
def test_folders_are_those_of_platformdirs(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    if value != "relative":  # the XDG specification ignores it, platformdirs since version 4.5
        assert cache.user_cache("gemmgen") == platformdirs.user_cache_path("gemmgen")
        assert cache.user_data("gemmgen") == platformdirs.user_data_path("gemmgen")
    assert cache.user_cache("gemmgen").is_absolute() and cache.user_data("gemmgen").is_absolute()


def test_code_is_loaded_from_memory() -> None:
    """Two at a time, under one name, are told apart by the loader."""
    name = ctypes.util.find_library("m")
    assert name is not None
    path = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if name in line)
    with in_memory(Path(path).read_bytes(), "first") as first, in_memory(Path(path).read_bytes(), "second") as second:
        # Loaders may remember by path what they loaded, and a descriptor is used again.
        assert len({loadable(file) for file in (first, second, first, second)}) == 4
        for file in (first, second):
            cos = ctypes.CDLL(loadable(file)).cos
            cos.restype, cos.argtypes = ctypes.c_double, (ctypes.c_double,)
            assert cos(0.0) == 1.0
