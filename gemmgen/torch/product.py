"""A product of tensors: its shape, its type, and how `gemmgen.gemm` computes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypedDict, Unpack

import torch

from gemmgen.api.gemm import How, gemm_tensors
from gemmgen.epilogue import OPERANDS, gate_of, odd_columns
from gemmgen.errors import DtypeError, SpecError
from gemmgen.torch.tf32 import is_allowed

#: The epilogue's arrays, in the order in which the operator takes them.
OPERAND_NAMES = tuple(name for name, operand in OPERANDS.items() if operand.of == "c")
_invariant = ContextVar("batch_invariant", default=False)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@contextmanager
def batch_invariant(enabled: bool = True) -> Iterator[None]:
    """Products in this context give a row the same bits whatever the number of rows (docs/numerics.md).

    It holds for the thread or task that enters it, so on a GPU not for the threads in which torch runs `backward`.
    """
    before = _invariant.set(enabled)
    try:
        yield
    finally:
        _invariant.reset(before)


def is_batch_invariant() -> bool:
    """Whether products of this thread are batch-invariant."""
    return _invariant.get()


class Options(TypedDict, total=False):
    """The operator's arguments that are no tensors. torch leaves out what is equal to a default."""

    alpha: complex
    beta: complex
    transpose_a: bool
    transpose_b: bool
    epilogue: Sequence[str] | None
    dtype: torch.dtype | None
    out: torch.Tensor | None


def multiply(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None = None,
    *operands: torch.Tensor | None,
    **options: Unpack[Options],
) -> torch.Tensor:
    """alpha * op(A) @ op(B) + beta * C after an epilogue, in a new tensor or `out`, for tensors with elements.

    All that runs products of tensors goes through here. Nothing is recorded for a gradient.

    Args:
        operands: by the order of `OPERAND_NAMES`, as many as are needed.

    Raises: as `gemmgen.gemm`.
    """
    transpose_a, transpose_b = options.get("transpose_a", False), options.get("transpose_b", False)
    dtype, epilogue = options.get("dtype"), options.get("epilogue")
    named = {name: x for name, x in zip(OPERAND_NAMES, operands, strict=False) if x is not None}
    # A conjugated view is a flag on the tensor: kernels conjugate as they load.
    conjugate_a, conjugate_b = a.is_conj(), b.is_conj()
    a, b = (x.conj() if x.is_conj() else x for x in (a, b))
    out = options.get("out")
    c = None if c is None else c.resolve_conj()
    if out is not None and not out.is_inference():
        torch.autograd.graph.increment_version(out)  # what a graph has saved of it is gone
    if c is not None and out is None:
        shape = shape_of(a, b, transpose_a, transpose_b, epilogue)
        out = a.new_empty(shape, dtype=dtype_of(a, b, dtype))
    how = How(
        *(transpose_a, transpose_b, conjugate_a, conjugate_b),
        epilogue=tuple(epilogue) if epilogue else None,
        dtype=dtype,
        invariant=is_batch_invariant(),
        allow_tf32=is_allowed(a, b),
    )
    return gemm_tensors(a, b, c, out, options.get("alpha", 1), options.get("beta", 0), how, named)


def shape_of(
    a: torch.Tensor, b: torch.Tensor, transpose_a: bool, transpose_b: bool, epilogue: Sequence[str] | None = None
) -> tuple[int, ...]:
    """The result's shape. Extents may be symbols. Raises: SpecError."""
    for name, x in (("a", a), ("b", b)):
        if not x.dim():
            raise SpecError(f"{name} is a scalar, which matmul does not take: multiply by *, or pass a 1x1 tensor")
    left, right = matrix_of(a, transpose_a, column=False), matrix_of(b, transpose_b, column=True)
    if left.shape[-1] != right.shape[-2]:
        raise SpecError(
            f"a {_text(a, transpose_a)} and b {_text(b, transpose_b)} do not fit: a has k = {left.shape[-1]}, "
            f"b k = {right.shape[-2]}; transpose one, or cut it"
        )
    try:
        batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except RuntimeError:
        raise SpecError(
            f"stacks of {_extents(left.shape[:-2])} and {_extents(right.shape[:-2])} matrices can't be broadcast: "
            "make extents equal, or 1"
        ) from None
    rows = () if a.dim() == 1 else (left.shape[-2],)
    cols = right.shape[-1]
    if (gate := gate_of(epilogue or ())) is not None:
        if b.dim() == 1 or cols % 2:
            said = _text(b, transpose_b)
            raise SpecError(odd_columns(gate, f"is {said}"))
        cols = cols // 2
    return (*batch, *rows, *(() if b.dim() == 1 else (cols,)))


