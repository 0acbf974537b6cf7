"""gemmgen in PyTorch on a GPU: types, layouts, gradients, torch's compilers and graphs, its flags, and mistakes.

torch's own samples run on a GPU in `test_torch_samples.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

import gemmgen
from gemmgen.errors import SpecError
from tests.support.skips import GPU
from tests.support.tensors import need_torch

torch = need_torch()
if not torch.cuda.is_available():
    pytest.skip(f"{GPU} that torch finds", allow_module_level=True)

from torch import Tensor  # noqa: E402  (it must be there)

import gemmgen.torch as ours  # noqa: E402
from gemmgen.torch import operator  # noqa: E402

functional = torch.nn.functional
#: torch's compilers warn of themselves, and of Python's.
pytestmark = pytest.mark.filterwarnings("ignore")

FLOATS = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")
#: Rows, columns, depth: a vector, ragged, whole tiles, and what splits K.
SHAPES = ((1, 1, 1), (1, 4096, 512), (33, 65, 20), (190, 131, 100), (256, 384, 128), (64, 64, 8192))
HAS_FLOAT8 = torch.cuda.get_device_capability() >= (8, 9)


def draw(*shape: int, dtype: object = None, grad: bool = False) -> Tensor:
    """Normal random numbers on the GPU, float32 by default."""
    generator = torch.Generator("cuda").manual_seed(sum(shape) + len(shape))
    made = torch.randn(shape, generator=generator, device="cuda", dtype=torch.float64)
    return made.to(dtype or torch.float32).requires_grad_(grad)


def whole(dtype: str, *shape: int) -> Tensor:
    """Small whole numbers, of which every type holds a product."""
    generator = torch.Generator("cuda").manual_seed(sum(shape))
    return torch.randint(-2, 3, shape, generator=generator, device="cuda").to(getattr(torch, dtype))


def gradients(result: Tensor, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    found: Sequence[Tensor] = torch.autograd.grad(result, tensors, torch.ones_like(result))
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_types_and_orders(dtype: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = whole(dtype, m, k), whole(dtype, k, n)
    right = (a.to(torch.complex128) @ b.to(torch.complex128)).to(a.dtype)
    for x in (a, a.mT.contiguous().mT):
        for y in (b, b.mT.contiguous().mT):
            assert torch.equal(ours.gemm(x, y), right)
            assert torch.equal(ours.gemm(x.mT, y.mT, transpose_a=True, transpose_b=True), right)
    if a.is_complex():
        assert torch.equal(ours.gemm(b.mH, a.mH), right.mH)


def test_result_types() -> None:
    """As the table of docs/types.md says of tensors on a GPU, by either interface."""
    expected = {"float16": "float16", "bfloat16": "bfloat16", "int8": "int32", "int32": "int32", "int64": "int64"}
    expected |= {"uint8": "uint8", "int16": "int16"} | (
        {"float8_e4m3fn": "bfloat16", "float8_e5m2": "bfloat16"} if HAS_FLOAT8 else {}
    )
    for name, result in expected.items():
        x = torch.ones(32, 32, device="cuda").to(getattr(torch, name))
        for gemm in (gemmgen.gemm, ours.gemm):
            assert gemm(x, x).dtype == getattr(torch, result), name
            assert torch.equal(gemm(x, x).float(), torch.full((32, 32), 32.0, device="cuda")), name
    a = torch.full((32, 300), 100, dtype=torch.int8, device="cuda")
    assert torch.equal(ours.gemm(a, a.mT), torch.full((32, 32), 3_000_000, dtype=torch.int32, device="cuda"))
    assert torch.equal(ours.gemm(a, a.mT, dtype=torch.int8).cpu(), a.cpu() @ a.cpu().mT)
    x = draw(32, 32, dtype=torch.bfloat16)
    assert ours.gemm(x, x, dtype=torch.float32).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
def test_the_layer_and_its_gradients(activation: str | None, dtype: object) -> None:
    layer = torch.nn.Linear(512, 384, device="cuda", dtype=dtype)
    own = ours.Linear.of(layer, activation)
    x = draw(2, 65, 512, dtype=dtype, grad=True)
    plain: dict[str | None, Callable[[Tensor], Tensor]] = {
        None: lambda t: t,
        "relu": functional.relu,
        "gelu": functional.gelu,
        "silu": functional.silu,
    }
    exact = [t.detach().double().requires_grad_() for t in (x, layer.weight, layer.bias)]
    right, result = plain[activation](functional.linear(*exact)), own(x)
    assert result.dtype == dtype
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(result.double(), right, rtol=4 * unit, atol=32 * unit)
    for found, known in zip(gradients(result, (x, layer.weight, layer.bias)), gradients(right, exact), strict=True):
        # relu's derivative jumps where rounding may change a sign.
        error = (found.double() - known).norm() / known.norm()
        assert found.dtype == dtype and float(error) < 16 * unit


def test_the_check_of_torch_and_of_gradients() -> None:
    a, b, bias = (
        draw(9, 17, dtype=torch.float64, grad=True),
        draw(17, 8, dtype=torch.float64),
        draw(8, dtype=torch.float64),
    )
    options = {"epilogue": ["bias", "gelu"], "alpha": 0.5}
    found = torch.library.opcheck(torch.ops.gemmgen.gemm.default, (a, b, None, bias), options)
    assert len(found) == 4 and set(found.values()) == {"SUCCESS"}
    b.requires_grad_()
    bias.requires_grad_()

    def function(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        return ours.gemm(a, b, alpha=0.5, epilogue=["bias", "gelu"], bias=bias)

    assert torch.autograd.gradcheck(function, (a, b, bias))
    assert torch.autograd.gradgradcheck(function, (a, b, bias))


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_compile(mode: str | None) -> None:
    """The whole layer as one graph, forward and backward; `reduce-overhead` captures CUDA graphs of it."""
    torch._dynamo.reset()
    layer = ours.Linear(256, 128, activation="gelu", device="cuda")
    compiled = torch.compile(layer, fullgraph=True, mode=mode)
    for _ in range(4):  # a graph is captured at the second or third call
        x = draw(64, 256, grad=True)
        tensors = x, layer.weight, layer.bias
        right = functional.gelu(functional.linear(*tensors))
        result = compiled(x)
        torch.testing.assert_close(result, right, rtol=1e-4, atol=1e-4)
        for found, known in zip(gradients(result, tensors), gradients(right, tensors), strict=True):
            torch.testing.assert_close(found, known, rtol=1e-4, atol=1e-3)


def test_export() -> None:
    layer, x = ours.Linear(64, 32, activation="relu", device="cuda"), draw(9, 64)
    program = torch.export.export(layer, (draw(5, 64),), dynamic_shapes=({0: torch.export.Dim("rows")},))
    torch.testing.assert_close(program.module()(x), layer(x))


@pytest.mark.parametrize("shape", [(128, 256, 64), (64, 64, 8192), (1, 512, 1024), (130, 70, 33)], ids=str)
def test_a_graph_of_cuda(shape: tuple[int, int, int]) -> None:
    """Captured by torch's recipe after a warm-up on another stream, and right under changed inputs."""
    m, n, k = shape
    x, w, bias = draw(m, k), draw(n, k), draw(n)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad():
        with torch.cuda.stream(stream):
            for _ in range(3):
                ours.linear(x, w, bias, "relu")
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = ours.linear(x, w, bias, "relu")
        for seed in range(3):
            x.copy_(torch.randn(m, k, generator=torch.Generator().manual_seed(seed)))
            graph.replay()
            right = functional.linear(x.double(), w.double(), bias.double()).relu()
            torch.testing.assert_close(result.double(), right, rtol=1e-4, atol=1e-5 * k)


