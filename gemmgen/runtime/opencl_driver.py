"""OpenCL by pyopencl's extension module and by ctypes, without three side effects of pyopencl (2026.1):

- `cl.Program.build` reports every compiler message as a warning. A thread can't suppress that without changing the
  warnings of other threads.
- `cl.Program.build` also caches binaries in files, whoever may write to these, and fails if it can't write. gemmgen
  keeps its binaries by `cache.py`.
- Creating a kernel reads pyopencl's cache of call wrappers from disk, and fails if the disk can't be written.

So this module calls the extension's functions from which pyopencl's own build is made. For waits in a daemon thread,
or in a thread whose end must not abort the process, it calls OpenCL's own C functions (`waiting.py`).
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

import pyopencl as cl

from gemmgen.errors import DeviceError
from gemmgen.runtime.cache import once, user_cache

Program: TypeAlias = "cl._cl._Program"


def program_of(context: cl.Context, text: str) -> Program:
    """A program that is not built yet."""
    return cl._cl._Program(context, text)


def program_from(context: cl.Context, device: cl.Device, binary: bytes) -> Program:
    """A program from a binary. Raises: cl.Error if the binary is for another device."""
    return cl._cl._Program(context, [device], [binary])


def build(program: Program, device: cl.Device, options: str = "") -> Program:
    """The program, built for a device, in C. Raises: cl.Error; `log` says why."""
    handles = ctypes.c_void_p(program.int_ptr), ctypes.c_uint32(1), ctypes.byref(ctypes.c_void_p(device.int_ptr))
    if library().clBuildProgram(*handles, options.encode(), None, None):
        program._build(options=options.encode(), devices=[device])  # fails again, and says why
    return program


def log(program: Program, device: cl.Device) -> str:
    """The compiler's log."""
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
    """OpenCL's functions, by ctypes, from the loader that pyopencl's extension module is linked to.

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
    """Turn pyopencl's cache off if the disk is known to be unusable, before pyopencl fails visibly."""
    folder = user_cache("pytools")
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        _without_disk()


def _without_disk() -> None:
    """Turn pyopencl's cache off, as `PYOPENCL_NO_CACHE=1` does when pyopencl is imported."""
    cl._PYOPENCL_NO_CACHE = True


@contextmanager
def translated(device: cl.Device | None = None) -> Iterator[None]:
    """Turn any error of OpenCL into a DeviceError."""
    try:
        yield
    except cl.Error as error:
        raise translation(error, device) from error


def translation(error: cl.Error, device: cl.Device | None = None) -> DeviceError:
    """A DeviceError with a message for an error of OpenCL."""
    return failure(error.code, error.routine, device)


def failure(number: int, routine: str, device: cl.Device | None = None) -> DeviceError:
    """A DeviceError with a message for an error code of one of OpenCL's functions."""
    name = device.name.strip() if device else "OpenCL"
    code = cl.status_code.to_string(number, "unknown error %d")
    if number == cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE or "OUT_OF" in code:
        memory = f" ({device.global_mem_size >> 20:,} MiB)" if device else ""
        text = f"{name}{memory} is out of memory or registers ({code} in {routine}): use smaller matrices"
    elif "INVALID_CONTEXT" in code:
        text = f"{name}: the arrays' or the queue's context is gone ({code}): keep a reference to the context"
    else:
        text = f"{name} failed: {code} in {routine}. If the arrays are fine, please report it"
    return DeviceError(text)
