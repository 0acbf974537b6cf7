"""One schedule on one device: built, its result checked, then timed.

A result is checked before its time counts. Sums of small whole numbers are exact, so each element of C must have the
right bits; where an epilogue or a factor makes them inexact, each must be within its bound. C is poisoned first.

`python -m gemmgen.tuning.measure` serves jobs: a word and a line of JSON in, a line of JSON out. A kernel that takes
its process with it costs one trial.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import median, quantiles
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from gemmgen import driver
from gemmgen.epilogue import OPERANDS
from gemmgen.errors import LoweringError, UserError
from gemmgen.ir.dtypes import DType
from gemmgen.ir.instructions import product_error
from gemmgen.ir.numeric import in_pairs, numpy_dtype, poison
from gemmgen.oracle import Answer, answer, wide
from gemmgen.records import dataclass
from gemmgen.runtime.device import Device
from gemmgen.runtime.selection import pick
from gemmgen.spec import GemmSpec
from gemmgen.tuning.job import LAST, Job, Outcome, assuming_no_gaps, largest_drawn
from gemmgen.tuning.space import Shape

Matrix = NDArray[np.generic]
#: Runs of a product at most.
MOST_RUNS = 1000
#: Times a job's cutoff from which on it is given up after two runs.
HOPELESS = 1.5
#: Rounds in which those that are compared take turns, at least.
ROUNDS = 5
#: Runs from which on it is enough where the middle half of them differs by so small a part.
STEADY_RUNS, STEADY = 8, 0.01


# --- what is multiplied ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Problem:
    """The matrices of a product, and what must come out. Equal to itself alone: matrices on a device are kept for it.

    Attributes:
        c: C before.
        right: C after, exact if `exact`.
    """

    spec: GemmSpec
    a: Matrix
    b: Matrix
    c: Matrix
    operands: Mapping[str, Matrix]
    right: Answer | Matrix

    def fresh(self) -> Matrix:
        """C before, in memory of its own."""
        return self.c.copy(order="K")

    def fault(self, result: Matrix, off: float) -> str | None:
        """What is wrong with a result, if anything.

        Args:
            off: what each product may be off by, as a part of it.
        """
        if isinstance(self.right, Answer):
            error = self.right.error + off * np.abs(self.right.value)
            good = replace(self.right, error=error).holds(result)
        else:
            good = np.equal(result, self.right)
        if good.all():
            return None
        first = tuple(map(int, np.argwhere(~good)[0]))
        return f"{int((~good).sum())} of {good.size} elements are wrong, the first at {first}"


def is_exact(spec: GemmSpec) -> bool:
    """Whether small whole numbers have an exact result."""
    factors = [complex(x) for x in (spec.alpha, spec.beta) if x is not None]
    made = spec.epilogue or spec.prologue_a or spec.prologue_b
    return not made and all(factor in (0, 1, -1, 2) for factor in factors)


@lru_cache(maxsize=2)
def problem_of(spec: GemmSpec, shape: Shape, products: int) -> Problem:
    """The same for the same product. C is poisoned where it is not read."""
    rng, exact = np.random.default_rng(0), is_exact(spec)
    m, n, k = shape
    largest = largest_drawn(spec, k)

    def draw(dtype: DType, *extents: int) -> Matrix:
        if dtype.pairs:
            return cast("Matrix", rng.integers(-8, 8, extents).astype(np.int8))
        if exact or not dtype.is_float:
            drawn: NDArray[np.float64] = rng.integers(-largest, largest + 1, extents).astype(np.float64)
        else:
            drawn = rng.standard_normal(extents)
        return drawn.astype(numpy_dtype(dtype))

    batch = (products,) if spec.batched else ()
    a, b = draw(spec.element("a"), *batch, m, k), draw(spec.element("b"), *batch, k, n * spec.halves)
    reads = spec.names_c or bool(spec.beta)
    result = numpy_dtype(spec.result)
    c = draw(spec.result, *batch, m, n) if reads else np.full((*batch, m, n), poison(result), result)
    operands: dict[str, Matrix] = {}
    for name in spec.operands:
        extents = OPERANDS[name].extents(m, n, k)
        many = batch if len(extents) == 2 else ()
        operands[name] = np.abs(draw(spec.operand(name), *many, *extents))
    right = _right(spec, (a, b, c if reads else None), operands, exact)
    a, b = (
        cast("Matrix", in_pairs(x, axis)) if spec.element(name).pairs else x
        for name, x, axis in (("a", a, -1), ("b", b, -2))
    )
    orders = zip((a, b, c), (spec.a_order, spec.b_order, spec.c_order), strict=True)
    a, b, c = (np.asarray(x, order="C" if order == "row" else "F") if x.ndim == 2 else x for x, order in orders)
    return Problem(spec, a, b, c, operands, right)


def _right(
    spec: GemmSpec, matrices: tuple[Matrix, Matrix, Matrix | None], operands: Mapping[str, Matrix], exact: bool
) -> Answer | Matrix:
    factors = 1.0 if spec.alpha is None else spec.alpha, 0.0 if spec.beta is None else spec.beta
    a, b, c = matrices
    if not exact:
        given = {name: cast("NDArray[np.floating]", x) for name, x in operands.items()}
        known = cast("tuple[NDArray[np.floating], NDArray[np.floating], NDArray[np.floating] | None]", (a, b, c))
        return answer(spec, known, factors, given)
    # Sums of so small numbers are exact in the type that NumPy multiplies fastest.
    fast = np.float64 if spec.dtype.size == 8 else np.float32
    kind = (
        np.dtype(fast) if spec.dtype.real is None else np.dtype(np.complex128 if fast is np.float64 else np.complex64)
    )
    left, other = (np.conj(x) if conj else x for x, conj in zip((a, b), spec.conj, strict=True))
    value: NDArray[np.generic] = left.astype(kind) @ other.astype(kind)
    exactly = cast("NDArray[np.float64]", factors[0] * wide(cast("NDArray[np.floating]", value)))
    if c is not None:
        exactly = cast("NDArray[np.float64]", exactly + factors[1] * wide(cast("NDArray[np.floating]", c)))
    return Answer(exactly, np.zeros(1), spec.result).rounded


# --- on the device --------------------------------------------------------------------------------


class Contestant(Protocol):
    """A kernel with the matrices of a problem."""

    def result(self) -> Matrix:
        """C after one product."""

    def seconds(self, count: int) -> list[float]:
        """Of each of so many products."""


class Drawn(Contestant, Protocol):
    """The same, with matrices that were drawn on the device."""

    def is_right(self) -> bool | None:
        """Whether each element of C has the right bits; None where only the host knows the bounds."""


@lru_cache(maxsize=8)
def device_of(backend: str, number: int | None) -> Device:
    """A device by its number. Raises: DeviceError."""
    return pick(backend, device=None if number is None else str(number))


class _Event(Protocol):
    def wait(self) -> object: ...


class _Call(Protocol):
    def __call__(self, *arrays: object, return_event: bool, **operands: object) -> tuple[object, _Event]: ...


class _OpenCL:
    """A CPU's by the clock around each call with NumPy's arrays, as `gemmgen.gemm` calls it; a GPU's by its events."""

    def __init__(self, job: Job, problem: Problem) -> None:
        import pyopencl.array as cl_array

        from gemmgen.runtime.opencl import CompiledKernel
        from gemmgen.runtime.opencl_devices import DeviceInfo

        info = device_of(job.backend, job.device)
        assert isinstance(info, DeviceInfo)
        source = driver.emit(assuming_no_gaps(job.spec, job.shape), job.schedule, job.backend, info.target)
        self._kernel = CompiledKernel.from_source(source, info.handle)
        self._is_cpu = info.type == "cpu"
        arrays = [problem.a, problem.b, problem.fresh()]
        self._operands: dict[str, object] = dict(problem.operands)
        if self._is_cpu:
            self._arrays: list[object] = list(arrays)
        else:
            queue = self._kernel.queue
            self._arrays = [cl_array.to_device(queue, x) for x in arrays]
            self._operands = {name: cl_array.to_device(queue, x) for name, x in problem.operands.items()}

    def result(self) -> Matrix:
        self._run()
        c = self._arrays[2]
        return c if isinstance(c, np.ndarray) else cast("Matrix", c.get())  # type: ignore[attr-defined]

    def _run(self) -> None:
        cast("_Call", self._kernel)(*self._arrays, return_event=True, **self._operands)[1].wait()

    def seconds(self, count: int) -> list[float]:
        if not self._is_cpu:
            return self._kernel.time(
                *self._arrays, alpha=None, beta=None, queue=None, iterations=count, **self._operands
            )
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            self._run()
            times.append(time.perf_counter() - begin)
        return times


