"""Shares of `dpas` in the hot loop of kernels on 2D block reads, by Intel's compiler of today: the table of
docs/matrices.md. Counted from machine code; nothing is run.

gemmgen fetch ocloc
python benchmarks/intel_matrix_share.py
python benchmarks/intel_matrix_share.py sycl    # by SYCL's run-time compiler before
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from gemmgen import driver
from gemmgen.inspect.jobs import Failure, Job, file_jobs, inspect, jobs
from gemmgen.inspect.machine import machines
from gemmgen.inspect.report import Report
from gemmgen.ir.dtypes import BF16, F16, F32, I4, I8, DType
from gemmgen.ir.target import TARGETS
from gemmgen.schedule import Schedule
from gemmgen.schedule.fields import AddressPayloads
from gemmgen.spec import GemmSpec, Order

CHIPS = ("pvc", "bmg", "lnl", "ptl")
GROUPS = {"256x256": (8, 64), "128x128": (4, 32)}
PLAIN = Schedule.of(
    tile=(32, 4),
    group=(8, 64),
    block_k=256,
    atom="dpas",
    block_2d=True,
    block_writes=True,
    large_grf=True,
)


def schedule(chip: str, dtype: DType, group: tuple[int, int], both: bool) -> Schedule:
    """That of a chip: Xe-HPC keeps the payloads of all messages, Xe2 those of prefetches."""
    kept: AddressPayloads = "all" if chip == "pvc" else "prefetches" if both else "none"
    schedule = PLAIN.but(group=group, block_k=512 // dtype.size, address_payloads=kept)
    return schedule.but(prefetch_distance=1, barrier=True) if both else schedule


def job(spec: GemmSpec, schedule: Schedule, chip: str, language: str) -> Job | Failure:
    """A kernel, ready to compile. One in SYCL is read from a file, of which its compiler makes SPIR-V."""
    if language == "opencl":
        return jobs(spec, schedule, [machines()[chip]])[0]
    with TemporaryDirectory() as folder:
        file = Path(folder, "kernel.hpp")
        file.write_text(driver.emit(spec, schedule, language, TARGETS["xe_hpc"]).text)
        return file_jobs(file, None, [machines()[chip]])[0]


def rows(dtype: DType, language: str, b_order: Order = "row", b_dtype: DType | None = None) -> Iterator[str]:
    """A line for each work-group, without and with prefetches and barriers."""
    spec = GemmSpec(dtype=dtype, c_dtype=None if dtype == I8 else F32, b_order=b_order, b_dtype=b_dtype)
    for name, group in GROUPS.items():
        for both in (False, True):
            made = [job(spec, schedule(chip, dtype, group, both), chip, language) for chip in CHIPS]
            cells = [cell(outcome) for outcome in inspect(made)]
            what = f"{dtype}{', a column-major B' if b_order == 'col' else ''}{f' in {b_dtype}' if b_dtype else ''}"
            yield f"| {what} | {name} | {'with' if both else 'without'} | {' | '.join(cells)} |"


def cell(outcome: Report | Failure) -> str:
    """Share, `dpas` of all instructions, the share of `sync.nop`, scratch memory."""
    if isinstance(outcome, Failure) or outcome.loop is None:
        return "unknown"
    total = len(outcome.listing)
    multiply, waits = (sum(i.opcode.startswith(x) for i in outcome.listing) for x in ("dpas", "sync.nop"))
    scratch = outcome.compiled.resources.scratch
    return f"{multiply / total:.3f} ({multiply} of {total}), {waits / total:.3f}, {scratch}"


def main() -> None:
    """Print it."""
    language = sys.argv[1] if sys.argv[1:] else "opencl"
    print(f"| type | work-group | prefetches, barriers | {' | '.join(CHIPS)} |")
    print("|---|---|---|" + "---|" * len(CHIPS))
    for dtype in (F16, BF16, I8):
        for line in rows(dtype, language):
            print(line, flush=True)
    for dtype in (F16, I8):
        for line in rows(dtype, language, "col"):
            print(line, flush=True)
    for line in rows(I8, language, "col", I4):
        print(line, flush=True)


if __name__ == "__main__":
    main()
