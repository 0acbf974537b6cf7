"""Checks of a call of `gemmgen.gemm`. Each function returns a list of problems, or adds to one."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gemmgen.api.kernels import named_schedule
from gemmgen.api.libraries import Dtype, Library
from gemmgen.api.matmul import Operand, Product, text
from gemmgen.api.promotion import Types, keeps_kind, types_of
from gemmgen.epilogue import odd_columns
from gemmgen.errors import attempt
from gemmgen.ir.dtypes import DType
from gemmgen.ir.numeric import element_type
from gemmgen.runtime.views import meets_itself, overlap_problems
from gemmgen.spec import Order

#: The names of `gemm`'s flags, in order.
FLAGS = ("transpose_a", "transpose_b", "conjugate_a", "conjugate_b", "emulate", "invariant", "allow_tf32")


def flag_problems(flags: Mapping[str, object]) -> list[str]:
    """Problems: flags, by name, that are not bool. A string is refused, whatever it says."""
    return [
        f"{name} = {value!r} is of type {type(value).__name__}: pass True or False"
        for name, value in flags.items()
        if not isinstance(value, bool | int | np.bool_)
    ]


def is_set(flag: object) -> bool:
    """Whether a flag is set. What is no flag is not; `flag_problems` tells of it."""
    return isinstance(flag, bool | int | np.bool_) and bool(flag)


def schedule_problems(schedule: object) -> list[str]:
    """Problems with a schedule that is named, to be told beside those of the arrays."""
    problems: list[str] = []
    if schedule is not None:
        attempt(problems, named_schedule, schedule)
    return problems


def result_types(
    library: Library, a: Operand, b: Operand, dtype: object, target: Operand | None, problems: list[str]
) -> Types | None:
    """The types of the elements, the sums and the result; None if there are problems."""
    try:
        promoted = a.dtype if a.dtype == b.dtype else library.promote(a.dtype, b.dtype)
    except TypeError:
        problems.append(f"a of {a.dtype} and b of {b.dtype} have no type in common: cast one by {library.casts_by}")
        return None
    wanted = None if dtype is None else asked_type(dtype, problems)
    into = None if target is None else target.dtype
    default = library.default_result(promoted)
    return types_of(promoted, wanted, into, problems, default, library.has_float8, library.casts_by)


def asked_type(dtype: object, problems: list[str]) -> Dtype | None:
    """The type that a call asks for; None with a problem added."""
    try:
        return element_type(dtype)
    except TypeError as error:
        problems.append(f"dtype = {dtype!r} is no element type ({error}): pass one such as np.float32")
        return None


def factor_problems(factors: tuple[object, object], has_c: bool, problems: list[str]) -> None:
    """Problems with alpha and beta that do not depend on the type. Kernels check them against their own type."""
    for name, value in zip(("alpha", "beta"), factors, strict=True):
        if not isinstance(value, numbers.Number | np.bool_):
            problems.append(f"{name} = {value!r} is of type {type(value).__name__}: pass a number")
        elif isinstance(value, numbers.Integral) and abs(int(value)) < 2**64 and int(float(value)) != value:
            problems.append(f"{name} = {value} is no number that float64 holds: pass one, or scale a or b instead")
    if not has_c and factors[1] != 0:
        problems.append(f"beta = {factors[1]} adds to a c that was not given: pass c, or beta = 0")


def pair_problems(
    operands: tuple[Operand, Operand], transposed: tuple[bool, bool], in_pairs: tuple[bool, bool]
) -> list[str]:
    """Problems: pairs of elements, neighbours along K, that do not lie in lines along K."""
    orders: tuple[Order, Order] = "row", "col"
    named = zip("ab", operands, transposed, in_pairs, orders, strict=True)
    return [
        f"{name} holds pairs of elements along K, and its lines lie across K: store it {order}-major, as "
        "gemmgen.prepack does"
        for name, x, is_transposed, is_pairs, order in named
        if is_pairs and x.as_stack(is_transposed, name == "b").first_order(order) is None
    ]


def gated(product: Product, gate: str, problems: list[str]) -> Product | None:
    """The sizes of a product whose columns a gate takes by twos; None with a problem added if they have no halves."""
    if product.is_column or product.n % 2:
        columns = "a vector" if product.is_column else f"{product.n} columns"
        problems.append(odd_columns(gate, f"has {columns}"))
        return None
    return replace(product, n=product.n // 2)


def target_problems(
    library: Library, name: str, target: Operand, product: Product, inputs: Mapping[str, Operand]
) -> list[str]:
    """Problems with the array for the result, called `name`."""
    problems = []
    if target.shape != product.shape:
        problems.append(
            f"{name} has the non-broadcastable shape {text(target.shape)}, not {text(product.shape)}: "
            "pass one of exactly that shape, or leave it out to have it allocated"
        )
    return problems + memory_problems(library, name, target, inputs)


def memory_problems(library: Library, name: str, target: Operand, inputs: Mapping[str, Operand]) -> list[str]:
    """Problems with the memory of the array for the result, called `name`: it is read-only, or shared."""
    problems = []
    if not library.is_writable(target):
        problems.append(f"{name} is read-only: pass a writable array, or leave it out to have it allocated")
    if meets_itself(target):
        problems.append(f"elements of {name} share memory: pass an array that has each of its own")
    read = {other: library.view(operand, operand.dtype) for other, operand in inputs.items()}
    return problems + overlap_problems(name, library.view(target, target.dtype), read)


def addend_problems(addend: Operand, target: Operand, library: Library) -> list[str]:
    """Problems with a c that is copied to another `out` before the product is added."""
    problems = []
    try:
        fits = np.broadcast_shapes(addend.shape, target.shape) == target.shape
    except ValueError:
        fits = False
    if not fits or not (library.converts or addend.shape == target.shape):
        problems.append(f"c of {text(addend.shape)} does not fit out's {text(target.shape)}: pass one of that shape")
    if not keeps_kind(addend.dtype, target.dtype):
        cast = f"cast it by {library.casts_by}"
        problems.append(f"c of {addend.dtype} can't be cast to out's {target.dtype} (same_kind): {cast}")
    return problems


def as_they_are(
    library: Library,
    types: Types,
    transposed: tuple[bool, bool],
    operands: tuple[Operand, Operand],
    target: Operand | None,
    stored: tuple[DType | None, DType | None],
) -> list[str]:
    """Problems: arrays that would have to be copied, if their library makes no copies.

    Args:
        stored: the stored types of A and B that a prologue reads; None if they must be converted before.
    """
    a, b = operands
    named = (("a", a, a.as_stack(transposed[0], column=False)), ("b", b, b.as_stack(transposed[1], column=True)))
    problems = [
        f"{name} has dtype {x.dtype}, not {types.elements}: pass {name}.astype(np.{types.elements})"
        for (name, x, _), own in zip(named, stored, strict=True)
        if own is None and x.dtype != types.elements
    ]
    problems += [
        f"{name} has strides {x.strides} bytes, of no row- or column-major matrix: pass a copy without gaps, "
        f"as {library.name} makes none"
        for name, x, stack in named
        if stack.order is None
    ]
    result = types.result if target is None else target.dtype
    if not types.is_held(result):
        problems.append(f"the result is {result}, but kernels sum in {types.sums}: pass dtype or out of that type")
    return problems
