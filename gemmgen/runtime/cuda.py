"""`CudaKernel`: a CUDA source that can be called with arrays in a GPU's memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Never, cast

from gemmgen.errors import SpecError
from gemmgen.ir.sizes import GROUPS
from gemmgen.runtime import cuda_driver
from gemmgen.runtime.arrays import Request, letter
from gemmgen.runtime.call import CallableKernel
from gemmgen.runtime.calls import Factors, Outcome
from gemmgen.runtime.cuda_arrays import ALIGNMENT, Installed, as_matrix, placement_problems
from gemmgen.runtime.cuda_build import CudaBuilt, Resources, build, grid_problems
from gemmgen.runtime.cuda_calls import Captured, CudaCall, CudaPlace, Step
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, CudaDeviceLike, info_of, pick
from gemmgen.runtime.cuda_driver import Event, Graph, Stream, on_device
from gemmgen.runtime.cuda_launch import ROOM_ALIGNMENT, CudaLaunches
from gemmgen.runtime.cuda_memory import memory_of, stream_pointer
from gemmgen.runtime.lists import each_matrix
from gemmgen.runtime.variants import Variants
from gemmgen.runtime.views import DeviceMatrix, View, stored_shape
from gemmgen.source import Source
from gemmgen.spec import GemmSpec


class CudaKernel(CallableKernel[Event, Never, Never, object]):
    """A kernel that can be called with arrays on one GPU. Safe to call from several threads.

    It takes torch tensors, CuPy arrays, and objects with `__cuda_array_interface__` or DLPack. A result that it
    allocates is of a's library (CuPy's, or else torch's, if a is neither CuPy's nor torch's). It is built once for each
    GPU, at the first call there. Memory between its kernels comes from the library's allocator, at each call.

    Args:
        source: the general source, for any arrays that its spec takes.
        variants: chooses for each call between the general source and one with assumptions; None for the general one.
    """

    places = frozenset({"stream", "return_event"})

    def __init__(self, source: Source, device: CudaDeviceLike = None, variants: Variants | None = None) -> None:
        super().__init__(source, device)
        self._variants = variants
        self._asks_device = source.asks_device
        self._bound = device is not None
        self._wish = device
        self._info: CudaDeviceInfo | None = None
        self._built: dict[tuple[int, GemmSpec], CudaBuilt] = {}
        self._lock = threading.Lock()
        self._captured: Captured = {}

    @classmethod
    def from_source(cls, source: Source, device: CudaDeviceLike = None, variants: Variants | None = None) -> CudaKernel:
        """Choose the GPU and build the source at once.

        Args:
            device: a number or part of a name (`gemmgen devices`), a `cupy.cuda.Device` or `torch.device`, to which
                the kernel is bound; None for the current GPU now, and for the arrays' GPU in each call.

        Raises: DeviceError, ScheduleError with every problem.
        """
        kernel = cls(source, device, variants)
        kernel._kernels(kernel.device.number, source)
        return kernel

    @property
    def device(self) -> CudaDeviceInfo:
        """The GPU for which it was compiled first."""
        if self._info is None:
            self._info = pick(self._wish)
        return self._info

    @property
    def resources(self) -> tuple[Resources, ...]:
        """Registers, spills and shared memory of each kernel of the source, as the compiler reports them."""
        with on_device(self.device.number):
            return self._kernels(self.device.number, self.source).resources()

    def build(self) -> None:
        """Compile everything now, so that later calls need not compile.

        Raises: DeviceError, ScheduleError.
        """
        self._kernels(self.device.number, self.source)
        if self._variants is not None:
            for spec in self._variants.promised:
                self._kernels(self.device.number, self._variants.twin(spec))

    def source_for(self, a: object, b: object, c: object = None, **operands: object) -> Source:
        """The source that a call with these arrays runs. Raises: SpecError, ScheduleError."""
        self._expect("gemm")
        return self._choose(self._request(a, b, c, None, None, operands))

    def call_for(
        self,
        a: object,
        b: object,
        c: object,
        factors: Factors,
        operands: Mapping[str, object],
        later: Callable[[Hashable, Callable[[], object]], object] | None = None,
    ) -> CudaCall:
        """The call of such arrays, after all checks.

        Args:
            later: does a job of a key later. With it, a variant that is not compiled yet is left to a job, and the call
                is a provisional one of the general kernel.

        Raises: as a call.
        """
        reaching, request = self._reaching(a, b, c, *factors, operands)
        kernel = cast(CudaKernel, reaching)
        if later is not None and kernel._variants is not None:
            device, spec = _device(request), kernel._variants.spec_for(request)
            if (device, spec) not in kernel._built:
                twin = partial(kernel._variants.twin, spec)
                later((kernel, device, spec), lambda: kernel._kernels(device, twin()))
                call = kernel._call(request, factors, tuple(operands), kernel.source)
                call.provisional = True
                return call
        return kernel._call(request, factors, tuple(operands))

    def _timed(
        self,
        request: Request,
        factors: Factors,
        operands: Sequence[str],
        queue: None,  # noqa: ARG002
        iterations: int,
    ) -> list[float]:
        if self.source.spec.listed:
            raise SpecError(
                "each call copies the addresses of listed matrices to the GPU, which no graph holds: "
                "time a batch with a constant stride"
            )
        call = self._call(request, factors, operands)
        memory, current = call.memory, call.memory.stream_of(call.device)()
        with call.on(current), memory.checked(call.device):
            matrices = _ordered(_with_result(request, call), operands)
            room = memory.room(max(1, call.rooms[-1]), call.device, current)
            try:
                cuda_driver.synchronize()  # the arrays may still be on their way
                stream, addresses = Stream(), [*(x.pointer for x in matrices), *(room + x for x in call.rooms[:-1])]
                graph = Graph(stream.ptr, partial(call.steps[0].launches.launch, stream.ptr, addresses))
                return [_seconds(graph, stream.ptr) for _ in range(iterations)]
            finally:
                memory.release(room)

    # --- checks -----------------------------------------------------------------------------------

    def _seen(self, arrays: Mapping[str, object], output: str, problems: list[str], /) -> Mapping[str, object]:
        seen = {name: as_matrix(name, array, Installed(), problems) for name, array in arrays.items()}
        bound = self.device.number if self._bound else None
        problems += placement_problems(seen, self.source.alignment, bound, output)
        return seen

    def _sizes_of_device(self, request: Request, /) -> Mapping[str, int]:
        return {GROUPS.name: info_of(_device(request)).multiprocessors} if self._asks_device else {}

    # --- preparing --------------------------------------------------------------------------------

    def _choose(self, request: Request) -> Source:
        return self.source if self._variants is None else self._variants.choose(request)

    def _kernels(self, device: int, source: Source) -> CudaBuilt:
        # The sources of one kernel differ only in their assumptions.
        key = device, source.spec
        if (known := self._built.get(key)) is not None:
            return known
        with self._lock:
            if key not in self._built:
                info = self._info if self._info is not None and self._info.number == device else info_of(device)
                self._built[key] = build(source, info)
            return self._built[key]

    def _call(
        self, request: Request, factors: Factors, operands: Sequence[str] = (), source: Source | None = None
    ) -> CudaCall:
        """The call of checked arrays.

        Args:
            operands: the names of an epilogue's or a prologue's arrays, in the caller's order.
            source: None for the variant of such calls.

        Raises: SpecError for more blocks than CUDA can launch; DeviceError.
        """
        device, view = _device(request), request.output[2]
        built, sizes = self._kernels(device, source or self._choose(request)), sizes_of(request)
        grids = self.source.launches(sizes)
        problems = [p for number, groups in grids for p in grid_problems(built.entries[number], groups)]
        if problems:
            raise SpecError(problems)
        rooms = [0]
        names = _names(request, operands)
        names += [f"{name}_list" for name in "abc" if self.source.spec.listed]
        for workspace, elements in self._workspace_sizes.elements(request.sizes):
            names.append(workspace.name)
            size = max(1, elements) * workspace.dtype.size
            rooms.append(rooms[-1] + -(-size // ROOM_ALIGNMENT) * ROOM_ALIGNMENT)
        values: dict[str, complex] = {**sizes, **request.scalars}
        launches, views = CudaLaunches(built, device, grids, names, values, factors), request.views
        reach = tuple(views[x].span * views[x].item if x in views else 0 for x in ("a", "b", "c", *operands))
        return CudaCall(
            memory_of(_matrices(request)[0].maker),
            device,
            Step(launches, (0, 0, 0)),
            Outcome(stored_shape(view), view.dtype, view.order != "row", reach),
            tuple(rooms),
            self._captured,
            is_complex=self.source.spec.dtype.real is not None,
        )

    # --- running ----------------------------------------------------------------------------------

    def _prepared(self, request: Request, names: Sequence[str], factors: Factors, _queue: None, /) -> CudaCall | None:
        arrays = [x.array for x in _matrices(request)]
        return self._call(request, factors, names[3:]).for_arrays(arrays)

    def _run(self, request: Request, place: CudaPlace) -> tuple[object, Event | None]:
        operands = [name for name in request.inputs if name not in ("a", "b")]
        call, matrices = self._call(request, (None, None), operands), _matrices(request)
        stream = stream_pointer(place.stream, {x.maker for x in matrices}, call.device)
        with call.on(stream):
            request = _with_result(request, call)
            made, listed = cast(DeviceMatrix, request.output[1]), "abc" if self.source.spec.listed else ""
            lists = [call.memory.integers(_places(request, x), call.device) for x in listed]
            event = call.queue(_ordered(request, operands), place, [at for _, at in lists])
        return (made.array if request.given is None else request.given), event


def _with_result(request: Request, call: CudaCall) -> Request:
    """The request with an array for the result: a new one if none was given."""
    name, output, view = request.output
    made = call.memory.result(view, call.device) if output is None else output
    return replace(request, output=(name, made, view))


def _seconds(graph: Graph, stream: int) -> float:
    """The device time of a replay."""
    begin, end = Event(timing=True), Event(timing=True)
    begin.record(stream)
    graph.replay()
    end.record(stream)
    end.synchronize()
    return end.seconds_since(begin)


def _matrices(request: Request) -> list[DeviceMatrix]:
    """All arrays of a call, A first."""
    output = request.output[1]
    found = [*(matrix for matrix, _ in request.inputs.values()), *([] if output is None else [output])]
    return [cast(DeviceMatrix, x) for x in (*found, *(m for each in request.lists.values() for m in each))]


def _device(request: Request) -> int:
    """The GPU that the arrays of a call lie on."""
    return cast(DeviceMatrix, next(iter(request.inputs.values()))[0]).device


def _ordered(request: Request, operands: Sequence[str]) -> list[DeviceMatrix]:
    """The arrays in the order in which a call names them."""
    found = {**{name: matrix for name, (matrix, _) in request.inputs.items()}, request.output[0]: request.output[1]}
    return [cast(DeviceMatrix, found[name]) for name in _names(request, operands)]


def _names(request: Request, operands: Sequence[str]) -> list[str]:
    """The arrays by name, in the order of a call. The transpose kernel calls its result b."""
    return ["a", "b"] if request.output[0] == "b" else ["a", "b", "c", *operands]


def _places(request: Request, name: str) -> Sequence[int]:
    """The addresses of the matrices of a batch."""
    array = request.output[1] if name == "c" else request.inputs[name][0]
    base = cast(DeviceMatrix, array).pointer
    return [base + x if isinstance(x, int) else cast(DeviceMatrix, x).pointer for x in each_matrix(request, name)]


def sizes_of(request: Request) -> dict[str, int]:
    """Every integer argument."""
    views = request.views
    pitches = {f"ld{letter(x)}": _leading_dimension(view) for x, view in views.items()}
    steps = {f"stride_{letter(x)}": view.stride for x, view in views.items() if view.count is not None}
    return {**request.sizes, **pitches, **steps}


def _leading_dimension(view: View) -> int:
    """That of a single line is free, but lines past the matrix, of which nothing is read, get addresses by it too: a
    copy of 16 bytes must not be given one that is no multiple of 16, even if it copies nothing.
    """
    unit = max(1, ALIGNMENT // view.item)
    return view.ld if view.slow > 1 and view.span else -(-view.ld // unit) * unit
