"""Schedules measured on the user's own device: the space of them, the search, and what is kept of it.

`space` declares what can be tried, `prior` orders it, `measure` checks and times one schedule, `study` searches,
`records` keeps what was measured, and `recorded` is what `gemmgen.gemm` and the commands ask before they choose.
Nothing heavy is imported here.
"""

from __future__ import annotations

import os
from pathlib import Path

from gemmgen.runtime.cache import OFF


def folder() -> Path:
    """Where records are kept, in the user's data folder."""
    import platformdirs

    return platformdirs.user_data_path("gemmgen") / "tuned"


def is_off() -> bool:
    """Whether the user has turned records off, as disk caches are (`GEMMGEN_NO_CACHE`)."""
    return not {"1", "tuned"}.isdisjoint(os.environ.get(OFF, "").split(","))


def has_records() -> bool:
    """Whether anything was ever measured or imported: if not, nothing else of this package need be imported."""
    return not is_off() and any(folder().glob("*.jsonl"))
