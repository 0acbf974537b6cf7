"""What tests of SYCL share: whether it can be run here, and what compiles it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from gemmgen import driver, presets
from gemmgen.errors import DeviceError
from gemmgen.ir.target import Target
from gemmgen.runtime.sycl_devices import SyclDeviceInfo, pick, sycl_devices
from gemmgen.runtime.sycl_library import helper, library
from gemmgen.schedule import Schedule
from gemmgen.source import Source
from gemmgen.spec import GemmSpec

FORMS = ("header", "kernel", "main")
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


def names() -> list[str]:
    """Presets that SYCL can express."""
    return [name for name in presets.names() if expressible(presets.load(name).schedule)]


def emit(name: str, form: str) -> Source:
    """A preset for SYCL's default target."""
    preset = presets.load(name)
    return driver.emit(preset.spec, preset.schedule, "sycl", form=form)


def device_compile(source: Source) -> bytes:
    """SYCLBIN with SPIR-V, by the DPC++ front end of the wheel with warnings as errors."""
    (entry,) = source.entry_points
    content, log = helper().compile(pick().number, source.text, entry.name, as_object=True, options=STRICT)
    assert content is not None, log
    assert "warning" not in log, log
    return content


def spirv(content: bytes) -> bytes:
    """The module in an object's SYCLBIN, of which it is the last part."""
    start = content.index((0x07230203).to_bytes(4, "little"))
    return content[start:]


def host_check(file: Path, *options: str) -> None:
    """g++ looks at the types of the host's half, with warnings as errors; the runtime's headers are the system's."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not on this machine: apt-get install g++")
    include = library().parent.parent / "include"
    command = [compiler, "-std=c++17", "-x", "c++", "-fsyntax-only", *STRICT, "-isystem", str(include), *options]
    run([*command, str(file)])


def run(command: Sequence[str]) -> str:
    """What a command that must succeed prints."""
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
