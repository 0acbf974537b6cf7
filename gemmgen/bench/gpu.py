"""Contenders on a GPU of CUDA: products captured in graphs, which are replayed between events."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from types import EllipsisType

from gemmgen.bench import elements
from gemmgen.bench.measure import launches
from gemmgen.bench.records import Accuracy, Size, variant
from gemmgen.errors import DeviceError, SpecError
from gemmgen.ir.dtypes import ALL_DTYPES, FLOAT8, I8, MATRIX_DTYPES, accumulator
from gemmgen.ir.warp_matrix import cut_sums, product_error
from gemmgen.methods import slug
from gemmgen.oracle import gamma
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

    def __init__(self, size: Size, dtype: str, seed: int, device: CudaDeviceInfo, result: str | None = None) -> None:
        require_cupy()
        elements.require(dtype)
        import cupy

        self.size, self.dtype, self.device = size, dtype, device
        self.result = result or dtype
        with translated(device.name), cupy.cuda.Device(device.number):
            rng = cupy.random.default_rng(seed)
            self.a = elements.random(rng, size.shape(size.m, size.k), dtype)
            self.b = elements.random(rng, size.shape(size.k, size.n), dtype)
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self._reference()
            cupy.cuda.Device(device.number).synchronize()

    def _reference(self) -> None:
        """Reference and |A| |B|, by rows: float64 needs twice the memory, and the absolute values as much again."""
        import cupy

        size, a = self.size, cupy.asarray(elements.plain(self.a))
        self.reference = cupy.empty(size.shape(size.m, size.n), "float64")
        self.absolute = cupy.empty(size.shape(size.m, size.n), "float32")
        b = cupy.asarray(elements.plain(self.b)).astype("float64")
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

        result = cupy.asarray(elements.plain(c))
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

    def operand(self, matrix: object, order: str) -> object:
        """The matrix stored by rows or by columns."""
        return elements.stored(matrix, order)

    def poisoned(self, order: str = "row", dtype: str | None = None) -> object:
        """Memory for C, full of what no product is: NaN, or the least integer."""
        shape = self.size.shape(self.size.m, self.size.n)
        return self.operand(elements.poison(shape, dtype or self.result), order)


class Graphed:
    """A product that is captured in a graph.

    Args:
        launch: queues one product on the current stream.
        capture: makes a graph of some launches; what it returns replays that on the problem's stream.
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

    def cold(self) -> float:
        return self._timed(self._captured()) / self._count

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


Capture = Callable[[Launch, int], Launch]


def ours(problem: GpuProblem, spec: GemmSpec, schedule: Schedule, exact: bool = False, strict: bool = False) -> Graphed:
    """A kernel of gemmgen, as `compile` makes it and chooses it for these matrices.

    Raises: ScheduleError, SpecError, DeviceError where it doesn't fit the GPU or the size.
    """
    from gemmgen.api.compile import cuda_kernel

    if spec.beta not in (None, 0.0) or spec.alpha not in (None, 1.0):
        raise SpecError(f"{slug(schedule)} has alpha or beta folded in, but A * B is measured: leave them run-time")
    if spec.operands or spec.names_c or spec.a_dtype or spec.b_dtype or spec.prologue_a or spec.prologue_b:
        raise SpecError(f"{slug(schedule)} takes other arrays, but A * B of one type is measured: leave them out")
    spec = replace(spec, batched=problem.size.batch > 0)
    kernel = cuda_kernel(spec, schedule, problem.device, exact, strict)
    a, b = problem.operand(problem.a, spec.a_order), problem.operand(problem.b, spec.b_order)
    c = problem.poisoned(spec.c_order)

    def launch() -> None:
        # Said, since tensors of torch would be multiplied on torch's own current stream.
        kernel(a, b, c, stream=problem.stream)

    error = product_error(schedule.atom, spec.dtype) + _cut(schedule.atom, problem)
    promised = kernel.source_for(a, b, c).spec
    return Graphed(slug(schedule), problem, launch, c, _cupy_capture(problem), variant(promised), error)


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
    given = problem.a, problem.operand(problem.b, "col") if small else problem.b, c  # 8-bit floats lie along K
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
    import cupy

    lanes = FP32_LANES.get(info.capability)
    try:
        kilohertz = int(cupy.cuda.runtime.deviceGetAttribute(CLOCK_RATE, info.number))
    except cupy.cuda.runtime.CUDARuntimeError:
        return None
    return lanes * 2 * info.multiprocessors * kilohertz * 1e-9 if lanes and kilohertz > 0 else None
