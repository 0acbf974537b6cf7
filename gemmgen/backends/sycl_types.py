"""Element types in SYCL: their names, and the functions that move and convert them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gemmgen.backends.clike import way
from gemmgen.backends.expressions import converting
from gemmgen.backends.files import section, sections
from gemmgen.backends.pairs import Pairs
from gemmgen.ir.dtypes import DType
from gemmgen.ir.kernel import Kernel, conversions
from gemmgen.ir.stmt import Alloc, Move
from gemmgen.ir.walk import walk

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
#: Where the functions stand that kernels are printed with.
INTRINSICS = "sycl/intrinsics.hpp"
#: By index: what `.x()` gives is no number but a part of a vector that can be assigned to.
PAIRS = Pairs("TYPE(RE, IM)", ("[0]", "[1]"), ("sycl::fma", "sycl::fma"))
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


def functions(kernel: Kernel, vectors: Collection[str], elements: Elements) -> list[str]:
    """The functions that a kernel computes and converts by, and moves neighbours by, where its atoms are `vectors`."""
    changes = {(source.name, to.name) for source, to, _ in conversions(kernel)}
    types, known = elements.types, elements.conversions
    lines = PAIRS.functions(kernel, types, INTRINSICS)
    lines += sections(INTRINSICS, {known[change] for change in changes & set(known)})
    moves = [s for s in walk(kernel.body) if isinstance(s, Move) and s.atom.name in vectors]
    moves = [move for move in moves if move.src.vector == move.dst.vector == 1]
    found = {(way(m), m.width, m.src.dtype, m.dst.dtype) for m in moves}
    # A copy that converts has one that doesn't inside.
    found |= {("copy", width, t, t) for key, width, *types in found for t in types[key == "store" :][:1]}
    for key, width, source, to in sorted(found, key=lambda x: (*x[:2], str(x[2:]))):
        word, vector = WORDS.get(source.name, (types[source.name],) * 2)
        lines += section(
            INTRINSICS,
            key,
            width=width,
            bytes=width * source.size,
            size=source.size,
            word=word,
            vector=f"{vector}{width}",
            source=types[source.name],
            to=types[to.name],
            convert=elements.converter(source, to),
        )
    return lines


def vector_functions(kernel: Kernel, words: Collection[str], elements: Elements) -> list[str]:
    """What moves whole vectors of a work-item's own; `words` are all names in its body."""
    held = {s.buffer for s in walk(kernel.body) if isinstance(s, Alloc) and s.buffer.vector > 1}
    lines: list[str] = []
    for name in ("load_vector", "store_vector"):
        # Stores have one name for all widths.
        verb = name.partition("_")[0]
        for width, dtype in sorted({(x.vector, x.dtype) for x in held}, key=lambda x: x[0]):
            if verb in words or f"{verb}{width}" in words:
                element = elements.types[dtype.name]
                lines += section(INTRINSICS, name, width=width, element=element, vector=f"sycl::{element}{width}")
    return lines