def test_streams() -> None:
    """A result belongs to torch's current stream."""
    a, b = draw(512, 512, dtype=torch.float64), draw(512, 512, dtype=torch.float64)
    right = a @ b
    for _ in range(8):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.zeros_like(a)
            torch.cuda._sleep(10_000_000)
            x.copy_(a)
            result = ours.gemm(x, b)
        torch.cuda.current_stream().wait_stream(stream)
        torch.testing.assert_close(result, right)


def test_vmap() -> None:
    a, b, bias = draw(4, 5, 7), draw(4, 7, 6), draw(4, 6)
    torch.testing.assert_close(torch.vmap(ours.gemm)(a, b), a @ b, rtol=1e-5, atol=1e-5)
    found = torch.vmap(lambda a, bias: ours.gemm(a, b[0], epilogue=["bias", "relu"], bias=bias))(a, bias)
    torch.testing.assert_close(found, (a @ b[0] + bias[:, None]).relu(), rtol=1e-5, atol=1e-5)


def test_permuted_heads() -> None:
    """Attention's products of heads that lie between each other in memory."""
    q, k = (draw(2, 33, 4, 64, dtype=torch.bfloat16).transpose(1, 2) for _ in range(2))
    right = q.double() @ k.double().mT
    torch.testing.assert_close(ours.gemm(q, k, transpose_b=True).double(), right, rtol=0.01, atol=0.05)


