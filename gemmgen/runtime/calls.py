"""Tables of prepared calls, and how a call finds its own: one reader a library of arrays, by the type of A.

A reader makes the key of a call: everything that the preparation depends on. It replays the prepared call of that key.
A call of a small product takes some microseconds, so everything here is on the critical path.
"""

from __future__ import annotations

import ctypes
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from gemmgen.runtime.views import View, stored_shape

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
        """Drop the provisional calls, so that they are prepared anew."""
        while self._provisional:
            self.pop(self._provisional.pop(), None)


#: Replays a call: the table, all that is no array, A, B, C (or None), alpha, beta, other arrays by name, and whether
#: autograd is somebody else's business. Returns the result, or None if nothing is prepared for such a call.
Reader: TypeAlias = Callable[
    [Table, Hashable, object, object, object, object, object, Mapping[str, object], bool], object
]
#: The readers by the type of A. Modules of array libraries add theirs at the first call with such an array.
READERS: dict[type, Reader] = {}


def kind_of(alpha: object, beta: object) -> Kind:
    """What of alpha and beta can change the preparation: their types, and whether they are zero."""
    if alpha is None and beta is None:
        return None
    return type(alpha), type(beta), bool(alpha == 0), bool(beta == 0)


#: alpha and beta as the caller passed them.
Factors: TypeAlias = tuple[complex | None, complex | None]
#: What a replay raises for factors that the kernels' type does not hold. The full checks then say it.
MISFIT = (struct.error, OverflowError, TypeError, AttributeError)
#: How alpha and beta are written, by type.
_FORMATS = {"float32": "f", "float64": "d", "int32": "i", "int64": "q", "complex64": "2f", "complex128": "2d"}


def written(value: complex, dtype: str) -> bytes:
    """A factor as a kernel's argument. Raises: struct.error, OverflowError, TypeError if its type does not hold it."""
    parts = (value.real, value.imag) if dtype.startswith("complex") else (value,)
    return struct.pack(f"={_FORMATS[dtype]}", *parts)


class PreparedCall(Protocol):
    """A prepared call with arrays of NumPy or pyopencl, and what computes it, for `gemmgen.last_choice`."""

    about: object

    def of_product(
        self, shape: tuple[int, ...], dtype: np.dtype[np.generic], reach: tuple[int, ...], mirrored: bool
    ) -> PreparedCall:
        """The same kernels for a call of `gemm`, whose arrays they may see transposed."""

    def keep(
        self,
        table: Table,
        how: Hashable,
        arrays: tuple[object, object, object],
        factors: Factors,
        operands: Mapping[str, object],
        provisional: bool = False,
    ) -> None:
        """Keep it for calls like this one, if such arrays have a key."""


# --- NumPy's arrays -------------------------------------------------------------------------------

Numbers: TypeAlias = npt.NDArray[np.generic]
#: The low bits of an address that decide about alignment.
_LOW = 15


def _slow_address(array: Numbers) -> int:
    return int(array.ctypes.data)


def _fast_address(array: Numbers) -> int:
    # `data` is the first member of NumPy's array object (`PyArrayObject_fields`). `array.ctypes` takes ten times as
    # long.
    return _from_address(id(array) + object.__basicsize__).value


_from_address = ctypes.c_size_t.from_address
_probe = np.zeros(3, np.int8)[1:]
#: The address of an array's first element.
address_of: Callable[[Numbers], int] = (
    _fast_address if _fast_address(_probe) == _slow_address(_probe) else _slow_address
)


def numpy_key(
    how: Hashable, a: Numbers, b: Numbers, c: Numbers | None, factors: Factors, operands: Mapping[str, object]
) -> tuple[Hashable, tuple[int, int, int], tuple[int, ...]]:
    """The key of a call, the addresses of A, B and C, and those of the operands."""
    left = a.shape, a.strides, a.dtype
    right: tuple[object, ...] = (type(b), b.shape, b.strides, b.dtype)
    # Behind the attributes, which only arrays have.
    at_a, at_b, at_c = address_of(a), address_of(b), 0
    if c is None:
        low: object = (at_a | at_b) & _LOW and (at_a & _LOW, at_b & _LOW)
        key: tuple[object, ...] = (how, kind_of(*factors), left, right, low)
    else:
        into: tuple[object, ...] = (type(c), c.shape, c.strides, c.dtype, c.flags.writeable)
        at_c = address_of(c)
        low = (at_a | at_b | at_c) & _LOW and (at_a & _LOW, at_b & _LOW, at_c & _LOW)
        key = (how, kind_of(*factors), left, right, low, into)
    if not operands:
        return key, (at_a, at_b, at_c), ()
    more = []
    for name, value in operands.items():
        x = cast(Numbers, value)
        known = name, type(x), x.shape, x.strides, x.dtype
        more.append(address_of(x))
        key = (*key, *known, more[-1] & _LOW)
    return key, (at_a, at_b, at_c), tuple(more)


