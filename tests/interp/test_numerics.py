"""What docs/numerics.md says of orders of summation and of flags; of devices, in tests/device/test_numerics.py."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gemmgen import candidates, driver
from gemmgen.fuzz.case import Case
from gemmgen.fuzz.checks import interpreted
from gemmgen.fuzz.data import Numbers, same_bits
from gemmgen.ir.dtypes import F32
from gemmgen.schedule import Schedule
from gemmgen.schedule.direct import Gemv
from gemmgen.spec import GemmSpec

F = NDArray[np.float32]
#: Whose parts of K are dealt out by the number of blocks has a test of its own (`test_stream.py`).
FLOAT32 = [
    name
    for name in candidates.names()
    if candidates.load(name).spec.dtype == F32
    and "tf32" not in candidates.load(name).schedule.atom
    and not candidates.load(name).schedule.stream_k
]
IN_PARTS = [
    name for name in FLOAT32 if candidates.load(name).schedule.split_k * candidates.load(name).schedule.sliced_k > 1
]
#: All of them were run on 2026-11-21.
SOME = [*dict.fromkeys([*IN_PARTS, *FLOAT32[::4]])]
SIZE, ALPHA, BETA = (9, 10, 203), np.float32(1.1), np.float32(0.3)


def chain(a: F, b: F, ks: list[int]) -> F:
    """fma after fma, each rounded once, along K as listed, from zero."""
    acc = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in ks:
        acc = (a[:, k : k + 1].astype(np.float64) * b[k : k + 1] + acc).astype(np.float32)
    return acc


def shares(schedule: Schedule, a: F, b: F) -> list[F]:
    """alpha times the sum of each part of K: of its slices' sums, in order."""
    if isinstance(schedule.mainloop, Gemv):
        return [added([ALPHA * lanes(schedule, a, b, x) for x in range(schedule.sliced_k)])]
    step, k = schedule.block_k, a.shape[1]
    piece = -(-k // (schedule.split_k * schedule.round_depth)) * schedule.round_depth
    own = step // schedule.sliced_k
    out = []
    for part in range(schedule.split_k):
        ks = list(range(k))[part * piece : (part + 1) * piece]
        sums = [ALPHA * chain(a, b, [i for i in ks if i % step // own == x]) for x in range(schedule.sliced_k)]
        out.append(added(sums))
    return out


def lanes(schedule: Schedule, a: F, b: F, number: int) -> F:
    """The sum of a slice's lanes: each takes its loads in turn, then one element; they add their sums in pairs."""
    width, count, k = schedule.a.width, schedule.lanes_along_k, a.shape[1]
    whole, each = k - k % width, schedule.sliced_k * count
    sums = []
    for lane in range(number * count, (number + 1) * count):
        loads = range(lane * width, whole, each * width)
        left = [whole + lane] if whole + lane < k else []
        sums.append(chain(a, b, [*(first + i for first in loads for i in range(width)), *left]))
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [sums[i] + sums[i + half] for i in range(half)]
    return sums[0]


def added(terms: list[F]) -> F:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@pytest.mark.parametrize("name", SOME)
def test_order_of_summation(name: str) -> None:
    preset = candidates.load(name)
    schedule = preset.schedule.but(split_k=min(preset.schedule.split_k, 3))
    backend = "cuda" if driver.refusals(preset.spec, schedule) else "opencl"
    target = driver.default_target(preset.spec, schedule, backend)
    case = Case(preset.spec, schedule, SIZE, alpha=float(ALPHA), beta=float(BETA))
    numbers = Numbers.of(case)
    (a,), (b,), (c,) = (x.astype(np.float32) for x in (numbers.a, numbers.b, numbers.c))
    if schedule.atomic:
        total = added([BETA * c, *shares(schedule, a, b)])
    else:  # fma(beta, C, alpha * acc)
        total = (BETA * c.astype(np.float64) + added(shares(schedule, a, b))).astype(np.float32)
    result = interpreted(driver.lower_program(preset.spec, schedule, target), numbers)[0]
    assert same_bits(result, total)


@pytest.mark.parametrize("backend", ["opencl", "sycl", "cuda"])
def test_no_flag_lets_a_compiler_forget_what_a_float_is(backend: str) -> None:
    """Neither in what the runtime passes on nor in the line that a file's head says to build it by."""
    name = "lds_8x8_16x16_k8"
    source = driver.emit(GemmSpec(), candidates.load(name).schedule, backend)
    said = " ".join((*source.build_options, source.text.split("\n\n", 1)[0])).replace("-fp-model=precise", "")
    for flag in ("fast", "unsafe", "mad-enable", "denorms", "finite-math", "signed-zeros", "ftz", "prec-", "fp-model"):
        assert flag not in said
    for word in ("native_", "half_", "__fmaf_", "reassociate", "FP_CONTRACT", "fenv"):
        assert word not in source.text
