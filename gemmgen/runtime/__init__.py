"""Compiling emitted sources and running them on arrays. `gemmgen.runtime.api` is the way in."""

from __future__ import annotations

from importlib.util import find_spec

from gemmgen.errors import DeviceError

#: What brings pyopencl and a device at once.
INSTALL = 'pip install "gemmgen[cpu]"'


def require_pyopencl() -> None:
    """Raises: DeviceError with the command that installs it."""
    if find_spec("pyopencl") is None:
        raise DeviceError(f"pyopencl is not installed, so no device can be reached: {INSTALL}")


def require_cupy() -> None:
    """Raises: DeviceError with the command that installs it."""
    if find_spec("cupy") is None:
        raise DeviceError('CuPy is not installed, so no GPU can be reached: pip install "gemmgen[cuda]"')
