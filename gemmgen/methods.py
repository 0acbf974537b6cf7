"""The methods: what each makes of a tile and a group, and in what a schedule departs from it.

A schedule is also seen flat here, as `field -> value` with the operands' fields as `a.width` and so on: the
command line, TOML and names all speak of single fields (`gemmgen.schedule.flat`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import get_args

from gemmgen.schedule import PLAIN, Flat, Method, Operand, Pair, Schedule, Value, text_of
from gemmgen.schedule.dpas import BLOCK_2D_LANES, MOST_LANES
from gemmgen.schedule.fields import WarpAtom, WarpgroupAtom
from gemmgen.schedule.mainloop import ELEMENT_BYTES
from gemmgen.schedule.tiling import Tiling
from gemmgen.schedule.warp_mma import DIRECT_LANES
from gemmgen.schedule.warpgroup_mma import WarpgroupMma, is_swapped

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
    return Schedule.of(tile=tile or (1, 1), group=group or (16, 16), block_k=k_step or 1, sub_group=lanes)


def _gemv(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    tile, group = tile or (1, 4), group or (1, 1)
    return Schedule.of(
        tile=tile, group=group, thread_vector=tile, block_k=k_step or 32, sub_group=lanes, lanes_along_k=32
    )


def _slm(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    rows, cols = tile or (8, 8)
    k_step = k_step or 8
    run = 1 if cols % 4 else 4
    a, b = Operand(memory="local", width=_widest(k_step, (4, 2, 1))), Operand(width=run)
    return Schedule.of(
        tile=(rows, cols), group=group or (8, 16), thread_vector=(rows, run), block_k=k_step, sub_group=lanes, a=a, b=b
    )


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
    a = Operand(block_read=True, shuffle=True, width=_widest(max(1, k_step // lanes)))
    b = Operand(block_read=True, width=_widest(cols))
    b_step = _b_step(rows, cols, k_step, lanes, room) or 0
    return Schedule.of(
        tile=(rows, cols),
        group=group,
        thread_vector=(rows, 1),
        block_k=k_step,
        sub_group=lanes,
        a=a,
        b=b,
        b_sub_step=b_step,
    )


def _b_step(rows: int, cols: int, k_step: int, lanes: int, room: int) -> int | None:
    """How much of a step of B is read at a time, that registers may hold it; 0: all of it; None where none fits."""
    if cols * k_step <= room:
        return 0
    is_longer = k_step > lanes and k_step % lanes == 0
    return lanes if is_longer and rows * k_step // lanes + cols * lanes <= room else None


def _block_read(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    rows, cols = tile or (32, 2)
    group, k_step, lanes = _in_sub_groups(group, k_step, lanes)
    a = Operand(memory="image", block_read=True, shuffle=True, width=_widest(rows))
    b = Operand(memory="image", block_read=True, width=_widest(k_step))
    return Schedule.of(
        tile=(rows, cols), group=group, thread_vector=(rows, 1), block_k=k_step, sub_group=lanes, a=a, b=b
    )


def _dpas(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    lanes = lanes or min(group[1] if group else 8, MOST_LANES)
    return Schedule.of(
        tile=tile or (32, 2), group=group or (1, lanes), block_k=k_step or 16, sub_group=lanes, atom="dpas"
    )


def _joint_matrix(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    group = group or (8, 64)
    lanes = lanes or min(group[1], BLOCK_2D_LANES)
    return Schedule.of(
        tile=tile or (32, 4), group=group, block_k=k_step or 32, sub_group=lanes, atom="joint_matrix", large_grf=True
    )


def _mfma(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    return Schedule.of(tile=tile or (8, 2), group=group or (4, 16), block_k=k_step or 16, sub_group=lanes, atom="mfma")


def _mma_direct(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    return Schedule.of(
        tile=tile or (2, 2),
        group=group or DIRECT_LANES,
        block_k=k_step or 32,
        sub_group=lanes,
        atom="mma",
        direct=True,
        a=Operand(width=8),
        b=Operand(width=8),
    )


def _mma(atom: WarpAtom, tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    # Lines of the local tiles begin four banks after one another; eight where lanes read single elements of theirs:
    # words where K is slow, and float64.
    size = ELEMENT_BYTES[atom]
    width, read_singly = 16 // size, size == 8
    tile = tile or ((4, 8) if read_singly else (8, 16))
    # Of results of two bytes, four neighbours a lane make whole sectors; of larger ones two do.
    narrow = atom in ("mma", "mma_f8") and tile[1] % 4 == 0
    return Schedule.of(
        tile=tile,
        group=group or (16, 8),
        block_k=k_step or 8 * width // (1 if read_singly else 2),
        sub_group=lanes,
        stages=4,
        register_stages=2,
        across_tiles=True,
        atom=atom,
        c_width=4 if narrow else 2,
        a=Operand("local", width, pad=4 if read_singly else width, async_copy=True),
        b=Operand("local", width, pad=4 if read_singly else max(8, width), async_copy=True),
    )


def _wgmma(
    atom: WarpgroupAtom, tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None
) -> Schedule:
    tile, group = tile or (2, 64), group or (64, 4)
    operand = Operand("local", async_copy=True)
    return Schedule.of(
        tile=tile,
        group=group,
        # A line of 128 bytes.
        block_k=k_step or 128 // ELEMENT_BYTES[atom],
        sub_group=lanes,
        stages=4,
        threadblock_swizzle=0 if is_swapped(group) else 8,
        atom=atom,
        c_width=WarpgroupMma.usual_width(Tiling(tile, group)),
        producer_threads=128,
        setmaxnreg=(232, 40),
        a=operand,
        b=operand,
    )


def _wgmma_in_terms(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    # Heads and rests are tiles of their own, which a kernel before makes, along K.
    base = _wgmma("wgmma_3xtf32", tile or (2, 32), group, k_step, lanes)
    a = replace(base.a, prepacked=True)
    return base.but(stages=3, a=a, b=replace(a, transposed=True))


def _vector(tile: Pair | None, group: Pair | None, k_step: int | None, lanes: int | None) -> Schedule:
    rows, cols = tile or (6, 64)
    vector = _widest(cols, (16, 8, 4, 2))
    return Schedule.of(
        tile=(rows, cols),
        group=group or (1, 1),
        block_k=k_step or 1,
        sub_group=lanes,
        vector=vector,
        macro_kernel=(22, 2),
    )


_RULES: dict[str, Callable[[Pair | None, Pair | None, int | None, int | None], Schedule]] = {
    "naive": _naive,
    "gemv": _gemv,
    "slm": _slm,
    "simd": _simd,
    "block_read": _block_read,
    "dpas": _dpas,
    "joint_matrix": _joint_matrix,
    "mfma": _mfma,
    "mma_direct": _mma_direct,
    **{atom: partial(_mma, atom) for atom in get_args(WarpAtom)},
    **{atom: partial(_wgmma, atom) for atom in get_args(WarpgroupAtom)},
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
    """Every field but the name, in the order in which schedules are written."""
    flat: Flat = {}
    for key in PLAIN:
        operand, _, field = key.rpartition(".")
        flat[key] = getattr(getattr(schedule, operand) if operand else schedule, field)
    return flat


def unflatten(flat: Mapping[str, Value], name: str | None = None) -> Schedule:
    """The inverse of `flatten`. Raises: ScheduleError with what means nothing, and what can't be."""
    return Schedule.of(name=name, **flat)


