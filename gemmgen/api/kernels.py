"""The process's cache of compiled kernels, by spec, sizes and device."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from gemmgen.api import aside, on_disk
from gemmgen.api.compile import emitted, variant_specs, wider
from gemmgen.errors import DeviceError, ScheduleError
from gemmgen.ir.dtypes import F16
from gemmgen.ir.target import BLOCK_FEATURES, Measured, Target, calibrate, measured_on
from gemmgen.records import dataclass
from gemmgen.runtime.cache import Kept, once
from gemmgen.runtime.cuda_arrays import UNALIGNED_PRESET
from gemmgen.runtime.selection import FORMS, Chosen, chosen, loaded
from gemmgen.source import Source
from gemmgen.spec import GemmSpec, LdMultiple

if TYPE_CHECKING:
    from gemmgen.runtime.calls import Factors, PreparedCall
    from gemmgen.schedule import Schedule

Shape = tuple[int, int, int]


class Kernel(Protocol):
    """The call of a compiled kernel of any backend."""

    source: Source

    def __call__(
        self, a: object, b: object, c: object, *, alpha: complex, beta: complex, **operands: object
    ) -> object: ...
    def prepared(self, arrays: Mapping[str, object], factors: Factors) -> PreparedCall | None: ...


@dataclass(frozen=True, slots=True)
class Question:
    """A spec with known assumptions, the schedule if it is named (as `on_disk.written` has it), sizes, the number of
    products, a target, and what was measured on it. All answers are kept on disk. With them a start imports neither
    passes nor printers, nor schedules.
    """

    spec: GemmSpec
    named: str | None
    shape: Shape
    products: int
    target: Target
    backend: str
    measured: tuple[tuple[str, float], ...] = ()

    def choice(self) -> tuple[Schedule, GemmSpec]:
        """The schedule, and the spec with the assumptions that it needs."""
        about = self.spec, self.named, self.shape, self.products, self.target, self.measured
        return on_disk.remembered("choice", about, self._choice)

    def _choice(self) -> tuple[Schedule, GemmSpec]:
        named = None if self.named is None else cast("Schedule", on_disk.read(self.named))
        return choice(self.spec, named, self.shape, self.products, self.target)

    def source(self, spec: GemmSpec) -> Source:
        """The source of a spec with that schedule."""
        return on_disk.remembered("twin", (self, spec), lambda: self._emitted(self.choice()[0], spec))

    def answer(self) -> Answer:
        """What computes the product."""
        return Answer(*on_disk.remembered("product", (self,), self._answer), self)

    def _answer(self) -> tuple[Source, tuple[GemmSpec, ...]]:
        schedule, spec = self.choice()
        variants = variant_specs(spec, schedule, self.target) if self.backend == "cuda" else ()
        return self._emitted(schedule, spec), variants

    def _emitted(self, schedule: Schedule, spec: GemmSpec) -> Source:
        return emitted(spec, schedule, None, self.backend, self.target, FORMS.get(self.backend))


@dataclass(frozen=True, slots=True)
class Answer:
    """What computes a product.

    Attributes:
        source: the source, whose spec has the assumptions that its schedule needs.
        variants: the specs of its variants with more assumptions (CUDA).
        question: from which the schedule follows.
    """

    source: Source
    variants: tuple[GemmSpec, ...]
    question: Question


#: (backend, device argument, required features) -> the device.
_places: Kept[tuple[str, Hashable, frozenset[str]], Chosen] = Kept(64)
#: (backend, device argument, spec, sizes with the number of products, schedule if it is named) -> the answer.
_answers: Kept[tuple[str, Hashable, GemmSpec, tuple[int, ...], Schedule | None], Answer] = Kept(4096)
#: The compiled kernels; fewer, since they hold code.
_kernels: Kept[tuple[str, Hashable, Source, tuple[GemmSpec, ...]], Kernel] = Kept(256)

#: (backend, device argument, spec, whether it takes matrices at any address) -> the kernel without workspaces that was
#: chosen for the largest product, with that product's multiply-adds. It serves all sizes.
_any: dict[tuple[str, Hashable, GemmSpec, bool], tuple[int, Kernel]] = {}
#: What was asked for by products without a named schedule, where somebody wants to know (`gemmgen tune --trace`):
#: backend, spec, sizes, number of products.
asked: list[tuple[str, GemmSpec, Shape, int]] | None = None
#: Multiply-adds that another kernel may compute meanwhile: so many times its own, or as many as take it 50 ms at most.
BEYOND_ITS_OWN, FEW, FEW_ON_GPUS = 8, 2**24, 2**34


class Wanted(NamedTuple):
    """A kernel of a spec and a schedule for a device, and what for. If no schedule is named, `gemmgen.choose` chooses.

    Attributes:
        products: the number of products of a batch.
        ld_multiple: leading dimensions are known to be multiples of this, or those of A, B and C. Only schedules that
            need this assumption get it, since other kernels check each call.
        any_address: whether the schedule must take matrices that begin at any address, if none is named.
    """

    backend: str
    device: object
    spec: GemmSpec
    schedule: Schedule | str | None
    shape: Shape
    products: int = 1
    ld_multiple: LdMultiple = 1
    any_address: bool = False


def kernel_for(wanted: Wanted) -> Kernel:
    """The kernel, compiled now if it is not there. Raises: ScheduleError, DeviceError with every problem."""
    backend, device, spec, schedule, shape, products, ld_multiple, any_address = wanted
    device, is_chosen = _named(device), schedule is None
    name = UNALIGNED_PRESET if is_chosen and any_address else schedule
    named = None if name is None else named_schedule(name)
    if asked is not None and is_chosen and spec.grouped is None:
        asked.append((backend, spec, shape, products))
    kept = replace(spec, ld_multiple=ld_multiple)
    found = _answers.get(
        (backend, device, kept, (*shape, products), named),
        lambda: _question(backend, _place(backend, device, spec), kept, named, shape, products).answer(),
    )
    key = backend, device, found.source, found.variants
    kernel = _kernels.get(key, lambda: _made(_place(backend, device, spec), found))
    if is_chosen and not found.source.workspaces:
        # An assumption that the schedule does not need is not in the source's spec.
        for each in {kept, replace(kept, ld_multiple=found.source.spec.ld_multiple)}:
            _note((backend, device, each), kernel, products * prod(shape), any_address)
    return kernel


def _note(about: tuple[str, Hashable, GemmSpec], kernel: Kernel, work: int, any_address: bool) -> None:
    """Note a kernel for calls that can't wait for their own."""
    takes_any = any_address or _takes_any_alignment(kernel.source)
    if takes_any and work > _any.get((*about, True), (0, None))[0]:
        _any[*about, True] = work, kernel
    known, _ = _any.get((*about, False), (0, None))
    # A kernel for any address is slow beside one that is chosen for aligned matrices.
    if not known or (work > known and not any_address):
        _any[*about, False] = work, kernel


