"""How far a long command is, on standard error: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

#: Seconds between two lines where standard error is no terminal.
PERIOD = 5.0

Tick = Callable[[str], None]


@contextmanager
def progress(steps: int) -> Iterator[Tick]:
    """What to call at the beginning of each step, with what is being done then."""
    if sys.stderr is None:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _bar(steps) as tick:
            yield tick
    else:
        yield lines(steps, sys.stderr)


def lines(steps: int, file: TextIO, clock: Callable[[], float] = time.monotonic) -> Tick:
    """Writes the first step, and then one at most each `PERIOD`: a log stays short, and its reader sees life."""
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
