"""Expand tiles that TMA loads and warpgroups multiply: loads, descriptors, matrix instructions; and A from registers.

A comes to registers out of lines that swizzle, by `ldmatrix` where that has the instruction's fragments, else by single
elements or pairs, which a prologue may make into others. TMA has put the parts of 16 bytes of a line elsewhere; what
reads by plain instructions has to say so itself: of lines of 128 bytes, part p of line i lies where part p ^ (i % 8)
would; of narrower ones (`ir/swizzle.py`) two, or four, change alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.constants import is_free
from gemmgen.ir.copy_instructions import ALIGNED_VECTOR, BYTE_OF_PAIR, PAIR, ThreadValueLayout, in_pairs
from gemmgen.ir.dtypes import F32, FLOAT16, I8, accumulator
from gemmgen.ir.elementwise import ELEMENT_K, ELEMENT_OWN, ELEMENT_STEP_K
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Var, as_int, compare, convert, minimum, number, select
from gemmgen.ir.instructions import (
    ACROSS,
    LINES,
    TILE_LINE_BYTES,
    WARPGROUP_LANES,
    WARPGROUP_ROWS,
    WGMMA_DEPTH_BYTES,
    WORD_BYTES,
)
from gemmgen.ir.kernel import COL, ELEMENT, ROW, loop
from gemmgen.ir.operands import LDMATRIX_BYTES, PART_BYTES, TMA_TILE_ROWS
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    Comment,
    CooperativeCopy,
    For,
    FragmentLoad,
    If,
    Let,
    Multiply,
    PointerInit,
    Registers,
    Store,
    Tile,
    TileMma,
    TmaCopy,
    VectorCopy,
)
from gemmgen.ir.synchronization import RANK
from gemmgen.ir.walk import map_expr, map_index, substitute, walk_expr
from gemmgen.passes.expand_functions import made_anywhere
from gemmgen.positions import KK, LOCAL_INDEX, LOCAL_ROW, WARPGROUP, WARPGROUP_COL, WARPGROUP_ROW

# --- tiles ----------------------------------------------------------------------------------------

BOX, TURN = Var("i"), Var("i")
#: Lines along K of a step, one after the other.
BOX_K = Var("k_block")
ZERO = Const(0)


def tma_loads(stage: CooperativeCopy) -> Body:
    """A tile as TMA tiles along its fast axis; the last is as wide as the remainder."""
    dst, src = stage.dst.buffer, stage.src.buffer
    if stage.mbarrier is None or src.tma_tile is None:
        raise LoweringError(f"{src.name} is copied by a TMA load that no mbarrier counts")
    if not dst.layout.swizzle:
        return (TmaCopy(dst, (stage.dst.origin[0], ZERO, ZERO), src, stage.src.origin, stage.mbarrier),)
    high, line = src.tma_tile
    *whose, slow, fast = stage.src.origin
    across = stage.src.rows if stage.src.transposed else stage.src.cols
    boxes, left = across // line, across % line
    first: Expr = ZERO
    place: Expr = ZERO
    _, first_box, first_line, _ = stage.dst.origin
    lines = stage.dst.cols if stage.dst.transposed else stage.dst.rows
    if src.multicast > 1 and high == lines:
        boxes //= src.multicast
        first = RANK * boxes
    elif src.multicast > 1:
        place = RANK * high

    def copy(box: Expr, matrix: Buffer) -> TmaCopy:
        to = stage.dst.origin[0], first_box + (first + box), first_line + place, ZERO
        origin = *whose, slow + place, fast + (first + box) * line
        return TmaCopy(dst, to, matrix, origin, stage.mbarrier)

    last = (copy(Const(boxes), replace(src, tma_tile=(high, left))),) if left else ()
    return (*loop(BOX, boxes, (copy(BOX, src),)), *last)


def multiply_by_warpgroups(mma: TileMma) -> Body:
    """Instructions along K; of a tile with more rows than its warpgroups have, each takes every so many."""
    acc, atom = mma.acc, mma.atom
    rows = acc.fragment.rows
    warpgroups, across = rows.lanes * 4 // WARPGROUP_LANES, acc.fragment.cols.lanes // 4
    warpgroup: Expr = ZERO if warpgroups == 1 else WARPGROUP if across == 1 else WARPGROUP_ROW
    b, slot_b = _view(mma.b, "b"), mma.b.origin[0]
    col: Expr = WARPGROUP_COL * atom.cols if across > 1 else ZERO
    line = as_int(mma.b.buffer.shape[-1]) or atom.line
    first_b = (slot_b, col // line, ZERO, col % line) if atom.b_transposed else (slot_b, ZERO, col, ZERO)
    point_b = PointerInit(b, mma.b.buffer, first_b)
    depth, boxes = mma.b.rows // atom.terms, 1
    if (deep := _along_k(mma)) is not None:
        depth, boxes = deep
    which: Expr = BOX_K
    if mma.line is not None:
        which, boxes = Const(mma.line), 1
    at_k = BOX_K * depth + KK if boxes > 1 or is_free(boxes) else KK
    along_k = For(KK, ZERO, Const(depth), atom.depth, (), unroll=True, exact=True)
    if isinstance(mma.a, Registers):
        step: Expr = ZERO if mma.b.rows == atom.depth else KK
        held = replace(mma.a, slot=(mma.a.slot or ZERO) + step // atom.depth)
        at_k = mma.b.origin[-2 if atom.b_transposed else -1] + step
        a_at, b_at = held.at(TURN * 2, ZERO), (ZERO, at_k, ZERO) if atom.b_transposed else (ZERO, ZERO, at_k)
        each = Multiply(acc.buffer, acc.at(TURN * 2, ZERO), mma.a.buffer, a_at, b, b_at, atom)
        turns = loop(TURN, rows.values // 2, (each,))
        return (point_b, *(turns if step == ZERO else (replace(along_k, body=turns),)))
    a, slot_a = _view(mma.a, "a"), mma.a.origin[0]
    first = (slot_a, warpgroup, ZERO, ZERO) if atom.a_transposed else (slot_a, ZERO, warpgroup * WARPGROUP_ROWS, ZERO)
    turn = TURN * warpgroups

    def product(head_or_rest: tuple[int, int]) -> Multiply:
        in_a, in_b = map(Const, head_or_rest) if deep is None else (which, which)
        a_index = (turn, at_k, ZERO) if atom.a_transposed else (in_a, turn * WARPGROUP_ROWS, KK)
        b_index = (ZERO, at_k, ZERO) if atom.b_transposed else (in_b, ZERO, KK)
        return Multiply(acc.buffer, acc.at(TURN * 2, ZERO), a, a_index, b, b_index, atom, KK if mma.anew else None)

    # What is small comes first.
    pairs = ((0, 0),) if atom.terms == 1 else ((1, 0), (0, 1), (0, 0))
    body = loop(TURN, rows.values // 2, tuple(map(product, pairs)))
    views = () if mma.line else (PointerInit(a, mma.a.buffer, first), point_b)
    return (*views, *loop(BOX_K, boxes, (replace(along_k, body=body),)))


def _along_k(mma: TileMma) -> tuple[int, int] | None:
    """Of a step whose lines lie along K: elements of a line, and how many lines one after the other a step is deep.
    None of parts, which are a line each, and of what lies across K.
    """
    a, b = mma.a, mma.b
    lie_along = [
        x.buffer for x, transposed in ((a, mma.atom.a_transposed), (b, mma.atom.b_transposed)) if not transposed
    ]
    tiles = [x for x in lie_along if x.space is Space.LOCAL]
    if mma.atom.terms > 1 or not tiles or isinstance(a, Registers):
        return None
    return as_int(tiles[0].shape[-1]) or mma.atom.line, as_int(tiles[0].shape[1]) or 1


def _view(tile: Tile, name: str) -> Buffer:
    """What a warpgroup multiplies of a slot."""
    layout = tile.buffer.layout
    own = Layout(layout.shape[1:], layout.strides[1:], layout.swizzle)
    return Buffer(f"{name}_tile", tile.buffer.dtype, Space.VIEW, own)


# --- A from registers -----------------------------------------------------------------------------

#: Which of the instructions along K.
STEP = Var("p")
#: One of the four matrices of a load, and which of two neighbouring rows.
MATRIX, SIDE = Var("q"), Var("side")
#: An element's place in A's tile.
TILE_ROW, TILE_K, TILE_BYTE = Var("tile_row"), Var("tile_k"), Var("tile_byte")
#: Gives a value a name at the kernel's top.
Namer = Callable[[str, Expr, int], Expr]


def load_operand(copy: FragmentLoad, named: Namer) -> Body:
    """All of a step's A."""
    if copy.atom is LDMATRIX_BYTES:
        body = _by_bytes(copy, named)
    elif copy.atom is BYTE_OF_PAIR:
        body = _in_pairs(copy, named)
    else:
        body = _by_lines(copy, named) if copy.atom.matrices is not None else _singly(copy, named)
    return (*body, *_zeros_past_k(copy))


