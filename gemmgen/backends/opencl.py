"""OpenCL C, with Intel's or Khronos' sub-groups where a kernel asks for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import ClassVar, Self

from gemmgen.backends.block_io import (
    BLOCK_2D,
    SOFTWARE,
    BlockWords,
    block_2d_fields,
    declared,
    dpas_function,
    multiplies_by,
    payload_needs,
    placed_text,
    read_text,
    reads_2d_blocks,
    splits_barriers,
    write_text,
    writes_2d_blocks,
)
from gemmgen.backends.clike import CLike, Words, way
from gemmgen.backends.files import rendered
from gemmgen.backends.opencl_launcher import MATRICES, REQUIRED_SIZE, launcher_fields
from gemmgen.backends.pairs import Pairs
from gemmgen.backends.routines import small_integers
from gemmgen.backends.vectors import POSTFIX, VectorWords
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.copy_instructions import ALIGNED_VECTOR, BLOCK_2D_START
from gemmgen.ir.dtypes import F32, I8, I16, I32, DType
from gemmgen.ir.expr import Call, Expr, Var
from gemmgen.ir.instructions import DPAS_ROWS, WORD_BYTES
from gemmgen.ir.kernel import Kernel, conversions, uses_calls, uses_features
from gemmgen.ir.sizes import Workspace
from gemmgen.ir.stmt import Multiply, PlaceStmt, VectorCopy, in_bytes
from gemmgen.ir.synchronization import Barrier, SyncStmt
from gemmgen.ir.target import LARGE_REGISTERS, Target
from gemmgen.ir.walk import map_body, of_kind

SHUFFLES = ("broadcast", "shuffle_xor")
#: What the compiler is told where the device has matrix instructions, and where it has none. Compilers of 2022 have
#: them, but do not define the extension's macro.
MATRIX_OPTIONS = (f"-D{MATRICES}=1", f"-D{SOFTWARE}")
#: The extension for float32 as TF32.
MATRICES_TF32 = f"{MATRICES}_tf32"
#: Sub-groups of so few lanes are no longer built.
LANES_OF_OLD = 8
#: (from, to) -> the function that converts; one that ends in a number converts so many elements.
CONVERSIONS: dict[tuple[str, str], str] = {
    ("float16", "float32"): "half_to_float",
    ("float32", "float16"): "float_to_half",
    ("bfloat16", "float32"): "bfloat16_to_float",
    ("float32", "bfloat16"): "float_to_bfloat16",
    ("int8", "int32"): "convert_int",
    ("int8", "int64"): "convert_long",
    ("int8", "float32"): "convert_float",
    ("int8", "float64"): "convert_double",
    ("int32", "float32"): "convert_float",
    ("int32", "float64"): "convert_double",
    ("int32", "int64"): "convert_long",
    ("float32", "float64"): "convert_double",
}
#: Those that are OpenCL's own.
BUILT_IN = frozenset({"convert_int", "convert_float", "convert_double", "convert_long"})
MULTIPLY, MFMA = "multiply", "mfma_16x16x16"
#: What block reads of elements of so many bytes are called, what they take and where it is defined.
BLOCK_WORDS: Mapping[int, Mapping[str, str]] = {
    4: {"kind": "", "word": "uint", "extension": "cl_intel_subgroups"},
    2: {"kind": "_us", "word": "ushort", "extension": "cl_intel_subgroups_short"},
    1: {"kind": "_uc", "word": "uchar", "extension": "cl_intel_subgroups_char"},
}
#: What 2D block messages need of the language.
BLOCK_2D_WORDS = BlockWords(
    inline="static inline",
    spaces=("__private ", "__global "),
    declared="__attribute__((overloadable)) ",
    builtin="",
    to=("__private ", "__global "),
    place="(int2)({}, {})",
    pair="int2",
    make="(int2)({}, {})",
    long="long",
    vector="block_",
    lane="(int)get_sub_group_local_id()",
    unroll="#pragma unroll",
    in_order=None,
    copies=None,
    struct=("typedef struct", " block_place"),
    words={"uint": "uint", "ushort": "ushort"},
    bits={1: "({word})(uchar){element}", 2: "({word}){element}"},
    keep="((__private {word} *)to)[w] = word;",
)
BLOCK_READS = BLOCK_READ, IMAGE_BLOCK_READ = "block_read", "image_block_read"
SPACES = {Space.GLOBAL: "__global ", Space.LOCAL: "__local ", Space.PRIVATE: "", Space.VIEW: "__local "}
#: Vectors of a work-item's own: `float16` and its like.
VECTORS = VectorWords(
    type="{element}{width}",
    load="vload{width}(0, {place})",
    store="vstore{width}({value}, 0, {place});",
    splat="({type})({value})",
    choice="{condition} ? {then} : {other}",
    half="{vector}.{half}",
    single="{vector}.s{number:x}",
    element="(({type} *){address})[{place}]",
    begins_with_number=True,
)


class OpenCL(CLike):
    """OpenCL C 1.2 and up."""

    name: ClassVar[str] = "opencl"
    suffix: ClassVar[str] = ".cl"
    inner_functions: ClassVar[bool] = False
    words: ClassVar[Words] = Words("work-item", "group", "buffer", "local memory", "sub-group")
    pairs: ClassVar[Pairs] = Pairs("({type})", (".x", ".y"), "static inline")
    calls: ClassVar[Mapping[str, str]] = {
        # Ids are size_t, gemmgen counts in int.
        "group_id": "(int)get_group_id({args})",
        "local_id": "(int)get_local_id({args})",
        "lane_id": "(int)get_sub_group_local_id()",
        "sub_group_size": "(int)get_max_sub_group_size()",
        "nan": "NAN",
        "broadcast": "{prefix}sub_group_shuffle({args})",
        "shuffle_xor": "{prefix}sub_group_shuffle_xor({args})",
    }
    barrier: ClassVar[str] = "barrier(CLK_LOCAL_MEM_FENCE);"

    spaces: ClassVar[Mapping[Space, str]] = {Space.LOCAL: "__local ", Space.POINTERS: "__global "}
    matrix_space: ClassVar[str] = "__global "
    block_words: ClassVar[BlockWords] = BLOCK_2D_WORDS
    restrict: ClassVar[str] = "restrict "
    long: ClassVar[str] = "L"
    vectors: ClassVar[VectorWords] = VECTORS
    targets: ClassVar[tuple[str, ...]] = ("intel", "xe_hpc", "khr", "portable", "cpu", "gfx942")
    chips: ClassVar[frozenset[str]] = frozenset({"gfx942"})
    forms: ClassVar[tuple[str, ...]] = ("kernel", "header")
    #: Buffers are no addresses; floats are not added in one step, nor do arrays share local memory.
    lacks: ClassVar[frozenset[str]] = frozenset(
        {"address_lists", "atomic_add", "reused_local_memory", "funnel_shifts", "joint_matrix"}
    )
    #: `vload` and `vstore` ask for an element's alignment alone.
    has: ClassVar[frozenset[str]] = frozenset({"unaligned_vectors"})
    #: Floats of 16 bits are kept in ushort, since half is no type of variables without an extension.
    types: ClassVar[Mapping[str, str]] = {
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
        if lanes := sub_group_of(self.kernel) or self.kernel.compiled_for:
            required = f"__attribute__((intel_reqd_sub_group_size({lanes})))"
            fixed = REQUIRED_SIZE in extensions(self.kernel, self.target)
            lines += [required] if fixed else [f"#ifdef {REQUIRED_SIZE}", required, "#endif"]
        params = ", ".join(map(self.parameter, self.kernel.params))
        return [*lines, f"__kernel void {self.kernel.name}({params})"]

    def parameter(self, param: Buffer | Var, restrict: str | None = None) -> str:
        if isinstance(param, Buffer) and param.space is Space.IMAGE:
            return f"__read_only image2d_t {param.name}"
        return super().parameter(param, restrict)

    def __post_init__(self) -> None:
        """A header's host code does not see constants, so that none may be changed."""
        if self.form == "header":
            self.free = frozenset()

    def prelude(self) -> list[str]:
        return [*self._extensions(), *self._helpers()]

    def template(self) -> str:
        return "opencl/launcher.h.j2" if self.form == "header" else super().template()

    def fields(self, kernels: Sequence[Self], workspaces: Sequence[Workspace]) -> Mapping[str, object]:
        """OpenCL C has no namespaces: the file's types and functions get names of their own, and its macros end with
        it.
        """
        text = "\n".join(self.prelude())
        types = re.findall(r"^(?:typedef [^{;]*?|} )(\w+);", text, re.MULTILINE)
        functions = re.findall(r"^static inline [^(]*?(\w+)\(", text, re.MULTILINE)
        own = {name: f"{self.program or self.kernel.name}_{name}" for name in (*types, *functions)}
        macros = [*own, *dict.fromkeys(re.findall(r"^#define (\w+)", text, re.MULTILINE))]
        host = launcher_fields(self, kernels, workspaces) if self.form == "header" else {}
        return {"own": own, "macros": macros, **host}

    def _extensions(self) -> list[str]:
        names = enabled(self.kernel, self.target)
        return [*(f"#pragma OPENCL EXTENSION {name} : enable" for name in names), *([""] if names else [])]

    def sync(self, stmt: SyncStmt) -> list[str]:
        """A barrier of a sub-group, which orders what its compiler does; a part of one of a group."""
        match stmt:
            case Barrier("none", 0, True, 1, "all"):
                return ["sub_group_barrier(0);"]
            case Barrier("none", 0, False, 1, "arrive" | "wait" as part):
                return [f"barrier_{part}();"]
        return super().sync(stmt)

    def _helpers(self) -> list[str]:
        """Names for the instructions that the kernel uses, so that its text stays legible."""
        moves = list(of_kind(VectorCopy, self.kernel.body))
        plain = conversions(_without_matrices(self.kernel))
        used = {m.atom.name for m in moves}
        if any(m.byte_place and m.atom.name == BLOCK_READ for m in moves):
            used.add("at")
        return [
            *self.pairs.functions(self.kernel, self.types),
            *self.dot_products("static inline"),
            *small_integers(self.kernel, "static inline", self.types[I8.name]),
            *rendered(
                "opencl/functions.cl.j2",
                used=used,
                conversions=_converters(plain),
                pairs=self._copies_of_pairs(moves),
                vectors=self._copies_of_vectors(moves),
                from_local=self._copies_from_local(),
                multiplications=self._multiplications(plain),
                mfma=MFMA if multiplies_by(self.kernel, "mfma") else None,
                block_reads=self._block_reads(moves),
                **block_2d_fields(self.kernel, BLOCK_2D_WORDS, self.types, "0"),
                split_barrier=splits_barriers(self.kernel),
            ),
        ]

    def _copies_of_pairs(self, moves: Sequence[VectorCopy]) -> list[dict[str, object]]:
        """Moves of several complex numbers, by the memories they go between: as so many real ones, of which vectors of
        any alignment are made.
        """
        found = {_between(m): m for m in moves if m.width > 1 and m.src.dtype.real is not None}
        words = []
        for name, move in sorted(found.items()):
            to, source = (f"{SPACES[b.space]}{self.types[str(move.src.dtype.real)]}" for b in (move.dst, move.src))
            words.append({"name": name, "width": move.width, "to": to, "source": source})
        return words

    def _copies_of_vectors(self, moves: Sequence[VectorCopy]) -> list[dict[str, object]]:
        """Moves of neighbours to and from memory, by what converts them on the way."""
        vectors = [m for m in moves if m.atom.name == "vector" and m.dst.vector == m.src.vector == 1]
        found = {
            (m.width, way(m).upper(), _function(m.src.dtype, m.dst.dtype)) for m in vectors if m.src.dtype.real is None
        }
        return [
            {"width": width, "name": f"{verb}{width}", "value": _applied(function, width, f"vload{width}(0, from)")}
            for width, verb, function in sorted(found)
        ]

    def _copies_from_local(self) -> list[dict[str, object]]:
        """Moves of neighbours from local memory."""
        words = []
        for (width, how), move in sorted({(m.width, way(m)): m for m in self._from_local()}.items()):
            if (dtype := move.src.dtype).real is None:
                value = f"*(const __local {self.types[dtype.name]}{width} *)(from)"
                value = _applied(_function(dtype, move.dst.dtype), width, value)
                name = f"{how.upper()}_LOCAL{width}"
                words.append({"width": width, "name": name, "bytes": dtype.size * width, "value": value})
        return words

    def _multiplications(self, plain: AbstractSet[tuple[DType, DType, int]]) -> list[dict[str, object]]:
        """Matrix instructions with software that stands in for them; `plain` are conversions that others call, too."""
        atoms = {s.atom for s in of_kind(Multiply, self.kernel.body)}
        return [
            {
                "function": dpas_function(atom),
                "tf32": atom.dtype == F32,
                "sums": self.types[atom.sums.name],
                "word": self.types[(atom.a_word or (I32 if atom.lanes == LANES_OF_OLD else I16)).name],
                "of_elements": atom.a_word is None,
                "a": self.types[atom.a_register.name],
                "b": self.types[atom.b_register.name],
                "element": self.types[atom.dtype.name],
                "convert": _function(atom.dtype, atom.sums),
                "conversions": _converters(conversions(self.kernel) - plain),
                "lanes": atom.lanes,
                "depth": atom.depth,
                "own": atom.depth // atom.lanes,
                "packed": WORD_BYTES // atom.dtype.size,
                "bits": 8 * atom.dtype.size,
                "b_pairs": atom.b_pairs,
                "b_words": DPAS_ROWS // (2 if atom.b_pairs else 1),
            }
            for atom in atoms
            if atom.name == "dpas"
        ]

    def _block_reads(self, moves: Sequence[VectorCopy]) -> list[dict[str, object]]:
        """Reads of neighbours by the sub-group as one."""
        found = {(m.atom.name == IMAGE_BLOCK_READ, m.width, m.src.dtype) for m in moves if m.atom.name in BLOCK_READS}
        return [
            {"image": image, "w": _suffix(width), "element": self.types[dtype.name], **BLOCK_WORDS[dtype.size]}
            for image, width, dtype in sorted(found, key=lambda x: x[:2])
        ]

    def _from_local(self) -> list[VectorCopy]:
        """Loads of vectors from local memory."""
        return [s for s in of_kind(VectorCopy, self.kernel.body) if s.atom.name == ALIGNED_VECTOR.name]

    def declare(self, buffer: Buffer) -> list[str]:
        """Local memory that vectors are loaded from begins where one may."""
        lines = super().declare(buffer)
        if buffer.space is Space.LOCAL and any(move.src == buffer for move in self._from_local()):
            lines[-1] = lines[-1].replace(";", " __attribute__((aligned(16)));")
        return declared(self.kernel, buffer, lines, self.dimensions)

    def launch(self) -> str:
        (rows, cols), (groups_down, groups_across) = self.kernel.group, self.kernel.grid
        across, down = self.expr(groups_across * cols), self.expr(groups_down * rows)
        one, layers = ("", "") if self.kernel.grid_z is None else (", 1", f", {self.kernel.grid_z.name}")
        return f"local size {{{cols}, {rows}{one}}}, global size {{{across}, {down}{layers}}}"

    def uses(self) -> frozenset[str]:
        named = {"intel_sub_groups", "required_sub_group_size"} if sub_group_of(self.kernel) else set()
        return self.target.features & named

    def requirements(self) -> list[str]:
        reads = (s for s in of_kind(VectorCopy, self.kernel.body) if s.atom.name == BLOCK_READ)
        narrow = any(s.atom.unit(s.width, s.src.dtype.size) > 1 for s in reads)
        begins = [f"matrices that begin on multiples of {self.alignment()} bytes"] if narrow else []
        return [*requirements(self.kernel, self.target), *begins]

    def extensions(self) -> tuple[str, ...]:
        return extensions(self.kernel, self.target)

    def build_line(self) -> str:
        options = " ".join((*self.build_options(), *(self.matrix_options() or ())[:1]))
        return f'clBuildProgram(..., "{options}", ...)'

    def build_options(self) -> tuple[str, ...]:
        return ("-cl-std=CL2.0",) if sub_group_of(self.kernel) else ("-cl-std=CL1.2",)

    def gpu_options(self) -> tuple[str, ...]:
        return (LARGE_REGISTERS,) if self.kernel.large_registers else ()

    def matrix_options(self) -> tuple[str, str] | None:
        return MATRIX_OPTIONS if multiplies_by(self.kernel, "dpas") else None

    def matrix_extensions(self) -> tuple[str, ...]:
        return matrix_extensions(self.kernel) if multiplies_by(self.kernel, "dpas") else ()

    # --- functions and instructions ---------------------------------------------------------------

    def call_words(self, call: Call) -> Mapping[str, object]:  # noqa: ARG002
        return {"prefix": "intel_" if "intel_sub_groups" in self.target.features else ""}

    def math(self, name: str, dtype: DType) -> str:
        # OpenCL's abs() of whole numbers has no sign.
        sign = f"({self.types[dtype.name]})" if name == "abs" and not dtype.is_float else ""
        return sign + super().math(name, dtype)

    def conversion(self, value: Expr, dtype: DType) -> tuple[str, int]:
        return _applied(_function(value.dtype, dtype), 1, self.expr(value)), POSTFIX

    def converted(self, vector: str, source: DType, to: DType, width: int) -> str:
        return _applied(_function(source, to), width, vector)

    def literal(self, value: complex, dtype: DType) -> tuple[str, int]:
        if self.types[dtype.name] == "ushort" and not value:
            return "0", POSTFIX  # the bits of zero
        return super().literal(value, dtype)

    def vector_copy(self, move: VectorCopy) -> str:
        width, name = move.width, move.atom.name
        match name:
            case "vector" | "aligned_vector" if move.src.dtype.real is not None:
                return f"{_between(move)}({self.addresses(move)});"
            case "vector":
                return f"{way(move).upper()}{width}({self.addresses(move)});"
            case "aligned_vector":
                return f"{way(move).upper()}_LOCAL{width}({self.addresses(move)});"
            case "packed_vectors" | "packed_block":
                # A sum of pointers: that of integers would be extended to a pointer's width for each read.
                source = f"{move.src.name} + {self.expr(move.src_index[0])}"
                return f"vstore{width}({name}({source}), 0, {self.address(move.dst, move.dst_index)});"
            case "block_read":
                value = f"{name}{_suffix(width)}({self._from(move)})"
                value = _applied(_function(move.src.dtype, move.dst.dtype), width, value)
            case "block_2d" | "block_2d_elements":
                return read_text(self, move)
            case "block_2d_write":
                return write_text(self, move)
            case "image_block_read":
                # The instruction counts bytes along a line.
                y, x = in_bytes(move) if move.byte_place is None else move.byte_place
                value = f"{name}{_suffix(width)}({move.src.name}, (int2)({self.expr(x)}, {self.expr(y)}))"
            case _:
                raise LoweringError(f"OpenCL C has no instruction for {name}")
        if width == 1:
            return f"{self.element(move.dst, move.dst_index)} = {value};"
        return f"vstore{width}({value}, 0, {self.address(move.dst, move.dst_index)});"

    def _placed(self, stmt: PlaceStmt) -> str:
        return placed_text(self, stmt) or super()._placed(stmt)

    def multiply(self, stmt: Multiply) -> str:
        if stmt.atom.scope == "thread":
            return super().multiply(stmt)
        return f"{MFMA if stmt.atom.name == 'mfma' else MULTIPLY}({self.addresses(stmt)});"

    def _from(self, move: VectorCopy) -> str:
        """Where a move from a buffer begins."""
        if move.byte_place is None:
            return self.address(move.src, move.src_index)
        start = "" if move.from_element is None else f" + {self.expr(move.from_element)}"
        return f"at({move.src.name}{start}, {self.expr(move.byte_place[0])})"


