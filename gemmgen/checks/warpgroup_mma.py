"""What a target, and a product, have against multiplying by warpgroups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from gemmgen.checks.gated import may_be_packed
from gemmgen.checks.lines_of_c import SUM_PAD, comes_out_even, stores_lines
from gemmgen.checks.roles import ALIGNMENT, MOST_LINES, launched, role_problems
from gemmgen.checks.schedulers import joined_problems
from gemmgen.checks.types import as_they_are, lacks
from gemmgen.checks.warp_mma import other_atom
from gemmgen.ir.instructions import (
    WARPGROUP_LANES,
    WGMMA_COLS,
    WGMMA_INSTRUCTIONS,
    WGMMA_MOST_COLS,
    WORD_BYTES,
    Instruction,
    matrix_instruction,
)
from gemmgen.ir.operands import STAGED_BYTES, TRANSPOSED_BYTES, stored_tma_tile
from gemmgen.ir.swizzle import LINES_BYTES, line_bytes
from gemmgen.ir.target import TARGETS, Target
from gemmgen.schedule import Operand, Schedule
from gemmgen.schedule.warpgroup_mma import WarpgroupMma
from gemmgen.spec import GemmSpec

#: Bytes of an mbarrier.
MBARRIER_BYTES = 8
#: What a work-item that multiplies needs of registers beside its sums.
OTHERS = 24
#: Elements after each column of sums in local memory, where they are staged by columns.
TURNED_PAD = 4


def warpgroup_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule whose atom is wgmma, each with a remedy."""
    atom = matrix_instruction(s.atom, spec.dtype, "warpgroup")
    if atom is None:
        yield other_atom(spec, s, WGMMA_INSTRUCTIONS)
        return
    lacking = [*lacks(f"atom {s.atom}", ("wgmma", "tensor_maps"), target, "target sm_90a, or atom mma")]
    yield from lacking
    if spec.listed:
        yield f"atom {s.atom} has maps of matrices a stride apart, not of a list: leave listed out, or use atom mma"
    yield from as_they_are(spec, s, tuple(name for name in "ab" if is_held(s, name)))
    yield from _operands(spec, s)
    yield from register_problems(s, atom)
    (high, wide), whole = s.group, WARPGROUP_LANES // 4
    if (wide % 4 or high % whole) and not s.operands_swapped:
        yield (
            f"group {high}x{wide} is not made of warpgroups of {whole}x4: use group 64x4, say, two above one another, "
            f"{whole}x8, two beside one another, or 4x{whole}, by which operands are swapped"
        )
        return
    yield from _tiles(spec, s, atom)
    yield from role_problems(s, target)
    # Where another target is to be used, its room counts.
    yield from _room(spec, s, atom, TARGETS["sm_90a"] if lacking else target)


