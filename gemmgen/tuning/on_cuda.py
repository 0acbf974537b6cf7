"""A schedule on a GPU of CUDA: its source as `gemm` chooses it for such matrices, checked and timed on the GPU.

Products are captured in a graph, each on matrices of its own, so many that none is in L2 when its turn comes again. A
and B hold small whole numbers, so that sums are exact in float64, which the GPU computes by its library.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from gemmgen import driver
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import BF16, FLOAT8, DType
from gemmgen.passes.validate import is_possible, is_transposed
from gemmgen.records import dataclass
from gemmgen.runtime.cuda_build import binary
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, info_of
from gemmgen.runtime.variants import variants_of
from gemmgen.source import Source
from gemmgen.tuning.job import Job, assuming_no_gaps, largest_drawn

if TYPE_CHECKING:
    import cupy

#: Times L2 that all matrices take together, so that each comes from memory; sets of matrices at most.
ROTATED, MOST_SETS = 2, 64
#: Seconds of a replay at least, so that what begins and ends it counts for little.
REPLAY = 2e-4
#: Bytes that a thread may spill; a kernel that spills more is not run.
SPILLS = 64
_OF_TORCH = (BF16, *FLOAT8)


def source_of(job: Job, info: CudaDeviceInfo) -> Source:
    """What `gemm` runs for matrices of the job's sizes without gaps. Raises: UserError, LoweringError."""
    known, schedule, target = assuming_no_gaps(job.spec, job.shape), job.schedule, info.target
    free = replace(known, ld_multiple=1)
    spec = free if is_possible(free, schedule, target) else known
    general = driver.emit(spec, schedule, job.backend, target)
    for each in variants_of(general, schedule, False, is_transposed(spec, schedule, target)):
        whole = all(size % unit == 0 for size, unit in zip(job.shape, each.multiple_of, strict=True))
        if whole and all(known.ld_unit(x) % each.ld_unit(x) == 0 for x in "abc"):
            return driver.emit(each, schedule, job.backend, target)
    return general


def compile_only(job: Job, info: CudaDeviceInfo) -> str:
    """Compile, so that the disk cache has the code when another process measures it. Needs no context on the GPU.

    Returns: the source, for a process of the same command.
    """
    source = source_of(job, info)
    binary(source, info)
    return base64.b64encode(pickle.dumps(source)).decode()


class OnHost(Hashable, Protocol):
    """The matrices of a problem, on the host."""

    @property
    def a(self) -> NDArray[np.generic]: ...
    @property
    def b(self) -> NDArray[np.generic]: ...
    @property
    def c(self) -> NDArray[np.generic]: ...
    @property
    def operands(self) -> Mapping[str, NDArray[np.generic]]: ...


class _Graph(Protocol):
    def launch(self, stream: object) -> None: ...


@dataclass(frozen=True)
class Matrices:
    """Of a problem, on the GPU.

    Attributes:
        a, b, c: of each set.
        right: what must come out; None where only the host's check knows the bounds.
    """

    a: list[object]
    b: list[object]
    c: list[object]
    operands: dict[str, object]
    right: object | None
    sets: int

    def of(self, number: int) -> tuple[object, object, object]:
        """The matrices of one set."""
        return self.a[number], self.b[number], self.c[number]


class CudaContestant:
    """A kernel with matrices on a GPU. Raises: ScheduleError where the compiler spills registers."""

    def __init__(self, job: Job, problem: OnHost | None, info: CudaDeviceInfo, built: str = "") -> None:
        import cupy

        from gemmgen.runtime.cuda import CudaKernel

        self._place = cupy.cuda.Device(info.number)
        with self._place:
            # What was built comes from a process of the same command, never from a file.
            source = pickle.loads(base64.b64decode(built)) if built else source_of(job, info)
            self._kernel = CudaKernel.from_source(source, info.number)
            spilled = max(each.spilled_bytes for each in self._kernel.resources)
            if spilled > SPILLS:
                raise ScheduleError(f"a thread spills {spilled} bytes > {SPILLS}: use a smaller tile")
            self._matrices = matrices_of(job.spec, job.shape, job.products, info.number, problem)
            self._stream = cupy.cuda.Stream(non_blocking=True)
        self._graph: _Graph | None = None
        self._count = 1

    def result(self) -> NDArray[np.generic]:
        """C after one product, on the host."""
        c = self._first()
        return _host(c) if hasattr(c, "cpu") else cast("NDArray[np.generic]", c.get(order="A"))  # type: ignore[attr-defined]

    def is_right(self) -> bool | None:
        """Whether every element has the right bits; None where only bounds are known."""
        right, c = self._matrices.right, self._first()
        if right is None:
            return None
        with self._place:
            return bool((_plain(c) == _plain(right)).all())  # type: ignore[attr-defined]

    def _first(self) -> object:
        a, b, c = self._matrices.of(0)
        with self._place:
            self._place.synchronize()
            self._kernel(a, b, c, stream=self._stream, **self._matrices.operands)  # type: ignore[call-overload]
            self._place.synchronize()
        return c

    def seconds(self, count: int) -> list[float]:
        """Of a product, from each of so many replays."""
        import cupy

        with self._place:
            graph = self._captured()
            begin, end, times = cupy.cuda.Event(), cupy.cuda.Event(), []
            for _ in range(count):
                begin.record(self._stream)
                graph.launch(self._stream)
                end.record(self._stream)
                end.synchronize()
                times.append(float(cupy.cuda.get_elapsed_time(begin, end)) * 1e-3 / self._count)
        return times

    def _captured(self) -> _Graph:
        if self._graph is None:
            self._graph, self._count = self._capture(self._matrices.sets), self._matrices.sets
            first = self.seconds(2)[-1] * self._count
            if first < REPLAY:
                self._count *= ceil(REPLAY / first)
                self._graph = self._capture(self._count)
            self._graph.launch(self._stream)
        return self._graph

    def _capture(self, count: int) -> _Graph:
        stream, kept = self._stream, self._matrices
        with stream:
            stream.begin_capture()
            try:
                for number in range(count):
                    a, b, c = kept.of(number % kept.sets)
                    self._kernel(a, b, c, stream=stream, **kept.operands)  # type: ignore[call-overload]
            finally:
                graph = stream.end_capture()
        return cast("_Graph", graph)


