"""Matrix instructions in SYCL, by joint_matrix and by dpas on 2D blocks: DPC++ takes them without a warning, g++ their
host side, and Intel's GPU compiler makes matrix instructions of them, without spills.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gemmgen import driver, presets
from gemmgen.inspect.jobs import Failure, file_jobs, inspect
from gemmgen.inspect.machine import choose
from gemmgen.ir.dtypes import BF16, F16, F32, I4, I8
from gemmgen.ir.target import TARGETS
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.support import sycl
from tests.support.tools import tool

HALF, INTEGER = GemmSpec(dtype=F16, c_dtype=F32), GemmSpec(dtype=I8)
BY_COLUMNS, GELU = GemmSpec(dtype=BF16, c_dtype=F32, b_order="col"), GemmSpec(dtype=F16, epilogue=("bias", "gelu"))
BATCH = replace(HALF, batched=True)
#: A column-major B of 4 bits, by int8.
WEIGHTS = GemmSpec(dtype=I8, b_dtype=I4, b_order="col")
JOINT = replace(presets.load("joint_matrix_32x4_8x64").schedule, name=None)
#: Dpas by the functions of OpenCL C; with all that they do, and with neither prefetches nor barriers.
BLOCKS = replace(presets.load("dpas_32x4_8x64_block_2d").schedule, name=None).but(block_k=256, address_payloads="all")
PLAIN = BLOCKS.but(prefetch_distance=0, barrier=False, address_payloads="none")
CASES: dict[str, tuple[GemmSpec, Schedule]] = {
    "joint_half": (HALF, JOINT),
    "joint_bfloat16_col": (BY_COLUMNS, JOINT),
    "joint_half_to_half_gelu": (GELU, JOINT),
    "joint_batch": (BATCH, JOINT),
    "joint_parts_of_k": (HALF, JOINT.but(split_k=4)),
    "joint_int8": (INTEGER, JOINT.but(block_k=64)),
    "joint_int8_col": (replace(INTEGER, b_order="col"), JOINT.but(block_k=64)),
    "dpas_half": (HALF, PLAIN),
    "dpas_half_prefetches": (HALF, BLOCKS),
    "dpas_bfloat16_col": (BY_COLUMNS, PLAIN),
    "dpas_half_to_half_gelu": (GELU, PLAIN.but(block_writes=False)),
    "dpas_batch": (BATCH, BLOCKS.but(group=(4, 32))),
    "dpas_parts_of_k": (HALF, PLAIN.but(split_k=4, block_writes=False)),
    "dpas_int8": (INTEGER, BLOCKS.but(block_k=512)),
    "dpas_int4": (WEIGHTS, BLOCKS.but(block_k=512, address_payloads="prefetches")),
    "dpas_tf32": (GemmSpec(), PLAIN.but(tile=(32, 3), block_k=64, tf32=True)),
}
#: The least shares of matrix instructions in the hot loop, on pvc and bmg. Messages of Xe2 take constants beside an
#: address payload, those of Xe-HPC do not.
SHARES = {
    "joint": (0.28, 0.53),
    "dpas_half": (0.64, 0.84),
    "dpas_half_prefetches": (0.73, 0.75),
    "dpas_bfloat16_col": (0.34, 0.72),
    "dpas_half_to_half_gelu": (0.64, 0.84),
    "dpas_batch": (0.72, 0.72),
    "dpas_int8": (0.73, 0.73),
    "dpas_int4": (0.45, 0.77),
    "dpas_tf32": (0.40, 0.60),
}

pytestmark = sycl.needs_device


@pytest.mark.parametrize("case", CASES)
def test_device_and_host_side(case: str, tmp_path: Path) -> None:
    source = driver.emit(*CASES[case], "sycl", TARGETS["xe_hpc"], "kernel")
    sycl.device_compile(source)
    for options in (source.options(False, False), ("-DGEMMGEN_NO_ADDRESS_PAYLOADS",)) if "dpas" in case else ():
        sycl.device_compile_text(source.text, source.name, *options)
    file = tmp_path / f"{case}.cpp"
    file.write_text(driver.emit(*CASES[case], "sycl", TARGETS["xe_hpc"]).text)
    sycl.host_check(file)


@pytest.mark.parametrize("target", ["pvc", "bmg"])
@pytest.mark.parametrize("case", [case for case in CASES if "parts_of_k" not in case])
def test_matrix_instructions(case: str, target: str, tmp_path: Path) -> None:
    tool("ocloc")
    file = tmp_path / f"{case}.hpp"
    file.write_text(driver.emit(*CASES[case], "sycl", TARGETS["xe_hpc"]).text)
    (outcome,) = inspect(file_jobs(file, None, choose([target])))
    assert not isinstance(outcome, Failure), outcome.problems
    assert outcome.compiled.resources.scratch == 0
    assert outcome.compiled.resources.registers == 256
    assert outcome.loop is not None
    print(f"{case} {target} {outcome.loop.share:.3f}")  # noqa: T201  (for the docs, by -s)
    assert outcome.loop.share >= SHARES[case if case in SHARES else "joint"][target == "bmg"]
