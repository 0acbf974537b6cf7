"""Reports to read: a table, a listing, and plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.table import Table

from gemmgen.inspect.code import Instruction, Kind, Space
from gemmgen.inspect.instead import instead
from gemmgen.inspect.jobs import Failure, Outcome
from gemmgen.inspect.report import Report

UNKNOWN = "unknown"
#: How a listing marks each kind.
MARKS: dict[Kind, str] = {
    Kind.FMA: "*",
    Kind.MATRIX: "#",
    Kind.FLOAT: "f",
    Kind.INT: "i",
    Kind.MOVE: "m",
    Kind.SHUFFLE: "x",
    Kind.SELECT: "?",
    Kind.CONVERT: "c",
    Kind.SCALAR: "s",
    Kind.LOAD: "<",
    Kind.STORE: ">",
    Kind.BRANCH: "^",
    Kind.BARRIER: "=",
    Kind.WAIT: "w",
    Kind.OTHER: ".",
    Kind.UNKNOWN: "!",
}
#: Of the table's columns, and whether they are aligned to the left or to the right.
HEADINGS = (
    ("target", "<"),
    ("SIMD", ">"),
    ("regs", ">"),
    ("scratch\nbytes", ">"),
    ("local\nbytes", ">"),
    ("occupancy", "<"),
    ("loop\ninstr.", ">"),
    ("mul-add", ">"),
    ("share", ">"),
    ("loads and stores", "<"),
    ("moves,\nshuffles", ">"),
    ("index", ">"),
    ("barriers", ">"),
    ("flops/byte\nglobal local", ">"),
    ("bank\nconflicts", "<"),
    ("bound (limit)", "<"),
)
_OCCUPANCY = 5
#: Those of the table in a terminal, of 80 to 100 columns; the others stand below it in words.
IN_TERMINAL = ("target", "SIMD", "regs", "scratch", "local", "occupancy", "loop", "mul-add", "share", "bound")
WIDTH = 100
CAPTION = (
    "Static figures of compiled code; nothing was run. Counts are of the hot loop, a thread and a\n"
    "round; a bound is a share of the peak that can't be exceeded."
)


def number(value: float | None, digits: int = 3) -> str:
    """A figure, or that it is not known."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.{digits}f}"


def share(value: float | None) -> str:
    """A share, cut and not rounded: 0.9999 must not read as 1."""
    return UNKNOWN if value is None else f"{int(value * 1000) / 1000:.3f}"


# --- the table ------------------------------------------------------------------------------------


def table(title: str, outcomes: Sequence[Outcome]) -> Table:
    """A row for each target."""
    out = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", padding=0, show_edge=False)
    shown = [i for i, (heading, _) in enumerate(HEADINGS) if heading.split()[0] in IN_TERMINAL]
    for i in shown:
        heading, alignment = HEADINGS[i]
        out.add_column(heading.replace("mul-", "mul-\n"), justify="right" if alignment == ">" else "left")
    for outcome in outcomes:
        if isinstance(outcome, Report):
            row = cells(outcome)
            out.add_row(*(row[i] if i != _OCCUPANCY else occupancy(outcome, short=True) for i in shown))
    return out


def details(report: Report) -> list[str]:
    """What the table leaves out of a target's hot loop."""
    loop = report.loop
    if loop is None:
        return []
    moves = loop.counts[Kind.MOVE] + loop.counts[Kind.SHUFFLE]
    index, barriers = loop.counts[Kind.INT] + loop.counts[Kind.SCALAR], loop.counts[Kind.BARRIER]
    per_byte = (f"{figure} {space}" for space in ("global", "local") if (figure := _per_byte(report, space)) != "-")
    parts = [
        f"moves and shuffles {moves}, index {index}, barriers {barriers}, waits {loop.counts[Kind.WAIT]}",
        f"flops/byte {', '.join(per_byte)}" if loop.bytes else "",
        f"bank conflicts {', '.join(conflicts(report))}",
    ]
    return [
        f"{report.target}: loads and stores: {'; '.join(loads(report))}",
        f"{report.target}: {'; '.join(filter(None, parts))}",
    ]


