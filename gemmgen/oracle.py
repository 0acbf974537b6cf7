"""The answer that results are held to: in float64, with how far off each element may be. There is no other."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gemmgen.ir.dtypes import BF16, F16, F32, F64, DType
from gemmgen.ir.numeric import convert
from gemmgen.records import dataclass
from gemmgen.reference import Bounded, Doubles, finished, product
from gemmgen.spec import GemmSpec

Matrix = NDArray[np.generic]
#: Roundings of an element beyond those of its K products and sums: of alpha, of beta, and of their sum.
MORE_ROUNDINGS = 3


def gamma(dtype: DType, depth: int) -> float:
    """What an element of alpha A B + beta C may be off by, as a part of |alpha| |A| |B| + |beta| |C|.

    gamma_n = n u / (1 - n u) (Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 3.5), where n
    counts the roundings on the way. Each part of a complex number is a real sum of twice as many products, whose
    factors take two operations each; so 2 gamma_(2 n) bounds the modulus of the error (section 3.6). Whole numbers are
    exact. The answer has an error of its own, as large, where sums are float64.

    Args:
        dtype: that of the sums.
    """
    if not dtype.is_float:
        return 0.0
    parts = 1 if dtype.real is None else 2
    unit = (depth + MORE_ROUNDINGS) * parts * 0.5**dtype.digits * (2 if (dtype.real or dtype) == F64 else 1)
    return parts * unit / (1 - unit)


def least(dtype: DType) -> float:
    """What may be lost of numbers that are too small for a type: of float16 half its smallest, of others whatever is
    below their normal numbers, as devices may flush that to zero; nothing of whole numbers.
    """
    if not dtype.is_float:
        return 0.0
    if dtype == F16:
        return 2.0**-25
    # bfloat16 has float32's exponents.
    return float(np.finfo((F32 if dtype == BF16 else dtype).name).tiny)


def wide(matrix: Matrix) -> Doubles:
    """In float64, or where they are complex in complex128, which hold elements of every type as they are."""
    return matrix.astype(np.complex128 if matrix.dtype.kind == "c" else np.float64)


@dataclass(frozen=True, slots=True)
class Answer:
    """What must come out.

    Attributes:
        value: before it is rounded to C's type; complex where elements are.
        error: how far from it an element of C may be.
        stored: C's type.
    """

    value: Doubles
    error: Doubles
    stored: DType

    @property
    def rounded(self) -> Matrix:
        """As C holds it, of sums that are exact."""
        return cast("Matrix", convert(self.value, self.stored))

    def distance(self, result: Matrix) -> Doubles:
        """Of each element from the answer; infinite of a NaN, and of an infinity where the answer does not overflow."""
        ours = wide(result)
        with np.errstate(invalid="ignore"):
            distance = np.abs(ours - self.value)
        distance[~np.isfinite(distance)] = np.inf
        distance[ours == self.value] = 0
        if self.stored.is_float and self.stored.real is None:
            beyond = np.abs(self.value) + self.error >= self.stored.largest
            distance[beyond & np.isinf(ours) & (np.sign(ours) == np.sign(self.value))] = 0
        return distance

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """Where there is no number to compare with: float64 has none, or as little as rounding takes it out of where a
        function has values.
        """
        return ~(np.isfinite(self.value) & np.isfinite(self.error))

    def parts(self, result: Matrix) -> Doubles:
        """Each element's distance as a part of what it may be: at most 1 where it is right. A NaN's is infinite."""
        distance = self.distance(result)
        with np.errstate(invalid="ignore", divide="ignore"):
            parts: Doubles = np.where(distance == 0, 0, distance / self.error)
        return np.where(np.isnan(parts), np.inf, parts)

    def holds(self, result: Matrix) -> NDArray[np.bool_]:
        """Which elements are right."""
        return self.parts(result) <= 1


def answer(
    spec: GemmSpec,
    matrices: tuple[Matrix, Matrix, Matrix | None],
    factors: tuple[complex, complex] = (1.0, 0.0),
    operands: Mapping[str, Matrix] = MappingProxyType({}),
    product_error: float = 0.0,
    exact: bool = False,
    cut: tuple[int, int] | None = None,
) -> Answer:
    """What a spec makes of A, B, C before and its epilogue's operands, or of batches of them.

    Args:
        matrices: C may be None where neither beta nor the epilogue reads it.
        factors: alpha and beta, as they are folded or passed.
        product_error: what each product may be off by before it is summed, as a part of it (`ir.instructions`).
        exact: whether the sums are known to come out exactly, as those of small whole numbers do.
        cut: bits that matrix instructions keep of their sums, and products that they add at a time (`ir.instructions`).
    """
    (alpha, beta), sums = factors, spec.accumulator
    a, b = (np.conj(wide(x)) if conj else wide(x) for x, conj in zip(matrices[:2], spec.conj, strict=True))
    c = None if matrices[2] is None else wide(matrices[2])
    given = {name: wide(array) for name, array in operands.items()}
    with np.errstate(invalid="ignore"):
        value, size, off = product(spec, a, b, given)
        off = off if cut is None else off + lost(a, b, *cut)
        value, size, off = cast("Doubles", alpha * value), abs(alpha) * size, abs(alpha) * off
    if alpha == 0:  # neither A nor B is read
        value, size, off = np.zeros_like(value), np.zeros_like(size), np.zeros_like(off)
    if beta:
        assert c is not None
        value, size = value + beta * c, size + abs(beta) * np.abs(c)
    steps = a.shape[-1] + MORE_ROUNDINGS
    # Where nothing is added up, nothing may be lost.
    error = np.where(size == 0, 0, (gamma(sums, a.shape[-1]) + product_error) * size + 2 * steps * least(sums))
    error = np.zeros_like(size) if exact or not sums.is_float else error + off
    if spec.epilogue:
        whole = finished(spec, Bounded(value, error), c if spec.names_c else None, given)
        value, error = whole.value, whole.error
    return Answer(value, _stored(value, error, sums, spec.result), spec.result)


def lost(a: Doubles, b: Doubles, kept: int, depth: int) -> Doubles:
    """What A B may be off by where `depth` products at a time are added to a sum, each cut to `kept` bits below the
    first of the largest of them: by less than 2^(1 - kept) of that.
    """
    total = off = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))
    for k in range(0, a.shape[-1], depth):
        left, right = a[..., k : k + depth], b[..., k : k + depth, :]
        product = np.abs(left).max(-1)[..., :, None] * np.abs(right).max(-2)[..., None, :]
        largest = np.maximum(product, np.abs(total) + off)
        total = total + left @ right
        off = off + (depth + 1) * 2.0 ** (1 - kept) * largest
    return off


def _stored(value: Doubles, error: Doubles, sums: DType, stored: DType) -> Doubles:
    """The error with that of rounding to C's type."""
    if stored == sums:
        return error
    largest = np.abs(value) + error
    return np.where(largest == 0, 0, error + 0.5**stored.digits * largest + least(stored))
