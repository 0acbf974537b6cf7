"""Compiling by NVRTC what one architecture alone has, such as sm_90a; CuPy compiles for those that others include."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

from gemmgen.errors import DeviceError
from gemmgen.runtime.files import write_whole
from gemmgen.source import Source

#: Features that no other architecture need have.
SPECIFIC = frozenset({"wgmma"})


def needs_specific(source: Source) -> bool:
    """Whether a source is for one architecture alone."""
    return bool(source.requires & SPECIFIC)


def binary(source: Source, arch: str) -> Path:
    """The file of a source compiled for an architecture: where CuPy keeps what it compiles, or made now. It stays until
    the process ends at least, as CuPy opens it when it first launches a kernel on a GPU.

    Raises: DeviceError with the compiler's log.
    """
    from cupy.cuda import nvrtc

    options = (*source.build_options, f"--gpu-architecture={arch}", *(f"-I{folder}" for folder in _headers()))
    made_by = "\0".join((str(nvrtc.getVersion()), *options, source.text))
    name = f"gemmgen_{hashlib.sha256(made_by.encode()).hexdigest()}.cubin"
    path = cache_folder() / name
    if not path.exists():
        code = _compiled(source, options)
        write_whole(path, code)
        if not path.exists():  # a full disk, say
            path = Path(_own_folder().name, name)
            path.write_bytes(code)
    return path


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


def cache_folder() -> Path:
    """CuPy's, by the variables that it documents; one of this process where there can be none."""
    with suppress(OSError, RuntimeError):  # a home that is not known, or not to be written to
        folder = Path(os.environ.get("CUPY_CACHE_DIR") or "~/.cupy/kernel_cache").expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        if os.environ.get("CUPY_CACHE_IN_MEMORY") != "1" and os.access(folder, os.W_OK):
            return folder
    return Path(_own_folder().name)


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="gemmgen_")


def _headers() -> list[str]:
    """Where the headers of 16-bit types may be: beside NVRTC as pip installs it, and in the toolkit."""
    import cupy

    found: list[object] = []
    with suppress(ImportError, AttributeError, RuntimeError):  # only CuPy 14 brings it
        found.append(import_module("cuda.pathfinder").find_nvidia_header_directory("cudart"))
    toolkit = cupy.cuda.get_cuda_path()
    found += [] if toolkit is None else [str(Path(toolkit, "include"))]
    return [str(folder) for folder in found if folder is not None]
