"""Checks of a kernel on a GPU: matrices between canaries, against float64; repeats; two streams at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from gemmgen import candidates, driver
from gemmgen.errors import DeviceError
from gemmgen.runtime.cuda import CudaKernel
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, cuda_devices, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support import skips
from tests.support.problems import CANARY, Matrix, Problem, check

KEPT = Path(__file__).resolve().parents[2] / "generated" / "cuda"
#: Elements before and after each matrix; a multiple of 16 bytes, so that matrices begin where vectors may.
GUARD = 64
#: A single element, ragged sizes under, around and over one tile of every preset, whole tiles, long and thin ones.
SIZES = [(1, 1, 1), (7, 11, 15), (33, 17, 9), (129, 131, 37), (200, 130, 65), (256, 256, 64), (1, 300, 70), (270, 1, 5)]
#: For compute-sanitizer, under which everything is slow.
SMALL_SIZES = [(1, 1, 1), (33, 17, 9), (129, 131, 37)]


class Array(Protocol):
    """What is used of a `cupy.ndarray`."""

    def get(self) -> NDArray[np.float32]: ...
    def fill(self, value: float) -> None: ...
    def copy(self) -> Array: ...


def why_no_gpu() -> str | None:
    """The reason to skip, or None where there is a GPU."""
    try:
        cuda_devices()
    except DeviceError as error:
        return f"{skips.GPU}: {error}"
    return None


def expressible(schedule: Schedule) -> bool:
    """Whether CUDA has all that a schedule asks for; matrix instructions have tests of their own."""
    own = schedule.by_warps or schedule.by_warpgroups
    return not own and not driver.refusals(GemmSpec(), schedule, "cuda")


def with_vectors() -> list[str]:
    """Those for which CUDA needs aligned addresses, so that they have a twin where matrices are aligned. The kept file
    says so, where there is one; to emit all while tests are collected would take seconds.
    """
    return [name for name in names() if "begin on multiples of" in _text(name)]


def _text(name: str) -> str:
    """What a preset emits."""
    file, preset = KEPT / f"{name}.cu", candidates.load(name)
    return file.read_text() if file.exists() else driver.emit(preset.spec, preset.schedule, "cuda").text


@cache
def names() -> list[str]:
    """Presets that CUDA can express."""
    return [name for name in candidates.names() if expressible(candidates.load(name).schedule)]


def compiled(name: str, info: CudaDeviceInfo, spec: GemmSpec | None = None) -> CudaKernel:
    """A preset for a GPU."""
    preset = candidates.load(name)
    source = driver.emit(spec or preset.spec, preset.schedule, "cuda", target_of(info))
    return CudaKernel.from_source(source, info)


@dataclass(frozen=True)
class Guarded:
    """A matrix in a GPU's memory, between canaries and with `pad` of them after each line."""

    whole: Array
    view: Array
    order: Order
    pad: int

    @staticmethod
    def of(matrix: Matrix, order: Order, pad: int, filler: float) -> Guarded:
        """A copy of `matrix`; what lies around it is `filler`."""
        import cupy

        lines = matrix if order == "row" else matrix.T
        ld = lines.shape[1] + pad
        host = np.full(2 * GUARD + lines.shape[0] * ld, filler, np.float32)
        host[GUARD:-GUARD].reshape(-1, ld)[:, : lines.shape[1]] = lines
        whole = cupy.asarray(host)
        inner = whole[GUARD:-GUARD].reshape(-1, ld)[:, : lines.shape[1]]
        return Guarded(whole, inner if order == "row" else inner.T, order, pad)

    def result(self) -> Matrix:
        """The matrix; what lies around it must be untouched."""
        host = self.whole.get()
        shape = cast("NDArray[np.float32]", self.view).shape
        fast = shape[1] if self.order == "row" else shape[0]
        lines = host[GUARD:-GUARD].reshape(-1, fast + self.pad)
        around = np.concatenate([host[:GUARD], host[-GUARD:], lines[:, fast:].ravel()])
        assert (around == CANARY).all(), "memory around C was written to"
        return lines[:, :fast] if self.order == "row" else lines[:, :fast].T


