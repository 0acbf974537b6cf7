"""What a kernel is run with."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import I32, I64
from gemmgen.ir.expr import Var
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.lanes import Floats
from gemmgen.ir.stmt import Let
from gemmgen.ir.walk import evaluate

Argument = int | float | complex | Floats


def integers(kernel: Kernel, arguments: Mapping[str, Argument]) -> dict[str, int]:
    """The integer arguments, after a check of all names."""
    names = [p.name for p in kernel.launch_params]
    if sorted(names) != sorted(arguments):
        raise ValueError(f"kernel {kernel.name} takes {', '.join(names)}, not {', '.join(arguments)}")
    sizes: dict[str, int] = {}
    for var in kernel.launch_params:
        value = arguments[var.name]
        if isinstance(var, Var) and not var.dtype.is_float and isinstance(value, int | float):
            sizes[var.name] = int(value)
    return sizes


def named(kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """The integer arguments, and what the top of the kernel makes of these alone: shapes may be named so."""
    known = dict(sizes)
    for stmt in kernel.body:
        if isinstance(stmt, Let) and stmt.var.dtype in (I32, I64):
            with suppress(LoweringError):
                known[stmt.var.name] = evaluate(stmt.value, known)
    return known


def array(buffer: Buffer, value: Argument) -> Floats:
    """The matrix, after a check of its type. Raises: ValueError."""
    dimensions = 2 if buffer.space is Space.IMAGE else 1
    if not isinstance(value, np.ndarray) or value.ndim != dimensions or value.dtype.name != buffer.dtype.name:
        raise ValueError(f"argument {buffer.name} is not an array of {buffer.dtype} with {dimensions} dimension(s)")
    return value
