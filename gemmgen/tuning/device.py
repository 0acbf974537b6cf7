"""What measured times hold for: a device, its driver, its compiler, and gemmgen's version."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import lru_cache

import gemmgen
from gemmgen.ir.target import Target
from gemmgen.records import dataclass
from gemmgen.runtime.cache import digest
from gemmgen.runtime.device import Device


@dataclass(frozen=True, slots=True)
class DeviceKey:
    """The key of a file of records.

    Attributes:
        device: its name, as the driver says it.
        cores: that the process may use: multiprocessors, compute units.
        driver, compiler: their versions.
        gemmgen: its version.
    """

    backend: str
    device: str
    cores: int
    driver: str
    compiler: str
    gemmgen: str

    @property
    def file_name(self) -> str:
        """Of its records."""
        return _file_name(self)

    def is_same_device(self, other: DeviceKey) -> bool:
        """Whether another key is of such a device, whatever drives it."""
        return (self.backend, self.device, self.cores) == (other.backend, other.device, other.cores)

    def __str__(self) -> str:
        return f"{self.device} ({self.backend}, {self.cores} cores, {self.compiler}, driver {self.driver})"


@lru_cache(maxsize=64)
def _file_name(key: DeviceKey) -> str:
    """Every choice asks for it."""
    words = re.sub(r"[^a-z0-9]+", "-", key.device.lower()).strip("-")[:48]
    return f"{words}-{digest(*map(str, asdict(key).values())).hex()[:12]}.jsonl"


def key_of(backend: str, device: object, target: Target) -> DeviceKey:
    """The key of a device.

    Args:
        device: as `gemmgen.runtime` describes it, or of OpenCL a queue or a device of pyopencl.
    """
    driver, compiler = _VERSIONS[backend](device)
    name = str(getattr(device, "name", None) or target.name)
    return DeviceKey(backend, name.strip(), target.cores, driver, compiler, gemmgen.__version__)


def by_argument(backend: str, device: object, requires: frozenset[str]) -> Device:
    """The device that an argument of `gemmgen.compile` means: a number, part of a name, or None.

    Raises: DeviceError.
    """
    return _FOUND.get(backend, _other)(backend, None if device is None else str(device), requires)


def _opencl_device(_: str, device: str | None, requires: frozenset[str]) -> Device:
    from gemmgen.runtime.opencl_devices import pick

    return pick(device=device, requires=requires)


def _other(backend: str, device: str | None, _: frozenset[str]) -> Device:
    from gemmgen.runtime.selection import pick

    return pick(backend, device=device)


_FOUND: Mapping[str, Callable[[str, str | None, frozenset[str]], Device]] = {"opencl": _opencl_device}


def _opencl(device: object) -> tuple[str, str]:
    """The compiler is a part of the platform."""
    import pyopencl as cl

    from gemmgen.runtime.opencl_devices import DeviceInfo

    handle = device.handle if isinstance(device, DeviceInfo) else device
    handle = handle.device if isinstance(handle, cl.CommandQueue) else handle
    assert isinstance(handle, cl.Device)
    platform = handle.platform
    return handle.driver_version.strip(), f"{platform.name.strip()} {platform.version.strip()}"


def _cuda(_: object) -> tuple[str, str]:
    from gemmgen.runtime import cuda_driver
    from gemmgen.runtime.nvrtc import nvrtc

    driver = cuda_driver.driver_version()
    return str(driver), "NVRTC {}.{}".format(*nvrtc(driver // 1000).version)


def _sycl(device: object) -> tuple[str, str]:
    return str(getattr(device, "driver", "")), str(getattr(device, "platform", ""))


_VERSIONS: Mapping[str, Callable[[object], tuple[str, str]]] = {"opencl": _opencl, "cuda": _cuda, "sycl": _sycl}
