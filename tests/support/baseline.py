"""Key figures of every named schedule on a few targets, kept in files: a change that makes machine code worse fails.

The figures are a compiler's, of the version that its file names. Another version's are measured and reported; nothing
fails by them until somebody keeps them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import gemmgen.inspect
from gemmgen import candidates
from gemmgen.errors import UserError
from gemmgen.inspect.jobs import Failure, Job, Outcome, inspect, jobs
from gemmgen.inspect.machine import choose, machines
from gemmgen.inspect.toolchain import Input, version

#: A chip for each generation that differs in its instructions.
TARGETS = ("bdw", "skl", "tgllp", "dg2-g10", "pvc", "bmg", "sm_80", "sm_90a", "gfx906", "gfx942", "gfx1100")
#: Compiler -> the tools that make its figures.
TOOLS = {
    "ocloc-legacy": ("ocloc-legacy", "iga64"),
    "ocloc": ("ocloc",),
    "nvcc": ("nvcc", "nvdisasm"),
    "clang": ("clang",),
}
#: A share may fall by so much.
SLACK = 0.0005
#: What a compiler does not see: comments, with the lines that hold nothing else.
_COMMENT = re.compile(rb"^[ \t]*//.*\n|[ \t]*//.*$", re.MULTILINE)

Figures = dict[str, float | str | None]
#: Target -> figures.
Row = dict[str, Figures]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A compiler's file.

    Attributes:
        tools: what made the figures, and its version.
        sources: preset -> what stood for all that they were made from, `fingerprint`.
        presets: preset -> figures.
    """

    tools: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    presets: dict[str, Row] = field(default_factory=dict)


def path(root: Path, compiler: str) -> Path:
    """The file of a compiler's figures."""
    return root / "benchmarks" / "static" / f"{compiler}.json"


def versions(compiler: str) -> dict[str, str]:
    """Of a compiler and its disassembler. Raises: ToolError if one is missing."""
    return {tool: version(tool) for tool in TOOLS[compiler]}


def made(preset: str, compiler: str) -> list[Job | Failure]:
    """A preset's kernels for a compiler's targets of the baseline, ready to compile."""
    loaded = candidates.load(preset)
    return jobs(loaded.spec, loaded.schedule, [m for m in choose(TARGETS) if m.compiler == compiler])


def fingerprint(kernels: Sequence[Job | Failure]) -> str:
    """Stands for what figures are made from, but for the tools: the same code, read by the same reader, has the same
    figures, so that none need be compiled to know them. How a refusal is worded makes no difference.
    """
    chips = [(kernel.machine.target, kernel.machine.device, kernel.machine.platform) for kernel in kernels]
    asked = [None if isinstance(k, Failure) else _code(k.source) for k in kernels]
    return hashlib.sha256(f"{_reader()} {chips} {asked}".encode()).hexdigest()[:16]


def _code(source: Input) -> Input:
    """What a compiler sees of a source."""
    return replace(source, content=_COMMENT.sub(b"", source.content))


@cache
def _reader() -> str:
    """Stands for the code that makes figures of what compilers make."""
    (folder,) = map(Path, gemmgen.inspect.__path__)
    files = [Path(__file__), *sorted(file for file in folder.rglob("*") if file.suffix in (".py", ".toml"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def collect(kernels: Sequence[Job | Failure]) -> Row:
    """Their figures, by target."""
    return {outcome.machine.target: _figures(outcome) for outcome in inspect(kernels)}


def _figures(outcome: Outcome) -> Figures:
    if isinstance(outcome, Failure):
        return {"refused": outcome.problems[0].splitlines()[0]}
    r, loop, room = outcome.compiled.resources, outcome.loop, outcome.occupancy
    return {
        "registers": r.registers,
        "scratch": r.scratch,
        "local": r.local_bytes,
        "occupancy": None if room is None else room.threads,
        "instructions": None if loop is None else loop.total,
        "multiply_adds": None if loop is None else loop.math,
        "share": None if loop is None else round(loop.share, 4),
    }


def worse(preset: str, before: Mapping[str, Figures], now: Mapping[str, Figures]) -> list[str]:
    """Every figure that has become worse, or that nobody knows any more."""
    problems: list[str] = []
    for target, old in before.items():
        new = now.get(target, {"refused": "it is gone"})
        where = f"{preset} on {target}"
        if "refused" in new:
            problems += [] if "refused" in old else [f"{where}: {new['refused']}"]
            continue
        problems += (f"{where}: {problem}" for problem in _worse(old, new))
    return problems


def _worse(old: Figures, new: Figures) -> Iterable[str]:
    rules = (("scratch", 1, 0.0), ("share", -1, SLACK), ("occupancy", -1, 0.0))
    for name, sign, slack in rules:
        before, after = old.get(name), new.get(name)
        if not isinstance(before, int | float):
            continue
        if not isinstance(after, int | float):
            yield f"{name} was {before:g}, and is unknown now"
        elif sign * (after - before) > slack:
            yield f"{name} was {before:g}, and is {after:g} now"


# --- the files ------------------------------------------------------------------------------------


def read(root: Path, compiler: str) -> Baseline:
    """What is kept; nothing if no file is there. Raises: UserError if it is broken."""
    file = path(root, compiler)
    if not file.exists():
        return Baseline()
    try:
        found = json.loads(file.read_text("utf-8"))
        return Baseline(dict(found["tools"]), dict(found["sources"]), dict(found["presets"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is not as --update writes it ({error}): write it anew") from None


def write(root: Path, compiler: str, kept: Baseline) -> None:
    """Keep figures: a line for each preset and target, so that a diff shows what changed. Whole or not at all."""
    blocks = []
    for preset, row in sorted(kept.presets.items()):
        lines = [f"   {json.dumps(target)}: {json.dumps(row[target])}" for target in machines() if target in row]
        blocks.append(f"  {json.dumps(preset)}: {{\n" + ",\n".join(lines) + "\n  }")
    sources = ",\n".join(f"  {json.dumps(preset)}: {json.dumps(of)}" for preset, of in sorted(kept.sources.items()))
    head = f' "tools": {json.dumps(kept.tools)},\n "sources": {{\n{sources}\n }},\n "presets": {{\n'
    file = path(root, compiler)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".part")
    draft.write_text(f"{{\n{head}" + ",\n".join(blocks) + "\n }\n}\n", "utf-8")
    draft.replace(file)


def changes(kept: Baseline, compiler: str) -> str | None:
    """Which tools are of other versions than those that made the figures. Raises: ToolError if one is missing."""
    then = kept.tools
    other = [
        f"{tool} is {now}, not {then.get(tool)}" for tool, now in versions(compiler).items() if now != then.get(tool)
    ]
    return ", ".join(other) or None
