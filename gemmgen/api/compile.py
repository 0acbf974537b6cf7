"""From a request to a kernel that can be called. Nothing heavy is imported before it is used."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, overload

from gemmgen.api import on_disk
from gemmgen.errors import DeviceError, ScheduleError, SpecError
from gemmgen.ir.target import BLOCK_FEATURES, Target
from gemmgen.runtime.kept import once
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

if TYPE_CHECKING:
    from gemmgen.runtime.cuda import CudaKernel
    from gemmgen.runtime.cuda_devices import CudaDeviceLike
    from gemmgen.runtime.opencl import CompiledKernel
    from gemmgen.runtime.queues import DeviceLike
    from gemmgen.runtime.sycl import SyclKernel
    from gemmgen.runtime.sycl_devices import SyclDeviceLike
    from gemmgen.source import Source

#: Backends whose kernels can be run from Python.
RUNNABLE = ("opencl", "cuda", "sycl")


@overload
def compile(  # noqa: A001
    spec: GemmSpec | None = None,
    schedule: Schedule | str | None = None,
    backend: Literal["opencl"] = "opencl",
    device: DeviceLike = None,
    *,
    ld_multiple: int | None = None,
) -> CompiledKernel: ...


@overload
def compile(  # noqa: A001
    spec: GemmSpec | None = None,
    schedule: Schedule | str | None = None,
    *,
    backend: Literal["cuda"],
    device: CudaDeviceLike = None,
    ld_multiple: int | None = None,
) -> CudaKernel: ...


@overload
def compile(  # noqa: A001
    spec: GemmSpec | None = None,
    schedule: Schedule | str | None = None,
    *,
    backend: Literal["sycl"],
    device: SyclDeviceLike = None,
    ld_multiple: int | None = None,
) -> SyclKernel: ...


@overload
def compile(  # noqa: A001
    spec: GemmSpec | None = None,
    schedule: Schedule | str | None = None,
    backend: str = "opencl",
    device: DeviceLike | CudaDeviceLike = None,
    *,
    ld_multiple: int | None = None,
) -> CompiledKernel | CudaKernel | SyclKernel: ...


def compile(  # noqa: A001  (called as gemmgen.compile)
    spec: GemmSpec | None = None,
    schedule: Schedule | str | None = None,
    backend: str = "opencl",
    device: DeviceLike | CudaDeviceLike = None,
    *,
    ld_multiple: int | None = None,
) -> CompiledKernel | CudaKernel | SyclKernel:
    """Emit a kernel for a device, and build it.

    Args:
        spec: what to compute; None for the preset's, or float32 with run-time sizes, alpha and beta.
        schedule: how; the name of a preset (`gemmgen presets`), or None for what `gemmgen.choose` says of a
            product of any size.
        backend: `opencl` for a `CompiledKernel`, `cuda` for a `CudaKernel`, `sycl` for a `SyclKernel`.
        device: None for the best (of CUDA the current one, of SYCL its default), a number or part of a name
            (`gemmgen devices`), or a device, context or queue of pyopencl; of CUDA a device of CuPy or torch.
        ld_multiple: what leading dimensions are promised to be multiples of, in place of the spec's. Where neither
            promises anything, a CUDA kernel has a twin that is promised 4, and each call runs the one that its arrays
            allow; the first call that the twin is for compiles it, unless `.build()` has. 1 gives one kernel for all.
            OpenCL's and SYCL's vectors need no alignment, so that one kernel is as good as any.

    Matrices that span 2^31 elements and more are multiplied by a twin that counts places in 64 bits; the first call
    that needs it compiles it.

    Raises: SpecError, ScheduleError, DeviceError with every problem.
    """
    if spec is not None and not isinstance(spec, GemmSpec):
        raise SpecError(f"spec is of type {type(spec).__name__}: pass a GemmSpec, or None for float32 of any size")
    if schedule is not None and not isinstance(schedule, Schedule | str):
        raise ScheduleError(f"schedule is of type {type(schedule).__name__}: pass a Schedule or the name of a preset")
    # The twins are made by the first call whose matrices need them.
    if backend == "cuda":
        cuda = _compile_cuda(spec, schedule, device, ld_multiple)
        cuda.wider = once(lambda: _compile_cuda(replace(cuda.source.spec, wide=True), schedule, device, ld_multiple))
        return cuda
    if backend == "sycl":
        sycl = _compile_sycl(spec, schedule, device, ld_multiple)
        sycl.wider = once(lambda: _compile_sycl(replace(sycl.source.spec, wide=True), schedule, device, ld_multiple))
        return sycl
    if backend != "opencl":
        raise DeviceError(f"backend {backend!r} cannot be run from Python: use one of {', '.join(RUNNABLE)}")
    kernel = _compile_opencl(spec, schedule, device, ld_multiple)
    kernel.wider = once(lambda: _compile_opencl(replace(kernel.source.spec, wide=True), schedule, device, ld_multiple))
    return kernel


def promised(spec: GemmSpec | None, ld_multiple: int | None) -> GemmSpec:
    """The spec with the promise that was given beside it. Raises: SpecError."""
    spec = spec or GemmSpec()
    return spec if ld_multiple is None else replace(spec, ld_multiple=ld_multiple)


def _compile_opencl(
    spec: GemmSpec | None, schedule: Schedule | str | None, device: DeviceLike, ld_multiple: int | None
) -> CompiledKernel:
    from gemmgen.runtime.devices import target_of
    from gemmgen.runtime.opencl import CompiledKernel
    from gemmgen.runtime.queues import resolve

    known, how = _of_preset(spec, schedule)
    queue = resolve(device, wishes(how))
    return CompiledKernel.from_source(_emitted(known, how, ld_multiple, "opencl", target_of(queue.device)), queue)


def _compile_sycl(
    spec: GemmSpec | None, schedule: Schedule | str | None, device: SyclDeviceLike, ld_multiple: int | None
) -> SyclKernel:
    from gemmgen.runtime.sycl import SyclKernel
    from gemmgen.runtime.sycl_devices import pick, target_of

    known, how = _of_preset(spec, schedule)
    info = pick(device, wishes(how))
    return SyclKernel.from_source(_emitted(known, how, ld_multiple, "sycl", target_of(info), "kernel"), info)


def _of_preset(spec: GemmSpec | None, schedule: Schedule | str | None) -> tuple[GemmSpec, Schedule | None]:
    """What a preset's name stands for; all else as it is given."""
    if not isinstance(schedule, str):
        return spec or GemmSpec(), schedule
    from gemmgen import presets

    preset = presets.load(schedule)
    return spec or preset.spec, preset.schedule


