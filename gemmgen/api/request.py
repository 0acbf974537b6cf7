"""A call of `gemmgen.gemm` or `gemmgen.grouped` that has been checked: where it runs, how its kernels are launched, and
how it is kept for calls like it. Prepared calls of both are in one table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import numpy as np

from gemmgen.api import aside
from gemmgen.api.calibration import Choice
from gemmgen.api.extras import Extra
from gemmgen.api.kernels import Kernel
from gemmgen.api.libraries import Dtype, Gpu, Library
from gemmgen.api.matmul import Call, Operand, Shape
from gemmgen.api.promotion import Types
from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import DType
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.records import dataclass
from gemmgen.runtime.calls import (
    ADDEND,
    LOW,
    Added,
    HostCall,
    HostSteps,
    Outcome,
    PreparedCall,
    Table,
    address_of,
    keep,
)
from gemmgen.runtime.cuda_arrays import ALIGNMENT
from gemmgen.runtime.views import ArrayLike, DeviceMatrix, Numbers, is_array, overlap_problems
from gemmgen.spec import GemmSpec, Grouped, Order

if TYPE_CHECKING:
    from gemmgen.runtime.cuda import CudaKernel
    from gemmgen.runtime.cuda_calls import CudaCall, Step

#: Products of a call that is kept.
MOST_STEPS = 64

#: Prepared calls.
prepared_calls = Table()
aside.when_done(prepared_calls.drop_provisional)


def operands_of(
    library: Library, arrays: tuple[object, object, object, object], problems: list[str]
) -> tuple[Operand, Operand, Operand | None, Operand | None]:
    """A, B, C and out, as their library sees them; out is None if it is C itself.

    Raises: SpecError with every problem, if A or B is none of the library's arrays.
    """
    a, b = (library.operand(name, x, problems, False) for name, x in zip("ab", arrays[:2], strict=True))
    c = None if arrays[2] is None else library.operand("c", arrays[2], problems, arrays[3] is None)
    out = None if arrays[3] is None else library.operand("out", arrays[3], problems, True)
    if a is None or b is None:
        raise SpecError(problems)
    return a, b, c, None if arrays[2] is arrays[3] else out


@dataclass(frozen=True, slots=True)
class Kept:
    """A call that may be kept for others like it.

    Attributes:
        how: all that is no array.
        arrays: A, B, and the result (None for a new one), as the caller passed them.
        operands: the other arrays by name, a C that is another array than the result at last (`ADDEND`).
        factors: alpha and beta.
    """

    how: tuple[object, ...]
    arrays: tuple[object, object, object]
    operands: Mapping[str, object]
    factors: tuple[complex, complex]


@dataclass(frozen=True, slots=True)
class Work:
    """What is launched for a call.

    Attributes:
        spec: the kernel's.
        calls: of the kernel, in order.
        operands: the other arrays as the kernel takes them, by name.
        into: where the kernel writes.
        read: A and B, or their copies, which the kernel reads.
        choice: of the kernel, for `gemmgen.last_choice`.
        is_mirrored: whether the kernel computes the transpose of C.
        pending: the key of the kernel that is compiled aside and will replace this one; None if there is none.
        waits: whether variants of the kernel are compiled now, instead of aside.
        is_transposed: whether a copy of A is one of its transpose.
    """

    kernel: Kernel
    spec: GemmSpec
    calls: Sequence[Call]
    operands: Mapping[str, object]
    into: Operand
    read: tuple[Operand, Operand]
    choice: Choice
    is_mirrored: bool = False
    pending: Hashable | None = None
    waits: bool = True
    is_transposed: bool = False


@dataclass(frozen=True, slots=True)
class Request(ABC):
    """A call that has been checked.

    Attributes:
        addend: the array that beta scales; None if it is not read.
        target: the array for the result; None for a new one.
        given_as: the argument that is the target, `c` or `out`, for messages.
        factors: alpha and beta.
        kept: the call, if it may be kept for others like it.
    """

    library: Library
    a: Operand
    b: Operand
    addend: Operand | None
    target: Operand | None
    given_as: str
    factors: tuple[complex, complex]
    types: Types
    extra: Extra
    kept: Kept | None

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """The result's."""

    @property
    def sums(self) -> Dtype:
        """The type in which kernels write a new result."""
        return self.types.result if self.types.is_held(self.types.result) else numpy_dtype(self.types.sums)

    def where(self, device: object) -> object:
        """The device for the kernel. Raises: SpecError if one is named, and the arrays are on a device already."""
        own = self.library.device(self.a)
        if own is not None and device is not None:
            raise SpecError(
                f"device = {device!r} says where {self.library.name} arrays run, which are on a device already: "
                "leave it out"
            )
        return device if own is None else own

    def finished(self, into: Operand) -> Operand:
        """The result in its own type and place, from where kernels have written it."""
        if self.target is None:
            return into if into.dtype == self.types.result else self.library.copy(into, self.types.result)
        if into is not self.target:
            self._assign(self.target, into)
        return self.target

    def _assign(self, target: Operand, source: Operand) -> None:
        """Copy a result to its place."""
        self.library.assign(target, source)

    # --- launching --------------------------------------------------------------------------------

    def launch(self, work: Work) -> None:
        """Launch the kernel, and keep the call for calls like this one. Raises: as the kernel's call."""
        if work.into is self.target:
            read = {name: x for name, x in work.operands.items() if is_array(x)}
            written = self.library.view(work.into, work.into.dtype)
            if problems := overlap_problems(self.given_as, written, read):
                raise SpecError(problems)
        prepared_calls.last = work.choice
        if isinstance(self.library, Gpu):
            self._queue(work)
        else:
            (alpha, beta), views = self.factors, [self._views(work.spec, call) for call in work.calls]
            for matrices in views:
                work.kernel(*matrices, alpha=alpha, beta=beta, **work.operands)
            call = self._prepared(work, views)
            if call is not None:
                call.about, call.provisional = work.choice, work.pending is not None
                self.keep(self._as_kept(call, work.into))
        _expect_pending(work.pending)

    def _prepared(self, work: Work, views: Sequence[tuple[ArrayLike, ArrayLike, ArrayLike]]) -> PreparedCall | None:
        """The call for others like this one, whose arrays are on the host; None if there is none."""
        if self.kept is None or not self.shape or len(views) > MOST_STEPS or not self._takes_given(work):
            return None
        found = [
            work.kernel.prepared({**dict(zip("abc", each, strict=True)), **work.operands}, self.factors)
            for each in views
        ]
        a, b, into = *work.read, work.into
        operands, added = [*work.operands.values()], self._added(work)
        if added in ("copied", "ignored"):  # its memory is the caller's, whatever its strides are
            operands.append(self.kept.operands[ADDEND])
        outcome = self.outcome(self.target or into, operands, work.is_mirrored)
        is_own = a.array is self.a.array, b.array is self.b.array
        if added is None and len(found) == 1 and all(is_own) and self._is_result(into):
            return None if found[0] is None else found[0].of_product(outcome)
        kernels = [call for call in found if isinstance(call, HostCall) and call.is_by_address and call.guard is None]
        if len(kernels) < len(views):
            return None
        copies = None if is_own[0] else a.dtype, None if is_own[1] else b.dtype
        begins = ((call.a.offset, call.b.offset, call.c.offset) for call in work.calls)
        low_a, low_b, low_c = (address_of(cast("Numbers", x.array)) & LOW for x in (a, b, into))
        sums, loads = None if self._is_result(into) else into.dtype, self.addend is not None
        steps = [*zip(kernels, begins, strict=True)]
        return HostSteps(outcome, steps, copies, sums, loads, (low_a, low_b, low_c), added, work.is_transposed)

    def _added(self, work: Work) -> Added | None:
        """What becomes of a C that is another array than the result."""
        if self.kept is None or ADDEND not in self.kept.operands:
            return None
        is_read = "residual" in work.operands and "residual" not in self.kept.operands
        return "read" if is_read else "ignored" if self.addend is None else "copied"

    def _as_kept(self, call: PreparedCall, into: Operand) -> PreparedCall:  # noqa: ARG002
        """A prepared call as it is kept: itself, or beside what else may compute it."""
        return call

    def keep(self, call: PreparedCall) -> None:
        """Keep a prepared call for calls like this one."""
        assert self.kept is not None
        keep(prepared_calls, self.kept.how, self.kept.arrays, self.kept.factors, self.kept.operands, call)

    def outcome(self, into: Operand, operands: Sequence[object] = (), is_mirrored: bool = False) -> Outcome:
        """What calls like this one result in."""
        more = [x if isinstance(x, DeviceMatrix) else np.asarray(x) for x in operands]
        others = (reach_of(Operand(x, tuple(x.shape), tuple(x.strides), x.dtype)) for x in more)
        reach = *map(reach_of, (self.a, self.b, into)), *others
        return Outcome(self.shape, self.types.result, False, reach, is_mirrored)

    def _may_be_kept(self, work: Work) -> bool:
        """Whether the kernel writes the result itself, and takes the caller's own arrays beside A and B."""
        return self._is_result(work.into) and self._takes_given(work) and self._added(work) is None

    def _is_result(self, into: Operand) -> bool:
        return into.dtype == self.types.result and (self.target is None or into is self.target)

    def _takes_given(self, work: Work) -> bool:
        """Whether the kernel takes the caller's own arrays beside A and B."""
        if self.kept is None:
            return False
        given, own = dict(self.kept.operands), {name: _owner(x) for name, x in work.operands.items()}
        if (addend := given.pop(ADDEND, None)) is not None and self._added(work) == "read":
            given["residual"] = addend
        return own.keys() == given.keys() and all(x is given[name] for name, x in own.items())

    def _views(self, spec: GemmSpec, call: Call) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
        """The arrays of a call, in the types of its kernel."""
        view, sums = self.library.view, numpy_dtype(self.types.sums)
        elements = [numpy_dtype(spec.element(x)) for x in "ab"]
        return view(call.a, elements[0]), view(call.b, elements[1]), view(call.c, sums)

    # --- on a GPU of CUDA -------------------------------------------------------------------------

    def _queue(self, work: Work) -> None:
        """Queue all calls on a GPU, and keep them for calls like this one."""
        calls, steps, jobs = self._queued(work)
        a, b, read = self.a, self.b, work.read
        is_converted = (read[0].dtype, read[1].dtype) != (a.dtype, b.dtype) or 0 in (*a.shape, *b.shape)
        if is_converted or len(steps) > MOST_STEPS or len({call.rooms for call in calls}) > 1:
            return
        if not self._may_be_kept(work) or self.kept is None:
            return
        outcome = self.outcome(work.into, [*work.operands.values()], work.is_mirrored)
        copies = read[0].array is not a.array, read[1].array is not b.array
        call = calls[0].of_products(outcome, steps, copies)
        call.about, call.provisional = work.choice, work.pending is not None or bool(jobs)
        self.keep(call)
        for job in jobs:
            _expect_pending(job)

    def _queued(self, work: Work) -> tuple[list[CudaCall], list[Step], list[Hashable]]:
        """Queue all calls on a GPU. Returns those of unlike alignments, a step for each, and the keys of what is
        compiled aside.
        """
        from gemmgen.runtime.cuda_calls import Step

        calls: dict[Hashable, CudaCall] = {}
        steps, jobs, kernel = [], list[Hashable](), cast("CudaKernel", work.kernel)
        more = cast("list[DeviceMatrix]", [*work.operands.values()])

        def later(key: Hashable, job: Callable[[], object]) -> None:
            jobs.append(key)
            aside.make(key, job)

        for call in work.calls:
            matrices = cast("tuple[DeviceMatrix, DeviceMatrix, DeviceMatrix]", self._views(work.spec, call))
            # Calls differ in addresses only, and these matter by their alignment only.
            low = tuple(matrix.pointer % ALIGNMENT for matrix in matrices)
            if low not in calls:
                calls[low] = kernel.call_for(*matrices, self.factors, work.operands, None if work.waits else later)
            calls[low].queue([*matrices, *more])
            steps.append(Step(calls[low].steps[0].launches, (call.a.offset, call.b.offset, call.c.offset)))
        return [*calls.values()], steps, jobs


