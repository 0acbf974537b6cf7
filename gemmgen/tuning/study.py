"""The search for one product: a study of Optuna's, whose trials are schedules.

Candidates come in the order of the prior, then from a sampler that has seen them. What figures rule out is never
compiled. What is slower than the best so far is given up while it runs. At the end the best few and the untuned choice
take turns, and that comparison decides.
"""

from __future__ import annotations

import math
import random
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gemmgen.errors import DeviceError, ScheduleError, UserError
from gemmgen.ir.target import Target
from gemmgen.kernel_names import kernel_name
from gemmgen.records import dataclass
from gemmgen.runtime.cache import digest, own_folder
from gemmgen.schedule import Schedule, Value, text_of
from gemmgen.schedule.cpu_panel import CpuPanel
from gemmgen.spec import GemmSpec
from gemmgen.tuning import order
from gemmgen.tuning.device import DeviceKey
from gemmgen.tuning.job import Job, Outcome, assuming_no_gaps
from gemmgen.tuning.records import Line, Measurement, Store, kind_of, schedule_text, spec_text
from gemmgen.tuning.runners import Runner
from gemmgen.tuning.space import Point, Shape, Space, is_precise, spaces

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

Strategy = Literal["prior", "tpe", "random"]
STRATEGIES: tuple[Strategy, ...] = ("prior", "tpe", "random")
INSTALL = 'pip install "gemmgen[tune]"'
#: Schedules that take turns at the end, beside the untuned choice, and the part of the time that it may take.
FINALISTS, TURNS = 4, 0.2
#: Proposals of the sampler that no device can run, after which the prior's next candidate is taken.
MOST_REFUSED = 24
#: The same of neighbours that are drawn; those that can run, of which the cheapest by the model is measured.
MOST_DRAWN, DRAWN = 200, 3
#: Candidates of the prior that are measured before the sampler proposes any, and later one for so many of its own; the
#: same where neighbours are drawn.
FIRST, BETWEEN = 8, 1
FIRST_DRAWING, BETWEEN_DRAWING = 16, 3
#: Seconds after which measurements are written down, and schedules whose neighbours are tried.
SAVED_EVERY, PARENTS = 1.0, 4
#: Times as fast as the untuned choice that a schedule has to be in the comparison to take its place.
GAIN = 1.03
#: Times the best so far that a schedule may take before it is given up.
CUTOFF = 1.1


@dataclass(frozen=True, slots=True)
class Product:
    """What is tuned: spec, sizes, products of a batch, and its weight among others."""

    spec: GemmSpec
    shape: Shape
    products: int = 1
    weight: float = 1.0

    def __str__(self) -> str:
        sizes = "x".join(map(str, self.shape)) + (f"x{self.products} products" if self.products > 1 else "")
        return f"{sizes} {kind_of(self.spec).label()}"

    @property
    def key(self) -> str:
        """What names its study."""
        return f"{'x'.join(map(str, self.shape))} {self.products} {spec_text(self.spec)}"


@dataclass(frozen=True, slots=True)
class Place:
    """A device that is tuned for.

    Attributes:
        number: among its backend's devices.
    """

    backend: str
    number: int | None
    target: Target
    key: DeviceKey


@dataclass(slots=True)
class Progress:
    """How far a search is.

    Attributes:
        trials: schedules that were measured, or given up while they ran.
        untuned, best: seconds of the untuned choice and of the best so far; 0 before there are any.
        wrong: schedules whose result was wrong, with what was wrong.
        problem: why the first schedule failed that did; empty where none has.
    """

    product: Product
    trials: int = 0
    failed: int = 0
    untuned: float = 0.0
    best: float = 0.0
    schedule: Schedule | None = None
    wrong: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def fault(self) -> str | None:
        """Why there is no time of the product, where every schedule has failed."""
        if self.best or not self.problem:
            return None
        tried = "1 schedule was" if self.failed == 1 else f"{self.failed} schedules were"
        return f"{self.product}: {tried} tried, and none has a time; the first: {self.problem}"


def require_optuna() -> None:
    """Raises: DeviceError with the command that installs it."""
    try:
        import optuna
    except ImportError:
        raise DeviceError(f"tuning needs Optuna: {INSTALL}") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def open_storage(url: str | None, store: Store, key: DeviceKey) -> optuna.storages.BaseStorage:
    """Where studies are kept: a database by its URL, or a journal beside the device's records. Raises: UserError."""
    require_optuna()
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    if url is not None:
        try:
            return optuna.storages.get_storage(url)
        except Exception as error:
            why = str(error).splitlines()[0]
            remedy = "give one such as sqlite:///studies.db"
            raise UserError(f"--storage {url!r} can't be opened ({why}): {remedy}") from error
    folder = store.folder / "studies"
    with own_folder(store.folder), own_folder(folder):
        path = str(folder / Path(key.file_name).with_suffix(".journal").name)
        return optuna.storages.JournalStorage(JournalFileBackend(path, lock_obj=JournalFileOpenLock(path)))


