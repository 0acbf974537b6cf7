"""What a head comment says of a kernel is read off the kernel: `tests/support/heads.py` holds it to what is printed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen import candidates, driver
from gemmgen.backends import BACKENDS, backend
from gemmgen.spec import GemmSpec
from gemmgen.summary import summary
from tests.support import heads


def lines(name: str, language: str, spec: GemmSpec | None = None) -> dict[str, str]:
    """Label -> what is said, in one line."""
    known = candidates.load(name)
    spec = spec or known.spec
    target = driver.default_target(spec, known.schedule, language)
    built = driver.build_program(spec, known.schedule, target)
    said = summary(spec, built, driver.lowered(built, target), backend(language).words)
    return {label: "; ".join(texts) for label, texts in said}


@pytest.mark.parametrize("name", candidates.names())
def test_the_head_says_what_is_printed(name: str) -> None:
    known = candidates.load(name)
    for language in BACKENDS:
        if not driver.refusals(known.spec, known.schedule, language):
            source, program = driver.emit_program(known.spec, known.schedule, language)
            assert heads.problems(source, program) == []


@pytest.mark.parametrize(
    ("name", "label", "said"),
    [
        ("wgmma_128x256_s4", "A", "global memory, TMA, 4 stages in shared memory, 128-byte swizzle"),
        (
            "wgmma_128x256_s4_turns",
            "Grid",
            "persistent blocks, each loops over tiles of C; threadblock swizzle over 12 rows",
        ),
        ("wgmma_128x256_s4_turns", "Threads", "multiply, then store C, one warpgroup while another multiplies"),
        ("wgmma_64x128_s4_2x1", "B", "128-byte swizzle, multicast to 2 blocks"),
        ("wgmma_64x128_s4_2x1", "Grid", "clusters of 2 blocks with TMA multicast"),
        ("wgmma_64x256_s5", "B", "evicted from L2 first"),
        (
            "wgmma_16x64_s8_joined2",
            "Tile",
            "16x64 of C per block, 4x2 per thread, 64 along K per step, computed as C^T",
        ),
        ("wgmma_16x64_s8_joined2", "Grid", "split-K: 2 parts, added up by clusters of 2 blocks"),
        (
            "wgmma_tf32_256x128_s4_held",
            "Multiply",
            "wgmma m64n256k8, sums in float32, B from registers, A and B rounded to TF32 as TMA loads them",
        ),
        ("wgmma_3xtf32_128x128_s3", "Multiply", "3xTF32: three products for each"),
        ("mma_8x16_16x8", "B", "rows padded by 8, ldmatrix.trans, registers double-buffered across tiles"),
        (
            "mbarrier_8x8_2x16_split8",
            "Threads",
            "128 per block, 4 slices of each step along K (sliced-K), warps of 2x16 threads",
        ),
        ("mbarrier_8x8_2x16_split8", "C", "slices added up in shared memory, stores of 4 elements, to the workspace"),
        ("mbarrier_8x16_16x16_stream", "Pipeline", "a full and an empty mbarrier for every 4 stages"),
        ("mbarrier_8x16_16x16_stream", "Grid", "stream-K: a block per multiprocessor"),
        ("reduction_4x4_4x4", "C", "atomic additions, in no fixed order"),
    ],
)
def test_what_is_said(name: str, label: str, said: str) -> None:
    assert said in lines(name, "cuda")[label]


@pytest.mark.parametrize(
    ("name", "label", "said"),
    [
        ("block_read_32x2_1x8", "A", "image, block reads of 8 rows, passed around the sub-group by shuffles"),
        ("L3_SIMD_8x4_8x8_barrier", "Pipeline", "a barrier before the arithmetic of each step"),
        (
            *("dpas_32x4_8x64_block_2d", "Pipeline"),
            "a split barrier: arrive before the arithmetic of each step, wait after it",
        ),
        ("L3_SIMD_8x4_8x8", "Tile", "32 along K per step, in sub-steps of 8"),
        ("dpas_32x2_1x8", "B", "buffer, prepacked by a kernel before, block reads of 8 words"),
        ("cpu_6x64_prefetched", "Loops", "k_block by 1024, own_row by 6, col0 by 64, k0 by 4, kk by 1"),
        ("cpu_6x64_prefetched", "Prefetch", "C, b_block"),
        ("cpu_4x4_along_k", "Multiply", "dot products along K, in vectors of 16"),
        ("smem_8x8_double", "Pipeline", "the next stage is loaded into registers before the arithmetic"),
    ],
)
def test_what_is_said_in_opencl(name: str, label: str, said: str) -> None:
    assert said in lines(name, "opencl")[label]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mma_8x8_16x16_prefetch", {}),
        ("wgmma_128x256_s4", {"epilogue_stages": 0, "c_width": 1}),
        ("wgmma_128x256_s4", {"epilogue_stages": 0, "c_width": 4}),
    ],
    ids=str,
)
def test_a_block_is_whole_where_its_lines_are_stored_one_by_one(name: str, changes: dict[str, int]) -> None:
    """C is not read there, so that a loop stores each line as it is read back."""
    known = candidates.load(name)
    schedule, spec = known.schedule.but(**changes), replace(known.spec, beta=0.0)
    source, program = driver.emit_program(spec, schedule, "cuda")
    assert "for (int line = " in source.text
    assert heads.problems(source, program) == []
    rows, cols = schedule.block_tile
    assert f"// Tile       {rows}x{cols} of C per block" in source.text


def test_what_passes_registers_beside_copies_is_said() -> None:
    known = candidates.load("mma_8x8_16x16_prefetch")
    packed = known.schedule.but(a=replace(known.schedule.a, prepacked=True))
    assert "the next stage of B is loaded into registers" in driver.emit(known.spec, packed, "cuda").text


def test_nothing_is_said_of_a_product_that_is_not_there() -> None:
    spec = replace(candidates.load("naive").spec, alpha=0.0)
    assert lines("naive", "opencl", spec) == {"Tile": "an element of C per work-item: A and B are not multiplied"}
