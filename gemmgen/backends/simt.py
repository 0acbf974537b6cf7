"""C++ of blocks and threads, what CUDA and HIP share: kernels, and in the same file a function that launches them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

from gemmgen.backends.clike import CLike, Words, way
from gemmgen.backends.files import environment, rendered
from gemmgen.backends.pairs import Pairs
from gemmgen.backends.reach import unreached
from gemmgen.backends.routines import small_integers
from gemmgen.backends.shared_struct import PADDED, Member, SharedStruct, member_of
from gemmgen.backends.vectors import POSTFIX, PRECEDENCE
from gemmgen.epilogue import OPERANDS
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.constants import THREADS, by_width
from gemmgen.ir.copy_instructions import BYTE_OF_PAIR, PAIR
from gemmgen.ir.dtypes import BF16, F8_E4M3, F8_E5M2, F16, F32, I8, DType
from gemmgen.ir.expr import Call, Const, Expr, Load, Var, as_int
from gemmgen.ir.kernel import allocs
from gemmgen.ir.sizes import GROUPS, Workspace
from gemmgen.ir.stmt import VectorCopy
from gemmgen.ir.walk import of_kind
from gemmgen.launch import broken_assumptions, map_name, passed
from gemmgen.records import dataclass
from gemmgen.spec import OFFSETS

#: A preset for any type, whose blocks fill warps.
FILLS_WARPS = "smem_8x8"
#: Dimensions by number, 0 the fastest.
DIMENSIONS = "xyz"
#: Types whose vectors the language names, and words for as many bytes of others.
OWN_VECTORS = ("float", "double", "int")
#: Types of which an instruction converts two at a time -> what two of them are.
PAIRS = {F8_E4M3: "__nv_fp8x2_e4m3", F8_E5M2: "__nv_fp8x2_e5m2"}
WORDS = {2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}
#: Functions for moves, in the order in which they are printed.
KINDS = (
    *("copy", "copy_from_anywhere", "load", "load_pair", "store", "load_inside", "store_inside", "atomic_add"),
    *("async_copy", "async_copy_inside", "async_copy_by_width"),
)
#: Types of two elements of 16 bits, and the bits of 2^10, of 2^7, to which small whole numbers are added as they are.
HALVES = {F16: ("__half2", 0x6400), BF16: ("__nv_bfloat162", 0x4300)}
#: The same types, and what makes one of two floats.
PAIRS_OF_FLOATS = {F16: ("__half2", "__floats2half2_rn"), BF16: ("__nv_bfloat162", "__floats2bfloat162_rn")}
#: What makes two equal ones of a float.
ZERO_POINTS = {F16: "__float2half2_rn", BF16: "__float2bfloat162_rn"}
#: The instructions of moves.
MOVES = ("aligned_vector", "byte_of_pair", "part_of_vector", "spanning_vector", "async_copy", "atomic_add")


class Simt(CLike):
    """A table of what the two call differently, and what a host does before it launches a kernel."""

    words: ClassVar[Words] = Words("thread", "block", "global memory", "shared memory", "warp")
    pairs: ClassVar[Pairs] = Pairs(
        "make_{type}", (".x", ".y"), "__device__ __forceinline__", ("fmaf", "fma"), adds=False
    )
    types: ClassVar[Mapping[str, str]] = {
        "float64": "double",
        "float32": "float",
        "float16": "__half",
        "complex64": "float2",
        "complex128": "double2",
        "int32": "int",
        "int64": "long long",
        "int8": "signed char",
        "bool": "bool",
    }
    calls: ClassVar[Mapping[str, str]] = {
        "group_id": "int(blockIdx.{axis})",
        "group_count": "int(gridDim.{axis})",
        "local_id": "int(threadIdx.{axis})",
        "lane_id": "int(threadIdx.x)",
        "any_in_group": "__syncthreads_or({args})",
    }
    barrier: ClassVar[str] = "__syncthreads();"
    spaces: ClassVar[Mapping[Space, str]] = {Space.LOCAL: "__shared__ "}
    float_suffix: ClassVar[str] = "f"

    #: What the functions, types and values of the host's library begin with.
    api: ClassVar[str]
    #: The header of that library, and those of types that the language itself lacks.
    header: ClassVar[str]
    type_headers: ClassVar[Mapping[str, str]]
    #: The macro that is defined where device code alone is compiled, at run time.
    rtc: ClassVar[str]
    #: The error of an address that is no multiple of what it should be; what says how many multiprocessors there are.
    misaligned: ClassVar[str]
    multiprocessors: ClassVar[str]
    #: Threads of the narrowest warp of any target.
    warp: ClassVar[int] = 32
    #: Shared memory that a kernel may declare with a fixed size; more must be asked for at the launch.
    static_bytes: ClassVar[int]
    #: The function for dot products of fours of int8; None where compilers make it of their sum.
    dot_instruction: ClassVar[str | None] = None
    #: What takes an integer's bits for a float32, where that costs less than a conversion.
    float_of_bits: ClassVar[str | None] = None
    #: Templates, under `templates/`: of a file, of the function that launches its kernels, and of one launch.
    file_template: ClassVar[str] = "simt/kernel.j2"
    launcher_template: ClassVar[str] = "simt/launcher.j2"
    launch_template: ClassVar[str] = "simt/launch.j2"

    # --- the file ---------------------------------------------------------------------------------

    def template(self) -> str:
        return self.file_template

    @property
    def detail(self) -> str:
        """The namespace of a file's functions, so that those of two files do not collide."""
        return f"{self.program or self.kernel.name}_detail"

    def opening(self, body: Sequence[str]) -> list[str]:
        words = {word for line in body for word in re.findall(r"\w+", line)}
        named = (self.shared and not self.separate) or self.prelude() or words & self.constants.keys()
        using = [f"    using namespace {self.detail};"] if named else []
        lines = [*using, *self._declared_shared()]
        return [*lines, ""] if lines else []

    def fields(self, kernels: Sequence[Self], workspaces: Sequence[Workspace]) -> Mapping[str, object]:
        types = {p.dtype.name for p in self.kernel.matrices}
        brought = [x.shared.alignment for x in kernels if x.shared is not None and x.dynamic_bytes()]
        return {
            "rtc": self.rtc,
            "header": self.header,
            "headers": sorted({self.type_headers[name] for name in types & set(self.type_headers)}),
            "detail": self.detail,
            # In the file's namespace: every array of that name in a program is one, aligned as the first of them.
            "shared_align": max(brought, default=0),
            "structs": [line for printer in kernels for line in printer._defined_shared()],
            "launcher": self._launcher(kernels, workspaces),
        }

    def _defined_shared(self) -> list[str]:
        """The struct of shared memory; of arrays by themselves a guard, where the text can make them larger."""
        found = self.shared
        if found is None:
            return []
        return found.sizes(self.static_bytes if found.names() & self.free else None) if self.separate else found.lines()

    def prelude(self) -> list[str]:
        """Named functions for the instructions that the kernel uses."""
        copies = self.copies()
        moves = rendered("simt/functions.j2", copies=copies) if copies else []
        threads = self.block_threads()
        block = [f"constexpr int BLOCK_THREADS = {threads};", ""] if " " in threads else []
        dots = self.dot_products("__device__ __forceinline__", self.dot_instruction)
        byte, called = self.types[I8.name], {str(copy["calls"]) for copy in copies if copy["calls"]}
        integers = small_integers(self.kernel, "__device__ __forceinline__", byte, self.float_of_bits, called)
        return [*block, *self.pairs.functions(self.kernel, self.types), *dots, *integers, *moves]

    def block_threads(self) -> str:
        """How many threads a block has, by the names of constants."""
        rows, cols = self.kernel.group
        text = self.number(rows * cols)
        # Of warp specialisation, too, there is one name for all threads.
        return "THREADS" if text == " + ".join(THREADS["sum"]) else text

    def copies(self) -> list[Mapping[str, object]]:
        """The functions for moves of several elements, by the types and the numbers that occur."""
        moves = [s for s in of_kind(VectorCopy, self.kernel.body) if self.is_copy(s)]
        found = {_Copy.of(m) for m in moves if m.width > 1 or m.atom.is_async or m.atom.adds}
        # A copy that converts has one that doesn't inside.
        found |= {_Copy("copy", copy.width, t, t) for copy in found for t in copy.kept()}
        return [copy.said(self.types, self.float_of_bits is not None) for copy in sorted(found, key=_Copy.order)]

    def is_copy(self, move: VectorCopy) -> bool:
        """Whether a move is one that this printer has a function for."""
        return move.atom.matrices is None

    # --- the kernel -------------------------------------------------------------------------------

    def signature(self) -> list[str]:
        params = ", ".join(self.kernel_parameter(p) for p in passed(self.kernel))
        return [f'extern "C" __global__ void {self.bounds()} {self.kernel.name}({params})']

    def bounds(self) -> str:
        """What the compiler is told of the launch."""
        return f"__launch_bounds__({self.bound()})"

    def bound(self) -> str:
        """The threads of a block, outside of the namespace of the constants."""
        text = self.block_threads()
        text = "BLOCK_THREADS" if " " in text and self.program in (None, self.kernel.name) else text
        return re.sub(r"[A-Z][A-Z_]+", lambda word: f"{self.detail}::{word[0]}", text)

    def kernel_parameter(self, param: Buffer | Var) -> str:
        """A parameter of the kernel; the launcher's are all that its caller gives."""
        return self.parameter(param)

    def qualifier(self, buffer: Buffer) -> str:
        align = "__align__(16) " if buffer in self.aligned() else ""
        return super().qualifier(buffer) + align

    def aligned(self) -> list[Buffer]:
        """What vectors are loaded from and stored to."""
        moves = (s for s in of_kind(VectorCopy, self.kernel.body) if s.width > 1)
        return [x for move in moves for x in (move.src, move.dst)]

    def conversion(self, value: Expr, dtype: DType) -> tuple[str, int]:
        if self.float_of_bits and (value.dtype, dtype) == (I8, F32):
            return f"from_int8({self.expr(value)})", POSTFIX
        return super().conversion(value, dtype)

    def call(self, call: Call) -> tuple[str, int]:
        match call:
            case Call("begins_on", (Load(buffer, index), Const(int(size)))):
                address = f"reinterpret_cast<unsigned long long>({self.address(buffer, index)})"
                return f"{address} % {size} == 0", PRECEDENCE["=="]
        return super().call(call)

    def call_words(self, call: Call) -> Mapping[str, object]:
        axis = as_int(call.args[0]) if call.args else None
        return {"axis": DIMENSIONS[axis or 0] if axis in range(3) else "", "width": self.kernel.sub_group}

    def vector_copy(self, move: VectorCopy) -> str:
        to, source = self.address(move.dst, move.dst_index), self.address(move.src, move.src_index)
        if move.atom.name not in MOVES:
            raise LoweringError(f"{self.name} has no instruction for {move.atom.name}")
        inside = "" if move.valid is None else f", {self.expr(move.valid)}"
        if by_width(move.width):
            width = self.number(move.width)
            return f"cp_async_zfill({to}, {source}, {width}{inside or f', {width}'});"
        zero_point = "" if move.zero_point is None else f", {self.expr(move.zero_point)}"
        return f"{_copy_name(move)}({to}, {source}{inside}{zero_point});"

    # --- shared memory ----------------------------------------------------------------------------

    @property
    def shared(self) -> SharedStruct | None:
        """What a kernel has of it, if any."""
        arrays = [*dict.fromkeys((s.buffer, s.reuses) for s in allocs(self.kernel, Space.LOCAL))]
        members = [*(self._member(*array) for array in arrays), *self.more_shared()]
        step = self.kernel.name.removeprefix(self.program or self.kernel.name).strip("_")
        return SharedStruct(f"{step.title()}Shared", tuple(members)) if members else None

    def _member(self, buffer: Buffer, reuses: bool) -> Member:
        size = buffer.dtype.size
        alignment = max(size, self.shared_alignment(buffer))
        declared = f"{self.types[buffer.dtype.name]} {member_of(buffer.name)}{self.dimensions(buffer)}"
        padded = bool(buffer.shape) and buffer.extents[-1] > (as_int(buffer.shape[-1]) or 0)
        return Member(
            name=member_of(buffer.name),
            declared=declared,
            bytes=int(buffer.bytes),
            alignment=alignment,
            asked=alignment > size,
            reuses=reuses,
            padded=padded,
            swizzled=buffer.layout.swizzle > 0,
        )

    def more_shared(self) -> list[Member]:
        """Members beside the kernel's arrays."""
        return []

    def shared_alignment(self, buffer: Buffer) -> int:
        """What an array of shared memory begins on multiples of, beyond its elements."""
        return 16 if buffer in self.aligned() else 1

    @property
    def separate(self) -> bool:
        """Whether arrays of shared memory are variables by themselves, as their size is fixed."""
        return not self.dynamic_bytes() and not self.more_shared()

    def memory(self, name: str, space: Space = Space.LOCAL) -> str:
        found = self.shared if space is Space.LOCAL and not self.separate else None
        return name if found is None else found.place(member_of(name))

    def dynamic_bytes(self) -> int:
        """Shared memory that must be asked for at the launch; none while it may have a fixed size."""
        found = self.shared
        if found is None:
            return 0
        # With more stages it may become too large.
        fixed = found.bytes <= self.static_bytes and not found.is_union and "STAGES" not in self.free & found.names()
        return 0 if fixed else found.bytes

    def asked_bytes(self) -> str:
        """The same, as the launcher says it."""
        found = self.shared
        return "0" if found is None or not self.dynamic_bytes() else f"sizeof({found.type})"

    def declare(self, buffer: Buffer) -> list[str]:
        """An array; of shared memory it may be a member of the struct."""
        if buffer.space is not Space.LOCAL:
            return super().declare(buffer)
        if not self.separate:
            return []
        said = [f"// {PADDED.capitalize()}."] if self._member(buffer, False).padded else []
        return [*said, *super().declare(buffer)]

    def _declared_shared(self) -> list[str]:
        found = self.shared
        if found is None or self.separate:
            return []
        if not self.dynamic_bytes():
            return [f"    __shared__ {found.type} shared;"]
        return [f"    {found.type} &shared = *reinterpret_cast<{found.type} *>(shared_memory);"]

    # --- the launch -------------------------------------------------------------------------------

    def launch(self) -> str:
        rows, cols = self.kernel.group
        blocks = f"min({self._grid()}, as many as run at once)" if self.kernel.persistent else self._grid()
        return f"block ({cols}, {rows}), grid ({blocks})"

    def _grid(self) -> str:
        """Blocks along each dimension."""
        kernel = self.kernel
        if kernel.persistent:  # in one line
            return self.expr(kernel.grid[1])
        layers = [] if kernel.grid_z is None else [kernel.grid_z.name]
        return ", ".join([*map(self.expr, reversed(kernel.grid)), *layers])

    def requirements(self) -> list[str]:
        alignment = self.alignment()
        elements = [self.spec.element(x) for x in "ab"]
        aligned = alignment > min((element.real or element).size for element in elements)
        said = [f"matrices that begin on multiples of {alignment} bytes"] if aligned else []
        return [*said, f"{GROUPS.name} as many as the device has multiprocessors"] if self.kernel.asks_device else said

    @classmethod
    def unfit(cls, group: tuple[int, int]) -> str | None:
        threads, warp = group[0] * group[1], cls.words.sub_group
        if threads >= cls.warp:
            return None
        idle = f"blocks of {threads} threads leave {cls.warp - threads} of a {warp}'s {cls.warp} lanes idle"
        return f"{idle}: take preset {FILLS_WARPS}, say, whose blocks fill {warp}s"

    def remarks(self) -> list[str]:
        # Of a transposing kernel there is no preset.
        unfit = None if self.program is None else self.unfit(self.kernel.group)
        return [] if unfit is None else [unfit]

    def build_options(self) -> tuple[str, ...]:
        return ("-std=c++17",)

    def _launcher(self, kernels: Sequence[Self], workspaces: Sequence[Workspace]) -> str:
        """The C function that launches a file's kernels, in the order given, as one; run-time compilers, which compile
        for the device alone, do not see it.
        """
        params = [*(self.parameter(p, "") for p in self.kernel.launcher_params), f"{self.api}Stream_t stream"]
        odd = [f"!is_aligned({name}, {size})" for name, size in self._addresses()]
        far, functions = unreached(self, [p.kernel for p in kernels], workspaces)
        wrong = [*broken_assumptions(self.kernel, self.spec), *far]
        refusals = [(self.misaligned, odd), (f"{self.api}ErrorInvalidValue", wrong)]
        called = {*functions, *(["is_aligned"] if odd else [])}
        called |= {printer.counter() for printer in kernels if printer.kernel.persistent}
        asks = any(printer.kernel.asks_device for printer in kernels)
        template = environment().get_template(self.launcher_template)
        return template.render(
            rtc=self.rtc,
            api=self.api,
            multiprocessors=self.multiprocessors,
            detail=self.detail,
            called=called | ({"multiprocessors"} if asks else set()),
            linkage="static",
            listed=self.spec.listed,
            opening=f'extern "C" {self.api}Error_t {self.kernel.name}_launch({", ".join(params)})',
            empty=" || ".join(f"{var.name} < 1" for var in self.kernel.extents),
            skips=self.no_product(),
            refusals=[(error, " || ".join(found)) for error, found in refusals if found],
            groups=GROUPS.name if asks else None,
            launches=[
                {
                    # A grid of no blocks is refused.
                    "needed": (self.needed(printer.kernel) or ("",))[0],
                    "text": environment()
                    .get_template(self.launch_template)
                    .render(printer.launch_fields(self, last=i + 1 == len(kernels)))
                    .strip("\n"),
                }
                for i, printer in enumerate(kernels)
            ],
            **self.launcher_fields(kernels),
        )

    def launcher_fields(self, kernels: Sequence[Self]) -> Mapping[str, object]:  # noqa: ARG002
        """What the launcher's template says beside that."""
        return {}

    def launch_fields(self, file: Self, last: bool) -> Mapping[str, object]:  # noqa: ARG002
        """What the template of this kernel's launch says.

        Args:
            file: prints all kernels as one.
            last: whether it is the last kernel of the file.
        """
        kernel = self.kernel
        rows, cols = kernel.group
        given = (
            map_name(p, kernel) if isinstance(p, Buffer) and p.tma_tile is not None else p.name for p in passed(kernel)
        )
        asked_bytes = f"int({self.asked_bytes()})" if self.dynamic_bytes() else "0"
        asked = f"{self.counter()}(&most, {kernel.name}, {self.number(rows * cols)}, {asked_bytes}"
        asked += f", {kernel.cluster});" if kernel.cluster > 1 else ");"
        return {
            "api": self.api,
            "name": kernel.name,
            "function": self.function_address(),
            "arguments": ", ".join(given),
            "grid": self._grid(),
            "block": f"{self.number(cols)}, {self.number(rows)}",
            "dynamic_bytes": self.asked_bytes() if self.dynamic_bytes() else "",
            "counter": f"const {self.api}Error_t asked = {asked}" if kernel.persistent else "",
            "taken": "return" if last else f"const {self.api}Error_t launched =",
            "last": last,
        }

    def function_address(self) -> str:
        """The kernel as the library's functions take it."""
        return self.kernel.name

    def counter(self) -> str:
        """The function that says how many blocks of a kernel run at once."""
        return "blocks_at_once"

    # --- what a launcher refuses ------------------------------------------------------------------

    def _addresses(self) -> Iterator[tuple[str, int]]:
        """Matrices, and what they begin on multiples of. What an epilogue takes, and offsets, are read element by
        element; of lists of addresses the host sees nothing.
        """
        for p in self.kernel.launcher_params:
            if isinstance(p, Buffer):
                size = 8 if p.addresses is not None else p.dtype.size
                alone = p.addresses is not None or p.name in {*OPERANDS, OFFSETS}
                if (bytes_ := max(size, 1 if alone else self.beginning(p.name))) > 1:
                    yield p.name, bytes_


