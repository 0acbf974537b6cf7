"""Tiles of multiply-adds for few rows or columns, copied and read along K where lines lie so, and of other sizes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.checks.capacity import depth_of_tiles, register_bytes
from gemmgen.choice.designs import of_few_rows, of_other_sizes
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import TARGETS
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.problems import check_products, lowered

TARGET = TARGETS["sm_80"]
#: K of whole steps, with a rest, odd, and shorter than a step; C of whole blocks, and of parts.
SIZES = ((32, 128, 64), (19, 70, 44), (33, 129, 37), (5, 3, 9))


def designs(a_order: Order, b_order: Order) -> tuple[GemmSpec, tuple[Schedule, ...]]:
    spec = GemmSpec(a_order=a_order, b_order=b_order)
    return spec, of_few_rows(spec, TARGET)


@pytest.mark.parametrize(
    ("a_order", "b_order", "rows", "columns"),
    # Copies of four elements do not fit two rows, where A's lines lie across K.
    [("row", "col", 8, 8), ("row", "row", 12, 8), ("col", "row", 10, 10)],
)
def test_there_are_some_for_few_rows_and_for_few_columns(
    a_order: Order, b_order: Order, rows: int, columns: int
) -> None:
    _, found = designs(a_order, b_order)
    high, wide = zip(*(x.block_tile for x in found), strict=True)
    assert sum(a < b for a, b in zip(high, wide, strict=True)) == rows
    assert sum(a > b for a, b in zip(high, wide, strict=True)) == columns


@pytest.mark.parametrize("orders", [("row", "col"), ("row", "row"), ("col", "col"), ("col", "row")], ids="-".join)
def test_products(orders: tuple[Order, Order], rng: np.random.Generator) -> None:
    spec, found = designs(*orders)
    for schedule in found[:: max(1, len(found) // 3)]:
        check_products(lowered(spec, schedule, TARGET), spec, rng, *SIZES)


@pytest.mark.parametrize(("order", "name"), [("col", "b"), ("row", "a")])
def test_lines_are_copied_and_read_by_vectors(order: Order, name: str) -> None:
    """No element of the long matrix is copied by itself, where lines of the matrix are vectors."""
    spec, found = designs("row", order)
    long = [x for x in found if x.operand(name).transposed == (name == "b")]
    text = driver.emit(spec, long[-1] if name == "a" else long[0], "cuda").text
    side, own = ("row", "TM") if name == "a" else ("col", "TN")
    assert f"cp_async_16_zfill(\n                        &shared.{name}[load_stage][{name}_{side}" in text
    load = rf"copy4\({name}_frag\[\w\], &shared\.{name}\[stage\]\[[^\]]+\]\[kk\]\);"
    assert re.search(rf"< {own}; \+\+\w+\) {{\s+{load}", text)
    assert "read along K by 4" in text.replace("\n//            ", " ")


def test_a_thread_holds_four_elements_along_k() -> None:
    spec, (first, *_) = designs("row", "col")
    assert depth_of_tiles(spec, first) == 4
    across = first.but(a=replace(first.a, transposed=True), b=replace(first.b, transposed=False))
    assert depth_of_tiles(spec, across) == 1
    rows, cols = first.tile
    assert register_bytes(spec, first) - register_bytes(spec, across) == 3 * (rows + cols) * 4
    odd = first.but(a=across.a, b=replace(first.b, pad=1))
    assert depth_of_tiles(spec, odd) == 1, "lines of the tile begin at no vectors"


def test_lines_of_two_elements_are_read_by_twos(rng: np.random.Generator) -> None:
    """B's lines are multiples of four, A's of two: a read of four began within a vector."""
    spec, (first, *_) = designs("row", "col")
    mixed = first.but(a=replace(first.a, transposed=False, width=1, pad=2), thread_vector=(1, 1))
    assert depth_of_tiles(spec, mixed) == 4
    program = lowered(spec, mixed, TARGET)
    check_products(program, spec, rng, (19, 70, 44))
    text = driver.emit(spec, mixed, "cuda", TARGET).text
    assert re.search(r"copy2\(&a_frag\[\w\]\[\w \* 2\],\s+&shared\.a", text)


def test_slots_alternate_over_whole_reads() -> None:
    """Three steps of four elements: the first of the next tile overwrote what was still to be multiplied."""
    spec, (first, *_) = designs("row", "col")
    odd = first.but(block_k=12, register_stages=2, across_tiles=True)
    said = "block_k = 12 has an odd number of inner steps of 4: use a multiple of 8"
    with pytest.raises(ScheduleError, match=said):
        driver.emit(spec, odd, "cuda", TARGET)
    assert "cp_async_16" in driver.emit(spec, odd.but(block_k=16), "cuda", TARGET).text


def test_where_registers_do_not_hold_vectors_fewer_are_read() -> None:
    """Tiles that were legal stay so."""
    spec, (first, *_) = designs("row", "col")
    large = first.but(tile=(8, 16), group=(4, 8), lane_arrangement=(4, 8), block_k=16, register_stages=2)
    assert depth_of_tiles(spec, large) == 2
    assert "cp_async_16" in driver.emit(spec, large, "cuda", TARGET).text
    assert depth_of_tiles(GemmSpec(dtype="int8"), first) == 4, "no reads of more than four elements"


@pytest.mark.parametrize("orders", [("row", "row"), ("row", "col"), ("col", "row")], ids="-".join)
def test_blocks_of_other_sizes(orders: tuple[Order, Order], rng: np.random.Generator) -> None:
    a_order, b_order = orders
    spec = GemmSpec(a_order=a_order, b_order=b_order)
    sizes = {(64, 80), (80, 64), (96, 128), (128, 96), (128, 64)}
    found = [x for x in of_other_sizes(spec, TARGET) if x.block_tile in sizes]
    assert {x.block_tile for x in found} == sizes
    for schedule in found:
        check_products(lowered(spec, schedule, TARGET), spec, rng, (97, 81, 33), (5, 3, 9))


@pytest.mark.parametrize(("tile", "group", "name"), [((4, 1), (1, 64), "BN"), ((1, 4), (64, 1), "BM")])
def test_a_tile_of_one_row_or_column(tile: tuple[int, int], group: tuple[int, int], name: str) -> None:
    """Text named the tile of one column, TN, which nothing defined; and BN could change though no loop went over it."""
    spec, (first, *_) = designs("row", "col")
    base = first.but(
        tile=tile, group=group, lane_arrangement=None, thread_vector=(1, 1), c_width=1, serpentine=False, name=None
    )
    text = driver.emit(spec, base, "cuda", TARGET).text
    defined = set(re.findall(r"\b([A-Z][A-Z_]+) =", text))
    assert set(re.findall(r"\b[TB][MNK]\b", text.partition("namespace")[2])) <= defined
    assert f'static_assert({name} == 64, "{name} cannot change here' in text
