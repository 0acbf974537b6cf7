"""Column-major products: what a schedule takes by rows alone is computed as C^T = B^T A^T, in the words of C."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.choose import choose
from gemmgen.errors import ScheduleError
from gemmgen.explain import explain
from gemmgen.ir.constants import TRANSPOSED as CONSTANTS
from gemmgen.ir.dtypes import F16, F32, F64, I8, DType
from gemmgen.ir.kernel import Program
from gemmgen.ir.target import TARGETS, Target
from gemmgen.module import render_module
from gemmgen.names import transposed
from gemmgen.passes.validate import is_transposed
from gemmgen.runtime.variants import more_assumptions
from gemmgen.schedule import Schedule
from gemmgen.simulator.execute import run
from gemmgen.spec import GemmSpec
from tests.support.problems import CANARY, Matrix, Problem, check_products, interpret, layouts, stored

INTEL = TARGETS["intel"]
COLUMNS = GemmSpec(a_order="col", b_order="col", c_order="col")
#: Those that read blocks, from buffers or from images.
BLOCKS = tuple(
    name
    for name in candidates.names()
    if candidates.load(name).schedule.sub_group is not None and candidates.load(name).schedule.atom == "fma"
)
#: One of each that stores C by rows alone: local memory filled by copies, slices, a ring of boxes, parts dealt out,
#: packed before, matrix instructions.
ROWS = {
    "reduction_4x4_4x4": "sm_80",
    "async_4x4_8x16": "sm_80",
    "mbarrier_8x16_16x16_stream": "sm_90",
    "mbarrier_8x16_16x16_boxes_packed": "sm_90a",
    "mbarrier_8x16_8x8_slices4_packed": "sm_90",
    "mbarrier_8x8_2x16_atomic8": "sm_90",
    "cpu_6x64_prefetched": "cpu",
    "mma_4x8_16x8": "sm_80",
    "mma_f64_4x8_16x8": "sm_90",
    "wgmma_64x64_s6_split128": "sm_90a",
}
TRANSPOSED = {
    **dict.fromkeys(BLOCKS, "intel"),
    "sg16_block_16x2_k32": "xe_hpc",
    "sg16_block_24x4_k32": "xe_hpc",
    **ROWS,
}
#: Without them lanes next to each other load what a block read would bring.
READS = {"block_read"}
SIZES = ((1, 1, 1), (7, 11, 15), (33, 70, 17), (64, 64, 32))


@cache
def short(name: str) -> Schedule:
    """A preset with few parts of K."""
    s = candidates.load(name).schedule
    s = s.but(split_k=min(s.split_k, 2 * s.cluster_reduction))
    return s if s.vector == 1 else s.but(tile=(3, 8), vector=4, macro_kernel=(2, 1), kc=16)


def by_columns(spec: GemmSpec) -> GemmSpec:
    return replace(spec, a_order="col", b_order="col", c_order="col")


def in_words_of_c(text: str) -> str:
    """A kernel of C^T = B^T A^T in the words of C = A B, without comments."""
    text = re.sub(r" *//.*\n", "", text)
    return re.sub(r"\w+", lambda word: CONSTANTS.get(word[0]) or transposed(word[0]), text)


@pytest.mark.parametrize("name", TRANSPOSED)
def test_any_size(name: str, rng: np.random.Generator) -> None:
    """NaN lies in C where beta is zero, canaries between its columns."""
    preset, target = candidates.load(name), TARGETS[TRANSPOSED[name]]
    spec = by_columns(preset.spec)
    assert is_transposed(spec, short(name), target)
    program = driver.lower_program(spec, short(name), target)
    for size in SIZES[1:3] if preset.schedule.atom.startswith("wgmma") else SIZES:
        for alpha, beta in ((1.0, 0.0), (-1.5, 0.25)):
            problem = Problem.random(rng, *size, alpha, beta, spec)
            problem.check(interpret(program, spec, problem))


@pytest.mark.parametrize("name", [*BLOCKS, "cpu_6x64_prefetched"])
def test_is_the_row_major_kernel_with_a_and_b_exchanged(name: str) -> None:
    schedule, target = candidates.load(name).schedule, TARGETS[TRANSPOSED[name]]
    rows, columns = (driver.emit(spec, schedule, target=target).text for spec in (GemmSpec(), COLUMNS))
    # Arguments, and the definitions of constants, stand in the order of the product that was asked for.
    bodies = [in_words_of_c(rows), re.sub(r" *//.*\n", "", columns)]
    bodies = [body[body.index("__kernel void") : body.index("#undef")] for body in bodies]
    bodies = [re.sub(r"__kernel void\s\w+\(.*?\)", "", body, flags=re.DOTALL) for body in bodies]
    words = [re.findall(r"\w+|[^\w\s]", body) for body in bodies]
    assert words[0] == words[1]


def test_arguments_and_the_launch_are_those_of_c() -> None:
    source = driver.emit(COLUMNS, candidates.load("L3_SIMD_32x2_1x8").schedule)
    (entry,) = source.entry_points
    assert [x.name for x in entry.arguments] == "m n k alpha a lda b ldb beta c ldc".split()
    # 32 of C^T's rows and 16 of its columns are 16 of C's rows and 32 of its columns.
    assert entry.groups({"m": 160, "n": 64, "k": 9}) == (1, 2, 10)
    head = source.text.split("#pragma")[0]
    assert "C = alpha * A * B + beta * C; float32; A col-major, B col-major, C col-major" in head
    said = " ".join(head.replace("//", "").split())
    assert "16x32 of C per group, 2x32 per work-item" in said and "computed as C^T = B^T * A^T" in said
    assert re.search(r"// A +buffer, block reads of 2 segments\n", head)
    assert re.search(r"// B +buffer, block reads of 2 segments, passed around", head)
    assert "C^T = alpha * B^T * A^T + beta * C^T; C is not read where beta is zero." in source.text
    assert "def L3_SIMD_32x2_1x8(a, b, c=None, alpha=1.0, beta=0.0, " in render_module(source)


def test_the_picture_is_of_the_transposes() -> None:
    picture = explain(COLUMNS, candidates.load("L3_SIMD_32x2_1x8").schedule, INTEL)
    assert "computed as C^T = B^T * A^T" in picture and "group: 32x16 of C^T" in picture
    shared = picture.split("  B  global b")[1]
    assert "passed around the sub-group" in shared and "b_frag in passing" in picture


@pytest.mark.parametrize("name", ["L3_SIMD_16x2_4x8", "block_read_16x2_4x8", "sg16_block_16x1_split4", "mma_4x8_16x8"])
def test_epilogues_go_by_rows_and_columns_of_c(name: str, rng: np.random.Generator) -> None:
    preset, (m, n) = candidates.load(name), (37, 70)
    functions = ("bias", "row_bias", "row_scale", "expr: acc + 3 * row - col", "residual", "expr: max(acc, c)")
    spec = replace(by_columns(preset.spec), epilogue=functions, c_dtype=F32)
    target = TARGETS[TRANSPOSED[name]]
    assert is_transposed(spec, short(name), target)
    program = driver.lower_program(spec, short(name), target)
    own = [p.name for p in program.kernels[-1].params]
    assert own[own.index("ldc") + 1 :] == ["bias", "row_bias", "row_scale", "residual", "ldr"]
    problem = Problem.of(rng, spec, m, n, 29, 1.5, -0.5)
    bias, row_bias, scale = (rng.standard_normal(x).astype(np.float32) for x in (n, m, m))
    residual = rng.standard_normal((m, n)).astype(np.float32)
    lines = np.ascontiguousarray(residual.T)
    given: dict[str, int | float | Matrix] = {"bias": bias, "row_bias": row_bias, "row_scale": scale, "ldr": m}
    found = interpret(program, spec, problem, more={**given, "residual": lines.reshape(-1)})
    rows, cols = np.indices((m, n))
    a, b, c = (x.astype(np.float64) for x in (problem.a, problem.b, problem.c))
    sums = (1.5 * a @ b - 0.5 * c + bias + row_bias[:, None]) * scale[:, None] + 3 * rows - cols + residual
    assert np.allclose(found, np.maximum(sums, c), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["mbarrier_8x16_8x8_slices4_packed"])
def test_prologues_name_what_they_take_as_a_and_b_have_it(name: str, rng: np.random.Generator) -> None:
    s, m, n, k = short(name), 33, 21, 19
    s = s.but(a=replace(s.a, prepacked=True), b=replace(s.b, prepacked=True))
    formulas = {"prologue_a": "(a - a_shift) * a_scale_k + row", "prologue_b": "b * b_scale + k - col"}
    target = TARGETS[TRANSPOSED.get(name, "intel")]
    spec = replace(COLUMNS, a_dtype=I8, epilogue=("bias",), **formulas)  # type: ignore[arg-type]
    assert is_transposed(spec, s, target)
    program = driver.lower_program(spec, s, target)
    pack = [p.name for p in program.kernels[0].params]
    assert pack[-3:] == ["a_shift", "a_scale_k", "b_scale"]
    problem = Problem.of(rng, spec, m, n, k, 1.0, 0.0)
    shift, scale, b_scale, bias = (rng.standard_normal(x).astype(np.float32) for x in (m, k, n, n))
    given = {"a_shift": shift, "a_scale_k": scale, "b_scale": b_scale, "bias": bias}
    found = interpret(program, spec, problem, more=given)
    a = (problem.a.astype(np.float64) - shift[:, None]) * scale + np.arange(m)[:, None]
    b = problem.b.astype(np.float64) * b_scale + np.arange(k)[:, None] - np.arange(n)
    assert np.allclose(found, a @ b + bias, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(("name", "dtype"), [("sg16_block_16x1", F16)])
def test_other_types(name: str, dtype: DType, rng: np.random.Generator) -> None:
    """A alone is conjugated."""
    spec = replace(COLUMNS, dtype=dtype, conj_a=True)
    target = TARGETS[TRANSPOSED[name]]
    assert is_transposed(spec, short(name), target)
    check_products(driver.lower_program(spec, short(name), target), spec, rng, (21, 35, 18), factors=(1.0, 0.5))


@pytest.mark.parametrize("name", ["L3_SIMD_16x2_4x8", "mma_4x8_16x8", "mbarrier_8x8_2x16_atomic8"])
def test_products_of_a_batch(name: str, rng: np.random.Generator) -> None:
    spec, target = replace(by_columns(candidates.load(name).spec), batched=True), TARGETS[TRANSPOSED[name]]
    assert is_transposed(spec, short(name), target)
    program = driver.lower_program(spec, short(name), target)
    m, n, k, pad, count = 21, 37, 19, 3, 3
    problems = [Problem.of(rng, spec, m, n, k, 1.5, -0.5) for _ in range(count)]
    known: dict[str, int | float | Matrix] = {"m": m, "n": n, "k": k, "alpha": 1.5, "beta": -0.5, "batch_count": count}
    for x in "abc":
        lines = [stored(getattr(problem, x), "col", pad) for problem in problems]
        known |= {x: np.concatenate([line.reshape(-1) for line in lines]), f"ld{x}": lines[0].shape[1]}
        known[f"stride_{x}"] = lines[0].size
    for kernel in program.kernels:
        run(kernel, {p.name: known[p.name] for p in kernel.launch_params})
    for problem, found in zip(problems, np.asarray(known["c"]).reshape(count, n, m + pad), strict=True):
        assert (found[:, m:] == CANARY).all()
        problem.check(found[:, :m].T)


@pytest.mark.parametrize("name", ["L3_SIMD_32x2_1x8", "block_read_16x2_1x8", "mma_4x8_16x8"])
def test_assumptions_and_folded_sizes_are_those_of_c(name: str, rng: np.random.Generator) -> None:
    schedule, target = short(name), TARGETS[TRANSPOSED[name]]
    rows, cols = schedule.block_tile
    spec = by_columns(candidates.load(name).spec)
    assumed = replace(spec, multiple_of=(cols, rows, schedule.block_k), ld_multiple=8)
    folded = replace(spec, m=cols + 3, n=rows, k=40, alpha=2.0, beta=0.0)
    for own, size in ((assumed, (2 * cols, rows, schedule.block_k)), (folded, (cols + 3, rows, 40))):
        assert is_transposed(own, schedule, target)
        problem = Problem.random(rng, *size, 2.0, 0.0, own)
        problem.check(interpret(driver.lower_program(own, schedule, target), own, problem, 0))


def test_aligned_variants_assume_whole_tiles_of_c() -> None:
    schedule = candidates.load("async_8x8_8x16").schedule
    assert more_assumptions(COLUMNS, schedule, transposed=True)[0].multiple_of == (128, 64, schedule.block_k)


@pytest.mark.parametrize("backend", ["opencl", "cuda", "sycl"])
def test_what_takes_rows_takes_columns(backend: str) -> None:
    """Every preset."""
    for name in candidates.names():
        preset = candidates.load(name)
        rows = replace(preset.spec, a_order="row", b_order="row", c_order="row")
        target = driver.default_target(rows, preset.schedule, backend)
        if not driver.refusals(rows, preset.schedule, backend, target):
            assert not driver.refusals(by_columns(rows), preset.schedule, backend, target), name


def test_a_product_that_is_possible_as_asked_is_computed_so() -> None:
    """And one with a row-major C is never transposed."""
    for name, spec in (("naive", COLUMNS), ("L3_SIMD_32x2_1x8", GemmSpec(c_order="col"))):
        schedule = candidates.load(name).schedule
        assert not is_transposed(spec, schedule, INTEL)
        assert "C^T" not in driver.emit(spec, schedule).text
    spec = replace(COLUMNS, c_order="row")
    with pytest.raises(ScheduleError, match="b is column-major"):
        driver.emit(spec, candidates.load("L3_SIMD_32x2_1x8").schedule)


@pytest.mark.parametrize(
    ("target", "dtype", "columns"),
    [("intel", F32, "L3_SIMD_32x2_1x8"), ("sm_80", F32, "async_"), ("sm_80", F16, "mma_"), ("sm_80", F64, "mma_f64_")],
)
def test_columns_are_chosen_for_as_rows_are(target: str, dtype: DType, columns: str) -> None:
    """Sizes exchanged, the same schedule: no scalar kernel for what tensor cores take by rows. Lines that may begin
    anywhere, of 16-bit elements, are stored one by one, which is another matter by columns.
    """
    multiple, device = 8 if dtype == F16 else 1, TARGETS[target]
    spec = replace(COLUMNS, dtype=dtype, ld_multiple=multiple)
    found, same = (
        choose(spec, (1000, 2000, 3000), device),
        choose(GemmSpec(dtype=dtype, ld_multiple=multiple), (2000, 1000, 3000), device),
    )
    assert found == same and is_transposed(spec, found, device)
    assert driver.emit(spec, found, "opencl" if target == "intel" else "cuda", device).name.startswith(columns)


# --- one of A and B by columns --------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in BLOCKS if not name.startswith("block_read")])
def test_packed_for_block_reads(name: str, rng: np.random.Generator) -> None:
    """What a kernel before lays out has whole blocks, so that reads of it ask for no edge."""
    s = short(name)
    own = TARGETS[TRANSPOSED[name]]
    for packed, target in (("b", own), ("a", own), ("ab", own), ("b", replace(own, features=own.features - READS))):
        schedule = s.but(a=replace(s.a, prepacked="a" in packed), b=replace(s.b, prepacked="b" in packed), name=None)
        for spec in layouts(GemmSpec()):
            if {"a": spec.b_order, "b": spec.a_order, "ab": "row"}[packed] == "col":
                continue
            problem = Problem.random(rng, 33, 21, 27, 1.5, 0.0)
            problem.check(interpret(lowered(spec, schedule, target), spec, problem))


def lowered(spec: GemmSpec, schedule: Schedule, target: Target) -> Program:
    assert not is_transposed(spec, schedule, target)
    return driver.lower_program(spec, schedule, target)


def test_a_packed_matrix_is_counted_in_bytes_where_block_reads_are() -> None:
    s = candidates.load("L3_SIMD_32x2_1x8").schedule
    spec, schedule = GemmSpec(b_order="col"), s.but(b=replace(s.b, prepacked=True), name=None)
    source = driver.emit(spec, schedule)
    assert [x.reach for x in source.workspaces] == [2**29]
    assert "packed matrices less than 2^29 elements" in re.sub(r"\s*\n//\s*", " ", source.text)
    khr = driver.emit(spec, schedule, target=TARGETS["khr"])
    assert [x.reach for x in khr.workspaces] == [2**31]
    with pytest.raises(ScheduleError, match="b_packed has 536,870,912 elements"):
        driver.emit(replace(spec, n=2**14, k=2**15), schedule)


def remedied(schedule: Schedule, message: str) -> Schedule:
    """The schedule as a message's remedy has it."""
    from gemmgen.options import build_schedule

    if "--preset" in message:
        return candidates.load(re.findall(r"--preset (\w+)", message)[0]).schedule
    if "--method" in message:
        method, tile, group = re.findall(r"--method (\w+) --tile (\w+) --group (\w+)", message)[0]
        sets = re.findall(r"--set (\S+)", message)
        started = schedule if schedule.method == method else None
        return build_schedule(None if started else method, tile, group, None, None, sets, started, None)
    remedy = message.rpartition(": ")[2]
    sets = [f"{key}={value}" for key, value in re.findall(r"([\w.]+) = '?(\w+)", remedy)]
    sets = sets or [f"{key}={value}" for key, value in re.findall(r"^([\w.]+) = .*use (?:one of )?(\d+)", message)]
    return build_schedule(None, None, None, None, None, sets, replace(schedule, name=None), None)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *((name, TRANSPOSED[name]) for name in BLOCKS),
        ("register_8x8_4x4", "intel"),
        ("cpu_6x64", "cpu"),
        ("cpu_4x4_along_k", "cpu"),
    ],
)
def test_each_remedy_is_one(name: str, target: str, rng: np.random.Generator) -> None:
    """What is refused is accepted after what its messages say, and right."""
    for spec in layouts(candidates.load(name).spec):
        schedule = candidates.load(name).schedule
        for _ in range(3):
            for refusal in driver.refusals(spec, schedule, target=TARGETS[target]):
                schedule = remedied(schedule, refusal)
        assert not driver.refusals(spec, schedule, target=TARGETS[target])
        if schedule.vector == 1:
            problem = Problem.random(rng, 33, 21, 27, 1.5, 0.0, spec)
            few = schedule.but(split_k=min(schedule.split_k, 2))
            problem.check(interpret(driver.lower_program(spec, few, TARGETS[target]), spec, problem))
