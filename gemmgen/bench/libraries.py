"""Libraries that a process of their own measures (`worker.py`): where each is found, and how it is called."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable
from ctypes.util import find_library
from importlib import metadata
from pathlib import Path
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from gemmgen.bench import builds
from gemmgen.bench.records import Size
from gemmgen.errors import DeviceError
from gemmgen.runtime import require_cupy, require_pyopencl

Matrix = NDArray[np.floating]

#: What brings a library that is missing.
INSTALL_MKL = 'pip install "gemmgen[mkl]"'
INSTALL_CLBLAST = "apt-get install libclblast-dev"
#: cblas.h and clblast_c.h: by rows, not transposed.
ROW_MAJOR, AS_IT_IS = 101, 111
#: Products of CLBlast that wait on the device at once: enough to keep it busy, and each may hold buffers.
IN_FLIGHT = 16


class Product(Protocol):
    """C = A @ B by a library."""

    def run(self, count: int) -> float:
        """Compute it so often; the seconds of one."""

    def result(self) -> Matrix: ...


# --- where they are -------------------------------------------------------------------------------


def find_mkl() -> Path:
    """The library that pip's `mkl` holds. Raises: DeviceError with the command that installs it."""
    try:
        files = metadata.files("mkl") or []
    except metadata.PackageNotFoundError:
        files = []
    found = [Path(str(file.locate())) for file in files if file.name.startswith("libmkl_rt.so")]
    there = next((path.resolve() for path in found if path.is_file()), None)
    if there is None:
        raise DeviceError(f"MKL is not installed, so it can't be measured: {INSTALL_MKL}, or leave mkl out of --vs")
    return there


def find_clblast() -> str:
    """CLBlast's shared library. Raises: DeviceError with the command that installs it."""
    require_pyopencl()
    name = find_library("clblast")
    if name is None:
        raise DeviceError(
            f"CLBlast is not installed, so it can't be measured: {INSTALL_CLBLAST}, or leave clblast out of --vs"
        )
    return name


def require(peers: Iterable[str]) -> None:
    """Raises: DeviceError with every peer that is missing, and the command that brings it."""
    checks: dict[str, Callable[[], object]] = {"mkl": find_mkl, "clblast": find_clblast}
    checks |= dict.fromkeys(("cublas", "cublas_tf32"), require_cupy)
    problems: list[str] = []
    for name in peers:
        try:
            checks.get(name, lambda: None)()
        except DeviceError as error:
            problems += error.problems
    if problems:
        raise DeviceError(problems)


def about(peers: Iterable[str]) -> dict[str, object]:
    """Which libraries those are."""
    known: dict[str, Callable[[], str]] = {
        "numpy": builds.numpy_build,
        "mkl": lambda: f"{metadata.version('mkl')}, kernels for {mkl_processors()}",
        "clblast": lambda: str(Path(find_clblast())),
    }
    return {name: known[name]() for name in peers if name in known}


def mkl_processors() -> str:
    """Whose kernels MKL runs. Raises: DeviceError."""
    return builds.mkl_processors(load(str(find_mkl()), INSTALL_MKL))


def cautions(peers: Iterable[str]) -> list[str]:
    """What to know of these peers on this machine before a ratio to them is believed."""
    return builds.cautions(peers, mkl_processors, builds.has_avx512(), builds.openblas_core())


def load(path: str, install: str) -> ctypes.CDLL:
    """A shared library. Raises: DeviceError where it is broken."""
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise DeviceError(f"{path} can't be loaded ({error}): install it again ({install})") from error


# --- how they are called --------------------------------------------------------------------------


def product_of(name: str, a: Matrix, b: Matrix, device: int | None) -> Product:
    """A product by a library.

    Args:
        device: the number of the OpenCL device, for a library that needs one.

    Raises: DeviceError.
    """
    if a.ndim > 2 and name != "numpy":
        raise DeviceError(f"{name} is measured on single products: leave it out of --vs for batches")
    if name == "clblast":
        return Clblast(a, b, device)
    c = np.full((*a.shape[:-1], b.shape[-1]), np.nan, a.dtype)
    return OnHost(_mkl(a, b, c) if name == "mkl" else lambda: np.matmul(a, b, out=c), c)


