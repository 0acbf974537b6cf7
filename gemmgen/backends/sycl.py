"""SYCL 2020: a header with a launcher, a kernel for the run-time compiler, or a program that checks itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

from gemmgen.backends.clike import INDENT, CLike, rounds
from gemmgen.backends.expressions import POSTFIX
from gemmgen.backends.files import environment, sections
from gemmgen.backends.language import Words
from gemmgen.backends.lines import fold_line, wrapped
from gemmgen.backends.sycl_headers import LANES, block_loads, headers, local_arrays, shares_lanes
from gemmgen.backends.sycl_main import program
from gemmgen.backends.sycl_types import INTRINSICS, OWN, PAIRS, Elements, functions, vector_functions
from gemmgen.backends.vectors import VectorWords, vector_element, vector_loop, vector_move
from gemmgen.errors import LoweringError, ScheduleError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Bin, Call, Const, Expr, Var, as_int
from gemmgen.ir.stmt import For, Move
from gemmgen.ir.workspace import Workspace

#: Built-in ids -> how a work-item asks for them; SYCL counts dimensions from the slowest.
IDS = {"group_id": "get_group", "local_id": "get_local_id"}
BLOCK_LOAD = "block_load"
#: Moves of neighbours: what they promise of addresses makes no difference here.
MOVES = ("vector", "aligned_vector")
#: Vectors of a work-item's own: `sycl::float16` and its like.
VECTORS = VectorWords(
    load="load{width}({place})",
    store="store({value}, {place});",
    splat="{type}({value})",
    choice="sycl::select({other}, {then}, {condition})",
    half="{vector}.{half}()",
    single="{vector}[{number}]",
    element="{vector}[{inside}]",
)


class Sycl(CLike):
    """SYCL 2020, for DPC++; block loads by its extension `group_load`."""

    name: ClassVar[str] = "sycl"
    suffix: ClassVar[str] = ".hpp"
    words: ClassVar[Words] = Words("work-item", "group", "USM", "local memory", "sub-group")
    targets: ClassVar[tuple[str, ...]] = ("sycl", "xe_hpc", "khr", "portable", "cpu")
    lacks: ClassVar[frozenset[str]] = frozenset(
        {"intel_sub_groups", "image_block_read", "cache_prefetch", "free_sub_group_size"}
    )
    forms: ClassVar[tuple[str, ...]] = ("header", "kernel", "main")
    elements: ClassVar[Elements] = OWN
    types: ClassVar[Mapping[str, str]] = elements.types
    pairs = PAIRS
    minimum: ClassVar[str] = "std::min"

    def template(self) -> str:
        return f"sycl/{self.form}.{'hpp' if self.form == 'header' else 'cpp'}.j2"

    def fields(self, kernels: Sequence[Self], workspaces: Sequence[Workspace]) -> Mapping[str, object]:
        used = ["algorithm"] if "min" in self._words() else []
        match self.form:
            case "main":
                between = [(w.name, self.expr(w.elements)) for w in workspaces]
                more = ["chrono", "cmath", "cstddef", "cstdio", "exception", "vector"]
                own = program(self.kernel, self.spec, between)
                return {"standard": [*used, *more], "one_event": len(kernels) == 1, **own}
            case "kernel":
                return {"standard": used, "headers": headers(self.kernel, self._words(), self.elements)}
        return {"standard": [*used, "vector"]}

    # --- what a work-item runs --------------------------------------------------------------------

    def signature(self) -> list[str]:
        params = [f"sycl::nd_item<{self._dimensions}> item", *(self._param(p) for p in self._given())]
        params += (f"{self.types[b.dtype.name]} (&{b.name}){self.dimensions(b)}" for b in local_arrays(self.kernel))
        lines = ["// What each work-item does.", *wrapped(f"inline void {self._own('work_item')}(", params)]
        why = "// Names the kernel, for profilers and for host compilers other than DPC++."
        return lines if self.form == "kernel" else [why, f"class {self._own('kernel')};", "", *lines]

    @property
    def _dimensions(self) -> int:
        return 2 if self.kernel.layers is None else 3

    def _given(self) -> list[Buffer | Var]:
        """The parameters that a work-item needs; others only say how many work-items there are."""
        words = self._words()
        return [p for p in self.kernel.given if p.name in words]

    def _words(self) -> set[str]:
        """Every name in the body."""
        code = (line.partition("//")[0] for line in self._indented(self.kernel.body, 1))
        return {word for line in code for word in re.findall(r"\w+", line)}

    def _own(self, what: str) -> str:
        """A name in the file's namespace for something of this kernel, told apart where there are several."""
        return f"{self._step}_{what}" if self._step else what

    @property
    def _step(self) -> str:
        """What this kernel is for beside the main one; empty for that one."""
        return self.kernel.name.removeprefix(self.program or self.kernel.name).strip("_")

    def function(self) -> str:
        text = super().function()
        if not shares_lanes(self.kernel):
            return text
        opening = f"{INDENT}const sycl::sub_group sub_group = item.get_sub_group();\n"
        head, brace, body = text.partition("\n{\n")
        return f"{head}{brace}{opening}{body}"

    def _param(self, param: Buffer | Var, restrict: str = "__restrict ") -> str:
        if isinstance(param, Var):
            return f"{self.types[param.dtype.name]} {param.name}"
        if param.space is Space.IMAGE:
            raise ScheduleError(f"{param.name} is an image, which SYCL reads no blocks of: use --method simd")
        matrix, listed = param.addresses or param, "" if param.addresses is None else "const *"
        const = "" if matrix.writable else "const "
        return f"{const}{self.types[matrix.dtype.name]} *{listed}{restrict}{param.name}"

    def prelude(self) -> list[str]:
        """Named functions for the instructions that the kernel uses."""
        lines = functions(self.kernel, MOVES, self.elements)
        loads = block_loads(self.kernel)
        named = {"at": "at", "load": "load_element", "atomic_add": "atomic_add"}
        lines += sections(INTRINSICS, {named[word] for word in named.keys() & self._words()})
        lines += vector_functions(self.kernel, self._words(), self.elements)
        for width in sorted({m.width for m in loads}):
            template, element = environment().get_template("sycl/block_load.j2"), self.types[loads[0].src.dtype.name]
            lines += template.render(width=width, element=element).splitlines()
        return lines

    def _in_bytes(self) -> bool:
        """Whether lanes hold the addresses of block loads: registers are then as full as they can be."""
        return any(load.byte_place is not None for load in block_loads(self.kernel))

    # --- how it is started ------------------------------------------------------------------------

    def postlude(self, kernels: Sequence[Self]) -> str:
        """The entry points for the run-time compiler, or the launcher."""
        if self.form == "kernel":
            return environment().get_template("sycl/entry_points.j2").render(steps=[k.step(4) for k in kernels])
        params = [
            "sycl::queue &queue",
            *(self._param(p, "") for p in self.kernel.launcher_params),
            "const std::vector<sycl::event> &depends_on = {}",
        ]
        template = environment().get_template("sycl/launcher.j2")
        text = template.render(
            listed=self.spec.listed,
            workspace=any(m.writable and m.name not in ("a", "b", "c") for m in self.kernel.matrices),
            opening=wrapped(f"inline sycl::event {self.kernel.name}(", params),
            skips=self.no_product(),
            empty=" || ".join(f"{var.name} < 1" for var in self.kernel.extents),
            steps=[{**printer.step(16), "needed": self.needed(printer.kernel)} for printer in kernels],
        )
        folded = (piece for line in text.splitlines() for piece in (fold_line(line) if "groups(" in line else [line]))
        return "\n".join(folded) + "\n"

    def step(self, indent: int) -> Mapping[str, object]:
        """What starts this kernel; its call stands `indent` in."""
        (rows, cols), (down, across) = self.kernel.group, self.kernel.grid
        given, (one, layers) = self._given(), self._layers()
        # Others have no name in the entry point, which must take them all.
        named = [(p.name, self._param(p), p in given) for p in self.kernel.given]
        params = [text if used else f"{text.removesuffix(name).rstrip()} /* {name} */" for name, text, used in named]
        names = ["item", *(p.name for p in given), *(b.name for b in local_arrays(self.kernel))]
        namespace = f"{self.program or self.kernel.name}_detail"
        return {
            "name": f"{namespace}::{self._own('kernel')}",
            "event": self._step or "product",
            "opening": wrapped(f"void {self.kernel.name}(", params),
            "dimensions": self._dimensions,
            "group": f"{one}{rows}, {cols}",
            "groups": f"{layers}{self.expr(down)}, {self.expr(across)}",
            "lanes": self.kernel.sub_group or self.kernel.compiled_for,
            "arrays": [(f"{self.types[b.dtype.name]}{self.dimensions(b)}", b.name) for b in local_arrays(self.kernel)],
            "call": wrapped(" " * indent + f"{namespace}::{self._own('work_item')}(", names),
        }

    def launch(self) -> str:
        (rows, cols), (down, across) = self.kernel.group, self.kernel.grid
        one, layers = self._layers()
        local, whole = f"{one}{rows}, {cols}", f"{layers}{self.expr(down * rows)}, {self.expr(across * cols)}"
        return f"local range {{{local}}}, global range {{{whole}}}"

    def _layers(self) -> tuple[str, str]:
        """A batch's dimension before the others: of a group, and of all of them."""
        return ("", "") if self.kernel.layers is None else ("1, ", f"{self.kernel.layers.name}, ")

    def uses(self) -> frozenset[str]:
        return self.target.features & ({"required_sub_group_size"} if self.kernel.sub_group else set())

    def _large(self) -> str:
        """What DPC++ is told of the registers that a thread has."""
        return " -ftarget-register-alloc-mode=pvc:large" if self.kernel.large_registers else ""

    def requirements(self) -> list[str]:
        size = self.kernel.sub_group or self.kernel.compiled_for
        lanes = [f"sub-groups of {size}"] * bool(size)
        extensions = ["sycl_ext_oneapi_group_load_store"] if block_loads(self.kernel) else []
        return [", ".join([*extensions, *lanes])] if lanes else []

    def build_line(self) -> str:
        name = self.kernel.name
        match self.form:
            case "kernel":
                return "create_kernel_bundle_from_source(context, source_language::sycl, ...), build"
            case "main":
                return f"icpx -fsycl -std=c++17 -O3 -fp-model=precise{self._large()} {name}.cpp -o {name}"
        return f"icpx -fsycl -std=c++17 -O3 -fp-model=precise{self._large()} main.cpp, which includes this file"

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
        return f"#pragma GCC unroll {rounds(loop)}"

    def _bound(self, node: Expr) -> tuple[str, int]:
        match node:
            case Bin("+", Bin("*", Call("group_id", axis), Const(size)), Call("local_id", same)) if axis == same:
                # Of a sum of the two, the CPU's compiler does not see that work-items side by side have places so, too.
                dimension = self._dimension(axis)
                if size == self.kernel.group[1 - (as_int(axis[0]) or 0)]:
                    return f"int(item.get_global_id({dimension}))", POSTFIX
        return super()._bound(node)

    def _dimension(self, axis: tuple[Expr, ...]) -> int:
        """SYCL counts dimensions from the slowest."""
        return self._dimensions - 1 - (as_int(axis[0]) or 0)

    def call(self, call: Call) -> tuple[str, int]:
        args = ", ".join(self.expr(a) for a in call.args)
        match call.function:
            case "group_id" | "local_id":
                return f"int(item.{IDS[call.function]}({self._dimension(call.args)}))", POSTFIX
            case "lane_id":
                return "int(sub_group.get_local_linear_id())", POSTFIX
            case "fma":
                return f"sycl::fma({args})", POSTFIX
            case "broadcast" | "shuffle_xor":
                return f"sycl::{LANES[call.function]}(sub_group, {args})", POSTFIX
        raise LoweringError(f"SYCL has no name for {call.function}")

    def math(self, name: str, dtype: DType) -> str:
        return f"sycl::{super().math(name, dtype)}"

    def conversion(self, value: Expr, dtype: DType) -> tuple[str, int]:
        return f"{self.elements.converter(value.dtype, dtype)}({self.expr(value)})", POSTFIX

    def element(self, buffer: Buffer, index: tuple[Expr, ...]) -> str:
        if buffer.vector > 1:
            return vector_element(self, VECTORS, buffer, index)
        if buffer.space is Space.GLOBAL and not buffer.writable and self._in_bytes():
            return f"load({buffer.name}, {self.expr(buffer.layout.offset(index))})"
        return super().element(buffer, index)

    def address(self, buffer: Buffer, index: tuple[Expr, ...]) -> str:
        return f"&{super().element(buffer, index)}" if buffer.space is Space.GLOBAL else super().address(buffer, index)

    def vector_loop(self, loop: For) -> Iterator[str]:
        return vector_loop(self, VECTORS, loop)

    def vector_type(self, dtype: DType, width: int) -> str:
        return f"sycl::{self.types[dtype.name]}{width}"

    def barrier(self) -> str:
        return "sycl::group_barrier(item.get_group());"

    def wide_move(self, move: Move) -> str:
        if max(move.dst.vector, move.src.vector) > 1:
            return vector_move(self, VECTORS, move)
        to, source = self.address(move.dst, move.dst_index), self.address(move.src, move.src_index)
        if move.byte_place is not None:
            start = "" if move.from_element is None else f" + {self.expr(move.from_element)}"
            source = f"at({move.src.name}{start}, {self.expr(move.byte_place[0])})"
        match move.atom.name:
            case "atomic_add":
                return f"atomic_add({to}, {self.element(move.src, move.src_index)});"
            case "vector" | "aligned_vector":
                return f"copy{move.width}({to}, {source});"
            case "block_read" if move.width == 1:
                return f"{self.element(move.dst, move.dst_index)} = {BLOCK_LOAD}(sub_group, {source});"
            case "block_read":
                return f"{BLOCK_LOAD}{move.width}(sub_group, {source}, {to});"
        raise LoweringError(f"SYCL has no instruction for {move.atom.name}")
