"""Kernels of a program that begin while the ones before them end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gemmgen import candidates, driver
from gemmgen.errors import LoweringError, ScheduleError
from gemmgen.ir.expr import Load
from gemmgen.ir.stmt import Body, Stmt, Store, TmaCopy, VectorCopy
from gemmgen.ir.synchronization import DependentLaunch
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify
from gemmgen.ir.walk import exprs, walk, walk_expr
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

SEVERAL = [
    name
    for name in candidates.names()
    if (s := candidates.load(name).schedule).atom == "fma" and (s.split_k > 1 or s.a.prepacked or s.b.prepacked)
]


def touched(stmt: Stmt) -> Iterator[str]:
    """The buffers that a statement reads or writes."""
    if isinstance(stmt, VectorCopy | TmaCopy):
        yield from (stmt.dst.name, stmt.src.name)
    for root in exprs(stmt):
        yield from (node.buffer.name for node in walk_expr(root) if isinstance(node, Load))


def before_and_after(body: Body) -> tuple[list[Stmt], list[Stmt]]:
    """The statements before a kernel awaits the others, and those from there on, in the order of the text."""
    stmts = list(walk(body))
    at = next(i for i, s in enumerate(stmts) if isinstance(s, DependentLaunch) and s.verb == "await")
    return stmts[:at], stmts[at:]


@pytest.mark.parametrize("name", SEVERAL)
def test_nothing_of_the_kernels_before_is_touched_too_early(name: str) -> None:
    preset = candidates.load(name)
    program = driver.lower_program(preset.spec, preset.schedule, TARGETS["sm_90a"])
    last = program.kernels[-1]
    before, after = before_and_after(last.body)
    awaited = {b.name for s in after if isinstance(s, DependentLaunch) for b in s.buffers}
    assert awaited
    assert not awaited & {x for stmt in before for x in touched(stmt)}
    written = {x.name for x in program.workspaces} | {"c"}
    assert awaited <= written
    # Whatever of a workspace the kernel touches, it awaits.
    assert {x for stmt in after for x in touched(stmt)} & {x.name for x in program.workspaces} <= awaited
    assert any(isinstance(s, DependentLaunch) and s.verb == "release" for s in walk(program.kernels[0].body))


@pytest.mark.parametrize(
    ("name", "early"),
    [("mbarrier_8x8_2x16_split8", True), ("mbarrier_8x8_8x8_split128", False), ("mbarrier_8x16_16x16_split7", False)],
)
def test_where_memory_is_waited_for_the_sum_is_let_in_at_once(name: str, early: bool) -> None:
    """Elsewhere when the arithmetic is over: measured, an early one cost what handing over had gained."""
    preset = candidates.load(name)
    stmts = list(walk(driver.lower(preset.spec, preset.schedule, TARGETS["sm_90"]).body))
    (released,) = (i for i, s in enumerate(stmts) if isinstance(s, DependentLaunch) and s.verb == "release")
    multiplied = max(i for i, s in enumerate(stmts) if isinstance(s, Store) and s.buffer.name == "acc")
    stored = min(i for i, s in enumerate(stmts) if isinstance(s, VectorCopy) and s.dst.name in ("partial", "workspace"))
    assert released < stored
    assert (released < multiplied) == early


@pytest.mark.parametrize("name", SEVERAL)
def test_text_and_launch(name: str) -> None:
    preset = candidates.load(name)
    source = driver.emit(preset.spec, preset.schedule, "cuda", TARGETS["sm_90a"])
    early = [entry.name for entry in source.entry_points if entry.early]
    assert early
    assert source.entry_points[0].name not in early
    assert "dependent_launch" in source.requires
    for kernel in early:
        assert f"cudaLaunchKernelEx(&config, {kernel}," in source.text
        assert f"{kernel}<<<" not in source.text


WITH_ROLES = [x for x in candidates.names() if candidates.load(x).schedule.by_warpgroups]
PACKED = [x for x in WITH_ROLES if candidates.load(x).schedule.a.prepacked]
LATE = [x for x in WITH_ROLES if candidates.load(x).schedule.serial_launch]


@pytest.mark.parametrize("name", PACKED)
def test_what_packs_begins_when_all_before_is_over(name: str) -> None:
    """And lets the product in early, which alone reads what it writes."""
    preset = candidates.load(name)
    source = driver.emit(preset.spec, preset.schedule, "cuda", TARGETS["sm_90a"])
    assert [entry.early for entry in source.entry_points] == [False, True]


@pytest.mark.parametrize("name", LATE)
def test_late_ones_follow_the_kernel_before(name: str) -> None:
    preset = candidates.load(name)
    source = driver.emit(preset.spec, preset.schedule, "cuda", TARGETS["sm_90a"])
    assert not any(entry.early for entry in source.entry_points)
    assert "kernels_" not in source.text
    with pytest.raises(ScheduleError, match="serial_launch = true means nothing to mainloop Direct"):
        driver.emit(GemmSpec(), Schedule.of(serial_launch=True))


@pytest.mark.parametrize("name", sorted({*WITH_ROLES} - {*PACKED, *LATE}))
def test_kernels_with_roles_await_whatever_ran_before(name: str) -> None:
    """Also alone: with two calls behind one another, the second begins while the first ends."""
    preset = candidates.load(name)
    source, program = driver.emit_program(preset.spec, preset.schedule, "cuda", TARGETS["sm_90a"])
    main = program.kernels.index(program.main)
    assert all(entry.early for entry in source.entry_points[main:]), "what lays out A or B comes first"
    before, after = before_and_after(program.main.body)
    given = {matrix.name for matrix in program.main.matrices}
    assert not given & {x for stmt in before for x in touched(stmt)}
    assert given <= {x for stmt in after for x in touched(stmt)}
    handovers = [s for s in after if isinstance(s, DependentLaunch)]
    assert [s.verb for s in handovers] == ["await", "release"]
    assert {b.name for s in handovers for b in s.buffers} == given


def test_elsewhere_one_kernel_follows_the_other() -> None:
    preset = candidates.load("smem_8x8_double_packed")
    source = driver.emit(preset.spec, preset.schedule, "cuda", TARGETS["sm_80"])
    assert not any(entry.early for entry in source.entry_points)
    assert "kernels_" not in source.text
    kernel = driver.lower_program(preset.spec, preset.schedule, TARGETS["sm_90"]).main
    with pytest.raises(LoweringError, match="await of kernels needs dependent_launch"):
        verify(kernel, TARGETS["sm_80"])