def _without_matrices(kernel: Kernel) -> Kernel:
    """A kernel without its matrix instructions."""
    return replace(kernel, body=map_body(kernel.body, lambda s: () if isinstance(s, Multiply) else (s,)))


def _converters(changes: Collection[tuple[DType, DType, int]]) -> list[tuple[str, str]]:
    """The functions for changes of type that are not OpenCL's own, by name and by what that ends in."""
    named = sorted({(_function(source, to), width) for source, to, width in changes})
    return [(name, _suffix(width)) for name, width in named if name not in BUILT_IN]


def _between(move: VectorCopy) -> str:
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


# --- what a device and its compiler must have ------------------------------------------------------


def matrix_extensions(kernel: Kernel) -> tuple[str, ...]:
    """The extensions in whose place a kernel has software."""
    by_tf32 = any(s.atom.dtype == F32 for s in of_kind(Multiply, kernel.body))
    return (MATRICES, *([MATRICES_TF32] if by_tf32 else []), *([BLOCK_2D] if reads_2d_blocks(kernel) else []))


def sub_group_of(kernel: Kernel) -> int | None:
    """The lanes of a sub-group that a kernel must be given; a wavefront of MFMA has its size by itself."""
    return None if multiplies_by(kernel, "mfma") else kernel.sub_group


