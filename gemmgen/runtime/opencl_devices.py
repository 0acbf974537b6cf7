"""OpenCL devices: their properties, the choice of one, and gemmgen's own queues on them."""

from __future__ import annotations

import ctypes
from array import array
from contextlib import suppress
from dataclasses import field, replace
from itertools import pairwise
from typing import TypeAlias

from gemmgen.errors import DeviceError
from gemmgen.ir.target import CPU_FEATURES, Target, with_intel_registers
from gemmgen.records import dataclass
from gemmgen.runtime import icd, is_named, limits, require_pyopencl
from gemmgen.runtime.cache import DiskCache, digest, once

require_pyopencl()
import pyopencl as cl  # noqa: E402  (after the check, so that its lack is told with a remedy)

from gemmgen.runtime import opencl_driver  # noqa: E402
from gemmgen.runtime.opencl_driver import translated  # noqa: E402

TYPES = ("cpu", "gpu", "accelerator")
_cache = DiskCache("opencl")

#: OpenCL's numbers of device queries that pyopencl has no names for.
SUB_GROUP_SIZES_INTEL = 0x4108
IMAGE_PITCH_ALIGNMENT = 0x104A


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device and its properties.

    Attributes:
        number: its index among the devices of all platforms, from 0.
        type: `cpu`, `gpu` or `accelerator`.
        c_version: the version of OpenCL C, such as `1.2` or `3.0`.
        sub_group_sizes: the sizes that a sub-group can have; empty without sub-groups.
        local_bytes: local memory of a work-group, in bytes.
        max_group: the most work-items of a work-group.
        images: whether it has 2D images.
        features: keys of `gemmgen.ir.target.FEATURES`.
        handle: pyopencl's object.
    """

    number: int
    platform: str
    platform_version: str
    name: str
    type: str
    c_version: str
    sub_group_sizes: tuple[int, ...]
    local_bytes: int
    max_group: int
    images: bool
    features: frozenset[str]
    handle: cl.Device = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.number}: {self.name} ({self.type}, {self.platform})"

    @property
    def target(self) -> Target:
        """The limits and features for the passes."""
        return target_of(self.handle)

    @property
    def about(self) -> dict[str, str]:
        """What a list of devices says of it."""
        features = ", ".join(sorted(feature.replace("_", " ") for feature in self.features))
        lanes = f"{', '.join(map(str, self.sub_group_sizes))} ({features})" if self.sub_group_sizes else "none"
        return {
            "platform": f"{self.platform} ({self.platform_version}), OpenCL C {self.c_version}",
            "sub-groups": lanes,
            "local memory": f"{self.local_bytes // 1024} KiB",
            "group": f"up to {self.max_group} work-items",
            "images": "yes" if self.images else "no",
        }


def devices() -> tuple[DeviceInfo, ...]:
    """Every device of every platform. Raises: DeviceError if there is none."""
    found = [device for platform in icd.platforms() for device in devices_of(platform)]
    if not found:
        raise DeviceError(icd.nothing_found())
    return tuple(_describe(number, device) for number, device in enumerate(found))


def devices_of(platform: cl.Platform) -> list[cl.Device]:
    """The devices of a platform; none if its hardware is missing."""
    try:
        return list(platform.get_devices())
    except cl.Error:  # DEVICE_NOT_FOUND
        return []


def info_of(device: cl.Device) -> DeviceInfo:
    """The description of a pyopencl device. A sub-device is not listed, and gets the number -1."""
    listed = next((info for info in devices() if info.handle == device), None)
    return listed or _describe(-1, device)


def _describe(number: int, device: cl.Device) -> DeviceInfo:
    platform = device.platform
    features = features_of(device)
    return DeviceInfo(
        number=number,
        platform=platform.name.strip(),
        platform_version=platform.version.strip(),
        name=device.name.strip(),
        type=type_of(device),
        c_version=_c_version(device),
        sub_group_sizes=sub_group_sizes(device) if "sub_groups" in features else (),
        local_bytes=device.local_mem_size,
        max_group=device.max_work_group_size,
        images=bool(device.image_support),
        features=features,
        handle=device,
    )


def type_of(device: cl.Device) -> str:
    """`cpu`, `gpu` or `accelerator`."""
    bits = (cl.device_type.CPU, cl.device_type.GPU)
    return next((name for name, bit in zip(TYPES, bits, strict=False) if device.type & bit), "accelerator")


@once
def reaches_host_memory(device: cl.Device) -> bool:
    """Whether kernels can access any memory of the process by its address (fine-grained system SVM)."""
    try:
        return type_of(device) == "cpu" and bool(device.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM)
    except cl.Error:  # an OpenCL 1.x device does not support the query
        return False


def has_sub_groups(device: cl.Device) -> bool:
    """Whether the device compiles kernels with sub-groups, which are written in OpenCL C 2.0.

    OpenCL 3.0 devices may leave 2.0 out, as PoCL does. PoCL 5.0 lists Intel's extension all the same. Kernels in OpenCL
    C 3.0 have no block reads there, get sub-groups of another size than they require, and compute wrong elements.
    """
    listed = {"cl_intel_subgroups", "cl_khr_subgroup_shuffle"} & set(device.extensions.split())
    return bool(listed) and "2.0" in _c_versions(device)


def _c_version(device: cl.Device) -> str:
    """The version of OpenCL C that a device reports, such as `1.2` or `3.0`."""
    return str(device.opencl_c_version).removeprefix("OpenCL C ").split(" ")[0]


def _c_versions(device: cl.Device) -> frozenset[str]:
    """The versions of OpenCL C that a device compiles, such as `1.2`."""
    newest = _c_version(device)
    try:
        listed = {int(each.version) for each in device.opencl_c_all_versions}
    except (cl.Error, AttributeError):  # a device before OpenCL 3.0, where each version includes those before
        return frozenset(x for x in ("1.2", "2.0") if x <= newest)
    return frozenset(f"{version >> 22}.{version >> 12 & 1023}" for version in listed)


def features_of(device: cl.Device) -> frozenset[str]:
    """The keys of `gemmgen.ir.target.FEATURES` that hold on the device."""
    extensions = set(device.extensions.split())
    has_any = has_sub_groups(device)
    intel = has_any and "cl_intel_subgroups" in extensions
    required = has_any and "cl_intel_required_subgroup_size" in extensions
    has = {
        "intel_sub_groups": intel,
        "sub_groups": has_any,
        "required_sub_group_size": required,
        "free_sub_group_size": not required,
        "block_read": intel,
        "image_block_read": intel and bool(device.image_support),
        "fp64": "cl_khr_fp64" in extensions,
        "fp16": True,  # vload_half and vstore_half, by the language
        "unaligned_vectors": True,  # vloadN, too
        "converted_vectors": type_of(device) == "cpu",
        "cache_prefetch": type_of(device) == "cpu",  # by a builtin of clang, on which all their runtimes are based
    }
    of_cpus = CPU_FEATURES if type_of(device) == "cpu" else frozenset()
    return of_cpus.union(name for name, there in has.items() if there)


@once
def sub_group_sizes(device: cl.Device) -> tuple[int, ...]:
    """The sizes that a sub-group can have on a device with sub-groups, ascending.

    pyopencl refuses the query's number, so the query goes to the loader directly. It belongs to an Intel extension. On
    a device without it a small kernel is compiled, and its sub-group size is queried.
    """
    return tuple(sorted(raw_info(device, SUB_GROUP_SIZES_INTEL))) or _probed_sub_group_size(device)


def _probed_sub_group_size(device: cl.Device) -> tuple[int, ...]:
    text = "__kernel void probe(__global int *x) { x[get_global_id(0)] = get_sub_group_local_id(); }"
    try:
        context = cl.Context([device])  # the Intel CPU runtime's programs don't keep it
        kernel = _probe(context, device, text, "-cl-std=CL2.0")
        size = kernel.get_sub_group_info(device, cl.kernel_sub_group_info.MAX_SUB_GROUP_SIZE_FOR_NDRANGE, [64])
    except cl.Error:
        return ()
    return (size,) if isinstance(size, int) and size > 0 else ()


def _probe(context: cl.Context, device: cl.Device, text: str, options: str = "") -> cl.Kernel:
    """The one kernel of a text."""
    (kernel,) = opencl_driver.kernels(
        opencl_driver.build(opencl_driver.program_of(context, text), device, options)
    ).values()
    return kernel


def raw_info(device: cl.Device, query: int) -> tuple[int, ...]:
    """The result of `clGetDeviceInfo` as pointer-sized integers (or one smaller integer); () if it fails."""
    try:
        get_info = opencl_driver.library().clGetDeviceInfo
    except (AttributeError, OSError):
        return ()
    handle, size = ctypes.c_void_p(device.int_ptr), ctypes.c_size_t()
    if get_info(handle, query, ctypes.c_size_t(0), None, ctypes.byref(size)) or not size.value:
        return ()
    values = (ctypes.c_size_t * -(-size.value // ctypes.sizeof(ctypes.c_size_t)))()
    return () if get_info(handle, query, size, values, None) else tuple(values)


#: Loads sixteen numbers as a vector, and stores them one by one.
_SIXTEEN = """__kernel void probe(__global const float *x, __global float *y)
{
    const float16 all = vload16(0, x);
    y[0] = all.s0; y[1] = all.s3; y[2] = all.s4; y[3] = all.s7;
    y[4] = all.s8; y[5] = all.sb; y[6] = all.sc; y[7] = all.sf;
}
"""


@once
def vector_bytes(device: cl.Device) -> int:
    """The native vector width of a CPU in bytes, as its runtime reports it.

    Workaround: on processors that its LLVM does not know, PoCL 3.0 (PyPI's pocl-binary-distribution) loads wrong values
    by `vload16` and aborts in `fma(float16)`. The load alone does not abort, so it is tested. If it fails, half the
    width is used.
    """
    native = max(4, int(device.native_vector_width_float)) * 4
    if native < 64 or "Portable Computing" not in device.platform.name:
        return min(64, native)
    return 64 if _loads_sixteen(device) else 32


def _loads_sixteen(device: cl.Device) -> bool:
    """Kept on disk, as each process would compile for it."""
    about = digest(device.name, device.platform.version, device.driver_version)
    known = _cache.read("sixteen", about)
    if known is None:
        known = b"yes" if _tries_sixteen(device) else b"no"
        _cache.write("sixteen", about, known)
    return known == b"yes"


def _tries_sixteen(device: cl.Device) -> bool:
    context = cl.Context([device])
    queue, flags = cl.CommandQueue(context), cl.mem_flags
    given, got = array("f", range(16)), bytearray(8 * 4)
    try:
        kernel = _probe(context, device, _SIXTEEN)
        x = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=given)
        y = cl.Buffer(context, flags.WRITE_ONLY, len(got))
        kernel.set_arg(0, x)
        kernel.set_arg(1, y)
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
        cl.enqueue_copy(queue, got, y)
    except cl.Error:
        return False
    return array("f", bytes(got)).tolist() == [0, 3, 4, 7, 8, 11, 12, 15]


def target_of(device: cl.Device) -> Target:
    """The limits and features of a real device, for the passes."""
    features = features_of(device)
    target = Target(
        device.name.strip(),
        features,
        sub_group_sizes(device) if "sub_groups" in features else (),
        max_group=device.max_work_group_size,
        local_bytes=device.local_mem_size,
    )
    if type_of(device) == "gpu":
        return replace(with_intel_registers(target), cores=max(1, device.max_compute_units))
    if type_of(device) != "cpu":
        return target
    return limits.of_cpu(target, device.max_compute_units, vector_bytes(device), device.global_mem_cache_size)


def pick(
    platform: str | int | None = None,
    device: str | int | None = None,
    type: str | None = None,  # noqa: A002  (named as the option is)
    requires: frozenset[str] = frozenset(),
) -> DeviceInfo:
    """One device.

    Args:
        platform: its number, or part of its name.
        device: part of its name, or its number among the devices that match `platform` and `type`.
        type: `cpu`, `gpu` or `accelerator` (`acc`); `all` and `default` are any.
        requires: features that the kernel uses. Among the matching devices, one with these features is preferred,
            then a GPU, then one with sub-groups, then the first.

    Raises: DeviceError if nothing matches, with the list of all devices.
    """
    everything = devices()
    type = "accelerator" if type is not None and type.lower() == "acc" else type  # noqa: A001  (OpenCL's own word)
    if type is not None and type.lower() not in (*TYPES, "all", "default"):
        raise DeviceError(f"device type {type!r} does not exist: use one of {', '.join(TYPES)}, all")
    left = [d for d in everything if _on_platform(d, platform, everything)]
    if type is not None and type.lower() in TYPES:
        left = [d for d in left if d.type == type.lower()]
    if isinstance(device, str) and not device.isdecimal():
        left = [d for d in left if is_named(device, d.name)]
    elif device is not None:
        left = left[int(device) :][:1] if int(device) >= 0 else []
    if not left:
        asked = {"platform": platform, "device": device, "type": type}
        wish = ", ".join(f"{name} {value!r}" for name, value in asked.items() if value is not None)
        there = "; ".join(map(str, everything))
        raise DeviceError(
            f"no device matches {wish}: choose by number or part of a name (type and platform are in parentheses) "
            f"among {there}"
        )
    return min(left, key=lambda d: (not requires <= d.features, d.type != "gpu", not d.sub_group_sizes, d.number))


def _on_platform(device: DeviceInfo, platform: str | int | None, everything: tuple[DeviceInfo, ...]) -> bool:
    if platform is None:
        return True
    if isinstance(platform, int) or platform.isdecimal():
        # Platforms are compared by their handles, since two versions of PoCL have the same name.
        breaks = [b.number for a, b in pairwise(everything) if a.handle.platform != b.handle.platform]
        return sum(start <= device.number for start in breaks) == int(platform)
    return is_named(platform, device.platform)


# --- queues -----------------------------------------------------------------------------------------

DeviceLike: TypeAlias = DeviceInfo | cl.Device | cl.Context | cl.CommandQueue | int | str | None

PROFILING = cl.command_queue_properties.PROFILING_ENABLE
#: CL_QUEUE_THREAD_LOCAL_EXEC_ENABLE_INTEL of cl_intel_exec_by_local_thread.
WITHIN_CALLS = 1 << 31


@once
def own_context(device: cl.Device) -> cl.Context:
    """One context for each device that gemmgen chose. It is kept alive, since queues of Intel's CPU runtime don't keep
    their context alive.
    """
    return cl.Context([device])


@once
def own_queue(device: cl.Device) -> cl.CommandQueue:
    """One queue for each device that gemmgen chose; it measures time."""
    with translated(device):
        return cl.CommandQueue(own_context(device), device, PROFILING)


@once
def within_calls(device: cl.Device) -> cl.CommandQueue | None:
    """A queue for small products, whose kernels run in the thread that enqueues them and wake no other thread. None if
    the device has no such queues. Ctrl-C is not heard meanwhile, so such a call must not wait for events.

    Source: cl_intel_exec_by_local_thread.
    """
    if "cl_intel_exec_by_local_thread" not in device.extensions.split():
        return None
    with suppress(cl.Error):  # then not
        return cl.CommandQueue(own_context(device), device, PROFILING | WITHIN_CALLS)
    return None


def resolve(device: DeviceLike, requires: frozenset[str] = frozenset()) -> cl.CommandQueue:
    """A queue on the device that the argument selects. Raises: DeviceError."""
    match device:
        case cl.CommandQueue():
            return device
        case cl.Context():
            return cl.CommandQueue(device, device.devices[0], PROFILING)
        case cl.Device():
            return own_queue(device)
        case DeviceInfo():
            return own_queue(device.handle)
        case None | int() | str():
            return own_queue(pick(device=device, requires=requires).handle)
    raise DeviceError(
        f"device = {device!r} is of type {type(device).__name__}: pass a number or part of a name (gemmgen devices), "
        "or a device, context or queue of pyopencl"
    )
