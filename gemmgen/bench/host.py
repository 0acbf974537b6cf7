"""Contenders beside the GPU's of CUDA: libraries in processes of their own, and OpenCL kernels by their events."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gemmgen.bench.measure import HOST_WARM_UP, launches
from gemmgen.bench.records import Accuracy, Size, variant
from gemmgen.errors import DeviceError, SpecError
from gemmgen.methods import slug
from gemmgen.oracle import answer
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, parse_dtype

Matrix = NDArray[np.floating]
#: A result of more flops than this is checked against float64 on some rows only.
WHOLE_FLOPS = 2**33
SOME_ROWS = 64


def random_matrices(size: Size, dtype: str, seed: int) -> tuple[Matrix, Matrix]:
    """A and B, normal numbers."""
    rng = np.random.default_rng(seed)
    shapes = size.shape(size.m, size.k), size.shape(size.k, size.n)
    drawn = np.float64 if dtype == "float64" else np.float32
    a, b = (cast("Matrix", rng.standard_normal(shape, dtype=drawn).astype(dtype)) for shape in shapes)
    return a, b


def accuracy(a: Matrix, b: Matrix, c: Matrix) -> Accuracy:
    """Of a result, on all rows or on some of them, the last among them; every element must be finite."""
    rows = np.arange(a.shape[-2])
    if 2 * a.size * b.shape[-1] > WHOLE_FLOPS and len(rows) > SOME_ROWS:
        rows = np.unique(np.append(np.random.default_rng(0).choice(rows, SOME_ROWS - 1, replace=False), rows[-1]))
    spec = GemmSpec(dtype=parse_dtype(str(a.dtype)))
    right = answer(spec, (a[..., rows, :], b, None))
    some = c[..., rows, :]
    return Accuracy(
        float(np.linalg.norm(right.distance(some).ravel()) / np.linalg.norm(right.value.ravel())),
        float(right.parts(some).max()) if np.isfinite(c).all() else float("inf"),
    )


class PeerProcess:
    """A library in another process, whose threads then disturb no one's.

    Args:
        device: the number of the OpenCL device, for a library that needs one.

    Raises: DeviceError.
    """

    def __init__(self, name: str, size: Size, dtype: str, seed: int, device: int | None = None) -> None:
        self.name, self.variant = name, ""
        what = [
            name,
            *map(str, (size.m, size.n, size.k, size.batch)),
            dtype,
            str(seed),
            *([] if device is None else [str(device)]),
        ]
        command = [sys.executable, "-m", "gemmgen.bench.worker", *what]
        pipe = subprocess.PIPE
        # In a process group of its own, so that the terminal sends its Ctrl-C to this process alone.
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, process_group=0)
        try:
            error, worst = self._ask("check")
        except BaseException:
            self.close()
            raise
        self.accuracy = Accuracy(error, worst)

    def block(self) -> float:
        return self._ask("block")[0]

    def cold(self) -> float:
        return self._ask("cold")[0]

    def close(self) -> None:
        if self._process.stdin is not None:
            with suppress(OSError):  # what it was still to be told, where it has ended early
                self._process.stdin.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.terminate()  # it may be amid a product whose time is no longer wanted
        self._process.wait()

    def _ask(self, what: str) -> tuple[float, ...]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{what}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except OSError:
            answer = ""
        if answer.startswith("error "):
            raise DeviceError(f"{self.name}: {answer.removeprefix('error ').strip()}")
        if not answer:
            raise DeviceError(
                f"the process that measures {self.name} ended early: is there memory for matrices of this size?"
            )
        return tuple(map(float, answer.split()))


class OpenclKernel:
    """A kernel of gemmgen on an OpenCL device; `estimate` is the seconds of one run.

    A GPU's is timed by its events. A CPU's by the clock around each call and the wait for its result, as its peers are,
    and like theirs on NumPy's arrays where the device reaches them: large ones lie on huge pages, buffers do not.
    """

    def __init__(self, size: Size, spec: GemmSpec, schedule: Schedule, device: object, seed: int) -> None:
        import pyopencl.array as cl_array

        from gemmgen.driver import emit
        from gemmgen.runtime.devices import DeviceInfo, target_of
        from gemmgen.runtime.host import way_of
        from gemmgen.runtime.opencl import CompiledKernel

        if spec.beta not in (None, 0.0) or spec.alpha not in (None, 1.0):
            raise SpecError(f"{slug(schedule)} has alpha or beta folded in: leave them run-time")
        if spec.operands or spec.names_c or spec.a_dtype or spec.b_dtype or spec.prologue_a or spec.prologue_b:
            raise SpecError(f"{slug(schedule)} takes other arrays than A and B of one type: leave them out")
        assert isinstance(device, DeviceInfo)
        spec = replace(spec, batched=size.batch > 0)
        source = emit(spec, schedule, "opencl", target_of(device.handle))
        self.name, self.variant = slug(schedule), variant(spec)
        self._kernel = CompiledKernel.from_source(source, device)
        queue = self._kernel.queue
        a, b = random_matrices(size, spec.dtype.name, seed)
        poison = np.full(size.shape(size.m, size.n), np.nan, spec.dtype.name)
        orders = (a, spec.a_order), (b, spec.b_order), (poison, spec.c_order)
        if size.batch and any(order == "col" for _, order in orders):
            raise SpecError(f"{slug(schedule)}: batches of column-major matrices are not measured on OpenCL")
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

    def cold(self) -> float:
        return float(np.mean(self._seconds(self._count)))

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