class _Sycl:
    """By the profile of each kernel's event."""

    def __init__(self, job: Job, problem: Problem) -> None:
        from gemmgen.runtime.sycl import SyclKernel

        info = device_of(job.backend, job.device)
        source = driver.emit(assuming_no_gaps(job.spec, job.shape), job.schedule, job.backend, info.target, "kernel")
        self._kernel = SyclKernel.from_source(source, info)
        self._arrays = [problem.a, problem.b, problem.fresh()]
        self._operands: dict[str, object] = dict(problem.operands)

    def result(self) -> Matrix:
        self.seconds(1)
        return self._arrays[2]

    def seconds(self, count: int) -> list[float]:
        return self._kernel.time(*self._arrays, alpha=None, beta=None, queue=None, iterations=count, **self._operands)


def _cuda(job: Job, problem: Problem | None, built: str = "") -> Drawn:
    """By graphs of products, on matrices that come from memory."""
    from gemmgen.runtime.cuda_devices import CudaDeviceInfo
    from gemmgen.tuning.on_cuda import CudaContestant

    info = device_of(job.backend, job.device)
    assert isinstance(info, CudaDeviceInfo)
    return CudaContestant(job, problem, info, built)


def _built_on_cuda(job: Job) -> str:
    from gemmgen.runtime.cuda_devices import CudaDeviceInfo
    from gemmgen.tuning.on_cuda import compile_only

    info = device_of(job.backend, job.device)
    assert isinstance(info, CudaDeviceInfo)
    return compile_only(job, info)


