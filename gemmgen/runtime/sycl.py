"""`SyclKernel`: a SYCL source that can be called with NumPy arrays or with arrays in USM."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from math import lcm
from typing import Never, TypeAlias, cast

import numpy as np

from gemmgen.errors import DeviceError
from gemmgen.ir.dtypes import I64
from gemmgen.ir.numeric import element_type
from gemmgen.runtime.arrays import Request, value_of
from gemmgen.runtime.build import Words, check_device
from gemmgen.runtime.cache import Kept, once
from gemmgen.runtime.call import CallableKernel
from gemmgen.runtime.calls import Factors, Held, HostCall, Outcome, PreparedCall, written
from gemmgen.runtime.lists import each_matrix, stacked
from gemmgen.runtime.sycl_arrays import SyclQueue, UsmArray, as_matrices, own_queue, queue_of, usm_key
from gemmgen.runtime.sycl_build import content
from gemmgen.runtime.sycl_devices import SyclDeviceInfo, SyclDeviceLike, pick
from gemmgen.runtime.sycl_library import Argument, helper
from gemmgen.runtime.views import ArrayLike, DeviceMatrix, Numbers, View, new_array, new_view
from gemmgen.runtime.waiting import Pace, leave, under_way
from gemmgen.source import Source
from gemmgen.spec import Order

INTEGER, FLOAT, ADDRESS, DOUBLE, LONG, FLOAT2, DOUBLE2 = range(7)
#: Sizes for which the duration of a launch is cached.
PACES = 64
#: The helper's kinds of numbers, by type.
KINDS = {
    "int32": INTEGER,
    I64.name: LONG,
    "float32": FLOAT,
    "float64": DOUBLE,
    "complex64": FLOAT2,
    "complex128": DOUBLE2,
}
#: The arguments of kernels: numbers by name, and addresses by name.
Placed: TypeAlias = tuple[dict[str, complex], dict[str, int]]


class SyclKernel(CallableKernel[Never, Never, Never, Never]):
    """A kernel that can be called with arrays that are all NumPy's or all in USM. Safe to call from several threads.

    NumPy arrays are used in place if the device can access the host's memory; otherwise they are copied to USM and
    back. Calls return when the result is complete. For arrays in USM the result is a `UsmArray` if c was None.

    Attributes:
        source: the source that was compiled, in the form `kernel`.
    """

    places = frozenset()

    def __init__(self, source: Source, device: SyclDeviceLike = None) -> None:
        super().__init__(source, device)
        self._own_device = once(lambda: pick(device, source.requires))
        self._own_kernels = once(self._loaded)
        self._paces: Kept[tuple[int, ...], Pace] = Kept(PACES)

    @property
    def device(self) -> SyclDeviceInfo:
        """The device on which it runs."""
        return self._own_device()

    def build(self) -> None:
        """Compile now, so that later calls need not. Raises: DeviceError, ScheduleError."""
        self._own_kernels()

    def empty(self, shape: tuple[int, int], order: str = "C", dtype: object = None) -> UsmArray:
        """A matrix in shared USM, which calls use without a copy. `numpy.asarray(x)` is a view of it. Its default type
        is A's. Its lines are padded as the spec assumes it of some argument.
        """
        spec = self.source.spec
        element = element_type(spec.dtype if dtype is None else dtype)
        view = View(*shape, "col" if order == "F" else "row", 1, element, unit=lcm(*map(spec.ld_unit, "abc")))
        return UsmArray(own_queue(self.device), view.laid_out())

    def _timed(
        self,
        request: Request,
        names: Sequence[str],  # noqa: ARG002
        factors: Factors,  # noqa: ARG002  (the request has them)
        queue: None,  # noqa: ARG002
        iterations: int,
    ) -> list[float]:
        return [count * 1e-9 for count in self._times(request, iterations)[1]]

    def _seen(self, arrays: Mapping[str, object], _output: str, problems: list[str], /) -> Mapping[str, object]:
        return as_matrices(arrays, problems)

    # --- running ----------------------------------------------------------------------------------

    def _call(self, request: Request, names: Sequence[str], factors: Factors, _queue: None, /) -> SyclCall:
        queue, outcome = own_queue(self.device), Outcome.of(request, names)
        is_own = request.on_device and all(_is_of(queue, x.array) for x in _resident(request).values())
        is_kept = is_own or (not request.on_device and queue.info.system and _stands(request))
        made = (UsmCall if is_own else SyclHostCall)(outcome, names, queue, self._times)
        if not is_kept or request.lists or request.is_empty or request.output[0] != "c":
            made.types = frozenset()
            return made
        values, kernels = request.numbers(request.views), self._own_kernels()
        made.launches = SyclLaunches(self.source, kernels, queue, names, values, factors, request.workspaces)
        return made

    def _times(self, request: Request, iterations: int) -> tuple[object, list[int]]:
        """The result, and the device time of each run in nanoseconds."""
        kernels = self._own_kernels()
        own = own_queue(self.device)
        with under_way(), ExitStack() as stack:
            if request.on_device:
                queue = stack.enter_context(queue_of(_resident(request), own))
                if queue.handle != own.handle:
                    kernels = stack.enter_context(self._kernels_for(queue))
            else:
                queue = own
            given = request.given
            if request.on_device or (own.info.system and _stands(request)):
                (values, addresses), result = _in_place(request, queue)
            else:
                request = stack.enter_context(stacked(request)) if request.lists else request
                (values, addresses), result = stack.enter_context(_copied(request, own))
            result = result if given is None else given
            if self.source.spec.listed:
                addresses |= stack.enter_context(_lists(request, addresses, queue))
            rooms = request.workspaces
            launches = SyclLaunches(self.source, kernels, queue, list(addresses), values, (None, None), rooms)
            pace = self._paces.get(tuple(request.sizes.values()), Pace)
            launch = partial(launches.launch, tuple(addresses.values()), (None, None))
            try:
                times = [pace.wait(launch) for _ in range(iterations)]
            except KeyboardInterrupt:
                leave(partial(helper().finish, queue.handle), (request, result), stack.pop_all().close)
                raise
        return result, times

    def _loaded(self) -> int:
        """The kernels in the device's default context, loaded by `_own_kernels`."""
        with under_way():
            return self._load(own_queue(self.device))

    @contextmanager
    def _kernels_for(self, queue: SyclQueue) -> Iterator[int]:
        """The kernels in a context that is not gemmgen's."""
        kernels = self._load(queue)
        try:
            yield kernels
        finally:
            helper().free_kernels(kernels)

    def _load(self, queue: SyclQueue) -> int:
        info, names = queue.info, [entry.name for entry in self.source.entry_points]
        check_device(self.source, info.name, info.target, Words(), [info.lacks] if info.lacks else ())
        # If the runtime refuses the cached file, the kernel is compiled again.
        for fresh in (False, True):
            kernels = helper().kernels(queue.handle, content(self.source, info, fresh=fresh), names)
            if kernels is not None:
                return kernels
        raise DeviceError(f"{info.name} does not load {self.source.name}: {helper().text()}")


