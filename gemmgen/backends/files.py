"""The texts under `templates/`, all Jinja's: skeletons of files, and functions that kernels and launchers call."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from gemmgen.spec import LARGEST_SIZE

if TYPE_CHECKING:
    from jinja2 import Environment


def load(name: str) -> str:
    """A text by its path, in a checkout as in a wheel."""
    root = files("gemmgen") / "templates"
    if not root.is_dir():  # a checkout keeps templates/ beside the package
        root = files("gemmgen") / ".." / "templates"
    return (root / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """Where the templates are found."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    found = Environment(loader=FunctionLoader(load), undefined=StrictUndefined, keep_trailing_newline=True)
    # 2^31 less it is more than the largest size.
    found.globals["beyond_largest"] = 2**31 - 1 - LARGEST_SIZE
    return found


def rendered(name: str, **fields: object) -> list[str]:
    """The lines of a template, filled in; of one that holds functions, those of the functions that are asked for."""
    return environment().get_template(name).render(fields).splitlines()
