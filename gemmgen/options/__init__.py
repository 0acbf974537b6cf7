"""From what a user writes (`--tile 32x2`, `--set a.width=4`, TOML) to a schedule, with every problem at once."""

from gemmgen.options.documents import (
    Document,
    document_of,
    read_document,
    read_text,
    schedule_of,
    schedule_to_toml,
    spec_of,
)
from gemmgen.options.schedules import DEFAULT_METHOD, FIELDS, build_schedule, parse_value
from gemmgen.options.specs import build_spec

__all__ = [
    "DEFAULT_METHOD",
    "FIELDS",
    "Document",
    "build_schedule",
    "build_spec",
    "document_of",
    "parse_value",
    "read_document",
    "read_text",
    "schedule_of",
    "schedule_to_toml",
    "spec_of",
]