def _emitted(
    spec: GemmSpec,
    schedule: Schedule | None,
    ld_multiple: int | None,
    backend: str,
    target: Target,
    form: str | None = None,
) -> Source:
    """The source, of a schedule that is chosen where none is given. Raises: SpecError, ScheduleError."""

    def emit() -> Source:
        from gemmgen import driver
        from gemmgen.choose import choose

        return driver.emit(promised(spec, ld_multiple), schedule or choose(spec, None, target), backend, target, form)

    return on_disk.remembered("source", (spec, schedule, ld_multiple, backend, target, form), emit)


def _compile_cuda(
    spec: GemmSpec | None, schedule: Schedule | str | None, device: CudaDeviceLike, ld_multiple: int | None
) -> CudaKernel:
    from gemmgen import presets
    from gemmgen.choose import choose
    from gemmgen.runtime.cuda_devices import pick, target_of

    if schedule is None:
        spec = spec or GemmSpec()
        schedule = choose(spec, None, target_of(pick(device)))
    if isinstance(schedule, str):
        preset = presets.load(schedule)
        spec, schedule = spec or preset.spec, preset.schedule
    assert isinstance(schedule, Schedule)
    return cuda_kernel(promised(spec, ld_multiple), schedule, device, exact=ld_multiple is not None)


def cuda_kernel(
    spec: GemmSpec, schedule: Schedule, device: CudaDeviceLike = None, exact: bool = False, strict: bool = False
) -> CudaKernel:
    """The kernel that `compile` makes for CUDA, and what everything runs that says it runs a schedule.

    Args:
        device: None for the current one, and later for those of the arrays.
        exact: whether the spec's `ld_multiple` is meant as it stands, so that there is no twin.
        strict: whether spilled registers are refused, by ptxas' word (of the twin as well).

    Raises: SpecError, ScheduleError, DeviceError with every problem.
    """
    from gemmgen.driver import emit
    from gemmgen.passes.validate import is_transposed
    from gemmgen.runtime.cuda import CudaKernel
    from gemmgen.runtime.cuda_devices import pick, target_of
    from gemmgen.runtime.ptxas import refuse_spills
    from gemmgen.runtime.variants import Variants

    info = pick(device)
    arch, target = "sm_{}{}".format(*info.capability), target_of(info)

    def emitted(spec: GemmSpec) -> Source:
        source = emit(spec, schedule, "cuda", target)
        if strict:
            refuse_spills(source, arch)
        return source

    variants = Variants(spec, schedule, emitted, exact, is_transposed(spec, schedule, target))
    for promised_more in variants.promised if strict else ():
        variants.twin(promised_more)  # not by some call in the midst of a program
    return CudaKernel.from_source(variants.general, device, variants)


def wishes(schedule: Schedule | str | None) -> frozenset[str]:
    """Features that a schedule will ask of a device, so that one is chosen that has them."""
    if schedule is None:
        return BLOCK_FEATURES
    assert isinstance(schedule, Schedule)
    operands = (schedule.a, schedule.b)
    asked = {
        "sub_groups": schedule.sub_group is not None or any(o.share or o.block for o in operands),
        "block_read": any(o.block and o.memory != "image" for o in operands),
        "image_block_read": any(o.block and o.memory == "image" for o in operands),
    }
    return frozenset(feature for feature, needed in asked.items() if needed)
