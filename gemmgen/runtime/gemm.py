"""`gemmgen.gemm`: any product of arrays, by the rules of `numpy.matmul`, on the device that the arrays lie on."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gemmgen.epilogue import OPERANDS
from gemmgen.errors import DtypeError, SpecError
from gemmgen.ir.dtypes import DType
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.runtime.cuda_arrays import UNALIGNED_PRESET
from gemmgen.runtime.gemm_lists import takes_lists
from gemmgen.runtime.kernels import kernel_for
from gemmgen.runtime.libraries import Dtype, Library
from gemmgen.runtime.library_of import library_of
from gemmgen.runtime.matmul import Operand, Product, calls_of, product_of, scalar_problems, text
from gemmgen.runtime.operands import expect_operands
from gemmgen.runtime.overlaps import meets_itself, overlap
from gemmgen.runtime.promotion import Types, types_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order

if TYPE_CHECKING:
    from gemmgen.runtime.opencl import DeviceLike

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
    epilogue: str | Sequence[str] | None = None,
    dtype: object = None,
    out: AnyArray | None = None,
    schedule: Schedule | str | None = None,
    backend: str | None = None,
    device: DeviceLike = None,
    **operands: object,
) -> AnyArray:
    """alpha * op(A) @ op(B) + beta * C, of any shapes and strides that `numpy.matmul` takes, after an epilogue.

    Args:
        a, b: arrays of one library: NumPy's (or what makes one, such as lists), pyopencl's, CuPy's, torch's, or others
            by `__cuda_array_interface__` and DLPack. Vectors, matrices, and stacks of them, which are broadcast.
            Transposed views are read as they are; what has no contiguous lines is copied (pyopencl's is refused).
        c: what beta scales; not read where beta is 0. It gets the result where no out is given.
        alpha, beta: numbers, real ones where elements are; where alpha is 0, neither a nor b is read.
        transpose_a, transpose_b: whether rows and columns of the last two dimensions change places; of no vector.
        conjugate_a, conjugate_b: whether complex elements are conjugated.
        epilogue: functions that the result goes through as it is stored, such as `"relu"` or `["bias", "gelu"]`
            (docs/epilogues.md).
        dtype: the result's type; None for what NumPy (or torch) gives. int8 gives int32, and float16 float32, without
            loss where that is said here or by out.
        out: where the result goes, of exactly its shape; may be c, but share no memory with a or b.
        schedule: a `Schedule` or the name of a preset; None for `gemmgen.choose`'s.
        backend: None for that of the arrays; of NumPy's `opencl`, or `sycl`.
        device: of NumPy's arrays, where to run: as for `gemmgen.compile`. Others' say it themselves.
        operands: the arrays that the epilogue names, such as `bias`, of a's library. Of stacks, those with an element
            for each column alone.

    Returns: the array that the result went to, or a new one, of a's library. NumPy's is complete; pyopencl's carries
    its event, and GPUs' are being computed on the current stream. Elements that no kernel has (long doubles, objects)
    are multiplied by NumPy itself, unless a schedule, a backend or a device is named.

    Raises: SpecError with every problem (a ValueError; a TypeError, too, where types are among them); ScheduleError,
    DeviceError.
    """
    expect_operands("gemm", operands)
    library = library_of({"a": a, "b": b, "c": c, "out": out}, backend)
    then = (epilogue,) if isinstance(epilogue, str) else tuple(epilogue or ())
    extra = _Extra(then, operands, (bool(conjugate_a), bool(conjugate_b)))
    turned = bool(transpose_a), bool(transpose_b)
    request = _Request.of(library, (a, b, c, out), (alpha, beta), turned, dtype, extra)
    result = request.run(schedule, backend, device)
    given = c if out is None else out
    return cast("AnyArray", library.finish(result) if given is None else given)


@dataclass(frozen=True, slots=True)
class _Extra:
    """What is asked for beside the product.

    Attributes:
        operands: the epilogue's arrays, as they are given.
        conj: whether A and B are conjugated.
    """

    epilogue: tuple[str, ...]
    operands: Mapping[str, object]
    conj: tuple[bool, bool]

    @property
    def reads_c(self) -> bool:
        """Whether a function names what C held before. Raises: SpecError for what is no epilogue."""
        return GemmSpec(epilogue=self.epilogue).names_c

    def problems(self, product: Product | None, on_host: bool) -> list[str]:
        """What gemm can't do, though kernels can."""
        if not self.epilogue:
            return [f"{name} means nothing without an epilogue that names it: leave it out" for name in self.operands]
        if on_host:
            return ["an epilogue is for elements that kernels have, and NumPy alone has these: cast a and b"]
        of_rows = [name for name in self.operands if OPERANDS[name].axes != "n"]
        if product is not None and product.batch and of_rows:
            return [f"{' and '.join(of_rows)} can't be taken by a stack of products: call gemm for each of them"]
        return []


@dataclass(frozen=True, slots=True)
class _Request:
    """A call that has been checked.

    Attributes:
        addend: what beta scales; None where that is not read.
        target: where the result goes; None for a new array.
        turned: whether A and B are transposed.
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
    extra: _Extra

    @classmethod
    def of(
        cls,
        library: Library,
        arrays: tuple[object, object, object, object],
        factors: tuple[complex, complex],
        turned: tuple[bool, bool],
        dtype: object,
        extra: _Extra,
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
        types = _types(library, a, b, dtype, target, of_types)
        problems += of_types
        _factor_problems(factors, arrays[2] is not None, problems)
        problems += extra.problems(product, types is not None and types.on_host)
        addend = c if factors[1] != 0 or extra.reads_c else None
        if addend is None and extra.reads_c:
            problems.append("the epilogue reads a c that was not given: pass c")
        if product is not None and target is not None:
            problems += _target_problems(library, "c" if out is None else "out", target, product, (a, b))
            problems += [] if addend is None or addend is target else _addend_problems(addend, target, library)
        if types is not None and not library.converts:
            problems += _as_they_are(library, types, turned, a, b, target)
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
        a = self._ready(self.a, self.turned[0], column=False).broadcast(product.batch)
        b = self._ready(self.b, self.turned[1], column=True).broadcast(product.batch)
        calls = list(calls_of(a, b, stack_of(into, product)))
        first = calls[0]
        orders = first.a.order or "row", first.b.order or "row", first.c.order or "row"
        spec = _spec(types.kernel, types.sums, orders, len(first.c.shape) == 3, self.extra.epilogue, self.extra.conj)
        own = library.device(self.a)
        if own is not None and device is not None:
            raise SpecError(
                f"device = {device!r} says where {library.name} arrays run, which lie on a device: leave it out"
            )
        where = device if own is None else own
        if schedule is None and not all(library.fits_vectors(x) for call in calls for x in (call.a, call.b, call.c)):
            schedule = UNALIGNED_PRESET
        kernel = kernel_for(backend, where, spec, schedule, (first.a.shape[-2], product.n, product.k))
        elements, sums = numpy_dtype(types.kernel), numpy_dtype(types.sums)
        operands = self._operands(sums)
        for call in calls:
            kernel(
                library.view(call.a, elements),
                library.view(call.b, elements),
                library.view(call.c, sums),
                alpha=self.alpha,
                beta=self.beta,
                **operands,
            )

    def _operands(self, dtype: Dtype) -> dict[str, object]:
        """The epilogue's arrays in the type of C. Raises: SpecError."""
        problems: list[str] = []
        found: dict[str, object] = {}
        for name, value in self.extra.operands.items():
            operand = None if value is None else self.library.operand(name, value, problems, False)
            if operand is not None:
                as_it_is = operand.dtype == dtype and self.library.is_aligned(operand)
                found[name] = self.library.view(operand if as_it_is else self.library.copy(operand, dtype), dtype)
        if problems:
            raise SpecError(problems)
        return found

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

    def _ready(self, operand: Operand, turned: bool, column: bool) -> Operand:
        """A or B as a stack of matrices that kernels can read: as it is, or else copied."""
        stack = operand.as_stack(turned, column)
        known = operand.dtype == self.types.elements and operand.dtype.isnative
        if known and self.library.is_aligned(operand) and stack.order is not None:
            return stack
        return self.library.copy(operand, self.types.elements).as_stack(turned, column)

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
) -> GemmSpec:
    a, b, c = orders
    spec = GemmSpec(dtype=dtype, c_dtype=sums, a_order=a, b_order=b, c_order=c, batched=batched, epilogue=epilogue)
    return replace(spec, conj_a=conj[0], conj_b=conj[1])


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


