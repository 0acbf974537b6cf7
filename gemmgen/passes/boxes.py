"""Rings that boxes fill: one work-item of a warpgroup of its own begins the copies of a batch, by tensor maps, for all.

A batch of tiles lies along K without gaps, in local memory as in the matrix, so that an operand is one box: its lines
are steps of K, as long as a block is high or wide. Nobody else has an instruction for copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gemmgen.ir.buffer import Buffer, Layout
from gemmgen.ir.dtypes import F32
from gemmgen.ir.meeting_checks import box_bytes
from gemmgen.ir.meetings import Mbarrier
from gemmgen.ir.stmt import Body, Stage, Stmt, Tile
from gemmgen.ir.target import Target
from gemmgen.ir.walk import map_body
from gemmgen.passes.warpgroup_checks import ALIGNMENT, MOST_LINES, role_problems
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: What boxes begin on multiples of in local memory.
BOX_BYTES = 128
#: What lies along the lines of each operand's boxes.
_ACROSS = {"a": "rows", "b": "columns"}


def boxed(matrix: Buffer, name: str, s: Schedule) -> Buffer:
    """An operand as the product reads it: by boxes as deep as a batch, if it copies boxes."""
    if not s.boxes:
        return matrix
    # The kernel asks for no address in a packed matrix, and so has no name for the length of its lines.
    lines, length = matrix.shape
    layout = Layout.pitched(lines, length, length) if name in _packed(s) else matrix.layout
    streamed = (s.a if name == "a" else s.b).streamed
    return replace(matrix, layout=layout, box=(s.round_depth, _lengths(s)[name]), streamed=streamed)


def boxes_of(produce: Body, full: Mbarrier, tiles: int) -> Body:
    """The copies of a batch of so many tiles, by those of its first; `full` is told what comes."""

    def whole(tile: Tile) -> Tile:
        return replace(tile, cols=tile.cols * tiles) if tile.transposed else replace(tile, rows=tile.rows * tiles)

    def told(stmt: Stmt) -> Body:
        match stmt:
            case Stage(dst, src):
                return (replace(stmt, dst=whole(dst), src=whole(src), tells=full),)
        return (stmt,)

    size = sum(box_bytes(stmt.src.buffer) for stmt in produce if isinstance(stmt, Stage))
    return (replace(full, bytes=size), *map_body(produce, told))


def box_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule that copies boxes, each with a remedy."""
    if lacking := sorted({"wgmma", "tensor_maps"} - target.features):
        yield f"boxes, but target {target.name!r} lacks {', '.join(lacking)}: use target sm_90a, or leave them out"
    if not s.producers:
        yield "boxes are copied by work-items that do nothing else, but producers = 0: use 128"
    else:
        yield from role_problems(s, target)
    if s.slices > 1:
        yield f"boxes, but slices = {s.slices} meet where roles don't: use slices 1"
    if s.atom != "fma":
        yield f"boxes are read by single work-items, but atom is {s.atom}: use atom fma, or leave them out"
    if not s.mbarrier:
        yield "boxes are counted by mbarriers, but mbarrier = 0: use mbarrier 4 with stages 16, say"
    if spec.batched:
        yield "boxes come by a map of one matrix, not of a batch: leave boxes out, or call the kernel for each"
    if spec.dtype != F32 or any(spec.read(name, name in _packed(s)) != F32 for name in "ab"):
        yield f"boxes are of float32, but {spec.label()}: leave boxes out"
    for name, operand, order in (("a", s.a, spec.a_order), ("b", s.b, spec.b_order)):
        turned = name == "a"
        if not operand.async_copy:
            yield f"boxes are copied past the registers, but {name}.async_copy is not set: set it"
        if operand.width != 1:
            yield f"{name}.width = {operand.width} is for work-items that copy, but a box is one copy: use 1"
        if operand.pad:
            yield f"{name}.pad = {operand.pad}, but a box has no gaps between its lines: use 0"
        if operand.transposed != turned:
            yield f"boxes have K as their slow axis: set {name}.transposed {'' if turned else 'to false'}".rstrip()
        if (s.read_order(name, order) == "col") != turned and operand.transposed == turned:
            yield (
                f"boxes keep a matrix' order, but {name.upper()} is {order}-major: store it by "
                f"{'columns' if turned else 'rows'}, or set {name}.packed, so that a kernel before turns it"
            )
        if name not in _packed(s) and spec.ld_multiple * spec.dtype.size % ALIGNMENT:
            unit = ALIGNMENT // spec.dtype.size
            yield (
                f"boxes of {name.upper()} have lines that begin on multiples of {ALIGNMENT} bytes, but leading "
                f"dimensions are multiples of {spec.ld_multiple}: promise --ld-multiple {unit}, or set {name}.packed"
            )
    yield from _extents(spec, s)


def _extents(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """How long and how many the lines of a box may be."""
    for name, length in _lengths(s).items():
        if length > MOST_LINES:
            yield f"a block's {length} {_ACROSS[name]} > {MOST_LINES} of a box: use a smaller tile"
        if length * spec.dtype.size % ALIGNMENT:
            unit = ALIGNMENT // spec.dtype.size
            yield f"a block's {length} {_ACROSS[name]} are no whole {ALIGNMENT} bytes of a box: use multiples of {unit}"
        elif length * spec.dtype.size * s.round_depth % BOX_BYTES:
            size = length * spec.dtype.size * s.round_depth
            yield f"a box of {name.upper()} has {size} bytes, no multiple of {BOX_BYTES}: use a larger k_step"
    if s.round_depth > MOST_LINES:
        yield f"a batch is {s.round_depth} deep > {MOST_LINES} lines of a box: use a smaller k_step or mbarrier"


def _lengths(s: Schedule) -> dict[str, int]:
    """Elements of a line of each operand's box."""
    return dict(zip("ab", s.block_tile, strict=True))


def _packed(s: Schedule) -> str:
    return "a" * s.a.packed + "b" * s.b.packed
