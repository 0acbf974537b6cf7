"""A schedule seen flat, as the command line, TOML and Python's keywords have it: `field -> value`, with the operands'
fields as `a.width` and so on.

Which member of each axis is meant follows from the keys. A key that means nothing to it is refused here, by one rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TypeVar, cast

from gemmgen.errors import ScheduleError
from gemmgen.records import dataclass
from gemmgen.schedule.cpu_panel import CpuPanel
from gemmgen.schedule.direct import Direct, Gemv, SubGroup
from gemmgen.schedule.dpas import Dpas, DpasBlock2D, JointMatrix
from gemmgen.schedule.epilogues import Epilogue, Registers, Staged
from gemmgen.schedule.fields import (
    HOLDS,
    WORDS,
    Chosen,
    Flat,
    Meaning,
    Value,
    meanings,
    no_field,
    text_of,
)
from gemmgen.schedule.mainloop import Mainloop
from gemmgen.schedule.operand import Operand
from gemmgen.schedule.schedulers import (
    AtomicSplitK,
    ClusterSplitK,
    OneTile,
    Persistent,
    Scheduler,
    SplitK,
    StreamK,
    TileScheduler,
)
from gemmgen.schedule.shared_memory import SharedMemory
from gemmgen.schedule.tiling import ThreadTiling, Tiling
from gemmgen.schedule.tma_ring import TmaRing
from gemmgen.schedule.warp_mma import DirectMma, Mfma, WarpMma
from gemmgen.schedule.warpgroup_mma import WarpgroupMma

MAINLOOPS: tuple[type[Mainloop], ...] = (
    Direct,
    SubGroup,
    SharedMemory,
    TmaRing,
    WarpMma,
    DirectMma,
    WarpgroupMma,
    Dpas,
    DpasBlock2D,
    JointMatrix,
    Mfma,
    CpuPanel,
    Gemv,
)
SCHEDULERS: tuple[type[TileScheduler], ...] = (OneTile, SplitK, AtomicSplitK, ClusterSplitK, StreamK, Persistent)
EPILOGUES: tuple[type[Epilogue], ...] = (Registers, Staged)
TILINGS: tuple[type[Tiling], ...] = (Tiling, ThreadTiling)
#: The members of each axis.
AXES: Mapping[str, tuple[type, ...]] = {
    "tiling": TILINGS,
    "mainloop": MAINLOOPS,
    "epilogue": EPILOGUES,
    "scheduler": SCHEDULERS,
}
Parts = tuple[Tiling, Mainloop, Epilogue, TileScheduler]
_Member = TypeVar("_Member")


@dataclass(frozen=True, slots=True)
class Key:
    """A field as a user writes it, of all members that have it.

    Attributes:
        kind: what it holds: `int`, `bool`, `Pair`, or a kind of words.
        optional: whether it may be none.
        words: those that it may be.
        help: a line about it.
        like: an example, for messages.
        least, most: of each of its numbers. The upper limit only keeps nonsense out early.
        tries: values that are worth trying.
        members: those that have it, or that it chooses.
    """

    kind: str
    optional: bool
    words: tuple[str, ...]
    help: str
    like: str
    least: int
    most: int
    tries: tuple[Value, ...]
    members: tuple[type, ...]

    @property
    def values(self) -> str:
        """What it may hold, for a reader."""
        named = self.words or self.kind == "bool"
        return ", ".join(map(text_of, self.tries)) if named else f"{self.least} to {self.most}"


def keys_of(plain: Mapping[str, Value]) -> dict[str, Key]:
    """Every key, in the order of `plain`, which has the values that mean that a field is not there."""
    found = {key: list(_having(key)) for key in plain}
    return {key: _key(having, plain[key]) for key, having in found.items()}


def _having(key: str) -> Iterator[tuple[type, str, Meaning]]:
    """The members that have a field or are chosen by it, with its annotation and its meaning there."""
    if "." in key:
        yield Operand, *meanings(Operand)[key.partition(".")[2]]
        return
    for members in AXES.values():
        for member in members:
            chosen: Chosen | None = getattr(member, "chosen_by", None)
            if chosen is not None and chosen.key == key:
                yield member, "bool", Meaning(chosen.help, "true", 0, 1, (False, True))
            elif key in meanings(member):
                yield member, *meanings(member)[key]


def _key(having: list[tuple[type, str, Meaning]], plain: Value) -> Key:
    members, annotations, all_meanings = zip(*having, strict=True)
    first: Meaning = all_meanings[0]
    kind = annotations[0].removesuffix(" | None")
    # Each mainloop has atoms of its own.
    kind = "Atom" if kind.endswith("Atom") else kind
    words = WORDS.get(kind, ())
    numbers = [n for n in (plain if isinstance(plain, tuple) else (plain,)) if isinstance(n, int)]
    tries = words or tuple(dict.fromkeys(x for each in all_meanings for x in each.tries))
    return Key(
        kind,
        " | None" in annotations[0],
        words,
        first.help,
        first.like,
        min([*(each.least for each in all_meanings), *numbers]),
        max(each.most for each in all_meanings),
        tries,
        members,
    )


# --- from keys to members -------------------------------------------------------------------------


def checked(given: Mapping[str, object], known: Mapping[str, Key]) -> Flat:
    """The same, of the right types. Raises: ScheduleError."""
    flat: Flat = {}
    problems = []
    for key, value in given.items():
        if key in ("a", "b"):
            problems.append(f"{key} = {value!r}: give a gemmgen.Operand")
            continue
        if key not in known:
            problems.append(no_field(key, known))
            continue
        (what, holds), optional = HOLDS[known[key].kind], known[key].optional
        if holds(value) or (optional and value is None):
            flat[key] = cast("Value", value)
        else:
            what += ", or None" if optional else ""
            problems.append(f"{key} = {value!r}: give {what}")
    if problems:
        raise ScheduleError(problems)
    return flat


def assembled(
    flat: Mapping[str, Value],
    known: Mapping[str, Key],
    plain: Mapping[str, Value],
    implied: Mapping[str, Value] = MappingProxyType({}),
) -> Parts:
    """The members that the keys mean.

    Args:
        implied: what holds of a schedule that is changed although nobody said so. It counts where it means something.

    Raises: ScheduleError with every key that means nothing to them, and every value that they do not take.
    """
    problems: list[str] = []
    merged = {**implied, **flat}
    chosen = _mainloop(merged)
    out, tiles = _epilogue(merged, chosen), _scheduler(merged, chosen)
    tiling = _made(chosen.tiling, merged, problems) or chosen.tiling()
    fixed = {**plain, **_fixed(chosen, str(merged.get("atom")), tiling)}
    operands = {name: _operand(name, chosen, (flat, implied), fixed, plain, problems) for name in "ab"}
    mainloop = _made(chosen, {**merged, **operands}, problems)
    epilogue, scheduler = _made(out, merged, problems), _made(tiles, merged, problems)
    axes = {"tiling": chosen.tiling, "mainloop": chosen, "epilogue": out, "scheduler": tiles}
    problems += _meaningless(flat, known, (fixed, plain), chosen, axes)
    if problems or mainloop is None or epilogue is None or scheduler is None:
        raise ScheduleError(problems)
    return tiling, mainloop, epilogue, scheduler


def _mainloop(flat: Mapping[str, Value]) -> type[Mainloop]:
    """By what multiplies; where work-items do by themselves, by where their operands come from."""
    atom = flat.get("atom")
    if atom == "dpas":
        return DpasBlock2D if flat.get("block_2d") else Dpas
    if atom == "joint_matrix":
        return JointMatrix
    if atom == "mfma":
        return Mfma
    if atom in WORDS["WarpAtom"]:
        return DirectMma if flat.get("direct") else WarpMma
    if atom in WORDS["WarpgroupAtom"]:
        return WarpgroupMma
    if flat.get("vector", 1) != 1:
        return CpuPanel
    if flat.get("tma"):
        return TmaRing
    if flat.get("lanes_along_k", 1) != 1:
        return Gemv
    memories = {flat.get("a.memory"), flat.get("b.memory")}
    if "local" in memories:
        return SharedMemory
    together = any(flat.get(f"{name}.{key}") for name in "ab" for key in ("block_read", "shuffle"))
    return SubGroup if together or "image" in memories else Direct


def _epilogue(flat: Mapping[str, Value], mainloop: type[Mainloop]) -> type[Epilogue]:
    return Staged if flat.get("epilogue_stages", 0) != 0 and Staged in mainloop.epilogues else Registers


def _scheduler(flat: Mapping[str, Value], mainloop: type[Mainloop]) -> type[Scheduler]:
    """The member that one of the keys chooses, of those that the mainloop goes with."""
    parts = ((ClusterSplitK, "cluster_reduction"), (SplitK, "split_k"))
    chosen = (x for x in mainloop.schedulers if x.chosen_by is not None and flat.get(x.chosen_by.key))
    by_number = (x for x, key in parts if x in mainloop.schedulers and flat.get(key, 1) != 1)
    return next(chosen, None) or next(by_number, OneTile)


def _made(member: type[_Member], flat: Mapping[str, object], problems: list[str]) -> _Member | None:
    """A record of those of the keys that are its fields; None, with problems noted, where it does not take them."""
    own = {item.name: flat[item.name] for item in fields(member) if item.name in flat}  # type: ignore[arg-type]
    try:
        return member(**own)
    except ScheduleError as error:
        problems += error.problems
    return None


def _operand(
    name: str,
    mainloop: type[Mainloop],
    said_or_implied: tuple[Mapping[str, Value], Mapping[str, Value]],
    fixed: Mapping[str, Value],
    plain: Mapping[str, Value],
    problems: list[str],
) -> Operand:
    """A or B. What means nothing to it must be as it is without being said."""
    flat, implied = said_or_implied
    usual = {key: fixed[f"{name}.{key}"] for key in meanings(Operand)}
    given = {key: flat.get(f"{name}.{key}", value) for key, value in usual.items()}
    merged = {
        key: implied.get(f"{name}.{key}", value) if f"{name}.{key}" not in flat else value
        for key, value in given.items()
    }
    try:
        operand = Operand(**merged)  # type: ignore[arg-type]
    except ScheduleError as error:
        problems += (f"{name}.{problem}" for problem in error.problems)
        return Operand()
    own = mainloop.operand_keys(name, operand)
    if "memory" in own and operand.memory not in mainloop.memories:
        problems.append(
            f"{name}.memory = {operand.memory}, but {_named(mainloop, 'mainloop')} reads {name} from "
            f"{' or '.join(mainloop.memories)}: use {name}.memory {usual['memory']}"
        )
    whom = f"{name}.memory = {operand.memory}" if "memory" in own else _named(mainloop, "mainloop")
    for key, value in usual.items():
        if key not in own and given[key] != value:
            problems.append(_means_nothing(f"{name}.{key}", given[key], whom, value, plain))
    reset = {key: value for key, value in usual.items() if key not in own and merged[key] != value}
    return replace(operand, **reset) if reset else operand  # type: ignore[arg-type]


def misplaced(parts: Parts, plain: Mapping[str, Value]) -> Iterator[str]:
    """Fields of the members that mean nothing to the mainloop, and are not as it has them by itself."""
    mainloop, fixed = parts[1], {**plain, **_fixed_of(parts)}
    whom = _named(type(mainloop), "mainloop")
    for part in parts:
        for key in mainloop.without.intersection(meanings(type(part))):
            if (value := getattr(part, key)) != fixed[key]:
                yield _means_nothing(key, value, whom, fixed[key], plain)
    for name, operand in (("a", mainloop.a), ("b", mainloop.b)):
        for key in sorted(meanings(Operand).keys() - mainloop.operand_keys(name, operand)):
            if (value := getattr(operand, key)) != fixed[f"{name}.{key}"]:
                yield _means_nothing(f"{name}.{key}", value, whom, fixed[f"{name}.{key}"], plain)


def _meaningless(
    flat: Mapping[str, Value],
    known: Mapping[str, Key],
    usual: tuple[Mapping[str, Value], Mapping[str, Value]],
    mainloop: type[Mainloop],
    chosen: Mapping[str, type],
) -> Iterator[str]:
    """Keys of other members that are not as they would be without being said."""
    fixed, plain = usual
    for key, value in flat.items():
        if "." in key or (key not in mainloop.without and any(x in known[key].members for x in chosen.values())):
            continue
        # What work-items store means nothing where C is staged: 1 says so, too.
        if value == fixed[key] or (key == "c_width" and chosen["epilogue"] is Staged and value == 1):
            continue
        axis = next(name for name, members in AXES.items() if any(x in members for x in known[key].members))
        taken = {"epilogue": mainloop.epilogues, "scheduler": mainloop.schedulers}.get(axis, ())
        others = key not in mainloop.without and any(x in known[key].members for x in taken)
        whom = _named(chosen[axis], axis) if others else _named(mainloop, "mainloop")
        yield _means_nothing(key, value, whom, fixed[key], plain)


def _named(member: type, axis: str) -> str:
    return f"{axis} {member.__name__}"


def _means_nothing(key: str, value: Value, whom: str, instead: Value, plain: Mapping[str, Value]) -> str:
    remedy = f"use {key} {text_of(instead)}"
    # Left out it is what a plain schedule has.
    remedy = f"leave it out, or {remedy}" if instead == plain[key] else remedy
    return f"{key} = {text_of(value)} means nothing to {whom}: {remedy}"


# --- from members to keys -------------------------------------------------------------------------


def axis_of(key: str) -> str:
    """The axis whose members have a field, or are chosen by it."""
    having = [member for member, _, _ in _having(key)]
    return next(axis for axis, members in AXES.items() if any(member in members for member in having))


def without_being_said(parts: Parts, key: str, plain: Value) -> Value:
    """What a key has where no member has a field of that name: true if it chose one, what the mainloop leaves no choice
    of, or `plain`.
    """
    _, mainloop, _, scheduler = parts
    for part in (mainloop, scheduler):
        if part.chosen_by is not None and part.chosen_by.key == key:
            return True
    return _fixed_of(parts).get(key, plain)


def _fixed(mainloop: type[Mainloop], atom: str, tiling: Tiling) -> Mapping[str, Value]:
    return _fixed_by_name(mainloop.__name__, atom, tiling)


@lru_cache(maxsize=1024)
def _fixed_by_name(mainloop: str, atom: str, tiling: Tiling) -> Mapping[str, Value]:
    """Asked for so often that it is made once."""
    return next(member for member in MAINLOOPS if member.__name__ == mainloop).fixed(atom, tiling)


def _fixed_of(parts: Parts) -> Mapping[str, Value]:
    """The values that the mainloop leaves no choice of."""
    tiling, mainloop = parts[:2]
    return _fixed(type(mainloop), str(getattr(mainloop, "atom", None)), tiling)


def said(parts: Parts, plain: Mapping[str, Value]) -> tuple[Flat, Flat]:
    """What makes a schedule another than a plain one: the fields that it has, and what holds without being said."""
    mainloop = parts[1]
    own: Flat = {}
    for part in parts:
        own |= {key: getattr(part, key) for key in meanings(type(part)) if key in plain and key not in mainloop.without}
        chosen: Chosen | None = getattr(part, "chosen_by", None)
        own |= {chosen.key: True} if chosen is not None else {}
    for name, operand in (("a", mainloop.a), ("b", mainloop.b)):
        keys_of_it = mainloop.operand_keys(name, operand)
        own |= {f"{name}.{key}": getattr(operand, key) for key in keys_of_it}
    implied = _unlike(_fixed_of(parts), plain)
    return _unlike(own, plain), {key: value for key, value in implied.items() if key not in own}


def _unlike(flat: Mapping[str, Value], plain: Mapping[str, Value]) -> Flat:
    return {key: value for key, value in flat.items() if value != plain[key]}