def remarks(name: str, outcomes: Sequence[Outcome]) -> list[str]:
    """What has to be said below the table of a kernel: who compiled, targets that failed or that it is not for, doubts
    and notes.
    """
    lines = compilers(outcomes)
    for outcome in outcomes:
        other = instead(name, outcome.machine.target)
        lines += [] if other is None else [f"{outcome.machine.target}: {other}"]
        if isinstance(outcome, Failure):
            lines += (f"{outcome.machine.target}: not to be had: {bare(outcome, p)}" for p in outcome.problems)
        else:
            lines += (f"{outcome.target}: counts unknown: {doubt}" for doubt in outcome.doubts)
            lines += details(outcome)
            lines += (f"{outcome.target}: {note}" for note in (*spills(outcome), *notes(outcome)))
    return lines


def compilers(outcomes: Sequence[Outcome]) -> list[str]:
    """Which compiler, of which version, the figures are of."""
    by: dict[str, list[str]] = {}
    for outcome in outcomes:
        if not isinstance(outcome, Failure):
            by.setdefault(outcome.compiled.compiler, []).append(outcome.target)
    return [f"{', '.join(targets)}: compiled by {name}" for name, targets in by.items()]


def bare(failure: Failure, problem: str) -> str:
    """A problem without the target's name before it."""
    return problem.removeprefix(f"{failure.machine.target}: ")


def spills(report: Report) -> list[str]:
    """What the compiler could not keep in registers."""
    said = report.compiled.resources.spills
    return [f"spills: {said}"] if said else []


def notes(report: Report) -> Iterator[str]:
    """What to know when reading the counts: what the bound leaves out, and what the loops are like."""
    loop, count = report.loop, report.bound.scratch
    if loop is not None and count:
        yield f"{count} of the loop's {loop.messages} loads and stores are of scratch memory; no bound counts them"
    if loop is not None and loop.conditional:
        part = f"{loop.conditional} of the loop's {loop.total} instructions"
        yield f"{part} are conditional: they are counted, but the bound leaves them out"
    yield from report.notes


def cells(report: Report) -> list[str]:
    """A row of the table."""
    r, loop = report.compiled.resources, report.loop
    own = [number(r.lanes), number(r.registers), number(r.scratch), number(r.local_bytes), occupancy(report)]
    if loop is None:
        counted = [UNKNOWN] * 8 if report.doubts else ["none", *["-"] * 7]
    else:
        moves = loop.counts[Kind.MOVE] + loop.counts[Kind.SHUFFLE]
        index = loop.counts[Kind.INT] + loop.counts[Kind.SCALAR]
        per_byte = " ".join(_per_byte(report, space) for space in ("global", "local"))
        counted = [str(loop.total), str(loop.math), share(loop.share), "\n".join(loads(report))]
        counted += [str(moves), str(index), str(loop.counts[Kind.BARRIER]), per_byte]
    limit = f" ({report.bound.limit})" if report.bound.limit not in ("", "nothing") else ""
    unknown = f"{UNKNOWN} (scratch)" if report.bound.scratch else UNKNOWN
    bound = unknown if report.bound.share is None else f"≤ {share(report.bound.share)}{limit}"
    return [report.target, *own, *counted, "\n".join(conflicts(report)), bound]


def occupancy(report: Report, short: bool = False) -> str:
    """Threads of how many, and the limit; in short without what a thread is called."""
    room = report.occupancy
    if room is None:
        return UNKNOWN
    limit = f" ({room.limit})" if room.limit else ""
    return f"{room.threads:g} of {room.most}{'' if short else f' {room.unit}'}{limit}"


def loads(report: Report) -> list[str]:
    """`32 LDS.128`, most first."""
    found = report.loop.loads if report.loop else {}
    return [f"{count} {how}" for (_, how, _), count in sorted(found.items(), key=lambda x: -x[1])] or ["none"]


def _per_byte(report: Report, space: Space) -> str:
    loop = report.loop
    if loop is None or loop.bytes.get(space) == 0 or space not in loop.bytes:
        return "-"
    return number(loop.flops_per_byte(space), 2)