def check_product(kernel: CudaKernel, problem: Problem, pads: tuple[int, int, int] = (0, 0, 0)) -> Matrix:
    """C against its bound; around A and B lie NaN, which must not be used, and around C canaries."""
    spec = kernel.source.spec
    nan = float("nan")
    a = Guarded.of(problem.a, spec.a_order, pads[0], nan)
    b = Guarded.of(problem.b, spec.b_order, pads[1], nan)
    c = Guarded.of(problem.c, spec.c_order, pads[2], float(CANARY))
    kernel(a.view, b.view, c.view, alpha=problem.alpha, beta=problem.beta)
    result = c.result()
    problem.check(result)
    return result


def check_ragged(kernel: CudaKernel, rng: np.random.Generator, sizes: list[tuple[int, int, int]]) -> None:
    """All sizes, with leading dimensions that vectors can use and others."""
    for m, n, k in sizes:
        for pads in ((0, 0, 0), (3, 1, 2), (-k % 4 + 4, -n % 4, -n % 4 + 4)):
            for alpha, beta in ((1.0, 0.0), (-1.5, 0.25)):
                check_product(kernel, Problem.random(rng, m, n, k, alpha, beta), pads)


def check_aligned(kernel: CudaKernel, rng: np.random.Generator, sizes: list[tuple[int, int, int]]) -> None:
    """All sizes, with leading dimensions that are multiples of 4."""
    for m, n, k in sizes:
        for extra in (0, 4):
            pads = (-k % 4 + extra, -n % 4, -n % 4 + extra)
            check_product(kernel, Problem.random(rng, m, n, k, -1.5, 0.25), pads)


def check_exact(kernel: CudaKernel, rng: np.random.Generator) -> None:
    """Small integers, whatever the order of summation."""
    problem = Problem.integers(rng, 170, 145, 129)
    assert np.array_equal(check_product(kernel, problem, (1, 2, 3)), problem.expected)


def same_bits(name: str) -> bool:
    """Whether a preset gives the same bits each time: unless its sums come in no fixed order."""
    return not candidates.load(name).schedule.atomic


def check_repeats(
    kernel: CudaKernel, rng: np.random.Generator, size: tuple[int, int, int], times: int, bits: bool = True
) -> None:
    """The same bits each time (or, where they may differ, within the bound), from memory that held NaN."""
    import cupy

    problem = Problem.random(rng, *size)
    a, b, c = placed(kernel, problem)
    first = cast("NDArray[np.float32]", kernel(a, b, c).get()).copy()
    right = problem.answer
    check(right, first)
    for _ in range(times - 1):
        c.fill(cupy.nan)
        result = kernel(a, b, c).get()
        check(right, result)
        assert not bits or np.array_equal(result, first), "a repeat differs"


def placed(kernel: CudaKernel, problem: Problem) -> list[Any]:
    """A, B as the kernel has it, and C on the GPU."""
    import cupy

    b = cupy.asarray(problem.b, order="F" if kernel.source.spec.b_order == "col" else "C")
    return [cupy.asarray(problem.a), b, cupy.asarray(problem.c)]


def check_two_streams(kernel: CudaKernel, rng: np.random.Generator, bits: bool = True) -> None:
    """Two products under way at once get the bits that each gets alone (or stay within the bound)."""
    import cupy

    problems = [Problem.random(rng, 513, 260, 300), Problem.random(rng, 257, 511, 299)]
    operands = [placed(kernel, p) for p in problems]
    alone = [kernel(a, b).get() for a, b, _ in operands]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in problems]
    cupy.cuda.Device().synchronize()
    for _ in range(20):
        for stream, (a, b, c) in zip(streams, operands, strict=True):
            with stream:
                kernel(a, b, c)
    for stream, expected, (_, _, c) in zip(streams, alone, operands, strict=True):
        stream.synchronize()
        assert not bits or np.array_equal(c.get(), expected), "a stream disturbed the other"
    for problem, (_, _, c) in zip(problems, operands, strict=True):
        problem.check(c.get())


def orders() -> Iterator[GemmSpec]:
    """A few layouts other than all by rows."""
    yield GemmSpec(a_order="col")
    yield GemmSpec(b_order="col", c_order="col")
    yield GemmSpec(a_order="col", b_order="col", c_order="col")
