"""The options for spec and schedule, declared once and shared by `emit`, `explain` and `run`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, cast, get_type_hints

import typer

from gemmgen.cli.declared import Complete, Text, complete_presets, complete_targets, completing, flag, option
from gemmgen.errors import UserError, attempt, suggest
from gemmgen.records import dataclass

if TYPE_CHECKING:
    from gemmgen.ir.target import Target
    from gemmgen.options import Document
    from gemmgen.schedule import Schedule
    from gemmgen.spec import GemmSpec

Number = TypeVar("Number", int, float)
DTYPES = (
    "A's and B's elements: float64, float32 (if nothing is said), float16, bfloat16, float8_e4m3fn, "
    "float8_e5m2, int8, int32, int64, complex64 or complex128."
)
METHODS_TEXT = (
    "naive, slm, simd (by default), block_read, gemv, vector; of matrix instructions dpas, joint_matrix, mfma, "
    "mma, mma_direct, mma_s8, mma_f8, mma_f64, mma_tf32, mma_3xtf32, wgmma, wgmma_s8, wgmma_f8, wgmma_tf32, "
    "wgmma_3xtf32."
)
#: Fields that give the size of a sub-group.
_OF_LANES = ("sub_group", "group")
#: The boolean fields of a schedule, as --set names them. A test compares them with the schedule's.
FLAGS = (
    *"tma atomic prefetch barrier serial_launch lane_swizzle across_tiles serpentine block_2d large_grf".split(),
    *"tf32 block_writes ordered_epilogue dot_product fused_copy c_prefetch persistent stream_k direct".split(),
    *(f"{x}.{name}" for x in "ab" for name in "block_read shuffle transposed async_copy prepacked evict_first".split()),
)
HOW, WHAT = "How to compute it", "What to compute"


complete_methods = completing(lambda: import_module("gemmgen.methods").METHODS)
complete_fields = completing(lambda: (f"{key}=" for key in import_module("gemmgen.options").FIELDS))
complete_epilogues = completing(lambda: import_module("gemmgen.epilogue").NAMED)

# --- the options ----------------------------------------------------------------------------------

_SET = (
    "Any field: stages=2, a.memory=local, b.width=4 ... Flags are options, too: --persistent, --no-b.prepacked. "
    "Can be repeated."
)
_TARGET = (
    "What the device offers: intel (if nothing is said), xe_hpc (wide registers), khr (standard sub-groups), portable "
    "(none), cpu (vectors), or the architecture of a GPU, such as sm_90a."
)
_LD_MULTIPLE = "What leading dimensions are assumed to be multiples of: all, or A's, B's and C's."
_EPILOGUE = "Applied before C is stored: bias, gelu, 'clamp(0, 6)', 'expr: acc * 2' ... Can be repeated."


def how(names: str, metavar: str, text: str, complete: Complete | None = None) -> object:
    """An option of the schedule."""
    return option(names, metavar, text, complete, HOW)


def what(names: str, metavar: str, text: str, complete: Complete | None = None) -> object:
    """An option of the spec."""
    return option(names, metavar, text, complete, WHAT)


@dataclass(frozen=True, slots=True)
class Request:
    """The options as text, as the user wrote them, so that all problems can be reported at once."""

    preset: Annotated[Text, how("--preset", "NAME", "Start from a preset (gemmgen presets).", complete_presets)] = None
    schedule_file: Annotated[Path | None, how("--schedule", "FILE.toml", "Start from a schedule in TOML.")] = None
    method: Annotated[Text, how("--method", "METHOD", METHODS_TEXT, complete_methods)] = None
    tile: Annotated[Text, how("--tile", "RxC", "Rows and columns of C that a work-item computes.")] = None
    group: Annotated[Text, how("--group", "hxw", "Work-items of a group, rows x columns.")] = None
    block_k: Annotated[Text, how("--block-k", "N", "Depth of one iteration of the main loop.")] = None
    sub_group: Annotated[Text, how("--sub-group", "N", "Lanes of a sub-group.")] = None
    sets: Annotated[list[str] | None, how("--set", "KEY=VALUE", _SET, complete_fields)] = None
    name: Annotated[Text, how("--name", "NAME", "The kernel's name.")] = None
    target: Annotated[Text, how("--target", "TARGET", _TARGET, complete_targets)] = None
    m: Annotated[Text, what("-M --size1", "N", "Rows of A and C.")] = None
    n: Annotated[Text, what("-N --size3", "N", "Columns of B and C.")] = None
    k: Annotated[Text, what("-K --size2", "N", "Columns of A, rows of B.")] = None
    multiple_of: Annotated[Text, what("--multiple-of", "M,N,K", "What sizes are assumed to be multiples of.")] = None
    ld_multiple: Annotated[Text, what("--ld-multiple", "N[,N,N]", _LD_MULTIPLE)] = None
    dtype: Annotated[Text, what("--dtype", "TYPE", DTYPES)] = None
    c_dtype: Annotated[Text, what("--c-dtype", "TYPE", "C's: float32 from 16 bits; else A's and B's, or int32.")] = None
    a_dtype: Annotated[Text, what("--a-dtype", "TYPE", "What A is stored in, converted as it is loaded.")] = None
    b_dtype: Annotated[Text, what("--b-dtype", "TYPE", "The same of B.")] = None
    layout: Annotated[Text, what("--layout", "A[,B[,C]]", "row or col, for all or for each: row,col.")] = None
    conj: Annotated[Text, what("--conj", "a|b|ab", "Conjugate A, B or both; means nothing to real elements.")] = None
    alpha: Annotated[Text, what("--alpha", "X", "Fold alpha (1+2j, say); else it is a run-time argument.")] = None
    beta: Annotated[Text, what("--beta", "X", "Fold beta; 0 never reads C. Else a run-time argument.")] = None
    batched: Annotated[bool, flag("--batched", "Many products, their matrices a stride apart.", WHAT)] = False
    listed: Annotated[
        bool, flag("--listed", "Of a batch: by arrays of the matrices' addresses (CUDA, SYCL).", WHAT)
    ] = False
    grouped: Annotated[
        Text, what("--grouped", "rows|k", "Groups by offsets on the device: they share out rows, or K.")
    ] = None
    epilogue: Annotated[list[str] | None, what("--epilogue", "FUNCTION", _EPILOGUE, complete_epilogues)] = None
    prologue_a: Annotated[
        Text, what("--prologue-a", "FORMULA", "What A's elements are made into: 'a * a_scale_k', say.")
    ] = None
    prologue_b: Annotated[Text, what("--prologue-b", "FORMULA", "The same of B: '(b - b_shift) * b_scale'.")] = None
    emulate: Annotated[bool, flag("--emulate", "16-bit floats in integers, where SYCL lacks them.", WHAT)] = False
    wide: Annotated[bool, flag("--wide", "Matrices of 2^31 elements and more.", WHAT)] = False
    allow_tf32: Annotated[
        bool, flag("--allow-tf32", "float32 may be rounded to TF32: a choice may take tensor cores.", WHAT)
    ] = False

    @property
    def is_open(self) -> bool:
        """Whether no option names a schedule."""
        said = (self.preset, self.schedule_file, self.method, self.tile, self.group, self.block_k, self.sub_group)
        return not self.sets and all(option is None for option in said)

    def resolve(self, more: Iterable[str] = (), backend: str = "opencl") -> tuple[GemmSpec, Schedule, Target]:
        """What the options mean.

        Raises: UserError with every problem, those that the command has found (`more`) among them.
        """
        problems = list(more)
        base = attempt(problems, self._document)
        spec = attempt(problems, self._spec, base)
        schedule = attempt(problems, self._schedule, base, spec, backend)
        target = attempt(problems, self.chosen_target, backend, spec, schedule)
        if spec is None and schedule is not None and target is not None:
            problems += self._refusals(base, schedule, backend, target)
        if problems or spec is None or schedule is None or target is None:
            raise UserError(problems)
        return spec, schedule, target

    def _document(self) -> Document | None:
        """The preset or the file to start from."""
        from gemmgen.options import Document, read_document, read_text
        from gemmgen.presets import load

        if self.preset is not None and self.schedule_file is not None:
            raise UserError(f"--preset {self.preset} and --schedule {self.schedule_file} exclude one another: drop one")
        if self.preset is not None:
            preset = load(self.preset)
            return Document(preset.summary, preset.spec, preset.schedule)
        if self.schedule_file is not None:
            text = read_text(self.schedule_file, "--schedule", "a TOML file")
            return read_document(text, str(self.schedule_file))
        return None

    def _spec(self, base: Document | None) -> GemmSpec:
        from gemmgen.options.specs import SPEC_TEXTS, SpecTexts, build_spec

        given = {key: getattr(self, key) for key in SPEC_TEXTS}
        return build_spec(base.spec if base else None, **cast("SpecTexts", given))

    def _schedule(self, base: Document | None, spec: GemmSpec | None, backend: str) -> Schedule:
        """The schedule of the options. If they name only a target, the one chosen for it and the sizes."""
        from gemmgen.ir.target import TARGETS
        from gemmgen.options import build_schedule

        if spec is not None and self.target in TARGETS and self.is_open:
            from gemmgen.choose import choose

            return build_schedule(base=choose(spec, None, self.chosen_target(backend)), name=self.name)
        return build_schedule(
            self.method,
            self.tile,
            self.group,
            self.block_k,
            self._lanes(base),
            self.sets or (),
            base.schedule if base else None,
            self.name,
        )

    def _lanes(self, base: Document | None) -> str | None:
        """The size of a sub-group as the options give it. If no option determines it, and the target lacks the method's
        size, the target's.
        """
        from gemmgen.ir.target import TARGETS
        from gemmgen.methods import METHODS, defaults
        from gemmgen.options import DEFAULT_METHOD

        target, method = TARGETS.get(self.target or ""), self.method or DEFAULT_METHOD
        said = self.sub_group or self.group or any(text.strip().startswith(_OF_LANES) for text in self.sets or ())
        if base is not None or said or target is None or method not in METHODS:
            return self.sub_group
        usual, sizes = defaults(method).sub_group, target.sub_group_sizes
        return str(min(sizes)) if usual is not None and sizes and usual not in sizes else None

    def _refusals(self, base: Document | None, schedule: Schedule, backend: str, target: Target) -> tuple[str, ...]:
        """Problems of a schedule for a product of these types, even if the product has other problems."""
        from gemmgen import driver
        from gemmgen.backends import BACKENDS
        from gemmgen.backends import backend as find_backend
        from gemmgen.options import build_spec

        start = base.spec if base else None
        stand_in = attempt([], build_spec, start, dtype=self.dtype, c_dtype=self.c_dtype, layout=self.layout)
        if stand_in is None or backend not in BACKENDS or target.name not in find_backend(backend).targets:
            return ()
        # Each assumption that can be met, so that nobody is asked for it again.
        stand_in = attempt([], build_spec, stand_in, multiple_of=self.multiple_of) or stand_in
        stand_in = attempt([], build_spec, stand_in, ld_multiple=self.ld_multiple) or stand_in
        return driver.refusals(stand_in, schedule, backend, None if self.target is None else target)

    def chosen_target(
        self, backend: str = "opencl", spec: GemmSpec | None = None, schedule: Schedule | None = None
    ) -> Target:
        """The target of the options as the backend has it, or else the backend's default target for a schedule.

        Raises: UserError.
        """
        from gemmgen import driver
        from gemmgen.backends import BACKENDS
        from gemmgen.backends import backend as find_backend
        from gemmgen.ir.target import TARGETS

        if self.target is None and backend in BACKENDS and spec is not None and schedule is not None:
            return driver.default_target(spec, schedule, backend)
        meant = find_backend(backend).targets[0] if backend in BACKENDS else "intel"
        name = meant if self.target is None else self.target
        if name not in TARGETS:
            raise UserError(no_target(name))
        # What speaks another language is refused together with what else is wrong.
        speaks = backend in BACKENDS and name in find_backend(backend).targets
        return driver.expected_target(backend, TARGETS[name]) if speaks else TARGETS[name]


#: Options that are not called as their fields.
_SPECIAL = {"m": "-M", "n": "-N", "k": "-K", "sets": "--set", "schedule_file": "--schedule", "output": "-o"}


def option_of(field: str) -> str:
    """The option that sets a field of the request, or of `emit`'s wish."""
    return _SPECIAL.get(field, f"--{field.replace('_', '-')}")