def place(tile: Tile, row: Expr, k: Expr, own: Expr = ZERO) -> tuple[Expr, ...]:
    """Where an element of A lies in its tile, [slot][box][line][element], as it is found by plain instructions.

    Args:
        own: how far behind `k` along a line, in the same part of 16 bytes: so all that the swizzle changes is the same
            for each thread of a row.
    """
    length, parts = as_int(tile.buffer.shape[-1]) or 1, tile.buffer.layout.swizzle // PART_BYTES
    part = PART_BYTES // tile.buffer.dtype.size
    line, along = (k, row) if tile.transposed else (row, k)
    box: Expr = along // length if tile.transposed else ZERO
    element = along % length if tile.transposed else along
    swizzled = Bin("^", element, line // (LINES // parts) % parts * part)
    return (tile.origin[0], box, line, swizzled + own)


def _by_lines(copy: FragmentLoad, named: Namer) -> Body:
    """By matrices of eight lines of 16 bytes: lane 8 q + i names line i of matrix q, of which the first two are of the
    warp's rows, the others 16 bytes on along K.
    """
    fragment, src, matrices = copy.dst.fragment, copy.src, copy.atom.matrices
    if matrices is None:
        raise LoweringError(f"{copy.atom.name} loads no matrices")
    depth = WGMMA_DEPTH_BYTES // src.buffer.dtype.size
    first = LOCAL_ROW // LINES * TMA_TILE_ROWS
    lower, deeper, own = LOCAL_INDEX // LINES % 2, LOCAL_INDEX // TMA_TILE_ROWS % 2, LOCAL_INDEX % LINES
    row = first + lower * LINES if matrices.transposed else first + LOCAL_INDEX % TMA_TILE_ROWS
    k = deeper * (depth // 2) + own if matrices.transposed else deeper * (depth // 2)
    own_row, own_k = named("a_line_row", row, 1), named("a_line_k", k, 1)
    tile_k = Let(TILE_K, _first_k(src) + own_k + STEP * depth)
    rows, tile_row = _rows(own_row, fragment)
    to = replace(copy.dst, slot=_slot(copy, STEP)).at(ROW * 2, ZERO)
    move = VectorCopy(copy.dst.buffer, to, src.buffer, place(src, tile_row, TILE_K), copy.atom, copy.width)
    return loop(ROW, fragment.rows.values // 2, (*rows, *loop(STEP, src.cols // depth, (tile_k, move))))


def _first_k(tile: Tile) -> Expr:
    """Where, of A's tile, the part begins that is loaded."""
    return tile.origin[-2 if tile.transposed else -1]


def _slot(copy: FragmentLoad, instruction: Expr) -> Expr:
    """Where the fragment of one of the instructions lies whose A is loaded."""
    return instruction if copy.dst.slot is None else copy.dst.slot + instruction


def _rows(first: Expr, fragment: ThreadValueLayout) -> tuple[Body, Expr]:
    """The line of the tile that a lane names, and its name where it has several."""
    if fragment.rows.values == 2:
        return (), first
    return (Let(TILE_ROW, first + ROW * (fragment.rows.lanes * 2)),), TILE_ROW


def _by_bytes(copy: FragmentLoad, named: Namer) -> Body:
    """Elements of a byte whose lines lie across K, by matrices that lie along it: of two lines of each a lane gets two
    rows, its own (`paired`). Where elements become larger ones, a load reads what two instructions take.
    """
    src, width, dst = copy.src, copy.width, copy.dst
    own_line, at_once = LOCAL_INDEX % LINES, WGMMA_DEPTH_BYTES // dst.fragment.cols.extent
    matrix = LOCAL_INDEX // LINES % 4
    # Neighbours along K of a register: four bytes, which two matrices bring, or two elements of two.
    in_order = matrix * LINES + own_line
    by_fours = matrix // 2 * 16 + matrix % 2 * 2 + own_line // 2 * 4 + own_line % 2
    rows, tile_row = _rows(named("a_line_row", LOCAL_ROW // LINES * TMA_TILE_ROWS, 1), dst.fragment)
    own_k = named("a_line_k", in_order if at_once > 1 else by_fours, 1)
    tile_k = Let(TILE_K, _first_k(src) + own_k + STEP * WGMMA_DEPTH_BYTES)
    at = place(src, tile_row, TILE_K)
    layout = Layout.packed(2, width // 2)
    raw = Buffer(f"{src.buffer.name.partition('_')[0]}_bytes", src.buffer.dtype, Space.PRIVATE, layout)
    load = VectorCopy(raw, (ZERO, ZERO), src.buffer, at, copy.atom, width)
    value = Load(raw, (MATRIX // 2, MATRIX % 2 * 4 + ELEMENT * 2 + SIDE))
    first = (MATRIX % 2 if at_once > 1 else MATRIX) * 2
    among = first + ELEMENT
    to = replace(dst, slot=_slot(copy, STEP * at_once) + (MATRIX // 2 if at_once > 1 else 0)).at(ROW * 2 + SIDE, first)
    row = named("a_row", dst.fragment.rows.start, 1) + dst.fragment.rows.step(ROW * 2 + SIDE)
    k = _first_k(src) + dst.fragment.cols.start + dst.fragment.cols.step(among)
    k = k + (MATRIX // 2 * (WGMMA_DEPTH_BYTES // 2) if at_once > 1 else 0) + STEP * WGMMA_DEPTH_BYTES
    each = loop(MATRIX, 4, loop(SIDE, 2, _stored(copy, to, 2, _made(copy, row, k, ROW * 2 + SIDE, value))))
    steps = loop(STEP, src.cols // WGMMA_DEPTH_BYTES, (tile_k, Alloc(raw), load, *each))
    return loop(ROW, dst.fragment.rows.values // 2, (*rows, *steps))


def _singly(copy: FragmentLoad, named: Namer) -> Body:
    """By what a thread holds: along K neighbours, of each of its rows."""
    fragment, src, width, dst = copy.dst.fragment, copy.src, copy.width, replace(copy.dst, slot=_slot(copy, STEP))
    depth = fragment.cols.extent
    row = named("a_row", fragment.rows.start, 1) + fragment.rows.step(ROW)
    k = _first_k(src) + fragment.cols.start + fragment.cols.chunk_step(COL, width) + STEP * depth
    tile_row, tile_k, at = Let(TILE_ROW, row), Let(TILE_K, k), place(src, TILE_ROW, TILE_K)
    if width > 1 and depth * src.buffer.dtype.size == PART_BYTES:
        own = fragment.cols.start + fragment.cols.chunk_step(COL, width)
        at = place(src, TILE_ROW, _first_k(src) + STEP * depth, own)
    if _lie_in_half_the_banks(copy):
        body = _in_turns(copy, Load(src.buffer, at), named)
        return loop(STEP, src.cols // depth, loop(ROW, fragment.rows.values, (tile_row, *body)))
    if width == 1:
        body = _stored(copy, dst.at(ROW, COL), 1, _made(copy, TILE_ROW, TILE_K, ROW, Load(src.buffer, at)))
    elif copy.prologue is None and src.buffer.dtype == I8:
        body = (VectorCopy(dst.buffer, dst.at(ROW, COL * width), src.buffer, at, copy.atom, width),)
    else:
        # Bytes become floats as they are read, all of a word together.
        dtype = F32 if src.buffer.dtype == I8 else src.buffer.dtype
        raw = Buffer(f"{src.buffer.name.partition('_')[0]}_vector", dtype, Space.PRIVATE, Layout.packed(width))
        made = _made(copy, TILE_ROW, TILE_K + ELEMENT, ROW, Load(raw, (ELEMENT,)))
        load = VectorCopy(raw, (ZERO,), src.buffer, at, copy.atom, width)
        body = (Alloc(raw), load, *_stored(copy, dst.at(ROW, COL * width), width, made))
    columns = loop(COL, fragment.cols.values // width, (tile_k, *body))
    return loop(STEP, src.cols // depth, loop(ROW, fragment.rows.values, (tile_row, *columns)))


def _in_pairs(copy: FragmentLoad, named: Namer) -> Body:
    """Of int4 neighbours along K, which are the halves of a byte."""
    fragment, src, dst = copy.dst.fragment, copy.src, replace(copy.dst, slot=_slot(copy, STEP))
    depth = fragment.cols.extent
    row = named("a_row", fragment.rows.start, 1) + fragment.rows.step(ROW)
    to = dst.at(ROW, COL * PAIR)
    first = _first_k(src) + STEP * (depth // PAIR)
    own = in_pairs(fragment.cols.start) + in_pairs(fragment.cols.chunk_step(COL, PAIR))
    at = place(src, TILE_ROW, first, own)
    pair = Var("a_pair", src.buffer.dtype)
    made = _made(copy, TILE_ROW, TILE_BYTE * PAIR + ELEMENT, ROW, Call("nibble", (pair, ELEMENT), F32))
    body: Body = (Let(TILE_BYTE, first + own), Let(pair, Load(src.buffer, at)), *_stored(copy, to, PAIR, made))
    if copy.prologue is None:
        body = (VectorCopy(dst.buffer, to, src.buffer, at, copy.atom, PAIR),)
    columns = loop(COL, fragment.cols.values // PAIR, body)
    return loop(STEP, src.cols * PAIR // depth, loop(ROW, fragment.rows.values, (Let(TILE_ROW, row), *columns)))


def _lie_in_half_the_banks(copy: FragmentLoad) -> bool:
    """Whether words that the lanes of a warp read at a time lie in half of the banks: eight rows next to each other, of
    four lines along K, whose parts of four rows the swizzle of 128 bytes exchanges among eight rows alone.
    """
    src, cols = copy.src, copy.dst.fragment.cols
    words = src.buffer.dtype.size == WORD_BYTES and src.buffer.layout.swizzle == TILE_LINE_BYTES
    return src.transposed and words and (cols.values, cols.vector, cols.lanes) == (2, 1, ACROSS)


def _in_turns(copy: FragmentLoad, element: Load, named: Namer) -> Body:
    """A row's two words. Every other four rows begin with the second, four lines on, which lies in the other banks."""
    fragment, dst = copy.dst.fragment, replace(copy.dst, slot=_slot(copy, STEP))
    late = named(f"{copy.src.buffer.name.partition('_')[0]}_second_first", LOCAL_ROW // ACROSS % 2, 1)
    k = _first_k(copy.src) + fragment.cols.start + Bin("^", COL, late) * ACROSS + STEP * fragment.cols.extent
    pair = Buffer(f"{copy.src.buffer.name.partition('_')[0]}_pair", dst.buffer.dtype, Space.PRIVATE, Layout.packed(2))
    names, value = _made(copy, TILE_ROW, TILE_K, ROW, element)
    read = loop(COL, 2, (Let(TILE_K, k), *names, Store(pair, (COL,), convert(value, pair.dtype))))
    one, other = Load(pair, (COL,)), Load(pair, (Const(1) - COL,))
    in_order = Store(dst.buffer, dst.at(ROW, COL), select(compare("==", late, 0), one, other))
    return (Alloc(pair), *read, *loop(COL, 2, (in_order,)))


def _made(copy: FragmentLoad, row: Expr, k: Expr, own: Expr, raw: Expr) -> tuple[Body, Expr]:
    """What is named on the way, and what an element becomes: what its prologue makes of it, or what it is.

    Args:
        row, k: where it is in the tile.
        own: which of the work-item's rows that is.
    """
    dtype = copy.dst.buffer.dtype
    if copy.prologue is None or copy.of is None:
        # By way of sums' type: languages convert all others from that and to it.
        return (), raw if raw.dtype == dtype else convert(raw, accumulator(dtype))
    of, each = copy.of, _each(copy)
    matrix, (slow0, fast0) = _alone(of.buffer, each), of.origin[-2:]
    slow, fast = (k, row) if of.transposed else (row, k)
    first = _first_k(copy.src) + STEP * (copy.dst.fragment.cols.extent // each)
    # What is made past K becomes zero, but arrays end there.
    last = minimum(ELEMENT_K, matrix.shape[matrix.contracted or 0] - 1)

    def in_step(node: Expr) -> Expr:
        match node:
            case Bin("/", place, Const(int(group))) if place == ELEMENT_STEP_K:
                return first // (group // each)
            case Load(buffer, (place,)) if place == ELEMENT_K:
                return Load(buffer, (minimum(place, buffer.shape[0] - 1),))
            case Load(buffer, index):
                return Load(buffer, map_index(index, substitute({ELEMENT_K: last})))
        return own if node == ELEMENT_OWN else node

    step = replace(copy.prologue, value=map_expr(copy.prologue.value, in_step))
    names, value = made_anywhere(step, matrix, (slow0 + slow, fast0 + fast), raw)
    # The instruction multiplies float32 as TF32: what TMA has not rounded is here.
    return names, Call("tf32", (value,), dtype) if dtype == F32 else value


def _stored(copy: FragmentLoad, to: tuple[Expr, ...], width: int, made: tuple[Body, Expr]) -> Body:
    """What becomes of so many neighbours along K, each by the number `ELEMENT`, in the instruction's type: of 16 bits
    two at a time, which one instruction converts.
    """
    (names, value), dst = made, copy.dst.buffer
    once = tuple(name for name in names if isinstance(name, Let) and ELEMENT not in walk_expr(name.value))
    each = tuple(name for name in names if name not in once)
    if width == 2 and dst.dtype in FLOAT16 and value.dtype == F32:
        pair = Buffer(f"{dst.name.partition('_')[0]}_values", F32, Space.PRIVATE, Layout.packed(2))
        values = loop(ELEMENT, 2, (*each, Store(pair, (ELEMENT,), value)))
        return (*once, Alloc(pair), *values, VectorCopy(dst, to, pair, (ZERO,), ALIGNED_VECTOR, 2))
    store = Store(dst, (*to[:-1], to[-1] + ELEMENT) if width > 1 else to, convert(value, dst.dtype))
    return (*once, *loop(ELEMENT, width, (*each, store)))


def _zeros_past_k(copy: FragmentLoad) -> Body:
    """Zeros for what lies past K, of which a prologue may make anything. The step that reaches there is the last one:
    all others ask once. What TMA has filled up with is zero, but not that times an infinite scale.
    """
    if copy.prologue is None or copy.of is None:
        return ()
    dst, cols, each = copy.dst, copy.dst.fragment.cols, _each(copy)
    matrix = _alone(copy.of.buffer, each)
    along = matrix.contracted or 0
    begin, end = copy.of.origin[-2:][along], matrix.shape[along]
    k = begin + _in_elements(_first_k(copy.src), each) + STEP * cols.extent + cols.start + cols.step(COL)
    to = replace(dst, slot=_slot(copy, STEP)).at(ROW, COL)
    zeros = loop(ROW, dst.fragment.rows.values, (Store(dst.buffer, to, number(0, dst.buffer.dtype)),))
    columns = loop(COL, cols.values, (If(compare("<=", end, k), zeros),))
    say = Comment("Past K are zeros, whatever the prologue makes of those that TMA has filled up with.")
    last = (say, *loop(STEP, copy.src.cols * each // cols.extent, columns))
    return (If(compare("<", end, begin + copy.of.cols * each), last),)


def _in_elements(place: Expr, each: int) -> Expr:
    """A place along K that counts elements of the tile, each of which holds so many."""
    match place:
        case Bin("/", elements, Const(count)) if count == each:
            return elements  # of an instruction's part, which begins on a multiple
    return place * each


def _each(copy: FragmentLoad) -> int:
    """Elements of an element of the tile."""
    return PAIR if copy.atom is BYTE_OF_PAIR else 1


def _alone(matrix: Buffer, each: int) -> Buffer:
    """A matrix of a batch by its own two coordinates, of bytes by those of the elements that they hold."""
    (slow, fast), contracted = matrix.shape[-2:], matrix.contracted
    layout = Layout((slow, fast * each), matrix.layout.strides[-2:])
    contracted = None if contracted is None else contracted - (len(matrix.shape) - 2)
    return replace(matrix, layout=layout, contracted=contracted)
