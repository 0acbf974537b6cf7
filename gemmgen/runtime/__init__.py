"""Compiling emitted sources and running them on arrays: each knows a `Source`, and nothing of how it was made."""

from __future__ import annotations

from importlib.util import find_spec

from gemmgen.errors import DeviceError

#: What brings pyopencl and a device at once.
INSTALL = 'pip install "gemmgen[cpu]"'
#: What brings CuPy.
INSTALL_CUDA = 'pip install "gemmgen[cuda]" (CUDA 12: "gemmgen[cuda12]")'


def is_named(part: str, name: str) -> bool:
    """Whether a device or a platform is meant by a part of its name; by an empty one none is."""
    return bool(part.strip()) and part.lower() in name.lower()


def require_pyopencl() -> None:
    """Raises: DeviceError with the command that installs it."""
    if find_spec("pyopencl") is None:
        raise DeviceError(f"pyopencl is not installed, so no device can be reached: {INSTALL}")


def require_cupy() -> None:
    """Raises: DeviceError with the command that installs it, or repairs it."""
    if find_spec("cupy") is None:
        raise DeviceError(f"CuPy is not installed, so no GPU can be reached: {INSTALL_CUDA}")
    try:
        import cupy  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceError(
            f"CuPy can't be imported ({_first_line(error)}): "
            f"pip uninstall every cupy that pip list shows, then {INSTALL_CUDA}"
        ) from error


def require_nvrtc() -> None:
    """Raises: DeviceError where the compiler that CuPy loads is missing or broken."""
    require_cupy()
    from cupy.cuda import nvrtc

    try:
        nvrtc.getVersion()
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceError(
            f"NVRTC, which compiles for CUDA, can't be loaded ({_first_line(error)}): pip install --force-reinstall "
            "nvidia-cuda-nvrtc, or install the CUDA toolkit"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