def words_of(record: object, names: Iterable[str]) -> Iterator[str]:
    """What is given of some fields of the request, or of the wish, as the command line has it."""
    for name in names:
        value, option = getattr(record, name), option_of(name)
        if value is True:
            yield option
        elif value is not None and value is not False:
            for each in value if isinstance(value, list) else (value,):
                yield from (option, str(each))


def number(
    name: str,
    text: str,
    problems: list[str],
    most: int = 999_999_999,
    kind: Callable[[str], Number] = int,
    may_be_zero: bool = True,
) -> Number:
    """The number that an option is given as text; the one for 1, with a problem added, if it is none or too large.

    Args:
        may_be_zero: whether there is something to do if it is 0.
    """
    one = kind("1")
    try:
        if 0 <= (value := kind(text)) <= most and (value or may_be_zero):
            return value
    except ValueError:
        pass
    is_whole = isinstance(kind("1"), int)
    what = "whole number" if is_whole else "number"
    least = "from 0" if may_be_zero else "from 1" if is_whole else "above 0 and up"
    problems.append(f"{name} {text!r} is no {what} {least} to {most}: give one such as 5")
    return one


def strict_problems(strict: bool, backend: str) -> list[str]:
    """Problems with --strict for a backend."""
    from gemmgen.backends import BACKENDS
    from gemmgen.backends import backend as find_backend

    if not strict or (backend in BACKENDS and find_backend(backend).asks_ptxas):
        return []
    asking = " or ".join(name for name in BACKENDS if find_backend(name).asks_ptxas)
    return [f"--strict asks ptxas, which knows nothing of {backend}: use --backend {asking}, or leave it out"]


