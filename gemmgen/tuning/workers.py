"""Jobs on the workers of a cluster of Dask's: one of this machine's, or any that listens.

A job measures where a worker has the resource `device`, one at a time for each device of a machine. Of a cluster of
this machine's, each worker has a GPU of its own while there are any, and further workers compile for them. A worker
that is lost costs the trials that it had: its jobs go to others.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from gemmgen.errors import DeviceError, UserError
from gemmgen.tuning.job import Job, Outcome
from gemmgen.tuning.runners import ENDED

if TYPE_CHECKING:
    from distributed import Client, Future

#: What a worker has one of: a device that it alone measures on.
RESOURCE = "device"
#: The variable that says which GPUs a process sees, and the workers that compile for each of them at most.
VISIBLE, COMPILERS = "CUDA_VISIBLE_DEVICES", 7
#: Seconds to reach a scheduler in, and until a cluster has a worker.
REACHED = 30
INSTALL = 'pip install "gemmgen[tune]"'


def build_here(text: str) -> str:
    """A job's kernel, compiled on the worker that runs it."""
    from gemmgen.tuning.measure import build

    return build(Job.read(text)).text()


def measure_here(text: str, built: str | None = None) -> str:
    """A job on the worker that runs it, measured in turns with other workers of the same device.

    Args:
        built: what `build_here` said elsewhere; None where nobody has built it.
    """
    from distributed import Lock

    from gemmgen.tuning.measure import measure

    outcome = Outcome.read(built or build_here(text))
    if outcome.problem is None:
        job = Job.read(text)
        with Lock(_device_name(job)):
            outcome = measure(job, outcome.built)
    return outcome.text()


def compare_here(texts: Sequence[str], budget: float) -> list[str]:
    """Several, which take turns."""
    from distributed import Lock

    from gemmgen.tuning.measure import compare

    jobs = [Job.read(text) for text in texts]
    with Lock(_device_name(jobs[0])):
        return [outcome.text() for outcome in compare(jobs, budget)]


def _device_name(job: Job) -> str:
    """A device of the machine that asks, among those that its process sees."""
    return f"gemmgen {os.uname().nodename} {job.backend} {os.environ.get(VISIBLE, '')} {job.device}"


def _gpus(device: int | None) -> list[str]:
    """This machine's GPUs, or one of them, as `CUDA_VISIBLE_DEVICES` has them."""
    from gemmgen.runtime.cuda_devices import cuda_devices

    seen = os.environ.get(VISIBLE, "").split(",") if os.environ.get(VISIBLE) else []
    every = seen or [str(each.number) for each in cuda_devices()]
    return every if device is None else every[device : device + 1]


def _workers_of_gpus(local: int, gpus: Sequence[str]) -> tuple[dict[str, dict[str, object]], list[str]]:
    """The workers of a cluster as `SpecCluster` takes them, and the names of those that only compile."""
    from distributed import Nanny

    spare = len(os.sched_getaffinity(0)) - 2 * local
    compilers = [f"compiler {i}" for i in range(max(0, min(spare, COMPILERS * local)))]
    made: dict[str, dict[str, object]] = {}
    for number, name in enumerate([*(f"device {i}" for i in range(local)), *compilers]):
        # As much memory as there is: a large product's check would pass a share of it.
        own = {"nthreads": 1, "memory_limit": 0, "env": {VISIBLE: gpus[number % len(gpus)]}}
        made[name] = {"cls": Nanny, "options": own if name in compilers else {**own, "resources": {RESOURCE: 1}}}
    return made, compilers


class DaskRunner:
    """Jobs by Dask.

    Args:
        scheduler: its address; None starts a cluster on this machine.
        local: that cluster's workers, each with a process of its own.
        device: the number of the device that was asked for; None for any.
        on_gpus: whether workers on this machine have a GPU of CUDA each.

    Raises: DeviceError, UserError.
    """

    def __init__(
        self,
        backend: str,
        scheduler: str | None,
        local: int | None,
        device: int | None = None,
        on_gpus: bool = False,
    ) -> None:
        try:
            import distributed
        except ImportError:
            raise DeviceError(f"--scheduler and --local need Dask: {INSTALL}") from None
        self._backend = backend
        self._cluster: distributed.SpecCluster | None = None
        self._compilers: list[str] = []
        self._is_pinned = scheduler is None and on_gpus
        if self._is_pinned:
            workers, self._compilers = _workers_of_gpus(local or 1, _gpus(device))
            hub = {"cls": distributed.Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard": False}}
            self._cluster = distributed.SpecCluster(workers=workers, scheduler=hub, silence_logs=logging.WARNING)
        elif scheduler is None:
            self._cluster = distributed.LocalCluster(
                n_workers=local or 1, threads_per_worker=1, resources={RESOURCE: 1}, dashboard_address=None
            )
        try:
            self.client: Client = distributed.Client(self._cluster or scheduler, timeout=REACHED)
        except (OSError, ValueError) as error:
            raise UserError(f"--scheduler {scheduler} can't be reached ({error}): start dask scheduler there") from None
        try:
            self.client.wait_for_workers(1, timeout=REACHED)
        except TimeoutError:
            self.close()
            start = f"dask worker {scheduler} --nthreads 1 --resources {RESOURCE}=1"
            raise UserError(f"--scheduler {scheduler} has no workers: start one a device, by {start}") from None

    @property
    def width(self) -> int:
        """Twice as many as there are workers, so that none waits."""
        return max(2, 2 * len(self.client.scheduler_info()["workers"]))

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        """The outcomes as they come; a job whose workers are lost again and again has none."""
        from distributed import as_completed

        futures = {self._submitted(self._placed(job)): index for index, job in enumerate(jobs)}
        try:
            for future in as_completed(futures):
                yield futures[future], self._outcome(future.exception(), future)
        finally:
            with suppress(Exception):
                self.client.cancel(list(futures))

    def _placed(self, job: Job) -> Job:
        """A job for workers, of which those of a cluster of GPUs see only their own."""
        return replace(job, device=None) if self._is_pinned else job

    def _submitted(self, job: Job) -> Future:
        """A job that workers compile and measure: others than those that have a device compile, if there are any."""
        submit, text = self.client.submit, job.text()
        built = submit(build_here, text, workers=self._compilers, pure=False) if self._compilers else None
        return submit(measure_here, text, built, resources={RESOURCE: 1}, pure=False)

    @staticmethod
    def _outcome(error: BaseException | None, future: object) -> Outcome:
        if error is not None:
            return Outcome(problem=f"{ENDED} ({type(error).__name__})")
        return Outcome.read(cast("str", future.result()))  # type: ignore[attr-defined]

    def compare(self, jobs: Sequence[Job], budget: float) -> list[Outcome]:
        """On one worker, since times of several are not to be compared."""
        texts = [self._placed(job).text() for job in jobs]
        future = self.client.submit(compare_here, texts, budget, resources={RESOURCE: 1}, pure=False)
        error = future.exception()
        if error is not None:
            return [Outcome(problem=f"{ENDED} ({type(error).__name__})") for _ in jobs]
        return [Outcome.read(text) for text in future.result()]

    def close(self) -> None:
        """End the cluster that was started; others go on."""
        # What workers still say to a client that is gone is of no use to anybody.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        with suppress(Exception):
            self.client.close()
        if self._cluster is not None:
            with suppress(Exception):
                self._cluster.close()
