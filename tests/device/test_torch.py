"""gemmgen in PyTorch, on the CPU: the operator, its derivatives, torch's transforms and compilers, the linear layer."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from typing import Any, Unpack

import numpy as np
import pytest

import gemmgen
from gemmgen.errors import DtypeError, SpecError
from tests.device.naive import found as devices_found
from tests.support.tensors import need_torch

torch = need_torch()
if not devices_found():
    pytest.skip('no OpenCL device here: pip install "gemmgen[cpu]"', allow_module_level=True)

from torch import Tensor  # noqa: E402  (it must be there)

import gemmgen.torch as ours  # noqa: E402
from gemmgen.torch import operator, product, tf32  # noqa: E402

functional = torch.nn.functional
#: torch's compilers warn of themselves, and of Python's.
pytestmark = pytest.mark.filterwarnings("ignore")

Tensors = Sequence[Tensor | None]
#: A subclass of tensors.
NAMED = type("Named", (torch.Tensor,), {})
#: Epilogues -> what torch computes for them.
ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "relu": functional.relu,
    "leaky_relu(0.1)": lambda x: functional.leaky_relu(x, 0.1),
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "clamp(-0.5, 1)": lambda x: x.clamp(-0.5, 1),
    "expr: acc * acc / (1 + abs(acc)) - min(acc, 0.25)": lambda x: x * x / (1 + x.abs()) - x.clamp(max=0.25),
}


def draw(*shape: int, dtype: object = None, grad: bool = False) -> Tensor:
    """Normal random numbers, float64 by default."""
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=generator, dtype=dtype or torch.float64, requires_grad=grad)


def gradients(result: Tensor, tensors: Tensors) -> Sequence[Tensor]:
    found: Sequence[Tensor] = torch.autograd.grad(result, tensors, torch.ones_like(result))
    return found


def test_the_operator_is_torchs_own() -> None:
    """It is called by name, with defaults, and with arrays of an epilogue by keyword."""
    a, b, c, bias = draw(5, 7), draw(7, 6), draw(5, 6), draw(6)
    gemm = torch.ops.gemmgen.gemm
    torch.testing.assert_close(gemm(a, b), a @ b)
    torch.testing.assert_close(gemm(a, b, c, alpha=0.5, beta=2), 0.5 * a @ b + 2 * c)
    torch.testing.assert_close(gemm(a, b, bias=bias, epilogue=["bias", "relu"]), (a @ b + bias).relu())
    torch.testing.assert_close(gemm(a.mT, b.mT, transpose_a=True, transpose_b=True), a @ b)
    assert gemm(a, b, dtype=torch.float32).dtype == torch.float32


def test_c_is_broadcast_and_stays_as_it_is() -> None:
    a, b, c = draw(5, 7), draw(7, 6), draw(6)
    before = c.clone()
    torch.testing.assert_close(ours.gemm(a, b, c, beta=3), a @ b + 3 * c)
    assert torch.equal(c, before)


CALLS: tuple[tuple[Tensors, Mapping[str, object]], ...] = (
    ((draw(5, 7, grad=True), draw(7, 6, grad=True)), {}),
    ((draw(5, 7, grad=True), draw(7, 6), draw(5, 6, grad=True)), {"alpha": 0.5, "beta": 2.0}),
    ((draw(3, 5, 7, grad=True), draw(7, 6, grad=True), None, draw(6, grad=True)), {"epilogue": ["bias", "gelu"]}),
    ((draw(7, grad=True), draw(7, 6, grad=True)), {}),
    ((draw(7, 5, grad=True), draw(6, 7, grad=True)), {"transpose_a": True, "transpose_b": True}),
    ((draw(5, 7, dtype=torch.float32), draw(7, 6, dtype=torch.float16)), {"dtype": torch.float64}),
    (
        (draw(5, 7, grad=True), draw(7, 6), None, None, draw(5, grad=True), None, None, draw(5, 6, grad=True)),
        {"epilogue": ["row_bias", "residual", "relu"]},
    ),
    ((draw(5, 7, dtype=torch.complex64, grad=True).conj(), draw(7, 6, dtype=torch.complex64)), {}),
)


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_torchs_check_of_operators(call: tuple[Tensors, Mapping[str, object]]) -> None:
    """Schema, autograd, fake kernel, and both together as `torch.compile` uses them."""
    found = torch.library.opcheck(torch.ops.gemmgen.gemm.default, *call)
    assert len(found) == 4 and set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("text", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_activations_and_their_gradients(text: str, dtype: object) -> None:
    x, w, bias = (draw(*shape, dtype=dtype, grad=True) for shape in ((9, 17), (13, 17), (13,)))
    result = ours.linear(x, w, bias, text)
    # In the type of sums, as the kernel computes it.
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    right = ACTIVATIONS[text](functional.linear(*(t.to(wide) for t in (x, w, bias)))).to(dtype)
    close = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 0.03, "atol": 0.05}
    torch.testing.assert_close(result, right, **close)
    for found, known in zip(gradients(result, (x, w, bias)), gradients(right, (x, w, bias)), strict=True):
        assert found.dtype == dtype
        torch.testing.assert_close(found, known, **close)


@pytest.mark.parametrize(
    ("epilogue", "names"),
    [
        (("bias", "gelu"), ("bias",)),
        (("scale", "tanh", "bias"), ("scale", "bias")),
        (("row_bias", "silu", "row_scale", "residual"), ("row_bias", "row_scale", "residual")),
        (("expr: acc * c + bias * residual", "sigmoid"), ("bias", "residual")),
        (("expr: acc if col > row else acc * c * row", "leaky_relu(-0.5)"), ()),
        (("bias", "bias", "expr: exp(-acc * acc) + fma(acc, c, scale)"), ("bias", "scale")),
        (("bias", "expr: 0 if col > row else acc"), ("bias",)),
        (("expr: 0 if col > row else acc",), ()),
    ],
)
@pytest.mark.parametrize("beta", [0, 0.75, 1])
def test_derivatives_of_epilogues(epilogue: tuple[str, ...], names: tuple[str, ...], beta: float) -> None:
    """Of first and second order, by every tensor, against differences."""
    shapes = {"bias": (4,), "scale": (4,), "row_bias": (3,), "row_scale": (3,), "residual": (3, 4)}
    # The seed is the shape's: none is the same as another.
    tensors = [draw(3, 5), draw(5, 4), draw(3, 4), *(draw(*shapes[name]) + i / 8 for i, name in enumerate(names))]

    def function(a: Tensor, b: Tensor, c: Tensor, *operands: Tensor) -> Tensor:
        named = dict(zip(names, operands, strict=True))
        return ours.gemm(a, b, c, alpha=0.3, beta=beta, epilogue=epilogue, **named)

    for tensor in tensors:
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(function, tensors)
    assert torch.autograd.gradgradcheck(function, tensors)


@pytest.mark.parametrize("epilogue", [("swiglu", "bias"), ("geglu", "bias", "relu"), ("expr: acc * exp(up)", "bias")])
def test_derivatives_of_gates(epilogue: tuple[str, ...]) -> None:
    """By both halves of b, and beside torch's own."""
    tensors = [draw(3, 5), draw(5, 8), draw(4)]
    for tensor in tensors:
        tensor.requires_grad_()

    def function(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        return ours.gemm(a, b, alpha=0.3, epilogue=epilogue, bias=bias)

    assert torch.autograd.gradcheck(function, tensors)
    assert torch.autograd.gradgradcheck(function, tensors)
    a, b, _ = tensors
    gate, up = (a @ b).chunk(2, -1)
    torch.testing.assert_close(ours.gemm(a, b, epilogue="swiglu"), functional.silu(gate) * up)
    made = torch.ops.gemmgen.gemm(a.to("meta"), b.to("meta"), epilogue=["swiglu"])
    assert made.shape == (3, 4)
    with pytest.raises(SpecError, match="swiglu takes two halves of b's columns, but b has 7 columns"):
        ours.gemm(a, b[:, :7], epilogue="swiglu")


@pytest.mark.parametrize(
    ("shape_a", "shape_b", "transposed"),
    [
        ((7,), (7,), (False, False)),
        ((7,), (3, 7, 5), (False, False)),
        ((2, 4, 7), (7,), (False, False)),
        ((2, 3, 4, 5), (3, 5, 6), (False, False)),
        ((2, 5, 4), (6, 5), (True, True)),
        ((4, 5), (2, 6, 5), (False, True)),
        ((1, 4, 5), (3, 5, 6), (False, False)),
    ],
)
def test_derivatives_of_stacks_and_vectors(
    shape_a: tuple[int, ...], shape_b: tuple[int, ...], transposed: tuple[bool, bool]
) -> None:
    tensors = draw(*shape_a, grad=True), draw(*shape_b, grad=True)
    options = dict(zip(("transpose_a", "transpose_b"), transposed, strict=True))

    def function(a: Tensor, b: Tensor) -> Tensor:
        return ours.gemm(a, b, alpha=-1.5, epilogue="tanh", **options)

    assert torch.autograd.gradcheck(function, tensors)
    assert torch.autograd.gradgradcheck(function, tensors, fast_mode=True)


@pytest.mark.parametrize(("n", "k"), [(5, 0), (0, 7), (0, 0)])
def test_derivatives_without_columns_or_without_k(n: int, k: int) -> None:
    x, w = draw(2, 3, k, grad=True), draw(n, k, grad=True)
    for found, like in zip(gradients(ours.linear(x, w), (x, w)), (x, w), strict=True):
        assert torch.equal(found, torch.zeros_like(like))


def test_a_gradient_computes_two_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """relu's derivative follows from the result; gelu's needs the sums once more."""
    calls = 0
    multiply = product.multiply

    def counted(*args: Tensor, **options: Unpack[product.Options]) -> Tensor:
        nonlocal calls
        calls += 1
        return multiply(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(operator, "multiply", counted)
        mask = "expr: 0 if col > row else acc"
        for activation, products in ((None, 2), ("relu", 2), ("sigmoid", 2), ("gelu", 3), (mask, 2)):
            x, w, bias = draw(6, 7, grad=True), draw(5, 7, grad=True), draw(5, grad=True)
            result = ours.linear(x, w, bias, activation)
            calls = 0
            gradients(result, (x, w, bias))
            assert calls == products, activation


def test_types() -> None:
    """As the table of docs/types.md says of tensors on the CPU."""
    for name in ("float64", "float32", "float16", "bfloat16", "complex64", "int8", "uint8", "int16", "int32", "int64"):
        dtype = getattr(torch, name)
        x = torch.ones(3, 3).to(dtype)
        assert ours.gemm(x, x).dtype == gemmgen.gemm(x, x).dtype == dtype
        assert torch.equal(ours.gemm(x, x), torch.full((3, 3), 3).to(dtype))
    assert ours.gemm(torch.ones(2, 2, dtype=torch.int8), torch.ones(2, 2), dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_8_bit_floats(name: str) -> None:
    a, b = (draw(*shape, dtype=torch.float32).to(getattr(torch, name)) for shape in ((5, 7), (7, 6)))
    right = a.float() @ b.float()
    for gemm in (gemmgen.gemm, ours.gemm):
        assert gemm(a, b).dtype == torch.bfloat16
        torch.testing.assert_close(gemm(a, b), right.bfloat16(), rtol=0.01, atol=0.01)
        torch.testing.assert_close(gemm(a, b, dtype=torch.float32), right)
    out = torch.empty(5, 6, dtype=torch.float16)
    assert gemmgen.gemm(a, b, out=out) is out
    torch.testing.assert_close(out, right.half())


def test_wrapped_as_torch_wraps() -> None:
    a = torch.full((2, 300), 100, dtype=torch.int8)
    assert torch.equal(ours.gemm(a, a.mT), a @ a.mT)
    assert int(ours.gemm(a, a.mT, dtype=torch.int32)[0, 0]) == 3_000_000


VMAPS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[int | None, ...], Tensors]] = {
    "both": (ours.gemm, torch.matmul, (0, 0), (draw(4, 5, 7), draw(4, 7, 6))),
    "the first": (ours.gemm, torch.matmul, (0, None), (draw(4, 5, 7), draw(7, 6))),
    "the second": (ours.gemm, torch.matmul, (None, 0), (draw(5, 7), draw(4, 7, 6))),
    "another axis, transposed": (
        lambda a, b: ours.gemm(a, b, transpose_a=True),
        lambda a, b: torch.matmul(a.mT, b),
        (2, 0),
        (draw(7, 5, 4), draw(4, 7, 6)),
    ),
    "vectors by matrices": (ours.gemm, torch.matmul, (0, 0), (draw(4, 7), draw(4, 7, 6))),
    "matrices by vectors": (ours.gemm, torch.matmul, (0, 0), (draw(4, 5, 7), draw(4, 7))),
    "vectors": (ours.gemm, torch.matmul, (0, None), (draw(4, 7), draw(7))),
    "stacks of different depth": (ours.gemm, torch.matmul, (0, 1), (draw(4, 5, 7), draw(3, 4, 7, 6))),
    "c": (
        lambda a, b, c: ours.gemm(a, b, c, beta=2),
        lambda a, b, c: a @ b + 2 * c,
        (0, None, 0),
        (draw(4, 5, 7), draw(7, 6), draw(4, 6)),
    ),
    "c alone": (
        lambda a, b, c: ours.gemm(a, b, c, beta=1, epilogue="relu"),
        lambda a, b, c: (a @ b + c).relu(),
        (None, None, 1),
        (draw(5, 7), draw(7, 6), draw(5, 4, 6)),
    ),
    "c alone, of vectors": (
        lambda a, b, c: ours.gemm(a, b, c, beta=2),
        lambda a, b, c: a @ b + 2 * c,
        (None, None, 0),
        (draw(5, 7), draw(7), draw(4)),
    ),
    "c alone, times 0": (
        ours.gemm,
        lambda a, b, c: a @ b + 0 * c,
        (None, None, 0),
        (draw(5, 7), draw(7, 6), draw(4, 5, 6)),
    ),
    "one bias": (
        lambda a, b, bias: ours.gemm(a, b, epilogue=["bias", "relu"], bias=bias),
        lambda a, b, bias: (a @ b + bias).relu(),
        (0, None, None),
        (draw(4, 5, 7), draw(7, 6), draw(6)),
    ),
    "a bias each": (
        lambda a, b, bias: ours.gemm(a, b, epilogue=["bias", "relu"], bias=bias),
        lambda a, b, bias: (a @ b + bias).relu(),
        (0, None, 0),
        (draw(4, 5, 7), draw(7, 6), draw(4, 6)),
    ),
    "rows": (
        lambda a, b, bias: ours.gemm(a, b, epilogue=["row_bias", "expr: acc + row"], row_bias=bias),
        lambda a, b, bias: a @ b + (bias + torch.arange(5))[:, None],
        (0, None, None),
        (draw(4, 5, 7), draw(7, 6), draw(5)),
    ),
}


@pytest.mark.parametrize("case", VMAPS)
def test_vmap(case: str) -> None:
    function, right, axes, tensors = VMAPS[case]
    torch.testing.assert_close(torch.vmap(function, axes)(*tensors), torch.vmap(right, axes)(*tensors))


def test_gradients_through_vmap_of_c_alone() -> None:
    a, b, c = draw(5, 7, grad=True), draw(7, 6, grad=True), draw(4, 5, 6, grad=True)
    result = torch.vmap(lambda c: ours.gemm(a, b, c, beta=2))(c)
    for found, known in zip(gradients(result, (a, b, c)), gradients(a @ b + 2 * c, (a, b, c)), strict=True):
        torch.testing.assert_close(found, known)


def test_an_operand_that_nothing_names_is_refused_under_vmap() -> None:
    a, b = draw(5, 7), draw(7, 6)
    with pytest.raises(SpecError, match="bias means nothing to a kernel whose epilogue does not name it"):
        torch.vmap(lambda bias: ours.gemm(a, b, bias=bias, epilogue="relu"))(draw(4, 6))


def test_vmap_twice() -> None:
    a, b = draw(2, 4, 5, 7), draw(2, 4, 7, 6)
    torch.testing.assert_close(torch.vmap(torch.vmap(ours.gemm))(a, b), a @ b)


def test_functional_transforms() -> None:
    a, b, v = draw(5, 7), draw(7, 6), draw(4, 5, 7)
    func = torch.func

    def loss(a: Tensor, b: Tensor) -> Tensor:
        return (ours.gemm(a, b, epilogue="gelu") ** 3).sum()

    def right(a: Tensor, b: Tensor) -> Tensor:
        return (functional.gelu(a @ b) ** 3).sum()

    transforms: tuple[Callable[[Callable[..., Tensor]], Tensor], ...] = (
        lambda f: func.grad(f, (0, 1))(a, b),
        lambda f: torch.vmap(func.grad(f), (0, None))(v, b),
        lambda f: func.jacrev(func.grad(f))(a, b),
        lambda f: func.vjp(f, a, b)[1](torch.ones((), dtype=torch.float64)),
    )
    for transform in transforms:
        torch.testing.assert_close(transform(loss), transform(right))


def test_forward_mode_is_refused() -> None:
    a, b = draw(5, 7), draw(7, 6)
    with pytest.raises(SpecError, match=r"forward-mode tangent.*: use backward\(\)"):
        torch.func.jvp(lambda a: ours.gemm(a, b), (a,), (a,))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(SpecError, match="forward-mode tangent"):
        ours.gemm(a, torch.autograd.forward_ad.make_dual(b, b))


def test_under_no_grad_and_in_inference_mode() -> None:
    """Weights that require a gradient are taken, also by `gemmgen.gemm`."""
    layer, x = torch.nn.Linear(7, 6), draw(5, 7, dtype=torch.float32)
    right = layer(x).detach()
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            for result in (
                ours.linear(x, layer.weight, layer.bias),
                gemmgen.gemm(x, layer.weight, transpose_b=True, epilogue="bias", bias=layer.bias),
            ):
                assert not result.requires_grad
                torch.testing.assert_close(result, right)
    with pytest.raises(SpecError, match=r"b requires a gradient: call gemmgen\.torch\.gemm.*b\.detach\(\)"):
        gemmgen.gemm(x, layer.weight, transpose_b=True)


def test_autocast() -> None:
    """float32 and 16-bit floats are multiplied in autocast's type; others, and all outside of it, are left alone."""
    x, layer = draw(5, 7, dtype=torch.float32), ours.Linear(7, 6, activation="gelu")
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            result = layer(x)
            assert (result.dtype, torch.mm(x, x.mT).dtype) == (dtype, dtype)
            assert ours.gemm(x.half(), x.mT).dtype == dtype
            assert ours.gemm(x.double(), x.double().mT).dtype == torch.float64
            assert ours.gemm(x.to(torch.int8), x.to(torch.int8).mT).dtype == torch.int8
        result.sum().backward()
        assert layer.weight.grad is not None and layer.weight.grad.dtype == torch.float32
    assert layer(x).dtype == torch.float32


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compile(backend: str) -> None:
    """The whole layer as one graph, forward and backward."""
    torch._dynamo.reset()
    layer = ours.Linear(7, 6, activation="gelu")
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    x = draw(5, 7, dtype=torch.float32, grad=True)
    tensors = x, layer.weight, layer.bias
    right = functional.gelu(functional.linear(*tensors))
    result = compiled(x)
    torch.testing.assert_close(result, right)
    for found, known in zip(gradients(result, tensors), gradients(right, tensors), strict=True):
        torch.testing.assert_close(found, known)


def test_compile_for_any_size() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(
        lambda a, b: ours.gemm(a, b, epilogue="relu"), fullgraph=True, dynamic=True, backend="aot_eager"
    )
    b = draw(7, 6)
    for rows in (3, 4, 9):
        torch.testing.assert_close(compiled(draw(rows, 7), b), (draw(rows, 7) @ b).relu())
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_a_mistake_is_told_while_compiling() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(ours.gemm, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="a has k = 7, b k = 5"):
        compiled(draw(5, 7), draw(5, 7))
    layer = torch.compile(ours.linear, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match="activation 'bias' takes bias"):
        layer(draw(5, 7), draw(6, 7), draw(6), "bias")


def test_export() -> None:
    layer = ours.Linear(7, 6, activation=("silu", "clamp(0, 1)"))
    rows = torch.export.Dim("rows")
    program = torch.export.export(layer, (draw(5, 7, dtype=torch.float32),), dynamic_shapes=({0: rows},))
    assert [node.target for node in program.graph.nodes if node.op == "call_function"] == [
        torch.ops.gemmgen.gemm.default
    ]
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    x = draw(9, 7, dtype=torch.float32)
    torch.testing.assert_close(torch.export.load(file).module()(x), layer(x))


def test_tensors_without_elements() -> None:
    """Meta tensors, and fake tensors of a GPU that is not there."""
    result = ours.gemm(draw(3, 5, 7).to("meta"), draw(7, 6).to("meta"), dtype=torch.float32)
    assert (str(result.device), result.shape, result.dtype) == ("meta", (3, 5, 6), torch.float32)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        for name, dtype in {"int8": "int32", "float8_e4m3fn": "bfloat16", "float16": "float16"}.items():
            x = torch.empty(4, 4, dtype=getattr(torch, name), device="cuda")
            assert (ours.gemm(x, x).dtype, str(ours.gemm(x, x).device)) == (getattr(torch, dtype), "cuda:0")
    with pytest.raises(SpecError, match=r"a is a tensor on meta, without elements: call gemmgen\.torch\.gemm"):
        gemmgen.gemm(draw(3, 3).to("meta"), draw(3, 3).to("meta"))


def test_views_are_read_as_they_are() -> None:
    """Conjugated and negated views, strides, and tensors of subclasses."""
    a, b = draw(5, 7, dtype=torch.complex64), draw(5, 6, dtype=torch.complex64)
    torch.testing.assert_close(ours.gemm(a.mH, b), a.mH @ b)
    torch.testing.assert_close(ours.gemm(b.conj(), a.conj(), transpose_a=True), b.mH @ a.conj())
    torch.testing.assert_close(ours.gemm(a.conj().imag, b.real, transpose_a=True), a.conj().imag.mT @ b.real)
    c = draw(6, 7, dtype=torch.complex64)
    torch.testing.assert_close(ours.gemm(b.mT, a, c.conj(), beta=1), b.mT @ a + c.conj())
    x = draw(10, 14)[::2, ::2]
    torch.testing.assert_close(ours.gemm(x, x.flip(0), transpose_b=True), x @ x.flip(0).mT)

    # A subclass, which torch's functions keep.
    assert type(ours.gemm(x.as_subclass(NAMED), x, transpose_b=True)) is NAMED


def test_a_mode_sees_the_operator() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []
    a, b = draw(3, 3), draw(3, 3)

    def log(
        _: object,
        function: Callable[..., Tensor],
        types: object,
        args: Tensors = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        seen.append(function)
        return function(*args, **(kwargs or {}))

    with type("Log", (TorchDispatchMode,), {"__torch_dispatch__": log})():
        ours.gemm(a, b)
    assert seen == [torch.ops.gemmgen.gemm.default]


def test_plain_tensors_go_straight() -> None:
    """Without the dispatcher, where it has nothing to do."""
    plain, weight = draw(3, 3), torch.nn.Parameter(draw(3, 3))
    assert operator.is_ordinary((plain, plain, None))
    assert not operator.is_ordinary((plain, weight))
    with torch.no_grad():
        assert operator.is_ordinary((plain, weight))
    with torch.inference_mode():
        assert operator.is_ordinary((draw(3, 3), weight))
    with torch.autocast("cpu"):
        assert not operator.is_ordinary((plain, plain))
    for other in (plain.to_sparse(), plain.to("meta"), plain.cfloat().conj(), plain.as_subclass(NAMED)):
        assert not operator.is_ordinary((plain, other)) and not operator.is_ordinary((other, plain))
    torch.vmap(lambda x: _refused_under_vmap(x, plain))(plain)


def _refused_under_vmap(x: object, plain: object) -> object:
    assert not operator.is_ordinary((x, plain))
    return x


@pytest.mark.parametrize("straight", [True, False])
def test_a_tensor_for_the_result(straight: bool) -> None:
    """By the function and by the operator's overload; views and another addend among them."""
    call = ours.gemm if straight else torch.ops.gemmgen.gemm.out
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        a, b, c = (torch.randint(-3, 4, shape).to(dtype) for shape in ((5, 7), (7, 6), (6,)))
        for out in (
            torch.empty(5, 6, dtype=dtype),
            torch.empty(6, 5, dtype=dtype).mT,
            torch.empty(5, 9).to(dtype)[:, 2:8],
        ):
            version = out._version
            assert call(a, b, out=out) is out or not straight
            assert torch.equal(out, a @ b)
            call(a, b, c, alpha=2, beta=3, out=out)
            assert torch.equal(out, 2 * (a @ b) + 3 * c)
            assert out._version == version + 2
    with torch.inference_mode():
        out = torch.empty(4, 4)
        assert torch.equal(call(torch.eye(4), torch.eye(4), out=out), torch.eye(4))


def test_mistakes_with_a_tensor_for_the_result() -> None:
    a, b = torch.randn(5, 7), torch.randn(7, 6)
    out, asking = torch.empty(5, 6), torch.randn(5, 7, requires_grad=True)
    with pytest.raises(SpecError, match="out= records no gradient, and a tensor requires one: leave out= out"):
        ours.gemm(asking, b, out=out)
    with torch.no_grad():
        torch.testing.assert_close(ours.gemm(asking, b, out=out), asking @ b)
    with pytest.raises(SpecError, match="out has the non-broadcastable shape 6x5, not 5x6"):
        ours.gemm(a, b, out=out.mT)
    with pytest.raises(SpecError, match="out has shape 6x5, not 5x6: pass one of exactly that shape"):
        ours.gemm(a.to("meta"), b.to("meta"), out=out.mT.to("meta"))
    with pytest.raises(SpecError, match="out overlaps a in memory: pass another out, or a copy of a"):
        ours.gemm(out, torch.eye(6), out=out)
    with pytest.raises(SpecError, match="elements of out share memory"):
        ours.gemm(a, b, out=torch.empty(1, 6).expand(5, 6))


def test_a_tensor_for_the_result_while_compiling() -> None:
    a, b, c = (torch.randn(*shape, dtype=torch.float16) for shape in ((5, 7), (7, 6), (5, 6)))
    into = torch.compile(lambda out: ours.gemm(a, b, c, beta=2, out=out), fullgraph=True, backend="aot_eager")
    for dtype in (torch.float16, torch.float32):
        out, right = torch.empty(5, 6, dtype=dtype), torch.empty(5, 6, dtype=dtype)
        assert into(out) is out
        ours.gemm(a, b, c, beta=2, out=right)
        assert torch.equal(out, right)
    with pytest.raises(Exception, match="another shape than the result: pass one of exactly that shape"):
        into(torch.empty(2, 5, 6))


@pytest.mark.parametrize("layout", ["sparse", "sparse_csr", "sparse_csc", "sparse_bsr", "mkldnn"])
def test_tensors_without_strides_are_refused(layout: str) -> None:
    made = getattr(torch.eye(4), f"to_{layout}")
    tensor, plain = made((2, 2)) if layout == "sparse_bsr" else made(), torch.eye(4)
    with pytest.raises(SpecError, match=r"^a is (sparse|of layout \w+): pass a.to_dense\(\)$"):
        gemmgen.gemm(tensor, plain)
    with pytest.raises(SpecError, match=r"^out is (sparse|of layout \w+): pass out.to_dense\(\)$"):
        gemmgen.gemm(plain, plain, out=tensor)
    with pytest.raises(SpecError, match=r"a is (sparse|of layout \w+): pass a.to_dense\(\)"):
        gemmgen.grouped(tensor, plain[None], [4])


def test_nested_tensors_are_refused() -> None:
    parts = [torch.randn(3, 7), torch.randn(4, 7)]
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor(parts, layout=layout)
        for call in (ours.gemm, ours.grouped):
            with pytest.raises(SpecError, match=r"nested.*: pass torch.nested.to_padded_tensor"):
                call(nested, torch.randn(2, 7, 6), *([torch.tensor([3, 7])] if call is ours.grouped else []))


def test_gemm_of_tensors_is_that_of_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU: prepared once, and replayed; what NumPy does not see is checked with torch's words."""
    module, checked = import_module("gemmgen.api.gemm"), list[object]()
    full = module._checked

    def count_and_check(*args: object) -> object:
        checked.append(args)
        return full(*args)

    monkeypatch.setattr(module, "_checked", count_and_check)
    a, b = torch.empty(1, 1), torch.empty(1, 1)
    for count in range(3):
        a, b = torch.randn(5, 7, dtype=torch.bfloat16), torch.randn(7, 6, dtype=torch.bfloat16)
        out = torch.empty(5, 6, dtype=torch.bfloat16)
        torch.testing.assert_close(gemmgen.gemm(a, b), a @ b)
        assert gemmgen.gemm(a, b, out=out) is out
        assert torch.equal(out, gemmgen.gemm(a, b))
        checked[:] = checked[: 0 if count == 0 else None]
    assert not checked
    assert gemmgen.gemm(a[0], b[:, 0]).shape == ()
    with pytest.raises(SpecError, match="a requires a gradient"):
        gemmgen.gemm(a.requires_grad_(), b)


def test_the_layer() -> None:
    layer, x = torch.nn.Linear(7, 6), draw(2, 5, 7, dtype=torch.float32)
    own = ours.Linear.of(layer, "gelu")
    assert own.weight is layer.weight and own.bias is layer.bias
    assert own.state_dict().keys() == layer.state_dict().keys()
    assert repr(own) == "Linear(in_features=7, out_features=6, bias=True, activation=gelu)"
    torch.testing.assert_close(own(x), functional.gelu(layer(x)))
    bare = ours.Linear(7, 6, bias=False, dtype=torch.float64)
    torch.testing.assert_close(bare(x.double()), functional.linear(x.double(), bare.weight))
    assert not ours.Linear.of(layer.eval()).training
    with pytest.raises(SpecError, match=r"activation 'residual' takes residual, .*: call gemmgen\.torch\.gemm"):
        ours.Linear(7, 6, activation=("residual", "relu"))
    with pytest.raises(SpecError, match="did you mean gelu"):
        ours.Linear(7, 6, activation="gelo")
    with pytest.raises(SpecError) as error:
        ours.Linear(7, 6, activation=["bias", "nope", "expr: acc * scale"])
    assert len(error.value.problems) == 3
    with pytest.raises(SpecError, match=r"'swiglu' halves the features.*: call gemmgen\.torch\.linear\(x, weight, act"):
        ours.Linear(7, 6, activation="swiglu")
    halved = functional.silu(x @ layer.weight[:3].mT) * (x @ layer.weight[3:].mT)
    torch.testing.assert_close(ours.linear(x, layer.weight, activation="swiglu"), halved)
    with pytest.raises(SpecError, match="has None of type NoneType: pass a text, or a list of texts"):
        ours.Linear(7, 6, activation=[None])  # type: ignore[list-item]
    for other in (None, torch.nn.Conv1d(7, 6, 1)):
        with pytest.raises(SpecError, match=r"the layer is of type \w+: pass a torch.nn.Linear"):
            ours.Linear.of(other)
    with pytest.raises(SpecError, match="the layer's parameters have no shape yet: call it once before"):
        ours.Linear.of(torch.nn.LazyLinear(6))


def test_a_traced_layer_is_one_node() -> None:
    layer, x = ours.Linear(7, 6, activation="gelu"), draw(2, 5, 7, dtype=torch.float32)
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(layer))
    assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [ours.linear]
    assert torch.equal(traced(x), layer(x))


def test_mistakes() -> None:
    a, b = draw(5, 7), draw(7, 6)
    calls: dict[str, Callable[[], Tensor]] = {
        r"a 5x7 and b 5x7 .* k = 7, b k = 5; transpose one": lambda: ours.gemm(a, a),
        r"a is a scalar.*: multiply by \*": lambda: ours.gemm(a[0, 0], b),
        r"bias has 5 elements, not 6: pass one for each column": lambda: ours.gemm(a, b, epilogue="bias", bias=a[:, 0]),
        r"bias is missing.*: pass bias=": lambda: ours.gemm(a, b, epilogue="bias"),
        r"no function 'gelo': did you mean gelu": lambda: ours.gemm(a, b, epilogue="gelo"),
        r"beta = 1 adds to a c that was not given: pass c": lambda: ours.gemm(a, b, beta=1),
        r"alpha = 0.5 is no whole number": lambda: ours.gemm(a.int(), b.int(), alpha=0.5),
        r"b is of type ndarray, not a tensor: pass torch.as_tensor\(b\)": lambda: ours.gemm(a, b.numpy()),
        "an argument is of type list, not a tensor": lambda: ours.gemm(a, b, epilogue="bias", bias=[0.0] * 6),
        "activation = 5 has 5 of type int: pass a text": lambda: ours.linear(a, b.t(), activation=5),  # type: ignore[arg-type]
        "activation 'bias' takes bias, but an activation has no operands: call": lambda: ours.linear(
            a, b.t(), b[0], "bias"
        ),
        r"x is of type ndarray, not a tensor.*\n*bias is of type int": lambda: ours.linear(a.numpy(), b.t(), 1),
        r"a has layout torch.sparse_coo .*: pass a.to_dense\(\)": lambda: ours.gemm(a.to_sparse(), b),
        r"b is on cpu, but a on meta: pass b.to\('meta'\)": lambda: ours.gemm(a.to("meta"), b),
        r"bias has shape 5, not 6": lambda: ours.gemm(
            a.to("meta"), b.to("meta"), epilogue="bias", bias=a[:, 0].to("meta")
        ),
    }
    for message, call in calls.items():
        with pytest.raises(SpecError, match=message):
            call()
    with pytest.raises(DtypeError, match=r"have no type in common"):
        ours.gemm(a.to(torch.float8_e4m3fn).to("meta"), b.to(torch.float8_e5m2).to("meta"))
    with pytest.raises(DtypeError, match=r"dtype torch.int32 does not hold products of torch.float64"):
        ours.gemm(a.to("meta"), b.to("meta"), dtype=torch.int32)


@pytest.mark.parametrize("asks", [False, True], ids=["plain", "with a gradient"])
def test_what_is_no_tensor_is_taken_with_and_without_a_gradient(asks: bool) -> None:
    gemm: Any = ours.gemm
    grouped: Any = ours.grouped
    a, b, c = draw(5, 7, dtype=torch.float32, grad=asks), draw(7, 6, dtype=torch.float32), draw(6, dtype=torch.float32)
    right = 2 * (a @ b).detach()
    for alpha in (2, np.float32(2), np.int8(2), Fraction(2)):
        torch.testing.assert_close(gemm(a, b, alpha=alpha).detach(), right)
    assert gemm(a, b, alpha=2**63).isfinite().all() and gemm(a, b, alpha=2**70).isfinite().all()
    for dtype in (torch.float64, "float64", np.float64, np.dtype("float64")):
        for more in ({}, {"c": c, "beta": np.float64(1)}):
            result = gemm(a, b, **more, dtype=dtype)
            assert result.dtype == torch.float64 and result.requires_grad == asks
    assert gemm(a, b, transpose_a=np.bool_(False), epilogue=("relu",)).shape == (5, 6)
    ends, of_groups = torch.tensor([5], dtype=torch.int32), b.unsqueeze(0)
    result = grouped(a, of_groups, ends, alpha=np.float32(2), dtype="float64", zero_rest=np.bool_(True))
    torch.testing.assert_close(result.detach().float(), right)
    calls: dict[str, Mapping[str, object]] = {
        "alpha = 'x' is of type str: pass a number": {"alpha": "x"},
        r"alpha = tensor\(2\.\) is of type Tensor: pass a number": {"alpha": torch.tensor(2.0)},
        "epilogue = 5 is of type int: pass a text, or a list": {"epilogue": 5},
        r"epilogue = \(5,\): give a tuple of texts": {"epilogue": [5]},
        "dtype = 'nope' is no element type": {"dtype": "nope"},
        "dtype = 'object' is no type of a tensor: pass one such as torch.float32": {"dtype": "object"},
        r"beta = 'x' is of type str: pass a number\ndtype = 'nope' is no": {"c": c, "beta": "x", "dtype": "nope"},
        "an argument is of type ndarray, not a tensor: pass": {"c": c.numpy()},
    }
    for message, options in calls.items():
        for call, tensors in ((gemm, (a, b)), (grouped, (a, of_groups, ends))):
            with pytest.raises(SpecError, match=message):
                call(*tensors, **options)
    with pytest.raises(SpecError, match="transpose_a = 'x' is of type str: pass True or False"):
        gemm(a, b, transpose_a="x")
    with pytest.raises(SpecError, match="zero_rest = 'x' is of type str: pass True or False"):
        grouped(a, of_groups, ends, zero_rest="x")


def test_remedies_work() -> None:
    a, b = draw(5, 7, dtype=torch.float32), draw(7, 6, dtype=torch.float32)
    packed = gemmgen.prepack(b.numpy())
    calls: tuple[Callable[[], Tensor], ...] = (lambda: ours.gemm(a, packed), lambda: ours.linear(a, packed))
    for call in calls:
        with pytest.raises(SpecError, match=r"is of type Packed.*: call gemmgen\.gemm with it, under torch\.no_grad"):
            call()
    with torch.no_grad():
        assert gemmgen.gemm(a.requires_grad_(), packed).shape == (5, 6)
    a = a.detach()
    with pytest.raises(SpecError, match=r"a is None, not a tensor: pass one\nb is of type int"):
        ours.gemm(None, 5)
    with pytest.raises(DtypeError, match=r"float8_e5m2 and b of float32 have no type in common: cast one by .to\(\)$"):
        ours.gemm(a.to(torch.float8_e5m2), b)
    with pytest.raises(DtypeError, match=r"dtype int32 does not hold products of float32: cast a and b by .to\(\),"):
        ours.gemm(a, b, dtype=torch.int32)
    with pytest.raises(
        SpecError, match=r"bias of complex64 can't be cast to float32 \(same_kind\): cast it by .to\(\)$"
    ):
        ours.gemm(a, b, epilogue="bias", bias=b[0].cfloat())
    half = a.to(torch.complex32)
    with pytest.raises(SpecError, match=r"complex32, which no kernel takes: pass a.to\(torch.complex64\)"):
        ours.gemm(half, half.mT)
    assert ours.gemm(half.to(torch.complex64), b).dtype == torch.complex64


def test_the_flag_of_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read by the name that it was set by. On the CPU it means nothing."""
    matmul = torch.backends.cuda.matmul
    before = torch.get_float32_matmul_precision()
    try:
        for precision, allowed in (("high", True), ("medium", True), ("highest", False)):
            torch.set_float32_matmul_precision(precision)
            assert tf32.is_enabled() is allowed
        matmul.allow_tf32 = True
        assert tf32.is_enabled() and not tf32.is_allowed(draw(256, 256).float(), draw(256, 256).float())
        if hasattr(matmul, "fp32_precision"):
            matmul.fp32_precision = "ieee"
            assert not tf32.is_enabled()
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_symbol_is_a_number_and_a_flag() -> None:
    """Of graphs whose sizes are symbols."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def call(x: Tensor, w: Tensor) -> Tensor:
        scaled = ours.gemm(x, w, alpha=x.shape[0], transpose_b=x.shape[0] > 3, epilogue=("relu",))
        return scaled + ours.gemm(x, w, alpha=1 / x.shape[0], transpose_b=True)

    x, w = torch.randn(5, 7), torch.randn(3, 7)
    graph = make_fx(call, tracing_mode="symbolic")(x, w)
    torch.testing.assert_close(graph(x, w), (5 * x @ w.T).relu() + x @ w.T / 5)


def test_a_compiled_layer_refuses_what_is_no_function() -> None:
    wrong = torch.compile(lambda x, w: ours.linear(x, w, None, "nonsense"), backend="eager")
    with pytest.raises(Exception, match="no function 'nonsense'"):
        wrong(torch.randn(5, 7), torch.randn(3, 7))
