"""`gemmgen fetch`: whose archive is asked, what is refused, and what is found first afterwards."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gemmgen import tools
from gemmgen.errors import ToolError
from gemmgen.inspect import fetch
from tests.support.cli import refused

SOURCES = """Types: deb
URIs: http://m.example/debian-security
Suites: bookworm-security
Signed-By: /keys/security.gpg

Types: deb deb-src
URIs: http://m.example/debian
Suites: bookworm
Signed-By: /keys/archive.gpg
"""


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("sources.list.d/debian.sources", SOURCES, "/keys/archive.gpg"),
        (
            "sources.list",
            "deb [arch=amd64 signed-by=/keys/a.gpg] http://m.example/debian sid main\n",
            "/keys/a.gpg",
        ),
        (
            "sources.list.d/more.list",
            "# deb http://old.example/debian x\ndeb http://m.example/debian x main\n",
            "",
        ),
    ],
    ids=["deb822", "one line", "a list more"],
)
def test_the_archive_of_the_systems_own_packages(name: str, text: str, key: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    assert fetch.archive(tmp_path) == ("http://m.example/debian", key)


def test_another_systems_archive(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("deb http://m.example/ubuntu noble main\n")
    with pytest.raises(ToolError, match=r"names no Debian archive.*install intel-ocloc from your"):
        fetch.archive(tmp_path)


def test_no_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with pytest.raises(ToolError, match="apt-get and dpkg-deb not found"):
        fetch.fetch_ocloc()
    assert not (tmp_path / "data").exists()


def test_an_unknown_tool() -> None:
    assert "'iga64' is not fetched: give one of ocloc" in refused("fetch", "iga64")


def test_what_was_fetched_is_found_before_what_is_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of the tool of today; the one for old GPUs stays the system's."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    programs = [tmp_path / "bin" / "ocloc", tools.fetched("ocloc")]
    for program in programs:
        program.parent.mkdir(parents=True)
        program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert [tools.find("ocloc-legacy"), tools.find("ocloc")] == [str(program) for program in programs]
    shutil.rmtree(tmp_path / "data")
    assert tools.find("ocloc") == str(programs[0])


def test_the_program_starts_with_the_libraries_beside_it(tmp_path: Path) -> None:
    """A folder with a space, since users have such homes."""
    draft, place = tmp_path / "draft", tmp_path / "a place"
    libraries = draft / "files" / "usr" / "lib"
    libraries.mkdir(parents=True)
    (draft / "files" / "usr" / "bin").mkdir()
    (draft / "files" / "usr" / "bin" / "ocloc-1.2").touch()
    loader = libraries / "ld-linux-x86-64.so.2"
    loader.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    loader.chmod(0o755)
    fetch.write_start(draft, place)
    draft.rename(place)
    said = subprocess.run([place / "bin" / "ocloc", "a b"], capture_output=True, text=True, check=True).stdout
    expected = ["--library-path", f"{place}/files/usr/lib", f"{place}/files/usr/bin/ocloc-1.2", "a b"]
    assert said.splitlines() == expected
