"""torch for tests, which is no dependency of theirs."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from gemmgen.spec import GemmSpec
from tests.support.skips import TORCH

if TYPE_CHECKING:
    import torch


def need_torch() -> ModuleType:
    """torch; skips the test, or the file, where it is not installed."""
    module: ModuleType = pytest.importorskip("torch", reason=TORCH)
    return module


def placed(spec: GemmSpec, name: str, values: torch.Tensor, pad: int = 0) -> torch.Tensor:
    """A (`a`), B (`b`) or C (`c`) of these values as a spec has it in memory. Lines are `pad` elements longer than they
    need be, or more where their length is assumed to be a multiple; what lies between them is 1.
    """
    order = {"a": spec.a_order, "b": spec.b_order, "c": spec.c_order}[name]
    lines = values if order == "row" else values.T
    count, length = lines.shape
    whole = lines.new_empty((count, length + pad + -(length + pad) % spec.ld_unit(name)))
    whole.fill_(1)
    whole[:, :length] = lines
    return whole[:, :length] if order == "row" else whole[:, :length].T
