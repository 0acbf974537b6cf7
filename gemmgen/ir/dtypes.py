"""Scalar types, by the names NumPy gives them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar type.

    Attributes:
        name: NumPy's name of it (`float32`), the key that backends and NumPy translate.
        size: bytes.
        is_float: whether it has NaN and infinities.
    """

    name: str
    size: int
    is_float: bool

    def __str__(self) -> str:
        return self.name


F32 = DType("float32", 4, True)
I32 = DType("int32", 4, False)
#: How far apart matrices lie.
I64 = DType("int64", 8, False)
BOOL = DType("bool", 1, False)

#: Element types that a matrix can have.
MATRIX_DTYPES: dict[str, DType] = {"float32": F32}
