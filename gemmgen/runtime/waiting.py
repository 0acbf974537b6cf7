"""Wait for kernels: short ones with the least delay, long ones interruptible by Ctrl-C. And end the process while
kernels run.

Facts on which this is based (Python 3.11, pyopencl 2026.1, Intel's CPU runtime 2026.2):

- A wait in C can't be interrupted, since Python handles signals only when it returns. No kernel can be stopped.
- A thread that waits for a CPU's kernel computes a part of it. If the thread polls instead, 1024 cubed takes 25 ms on
  two cores instead of 10. So a separate thread waits for long kernels, and Python's main thread sleeps until that
  thread ends, or Ctrl-C is pressed.
- When Python ends, it ends daemon threads as they return from C (`pthread_exit`). Inside C++ functions, such as
  pyopencl's, this calls `std::terminate`. ctypes' functions are C. Then the destructors of the OpenCL runtime run, and
  they abort the process if a kernel is still running.
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

#: Waits of up to so many seconds need not be interruptible.
SHORT = 0.05
#: How long the end of the process waits for calls in daemon threads, in seconds.
_GRACE = 1.0

#: Threads other than the main one that are inside a call.
_under_way: set[int] = set()
#: Threads that wait for kernels after their caller was interrupted.
_left: set[threading.Thread] = set()
#: Set when the process is ending.
_ending = threading.Event()


class Pace:
    """The duration of the last wait for calls of one kind, in seconds; infinity before the first."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds

    def wait(self, shortly: Callable[[], Result], safely: Callable[[], Result] | None = None) -> Result:
        """Wait for a call, and record how long it takes.

        Args:
            shortly: waits with the least delay.
            safely: waits in a C function; None if `shortly` does so already.
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
    """Whether this is the main thread, in which Python handles signals."""
    return threading.get_ident() == threading.main_thread().ident


@contextmanager
def under_way() -> Iterator[None]:
    """Context of a call in a daemon thread: the process's end waits for it, for a second at most. A daemon thread that
    begins a call when the process is ending does not return.
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
    """After Ctrl-C: keep the memory that kernels use alive until they have ended.

    Args:
        finish: waits for the kernels, in a C function.
        held: arrays and buffers.
        release: frees the call's allocations.
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
    """Whether new threads get too small a stack for kernels, so that the calling thread must wait itself."""
    return threading.stack_size() != 0


def _heard(call: Callable[[], Result]) -> Result:
    """Call a C function in another thread, while this thread handles signals."""
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

    _thread.start_new_thread(run, ())  # faster than a `Thread`, whose start is waited for
    done.acquire()
    for error in errors:
        raise error
    return results[0]


def _end() -> None:
    """Wait for calls in daemon threads, and let no new one begin. If kernels still run, the process ends without the
    destructors of their runtimes: with its exit code, and after everything else that Python does at its end.
    """
    _ending.set()
    deadline = time.monotonic() + _GRACE
    while _under_way and not _left and time.monotonic() < deadline:
        time.sleep(0.001)
    if _under_way or _left:
        libc = ctypes.CDLL(None)
        # glibc's `on_exit`: functions are called in reverse order, with the exit code.
        if hasattr(libc, "on_exit"):
            libc.on_exit(libc._exit, None)


def _forget() -> None:
    """After a fork: the child has none of its parent's other threads."""
    _under_way.clear()
    _left.clear()


atexit.register(_end)
os.register_at_fork(after_in_child=_forget)
