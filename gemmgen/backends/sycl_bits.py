"""SYCL with 16-bit floats in integers, for devices and compilers that have no such types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from gemmgen.backends.sycl import Sycl
from gemmgen.backends.sycl_types import BY_BITS, Elements
from gemmgen.ir.workspace import Workspace


class SyclByBits(Sycl):
    """What is different: names and conversions of types, and what a device need not have."""

    elements: ClassVar[Elements] = BY_BITS
    types: ClassVar[Mapping[str, str]] = elements.types

    def fields(self, kernels: Sequence[Self], workspaces: Sequence[Workspace]) -> Mapping[str, object]:
        fields = super().fields(kernels, workspaces)
        standard = fields["standard"]
        assert isinstance(standard, list)
        return {**fields, "standard": sorted([*standard, "cstdint"])}

    def needs(self) -> frozenset[str]:
        return super().needs() - {"fp16"}
