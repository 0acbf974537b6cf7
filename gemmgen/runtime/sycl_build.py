"""Build a SYCL source: check the device first, compile in a separate process, and keep the code on disk."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping

from gemmgen.errors import DeviceError, ScheduleError
from gemmgen.ir.target import FEATURES
from gemmgen.runtime import limits
from gemmgen.runtime.cache import DiskCache, digest
from gemmgen.runtime.sycl_devices import SyclDeviceInfo, target_of
from gemmgen.runtime.sycl_library import helper, version
from gemmgen.runtime.sycl_worker import REFUSED
from gemmgen.source import EntryPoint, Source

#: The position of an error in a log: `rtc_0.cpp:5:3: error: ...`.
ERROR_LINE = re.compile(r"rtc_\d+\.cpp:(\d+):\d+: (?:fatal )?error")
LOG_LINES = 40

_cache = DiskCache("sycl")


def content(source: Source, info: SyclDeviceInfo, kind: str = "executable", fresh: bool = False) -> bytes:
    """SYCLBIN with native code, or as an `object` with SPIR-V, from the cache or compiled now.

    Args:
        fresh: whether to ignore the cache.

    Raises: DeviceError with the compiler's log and the lines of its errors.
    """
    question = _question(source, info, kind)
    kept = None if fresh else _cache.read(kind, question)
    if kept is not None:
        return kept
    made = _compiled(source, info, kind)
    _cache.write(kind, question, made)
    return made


def _question(source: Source, info: SyclDeviceInfo, kind: str) -> bytes:
    """The cache key. Native code depends on the device, its driver and, for a CPU, its instruction sets."""
    instructions = limits.instructions() if info.type == "cpu" else ""
    return digest(kind, source.name, source.text, version(), info.name, info.platform, info.driver, instructions)


def _compiled(source: Source, info: SyclDeviceInfo, kind: str) -> bytes:
    result = run_worker(info.number, source.name, kind, source.text)
    log = result.stderr.decode(errors="replace")
    if result.returncode == 0:
        return result.stdout
    if result.returncode == REFUSED:
        raise DeviceError(build_failure(source, info, log))
    how = f"exit code {result.returncode}"
    if result.returncode < 0:
        how = f"signal {signal.Signals(-result.returncode).name}"
    raise DeviceError(
        f"SYCL's run-time compiler ended with {how} on {source.name} for {info.name}, in a process of its own: "
        "use another schedule, and please report it\n" + "\n".join(log.splitlines()[-LOG_LINES:])
    )


def run_worker(
    device: int,
    name: str,
    kind: str,
    text: str,
    seconds: float | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run `sycl_worker` with a device, a kernel's name, a format and a source.

    Args:
        variables: of the environment, beside this process' own.

    Raises: subprocess.TimeoutExpired.
    """
    code = helper().file.fileno()
    command = [sys.executable, "-m", "gemmgen.runtime.sycl_worker", str(code), str(device), name, kind]
    return subprocess.run(
        command,
        check=False,
        input=text.encode(),
        capture_output=True,
        timeout=seconds,
        pass_fds=(code,),
        env={**os.environ, **(variables or {})},
    )


def build_failure(source: Source, info: SyclDeviceInfo, message: str) -> str:
    """The compiler's log, and the lines of the source that it complains about."""
    lines = source.text.splitlines()
    bad = sorted({int(n) for n in ERROR_LINE.findall(message) if 0 < int(n) <= len(lines)})
    quoted = [f"{number:5d} | {lines[number - 1]}" for number in bad]
    log = [line for line in message.strip().splitlines() if line.strip()][:LOG_LINES]
    return "\n".join([f"SYCL does not compile {source.name} for {info.name}; its log:", *log, *quoted])


def check_device(source: Source, info: SyclDeviceInfo) -> None:
    """Check features, sub-group sizes, group size and local memory.

    Raises: DeviceError if the device can't run it at all, ScheduleError if another schedule fits; with every problem.
    """
    remedy = "choose another device (gemmgen devices) or a preset without it (gemmgen presets)"
    lacking = [
        f"{source.name} needs {feature} ({FEATURES.get(feature, 'unknown')}), which {info.name} lacks: {remedy}"
        for feature in sorted(source.requires - target_of(info).features)
    ]
    lacking += [f"{source.name} can't run on {info}, as {info.lacks}: {remedy}"] if info.lacks else []
    too_big: list[str] = []
    for entry in source.entry_points:
        lacking += _lane_problems(entry, info)
        too_big += _limit_problems(entry, info)
    if lacking:
        raise DeviceError(lacking + too_big)
    if too_big:
        raise ScheduleError(too_big)


def _lane_problems(entry: EntryPoint, info: SyclDeviceInfo) -> list[str]:
    if entry.sub_group is None or entry.sub_group in info.sub_group_sizes:
        return []
    listed = ", ".join(map(str, info.sub_group_sizes)) or "none"
    return [f"{entry.name} needs sub-groups of {entry.sub_group}, but {info.name} has {listed}: use one of those"]


def _limit_problems(entry: EntryPoint, info: SyclDeviceInfo) -> list[str]:
    rows, cols = entry.group
    problems = []
    if rows * cols > info.max_group:
        problems.append(
            f"{entry.name} has groups of {rows}x{cols} = {rows * cols} work-items > {info.max_group} on {info.name}: "
            "use a smaller group"
        )
    if entry.local_bytes > info.local_bytes:
        problems.append(
            f"{entry.name} takes {entry.local_bytes:,} B of local memory > {info.local_bytes:,} B on {info.name}: "
            "use a smaller tile, group or K step, or fewer stages"
        )
    return problems
