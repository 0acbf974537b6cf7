"""The backends that run kernels: which device an option or an argument means, and a source as a kernel there."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, cast

from gemmgen.errors import DeviceError, UserError
from gemmgen.ir.target import Target
from gemmgen.records import dataclass
from gemmgen.runtime import require_pyopencl
from gemmgen.runtime.device import Device
from gemmgen.source import Source

if TYPE_CHECKING:
    from gemmgen.runtime.call import CallableKernel
    from gemmgen.runtime.variants import Variants

    Compiled: TypeAlias = CallableKernel[object, object, object, object]

#: Backends whose kernels can be run -> the classes of these.
KERNELS = {"opencl": "CompiledKernel", "cuda": "CudaKernel", "sycl": "SyclKernel"}
RUNNABLE = tuple(KERNELS)
#: The form of the sources that run from Python, where it is not the backend's first.
FORMS = {"sycl": "kernel"}


@dataclass(frozen=True, slots=True)
class Chosen:
    """What an argument `device` means: a device (OpenCL: a queue on it) as the backend's kernels take it, and its
    target.
    """

    device: object
    target: Target


def chosen(backend: str, device: object, requires: frozenset[str] = frozenset()) -> Chosen:
    """The device of a backend that an argument selects.

    Args:
        device: None for one that has the required features, or what the backend's kernels take.

    Raises: DeviceError.
    """
    if backend not in RUNNABLE:
        raise DeviceError(f"backend {backend!r} cannot be run from Python: use one of {', '.join(RUNNABLE)}")
    if backend == "opencl":
        require_pyopencl()
    devices = import_module(f"gemmgen.runtime.{backend}_devices")
    if backend == "opencl":
        queue = devices.resolve(device, requires)
        return Chosen(queue, devices.target_of(queue.device))
    info: Device = devices.pick(device, requires)
    return Chosen(info, info.target)


def loaded(backend: str, source: Source, device: object, *variants: Variants) -> Compiled:
    """A source as a kernel on a device, built now.

    Args:
        variants: of a CUDA source.

    Raises: DeviceError, ScheduleError with every problem.
    """
    kernels = import_module(f"gemmgen.runtime.{backend}")
    return cast("Compiled", getattr(kernels, KERNELS[backend]).from_source(source, device, *variants))


def pick(
    backend: str,
    platform: str | None = None,
    device: str | None = None,
    type: str | None = None,  # noqa: A002  (named as the option is)
) -> Device:
    """The device that a command's options select. Raises: DeviceError, UserError with every problem."""
    if backend not in RUNNABLE:
        raise UserError(f"backend {backend!r} cannot be run: use one of {', '.join(RUNNABLE)}")
    if backend == "opencl":
        from gemmgen.runtime import opencl_devices

        return opencl_devices.pick(platform, device, type)
    remedy = "choose by ONEAPI_DEVICE_SELECTOR" if backend == "sycl" else "leave it out"
    given = {"--platform": platform, "--type": type}
    if problems := [f"{x} {given[x]} means nothing to {backend.upper()}: {remedy}" for x in given if given[x]]:
        raise DeviceError(problems)
    return cast(Device, chosen(backend, device).device)
