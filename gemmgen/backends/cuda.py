"""CUDA C++: a kernel, and a launcher with C linkage that a C++ project can call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from gemmgen.backends.clike import CLike, way
from gemmgen.backends.cuda_checks import guard
from gemmgen.backends.cuda_launcher import awaited, grid, launcher
from gemmgen.backends.cuda_matrix import MATRIX_CALLS, WORD, functions, load, multiply
from gemmgen.backends.cuda_shared import brought, declare_shared, dynamic_bytes, init_mbarriers
from gemmgen.backends.cuda_stores import put, puts, store_box, store_functions, store_group
from gemmgen.backends.cuda_warpgroups import box_copy, point, role, warpgroup_functions
from gemmgen.backends.cuda_warpgroups import multiply as multiply_by_warpgroup
from gemmgen.backends.expressions import POSTFIX
from gemmgen.backends.files import section, sections
from gemmgen.backends.language import Words
from gemmgen.backends.lines import wrapped
from gemmgen.backends.pairs import Pairs
from gemmgen.errors import LoweringError, ScheduleError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import F32, F64, DType
from gemmgen.ir.expr import Call, Expr, Var, as_int
from gemmgen.ir.meetings import RANK, AsyncGroup, Barrier, Handover, Mbarrier, RegisterShare, RoleStep, StoreGroup
from gemmgen.ir.sizes import GROUPS
from gemmgen.ir.stmt import Advance, BoxCopy, Move, Multiply, Point, Prefetch, Stmt
from gemmgen.ir.walk import walk
from gemmgen.ir.warp_matrix import WarpAtom
from gemmgen.ir.warpgroup_matrix import WarpgroupAtom
from gemmgen.ir.workspace import Workspace
from gemmgen.launch import map_name, passed

WARP = 32
#: A preset for any type, whose blocks fill warps.
FILLS_WARPS = "smem_8x8"
#: CUDA's dimensions by number, 0 the fastest.
DIMENSIONS = "xyz"
#: The headers of types that the language itself lacks.
HEADERS = {
    "float16": "cuda_fp16.h",
    "bfloat16": "cuda_bf16.h",
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), "cuda_fp8.h"),
}
#: Types whose vectors the language names, and words for as many bytes of others.
OWN_VECTORS = ("float", "double", "int")
WORDS = {2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}
#: Sections of `INTRINSICS` for moves, in the order in which they are printed.
SECTIONS = ("copy", "copy_from_anywhere", "load", "store", "atomic_add", "async_copy", "async_copy_inside")
#: Where the functions stand that kernels are printed with.
INTRINSICS = "cuda/intrinsics.cu"


class Cuda(CLike):
    """CUDA C++17, for nvcc and NVRTC."""

    name: ClassVar[str] = "cuda"
    suffix: ClassVar[str] = ".cu"
    words: ClassVar[Words] = Words("thread", "block", "global memory", "shared memory", "warp")
    pairs: ClassVar[Pairs] = Pairs("make_TYPE(RE, IM)", (".x", ".y"), ("fmaf", "fma"), adds=False)
    targets: ClassVar[tuple[str, ...]] = ("sm_80", "sm_75", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100")
    types: ClassVar[dict[str, str]] = {
        "float64": "double",
        "float32": "float",
        "float16": "__half",
        "bfloat16": "__nv_bfloat16",
        "float8_e4m3fn": "__nv_fp8_e4m3",
        "float8_e5m2": "__nv_fp8_e5m2",
        "complex64": "float2",
        "complex128": "double2",
        "int32": "int",
        "int64": "long long",
        "int8": "signed char",
        "bool": "bool",
    }

    # --- the function -----------------------------------------------------------------------------

    def signature(self) -> list[str]:
        rows, cols = self.kernel.group
        # Registers are handed over only where the compiler knows how many there are for one block.
        one = ", 1" if any(isinstance(s, RegisterShare) for s in walk(self.kernel.body)) else ""
        cluster = f"__cluster_dims__({self.kernel.cluster}, 1, 1) " if self.kernel.cluster > 1 else ""
        bounds = f'extern "C" __global__ void {cluster}__launch_bounds__({rows * cols}{one})'
        return [bounds, *wrapped(f"{self.kernel.name}(", [self._passed(p) for p in passed(self.kernel)])]

    def _passed(self, param: Buffer | Var) -> str:
        """A parameter of the kernel; the launcher's are all that its caller gives."""
        if isinstance(param, Buffer) and param.box is not None:
            return f"const __grid_constant__ CUtensorMap {map_name(param, self.kernel)}"
        return self._param(param)

    def _param(self, param: Buffer | Var, restrict: str = "__restrict__ ") -> str:
        if isinstance(param, Var):
            return f"{self.types[param.dtype.name]} {param.name}"
        if param.space is Space.IMAGE:
            raise ScheduleError(f"{param.name} is an image, which CUDA has no block reads of: use an L3_SIMD preset")
        matrix, listed = param.addresses or param, "" if param.addresses is None else "const *"
        const = "" if matrix.writable else "const "
        # What the kernel before still writes may not be taken for constant, and be read too early.
        restrict = "" if param.name in awaited(self.kernel) else restrict
        return f"{const}{self.types[matrix.dtype.name]} *{listed}{restrict}{param.name}"

    @property
    def detail(self) -> str:
        """The namespace of a file's functions, so that those of two files do not meet."""
        return f"{self.program or self.kernel.name}_detail"

    def opening(self) -> list[str]:
        named = self.dynamic_bytes() or self.prelude()
        return [f"    using namespace {self.detail};", ""] if named else []

    def _includes(self) -> list[str]:
        """The headers that the file needs."""
        types = {p.dtype.name for p in self.kernel.matrices}
        headers = [f"#include <{header}>" for header in sorted({HEADERS[name] for name in types & set(HEADERS)})]
        if any(isinstance(stmt, BoxCopy) for stmt in walk(self.kernel.body)):
            return [*sections(INTRINSICS, {"includes_with_maps"})[:-1], *headers, ""]
        return ["#ifndef __CUDACC_RTC__", "#include <cuda_runtime.h>", "#endif", *headers, ""]

    def fields(self, kernels: Sequence[Self], workspaces: Sequence[Workspace]) -> Mapping[str, object]:
        params = [*(self._param(p, "") for p in self.kernel.launcher_params), "cudaStream_t stream"]
        return {
            "includes": self._includes(),
            "guard": guard(self.program or self.kernel.name, self.needs(), self.targets),
            "detail": self.detail,
            "shared": brought(kernels),
            "launcher": launcher(self, kernels, params, workspaces, self.detail),
        }

    def prelude(self) -> list[str]:
        """Named functions for the instructions that the kernel uses, PTX among them."""
        used = {name for stmt in walk(self.kernel.body) for name in _intrinsics_of(stmt)}
        arithmetic = self.pairs.functions(self.kernel, self.types, INTRINSICS)
        matrices = functions(self.kernel.body, self.types, INTRINSICS, self.target.features)
        matrices += warpgroup_functions(self.kernel, self.types, INTRINSICS)
        matrices += store_functions(self.kernel.body, self.types, INTRINSICS)
        return [*arithmetic, *self._copies(), *sections(INTRINSICS, used), *matrices]

    def _copies(self) -> list[str]:
        """Functions for moves of several elements, by the types and the numbers that occur."""
        moves = [s for s in walk(self.kernel.body) if isinstance(s, Move) and s.atom.matrices is None and not puts(s)]
        found = {_Copy.of(m) for m in moves if m.width > 1 or m.atom.is_async or m.atom.adds}
        # A copy that converts has one that doesn't inside.
        found |= {replace(copy, section="copy", to=t, source=t) for copy in found for t in copy.kept()}
        return [line for copy in sorted(found, key=_Copy.order) for line in copy.lines(self.types)]

    def postlude(self, kernels: Sequence[Self]) -> str:  # noqa: ARG002
        return ""

    def launch(self) -> str:
        rows, cols = self.kernel.group
        blocks = f"min({grid(self)}, as many as run at once)" if self.kernel.persistent else grid(self)
        return f"block ({cols}, {rows}), grid ({blocks})"

    def uses(self) -> frozenset[str]:
        atoms = (s.atom for s in walk(self.kernel.body) if isinstance(s, Multiply) and isinstance(s.atom, WarpAtom))
        tall = "tall_f64" in self.target.features and any(atom.dtype == F64 for atom in atoms)
        return frozenset({"tall_f64"} if tall else ())

    def requirements(self) -> list[str]:
        alignment = self.alignment()
        elements = [self.spec.element(x) for x in "ab"]
        aligned = alignment > min((element.real or element).size for element in elements)
        said = [f"matrices that begin on multiples of {alignment} bytes"] if aligned else []
        return [*said, f"{GROUPS.name} as many as the device has multiprocessors"] if self.kernel.asks_device else said

    @classmethod
    def unfit(cls, group: tuple[int, int]) -> str | None:
        threads = group[0] * group[1]
        if threads >= WARP:
            return None
        idle = f"blocks of {threads} threads leave {WARP - threads} of a warp's {WARP} lanes idle"
        return f"{idle}: take preset {FILLS_WARPS}, say, whose blocks fill warps"

    def remarks(self) -> list[str]:
        # Of a transposing kernel there is no preset.
        unfit = None if self.program is None else self.unfit(self.kernel.group)
        return [] if unfit is None else [unfit]

    def build_line(self) -> str:
        name = self.target.name
        # By the short form nvcc 13 compiles for the architecture without the `a` as well, which lacks instructions.
        arch = f"-gencode arch=compute_{name[3:]},code={name}" if name.endswith("a") else f"-arch={name}"
        return f"nvcc -std=c++17 -O3 {arch} -Werror all-warnings -c {self.kernel.name}.cu"

    def build_options(self) -> tuple[str, ...]:
        return ("-std=c++17",)

    def qualifier(self, buffer: Buffer) -> str:
        body = list(walk(self.kernel.body))
        vectors = [x for s in body if isinstance(s, Move) and s.width > 1 for x in (s.src, s.dst)]
        # Matrix instructions take words.
        vectors += [x for s in body if isinstance(s, Multiply) for x in (s.a, s.b) if x.dtype.size < WORD]
        align = "__align__(16) " if buffer in vectors else ""
        return ("__shared__ " if buffer.space is Space.LOCAL else "") + align

    def declare(self, buffer: Buffer) -> list[str]:
        """Shared memory beyond what may have a fixed size is carved out of what the launch brings."""
        if buffer.space is not Space.LOCAL or not self.dynamic_bytes():
            return super().declare(buffer)
        return declare_shared(buffer, self)

    def dynamic_bytes(self) -> int:
        return dynamic_bytes(self.kernel)

    # --- functions and instructions ---------------------------------------------------------------

    def call(self, call: Call) -> tuple[str, int]:
        args = ", ".join(self.expr(a) for a in call.args)
        match call.function:
            case "group_id":
                return f"int(blockIdx.{self._dimension(call)})", POSTFIX
            case "group_count":
                return f"int(gridDim.{self._dimension(call)})", POSTFIX
            case "local_id":
                return f"int(threadIdx.{self._dimension(call)})", POSTFIX
            case "lane_id":
                return "int(threadIdx.x)", POSTFIX
            case "any_in_group":
                return f"__syncthreads_or({args})", POSTFIX
            case "fma":
                return f"fma{'f' if call.dtype == F32 else ''}({args})", POSTFIX
            case function if function in MATRIX_CALLS:
                return f"{MATRIX_CALLS[function]}({args})", POSTFIX
            case "broadcast":
                return f"__shfl_sync({self._lanes()}, {args}, {self.kernel.sub_group})", POSTFIX
            case "shuffle_xor":
                return f"__shfl_xor_sync({self._lanes()}, {args}, {self.kernel.sub_group})", POSTFIX
        raise LoweringError(f"CUDA has no name for {call.function}")

    def math(self, name: str, dtype: DType) -> str:
        return super().math(name, dtype) + ("f" if dtype == F32 else "")

    def _dimension(self, call: Call) -> str:
        return DIMENSIONS[as_int(call.args[0]) or 0]

    def _lanes(self) -> str:
        """The lanes of the warp that take part: all of them, or where warps aren't full, the sub-group's own."""
        rows, cols = self.kernel.group
        if rows * cols % WARP == 0:
            return "0xffffffffu"
        own = f"{hex((1 << cols) - 1)}u"
        return own if rows == 1 else f"{own} << threadIdx.y % {WARP // cols} * {cols}"

    def barrier(self) -> str:
        return "__syncthreads();"

    def role_barrier(self, barrier: Barrier) -> str:
        if barrier.groups > 1:
            whole = "cluster_sync();" if barrier.role_items else "cluster_barrier();"
            return whole if barrier.part == "all" else f"cluster_{barrier.part}();"
        return "__syncwarp();" if barrier.of_sub_group else f"role_barrier<{barrier.role_items}>();"

    def in_group(self, buffer: Buffer, rank: Expr) -> str:
        return buffer.name if rank == RANK else f"in_block({buffer.name}, {self.expr(rank)})"

    def multiply(self, stmt: Multiply) -> str:
        if isinstance(stmt.atom, WarpgroupAtom):
            return multiply_by_warpgroup(stmt, stmt.atom, self)
        return multiply(stmt, self)

    def box_copy(self, stmt: BoxCopy) -> str:
        return store_box(stmt, self) if stmt.tells is None else box_copy(stmt, stmt.tells, self)

    def role(self, step: RoleStep) -> list[str]:
        return [store_group(step)] if isinstance(step, StoreGroup) else role(step)

    def _placed(self, stmt: Point | Advance | Prefetch) -> str:
        if isinstance(stmt, Point) and stmt.view.layout.swizzle:
            return point(stmt, self)
        return super()._placed(stmt)

    def wide_move(self, move: Move) -> str:
        if puts(move):
            return put(move, self)
        if move.atom.matrices is not None:
            return load(move, self)
        to, source = self.address(move.dst, move.dst_index), self.address(move.src, move.src_index)
        if move.atom.name not in ("aligned_vector", "spanning_vector", "async_copy", "atomic_add"):
            raise LoweringError(f"CUDA has no instruction for {move.atom.name}")
        inside = "" if move.valid is None else f", {self.expr(move.valid)}"
        return f"{_copy_name(move)}({to}, {source}{inside});"

    def async_group(self, group: AsyncGroup) -> str:
        return "async_commit();" if group.verb == "commit" else f"async_wait<{group.pending}>();"

    def handover(self, step: Handover) -> str:
        return f"kernels_{step.verb}();"

    def mbarrier(self, step: Mbarrier) -> list[str]:
        barrier = f"&{step.name}[{self.expr(step.index)}]"
        match step.verb:
            case "init":
                return init_mbarriers(step, self)
            case "wait":
                return [f"mbarrier_wait({barrier}, {self.expr(step.parity)});"]
            case "expect":
                return [f"mbarrier_expect({barrier}, {step.bytes});"]
        if step.rank is not None:
            return [f"mbarrier_arrive_at({barrier}, {self.expr(step.rank)});"]
        return [f"mbarrier_{step.verb}({barrier});"]


