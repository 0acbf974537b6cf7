"""Programs that tests need: found, or the test is skipped with what installs them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gemmgen.errors import ToolError
from gemmgen.tools import TOOLS, find

#: Programs that gemmgen itself never calls.
OTHERS = {
    "clang-format": "pip install 'gemmgen[dev]'",
    "chromium-headless-shell": "apt-get install chromium-headless-shell",
    "cmake": "apt-get install cmake",
    "g++": "apt-get install g++",
    "gcc": "apt-get install gcc",
    "oclgrind": "apt-get install oclgrind",
}


def tool(name: str) -> str:
    """A program's path; skips the test where it is missing."""
    if name in TOOLS:
        try:
            return find(name)
        except ToolError as missing:
            pytest.skip(str(missing))
    path = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if path is None:
        pytest.skip(f"{name} is not on this machine: {OTHERS[name]}")
    return path


def ran(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """What a program said, which has to succeed."""
    result = subprocess.run(command, cwd=cwd, env=env, timeout=timeout, capture_output=True, text=True)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    return result
