"""Launching a kernel that may begin while the one before it ends, which CuPy's launches can't say.

The driver's own function is called (CUDA Driver API, `cuLaunchKernelEx`; CUDA C++ Programming Guide, Programmatic
Dependent Launch).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np

from gemmgen.errors import DeviceError

#: `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
_EARLY = 6


class _Attribute(ctypes.Structure):
    """`CUlaunchAttribute`: which, and 64 bytes for its value, of which a number is the first four."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Config(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def launch_early(
    function: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: Sequence[np.generic],
    shared_bytes: int,
    stream: int,
) -> None:
    """Queue a kernel whose blocks may begin before the stream's last kernel is over; it awaits that itself.

    Args:
        function: the `CUfunction`.
        grid, block: extents along x, y, z.
        arguments: in the types that the kernel declares, addresses as 64-bit integers.
        stream: the `CUstream`, which may be capturing a graph.

    Raises: DeviceError with the driver's code.
    """
    early = _Attribute(_EARLY, 0, (ctypes.c_int * 16)(1))
    config = _Config(
        (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), shared_bytes, stream, ctypes.pointer(early), 1
    )
    held = [np.array(value) for value in arguments]
    addresses = (ctypes.c_void_p * len(held))(*(value.ctypes.data for value in held))
    code = _driver().cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(function), addresses, None)
    if code:
        raise DeviceError(f"CUDA refuses a launch (CUresult {code}). If the arrays are fine, please report it")
