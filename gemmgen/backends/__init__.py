"""Printers: one C-family printer, and for each language what differs."""

from __future__ import annotations

from gemmgen.backends.clike import CLike
from gemmgen.backends.cuda import Cuda
from gemmgen.backends.opencl import OpenCL
from gemmgen.backends.sycl import Sycl
from gemmgen.errors import ScheduleError

BACKENDS: dict[str, type[CLike]] = {"opencl": OpenCL, "cuda": Cuda, "sycl": Sycl}


def backend(name: str) -> type[CLike]:
    """A backend by its name. Raises: ScheduleError."""
    if name not in BACKENDS:
        raise ScheduleError(f"backend {name!r} is not one of {', '.join(BACKENDS)}")
    return BACKENDS[name]
