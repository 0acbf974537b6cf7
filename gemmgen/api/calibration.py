"""Where NumPy itself is faster than a kernel: small plain products, by calls that were timed on this machine.

The first calls of a kind compute the product by both, in turn. The faster one computes the later calls. What is found
holds for smaller (NumPy) or larger products (kernels) of the same type and orders, and is kept on disk.
"""

from __future__ import annotations

import json
import time
from functools import lru_cache
from typing import Any

import numpy as np

import gemmgen
from gemmgen.records import dataclass
from gemmgen.runtime import limits
from gemmgen.runtime.cache import DiskCache, digest, is_switched_on, once
from gemmgen.runtime.calls import Factors, Held, HostCall, Outcome, Places
from gemmgen.runtime.views import Numbers
from gemmgen.spec import GemmSpec

#: 0 leaves every product to a kernel.
VARIABLE = "GEMMGEN_NUMPY"
#: The types of A, B and C that NumPy multiplies as kernels do.
TYPES = ("float32", "float64", "int32", "int64", "complex64", "complex128")
#: Multiply-adds beyond which a kernel computes a product in any case.
MOST = 2**21
#: Calls that are timed, after some that are not.
TIMED, UNTIMED = 9, 3
#: How much faster NumPy must be.
AHEAD = 0.95

_cache = DiskCache("calibration")


@dataclass(frozen=True, slots=True)
class Choice:
    """What computed a product.

    Attributes:
        by: `numpy`, or the backend of the kernel.
        kernel: the kernel's name; empty for NumPy.
        why: one sentence.
    """

    by: str
    kernel: str
    why: str

    def __str__(self) -> str:
        return f"{self.kernel or 'NumPy'} ({self.by}): {self.why}"


@dataclass(frozen=True, slots=True)
class Kind:
    """Products that share what is measured.

    Attributes:
        dtype: of A, B and C.
        orders: of A and B.
        is_vector: whether A or B is one line.
    """

    dtype: str
    orders: tuple[str, str]
    is_vector: bool


class Bounds:
    """What is known of a kind, in multiply-adds: the most for which NumPy was faster, the fewest for which a kernel
    was.
    """

    def __init__(self, kind: Kind) -> None:
        self.question = digest("numpy", repr(kind), *_machine())
        self.below, self.above = 0, MOST + 1
        if (kept := _cache.read("numpy", self.question)) is not None:
            self.below, self.above = json.loads(kept)

    def add(self, work: int, is_faster: bool) -> None:
        """Note what was measured, and keep it."""
        if is_faster:
            self.below, self.above = max(self.below, work), max(self.above, work + 1)
        else:
            self.below, self.above = min(self.below, work - 1), min(self.above, work)
        _cache.write("numpy", self.question, json.dumps([self.below, self.above]).encode())


@once
def _machine() -> tuple[str, ...]:
    """All that times depend on."""
    return gemmgen.__version__, np.__version__, limits.instructions(), str(limits.processors())


@lru_cache(64)
def bounds_of(kind: Kind) -> Bounds:
    """What is known of a kind on this machine."""
    return Bounds(kind)


def is_on() -> bool:
    """Whether NumPy itself may compute products."""
    return is_switched_on(VARIABLE)


def prefers_numpy(kind: Kind, work: int) -> bool:
    """Whether NumPy is known to be faster at a product of so many multiply-adds."""
    return is_on() and 0 < work <= bounds_of(kind).below


def of_numpy(work: int) -> Choice:
    """The choice of NumPy."""
    why = f"NumPy was faster at {work:,} multiply-adds on this machine ({VARIABLE}=0 forbids it)"
    return Choice("numpy", "", why)


def said_of(spec: GemmSpec) -> str:
    """What `gemmgen explain` says of a spec with constant sizes, if `gemm` leaves it to NumPy; else nothing."""
    m, n, k, dtype = spec.m, spec.n, spec.k, spec.dtype.name
    if m is None or n is None or k is None or spec.epilogue or spec.prologue_a or spec.prologue_b or spec.batched:
        return ""
    kind = Kind(dtype, (spec.a_order, spec.b_order), 1 in (m, n))
    if dtype not in TYPES or spec.result != spec.dtype or not prefers_numpy(kind, m * n * k):
        return ""
    return f"gemmgen.gemm(a, b) leaves this product of NumPy's arrays to NumPy: {of_numpy(m * n * k).why}."


class NumPyCall(HostCall):
    """A prepared call that NumPy computes.

    Args:
        work: its multiply-adds.
    """

    def __init__(self, outcome: Outcome, work: int) -> None:
        super().__init__(outcome)
        self.about = of_numpy(work)

    def run(self, held: Held, places: Places, more: tuple[int, ...], factors: Factors, place: object = None) -> Any:
        if factors[0] != 1:  # beta is 0, by the key
            return None
        a, b, c, _ = held
        if c is None:
            made: Numbers = np.matmul(a, b)
            return made
        return super().run(held, places, more, factors, place)

    def _compute(self, addresses: tuple[int, ...], factors: Factors, held: Held, place: object) -> None:  # noqa: ARG002
        a, b, c, _ = held
        np.matmul(a, b, out=c)


class Beside(NumPyCall):
    """A prepared call of a plain product by a kernel, which NumPy may compute as well: first both in turn, then the
    faster one.
    """

    def __init__(self, kernel: HostCall, by_numpy: NumPyCall, kind: Kind, work: int) -> None:
        self._kernel, self._numpy, self._kind, self._work = kernel, by_numpy, kind, work
        self._times: tuple[list[float], list[float]] = [], []
        self.about: object = kernel.about
        self.run = self._both  # type: ignore[method-assign]
        bounds = bounds_of(kind)
        if work >= bounds.above:
            self.run = kernel.run  # type: ignore[method-assign]
        elif work <= bounds.below:
            self.run = self._by_numpy  # type: ignore[method-assign]

    def _by_numpy(
        self, held: Held, places: Places, more: tuple[int, ...], factors: Factors, place: object = None
    ) -> Any:
        by: HostCall = self._numpy if factors[0] == 1 else self._kernel
        self.about = by.about
        return by.run(held, places, more, factors, place)

    def _both(self, held: Held, places: Places, more: tuple[int, ...], factors: Factors, place: object = None) -> Any:
        clock = time.perf_counter
        begin = clock()
        result = self._kernel.run(held, places, more, factors, place)
        between = clock()
        if result is None or factors[0] != 1:
            return result
        self._numpy.run(held, places, more, factors, place)
        of_kernel, of_numpy = self._times
        of_numpy.append(clock() - between)
        of_kernel.append(between - begin)
        if len(of_numpy) >= UNTIMED + TIMED:
            is_faster = min(of_numpy[UNTIMED:]) < AHEAD * min(of_kernel[UNTIMED:])
            bounds_of(self._kind).add(self._work, is_faster)
            self.run = self._by_numpy if is_faster else self._kernel.run  # type: ignore[method-assign]
        return result
