"""CUDA GPUs as the driver lists them: their properties, and the choice of one."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from typing import TypeAlias

from gemmgen.errors import DeviceError
from gemmgen.ir.target import TARGETS, Target
from gemmgen.records import dataclass
from gemmgen.runtime import cuda_driver
from gemmgen.runtime.device import matching

CudaDeviceLike: TypeAlias = object
_ARCHITECTURE = "sm_"


@dataclass(frozen=True, slots=True)
class CudaDeviceInfo:
    """A GPU and its properties.

    Attributes:
        number: its index, in the order of `CUDA_VISIBLE_DEVICES`.
        capability: compute capability, such as (9, 0).
        shared_bytes: the most shared memory that a block can request, in bytes.
        memory_bytes: memory of the GPU.
        clock: of multiprocessors at most, in MHz; 0 where the driver does not say.
        memory_rate: bytes of memory in a microsecond at most; 0 where the driver does not say.
        l2_bytes: of L2.
    """

    number: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int
    max_threads: int
    memory_bytes: int
    clock: int = 0
    memory_rate: int = 0
    l2_bytes: int = 0

    def __str__(self) -> str:
        major, minor = self.capability
        return f"{self.number}: {self.name} (CUDA, compute capability {major}.{minor})"

    @property
    def target(self) -> Target:
        """The limits and features that passes ask for. Raises: DeviceError for a GPU that is too old."""
        return target_of(self)

    @property
    def about(self) -> dict[str, str]:
        """What a list of devices says of it."""
        major, minor = self.capability
        return {
            "platform": f"CUDA, compute capability {major}.{minor}",
            "multiproc.": str(self.multiprocessors),
            "shared memory": f"{self.shared_bytes // 1024} KiB",
            "memory": f"{self.memory_bytes >> 30} GiB",
            "block": f"up to {self.max_threads} threads",
        }


def cuda_devices() -> tuple[CudaDeviceInfo, ...]:
    """Every GPU. Raises: DeviceError if the driver or a GPU is missing."""
    return tuple(map(info_of, range(cuda_driver.device_count())))


@cache
def info_of(number: int) -> CudaDeviceInfo:
    """The description of a GPU."""

    def whole(attribute: int) -> int:
        return cuda_driver.device_attribute(number, attribute)

    return CudaDeviceInfo(
        number,
        cuda_driver.device_name(number),
        (whole(cuda_driver.MAJOR), whole(cuda_driver.MINOR)),
        whole(cuda_driver.MULTIPROCESSORS),
        whole(cuda_driver.SHARED_OPTIN) or whole(cuda_driver.SHARED),
        whole(cuda_driver.THREADS),
        cuda_driver.device_memory(number),
        whole(cuda_driver.CLOCK_RATE) // 1000,
        # Two bits a clock and line.
        whole(cuda_driver.MEMORY_CLOCK) * whole(cuda_driver.MEMORY_BITS) // 4000,
        whole(cuda_driver.L2_BYTES),
    )


def pick(device: CudaDeviceLike = None, _requires: frozenset[str] = frozenset()) -> CudaDeviceInfo:
    """One GPU.

    Args:
        device: its number, part of its name, a `cupy.cuda.Device` or `torch.device`; None for the current one.

    Raises: DeviceError, with the list of all devices.
    """
    everything = cuda_devices()
    if isinstance(device, CudaDeviceInfo):
        return device
    if device is None:
        return everything[_current()]
    if isinstance(device, str | int):
        return matching(device, everything, "GPU")
    return matching(
        device, everything, "GPU", getattr(device, "id", getattr(device, "index", device))
    )  # CuPy's, torch's


def _current() -> int:
    """The current GPU: torch's and CuPy's, whose `set_device` may not have made a context yet, or the driver's."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return int(torch.cuda.current_device())
    cupy = sys.modules.get("cupy")
    return cuda_driver.current_device() if cupy is None else int(cupy.cuda.runtime.getDevice())


def target_of(info: CudaDeviceInfo) -> Target:
    """The limits and features for the passes: those of the newest known architecture not above the GPU's.

    Raises: DeviceError for a GPU that is too old.
    """
    own = info.capability[0] * 10 + info.capability[1]
    names = [name.removeprefix(_ARCHITECTURE) for name in TARGETS if name.startswith(_ARCHITECTURE)]
    # An architecture with an `a` is for that GPU only. It has all features of the one without.
    known = {int(name.rstrip("a")): f"{_ARCHITECTURE}{name}" for name in names if name.rstrip("a") in (name, str(own))}
    fitting = [number for number in known if number <= own]
    if not fitting:
        least = min(known)
        raise DeviceError(
            f"{info} is older than compute capability {least // 10}.{least % 10}, the first that is supported: "
            "use another GPU, or backend 'opencl'"
        )
    target = TARGETS[known[max(fitting)]]
    return replace(
        target,
        max_group=info.max_threads,
        local_bytes=info.shared_bytes or target.local_bytes,
        cores=info.multiprocessors,
        cache_bytes=info.l2_bytes,
        clock=info.clock,
        memory_rate=info.memory_rate,
    )
