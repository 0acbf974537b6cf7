"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write a file of a cache. A cache that can't be written to is no error: the next process makes it again."""
    draft = None
    try:
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(draft).replace(path)
        draft = None
    except OSError:
        pass
    finally:
        if draft is not None:
            with suppress(OSError):
                Path(draft).unlink()
