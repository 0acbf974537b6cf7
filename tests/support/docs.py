"""What stands in the docs: their files, and the code that they print."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Pages that say how things are; notes and decisions say how they were.
PAGES = (
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name not in ("adr", "notebook")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
)


def page_name(page: Path) -> str:
    """What a test calls a page."""
    return str(page.relative_to(ROOT)).removeprefix("docs/")


def blocks(page: str, language: str) -> list[str]:
    """The code of a page of `docs` in a language."""
    return blocks_of(ROOT / "docs" / page, language)


def blocks_of(page: Path, language: str) -> list[str]:
    """The code of a page in a language."""
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