def test_autocast() -> None:
    layer, x = ours.Linear(64, 32, activation="gelu", device="cuda"), draw(9, 64)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cuda", dtype=dtype):
            result = layer(x)
            assert result.dtype == dtype
            assert ours.gemm(x.double(), x.double().mT).dtype == torch.float64
        torch.testing.assert_close(result.float(), layer(x), rtol=0.02, atol=0.02)
        result.float().sum().backward()
        assert layer.weight.grad is not None and layer.weight.grad.dtype == torch.float32


def test_inference_mode() -> None:
    layer, x = torch.nn.Linear(64, 32, device="cuda"), draw(9, 64)
    right = layer(x).detach()
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            torch.testing.assert_close(ours.linear(x, layer.weight, layer.bias), right)
            torch.testing.assert_close(gemmgen.gemm(x, layer.weight, transpose_b=True) + layer.bias, right)
            assert operator.is_ordinary((x, layer.weight))
    with pytest.raises(SpecError, match=r"b requires a gradient: call gemmgen\.torch\.gemm"):
        gemmgen.gemm(x, layer.weight, transpose_b=True)


@pytest.mark.parametrize("shape", [(512, 512, 512), (1024, 1024, 1024), (2048, 4096, 512), (512, 520, 511)], ids=str)
def test_tf32_is_used_if_allowed_and_not_otherwise(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    x, w, bias = draw(m, k), draw(n, k), draw(n)
    exact = functional.linear(x.double(), w.double(), bias.double()).relu()
    size = functional.linear(x.double().abs(), w.double().abs(), bias.double().abs())
    before = torch.get_float32_matmul_precision()
    errors = {}
    try:
        for precision in ("highest", "high"):
            torch.set_float32_matmul_precision(precision)
            errors[precision] = float(((ours.linear(x, w, bias, "relu").double() - exact).abs() / size).max())
            product = ours.gemm(x.mT.contiguous(), w, transpose_a=True, transpose_b=True).double()
            assert float(((product - (exact.new_tensor(0) + x.double() @ w.double().mT)).abs() / size).max()) < 2e-3
    finally:
        torch.set_float32_matmul_precision(before)
    # 24 bits, and the 10 after the point of TF32.
    assert errors["highest"] < 1e-6 * k**0.5
    assert 1e-6 < errors["high"] < 2.0**-10


def test_a_mistake_does_not_harm_the_device() -> None:
    """It raises before anything is launched, and the next product is right."""
    a, b = draw(64, 32), draw(32, 48)
    mistakes: dict[str, Callable[[], Tensor]] = {
        r"a has k = 32, b k = 64": lambda: ours.gemm(a, a),
        r"b is torch \(CPU\)'s|mixed|lies on": lambda: ours.gemm(a, b.cpu()),
        r"bias has 64 elements, not 48|bias has shape": lambda: ours.gemm(a, b, epilogue="bias", bias=a[:, 0]),
        r"to_dense": lambda: ours.gemm(a.to_sparse(), b),
        r"overlaps a in memory": lambda: gemmgen.gemm(a, draw(32, 32), out=a),
    }
    for message, call in mistakes.items():
        with pytest.raises(SpecError, match=message):
            call()
        torch.cuda.synchronize()
        torch.testing.assert_close(ours.gemm(a, b), a @ b, rtol=1e-4, atol=1e-4)


def test_views_at_any_address() -> None:
    """Operands that begin inside a vector, and lines of an odd length."""
    for dtype in (torch.bfloat16, torch.float32):
        a, b = draw(130, 67, dtype=dtype)[1:, 3:], draw(64, 131, dtype=dtype)[:, 1:]
        right = a.double() @ b.double()
        error = (ours.gemm(a, b).double() - right).norm() / right.norm()
        assert float(error) < 4 * torch.finfo(dtype).eps
