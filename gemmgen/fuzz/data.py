"""The numbers of a case: drawn, and laid out in memory between canaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Literal, Protocol, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gemmgen.epilogue import OPERANDS
from gemmgen.fuzz.case import Case, Data
from gemmgen.ir.dtypes import F32, F64, DType
from gemmgen.ir.instructions import product_error
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.oracle import Answer, answer, wide
from gemmgen.records import cached_property, dataclass

Matrix = npt.NDArray[np.generic]
Form = Literal["vector", "matrix", "batch", "list"]


class Sliceable(Protocol):
    """An array of any library."""

    def __getitem__(self, index: int, /) -> Self: ...


Sliced = TypeVar("Sliced", bound=Sliceable)
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
        view: the matrices in it, [count, rows, cols], as they follow each other.
        begin: elements before the first one.
        ld, stride: elements between lines, and between matrices.
        place: which of the matrices is that of each product.
        form: what a call takes: a vector, a matrix, a batch, or matrices one by one.
        free: where the canaries are.
    """

    memory: Matrix
    view: Matrix
    begin: int
    ld: int
    stride: int
    place: tuple[int, ...]
    form: Form
    free: npt.NDArray[np.bool_]

    @property
    def inner(self) -> Matrix:
        """From the first element to the last."""
        return self.memory[self.begin : -GUARD]

    @property
    def intact(self) -> bool:
        """Whether every canary lives."""
        return bool((_bytes(self.memory)[self.free] == CANARY).all())

    @property
    def values(self) -> Matrix:
        """What is there, product by product."""
        return self.view[list(self.place)]

    @property
    def addresses(self) -> npt.NDArray[np.int64]:
        """Where each product's matrix begins in `inner`."""
        return np.array(self.place, np.int64) * self.stride

    def call(self, view: Sliced) -> Sliced | list[Sliced]:
        """What a kernel is called with, of a view such as `self.view`, or of one on a device."""
        if self.form == "list":
            return [view[place] for place in self.place]
        return {"batch": lambda: view, "matrix": lambda: view[0], "vector": lambda: view[0][0]}[self.form]()


@dataclass(frozen=True)
class Numbers:
    """What a case multiplies: A, B and C before, [count, rows, cols] each, and what the epilogue takes by name."""

    case: Case
    a: Matrix
    b: Matrix
    c: Matrix
    operands: Mapping[str, Matrix] = field(default_factory=dict)

    @staticmethod
    def of(case: Case) -> Numbers:
        """The same for the same case. What must not be read is full of canaries."""
        rng, spec = np.random.default_rng(case.seed), case.spec
        a, b = (_draw(rng, case.data, spec.element(name), case.shape(name)) for name in "ab")
        c = _draw(rng, case.data, spec.result, case.shape("c"))
        operands = {name: _draw(rng, case.data, spec.operand(name), case.shape(name)) for name in spec.operands}
        unread = [c] if case.beta == 0 and not spec.names_c else []
        for matrix in [*unread, a, b] if not case.multiplies else unread:
            _bytes(matrix)[:] = CANARY
        return Numbers(case, a, b, c, operands)

    def all_stored(self) -> dict[str, Stored]:
        """Every matrix in fresh memory."""
        return {name: self.stored(name) for name in ("a", "b", "c", *self.operands)}

    def before(self, name: str) -> Matrix:
        """What is in a matrix before the call."""
        return {"a": self.a, "b": self.b, "c": self.c, **self.operands}[name]

    def stored(self, name: str) -> Stored:
        """One of the matrices in fresh memory."""
        case, matrix, place = self.case, self.before(name), self.case.place(name)
        vector = name not in "abc" and len(OPERANDS[name].axes) == 1
        ld, stride = case.pitch(name)
        transposed = case.order(name) == "col" and not vector
        lines = matrix.swapaxes(-1, -2) if transposed else matrix
        count, slow, fast = lines.shape
        span = (count - 1) * stride + (slow - 1) * ld + fast if lines.size else 0
        item, begin = matrix.dtype.itemsize, GUARD + case.offset(name)
        raw = np.full((begin + span + GUARD) * item, CANARY, np.uint8)
        memory = raw.view(matrix.dtype)
        free = np.ones(len(memory), np.bool_)
        steps = (stride, ld, 1)
        # Not by as_strided, which knows no types of 8 bits.
        view: Matrix = np.ndarray(lines.shape, matrix.dtype, raw, begin * item, [step * item for step in steps])
        view[list(place if not vector else (0,))] = lines
        np.lib.stride_tricks.as_strided(free[begin:], lines.shape, steps)[...] = False
        shown = view.swapaxes(-1, -2) if transposed else view
        form: Form = "vector" if vector else "matrix" if not case.spec.batched else "batch"
        if case.spec.listed and name in "abc":
            form = "list"
        return Stored(memory, shown, begin, ld, stride, place if not vector else (0,), form, free)

    # --- what must come out -----------------------------------------------------------------------

    @cached_property
    def answer(self) -> Answer:
        """Small whole numbers have exact sums."""
        case = self.case
        matrices, factors = (self.a, self.b, self.c), (case.alpha, case.beta)
        operands = {name: self._operand(name) for name in self.operands}
        off = product_error(case.schedule.atom, case.spec.dtype)
        return answer(case.spec, matrices, factors, operands, off, exact=case.data == "whole")

    def _operand(self, name: str) -> Matrix:
        """As a call takes it, of all products."""
        return self.operands[name][0, 0] if len(OPERANDS[name].axes) == 1 else self.operands[name]

    def problem(self, result: Matrix, of_device: bool = False) -> str | None:
        """What is wrong with a result, if anything. A NaN is never within a bound, nor equal to anything.

        Args:
            of_device: whose tensor cores drop bits that rounding would keep: they may be off by twice what sums may.
        """
        ours, right = wide(result), self.answer
        spec = self.case.spec
        if not spec.accumulator.is_float or (self.case.data == "whole" and not spec.epilogue):
            good, what = ours == wide(right.rounded), "not exact"
        else:
            twice = 2 if of_device and self.case.schedule.by_warpgroups else 1
            good, what = replace(right, error=twice * right.error).holds(result), "out of the bound gamma_K |A||B|"
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
    if dtype.size == 1 and not dtype.is_float:
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
