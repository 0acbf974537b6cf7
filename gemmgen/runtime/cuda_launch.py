"""Launching a kernel that may begin while the one before it ends, or that takes tensor maps: CuPy's launches can't.

The driver's own function is called (CUDA Driver API, `cuLaunchKernelEx`; CUDA C++ Programming Guide, Programmatic
Dependent Launch).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gemmgen.errors import DeviceError
from gemmgen.runtime.kept import once

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


@once
def driver() -> ctypes.CDLL:
    """The driver's library. Raises: OSError where there is none."""
    return ctypes.CDLL("libcuda.so.1")


def blocks_at_once(function: int, threads: int, shared_bytes: int, multiprocessors: int, cluster: int = 1) -> int:
    """How many blocks of a kernel the current GPU runs at once (CUDA Driver API,
    `cuOccupancyMaxActiveBlocksPerMultiprocessor`). Of those in clusters some multiprocessors may have none: a cluster
    lies within a part of the chip (`cuOccupancyMaxActiveClusters`).

    Raises: DeviceError with the driver's code.
    """
    count = ctypes.c_int(0)
    address = ctypes.c_void_p(function)
    if cluster > 1:
        sizes = (ctypes.c_uint * 3)(cluster, 1, 1), (ctypes.c_uint * 3)(threads, 1, 1)
        config = _Config(*sizes, shared_bytes, None, None, 0)
        code = driver().cuOccupancyMaxActiveClusters(ctypes.byref(count), address, ctypes.byref(config))
        together = cluster
    else:
        asked = ctypes.c_int(threads), ctypes.c_size_t(shared_bytes)
        code = driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(ctypes.byref(count), address, *asked)
        together = multiprocessors
    if code:
        raise DeviceError(f"CUDA does not say how many blocks run at once (CUresult {code}). Please report it")
    return count.value * together


def launch(
    function: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: Sequence[np.generic | NDArray[np.uint64]],
    shared_bytes: int,
    stream: int,
    early: bool = False,
) -> None:
    """Queue a kernel.

    Args:
        function: the `CUfunction`.
        grid, block: extents along x, y, z.
        arguments: in the types that the kernel declares, addresses as 64-bit integers, tensor maps as arrays.
        stream: the `CUstream`, which may be capturing a graph.
        early: whether its blocks may begin before the stream's last kernel is over, which it awaits itself.

    Raises: DeviceError with the driver's code.
    """
    said = _Attribute(_EARLY, 0, (ctypes.c_int * 16)(1))
    sizes = (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block)
    config = _Config(*sizes, shared_bytes, stream, ctypes.pointer(said), int(early))
    held = [value if isinstance(value, np.ndarray) else np.array(value) for value in arguments]
    addresses = (ctypes.c_void_p * len(held))(*(value.ctypes.data for value in held))
    code = driver().cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(function), addresses, None)
    if code:
        raise DeviceError(f"CUDA refuses a launch (CUresult {code}). If the arrays are fine, please report it")
