"""`gemmgen emit`: from options to text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gemmgen.backends import BACKENDS, NAMED
from gemmgen.backends import backend as find_backend
from gemmgen.cli.accepted import nearest_accepted
from gemmgen.cli.declared import Text, TunedDevice, complete_backends, completing, flag, option
from gemmgen.cli.output import deliver, examples, folder_problems, path_problems, write_folder
from gemmgen.cli.request import (
    Request,
    backend_problems,
    device_problems,
    option_of,
    strict_problems,
    takes_request,
    words_of,
)
from gemmgen.errors import UserError, attempt, suggest
from gemmgen.records import dataclass

if TYPE_CHECKING:
    from gemmgen.ir.target import Target
    from gemmgen.source import Source

EXAMPLES = examples(
    "gemmgen emit --backend opencl --tile 32x2",
    "gemmgen emit --preset block_read_32x2_1x8 --beta 0 -o gemm.cl",
    "gemmgen emit --method slm --tile 4x4 --set stages=2 --layout row,col",
    "gemmgen emit --preset naive --python -o naive.py",
    "gemmgen emit --preset smem_8x8 --form header -o smem_8x8.h",
    "gemmgen emit --preset smem_8x8 --project smem_8x8",
    "gemmgen emit --kernel transpose --sub-group 16",
    "gemmgen emit --backend sycl --preset register_8x8_4x4 --form main -o gemm.cpp",
    "gemmgen emit --preset lds_8x8_16x16_k8 --epilogue bias --epilogue 'clamp(0, 6)'",
    "gemmgen emit --preset lds_8x8_16x16_k8 --b-dtype int8 --prologue-b '(b - b_shift) * b_scale'",
    "gemmgen emit --tile 8x4 --stop-after build",
    "gemmgen emit --backend cuda --preset async_8x8_16x16 --target sm_90 --strict -o gemm.cu",
)
KERNELS = ("gemm", "transpose")


def _forms() -> Iterator[str]:
    """Those of any backend."""
    return (form for name in BACKENDS for form in find_backend(name).forms)


complete_kernels, complete_forms = completing(lambda: KERNELS), completing(lambda: dict.fromkeys(_forms()))
complete_passes = completing(lambda: import_module("gemmgen.driver").PASS_NAMES)
_FORM = (
    "Of opencl: kernel, or header (C, with a launcher). Of sycl: header (with a launcher), kernel (for the run-time "
    "compiler) or main (checks itself)."
)
_PYTHON = "A Python module that needs numpy and pyopencl (CuPy for cuda), but no gemmgen."
_PROJECT = "A new folder instead: kernel, launcher, a program that checks and measures, and a CMakeLists.txt."


@takes_request
def emit(
    request: Request,
    backend: Annotated[
        str, option("--backend", "NAME", f"Language of the text: {NAMED}.", complete_backends)
    ] = "opencl",
    kernel: Annotated[str, option("--kernel", "KIND", "gemm or transpose.", complete_kernels)] = "gemm",
    form: Annotated[Text, option("--form", "FORM", _FORM, complete_forms)] = None,
    python: Annotated[bool, flag("--python", _PYTHON)] = False,
    strict: Annotated[bool, flag("--strict", "Refuse a CUDA kernel whose registers spill, by ptxas' word.")] = False,
    tuned: Annotated[
        bool, flag("--tuned", "The schedule that gemmgen tune has found for the sizes on this device.")
    ] = False,
    device: TunedDevice = None,
    stop_after: Annotated[Text, option("--stop-after", "PASS", "Print the IR there.", complete_passes)] = None,
    output: Annotated[Path | None, option("-o --output", "FILE", "Where to; else standard output.")] = None,
    project: Annotated[Path | None, option("--project", "DIR", _PROJECT)] = None,
) -> None:
    """Print a kernel.

    METHOD_RxC_hxw computes R x C elements of C per work-item in groups of h x w work-items. Whatever is
    left out follows from the method; the kernel's head comment shows what was chosen.
    """
    if tuned:
        from gemmgen.cli.tuned import from_records

        request = from_records(request, backend, device)
    wish = Wish(backend, kernel, form, python, strict, stop_after, output, project)
    problems = [*device_problems(device, tuned), *wish.problems()]
    make = _transpose if kernel == "transpose" else _product
    try:
        if project is not None:
            _project(request, wish, problems, project)
        else:
            deliver(make(request, wish, problems), output)
    except UserError as error:
        error.works = None if tuned or kernel != "gemm" else _works(request, wish)
        raise


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be made of a kernel: the options that only `emit` has."""

    backend: str
    kernel: str
    form: str | None
    python: bool
    strict: bool
    stop_after: str | None
    output: Path | None
    project: Path | None

    def problems(self) -> Iterator[str]:
        """What is wrong with them, each by itself and beside the others."""
        from gemmgen.driver import PASS_NAMES

        yield from path_problems(self.output)
        yield from backend_problems(self.backend)
        for what, value, known in (("kernel", self.kernel, KERNELS), ("pass", self.stop_after, PASS_NAMES)):
            if value is not None and value not in known:
                yield f"{what} {value!r} does not exist: {suggest(value, known)}"
        if self.form is not None and self.backend in BACKENDS:
            yield from _form_problems(self.backend, self.form)
        given = {x.name: getattr(self, x.name) for x in fields(self)}
        for one, others in _EXCLUDING.items():
            for other in others if given[one] else ():
                if given[other]:
                    yield f"{option_of(one)} and {option_of(other)} exclude one another: drop one"
        yield from strict_problems(self.strict, self.backend)
        if self.project is not None:
            if self.kernel == "transpose":
                yield "--project makes programs that multiply: leave out --kernel transpose"
            yield from folder_problems(self.project)

    def on(self, backend: str) -> Wish:
        """The same of another backend, as far as that has it."""
        language = find_backend(backend) if backend in BACKENDS else None
        form = self.form if language is None or self.form in language.forms else None
        return replace(self, backend=backend, form=form, strict=self.strict and not strict_problems(True, backend))

    def text(self, source: Source, target: Target) -> str:
        """What is delivered of a source. Raises: ScheduleError; with --strict DeviceError if ptxas is missing."""
        if self.strict:
            from gemmgen.runtime.ptxas import refuse_spills

            refuse_spills(source, target.name)
        if self.python:
            from gemmgen.module import render_module

            return render_module(source)
        return source.text


