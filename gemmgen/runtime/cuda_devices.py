"""GPUs of CUDA as CuPy sees them: what there is, what each can do, and what CuPy says put into words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias, cast

from gemmgen.errors import DeviceError
from gemmgen.ir.target import TARGETS, Target
from gemmgen.runtime import is_named, require_cupy

CudaDeviceLike: TypeAlias = object
_ARCHITECTURE = "sm_"


@dataclass(frozen=True, slots=True)
class CudaDeviceInfo:
    """A GPU and what it can do.

    Attributes:
        number: chooses it, as in `CUDA_VISIBLE_DEVICES`' order.
        capability: compute capability, such as (9, 0).
        shared_bytes: shared memory of a block, in bytes, where a kernel asks for all of it.
        memory_bytes: of the whole GPU.
    """

    number: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int
    max_threads: int
    memory_bytes: int

    def __str__(self) -> str:
        major, minor = self.capability
        return f"{self.number}: {self.name} (CUDA, compute capability {major}.{minor})"


def cuda_devices() -> tuple[CudaDeviceInfo, ...]:
    """Every GPU. Raises: DeviceError if CuPy or a GPU is missing."""
    require_cupy()
    import cupy

    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except (RuntimeError, ImportError) as error:
        raise DeviceError(
            f"no GPU of CUDA can be reached ({error}): check nvidia-smi and CUDA_VISIBLE_DEVICES"
        ) from error
    if count == 0:
        raise DeviceError("there is no GPU of CUDA: check nvidia-smi and CUDA_VISIBLE_DEVICES")
    return tuple(map(info_of, range(count)))


@cache
def multiprocessors(number: int) -> int:
    """How many a GPU has."""
    return info_of(number).multiprocessors


def info_of(number: int) -> CudaDeviceInfo:
    """The description of a GPU."""
    import cupy

    properties = cast("dict[str, object]", cupy.cuda.runtime.getDeviceProperties(number))

    def whole(key: str) -> int:
        return int(cast(int, properties.get(key, 0)))

    return CudaDeviceInfo(
        number,
        cast(bytes, properties["name"]).decode(),
        (whole("major"), whole("minor")),
        whole("multiProcessorCount"),
        whole("sharedMemPerBlockOptin") or whole("sharedMemPerBlock"),
        whole("maxThreadsPerBlock"),
        whole("totalGlobalMem"),
    )


def pick(device: CudaDeviceLike = None) -> CudaDeviceInfo:
    """One GPU.

    Args:
        device: its number, part of its name, a `cupy.cuda.Device` or `torch.device`; None for CuPy's current one.

    Raises: DeviceError, with the list of what there is.
    """
    everything = cuda_devices()
    if isinstance(device, CudaDeviceInfo):
        return device
    if device is None:
        import cupy

        return everything[int(cupy.cuda.runtime.getDevice())]
    number: object = device
    if not isinstance(device, str | int):
        number = getattr(device, "id", getattr(device, "index", device))  # CuPy's, torch's
    if isinstance(number, str) and not number.isdecimal():
        found = [info for info in everything if is_named(number, info.name)]
    elif isinstance(number, int | str) and not isinstance(number, bool):
        found = [info for info in everything if info.number == int(number)]
    else:
        raise DeviceError(
            f"device = {device!r} is of type {type(device).__name__}: pass a number or part of a name (gemmgen devices)"
        )
    if not found:
        there = "; ".join(map(str, everything))
        raise DeviceError(f"no GPU matches {device!r}: choose by number or part of a name among {there}")
    return found[0]


def target_of(info: CudaDeviceInfo) -> Target:
    """The limits and features that passes ask for: those of the nearest architecture not above the GPU's.

    Raises: DeviceError for a GPU that is too old.
    """
    own = info.capability[0] * 10 + info.capability[1]
    names = [name.removeprefix(_ARCHITECTURE) for name in TARGETS if name.startswith(_ARCHITECTURE)]
    # With an `a` it is that GPU's alone, with all that the others have, too.
    known = {int(name.rstrip("a")): f"{_ARCHITECTURE}{name}" for name in names if name.rstrip("a") in (name, str(own))}
    fitting = [number for number in known if number <= own]
    if not fitting:
        least = min(known)
        raise DeviceError(
            f"{info} is older than compute capability {least // 10}.{least % 10}, the first that is supported: "
            "use another GPU, or backend 'opencl'"
        )
    target = TARGETS[known[max(fitting)]]
    return replace(target, local_bytes=info.shared_bytes or target.local_bytes, cores=info.multiprocessors)


@contextmanager
def translated(device: str = "CUDA") -> Iterator[None]:
    """Raises: DeviceError in place of any error of CUDA."""
    import cupy

    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise DeviceError(f"{device} is out of memory ({error}): use smaller matrices, or free others") from error
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        text = str(error)
        if "MEMORY_ALLOCATION" in text.upper() or "OUT_OF_MEMORY" in text.upper() or "MemoryAllocation" in text:
            raise DeviceError(f"{device} is out of memory ({text}): use smaller matrices, or free others") from error
        raise DeviceError(f"{device} failed: {text}. If the arrays are fine, please report it") from error
