"""Output: text to standard output or to files, with errors in the words of the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from gemmgen.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console


def complain(problems: Iterable[str], works: str | None = None) -> None:
    """Print every problem on standard error, unless that is closed; and a command that works, if one is known."""
    if sys.stderr is None:
        return
    listed = list(problems)
    if len(listed) == 1:
        text = f"gemmgen: {listed[0]}\n"
    else:
        text = f"gemmgen: {len(listed)} problems\n" + "".join(f"  - {problem}\n" for problem in listed)
    sys.stderr.write(text + (f"This works: {works}\n" if works else ""))


def path_problems(path: Path | None, like: str = "kernel.cl", option: str = "-o") -> list[str]:
    """Problems with writing to `path`, given by an option.

    Args:
        like: an example of a file's name, for messages.
    """
    if path is None:
        return []
    from gemmgen import files

    if path.is_dir():
        return [f"{option} {path} is a folder: name a file in it, such as {path / like}"]
    if str(path) == "-":
        return [f"{option} - is no name of a file: give /dev/stdout for standard output"]
    if files.is_special(path) and os.access(path, os.W_OK):
        return []
    return _parent_problems(path, option)


def _parent_problems(path: Path, option: str) -> list[str]:
    """What keeps the folder around a path from taking something new."""
    parent = Path(os.path.realpath(path)).parent
    if not parent.is_dir():
        return [f"{option} {path}: the folder {parent} does not exist: create it first (mkdir -p {parent})"]
    if not os.access(parent, os.W_OK):
        return [f"{option} {path}: the folder {parent} can't be written to: choose another"]
    return []


def folder_problems(path: Path) -> list[str]:
    """What keeps a new folder, given by --project, from being made; an empty one is as good as none."""
    if path.is_dir():
        if any(path.iterdir()):
            return [f"--project {path} is a folder that is not empty: name a new one"]
    elif path.exists() or path.is_symlink():
        return [f"--project {path} is no folder: name a new one"]
    return _parent_problems(path, "--project")


def write_folder(path: Path, contents: Mapping[str, str]) -> None:
    """A folder with these files, by their names. Raises: UserError if it can't be written."""
    from gemmgen import files

    try:
        files.write_folder(path, contents)
    except OSError as error:
        raise UserError(f"{path} can't be written: {error.strerror or error}") from None


def examples(*commands: str) -> str:
    """What a command's help ends in."""
    return "\n\n".join(("[bold]Examples[/bold]", *commands))


def say(text: str) -> None:
    """Write text to standard output and flush it, so that a full disk is noticed here.

    Raises: UserError if the shell has closed it (`>&-`).
    """
    if sys.stdout is None:
        raise UserError("standard output is closed: open it, or send it to /dev/null")
    sys.stdout.write(text)
    sys.stdout.flush()


def wide_console() -> Console:
    """A terminal as it is; a pipe has long lines, so that grep can search them."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=160)


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print rows below their titles."""
    from rich.table import Column, Table

    table = Table(*(Column(each, overflow="fold") for each in columns), title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    wide_console().print(table, highlight=False)


def document(kind: str, records: object, **more: object) -> str:
    """The document of `--json`: gemmgen's version, the records under their name, and further keys."""
    import json

    import gemmgen

    return json.dumps({"gemmgen": gemmgen.__version__, **more, kind: records}, indent=2) + "\n"


def deliver(text: str, path: Path | None) -> None:
    """Write text to a file, or to standard output if `path` is None."""
    if path is None:
        say(text)
    else:
        write(path, lambda file: file.write(text.encode()))


def write(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Write a file by `fill`. Raises: UserError if it can't be written."""
    from gemmgen import files

    try:
        files.write(path, fill)
    except OSError as error:
        raise UserError(f"{path} can't be written: {error.strerror or error}") from None