def without_elements(given: Mapping[str, torch.Tensor], options: Options) -> torch.Tensor:
    """A tensor of the result's shape and type, or `out`, as the fake kernel has it.

    Args:
        given: the operator's tensors by name.

    Raises: SpecError with every problem that needs no elements.
    """
    a, b = given["a"], given["b"]
    transposed = options.get("transpose_a", False), options.get("transpose_b", False)
    shape = shape_of(a, b, *transposed, options.get("epilogue"))
    dtype = dtype_of(a, b, options.get("dtype"))
    problems = [
        f"{name} is on {x.device}, but a on {a.device}: pass {name}.to({str(a.device)!r})"
        for name, x in given.items()
        if x.device != a.device
    ]
    m, n = (1 if a.dim() == 1 else shape[-1 - (b.dim() > 1)]), (1 if b.dim() == 1 else shape[-1])
    extents = {"n": (n,), "m": (m,), "mn": (m, n)}
    problems += (
        f"{name} has shape {_extents(x.shape)}, not {_extents(extents[OPERANDS[name].axes])}: pass one of that shape"
        for name, x in given.items()
        if name in OPERANDS and tuple(x.shape) not in (extents[OPERANDS[name].axes], shape)
    )
    if "c" in given and torch.broadcast_shapes(given["c"].shape, shape) != torch.Size(shape):
        problems.append(f"c of {_extents(given['c'].shape)} does not fit the result's {_extents(shape)}: pass such a c")
    out = options.get("out")
    if out is not None and tuple(out.shape) != tuple(shape):
        problems.append(f"out has shape {_extents(out.shape)}, not {_extents(shape)}: pass one of exactly that shape")
    if "c" not in given and options.get("beta", 0) != 0:
        problems.append(f"beta = {options['beta']} adds to a c that was not given: pass c, or beta = 0")
    if problems:
        raise SpecError(problems)
    return a.new_empty(shape, dtype=dtype) if out is None else out


def elements_of(a: torch.Tensor, b: torch.Tensor) -> torch.dtype:
    """The type in which a and b are multiplied in a backward pass, where 8-bit floats are widened."""
    return dtype_of(a, b, None)


def sums_of(a: torch.Tensor, b: torch.Tensor) -> torch.dtype:
    """The type of a product's sums, in which its epilogue is computed."""
    result = dtype_of(a, b, None)
    return torch.float32 if result in (torch.float16, torch.bfloat16) else result


def dtype_of(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """The result's type (the table in docs/types.md). Raises: DtypeError if a and b have no type in common."""
    try:
        promoted = torch.promote_types(a.dtype, b.dtype)
    except RuntimeError as error:
        raise DtypeError(
            f"a of {a.dtype} and b of {b.dtype} have no type in common ({error}): cast one by .to"
        ) from None
    if dtype is not None:
        if not torch.can_cast(promoted, dtype):
            raise DtypeError(
                f"dtype {dtype} does not hold products of {promoted}: cast a and b by .to, or leave it out"
            )
        return dtype
    if promoted in FLOAT8:
        return torch.bfloat16
    return torch.int32 if promoted == torch.int8 and a.is_cuda else promoted


def matrix_of(x: torch.Tensor, transposed: bool, column: bool) -> torch.Tensor:
    """An operand as a stack of matrices as they are multiplied: a view, in which a vector is a row or a column."""
    if x.dim() == 1:
        return x.unsqueeze(-1 if column else 0)
    return x.mT if transposed else x


def _text(x: torch.Tensor, transposed: bool) -> str:
    return _extents(x.shape) + (" transposed" if transposed and x.dim() > 1 else "")


def _extents(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "()"
