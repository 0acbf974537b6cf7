"""Refuse what matrix instructions of warpgroups, copies of boxes and roles can't do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gemmgen.ir.dtypes import FLOAT8
from gemmgen.ir.swizzle import LINES_BYTES, line_bytes
from gemmgen.ir.target import Target
from gemmgen.ir.warpgroup_matrix import (
    LANES,
    LINES,
    MOST_COLS,
    PUT_BYTES,
    TURNED_BYTES,
    WARPGROUP_ATOMS,
    WIDE,
    WarpgroupAtom,
    put_columns,
    stored_box,
    warpgroup_atom,
)
from gemmgen.methods import defaults, flatten
from gemmgen.passes.in_registers import is_held, register_problems, registers_held
from gemmgen.passes.matrices import as_they_are
from gemmgen.passes.swap import turned
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Bytes of an mbarrier.
MBARRIER_BYTES = 8
#: What lines of a matrix, and its first one, begin on multiples of.
ALIGNMENT = 16
#: Lines of a box at most.
MOST_LINES = 256
#: Registers of a multiprocessor, and how many a warp's work-items get at a time.
REGISTERS, REGISTER_UNIT = 65536, 8
#: What a work-item that multiplies needs of registers beside its sums.
OTHERS = 24
#: Elements after each row of sums in local memory, so that a warp's pairs of eight rows lie in different banks.
SUM_PAD = 8
#: The same where sums are put down by columns.
TURNED_PAD = 4
#: Groups of a cluster that every device of its kind has room for.
MOST_JOINED = 8
PACKED = ("a.packed", "b.packed")
STREAMED = ("a.streamed", "b.streamed")
#: Fields that a schedule may choose; all others are as the method has them.
CHOSEN = frozenset(
    {
        "a.memory",
        "b.memory",
        "tile",
        "group",
        "k_step",
        "stages",
        "raster",
        "split",
        "joined",
        "c_width",
        "c_stages",
        "producers",
        "registers",
    }
    | {"persistent", "cluster", "c_turns", "late", *PACKED, *STREAMED}
)


def warpgroup_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule whose atom is wgmma, each with a remedy."""
    atom = warpgroup_atom(s.atom, spec.dtype)
    if atom is None:
        known = ", ".join(str(x.dtype) for x in WARPGROUP_ATOMS if x.name == s.atom)
        others = [x.name for x in WARPGROUP_ATOMS if x.dtype == spec.dtype]
        either = " or ".join([*others, *(() if spec.dtype in FLOAT8 else ("fma",))])
        yield f"atom {s.atom} multiplies {known}, not {spec.dtype}: use one of them, or atom {either}"
        return
    if lacking := sorted({"wgmma", "tensor_maps"} - target.features):
        yield f"atom {s.atom}, but target {target.name!r} lacks {', '.join(lacking)}: use target sm_90a, or atom mma"
    if spec.listed:
        yield f"atom {s.atom} has maps of matrices a stride apart, not of a list: leave listed out, or use atom mma"
    yield from as_they_are(spec, s, tuple(name for name in "ab" if is_held(s, name)))
    yield from _operands(spec, s)
    yield from register_problems(s, atom)
    plain = flatten(defaults(s.atom, s.tile, s.group, s.k_step))
    for key, value in flatten(s).items():
        if value != plain[key] and key not in CHOSEN and not _shapes_packed(key, s):
            yield f"{key} means nothing to atom {s.atom}: leave it out"
    if s.c_stages and s.c_width not in (1, plain["c_width"]):
        yield (
            f"c_width = {s.c_width} is for work-items that store C, but c_stages = {s.c_stages} stores boxes: use "
            "c_width 1, or c_stages 0"
        )
    (high, wide), whole = s.group, LANES // 4
    if (wide % 4 or high % whole) and not s.swapped:
        yield (
            f"group {high}x{wide} is not made of warpgroups of {whole}x4: use group 64x4, say, two above one another, "
            f"{whole}x8, two beside one another, or 4x{whole}, by which operands are swapped"
        )
        return
    yield from _tiles(spec, s, atom)
    yield from role_problems(s, target)
    yield from _room(spec, s, atom, target)


