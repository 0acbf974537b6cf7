"""Where text and files go: whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from gemmgen.errors import UserError


def complain(problems: Iterable[str]) -> None:
    """Every problem on standard error; nowhere, if that is closed."""
    if sys.stderr is None:
        return
    listed = list(problems)
    if len(listed) == 1:
        text = f"gemmgen: {listed[0]}\n"
    else:
        text = f"gemmgen: {len(listed)} problems\n" + "".join(f"  - {problem}\n" for problem in listed)
    sys.stderr.write(text)


def path_problems(path: Path | None, like: str = "kernel.cl") -> list[str]:
    """What keeps `path`, given by -o, from being written.

    Args:
        like: an example of a file's name, for messages.
    """
    if path is None:
        return []
    if path.is_dir():
        return [f"-o {path} is a folder: name a file in it, such as {path / like}"]
    parent = Path(os.path.realpath(path)).parent
    if not parent.is_dir():
        return [f"-o {path}: the folder {parent} does not exist: create it first (mkdir -p {parent})"]
    if not os.access(parent, os.W_OK):
        return [f"-o {path}: the folder {parent} can't be written to: choose another"]
    return []


def say(text: str) -> None:
    """Text to standard output, at once, so that a full disk is noticed here.

    Raises: UserError if the shell has closed it (`>&-`).
    """
    if sys.stdout is None:
        raise UserError("standard output is closed: open it, or send it to /dev/null")
    sys.stdout.write(text)
    sys.stdout.flush()


def document(kind: str, records: object, **more: object) -> str:
    """What `--json` prints: gemmgen's version, the records under their name, and what else there is to say."""
    import json

    import gemmgen

    return json.dumps({"gemmgen": gemmgen.__version__, **more, kind: records}, indent=2) + "\n"


def deliver(text: str, path: Path | None) -> None:
    """Text to a file, or to standard output where there is none."""
    if path is None:
        say(text)
    else:
        write(path, lambda file: file.write(text.encode()))


def write(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Have `fill` write a file that appears complete or not at all.

    Raises: UserError if it can't be written.
    """
    # A link stays a link, and what is no plain file (/dev/null) is written to, not replaced.
    path = Path(os.path.realpath(path))
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                fill(file)
            return
        _replace(path, fill)
    except OSError as error:
        raise UserError(f"{path} can't be written: {error.strerror or error}") from None


def _replace(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    draft = path.with_name(f".{path.name[:200]}.{os.getpid()}.part")
    try:
        with draft.open("xb") as file:
            fill(file)
        if path.exists():
            draft.chmod(stat.S_IMODE(path.stat().st_mode))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
