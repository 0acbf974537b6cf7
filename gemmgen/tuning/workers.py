"""Jobs on the workers of a cluster of Dask's: one of this machine's, or any that listens.

A job measures where a worker has the resource `device`, one at a time for each device of a machine. A worker that is
lost costs the trials that it had: its jobs go to others.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from gemmgen.errors import DeviceError, UserError
from gemmgen.tuning.job import Job, Outcome
from gemmgen.tuning.runners import ENDED

if TYPE_CHECKING:
    from distributed import Client

#: What a worker has one of: a device that it alone measures on.
RESOURCE = "device"
#: Seconds to reach a scheduler in, and until a cluster has a worker.
REACHED = 30
INSTALL = 'pip install "gemmgen[tune]"'


def measure_here(text: str) -> str:
    """A job on the worker that runs it, built and then measured in turns with other workers of the same device."""
    from distributed import Lock

    from gemmgen.tuning.measure import build, measure

    job = Job.read(text)
    outcome = build(job)
    if outcome.problem is None:
        with Lock(_device_name(job)):
            outcome = measure(job)
    return outcome.text()


def compare_here(texts: Sequence[str], budget: float) -> list[str]:
    """Several, which take turns."""
    from distributed import Lock

    from gemmgen.tuning.measure import compare

    jobs = [Job.read(text) for text in texts]
    with Lock(_device_name(jobs[0])):
        return [outcome.text() for outcome in compare(jobs, budget)]


def _device_name(job: Job) -> str:
    """A device of the machine that asks."""
    return f"gemmgen {os.uname().nodename} {job.backend} {job.device}"


class DaskRunner:
    """Jobs by Dask.

    Args:
        scheduler: its address; None starts a cluster on this machine.
        local: that cluster's workers, each with a process of its own.

    Raises: DeviceError, UserError.
    """

    def __init__(self, backend: str, scheduler: str | None, local: int | None) -> None:
        try:
            import distributed
        except ImportError:
            raise DeviceError(f"--scheduler and --local need Dask: {INSTALL}") from None
        self._backend = backend
        self._cluster: distributed.LocalCluster | None = None
        if scheduler is None:
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

        futures = {
            self.client.submit(measure_here, job.text(), resources={RESOURCE: 1}, pure=False): index
            for index, job in enumerate(jobs)
        }
        try:
            for future in as_completed(futures):
                yield futures[future], self._outcome(future.exception(), future)
        finally:
            with suppress(Exception):
                self.client.cancel(list(futures))

    @staticmethod
    def _outcome(error: BaseException | None, future: object) -> Outcome:
        if error is not None:
            return Outcome(problem=f"{ENDED} ({type(error).__name__})")
        return Outcome.read(cast("str", future.result()))  # type: ignore[attr-defined]

    def compare(self, jobs: Sequence[Job], budget: float) -> list[Outcome]:
        """On one worker, since times of several are not to be compared."""
        texts = [job.text() for job in jobs]
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