# --- operands -------------------------------------------------------------------------------------


def _resident(request: Request) -> dict[str, DeviceMatrix]:
    """The matrices that are accessed. Empty matrices need no address."""
    found = {name: cast(DeviceMatrix, array) for name, (array, view) in request.inputs.items() if view.span}
    name, output, _ = request.output
    found |= {} if output is None else {name: cast(DeviceMatrix, output)}
    each = ((name, i, x) for name, matrices in request.lists.items() if name in found for i, x in enumerate(matrices))
    return found | {f"{name}[{i}]": cast(DeviceMatrix, x) for name, i, x in each}


@contextmanager
def _lists(request: Request, addresses: Mapping[str, int], queue: SyclQueue) -> Iterator[dict[str, int]]:
    """Context with the arrays of the matrices' addresses, in memory that is freed afterwards."""
    with ExitStack() as stack:
        out: dict[str, int] = {}
        for name in "abc":
            places = [addresses[name] + x if isinstance(x, int) else _begin(x) for x in each_matrix(request, name)]
            memory = UsmArray(queue, new_view(1, len(places), "row", "uint64"))
            stack.callback(memory.release)
            np.asarray(memory)[...] = places
            out[f"{name}_list"] = memory.address
        yield out


def _begin(array: ArrayLike) -> int:
    """The address of an array's first element."""
    return array.pointer if isinstance(array, DeviceMatrix) else cast(Numbers, array).ctypes.data


def _values(request: Request, places: Mapping[str, tuple[int, View]]) -> Placed:
    """Every argument, from the matrices' addresses and layouts."""
    numbers = request.numbers({name: view for name, (_, view) in places.items()})
    return numbers, {name: address for name, (address, _) in places.items()}


