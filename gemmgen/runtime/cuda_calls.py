"""The calls of kernels on a GPU: for arrays of torch or CuPy they are kept and replayed, for others made each time.

`_compute` is on the critical path, as are the functions of `cuda_memory` that it calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Never, Self, TypeAlias, cast

from gemmgen.records import dataclass
from gemmgen.runtime import cuda_driver
from gemmgen.runtime.arrays import Request
from gemmgen.runtime.call import Place
from gemmgen.runtime.calls import Factors, Held, Outcome, PreparedCall
from gemmgen.runtime.cuda_driver import Event, Graph, Stream
from gemmgen.runtime.cuda_launch import CudaLaunches
from gemmgen.runtime.cuda_memory import Memory, stream_pointer
from gemmgen.runtime.lists import each_matrix
from gemmgen.runtime.views import DeviceMatrix

#: Where a call goes: any stream, or the address of one (None for the current one); and whether an event is wanted.
CudaPlace: TypeAlias = Place[Never, Never, object]
_Resolved: TypeAlias = Place[Never, Never, int]
#: Arrays that only their addresses are needed of.
_NOTHING: Held = (None, None, None, {})
#: Workspaces of captured calls, by the graph's number and their bytes. A graph uses them at each replay.
Captured: TypeAlias = dict[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class Step:
    """The kernels of one product, and where its matrices begin from the arrays' first elements, in bytes."""

    launches: CudaLaunches
    begins: tuple[int, int, int]


