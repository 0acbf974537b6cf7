"""`gemmgen.compile`: from a request to a callable kernel. Heavy modules are imported at their first use."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, cast, overload

from gemmgen.api import on_disk
from gemmgen.errors import ScheduleError, SpecError
from gemmgen.ir.target import BLOCK_FEATURES, Target, measured_on
from gemmgen.runtime.cache import once
from gemmgen.runtime.selection import FORMS, RUNNABLE, chosen, loaded
from gemmgen.spec import GemmSpec, LdMultiple

if TYPE_CHECKING:
    from gemmgen.runtime.cuda import CudaKernel
    from gemmgen.runtime.cuda_devices import CudaDeviceLike
    from gemmgen.runtime.opencl import CompiledKernel
    from gemmgen.runtime.opencl_devices import DeviceLike
    from gemmgen.runtime.selection import Compiled
    from gemmgen.runtime.sycl import SyclKernel
    from gemmgen.runtime.sycl_devices import SyclDeviceLike
    from gemmgen.schedule import Schedule
    from gemmgen.source import Source


@overload
def compile(  # noqa: A001
    spec: GemmSpec | None = None,
    schedule: Schedule | str | None = None,
    backend: Literal["opencl"] = "opencl",
    device: DeviceLike = None,
    *,
    ld_multiple: LdMultiple | None = None,
    invariant: bool = False,
) -> CompiledKernel: ...


@overload
def compile(  # noqa: A001
    spec: GemmSpec | None = None,
    schedule: Schedule | str | None = None,
    *,
    backend: Literal["cuda"],
    device: CudaDeviceLike = None,
    ld_multiple: LdMultiple | None = None,
    invariant: bool = False,
) -> CudaKernel: ...


@overload
def compile(  # noqa: A001
    spec: GemmSpec | None = None,
    schedule: Schedule | str | None = None,
    *,
    backend: Literal["sycl"],
    device: SyclDeviceLike = None,
    ld_multiple: LdMultiple | None = None,
    invariant: bool = False,
) -> SyclKernel: ...


@overload
def compile(  # noqa: A001
    spec: GemmSpec | None = None,
    schedule: Schedule | str | None = None,
    backend: str = "opencl",
    device: DeviceLike | CudaDeviceLike = None,
    *,
    ld_multiple: LdMultiple | None = None,
    invariant: bool = False,
) -> CompiledKernel | CudaKernel | SyclKernel: ...


def compile(  # noqa: A001  (called as gemmgen.compile)
    spec: GemmSpec | None = None,
    schedule: Schedule | str | None = None,
    backend: str = "opencl",
    device: DeviceLike | CudaDeviceLike = None,
    *,
    ld_multiple: LdMultiple | None = None,
    invariant: bool = False,
) -> CompiledKernel | CudaKernel | SyclKernel:
    """Emit a kernel for a device, and build it.

    Args:
        spec: the product; None for the preset's, or float32 with run-time sizes, alpha and beta.
        schedule: a schedule, or the name of a preset (`gemmgen presets`); None for what `gemmgen tune` has found for
            the spec's sizes, or else the choice of `gemmgen.choose`.
        backend: `opencl` for a `CompiledKernel`, `cuda` for a `CudaKernel`, `sycl` for a `SyclKernel`.
        device: None for the best (CUDA: the current one, SYCL: its default), a number or part of a name
            (`gemmgen devices`), or a device, context or queue of pyopencl; for CUDA a device of CuPy or torch.
        ld_multiple: replaces the spec's: leading dimensions are assumed to be multiples of it. If neither is given, a
            CUDA kernel has a variant that assumes 4, and each call runs the variant that its arrays allow. The first
            such call compiles it, or `.build()`. With 1 there is one kernel for all arrays. OpenCL's and SYCL's
            vectors need no alignment, so there is always one kernel.
        invariant: whether kernels that differ in M alone give a row the same bits (docs/numerics.md).

    Matrices that span 2^31 elements and more are multiplied by a variant with 64-bit indices. The first call that needs
    it compiles it.

    Raises: SpecError, ScheduleError, DeviceError with every problem.
    """
    if spec is not None and not isinstance(spec, GemmSpec):
        raise SpecError(f"spec is of type {type(spec).__name__}: pass a GemmSpec, or None for float32 of any size")
    if schedule is not None and not _is_schedule(schedule):
        raise ScheduleError(f"schedule is of type {type(schedule).__name__}: pass a Schedule or the name of a preset")
    if invariant:
        schedule = _in_one_order(spec or GemmSpec(), schedule, backend, device, ld_multiple)
    if schedule is None and spec is not None:
        schedule = _recorded(spec, backend, device)
    kernel = _compiled(spec, schedule, backend, device, ld_multiple)
    kernel.wider = once(lambda: wider(kernel.source.spec, schedule, backend, device, ld_multiple))
    return cast("CompiledKernel", kernel)


def wider(
    spec: GemmSpec, schedule: Schedule | str | None, backend: str, device: object, ld_multiple: LdMultiple | None
) -> Compiled:
    """The variant with 64-bit indices, which the first call makes whose matrices need it. Raises: as `compile`."""
    return _compiled(replace(spec, wide=True), schedule, backend, device, ld_multiple)


def _compiled(
    spec: GemmSpec | None, schedule: Schedule | str | None, backend: str, device: object, ld_multiple: LdMultiple | None
) -> Compiled:
    """A kernel without its 64-bit variant. Raises: as `compile`."""
    known, how = _of_preset(spec, schedule)
    place = chosen(backend, device, wishes(how))
    if backend != "cuda":
        return loaded(
            backend, emitted(known, how, ld_multiple, backend, place.target, FORMS.get(backend)), place.device
        )
    if how is None:
        from gemmgen.choose import choose

        how = choose(known, None, place.target)
    kernel = cuda_kernel(with_ld_multiple(known, ld_multiple), how, device, exact=ld_multiple is not None)
    return cast("Compiled", kernel)


def _recorded(spec: GemmSpec, backend: str, device: object) -> Schedule | None:
    """The schedule that was measured for a product of known sizes on a device, by its number or name."""
    from gemmgen import tuning

    by_name = spec.grouped is None and (device is None or isinstance(device, int | str))
    if not by_name or None in (spec.m, spec.n, spec.k) or backend not in RUNNABLE or not tuning.has_records(backend):
        return None
    from gemmgen.tuning.device import by_argument
    from gemmgen.tuning.recorded import ask

    found = by_argument(backend, device, wishes(None))
    known = ask(backend, found, found.target, spec, None)
    return None if known is None else known.schedule


def _in_one_order(
    spec: GemmSpec, schedule: Schedule | str | None, backend: str, device: object, ld_multiple: LdMultiple | None
) -> Schedule | str:
    """The schedule of a kernel whose rows have the same bits whatever their number. Raises: ScheduleError."""
    from gemmgen.choose import choose
    from gemmgen.sum_order import with_fixed_order

    known, named = _of_preset(spec, schedule)
    if named is not None:
        with_fixed_order(named)
        return schedule or named
    return choose(
        with_ld_multiple(known, ld_multiple), None, chosen(backend, device, wishes(None)).target, 1, invariant=True
    )


def _is_schedule(value: object) -> bool:
    """Whether a value is a schedule, or a name that may be a preset's."""
    from gemmgen.schedule import Schedule

    return isinstance(value, Schedule | str)


