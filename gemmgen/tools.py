"""Compilers and disassemblers that others make: their names, where they are looked for, and what installs them."""

from __future__ import annotations

import os
import shutil
import site
import sys
from collections.abc import Iterator
from pathlib import Path

from gemmgen.errors import ToolError

#: Tool -> the names it goes by, best first, and what installs it.
TOOLS: dict[str, tuple[tuple[str, ...], str]] = {
    "ocloc": (("ocloc",), "gemmgen fetch ocloc, or install your system's intel-ocloc"),
    # The last one to know Gen8 to Gen11.
    "ocloc-legacy": (("ocloc-legacy1", "ocloc"), "apt-get install intel-opencl-icd (Debian 12: of 2022)"),
    "iga64": (("iga64",), "apt-get install libigc-tools"),
    "nvcc": (("nvcc",), 'pip install "gemmgen[nvcc]", or install the CUDA toolkit'),
    "nvdisasm": (("nvdisasm",), 'pip install "gemmgen[inspect]", or install the CUDA toolkit'),
    "clang": (
        ("clang-22", "clang-23", "clang-24", *(f"clang-{version}" for version in range(21, 15, -1)), "clang"),
        "apt-get install clang-22 libclc-22 lld-22 (Debian 12; elsewhere from apt.llvm.org)",
    ),
}
#: Tools that `gemmgen fetch` brings.
FETCHED = ("ocloc",)


def find(tool: str) -> str:
    """The path of a tool: what `gemmgen fetch` brought, or what the shell finds. Both are the user's choice.

    Raises: ToolError with what installs it.
    """
    spellings, remedy = TOOLS[tool]
    if tool in FETCHED and (program := fetched(tool)).is_file():
        return str(program)
    path = os.pathsep.join(folders())
    for spelling in spellings:
        if found := shutil.which(spelling, path=path):
            return found
    raise ToolError(f"{tool} is not on this machine: {remedy}")


def fetched(tool: str) -> Path:
    """Where `gemmgen fetch` puts a program, whether or not it is there."""
    from platformdirs import user_data_path

    return user_data_path("gemmgen") / "fetched" / tool / "bin" / tool


def folders() -> Iterator[str]:
    """Where tools are looked for, in this order: PATH, the CUDA toolkit that CUDA_HOME or CUDA_PATH names, NVIDIA's
    wheels in this Python environment, the toolkit's usual folder.
    """
    yield os.environ.get("PATH", os.defpath)
    yield from (f"{home}/bin" for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name)))
    yield from map(str, _wheel_folders())
    yield "/usr/local/cuda/bin"


def _wheel_folders() -> list[Path]:
    """Where NVIDIA's wheels put programs."""
    roots = [Path(p) for p in (*site.getsitepackages(), *sys.path) if p.endswith("-packages")]
    return [folder for root in dict.fromkeys(roots) for folder in sorted((root / "nvidia").glob("*/bin"))]
