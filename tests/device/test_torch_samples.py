"""torch's own samples of its linear layer and its products, and gradients by torch's own checks: on the CPU, and on a
GPU if there is one.

The numbers are compared with torch's in float64, by a bound on the rounding errors of a sum: torch's own results in
float32 differ from ours by as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import pytest

from tests.device.naive import found as devices_found
from tests.support.skips import TORCH
from tests.support.tensors import need_torch

torch = need_torch()
if not devices_found():
    pytest.skip('no OpenCL device here: pip install "gemmgen[cpu]"', allow_module_level=True)
opinfo = pytest.importorskip("torch.testing._internal.common_methods_invocations", reason=f"{TORCH} and expecttest")

from torch import Tensor  # noqa: E402  (it must be there)

import gemmgen.torch as ours  # noqa: E402

#: What torch's own samples warn of.
pytestmark = pytest.mark.filterwarnings("ignore")


class Sample(Protocol):
    """What is used of torch's `SampleInput`."""

    input: Tensor
    args: tuple[Tensor, ...]
    kwargs: dict[str, object]


class OpInfo(Protocol):
    """What is used of torch's `OpInfo`."""

    name: str
    variant_test_name: str

    def __call__(self, *args: object, **kwargs: object) -> Tensor: ...
    def supported_dtypes(self, device: str) -> set[object]: ...
    def sample_inputs(self, device: str, dtype: object, requires_grad: bool = False) -> Iterator[Sample]: ...


Function = Callable[..., Tensor]


def addmm(c: Tensor, a: Tensor, b: Tensor, *, alpha: float = 1, beta: float = 1) -> Tensor:
    return ours.gemm(a, b, c, alpha=alpha, beta=beta)


FUNCTIONS: dict[str, Function] = {
    "nn.functional.linear": ours.linear,
    "matmul": ours.gemm,
    "mm": ours.gemm,
    "bmm": ours.gemm,
    "addmm": addmm,
}
OPS: list[OpInfo] = [op for op in opinfo.op_db if op.name in FUNCTIONS]
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
ALL = [(op, device, dtype) for op in OPS for device in DEVICES for dtype in op.supported_dtypes(device)]
ALL.sort(key=lambda case: (case[0].name, case[1], str(case[2])))
CASES = [pytest.param(*case, id=f"{case[0].name}{case[0].variant_test_name}-{case[1]}-{case[2]}") for case in ALL]
#: A variant has samples of the same function once more, and none for gradients.
DIFFERENTIABLE = [
    pytest.param(*case, id=f"{case[0].name}-{case[1]}-{case[2]}")
    for case in ALL
    if case[2] in (torch.float64, torch.complex128) and not case[0].variant_test_name
]


def widened(value: object) -> object:
    """A tensor in float64 or complex128, as it is if its elements are whole numbers."""
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return value
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def size(value: object) -> object:
    """Without signs, in float64."""
    if isinstance(value, torch.Tensor):
        return value.abs().to(torch.float64)
    return abs(value) if isinstance(value, int | float | complex) and not isinstance(value, bool) else value


def test_all_of_them_are_there() -> None:
    assert {op.name for op in OPS} == FUNCTIONS.keys()


@pytest.mark.parametrize(("op", "device", "dtype"), CASES)
def test_samples(op: OpInfo, device: str, dtype: object) -> None:
    count = 0
    for sample in op.sample_inputs(device, dtype):
        given = (sample.input, *sample.args)
        result, right = FUNCTIONS[op.name](*given, **sample.kwargs), op(*given, **sample.kwargs)
        assert (result.dtype, result.shape) == (right.dtype, right.shape)
        if result.is_floating_point() or result.is_complex():
            exact = op(*(widened(x) for x in given), **sample.kwargs)
            bound = op(*(size(x) for x in given), **{name: size(x) for name, x in sample.kwargs.items()})
            unit = torch.finfo(dtype).eps * (given[-1].shape[-1] + 4 if isinstance(given[-1], torch.Tensor) else 16)
            assert bool(((result - exact).abs() <= unit * bound + 1e-30).all())
        else:
            assert torch.equal(result, right)
        count += 1
    assert count


@pytest.mark.parametrize(("op", "device", "dtype"), DIFFERENTIABLE)
def test_gradients(op: OpInfo, device: str, dtype: object) -> None:
    """Of first and second order, against differences."""
    count = 0
    for sample in op.sample_inputs(device, dtype, requires_grad=True):
        given = (sample.input, *sample.args)

        function = partial(FUNCTIONS[op.name], **sample.kwargs)
        if all(x.numel() for x in given):
            assert torch.autograd.gradcheck(function, given, fast_mode=True)
            assert torch.autograd.gradgradcheck(function, given, fast_mode=True)
            count += 1
    assert count
