"""Build a CUDA source for a GPU: check the GPU, compile by NVRTC or take the cubin from disk, load the kernels."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from dataclasses import field

from gemmgen.errors import DeviceError, ScheduleError
from gemmgen.ir.sizes import MOST_BLOCKS
from gemmgen.records import dataclass
from gemmgen.runtime import cuda_driver
from gemmgen.runtime.build import Words, build_failure, check_device
from gemmgen.runtime.cache import DiskCache, digest
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, target_of
from gemmgen.runtime.nvrtc import MAJORS, Nvrtc, header_folders, nvrtc
from gemmgen.source import EntryPoint, Source

#: The position of an error in a log: `<file>(<line>): error: ...`.
ERROR_LINE = re.compile(r"\((\d+)\): (?:catastrophic )?error")
WORDS = Words("GPU", "blocks", "threads", "shared")
_LARGER = "multiply in parts, or use a preset with a larger tile"
#: The meaning of a launch's dimensions z, y and x, and the remedy for too many blocks.
_AXES = (("batch", "multiply in parts"), ("rows of C", _LARGER), ("columns of C", _LARGER))
#: Blocks along (batch, rows, columns).
GRID_LIMITS = (MOST_BLOCKS, MOST_BLOCKS, 2**31 - 1)
#: Features that only an architecture-specific target (sm_90a) has.
SPECIFIC = frozenset({"wgmma"})

_cache = DiskCache("cuda")


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of a compiled kernel.

    Attributes:
        registers: registers of a thread.
        spilled_bytes: local memory of a thread: spilled registers, and arrays that are not in registers.
        shared_bytes: shared memory of a block.
    """

    registers: int
    spilled_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class CudaBuilt:
    """The kernels of a source on one GPU, in the order of the entry points; for persistent kernels, by name, the number
    of blocks that the GPU runs at once.
    """

    entries: tuple[EntryPoint, ...]
    functions: tuple[ctypes.c_void_p, ...]
    at_once: Mapping[str, int]
    module: cuda_driver.Module = field(repr=False)

    def resources(self) -> tuple[Resources, ...]:
        """The resources of each kernel, in order. The GPU must be current."""
        found = []
        for entry, function in zip(self.entries, self.functions, strict=True):
            registers, local, shared = (
                cuda_driver.function_attribute(function, attribute)
                for attribute in (
                    cuda_driver.FUNCTION_REGISTERS,
                    cuda_driver.FUNCTION_LOCAL,
                    cuda_driver.FUNCTION_SHARED,
                )
            )
            found.append(Resources(registers, local, shared + entry.dynamic_bytes))
        return tuple(found)


def build(source: Source, info: CudaDeviceInfo) -> CudaBuilt:
    """Compile for a GPU, and load the code there.

    Raises: DeviceError or ScheduleError with everything that the GPU lacks; DeviceError with the compiler's log.
    """
    check_device(source, info.name, target_of(info), WORDS)
    try:
        code = binary(source, info)
    except CompilerError as error:
        refusal = f"NVRTC does not compile {source.name} for {info.name}"
        raise DeviceError(build_failure(source, refusal, str(error), ERROR_LINE)) from error
    with cuda_driver.on_device(info.number):
        module = cuda_driver.Module(code)
        functions, at_once = [], {}
        for entry in source.entry_points:
            function = module.function(entry.name)
            if entry.dynamic_bytes:
                cuda_driver.allow_dynamic_shared(function, entry.dynamic_bytes)
            check_threads(entry, cuda_driver.function_attribute(function, cuda_driver.FUNCTION_THREADS), info)
            functions.append(function)
            if entry.persistent:
                threads = entry.group[0] * entry.group[1]
                at_once[entry.name] = cuda_driver.blocks_at_once(
                    function, threads, entry.dynamic_bytes, info.multiprocessors, entry.cluster
                )
    return CudaBuilt(source.entry_points, tuple(functions), at_once, module)


def check_threads(entry: EntryPoint, most: int, info: CudaDeviceInfo) -> None:
    """Check that registers allow as many threads as the block has. Raises: ScheduleError."""
    rows, cols = entry.group
    if rows * cols > most:
        raise ScheduleError(
            f"{entry.name} has blocks of {rows}x{cols} = {rows * cols} threads, but its registers leave room for "
            f"{most} on {info.name}: use a smaller tile or group"
        )


def grid_problems(entry: EntryPoint, groups: tuple[int, int, int]) -> list[str]:
    """Problems: more blocks than CUDA's limits allow."""
    return [
        f"{entry.name} would be launched on {count:,} blocks along the {axis} > {limit:,}: {remedy}"
        for (axis, remedy), count, limit in zip(_AXES, groups, GRID_LIMITS, strict=True)
        if count > limit
    ]


# --- binaries -------------------------------------------------------------------------------------


class CompilerError(DeviceError):
    """The compiler's log for a source that it refuses."""


def binary(source: Source, info: CudaDeviceInfo) -> bytes:
    """The cubin of a source for a GPU, from disk or compiled now; PTX for a GPU that NVRTC does not know.

    Raises: CompilerError with the compiler's log; DeviceError if there is no compiler.
    """
    compiler = nvrtc(min(cuda_driver.driver_version() // 1000, MAJORS[0]))
    arch, ptx = architecture(source, info, compiler)
    return code_of(source, compiler, arch, ptx)


def code_of(source: Source, compiler: Nvrtc, arch: str, ptx: bool = False) -> bytes:
    """The code of a source for an architecture such as `sm_90a`, from disk or compiled now. Raises: CompilerError."""
    options = (*source.build_options, f"--gpu-architecture={arch}")
    question = digest(str(compiler.version), *options, source.text)
    kept = _cache.read(source.name, question)
    if kept is not None:
        return kept
    includes = tuple(f"-I{folder}" for folder in header_folders(compiler.version[0]))
    try:
        made, _ = compiler.compile(source.text, source.name, (*options, *includes), ptx)
    except DeviceError as error:
        raise CompilerError(error.problems) from error
    _cache.write(source.name, question, made)
    return made


def architecture(source: Source, info: CudaDeviceInfo, compiler: Nvrtc) -> tuple[str, bool]:
    """The architecture to compile for, and whether as PTX."""
    if source.requires & SPECIFIC:
        return target_of(info).name, False
    own = info.capability[0] * 10 + info.capability[1]
    if own in compiler.architectures:
        return f"sm_{own}", False
    return f"compute_{max((x for x in compiler.architectures if x < own), default=own)}", True