def _in_place(request: Request, queue: SyclQueue) -> tuple[Placed, object]:
    """The arguments for arrays that are used in place: those in USM, and NumPy's on a device that can access the host's
    memory. The result is allocated if none is given.
    """
    places = {name: (_begin(array), view) for name, (array, view) in request.inputs.items()}
    name, output, view = request.output
    result: object = output.array if isinstance(output, DeviceMatrix) else output
    if output is None and request.on_device:
        made = UsmArray(queue, view)
        begin, result = made.address, made
    else:
        output = new_array(view) if output is None else output
        begin, result = _begin(output), output if result is None else result
    return _values(request, {**places, name: (begin, view)}), result


def _is_of(queue: SyclQueue, array: object) -> bool:
    """Whether an array is in USM that a queue's context has."""
    return type(array) is UsmArray and array.queue.handle == queue.handle


def _stands(request: Request) -> bool:
    """Whether kernels can take NumPy arrays where they are: with lines as far apart as assumed, and aligned to their
    elements' size. NumPy accepts half of a complex number's.
    """
    arrays = [array for array, _ in request.inputs.values()] + [request.output[1]]
    arrays += [matrix for matrices in request.lists.values() for matrix in matrices]
    aligned = all(cast(Numbers, x).ctypes.data % x.dtype.itemsize == 0 for x in arrays if x is not None)
    return aligned and request.meets_assumptions


@contextmanager
def _copied(request: Request, queue: SyclQueue) -> Iterator[tuple[Placed, object]]:
    """The arguments for copies of NumPy arrays in USM. The USM is freed in every case."""
    with ExitStack() as stack:

        def allocate(view: View) -> UsmArray:
            made = UsmArray(queue, view.laid_out())
            stack.callback(made.release)
            return made

        places: dict[str, tuple[int, View]] = {}
        for name, (array, view) in request.inputs.items():
            inside = np.asarray(allocate(view)).view(view.dtype)
            places[name] = inside.ctypes.data, view.laid_out()
            if not view.span:
                continue  # the kernel must not read it
            # One matrix for a whole batch is there once.
            inside[...] = (
                cast(Numbers, array) if view.count != 1 else cast(Numbers, array).reshape(-1, *view.shape[1:])[:1]
            )
        name, output, view = request.output
        result = new_array(view) if output is None else cast(Numbers, output)
        back = np.asarray(allocate(view)).view(view.dtype)
        if request.loads_output:
            back[...] = result
        yield _values(request, {**places, name: (back.ctypes.data, view.laid_out())}), result
        result[...] = back


# --- prepared calls -------------------------------------------------------------------------------


class _Frame:
    """The arguments of all kernels for one launch."""

    __slots__ = ("arguments", "factors", "places", "rooms", "scalars")

    def __init__(self, factors: Factors) -> None:
        self.factors = factors
        #: Those of each kernel; and of all: the addresses with their numbers, the workspaces, and the factors by name.
        self.arguments: list[ctypes.Array[Argument]] = []
        self.places: list[tuple[Argument, int]] = []
        self.rooms: list[tuple[Argument, str]] = []
        self.scalars: list[tuple[Argument, str, str]] = []


