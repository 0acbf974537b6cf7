"""`gemmgen run`: run presets or schedules on a device, time them and check the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli.declared import (
    WHERE,
    Device,
    DeviceType,
    Platform,
    Text,
    complete_presets,
    completing,
    flag,
    option,
)
from gemmgen.cli.output import document, examples, path_problems, say, write
from gemmgen.cli.request import Request, number, strict_problems, takes_request
from gemmgen.errors import UserError, attempt
from gemmgen.records import dataclass

if TYPE_CHECKING:
    from gemmgen.cli.engines import Engine, Once
    from gemmgen.cli.matrices import Check, Matrices, Matrix
    from gemmgen.schedule import Schedule
    from gemmgen.spec import GemmSpec

EXAMPLES = examples(
    "gemmgen run -k block_read_32x2_1x8 -M 1024 -K 1024 -N 1024 -v",
    "gemmgen run -k naive -k L3_SIMD_32x2_1x8 -d xeon -i 20",
    "gemmgen run --tile 16x2 --group 4x8 -v",
    "gemmgen run -k naive --a A.npy --b B.npy -o C.npy",
    "gemmgen run -k all -i 0",
    "gemmgen run --backend cuda -k smem_8x8_double -M 4096 -N 4096 -K 4096 -v",
    "gemmgen run -k lds_8x8_16x16_k8 --batch 64 -M 100 -N 100 -K 100 -v",
    "gemmgen run --backend sycl -k sg16_block_16x2 -v",
    "gemmgen run -k smem_8x8 --epilogue bias --epilogue gelu -v",
    "gemmgen run -k naive -M 256 -K 256 -N 256 -v --json",
)
DATA = "Matrices"


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of `run`, after all options have been checked.

    Attributes:
        jobs: the kernels to build and run, in order.
        tolerant: whether kernels that the device can't run are skipped (`-k all`) instead of refused.
        exact: whether the specs' `ld_multiple` is final, so that no variant is chosen by the arrays.
        matrices: the matrices to multiply; None if nothing is run.
        tell: prints a line for the user.
    """

    jobs: tuple[tuple[GemmSpec, Schedule], ...]
    tolerant: bool
    exact: bool
    iterations: int
    validate: bool
    matrices: Matrices | None
    tell: Callable[[str], None] = say


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a kernel.

    Attributes:
        milliseconds: device time of each iteration.
        gflops: the rate of the best iteration.
        check: the comparison with float64; None without --validate.
        skipped: why it was not run.
    """

    kernel: str
    sizes: tuple[int, int, int] | None = None
    products: int = 1
    dtype: str = ""
    c_dtype: str = ""
    milliseconds: tuple[float, ...] = ()
    gflops: float | None = None
    check: Check | None = None
    skipped: str | None = None

    @property
    def passed(self) -> bool:
        return self.check is None or self.check.passed

    def record(self) -> dict[str, object]:
        """As JSON has it."""
        m, n, k = self.sizes or (None, None, None)
        check = self.check
        return {
            "kernel": self.kernel,
            "m": m,
            "n": n,
            "k": k,
            "products": self.products,
            "dtype": self.dtype or None,
            "c_dtype": self.c_dtype or None,
            "milliseconds": self.milliseconds,
            "best_milliseconds": min(self.milliseconds, default=None),
            "gflops": self.gflops,
            "validation": None
            if check is None
            else {
                "passed": check.passed,
                "error": _finite(check.error),
                "of_bound": _finite(check.worst),
                "bound": check.bound,
            },
            "skipped": self.skipped,
        }


def _finite(number: float) -> float | None:
    """The number for JSON, which has neither NaN nor infinities: None for those."""
    return number if math.isfinite(number) else None


complete_kernels = completing(lambda: ("all", *complete_presets("")))
_VALIDATE = "Check against float64; exit code 1 if it fails."


@takes_request
def run(
    request: Request,
    backend: Annotated[str, option("--backend", "NAME", "opencl, cuda or sycl.", panel=WHERE)] = "opencl",
    platform: Platform = None,
    type_: DeviceType = None,
    device: Device = None,
    kernel: Annotated[
        list[str] | None, option("-k --kernel", "PRESET", "Or all. Can be repeated.", complete_kernels)
    ] = None,
    iterations: Annotated[str, option("-i --iterations", "N", "0 builds everything and runs nothing.")] = "5",
    validate: Annotated[bool, flag("-v --validate --validation", _VALIDATE)] = False,
    strict: Annotated[bool, flag("--strict", "Refuse CUDA kernels whose registers spill.")] = False,
    a: Annotated[Path | None, option("--a", "A.npy", "A, instead of random numbers.", panel=DATA)] = None,
    b: Annotated[Path | None, option("--b", "B.npy", "B, instead of random numbers.", panel=DATA)] = None,
    output: Annotated[Path | None, option("-o --output", "C.npy", "Where C is written.", panel=DATA)] = None,
    seed: Annotated[str, option("--seed", "N", "Of the random numbers.", panel=DATA)] = "0",
    batch: Annotated[Text, option("--batch", "N", "So many products in one go.", panel=DATA)] = None,
    as_json: Annotated[bool, flag("--json", "One JSON document in place of the text.")] = False,
) -> None:
    """Run kernels: device time of each iteration, GFLOP/s and, with -v, the error against its bound.

    The sizes are arguments of the kernel here, 1024 if not given; all other options are as of emit.
    """
    from gemmgen.cli.engines import pick

    problems = path_problems(output, "C.npy") + strict_problems(strict, backend)
    if request.target is not None:
        problems.append(f"--target {request.target} means nothing here, where the device decides: leave it out")
    if request.grouped is not None:
        problems.append(f"--grouped {request.grouped} means nothing here, where products have one size: leave it out")
    request = replace(request, batched=request.batched or batch is not None)
    count = number("batch", batch or "2", problems, may_be_zero=False) if request.batched else None
    plan = attempt(problems, _plan, request, kernel or [], iterations, seed, validate, a, b, output, count)
    engine = attempt(problems, pick, backend, platform, device, type_, strict)
    if plan is not None and engine is not None:
        plan = attempt(problems, _chosen, plan, engine) if request.is_open and not kernel else plan
        problems += [] if plan is None else _refusals(plan, engine)
    if problems or plan is None or engine is None:
        raise UserError(problems)
    plan = replace(plan, tell=_silent) if as_json else plan
    plan.tell(f"{engine.label}\n")
    outcomes = [_job(plan, spec, schedule, engine, output) for spec, schedule in plan.jobs]
    if as_json:
        records = [outcome.record() for outcome in outcomes]
        say(document("kernels", records, backend=engine.backend, device=engine.label))
    if not all(outcome.passed for outcome in outcomes):
        raise typer.Exit(1)


def _silent(text: str) -> None:
    """Discard a line."""


# --- before anything runs -------------------------------------------------------------------------


def _plan(
    request: Request,
    kernels: list[str],
    iterations: str,
    seed: str,
    validate: bool,
    a: Path | None,
    b: Path | None,
    output: Path | None,
    count: int | None,
) -> Plan:
    """Raises: UserError with every problem."""
    from gemmgen.cli.matrices import asked, load_or_random, stored_type

    problems: list[str] = []
    if request.dtype is None:
        said = {"a": request.a_dtype, "b": request.b_dtype}
        request = replace(request, dtype=attempt(problems, stored_type, {"a": a, "b": b}, said))
    typed = not problems
    times = number("iterations", iterations, problems)
    start = number("seed", seed, problems)
    requests = list(_requests(request, kernels))
    jobs = [attempt(problems, r.resolve) for r in requests]
    if output is not None and len(requests) > 1:
        problems.append(f"-o {output} can hold the result of one kernel, not of {len(requests)}: name one by -k")
    if output is not None and times == 0:
        problems.append(f"-o {output}: nothing is computed with -i 0: give 1 or more")
    found = [job[:2] for job in jobs if job is not None]
    matrices, sizes = None, (request.m, request.n, request.k)
    if not found:
        asked(sizes, problems)  # for their problems
    elif times != 0:
        specs = [spec for spec, _ in found]
        matrices = attempt(problems, load_or_random, specs, sizes, a, b, start, validate, count, typed)
    if problems:
        raise UserError(dict.fromkeys(problems))
    return Plan(tuple(found), "all" in kernels, request.ld_multiple is not None, times, validate, matrices)


def _chosen(plan: Plan, engine: Engine) -> Plan:
    """The plan with the schedule chosen for the device and the sizes. Raises: ScheduleError."""
    matrices = plan.matrices
    sizes, products = (None, 1) if matrices is None else (matrices.sizes, matrices.count)
    return replace(plan, jobs=tuple((spec, _taken(engine, spec, sizes, products)) for spec, _ in plan.jobs))


def _taken(engine: Engine, spec: GemmSpec, sizes: tuple[int, int, int] | None, products: int) -> Schedule:
    """What records have for a product, or else what the cost model chooses. Raises: ScheduleError."""
    from gemmgen import tuning
    from gemmgen.choose import choose

    target = engine.device.target
    if tuning.has_records(engine.backend):
        from gemmgen.tuning.recorded import ask

        found = ask(engine.backend, engine.device, target, spec, sizes, products)
        if found is not None:
            return found.schedule
    return choose(spec, sizes, target, products)


def _requests(request: Request, kernels: list[str]) -> Iterator[Request]:
    """One request a kernel; sizes stay run-time arguments."""
    from gemmgen.presets import names

    request = replace(request, target=None, m=None, n=None, k=None)
    chosen = [request.preset] if request.preset is not None else []
    chosen += [name for kernel in kernels for name in (names() if kernel == "all" else (kernel,))]
    if not chosen:
        yield request
    for name in dict.fromkeys(chosen):
        yield replace(request, preset=name)


# --- on the device --------------------------------------------------------------------------------


def _refusals(plan: Plan, engine: Engine) -> list[str]:
    """Why the device can't run the kernels that were named; checked before anything runs."""
    from gemmgen.driver import refusals_of
    from gemmgen.kernel_names import kernel_name

    return [
        f"{kernel_name(schedule, spec)}: {problem}"
        for spec, schedule in (() if plan.tolerant else plan.jobs)
        for problem in refusals_of(spec, schedule, engine.backend, engine.device.target)
    ]


