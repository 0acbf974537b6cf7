"""Which arrays a kernel takes, and what is said of the others. No device is needed."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from gemmgen import candidates
from gemmgen.errors import SpecError
from gemmgen.runtime.arrays import check_transpose
from gemmgen.runtime.views import DeviceMatrix, SpanError, View, check_spans
from gemmgen.spec import GemmSpec
from tests.support.arrays import check_gemm
from tests.support.tensors import need_torch, placed

F = npt.NDArray[np.float32]


def zeros(*shape: int, order: str = "C") -> F:
    return np.zeros(shape, np.float32, order="F" if order == "F" else "C")


def problems(spec: GemmSpec, *args: object, alpha: object = None, beta: object = None) -> tuple[str, ...]:
    a, b, c = (*args, None)[:3]
    with pytest.raises(SpecError) as caught:
        check_gemm(spec, a, b, c, alpha, beta)
    return caught.value.problems


def test_sizes_and_leading_dimensions() -> None:
    request = check_gemm(GemmSpec(), zeros(3, 9)[:, 1:6], zeros(5, 4), zeros(3, 8)[:, :4], alpha=2)
    assert request.sizes == {"m": 3, "n": 4, "k": 5}
    assert request.inputs["a"][1] == View(3, 5, "row", 9)
    assert request.output[2] == View(3, 4, "row", 8)
    assert request.scalars == {"alpha": 2.0, "beta": 0.0}
    assert not request.loads_output
    assert not request.on_device


def test_column_major_is_fortran_order() -> None:
    spec = GemmSpec(a_order="col", b_order="col", c_order="col")
    request = check_gemm(spec, zeros(3, 5, order="F"), zeros(5, 4, order="F"))
    assert [view.ld for _, view in request.inputs.values()] == [3, 5]
    assert request.output == ("c", None, View(3, 4, "col", 3))


@pytest.mark.parametrize("shape", [(1, 7), (7, 1), (1, 1)])
def test_strides_of_extent_one_do_not_matter(shape: tuple[int, int]) -> None:
    for order in "CF":
        view = check_gemm(GemmSpec(), zeros(*shape, order=order), zeros(shape[1], 2)).inputs["a"][1]
        assert view.ld == shape[1]


def test_a_column_of_a_wider_matrix() -> None:
    assert check_gemm(GemmSpec(), zeros(6, 10)[:, 3:4], zeros(1, 2)).inputs["a"][1].ld == 10


@pytest.mark.parametrize(
    ("a", "said", "remedy"),
    [
        ([[1.0]], "list, not an array", "np.asarray"),
        (None, "NoneType, not an array", "np.asarray"),
        (np.zeros((2, 2)), "float64", "astype(np.float32)"),
        (np.zeros((2, 2), np.complex64), "complex64", "a.real.astype"),
        (np.zeros((2, 2), int), "int64", "astype"),
        (np.zeros((2, 2), object), "object", "astype"),
        (np.zeros((2, 2), ">f4"), ">f4", "astype"),
        (zeros(4), "1 dimension, not 2", "reshape"),
        (zeros(2, 2, 2), "3 dimensions", "reshape"),
        (zeros(2, 4)[:, ::2], "strides", "np.ascontiguousarray(a)"),
        (zeros(2, 2)[::-1], "strides", "np.ascontiguousarray(a)"),
        (zeros(2, 2, order="F"), "strides", "a_order='col'"),
        (np.broadcast_to(zeros(1, 2), (2, 2)), "strides", "np.ascontiguousarray(a)"),
        (np.ma.masked_array(zeros(2, 2), zeros(2, 2) == 0), "masked", "filled"),
        (np.frombuffer(bytes(17), np.uint8)[1:].view(np.float32).reshape(2, 2), "4 bytes", "copy()"),
    ],
)
def test_a_bad_array_is_named_with_a_remedy(a: object, said: str, remedy: str) -> None:
    (problem,) = problems(GemmSpec(), a, zeros(2, 2))
    assert problem.startswith("a ")
    assert said in problem
    assert remedy in problem


def test_every_problem_at_once() -> None:
    found = problems(GemmSpec(), np.zeros((3, 4)), zeros(5), zeros(4, 4), alpha="x", beta=1e300)
    assert [re.split(r" (has|is|=) ", p)[0] for p in found] == ["alpha", "beta", "c", "a", "b"]


@pytest.mark.parametrize(
    ("b", "c", "said"),
    [(zeros(4, 2), None, "k = 4"), (zeros(3, 2), zeros(2, 3), "m x n"), (zeros(3, 2), zeros(3, 2), "m = 3")],
)
def test_shapes_must_fit(b: F, c: F | None, said: str) -> None:
    assert any(said in problem for problem in problems(GemmSpec(), zeros(2, 3), b, c))


def test_output_must_be_writable_and_apart() -> None:
    c = zeros(2, 2)
    c.flags.writeable = False
    assert "read-only" in problems(GemmSpec(), zeros(2, 2), zeros(2, 2), c)[0]
    a = zeros(2, 2)
    assert "overlaps a" in problems(GemmSpec(), a, zeros(2, 2), a)[0]
    both = zeros(2, 4)  # halves lie in each other's span, but share no element
    check_gemm(GemmSpec(), both[:, :2], zeros(2, 2), both[:, 2:])


def test_folded_values_and_assumptions_hold() -> None:
    spec = GemmSpec(m=4, alpha=2.0, beta=0.0, multiple_of=(1, 8, 1))
    assert check_gemm(spec, zeros(4, 3), zeros(3, 8)).scalars == {"alpha": 2.0, "beta": 0.0}
    check_gemm(spec, zeros(4, 3), zeros(3, 8), alpha=2)
    found = problems(spec, zeros(5, 3), zeros(3, 9), alpha=1.0)
    assert len(found) == 3
    assert "folded" in found[0]
    assert "made for m = 4" in found[1]
    assert "pad the matrices to 16" in found[2]


def test_beta_needs_c() -> None:
    assert "pass c" in problems(GemmSpec(), zeros(2, 2), zeros(2, 2), beta=1)[0]
    assert "pass c" in problems(GemmSpec(beta=1.0), zeros(2, 2), zeros(2, 2))[0]


@pytest.mark.parametrize("value", [10**400, Fraction(10**400), 1e39, -(10**50)])
def test_factors_beyond_float32(value: float) -> None:
    (problem,) = problems(GemmSpec(), zeros(2, 2), zeros(2, 2), alpha=value)
    assert "exceeds float32's 3.4" in problem


def test_not_a_number_is_a_number() -> None:
    request = check_gemm(GemmSpec(), zeros(2, 2), zeros(2, 2), zeros(2, 2), alpha=np.nan, beta=np.inf)
    assert np.isnan(request.scalars["alpha"])
    assert request.loads_output


def test_spans_fit_32_bits() -> None:
    check_spans({"a": View(2**15, 2**16 - 1, "row", 2**16 - 1)})
    with pytest.raises(SpecError, match="in parts"):
        check_spans({"a": View(2**16, 2**15, "row", 2**15), "b": View(1, 1, "row", 1)})


def test_transpose() -> None:
    request = check_transpose("float32", zeros(3, 8)[:, :5], zeros(5, 3), [])
    assert request.sizes == {"rows": 3, "cols": 5}
    assert request.inputs["a"][1].ld == 8
    with pytest.raises(SpecError, match="not 5x3"):
        check_transpose("float32", zeros(3, 5), zeros(3, 5), [])


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, gemmgen; print([m for m in ('numpy', 'pyopencl', 'jinja2', 'typer') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("name", [name for name in candidates.names() if candidates.load(name).schedule.by_warps])
def test_tensors_of_tests_keep_what_their_spec_assumes(name: str) -> None:
    """Those that tests of GPUs hand over, which seldom run: their kernel refuses others."""
    torch = need_torch()
    spec = candidates.load(name).spec
    kinds = {"a": spec.element("a"), "b": spec.element("b"), "c": spec.result}
    for m, n, k in ((1, 1, 1), (129, 131, 37), (170, 145, 129)):
        for pad in (0, 3, 8):
            shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
            values = {x: torch.randint(-8, 9, shapes[x]).to(getattr(torch, str(kinds[x]))) for x in "abc"}
            made = {x: placed(spec, x, values[x], pad) for x in "abc"}
            lines = {"a": spec.a_order, "b": spec.b_order, "c": spec.c_order}
            pitches = {x: made[x].stride(0 if lines[x] == "row" else 1) for x in "abc"}
            views = [View(*shapes[x], lines[x], pitches[x], unit=spec.ld_unit(x)) for x in "abc"]
            assert all(view.meets_assumptions for view in views)
            assert all(torch.equal(made[x].double(), values[x].double()) for x in "abc")


def test_a_c_of_other_strides_is_written_as_a_copy() -> None:
    (told,) = problems(GemmSpec(), zeros(3, 5), zeros(5, 4), zeros(3, 4, order="F"))
    assert "pass np.ascontiguousarray(c), and take what the call returns, or compile a GemmSpec with c_order" in told


def there(x: F) -> DeviceMatrix:
    """The array as if it lay in a GPU's memory."""
    return DeviceMatrix(x.shape, x.strides, x.dtype, x.ctypes.data, 0)


