"""int4, two elements a byte along K, by every way into registers, in the interpreter; and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import ScheduleError, SpecError
from gemmgen.ir.dtypes import BF16, F16, F32, F64, I4, I8, DType
from gemmgen.ir.target import TARGETS
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec
from tests.interp.test_prologues import WAYS
from tests.support.epilogues import Finished

#: Lanes along K, 16 bytes of B a load.
GEMV = Schedule.of(
    tile=(2, 2), group=(1, 1), block_k=2048, sliced_k=2, lanes_along_k=32, a=Operand(width=4), b=Operand(width=32)
)
PROLOGUE = "(b - b_shift_32) * b_scale_32"
SPEC = GemmSpec(b_dtype=I4, b_order="col", prologue_b=PROLOGUE)
#: K even and odd, of less than a load, of whole steps and some more.
SIZES = ((3, 5, 70), (2, 7, 33), (1, 1, 1))
#: The same of whole steps of lanes along K, and some more.
LONG = (2, 3, 2119)


def exact(rng: np.random.Generator, spec: GemmSpec, m: int, n: int, k: int) -> Finished:
    """Numbers of which no sum is rounded."""
    data = Finished.random(rng, spec, m, n, k)
    data.problem.a[...] = rng.integers(-4, 5, (m, k))
    for name, values in data.operands.items():
        drawn = 2.0 ** rng.integers(-2, 3, len(values)) if "scale" in name else rng.integers(-8, 8, len(values))
        values[...] = drawn
    return data


def check(spec: GemmSpec, schedule: Schedule, data: Finished, is_exact: bool, target: str | None = None) -> None:
    backend = "cuda" if schedule.asynchronous or target else "opencl"
    found = TARGETS[target] if target else driver.default_target(spec, schedule, backend)
    result = data.interpret(driver.lower_program(spec, schedule, found))
    if not is_exact:
        data.check(result)
        return
    groups = -(-data.problem.a.shape[1] // 32)
    made = [np.repeat(x.reshape(groups, -1), 32, axis=0)[: len(data.problem.b)] for x in data.operands.values()]
    scales, shifts = made
    expected = data.problem.a.astype(np.float64) @ ((data.problem.b - shifts.astype(np.float64)) * scales)
    assert np.array_equal(result, expected)


@pytest.mark.parametrize("way", [*WAYS, "gemv"])
def test_each_way_into_registers(way: str, rng: np.random.Generator) -> None:
    """Bit for bit where scales are powers of two, and within the bound where they are not."""
    schedule = {**WAYS, "gemv": GEMV}[way]
    for size in (*SIZES, LONG) if way == "gemv" else SIZES:
        check(SPEC, schedule, exact(rng, SPEC, *size), True)
        check(SPEC, schedule, Finished.random(rng, SPEC, *size), False)


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_gemv_in_each_type(dtype: DType, rng: np.random.Generator) -> None:
    spec = replace(SPEC, dtype=dtype, c_dtype=F32)
    for size in (*SIZES, LONG):
        check(spec, GEMV, exact(rng, spec, *size), True, "sm_90")
        check(replace(spec, ld_multiple=16), GEMV, Finished.random(rng, replace(spec, ld_multiple=16), *size), False)


@pytest.mark.parametrize("way", ["naive", "local", "packed"])
def test_a_and_columns(way: str, rng: np.random.Generator) -> None:
    """A in int4, by rows; and C by columns, which the transposes compute. No formula leaves elements as they are."""
    spec = GemmSpec(a_dtype=I4, epilogue=("bias",))
    assert spec.prologue_a == "a"
    for made in (spec, replace(SPEC, c_order="col"), replace(spec, b_order="col", c_order="col")):
        check(made, WAYS[way], Finished.random(rng, made, 9, 10, 37), False)


def test_the_text_loads_bytes() -> None:
    """16 bytes of B a lane, no conversion of an integer, and lines counted in bytes."""
    text = driver.emit(replace(SPEC, dtype=BF16), GEMV, "cuda").text
    assert "copy16(b_pairs, &b[min(col0 + j, n - 1) * ldb + k0 / 2]);" in text
    assert "b_vector[e] = nibble(b_pairs[e / 2], e % 2);" in text
    assert "if (lda % 4 == 0 && ldb % 16 == 0) {" in text
    assert "is_in_reach(n, (k + 1) / 2, ldb)" in text


def test_what_is_refused() -> None:
    cases = {
        "b_dtype int4 has two elements a byte along K, but b is row-major: store it col-major": {"b_order": "row"},
        "b_dtype int4 is not converted to float64 in a load": {"dtype": F64, "prologue_b": "b"},
        "prologue_b makes elements of dtype int8, which few whole numbers fit": {"dtype": I8},
        "dtype int4 is a type to store B in: use dtype float32": {"dtype": I4},
        "in a batch by addresses: use a constant stride": {"batched": True, "listed": True},
    }
    for message, change in cases.items():
        with pytest.raises(SpecError) as error:
            replace(SPEC, **change)  # type: ignore[arg-type]
        assert message in str(error.value)
    with pytest.raises(ScheduleError, match="use one of 1, 2, 4, 8, 16"):
        driver.emit(GemmSpec(b_order="col", b_dtype=I8), GEMV, "cuda")


@pytest.mark.parametrize("name", ["mma_8x16_16x8", "wgmma_128x256_s4", "cpu_6x64", "async_4x4_8x16"])
def test_other_instructions_say_what_to_do(name: str) -> None:
    """Those that take what memory holds: by a kernel before, or not at all."""
    preset = candidates.load(name)
    dtype = preset.spec.dtype if preset.spec.dtype != F32 else F32
    spec = replace(SPEC, dtype=dtype)
    backend = "opencl" if name.startswith("cpu") else "cuda"
    assert any(
        "prologue_b" in problem or "b_dtype int4" in problem
        for problem in driver.refusals(spec, preset.schedule, backend)
    )