def _owner(array: object) -> object:
    """The caller's array that a kernel's argument is."""
    return array.array if isinstance(array, DeviceMatrix) else array


def _expect_pending(key: Hashable | None) -> None:
    """Drop provisional calls, if the kernel that replaces theirs came while they were kept."""
    if key is not None and not aside.is_pending(key):
        prepared_calls.drop_provisional()


def reach_of(operand: Operand) -> int:
    """The bytes from the first to the last element of an array whose strides are not negative."""
    steps = zip(operand.shape, operand.strides, strict=True)
    return sum((extent - 1) * step for extent, step in steps) + operand.dtype.itemsize


@lru_cache(1024)
def spec_of(
    types: tuple[DType, DType],
    orders: tuple[Order, Order, Order],
    epilogue: tuple[str, ...],
    conj: tuple[bool, bool] = (False, False),
    prologues: tuple[str | None, str | None] = (None, None),
    stored: tuple[DType | None, DType | None] = (None, None),
    emulate: bool = False,
    batched: bool = False,
    listed: bool = False,
    grouped: Grouped | None = None,
    allow_tf32: bool = False,
) -> GemmSpec:
    """The spec of a call's kernel.

    Args:
        types: of the elements and of C.
        orders: of A, B and C.
        stored: the types of A and B in memory, where a prologue reads others.
    """
    (a, b, c), (dtype, sums), (made_a, made_b), (a_dtype, b_dtype) = orders, types, prologues, stored
    kind = GemmSpec(dtype=dtype, c_dtype=sums, a_order=a, b_order=b, c_order=c, epilogue=epilogue, batched=batched)
    made = replace(kind, prologue_a=made_a, prologue_b=made_b, a_dtype=a_dtype, b_dtype=b_dtype)
    made = replace(made, conj_a=conj[0], conj_b=conj[1], emulate=emulate, allow_tf32=allow_tf32)
    return replace(made, listed=listed, grouped=grouped)


def assumed_ld_multiple(library: Library, spec: GemmSpec, calls: Sequence[Call]) -> tuple[int, int, int]:
    """The `ld_multiple` that leading dimensions of A, B and C keep. It is one vector, as kernels with TMA need it: of
    the stored elements of A or B, or at least of the multiplied elements, or of C's. Otherwise it is one element.
    """
    sizes = {spec.element("a").size, spec.element("b").size, spec.dtype.size}
    a, b, c = zip(*((call.a, call.b, call.c) for call in calls), strict=True)
    with_c = sizes | {spec.result.size}
    return _vector_of(library, a, sizes), _vector_of(library, b, sizes), _vector_of(library, c, with_c)


def _vector_of(library: Library, matrices: Sequence[Operand], sizes: set[int]) -> int:
    """Elements of the longest vector, of elements of such sizes in bytes, at which lines of all the matrices begin."""
    vectors = sorted({max(ALIGNMENT // size, 1) for size in sizes}, reverse=True)
    return next((x for x in vectors if all(library.begins_lines(matrix, x) for matrix in matrices)), 1)
