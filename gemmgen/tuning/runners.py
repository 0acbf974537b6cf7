"""Where jobs are run: processes of this machine here, a table in `replay`, workers of Dask in `workers`."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Protocol

from gemmgen.tuning.job import LAST, Job, Outcome

#: Seconds that a process may take for one job: to build it, to measure it.
BUILD_LIMIT, LIMIT = 120.0, 300.0
#: Schedules of a batch at most: a search proposes the next batch by the results of this one.
MOST_AT_ONCE = 16
#: What became of a process that gave no answer.
ENDED = "the process that ran it has ended, or took too long"


class Runner(Protocol):
    """What measures schedules of a product."""

    @property
    def width(self) -> int:
        """Jobs that it takes at once."""

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        """The jobs' numbers and outcomes, as they come."""

    def compare(self, jobs: Sequence[Job], budget: float) -> list[Outcome]:
        """Those of several, which take turns for so many seconds."""

    def close(self) -> None:
        """End its processes."""


class Process:
    """One that serves jobs (`gemmgen.tuning.measure`), started anew after it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, word: str, text: str, limit: float) -> str | None:
        """Its answer; None where it ended, or took longer."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        answer = ""
        with suppress(OSError):
            process.stdin.write(f"{word} {text}\n")
            process.stdin.flush()
            if select.select([process.stdout], [], [], limit)[0]:
                answer = process.stdout.readline()
        if not answer or answer.startswith(LAST):
            self.close()
        return answer.removeprefix(LAST) or None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            command, pipe = [sys.executable, "-m", "gemmgen.tuning.measure"], subprocess.PIPE
            quiet = subprocess.DEVNULL
            # In a process group of its own, so that the terminal sends its Ctrl-C to the command alone.
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=quiet, text=True, bufsize=1, process_group=0
            )
        return self._process

    def close(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        process.wait()


class LocalRunner:
    """Compiles in several processes, and measures in one.

    Args:
        is_alone: whether kernels are compiled before others are measured, and not beside: where the device is what
            compiles them, a CPU.
        builders: processes that compile; None for as many as there are cores, four at most if `is_alone`. Otherwise two
            cores are left to what measures and what asks.
    """

    def __init__(self, is_alone: bool, builders: int | None = None) -> None:
        cores = len(os.sched_getaffinity(0))
        count = builders or max(1, min(4, cores) if is_alone else cores - 2)
        self.width = min(2 * count, MOST_AT_ONCE)
        self._is_alone = is_alone
        self._builders = [Process() for _ in range(count)]
        self._free: SimpleQueue[Process] = SimpleQueue()
        for each in self._builders:
            self._free.put(each)
        self._pool = ThreadPoolExecutor(count)
        self._measuring = Process()

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        built = [self._pool.submit(self._build, job) for job in jobs]
        try:
            if self._is_alone:
                for each in built:
                    each.result()
            for index, job in enumerate(jobs):
                outcome = built[index].result()
                yield index, outcome if outcome.problem is not None else self._measure(job, outcome.built)
        finally:
            _cancel(built)

    def ahead(self, jobs: Sequence[Job]) -> None:
        """Compile what will be measured later, while others are measured."""
        if not self._is_alone:
            for job in jobs:
                self._pool.submit(self._build, job)

    def _build(self, job: Job) -> Outcome:
        process = self._free.get()
        try:
            answer = process.ask("build", job.text(), BUILD_LIMIT)
        finally:
            self._free.put(process)
        return Outcome(problem=f"not built: {ENDED}") if answer is None else Outcome.read(answer)

    def _measure(self, job: Job, built: str) -> Outcome:
        answer = self._measuring.ask("measure", json.dumps([job.text(), built]), LIMIT)
        return Outcome(problem=ENDED) if answer is None else Outcome.read(answer)

    def compare(self, jobs: Sequence[Job], budget: float) -> list[Outcome]:
        text = json.dumps([budget, [job.text() for job in jobs]])
        answer = self._measuring.ask("compare", text, LIMIT + 2 * budget)
        if answer is None:
            return [Outcome(problem=ENDED) for _ in jobs]
        return [Outcome.read(each) for each in json.loads(answer)]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for each in (*self._builders, self._measuring):
            each.close()


def _cancel(futures: Sequence[Future[Outcome]]) -> None:
    for each in futures:
        each.cancel()
