"""What tiles ask of caches, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen import candidates, presets
from gemmgen.inspect.bounds import cache_needs, traffic
from gemmgen.inspect.machine import machines
from gemmgen.ir.dtypes import I8


def test_bytes_of_a_flop() -> None:
    """A sub-group reads 32 + 64 elements for 32 x 64 multiply-adds; a work-group 256 + 256 for 256 x 256."""
    preset = presets.load("dpas_32x4_8x64_block_2d")
    found = traffic(preset.spec, preset.schedule)
    assert found is not None
    assert (found.l1, found.l2) == ((32 + 64) * 2 / (2 * 32 * 64), (256 + 256) * 2 / (2 * 256 * 256))
    assert traffic(preset.spec, presets.load("smem_8x8").schedule) is None


@pytest.mark.parametrize(
    ("name", "of_l2"),
    [
        # 1,024 cores of 512 operations at 1.6 GHz: 838.9 TFLOP/s, each of which takes 1/128 or 1/64 byte.
        ("dpas_32x4_8x64_block_2d", "6.6 TB/s from L2 at the matrix units' peak; 13.0 TB/s published, enough for 1.00"),
        (
            "dpas_32x4_4x32_block_2d",
            "13.1 TB/s from L2 at the matrix units' peak; 13.0 TB/s published, enough for 0.99",
        ),
    ],
)
def test_beside_what_was_published(name: str, of_l2: str) -> None:
    preset = candidates.load(name)
    first, second = cache_needs(machines()["pvc"], traffic(preset.spec, preset.schedule))
    assert first.startswith("tiles take 39.3 TB/s from L1") and "105.0 TB/s published" in first
    assert of_l2 in second
    # int8: twice the operations of half the bytes.
    of_bytes = traffic(replace(preset.spec, dtype=I8, c_dtype=None), preset.schedule)
    assert list(cache_needs(machines()["pvc"], of_bytes)) == [first, second]


def test_where_nothing_was_published() -> None:
    preset = presets.load("dpas_32x4_8x64_block_2d")
    asked = traffic(preset.spec, preset.schedule)
    assert all("not published" in line for line in cache_needs(machines()["bmg"], asked))
    assert not list(cache_needs(machines()["tgllp"], asked))
