"""CUDA C++: a kernel, and a launcher with C linkage that a C++ project can call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gemmgen.backends.clike import POSTFIX, CLike, Words, wrapped
from gemmgen.errors import LoweringError, ScheduleError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.expr import Call, Expr, Var, as_int
from gemmgen.ir.stmt import Alloc, AsyncGroup, Move
from gemmgen.ir.visit import walk

WARP = 32
#: CUDA's dimensions by number, 0 the fastest.
DIMENSIONS = "xyz"
#: Shared memory that a kernel may declare with a fixed size; more must be asked for at the launch.
STATIC_SHARED_BYTES = 48 * 1024


class Cuda(CLike):
    """CUDA C++17, for nvcc and NVRTC."""

    name: ClassVar[str] = "cuda"
    suffix: ClassVar[str] = ".cu"
    words: ClassVar[Words] = Words("thread", "block", "global memory", "shared memory", "warp")
    targets: ClassVar[tuple[str, ...]] = ("sm_80", "sm_75", "sm_86", "sm_89", "sm_90", "sm_100")
    types: ClassVar[dict[str, str]] = {"float32": "float", "int32": "int", "bool": "bool"}

    # --- the function -----------------------------------------------------------------------------

    def signature(self) -> list[str]:
        rows, cols = self.kernel.group
        bounds = f'extern "C" __global__ void __launch_bounds__({rows * cols})'
        return [bounds, *wrapped(f"{self.kernel.name}(", [self._param(p) for p in self.kernel.params])]

    def _param(self, param: Buffer | Var, restrict: str = "__restrict__ ") -> str:
        if isinstance(param, Var):
            return f"{self.types[param.dtype.name]} {param.name}"
        if param.space is Space.IMAGE:
            raise ScheduleError(f"{param.name} is an image, which CUDA has no block reads of: use an L3_SIMD preset")
        const = "" if param.writable else "const "
        return f"{const}{self.types[param.dtype.name]} *{restrict}{param.name}"

    def prelude(self) -> list[str]:
        """Named functions for the instructions that the kernel uses."""
        lines = ["#ifndef __CUDACC_RTC__", "#include <cuda_runtime.h>", "#endif", ""]
        moves = [s for s in walk(self.kernel.body) if isinstance(s, Move) and s.atom.name == "aligned_vector"]
        for width in sorted({m.width for m in moves}):
            dtype = moves[0].src.dtype
            element, vector = self.types[dtype.name], f"{self.types[dtype.name]}{width}"
            lines += [
                f"// {width} neighbouring elements; both addresses are multiples of {width * dtype.size} bytes.",
                f"__device__ __forceinline__ void copy{width}({element} *to, const {element} *from)",
                "{",
                f"    *reinterpret_cast<{vector} *>(to) = *reinterpret_cast<const {vector} *>(from);",
                "}",
                "",
            ]
        return [*lines, *self._async_helpers()]

    def _async_helpers(self) -> list[str]:
        """PTX in named functions: cp.async and its groups."""
        stmts = list(walk(self.kernel.body))
        copies = {_async_name(s)[0]: s for s in stmts if isinstance(s, Move) and s.atom.is_async}
        lines = [line for name in sorted(copies) for line in _async_copy(name, copies[name], self.types)]
        verbs = {s.verb for s in stmts if isinstance(s, AsyncGroup)}
        if "commit" in verbs:
            lines += [
                "// Makes a group of the copies begun since the last.",
                "__device__ __forceinline__ void async_commit()",
                "{",
                '    asm volatile("cp.async.commit_group;" ::: "memory");',
                "}",
                "",
            ]
        if "wait" in verbs:
            lines += [
                "// Waits until at most `pending` groups, the newest, are under way.",
                "template <int pending>",
                "__device__ __forceinline__ void async_wait()",
                "{",
                '    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");',
                "}",
                "",
            ]
        return lines

    def postlude(self) -> str:
        """The launcher; NVRTC, which compiles for the device alone, does not see it."""
        (rows, cols), (down, across) = self.kernel.group, self.kernel.grid
        params = [*(self._param(p, "") for p in self.kernel.params), "cudaStream_t stream"]
        empty = " || ".join(f"{p.name} < 1" for p in self.kernel.scalars if p.name in ("m", "n", "rows", "cols"))
        lines = [
            "#ifndef __CUDACC_RTC__",
            "// Queues the kernel on a stream; matrices are in the device's memory.",
            *wrapped(f'extern "C" cudaError_t {self.kernel.name}_launch(', params),
            "{",
            *([f"    if ({empty}) {{", "        return cudaSuccess;", "    }"] if empty else []),
            *self._permission(),
            f"    const dim3 grid({self.expr(across)}, {self.expr(down)});",
            f"    const dim3 block({cols}, {rows});",
            f"    {self.kernel.name}<<<grid, block, {self._dynamic_bytes()}, stream>>>(",
            f"        {', '.join(p.name for p in self.kernel.params)});",
            "    return cudaGetLastError();",
            "}",
            "#endif",
        ]
        return "\n".join(lines) + "\n"

    def _permission(self) -> list[str]:
        """A kernel with more shared memory than the fixed limit says so before it is launched."""
        if not (size := self._dynamic_bytes()):
            return []
        return [
            "    const cudaError_t allowed = cudaFuncSetAttribute(",
            f"        {self.kernel.name}, cudaFuncAttributeMaxDynamicSharedMemorySize, {size});",
            "    if (allowed != cudaSuccess) {",
            "        return allowed;",
            "    }",
        ]

    def launch(self) -> str:
        (rows, cols), (down, across) = self.kernel.group, self.kernel.grid
        return f"block ({cols}, {rows}), grid ({self.expr(across)}, {self.expr(down)})"

    def uses(self) -> frozenset[str]:
        return frozenset()

    def requirements(self) -> list[str]:
        alignment = self.alignment()
        return [f"matrices that begin on multiples of {alignment} bytes"] if alignment > 4 else []

    def build_line(self) -> str:
        return f"nvcc -std=c++17 -O3 -arch={self.target.name} -Werror all-warnings -c {self.kernel.name}.cu"

    def build_options(self) -> tuple[str, ...]:
        return ("-std=c++17",)

    def qualifier(self, buffer: Buffer) -> str:
        vectors = (s for s in walk(self.kernel.body) if isinstance(s, Move) and s.width > 1)
        align = "__align__(16) " if any(buffer in (v.src, v.dst) for v in vectors) else ""
        return ("__shared__ " if buffer.space is Space.LOCAL else "") + align

    def declare(self, buffer: Buffer) -> list[str]:
        """Shared memory beyond what may have a fixed size is carved out of what the launch brings."""
        if buffer.space is not Space.LOCAL or not self._dynamic_bytes():
            return super().declare(buffer)
        arrays = self._shared_arrays()
        offset = sum(a.bytes for a in arrays[: arrays.index(buffer)])
        element, extents = self.types[buffer.dtype.name], self.dimensions(buffer)
        start = f"shared + {offset}" if offset else "shared"
        first = ["extern __shared__ __align__(16) unsigned char shared[];"] if not offset else []
        return [*first, f"auto &{buffer.name} = *reinterpret_cast<{element}(*){extents}>({start});"]

    def _shared_arrays(self) -> list[Buffer]:
        return [s.buffer for s in walk(self.kernel.body) if isinstance(s, Alloc) and s.buffer.space is Space.LOCAL]

    def _dynamic_bytes(self) -> int:
        """Shared memory that must be asked for at the launch; none while it may have a fixed size."""
        total = sum(a.bytes for a in self._shared_arrays())
        return total if total > STATIC_SHARED_BYTES else 0

    # --- functions and instructions ---------------------------------------------------------------

    def call(self, call: Call) -> tuple[str, int]:
        args = ", ".join(self.expr(a) for a in call.args)
        match call.function:
            case "group_id":
                return f"int(blockIdx.{self._dimension(call)})", POSTFIX
            case "local_id":
                return f"int(threadIdx.{self._dimension(call)})", POSTFIX
            case "lane_id":
                return "int(threadIdx.x)", POSTFIX
            case "fma":
                return f"fmaf({args})", POSTFIX
            case "broadcast":
                return f"__shfl_sync({self._lanes()}, {args}, {self.kernel.sub_group})", POSTFIX
            case "shuffle_xor":
                return f"__shfl_xor_sync({self._lanes()}, {args}, {self.kernel.sub_group})", POSTFIX
        raise LoweringError(f"CUDA has no name for {call.function}")

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

    def wide_move(self, move: Move) -> str:
        to, source = self.address(move.dst, move.dst_index), self.address(move.src, move.src_index)
        match move.atom.name:
            case "aligned_vector":
                return f"copy{move.width}({to}, {source});"
            case "async_copy":
                name, valid = _async_name(move)
                return f"{name}({to}, {source}{'' if valid is None else ', ' + self.expr(valid)});"
        raise LoweringError(f"CUDA has no instruction for {move.atom.name}")

    def async_group(self, group: AsyncGroup) -> str:
        return "async_commit();" if group.verb == "commit" else f"async_wait<{group.pending}>();"


def _async_name(move: Move) -> tuple[str, Expr | None]:
    """The function that begins a copy, and its argument for how many elements are inside the matrix."""
    return f"async_copy{move.width if move.width > 1 else ''}" + ("" if move.valid is None else "_inside"), move.valid


def _async_copy(name: str, move: Move, types: Mapping[str, str]) -> list[str]:
    """Only 16 bytes may pass by the L1 cache (.cg)."""
    element, size = types[move.src.dtype.name], move.src.dtype.size
    total = move.width * size
    cache = "cg" if total == 16 else "ca"
    zeros, param, operand, slot = ".", "", "", ""
    if move.valid is not None:
        zeros, param = "; past `inside` elements it writes zeros.", ", int inside"
        operand, slot = f', "r"(inside * {size})', ", %2"
    return [
        f"// Begins a copy of {total} bytes to shared memory{zeros}",
        f"__device__ __forceinline__ void {name}({element} *to, const {element} *from{param})",
        "{",
        "    const unsigned address = unsigned(__cvta_generic_to_shared(to));",
        f'    asm volatile("cp.async.{cache}.shared.global [%0], [%1], {total}{slot};"',
        f'                 ::"r"(address), "l"(from){operand} : "memory");',
        "}",
        "",
    ]
