"""OpenCL for files that test other languages as well: pyopencl, which may not be installed, is imported by tests that
have a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmgen import driver
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

if TYPE_CHECKING:
    from gemmgen.runtime.opencl import CompiledKernel
    from gemmgen.runtime.opencl_devices import DeviceInfo


def compiled(spec: GemmSpec, schedule: Schedule, device: DeviceInfo) -> CompiledKernel:
    """A schedule's kernel as it is emitted for a device."""
    from gemmgen.runtime.opencl import CompiledKernel
    from gemmgen.runtime.opencl_devices import target_of

    return CompiledKernel.from_source(driver.emit(spec, schedule, target=target_of(device.handle)), device)