def _takes_any_alignment(source: Source) -> bool:
    """Whether matrices may begin at any address, and lines be any number of elements apart."""
    return source.spec.ld_multiple == 1 and source.alignment <= min(source.spec.element(x).size for x in "ab")


def kernel_now(wanted: Wanted, must_wait: bool = False) -> tuple[Kernel, Hashable | None]:
    """As `kernel_for`, but without waiting, if no schedule is named: if the kernel is not there, another one of the
    same types and orders, while its own is compiled aside.

    Args:
        must_wait: whether the kernel must be the one that is chosen.

    Returns: the kernel; and, if it is another one, the key by which its own is compiled aside.
    """
    backend, device, spec, schedule, shape, products, ld_multiple, any_address = wanted
    if schedule is not None or must_wait or not aside.is_on():
        return kernel_for(wanted), None
    device, kept = _named(device), replace(spec, ld_multiple=ld_multiple)
    other = _other((backend, device), (kept, replace(spec, ld_multiple=1)), products * prod(shape), any_address)
    if other is None:
        kernel = kernel_for(wanted)
        if not (any_address or _takes_any_alignment(kernel.source)):
            # Matrices of another alignment may come next.
            free = wanted._replace(ld_multiple=1, any_address=True)
            aside.make((backend, device, spec, "any alignment"), lambda: kernel_for(free))
        return kernel, None
    key = backend, device, kept, (*shape, products), named_schedule(UNALIGNED_PRESET) if any_address else None
    found = _answers.known(key)
    known = None if found is None else _kernels.known((backend, device, found.source, found.variants))
    if known is not None:
        return known, None
    aside.make(key, lambda: kernel_for(wanted))
    return other, key


def _other(
    place: tuple[str, Hashable], specs: tuple[GemmSpec, GemmSpec], work: int, any_address: bool
) -> Kernel | None:
    """A kernel that is there and takes such a product in not much longer than its own; None if there is none.

    Args:
        specs: that of the call, and without its assumption of leading dimensions.
    """
    for spec in specs:
        own, kernel = _any.get((*place, spec, any_address), (0, None))
        if kernel is not None and work <= max(BEYOND_ITS_OWN * own, FEW_ON_GPUS if place[0] == "cuda" else FEW):
            return kernel
    return None


def target_for(backend: str, device: object, spec: GemmSpec) -> Target:
    """The target of the device for such a kernel. Raises: DeviceError."""
    return _place(backend, _named(device), spec).target