#: Options of `Wish` that go with none of some others.
_EXCLUDING = {
    "project": ("output", "form", "python", "stop_after"),
    "python": ("stop_after",),
    "strict": ("stop_after",),
    "form": ("stop_after", "python"),
}


def _form_problems(backend: str, form: str) -> list[str]:
    """Problems with --form."""
    if form in (forms := find_backend(backend).forms):
        return []
    remedy = suggest(form, forms) if forms else f"backend {backend} has one form only, so leave it out"
    return [f"form {form!r} is none of backend {backend}: {remedy}"]


def _product(request: Request, wish: Wish, problems: list[str]) -> str:
    """The text for a product."""
    spec, schedule, target = request.resolve(problems, wish.backend)

    from gemmgen import driver

    if wish.stop_after is not None:
        from gemmgen.ir.show import show

        if refused := driver.refusals_of(spec, schedule, wish.backend, target):
            raise UserError(refused)
        kernels = driver.lower_program(spec, schedule, target, wish.stop_after).kernels
        return "\n".join(show(kernel) for kernel in kernels)
    return wish.text(driver.emit(spec, schedule, wish.backend, target, wish.form), target)


def _project(request: Request, wish: Wish, problems: list[str], folder: Path) -> None:
    """The folder of a project. Raises: ScheduleError, UserError."""
    spec, schedule, target = request.resolve(problems, wish.backend)

    from gemmgen import driver
    from gemmgen.project import project_files

    files = project_files(spec, schedule, wish.backend, target)
    if wish.strict:
        wish.text(driver.emit(spec, schedule, wish.backend, target), target)
    write_folder(folder, files)


def _works(request: Request, wish: Wish) -> str | None:
    """The nearest command that is not refused."""
    found = nearest_accepted(request, wish.backend, lambda backend: wish.on(backend).problems())
    if found is None:
        return None
    beside = words_of(wish.on(found.backend), ("form", "python", "strict", "stop_after", "output", "project"))
    return " ".join(filter(None, ("gemmgen emit", found.text(), shlex.join(beside))))


def _transpose(request: Request, wish: Wish, problems: list[str]) -> str:
    """The text for `--kernel transpose`, which takes a block (`--sub-group`) instead of a schedule."""
    from gemmgen import driver
    from gemmgen.names import name_problem
    from gemmgen.options.specs import SPEC_TEXTS, build_spec

    gemm_only = [*"preset schedule_file method tile group block_k sets".split(), *SPEC_TEXTS]
    given = (option_of(x) for x in gemm_only if x != "dtype" and getattr(request, x) not in (None, False))
    problems += (f"{option} means nothing to --kernel transpose: leave it out" for option in given)
    if request.name is not None and (problem := name_problem(request.name)):
        problems.append(problem)
    block = request.sub_group or "16"
    if not (block.isascii() and block.isdecimal()):
        problems.append(f"sub_group {block!r} is no number of lanes: give one such as 16")
    spec = attempt(problems, build_spec, dtype=request.dtype)
    target = attempt(problems, request.chosen_target, wish.backend)
    if problems or spec is None or target is None:
        raise UserError(problems)
    if wish.stop_after is not None:
        from gemmgen.ir.show import show
        from gemmgen.kernels import transpose_kernel

        kernel = transpose_kernel(spec, int(block), target, request.name)
        return show(driver.run_passes(kernel, target, wish.stop_after))
    source = driver.emit_transpose(spec, int(block), wish.backend, target, request.name, wish.form)
    return wish.text(source, target)
