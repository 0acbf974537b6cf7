"""Dpas on 2D block reads: what is refused, and what the emitted text has."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from gemmgen import driver
from gemmgen.errors import ScheduleError
from gemmgen.ir.copy_instructions import Block2D, block_2d_read
from gemmgen.ir.dtypes import BF16, F16, F32, I4, I8, DType
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.refusals import Made, made

SPEC = GemmSpec(dtype=F16, c_dtype=F32)
#: A column-major B of 4 bits.
WEIGHTS = GemmSpec(dtype=I8, b_dtype=I4, b_order="col")
PLAIN = Schedule.of(tile=(32, 4), group=(4, 32), block_k=64, atom="dpas", block_2d=True, large_grf=True)
TARGET = TARGETS["xe_hpc"]


@pytest.mark.parametrize(
    ("spec", "schedule", "problem"),
    [
        (GemmSpec(), PLAIN, "atom dpas multiplies float16 or bfloat16 or int8, and float32 by tf32, not float32"),
        (SPEC, PLAIN.but(tf32=True), "tf32 is for float32, not float16: leave tf32 out"),
        (SPEC, PLAIN.but(tile=(24, 4)), "the tile's 24 rows are not those of a 2D block read: use one of 8, 16, 32"),
        (SPEC, PLAIN.but(group=(4, 24)), "group 4x24 is not of whole sub-groups of 16: use group 4x32"),
        (SPEC, PLAIN.but(group=(16, 128)), "2048 work-items > 1024 on this target: use a smaller group"),
        (SPEC, PLAIN.but(block_k=48), "block_k = 48, but an instruction goes 16 deep in float16, and a 2D block read"),
        (SPEC, PLAIN.but(block_k=16, split_k=2), "block_k = 16, but parts of K are 32 deep at least with block_2d"),
        (SPEC, PLAIN.but(address_payloads="prefetches"), "address_payloads prefetches, but there are none"),
        (SPEC, PLAIN.but(large_grf=False), "> 512 B on this target: use a smaller tile or large_grf"),
        (
            GemmSpec(dtype=F16),
            PLAIN.but(block_writes=True),
            "c_dtype float16, but block_writes stores sums as they are",
        ),
        (replace(SPEC, epilogue=("gelu",)), PLAIN.but(block_writes=True), "an epilogue, but block_writes stores sums"),
        (SPEC, PLAIN.but(block_writes=True, split_k=2), "split_k = 2, but block_writes stores to C"),
        (replace(SPEC, a_order="col"), PLAIN, "a in column-major order, but block_2d takes only B so: use row-major"),
        (replace(SPEC, prologue_a="a * 2"), PLAIN, "prologue_a, but block_2d loads A to dpas as it is: leave"),
        (WEIGHTS, PLAIN.but(block_k=32), "block_k = 32, but 2D block reads of int4 go 64 deep: use block_k 64"),
        (WEIGHTS, defaults("dpas"), "b_dtype int4 by dtype int8, which dpas on 2D block reads alone multiplies: use"),
        (GemmSpec(dtype=I8, a_dtype=I4), PLAIN, "a_dtype int4 by dtype int8, but dpas takes int4 as B alone"),
        (replace(SPEC, b_dtype=I8), PLAIN, "b_dtype int8, but block_2d loads B to dpas as it is: leave block_2d out"),
        (replace(SPEC, wide=True), PLAIN, "matrices of 2^31 elements and more, but block_2d counts by 32 bits"),
        (SPEC, partial(PLAIN.but, c_width=4), "c_width = 4 means nothing to mainloop DpasBlock2D"),
        (SPEC, partial(defaults("dpas").but, prefetch_distance=1), "means nothing to mainloop Dpas: leave it out"),
    ],
)
def test_refusals(spec: GemmSpec, schedule: Made, problem: str) -> None:
    with pytest.raises(ScheduleError) as error:
        driver.emit(spec, made(schedule), target=TARGET)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("spec", "reads"),
    [
        (SPEC, ("read_16b_32r16x2c", "read_transform_16b_32r16x2c")),
        (GemmSpec(dtype=BF16), ("read_16b_32r16x2c", "read_transform_16b_32r16x2c")),
        (GemmSpec(dtype=I8), ("read_8b_32r32x2c", "read_transform_8b_32r16x4c")),
        (replace(SPEC, b_order="col"), ("read_16b_32r16x2c", "read_transpose_32b_16r8x1c")),
        (GemmSpec(dtype=I8, b_order="col"), ("read_8b_32r32x2c", "read_transpose_32b_16r8x1c")),
        (WEIGHTS, ("read_8b_32r32x2c", "read_transpose_32b_16r8x1c")),
        (GemmSpec(), ("read_32b_32r8x2c", "read_32b_16r16x1c", "prefetch_32b_32r16x1c")),
    ],
    ids=["float16", "bfloat16", "int8", "float16_by_columns", "int8_by_columns", "int4", "tf32"],
)
def test_names_are_those_of_the_extension(spec: GemmSpec, reads: tuple[str, ...]) -> None:
    text = driver.emit(spec, PLAIN.but(prefetch_distance=1, tf32=spec.dtype == F32), target=TARGET).text
    for read in reads if spec.dtype == F32 else (*reads, reads[0].replace("read", "prefetch")):
        assert f" intel_sub_group_2d_block_{read}(" in text


def test_a_device_must_have_both_extensions_or_runs_software() -> None:
    source = driver.emit(SPEC, PLAIN, target=TARGET)
    assert source.matrix_extensions == (
        "cl_intel_subgroup_matrix_multiply_accumulate",
        "cl_intel_subgroup_2d_block_io",
    )
    assert source.alignment == 64
    assert [entry.name for entry in source.entry_points] == [source.name]
    head = " ".join(source.text.split("\n\n", 1)[0].replace("//", "").split())
    assert "cl_intel_subgroup_2d_block_io; or, without them, -DGEMMGEN_DPAS_SOFTWARE in their place" in head
    assert "A and B that begin on multiples of 64 bytes" in head
    assert "buffer, 2D block reads of 32x32" in head


def test_the_limits_of_messages_are_said_before_their_conditions() -> None:
    """2^24 and the other constants are those of the hardware."""
    before, _conditions = driver.emit(SPEC, PLAIN, target=TARGET).text.split("const int k_main =")
    said = " ".join(before[-300:].replace("//", "").split())
    assert "a pitch that is a multiple of 16 bytes and at most 2^24 bytes" in said
    assert "lines of at least 64 bytes, and at most 2^24 rows." in said


def test_prefetches_are_spread_over_a_step() -> None:
    """Of A and of B by turns. Where there are more than sub-steps, as many with each."""
    few = PLAIN.but(group=(8, 64), block_k=128, prefetch_distance=1)
    text = driver.emit(SPEC, few, target=TARGET).text
    assert "if (p % 4 == 0) {\n                prefetch_32x32(a" in text
    assert "sub_group_barrier(0);\n            if (p % 4 == 1) {\n                prefetch_32x32(b" in text
    many = few.but(group=(1, 16), block_k=64)
    loop = driver.emit(SPEC, many, target=TARGET).text.split("for (int p = 0")[1].split("ushort a_frag")[0]
    assert "p % " not in loop and loop.count("prefetch_") == 2


def test_address_payloads_are_filled_once_and_advanced() -> None:
    """Without the functions of Intel's compiler the same are structures, for the extension's own functions."""
    text = driver.emit(SPEC, PLAIN.but(prefetch_distance=1, address_payloads="all"), target=TARGET).text
    before, loop = text.split("// Address payloads: each is filled once")[1].split("for (int k0 = 0; k0 < k_main;")
    loop = loop.split("// The rest of K")[0]
    assert before.count("= place_") == 4
    assert "place_" not in loop
    assert "read_32x32_at(a_frag[0], &a_at);" in loop
    assert "move_cols(&a_ahead, BK);" in loop
    assert "move_rows(&b_at[j], 32);" in loop
    assert "or, without them, -DGEMMGEN_NO_ADDRESS_PAYLOADS" in " ".join(text.replace("//", "").split())
    # What each lane loads for itself has none.
    assert "_at(" not in text.split("// The rest of K")[1].split("if (beta")[0]


def test_prefetches_alone_may_keep_their_payloads() -> None:
    text = driver.emit(SPEC, PLAIN.but(prefetch_distance=1, address_payloads="prefetches"), target=TARGET).text
    assert "prefetch_32x32_at(&a_ahead);" in text
    assert "read_32x32(a_frag[0], a, m, k_words, lda, (int2)(k0 + p * 32, row));" in text


def test_sycl_declares_what_opencl_c_has() -> None:
    """In the global namespace, whose names are mangled as OpenCL C's; blocks are told where A's lines end, not where
    the loop does.
    """
    schedule = PLAIN.but(prefetch_distance=1, barrier=True, block_writes=True, address_payloads="all")
    source = driver.emit(SPEC, schedule, "sycl", TARGET)
    before, inside = source.text.split("namespace ", 1)
    for name in ("matrix_mad_k16", "2d_block_read_16b_32r16x2c", "2d_block_write_32b_8r16x1c"):
        assert re.search(rf"SYCL_EXTERNAL \w+ intel_sub_group_\w*{name}\(", before)
    assert "__builtin_IB_subgroup_block_read_ap_u16_m32k16v2(*place" in inside
    assert "place_32x32(a, m, k_words, lda, {-32, row})" in inside
    assert source.matrix_options == ("", "-DGEMMGEN_DPAS_SOFTWARE")
    assert source.options(True, True) == ()
    assert source.options(False, False) == ("-DGEMMGEN_DPAS_SOFTWARE",)
    head = " ".join(before.replace("//", "").split())
    assert "which Intel's compiler has; or, without them, -DGEMMGEN_DPAS_SOFTWARE: the same in software" in head
    assert "A, B and C that begin on multiples of 64 bytes" in head


def test_sycl_has_dpas_on_2d_blocks_alone() -> None:
    with pytest.raises(ScheduleError, match="use --backend opencl"):
        driver.emit(SPEC, defaults("dpas"), "sycl")


def test_columns_of_a_transposed_block_are_counted_in_words() -> None:
    spec = replace(SPEC, b_order="col")
    text = driver.emit(spec, PLAIN.but(prefetch_distance=1, address_payloads="all"), target=TARGET).text
    assert "move_cols(&b_at[q * TN + j], 16);" in text
    assert "(int2)(q * 8 - 16, tile_col + j * 16)" in text
    assert "BlockX(*place, by);" in text
    assert "__builtin_IB_subgroup_block_read_ap_transpose_u32_m16k8v1(*place, 0, 0, 0);" in text
    # Where nothing is advanced, compilers of SYCL would divide each place anew.
    text = driver.emit(spec, PLAIN, "sycl", TARGET).text
    assert "{k0 / 2 + p * 16 + q * 8, tile_col + j * 16}" in text
    assert "at.x / 2" not in text


@pytest.mark.parametrize("language", ["opencl", "sycl"])
def test_int4_is_multiplied_as_it_is_stored(language: str) -> None:
    """A message brings both of an instruction's depths in K; nothing takes halves of bytes apart but the software."""
    text = driver.emit(WEIGHTS, PLAIN.but(block_k=128, prefetch_distance=1), language, TARGET).text
    assert "intel_sub_group_i8_i4_matrix_mad_k32(" in text
    assert "multiply(&acc[j][i * 8], a_frag[q][i * 8], &b_frag[j][q * 16]);" in text
    kernel = text.split("Steps of BK")[1].split("The rest of K")[0]
    assert "k0 / 8 + p * 8" in kernel
    assert "const int k_words = k - k % 8;" in text


