"""TF32 where torch allows it: `torch.backends.cuda.matmul.allow_tf32`, `torch.set_float32_matmul_precision`."""

from __future__ import annotations

import torch


def is_allowed(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the elements of this product may be rounded to TF32."""
    return a.dtype is torch.float32 and b.dtype is torch.float32 and a.is_cuda and is_enabled()


def is_enabled() -> bool:
    """Whether torch's flags allow TF32 in products of float32 on a GPU."""
    flags = torch.backends.cuda.matmul
    # Since torch 2.9 there are two names for the flag, and reading the old one raises if the new one was set.
    precision = getattr(flags, "fp32_precision", None)
    return bool(flags.allow_tf32) if precision is None else precision == "tf32"