def device_problems(device: str | None, tuned: bool) -> list[str]:
    """Problems with --device beside --tuned."""
    return [] if device is None or tuned else [f"--device {device} is for --tuned: add it, or leave out --device"]


def backend_problems(backend: str | None) -> list[str]:
    """Problems with --backend."""
    from gemmgen.backends import BACKENDS

    if backend is None or backend in BACKENDS:
        return []
    return [f"backend {backend!r} does not exist: {suggest(backend, BACKENDS)}"]


def speaking(target: str) -> str | None:
    """The first backend that has a target of that name."""
    from gemmgen.backends import BACKENDS
    from gemmgen.backends import backend as find_backend

    return next((name for name in BACKENDS if target in find_backend(name).targets), None)


def no_target(name: str) -> str:
    """The message for an unknown target. Other commands may know the name."""
    from gemmgen.backends import BACKENDS
    from gemmgen.backends import backend as find_backend
    from gemmgen.inspect.machine import machines, target_of
    from gemmgen.ir.target import TARGETS

    if name in BACKENDS:
        *others, last = find_backend(name).targets
        return f"target {name!r} is a backend, whose targets are {', '.join(others)} and {last}: use --backend {name}"
    if name in machines():
        backend, target = target_of(machines()[name])
        known = ", ".join(TARGETS)
        return (
            f"target {name!r} is a chip that gemmgen inspect compiles for; files are for families of them ({known}): "
            f"use --backend {backend} --target {target.name}"
        )
    return f"target {name!r} does not exist: {suggest(name, TARGETS)}"


