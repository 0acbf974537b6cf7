"""Every preset, run by the interpreter: right, without a race, inside its buffers, on any size."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.backends import BACKENDS
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import Target
from gemmgen.presets import Preset
from gemmgen.schedule import Schedule
from gemmgen.schedule.direct import Gemv
from tests.support.problems import Problem, interpret, layouts, lowered
from tests.unit.test_free_constants import values_in

#: Those that round elements before they multiply have a bound of their own: `test_warps.py`.
NAMES = tuple(
    name for name in candidates.names() if candidates.load(name).schedule.atom in ("fma", "dpas", "mma", "mma_f64")
)


def light(preset: Preset) -> Schedule:
    """The preset with K in a few parts where it has many: groups of different parts run one after the other here."""
    return shorter(preset.schedule).but(split_k=min(preset.schedule.split_k, 3))


def shorter(schedule: Schedule) -> Schedule:
    """A schedule with vectors in small: what one work-item does with a large block of C takes the interpreter long."""
    if schedule.vector == 1:
        return schedule
    return schedule.but(tile=(3, 8), vector=4, macro_kernel=(2, 1), kc=min(schedule.kc, 16))


@cache
def target_of(preset: Preset) -> Target:
    """A target that can take the preset: OpenCL's default, or else that of the first other language."""
    able = (name for name in BACKENDS if not driver.refusals(preset.spec, preset.schedule, name))
    return driver.default_target(preset.spec, preset.schedule, next(able, "cuda"))


#: One of everything; a single row, column or step; under and over a tile; multiples of every tile.
SIZES = ((1, 1, 1), (1, 131, 9), (129, 1, 8), (7, 11, 15), (33, 65, 17), (130, 140, 23), (256, 128, 32))


@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize("name", NAMES)
def test_any_size(name: str, size: tuple[int, int, int], rng: np.random.Generator) -> None:
    preset = candidates.load(name)
    kernel = lowered(preset.spec, light(preset), target_of(preset))
    # The largest are many groups of what smaller ones have: C is read at one of them, and not at the other.
    factors = ((1.0, 0.0), (-1.5, 0.25))
    for alpha, beta in {SIZES[-2]: factors[1:], SIZES[-1]: factors[:1]}.get(size, factors):
        problem = Problem.random(rng, *size, alpha, beta, preset.spec)
        problem.check(interpret(kernel, preset.spec, problem))


@pytest.mark.parametrize("name", NAMES)
def test_integers_bit_for_bit(name: str, rng: np.random.Generator) -> None:
    preset = candidates.load(name)
    problem = Problem.integers(rng, 70, 45, 29).typed(preset.spec)
    result = interpret(lowered(preset.spec, shorter(preset.schedule), target_of(preset)), preset.spec, problem)
    assert np.array_equal(result, problem.expected.astype(result.dtype))


@pytest.mark.parametrize("name", NAMES)
def test_layouts(name: str, rng: np.random.Generator) -> None:
    preset = candidates.load(name)
    problem = Problem.random(rng, 45, 70, 29, 1.5, 0.5, preset.spec)
    refused = 0
    for spec in layouts(preset.spec):
        try:
            kernel = driver.lower_program(spec, light(preset), target_of(preset))
        except ScheduleError:
            refused += 1
            continue
        problem.check(interpret(kernel, spec, problem))
    assert refused < 7, "row-major A and B must always be possible, C either way"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("size", "factors"),
    [
        # Stores of whole tiles ask nothing; those of others are the same whatever is multiplied by.
        ((128, 256, 64), ((1.0, 0.0), (2.5, 1.0), (1.0, 0.5))),
        ((100, 90, 70), ((2.5, 0.5),)),
        ((5, 3, 12), ((1.0, 0.0),)),
        ((5, 3, 1), ((1.0, 1.0),)),
    ],
    ids=lambda x: "x".join(map(str, x)) if isinstance(x[0], int) else "",
)
def test_folded_sizes_and_factors(
    name: str, size: tuple[int, int, int], factors: tuple[tuple[float, float], ...], rng: np.random.Generator
) -> None:
    preset = candidates.load(name)
    m, n, k = size
    for alpha, beta in factors:
        spec = replace(preset.spec, m=m, n=n, k=k, alpha=alpha, beta=beta)
        problem = Problem.random(rng, m, n, k, alpha, beta, spec)
        problem.check(interpret(driver.lower_program(spec, light(preset), target_of(preset)), spec, problem))


