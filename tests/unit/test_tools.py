"""Where others' compilers are looked for, and which one is taken where there are several."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gemmgen import tools
from gemmgen.errors import ToolError


def program(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True)
    file = folder / name
    file.touch(0o755)
    return file


def test_the_shell_s_comes_before_the_toolkit_s_and_the_wheel_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, toolkit, wheel = (tmp_path / name for name in ("own", "toolkit", "site-packages"))
    found = [program(folder, "nvcc") for folder in (own, toolkit / "bin", wheel / "nvidia" / "cu13" / "bin")]
    monkeypatch.setattr("site.getsitepackages", lambda: [str(wheel)])
    for variable, value in (("PATH", own), ("CUDA_HOME", ""), ("CUDA_PATH", toolkit)):
        monkeypatch.setenv(variable, str(value))
    for expected in found:
        assert tools.find("nvcc") == str(expected)
        expected.unlink()
    monkeypatch.setattr(tools, "folders", lambda: [os.environ["PATH"]])
    with pytest.raises(ToolError, match=r"nvcc is not on this machine: pip install \"gemmgen\[nvcc\]\""):
        tools.find("nvcc")


def test_the_best_spelling_wins_wherever_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, newer = program(tmp_path / "first", "clang"), program(tmp_path / "second", "clang-22")
    monkeypatch.setenv("PATH", f"{plain.parent}{os.pathsep}{newer.parent}")
    assert tools.find("clang") == str(newer)
    newer.unlink()
    assert tools.find("clang") == str(plain)
