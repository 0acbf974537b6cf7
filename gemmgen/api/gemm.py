"""`gemmgen.gemm`: any product of arrays, by the rules of `numpy.matmul`, on the device that holds the arrays."""

from __future__ import annotations

import operator
import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gemmgen.api import aside, calibration
from gemmgen.api.calibration import Choice
from gemmgen.api.extras import Extra, Up
from gemmgen.api.gemm_problems import (
    FLAGS,
    addend_problems,
    as_they_are,
    factor_problems,
    flag_problems,
    gated,
    is_set,
    pair_problems,
    result_types,
    schedule_problems,
    target_problems,
)
from gemmgen.api.kernels import Wanted, in_one_order, is_faster_in_two, kernel_now, target_for
from gemmgen.api.libraries import Dtype, Gpu, Library, NumPy, host_arrays, host_tensor, library_of
from gemmgen.api.matmul import Call, Operand, Product, Shape, calls_of, product_of, scalar_problems
from gemmgen.api.request import Kept, Request, Work, assumed_ld_multiple, operands_of, prepared_calls, spec_of
from gemmgen.api.weights import Packed
from gemmgen.errors import DtypeError, ScheduleError, SpecError, attempt
from gemmgen.ir.dtypes import F32, F64, I32, I64, DType
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.records import dataclass
from gemmgen.runtime.arrays import expect_operands
from gemmgen.runtime.calls import ADDEND, HostCall, PreparedCall, replay
from gemmgen.runtime.views import overlap
from gemmgen.spec import GemmSpec

if TYPE_CHECKING:
    from gemmgen.api import complex_products
    from gemmgen.runtime.opencl_devices import DeviceLike
    from gemmgen.schedule import Schedule

#: An array of any supported library; the result is of the same library.
AnyArray = TypeVar("AnyArray")
#: Launches of products with a stride each, beyond which copying A or B takes less time.
MOST_LAUNCHES = 4


class How(NamedTuple):
    """What a call of `gemm` says besides its arrays and factors, as `gemm`'s arguments of these names. Calls with one
    `How` and like arrays share what is prepared, so every member is hashable.
    """

    transpose_a: bool = False
    transpose_b: bool = False
    conjugate_a: bool = False
    conjugate_b: bool = False
    prologue_a: str | None = None
    prologue_b: str | None = None
    epilogue: str | tuple[str, ...] | None = None
    emulate: bool = False
    dtype: object = None
    schedule: Schedule | str | None = None
    backend: str | None = None
    device: DeviceLike = None
    invariant: bool = False
    allow_tf32: bool = False


_PLAIN, _NO_OPERANDS = How(), MappingProxyType[str, object]({})
_DTYPE, _BACKEND = How._fields.index("dtype"), How._fields.index("backend")


