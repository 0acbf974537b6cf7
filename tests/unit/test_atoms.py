"""Fragments are bijections, and their symbolic form says the same as their table."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gemmgen.ir.copy_instructions import IMAGE_BLOCK_READ, SCALAR, VECTOR, AxisLayout, ThreadValueLayout, block_read
from gemmgen.ir.expr import Const, Var
from gemmgen.ir.walk import evaluate

LANE, VALUE = Var("lane"), Var("value")


@st.composite
def spreads(draw: st.DrawFn) -> AxisLayout:
    run = draw(st.integers(1, 4))
    return AxisLayout(run * draw(st.integers(1, 4)), draw(st.integers(1, 8)), run, LANE)


@given(spreads())
def test_a_spread_holds_each_element_once(spread: AxisLayout) -> None:
    held = [spread.element(lane, value) for lane in range(spread.lanes) for value in range(spread.values)]
    assert sorted(held) == list(range(spread.extent))


@given(spreads())
def test_owner_is_the_inverse_of_element(spread: AxisLayout) -> None:
    for element in range(spread.extent):
        assert spread.element(*spread.owner(element)) == element


@given(spreads())
def test_start_and_step_say_the_same_as_element(spread: AxisLayout) -> None:
    place = spread.start + spread.step(VALUE)
    for lane in range(spread.lanes):
        for value in range(spread.values):
            assert evaluate(place, {"lane": lane, "value": value}) == spread.element(lane, value)


@given(spreads(), st.data())
def test_chunks_begin_where_their_first_register_lies(spread: AxisLayout, data: st.DataObject) -> None:
    width = data.draw(st.sampled_from([w for w in range(1, spread.vector + 1) if spread.vector % w == 0]))
    for chunk in range(spread.values // width):
        at = evaluate(spread.start + spread.chunk_step(VALUE, width), {"lane": 0, "value": chunk})
        assert [at + e for e in range(width)] == [spread.element(0, chunk * width + e) for e in range(width)]


@given(spreads(), spreads())
def test_a_fragment_holds_each_element_once(rows: AxisLayout, cols: AxisLayout) -> None:
    fragment = ThreadValueLayout(rows, cols)
    height, width = fragment.shape
    assert sorted(fragment.table().values()) == [(row, col) for row in range(height) for col in range(width)]


def test_a_transposed_fragment_swaps_the_index_only() -> None:
    plain, swapped = (
        ThreadValueLayout(AxisLayout(2), AxisLayout(3)),
        ThreadValueLayout(AxisLayout(2), AxisLayout(3), transposed=True),
    )
    assert plain.table() == swapped.table()
    assert plain.place(Const(0), Const(1)) == swapped.place(Const(0), Const(1))[::-1]


def test_footprints() -> None:
    assert SCALAR.footprint(1, 8) == (1, 1)
    assert VECTOR.footprint(4, 8) == (1, 4)
    assert block_read(8).footprint(4, 8) == (1, 32)
    assert IMAGE_BLOCK_READ.footprint(4, 8) == (4, 8)
