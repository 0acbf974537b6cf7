"""The straight line: request -> IR -> passes -> text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

from gemmgen.backends import BACKENDS, meant, printer_of
from gemmgen.backends import backend as find_backend
from gemmgen.backends.clike import CLike
from gemmgen.backends.text import Notes, about, computes, folded, render
from gemmgen.build import build
from gemmgen.errors import ScheduleError
from gemmgen.ir.constants import constants_of, free_of
from gemmgen.ir.expr import as_int
from gemmgen.ir.kernel import Kernel, Program, local_bytes, together
from gemmgen.ir.pipe_checks import check_pipes
from gemmgen.ir.target import FEATURES, TARGETS, Target
from gemmgen.ir.verify import verify
from gemmgen.kernels import transpose_kernel
from gemmgen.launch import entry_point, span
from gemmgen.methods import options_of
from gemmgen.passes.addresses import addresses
from gemmgen.passes.expand import expand
from gemmgen.passes.guard import predicate, unswitch
from gemmgen.passes.nibbles import nibbles
from gemmgen.passes.pipeline import pipeline
from gemmgen.passes.simplify import simplify
from gemmgen.passes.sub_group_size import lanes_and_registers
from gemmgen.passes.swap import swap
from gemmgen.passes.validate import validate
from gemmgen.remedies import Remedies
from gemmgen.schedule import Schedule
from gemmgen.source import Source
from gemmgen.spec import GemmSpec
from gemmgen.summary import summary

Pass = Callable[[Kernel], Kernel]

#: From a kernel on tiles to one on instructions, in order.
PASSES: tuple[Pass, ...] = (pipeline, expand, predicate, unswitch, nibbles, simplify, addresses, swap)
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
    target = target or default_target(spec, schedule, backend)
    if problems := refusals_of(spec, schedule, backend, target):
        raise ScheduleError(problems)
    target = _target(language, target)
    built = build_program(spec, schedule, target)
    program = lowered(built, target)
    named = [] if schedule.name else [("Schedule", [options_of(schedule)])]
    notes = [*folded([*named, *summary(spec, built, program, language.words)]), *about(spec, program)]
    remedies = _remedies(spec, schedule, language, target, form)
    printer = partial(
        printer_of(language, spec), target, form=form, spec=spec, program=program.name, remedy=remedies.command
    )
    return _print(program, spec, computes(meant(language, spec)), notes, "gemm", printer), program


def _remedies(spec: GemmSpec, schedule: Schedule, language: type[CLike], target: Target, form: str | None) -> Remedies:
    """What guards of constants name."""
    options = [f"--backend {language.name}"] if language.name != next(iter(BACKENDS)) else []
    options += [f"--form {form}"] if form != _form(language, None) else []
    own = default_target(spec, schedule, language.name).name
    options += [f"--target {target.name}"] if target.name in TARGETS and target.name != own else []
    conj_a, conj_b = spec.conj
    spec = replace(spec, conj_a=conj_a, conj_b=conj_b)
    return Remedies(spec, schedule, " ".join(options), lambda other: not _problems(spec, other, target))


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
    program = Program((run_passes(transpose_kernel(spec, block, target, name), target),))
    exchanges = block.bit_length() - 1
    notes: Notes = [("Tile", [f"{block}x{block} of A per sub-group, transposed by {exchanges} rounds of shuffles"])]
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
        *others, last = language.targets
        raise ScheduleError(
            f"target {target.name!r} does not run {language.name}: use --backend {' or '.join(_speaking(target))}, "
            f"or one of the targets {', '.join(others)} and {last}"
        )
    return replace(target, features=(target.features - language.lacks) | language.has)


def _speaking(target: Target) -> list[str]:
    """The backends that have a target."""
    return [name for name in BACKENDS if target.name in find_backend(name).targets]


def expected_target(backend: str, target: Target) -> Target:
    """A target as a backend has it: less what its language has no words for, with what it has on every target.

    Raises: ScheduleError for another backend's.
    """
    return _target(find_backend(backend), target)


def default_target(spec: GemmSpec, schedule: Schedule, backend: str = "opencl") -> Target:
    """What is meant where no target is named: the backend's first one that has the least against the schedule."""
    language = find_backend(backend)
    targets = [_target(language, TARGETS[name]) for name in language.targets if name not in language.chips]
    return min(targets, key=lambda target: len(_problems(spec, schedule, target)))


def refusals(
    spec: GemmSpec, schedule: Schedule, backend: str = "opencl", target: Target | None = None
) -> tuple[str, ...]:
    """Why a schedule can't be had on a backend's target (its default, unless one is named); empty if it can."""
    language = find_backend(backend)
    return _problems(spec, schedule, _target(language, target) if target else default_target(spec, schedule, backend))


