"""`torch.ops.gemmgen.grouped`: products of ragged groups (mixture of experts) as an operator of torch's.

The gradient of a grouped product is two grouped products by the same offsets: those of groups of rows give one of rows,
with B transposed, and one of K; those of groups of K give two of rows. So there are derivatives of any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol, TypedDict, Unpack, cast

import torch

from gemmgen.api.grouped import KINDS, result_shape, shape_problems
from gemmgen.api.grouped import grouped as product
from gemmgen.epilogue import OPERANDS, RESULT, Applied
from gemmgen.errors import SpecError
from gemmgen.spec import OFFSETS, Grouped
from gemmgen.torch.arguments import expect_tensors, taken
from gemmgen.torch.epilogue import Chain, functions_of
from gemmgen.torch.gradient import as_type_of, conjugate_of, like_sums, names_needed
from gemmgen.torch.operator import LIBRARY, REFUSED, autocast, is_ordinary, refuse
from gemmgen.torch.product import OPERAND_NAMES, dtype_of, elements_of, is_batch_invariant, sums_of

NAME = "gemmgen::grouped"
SCHEMA = (
    "grouped(Tensor a, Tensor b, Tensor offsets, Tensor? c=None, "
    + ", ".join(f"Tensor? {name}=None" for name in OPERAND_NAMES)
    + ", *, Scalar alpha=1, Scalar beta=0, str[]? epilogue=None, ScalarType? dtype=None, bool zero_rest=False) "
    "-> Tensor"
)
_NAMES = ("a", "b", OFFSETS, "c", *OPERAND_NAMES)

LIBRARY.define(SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
_operator = torch.ops.gemmgen.grouped.default


class GroupedOptions(TypedDict, total=False):
    """The operator's arguments that are no tensors. torch leaves out what is equal to a default."""

    alpha: complex
    beta: complex
    epilogue: Sequence[str] | None
    dtype: torch.dtype | None
    zero_rest: bool


_DEFAULTS: GroupedOptions = {"alpha": 1, "beta": 0, "epilogue": None, "dtype": None, "zero_rest": False}


def grouped(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    c: torch.Tensor | None = None,
    *,
    alpha: complex = 1,
    beta: complex = 0,
    epilogue: str | Sequence[str] | None = None,
    dtype: torch.dtype | None = None,
    bias: torch.Tensor | None = None,
    row_bias: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
    row_scale: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    zero_rest: bool = False,
) -> torch.Tensor:
    """Products of groups that share out the rows of A, or K, by one launch: `gemmgen.grouped` in a new tensor, with a
    gradient.

    Args:
        a, b: [total rows, k] and [groups, k, n], or [m, total k] and [total k, n], on one device. Types are promoted.
        offsets: where each group ends, int32, on the same device.
        c: of the result's shape, scaled by beta. It is not written.
        alpha, beta: numbers, real if the elements are real.
        epilogue: functions applied to the result (docs/epilogues.md).
        dtype: the result's type; None for the default (docs/types.md).
        bias, scale: [groups, n]; row_bias, row_scale: [total rows] or [groups, m]; residual: of the result's shape.
        zero_rest: whether rows behind the last group are zeros. Otherwise they are undefined.

    Raises: SpecError with every problem (a ValueError; for types also a TypeError), DeviceError.
    """
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and isinstance(offsets, torch.Tensor)):
        expect_tensors({"a": a, "b": b, OFFSETS: offsets}, "gemmgen.grouped")
    functions = [epilogue] if isinstance(epilogue, str) else epilogue
    if not (is_traced := torch.compiler.is_compiling()):
        flags = {"zero_rest": zero_rest}
        alpha, beta, functions, dtype = taken((alpha, beta), flags, functions, dtype, c is not None)
    tensors = a, b, offsets, c, bias, row_bias, scale, row_scale, residual
    options: GroupedOptions = {
        "alpha": alpha,
        "beta": beta,
        "epilogue": functions,
        "dtype": dtype,
        "zero_rest": bool(zero_rest),
    }
    straight = not is_traced and is_ordinary(tensors)
    return (multiply if straight else _operator)(*tensors, **options)


def multiply(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    c: torch.Tensor | None = None,
    *operands: torch.Tensor | None,
    **options: Unpack[GroupedOptions],
) -> torch.Tensor:
    """The product, for tensors with elements. Nothing is recorded for a gradient. Raises: as `gemmgen.grouped`."""
    if is_batch_invariant():
        raise SpecError(
            "a grouped product's order of sums depends on the mean size of its groups: call it outside of "
            "batch_invariant(), or multiply group by group"
        )
    out = without_elements(a, b, offsets, c, *operands, **options)
    zeroed = options.get("zero_rest", False) and kind_of(a, b) == "rows"
    out = out.zero_() if zeroed else out
    named = {name: x for name, x in zip(OPERAND_NAMES, operands, strict=False) if x is not None}
    epilogue = options.get("epilogue")
    alpha, beta = options.get("alpha", 1), options.get("beta", 0)
    addend = None if c is None else c.resolve_conj()
    function = tuple(epilogue) if epilogue else None
    matrices = a.resolve_conj(), b.resolve_conj()
    product(*matrices, offsets, addend, alpha=alpha, beta=beta, out=out, epilogue=function, **named)
    if zeroed and c is not None:  # of which the rest has come along
        behind = torch.arange(out.shape[0], device=out.device) >= end_of(offsets)
        out.masked_fill_(behind.unsqueeze(-1), 0)
    return out


