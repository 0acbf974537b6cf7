"""Tensor maps, made by the driver's own function (CUDA Driver API, `cuTensorMapEncodeTiled`), and kept."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gemmgen.errors import DeviceError
from gemmgen.ir.expr import Const
from gemmgen.ir.walk import evaluate
from gemmgen.runtime.cuda_launch import driver
from gemmgen.source import TensorMap

Words = NDArray[np.uint64]
#: Of a map, in words of eight bytes; it stands on multiples of 64 bytes.
WORDS, ALIGNMENT = 16, 64
#: What lines of a matrix are apart by multiples of.
ALIGNED_BYTES = 16
#: `CUtensorMapDataType`, by elements; those of a byte are copied as such.
TYPES = {"float16": 6, "float32": 7, "bfloat16": 9, "int8": 0, "int32": 3, "float8_e4m3fn": 0, "float8_e5m2": 0}
#: `CUtensorMapSwizzle`, by bytes of a line.
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
#: Nothing interleaved, zeros outside.
_NONE = 0
#: `CU_TENSOR_MAP_L2_PROMOTION_L2_128B`: what L2 fetches at a time. By 256 more comes along in vain where lines begin on
#: no multiples of it, and nothing was faster on an H200 (64x4096x14336: 33.4 us by 256, 32.3 by 128).
_FETCHED = 2
KEPT = 1024


def made(tensor_map: TensorMap, values: Mapping[str, object]) -> Words:
    """The map of a matrix, of the arguments of a call. Of no elements there is none, which no kernel asks for.

    Raises: DeviceError with the driver's code.
    """
    sizes = {name: value for name, value in values.items() if isinstance(value, int)}
    lines, length = (evaluate(extent, sizes) for extent in (tensor_map.lines, tensor_map.length))
    count, apart = (evaluate(x, sizes) for x in tensor_map.batch or (Const(1), Const(0)))
    if not lines or not length or not count:
        return np.zeros(WORDS, np.uint64)
    address = int(cast("int", values[tensor_map.operand]))
    # The pitch of a single line is never used, and need not be what maps ask for.
    step = ALIGNED_BYTES // tensor_map.dtype.size
    pitch = evaluate(tensor_map.pitch, sizes) if lines > 1 else -(-length // step) * step
    if tensor_map.batch is None:
        return _encoded(tensor_map, address, (length, lines), (pitch,))
    return _encoded(tensor_map, address, (length, lines, count), (pitch, apart if count > 1 else 0))


@lru_cache(KEPT)
def _encoded(tensor_map: TensorMap, address: int, extents: tuple[int, ...], steps: tuple[int, ...]) -> Words:
    """By extents from the fast axis on, and how many elements lie between two lines, and two matrices."""
    room = np.zeros(WORDS + ALIGNMENT // 8, np.uint64)
    first = -room.ctypes.data % ALIGNMENT // 8
    words = room[first : first + WORDS]
    high, wide = tensor_map.box
    size, rank = tensor_map.dtype.size, len(extents)
    code = driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(words.ctypes.data),
        ctypes.c_int(TYPES[tensor_map.dtype.name]),
        ctypes.c_uint(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*extents),
        (ctypes.c_uint64 * (rank - 1))(*(step * size for step in steps)),
        (ctypes.c_uint * rank)(*(wide, high, 1)[:rank]),
        (ctypes.c_uint * rank)(*(1,) * rank),
        ctypes.c_int(_NONE),
        ctypes.c_int(SWIZZLES[tensor_map.swizzle]),
        ctypes.c_int(_FETCHED),
        ctypes.c_int(_NONE),
    )
    if code:
        what, apart = " x ".join(map(str, reversed(extents))), " and ".join(map(str, steps))
        raise DeviceError(
            f"CUDA makes no map of {tensor_map.operand}, {what} elements, lines (and matrices) {apart} apart (CUresult "
            f"{code}). If all of them begin on multiples of 16 bytes, please report it"
        )
    words.flags.writeable = False
    return words
