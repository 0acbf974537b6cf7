"""What to compute: C = alpha * A @ B + beta * C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from gemmgen.errors import SpecError
from gemmgen.fields import Kind, field_problems, is_whole
from gemmgen.ir.dtypes import F32, MATRIX_DTYPES, DType

Order = Literal["row", "col"]
ORDERS: tuple[str, ...] = ("row", "col")
#: Of float32, which is every matrix's type so far.
LARGEST = 3.4028234663852886e38
#: A tile beyond it must still be counted by 32-bit integers.
LARGEST_SIZE = 2**31 - 1025
_KINDS: dict[str, Kind] = {
    "DType": (
        f"gemmgen.spec.parse_dtype(name) of {', '.join(MATRIX_DTYPES)}",
        lambda x: isinstance(x, DType) and x in MATRIX_DTYPES.values(),
    ),
    "Order": ("row or col", lambda x: isinstance(x, str) and x in ORDERS),
    "float": ("a number", lambda x: type(x) in (int, float)),
    "tuple[int, int, int]": (
        "three whole numbers, for m, n and k",
        lambda x: isinstance(x, tuple) and len(x) == 3 and all(map(is_whole, x)),
    ),
}


@dataclass(frozen=True, slots=True)
class GemmSpec:
    """One matrix product.

    Attributes:
        m, n, k: sizes of A [m, k], B [k, n] and C [m, n]; None where they are run-time arguments.
        dtype: element type of the three matrices and of the accumulators.
        a_order, b_order, c_order: `row` where the elements of a row are neighbours, else `col`.
        alpha, beta: folded into the source, or None where they are run-time arguments.
        multiple_of: what m, n and k are promised to be divisible by; guards fold away accordingly.
        batched: whether it is many products of one size: the matrices of the next one lie `stride_a`, `stride_b` and
            `stride_c` elements further on.
        ld_multiple: what the leading dimensions, and the strides of a batch, are promised to be divisible by, for
            vectors that need alignment.
    """

    m: int | None = None
    n: int | None = None
    k: int | None = None
    dtype: DType = F32
    a_order: Order = "row"
    b_order: Order = "row"
    c_order: Order = "row"
    alpha: float | None = None
    beta: float | None = None
    multiple_of: tuple[int, int, int] = (1, 1, 1)
    ld_multiple: int = 1
    batched: bool = False

    def __post_init__(self) -> None:
        """Raises: SpecError with every problem."""
        if problems := field_problems(self, _KINDS):
            raise SpecError(problems)
        for axis, size, unit in zip("mnk", (self.m, self.n, self.k), self.multiple_of, strict=True):
            if size is not None and size > LARGEST_SIZE:
                problems.append(f"{axis} = {size} > {LARGEST_SIZE}, what 32-bit indices reach: multiply it in parts")
            if size is not None and size < 1:
                problems.append(f"{axis} = {size} < 1: give a positive size, or leave it out to pass it at run time")
            if unit < 1:
                problems.append(f"{axis} is said to be a multiple of {unit} < 1: say 1 if nothing is known")
            elif size is not None and size % unit:
                problems.append(f"{axis} = {size} is not the multiple of {unit} that was promised")
        if self.ld_multiple < 1:
            problems.append(f"leading dimensions are said to be multiples of {self.ld_multiple} < 1: say 1 if unknown")
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if value is not None and not abs(value) <= LARGEST:
                problems.append(
                    f"{name} = {value} cannot be folded, as it exceeds float32's {LARGEST:g}: "
                    "leave it out and pass it at run time"
                )
        if problems:
            raise SpecError(problems)

    def label(self) -> str:
        """The spec in a line, as head comments print it."""
        sizes = " ".join(f"{x}={v}" for x, v in zip("MNK", (self.m, self.n, self.k), strict=True) if v is not None)
        orders = ", ".join(
            f"{x} {order}-major"
            for x, order in zip("ABC", (self.a_order, self.b_order, self.c_order), strict=True)
            if order == "col"
        )
        batched = "a batch, whose matrices lie a stride apart" if self.batched else ""
        return "; ".join(part for part in (str(self.dtype), sizes, orders, batched) if part)


def parse_dtype(text: str) -> DType:
    """A matrix dtype by its NumPy name. Raises: SpecError."""
    if text not in MATRIX_DTYPES:
        raise SpecError(f"dtype {text!r} is not one of {', '.join(MATRIX_DTYPES)}")
    return MATRIX_DTYPES[text]


def parse_orders(text: str) -> tuple[Order, Order, Order]:
    """`row`, or `row,col` for A and B, or one for each of A, B and C. Raises: SpecError."""
    parts = text.split(",")
    if len(parts) not in (1, 2, 3) or any(p not in ORDERS for p in parts):
        raise SpecError(f"layout {text!r} is not like `row`, `row,col` (A, B) or `row,col,row` (A, B, C)")
    a, b, c = parts * 3 if len(parts) == 1 else [*parts, "row"][:3]
    return cast("tuple[Order, Order, Order]", (a, b, c))
