"""CUDA's driver by ctypes: GPUs, contexts, modules, launches, events, graphs and tensor maps.

Each GPU's primary context is used, as torch and CuPy do. Source: CUDA Driver API.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import finalize

from gemmgen.errors import DeviceError
from gemmgen.runtime.cache import once

#: `CUresult`: success, out of memory, no such GPU, and those of a thread without the right context.
OK, OUT_OF_MEMORY = 0, 2
NO_CONTEXT = frozenset({3, 201, 400, 709})
#: `CUdevice_attribute`.
THREADS, SHARED, CLOCK_RATE, MULTIPROCESSORS, MAJOR, MINOR, SHARED_OPTIN = 1, 8, 13, 16, 75, 76, 97
MEMORY_CLOCK, MEMORY_BITS, L2_BYTES = 36, 37, 38
#: `CUfunction_attribute`.
FUNCTION_THREADS, FUNCTION_SHARED, FUNCTION_LOCAL, FUNCTION_REGISTERS, FUNCTION_DYNAMIC = 0, 1, 3, 4, 8
#: `CU_STREAM_NON_BLOCKING`, `CU_EVENT_DISABLE_TIMING`, and `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
_NON_BLOCKING, _NO_TIMING, _ORDINAL = 1, 2, 9
#: `CU_STREAM_CAPTURE_MODE_GLOBAL`, `_THREAD_LOCAL` and `_RELAXED`.
_THREAD_LOCAL, _RELAXED = 1, 2
_NOTHING_THERE = "check nvidia-smi and CUDA_VISIBLE_DEVICES"


class LaunchAttribute(ctypes.Structure):
    """`CUlaunchAttribute`: the attribute's number, and 64 bytes for its value. An integer value is the first four."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


@once
def library() -> ctypes.CDLL:
    """The driver's library, initialised. Raises: DeviceError if there is none, or no GPU."""
    try:
        found = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(
            f"no GPU of CUDA can be reached, as there is no driver ({error}): install NVIDIA's, or {_NOTHING_THERE}"
        ) from error
    if code := found.cuInit(0):
        raise DeviceError(f"no GPU of CUDA can be reached (cuInit says {name_of(found, code)}): {_NOTHING_THERE}")
    found.cuTensorMapReplaceAddress.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    return found


def is_there() -> bool:
    """Whether there is a driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _forget() -> None:
    """After a fork: CUDA works in no child of a process that has initialised it, and a replay must say so."""
    global _forked  # noqa: PLW0603
    _forked = True


_forked = False
os.register_at_fork(after_in_child=_forget)


def name_of(found: ctypes.CDLL, code: int) -> str:
    """The name and the description of a `CUresult`."""
    texts = []
    for function in (found.cuGetErrorName, found.cuGetErrorString):
        text = ctypes.c_char_p()
        function(ctypes.c_int(code), ctypes.byref(text))
        texts.append((text.value or b"?").decode())
    return f"{texts[0]}: {texts[1]}"


def check(code: int, what: str = "") -> None:
    """Raises: DeviceError unless the code is success."""
    if code != OK:
        raise failure(code, what)


def failure(code: int, what: str = "") -> DeviceError:
    """The error for a code other than success."""
    said, doing = name_of(library(), code), f" ({what})" if what else ""
    if code == OUT_OF_MEMORY:
        return DeviceError(f"CUDA is out of memory ({said}{doing}): use smaller matrices, or free others")
    if _forked:
        return DeviceError(
            f"CUDA failed after a fork ({said}): start processes by multiprocessing's 'spawn', as CUDA works in no fork"
        )
    return DeviceError(f"CUDA failed: {said}{doing}. If the arrays are fine, please report it")


def driver_version() -> int:
    """The newest version of CUDA that the driver supports, such as 13000."""
    version = ctypes.c_int()
    check(library().cuDriverGetVersion(ctypes.byref(version)))
    return version.value


def device_count() -> int:
    """The number of GPUs. Raises: DeviceError if there is none."""
    count = ctypes.c_int()
    check(library().cuDeviceGetCount(ctypes.byref(count)))
    if not count.value:
        raise DeviceError(f"there is no GPU of CUDA: {_NOTHING_THERE}")
    return count.value


def device_attribute(number: int, attribute: int) -> int:
    """An attribute of a GPU; 0 if the driver does not know it."""
    value = ctypes.c_int()
    code = library().cuDeviceGetAttribute(ctypes.byref(value), ctypes.c_int(attribute), ctypes.c_int(number))
    return 0 if code else value.value


def device_name(number: int) -> str:
    """The name of a GPU."""
    text = ctypes.create_string_buffer(256)
    check(library().cuDeviceGetName(text, ctypes.c_int(256), ctypes.c_int(number)))
    return text.value.decode()


def device_memory(number: int) -> int:
    """The bytes of a GPU's memory."""
    size = ctypes.c_size_t()
    check(library().cuDeviceTotalMem_v2(ctypes.byref(size), ctypes.c_int(number)))
    return size.value