def test_numpys_arrays_may_break_an_assumption() -> None:
    """Kernels get copies of them; the result of a call without c has no gaps."""
    spec = GemmSpec(ld_multiple=(8, 4, 1))
    request = check_gemm(spec, zeros(3, 13), zeros(13, 5))
    assert [(view.ld, view.meets_assumptions) for view in request.views.values()] == [
        (13, False),
        (5, False),
        (5, True),
    ]
    assert not request.meets_assumptions
    assert [view.laid_out().ld for view in request.views.values()] == [16, 8, 5]
    assert check_gemm(spec, zeros(3, 16)[:, :13], zeros(13, 8)[:, :5]).meets_assumptions
    assert check_gemm(spec, zeros(1, 13), zeros(13, 4)).meets_assumptions  # a single line's pitch is never used
    batch = check_gemm(GemmSpec(ld_multiple=4, batched=True), zeros(7, 3, 13), zeros(13, 8)).inputs["a"][1]
    assert (batch.laid_out().ld, batch.laid_out().stride) == (16, 48)


def test_arrays_of_a_device_keep_an_assumption_or_are_refused() -> None:
    spec, a, b = GemmSpec(ld_multiple=4), there(zeros(3, 8)[:, :5]), there(zeros(5, 8)[:, :6])
    made = check_gemm(spec, a, b).output[2]
    assert (made.shape, made.ld) == ((3, 6), 8)  # so that it may be an argument of the next call
    assert check_gemm(replace(spec, c_order="col"), a, b).output[2].ld == 4
    said = "a has leading dimension 5, not a multiple of 4 as the GemmSpec assumes: copy it to the first 5 elements of"
    with pytest.raises(SpecError, match=f"{said} lines of 8, or use ld_multiple=1"):
        check_gemm(spec, there(zeros(3, 5)), b)
    stack = there(np.lib.stride_tricks.as_strided(zeros(100), (2, 3, 5), (120, 32, 4)))
    with pytest.raises(SpecError, match="a's matrices are 30 elements apart, not a multiple of 4"):
        check_gemm(replace(spec, batched=True), stack, b)


def test_padding_counts_as_what_indices_reach() -> None:
    """A copy of NumPy's array may span more than the array."""
    view = View(1 << 20, 2047, "row", 2047)
    check_spans({"a": view})
    with pytest.raises(SpanError, match="leading dimension 4096"):
        check_spans({"a": replace(view, unit=4096)})
