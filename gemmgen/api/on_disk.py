"""The disk cache of answers: chosen schedules and emitted sources. With it, a start imports neither the passes nor the
printers.

An answer is stored as JSON, with records by the names of their classes and fields. Its key consists of its inputs, of
gemmgen's own files and of Python's version, so answers of other versions are never found. An answer is computed again
if its file is damaged, or not the user's own. `GEMMGEN_NO_CACHE=1` turns the cache off.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import TypeAlias, TypeVar, cast

import gemmgen
from gemmgen import source, spec
from gemmgen.errors import LoweringError, UserError
from gemmgen.ir import dtypes, expr, sizes
from gemmgen.runtime.cache import DiskCache, digest, once

Answer = TypeVar("Answer")
#: A value as JSON represents it.
Written: TypeAlias = "bool | int | float | str | list[Written] | dict[str, Written] | None"

#: The most answers that a process writes: those of its start, not of every size that it meets.
MOST_WRITTEN = 64


_cache = DiskCache("answers")
#: Counts the answers that this process writes.
_written = count()


@once
def records() -> dict[str, type]:
    """The classes of records in most answers, by name."""
    return _records_of(source, spec, dtypes, expr, sizes)


@once
def _records_of_schedules() -> dict[str, type]:
    """Those of schedules. They are imported late, since a call whose source is known needs none."""
    from gemmgen import schedule

    members = {member.__name__: member for each in schedule.AXES.values() for member in each}
    return {**_records_of(schedule), **members}


def _records_of(*modules: ModuleType) -> dict[str, type]:
    return {
        name: record
        for module in modules
        for name, record in vars(module).items()
        if isinstance(record, type) and is_dataclass(record)
    }


def _record(name: str) -> type | None:
    """The class of a record by its name, if there is one."""
    return records().get(name) or _records_of_schedules().get(name)


def remembered(question: str, about: tuple[object, ...], work_out: Callable[[], Answer]) -> Answer:
    """An answer, from disk or computed.

    Args:
        question: one word for the kind of answer. Its answers have one type: numbers, strings, records of these,
            tuples, sets.
        about: all inputs of the answer: numbers, strings, records of these.
    """
    if _cache.is_off:
        return work_out()
    asked = digest(question, _told((about, _made_by())))
    kept = _cache.read(question, asked)
    if kept is not None:
        # The file is gemmgen's own and undamaged, but other code may have written it.
        try:
            return cast("Answer", read(kept.decode()))
        except (UserError, ValueError, TypeError, LookupError):
            pass
    answer = work_out()
    if next(_written) < MOST_WRITTEN:
        _cache.write(question, asked, written(answer).encode())
    return answer


def written(value: object) -> str:
    """A value as text, which can be passed on without importing what it is made of."""
    return json.dumps(_as_written(value))


def read(text: str) -> object:
    """The value that `written` has made a text of."""
    return _read(cast("Written", json.loads(text)))


def _told(value: object) -> str:
    """A value as text that is the same in every process. The order of a set's `repr` is not."""
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}({', '.join(_told(getattr(value, field.name)) for field in fields(value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_told, value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_told, value))},)"
    return repr(value)


@once
def _made_by() -> bytes:
    """What stands for gemmgen's version, the time and size of each of its files, and Python's version."""
    package = Path(gemmgen.__file__).parent
    found: list[tuple[str, int, int]] = []
    # In a checkout the templates are beside the package.
    for root in (package, package.parent / "templates"):
        for folder, names, files in os.walk(root):
            names[:] = [name for name in names if name not in ("__pycache__", "generated")]
            for path in (os.path.join(folder, file) for file in files):  # noqa: PTH118  (hundreds, at each start)
                about = os.stat(path)  # noqa: PTH116
                found.append((path, about.st_mtime_ns, about.st_size))
    return digest(gemmgen.__version__, sys.version, repr(sorted(found)))


def _as_written(value: object) -> Written:
    """A value for JSON. A tuple is a list; any other type that JSON lacks is an object with one key, its type."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case complex():
            return {"complex": [value.real, value.imag]}
        case tuple():
            return [_as_written(x) for x in value]
        case frozenset():
            return {"frozenset": sorted((_as_written(x) for x in value), key=repr)}
    name = type(value).__name__
    if _record(name) is not type(value):
        raise LoweringError(f"an answer holds a {name}, which is no record that can be kept")
    held = fields(cast("source.Source", value))
    return {name: {field.name: _as_written(getattr(value, field.name)) for field in held}}


def _read(written: Written) -> object:
    """The value from JSON. Raises: UserError, TypeError, LookupError, ValueError if it is not valid."""
    if isinstance(written, list):
        return tuple(map(_read, written))
    if not isinstance(written, dict):
        return written
    ((name, content),) = written.items()
    if isinstance(content, dict):
        record = _record(name)
        if record is None:
            raise LookupError(name)
        return cast(object, record(**{key: _read(x) for key, x in content.items()}))
    values = cast("tuple[float, float]", _read(content))
    return complex(*values) if name == "complex" else frozenset(values)
