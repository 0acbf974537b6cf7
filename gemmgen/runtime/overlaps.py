"""Whether two arrays share an element, of NumPy's, pyopencl's and those in a GPU's memory alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from gemmgen.runtime.cuda_arrays import GpuMatrix


class ArrayLike(Protocol):
    """What NumPy arrays and pyopencl arrays have in common."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[np.generic]: ...


class _DeviceArray(ArrayLike, Protocol):
    """What tells where a pyopencl array lies."""

    @property
    def offset(self) -> int: ...
    @property
    def base_data(self) -> object: ...


def meets_itself(array: ArrayLike) -> bool:
    """Whether two elements of a batch may be one: unless each axis steps over all that shorter steps reach."""
    if 0 in array.shape:
        return False
    reach = array.dtype.itemsize
    for step, extent in sorted((abs(s), e) for s, e in zip(array.strides, array.shape, strict=True) if e > 1):
        if step < reach and len(array.shape) > 2:
            return True
        reach += (extent - 1) * step
    return False


def overlap(x: ArrayLike, y: ArrayLike) -> bool:
    """Whether two arrays share an element; says yes where finding out would take long."""
    (memory_x, outline_x), (memory_y, outline_y) = outline(x), outline(y)
    if memory_x != memory_y or not np.may_share_memory(outline_x, outline_y):
        return False
    try:
        # The stub allows only two of the limits that NumPy takes.
        return bool(np.shares_memory(outline_x, outline_y, max_work=cast("Literal[0]", 10_000)))
    except (RuntimeError, ValueError, OverflowError):
        return True


@dataclass(frozen=True, slots=True)
class _Outline:
    """Lets NumPy reason about a device array's elements as if they lay at an address; nothing is ever read there."""

    __array_interface__: dict[str, object]


def outline(array: ArrayLike) -> tuple[int, npt.NDArray[np.generic]]:
    """A number for the memory that an array lies in (0 for the host's), and its place there as a NumPy array."""
    if isinstance(array, np.ndarray):
        return 0, array
    if isinstance(array, GpuMatrix):
        memory, address = -1 - array.device, array.pointer
    else:
        device_array = cast(_DeviceArray, array)
        memory, address = getattr(device_array.base_data, "int_ptr", id(array)), (1 << 30) + device_array.offset
    place = {
        "version": 3,
        "data": (address, True),
        "shape": array.shape,
        "strides": array.strides,
        "typestr": f"|V{array.dtype.itemsize}",  # NumPy's word for others' types is not always one that it takes
    }
    return memory, np.asarray(_Outline(place))
