"""Files in the user's cache folder: what takes long to make, kept for processes to come. Native code is among it, so
only our own files are believed.

- A folder of ours, which nobody else may write to, holds them. It is made so that nobody else can look into it.
- A file is opened first and looked at then: a regular one, of this user, that nobody else may write to. No link is
  followed, and no pipe is waited for.
- It begins with a digest of the question that it answers, and one of that and its content. A file of another question,
  or a damaged one, is not believed. Nothing in it is executed to read it.
- It appears whole or not at all, by way of a draft that did not exist before.

A folder that can't be written to costs time, and is told of once; nothing fails.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import count
from pathlib import Path

#: Set to 1, nothing is read from disk or kept there; set to names of caches (`answers,sycl`), nothing of those.
OFF = "GEMMGEN_NO_CACHE"
#: Files of a cache, of which the older half goes beyond that.
MOST_FILES = 1024
_DIGEST_BYTES = 32
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_DRAFT = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
#: Taken when it has been told that nothing is kept, and never given back.
_told = threading.Lock()
#: Numbers the paths of anonymous files.
_loads = count(1)


def digest(*parts: str | bytes) -> bytes:
    """What stands for these parts, and for no others."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(f"{len(data)}:".encode() + data)
    return total.digest()


class DiskCache:
    """Answers to questions, each in a file of one folder.

    Args:
        name: of the folder in the user's cache folder of gemmgen.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_off(self) -> bool:
        """Whether the user wants nothing to be kept here."""
        names = os.environ.get(OFF, "").split(",")
        return "1" in names or self._name in names

    def read(self, kind: str, question: bytes) -> bytes | None:
        """The answer to a question, or None where none is kept that can be believed.

        Args:
            kind: of the question, in a word.
            question: its digest.
        """
        if self.is_off:
            return None
        with suppress(OSError), self._folder() as folder:
            data = _read(folder, _file_name(kind, question))
            if data is not None and data[: 2 * _DIGEST_BYTES] == _head(question, data[2 * _DIGEST_BYTES :]):
                return data[2 * _DIGEST_BYTES :]
        return None

    def write(self, kind: str, question: bytes, content: bytes) -> None:
        """Keep an answer. Where that is impossible, it is told once in the life of the process."""
        if self.is_off:
            return
        try:
            with self._folder() as folder:
                _write(folder, _file_name(kind, question), _head(question, content) + content)
                _make_room(folder)
        except OSError as error:
            _tell(self._path(), error)

    def _path(self) -> Path:
        # Here alone, so that devices can be asked for from a checkout, without what gemmgen brings along.
        import platformdirs

        return platformdirs.user_cache_path("gemmgen") / self._name

    @contextmanager
    def _folder(self) -> Iterator[int]:
        """A descriptor of the folder, made if it is missing. Raises: OSError."""
        path = self._path()
        for each in (path.parent, path):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _expect_ours(os.fstat(folder))
            yield folder
        finally:
            os.close(folder)


class _Anonymous(FileIO):
    """Closed when nobody holds it any more: a loader may open it as late as that."""

    def __del__(self) -> None:
        self.close()


def in_memory(content: bytes, name: str) -> FileIO:
    """An anonymous file of native code, for a loader that only takes a path: `/proc/self/fd/<descriptor>`. It lasts
    until it is closed. No other process can change what is loaded.
    """
    file = _Anonymous(os.memfd_create(name), "r+b")
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]
    return file


def loadable(file: FileIO) -> str:
    """The path of an anonymous file, in this process. Each call spells it in another way, since loaders such as CuPy
    remember what they loaded by its path, and descriptors are used again: `/` and `./` are the bits of a number.
    """
    spelling = f"{next(_loads):b}".replace("0", "/").replace("1", "./")
    return f"/proc/self/fd/{spelling}{file.fileno()}"


def _file_name(kind: str, question: bytes) -> str:
    return f"{kind}-{question.hex()[:40]}"


def _head(question: bytes, content: bytes) -> bytes:
    """What a file begins with."""
    return question + hashlib.sha256(question + content).digest()


def _expect_ours(about: os.stat_result) -> None:
    """Raises: PermissionError for what others own or may write to."""
    if about.st_uid != os.geteuid():
        raise PermissionError(f"it belongs to user {about.st_uid}")
    if about.st_mode & _OTHERS_MAY_WRITE:
        raise PermissionError("others may write to it: chmod go-w")


def _read(folder: int, name: str) -> bytes | None:
    """What a file of ours holds; None for anything that is not a regular one. Raises: OSError."""
    with FileIO(name, opener=lambda path, _: os.open(path, _READ, dir_fd=folder)) as file:
        about = os.fstat(file.fileno())
        _expect_ours(about)
        return file.readall() if stat.S_ISREG(about.st_mode) else None


def _write(folder: int, name: str, data: bytes) -> None:
    """Raises: OSError, and leaves nothing behind."""
    draft = f".{name}.{os.urandom(8).hex()}"
    try:
        with FileIO(draft, "w", opener=lambda path, _: os.open(path, _DRAFT, 0o600, dir_fd=folder)) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise


def _make_room(folder: int) -> None:
    """Let the older half of too many files go, drafts of ended processes among them."""
    with suppress(OSError):  # another process may do the same
        names = os.listdir(folder)
        if len(names) > MOST_FILES:
            written = {name: os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime for name in names}
            for name in sorted(names, key=lambda name: written[name])[: len(names) // 2]:
                os.unlink(name, dir_fd=folder)


def _tell(path: Path, error: OSError) -> None:
    """By a log: where warnings are errors, it must compute all the same."""
    if not _told.acquire(blocking=False):
        return
    import logging

    logging.getLogger("gemmgen").warning(
        "gemmgen keeps nothing on disk, so that each process compiles anew: %s can't be used (%s). Name a folder of "
        "your own by XDG_CACHE_HOME, or set %s=1 to do without",
        path,
        error.strerror or error,
        OFF,
    )
