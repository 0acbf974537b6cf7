"""Pages that the site's build writes from the code: each command's options, a schedule's fields, every preset."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import typer.main
from charts import convergence, staircase
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from gemmgen import driver, presets
from gemmgen.backends import BACKENDS
from gemmgen.cli import COMMANDS, application
from gemmgen.drawing import Drawing, draw, draw_banks, draw_waves
from gemmgen.drawing.charts import Ceiling, roofline
from gemmgen.explain import explain
from gemmgen.inspect.bounds import intensity
from gemmgen.inspect.instead import instead
from gemmgen.inspect.machine import machines
from gemmgen.ir.target import TARGETS
from gemmgen.presets import Preset
from gemmgen.schedule import AXES, KEYS, Operand, text_of

Parameter = TyperArgument | TyperOption

ROOT = Path(__file__).resolve().parents[2]
#: Backend -> folder and end of its emitted files, and its language's name.
EMITTED = {
    "opencl": ("opencl", "cl", "OpenCL C"),
    "cuda": ("cuda", "cu", "CUDA C++"),
    "sycl": ("sycl", "hpp", "SYCL"),
}
#: What the vendors' compilers made of a preset: the figure's name in benchmarks/static, and its column.
FIGURES = {
    "registers": "registers",
    "scratch": "spills, bytes",
    "local": "shared memory, bytes",
    "occupancy": "occupancy",
    "instructions": "instructions of the main loop",
    "share": "of them multiply-adds",
}


def pages() -> dict[str, str]:
    """Page -> its Markdown, with links as in the repository's `docs`."""
    every = [presets.load(name) for name in presets.names()]
    return {
        "reference/commands.md": commands_page(),
        "reference/fields.md": fields_page(),
        "reference/presets/index.md": presets_page(every),
        **{f"reference/presets/{preset.name}.md": preset_page(preset) for preset in every},
    }


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


# --- the command line -----------------------------------------------------------------------------


def commands_page() -> str:
    """Every command, with its options as `--help` groups them, and its examples."""
    head = (
        "# Every option\n\nWritten from the commands themselves. `gemmgen COMMAND --help` prints the same. "
        "[The commands](../commands.md) shows what they are for.\n"
    )
    group = typer.main.get_command(application())
    assert isinstance(group, TyperGroup)
    commands = {name: command for name, command in group.commands.items() if isinstance(command, TyperCommand)}
    return "\n".join([head, *(_command(name, commands[name]) for name in COMMANDS)])


def _command(name: str, command: TyperCommand) -> str:
    text = f"## gemmgen {name}\n\n{_plain(command.help or '')}\n\n"
    panels: dict[str, list[Parameter]] = {}
    for parameter in command.params:
        if isinstance(parameter, Parameter) and not parameter.hidden:
            panels.setdefault(parameter.rich_help_panel or "Options", []).append(parameter)
    for panel, parameters in panels.items():
        rows = ((_names(each), _plain(each.help or "")) for each in parameters)
        text += f"**{panel}**\n\n{table(('option', 'meaning'), rows)}\n"
    examples = [line for line in (command.epilog or "").split("\n\n") if line.startswith("gemmgen")]
    return text + "".join(f"    {line}\n" for line in examples)


def _plain(text: str) -> str:
    """A help text on one line, without what would be read as markup."""
    return " ".join(text.replace("\b", "").replace("<", "&lt;").replace("*", chr(92) + "*").split())


def _names(parameter: Parameter) -> str:
    metavar = parameter.metavar or ""
    if isinstance(parameter, TyperArgument):
        return f"`{metavar or (parameter.name or '').upper()}`"
    names = " ".join((*parameter.opts, *parameter.secondary_opts))
    return f"`{names} {metavar}`" if metavar else f"`{names}`"


# --- schedules ------------------------------------------------------------------------------------


def fields_page() -> str:
    """The fields of a schedule, by axis and member."""
    text = (
        "# Schedule fields\n\nA schedule has [four axes](../concepts.md). Each member of an axis has the fields below, "
        "as `--set` and a TOML file name them. `gemmgen fields` prints the same.\n\n"
    )
    for axis, members in {**AXES, "operand": (Operand,)}.items():
        text += f"## {axis}\n\n"
        for member in members:
            about = " ".join((member.__doc__ or "").partition("\n\n")[0].split())
            rows = [
                (f"`{key.replace('a.', 'a. or b.') if '.' in key else key}`", field.help, _values(key))
                for key, field in KEYS.items()
                if member in field.members and not key.startswith("b.")
            ]
            text += f"### {member.__name__}\n\n{about}\n\n"
            text += f"{table(('field', 'meaning', 'values'), rows)}\n" if rows else "It has no fields.\n\n"
    return text


def _values(key: str) -> str:
    field = KEYS[key]
    if field.words or field.kind == "bool":
        return ", ".join(f"`{text_of(value)}`" for value in field.tries)
    return f"{field.least} to {field.most}"


# --- charts of recorded figures -------------------------------------------------------------------


def stairs() -> str:
    """The ladder's table of docs/benchmarks.md as stairs: what each step reaches of cuBLAS."""
    text = (ROOT / "docs" / "benchmarks.md").read_text("utf-8").partition("\n### The ladder\n")[2].partition("\n#")[0]
    steps = [
        (name, float(share)) for name, share in re.findall(r"^\| `(\w+)` \| [\d.]+ \| ([\d.]+) \|", text, re.MULTILINE)
    ]
    assert steps, "docs/benchmarks.md has no table of the ladder"
    return _block(staircase(steps, "cuBLAS"))