@pytest.mark.parametrize("name", NAMES)
def test_assumed_multiples(name: str, rng: np.random.Generator) -> None:
    preset = candidates.load(name)
    rows, cols = preset.schedule.block_tile
    depth = preset.schedule.round_depth
    spec = replace(preset.spec, multiple_of=(rows, cols, depth))
    problem = Problem.random(rng, rows, 2 * cols, 2 * depth, 1.5, 0.5, spec)
    problem.check(interpret(driver.lower_program(spec, light(preset), target_of(preset)), spec, problem))


def look_ahead(schedule: Schedule) -> set[str]:
    """The conditions by which a ring asks whether there is a tile, or a batch of tiles, to begin."""
    step, depth, places = schedule.block_k, schedule.round_depth, schedule.stages // max(1, schedule.mbarrier)
    has_parts = schedule.split_k > 1 or schedule.stream_k
    stop, is_any = ("k_end", "k_begin < k_end") if has_parts else ("k", "k > 0")
    if schedule.mbarrier:
        return {is_any, f"k_ahead < {stop}", f"k_ahead + {depth} <= {stop}", f"k_next < {stop}"}
    begin = {f"{stop} >= {i * step}" for i in range(1, places)} | {f"k0 + {places * step} <= {stop}"}
    across = {is_any, f"k0 + {step} < {stop}"} if schedule.across_tiles else set()
    if not schedule.prefetch:
        return begin | across
    # A single slot that is filled through registers is filled a step ahead, too; several in a loop before the first.
    return begin | across | {f"k0 + {2 * step} <= {stop}", f"load_stage * {step} + {step} <= {stop}"}


def in_numbers(line: str, values: Mapping[str, int]) -> str:
    """A line of text with the values of its constants, as far as they are whole numbers."""
    line = re.sub(r"\b[A-Z][A-Z_]*\b", lambda name: str(values.get(name[0], name[0])), line)
    for _ in range(4):
        line = re.sub(r"\((\d+ [-+] \d+)\)|(?<![/%*] )\b(\d+ \* \d+)", lambda x: str(eval(x[1] or x[2])), line)
    return line


