"""A SYCL source, ready to be called with NumPy arrays or with arrays in USM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Never, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gemmgen.errors import DeviceError, LoweringError, SpecError
from gemmgen.ir.dtypes import I64
from gemmgen.ir.numeric import element_type, numpy_dtype
from gemmgen.runtime.arrays import Request, check_gemm, check_transpose
from gemmgen.runtime.call import CallableKernel, Place
from gemmgen.runtime.cuda_arrays import GpuMatrix
from gemmgen.runtime.kept import Kept, once
from gemmgen.runtime.lists import check_listed, each_matrix, labelled, regrouped, stacked
from gemmgen.runtime.operands import letter
from gemmgen.runtime.overlaps import ArrayLike
from gemmgen.runtime.sycl_arrays import SyclQueue, UsmArray, as_matrices, own_queue, queue_of
from gemmgen.runtime.sycl_build import check_device, content
from gemmgen.runtime.sycl_devices import SyclDeviceInfo, SyclDeviceLike, pick
from gemmgen.runtime.sycl_library import Argument, helper
from gemmgen.runtime.views import View, new_array
from gemmgen.runtime.waiting import Pace, leave, under_way
from gemmgen.source import EntryPoint, Source

#: A NumPy array, or one that offers `__sycl_usm_array_interface__`; what goes in comes out.
Matrix = TypeVar("Matrix")
Floats = npt.NDArray[np.float32]
INTEGER, FLOAT, ADDRESS, DOUBLE, LONG, FLOAT2, DOUBLE2 = range(7)
#: Kinds of launches whose durations are remembered.
PACES = 64
NUMBERS = {"float32": FLOAT, "float64": DOUBLE, "complex64": FLOAT2, "complex128": DOUBLE2}


class SyclKernel(CallableKernel[Never, Never, Never, Never]):
    """A kernel that can be called with arrays that are all NumPy's or all in USM. Safe to call from several threads.

    NumPy's are used in place where the device reaches the host's memory, else copied to USM and back. Calls return
    when the result is there: of arrays in USM a `UsmArray` where c was None.

    Attributes:
        source: what was compiled, in the form `kernel`.
    """

    places = frozenset()

    def __init__(self, source: Source, device: SyclDeviceLike = None) -> None:
        super().__init__(source)
        self._own_device = once(lambda: pick(device, source.requires))
        self._own_kernels = once(self._loaded)
        self._paces: Kept[tuple[int, ...], Pace] = Kept(PACES)

    @classmethod
    def from_source(cls, source: Source, device: SyclDeviceLike = None) -> SyclKernel:
        """Choose the device and build at once.

        Args:
            device: a number or part of a name (`gemmgen devices`); None for SYCL's default if that has what the
                source requires. `ONEAPI_DEVICE_SELECTOR` says which there are.

        Raises: DeviceError, ScheduleError with everything that is amiss.
        """
        kernel = cls(source, device)
        kernel.build()
        return kernel

    @property
    def device(self) -> SyclDeviceInfo:
        """Where it runs."""
        return self._own_device()

    def build(self) -> None:
        """Compile now; later calls find it done. Raises: DeviceError, ScheduleError."""
        self._own_kernels()

    def empty(self, shape: tuple[int, int], order: str = "C", dtype: object = None) -> UsmArray:
        """A matrix in shared USM, of A's type if none is said, which calls take without a copy; `numpy.asarray(x)` is
        a view of it.
        """
        rows, cols = shape
        element = element_type(self.source.spec.dtype if dtype is None else dtype)
        return UsmArray(own_queue(self.device), rows, cols, "col" if order == "F" else "row", element)

    def transpose(self, a: Matrix, out: Matrix | None = None) -> Matrix:
        """The transposed matrix, for a kernel whose operation that is.

        Args:
            a: [rows, cols], row-major.
            out: [cols, rows], written in place; None allocates it.

        Raises: SpecError, DeviceError, ScheduleError.
        """
        result, _ = self._times(self._transposition(a, out), 1)
        return cast("Matrix", result)

    def time(
        self,
        a: object,
        b: object = None,
        c: object = None,
        *,
        alpha: complex | None = None,
        beta: complex | None = None,
        iterations: int = 10,
        **operands: object,
    ) -> list[float]:
        """Run several times on the same arrays; the seconds that the device took for each run.

        Args: as for a call (or for `transpose`, with `b` its result); c is computed `iterations` times.

        Raises: SpecError, DeviceError, ScheduleError.
        """
        gemm = self.source.operation == "gemm"
        request = self._request(a, b, c, alpha, beta, operands) if gemm else self._transposition(a, b)
        _, nanoseconds = self._times(request, iterations)
        return [count * 1e-9 for count in nanoseconds]

    # --- arguments --------------------------------------------------------------------------------

    def _request(
        self,
        a: object,
        b: object,
        c: object,
        alpha: complex | None,
        beta: complex | None,
        operands: Mapping[str, object],
    ) -> Request:
        found: list[str] = []
        spec, given = self.source.spec, {"a": a, "b": b, "c": c, **operands}
        known = as_matrices(labelled(given) if spec.listed else given, found)
        known = regrouped(given, known) if spec.listed else known
        matrices, others = (known["a"], known["b"], known["c"]), {name: known[name] for name in operands}
        check = check_listed if spec.listed else check_gemm
        request = check(spec, *matrices, alpha, beta, lambda _: found, self.source.span, others)
        return self._between.checked(replace(request, given=c) if spec.listed else request)

    def _transposition(self, a: object, out: object) -> Request:
        self._expect("transpose")
        found: list[str] = []
        known = as_matrices({"a": a, "out": out}, found)
        if found:
            raise SpecError(found)
        return check_transpose(self.source.spec.dtype, known["a"], known["out"])

    # --- running ----------------------------------------------------------------------------------

    def _run(self, request: Request, _place: Place[Never, Never, Never], /) -> tuple[object, None]:
        return self._times(request, 1)[0], None

    def _times(self, request: Request, iterations: int) -> tuple[object, list[int]]:
        """The result, and the nanoseconds of each run."""
        kernels = self._own_kernels()
        own, between = own_queue(self.device), self._between.elements(request.sizes)
        with under_way(), ExitStack() as stack:
            if request.on_device:
                queue = stack.enter_context(queue_of(_resident(request), own))
                if queue.handle != own.handle:
                    kernels = stack.enter_context(self._kernels_for(queue))
                values, result = _in_place(request, queue)
            else:
                queue, shares = own, own.info.system and _stands(request)
                given = request
                if request.lists and not shares:
                    request = stack.enter_context(stacked(request))
                values, result = stack.enter_context(_shared(request) if shares else _copied(request, own))
                result = result if given.given is None else given.given
            for workspace, elements in between:
                memory = UsmArray(queue, 1, elements, "row", numpy_dtype(workspace.dtype))
                stack.callback(memory.release)
                values |= {workspace.name: _Address(memory.address)}
            if self.source.spec.listed:
                values |= stack.enter_context(_addresses(request, values, queue))
            try:
                times = [self._launch(queue, kernels, values) for _ in range(iterations)]
            except KeyboardInterrupt:
                leave(partial(helper().finish, queue.handle), (request, result), stack.pop_all().close)
                raise
        return result, times

    def _launch(self, queue: SyclQueue, kernels: int, values: Mapping[str, object]) -> int:
        """Run every kernel that has something to do, one after the other; the nanoseconds that they took."""
        sizes = {name: value for name, value in values.items() if isinstance(value, int)}
        taken = 0
        for number, (layers, down, across) in self.source.launches(sizes):
            entry = self.source.entry_points[number]
            arguments = [_argument(entry, a.name, a.kind, a.dtype, values) for a in entry.arguments]
            groups = 0 if entry.layers is None else layers, down, across
            launch = partial(helper().launch, queue.handle, kernels, number, arguments, groups, entry.group)
            taken += self._paces.get((number, *sizes.values()), Pace).wait(launch)
        return taken

    def _loaded(self) -> int:
        """The kernels in the device's own context, found there by `_own_kernels`."""
        check_device(self.source, self.device)
        with under_way():
            return self._load(own_queue(self.device))

    @contextmanager
    def _kernels_for(self, queue: SyclQueue) -> Iterator[int]:
        """The kernels in a context that is not gemmgen's."""
        check_device(self.source, queue.info)
        kernels = self._load(queue)
        try:
            yield kernels
        finally:
            helper().free_kernels(kernels)

    def _load(self, queue: SyclQueue) -> int:
        names = [entry.name for entry in self.source.entry_points]
        # A file of the cache that the runtime does not take is made again.
        for fresh in (False, True):
            kernels = helper().kernels(queue.handle, content(self.source, queue.info, fresh=fresh), names)
            if kernels is not None:
                return kernels
        raise DeviceError(f"{queue.info.name} does not load {self.source.name}: {helper().text()}")


