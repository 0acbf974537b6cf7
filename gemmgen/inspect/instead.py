"""Chips that a preset is not for, and which preset to take there: a table, `instead.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Instead:
    """A rule of the table.

    Attributes:
        presets: names, or what they begin with and a star.
        chips: that they are not for.
        why: what is wrong there.
        take: the preset to take in their place.
    """

    presets: tuple[str, ...]
    chips: tuple[str, ...]
    why: str
    take: str

    def __str__(self) -> str:
        return f"not for this device, {self.why}: take --preset {self.take}"


@cache
def rules() -> tuple[Instead, ...]:
    """The table."""
    found = tomllib.loads(files(__package__).joinpath("instead.toml").read_text("utf-8"))["rule"]
    return tuple(Instead(tuple(r["presets"]), tuple(r["chips"]), r["why"], r["take"]) for r in found)


def instead(preset: str, chip: str) -> Instead | None:
    """What to take in place of a preset on a chip; None where the preset is for it."""
    fits = (r for r in rules() if chip in r.chips and any(fnmatchcase(preset, glob) for glob in r.presets))
    return next(fits, None)
