"""Grouped products: what a spec and a schedule have against groups, and what the host is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen import candidates, driver
from gemmgen.choose import choose
from gemmgen.errors import LoweringError, ScheduleError, SpecError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import BF16, F8_E4M3, F16, F32, I32, DType
from gemmgen.ir.expr import Call, Const
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Alloc, Store
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify
from gemmgen.module import render_module
from gemmgen.options import build_spec, read_document
from gemmgen.passes.validate import is_possible
from gemmgen.project import project_files
from gemmgen.runtime.cuda_launch import bytes_before
from gemmgen.runtime.variants import more_assumptions
from gemmgen.schedule.schedulers import OneTile, Persistent
from gemmgen.spec import GemmSpec, Grouped, Order
from tests.support.cli import refused

ROWS, K = GemmSpec(grouped="rows"), GemmSpec(grouped="k", a_order="col")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"grouped": "rows", "m": 64}, "m = 64 can't be folded, as groups share it out: pass it at run time"),
        ({"grouped": "k", "k": 64}, "k = 64 can't be folded"),
        (
            {"grouped": "rows", "multiple_of": (8, 1, 1)},
            "m is said to be a multiple of 8, but a group's",
        ),
        ({"grouped": "rows", "batched": True}, "leave out batched or grouped"),
        ({"grouped": "rows", "alpha": 0.0}, "alpha = 0 leaves nothing of the groups' products"),
        ({"grouped": "rows", "prologue_b": "b * b_scale"}, "takes no prologues but scales of sums, of rows of"),
        ({"grouped": "rows", "b_dtype": "int4"}, "b_dtype int4 keeps two elements in a byte, which no group begins"),
        ({"grouped": "cols"}, "grouped = 'cols': give rows or k, or None"),
    ],
)
def test_specs(fields: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError) as error:
        GemmSpec(**fields)  # type: ignore[arg-type]
    assert said in str(error.value)


def test_sizes_that_groups_share_out_are_the_only_ones_that_stay_open() -> None:
    assert GemmSpec(grouped="rows", n=64, k=32, multiple_of=(1, 64, 32)).ragged == "m"
    assert GemmSpec(grouped="k", m=64, n=64).ragged == "k"
    spec = more_assumptions(ROWS, candidates.load("smem_8x8").schedule)[0]
    assert spec.multiple_of == (1, 128, 8)


def test_options() -> None:
    assert build_spec(grouped="k").grouped == "k"
    assert read_document('tile = "2x2"\n[spec]\ngrouped = "rows"', "here").spec.grouped == "rows"
    with pytest.raises(SpecError, match="grouped 'experts' is nothing that groups share out: give rows or k"):
        build_spec(grouped="experts")
    with pytest.raises(ScheduleError, match="grouped = 3 is not text"):
        read_document('tile = "2x2"\n[spec]\ngrouped = 3', "here")


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("smem_8x8", {"split_k": 2}, "the scheduler is SplitK: use split_k 1, without atomic"),
        ("smem_8x8_double_packed", {}, "a.prepacked and b.prepacked, but a group's matrices are packed by no kernel"),
        ("mbarrier_8x16_16x16_stream", {}, "the scheduler is StreamK"),
        ("dpas_32x2_1x8", {}, "Dpas finds A and B by other means than pointers that a group can move"),
        ("L3_SIMD_32x2_1x8", {"a.memory": "image"}, "an image holds one matrix, of which a group has a part"),
    ],
)
def test_schedules(name: str, changes: dict[str, object], said: str) -> None:
    preset = candidates.load(name)
    schedule = preset.schedule.but(**{k: v for k, v in changes.items() if "." not in k})
    if "a.memory" in changes:
        schedule = schedule.but(a=replace(schedule.a, memory="image"))
    backend = "cuda" if name.startswith("mbarrier") else "opencl"
    with pytest.raises(ScheduleError) as error:
        driver.emit(replace(preset.spec, grouped="rows", multiple_of=(1, 1, 1)), schedule, backend)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("kind", "orders", "said"),
    [
        (
            "rows",
            ("col", "row", "row"),
            "begins within a line of it, where vectors can't: store A by rows",
        ),
        ("rows", ("row", "row", "col"), "a group's part of C begins within a line of it"),
        ("k", ("row", "row", "row"), "store A by columns (--layout)"),
        ("k", ("col", "col", "row"), "store B by rows (--layout)"),
    ],
)
def test_vectors_begin_where_a_group_does(kind: Grouped, orders: tuple[str, str, str], said: str) -> None:
    spec = GemmSpec(None, None, None, F32, *orders, grouped=kind)  # type: ignore[arg-type]
    schedule = candidates.load("async_8x8_8x16").schedule
    with pytest.raises(ScheduleError) as error:
        driver.emit(spec, schedule, "cuda")
    assert said in str(error.value)
    assert is_possible(spec, candidates.load("smem_8x8").schedule, TARGETS["portable"])


@pytest.mark.parametrize("target", ["cpu", "portable", "intel", "sm_80", "sm_90a"])
@pytest.mark.parametrize("kind", ["rows", "k"])
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("mean", [1, 16, 300])
def test_what_is_chosen_takes_groups(kind: Grouped, target: str, dtype: object, mean: int) -> None:
    spec = replace(ROWS if kind == "rows" else K, dtype=dtype, ld_multiple=8)  # type: ignore[arg-type]
    shape = (mean, 512, 1024) if kind == "rows" else (512, 1024, mean)
    assert is_possible(spec, choose(spec, shape, TARGETS[target], 8), TARGETS[target])


@pytest.mark.parametrize(("dtype", "b_order"), [(BF16, "row"), (BF16, "col"), (F16, "row"), (F8_E4M3, "col")], ids=str)
@pytest.mark.parametrize("mean", [1, 8, 64, 300, 1024])
def test_experts_go_by_warpgroups(dtype: DType, b_order: Order, mean: int) -> None:
    """TMA stores C, and nothing of K is in parts. TMA needs aligned lines: those of C alone may begin anywhere."""
    spec = GemmSpec(grouped="rows", dtype=dtype, b_order=b_order, ld_multiple=16)
    chosen = choose(spec, (mean, 2048, 4096), TARGETS["sm_90a"], 16)
    assert chosen.by_warpgroups and chosen.epilogue_stages and type(chosen.scheduler) in (OneTile, Persistent)
    driver.emit(spec, chosen, "cuda", TARGETS["sm_90a"])
    by_threads = choose(replace(spec, ld_multiple=(16, 16, 1)), (mean, 2048, 4096), TARGETS["sm_90a"], 16)
    assert by_threads.by_warpgroups and not by_threads.epilogue_stages
    odd = choose(GemmSpec(grouped="rows", dtype=dtype, b_order=b_order), (mean, 2048, 4096), TARGETS["sm_90a"], 16)
    assert odd.by_warps


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("mean", [1, 8, 64, 300, 1024])
def test_gradients_of_weights_go_by_warpgroups(dtype: DType, mean: int) -> None:
    """Lines that begin anywhere, and 8-bit floats, whose lines lie along K, by warps."""
    spec = GemmSpec(grouped="k", dtype=dtype, a_order="col", ld_multiple=8)
    chosen = choose(spec, (2048, 4096, mean), TARGETS["sm_90a"], 16)
    assert chosen.by_warpgroups and chosen.epilogue_stages
    driver.emit(spec, chosen, "cuda", TARGETS["sm_90a"])
    for other in (replace(spec, ld_multiple=1), replace(spec, dtype=F8_E4M3)):
        assert choose(other, (2048, 4096, mean), TARGETS["sm_90a"], 16).by_warps


def test_what_a_host_is_told() -> None:
    """Rows and K of all groups, whose own ones it can't know."""
    for spec, extent in ((ROWS, "m"), (K, "k")):
        source = driver.emit(spec, candidates.load("smem_8x8").schedule, "cuda")
        entry = source.entry_points[0]
        names = [argument.name for argument in entry.arguments]
        assert "offsets" in names
        launcher = source.text[source.text.index("_launch(") :]
        assert "group_rows" not in launcher
        assert "group_depth" not in launcher
        assert f"is_in_reach({extent}, " in launcher
    assert driver.emit(ROWS, candidates.load("naive").schedule).entry_points[0].groups(
        {"m": 17, "n": 9, "k": 3, "group_count": 5}
    ) == (1, 17 // 8 + 5, 2)
    assert driver.emit(K, candidates.load("naive").schedule).entry_points[0].groups(
        {"m": 17, "n": 9, "k": 3, "group_count": 5}
    ) == (5, 3, 2)


@pytest.mark.parametrize(("spec", "ending"), [(ROWS, "ac"), (K, "ab")], ids=["rows", "k"])
def test_maps_that_end_where_groups_do(spec: GemmSpec, ending: str) -> None:
    """They begin all lines before the matrix, by the launcher and by Python's own."""
    asked = replace(spec, dtype=BF16, ld_multiple=8)
    source = driver.emit(asked, candidates.load("wgmma_128x256_s4").schedule, "cuda")
    maps = source.entry_points[0].maps
    assert "".join(x.operand for x in maps if x.ends) == ending
    sizes = {"m": 96, "n": 64, "k": 32, "lda": 104, "ldb": 72, "ldc": 80, "stride_b": 4096, "stride_c": 8192}
    lines = "m" if spec is ROWS else "k"
    for tensor_map in maps:
        pitch = sizes[f"ld{tensor_map.operand}"]
        assert bytes_before(tensor_map, sizes) == (sizes[lines] * pitch * 2 if tensor_map.ends else 0)
        begin = f"{tensor_map.operand} - static_cast<long long>({lines}) * ld{tensor_map.operand}"
        assert (begin in source.text) == tensor_map.ends
    # Of a single line, whose leading dimension is never used.
    alone, of_a = {**sizes, lines: 1, "lda": 7}, next(x for x in maps if x.ends)
    assert bytes_before(of_a, alone) == 2 * (sizes["k"] if spec is ROWS else sizes["m"])


def test_programs_that_have_no_groups() -> None:
    source = driver.emit(ROWS, candidates.load("naive").schedule)
    with pytest.raises(ScheduleError, match="a Python module takes no groups: leave out --grouped"):
        render_module(source)
    with pytest.raises(ScheduleError, match="a project's program has matrices of one size, not groups"):
        project_files(ROWS, candidates.load("naive").schedule, "cuda")


def test_run_has_no_groups() -> None:
    text = refused("run", "-k", "naive", "--grouped", "rows")
    assert "--grouped rows means nothing here, where products have one size: leave it out" in text


def test_what_all_work_items_hold_alike_is_verified() -> None:
    held = Buffer("held", I32, Space.PRIVATE, Layout.packed(), places=True)
    own = Call("local_id", (Const(0),), I32)
    for value, right in ((Const(3), True), (own, False)):
        kernel = Kernel("x", (), (Alloc(held), Store(held, (), value)), (1, 8), (Const(1), Const(1)))
        if right:
            verify(kernel, TARGETS["portable"])
            continue
        with pytest.raises(LoweringError, match="held may differ between work-items of a group"):
            verify(kernel, TARGETS["portable"])
