"""Which kernels a CPU's libraries run on this processor, by their own word: a library may leave its vectors unused."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

#: Kernels of OpenBLAS that use AVX-512.
WIDE_CORES = frozenset({"SkylakeX", "Cooperlake", "SapphireRapids"})
#: Symbols of OpenBLAS, as its builds name them: plain, with 64-bit integers, and scipy-openblas' of NumPy's wheels.
_SPELLINGS = ("openblas_{}", "openblas_{}64_", "scipy_openblas_{}", "scipy_openblas_{}64_")


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


def mkl_processors(library: ctypes.CDLL) -> str:
    """The processors that MKL has chosen its kernels for, as it names them."""
    version = _MklVersion()
    library.MKL_Get_Version(ctypes.byref(version))
    name: bytes = version.processor or b""
    return name.decode()


def has_avx512() -> bool:
    """Whether the processor has it, by Linux' word."""
    try:
        return " avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


def cautions(peers: Iterable[str], mkl: Callable[[], str], wide: bool, core: str | None) -> list[str]:
    """What to know before a ratio to a library is believed.

    Args:
        mkl: what `mkl_processors` says.
        wide: whether the processor has AVX-512.
        core: whose kernels OpenBLAS has chosen, or None.
    """
    there, said = set(peers), []
    if "numpy" in there and wide and core is not None and core not in WIDE_CORES:
        said.append(
            f"NumPy's OpenBLAS runs its kernels for {core}, though this processor has AVX-512: its figures are about "
            "half of what it can do; set OPENBLAS_CORETYPE=SKYLAKEX to measure that"
        )
    if "mkl" in there and wide and "AVX-512" not in (processors := mkl()):
        said.append(
            f"MKL runs its kernels for {processors}, though this processor has AVX-512, and has no documented way to "
            "be told otherwise: a ratio to it says little here"
        )
    return said
