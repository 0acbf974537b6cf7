"""From what a user writes (`--tile 32x2`, `--set a.width=4`, TOML) to a schedule, with every problem at once."""

from gemmgen.options.documents import Document, read_document, schedule_from_toml, schedule_to_toml
from gemmgen.options.schedules import FIELDS, build_schedule, parse_value, suggest
from gemmgen.options.specs import build_spec

__all__ = [
    "FIELDS",
    "Document",
    "build_schedule",
    "build_spec",
    "parse_value",
    "read_document",
    "schedule_from_toml",
    "schedule_to_toml",
    "suggest",
]
