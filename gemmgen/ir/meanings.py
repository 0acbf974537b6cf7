"""What functions of numbers mean, on NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.generic]

_ERF = np.vectorize(math.erf, otypes=[np.float64])


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
    "erf": _ERF,
    "abs": np.abs,
    "min": np.fmin,
    "max": np.fmax,
}
