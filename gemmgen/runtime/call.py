"""What it is to call a kernel: one signature for every backend, whose own keywords say where the work is queued."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar, cast, overload

from gemmgen.errors import SpecError
from gemmgen.runtime.arrays import Request
from gemmgen.runtime.between import Between
from gemmgen.runtime.lists import is_nothing
from gemmgen.runtime.operands import expect_operands
from gemmgen.runtime.views import SpanError
from gemmgen.source import Source

#: An array of any library that the kernel takes; what goes in comes out.
Matrix = TypeVar("Matrix")
#: What a backend's events, queues, events to wait for and streams are; `Never` for what it knows nothing of.
Event = TypeVar("Event")
Queue = TypeVar("Queue")
Before = TypeVar("Before")
Stream = TypeVar("Stream")


@dataclass(frozen=True, slots=True)
class Place(Generic[Queue, Before, Stream]):
    """Where a call queues its work, after what, and whether it tells when; empty for what the arrays say."""

    queue: Queue | None = None
    wait_for: Sequence[Before] = ()
    stream: Stream | None = None
    want_event: bool = False


class CallableKernel(ABC, Generic[Event, Queue, Before, Stream]):
    """A kernel that can be called with arrays.

    Attributes:
        source: what was compiled.
        wider: makes the twin that counts places in 64 bits; None where there is none.
        places: the keywords of a call that say where its work is queued, and that events tell of it.
    """

    places: ClassVar[frozenset[str]]

    def __init__(self, source: Source) -> None:
        self.source = source
        self._between = Between(source)
        self.wider: Callable[[], CallableKernel[Event, Queue, Before, Stream]] | None = None

    def __repr__(self) -> str:
        return f"<gemmgen kernel {self.source.name}>"

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
            a, b: [m, k] and [k, n], of the spec's dtype and a kind that the class names. Lines may lie apart (slices),
                elements of a line may not. A matrix that the spec calls column-major must be Fortran-ordered. Of a
                listed spec, a and b are sequences of such matrices, or one for all, and c is a sequence.
            c: [m, n], of the spec's result, written in place; None allocates it. It must share no memory with a or b.
            alpha, beta: None for what is folded in the kernel, else for 1 and 0. c is not read if beta is 0, a and b
                are not if alpha is 0. Sizes may be 0: of K, c becomes beta * c.
            queue, wait_for: OpenCL's: where to queue, and events that must have passed before the kernel starts. None
                for the arrays' queue, or for NumPy arrays the kernel's own, or none for a product that is small
                (docs/cpu.md): NumPy arrays have to be at rest unless a queue is named.
            stream: CUDA's: CuPy's, torch's, or a `cudaStream_t` as an integer; None for torch's current stream where
                an array is torch's, else for CuPy's current stream.
            return_event: whether to return the event that passes when c is there, too.
            operands: the arrays that the spec's epilogue names, such as `bias`, of c's dtype and kind: of one
                dimension, an element for each column (or row) of c, or `residual`, as large as c and stored in
                its order. None may share memory with c.

        Returns: c. NumPy's is complete. Others are being computed: pyopencl's carries the event, and work that is
        queued on the same CUDA stream finds it done.

        Raises: SpecError with every problem of the arguments; DeviceError, ScheduleError.
        """
        arrays: dict[str, object] = {"a": a, "b": b, "c": c, **operands} if operands else {"a": a, "b": b, "c": c}
        plain = queue is None and stream is None and not wait_for
        again = self.again(arrays, alpha, beta) if plain else None
        result, event = again or self._looked_at(arrays, (alpha, beta), Place(queue, wait_for, stream, return_event))
        return (cast("Matrix", result), cast("Event", event)) if return_event else cast("Matrix", result)

    def again(
        self, _arrays: Mapping[str, object], _alpha: complex | None, _beta: complex | None, /
    ) -> tuple[object, Event] | None:
        """The result of a call like one that was looked at before, and its event; None where there was none, or where
        this one asks for a closer look.

        Args:
            arrays: by name: a, b, c, and what the epilogue takes.
        """
        return None

    def _looked_at(
        self,
        arrays: Mapping[str, object],
        factors: tuple[complex | None, complex | None],
        place: Place[Queue, Before, Stream],
    ) -> tuple[object, Event | None]:
        """The same of a call of which nothing is known. Raises: as a call."""
        caller = f"{type(self).__name__}.__call__"
        given = {"queue": place.queue is not None, "wait_for": bool(place.wait_for), "stream": place.stream is not None}
        given |= {"return_event": place.want_event}
        for name in (name for name, there in given.items() if there and name not in self.places):
            raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}")
        a, b, c = (arrays[name] for name in "abc")
        operands = {name: x for name, x in arrays.items() if name not in ("a", "b", "c")}
        expect_operands(caller, operands)
        self._expect("gemm")
        if is_nothing(self.source.spec, a, b, c) and not place.want_event:
            return c, None
        if place.queue is not None or place.wait_for:
            self._expect_place(place)
        done = self._once_more(arrays, factors, place)
        if done is None:
            kernel, request = self._reaching(a, b, c, *factors, operands)
            done = kernel._run(request, place)
        return done

    def _expect_place(self, _place: Place[Queue, Before, Stream], /) -> None:
        """Raises: SpecError where the queue is none of the backend's, or an event."""

    def _once_more(
        self,
        _arrays: Mapping[str, object],
        _factors: tuple[complex | None, complex | None],
        _place: Place[Queue, Before, Stream],
        /,
    ) -> tuple[object, Event | None] | None:
        """What `_run` returns, by a call of this kind that is prepared; None where there is none."""
        return None

    def _reaching(
        self,
        a: object,
        b: object,
        c: object,
        alpha: complex | None,
        beta: complex | None,
        operands: Mapping[str, object],
    ) -> tuple[CallableKernel[Event, Queue, Before, Stream], Request]:
        """The kernel whose places reach all of the matrices: this one or its twin, and the request, checked."""
        try:
            return self, self._request(a, b, c, alpha, beta, operands)
        except SpanError:
            if self.wider is None:
                raise
            kernel = self.wider()
            return kernel, kernel._request(a, b, c, alpha, beta, operands)

    def _expect(self, operation: str) -> None:
        if self.source.operation != operation:
            remedy = "call .transpose(a)" if self.source.operation == "transpose" else "call it with a and b"
            raise SpecError(f"{self.source.name} is a {self.source.operation} kernel: {remedy}")

    @abstractmethod
    def _request(
        self,
        a: object,
        b: object,
        c: object,
        alpha: complex | None,
        beta: complex | None,
        operands: Mapping[str, object],
    ) -> Request:
        """The arguments of a product, checked. Raises: SpecError with every problem."""

    @abstractmethod
    def _run(self, request: Request, place: Place[Queue, Before, Stream]) -> tuple[object, Event | None]:
        """Queue the work; the result, and the event after which it is there (None only where none is wanted)."""
