"""The gradient of a product: two products, and the derivatives of the epilogue's functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from gemmgen.epilogue import OPERANDS, RESULT, Applied
from gemmgen.torch.epilogue import Chain, functions_of, names_in_derivatives
from gemmgen.torch.product import OPERAND_NAMES, Options, elements_of, matrix_of, sums_of

_NAMES = ("a", "b", "c", *OPERAND_NAMES)
#: Those of the operator's arguments: torch leaves out what is equal to them.
_DEFAULTS: Options = {
    "alpha": 1,
    "beta": 0,
    "transpose_a": False,
    "transpose_b": False,
    "epilogue": None,
    "dtype": None,
}


class Context(Protocol):
    """What is handed from the forward to the backward pass.

    Attributes:
        options: the operator's arguments that are no tensors, with their defaults.
        shapes: of the tensors that were given, by name.
        names: of the saved tensors, in their order.
        shape: the result's.
    """

    options: Options
    shapes: Mapping[str, Sequence[int]]
    names: Sequence[str]
    shape: Sequence[int]
    needs_input_grad: Sequence[bool]
    saved_tensors: Sequence[torch.Tensor]

    def save_for_backward(self, *tensors: torch.Tensor) -> None: ...


def setup_context(
    ctx: Context,
    inputs: Sequence[torch.Tensor | None],
    options: Options,
    output: torch.Tensor,
) -> None:
    """Keep a and b, and of the others what the epilogue's derivatives read."""
    given = {name: x for name, x in zip(_NAMES, inputs, strict=False) if x is not None}
    ctx.options, ctx.shape = {**_DEFAULTS, **options}, output.shape
    ctx.shapes = {name: x.shape for name, x in given.items()}
    functions = _functions(ctx, given["a"], given["b"])
    needed = names_needed(functions, ctx.options["beta"])
    given |= {RESULT: output} if functions else {}
    saved = {name: x for name, x in given.items() if name in needed}
    ctx.names = tuple(saved)
    ctx.save_for_backward(*saved.values())


def backward(ctx: Context, gradient: torch.Tensor, needed: Sequence[bool]) -> tuple[torch.Tensor | None, ...]:
    """The gradients of the operator's tensors, by that of its result. They are differentiable themselves.

    Args:
        needed: for each tensor that was given whether it needs one.
    """
    saved = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
    wanted = {name for name, needs in zip(_NAMES, needed, strict=False) if needs}
    gradient = _as_matrices(ctx, gradient)
    found: dict[str, torch.Tensor] = {}
    if functions := _functions(ctx, saved["a"], saved["b"]):
        named = sorted(wanted - {"a", "b"})
        gradient, found = _chain(ctx, functions, saved, gradient).gradients(gradient, named)
    if "c" in wanted and (beta := ctx.options["beta"]) != 0:
        through = gradient * conjugate_of(beta)
        found["c"] = found["c"] + through if "c" in found else through
    for name in found:
        found[name] = _gathered(ctx, name, found[name])
    if wanted & {"a", "b"}:
        found |= _of_factors(ctx, saved["a"], saved["b"], gradient, wanted)
    return tuple(found.get(name) for name, _ in zip(_NAMES, needed, strict=False))


def _functions(ctx: Context, a: torch.Tensor, b: torch.Tensor) -> tuple[Applied, ...]:
    return functions_of(ctx.options["epilogue"], a, b)


def names_needed(functions: Sequence[Applied], beta: complex) -> set[str]:
    """The tensors that a backward pass reads: a and b, and of the others what the epilogue's derivatives name."""
    needed = {"a", "b"}
    if functions:
        of_derivatives = names_in_derivatives(functions)
        needed |= frozenset().union(*of_derivatives)
        if _recomputes(of_derivatives):
            needed |= frozenset().union(*(function.names for function in functions))
            needed |= {"c"} if beta != 0 else set()
    return needed


def _recomputes(of_derivatives: Sequence[frozenset[str]]) -> bool:
    """Whether a derivative needs the sums once more. Only the last function's result is there without them."""
    *before, last = of_derivatives
    return "acc" in last or any({"acc", RESULT} & names for names in before)


