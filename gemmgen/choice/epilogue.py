"""What formulas take of an element on a GPU of CUDA: an epilogue's instructions and the bytes that it reads, and a
prologue's instructions.

Instructions are counted in the formulas that are emitted, not measured: 128 of a warp's lanes begin one in a cycle of a
multiprocessor, and 16 one of the special unit (CUDA C++ Programming Guide, arithmetic throughput).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from gemmgen.choice.columns import Numbers
from gemmgen.epilogue import OPERANDS, applied
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Bin, Call, Expr, Select
from gemmgen.ir.walk import walk_expr
from gemmgen.spec import GemmSpec

#: Lanes that begin an instruction in a cycle of a multiprocessor; one of the special unit.
LANES, SPECIAL_LANES = 128, 16
#: Instructions of functions, and those of the special unit: powers of two, reciprocals, logarithms, roots. Fast ones as
#: `templates/cuda/fast_functions.cu.j2` has them, the others about as CUDA's library does.
FUNCTIONS: dict[str, tuple[int, int]] = {
    "fast_sigmoid": (9, 1),
    "fast_normal_cdf": (8, 1),
    "exp": (6, 1),
    "log": (12, 1),
    "sqrt": (8, 1),
    "rsqrt": (6, 1),
    "tanh": (16, 2),
    "erf": (20, 1),
}
#: The same of a division, and of what else a formula may have.
DIVISION, OTHER = (8, 1), (1, 0)
#: Instructions of a prologue, in those that convert an element; of one of whole numbers whose scale multiplies sums.
PROLOGUE, OF_SUMS = 5, 0.7


@lru_cache(maxsize=256)
def _work(epilogue: tuple[str, ...], sums: DType, fast: bool) -> float:
    found = 0.0
    for function in applied(epilogue, sums):
        value = function.fast[1] if fast and function.fast is not None else function.value
        for instructions, special in map(_of_node, walk_expr(value)):
            found += instructions / LANES + special / SPECIAL_LANES
    return found


def _of_node(node: Expr) -> tuple[int, int]:
    match node:
        case Call(name):
            return FUNCTIONS.get(name, OTHER)
        case Bin("/"):
            return DIVISION
        case Bin("+" | "-", Bin("*"), _) | Bin("+" | "-", _, Bin("*")):
            return 0, 0  # one instruction with the product
        case Bin() | Select():
            return OTHER
    return 0, 0


def work(spec: GemmSpec) -> float:
    """Cycles of a multiprocessor for an element's functions."""
    return _work(spec.epilogue, spec.accumulator, spec.rounds_result) if spec.epilogue else 0.0


def reads_c(spec: GemmSpec) -> bool:
    """Whether C is read: where it is added, or a formula names it."""
    return bool(spec.beta) or (bool(spec.epilogue) and spec.names_c)


def bytes_read(spec: GemmSpec) -> int:
    """Bytes for an element of C: of matrices that functions take, and of C where it is read."""
    taken = sum(OPERANDS[x].axes == "mn" for x in spec.operands) if spec.epilogue else 0
    return spec.result.size * (reads_c(spec) + taken)


def of_sums(spec: GemmSpec, depth: Numbers) -> Numbers | float:
    """Cycles of a multiprocessor for a multiply-add where the sums of groups along K are scaled, and added: those of a
    step's last group, as those before are while the next group is multiplied.
    """
    return 1 / np.maximum(spec.sum_group, depth) / LANES if spec.sum_group else 0.0


def of_prologue(spec: GemmSpec, matrix: str) -> float:
    """Instructions, in those that convert an element, of a prologue whose scale multiplies sums."""
    if spec.sum_scale(matrix) is not None:
        return 0.0
    return PROLOGUE if spec.element(matrix).is_float else OF_SUMS