@dataclass(frozen=True, slots=True)
class _Copy:
    """A function that moves elements."""

    kind: str
    width: int
    to: DType
    source: DType
    has_zero_point: bool = False

    @classmethod
    def of(cls, move: VectorCopy) -> Self:
        kind: str = "atomic_add" if move.atom.adds else way(move)
        if move.atom.edge == "part":
            kind = "load_inside" if move.dst.space is Space.PRIVATE else "store_inside"
        if move.atom.around:
            kind = "copy_from_anywhere"
        if move.atom.name == BYTE_OF_PAIR.name:
            kind = "load_pair"
        if move.atom.is_async:
            kind = "async_copy" if move.valid is None else "async_copy_inside"
        if by_width(move.width):
            return cls("async_copy_by_width", 0, move.dst.dtype, move.src.dtype)
        return cls(kind, move.width, move.dst.dtype, move.src.dtype, move.zero_point is not None)

    @property
    def of_floats(self) -> tuple[str, str] | None:
        """Of two floats in registers that become one of 16-bit elements together: that type, and what makes it."""
        return PAIRS_OF_FLOATS.get(self.to) if (self.kind, self.width, self.source) == ("load", 2, F32) else None

    def kept(self) -> tuple[DType, ...]:
        """The type in memory, where the elements change theirs."""
        return () if self.of_floats else {"load": (self.source,), "store": (self.to,)}.get(self.kind, ())

    def order(self) -> tuple[int, int, str]:
        return KINDS.index(self.kind), self.width, f"{self.to} {self.source}"

    def said(self, types: Mapping[str, str], by_bits: bool) -> Mapping[str, object]:
        """Its words for a template.

        Args:
            by_bits: whether int8 become float32 by their bits.
        """
        memory = self.to if self.kind in ("store", "store_inside") else self.source
        size = memory.size * (self.width or 1)
        element = types[memory.name]
        return {
            "kind": self.kind,
            "width": self.width if self.width > 1 else "",
            "elements": f"{self.width} neighbouring elements",
            "bytes": size,
            "size": memory.size,
            "vector": f"{element}{self.width}" if element in OWN_VECTORS else WORDS.get(size, ""),
            "byte_word": WORDS[min(4, self.width)] if self.width > 1 else "",
            "half": WORDS.get(size // 2, "") if self.width > 2 else "",
            "source": types[self.source.name],
            "to": types[self.to.name],
            "as_to": "from_int8" if by_bits and (self.source, self.to) == (I8, F32) else types[self.to.name],
            "pair": PAIRS.get(self.source) if self.to == F32 else None,
            "of_floats": self.of_floats,
            "halves": HALVES.get(self.to) if self.source == I8 and by_bits else None,
            "cache": "cg" if size == max(WORDS) else "ca",
            "calls": self._calls() if by_bits else None,
            "zero_point": ZERO_POINTS.get(self.to) if self.has_zero_point else None,
        }

    def _calls(self) -> str | None:
        """The function that elements' bits are changed by, of those beside moves."""
        if self.kind == "load_pair" or (self.source, self.to) == (I8, BF16):
            return "and_xor"
        return "from_int8" if (self.kind, self.source, self.to) == ("load_inside", I8, F32) else None


def _copy_name(move: VectorCopy) -> str:
    """The function that moves elements by one instruction, or begins to."""
    if move.atom.is_async:
        return f"cp_async_{move.width * move.src.dtype.size}" + ("" if move.valid is None else "_zfill")
    if move.atom.edge == "part":
        return f"{'load' if move.dst.space is Space.PRIVATE else 'store'}{move.width}_inside"
    if move.atom.name == BYTE_OF_PAIR.name:
        return "copy_pair" if move.width == PAIR else f"copy_pairs{move.width}"
    name = "atomic_add" if move.atom.adds else "copy"
    how = "_from_anywhere" if move.atom.around else ""
    return f"{name}{move.width if move.width > 1 else ''}{how}"
