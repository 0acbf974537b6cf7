"""What Intel's compilers make of kernels by block reads: arithmetic, and nothing in memory that belongs in registers.

Judged by the instructions: `ocloc` may return 0 for a kernel that it could not link. Limits are of the compiler of
2022, which no longer changes; figures by that of today stand in benchmarks/static (`test_static.py`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gemmgen import candidates, driver, presets
from gemmgen.inspect.jobs import file_jobs, inspect, jobs
from gemmgen.inspect.machine import choose
from gemmgen.inspect.report import Report
from gemmgen.ir.dtypes import BF16, F32, I4, I8, DType
from gemmgen.methods import defaults
from gemmgen.schedule.fields import AddressPayloads
from gemmgen.spec import GemmSpec
from tests.support.inspect import reported
from tests.support.tools import tool

#: Preset, multiply-adds of its hot loop, and for each device the least share of the loop's instructions.
IMAGES = (
    ("block_read_32x2_1x8", 512, {"bdw": 0.96, "skl": 0.96}),
    ("block_read_32x1_1x8", 512, {"bdw": 0.94, "skl": 0.94}),
)
SIMD = tuple(name for name in candidates.names() if name.startswith("L3_SIMD"))
DEVICES = ("bdw", "skl")


@pytest.mark.parametrize(
    ("name", "multiply_adds", "device", "least"),
    [(name, count, device, least) for name, count, shares in IMAGES for device, least in shares.items()],
)
def test_hot_loop_from_images(name: str, multiply_adds: int, device: str, least: float) -> None:
    tool("ocloc"), tool("ocloc-legacy"), tool("iga64")
    found = reported(name, device)
    assert found.compiled.resources.lanes == 8
    assert found.compiled.resources.scratch == 0
    assert found.loop is not None
    assert found.loop.math == multiply_adds
    assert found.loop.share >= least


@pytest.mark.parametrize("name", SIMD)
@pytest.mark.parametrize("device", DEVICES)
def test_hot_loop_from_buffers(name: str, device: str) -> None:
    tool("ocloc"), tool("ocloc-legacy"), tool("iga64")
    found = reported(name, device)
    assert found.compiled.resources.scratch == 0
    assert found.loop is not None
    assert found.loop.share >= 0.90
    assert found.loop.math / found.loop.messages >= 16


@pytest.mark.parametrize(("lanes", "device"), [(8, "dg2-g10"), (16, "pvc")])
@pytest.mark.parametrize("dtype", [BF16, I8], ids=str)
def test_matrix_instructions_of_other_types(dtype: DType, lanes: int, device: str) -> None:
    """Judged by the instructions: a built-in that is not there leaves nothing behind."""
    tool("ocloc"), tool("ocloc-legacy"), tool("iga64")
    schedule = defaults("dpas", (16, 2), (1, lanes), 32 // dtype.size, lanes)
    (outcome,) = inspect(jobs(GemmSpec(dtype=dtype), schedule, choose([device])))
    assert isinstance(outcome, Report), outcome.problems
    matrix = [i for i in outcome.compiled.listing.instructions if "dpas" in i.text]
    assert len(matrix) >= 4 and {i.fmas for i in matrix} == {8 * 32 // dtype.size * lanes}
    assert outcome.compiled.resources.scratch == 0


@pytest.mark.parametrize(
    ("name", "device", "products"),
    [
        ("dpas_32x2_1x8", "dg2-g10", 8),
        ("dpas_32x2_1x16", "pvc", 8),
        ("dpas_40x4_1x8_k64", "dg2-g10", 80),
        ("dpas_32x5_1x16_k64", "pvc", 80),
    ],
)
def test_matrix_instructions(name: str, device: str, products: int) -> None:
    """All of them whole; how much else stands in the loop is told in docs/matrices.md."""
    tool("ocloc"), tool("iga64")
    found = reported(name, device)
    lanes = 16 if device == "pvc" else 8
    assert found.compiled.resources.lanes == lanes
    assert found.compiled.resources.registers == (256 if name.endswith("_k64") else 128)
    assert found.compiled.resources.scratch == 0
    matrix = [i for i in found.compiled.listing.instructions if "dpas" in i.text]
    assert len(matrix) >= products
    assert all(i.fmas == 8 * 16 * lanes for i in matrix)
    assert found.loop is not None
    assert found.loop.math >= products


#: On 2D blocks, a work-group of 256x256, by chip: which messages keep payloads, and the least share of `dpas` without
#: prefetches and barriers, and with them.
ON_2D_BLOCKS: dict[str, tuple[AddressPayloads, float, float]] = {
    "pvc": ("all", 0.78, 0.72),
    "bmg": ("prefetches", 0.84, 0.80),
}


@pytest.mark.parametrize("device", ON_2D_BLOCKS)
@pytest.mark.parametrize("dtype", [BF16, I8], ids=str)
def test_share_of_dpas_on_2d_blocks(dtype: DType, device: str) -> None:
    tool("ocloc")
    spec = GemmSpec(dtype=dtype, c_dtype=None if dtype == I8 else F32)
    kept, alone, with_prefetches = ON_2D_BLOCKS[device]
    whole = replace(presets.load("dpas_32x4_8x64_block_2d").schedule, name=None)
    whole = whole.but(block_k=512 // dtype.size, address_payloads=kept)
    plain = whole.but(prefetch_distance=0, barrier=False, address_payloads="all" if kept == "all" else "none")
    for schedule, least in ((plain, alone), (whole, with_prefetches)):
        (outcome,) = inspect(jobs(spec, schedule, choose([device])))
        assert isinstance(outcome, Report), outcome.problems
        assert outcome.compiled.resources.scratch == 0
        assert outcome.loop is not None and outcome.loop.math == 256
        assert outcome.loop.share >= least


def test_int4_is_an_operand_of_dpas() -> None:
    """Of 4 bits by 8, with nothing in the loop that takes bytes apart."""
    tool("ocloc")
    spec = GemmSpec(dtype=I8, b_dtype=I4, b_order="col")
    schedule = replace(presets.load("dpas_32x4_8x64_block_2d").schedule, name=None).but(block_k=512)
    (outcome,) = inspect(jobs(spec, schedule, choose(["bmg"])))
    assert isinstance(outcome, Report), outcome.problems
    assert outcome.compiled.resources.scratch == 0
    matrix = [i.text for i in outcome.listing if "dpas" in i.text]
    assert len(matrix) == 256 and all(":s4" in text and ":b" in text for text in matrix)
    assert outcome.loop is not None and outcome.loop.share >= 0.77


#: Kernels with tiles in local memory or in registers, by the chips on which each keeps to its registers.
WITHIN_REGISTERS = {
    **dict.fromkeys(("smem_8x8", "smem_8x8_reg_double", "smem_8x8_transposed", "lds_8x8_16x16_k8"), DEVICES),
    **dict.fromkeys(("L3_SLM_8x8_8x16", "L3_SLM_8x8_4x16", "L3_SLM_8x8_16x16", "smem_8x8_double_packed"), DEVICES),
    **dict.fromkeys(("smem_8x8_double", "tile_8x8"), ()),
    "vec4_4x4": DEVICES,
    "register_8x8_4x4": DEVICES,
}


@pytest.mark.parametrize(
    ("name", "device"),
    [(name, device) for name, chips in WITHIN_REGISTERS.items() for device in (*chips, "dg2-g10", "pvc")],
)
def test_no_spills(name: str, device: str) -> None:
    """Xe-HPC's compiler would take 32 lanes, and spill; SIMD16 is named there, and 256 registers where 128 are few."""
    tool("ocloc"), tool("ocloc-legacy"), tool("iga64")
    found = reported(name, device).compiled.resources
    assert found.scratch == 0 or device not in DEVICES, found.spills
    large = name in ("smem_8x8_double", "smem_8x8_double_packed", "tile_8x8") and device in ("pvc", "dg2-g10")
    assert found.registers == (256 if large else 128)
    assert found.lanes == 16 if device == "pvc" else found.lanes in (8, 16)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [name for name in WITHIN_REGISTERS if name.startswith("L3_SLM")])