class HostCall(ABC):
    """A prepared call with NumPy's arrays, used in place.

    Args:
        views: the layouts of A, B, C and the operands.

    Attributes:
        about: what computes it, for `gemmgen.last_choice`.
    """

    about: object = None

    def __init__(self, views: Sequence[View]) -> None:
        c = views[2]
        # A new result, as it is stored, and whether the result is the transpose of that.
        self._shape, self._dtype, self._turned = stored_shape(c), c.dtype, c.order != "row"
        # The bytes from the first to the last element.
        self._reach_a, self._reach_b, self._reach_c, *self._reaches = (view.span * view.item for view in views)
        self._mirrored = False  # whether the kernels compute the transpose, so that A and B are exchanged

    def run(
        self,
        a: Numbers,
        b: Numbers,
        c: Numbers | None,
        places: tuple[int, int, int],
        more: tuple[int, ...],
        factors: Factors,
    ) -> Numbers | None:
        """Compute it. Returns the result, or None if the full checks are needed."""
        made = self.placed(c, places, more)
        if made is None:
            return None
        result, addresses = made
        self.compute(addresses, factors, (a, b, result))
        return result

    def placed(
        self, c: Numbers | None, places: tuple[int, int, int], more: tuple[int, ...]
    ) -> tuple[Numbers, tuple[int, ...]] | None:
        """The result, a new one if c is None, and the addresses as kernels take them. None if C may overlap."""
        at_a, at_b, at_c = places
        if c is None:
            c = np.empty(self._shape, self._dtype)
            at_c = address_of(c)
            if self._turned:
                c = c.swapaxes(-1, -2)
        else:
            end = at_c + self._reach_c
            if (at_a < end and at_c < at_a + self._reach_a) or (at_b < end and at_c < at_b + self._reach_b):
                return None
            for begin, reach in zip(more, self._reaches, strict=True):
                if begin < end and at_c < begin + reach:
                    return None
        return c, ((at_b, at_a, at_c, *more) if self._mirrored else (at_a, at_b, at_c, *more))

    def of_product(
        self, shape: tuple[int, ...], dtype: np.dtype[np.generic], reach: tuple[int, ...], mirrored: bool
    ) -> HostCall:
        made = copy(self)
        made._shape, made._dtype, made._turned, made._mirrored = shape, dtype, False, mirrored
        made._reach_a, made._reach_b, made._reach_c, *made._reaches = reach
        return made

    def keep(
        self,
        table: Table,
        how: Hashable,
        arrays: tuple[object, object, object],
        factors: Factors,
        operands: Mapping[str, object],
        provisional: bool = False,
    ) -> None:
        keep(table, how, arrays, factors, operands, self, provisional)

    @abstractmethod
    def compute(self, addresses: tuple[int, ...], factors: Factors, held: object) -> None:
        """Compute the product of arrays at these addresses: A, B, C and the operands.

        Args:
            held: keeps their memory alive, also after the caller was interrupted.
        """


def keep(
    table: Table,
    how: Hashable,
    arrays: tuple[object, object, object],
    factors: Factors,
    operands: Mapping[str, object],
    call: object,
    provisional: bool = False,
) -> None:
    """Keep a call with NumPy's arrays, with a method `run` as `HostCall` has it, for others like it."""
    if all(type(x) is np.ndarray for x in (*arrays, *operands.values()) if x is not None):
        known = cast("tuple[Numbers, Numbers, Numbers | None]", arrays)
        with suppress(*MISFIT):  # a schedule that is no key, say
            table.keep(numpy_key(how, *known, factors, operands)[0], call, provisional)


def replay_numpy(
    table: Table,
    how: Hashable,
    a: object,
    b: object,
    c: object,
    alpha: object,
    beta: object,
    operands: Mapping[str, object],
    below_autograd: bool,  # noqa: ARG001
) -> object:
    """A call with NumPy's arrays, if one like it is prepared (`calls.Reader`)."""
    if not table:
        return None
    factors = cast(Factors, (alpha, beta))
    arrays = cast("tuple[Numbers, Numbers, Numbers | None]", (a, b, c))
    try:
        key, places, more = numpy_key(how, *arrays, factors, operands)
        found = table.get(key)
        if found is None:
            return None
        table.last = found
        return cast(HostCall, found).run(*arrays, places, more, factors)
    except MISFIT:
        return None


READERS[np.ndarray] = replay_numpy
