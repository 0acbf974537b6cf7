"""`gemmgen.grouped`: products of ragged groups (mixture of experts), by one launch."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gemmgen.api.calibration import Choice
from gemmgen.api.extras import Extra
from gemmgen.api.gemm_problems import factor_problems, memory_problems, result_types, schedule_problems
from gemmgen.api.kernels import Wanted, is_faster_in_two, kernel_for, target_for
from gemmgen.api.libraries import Library, host_arrays, host_tensor, library_of
from gemmgen.api.matmul import Call, Operand, text
from gemmgen.api.request import Kept, Request, Work, assumed_ld_multiple, operands_of, prepared_calls, spec_of
from gemmgen.epilogue import gate_of, odd_columns
from gemmgen.errors import DtypeError, SpecError, attempt
from gemmgen.ir.dtypes import I32
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.records import dataclass
from gemmgen.runtime.arrays import expect_operands
from gemmgen.runtime.calls import replay
from gemmgen.runtime.grouped import offset_problems
from gemmgen.runtime.views import loaded
from gemmgen.spec import OFFSETS, GemmSpec, Grouped, Order

if TYPE_CHECKING:
    from gemmgen.runtime.opencl_devices import DeviceLike
    from gemmgen.schedule import Schedule

#: An array of any supported library; the result is of the same library.
AnyArray = TypeVar("AnyArray")
#: Dimensions of A and B -> what groups share out.
KINDS: dict[tuple[int, int], Grouped] = {(2, 3): "rows", (2, 2): "k"}
#: The order in which a group's part of a matrix is whole lines, so that vectors may begin there.
_IN_LINES: dict[Grouped, dict[str, Order]] = {"rows": {"a": "row", "c": "row"}, "k": {"a": "col", "b": "row"}}


def grouped(
    a: AnyArray,
    b: AnyArray,
    offsets: AnyArray | Sequence[int],
    c: AnyArray | None = None,
    *,
    alpha: complex = 1,
    beta: complex = 0,
    prologue_a: str | None = None,
    prologue_b: str | None = None,
    epilogue: str | Sequence[str] | None = None,
    dtype: object = None,
    out: AnyArray | None = None,
    schedule: Schedule | str | None = None,
    backend: str | None = None,
    device: DeviceLike = None,
    **operands: object,
) -> AnyArray:
    """Products of groups that share out the rows of A, or K; each is alpha * A_g @ B_g + beta * C_g, after an epilogue.

    Group g begins where group g - 1 ends, the first at 0. A group may be empty.

    Args:
        a, b: [total rows, k] and [groups, k, n]: a group has rows of A and a matrix of B (mixture of experts). Or
            [m, total k] and [total k, n]: a group has a part of K (the gradient of an expert's weights). Both are of
            one library, as for `gemmgen.gemm`.
        offsets: where each group ends, whole numbers in ascending order, none past the total. NumPy's are checked; of
            arrays on a device the host reads nothing, so nothing is checked.
        c: [total rows, n], or for groups of K [groups, m, n]; scaled by beta, and overwritten if out is not given.
        alpha, beta: numbers.
        prologue_a, prologue_b: of 8-bit floats, scales of sums: `"a * a_scale_128"` and `"b * b_scale_128x128"`.
        epilogue: functions applied to the result (docs/epilogues.md); each group has a `bias` of its own. Of a gate
            such as `swiglu` the result has half as many columns as b.
        dtype: the result's type, as for `gemmgen.gemm`.
        out: the array for the result. Its rows behind the last group stay as they are; a new one's are undefined.
        schedule: a `Schedule` or the name of a preset; None for the choice by the mean size of a group.
        backend, device: where to multiply NumPy's arrays, as for `gemmgen.gemm`.
        operands: the arrays that the epilogue names: `bias` [groups, n]; `residual` of c's shape; `row_bias` [total
            rows], or for groups of K [groups, m]. And those of prologues: `a_scale_128` [ceil(k / 128) * total rows],
            `b_scale_128x128` [groups, ceil(k / 128) * ceil(n / 128)].

    Returns: `out`, `c` or a new array of a's library.

    Raises: SpecError with every problem, ScheduleError, DeviceError.
    """
    then = tuple(epilogue) if isinstance(epilogue, list) else epilogue
    how = "grouped", prologue_a, prologue_b, then, dtype, schedule, backend, device, c is None
    named = {OFFSETS: offsets, **operands}
    into, may_be_kept = c if out is None else out, c is None or out is None or c is out
    if may_be_kept:
        done = replay(prepared_calls, how, a, b, into, (alpha, beta), named)
        if done is not None:
            return cast("AnyArray", done)
    return cast("AnyArray", _prepared(how, (a, b, c, out), offsets, (alpha, beta), operands, may_be_kept))


def _prepared(
    how: tuple[Any, ...],
    arrays: tuple[Any, Any, Any, Any],
    offsets: object,
    scalars: tuple[complex, complex],
    operands: Mapping[str, object],
    may_be_kept: bool,
) -> object:
    """The product of a call that none before was like. Arguments as `grouped` has them."""
    _, *prologues, then, dtype, schedule, backend, device, _ = how
    a, b, c, out = arrays
    options = {"alpha": scalars[0], "beta": scalars[1], "epilogue": then, "schedule": schedule}
    options |= {"prologue_a": prologues[0], "prologue_b": prologues[1], "backend": backend, "device": device}
    done = _of_tensors(arrays, offsets, options, operands) if dtype is None else None
    if done is not None:
        return done
    expect_operands("grouped", operands)
    problems: list[str] = []
    factor_problems(scalars, c is not None, problems)
    named = {"a": a, "b": b, "c": c, "out": out}
    library = attempt(problems, library_of, named, backend) or attempt([], library_of, named, None)
    extra = attempt(problems, Extra.of, then, (prologues[0], prologues[1]), operands, (False, False))
    if library is None:
        raise SpecError([*problems, *schedule_problems(schedule)])
    given = {name: x for name, x in {OFFSETS: offsets, **operands}.items() if x is not None}
    into = c if out is None else out
    kept = Kept(how, (a, b, into), given, scalars) if may_be_kept else None
    try:
        request = _Request.of(library, arrays, offsets, scalars, dtype, extra or Extra(), kept, problems)
    except SpecError as error:
        raise type(error)([*error.problems, *schedule_problems(schedule)]) from None
    result = request.run(schedule, backend or library.backends[0], device)
    return library.finish(result) if into is None else into


def _of_tensors(
    arrays: tuple[Any, Any, Any, Any], offsets: object, options: Mapping[str, object], operands: Mapping[str, object]
) -> object:
    """A product of CPU tensors as that of NumPy's arrays over the same memory; None if they are none, or NumPy does not
    see them.

    Args:
        arrays: A, B, C and out.
        options: the other arguments.
    """
    a, *_, c, out = arrays
    if getattr(a, "is_cuda", None) is not False or "torch" not in sys.modules:
        return None
    records = sys.modules["torch"].is_grad_enabled()
    seen = host_arrays((*arrays, *operands.values()), records)
    ends = host_arrays([offsets], records) if loaded("torch", "Tensor", offsets) else [offsets]
    if seen is None or ends is None:
        return None
    x, y, z, into, *others = seen
    # One object twice, as c and out may be, is one array.
    into = z if out is c else into
    named: dict[str, Any] = {**options, **dict(zip(operands, others, strict=True))}
    result = grouped(x, y, cast("Any", ends[0]), z, out=into, **named)
    given = c if out is None else out
    return host_tensor(result) if given is None else given


class Shaped(Protocol):
    """What has dimensions: an operand or a tensor."""

    @property
    def shape(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class _Request(Request):
    """A call of `grouped` that has been checked as far as kernels don't.

    Attributes:
        addend: what beta scales, where it is not the target itself.
        kind: what groups share out.
        ends: the offsets.
    """

    kind: Grouped
    ends: Operand

    @classmethod
    def of(
        cls,
        library: Library,
        arrays: tuple[object, object, object, object],
        offsets: object,
        factors: tuple[complex, complex],
        dtype: object,
        extra: Extra,
        kept: Kept | None,
        problems: list[str],
    ) -> Self:
        """Raises: SpecError, DtypeError with every problem, those found before (`problems`) among them."""
        ends = library.operand(OFFSETS, offsets, problems, False)
        a, b, c, out = operands_of(library, arrays, problems)
        if ends is None:
            raise SpecError(problems)
        target, given_as = (c, "c") if out is None else (out, "out")
        of_types = list[str]()
        kind = KINDS.get((len(a.shape), len(b.shape)))
        types = result_types(library, a, b, dtype, target, of_types)
        if types is not None and types.on_host:
            of_types.append(f"no kernel has elements of {types.result}: cast a and b by {library.casts_by}")
        if kind is None:
            problems.append(
                f"a has shape {text(a.shape)} and b {text(b.shape)}: pass [total rows, k] and [groups, k, n], or "
                "[m, total k] and [total k, n]"
            )
        else:
            problems += shape_problems(kind, {"a": a, "b": b, "c": c, "out": out}, ends, extra.epilogue)
            if factors[1] != 0 and (gate := gate_of(extra.epilogue)) is not None:
                problems.append(f"beta = {factors[1]}, but {gate} makes c anew: add it by residual")
        if target is not None:
            inputs = {"a": a, "b": b, OFFSETS: ends}
            problems += memory_problems(library, given_as, target, inputs)
        problems += [*of_types, *_end_problems(library, ends, 0 if kind is None else a.shape[kind == "k"])]
        problems += extra.problems(None, types is not None and types.on_host)
        if c is None and extra.reads_c:
            problems.append("the epilogue reads a c that was not given: pass c")
        if problems or kind is None or types is None:
            raise (DtypeError if of_types else SpecError)(problems)
        addend = c if c is not target and (factors[1] != 0 or extra.reads_c) else None
        return cls(library, a, b, addend, target, given_as, factors, types, extra, kept, kind, ends)

    # --- arrays as kernels take them --------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's."""
        return result_shape(self.kind, self.a, self.b, self.ends, self.extra.epilogue)

    @property
    def mean(self) -> tuple[int, int, int]:
        """m, n and k of a mean group, each at least 1, by which a schedule is chosen; n is all columns of B."""
        m, k, n, groups = (max(1, size) for size in (*self.a.shape, self.b.shape[-1], self.ends.shape[0]))
        return (-(-m // groups), n, k) if self.kind == "rows" else (m, n, -(-k // groups))

    def _ready(self, name: str, operand: Operand, needs_lines: bool) -> Operand:
        """A or B, or a copy: in another type, with lines, or such that a group's part of it is whole lines."""
        dtype = self.types.elements
        is_known = operand.dtype == dtype and operand.dtype.isnative and self.library.is_aligned(operand)
        if is_known and self._order(name, operand, needs_lines) is not None:
            return operand
        if not self.library.converts:
            raise SpecError(
                f"{name} is of {operand.dtype} with strides {operand.strides} bytes, and {self.library.name} makes no "
                f"copies: pass one of {dtype} without gaps"
            )
        if needs_lines and _IN_LINES[self.kind].get(name) == "col":
            return self.library.copy(operand.as_stack(True, column=False), dtype).as_stack(True, column=False)
        return self.library.copy(operand, dtype)

    def _result(self, needs_lines: bool) -> Operand:
        """Where kernels write: the target, or a new array with what beta scales."""
        library, target = self.library, self.target
        if target is not None and self._is_written(target, needs_lines):
            if self.addend is not None:
                self._assign(target, self.addend)
            return target
        made = library.empty(self.shape, self.sums, self.a)
        if target is not None and (self.factors[1] != 0 or self.extra.reads_c):
            library.assign(made, self.addend or target)
        return made

    def _assign(self, target: Operand, source: Operand) -> None:
        """Copy what groups have of a result. Rows behind the last group stay as they are."""
        if self.kind == "k":
            self.library.assign(target, source)
        elif self.ends.shape[0]:
            self.library.assign_rows(target, source, self.ends)

    def _is_written(self, target: Operand, needs_lines: bool) -> bool:
        is_held = self.types.is_held(target.dtype) and self.library.is_aligned(target)
        return is_held and self._order("c", target, needs_lines) is not None

    def run(self, schedule: Schedule | str | None, backend: str, device: object) -> Operand:
        """Compute it; the result. Raises: SpecError, ScheduleError, DeviceError."""
        library, types, where = self.library, self.types, self.where(device)
        target = target_for(backend, where, GemmSpec(dtype=types.kernel))
        needs_lines = "unaligned_vectors" not in target.features
        a, b = self._ready("a", self.a, needs_lines), self._ready("b", self.b, needs_lines)
        into = self._result(needs_lines)
        first, second, third = (
            self._order(name, x, needs_lines) or "row" for name, x in zip("abc", (a, b, into), strict=True)
        )
        orders: tuple[Order, Order, Order] = first, second, third
        spec = spec_of(
            (types.kernel, types.sums), orders, self.extra.epilogue, prologues=self.extra.prologues, grouped=self.kind
        )
        any_address = not all(library.fits_vectors(x) for x in (a, b, into))
        assumed = assumed_ld_multiple(library, spec, [Call(a, b, into)])
        groups = self.ends.shape[0]
        wanted = Wanted(backend, where, spec, schedule, self.mean, groups, assumed, any_address)
        if groups and schedule is None and self.extra.in_two("residual") is not None and is_faster_in_two(wanted):
            return self._in_two(backend, device)
        kernel = kernel_for(wanted)
        if self.ends.shape[0]:
            operands = {OFFSETS: library.view(self._ends, numpy_dtype(I32)), **self.extra.arrays(library, spec)}
            why = "chosen by the mean size of a group" if schedule is None else "its schedule was named"
            choice = Choice(backend, kernel.source.name, why)
            self.launch(Work(kernel, spec, [Call(a, b, into)], operands, into, (a, b), choice))
        return self.finished(into)

    def _in_two(self, backend: str, device: object) -> Operand:
        """A gated product as two: by the second half of b's columns into an array, and by the first, which reads that.
        Raises: as `run`.
        """
        both, n = self.extra.in_two("residual"), self.b.shape[-1] // 2
        assert both is not None
        of_second, of_first = both
        first = replace(self.b, shape=(*self.b.shape[:-1], n))
        second = replace(first, offset=first.offset + n * self.b.strides[-1])
        up = replace(self, b=second, target=None, extra=of_second, kept=None).run(None, backend, device)
        extra = replace(of_first, operands={**of_first.operands, "residual": self.library.finish(up)})
        return replace(self, b=first, extra=extra, kept=None).run(None, backend, device)

    def _takes_given(self, work: Work) -> bool:
        # Prepared calls make copies by rows, and groups may need them by columns.
        is_own = work.read[0].array is self.a.array and work.read[1].array is self.b.array
        return is_own and Request._takes_given(self, work)

    @property
    def _ends(self) -> Operand:
        """Offsets as kernels take them."""
        known = self.ends.dtype == numpy_dtype(I32) and self.library.is_aligned(self.ends)
        gaps = len(self.ends.shape) == 1 and self.ends.shape[0] > 1 and self.ends.strides[0] != self.ends.dtype.itemsize
        return self.ends if known and not gaps else self.library.copy(self.ends, numpy_dtype(I32))

    def _order(self, name: str, operand: Operand, needs_lines: bool) -> Order | None:
        """The order in which a kernel sees a matrix; None if it takes none."""
        wanted = _IN_LINES[self.kind].get(name) if needs_lines else None
        return self.library.order(operand) if wanted is None else operand.first_order(wanted)


def result_shape(kind: Grouped, a: Shaped, b: Shaped, ends: Shaped, epilogue: Sequence[str]) -> tuple[int, ...]:
    """That of C: a gate makes one column of two."""
    n = b.shape[-1] // (1 if gate_of(epilogue) is None else 2)
    return (a.shape[0], n) if kind == "rows" else (ends.shape[0], a.shape[0], n)


def shape_problems(
    kind: Grouped, given: Mapping[str, Shaped | None], ends: Shaped, epilogue: Sequence[str]
) -> list[str]:
    """What does not go together."""
    a, b = cast(Shaped, given["a"]), cast(Shaped, given["b"])
    problems = []
    if a.shape[1] != b.shape[-2]:
        problems.append(f"a is {text(a.shape)} and b {text(b.shape)}: the last of a must be the second-last of b")
    if len(ends.shape) != 1:
        problems.append(f"offsets has shape {text(ends.shape)}, not one dimension: pass the end of each group")
        return problems
    groups = ends.shape[0]
    if kind == "rows" and b.shape[0] != groups:
        problems.append(f"offsets end {groups} groups, but b has {b.shape[0]} matrices: pass as many")
    if (gate := gate_of(epilogue)) is not None and (cols := b.shape[-1]) % 2:
        problems.append(odd_columns(gate, f"has {cols} columns"))
    wanted = result_shape(kind, a, b, ends, epilogue)
    for name in ("c", "out"):
        operand = given.get(name)
        if operand is not None and operand.shape != wanted:
            problems.append(f"{name} has shape {text(operand.shape)}, not {text(wanted)}: pass one of that shape")
    return problems


def _end_problems(library: Library, ends: Operand, total: int) -> list[str]:
    """What is wrong with offsets, as far as the host sees them."""
    if ends.dtype.kind not in "iu" and 0 not in ends.shape:  # an empty list makes an array of float64
        return [f"offsets has dtype {ends.dtype}: pass whole numbers, int32 best"]
    if isinstance(ends.array, np.ndarray) and len(ends.shape) == 1:
        return offset_problems(cast("npt.NDArray[np.generic]", library.view(ends, ends.dtype)), total)
    if not library.converts and ends.dtype != numpy_dtype(I32):
        return [f"offsets has dtype {ends.dtype}, and {library.name} makes no copies: pass offsets.astype(np.int32)"]
    return []