# --- contexts -------------------------------------------------------------------------------------


@once
def context(number: int) -> ctypes.c_void_p:
    """A GPU's primary context, kept for the life of the process. Raises: DeviceError."""
    found = ctypes.c_void_p()
    check(library().cuDevicePrimaryCtxRetain(ctypes.byref(found), ctypes.c_int(number)), f"GPU {number}")
    return found


def current_device() -> int:
    """The GPU of the thread's current context; 0 if it has none."""
    found, number = ctypes.c_void_p(), ctypes.c_int()
    check(library().cuCtxGetCurrent(ctypes.byref(found)))
    if not found.value:
        return 0
    check(library().cuCtxGetDevice(ctypes.byref(number)))
    return number.value


def enter(number: int) -> bool:
    """Make a GPU's context the thread's current one. Returns whether another one was; `leave` restores that. A thread
    without a context keeps the new one.
    """
    found, own = ctypes.c_void_p(), context(number)
    check(library().cuCtxGetCurrent(ctypes.byref(found)))
    if found.value == own.value:
        return False
    if not found.value:
        check(library().cuCtxSetCurrent(own))
        return False
    check(library().cuCtxPushCurrent_v2(own))
    return True


def leave() -> None:
    """Restore the context from before `enter`."""
    check(library().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())))


@contextmanager
def on_device(number: int) -> Iterator[None]:
    """Context with a GPU as the thread's current one, for the driver and for CUDA's runtime."""
    is_pushed = enter(number)
    try:
        yield
    finally:
        if is_pushed:
            leave()


def synchronize() -> None:
    """Wait for everything on the current GPU."""
    check(library().cuCtxSynchronize())


def pointer_device(pointer: int) -> int:
    """The GPU that an address belongs to. Raises: DeviceError for the host's memory."""
    number = ctypes.c_int()
    check(library().cuPointerGetAttribute(ctypes.byref(number), _ORDINAL, ctypes.c_uint64(pointer)), "an address")
    return number.value


# --- modules --------------------------------------------------------------------------------------


class Module:
    """Loaded code: a cubin, or PTX. It must be made with the GPU's context current, which it belongs to."""

    def __init__(self, code: bytes) -> None:
        self._handle = ctypes.c_void_p()
        with relaxed():
            check(library().cuModuleLoadData(ctypes.byref(self._handle), code), "loading a kernel")

    def function(self, name: str) -> ctypes.c_void_p:
        """A kernel of the module."""
        found = ctypes.c_void_p()
        with relaxed():
            check(library().cuModuleGetFunction(ctypes.byref(found), self._handle, name.encode()), name)
        return found


@contextmanager
def relaxed() -> Iterator[None]:
    """Context in which this thread may load code, though some stream captures a graph."""
    mode = ctypes.c_int(_RELAXED)
    check(library().cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)))
    try:
        yield
    finally:
        check(library().cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)))


def function_attribute(function: ctypes.c_void_p, attribute: int) -> int:
    """An attribute of a kernel."""
    value = ctypes.c_int()
    check(library().cuFuncGetAttribute(ctypes.byref(value), ctypes.c_int(attribute), function))
    return value.value