_CONTESTANTS: Mapping[str, Callable[[Job, Problem], Contestant]] = {"opencl": _OpenCL, "sycl": _Sycl}
#: Backends that draw matrices on the device where sums are exact; what compiles without a context on the device.
_DRAWING: Mapping[str, Callable[[Job, Problem | None, str], Drawn]] = {"cuda": _cuda}
_BUILDING: Mapping[str, Callable[[Job], str]] = {"cuda": _built_on_cuda}


def build(job: Job) -> Outcome:
    """Emit and compile, so that the disk cache has the kernel when another process measures it."""
    try:
        if job.backend in _BUILDING:
            return Outcome(built=_BUILDING[job.backend](job))
        _CONTESTANTS[job.backend](job, _tiny(job))
    except (UserError, LoweringError) as error:
        return Outcome(problem=_said(error))
    return Outcome()


@lru_cache(maxsize=1)
def _nothing() -> Matrix:
    return np.zeros((1, 1), np.float32)


def _tiny(job: Job) -> Problem:
    """Matrices of a kernel that is built, and not run."""
    nothing = _nothing()
    return Problem(job.spec, nothing, nothing, nothing, {}, nothing)


def measure(job: Job, built: str = "") -> Outcome:
    """Build, check, time. Raises: nothing that a schedule can be blamed for.

    Args:
        built: what `build` has handed over.
    """
    try:
        contestant = checked(job, built)
    except (UserError, LoweringError) as error:
        return Outcome(problem=_said(error))
    return _timed(contestant, job)


class WrongResult(UserError):
    """A kernel whose result is wrong."""


def checked(job: Job, built: str = "") -> Contestant:
    """A kernel whose first result was right. Raises: WrongResult, UserError, LoweringError."""
    if job.backend in _DRAWING and is_exact(job.spec) and job.spec.dtype.real is None:
        drawn = _DRAWING[job.backend](job, None, built)
        if not drawn.is_right():
            raise WrongResult("wrong result: elements differ from the GPU's own library's in float64")
        return drawn
    problem = problem_of(job.spec, job.shape, job.products)
    if job.backend in _DRAWING:
        contestant: Contestant = _DRAWING[job.backend](job, problem, built)
    else:
        contestant = _CONTESTANTS[job.backend](job, problem)
    fault = problem.fault(contestant.result(), product_error(job.schedule.atom, job.spec.dtype))
    if fault is not None:
        raise WrongResult(f"wrong result: {fault}")
    return contestant