def end_of(offsets: torch.Tensor) -> torch.Tensor:
    """Where the last group ends; 0 if there is none."""
    return offsets[-1] if offsets.shape[0] else offsets.new_zeros(())


def kind_of(a: torch.Tensor, b: torch.Tensor) -> Grouped:
    """What the groups of a product share out. Raises: SpecError."""
    if (kind := KINDS.get((a.dim(), b.dim()))) is None:
        raise SpecError(
            f"a has {a.dim()} dimensions and b {b.dim()}: pass [total rows, k] and [groups, k, n], or [m, total k] and "
            "[total k, n]"
        )
    return kind


def without_elements(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    c: torch.Tensor | None = None,
    *operands: torch.Tensor | None,
    **options: Unpack[GroupedOptions],
) -> torch.Tensor:
    """A tensor of the result's shape and type. Raises: SpecError with every problem that needs no elements."""
    kind, dtype = kind_of(a, b), dtype_of(a, b, options.get("dtype"))
    given = dict(zip(_NAMES, (a, b, offsets, c, *operands), strict=False))
    epilogue = options.get("epilogue") or ()
    problems = shape_problems(kind, given, offsets, epilogue)
    problems += [
        f"{name} is on {x.device}, but a on {a.device}: pass {name}.to({str(a.device)!r})"
        for name, x in given.items()
        if x is not None and x.device != a.device
    ]
    if c is None and options.get("beta", 0) != 0:
        problems.append(f"beta = {options['beta']} adds to a c that was not given: pass c, or beta = 0")
    if problems:
        raise SpecError(problems)
    return a.new_empty(result_shape(kind, a, b, offsets, epilogue), dtype=dtype)


# --- the gradient ---------------------------------------------------------------------------------


class Context(Protocol):
    """What is handed from the forward to the backward pass: as in `gemmgen.torch.gradient`."""

    options: GroupedOptions
    names: Sequence[str]
    needs_input_grad: Sequence[bool]
    saved_tensors: Sequence[torch.Tensor]

    def save_for_backward(self, *tensors: torch.Tensor) -> None: ...


def _setup(
    ctx: Context, inputs: Sequence[torch.Tensor | None], keyword_only_inputs: GroupedOptions, output: torch.Tensor
) -> None:
    """Keep a, b and offsets, and of the others what the epilogue's derivatives read."""
    given = {name: x for name, x in zip(_NAMES, inputs, strict=False) if x is not None}
    ctx.options = {**_DEFAULTS, **keyword_only_inputs}
    functions = functions_of(ctx.options["epilogue"], given["a"], given["b"])
    needed = {OFFSETS} | names_needed(functions, ctx.options["beta"])
    saved = {name: x for name, x in {**given, RESULT: output}.items() if name in needed}
    ctx.names = tuple(saved)
    ctx.save_for_backward(*saved.values())