# --- what is wrong with a call --------------------------------------------------------------------


def _types(
    library: Library, a: Operand, b: Operand, dtype: object, target: Operand | None, problems: list[str]
) -> Types | None:
    try:
        promoted = a.dtype if a.dtype == b.dtype else library.promote(a.dtype, b.dtype)
    except TypeError as error:
        problems.append(f"a of {a.dtype} and b of {b.dtype} have no type in common ({error}): cast one by astype")
        return None
    wanted: Dtype | None = None
    try:
        wanted = None if dtype is None else library.dtype(dtype)
    except TypeError as error:
        problems.append(f"dtype = {dtype!r} is no element type ({error}): pass one such as np.float32")
    return types_of(promoted, wanted, None if target is None else target.dtype, problems)


def _factor_problems(factors: tuple[object, object], has_c: bool, problems: list[str]) -> None:
    """What is wrong with alpha and beta, of all types; kernels check them against their own."""
    for name, value in zip(("alpha", "beta"), factors, strict=True):
        if not isinstance(value, numbers.Number | np.bool_):
            problems.append(f"{name} = {value!r} is of type {type(value).__name__}: pass a number")
        elif isinstance(value, numbers.Integral) and abs(int(value)) < 2**64 and int(float(value)) != value:
            problems.append(f"{name} = {value} is no number that float64 holds: pass one, or scale a or b instead")
    if not has_c and factors[1] != 0:
        problems.append(f"beta = {factors[1]} adds to a c that was not given: pass c, or beta = 0")


