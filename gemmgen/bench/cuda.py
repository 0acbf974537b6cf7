"""Contenders on a GPU of CUDA: products captured in graphs, which are replayed between events.

Matrices are CuPy's arrays, and torch's tensors where CuPy lacks the type.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from types import EllipsisType
from typing import TYPE_CHECKING

from gemmgen.bench.records import Accuracy, Size, check_measurable, launches, variant
from gemmgen.errors import DeviceError
from gemmgen.ir.dtypes import ALL_DTYPES, BF16, F32, F64, FLOAT8, I8, MATRIX_DTYPES, accumulator
from gemmgen.ir.instructions import cut_sums, product_error
from gemmgen.kernel_names import kernel_name
from gemmgen.oracle import gamma
from gemmgen.runtime import require_cupy
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, pick
from gemmgen.runtime.cuda_memory import translated
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

if TYPE_CHECKING:
    import cupy

#: Launches in the graph by which the time of one is estimated.
PROBE = 3
#: Rows of the float64 reference that are computed at a time.
REFERENCE_ROWS = 4096
#: float32 lanes of a multiprocessor (CUDA C++ Programming Guide, arithmetic throughput).
FP32_LANES = {(7, 5): 64, (8, 0): 64, **dict.fromkeys(((8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (12, 0)), 128)}
#: Types that CuPy lacks, and torch's tensors hold.
OF_TORCH = frozenset(map(str, (BF16, *FLOAT8)))

#: Queues one product; replays a graph of some.
Launch = Callable[[], None]
#: Makes a graph of some launches; what it returns replays that on the problem's stream.
Capture = Callable[[Launch, int], Launch]


# --- matrices -------------------------------------------------------------------------------------


def require_library(dtype: str) -> None:
    """Raises: DeviceError where nothing that is installed holds such matrices on a GPU."""
    if dtype in OF_TORCH and not find_spec("torch"):
        raise DeviceError(f"matrices of {dtype} are torch's tensors here, but torch is missing: pip install torch")


def converted(array: object, dtype: str) -> object:
    """A CuPy array of float32 in another type, rounded to nearest."""
    import cupy

    numbers = cupy.asarray(array)
    if dtype not in OF_TORCH:
        return numbers.astype(dtype, copy=False)
    import torch

    return torch.from_dlpack(numbers).to(getattr(torch, dtype))


def random_matrix(rng: cupy.random.Generator, shape: tuple[int, ...], dtype: str) -> object:
    """Normal numbers; of int8, any."""
    if dtype == I8.name:
        return rng.integers(-128, 128, shape).astype(dtype)
    return converted(rng.standard_normal(shape, dtype=dtype if dtype == F64.name else F32.name), dtype)


def poison(shape: tuple[int, ...], dtype: str) -> object:
    """What no product is: NaN, or the least integer."""
    import cupy

    if not ALL_DTYPES[dtype].is_float:
        return cupy.full(shape, cupy.iinfo(dtype).min, dtype)
    return converted(cupy.full(shape, cupy.nan, dtype if dtype == F64.name else F32.name), dtype)


def plain(matrix: object) -> object:
    """Its numbers as a CuPy array of a type that CuPy computes with."""
    import cupy

    if isinstance(matrix, cupy.ndarray):
        return matrix
    import torch

    assert isinstance(matrix, torch.Tensor)
    return cupy.from_dlpack(matrix.float().contiguous())


def stored(matrix: object, order: str) -> object:
    """The matrix stored by rows or by columns."""
    import cupy

    if order == "row":
        return matrix
    if isinstance(matrix, cupy.ndarray):
        return cupy.ascontiguousarray(matrix.swapaxes(-1, -2)).swapaxes(-1, -2)
    import torch

    assert isinstance(matrix, torch.Tensor)
    return matrix.transpose(-1, -2).contiguous().transpose(-1, -2)


# --- contenders -----------------------------------------------------------------------------------


class GpuProblem:
    """A and B of one size on a GPU, normal numbers, with what float64 makes of them."""

    def __init__(self, size: Size, dtype: str, seed: int, device: CudaDeviceInfo, result: str | None = None) -> None:
        require_cupy()
        require_library(dtype)
        import cupy

        self.size, self.dtype, self.device = size, dtype, device
        self.result = result or dtype
        with translated(device.name), cupy.cuda.Device(device.number):
            rng = cupy.random.default_rng(seed)
            self.a = random_matrix(rng, size.shape(size.m, size.k), dtype)
            self.b = random_matrix(rng, size.shape(size.k, size.n), dtype)
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self._reference()
            cupy.cuda.Device(device.number).synchronize()

    def _reference(self) -> None:
        """Reference and |A| |B|, by rows: float64 needs twice the memory, and the absolute values as much again."""
        import cupy

        size, a = self.size, cupy.asarray(plain(self.a))
        self.reference = cupy.empty(size.shape(size.m, size.n), "float64")
        self.absolute = cupy.empty(size.shape(size.m, size.n), "float32")
        b = cupy.asarray(plain(self.b)).astype("float64")
        for part in self._parts():
            self.reference[part] = cupy.matmul(a[part].astype("float64"), b)
        cupy.absolute(b, out=b)
        for part in self._parts():
            self.absolute[part] = cupy.matmul(cupy.absolute(a[part]).astype("float64"), b)

    def _parts(self) -> list[tuple[EllipsisType, slice, slice]]:
        """Some rows of each matrix, and then those after them."""
        starts = range(0, self.size.m, REFERENCE_ROWS)
        return [(..., slice(row, row + REFERENCE_ROWS), slice(None)) for row in starts]

    def accuracy(self, c: object, product_error: float = 0.0) -> Accuracy:
        """Of a result on the GPU: the bound of `gemmgen.oracle`, part by part where the matrices lie."""
        import cupy

        result = cupy.asarray(plain(c))
        sums, stored = accumulator(MATRIX_DTYPES[self.dtype]), ALL_DTYPES[self.result]
        of_absolute = gamma(sums, self.size.k) + product_error
        of_reference = 0.0 if stored == sums else 0.5**stored.digits
        square = total = worst = 0.0
        for part in self._parts():
            off = cupy.absolute(result[part] - self.reference[part])
            off[~cupy.isfinite(off)] = cupy.inf
            bound = self.absolute[part] * (of_absolute * (1 + of_reference))
            if of_reference:
                bound += cupy.absolute(self.reference[part]) * of_reference
            worst = max(worst, float(cupy.where(off > 0, off / bound, 0).max()))
            square += float(cupy.square(off).sum())
            total += float(cupy.square(self.reference[part]).sum())
        return Accuracy((square / total) ** 0.5, worst)

    def poisoned(self, order: str = "row", dtype: str | None = None) -> object:
        """Memory for C, full of what no product is: NaN, or the least integer."""
        shape = self.size.shape(self.size.m, self.size.n)
        return stored(poison(shape, dtype or self.result), order)


class Graphed:
    """A product that is captured in a graph.

    Args:
        launch: queues one product on the current stream.
        product_error: how far its products may be off before they are summed.
    """

    def __init__(
        self,
        name: str,
        problem: GpuProblem,
        launch: Launch,
        c: object,
        capture: Capture,
        variant: str = "",
        product_error: float = 0.0,
    ) -> None:
        import cupy

        self.name, self.variant, self._problem = name, variant, problem
        # A graph knows addresses only: what lies there must live as long.
        self._operands: object = launch, c
        with translated(problem.device.name), cupy.cuda.Device(problem.device.number):
            # Matrices may still be on their way, on streams that this one does not wait for.
            cupy.cuda.Device(problem.device.number).synchronize()
            with problem.stream:
                launch()
            # Of the whole GPU: torch has streams of its own.
            cupy.cuda.Device(problem.device.number).synchronize()
            self.accuracy = problem.accuracy(c, product_error)
            probe = capture(launch, PROBE)
            probe()
            self.estimate = self._timed(probe) / PROBE
            self._count = launches(self.estimate)
        self._capture: Callable[[], Launch] | None = lambda: capture(launch, self._count)
        self._replay: Launch | None = None

    def block(self) -> float:
        replay = self._captured()
        replay()
        return self._timed(replay) / self._count

    def _captured(self) -> Launch:
        """The graph that is timed, made when it is first needed: who only wants the estimate need not wait for it."""
        import cupy

        if self._replay is None:
            assert self._capture is not None
            with translated(self._problem.device.name), cupy.cuda.Device(self._problem.device.number):
                self._replay = self._capture()
                # A graph is uploaded by its first replay.
                self._replay()
                self._problem.stream.synchronize()
        return self._replay

    def close(self) -> None:
        self._replay = self._capture = self._operands = None

    def _timed(self, replay: Launch) -> float:
        import cupy

        with cupy.cuda.Device(self._problem.device.number):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(self._problem.stream)
            replay()
            end.record(self._problem.stream)
            end.synchronize()
            return float(cupy.cuda.get_elapsed_time(begin, end)) * 1e-3


def ours(problem: GpuProblem, spec: GemmSpec, schedule: Schedule, exact: bool = False, strict: bool = False) -> Graphed:
    """A kernel of gemmgen, as `compile` makes it and chooses it for these matrices.

    Raises: ScheduleError, SpecError, DeviceError where it doesn't fit the GPU or the size.
    """
    from gemmgen.api.compile import cuda_kernel

    name = kernel_name(schedule, spec)
    check_measurable(spec, name)
    spec = replace(spec, batched=problem.size.batch > 0)
    kernel = cuda_kernel(spec, schedule, problem.device, exact, strict)
    a, b = stored(problem.a, spec.a_order), stored(problem.b, spec.b_order)
    c = problem.poisoned(spec.c_order)

    def launch() -> None:
        # Said, since tensors of torch would be multiplied on torch's own current stream.
        kernel(a, b, c, stream=problem.stream)

    error = product_error(schedule.atom, spec.dtype) + _cut(schedule.atom, problem)
    assumed = kernel.source_for(a, b, c).spec
    return Graphed(name, problem, launch, c, _cupy_capture(problem), variant(assumed), error)


def _cut(atom: str, problem: GpuProblem) -> float:
    """How far an element may be off by what instructions cut of their sums, as a part of |A| |B|: each time of the sum
    and of all products that are added to it. Much larger than what is found; `oracle.lost` bounds it closer.
    """
    cut = cut_sums(atom, MATRIX_DTYPES[problem.dtype])
    return 0.0 if cut is None else problem.size.k * (1 + 1 / cut[1]) * 2.0 ** (1 - cut[0])


def _cupy_capture(problem: GpuProblem) -> Capture:
    def capture(launch: Launch, count: int) -> Launch:
        stream = problem.stream
        with stream:
            stream.begin_capture()
            try:
                for _ in range(count):
                    launch()
            except BaseException:
                with suppress(Exception):  # what went wrong first is what matters
                    stream.end_capture()
                raise
            graph = stream.end_capture()

        def replay() -> None:
            graph.launch(stream)

        return replay

    return capture


def cublas(problem: GpuProblem, tf32: bool = False) -> Graphed:
    """cuBLAS: by torch, else by CuPy. Raises: DeviceError where TF32 is asked for without torch."""
    if find_spec("torch"):
        return _cublas_of_torch(problem, tf32)
    if tf32:
        raise DeviceError(
            "cublas_tf32 is called by torch, which is missing: pip install torch, or leave it out of --vs"
        )
    return _cublas_of_cupy(problem)


def _cublas_of_torch(problem: GpuProblem, tf32: bool) -> Graphed:
    import torch

    whole, small = problem.dtype == I8.name, problem.dtype in map(str, FLOAT8)
    c = problem.poisoned(dtype=problem.result if whole or small else problem.dtype)
    given = problem.a, stored(problem.b, "col") if small else problem.b, c  # 8-bit floats lie along K
    a, b, out = (x if isinstance(x, torch.Tensor) else torch.from_dlpack(x) for x in given)
    one = torch.ones((), device=a.device)
    theirs = torch.cuda.ExternalStream(problem.stream.ptr, device=a.device)

    def launch() -> None:
        # What a graph holds is chosen when it is captured.
        torch.backends.cuda.matmul.allow_tf32 = tf32
        if small:
            torch._scaled_mm(a, b, one, one, out_dtype=out.dtype, use_fast_accum=True, out=out)
        else:
            (torch._int_mm if whole else torch.matmul)(a, b, out=out)

    def capture(launch: Launch, count: int) -> Launch:
        torch.cuda.synchronize(a.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                launch()

        def replay() -> None:
            with torch.cuda.stream(theirs):
                graph.replay()

        return replay

    # Hopper's instructions take the bits that TF32 has: each operand is off by up to 2^-10.
    error = (1 + 2.0**-10) ** 2 - 1 if tf32 else _cut("wgmma_f8", problem)
    return Graphed("cublas_tf32" if tf32 else "cublas", problem, launch, c, capture, product_error=error)


def _cublas_of_cupy(problem: GpuProblem) -> Graphed:
    import cupy

    if problem.dtype == I8.name:
        raise DeviceError("cublas gets int8 by torch, which is missing: pip install torch, or leave it out of --vs")
    c = problem.poisoned(dtype=problem.dtype)

    def launch() -> None:
        cupy.matmul(problem.a, problem.b, out=c)

    return Graphed("cublas", problem, launch, c, _cupy_capture(problem))


def about(device: object = None) -> dict[str, object]:
    """What the measurements depend on: GPU, driver, libraries."""
    info = pick(device)
    import cupy

    found: dict[str, object] = {
        "device": str(info),
        "multiprocessors": info.multiprocessors,
        "roof_tflops": roof(info),
        "driver_cuda": int(cupy.cuda.runtime.driverGetVersion()),
        "runtime_cuda": int(cupy.cuda.runtime.runtimeGetVersion()),
        "nvrtc": ".".join(map(str, cupy.cuda.nvrtc.getVersion())),
        "cupy": str(cupy.__version__),
    }
    if find_spec("torch"):
        import torch

        found |= {"torch": str(torch.__version__), "torch_cuda": str(torch.version.cuda)}
    return found


def roof(info: CudaDeviceInfo) -> float | None:
    """TFLOP/s of float32 at the highest clock: each lane of each multiprocessor an FMA per cycle. None if unknown."""
    lanes = FP32_LANES.get(info.capability)
    return lanes * 2 * info.multiprocessors * info.clock * 1e-6 if lanes and info.clock else None
