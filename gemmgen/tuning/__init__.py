"""Schedules measured on the user's own device: the space of them, the search, and what is kept of it.

`space` declares what can be tried, `order` puts it in an order by the cost models, `measure` checks and times one
schedule, `study` searches, `records` keeps what was measured, and `recorded` is what `gemmgen.gemm` and the commands
ask before they choose.
Nothing heavy is imported here.
"""

from __future__ import annotations

from pathlib import Path

from gemmgen.runtime import cache

#: Records that come with gemmgen: a file a device, named after its backend.
SHIPPED = Path(__file__).with_name("shipped")


def folder() -> Path:
    """Where records are kept, in the user's data folder."""
    return cache.user_data("gemmgen") / "tuned"


def stamps() -> tuple[tuple[str, int, int], ...]:
    """What changes with the user's files of records."""
    found = ((path.name, path.lstat()) for path in sorted(folder().glob("*.jsonl")))
    return tuple((name, about.st_mtime_ns, about.st_size) for name, about in found)


def is_off() -> bool:
    """Whether the user has turned records off, as disk caches are (`GEMMGEN_NO_CACHE`)."""
    return cache.is_off("tuned")


def shipped(backend: str) -> list[Path]:
    """The files of records that come with gemmgen, of devices of a backend."""
    return sorted(SHIPPED.glob(f"{backend}-*.jsonl"))


def has_records(backend: str) -> bool:
    """Whether anything was ever measured or imported, or comes with gemmgen for devices of a backend: if not, nothing
    else of this package need be imported.
    """
    return not is_off() and (bool(shipped(backend)) or any(folder().glob("*.jsonl")))
