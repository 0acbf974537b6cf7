"""SYCL 2020: a header with a launcher, a kernel for the run-time compiler, or a program that checks itself."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import ClassVar, Self

from gemmgen.backends.block_io import (
    SOFTWARE,
    BlockWords,
    declared,
    multiplies_by,
    placed_text,
    read_text,
    write_text,
    writes_2d_blocks,
)
from gemmgen.backends.clike import INDENT, CLike, Words, converting, rounds, way
from gemmgen.backends.files import environment, rendered
from gemmgen.backends.joint_matrix import (
    EXTENSIONS,
    FRAGMENTS,
    MATRIX_HEADERS,
    apply_opening,
    fragment_types,
    load_functions,
    load_text,
    multiply_text,
    uses_fragments,
)
from gemmgen.backends.pairs import Pairs
from gemmgen.backends.reach import unreached
from gemmgen.backends.routines import small_integers
from gemmgen.backends.sycl_dpas import BLOCK_2D_WORDS, declarations, dpas_needs, dpas_text, functions
from gemmgen.backends.sycl_program import program_words
from gemmgen.backends.vectors import POSTFIX, VectorWords
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import I8, DType
from gemmgen.ir.expr import Bin, Call, Const, Expr, Var, as_int
from gemmgen.ir.kernel import Kernel, allocs, conversions, fragments_of, uses_calls
from gemmgen.ir.sizes import Workspace
from gemmgen.ir.stmt import Alloc, For, FragmentApply, Multiply, PlaceStmt, Stmt, VectorCopy
from gemmgen.ir.synchronization import Barrier, SyncStmt
from gemmgen.ir.target import LARGE_REGISTERS
from gemmgen.ir.walk import in_numbers, of_kind
from gemmgen.launch import broken_assumptions
from gemmgen.records import dataclass

#: Built-in ids that have a dimension.
IDS = ("group_id", "local_id")
BLOCK_LOAD = "block_load"
#: Moves of neighbours: what they assume of addresses makes no difference here.
MOVES = ("vector", "aligned_vector")
#: Vectors of a work-item's own: `sycl::float16` and its like.
VECTORS = VectorWords(
    type="sycl::{element}{width}",
    load="load{width}({place})",
    store="store({value}, {place});",
    splat="{type}({value})",
    choice="sycl::select({other}, {then}, {condition})",
    half="{vector}.{half}()",
    single="{vector}[{number}]",
    element="{vector}[{inside}]",
)
#: Functions of a sub-group.
LANES = {"broadcast": "group_broadcast", "shuffle_xor": "permute_group_by_xor"}

# --- element types ---

TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "sycl::half",
    "bfloat16": "sycl::ext::oneapi::bfloat16",
    "complex64": "sycl::float2",
    "complex128": "sycl::double2",
    "int32": "int",
    "int64": "long long",
    "int8": "signed char",
    "bool": "bool",
}
#: By index: what `.x()` gives is no number but a part of a vector that can be assigned to.
PAIRS = Pairs("{type}", ("[0]", "[1]"), "inline", ("sycl::fma", "sycl::fma"))
#: What vectors of a class are made of, and called.
WORDS = {
    "float16": ("unsigned short", "ushort"),
    "bfloat16": ("unsigned short", "ushort"),
    "int8": ("signed char", "schar"),
    "complex64": ("float", "complex"),
    "complex128": ("double", "complex"),
    "int64": ("long long", "longlong"),
}
#: The run-time compiler's headers of types that the language itself lacks.
HEADERS = {
    "float16": ("half_type.hpp",),
    "bfloat16": ("bit_cast.hpp", "ext/oneapi/bfloat16.hpp"),
    "complex64": ("vector.hpp",),
    "complex128": ("vector.hpp",),
}
#: The macro by which a caller, for Intel's GPUs alone, asks for more registers a thread (sycl_ext_intel_grf_size).
LARGE = "GEMMGEN_256_REGISTERS"
#: (from, to) -> the function that converts, where that is not the type's own.
CONVERSIONS = {("bfloat16", "float32"): "bfloat16_to_float", ("float32", "bfloat16"): "float_to_bfloat16"}


#: Of 16-bit floats that are kept in integers: their type, what it needs of the run-time compiler, and who converts.
BITS = "std::uint16_t"
BITS_HEADERS = ("bit_cast.hpp",)
BITS_CONVERSIONS = {
    ("float16", "float32"): "half_bits_to_float",
    ("float32", "float16"): "float_to_half_bits",
    ("bfloat16", "float32"): "bfloat16_bits_to_float",
    ("float32", "bfloat16"): "float_to_bfloat16_bits",
}


@dataclass(frozen=True)
class Elements:
    """What a kernel's element types are called and converted by.

    Attributes:
        types: by NumPy's names.
        conversions: (from, to) -> the function, where that is not the type's own.
        headers: the run-time compiler's, of types that the language itself lacks.
    """

    types: Mapping[str, str]
    conversions: Mapping[tuple[str, str], str]
    headers: Mapping[str, tuple[str, ...]]

    def converter(self, source: DType, to: DType) -> str:
        """What is called to change a type."""
        return self.conversions.get((source.name, to.name), converting(self.types[to.name]))


#: As the language has them; and with 16-bit floats in integers.
OWN = Elements(TYPES, CONVERSIONS, HEADERS)
BY_BITS = Elements(
    {**TYPES, "float16": BITS, "bfloat16": BITS},
    BITS_CONVERSIONS,
    {**HEADERS, "float16": BITS_HEADERS, "bfloat16": BITS_HEADERS},
)


@dataclass
class Sycl(CLike):
    """SYCL 2020, for DPC++; block loads by its extension `group_load`."""

    name: ClassVar[str] = "sycl"
    suffix: ClassVar[str] = ".hpp"
    words: ClassVar[Words] = Words("work-item", "group", "USM", "local memory", "sub-group")
    targets: ClassVar[tuple[str, ...]] = ("sycl", "xe_hpc", "khr", "portable", "cpu")
    lacks: ClassVar[frozenset[str]] = frozenset(
        {"intel_sub_groups", "image_block_read", "converted_vectors", "cache_prefetch", "free_sub_group_size"}
    )
    forms: ClassVar[tuple[str, ...]] = ("header", "kernel", "main")
    elements: ClassVar[Elements] = OWN
    types: ClassVar[Mapping[str, str]] = elements.types
    pairs: ClassVar[Pairs] = PAIRS
    calls: ClassVar[Mapping[str, str]] = {
        "group_id": "int(item.get_group({axis}))",
        "local_id": "int(item.get_local_id({axis}))",
        "lane_id": "int(sub_group.get_local_linear_id())",
        **{name: f"sycl::{function}(sub_group, {{args}})" for name, function in LANES.items()},
    }
    barrier: ClassVar[str] = "sycl::group_barrier(item.get_group());"
    restrict: ClassVar[str] = "__restrict "
    minimum: ClassVar[str] = "std::min"
    math_prefix: ClassVar[str] = "sycl::"
    vectors: ClassVar[VectorWords] = VECTORS
    block_words: ClassVar[BlockWords] = BLOCK_2D_WORDS
    #: Fragments whose elements are being spoken of.
    _applied: dict[Buffer, FragmentApply] = field(default_factory=dict, init=False, compare=False)

    def template(self) -> str:
        return f"sycl/{self.form}.{'hpp' if self.form == 'header' else 'cpp'}.j2"

    def fields(self, kernels: Sequence[Self], workspaces: Sequence[Workspace]) -> Mapping[str, object]:
        used = ["algorithm"] if "min" in self._words() else []
        used += ["cstdint"] if any("std::" in str(x["vector"]) for x in _vectors(self.kernel, self.elements)) else []
        before = {"declarations": declarations(self, self.elements.converter)}
        match self.form:
            case "main":
                between = [(w.name, self.expr(in_numbers(w.elements))) for w in workspaces]
                more = ["chrono", "cmath", "cstddef", "cstdio", "exception", "vector"]
                own = program_words(self.kernel, self.spec, between)
                return {**before, "standard": [*used, *more], "one_event": len(kernels) == 1, **own}
            case "kernel":
                headers = _headers(self.kernel, self._words(), self.elements)
                return {**before, "standard": used, "headers": headers, "large": LARGE * self.kernel.large_registers}
        return {**before, "standard": [*used, "vector"]}

    # --- what a work-item runs --------------------------------------------------------------------

    def signature(self) -> list[str]:
        params = [f"sycl::nd_item<{self._dimensions}> item", *(self.parameter(p) for p in self._given())]
        params += (f"{self.types[b.dtype.name]} (&{b.name}){self.dimensions(b)}" for b in local_arrays(self.kernel))
        lines = ["// What each work-item does.", f"inline void {self._own('work_item')}({', '.join(params)})"]
        why = "// Names the kernel, for profilers and for host compilers other than DPC++."
        return lines if self.form == "kernel" else [why, f"class {self._own('kernel')};", "", *lines]

    @property
    def _dimensions(self) -> int:
        return 2 if self.kernel.grid_z is None else 3

    def _given(self) -> list[Buffer | Var]:
        """The parameters that a work-item needs; others only say how many work-items there are."""
        words = self._words()
        return [p for p in self.kernel.given if p.name in words]

    def _words(self) -> set[str]:
        """Every name in the body."""
        code = (line.partition("//")[0] for line in self.indented(self.kernel.body, 1))
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

    def prelude(self) -> list[str]:
        """Named functions for the instructions that the kernel uses."""
        words, vectors = self._words(), _vectors(self.kernel, self.elements)
        loads = block_loads(self.kernel)
        own = {"at": "at", "load": "load_element", "atomic_add": "atomic_add"}
        return [
            *self.pairs.functions(self.kernel, self.types),
            *self.dot_products("inline"),
            *self._fragments(),
            *small_integers(self.kernel, "inline", self.types[I8.name]),
            *rendered(
                "sycl/functions.hpp.j2",
                used=_conversions(self.kernel, self.elements) | {own[word] for word in own.keys() & words},
                moves=_moves(self.kernel, self.elements),
                load_vectors=[x for x in vectors if "load" in words or f"load{x['width']}" in words],
                # Stores have one name for all widths.
                store_vectors=[x for x in vectors if "store" in words],
                block_loads=[
                    {"width": width, "element": self.types[loads[0].src.dtype.name]}
                    for width in sorted({move.width for move in loads})
                ],
            ),
            *functions(self, self.elements.converter, self._dimensions),
        ]

    def _fragments(self) -> list[str]:
        """The types of fragments, and the function that loads one."""
        types = fragment_types(self.kernel, self.types)
        if not types:
            return []
        found = load_functions(self.kernel, self.types, lambda dtype: self.literal(0, dtype)[0])
        return rendered("sycl/joint_matrix.hpp.j2", types=types, **found)

    def _in_bytes(self) -> bool:
        """Whether lanes hold the addresses of block loads: registers are then as full as they can be."""
        return any(load.byte_place is not None for load in block_loads(self.kernel))

    # --- how it is started ------------------------------------------------------------------------

    def postlude(self, kernels: Sequence[Self], workspaces: Sequence[Workspace]) -> str:
        """The entry points for the run-time compiler, or the launcher."""
        if self.form == "kernel":
            return environment().get_template("sycl/entry_points.j2").render(steps=[k.step() for k in kernels])
        params = [
            "sycl::queue &queue",
            *(self.parameter(p, "") for p in self.kernel.launcher_params),
            "const std::vector<sycl::event> &depends_on = {}",
        ]
        template = environment().get_template("sycl/launcher.j2")
        steps = [{**printer.step(), "needed": self.needed(printer.kernel)} for printer in kernels]
        far, called = unreached(self, [printer.kernel for printer in kernels], workspaces)
        refused = [*broken_assumptions(self.kernel, self.spec), *far]
        texts = (*refused, *(str(y) for x in steps for y in (x["groups"], x["arrays"])))
        named = {word for text in texts for word in re.findall(r"\w+", text)}
        return template.render(
            called=called,
            linkage="inline",
            inside=named & {*self.constants, *called},
            detail=f"{self.program or self.kernel.name}_detail",
            listed=self.spec.listed,
            workspace=any(m.writable and m.name not in ("a", "b", "c") for m in self.kernel.matrices),
            opening=f"inline sycl::event {self.kernel.name}({', '.join(params)})",
            skips=self.no_product(),
            refused=" || ".join(refused),
            empty=" || ".join(f"{var.name} < 1" for var in self.kernel.extents),
            steps=steps,
        )

    def step(self) -> Mapping[str, object]:
        """What starts this kernel."""
        (rows, cols), (down, across) = self.kernel.group, self.kernel.grid
        given, (one, layers) = self._given(), self._layers()
        # Others have no name in the entry point, which must take them all.
        named = [(p.name, self.parameter(p), p in given) for p in self.kernel.given]
        params = [text if used else f"{text.removesuffix(name).rstrip()} /* {name} */" for name, text, used in named]
        names = ["item", *(p.name for p in given), *(b.name for b in local_arrays(self.kernel))]
        namespace = f"{self.program or self.kernel.name}_detail"
        arrays = [(f"{self.types[b.dtype.name]}{self.dimensions(b)}", b.name) for b in local_arrays(self.kernel)]
        return {
            "constants": namespace if any(re.search("[A-Z]", text) for text, _ in arrays) else "",
            "name": f"{namespace}::{self._own('kernel')}",
            "event": self._step or "product",
            "opening": f"void {self.kernel.name}({', '.join(params)})",
            "dimensions": self._dimensions,
            "group": f"{one}{rows}, {cols}",
            "group_range": f"{one}{self.number(rows)}, {self.number(cols)}",
            "groups": f"{layers}{self.expr(down)}, {self.expr(across)}",
            "lanes": self.kernel.sub_group or self.kernel.compiled_for,
            "large": LARGE * self.kernel.large_registers,
            "arrays": arrays,
            "call": f"{namespace}::{self._own('work_item')}({', '.join(names)})",
        }

    def launch(self) -> str:
        (rows, cols), (down, across) = self.kernel.group, self.kernel.grid
        one, layers = self._layers()
        local, whole = f"{one}{rows}, {cols}", f"{layers}{self.expr(down * rows)}, {self.expr(across * cols)}"
        return f"local range {{{local}}}, global range {{{whole}}}"

    def _layers(self) -> tuple[str, str]:
        """A batch's dimension before the others: of a group, and of all of them."""
        return ("", "") if self.kernel.grid_z is None else ("1, ", f"{self.kernel.grid_z.name}, ")

    def uses(self) -> frozenset[str]:
        return self.target.features & ({"required_sub_group_size"} if self.kernel.sub_group else set())

    def _large(self) -> str:
        """What DPC++ is told of the registers that a thread has."""
        return " -ftarget-register-alloc-mode=pvc:large" if self.kernel.large_registers else ""

    def requirements(self) -> list[str]:
        size = self.kernel.sub_group or self.kernel.compiled_for
        lanes = [f"sub-groups of {size}"] * bool(size)
        extensions = ["sycl_ext_oneapi_group_load_store"] if block_loads(self.kernel) else []
        extensions += EXTENSIONS if uses_fragments(self.kernel) else ()
        more: list[str] = []
        if multiplies_by(self.kernel, "dpas"):
            more += dpas_needs(self.kernel)
        if uses_fragments(self.kernel) or more:
            named = "A, B and C" if writes_2d_blocks(self.kernel) else "A and B"
            more.append(f"{named} that begin on multiples of {self.alignment()} bytes")
            option = f"on Intel's GPUs, and only there, the build option {LARGE_REGISTERS}"
            more += [option] * self.kernel.large_registers
        if self.gpu_options():
            more.append(f"on Intel's GPUs, and only there, -D{LARGE}: the kernel then asks for 256 registers itself")
        return [", ".join([*extensions, *lanes]), *more] if lanes else []

    def gpu_options(self) -> tuple[str, ...]:
        """Of the run-time compiler; of the others the Build line says how."""
        return (f"-D{LARGE}",) if self.kernel.large_registers and self.form == "kernel" else ()

    def matrix_options(self) -> tuple[str, str] | None:
        return ("", f"-D{SOFTWARE}") if multiplies_by(self.kernel, "dpas") else None

    def build_line(self) -> str:
        name = self.kernel.name
        match self.form:
            case "kernel":
                return "create_kernel_bundle_from_source(context, source_language::sycl, ...), build"
            case "main":
                return f"icpx -fsycl -std=c++17 -O3 -fp-model=precise{self._large()} {name}.cpp -o {name}"
        return f"icpx -fsycl -std=c++17 -O3 -fp-model=precise{self._large()} main.cpp, which includes this file"

    # --- functions and instructions ---------------------------------------------------------------

    def declare(self, buffer: Buffer) -> list[str]:
        """Local memory is declared by who starts the work-items."""
        if (use := fragments_of(self.kernel.body).get(buffer)) is not None:
            counts = "".join(f"[{self.number(extent)}]" for extent in buffer.extents[:-1])
            return [f"{FRAGMENTS[use]} {buffer.name}{counts};"]
        if buffer.space is Space.LOCAL:
            return []
        return declared(self.kernel, buffer, super().declare(buffer), self.dimensions)

    def unroll(self, loop: For) -> str:
        """In the one spelling that both DPC++ and g++, which checks types, take without a warning."""
        if loop.unroll_factor:
            return f"#pragma GCC unroll {loop.unroll_factor}"
        count = self.number(rounds(loop))
        # clang-format takes a product of names there for a pointer's declaration.
        return f"#pragma GCC unroll {f'int({count})' if ' * ' in count else count}"

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

    def call_words(self, call: Call) -> Mapping[str, object]:
        return {"axis": self._dimension(call.args)} if call.function in IDS else {}

    def conversion(self, value: Expr, dtype: DType) -> tuple[str, int]:
        return f"{self.elements.converter(value.dtype, dtype)}({self.expr(value)})", POSTFIX

    def element(self, buffer: Buffer, index: tuple[Expr, ...]) -> str:
        if buffer in self._applied and index == self._applied[buffer].place:
            return self._applied[buffer].element.name
        if buffer.space is Space.GLOBAL and not buffer.writable and self._in_bytes():
            return f"load({buffer.name}, {self.expr(buffer.layout.offset(index))})"
        return super().element(buffer, index)

    def multiply(self, stmt: Multiply) -> str:
        match stmt.atom.name:
            case "joint_matrix":
                return multiply_text(self, stmt)
            case "dpas":
                return dpas_text(self, stmt)
        return super().multiply(stmt)

    def _placed(self, stmt: PlaceStmt) -> str:
        return placed_text(self, stmt) or super()._placed(stmt)

    def _statement(self, stmt: Stmt, following: Stmt | None = None) -> Iterator[str]:
        if isinstance(stmt, FragmentApply):
            return iter(self._fragment_apply(stmt))
        return super()._statement(stmt, following)

    def _fragment_apply(self, stmt: FragmentApply) -> list[str]:
        """What is done to each element of a fragment."""
        if (value := stmt.fill) is not None:
            fragment = self.element(stmt.fragment, stmt.index)
            return [f"matrix::joint_matrix_fill(sub_group, {fragment}, {self.expr(value)});"]
        opening = apply_opening(self, stmt, self.types[stmt.fragment.dtype.name])
        self._applied[stmt.fragment] = stmt
        body = list(self.indented(stmt.body, 2))
        del self._applied[stmt.fragment]
        return [opening, *body, "});"]

    def sync(self, stmt: SyncStmt) -> list[str]:
        match stmt:
            case Barrier(part="arrive" | "wait" as part):
                return [f"barrier_{part}();"]
            case Barrier(of_sub_group=True):
                return ["sycl::group_barrier(sub_group);"]
        return super().sync(stmt)

    def address(self, buffer: Buffer, index: tuple[Expr, ...]) -> str:
        return f"&{super().element(buffer, index)}" if buffer.space is Space.GLOBAL else super().address(buffer, index)

    def vector_type(self, dtype: DType, width: int) -> str:
        return vector_of(self.types[dtype.name], width)

    def vector_copy(self, move: VectorCopy) -> str:
        to, source = self.address(move.dst, move.dst_index), self.address(move.src, move.src_index)
        if move.byte_place is not None:
            start = "" if move.from_element is None else f" + {self.expr(move.from_element)}"
            source = f"at({move.src.name}{start}, {self.expr(move.byte_place[0])})"
        match move.atom.name:
            case "atomic_add":
                return f"atomic_add({to}, {self.element(move.src, move.src_index)});"
            case "vector" | "aligned_vector":
                return f"copy{move.width}({to}, {source});"
            case "joint_matrix" | "joint_matrix_elements":
                return load_text(self, move)
            case "block_2d" | "block_2d_elements":
                return read_text(self, move)
            case "block_2d_write":
                return write_text(self, move)
            case "block_read" if move.width == 1:
                return f"{self.element(move.dst, move.dst_index)} = {BLOCK_LOAD}(sub_group, {source});"
            case "block_read":
                return f"{BLOCK_LOAD}{move.width}(sub_group, {source}, {to});"
        raise LoweringError(f"SYCL has no instruction for {move.atom.name}")


