"""`torch.ops.gemmgen.gemm`: a product of tensors as an operator of torch's.

Registered here: kernels for tensors on the CPU and on GPUs, a fake kernel, derivatives, autocast and vmap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Unpack, cast

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad as _forward_ad

from gemmgen.errors import SpecError
from gemmgen.torch.arguments import MOST, expect_tensors, taken
from gemmgen.torch.batching import batched
from gemmgen.torch.gradient import Context, backward, setup_context
from gemmgen.torch.product import OPERAND_NAMES, Options, multiply, without_elements

NAME = "gemmgen::gemm"
_ARGUMENTS = (
    "Tensor a, Tensor b, Tensor? c=None, "
    + ", ".join(f"Tensor? {name}=None" for name in OPERAND_NAMES)
    + ", *, Scalar alpha=1, Scalar beta=0, bool transpose_a=False, bool transpose_b=False, "
    "str[]? epilogue=None, ScalarType? dtype=None"
)
SCHEMA = f"gemm({_ARGUMENTS}) -> Tensor"
SCHEMA_OUT = f"gemm.out({_ARGUMENTS}, Tensor(a!) out) -> Tensor(a!)"
#: What is not stored as strides and elements, by torch's names of the kernels for it.
REFUSED = (
    *("SparseCPU", "SparseCUDA", "SparseCsrCPU", "SparseCsrCUDA", "QuantizedCPU", "QuantizedCUDA", "MkldnnCPU"),
    *("NestedTensorCPU", "NestedTensorCUDA"),
)
_Key = torch._C.DispatchKey
_PLAIN = (_Key.CPU, _Key.CUDA)
#: What alpha and beta mostly are, and what a type of the result is.
_FACTORS = (int, float)
_DTYPES = (type(None), torch.dtype)
_BELOW_AUTOGRAD = torch._C._after_ADInplaceOrView_keyset


def _bits(*keys: torch._C.DispatchKey) -> int:
    found = torch._C.DispatchKeySet(keys[0])
    for key in keys[1:]:
        found = found.add(key)
    return int(found.raw_repr())


#: What says of a thread that no mode and no transform is on; the second in inference mode.
_AT_REST = (_bits(_Key.BackendSelect, _Key.ADInplaceOrView), _bits(_Key.BackendSelect))
#: What says of tensors that they are ordinary ones, also those made in inference mode -> the device for autocast.
_ORDINARY = {
    _bits(_Key.CPU, _Key.ADInplaceOrView, _Key.AutogradCPU, _Key.AutocastCPU): "cpu",
    _bits(_Key.CPU, _Key.AutocastCPU): "cpu",
    _bits(_Key.CUDA, _Key.ADInplaceOrView, _Key.AutogradCUDA, _Key.AutocastCUDA): "cuda",
    _bits(_Key.CUDA, _Key.AutocastCUDA): "cuda",
}

# It lives as long as the process: what it holds are registrations.
LIBRARY = torch.library.Library("gemmgen", "DEF")
LIBRARY.define(SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
LIBRARY.define(SCHEMA_OUT)
_operator, _operator_out = torch.ops.gemmgen.gemm.default, torch.ops.gemmgen.gemm.out


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None = None,
    *,
    alpha: complex = 1,
    beta: complex = 0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    epilogue: str | Sequence[str] | None = None,
    dtype: torch.dtype | None = None,
    bias: torch.Tensor | None = None,
    row_bias: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
    row_scale: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """alpha * op(A) @ op(B) + beta * C after an epilogue, in a new tensor with a gradient, or in `out` without one.

    Args:
        a, b: vectors, matrices or stacks of them, as `torch.matmul` takes them, on one device. Types are promoted.
        c: scaled by beta; broadcast to the result's shape. It is not written.
        alpha, beta: numbers, real if the elements are real.
        transpose_a, transpose_b: whether to swap the last two dimensions; ignored for vectors.
        epilogue: functions applied to the result, such as `"relu"` or `["bias", "gelu"]` (docs/epilogues.md).
        dtype: the result's type; None for the default (docs/types.md).
        bias, scale: [n]; row_bias, row_scale: [m]; residual: [m, n]: what the epilogue names.
        out: of exactly the result's shape; it shares no memory with a or b. No tensor may then require a gradient.

    Raises: SpecError with every problem (a ValueError; for types also a TypeError), DeviceError.
    """
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        expect_tensors({"a": a, "b": b})
    functions = [epilogue] if isinstance(epilogue, str) else epilogue
    is_traced = torch.compiler.is_compiling()
    # Most calls are plain, and each look costs them time.
    are_numbers = type(alpha) in _FACTORS and type(beta) in _FACTORS and abs(alpha) < MOST and abs(beta) < MOST
    are_flags = type(dtype) in _DTYPES and type(transpose_a) is type(transpose_b) is bool
    if not (is_traced or (are_numbers and are_flags and (epilogue is None or type(epilogue) is str))):
        flags = {"transpose_a": transpose_a, "transpose_b": transpose_b}
        alpha, beta, functions, dtype = taken((alpha, beta), flags, functions, dtype, c is not None)
    tensors = a, b, c, bias, row_bias, scale, row_scale, residual
    options: Options = {
        "alpha": alpha,
        "beta": beta,
        "transpose_a": bool(transpose_a),
        "transpose_b": bool(transpose_b),
        "epilogue": functions,
        "dtype": dtype,
    }
    if is_traced:
        return _operator(*tensors, **options) if out is None else _traced_into(out, tensors, options)
    if out is None:
        return (multiply if is_ordinary(tensors) else _operator)(*tensors, **options)
    options["out"] = out
    return (multiply if is_ordinary((*tensors, out)) else _operator_out)(*tensors, **options)


def _traced_into(out: torch.Tensor, tensors: Sequence[torch.Tensor | None], options: Options) -> torch.Tensor:
    """The product and a copy: compilers take no operator that writes to an argument and returns it."""
    if options["dtype"] is None:
        options["dtype"] = out.dtype
    made = _operator(*tensors, **options)
    # A compiler takes a message without values alone.
    torch._check(
        out.shape == made.shape, lambda: "out has another shape than the result: pass one of exactly that shape"
    )
    return out.copy_(made)


def is_ordinary(tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether the dispatcher would find nothing but the product to do: no gradient, mode, transform or subclass.

    Raises: SpecError for what is no tensor, or a nested one.
    """
    if torch.overrides.has_torch_function(tensors):
        # Those with jagged rows are a subclass, which would say that it has no such operator.
        if any(isinstance(x, torch.Tensor) and x.is_nested for x in tensors):
            raise SpecError(
                "an argument is a nested tensor, but kernels read strided elements: "
                "pass torch.nested.to_padded_tensor of it, or each of its unbind()"
            )
        return False
    if _forward_ad._current_level >= 0:
        return False
    inner = torch._C._dispatch_tls_local_include_set().raw_repr()
    records, is_asked = torch.is_grad_enabled(), False
    try:
        keys = torch._C._dispatch_keys(tensors[0])
        for x in tensors:
            if x is not None:
                is_asked |= records and x.requires_grad
                keys = keys | torch._C._dispatch_keys(x)
    except (AttributeError, TypeError):
        others = dict.fromkeys(type(x).__name__ for x in tensors if not isinstance(x, torch.Tensor | None))
        if not others:
            raise
        raise SpecError(
            f"an argument is of type {other}, not a tensor: pass torch.as_tensor of it, or call gemmgen.gemm"
            for other in others
        ) from None
    known = _ORDINARY.get(keys.raw_repr())
    return not is_asked and known is not None and inner in _AT_REST and not torch.is_autocast_enabled(known)


