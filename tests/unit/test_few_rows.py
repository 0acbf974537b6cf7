"""Which products of few rows go by loads of single work-items, and how."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.choice import loads, prior
from gemmgen.choice.few_rows import FEW, FEW_BESIDE_TRANSPOSED, candidates
from gemmgen.choice.machine import machine_of
from gemmgen.choose import choose
from gemmgen.ir.dtypes import BF16, C64, F16, F32, F64, FLOAT8, I4, I8, DType
from gemmgen.ir.target import TARGETS
from gemmgen.schedule import Operand
from gemmgen.schedule.direct import Direct, Gemv
from gemmgen.schedule.warp_mma import DirectMma
from gemmgen.spec import GemmSpec, Order
from gemmgen.tuning.job import assuming_no_gaps

SM_90A = TARGETS["sm_90a"]
#: As they say of themselves.
H200 = replace(SM_90A, clock=1980, memory_rate=4_800_000, cache_bytes=50 << 20)
H100 = replace(H200, memory_rate=3_352_320)
ORDERS: tuple[Order, ...] = ("row", "col")


def weights(dtype: DType, aligned: bool = True) -> GemmSpec:
    """A product with a layer's weights, whose lines lie along K."""
    return GemmSpec(dtype=dtype, b_order="col", ld_multiple=max(1, 16 // dtype.size) if aligned else 1)


@pytest.mark.parametrize(("dtype", "rows"), [(BF16, 1), *product((F32, F64, C64), (1, 2))], ids=str)
def test_rows_by_weights_wait_for_memory(dtype: DType, rows: int) -> None:
    found = choose(weights(dtype), (rows, 4096, 8192), SM_90A)
    assert isinstance(found.mainloop, Gemv)
    assert found.tile[0] == 1 << (rows - 1).bit_length()
    assert found.b.width * dtype.size == 16


@pytest.mark.parametrize("dtype", [F16, BF16, *FLOAT8], ids=str)
def test_more_rows_go_by_matrix_instructions(dtype: DType) -> None:
    """They need more instructions for each byte than are hidden behind its load; not where no tensor map can be had."""
    assert choose(weights(dtype), (FEW, 4096, 8192), SM_90A).by_warpgroups
    odd = choose(weights(dtype, aligned=False), (FEW, 4096, 8191), SM_90A)
    # Eight rows of 8-bit floats take longer than to lay B out. Of float16 they take 24 us on an H200, and with that 52.
    assert isinstance(odd.mainloop, DirectMma) != (dtype in FLOAT8)
    assert odd.b.width == 8 or odd.b.prepacked


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize(("stored", "elements"), [(I8, 16), (I4, 32)], ids=str)
def test_loads_are_of_what_is_stored(dtype: DType, stored: DType, elements: int) -> None:
    """A lane loads 16 bytes of the weights, and of the activations, whatever types these are of."""
    spec = replace(weights(dtype), b_dtype=stored, prologue_b="b * b_scale_128", ld_multiple=16)
    found, *_ = candidates(spec, (1, 4096, 4096), SM_90A)
    assert (found.a.width, found.b.width) == (16 // dtype.size, elements)
    (mirrored,) = candidates(replace(spec.transposed(), c_order="row"), (4096, 1, 4096), SM_90A)
    assert (mirrored.a.width, mirrored.b.width) == (elements, 16 // dtype.size)
    for rows in (1, 2, 4, 8):
        found, *_ = candidates(spec, (rows, 4096, 4096), SM_90A)
        # What a work-item holds of the activations stays in registers.
        assert found.tile[0] * found.b.width * dtype.size <= 256
        assert not driver.refusals(spec, found, "cuda", SM_90A)


@pytest.mark.parametrize(
    ("stored", "scale", "width"),
    [(I4, "b_scale", 32), (I4, "b_scale_128", 32), (I4, "b_scale_64", 16), (I4, "b_scale_32", 8), (I8, "b_scale", 16)],
    ids=str,
)
@pytest.mark.parametrize("rows", [2, 8, 9, 16])
def test_a_group_of_weights_is_a_load_of_four_lanes(stored: DType, scale: str, width: int, rows: int) -> None:
    """They share its scale. Warps along K are as many as fill the device, but no more than K has steps."""
    spec = replace(weights(BF16), b_dtype=stored, prologue_b=f"b * {scale}", ld_multiple=16)
    for n, k in ((14336, 4096), (4096, 14336), (64, 256)):
        found = candidates(spec, (rows, n, k), SM_90A)[-1]
        assert isinstance(found.mainloop, DirectMma)
        assert (found.b.width, found.tile[0]) == (width, 2 if rows <= 8 else 4)
        assert found.block_k <= max(k, 4 * width)
        assert not driver.refusals(spec, found, "cuda", SM_90A)
        # So that a call's kernel meets the assumptions, and asks at no load whether its line is aligned.
        assert driver.refusals(replace(spec, ld_multiple=1), found, "cuda", SM_90A)
    assert not any(isinstance(x.mainloop, DirectMma) for x in candidates(spec, (17, 4096, 4096), SM_90A))
    assert not any(isinstance(x.mainloop, DirectMma) for x in candidates(spec, (2, 4096, 4096), TARGETS["sm_75"]))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize(("a", "b"), list(product(ORDERS, ORDERS)), ids=str)
@pytest.mark.parametrize("shape", [(28, 8190, 3586), (9, 4098, 6402), (18, 5506, 6147)], ids=str)
def test_lanes_load_a_b_that_no_tensor_map_takes(shape: tuple[int, int, int], a: Order, b: Order, dtype: DType) -> None:
    """On an H200 float16 28x8190x3586 takes 33 us by lanes that load two elements at once; where a kernel packed B, it
    took 68.
    """
    spec = assuming_no_gaps(GemmSpec(dtype=dtype, a_order=a, b_order=b), shape)
    *_, found = candidates(spec, shape, H200)
    assert isinstance(found.mainloop, DirectMma)
    assert not driver.refusals(spec, found, "cuda", H200)
    # One block has all rows, so that B is read once.
    assert shape[0] <= found.block_tile[0] < shape[0] + 8
    # Neighbours in memory are loaded together, if they are neighbours along K.
    assert (found.a.width > 1, found.b.width > 1) == (a == "row", b == "col")
    assert choose(spec, shape, H200) == found


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({}, (28, 8192, 3584)),
        ({}, (1, 8190, 3586)),
        ({"b_order": "row"}, (8, 8190, 3586)),
        ({}, (65, 8190, 3586)),
        ({"prologue_b": "b * 2"}, (28, 8190, 3586)),
        ({"dtype": FLOAT8[0]}, (28, 8190, 3586)),
        ({"batched": True}, (28, 8190, 3586)),
    ],
    ids=str,
)
def test_others_are_packed_or_read_by_tensor_maps(changes: dict[str, object], shape: tuple[int, int, int]) -> None:
    spec = assuming_no_gaps(replace(GemmSpec(dtype=BF16, b_order="col"), **changes), shape)  # type: ignore[arg-type]
    assert not any(isinstance(x.mainloop, DirectMma) for x in candidates(spec, shape, H200))


@pytest.mark.parametrize(
    ("rows", "tile", "warps", "rounds", "width", "registers"),
    [
        (28, (8, 8), 8, 2, 2, 158),
        (28, (8, 4), 4, 2, 2, 100),
        (37, (10, 8), 8, 1, 1, 164),
        (18, (6, 6), 12, 2, 1, 128),
        (20, (6, 2), 4, 4, 4, 80),
        (28, (8, 8), 8, 1, 8, 206),
        (10, (4, 4), 4, 1, 8, 96),
        (18, (6, 6), 12, 1, 8, 146),
    ],
)
def test_registers_are_about_those_of_ptxas(
    rows: int, tile: tuple[int, int], warps: int, rounds: int, width: int, registers: int
) -> None:
    spec = GemmSpec(dtype=F16, b_order="col", ld_multiple=min(4, width))
    wide, sliced, parts, step = np.array([[tile[1]], [warps], [1], [warps * rounds * max(4, width) * 4]], np.float64)
    lanes = loads.Lanes(tile[0], wide, sliced, parts, step, width, width)
    assert lanes.lines[0] == -(-rows // 8)
    assert 0.85 * registers < lanes.registers(spec)[0] < 1.15 * registers


def test_weights_across_k_too() -> None:
    spec = GemmSpec(dtype=BF16, b_dtype=I8, prologue_b="b * b_scale", ld_multiple=16)
    (found,) = candidates(spec, (1, 4096, 4096), SM_90A)
    assert found.b.width == 16
    assert found.group[1] * found.b.width >= 128


def test_the_prior_counts_bytes_as_stored() -> None:
    machine = machine_of(SM_90A)
    spec = replace(weights(F32), b_dtype=I8, prologue_b="b * b_scale", ld_multiple=16)
    (found,) = candidates(spec, (1, 16384, 16384), SM_90A)
    plain, int8, int4 = (
        prior.account(each, found.but(b=Operand(width=4)), (1, 16384, 16384), machine)["memory"]
        for each in (replace(spec, b_dtype=None, prologue_b="b * b_scale"), spec, replace(spec, b_dtype=I4))
    )
    assert plain > 2 * int8 > 2 * int4


def test_columns_are_rows_mirrored() -> None:
    found = choose(GemmSpec(ld_multiple=4), (4096, 2, 8192), SM_90A)
    assert isinstance(found.mainloop, Gemv)
    assert found.tile == (4, 2)
    assert (found.a.width, found.b.width) == (4, 2)


def test_few_columns_of_c_have_k_in_parts() -> None:
    assert choose(weights(F32), (1, 8, 1 << 20), SM_90A).split_k > 1
    assert choose(weights(F32), (1, 8192, 1 << 16), SM_90A).split_k == 1


@pytest.mark.parametrize(
    ("dtype", "orders", "shape", "most"),
    [
        (F16, ("col", "col"), (8, 256, 896), 1),
        (F16, ("col", "row"), (3, 1278, 382), 2),
        (F32, ("row", "row"), (1, 3001, 999), 2),
    ],
    ids=str,
)
def test_small_products_wait_for_memory_once_or_twice(
    dtype: DType, orders: tuple[Order, Order], shape: tuple[int, int, int], most: int
) -> None:
    """Each wait takes about 0.3 us on an H100, where libraries take 4 to 9 us for these."""
    spec = assuming_no_gaps(GemmSpec(dtype=dtype, a_order=orders[0], b_order=orders[1]), shape)
    (found,) = candidates(spec, shape, SM_90A)
    assert loads.Loads.of(found).rounds(spec, shape[2]) <= most
    lanes = found.group[1] * found.b.width * dtype.size
    assert found.lanes_along_k > 1 or lanes >= 32  # a sector of L2


def test_what_is_left_of_k_is_short() -> None:
    """Each of its elements along K waits for A and for B. 4x1539x384 took 15.8 us on an H200 where all of K was left,
    32 elements of a slice, and 7.8 by cuBLAS.
    """
    shape = (4, 1539, 384)
    (found,) = candidates(assuming_no_gaps(GemmSpec(a_order="col"), shape), shape, H200)
    assert shape[2] % found.block_k == 0 or found.block_k // found.sliced_k <= loads.CHECKED
    before = loads.Loads((4, 1), (1, 16), 1, 16, 1, 512, 4, 1, by_fours=False)
    us = loads.account_of_loads(assuming_no_gaps(GemmSpec(a_order="col"), shape), before, shape, machine_of(H200))
    assert sum(us.values()) == pytest.approx(15.8, rel=0.15)


def test_float32_beside_tiles_that_are_transposed() -> None:
    """Kernels with tiles copy float32 whose lines lie along K element by element."""
    found, *_ = candidates(weights(F32), (32, 8192, 4096), SM_90A)
    assert isinstance(found.mainloop, Gemv)
    assert found.threadblock_swizzle * found.tile[0] == 32
    assert candidates(weights(F32), (FEW_BESIDE_TRANSPOSED, 8192, 4096), SM_90A)
    assert not candidates(weights(F32), (FEW_BESIDE_TRANSPOSED + 1, 8192, 4096), SM_90A)
    assert not candidates(replace(weights(F32), b_order="row"), (16, 8192, 4096), SM_90A)


@pytest.mark.parametrize(("rows", "n", "k", "tiles"), [(8, 6144, 5544, False), (24, 7960, 2560, True)])
def test_tiles_where_lanes_would_ask_l2_for_more(rows: int, n: int, k: int, tiles: bool) -> None:
    """On an H200 the second takes 60 us by lanes along K, 47 by tiles; the first 44 by lanes."""
    assert isinstance(choose(weights(F32), (rows, n, k), H200).mainloop, Gemv) != tiles


@pytest.mark.parametrize(
    ("shape", "tile", "slices", "depth", "us"),
    [
        ((24, 7960, 2560), (8, 4), 2, 512, 60.1),
        ((15, 2560, 10688), (8, 4), 4, 1024, 54.3),
        ((15, 23616, 5120), (16, 4), 2, 512, 240.8),
        ((8, 24256, 8192), (8, 4), 2, 512, 257.6),
        ((2, 384, 320), (2, 1), 4, 512, 1.75),
        ((2, 512, 128), (2, 4), 1, 128, 1.53),
    ],
)
def test_times_are_about_those_that_were_measured(
    shape: tuple[int, int, int], tile: tuple[int, int], slices: int, depth: int, us: float
) -> None:
    """Float32 on an H200. Without what blocks ask L2 for the first four were 0.54 to 0.7 of these, and blocks that
    began later made the others 1.5 of them.
    """
    lanes = loads.Loads(tile, (1, 1), 32, slices, 1, depth, 4, 4, by_fours=False)
    assert 0.8 * us < sum(loads.account_of_loads(weights(F32), lanes, shape, machine_of(H200)).values()) < 1.25 * us


@pytest.mark.parametrize(("rows", "us"), [(4, 15.9), (16, 20.5)])
def test_lanes_of_matrix_instructions_ask_l2_too(rows: int, us: float) -> None:
    """Layers' weights of 4 bits on an H100: 0.65 and 0.52 of these without."""
    spec = replace(weights(BF16), b_dtype=I4, prologue_b="b * b_scale_128", ld_multiple=32)
    *_, found = candidates(spec, (rows, 14336, 4096), H100)
    assert isinstance(found.mainloop, DirectMma)
    assert 0.7 * us < sum(prior.account(spec, found, (rows, 14336, 4096), machine_of(H100)).values()) < 1.25 * us


def test_others_are_left_alone() -> None:
    spec, shape = weights(F32), (1, 4096, 4096)
    assert not candidates(replace(spec, batched=True), shape, SM_90A, 8)
    assert not candidates(spec, shape, TARGETS["intel"])
    assert not candidates(spec, (0, 4096, 4096), SM_90A)
    assert not candidates(spec, (512, 512, 512), SM_90A)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_chosen_can_be_emitted(seed: int) -> None:
    rng = random.Random(seed)
    found = 0
    for _ in range(60):
        dtype = rng.choice((F32, F64, F16, BF16, I8, C64, FLOAT8[0]))
        few, shape = rng.randint(1, FEW), [rng.randint(1, 5000) for _ in range(3)]
        shape[rng.randrange(2)] = few
        a_order, b_order, c_order = (rng.choice(ORDERS) for _ in range(3))
        then = rng.choice(((), ("bias", "relu"))) if dtype not in (C64, I8) else ()
        spec = GemmSpec(
            dtype=dtype,
            a_order=a_order,
            b_order=b_order,
            c_order=c_order,
            ld_multiple=rng.choice((1, 16)),
            epilogue=then,
        )
        target = TARGETS[rng.choice(("sm_80", "sm_90a"))]
        for schedule in candidates(spec, (shape[0], shape[1], shape[2]), target):
            found += 1
            assert not driver.refusals(spec, schedule, "cuda", target)
    assert found > 20


@pytest.mark.parametrize(("rows", "blocks"), [(8, 2), (4, 0)])
def test_registers_for_two_blocks_of_many_sums(rows: int, blocks: int) -> None:
    """`ptxas` gave 152 registers to each of 256 threads, so that a multiprocessor had one block: float32 8x3136x12544
    by rows took 59 us on an H200, and takes 44. With fewer sums it leaves room by itself.
    """
    spec, shape = GemmSpec(ld_multiple=16), (rows, 3136, 12544)
    (found,) = (x for x in candidates(spec, shape, H200) if isinstance(x.mainloop, Direct))
    assert (found.tile[0], found.sliced_k > 1) == (rows, True)
    assert driver.lower(spec, found, H200).min_blocks == blocks
    assert driver.lower(spec, found, replace(H200, multiprocessor_register_bytes=0)).min_blocks == 0