class SyclByBits(Sycl):
    """What is different: names and conversions of types, and what a device need not have."""

    elements: ClassVar[Elements] = BY_BITS
    types: ClassVar[Mapping[str, str]] = elements.types

    def fields(self, kernels: Sequence[Self], workspaces: Sequence[Workspace]) -> Mapping[str, object]:
        fields = super().fields(kernels, workspaces)
        standard = fields["standard"]
        assert isinstance(standard, list)
        return {**fields, "standard": sorted([*standard, "cstdint"])}

    def needs(self) -> frozenset[str]:
        return super().needs() - {"fp16"}


# --- functions ---


def _conversions(kernel: Kernel, elements: Elements) -> set[str]:
    """The functions of the file's own that change types."""
    changes = {(source.name, to.name) for source, to, _ in conversions(kernel)}
    return {elements.conversions[change] for change in changes & set(elements.conversions)}


def _moves(kernel: Kernel, elements: Elements) -> list[dict[str, object]]:
    """Moves of neighbours, by the types and the numbers that occur."""
    types = elements.types
    moves = [s for s in of_kind(VectorCopy, kernel.body) if s.atom.name in MOVES]
    moves = [move for move in moves if move.src.vector == move.dst.vector == 1]
    found = {(way(m), m.width, m.src.dtype, m.dst.dtype) for m in moves}
    # A copy that converts has one that doesn't inside.
    found |= {("copy", width, t, t) for key, width, *two in found for t in two[key == "store" :][:1]}
    words: list[dict[str, object]] = []
    for key, width, source, to in sorted(found, key=lambda x: (*x[:2], str(x[2:]))):
        word, vector = WORDS.get(source.name, (types[source.name],) * 2)
        words.append(
            {
                "way": key,
                "width": width,
                "bytes": width * source.size,
                "size": source.size,
                "word": word,
                "vector": f"{vector}{width}",
                "source": types[source.name],
                "to": types[to.name],
                "convert": elements.converter(source, to),
            }
        )
    return words


