"""CUDA C++17, for nvcc and NVRTC: kernels, and a launcher with C linkage that a C++ project can call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

from gemmgen.backends import hopper, ptx
from gemmgen.backends.files import rendered
from gemmgen.backends.shared_struct import Member
from gemmgen.backends.simt import Simt
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.dtypes import F64, I64
from gemmgen.ir.expr import Call, Expr, Var, as_int, convert
from gemmgen.ir.functions import FAST, LOG2_E, NORMAL_TAIL, SIGMOID
from gemmgen.ir.kernel import Kernel, uses_calls
from gemmgen.ir.sizes import MOST_BLOCKS, Workspace
from gemmgen.ir.stmt import Multiply, PlaceStmt, PointerInit, Stmt, TmaCopy, VectorCopy
from gemmgen.ir.swizzle import LINES
from gemmgen.ir.synchronization import (
    RANK,
    AsyncGroup,
    Barrier,
    DependentLaunch,
    Mbarrier,
    MultiplyGroup,
    SetMaxRegisters,
    StoreGroup,
    SyncStmt,
)
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import of_kind
from gemmgen.launch import map_name, tensor_maps
from gemmgen.source import TensorMap

#: What TMA tiles in shared memory begin on multiples of.
BOX_ALIGNMENT = 128
#: Moves whose functions are PTX.
PTX_COPIES = ("async_copy", "async_copy_inside", "async_copy_by_width", "atomic_add")
#: Features that older architectures lack, by the instructions that they stand for.
INSTRUCTIONS = {
    "async_copy": "cp.async",
    "mma": "mma.sync",
    "fp8": "mma.sync of 8-bit floats",
    "tall_f64": "mma.sync of float64 with 16 rows",
    "mbarrier": "mbarrier.try_wait",
    "atomic_vectors": "red of vectors",
    "dependent_launch": "griddepcontrol",
    "clusters": "clusters of blocks",
    "tensor_maps": "tensor maps (TMA)",
    "wgmma": "instructions of warpgroups (wgmma, setmaxnreg)",
}


class Cuda(Simt):
    """What is CUDA's: its names, and the instructions of `ptx` and `hopper`."""

    name: ClassVar[str] = "cuda"
    suffix: ClassVar[str] = ".cu"
    targets: ClassVar[tuple[str, ...]] = ("sm_80", "sm_75", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100")
    types: ClassVar[Mapping[str, str]] = {
        **Simt.types,
        "bfloat16": "__nv_bfloat16",
        "float8_e4m3fn": "__nv_fp8_e4m3",
        "float8_e5m2": "__nv_fp8_e5m2",
    }
    type_headers: ClassVar[Mapping[str, str]] = {
        "float16": "cuda_fp16.h",
        "bfloat16": "cuda_bf16.h",
        **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), "cuda_fp8.h"),
    }
    calls: ClassVar[Mapping[str, str]] = {
        **Simt.calls,
        **{name: f"{function}({{args}})" for name, function in ptx.MATRIX_CALLS.items()},
        "broadcast": "__shfl_sync({lanes}, {args}, {width})",
        "shuffle": "__shfl_sync({lanes}, {args}, {width})",
        "shuffle_xor": "__shfl_xor_sync({lanes}, {args}, {width})",
        **{name: f"{name}({{args}})" for name in FAST},
    }
    api: ClassVar[str] = "cuda"
    header: ClassVar[str] = "cuda_runtime.h"
    rtc: ClassVar[str] = "__CUDACC_RTC__"
    misaligned: ClassVar[str] = "cudaErrorMisalignedAddress"
    dot_instruction: ClassVar[str | None] = "__dp4a"
    float_of_bits: ClassVar[str | None] = "__int_as_float"
    multiprocessors: ClassVar[str] = "cudaDevAttrMultiProcessorCount"
    static_bytes: ClassVar[int] = 48 * 1024
    asks_ptxas: ClassVar[bool] = True
    file_template: ClassVar[str] = "cuda/kernel.cu.j2"
    launcher_template: ClassVar[str] = "cuda/launcher.cu.j2"
    launch_template: ClassVar[str] = "cuda/launch.cu.j2"

    # --- the file ---------------------------------------------------------------------------------

    def fields(self, kernels: Sequence[Self], workspaces: Sequence[Workspace]) -> Mapping[str, object]:
        return {
            **super().fields(kernels, workspaces),
            "takes_maps": any(of_kind(TmaCopy, self.kernel.body)),
            "guard": guard(self.program or self.kernel.name, self.needs(), self.targets),
        }

    def prelude(self) -> list[str]:
        """Named functions for the instructions that the kernel uses, PTX among them."""
        body, types, features = self.kernel.body, self.types, self.target.features
        said = {
            "used": ptx.functions(body),
            "copies": [x for x in self.copies() if x["kind"] in PTX_COPIES],
            "loads": ptx.loads(body, types),
            "multiplications": ptx.multiplications(body, types, features),
        }
        hopper_said = hopper.functions(self.kernel, types)
        functions = [
            *(rendered("cuda/ptx.cu.j2", **said) if any(said.values()) else ()),
            *(rendered("cuda/hopper.cu.j2", **hopper_said) if any(hopper_said.values()) else ()),
        ]
        called = [name for name in FAST if uses_calls(self.kernel, {name})]
        if called:
            constants = {"sigmoid": SIGMOID, "tail": NORMAL_TAIL, "log2_e": LOG2_E}
            fast = rendered("cuda/fast_functions.cu.j2", names=called, **constants)
            functions = [*fast, *functions]
        shared = any("shared_address(" in line for line in functions)
        return [*super().prelude(), *(rendered("cuda/shared_address.cu.j2") if shared else ()), *functions]

    def is_copy(self, move: VectorCopy) -> bool:
        return super().is_copy(move) and not hopper.is_put(move)

    # --- the kernel -------------------------------------------------------------------------------

    def bounds(self) -> str:
        # Registers are handed over only where the compiler knows how many there are for one block.
        hands_over = any(of_kind(SetMaxRegisters, self.kernel.body))
        blocks = self.kernel.min_blocks or int(hands_over)
        cluster = f"__cluster_dims__({self.kernel.cluster}, 1, 1) " if self.kernel.cluster > 1 else ""
        return f"{cluster}__launch_bounds__({self.bound()}{f', {blocks}' if blocks else ''})"

    def launch(self) -> str:
        kernel, blocks = self.kernel, self.kernel.min_blocks
        extents = () if kernel.persistent else (("y", kernel.grid[0]), ("z", kernel.grid_z))
        sides = [axis for axis, extent in extents if extent is not None and as_int(extent) is None]
        most = f" of at most {MOST_BLOCKS:,} along {' and '.join(sides)}" if sides else ""
        return (
            super().launch()
            + most
            + (f", registers for {blocks} block{'s' if blocks > 1 else ''} per multiprocessor" if blocks else "")
        )

    def kernel_parameter(self, param: Buffer | Var) -> str:
        if isinstance(param, Buffer) and param.tma_tile is not None:
            return f"const __grid_constant__ CUtensorMap {map_name(param, self.kernel)}"
        return super().kernel_parameter(param)

    def parameter(self, param: Buffer | Var, restrict: str | None = None) -> str:
        # What the kernel before still writes may not be taken for constant, and be read too early.
        return super().parameter(param, "" if param.name in awaited(self.kernel) else restrict)

    def aligned(self) -> list[Buffer]:
        # Matrix instructions take words.
        words = [x for s in of_kind(Multiply, self.kernel.body) for x in (s.a, s.b) if x.dtype.size < ptx.WORD]
        return super().aligned() + words

    def more_shared(self) -> list[Member]:
        return [ptx.member(step, self) for step in ptx.mbarriers(self.kernel)]

    def dynamic_bytes(self) -> int:
        found = self.shared
        # The first of the lines that swizzle stands where shared memory begins.
        return found.bytes if found is not None and ptx.swizzles(self.kernel) else super().dynamic_bytes()

    def shared_alignment(self, buffer: Buffer) -> int:
        boxed = any(buffer in (s.src, s.dst) for s in of_kind(TmaCopy, self.kernel.body))
        swizzled = LINES * buffer.layout.swizzle
        return max(swizzled, BOX_ALIGNMENT if boxed else 1, super().shared_alignment(buffer))

    def uses(self) -> frozenset[str]:
        atoms = (s.atom for s in of_kind(Multiply, self.kernel.body) if s.atom.scope == "warp")
        tall = "tall_f64" in self.target.features and any(atom.dtype == F64 for atom in atoms)
        return frozenset({"tall_f64"} if tall else ())

    def build_line(self) -> str:
        name = self.target.name
        # By the short form nvcc 13 compiles for the architecture without the `a` as well, which lacks instructions.
        arch = f"-gencode arch=compute_{name[3:]},code={name}" if name.endswith("a") else f"-arch={name}"
        return f"nvcc -std=c++17 -O3 {arch} -Werror all-warnings -c {self.kernel.name}.cu"

    # --- the launch -------------------------------------------------------------------------------

    def launcher_fields(self, kernels: Sequence[Self]) -> Mapping[str, object]:
        maps = [tensor_map for printer in kernels for tensor_map in tensor_maps(printer.kernel)]
        batch = any(tensor_map.batch for tensor_map in maps)
        return {
            "maps_of": ("batch" if batch else "matrix") if maps else None,
            # All alike, or each as the caller says.
            "swizzle": _swizzle(maps[0]) if maps and _agree(maps) else None,
        }

    def launch_fields(self, file: Self, last: bool) -> Mapping[str, object]:
        maps = [
            {
                "name": x.name,
                "made": self._made(x, file),
                "operand": x.operand,
                "ends": self.expr(x.lines) if x.ends else None,
            }
            for x in tensor_maps(self.kernel)
        ]
        return {**super().launch_fields(file, last), "maps": maps, "early": bool(awaited(self.kernel))}

    def counter(self) -> str:
        return "blocks_at_once" if self.kernel.cluster == 1 else "clustered_at_once"

    def _made(self, tensor_map: TensorMap, file: Self) -> str:
        """The statement that makes a map. Where nothing is read there is none, and no copy."""
        lines, length, pitch = map(self.expr, (tensor_map.lines, tensor_map.length, tensor_map.pitch))
        name, dtype, (high, wide) = tensor_map.name, tensor_map.dtype, tensor_map.box
        kind = "TFLOAT32" if tensor_map.rounded else dtype.name.upper() if dtype.size > 1 else "UINT8"
        begin: Expr = convert(tensor_map.lines, I64) * tensor_map.pitch
        matrix = f"{tensor_map.operand} - {self.expr(begin)}" if tensor_map.ends else tensor_map.operand
        call = f"make_tensor_map(&{name}, CU_TENSOR_MAP_DATA_TYPE_{kind}, {dtype.size}, {matrix}, "
        how = "" if _agree(tensor_maps(self.kernel)) else f", {_swizzle(tensor_map)}"
        batch = "".join(f", {self.expr(x)}" for x in tensor_map.batch or ())
        call += f"{lines}, {length}, {pitch}{batch}, {self.number(high)}, {self.number(wide)}{how})"
        read = None if tensor_map.operand == "c" else file.reads_operands()
        return f"if (const cudaError_t error = {f'{read} ? {call} : cudaSuccess' if read else call}) {{"

    # --- functions and instructions ---------------------------------------------------------------

    def call_words(self, call: Call) -> Mapping[str, object]:
        return {**super().call_words(call), "lanes": self._lanes()}

    def _lanes(self) -> str:
        """The lanes of the warp that take part: all of them, or where warps aren't full, the sub-group's own."""
        rows, cols = self.kernel.group
        if rows * cols % self.warp == 0:
            return "0xffffffffu"
        own = f"{hex((1 << cols) - 1)}u"
        return own if rows == 1 else f"{own} << threadIdx.y % {self.warp // cols} * {cols}"

    def sync(self, stmt: SyncStmt) -> list[str]:
        match stmt:
            case Barrier() if stmt.groups > 1:
                whole = "cluster_sync();" if stmt.role_items else "cluster_sync_relaxed();"
                return [whole if stmt.part == "all" else f"cluster_{stmt.part}();"]
            case Barrier(of_sub_group=True):
                return ["__syncwarp();"]
            case Barrier() if stmt.role_items:
                return [f"named_barrier_sync<{self.number(stmt.role_items)}>();"]
            case AsyncGroup(verb, pending):
                return [f"cp_async_{verb}_group{f'<{self.number(pending)}>' if verb == 'wait' else ''}();"]
            case Mbarrier():
                return ptx.mbarrier(stmt, self)
            case DependentLaunch(verb):
                return [f"{ptx.HANDOVERS[verb]}();"]
            case StoreGroup():
                return [hopper.store_group(stmt)]
            case MultiplyGroup() | SetMaxRegisters():
                return hopper.role(stmt, self)
        return super().sync(stmt)

    def in_group(self, buffer: Buffer, rank: Expr) -> str:
        name = self.memory(buffer.name)
        return name if rank == RANK else f"map_shared_rank({name}, {self.expr(rank)})"

    def multiply(self, stmt: Multiply) -> str:
        if stmt.atom.scope == "thread":
            return super().multiply(stmt)
        if stmt.atom.scope == "warpgroup":
            return hopper.multiply(stmt, stmt.atom, self)
        return ptx.multiply(stmt, self)

    def _statement(self, stmt: Stmt, following: Stmt | None = None) -> Iterator[str]:
        if isinstance(stmt, TmaCopy):
            return iter((hopper.tma_copy(stmt, self),))
        return super()._statement(stmt, following)

    def _placed(self, stmt: PlaceStmt) -> str:
        if isinstance(stmt, PointerInit) and stmt.view.layout.swizzle:
            return hopper.point(stmt, self)
        return super()._placed(stmt)

    def vector_copy(self, move: VectorCopy) -> str:
        if hopper.is_put(move):
            return hopper.put(move, self)
        return super().vector_copy(move) if move.atom.matrices is None else ptx.load(move, self)