@dataclass(frozen=True, slots=True)
class Proposal:
    """A schedule to measure.

    Attributes:
        coordinates: of one that no sampler has proposed: its point as Optuna's parameters, if it lies in a space.
        trial: of the sampler's.
    """

    schedule: Schedule
    coordinates: dict[str, int | str]
    trial: optuna.Trial | None = None

    def finish(self, study: optuna.Study, outcome: Outcome, of: dict[str, Space]) -> None:
        """Tell the study. What no sampler has proposed becomes a trial now, by one line of its journal."""
        import optuna

        states = optuna.trial.TrialState
        is_whole = outcome.problem is None and not outcome.is_early
        state, told = (states.COMPLETE if is_whole else states.PRUNED), {"schedule": schedule_text(self.schedule)}
        seconds = None if outcome.problem is not None else outcome.seconds
        if self.trial is not None:
            for key, value in told.items():
                self.trial.set_user_attr(key, value)
            if seconds is not None:
                self.trial.report(seconds, 1)
            study.tell(self.trial, seconds if is_whole else None, state=state)
            return
        distributions = _distributions(self.coordinates, of)
        known = {key: value for key, value in self.coordinates.items() if key in distributions}
        steps = {} if seconds is None else {1: seconds}
        study.add_trial(
            optuna.trial.create_trial(
                state=state,
                value=seconds if is_whole else None,
                params=known,
                distributions=distributions,
                user_attrs=told,
                intermediate_values=steps,
            )
        )

    def fail(self, study: optuna.Study) -> None:
        """It was not measured."""
        import optuna

        if self.trial is not None:
            study.tell(self.trial, state=optuna.trial.TrialState.FAIL)


