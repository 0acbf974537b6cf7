"""Building a CUDA source by NVRTC: what it needs is checked first, and what the compiler says is put into words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import FileIO
from typing import Protocol, cast

from gemmgen.errors import DeviceError, ScheduleError
from gemmgen.ir.target import FEATURES
from gemmgen.runtime import require_nvrtc
from gemmgen.runtime.cache import in_memory, loadable
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, target_of, translated
from gemmgen.runtime.cuda_launch import blocks_at_once
from gemmgen.runtime.cuda_specific import binary, needs_specific
from gemmgen.source import EntryPoint, Source

#: Where an error is: `<file>(<line>): error: ...`.
ERROR_LINE = re.compile(r"\((\d+)\): (?:catastrophic )?error")
LOG_LINES = 40
_LARGER = "multiply in parts, or use a preset with a larger tile"
#: What the dimensions z, y and x of a launch stand for, and what to do about too many blocks.
_AXES = (("batch", "multiply in parts"), ("rows of C", _LARGER), ("columns of C", _LARGER))
#: Blocks along (batch, rows, columns).
GRID_LIMITS = (65_535, 65_535, 2**31 - 1)


class Function(Protocol):
    """What is used of a `cupy.cuda.Function`: the address of the driver's own."""

    ptr: int


class RawKernel(Protocol):
    """What is used of a `cupy.RawKernel`."""

    max_dynamic_shared_size_bytes: int

    @property
    def kernel(self) -> Function: ...
    @property
    def max_threads_per_block(self) -> int: ...
    @property
    def attributes(self) -> Mapping[str, int]: ...
    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[object, ...], *, shared_mem: int = 0
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Resources:
    """What the compiler gave a kernel.

    Attributes:
        registers: of a thread.
        spilled_bytes: of a thread, in local memory: spilled registers and arrays that are no registers.
        shared_bytes: of a block.
    """

    registers: int
    spilled_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class CudaBuilt:
    """The kernels of a source on one GPU, each with the shared memory that its launch asks for; of persistent ones, by
    their names, how many blocks the GPU runs at once; and the file of their code, which CuPy opens when it first
    launches a kernel.
    """

    kernels: tuple[tuple[EntryPoint, RawKernel, int], ...]
    at_once: Mapping[str, int]
    code: FileIO | None = None

    def resources(self) -> tuple[Resources, ...]:
        """Of each kernel, in order."""
        found = []
        for _, kernel, dynamic in self.kernels:
            known = kernel.attributes
            shared = known["shared_size_bytes"] + dynamic
            found.append(Resources(known["num_regs"], known["local_size_bytes"], shared))
        return tuple(found)


def build(source: Source, info: CudaDeviceInfo) -> CudaBuilt:
    """Compile for a GPU (CuPy keeps the binary on disk).

    Raises: DeviceError or ScheduleError with everything that the GPU lacks; DeviceError with the compiler's log.
    """
    check_device(source, info)
    import cupy

    with translated(info.name), cupy.cuda.Device(info.number):
        code = _specific(source, info)
        module = _compile(source, info, code)
        kernels, at_once = [], {}
        for entry in source.entry_points:
            kernel = cast(RawKernel, module.get_function(entry.name))
            dynamic = entry.dynamic_bytes
            if dynamic:
                kernel.max_dynamic_shared_size_bytes = dynamic
            check_threads(entry, kernel, info)
            kernels.append((entry, kernel, dynamic))
            if entry.persistent:
                threads = entry.group[0] * entry.group[1]
                at_once[entry.name] = blocks_at_once(
                    kernel.kernel.ptr, threads, dynamic, info.multiprocessors, entry.cluster
                )
    return CudaBuilt(tuple(kernels), at_once, code)


class _Module(Protocol):
    def get_function(self, name: str) -> object: ...


def _specific(source: Source, info: CudaDeviceInfo) -> FileIO | None:
    """The code of a source for one architecture alone; None for others, which CuPy compiles."""
    require_nvrtc()
    if not needs_specific(source):
        return None
    try:
        return in_memory(binary(source, target_of(info).name), source.name)
    except DeviceError as error:
        raise DeviceError(build_failure(source, info, str(error))) from error


def _compile(source: Source, info: CudaDeviceInfo, code: FileIO | None) -> _Module:
    import cupy

    if code is not None:
        return cast(_Module, cupy.RawModule(path=loadable(code)))
    try:
        module = cupy.RawModule(code=source.text, options=tuple(source.build_options), backend="nvrtc")
        module.compile()
    except cupy.cuda.compiler.CompileException as error:
        raise DeviceError(build_failure(source, info, str(error))) from error
    return cast(_Module, module)


def check_device(source: Source, info: CudaDeviceInfo) -> None:
    """Features, block size and shared memory.

    Raises: DeviceError if the GPU can't do it at all, ScheduleError if another schedule fits; every problem.
    """
    lacking = [
        f"{source.name} needs {feature} ({FEATURES.get(feature, 'unknown')}), which {info.name} lacks: "
        "choose another GPU (gemmgen devices) or a preset without it (gemmgen presets)"
        for feature in sorted(source.requires - target_of(info).features)
    ]
    too_big = []
    for entry in source.entry_points:
        rows, cols = entry.group
        if rows * cols > info.max_threads:
            too_big.append(
                f"{entry.name} has blocks of {rows}x{cols} = {rows * cols} threads > {info.max_threads} on "
                f"{info.name}: use a smaller group"
            )
        if entry.local_bytes > info.shared_bytes:
            too_big.append(
                f"{entry.name} takes {entry.local_bytes:,} B of shared memory > {info.shared_bytes:,} B on "
                f"{info.name}: use a smaller tile, group or K step, or fewer stages"
            )
    if lacking:
        raise DeviceError(lacking + too_big)
    if too_big:
        raise ScheduleError(too_big)


def check_threads(entry: EntryPoint, kernel: RawKernel, info: CudaDeviceInfo) -> None:
    """Registers may allow fewer threads than the block has. Raises: ScheduleError."""
    rows, cols = entry.group
    most = kernel.max_threads_per_block
    if rows * cols > most:
        raise ScheduleError(
            f"{entry.name} has blocks of {rows}x{cols} = {rows * cols} threads, but its registers leave room for "
            f"{most} on {info.name}: use a smaller tile or group"
        )


def grid_problems(entry: EntryPoint, groups: tuple[int, int, int]) -> list[str]:
    """Blocks that the launch would have beyond CUDA's limits."""
    return [
        f"{entry.name} would be launched on {count:,} blocks along the {axis} > {limit:,}: {remedy}"
        for (axis, remedy), count, limit in zip(_AXES, groups, GRID_LIMITS, strict=True)
        if count > limit
    ]


def build_failure(source: Source, info: CudaDeviceInfo, message: str) -> str:
    """The compiler's log, and the lines of the source that it complains about."""
    lines = source.text.splitlines()
    bad = sorted({int(n) for n in ERROR_LINE.findall(message) if 0 < int(n) <= len(lines)})
    quoted = [f"{number:5d} | {lines[number - 1]}" for number in bad]
    log = message.strip().splitlines()[:LOG_LINES]
    return "\n".join([f"NVRTC does not compile {source.name} for {info.name}; its log:", *log, *quoted])