def awaited(kernel: Kernel) -> frozenset[str]:
    """The matrices that the kernels before write while this one begins."""
    return frozenset(buffer.name for step in of_kind(DependentLaunch, kernel.body) for buffer in step.buffers)


def _agree(maps: Sequence[TensorMap]) -> bool:
    return len({tensor_map.swizzle for tensor_map in maps}) == 1


def _swizzle(tensor_map: TensorMap) -> str:
    """What the driver calls it."""
    return f"CU_TENSOR_MAP_SWIZZLE_{f'{tensor_map.swizzle}B' if tensor_map.swizzle else 'NONE'}"


# --- architectures --------------------------------------------------------------------------------


def guard(name: str, features: frozenset[str], targets: Sequence[str]) -> Mapping[str, str] | None:
    """What stops the compiler where an architecture lacks instructions of the file `name`, in words; None where all
    `targets` have what it needs.
    """
    known = sorted(targets, key=_number)
    least = next(target for target in known if features <= TARGETS[target].features)
    if least == known[0]:
        return None
    below = frozenset[str]().union(*(TARGETS[target].features for target in known[: known.index(least)]))
    number, specific = _number(least)
    # By -arch=sm_90a nvcc 13.2 makes code for sm_90 as well.
    alone = f"{least} alone (-gencode arch={least.replace('sm', 'compute')},code={least})"
    return {
        "lacks": f"!defined(__CUDA_ARCH_FEAT_SM{number}_ALL)" if specific else f"__CUDA_ARCH__ < {number}0",
        "needed": f"it needs {alone}" if specific else f"{name} needs {least} or later",
        "words": " and ".join(word for feature, word in INSTRUCTIONS.items() if feature in features - below),
    }


def _number(arch: str) -> tuple[int, bool]:
    """Of an architecture such as sm_90a, and whether it has what no later one need have."""
    return int(arch.removeprefix("sm_").rstrip("a")), arch.endswith("a")
