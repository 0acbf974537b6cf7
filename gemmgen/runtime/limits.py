"""What the process may use of a CPU, whatever its OpenCL runtime says there is."""

from __future__ import annotations

import os
import resource
from pathlib import Path

#: Bytes of a thread's stack where the process has no limit: glibc's choice on x86-64.
UNLIMITED_STACK = 2 << 20
#: Where cgroups say how much time of processors a process may take in a period: version 2, then version 1.
_QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))


def stack_bytes() -> int:
    """Of each of a runtime's threads, which take what the process was given (`ulimit -s`)."""
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return UNLIMITED_STACK if limit == resource.RLIM_INFINITY else limit


def maker(name: str) -> str:
    """Who made a CPU of that name, where the model of CPUs has costs of that maker's (`gemmgen/sweeps.toml`)."""
    return "intel" if "Intel" in name else ""


def instructions() -> str:
    """The instructions that this machine's CPUs have, as they say: devices of one name may differ in them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def processors(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """As many as the process may run on (taskset, cpusets), and no more than its cgroup has time for."""
    allowed, quota = len(os.sched_getaffinity(0)), _quota(cgroups)
    return allowed if quota is None else max(1, min(allowed, round(quota)))


def _quota(cgroups: Path) -> float | None:
    """Processors' worth of time; None for no limit."""
    for names in _QUOTAS:
        try:
            words = " ".join((cgroups / name).read_text(encoding="ascii") for name in names).split()
            time, period = map(int, words)
        except (OSError, ValueError):  # no such cgroup; or `max`
            continue
        if time > 0 and period > 0:
            return time / period
    return None
