"""Printers: one C-family printer, and for each language what differs."""

from __future__ import annotations

from dataclasses import replace

from gemmgen.backends.clike import CLike
from gemmgen.backends.cuda import Cuda
from gemmgen.backends.opencl import OpenCL
from gemmgen.backends.sycl import Sycl
from gemmgen.backends.sycl_bits import SyclByBits
from gemmgen.errors import ScheduleError
from gemmgen.spec import GemmSpec

BACKENDS: dict[str, type[CLike]] = {"opencl": OpenCL, "cuda": Cuda, "sycl": Sycl}
#: Languages in which 16-bit floats can be kept in integers -> what prints them so; OpenCL C has no other way.
BY_BITS: dict[type[CLike], type[CLike]] = {OpenCL: OpenCL, Sycl: SyclByBits}


def backend(name: str) -> type[CLike]:
    """A backend by its name. Raises: ScheduleError."""
    if name not in BACKENDS:
        raise ScheduleError(f"backend {name!r} is not one of {', '.join(BACKENDS)}")
    return BACKENDS[name]


def printer(language: type[CLike], spec: GemmSpec) -> type[CLike]:
    """What a spec is printed by."""
    return BY_BITS.get(language, language) if spec.emulate else language


def meant(language: type[CLike], spec: GemmSpec) -> GemmSpec:
    """A spec without what means nothing in a language."""
    return spec if language in BY_BITS else replace(spec, emulate=False)
