"""The kernels of `gemmgen.generated`: files beside one another, each callable under its name."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from importlib.resources import files

from gemmgen.source import Source


def names(package: str, suffix: str) -> list[str]:
    """Kernels of a package: its files that end so, by the alphabet."""
    found = (entry.name for entry in files(package).iterdir())
    return sorted(name.removesuffix(suffix) for name in found if name.endswith(suffix))


def source(package: str, suffix: str, backend: str, name: str, form: str | None = None) -> Source:
    """The preset of that name, with the file's text.

    Raises: AttributeError, which suggests the nearest name.
    """
    known = names(package, suffix)
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module {package!r} has no kernel {name!r}{hint}")
    from gemmgen import driver, presets  # names alone need neither

    preset = presets.load(name)
    # The preset gives the arguments and the launch geometry; the text is the file's.
    emitted = driver.emit(preset.spec, preset.schedule, backend, form=form)
    return replace(emitted, text=files(package).joinpath(f"{name}{suffix}").read_text(encoding="utf-8"))
