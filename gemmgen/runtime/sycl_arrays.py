"""Arrays in SYCL's unified shared memory (USM), by `__sycl_usm_array_interface__`. Never copied."""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import cast
from weakref import finalize

import numpy as np

from gemmgen.errors import SpecError
from gemmgen.records import dataclass
from gemmgen.runtime.arrays import check_kinds
from gemmgen.runtime.cache import once
from gemmgen.runtime.calls import Factors, Key, kind_of
from gemmgen.runtime.sycl_devices import SyclDeviceInfo, sycl_devices
from gemmgen.runtime.sycl_library import helper
from gemmgen.runtime.views import DeviceMatrix, View, stored_shape

INTERFACE = "__sycl_usm_array_interface__"
#: The name of a capsule with a `sycl::queue *`.
QUEUE_CAPSULE = b"SyclQueueRef"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class SyclQueue:
    """A SYCL queue that measures time; `handle` is the helper's. Memory allocated by it keeps it alive."""

    handle: int
    info: SyclDeviceInfo


def own_queue(info: SyclDeviceInfo) -> SyclQueue:
    """A queue in the default context of the device's platform; one for each device, never released."""
    return SyclQueue(_own_handle(info.number), info)


@once
def _own_handle(device: int) -> int:
    return helper().queue(device)


class UsmArray:
    """A matrix, or a batch of them, in shared USM: the device works in it, and `numpy.asarray(x)` is a view of it.

    Args:
        view: how it lies, without other gaps than the padding of its lines.

    Attributes:
        shape: rows and columns, after the number of matrices of a batch.
        dtype: NumPy's.
        address: of the first element.
    """

    def __init__(self, queue: SyclQueue, view: View) -> None:
        self.shape, self.queue, self.dtype = view.shape, queue, view.dtype
        line = view.ld * view.item
        lines = (line, view.item) if view.order == "row" else (view.item, line)
        self.strides: tuple[int, ...] = lines if view.count is None else (view.slow * line, *lines)
        self.address = helper().allocate(queue.handle, max(1, prod(stored_shape(view))) * view.item)
        self._finalizer = finalize(self, _free, queue, self.address)

    def release(self) -> None:
        """Free the memory now, before the object is deleted."""
        self._finalizer()

    @property
    def is_released(self) -> bool:
        """Whether the memory is free."""
        return not self._finalizer.alive

    @property
    def __array_interface__(self) -> dict[str, object]:
        place = (self.address, False)
        return {"version": 3, "shape": self.shape, "strides": self.strides, "typestr": self.dtype.str, "data": place}

    @property
    def __sycl_usm_array_interface__(self) -> dict[str, object]:
        strides = tuple(step // self.dtype.itemsize for step in self.strides)
        return {**self.__array_interface__, "version": 1, "strides": strides, "offset": 0, "syclobj": None}


def _free(queue: SyclQueue, address: int) -> None:
    helper().free(queue.handle, address)


def usm_key(
    how: Hashable, a: UsmArray, b: UsmArray, c: UsmArray | None, factors: Factors, operands: Mapping[str, UsmArray]
) -> Key | None:
    """The key of a call (`KeyOf`); None for memory that is free."""
    found: list[object] = [how, kind_of(factors), c is None, *operands]
    places: list[int] = []
    for x in (a, b, *(() if c is None else (c,)), *operands.values()):
        if type(x) is not UsmArray or x.is_released:
            return None
        found += (x.shape, x.strides, x.dtype, x.queue.handle)
        places.append(x.address)
    at_a, at_b, at_c, *more = places if c is not None else (*places[:2], 0, *places[2:])
    return tuple(found), (at_a, at_b, at_c), tuple(more)


def is_usm(value: object) -> bool:
    """Whether `value` offers `__sycl_usm_array_interface__`."""
    return hasattr(type(value), INTERFACE) or hasattr(value, INTERFACE)


def as_matrices(values: Mapping[str, object], problems: list[str]) -> dict[str, object]:
    """Each value in USM as a `DeviceMatrix`. Problems with kinds of arrays are added to `problems`."""
    wrapped = {name: _matrix(name, v, problems) if is_usm(v) else v for name, v in values.items()}
    kinds = {name: "USM" if is_usm(v) else "NumPy's" for name, v in values.items() if v is not None}
    if len(set(kinds.values())) > 1 and all(is_usm(v) or isinstance(v, np.ndarray | None) for v in values.values()):
        listed = ", ".join(f"{name} is {kind}" for name, kind in kinds.items())
        problems.append(
            f"arrays of two kinds are mixed ({listed}): copy USM by np.array(x), or NumPy's into kernel.empty(shape)"
        )
    elif "USM" not in kinds.values():
        problems += check_kinds(values)
    else:
        problems += [
            f"{name} is of type {type(v).__name__}, neither NumPy's nor in USM: pass np.asarray({name}, np.float32)"
            for name, v in values.items()
            if v is not None and not is_usm(v) and not isinstance(v, np.ndarray)
        ]
    return wrapped


def _matrix(name: str, value: object, problems: list[str]) -> object:
    try:
        interface = cast("Mapping[str, object]", getattr(value, INTERFACE))
        shape = tuple(int(x) for x in cast("Sequence[int]", interface["shape"]))
        known = getattr(value, "dtype", None)  # which says more of bfloat16 than the protocol can
        dtype = known if isinstance(known, np.dtype) else np.dtype(cast("str", interface["typestr"]))
        pointer, readonly = cast("tuple[int, bool]", interface["data"])
        offset = int(cast("int", interface.get("offset", 0)))
        steps = cast("Sequence[int] | None", interface.get("strides"))
    except Exception as error:  # noqa: BLE001  (whatever the array's own library says)
        problems.append(f"{name} ({type(value).__name__}) does not give its USM away: {error}")
        return value
    if steps is None:  # packed by rows
        steps = [int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape))]
    strides = tuple(int(step) * dtype.itemsize for step in steps)
    address = int(pointer) + offset * dtype.itemsize
    if readonly and name in ("c", "out"):
        problems.append(f"{name} is read-only: pass a writable array, or leave it out to have it allocated")
    return DeviceMatrix(shape, strides, dtype, address, 0, "other", bool(readonly), value)


