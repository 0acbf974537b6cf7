"""Grouped products in PyTorch, on the CPU and on a GPU if there is one: the operator and its derivatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from gemmgen.epilogue import gate_of
from gemmgen.errors import SpecError
from tests.device.naive import found as devices_found
from tests.support.tensors import need_torch

torch = need_torch()
#: Where tensors lie; all tests but the first are on the first of these.
WHERE = (*(["cpu"] if devices_found() else []), *(["cuda"] if torch.cuda.is_available() else []))
if not WHERE:
    pytest.skip('no OpenCL device here: pip install "gemmgen[cpu]"', allow_module_level=True)
HERE = WHERE[0]

from torch import Tensor  # noqa: E402  (it must be there)

import gemmgen.torch as ours  # noqa: E402

#: torch's compilers warn of themselves, and of Python's.
pytestmark = pytest.mark.filterwarnings("ignore")

#: Groups that are empty, of one row, and of many; two rows that no group has.
ENDS, TOTAL = (0, 5, 5, 6, 17, 17), 19
GROUPS = len(ENDS)
KINDS = ("rows", "k")


def draw(*shape: int, dtype: object = None, where: str = HERE) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(where, dtype or torch.float64)


def operands(kind: str, dtype: object = None, where: str = HERE) -> tuple[Tensor, Tensor, Tensor]:
    """A, B and offsets; n is 4 and k 3, or of groups of K m is 3."""
    ends = torch.tensor(ENDS, dtype=torch.int32, device=where)
    a, b = ((TOTAL, 3), (GROUPS, 3, 4)) if kind == "rows" else ((3, TOTAL), (TOTAL, 4))
    return draw(*a, dtype=dtype, where=where), draw(*b, dtype=dtype, where=where), ends


def loop(a: Tensor, b: Tensor) -> Tensor:
    """A product for each group by torch, with its gradient; rows behind the last group are zeros."""
    parts = list(zip((0, *ENDS), ENDS, strict=False))
    if b.dim() == 2:
        return torch.stack([a[:, begin:end] @ b[begin:end] for begin, end in parts])
    rest = a.new_zeros(TOTAL - ENDS[-1], b.shape[-1])
    return torch.cat([*(a[begin:end] @ b[g] for g, (begin, end) in enumerate(parts)), rest])


def of_rows(x: Tensor) -> Tensor:
    """A line for each group as one for each row."""
    sizes = [end - begin for begin, end in zip((0, *ENDS), ENDS, strict=False)]
    sizes[-1] += TOTAL - ENDS[-1]
    return x.repeat_interleave(torch.tensor(sizes, device=x.device), 0)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_and_its_gradient(kind: str, dtype: object, where: str) -> None:
    a, b, ends = operands(kind, dtype, where)
    a.requires_grad_(), b.requires_grad_()
    result, right = ours.grouped(a, b, ends, zero_rest=True), loop(a, b)
    close = {"rtol": 1e-6, "atol": 1e-5} if dtype in (torch.float64, torch.float32) else {"rtol": 0.02, "atol": 0.05}
    torch.testing.assert_close(result, right, **close)
    weights = draw(*right.shape, dtype=dtype, where=where)
    found, known = (torch.autograd.grad(x, (a, b), weights) for x in (result, right))
    for one, other in zip(found, known, strict=True):
        torch.testing.assert_close(one, other, **close)


CALLS: tuple[tuple[str, Mapping[str, Any], tuple[str, ...]], ...] = (
    ("rows", {}, ()),
    ("k", {"alpha": 0.5}, ()),
    ("rows", {"alpha": 0.5, "beta": 2.0, "epilogue": ["bias", "gelu"]}, ("c", "bias")),
    (
        "k",
        {"beta": 0.75, "epilogue": ["bias", "silu", "row_scale", "residual"]},
        ("c", "bias", "row_scale", "residual"),
    ),
    ("rows", {"epilogue": ["row_bias", "tanh", "scale", "residual"]}, ("row_bias", "scale", "residual")),
    ("rows", {"epilogue": ["expr: acc * (row + 1) * bias + col"]}, ("bias",)),
    ("rows", {"beta": 1, "epilogue": ["expr: 0 if col > row else acc"]}, ("c",)),
    (
        "rows",
        {"epilogue": ["residual", "row_bias", "expr: 0 if col > row else acc"]},
        ("residual", "row_bias"),
    ),
    ("k", {"epilogue": ["bias", "expr: 0 if col > row else acc"]}, ("bias",)),
    ("rows", {"alpha": 0.5, "epilogue": ["swiglu", "residual"]}, ("residual",)),
    ("k", {"epilogue": ["geglu", "bias"]}, ("bias",)),
)


def tensors_of(kind: str, names: Sequence[str], cols: int = 4) -> tuple[list[Tensor], Tensor]:
    """A, B and what is named, each with a gradient; and offsets. C has so many columns."""
    a, b, ends = operands(kind)
    whole = (TOTAL, cols) if kind == "rows" else (GROUPS, 3, cols)
    of_row = (TOTAL,) if kind == "rows" else (GROUPS, 3)
    shapes = {"c": whole, "residual": whole, "row_bias": of_row, "row_scale": of_row}
    drawn = [a, b, *(draw(*shapes.get(name, (GROUPS, cols))) + i / 8 for i, name in enumerate(names))]
    return [x.requires_grad_() for x in drawn], ends


def columns(options: Mapping[str, Any]) -> int:
    """Of C, where B has 4: of a gate 2."""
    return 4 if gate_of(options.get("epilogue", ())) is None else 2


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Memory that nobody has written holds NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("zero_rest", [True, False])
@pytest.mark.parametrize(("kind", "options", "names"), CALLS, ids=range(len(CALLS)))
def test_derivatives(kind: str, options: Mapping[str, Any], names: tuple[str, ...], zero_rest: bool) -> None:
    """Of first and second order, by every tensor, against differences. Rows behind the last group give none."""
    tensors, ends = tensors_of(kind, names, columns(options))

    def function(a: Tensor, b: Tensor, *others: Tensor) -> Tensor:
        named = dict(zip(names, others, strict=True))
        result = ours.grouped(a, b, ends, **named, **options, zero_rest=zero_rest)
        return result if zero_rest or kind == "k" else result[: ENDS[-1]]

    assert torch.autograd.gradcheck(function, tensors)
    assert torch.autograd.gradgradcheck(function, tensors)


@pytest.mark.parametrize(("kind", "options", "names"), CALLS, ids=range(len(CALLS)))
def test_torchs_check_of_operators(kind: str, options: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Schema, autograd, fake kernel, and both together as `torch.compile` uses them."""
    tensors, ends = tensors_of(kind, names, columns(options))
    a, b, *others = tensors
    named = dict(zip(names, others, strict=True))
    order = ("c", "bias", "row_bias", "scale", "row_scale", "residual")
    call = a, b, ends, *(named.get(name) for name in order)
    found = torch.library.opcheck(torch.ops.gemmgen.grouped.default, call, {**options, "zero_rest": True})
    assert len(found) == 4 and set(found.values()) == {"SUCCESS"}


