"""`dpas` on 2D blocks in SYCL: OpenCL C's functions, which device code declares as Intel's compiler has them."""

from __future__ import annotations

from collections.abc import Callable

from gemmgen.backends.block_io import (
    SOFTWARE,
    BlockWords,
    block_2d_fields,
    dpas_function,
    multiplies_by,
    payload_needs,
    splits_barriers,
)
from gemmgen.backends.clike import CLike
from gemmgen.backends.files import rendered
from gemmgen.ir.dtypes import F32, DType
from gemmgen.ir.instructions import Instruction
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Multiply
from gemmgen.ir.walk import of_kind

#: What 2D block messages need of the language. What device code has of OpenCL C's own is in its address spaces.
BLOCK_2D_WORDS = BlockWords(
    inline="inline",
    spaces=("", ""),
    declared="SYCL_EXTERNAL ",
    builtin='extern "C" SYCL_EXTERNAL ',
    to=("__attribute__((opencl_private)) ", "__attribute__((opencl_global)) "),
    place="{{{}, {}}}",
    pair="opencl_int2",
    make="opencl_int2{{{}, {}}}",
    long="long long",
    vector="opencl_",
    lane="int(sycl::ext::oneapi::this_work_item::get_sub_group().get_local_linear_id())",
    unroll="#pragma GCC unroll {}",
    in_order="sycl::group_barrier(sycl::ext::oneapi::this_work_item::get_sub_group());",
    copies="__builtin_memcpy(to, &words, sizeof(words));",
    struct=("struct block_place", ""),
    words={"uint": "unsigned", "ushort": "unsigned short"},
    bits={
        1: "unsigned(static_cast<unsigned char>({element}))",
        2: "unsigned(sycl::bit_cast<unsigned short>({element}))",
    },
    keep="__builtin_memcpy(static_cast<void *>(to + w * {per}), &word, sizeof(word));",
)


#: What is called to change a type to another.
Converter = Callable[[DType, DType], str]


def declarations(printer: CLike, converter: Converter) -> list[str]:
    """What stands before the file's namespace: OpenCL C's functions, whose names are mangled as global ones."""
    if not multiplies_by(printer.kernel, "dpas"):
        return []
    return rendered("sycl/declarations.hpp.j2", **_fields(printer, converter))


def functions(printer: CLike, converter: Converter, dimensions: int) -> list[str]:
    """The functions that a kernel calls, and what stands in for OpenCL C's in software."""
    if not multiplies_by(printer.kernel, "dpas"):
        return []
    return rendered("sycl/matrices.hpp.j2", dimensions=dimensions, **_fields(printer, converter))


def _fields(printer: CLike, converter: Converter) -> dict[str, object]:
    kernel = printer.kernel
    atom = next(s.atom for s in of_kind(Multiply, kernel.body))
    sums, (of_a, of_b) = printer.types[atom.sums.name], _vectors(atom)
    vectors = {("int", 2), (sums, 8), of_a, of_b}
    multiplication = {
        "function": dpas_function(atom),
        "tf32": atom.dtype == F32,
        "sums": sums,
        "element": printer.types[atom.dtype.name],
        "a": "{}{}".format(*of_a),
        "b": "{}{}".format(*of_b),
        "convert": converter(atom.dtype, atom.sums),
        "depth": atom.depth,
        "own": atom.depth // atom.lanes,
        "b_pairs": atom.b_pairs,
    }
    return {
        "multiplication": multiplication,
        "types": sorted(vectors),
        "split_barrier": splits_barriers(kernel),
        **block_2d_fields(kernel, BLOCK_2D_WORDS, printer.types, printer.literal(0, atom.dtype)[0]),
    }


def _vectors(atom: Instruction) -> tuple[tuple[str, int], tuple[str, int]]:
    """The vectors of a lane's elements of A and B."""
    if atom.dtype == F32:
        return ("float", 4), ("float", 8)
    return ("short", 8), ("int", 4 if atom.b_pairs else 8)


def dpas_needs(kernel: Kernel) -> list[str]:
    """What the head comment says, a point each."""
    by = "OpenCL C's functions for matrix instructions and 2D block messages, which Intel's compiler has"
    return [f"{by}; or, without them, -D{SOFTWARE}: the same in software", *payload_needs(kernel)]


def dpas_text(printer: CLike, stmt: Multiply) -> str:
    """The call that multiplies."""
    return f"multiply({printer.addresses(stmt)});"
