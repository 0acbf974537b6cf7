"""Printers: one C-family printer, and for each language what differs. A language is imported when it is asked for, so
that the command line can name them all.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, cast

from gemmgen.errors import ScheduleError

if TYPE_CHECKING:
    from gemmgen.backends.clike import CLike
    from gemmgen.spec import GemmSpec

#: Languages by their names -> the module and the class that print them.
_PRINTERS = {
    "opencl": ("opencl", "OpenCL"),
    "cuda": ("cuda", "Cuda"),
    "sycl": ("sycl", "Sycl"),
    "hip": ("hip", "Hip"),
}
BACKENDS: tuple[str, ...] = tuple(_PRINTERS)
#: The same in words.
NAMED = " or ".join((", ".join(BACKENDS[:-1]), BACKENDS[-1]))
#: Languages in which 16-bit floats can be kept in integers -> what prints them so; OpenCL C has no other way.
_BY_BITS = {"opencl": ("opencl", "OpenCL"), "sycl": ("sycl", "SyclByBits")}


def backend(name: str) -> type[CLike]:
    """A backend by its name. Raises: ScheduleError."""
    if name not in BACKENDS:
        raise ScheduleError(f"backend {name!r} is not one of {', '.join(BACKENDS)}")
    return _imported(*_PRINTERS[name])


def printer_of(language: type[CLike], spec: GemmSpec) -> type[CLike]:
    """What a spec is printed by."""
    return _imported(*_BY_BITS[language.name]) if spec.emulate and language.name in _BY_BITS else language


def meant(language: type[CLike], spec: GemmSpec) -> GemmSpec:
    """A spec without what means nothing in a language."""
    return spec if language.name in _BY_BITS else replace(spec, emulate=False)


def _imported(module: str, name: str) -> type[CLike]:
    return cast("type[CLike]", getattr(import_module(f"gemmgen.backends.{module}"), name))
