"""What an OpenCL C kernel needs of a device and of its compiler, as its instructions show."""

from __future__ import annotations

from gemmgen.ir.kernel import Kernel, uses_calls, uses_features
from gemmgen.ir.matrix import MatrixAtom
from gemmgen.ir.stmt import Move, Multiply
from gemmgen.ir.target import Target
from gemmgen.ir.walk import walk

KHR_NAMES = {"broadcast": "sub_group_shuffle", "shuffle_xor": "sub_group_shuffle_xor"}
REQUIRED_SIZE = "cl_intel_required_subgroup_size"
MATRICES = "cl_intel_subgroup_matrix_multiply_accumulate"
#: The macro by which a caller asks for matrix instructions in software.
SOFTWARE = "GEMMGEN_DPAS_SOFTWARE"
#: What the compiler is told where the device has matrix instructions, and where it has none. Compilers of 2022 have
#: them, but do not define the extension's macro.
MATRIX_OPTIONS = (f"-D{MATRICES}=1", f"-D{SOFTWARE}")
LARGE_REGISTERS = "-cl-intel-256-GRF-per-thread"
#: Sub-groups of so few lanes are no longer built.
LANES_OF_OLD = 8


def multiplies_matrices(kernel: Kernel) -> bool:
    """Whether a kernel has matrix instructions."""
    return any(isinstance(s, Multiply) and isinstance(s.atom, MatrixAtom) for s in walk(kernel.body))


def enabled(kernel: Kernel, target: Target) -> tuple[str, ...]:
    """The extensions whose functions and types a kernel uses: those that a file enables."""
    names = ["cl_khr_fp64"] if "fp64" in uses_features(kernel) else []
    if not kernel.sub_group:
        return tuple(names)
    if "intel_sub_groups" not in target.features:
        shuffles = uses_calls(kernel, KHR_NAMES)
        return (*names, "cl_khr_subgroups", *(["cl_khr_subgroup_shuffle"] if shuffles else []))
    names.append("cl_intel_subgroups")
    reads = {s.atom.name for s in walk(kernel.body) if isinstance(s, Move)}
    return (*names, *(["cl_intel_subgroups_short"] if "packed_block" in reads else []))


def extensions(kernel: Kernel, target: Target) -> tuple[str, ...]:
    """Those that a device must have."""
    fixed = kernel.sub_group and "required_sub_group_size" in target.features
    return (*enabled(kernel, target), *([REQUIRED_SIZE] if fixed else []))


def requirements(kernel: Kernel, target: Target) -> list[str]:
    """What the head comment says of them, a point each."""
    needs = [_sub_groups(kernel, target)] if kernel.sub_group else []
    if kernel.compiled_for:
        needs.append(f"where {REQUIRED_SIZE} is there, sub-groups of {kernel.compiled_for}{_of_old(kernel)}")
    features = uses_features(kernel)
    if multiplies_matrices(kernel):
        needs.append(f"{MATRICES}; or, without it, {MATRIX_OPTIONS[1]} in its place: the same in software")
    if "cache_prefetch" in features:
        needs.append("__builtin_prefetch of clang, of which CPUs' runtimes are made; SPIR-V has no word for it")
    if "image_block_read" in features:
        needs.append(
            "images (CL_R, CL_FLOAT) as wide and high as the matrices: no more than CL_DEVICE_IMAGE2D_MAX_WIDTH and "
            "CL_DEVICE_IMAGE2D_MAX_HEIGHT, 16384 on Intel's GPUs"
        )
    needs += [f"on Intel's GPUs, and only there, the build option {LARGE_REGISTERS}"] * kernel.large_registers
    return needs


def _sub_groups(kernel: Kernel, target: Target) -> str:
    """The extensions by name, and how many lanes."""
    named = ", ".join(name for name in extensions(kernel, target) if name != "cl_khr_fp64")
    lanes = f"{named}, sub-groups of {kernel.sub_group}"
    if "free_sub_group_size" in target.features:
        return f"{lanes}: where {REQUIRED_SIZE} is there they are required; in others the result is filled with NaN"
    return lanes + _of_old(kernel)


def _of_old(kernel: Kernel) -> str:
    """Where a size is missing."""
    is_old = (kernel.sub_group or kernel.compiled_for) == LANES_OF_OLD
    return ", which Xe-HPC and Xe2 don't have (--target xe_hpc)" if is_old else ""
