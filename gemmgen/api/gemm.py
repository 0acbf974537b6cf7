"""`gemmgen.gemm`: any product of arrays, by the rules of `numpy.matmul`, on the device that the arrays lie on."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gemmgen.api import repeated
from gemmgen.api.extras import Extra
from gemmgen.api.gemm_lists import takes_lists
from gemmgen.api.gemm_problems import (
    addend_problems,
    as_they_are,
    factor_problems,
    flag_problems,
    result_types,
    target_problems,
)
from gemmgen.api.kernels import kernel_for, target_for
from gemmgen.api.libraries import Dtype, Library
from gemmgen.api.library_of import library_of
from gemmgen.api.matmul import Call, Operand, Product, calls_of, product_of, scalar_problems
from gemmgen.api.promotion import Types
from gemmgen.errors import DtypeError, SpecError
from gemmgen.ir.dtypes import F32, F64, DType
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.runtime.cuda_arrays import ALIGNMENT, UNALIGNED_PRESET
from gemmgen.runtime.operands import expect_operands
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order

if TYPE_CHECKING:
    from gemmgen.runtime.queues import DeviceLike

#: An array of any library that is known; what goes in comes out.
AnyArray = TypeVar("AnyArray")


@takes_lists
def gemm(
    a: AnyArray,
    b: AnyArray,
    c: AnyArray | None = None,
    *,
    alpha: complex = 1,
    beta: complex = 0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    conjugate_a: bool = False,
    conjugate_b: bool = False,
    prologue_a: str | None = None,
    prologue_b: str | None = None,
    epilogue: str | Sequence[str] | None = None,
    emulate: bool = False,
    dtype: object = None,
    out: AnyArray | None = None,
    schedule: Schedule | str | None = None,
    backend: str | None = None,
    device: DeviceLike = None,
    **operands: object,
) -> AnyArray:
    """alpha * op(A) @ op(B) + beta * C, of any shapes and strides that `numpy.matmul` takes, after an epilogue.

    Args:
        a, b: vectors, matrices, or stacks of them, which are broadcast, of one library: NumPy's (or what makes one),
            pyopencl's, CuPy's, torch's, or others by `__cuda_array_interface__` and DLPack. Transposed views are read
            as they are; what has no contiguous lines is copied (pyopencl's is refused).
        c: what beta scales; not read where beta is 0. It gets the result where no out is given.
        alpha, beta: numbers, real ones where elements are; where alpha is 0, neither a nor b is read.
        transpose_a, transpose_b: whether rows and columns of the last two dimensions change places; of no vector.
        conjugate_a, conjugate_b: whether complex elements are conjugated.
        prologue_a, prologue_b: what elements of a and b are made into before they are multiplied: `"b * b_scale"`.
        epilogue: functions that the result goes through, such as `"relu"` or `["bias", "gelu"]` (docs/epilogues.md).
        emulate: whether float16 and bfloat16 are kept in integers, for devices of SYCL that lack them.
        dtype: the result's type; None for NumPy's (or torch's). int32 of int8 and float32 of float16 lose nothing.
        out: where the result goes, of exactly its shape; may be c, but share no memory with a or b.
        schedule: a `Schedule` or the name of a preset; None for `gemmgen.choose`'s.
        backend, device: of NumPy's arrays, where to run: as for `gemmgen.compile`. Others' say it themselves.
        operands: the arrays that these name, such as `bias`, of a's library; of stacks none with an element a row.

    Returns: the array that the result went to, or a new one, of a's library. NumPy's is complete; pyopencl's carries
    its event, and GPUs' are being computed on the current stream. NumPy itself multiplies what no kernel can (objects).

    Raises: SpecError with every problem (a ValueError; of types a TypeError, too), ScheduleError, DeviceError.
    """
    flags = transpose_a, transpose_b, conjugate_a, conjugate_b, emulate
    named = prologue_a, prologue_b, dtype
    key = repeated.key_of((a, b, c, out), (schedule, backend, device), flags, named, (epilogue, operands))
    if (done := repeated.again(key, (a, b, c, out), alpha, beta, operands)) is not None:
        return cast("AnyArray", done)
    expect_operands("gemm", operands)
    if problems := flag_problems(flags):
        raise SpecError(problems)
    library = library_of({"a": a, "b": b, "c": c, "out": out}, backend)
    conj = bool(conjugate_a), bool(conjugate_b)
    extra = Extra.of(epilogue, (prologue_a, prologue_b), operands, conj, bool(emulate))
    turned = bool(transpose_a), bool(transpose_b)
    request = _Request.of(library, (a, b, c, out), (alpha, beta), turned, dtype, extra)
    result = replace(request, key=key).run(schedule, backend, device)
    given = c if out is None else out
    return cast("AnyArray", library.finish(result) if given is None else given)


@dataclass(frozen=True, slots=True)
class _Request:
    """A call that has been checked.

    Attributes:
        addend: what beta scales; None where that is not read.
        target: where the result goes; None for a new array.
        turned: whether A and B are transposed.
        key: of calls like this one, where those can be shorter.
    """

    library: Library
    a: Operand
    b: Operand
    addend: Operand | None
    target: Operand | None
    alpha: complex
    beta: complex
    turned: tuple[bool, bool]
    product: Product
    types: Types
    extra: Extra
    key: repeated.Key | None = None

    @classmethod
    def of(
        cls,
        library: Library,
        arrays: tuple[object, object, object, object],
        factors: tuple[complex, complex],
        turned: tuple[bool, bool],
        dtype: object,
        extra: Extra,
    ) -> Self:
        """Raises: SpecError, DtypeError with every problem."""
        problems: list[str] = []
        a, b = (library.operand(name, x, problems, False) for name, x in zip("ab", arrays[:2], strict=True))
        c = None if arrays[2] is None else library.operand("c", arrays[2], problems, arrays[3] is None)
        out = None if arrays[3] is None else library.operand("out", arrays[3], problems, True)
        if a is None or b is None:
            raise SpecError(problems)
        if arrays[2] is arrays[3]:
            out = None  # c itself
        target = c if out is None else out
        of_types = scalar_problems(a, b)
        product = None if of_types else product_of(a, b, *turned, problems)
        types = result_types(library, a, b, dtype, target, of_types)
        problems += of_types
        factor_problems(factors, arrays[2] is not None, problems)
        problems += extra.problems(product, types is not None and types.on_host)
        addend = c if factors[1] != 0 or extra.reads_c else None
        if addend is None and extra.reads_c:
            problems.append("the epilogue reads a c that was not given: pass c")
        if product is not None and target is not None:
            problems += target_problems(library, "c" if out is None else "out", target, product, (a, b))
            problems += [] if addend is None or addend is target else addend_problems(addend, target, library)
        if types is not None and not library.converts:
            problems += as_they_are(library, types, turned, (a, b), target, extra.stored(types.kernel, a, b))
        if problems or product is None or types is None:
            raise (DtypeError if of_types else SpecError)(problems)
        return cls(library, a, b, addend, target, *factors, turned, product, types, extra)

    def run(self, schedule: Schedule | str | None, backend: str | None, device: object) -> Operand:
        """Compute it; the result. Raises: DtypeError, ScheduleError, DeviceError."""
        if not self.types.on_host:
            return self._by_kernels(schedule, backend or self.library.backends[0], device)
        if schedule is None and backend is None and device is None:
            return self._on_host()
        raise DtypeError(
            f"no kernel has elements of {self.types.result}, which NumPy alone can multiply: "
            "leave out schedule, backend and device, or cast a and b"
        )

    def _by_kernels(self, schedule: Schedule | str | None, backend: str, device: object) -> Operand:
        library, types, product = self.library, self.types, self.product
        held = self.target is not None and self._is_written_by_kernels(self.target)
        sums = types.result if types.is_held(types.result) else numpy_dtype(types.sums)
        into = self.target if held else library.empty(product.shape, sums, self.a)
        assert into is not None
        if 0 not in product.shape:
            if self.addend is not None and self.addend is not into:
                library.assign(into, self.addend)
            self._launch(into, schedule, backend, device)
        if self.target is None:
            return into if sums is types.result else library.copy(into, types.result)
        if not held:
            library.assign(self.target, into)
        return self.target

    def _launch(self, into: Operand, schedule: Schedule | str | None, backend: str, device: object) -> None:
        library, types, product = self.library, self.types, self.product
        stored = self.extra.stored(types.kernel, self.a, self.b)
        own_a, own_b = (types.elements if dtype is None else numpy_dtype(dtype) for dtype in stored)
        a = self._ready(self.a, own_a, self.turned[0], column=False).broadcast(product.batch)
        b = self._ready(self.b, own_b, self.turned[1], column=True).broadcast(product.batch)
        calls = list(calls_of(a, b, stack_of(into, product)))
        own = library.device(self.a)
        if own is not None and device is not None:
            raise SpecError(
                f"device = {device!r} says where {library.name} arrays run, which lie on a device: leave it out"
            )
        where = device if own is None else own
        is_mirrored = schedule is None and self._prefers_mirror(calls[0], backend, where, stored)
        if is_mirrored:
            calls = [call.mirrored() for call in calls]
        first = calls[0]
        orders = tuple(library.order(x) or "row" for x in (first.a, first.b, first.c))
        beside = self.extra.epilogue, self.extra.conj, self.extra.prologues, stored, self.extra.emulate
        spec = _spec(types.kernel, types.sums, orders, len(first.c.shape) == 3, *beside)
        if schedule is None and not all(library.fits_vectors(x) for call in calls for x in (call.a, call.b, call.c)):
            schedule = UNALIGNED_PRESET
        products = first.c.shape[0] if spec.batched else 1
        shape = first.a.shape[-2], first.b.shape[-1], product.k
        kernel = kernel_for(backend, where, spec, schedule, shape, products, promise_of(library, spec, calls))
        elements, sums = (numpy_dtype(spec.element(x)) for x in "ab"), numpy_dtype(types.sums)
        type_a, type_b = elements
        operands = self.extra.arrays(library, spec)
        for call in calls:
            kernel(
                library.view(call.a, type_a),
                library.view(call.b, type_b),
                library.view(call.c, sums),
                alpha=self.alpha,
                beta=self.beta,
                **operands,
            )
        as_given = a.array is self.a.array and b.array is self.b.array and into.dtype == types.result
        if self.key is not None and as_given and (self.target is None or into is self.target):
            repeated.remember(self.key, kernel, is_mirrored)

    def _prefers_mirror(self, call: Call, backend: str, device: object, stored: tuple[object, object]) -> bool:
        """Whether the transpose of C had better be computed, and nothing beside the product speaks of rows or of A."""
        extra = self.extra
        is_conjugated = self.types.kernel.real is not None and any(extra.conj)
        if stored != (None, None) or extra.epilogue or extra.emulate or any(extra.prologues) or is_conjugated:
            return False
        return self.library.prefers_mirror(call) or (call.prefers_mirror and self._has_vectors(backend, device))

    def _has_vectors(self, backend: str, device: object) -> bool:
        """Whether the device computes such a product by vectors."""
        types = self.types
        if types.kernel not in (F32, F64) or types.sums != types.kernel:
            return False
        return "vectors" in target_for(backend, device, GemmSpec(dtype=types.kernel)).features

    def _on_host(self) -> Operand:
        """By NumPy, for elements that no device has."""
        result = self.types.result
        arrays = [cast("npt.NDArray[np.generic]", x.array).astype(result, copy=False) for x in (self.a, self.b)]
        arrays = [np.conj(x) if c else x for x, c in zip(arrays, self.extra.conj, strict=True)]
        left, right = (x.swapaxes(-1, -2) if t and x.ndim > 1 else x for x, t in zip(arrays, self.turned, strict=True))
        total = np.asarray(operator.matmul(left, right) if self.alpha else 0)
        total = total if self.alpha == 1 else np.asarray(np.multiply(self.alpha, total))
        if self.addend is not None:
            total = np.add(total, np.multiply(self.beta, cast("npt.NDArray[np.generic]", self.addend.array)))
        target = self.target or self.library.empty(self.product.shape, result, self.a)
        self.library.assign(target, Operand(total, total.shape, total.strides, total.dtype))
        return target

    def _ready(self, operand: Operand, dtype: Dtype, turned: bool, column: bool) -> Operand:
        """A or B as a stack of matrices that kernels can read: as it is, or else copied."""
        stack = operand.as_stack(turned, column)
        known = operand.dtype == dtype and operand.dtype.isnative
        if known and self.library.is_aligned(operand) and stack.order is not None:
            return stack
        return self.library.copy(operand, dtype).as_stack(turned, column)

    def _is_written_by_kernels(self, target: Operand) -> bool:
        held = self.types.is_held(target.dtype) and self.library.is_aligned(target)
        return held and stack_of(target, self.product).order is not None


@lru_cache(1024)
def _spec(
    dtype: DType,
    sums: DType,
    orders: tuple[Order, Order, Order],
    batched: bool,
    epilogue: tuple[str, ...],
    conj: tuple[bool, bool],
    prologues: tuple[str | None, str | None],
    stored: tuple[DType | None, DType | None],
    emulate: bool,
) -> GemmSpec:
    a, b, c = orders
    spec = GemmSpec(dtype=dtype, c_dtype=sums, a_order=a, b_order=b, c_order=c, batched=batched, epilogue=epilogue)
    (made_a, made_b), (a_dtype, b_dtype) = prologues, stored
    spec = replace(spec, prologue_a=made_a, prologue_b=made_b, a_dtype=a_dtype, b_dtype=b_dtype)
    return replace(spec, conj_a=conj[0], conj_b=conj[1], emulate=emulate)


def promise_of(library: Library, spec: GemmSpec, calls: Sequence[Call]) -> int:
    """What all leading dimensions are multiples of: a vector, as kernels that copy boxes ask for, of what A or B is
    stored in, or at least of what is multiplied; or one element.
    """
    sizes = sorted({spec.element("a").size, spec.element("b").size, spec.dtype.size})
    matrices = [x for call in calls for x in (call.a, call.b, call.c)]
    vectors = (max(ALIGNMENT // size, 1) for size in sizes)
    return next((v for v in vectors if all(library.begins_lines(x, v) for x in matrices)), 1)


def stack_of(target: Operand, product: Product) -> Operand:
    """A result with the rows and columns that it lacks where A or B is a vector."""
    shape, strides = list(target.shape), list(target.strides)
    if product.is_column:
        shape.append(1)
        strides.append(target.dtype.itemsize)
    if product.is_row:
        shape.insert(len(shape) - 1, 1)
        strides.insert(len(strides) - 1, product.n * target.dtype.itemsize)
    return replace(target, shape=tuple(shape), strides=tuple(strides))
