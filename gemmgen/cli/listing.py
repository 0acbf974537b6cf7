"""`gemmgen presets` and `gemmgen devices`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli.output import say
from gemmgen.errors import ScheduleError

if TYPE_CHECKING:
    from gemmgen.ir.target import Target
    from gemmgen.runtime.devices import DeviceInfo

PRESETS_EXAMPLES = "\n\n".join(
    (
        "[bold]Examples[/bold]",
        "gemmgen presets",
        "gemmgen presets --names | grep block_read",
        "gemmgen emit --preset naive",
    )
)
DEVICES_EXAMPLES = "\n\n".join(
    (
        "[bold]Examples[/bold]",
        "gemmgen devices",
        "gemmgen run -d 0 -k naive -v",
        "gemmgen run -d xeon -k naive -v",
    )
)


def presets(
    names: Annotated[bool, typer.Option("--names", help="Only the names, one a line.")] = False,
) -> None:
    """List the presets: ready-made schedules, with a line about each."""
    from gemmgen import presets as library

    if names:
        say("".join(f"{name}\n" for name in library.names()))
        return

    from rich.console import Console
    from rich.table import Table

    table = Table("preset", "what it is", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for name in library.names():
        table.add_row(name, library.load(name).summary)
    Console().print(table, highlight=False)


def devices() -> None:
    """List the OpenCL devices, what they offer and which presets they run."""
    from gemmgen.runtime import devices as runtime

    say("\n".join(_describe(info, runtime.target_of(info.handle)) for info in runtime.devices()))


def _describe(info: DeviceInfo, target: Target) -> str:
    lanes = ", ".join(map(str, info.sub_group_sizes)) or "none"
    lines = {
        "platform": f"{info.platform} ({info.platform_version}), OpenCL C {info.c_version}",
        "sub-groups": f"{lanes}" + (f" ({_features(info)})" if info.sub_group_sizes else ""),
        "local memory": f"{info.local_bytes // 1024} KiB",
        "group": f"up to {info.max_group} work-items",
        "images": "yes" if info.images else "no",
        "presets": _runs(target),
    }
    body = "".join(f"   {key:<13} {value}\n" for key, value in lines.items())
    return f"{info.number}  {info.name} ({info.type})\n{body}"


def _features(info: DeviceInfo) -> str:
    return ", ".join(sorted(feature.replace("_", " ") for feature in info.features))


def _runs(target: Target) -> str:
    """How many presets of each method the target can run, and what is missing for the others."""
    from gemmgen import presets as library
    from gemmgen.passes.validate import validate

    everything, fitting = Counter[str](), Counter[str]()
    for name in library.names():
        preset = library.load(name)
        everything[preset.schedule.method] += 1
        try:
            validate(preset.spec, preset.schedule, target)
        except ScheduleError:
            continue
        fitting[preset.schedule.method] += 1
    by_method = ", ".join(f"{method} {fitting[method]} of {number}" for method, number in everything.items())
    return f"runs {fitting.total()} of {everything.total()} ({by_method})"
