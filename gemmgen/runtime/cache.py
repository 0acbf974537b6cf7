"""The disk cache in the user's cache folder. Since it holds native code, only the user's own files are trusted.

- The folder belongs to the user, and nobody else may write to it. It is created without access for others.
- A file is opened first and checked then: it must be a regular file of this user that nobody else may write to. Links
  are not followed, and the open never blocks on a pipe.
- A file begins with a digest of its key (the "question"), and a digest of key and content. A file with another key, or
  a damaged one, is ignored. Reading a file executes nothing in it.
- A file appears as a whole or not at all: it is written under a new draft name and then renamed.

If the folder can't be written, work is repeated, and the user is told once. Nothing fails.

`Kept` and `once` are thread-safe caches in memory, with a limit and without one.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache as memoized
from functools import wraps
from io import FileIO
from itertools import count
from pathlib import Path
from typing import Generic, ParamSpec, TypeVar, cast

#: 1 turns all disk caches off; names of caches (`answers,sycl`) turn these off.
OFF = "GEMMGEN_NO_CACHE"
#: What it takes the names of: caches, and the records of tuning.
NAMES = ("answers", "opencl", "cuda", "sycl", "calibration", "inspect", "tuned")
#: The most files of a cache, and the most bytes. Beyond either the older half is deleted.
MOST_FILES, MOST_BYTES = 1024, 256 << 20
_DIGEST_BYTES = 32
_IS_LINUX: bool = sys.platform == "linux"
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_DRAFT = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
#: Acquired when the user has been told that nothing is kept, and never released.
_told = threading.Lock()
#: Numbers the paths of anonymous files.
_loads = count(1)


def user_cache(name: str) -> Path:
    """The folder of a program in the user's cache folder, as `platformdirs.user_cache_path` has it."""
    if _IS_LINUX:
        return _by_xdg("XDG_CACHE_HOME", "~/.cache") / name
    import platformdirs

    return platformdirs.user_cache_path(name, name if sys.platform == "win32" else None)


def user_data(name: str) -> Path:
    """The folder of a program in the user's data folder, as `platformdirs.user_data_path` has it."""
    if _IS_LINUX:
        return _by_xdg("XDG_DATA_HOME", "~/.local/share") / name
    import platformdirs

    return platformdirs.user_data_path(name)


def _by_xdg(variable: str, default: str) -> Path:
    """A folder by the rule of `platformdirs` on Linux, without its import, which takes 3 ms of a start."""
    named = Path(os.environ.get(variable, ""))
    return named if named.is_absolute() else Path(default).expanduser()


def digest(*parts: str | bytes) -> bytes:
    """A digest that identifies these parts."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(f"{len(data)}:".encode() + data)
    return total.digest()


def is_off(name: str) -> bool:
    """Whether the user has turned off what is kept on disk under a name."""
    value = os.environ.get(OFF)
    if not value:
        return False
    names = {word.strip() for word in value.split(",")}
    for word in names.difference(NAMES, ("0", "1", "")):
        _tell_of_value(OFF, word, NAMES)
    return "1" in names or name in names


def is_switched_on(variable: str) -> bool:
    """Whether what a variable turns off by 0 is on."""
    value = os.environ.get(variable, "1")
    if value not in ("0", "1", ""):
        _tell_of_value(variable, value, ("0", "1"))
    return value != "0"


@memoized
def _tell_of_value(variable: str, value: str, known: tuple[str, ...]) -> None:
    """Log once that a value means nothing. A warning might be turned into an error, and then the product would fail."""
    import logging

    from gemmgen.errors import suggest

    logging.getLogger("gemmgen").warning("%s: %r means nothing here: %s", variable, value, suggest(value, known))


class DiskCache:
    """Answers to questions, each in a file of one folder.

    Args:
        name: of the folder in the user's cache folder of gemmgen.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_off(self) -> bool:
        """Whether the user has turned this cache off."""
        return is_off(self._name)

    def read(self, kind: str, question: bytes) -> bytes | None:
        """The content for a key, or None if there is no trustworthy file.

        Args:
            kind: one word for the kind of key.
            question: the key's digest.
        """
        if self.is_off:
            return None
        with suppress(OSError), self._folder() as folder:
            data = read_own(folder, _file_name(kind, question))
            if data is not None and data[: 2 * _DIGEST_BYTES] == _head(question, data[2 * _DIGEST_BYTES :]):
                return data[2 * _DIGEST_BYTES :]
        return None

    def write(self, kind: str, question: bytes, content: bytes) -> None:
        """Keep the content for a key. If that is impossible, the user is told once in a process."""
        if self.is_off:
            return
        try:
            with self._folder() as folder:
                write_own(folder, _file_name(kind, question), _head(question, content) + content)
                _make_room(folder)
        except OSError as error:
            _tell(self._path(), error)

    def _path(self) -> Path:
        return user_cache("gemmgen") / self._name

    def _folder(self) -> AbstractContextManager[int]:
        """A descriptor of the folder. Raises: OSError."""
        return own_folder(self._path())


@contextmanager
def own_folder(path: Path) -> Iterator[int]:
    """A descriptor of a folder of the user's own, made if it is missing. Raises: OSError."""
    for each in (path.parent, path):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _expect_ours(os.fstat(folder))
        yield folder
    finally:
        os.close(folder)


class _Anonymous(FileIO):
    """An anonymous file, closed when its last reference is gone, since a loader may open it late."""

    def __del__(self) -> None:
        self.close()


