"""What both models of kernels on a GPU share: the time of memory, and of two things done at once."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from gemmgen.choice.columns import Numbers
from gemmgen.choice.machine import Machine
from gemmgen.spec import GemmSpec

_Amount = TypeVar("_Amount", float, Numbers)
#: Columns of C that a block of the kernel that adds up parts of K has.
SUMMED = 256
#: Registers of a multiprocessor; threads and blocks of one at most.
REGISTERS, THREADS, BLOCKS = 65536, 2048, 24
#: Shared memory of a block that is no tile: mbarriers, and what the driver keeps.
RESERVED = 1536
#: Lanes of a warp, warp instructions of a multiprocessor in a cycle.
WARP, SCHEDULERS = 32, 4
#: Instructions of a prologue, in those that convert an element; of one of whole numbers whose scale multiplies sums.
PROLOGUE, OF_SUMS = 5, 0.7


def of_formula(spec: GemmSpec, matrix: str) -> float:
    """Instructions, in those that convert an element, of a prologue whose scale multiplies sums."""
    return PROLOGUE if spec.element(matrix).is_float else OF_SUMS


def memory_times(both: _Amount, c: Machine) -> tuple[_Amount, _Amount]:
    """Microseconds of what is read and written once, from memory and from L2; the less of it, the more lies in L2."""
    missed = 1 / (1 + (c.cache / both) ** 2)
    return missed * both / c.memory, (1 - missed) * both / c.cached


def beside(one: Numbers | float, other: Numbers | float, sharp: float | Numbers) -> Numbers:
    """Of two things done at the same time; the more equal they are, the less one hides of the other."""
    most: Numbers = np.maximum(one, other)
    return most * (1 + (np.minimum(one, other) / np.maximum(most, 1e-12)) ** sharp) ** (1 / sharp)
