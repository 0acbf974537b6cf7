"""Whether a head comment says of a schedule what the kernels hold that are printed below it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.expr import as_int
from gemmgen.ir.kernel import Kernel, Program
from gemmgen.ir.meetings import Mbarrier, RegisterShare
from gemmgen.ir.stmt import Alloc, BoxCopy, Move
from gemmgen.ir.walk import walk
from gemmgen.source import Source

#: What the sentences are about -> how they say it, numbers in groups.
CLAIMS: dict[str, str] = {
    "tile": r"\b(\d+)x(\d+) of C per (?:work-item|thread),",
    "group": r"of C per (?:work-item|thread), (\d+)x(\d+) (?:work-item|thread)s per",
    "slices": r"each step in (\d+) slices",
    "producers": r"brought by one of (\d+) more",
    "stages": r"\b(\d+) tiles in (?:local|shared) memory at a time",
    "batch": r"handed over by (\d+) with a pair of mbarriers",
    "registers": r"registers handed over: (\d+) to each that multiplies, (\d+) to each of the others",
    "persistent": r"(as many (?:group|block)s as run at once)",
    "cluster": r"clusters of (\d+)x(\d+) ",
    "joined": r"clusters of (\d+) (?:group|block)s add up",
    "split": r"K in (\d+) parts",
    "second": r"(and then a second kernel|a second kernel adds up)",
    "added": r"(are added to C as they come)",
    "stream": r"(for each multiprocessor of the device)",
    "slots": r"stores of boxes, by way of (\d+ slots|a slot)",
    "asynchronous": r"(asynchronous copies)",
    "maps": r"(by tensor maps)",
    "packed": r"(packed (?:into whole tiles )?by a kernel)",
}


def head_of(source: Source) -> str:
    """The sentences of the head comment about the schedule, in one line."""
    lines = [line.removeprefix("//") for line in source.text.split("\n\n", 1)[0].splitlines()]
    return " ".join(" ".join(lines).partition(" Sizes ")[0].split())


def claims(source: Source) -> dict[str, tuple[str, ...]]:
    """What the head comment says, by `CLAIMS`."""
    head = head_of(source)
    return {key: found.groups() for key, pattern in CLAIMS.items() if (found := re.search(pattern, head))}


def problems(source: Source, program: Program) -> list[str]:
    """What the head comment says that the kernels do not hold, and what these hold that it leaves out."""
    said, held = claims(source), dict(_held(program))
    if "tile" not in said:  # a kernel without a product, or of vectors, which have words of their own
        return []
    wrong = []
    for key, check in _CHECKS.items():
        there = held.get(key)
        if (problem := check(said, there)) is not None:
            wrong.append(f"{source.name}: the head comment says of {key} {said.get(key)}, but {problem}")
    return wrong


def _numbers(said: Mapping[str, tuple[str, ...]], key: str) -> list[int]:
    return [1 if text == "a slot" else int(text.split()[0]) for text in said.get(key, ())]


def _equal(key: str) -> Callable[[Mapping[str, tuple[str, ...]], object], str | None]:
    """A check of numbers that the kernels hold as they are; none stand for none."""

    def check(said: Mapping[str, tuple[str, ...]], there: object) -> str | None:
        found = _numbers(said, key) or None
        return None if found == there else f"the kernels have {there}"

    return check


def _there(key: str) -> Callable[[Mapping[str, tuple[str, ...]], object], str | None]:
    """A check of something that is there or not."""

    def check(said: Mapping[str, tuple[str, ...]], there: object) -> str | None:
        return None if (key in said) == bool(there) else f"in the kernels that is {bool(there)}"

    return check


def _work_items(said: Mapping[str, tuple[str, ...]], there: object) -> str | None:
    high, wide = _numbers(said, "group")
    slices, more = (_numbers(said, "slices") or [1])[0], (_numbers(said, "producers") or [0])[0]
    count = high * wide * slices + more
    return None if count == there else f"{count} work-items are launched as {there}"


def _together(said: Mapping[str, tuple[str, ...]], there: object) -> str | None:
    rows, cols = _numbers(said, "cluster") or [1, 1]
    count = rows * cols * (_numbers(said, "joined") or [1])[0]
    return None if count == there else f"the kernel has clusters of {there}"


_CHECKS: dict[str, Callable[[Mapping[str, tuple[str, ...]], object], str | None]] = {
    "tile": lambda said, there: (
        None if there in (None, _numbers(said, "tile")[0] * _numbers(said, "tile")[1]) else f"there are {there} sums"
    ),
    "group": _work_items,
    "stages": _equal("stages"),
    "batch": lambda said, there: (
        None
        if there is None or _numbers(said, "batch") in ([], [(_numbers(said, "stages") or [0])[0] // int(str(there))])
        else f"{there} mbarriers hand over"
    ),
    "registers": _equal("registers"),
    "persistent": _there("persistent"),
    "cluster": _together,
    "second": _there("second"),
    "added": _there("added"),
    "stream": _there("stream"),
    "slots": _equal("slots"),
    "asynchronous": _there("asynchronous"),
    "maps": _there("maps"),
    "packed": _there("packed"),
}


def _held(program: Program) -> Iterator[tuple[str, object]]:
    """The same of the kernels."""
    main = program.main
    body = list(walk(main.body))
    buffers = {s.buffer.name: s.buffer for s in body if isinstance(s, Alloc)}
    if (acc := buffers.get("acc")) is not None:
        yield "tile", acc.elements
    yield "group", main.group[0] * main.group[1]
    rings = {_slots(x) for x in buffers.values() if x.space is Space.LOCAL and x.name in ("a_shared", "b_shared")}
    yield "stages", None if rings <= {1} else sorted(rings - {1})
    counts = {s.count for s in body if isinstance(s, Mbarrier) and s.verb == "init"}
    yield "batch", max(counts) if counts else None
    shares = sorted({s.registers for s in body if isinstance(s, RegisterShare)}, reverse=True)
    yield "registers", shares or None
    yield "persistent", main.persistent
    yield "cluster", main.cluster
    yield "second", any(kernel is not main and kernel.name.endswith("_total") for kernel in program.kernels)
    yield "added", any(isinstance(s, Move) and s.atom.adds for s in body)
    yield "stream", main.asks_device
    stores = {_slots(s.src) for s in body if isinstance(s, BoxCopy) and s.tells is None}
    yield "slots", sorted(stores) or None
    yield "asynchronous", any(isinstance(s, Move) and s.atom.is_async for s in body)
    yield "maps", any(isinstance(s, BoxCopy) and s.tells is not None for s in body)
    yield "packed", any(map(_packs, program.kernels))


def _packs(kernel: Kernel) -> bool:
    return kernel.lays_out


def _slots(buffer: Buffer) -> int:
    """Tiles of a ring, or boxes."""
    return (as_int(buffer.shape[0]) or 1) if len(buffer.shape) > 2 else 1
