"""Make the OpenCL runtime that pip installed visible, in addition to the machine's other platforms.

The wheel `intel-opencl-rt` contains `libintelocl.so`. But its `.icd` file names a folder of the build machine, and
no loader looks for that file in a virtual environment. The loader in pyopencl's wheel (a fork of ocl-icd)
works as follows (pyopencl 2026.1.4, seen by `OCL_ICD_DEBUG=15`):

- it reads its environment at the first OpenCL call, not when it is imported or loaded, and only once;
- `OCL_ICD_VENDORS` may be a folder, which *replaces* /etc/OpenCL/vendors, or one library, which replaces everything;
- the `.icd` files in `pyopencl/.libs`, where pip's `pocl-binary-distribution` puts its own, are read as well as the
  folder: a folder never hides them, a single library does;
- `OCL_ICD_FILENAMES` is unknown to it (the Khronos loader supports both).

So during the first enumeration `OCL_ICD_VENDORS` names a temporary folder with a copy of each system `.icd`
and one more for the library of this environment. Afterwards nothing remains: no stale cache, no race between
processes, no variable that child processes inherit.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from gemmgen.errors import DeviceError
from gemmgen.runtime import INSTALL, require_pyopencl
from gemmgen.runtime.cache import once

if TYPE_CHECKING:
    import pyopencl

LIBRARY = "libintelocl.so"
DISTRIBUTION = "intel-opencl-rt"
VENDORS = "OCL_ICD_VENDORS"


def intel_cpu_library() -> Path | None:
    """The `libintelocl.so` of the running environment, or None. Nothing is imported or loaded to find it."""
    return next((path.resolve() for path in _candidates() if path.is_file()), None)


def _candidates() -> Iterator[Path]:
    """The folder in which pip puts it; then the wheel's list of files, which is slow to read."""
    yield Path(sys.prefix, "lib", LIBRARY)
    try:
        files = metadata.files(DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:
        return
    yield from (Path(str(f.locate())) for f in files if f.name == LIBRARY)


def vendor_files() -> dict[str, str]:
    """The `.icd` files of the system and of the environment that name a library which may exist: name -> content."""
    folders = [
        Path(os.environ.get("OPENCL_VENDOR_PATH") or "/etc/OpenCL/vendors"),
        Path(sys.prefix, "etc/OpenCL/vendors"),
    ]
    found: dict[str, str] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.icd")) if folder.is_dir() else ():
            try:
                library = path.read_text().strip()
            except (OSError, UnicodeDecodeError):
                continue
            # A bare name is searched for by the dynamic linker; a full path must exist (the wheel's own does not).
            dead = Path(library).is_absolute() and not Path(library).exists()
            if library and not dead and library not in found.values():
                found[f"{len(found):02d}-{path.name}"] = library
    return found


def additions() -> dict[str, str]:
    """Every `.icd` file that the loader should see; empty if it sees all of them anyway."""
    if sys.platform != "linux" or os.environ.get(VENDORS):
        return {}
    files = vendor_files()
    library = intel_cpu_library()
    if library is None or any(Path(known).name.startswith(LIBRARY) for known in files.values()):
        return {}
    return {**files, f"{len(files):02d}-gemmgen.icd": str(library)}


@contextmanager
def visible() -> Iterator[None]:
    """Context in which the process's first OpenCL call finds the environment's own runtime as well.

    It does nothing if the user has set `OCL_ICD_VENDORS`, or if there is nothing to add.
    """
    files = additions()
    if not files:
        yield
        return
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gemmgen-icd-"))
            for name, library in files.items():
                Path(folder, name).write_text(library + "\n")
        except OSError:  # a full disk: better one platform than none
            folder = str(intel_cpu_library())
        os.environ[VENDORS] = folder
        try:
            yield
        finally:
            del os.environ[VENDORS]


def platforms() -> list[pyopencl.Platform]:
    """Every OpenCL platform of the machine and of the environment.

    Raises: DeviceError if there is none, with the command that installs one.
    """
    require_pyopencl()
    if not (found := _found()):
        raise DeviceError(nothing_found())
    return list(found)


@once
def _found() -> tuple[pyopencl.Platform, ...]:
    """The platforms. The loader looks for them once, at its first call."""
    import pyopencl as cl

    with visible():
        try:
            return tuple(cl.get_platforms())
        except cl.Error:  # ocl-icd calls it an error (PLATFORM_NOT_FOUND_KHR) that nothing is installed
            return ()


def nothing_found() -> str:
    """One sentence: why there is no platform, and how to install one."""
    if chosen := os.environ.get(VENDORS):
        return f"{VENDORS}={chosen} finds no OpenCL platform: unset it; if there is still none, {INSTALL} brings one"
    return f"no OpenCL platform found on this machine: {INSTALL} installs one for the CPU"
