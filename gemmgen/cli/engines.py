"""The devices on which `gemmgen run` builds and times kernels: OpenCL, SYCL, CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from gemmgen.records import dataclass

if TYPE_CHECKING:
    from gemmgen.cli.matrices import Matrices, Matrix
    from gemmgen.runtime.device import Device
    from gemmgen.schedule import Schedule
    from gemmgen.spec import GemmSpec

#: One run of a kernel: from its operands and its own C, in the host's memory, to the result and the device time in
#: nanoseconds.
Once: TypeAlias = "Callable[[Matrices, Matrix | None], tuple[Matrix, int]]"


def poisoned(data: Matrices, spec: GemmSpec) -> Matrix:
    """Memory for the result, filled with NaN."""
    import numpy as np

    from gemmgen.cli.matrices import ordered
    from gemmgen.ir.numeric import numpy_dtype, poison

    batch = max(data.a.shape[:-2], data.b.shape[:-2])
    dtype = numpy_dtype(spec.result)
    return ordered(np.full((*batch, *data.sizes[:2]), poison(dtype), dtype), spec.c_order)


@dataclass(frozen=True, slots=True)
class Engine:
    """A device on which kernels are built and timed.

    Attributes:
        strict: whether CUDA kernels that spill registers are refused.
    """

    backend: str
    device: Device
    strict: bool = False

    @property
    def label(self) -> str:
        return f"{self.device} (SYCL)" if self.backend == "sycl" else str(self.device)

    def compile(self, spec: GemmSpec, schedule: Schedule, exact: bool) -> Once:
        """A kernel, timed by the profiles of its events. `exact` is set with `--ld-multiple`; then no other variant may
        run.
        """
        if self.backend == "cuda":
            return _of_cuda(self.device, spec, schedule, exact, self.strict)
        import gemmgen

        kernel = gemmgen.compile(spec, schedule, self.backend, self.device)

        def once(data: Matrices, c: Matrix | None) -> tuple[Matrix, int]:
            out = poisoned(data, spec) if c is None else c
            (seconds,) = kernel.time(
                data.a, data.b, out, alpha=None, beta=None, queue=None, iterations=1, **data.operands
            )
            return out, round(seconds * 1e9)

        return once


def pick(backend: str, platform: str | None, device: str | None, type_: str | None, strict: bool = False) -> Engine:
    """The device that the options select. Raises: DeviceError, UserError with every problem."""
    from gemmgen.runtime import selection

    return Engine(backend, selection.pick(backend, platform, device, type_), strict)


def _of_cuda(device: Device, spec: GemmSpec, schedule: Schedule, exact: bool, strict: bool) -> Once:
    """Timed between events before and after the launch."""
    import cupy

    from gemmgen.api.compile import cuda_kernel
    from gemmgen.runtime.cuda_devices import CudaDeviceInfo
    from gemmgen.runtime.cuda_memory import translated

    assert isinstance(device, CudaDeviceInfo)
    kernel = cuda_kernel(spec, schedule, device, exact, strict)

    def once(data: Matrices, c: Matrix | None) -> tuple[Matrix, int]:
        with translated(device.name), cupy.cuda.Device(device.number):
            left, right = cupy.asarray(data.a, order="K"), cupy.asarray(data.b, order="K")
            out = cupy.asarray(poisoned(data, spec) if c is None else c, order="K")
            operands = {name: cupy.asarray(array, order="K") for name, array in data.operands.items()}
            (seconds,) = kernel.time(left, right, out, iterations=1, **operands)
            result: Matrix = out.get(order="A") if out.ndim == 2 else out.get()
            return result, int(seconds * 1e9)

    return once