def _backward(ctx: Context, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """The gradients of the operator's tensors, by that of its result. They are differentiable themselves."""
    saved = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
    wanted = {name for name, needs in zip(_NAMES, ctx.needs_input_grad, strict=False) if needs}
    groups = _Groups(saved["a"], saved["b"], saved[OFFSETS])
    found: dict[str, torch.Tensor] = {}
    if functions := functions_of(ctx.options["epilogue"], saved["a"], saved["b"]):
        chain = _chain(ctx, functions, saved, groups, gradient)
        gradient, found = chain.gradients(groups.inside(gradient), sorted(wanted - {"a", "b"}))
    if "c" in wanted and (beta := ctx.options["beta"]) != 0:
        through = gradient * conjugate_of(beta)
        found["c"] = found["c"] + through if "c" in found else through
    found = {name: groups.gathered(name, x) for name, x in found.items()}
    if wanted & {"a", "b"}:
        narrow = gradient if ctx.options["dtype"] is not None else gradient.to(elements_of(saved["a"], saved["b"]))
        found |= groups.of_factors(narrow, conjugate_of(ctx.options["alpha"]), wanted)
    return tuple(found.get(name) for name, _ in zip(_NAMES, ctx.needs_input_grad, strict=False))


def _chain(
    ctx: Context,
    functions: Sequence[Applied],
    saved: Mapping[str, torch.Tensor],
    groups: _Groups,
    gradient: torch.Tensor,
) -> Chain:
    a, b, options = groups.a, groups.b, ctx.options
    others = {name: x for name, x in saved.items() if name not in ("a", "b", OFFSETS, RESULT)}
    known = {name: groups.inside(groups.spread(name, x)) for name, x in others.items()}
    if groups.kind == "rows" and any("row" in function.names for function in functions):
        known["row"] = groups.row

    def sums() -> torch.Tensor:
        c = known.get("c") if options["beta"] != 0 else None
        factors = {"alpha": options["alpha"], "beta": options["beta"] if c is not None else 0}
        return cast("torch.Tensor", _operator(a, b, groups.offsets, c, **factors, dtype=sums_of(a, b), zero_rest=True))

    return Chain(functions, sums, known, like_sums(gradient, a, b), saved.get(RESULT))


class _Groups:
    """The groups of a product in a backward pass.

    Attributes:
        a, b: in a type that products have.
    """

    def __init__(self, a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> None:
        elements = elements_of(a, b)
        self.given = {"a": a, "b": b}
        self.a, self.b = (x.to(elements) if x.dtype.itemsize == 1 else x for x in (a, b))
        self.offsets = offsets
        self.kind = kind_of(a, b)

    @property
    def _places(self) -> torch.Tensor:
        return torch.arange(self.a.shape[0], device=self.a.device, dtype=self.offsets.dtype)

    @property
    def _group(self) -> torch.Tensor:
        """The group of each row; of a row behind the last group that one."""
        return torch.searchsorted(self.offsets, self._places, right=True).clamp(max=self.offsets.shape[0] - 1)

    @property
    def row(self) -> torch.Tensor:
        """The number of each row in its group, [total rows, 1]."""
        begins = torch.cat([self.offsets.new_zeros(1), self.offsets[:-1]])
        return (self._places - begins[self._group]).unsqueeze(-1).to(torch.int64)

    def inside(self, x: torch.Tensor) -> torch.Tensor:
        """A matrix of the result's rows with zeros behind the last group, and so is its gradient: NaN that a formula
        makes of what is undefined there goes no further.
        """
        return torch.where((self._places < end_of(self.offsets)).unsqueeze(-1), x, 0) if self.kind == "rows" else x

    def spread(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """An operand of the epilogue, or c, in a shape that broadcasts to the result's."""
        axes = "mn" if name == "c" else OPERANDS[name].axes
        if axes == "n" and self.kind == "rows":
            return x[self._group] if x.shape[0] else x.new_zeros(self.a.shape[0], x.shape[1])
        if axes == "n":
            return x.unsqueeze(-2)
        return x.unsqueeze(-1) if axes == "m" else x

    def gathered(self, name: str, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of an operand, or of c, from that of what `spread` makes of it. Rows behind the last group have
        none.
        """
        axes = "mn" if name == "c" else OPERANDS[name].axes
        if axes == "n" and self.kind == "rows":
            ones = gradient.new_ones((1, gradient.shape[0]))
            return cast("torch.Tensor", _operator(ones, gradient, self.offsets)).squeeze(-2)
        if axes == "n":
            return gradient.sum(-2)
        summed = self.inside(gradient.sum(-1, keepdim=True) if axes == "m" else gradient)
        return summed.squeeze(-1) if axes == "m" else summed

    def of_factors(self, gradient: torch.Tensor, alpha: complex, wanted: set[str]) -> dict[str, torch.Tensor]:
        """The gradients of a and b, from that of the sums."""
        a, b, ends = self.a, self.b, self.offsets
        found: dict[str, torch.Tensor] = {}
        if self.kind == "rows":
            if "a" in wanted:
                found["a"] = _operator(gradient, b.mH, ends, alpha=alpha, zero_rest=True)
            if "b" in wanted:
                found["b"] = _operator(a.mH, gradient, ends, alpha=alpha)
        else:
            if "a" in wanted:
                found["a"] = _operator(b.conj(), gradient.mT, ends, alpha=alpha, zero_rest=True).mT
            if "b" in wanted:
                found["b"] = _operator(a.mH, gradient, ends, alpha=alpha, zero_rest=True)
        return {name: as_type_of(x, self.given[name]) for name, x in found.items()}


for _key in ("CPU", "CUDA"):
    LIBRARY.impl("grouped", multiply, _key)
for _key in REFUSED:
    LIBRARY.impl("grouped", partial(refuse, _NAMES), _key)
LIBRARY.impl("grouped", partial(autocast, _operator, "cpu"), "AutocastCPU")
LIBRARY.impl("grouped", partial(autocast, _operator, "cuda"), "AutocastCUDA")
torch.library.register_fake(NAME, without_elements, lib=LIBRARY)
torch.library.register_autograd(NAME, _backward, setup_context=_setup, lib=LIBRARY)
