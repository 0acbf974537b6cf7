"""The Python interface: `compile`, `gemm`, and the kernels and devices of each backend. It is the layer above the
driver, which makes sources, and the runtimes, which know only sources. Heavy modules are imported at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from gemmgen.runtime import require_pyopencl

if TYPE_CHECKING:
    from gemmgen.runtime.cuda import CudaKernel as CudaKernel
    from gemmgen.runtime.cuda_devices import cuda_devices as cuda_devices
    from gemmgen.runtime.opencl import CompiledKernel as CompiledKernel
    from gemmgen.runtime.opencl_devices import devices as devices
    from gemmgen.runtime.sycl import SyclKernel as SyclKernel
    from gemmgen.runtime.sycl_devices import sycl_devices as sycl_devices

_OF_OPENCL = {"CompiledKernel": "opencl", "devices": "opencl_devices"}
_HOMES = {
    **_OF_OPENCL,
    "CudaKernel": "cuda",
    "cuda_devices": "cuda_devices",
    "SyclKernel": "sycl",
    "sycl_devices": "sycl_devices",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _OF_OPENCL:
        require_pyopencl()
    value: object = getattr(import_module(f"gemmgen.runtime.{_HOMES[name]}"), name)
    return value
