"""A CUDA source, ready to be called with arrays that lie on a GPU."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Never, Protocol, cast

import numpy as np

from gemmgen.errors import DeviceError, LoweringError, SpecError
from gemmgen.ir.sizes import GROUPS
from gemmgen.ir.workspace import Workspace
from gemmgen.runtime import require_cupy
from gemmgen.runtime.arrays import Request, check_gemm, check_transpose
from gemmgen.runtime.call import CallableKernel, Matrix, Place
from gemmgen.runtime.cuda_arrays import ALIGNMENT, CupyArray, GpuMatrix, as_matrix, placement_problems
from gemmgen.runtime.cuda_build import CudaBuilt, Resources, build, grid_problems
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, CudaDeviceLike, info_of, multiprocessors, pick, translated
from gemmgen.runtime.cuda_launch import launch
from gemmgen.runtime.cuda_maps import Words, made
from gemmgen.runtime.cuda_streams import on_device, on_stream, stream_pointer
from gemmgen.runtime.lists import check_listed, each_matrix, labelled, regrouped
from gemmgen.runtime.operands import letter
from gemmgen.runtime.variants import Variants
from gemmgen.runtime.views import View
from gemmgen.source import EntryPoint, Source
from gemmgen.spec import GemmSpec

#: Sizes for which a kernel remembers its launch geometry.
REMEMBERED = 256


class CudaEvent(Protocol):
    """What is used of a `cupy.cuda.Event`."""

    def record(self) -> None: ...
    def synchronize(self) -> None: ...


class CudaKernel(CallableKernel[CudaEvent, Never, Never, object]):
    """A kernel that can be called with arrays on one GPU. Safe to call from several threads.

    It takes CuPy arrays, torch tensors, and what offers `__cuda_array_interface__` or DLPack; a result that it
    allocates is of a's library (CuPy's for what is neither). It is built once for each GPU, when that is first needed.

    Args:
        source: for any arrays that its spec takes.
        variants: chooses for each call between that source and a twin; None for the source alone.
    """

    places = frozenset({"stream", "return_event"})

    def __init__(self, source: Source, device: CudaDeviceLike = None, variants: Variants | None = None) -> None:
        super().__init__(source)
        self._variants = variants
        self._asks_device = source.asks_device
        self._bound = device is not None
        self._wish = device
        self._info: CudaDeviceInfo | None = None
        self._built: dict[tuple[int, GemmSpec], CudaBuilt] = {}
        self._lock = threading.Lock()
        self._workspaces: dict[tuple[int, int, str, int], CupyArray] = {}
        self._remembered: dict[tuple[int, ...], tuple[tuple[int, tuple[int, int, int]], ...]] = {}
        self._cupy = CupyLibrary()

    @classmethod
    def from_source(cls, source: Source, device: CudaDeviceLike = None, variants: Variants | None = None) -> CudaKernel:
        """Choose the GPU and build the source at once.

        Args:
            device: a number or part of a name (`gemmgen devices`), a `cupy.cuda.Device` or `torch.device`, to which
                the kernel is bound; None for the current one, and later for those of the arrays.

        Raises: DeviceError, ScheduleError with everything that is amiss.
        """
        kernel = cls(source, device, variants)
        kernel._kernels(kernel.device.number, source)
        return kernel

    @property
    def device(self) -> CudaDeviceInfo:
        """The GPU that it was compiled for first."""
        if self._info is None:
            self._info = pick(self._wish)
        return self._info

    @property
    def resources(self) -> tuple[Resources, ...]:
        """Registers, spills and shared memory of each kernel of the source, by the compiler's word."""
        with translated(self.device.name), on_device(self.device.number):
            return self._kernels(self.device.number, self.source).resources()

    def build(self) -> None:
        """Compile everything now, so that no later call compiles, as none may while a graph is captured.

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

    def _request(
        self,
        a: object,
        b: object,
        c: object,
        alpha: complex | None,
        beta: complex | None,
        operands: Mapping[str, object],
    ) -> Request:
        require_cupy()
        found: list[str] = []
        spec, given = self.source.spec, {"a": a, "b": b, "c": c, **operands}
        each = labelled(given) if spec.listed else given
        wrapped = {x: as_matrix(x, v, self._cupy, found) for x, v in each.items()}
        found += self._misplaced(wrapped, "c")
        wrapped = regrouped(given, wrapped) if spec.listed else wrapped
        matrices = wrapped["a"], wrapped["b"], wrapped["c"]
        others = {name: wrapped[name] for name in operands}
        check = check_listed if spec.listed else check_gemm
        request = check(spec, *matrices, alpha, beta, lambda _: found, self.source.span, others)
        if self._asks_device:
            sizes = {**request.sizes, GROUPS.name: multiprocessors(_device(request))}
            request = replace(request, sizes=sizes)
        return self._between.checked(replace(request, given=c) if spec.listed else request)

    def transpose(self, a: Matrix, out: Matrix | None = None, *, stream: object = None) -> Matrix:
        """The transposed matrix, for a kernel whose operation that is.

        Args:
            a: [rows, cols], row-major.
            out: [cols, rows], written in place; None allocates it.

        Raises: SpecError, DeviceError, ScheduleError.
        """
        require_cupy()
        self._expect("transpose")
        found: list[str] = []
        wrapped = {x: as_matrix(x, v, self._cupy, found) for x, v in (("a", a), ("out", out))}
        found += self._misplaced(wrapped, "out")
        if found:
            raise SpecError(found)
        request = check_transpose(self.source.spec.dtype, wrapped["a"], wrapped["out"])
        result, _ = self._run(request, Place(stream=stream))
        return cast("Matrix", result)

    def time(
        self,
        a: object,
        b: object,
        c: object = None,
        *,
        alpha: complex | None = None,
        beta: complex | None = None,
        iterations: int = 10,
        **operands: object,
    ) -> list[float]:
        """Run several times on the same arrays; the seconds between events before and after each run.

        c is computed `iterations` times. A run is the replay of a graph, which the host queues within microseconds;
        for careful measurements, see `gemmgen bench`.

        Raises: SpecError, DeviceError, ScheduleError.
        """
        import cupy

        self._expect("gemm")
        if self.source.spec.listed:
            raise SpecError(
                "each call copies the addresses of listed matrices to the GPU, which no graph holds: "
                "time a batch whose matrices lie a stride apart"
            )
        request = self._request(a, b, c, alpha, beta, operands)
        out = self._run(request, Place())[0] if c is None else c
        request = self._request(a, b, out, alpha, beta, operands)
        self._kernels(_device(request), self._choose(request))  # nothing may compile while a graph is captured
        with translated(self.device.name), on_device(self.device.number):
            cupy.cuda.Device().synchronize()  # the arrays may still be on their way
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                stream.begin_capture()
                try:
                    self._run(request, Place(stream=stream))
                finally:
                    graph = stream.end_capture()
            begin, end, seconds = cupy.cuda.Event(), cupy.cuda.Event(), []
            for _ in range(iterations):
                begin.record(stream)
                graph.launch(stream)
                end.record(stream)
                end.synchronize()
                seconds.append(float(cupy.cuda.get_elapsed_time(begin, end)) * 1e-3)
        return seconds

    def _misplaced(self, matrices: Mapping[str, object], output: str) -> list[str]:
        bound = self.device.number if self._bound else None
        return placement_problems(matrices, self.source.alignment, bound, output)

    def _choose(self, request: Request) -> Source:
        return self.source if self._variants is None else self._variants.choose(request)

    def _kernels(self, device: int, source: Source) -> CudaBuilt:
        # The sources of one kernel differ in what they are promised and in nothing else.
        key = device, source.spec
        with self._lock:
            if key not in self._built:
                info = self._info if self._info is not None and self._info.number == device else info_of(device)
                self._built[key] = build(source, info)
            return self._built[key]

    def _grids(self, built: CudaBuilt, sizes: dict[str, int]) -> tuple[tuple[int, tuple[int, int, int]], ...]:
        """Kernels to launch, by their numbers, with blocks along (layers, rows, columns); remembered, for that is most
        of a call's work.

        Raises: SpecError for more than CUDA can launch.
        """
        key = tuple(sizes.values())
        if (known := self._remembered.get(key)) is not None:
            return known
        grids = self.source.launches(sizes)
        problems = [p for number, groups in grids for p in grid_problems(built.kernels[number][0], groups)]
        if problems:
            raise SpecError(problems)
        if len(self._remembered) >= REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = grids
        return grids

    def _run(self, request: Request, place: Place[Never, Never, object]) -> tuple[object, CudaEvent | None]:
        import cupy

        inputs = {name: (cast(GpuMatrix, matrix), view) for name, (matrix, view) in request.inputs.items()}
        name, output, view = request.output
        matrices = [matrix for matrix, _ in inputs.values()] + ([cast(GpuMatrix, output)] if output is not None else [])
        matrices += [cast(GpuMatrix, matrix) for each in request.lists.values() for matrix in each]
        device = _device(request)
        built = self._kernels(device, self._choose(request))
        sizes = sizes_of(request)
        grids = self._grids(built, sizes)
        pointer = stream_pointer(place.stream, matrices, device)
        with translated(f"GPU {device}"), on_device(device), on_stream(pointer):
            result = cast(GpuMatrix, output) if output is not None else self._allocate(view, matrices[0], pointer)
            values: dict[str, object] = {**sizes, **request.scalars}
            values |= {x: matrix.pointer for x, (matrix, _) in inputs.items()}
            # The transpose kernel calls its result b.
            values |= {name: result.pointer, "b" if name == "out" else name: result.pointer}
            lists = _addresses(request, values) if self.source.spec.listed else {}
            values |= {name: int(array.data.ptr) for name, array in lists.items()}
            for workspace, elements in self._between.elements(request.sizes):
                values[workspace.name] = self._workspace(device, pointer, workspace, elements)
            for number, (layers, rows, cols) in grids:
                entry, kernel, dynamic = built.kernels[number]
                high, wide = entry.group
                cols = min(cols, built.at_once.get(entry.name, cols))
                given, grid, block = arguments(entry, values), (cols, rows, layers), (wide, high, 1)
                if entry.early or entry.maps:
                    launch(kernel.kernel.ptr, grid, block, given, dynamic, pointer, entry.early)
                else:
                    kernel(grid, block, given, shared_mem=dynamic)
            event: CudaEvent | None = None
            if place.want_event:
                event = cupy.cuda.Event(disable_timing=True)
                event.record()
        return (result.array if request.given is None else request.given), event

    def _workspace(self, device: int, stream: int, workspace: Workspace, elements: int) -> int:
        """The address of memory between kernels, one for each stream and size; kept, since graphs may replay it."""
        import cupy

        key = device, stream, workspace.name, elements
        with self._lock:
            if key not in self._workspaces:
                # By bytes: CuPy need not know the type.
                self._workspaces[key] = cupy.empty(elements * workspace.dtype.size, "uint8")
            return int(self._workspaces[key].data.ptr)

    def _allocate(self, view: View, like: GpuMatrix, stream: int) -> GpuMatrix:
        """An empty matrix without gaps, of the library that `like` belongs to, on the stream."""
        dtype = str(view.dtype)
        if like.maker != "torch":
            import cupy

            array = cupy.empty(_stored(view), view.dtype)
            array = array if view.order == "row" else array.swapaxes(-1, -2)
            return GpuMatrix(array.shape, array.strides, array.dtype, array.data.ptr, like.device, "cupy", False, array)
        import torch

        place = torch.device("cuda", like.device)
        try:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=place)):
                tensor = torch.empty(_stored(view), dtype=getattr(torch, dtype), device=place)
        except torch.OutOfMemoryError as error:
            first = str(error).splitlines()[0]
            raise DeviceError(f"GPU {like.device} is out of memory ({first}): use smaller matrices") from error
        tensor = tensor if view.order == "row" else tensor.mT
        strides = tuple(int(step) * view.item for step in tensor.stride())
        pointer = int(tensor.data_ptr())
        return GpuMatrix(tuple(tensor.shape), strides, view.dtype, pointer, like.device, "torch", False, tensor)


class CupyLibrary:
    """CuPy, as `as_matrix` asks it."""

    def device_of(self, pointer: int) -> int:
        """The GPU that an address belongs to."""
        import cupy

        return int(cupy.cuda.runtime.pointerGetAttributes(pointer).device)

    def from_dlpack(self, value: object) -> CupyArray:
        """An array over the same memory."""
        import cupy

        return cast(CupyArray, cupy.from_dlpack(value))


def _device(request: Request) -> int:
    """The GPU that the arrays of a call lie on."""
    return cast(GpuMatrix, next(iter(request.inputs.values()))[0]).device


def _addresses(request: Request, values: Mapping[str, object]) -> dict[str, CupyArray]:
    """The arrays of the matrices' addresses, by the names of the kernel's arguments. Memory of CuPy's pools is used
    again in a stream's order, so that they may be let go of once the kernel is queued.
    """
    import cupy

    out: dict[str, CupyArray] = {}
    for name in "abc":
        base = cast(int, values[name])
        places = [base + x if isinstance(x, int) else cast(GpuMatrix, x).pointer for x in each_matrix(request, name)]
        out[f"{name}_list"] = cupy.asarray(np.array(places, np.uint64))
    return out


def sizes_of(request: Request) -> dict[str, int]:
    """Every integer argument."""
    name, _, output = request.output
    views = {x: view for x, (_, view) in request.inputs.items()} | {"b" if name == "out" else name: output}
    pitches = {f"ld{letter(x)}": _leading_dimension(view) for x, view in views.items()}
    steps = {f"stride_{letter(x)}": view.stride for x, view in views.items() if view.count is not None}
    return {**request.sizes, **pitches, **steps}


def _stored(view: View) -> tuple[int, ...]:
    """The shape of an array in whose order of elements the matrices lie."""
    return view.shape if view.order == "row" else (*view.shape[:-2], view.cols, view.rows)


def _leading_dimension(view: View) -> int:
    """That of a single line is free, but lines past the matrix, of which nothing is read, get addresses by it too: a
    copy of 16 bytes must not be given one that is no multiple of 16, even if it copies nothing.
    """
    unit = max(1, ALIGNMENT // view.item)
    return view.ld if view.slow > 1 and view.span else -(-view.ld // unit) * unit


def arguments(entry: EntryPoint, values: Mapping[str, object]) -> tuple[np.generic | Words, ...]:
    """The kernel's arguments in the types that it declares; addresses as 64-bit integers, tensor maps in words."""
    listed: list[np.generic | Words] = []
    maps = {tensor_map.name: tensor_map for tensor_map in entry.maps}
    for argument in entry.arguments:
        if argument.name in maps:
            listed.append(made(maps[argument.name], values))
            continue
        if argument.name not in values:
            raise LoweringError(f"{entry.name} has an argument {argument.name!r} that the runtime knows nothing of")
        value = values[argument.name]
        dtype = argument.dtype if argument.kind in ("int", "scalar") else "uint64"
        listed.append(np.dtype(dtype).type(value))
    return tuple(listed)
