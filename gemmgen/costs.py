"""What one step of a main loop asks of a work-item: loads, multiply-adds, and the path of A and B to registers.

All of it is counted on the kernel as `build` makes it, so that it can't drift from what is emitted.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.expr import as_int
from gemmgen.ir.kernel import Kernel, allocs
from gemmgen.ir.stmt import (
    Block,
    Body,
    CooperativeCopy,
    For,
    FragmentLoad,
    If,
    Mma,
    Multiply,
    Stmt,
    TileMma,
    VectorCopy,
)
from gemmgen.ir.walk import walk
from gemmgen.records import dataclass
from gemmgen.spec import GemmSpec

_ATOMS = {
    "scalar": "single loads",
    "vector": "vector loads",
    "block_read": "sub-group block reads",
    "image_block_read": "sub-group block reads of an image",
    **dict.fromkeys(("ldmatrix_a", "ldmatrix_b"), "matrix loads"),
    **dict.fromkeys(("ldmatrix_a_transposed", "ldmatrix_b_transposed"), "transposing matrix loads"),
}


@dataclass(frozen=True, slots=True)
class Hop:
    """A part of an operand's path, per step of K.

    Attributes:
        elements: that a work-item loads; of a staged tile, its share.
        loads: instructions that it takes.
    """

    operand: str
    src: Buffer
    dst: Buffer
    elements: float
    loads: float
    how: str

    @property
    def bytes(self) -> float:
        """As they are stored."""
        return self.elements * self.src.dtype.size


@dataclass(frozen=True, slots=True)
class Costs:
    """What one step of K asks of a work-item."""

    hops: tuple[Hop, ...]
    fmas: int
    passed: int

    def read(self, *spaces: Space) -> float:
        """How many bytes it reads from these."""
        return sum(hop.bytes for hop in self.hops if hop.src.space in spaces)


def costs_of(kernel: Kernel, spec: GemmSpec) -> Costs:
    """The costs of a step of K. Raises: LoweringError where a kernel has no main loop."""
    loops = (s for s in walk(kernel.body) if isinstance(s, For) and s.var.name == "k0")
    main = next((s for s in loops if any(isinstance(x, Mma | TileMma | Multiply) for x in walk(s.body))), None)
    if main is None:
        raise LoweringError(f"{kernel.name} has no main loop over k0")
    hops: list[Hop] = []
    fmas = passed = 0
    work_items = kernel.group[0] * kernel.group[1]
    for stmt, times in _repeated(main.body, 1):
        match stmt:
            case CooperativeCopy(dst, src):
                roles = None if dst.pipe is None else dst.pipe.roles
                share = src.rows * src.cols / (work_items if roles is None else roles.consumers)
                how = f"{'vectors of ' + str(stmt.width) if stmt.width > 1 else 'single loads'}, the group together"
                loads = share / stmt.width
                if src.buffer.tma_tile is not None:
                    tiles = (as_int(dst.buffer.shape[1]) or 1) if dst.buffer.layout.swizzle else 1
                    tiles = max(1, tiles // spec.halves) if _operand(src.buffer) == "b" else tiles
                    how, loads = (
                        f"{'one TMA tile' if tiles == 1 else f'{tiles} TMA tiles'}, by one work-item for all",
                        0.0,
                    )
                hops.append(Hop(_operand(src.buffer), src.buffer, dst.buffer, share, loads, how))
            case FragmentLoad(dst, src):
                own = dst.fragment.rows.values * dst.fragment.cols.values * times
                how = _ATOMS.get(stmt.atom.name, stmt.atom.name) + (f" of {stmt.width}" if stmt.width > 1 else "")
                hops.append(Hop(_operand(src.buffer), src.buffer, dst.buffer, own, own / stmt.width, how))
            case VectorCopy(dst, _, src):
                words = stmt.width * times
                own = words * src.dtype.size // spec.dtype.size
                hops.append(Hop(_operand(src), src, dst, own, times, f"block reads of {stmt.width} words"))
            case Multiply(atom=atom):
                fmas += atom.c.rows.values * atom.depth * times
            case TileMma(acc, _, b):
                fmas += acc.fragment.rows.values * acc.fragment.cols.values * b.rows * times
            case Mma():
                rows, cols = stmt.acc.fragment.rows.values, stmt.acc.fragment.cols.values
                fmas += rows * cols * stmt.depth * times
                passed += rows * stmt.depth * times if "sub_groups" in stmt.atom.needs else 0
    return Costs(tuple(hops), fmas, passed)


def _operand(source: Buffer) -> str:
    """Of which a buffer holds elements: `a` of `a_shared` and `a_packed`."""
    return source.name.partition("_")[0]


def _repeated(body: Body, times: int) -> Iterator[tuple[Stmt, int]]:
    """The statements below, and how often each runs."""
    for stmt in body:
        yield stmt, times
        match stmt:
            case For():
                start, stop = as_int(stmt.start), as_int(stmt.stop)
                if start is not None and stop is not None:
                    yield from _repeated(stmt.body, times * -(-(stop - start) // stmt.step))
            case If(_, then, _) | Block(then):
                yield from _repeated(then, times)


def buffers(kernel: Kernel, space: Space) -> tuple[Buffer, ...]:
    """What the kernel allocates there; a step that is written twice (for the rest of K) counts once, the larger."""
    largest: dict[str, Buffer] = {}
    for stmt in allocs(kernel, space):
        other = largest.get(stmt.buffer.name, stmt.buffer)
        largest[stmt.buffer.name] = max(other, stmt.buffer, key=lambda b: b.elements)
    return tuple(largest.values())
