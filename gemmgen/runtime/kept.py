"""What is made once and kept for later calls: bounded or for good, and safe to use from several threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable
from functools import wraps
from itertools import count
from typing import Generic, ParamSpec, TypeVar, cast

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")
_NOTHING = object()


class _Slot:
    """The place of one value, which one thread makes while others wait for it, and the number of its last use."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: object = _NOTHING
        self.used = 0


class Kept(Generic[Key, Value]):
    """Values by their keys, `limit` at most; for one more, a quarter goes that was not used for longest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._slots: dict[Key, _Slot] = {}
        self._lock = threading.Lock()
        self._uses = count(1)

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key, made if it is not there, by one thread alone; what `make` raises is not kept."""
        known = self._slots.get(key)
        if known is not None and known.value is not _NOTHING:
            known.used = next(self._uses)
            return cast("Value", known.value)
        while True:
            slot = self._slot(key)
            with slot.lock:
                if slot.value is not _NOTHING:
                    return cast("Value", slot.value)
                # Where the thread that was waited for has failed, threads meet again at one new slot.
                if self._slots.get(key) is slot:
                    slot.value = made = self._made(key, make)
                    return made

    def known(self, key: Key) -> Value | None:
        """The value of a key, or None where there is none. Takes no lock: it may be changed meanwhile."""
        slot = self._slots.get(key)
        if slot is None or slot.value is _NOTHING:
            return None
        slot.used = next(self._uses)
        return cast("Value", slot.value)

    def _slot(self, key: Key) -> _Slot:
        with self._lock:
            slot = self._slots.get(key)
            if slot is None:
                self._make_room()
                slot = self._slots[key] = _Slot()
            slot.used = next(self._uses)
            return slot

    def _make_room(self) -> None:
        if len(self._slots) >= self._limit:
            by_use = sorted(self._slots, key=lambda key: self._slots[key].used)
            for key in by_use[: max(1, self._limit // 4)]:
                del self._slots[key]

    def _made(self, key: Key, make: Callable[[], Value]) -> Value:
        try:
            return make()
        except BaseException:
            with self._lock:
                self._slots.pop(key, None)
            raise


def once(make: Callable[Parameters, Value]) -> Callable[Parameters, Value]:
    """A function whose values are made once and kept for good, as by `functools.cache`. But where several threads ask
    for one at the same time, a single thread makes it, and the others wait.

    Its arguments are positional and hashable. It must not call itself with the same ones.
    """
    values: Kept[tuple[object, ...], Value] = Kept(sys.maxsize)

    @wraps(make)
    def known(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Value:
        assert not kwargs
        return values.get(args, lambda: make(*args, **kwargs))

    return known