def takes_request(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is a `Request`, with the request's fields as options in its place."""
    make: Callable[..., Request] = Request
    hints = get_type_hints(Request, include_extras=True)
    own = list(signature(command, eval_str=True).parameters.values())[1:]
    kind = Parameter.KEYWORD_ONLY
    # An option that the command declares itself has another meaning there.
    inherited = [f for f in fields(Request) if f.name not in {p.name for p in own}]
    shared = [Parameter(f.name, kind, default=f.default, annotation=hints[f.name]) for f in inherited]

    flags = {_python_name(key): key for key in FLAGS}

    @wraps(command)
    def with_request(**options: object) -> None:
        given = {key: options.pop(name) for name, key in flags.items()}
        sets = [f"{key}={str(value).lower()}" for key, value in given.items() if value is not None]
        request = make(**{p.name: options.pop(p.name) for p in shared})
        command(replace(request, sets=[*(request.sets or ()), *sets] or None), **options)

    shown = [Parameter(name, kind, default=None, annotation=_flag(key)) for name, key in flags.items()]
    parameters = [p.replace(kind=kind) for p in (*own, *shared, *shown)]
    # Typer reads options off the signature.
    with_request.__dict__["__signature__"] = Signature(parameters)
    with_request.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_request


def _python_name(key: str) -> str:
    return f"flag_{key.replace('.', '_')}"


def _flag(key: str) -> object:
    """The option for `--set key=true`. It is hidden, since there are too many for the help, which mentions them."""
    words = key.replace("_", "-")
    return Annotated[bool | None, typer.Option(f"--{words}/--no-{words}", hidden=True)]