def test_values_of_an_epilogue() -> None:
    a, b, ends = operands("rows")
    bias = draw(GROUPS, 4)
    result = ours.grouped(a, b, ends, bias=bias, epilogue=["bias", "relu"])
    torch.testing.assert_close(result[: ENDS[-1]], (loop(a, b) + of_rows(bias)).relu()[: ENDS[-1]])
    c = draw(TOTAL, 4)
    before = c.clone()
    result = ours.grouped(a, b, ends, c, beta=3)
    torch.testing.assert_close(result[: ENDS[-1]], (loop(a, b) + 3 * c)[: ENDS[-1]])
    assert torch.equal(c, before)


def test_values_of_a_gate() -> None:
    a, b, ends = operands("rows")
    gate, up = loop(a, b).chunk(2, -1)
    right = torch.nn.functional.silu(gate) * up
    torch.testing.assert_close(ours.grouped(a, b, ends, epilogue="swiglu", zero_rest=True), right)
    made = torch.ops.gemmgen.grouped(a.to("meta"), b.to("meta"), ends.to("meta"), epilogue=["swiglu"])
    assert made.shape == (TOTAL, 2)
    with pytest.raises(SpecError, match="swiglu takes two halves of b's columns, but b has 3 columns"):
        ours.grouped(a, b[..., :3], ends, epilogue="swiglu")


