"""That some kernel is chosen for whatever can be asked for."""

from __future__ import annotations

import pytest

from gemmgen import driver
from gemmgen.api.kernels import choice
from gemmgen.choose import choose
from gemmgen.ir.dtypes import ALL_DTYPES, DType
from gemmgen.ir.target import TARGETS
from gemmgen.passes.validate import validate
from gemmgen.spec import GemmSpec

SHAPES = [(1, 1, 1), (65, 33, 40), (256, 100, 300), (4096, 4096, 4096), (64, 64, 65536)]
#: Of GPUs and the CPU; what is asked of `portable` is what the least of devices has.
PLACES = [name for name, target in TARGETS.items() if "fp64" in target.features]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", ALL_DTYPES.values(), ids=str)
def test_every_type_on_every_target(dtype: DType, place: str) -> None:
    """Complex128 was refused where a product is large: sums of 8x8 take more registers than a GPU has."""
    target = TARGETS[place]
    if dtype.needs is not None and dtype.needs not in target.features:
        pytest.skip(f"{place} has no {dtype}")
    for spec in (GemmSpec(dtype=dtype), GemmSpec(dtype=dtype, a_order="col", batched=True)):
        for shape in SHAPES:
            validate(spec, choose(spec, shape, target), target)


@pytest.mark.parametrize("dtype", ALL_DTYPES.values(), ids=str)
@pytest.mark.parametrize("ld_multiple", [1, 16])
def test_what_gemm_chooses_can_be_compiled(dtype: DType, ld_multiple: int) -> None:
    """int8 of aligned lines was given a schedule that needs to be promised them, but not the promise."""
    target = TARGETS["sm_90a"]
    for orders in (("row", "row"), ("col", "row"), ("row", "col")):
        spec = GemmSpec(dtype=dtype, a_order=orders[0], b_order=orders[1], ld_multiple=ld_multiple)
        for shape in SHAPES:
            schedule, promised = choice(spec, None, shape, 1, target)
            assert not driver.refusals(promised, schedule, "cuda", target)
            assert promised.ld_multiple in (1, ld_multiple)
