"""Registers and spills of a CUDA source's kernels, as ptxas reports them. Needs no GPU.

nvcc compiles the source, or NVRTC if there is no nvcc.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from gemmgen.errors import DeviceError, ScheduleError, ToolError
from gemmgen.records import dataclass
from gemmgen.runtime.nvrtc import Nvrtc, header_folders, nvrtc
from gemmgen.source import Source
from gemmgen.tools import find

LOG_LINES = 40
#: A kernel's spills are on the line after its name (NVRTC begins it with `ptxas .`), its registers further down.
_PROPERTIES = re.compile(
    r"Function properties for (?P<name>\w+)\n[^\d\n]*(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads(?P<rest>.*?)(?=Function properties|\Z)",
    re.DOTALL,
)
_REGISTERS = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources of a kernel's thread.

    Attributes:
        stack_bytes: local memory, for spilled registers and arrays that are not in registers.
        stores, loads: bytes of spill instructions in the code, each counted once; in loops they run repeatedly.
    """

    name: str
    registers: int
    stack_bytes: int
    stores: int
    loads: int


def refuse_spills(source: Source, arch: str) -> None:
    """Compile for an architecture such as `sm_90`, and refuse kernels that spill. The binary is discarded.

    Raises: ScheduleError with every kernel that spills; DeviceError if there is no compiler, or if it fails.
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
    """The resources of each kernel of the source, in ptxas' order. Raises: DeviceError."""
    nvcc = find_nvcc()
    if nvcc is None:
        _require_nvrtc()
    log = _ask_nvcc(nvcc, source, arch) if nvcc else _ask_nvrtc(source, arch)
    found = parse(log)
    if not {entry.name for entry in source.entry_points} <= {usage.name for usage in found}:
        raise DeviceError(f"{nvcc or 'NVRTC'} does not say what registers {source.name} gets; {_quoted(log)}")
    return found


def parse(log: str) -> tuple[Usage, ...]:
    """The kernels in a log of `ptxas -v`."""
    found = []
    for match in _PROPERTIES.finditer(log):
        if registers := _REGISTERS.search(match["rest"]):  # otherwise it is a function that a kernel calls
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


def _require_nvrtc() -> Nvrtc:
    try:
        return nvrtc()
    except DeviceError as error:
        raise DeviceError(
            f"--strict asks ptxas, but there is no nvcc, and no NVRTC either: {problem}; or "
            'pip install "gemmgen[nvcc]"; or leave out --strict'
            for problem in error.problems
        ) from error


@cache
def _ask_nvrtc(source: Source, arch: str) -> str:
    compiler = _require_nvrtc()
    folders = (f"-I{folder}" for folder in header_folders(compiler.version[0]))
    options = (*source.build_options, f"--gpu-architecture={arch}", "--ptxas-options=-v", *folders)
    try:
        return compiler.compile(source.text, source.name, options)[1]
    except DeviceError as error:
        raise DeviceError(f"NVRTC does not compile {source.name} for {arch}; {_quoted(str(error))}") from error


def _quoted(log: str) -> str:
    return "\n".join(["its log:", *(log.strip().splitlines()[:LOG_LINES] or ["(empty)"])])
