"""What is said of a kernel on a target, from what its compiler left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gemmgen.banks import LocalAccess
from gemmgen.inspect import bounds
from gemmgen.inspect.bounds import Bound, Occupancy, Traffic, cache_needs
from gemmgen.inspect.code import MATH, Compiled, Instruction, Kind, Listing, Loop, Loops, Space, find_loops
from gemmgen.inspect.machine import Machine

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Subject:
    """What is known of a kernel beside its machine code; a user's file says less.

    Attributes:
        accesses: to local memory; None where addresses are not known.
        step_fmas: multiply-adds of a work-item in a step of the main loop.
        sizes: M, N, K that the roofline is drawn for.
        traffic: what its tiles ask of caches; None where that is not known.
    """

    name: str
    accesses: tuple[LocalAccess, ...] | None = None
    step_fmas: int = 0
    sizes: tuple[int, int, int] = (4096, 4096, 4096)
    traffic: Traffic | None = None


@dataclass(frozen=True, slots=True)
class HotLoop:
    """Counts of the hot loop's own instructions, for a thread and a round.

    Attributes:
        counts: of each kind.
        conditional: how many stand behind a condition; they are counted all the same.
        fmas: multiply-adds of all lanes; None where an instruction's are not known.
        loads: (space, kind and width, whether it stores) -> how many.
        bytes: loaded from each memory, all lanes; None where an instruction does not say.
    """

    instructions: tuple[Instruction, ...]
    counts: Counter[Kind]
    conditional: int
    fmas: int | None
    loads: dict[tuple[Space, str, bool], int]
    bytes: dict[Space, int | None]

    @property
    def total(self) -> int:
        return len(self.instructions)

    @property
    def math(self) -> int:
        """Instructions that multiply and add."""
        return sum(self.counts[kind] for kind in MATH)

    @property
    def share(self) -> float:
        """Of its instructions, those that multiply and add."""
        return self.math / self.total

    @property
    def messages(self) -> int:
        """Loads and stores."""
        return self.counts[Kind.LOAD] + self.counts[Kind.STORE]

    @property
    def scratch_messages(self) -> int:
        """Those of them that spills and arrays in scratch memory cost."""
        return sum(count for (space, _, _), count in self.loads.items() if space == "scratch")

    def flops_per_byte(self, space: Space) -> float | None:
        """As loaded, repeats included."""
        moved = self.bytes.get(space)
        return None if self.fmas is None or not moved else 2 * self.fmas / moved


@dataclass(frozen=True, slots=True)
class Report:
    """A kernel on a target.

    Attributes:
        loop: None where there is none, or where it can't be trusted (`doubts`).
        listing: of the hot loop, whether its counts are trusted or not.
        doubts: why counts are not given.
        notes: what to know when reading the counts.
    """

    machine: Machine
    compiled: Compiled
    occupancy: Occupancy | None
    loop: HotLoop | None
    listing: tuple[Instruction, ...]
    bound: Bound
    accesses: tuple[LocalAccess, ...] | None
    doubts: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def target(self) -> str:
        return self.machine.target


def report(machine: Machine, compiled: Compiled, subject: Subject) -> Report:
    """Everything that is said of a kernel on a target."""
    loops = find_loops(compiled.listing)
    r = compiled.resources
    room = None if r.at_launch and r.local_bytes is None else bounds.occupancy(machine, r)
    code = compiled.listing.instructions
    members = tuple(code[i] for i in loops.hot.own) if loops.hot else ()
    doubts = (*_doubts(compiled.listing, loops, members), *_calls(compiled.listing, loops))
    hot = _hot(compiled.listing, loops.hot) if loops.hot and not doubts else None
    always = [code[i] for i in loops.hot.own if i in loops.hot.always] if loops.hot else []
    bound = _bound(machine, compiled, subject, hot, always, room)
    notes = (*compiled.notes, *_notes(compiled.listing, loops), *cache_needs(machine, subject.traffic))
    return Report(machine, compiled, room, hot, members, bound, subject.accesses, doubts, notes)


def _hot(listing: Listing, loop: Loop) -> HotLoop:
    members = tuple(listing.instructions[i] for i in loop.own)
    loads: Counter[tuple[Space, str, bool]] = Counter()
    moved: dict[Space, int | None] = {}
    for x in members:
        if x.access is None:
            continue
        loads[x.access.space, x.access.how, x.kind is Kind.STORE] += 1
        if x.kind is Kind.LOAD:
            so_far = moved.get(x.access.space, 0)
            moved[x.access.space] = None if so_far is None or x.access.bytes is None else so_far + x.access.bytes
    known = [x.fmas for x in members if x.kind in MATH]
    fmas = sum(x for x in known if x is not None) if None not in known else None
    conditional = len(loop.own) - len(loop.always.intersection(loop.own))
    return HotLoop(members, listing.counted(loop.own), conditional, fmas, dict(loads), moved)


def _doubts(listing: Listing, loops: Loops, members: Sequence[Instruction]) -> list[str]:
    """Why the loop's counts can't be trusted."""
    doubts = []
    if listing.strange:
        shown = "; ".join(f"`{line}`" for line in listing.strange[:_SHOWN])
        doubts.append(f"{len(listing.strange)} lines of the disassembly are not understood: {shown}")
    unknown = [x for x in members if x.kind is Kind.UNKNOWN]
    unknown += [x for x in listing.instructions if x.kind is Kind.UNKNOWN and any(n in x.text for n in listing.labels)]
    if unknown:
        shown = "; ".join(f"`{x.text}`" for x in unknown[:_SHOWN])
        doubts.append(f"{len(unknown)} instructions are not known here: {shown}")
    nowhere = {label for x in listing.instructions for label in x.targets if label not in listing.labels}
    if nowhere:
        doubts.append(f"branches lead where no label is: {', '.join(f'`{x}`' for x in sorted(nowhere)[:_SHOWN])}")
    if not loops.regular:
        doubts.append("a loop has several entrances: which instructions it repeats is not certain")
    return doubts


def _calls(listing: Listing, loops: Loops) -> list[str]:
    """A loop is not known by its own instructions where each round also runs those of a function."""
    always = (listing.instructions[i] for i in (loops.hot.always if loops.hot else ()))
    called = {x.text for x in always if x.calls}
    shown = "; ".join(f"`{text}`" for text in sorted(called)[:_SHOWN])
    return [f"the loop calls functions, whose instructions stand elsewhere: {shown}"] if called else []


def _notes(listing: Listing, loops: Loops) -> list[str]:
    calling = sum(any(listing.instructions[i].calls for i in loop.body) for loop in loops.all)
    notes = [f"functions are called in {calling} of {len(loops.all)} loops, and not counted there"] if calling else []
    if loops.hot is None:
        some = f"{len(loops.all)} loop{'s' if len(loops.all) > 1 else ''}, none of which multiplies and adds"
        return [some if loops.all else "no loop", *notes]
    code = listing.instructions
    if loops.rivals:
        others = ", ".join(f"{x.math / len(x.own):.3f} of {len(x.own)}" for x in loops.rivals[:_SHOWN])
        notes.append(
            f"{len(loops.rivals) + 1} loops have {loops.hot.math} multiply-adds each: shown is the shortest; "
            f"share of the others: {others}"
        )
    if inner := loops.inner(loops.hot):
        notes.append(f"loops inside the hot one are not counted: {sum(len(x.own) for x in inner)} instructions")
    around = (len(outer.own) for outer in loops.outer(loops.hot))
    notes += (f"a loop around the hot one has {number} more instructions, not counted" for number in around)
    math = sum(x.kind in MATH for x in code)
    if loops.hot.math * 4 < math:
        notes.append(f"the hot loop holds {loops.hot.math} of the kernel's {math} multiply-adds")
    outside = {x.text for i, x in enumerate(code) if x.kind is Kind.UNKNOWN and i not in loops.hot.own}
    if outside:
        notes.append(f"not known, outside the hot loop: {'; '.join(sorted(outside)[:_SHOWN])}")
    return notes


def _bound(
    machine: Machine,
    compiled: Compiled,
    subject: Subject,
    hot: HotLoop | None,
    always: Sequence[Instruction],
    room: Occupancy | None,
) -> Bound:
    lanes = compiled.resources.lanes
    issue = local = None
    if hot is not None and hot.fmas and lanes:
        issue = bounds.issue_share(machine, lanes, always, hot.fmas, room.threads if room else None)
        loaded = hot.bytes.get("local", 0)
        if machine.figures.banks is None or loaded == 0:
            local = None if loaded is None else bounds.local_share_of_bytes(machine, hot.fmas, loaded)
        elif subject.accesses is not None:
            local = bounds.local_share_of_words(machine, subject.step_fmas * lanes, subject.accesses)
    shares = {"issue slots": issue, "local memory": local, "memory": bounds.memory_share(machine, subject.sizes)}
    return Bound(shares, 0 if hot is None else hot.scratch_messages)
