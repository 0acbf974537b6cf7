"""The methods: what each makes of a tile and a group, and how a schedule that departs from it is named.

A schedule is also seen flat here, as `field -> value` with the operands' fields as `a.width` and so on: the
command line, TOML and names all speak of single fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import cast, get_args

from gemmgen.schedule import Atom, Memory, Method, Operand, Schedule

Pair = tuple[int, int]
Value = int | bool | str | Pair | None
Flat = dict[str, Value]

METHODS: tuple[str, ...] = get_args(Method)
#: The sub-group sizes that devices offer; a wider group is cut into the widest of them.
_LANES = (32, 16, 8)


def defaults(
    method: str,
    tile: Pair | None = None,
    group: Pair | None = None,
    k_step: int | None = None,
    lanes: int | None = None,
) -> Schedule:
    """What a method makes of these (`lanes` are a sub-group's); whatever is left out follows from the rest."""
    return _RULES[method](tile, group, k_step, lanes)


def _naive(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    return Schedule(tile or (1, 1), group or (16, 16), k_step=k_step or 1, sub_group=lanes)


def _slm(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    rows, cols = tile or (8, 8)
    k_step = k_step or 8
    run = 1 if cols % 4 else 4
    a, b = Operand(memory="local", width=_widest(k_step, (4, 2, 1))), Operand(width=run)
    return Schedule((rows, cols), group or (8, 16), (rows, run), k_step, lanes, a, b)


#: Of 32 bits, that a sub-group's lanes share: 4 KiB on Intel's GPUs up to Xe-HPG.
_SUB_GROUP_REGISTERS = 1024


def _simd(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    rows, cols = tile or (32, 2)
    given = k_step
    group, k_step, lanes = _in_sub_groups(group, k_step, lanes)
    # C and what a step has in registers of B, or of A and of a part of B, take three quarters of the registers.
    room = _SUB_GROUP_REGISTERS * 3 // 4 // lanes - rows * cols
    if given is None:
        # The longer a step, the more arithmetic a load.
        k_step = next((w * lanes for w in (4, 2) if _b_step(rows, cols, w * lanes, lanes, room) is not None), lanes)
    a = Operand(block=True, share=True, width=_widest(max(1, k_step // lanes)))
    b = Operand(block=True, width=_widest(cols))
    b_step = _b_step(rows, cols, k_step, lanes, room) or 0
    return Schedule((rows, cols), group, (rows, 1), k_step, lanes, a, b, b_step)


def _b_step(rows: int, cols: int, k_step: int, lanes: int, room: int) -> int | None:
    """How much of a step of B is read at a time, that registers may hold it; 0: all of it; None where none fits."""
    if cols * k_step <= room:
        return 0
    is_longer = k_step > lanes and k_step % lanes == 0
    return lanes if is_longer and rows * k_step // lanes + cols * lanes <= room else None


def _block_read(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    rows, cols = tile or (32, 2)
    group, k_step, lanes = _in_sub_groups(group, k_step, lanes)
    a = Operand(memory="image", block=True, share=True, width=_widest(rows))
    b = Operand(memory="image", block=True, width=_widest(k_step))
    return Schedule((rows, cols), group, (rows, 1), k_step, lanes, a, b)


def _dpas(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    lanes = lanes or (group[1] if group else 8)
    return Schedule(tile or (32, 2), group or (1, lanes), k_step=k_step or 16, sub_group=lanes, atom="dpas")


def _mma(
    atom: Atom, size: int, tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None
) -> Schedule:
    # Lines of the local tiles begin four banks after one another; eight where lanes read single elements of theirs:
    # words where K is slow, and float64.
    width, read_singly = 16 // size, size == 8
    a = Operand(memory="local", width=width, pad=4 if read_singly else width, async_copy=True)
    return Schedule(
        tile or ((4, 8) if read_singly else (8, 16)),
        group or (16, 8),
        run=(1, 2),
        k_step=k_step or 8 * width // (1 if read_singly else 2),
        sub_group=lanes,
        a=a,
        b=replace(a, pad=4 if read_singly else max(8, width)),
        stages=4,
        register_stages=2,
        warp=(8, 4),
        across=True,
        atom=atom,
        c_width=2,
    )


def _wgmma(
    atom: Atom, line: int, tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None
) -> Schedule:
    # A warpgroup is 32 rows of four lanes; a step is a line of 128 bytes deep.
    operand = Operand(memory="local", async_copy=True)
    tile, (high, wide) = tile or (2, 64), group or (64, 4)
    # Lanes along C's columns: operands are swapped, as by `Schedule.swapped`.
    swapped = high % 32 != 0 and wide % 32 == 0
    # Sums are taken up by fours, so that lanes next to each other read next to each other.
    evenly = high * 4 % max(1, tile[1]) == 0
    return Schedule(
        tile,
        (high, wide),
        run=(2, 1) if swapped else (1, 2),
        k_step=k_step or line,
        sub_group=lanes,
        a=operand,
        b=operand,
        stages=4,
        raster=0 if swapped else 8,
        atom=atom,
        c_width=1 if swapped else 4 if evenly else 2,
        producers=128,
        registers=(232, 40),
    )


def _wgmma_in_terms(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    # Heads and rests are tiles of their own, which a kernel before makes, along K.
    base = _wgmma("wgmma_3xtf32", 32, tile or (2, 32), group, k_step, lanes)
    a = replace(base.a, packed=True)
    return replace(base, a=a, b=replace(a, transposed=True), stages=3)


def _vector(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    rows, cols = tile or (6, 64)
    vector = _widest(cols, (16, 8, 4, 2))
    return Schedule((rows, cols), group or (1, 1), k_step=k_step or 1, sub_group=lanes, vector=vector, sweep=(22, 2))


_RULES: dict[str, Callable[[Pair | None, Pair | None, int | None, int | None], Schedule]] = {
    "naive": _naive,
    "slm": _slm,
    "simd": _simd,
    "block_read": _block_read,
    "dpas": _dpas,
    "mma": partial(_mma, "mma", 2),
    "mma_s8": partial(_mma, "mma_s8", 1),
    "mma_f8": partial(_mma, "mma_f8", 1),
    "mma_f64": partial(_mma, "mma_f64", 8),
    "mma_tf32": partial(_mma, "mma_tf32", 4),
    "mma_3xtf32": partial(_mma, "mma_3xtf32", 4),
    "wgmma": partial(_wgmma, "wgmma", 64),
    "wgmma_s8": partial(_wgmma, "wgmma_s8", 128),
    "wgmma_f8": partial(_wgmma, "wgmma_f8", 128),
    "wgmma_tf32": partial(_wgmma, "wgmma_tf32", 32),
    "wgmma_3xtf32": _wgmma_in_terms,
    "vector": _vector,
}


def _in_sub_groups(group: Pair | None, k_step: int | None, lanes: int | None) -> tuple[Pair, int, int]:
    """Group, depth and lanes where a row of the group is a sub-group, and each lane brings one step of K."""
    group = group or (1, lanes or 8)
    width = group[1]
    lanes = lanes or (width if width <= _LANES[0] else next((n for n in _LANES if width % n == 0), width))
    return group, k_step or lanes, lanes


def _widest(extent: int, widths: Iterable[int] = (8, 4, 2, 1)) -> int:
    """The widest load that divides `extent`; the narrowest of all where none does."""
    return next((w for w in widths if extent % w == 0), 2)


# --- single fields --------------------------------------------------------------------------------


def flatten(schedule: Schedule) -> Flat:
    """Every field but the name, in the order of the dataclass."""
    flat: Flat = {}
    for item in fields(schedule):
        value = getattr(schedule, item.name)
        if isinstance(value, Operand):
            flat |= {f"{item.name}.{f.name}": getattr(value, f.name) for f in fields(value)}
        elif item.name != "name":
            flat[item.name] = value
    return flat


def unflatten(flat: Mapping[str, Value], name: str | None = None) -> Schedule:
    """The inverse of `flatten`. The values must have been checked."""
    lanes = flat["sub_group"]
    return Schedule(
        tile=_pair(flat["tile"]),
        group=_pair(flat["group"]),
        run=_pair(flat["run"]),
        k_step=_int(flat["k_step"]),
        b_step=_int(flat["b_step"]),
        sub_group=None if lanes is None else _int(lanes),
        a=_operand(flat, "a"),
        b=_operand(flat, "b"),
        stages=_int(flat["stages"]),
        mbarrier=_int(flat["mbarrier"]),
        boxes=bool(flat["boxes"]),
        slices=_int(flat["slices"]),
        split=_int(flat["split"]),
        joined=_int(flat["joined"]),
        stream=bool(flat["stream"]),
        atomic=bool(flat["atomic"]),
        raster=_int(flat["raster"]),
        prefetch=bool(flat["prefetch"]),
        register_stages=_int(flat["register_stages"]),
        barrier=bool(flat["barrier"]),
        atom=cast("Atom", flat["atom"]),
        warp=None if flat["warp"] is None else _pair(flat["warp"]),
        stagger=bool(flat["stagger"]),
        across=bool(flat["across"]),
        snake=bool(flat["snake"]),
        large_registers=bool(flat["large_registers"]),
        c_width=_int(flat["c_width"]),
        c_stages=_int(flat["c_stages"]),
        c_turns=bool(flat["c_turns"]),
        vector=_int(flat["vector"]),
        along_k=bool(flat["along_k"]),
        sweep=_pair(flat["sweep"]),
        even=_pair(flat["even"]),
        k_block=_int(flat["k_block"]),
        m_block=_int(flat["m_block"]),
        b_prefetch=_int(flat["b_prefetch"]),
        c_prefetch=bool(flat["c_prefetch"]),
        producers=_int(flat["producers"]),
        registers=_pair(flat["registers"]),
        persistent=bool(flat["persistent"]),
        cluster=_pair(flat["cluster"]),
        late=bool(flat["late"]),
        name=name,
    )


def _operand(flat: Mapping[str, Value], key: str) -> Operand:
    return Operand(
        memory=cast("Memory", flat[f"{key}.memory"]),
        width=_int(flat[f"{key}.width"]),
        block=bool(flat[f"{key}.block"]),
        share=bool(flat[f"{key}.share"]),
        transposed=bool(flat[f"{key}.transposed"]),
        pad=_int(flat[f"{key}.pad"]),
        async_copy=bool(flat[f"{key}.async_copy"]),
        packed=bool(flat[f"{key}.packed"]),
        streamed=bool(flat[f"{key}.streamed"]),
    )


def _int(value: Value) -> int:
    assert isinstance(value, int), value
    return value


def _pair(value: Value) -> Pair:
    assert isinstance(value, tuple), value
    return value


def change(base: Schedule, changes: Mapping[str, Value]) -> Schedule:
    """`base` with some fields changed; those that stood as its method puts them follow the change."""
    old = flatten(base)
    before = flatten(_shaped(base.method, old))
    # The group follows only where lanes are asked for: elsewhere lanes follow the group.
    may_follow = ("k_step", "sub_group", *(("group",) if "sub_group" in changes else ()))
    free = {key for key in may_follow if key not in changes and _follows(base.method, old, key)}
    after = flatten(_shaped(base.method, {k: v for k, v in {**old, **changes}.items() if k not in free}))
    flat = {key: after[key] if key in free or value == before[key] else value for key, value in old.items()}
    return unflatten({**flat, **changes}, base.name)


def _shaped(method: str, flat: Mapping[str, Value]) -> Schedule:
    """The method's defaults for the shape that `flat` gives."""
    tile, group, k_step, lanes = (flat.get(key) for key in ("tile", "group", "k_step", "sub_group"))
    return defaults(
        method,
        tile if isinstance(tile, tuple) else None,
        group if isinstance(group, tuple) else None,
        k_step if isinstance(k_step, int) else None,
        lanes if isinstance(lanes, int) else None,
    )


def _follows(method: str, flat: Flat, key: str) -> bool:
    """Whether the method, not told `key`, would choose what `flat` has."""
    return flatten(_shaped(method, {k: v for k, v in flat.items() if k != key}))[key] == flat[key]


# --- names ----------------------------------------------------------------------------------------

_SHORT = {
    "k_step": "k",
    "sub_group": "sg",
    "stages": "stages",
    "register_stages": "regstages",
    "width": "w",
}


def slug(schedule: Schedule) -> str:
    """A kernel's name: the schedule's, or METHOD_RxC_hxw and a suffix for each field that is not as the method puts it.

    Different schedules without names have different slugs: the method, the tile and the group are read off the front,
    depth and lanes are said or follow from those, and the rest is said or follows from all of them.
    """
    if schedule.name:
        return schedule.name
    flat = flatten(schedule)
    head = {key: flat[key] for key in ("tile", "group")}
    base = _shaped(schedule.method, head)
    full = flatten(_shaped(schedule.method, {**head, "k_step": flat["k_step"], "sub_group": flat["sub_group"]}))
    expected = {**full, "k_step": base.k_step, "sub_group": base.sub_group}
    suffixes = (_suffix(key, value) for key, value in flat.items() if key not in head and value != expected[key])
    parts = [schedule.method, text_of(schedule.tile), text_of(schedule.group), *suffixes]
    # Sizes below zero never reach a kernel, but a message about them may want the name.
    return "_".join(parts).replace("-", "minus")


def _suffix(key: str, value: Value) -> str:
    operand, _, field = key.rpartition(".")
    word = _SHORT.get(field, field)
    if isinstance(value, bool):
        text = word if value else f"no{word}"
    elif field in ("memory", "atom"):
        text = str(value)
    else:
        text = f"{word}{text_of(value)}"
    return f"{operand}_{text}" if operand else text


def text_of(value: Value) -> str:
    """A value as the command line and TOML write it."""
    if isinstance(value, tuple):
        return f"{value[0]}x{value[1]}"
    return "none" if value is None else str(value)
