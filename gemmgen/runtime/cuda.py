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
from gemmgen.runtime.call import CallableKernel, Place
from gemmgen.runtime.calls import Factors, Outcome, keep
from gemmgen.runtime.cuda_arrays import (
    ALIGNMENT,
    Installed,
    as_matrix,
    memory_of,
    placement_problems,
    stream_pointer,
)
from gemmgen.runtime.cuda_build import CudaBuilt, Resources, build, grid_problems
from gemmgen.runtime.cuda_calls import Plan, Step, prepared
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, CudaDeviceLike, info_of, pick
from gemmgen.runtime.cuda_driver import Event, Graph, Stream, on_device
from gemmgen.runtime.cuda_launch import ROOM_ALIGNMENT, CudaLaunches
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
        #: Workspaces of captured calls, by the graph and their size, with their owners.
        self._captured: dict[tuple[int | None, int], tuple[int, object]] = {}

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

    def plan(
        self,
        a: object,
        b: object,
        c: object,
        factors: Factors,
        operands: Mapping[str, object],
        later: Callable[[Hashable, Callable[[], object]], object] | None = None,
    ) -> Plan:
        """What calls with such arrays launch, after all checks.

        Args:
            later: does a job of a key later. With it, a variant that is not compiled yet is left to a job, and the plan
                is a provisional one with the general kernel.

        Raises: as a call.
        """
        reaching, request = self._reaching(a, b, c, *factors, operands)
        kernel = cast(CudaKernel, reaching)
        if later is not None and kernel._variants is not None:
            device, spec = _device(request), kernel._variants.spec_for(request)
            if (device, spec) not in kernel._built:
                twin = partial(kernel._variants.twin, spec)
                later((kernel, device, spec), lambda: kernel._kernels(device, twin()))
                plan = kernel._planned(request, factors, tuple(operands), kernel.source)
                return replace(plan, provisional=True)
        return kernel._planned(request, factors, tuple(operands))

    def queue(
        self, plan: Plan, matrices: Sequence[DeviceMatrix], place: Place[Never, Never, object] | None = None
    ) -> Event | None:
        """Queue what is planned.

        Args:
            matrices: A, B, C and the others, in the plan's order, then the lists of addresses if there are any.
            place: the stream; None for the current one.

        Returns: the event of its completion, if one is wanted. Raises: DeviceError, SpecError.
        """
        place = place or Place()
        stream, maker = stream_pointer(place.stream, matrices, plan.device), matrices[0].maker
        memory = memory_of(maker)
        with on_device(plan.device), memory.on_stream(stream, plan.device):
            addresses, owner = [matrix.pointer for matrix in matrices], None
            if plan.rooms[-1]:
                # A graph uses the memory again. Only torch's own capture tells its allocator.
                is_told = maker == "torch" and place.stream is None
                graph = None if is_told else cuda_driver.capture_of(stream)
                room, owner = self._captured.get((graph, plan.rooms[-1]), (0, None))
                if owner is None:
                    room, owner = memory.room(plan.rooms[-1], plan.device)
                if graph is not None:
                    self._captured[graph, plan.rooms[-1]] = room, owner
                addresses += [room + begin for begin in plan.rooms[:-1]]
            for step in plan.steps:
                step.launches.launch(stream, addresses)
            del owner  # the allocator may use it again behind these kernels
            if not place.want_event:
                return None
            event = Event()
            event.record(stream)
            return event

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
        device, memory = _device(request), memory_of(_matrices(request)[0].maker)
        with on_device(device):
            if request.output[1] is None:
                name, _, view = request.output
                request = replace(request, output=(name, memory.result(view, device), view))
            plan = self._planned(request, factors, operands)
            room, owner = memory.room(plan.rooms[-1], device) if plan.rooms[-1] else (0, None)
            addresses = [x.pointer for x in _ordered(request, operands)]
            addresses += [room + begin for begin in plan.rooms[:-1]]
            cuda_driver.synchronize()  # the arrays may still be on their way
            stream, seconds = Stream(), []
            (step,) = plan.steps
            graph = Graph(stream.ptr, partial(step.launches.launch, stream.ptr, addresses))
            begin, end = Event(timing=True), Event(timing=True)
            for _ in range(iterations):
                begin.record(stream.ptr)
                graph.replay()
                end.record(stream.ptr)
                end.synchronize()
                seconds.append(end.seconds_since(begin))
            del owner
        return seconds

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

    def _planned(
        self, request: Request, factors: Factors, operands: Sequence[str] = (), source: Source | None = None
    ) -> Plan:
        """What calls like this one launch.

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
        launches = CudaLaunches(built, device, grids, names, values, factors)
        views = request.views
        reach = tuple(views[x].span * views[x].item if x in views else 0 for x in ("a", "b", "c", *operands))
        return Plan(
            steps=(Step(launches, (0, 0, 0)),),
            device=device,
            outcome=Outcome(stored_shape(view), str(view.dtype), view.order != "row", reach),
            rooms=tuple(rooms),
            grads=any(getattr(x.array, "requires_grad", False) for x in _matrices(request)),
            is_complex=self.source.spec.dtype.real is not None,
        )

    # --- running ----------------------------------------------------------------------------------

    def _perform(
        self,
        arrays: Mapping[str, object],
        factors: Factors,
        place: Place[Never, Never, object],
    ) -> tuple[object, Event | None]:
        a, b, c = (arrays[name] for name in "abc")
        operands = {name: x for name, x in arrays.items() if name not in ("a", "b", "c")}
        reaching, request = self._reaching(a, b, c, *factors, operands)
        kernel = cast(CudaKernel, reaching)
        plan = kernel._planned(request, factors, tuple(operands))
        done = kernel._queued(request, plan, place, tuple(operands))
        if not self.source.spec.listed and all(view.span for view in request.views.values()):
            call = prepared(plan, [x for x in arrays.values() if x is not None])
            if call is not None:
                keep(self._calls, None, (a, b, c), factors, operands, call)
        return done

    def _run(self, request: Request, place: Place[Never, Never, object]) -> tuple[object, Event | None]:
        return self._queued(request, self._planned(request, (None, None)), place)

    def _queued(
        self, request: Request, plan: Plan, place: Place[Never, Never, object], operands: Sequence[str] = ()
    ) -> tuple[object, Event | None]:
        """Queue what is planned, with a new result if none is given."""
        name, output, view = request.output
        first = _matrices(request)[0]
        memory, device = memory_of(first.maker), plan.device
        stream = stream_pointer(place.stream, _matrices(request), device)
        with on_device(device), memory.on_stream(stream, device):
            made = memory.result(view, device) if output is None else cast(DeviceMatrix, output)
            request = replace(request, output=(name, made, view))
            lists = [memory.numbers(_places(request, x), device) for x in "abc" if self.source.spec.listed]
        addressed = [replace(first, pointer=pointer) for pointer, _ in lists]
        event = self.queue(plan, [*_ordered(request, operands), *addressed], replace(place, stream=stream))
        return (made.array if request.given is None else request.given), event


def _matrices(request: Request) -> list[DeviceMatrix]:
    """All arrays of a call, A first."""
    output = request.output[1]
    found = [*(matrix for matrix, _ in request.inputs.values()), *([] if output is None else [output])]
    return [cast(DeviceMatrix, x) for x in (*found, *(m for each in request.lists.values() for m in each))]


def _device(request: Request) -> int:
    """The GPU that the arrays of a call lie on."""
    return cast(DeviceMatrix, next(iter(request.inputs.values()))[0]).device


def _ordered(request: Request, operands: Sequence[str]) -> list[DeviceMatrix]:
    """The arrays in the order in which a plan names them."""
    found = {**{name: matrix for name, (matrix, _) in request.inputs.items()}, request.output[0]: request.output[1]}
    return [cast(DeviceMatrix, found[name]) for name in _names(request, operands)]


def _names(request: Request, operands: Sequence[str]) -> list[str]:
    """The arrays by name, in the order of a plan. The transpose kernel calls its result b."""
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
