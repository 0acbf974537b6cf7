"""Contenders on a GPU of CUDA: products captured in graphs, which are replayed between events."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from types import EllipsisType

from gemmgen.bench.measure import launches
from gemmgen.bench.records import Accuracy, Size, variant
from gemmgen.errors import SpecError
from gemmgen.runtime import require_cupy
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, pick, translated
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Launches in the graph by which the time of one is estimated.
PROBE = 3
#: Rows of the float64 reference that are computed at a time.
REFERENCE_ROWS = 4096
#: float32 lanes of a multiprocessor (CUDA C++ Programming Guide, arithmetic throughput).
FP32_LANES = {(7, 5): 64, (8, 0): 64, **dict.fromkeys(((8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (12, 0)), 128)}
#: cudaDevAttrClockRate, in kHz.
CLOCK_RATE = 13

Launch = Callable[[], None]


class GpuProblem:
    """A and B of one size on a GPU, normal numbers, with what float64 makes of them."""

    def __init__(self, size: Size, dtype: str, seed: int, device: CudaDeviceInfo) -> None:
        require_cupy()
        import cupy

        self.size, self.dtype, self.device = size, dtype, device
        with translated(device.name), cupy.cuda.Device(device.number):
            rng = cupy.random.default_rng(seed)
            self.a = rng.standard_normal(size.shape(size.m, size.k), dtype=dtype)
            self.b = rng.standard_normal(size.shape(size.k, size.n), dtype=dtype)
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self._reference()
            cupy.cuda.Device(device.number).synchronize()

    def _reference(self) -> None:
        """Reference and bound, by rows: float64 needs twice the memory, and the absolute values as much again."""
        import cupy

        size = self.size
        unit = (size.k + 2) * float(cupy.finfo(self.dtype).eps) / 2
        self.reference = cupy.empty(size.shape(size.m, size.n), "float64")
        self.bound = cupy.empty(size.shape(size.m, size.n), "float32")
        b = self.b.astype("float64")
        for part in self._parts():
            self.reference[part] = cupy.matmul(self.a[part].astype("float64"), b)
        cupy.absolute(b, out=b)
        for part in self._parts():
            self.bound[part] = cupy.matmul(cupy.absolute(self.a[part]).astype("float64"), b) * (unit / (1 - unit))

    def _parts(self) -> list[tuple[EllipsisType, slice, slice]]:
        """Some rows of each matrix, and then those after them."""
        starts = range(0, self.size.m, REFERENCE_ROWS)
        return [(..., slice(row, row + REFERENCE_ROWS), slice(None)) for row in starts]

    def accuracy(self, c: object) -> Accuracy:
        """Of a result on the GPU."""
        import cupy

        result = cupy.asarray(c)
        square = total = worst = 0.0
        for part in self._parts():
            off = cupy.absolute(result[part] - self.reference[part])
            off[~cupy.isfinite(off)] = cupy.inf
            worst = max(worst, float((off / self.bound[part]).max()))
            square += float(cupy.square(off).sum())
            total += float(cupy.square(self.reference[part]).sum())
        return Accuracy((square / total) ** 0.5, worst)

    def operand(self, matrix: object, order: str) -> object:
        """The matrix stored by rows or by columns."""
        import cupy

        array = cupy.asarray(matrix)
        return array if order == "row" else cupy.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)

    def poisoned(self, order: str = "row") -> object:
        """Memory for C, full of NaN."""
        import cupy

        shape = self.size.shape(self.size.m, self.size.n)
        return self.operand(cupy.full(shape, cupy.nan, self.dtype), order)


class Graphed:
    """A product that is captured in a graph.

    Args:
        launch: queues one product on the current stream.
        capture: makes a graph of some launches; what it returns replays that on the problem's stream.
    """

    def __init__(
        self, name: str, problem: GpuProblem, launch: Launch, c: object, capture: Capture, variant: str = ""
    ) -> None:
        import cupy

        self.name, self.variant, self._problem = name, variant, problem
        # A graph knows addresses only: what lies there must live as long.
        self._operands: object = launch, c
        with translated(problem.device.name), cupy.cuda.Device(problem.device.number):
            with problem.stream:
                launch()
            # Of the whole GPU: torch has streams of its own.
            cupy.cuda.Device(problem.device.number).synchronize()
            self.accuracy = problem.accuracy(c)
            probe = capture(launch, PROBE)
            probe()
            self.estimate = self._timed(probe) / PROBE
            self._count = launches(self.estimate)
            self._replay: Launch | None = capture(launch, self._count)
            # A graph is uploaded by its first replay.
            self._replay()
            problem.stream.synchronize()

    def block(self) -> float:
        assert self._replay is not None
        self._replay()
        return self._timed(self._replay) / self._count

    def cold(self) -> float:
        assert self._replay is not None
        return self._timed(self._replay) / self._count

    def close(self) -> None:
        self._replay = self._operands = None

    def _timed(self, replay: Launch) -> float:
        import cupy

        with cupy.cuda.Device(self._problem.device.number):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(self._problem.stream)
            replay()
            end.record(self._problem.stream)
            end.synchronize()
            return float(cupy.cuda.get_elapsed_time(begin, end)) * 1e-3


Capture = Callable[[Launch, int], Launch]


def ours(problem: GpuProblem, spec: GemmSpec, schedule: Schedule, exact: bool = False, strict: bool = False) -> Graphed:
    """A kernel of gemmgen, as `compile` makes it and chooses it for these matrices.

    Raises: ScheduleError, SpecError, DeviceError where it doesn't fit the GPU or the size.
    """
    from gemmgen.runtime.api import cuda_kernel

    if spec.beta not in (None, 0.0) or spec.alpha not in (None, 1.0):
        raise SpecError(f"{schedule.slug()} has alpha or beta folded in, but A * B is measured: leave them run-time")
    if spec.operands or spec.names_c or spec.a_dtype or spec.b_dtype:
        raise SpecError(f"{schedule.slug()} takes other arrays, but A * B of one type is measured: leave them out")
    spec = replace(spec, batched=problem.size.batch > 0)
    kernel = cuda_kernel(spec, schedule, problem.device, exact, strict)
    a, b = problem.operand(problem.a, spec.a_order), problem.operand(problem.b, spec.b_order)
    c = problem.poisoned(spec.c_order)

    def launch() -> None:
        kernel(a, b, c)

    promised = kernel.source_for(a, b, c).spec
    return Graphed(schedule.slug(), problem, launch, c, _cupy_capture(problem), variant(promised))


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


def cublas(problem: GpuProblem) -> Graphed:
    """cuBLAS in float32: by torch, else by CuPy."""
    return _cublas_of_torch(problem) if find_spec("torch") else _cublas_of_cupy(problem)


def _cublas_of_torch(problem: GpuProblem) -> Graphed:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    c = problem.poisoned()
    a, b, out = (torch.from_dlpack(x) for x in (problem.a, problem.b, c))
    theirs = torch.cuda.ExternalStream(problem.stream.ptr, device=a.device)

    def launch() -> None:
        torch.matmul(a, b, out=out)

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

    return Graphed("cublas", problem, launch, c, capture)


def _cublas_of_cupy(problem: GpuProblem) -> Graphed:
    import cupy

    c = problem.poisoned()

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
    import cupy

    lanes = FP32_LANES.get(info.capability)
    try:
        kilohertz = int(cupy.cuda.runtime.deviceGetAttribute(CLOCK_RATE, info.number))
    except cupy.cuda.runtime.CUDARuntimeError:
        return None
    return lanes * 2 * info.multiprocessors * kilohertz * 1e-9 if lanes and kilohertz > 0 else None
