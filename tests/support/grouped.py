"""Grouped products to check kernels with: matrices as they lie, and each group against float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gemmgen.epilogue import OPERANDS
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.ir.target import Target
from gemmgen.oracle import answer
from gemmgen.schedule import Schedule
from gemmgen.simulator.execute import run_program
from gemmgen.spec import GemmSpec
from tests.support.problems import CANARY, Matrix, check, lowered

#: Ends of groups of 67 rows (or as much of K): empty ones at both ends and in between, one of a row, a large one, and
#: rows that no group has.
ENDS = (0, 5, 5, 6, 40, 61, 61)
TOTAL = 67
#: All rows in one group; as many groups as rows; none that has any.
OTHERS = ((0, 67, 67), tuple(range(1, 68)), (0, 0, 0), (67,))


@dataclass(frozen=True)
class Groups:
    """A grouped product with its data, as NumPy sees it.

    Attributes:
        a, b, c: `c` is what C holds before, and after a kernel its result.
        operands: the epilogue's arrays.
    """

    spec: GemmSpec
    ends: tuple[int, ...]
    a: Matrix
    b: Matrix
    c: Matrix
    alpha: float
    beta: float
    operands: Mapping[str, Matrix] = field(default_factory=dict)

    @staticmethod
    def of(
        rng: np.random.Generator,
        spec: GemmSpec,
        ends: Sequence[int] = ENDS,
        sizes: tuple[int, int] = (37, 29),
        factors: tuple[float, float] = (1.5, -0.5),
        pad: int = 3,
    ) -> Groups:
        """Numbers of the spec's types, C's NaN where beta is zero.

        Args:
            sizes: n and k, or for groups of K m and n.
            pad: by how much lines are longer than they need be.
        """
        shapes: dict[str, tuple[tuple[int, ...], ...]] = {
            "rows": ((TOTAL, sizes[1]), (len(ends), sizes[1], sizes[0] * spec.halves), (TOTAL, sizes[0])),
            "k": ((sizes[0], TOTAL), (TOTAL, sizes[1] * spec.halves), (len(ends), *sizes)),
        }
        found = []
        types = spec.element("a"), spec.element("b"), spec.result
        orders = spec.a_order, spec.b_order, spec.c_order
        for shape, dtype, order in zip(shapes[spec.grouped or "rows"], types, orders, strict=True):
            numbers = rng.standard_normal(shape) * (3 if not spec.accumulator.is_float else 1)
            found.append(_lines(numbers.astype(numpy_dtype(dtype)), order, pad))
        if factors[1] == 0 and spec.result.is_float:
            found[2][...] = np.nan
        return Groups(spec, tuple(ends), found[0], found[1], found[2], *factors)

    def with_operands(self, **operands: Matrix) -> Groups:
        """With an epilogue's arrays."""
        return replace(self, operands=operands)

    def leave(self, group: int) -> None:
        """Fill A and B with NaN but for one group of K: all other groups, and K past the last one."""
        for matrix in (self.a.T, self.b):
            own = slice(self.ends[group - 1], self.ends[group])
            kept = matrix[own].copy()
            matrix[...] = np.nan
            matrix[own] = kept

    def check(
        self, before: Matrix, result: Matrix, cut: tuple[int, int] | None = None, only: int | None = None
    ) -> None:
        """Each group by itself, and rows that no group has as they were.

        Args:
            before: C before the kernel.
            cut: of the instruction's sums (`gemmgen.oracle.answer`).
            only: the group that is checked; None for all.
        """
        begin, spec = 0, replace(self.spec, grouped=None)
        for group, end in enumerate(self.ends):
            mine = slice(begin, end)
            by_rows = self.spec.grouped == "rows"
            a, b = (self.a[mine], self.b[group]) if by_rows else (self.a[:, mine], self.b[mine])
            old, new = (before[mine], result[mine]) if by_rows else (before[group], result[group])
            operands = {name: self._own(name, x, group, mine) for name, x in self.operands.items()}
            if new.size and only in (None, group):
                right = answer(spec, (a, b, old), (self.alpha, self.beta), operands, cut=cut)
                check(right, np.ascontiguousarray(new))
            begin = end
        if self.spec.grouped == "rows":
            behind = before[begin:].tobytes(), np.ascontiguousarray(result[begin:]).tobytes()
            assert behind[0] == behind[1], "rows behind the last group were written to"

    def _own(self, name: str, array: Matrix, group: int, mine: slice) -> Matrix:
        """What a group has of an epilogue's array, or of scales of sums."""
        if OPERANDS[name].of == "a":
            return np.ascontiguousarray(array.reshape(-1, self.a.shape[0])[:, mine]).reshape(-1)
        return array[mine] if self.spec.grouped == "rows" and name in ("residual", "row_bias") else array[group]


def _lines(matrix: Matrix, order: str, pad: int) -> Matrix:
    """The same numbers in an order, with gaps between lines."""
    lines = matrix if order == "row" else matrix.swapaxes(-1, -2)
    memory = np.full((*lines.shape[:-1], lines.shape[-1] + pad), CANARY).astype(matrix.dtype)
    memory[..., : lines.shape[-1]] = lines
    view = memory[..., : lines.shape[-1]]
    return view if order == "row" else view.swapaxes(-1, -2)


def interpret(
    groups: Groups,
    schedule: Schedule,
    target: Target,
    offsets: Sequence[int] | None = None,
    only: int | None = None,
    resident: int = 2,
) -> None:
    """Run a kernel in the interpreter, and check what it leaves.

    Args:
        offsets: what the kernel is given instead of the ends.
        only: the group that is checked; None for all.
        resident: how many work-groups a persistent kernel has at most.
    """
    spec, before = groups.spec, groups.c.copy()
    program = lowered(spec, schedule, target)
    known: dict[str, object] = {"alpha": groups.alpha, "beta": groups.beta, "group_count": len(groups.ends)}
    known |= {"m": groups.a.shape[0], "n": groups.c.shape[-1], "k": groups.a.shape[1]}
    known["offsets"] = np.asarray(groups.ends if offsets is None else offsets, np.int32)
    orders = {"a": spec.a_order, "b": spec.b_order, "c": spec.c_order}
    arrays = {"a": groups.a, "b": groups.b, "c": groups.c, **groups.operands}
    for name, array in arrays.items():
        memory = array if array.base is None else array.base
        known[name] = np.asarray(memory).reshape(-1)
        steps = [step // array.itemsize for step in array.strides]
        letter = "r" if name == "residual" else name
        known[f"ld{letter}"] = steps[-1 if orders.get(name, spec.c_order) == "col" else -2] if array.ndim > 1 else 1
        known[f"stride_{letter}"] = steps[0] if array.ndim > 2 else 0
    run_program(program, known, resident)  # type: ignore[arg-type]
    groups.check(before, groups.c, only=only)
    gap = np.asarray(groups.c.base)[..., groups.c.shape[-1 if spec.c_order == "row" else -2] :]
    assert (gap == gap.dtype.type(CANARY)).all(), "the padding of C was written to"
