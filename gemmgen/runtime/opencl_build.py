"""Build an OpenCL source: check the device first, and turn the compiler's errors into messages."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeAlias, cast

import pyopencl as cl
from pyopencl.characterize import has_src_build_cache

from gemmgen.errors import DeviceError
from gemmgen.runtime import limits, opencl_driver
from gemmgen.runtime.build import Words, build_failure, check_device
from gemmgen.runtime.cache import DiskCache, digest
from gemmgen.runtime.opencl_devices import features_of, target_of, type_of
from gemmgen.runtime.opencl_driver import Program, translated
from gemmgen.source import EntryPoint, Source

Range: TypeAlias = tuple[int, int, int]

#: An error's position: `<file>:<line>:<column>: error: ...`, or PoCL's `error: <file>:<line>:<column>: ...`.
ERROR_LINE = re.compile(r"^(?=.*error).*?(\d+):\d+: ", re.MULTILINE)

_cache = DiskCache("opencl")


def build(source: Source, context: cl.Context, device: cl.Device) -> Program:
    """Compile for a device, or take the binary from the disk cache.

    Raises: DeviceError or ScheduleError with everything that the device lacks; DeviceError with the compiler's log.
    """
    rows, cols = device.max_work_item_sizes[1::-1]
    check_device(source, device.name.strip(), target_of(device), Words(), widest=(rows, cols))
    options = " ".join((*_options(source, device), os.environ.get("PYOPENCL_BUILD_OPTIONS", ""))).strip()
    with translated(device):
        program = _program(source, options, context, device)
        for entry, kernel in zip(source.entry_points, kernels_of(source, program), strict=True):
            check_sub_group(entry, kernel, device)
    return program


def _program(source: Source, options: str, context: cl.Context, device: cl.Device) -> Program:
    """A built program, from the binary on disk if there is one that the device accepts."""
    keeps = not (cl._PYOPENCL_NO_CACHE or has_src_build_cache(device))
    question = _question(source.text, options, device)
    binary = _cache.read(source.name, question) if keeps else None
    if binary is not None:
        with suppress(cl.Error):  # a binary of another driver with the same name and version
            return opencl_driver.build(opencl_driver.program_from(context, device, binary), device, options)
    program = opencl_driver.program_of(context, source.text)
    try:
        opencl_driver.build(program, device, options)
    except cl.RuntimeError as error:
        if error.code != cl.status_code.BUILD_PROGRAM_FAILURE:
            raise
        refusal = f"{device.name.strip()} does not compile {source.name}"
        log = opencl_driver.log(program, device)
        raise DeviceError(build_failure(source, refusal, log, ERROR_LINE)) from error
    if keeps:
        (made,) = cast("list[bytes]", program.get_info(cl.program_info.BINARIES))
        _cache.write(source.name, question, made)
    return program


def kernels_of(source: Source, program: Program) -> list[cl.Kernel]:
    """New kernels, with arguments of their own, in the order of the entry points."""
    made = opencl_driver.kernels(program)
    return [made[entry.name] for entry in source.entry_points]


def _question(text: str, options: str, device: cl.Device) -> bytes:
    """The cache key: everything that a binary depends on."""
    platform = device.platform
    told = platform.name, platform.vendor, platform.version, device.name, device.version, device.driver_version
    return digest(text, options, *told, limits.instructions() if type_of(device) == "cpu" else "")


def ranges(entry: EntryPoint, groups: Range) -> tuple[Range, Range]:
    """The global and the local size of a launch, for a grid of groups (layers, rows, columns)."""
    layers, rows, cols = groups
    high, wide = entry.group
    return (cols * wide, rows * high, layers), (wide, high, 1)


def check_workspaces(sizes: Mapping[str, int], device: cl.Device) -> None:
    """Raises: DeviceError if a workspace has more bytes than a buffer can have."""
    limit = device.max_mem_alloc_size if sizes else 0
    if too_large := [
        f"{name} takes {size:,} B > {limit:,} B, the largest buffer of {device.name.strip()}: use a lower split, pack "
        "nothing, or multiply in parts"
        for name, size in sizes.items()
        if size > limit
    ]:
        raise DeviceError(too_large)


def _options(source: Source, device: cl.Device) -> list[str]:
    """The build options for a device. An Intel GPU is recognised by extensions that only Intel's GPUs and Intel's CPU
    runtime have. The CPU runtime refuses the GPUs' options.
    """
    of_intel = type_of(device) == "gpu" and "intel_sub_groups" in features_of(device)
    return [*source.options(of_intel, {*source.matrix_extensions} <= {*device.extensions.split()})]


def check_sub_group(entry: EntryPoint, kernel: cl.Kernel, device: cl.Device) -> None:
    """Check the sub-group size of a compiled kernel, since some compilers choose it freely. Raises: ScheduleError."""
    if entry.sub_group is None:
        return
    try:
        query = cl.kernel_sub_group_info.MAX_SUB_GROUP_SIZE_FOR_NDRANGE
        size = kernel.get_sub_group_info(device, query, [entry.group[1], entry.group[0]])
    except cl.Error:
        return  # the query came with OpenCL 2.1
    if isinstance(size, int) and size and size != entry.sub_group:
        raise DeviceError(
            f"{entry.name} is written for sub-groups of {entry.sub_group}, but {device.name.strip()} compiled it for "
            f"{size}: use a schedule with sub_group = {size}"
        )
