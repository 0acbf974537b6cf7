"""Batches to check kernels with: matrices that lie in every way, each product against float64."""

from __future__ import annotations

import numpy as np

from tests.support.problems import CANARY, Matrix, Problem

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
