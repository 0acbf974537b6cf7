"""How options are declared, what shells complete, and the options that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Annotated

import typer

#: Completes a word of a command line.
Complete = Callable[[str], list[str]]
#: An option as it is written, which is parsed together with the others, so that all problems are told at once.
Text = str | None
#: The panel of the help that has the options of a place.
WHERE = "Where"


def option(names: str, metavar: str, text: str, complete: Complete | None = None, panel: str | None = None) -> object:
    """An option with a value.

    Args:
        names: separated by spaces.
        text: its help.
        panel: of the help.
    """
    return typer.Option(*names.split(), metavar=metavar, help=text, rich_help_panel=panel, autocompletion=complete)


def flag(names: str, text: str, panel: str | None = None) -> object:
    """An option without a value."""
    return typer.Option(*names.split(), help=text, rich_help_panel=panel)


def completing(names: Callable[[], Iterable[str]]) -> Complete:
    """Completion by the shell of names, or of the last of a list of them."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last)]

    return complete


complete_backends = completing(lambda: import_module("gemmgen.backends").BACKENDS)
complete_presets = completing(lambda: import_module("gemmgen.presets").names())
complete_targets = completing(lambda: import_module("gemmgen.ir.target").TARGETS)


#: The options that select a device, beside its backend.
Platform = Annotated[Text, option("-p --platform", "P", "Number or part of its name.", panel=WHERE)]
DeviceType = Annotated[Text, option("-t --type", "TYPE", "cpu, gpu, acc or all.", panel=WHERE)]
Device = Annotated[Text, option("-d --device", "D", "Number or part of its name.", panel=WHERE)]
#: The device whose records --tuned takes.
TunedDevice = Annotated[Text, option("-d --device", "D", "With --tuned: number of a device, or part of its name.")]
