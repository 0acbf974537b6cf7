"""What takes long to work out and is small, kept on disk for processes to come: which schedule computes a product, and
its source. A start from there imports neither the passes nor the printers.

A file is a digest of its content, and the content, pickled. What it is called says what it was worked out from: the
question, gemmgen's own files and Python's version, so that nothing of another version is ever found. What is not
whole, not a file of this user, or can't be read is worked out anew. `GEMMGEN_NO_CACHE=1` leaves the disk alone.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import TypeVar, cast

import gemmgen
from gemmgen.runtime.files import write_whole

Answer = TypeVar("Answer")

#: Set to 1, it has nothing read from disk or written there.
OFF = "GEMMGEN_NO_CACHE"
#: Answers that a process leaves behind: those of its start, not of each size that it ever meets.
MOST_WRITTEN = 64
#: Files in the folder, of which the older half goes beyond that.
MOST_FILES = 1024
DIGEST_BYTES = 32

#: Numbers those that a process writes.
_written = count()


def remembered(question: str, about: tuple[object, ...], work_out: Callable[[], Answer]) -> Answer:
    """The answer to a question, from disk or worked out.

    Args:
        question: in a word; an answer to it is always of one type.
        about: all that the answer depends on: numbers, texts, records of such.
    """
    folder = None if os.environ.get(OFF) == "1" else _folder()
    if folder is None:
        return work_out()
    path = folder / f"{question}-{_digest(_told((about, _made_by())).encode()).hex()[:40]}"
    found = _read(path)
    if found is not None:
        return cast("Answer", found)
    answer = work_out()
    _write(path, answer)
    return answer


def _told(value: object) -> str:
    """A value in words that are the same in every process, as those of sets are not."""
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}({', '.join(_told(getattr(value, field.name)) for field in fields(value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_told, value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_told, value))},)"
    return repr(value)


@cache
def _made_by() -> tuple[object, ...]:
    """gemmgen's version, when each of its files was last written and how long it is, and Python's version."""
    package = Path(gemmgen.__file__).parent
    found: list[tuple[str, int, int]] = []
    # In a checkout templates stand beside the package.
    for root in (package, package.parent / "templates"):
        for folder, names, files in os.walk(root):
            names[:] = [name for name in names if name not in ("__pycache__", "generated")]
            for path in (os.path.join(folder, file) for file in files):  # noqa: PTH118  (hundreds, at each start)
                about = os.stat(path)  # noqa: PTH116
                found.append((path, about.st_mtime_ns, about.st_size))
    return gemmgen.__version__, sys.version, tuple(sorted(found))


def _folder() -> Path | None:
    """Where answers are kept; None where nothing can be."""
    import platformdirs

    folder = platformdirs.user_cache_path("gemmgen") / "answers"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder
    return None


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _read(path: Path) -> object:
    """What a file holds; None where it is missing, damaged, or somebody else's, who may have put anything there."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            data = file.read()
        if _digest(data[DIGEST_BYTES:]) != data[:DIGEST_BYTES]:
            return None
        return cast("object", pickle.loads(data[DIGEST_BYTES:]))
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, LookupError, TypeError, ValueError):
        return None


def _write(path: Path, answer: object) -> None:
    if next(_written) >= MOST_WRITTEN:
        return
    data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    write_whole(path, _digest(data) + data)
    with suppress(OSError):  # another process may do the same
        files = sorted(path.parent.iterdir(), key=lambda file: file.stat().st_mtime)
        for file in files[: len(files) // 2] if len(files) > MOST_FILES else ():
            file.unlink()
