"""The kernels of `gemmgen.generated`: one file each, callable by name. Importing one needs no device; the first call
looks for the packages that run it.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Never

from gemmgen.errors import DeviceError, suggest
from gemmgen.runtime import require_pyopencl
from gemmgen.source import Source

if TYPE_CHECKING:
    from gemmgen.runtime.opencl import CompiledKernel


class SourceAlone:
    """A kernel without the package that runs it: it has the source, and a call raises an error with the remedy."""

    def __init__(self, source: Source, missing: DeviceError) -> None:
        self.source = source
        self._missing = missing

    def __repr__(self) -> str:
        return f"<gemmgen kernel {self.source.name}, of which only the source is at hand>"

    def __call__(self, *_: object, **__: object) -> Never:
        """Raises: DeviceError with the command that installs what is missing."""
        raise DeviceError(self._missing.problems)

    def __getattr__(self, name: str) -> Never:
        if name.startswith("_"):
            raise AttributeError(name)
        raise DeviceError(self._missing.problems)


def opencl_kernel(source: Source) -> CompiledKernel | SourceAlone:
    """The object for an OpenCL C file. CUDA's and SYCL's kernels look for their packages themselves, at a call."""
    try:
        require_pyopencl()
    except DeviceError as error:
        return SourceAlone(source, error)
    from gemmgen.api import CompiledKernel

    return CompiledKernel(source)


def names(package: str, suffix: str) -> list[str]:
    """The kernels of a package: its files with the suffix, sorted."""
    found = (entry.name for entry in files(package).iterdir())
    return sorted(name.removesuffix(suffix) for name in found if name.endswith(suffix))


def _unfit(backend: str, name: str) -> str | None:
    """Why a preset has no file of a backend, though it can be emitted; None if it is no preset, or can't be emitted."""
    from gemmgen import driver, presets
    from gemmgen.backends import backend as find_backend

    if name not in presets.names():
        return None
    preset = presets.load(name)
    unfit = find_backend(backend).unfit(preset.schedule.all_work_items)
    return None if driver.refusals(preset.spec, preset.schedule, backend) else unfit


def source(package: str, suffix: str, backend: str, name: str, form: str | None = None) -> Source:
    """The preset of that name, with the file's text.

    Raises: AttributeError with the nearest name; ImportError with the reason for a preset that the backend supports,
        but that has no file, since it is not useful there.
    """
    known = names(package, suffix)
    if name not in known:
        if (unfit := _unfit(backend, name)) is not None:
            remedy = f"`gemmgen emit --backend {backend} --preset {name}` still emits it"
            raise ImportError(f"module {package!r} has no kernel {name!r}, as {unfit}; {remedy}")
        raise AttributeError(f"module {package!r} has no kernel {name!r}: {suggest(name, known, f'dir({package})')}")
    from gemmgen import driver, presets  # names alone need neither

    preset = presets.load(name)
    # The preset gives the arguments and the launch geometry, the file gives the text.
    emitted = driver.emit(preset.spec, preset.schedule, backend, form=form)
    return replace(emitted, text=files(package).joinpath(f"{name}{suffix}").read_text(encoding="utf-8"))
