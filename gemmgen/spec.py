"""What to compute: C = alpha * A @ B + beta * C."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from gemmgen.epilogue import OPERANDS, UP, Applied, applied
from gemmgen.errors import SpecError, suggest
from gemmgen.ir.dtypes import (
    ALL_DTYPES,
    AMBIGUOUS,
    BF16,
    F16,
    F32,
    FLOAT8,
    MATRIX_DTYPES,
    RESULTS,
    SMALLEST,
    STORED,
    STORED_DTYPES,
    DType,
    accumulator,
    type_name,
)
from gemmgen.ir.expr import Bin, Var
from gemmgen.prologue import of_transpose, prologue
from gemmgen.records import Kind, dataclass, field_problems, is_whole

Order = Literal["row", "col"]
#: What the groups of a grouped product share out: rows of A and C, or K.
Grouped = Literal["rows", "k"]
#: What leading dimensions are multiples of: of all matrices, or of A, B and C.
LdMultiple: TypeAlias = int | tuple[int, int, int]
#: What an element type may be given as: `parse_dtype`.
DTypeLike: TypeAlias = object
ORDERS: tuple[str, ...] = ("row", "col")
GROUPED: tuple[str, ...] = ("rows", "k")
#: What the array is called that says where groups end.
OFFSETS = "offsets"
#: What A, B and C are called in a product as it was asked for, and (True) in one of the transposes of what was.
MATRICES = {False: ("A", "B", "C"), True: ("B^T", "A^T", "C^T")}
_TRANSPOSED: dict[Order, Order] = {"row": "col", "col": "row"}
#: A tile beyond it must still be counted by 32-bit integers.
LARGEST_SIZE = 2**31 - 1025
_KINDS: dict[str, Kind] = {
    "DType": (
        f"one of {', '.join(MATRIX_DTYPES)}",
        lambda x: isinstance(x, DType) and x in STORED_DTYPES.values(),
    ),
    "Order": ("row or col", lambda x: isinstance(x, str) and x in ORDERS),
    "Grouped": ("rows or k", lambda x: isinstance(x, str) and x in GROUPED),
    "complex": ("a number", lambda x: type(x) in (int, float, complex)),
    "tuple[int, int, int]": (
        "three whole numbers, for m, n and k",
        lambda x: isinstance(x, tuple) and len(x) == 3 and all(map(is_whole, x)),
    ),
    "LdMultiple": (
        "a whole number, or three: for A, B and C",
        lambda x: is_whole(x) or (isinstance(x, tuple) and len(x) == 3 and all(map(is_whole, x))),
    ),
    "str": ("a text, such as 'b * b_scale'", lambda x: isinstance(x, str)),
    "tuple[str, ...]": (
        "a tuple of texts, such as ('bias', 'gelu')",
        lambda x: isinstance(x, tuple) and all(isinstance(text, str) for text in x),
    ),
}


@dataclass(frozen=True, slots=True)
class GemmSpec:
    """One matrix product.

    Attributes:
        m, n, k: sizes of A [m, k], B [k, n] and C [m, n]; None where they are run-time arguments. Where the epilogue
            begins with a gate such as `swiglu`, B is [k, 2 n].
        dtype: element type of A and B, in which they are multiplied, given as `parse_dtype` takes it: "float64",
            `numpy.float16`, `torch.bfloat16`. Products of 16-bit floats are summed in float32,
            those of int8 in int32, others in their own type.
        a_order, b_order, c_order: `row` where the elements of a row are neighbours, else `col`.
        alpha, beta: folded into the source, or None where they are run-time arguments; complex where the elements are.
        multiple_of: what m, n and k are assumed to be divisible by; guards fold away accordingly.
        ld_multiple: what the leading dimensions, and the strides of a batch, are assumed to be divisible by, for
            vectors and TMA, which need alignment: of all matrices, or of A, B and C (`ld_unit`).
        c_dtype: element type of C; None for A's and B's own, or int32 where they are int8.
        batched: whether it is many products of one size: the matrices of the next one lie `stride_a`, `stride_b` and
            `stride_c` elements further on.
        listed: of a batch, whether the matrices lie anywhere, and arrays of their addresses are given, `a_list`,
            `b_list` and `c_list`; in CUDA and SYCL. From Python they are sequences of arrays.
        conj_a, conj_b: whether A, and B, is conjugated element by element before it is multiplied; with the other
            order, that is BLAS' operation C. Of real elements it means nothing.
        a_dtype, b_dtype: what A or B is stored in, where that is another type than `dtype`: its elements are converted
            as they are loaded into registers.
        epilogue: functions of `gemmgen.epilogue` that elements of alpha * A * B + beta * C go through before they are
            stored, in order: `bias`, `clamp(0, 6)`, `expr: acc * 0.5 + col`.
        prologue_a, prologue_b: what each element of A, and of B, is made into before it is multiplied, a formula of
            `gemmgen.prologue`: `b * b_scale`. What it makes is of `dtype`. Of 8-bit floats scales of groups along K or
            of tiles, `a * a_scale_128`, are applied to the sums of a group instead (`sum_scale`).
        emulate: whether float16 and bfloat16 are kept in integers, and converted by their bits, in languages that have
            types for them which a device or a compiler may lack (SYCL); in others it means nothing.
        allow_tf32: whether elements of float32 may be rounded to TF32, with 10 bits after the point, before they are
            multiplied, so that `gemmgen.choose` may take tensor cores; of other types it means nothing.
        wide: whether leading dimensions are 64-bit integers, so that a matrix may span 2^31 elements and more; where
            folded sizes need that, it is so anyway (`is_wide`).
        grouped: whether it is many products of different sizes, told apart by `offsets`, an array on the device with
            the end of each group. `rows`: a group has rows of A and C, and a B of its own, `stride_b` elements behind
            the one before (mixture of experts). `k`: a group has columns of A and rows of B, and a C of its own,
            `stride_c` elements behind the one before (the gradient of its weights).
    """

    m: int | None = None
    n: int | None = None
    k: int | None = None
    dtype: DType = F32
    a_order: Order = "row"
    b_order: Order = "row"
    c_order: Order = "row"
    alpha: complex | None = None
    beta: complex | None = None
    multiple_of: tuple[int, int, int] = (1, 1, 1)
    ld_multiple: LdMultiple = 1
    c_dtype: DType | None = None
    batched: bool = False
    listed: bool = False
    conj_a: bool = False
    conj_b: bool = False
    epilogue: tuple[str, ...] = ()
    wide: bool = False
    a_dtype: DType | None = None
    b_dtype: DType | None = None
    prologue_a: str | None = None
    prologue_b: str | None = None
    emulate: bool = False
    grouped: Grouped | None = None
    allow_tf32: bool = False

    if TYPE_CHECKING:
        # Element types are given by name as well, and kept as `DType`: a type checker is told both.
        def __init__(
            self,
            m: int | None = None,
            n: int | None = None,
            k: int | None = None,
            dtype: DTypeLike = F32,
            a_order: Order = "row",
            b_order: Order = "row",
            c_order: Order = "row",
            alpha: complex | None = None,
            beta: complex | None = None,
            multiple_of: tuple[int, int, int] = (1, 1, 1),
            ld_multiple: LdMultiple = 1,
            c_dtype: DTypeLike | None = None,
            batched: bool = False,
            listed: bool = False,
            conj_a: bool = False,
            conj_b: bool = False,
            epilogue: str | Sequence[str] = (),
            wide: bool = False,
            a_dtype: DTypeLike | None = None,
            b_dtype: DTypeLike | None = None,
            prologue_a: str | None = None,
            prologue_b: str | None = None,
            emulate: bool = False,
            grouped: Grouped | None = None,
            allow_tf32: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Raises: SpecError with every problem."""
        problems = self._name_types()
        named: object = self.epilogue
        if isinstance(named, str | list):
            object.__setattr__(self, "epilogue", (named,) if isinstance(named, str) else tuple(named))
        if problems := [*problems, *field_problems(self, _KINDS)]:
            raise SpecError(problems)
        for axis, size, unit in zip("mnk", (self.m, self.n, self.k), self.multiple_of, strict=True):
            if size is not None and size > LARGEST_SIZE:
                problems.append(f"{axis} = {size} > {LARGEST_SIZE}, what 32-bit indices reach: multiply it in parts")
            if size is not None and size < 1:
                problems.append(f"{axis} = {size} < 1: give a positive size, or leave it out to pass it at run time")
            if unit < 1:
                problems.append(f"{axis} is said to be a multiple of {unit} < 1: say 1 if nothing is known")
            elif size is not None and size % unit:
                problems.append(f"{axis} = {size} is not the multiple of {unit} that multiple_of assumes")
        if self.listed and self.grouped is not None:
            problems.append("listed matrices are those of a batch, not of groups: leave out listed or grouped")
        elif self.listed and not self.batched:
            problems.append("listed matrices are those of a batch: set batched (--batched), too")
        problems += self._group_problems()
        if (least := min(map(self.ld_unit, "abc"))) < 1:
            problems.append(f"leading dimensions are said to be multiples of {least} < 1: say 1 if unknown")
        if not (wrong := self._type_problems()):
            wrong = [*self._epilogue_problems(), *self._prologue_problems()]
        if problems := [*problems, *wrong]:
            raise SpecError(problems)
        self._say_it_one_way()

    def _say_it_one_way(self) -> None:
        """So that equal specs are equal, however they were asked for."""
        if self.gate is not None:
            object.__setattr__(self, "beta", 0)
        if self.dtype != F32:
            object.__setattr__(self, "allow_tf32", False)
        for name in "ab":
            # Of int8 a matrix instruction multiplies them as they are stored.
            if self.element(name).pairs and self.accumulator.is_float and self._prologue_text(name) is None:
                object.__setattr__(self, f"prologue_{name}", name)  # elements as they are
        # As it is printed, so that equal ones are equal.
        if len(units := {*map(self.ld_unit, "abc")}) == 1:
            object.__setattr__(self, "ld_multiple", *units)
        object.__setattr__(self, "epilogue", tuple(function.text for function in self.functions))
        for name in "ab":
            if (made := self.formula_of(name)) is not None:
                object.__setattr__(self, f"prologue_{name}", made.text)

    def _name_types(self) -> list[str]:
        """Element types as they are kept, of what they may be given as; what is wrong with those that are none."""
        problems: list[str] = []
        for key in ("dtype", "c_dtype", "a_dtype", "b_dtype"):
            given = getattr(self, key)
            if isinstance(given, DType) or (given is None and key != "dtype"):
                continue
            try:
                found = parse_dtype(given, key)
            except SpecError as error:
                problems += error.problems
                found = F32  # so that its annotation holds, whatever else is wrong
            object.__setattr__(self, key, found)
        return problems

    def _group_problems(self) -> list[str]:
        """What a grouped product can't be as well, and what is not known of its groups."""
        if self.grouped is None:
            return []
        problems = []
        if self.batched:
            problems.append("groups are told by offsets, products of a batch by a count: leave out batched or grouped")
        number = {"rows": 0, "k": 2}[self.grouped]
        axis, size, unit = "mnk"[number], (self.m, self.n, self.k)[number], self.multiple_of[number]
        if size is not None:
            problems.append(f"{axis} = {size} can't be folded, as groups share it out: pass it at run time")
        if unit != 1:
            problems.append(f"{axis} is said to be a multiple of {unit}, but a group's share need not be: say 1")
        if self.alpha == 0:
            problems.append("alpha = 0 leaves nothing of the groups' products: scale C by itself, without grouped")
        problems += [
            f"{x}_dtype {self.element(x)} keeps two elements in a byte, which no group begins within: use int8"
            for x in "ab"
            if self.element(x).pairs
        ]
        return problems

    @property
    def ragged(self) -> str | None:
        """The axis that groups share out, `m` or `k`; None where there are no groups."""
        return None if self.grouped is None else {"rows": "m", "k": "k"}[self.grouped]

    def _epilogue_problems(self) -> list[str]:
        if self.epilogue and self.accumulator.real is not None:
            return [f"an epilogue's functions take real numbers, but dtype is {self.dtype}: apply it afterwards"]
        try:
            functions = applied(self.epilogue, self.accumulator)
        except SpecError as error:
            return list(error.problems)
        found = [*_gate_problems(functions)]
        if not found and functions and functions[0].is_gate:
            found += self._gated_problems(functions[0])
        return found

    def _gated_problems(self, gate: Applied) -> Iterator[str]:
        """What a gated product can't be as well."""
        if self.n is not None and self.n > (most := LARGEST_SIZE // 2):
            yield f"n = {self.n} > {most}: {gate.short} takes 2 n columns of B by 32-bit indices; multiply it in parts"
        if self.beta:
            yield f"beta = {self.beta:g}, but {gate.short} makes C anew: fold 0, and add a matrix by residual after it"
        if self.alpha == 0:
            yield f"alpha = 0 leaves no sums to {gate.short}: fold another factor, or leave it out"
        if (made := self.formula_of("b")) is not None and (named := made.names - {"b", "k"}):
            yield (
                f"prologue_b takes {', '.join(sorted(named))} of each column of C, of which {gate.short} has two in B: "
                "apply it to B beforehand"
            )

    def _prologue_problems(self) -> list[str]:
        problems: list[str] = []
        for name in "ab":
            if self._prologue_text(name) is None:
                continue
            if self.accumulator.real is not None:
                problems.append(f"prologue_{name} takes real numbers, but dtype is {self.dtype}: apply it beforehand")
            elif not (self.accumulator.is_float or self.accumulator == self.dtype):
                problems.append(
                    f"prologue_{name} makes elements of dtype {self.dtype}, which few whole numbers fit: use dtype "
                    f"float32 with {name}_dtype {self.element(name)}"
                )
            else:
                try:
                    self.formula_of(name)
                except SpecError as error:
                    problems += error.problems
                    continue
                if self.grouped == "k" or (self.grouped and self.sum_scale(name) is None):
                    problems.append(
                        f"a grouped product takes no prologues but scales of sums, of rows of 8-bit floats: apply "
                        f"prologue_{name} to {name.upper()} beforehand"
                    )
        return problems

    def _type_problems(self) -> list[str]:
        """Types that don't go together, and factors that the type of sums can't hold."""
        if self.dtype not in RESULTS:
            return [f"dtype {self.dtype} is a type to store B in: use dtype float32 with b_dtype {self.dtype}"]
        problems = []
        if self.result not in RESULTS[self.dtype]:
            known = " or ".join(map(str, RESULTS[self.dtype]))
            problems.append(f"c_dtype {self.result} is no type of C where A and B are {self.dtype}: use {known}")
        problems += self._storage_problems()
        sums = self.accumulator
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if value is None:
                continue
            if type(value) is complex and sums.real is None:
                problems.append(f"{name} = {value:g} is complex, but sums are {sums}: use a real one, or complex64")
            elif value != value:
                problems.append(f"{name} = {value} cannot be folded: leave it out and pass it at run time")
            elif not all(abs(part) <= sums.largest for part in (value.real, value.imag)):
                problems.append(
                    f"{name} = {value} cannot be folded, as it exceeds {sums}'s {sums.largest:g}: "
                    "leave it out and pass it at run time"
                )
            elif sums.is_float and any(0 < abs(part) < SMALLEST[sums] for part in (value.real, value.imag)):
                problems.append(
                    f"{name} = {value} cannot be folded, as it is below {sums}'s {SMALLEST[sums]:.3g}: "
                    "leave it out and pass it at run time, or fold 0"
                )
            elif not sums.is_float and value.real != int(value.real):
                problems.append(f"{name} = {value:g} is no whole number, but sums are {sums}: give one, or use float32")
        if (self.alpha, self.beta) == (0, 1) and not self.epilogue:
            problems.append("alpha = 0 and beta = 1 leave C as it is: fold another factor, or launch nothing")
        return problems

    def _storage_problems(self) -> list[str]:
        """Types that A or B can't be converted from; kernels have one function for loads that convert."""
        known = STORED.get(self.dtype, ())
        others = {x: t for x in "ab" if (t := self.element(x)) != self.dtype}
        problems = [
            f"{x}_dtype {stored} is not converted to {self.dtype} in a load: {_instead(x, stored, known)}"
            for x, stored in others.items()
            if stored not in known
        ]
        for x, order, needed in (("a", self.a_order, "row"), ("b", self.b_order, "col")):
            if x in others and others[x].pairs and order != needed:
                problems.append(
                    f"{x}_dtype {others[x]} has two elements a byte along K, but {x} is {order}-major: store it "
                    f"{needed}-major, and give {x}_order {needed!r} (--layout), as gemmgen.prepack does"
                )
            if x in others and others[x].pairs and self.listed:
                problems.append(f"{x}_dtype {others[x]} in a batch by addresses: use a constant stride")
        if all(stored.pairs for stored in others.values()) and len(others) > 1:
            problems.append(
                "a_dtype and b_dtype int4 leave nothing that says how large K is: store one of them in int8"
            )
        if not problems and len(set(others.values())) > 1:
            problems.append(f"a_dtype {self.a_dtype} and b_dtype {self.b_dtype} are two other types: store both in one")
        return problems

    def ld_unit(self, name: str) -> int:
        """What the leading dimension of A (`a`), B (`b`) or C (`c`) is assumed to be divisible by."""
        return self.ld_multiple if isinstance(self.ld_multiple, int) else self.ld_multiple["abc".index(name)]

    @property
    def ld_units(self) -> str:
        """The same of all, as messages and head comments print it: `8`, or `8 (A), 8 (B), 1 (C)`."""
        if isinstance(self.ld_multiple, int):
            return str(self.ld_multiple)
        return ", ".join(f"{unit} ({name})" for unit, name in zip(self.ld_multiple, "ABC", strict=True))

    def stored_k(self, name: str, k: int) -> int:
        """Extent along K of the array that holds A (`a`) or B (`b`)."""
        return -(-k // 2) if self.element(name).pairs else k

    def divisor(self, axis: str) -> int:
        """What m, n or k is known to be a multiple of: the size itself where it is folded."""
        at = "mnk".index(axis)
        size = (self.m, self.n, self.k)[at]
        return self.multiple_of[at] if size is None else size

    def order(self, name: str) -> Order:
        """The storage order of A (`a`), B (`b`) or C (`c`)."""
        return {"a": self.a_order, "b": self.b_order, "c": self.c_order}[name]

    def element(self, name: str) -> DType:
        """What A (`a`) or B (`b`) is stored in."""
        return {"a": self.a_dtype, "b": self.b_dtype}[name] or self.dtype

    def _prologue_text(self, name: str) -> str | None:
        return {"a": self.prologue_a, "b": self.prologue_b}[name]

    def formula_of(self, name: str) -> Applied | None:
        """The formula for the elements of A (`a`) or B (`b`)."""
        text = self._prologue_text(name)
        return None if text is None else prologue(name, text, self.accumulator)

    def sum_scale(self, name: str) -> str | None:
        """The scales that sums of a group along K are multiplied by, in place of A's (`a`) or B's (`b`) elements: of
        8-bit floats, whose products with a scale would be rounded to 8 bits.
        """
        made = self.formula_of(name) if self.dtype in FLOAT8 else None
        match None if made is None else made.value:
            case Bin("*", Var(one), Var(other)):
                scales = {one, other} - {name}
                return next((x for x in scales if len(scales) == 1 and OPERANDS[x].axes in ("g", "t")), None)
        return None

    @property
    def sum_group(self) -> int:
        """How many along K such scales hold for; 0 where there are none."""
        scales = (scale for scale in map(self.sum_scale, "ab") if scale is not None)
        return min((OPERANDS[scale].group for scale in scales), default=0)

    def prologue(self, name: str) -> Applied | None:
        """What the elements of A (`a`) or B (`b`) are made into before they are multiplied; None for nothing else."""
        return None if self.sum_scale(name) is not None else self.formula_of(name)

    def made(self, name: str) -> DType:
        """What A (`a`) or B (`b`) is of after its prologue; without one, what it is stored in."""
        return self.element(name) if self.prologue(name) is None else self.dtype

    def read(self, name: str, packed: bool) -> DType:
        """What a kernel that multiplies finds A (`a`) or B (`b`) to be of: as it was packed, or as it is stored."""
        return self.made(name) if packed else self.element(name)

    @property
    def result(self) -> DType:
        """The type of C."""
        return self.c_dtype or RESULTS[self.dtype][0]

    @property
    def is_wide(self) -> bool:
        """Whether places in a matrix are counted in 64 bits."""
        pairs = ((self.m, self.k), (self.k, self.n), (self.m, self.n))
        return self.wide or any(x is not None and y is not None and x * y >= 2**31 for x, y in pairs)

    @property
    def accumulator(self) -> DType:
        """The type that sums are made in; also that of alpha and beta."""
        return accumulator(self.dtype)

    @property
    def rounds_result(self) -> bool:
        """Whether C's type has 16 bits or fewer, and sums have 32: functions may be fast where targets have such."""
        return self.accumulator == F32 and self.result.is_float and self.result.size < F32.size

    @property
    def conj(self) -> tuple[bool, bool]:
        """Whether the elements of A, and those of B, are conjugated."""
        is_complex = self.dtype.real is not None
        return is_complex and self.conj_a, is_complex and self.conj_b

    def transposed(self) -> GemmSpec:
        """The same product of the transposes, C^T = B^T A^T: A is what B was, and its rows are B's columns. The
        epilogue is not transposed: it names what it takes as C has it.
        """
        (m, n, k), prologues = self.multiple_of, (self.prologue_a, self.prologue_b)
        b, a = (None if text is None else of_transpose(text) for text in prologues)
        of_a, of_b, of_c = map(self.ld_unit, "abc")
        return replace(
            self,
            m=self.n,
            n=self.m,
            a_order=_TRANSPOSED[self.b_order],
            b_order=_TRANSPOSED[self.a_order],
            c_order=_TRANSPOSED[self.c_order],
            multiple_of=(n, m, k),
            ld_multiple=(of_b, of_a, of_c),
            conj_a=self.conj_b,
            conj_b=self.conj_a,
            a_dtype=self.b_dtype,
            b_dtype=self.a_dtype,
            prologue_a=a,
            prologue_b=b,
        )

    def formula(self, sign: str = "*", matrices: tuple[str, str, str] = MATRICES[False]) -> str:
        """`C = alpha * A * B + beta * C` with what is folded, as comments and docstrings have it.

        Args:
            matrices: what A, B and C are called.
        """
        *operands, c = matrices
        a, b = (f"conj({name})" if conj else name for name, conj in zip(operands, self.conj, strict=True))
        a, b = (
            x if self._prologue_text(name) is None else f"prologue({x})" for name, x in zip("ab", (a, b), strict=True)
        )
        terms = ((_times("alpha", self.alpha), f"{a} {sign} {b}"), (_times("beta", self.beta), c))
        return f"{c} = {' + '.join(times + term for times, term in terms if times is not None) or '0'}"

    @property
    def functions(self) -> tuple[Applied, ...]:
        """The epilogue's, as they are applied."""
        return applied(self.epilogue, self.accumulator)

    @property
    def gate(self) -> Applied | None:
        """What makes an element of C of two sums, those of a column in each half of B's; None for a plain product."""
        return next((function for function in self.functions[:1] if function.is_gate), None)

    @property
    def halves(self) -> int:
        """Columns of B for each column of C: 2 of a gated product, else 1."""
        return 1 if self.gate is None else 2

    def columns(self, of_b: int) -> int:
        """Columns of C where B has so many."""
        return of_b // self.halves

    @property
    def operands(self) -> tuple[str, ...]:
        """What prologues and the epilogue take besides A, B and C, in the order of the kernel's arguments."""
        formulas = [*self.functions, *(made for name in "ab" if self.alpha != 0 and (made := self.formula_of(name)))]
        return tuple(name for name in OPERANDS if any(name in formula.names for formula in formulas))

    def operand(self, name: str) -> DType:
        """The type that one of those must have: its own, else C's, or for a prologue that of the sums."""
        return OPERANDS[name].dtype or (self.result if OPERANDS[name].of == "c" else self.accumulator)

    @property
    def names_c(self) -> bool:
        """Whether the epilogue reads what C held before, whatever beta is."""
        return any("c" in function.names for function in self.functions)

    def then(self) -> str:
        """`, then bias, gelu`: what a formula of the product ends in."""
        return f", then {', '.join(function.short for function in self.functions)}" if self.epilogue else ""

    def label(self) -> str:
        """The spec in a line, as head comments print it."""
        sizes = " ".join(f"{x}={v}" for x, v in zip("MNK", (self.m, self.n, self.k), strict=True) if v is not None)
        orders = ", ".join(
            f"{x} {order}-major"
            for x, order in zip("ABC", (self.a_order, self.b_order, self.c_order), strict=True)
            if order == "col"
        )
        how = "by arrays of the matrices' addresses" if self.listed else "with a constant stride"
        batched = f"a batch, {how}" if self.batched else ""
        batched = f"groups of {'rows' if self.grouped == 'rows' else 'K'} by offsets" if self.grouped else batched
        wide = "leading dimensions of 64 bits" if self.is_wide else ""
        types = {self.dtype, self.result, self.element("a"), self.element("b")}
        bits = "16-bit floats in integers" if self.emulate and types & {F16, BF16} else ""
        return "; ".join(part for part in (self._types(), bits, sizes, orders, batched, wide) if part)

    def _types(self) -> str:
        """`float32`, or where other types come in, `float16, sums and C in float32`."""
        stored = "".join(
            f", {x.upper()} stored in {t}{f', two elements a byte along K, ld{x} in bytes' if t.pairs else ''}"
            for x in "ab"
            if (t := self.element(x)) != self.dtype
        )
        if self.accumulator == self.dtype:
            return f"{self.dtype}{stored}"
        with_c = " and C" if self.result == self.accumulator else ""
        return f"{self.dtype}{stored}, sums{with_c} in {self.accumulator}"


def _gate_problems(functions: Sequence[Applied]) -> Iterator[str]:
    """Functions of two sums that others come before, or that take more than these."""
    gates = [function for function in functions if function.is_gate]
    for place, function in enumerate(functions):
        if function.is_gate and function is not gates[0]:
            first = gates[0].text
            yield f"epilogue {function.text!r} takes two sums, as {first!r} does, but one function may: leave one out"
        elif function.is_gate and place:
            yield f"epilogue {function.text!r} takes two sums, so it must be the first function: put it there"
        elif function.is_gate and (others := function.names - {"acc", UP}):
            named = ", ".join(sorted(others))
            yield f"epilogue {function.text!r} takes {named} beside acc and up: use another function after it"


def _instead(name: str, stored: DType, known: Sequence[DType]) -> str:
    """The remedy for a type that A (`a`) or B (`b`) can't be stored in, of those that it can."""
    if known:
        return f"use {' or '.join(map(str, known))}"
    if stored in STORED[F32]:
        return "use dtype float32, which can"
    return f"leave {name}_dtype out, and convert {name.upper()} beforehand"


def _times(name: str, folded: complex | None) -> str | None:
    """What stands before a factor's term; None where there is no term then."""
    if folded == 0:
        return None
    if folded is None:
        return f"{name} * "
    value = f"{folded:g}"
    if complex(value) != folded:
        value = repr(folded).strip("()")  # all digits
    return "" if folded == 1 else f"({value}) * " if type(folded) is complex else f"{value} * "


def parse_dtype(given: object, key: str = "dtype") -> DType:
    """An element type of A and B or (`c_dtype`) of C: by its NumPy name or another that it goes by (`fp16`), as NumPy,
    ml_dtypes or torch have it (`numpy.float64`, `numpy.dtype("f8")`, `torch.bfloat16`). Raises: SpecError.
    """
    known = {"dtype": MATRIX_DTYPES, "c_dtype": ALL_DTYPES}.get(key, STORED_DTYPES)
    name = type_name(given)
    if name in known:
        return known[name]
    shown = repr(given) if isinstance(given, str) else str(given)
    if name in AMBIGUOUS:
        raise SpecError(f"{key} {shown} is another type to each library: give {' or '.join(AMBIGUOUS[name])}")
    if not isinstance(given, str | type) and not hasattr(given, "name") and "." not in shown:
        shown = f"{shown} (of type {type(given).__name__})"
    nearest = suggest(name, known)
    if nearest.startswith("did"):
        raise SpecError(f"{key} {shown} does not exist: {nearest}")
    raise SpecError(f"{key} {shown} is not one of {', '.join(known)}")


def parse_orders(text: str) -> tuple[Order, Order, Order]:
    """`row`, or `row,col` for A and B, or one for each of A, B and C. Raises: SpecError."""
    parts = text.split(",")
    if len(parts) not in (1, 2, 3) or any(p not in ORDERS for p in parts):
        raise SpecError(f"layout {text!r} is not like `row`, `row,col` (A, B) or `row,col,row` (A, B, C)")
    a, b, c = parts * 3 if len(parts) == 1 else [*parts, "row"][:3]
    return cast("tuple[Order, Order, Order]", (a, b, c))