# --- operands -------------------------------------------------------------------------------------


def _resident(request: Request) -> dict[str, GpuMatrix]:
    """The matrices that are touched: those without elements need not lie anywhere."""
    found = {name: cast(GpuMatrix, array) for name, (array, view) in request.inputs.items() if view.span}
    name, output, _ = request.output
    found |= {} if output is None else {name: cast(GpuMatrix, output)}
    each = ((name, i, x) for name, matrices in request.lists.items() if name in found for i, x in enumerate(matrices))
    return found | {f"{name}[{i}]": cast(GpuMatrix, x) for name, i, x in each}


@contextmanager
def _addresses(request: Request, values: Mapping[str, object], queue: SyclQueue) -> Iterator[dict[str, object]]:
    """The arrays of the matrices' addresses, in memory that is given back."""
    with ExitStack() as stack:
        out: dict[str, object] = {}
        for name in "abc":
            base = cast(_Address, values[name]).value
            places = [base + x if isinstance(x, int) else _begin(x) for x in each_matrix(request, name)]
            memory = UsmArray(queue, 1, len(places), "row", np.dtype(np.uint64))
            stack.callback(memory.release)
            np.asarray(memory)[...] = places
            out[f"{name}_list"] = _Address(memory.address)
        yield out


def _begin(array: ArrayLike) -> int:
    """Where an array is."""
    return array.pointer if isinstance(array, GpuMatrix) else cast(Floats, array).ctypes.data


