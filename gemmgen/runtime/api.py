"""From a request to a kernel that can be called. Nothing heavy is imported before it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from gemmgen.errors import DeviceError, ScheduleError, SpecError
from gemmgen.runtime import require_pyopencl
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

if TYPE_CHECKING:
    from gemmgen.runtime.opencl import CompiledKernel, DeviceLike

#: What `compile` uses where no schedule is given: on devices with sub-groups, and on others.
DEFAULT_PRESET = "L3_SIMD_32x2_1x8"
PORTABLE_PRESET = "lds_8x8_16x16_k8"

_HOMES = {"CompiledKernel": "opencl", "devices": "devices"}


def compile(  # noqa: A001  (called as gemmgen.compile)
    spec: GemmSpec | None = None,
    schedule: Schedule | str | None = None,
    backend: str = "opencl",
    device: DeviceLike = None,
) -> CompiledKernel:
    """Emit a kernel for a device, and build it.

    Args:
        spec: what to compute; None for the preset's, or float32 with run-time sizes, alpha and beta.
        schedule: how; the name of a preset (`gemmgen presets`), or None for `DEFAULT_PRESET` where the device
            has sub-groups, else `PORTABLE_PRESET`.
        backend: `opencl`, the one that can be run so far.
        device: None for the best, a number or part of a name (`gemmgen devices`), or a device, context or queue of
            pyopencl.

    Raises: SpecError, ScheduleError, DeviceError with every problem.
    """
    if spec is not None and not isinstance(spec, GemmSpec):
        raise SpecError(f"spec is of type {type(spec).__name__}: pass a GemmSpec, or None for float32 of any size")
    if schedule is not None and not isinstance(schedule, Schedule | str):
        raise ScheduleError(f"schedule is of type {type(schedule).__name__}: pass a Schedule or the name of a preset")
    if backend != "opencl":
        raise DeviceError(f"backend {backend!r} cannot be run from Python: use backend='opencl'")
    from gemmgen import presets
    from gemmgen.driver import emit
    from gemmgen.runtime.devices import target_of
    from gemmgen.runtime.opencl import CompiledKernel, resolve

    preset = presets.load(schedule) if isinstance(schedule, str) else None
    queue = resolve(device, wishes(preset.schedule if preset else schedule))
    target = target_of(queue.device)
    if schedule is None:
        preset = presets.load(DEFAULT_PRESET if wishes(None) <= target.features else PORTABLE_PRESET)
    if preset is not None:
        spec, schedule = spec or preset.spec, preset.schedule
    assert isinstance(schedule, Schedule)
    return CompiledKernel.from_source(emit(spec or GemmSpec(), schedule, backend, target), queue)


def wishes(schedule: Schedule | str | None) -> frozenset[str]:
    """Features that a schedule will ask of a device, so that one is chosen that has them."""
    if schedule is None:
        return frozenset({"sub_groups", "block_read", "required_sub_group_size"})
    assert isinstance(schedule, Schedule)
    operands = (schedule.a, schedule.b)
    asked = {
        "sub_groups": schedule.sub_group is not None or any(o.share or o.block for o in operands),
        "block_read": any(o.block and o.memory != "image" for o in operands),
        "image_block_read": any(o.block and o.memory == "image" for o in operands),
    }
    return frozenset(feature for feature, needed in asked.items() if needed)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_pyopencl()
    value: object = getattr(import_module(f"gemmgen.runtime.{_HOMES[name]}"), name)
    return value
