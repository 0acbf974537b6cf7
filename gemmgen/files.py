"""Files and folders that appear as a whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO


def write(path: str | os.PathLike[str], fill: Callable[[BinaryIO], object]) -> None:
    """Write a file by `fill`. Links stay links. Special files (/dev/null) are written to, not replaced.

    Raises: OSError if it can't be written.
    """
    if is_special(path):
        with Path(path).open("wb") as file:
            fill(file)
        return
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():  # else the error would name the draft
        raise FileNotFoundError(errno.ENOENT, "No such folder", str(target.parent))
    draft = _draft_of(target)
    try:
        with draft.open("xb") as file:
            fill(file)
        if target.exists():
            draft.chmod(stat.S_IMODE(target.stat().st_mode))
        draft.replace(target)
    except OSError as error:
        raise _of(path, draft, error) from None
    finally:
        draft.unlink(missing_ok=True)


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether a path is there, but no file that could be replaced: /dev/null, or /dev/stdout into a pipe."""
    return Path(path).exists() and not Path(path).is_file()  # as it is: a pipe's real path names nothing


def write_folder(path: str | os.PathLike[str], files: Mapping[str, str]) -> None:
    """A folder with these files, by their names. An empty one that is there is replaced.

    Raises: OSError if it can't be written.
    """
    target = Path(os.path.realpath(path))
    draft = _draft_of(target)
    try:
        draft.mkdir()
        for name, text in files.items():
            (draft / name).write_bytes(text.encode())
        if target.is_dir():
            target.rmdir()
        draft.rename(target)
    except OSError as error:
        raise _of(path, draft, error) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _of(path: str | os.PathLike[str], draft: Path, error: OSError) -> OSError:
    """An error that names the path that the user gave in the place of its draft."""
    at = Path(error.filename or "")
    return OSError(error.errno, error.strerror, os.fspath(path)) if draft in (at, at.parent) else error


def _draft_of(path: Path) -> Path:
    """A name beside it, which no other process and no other thread writes to."""
    return path.with_name(f".{path.name[:200]}.{os.getpid()}.{os.urandom(4).hex()}.part")
