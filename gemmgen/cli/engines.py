"""Where `gemmgen run` runs kernels: a device of OpenCL or SYCL, or a GPU of CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from gemmgen.errors import DeviceError, UserError

if TYPE_CHECKING:
    from gemmgen.cli.matrices import Matrices, Matrix
    from gemmgen.ir.target import Target
    from gemmgen.runtime.cuda_devices import CudaDeviceInfo
    from gemmgen.runtime.devices import DeviceInfo
    from gemmgen.runtime.sycl_devices import SyclDeviceInfo
    from gemmgen.schedule import Schedule
    from gemmgen.spec import GemmSpec

#: A kernel, from what it takes and a C of its own, in the host's memory, to the result and the nanoseconds that the
#: device took.
Once: TypeAlias = "Callable[[Matrices, Matrix | None], tuple[Matrix, int]]"
BACKENDS = ("opencl", "cuda", "sycl")


def poisoned(data: Matrices, spec: GemmSpec) -> Matrix:
    """Memory for the result of A and B, full of NaN."""
    import numpy as np

    from gemmgen.cli.matrices import ordered
    from gemmgen.ir.numeric import numpy_dtype, poison

    batch = max(data.a.shape[:-2], data.b.shape[:-2])
    dtype = numpy_dtype(spec.result)
    return ordered(np.full((*batch, *data.sizes[:2]), poison(dtype), dtype), spec.c_order)


class Engine(Protocol):
    """A device, and how kernels are made and timed there; `exact` where `--ld-multiple` was said."""

    label: str
    backend: str

    def target(self) -> Target: ...
    def compile(self, spec: GemmSpec, schedule: Schedule, exact: bool) -> Once: ...


def pick(backend: str, platform: str | None, device: str | None, type_: str | None, strict: bool = False) -> Engine:
    """The device that the options mean. Raises: DeviceError, UserError with every problem."""
    if backend not in BACKENDS:
        raise UserError(f"backend {backend!r} cannot be run: use one of {', '.join(BACKENDS)}")
    if backend == "opencl":
        from gemmgen.runtime import devices

        return OpenclEngine(devices.pick(platform, device, type_))
    given = {"--platform": platform, "--type": type_}
    remedy = "choose by ONEAPI_DEVICE_SELECTOR" if backend == "sycl" else "leave it out"
    if problems := [
        f"{name} {value} means nothing to {backend.upper()}: {remedy}" for name, value in given.items() if value
    ]:
        raise DeviceError(problems)
    if backend == "sycl":
        from gemmgen.runtime import sycl_devices

        return SyclEngine(sycl_devices.pick(device))
    from gemmgen.runtime import cuda_devices

    return CudaEngine(cuda_devices.pick(device), strict)


class OpenclEngine:
    """An OpenCL device; times by the profile of the kernel's event."""

    backend = "opencl"

    def __init__(self, info: DeviceInfo) -> None:
        self.label, self._info = str(info), info

    def target(self) -> Target:
        from gemmgen.runtime.devices import target_of

        return target_of(self._info.handle)

    def compile(self, spec: GemmSpec, schedule: Schedule, exact: bool) -> Once:  # noqa: ARG002  (one kernel there)
        import gemmgen

        kernel = gemmgen.compile(spec, schedule, backend="opencl", device=self._info.handle)

        def once(data: Matrices, c: Matrix | None) -> tuple[Matrix, int]:
            result, event = kernel(data.a, data.b, c, return_event=True, **data.operands)
            event.wait()
            return result, int(event.profile.end - event.profile.start)

        return once


class CudaEngine:
    """A GPU of CUDA; times between events before and after the launch."""

    backend = "cuda"

    def __init__(self, info: CudaDeviceInfo, strict: bool) -> None:
        self.label, self._info, self._strict = str(info), info, strict

    def target(self) -> Target:
        from gemmgen.runtime.cuda_devices import target_of

        return target_of(self._info)

    def compile(self, spec: GemmSpec, schedule: Schedule, exact: bool) -> Once:
        import cupy

        from gemmgen.api.compile import cuda_kernel
        from gemmgen.runtime.cuda_devices import translated

        kernel = cuda_kernel(spec, schedule, self._info, exact, self._strict)

        def once(data: Matrices, c: Matrix | None) -> tuple[Matrix, int]:
            with translated(self._info.name), cupy.cuda.Device(self._info.number):
                left, right = cupy.asarray(data.a, order="K"), cupy.asarray(data.b, order="K")
                out = cupy.asarray(poisoned(data, spec) if c is None else c, order="K")
                operands = {name: cupy.asarray(array, order="K") for name, array in data.operands.items()}
                (seconds,) = kernel.time(left, right, out, iterations=1, **operands)
                result: Matrix = out.get(order="A") if out.ndim == 2 else out.get()
                return result, int(seconds * 1e9)

        return once


class SyclEngine:
    """A device of SYCL; times by the profile of the kernel's event."""

    backend = "sycl"

    def __init__(self, info: SyclDeviceInfo) -> None:
        self.label, self._info = f"{info} (SYCL)", info

    def target(self) -> Target:
        from gemmgen.runtime.sycl_devices import target_of

        return target_of(self._info)

    def compile(self, spec: GemmSpec, schedule: Schedule, exact: bool) -> Once:  # noqa: ARG002  (one kernel there)
        import gemmgen

        kernel = gemmgen.compile(spec, schedule, backend="sycl", device=self._info)

        def once(data: Matrices, c: Matrix | None) -> tuple[Matrix, int]:
            out = poisoned(data, spec) if c is None else c
            (seconds,) = kernel.time(data.a, data.b, out, alpha=None, beta=None, iterations=1, **data.operands)
            return out, round(seconds * 1e9)

        return once
