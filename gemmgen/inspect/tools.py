"""Compilers and disassemblers: run, and their answers kept by content."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gemmgen.errors import ToolError
from gemmgen.runtime.cache import DiskCache, digest
from gemmgen.tools import find

LIBCLC = Path("/usr/lib/clc/amdgcn-amd-amdhsa.bc")
SECONDS = 120

_cache = DiskCache("inspect")


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
    question = digest(*(_stamp(find(tool)) for tool in tools), *inputs)
    found = _cache.read("texts", question)
    if found is not None:
        return cast("dict[str, str]", json.loads(found))
    with tempfile.TemporaryDirectory(prefix="gemmgen-") as folder:
        texts = make(Path(folder))
    _cache.write("texts", question, json.dumps(texts).encode())
    return texts


def _stamp(path: str) -> str:
    """What changes when a program does."""
    real = Path(path).resolve()
    state = real.stat()
    return f"{real} {state.st_size} {state.st_mtime_ns}"
