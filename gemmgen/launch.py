"""What a host is told of a kernel: its arguments, its launch, and how far its places reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import I32, I64
from gemmgen.ir.expr import Expr, Var
from gemmgen.ir.instructions import TILE_LINE_BYTES
from gemmgen.ir.kernel import Kernel, addressed, awaits_others
from gemmgen.ir.sizes import GROUP_COUNT, MOST_GROUPS, OF_ALL_GROUPS
from gemmgen.ir.stmt import TmaCopy, VectorCopy
from gemmgen.ir.walk import map_expr, of_kind, substitute
from gemmgen.source import Argument, ArgumentKind, EntryPoint, TensorMap
from gemmgen.spec import GemmSpec


def span(kernel: Kernel) -> int:
    """What A and B must span less than: 2^31 of what their 32-bit addresses count, elements or bytes; or 2^63."""
    if any(matrix.reach > 2**31 for matrix in kernel.matrices):
        return 2**63
    moves = (s for s in of_kind(VectorCopy, kernel.body) if s.byte_place and s.src.space is Space.GLOBAL)
    return 2**31 // max((move.src.dtype.size for move in moves), default=1)


def entry_point(kernel: Kernel, local_bytes: int, dynamic_bytes: int) -> EntryPoint:
    """The launch side of a kernel."""
    return EntryPoint(
        kernel.name,
        tuple(_argument(param, kernel) for param in passed(kernel)),
        kernel.group,
        kernel.grid,
        local_bytes,
        dynamic_bytes,
        kernel.sub_group,
        None if kernel.grid_z is None else kernel.grid_z.name,
        awaits_others(kernel),
        tensor_maps(kernel),
        kernel.persistent,
        kernel.cluster,
    )


def passed(kernel: Kernel) -> tuple[Buffer | Var, ...]:
    """The arguments of a kernel's function: of a matrix that TMA copies the tensor map, which holds its leading
    dimension, and behind that the matrix itself where it is read or written by elements as well.
    """
    boxed = {p.name: p for p in kernel.matrices if p.tma_tile is not None}
    alone = {p.name for p in kernel.matrices} - boxed.keys() | addressed(kernel)
    strides = {p.name: set(p.layout.strides) for p in kernel.matrices}
    # Of what a kernel before laid out, lines are as long as a size says.
    in_maps = {s for name, p in boxed.items() for s in strides[name] if s not in p.shape}
    used = {s for name in alone for s in strides[name]}
    out: list[Buffer | Var] = []
    for p in kernel.given:
        if isinstance(p, Buffer):
            out += tma_tiles_of(p, kernel)
        elif p not in in_maps - used:
            out.append(p)
        if p.name in boxed.keys() & alone:
            out.append(replace(boxed[p.name], tma_tile=None))
    return tuple(out)


def given_shape(matrix: Buffer) -> tuple[Expr, ...]:
    """A matrix' extents as its caller knows them: where groups share out an axis, all of it; of a vector that each
    group has, all of them.
    """
    shape = tuple(map_expr(extent, substitute(OF_ALL_GROUPS)) for extent in matrix.shape)
    return (GROUP_COUNT * shape[0],) if len(shape) == 1 and matrix.batch_stride is not None else shape


def broken_assumptions(kernel: Kernel, spec: GemmSpec, signs: bool = False) -> Iterator[str]:
    """Where a launcher's sizes, leading dimensions and strides are not what the spec says, in C.

    Args:
        signs: whether it is asked that strides are not negative.
    """
    names = [p.name for p in kernel.launcher_params if isinstance(p, Var) and p.dtype in (I32, I64)]
    yield from ("k < 0" for name in names if name == "k")
    yield from [f"{GROUP_COUNT.name} > {MOST_GROUPS}"] if spec.grouped == "rows" else []
    # More columns of a gated product's B than an int counts.
    yield from ["n >= 1 << 30"] if spec.halves > 1 and spec.n is None else []
    yield from (f"{name} < 0" for name in names if signs and name.startswith("stride_"))
    units = dict(zip("mnk", spec.multiple_of, strict=True))
    units |= {f"{what}{x}": spec.ld_unit(x) for what in ("ld", "stride_") for x in "abc"}
    yield from (f"{name} % {units[name]} != 0" for name in names if units.get(name, 1) > 1)


def products(kernel: Kernel) -> Var | None:
    """How many products there are of which each has matrices a stride apart; None for one."""
    return GROUP_COUNT if GROUP_COUNT in kernel.params else kernel.grid_z


def tensor_maps(kernel: Kernel) -> tuple[TensorMap, ...]:
    """The maps that a kernel is given in the place of matrices."""
    out: list[TensorMap] = []
    copies = list(of_kind(TmaCopy, kernel.body))
    swizzles = {x.name: tile.layout.swizzle for s in copies for x, tile in ((s.src, s.dst), (s.dst, s.src))}
    for p in (box for matrix in kernel.matrices for box in tma_tiles_of(matrix, kernel)):
        if p.tma_tile is not None:
            (lines, length), pitch = p.shape[-2:], p.layout.strides[-2]
            name, swizzle = map_name(p, kernel), swizzles.get(p.name, TILE_LINE_BYTES)
            batch = (p.shape[0], p.layout.strides[0]) if len(p.shape) > 2 else None
            how = lines, length, pitch, p.tma_tile, swizzle, batch, p.layout.ends
            out.append(TensorMap(name, p.name, p.dtype, *how, p.rounded))
    return tuple(out)


def tma_tiles_of(matrix: Buffer, kernel: Kernel) -> tuple[Buffer, ...]:
    """A matrix as it is given; and where the last TMA tile is narrower, in that form as well."""
    found = (x.tma_tile for s in of_kind(TmaCopy, kernel.body) for x in (s.src, s.dst) if x.name == matrix.name)
    return tuple(replace(matrix, tma_tile=box) for box in dict.fromkeys((matrix.tma_tile, *found)))


def map_name(matrix: Buffer, kernel: Kernel) -> str:
    """The name of a matrix' tensor map, by the shape of its TMA tiles."""
    given = next(p for p in kernel.matrices if p.name == matrix.name)
    return f"{matrix.name}_map" if matrix.tma_tile == given.tma_tile else f"{matrix.name}_end_map"


def _argument(param: Buffer | Var, kernel: Kernel) -> Argument:
    if isinstance(param, Var):
        return Argument(param.name, "scalar" if param.dtype.is_float else "int", param.dtype.name)
    if param.tma_tile is not None:
        return Argument(map_name(param, kernel), "map", param.dtype.name)
    kind: ArgumentKind = "image" if param.space is Space.IMAGE else "buffer"
    return Argument(param.name, kind, param.dtype.name, param.writable)