# --- matrices -------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def matrices_of(
    spec: object, shape: tuple[int, int, int], products: int, number: int, problem: OnHost | None
) -> Matrices:
    """The same for the same product. C is poisoned.

    Args:
        problem: on the host, where sums are not exact; None draws them on the GPU.
    """
    import cupy

    from gemmgen.spec import GemmSpec

    assert isinstance(spec, GemmSpec)
    m, n, k = shape
    batch = (products,) if spec.batched else ()
    size = products * ((m * k + k * n * spec.halves) * spec.dtype.size + m * n * spec.result.size)
    sets = min(MOST_SETS, max(1, ceil(ROTATED * info_of(number).l2_bytes / size)))
    cupy.get_default_memory_pool().free_all_blocks()
    if problem is not None:
        a, b, c = (_stored(_given(x), None) for x in (problem.a, problem.b, problem.c))
        return Matrices(_copies(a, sets), _copies(b, sets), _copies(c, sets), _operands(problem), None, sets)
    rng, largest = cupy.random.default_rng(0), largest_drawn(spec, k)

    def draw(*extents: int) -> cupy.ndarray:
        return rng.integers(-largest, largest + 1, (*batch, *extents)).astype("float64")

    a, b = draw(m, k), draw(k, n)
    right = _stored(_of_type(a @ b, spec.result), spec.c_order)
    c = _of_type(cupy.full((*batch, m, n), cupy.nan if spec.result.is_float else 99.0), spec.result)
    given = (_of_type(a, spec.element("a")), spec.a_order), (_of_type(b, spec.element("b")), spec.b_order)
    stored = [_stored(x, order) for x, order in (*given, (c, spec.c_order))]
    of_a, of_b, of_c = (_copies(x, sets) for x in stored)
    return Matrices(of_a, of_b, of_c, {}, right, sets)


def _of_type(array: cupy.ndarray, dtype: DType) -> object:
    """Rounded to nearest, of torch where CuPy lacks the type."""
    if dtype not in _OF_TORCH:
        return array.astype(str(dtype))
    import torch

    return torch.from_dlpack(array.astype("float32")).to(getattr(torch, str(dtype)))


def _stored(matrix: object, order: str | None) -> object:
    """By rows or by columns."""
    if order != "col":
        return matrix
    if hasattr(matrix, "contiguous"):
        return matrix.transpose(-1, -2).contiguous().transpose(-1, -2)  # type: ignore[attr-defined]
    import cupy

    return cupy.ascontiguousarray(cast("cupy.ndarray", matrix).swapaxes(-1, -2)).swapaxes(-1, -2)


def _copies(matrix: object, sets: int) -> list[object]:
    """A matrix so many times, each as it is stored."""
    if hasattr(matrix, "contiguous"):
        return [matrix, *(matrix.clone() for _ in range(sets - 1))]  # type: ignore[attr-defined]
    return [matrix, *(cast("cupy.ndarray", matrix).copy(order="K") for _ in range(sets - 1))]


def _given(array: NDArray[np.generic]) -> object:
    """A host's matrix on the GPU, as it is stored."""
    import cupy

    name = str(array.dtype)
    if name not in map(str, _OF_TORCH):
        return cupy.asarray(array, order="K")
    import torch

    transposed = array.ndim == 2 and not array.flags.c_contiguous
    plain = np.ascontiguousarray(array.T if transposed else array)
    bits = plain.view(np.int16 if plain.itemsize == 2 else np.uint8)
    made = torch.from_numpy(bits).cuda().view(getattr(torch, name))
    return made.T if transposed else made


def _operands(problem: OnHost) -> dict[str, object]:
    return {name: _given(x) for name, x in problem.operands.items()}


def _host(tensor: object) -> NDArray[np.generic]:
    """A tensor of torch with the bits that it has, as NumPy's array."""
    import torch

    from gemmgen.ir.numeric import numpy_dtype

    assert isinstance(tensor, torch.Tensor)
    name = str(tensor.dtype).removeprefix("torch.")
    transposed = tensor.ndim == 2 and not tensor.is_contiguous()
    plain = (tensor.T if transposed else tensor).contiguous()
    bits = plain.view(torch.int16 if plain.element_size() == 2 else torch.uint8).cpu().numpy()
    made: NDArray[np.generic] = bits.view(numpy_dtype(name))
    return made.T if transposed else made


def _plain(matrix: object) -> object:
    """Its numbers in a type that can be compared."""
    return matrix.float() if hasattr(matrix, "contiguous") else matrix  # type: ignore[attr-defined]
