"""A whole run of `gemmgen bench`: for each size the kernels, the libraries, and the turns they take.

Contenders take turns in shuffled blocks, whose first half warms up; what counts are medians over rounds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from gemmgen import candidates as named
from gemmgen.bench.records import ROUNDS, Accuracy, Row, Size, Timing
from gemmgen.errors import SpecError, UserError
from gemmgen.ir.dtypes import F32, MATRIX_DTYPES, DType
from gemmgen.ir.instructions import product_error
from gemmgen.kernel_names import kernel_name
from gemmgen.passes.validate import is_possible
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, LdMultiple

if TYPE_CHECKING:
    from gemmgen.bench.cuda import GpuProblem
    from gemmgen.ir.target import Target
    from gemmgen.runtime.device import Device

#: Kernels of `--best` that are measured in full after a first look at all.
FINALISTS = 3

Job = tuple[GemmSpec, Schedule]


class Contender(Protocol):
    """A kernel or a library on one size, its result already checked; `variant` says which of a kernel's it is."""

    name: str
    variant: str
    accuracy: Accuracy

    def block(self) -> float:
        """Seconds of one product in the second half of a block."""

    def close(self) -> None:
        """Give memory and processes back."""


class Kernel(Contender, Protocol):
    """A kernel of gemmgen, and about how long one product takes."""

    estimate: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure.

    Attributes:
        jobs: the kernels; none where one is to be chosen for the device and each size, as `gemmgen.gemm` does.
        best: whether only the fastest of `jobs` counts for each size, and those that can't run are left out.
        dtype: of the elements; None for that of `jobs`, or float32 where one is chosen.
        exact: whether leading dimensions are assumed to be what the specs say; else matrices choose the variant.
        strict: whether kernels of CUDA whose registers spill are refused.
        warn: told about what is left out.
        tick: told about what is being done.
    """

    backend: str
    jobs: tuple[Job, ...]
    sizes: tuple[Size, ...]
    peers: tuple[str, ...]
    best: bool = False
    exact: bool = False
    strict: bool = False
    rounds: int = ROUNDS
    seed: int = 0
    device: Device | None = None
    dtype: str | None = None
    warn: Callable[[str], None] = lambda _: None
    tick: Callable[[str], None] = lambda _: None

    @property
    def spec(self) -> GemmSpec:
        """Of the first kernel, which has the others' types; of the one that is chosen where none is named."""
        return self.jobs[0][0] if self.jobs else GemmSpec(dtype=MATRIX_DTYPES[self.dtype or F32.name])


def run(plan: Plan) -> Iterator[Row]:
    """Row by row, size by size.

    Raises: UserError where a kernel that was asked for by name can't run; Stopped on Ctrl-C, after the rows of the
        rounds that were finished by then.
    """
    for size in plan.sizes:
        with ExitStack() as stack:
            yield from _run_size(plan, size, stack)


def _run_size(plan: Plan, size: Size, stack: ExitStack) -> Iterator[Row]:
    plan.tick(f"{size}: reference")
    maker = Makers(plan, size)
    kernels: list[Kernel] = []
    for spec, schedule in plan.jobs or _chosen(plan, size):
        name = kernel_name(schedule, spec)
        plan.tick(f"{size}: {name}")
        with _tolerated(plan, size, name):
            kernel = maker.kernel(spec, schedule)
            stack.callback(kernel.close)
            kernels.append(kernel)
        if plan.best:
            kernels = _finalists(kernels)
    if not kernels:
        plan.warn(f"{size}: no kernel can run")
        return
    peers = []
    for name in plan.peers:
        plan.tick(f"{size}: {name}")
        peer = maker.peer(name)
        stack.callback(peer.close)
        peers.append(peer)
    plan.tick(f"{size}: rounds")
    tick = lambda: plan.tick(f"{size}: rounds")  # noqa: E731
    stopped = None
    try:
        timings = measure([*kernels, *peers], plan.rounds, plan.seed, tick)
    except Stopped as interrupt:
        timings, stopped = interrupt.timings, interrupt
    own, others = timings[: len(kernels)], timings[len(kernels) :]
    if plan.best and own:
        own = [min(own, key=lambda timing: timing.seconds)]
    for timing in own:
        yield from [Row(size, timing, other) for other in others] or [Row(size, timing)]
    if stopped is not None:
        raise stopped


def _chosen(plan: Plan, size: Size) -> tuple[Job, ...]:
    """Where no kernel is named, the one that `gemmgen.gemm` takes for the device and the size. Raises: UserError."""
    from gemmgen.choose import choose

    assert plan.device is not None
    return ((plan.spec, choose(plan.spec, (size.m, size.n, size.k), plan.device.target, size.batch or 1)),)


