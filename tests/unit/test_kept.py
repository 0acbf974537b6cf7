"""Values that are made once: by one thread alone, whoever asks at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from gemmgen.runtime.cache import Kept, once

THREADS = 8


def test_threads_that_ask_at_once_get_one_value() -> None:
    made: list[int] = []
    together = threading.Barrier(THREADS)

    @once
    def value(key: int) -> object:
        made.append(key)
        threading.Event().wait(0.02)
        return object()

    def ask(_: int) -> object:
        together.wait()
        return value(3)

    with ThreadPoolExecutor(THREADS) as pool:
        assert len(set(pool.map(ask, range(THREADS)))) == 1
    assert made == [3]
    assert value(4) is not value(3)
    assert made == [3, 4]


def test_nothing_is_a_value() -> None:
    made: list[int] = []

    @once
    def value() -> None:
        made.append(1)

    assert value() is None
    assert value() is None
    assert made == [1]


def test_after_a_failure_one_thread_tries_again() -> None:
    """Of those that waited for the one which failed, not each by itself."""
    tries: list[int] = []
    together, kept = threading.Barrier(THREADS), Kept[str, object](4)

    def make() -> object:
        tries.append(1)
        threading.Event().wait(0.02)
        if len(tries) == 1:
            raise ValueError("the first")
        return object()

    def ask(_: int) -> object:
        together.wait()
        try:
            return kept.get("x", make)
        except ValueError:
            return None

    with ThreadPoolExecutor(THREADS) as pool:
        got = list(pool.map(ask, range(THREADS)))
    assert got.count(None) == 1
    assert len(set(got)) == 2
    assert len(tries) == 2


def test_what_was_not_used_for_longest_goes() -> None:
    kept: Kept[int, int] = Kept(4)
    for key in (0, 1, 2, 3, 0, 4):
        kept.get(key, partial(int, key))
    assert kept.known(1) is None
    assert kept.known(0) == 0
    with pytest.raises(ZeroDivisionError):
        kept.get(9, lambda: 1 // 0)
    assert kept.known(9) is None