class Search:
    """A search for one product on one device.

    Args:
        store: where each measurement is kept; None where none is.
        storage: of the study; None keeps it in memory.
        only: the schedules that there are, where these are not all: those of a table.
        tell: told after each trial.
    """

    def __init__(
        self,
        runner: Runner,
        place: Place,
        product: Product,
        store: Store | None = None,
        storage: optuna.storages.BaseStorage | None = None,
        strategy: Strategy = "prior",
        seed: int = 0,
        only: Collection[Schedule] = (),
        tell: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._runner, self._place, self._product, self._store = runner, place, product, store
        self._strategy, self._tell, self.progress = strategy, tell, Progress(product)
        #: With the assumptions that matrices of these sizes without gaps meet: TMA needs them.
        self._spec = assuming_no_gaps(product.spec, product.shape)
        self._spaces = {space.mainloop.__name__: space for space in spaces(self._spec, place.target)}
        self._seed, self._only = seed, frozenset(only)
        if only:
            of_each = {each: [x for x in only if type(x.mainloop) is each] for each in {type(x.mainloop) for x in only}}
            found = (space for space in self._spaces.values() if space.mainloop in of_each)
            self._spaces = {space.mainloop.__name__: space.holding(of_each[space.mainloop]) for space in found}
        #: Whether the sampler's points are legal often enough.
        self._samples = CpuPanel.__name__ in self._spaces
        self._study = _study(storage, f"{digest(str(place.key)).hex()[:8]} {product.key}", strategy, seed)
        self._known = self._recorded()
        #: Everything that this search has measured, and what records have of the product.
        self.times: dict[Schedule, float] = dict(self._known)
        self._untuned: Schedule | None = None
        self._costs: list[float] = []
        self._unsaved: list[Measurement | Line] = []
        self._saved = time.monotonic()
        self._draw = random.Random(seed)

    def first(self, count: int) -> list[Job]:
        """What the search begins with, to compile it ahead."""
        product = self._product
        about = self._spec, product.shape, self._place.target, product.products
        return [self._job(each, None) for each in islice(order.ordered(*about, self._seed), count)]

    def run(self, seconds: float, trials: int | None = None, meanwhile: Callable[[], None] = lambda: None) -> Progress:
        """Search for so long, or for so many trials; then compare the best.

        Args:
            meanwhile: called once, when the first schedules are compiled.
        """
        end = time.monotonic() + seconds * (1 - TURNS)
        proposals, told = self._proposals(), False
        while (trials is None or self.progress.trials < trials) and time.monotonic() < end:
            left = self._runner.width if trials is None else min(self._runner.width, trials - self.progress.trials)
            # The first trial is the untuned choice, by itself: it says what is hopeless.
            batch = list(islice(proposals, left if self.times else 1))
            if not batch:
                break
            self._measure(batch, end)
            if len(batch) > 1 and not told:
                told = True
                meanwhile()
        if trials is None:
            self._compare(seconds * TURNS)
        return self.progress

    def _measure(self, batch: list[Proposal], end: float) -> None:
        best = min(self.times.values(), default=None)
        jobs = [self._job(each.schedule, None if best is None else CUTOFF * best) for each in batch]
        pending = dict(enumerate(batch))
        try:
            for index, outcome in self._runner.run(jobs):
                self._finish(pending.pop(index), jobs[index], outcome)
                if time.monotonic() > end:
                    break
        finally:
            self._save()
            # Of a search that is ended early: these were not measured.
            for proposal in pending.values():
                with suppress(Exception):
                    proposal.fail(self._study)

    def _finish(self, proposal: Proposal, job: Job, outcome: Outcome) -> None:
        progress = self.progress
        progress.trials += 1
        if outcome.problem is not None:
            progress.failed += 1
            progress.problem = progress.problem or f"{kernel_name(job.schedule, job.spec)}: {outcome.problem}"
            if outcome.problem.startswith("wrong result"):
                progress.wrong.append(f"{kernel_name(job.schedule, job.spec)}: {outcome.problem}")
        else:
            self.times[job.schedule] = outcome.seconds
            self._unsaved.append(outcome.measurement(job))
            if time.monotonic() - self._saved > SAVED_EVERY:
                self._save()
        proposal.finish(self._study, outcome, self._spaces)
        self._note()

    def _save(self) -> None:
        """Keep what was measured since the last time."""
        unsaved, self._unsaved, self._saved = self._unsaved, [], time.monotonic()
        if self._store is not None and unsaved:
            self._store.add(self._place.key, unsaved)

    def _note(self) -> None:
        """Tell how far it is."""
        progress = self.progress
        if self.times:
            progress.schedule = min(self.times, key=lambda each: self.times[each])
            progress.best = self.times[progress.schedule]
        if self._untuned is not None:
            progress.untuned = self.times.get(self._untuned, 0.0)
        self._tell(progress)

    def _compare(self, budget: float) -> None:
        """The best few and the untuned choice take turns; their times replace those of the first look."""
        ranked = sorted(self.times, key=lambda each: self.times[each])[:FINALISTS]
        untuned = [] if self._untuned is None or self._untuned not in self.times else [self._untuned]
        final = list(dict.fromkeys([*ranked, *untuned]))
        if not final:
            return
        jobs = [self._job(schedule, None) for schedule in final]
        outcomes = zip(jobs, self._runner.compare(jobs, budget), strict=True)
        good = {job.schedule: (job, outcome) for job, outcome in outcomes if outcome.problem is None}
        usual = good[self._untuned][1].seconds if self._untuned in good else math.inf
        made: list[Measurement | Line] = []
        compared: dict[Schedule, float] = {}
        for schedule, (job, outcome) in good.items():
            # What is hardly faster than the untuned choice may be slower the next time.
            if schedule == self._untuned or outcome.seconds * GAIN < usual:
                made.append(outcome.measurement(job, compared=True))
                compared[schedule] = outcome.seconds
        if self._store is not None and made:
            self._store.add(self._place.key, made)
        if compared:
            self.times = compared
            self._note()

    def _job(self, schedule: Schedule, cutoff: float | None) -> Job:
        place, product = self._place, self._product
        return Job(place.backend, place.number, product.spec, product.shape, product.products, schedule, cutoff=cutoff)

    def _recorded(self) -> dict[Schedule, float]:
        """What was measured of the product before, on this device."""
        if self._store is None:
            return {}
        product, text = self._product, spec_text(self._product.spec)
        found: dict[Schedule, float] = {}
        for line in self._store.read(self._place.key).lines:
            if line.checked and (line.spec, line.shape, line.products) == (text, product.shape, product.products):
                with suppress(ScheduleError):
                    found[line.measurement().schedule] = line.seconds
        return found

    # --- what to try next -------------------------------------------------------------------------

    def _proposals(self) -> Iterator[Proposal]:
        """Trials and their schedules, each once, none that was measured before."""
        product, place = self._product, self._place
        about = self._spec, product.shape, place.target, product.products
        candidates = order.ordered(*about, self._seed)
        if self._only:
            told = (each for each in candidates if each in self._only)
            candidates = iter(dict.fromkeys((*told, *order.sorted_by_cost(self._only, *about))))
        self._untuned = untuned = next(candidates)
        seen = set(self._known)
        if untuned not in seen:
            seen.add(untuned)
            yield self._given(untuned)
        fresh = (each for each in candidates if self._strategy == "prior" and each not in seen)
        first, between = (FIRST, BETWEEN) if self._samples else (FIRST_DRAWING, BETWEEN_DRAWING)
        count = 0
        while True:
            is_given = (self._strategy == "prior" and count < first) or count % (between + 1) == 0
            candidate = next(fresh, None) if is_given else None
            count += 1
            found = self._given(candidate) if candidate is not None else self._sampled(seen)
            if found is None:
                candidate = next(fresh, None)
                if candidate is None:
                    return
                found = self._given(candidate)
            seen.add(found.schedule)
            yield found

    def _given(self, schedule: Schedule) -> Proposal:
        """A schedule that no sampler has proposed."""
        for name, space in self._spaces.items():
            point = space.point(schedule)
            if point is not None:
                return Proposal(schedule, {"mainloop": name, **_coordinates(space, point)})
        return Proposal(schedule, {})

    def _sampled(self, seen: set[Schedule]) -> Proposal | None:
        """What the sampler proposes; None where all of it was refused."""
        import optuna

        if not self._samples:
            return self._near_the_best(seen)
        for _ in range(MOST_REFUSED):
            trial = self._study.ask()
            space, point = _suggested(trial, self._spaces)
            schedule = space.schedule(point)
            if schedule is not None and schedule not in seen and self._cost(schedule) is not None:
                return Proposal(schedule, {}, trial)
            self._study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        return None

    def _near_the_best(self, seen: set[Schedule]) -> Proposal | None:
        """The cheapest by the model of some legal neighbours of the best, where few points of a space are legal and a
        sampler finds none.
        """
        best = sorted(self.times, key=lambda each: self.times[each])[:PARENTS]
        costs: dict[Schedule, float] = {}
        for _ in range(MOST_DRAWN if best else 0):
            parent = self._draw.choice(best)
            space = self._spaces.get(type(parent.mainloop).__name__)
            near = None if space is None else space.near(parent, self._draw)
            cost = None if near is None or near in seen else self._cost(near)
            if near is not None and cost is not None:
                costs[near] = cost
                if len(costs) == DRAWN:
                    break
        return self._given(min(costs, key=lambda each: costs[each])) if costs else None

    def _cost(self, schedule: Schedule) -> float | None:
        """What the model says, 0 where there is none; None of a schedule that it or figures rule out."""
        if self._only and schedule not in self._only:
            return None
        product, target = self._product, self._place.target
        if not is_precise(schedule, product.spec) or order.static_problem(schedule, product.shape, target):
            return None
        cost = order.cost(self._spec, schedule, product.shape, target, product.products)
        if cost is None:
            return 0.0
        self._costs.append(cost)
        return cost if cost <= order.RULED_OUT * min(self._costs) else None


# --- Optuna ---------------------------------------------------------------------------------------


def _study(storage: optuna.storages.BaseStorage | None, name: str, strategy: Strategy, seed: int) -> optuna.Study:
    require_optuna()
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler: optuna.samplers.BaseSampler
        if strategy == "random":
            sampler = optuna.samplers.RandomSampler(seed=seed)
        else:
            sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=8)
        return optuna.create_study(storage=storage, sampler=sampler, study_name=name, load_if_exists=True)


