"""Type promotion: the kernel's types for a product of two element types, and the conversion of its result."""

from __future__ import annotations

import numpy as np

from gemmgen.ir.dtypes import F32, FLOAT8, I8, I32, I64, MATRIX_DTYPES, RESULTS, DType
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.records import dataclass

Dtype = np.dtype[np.generic]
#: NumPy's type characters that NumPy multiplies itself if no kernel does: complex, long double, objects.
_ON_HOST = frozenset("FDgGO")


@dataclass(frozen=True, slots=True)
class Types:
    """The types of one product.

    Attributes:
        elements: the type to which A and B are converted.
        kernel: the type that the kernel uses for them, of the same size.
        sums: C's type in the kernel.
        result: the type of the result.
        on_host: whether no kernel supports such elements, so that NumPy multiplies them itself.
    """

    elements: Dtype
    kernel: DType
    sums: DType
    result: Dtype
    on_host: bool = False

    def is_held(self, dtype: Dtype) -> bool:
        """Whether the kernel can write an array of this type directly, since it has the sums' bits."""
        sums = numpy_dtype(self.sums)
        whole = dtype.kind in "iu" and sums.kind == "i" and dtype.itemsize == sums.itemsize
        return (dtype == sums or whole) and dtype.isnative


def types_of(
    promoted: Dtype,
    dtype: Dtype | None,
    into: Dtype | None,
    problems: list[str],
    default: Dtype | None = None,
    has_float8: bool = True,
    casts_by: str = "astype",
) -> Types | None:
    """The types of a product, or None with problems added.

    Args:
        promoted: the type to which A and B promote.
        dtype: the requested type, or None.
        into: the type of the array for the result, or None.
        default: the result's type if neither is given; None for `promoted`.
        has_float8: whether there are kernels of 8-bit floats. They are multiplied in float32 if there are none.
        casts_by: the method by which arrays are cast, for messages.
    """
    default = promoted if default is None else default
    before = len(problems)
    if dtype is not None and not _holds(dtype, promoted):
        problems.append(
            f"dtype {dtype} does not hold products of {promoted}: cast a and b by {casts_by}, or leave it out"
        )
    result = promoted if dtype is None else dtype
    if into is not None and not _holds(into, result):
        problems.append(f"a result of {result} can't be cast to out's {into} (same_kind): pass an out of {result}")
    if len(problems) > before:
        return None
    if promoted.name in map(str, FLOAT8) and not has_float8:
        wide = numpy_dtype(F32)
        return Types(wide, F32, F32, (default if dtype is None else dtype).newbyteorder("="))
    # Sums wider than the elements are available: int8 in int32, float16 in float32.
    asked = (into or default) if dtype is None else dtype
    narrow = MATRIX_DTYPES.get(promoted.name)
    sums = next((x for x in RESULTS[narrow] if str(x) == asked.name), None) if narrow is not None else None
    if narrow is not None and sums is not None:
        return Types(numpy_dtype(narrow), narrow, sums, asked.newbyteorder("="))
    return _of(result.newbyteorder("="), problems)


def keeps_kind(given: Dtype, dtype: Dtype) -> bool:
    """Whether NumPy casts a type to another one's kind. Of ml_dtypes' real types it says so for complex numbers too."""
    return np.can_cast(given, dtype, "same_kind") and (given.kind != "c" or dtype.kind in "cO")


def _holds(dtype: Dtype, products: Dtype) -> bool:
    """Whether a type is of the same kind as another one's products, or one that kernels store them in."""
    known = MATRIX_DTYPES.get(products.name)
    return keeps_kind(products, dtype) or (known is not None and dtype.name in map(str, RESULTS[known]))


def _of(result: Dtype, problems: list[str]) -> Types | None:
    """The types of a product whose elements have the result's type."""
    if result.kind == "b":
        return Types(result, I8, I32, result)
    if result.kind in "iu" and result.name != I8.name:
        sums = I32 if result.itemsize <= I32.size else I64
        # Signed and unsigned integers have the same product modulo 2^bits. Narrow ones are computed wide, then cut.
        elements = result if result.itemsize == sums.size else numpy_dtype(sums)
        return Types(elements, sums, sums, result)
    if (known := MATRIX_DTYPES.get(result.name)) is not None:
        return Types(result, known, RESULTS[known][0], result)
    if result.char in _ON_HOST:
        return Types(result, I8, I32, result, on_host=True)
    problems.append(
        f"elements of {result} can't be multiplied: use one of {', '.join(MATRIX_DTYPES)}, bool or integers"
    )
    return None
