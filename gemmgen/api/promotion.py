"""Which kernel's types compute a product of two element types, and what becomes of its result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmgen.ir.dtypes import I8, I32, I64, MATRIX_DTYPES, RESULTS, DType
from gemmgen.ir.numeric import numpy_dtype

Dtype = np.dtype[np.generic]
#: NumPy's characters of elements that it multiplies itself where no kernel does: complex, long double, objects.
_ON_HOST = frozenset("FDgGO")


@dataclass(frozen=True, slots=True)
class Types:
    """The types of one product.

    Attributes:
        elements: what A and B are converted to.
        kernel: what the kernel takes them for: of as many bytes.
        sums: C's type in the kernel.
        result: what the result is.
        on_host: whether no kernel has such elements, so that NumPy multiplies them itself.
    """

    elements: Dtype
    kernel: DType
    sums: DType
    result: Dtype
    on_host: bool = False

    def is_held(self, dtype: Dtype) -> bool:
        """Whether a kernel can write an array of a type itself: it has the sums' bits."""
        sums = numpy_dtype(self.sums)
        whole = dtype.kind in "iu" and sums.kind == "i" and dtype.itemsize == sums.itemsize
        return (dtype == sums or whole) and dtype.isnative


def types_of(promoted: Dtype, dtype: Dtype | None, into: Dtype | None, problems: list[str]) -> Types | None:
    """The types of a product, or None with what is wrong.

    Args:
        promoted: what A and B have in common.
        dtype: what was asked for, or None.
        into: the type of the array that the result goes to, or None.
    """
    before = len(problems)
    if dtype is not None and not np.can_cast(promoted, dtype, "same_kind"):
        problems.append(f"dtype {dtype} does not hold products of {promoted}: cast a and b by astype, or leave it out")
    result = promoted if dtype is None else dtype
    if into is not None and not np.can_cast(result, into, "same_kind"):
        problems.append(f"a result of {result} can't be cast to out's {into} (same_kind): pass an out of {result}")
    if len(problems) > before:
        return None
    # Sums that are wider than the elements are there to be had: int8 in int32, float16 in float32.
    asked = into if dtype is None else dtype
    narrow = MATRIX_DTYPES.get(promoted.name)
    if narrow is not None and asked is not None and asked.name in map(str, RESULTS[narrow]):
        wide = next(x for x in RESULTS[narrow] if str(x) == asked.name)
        return Types(numpy_dtype(narrow), narrow, wide, asked.newbyteorder("="))
    return _of(result.newbyteorder("="), problems)


def _of(result: Dtype, problems: list[str]) -> Types | None:
    """Those of a product whose elements are of the result's type."""
    if result.kind == "b":
        return Types(result, I8, I32, result)
    if result.kind in "iu" and result.name != I8.name:
        sums = I32 if result.itemsize <= I32.size else I64
        # Whole numbers of one width have one product, modulo 2^bits; narrow ones are computed wide, then cut.
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