def _operands(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """What TMA can't load in the order of the matrix."""
    by_boxes = [name for name, operand in (("a", s.a), ("b", s.b)) if not operand.prepacked]
    for name in by_boxes:
        packs, packed = may_be_packed(spec, name), f"(--set {name}.prepacked=true)"
        if spec.prologue(name) is not None and not is_held(s, name):
            yield (
                f"prologue_{name}, but TMA loads go straight to shared memory with atom {s.atom}: "
                + (f"let a kernel before apply it {packed}" if packs else "use --method slm")
            )
        elif spec.element(name).pairs and not is_held(s, name):
            yield (
                f"{name}_dtype {spec.element(name)}, but tiles that TMA loads have whole bytes: "
                + (f"let a kernel before take pairs apart {packed}" if packs else "use --method slm")
            )
    if by_boxes and s.atom == "wgmma_3xtf32":
        packed = " ".join(f"--set {name}.prepacked=true" for name in by_boxes)
        remedy = f"let it ({packed})" if may_be_packed(spec, by_boxes) else "use --method slm"
        yield f"atom {s.atom} multiplies what a kernel before takes apart: {remedy}"
    torn = [name for name in by_boxes if spec.ld_unit(name) * spec.element(name).size % ALIGNMENT]
    if torn:
        unit = ALIGNMENT // min(spec.element(name).size for name in torn)
        packed = " ".join(f"--set {name}.prepacked=true" for name in torn)
        yield (
            f"atom {s.atom} copies lines that begin on multiples of {ALIGNMENT} bytes, but leading dimensions are "
            f"multiples of {spec.ld_units}: pass --ld-multiple {unit}"
            + (f", or let a kernel before lay them out ({packed})" if may_be_packed(spec, torn) else "")
        )


def _tiles(spec: GemmSpec, s: Schedule, atom: Instruction) -> Iterator[str]:
    """What a block is made of."""
    high, wide = s.group
    if atom.dtype.size != TRANSPOSED_BYTES:
        yield from _along_k(spec, s)
    yield from _shares(spec, s) if s.cluster_reduction > 1 else ()
    lines, across, other = ("columns", "rows", "A") if s.operands_swapped else ("rows", "columns", "B")
    given, swapped = s.tile, s.operands_swapped
    by_columns = swapped and s.partial_sums > 1
    spec, s = exchange_operands(spec, s) if s.operands_swapped else (spec, s)
    rows, cols = s.block_tile
    if s.tile[0] % 2 or rows > MOST_LINES:
        most = MOST_LINES // s.group[0]
        yield f"tile {given[0]}x{given[1]} has no pairs of {lines}, or more than {most} of them: use 2 {lines}"
    unit = WGMMA_COLS if atom.sums.is_float else 2 * WGMMA_COLS
    if cols % unit or cols > WGMMA_MOST_COLS:
        most = WGMMA_MOST_COLS
        yield f"a block's {cols} {across} of {other}, multiplied by {unit}: use a multiple of {unit} up to {most}"
    yield from _beside(spec, s, atom, (across, other), unit)
    yield from _steps(spec, s, atom)
    yield from _cluster(s)
    if s.ordered_epilogue and not (s.persistent and high * wide > WARPGROUP_LANES):
        yield (
            "ordered_epilogue lets a warpgroup multiply for the next block while another stores by TMA: use it with "
            "persistent, "
            "epilogue_stages 2 and group 64x4, say, or leave it out"
        )
    if s.cluster_reduction == 1:
        if s.epilogue_stages:
            yield from _boxes(spec, s, lines, across)
        else:
            yield from _stores(spec, s, across, by_columns, swapped)


def _beside(spec: GemmSpec, s: Schedule, atom: Instruction, names: tuple[str, str], unit: int) -> Iterator[str]:
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
            f"a warpgroup's {own} {across} of {other} are TMA tiles of {line}, within which no other may "
            f"begin: use a multiple of {line}, or 32 or 16, or group {s.group[0] * beside}x4"
        )