def enabled(kernel: Kernel, target: Target) -> tuple[str, ...]:
    """The extensions whose functions and types a kernel uses: those that a file enables."""
    names = ["cl_khr_fp64"] if "fp64" in uses_features(kernel) else []
    if not sub_group_of(kernel):
        return tuple(names)
    if "intel_sub_groups" not in target.features:
        shuffles = uses_calls(kernel, SHUFFLES)
        return (*names, "cl_khr_subgroups", *(["cl_khr_subgroup_shuffle"] if shuffles else []))
    names.append("cl_intel_subgroups")
    moves = list(of_kind(VectorCopy, kernel.body))
    read = {BLOCK_WORDS[s.src.dtype.size]["extension"] for s in moves if s.atom.name in (BLOCK_READ, "packed_block")}
    return (*names, *sorted(read - {*names}))


def extensions(kernel: Kernel, target: Target) -> tuple[str, ...]:
    """Those that a device must have."""
    fixed = sub_group_of(kernel) and "required_sub_group_size" in target.features
    return (*enabled(kernel, target), *([REQUIRED_SIZE] if fixed else []))


def requirements(kernel: Kernel, target: Target) -> list[str]:
    """What the head comment says of them, a point each."""
    needs = [_sub_groups(kernel, target)] if sub_group_of(kernel) else []
    if multiplies_by(kernel, "mfma"):
        needs.append(f"a GPU of AMD with MFMA ({target.name}), and clang's functions for it")
    if kernel.compiled_for:
        needs.append(f"where {REQUIRED_SIZE} is there, sub-groups of {kernel.compiled_for}{_of_old(kernel)}")
    features = uses_features(kernel)
    if multiplies_by(kernel, "dpas"):
        named = " and ".join(matrix_extensions(kernel))
        it, its = ("it", "its") if named == MATRICES else ("them", "their")
        needs.append(f"{named}; or, without {it}, {MATRIX_OPTIONS[1]} in {its} place: the same in software")
    if reads_2d_blocks(kernel):
        named = "A, B and C" if writes_2d_blocks(kernel) else "A and B"
        needs.append(f"{named} that begin on multiples of {BLOCK_2D_START} bytes")
    needs += payload_needs(kernel)
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
