"""`CudaKernel`: a CUDA source that can be called with arrays in a GPU's memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Never, cast

from gemmgen.errors import SpecError
from gemmgen.ir.sizes import GROUPS
from gemmgen.runtime.arrays import Request, letter
from gemmgen.runtime.call import CallableKernel
from gemmgen.runtime.calls import Factors, Outcome
from gemmgen.runtime.cuda_arrays import ALIGNMENT, as_matrix, placement_problems
from gemmgen.runtime.cuda_build import CudaBuilt, Resources, build, grid_problems
from gemmgen.runtime.cuda_calls import Captured, CudaCall, Step, matrices_of
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, CudaDeviceLike, info_of, pick
from gemmgen.runtime.cuda_driver import Event, on_device
from gemmgen.runtime.cuda_launch import ROOM_ALIGNMENT, CudaLaunches
from gemmgen.runtime.cuda_memory import memory_of
from gemmgen.runtime.variants import Variants
from gemmgen.runtime.views import View
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
            for spec in self._variants.assuming:
                self._kernels(self.device.number, self._variants.twin(spec))

    def source_for(self, a: object, b: object, c: object = None, **operands: object) -> Source:
        """The source that a call with these arrays runs. Raises: SpecError, ScheduleError."""
        self._expect("gemm")
        return self._choose(self._request({"a": a, "b": b, "c": c, **operands}, (None, None)))

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
        arrays = {"a": a, "b": b, "c": c, **operands}
        reaching, request = self._reaching(arrays, factors)
        kernel, names = cast(CudaKernel, reaching), [*arrays]
        if later is not None and kernel._variants is not None:
            device, spec = _device(request), kernel._variants.spec_for(request)
            if (device, spec) not in kernel._built:
                twin = partial(kernel._variants.twin, spec)
                later((kernel, device, spec), lambda: kernel._kernels(device, twin()))
                call = kernel._call(request, names, factors, source=kernel.source)
                call.provisional = True
                return call
        return kernel._call(request, names, factors)

    # --- checks -----------------------------------------------------------------------------------

    def _seen(self, arrays: Mapping[str, object], output: str, problems: list[str], /) -> Mapping[str, object]:
        seen = {name: as_matrix(name, array, problems) for name, array in arrays.items()}
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
        self,
        request: Request,
        names: Sequence[str],
        factors: Factors,
        _queue: None = None,
        source: Source | None = None,
    ) -> CudaCall:
        """`source` is None for the variant of such calls. Raises: SpecError for more blocks than CUDA can launch;
        DeviceError.
        """
        device = _device(request)
        built, sizes = self._kernels(device, source or self._choose(request)), sizes_of(request)
        grids = self.source.launches(sizes)
        problems = [p for number, groups in grids for p in grid_problems(built.entries[number], groups)]
        if problems:
            raise SpecError(problems)
        rooms, addressed = [0], [*names, *(f"{name}_list" for name in "abc" if self.source.spec.listed)]
        for name, size in request.workspaces.items():
            addressed.append(name)
            rooms.append(rooms[-1] + -(-size // ROOM_ALIGNMENT) * ROOM_ALIGNMENT)
        values: dict[str, complex] = {**sizes, **request.scalars}
        call = CudaCall(
            memory_of(matrices_of(request)[0].maker),
            device,
            names,
            Step(CudaLaunches(built, device, grids, addressed, values, factors), (0, 0, 0)),
            Outcome.of(request, names),
            tuple(rooms),
            self._captured,
            is_complex=self.source.spec.dtype.real is not None,
        )
        if self.source.spec.listed or request.is_empty:
            call.types = frozenset()
        return call

    def _timed(
        self,
        request: Request,
        names: Sequence[str],
        factors: Factors,
        queue: None,  # noqa: ARG002
        iterations: int,
    ) -> list[float]:
        if self.source.spec.listed:
            raise SpecError(
                "each call copies the addresses of listed matrices to the GPU, which no graph holds: "
                "time a batch with a constant stride"
            )
        return self._call(request, names, factors).times(request, iterations)


def _device(request: Request) -> int:
    """The GPU that the arrays of a call lie on."""
    return matrices_of(request)[0].device


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
