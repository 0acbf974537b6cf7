"""The numbers of a case: drawn, and laid out in memory between canaries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt

from gemmgen.fuzz.case import Case, Data
from gemmgen.ir.dtypes import F32, F64, DType
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.oracle import Answer, answer, wide

Matrix = npt.NDArray[np.generic]
#: Elements before and after each matrix that nobody may touch; as many as device memory asks of where arrays begin.
GUARD = 128
#: Every byte of what nobody may use or overwrite. In all types of floats that is a NaN.
CANARY = 0xFF
#: Factors that change a float's exponent alone.
POWERS_OF_TWO = (1.0, -1.0, 2.0, 0.5)


@dataclass(frozen=True)
class Stored:
    """Matrices as they lie in memory, between canaries.

    Attributes:
        memory: all of it.
        view: the matrices in it, [count, rows, cols].
        ld, stride: elements between lines, and between matrices.
        free: where the canaries are.
    """

    memory: Matrix
    view: Matrix
    ld: int
    stride: int
    free: npt.NDArray[np.bool_]

    @property
    def inner(self) -> Matrix:
        """From the first element to the last."""
        return self.memory[GUARD:-GUARD]

    @property
    def intact(self) -> bool:
        """Whether every canary lives."""
        return bool((_bytes(self.memory)[self.free] == CANARY).all())

    def as_call(self, batched: bool) -> Matrix:
        """What a kernel is called with."""
        return self.view if batched else cast("Matrix", self.view[0])


@dataclass(frozen=True)
class Numbers:
    """What a case multiplies: A, B and C before, [count, rows, cols] each."""

    case: Case
    a: Matrix
    b: Matrix
    c: Matrix

    @staticmethod
    def of(case: Case) -> Numbers:
        """The same for the same case. C is full of canaries where it must not be read."""
        rng, spec = np.random.default_rng(case.seed), case.spec
        a, b = (_draw(rng, case.data, spec.dtype, case.shape(name)) for name in "ab")
        c = _draw(rng, case.data, spec.result, case.shape("c"))
        if case.beta == 0:
            _bytes(c)[:] = CANARY
        return Numbers(case, a, b, c)

    def stored(self, name: str) -> Stored:
        """One of the matrices in fresh memory."""
        case, matrix = self.case, {"a": self.a, "b": self.b, "c": self.c}[name]
        ld, stride = case.pitch(name)
        turned = case.order(name) == "col"
        lines = matrix.swapaxes(-1, -2) if turned else matrix
        count, slow, fast = lines.shape
        span = (count - 1) * stride + (slow - 1) * ld + fast
        item = matrix.dtype.itemsize
        memory = np.full((span + 2 * GUARD) * item, CANARY, np.uint8).view(matrix.dtype)
        free = np.ones(len(memory), np.bool_)
        steps = (stride, ld, 1)
        view = np.lib.stride_tricks.as_strided(memory[GUARD:], lines.shape, [step * item for step in steps])
        view[...] = lines
        np.lib.stride_tricks.as_strided(free[GUARD:], lines.shape, steps)[...] = False
        return Stored(memory, view.swapaxes(-1, -2) if turned else view, ld, stride, free)

    # --- what must come out -----------------------------------------------------------------------

    @cached_property
    def answer(self) -> Answer:
        """Small whole numbers have exact sums."""
        case = self.case
        factors = case.alpha, case.beta
        return answer(case.spec, (self.a, self.b, self.c), factors, exact=case.data == "whole")

    def problem(self, result: Matrix) -> str | None:
        """What is wrong with a result, if anything. A NaN is never within a bound, nor equal to anything."""
        ours, right = wide(result), self.answer
        if self.case.data == "whole" or not self.case.spec.accumulator.is_float:
            good, what = ours == wide(right.rounded), "not exact"
        else:
            good, what = right.holds(result), "out of the bound gamma_K |A||B|"
        if good.all():
            return None
        first = tuple(map(int, np.argwhere(~good)[0]))
        said = f"{ours[first]!r}, not {right.value[first]!r}"
        return f"{(~good).sum()} of {good.size} elements {what}; the first at {first}: {said}"


def same_bits(one: Matrix, other: Matrix) -> bool:
    """Also of NaNs, and of zeros by their signs."""
    return np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


def _draw(rng: np.random.Generator, data: Data, dtype: DType, shape: tuple[int, ...]) -> Matrix:
    if dtype.real is not None:
        parts = np.stack([_draw(rng, data, dtype.real, shape) for _ in range(2)], axis=-1)
        return cast("Matrix", parts.view(numpy_dtype(dtype))[..., 0])
    if dtype.size == 1:
        return rng.integers(-128, 128, shape).astype(np.int8)
    if data == "whole" or not dtype.is_float:
        return cast("Matrix", rng.integers(-8, 9, shape).astype(numpy_dtype(dtype)))
    if data == "normal":
        return cast("Matrix", rng.standard_normal(shape).astype(numpy_dtype(dtype)))
    # Products of two such significands are exact where they are summed, and so is such a product plus a sum in the
    # float64 that the interpreter rounds a fused multiply-add from.
    digits = 26 if dtype == F64 else min(F32.digits // 2, dtype.digits)
    significands = rng.integers(-(2**digits) + 1, 2**digits, shape) * 2.0**-digits
    return cast("Matrix", (significands * 2.0 ** rng.integers(-2, 3, shape)).astype(numpy_dtype(dtype)))


def _bytes(matrix: Matrix) -> npt.NDArray[np.uint8]:
    """Of each element of a matrix without gaps."""
    return matrix.view(np.uint8).reshape(*matrix.shape, matrix.dtype.itemsize)