def change(base: Schedule, changes: Mapping[str, Value]) -> Schedule:
    """`base` with some fields changed; those that stood as its method puts them follow the change."""
    old = flatten(base)
    before = flatten(_shaped(base.method, old))
    # The group follows only where lanes are asked for: elsewhere lanes follow the group.
    may_follow = ("block_k", "sub_group", *(("group",) if "sub_group" in changes else ()))
    free = {key for key in may_follow if key not in changes and _follows(base.method, old, key)}
    after = flatten(_shaped(base.method, {k: v for k, v in {**old, **changes}.items() if k not in free}))
    flat = {key: after[key] if key in free or value == before[key] else value for key, value in old.items()}
    follows = {key: value for key, value in flat.items() if value != old[key]}
    return base.but(**{**follows, **changes})


def _shaped(method: str, flat: Mapping[str, Value]) -> Schedule:
    """The method's defaults for the shape that `flat` gives."""
    tile, group, k_step, lanes = (flat.get(key) for key in ("tile", "group", "block_k", "sub_group"))
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


# --- what a schedule says beside its method ------------------------------------------------------


def departures(schedule: Schedule) -> Flat:
    """The fields that are not as the method puts them: depth and lanes for the tile and the group, the rest for all of
    these.
    """
    flat = flatten(schedule)
    head = {key: flat[key] for key in ("tile", "group")}
    base = _shaped(schedule.method, head)
    full = flatten(_shaped(schedule.method, {**head, "block_k": flat["block_k"], "sub_group": flat["sub_group"]}))
    expected = {**full, "block_k": base.block_k, "sub_group": base.sub_group}
    return {key: value for key, value in flat.items() if key not in head and value != expected[key]}


def options_of(schedule: Schedule) -> str:
    """The options of `gemmgen emit` that say all of a schedule."""
    head = f"--method {schedule.method} --tile {text_of(schedule.tile)} --group {text_of(schedule.group)}"
    return " ".join([head, *(f"--set {key}={text_of(value)}" for key, value in departures(schedule).items())])