def _shapes_packed(key: str, s: Schedule) -> bool:
    """Whether a field says in which order a matrix is packed."""
    return (s.a.packed and key == "a.transposed") or (s.b.packed and key == "b.transposed")


def _operands(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """What boxes can't bring as it lies."""
    by_boxes = [name for name, operand in (("a", s.a), ("b", s.b)) if not operand.packed]
    for name in by_boxes:
        if spec.prologue(name) is not None and not is_held(s, name):
            yield (
                f"prologue_{name}, but boxes go straight to local memory with atom {s.atom}: let a kernel before apply "
                f"it (--set {name}.packed=true)"
            )
    if by_boxes and s.atom == "wgmma_3xtf32":
        packed = " ".join(f"--set {name}.packed=true" for name in by_boxes)
        yield f"atom {s.atom} multiplies what a kernel before takes apart: let it ({packed})"
    size = min((spec.element(name).size for name in by_boxes), default=ALIGNMENT)
    if spec.ld_multiple * size % ALIGNMENT:
        unit = ALIGNMENT // size
        packed = " ".join(f"--set {name}.packed=true" for name in by_boxes)
        yield (
            f"atom {s.atom} copies lines that begin on multiples of {ALIGNMENT} bytes, but leading dimensions are "
            f"multiples of {spec.ld_multiple}: promise --ld-multiple {unit}, or let a kernel before lay them out "
            f"({packed})"
        )


def _tiles(spec: GemmSpec, s: Schedule, atom: WarpgroupAtom) -> Iterator[str]:
    """What a block is made of."""
    high, wide = s.group
    if atom.dtype.size != TURNED_BYTES:
        yield from _along_k(spec, s)
    yield from _shares(spec, s) if s.joined > 1 else ()
    lines, across, other = ("columns", "rows", "A") if s.swapped else ("rows", "columns", "B")
    given, by_columns = s.tile, s.swapped and s.planes > 1
    spec, s = turned(spec, s) if s.swapped else (spec, s)
    rows, cols = s.block_tile
    if s.tile[0] % 2 or rows > MOST_LINES:
        most = MOST_LINES // s.group[0]
        yield f"tile {given[0]}x{given[1]} has no pairs of {lines}, or more than {most} of them: use 2 {lines}"
    unit = WIDE if atom.sums.is_float else 2 * WIDE
    if cols % unit or cols > MOST_COLS:
        yield f"a block's {cols} {across} of {other}, multiplied by {unit}: use a multiple of {unit} up to {MOST_COLS}"
    yield from _beside(spec, s, atom, (across, other), unit)
    yield from _steps(spec, s, atom)
    if s.stages < 2:
        yield f"stages = {s.stages}, but a tile is copied while another is multiplied: use 2 or more"
    yield from _cluster(spec, s)
    if s.persistent and s.split > 1:
        yield f"persistent, but split = {s.split} makes groups of parts of K: leave one of the two out"
    if s.raster < 0:
        yield f"raster = {s.raster} < 0: give a number of rows of groups, or 0 for none"
    if s.c_turns and not (s.persistent and s.c_stages and high * wide > LANES):
        yield (
            "c_turns lets a warpgroup multiply for the next block while another stores boxes: use it with persistent, "
            "c_stages 2 and group 64x4, say, or leave it out"
        )
    if s.joined == 1:
        yield from _boxes(spec, s, lines, across) if s.c_stages else _stores(spec, s, across, by_columns)


def _beside(spec: GemmSpec, s: Schedule, atom: WarpgroupAtom, names: tuple[str, str], unit: int) -> Iterator[str]:
    """Warpgroups beside one another, each with columns of its own."""
    (_, beside), (across, other) = s.warpgroups, names
    own, size = s.block_tile[1] // beside, atom.dtype.size
    if beside == 1:
        return
    if own % unit:
        yield f"a warpgroup's {own} {across} of {other}, multiplied by {unit}: use a multiple of {unit}"
    line = line_bytes(s.tile_line("b", spec.b_order) * size) // size
    if s.read_order("b", spec.b_order) == "row" and own % line and line % own:
        yield (
            f"a warpgroup's {own} {across} of {other} lie in boxes of {line}, which no other's may begin within: "
            f"use a multiple of {line}, or 32 or 16, or group {s.group[0] * beside}x4"
        )


def _steps(spec: GemmSpec, s: Schedule, atom: WarpgroupAtom) -> Iterator[str]:
    """How deep a tile is: as a line that swizzles is wide, of elements in two terms the widest."""
    known = [size // atom.dtype.size for size in (LINES_BYTES if atom.terms == 1 else LINES_BYTES[-1:])]
    if s.k_step not in known:
        whose = f"lines of {spec.dtype} are {_either(known)} long"
        yield f"k_step = {s.k_step}, but {whose}: use k_step {atom.line}, or less where K is short"


def _boxes(spec: GemmSpec, s: Schedule, lines: str, across: str) -> Iterator[str]:
    """C by boxes, as tensor maps have it: of its rows, or columns where operands are swapped, which are the `lines` of
    an instruction.
    """
    size, cols = spec.result.size, s.block_tile[1] // s.warpgroups[1]
    instead = "use c_stages 0, by which work-items store it"
    turned_bytes = is_held(s, "a") and spec.element("a").size == 1 and s.read_order("a", spec.a_order) == "col"
    if spec.c_order == "col" and turned_bytes and size == TURNED_BYTES:
        order, whose = f"{across.removesuffix('s')}-major", lines.removesuffix("s")
        yield (
            f"c_stages = {s.c_stages} turns {spec.result} for a {order} C, but where bytes are turned into registers a "
            f"work-item's {lines} are another's neighbours: {instead}, with c_width 1"
        )
    if s.split > 1:
        yield f"c_stages = {s.c_stages} stores boxes of C, but split = {s.split} leaves sums of its parts: {instead}"
    if size not in PUT_BYTES:
        yield f"c_stages = {s.c_stages} stores elements of {_either(PUT_BYTES)} bytes, not {spec.result}: {instead}"
        return
    if spec.ld_multiple * size % ALIGNMENT:
        yield (
            f"c_stages = {s.c_stages} stores lines of {spec.result} that begin on multiples of {ALIGNMENT} bytes, but "
            f"leading dimensions are multiples of {spec.ld_multiple}: promise --ld-multiple {ALIGNMENT // size}, or "
            f"{instead}"
        )
    if cols % (unit := put_columns(spec.result)):
        whose = "a block's" if s.warpgroups[1] == 1 else "a warpgroup's"
        yield f"{whose} {cols} {across} of C, put down {unit} at a time: use a multiple of {unit}, or c_stages 0"


def _either(values: Iterable[int]) -> str:
    *others, last = map(str, values)
    return " or ".join([", ".join(others), last] if others else [last])


def _along_k(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """Instructions on other elements than 16-bit ones turn nothing."""
    for name, given, wanted in (("a", spec.a_order, "row"), ("b", spec.b_order, "col")):
        found = s.read_order(name, given)
        if found != wanted and not is_held(s, name):
            remedy = "--set a.packed=true" if name == "a" else "--set b.packed=true --set b.transposed=true"
            if (s.a if name == "a" else s.b).packed:
                yield (
                    f"atom {s.atom} multiplies lines along K, but {name} is packed {found}-major: use --set "
                    f"{name}.transposed={str(name == 'b').lower()}"
                )
                continue
            yield (
                f"atom {s.atom} multiplies lines along K, but {name} is {found}-major: store it {wanted}-major, or let "
                f"a kernel before turn it ({remedy})"
            )


def _stores(spec: GemmSpec, s: Schedule, across: str, by_columns: bool) -> Iterator[str]:
    """C from pairs as they lie in registers, or by way of local memory in longer runs; `by_columns` says that these are
    of columns of sums that a second kernel adds up by rows.
    """
    (rows, cols), consumers = s.block_tile, s.group[0] * s.group[1]
    if by_columns and s.c_width > 1 and spec.c_order == "row":
        yield f"c_width = {s.c_width} stores neighbouring {across}, but a second kernel adds up rows: use c_width 1"
    if spec.c_order == "col":
        if s.c_width > 1:
            order = f"{across.removesuffix('s')}-major"
            yield f"c_width = {s.c_width} stores neighbouring {across}, but C is {order}: use c_width 1"
        return
    if s.c_width not in (1, 2, 4, 8):
        yield f"c_width = {s.c_width}: use 1 or 2, which a work-item has, or 4 or 8 by way of local memory"
    elif s.c_width > s.run[1] and (consumers * s.c_width % cols or rows * cols % (consumers * s.c_width)):
        yield f"{rows}x{cols} of C in runs of {s.c_width} can't be dealt out evenly to {consumers}: use c_width 2"


def _cluster(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """Groups that share tiles."""
    (down, across), (rows, cols) = s.cluster, s.block_tile
    if s.cluster == (1, 1):
        return
    if down * across != 2:
        yield f"cluster {down}x{across} has {down * across} groups: use 2x1 or 1x2, or 1x1 for none"
    if s.split > 1:
        yield f"cluster {down}x{across}, but split = {s.split} makes groups of parts of K: leave one of the two out"
    if s.a.streamed or s.b.streamed:
        yield f"cluster {down}x{across} shares what it reads, but a or b is streamed: leave one of the two out"
    a_order, b_order = s.read_order("a", spec.a_order), s.read_order("b", spec.b_order)
    which, turned, lines = ("A", a_order == "col", rows) if across > 1 else ("B", b_order == "row", cols)
    # Lines of a tile swizzle by eights.
    if not turned and lines % (2 * LINES):
        yield f"cluster {down}x{across} shares {lines} lines of {which}: use tiles of a multiple of {2 * LINES}"


def role_problems(s: Schedule, target: Target) -> Iterator[str]:
    """Who copies, and the registers of both: more than the launch has would be waited for without end."""
    consumers = s.group[0] * s.group[1]
    work_items = consumers + s.producers
    if s.producers not in (32, LANES):
        yield f"producers = {s.producers}: use {LANES}, a warpgroup, or 32, a warp"
        return
    if work_items > target.max_group:
        most = target.max_group
        yield f"{consumers} work-items and {s.producers} producers > {most} on this target: use a smaller group"
        return
    more, fewer = s.registers
    if s.registers == (0, 0):
        return
    if s.producers != LANES:
        yield f"registers {more}x{fewer} are handed over by whole warpgroups, but producers = {s.producers}: use 0x0"
    if more % REGISTER_UNIT or fewer % REGISTER_UNIT or not 24 <= fewer <= more <= 256:
        yield f"registers {more}x{fewer} are no multiples of {REGISTER_UNIT} from 24 to 256, larger first: use 232x40"
    at_launch = launched(s)
    asked = consumers * more + s.producers * fewer
    if asked > at_launch * work_items:
        yield (
            f"registers {more}x{fewer} are {asked:,} of a block's {at_launch * work_items:,} ({at_launch} for each of "
            f"{work_items} work-items), and would be waited for without end: use fewer"
        )


def launched(s: Schedule) -> int:
    """Registers that a work-item has at most when a block of them begins, alone on its multiprocessor: whole warpgroups
    count.
    """
    warpgroups = -(-(s.group[0] * s.group[1] + s.producers) // LANES)
    return min(256, REGISTERS // (warpgroups * LANES) // REGISTER_UNIT * REGISTER_UNIT)


def _shares(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """What each group of a cluster adds up of a block, and stores."""
    if s.split % s.joined or s.joined > MOST_JOINED:
        most = f"up to {MOST_JOINED}, the most groups of a cluster"
        yield f"joined = {s.joined} of split = {s.split} parts: use a divisor of those {most}"
    if s.cluster != (1, 1):
        yield f"joined = {s.joined} makes clusters of parts of K, cluster others: leave one of the two out"
    if s.c_stages:
        yield f"c_stages = {s.c_stages} stores boxes of C, but joined = {s.joined} adds up its lines: use c_stages 0"
    lines, length = s.block_tile if spec.c_order == "row" or s.planes > 1 else s.block_tile[::-1]
    consumers, whose = s.group[0] * s.group[1], f"{lines} lines of {length} for {s.joined} groups of a cluster"
    if s.c_width not in (1, 2, 4, 8):
        yield f"c_width = {s.c_width}: use 1, 2, 4 or 8"
    elif lines % s.joined or consumers * s.c_width % length or lines * length % (consumers * s.c_width * s.joined):
        runs = f"in runs of {s.c_width} to {consumers} work-items"
        yield f"{whose}, {runs}, do not come out even: use another c_width or joined"


def _tile_bytes(turned: bool, outer: int, depth: int, size: int) -> int:
    """Of a tile: whole lines, along whatever is its fast axis."""
    slow, fast = (depth, outer) if turned else (outer, depth)
    line = line_bytes(fast * size)
    return slow * -(-fast * size // line) * line


def _slot(spec: GemmSpec, s: Schedule) -> tuple[int, int]:
    """Bytes of a slot for boxes of C, one of each warp; and how many boxes of a block a warp has."""
    cols, by_columns = s.block_tile[1] // s.warpgroups[1], spec.c_order == "col"
    lines, length = stored_box(cols, spec.result, by_columns)
    warps, across = s.group[0] * s.group[1] // (LANES // 4), lines if by_columns else length
    return warps * lines * line_bytes(length * spec.result.size), s.tile[0] // 2 * -(-cols // across)


def _fewer(s: Schedule, over: int, stage: int, c: tuple[int, int]) -> str:
    """What takes so many bytes less, of stages so large, and of so many slots for boxes of C, so large."""
    slots, slot = c
    # A group of less than a warpgroup has no slots, and is refused for that as well.
    enough = s.stages - -(-over // stage), slots - -(-over // slot) if slot else 0
    ways = [f"{enough[1]} c_stages instead of {s.c_stages}"] * (enough[1] > 0)
    ways += [f"{enough[0]} stages instead of {s.stages}"] * (enough[0] > 1)
    return ", or ".join([*ways, "a smaller tile"])


def _room(spec: GemmSpec, s: Schedule, atom: WarpgroupAtom, target: Target) -> Iterator[str]:
    """Local memory and registers. Of a row-major B whole boxes are held."""
    spec, s = turned(spec, s) if s.swapped else (spec, s)
    rows, cols = s.block_tile
    of_a = spec.element("a") if is_held(s, "a") else atom.dtype
    turned_a, turned_b = s.read_order("a", spec.a_order) == "col", s.read_order("b", spec.b_order) == "row"
    depth = s.k_step * atom.terms
    tiles = s.stages * (
        _tile_bytes(turned_a, rows, depth, of_a.size) + _tile_bytes(turned_b, cols, depth, atom.dtype.size)
    )
    slot, boxes = _slot(spec, s)
    slots = min(boxes, s.c_stages) * slot
    by_memory = s.joined > 1 or (s.c_width > s.run[1] and not s.c_stages)
    sums = max(rows * (cols + SUM_PAD), (rows + TURNED_PAD) * cols) * atom.sums.size if by_memory else 0
    beside = s.persistent or s.joined > 1
    used = (tiles + slots + sums if beside else max(tiles + slots, sums)) + 2 * MBARRIER_BYTES * s.stages
    used += MBARRIER_BYTES * (s.group[0] * s.group[1] // LANES) * s.c_turns
    if used > target.local_bytes:
        fewer = _fewer(s, used - target.local_bytes, tiles // s.stages + 16, (min(boxes, s.c_stages), slot))
        whose = f", {sums:,} of them for sums, which no tile makes room for," if beside and sums else ""
        remedy = "c_width 2" if sums and s.joined == 1 and (s.persistent or sums > tiles) else fewer
        yield f"local memory {used:,} B{whose} > {target.local_bytes:,} B on this target: use {remedy}"
    own, has = s.tile[0] * s.tile[1] * atom.terms, s.registers[0] or launched(s)
    others = OTHERS + registers_held(s, atom)
    if own + others > has:
        yield f"{own} sums of a work-item and {others} registers besides > {has}: use a smaller tile"
