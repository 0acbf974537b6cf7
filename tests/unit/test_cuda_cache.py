"""Where kernels for one architecture alone are kept on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgen.runtime.cuda_specific import cache_folder


def test_where_cupy_keeps_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "kernels"))
    assert cache_folder() == tmp_path / "kernels"
    assert cache_folder().is_dir()
    monkeypatch.delenv("CUPY_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cupy" / "kernel_cache"


@pytest.mark.parametrize("why", ["in memory", "no folder"])
def test_one_of_this_process(why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1" if why == "in memory" else "0")
    (tmp_path / "file").touch()
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / ("kernels" if why == "in memory" else "file/kernels")))
    folder = cache_folder()
    assert tmp_path not in folder.parents
    assert folder == cache_folder()
    (folder / "x").write_bytes(b"")
