"""Kernels that are made once for each spec, schedule and device, and kept in the process."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, cast

from gemmgen.api import on_disk
from gemmgen.api.compile import compile as compile_kernel
from gemmgen.errors import DeviceError, ScheduleError
from gemmgen.ir.dtypes import F16
from gemmgen.ir.target import BLOCK_FEATURES, Target
from gemmgen.runtime.kept import Kept
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

Shape = tuple[int, int, int]
Choice = tuple[Schedule, GemmSpec]


class Kernel(Protocol):
    """What a compiled kernel of any backend is called with."""

    def __call__(
        self, a: object, b: object, c: object, *, alpha: complex, beta: complex, **operands: object
    ) -> object: ...

    def again(
        self, arrays: Mapping[str, object], alpha: complex | None, beta: complex | None, /
    ) -> tuple[object, object] | None: ...


@dataclass(frozen=True, slots=True)
class Place:
    """A device as `gemmgen.compile` takes it, and what it can do."""

    device: object
    target: Target


#: (backend, device as it was asked for, what it must have) -> which that is.
_places: Kept[tuple[str, Hashable, frozenset[str]], Place] = Kept(64)
#: (backend, device as it was asked for, spec, sizes with the number of products, schedule if it is named) -> the
#: schedule, and the spec with what that must be promised.
_choices: Kept[tuple[str, Hashable, GemmSpec, tuple[int, ...], Schedule | None], Choice] = Kept(4096)
#: The kernels themselves: compiled code, so fewer.
_kernels: Kept[tuple[str, Hashable, GemmSpec, Schedule], Kernel] = Kept(256)


def kernel_for(
    backend: str,
    device: object,
    spec: GemmSpec,
    schedule: Schedule | str | None,
    shape: Shape,
    products: int = 1,
    ld_multiple: int = 1,
) -> Kernel:
    """The kernel of a spec and a schedule for a device; by `gemmgen.choose` where no schedule is named.

    Args:
        products: of a batch.
        ld_multiple: what leading dimensions are known to be multiples of; promised to schedules that can't be had
            without it, since other kernels find out for each call.

    Raises: ScheduleError, DeviceError with every problem.
    """
    device = _named(device)
    if not isinstance(schedule, Schedule | str | None):
        raise ScheduleError(f"schedule is of type {type(schedule).__name__}: pass a Schedule or the name of a preset")
    if isinstance(schedule, str):
        from gemmgen import presets

        schedule = presets.load(schedule).schedule
    named, kept = schedule, replace(spec, ld_multiple=ld_multiple)
    chosen, promised = _choices.get(
        (backend, device, kept, (*shape, products), named),
        lambda: _remembered_choice(kept, named, shape, products, _place(backend, device, spec).target),
    )
    return _kernels.get((backend, device, promised, chosen), lambda: _make(backend, device, promised, chosen))


def target_for(backend: str, device: object, spec: GemmSpec) -> Target:
    """What such a kernel's device can do. Raises: DeviceError."""
    return _place(backend, _named(device), spec).target


def _named(device: object) -> Hashable:
    """A device as it can be asked for. Raises: DeviceError."""
    if not isinstance(device, Hashable):
        raise DeviceError(
            f"device is of type {type(device).__name__}: pass a number or part of a name (gemmgen devices)"
        )
    return device


def _remembered_choice(spec: GemmSpec, named: Schedule | None, shape: Shape, products: int, target: Target) -> Choice:
    about = spec, named, shape, products, target
    return on_disk.remembered("choice", about, lambda: choice(*about))


def choice(kept: GemmSpec, named: Schedule | None, shape: Shape, products: int, target: Target) -> Choice:
    """The schedule, named or chosen, and the spec with what its leading dimensions keep to only if that is asked for:
    by schedules that copy boxes, or whole words of elements that are less than one.
    """
    # Not needed by those who know the answer.
    from gemmgen.choose import choose
    from gemmgen.passes.validate import is_possible

    schedule = choose(kept, shape, target, products) if named is None else named
    free = replace(kept, ld_multiple=1)
    return schedule, free if is_possible(free, schedule, target) else kept


def _make(backend: str, device: Hashable, spec: GemmSpec, schedule: Schedule) -> Kernel:
    place = _place(backend, device, spec)
    # Each backend has devices of its own, and refuses others'.
    return cast(Kernel, compile_kernel(spec, schedule, backend, cast("None", place.device)))


def _place(backend: str, device: Hashable, spec: GemmSpec) -> Place:
    own = None if spec.emulate and spec.dtype == F16 else spec.dtype.needs
    needs = BLOCK_FEATURES | ({own} if own else set())
    return _places.get((backend, device, needs), lambda: _find(backend, device, needs))


def _find(backend: str, device: Hashable, needs: frozenset[str]) -> Place:
    """Raises: DeviceError."""
    if backend == "cuda":
        from gemmgen.runtime import cuda_devices

        gpu = cuda_devices.pick(cast("None", device))
        return Place(gpu, cuda_devices.target_of(gpu))
    if backend == "sycl":
        from gemmgen.runtime import sycl_devices

        info = sycl_devices.pick(cast("None", device), needs)
        return Place(info, sycl_devices.target_of(info))
    from gemmgen.runtime import require_pyopencl

    require_pyopencl()
    from gemmgen.runtime.devices import target_of
    from gemmgen.runtime.queues import resolve

    queue = resolve(cast("None", device), needs)
    return Place(queue, target_of(queue.device))