def gemm(
    a: AnyArray,
    b: AnyArray | Packed,
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
    invariant: bool = False,
    allow_tf32: bool = False,
    device_memory: int | str | None = None,
    progress: bool = False,
    **operands: object,
) -> AnyArray:
    """alpha * op(A) @ op(B) + beta * C, of any shapes and strides that `numpy.matmul` takes, after an epilogue.

    Args:
        a, b: vectors, matrices, or stacks of them, which are broadcast. Both are of one library: NumPy's (or anything
            that NumPy converts), pyopencl's, CuPy's, torch's, or others by `__cuda_array_interface__` and DLPack.
            Transposed views are read in place. Arrays without contiguous lines are copied (pyopencl's are refused).
            b may be weights in fewer bits, by `gemmgen.prepack`.
        c: scaled by beta; not read if beta is 0. It is overwritten by the result if out is not given.
        alpha, beta: numbers, real if the elements are real. If alpha is 0, neither a nor b is read.
        transpose_a, transpose_b: whether to swap the last two dimensions; ignored for vectors.
        conjugate_a, conjugate_b: whether complex elements are conjugated.
        prologue_a, prologue_b: formulas for the elements of a and b before they are multiplied: `"b * b_scale"`.
        epilogue: functions applied to the result, such as `"relu"` or `["bias", "gelu"]` (docs/epilogues.md).
        emulate: whether float16 and bfloat16 are kept in integers, for SYCL devices without these types.
        dtype: the result's type; None for NumPy's (or torch's). int32 of int8 and float32 of float16 lose nothing.
        out: the array for the result, of exactly its shape. It may be c, but must share no memory with a or b.
        schedule: a `Schedule` or the name of a preset; None for the choice of `gemmgen.choose`.
        backend, device: where to multiply NumPy's arrays, as for `gemmgen.compile`. Other arrays determine it.
        invariant: whether a row of the result has the same bits whatever the number of rows (docs/numerics.md).
        allow_tf32: whether float32 may be rounded to TF32 before it is multiplied, by a GPU's tensor cores; invariant
            products are not.
        device_memory: bytes of the device (`"4GiB"`) that tiles of NumPy's matrices may take (docs/streaming.md).
        progress: whether to show how many of these tiles are done, on standard error.
        operands: the arrays that formulas name, such as `bias`, of a's library; for stacks none with an element a row.

    Returns: `out`, `c` or a new array of a's library. NumPy's is complete, pyopencl's carries its event, and arrays on
    GPUs are being computed on the current stream. Elements that no kernel supports (objects) are multiplied by NumPy.

    Raises: SpecError with every problem (a ValueError; for types also a TypeError), ScheduleError, DeviceError.
    """
    then = tuple(epilogue) if isinstance(epilogue, list) else epilogue
    flags = transpose_a, transpose_b, conjugate_a, conjugate_b
    how = (*flags, prologue_a, prologue_b, then, emulate, dtype, schedule, backend, device, invariant, allow_tf32)
    if type(b) is Packed or device_memory is not None:
        expect_operands("gemm", operands)
        options = {**How(*cast("How", how))._asdict(), **operands, "device_memory": device_memory}
        return cast("AnyArray", _by_products((a, b, c, out), (alpha, beta), options, progress))
    return cast("AnyArray", _multiply(a, b, c, out, alpha, beta, cast("How", how), operands, False))


def _by_products(
    matrices: tuple[object, object, object, object],
    scalars: tuple[complex, complex],
    options: dict[str, object],
    progress: bool,
) -> object:
    """A product by others of `gemm`: that of weights in fewer bits, or those of tiles of a device's memory."""
    a, b, c, out = matrices
    if type(b) is Packed:
        return b.multiplied(gemm, a, c, {**options, "out": out, "alpha": scalars[0], "beta": scalars[1]})
    from gemmgen.api.streaming import stream

    return stream(gemm, matrices, scalars, {**options, "progress": progress})


def gemm_tensors(
    a: AnyArray,
    b: AnyArray,
    c: AnyArray | None = None,
    out: AnyArray | None = None,
    alpha: complex = 1,
    beta: complex = 0,
    how: How = _PLAIN,
    operands: Mapping[str, object] = _NO_OPERANDS,
) -> AnyArray:
    """`gemm` for an operator of torch, which has a backward of its own: tensors may require gradients.

    Args:
        how: all other arguments of `gemm`.
        operands: the tensors that formulas name.

    Returns and raises: as `gemm`.
    """
    return cast("AnyArray", _multiply(a, b, c, out, alpha, beta, how, operands, True))


def last_choice() -> Choice | None:
    """What computed the last product of `gemm` in this process: a kernel of a backend, or NumPy itself; None before the
    first, and for lists of matrices that are multiplied by one launch.
    """
    last = prepared_calls.last
    return last if isinstance(last, Choice) else cast("Choice | None", getattr(last, "about", None))


def _multiply(
    a: object,
    b: object,
    c: object,
    out: object,
    alpha: complex,
    beta: complex,
    how: How,
    operands: Mapping[str, object],
    below_autograd: bool,
) -> object:
    """A product by a prepared call, or else by all checks. `how` may be a plain tuple."""
    into, given = c if out is None else out, operands
    if c is not None and c is not into:
        given = {**operands, ADDEND: c}
    done = replay(prepared_calls, (how, c is None), a, b, into, (alpha, beta), given, below_autograd)
    if done is not None:
        return done
    if getattr(a, "is_cuda", None) is False and "torch" in sys.modules:
        done = _of_tensors((a, b, c, out), (alpha, beta), how, operands, below_autograd)
        if done is not None:
            return done
    known = How(*how)
    if any(isinstance(x, list | tuple) for x in (a, b, c, out)):
        from gemmgen.api.gemm_lists import is_of_lists, of_lists

        options = {**known._asdict(), "alpha": alpha, "beta": beta, "out": out, **operands}
        if is_of_lists(a, b, c, options):
            prepared_calls.last = None
            return of_lists(gemm, {"a": a, "b": b, "c": c, "out": out}, options)
    if below_autograd and "torch" in sys.modules:
        with sys.modules["torch"].no_grad():
            return _checked((a, b, c, out), (alpha, beta), known, operands)
    return _checked((a, b, c, out), (alpha, beta), known, operands)


