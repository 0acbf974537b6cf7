"""`gemmgen presets` and `gemmgen devices`."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli.output import say
from gemmgen.cli.request import attempt
from gemmgen.errors import DeviceError

if TYPE_CHECKING:
    from gemmgen.ir.target import Target
    from gemmgen.runtime.cuda_devices import CudaDeviceInfo
    from gemmgen.runtime.devices import DeviceInfo
    from gemmgen.runtime.sycl_devices import SyclDeviceInfo

PRESETS_EXAMPLES = "\n\n".join(
    (
        "[bold]Examples[/bold]",
        "gemmgen presets",
        "gemmgen presets --names | grep block_read",
        "gemmgen emit --preset naive",
    )
)
DEVICES_EXAMPLES = "\n\n".join(
    (
        "[bold]Examples[/bold]",
        "gemmgen devices",
        "gemmgen run -d 0 -k naive -v",
        "gemmgen run -d xeon -k naive -v",
    )
)


def presets(
    names: Annotated[bool, typer.Option("--names", help="Only the names, one a line.")] = False,
) -> None:
    """List the presets: ready-made schedules, with a line about each."""
    from gemmgen import presets as library

    wide = max(map(len, library.names()))
    lines = (name if names else f"{name:<{wide}}  {library.load(name).summary}" for name in library.names())
    # One line each however wide the terminal is: to be read, and to be searched by grep.
    say("".join(f"{line}\n" for line in lines))


def devices() -> None:
    """List the devices of OpenCL and SYCL and the GPUs of CUDA, what they offer and which presets they run."""
    found: list[str] = []
    problems: list[str] = []
    found += attempt(problems, _opencl_devices) or []
    if find_spec("cupy"):
        found += attempt(problems, _cuda_devices) or []
    if _has_sycl():
        found += attempt(problems, _sycl_devices) or []
    if not found:
        raise DeviceError(problems)
    say("\n".join(found))


def _opencl_devices() -> list[str]:
    from gemmgen.runtime import devices as runtime

    return [_describe(info, runtime.target_of(info.handle)) for info in runtime.devices()]


def _cuda_devices() -> list[str]:
    from gemmgen.runtime import cuda_devices as runtime

    return [_describe_cuda(info, runtime.target_of(info)) for info in runtime.cuda_devices()]


def _has_sycl() -> bool:
    from gemmgen.runtime.sycl_library import library

    try:
        return library().is_file()
    except DeviceError:
        return False


def _sycl_devices() -> list[str]:
    from gemmgen.runtime import sycl_devices as runtime

    return [_describe_sycl(info, runtime.target_of(info)) for info in runtime.sycl_devices()]


def _describe(info: DeviceInfo, target: Target) -> str:
    lanes = ", ".join(map(str, info.sub_group_sizes)) or "none"
    lines = {
        "platform": f"{info.platform} ({info.platform_version}), OpenCL C {info.c_version}",
        "sub-groups": f"{lanes}" + (f" ({_features(info)})" if info.sub_group_sizes else ""),
        "local memory": f"{info.local_bytes // 1024} KiB",
        "group": f"up to {info.max_group} work-items",
        "images": "yes" if info.images else "no",
        "presets": _runs(target),
    }
    body = "".join(f"   {key:<13} {value}\n" for key, value in lines.items())
    return f"{info.number}  {info.name} ({info.type})\n{body}"


def _describe_cuda(info: CudaDeviceInfo, target: Target) -> str:
    major, minor = info.capability
    lines = {
        "platform": f"CUDA, compute capability {major}.{minor}",
        "multiproc.": str(info.multiprocessors),
        "shared memory": f"{info.shared_bytes // 1024} KiB",
        "memory": f"{info.memory_bytes >> 30} GiB",
        "block": f"up to {info.max_threads} threads",
        "presets": _runs(target),
    }
    body = "".join(f"   {key:<13} {value}\n" for key, value in lines.items())
    return f"{info.number}  {info.name} (gpu, --backend cuda)\n{body}"


def _describe_sycl(info: SyclDeviceInfo, target: Target) -> str:
    lines = {
        "platform": f"SYCL, {info.platform} ({info.driver})",
        "sub-groups": ", ".join(map(str, info.sub_group_sizes)) or "none",
        "local memory": f"{info.local_bytes // 1024} KiB",
        "group": f"up to {info.max_group} work-items",
        "presets": _runs(target) if info.lacks is None else f"none, as {info.lacks}",
    }
    body = "".join(f"   {key:<13} {value}\n" for key, value in lines.items())
    return f"{info.number}  {info.name} ({info.type}, --backend sycl)\n{body}"


def _features(info: DeviceInfo) -> str:
    return ", ".join(sorted(feature.replace("_", " ") for feature in info.features))


def _runs(target: Target) -> str:
    """How many presets of each method the target can run, and what is missing for the others."""
    from gemmgen import presets as library
    from gemmgen.passes.validate import is_possible

    everything, fitting = Counter[str](), Counter[str]()
    for name in library.names():
        preset = library.load(name)
        everything[preset.schedule.method] += 1
        fitting[preset.schedule.method] += is_possible(preset.spec, preset.schedule, target)
    by_method = ", ".join(f"{method} {fitting[method]} of {number}" for method, number in everything.items())
    return f"runs {fitting.total()} of {everything.total()} ({by_method})"