def vector_of(element: str, width: int) -> str:
    """The type of a vector. Of `long long`, `sycl::select` takes none: those are of another type of as many bits."""
    return f"sycl::vec<std::int64_t, {width}>" if element == "long long" else f"sycl::{element}{width}"


def _vectors(kernel: Kernel, elements: Elements) -> list[dict[str, object]]:
    """Vectors of a work-item's own."""
    held = {s.buffer for s in of_kind(Alloc, kernel.body) if s.buffer.vector > 1}
    found = sorted({(x.vector, elements.types[x.dtype.name]) for x in held}, key=lambda x: x[0])
    return [{"width": width, "element": element, "vector": vector_of(element, width)} for width, element in found]


# --- headers ---


def block_loads(kernel: Kernel) -> list[VectorCopy]:
    """The moves by which a sub-group loads neighbours."""
    return [s for s in of_kind(VectorCopy, kernel.body) if s.atom.name == "block_read"]


def local_arrays(kernel: Kernel) -> list[Buffer]:
    """What lies in local memory."""
    return [s.buffer for s in allocs(kernel, Space.LOCAL)]


def shares_lanes(kernel: Kernel) -> bool:
    """Whether work-items of a sub-group act together."""
    by_matrices = uses_fragments(kernel) or multiplies_by(kernel, "dpas")
    return bool(block_loads(kernel)) or by_matrices or uses_calls(kernel, {"lane_id", *LANES})


