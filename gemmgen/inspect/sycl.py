"""SYCL: the front end of DPC++, which pip brings with the runtime, makes SPIR-V for Intel's compiler to go on from."""

from __future__ import annotations

import re
import struct
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from gemmgen.errors import DeviceError, ToolError
from gemmgen.inspect.tools import SECONDS, kept
from gemmgen.runtime.sycl_build import run_worker
from gemmgen.runtime.sycl_devices import pick
from gemmgen.runtime.sycl_library import version
from gemmgen.runtime.sycl_worker import REFUSED

MAGIC = 0x07230203
_HEADER, _ENTRY_POINT = 5, 15
_LOG_LINES = 12
#: Targets are compiled side by side; what they begin with is made by the first.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class Module:
    """A SPIR-V module.

    Attributes:
        kernels: its entry points.
    """

    content: bytes
    kernels: tuple[str, ...]


def modules(text: str, where: str) -> list[Module]:
    """What the front end makes of a source, from the cache or made now: a module for kernels that go together.

    Raises: ToolError with the compiler's words, or with what brings it.
    """
    try:
        with _one_at_a_time:
            inputs = ("SYCL", version(), text)
            binary = kept((), inputs, lambda _folder: {"syclbin": _compiled(text, where)})["syclbin"]
    except DeviceError as error:
        raise ToolError(error.problems) from None
    return list(_modules(binary.encode("latin-1")))


def _compiled(text: str, where: str) -> str:
    """SYCLBIN, each byte a character. In a process of its own, which the compiler may crash in."""
    try:
        answer = run_worker(pick().number, "none", "object", text, SECONDS)
    except subprocess.TimeoutExpired:
        raise ToolError(f"SYCL's compiler did not end in {SECONDS} s on {where}") from None
    if answer.returncode == 0:
        return answer.stdout.decode("latin-1")
    log = re.sub(r"rtc_\d+\.cpp", where, answer.stderr.decode("utf-8", "replace"))
    lines = [line for line in log.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if re.search(r"\berror\b", line)), 0)
    how = "does not compile" if answer.returncode == REFUSED else f"ended with exit code {answer.returncode} on"
    said = "\n    ".join(lines[first : first + _LOG_LINES])
    raise ToolError(f"SYCL's compiler {how} {where}:\n    {said}")


def _modules(binary: bytes) -> Iterator[Module]:
    """The modules that stand in a file of whatever kind."""
    magic = struct.pack("<I", MAGIC)
    at = binary.find(magic)
    while at >= 0:
        end, names = _walk(binary, at)
        if names:
            yield Module(binary[at:end], names)
        at = binary.find(magic, max(end, at + 4))


def _walk(binary: bytes, start: int) -> tuple[int, tuple[str, ...]]:
    """Where a module ends, and its entry points: instruction after instruction, each of which says how long it is."""
    at, names = start + 4 * _HEADER, []
    while at + 4 <= len(binary):
        (word,) = struct.unpack_from("<I", binary, at)
        length, opcode = 4 * (word >> 16), word & 0xFFFF
        if not length or word == MAGIC or at + length > len(binary):
            break
        if opcode == _ENTRY_POINT:
            names.append(binary[at + 12 : at + length].split(b"\0", 1)[0].decode("utf-8", "replace"))
        at += length
    return at, tuple(names)
