"""Products of matrices and vectors in a GPU's memory, as `gemmgen.gemm` lays them before a kernel; no GPU needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.api.gemm import stack_of
from gemmgen.api.kernels import choice
from gemmgen.api.libraries import Gpu
from gemmgen.api.matmul import Call, Operand, calls_of, product_of
from gemmgen.api.request import assumed_ld_multiple
from gemmgen.ir.dtypes import BF16, F8_E4M3, F32, I8, MATRIX_DTYPES, DType
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.ir.target import TARGETS
from gemmgen.runtime.arrays import with_ld_units
from gemmgen.runtime.variants import variants_of
from gemmgen.runtime.views import DeviceMatrix, check_view
from gemmgen.spec import GemmSpec

#: Shapes of A and B.
FORMS = [
    ((64, 128), (128,)),
    ((61, 127), (127,)),
    ((64, 128), (128, 1)),
    ((128,), (128, 64)),
    ((127,), (127, 61)),
    ((1, 128), (128, 64)),
    ((128,), (128,)),
    ((64, 1), (1, 128)),
    ((64,), (64, 1)),
    ((5, 64, 128), (128,)),
    ((5, 64, 128), (128, 1)),
    ((128,), (5, 128, 64)),
    ((5, 1, 128), (5, 128, 1)),
    ((1, 1), (1,)),
]
LIBRARY = Gpu(is_torch=True)


def of(shape: tuple[int, ...], dtype: np.dtype[np.generic], steps: tuple[int, ...] | None = None) -> Operand:
    """An array in a GPU's memory, its strides in elements; without gaps where none are given."""
    size = dtype.itemsize
    packed = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    strides = tuple(step * size for step in steps or packed)
    return Operand(DeviceMatrix(shape, strides, dtype, 1 << 20, 0), shape, strides, dtype)


def launched(a: Operand, b: Operand, dtype: DType) -> tuple[Call, GemmSpec]:
    """The first call, and the spec with what its kernel assumes."""
    product = product_of(a, b, False, False, [])
    assert product is not None
    into = stack_of(of(product.shape, numpy_dtype(GemmSpec(dtype=dtype).result)), product)
    left, right = (x.as_stack(False, column).broadcast(product.batch) for x, column in ((a, False), (b, True)))
    call = next(calls_of(left, right, into))
    call = call.mirrored() if LIBRARY.prefers_mirror(call) else call
    a_order, b_order, c_order = (LIBRARY.order(x) or "row" for x in (call.a, call.b, call.c))
    spec = GemmSpec(dtype=dtype, a_order=a_order, b_order=b_order, c_order=c_order, batched=len(call.c.shape) == 3)
    return call, replace(spec, ld_multiple=assumed_ld_multiple(LIBRARY, spec, [call]))


def problems(call: Call, spec: GemmSpec) -> list[str]:
    """What a kernel says of these matrices."""
    found: list[str] = []
    orders, ranks = (spec.a_order, spec.b_order, spec.c_order), (2, 3) if spec.batched else (2,)
    views = {
        name: check_view(name, LIBRARY.view(x, x.dtype), order, str(x.dtype), found, ranks=ranks)
        for name, x, order in zip("abc", (call.a, call.b, call.c), orders, strict=True)
    }
    with_ld_units(spec, views, found, on_device=True)
    return found


@pytest.mark.parametrize("dtype", MATRIX_DTYPES.values(), ids=str)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_assumptions_are_kept(form: tuple[tuple[int, ...], tuple[int, ...]], dtype: DType) -> None:
    """A matrix by a vector of 16-bit floats was refused: "b has leading dimension 1, not the multiple of 8"."""
    a, b = (of(shape, numpy_dtype(dtype)) for shape in form)
    call, spec = launched(a, b, dtype)
    assert not problems(call, spec)
    target = TARGETS["sm_90a"]
    shape = call.a.shape[-2], call.b.shape[-1], call.a.shape[-1]
    schedule, assumed = choice(spec, None, shape, 1, target)
    assert not driver.refusals(assumed, schedule, "cuda", target)
    assert not problems(call, assumed)


@pytest.mark.parametrize("dtype", [BF16, I8, F32], ids=str)
def test_a_vector_is_one_line(dtype: DType) -> None:
    """So nothing has to be packed: matrices of aligned lines may be assumed of a vector without gaps."""
    for form in (((64, 128), (128,)), ((64, 128), (128, 1)), ((128,), (128, 64)), ((128,), (128,))):
        a, b = (of(shape, numpy_dtype(dtype)) for shape in form)
        call, spec = launched(a, b, dtype)
        assert spec.ld_multiple == 16 // dtype.size
        assert spec.c_order == "row" and call.c.shape[-2] == 1, "a product by a vector is one of few rows"


@pytest.mark.parametrize(
    ("b", "assumption"),
    [
        (((128, 1), (1, 1)), 8),
        (((128, 1), (8, 1)), 8),  # a column of a matrix: lines of one element, eight elements apart
        (((128, 1), (9, 1)), 1),
        (((128, 1), (1, 128)), 8),
        (((128, 2), (2, 1)), 1),
        (((128, 2), (8, 1)), 8),
        (((128, 2), (1, 128)), 8),
        (((128, 2), (1, 129)), 1),
    ],
    ids=str,
)
def test_columns_of_matrices(b: tuple[tuple[int, int], tuple[int, int]], assumption: int) -> None:
    dtype = numpy_dtype(BF16)
    shape, steps = b
    call, spec = launched(of((64, 128), dtype), of(shape, dtype, steps), BF16)
    # The vector is the short A of a mirrored product. Of two columns, C's lines are two elements long.
    expected = (assumption, 8, 8) if shape[1] == 1 else (8, assumption, 1)
    assert tuple(map(spec.ld_unit, "abc")) == expected
    assert LIBRARY.begins_lines(of(shape, dtype, steps), 8) is (assumption == 8)
    assert not problems(call, spec)


def test_results_that_are_wider_are_assumed_as_their_own_vectors() -> None:
    """1000 columns of bfloat16 are whole vectors, though no whole ones of elements of 8 bits: TMA can store them."""
    byte, half = numpy_dtype(I8), numpy_dtype(BF16)
    spec = GemmSpec(dtype=F8_E4M3, c_dtype=BF16, b_order="col")
    for cols, assumption in ((1024, 16), (1000, 8), (1004, 1)):
        call = Call(of((64, 128), byte), of((128, cols), byte, (1, 128)), of((64, cols), half))
        assert assumed_ld_multiple(LIBRARY, spec, [call]) == (16, 16, assumption)
    by_warps = candidates.load("mma_f8_8x16_16x8").schedule
    kept = variants_of(driver.emit(spec, by_warps, "cuda", TARGETS["sm_90"]), by_warps)
    assert [each.ld_multiple for each in kept] == [(16, 16, 8)] * 2


def test_stored_bytes_are_assumed_as_bytes() -> None:
    """TMA tiles of int8 begin on multiples of 16 elements, where bfloat16's do on multiples of 8."""
    spec = GemmSpec(dtype=BF16, b_dtype=I8)
    for cols, assumption in ((128, (16, 16, 16)), (136, (16, 8, 8)), (132, (16, 1, 1))):
        half, byte = numpy_dtype(BF16), numpy_dtype(I8)
        call = Call(of((64, 128), half), of((128, cols), byte), of((64, cols), half))
        assert assumed_ld_multiple(LIBRARY, spec, [call]) == assumption
