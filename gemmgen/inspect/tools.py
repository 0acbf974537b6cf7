"""Compilers and disassemblers: found, run, and their answers kept by content."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from platformdirs import user_cache_path

from gemmgen.errors import ToolError

#: Tool -> the names it goes by, best first, and what brings it.
TOOLS: dict[str, tuple[tuple[str, ...], str]] = {
    "ocloc": (("ocloc",), "apt-get install intel-opencl-icd"),
    "iga64": (("iga64",), "apt-get install libigc-tools"),
    "nvcc": (("nvcc",), "the CUDA toolkit (developer.nvidia.com/cuda-downloads)"),
    "nvdisasm": (("nvdisasm",), "pip install nvidia-cuda-nvdisasm"),
    "clang": (
        ("clang-22", "clang-23", "clang-24", *(f"clang-{version}" for version in range(21, 15, -1)), "clang"),
        "apt-get install clang-22 libclc-22 lld-22 (from apt.llvm.org)",
    ),
}
LIBCLC = Path("/usr/lib/clc/amdgcn-amd-amdhsa.bc")
SECONDS = 120
#: Changes when what is kept does.
_KEPT = "2"


@cache
def find(tool: str) -> str:
    """The path of a tool. Raises: ToolError with what brings it."""
    spellings, remedy = TOOLS[tool]
    folders = [os.environ.get("PATH", os.defpath), *map(str, _wheels()), "/usr/local/cuda/bin"]
    for spelling in spellings:
        if path := shutil.which(spelling, path=os.pathsep.join(folders)):
            return path
    raise ToolError(f"{tool} is not on this machine: {remedy}")


def _wheels() -> list[Path]:
    """Where NVIDIA's wheels put programs."""
    roots = [Path(p) for p in (*site.getsitepackages(), *sys.path) if p.endswith("-packages")]
    return [folder for root in dict.fromkeys(roots) for folder in sorted((root / "nvidia").glob("*/bin"))]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program said: its exit status and its output."""

    status: int
    output: str


def run(command: Sequence[str], folder: Path, errors: bool = True) -> Answer:
    """Run a program in a folder, with or without what it says on standard error.

    Raises: ToolError if it can't be run or does not end.
    """
    try:
        result = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{Path(command[0]).name} did not end in {SECONDS} s: try a smaller tile") from None
    except OSError as error:
        raise ToolError(f"{command[0]} can't be run: {error.strerror}") from None
    return Answer(result.returncode, result.stdout.decode("utf-8", "replace"))


def kept(tools: Sequence[str], inputs: Sequence[str], make: Callable[[Path], dict[str, str]]) -> dict[str, str]:
    """The texts that `make` gets from tools in an empty folder; from the cache, if all is as it was then."""
    stamps = [_KEPT, *(_stamp(find(tool)) for tool in tools), *inputs]
    key = hashlib.sha256(json.dumps(stamps).encode()).hexdigest()
    file = user_cache_path("gemmgen") / "inspect" / f"{key[:40]}.json"
    if (texts := _load(file)) is not None:
        return texts
    with tempfile.TemporaryDirectory(prefix="gemmgen-") as folder:
        texts = make(Path(folder))
    _save(file, texts)
    return texts


def _stamp(path: str) -> str:
    """What changes when a program does."""
    real = Path(path).resolve()
    state = real.stat()
    return f"{real} {state.st_size} {state.st_mtime_ns}"


def _load(file: Path) -> dict[str, str] | None:
    try:
        found: object = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    texts = {key: value for key, value in found.items() if isinstance(key, str) and isinstance(value, str)}
    return texts if len(texts) == len(found) else None


def _save(file: Path, texts: dict[str, str]) -> None:
    """As well as it can: a cache that can't be written to costs time, nothing else."""
    draft = file.with_suffix(f".{os.getpid()}.{id(texts)}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(texts), "utf-8")
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