def _timed(contestant: Contestant, job: Job) -> Outcome:
    """Racing: what is hopeless after two runs, or slower after three, is given up."""
    times: list[float] = []
    begin, early, count = time.perf_counter(), False, 1
    while not early and len(times) < MOST_RUNS and (len(times) < 3 or time.perf_counter() - begin < job.budget):
        since = time.perf_counter()
        times += contestant.seconds(count)
        count = _count(count, time.perf_counter() - since, job.budget / 4)
        if job.cutoff is not None:
            early = min(times) > job.cutoff * (HOPELESS if len(times) < 3 else 1)
        early = early or _is_steady(times)
    is_slow = job.cutoff is not None and min(times) > job.cutoff
    return replace(_outcome(times), is_early=is_slow)


def _count(done: int, took: float, seconds: float) -> int:
    """Runs for so many seconds, where some took as long."""
    return min(32, max(1, int(done * seconds / max(took, 1e-6))))


def _is_steady(times: Sequence[float]) -> bool:
    """Whether more runs would say the same."""
    if len(times) < STEADY_RUNS:
        return False
    low, middle, high = quantiles(times)
    return high - low < STEADY * middle


def _outcome(times: Sequence[float]) -> Outcome:
    middle = median(times)
    low, _, high = quantiles(times) if len(times) > 1 else (middle, middle, middle)
    return Outcome(middle, (high - low) / middle if middle else 0.0, len(times))


def compare(jobs: Sequence[Job], budget: float) -> list[Outcome]:
    """The outcomes of several schedules of one product, which take turns for so many seconds in all."""
    contestants: dict[int, Contestant] = {}
    failed: dict[int, Outcome] = {}
    for index, job in enumerate(jobs):
        try:
            contestants[index] = checked(job)
        except (UserError, LoweringError) as error:
            failed[index] = Outcome(problem=_said(error))
    times: dict[int, list[float]] = {index: [] for index in contestants}
    turns = random.Random(0)
    begin, rounds = time.perf_counter(), 0
    while contestants and (rounds < ROUNDS or time.perf_counter() - begin < budget):
        order = list(contestants)
        turns.shuffle(order)
        for index in order:
            since = time.perf_counter()
            contestants[index].seconds(1)
            count = _count(1, time.perf_counter() - since, budget / (4 * ROUNDS) / len(order))
            # The first of a turn finds other matrices in the caches. The least of it is what nothing else has slowed.
            times[index].append(min(contestants[index].seconds(count)))
        rounds += 1
    return [failed.get(index) or _outcome(times[index]) for index in range(len(jobs))]


def _said(error: UserError | LoweringError) -> str:
    return error.problems[0] if isinstance(error, UserError) else f"{error} (a bug of gemmgen)"


# --- as a process ---------------------------------------------------------------------------------


def _answer(word: str, rest: str) -> str:
    if word == "compare":
        budget, texts = json.loads(rest)
        return json.dumps([outcome.text() for outcome in compare([Job.read(text) for text in texts], budget)])
    if word == "build":
        return build(Job.read(rest)).text()
    text, built = json.loads(rest)
    return measure(Job.read(text), built).text()


def _said_of_failure(word: str, rest: str, error: Exception) -> str:
    """The same where Python or the device failed."""
    outcome = Outcome(problem=f"{type(error).__name__}: {error} (a bug of gemmgen, or of the driver)").text()
    return json.dumps([outcome] * len(json.loads(rest)[1])) if word == "compare" else outcome


def main() -> None:
    """Serve until standard input ends, or something fails: a device may be of no use from then on."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What a driver or a compiler prints is no answer.
    os.dup2(2, 1)
    for line in sys.stdin:
        word, _, rest = line.partition(" ")
        failed: Exception | None = None
        try:
            told = _answer(word, rest)
        except Exception as error:  # noqa: BLE001  (whatever it is, the user is told of it)
            failed, told = error, LAST + _said_of_failure(word, rest, error)
        answers.write(told + "\n")
        answers.flush()
        if failed is not None:
            raise failed


if __name__ == "__main__":
    main()
