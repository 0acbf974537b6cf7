"""Products by joint_matrix of SYCL: DPC++ takes them without a warning, g++ their host side, and Intel's GPU compiler
makes matrix instructions of them, without spills.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gemmgen import driver, presets
from gemmgen.inspect.jobs import Failure, file_jobs, inspect
from gemmgen.inspect.machine import choose
from gemmgen.ir.dtypes import BF16, F16, F32, I8
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.support import sycl
from tests.support.tools import tool

SCHEDULE = presets.load("joint_matrix_32x4_8x64").schedule
HALF, INTEGER = GemmSpec(dtype=F16, c_dtype=F32), GemmSpec(dtype=I8)
DEEP, PARTS = replace(SCHEDULE.but(block_k=64), name=None), replace(SCHEDULE.but(split_k=4), name=None)
CASES: dict[str, tuple[GemmSpec, Schedule]] = {
    "half": (HALF, SCHEDULE),
    "bfloat16_col": (GemmSpec(dtype=BF16, c_dtype=F32, b_order="col"), SCHEDULE),
    "half_to_half_gelu": (replace(HALF, c_dtype=F16, epilogue=("bias", "gelu")), SCHEDULE),
    "batch": (replace(HALF, batched=True), SCHEDULE),
    "parts_of_k": (HALF, PARTS),
    "int8": (INTEGER, DEEP),
    "int8_col": (replace(INTEGER, b_order="col"), DEEP),
}
#: The least share of matrix instructions in the hot loop. Messages of Xe2 take constants beside an address payload,
#: those of Xe-HPC do not.
SHARES = {"pvc": 0.28, "bmg": 0.53}

pytestmark = sycl.needs_device


@pytest.mark.parametrize("case", CASES)
def test_device_and_host_side(case: str, tmp_path: Path) -> None:
    sycl.device_compile(driver.emit(*CASES[case], "sycl", form="kernel"))
    file = tmp_path / f"{case}.cpp"
    file.write_text(driver.emit(*CASES[case], "sycl").text)
    sycl.host_check(file)


@pytest.mark.parametrize("target", SHARES)
@pytest.mark.parametrize("case", [case for case in CASES if case != "parts_of_k"])
def test_matrix_instructions(case: str, target: str, tmp_path: Path) -> None:
    tool("ocloc")
    file = tmp_path / f"{case}.hpp"
    file.write_text(driver.emit(*CASES[case], "sycl").text)
    (outcome,) = inspect(file_jobs(file, None, choose([target])))
    assert not isinstance(outcome, Failure), outcome.problems
    assert outcome.compiled.resources.scratch == 0
    assert outcome.compiled.resources.registers == 256
    assert outcome.loop is not None
    print(f"{case} {target} {outcome.loop.share:.3f}")  # noqa: T201  (for the docs, by -s)
    assert outcome.loop.share >= SHARES[target]
