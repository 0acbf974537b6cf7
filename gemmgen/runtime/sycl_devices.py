"""SYCL devices (those that `ONEAPI_DEVICE_SELECTOR` leaves visible): their properties, and the choice of one."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from gemmgen.errors import DeviceError
from gemmgen.ir.instructions import JOINT_MATRIX_LANES
from gemmgen.ir.target import CPU_FEATURES, TARGETS, Target, with_intel_registers
from gemmgen.records import dataclass
from gemmgen.runtime import limits
from gemmgen.runtime.device import matching
from gemmgen.runtime.icd import intel_cpu_library
from gemmgen.runtime.sycl_library import ICDS, INSTALL, helper

SyclDeviceLike: TypeAlias = object
#: Backends whose drivers support Intel's block reads.
BLOCK_READERS = ("ext_oneapi_level_zero", "ext_oneapi_level_zero_v2", "level_zero", "opencl")


@dataclass(frozen=True, slots=True)
class SyclDeviceInfo:
    """A device and its properties.

    Attributes:
        number: its index among the devices that `ONEAPI_DEVICE_SELECTOR` leaves visible.
        type: `cpu`, `gpu` or `accelerator`.
        usm: whether it has shared USM.
        system: whether it can access all of the host's memory, including NumPy arrays.
        compiles: whether kernels can be compiled for it at run time.
        standard: whether SYCL's default selector chooses it.
        fp16, fp64: whether it supports those types.
        units: compute units: how many groups run at a time.
        vector_width: the native vector width in floats.
        cache_bytes: the size of its cache as reported; 0 if it reports none.
        matrix: whether it has matrix instructions of Intel's.
    """

    number: int
    name: str
    type: str
    platform: str
    backend: str
    driver: str
    vendor: str
    sub_group_sizes: tuple[int, ...]
    local_bytes: int
    max_group: int
    usm: bool
    system: bool
    compiles: bool
    standard: bool
    fp16: bool
    fp64: bool
    units: int
    vector_width: int
    cache_bytes: int
    matrix: bool

    def __str__(self) -> str:
        return f"{self.number}: {self.name} ({self.type}, {self.platform})"

    @property
    def target(self) -> Target:
        """The limits and features for the passes."""
        return target_of(self)

    @property
    def about(self) -> dict[str, str]:
        """What a list of devices says of it."""
        return {
            "platform": f"SYCL, {self.platform} ({self.driver})",
            "sub-groups": ", ".join(map(str, self.sub_group_sizes)) or "none",
            "local memory": f"{self.local_bytes // 1024} KiB",
            "group": f"up to {self.max_group} work-items",
        }

    @property
    def lacks(self) -> str | None:
        """Why no kernel can run on the device, or None."""
        if not self.compiles:
            return "its driver takes no kernels that are compiled at run time"
        return None if self.usm else "it has no shared USM"


def sycl_devices() -> tuple[SyclDeviceInfo, ...]:
    """Every device. Raises: DeviceError if there is none."""
    found = tuple(_parsed(number, fields) for number, fields in enumerate(helper().devices()))
    if not found:
        raise DeviceError(f"SYCL shows no device: unset ONEAPI_DEVICE_SELECTOR; if there is none then, {INSTALL}")
    return found


def _remedy(everything: tuple[SyclDeviceInfo, ...]) -> str:
    """How to get a device. The environment's own CPU runtime may be installed but not visible."""
    own = intel_cpu_library()
    if own is None or any("Intel" in device.platform for device in everything):
        return f"{INSTALL} installs one for the CPU"
    return f"another library used SYCL before: set {ICDS}={own} before the process starts, and {INSTALL}"


def _parsed(number: int, fields: list[str]) -> SyclDeviceInfo:
    name, kind, platform, backend, driver, vendor, sizes, local, group, *rest = fields
    lanes = tuple(sorted(int(size) for size in sizes.split(",") if size))
    usm, system, compiles, standard, fp16, fp64 = (flag == "1" for flag in rest[:6])
    units, width, cache, matrix = map(int, rest[6:])
    texts = (name.strip(), kind, platform.strip(), backend, driver.strip(), vendor.strip())
    flags = (usm, system, compiles, standard, fp16, fp64)
    return SyclDeviceInfo(number, *texts, lanes, int(local), int(group), *flags, units, width, cache, bool(matrix))


def target_of(info: SyclDeviceInfo) -> Target:
    """The limits and features of a device, for the passes."""
    sizes = tuple(size for size in info.sub_group_sizes if size > 1)
    features = {"unaligned_vectors", "atomic_add", "address_lists"}
    features |= {name for name, there in (("fp16", info.fp16), ("fp64", info.fp64)) if there}
    if sizes:
        features |= {"sub_groups", "required_sub_group_size"}
    if sizes and "Intel" in info.vendor and info.backend in BLOCK_READERS:
        features.add("block_read")
    # Of those of CPUs and of Xe-HPG, which has sub-groups of 8, fragments have other shapes.
    wide = info.type == "gpu" and min(sizes, default=0) >= JOINT_MATRIX_LANES
    matrix = {"joint_matrix"} if info.matrix and wide else set()
    target = Target(info.name, (TARGETS["sycl"].features & features) | matrix, sizes, info.max_group, info.local_bytes)
    if info.type == "gpu":
        return replace(target, cores=max(1, info.units))
    if info.type != "cpu":
        return with_intel_registers(target)
    target = replace(target, features=target.features | CPU_FEATURES)
    return limits.of_cpu(target, info.units, min(64, 4 * max(4, info.vector_width)), info.cache_bytes)


def pick(device: SyclDeviceLike = None, requires: frozenset[str] = frozenset()) -> SyclDeviceInfo:
    """One device.

    Args:
        device: its number or part of its name; None for SYCL's default if it has what is required, else for the first
            that has.

    Raises: DeviceError, with the list of all devices.
    """
    if isinstance(device, SyclDeviceInfo):
        return device
    everything = sycl_devices()
    if device is None:
        usable = [d for d in everything if d.lacks is None]
        if not usable:
            reasons = "; ".join(f"{d}: {d.lacks}" for d in everything)
            raise DeviceError(f"no SYCL device can run a kernel ({reasons}): {_remedy(everything)}")
        return min(usable, key=lambda d: (not requires <= target_of(d).features, not d.standard, d.number))
    found = matching(device, everything, "SYCL device")
    if (lacks := found.lacks) is not None:
        there = "; ".join(map(str, everything))
        raise DeviceError(f"{found} can't run kernels, as {lacks}: choose another among {there}")
    return found
