"""Whether a head comment says of a schedule what the kernels hold that are printed below it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from math import prod

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.expr import as_int
from gemmgen.ir.kernel import Kernel, Program
from gemmgen.ir.stmt import Alloc, For, TmaCopy, VectorCopy
from gemmgen.ir.synchronization import Mbarrier, SetMaxRegisters
from gemmgen.ir.walk import walk
from gemmgen.source import Source

#: What the sentences are about -> how they say it, numbers in groups.
CLAIMS: dict[str, str] = {
    "tile": r"of C per (?:group|block), (\d+)x(\d+) per (?:work-item|thread)",
    "group": r"(?:Work-items|Threads) (\d+)(?:x(\d+))? per (?:group|block)",
    "consumers": r"(\d+ consumer (?:warpgroup|warp))",
    "producers": r"(\d+ producer (?:warpgroup|warp))",
    "stages": r"(\d+) stages in (?:local|shared) memory(?!, stored)",
    "batch": r"a full and an empty mbarrier for (?:each|every (\d+)) stage",
    "registers": r"(\d+) registers per thread:.* (\d+) registers per thread:",
    "persistent": r"(persistent (?:group|block)s)",
    "cluster": r"clusters of (\d+) ",
    "second": r"(added up by a second kernel)",
    "added": r"(atomic additions)",
    "stream": r"(stream-K)",
    "slots": r"(\d+) stages? in (?:local|shared) memory, stored by TMA",
    "asynchronous": r"(cp\.async)",
    "maps": r"(TMA, | TMA )",
    "packed": r"(prepacked by a kernel before)",
}


def head_of(source: Source) -> str:
    """The sentences of the head comment about the schedule, in one line."""
    lines = [line.removeprefix("//") for line in source.text.split("\n\n", 1)[0].splitlines()]
    return " ".join(" ".join(lines).partition(" Sizes ")[0].split())


def claims(source: Source) -> dict[str, tuple[str | None, ...]]:
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


def _numbers(said: Mapping[str, tuple[str | None, ...]], key: str) -> list[int]:
    return [int(text.split()[0]) for text in said.get(key, ()) if text is not None]


def _equal(key: str) -> Callable[[Mapping[str, tuple[str | None, ...]], object], str | None]:
    """A check of numbers that the kernels hold as they are; none stand for none."""

    def check(said: Mapping[str, tuple[str | None, ...]], there: object) -> str | None:
        found = _numbers(said, key) or None
        return None if found == there else f"the kernels have {there}"

    return check


def _there(key: str) -> Callable[[Mapping[str, tuple[str | None, ...]], object], str | None]:
    """A check of something that is there or not."""

    def check(said: Mapping[str, tuple[str | None, ...]], there: object) -> str | None:
        return None if (key in said) == bool(there) else f"in the kernels that is {bool(there)}"

    return check


def _work_items(said: Mapping[str, tuple[str | None, ...]], there: object) -> str | None:
    units = (text for key in ("consumers", "producers") for text in said.get(key, ()) if text is not None)
    count = sum(int(text.split()[0]) * (128 if text.endswith("warpgroup") else 32) for text in units)
    count = count or prod(_numbers(said, "group"))
    return None if count == there else f"{count} work-items are launched as {there}"


def _together(said: Mapping[str, tuple[str | None, ...]], there: object) -> str | None:
    (count,) = _numbers(said, "cluster") or [1]
    return None if count == there else f"the kernel has clusters of {there}"


_CHECKS: dict[str, Callable[[Mapping[str, tuple[str | None, ...]], object], str | None]] = {
    "tile": lambda said, there: (
        None if there in (None, _numbers(said, "tile")[0] * _numbers(said, "tile")[1]) else f"there are {there} sums"
    ),
    "group": _work_items,
    "stages": _equal("stages"),
    "batch": lambda said, there: (
        None
        if there is None or (_numbers(said, "stages") or [1])[0] // (_numbers(said, "batch") or [1])[0] == there
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
    tiles = [x for x in buffers.values() if x.space is Space.LOCAL and x.name in ("a_shared", "b_shared")]
    # Of steps of one line, a slot is that line.
    lines = any(isinstance(s, For) and s.var.name == "k0" and s.step == 1 for s in body)
    rings = {as_int(x.shape[0]) or 1 if lines and len(x.shape) == 2 else _slots(x) for x in tiles}
    yield "stages", None if rings <= {1} else sorted(rings - {1})
    counts = {s.count for s in body if isinstance(s, Mbarrier) and s.verb == "init"}
    yield "batch", max(counts) if counts else None
    shares = sorted({s.registers for s in body if isinstance(s, SetMaxRegisters)}, reverse=True)
    yield "registers", shares or None
    yield "persistent", main.persistent
    yield "cluster", main.cluster
    yield "second", any(kernel is not main and kernel.name.endswith("_total") for kernel in program.kernels)
    yield "added", any(isinstance(s, VectorCopy) and s.atom.adds for s in body)
    yield "stream", main.asks_device
    stores = {_slots(s.src) for s in body if isinstance(s, TmaCopy) and s.mbarrier is None}
    yield "slots", sorted(stores) or None
    yield "asynchronous", any(isinstance(s, VectorCopy) and s.atom.is_async for s in body)
    yield "maps", any(isinstance(s, TmaCopy) and s.mbarrier is not None for s in body)
    yield "packed", any(map(_packs, program.kernels))


def _packs(kernel: Kernel) -> bool:
    return kernel.prepacks


def _slots(buffer: Buffer) -> int:
    """Tiles of a ring, or boxes."""
    return (as_int(buffer.shape[0]) or 1) if len(buffer.shape) > 2 else 1
