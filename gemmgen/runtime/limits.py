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
#: Where Linux describes a processor's caches, and bytes up to which a cache is taken to be a core's own.
CACHES, LARGEST_OF_A_CORE = Path("/sys/devices/system/cpu/cpu0/cache"), 4 << 20
#: Files of cgroups with the processor time that a process may take in a period: version 2, then version 1.
_QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))


def of_cpu(target: Target, units: int, vector_bytes: int, cache_bytes: int) -> Target:
    """The target of a CPU with `units` compute units, within the limits of the process.

    Args:
        cache_bytes: of one of its caches, as the runtime reports it; 0 if it reports none.
    """
    return replace(
        target,
        register_bytes=CPU_REGISTER_BYTES,
        sub_group_register_bytes=CPU_REGISTER_BYTES,
        # A kernel's private arrays are on a thread's stack, which the runtime uses as well.
        private_bytes=min(CPU_PRIVATE_BYTES, stack_bytes() // 2),
        vector_bytes=vector_bytes,
        cores=min(max(1, units), processors()),
        caches=caches() or ((0, cache_bytes, 0) if cache_bytes <= LARGEST_OF_A_CORE else (0, 0, cache_bytes)),
    )


def stack_bytes() -> int:
    """The stack of each thread of a runtime: the limit of the process (`ulimit -s`)."""
    limit = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return UNLIMITED_STACK if limit == resource.RLIM_INFINITY else limit


def caches(folder: Path = CACHES) -> tuple[int, int, int] | None:
    """Bytes of the first, second and third level that a core reads data from, as the kernel reports them; 0 for a level
    that is missing, None where it reports nothing. Runtimes report one level, not all of them the same one.
    """
    sizes = {1: 0, 2: 0, 3: 0}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = (
                (index / name).read_text(encoding="ascii").strip() for name in ("level", "type", "size")
            )
            if kind != "Instruction" and int(level) in sizes:
                sizes[int(level)] = int(size.removesuffix("K")) << 10 * size.endswith("K")
        except (OSError, ValueError):
            continue
    return (sizes[1], sizes[2], sizes[3]) if sizes[1] else None


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
