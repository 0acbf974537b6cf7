"""HIP files: compiled by clang, and their machine code executed on the CPU by an emulator, where there is one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.backends import backend
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import evaluate
from gemmgen.schedule import Schedule
from gemmgen.source import Source
from gemmgen.spec import GemmSpec
from gemmgen.tools import find
from tests.support import skips
from tests.support.tools import ran

#: Target -> what the emulator calls it.
EMULATED = {"gfx1100": "rdna3", "gfx942": "cdna"}
#: Where Debian's libamdhip64-dev has the header.
INSTALLED = Path("/usr/include/hip/hip_runtime.h")
#: Stands for that header where it is not installed, and wherever code is linked: the header needs libraries of ROCm's.
STAND_IN = Path(__file__).parent / "hip_headers"
OPTIONS = ("-x", "hip", "-std=c++17", "-O3", "-Wall", "-Wextra", "-Wno-unused-parameter", "-nogpulib")


def emulator() -> Path:
    """The folder of the emulator; skips the test where the environment names none."""
    if (named := os.environ.get("GEMMGEN_AMD_EMULATOR")) is None:
        pytest.skip(f"{skips.EMULATOR}: GEMMGEN_AMD_EMULATOR names a folder that holds amd_emulator")
    return Path(named)


def emitted(spec: GemmSpec, schedule: Schedule, target: str) -> Source:
    """The source for a target."""
    return driver.emit(spec, schedule, "hip", TARGETS[target])


def compiled(source: Source, target: str, clang: str, folder: Path) -> Path:
    """The code object of a source's kernels; what the compiler says is an error."""
    return _translated(source, target, clang, folder, "-c", ".hsaco")


def assembly(source: Source, target: str, clang: str, folder: Path) -> str:
    """What that is made of."""
    return _translated(source, target, clang, folder, "-S", ".s").read_text()


def _translated(source: Source, target: str, clang: str, folder: Path, to: str, suffix: str) -> Path:
    file, code = folder / f"{source.name}{backend('hip').suffix}", folder / f"{source.name}{suffix}"
    file.write_text(source.text)
    how = (f"--offload-arch={target}", "--offload-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-Werror")
    _run([clang, *OPTIONS, *how, f"-I{STAND_IN}", to, str(file), "-o", str(code)])
    return code


def checked(source: Source, target: str, clang: str, folder: Path) -> None:
    """Compiles kernels and launcher with ROCm's own header, which is installed, to assembly."""
    file = folder / f"{source.name}{backend('hip').suffix}"
    file.write_text(source.text)
    lanes = max(TARGETS[target].sub_group_sizes)
    for side in (f"--offload-arch={target}", "--offload-device-only"), ("--offload-host-only",):
        _run([clang, *OPTIONS, *side, *_rocm(lanes), "-S", str(file), "-o", str(folder / "x.s")])


def _rocm(lanes: int) -> list[str]:
    """Where the installed header is. It is of 2022: it asks the compiler for the lanes, and has no hip_bf16.h."""
    return [f"-D__AMDGCN_WAVEFRONT_SIZE={lanes}", "--rocm-path=/usr", f"-idirafter{STAND_IN}"]


def host_checked(folder: Path, file: str, clang: str) -> None:
    """The types of a program's host code, by ROCm's header where it is installed."""
    # For the host, its type of 16 bits takes functions that clang has no longer.
    is_too_old = "hip_fp16.h" in (folder / file).read_text()
    header = _rocm(64) if INSTALLED.exists() and not is_too_old else [f"-I{STAND_IN}", "-nogpuinc"]
    strict = ("-Werror", "-Wconversion", "-Wno-sign-conversion", "-Wshadow")
    _run([clang, *OPTIONS, *strict, "--offload-host-only", *header, "-fsyntax-only", str(folder / file)])


def product(
    source: Source, code: Path, target: str, arrays: dict[str, np.ndarray], scalars: dict[str, float | int]
) -> None:
    """Runs all kernels of a source by the emulator, which writes to the arrays.

    Args:
        arrays: the matrices, by name.
        scalars: all other arguments.
    """
    sizes = {name: int(value) for name, value in scalars.items() if isinstance(value, int)}
    between = {x.name: np.zeros(evaluate(x.elements, sizes), numpy_dtype(x.dtype)) for x in source.workspaces}
    held, launches = {**arrays, **between}, []
    for number, (layers, down, across) in source.launches(sizes):
        entry = source.entry_points[number]
        given = [("Q", x.name) if x.kind == "buffer" else (_FORMS[x.dtype], scalars[x.name]) for x in entry.arguments]
        (rows, cols), grid = entry.group, (across, down, layers)
        launches.append((entry.name, grid, (cols, rows, 1), entry.dynamic_bytes, given))
    files = {name: str(code.parent / f"{name}.npy") for name in held}
    for name, array in held.items():
        np.save(files[name], array)
    job = {"code": str(code), "arch": EMULATED[target], "arrays": files, "launches": launches}
    paths = os.pathsep.join([str(emulator()), os.environ.get("PYTHONPATH", "")])
    # Not with the folder beside it, whose modules have names of the standard library.
    script = str(Path(__file__).parent / "hip_emulator.py")
    # It compiles what each instruction does, in C.
    environment = {**os.environ, "PYTHONPATH": paths, "CC": find("clang")}
    _run([sys.executable, "-P", script], json.dumps(job), environment)
    for name, array in arrays.items():
        array[...] = np.load(files[name])


#: Types of arguments, as `struct` calls them.
_FORMS = {"int32": "i", "int64": "q", "float32": "f", "float64": "d"}


def _run(command: list[str], given: str | None = None, environment: dict[str, str] | None = None) -> None:
    ran(command, given, env=environment)
