"""Compiling by NVRTC what one architecture alone has, such as sm_90a; CuPy compiles for those that others include."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path

from gemmgen.errors import DeviceError
from gemmgen.runtime.cache import DiskCache, digest
from gemmgen.source import Source

#: Features that no other architecture need have.
SPECIFIC = frozenset({"wgmma"})

_cache = DiskCache("cuda")


def needs_specific(source: Source) -> bool:
    """Whether a source is for one architecture alone."""
    return bool(source.requires & SPECIFIC)


def binary(source: Source, arch: str) -> bytes:
    """A source compiled for an architecture, from the cache or made now.

    Raises: DeviceError with the compiler's log.
    """
    from cupy.cuda import nvrtc

    options = (*source.build_options, f"--gpu-architecture={arch}", *(f"-I{folder}" for folder in _headers()))
    question = digest(str(nvrtc.getVersion()), *options, source.text)
    kept = _cache.read(source.name, question)
    if kept is not None:
        return kept
    made = _compiled(source, options)
    _cache.write(source.name, question, made)
    return made


def _compiled(source: Source, options: tuple[str, ...]) -> bytes:
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(source.text, f"{source.name}.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
        return bytes(nvrtc.getCUBIN(program))
    except nvrtc.NVRTCError as error:
        raise DeviceError(str(nvrtc.getProgramLog(program)) or str(error)) from error
    finally:
        nvrtc.destroyProgram(program)


def _headers() -> list[str]:
    """Where the headers of 16-bit types may be: beside NVRTC as pip installs it, and in the toolkit."""
    import cupy

    found: list[object] = []
    with suppress(ImportError, AttributeError, RuntimeError):  # only CuPy 14 brings it
        found.append(import_module("cuda.pathfinder").find_nvidia_header_directory("cudart"))
    toolkit = cupy.cuda.get_cuda_path()
    found += [] if toolkit is None else [str(Path(toolkit, "include"))]
    return [str(folder) for folder in found if folder is not None]
