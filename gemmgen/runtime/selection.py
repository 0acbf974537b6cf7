"""The backends that run kernels: which device an option or an argument means, and a source as a kernel there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from gemmgen.errors import DeviceError, UserError
from gemmgen.ir.target import Target
from gemmgen.runtime.device import Device
from gemmgen.source import Source

if TYPE_CHECKING:
    from gemmgen.runtime.call import CallableKernel
    from gemmgen.runtime.variants import Variants

    Compiled: TypeAlias = CallableKernel[object, object, object, object]

#: Backends whose kernels can be run.
RUNNABLE = ("opencl", "cuda", "sycl")
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
    # Each backend has its own devices, and refuses those of others.
    known = cast("None", device)
    info: Device
    if backend == "opencl":
        from gemmgen.runtime import require_pyopencl

        require_pyopencl()
        from gemmgen.runtime import opencl_devices

        queue = opencl_devices.resolve(known, requires)
        return Chosen(queue, opencl_devices.target_of(queue.device))
    if backend == "cuda":
        from gemmgen.runtime import cuda_devices

        info = cuda_devices.pick(known)
    else:
        from gemmgen.runtime import sycl_devices

        info = sycl_devices.pick(known, requires)
    return Chosen(info, info.target)


def loaded(backend: str, source: Source, device: object, variants: Variants | None = None) -> Compiled:
    """A source as a kernel on a device, built now. Raises: DeviceError, ScheduleError with every problem."""
    made: object
    known = cast("None", device)
    if backend == "cuda":
        from gemmgen.runtime.cuda import CudaKernel

        made = CudaKernel.from_source(source, known, variants)
    elif backend == "sycl":
        from gemmgen.runtime.sycl import SyclKernel

        made = SyclKernel.from_source(source, known)
    else:
        from gemmgen.runtime.opencl import CompiledKernel

        made = CompiledKernel.from_source(source, known)
    return cast("Compiled", made)


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
