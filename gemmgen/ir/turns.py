"""The roles of a group at run time: each goes on until it has to wait for another, then that one's turn comes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from gemmgen.ir.evaluate import IndexCode
from gemmgen.ir.lanes import Active


class _Stopped(Exception):
    """Another role has failed."""


class Turns:
    """Runs the roles' statements in threads of their own, of which one at a time goes on.

    So a role is a plain walk through its statements, as all of a kernel without roles is. Who comes next is the same
    each time: the next one that is not over and for which something has happened since it had to wait.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turn = 0
        self._events = 0
        self._waiting: list[int | None] = []
        self._failure: BaseException | None = None

    @property
    def parted(self) -> bool:
        """Whether roles run now."""
        return bool(self._waiting)

    def happened(self) -> None:
        """Somebody has arrived, or bytes have come: who waits may look again."""
        self._events += 1

    def run(self, roles: Sequence[Callable[[], None]]) -> None:
        """All of them, until each is over. Raises: what one of them raises."""
        self._waiting, self._turn, self._failure = [None] * len(roles), 0, None
        threads = [threading.Thread(target=self._role, args=(i, role), daemon=True) for i, role in enumerate(roles)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._waiting = []
        if self._failure is not None:
            raise self._failure

    def until(self, ready: Callable[[], bool]) -> bool:
        """Let others go on until it is so; False if it will never be."""
        me = self._turn
        while not ready():
            if not self.parted:
                return False
            self._waiting[me] = self._events
            following = self._next(me)
            if following is None:
                return False
            self._pass_on(me, following)
        return True

    def _next(self, me: int) -> int | None:
        """A role for which something has happened since it had to wait; None if all wait in vain."""
        count = len(self._waiting)
        others = ((me + step) % count for step in range(1, count))
        return next((i for i in others if self._waiting[i] != self._events and self._waiting[i] != _OVER), None)

    def _pass_on(self, me: int, following: int) -> None:
        with self._changed:
            self._turn = following
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == me or self._failure is not None)
        if self._failure is not None:
            raise _Stopped

    def _role(self, me: int, role: Callable[[], None]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == me or self._failure is not None)
        try:
            if self._failure is None:
                with np.errstate(all="ignore"):  # a thread has a setting of its own
                    role()
        except _Stopped:
            return
        except BaseException as failure:  # noqa: BLE001 - raised again where the roles began
            self._failure = failure
        with self._changed:
            self._waiting[me] = _OVER
            following = (i for i, state in enumerate(self._waiting) if state != _OVER)
            self._turn = next(following, me)
            self._changed.notify_all()


#: In the place of when a role began to wait.
_OVER = -1


def one_by_one(number: IndexCode, parts: int, body: Callable[[Active], None]) -> Callable[[Active], None]:
    """Parts of a group by themselves: the work-items of number 0 first, then those of number 1, and so on."""

    def step(active: Active) -> None:
        own = number(active)
        for part in range(parts):
            among, _ = active.split(own == part)
            if among is not None:
                body(among)

    return step
