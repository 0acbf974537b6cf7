"""CPU resources that the process may use (cores, quota, stack), which OpenCL runtimes don't report."""

from __future__ import annotations

import os
import resource
from dataclasses import replace
from pathlib import Path

from gemmgen.ir.target import CPU_PRIVATE_BYTES, Target

#: Spilled registers of a CPU are in its first-level cache, so this limit only excludes absurd schedules.
CPU_REGISTER_BYTES = 65536
#: Bytes of a thread's stack if the process has no limit: glibc's default on x86-64.
UNLIMITED_STACK = 2 << 20
#: Files of cgroups with the processor time that a process may take in a period: version 2, then version 1.
_QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))


def of_cpu(target: Target, units: int, vector_bytes: int, cache_bytes: int) -> Target:
    """The target of a CPU with `units` compute units, within the limits of the process."""
    return replace(
        target,
        register_bytes=CPU_REGISTER_BYTES,
        sub_group_register_bytes=CPU_REGISTER_BYTES,
        # A kernel's private arrays are on a thread's stack, which the runtime uses as well.
        private_bytes=min(CPU_PRIVATE_BYTES, stack_bytes() // 2),
        vector_bytes=vector_bytes,
        cores=min(max(1, units), processors()),
        cache_bytes=cache_bytes,
        maker=maker(target.name),
    )


def stack_bytes() -> int:
    """The stack of each thread of a runtime: the limit of the process (`ulimit -s`)."""
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return UNLIMITED_STACK if limit == resource.RLIM_INFINITY else limit


def maker(name: str) -> str:
    """The maker of a CPU of that name, if the CPU cost model has constants for it (`gemmgen/sweeps.toml`)."""
    return "intel" if "Intel" in name else ""


def instructions() -> str:
    """The instruction sets that this machine's CPUs report. Devices of one name may differ in them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def processors(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """The number of processors that the process may run on (taskset, cpusets), limited by its cgroup's quota."""
    allowed, quota = len(os.sched_getaffinity(0)), _quota(cgroups)
    return allowed if quota is None else max(1, min(allowed, round(quota)))


def _quota(cgroups: Path) -> float | None:
    """The cgroup's quota in processors; None for no limit."""
    for names in _QUOTAS:
        try:
            words = " ".join((cgroups / name).read_text(encoding="ascii") for name in names).split()
            time, period = map(int, words)
        except (OSError, ValueError):  # no such cgroup; or `max`
            continue
        if time > 0 and period > 0:
            return time / period
    return None
