"""Where cases run: targets that the interpreter alone runs, and devices with every way to call a kernel there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from gemmgen.errors import DeviceError
from gemmgen.fuzz.case import OF_DEVICE, Case
from gemmgen.fuzz.checks import Place, Way
from gemmgen.fuzz.data import Matrix, Stored
from gemmgen.runtime.device import Device
from gemmgen.runtime.selection import RUNNABLE, pick

if TYPE_CHECKING:
    import cupy
    import pyopencl as cl

BACKENDS = ("interp", *RUNNABLE)
#: Targets that cases are drawn for where nothing but the interpreter runs them.
INTERPRETED = (
    *(("opencl", name) for name in ("intel", "khr", "portable")),
    ("sycl", "sycl"),
    *(("cuda", name) for name in ("sm_75", "sm_80", "sm_90", "sm_90a")),
)


def places(
    backend: str = "interp", platform: str | None = None, device: str | None = None, type_: str | None = None
) -> tuple[Place, ...]:
    """What to draw cases for. Raises: UserError with every problem."""
    if backend not in BACKENDS:
        raise DeviceError(f"backend {backend!r} does not exist: use one of {', '.join(BACKENDS)}")
    if backend != "interp":
        return (place_of(backend, pick(backend, platform, device, type_)),)
    given = {"--platform": platform, "--type": type_, "--device": device}
    if problems := [f"{x} {given[x]} means nothing to interp: leave it out" for x in given if given[x]]:
        raise DeviceError(problems)
    return tuple(Place.named(*pair) for pair in INTERPRETED)


def place_of(backend: str, device: Device) -> Place:
    """A device as a place for cases."""
    ways, runtime = {"opencl": (_on_opencl, ""), "sycl": (_on_sycl, " (SYCL)"), "cuda": (_on_cuda, "")}[backend]
    return Place(backend, OF_DEVICE, device.target, f"{device}{runtime}", partial(ways, device))


def _factors(case: Case) -> dict[str, complex]:
    """alpha and beta where they are arguments."""
    given = (("alpha", case.spec.alpha, case.alpha), ("beta", case.spec.beta, case.beta))
    return {name: value for name, folded, value in given if folded is None}


def _on_host(stored: Mapping[str, Stored]) -> dict[str, object]:
    """NumPy arrays, by the names of a call's arguments."""
    return {name: x.call(x.view) for name, x in stored.items()}


def _on_opencl(device: Device, case: Case) -> Mapping[str, Way]:
    """NumPy arrays on two queues, and arrays on the device. Raises: whatever the compiler or the launch has to say."""
    import pyopencl as cl

    import gemmgen
    from gemmgen.runtime.opencl_devices import DeviceInfo, own_context

    assert isinstance(device, DeviceInfo)
    kernel = gemmgen.compile(case.spec, case.schedule, backend="opencl", device=device.handle)
    factors, another = _factors(case), cl.CommandQueue(own_context(device.handle), device.handle)

    def on(queue: cl.CommandQueue | None) -> Way:
        def way(stored: Mapping[str, Stored]) -> None:
            kernel(**_on_host(stored), **factors, queue=queue)

        return way

    def resident(stored: Mapping[str, Stored]) -> None:
        there = {name: on_device(x, another) for name, x in stored.items()}
        operands = {name: x.call(there[name]) for name, x in stored.items()}
        _, event = kernel(**operands, **factors, return_event=True)
        event.wait()
        cl.enqueue_copy(another, stored["c"].memory, there["c"].base_data)
        another.finish()

    return {"NumPy arrays": on(None), "another queue": on(another), "device arrays": resident}


def on_device(stored: Stored, queue: cl.CommandQueue) -> cl.array.Array:
    """The matrices, and the canaries around them, in the device's memory."""
    import pyopencl as cl
    import pyopencl.array

    memory, view = stored.memory, stored.view
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=memory)
    return pyopencl.array.Array(
        queue, view.shape, view.dtype, strides=view.strides, data=buffer, offset=stored.begin * view.itemsize
    )


def _on_sycl(device: Device, case: Case) -> Mapping[str, Way]:
    """NumPy arrays. Raises: whatever the compiler or the launch has to say."""
    import gemmgen

    kernel: Callable[..., object] = gemmgen.compile(case.spec, case.schedule, backend="sycl", device=device)

    def way(stored: Mapping[str, Stored]) -> None:
        kernel(**_on_host(stored), **_factors(case))

    return {"NumPy arrays": way}


def _on_cuda(device: Device, case: Case) -> Mapping[str, Way]:
    """Arrays on the GPU, on two streams. Raises: whatever the compiler or the launch has to say."""
    import cupy

    import gemmgen

    kernel: Callable[..., object] = gemmgen.compile(case.spec, case.schedule, backend="cuda", device=device.number)

    def on(make: Callable[[], cupy.cuda.Stream]) -> Way:
        def way(stored: Mapping[str, Stored]) -> None:
            with cupy.cuda.Device(device.number), make() as stream:
                memory = {name: cupy.asarray(x.memory) for name, x in stored.items()}
                operands = {name: x.call(_view(memory[name], x)) for name, x in stored.items()}
                kernel(**operands, **_factors(case), stream=stream)
                result: Matrix = memory["c"].get(stream=stream)
                stream.synchronize()
                stored["c"].memory[:] = result

        return way

    return {
        "the default stream": on(lambda: cupy.cuda.Stream(null=True)),
        "another stream": on(lambda: cupy.cuda.Stream(non_blocking=True)),
    }


def _view(memory: cupy.ndarray, stored: Stored) -> cupy.ndarray:
    import cupy

    view = stored.view
    return cupy.ndarray(view.shape, view.dtype, memory.data + stored.begin * view.itemsize, view.strides)