class OnHost:
    """A call that returns when C is there."""

    def __init__(self, call: Callable[[], object], c: Matrix) -> None:
        self._call, self._c = call, c

    def run(self, count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            self._call()
        return (time.perf_counter() - begin) / count

    def result(self) -> Matrix:
        return self._c


def _mkl(a: Matrix, b: Matrix, c: Matrix) -> Callable[[], object]:
    """`cblas_sgemm`, or `cblas_dgemm`, on these matrices."""
    whole, real, address = ctypes.c_int, _real(a), ctypes.c_void_p
    library = load(str(find_mkl()), INSTALL_MKL)
    gemm = library.cblas_dgemm if real is ctypes.c_double else library.cblas_sgemm
    gemm.argtypes = [*[whole] * 6, real, address, whole, address, whole, real, address, whole]
    gemm.restype = None
    (m, k), n = a.shape, b.shape[1]
    places = a.ctypes.data, b.ctypes.data, c.ctypes.data
    return lambda: gemm(
        *(ROW_MAJOR, AS_IT_IS, AS_IT_IS, m, n, k), *(1.0, places[0], k, places[1], n), *(0.0, places[2], n)
    )


def _real(a: Matrix) -> type[ctypes.c_float | ctypes.c_double]:
    """C's type of an element."""
    return ctypes.c_double if a.dtype == np.float64 else ctypes.c_float


class Clblast:
    """CLBlast on an OpenCL device, by the device's clock: from the end of one product to the end of another."""

    def __init__(self, a: Matrix, b: Matrix, device: int | None) -> None:
        import pyopencl as cl

        from gemmgen.runtime.devices import pick
        from gemmgen.runtime.programs import translated
        from gemmgen.runtime.queues import resolve

        self._size = Size(a.shape[0], b.shape[1], a.shape[1])
        self._queue = resolve(pick(device=device))
        library = load(find_clblast(), INSTALL_CLBLAST)
        flag, size, real, address = ctypes.c_int, ctypes.c_size_t, _real(a), ctypes.c_void_p
        self._gemm = library.CLBlastDgemm if real is ctypes.c_double else library.CLBlastSgemm
        handle = ctypes.POINTER(address)
        matrix = address, size, size
        flags_and_sizes = flag, flag, flag, size, size, size
        self._gemm.argtypes = [*flags_and_sizes, real, *matrix, *matrix, real, *matrix, handle, handle]
        c = np.full((self._size.m, self._size.n), np.nan, a.dtype)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        with translated(self._queue.device):
            self._buffers = [cl.Buffer(self._queue.context, flags, hostbuf=x) for x in (a, b, c)]
        self._c = c

    def run(self, count: int) -> float:
        # The event is that of the last of a product's kernels, so that one more product marks the beginning.
        first = last = self._once()
        waiting = [first]
        for _ in range(count):
            waiting.append(last := self._once())
            if len(waiting) > IN_FLIGHT:
                waiting.pop(0).wait()
        last.wait()
        return (last.profile.end - first.profile.end) * 1e-9 / count

    def result(self) -> Matrix:
        import pyopencl as cl

        cl.enqueue_copy(self._queue, self._c, self._buffers[2])
        return self._c

    def _once(self) -> _Event:
        import pyopencl as cl

        m, n, k = self._size.m, self._size.n, self._size.k
        a, b, c = (buffer.int_ptr for buffer in self._buffers)
        queue, event = ctypes.c_void_p(self._queue.int_ptr), ctypes.c_void_p()
        layout, operands = (ROW_MAJOR, AS_IT_IS, AS_IT_IS, m, n, k), (1.0, a, 0, k, b, 0, n, 0.0, c, 0, n)
        status = int(self._gemm(*layout, *operands, ctypes.byref(queue), ctypes.byref(event)))
        if status or event.value is None:
            raise DeviceError(
                f"CLBlast fails on {self._queue.device.name.strip()} with status {status} (CLBlastStatusCode in "
                "clblast_c.h): choose another device, or leave clblast out of --vs"
            )
        return cast("_Event", cl.Event.from_int_ptr(event.value, retain=False))


class _Profile(Protocol):
    @property
    def end(self) -> int: ...


class _Event(Protocol):
    """What is used of a `pyopencl.Event`."""

    @property
    def profile(self) -> _Profile: ...
    def wait(self) -> None: ...