def _fake(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None = None,
    *operands: torch.Tensor | None,
    **options: Unpack[Options],
) -> torch.Tensor:
    """A tensor of the result's shape and type, without elements. Raises: as the product, for what can be known."""
    given = {"a": a, "b": b, "c": c, **dict(zip(OPERAND_NAMES, operands, strict=False))}
    return without_elements({name: x for name, x in given.items() if x is not None}, options)


def _autograd(keyset: torch._C.DispatchKeySet, *args: torch.Tensor | None, **options: Unpack[Options]) -> torch.Tensor:
    """Records what the gradient needs. Without one, plain tensors go straight to the product."""
    if _forward_ad._current_level >= 0 and any(_has_tangent(x) for x in args):
        raise SpecError(
            "a tensor has a forward-mode tangent, and gemmgen has derivatives by reverse mode alone: "
            "use backward(), torch.func.vjp or torch.func.jacrev"
        )
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in args):
        return _Recorded.at_this_level(keyset, options, *args)
    if (keyset & _BELOW_AUTOGRAD).highestPriorityTypeId() in _PLAIN:
        return multiply(*args, **options)
    return _below(keyset, args, options)


def _without_gradient(
    keyset: torch._C.DispatchKeySet, *args: torch.Tensor | None, **options: Unpack[Options]
) -> torch.Tensor:
    """Into `out`, which has no gradient, as torch's own operators have it. Raises: SpecError if one is asked for."""
    tensors = *args, options.get("out")
    if _forward_ad._current_level >= 0 and any(_has_tangent(x) for x in tensors):
        raise SpecError("a tensor has a forward-mode tangent, which out= does not record: leave out= out")
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        raise SpecError("out= records no gradient, and a tensor requires one: leave out= out, or use torch.no_grad()")
    with torch._C._AutoDispatchBelowAutograd():
        return _operator_out.redispatch(keyset & torch._C._after_autograd_keyset, *args, **options)


