"""gemmgen in PyTorch: the operators `torch.ops.gemmgen.gemm` and `grouped`, and a linear layer with its activation.

    import gemmgen.torch
    y = gemmgen.torch.linear(x, weight, bias, "gelu")

The operator has a fake kernel, derivatives of any order and rules for vmap and autocast. So it works in
`torch.compile`, `torch.export` and `torch.func`. Tensors on the CPU are multiplied by OpenCL, tensors on a GPU by CUDA
(docs/pytorch.md).
"""

from __future__ import annotations

from importlib.util import find_spec

from gemmgen.errors import DeviceError

if find_spec("torch") is None:
    raise DeviceError('torch is not installed, and gemmgen.torch is for its tensors: pip install "gemmgen[torch]"')

from gemmgen.torch.grouped import grouped as grouped
from gemmgen.torch.linear import Linear as Linear
from gemmgen.torch.linear import linear as linear
from gemmgen.torch.operator import gemm as gemm
from gemmgen.torch.product import batch_invariant as batch_invariant

__all__ = ["Linear", "batch_invariant", "gemm", "grouped", "linear"]