def _job(plan: Plan, spec: GemmSpec, schedule: Schedule, engine: Engine, output: Path | None) -> Outcome:
    """Build and run one kernel.

    Raises: UserError if the device can't run it and it was named.
    """
    from gemmgen.kernel_names import kernel_name

    # As emit calls it, and explain.
    name = kernel_name(schedule, spec)
    plan.tell(f"\n{name}\n")
    try:
        once = engine.compile(spec, schedule, plan.exact)
    except UserError as error:
        if not plan.tolerant:
            raise
        plan.tell(f"  skipped: {error.problems[0]}\n")
        return Outcome(name, skipped=error.problems[0])
    types = spec.dtype.name, spec.result.name
    if plan.matrices is None:
        plan.tell("  built\n")
        return Outcome(name, None, 1, *types)
    data = plan.matrices.ordered(spec)
    stored = data.stored(spec)
    result, nanoseconds = _iterate(plan, spec.dtype.flops, data, lambda _, c: once(stored, c))
    check = _checked(plan, spec, schedule, data, result)
    if output is not None and (check is None or check.passed):
        from gemmgen.cli.matrices import save

        write(output, lambda file: save(file, result))
        plan.tell(f"  C written to {output}\n")
    milliseconds = tuple(measured / 1e6 for measured in nanoseconds)
    gflops = _flops(data, spec.dtype.flops) / min(nanoseconds)
    return Outcome(name, data.sizes, data.count, *types, milliseconds, gflops, check)