def with_ld_multiple(spec: GemmSpec | None, ld_multiple: LdMultiple | None) -> GemmSpec:
    """The spec with the argument `ld_multiple`. Raises: SpecError."""
    spec = spec or GemmSpec()
    return spec if ld_multiple is None else replace(spec, ld_multiple=ld_multiple)


def _of_preset(spec: GemmSpec | None, schedule: Schedule | str | None) -> tuple[GemmSpec, Schedule | None]:
    """The spec and the schedule of a preset, if `schedule` is a name; otherwise the arguments."""
    if not isinstance(schedule, str):
        return spec or GemmSpec(), schedule
    from gemmgen import presets

    preset = presets.load(schedule)
    return spec or preset.spec, preset.schedule


def emitted(
    spec: GemmSpec,
    schedule: Schedule | None,
    ld_multiple: LdMultiple | None,
    backend: str,
    target: Target,
    form: str | None = None,
) -> Source:
    """The source. A schedule is chosen if none is given. Raises: SpecError, ScheduleError."""

    def emit() -> Source:
        from gemmgen import driver
        from gemmgen.choose import choose

        return driver.emit(
            with_ld_multiple(spec, ld_multiple), schedule or choose(spec, None, target), backend, target, form
        )

    about = spec, schedule, ld_multiple, backend, target, form, measured_on(target)
    return on_disk.remembered("source", about, emit)


def cuda_kernel(
    spec: GemmSpec, schedule: Schedule, device: CudaDeviceLike = None, exact: bool = False, strict: bool = False
) -> CudaKernel:
    """The kernel that `compile` makes for CUDA. All commands that run a schedule on CUDA use it.

    Args:
        device: None for the current GPU now, and for the arrays' GPU in each call.
        exact: whether the spec's `ld_multiple` is final, so that there is no variant.
        strict: whether kernels that spill registers, as ptxas reports, are refused (variants as well).

    Raises: SpecError, ScheduleError, DeviceError with every problem.
    """
    from gemmgen.runtime.cuda import CudaKernel
    from gemmgen.runtime.cuda_devices import pick, target_of
    from gemmgen.runtime.variants import Variants

    info = pick(device)
    arch, target = "sm_{}{}".format(*info.capability), target_of(info)

    def made(spec: GemmSpec) -> Source:
        source = emitted(spec, schedule, None, "cuda", target)
        if strict:
            from gemmgen.runtime.ptxas import refuse_spills

            refuse_spills(source, arch)
        return source

    variants = Variants(made(spec), variant_specs(spec, schedule, target, exact), made)
    for variant in variants.assuming if strict else ():
        variants.twin(variant)  # now, not by a later call
    return CudaKernel.from_source(variants.general, device, variants)


def variant_specs(spec: GemmSpec, schedule: Schedule, target: Target, exact: bool = False) -> tuple[GemmSpec, ...]:
    """The specs of a CUDA kernel's variants (`runtime/variants.py`)."""

    def work_out() -> tuple[GemmSpec, ...]:
        from gemmgen.driver import emit
        from gemmgen.passes.validate import is_transposed
        from gemmgen.runtime.variants import variants_of

        general = emit(spec, schedule, "cuda", target)
        return variants_of(general, schedule, exact, is_transposed(spec, schedule, target))

    return on_disk.remembered("variants", (spec, schedule, target, exact), work_out)


def wishes(schedule: Schedule | str | None) -> frozenset[str]:
    """The features that a schedule needs, for the choice of a device."""
    if schedule is None:
        return BLOCK_FEATURES
    assert not isinstance(schedule, str)
    operands = (schedule.a, schedule.b)
    asked = {
        "sub_groups": schedule.sub_group is not None or any(o.shuffle or o.block_read for o in operands),
        "block_read": any(o.block_read and o.memory != "image" for o in operands),
        "image_block_read": any(o.block_read and o.memory == "image" for o in operands),
    }
    return frozenset(feature for feature, needed in asked.items() if needed)