def _target_problems(
    library: Library, name: str, target: Operand, product: Product, inputs: tuple[Operand, Operand]
) -> list[str]:
    problems = []
    if target.shape != product.shape:
        problems.append(
            f"{name} has the non-broadcastable shape {text(target.shape)}, not {text(product.shape)}: "
            "pass one of exactly that shape, or leave it out to have it allocated"
        )
    if not library.is_writable(target):
        problems.append(f"{name} is read-only: pass a writable array, or leave {name} out to have it allocated")
    if meets_itself(target):
        problems.append(f"{name}'s matrices share elements: pass an array that has each of its own")
    written = library.view(target, target.dtype)
    for other, operand in zip("ab", inputs, strict=True):
        if overlap(written, library.view(operand, operand.dtype)):
            problems.append(f"{name} overlaps {other} in memory: pass another {name}, or {other}.copy()")
    return problems


def _addend_problems(addend: Operand, target: Operand, library: Library) -> list[str]:
    """Of a c that goes to another out before the product is added."""
    problems = []
    try:
        fits = np.broadcast_shapes(addend.shape, target.shape) == target.shape
    except ValueError:
        fits = False
    if not fits or not (library.converts or addend.shape == target.shape):
        problems.append(f"c of {text(addend.shape)} does not fit out's {text(target.shape)}: pass one of that shape")
    if not np.can_cast(addend.dtype, target.dtype, "same_kind"):
        problems.append(f"c of {addend.dtype} can't be cast to out's {target.dtype} (same_kind): cast it by astype")
    return problems


def _as_they_are(
    library: Library, types: Types, turned: tuple[bool, bool], a: Operand, b: Operand, target: Operand | None
) -> list[str]:
    """What would take a copy, of arrays whose library makes none."""
    named = (("a", a, a.as_stack(turned[0], column=False)), ("b", b, b.as_stack(turned[1], column=True)))
    problems = [
        f"{name} has dtype {x.dtype}, not {types.elements}: pass {name}.astype(np.{types.elements})"
        for name, x, _ in named
        if x.dtype != types.elements
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
