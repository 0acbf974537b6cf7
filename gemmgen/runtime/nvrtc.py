"""NVRTC by ctypes: found among torch's packages, pip's, and the toolkit's. Needs no GPU."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from gemmgen.errors import DeviceError
from gemmgen.records import cached_property, dataclass
from gemmgen.runtime.cache import DiskCache, digest, once

#: Versions of CUDA whose NVRTC is looked for, the newest first.
MAJORS = (13, 12, 11)
_cache = DiskCache("cuda")
_REMEDY = 'pip install "nvidia-cuda-nvrtc", or torch with CUDA, or install the CUDA toolkit'


@dataclass(frozen=True)
class Nvrtc:
    """A library of NVRTC, by its path or its name. It is loaded when it must compile, which takes 50 ms."""

    path: str

    @cached_property
    def library(self) -> ctypes.CDLL:
        """The library, loaded. Raises: OSError."""
        return ctypes.CDLL(self.path)

    @property
    def version(self) -> tuple[int, int]:
        """Its version, such as (13, 0)."""
        return self._about[0], self._about[1]

    @property
    def architectures(self) -> tuple[int, ...]:
        """The compute capabilities that it compiles for, such as 90."""
        return self._about[2:]

    @cached_property
    def _about(self) -> tuple[int, ...]:
        """The version and the architectures, from disk if the file is the one that was asked."""
        try:
            about = Path(self.path).stat()
        except OSError:  # a name, which the loader finds
            return self._asked()
        question = digest("nvrtc", self.path, f"{about.st_size} {about.st_mtime_ns} {about.st_ino}")
        if (kept := _cache.read("nvrtc", question)) is not None:
            return tuple(map(int, kept.split()))
        found = self._asked()
        _cache.write("nvrtc", question, " ".join(map(str, found)).encode())
        return found

    def _asked(self) -> tuple[int, ...]:
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self._check(self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self._check(self.library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        found = (ctypes.c_int * count.value)()
        self._check(self.library.nvrtcGetSupportedArchs(found))
        return major.value, minor.value, *found

    def compile(self, text: str, name: str, options: tuple[str, ...], ptx: bool = False) -> tuple[bytes, str]:
        """A cubin (or PTX), and the log. Raises: DeviceError with the compiler's log."""
        try:
            _ = self.library
        except OSError as error:  # it was there when it was asked for its version
            raise DeviceError(f"NVRTC, which compiles for CUDA, can't be loaded ({error}): {_REMEDY}") from error
        program = ctypes.c_void_p()
        source, called = text.encode(), f"{name}.cu".encode()
        self._check(self.library.nvrtcCreateProgram(ctypes.byref(program), source, called, 0, None, None))
        try:
            given = [option.encode() for option in options]
            code = self.library.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
            log = self._text(program, "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace")
            if code:
                raise DeviceError(log.strip() or self._name(code))
            return self._text(program, "nvrtcGetPTX" if ptx else "nvrtcGetCUBIN"), log
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self.library, f"{what}Size")(program, ctypes.byref(size)))
        found = ctypes.create_string_buffer(max(1, size.value))
        self._check(getattr(self.library, what)(program, found))
        return found.raw[: size.value]

    def _check(self, code: int) -> None:
        if code:
            raise DeviceError(f"NVRTC failed ({self._name(code)}). Please report it")

    def _name(self, code: int) -> str:
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return str((self.library.nvrtcGetErrorString(code) or b"?").decode())


@once
def nvrtc(newest: int = MAJORS[0]) -> Nvrtc:
    """NVRTC of the newest version of CUDA that is found.

    Args:
        newest: the major version that the driver supports.

    Raises: DeviceError with the commands that install it.
    """
    tried = []
    for path in candidates(newest):
        try:
            found = Nvrtc(path)
            _ = found.version
        except (OSError, AttributeError, DeviceError) as error:
            tried.append(f"{path}: {str(error).splitlines()[0]}")
            continue
        return found
    said = f" ({'; '.join(tried[:4])})" if tried else ""
    raise DeviceError(f"NVRTC, which compiles for CUDA, can't be loaded{said}: {_REMEDY}")


def candidates(newest: int) -> Iterator[str]:
    """Paths and names that may be NVRTC's, the best first: those of torch's version of CUDA, since both are then loaded
    once.
    """
    majors = [major for major in MAJORS if major <= newest]
    torchs = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
    if isinstance(torchs, str) and int(torchs.split(".")[0]) in majors:
        majors.sort(key=lambda major: major != int(torchs.split(".")[0]))
    for major in majors:
        for folder in _package_folders():
            for part in (f"cu{major}", "cuda_nvrtc"):
                path = folder / part / "lib" / f"libnvrtc.so.{major}"
                if path.exists():
                    yield str(path)
        for root in _toolkits():
            path = root / "lib64" / f"libnvrtc.so.{major}"
            if path.exists():
                yield str(path)
        yield f"libnvrtc.so.{major}"


def header_folders(major: int) -> list[str]:
    """Folders that may hold the headers of 16-bit types and of the driver: pip's, then the toolkit's."""
    parts = (f"cu{major}", "cuda_runtime")
    pips = (folder / part / "include" for folder in _package_folders() for part in parts)
    cupys = (folder / f"cuda-{major}" for folder in _folders_of("cupy", "_core/include/cupy/_cuda"))
    all_of_them = chain(pips, (root / "include" for root in _toolkits()), cupys)
    return [str(folder) for folder in dict.fromkeys(all_of_them) if (folder / "cuda_fp16.h").exists()]


def _package_folders() -> list[Path]:
    """The folders of pip's namespace package `nvidia`."""
    return _folders_of("nvidia")


def _folders_of(package: str, inside: str = "") -> list[Path]:
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(folder, inside) for folder in (spec.submodule_search_locations or ())] if spec else []


def _toolkits() -> list[Path]:
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    return [Path(folder) for folder in (*named, "/usr/local/cuda") if Path(folder).is_dir()]
