"""SYCL 2020: a header with a launcher, a kernel for the run-time compiler, or a program that checks itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from gemmgen.backends.clike import INDENT, POSTFIX, CLike, Words
from gemmgen.backends.files import sections
from gemmgen.backends.lines import wrapped
from gemmgen.backends.sycl_main import program
from gemmgen.backends.sycl_types import HEADERS, INTRINSICS, TYPES, converter, functions
from gemmgen.errors import LoweringError, ScheduleError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import F32, DType
from gemmgen.ir.expr import Call, Expr, Var, as_int
from gemmgen.ir.stmt import Alloc, Barrier, For, Move
from gemmgen.ir.visit import uses_calls, walk

#: Built-in ids -> how a work-item asks for them; SYCL counts dimensions from the slowest.
IDS = {"group_id": "get_group", "local_id": "get_local_id"}
#: Functions of a sub-group.
LANES = {"broadcast": "group_broadcast", "shuffle_xor": "permute_group_by_xor"}
BLOCK_LOAD = "block_load"
#: Moves of neighbours: what they promise of addresses makes no difference here.
VECTORS = ("vector", "aligned_vector")


class Sycl(CLike):
    """SYCL 2020, for DPC++; block loads by its extension `group_load`."""

    name: ClassVar[str] = "sycl"
    suffix: ClassVar[str] = ".hpp"
    words: ClassVar[Words] = Words("work-item", "group", "USM", "local memory", "sub-group")
    targets: ClassVar[tuple[str, ...]] = ("sycl", "xe_hpc", "khr", "portable")
    forms: ClassVar[tuple[str, ...]] = ("header", "kernel", "main")
    types: ClassVar[dict[str, str]] = TYPES
    minimum: ClassVar[str] = "std::min"

    def template(self) -> str:
        return f"sycl/{self.form}.{'hpp' if self.form == 'header' else 'cpp'}.j2"

    def fields(self) -> Mapping[str, object]:
        used = ["algorithm"] if f"{self.minimum}(" in self.function() else []
        match self.form:
            case "main":
                if self.spec.dtype != F32:
                    raise ScheduleError(f"form main checks float32, not {self.spec.dtype}: use form header")
                more = ["cmath", "cstddef", "cstdio", "exception", "vector"]
                return {"standard": [*used, *more], **program(self.kernel, self.spec)}
            case "kernel":
                return {"standard": used, "headers": self._headers()}
        return {"standard": [*used, "vector"]}

    def _headers(self) -> list[str]:
        """Those that the kernel needs: at run time they cost more than its own text."""
        headers = ["builtins.hpp", "ext/oneapi/free_function_kernel_properties.hpp"]
        headers += ["ext/oneapi/free_function_queries.hpp", "nd_item.hpp"]
        if any(isinstance(s, Barrier) for s in walk(self.kernel.body)):
            headers.append("group_barrier.hpp")
        if self._local_arrays():
            headers.append("ext/oneapi/work_group_static.hpp")
        if self._shares_lanes():
            headers += ["group_algorithm.hpp", "sub_group.hpp"]
        if self._block_loads():
            experimental = "ext/oneapi/experimental"
            headers += [f"{experimental}/address_cast.hpp", f"{experimental}/group_load_store.hpp"]
        headers += [header for p in self.kernel.matrices for header in HEADERS.get(p.dtype.name, ())]
        return sorted(set(headers))

    # --- what a work-item runs --------------------------------------------------------------------

    def signature(self) -> list[str]:
        params = ["sycl::nd_item<2> item", *(self._param(p) for p in self.kernel.params)]
        params += (f"{self.types[b.dtype.name]} (&{b.name}){self.dimensions(b)}" for b in self._local_arrays())
        return ["// What each work-item does.", *wrapped("inline void work_item(", params)]

    def function(self) -> str:
        text = super().function()
        if not self._shares_lanes():
            return text
        opening = f"{INDENT}const sycl::sub_group sub_group = item.get_sub_group();\n"
        head, brace, body = text.partition("\n{\n")
        return f"{head}{brace}{opening}{body}"

    def _param(self, param: Buffer | Var, restrict: str = "__restrict ") -> str:
        if isinstance(param, Var):
            return f"{self.types[param.dtype.name]} {param.name}"
        if param.space is Space.IMAGE:
            raise ScheduleError(f"{param.name} is an image, which SYCL reads no blocks of: use --method simd")
        const = "" if param.writable else "const "
        return f"{const}{self.types[param.dtype.name]} *{restrict}{param.name}"

    def prelude(self) -> list[str]:
        """Named functions for the instructions that the kernel uses."""
        lines = functions(self.kernel, VECTORS)
        loads = self._block_loads()
        if any(load.byte_place is not None for load in loads):
            lines += sections(INTRINSICS, {"at"})
        for width in sorted({m.width for m in loads}):
            lines += [*self._block_load(width, self.types[loads[0].src.dtype.name]), ""]
        if self.form != "kernel":
            lines += [
                "// Names the kernel, for profilers and for host compilers other than DPC++.",
                "class kernel;",
                "",
            ]
        return lines

    def _block_load(self, width: int, element: str) -> list[str]:
        """A function for a block load: `group_load` makes one if it is told enough."""
        what = "// One element per lane" + (f" of each of {width} neighbouring segments." if width > 1 else ".")
        opening, to, end = f"inline void {BLOCK_LOAD}{width}(", "to", []
        params = ["sycl::sub_group sub_group", f"const {element} *from", f"{element} *to"]
        if width == 1:
            opening, to, end = f"inline {element} {BLOCK_LOAD}(", "&element", ["    return element;"]
            params.pop()
        return [
            what,
            *wrapped(opening, params),
            "{",
            "    namespace syclex = sycl::ext::oneapi::experimental;",
            *([f"    {element} element;"] if width == 1 else []),
            "    syclex::group_load(",
            "        sub_group, syclex::static_address_cast<syclex::global_space>(from),",
            f"        sycl::span<{element}, {width}>({to}, {width}),",
            "        syclex::properties(",
            "            syclex::data_placement_striped, syclex::contiguous_memory, syclex::full_group));",
            *end,
            "}",
        ]

    def _shares_lanes(self) -> bool:
        return bool(self._block_loads()) or uses_calls(self.kernel, {"lane_id", *LANES})

    def _block_loads(self) -> list[Move]:
        return [s for s in walk(self.kernel.body) if isinstance(s, Move) and s.atom.name == "block_read"]

    def _local_arrays(self) -> list[Buffer]:
        return [s.buffer for s in walk(self.kernel.body) if isinstance(s, Alloc) and s.buffer.space is Space.LOCAL]

    # --- how it is started ------------------------------------------------------------------------

    def postlude(self, kernels: Sequence[Self]) -> str:
        """The entry point for the run-time compiler, or the launcher."""
        if len(kernels) > 1:
            raise ScheduleError("split needs a second kernel, which SYCL's launcher does not start yet: use split 1")
        return "\n".join(self._entry_point() if self.form == "kernel" else self._launcher()) + "\n"

    def _call(self, indent: int) -> list[str]:
        """The work-item's function with all it is given."""
        names = ["item", *(p.name for p in self.kernel.params), *(b.name for b in self._local_arrays())]
        lines = wrapped(" " * indent + f"{self.kernel.name}_detail::work_item(", names)
        return [*lines[:-1], f"{lines[-1]};"]

    def _entry_point(self) -> list[str]:
        rows, cols = self.kernel.group
        properties = ["nd_range_kernel<2>", f"work_group_size<{rows}, {cols}>"]
        if self._fixes_lanes():
            properties.append(f"sub_group_size<{self.kernel.sub_group}>")
        stated = [f"SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::{p}))" for p in properties]
        local = [
            f"    syclex::work_group_static<{self.types[b.dtype.name]}{self.dimensions(b)}> {b.name};"
            for b in self._local_arrays()
        ]
        return [
            "namespace syclex = sycl::ext::oneapi::experimental;",
            "",
            f'extern "C" {stated[0]}',
            *stated[1:],
            *wrapped(f"void {self.kernel.name}(", [self._param(p) for p in self.kernel.params]),
            "{",
            *local,
            "    const auto item = sycl::ext::oneapi::this_work_item::get_nd_item<2>();",
            *self._call(4),
            "}",
        ]

    def _launcher(self) -> list[str]:
        (rows, cols), (down, across) = self.kernel.group, self.kernel.grid
        params = [
            "sycl::queue &queue",
            *(self._param(p, "") for p in self.kernel.params),
            "const std::vector<sycl::event> &depends_on = {}",
        ]
        empty = " || ".join(f"{p.name} < 1" for p in self.kernel.scalars if p.name in ("m", "n", "rows", "cols"))
        lanes = [f"            [[sycl::reqd_sub_group_size({self.kernel.sub_group})]]"] if self._fixes_lanes() else []
        lambda_ = [f"            [=](sycl::nd_item<2> item) [[sycl::reqd_work_group_size({rows}, {cols})]]", *lanes]
        return [
            "// Queues the kernel; matrices are in USM that the queue's device reaches.",
            *wrapped(f"inline sycl::event {self.kernel.name}(", params),
            "{",
            *([f"    if ({empty}) {{", "        return sycl::event();", "    }"] if empty else []),
            f"    const sycl::range<2> group({rows}, {cols});",
            f"    const sycl::range<2> groups({self.expr(down)}, {self.expr(across)});",
            "    return queue.submit([&](sycl::handler &handler) {",
            "        handler.depends_on(depends_on);",
            *(f"        {line}" for line in self._accessors()),
            f"        handler.parallel_for<{self.kernel.name}_detail::kernel>(",
            "            sycl::nd_range<2>(groups * group, group),",
            *lambda_[:-1],
            f"{lambda_[-1]} {{",
            *self._call(16),
            "            });",
            "    });",
            "}",
        ]

    def _accessors(self) -> list[str]:
        return [
            f"const sycl::local_accessor<{self.types[b.dtype.name]}{self.dimensions(b)}, 0> {b.name}(handler);"
            for b in self._local_arrays()
        ]

    def launch(self) -> str:
        (rows, cols), (down, across) = self.kernel.group, self.kernel.grid
        return f"local range {{{rows}, {cols}}}, global range {{{self.expr(down * rows)}, {self.expr(across * cols)}}}"

    def _fixes_lanes(self) -> bool:
        return bool(self.uses())

    def uses(self) -> frozenset[str]:
        named = {"required_sub_group_size"} if self.kernel.sub_group else set()
        return self.target.features & named

    def requirements(self) -> list[str]:
        lanes = [f"sub-groups of {self.kernel.sub_group}"] if self.kernel.sub_group else []
        extensions = ["sycl_ext_oneapi_group_load_store"] if self._block_loads() else []
        return [", ".join([*extensions, *lanes])] if lanes else []

    def build_line(self) -> str:
        name = self.kernel.name
        match self.form:
            case "kernel":
                return "create_kernel_bundle_from_source(context, source_language::sycl, ...), build"
            case "main":
                return f"icpx -fsycl -std=c++17 -O3 -fp-model=precise {name}.cpp -o {name}"
        return "icpx -fsycl -std=c++17 -O3 -fp-model=precise main.cpp, which includes this file"

    def build_options(self) -> tuple[str, ...]:
        return ()

    # --- functions and instructions ---------------------------------------------------------------

    def qualifier(self, _buffer: Buffer) -> str:
        return ""

    def declare(self, buffer: Buffer) -> list[str]:
        """Local memory is declared by who starts the work-items."""
        return [] if buffer.space is Space.LOCAL else super().declare(buffer)

    def unroll(self, loop: For) -> str:
        """In the one spelling that both DPC++ and g++, which checks types, take without a warning."""
        if loop.at_once:
            return f"#pragma GCC unroll {loop.at_once}"
        start, stop = as_int(loop.start), as_int(loop.stop)
        if start is None or stop is None:
            raise LoweringError(f"the loop over {loop.var.name} is to be unrolled, but its bounds are no numbers")
        return f"#pragma GCC unroll {-(-(stop - start) // loop.step)}"

    def call(self, call: Call) -> tuple[str, int]:
        args = ", ".join(self.expr(a) for a in call.args)
        match call.function:
            case "group_id" | "local_id":
                return f"int(item.{IDS[call.function]}({1 - (as_int(call.args[0]) or 0)}))", POSTFIX
            case "lane_id":
                return "int(sub_group.get_local_linear_id())", POSTFIX
            case "fma":
                return f"sycl::fma({args})", POSTFIX
            case "broadcast" | "shuffle_xor":
                return f"sycl::{LANES[call.function]}(sub_group, {args})", POSTFIX
        raise LoweringError(f"SYCL has no name for {call.function}")

    def conversion(self, value: Expr, dtype: DType) -> tuple[str, int]:
        return f"{converter(value.dtype, dtype)}({self.expr(value)})", POSTFIX

    def barrier(self) -> str:
        return "sycl::group_barrier(item.get_group());"

    def wide_move(self, move: Move) -> str:
        to, source = self.address(move.dst, move.dst_index), self.address(move.src, move.src_index)
        if move.byte_place is not None:
            start = "" if move.from_element is None else f" + {self.expr(move.from_element)}"
            source = f"at({move.src.name}{start}, {self.expr(move.byte_place[0])})"
        match move.atom.name:
            case "vector" | "aligned_vector":
                return f"copy{move.width}({to}, {source});"
            case "block_read" if move.width == 1:
                return f"{self.element(move.dst, move.dst_index)} = {BLOCK_LOAD}(sub_group, {source});"
            case "block_read":
                return f"{BLOCK_LOAD}{move.width}(sub_group, {source}, {to});"
        raise LoweringError(f"SYCL has no instruction for {move.atom.name}")
