"""The operator under `torch.vmap`: one more axis in front of its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import torch

from gemmgen.epilogue import OPERANDS, gate_of
from gemmgen.torch.epilogue import Chain, functions_of
from gemmgen.torch.product import OPERAND_NAMES, Options, dtype_of, matrix_of, sums_of


def batched(
    _: object,
    in_dims: Sequence[int | None],
    a: torch.Tensor,
    b: torch.Tensor,
    *others: torch.Tensor | None,
    **options: Unpack[Options],
) -> tuple[torch.Tensor, int | None]:
    """The result with the new axis in front, and where that is.

    Args:
        in_dims: for each tensor where the new axis is; None where all share the tensor.
    """
    dtype = dtype_of(a, b, options.get("dtype"))
    given = dict(zip(("a", "b", "c", *OPERAND_NAMES), (a, b, *others), strict=False))
    dims = dict(zip(given, in_dims, strict=False))
    there = {name: x if dims[name] is None else x.movedim(dims[name], 0) for name, x in given.items() if x is not None}
    added = {name for name in there if dims[name] is not None}
    if "c" in added and not added & {"a", "b"}:
        # The result has the new axis, so one factor must: kernels broadcast no result.
        there["a"] = there["a"].expand(there["c"].shape[0], *there["a"].shape)
        added.add("a")
    columns, rows = (there[name].dim() - (name in added) == 1 for name in "ba")
    transposed = {"a": options.get("transpose_a", False), "b": options.get("transpose_b", False)}
    stacks = {
        name: _matrices(name, there[name], name in added, is_transposed) for name, is_transposed in transposed.items()
    }
    ranks = [x.dim() - (name in added) for name, x in stacks.items()]
    rank = max(ranks)
    left, right = (_padded(stacks[name], rank, name in added) for name in "ab")
    sums = {"alpha": options.get("alpha", 1), "beta": options.get("beta", 0)}
    c = None
    if "c" in there:
        c = _padded(there["c"], rank - columns - rows, "c" in added)
        c = c.unsqueeze(-1) if columns else c
        c = c.unsqueeze(-2) if rows else c
    operands = {name: there[name] for name in OPERAND_NAMES if name in there}
    texts = options.get("epilogue")
    functions = functions_of(texts, a, b)
    multiply = torch.ops.gemmgen.gemm.default
    named = frozenset[str]().union(*(function.names for function in functions))
    # An operand that no function names is for the product to refuse.
    if "row" in named or any((name in added or OPERANDS[name].axes != "n") and name in named for name in operands):
        # What differs from matrix to matrix is for no kernel: it is applied afterwards.
        product = multiply(left, right, c, **sums, dtype=sums_of(a, b))
        known = {name: _operand(name, x, rank, name in added) for name, x in operands.items()}
        known |= {} if c is None else {"c": c}
        like = product.chunk(2, -1)[0] if gate_of(texts or ()) else product
        result = Chain(functions, lambda: product, known, like).value(len(functions)).to(dtype)
    else:
        result = multiply(left, right, c, *(there.get(x) for x in OPERAND_NAMES), **sums, epilogue=texts, dtype=dtype)
    result = result.squeeze(-1) if columns else result
    result = result.squeeze(-2 if not columns else -1) if rows else result
    return result, 0 if added else None


def _matrices(name: str, x: torch.Tensor, is_added: bool, transposed: bool) -> torch.Tensor:
    """A or B as a stack of matrices as they are multiplied, after the new axis."""
    if x.dim() - is_added == 1:
        return x.unsqueeze(-1 if name == "b" else -2)
    return matrix_of(x, transposed, column=False)


def _padded(x: torch.Tensor, rank: int, is_added: bool) -> torch.Tensor:
    """With axes of extent 1 behind the new one, so that the others are as many as `rank`."""
    if not is_added:
        return x
    return x.reshape(x.shape[0], *(1 for _ in range(rank + 1 - x.dim())), *x.shape[1:])


def _operand(name: str, x: torch.Tensor, rank: int, is_added: bool) -> torch.Tensor:
    """An operand of the epilogue, in a shape that broadcasts to the stack of results."""
    x = x.unsqueeze(-1) if OPERANDS[name].axes == "m" else x
    return _padded(x, rank, is_added)