class SyclLaunches:
    """All kernels of a product on one queue, with everything but addresses and factors filled in. Safe to use from
    several threads: as on other devices, each takes a frame.

    Args:
        kernels: the helper's handle of the kernels.
        names: the names of the arrays, in the order in which `launch` gets them.
        values: the other arguments by name: integers, alpha and beta.
        factors: alpha and beta as the caller passed them.
        rooms: the bytes of each workspace.
    """

    def __init__(
        self,
        source: Source,
        kernels: int,
        queue: SyclQueue,
        names: Sequence[str],
        values: Mapping[str, complex],
        factors: Factors,
        rooms: Mapping[str, int],
    ) -> None:
        self._kernels, self._queue, self._names, self._values = kernels, queue, list(names), dict(values)
        self._factors, self._rooms = factors, dict(rooms)
        sizes = {name: value for name, value in values.items() if isinstance(value, int)}
        self._steps = []
        for number, (layers, down, across) in source.launches(sizes):
            entry = source.entry_points[number]
            groups = (ctypes.c_size_t * 3)(0 if entry.layers is None else layers, down, across)
            self._steps.append((number, entry, groups, (ctypes.c_size_t * 2)(*entry.group)))
        self._frames: list[_Frame] = []

    def launch(self, addresses: Sequence[int], factors: Factors) -> int:
        """Run all kernels, in order, and wait for them. Returns their device time in nanoseconds.

        Args:
            factors: alpha and beta. They may be zero only if those were that the call was prepared with.

        Raises: DeviceError; struct.error, OverflowError or TypeError for factors that the kernels' type does not hold.
        """
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame()
        for argument, index in frame.places:
            argument.address = addresses[index]
        if factors != frame.factors:
            self._write_factors(frame, factors)
        queue, taken = self._queue.handle, 0
        memory = {name: helper().allocate(queue, size) for name, size in self._rooms.items()}
        try:
            for argument, name in frame.rooms:
                argument.address = memory[name]
            for (number, _, groups, group), arguments in zip(self._steps, frame.arguments, strict=True):
                taken += helper().launch(queue, self._kernels, number, arguments, groups, group)
        finally:
            for address in memory.values():
                helper().free(queue, address)
        self._frames.append(frame)
        return taken

    def _write_factors(self, frame: _Frame, factors: Factors) -> None:
        known = {"alpha": factors[0], "beta": factors[1]}
        for argument, name, dtype in frame.scalars:
            if (value := known[name]) is not None:
                written(value, dtype)  # raises, if the type does not hold it
                _fill(argument, dtype, value)
        frame.factors = factors

    def _new_frame(self) -> _Frame:
        frame = _Frame(self._factors)
        for _, entry, _, _ in self._steps:
            arguments = (Argument * len(entry.arguments))()
            frame.arguments.append(arguments)
            for argument, place in zip(entry.arguments, arguments, strict=True):
                if argument.name in self._names:
                    place.kind = ADDRESS
                    frame.places.append((place, self._names.index(argument.name)))
                elif argument.name in self._rooms:
                    place.kind = ADDRESS
                    frame.rooms.append((place, argument.name))
                else:
                    _fill(place, argument.dtype, cast(complex, value_of(entry, argument.name, self._values)))
                    if argument.name in ("alpha", "beta"):
                        frame.scalars.append((place, argument.name, argument.dtype))
        return frame


def _fill(argument: Argument, dtype: str, value: complex) -> None:
    """Write a number."""
    argument.kind = KINDS[dtype]
    if argument.kind in (INTEGER, LONG):
        argument.integer = int(value.real)
    else:
        argument.number, argument.imaginary = value.real, value.imag


class SyclCall(PreparedCall):
    """A call of kernels. Where arrays are used in place it is kept, and its replays launch; other arrays in USM, copies
    and lists are placed each time.

    Args:
        times: computes it for arrays that are checked, some times.

    Attributes:
        launches: the kernels, for replays.
    """

    launches: SyclLaunches

    def __init__(
        self,
        outcome: Outcome,
        names: Sequence[str],
        queue: SyclQueue,
        times: Callable[[Request, int], tuple[object, list[int]]],
    ) -> None:
        super().__init__(outcome, names)
        self._queue, self._times, self._pace = queue, times, Pace()

    def perform(self, request: Request, _factors: Factors, _place: object) -> tuple[object, None]:
        return self._times(request, 1)[0], None

    def _compute(self, addresses: tuple[int, ...], factors: Factors, held: Held, _: object) -> None:
        with under_way():
            try:
                self._pace.wait(partial(self.launches.launch, addresses, factors))
            except KeyboardInterrupt:
                leave(partial(helper().finish, self._queue.handle), held)
                raise


class SyclHostCall(SyclCall, HostCall):
    """A call with NumPy's arrays."""


class UsmCall(SyclCall):
    """A call with arrays in USM; gemmgen's own are kept."""

    types = frozenset({UsmArray})
    key_of = staticmethod(usm_key)

    def _place_of(self, array: UsmArray) -> int:
        return array.address

    def _new(self, a: object) -> tuple[UsmArray, int]:  # noqa: ARG002
        *count, slow, pitch = self._shape
        fast = pitch if self._line is None else self._line
        shape, order = ((fast, slow), "col") if self._transposed else ((slow, fast), "row")
        made = UsmArray(self._queue, View(*shape, cast(Order, order), pitch, self._dtype, *count))
        return made, made.address
