"""Libraries of the host, each measured by a process of its own: where it is found, what it runs, how it is called.

`python -m gemmgen.bench.libraries PEER M N K BATCH DTYPE SEED [DEVICE]` is that process. It says how far its result is
off, and then for each line in the seconds of a product; what goes wrong it says after the word `error`.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from ctypes.util import find_library
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from gemmgen.bench.records import HOST_WARM_UP, Accuracy, Size, launches
from gemmgen.errors import DeviceError, UserError, attempt
from gemmgen.oracle import answer
from gemmgen.runtime import require_cupy, require_pyopencl
from gemmgen.spec import GemmSpec, parse_dtype

if TYPE_CHECKING:
    import pyopencl as cl

Matrix = NDArray[np.floating]
#: A result of more flops than this is checked against float64 on some rows only.
WHOLE_FLOPS = 2**33
SOME_ROWS = 64
#: What brings a library that is missing.
INSTALL_MKL = 'pip install "gemmgen[mkl]"'
INSTALL_CLBLAST = "apt-get install libclblast-dev"
#: cblas.h and clblast_c.h: by rows, not transposed.
ROW_MAJOR, AS_IT_IS = 101, 111
#: Products of CLBlast that wait on the device at once: enough to keep it busy, and each may hold buffers.
IN_FLIGHT = 16
#: Seconds until the next contender's turn: OpenMP's threads turn in circles for 0.2 s after their work.
REST = 0.25
#: Kernels of OpenBLAS that use AVX-512.
WIDE_CORES = frozenset({"SkylakeX", "Cooperlake", "SapphireRapids"})
#: Symbols of OpenBLAS, as its builds name them: plain, with 64-bit integers, and scipy-openblas' of NumPy's wheels.
_SPELLINGS = ("openblas_{}", "openblas_{}64_", "scipy_openblas_{}", "scipy_openblas_{}64_")


# --- matrices -------------------------------------------------------------------------------------


def random_matrices(size: Size, dtype: str, seed: int) -> tuple[Matrix, Matrix]:
    """A and B, normal numbers."""
    rng = np.random.default_rng(seed)
    shapes = size.shape(size.m, size.k), size.shape(size.k, size.n)
    drawn = np.float64 if dtype == "float64" else np.float32
    a, b = (cast("Matrix", rng.standard_normal(shape, dtype=drawn).astype(dtype)) for shape in shapes)
    return a, b


def accuracy(a: Matrix, b: Matrix, c: Matrix) -> Accuracy:
    """Of a result, on all rows or on some of them, the last among them; every element must be finite."""
    rows = np.arange(a.shape[-2])
    if 2 * a.size * b.shape[-1] > WHOLE_FLOPS and len(rows) > SOME_ROWS:
        rows = np.unique(np.append(np.random.default_rng(0).choice(rows, SOME_ROWS - 1, replace=False), rows[-1]))
    spec = GemmSpec(dtype=parse_dtype(str(a.dtype)))
    right = answer(spec, (a[..., rows, :], b, None))
    some = c[..., rows, :]
    return Accuracy(
        float(np.linalg.norm(right.distance(some).ravel()) / np.linalg.norm(right.value.ravel())),
        float(right.parts(some).max()) if np.isfinite(c).all() else float("inf"),
    )


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
    """Raises: DeviceError with every peer that is missing, and the command that installs it."""
    checks: dict[str, Callable[[], object]] = {"mkl": find_mkl, "clblast": find_clblast}
    checks |= dict.fromkeys(("cublas", "cublas_tf32"), require_cupy)
    problems: list[str] = []
    for name in peers:
        attempt(problems, checks.get(name, lambda: None))
    if problems:
        raise DeviceError(problems)


def load(path: str, install: str) -> ctypes.CDLL:
    """A shared library. Raises: DeviceError where it is broken."""
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise DeviceError(f"{path} can't be loaded ({error}): install it again ({install})") from error


# --- which kernels they run: a library may leave a processor's vectors unused -----------------------


def openblas() -> ctypes.CDLL | None:
    """The OpenBLAS that this process has loaded, which is NumPy's; None where NumPy has another library."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"/\S*openblas\S*\.so\S*", maps)
    return ctypes.CDLL(found[0]) if found else None


def _says(library: ctypes.CDLL, name: str, kind: type[ctypes.c_char_p | ctypes.c_int]) -> object:
    """What a function without arguments returns; None where there is none of that name."""
    for spelling in _SPELLINGS:
        function = getattr(library, spelling.format(name), None)
        if function is not None:
            function.restype = kind
            return function()
    return None


def openblas_core() -> str | None:
    """The processor whose kernels NumPy's OpenBLAS has chosen, such as `Haswell`; None where that is not known."""
    library = openblas()
    name = _says(library, "get_corename", ctypes.c_char_p) if library else None
    return name.decode() if isinstance(name, bytes) else None


def numpy_build() -> str:
    """NumPy's version, and of its OpenBLAS version, kernels and threads."""
    library, core = openblas(), openblas_core()
    if library is None or core is None:
        return np.__version__
    config, threads = _says(library, "get_config", ctypes.c_char_p), _says(library, "get_num_threads", ctypes.c_int)
    version = re.search(rb"OpenBLAS (\S+)", config) if isinstance(config, bytes) else None
    number = f" {version[1].decode()}" if version else ""
    return f"{np.__version__}, OpenBLAS{number}, kernels for {core}, {threads} threads"