def test_no_bounds_in_the_hot_loop(name: str, device: str) -> None:
    """Groups inside of C have a loop of their own: what is conditional there are a few moves of the compiler's."""
    tool("ocloc"), tool("ocloc-legacy"), tool("iga64")
    loop = reported(name, device).loop
    assert loop is not None
    assert loop.conditional <= 5
    assert loop.share > 0.69


def test_a_file_is_compiled_as_its_head_says(tmp_path: Path) -> None:
    """The option that chooses the matrix instructions, and that for twice the registers."""
    tool("ocloc"), tool("ocloc-legacy"), tool("iga64")
    file = tmp_path / "dpas_32x5_1x16_k64.cl"
    known = candidates.load(file.stem)
    file.write_text(driver.emit(known.spec, known.schedule).text)
    (outcome,) = inspect(file_jobs(file, "dpas_32x5_1x16_k64", choose(["pvc"])))
    assert isinstance(outcome, Report), outcome.problems
    assert outcome.compiled.resources.registers == 256
    assert sum("dpas" in i.text for i in outcome.compiled.listing.instructions) >= 80


def test_without_either_option_matrix_instructions_are_an_error(root: Path, tmp_path: Path) -> None:
    """A compiler that has them but does not say so (2022) would multiply in software, and nobody would know."""
    tool("ocloc"), tool("ocloc-legacy"), tool("iga64")
    text = (root / "generated" / "opencl" / "dpas_32x2_1x16.cl").read_text()
    for option, problem in (("", "GEMMGEN_DPAS_SOFTWARE"), (" -DGEMMGEN_DPAS_SOFTWARE", None)):
        file = tmp_path / "kernel.cl"
        file.write_text(text.replace(' -Dcl_intel_subgroup_matrix_multiply_accumulate=1"', f'{option}"'))
        legacy = [replace(machine, compiler="ocloc-legacy") for machine in choose(["pvc"])]
        (outcome,) = inspect(file_jobs(file, "dpas_32x2_1x16", legacy))
        if problem is not None:
            assert not isinstance(outcome, Report)
            assert problem in outcome.problems[0]
        else:
            assert isinstance(outcome, Report), outcome.problems
            assert not any("dpas" in i.text for i in outcome.compiled.listing.instructions)
