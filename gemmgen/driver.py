"""The straight line: request -> IR -> passes -> text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

from gemmgen.backends import backend as find_backend
from gemmgen.backends import meant
from gemmgen.backends import printer as printer_of
from gemmgen.backends.clike import CLike
from gemmgen.backends.text import Notes, computes, describe, render
from gemmgen.errors import ScheduleError
from gemmgen.ir.expr import as_int
from gemmgen.ir.kernel import Kernel, Program, together
from gemmgen.ir.pipe_checks import check_pipes
from gemmgen.ir.target import TARGETS, Target
from gemmgen.ir.verify import verify
from gemmgen.ir.visit import local_bytes
from gemmgen.launch import entry_point, span
from gemmgen.passes.addresses import addresses
from gemmgen.passes.build import build
from gemmgen.passes.expand import expand
from gemmgen.passes.pipeline import pipeline
from gemmgen.passes.predicate import predicate
from gemmgen.passes.simplify import simplify
from gemmgen.passes.swap import swap
from gemmgen.passes.transpose import build_transpose
from gemmgen.passes.unswitch import unswitch
from gemmgen.passes.validate import validate
from gemmgen.schedule import Schedule
from gemmgen.source import Source
from gemmgen.spec import GemmSpec

Pass = Callable[[Kernel], Kernel]

#: From a kernel on tiles to one on instructions, in order.
PASSES: tuple[Pass, ...] = (pipeline, expand, predicate, unswitch, simplify, addresses, swap)
PASS_NAMES: tuple[str, ...] = ("build", *(p.__name__ for p in PASSES))


def emit(
    spec: GemmSpec,
    schedule: Schedule,
    backend: str = "opencl",
    target: Target | None = None,
    form: str | None = None,
) -> Source:
    """The source of a product, in the form that is meant (`CLike.forms`; None for the backend's first).

    Raises: ScheduleError, SpecError; LoweringError if gemmgen is at fault.
    """
    return emit_program(spec, schedule, backend, target, form)[0]


def emit_program(
    spec: GemmSpec,
    schedule: Schedule,
    backend: str = "opencl",
    target: Target | None = None,
    form: str | None = None,
) -> tuple[Source, Program]:
    """The source of a product, and the kernels that it was printed from. Raises: as `emit`."""
    language = find_backend(backend)
    form = _form(language, form)
    _expect_types(spec, schedule, target)
    target = _target(language, target) if target else default_target(spec, schedule, backend)
    program = lower_program(spec, schedule, target)
    notes = describe(spec, schedule, target, language.words)
    printer = partial(printer_of(language, spec), target, form=form, spec=spec, program=program.name)
    return _print(program, spec, computes(meant(language, spec)), notes, "gemm", printer), program


def _expect_types(spec: object, schedule: object, target: object) -> None:
    """From Python, each may be anything. Raises: ScheduleError."""
    given = (
        ("spec", spec, GemmSpec, "a GemmSpec, such as gemmgen.GemmSpec()"),
        ("schedule", schedule, Schedule, "a Schedule, such as gemmgen.presets.load('naive').schedule"),
        ("target", target, Target | None, "a Target, such as gemmgen.ir.target.TARGETS['intel'], or None"),
    )
    problems = [
        f"{name} is of type {type(x).__name__}: pass {what}" for name, x, kind, what in given if not isinstance(x, kind)
    ]
    if problems:
        raise ScheduleError(problems)


def emit_transpose(
    spec: GemmSpec,
    block: int = 16,
    backend: str = "opencl",
    target: Target | None = None,
    name: str | None = None,
    form: str | None = None,
) -> Source:
    """The source of B = A^T by shuffles in sub-groups of `block` lanes. Raises: ScheduleError."""
    language = find_backend(backend)
    form = _form(language, form)
    target = _target(language, target)
    program = Program((run_passes(build_transpose(spec, block, target, name), target),))
    exchanges = block.bit_length() - 1
    notes: Notes = [("Schedule", [f"{block}x{block} of A per sub-group, transposed by {exchanges} rounds of shuffles"])]
    printer = partial(language, target, form=form, spec=spec)
    return _print(program, spec, f"B = transpose of A; {spec.dtype}", notes, "transpose", printer)


def _form(language: type[CLike], form: str | None) -> str | None:
    """The form that is meant. Raises: ScheduleError if the backend has none of that name."""
    if form is None:
        return next(iter(language.forms), None)
    if form not in language.forms:
        known = f"use one of {', '.join(language.forms)}" if language.forms else "leave it out"
        raise ScheduleError(f"form {form!r} means nothing to backend {language.name}: {known}")
    return form


def _target(language: type[CLike], target: Target | None) -> Target:
    """The target that is meant. Raises: ScheduleError if it speaks another language."""
    if target is None:
        target = TARGETS[language.targets[0]]
    if target.name in TARGETS and target.name not in language.targets:
        raise ScheduleError(
            f"target {target.name!r} does not run {language.name}: use one of {', '.join(language.targets)}"
        )
    return replace(target, features=target.features - language.lacks)


def default_target(spec: GemmSpec, schedule: Schedule, backend: str = "opencl") -> Target:
    """What is meant where no target is named: the backend's first one that has the least against the schedule."""
    language = find_backend(backend)
    targets = [_target(language, TARGETS[name]) for name in language.targets]
    return min(targets, key=lambda target: len(_problems(spec, schedule, target)))


def refusals(
    spec: GemmSpec, schedule: Schedule, backend: str = "opencl", target: Target | None = None
) -> tuple[str, ...]:
    """Why a schedule can't be had on a backend's target (its default, unless one is named); empty if it can."""
    language = find_backend(backend)
    return _problems(spec, schedule, _target(language, target) if target else default_target(spec, schedule, backend))


def _problems(spec: GemmSpec, schedule: Schedule, target: Target) -> tuple[str, ...]:
    try:
        validate(spec, schedule, target)
    except ScheduleError as error:
        return error.problems
    return ()


def lower(spec: GemmSpec, schedule: Schedule, target: Target | None = None, stop_after: str | None = None) -> Kernel:
    """The kernel of a product, without those that run before or after it, after all passes or after the one named."""
    return lower_program(spec, schedule, target or TARGETS["intel"], stop_after).main


def lower_program(spec: GemmSpec, schedule: Schedule, target: Target, stop_after: str | None = None) -> Program:
    """All kernels of a product, after all passes or after the one named."""
    validate(spec, schedule, target)
    program = build(spec, schedule, target)
    large = [problem for x in program.workspaces if (problem := x.problem(as_int(x.elements) or 0))]
    if large and not spec.batched:
        raise ScheduleError(large)
    return replace(program, kernels=tuple(run_passes(kernel, target, stop_after) for kernel in program.kernels))


def run_passes(kernel: Kernel, target: Target, stop_after: str | None = None) -> Kernel:
    """Each pass in turn, the kernel verified before the first and after each."""
    verify(kernel, target)
    check_pipes(kernel)
    if stop_after == "build":
        return kernel
    for step in PASSES:
        kernel = step(kernel)
        verify(kernel, target)
        if step.__name__ == stop_after:
            break
    return kernel


def _print(
    program: Program,
    spec: GemmSpec,
    what: str,
    notes: Notes,
    operation: Literal["gemm", "transpose"],
    printer: Callable[[Kernel], CLike],
) -> Source:
    printers = tuple(map(printer, program.kernels))
    workspaces = program.workspaces
    return Source(
        name=program.name,
        backend=printers[0].name,
        operation=operation,
        text=render(printer(together(program)), printers, what, notes, workspaces),
        entry_points=tuple(entry_point(p.kernel, local_bytes(p.kernel), p.dynamic_bytes()) for p in printers),
        spec=spec,
        build_options=printers[0].build_options(),
        gpu_options=printer(program.main).gpu_options(),
        requires=frozenset().union(*(p.needs() for p in printers)),
        alignment=max(p.alignment() for p in printers),
        workspaces=workspaces,
        span=min(span(kernel) for kernel in program.kernels),
    )
