"""Products with an epilogue: its operands, the answer, and the error that may be left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gemmgen.epilogue import OPERANDS
from gemmgen.ir.kernel import Program
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.reference import Bounded, finished
from gemmgen.spec import GemmSpec
from tests.support.problems import Matrix, Problem, interpret, stored, wide


@dataclass(frozen=True)
class Finished:
    """A product and what its epilogue takes besides."""

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
        shapes = {"n": (n,), "m": (m,), "mn": (m, n)}
        operands: dict[str, Matrix] = {}
        for name in spec.operands:
            shape = shapes[OPERANDS[name].axes]
            drawn = rng.standard_normal(shape) if spec.accumulator.is_float else rng.integers(-9, 10, shape)
            operands[name] = cast("Matrix", drawn.astype(numpy_dtype(spec.result)))
        return Finished(problem, operands)

    @property
    def expected(self) -> Bounded:
        """The answer and its bound."""
        problem, spec = self.problem, self.problem.spec
        product = Bounded(problem.expected, problem.bound)
        operands = {name: wide(array) for name, array in self.operands.items()}
        whole = finished(spec, product, wide(problem.c) if spec.names_c else None, operands)
        if spec.result == spec.accumulator:
            return whole
        rounding: NDArray[np.float64] = 2.0**-spec.result.digits * (np.abs(whole.value) + whole.error) + 2.0**-24
        return Bounded(whole.value, whole.error + rounding)

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