@contextmanager
def queue_of(matrices: Mapping[str, DeviceMatrix], own: SyclQueue) -> Iterator[SyclQueue]:
    """Context with a queue to whose context all matrices belong: the kernel's own, or a new queue in the context of the
    arrays' library.

    Raises: SpecError for addresses that are not in USM there.
    """
    if not _strangers(matrices, own):
        yield own
        return
    # This list keeps the queues' capsules alive.
    capsules = [c for c in (_capsule(matrix.array) for matrix in matrices.values()) if c is not None]
    if not capsules:
        raise SpecError(_not_usm(_strangers(matrices, own), own))
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    handle = helper().queue_beside(int(get(capsules[0], QUEUE_CAPSULE)))
    try:
        beside = SyclQueue(handle, sycl_devices()[helper().device_of(handle)])
    except BaseException:
        helper().free_queue(handle)
        raise
    finalize(beside, helper().free_queue, handle)
    if strangers := _strangers(matrices, beside):
        raise SpecError(_not_usm(strangers, beside))
    yield beside


def _strangers(matrices: Mapping[str, DeviceMatrix], queue: SyclQueue) -> list[str]:
    return [name for name, matrix in matrices.items() if not helper().is_usm(queue.handle, matrix.pointer)]


def _not_usm(names: list[str], queue: SyclQueue) -> list[str]:
    return [
        f"{name} is not in USM that a queue on {queue.info.name} reaches: allocate it by kernel.empty(shape), or "
        f"on that device's default queue, or pass a copy of it, np.array({name})"
        for name in names
    ]


def _capsule(array: object) -> object:
    """The capsule with the `sycl::queue *` of an array, if it has one."""
    owner = cast("Mapping[str, object]", getattr(array, INTERFACE)).get("syclobj")
    owner = getattr(owner, "sycl_queue", owner)
    make = getattr(owner, "_get_capsule", None)
    capsule = make() if callable(make) else owner
    check = ctypes.pythonapi.PyCapsule_IsValid
    check.argtypes = (ctypes.py_object, ctypes.c_char_p)
    return capsule if check(capsule, QUEUE_CAPSULE) else None
