"""Prepared calls with arrays of any library: their table, and how a call finds and replays its own.

A library has one function that makes the key of a call: everything that the preparation depends on. The prepared call
of that key does the rest. A call of a small product takes some microseconds, so everything here is on the critical
path: arrays are `Any`, as `typing.cast` is a call as well.
"""

from __future__ import annotations

import ctypes
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Self, TypeAlias, cast

import numpy as np

from gemmgen.records import dataclass
from gemmgen.runtime.arrays import Request
from gemmgen.runtime.views import Numbers, stored_shape

#: Kinds of calls that a table holds.
LIMIT = 4096
#: alpha and beta, or what of them can change a preparation.
Kind: TypeAlias = Hashable


class Table(dict[Hashable, object]):
    """Prepared calls by key. If it is full, the oldest quarter is dropped. Threads may use it without a lock."""

    def __init__(self) -> None:
        super().__init__()
        #: The call that was replayed last, or what else computed the last product.
        self.last: object = None
        self._provisional: set[Hashable] = set()

    def keep(self, key: Hashable, call: object, provisional: bool = False) -> None:
        """Add a call; a provisional one until `drop_provisional`."""
        if len(self) >= LIMIT:
            for old in list(self)[: LIMIT // 4]:
                self.pop(old, None)
        if provisional:
            self._provisional.add(key)
        self[key] = call

    def drop_provisional(self) -> None:
        """Drop the provisional calls, so that they are prepared again."""
        while self._provisional:
            self.pop(self._provisional.pop(), None)


#: alpha and beta as the caller passed them.
Factors: TypeAlias = tuple[complex | None, complex | None]


def kind_of(factors: Factors) -> Kind:
    """What of alpha and beta can change the preparation: their types, and whether they are zero."""
    alpha, beta = factors
    if alpha is None and beta is None:
        return None
    return type(alpha), type(beta), alpha == 0, beta == 0


#: What a replay raises for factors that the kernels' type does not hold. The full checks then say it.
MISFIT = (struct.error, OverflowError, TypeError, AttributeError)
#: How alpha and beta are written, by type.
_FORMATS = {"float32": "f", "float64": "d", "int32": "i", "int64": "q", "complex64": "2f", "complex128": "2d"}


def written(value: complex, dtype: str) -> bytes:
    """A factor as a kernel's argument. Raises: struct.error, OverflowError, TypeError if its type does not hold it."""
    parts = (value.real, value.imag) if dtype.startswith("complex") else (value,)
    return struct.pack(f"={_FORMATS[dtype]}", *parts)


# --- keys and replays -----------------------------------------------------------------------------

#: The addresses of A, B and C (0 for a new C), or the handles of their buffers.
Places: TypeAlias = tuple[int, int, int]
#: The key of a call, where A, B and C are, and where the operands are.
Key: TypeAlias = tuple[Hashable, Places, tuple[int, ...]]
#: A, B, C, and the operands by name.
Held: TypeAlias = tuple[Any, Any, Any, Mapping[str, Any]]
#: Makes a key from all that is no array, A, B, C (or None), the factors, and the operands by name; None for arrays that
#: are never prepared for. It raises RuntimeError, or what `MISFIT` has, for arrays that it does not know.
KeyOf: TypeAlias = Callable[[Hashable, Any, Any, Any, Factors, Mapping[str, Any]], Key | None]
#: These functions by the type of A. A library's is added with its first prepared call.
KEYS: dict[type, KeyOf] = {}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of calls of one kind.

    Attributes:
        shape: a new result's, as it is stored, with the padding of its lines.
        dtype: its type, or the name of its type.
        transposed: whether a new result is the transpose of what is stored.
        reach: the bytes from the first to the last element of A, B, C and the operands.
        mirrored: whether the kernels compute the transpose, so that A and B are exchanged.
        line: the elements of a new result's line where that is padded; None elsewhere.
    """

    shape: tuple[int, ...]
    dtype: Any
    transposed: bool
    reach: tuple[int, ...]
    mirrored: bool = False
    line: int | None = None

    @classmethod
    def of(cls, request: Request, names: Sequence[str]) -> Self:
        """That of a kernel's call, whose arrays have these names: A, B, C and the operands, or fewer."""
        views, c = request.views, request.output[2]
        reach = tuple(views[x].span * views[x].item if x in views else 0 for x in ("a", "b", "c", *names[3:]))
        line = c.fast if stored_shape(c)[-1] != c.fast else None
        return cls(stored_shape(c), c.dtype, c.order != "row", reach, line=line)


class PreparedCall(ABC):
    """A prepared call with arrays of one library.

    Attributes:
        names: the names of the arrays, in the order of their addresses.
        types: the types of arrays that have keys; without one a call is made for one time.
        key_of: makes the key of such a call.
        about: what computes it, for `gemmgen.last_choice`.
        provisional: whether it is to be replaced soon.
        guard: whether a call with the same key needs the full checks, from its arrays and whether autograd is somebody
            else's business; None if no call does.
    """

    types: frozenset[type] = frozenset()
    key_of: KeyOf
    about: object = None
    provisional = False
    guard: Callable[[Held, bool], bool] | None = None

    def __init__(self, outcome: Outcome, names: Sequence[str] = ("a", "b", "c")) -> None:
        self.names = tuple(names)
        self._take(outcome)

    def _take(self, outcome: Outcome) -> None:
        self._shape, self._dtype, self._transposed = outcome.shape, outcome.dtype, outcome.transposed
        self._reach_a, self._reach_b, self._reach_c, *self._reaches = outcome.reach
        self._mirrored, self._line = outcome.mirrored, outcome.line

    def of_product(self, outcome: Outcome) -> Self:
        """The same kernels for a call of `gemm`, whose arrays they may see transposed."""
        # One by one: Python reads attributes faster where they were set so than where a whole dictionary was.
        made = type(self).__new__(type(self))
        for name, value in vars(self).items():
            setattr(made, name, value)
        made._take(outcome)
        return made

    def expect(self, arrays: Sequence[Any]) -> None:  # noqa: B027  (of most there is nothing to note)
        """Note what of such arrays may differ in calls of one key. Raises: RuntimeError, or what `MISFIT` has."""

    def perform(self, request: Request, factors: Factors, place: Any) -> tuple[object, Any]:
        """Compute it for arrays that are checked. Returns the result and its event.

        Args:
            place: the queue or stream, and events (`call.Place`).
        """
        name, output, _ = request.output
        made = self._new(None) if output is None else (output, self._place_of(output))
        found: dict[str, Any] = {x: array for x, (array, _) in request.inputs.items()} | {name: made[0]}
        at = {x: self._place_of(array) for x, array in found.items()} | {name: made[1]}
        held = (*(found.pop(x) for x in "abc"), found)
        return made[0], self._compute(tuple([at[x] for x in self.names]), factors, held, place)

    def placed(self, held: Held, places: Places, more: tuple[int, ...], factors: Factors, place: Any) -> Any:
        """As `run`, at a place. Returns the result and its event; None as `run`."""
        return self.run(held, places, more, factors, place)

    def run(self, held: Held, places: Places, more: tuple[int, ...], factors: Factors, place: Any = None) -> Any:
        """Compute it. Returns the result; None if C may overlap, so that the full checks are needed.

        Args:
            held: the caller's arrays.
            places, more: as `key_of` found them.
            place: events to wait for (`call.Place`); None if there are none. Otherwise the result and its event are
                returned.
        """
        (at_a, at_b, at_c), c = places, held[2]
        if c is None:
            c, at_c = self._new(held[0])
            held = held[0], held[1], c, held[3]
        else:
            end = at_c + self._reach_c
            if (at_a < end and at_c < at_a + self._reach_a) or (at_b < end and at_c < at_b + self._reach_b):
                return None
            if more:
                for begin, reach in zip(more, self._reaches, strict=True):
                    if begin < end and at_c < begin + reach:
                        return None
        if self._mirrored:
            at_a, at_b = at_b, at_a
        addresses = (at_a, at_b, at_c, *more) if more else (at_a, at_b, at_c)
        event = self._compute(addresses, factors, held, place)
        return c if place is None else (c, event)

    @abstractmethod
    def _place_of(self, array: Any) -> int:
        """Where an array is: an address, or a handle."""

    @abstractmethod
    def _new(self, a: Any) -> tuple[Any, int]:
        """A new result, and where it is."""

    @abstractmethod
    def _compute(self, addresses: tuple[int, ...], factors: Factors, held: Held, place: Any) -> Any:
        """Compute the product of arrays at these addresses: those that the kernels call A, B, C, and the operands.

        Args:
            held: the caller's arrays, whose memory must stay alive.
            place: as for `run`; if it is given, the event is returned.
        """


def replay(
    table: Table,
    how: Hashable,
    a: Any,
    b: Any,
    c: Any,
    factors: Factors,
    operands: Mapping[str, Any],
    below_autograd: bool = False,
    place: Any = None,
) -> Any:
    """The result of a call, if one like it is prepared; otherwise None.

    Args:
        how: all that is no array.
        below_autograd: whether autograd is somebody else's business.
        place: the queue or stream, and events (`call.Place`); None where the arrays decide.
    """
    key_of = KEYS.get(type(a))
    if key_of is None:
        return None
    try:
        found = key_of(how, a, b, c, factors, operands)
        if found is None:
            return None
        key, places, more = found
        call: Any = table.get(key)
        held = a, b, c, operands
        if call is None or (call.guard is not None and call.guard(held, below_autograd)):
            return None
        table.last = call
        if place is None:
            return call.run(held, places, more, factors)
        return call.placed(held, places, more, factors, place)
    except (RuntimeError, *MISFIT):  # the full checks say what is wrong
        return None


def kept(
    table: Table,
    how: Hashable,
    arrays: tuple[object, object, object],
    factors: Factors,
    operands: Mapping[str, object],
) -> PreparedCall | None:
    """The prepared call of such arrays; None if there is none."""
    key_of = KEYS.get(type(arrays[0]))
    with suppress(RuntimeError, *MISFIT):
        if key_of is not None and (found := key_of(how, *arrays, factors, operands)) is not None:
            return cast("PreparedCall | None", table.get(found[0]))
    return None


def keep(
    table: Table,
    how: Hashable,
    arrays: tuple[object, object, object],
    factors: Factors,
    operands: Mapping[str, object],
    call: PreparedCall,
) -> None:
    """Keep a call for others like it, if its arrays have a key.

    Args:
        arrays: A, B and C, or None for a new one.
    """
    given = [x for x in (*arrays, *operands.values()) if x is not None]
    if any(type(x) not in call.types for x in given):
        return
    with suppress(RuntimeError, *MISFIT):  # a schedule that is no key, say
        call.expect(given)
        key_of = call.key_of
        if (found := key_of(how, *arrays, factors, operands)) is not None:
            table.keep(found[0], call, call.provisional)
            KEYS.update(dict.fromkeys(call.types, key_of))


# --- NumPy's arrays -------------------------------------------------------------------------------

#: The low bits of an address that decide about alignment.
LOW = 15


def _slow_address(array: Numbers) -> int:
    return int(array.ctypes.data)


def _fast_address(array: Numbers) -> int:
    # `data` is the first member of NumPy's array object (`PyArrayObject_fields`). `array.ctypes` takes ten times as
    # long.
    return _from_address(id(array) + _DATA).value


_from_address, _DATA = ctypes.c_size_t.from_address, object.__basicsize__
_probe = np.zeros(3, np.int8)[1:]
#: The address of an array's first element.
address_of: Callable[[Numbers], int] = (
    _fast_address if _fast_address(_probe) == _slow_address(_probe) else _slow_address
)


def plain(array: object) -> object:
    """Of a subclass of NumPy's (memmap), the array itself, which has a key; others as they are."""
    return array.view(np.ndarray) if isinstance(array, np.ndarray) else array


def numpy_key(
    how: Hashable, a: Numbers, b: Numbers, c: Numbers | None, factors: Factors, operands: Mapping[str, Numbers]
) -> Key:
    """The key of a call (`KeyOf`)."""
    left = a.shape, a.strides, a.dtype
    right: tuple[object, ...] = (type(b), b.shape, b.strides, b.dtype)
    # Behind the attributes, which only arrays have.
    at_a, at_b, at_c = address_of(a), address_of(b), 0
    if c is None:
        low: object = (at_a | at_b) & LOW and (at_a & LOW, at_b & LOW)
        key: tuple[object, ...] = (how, kind_of(factors), left, right, low)
    else:
        into: tuple[object, ...] = (type(c), c.shape, c.strides, c.dtype, c.flags.writeable)
        at_c = address_of(c)
        low = (at_a | at_b | at_c) & LOW and (at_a & LOW, at_b & LOW, at_c & LOW)
        key = (how, kind_of(factors), left, right, low, into)
    if not operands:
        return key, (at_a, at_b, at_c), ()
    more = []
    for name, x in operands.items():
        more.append(address_of(x))
        key = (*key, name, type(x), x.shape, x.strides, x.dtype, more[-1] & LOW)
    return key, (at_a, at_b, at_c), tuple(more)


class HostCall(PreparedCall):
    """A prepared call with NumPy's arrays, used in place.

    Attributes:
        is_by_address: whether it computes by the addresses alone, whatever arrays these are of.
    """

    is_by_address = False
    types = frozenset({np.ndarray})
    key_of = staticmethod(numpy_key)

    def _place_of(self, array: Any) -> int:
        return address_of(array)

    def _new(self, a: object) -> tuple[Numbers, int]:  # noqa: ARG002
        c: Numbers = np.empty(self._shape, self._dtype)
        at_c = address_of(c)
        return (c.swapaxes(-1, -2) if self._transposed else c), at_c


#: The name by which calls pass a C that is another array than the result, as the last operand.
ADDEND = "c"
#: Such a C: the kernels read it in place, it is copied to the result first, or nothing of it is read.
Added: TypeAlias = Literal["read", "copied", "ignored"]


class HostSteps(HostCall):
    """A prepared call with NumPy's arrays by several products, or one whose arrays are copied or converted.

    Args:
        steps: of each product the call of its kernel, and where its A, B and C begin from the arrays' first elements,
            in bytes.
        copies: the types in which the caller's A and B are copied first; None for one that is read in place.
        sums: the type of a new array that kernels write, which is converted to the result; None if they write that.
        loads: whether kernels read C.
        low: the low bits of A's, B's and C's addresses, or of their copies', for which the kernels were prepared.
        added: what becomes of a C that is another array than the result; None if there is none.
        transposes: whether the copy of A is one of its transpose.
    """

    def __init__(
        self,
        outcome: Outcome,
        steps: Sequence[tuple[HostCall, tuple[int, int, int]]],
        copies: tuple[Any, Any],
        sums: Any,
        loads: bool,
        low: tuple[int, int, int],
        added: Added | None = None,
        transposes: bool = False,
    ) -> None:
        super().__init__(outcome)
        self._steps = [(call._compute, begins) for call, begins in steps]
        self._copies, self._sums, self._loads, self._low, self._added = copies, sums, loads, low, added
        self._transposes = transposes

    def _compute(self, addresses: tuple[int, ...], factors: Factors, held: Held, place: object) -> None:  # noqa: ARG002
        (at_a, at_b, at_c, *more), (a, b, c, others), (copy_a, copy_b) = addresses, held, self._copies
        if self._mirrored:
            at_a, at_b = at_b, at_a
        if copy_a is not None:
            a = np.array(a.swapaxes(-1, -2) if self._transposes else a, copy_a, order="C")
            at_a = address_of(a)
        if copy_b is not None:
            b = np.array(b, copy_b, order="C")
            at_b = address_of(b)
        into, addend, added = c, c, self._added
        if added == "read":
            if factors[1] != 1:
                raise RuntimeError("kernels add C as it is")
            factors = factors[0], 0
        elif added is not None:
            addend, more = others[ADDEND], more[:-1]
        if self._sums is not None:
            into = np.empty(c.shape, self._sums)
            at_c = address_of(into)
        if (at_a & LOW, at_b & LOW, at_c & LOW) != self._low:
            raise RuntimeError("copies begin at addresses of another alignment")
        if self._loads and into is not addend:
            np.copyto(into, addend, casting="unsafe")
        if self._mirrored:
            at_a, at_b = at_b, at_a
        held = a, b, into, others
        for compute, (begin_a, begin_b, begin_c) in self._steps:
            compute((at_a + begin_a, at_b + begin_b, at_c + begin_c, *more), factors, held, None)
        if into is not c:
            np.copyto(c, into, casting="unsafe")


KEYS[np.ndarray] = numpy_key
