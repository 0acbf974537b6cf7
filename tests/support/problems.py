"""Products to check kernels with: inputs, storage, the float64 answer and the error that may be left."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gemmgen import driver
from gemmgen.ir.buffer import Space
from gemmgen.ir.dtypes import DType
from gemmgen.ir.kernel import Kernel, Program
from gemmgen.ir.numeric import in_pairs, numpy_dtype, poison
from gemmgen.ir.sizes import GROUPS
from gemmgen.ir.target import Target
from gemmgen.ir.walk import evaluate
from gemmgen.oracle import Answer, answer
from gemmgen.schedule import Schedule
from gemmgen.simulator.execute import run_program
from gemmgen.spec import GemmSpec, Order

Matrix = NDArray[np.float32]  # or another of the types that a spec can have

#: What stands in the padding of a leading dimension: nothing may be made of it, nothing written over it.
CANARY = np.float32(7.0)


@dataclass(frozen=True)
class Problem:
    """One product with its data; c is what C holds before, in the spec's types."""

    a: Matrix
    b: Matrix
    c: Matrix
    alpha: complex
    beta: complex
    spec: GemmSpec = field(default_factory=GemmSpec)

    @staticmethod
    def random(
        rng: np.random.Generator,
        m: int,
        n: int,
        k: int,
        alpha: complex = 1.0,
        beta: complex = 0.0,
        spec: GemmSpec | None = None,
    ) -> Problem:
        """Normal numbers, in the spec's types; where beta is zero, C holds NaN."""
        a = rng.standard_normal((m, k), dtype=np.float32)
        b = rng.standard_normal((k, n), dtype=np.float32)
        c = rng.standard_normal((m, n), dtype=np.float32) if beta else np.full((m, n), np.nan, np.float32)
        return Problem(a, b, c, alpha, beta).typed(spec or GemmSpec())

    def typed(self, spec: GemmSpec) -> Problem:
        """The same numbers in a spec's types and orders; no integer is NaN: -1 takes its place."""
        elements, result = numpy_dtype(spec.dtype), numpy_dtype(spec.result)
        known = self.c if spec.result.is_float else np.nan_to_num(self.c, nan=-1)
        a, b, c = (
            x.astype(dtype, order="F" if order == "col" else "C")
            for x, dtype, order in (
                (self.a, elements, spec.a_order),
                (self.b, elements, spec.b_order),
                (known, result, spec.c_order),
            )
        )
        return Problem(cast("Matrix", a), cast("Matrix", b), cast("Matrix", c), self.alpha, self.beta, spec)

    @staticmethod
    def of(rng: np.random.Generator, spec: GemmSpec, m: int, n: int, k: int, alpha: complex, beta: complex) -> Problem:
        """Numbers of the spec's types: normal ones, also in both parts, or whole ones where sums are whole."""

        def draw(dtype: DType, rows: int, cols: int) -> Matrix:
            if dtype.real is not None:
                real, imaginary = rng.standard_normal((2, rows, cols))
                return cast("Matrix", (real + 1j * imaginary).astype(numpy_dtype(dtype)))
            if dtype.pairs:
                return cast("Matrix", rng.integers(-8, 8, (rows, cols)).astype(np.int8))
            if spec.accumulator.is_float:
                return cast("Matrix", rng.standard_normal((rows, cols)).astype(numpy_dtype(dtype)))
            return cast("Matrix", rng.integers(-128, 128, (rows, cols)).astype(numpy_dtype(dtype)))

        a, b = draw(spec.element("a"), m, k), draw(spec.element("b"), k, n * spec.halves)
        c = draw(spec.result, m, n)
        return Problem(a, b, c, alpha, beta, spec)

    @staticmethod
    def integers(rng: np.random.Generator, m: int, n: int, k: int) -> Problem:
        """Small integers, whose product float32 holds exactly whatever the order of summation."""
        a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((m, k), (k, n)))
        return Problem(a, b, np.full((m, n), np.nan, np.float32), 1.0, 0.0)

    @property
    def answer(self) -> Answer:
        return answer(self.spec, (self.a, self.b, self.c), (self.alpha, self.beta))

    @property
    def expected(self) -> NDArray[np.float64]:
        return self.answer.value

    def check(self, result: Matrix) -> None:
        check(self.answer, result)


