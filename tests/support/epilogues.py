"""Products with prologues or an epilogue: their operands, the answer, and the error that may be left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gemmgen.epilogue import OPERANDS
from gemmgen.ir.dtypes import F64
from gemmgen.ir.kernel import Program
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.reference import Bounded, finished, product
from gemmgen.spec import GemmSpec
from tests.support.problems import Matrix, Problem, interpret, stored, wide


@dataclass(frozen=True)
class Finished:
    """A product and what its prologues and its epilogue take besides."""

    problem: Problem
    operands: dict[str, Matrix]

    @staticmethod
    def random(
        rng: np.random.Generator, spec: GemmSpec, m: int, n: int, k: int, alpha: float = 1.0, beta: float = 0.0
    ) -> Finished:
        """Where nothing reads C, it holds NaN."""
        problem = Problem.of(rng, spec, m, n, k, alpha, beta)
        if not beta and not spec.names_c and spec.result.is_float:
            problem.c[...] = np.nan
        shapes = {"n": (n,), "m": (m,), "mn": (m, n), "k": (k,), "": (1,)}
        operands: dict[str, Matrix] = {}
        for name in spec.operands:
            shape = shapes[OPERANDS[name].axes]
            drawn = rng.standard_normal(shape) if spec.accumulator.is_float else rng.integers(-9, 10, shape)
            operands[name] = cast("Matrix", drawn.astype(numpy_dtype(spec.operand(name))))
        return Finished(problem, operands)

    @property
    def expected(self) -> Bounded:
        """The answer and its bound."""
        problem, spec = self.problem, self.problem.spec
        operands = {name: wide(array) for name, array in self.operands.items()}
        total = self._product(operands)
        whole = finished(spec, total, wide(problem.c) if spec.names_c else None, operands)
        if spec.result == spec.accumulator:
            return whole
        rounding: NDArray[np.float64] = 2.0**-spec.result.digits * (np.abs(whole.value) + whole.error) + 2.0**-24
        return Bounded(whole.value, whole.error + rounding)

    def _product(self, operands: dict[str, NDArray[np.float64]]) -> Bounded:
        """alpha * A * B + beta * C, before it is rounded to C's type where it goes through formulas."""
        problem, spec = self.problem, self.problem.spec
        if spec.prologue_a is None and spec.prologue_b is None:
            return Bounded(problem.expected, problem.bound)
        value, terms, off = product(spec, wide(problem.a), wide(problem.b), operands)
        sums, alpha, old = spec.accumulator, float(problem.alpha.real), np.zeros(value.shape)
        old = problem.beta.real * wide(problem.c) if problem.beta else old
        steps = (problem.a.shape[1] + 3) * 2.0**-sums.digits * (2 if sums == F64 else 1) if sums.is_float else 0.0
        error = steps / (1 - steps) * (abs(alpha) * terms + np.abs(old)) + abs(alpha) * off
        return Bounded(alpha * value + old, error)

    def check(self, result: Matrix) -> None:
        """A NaN is never within a bound."""
        assert result.dtype == numpy_dtype(self.problem.spec.result)
        expected = self.expected
        inside = np.abs(wide(result) - expected.value) <= expected.error
        assert inside.all(), f"{(~inside).sum()} of {inside.size} elements off, the first at {np.argwhere(~inside)[0]}"

    def interpret(self, program: Program, pad: int = 3) -> Matrix:
        """C as the interpreter computes it."""
        more: dict[str, int | float | Matrix] = dict(self.operands)
        if "residual" in more:
            memory = stored(self.operands["residual"], self.problem.spec.c_order, pad)
            more |= {"residual": memory.reshape(-1), "ldr": memory.shape[1]}
        return interpret(program, self.problem.spec, self.problem, pad, more)
