"""Products with prologues or an epilogue: their operands, the answer, and the error that may be left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from gemmgen.epilogue import OPERANDS
from gemmgen.ir.kernel import Program
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.oracle import answer
from gemmgen.spec import GemmSpec
from tests.support.problems import Matrix, Problem, check, interpret, stored


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
        operands: dict[str, Matrix] = {}
        for name in spec.operands:
            shape = OPERANDS[name].extents(m, n, k)
            drawn = rng.standard_normal(shape) if spec.operand(name).is_float else rng.integers(-9, 10, shape)
            operands[name] = cast("Matrix", drawn.astype(numpy_dtype(spec.operand(name))))
        return Finished(problem, operands)

    def check(self, result: Matrix) -> None:
        problem = self.problem
        matrices, factors = (problem.a, problem.b, problem.c), (problem.alpha, problem.beta)
        check(answer(problem.spec, matrices, factors, self.operands), result)

    def interpret(self, program: Program, pad: int = 3) -> Matrix:
        """C as the interpreter computes it."""
        more: dict[str, int | float | Matrix] = dict(self.operands)
        if "residual" in more:
            memory = stored(self.operands["residual"], self.problem.spec.c_order, pad)
            more |= {"residual": memory.reshape(-1), "ldr": memory.shape[1]}
        return interpret(program, self.problem.spec, self.problem, pad, more)