def _has_tangent(x: torch.Tensor | None) -> bool:
    return x is not None and _forward_ad.unpack_dual(x).tangent is not None


def _below(keyset: torch._C.DispatchKeySet, args: Sequence[torch.Tensor | None], options: Options) -> torch.Tensor:
    """The operator by what comes after autograd: modes, transforms and subclasses, then the product."""
    with torch._C._AutoDispatchBelowAutograd():
        return _operator.redispatch(keyset & torch._C._after_autograd_keyset, *args, **options)


class _Recorded(torch.autograd.Function):
    """The operator with a gradient. Its first two arguments are no tensors: the keys that are left, and the options."""

    @classmethod
    def at_this_level(cls, *args: object) -> torch.Tensor:
        """Apply it. Under torch.func the dispatcher has chosen the level already, as it does for torch's operators."""
        single = cast("type[torch.autograd.Function]", super(torch.autograd.Function, cls))
        if not torch._C._are_functorch_transforms_active():
            return single.apply(*args)
        with enable_single_level_autograd_function():
            return single.apply(*args)

    @staticmethod
    def forward(
        ctx: Context,
        keyset: torch._C.DispatchKeySet,
        options: Options,
        *args: torch.Tensor | None,
    ) -> torch.Tensor:
        # Under torch.func the levels below record as well, which torch has switched off for the time of this method.
        with torch.set_grad_enabled(torch._C._are_functorch_transforms_active()):
            result = _below(keyset, args, options)
        setup_context(ctx, args, options, result)
        return result

    @staticmethod
    def backward(ctx: Context, of_result: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return (None, None, *backward(ctx, of_result, ctx.needs_input_grad[2:]))


def autocast(
    operator: Callable[..., torch.Tensor], device_type: str, *args: torch.Tensor | None, **options: object
) -> torch.Tensor:
    """As autocast does for matmul: float32 and 16-bit floats are multiplied in autocast's type."""
    dtype = torch.get_autocast_dtype(device_type)
    cast = [x.to(dtype) if x is not None and x.dtype in _CAST else x for x in args]
    with torch.amp.autocast(device_type, enabled=False):
        return operator(*cast, **options)


def refuse(names: Sequence[str], *tensors: torch.Tensor | None, **_: object) -> torch.Tensor:
    """Raises: SpecError."""
    raise SpecError(
        f"{name} has layout {_layout_of(x)} and dtype {x.dtype}, but kernels read strided elements: "
        f"pass {_strided(x, name)}"
        for name, x in zip(names, tensors, strict=False)
        if x is not None and (x.is_nested or x.layout != torch.strided or x.is_quantized)
    )


def _layout_of(x: torch.Tensor) -> str:
    return "nested" if x.is_nested else str(x.layout)


def _strided(x: torch.Tensor, name: str) -> str:
    """What makes strided elements of a tensor."""
    if x.is_nested:
        return f"torch.nested.to_padded_tensor({name}, 0.0), or each of {name}.unbind()"
    return f"{name}.{'dequantize' if x.is_quantized else 'to_dense'}()"


#: Autocast leaves other types as they are: float64, 8-bit floats, whole numbers.
_CAST = (torch.float32, torch.float16, torch.bfloat16)

for _key in ("CPU", "CUDA"):
    LIBRARY.impl("gemm", multiply, _key)
    LIBRARY.impl("gemm.out", multiply, _key)
for _key in REFUSED:
    LIBRARY.impl("gemm", partial(refuse, ("a", "b", "c", *OPERAND_NAMES)), _key)
    LIBRARY.impl("gemm.out", partial(refuse, ("a", "b", "c", *OPERAND_NAMES)), _key)
LIBRARY.impl("gemm.out", _without_gradient, "Autograd", with_keyset=True)
LIBRARY.impl("gemm", torch.library.fallthrough_kernel, "Conjugate")
LIBRARY.impl("gemm", _autograd, "Autograd", with_keyset=True)
LIBRARY.impl("gemm", partial(autocast, _operator, "cpu"), "AutocastCPU")
LIBRARY.impl("gemm", partial(autocast, _operator, "cuda"), "AutocastCUDA")
torch.library.register_fake(NAME, _fake, lib=LIBRARY)
torch.library.register_fake(f"{NAME}.out", _fake, lib=LIBRARY)
torch.library.register_vmap(NAME, batched, lib=LIBRARY)
