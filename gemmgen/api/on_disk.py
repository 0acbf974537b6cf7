"""What takes long to work out and is small, kept on disk for processes to come: which schedule computes a product, and
its source. A start from there imports neither the passes nor the printers.

An answer is kept as JSON: records by the names of their classes and fields. It is found by its question: what it was
worked out from, gemmgen's own files and Python's version, so that nothing of another version is ever found. What is
damaged, or no file of this user alone, is worked out anew. `GEMMGEN_NO_CACHE=1` leaves the disk alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from itertools import count
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

import gemmgen
from gemmgen import schedule, source, spec
from gemmgen.errors import LoweringError, UserError
from gemmgen.ir import dtypes, expr, workspace
from gemmgen.runtime.cache import DiskCache, digest
from gemmgen.runtime.kept import once

Answer = TypeVar("Answer")
#: What JSON has for it.
Written: TypeAlias = "bool | int | float | str | list[Written] | dict[str, Written] | None"

#: Answers that a process leaves behind: those of its start, not of each size that it ever meets.
MOST_WRITTEN = 64
#: The records that answers are made of, by name.
RECORDS: dict[str, type] = {
    name: record
    for module in (schedule, source, spec, dtypes, expr, workspace)
    for name, record in vars(module).items()
    if isinstance(record, type) and is_dataclass(record)
}

_cache = DiskCache("answers")
#: Numbers those that a process writes.
_written = count()


def remembered(question: str, about: tuple[object, ...], work_out: Callable[[], Answer]) -> Answer:
    """The answer to a question, from disk or worked out.

    Args:
        question: in a word; an answer to it is always of one type: numbers, texts, records of such, tuples, sets.
        about: all that the answer depends on: numbers, texts, records of such.
    """
    if _cache.is_off:
        return work_out()
    asked = digest(question, _told((about, _made_by())))
    kept = _cache.read(question, asked)
    if kept is not None:
        # Of our own making, and whole; but another process may have run other code.
        try:
            return cast("Answer", _read(cast("Written", json.loads(kept))))
        except (UserError, ValueError, TypeError, LookupError):
            pass
    answer = work_out()
    if next(_written) < MOST_WRITTEN:
        _cache.write(question, asked, json.dumps(_as_written(answer)).encode())
    return answer


def _told(value: object) -> str:
    """A value in words that are the same in every process, as those of sets are not."""
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}({', '.join(_told(getattr(value, field.name)) for field in fields(value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_told, value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_told, value))},)"
    return repr(value)


@once
def _made_by() -> tuple[object, ...]:
    """gemmgen's version, when each of its files was last written and how long it is, and Python's version."""
    package = Path(gemmgen.__file__).parent
    found: list[tuple[str, int, int]] = []
    # In a checkout templates stand beside the package.
    for root in (package, package.parent / "templates"):
        for folder, names, files in os.walk(root):
            names[:] = [name for name in names if name not in ("__pycache__", "generated")]
            for path in (os.path.join(folder, file) for file in files):  # noqa: PTH118  (hundreds, at each start)
                about = os.stat(path)  # noqa: PTH116
                found.append((path, about.st_mtime_ns, about.st_size))
    return gemmgen.__version__, sys.version, tuple(sorted(found))


def _as_written(value: object) -> Written:
    """A value as JSON has it: a tuple is a list; all that JSON lacks is an object of one key, which says what it is."""
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
    if RECORDS.get(name) is not type(value):
        raise LoweringError(f"an answer holds a {name}, which is no record that can be kept")
    held = fields(cast("source.Source", value))
    return {name: {field.name: _as_written(getattr(value, field.name)) for field in held}}


def _read(written: Written) -> object:
    """The value again. Raises: UserError, TypeError, LookupError, ValueError for what is none."""
    if isinstance(written, list):
        return tuple(map(_read, written))
    if not isinstance(written, dict):
        return written
    ((name, content),) = written.items()
    if isinstance(content, dict):
        return RECORDS[name](**{key: _read(x) for key, x in content.items()})
    values = cast("tuple[float, float]", _read(content))
    return complex(*values) if name == "complex" else frozenset(values)
