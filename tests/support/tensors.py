"""torch for tests, which is no dependency of theirs."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.support.skips import TORCH


def need_torch() -> ModuleType:
    """torch; skips the test, or the file, where it is not installed."""
    module: ModuleType = pytest.importorskip("torch", reason=TORCH)
    return module
