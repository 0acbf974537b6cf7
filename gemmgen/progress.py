"""Progress of a long command on standard error: a bar on a terminal, otherwise a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TextIO

#: Seconds between two lines if standard error is not a terminal.
PERIOD = 5.0

Tick = Callable[[str], None]
#: Shows how much of a total is done, and a text.
Show = Callable[[float, str], None]


@contextmanager
def progress(steps: int) -> Iterator[Tick]:
    """Context with a function to call at the beginning of each step, with a text for the step."""
    done = count(1)
    with shown(steps) as show:
        yield lambda text: show(next(done), text)


@contextmanager
def shown(total: float) -> Iterator[Show]:
    """Context with a function that shows progress."""
    if sys.stderr is None:
        yield lambda _, __: None
    elif sys.stderr.isatty():
        with _bar(total) as show:
            yield show
    else:
        yield lines(total, sys.stderr)


def lines(total: float, file: TextIO, clock: Callable[[], float] = time.monotonic) -> Show:
    """Write the first text, and then at most one line each `PERIOD`, so that a log stays short."""
    begin = due = clock()

    def show(done: float, text: str) -> None:
        nonlocal due
        if (now := clock()) >= due:
            due = now + PERIOD
            file.write(f"[{done:.0f}/{total:.0f}] {text}, after {now - begin:.0f} s\n")
            file.flush()

    return show


@contextmanager
def _bar(total: float) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, text: bar.update(task, completed=done, description=text)
