"""That some kernel is chosen for whatever can be asked for."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import get_args

import pytest

from gemmgen import candidates, driver
from gemmgen.api.kernels import choice
from gemmgen.choice.few_rows import FEW
from gemmgen.choose import MENU, SMALL_PRESET, choose
from gemmgen.ir.dtypes import ALL_DTYPES, BF16, C64, C128, F16, F32, F64, FLOAT8, I8, I32, I64, MATRIX_DTYPES, DType
from gemmgen.ir.target import FEATURES, TARGETS
from gemmgen.kernel_names import kernel_name
from gemmgen.passes.validate import validate
from gemmgen.schedule.cpu_panel import CpuPanel
from gemmgen.schedule.direct import Direct, Gemv
from gemmgen.spec import GemmSpec, Order
from tests.support.cli import printed

SHAPES = [(1, 1, 1), (65, 33, 40), (256, 100, 300), (4096, 4096, 4096), (64, 64, 65536)]
#: Of GPUs and the CPU; what is asked of `portable` is what the least of devices has.
PLACES = [name for name, target in TARGETS.items() if "fp64" in target.features]


@pytest.mark.parametrize(
    ("dtype", "place"),
    [(x, place) for x in ALL_DTYPES.values() for place in PLACES if {x.needs} <= {None, *TARGETS[place].features}],
    ids=str,
)
def test_every_type_on_every_target(dtype: DType, place: str) -> None:
    """Complex128 was refused where a product is large: sums of 8x8 take more registers than a GPU has."""
    target = TARGETS[place]
    for spec in (GemmSpec(dtype=dtype), GemmSpec(dtype=dtype, a_order="col", batched=True)):
        for shape in SHAPES:
            validate(spec, choose(spec, shape, target), target)


@pytest.mark.parametrize("dtype", MATRIX_DTYPES.values(), ids=str)
@pytest.mark.parametrize("place", ["sm_80", "sm_90a", "cpu", "xe_hpc", "portable"])
def test_a_product_without_terms(dtype: DType, place: str) -> None:
    """K of 0 divided by zero where work-items copy: torch's own samples of `addmm` on an H100 found it."""
    target = TARGETS[place]
    if dtype.needs is None or dtype.needs in target.features:
        for shape in [(5, 10, 0), (0, 10, 5), (5, 0, 5), (0, 0, 0), (300, 400, 0)]:
            validate(GemmSpec(dtype=dtype), choose(GemmSpec(dtype=dtype), shape, target), target)


@pytest.mark.parametrize("dtype", ALL_DTYPES.values(), ids=str)
@pytest.mark.parametrize("ld_multiple", [1, 16])
def test_what_gemm_chooses_can_be_compiled(dtype: DType, ld_multiple: int) -> None:
    """int8 of aligned lines was given a schedule that assumes them, but a spec that does not."""
    target = TARGETS["sm_90a"]
    for orders in (("row", "row"), ("col", "row"), ("row", "col")):
        spec = GemmSpec(dtype=dtype, a_order=orders[0], b_order=orders[1], ld_multiple=ld_multiple)
        for shape in SHAPES:
            schedule, assumed = choice(spec, None, shape, 1, target)
            assert not driver.refusals(assumed, schedule, "cuda", target)
            assert assumed.ld_multiple in (1, ld_multiple)


# --- what GPUs are given --------------------------------------------------------------------------

#: Types that matrix instructions multiply as they are -> the first compute capability that has them.
BY_MATRICES = {F16: "sm_80", BF16: "sm_80", I8: "sm_80", F64: "sm_80", **dict.fromkeys(FLOAT8, "sm_89")}
ORDERS: tuple[Order, ...] = ("row", "col")
LONGEST = 1 << 20


def extent(rng: random.Random, most: int = LONGEST) -> int:
    return round(2 ** rng.uniform(0, most.bit_length() - 1))


@pytest.mark.parametrize("dtype", BY_MATRICES, ids=str)
def test_a_long_side_gets_tensor_cores(dtype: DType) -> None:
    """1x1x1000000 and 16x16x8192 were computed by work-items of their own, 20 to 3,000 times slower. Shapes come with
    any orders, assumptions and batches.
    """
    rng = random.Random(str(dtype))
    having = [name for name in ("sm_80", "sm_89", "sm_90", "sm_90a") if name >= BY_MATRICES[dtype]]
    for number in range(2000):
        target = having[number % len(having)]
        shape = [extent(rng, 1 << 12), extent(rng, 1 << 12), extent(rng)]
        shape[rng.randrange(3)] = round(2 ** rng.uniform(9, 14))
        rng.shuffle(shape)
        a_order, b_order, c_order = (rng.choice(ORDERS) for _ in range(3))
        spec = GemmSpec(dtype=dtype, a_order=a_order, b_order=b_order, c_order=c_order)
        spec = replace(spec, ld_multiple=rng.choice((1, 16)), batched=rng.random() < 0.1)
        found = choose(spec, (shape[0], shape[1], shape[2]), TARGETS[target], rng.randint(1, 64) if spec.batched else 1)
        few = min(shape[:2]) <= FEW and isinstance(found.mainloop, Direct | Gemv)
        assert found.by_warps or found.by_warpgroups or few, (spec.label(), shape, kernel_name(found, spec))