def check(right: Answer, result: Matrix) -> None:
    """A NaN is never within a bound."""
    assert result.dtype == numpy_dtype(right.stored)
    inside = right.holds(result)
    assert inside.all(), f"{(~inside).sum()} of {inside.size} elements off, the first at {np.argwhere(~inside)[0]}"


def stored(matrix: Matrix, order: Order, pad: int) -> Matrix:
    """A matrix as it lies in memory: rows (or columns) `pad` elements longer than they need be."""
    lines = matrix if order == "row" else matrix.T
    return np.ascontiguousarray(np.pad(lines, ((0, 0), (0, pad)), constant_values=CANARY))


def padding(matrix: Matrix, order: Order, pad: int, unit: int) -> int:
    """By how much lines are longer than they need be, so that they are multiples of `unit` apart."""
    length = int(matrix.shape[1 if order == "row" else 0])
    return pad + -(length + pad) % unit


def interpret(
    kernel: Kernel | Program,
    spec: GemmSpec,
    problem: Problem,
    pad: int = 3,
    more: Mapping[str, int | float | Matrix] = MappingProxyType({}),
    resident: int = 2,
    groups: int = 3,
    early: Collection[str] | None = None,
) -> Matrix:
    """C as the interpreter computes it; the padding of C is checked to be untouched. `more` are other arguments. Lines
    are `pad` elements longer than they need be, or more where the spec assumes their length to be a multiple. A
    persistent kernel has at most `resident` groups; blocks are dealt out evenly to `groups`. `early` names the kernels
    launched before those in front of them are complete, where it is not those that wait.
    """
    program = kernel if isinstance(kernel, Program) else Program((kernel,))
    (m, k), n = problem.a.shape, problem.c.shape[1]
    sizes = {"m": m, "n": n, "k": k, GROUPS.name: groups}
    known: dict[str, int | complex | Matrix] = {**sizes, "alpha": problem.alpha, "beta": problem.beta}
    images = {p.name for p in program.kernels[0].matrices if p.space is Space.IMAGE}
    matrices = (("a", problem.a, spec.a_order), ("b", problem.b, spec.b_order), ("c", problem.c, spec.c_order))
    for name, matrix, order in matrices:
        pairs = name != "c" and spec.element(name).pairs
        matrix = cast("Matrix", in_pairs(matrix, int(order == "row")).view(np.int8)) if pairs else matrix
        memory = stored(matrix, order, 0 if name in images else padding(matrix, order, pad, spec.ld_unit(name)))
        known[f"ld{name}"] = memory.shape[1]
        known[name] = memory if name in images else memory.reshape(-1)
    known |= more
    for workspace in program.workspaces:
        own = numpy_dtype(workspace.dtype)
        elements = evaluate(workspace.elements, sizes)
        known[workspace.name] = np.full(elements, poison(own), own)
    run_program(program, known, resident, early)
    pad = padding(problem.c, spec.c_order, pad, spec.ld_unit("c"))
    lines = np.asarray(known["c"]).reshape(-1, pad + (n if spec.c_order == "row" else m))
    assert (lines[:, lines.shape[1] - pad :] == CANARY).all(), "the padding of C was written to"
    result = lines[:, : lines.shape[1] - pad]
    return result if spec.c_order == "row" else result.T


def check_products(
    kernel: Kernel | Program,
    spec: GemmSpec,
    rng: np.random.Generator,
    *sizes: tuple[int, int, int],
    factors: tuple[complex, complex] = (-2.0, 3.0),
    pad: int = 3,
) -> None:
    """Products of these sizes by the interpreter, each within its bound."""
    for size in sizes:
        problem = Problem.of(rng, spec, *size, *factors)
        problem.check(interpret(kernel, spec, problem, pad))


@lru_cache(maxsize=256)
def lowered(spec: GemmSpec, schedule: Schedule, target: Target) -> Program:
    """A program that is run on many sizes, from test to test."""
    return driver.lower_program(spec, schedule, target)


def layouts(spec: GemmSpec) -> Iterator[GemmSpec]:
    """The spec with each of A, B and C stored by rows and by columns."""
    orders: tuple[Order, Order] = ("row", "col")
    for a in orders:
        for b in orders:
            for c in orders:
                yield replace(spec, a_order=a, b_order=b, c_order=c)
