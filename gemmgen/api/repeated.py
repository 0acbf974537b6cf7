"""Calls of `gemmgen.gemm` on NumPy's matrices that are like one before: the kernel which served that serves them, and
nothing but its own checks is done again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from gemmgen.api.kernels import Kernel
from gemmgen.runtime.kept import Kept
from gemmgen.schedule import Schedule

#: Shapes, strides and types of the arrays, and what was asked for.
Key: TypeAlias = Hashable
Numbers: TypeAlias = npt.NDArray[np.generic]
Three: TypeAlias = tuple[object, object, object]
#: a, b, what beta scales, and where the result goes; the last two None where they are not given.
Four: TypeAlias = tuple[object, object, object, object]
#: An epilogue as it is given, and its arrays by name.
Then: TypeAlias = tuple[object, Mapping[str, object]]
_TYPES = (np.dtype(np.float32), np.dtype(np.float64))
_SCHEDULES, _NAMES = (Schedule, str, type(None)), (int, str, type(None))
#: The kernel of a kind of calls, and whether it is given their transposes.
_kernels: Kept[Key, tuple[Kernel, bool]] = Kept(1024)


def key_of(
    arrays: Four, where: Three, flags: tuple[object, ...], named: tuple[object, ...], then: Then = (None, {})
) -> Key | None:
    """What tells such calls apart; None for one that is of another kind: it has stacks, other types, other arrays.

    Args:
        arrays: a, b, c and out.
        where: schedule, backend and device.
        flags, named: what else may be asked for, all of them False, or None, in such calls.
    """
    # Loops, not generators: this is all that a call of few microseconds has to wait for.
    for flag in flags:
        if flag is not False:
            return None
    for x in named:
        if x is not None:
            return None
    schedule, backend, device = where
    if type(schedule) not in _SCHEDULES or type(backend) not in _NAMES or type(device) not in _NAMES:
        return None
    left, right, c, out = arrays
    if c is not None and out is not None and c is not out:
        return None
    into = c if out is None else out
    found: list[Hashable] = [schedule, backend, device, c is None]
    for x in (left, right) if into is None else (left, right, into):
        if type(x) is not np.ndarray or x.ndim != 2 or x.dtype not in _TYPES or not x.flags.aligned:
            return None
        found += [x.dtype, x.shape, x.strides]
    epilogue, operands = then
    if epilogue is not None:
        texts = (epilogue,) if isinstance(epilogue, str) else epilogue
        if not isinstance(texts, list | tuple) or not all(type(text) is str for text in texts):
            return None
        found += texts
    for name, x in operands.items():
        # Of another type they would be converted each time.
        if type(x) is not np.ndarray or x.dtype != cast("Numbers", arrays[0]).dtype or not x.flags.aligned:
            return None
        found += [name, x.shape, x.strides]
    return tuple(found)


def remember(key: Key, kernel: Kernel, is_mirrored: bool) -> None:
    """That a kernel took such arrays as they are, or their transposes, for that of the result."""
    _kernels.get(key, lambda: (kernel, is_mirrored))


def again(
    key: Key | None, arrays: Four, alpha: object, beta: object, operands: Mapping[str, object] = MappingProxyType({})
) -> object:
    """The result of a call of which one like it was remembered; None where there is none, or something may be wrong
    with this one, which is looked at in full then.
    """
    known = None if key is None else _kernels.known(key)
    if known is None or type(alpha) not in (int, float) or type(beta) not in (int, float):
        return None
    left, right, addend, out = cast("tuple[Numbers, Numbers, Numbers | None, Numbers | None]", arrays)
    if addend is None and beta:
        return None
    given = addend if out is None else out
    if given is None:
        into: Numbers = np.empty((left.shape[0], right.shape[1]), left.dtype)
    else:
        into = given
    kernel, is_mirrored = known
    a, b, c = (right.T, left.T, into.T) if is_mirrored else (left, right, into)
    if kernel.again({"a": a, "b": b, "c": c, **operands}, cast("float", alpha), cast("float", beta)) is not None:
        return into
    read = left, right, *cast("Mapping[str, Numbers]", operands).values()
    if not into.flags.writeable or any(np.may_share_memory(into, x) for x in read):
        return None
    kernel(a, b, c, alpha=cast("float", alpha), beta=cast("float", beta), **operands)
    return into
