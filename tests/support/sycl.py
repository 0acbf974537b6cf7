"""What tests of SYCL share: whether it can be run here, and what compiles it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from gemmgen import candidates, driver, presets
from gemmgen.errors import DeviceError
from gemmgen.inspect import intel
from gemmgen.ir.target import Target
from gemmgen.runtime.sycl_devices import SyclDeviceInfo, pick, sycl_devices
from gemmgen.runtime.sycl_library import library
from gemmgen.schedule import Schedule
from gemmgen.source import Source
from gemmgen.spec import GemmSpec
from tests.support.tools import ran, tool

FORMS = ("header", "kernel", "main")
#: Of the files that are kept.
ENDINGS = {"header": ".hpp", "kernel": ".cpp"}
STRICT = ("-Wall", "-Wextra", "-Werror")


@cache
def why_no_device() -> str | None:
    """The reason to skip, or None where kernels can be run."""
    try:
        pick()
    except DeviceError as error:
        return str(error)
    return None


needs_device = pytest.mark.skipif(why_no_device() is not None, reason=str(why_no_device()))


def devices() -> list[SyclDeviceInfo]:
    """Those that can run kernels."""
    return [] if why_no_device() else [d for d in sycl_devices() if d.lacks is None]


def expressible(schedule: Schedule, target: Target | None = None) -> bool:
    """Whether SYCL has all that a schedule asks for, on a target or on any."""
    return not driver.refusals(GemmSpec(), schedule, "sycl", target)


#: Of the presets with vectors of a work-item's own those that are kept; others have other sizes.
FOR_CPUS = ("cpu_4x4_along_k", "cpu_6x64")


#: The presets by matrix instructions: of other types than the rest, and on Intel's GPUs alone.
BY_MATRICES = ("dpas_32x4_8x64_block_2d", "joint_matrix_32x4_8x64")


def names() -> list[str]:
    """Schedules that SYCL can express."""
    return [*names_for_any(), *FOR_CPUS]


def shipped() -> list[str]:
    """Those of them that are presets, and those by matrix instructions: their files are kept."""
    return [*(name for name in names() if name in presets.names()), *BY_MATRICES]


@cache
def names_for_any() -> list[str]:
    """Those of them that are not for CPUs alone."""
    schedules = {name: candidates.load(name).schedule for name in candidates.names()}
    return [name for name, schedule in schedules.items() if schedule.vector == 1 and expressible(schedule)]


def emit(name: str, form: str) -> Source:
    """A schedule for SYCL's default target."""
    preset = candidates.load(name)
    return driver.emit(preset.spec, preset.schedule, "sycl", form=form)


def device_compile(source: Source) -> bytes:
    """SPIR-V, by the DPC++ front end of the wheel with warnings as errors."""
    return device_compile_text(source.text, source.name)


def device_compile_text(text: str, name: str, *options: str) -> bytes:
    """The same of any text."""
    return intel.spirv(text, name, (*STRICT, *options))


def together(form: str) -> str:
    """A file that holds every preset's kept file, and what others emit: the runtime's headers are then read once, and
    names must not meet.
    """
    kept = Path(__file__).resolve().parents[2] / "generated" / "sycl"
    files = "".join(f'#include "{kept / name}{ENDINGS[form]}"\n' for name in shipped())
    return files + "".join(emit(name, form).text for name in names() if name not in presets.names())


def compile_together(form: str, *options: str) -> bytes:
    """All presets by `device_compile`, at once."""
    return device_compile_text(together(form), "together", *options)


def spirv(content: bytes) -> list[bytes]:
    """The modules that stand one behind another: one for all kernels that are launched alike."""
    magic, found, end = (0x07230203).to_bytes(4, "little"), [], 0
    while (start := content.find(magic, end)) >= 0:
        end = _module_end(content, start)
        found.append(content[start:end])
    return found


def _module_end(content: bytes, start: int) -> int:
    """Behind the last function of a module: its instructions tell their lengths, in words, after a head of five."""
    function, function_end, line, no_line = 54, 56, 8, 317
    at, end = start + 20, start
    while at < len(content):
        opcode, words = (int.from_bytes(content[at + i : at + i + 2], "little") for i in (0, 2))
        if words == 0 or (end == at and opcode not in (function, line, no_line)):
            break
        at += 4 * words
        end = at if opcode == function_end else end
    return end


def host_check(file: Path, *options: str) -> None:
    """g++ looks at the types of the host's half, with warnings as errors; the runtime's headers are the system's."""
    include = library().parent.parent / "include"
    command = [tool("g++"), "-std=c++17", "-x", "c++", "-fsyntax-only", *STRICT, "-isystem", str(include), *options]
    run([*command, str(file)])


def run(command: Sequence[str]) -> str:
    """What a command that must succeed prints."""
    result = ran(command)
    return result.stdout
