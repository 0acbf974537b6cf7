"""Files under version control that hold what gemmgen emits."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest

DIFF_LINES = 60


@dataclass(frozen=True)
class Golden:
    """Compares text with files under version control, or rewrites these."""

    root: Path
    update: bool

    def check(self, path: Path, text: str) -> None:
        """Fails with a diff unless the file at `path` holds exactly `text`."""
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            return
        name = path.relative_to(self.root)
        if not path.exists():
            pytest.fail(f"{name} is missing: `pytest --update-golden` writes it", pytrace=False)
        stored = path.read_bytes()
        if stored != text.encode():
            diff = difflib.unified_diff(
                stored.decode(errors="replace").splitlines(), text.splitlines(), f"{name} (stored)", "now", lineterm=""
            )
            shown = "\n".join(islice(diff, DIFF_LINES)) or "only line ends or the end of the file differ"
            pytest.fail(f"{shown}\n\nIf that is meant, `pytest --update-golden` accepts it.", pytrace=False)

    def check_no_orphans(self, paths: Iterable[Path], expected: set[Path]) -> None:
        """Fails if one of `paths` is not expected; deletes it if goldens are being rewritten."""
        orphans = sorted(set(paths) - expected)
        if self.update:
            for orphan in orphans:
                orphan.unlink()
        elif orphans:
            names = ", ".join(str(orphan.relative_to(self.root)) for orphan in orphans)
            pytest.fail(f"nothing emits {names}: `pytest --update-golden` deletes them", pytrace=False)