def allow_dynamic_shared(function: ctypes.c_void_p, size: int) -> None:
    """Allow a kernel so many bytes of dynamic shared memory."""
    check(library().cuFuncSetAttribute(function, ctypes.c_int(FUNCTION_DYNAMIC), ctypes.c_int(size)), "shared memory")


def blocks_at_once(function: ctypes.c_void_p, threads: int, shared_bytes: int, cores: int, cluster: int = 1) -> int:
    """How many blocks of a kernel the current GPU runs at once. With clusters some multiprocessors may stay empty,
    since a cluster must fit into one part of the chip (`cuOccupancyMaxActiveClusters`).
    """
    count = ctypes.c_int(0)
    if cluster > 1:
        sizes = (ctypes.c_uint * 3)(cluster, 1, 1), (ctypes.c_uint * 3)(threads, 1, 1)
        config = LaunchConfig(*sizes, shared_bytes, None, None, 0)
        check(library().cuOccupancyMaxActiveClusters(ctypes.byref(count), function, ctypes.byref(config)))
        return count.value * cluster
    asked = ctypes.c_int(threads), ctypes.c_size_t(shared_bytes)
    check(library().cuOccupancyMaxActiveBlocksPerMultiprocessor(ctypes.byref(count), function, *asked))
    return count.value * cores


# --- streams, events, graphs ----------------------------------------------------------------------


class Event:
    """An event of the current GPU. `ptr` is the `CUevent`."""

    def __init__(self, timing: bool = False) -> None:
        handle = ctypes.c_void_p()
        check(library().cuEventCreate(ctypes.byref(handle), ctypes.c_uint(0 if timing else _NO_TIMING)))
        self._handle = handle
        finalize(self, library().cuEventDestroy_v2, handle).atexit = False

    @property
    def ptr(self) -> int:
        """The `CUevent` as an integer."""
        return self._handle.value or 0

    def record(self, stream: int = 0) -> None:
        """Record it on a stream."""
        check(library().cuEventRecord(self._handle, ctypes.c_void_p(stream)))

    def synchronize(self) -> None:
        """Wait until it has happened."""
        check(library().cuEventSynchronize(self._handle))

    def seconds_since(self, begin: Event) -> float:
        """The seconds between two events that measure time."""
        milliseconds = ctypes.c_float()
        check(library().cuEventElapsedTime(ctypes.byref(milliseconds), begin._handle, self._handle))
        return milliseconds.value * 1e-3


class Stream:
    """A stream of the current GPU that waits for no other. `ptr` is the `CUstream`."""

    def __init__(self) -> None:
        handle = ctypes.c_void_p()
        check(library().cuStreamCreate(ctypes.byref(handle), ctypes.c_uint(_NON_BLOCKING)))
        self.ptr = handle.value or 0
        finalize(self, library().cuStreamDestroy_v2, handle).atexit = False


def capture_of(stream: int) -> int | None:
    """A number for the graph that a stream captures; None if it captures none."""
    status, number = ctypes.c_int(), ctypes.c_uint64()
    found = library()
    if code := found.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status)):
        check(code)
    if not status.value:
        return None
    # Its first three arguments are those of every version; the others may be null.
    code = found.cuStreamGetCaptureInfo_v2(
        ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(number), None, None, None
    )
    check(code)
    return number.value


class Graph:
    """What a function queues on a stream, as a graph to replay there."""

    def __init__(self, stream: int, queue: Callable[[], object]) -> None:
        found, graph, self._stream = library(), ctypes.c_void_p(), ctypes.c_void_p(stream)
        check(found.cuStreamBeginCapture_v2(self._stream, ctypes.c_int(_THREAD_LOCAL)))
        try:
            queue()
        finally:
            code = found.cuStreamEndCapture(self._stream, ctypes.byref(graph))
        check(code)
        self._handle = ctypes.c_void_p()
        code = found.cuGraphInstantiateWithFlags(ctypes.byref(self._handle), graph, ctypes.c_uint64(0))
        found.cuGraphDestroy(graph)
        check(code)
        finalize(self, found.cuGraphExecDestroy, self._handle).atexit = False

    def replay(self) -> None:
        """Queue it."""
        check(library().cuGraphLaunch(self._handle, self._stream))