def _coordinates(space: Space, point: Point) -> dict[str, int | str]:
    """A point as Optuna's parameters: numbers by their place among an axis' values, so that near ones are near."""
    name = space.mainloop.__name__
    return {
        f"{name}.{axis.name}": axis.values.index(point[axis.name]) if axis.is_ordered else text_of(point[axis.name])
        for axis in space.axes
        if axis.when(point)
    }


def _distributions(coordinates: Mapping[str, int | str], of: dict[str, Space]) -> dict[str, BaseDistribution]:
    """Of a point's parameters, as `_suggested` has them."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    if not coordinates:
        return {}
    name = str(coordinates["mainloop"])
    found: dict[str, BaseDistribution] = {"mainloop": CategoricalDistribution(list(of))}
    for axis in of[name].axes:
        key = f"{name}.{axis.name}"
        if key in coordinates and len(axis.values) > 1:
            texts = [text_of(value) for value in axis.values]
            last = len(axis.values) - 1
            found[key] = IntDistribution(0, last) if axis.is_ordered else CategoricalDistribution(texts)
    return found


def _suggested(trial: optuna.Trial, of: dict[str, Space]) -> tuple[Space, Point]:
    """The space and the point that a trial has, or that the sampler gives it."""
    name = str(trial.suggest_categorical("mainloop", list(of)))
    space, point = of[name], Point()
    for axis in space.axes:
        if not axis.when(point) or len(axis.values) == 1:
            point[axis.name] = axis.values[0]
        elif axis.is_ordered:
            point[axis.name] = axis.values[trial.suggest_int(f"{name}.{axis.name}", 0, len(axis.values) - 1)]
        else:
            texts = [text_of(value) for value in axis.values]
            found = str(trial.suggest_categorical(f"{name}.{axis.name}", texts))
            point[axis.name] = _value(axis.values, texts.index(found))
    return space, point


def _value(values: tuple[Value, ...], index: int) -> Value:
    return values[index]