@pytest.mark.parametrize("name", NAMES)
def test_assumed_multiples_leave_no_guard(name: str) -> None:
    """Where the sizes are assumed to fit the tiles, nothing in the text compares or clamps a coordinate."""
    preset = candidates.load(name)
    rows, cols = preset.schedule.block_tile
    whole = (rows, cols, preset.schedule.round_depth)
    spec = replace(preset.spec, multiple_of=whole, beta=0.0, ld_multiple=8)
    backend = "cuda" if driver.refusals(preset.spec, preset.schedule) else "opencl"
    text = driver.emit(spec, preset.schedule, backend).text
    # The body of the kernel that has tiles; others go before or after it.
    parts = text.split("__launch_bounds__" if backend == "cuda" else "__kernel")[1:]
    (own,) = (part for part in parts if re.search(rf"\b{name}\(", part.split("{", 1)[0]))
    body = own.split("\n}\n", 1)[0].split("{", 1)[1]
    body = re.sub(r"\n +(?=[?:] )", " ", body)  # a choice in one line
    allowed = {f"if ({condition}) {{" for condition in look_ahead(preset.schedule)}
    shares = ("if (kk + 1 < ", "if (local_index + i * ", "if (local_index < ")
    lines = [in_numbers(line.strip(), values_in(text)) for line in body.splitlines()]
    # The load of a tile asks by the name of its step.
    allowed |= {f"if (k_load {condition}) {{" for condition in ("< k", "< k_end", f"+ {whole[2]} <= k")}
    # Where K goes in blocks, sums wait in C, and the first block may have nothing to add to.
    allowed |= {"if (k0 % 64 == 0 && k0 < 384) {"} if preset.schedule.c_prefetch else set()
    # Whether there are tiles to prefetch before the first step.
    allowed |= {"if (k_main > 0) {"} if preset.schedule.prefetch_distance else set()
    # With which of a step's 2D block reads one prefetches.
    turns = [(every, turn) for every in (2, 4, 8) for turn in (0, every // 2 - 1)] if preset.schedule.block_2d else []
    allowed |= {f"if (p % {every} == {turn}) {{" for every, turn in turns}
    # Of lanes that hold the same sums one writes them.
    if isinstance(preset.schedule.mainloop, Gemv):
        alike = (2, 4, 8, 16, 32)
        allowed |= {f"if (lane_k % {many} == 0) {{" for many in alike}
    # What 2D block writes ask of C that follows from no multiple.
    allowed |= {"if (ldc <= 4194304 && m <= 16777216) {"} if preset.schedule.block_writes else set()
    # Of blocks that are dealt out, whether one is whole.
    allowed |= {"if (batch_begin == 0 && batch_end == batches) {"} if preset.schedule.stream_k else set()
    if preset.schedule.tma:
        # Who has which role; and that rows of those who multiply, some of a vector apart, end in the block is not seen.
        asked = ("local_row < 16", "local_index == 0", "local_index == 256", "c_row < m", "workspace_row < 128")
        allowed |= {f"if ({condition}) {{" for condition in asked}
    allowed |= {f"if (beta_now != 0.0{suffix}) {{" for suffix in ("", "f") if preset.schedule.kc}
    guards = {line for line in lines if "if (" in line and not line.startswith(shares)}
    assert guards <= allowed, "only a pipe's look-ahead and uneven shares may stay"
    assert "_inside" not in body, "copies that bring zeros past an edge"
    # Which block this is, where a part of K ends, and how far copies are begun before the first round.
    named: tuple[str, ...] = (
        "const int block_row = ",
        "const int block_col = ",
        "const int k_end = ",
        "for (int k_batch = ",
    )
    # A ring of single tiles is filled by a loop of its own.
    named += (
        ("for (int k0 = k_begin; k0 < min(k_begin + ", "for (int k0 = 0; k0 < min(") if preset.schedule.mbarrier else ()
    )
    # The block of C of a work-item that sweeps it, and a block of K.
    named += tuple(
        f"const int {x} = "
        for x in (*"row_begin row_end col_begin col_end".split(), *"k_stop k_depth k_rows_end".split())
    )
    if preset.schedule.stream_k:
        # How much of that a group has.
        named += tuple(f"const int {x} = " for x in ("whole_blocks", "first_batch", "last_batch"))
        lines = body[body.index("for (int segment") :].splitlines()
        lines = [
            line.strip()
            for line in lines
            if not re.search(r"segment < own|const int share = |last_batch - |whole_blocks + ", line)
        ]
    assert not [line for line in lines if "min(" in line and not line.startswith(named)]
    # Which way a row of multiply-adds goes, around the ring, and which sums a lane gives another.
    chosen = r"const int turn = i % 2 == 0 \? j : |slot = last \? 0 : slot \+ 1;|[ab]_tile \+= last \? "
    chosen += r"|.*\bis_low(_\d+)? \? "
    chosen += r"|for \(int k_block = |const (float|double) beta_now = k_block == |beta_now == 0\.0f \? "
    # Which half of a pixel of an image a lane reads.
    chosen += r"|(int )?[ab]_at(\[i\])? \+?= \(int\)get_sub_group_local_id\(\) % \d+ == 0 \? "
    # How far 2D block reads go, which ask of matrices how they lie.
    chosen += r"|.* \? k : 0;" if preset.schedule.block_2d else ""
    if preset.schedule.block_k == 1 and any(line.startswith("if (local_index < ") for line in lines):
        # That a share of half the group ends within a step of one is not seen.
        chosen += r"|b_shared\[b_col\] = k0 \+ b_k < k \? "
    assert not [line for line in lines if "?" in line and not re.match(chosen, line)]


def rings(schedule: Schedule) -> list[Schedule]:
    """The schedule with rings of other lengths, and K in few parts, so that each has steps enough."""
    schedule = schedule.but(split_k=min(schedule.split_k, 3))
    if "local" not in (schedule.a.memory, schedule.b.memory):
        return [schedule]
    if schedule.mbarrier:
        return [
            schedule.but(stages=places * schedule.mbarrier) for places in ((3,) if schedule.stream_k else (3, 4, 5))
        ]
    least = 2 if schedule.across_tiles or schedule.by_warps else 1
    return [schedule.but(stages=stages) for stages in range(least, 5)]


def too_long(preset: Preset, schedule: Schedule) -> bool:
    """Whether a ring is too long for the device; any other refusal is a failure."""
    asynchronous = schedule.mbarrier or schedule.by_warps
    problems = driver.refusals(preset.spec, schedule, "cuda", target_of(preset)) if asynchronous else ()
    return bool(problems) and all(problem.startswith("local memory") for problem in problems)


@pytest.mark.parametrize("k", [8, 24, 33])
@pytest.mark.parametrize("name", NAMES)
def test_few_and_many_steps(name: str, k: int, rng: np.random.Generator) -> None:
    """Loops shorter than a ring has slots, and lengths that no number of slots divides."""
    preset = candidates.load(name)
    for schedule in rings(light(preset)):
        if too_long(preset, schedule):
            continue
        problem = Problem.random(rng, 40, 40, k, spec=preset.spec)
        problem.check(interpret(lowered(preset.spec, schedule, target_of(preset)), preset.spec, problem))


@pytest.mark.parametrize(
    "name", [n for n in NAMES if rings(light(candidates.load(n)))[1:] and not candidates.load(n).schedule.mbarrier]
)
def test_each_ring_goes_around_twice(name: str, rng: np.random.Generator) -> None:
    """Steps may be long: lengths above are few of them. Here no ring's length divides the loop's; a tail is left."""
    preset = candidates.load(name)
    for schedule in rings(light(preset)):
        if too_long(preset, schedule):
            continue
        k = schedule.split_k * (2 * schedule.stages + 1) * schedule.block_k + 1
        problem = Problem.random(rng, 9, 10, k, spec=preset.spec)
        problem.check(interpret(lowered(preset.spec, schedule, target_of(preset)), preset.spec, problem))


@pytest.mark.parametrize("name", [name for name in NAMES if candidates.load(name).schedule.mbarrier])
@pytest.mark.parametrize("assumed", [False, True])
def test_several_rounds_of_the_ring(name: str, assumed: bool, rng: np.random.Generator) -> None:
    """Every barrier's parity turns more than once; the last batch is whole, ragged, or of a single step's element."""
    preset = candidates.load(name)
    ran = 0
    in_two = preset.schedule.but(split_k=min(preset.schedule.split_k, 2))
    for schedule in rings(in_two)[::2]:
        if too_long(preset, schedule):
            continue
        depth, places = schedule.round_depth, schedule.stages // schedule.mbarrier
        spec = replace(preset.spec, multiple_of=(1, 1, depth) if assumed else (1, 1, 1))
        program = driver.lower_program(spec, schedule, target_of(preset))
        for beyond in (0,) if assumed else (1, depth - 3):
            k = schedule.split_k * (2 * places + 1) * depth + beyond
            problem = Problem.random(rng, 33, 37, k)
            problem.check(interpret(program, spec, problem))
            ran += 1
    assert ran


def test_interpreter_is_quick(rng: np.random.Generator) -> None:
    """Not a benchmark: a minute's work would be a bug of the interpreter (it takes about 0.05 s)."""
    for name in ("naive", "L3_SIMD_32x2_1x8", "smem_8x8_double", "mbarrier_8x16_16x16_stream"):
        preset = candidates.load(name)
        problem = Problem.random(rng, 64, 64, 64, spec=preset.spec)
        start = time.perf_counter()
        problem.check(interpret(lowered(preset.spec, light(preset), target_of(preset)), preset.spec, problem))
        assert time.perf_counter() - start < 5, name


def test_infinities_and_nans_propagate(rng: np.random.Generator) -> None:
    """What IEEE arithmetic makes of them, in their row and column only, also in the last steps of K."""
    for name in NAMES:
        preset = candidates.load(name)
        problem = Problem.random(rng, 40, 24, 13, spec=preset.spec)
        problem.a[3, 12], problem.b[5, 7] = np.inf, np.nan
        with np.errstate(invalid="ignore"):
            expected = problem.a.astype(np.float64) @ problem.b.astype(np.float64)
            result = interpret(lowered(preset.spec, light(preset), target_of(preset)), preset.spec, problem)
        assert np.array_equal(np.isnan(result), np.isnan(expected)), name
        assert np.array_equal(np.isinf(result), np.isinf(expected)), name
