"""The size of a kernel's sub-groups: how many lanes it is compiled for and how many registers a thread has then, so
that its arrays fit; and what it does under another size where compilers choose it: C must not look computed.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.buffer import Buffer
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Call, Expr, compare, convert, number
from gemmgen.ir.kernel import COL as J
from gemmgen.ir.kernel import ROW as I
from gemmgen.ir.kernel import Kernel, live, loop
from gemmgen.ir.stmt import Body, Comment, If, Return, Store
from gemmgen.ir.target import FILLED_BY_WIDEST, Target
from gemmgen.positions import call


def unless_in_sub_groups_of(
    lanes: int | None, target: Target, to: Buffer, place: tuple[Expr, ...], shape: tuple[int, int], held: DType
) -> Body:
    """Fills a work-item's share of a result and returns, in a launch whose sub-groups have another number of lanes.
    They are all of one size or of another, so that no work-item goes on to a barrier without the others.

    Args:
        lanes: that the kernel is written for; None where it uses no sub-groups.
        to: the result.
        place: where the element of row `i` and column `j` of the share is.
        shape: rows and columns of the share.
        held: the type of the kernel's sums.
    """
    if lanes is None or "free_sub_group_size" not in target.features:
        return ()
    value = _invalid(to.dtype, held)
    named = "NaN" if to.dtype.is_float else "the smallest number"
    rows, cols = shape
    fill = loop(I, rows, loop(J, cols, (Store(to, place, value),)))
    say = Comment(f"In sub-groups of another size {to.name.upper()} would be wrong: it becomes {named}.")
    return (say, If(compare("!=", call("sub_group_size"), lanes), (*fill, Return())))


def _invalid(dtype: DType, held: DType) -> Expr:
    """What nobody takes for a result."""
    if not dtype.is_float:
        return number(-int(dtype.largest) - 1, dtype)
    return convert(Call("nan", (), held), dtype) if held != dtype else Call("nan", (), dtype)


def lanes_and_registers(kernel: Kernel, target: Target) -> Kernel:
    """The kernel with both; as it is where its schedule says them, and where compilers choose well."""
    if kernel.sub_group is not None or not target.large_register_bytes:
        return kernel
    held = sum(buffer.bytes for buffer in live(kernel.body))
    if target.fits(held, max(target.sub_group_sizes), FILLED_BY_WIDEST):
        return kernel
    narrow = target.narrow_sub_group
    large = not target.fits(held, narrow or min(target.sub_group_sizes))
    return replace(kernel, compiled_for=narrow, large_registers=large)