def _of_tensors(
    arrays: tuple[object, object, object, object],
    factors: tuple[complex, complex],
    how: How,
    operands: Mapping[str, object],
    below_autograd: bool,
) -> object:
    """A product of CPU tensors as that of NumPy's arrays over the same memory; None if NumPy does not see them."""
    *_, c, out = arrays
    if how[_DTYPE] is not None:
        return None
    records = not below_autograd and sys.modules["torch"].is_grad_enabled()
    seen = host_arrays((*arrays, *operands.values()), records)
    if seen is None:
        return None
    x, y, z, into, *others = seen
    # One object twice, as c and out may be, is one array. A named backend leaves no product to NumPy itself.
    into = z if out is c else into
    how = cast("How", (*how[:_BACKEND], how[_BACKEND] or "opencl", *how[_BACKEND + 1 :]))
    by_name = dict(zip(operands, others, strict=True)) if others else _NO_OPERANDS
    result = _multiply(x, y, z, into, *factors, how, by_name, False)
    given = c if out is None else out
    return host_tensor(result) if given is None else given


def _checked(
    arrays: tuple[object, object, object, object],
    factors: tuple[complex, complex],
    how: How,
    operands: Mapping[str, object],
) -> object:
    """A product with all checks. It is prepared for later calls, if that is possible."""
    a, b, c, out = arrays
    expect_operands("gemm", operands)
    problems = flag_problems({name: getattr(how, name) for name in FLAGS})
    factor_problems(factors, c is not None, problems)
    named = {"a": a, "b": b, "c": c, "out": out}
    library = attempt(problems, library_of, named, how.backend) or attempt([], library_of, named, None)
    conj, emulate = (is_set(how.conjugate_a), is_set(how.conjugate_b)), is_set(how.emulate)
    prologues = how.prologue_a, how.prologue_b
    extra = attempt(problems, Extra.of, how.epilogue, prologues, operands, conj, emulate)
    # Where only the epilogue is wrong, prologues still say what bytes hold.
    extra = extra or attempt([], Extra.of, None, prologues, {}, conj, emulate)
    if library is None:
        raise SpecError([*problems, *schedule_problems(how.schedule)])
    transposed = is_set(how.transpose_a), is_set(how.transpose_b)
    given = c if out is None else out
    there = {name: x for name, x in operands.items() if x is not None}
    if c is not None and c is not given:
        there[ADDEND] = c
    kept = Kept((tuple(how), c is None), (a, b, given), there, factors)
    try:
        request = _Request.of(library, arrays, factors, transposed, how.dtype, extra or Extra(), kept, problems)
    except SpecError as error:
        raise type(error)([*error.problems, *schedule_problems(how.schedule)]) from None
    request = replace(request, invariant=bool(how.invariant), allow_tf32=bool(how.allow_tf32))
    result = request.run(how.schedule, how.backend, how.device)
    return library.finish(result) if given is None else given


