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
#: clang's full OpenCL header declares the sub-group built-ins of Intel and Khronos; its built-in table lacks Intel's.
CLANG = ("-x", "cl", "-target", "spir64", "-cl-no-stdinc", "-Xclang", "-finclude-default-header", "-fsyntax-only")
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
NVCC = ("-std=c++17", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror", "-Xptxas", "-v", "-cubin")


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
    given: str | None = None,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """What a program said, which has to succeed; `given` is its standard input."""
    result = subprocess.run(command, input=given, cwd=cwd, env=env, timeout=timeout, capture_output=True, text=True)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    return result


def clang(file: Path, *options: str) -> None:
    """OpenCL C that has to be without a warning."""
    ran([tool("clang"), *CLANG, *options, *STRICT, file])


def nvcc(kernel: Path | str, arch: str, folder: Path) -> str:
    """What ptxas says of a kernel, a file or text, that has to compile without a warning, into `kernel.cubin`."""
    file = kernel if isinstance(kernel, Path) else folder / "kernel.cu"
    if isinstance(kernel, str):
        file.write_text(kernel)
    return ran([tool("nvcc"), *NVCC, f"-arch={arch}", file, "-o", folder / "kernel.cubin"]).stderr
