"""What a kernel may ask of a device. Passes ask `target.features`, never a backend's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gemmgen.ir.dtypes import DType
from gemmgen.records import dataclass

#: How much of a register file tiles can fill: addresses, counters and loads under way take the rest.
FILLED = 0.75
#: The same where fewer lanes are to be had for nothing.
FILLED_BY_WIDEST = 0.5
#: Bytes of an element of block reads; of Intel's own functions, those of a float alone in other languages.
BLOCK_ELEMENT, BLOCK_ELEMENTS = 4, (1, 2, 4)
#: What compilers for Intel's GPUs are told where a thread shall have twice as many registers.
LARGE_REGISTERS = "-cl-intel-256-GRF-per-thread"

#: Every feature a target can have -> what it means.
FEATURES: dict[str, str] = {
    "sub_groups": "work-items of a sub-group exchange registers (broadcast, shuffle)",
    "intel_sub_groups": "they do so by the intel_sub_group_* names (cl_intel_subgroups)",
    "required_sub_group_size": "a kernel can fix its sub-group size",
    "free_sub_group_size": "a kernel can't, and compilers choose one",
    "block_read": "a sub-group reads neighbouring elements of a buffer by one instruction",
    "image_block_read": "the same from a 2D image",
    "joint_matrix": "matrix instructions on fragments that a sub-group holds as one (joint_matrix on Xe-HPC, Xe2)",
    "async_copy": "asynchronous copies from global to shared memory, past the registers (cp.async)",
    "mma": "matrix instructions of a warp, and loads that fill their operands (mma.sync, ldmatrix)",
    "mfma": "matrix instructions of a wavefront of 64 lanes (v_mfma)",
    "tall_f64": "in float64 those have 16 rows, and not 8",
    "wgmma": "matrix instructions of a warpgroup on shared memory (wgmma), and setmaxnreg",
    "tensor_maps": "TMA loads and stores by tensor maps",
    "mbarrier": "barriers in shared memory with separate arrive and wait, also for copies (mbarrier)",
    "reused_local_memory": "buffers of local memory can reuse the space of others",
    "atomic_add": "an element is added to global memory in one step",
    "atomic_vectors": "up to four neighbours are added to global memory in one step",
    "dependent_launch": "a kernel can start before the one before it ends (programmatic dependent launch)",
    "clusters": "groups run together, and write to each other's local memory (thread block clusters)",
    "address_lists": "kernels take arrays of the addresses of matrices",
    "fp64": "arithmetic in float64",
    "fp16": "loads and stores of float16",
    "fp8": "matrix instructions of 8-bit floats",
    "unaligned_vectors": "a vector load or store needs no more alignment than an element",
    "funnel_shifts": "one word is cut out of two by an instruction",
    "fast_functions": "powers of two and reciprocals of float32 by an instruction each, of known error",
    "vectors": "a work-item computes on vectors of its own, of up to 16 elements",
    "converted_vectors": "such a vector is converted as it is loaded or stored, which SYCL has no word for here",
    "cached_private": "private arrays of megabytes fit the caches of a core",
    "leading_barriers": "a loop that begins with a barrier is compiled right, which PoCL 5 to 7 do not",
    "cache_prefetch": "a cache line can be prefetched, which SPIR-V can't express",
}


@dataclass(frozen=True, slots=True)
class Target:
    """Limits and features of a device or a family of devices.

    Attributes:
        name: for messages.
        features: keys of `FEATURES`.
        sub_group_sizes: lanes that a sub-group can have.
        max_group: work-items of a group.
        local_bytes: local memory of a group, in bytes.
        register_bytes: registers of a work-item, in bytes, in a kernel without sub-groups.
        sub_group_register_bytes: registers of a whole sub-group, in bytes (its lanes share them).
        narrow_sub_group: lanes that a kernel without sub-group functions is compiled for where wider sub-groups would
            spill; None where compilers see that themselves.
        large_register_bytes: the same in programs that are built for more registers and fewer threads, on Intel's GPUs;
            0 where there is no such build option.
        unrolled_steps: steps along K that read local memory and are unrolled together: of more, compilers of Intel's
            GPUs begin with all reads, and spill. 0 where compilers keep within the registers.
        private_bytes: arrays that a work-item may have beside registers, in bytes, on targets with `cached_private`.
        multiprocessor_register_bytes: registers of a multiprocessor of NVIDIA's, which its blocks share; 0 elsewhere.
        cores: how many work-items of a CPU run at a time; multiprocessors of a GPU of NVIDIA, a large one of its kind
            where no device is there; compute units of another GPU, 1 where that is not known.
        caches: of a CPU, in bytes: the first and second level of a core, and the third of all; 0 where not known.
        cache_bytes: of a GPU's L2, as the device says; 0 where it says nothing.
        clock: of a GPU, in MHz, as the device says; 0 where it says nothing.
        memory_rate: bytes of a GPU's memory in a microsecond at most, as the device says; 0 where it says nothing.
        vector_bytes: the widest vector that a work-item computes on, in bytes, on targets with `vectors`.
    """

    name: str
    features: frozenset[str]
    sub_group_sizes: tuple[int, ...] = ()
    max_group: int = 1024
    local_bytes: int = 65536
    register_bytes: int = 1024
    sub_group_register_bytes: int = 4096
    narrow_sub_group: int | None = None
    large_register_bytes: int = 0
    unrolled_steps: int = 0
    private_bytes: int = 0
    vector_bytes: int = 0
    multiprocessor_register_bytes: int = 0
    cores: int = 1
    cache_bytes: int = 0
    caches: tuple[int, int, int] = (0, 0, 0)
    clock: int = 0
    memory_rate: int = 0

    def reads_blocks(self, dtype: DType) -> bool:
        """Whether sub-groups read neighbouring elements of a type by one instruction."""
        if "block_read" not in self.features or dtype.real is not None:
            return False
        narrow = "intel_sub_groups" in self.features and dtype.size < BLOCK_ELEMENT
        return dtype.size in BLOCK_ELEMENTS if narrow else dtype.is_float and dtype.size == BLOCK_ELEMENT

    def fits(self, register_bytes: int, lanes: int, filled: float = FILLED) -> bool:
        """Whether the registers of a sub-group hold so many bytes of each of its lanes, with room for the rest."""
        return lanes * register_bytes <= self.sub_group_register_bytes * filled


_INTEL = frozenset(FEATURES) - {
    *("async_copy", "mma", "mbarrier", "reused_local_memory", "atomic_add", "atomic_vectors", "dependent_launch"),
    *("clusters", "vectors", "converted_vectors", "cached_private", "wgmma", "tensor_maps", "tall_f64", "fp8", "mfma"),
    *("funnel_shifts", "cache_prefetch", "free_sub_group_size", "joint_matrix", "leading_barriers", "fast_functions"),
}
#: For kernels by block reads: a device is picked that has them.
BLOCK_FEATURES = frozenset({"sub_groups", "block_read", "required_sub_group_size"})
#: What a CPU has in the place of many threads, whatever runs OpenCL C on it.
CPU_FEATURES = frozenset({"vectors", "cached_private"})
#: Private arrays that fit the stack of a thread, of 8 MiB on Linux, with room for its callers.
CPU_PRIVATE_BYTES = 2 << 20
#: SYCL names neither Intel's own functions nor block reads from images; OpenCL C adds no floats in one step.
_SYCL = (_INTEL - {"intel_sub_groups", "image_block_read"}) | {"atomic_add"}
_WARP = frozenset(
    {
        *("sub_groups", "reused_local_memory", "atomic_add", "address_lists", "fp64", "fp16", "funnel_shifts"),
        "leading_barriers",
    }
)


def _nvidia(name: str, shared_bytes: int, cores: int) -> Target:
    """A compute capability, with an `a` and what no later one need have; a sub-group is a warp or an even part of one
    (CUDA C++ Programming Guide, 16.2).
    """
    capability, specific = int(name[3:].rstrip("a")), name.endswith("a")
    features = {*_WARP, "fast_functions"}
    if capability >= 80:
        features |= {"async_copy", "mma"}
    if capability >= 89:
        features |= {"fp8"}
    if capability >= 90:
        features |= {"mbarrier", "atomic_vectors", "dependent_launch", "clusters", "tall_f64"}
    if capability == 90 and specific:
        features |= {"wgmma", "tensor_maps"}
    return Target(
        name,
        frozenset(features),
        (8, 16, 32),
        1024,
        shared_bytes,
        register_bytes=1020,
        sub_group_register_bytes=32640,
        multiprocessor_register_bytes=65536 * 4,
        cores=cores,
    )


def _amd(name: str, lanes: int, cores: int, *more: str) -> Target:
    """A GPU of AMD's, whose sub-groups are a wavefront of so many lanes or an even part of one: each lane has 256
    registers. It has `more` than a warp of sm_75 has.
    """
    sizes = tuple(size for size in (8, 16, 32, 64) if size <= lanes)
    return Target(name, _WARP.union(more), sizes, sub_group_register_bytes=lanes * 1024, cores=cores)


#: The targets that can be named; a device's own limits replace them at run time. Those of a language whose vectors
#: need alignment lack `unaligned_vectors`.
TARGETS: dict[str, Target] = {
    # Gen8 to Xe-HPG: 128 registers of 32 bytes a thread; Xe-HPG has 256 of them by a build option, which others ignore.
    "intel": Target("intel", _INTEL, (8, 16, 32), large_register_bytes=8192, unrolled_steps=2),
    # Xe-HPC, and Xe2 with less local memory: 128 registers of 64 bytes a thread or, by that option, 256; no sub-groups
    # of 8, no images on Xe-HPC (Intel, "oneAPI GPU Optimization Guide", Intel Xe GPU Architecture: Xe-HPC).
    "xe_hpc": Target(
        "xe_hpc",
        (_INTEL - {"image_block_read"}) | {"joint_matrix"},
        (16, 32),
        local_bytes=131072,
        sub_group_register_bytes=8192,
        narrow_sub_group=16,
        large_register_bytes=16384,
        unrolled_steps=2,
    ),
    "khr": Target(
        "khr",
        frozenset({"sub_groups", "free_sub_group_size", "unaligned_vectors", "address_lists", "fp64", "fp16"}),
        (8, 16, 32, 64),
    ),
    "sycl": Target("sycl", _SYCL, (8, 16, 32), unrolled_steps=2),
    # OpenCL C converts float16 where it has no arithmetic on it; float64 is an option.
    "portable": Target("portable", frozenset({"unaligned_vectors", "address_lists", "fp16"})),
    # 32 registers of 64 bytes, as of AVX-512; with half of that (AVX2) tiles are to be half as large.
    "cpu": Target(
        "cpu",
        CPU_FEATURES | {"converted_vectors", "cache_prefetch", "unaligned_vectors", "fp64", "fp16"},
        register_bytes=2048,
        private_bytes=CPU_PRIVATE_BYTES,
        vector_bytes=64,
    ),
    "sm_75": _nvidia("sm_75", 65536, 40),
    "sm_80": _nvidia("sm_80", 166912, 108),
    "sm_86": _nvidia("sm_86", 101376, 84),
    "sm_89": _nvidia("sm_89", 101376, 142),
    "sm_90": _nvidia("sm_90", 232448, 132),
    "sm_90a": _nvidia("sm_90a", 232448, 132),
    "sm_100": _nvidia("sm_100", 232448, 148),
    # RDNA 3 and CDNA 3: as many of NVIDIA's features as a warp of sm_75 has.
    "gfx1100": _amd("gfx1100", 32, 96),
    "gfx942": _amd("gfx942", 64, 304, "mfma", "free_sub_group_size"),
}


def with_intel_registers(target: Target) -> Target:
    """A GPU with the registers of Intel's, if it is one: those without sub-groups of 8 have wide ones (Xe-HPC, Xe2)."""
    if "block_read" not in target.features:
        return target
    kind = TARGETS["intel" if 8 in target.sub_group_sizes else "xe_hpc"]
    return replace(
        target,
        sub_group_register_bytes=kind.sub_group_register_bytes,
        narrow_sub_group=kind.narrow_sub_group,
        large_register_bytes=kind.large_register_bytes,
        unrolled_steps=kind.unrolled_steps,
    )


# --- what was measured on a device ----------------------------------------------------------------

#: Names and values, in the names' order.
Measured = tuple[tuple[str, float], ...]
_measured: dict[Target, Measured] = {}


def calibrate(target: Target, measured: Mapping[str, float]) -> None:
    """From now on, cost models take what was measured on a device (`gemmgen tune --calibrate`) for their constants of
    these names.
    """
    _measured[target] = tuple(sorted((name, value) for name, value in measured.items() if value > 0))


def measured_on(target: Target) -> Measured:
    """What was measured on a device, as a part of a key: a choice holds as long as it is the same."""
    return _measured.get(target, ())
