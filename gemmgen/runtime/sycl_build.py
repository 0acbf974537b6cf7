"""Build a SYCL source: check the device first, compile in a separate process, and keep the code on disk."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from gemmgen.errors import DeviceError
from gemmgen.runtime import limits
from gemmgen.runtime.build import LOG_LINES, build_failure
from gemmgen.runtime.cache import DiskCache, digest
from gemmgen.runtime.sycl_devices import SyclDeviceInfo
from gemmgen.runtime.sycl_library import helper, version
from gemmgen.runtime.sycl_worker import REFUSED
from gemmgen.source import Source

#: The position of an error in a log: `rtc_0.cpp:5:3: error: ...`.
ERROR_LINE = re.compile(r"rtc_\d+\.cpp:(\d+):\d+: (?:fatal )?error")

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
    asked = source.text, *_options(source, info)
    return digest(kind, source.name, *asked, version(), info.name, info.platform, info.driver, instructions)


def _options(source: Source, info: SyclDeviceInfo) -> tuple[str, ...]:
    """What the run-time compiler is told: that matrix instructions are to be in software, where the device has none."""
    return source.options(info.type == "gpu", "joint_matrix" in info.target.features)


def _compiled(source: Source, info: SyclDeviceInfo, kind: str) -> bytes:
    result = run_worker(info.number, source.name, kind, source.text, options=_options(source, info))
    log = result.stderr.decode(errors="replace")
    if result.returncode == 0:
        return result.stdout
    if result.returncode == REFUSED:
        refusal = f"SYCL does not compile {source.name} for {info.name}"
        raise DeviceError(build_failure(source, refusal, log, ERROR_LINE))
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
    options: Sequence[str] = (),
) -> subprocess.CompletedProcess[bytes]:
    """Run `sycl_worker` with a device, a kernel's name, a format and a source.

    Args:
        variables: of the environment, beside this process' own.
        options: of the compiler.

    Raises: subprocess.TimeoutExpired.
    """
    code = helper().file.fileno()
    command = [sys.executable, "-m", "gemmgen.runtime.sycl_worker", str(code), str(device), name, kind, *options]
    return subprocess.run(
        command,
        check=False,
        input=text.encode(),
        capture_output=True,
        timeout=seconds,
        pass_fds=(code,),
        env={**os.environ, **(variables or {})},
    )
