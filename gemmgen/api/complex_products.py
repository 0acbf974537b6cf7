"""Complex products of host arrays as real ones, for devices whose vectors hold real elements (CPUs).

In memory a complex matrix by rows is a real one with twice as many columns: real and imaginary parts by turns. So B is,
and so is C. There are two ways to a real product with as many multiply-adds as the complex one, and as accurate:

- A's real parts above its imaginary parts, times B. The two halves of the result add up to C. A is copied.
- A as it is, times B' with two rows for each row of B: that row, and i times that row. The result is C. B is copied.
  BLIS calls it the 1m method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gemmgen.runtime.calls import Factors, Held, HostCall, Outcome, Places

#: `gemm`, on real arrays.
Gemm = Callable[..., Any]
Complex = npt.NDArray[np.complexfloating]
Real = npt.NDArray[np.floating]
#: Multiply-adds from which on they are faster than kernels of complex elements, whose calls cost less.
LEAST = 1 << 14
#: Bytes of B' that are made at a time.
MOST = 64 << 20


def multiply(gemm: Gemm, a: Complex, b: Complex, c: Complex, factors: Factors) -> None:
    """C = alpha * A @ B + beta * C, or stacks of these.

    Args:
        a, b, c: [..., m, k], [..., k, n] and [..., m, n], all of one type; neighbours of a row of c lie side by side.
        factors: alpha, which is not 0, and beta. c is not read if that is 0.
    """
    with np.errstate(all="ignore"):  # as kernels are silent
        _multiply(gemm, a, b, c, *map(complex, cast("tuple[complex, complex]", factors)))


def _multiply(gemm: Gemm, a: Complex, b: Complex, c: Complex, alpha: complex, beta: complex) -> None:
    if beta and beta != 1:
        np.multiply(c, np.asarray(beta, c.dtype), out=c)
    if alpha != 1:
        a = a * np.asarray(alpha, a.dtype)
    (rows, depth), cols = a.shape[-2:], b.shape[-1]
    # By the elements that each writes.
    takes_a_apart = 2 * rows * depth + 6 * rows * cols < 4 * depth * cols
    (_by_parts_of_a if takes_a_apart else _by_doubled_b)(gemm, a, b, c, beta != 0)


def _by_parts_of_a(gemm: Gemm, a: Complex, b: Complex, c: Complex, adds: bool) -> None:
    """A's parts apart, times B; C gets the result, or it is added to C."""
    both = gemm(np.concatenate((a.real, a.imag), axis=-2), _in_reals(b))
    first, second = (x.view(c.dtype) for x in np.split(both, 2, axis=-2))
    first.real -= second.imag
    first.imag += second.real
    if adds:
        np.add(c, first, out=c)
    else:
        c[...] = first


def _by_doubled_b(gemm: Gemm, a: Complex, b: Complex, c: Complex, adds: bool) -> None:
    """A times B', some columns at a time."""
    rows_of_a, cols = _in_reals(a), b.shape[-1]
    step = max(1, MOST * cols // (2 * max(1, b.nbytes)))
    for begin in range(0, cols, step):
        into = c[..., begin : begin + step].view(c.real.dtype)
        doubled = _doubled(b[..., begin : begin + step])
        gemm(rows_of_a, doubled, c=into if adds else None, out=into, beta=int(adds))


def _in_reals(matrix: Complex) -> Real:
    """A matrix with real and imaginary parts by turns: itself, if neighbours of a row lie side by side."""
    beside = matrix.strides[-1] == matrix.itemsize
    return (matrix if beside else np.ascontiguousarray(matrix)).view(matrix.real.dtype)


def _doubled(b: Complex) -> Real:
    """B', [..., 2 k, 2 n]: rows of B, [..., k, n], each followed by i times itself; both parts by turns."""
    *stack, depth, cols = b.shape
    made = np.empty((*stack, depth, 2, cols, 2), b.real.dtype)
    made[..., 0, :, 0], made[..., 0, :, 1] = b.real, b.imag
    np.negative(b.imag, out=made[..., 1, :, 0])
    made[..., 1, :, 1] = b.real
    return made.reshape(*stack, 2 * depth, 2 * cols)


class RealCall(HostCall):
    """A prepared call of a complex product of NumPy's matrices, computed as a real one."""

    def __init__(self, outcome: Outcome, gemm: Gemm) -> None:
        super().__init__(outcome)
        self._gemm = gemm

    def run(self, held: Held, places: Places, more: tuple[int, ...], factors: Factors, place: object = None) -> Any:
        a, b, c, _ = held
        if c is not None:
            return super().run(held, places, more, factors, place)
        made: Complex = np.empty(self._shape, self._dtype)
        multiply(self._gemm, a, b, made, factors)
        return made

    def _compute(self, addresses: tuple[int, ...], factors: Factors, held: Held, place: object) -> None:  # noqa: ARG002
        a, b, c, _ = held
        multiply(self._gemm, a, b, c, factors)
