"""`gemmgen cache`: show and clear the caches on disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from gemmgen.cli.declared import Text, flag, option
from gemmgen.cli.output import document, examples, say
from gemmgen.errors import UserError, suggest
from gemmgen.records import dataclass

EXAMPLES = examples(
    "gemmgen cache",
    "gemmgen cache --json",
    "gemmgen cache --clear answers,sycl",
    "gemmgen cache --clear all",
)
#: gemmgen's own cache folders -> their content.
_OWN = {
    "answers": "which schedule computes a product, and its source",
    "opencl": "native code of OpenCL kernels",
    "cuda": "native code of CUDA kernels",
    "sycl": "native code of SYCL kernels, and the helper that runs them",
    "calibration": "below which sizes NumPy was faster than a kernel",
    "inspect": "what compilers answered to gemmgen inspect",
    "hypothesis": "what gemmgen fuzz learned",
}


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache: files of one kind, kept for later processes.

    Attributes:
        patterns: patterns for the names of its files, and of folders with files, in `folder`.
        shared: whether other programs use the folder, too.
    """

    name: str
    folder: Path
    holds: str
    patterns: tuple[str, ...] = ("*",)
    shared: bool = False

    def entries(self) -> list[Path]:
        """The entries of the folder that belong to this cache. Links are not followed."""
        if self.folder.is_symlink() or not self.folder.is_dir():
            return []
        return sorted({entry for pattern in self.patterns for entry in self.folder.glob(pattern)})

    def files(self) -> Iterator[Path]:
        """All of its files."""
        for entry in self.entries():
            if entry.is_dir() and not entry.is_symlink():
                yield from (Path(root, name) for root, _, names in os.walk(entry) for name in names)
            else:
                yield entry

    def size(self) -> tuple[int, int]:
        """The number of its files and their bytes. Files that vanish meanwhile are not counted."""
        sizes = []
        for file in self.files():
            try:
                sizes.append(file.lstat().st_size)
            except OSError:
                continue
        return len(sizes), sum(sizes)

    def clear(self) -> None:
        """Delete them. Raises: OSError."""
        for entry in self.entries():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)


def caches() -> list[Cache]:
    """Every cache that gemmgen fills, its own first."""
    from gemmgen.runtime.cache import user_cache

    home = user_cache("gemmgen")
    found = {folder.name for folder in home.iterdir() if folder.is_dir()} if home.is_dir() else set()
    own = [Cache(name, home / name, _OWN.get(name, "")) for name in (*_OWN, *sorted(found.difference(_OWN)))]
    blas = Path(os.environ.get("GEMMGEN_BLAS_CACHE") or user_cache("gemmgen_blas"))
    cupy = Path(os.environ.get("CUPY_CACHE_DIR") or "~/.cupy/kernel_cache").expanduser()
    pyopencl = user_cache("pyopencl")
    return [
        *own,
        Cache("blas", blas, "kernels that exported libraries have built", ("*-????????????????.bin",)),
        Cache("pyopencl", pyopencl, "OpenCL kernels that pyopencl has built", ("pyopencl-*", "pytools-*"), shared=True),
        Cache("cupy", cupy, "CUDA kernels that CuPy has built", ("*.cubin", "*.cubin.hash"), shared=True),
    ]


def cache(
    clear: Annotated[Text, option("--clear", "NAME[,NAME]", "Delete these; all is all of gemmgen's own.")] = None,
    as_json: Annotated[bool, flag("--json", "One JSON document.")] = False,
) -> None:
    """Show what gemmgen keeps on disk between processes, and delete it.

    Nothing is lost with it but time: what is missing is made again. GEMMGEN_NO_CACHE=1 keeps nothing.
    """
    known = caches()
    chosen = _chosen(clear, known)
    before = {each.name: each.size() for each in known}
    for each in chosen:
        try:
            each.clear()
        except OSError as error:
            raise UserError(f"{error.filename or each.folder} can't be deleted: {error.strerror}") from None
    if as_json:
        after = {each.name: each.size() for each in known}
        say(document("caches", [_plain(each, *after[each.name]) for each in known]))
    elif clear is not None:
        say("".join(f"{each.name}: {_words(*before[each.name])} deleted from {each.folder}\n" for each in chosen))
    else:
        say("".join(_described(each, *before[each.name]) for each in known))


def _chosen(clear: str | None, known: list[Cache]) -> list[Cache]:
    """The caches to clear. Raises: UserError with every unknown name."""
    if clear is None:
        return []
    by_name = {each.name: each for each in known}
    names = [name.strip() for name in clear.split(",")]
    problems = [
        f"--clear {name!r} is no cache: {suggest(name, [*by_name, 'all'])}"
        for name in names
        if name != "all" and name not in by_name
    ]
    if problems:
        raise UserError(problems)
    own = [each for each in known if not each.shared] if "all" in names else []
    return list({each.name: each for each in (*own, *(by_name[name] for name in names if name != "all"))}.values())


def _described(each: Cache, files: int, size: int) -> str:
    whose = ", with other programs'" if each.shared else ""
    return f"{each.name:<12}{_words(files, size):<24}{each.folder}\n{'':<12}{each.holds}{whose}\n"


def _words(files: int, size: int) -> str:
    unit, divisor = ("MB", 1e6) if size >= 1e6 else ("kB", 1e3)
    return f"{size / divisor:.1f} {unit} in {files} file{'s' * (files != 1)}"


def _plain(each: Cache, files: int, size: int) -> dict[str, object]:
    return {
        "name": each.name,
        "folder": str(each.folder),
        "holds": each.holds,
        "files": files,
        "bytes": size,
        "shared": each.shared,
    }
