"""CUDA C++: a kernel, and a launcher with C linkage that a C++ project can call."""

from __future__ import annotations

from typing import ClassVar

from gemmgen.backends.clike import POSTFIX, CLike, Words, wrapped
from gemmgen.errors import LoweringError, ScheduleError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.expr import Call, Var, as_int
from gemmgen.ir.stmt import Move
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
    words: ClassVar[Words] = Words("thread", "block", "shared memory", "warp")
    default_target: ClassVar[str] = "sm_80"
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
            f"    const dim3 grid({self.expr(across)}, {self.expr(down)});",
            f"    const dim3 block({cols}, {rows});",
            f"    {self.kernel.name}<<<grid, block, 0, stream>>>({', '.join(p.name for p in self.kernel.params)});",
            "    return cudaGetLastError();",
            "}",
            "#endif",
        ]
        return "\n".join(lines) + "\n"

    def launch(self) -> str:
        (rows, cols), (down, across) = self.kernel.group, self.kernel.grid
        return f"block ({cols}, {rows}), grid ({self.expr(across)}, {self.expr(down)})"

    def uses(self) -> frozenset[str]:
        return frozenset()

    def requirements(self) -> list[str]:
        aligned = {s.width for s in walk(self.kernel.body) if isinstance(s, Move) and s.atom.aligned}
        size = max((m.dtype.size for m in self.kernel.matrices), default=0)
        return [f"matrices that begin on multiples of {max(aligned) * size} bytes"] if aligned else []

    def build_line(self) -> str:
        return f"nvcc -std=c++17 -O3 -arch={self.target.name} -Werror all-warnings -c {self.kernel.name}.cu"

    def build_options(self) -> tuple[str, ...]:
        return ("-std=c++17",)

    def qualifier(self, buffer: Buffer) -> str:
        vectors = (s for s in walk(self.kernel.body) if isinstance(s, Move) and s.width > 1)
        align = "__align__(16) " if any(buffer in (v.src, v.dst) for v in vectors) else ""
        return ("__shared__ " if buffer.space is Space.LOCAL else "") + align

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
        if move.atom.name != "aligned_vector":
            raise LoweringError(f"CUDA has no instruction for {move.atom.name}")
        to, source = self.address(move.dst, move.dst_index), self.address(move.src, move.src_index)
        return f"copy{move.width}({to}, {source});"