@dataclass(frozen=True, slots=True)
class _Request(Request):
    """A call of `gemm` that has been checked.

    Attributes:
        transposed: whether A and B are transposed.
        invariant: whether a row's bits must not depend on the number of rows.
        allow_tf32: whether float32 may be rounded to TF32.
    """

    transposed: tuple[bool, bool]
    product: Product
    invariant: bool = False
    allow_tf32: bool = False

    @classmethod
    def of(
        cls,
        library: Library,
        arrays: tuple[object, object, object, object],
        factors: tuple[complex, complex],
        transposed: tuple[bool, bool],
        dtype: object,
        extra: Extra,
        kept: Kept | None,
        problems: list[str],
    ) -> Self:
        """Raises: SpecError, DtypeError with every problem, those found before (`problems`) among them."""
        a, b, c, out = operands_of(library, arrays, problems)
        target, given_as = (c, "c") if out is None else (out, "out")
        of_types = scalar_problems(a, b)
        extra = extra if of_types else extra.of_arrays(a, b, transposed)
        product = None if of_types else product_of(a, b, *transposed, problems, extra.in_pairs)
        if product is not None and (gate := extra.gate) is not None:
            product = gated(product, gate.short, problems)
            problems += (
                [f"beta = {factors[1]}, but {gate.short} makes c anew: add it by residual"] if factors[1] else []
            )
        problems += pair_problems((a, b), transposed, extra.in_pairs)
        types = result_types(library, a, b, dtype, target, of_types)
        problems += of_types
        problems += extra.problems(product, types is not None and types.on_host)
        addend = c if factors[1] != 0 or extra.reads_c else None
        if addend is None and extra.reads_c:
            problems.append("the epilogue reads a c that was not given: pass c")
        if product is not None and target is not None:
            problems += target_problems(library, given_as, target, product, {"a": a, "b": b})
            problems += [] if addend is None or addend is target else addend_problems(addend, target, library)
        if types is not None and not library.converts:
            problems += as_they_are(library, types, transposed, (a, b), target, extra.stored(types.kernel, a, b))
        if problems or product is None or types is None:
            raise (DtypeError if of_types else SpecError)(problems)
        return cls(library, a, b, addend, target, given_as, factors, types, extra, kept, transposed, product)

    @property
    def shape(self) -> Shape:
        """The result's."""
        return self.product.shape

    def run(self, schedule: Schedule | str | None, backend: str | None, device: object) -> Operand:
        """Compute it; the result. Raises: DtypeError, ScheduleError, DeviceError."""
        if not self.types.on_host:
            kind, work = self._plain_kind(), self._work
            if kind is not None and self.factors[0] == 1 and calibration.prefers_numpy(kind, work):
                return self._by_numpy(work)
            return self._by_kernels(schedule, backend or self.library.backends[0], device)
        if schedule is None and backend is None and device is None:
            prepared_calls.last = Choice("numpy", "", f"no kernel has elements of {self.types.result}")
            return self._on_host()
        raise DtypeError(
            f"no kernel has elements of {self.types.result}, which NumPy alone can multiply: "
            "leave out schedule, backend and device, or cast a and b"
        )

    def _by_kernels(self, schedule: Schedule | str | None, backend: str, device: object) -> Operand:
        library, product = self.library, self.product
        held = self.target is not None and self._is_written_by_kernels(self.target)
        into = self.target if held else library.empty(product.shape, self.sums, self.a)
        assert into is not None
        if 0 not in product.shape:
            request = self._with_residual(into)
            if request.addend is not None and request.addend is not into:
                library.assign(into, request.addend)
            if request._is_faster_in_reals(into, schedule, backend, device):
                request._launch_in_reals(into, backend, device)
            else:
                request._launch(into, schedule, backend, device)
        return self.finished(into)

    def _with_residual(self, into: Operand) -> Self:
        """The same with another C than the result as the epilogue's residual, where it is alike and beta is 1: so it is
        read in place, not copied before.
        """
        addend, library, extra = self.addend, self.library, self.extra
        if addend is None or addend is into or self.factors[1] != 1 or self.types.kernel.real is not None:
            return self
        if {len(x.shape) for x in (self.a, self.b, into)} != {2}:  # not rows of vectors or of stacks
            return self
        if (addend.shape, addend.dtype) != (into.shape, into.dtype):
            return self
        is_read = library.is_aligned(addend) and library.order(addend) == library.order(into) == "row"
        taken = "residual" in extra.operands or extra.reads_c
        if taken or not is_read or overlap(*(library.view(x, x.dtype) for x in (addend, into))):
            return self
        operands = {**extra.operands, "residual": addend.array}
        extra = replace(extra, epilogue=("residual", *extra.epilogue), operands=operands)
        return replace(self, addend=None, factors=(self.factors[0], 0), extra=extra)

    def _launch(self, into: Operand, schedule: Schedule | str | None, backend: str, device: object) -> None:
        library, types, product = self.library, self.types, self.product
        stored = self.extra.stored(types.kernel, self.a, self.b)
        a, b, calls = self._calls(into, stored)
        where = self.where(device)
        is_mirrored = schedule is None and not self.invariant and self._prefers_mirror(calls[0], backend, where, stored)
        if is_mirrored:
            calls = [call.mirrored() for call in calls]
        first = calls[0]
        orders = tuple(
            along_k if is_pairs else library.order(x) or "row"
            for x, along_k, is_pairs in zip(
                (first.a, first.b, first.c), ("row", "col", "row"), (*self.extra.in_pairs, False), strict=True
            )
        )
        extra, is_stack = self.extra, len(first.c.shape) == 3
        beside = extra.epilogue, extra.conj, extra.prologues, stored, bool(extra.emulate)
        of_types = types.kernel, types.sums
        spec = spec_of(of_types, orders, *beside, batched=is_stack, allow_tf32=self.allow_tf32)
        any_address = not all(library.fits_vectors(x) for call in calls for x in (call.a, call.b, call.c))
        products = first.c.shape[0] if spec.batched else 1
        shape = first.a.shape[-2], first.b.shape[-1], product.k
        assumed = assumed_ld_multiple(library, spec, calls)
        wanted = Wanted(backend, where, spec, schedule, shape, products, assumed, any_address)
        if (up := self._way_of_two(wanted, calls)) is not None:
            self._launch_two(into, first.c.shape, up, backend, device)
            return
        if self.invariant:
            wanted = wanted._replace(schedule=in_one_order(backend, where, spec, schedule, shape, assumed))
        kernel, pending = kernel_now(wanted, library.must_wait())
        choice = Choice(backend, kernel.source.name, _why(schedule, pending))
        operands, waits = self.extra.arrays(library, spec), not aside.is_on() or library.must_wait()
        is_transposed = self.transposed[0] and self._copies_columns and len(self.a.shape) > 1
        work = Work(kernel, spec, calls, operands, into, (a, b), choice, is_mirrored, pending, waits, is_transposed)
        self.launch(work)

    def _way_of_two(self, wanted: Wanted, calls: Sequence[Call]) -> Up | None:
        """By what name the first half's product reads the second's, where a gated product is computed as two; None
        where it is computed as one. Where rows must have the same bits whatever their number, it is always two: no cost
        of a number of rows may decide.
        """
        if wanted.spec.gate is None or wanted.schedule is not None:
            return None
        ways: tuple[Up, ...] = ("residual", "c") if len(calls) == 1 else ("c",)
        up = next((way for way in ways if self.extra.in_two(way) is not None), None)
        if self.invariant:
            return up
        return up if up == "residual" and not wanted.spec.batched and is_faster_in_two(wanted) else None

    def _launch_two(self, into: Operand, shape: Shape, up: Up, backend: str, device: object) -> None:
        """A gated product as two: by b's second half into an array, and by its first half, which reads that.

        Args:
            shape: of the result as kernels have it.
            up: the name by which the first half's product reads the array.
        """
        n, axis = self.product.n, -2 if self.transposed[1] else -1
        extents = list(self.b.shape)
        extents[axis] = n
        first = replace(self.b, shape=tuple(extents))
        second = replace(first, offset=first.offset + n * self.b.strides[axis])
        both = self.extra.in_two(up)
        assert both is not None
        of_second, of_first = both
        if up == "c":
            made = self.library.empty(self.product.shape, self.sums, self.a)
            try:
                for half, extra in ((second, of_second), (first, of_first)):
                    replace(self, b=half, target=None, extra=extra, kept=None)._launch(made, None, backend, device)
            except ScheduleError as error:
                instead = "leave residual out, and add it to the result" if "residual" in self.extra.operands else ""
                raise ScheduleError(
                    "a gate with invariant=True reads one half's product as C here, which no kernel of these sizes "
                    f"does: {instead or 'multiply matrix by matrix'}"
                ) from error
            self.library.assign(into, made)
            return
        product = replace(self, b=second, target=None, extra=of_second, kept=None).run(None, backend, device)
        residual = self.library.finish(product)
        # One product of a stack's rows, all in line.
        residual = residual if product.shape == shape else cast("npt.NDArray[np.generic]", residual).reshape(shape)
        extra = replace(of_first, operands={**of_first.operands, "residual": residual})
        replace(self, b=first, extra=extra, kept=None)._launch(into, None, backend, device)

    def _is_faster_in_reals(self, into: Operand, schedule: Schedule | str | None, backend: str, device: object) -> bool:
        """Whether a complex product is computed as a real one: where vectors hold real elements, and nothing else is
        asked for.
        """
        real, extra = self.types.kernel.real, self.extra
        if real is None or schedule is not None or self.invariant or self.factors[0] == 0:
            return False
        if not isinstance(self.library, NumPy) or extra.epilogue or extra.operands or any(extra.prologues):
            return False
        from gemmgen.api.complex_products import LEAST

        if self._work < LEAST or stack_of(into, self.product).strides[-1] != into.dtype.itemsize:
            return False
        return "vectors" in target_for(backend, self.where(device), GemmSpec(dtype=real)).features

    def _launch_in_reals(self, into: Operand, backend: str, device: object) -> None:
        from gemmgen.api import complex_products

        a, b = self._as_matrices()
        c = stack_of(into, self.product)
        seen = cast("complex_products.Complex", self.library.view(c, c.dtype))
        of_reals = partial(gemm, backend=backend, device=device)
        complex_products.multiply(of_reals, a, b, seen, self.factors)
        if self._is_plain and self._is_result(into) and (self.addend is None or self.addend is into):
            self.keep(self._as_kept(complex_products.RealCall(self.outcome(into), of_reals), into))

    def _as_matrices(self) -> tuple[complex_products.Complex, complex_products.Complex]:
        """A and B as they are multiplied, a vector as a row, or a column."""
        a, b = self._of_numpy(self.types.elements)
        column = b[:, np.newaxis] if b.ndim == 1 else b
        return cast("complex_products.Complex", np.atleast_2d(a)), cast("complex_products.Complex", column)

    def _of_numpy(self, dtype: Dtype) -> list[npt.NDArray[np.generic]]:
        """A and B as NumPy multiplies them: in one type, conjugated and transposed."""
        found: list[npt.NDArray[np.generic]] = []
        for x, conj, transposed in zip((self.a, self.b), self.extra.conj, self.transposed, strict=True):
            array = cast("npt.NDArray[np.generic]", x.array).astype(dtype, copy=False)
            array = np.conj(array) if conj else array
            found.append(array.swapaxes(-1, -2) if transposed and array.ndim > 1 else array)
        return found

    def _as_kept(self, call: PreparedCall, into: Operand) -> PreparedCall:
        kind = None if call.provisional else self._plain_kind()
        if kind is None or not isinstance(call, HostCall):
            return call
        by_numpy = calibration.NumPyCall(self.outcome(into), self._work)
        return calibration.Beside(call, by_numpy, kind, self._work)

    def _plain_kind(self) -> calibration.Kind | None:
        """The kind of a plain product of NumPy's matrices, which NumPy itself may compute if alpha is 1; None for
        others.
        """
        a, b, types = self.a, self.b, self.types.result
        target = types if self.target is None else self.target.dtype
        if not self._is_plain or self.factors[1] != 0 or types.name not in calibration.TYPES:
            return None
        if types != target or not (a.order and b.order and calibration.is_on()):
            return None
        return calibration.Kind(types.name, (a.order, b.order), 1 in self.product.shape)

    @property
    def _is_plain(self) -> bool:
        """Whether it is a product of two of NumPy's matrices in their own type, and nothing is said beside them."""
        a, b, kept = self.a, self.b, self.kept
        if kept is None or kept.how[0] != _PLAIN or kept.operands or type(self.library) is not NumPy:
            return False
        is_own = a.dtype == b.dtype == self.types.result and a.dtype.isnative
        return is_own and len(a.shape) == len(b.shape) == 2

    @property
    def _work(self) -> int:
        """Multiply-adds."""
        return prod(self.product.shape) * self.product.k

    def _by_numpy(self, work: int) -> Operand:
        """Compute a plain product by NumPy, and keep the call."""
        result = self._on_host()
        call = calibration.NumPyCall(self.outcome(result), work)
        prepared_calls.last = call
        self.keep(call)
        return result

    def _calls(self, into: Operand, stored: tuple[DType | None, DType | None]) -> tuple[Operand, Operand, list[Call]]:
        """A and B as kernels read them, and the calls that compute the stack. If strides leave more than a few calls,
        a copy takes less time.
        """
        product, types = self.product, self.types
        own_a, own_b = (types.elements if dtype is None else numpy_dtype(dtype) for dtype in stored)
        a = self._ready(self.a, own_a, self.transposed[0], column=False).broadcast(product.batch)
        b = self._ready(self.b, own_b, self.transposed[1], column=True).broadcast(product.batch)
        calls = list(calls_of(a, b, stack_of(into, product)))
        if len(calls) > MOST_LAUNCHES and isinstance(self.library, Gpu):
            copied = self.library.copy(self.a, own_a).as_stack(self.transposed[0], False).broadcast(product.batch)
            other = self.library.copy(self.b, own_b).as_stack(self.transposed[1], True).broadcast(product.batch)
            # Only those are copied that have to be.
            for left, right in ((copied, b), (a, other), (copied, other)):
                fewer = list(calls_of(left, right, stack_of(into, product)))
                if len(fewer) <= MOST_LAUNCHES:
                    return left, right, fewer
        return a, b, calls

    def _prefers_mirror(self, call: Call, backend: str, device: object, stored: tuple[object, object]) -> bool:
        """Whether to compute the transpose of C: it is faster, and no prologue or epilogue depends on rows or on A."""
        extra = self.extra
        is_conjugated = self.types.kernel.real is not None and any(extra.conj)
        if stored != (None, None) or extra.epilogue or extra.emulate or any(extra.prologues) or is_conjugated:
            return False
        return self.library.prefers_mirror(call) or (call.prefers_mirror and self._has_vectors(backend, device))

    def _has_vectors(self, backend: str, device: object) -> bool:
        """Whether the device computes this product with vectors of its own (CPUs)."""
        types = self.types
        if types.kernel not in (F32, F64, I32, I64) or types.sums != types.kernel:
            return False
        return "vectors" in target_for(backend, device, GemmSpec(dtype=types.kernel)).features

    def _on_host(self) -> Operand:
        """Multiply by NumPy, for elements that no device supports."""
        result = self.types.result
        left, right = self._of_numpy(result)
        total = np.asarray(operator.matmul(left, right) if self.factors[0] else 0)
        total = total if self.factors[0] == 1 else np.asarray(np.multiply(self.factors[0], total))
        if self.addend is not None:
            total = np.add(total, np.multiply(self.factors[1], cast("npt.NDArray[np.generic]", self.addend.array)))
        target = self.target or self.library.empty(self.product.shape, result, self.a)
        self.library.assign(target, Operand(total, total.shape, total.strides, total.dtype))
        return target

    def _ready(self, operand: Operand, dtype: Dtype, transposed: bool, column: bool) -> Operand:
        """A or B as a stack of matrices that kernels can read: the array itself, or a copy."""
        stack = operand.as_stack(transposed, column)
        known = operand.dtype == dtype and operand.dtype.isnative and self._may_begin_there(operand)
        # Dot products, which may be the one order of sums, read rows of A.
        is_read = stack.order == "row" or (stack.order == "col" and (column or not self._copies_columns))
        if known and self.library.is_aligned(operand) and is_read:
            return stack
        if not column and self._copies_columns:
            return self.library.copy(stack, dtype)
        return self.library.copy(operand, dtype).as_stack(transposed, column)

    @property
    def _copies_columns(self) -> bool:
        return self.invariant and self.library.converts

    def _may_begin_there(self, operand: Operand) -> bool:
        """Whether kernels take an array at its address: for any address there is one kernel, of an order of its own."""
        return not self.invariant or self.library.fits_vectors(operand)

    def _is_written_by_kernels(self, target: Operand) -> bool:
        held = self.types.is_held(target.dtype) and self.library.is_aligned(target)
        return held and self._may_begin_there(target) and stack_of(target, self.product).order is not None


def _why(schedule: Schedule | str | None, pending: Hashable | None) -> str:
    """Why a kernel was run."""
    if pending is not None:
        return "it is there while the kernel of this size is compiled"
    return "chosen by sizes, types, addresses and device" if schedule is None else "its schedule was named"


def stack_of(target: Operand, product: Product) -> Operand:
    """The result as a stack of matrices. It adds the dimension that is missing if A or B is a vector."""
    shape, strides = list(target.shape), list(target.strides)
    if product.is_column:
        shape.append(1)
        strides.append(target.dtype.itemsize)
    if product.is_row:
        shape.insert(len(shape) - 1, 1)
        strides.insert(len(strides) - 1, product.n * target.dtype.itemsize)
    return replace(target, shape=tuple(shape), strides=tuple(strides))
