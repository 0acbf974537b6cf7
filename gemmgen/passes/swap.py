"""Operands swapped: a kernel that computes C^T = B^T A^T, from its plan on, and whose names are C's in the end.

Instructions of warpgroups have 64 rows of sums and few columns, if need be; of a C with few rows they have no more than
those where they take B^T for A and A^T for B. A product is turned before it is planned, and so all that is built is
right as it is, but for names: what is called a row is a column of C. The last pass exchanges them.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from re import sub
from typing import TypeVar, cast

from gemmgen.ir.buffer import Buffer
from gemmgen.ir.expr import Var
from gemmgen.ir.kernel import Kernel, in_order
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec, Order

_Part = TypeVar("_Part")
_TURNED: dict[Order, Order] = {"row": "col", "col": "row"}
#: Names that change places: of sizes, matrices and tiles, and of places in them.
_PAIRS = (
    *(("m", "n"), ("a", "b"), ("lda", "ldb"), ("a_shared", "b_shared"), ("a_tile", "b_tile")),
    *(("a_packed", "b_packed"), ("m_whole", "n_whole"), ("ld_a_packed", "ld_b_packed")),
    *(("stride_a", "stride_b"), ("tile_row", "tile_col")),
    *(("row", "col"), ("row0", "col0"), ("c_row", "c_col"), ("local_row", "local_col")),
    *(("warpgroup_row", "warpgroup_col"), ("a_frag", "b_frag"), ("a_row", "b_col"), ("a_line_row", "b_line_col")),
    *(("a_line_k", "b_line_k"), ("a_element", "b_element"), ("a_element_row", "b_element_col")),
    *(("a_vector", "b_vector"), ("a_bytes", "b_bytes"), ("a_frag_value", "b_frag_value")),
    *((f"a{rest}", f"b{rest}") for rest in ("_scale", "_shift", "_scale_k", "_shift_k", "_factor")),
    *(("workspace_row", "workspace_col"), ("first_row", "first_col")),
    *(("blocks_down", "blocks_across"), ("block_row", "block_col"), ("band_row", "band_col")),
)
_NAMES = {**dict(_PAIRS), **{b: a for a, b in _PAIRS}}


def turned(spec: GemmSpec, schedule: Schedule) -> tuple[GemmSpec, Schedule]:
    """The same product as that of C^T. What prologues make has been made before, unless it is held in registers;
    functions on C are C's own.
    """
    m, n, k = spec.multiple_of
    held = schedule.b.memory == "private" and not schedule.b.packed
    a_order, b_order, c_order = (_TURNED[order] for order in (spec.b_order, spec.a_order, spec.c_order))
    spec = replace(
        spec,
        m=spec.n,
        n=spec.m,
        a_order=a_order,
        b_order=b_order,
        c_order=c_order,
        multiple_of=(n, m, k),
        a_dtype=spec.b_dtype if held else None,
        b_dtype=None,
        prologue_a=_formula_turned(spec) if held else None,
        prologue_b=None,
    )
    (rows, cols), (high, wide), (down, across) = schedule.tile, schedule.group, schedule.run
    a, b = _turned(schedule.b), _turned(schedule.a)
    turns = replace(schedule, tile=(cols, rows), group=(wide, high), run=(across, down), a=a, b=b)
    return spec, replace(turns, cluster=schedule.cluster[::-1])


def _formula_turned(spec: GemmSpec) -> str | None:
    """B's prologue, in words of A."""
    names = {**{b: a for a, b in _PAIRS if a.startswith("a_")}, "b": "a", "col": "row"}
    text = spec.prologue_b
    return None if text is None else sub(r"\w+", lambda word: names.get(word[0], word[0]), text)


def _turned(operand: Operand) -> Operand:
    return replace(operand, transposed=not operand.transposed)


def swap(kernel: Kernel) -> Kernel:
    """A kernel of C^T in C's words."""
    if not kernel.swapped:
        return kernel
    kernel = replace(
        kernel,
        params=_renamed(kernel.params),
        body=_renamed(kernel.body),
        grid=_renamed(kernel.grid),
        facts=_renamed(kernel.facts),
        promises=_renamed(kernel.promises),
        swapped=False,
    )
    return replace(kernel, params=in_order(kernel.params))


def _renamed(part: _Part) -> _Part:
    """Whatever part of a kernel it is, with the names of variables and buffers exchanged."""
    return cast(_Part, _exchanged(part))


def _exchanged(node: object) -> object:
    if isinstance(node, tuple):
        return tuple(map(_exchanged, node))
    if not is_dataclass(node) or isinstance(node, type):
        return node
    parts = {item.name: getattr(node, item.name) for item in fields(node)}
    changed = {name: new for name, part in parts.items() if (new := _exchanged(part)) is not part}
    if isinstance(node, Var | Buffer) and node.name in _NAMES:
        changed["name"] = _NAMES[node.name]
    return replace(node, **changed) if changed else node