class CudaCall(PreparedCall):
    """A call of kernels, of any arrays on one GPU.

    Args:
        memory: of the library that makes a new result, and workspaces.
        device: the GPU's number.
        names: of the arrays, in order.
        step: the kernels.
        outcome: the result.
        rooms: where each workspace begins in the call's memory, and behind the last the bytes of all.
        captured: what is kept for graphs.
        is_complex: whether A or B may be conjugated views.

    Attributes:
        steps: the products, in order; all have the same workspaces.
    """

    def __init__(
        self,
        memory: Memory,
        device: int,
        names: Sequence[str],
        step: Step,
        outcome: Outcome,
        rooms: tuple[int, ...],
        captured: Captured,
        is_complex: bool,
    ) -> None:
        self.memory, self.device, self.rooms = memory, device, rooms
        super().__init__(outcome, names)
        self.types, self.key_of = memory.types, memory.key_of
        self._begins, self._size = rooms[:-1], rooms[-1]
        self._captured, self._is_complex = captured, is_complex
        self._stream, self._asks = memory.stream_of(device), not memory.knows_graphs
        self._set_steps((step,))

    def _take(self, outcome: Outcome) -> None:
        super()._take(outcome)
        self._make = self.memory.maker(outcome.shape, outcome.dtype, self.device)
        if cuda_driver.device_count() > 1:
            self.run = self._run_there  # type: ignore[method-assign,assignment]

    def _set_steps(self, steps: Sequence[Step], copies: tuple[bool, bool] = (False, False)) -> None:
        self.steps, self._copies = tuple(steps), copies if any(copies) else None
        is_one = len(self.steps) == 1 and self.steps[0].begins == (0, 0, 0)
        self._launch = self.steps[0].launches.launch if is_one else self._launch_steps

    def of_products(self, outcome: Outcome, steps: Sequence[Step], copies: tuple[bool, bool]) -> Self:
        """A call of several products with the same workspaces.

        Args:
            copies: whether A and B are copied first: they have gaps, or begin at an address that no kernel takes.
        """
        made = self.of_product(outcome)
        made._set_steps(steps, copies)
        return made

    def expect(self, arrays: Sequence[Any]) -> None:
        self.guard = self.memory.guard(arrays, self._is_complex, self.provisional)

    def perform(self, request: Request, factors: Factors, place: CudaPlace) -> tuple[object, Event | None]:
        name, output, view = request.output
        arrays = {x: cast(DeviceMatrix, array) for x, (array, _) in request.inputs.items()}
        with self.on(stream_pointer(place.stream, {x.maker for x in matrices_of(request)}, self.device)):
            made = self.memory.result(view, self.device) if output is None else cast(DeviceMatrix, output)
            lists = [self.memory.integers(each, self.device) for each in _lists(request, made)]
            ordered = [(arrays | {name: made})[x] for x in self.names]
            event = self.queue(ordered, place, [at for _, at in lists], factors)
        return (made.array if request.given is None else request.given), event

    def queue(
        self,
        matrices: Sequence[DeviceMatrix],
        place: CudaPlace | None = None,
        lists: Sequence[int] = (),
        factors: Factors | None = None,
    ) -> Event | None:
        """Queue it for arrays that are checked.

        Args:
            matrices: A, B, C, and the operands.
            place: None for the current stream.
            lists: where the lists of addresses are.
            factors: alpha and beta, if they may differ from those that it was made with.

        Returns: the event of its completion, if one is wanted. Raises: DeviceError, SpecError.
        """
        place = place or Place()
        stream = stream_pointer(place.stream, {x.maker for x in matrices}, self.device)
        with self.on(stream):
            addresses = (*map(self._place_of, matrices), *lists)
            return self._compute(addresses, factors, _NOTHING, _resolved(place, stream))

    def times(self, request: Request, iterations: int) -> list[float]:
        """The device time of each replay of a graph, in seconds."""
        name, output, view = request.output
        memory, current = self.memory, self.memory.stream_of(self.device)()
        with self.on(current), memory.checked(self.device):
            made = memory.result(view, self.device) if output is None else output
            arrays = {x: array for x, (array, _) in request.inputs.items()} | {name: made}
            room = memory.room(max(1, self._size), current)
            try:
                cuda_driver.synchronize()  # the arrays may still be on their way
                stream = Stream()
                addresses = [self._place_of(arrays[x]) for x in self.names]
                addresses += [room + begin for begin in self._begins]
                graph = Graph(stream.ptr, partial(self._launch, stream.ptr, addresses))
                return [_seconds(graph, stream.ptr) for _ in range(iterations)]
            finally:
                memory.release(room)

    @contextmanager
    def on(self, stream: int) -> Iterator[None]:
        """Context in which memory is requested on a stream."""
        with cuda_driver.on_device(self.device), self.memory.on_stream(stream, self.device):
            yield

    def placed(
        self, held: Held, places: tuple[int, int, int], more: tuple[int, ...], factors: Factors, place: Any
    ) -> Any:
        stream = self._stream() if place.stream is None else stream_pointer(place.stream, set(), self.device)
        with self.on(stream):
            return self.run(held, places, more, factors, _resolved(place, stream))

    def _run_there(self, *call: Any) -> Any:
        """`run` where several GPUs are, and another one may be current."""
        is_pushed = cuda_driver.enter(self.device)
        try:
            return PreparedCall.run(self, *call)
        finally:
            if is_pushed:
                cuda_driver.leave()

    def _place_of(self, array: Any) -> int:
        return cast(DeviceMatrix, array).pointer

    def _new(self, a: object) -> tuple[Any, int]:  # noqa: ARG002
        try:
            c, at_c = self._make()
        except self.memory.lack as error:
            raise self.memory.lack_of(error, self.device) from error
        c = c if self._line is None else c[..., : self._line]
        return (self.memory.transposed(c) if self._transposed else c), at_c

    def _compute(
        self, addresses: tuple[int, ...], factors: Factors | None, held: Held, place: _Resolved | None
    ) -> Event | None:
        if place is None or place.stream is None:
            stream, asks = self._stream(), self._asks
        else:
            stream, asks = place.stream, True
        if self._copies is not None:
            addresses, held = self._without_gaps(addresses, held, *self._copies)
        if self._size:
            room, is_kept = self._room(stream, asks)
            try:
                self._launch(stream, (*addresses, *[room + begin for begin in self._begins]), factors)
            finally:
                if not is_kept:
                    self.memory.release(room)
        else:
            self._launch(stream, addresses, factors)
        if place is None or not place.want_event:
            return None
        event = Event()
        event.record(stream)
        return event

    def _room(self, stream: int, asks: bool) -> tuple[int, bool]:
        """Memory for the workspaces, and whether a graph keeps it.

        Args:
            asks: whether the allocator does not know by itself that the stream captures a graph.

        Raises: DeviceError.
        """
        graph = cuda_driver.capture_of(stream) if asks else None
        if graph is not None and (known := self._captured.get((graph, self._size))) is not None:
            return known, True
        try:
            room = self.memory.room(self._size, stream)
        except self.memory.lack as error:
            raise self.memory.lack_of(error, self.device) from error
        if graph is not None:
            self._captured[graph, self._size] = room
        return room, graph is not None

    def _launch_steps(self, stream: int, addresses: Sequence[int], factors: Factors | None = None) -> None:
        at_a, at_b, at_c, *more = addresses
        for step in self.steps:
            first, second, third = step.begins
            step.launches.launch(stream, (at_a + first, at_b + second, at_c + third, *more), factors)

    def _without_gaps(
        self, addresses: tuple[int, ...], held: Held, copy_a: bool, copy_b: bool
    ) -> tuple[tuple[int, ...], Held]:
        """The addresses with those of copies of what must be copied, and what keeps these alive."""
        a, b, *_ = held
        first, second, *others = addresses
        at_a, at_b = (second, first) if self._mirrored else (first, second)
        with self.memory.checked(self.device):
            a, at_a = self.memory.copied(a) if copy_a else (a, at_a)
            b, at_b = self.memory.copied(b) if copy_b else (b, at_b)
        found = (at_b, at_a, *others) if self._mirrored else (at_a, at_b, *others)
        return found, (a, b, *held[2:])


def _seconds(graph: Graph, stream: int) -> float:
    """The device time of a replay."""
    begin, end = Event(timing=True), Event(timing=True)
    begin.record(stream)
    graph.replay()
    end.record(stream)
    end.synchronize()
    return end.seconds_since(begin)


def _resolved(place: CudaPlace, stream: int) -> _Resolved:
    """The place with its stream's address. Only of the current stream the allocator knows whether it captures."""
    return Place(stream=None if place.stream is None else stream, want_event=place.want_event)


def matrices_of(request: Request) -> list[DeviceMatrix]:
    """All arrays of a call, A first."""
    output = request.output[1]
    found = [*(matrix for matrix, _ in request.inputs.values()), *([] if output is None else [output])]
    return [cast(DeviceMatrix, x) for x in (*found, *(m for each in request.lists.values() for m in each))]


def _lists(request: Request, made: DeviceMatrix) -> list[list[int]]:
    """For a batch by lists: the addresses of the matrices A, B and C, of which `made` is the first."""
    if not request.lists:
        return []
    bases = {"a": request.inputs["a"][0], "b": request.inputs["b"][0], "c": made}
    return [
        [
            cast(DeviceMatrix, base).pointer + x if isinstance(x, int) else cast(DeviceMatrix, x).pointer
            for x in each_matrix(request, name)
        ]
        for name, base in bases.items()
    ]
