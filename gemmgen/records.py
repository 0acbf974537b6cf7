"""Records: dataclasses that are quick to define, properties worked out once, what fields must hold, and what to say of
values of other kinds.

The standard library compiles five methods of each frozen dataclass at its definition, which takes 0.6 ms. A first call
defines some 50 and uses few of their methods. Here a method is compiled when it is first called.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

#: What a field must hold, in words, and whether a value is that.
Kind = tuple[str, Callable[[object], bool]]


def is_whole(value: object) -> bool:
    """Whether it is an `int` and neither a bool nor one of NumPy's, which would reach the emitted text."""
    return type(value) is int


KINDS: Mapping[str, Kind] = {
    "int": ("a whole number, such as 8", is_whole),
    "bool": ("True or False", lambda x: isinstance(x, bool)),
    "tuple[int, int]": (
        "two whole numbers, such as (8, 4)",
        lambda x: isinstance(x, tuple) and len(x) == 2 and all(map(is_whole, x)),
    ),
}


def field_problems(record: object, kinds: Mapping[str, Kind]) -> list[str]:
    """One sentence for each field whose value is not of the kind that its annotation names.

    Args:
        record: a dataclass of a module with `from __future__ import annotations`.
        kinds: annotation -> kind, for those that `KINDS` does not have; ` | None` is understood.
    """
    record_type = type(record)
    if record_type not in _EXPECTED:
        _EXPECTED[record_type] = tuple(_expected(record_type, {**KINDS, **kinds}))
    problems = []
    for name, words, holds, optional in _EXPECTED[record_type]:
        value = getattr(record, name)
        if not (holds(value) or (optional and value is None)):
            problems.append(f"{name} = {value!r}: give {words}")
    return problems


#: Of each field its name, what it must hold in words and as a test, and whether it may be None; by the record's type.
_EXPECTED: dict[type, tuple[tuple[str, str, Callable[[object], bool], bool], ...]] = {}


def _expected(
    record_type: type, known: Mapping[str, Kind]
) -> Iterator[tuple[str, str, Callable[[object], bool], bool]]:
    for item in dataclasses.fields(record_type):
        annotation = str(item.type)
        optional = annotation.endswith(" | None")
        words, holds = known[annotation.removesuffix(" | None")]
        yield item.name, words + (", or None" if optional else ""), holds, optional


# --- dataclasses ----------------------------------------------------------------------------------

if TYPE_CHECKING:  # type checkers know the standard library's
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  (exported)
    from functools import cached_property as cached_property  # noqa: PLC0414, TID251  (exported)
else:

    class cached_property:  # noqa: N801  (as the standard library's)
        """`functools.cached_property` without its lock, which before Python 3.12 all objects of a class share: of two
        threads that emit kernels, each would hold one class's lock and wait for the other's, for good. Here both may
        make a value; they are equal.
        """

        def __init__(self, make):
            self._make = make
            self.__doc__ = make.__doc__

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, record, owner=None):
            if record is None:
                return self
            value = record.__dict__[self._name] = self._make(record)
            return value

    def dataclass(cls=None, /, *, frozen=False, eq=True, slots=False, weakref_slot=False):
        """`dataclasses.dataclass` with methods that are compiled when they are first called. `fields`, `replace` and
        `asdict` are the standard library's.
        """
        if cls is None:
            return partial(dataclass, frozen=frozen, eq=eq, slots=slots, weakref_slot=weakref_slot)
        own = set(vars(cls))
        cls.__doc__ = cls.__doc__ or cls.__name__  # the standard library looks at the signature for one
        define = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, weakref_slot=weakref_slot)
        record = define(cls)
        methods = {"__init__": _late(record, "__init__", partial(_init, frozen)), "__repr__": _repr}
        if eq:
            methods["__eq__"] = _late(record, "__eq__", _eq)
            methods["__hash__"] = _late(record, "__hash__", _hash) if frozen else None
        if frozen:
            methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
        if frozen and slots:
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        for name in methods.keys() - own:
            setattr(record, name, methods[name])
        record.__signature__ = _Signature()
        return record


