"""`Extra`: the prologues, the epilogue, their arrays and the conjugation of a call of `gemm`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Literal, Self

import numpy as np

from gemmgen.api.libraries import Library
from gemmgen.api.matmul import Operand, Product
from gemmgen.api.promotion import keeps_kind
from gemmgen.epilogue import OPERANDS, Applied, gate_of
from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import STORED, DType
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.records import cached_property, dataclass
from gemmgen.runtime.arrays import asking
from gemmgen.spec import GemmSpec, Order

#: By what name the second half's product of a gate is read: as a residual, or as the old C.
Up = Literal["residual", "c"]


@dataclass(frozen=True)
class Extra:
    """What a call computes in addition to the product.

    Attributes:
        epilogue, prologues: as in a spec; the prologues of A and of B.
        operands: the arrays of both, as the caller passed them.
        conj: whether A and B are conjugated.
        emulate: whether 16-bit floats are kept in integers.
        in_pairs: whether the bytes of A, and of B, are two elements of int4 each.
    """

    epilogue: tuple[str, ...] = ()
    prologues: tuple[str | None, str | None] = (None, None)
    operands: Mapping[str, object] = field(default_factory=dict)
    conj: tuple[bool, bool] = (False, False)
    emulate: bool = False
    in_pairs: tuple[bool, bool] = (False, False)

    @classmethod
    def of(
        cls,
        epilogue: str | Sequence[str] | None,
        prologues: tuple[str | None, str | None],
        operands: Mapping[str, object],
        conj: tuple[bool, bool],
        emulate: bool = False,
    ) -> Self:
        """From a call's arguments. An epilogue of one function may be a string. Raises: SpecError for invalid ones."""
        then = (epilogue,) if isinstance(epilogue, str) else epilogue or ()
        if not isinstance(then, Sequence):
            raise SpecError(f"epilogue = {then!r} is of type {type(then).__name__}: pass a text, or a list of texts")
        extra = cls(tuple(then), prologues, operands, conj, emulate)
        if extra._asked:
            _ = extra._formulas  # Its problems are told beside those of the arrays.
        return extra

    @cached_property
    def _formulas(self) -> GemmSpec:
        """A spec with these formulas. Raises: SpecError for invalid ones."""
        made_a, made_b = self.prologues
        return GemmSpec(epilogue=self.epilogue, prologue_a=made_a, prologue_b=made_b)

    @property
    def reads_c(self) -> bool:
        """Whether a function reads the old C. Raises: SpecError for an invalid epilogue or prologue."""
        return self._asked and self._formulas.names_c

    @property
    def gate(self) -> Applied | None:
        """What makes an element of the result of two sums. Raises: SpecError for an invalid epilogue or prologue."""
        return None if gate_of(self.epilogue) is None else self._formulas.gate

    def in_two(self, up: Up) -> tuple[Self, Self] | None:
        """Those of two products in place of a gated one, by b's second half and by its first, which reads the other's
        result; None where the epilogue reads an array of that name itself.

        Args:
            up: the name by which it reads that.
        """
        if (gate := self.gate) is None or (self.reads_c if up == "c" else up in self.operands):
            return None
        of_prologues = {name: x for name, x in self.operands.items() if OPERANDS[name].of != "c"}
        second = replace(self, epilogue=(), operands=of_prologues)
        return second, replace(self, epilogue=(*gate.in_two(up), *self.epilogue[1:]))

    @property
    def _asked(self) -> bool:
        return bool(self.epilogue) or any(text is not None for text in self.prologues)

    def problems(self, product: Product | None, on_host: bool) -> list[str]:
        """Problems: combinations that kernels support, but `gemm` does not."""
        if not self._asked:
            which = {x: f"a{'n' * (OPERANDS[x].of == 'c')} {asking(x)}" for x in self.operands}
            return [f"{x} means nothing without {by} that names it: leave it out" for x, by in which.items()]
        if on_host:
            return ["an epilogue or a prologue is for elements that kernels have, and NumPy alone has these: cast a, b"]
        if product is not None and product.batch and (named := self.of_rows):
            return [f"{' and '.join(named)} can't be taken by a stack of products: call gemm for each of them"]
        return []

    @property
    def of_rows(self) -> list[str]:
        """The names that depend on a matrix's rows: arrays with an element for each row, and `row`. Stacks may be
        folded into one matrix, whose rows differ. Raises: SpecError for an invalid epilogue or prologue.
        """
        if not self._asked:
            return []
        formulas = (*self._formulas.functions, self._formulas.prologue("a"))
        counts = any(formula is not None and "row" in formula.names for formula in formulas)
        by_rows = (name for name in self.operands if "m" in (o := OPERANDS[name]).axes or (o.of == "a" and o.group > 1))
        return [*by_rows, *["row"] * counts]

    def of_arrays(self, a: Operand, b: Operand, transposed: tuple[bool, bool]) -> Self:
        """The same for arrays of a call: unsigned bytes that a prologue reads are pairs where there are half as many of
        them along K as the other matrix has elements.
        """
        extents = a.as_stack(transposed[0], False).shape[-1], b.as_stack(transposed[1], True).shape[-2]
        halves = [
            text is not None and x.dtype == np.uint8 and own != other and own == -(-other // 2)
            for text, x, own, other in zip(self.prologues, (a, b), extents, extents[::-1], strict=True)
        ]
        return replace(self, in_pairs=(halves[0], halves[1]))

    def stored(self, kernel: DType, a: Operand, b: Operand) -> tuple[DType | None, DType | None]:
        """The stored types of A and B that a prologue reads; None if they are converted before."""
        known = STORED.get(kernel, ())
        found = [
            None
            if text is None
            else next((t for t in known if numpy_dtype(t) == x.dtype and t.pairs == of_pairs), None)
            for text, x, of_pairs in zip(self.prologues, (a, b), self.in_pairs, strict=True)
        ]
        # A kernel has one function for converting loads, and so one stored type.
        return (found[0] if found[1] in (None, found[0]) else None), found[1]

    def arrays(self, library: Library, spec: GemmSpec) -> dict[str, object]:
        """The formulas' arrays, in the types that kernels take. Raises: SpecError."""
        problems: list[str] = []
        found: dict[str, object] = {}
        for name, value in self.operands.items():
            dtype = numpy_dtype(spec.operand(name))
            operand = None if value is None else library.operand(name, value, problems, False)
            if operand is None:
                continue
            is_typed = operand.dtype == dtype and library.is_aligned(operand)
            if not keeps_kind(operand.dtype, dtype):
                cast = f"cast it by {library.casts_by}"
                problems.append(f"{name} of {operand.dtype} can't be cast to {dtype} (same_kind): {cast}")
            elif not library.converts and not is_typed:
                problems.append(f"{name} has dtype {operand.dtype}, not {dtype}: pass {name}.astype(np.{dtype})")
            else:
                order = spec.c_order if OPERANDS[name].axes == "mn" else None
                is_read = is_typed and (not library.converts or _has_lines(operand, order))
                taken = operand if is_read else _with_lines(library, operand, dtype, order)
                found[name] = library.view(taken, dtype)
        if problems:
            raise SpecError(problems)
        return found


def _has_lines(operand: Operand, order: Order | None) -> bool:
    """Whether the elements of each line of a matrix lie side by side; without an order, all elements of an array."""
    if order is not None and len(operand.shape) > 1:
        return operand.first_order(order) is not None
    step = operand.dtype.itemsize
    for extent, stride in zip(operand.shape[::-1], operand.strides[::-1], strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


def _with_lines(library: Library, operand: Operand, dtype: np.dtype[np.generic], order: Order | None) -> Operand:
    """A copy whose lines are rows or columns; without an order, one without gaps."""
    if order != "col" or len(operand.shape) < 2:
        return library.copy(operand, dtype)
    return library.copy(operand.as_stack(True, False), dtype).as_stack(True, False)
