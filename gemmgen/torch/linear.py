"""A linear layer that applies its bias and its activation before the result is stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import cast

import torch

from gemmgen.epilogue import UP, applied
from gemmgen.errors import SpecError, attempt
from gemmgen.ir.dtypes import F32
from gemmgen.torch.arguments import expect_tensors
from gemmgen.torch.operator import gemm

Activation = str | Sequence[str] | None


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, activation: Activation = None
) -> torch.Tensor:
    """activation(x @ weight^T + bias), in one kernel.

    Args:
        x: [..., in_features].
        weight: [out_features, in_features], or [in_features] for a result without the last dimension.
        bias: [out_features]; a scalar if the weight is a vector.
        activation: functions of docs/epilogues.md without operands: `"relu"`, `"leaky_relu(0.1)"`, `"expr: acc * acc"`.
            Without a bias it may begin with a gate such as `"swiglu"`, which halves out_features.

    Returns: [..., out_features], of the type to which x and weight promote.

    Raises: SpecError with every problem.
    """
    functions = checked(activation)
    if not (isinstance(x, torch.Tensor) and isinstance(weight, torch.Tensor) and isinstance(bias, torch.Tensor | None)):
        expect_tensors({"x": x, "weight": weight, **({} if bias is None else {"bias": bias})})
    if bias is None:
        return gemm(x, weight, transpose_b=True, epilogue=functions or None)
    if x.is_complex() or weight.is_complex():
        # Epilogues are of real numbers.
        return gemm(x, weight, bias, beta=1, transpose_b=True, epilogue=functions or None)
    # One element of a vector of columns, as a weight of one output feature has it.
    bias = bias if bias.dim() else bias.unsqueeze(0)
    return gemm(x, weight, bias=bias, transpose_b=True, epilogue=["bias", *functions])


def functions_of(activation: Activation) -> list[str]:
    """An activation as a list of functions. Raises: SpecError for what is none."""
    given: object = activation
    texts = [given] if isinstance(given, str) else list(given or ()) if isinstance(given, Sequence | None) else [given]
    if wrong := [x for x in texts if not isinstance(x, str)]:
        kind = type(wrong[0]).__name__
        raise SpecError(f"activation = {activation!r} has {wrong[0]!r} of type {kind}: pass a text, or a list of texts")
    return [activation] if isinstance(activation, str) else list(activation or ())


# A graph of torch.fx has the function as one node: which arguments are there can't be asked of a traced one.
torch.fx.wrap("linear")


class Linear(torch.nn.Linear):
    """`torch.nn.Linear` with an activation, which shares its parameters' names, shapes and initialisation.

    Args:
        activation: as for `linear`.

    Raises: SpecError for an activation that is none, that takes operands, or that is a gate.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        activation: Activation = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = tuple(checked(activation, may_halve=False))

    @classmethod
    def of(cls, layer: torch.nn.Linear, activation: Activation = None) -> Linear:
        """The same layer with an activation. It shares the other one's parameters.

        Raises: SpecError for what is no such layer, or has no parameters yet; and as for an activation.
        """
        if not isinstance(cast("object", layer), torch.nn.Linear):
            raise SpecError(f"the layer is of type {type(layer).__name__}: pass a torch.nn.Linear")
        if torch.nn.parameter.is_lazy(layer.weight):
            raise SpecError("the layer's parameters have no shape yet: call it once before")
        made = cls(layer.in_features, layer.out_features, layer.bias is not None, "meta", activation=activation)
        made.weight, made.bias = layer.weight, layer.bias
        made.train(layer.training)
        return made

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  (the name that nn.Linear gives it)
        return linear(input, self.weight, self.bias, self.activation)

    def extra_repr(self) -> str:
        activation = f", activation={', '.join(self.activation)}" if self.activation else ""
        return f"{super().extra_repr()}{activation}"


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def checked(activation: Activation, may_halve: bool = True) -> list[str]:
    """An activation as a list of functions. Raises: SpecError with every problem.

    Args:
        may_halve: whether it may begin with a gate, which makes one feature of two.
    """
    functions = functions_of(activation)
    if problems := _problems(tuple(functions), may_halve):
        raise SpecError(problems)
    return functions


@lru_cache(maxsize=256)
def _problems(functions: tuple[str, ...], may_halve: bool) -> tuple[str, ...]:
    problems: list[str] = []
    attempt(problems, applied, functions, F32)
    # Each by itself: what is wrong with another one hides no problem of it.
    known = [function for text in functions for function in attempt([], applied, (text,), F32) or ()]
    for function in known:
        if taken := function.names - {"acc", "row", "col", UP}:
            named = ", ".join(sorted(taken))
            problems.append(
                f"activation {function.text!r} takes {named}, but an activation has no operands: "
                "call gemmgen.torch.gemm with it"
            )
        if function.is_gate and not may_halve:
            problems.append(
                f"activation {function.text!r} halves the features, but a layer has out_features of them: "
                f"call gemmgen.torch.linear(x, weight, activation={function.text!r})"
            )
    return tuple(problems)
