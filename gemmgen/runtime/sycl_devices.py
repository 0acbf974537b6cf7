"""SYCL's devices: what there is (`ONEAPI_DEVICE_SELECTOR` has its say), what each can do, and choosing one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from gemmgen.errors import DeviceError
from gemmgen.ir.target import CPU_FEATURES, CPU_PRIVATE_BYTES, TARGETS, Target, with_intel_registers
from gemmgen.runtime import is_named, limits
from gemmgen.runtime.icd import intel_cpu_library
from gemmgen.runtime.sycl_library import ICDS, INSTALL, helper

SyclDeviceLike: TypeAlias = object
#: Spilled registers of a CPU land in its first-level cache: the limit there is only a guard against nonsense.
CPU_REGISTER_BYTES = 65536
#: Backends whose drivers know Intel's block reads.
BLOCK_READERS = ("ext_oneapi_level_zero", "ext_oneapi_level_zero_v2", "level_zero", "opencl")


@dataclass(frozen=True, slots=True)
class SyclDeviceInfo:
    """A device and what it can do.

    Attributes:
        number: chooses it, among those that `ONEAPI_DEVICE_SELECTOR` leaves.
        type: `cpu`, `gpu` or `accelerator`.
        usm: whether it has shared USM.
        system: whether it reaches all of the host's memory, NumPy arrays too.
        compiles: whether kernels can be compiled for it at run time.
        standard: whether SYCL's default selector chooses it.
        fp16, fp64: whether it computes in those types.
        units: how many groups run at a time.
        vector_width: floats of a vector that a work-item computes on.
        cache_bytes: of its cache, as it says; 0 where it says nothing.
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

    def __str__(self) -> str:
        return f"{self.number}: {self.name} ({self.type}, {self.platform})"

    @property
    def lacks(self) -> str | None:
        """Why no kernel can be run there, or None."""
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
    """What brings a device: the environment's own CPU runtime may be there and not be seen."""
    own = intel_cpu_library()
    if own is None or any("Intel" in device.platform for device in everything):
        return f"{INSTALL} brings one for the CPU"
    return f"another library used SYCL before: set {ICDS}={own} before the process starts, and {INSTALL}"


def _parsed(number: int, fields: list[str]) -> SyclDeviceInfo:
    name, kind, platform, backend, driver, vendor, sizes, local, group, *rest = fields
    lanes = tuple(sorted(int(size) for size in sizes.split(",") if size))
    usm, system, compiles, standard, fp16, fp64 = (flag == "1" for flag in rest[:6])
    units, width, cache = map(int, rest[6:])
    texts = (name.strip(), kind, platform.strip(), backend, driver.strip(), vendor.strip())
    flags = (usm, system, compiles, standard, fp16, fp64)
    return SyclDeviceInfo(number, *texts, lanes, int(local), int(group), *flags, units, width, cache)


def target_of(info: SyclDeviceInfo) -> Target:
    """The limits and features that passes ask for."""
    sizes = tuple(size for size in info.sub_group_sizes if size > 1)
    features = {"unaligned_vectors", "atomic_add", "address_lists"}
    features |= {name for name, there in (("fp16", info.fp16), ("fp64", info.fp64)) if there}
    if sizes:
        features |= {"sub_groups", "required_sub_group_size"}
    if sizes and "Intel" in info.vendor and info.backend in BLOCK_READERS:
        features.add("block_read")
    target = Target(info.name, TARGETS["sycl"].features & features, sizes, info.max_group, info.local_bytes)
    if info.type == "gpu":
        return replace(target, cores=max(1, info.units))
    if info.type != "cpu":
        return with_intel_registers(target)
    return replace(
        target,
        features=target.features | CPU_FEATURES,
        register_bytes=CPU_REGISTER_BYTES,
        sub_group_register_bytes=CPU_REGISTER_BYTES,
        private_bytes=min(CPU_PRIVATE_BYTES, limits.stack_bytes() // 2),
        vector_bytes=min(64, 4 * max(4, info.vector_width)),
        cores=min(max(1, info.units), limits.processors()),
        cache_bytes=info.cache_bytes,
        maker=limits.maker(info.name),
    )


def pick(device: SyclDeviceLike = None, requires: frozenset[str] = frozenset()) -> SyclDeviceInfo:
    """One device.

    Args:
        device: its number or part of its name; None for SYCL's default if it has what is required, else for the first
            that has.

    Raises: DeviceError, with the list of what there is.
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
    if isinstance(device, bool) or not isinstance(device, int | str):
        raise DeviceError(
            f"device = {device!r} is of type {type(device).__name__}: pass a number or part of a name (gemmgen devices)"
        )
    if isinstance(device, str) and not device.isdecimal():
        found = [d for d in everything if is_named(device, d.name)]
    else:
        found = [d for d in everything if d.number == int(device)]
    there = "; ".join(map(str, everything))
    if not found:
        raise DeviceError(f"no SYCL device matches {device!r}: choose by number or part of a name among {there}")
    if (lacks := found[0].lacks) is not None:
        raise DeviceError(f"{found[0]} can't run kernels, as {lacks}: choose another among {there}")
    return found[0]