def _late(record: type, name: str, make: Callable[[type], Callable[..., object]]) -> Callable[..., object]:
    """A method that makes the one that takes its place."""

    def method(self: object, *args: object, **named: object) -> object:
        made = make(record)
        setattr(record, name, made)
        return made(self, *args, **named)

    method.make = partial(make, record)  # type: ignore[attr-defined]
    return method


def _compiled(
    record: type, name: str, parameters: Sequence[str], lines: Sequence[str], scope: dict[str, object]
) -> Callable[..., object]:
    text = "\n    ".join([f"def {name}({', '.join(parameters)}):", *lines])
    exec(text, scope)
    made = scope[name]
    made.__qualname__ = f"{record.__qualname__}.{name}"  # type: ignore[attr-defined]
    return made  # type: ignore[return-value]


def _init(frozen: bool, record: type) -> Callable[..., object]:
    parameters, lines = ["self"], list[str]()
    scope: dict[str, object] = {"_put": object.__setattr__, "_missing": dataclasses.MISSING}
    for item in dataclasses.fields(record):
        name, default, value = item.name, f"_default_{item.name}", item.name
        if item.default_factory is not dataclasses.MISSING:
            scope[default] = item.default_factory
            parameters += [f"{name}=_missing"] if item.init else []
            value = f"{default}() if {name} is _missing else {name}" if item.init else f"{default}()"
        elif item.default is not dataclasses.MISSING:
            scope[default] = item.default
            parameters += [f"{name}={default}"] if item.init else []
            value = name if item.init else default
        elif item.init:
            parameters.append(name)
        else:
            continue
        lines.append(f"_put(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(record, "__post_init__"):
        lines.append("self.__post_init__()")
    made = _compiled(record, "__init__", parameters, lines or ["pass"], scope)
    made.__annotations__ = {**{x.name: x.type for x in dataclasses.fields(record) if x.init}, "return": None}
    return made


def _compared(record: type, of: str) -> str:
    """The tuple of what counts for `==` and `hash`, as text."""
    return f"({''.join(f'{of}.{x.name}, ' for x in dataclasses.fields(record) if x.compare)})"


def _eq(record: type) -> Callable[..., object]:
    both = f"{_compared(record, 'self')} == {_compared(record, 'other')}"
    lines = ["if other.__class__ is self.__class__:", f"    return {both}", "return NotImplemented"]
    return _compiled(record, "__eq__", ["self", "other"], lines, {})


def _hash(record: type) -> Callable[..., object]:
    return _compiled(record, "__hash__", ["self"], [f"return hash({_compared(record, 'self')})"], {})


def _repr(self: object) -> str:
    shown = (f"{x.name}={getattr(self, x.name)!r}" for x in dataclasses.fields(self) if x.repr)  # type: ignore[arg-type]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: object, name: str, *value: object) -> NoReturn:
    verb = "assign to" if value else "delete"
    raise dataclasses.FrozenInstanceError(f"cannot {verb} field {name!r} of {type(self).__name__}: use `replace`")


def _state(self: object) -> list[object]:
    return [getattr(self, x.name) for x in dataclasses.fields(self)]  # type: ignore[arg-type]


def _set_state(self: object, state: Sequence[object]) -> None:
    for item, value in zip(dataclasses.fields(self), state, strict=True):  # type: ignore[arg-type]
        object.__setattr__(self, item.name, value)


class _Signature:
    """What a class takes, for editors and `help`: compiled once they ask."""

    def __get__(self, instance: object, record: type) -> object:
        if instance is not None:
            return None
        from inspect import signature

        init = record.__init__  # type: ignore[misc]
        found = signature(getattr(init, "make", lambda: init)())
        return found.replace(parameters=[*found.parameters.values()][1:])
