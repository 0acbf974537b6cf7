"""What is made once and kept for later calls: bounded, and safe to use from several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar, cast

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
_NOTHING = object()


class _Slot:
    """The place of one value, which one thread makes while others wait for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: object = _NOTHING


class Kept(Generic[Key, Value]):
    """Values by their keys; beyond `limit` the one that was not used for longest goes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._slots: dict[Key, _Slot] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key, made if it is not there; what `make` raises is not kept."""
        with self._lock:
            slot = self._slots.pop(key, None) or _Slot()
            self._slots[key] = slot
            if len(self._slots) > self._limit:
                del self._slots[next(iter(self._slots))]
        if slot.value is _NOTHING:
            with slot.lock:
                if slot.value is _NOTHING:
                    slot.value = self._made(key, make)
        return cast("Value", slot.value)

    def known(self, key: Key) -> Value | None:
        """The value of a key, or None where there is none."""
        with self._lock:
            slot = self._slots.pop(key, None)
            if slot is None:
                return None
            self._slots[key] = slot
        return None if slot.value is _NOTHING else cast("Value", slot.value)

    def _made(self, key: Key, make: Callable[[], Value]) -> Value:
        try:
            return make()
        except BaseException:
            with self._lock:
                self._slots.pop(key, None)
            raise
