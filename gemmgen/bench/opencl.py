"""Contenders on an OpenCL device: kernels of gemmgen."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np

from gemmgen.bench.libraries import Matrix, accuracy, random_matrices
from gemmgen.bench.records import HOST_WARM_UP, Size, check_measurable, launches, variant
from gemmgen.errors import SpecError
from gemmgen.kernel_names import kernel_name
from gemmgen.runtime.device import Device
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec


class OpenclKernel:
    """A kernel of gemmgen on an OpenCL device; `estimate` is the seconds of one run.

    A GPU's is timed by its events. A CPU's by the clock around each call and the wait for its result, as its peers are,
    and like theirs on NumPy's arrays where the device reaches them: large ones lie on huge pages, buffers do not.
    """

    def __init__(self, size: Size, spec: GemmSpec, schedule: Schedule, device: Device, seed: int) -> None:
        import pyopencl.array as cl_array

        from gemmgen.driver import emit
        from gemmgen.runtime.opencl import CompiledKernel
        from gemmgen.runtime.opencl_arrays import way_of
        from gemmgen.runtime.opencl_devices import DeviceInfo

        self.name = kernel_name(schedule, spec)
        check_measurable(spec, self.name)
        assert isinstance(device, DeviceInfo)
        spec = replace(spec, batched=size.batch > 0)
        source = emit(spec, schedule, "opencl", device.target)
        self.variant = variant(spec)
        self._kernel = CompiledKernel.from_source(source, device)
        queue = self._kernel.queue
        a, b = random_matrices(size, spec.dtype.name, seed)
        poison = np.full(size.shape(size.m, size.n), np.nan, spec.dtype.name)
        orders = (a, spec.a_order), (b, spec.b_order), (poison, spec.c_order)
        if size.batch and any(order == "col" for _, order in orders):
            raise SpecError(f"{self.name}: batches of column-major matrices are not measured on OpenCL")
        matrices = [np.array(x, order="C" if o == "row" else "F") for x, o in orders]
        in_place = way_of(queue.device) == "address"
        arrays = matrices if in_place else [cl_array.to_device(queue, x) for x in matrices]
        self._arrays = arrays
        self._kernel(*arrays)
        c = arrays[2]
        self.accuracy = accuracy(a, b, c if isinstance(c, np.ndarray) else cast("Matrix", c.get()))
        self.estimate = self._kernel.time(*arrays, iterations=2)[1]
        self._count = launches(self.estimate)

    def block(self) -> float:
        warm_up = self._count * (HOST_WARM_UP if self._kernel.device.type == "cpu" else 1)
        return float(np.mean(self._seconds(warm_up + self._count)[warm_up:]))

    def _seconds(self, count: int) -> list[float]:
        """Of each of so many products."""
        if self._kernel.device.type != "cpu":
            return self._kernel.time(*self._arrays, iterations=count)
        clock = [time.perf_counter()]
        for _ in range(count):
            self._kernel(*self._arrays, return_event=True)[1].wait()
            clock.append(time.perf_counter())
        return [end - begin for begin, end in pairwise(clock)]

    def close(self) -> None:
        self._arrays = []
