"""Scalar types, by the names NumPy gives them."""

from __future__ import annotations

from gemmgen.records import dataclass


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar type.

    Attributes:
        name: NumPy's name of it (`float32`), the key that backends and NumPy translate.
        size: bytes.
        is_float: whether it has NaN and infinities.
        largest: the largest number that it holds; of a complex type, that each of its parts does, as `digits`.
        digits: of a float, the bits of its significand: a value is rounded by at most 2^-digits of itself.
        needs: the feature that a target must have to compute with it, if not all have it.
        real: of a complex type, that of its real and its imaginary part, which lie side by side; else None.
        pairs: whether a byte holds two elements, neighbours along K: the first in its low half.
    """

    name: str
    size: int
    is_float: bool
    largest: float = 0
    digits: int = 0
    needs: str | None = None
    real: DType | None = None
    pairs: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def flops(self) -> int:
        """Operations on real numbers in a multiply-add."""
        return 2 if self.real is None else 8

    def bytes_of(self, elements: int) -> int:
        """Bytes that so many neighbours take in memory."""
        return -(-elements // 2) if self.pairs else elements * self.size


F64 = DType("float64", 8, True, 1.7976931348623157e308, 53, "fp64")
F32 = DType("float32", 4, True, 3.4028234663852886e38, 24)
F16 = DType("float16", 2, True, 65504.0, 11, "fp16")
BF16 = DType("bfloat16", 2, True, 3.3895313892515355e38, 8)
#: Both floats of 16 bits.
FLOAT16 = (F16, BF16)
#: OCP's 8-bit floats. The first has no infinities: what is too large is NaN.
F8_E4M3 = DType("float8_e4m3fn", 1, True, 448.0, 4, "fp8")
F8_E5M2 = DType("float8_e5m2", 1, True, 57344.0, 3, "fp8")
FLOAT8 = (F8_E4M3, F8_E5M2)
C64 = DType("complex64", 8, True, F32.largest, F32.digits, real=F32)
C128 = DType("complex128", 16, True, F64.largest, F64.digits, F64.needs, F64)
#: Of types that sums are in: smaller literals lose digits, or are zero.
SMALLEST = {F32: 2.0**-126, F64: 2.0**-1022, C64: 2.0**-126, C128: 2.0**-1022}
I32 = DType("int32", 4, False, 2**31 - 1)
#: Also how far apart matrices lie.
I64 = DType("int64", 8, False, 2**63 - 1)
I16 = DType("int16", 2, False, 2**15 - 1)
I8 = DType("int8", 1, False, 127)
#: Two's complement. Matrices alone are stored in it: registers hold the numbers.
I4 = DType("int4", 1, False, 7, pairs=True)
BOOL = DType("bool", 1, False)

#: Element types that A and B can have -> those that C can have then, the natural one first.
RESULTS: dict[DType, tuple[DType, ...]] = {
    F64: (F64,),
    F32: (F32,),
    F16: (F16, F32),
    BF16: (BF16, F32),
    I8: (I32,),
    F8_E4M3: (BF16, F16, F32),
    F8_E5M2: (BF16, F16, F32),
    C64: (C64,),
    C128: (C128,),
    I32: (I32,),
    I64: (I64,),
}
#: Element types -> others that A or B may be stored in, to be converted as they are loaded into registers.
STORED: dict[DType, tuple[DType, ...]] = {
    F64: (F32,),
    F32: (F16, BF16, I8, I4),
    **dict.fromkeys(FLOAT16, (I8, F8_E4M3, F8_E5M2, I4)),
    I8: (I4,),
}
#: Element types that A and B can have, by name.
MATRIX_DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in RESULTS}
#: Element types that any matrix can have, by name.
ALL_DTYPES: dict[str, DType] = {dtype.name: dtype for results in ((*RESULTS,), *RESULTS.values()) for dtype in results}
#: Those that A or B may be stored in, by name.
STORED_DTYPES: dict[str, DType] = {**ALL_DTYPES, **{dtype.name: dtype for types in STORED.values() for dtype in types}}
#: Other names of those, as other libraries and languages have them.
ALIASES: dict[str, str] = {
    **dict.fromkeys(("double", "fp64", "f64"), F64.name),
    **dict.fromkeys(("single", "fp32", "f32"), F32.name),
    **dict.fromkeys(("half", "fp16", "f16"), F16.name),
    "bf16": BF16.name,
    **dict.fromkeys(("float8_e4m3", "fp8_e4m3", "fp8_e4m3fn", "e4m3", "e4m3fn"), F8_E4M3.name),
    **dict.fromkeys(("fp8_e5m2", "e5m2"), F8_E5M2.name),
    **dict.fromkeys(("s8", "int8_t"), I8.name),
    **dict.fromkeys(("s32", "i32", "int32_t"), I32.name),
    **dict.fromkeys(("s64", "i64", "int64_t"), I64.name),
}
#: Names that mean one type here and another there -> what to give instead.
AMBIGUOUS: dict[str, tuple[str, ...]] = {
    "float": (F32.name, F64.name),
    "f8": (F64.name, F8_E4M3.name, F8_E5M2.name),
    **dict.fromkeys(("fp8", "float8"), (F8_E4M3.name, F8_E5M2.name)),
    "int": (I32.name, I64.name),
    "i8": (I8.name, I64.name),
    "complex": (C64.name, C128.name),
}
#: What NumPy takes Python's own numbers for.
_OF_PYTHON: dict[object, str] = {float: F64.name, int: I64.name, complex: C128.name, bool: BOOL.name}
_LIBRARIES = ("torch.", "numpy.", "np.", "cupy.", "cp.", "ml_dtypes.", "jax.numpy.", "jnp.")
#: Products of these are summed in another type; others in their own.
_SUMS: dict[DType, DType] = {F16: F32, BF16: F32, I8: I32, F8_E4M3: F32, F8_E5M2: F32}


def accumulator(dtype: DType) -> DType:
    """The type that products of two elements are summed in."""
    return _SUMS.get(dtype, dtype)


def type_name(value: object) -> str:
    """NumPy's name of an element type, however it was given: a `DType`, a name of `ALIASES` or another, a type of
    NumPy, ml_dtypes or torch, a `numpy.dtype`. What is no type comes back as it is written.
    """
    if isinstance(value, str):
        text = value.strip()
    elif isinstance(value, type):
        text = _OF_PYTHON.get(value, value.__name__)
    else:
        name: object = getattr(value, "name", None)
        text = name if isinstance(name, str) else str(value)
    if getattr(value, "isnative", True) is False:
        return str(value)  # the other byte order, which nothing here reads
    for library in _LIBRARIES:
        text = text.removeprefix(library)
    known = ALIASES.get(text.lower(), text.lower())
    return known if known in ALL_DTYPES or known in AMBIGUOUS else text