def _values(request: Request, places: Mapping[str, tuple[int, View]]) -> dict[str, object]:
    """Every argument by its name, from where matrices are and how they lie. The transpose kernel calls its result b."""
    values: dict[str, object] = {**request.sizes, **request.scalars}
    for name, (address, view) in places.items():
        known = "b" if name == "out" else name
        values |= {known: _Address(address), f"ld{letter(known)}": view.ld, f"stride_{letter(known)}": view.stride}
    return values


class _Address:
    """An address, told apart from integer arguments."""

    def __init__(self, value: int) -> None:
        self.value = value


def _in_place(request: Request, queue: SyclQueue) -> tuple[dict[str, object], object]:
    """Arrays in USM as they are; the result allocated if there is none."""
    places = {name: (cast(GpuMatrix, array).pointer, view) for name, (array, view) in request.inputs.items()}
    name, output, view = request.output
    if output is None:
        made = UsmArray(queue, view.rows, view.cols, view.order, view.dtype, view.count)
        return _values(request, {**places, name: (made.address, view)}), made
    matrix = cast(GpuMatrix, output)
    return _values(request, {**places, name: (matrix.pointer, view)}), request.given or matrix.array


def _stands(request: Request) -> bool:
    """Whether NumPy arrays begin on multiples of an element; to NumPy, half a complex number is enough."""
    arrays = [array for array, _ in request.inputs.values()] + [request.output[1]]
    arrays += [matrix for matrices in request.lists.values() for matrix in matrices]
    return all(cast(Floats, x).ctypes.data % x.dtype.itemsize == 0 for x in arrays if x is not None)


@contextmanager
def _shared(request: Request) -> Iterator[tuple[dict[str, object], object]]:
    """NumPy arrays where they are, on a device that reaches the host's memory."""
    name, output, view = request.output
    result = cast(Floats, new_array(view)) if output is None else cast(Floats, output)
    places = {x: (cast(Floats, array).ctypes.data, v) for x, (array, v) in request.inputs.items()}
    yield _values(request, {**places, name: (result.ctypes.data, view)}), result


@contextmanager
def _copied(request: Request, queue: SyclQueue) -> Iterator[tuple[dict[str, object], object]]:
    """NumPy arrays by way of USM, which is given back whatever happens."""
    with ExitStack() as stack:

        def allocate(view: View) -> UsmArray:
            made = UsmArray(queue, view.rows, view.cols, view.order, view.dtype, view.count)
            stack.callback(made.release)
            return made

        places: dict[str, tuple[int, View]] = {}
        for name, (array, view) in request.inputs.items():
            inside = np.asarray(allocate(view)).view(view.dtype)
            places[name] = inside.ctypes.data, view.without_gaps()
            if not view.span:
                continue  # it is not to be read
            # One matrix for a whole batch is there once.
            inside[...] = (
                cast(Floats, array) if view.count != 1 else cast(Floats, array).reshape(-1, *view.shape[1:])[:1]
            )
        name, output, view = request.output
        result = cast(Floats, new_array(view)) if output is None else cast(Floats, output)
        back = np.asarray(allocate(view)).view(view.dtype)
        if request.loads_output:
            back[...] = result
        yield _values(request, {**places, name: (back.ctypes.data, view.without_gaps())}), result
        result[...] = back


def _argument(entry: EntryPoint, name: str, kind: str, dtype: str, values: Mapping[str, object]) -> Argument:
    if name not in values:
        raise LoweringError(f"{entry.name} has an argument {name!r} that the runtime knows nothing of")
    value = values[name]
    if isinstance(value, _Address):
        return Argument(kind=ADDRESS, address=value.value)
    if kind == "int":
        return Argument(kind=LONG if dtype == I64.name else INTEGER, integer=int(cast(float, value)))
    number = cast(complex, value)
    return Argument(kind=NUMBERS[dtype], number=number.real, imaginary=number.imag)
