"""Devices that cases run on: every way to call a kernel there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gemmgen.errors import DeviceError
from gemmgen.fuzz.case import OF_DEVICE, Case
from gemmgen.fuzz.checks import Device, Place, Way
from gemmgen.fuzz.data import Matrix, Stored

if TYPE_CHECKING:
    import cupy
    import pyopencl as cl

    from gemmgen.runtime.cuda_devices import CudaDeviceInfo
    from gemmgen.runtime.devices import DeviceInfo
    from gemmgen.runtime.sycl_devices import SyclDeviceInfo

#: What is compiled, called with arguments by their names alone.
Kernel = Callable[..., object]
#: Of targets that cases are drawn for where nothing but the interpreter runs them.
INTERPRETED = (
    *(("opencl", name) for name in ("intel", "khr", "portable")),
    ("sycl", "sycl"),
    *(("cuda", name) for name in ("sm_75", "sm_80", "sm_90", "sm_90a")),
)


def places(
    backend: str = "interp", platform: str | None = None, device: str | None = None, type_: str | None = None
) -> tuple[Place, ...]:
    """What to draw cases for. Raises: DeviceError."""
    if backend not in BACKENDS:
        raise DeviceError(f"backend {backend!r} does not exist: use one of {', '.join(BACKENDS)}")
    given = {"--platform": platform, "--type": type_, "--device": device}
    unused = {"opencl": (), "interp": tuple(given)}.get(backend, ("--platform", "--type"))
    if problems := [f"{x} {given[x]} means nothing to {backend}: leave it out" for x in unused if given[x]]:
        raise DeviceError(problems)
    if backend == "interp":
        return tuple(Place.named(*pair) for pair in INTERPRETED)
    found = FINDERS[backend](platform, device, type_)
    return (Place(found.backend, OF_DEVICE, found.target, found),)


def _opencl(platform: str | None, device: str | None, type_: str | None) -> Device:
    from gemmgen.runtime import devices, require_pyopencl

    require_pyopencl()
    return OpenclDevice(devices.pick(platform, device, type_))


def _sycl(_platform: str | None, device: str | None, _type: str | None) -> Device:
    from gemmgen.runtime import sycl_devices

    return SyclDevice(sycl_devices.pick(device))


def _cuda(_platform: str | None, device: str | None, _type: str | None) -> Device:
    from gemmgen.runtime import cuda_devices

    return CudaDevice(cuda_devices.pick(device))


#: How a backend's device is found.
FINDERS = {"opencl": _opencl, "sycl": _sycl, "cuda": _cuda}
BACKENDS = ("interp", *FINDERS)


def _factors(case: Case) -> dict[str, complex]:
    """alpha and beta where they are arguments."""
    given = (("alpha", case.spec.alpha, case.alpha), ("beta", case.spec.beta, case.beta))
    return {name: value for name, folded, value in given if folded is None}


def _on_host(stored: Mapping[str, Stored]) -> dict[str, object]:
    """NumPy arrays, by the names of a call's arguments."""
    return {name: x.call(x.view) for name, x in stored.items()}


class OpenclDevice:
    """One of OpenCL: NumPy arrays on two queues, arrays on the device."""

    backend = "opencl"

    def __init__(self, info: DeviceInfo) -> None:
        from gemmgen.runtime.devices import target_of

        self.label, self._handle, self.target = str(info), info.handle, target_of(info.handle)

    def ways(self, case: Case) -> Mapping[str, Way]:
        """Raises: whatever the compiler or the launch has to say."""
        import pyopencl as cl

        import gemmgen
        from gemmgen.runtime.queues import own_context

        kernel = gemmgen.compile(case.spec, case.schedule, backend="opencl", device=self._handle)
        factors, another = _factors(case), cl.CommandQueue(own_context(self._handle), self._handle)

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


class SyclDevice:
    """One of SYCL: NumPy arrays."""

    backend = "sycl"

    def __init__(self, info: SyclDeviceInfo) -> None:
        from gemmgen.runtime.sycl_devices import target_of

        self.label, self._info, self.target = f"{info} (SYCL)", info, target_of(info)

    def ways(self, case: Case) -> Mapping[str, Way]:
        """Raises: whatever the compiler or the launch has to say."""
        import gemmgen

        kernel: Kernel = gemmgen.compile(case.spec, case.schedule, backend="sycl", device=self._info)

        def way(stored: Mapping[str, Stored]) -> None:
            kernel(**_on_host(stored), **_factors(case))

        return {"NumPy arrays": way}


class CudaDevice:
    """One of CUDA: arrays on the GPU, on two streams."""

    backend = "cuda"

    def __init__(self, info: CudaDeviceInfo) -> None:
        from gemmgen.runtime.cuda_devices import target_of

        self.label, self._info, self.target = str(info), info, target_of(info)

    def ways(self, case: Case) -> Mapping[str, Way]:
        """Raises: whatever the compiler or the launch has to say."""
        import cupy

        import gemmgen

        kernel: Kernel = gemmgen.compile(case.spec, case.schedule, backend="cuda", device=self._info.number)
        factors, number = _factors(case), self._info.number

        def on(make: Callable[[], cupy.cuda.Stream]) -> Way:
            def way(stored: Mapping[str, Stored]) -> None:
                with cupy.cuda.Device(number), make() as stream:
                    memory = {name: cupy.asarray(x.memory) for name, x in stored.items()}
                    operands = {name: x.call(_view(memory[name], x)) for name, x in stored.items()}
                    kernel(**operands, **factors, stream=stream)
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

    return cupy.ndarray(
        stored.view.shape, stored.view.dtype, memory.data + stored.begin * stored.view.itemsize, stored.view.strides
    )
