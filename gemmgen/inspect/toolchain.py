"""What all vendors' compilers have in common: a source, programs that run, cached answers, kernels' names."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, cast

from gemmgen.errors import ToolError, suggest
from gemmgen.inspect.machine import Machine
from gemmgen.runtime.cache import DiskCache, digest
from gemmgen.tools import find

Language = Literal["OpenCL C", "CUDA C++", "SPIR-V", "SYCL"]
SUFFIXES: dict[Language, str] = {"OpenCL C": ".cl", "CUDA C++": ".cu", "SYCL": ".hpp", "SPIR-V": ".spv"}
SECONDS = 120
#: Lines of a compiler's complaint that are shown.
LOG_LINES = 12

_cache = DiskCache("inspect")


@dataclass(frozen=True, slots=True)
class Input:
    """What is compiled.

    Attributes:
        content: the file.
        kernel: the one that is meant; None for the only one.
        options: that the compiler must be told.
        group: work-items of a group, where the host decides.
        launch_bytes: local memory that the launch asks for, of which the compiler knows nothing; None if nobody does.
        where: a name for messages.
    """

    language: Language
    content: bytes
    kernel: str | None = None
    options: tuple[str, ...] = ()
    group: int | None = None
    where: str = "kernel"
    launch_bytes: int | None = None

    @property
    def key(self) -> str:
        """Stands for the file where answers are kept."""
        return self.content.decode("latin-1")

    def write(self, folder: Path) -> Path:
        """The file, in a folder."""
        file = folder / f"kernel{SUFFIXES[self.language]}"
        file.write_bytes(self.content)
        return file


def run(command: Sequence[str], folder: Path, errors: bool = True) -> str:
    """What a program says that is run in a folder, with or without standard error. Its exit status says nothing.

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
    return result.stdout.decode("utf-8", "replace")


def cached(tools: Sequence[str], inputs: Sequence[str], make: Callable[[Path], dict[str, str]]) -> dict[str, str]:
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


@cache
def version(tool: str) -> str:
    """What a tool calls itself; figures of another version are others. Raises: ToolError if it is missing."""
    return cached((tool,), ("version",), lambda folder: {"version": _version(tool, folder)})["version"]


def _version(tool: str, folder: Path) -> str:
    program = find(tool)
    if tool.startswith("ocloc"):
        # It answers into a file.
        run([program, "query", "OCL_DRIVER_VERSION"], folder)
        files = [file.read_text("utf-8", "replace") for file in folder.iterdir()]
        return files[0].strip("\0 \n") if files else "unknown"
    said = run([program, "--help" if tool == "iga64" else "--version"], folder)
    found = re.search(r"\d+\.\d+(?:\.\d+)*", said)
    return found[0] if found else "unknown"


def refusal(tool: str, machine: Machine, source: Input, answer: str, folder: Path) -> ToolError:
    """A compiler's own words, errors first."""
    text = answer.replace(f"{folder}/", "").replace("kernel.cl", source.where).replace("kernel.cu", source.where)
    noise = re.compile(r"\s*$|Build failed|Command was|.*backend compiler failed")
    lines = [line for line in text.splitlines() if not noise.match(line)]
    first = next((i for i, line in enumerate(lines) if re.search(r"\berror\b", line, re.IGNORECASE)), 0)
    said = "\n    ".join(lines[first : first + LOG_LINES]) or "it does not say why; is the file empty?"
    return ToolError(f"{machine.target}: {tool} does not compile {source.where}:\n    {said}")


def pick_kernel(machine: Machine, source: Input, names: Sequence[str]) -> str:
    """The kernel that is meant. Raises: ToolError where none or several could be."""
    if not names:
        raise ToolError(f"{machine.target}: {source.where} holds no kernel, or none that the compiler kept")
    if source.kernel is None:
        if len(names) > 1:
            raise ToolError(f"{source.where} holds {len(names)} kernels: name one by --kernel: {', '.join(names)}")
        return names[0]
    if found := next((n for n in (source.kernel, f"__sycl_kernel_{source.kernel}") if n in names), None):
        return found
    # C++ mangles names: their length stands before them.
    mangled = [name for name in names if f"{len(source.kernel)}{source.kernel}" in name]
    if len(mangled) == 1:
        return mangled[0]
    raise ToolError(f"{source.where} has no kernel {source.kernel!r}: {suggest(source.kernel, mangled or names)}")