def _steps(spec: GemmSpec, s: Schedule, atom: Instruction) -> Iterator[str]:
    """How deep a tile is: as a line that swizzles is wide, of elements in two terms the widest; or several of these."""
    known = [size // atom.dtype.size for size in (LINES_BYTES if atom.terms == 1 else LINES_BYTES[-1:])]
    several = ("BK" in s.mainloop.free or spec.sum_group) and s.block_k % known[-1] == 0
    if s.block_k not in known and not several:
        whose = f"lines of {spec.dtype} are {_either(known)} long"
        yield f"block_k = {s.block_k}, but {whose}: use block_k {atom.line}, or less where K is short"
    elif spec.element("a").pairs and is_held(s, "a") and s.block_k == known[0]:
        stored = spec.element("a")
        yield f"block_k = {s.block_k} of {stored} are lines of {s.block_k // 2} bytes: use block_k {known[1]} or more"


def _boxes(spec: GemmSpec, s: Schedule, lines: str, across: str) -> Iterator[str]:
    """C by TMA, as tensor maps have it: of its rows, or columns where operands are swapped, which are the `lines` of
    an instruction.
    """
    size = spec.result.size
    instead = "use epilogue_stages 0, by which work-items store it"
    transposed_bytes = is_held(s, "a") and spec.element("a").size == 1 and s.read_order("a", spec.a_order) == "col"
    if spec.c_order == "col" and transposed_bytes and size == TRANSPOSED_BYTES:
        order = f"{across.removesuffix('s')}-major"
        yield (
            f"epilogue_stages = {s.epilogue_stages} transposes {spec.result} for a {order} C, but where A's bytes are "
            f"transposed on their way to registers, two work-items own neighbouring {lines}: {instead}, with c_width 1"
        )
    if s.split_k > 1:
        yield (
            f"epilogue_stages = {s.epilogue_stages} stores C by TMA, but split_k = {s.split_k} leaves sums of its "
            f"parts: {instead}"
        )
    if size not in STAGED_BYTES:
        yield (
            f"epilogue_stages = {s.epilogue_stages} stores elements of {_either(STAGED_BYTES)} bytes, "
            f"not {spec.result}: {instead}"
        )
        return
    if spec.ld_unit("c") * size % ALIGNMENT:
        yield (
            f"epilogue_stages = {s.epilogue_stages} stores lines of {spec.result} that begin on multiples of "
            f"{ALIGNMENT} bytes, but "
            f"leading dimensions are multiples of {spec.ld_units}: pass --ld-multiple {ALIGNMENT // size}, or "
            f"{instead}"
        )


def _either(values: Iterable[int]) -> str:
    *others, last = map(str, values)
    return " or ".join([", ".join(others), last] if others else [last])


def _along_k(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """Instructions on other elements than 16-bit ones turn nothing."""
    for name, given, wanted in (("a", spec.a_order, "row"), ("b", spec.b_order, "col")):
        found = s.read_order(name, given)
        if found != wanted and not is_held(s, name):
            remedy = "--set a.prepacked=true" if name == "a" else "--set b.prepacked=true --set b.transposed=true"
            if s.operand(name).prepacked:
                yield (
                    f"atom {s.atom} multiplies lines along K, but {name} is packed {found}-major: use --set "
                    f"{name}.transposed={str(name == 'b').lower()}"
                )
                continue
            yield (
                f"atom {s.atom} multiplies lines along K, but {name} is {found}-major: store it {wanted}-major"
                + (f", or let a kernel before turn it ({remedy})" if may_be_packed(spec, name) else "")
            )


def _stores(spec: GemmSpec, s: Schedule, across: str, by_columns: bool, swapped: bool) -> Iterator[str]:
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
        yield f"c_width = {s.c_width}: use 2, which a work-item has, or 1, 4 or 8 by way of local memory"
    elif stores_lines(spec, s, swapped) and not comes_out_even((rows, cols), s.c_width, consumers):
        yield f"{rows}x{cols} of C in runs of {s.c_width} can't be dealt out evenly to {consumers}: use c_width 2"


def _cluster(s: Schedule) -> Iterator[str]:
    """Groups that share tiles."""
    down, across = s.cluster
    if s.cluster == (1, 1):
        return
    if min(down, across) > 1 or down * across not in (2, 4):
        yield f"cluster {down}x{across} is no line of 2 or 4 groups: use 2x1, 1x2, 4x1 or 1x4, or 1x1 for none"
    if s.split_k > 1:
        yield f"cluster {down}x{across}, but split_k = {s.split_k} makes groups of parts of K: leave one of the two out"
    if s.a.evict_first or s.b.evict_first:
        yield f"cluster {down}x{across} shares tiles by multicast, but a or b has evict_first: leave one of the two out"


def _shares(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """What each group of a cluster adds up of a block, and stores."""
    if s.cluster != (1, 1):
        yield (
            f"cluster_reduction = {s.cluster_reduction} makes clusters of parts of K, cluster others: leave one of "
            "the two out"
        )
    if s.epilogue_stages:
        yield (
            f"epilogue_stages = {s.epilogue_stages} stores C by TMA, but cluster_reduction = {s.cluster_reduction} "
            "adds up its lines: use epilogue_stages 0"
        )
    yield from joined_problems(s, s.block_tile if spec.c_order == "row" or s.partial_sums > 1 else s.block_tile[::-1])


def _tile_bytes(transposed: bool, outer: int, depth: int, size: int) -> int:
    """Of a tile: whole lines, along whatever is its fast axis."""
    slow, fast = (depth, outer) if transposed else (outer, depth)
    line = line_bytes(fast * size)
    return slow * -(-fast * size // line) * line


def _slot(spec: GemmSpec, s: Schedule) -> tuple[int, int]:
    """Bytes of a slot for TMA tiles of C, one of each warp; and how many TMA tiles of a block a warp has."""
    cols, by_columns = s.block_tile[1] // s.warpgroups[1] // spec.halves, spec.c_order == "col"
    lines, length = stored_tma_tile(cols, spec.result, by_columns)
    warps, across = s.group[0] * s.group[1] // (WARPGROUP_LANES // 4), lines if by_columns else length
    return warps * lines * line_bytes(length * spec.result.size), s.tile[0] // 2 * -(-cols // across)


def _fewer(s: Schedule, over: int, stage: int, c: tuple[int, int]) -> str:
    """What takes so many bytes less, of stages so large, and of so many slots for TMA tiles of C, so large."""
    slots, slot = c
    # A group of less than a warpgroup has no slots, and is refused for that as well.
    enough = s.stages - -(-over // stage), slots - -(-over // slot) if slot else 0
    ways = [f"{enough[1]} epilogue_stages instead of {s.epilogue_stages}"] * (enough[1] > 0)
    ways += [f"{enough[0]} stages instead of {s.stages}"] * (enough[0] > 1)
    return ", or ".join([*ways, "a smaller tile"])


def _room(spec: GemmSpec, s: Schedule, atom: Instruction, target: Target) -> Iterator[str]:
    """Local memory and registers. A row-major B takes whole TMA tiles."""
    swapped = s.operands_swapped
    spec, s = exchange_operands(spec, s) if s.operands_swapped else (spec, s)
    rows, cols = s.block_tile
    of_a = spec.element("a") if is_held(s, "a") else atom.dtype
    transposed_a, transposed_b = s.read_order("a", spec.a_order) == "col", s.read_order("b", spec.b_order) == "row"
    depth = s.block_k * atom.terms
    tiles = s.stages * (
        _tile_bytes(transposed_a, rows, depth, of_a.size) + _tile_bytes(transposed_b, cols, depth, atom.dtype.size)
    )
    slot, boxes = _slot(spec, s)
    slots = min(boxes, s.epilogue_stages) * slot
    by_memory = s.cluster_reduction > 1 or stores_lines(spec, s, swapped)
    sums = max(rows * (cols + SUM_PAD), (rows + TURNED_PAD) * cols) * atom.sums.size if by_memory else 0
    beside = s.persistent or s.cluster_reduction > 1
    used = (tiles + slots + sums if beside else max(tiles + slots, sums)) + 2 * MBARRIER_BYTES * s.stages
    used += MBARRIER_BYTES * (s.group[0] * s.group[1] // WARPGROUP_LANES) * s.ordered_epilogue
    if used > target.local_bytes:
        fewer = _fewer(s, used - target.local_bytes, tiles // s.stages + 16, (min(boxes, s.epilogue_stages), slot))
        whose = f", {sums:,} of them for sums, which no tile makes room for," if beside and sums else ""
        remedy = "c_width 2" if sums and s.cluster_reduction == 1 and (s.persistent or sums > tiles) else fewer
        yield f"local memory {used:,} B{whose} > {target.local_bytes:,} B on this target: use {remedy}"
    parts = 1 + max(1, s.block_k // spec.sum_group) if spec.sum_group else atom.terms
    own, has = s.tile[0] * s.tile[1] * parts, s.setmaxnreg[0] or launched(s)
    others = OTHERS + registers_held(s, atom)
    if own + others > has:
        yield f"{own} sums of a work-item and {others} registers besides > {has}: use a smaller tile"


def is_held(s: Schedule, name: str) -> bool:
    """Whether an operand is multiplied from registers."""
    return s.operand(name).memory == "private"


def register_problems(s: Schedule, atom: Instruction) -> Iterator[str]:
    """What can't be multiplied from there."""
    able = "b" if s.operands_swapped else "a"
    for name, operand in (("a", s.a), ("b", s.b)):
        if name != able and operand.memory == "private":
            remedy = (
                "group 64x4, say, by which they are not" if s.operands_swapped else "group 4x32, say, by which they are"
            )
            yield (
                f"{name}.memory = 'private', but instructions take their first operand from registers, which is {able} "
                f"where operands are {'' if s.operands_swapped else 'not '}swapped: use {able}.memory, or {remedy}"
            )
    if is_held(s, able) and atom.terms > 1:
        yield f"{able}.memory = 'private', but atom {s.atom} multiplies tiles of heads and of rests: use 'local'"


def registers_held(s: Schedule, atom: Instruction) -> int:
    """Registers that a work-item has of A beside its sums."""
    rows = s.tile[1 if s.operands_swapped else 0]
    return (
        rows * s.block_k * atom.dtype.size // (4 * WORD_BYTES) if is_held(s, "b" if s.operands_swapped else "a") else 0
    )


@lru_cache(maxsize=256)
def exchange_operands(spec: GemmSpec, schedule: Schedule) -> tuple[GemmSpec, Schedule]:
    """The same product as that of C^T.

    Its operands have their final elements: the kernel that packs them converts stored types and applies prologues. Only
    B from registers (RS) is converted here, and its prologue applied, unless packing has applied it.
    """
    made_here = schedule.b.memory == "private" and not (schedule.b.prepacked and spec.prologue_b is not None)
    plain: dict[str, None] = {"b_dtype": None, "prologue_b": None}
    plain |= {} if made_here else {"a_dtype": None, "prologue_a": None}
    spec = replace(spec.transposed(), **plain)  # type: ignore[arg-type]
    loop, tiling = schedule.mainloop, schedule.tiling
    assert isinstance(loop, WarpgroupMma)
    tiling = replace(tiling, tile=tiling.tile[::-1], group=tiling.group[::-1])
    loop = replace(loop, a=_exchanged(loop.b), b=_exchanged(loop.a), cluster=loop.cluster[::-1])
    return spec, replace(schedule, tiling=tiling, mainloop=loop)


def _exchanged(operand: Operand) -> Operand:
    # Of an operand that is not packed the matrix' order counts.
    return replace(operand, transposed=not operand.transposed) if operand.prepacked else operand
