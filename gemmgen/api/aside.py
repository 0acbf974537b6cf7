"""Compile aside: while the kernel of a new size is compiled in a thread, calls run a kernel that is there.

Choosing, emitting and compiling takes a second. Every kernel serves any size, so that once one for the same spec is
there, no call waits for another one.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable

from gemmgen.runtime.cache import is_switched_on
from gemmgen.runtime.waiting import under_way

#: 0 makes each call wait for its own kernel, so that equal calls round equally.
VARIABLE = "GEMMGEN_COMPILE_ASIDE"

#: What is to be made, by key. One thread makes one after the other.
_jobs: deque[tuple[Hashable, Callable[[], object]]] = deque()
_pending: set[Hashable] = set()
#: Counts them.
_waiting = threading.Semaphore(0)
_lock = threading.Lock()
_is_started = False
#: What is done when a job has ended.
_hooks: list[Callable[[], object]] = []


def is_on() -> bool:
    """Whether kernels may be compiled aside."""
    return is_switched_on(VARIABLE)


def make(key: Hashable, job: Callable[[], object]) -> None:
    """Do a job in the thread, unless one of that key is under way. Its errors are dropped: a later call meets them."""
    global _is_started  # noqa: PLW0603
    with _lock:
        if key in _pending:
            return
        _pending.add(key)
        _jobs.append((key, job))
        _waiting.release()
        if not _is_started:
            _is_started = True
            threading.Thread(target=_work, name="gemmgen-compile", daemon=True).start()


def when_done(hook: Callable[[], object]) -> None:
    """Call a function after each job."""
    _hooks.append(hook)


def is_pending(key: Hashable) -> bool:
    """Whether a job of that key is queued or under way."""
    return key in _pending


def _work() -> None:
    while True:
        _waiting.acquire()
        key, job = _jobs.popleft()
        try:
            with under_way():
                job()
        except Exception:  # noqa: BLE001  (a later call makes it itself, and raises)
            pass
        finally:
            with _lock:
                _pending.discard(key)
            for hook in _hooks:
                hook()


def _forget() -> None:
    """After a fork: the child has no such thread."""
    global _waiting, _lock, _is_started
    _waiting, _lock, _is_started = threading.Semaphore(0), threading.Lock(), False
    _jobs.clear()
    _pending.clear()


os.register_at_fork(after_in_child=_forget)
