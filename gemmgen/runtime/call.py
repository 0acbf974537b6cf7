"""The call of a kernel: one signature for every backend, with keywords for queues, events and streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, cast, overload

from gemmgen.errors import SpecError
from gemmgen.ir.walk import evaluate
from gemmgen.records import dataclass
from gemmgen.runtime.arrays import Request, check_gemm, check_kinds, check_transpose, expect_operands, operands_of
from gemmgen.runtime.cache import Kept
from gemmgen.runtime.calls import Factors, PreparedCall, Table, keep, kept, plain, replay
from gemmgen.runtime.device import Device
from gemmgen.runtime.grouped import check_grouped, checks_ends
from gemmgen.runtime.lists import check_listed, is_nothing, labelled, regrouped
from gemmgen.runtime.views import SpanError
from gemmgen.source import Source
from gemmgen.spec import OFFSETS

#: An array of any library that the kernel takes; the result is of the same library.
Matrix = TypeVar("Matrix")
#: A backend's types of events, queues, events to wait for, and streams; `Never` for those that it lacks.
Event = TypeVar("Event")
Queue = TypeVar("Queue")
Before = TypeVar("Before")
Stream = TypeVar("Stream")
#: Sizes of products for which the workspaces' sizes are cached.
REMEMBERED = 256


class WorkspaceSizes:
    """The sizes of a source's workspaces for a product, and whether the kernels' indices reach all of them."""

    def __init__(self, source: Source) -> None:
        self._workspaces = source.workspaces
        self._known: Kept[tuple[int, ...], Mapping[str, int]] = Kept(REMEMBERED)

    def bytes(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        """The bytes of each by its name, one at least. Raises: SpanError if the kernels' indices don't reach all."""
        return self._known.get(tuple(sizes.values()), lambda: self._bytes(sizes)) if self._workspaces else {}

    def _bytes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        elements = [evaluate(workspace.elements, dict(sizes)) for workspace in self._workspaces]
        pairs = [*zip(self._workspaces, elements, strict=True)]
        if problems := [problem for workspace, count in pairs if (problem := workspace.problem(count))]:
            raise SpanError(problems)
        return {workspace.name: max(1, count) * workspace.dtype.size for workspace, count in pairs}


@dataclass(frozen=True, slots=True)
class Place(Generic[Queue, Before, Stream]):
    """Where a call queues its work, which events it waits for, and whether it returns an event. Without values the
    arrays decide.
    """

    queue: Queue | None = None
    wait_for: Sequence[Before] = ()
    stream: Stream | None = None
    want_event: bool = False


class CallableKernel(ABC, Generic[Event, Queue, Before, Stream]):
    """A kernel that can be called with arrays.

    Attributes:
        source: the source that was compiled.
        wider: makes the variant with 64-bit indices; None if there is none.
        places: the keywords of a call that this backend supports, for queues, streams and events.
    """

    places: ClassVar[frozenset[str]]

    def __init__(self, source: Source, device: object = None) -> None:  # noqa: ARG002  (of the classes below)
        self.source = source
        self._workspace_sizes = WorkspaceSizes(source)
        self._calls = Table()
        self._is_folded = source.spec.alpha is not None or source.spec.beta is not None
        self.wider: Callable[[], CallableKernel[Event, Queue, Before, Stream]] | None = None

    @classmethod
    def from_source(cls, source: Source, device: Any = None) -> Self:
        """Choose the device and build at once.

        Args:
            device: a device (OpenCL: or a context or a queue) of the backend's libraries; a number or part of a name
                (`gemmgen devices`); None for one that has the required features, on CUDA for the arrays' GPU.

        Raises: DeviceError, ScheduleError with every problem.
        """
        kernel = cls(source, device)
        kernel.build()
        return kernel

    @property
    @abstractmethod
    def device(self) -> Device:
        """The device for which it is built without arrays."""

    @abstractmethod
    def build(self) -> None:
        """Compile now, so that later calls need not. Raises: DeviceError, ScheduleError."""

    def __repr__(self) -> str:
        return f"<gemmgen kernel {self.source.name}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the source, folded away."""
        return self.source._repr_html_()

    @overload
    def __call__(
        self,
        a: Matrix,
        b: Matrix,
        c: Matrix | None = None,
        *,
        alpha: complex | None = None,
        beta: complex | None = None,
        queue: Queue | None = None,
        wait_for: Sequence[Before] = (),
        stream: Stream | None = None,
        return_event: Literal[False] = False,
        **operands: object,
    ) -> Matrix: ...

    @overload
    def __call__(
        self,
        a: Matrix,
        b: Matrix,
        c: Matrix | None = None,
        *,
        alpha: complex | None = None,
        beta: complex | None = None,
        queue: Queue | None = None,
        wait_for: Sequence[Before] = (),
        stream: Stream | None = None,
        return_event: Literal[True],
        **operands: object,
    ) -> tuple[Matrix, Event]: ...

    def __call__(
        self,
        a: Matrix,
        b: Matrix,
        c: Matrix | None = None,
        *,
        alpha: complex | None = None,
        beta: complex | None = None,
        queue: Queue | None = None,
        wait_for: Sequence[Before] = (),
        stream: Stream | None = None,
        return_event: bool = False,
        **operands: object,
    ) -> Matrix | tuple[Matrix, Event]:
        """C = alpha * A @ B + beta * C, after the spec's epilogue.

        Args:
            a, b: [m, k] and [k, n], of the spec's dtype and a kind that the class names. There may be gaps between
                lines (slices), but not between elements of a line. A column-major matrix of the spec must be
                Fortran-ordered. NumPy's may have lines that break the spec's `ld_multiple`: the kernel then gets copies
                with padded lines. For a listed spec, a and b are sequences of such matrices, or one matrix for all
                products, and c is a sequence.
            c: [m, n], of the spec's result, written in place; None allocates it, on a GPU of CUDA and in USM with lines
                that keep the spec's `ld_multiple`. It must share no memory with a or b.
            alpha, beta: None for the kernel's constants, or else for 1 and 0. c is not read if beta is 0; a and b are
                not read if alpha is 0. Sizes may be 0; if K is 0, c becomes beta * c.
            queue, wait_for: OpenCL only: the queue, and events that must be complete before the kernel starts. None
                for the arrays' queue. For NumPy arrays None is the kernel's own queue, or no queue for a small
                product (docs/cpu.md). So no queued work may use NumPy arrays unless a queue is named.
            stream: CUDA only: a stream of CuPy or torch, or a `cudaStream_t` as an integer. None for torch's current
                stream if an array is torch's, or else for CuPy's current stream.
            return_event: whether to return also the event that is complete when c is.
            offsets: for a grouped spec, an array of int32 with the end of each group (`runtime/grouped.py`).
            operands: the arrays that the spec's epilogue names, such as `bias`, of c's dtype and kind: one dimension,
                with an element for each column (or row) of c, or `residual`, as large as c and stored in
                its order. None may share memory with c.

        Returns: c. A NumPy array is complete. Other arrays are still being computed: pyopencl's carries the event, and
        work that is queued later on the same CUDA stream sees the result.

        Raises: SpecError with every problem of the arguments; DeviceError, ScheduleError.
        """
        if queue is None and stream is None and not wait_for and not return_event:
            done = self.again(a, b, c, alpha, beta, operands)
            if done is not None:
                return cast("Matrix", done)
        arrays: dict[str, object] = {"a": a, "b": b, "c": c, **operands}
        result, event = self._looked_at(arrays, (alpha, beta), Place(queue, wait_for, stream, return_event))
        return (cast("Matrix", result), cast("Event", event)) if return_event else cast("Matrix", result)

    def transpose(
        self, a: Matrix, out: Matrix | None = None, *, queue: Queue | None = None, stream: Stream | None = None
    ) -> Matrix:
        """The transposed matrix, for a kernel whose operation is `transpose`.

        Args:
            a: [rows, cols], row-major.
            out: [cols, rows], written in place; None allocates it.
            queue, stream: as for a call.

        Raises: SpecError, DeviceError, ScheduleError.
        """
        self._expect_keywords("transpose", queue=queue is not None, stream=stream is not None)
        place: Place[Queue, Before, Stream] = Place(queue, stream=stream)
        request = self._transposition(a, out)
        result, _ = self._call(request, ["a", "b"], (None, None), queue).perform(request, (None, None), place)
        return cast("Matrix", result)

    def time(
        self,
        a: object,
        b: object = None,
        c: object = None,
        *,
        alpha: complex | None = None,
        beta: complex | None = None,
        queue: Queue | None = None,
        iterations: int = 10,
        **operands: object,
    ) -> list[float]:
        """Run several times on the same arrays. Returns the device time of each run in seconds.

        On CUDA a run is the replay of a graph, between two events. For careful measurements see `gemmgen bench`.

        Args: as for a call (or for `transpose`, with `b` its result); c is computed `iterations` times.

        Raises: SpecError, DeviceError, ScheduleError.
        """
        self._expect_keywords("time", queue=queue is not None)
        gemm = self.source.operation == "gemm"
        arrays = {"a": a, "b": b, "c": c, **operands} if gemm else {"a": a, "b": b}
        kernel, request = self._reaching(arrays, (alpha, beta)) if gemm else (self, self._transposition(a, b))
        return kernel._timed(request, [*arrays], (alpha, beta), queue, iterations)

    def again(
        self,
        a: object,
        b: object,
        c: object,
        alpha: complex | None,
        beta: complex | None,
        operands: Mapping[str, object],
    ) -> object:
        """The result of a call that was prepared by an earlier one. None if no earlier call is like it, or if this one
        needs the full checks.
        """
        if self._refuses(alpha, beta):
            return None
        return replay(self._calls, None, a, b, c, (alpha, beta), operands)

    def _refuses(self, alpha: complex | None, beta: complex | None) -> bool:
        """Whether a factor is given that the kernel may have folded into it, so that its value must be checked."""
        return self._is_folded and not (alpha is None and beta is None)

    def prepared(self, arrays: Mapping[str, object], factors: Factors) -> PreparedCall | None:
        """What an earlier call with these arrays was prepared as; None if such calls can't be prepared.

        Args:
            arrays: a, b, c and the operands, in the caller's order.
        """
        a, b, c, *_ = arrays.values()
        return kept(self._calls, None, (a, b, c), factors, operands_of(arrays))

    @abstractmethod
    def _call(self, request: Request, names: Sequence[str], factors: Factors, queue: Queue | None, /) -> PreparedCall:
        """The call of checked arrays.

        Args:
            names: of the arrays, in the caller's order: A, B, C and the operands; A and its transpose.
            queue: the caller's; None if a small product may run in the calling thread.
        """

    def _looked_at(
        self,
        arrays: Mapping[str, object],
        factors: Factors,
        place: Place[Queue, Before, Stream],
    ) -> tuple[object, Event | None]:
        """The result and the event of a call that is not prepared, with all checks. Raises: as a call."""
        self._expect_keywords(
            "__call__",
            queue=place.queue is not None,
            wait_for=bool(place.wait_for),
            stream=place.stream is not None,
            return_event=place.want_event,
        )
        beside = {OFFSETS} if self.source.spec.grouped else set()
        operands = {name: x for name, x in operands_of(arrays).items() if name not in beside}
        expect_operands(f"{type(self).__name__}.__call__", operands)
        self._expect("gemm")
        a, b, c = (arrays[name] for name in "abc")
        if is_nothing(self.source.spec, a, b, c) and not place.want_event:
            return c, None
        if place.queue is not None or place.wait_for:
            self._expect_place(place)
        return self._perform(arrays, factors, place)

    def _expect_keywords(self, method: str, **given: bool) -> None:
        """Raises: TypeError for a keyword that the backend does not support."""
        for name, there in given.items():
            if there and name not in self.places:
                raise TypeError(f"{type(self).__name__}.{method}() got an unexpected keyword argument {name!r}")

    def _expect_place(self, _place: Place[Queue, Before, Stream], /) -> None:
        """Raises: SpecError if the queue or an event is not the backend's."""

    def _perform(
        self,
        arrays: Mapping[str, object],
        factors: Factors,
        place: Place[Queue, Before, Stream],
    ) -> tuple[object, Event | None]:
        """Compute a product that is not prepared, and prepare it for the next call like it. Raises: as a call."""
        a, b, c, *_ = arrays.values()
        operands = operands_of(arrays)
        queue = self._queue_of(place, a)
        known: object = None
        if not self._refuses(*factors):
            known = replay(self._calls, queue, a, b, c, factors, operands, place=place)
        if known is not None:
            return cast("tuple[object, Event]", known)
        kernel, request = self._reaching(arrays, factors)
        first, second, into, *others = map(plain, (a, b, c, *operands.values()))
        matrices, beside = (first, second, into), dict(zip(operands, others, strict=True))
        call = kept(self._calls, queue, matrices, factors, beside)
        if call is None:
            names = ["a", "b", "c", *(name for name, x in operands.items() if x is not None)]
            call = kernel._call(request, names, factors, queue)
            if self.source.spec.grouped and not request.on_device:  # each call checks where groups end
                call.guard = checks_ends(self.source.spec, request)
            keep(self._calls, queue, matrices, factors, beside, call)
        return call.perform(request, factors, place)

    def _queue_of(self, place: Place[Queue, Before, Stream], _a: object, /) -> Queue | None:
        """The queue that a prepared call belongs to; None for the kernel's own, or the arrays'."""
        return place.queue

    def _reaching(
        self, arrays: Mapping[str, object], factors: Factors
    ) -> tuple[CallableKernel[Event, Queue, Before, Stream], Request]:
        """The kernel whose indices reach all of the matrices (this one or its 64-bit variant), and the checked
        request.
        """
        try:
            return self, self._request(arrays, factors)
        except SpanError:
            if self.wider is None:
                raise
            kernel = self.wider()
            return kernel, kernel._request(arrays, factors)

    def _expect(self, operation: str) -> None:
        if self.source.operation != operation:
            remedy = "call .transpose(a)" if self.source.operation == "transpose" else "call it with a and b"
            raise SpecError(f"{self.source.name} is a {self.source.operation} kernel: {remedy}")

    def _request(self, arrays: Mapping[str, object], factors: Factors) -> Request:
        """The arguments of a product, checked. Raises: SpecError with every problem."""
        spec, problems = self.source.spec, list[str]()
        seen = self._seen(labelled(arrays) if spec.listed else arrays, "c", problems)
        seen = regrouped(arrays, seen) if spec.listed else seen
        check = check_grouped if spec.grouped else check_listed if spec.listed else check_gemm
        request = check(spec, seen, factors, problems, self.source.span)
        if more := self._sizes_of_device(request):
            request = replace(request, sizes={**request.sizes, **more})
        rooms = self._workspace_sizes.bytes(request.sizes)
        return replace(request, workspaces=rooms, given=arrays["c"] if spec.listed else None)

    def _transposition(self, a: object, out: object) -> Request:
        """The checked arguments of a transposition. Raises: SpecError with every problem."""
        self._expect("transpose")
        problems: list[str] = []
        seen = self._seen({"a": a, "out": out}, "out", problems)
        return check_transpose(self.source.spec.dtype, seen["a"], seen["out"], problems)

    def _seen(self, arrays: Mapping[str, object], _output: str, problems: list[str], /) -> Mapping[str, object]:
        """The arrays as the backend sees them; None for an array that it can't take, with a problem added."""
        problems += check_kinds(arrays)
        return arrays

    def _sizes_of_device(self, _request: Request, /) -> Mapping[str, int]:
        """Integer arguments of the kernels in addition to those of the arrays."""
        return {}

    @abstractmethod
    def _timed(
        self, request: Request, names: Sequence[str], factors: Factors, queue: Queue | None, iterations: int
    ) -> list[float]:
        """The device time of each run in seconds, of arrays as for `_call`. Raises: as `time`."""
