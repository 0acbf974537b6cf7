"""What functions of numbers mean, on NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.generic]

_each_erf = np.vectorize(math.erf, otypes=[np.float64])


def _erf(x: Numbers) -> Numbers:
    # Of a number a number, as NumPy's own functions have it, and no array without dimensions.
    result: Numbers = _each_erf(x)[()]
    return result


def _rsqrt(x: Numbers) -> Numbers:
    return np.divide(1.0, np.sqrt(x))


#: In the type of the arguments: float64 for floats.
MEANINGS: dict[str, Callable[..., Numbers]] = {
    "neg": np.negative,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "tanh": np.tanh,
    "erf": _erf,
    "abs": np.abs,
    "min": np.fmin,
    "max": np.fmax,
}