@pytest.mark.parametrize("target", ["intel", "xe_hpc", "khr", "portable", "sm_75"])
def test_without_a_model_small_is_small_along_each_side(target: str) -> None:
    """It was what has up to 128^3 products, 1x1x1000000 among it."""
    rng, device = random.Random(target), TARGETS[target]
    types = [x for x in MATRIX_DTYPES.values() if x.needs is None or x.needs in device.features]
    for _ in range(300):
        shape = extent(rng, 1 << 11), extent(rng, 1 << 11), extent(rng)
        found = choose(GemmSpec(dtype=rng.choice(types)), shape, device)
        assert (found.name == SMALL_PRESET) == (max(shape) <= 32), (shape, found)


@pytest.mark.parametrize(
    ("dtype", "shape", "name"),
    [
        (BF16, (16, 16, 8192), "gemm_bf16_wgmma_8x128_by4x64_s8_split64_"),
        (BF16, (1, 1, 1000000), "gemv_1x1_by8x1_w8_split128"),
        (BF16, (1, 2304, 768), "gemm_bf16_wgmma_8x128_by4x64_s8_split7_"),
        (BF16, (8, 4096, 4096), "gemm_bf16_wgmma_8x128_by4x64_s8_split4_"),
        (BF16, (32, 32, 32), "gemm_bf16_wgmma_8x64_by4x32_s8_"),
        (F32, (16, 16, 8192), "gemm_f32_slm_64x16_by16x4_s3_split128_"),
        (F32, (1, 1, 1000000), "gemv_1x1_by8x1_w4_split128"),
        (F32, (1, 2304, 768), "gemv_1x2_by4x1_w4"),
        (F32, (16, 16, 16), "naive_16x16"),
        (I8, (1, 2304, 768), "gemv_1x2_by2x1_w16"),
        (F64, (16, 16, 8192), "gemm_f64_mma_32x64_split128"),
        (F64, (1, 2304, 768), "gemv_1x2_by4x1_w2"),
        (F64, (32, 32, 32), "gemm_f64_mma_32x64_"),
        (C64, (16, 16, 8192), "async_8x8_8x16_split128"),
    ],
    ids=str,
)
def test_thin_products_go_by_parts_of_k(dtype: DType, shape: tuple[int, int, int], name: str) -> None:
    spec = GemmSpec(dtype=dtype, b_order="col", ld_multiple=max(1, 16 // dtype.size))
    assert kernel_name(choose(spec, shape, TARGETS["sm_90a"]), spec).startswith(name)


def test_sums_of_float32_are_short() -> None:
    """One sum of 1000000 products was off by up to 15 times what SGEMM is."""
    rng = random.Random(7)
    for _ in range(100):
        shape = extent(rng, 64), extent(rng, 64), extent(rng)
        for target in ("sm_80", "sm_90a"):
            found = choose(GemmSpec(), shape, TARGETS[target])
            parts = found.split_k * found.sliced_k * found.lanes_along_k
            assert shape[2] <= 8192 * parts, (shape, found)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_column_major_c_costs_little(target: str) -> None:
    """float32 had nothing but single work-items for it (400 us at 1000 cubed by the model, 51 by rows)."""
    for dtype in (F32, BF16, I8):
        found = choose(GemmSpec(dtype=dtype, c_order="col"), (1000, 1000, 1000), TARGETS[target])
        assert found.name != SMALL_PRESET


PACKED = "(b - b_shift) * b_scale"


@pytest.mark.parametrize(
    ("spec", "target", "name"),
    [
        (GemmSpec(dtype=BF16), "sm_90a", "wgmma_128x256_s4_packed"),
        (GemmSpec(dtype=BF16, ld_multiple=8), "sm_90a", "wgmma_128x256_s4"),
        (GemmSpec(dtype=BF16, ld_multiple=8, c_order="col"), "sm_90a", "wgmma_128x256_s4"),
        (GemmSpec(dtype=BF16, epilogue=("scale",)), "sm_90a", "wgmma_128x256_s4_packed"),
        (GemmSpec(dtype=BF16, ld_multiple=8, epilogue=("scale",)), "sm_90a", "wgmma_128x256_s4"),
        (GemmSpec(dtype=BF16, b_dtype=I8, prologue_b=PACKED), "sm_90a", "wgmma_128x256_s4_packed"),
        (GemmSpec(dtype=BF16, b_dtype=I8, prologue_b=PACKED, ld_multiple=8), "sm_90a", "wgmma_128x256_s4_packed_b"),
        (GemmSpec(dtype=BF16, b_dtype=I8, prologue_b=PACKED), "sm_80", "mma_8x16_16x8_packed_b"),
        (GemmSpec(b_dtype=I8, prologue_b=PACKED), "sm_90a", "async_8x8_8x16_packed_b"),
        (GemmSpec(dtype=BF16), "sm_90", "mma_8x16_16x8"),
        (GemmSpec(dtype=BF16, listed=True, batched=True), "sm_90a", "mma_8x16_16x8"),
        (GemmSpec(dtype=I8), "sm_90a", "wgmma_s8_128x256_s4_packed"),
        (GemmSpec(dtype=I8, b_order="col", ld_multiple=16), "sm_90a", "wgmma_s8_128x256_s4"),
        (GemmSpec(dtype=I8, ld_multiple=16), "sm_90a", "wgmma_s8_128x256_s4_packed_b"),
        (GemmSpec(dtype=I8), "sm_86", "mma_s8_8x16_16x8"),
        (GemmSpec(dtype=F64), "sm_80", "mma_f64_4x8_16x8"),
        (GemmSpec(dtype=F64, c_order="col"), "sm_90a", "mma_f64_4x8_16x8"),
        (GemmSpec(dtype=I32), "sm_90a", "async_8x8_8x16"),
        (GemmSpec(dtype=C64), "sm_90a", "async_8x8_8x16"),
        (GemmSpec(dtype=BF16), "sm_75", "lds_8x8_16x16_k8"),
        (GemmSpec(), "intel", "L3_SIMD_32x2_1x8"),
        (GemmSpec(dtype=BF16), "khr", "lds_8x8_16x16_k8"),
    ],
    ids=str,
)
def test_sizes_that_are_not_known(spec: GemmSpec, target: str, name: str) -> None:
    found = choose(spec, None, TARGETS[target])
    assert kernel_name(found, spec) == name
    assert not driver.refusals(spec, found, "cuda" if target.startswith("sm_") else "opencl", TARGETS[target])


@pytest.mark.parametrize("name", ["a", "b"])
def test_stored_types_are_converted_on_their_way_to_tensor_cores(name: str) -> None:
    """From registers, in which A can be, or B where operands are swapped."""
    spec = GemmSpec(dtype=BF16, ld_multiple=16)
    spec = replace(spec, a_dtype=I8) if name == "a" else replace(spec, b_dtype=I8)
    for shape in ((16, 4096, 4096), (2048, 2048, 2048)):
        assert choose(spec, shape, TARGETS["sm_90a"]).by_warpgroups
    found = choose(spec, None, TARGETS["sm_90a"])
    assert "wgmma_m64n" in driver.emit(spec, found, "cuda", TARGETS["sm_90a"]).text
    # Lines of bytes begin on multiples of 16 bytes, too.
    loose = replace(spec, ld_multiple=8)
    assert "pass --ld-multiple 16" in driver.refusals(loose, found, "cuda", TARGETS["sm_90a"])[0]
    assert not choose(loose, None, TARGETS["sm_90a"]).by_warpgroups


def test_the_menu_names_what_there_is() -> None:
    for offer in MENU:
        assert offer.named in candidates.names()
        assert offer.needs <= FEATURES.keys()
        assert set(offer.dtypes) <= set(MATRIX_DTYPES.values())
    assert not MENU[-1].needs and not MENU[-1].dtypes and not MENU[-1].largest, "the last one is for all others"
    spec = GemmSpec(dtype=C128)
    assert kernel_name(choose(spec, None, TARGETS["sm_90a"]), spec).startswith("gemm_c128_slm_64x64_")


def test_the_command_line_gives_what_is_chosen() -> None:
    emit = "emit", "--backend", "cuda", "--target", "sm_90a"
    bfloat16 = *emit, "--dtype", "bfloat16"
    assert printed(*bfloat16, "--epilogue", "scale").startswith("// wgmma_128x256_s4_packed: ")
    assert "_mma_direct_16x" in printed(*bfloat16, "-M", "16", "-N", "2304", "-K", "768").partition("\n")[0]
    float32 = *emit, "-M", "16", "-N", "4096", "-K", "4096"
    assert printed(*float32).startswith("// mbarrier_8x8_2x16_split")


@pytest.mark.parametrize(
    ("spec", "shape", "name"),
    [
        (GemmSpec(dtype=C64), (500, 400, 300), SMALL_PRESET),
        (GemmSpec(dtype=C128, a_order="col"), (3, 400, 300), SMALL_PRESET),
        (GemmSpec(b_dtype=I8, b_order="col", prologue_b="b * b_scale"), (1, 1024, 1024), SMALL_PRESET),
        (GemmSpec(b_dtype=I8, b_order="col", prologue_b="b * b_scale"), (64, 1024, 1024), "vec4_4x4"),
    ],
)
def test_what_vectors_of_a_cpu_do_not_compute(spec: GemmSpec, shape: tuple[int, int, int], name: str) -> None:
    """It was `lds_8x8_16x16_k8`, for GPUs: 2 to 5 s to compile, and 40 times as long for a row by weights in int8."""
    assert choose(spec, shape, TARGETS["cpu"]) == candidates.load(name).schedule


@pytest.mark.parametrize("dtype", [I8, I32, I64], ids=str)
def test_whole_numbers_are_multiplied_by_vectors_of_a_cpu(dtype: DType) -> None:
    for b_order in get_args(Order):
        spec = GemmSpec(dtype=dtype, b_order=b_order)
        assert isinstance(choose(spec, (500, 400, 300), TARGETS["cpu"]).mainloop, CpuPanel)
