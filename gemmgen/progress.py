"""Progress of a long command on standard error: a bar on a terminal, otherwise a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

#: Seconds between two lines if standard error is not a terminal.
PERIOD = 5.0

Tick = Callable[[str], None]


@contextmanager
def progress(steps: int) -> Iterator[Tick]:
    """Context with a function to call at the beginning of each step, with a text for the step."""
    if sys.stderr is None:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _bar(steps) as tick:
            yield tick
    else:
        yield lines(steps, sys.stderr)


def lines(steps: int, file: TextIO, clock: Callable[[], float] = time.monotonic) -> Tick:
    """Write the first step, and then at most one line each `PERIOD`, so that a log stays short."""
    begin = clock()
    done, due = 0, begin

    def tick(text: str) -> None:
        nonlocal done, due
        done, now = done + 1, clock()
        if now >= due:
            due = now + PERIOD
            file.write(f"[{done}/{steps}] {text}, after {now - begin:.0f} s\n")
            file.flush()

    return tick


@contextmanager
def _bar(steps: int) -> Iterator[Tick]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=steps)
        yield lambda text: shown.update(task, advance=1, description=text)
