"""The texts under `templates/`: skeletons of files, and functions that kernels are printed with."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

#: What stands before the name of a section.
MARK = "//: "


def load(name: str) -> str:
    """A text by its path, in a checkout as in a wheel."""
    root = files("gemmgen") / "templates"
    if not root.is_dir():  # a checkout keeps templates/ beside the package
        root = files("gemmgen") / ".." / "templates"
    return (root / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """Where the skeletons are found."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(loader=FunctionLoader(load), undefined=StrictUndefined, keep_trailing_newline=True)


def sections(name: str, wanted: Collection[str], **words: object) -> list[str]:
    """The lines of the wanted sections of a text, in its order, their words in capitals replaced. Raises: KeyError for
    one that it lacks.
    """
    found = _sections(name)
    if missing := sorted(set(wanted) - set(found)):
        raise KeyError(f"{name} has no {', '.join(missing)}")
    lines = [line for section in found if section in wanted for line in found[section]]
    for word, value in words.items():
        lines = [line.replace(word.upper(), str(value)) for line in lines]
    return lines


def section(name: str, key: str, **words: object) -> list[str]:
    """The lines of one section. Raises: KeyError."""
    return sections(name, {key}, **words)


@cache
def _sections(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in load(name).splitlines():
        if line.startswith(MARK):
            lines = found.setdefault(line.removeprefix(MARK), [])
        else:
            lines.append(line)
    # Each ends with an empty line, the last one too.
    return {section: [*lines, ""] if lines[-1] else lines for section, lines in found.items()}