def refusals_of(spec: GemmSpec, schedule: Schedule, backend: str, target: Target) -> tuple[str, ...]:
    """Why a schedule can't be had on a target. Where that lacks what no target of its backend and one of another has,
    the other backend is the remedy, and what it refuses as well is said beside it. Of a target that speaks another
    language, what it has against the schedule in its own.
    """
    try:
        target = _target(find_backend(backend), target)
    except ScheduleError as error:
        return (*error.problems, *refusals_of(spec, schedule, _speaking(target)[0], target))
    if not (problems := _problems(spec, schedule, target)):
        return ()
    lacking = _lacking(spec, schedule, target)
    own = default_target(spec, schedule, backend)
    if not lacking or (target.name in TARGETS and not _lacking(spec, schedule, own)):
        return problems
    others = {name: default_target(spec, schedule, name) for name in BACKENDS if name != backend}
    left = {
        name: _problems(spec, schedule, other) for name, other in others.items() if not _lacking(spec, schedule, other)
    }
    other = next((name for name, refused in left.items() if set(refused) < set(problems)), None)
    if other is None:
        return problems
    parts = [problem.rsplit(": ", 1) for problem in lacking]
    facts = "; ".join(dict.fromkeys(fact for fact, _ in parts))
    # A remedy that names another backend's target or instruction is none here.
    usable = [
        remedy
        for remedy in dict.fromkeys(remedy for _, remedy in parts)
        if not re.search("sm_|target|atom|or method", remedy)
    ]
    options = "".join(f"{remedy}, or " for remedy in usable)
    # A device is what it is; a target that was named is one of the wrong backend's.
    on = f" --target {others[other].name}" if target.name in TARGETS else ""
    return (f"{facts}: {options}use --backend {other}{on}", *left[other])


def _lacking(spec: GemmSpec, schedule: Schedule, target: Target) -> tuple[str, ...]:
    """The problems that a target with every feature would not have."""
    beside = _problems(spec, schedule, replace(target, features=frozenset(FEATURES)))
    return tuple(problem for problem in _problems(spec, schedule, target) if problem not in beside)


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
    return lowered(build_program(spec, schedule, target), target, stop_after)


def build_program(spec: GemmSpec, schedule: Schedule, target: Target) -> Program:
    """All kernels of a product before any pass. Raises: ScheduleError."""
    validate(spec, schedule, target)
    program = build(spec, schedule, target)
    program = replace(program, kernels=tuple(lanes_and_registers(kernel, target) for kernel in program.kernels))
    large = [problem for x in program.workspaces if (problem := x.problem(as_int(x.elements) or 0))]
    if large and not spec.batched:
        raise ScheduleError(large)
    return program


def lowered(program: Program, target: Target, stop_after: str | None = None) -> Program:
    """The kernels after all passes, or after the one named."""
    return replace(program, kernels=tuple(run_passes(kernel, target, stop_after) for kernel in program.kernels))


def run_passes(kernel: Kernel, target: Target, stop_after: str | None = None) -> Kernel:
    """Each pass in turn, the kernel verified before the first and after each that changes it."""
    verify(kernel, target)
    check_pipes(kernel)
    if stop_after == "build":
        return kernel
    for step in PASSES:
        before, kernel = kernel, step(kernel)
        if kernel != before:
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
    printer: Callable[..., CLike],
) -> Source:
    constants, free = constants_of(program.kernels), free_of(program.kernels)
    # Steps of a known K are counted in the text: some have no rest, or nothing to load ahead.
    free -= {"BK", "STAGES", "SPLIT_K"} if spec.k is not None else set()
    printers = tuple(printer(kernel, constants=constants, free=free) for kernel in program.kernels)
    workspaces, file = program.workspaces, printer(together(program), constants=constants, free=free)
    return Source(
        name=program.name,
        backend=printers[0].name,
        operation=operation,
        text=render(file, printers, what, notes, workspaces),
        entry_points=tuple(entry_point(p.kernel, local_bytes(p.kernel), p.dynamic_bytes()) for p in printers),
        spec=spec,
        build_options=file.build_options(),
        gpu_options=file.gpu_options(),
        matrix_options=file.matrix_options(),
        matrix_extensions=file.matrix_extensions(),
        extensions=file.extensions(),
        requires=frozenset().union(*(p.needs() for p in printers)),
        alignment=max(p.alignment() for p in printers),
        workspaces=workspaces,
        span=min(span(kernel) for kernel in program.kernels),
    )
