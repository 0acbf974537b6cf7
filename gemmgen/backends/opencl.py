"""OpenCL C, with Intel's or Khronos' sub-groups where a kernel asks for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Self

from gemmgen.backends.clike import CLike, way
from gemmgen.backends.expressions import POSTFIX, UNARY
from gemmgen.backends.files import section
from gemmgen.backends.language import Words
from gemmgen.backends.lines import wrapped
from gemmgen.backends.opencl_needs import (
    KHR_NAMES,
    LARGE_REGISTERS,
    MATRIX_OPTIONS,
    REQUIRED_SIZE,
    SOFTWARE,
    enabled,
    extensions,
    multiplies_matrices,
    requirements,
)
from gemmgen.backends.pairs import Pairs
from gemmgen.backends.vectors import VectorWords, vector_element, vector_loop, vector_move
from gemmgen.errors import LoweringError
from gemmgen.ir.atoms import ALIGNED_VECTOR
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Call, Expr, Var
from gemmgen.ir.kernel import Kernel, conversions
from gemmgen.ir.matrix import MatrixAtom
from gemmgen.ir.stmt import For, Move, Multiply, in_bytes
from gemmgen.ir.walk import map_body, walk
from gemmgen.ir.workspace import Workspace

#: Built-in ids -> what is printed in front of the dimension; they are size_t, gemmgen counts in int.
IDS = {"group_id": "(int)get_group_id", "local_id": "(int)get_local_id"}
INTEL_NAMES = {"broadcast": "intel_sub_group_shuffle", "shuffle_xor": "intel_sub_group_shuffle_xor"}
#: Where the functions stand that kernels are printed with.
INTRINSICS = "opencl/intrinsics.cl"
#: (from, to) -> the function that converts; one that ends in a number converts so many elements.
CONVERSIONS: dict[tuple[str, str], str] = {
    ("float16", "float32"): "half_to_float",
    ("float32", "float16"): "float_to_half",
    ("bfloat16", "float32"): "bfloat16_to_float",
    ("float32", "bfloat16"): "float_to_bfloat16",
    ("int8", "int32"): "convert_int",
    ("int8", "float32"): "convert_float",
    ("int32", "float32"): "convert_float",
    ("int32", "float64"): "convert_double",
    ("int32", "int64"): "convert_long",
    ("float32", "float64"): "convert_double",
}
#: Those that are OpenCL's own.
BUILT_IN = frozenset({"convert_int", "convert_float", "convert_double", "convert_long"})
#: Reads of packed operands, each a section of intrinsics.
PACKED_READS = ("packed_vectors", "packed_block")
MULTIPLY = "multiply"
BLOCK_READ, IMAGE_BLOCK_READ = "block_read", "image_block_read"
SPACES = {Space.GLOBAL: "__global ", Space.LOCAL: "__local ", Space.PRIVATE: "", Space.VIEW: "__local "}
#: Vectors of a work-item's own: `float16` and its like.
VECTORS = VectorWords(
    load="vload{width}(0, {place})",
    store="vstore{width}({value}, 0, {place});",
    splat="({type})({value})",
    choice="{condition} ? {then} : {other}",
    half="{vector}.{half}",
    single="{vector}.s{number:x}",
    element="(({type} *){address})[{place}]",
)


class OpenCL(CLike):
    """OpenCL C 1.2 and up."""

    name: ClassVar[str] = "opencl"
    suffix: ClassVar[str] = ".cl"
    words: ClassVar[Words] = Words("work-item", "group", "buffer", "local memory", "sub-group")
    pairs: ClassVar[Pairs] = Pairs("(TYPE)(RE, IM)", (".x", ".y"))
    long: ClassVar[str] = "L"
    targets: ClassVar[tuple[str, ...]] = ("intel", "xe_hpc", "khr", "portable", "cpu")
    #: Buffers are no addresses.
    lacks: ClassVar[frozenset[str]] = frozenset({"address_lists"})
    #: Floats of 16 bits are kept in ushort, since half is no type of variables without an extension.
    types: ClassVar[dict[str, str]] = {
        "float64": "double",
        "float32": "float",
        "float16": "ushort",
        "bfloat16": "ushort",
        "complex64": "float2",
        "complex128": "double2",
        "int32": "int",
        "int64": "long",
        "int16": "short",
        "int8": "char",
        "bool": "bool",
    }

    # --- the function -----------------------------------------------------------------------------

    def signature(self) -> list[str]:
        rows, cols = self.kernel.group
        lines = [f"__attribute__((reqd_work_group_size({cols}, {rows}, 1)))"]
        if lanes := self.kernel.sub_group or self.kernel.compiled_for:
            required = f"__attribute__((intel_reqd_sub_group_size({lanes})))"
            fixed = REQUIRED_SIZE in extensions(self.kernel, self.target)
            lines += [required] if fixed else [f"#ifdef {REQUIRED_SIZE}", required, "#endif"]
        opening = f"__kernel void {self.kernel.name}("
        params = [self._param(p) for p in self.kernel.params]
        return [*lines, *wrapped(opening, params)]

    def _param(self, param: Buffer | Var) -> str:
        if isinstance(param, Var):
            return f"{self.types[param.dtype.name]} {param.name}"
        if param.space is Space.IMAGE:
            return f"__read_only image2d_t {param.name}"
        const = "" if param.writable else "const "
        return f"__global {const}{self.types[param.dtype.name]} *restrict {param.name}"

    def prelude(self) -> list[str]:
        return [*self._extensions(), *self._helpers()]

    def fields(self, kernels: Sequence[Self], workspaces: Sequence[Workspace]) -> Mapping[str, object]:  # noqa: ARG002
        """OpenCL C has no namespaces: the file's functions get names of their own, and its macros end with it."""
        text = "\n".join(self.prelude())
        functions = dict.fromkeys(re.findall(r"^static inline [^(]*?(\w+)\(", text, re.MULTILINE))
        own = {name: f"{self.program or self.kernel.name}_{name}" for name in functions}
        return {"own": own, "macros": [*own, *dict.fromkeys(re.findall(r"^#define (\w+)", text, re.MULTILINE))]}

    def _extensions(self) -> list[str]:
        names = enabled(self.kernel, self.target)
        return [*(f"#pragma OPENCL EXTENSION {name} : enable" for name in names), *([""] if names else [])]

    def _helpers(self) -> list[str]:
        """Names for the instructions that the kernel uses, so that its text stays legible."""
        lines = self.pairs.functions(self.kernel, self.types, INTRINSICS)
        lines += _converters(conversions(_without_matrices(self.kernel)))
        moves = [s for s in walk(self.kernel.body) if isinstance(s, Move) and s.atom.name == "vector"]
        lines += self._moves_of_pairs()
        vectors = [m for m in moves if m.src.dtype.real is None and m.dst.vector == m.src.vector == 1]
        for width, verb, function in sorted(
            {(m.width, way(m).upper(), _function(m.src.dtype, m.dst.dtype)) for m in vectors}
        ):
            what = f"// {width} neighbouring elements, at any alignment."
            define = f"#define {verb}{width}(to, from)"
            lines += [what, f"{define} vstore{width}({_applied(function, width, f'vload{width}(0, from)')}, 0, to)", ""]
        local = {(m.width, way(m)): m for m in self._from_local() if m.src.dtype.real is None}
        for _, move in sorted(local.items()):
            width, function = move.width, _function(move.src.dtype, move.dst.dtype)
            size, vector = move.src.dtype.size * width, f"{self.types[move.src.dtype.name]}{width}"
            what = f"// {width} neighbouring elements of local memory, from a multiple of {size} bytes."
            define = f"#define {way(move).upper()}_LOCAL{width}(to, from)"
            value = _applied(function, width, f"*(const __local {vector} *)(from)")
            lines += [what, f"{define} vstore{width}({value}, 0, to)", ""]
        lines += self._matrices()
        if any(isinstance(s, Move) and s.byte_place and s.atom.name == BLOCK_READ for s in walk(self.kernel.body)):
            lines += [*self._at(), ""]
        for atom in (BLOCK_READ, IMAGE_BLOCK_READ):
            moves = [s for s in walk(self.kernel.body) if isinstance(s, Move) and s.atom.name == atom]
            for width in sorted({m.width for m in moves}):
                lines += [*self._block_read(atom, width, moves[0].src.dtype), ""]
        return lines

    def _moves_of_pairs(self) -> list[str]:
        """Moves of several complex numbers, by the memories they go between: as so many real ones, of which vectors of
        any alignment are made.
        """
        moves = [s for s in walk(self.kernel.body) if isinstance(s, Move) and s.width > 1]
        found = {(_between(m), m) for m in moves if m.src.dtype.real is not None}
        lines = []
        for name, move in sorted(dict(found).items()):
            real, width = self.types[str(move.src.dtype.real)], 2 * move.width
            to, source = (f"{SPACES[b.space]}{real} *" for b in (move.dst, move.src))
            what = f"// {move.width} neighbouring complex numbers."
            loaded = f"vload{width}(0, (const {source})(from))"
            lines += [what, f"#define {name}(to, from) \\", f"    vstore{width}({loaded}, 0, ({to})(to))", ""]
        return lines

    def _matrices(self) -> list[str]:
        """Reads of packed operands, and the matrix instruction with software that stands in for it."""
        reads = {s.atom.name for s in walk(self.kernel.body) if isinstance(s, Move)}
        lines: list[str] = []
        for name in PACKED_READS:
            lines += section(INTRINSICS, name) if name in reads else ()
        atoms = {s.atom for s in walk(self.kernel.body) if isinstance(s, Multiply)}
        for atom in (atom for atom in atoms if isinstance(atom, MatrixAtom)):
            own, bits = atom.depth // atom.lanes, 8 * atom.dtype.size
            text = section(
                INTRINSICS,
                "multiply",
                function=atom.name,
                sums=self.types[atom.sums.name],
                word=self.types[atom.a_word.name],
                lanes=atom.lanes,
                depth=atom.depth,
                own="an element" if own == 1 else f"{own} neighbours",
                holder="k" if own == 1 else f"k / {own}",
                part="" if own == 1 else f" >> k % {own} * {bits}",
                packed=atom.packed,
                bits=bits,
                element=f"{_function(atom.dtype, atom.sums)}(({self.types[atom.dtype.name]})",
            )
            # Functions that software alone calls.
            start = text.index(f"#if defined({SOFTWARE})") + 1
            only = conversions(self.kernel) - conversions(_without_matrices(self.kernel))
            lines += [*text[:start], *_converters(only), *text[start:]]
        return lines

    def _from_local(self) -> list[Move]:
        """Loads of vectors from local memory."""
        return [s for s in walk(self.kernel.body) if isinstance(s, Move) and s.atom.name == ALIGNED_VECTOR.name]

    def declare(self, buffer: Buffer) -> list[str]:
        """Local memory that vectors are loaded from begins where one may."""
        lines = super().declare(buffer)
        if buffer.space is Space.LOCAL and any(move.src == buffer for move in self._from_local()):
            lines[-1] = lines[-1].replace(";", " __attribute__((aligned(16)));")
        return lines

    def _at(self) -> list[str]:
        """A function for addresses that are counted in bytes."""
        pointer = f"const __global {self.types['float32']} *"
        return [
            "// So many bytes into a matrix.",
            f"static inline {pointer}at({pointer}matrix, int bytes)",
            "{",
            f"    return ({pointer.strip()})((const __global char *)matrix + bytes);",
            "}",
        ]

    def _block_read(self, atom: str, width: int, dtype: DType) -> list[str]:
        """A function for a block read."""
        element, suffix = self.types[dtype.name], _suffix(width)
        if atom == BLOCK_READ:
            what = "One element per lane" + (f" of each of {width} neighbouring segments." if width > 1 else ".")
            param, read = f"const __global {element} *from", "(const __global uint *)from"
        else:
            what = "One element per lane" + (f" of each of {width} rows." if width > 1 else ".")
            param, read = "__read_only image2d_t image, int2 at", "image, at"
        return [
            f"// {what}",
            f"static inline {element}{suffix} {atom}{suffix}({param})",
            "{",
            f"    return as_{element}{suffix}(intel_sub_group_block_read{suffix}({read}));",
            "}",
        ]

    def launch(self) -> str:
        (rows, cols), (groups_down, groups_across) = self.kernel.group, self.kernel.grid
        across, down = self.expr(groups_across * cols), self.expr(groups_down * rows)
        one, layers = ("", "") if self.kernel.layers is None else (", 1", f", {self.kernel.layers.name}")
        return f"local size {{{cols}, {rows}{one}}}, global size {{{across}, {down}{layers}}}"

    def uses(self) -> frozenset[str]:
        named = {"intel_sub_groups", "required_sub_group_size"} if self.kernel.sub_group else set()
        return self.target.features & named

    def requirements(self) -> list[str]:
        return requirements(self.kernel, self.target)

    def extensions(self) -> tuple[str, ...]:
        return extensions(self.kernel, self.target)

    def postlude(self, kernels: Sequence[Self]) -> str:  # noqa: ARG002
        return ""

    def build_line(self) -> str:
        options = " ".join((*self.build_options(), *(self.matrix_options() or ())[:1]))
        return f'clBuildProgram(..., "{options}", ...)'

    def build_options(self) -> tuple[str, ...]:
        return ("-cl-std=CL2.0",) if self.kernel.sub_group else ("-cl-std=CL1.2",)

    def gpu_options(self) -> tuple[str, ...]:
        return (LARGE_REGISTERS,) if self.kernel.large_registers else ()

    def matrix_options(self) -> tuple[str, str] | None:
        return MATRIX_OPTIONS if multiplies_matrices(self.kernel) else None

    def qualifier(self, buffer: Buffer) -> str:
        return {Space.LOCAL: "__local ", Space.POINTERS: "__global "}.get(buffer.space, "")

    # --- functions and instructions ---------------------------------------------------------------

    def call(self, call: Call) -> tuple[str, int]:
        args = ", ".join(self.expr(a) for a in call.args)
        match call.function:
            case "group_id" | "local_id":
                return f"{IDS[call.function]}({args})", UNARY
            case "lane_id":
                return "(int)get_sub_group_local_id()", UNARY
            case "sub_group_size":
                return "(int)get_max_sub_group_size()", UNARY
            case "nan":
                return "NAN", POSTFIX
            case "fma":
                return f"fma({args})", POSTFIX
            case "broadcast" | "shuffle_xor":
                names = INTEL_NAMES if "intel_sub_groups" in self.target.features else KHR_NAMES
                return f"{names[call.function]}({args})", POSTFIX
        raise LoweringError(f"OpenCL C has no name for {call.function}")

    def math(self, name: str, dtype: DType) -> str:
        # OpenCL's abs() of whole numbers has no sign.
        sign = f"({self.types[dtype.name]})" if name == "abs" and not dtype.is_float else ""
        return sign + super().math(name, dtype)

    def conversion(self, value: Expr, dtype: DType) -> tuple[str, int]:
        return _applied(_function(value.dtype, dtype), 1, self.expr(value)), POSTFIX

    def literal(self, value: complex, dtype: DType) -> tuple[str, int]:
        if self.types[dtype.name] == "ushort" and not value:
            return "0", POSTFIX  # the bits of zero
        return super().literal(value, dtype)

    def barrier(self) -> str:
        return "barrier(CLK_LOCAL_MEM_FENCE);"

    def wide_move(self, move: Move) -> str:
        width, name = move.width, move.atom.name
        match name:
            case "vector" | "aligned_vector" if move.src.dtype.real is not None:
                to, source = self.address(move.dst, move.dst_index), self.address(move.src, move.src_index)
                return f"{_between(move)}({to}, {source});"
            case "vector" if max(move.dst.vector, move.src.vector) > 1:
                return vector_move(self, VECTORS, move)
            case "vector":
                to, source = self.address(move.dst, move.dst_index), self.address(move.src, move.src_index)
                return f"{way(move).upper()}{width}({to}, {source});"
            case "aligned_vector":
                to, source = self.address(move.dst, move.dst_index), self.address(move.src, move.src_index)
                return f"{way(move).upper()}_LOCAL{width}({to}, {source});"
            case "packed_vectors" | "packed_block":
                # A sum of pointers: that of integers would be extended to a pointer's width for each read.
                source = f"{move.src.name} + {self.expr(move.src_index[0])}"
                return f"vstore{width}({name}({source}), 0, {self.address(move.dst, move.dst_index)});"
            case "block_read":
                value = f"{name}{_suffix(width)}({self._from(move)})"
            case "image_block_read":
                # The instruction counts bytes along a line.
                y, x = in_bytes(move) if move.byte_place is None else move.byte_place
                value = f"{name}{_suffix(width)}({move.src.name}, (int2)({self.expr(x)}, {self.expr(y)}))"
            case _:
                raise LoweringError(f"OpenCL C has no instruction for {name}")
        if width == 1:
            return f"{self.element(move.dst, move.dst_index)} = {value};"
        return f"vstore{width}({value}, 0, {self.address(move.dst, move.dst_index)});"

    def vector_loop(self, loop: For) -> Iterator[str]:
        return vector_loop(self, VECTORS, loop)

    def vector_type(self, dtype: DType, width: int) -> str:
        return f"{self.types[dtype.name]}{width}"

    def element(self, buffer: Buffer, index: tuple[Expr, ...]) -> str:
        return vector_element(self, VECTORS, buffer, index) if buffer.vector > 1 else super().element(buffer, index)

    def multiply(self, stmt: Multiply) -> str:
        acc, a, b = (
            self.address(buffer, index)
            for buffer, index in ((stmt.acc, stmt.acc_index), (stmt.a, stmt.a_index), (stmt.b, stmt.b_index))
        )
        return f"{MULTIPLY}({acc}, {a}, {b});"

    def _from(self, move: Move) -> str:
        """Where a move from a buffer begins."""
        if move.byte_place is None:
            return self.address(move.src, move.src_index)
        start = "" if move.from_element is None else f" + {self.expr(move.from_element)}"
        return f"at({move.src.name}{start}, {self.expr(move.byte_place[0])})"


def _without_matrices(kernel: Kernel) -> Kernel:
    """A kernel without its matrix instructions."""
    return replace(kernel, body=map_body(kernel.body, lambda s: () if isinstance(s, Multiply) else (s,)))


def _converters(changes: Collection[tuple[DType, DType, int]]) -> list[str]:
    """The functions for changes of type that are not OpenCL's own."""
    named = sorted({(_function(*change[:2]), change[2]) for change in changes})
    return [
        line for key, width in named if key not in BUILT_IN for line in section(INTRINSICS, key, width=_suffix(width))
    ]


def _between(move: Move) -> str:
    """The name of a move of complex numbers."""
    return f"{move.src.space.name}_TO_{move.dst.space.name}{move.width}"


def _function(source: DType, target: DType) -> str:
    """What converts a type to another; empty between equal ones."""
    return "" if source == target else CONVERSIONS[source.name, target.name]


def _applied(function: str, width: int, argument: str) -> str:
    return f"{function}{_suffix(width)}({argument})" if function else argument


def _suffix(width: int) -> str:
    """What a vector type's or function's name ends in."""
    return "" if width == 1 else str(width)