def is_faster_in_two(wanted: Wanted) -> bool:
    """Whether a gated product is computed as two, as `gemmgen.choose` says. Raises: DeviceError."""
    backend, device, spec, _, shape, products, ld_multiple, any_address = wanted
    target, kept = target_for(backend, device, spec), replace(spec, ld_multiple=1 if any_address else ld_multiple)

    def ask() -> bool:
        from gemmgen.choose import is_faster_in_two as asked

        return asked(kept, shape, target, products)

    return on_disk.remembered("in two", (kept, shape, target, products, measured_on(target)), ask)


def choice(
    kept: GemmSpec, named: Schedule | None, shape: Shape, products: int, target: Target
) -> tuple[Schedule, GemmSpec]:
    """The schedule, named or chosen, and the spec. The spec keeps `ld_multiple` only if the schedule needs it: for TMA,
    or for asynchronous copies of elements smaller than a word.
    """
    # Imported late: a cached answer does not need it.
    from gemmgen.choose import choose
    from gemmgen.passes.validate import is_possible

    schedule = choose(kept, shape, target, products) if named is None else named
    kept = replace(kept, allow_tf32=False)  # The schedule says what is rounded.
    free = replace(kept, ld_multiple=1)
    return schedule, free if is_possible(free, schedule, target) else kept


def in_one_order(
    backend: str, device: object, spec: GemmSpec, schedule: Schedule | str | None, shape: Shape, ld_multiple: LdMultiple
) -> Schedule:
    """The schedule of a product whose rows have the same bits whatever their number. Raises: ScheduleError."""
    from gemmgen.sum_order import with_fixed_order

    target = target_for(backend, device, spec)
    kept = replace(spec, ld_multiple=ld_multiple)

    def choose_it() -> Schedule:
        from gemmgen.choose import choose

        return choose(kept, shape, target, 1, invariant=True)

    if schedule is None:
        return on_disk.remembered("invariant", (kept, shape, target), choose_it)
    return with_fixed_order(named_schedule(schedule))


def _question(
    backend: str, place: Chosen, kept: GemmSpec, named: Schedule | None, shape: Shape, products: int
) -> Question:
    """With the schedule that is named, or that records have. They have what was measured on the device as well."""
    written = on_disk.written(named) if named else _recorded(backend, place, kept, shape, products)
    return Question(kept, written, shape, products, place.target, backend, measured_on(place.target))


def _recorded(backend: str, place: Chosen, spec: GemmSpec, shape: Shape, products: int) -> str | None:
    """The schedule that was measured on the device for such a product, as text, if records have one. What they say is
    kept on disk while their files are the same: records and cost models take longer to import than a kernel to load.
    """
    from gemmgen import tuning

    if spec.grouped is not None or not tuning.has_records(backend):
        return None
    target = place.target

    def ask_them() -> tuple[str | None, Measured]:
        from gemmgen.tuning.recorded import ask

        found = ask(backend, place.device, target, spec, shape, products)
        return None if found is None else on_disk.written(found.schedule), measured_on(target)

    about = backend, _told_apart(place.device), target, spec, shape, products, tuning.stamps()
    schedule, measured = on_disk.remembered("recorded", about, ask_them)
    if measured != measured_on(target):
        calibrate(target, dict(measured))
    return schedule


def _told_apart(device: object) -> tuple[str, ...]:
    """What records tell devices apart by, beside the target."""
    handle = getattr(device, "device", device)  # of OpenCL a queue's
    return tuple(str(getattr(handle, name, "")) for name in ("name", "driver_version", "driver"))


def _named(device: object) -> Hashable:
    """A device argument as a key. Raises: DeviceError."""
    if not isinstance(device, Hashable):
        raise DeviceError(
            f"device is of type {type(device).__name__}: pass a number or part of a name (gemmgen devices)"
        )
    return device


def named_schedule(schedule: object) -> Schedule:
    """A schedule that is named. Raises: ScheduleError."""
    from gemmgen.schedule import Schedule

    if isinstance(schedule, str):
        from gemmgen import presets

        return presets.load(schedule).schedule
    if not isinstance(schedule, Schedule):
        raise ScheduleError(f"schedule is of type {type(schedule).__name__}: pass a Schedule or the name of a preset")
    return schedule


def _made(place: Chosen, answer: Answer) -> Kernel:
    """The kernel of an answer, with its 64-bit variant, as `compile` makes it."""
    source, question = answer.source, answer.question
    variants = []
    if question.backend == "cuda":
        from gemmgen.runtime.variants import Variants

        variants = [Variants(source, answer.variants, question.source)]
    kernel = loaded(question.backend, source, place.device, *variants)
    kernel.wider = once(lambda: wider(source.spec, question.choice()[0], question.backend, place.device, None))
    return cast(Kernel, kernel)


def _place(backend: str, device: Hashable, spec: GemmSpec) -> Chosen:
    own = None if spec.emulate and spec.dtype == F16 else spec.dtype.needs
    needs = BLOCK_FEATURES | ({own} if own else set())
    return _places.get((backend, device, needs), lambda: chosen(backend, device, needs))
