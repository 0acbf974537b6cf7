"""Queues: those of the caller's, and those that gemmgen makes of devices."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeAlias

import pyopencl as cl

from gemmgen.errors import DeviceError
from gemmgen.runtime.devices import DeviceInfo, pick
from gemmgen.runtime.kept import once
from gemmgen.runtime.programs import translated

DeviceLike: TypeAlias = DeviceInfo | cl.Device | cl.Context | cl.CommandQueue | int | str | None

PROFILING = cl.command_queue_properties.PROFILING_ENABLE
#: CL_QUEUE_THREAD_LOCAL_EXEC_ENABLE_INTEL of cl_intel_exec_by_local_thread.
WITHIN_CALLS = 1 << 31


@once
def own_context(device: cl.Device) -> cl.Context:
    """One context for each device that gemmgen chose. It is kept: queues of the Intel CPU runtime don't keep theirs."""
    return cl.Context([device])


@once
def own_queue(device: cl.Device) -> cl.CommandQueue:
    """One queue for each device that gemmgen chose; it measures time."""
    with translated(device):
        return cl.CommandQueue(own_context(device), device, PROFILING)


@once
def within_calls(device: cl.Device) -> cl.CommandQueue | None:
    """A queue whose kernels run in the thread that enqueues them, and wake no other: for small products. None where the
    device has no such. Python stands still meanwhile, so nothing may be waited for there.

    Source: cl_intel_exec_by_local_thread.
    """
    if "cl_intel_exec_by_local_thread" not in device.extensions.split():
        return None
    with suppress(cl.Error):  # then not
        return cl.CommandQueue(own_context(device), device, PROFILING | WITHIN_CALLS)
    return None


def resolve(device: DeviceLike, requires: frozenset[str] = frozenset()) -> cl.CommandQueue:
    """A queue on the device that is meant. Raises: DeviceError."""
    match device:
        case cl.CommandQueue():
            return device
        case cl.Context():
            return cl.CommandQueue(device, device.devices[0], PROFILING)
        case cl.Device():
            return own_queue(device)
        case DeviceInfo():
            return own_queue(device.handle)
        case None | int() | str():
            return own_queue(pick(device=device, requires=requires).handle)
    raise DeviceError(
        f"device = {device!r} is of type {type(device).__name__}: pass a number or part of a name (gemmgen devices), "
        "or a device, context or queue of pyopencl"
    )
