"""What must hold of a case, in the interpreter and on a device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from gemmgen import driver
from gemmgen.errors import GemmgenError
from gemmgen.fuzz.case import Case
from gemmgen.fuzz.data import Matrix, Numbers, Stored, same_bits
from gemmgen.ir.buffer import Space
from gemmgen.ir.kernel import Kernel, Program
from gemmgen.ir.numeric import numpy_dtype, poison
from gemmgen.ir.sizes import EXTENTS, GROUPS
from gemmgen.ir.target import TARGETS, Target
from gemmgen.ir.walk import evaluate
from gemmgen.records import dataclass
from gemmgen.runtime.arrays import letter
from gemmgen.simulator.execute import run_program

#: Computes C in place from A, B, C and what an epilogue takes, by their names.
Way = Callable[[Mapping[str, Stored]], None]
#: One after the other on one kernel, and at once.
RUNS, THREADS = 2, 2
#: Groups that blocks are dealt out to in the interpreter: few, so that each has several.
AT_ONCE = 3


class WrongResult(GemmgenError):
    """A property does not hold."""


@dataclass(frozen=True, slots=True)
class Place:
    """What cases are emitted for, and where they run besides the interpreter.

    Attributes:
        name: of the target, in a case.
        label: of the device, for messages; of a target alone its name.
        ways: a kernel for a case, called in every way that the device has; None where the interpreter alone runs it.
    """

    backend: str
    name: str
    target: Target
    label: str
    ways: Callable[[Case], Mapping[str, Way]] | None = None

    @staticmethod
    def named(backend: str, name: str) -> Place:
        """A target of the table; its cases run in the interpreter alone."""
        return Place(backend, name, TARGETS[name], name)


def check(case: Case, place: Place) -> None:
    """Raises: WrongResult, or whatever went wrong; anything that is raised is a bug of gemmgen."""
    request = case.spec, case.schedule, case.backend, place.target
    source, program = driver.emit_program(*request)
    _require(None if driver.emit(*request).text == source.text else "the same request gives two texts", "when printed")
    numbers = Numbers.of(case)
    ours = interpreted(program, numbers)
    _require(numbers.problem(ours), "in the interpreter")
    if place.ways is not None:
        _on_device(numbers, ours, place.ways(case))


def interpreted(program: Program, numbers: Numbers) -> Matrix:
    """C by the interpreter, which sees for itself what lies out of bounds. Raises: KernelFault, WrongResult."""
    case, stored = numbers.case, numbers.all_stored()
    known: dict[str, complex | Matrix] = {**case.arguments(), GROUPS.name: AT_ONCE}
    images = {p.name for kernel in program.kernels for p in kernel.matrices if p.space is Space.IMAGE}
    for name, matrix in stored.items():
        short = letter(name)
        known |= {name: matrix.inner, f"ld{short}": matrix.ld, f"stride_{short}": matrix.stride}
        known[f"{name}_list"] = matrix.addresses
        if name in images:
            lines = matrix.view[0] if case.order(name) == "row" else matrix.view[0].T
            known |= {name: np.ascontiguousarray(lines), f"ld{name}": lines.shape[1]}
    for workspace in program.workspaces:
        own = numpy_dtype(workspace.dtype)
        known[workspace.name] = np.full(evaluate(workspace.elements, _sizes(case)), poison(own), own)
    run_program(replace(program, kernels=tuple(_launched(program, case))), known)  # type: ignore[arg-type]
    _untouched(numbers, stored, "in the interpreter")
    return stored["c"].values


def _sizes(case: Case) -> dict[str, int]:
    """What launches depend on."""
    sizes = {name: value for name, value in case.arguments().items() if isinstance(value, int)}
    return {**sizes, GROUPS.name: AT_ONCE}


def _launched(program: Program, case: Case) -> list[Kernel]:
    """The kernels with something to do, as launchers have it (`Source.launches`)."""
    sizes = _sizes(case)

    def groups(kernel: Kernel) -> list[int]:
        layers = [] if kernel.grid_z is None else [sizes[kernel.grid_z.name]]
        return [*layers, *(evaluate(extent, sizes) for extent in kernel.grid)]

    if 0 in (sizes.get(extent) for extent in EXTENTS):
        return []
    return [kernel for kernel in program.kernels if 0 not in groups(kernel)]


def _on_device(numbers: Numbers, ours: Matrix, ways: Mapping[str, Way]) -> None:
    """Every way to call the kernel, again and again, and from two threads at once."""
    results = [(how, _once(numbers, way, how)) for how, way in ways.items() for _ in range(RUNS)]
    how, way = next(iter(ways.items()))
    together = threading.Barrier(THREADS)

    def at_once(_: int) -> Matrix:
        together.wait()
        return _once(numbers, way, f"{how}, two threads at once")

    with ThreadPoolExecutor(THREADS) as pool:
        results += [(f"{how}, two threads at once", result) for result in pool.map(at_once, range(THREADS))]
    schedule, first = numbers.case.schedule, results[0][1]
    if schedule.atomic:  # parts are added in no fixed order
        return
    for how, result in results[1:]:
        _require(None if same_bits(result, first) else "other bits than the first time", how)
    # Matrix instructions sum in an order of their own, and an epilogue's functions are each device's own.
    if numbers.case.data == "short" and schedule.atom == "fma" and not numbers.case.spec.epilogue:
        off = int((ours != first).sum())
        _require(f"{off} elements are not the interpreter's" if off else None, "on the device")


def _once(numbers: Numbers, way: Way, how: str) -> Matrix:
    stored = numbers.all_stored()
    way(stored)
    _untouched(numbers, stored, how)
    result = stored["c"].values
    _require(numbers.problem(result, of_device=True), how)
    return result


def _untouched(numbers: Numbers, stored: Mapping[str, Stored], where: str) -> None:
    """All but C is as it was, and so is what lies around all of them."""
    for name, matrix in stored.items():
        _require(None if matrix.intact else f"memory around or between {name}'s lines was written to", where)
        kept = name == "c" or same_bits(matrix.values, numbers.before(name))
        _require(None if kept else f"{name} was written to", where)


def _require(problem: str | None, where: str) -> None:
    if problem is not None:
        raise WrongResult(f"{where}: {problem}")