def _headers(kernel: Kernel, words: Collection[str], elements: Elements) -> list[str]:
    """Those that a kernel needs of the run-time compiler, where they cost more than its own text; `words` are all names
    in its body.
    """
    found = ["builtins.hpp", "ext/oneapi/free_function_kernel_properties.hpp"]
    found += ["ext/oneapi/free_function_queries.hpp", "nd_item.hpp"]
    if any(of_kind(Barrier, kernel.body)):
        found.append("group_barrier.hpp")
    if "atomic_add" in words:
        found.append("atomic_ref.hpp")
    if local_arrays(kernel):
        found.append("ext/oneapi/work_group_static.hpp")
    if shares_lanes(kernel):
        found += ["group_algorithm.hpp", "sub_group.hpp"]
    if uses_fragments(kernel):
        found += MATRIX_HEADERS
    if multiplies_by(kernel, "dpas"):
        found.append("bit_cast.hpp")
    if block_loads(kernel):
        experimental = "ext/oneapi/experimental"
        found += [f"{experimental}/address_cast.hpp", f"{experimental}/group_load_store.hpp"]
    if any(s.buffer.vector > 1 for s in of_kind(Alloc, kernel.body)):
        found.append("vector.hpp")
    found += [header for p in kernel.matrices for header in elements.headers.get(p.dtype.name, ())]
    return sorted(set(found))
