"""Waiting for kernels: short ones as quickly as can be, long ones so that Ctrl-C is heard; and how a process ends while
kernels run.

What was found out (Python 3.11, pyopencl 2026.1, Intel's CPU runtime 2026.2):

- A wait in C can't be interrupted: Python looks at signals when it returns. No kernel can be stopped.
- A thread that waits for a CPU's kernel computes a part of it. Where it polls instead, 1024 cubed takes 25 ms on two
  cores in place of 10. So a thread of its own waits for what takes long, and Python's main thread sleeps until that is
  through, or Ctrl-C comes.
- When Python ends, it ends daemon threads where they come back from C (`pthread_exit`). Between functions of C++, such
  as pyopencl's, that calls `std::terminate`; ctypes' functions are of C. Then destructors of the OpenCL runtime run,
  and those abort the process while a kernel is still running.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")

#: Seconds of a wait that need not be interrupted.
SHORT = 0.05
#: Seconds that the end of a process waits for calls in daemon threads.
_GRACE = 1.0

#: Threads, beside the main one, that are inside of a call.
_under_way: set[int] = set()
#: Threads that wait for kernels which nobody else waits for any more.
_left: set[threading.Thread] = set()
#: Set when the process ends.
_ending = threading.Event()


class Pace:
    """How long the last wait for a call of one kind took, in seconds; infinity before the first."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds

    def wait(self, shortly: Callable[[], Result], safely: Callable[[], Result] | None = None) -> Result:
        """Wait for a call, and learn how long that takes.

        Args:
            shortly: waits for it in the quickest way.
            safely: waits for it in a function of C; None where the first does.
        """
        begin = time.perf_counter()
        if not is_main_thread():
            result = (safely or shortly)()
        elif self.seconds < SHORT or _has_small_stacks():
            result = shortly()
        else:
            result = _heard(safely or shortly)
        self.seconds = time.perf_counter() - begin
        return result


def is_main_thread() -> bool:
    """Whether signals are heard here."""
    return threading.get_ident() == threading.main_thread().ident


@contextmanager
def under_way() -> Iterator[None]:
    """While it lasts, the process does not end of which this is a daemon thread; for a second at most. A daemon thread
    that begins a call when the process ends does not come back.
    """
    ident = threading.get_ident()
    if is_main_thread() or ident in _under_way:
        yield
        return
    _under_way.add(ident)
    try:
        if _ending.is_set() and threading.current_thread().daemon:
            _under_way.discard(ident)
            threading.Event().wait()
        yield
    finally:
        _under_way.discard(ident)


def leave(finish: Callable[[], object], held: object, release: Callable[[], object] | None = None) -> None:
    """After Ctrl-C: hold what kernels work in until they are through.

    Args:
        finish: waits for the kernels, in a function of C.
        held: arrays and buffers.
        release: gives back what the call has allocated.
    """

    def wait() -> None:
        try:
            finish()
            if release is not None:
                release()
        finally:
            holding.clear()
            _left.discard(thread)

    holding = [held]
    thread = threading.Thread(target=wait, name="gemmgen-left", daemon=True)
    _left.add(thread)
    thread.start()


def _has_small_stacks() -> bool:
    """Whether new threads can't have what kernels take of a stack, so that the caller's own has to do."""
    return threading.stack_size() != 0


def _heard(call: Callable[[], Result]) -> Result:
    """A call of a function of C by another thread, while this one hears signals."""
    results: list[Result] = []
    errors: list[BaseException] = []
    done = threading.Lock()
    done.acquire()

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  (raised in the thread that called)
            errors.append(error)
        finally:
            done.release()

    _thread.start_new_thread(run, ())  # quicker than a `Thread`, whose start is waited for
    done.acquire()
    for error in errors:
        raise error
    return results[0]


def _end() -> None:
    """Calls come to their ends, and no daemon thread begins another. Where kernels run on, the process ends without the
    destructors of the runtimes that run them; with its exit code, and after all else that Python does at the end.
    """
    _ending.set()
    deadline = time.monotonic() + _GRACE
    while _under_way and not _left and time.monotonic() < deadline:
        time.sleep(0.001)
    if _under_way or _left:
        libc = ctypes.CDLL(None)
        # glibc's: what is registered last is called first, with the exit code.
        if hasattr(libc, "on_exit"):
            libc.on_exit(libc._exit, None)


def _forget() -> None:
    """A fork has none of its parent's other threads."""
    _under_way.clear()
    _left.clear()


atexit.register(_end)
os.register_at_fork(after_in_child=_forget)
