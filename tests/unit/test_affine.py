"""What can be proved of coordinates: minima, conditions known as they are written, and what remains of others."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmgen.ir.affine import Knowledge, conjunction
from gemmgen.ir.expr import Bin, Const, Expr, Var, all_of, both, ceil_div, compare, minimum
from gemmgen.ir.walk import evaluate

K, STOP, X, Y, LD = Var("k"), Var("stop"), Var("x"), Var("y"), Var("lda")
EMPTY = Knowledge({}, {}, (), (8, 8), None)
WHOLE = compare("==", LD % 4, 0)


def test_a_minimum_is_not_above_either_side() -> None:
    end = minimum(X + 32, K)
    assert EMPTY.holds(end <= K)
    assert EMPTY.holds(end <= X + 32)
    assert EMPTY.holds(end < X + 33)
    assert not EMPTY.holds(end < K)
    assert not EMPTY.holds(end <= X + 31)
    assert not EMPTY.holds(end >= K)
    assert not EMPTY.holds(end >= X + 32)


def test_minima_of_minima() -> None:
    end = minimum(minimum(X + 32, K), Y)
    for bound in (X + 32, K, Y):
        assert EMPTY.holds(end <= bound)
    assert not EMPTY.holds(end < Y)


def test_a_loop_that_ends_at_a_minimum() -> None:
    """`for x in 0..min(64, k)`: what lies below its end lies below both."""
    scope = EMPTY.with_upper(X, minimum(Const(64), K) - 1)
    assert scope.holds(X < K)
    assert scope.holds(X < 64)
    assert not scope.holds(X < 63)
    assert not scope.holds(X + 1 < K)


def test_a_minimum_behind_a_name() -> None:
    scope = EMPTY.with_let(STOP, minimum(K, X + 8)).with_upper(Y, STOP - 1)
    assert scope.holds(Y < K)
    assert scope.holds(Y < X + 8)
    assert not scope.holds(Y < X + 7)


def test_a_minimum_taken_away_proves_nothing_more() -> None:
    """With the sign transposed, one side alone is not enough."""
    less = K - minimum(X, Y)
    assert EMPTY.holds(less >= K - X)
    assert not EMPTY.holds(less <= K - X)


terms = st.sampled_from([X, Y, K, X + 3, Y + 1, Const(2), Const(5)])
ends = st.recursive(
    terms, lambda inner: st.builds(minimum, inner, inner) | st.builds(lambda a, b: a + b, inner, inner), max_leaves=4
)


@given(ends, ends, st.sampled_from(["<", "<="]))
def test_what_is_proved_is_so(a: Expr, b: Expr, op: str) -> None:
    """Of all small values; what is not proved may be so all the same."""
    condition = compare(op, a, b)  # type: ignore[arg-type]
    if not isinstance(condition, Bin) or not EMPTY.holds(condition):
        return
    for x, y, k in itertools.product((0, 1, 2, 7), repeat=3):
        values = {"x": x, "y": y, "k": k}
        left, right = evaluate(a, values), evaluate(b, values)
        assert left < right if op == "<" else left <= right


# --- conditions that are known as they are written ------------------------------------------------


def test_what_is_not_linear_is_known_where_it_was_asked() -> None:
    assert not EMPTY.holds(WHOLE)
    inside = EMPTY.with_condition(both(X < K, WHOLE))
    assert inside.holds(WHOLE)
    assert inside.holds(both(WHOLE, X <= K))
    assert not inside.holds(compare("==", LD % 8, 0))
    assert not inside.holds(compare("!=", LD % 4, 0))
    assert not EMPTY.holds(WHOLE), "what holds inside says nothing outside"


def test_assumptions_are_known_everywhere() -> None:
    assumed = Knowledge({}, {}, (), (8, 8), None, (WHOLE,))
    assert assumed.holds(WHOLE)
    assert assumed.with_condition(X < K).holds(WHOLE)
    assert assumed.unproved(both(WHOLE, X < K)) == (X < K)


def test_what_a_multiple_divides_its_parts_divide() -> None:
    scope = EMPTY.with_condition(WHOLE)
    assert scope.holds(compare("==", LD % 2, 0))
    assert not scope.holds(compare("==", LD % 8, 0))
    assert not scope.holds(compare("==", X % 2, 0))
    assert not scope.holds(compare("==", LD % 2, 1))


def test_what_is_left_of_a_condition() -> None:
    inside = EMPTY.with_condition(X + 8 <= K)
    condition = all_of((X < K, WHOLE, Y < K))
    assert inside.unproved(condition) == both(WHOLE, Y < K)
    assert inside.unproved(X < K) == all_of(())
    assert EMPTY.unproved(condition) == condition
    assert list(conjunction(condition)) == [X < K, WHOLE, Y < K]


def test_a_condition_of_nothing_linear_is_not_contradicted() -> None:
    inside = EMPTY.with_condition(both(X < 4, WHOLE))
    assert inside.contradicts(both(WHOLE, Const(9) < X))
    assert not inside.contradicts(WHOLE)


@pytest.mark.parametrize("condition", [WHOLE, compare("!=", LD, 0), compare("==", X, Y)])
def test_an_equation_is_never_proved_from_nothing(condition: Expr) -> None:
    assert not EMPTY.holds(condition)
    assert not EMPTY.contradicts(condition)


# --- rounded up to whole tiles --------------------------------------------------------------------


def whole(size: Expr, unit: int) -> Expr:
    return ceil_div(size, unit) * unit


@pytest.mark.parametrize("ahead", [0, 64])
def test_a_tile_that_begins_inside_lies_in_whole_tiles(ahead: int) -> None:
    k, part, share, k0, kk = (Var(name) for name in ("k", "part", "share", "k0", "kk"))
    begin = part * (ceil_div(share, 7) * 32)
    for start in (Const(0), Const(96), begin):
        scope = (
            EMPTY.with_loop(k0, start, 32, k - 1).with_condition(k0 + ahead < k).with_loop(kk, Const(0), 1, Const(31))
        )
        place = k0 + kk + ahead
        assert scope.holds(place < whole(k, 32))
        assert not scope.holds(place < k)
        assert not scope.holds(place + 1 < whole(k, 32))
        assert not scope.holds(place + 32 < whole(k, 32))
        # Tiles twice as long end at other places.
        assert not scope.holds(k0 + kk + ahead + 32 < whole(k, 64))


def test_a_tile_that_begins_anywhere_does_not() -> None:
    k, k0, kk = Var("k"), Var("k0"), Var("kk")
    for start, step in ((Const(8), 32), (Const(0), 8), (Var("begin"), 32)):
        scope = EMPTY.with_loop(k0, start, step, k - 1).with_loop(kk, Const(0), 1, Const(31))
        assert not scope.holds(k0 + kk < whole(k, 32))
    # Without anything known of k, not even the first tile is there.
    assert not EMPTY.with_loop(kk, Const(0), 1, Const(31)).holds(kk < whole(k, 32))


LOOPS = list(itertools.product((0, 2, 4), (2, 4), (0, 2, 4), (0, 1, 4)))


@pytest.mark.parametrize(("start", "step", "ahead", "over"), LOOPS)
def test_what_is_proved_of_whole_tiles_is_so(start: int, step: int, ahead: int, over: int) -> None:
    """Against every value of a small loop."""
    k0, kk = Var("k0"), Var("kk")
    scope = EMPTY.with_loop(k0, Const(start), step, K - 1).with_condition(k0 + ahead < K)
    inside = k0 + kk + ahead + over < whole(K, 4)
    always = all(
        evaluate(inside, {"k": k, "k0": i, "kk": j})
        for k in range(20)
        for i in range(start, k, step)
        if i + ahead < k
        for j in range(4)
    )
    proved = scope.with_loop(kk, Const(0), 1, Const(3)).holds(inside)
    assert always or not proved
    assert proved == always or any(x % 4 for x in (start, step, ahead)), "of loops over whole tiles all is known"