def _checked(plan: Plan, spec: GemmSpec, schedule: Schedule, data: Matrices, result: Matrix) -> Check | None:
    """The comparison of a result with float64, if requested."""
    if not plan.validate:
        return None
    from gemmgen.cli.matrices import Check
    from gemmgen.ir.instructions import cut_sums, product_error

    atom = schedule.atom, spec.dtype
    check = Check.of(data, spec, result, product_error(*atom), cut_sums(*atom))
    plan.tell(f"  {check}\n")
    return check


def _flops(data: Matrices, of_fma: int) -> int:
    m, n, k = data.sizes
    return of_fma * m * n * data.halves * k * data.count


def _iterate(plan: Plan, flops_of_fma: int, data: Matrices, once: Once) -> tuple[Matrix, list[int]]:
    """Run it and print its times. Returns C and the nanoseconds of each iteration."""
    m, n, k = data.sizes
    flops, times = _flops(data, flops_of_fma), []
    result, of_batch = data.a, f", {data.count} of them" if data.a.ndim == 3 else ""
    for i in range(plan.iterations):
        # C is updated in place, so each iteration starts from a copy.
        c = None if data.c is None else data.c.copy(order="K")
        result, measured = once(data, c)
        times.append(max(1, measured))
        plan.tell(f"  {i + 1:3}   {_speed(times[-1], flops)}\n")
    plan.tell(f"  best  {_speed(min(times), flops)}   {m} x {n} x {k}{of_batch}\n")
    return result, times


def _speed(nanoseconds: int, flops: int) -> str:
    return f"{nanoseconds / 1e6:10.3f} ms {flops / nanoseconds:10.2f} GFLOP/s"
