"""Batches to check kernels with: matrices that lie in every way, each product against float64."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from gemmgen.ir.kernel import Program
from gemmgen.ir.numeric import numpy_dtype, poison
from gemmgen.ir.walk import evaluate
from gemmgen.simulator.execute import run_program
from gemmgen.spec import GemmSpec
from tests.support.problems import CANARY, Matrix, Problem, padding, stored

SIZE = (5, 37, 43, 29)


def operands(rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    count, m, n, k = SIZE
    return rng.standard_normal((count, m, k), np.float32), rng.standard_normal((count, k, n), np.float32)


def check(a: Matrix, b: Matrix, c: Matrix) -> None:
    """Each product by itself."""
    for number, result in enumerate(c):
        left, right = (x if x.ndim == 2 else x[number % len(x)] for x in (a, b))
        Problem(left, right, np.full(result.shape, np.nan, np.float32), 1.0, 0.0).check(np.ascontiguousarray(result))


def check_batches(gemm: object, rng: np.random.Generator) -> None:
    """All of a batch; one matrix for all; matrices whose lines lie between each other's; a result with gaps."""
    assert callable(gemm)
    (a, b), (count, m, n, _) = operands(rng), SIZE
    for left, right in ((a, b), (a[0], b), (a, b[:1]), (np.broadcast_to(a[0], a.shape), b)):
        check(np.asarray(left), right, gemm(left, right))
    lines = np.ascontiguousarray(a.transpose(1, 0, 2)).transpose(1, 0, 2)
    check(a, b, gemm(lines, b))
    memory = np.full((m, count, n + 3), CANARY, np.float32)
    out = memory.transpose(1, 0, 2)[:, :, :n]
    assert gemm(a, b, out) is out
    check(a, b, out)
    assert (memory[:, :, n:] == CANARY).all()


def in_a_row(matrices: list[Matrix], gap: int) -> tuple[Matrix, int]:
    """Matrices one after the other with a gap between, and how far apart they lie."""
    step = matrices[0].size + gap
    memory = np.full(step * len(matrices), CANARY, matrices[0].dtype)
    for number, matrix in enumerate(matrices):
        memory[number * step : number * step + matrix.size] = matrix.reshape(-1)
    return memory, step


def interpreted(
    program: Program,
    spec: GemmSpec,
    problems: list[Problem],
    gap: int = 0,
    pad: int = 8,
    more: Mapping[str, int | complex | Matrix] = MappingProxyType({}),
) -> list[Matrix]:
    """Each C as the interpreter computes it; a b that all have lies there once. What lies between is checked to be
    untouched.
    """
    first, count = problems[0], len(problems)
    (m, k), n = first.a.shape, first.b.shape[1]
    sizes = {"m": m, "n": n, "k": k, "batch_count": count}
    known: dict[str, int | complex | Matrix] = {**sizes, "alpha": first.alpha, "beta": first.beta, **more}
    apart, lines = 0, list[Matrix]()
    for name, order in (("a", spec.a_order), ("b", spec.b_order), ("c", spec.c_order)):
        each = [getattr(problem, name) for problem in problems]
        shared = count > 1 and all(matrix is each[0] for matrix in each)
        wider = padding(each[0], order, pad, spec.ld_unit(name))
        lines = [stored(matrix, order, wider) for matrix in (each[:1] if shared else each)]
        known[f"ld{name}"] = lines[0].shape[1]
        known[name], apart = in_a_row(lines, gap)
        known[f"stride_{name}"] = 0 if shared else apart
    for workspace in program.workspaces:
        own = numpy_dtype(workspace.dtype)
        known[workspace.name] = np.full(evaluate(workspace.elements, sizes), poison(own), own)
    run_program(program, known, 3)
    result = np.asarray(known["c"]).reshape(count, apart)
    across = result[:, : apart - gap].reshape(count, *lines[0].shape)
    wide = n if spec.c_order == "row" else m
    assert (result[:, apart - gap :] == CANARY).all()
    assert (across[:, :, wide:] == CANARY).all()
    return [x if spec.c_order == "row" else np.ascontiguousarray(x.T) for x in across[:, :, :wide]]


def check_interpreted(program: Program, spec: GemmSpec, problems: list[Problem], gap: int, pad: int = 8) -> None:
    for problem, result in zip(problems, interpreted(program, spec, problems, gap, pad), strict=True):
        problem.check(result)
