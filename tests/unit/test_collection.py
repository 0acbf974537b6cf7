"""What is not installed keeps no test from being found: files that can't do without it are skipped, and say so."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.tools import ran

WITHOUT = """
import sys
sys.modules["pyopencl"] = None
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""
MIXED = ("test_epilogues.py", "test_prologues.py", "test_complex.py", "test_lists.py")


def test_files_are_collected_without_pyopencl(root: Path) -> None:
    files = [str(root / "tests" / "device" / name) for name in (*MIXED, "test_batches.py", "test_types.py")]
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "--collect-only", "-q", "-rs"]
    command = [sys.executable, "-c", WITHOUT, *options, *files]
    result = ran(command, cwd=root)
    for name in MIXED:
        assert f"{name}::test_cuda" in result.stdout or f"{name}::test_lists_on_a_gpu" in result.stdout
    for name in ("test_batches.py", "test_types.py"):
        assert f"tests/device/{name}::" not in result.stdout
    assert "SKIPPED [2]" in result.stdout and "pyopencl is not installed" in result.stdout