class _MklVersion(ctypes.Structure):
    """`MKLVersion` of mkl_types.h."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("major", "minor", "update")),
        *((name, ctypes.c_char_p) for name in ("status", "build", "processor", "platform")),
    )


def mkl_processors() -> str:
    """The processors that MKL has chosen its kernels for, as it names them. Raises: DeviceError."""
    version = _MklVersion()
    load(str(find_mkl()), INSTALL_MKL).MKL_Get_Version(ctypes.byref(version))
    name: bytes = version.processor or b""
    return name.decode()


def has_avx512() -> bool:
    """Whether the processor has it, by Linux' word."""
    try:
        return " avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


def about(peers: Iterable[str]) -> dict[str, object]:
    """Which libraries those are."""
    known: dict[str, Callable[[], str]] = {
        "numpy": numpy_build,
        "mkl": lambda: f"{metadata.version('mkl')}, kernels for {mkl_processors()}",
        "clblast": lambda: str(Path(find_clblast())),
    }
    return {name: known[name]() for name in peers if name in known}


def cautions(peers: Iterable[str]) -> list[str]:
    """What to know of these peers on this machine before a ratio to them is believed."""
    there, said = set(peers), []
    if not has_avx512():
        return []
    if "numpy" in there and (core := openblas_core()) is not None and core not in WIDE_CORES:
        said.append(
            f"NumPy's OpenBLAS runs its kernels for {core}, though this processor has AVX-512: its figures are about "
            "half of what it can do; set OPENBLAS_CORETYPE=SKYLAKEX to measure that"
        )
    if "mkl" in there and "AVX-512" not in (processors := mkl_processors()):
        said.append(
            f"MKL runs its kernels for {processors}, though this processor has AVX-512, and has no documented way to "
            "be told otherwise: a ratio to it says little here"
        )
    return said


# --- how they are called --------------------------------------------------------------------------


class Product(Protocol):
    """C = A @ B by a library."""

    def run(self, count: int) -> float:
        """Compute it so often; the seconds of one."""

    def result(self) -> Matrix: ...


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

        from gemmgen.runtime.opencl_devices import pick, resolve
        from gemmgen.runtime.opencl_driver import translated

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
        return int(last.profile.end - first.profile.end) * 1e-9 / count

    def result(self) -> Matrix:
        import pyopencl as cl

        cl.enqueue_copy(self._queue, self._c, self._buffers[2])
        return self._c

    def _once(self) -> cl.Event:
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
        return cl.Event.from_int_ptr(event.value, retain=False)


# --- the process ----------------------------------------------------------------------------------


class PeerProcess:
    """A library in another process, whose threads then disturb no one's.

    Args:
        device: the number of the OpenCL device, for a library that needs one.

    Raises: DeviceError.
    """

    def __init__(self, name: str, size: Size, dtype: str, seed: int, device: int | None = None) -> None:
        self.name, self.variant = name, ""
        what = [name, size.m, size.n, size.k, size.batch, dtype, seed, *([] if device is None else [device])]
        command = [sys.executable, "-m", "gemmgen.bench.libraries", *map(str, what)]
        pipe = subprocess.PIPE
        # In a process group of its own, so that the terminal sends its Ctrl-C to this process alone.
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, process_group=0)
        try:
            error, worst = self._told()
        except BaseException:
            self.close()
            raise
        self.accuracy = Accuracy(error, worst)

    def block(self) -> float:
        assert self._process.stdin is not None
        with suppress(OSError):  # of a process that has ended nothing is read, either
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return self._told()[0]

    def close(self) -> None:
        if self._process.stdin is not None:
            with suppress(OSError):  # what it was still to be told, where it has ended early
                self._process.stdin.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.terminate()  # it may be amid a product whose time is no longer wanted
        self._process.wait()

    def _told(self) -> tuple[float, ...]:
        """The numbers of its next line. Raises: DeviceError with what went wrong."""
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if answer.startswith("error "):
            raise DeviceError(f"{self.name}: {answer.removeprefix('error ').strip()}")
        if not answer:
            raise DeviceError(
                f"the process that measures {self.name} ended early: is there memory for matrices of this size?"
            )
        return tuple(map(float, answer.split()))


def main() -> None:
    """Serve until standard input ends, or something goes wrong."""
    try:
        _serve(*sys.argv[1:])
    except UserError as error:
        _say("error " + "; ".join(error.problems))


def _serve(peer: str, m: str, n: str, k: str, batch: str, dtype: str, seed: str, device: str | None = None) -> None:
    a, b = random_matrices(Size(int(m), int(n), int(k), int(batch)), dtype, int(seed))
    product = product_of(peer, a, b, None if device is None else int(device))
    product.run(1)
    checked = accuracy(a, b, product.result())
    _say(f"{checked.error!r} {checked.worst!r}")
    count = launches(product.run(1))
    for _ in sys.stdin:
        product.run(HOST_WARM_UP * count)
        seconds = product.run(count)
        time.sleep(REST)
        _say(repr(seconds))


def _say(answer: str) -> None:
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