def _finalists(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The fastest by the first look; the others are closed."""
    ranked = sorted(kernels, key=lambda kernel: kernel.estimate)
    for kernel in ranked[FINALISTS:]:
        kernel.close()
    return ranked[:FINALISTS]


@contextmanager
def _tolerated(plan: Plan, size: Size, name: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        if not plan.best:
            raise type(error)(f"{name} at {size}: {problem}" for problem in error.problems) from error
        plan.warn(f"{size}: {name} is left out: {error.problems[0]}")


class Makers:
    """Makes contenders of one size; a GPU's are given the same matrices."""

    def __init__(self, plan: Plan, size: Size) -> None:
        self._plan, self._size = plan, size
        self._problem: GpuProblem | None = None

    def kernel(self, spec: GemmSpec, schedule: Schedule) -> Kernel:
        """A kernel of gemmgen. Raises: UserError."""
        if self._plan.backend == "cuda":
            from gemmgen.bench.cuda import ours

            return ours(self._gpu(), spec, schedule, self._plan.exact, self._plan.strict)
        from gemmgen.bench.opencl import OpenclKernel

        assert self._plan.device is not None
        return OpenclKernel(self._size, spec, schedule, self._plan.device, self._plan.seed)

    def peer(self, name: str) -> Contender:
        """A library. Raises: UserError."""
        if name in ("cublas", "cublas_tf32"):
            from gemmgen.bench.cuda import cublas

            return cublas(self._gpu(), tf32=name == "cublas_tf32")
        from gemmgen.bench.libraries import PeerProcess

        device = self._opencl_number() if name == "clblast" else None
        return PeerProcess(name, self._size, self._plan.spec.dtype.name, self._plan.seed, device)

    def _opencl_number(self) -> int:
        """The plan's device as OpenCL counts them; of a GPU of CUDA, OpenCL's device of that name."""
        from gemmgen.runtime.opencl_devices import pick

        device = self._plan.device
        if self._plan.backend == "opencl" and device is not None:
            return device.number
        return pick(device=device.name if device is not None else None).number

    def _gpu(self) -> GpuProblem:
        if self._problem is None:
            from gemmgen.bench.cuda import GpuProblem
            from gemmgen.runtime.cuda_devices import pick

            device = pick(self._plan.device if self._plan.backend == "cuda" else None)
            spec = self._plan.spec
            self._problem = GpuProblem(self._size, spec.dtype.name, self._plan.seed, device, spec.result.name)
        return self._problem


# --- which presets --------------------------------------------------------------------------------


def candidates(dtype: DType, target: Target, ld_multiple: LdMultiple | None = None) -> tuple[str, ...]:
    """Presets that multiply a type on a target as precisely as its elements are: by matrix instructions where there are
    some for the type, else by multiply-adds. What differs from run to run (`atomic`), and what rounds elements before
    it multiplies them (TF32), is measured where it is asked for by name.

    Args:
        ld_multiple: what leading dimensions are assumed to be multiples of; None for what each preset asks for.
    """
    found = {name: named.load(name).schedule.atom for name in named.names() if _fits(name, dtype, target, ld_multiple)}
    by_matrices = tuple(name for name, atom in found.items() if atom != "fma")
    return by_matrices or tuple(found)


def _fits(name: str, dtype: DType, target: Target, ld_multiple: LdMultiple | None) -> bool:
    preset = named.load(name)
    if preset.schedule.atomic or product_error(preset.schedule.atom, dtype):
        return False
    try:
        spec = replace(preset.spec, dtype=dtype, ld_multiple=ld_multiple or preset.spec.ld_multiple)
    except SpecError:
        return False
    return is_possible(spec, preset.schedule, target)


# --- turns ----------------------------------------------------------------------------------------


class Stopped(KeyboardInterrupt):
    """Ctrl-C while contenders took turns; `timings` are of the rounds that all of them had finished, empty if none."""

    def __init__(self, timings: list[Timing]) -> None:
        super().__init__()
        self.timings = timings


def measure(
    contenders: Sequence[Contender],
    rounds: int,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> list[Timing]:
    """Each contender's timing, in the order given.

    Args:
        rounds: blocks of each contender.
        tick: called after each round.

    Raises: Stopped on Ctrl-C, with the rounds so far.
    """
    shuffle = random.Random(seed)
    finished: list[list[float]] = []

    def timings() -> list[Timing]:
        if not finished:
            return []
        return [
            Timing(contender.name, tuple(rounds), contender.accuracy, contender.variant)
            for contender, rounds in zip(contenders, zip(*finished, strict=True), strict=True)
        ]

    try:
        for _ in range(rounds):
            order = list(range(len(contenders)))
            shuffle.shuffle(order)
            turn = {index: contenders[index].block() for index in order}
            finished.append([turn[index] for index in range(len(contenders))])
            tick()
    except KeyboardInterrupt:
        raise Stopped(timings()) from None
    return timings()
