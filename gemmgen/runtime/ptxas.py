"""What ptxas says of a CUDA source: the registers of each kernel, and what it spills. No GPU is needed.

nvcc is asked, or where there is none, NVRTC, which CuPy reaches.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gemmgen.errors import DeviceError, ScheduleError, ToolError
from gemmgen.runtime import require_nvrtc
from gemmgen.source import Source
from gemmgen.tools import find

LOG_LINES = 40
#: A kernel's numbers stand on the line after its name (NVRTC begins that with `ptxas .`), its registers further down.
_PROPERTIES = re.compile(
    r"Function properties for (?P<name>\w+)\n[^\d\n]*(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads(?P<rest>.*?)(?=Function properties|\Z)",
    re.DOTALL,
)
_REGISTERS = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a thread of a kernel gets.

    Attributes:
        stack_bytes: of local memory: what is spilled, and arrays that are no registers.
        stores, loads: bytes that spilling moves, as many as the text says; loops move them again and again.
    """

    name: str
    registers: int
    stack_bytes: int
    stores: int
    loads: int


def refuse_spills(source: Source, arch: str) -> None:
    """Compile for an architecture such as `sm_90`, and throw the binary away.

    Raises: ScheduleError for every kernel that needs more than registers; DeviceError where no compiler is there, or
    it fails.
    """
    problems = [_problem(usage, arch) for usage in usages(source, arch) if usage.stack_bytes or usage.stores]
    if problems:
        raise ScheduleError(problems)


def _problem(usage: Usage, arch: str) -> str:
    spilled = f"spills {usage.stores:,} B by stores and {usage.loads:,} B by loads"
    what = spilled if usage.stores else f"keeps arrays of {usage.stack_bytes:,} B in local memory"
    return (
        f"{usage.name} {what} per thread on {arch}, which gives it {usage.registers} registers, by ptxas' word: use a "
        "smaller tile or group, or leave out --strict"
    )


def usages(source: Source, arch: str) -> tuple[Usage, ...]:
    """Of each kernel of the source, in ptxas' order. Raises: DeviceError."""
    nvcc = find_nvcc()
    if nvcc is None:
        _require_nvrtc()
    log = _ask_nvcc(nvcc, source, arch) if nvcc else _ask_nvrtc(source, arch)
    found = parse(log)
    if not {entry.name for entry in source.entry_points} <= {usage.name for usage in found}:
        raise DeviceError(f"{nvcc or 'NVRTC'} does not say what registers {source.name} gets; {_quoted(log)}")
    return found


def parse(log: str) -> tuple[Usage, ...]:
    """The kernels that a log of `ptxas -v` tells of."""
    found = []
    for match in _PROPERTIES.finditer(log):
        if registers := _REGISTERS.search(match["rest"]):  # else it is a function that a kernel calls
            stack, stores, loads = (int(match[key]) for key in ("stack", "stores", "loads"))
            found.append(Usage(match["name"], int(registers[1]), stack, stores, loads))
    return tuple(found)


def find_nvcc() -> str | None:
    """nvcc's path, or None where there is none."""
    try:
        return find("nvcc")
    except ToolError:
        return None


@cache  # `gemmgen bench` asks again for each size
def _ask_nvcc(nvcc: str, source: Source, arch: str) -> str:
    with tempfile.TemporaryDirectory(prefix="gemmgen_") as folder:
        text, binary = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
        text.write_text(source.text, encoding="utf-8")
        command = [nvcc, *source.build_options, "-O3", f"-arch={arch}", "-Xptxas", "-v", "-cubin"]
        command += [str(text), "-o", str(binary)]
        try:
            result = subprocess.run(command, check=False, capture_output=True, encoding="utf-8", errors="replace")
        except OSError as error:
            raise DeviceError(f"{nvcc} can't be run ({error.strerror}): {_REPAIR}") from error
    if result.returncode:
        raise DeviceError(
            f"{nvcc} does not compile {source.name} for {arch} (exit code {result.returncode}): {_REPAIR}; "
            + _quoted(result.stderr or result.stdout)
        )
    return result.stderr + result.stdout


_REPAIR = "install it again, or remove it, so that NVRTC is asked"


def _require_nvrtc() -> None:
    try:
        require_nvrtc()
    except DeviceError as error:
        raise DeviceError(
            f"--strict asks ptxas, but there is no nvcc, and without CuPy's NVRTC nobody else: {problem}; or "
            'pip install "gemmgen[nvcc]"; or leave out --strict'
            for problem in error.problems
        ) from error


@cache
def _ask_nvrtc(source: Source, arch: str) -> str:
    from cupy.cuda import nvrtc

    options = (*source.build_options, f"--gpu-architecture={arch}", "--ptxas-options=-v")
    program = nvrtc.createProgram(source.text, f"{source.name}.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
        return str(nvrtc.getProgramLog(program))
    except nvrtc.NVRTCError as error:
        log = str(nvrtc.getProgramLog(program))
        raise DeviceError(f"NVRTC does not compile {source.name} for {arch} ({error}); {_quoted(log)}") from error
    finally:
        nvrtc.destroyProgram(program)


def _quoted(log: str) -> str:
    return "\n".join(["its log:", *(log.strip().splitlines()[:LOG_LINES] or ["(empty)"])])