def test_where_elements_of_a_block_lie() -> None:
    block = Block2D(32, 2, 16, 2)
    assert block.shape == (32, 64)
    assert [block.offset(e) for e in (0, 1, 2, 63, 64)] == [(0, 0), (0, 1), (1, 0), (31, 1), (0, 32)]
    assert block_2d_read(2, 32, 2).widths == (64,)
    two_rows = Block2D(32, 2, 16, lines=2)
    assert two_rows.shape == (32, 16)
    assert [two_rows.offset(e) for e in (0, 1, 15, 16)] == [(0, 0), (2, 0), (30, 0), (0, 8)]
    assert [two_rows.lane_offset(x) for x in (0, 7, 8)] == [(0, 0), (0, 7), (1, 0)]


#: What the extension lists, version 1.1.0 ("New OpenCL C Functions"): bits, rows, columns and blocks of each function.
ROWS = (1, 2, 4, 8, 16, 32)
LISTED = {
    *(f"read_8b_{rows}r32x{count}c" for rows in ROWS for count in (1, 2)),
    *(f"read_16b_{rows}r16x{count}c" for rows in ROWS for count in (1, 2)),
    *(f"read_transform_8b_32r16x{count}c" for count in (1, 2, 4)),
    *(f"read_transform_16b_{rows}r16x{count}c" for rows in (16, 32) for count in (1, 2)),
    *(f"read_32b_{rows}r8x{count}c" for rows in ROWS for count in (1, 2)),
    *(f"read_32b_{rows}r16x1c" for rows in ROWS),
    *(f"prefetch_32b_{rows}r16x1c" for rows in ROWS),
    *(f"read_transpose_32b_{rows}r8x1c" for rows in (16, 32)),
    *(f"write_32b_{rows}r16x1c" for rows in (1, 2, 4, 8)),
    *(f"prefetch_8b_{rows}r32x{count}c" for rows in ROWS for count in (1, 2)),
    *(f"prefetch_16b_{rows}r16x{count}c" for rows in ROWS for count in (1, 2)),
}


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("dtype", [F16, I8, F32], ids=str)
def test_the_extension_has_every_function_that_is_called(dtype: DType, order: Order) -> None:
    """Whatever the tile, the group and the depth of a step."""
    spec, called = GemmSpec(dtype=dtype, c_dtype=None if dtype == I8 else F32, b_order=order), set()
    for rows, cols, (high, wide), block_k in product((8, 16, 32), (1, 2, 3, 4), ((1, 16), (2, 64)), (32, 64, 96, 128)):
        schedule = PLAIN.but(tile=(rows, cols), group=(high, wide), block_k=block_k, prefetch_distance=1)
        schedule = schedule.but(block_writes=True, tf32=dtype == F32)
        with suppress(ScheduleError):
            text = driver.emit(spec, schedule, target=TARGET).text
            called |= set(re.findall(r"intel_sub_group_2d_block_(\w+)", text))
    assert len(called) > 4
    assert called <= LISTED
