"""The file of generated/blas: the exported library's source."""

from __future__ import annotations

from tests.support.blas import source
from tests.support.golden import Golden


def test_source_of_the_blas(golden: Golden) -> None:
    golden.check(golden.root / "generated" / "blas" / "gemmgen_blas.c", source())