def ceilings() -> str:
    """The roof of an H200, and below it what the instructions of the ladder's main loops leave (benchmarks/static)."""
    machine = machines()["sm_90a"]
    presets_of = json.loads((ROOT / "benchmarks" / "static" / "nvcc.json").read_text("utf-8"))["presets"]
    found = [
        Ceiling(name, intensity((4096, 4096, 4096)), presets_of[name]["sm_90a"]["share"], "issue slots")
        for name in LADDER
    ]
    assert machine.peak_gflops
    assert machine.figures.bandwidth_gbs
    return _block(roofline(machine.name, machine.peak_gflops, machine.figures.bandwidth_gbs, found))


def searches() -> str:
    """How the strategies of `gemmgen tune` converge, by benchmarks/tuning_replay.py."""
    found = json.loads((ROOT / "benchmarks" / "results" / "tuning_replay.json").read_text("utf-8"))
    title = f"Searches replayed on a recorded table, the mean of {found['seeds']} seeds"
    return _block(convergence(title, found["best_so_far"], "best so far, as a multiple of the table's best"))


#: The float32 steps of the ladder whose limit is the issue of instructions.
LADDER = ("naive_16x16", "tile_8x8", "smem_8x8", "smem_8x8_transposed", "smem_8x8_double", "async_8x8_16x16")
#: What `<!-- chart NAME -->` in a page draws.
CHARTS: dict[str, Callable[[], str]] = {"stairs": stairs, "ceilings": ceilings, "searches": searches}


def _block(picture: Drawing) -> str:
    """A picture in Markdown."""
    return f"<div>{picture.svg}</div>"


# --- presets --------------------------------------------------------------------------------------


@cache
def takers(name: str) -> tuple[str, ...]:
    """The backends that can express a preset."""
    preset = presets.load(name)
    return tuple(backend for backend in BACKENDS if not driver.refusals(preset.spec, preset.schedule, backend))


def drawing(name: str) -> str:
    """What `gemmgen explain` draws of a preset: the picture, and the text below."""
    preset = presets.load(name)
    target = driver.default_target(preset.spec, preset.schedule, takers(name)[0])
    picture = _block(draw(preset.spec, preset.schedule, target))
    return f"{picture}\n\n```text\n{explain(preset.spec, preset.schedule, target)}```"


def view(kind: str, name: str, target: str) -> str:
    """The bank conflicts or the waves of a preset, as `gemmgen explain --view` draws them."""
    preset = presets.load(name)
    picture = {"banks": draw_banks, "waves": draw_waves}[kind]
    return _block(picture(preset.spec, preset.schedule, TARGETS[target]))


def presets_page(every: Iterable[Preset]) -> str:
    """All presets, by method."""
    methods: dict[str, list[Preset]] = {}
    for preset in every:
        methods.setdefault(preset.schedule.method, []).append(preset)
    text = (
        "# Every preset\n\nEach page has the schedule, its drawing, what compilers made of it, and the emitted files. "
        "[Presets](../../presets.md) explains the families and the names.\n\n"
    )
    for method, members in methods.items():
        rows = (
            (f"[`{preset.name}`]({preset.name}.md)", _plain(preset.summary), ", ".join(takers(preset.name)))
            for preset in members
        )
        text += f"## {method}\n\n{table(('preset', 'summary', 'backends'), rows)}\n"
    return text


def preset_page(preset: Preset) -> str:
    """One preset: its schedule, drawing, emitted files and static figures."""
    source = (ROOT / "gemmgen" / "presets" / f"{preset.name}.toml").read_text("utf-8")
    files = [
        f"[{language}](../../../generated/{folder}/{preset.name}.{end})"
        for folder, end, language in EMITTED.values()
        if (ROOT / "generated" / folder / f"{preset.name}.{end}").is_file()
    ]
    figures = "".join(f"| {' | '.join(row)} |\n" for row in _figures(preset.name))
    head = table(("target", "compiler", *FIGURES.values()), ())
    note = "Counted in compiled code by `benchmarks/check_static.py`, not measured.\n"
    others = [(chip, rule) for chip in machines() if (rule := instead(preset.name, chip))]
    not_for = table(("device", "why", "take"), ((chip, r.why, f"[`{r.take}`]({r.take}.md)") for chip, r in others))
    return (
        f"# {preset.name}\n\n{_plain(preset.summary)}.\n\n"
        f"Emitted files: {', '.join(files) or 'none'}.\n\n"
        f"## Schedule\n\n```toml\n{source}```\n\n"
        f"## Drawing\n\n{drawing(preset.name)}\n\n"
        + (f"## Not for\n\n{not_for}\n" if others else "")
        + (f"## Static figures\n\n{head}{figures}\n{note}" if figures else "")
    )


def _figures(name: str) -> Iterator[list[str]]:
    for file in sorted((ROOT / "benchmarks" / "static").glob("*.json")):
        kept = json.loads(file.read_text("utf-8"))
        compiler = " ".join(next(iter(kept["tools"].items())))
        for target, figures in kept["presets"].get(name, {}).items():
            if "refused" not in figures:
                yield [target, compiler, *(str(figures.get(key, "")) for key in FIGURES)]