def conflicts(report: Report) -> list[str]:
    """The accesses to local memory that banks slow down, as the layout predicts."""
    if report.accesses is None or (report.machine.figures.banks is None and report.compiled.resources.local_bytes):
        return [UNKNOWN]
    found = [x for x in report.accesses if x.ways > 1]
    words = (f"{x.buffer} {'store' if x.is_store else 'load'} of {x.bytes} B: {x.ways:g}-way" for x in found)
    return list(dict.fromkeys(words)) or ["none"]


# --- the listing ----------------------------------------------------------------------------------


def legend() -> str:
    """What the marks of a listing mean."""
    return ", ".join(f"{mark} {kind.value}" for kind, mark in MARKS.items())


def listing(report: Report, source: Sequence[str] = ()) -> str:
    """The hot loop, each instruction marked, each line of the source before the first that it made."""
    if not report.listing:
        return f"{report.target}: no hot loop: {'; '.join(report.notes) or 'no loop'}\n"
    lines = [f"{report.target}: {report.compiled.kernel}, the hot loop, {len(report.listing)} instructions"]
    lines.append(f"  {legend()}")
    before = 0
    for x in report.listing:
        if x.line and x.line != before and x.line <= len(source):
            lines.append(f"{x.line:5} | {source[x.line - 1].strip()}")
        before = x.line or before
        lines.append(f"      {MARKS[x.kind]} {x.text}")
    return "\n".join(lines) + "\n"


def by_source_line(instructions: Sequence[Instruction]) -> list[tuple[int, list[Instruction]]]:
    """Neighbouring instructions of one line together."""
    out: list[tuple[int, list[Instruction]]] = []
    for x in instructions:
        if out and (x.line in (0, out[-1][0])):
            out[-1][1].append(x)
        else:
            out.append((x.line, [x]))
    return out


# --- plain values ---------------------------------------------------------------------------------


def plain(outcome: Outcome, name: str) -> dict[str, object]:
    """A report as JSON holds it; what is not known is null."""
    machine = outcome.machine
    head: dict[str, object] = {"kernel": name, "target": machine.target, "device": machine.name}
    if isinstance(outcome, Failure):
        return {**head, "problems": list(outcome.problems)}
    r, room, bound = outcome.compiled.resources, outcome.occupancy, outcome.bound
    return {
        **head,
        "entry_point": outcome.compiled.kernel,
        "compiler": outcome.compiled.compiler,
        "lanes": r.lanes,
        "registers": r.registers,
        "scratch_bytes": r.scratch,
        "spills": r.spills,
        "local_bytes": r.local_bytes,
        "group": r.group,
        "occupancy": None
        if room is None
        else {"value": room.threads, "of": room.most, "unit": room.unit, "limit": room.limit},
        "hot_loop": _plain_loop(outcome),
        "bank_conflicts": None
        if outcome.accesses is None
        else [{"buffer": x.buffer, "store": x.is_store, "bytes": x.bytes, "ways": x.ways} for x in outcome.accesses],
        "static_bound": {
            "share": bound.share,
            "limit": bound.limit or None,
            "parts": bound.shares,
            "scratch_messages": bound.scratch,
        },
        "doubts": list(outcome.doubts),
        "notes": list(notes(outcome)),
    }


def _plain_loop(report: Report) -> dict[str, object] | None:
    loop = report.loop
    if loop is None:
        return None
    return {
        "instructions": loop.total,
        "multiply_adds": loop.math,
        "share": loop.share,
        "conditional": loop.conditional,
        "flops": None if loop.fmas is None else 2 * loop.fmas,
        "counts": {kind.value: count for kind, count in loop.counts.most_common()},
        "accesses": [
            {"space": space, "how": how, "store": is_store, "count": count}
            for (space, how, is_store), count in loop.loads.items()
        ],
        "multiply_adds_per_access": loop.math / loop.messages if loop.messages else None,
        "flops_per_byte": {space: loop.flops_per_byte(space) for space in loop.bytes},
    }
