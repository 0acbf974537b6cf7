"""Targets that are chosen where none is named, and requests of more than one kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen import candidates, driver
from gemmgen.errors import ScheduleError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import F32
from gemmgen.ir.expr import Const, Var
from gemmgen.ir.kernel import Kernel, Program, together
from gemmgen.ir.stmt import Comment
from gemmgen.ir.synchronization import Barrier
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import evaluate
from gemmgen.module import render_module
from gemmgen.options import build_schedule
from gemmgen.passes.validate import problems_as_asked
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

SPEC = GemmSpec()
PLAIN = candidates.load("naive").schedule
RINGS = [s for name in candidates.names() if (s := candidates.load(name).schedule).mbarrier]
SPLIT = RINGS[0].but(split_k=4, name="parts")


# --- targets --------------------------------------------------------------------------------------


def test_the_first_target_that_can_take_it() -> None:
    asynchronous = candidates.load("async_8x8_16x16").schedule
    assert driver.default_target(SPEC, PLAIN, "cuda").name == "sm_80"
    assert driver.default_target(SPEC, asynchronous, "cuda").name == "sm_80"
    for ring in RINGS:
        first = "sm_90a" if ring.producer_threads else "sm_90"  # which hand registers over
        assert driver.default_target(SPEC, ring, "cuda").name == first
    assert driver.default_target(SPEC, PLAIN).name == "intel"


def test_the_first_target_of_all_where_none_can() -> None:
    """So that the refusal speaks of the target that most people mean."""
    impossible = PLAIN.but(tile=(256, 256))
    assert driver.default_target(SPEC, impossible, "cuda").name == "sm_80"
    assert driver.default_target(SPEC, RINGS[0], "opencl").name == "intel"
    assert driver.refusals(SPEC, RINGS[0], "opencl")


def test_memory_decides_as_features_do() -> None:
    big = build_schedule("slm", tile="8x8", group="16x16", block_k=32, sets=["stages=6", "b.memory=local"])
    assert driver.default_target(SPEC, big, "cuda").name == "sm_90"
    assert driver.refusals(SPEC, big, "cuda", TARGETS["sm_80"])[0].startswith("local memory")


def test_names_are_no_schedules_nor_targets() -> None:
    with pytest.raises(ScheduleError, match=r"schedule is of type str: pass a Schedule, such as .*load\('naive'\)"):
        driver.emit(GemmSpec(), "naive")  # type: ignore[arg-type]
    with pytest.raises(ScheduleError) as caught:
        driver.emit(None, candidates.load("naive").schedule, target="intel")  # type: ignore[arg-type]
    assert [x.split(":")[0] for x in caught.value.problems] == ["spec is of type NoneType", "target is of type str"]


def test_fewer_stages_are_advised_where_they_help() -> None:
    spec, sm_90a = candidates.load("wgmma_128x256_s4").spec, TARGETS["sm_90a"]
    schedule = candidates.load("wgmma_128x256_s4").schedule.but(stages=64)
    (problem,) = driver.refusals(spec, schedule, "cuda", sm_90a)
    assert problem.endswith("use 4 stages instead of 64, or a smaller tile")
    assert not driver.refusals(spec, schedule.but(stages=4), "cuda", sm_90a)
    ring = candidates.load("async_8x8_16x16").schedule.but(stages=64)
    (problem,) = driver.refusals(GemmSpec(), ring, "cuda", sm_90a)
    assert problem.endswith("use 6 stages instead of 64, or block_k 16 instead of 32, or a smaller tile")
    assert not driver.refusals(GemmSpec(), ring.but(stages=6), "cuda", sm_90a)
    assert driver.refusals(GemmSpec(), ring.but(stages=7), "cuda", sm_90a)


def test_what_is_named_is_not_replaced() -> None:
    with pytest.raises(ScheduleError, match="sm_90 or later"):
        driver.emit(SPEC, RINGS[0], "cuda", TARGETS["sm_80"])
    assert driver.refusals(SPEC, RINGS[0], "cuda") == ()
    assert driver.emit(SPEC, RINGS[0], "cuda").text == driver.emit(SPEC, RINGS[0], "cuda", TARGETS["sm_90"]).text


# --- several kernels ------------------------------------------------------------------------------


def test_a_request_of_two_kernels() -> None:
    source = driver.emit(SPEC, SPLIT, "cuda")
    assert [entry.name for entry in source.entry_points] == ["parts", "parts_total"]
    (workspace,) = source.workspaces
    # Planes of M rows, each begun on a multiple of four elements.
    assert evaluate(workspace.elements, {"m": 5, "n": 6}) == 4 * 5 * 8
    for entry in source.entry_points:
        assert any(argument.name == "workspace" for argument in entry.arguments)
    first, second = source.entry_points
    assert {argument.name for argument in first.arguments} >= {"a", "b", "alpha"}
    assert {argument.name for argument in second.arguments} >= {"c", "beta"}
    assert not {argument.name for argument in first.arguments} & {"c", "beta"}


def test_groups_of_a_request_with_parts() -> None:
    rows, cols = SPLIT.block_tile
    first, second = driver.emit(SPEC, SPLIT, "cuda").entry_points
    sizes = {"m": 3 * rows + 1, "n": 2 * cols, "k": 7}
    assert first.groups(sizes) == (1, 1, 4 * 2 * SPLIT.split_k)
    across = -(-sizes["n"] // second.group[1])
    assert second.groups(sizes) == (1, 1, sizes["m"] * across)


def test_one_kernel_has_no_workspace() -> None:
    source = driver.emit(SPEC, SPLIT.but(split_k=1), "cuda")
    assert (len(source.entry_points), source.workspaces) == (1, ())
    assert Program((driver.lower(SPEC, PLAIN),)).workspaces == ()


@pytest.mark.parametrize("stop_after", driver.PASS_NAMES)
def test_every_kernel_goes_through_every_pass(stop_after: str) -> None:
    program = driver.lower_program(SPEC, SPLIT, TARGETS["sm_90"], stop_after)
    assert [kernel.name for kernel in program.kernels] == ["parts", "parts_total"]
    assert driver.lower(SPEC, SPLIT, TARGETS["sm_90"], stop_after) == program.kernels[0]


def test_a_module_holds_one_kernel() -> None:
    with pytest.raises(ScheduleError, match=r"split, packed and dpas need more: use gemmgen\.compile"):
        render_module(driver.emit(SPEC, SPLIT, "cuda"))
    assert "parts" in render_module(driver.emit(SPEC, SPLIT.but(split_k=1), "cuda"))


def test_kernels_together_hold_what_each_has() -> None:
    m, n, beta = Var("m"), Var("n"), Var("beta", F32)
    written = Buffer("workspace", F32, Space.GLOBAL, Layout.pitched(m, n, n))
    read = replace(written, writable=False)
    one = Kernel("one", (m, n, written), (Barrier(),), (2, 8), (m, Const(1)), nonnegative=(m - 1,))
    two = Kernel("two", (m, read, beta), (Comment("second"), Barrier()), (1, 64), (n, Const(1)))
    both = together(Program((one, two)))
    assert both == replace(one, params=(m, n, written, beta), body=(*one.body, *two.body))
    assert together(Program((one,))) == one


def test_a_program_says_which_kernel_is_the_main_one() -> None:
    """Whatever they are called."""
    names = ("p", "the_product", "t")
    kernels = tuple(Kernel(name, (), (), (1, 1), (Const(1), Const(1))) for name in names)
    assert Program(kernels, before=1).main is kernels[1]
    assert together(Program(kernels, before=1)).name == "the_product"


@pytest.mark.parametrize("name", [p for p in candidates.names() if "_packed" in p or "split" in p or "dpas" in p])
def test_the_main_kernel_is_the_one_that_the_others_are_called_after(name: str) -> None:
    preset = candidates.load(name)
    target = next(t for t in TARGETS.values() if not problems_as_asked(preset.spec, preset.schedule, t))
    program = driver.lower_program(preset.spec, preset.schedule, target)
    assert all(kernel.name.startswith(program.main.name) for kernel in program.kernels)
    kept = {p.name for kernel in program.kernels for p in kernel.matrices if p.prepacked}
    assert kept == {w.name for w in program.workspaces if w.name != "workspace"}


@pytest.mark.parametrize("schedule", [SPLIT, RINGS[0], PLAIN], ids=["parts", "ring", "plain"])
def test_shared_memory_that_a_launch_asks_for(schedule: Schedule) -> None:
    """Beyond what CUDA gives without being asked, 48 KiB, it is all that the kernel has, mbarriers included."""
    barriers = 2 * 8 * (schedule.stages // schedule.mbarrier) if schedule.mbarrier else 0
    entries = driver.emit(SPEC, schedule, "cuda").entry_points
    for entry in entries:
        assert entry.dynamic_bytes in (0, entry.local_bytes + barriers)
        assert (entry.dynamic_bytes > 0) >= (entry.local_bytes > 48 * 1024)
