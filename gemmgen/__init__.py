"""Matrix multiplication by generated kernels, and their text: OpenCL C, SYCL, CUDA and HIP C++.

    import gemmgen
    c = gemmgen.gemm(a, b)
    sgemm = gemmgen.compile(gemmgen.GemmSpec(), "L3_SIMD_32x2_1x8")
    c = sgemm(a, b)

Importing the package imports nothing else; each name below is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmgen.api.compile import compile as compile  # noqa: A004
    from gemmgen.api.gemm import gemm as gemm
    from gemmgen.api.gemm import last_choice as last_choice
    from gemmgen.api.grouped import grouped as grouped
    from gemmgen.api.tile_memory import pinned as pinned
    from gemmgen.api.weights import Packed as Packed
    from gemmgen.api.weights import prepack as prepack
    from gemmgen.drawing import draw as draw
    from gemmgen.drawing import draw_banks as draw_banks
    from gemmgen.drawing import draw_waves as draw_waves
    from gemmgen.driver import emit as emit
    from gemmgen.errors import DeviceError as DeviceError
    from gemmgen.errors import DtypeError as DtypeError
    from gemmgen.errors import GemmgenError as GemmgenError
    from gemmgen.errors import LoweringError as LoweringError
    from gemmgen.errors import ScheduleError as ScheduleError
    from gemmgen.errors import SpecError as SpecError
    from gemmgen.errors import UserError as UserError
    from gemmgen.ir.target import Target as Target
    from gemmgen.runtime.cuda import CudaKernel as CudaKernel
    from gemmgen.runtime.cuda_devices import cuda_devices as cuda_devices
    from gemmgen.runtime.opencl import CompiledKernel as CompiledKernel
    from gemmgen.runtime.opencl_devices import devices as devices
    from gemmgen.runtime.sycl import SyclKernel as SyclKernel
    from gemmgen.runtime.sycl_devices import sycl_devices as sycl_devices
    from gemmgen.schedule import Operand as Operand
    from gemmgen.schedule import Schedule as Schedule
    from gemmgen.source import Source as Source
    from gemmgen.spec import GemmSpec as GemmSpec

__version__ = "0.1.0"

_HOMES = {
    **dict.fromkeys(("draw", "draw_banks", "draw_waves"), "drawing"),
    "emit": "driver",
    "gemm": "api.gemm",
    "last_choice": "api.gemm",
    "grouped": "api.grouped",
    "pinned": "api.tile_memory",
    "Packed": "api.weights",
    "prepack": "api.weights",
    **dict.fromkeys(
        ("DeviceError", "DtypeError", "GemmgenError", "LoweringError", "ScheduleError", "SpecError", "UserError"),
        "errors",
    ),
    "Target": "ir.target",
    "compile": "api.compile",
    "devices": "api",
    "CompiledKernel": "api",
    "CudaKernel": "api",
    "cuda_devices": "api",
    "SyclKernel": "api",
    "sycl_devices": "api",
    "Operand": "schedule",
    "Schedule": "schedule",
    "Source": "source",
    "GemmSpec": "spec",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605  (one list for `import *` and for `__getattr__`)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    modules = {name for name, value in globals().items() if isinstance(value, ModuleType)}
    return sorted({*__all__, *modules, *(name for name in globals() if name.startswith("__"))})