@pytest.mark.parametrize("epilogue", [None, ("bias", "expr: acc * row", "silu")], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_without_groups(kind: str, epilogue: tuple[str, ...] | None) -> None:
    """All rows are behind the last group."""
    a, b, ends = operands(kind)
    b, shape = (b[:0], (TOTAL, 4)) if kind == "rows" else (b, (0, 3, 4))
    c, bias = draw(*shape), None if epilogue is None else draw(0, 4)
    tensors = [x.requires_grad_() for x in (a, b, c, bias) if x is not None]
    result = ours.grouped(a, b, ends[:0], c, beta=1, epilogue=epilogue, bias=bias, zero_rest=True)
    assert torch.equal(result, torch.zeros(shape, dtype=torch.float64, device=HERE))
    for x, found in zip(tensors, torch.autograd.grad(result.sum(), tensors), strict=True):
        assert torch.equal(found, torch.zeros_like(x))


def test_it_is_compiled_in_one_graph() -> None:
    """Forward and backward, with as many tokens as there are."""
    a, b, ends = (x.to(torch.float32) if x.is_floating_point() else x for x in operands("rows"))
    a.requires_grad_(), b.requires_grad_()

    def layer(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
        return ours.grouped(a, b, ends, epilogue="silu", zero_rest=True).sum()

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    found, known = (torch.autograd.grad(f(a, b, ends), (a, b)) for f in (compiled, layer))
    for one, other in zip(found, known, strict=True):
        torch.testing.assert_close(one, other)


def test_autocast_and_other_types() -> None:
    a, b, ends = (x.to(torch.float32) if x.is_floating_point() else x for x in operands("rows"))
    with torch.autocast(HERE, torch.bfloat16):
        assert ours.grouped(a, b, ends).dtype == torch.bfloat16
    assert ours.grouped(a, b, ends.to(torch.int64), dtype=torch.float64).dtype == torch.float64
    assert torch.ops.gemmgen.grouped(a.to("meta"), b.to("meta"), ends.to("meta")).shape == (TOTAL, 4)


def test_what_is_refused() -> None:
    a, b, ends = operands("rows")
    cases = {
        "a has 1 dimensions and b 3": (a[0], b, ends),
        "the last of a must be the second-last of b": (a, b.mT, ends),
        "offsets end 2 groups, but b has 6 matrices": (a, b, ends[:2]),
        f"offsets is on meta, but a on {a.device}": (a, b, ends.to("meta")),
    }
    for message, call in cases.items():
        with pytest.raises(SpecError) as error:
            torch.ops.gemmgen.grouped(*call)
        assert message in str(error.value)
    with pytest.raises(SpecError, match=r"beta = 2 adds to a c that was not given: pass c, or beta = 0"):
        ours.grouped(a, b, ends, beta=2)
    with ours.batch_invariant(), pytest.raises(SpecError, match="call it outside of batch_invariant"):
        ours.grouped(a, b, ends)
    with pytest.raises(SpecError, match=r"pass b.to_dense\(\)"):
        ours.grouped(a, b.to_sparse(), ends)
    with pytest.raises(SpecError, match=r"offsets is of type list, not a tensor: pass .*, or call gemmgen\.grouped"):
        ours.grouped(a, b, ends.tolist())
    with pytest.raises(SpecError, match="offsets is None, not a tensor: pass one"):
        ours.grouped(a, b, None)
