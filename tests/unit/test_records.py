"""Records are dataclasses in all that the rest of gemmgen relies on, but for when their methods are compiled."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
from dataclasses import field, replace

import pytest

from gemmgen.records import cached_property, dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    first: int
    second: str = "two"
    rest: list[int] = field(default_factory=list, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ValueError(self.first)


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    first: int
    second: str = "two"
    rest: list[int] = field(default_factory=list, compare=False, repr=False)


@dataclass
class Count:
    n: int = 0


@dataclass(frozen=True, slots=True)
class Doubled:
    n: int
    twice: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", 2 * self.n)


@dataclass
class Named(Count):
    name: str = ""

    def __repr__(self) -> str:
        return f"<{self.name}>"


def test_as_a_dataclass() -> None:
    pair, known = Pair(1, rest=[5]), Known(1, rest=[5])
    assert str(pair) == str(known).replace("Known", "Pair")
    assert hash(pair) == hash(known)
    assert pair == Pair(1) and pair != Pair(2) and pair.__eq__(known) is NotImplemented
    assert dataclasses.asdict(pair) == dataclasses.asdict(known)
    assert replace(pair, second="2") == Pair(1, "2")
    assert Pair(1).rest is not Pair(1).rest
    match pair:
        case Pair(first, second):
            assert (first, second) == (1, "two")


def test_copies() -> None:
    pair = Pair(3, "three", [3])
    for made in (pickle.loads(pickle.dumps(pair)), copy.copy(pair), copy.deepcopy(pair)):
        assert made == pair and made.rest == [3]


def test_fields_are_checked() -> None:
    with pytest.raises(ValueError, match="-1"):
        Pair(-1)
    with pytest.raises(TypeError, match="first"):
        Pair()  # type: ignore[call-arg]


def test_what_is_made_of_other_fields() -> None:
    assert Doubled(2).twice == 4 and replace(Doubled(2), n=3) == Doubled(3)


def test_of_another() -> None:
    assert Named(2, "two") == Named(2, "two") != Named(2, "three")
    assert repr(Named(2, "two")) == "<two>" and repr(Count(2)) == "Count(n=2)"
    count = Count()
    count.n += 1
    assert count == Count(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(count)


def test_a_method_is_compiled_when_it_is_called() -> None:
    @dataclass(frozen=True)
    class Late:
        n: int = 3

    defined = Late.__init__, Late.__eq__, Late.__hash__
    one, other = Late(), Late(4)
    assert Late.__init__ is not defined[0] and (Late.__eq__, Late.__hash__) == defined[1:]
    assert one != other and Late.__eq__ is not defined[1] and Late.__hash__ is defined[2]
    assert hash(one) == hash((3,)) and Late.__hash__ is not defined[2]


def test_what_is_frozen_stays() -> None:
    pair = Pair(1)
    for name in ("first", "new"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"assign to field '{name}' of Pair: use `replace`"):
            setattr(pair, name, 2)
    with pytest.raises(dataclasses.FrozenInstanceError, match="delete field 'first' of Pair"):
        del pair.first
    assert pair == Pair(1) and not hasattr(pair, "__dict__")


def test_signatures_are_those_of_a_dataclass() -> None:
    assert str(inspect.signature(Known)).startswith("(first: 'int', second: 'str' = 'two', rest: 'list[int]' = <")
    first, second, rest = inspect.signature(Pair).parameters.values()
    assert [first, second] == list(inspect.signature(Known).parameters.values())[:2]
    assert rest.name == "rest" and rest.default is not inspect.Parameter.empty
    assert str(inspect.signature(Doubled)) == "(n: 'int') -> None"
    with pytest.raises(TypeError, match=r"Pair.__init__\(\) missing 1 required positional argument: 'first'"):
        Pair()  # type: ignore[call-arg]


class Half:
    """One of two kinds of node whose text is made of the other kind's, as those of statements and expressions are."""

    def __init__(self, other: Half | None, begun: threading.Barrier | None = None) -> None:
        self.other, self.begun = other, begun

    def made(self) -> str:
        if self.begun is not None:
            self.begun.wait(10)
        return f"({self.other.text})" if self.other is not None else "1"

    @property
    def text(self) -> str:
        raise NotImplementedError


class Left(Half):
    text = cached_property(Half.made)


class Right(Half):
    text = cached_property(Half.made)


def test_threads_do_not_wait_for_each_others_properties() -> None:
    """Each is within a property of one class and asks for that of the other, which a lock of the class would hold."""
    begun = threading.Barrier(2)
    halves = Left(Right(None), begun), Right(Left(None), begun)
    threads = [threading.Thread(target=lambda half=half: half.text, daemon=True) for half in halves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert [vars(half)["text"] for half in halves] == ["(1)", "(1)"]