def _chain(
    ctx: Context, functions: Sequence[Applied], saved: Mapping[str, torch.Tensor], gradient: torch.Tensor
) -> Chain:
    a, b, options = saved["a"], saved["b"], ctx.options
    known = {name: _spread(ctx, name, x) for name, x in saved.items() if name not in ("a", "b", RESULT)}

    def sums() -> torch.Tensor:
        left, right = _matrices(ctx, a, b)
        c = known.get("c") if options["beta"] != 0 else None
        return torch.ops.gemmgen.gemm.default(
            left, right, c, alpha=options["alpha"], beta=options["beta"], dtype=sums_of(a, b)
        )

    last = _as_matrices(ctx, saved[RESULT]) if RESULT in saved else None
    return Chain(functions, sums, known, like_sums(gradient, a, b), last)


def like_sums(gradient: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What has the gradient's shape and the type of sums, in the memory of one element."""
    return gradient.new_empty((), dtype=sums_of(a, b)).expand(gradient.shape)


def _of_factors(
    ctx: Context, a: torch.Tensor, b: torch.Tensor, gradient: torch.Tensor, wanted: set[str]
) -> dict[str, torch.Tensor]:
    """The gradients of a and b: gradient @ b^H and a^H @ gradient, in the order in which a and b are stored."""
    multiply = torch.ops.gemmgen.gemm.default
    alpha = conjugate_of(ctx.options["alpha"])
    left, right = _matrices(ctx, a, b)
    if ctx.options["dtype"] is None:
        gradient = gradient.to(elements_of(a, b))
    rows, tall = left, gradient
    if right.dim() == 2 and left.dim() > 2:
        # One product in place of a stack whose sum is asked for.
        rows, tall = left.flatten(0, -2), gradient.flatten(0, -2)
    transposed_a, transposed_b = ctx.options["transpose_a"] and a.dim() > 1, ctx.options["transpose_b"] and b.dim() > 1
    found = {}
    if "a" in wanted and transposed_a:
        found["a"] = as_type_of(multiply(right.conj(), gradient.mT, alpha=alpha).sum_to_size(a.shape), a)
    elif "a" in wanted:
        of_rows = multiply(tall, right.mH, alpha=alpha)
        of_rows = of_rows.reshape(left.shape) if rows is not left else of_rows.sum_to_size(left.shape)
        found["a"] = as_type_of(of_rows.reshape(a.shape), a)
    if "b" in wanted and transposed_b:
        found["b"] = as_type_of(multiply(tall.mT, rows.conj(), alpha=alpha).sum_to_size(b.shape), b)
    elif "b" in wanted:
        found["b"] = as_type_of(multiply(rows.mH, tall, alpha=alpha).sum_to_size(right.shape).reshape(b.shape), b)
    return found


def as_type_of(gradient: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A gradient in the type of what it is the gradient of."""
    real = gradient.real if gradient.is_complex() and not like.is_complex() else gradient
    return real.to(like.dtype)


def _matrices(ctx: Context, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A and B as stacks of matrices as they are multiplied, in a type that products have."""
    elements = elements_of(a, b)
    a, b = (x.to(elements) if x.dtype.itemsize == 1 else x for x in (a, b))
    left = matrix_of(a, ctx.options["transpose_a"], column=False)
    return left, matrix_of(b, ctx.options["transpose_b"], column=True)


def _as_matrices(ctx: Context, x: torch.Tensor) -> torch.Tensor:
    """The result, or what has its shape, as a stack of matrices [..., m, n]."""
    x = x.unsqueeze(-1) if len(ctx.shapes["b"]) == 1 else x
    return x.unsqueeze(-2) if len(ctx.shapes["a"]) == 1 else x


def _spread(ctx: Context, name: str, x: torch.Tensor) -> torch.Tensor:
    """An operand of the epilogue, or c, in a shape that broadcasts to [..., m, n]."""
    if name == "c":
        return _as_matrices(ctx, x.expand(ctx.shape))
    if OPERANDS[name].axes == "mn" and x.dim() < 2:
        return _as_matrices(ctx, x)
    return x.unsqueeze(-1) if OPERANDS[name].axes == "m" else x


def _gathered(ctx: Context, name: str, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient of an operand, or of c, from that of what `_spread` makes of it."""
    shape = ctx.shapes[name]
    if name == "c":
        return gradient.reshape(ctx.shape).sum_to_size(shape)
    if OPERANDS[name].axes == "m":
        return gradient.sum_to_size((*shape, 1)).reshape(shape)
    return gradient.sum_to_size(shape) if len(shape) != 1 else gradient.sum(list(range(gradient.dim() - 1)))


def conjugate_of(factor: complex) -> complex:
    """The factor that a gradient has."""
    return factor.conjugate() if type(factor) is complex else factor
