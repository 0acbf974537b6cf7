"""The SYCL runtime that pip installed, and the helper that calls it: built once, cached, loaded by ctypes.

Two properties of the wheels matter (2026.2, seen by `UR_LOG_LOADER`):

- `libsycl.so` finds OpenCL devices through the wheel's `libOpenCL.so.1`, which is linked to `libsvml.so` and others
  without a path to them. So they are loaded here first, each by its own path; then the linker knows their names.
  Without this, OpenCL devices are found only if the Level Zero adapter has loaded these libraries before, so not with
  `ONEAPI_DEVICE_SELECTOR=opencl:cpu`.
- That loader is Khronos' and reads `OCL_ICD_FILENAMES` (one or several libraries, in addition to those of
  /etc/OpenCL/vendors) when it is first used. The variable names the environment's CPU runtime during that call only.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from importlib.resources import files
from io import FileIO
from pathlib import Path

from gemmgen.errors import DeviceError
from gemmgen.runtime import icd
from gemmgen.runtime.cache import DiskCache, digest, in_memory, loadable, once

#: Installs the runtime, the kernel compiler and a CPU device.
INSTALL = 'pip install "gemmgen[sycl]"'
DISTRIBUTION, CPU_DISTRIBUTION = "intel-sycl-rt", "intel-opencl-rt"
ICDS = "OCL_ICD_FILENAMES"
#: Libraries in the order of their dependencies. Missing ones are left to the loader.
LIBRARIES = ("libintlc.so.5", "libirng.so", "libimf.so", "libsvml.so", "libOpenCL.so.1", "libsycl.so")
#: The helper only forwards calls. Optimising it would take longer than it saves.
FLAGS = ("-std=c++17", "-O0", "-shared", "-fPIC")

_lock = threading.Lock()
_cache = DiskCache("sycl")


@once
def library() -> Path:
    """`libsycl.so` of the running environment. Raises: DeviceError with the command that installs it."""
    if sys.platform != "linux":
        raise DeviceError(f"SYCL kernels are run from Python on Linux only, and this is {sys.platform}: use opencl")
    candidates = [Path(sys.prefix, "lib", "libsycl.so")]
    try:
        listed = metadata.files(DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:
        listed = ()
    candidates += [Path(str(f.locate())) for f in listed if f.name == "libsycl.so"]
    found = next((path.resolve() for path in candidates if path.is_file()), None)
    if found is None:
        raise DeviceError(f"no SYCL runtime in this environment ({sys.prefix}): {INSTALL}")
    return found


def version() -> str:
    """The versions of the SYCL runtime and of the CPU runtime, on which compiled kernels depend."""
    parts = []
    for name in (DISTRIBUTION, CPU_DISTRIBUTION):
        try:
            parts.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            parts.append(f"{name} none")
    return ", ".join([*parts, str(library())])


# --- the helper -----------------------------------------------------------------------------------


def helper_code() -> bytes:
    """The compiled helper, from the cache or made now.

    Raises: DeviceError if there is no runtime or no g++, or if g++ refuses.
    """
    source = files("gemmgen.runtime").joinpath("sycl_helper.cpp").read_bytes()
    made_of = source, version(), " ".join(FLAGS)
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    # Without a compiler, any other's will do.
    question = digest(*made_of, _compiler_version(compiler) if compiler else "")
    kept = _cache.read("helper", question)
    if kept is not None:
        return kept
    if compiler is None:
        raise DeviceError(
            "g++ is not on PATH, and gemmgen's helper for SYCL must be compiled once: apt-get install g++ "
            "(or name another compiler by CXX)"
        )
    made = _compiled(compiler, source)
    for asked in (question, digest(*made_of, "")):
        _cache.write("helper", asked, made)
    return made


def _compiler_version(compiler: str) -> str:
    result = subprocess.run([compiler, "--version"], check=False, capture_output=True, text=True)
    return f"{compiler} {result.stdout}"


def _compiled(compiler: str, source: bytes) -> bytes:
    runtime = library()
    header = runtime.parent.parent / "include" / "sycl" / "sycl.hpp"
    if not header.is_file():
        raise DeviceError(f"the SYCL runtime has no headers ({header} is missing): {INSTALL}")
    try:
        with tempfile.TemporaryDirectory(prefix="gemmgen_") as scratch:
            made, file = Path(scratch, "helper.so"), Path(scratch, "sycl_helper.cpp")
            file.write_bytes(source)
            include = ["-isystem", str(header.parent.parent)]
            command = [compiler, *FLAGS, *include, str(file), str(runtime), "-o", str(made)]
            result = subprocess.run(command, check=False, capture_output=True, text=True)
            if result.returncode:
                log = "\n".join(result.stderr.splitlines()[:20])
                raise DeviceError(f"{compiler} does not compile gemmgen's helper for SYCL; it says:\n{log}")
            return made.read_bytes()
    except OSError as error:
        raise DeviceError(
            f"gemmgen's helper for SYCL can't be compiled ({error.strerror or error}): make room, or name another "
            "folder for temporary files by TMPDIR"
        ) from error


# --- calls ----------------------------------------------------------------------------------------


class Argument(ctypes.Structure):
    """One argument of a kernel, as the helper takes it."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("integer", ctypes.c_int64),
        ("number", ctypes.c_double),
        ("imaginary", ctypes.c_double),
        ("address", ctypes.c_void_p),
    )


