"""Programs and kernels by way of pyopencl, without what it does beside (2026.1):

- `cl.Program.build` hands over every word of a compiler's as a warning. A thread can't hold that back from its users
  without changing what other threads are warned of.
- The same keeps binaries in files, whoever may write to those, and fails where it can't. Ours are kept by `cache.py`.
- Whatever makes a kernel looks on disk for how kernels of such arguments are called, and fails where nothing can be
  written.

So the functions of its extension are called that its own build is made of. And OpenCL's own where a daemon thread
waits, or one that must not take Python with it (`waiting.py`).
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
from contextlib import suppress
from typing import TypeAlias

import pyopencl as cl

from gemmgen.runtime.kept import once

Program: TypeAlias = "cl._cl._Program"


def program_of(context: cl.Context, text: str) -> Program:
    """A program that is yet to be built."""
    return cl._cl._Program(context, text)


def program_from(context: cl.Context, device: cl.Device, binary: bytes) -> Program:
    """The same of a binary. Raises: cl.Error for one that is not the device's."""
    return cl._cl._Program(context, [device], [binary])


def build(program: Program, device: cl.Device, options: str = "") -> Program:
    """The program, built for a device, in C. Raises: cl.Error; `log` says why."""
    handles = ctypes.c_void_p(program.int_ptr), ctypes.c_uint32(1), ctypes.byref(ctypes.c_void_p(device.int_ptr))
    if library().clBuildProgram(*handles, options.encode(), None, None):
        program._build(options=options.encode(), devices=[device])  # fails again, and says why
    return program


def log(program: Program, device: cl.Device) -> str:
    """What the compiler said."""
    return str(program.get_build_info(device, cl.program_build_info.LOG))


def kernels(program: Program) -> dict[str, cl.Kernel]:
    """New kernels, with arguments of their own, by name."""
    _expect_no_disk()
    try:
        made = program.all_kernels()
    except (OSError, sqlite3.Error):  # a full disk, say
        _without_disk()
        made = program.all_kernels()
    return {kernel.function_name: kernel for kernel in made}


@once
def library() -> ctypes.CDLL:
    """OpenCL's functions. A handle of the extension module finds those of the loader that it is linked to.

    Raises: OSError.
    """
    return ctypes.CDLL(cl._cl.__file__)


def wait_for(event: cl.Event) -> None:
    """Wait in C. Raises: cl.Error."""
    handle = ctypes.c_void_p(event.int_ptr)
    if library().clWaitForEvents(ctypes.c_uint32(1), ctypes.byref(handle)):
        event.wait()  # which says why


def finish(queue: cl.CommandQueue) -> None:
    """Wait in C for all that is queued."""
    library().clFinish(ctypes.c_void_p(queue.int_ptr))


@once
def _expect_no_disk() -> None:
    """Where it can be known before, pyopencl need not fail first, which shows."""
    import platformdirs

    folder = platformdirs.user_cache_path("pytools", "pytools")
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        _without_disk()


def _without_disk() -> None:
    """As `PYOPENCL_NO_CACHE=1` tells pyopencl when it is imported."""
    cl._PYOPENCL_NO_CACHE = True