@dataclass(frozen=True, slots=True)
class _Copy:
    """A function that moves elements, by the section of `INTRINSICS` that it is made of."""

    section: str
    width: int
    to: DType
    source: DType

    @classmethod
    def of(cls, move: Move) -> Self:
        key: str = "atomic_add" if move.atom.adds else way(move)
        if move.atom.around:
            key = "copy_from_anywhere"
        if move.atom.is_async:
            key = "async_copy" if move.valid is None else "async_copy_inside"
        return cls(key, move.width, move.dst.dtype, move.src.dtype)

    def kept(self) -> tuple[DType, ...]:
        """The type in memory, where the elements change theirs."""
        return {"load": (self.source,), "store": (self.to,)}.get(self.section, ())

    def order(self) -> tuple[int, int, str]:
        return SECTIONS.index(self.section), self.width, f"{self.to} {self.source}"

    def lines(self, types: Mapping[str, str]) -> list[str]:
        memory = self.to if self.section == "store" else self.source
        size = memory.size * self.width
        element = types[memory.name]
        adds = self.section == "atomic_add" and self.width > 1
        return section(
            INTRINSICS,
            f"{self.section}{self.width}" if adds else self.section,
            width=self.width if self.width > 1 else "",
            elements=f"{self.width} neighbouring elements",
            bytes=size,
            size=memory.size,
            vector=f"{element}{self.width}" if element in OWN_VECTORS else WORDS[size],
            source=types[self.source.name],
            to=types[self.to.name],
            cache="cg" if size == max(WORDS) else "ca",
        )


def _copy_name(move: Move) -> str:
    """The function that moves elements by one instruction, or begins to."""
    name = "async_copy" if move.atom.is_async else "atomic_add" if move.atom.adds else "copy"
    how = "_from_anywhere" if move.atom.around else "" if move.valid is None else "_inside"
    return f"{name}{move.width if move.width > 1 else ''}{how}"


def _intrinsics_of(stmt: Stmt) -> tuple[str, ...]:
    """The functions that a statement is printed with."""
    match stmt:
        case AsyncGroup(verb, _):
            return (f"async_{verb}",)
        case Mbarrier(verb):
            if stmt.rank is not None:
                return ("mbarrier_arrive_at",)
            return (f"mbarrier_{verb}", *(("fetch_map", "mbarriers_ready") if stmt.arrivals else ()))
        case Handover(verb):
            return (f"kernels_{verb}",)
    return ()