class Helper:
    """The helper's functions. Handles are addresses. Failures are DeviceErrors with the runtime's message.

    Attributes:
        file: the helper's code, open as long as it is loaded, for processes that this one starts.
    """

    def __init__(self, file: FileIO) -> None:
        for name in LIBRARIES:
            if (own := library().parent / name).is_file():
                ctypes.CDLL(str(own))
        self.file = file
        self._library = ctypes.CDLL(loadable(file))
        for name in ("text", "content", "queue", "queue_beside", "kernels", "allocate"):
            getattr(self._library, f"gemmgen_{name}").restype = ctypes.c_void_p

    def text(self) -> str:
        """The message of this thread's last call."""
        address = int(self._library.gemmgen_text())
        return ctypes.string_at(address).decode(errors="replace").strip()

    def devices(self) -> list[list[str]]:
        """The fields of each device."""
        with _lock, _cpu_visible():
            if self._library.gemmgen_devices():
                chosen = os.environ.get("ONEAPI_DEVICE_SELECTOR")
                remedy = (
                    f"; ONEAPI_DEVICE_SELECTOR is {chosen!r}: unset it, or name one like opencl:cpu" if chosen else ""
                )
                raise DeviceError(f"SYCL shows no devices: {self.text()}{remedy}")
        return [line.split("\t") for line in self.text().splitlines()]

    def compile(
        self, device: int, source: str, name: str, as_object: bool = False, options: Sequence[str] = ()
    ) -> tuple[bytes | None, str]:
        """SYCLBIN (with native code; as an object with SPIR-V), or None; and the compiler's log."""
        texts = source.encode(), name.encode()
        listed = "".join(f"{option}\n" for option in options).encode()
        if self._library.gemmgen_compile(ctypes.c_size_t(device), *texts, int(as_object), listed):
            return None, self.text()
        log, size = self.text(), ctypes.c_size_t()
        address = int(self._library.gemmgen_content(ctypes.byref(size)))
        return ctypes.string_at(address, size.value), log

    def queue(self, device: int) -> int:
        """A queue on a device."""
        return self._handle(self._library.gemmgen_queue(ctypes.c_size_t(device)), "no queue")

    def queue_beside(self, other: int) -> int:
        """A new queue in the context of another queue."""
        return self._handle(self._library.gemmgen_queue_beside(ctypes.c_void_p(other)), "no queue")

    def finish(self, queue: int) -> None:
        """Wait for all queued work. Errors are ignored."""
        self._library.gemmgen_finish(ctypes.c_void_p(queue))

    def free_queue(self, queue: int) -> None:
        """Release a queue."""
        self._library.gemmgen_free_queue(ctypes.c_void_p(queue))

    def free_kernels(self, kernels: int) -> None:
        """Release kernels."""
        self._library.gemmgen_free_kernels(ctypes.c_void_p(kernels))

    def device_of(self, queue: int) -> int:
        """The number of a queue's device."""
        number = ctypes.c_size_t()
        if self._library.gemmgen_device_of(ctypes.c_void_p(queue), ctypes.byref(number)):
            raise DeviceError(f"the arrays' device can't be used: {self.text()}")
        return number.value

    def kernels(self, queue: int, content: bytes, names: Sequence[str]) -> int | None:
        """The kernels of a SYCLBIN, or None. `text` has the reason."""
        size, listed = ctypes.c_size_t(len(content)), "".join(f"{name}\n" for name in names).encode()
        handle = self._library.gemmgen_kernels(ctypes.c_void_p(queue), content, size, listed)
        return None if handle is None else int(handle)

    def allocate(self, queue: int, size: int) -> int:
        """Allocate shared USM; `size` in bytes."""
        memory = self._library.gemmgen_allocate(ctypes.c_void_p(queue), ctypes.c_size_t(size))
        return self._handle(memory, f"{size:,} B of USM can't be had; use smaller matrices")

    def free(self, queue: int, memory: int) -> None:
        """Free shared USM."""
        self._library.gemmgen_free(ctypes.c_void_p(queue), ctypes.c_void_p(memory))

    def is_usm(self, queue: int, address: int) -> bool:
        """Whether an address is in USM of the queue's context."""
        return bool(self._library.gemmgen_usm_type(ctypes.c_void_p(queue), ctypes.c_void_p(address)))

    def launch(
        self,
        queue: int,
        kernels: int,
        number: int,
        arguments: ctypes.Array[Argument],
        groups: ctypes.Array[ctypes.c_size_t],
        group: ctypes.Array[ctypes.c_size_t],
    ) -> int:
        """Run one of the kernels and wait for it. Returns the device time in nanoseconds.

        Args:
            groups: three, along (layers, rows, columns); 0 layers for a kernel of two dimensions.
            group: two, along (rows, columns).
        """
        taken = ctypes.c_uint64()
        where = ctypes.c_void_p(queue), ctypes.c_void_p(kernels), ctypes.c_size_t(number)
        if self._library.gemmgen_launch(*where, arguments, len(arguments), groups, group, ctypes.byref(taken)):
            raise DeviceError(f"the kernel failed: {self.text()}")
        return taken.value

    def _handle(self, address: int | None, failure: str) -> int:
        if not address:
            raise DeviceError(f"{failure}: {self.text()}")
        return int(address)


@contextmanager
def _cpu_visible() -> Iterator[None]:
    """Context in which SYCL's first use of OpenCL finds the environment's own CPU runtime as well."""
    own = icd.intel_cpu_library()
    known = any(Path(name).name.startswith(icd.LIBRARY) for name in icd.vendor_files().values())
    if os.environ.get(ICDS) or own is None or known:
        yield
        return
    os.environ[ICDS] = str(own)
    try:
        yield
    finally:
        del os.environ[ICDS]


@once
def helper() -> Helper:
    """The helper, loaded. Raises: DeviceError."""
    return started(in_memory(helper_code(), "gemmgen_sycl_helper"))


def started(code: FileIO) -> Helper:
    """The helper, loaded from a file, after it has enumerated the devices. Raises: DeviceError."""
    loaded = Helper(code)
    loaded.devices()  # in the environment that shows them all
    return loaded
