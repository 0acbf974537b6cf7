"""Runs the command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-m", "gemmgen"]


def gemmgen(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, encoding="utf-8", cwd=cwd or root, env=environment
    )


def printed(*arguments: str | Path) -> str:
    result = gemmgen(*arguments)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def refused(*arguments: str | Path) -> str:
    result = gemmgen(*arguments)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    return result.stderr