def in_memory(content: bytes, name: str) -> FileIO:
    """An anonymous file of native code, for a loader that only takes a path: `/proc/self/fd/<descriptor>`. It exists
    until it is closed. No other process can change its content.
    """
    file = _Anonymous(os.memfd_create(name), "r+b")
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]
    return file


def loadable(file: FileIO) -> str:
    """The path of an anonymous file, in this process. Loaders such as CuPy cache by path, and descriptors are reused.
    So each call spells the path differently: a call number in binary, with `/` for 0 and `./` for 1.
    """
    spelling = f"{next(_loads):b}".replace("0", "/").replace("1", "./")
    return f"/proc/self/fd/{spelling}{file.fileno()}"


def _file_name(kind: str, question: bytes) -> str:
    return f"{kind}-{question.hex()[:40]}"


def _head(question: bytes, content: bytes) -> bytes:
    """The digests at the beginning of a file."""
    return question + hashlib.sha256(question + content).digest()


def _expect_ours(about: os.stat_result) -> None:
    """Raises: PermissionError if another user owns the file or may write to it."""
    if about.st_uid != os.geteuid():
        raise PermissionError(f"it belongs to user {about.st_uid}")
    if about.st_mode & _OTHERS_MAY_WRITE:
        raise PermissionError("others may write to it: chmod go-w")


def read_own(folder: int, name: str) -> bytes | None:
    """The content of a regular file of the user; None for anything else. Raises: OSError."""
    with FileIO(name, opener=lambda path, _: os.open(path, _READ, dir_fd=folder)) as file:
        about = os.fstat(file.fileno())
        _expect_ours(about)
        return file.readall() if stat.S_ISREG(about.st_mode) else None


def write_own(folder: int, name: str, data: bytes) -> None:
    """Write a file as a whole, or raise OSError and leave no draft behind."""
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
    """Delete the older half of too many files, or bytes, including drafts of ended processes."""
    with suppress(OSError):  # another process may do the same
        about = {name: os.stat(name, dir_fd=folder, follow_symlinks=False) for name in os.listdir(folder)}
        size = sum(each.st_size for each in about.values())
        if len(about) <= MOST_FILES and size <= MOST_BYTES:
            return
        most, count = size // 2, len(about) // 2
        for gone, name in enumerate(sorted(about, key=lambda name: about[name].st_mtime)):
            if gone >= count and size <= most:
                break
            os.unlink(name, dir_fd=folder)
            size -= about[name].st_size


def _tell(path: Path, error: OSError) -> None:
    """Log it once. A warning might be turned into an error, and then the product would fail."""
    if not _told.acquire(blocking=False):
        return
    import logging

    logging.getLogger("gemmgen").warning(
        "gemmgen keeps nothing on disk, so that each process compiles again: %s can't be used (%s). Name a folder of "
        "your own by XDG_CACHE_HOME, or set %s=1 to do without",
        path,
        error.strerror or error,
        OFF,
    )


# --- in memory ------------------------------------------------------------------------------------

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")
_NOTHING = object()


class _Slot:
    """The slot of one value, which one thread makes while others wait, and the number of its last use."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: object = _NOTHING
        self.used = 0


class Kept(Generic[Key, Value]):
    """Values by key, at most `limit`. If it is full, the least recently used quarter is dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._slots: dict[Key, _Slot] = {}
        self._lock = threading.Lock()
        self._uses = count(1)

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key. If it is missing, a single thread makes it. Exceptions of `make` are not kept."""
        known = self._slots.get(key)
        if known is not None and known.value is not _NOTHING:
            known.used = next(self._uses)
            return cast("Value", known.value)
        while True:
            slot = self._slot(key)
            with slot.lock:
                if slot.value is not _NOTHING:
                    return cast("Value", slot.value)
                # If the thread that made the value has failed, the waiting threads share one new slot.
                if self._slots.get(key) is slot:
                    slot.value = made = self._made(key, make)
                    return made

    def known(self, key: Key) -> Value | None:
        """The value of a key, or None if there is none. It takes no lock, so other threads may change it meanwhile."""
        slot = self._slots.get(key)
        if slot is None or slot.value is _NOTHING:
            return None
        slot.used = next(self._uses)
        return cast("Value", slot.value)

    def _slot(self, key: Key) -> _Slot:
        with self._lock:
            slot = self._slots.get(key)
            if slot is None:
                self._make_room()
                slot = self._slots[key] = _Slot()
            slot.used = next(self._uses)
            return slot

    def _make_room(self) -> None:
        if len(self._slots) >= self._limit:
            by_use = sorted(self._slots, key=lambda key: self._slots[key].used)
            for key in by_use[: max(1, self._limit // 4)]:
                del self._slots[key]

    def _made(self, key: Key, make: Callable[[], Value]) -> Value:
        try:
            return make()
        except BaseException:
            with self._lock:
                self._slots.pop(key, None)
            raise


def once(make: Callable[Parameters, Value]) -> Callable[Parameters, Value]:
    """A cached function, as by `functools.cache`. But if several threads ask for one value at the same time, a single
    thread computes it, and the others wait.

    Arguments are positional and hashable. The function must not call itself with the same arguments.
    """
    values: Kept[tuple[object, ...], Value] = Kept(sys.maxsize)

    @wraps(make)
    def known(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Value:
        assert not kwargs
        return values.get(args, lambda: make(*args, **kwargs))

    return known
