"""The runtimes compile emitted sources and run them on arrays. They know a `Source`, but not how it was made."""

from __future__ import annotations

from importlib.util import find_spec

from gemmgen.errors import DeviceError

#: Installs pyopencl and a device.
INSTALL = 'pip install "gemmgen[cpu]"'
#: Installs CuPy.
INSTALL_CUDA = 'pip install "gemmgen[cuda]" (CUDA 12: "gemmgen[cuda12]")'


def is_named(part: str, name: str) -> bool:
    """Whether `part` is a part of the name of a device or a platform. An empty `part` names none."""
    return bool(part.strip()) and part.lower() in name.lower()


def require_pyopencl() -> None:
    """Raises: DeviceError with the command that installs it."""
    if find_spec("pyopencl") is None:
        raise DeviceError(f"pyopencl is not installed, so no device can be reached: {INSTALL}")


def require_cupy() -> None:
    """Raises: DeviceError with the command that installs it, or repairs it."""
    if find_spec("cupy") is None:
        raise DeviceError(f"CuPy is not installed, which these arrays need: {INSTALL_CUDA}")
    try:
        import cupy  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceError(
            f"CuPy can't be imported ({_first_line(error)}): "
            f"pip uninstall every cupy that pip list shows, then {INSTALL_CUDA}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
