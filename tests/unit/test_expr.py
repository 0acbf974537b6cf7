"""Expressions that fold as they are built mean what Python's arithmetic means."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmgen.errors import LoweringError
from gemmgen.ir.constants import Named, named, text_of
from gemmgen.ir.dtypes import BOOL
from gemmgen.ir.expr import (
    Bin,
    Const,
    Expr,
    Var,
    add,
    all_of,
    both,
    ceil_div,
    compare,
    div,
    minimum,
    mod,
    mul,
    select,
    sub,
)
from gemmgen.ir.walk import evaluate

NAMES = ("x", "y", "z")
X, Y = Var("x"), Var("y")
FALSE, TRUE = Const(0, BOOL), Const(1, BOOL)

#: An expression, and the same as a function of the values of `NAMES`.
Pair = tuple[Expr, Callable[[dict[str, int]], int]]

_leaves: st.SearchStrategy[Pair] = st.one_of(
    st.integers(0, 9).map(lambda n: (Const(n), lambda _values: n)),
    st.sampled_from(NAMES).map(lambda name: (Var(name), lambda values: values[name])),
)


def _combined(children: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    # All stays at or above zero, as division and remainder demand.
    by_two: dict[Callable[[Expr, Expr], Expr], Callable[[int, int], int]] = {
        add: operator.add,
        mul: operator.mul,
        minimum: min,
        lambda a, b: sub(add(a, b), b): lambda a, _b: a,
        lambda a, b: add(sub(add(a, 7), 3), b): lambda a, b: a + 4 + b,
        lambda a, b: select(compare("<", a, b), a, b): min,
        lambda a, b: select(compare("<=", a, b), sub(b, a), sub(a, b)): lambda a, b: abs(a - b),
    }
    by_number: dict[Callable[[Expr, int], Expr], Callable[[int, int], int]] = {
        div: operator.floordiv,
        mod: operator.mod,
        ceil_div: lambda a, n: -(-a // n),
        lambda a, n: div(mul(a, n), n): lambda a, _n: a,
        lambda a, n: mod(mul(a, 6 * n), 3 * n): lambda _a, _n: 0,
        lambda a, n: mul(mul(n, a), 5): lambda a, n: 5 * a * n,
    }

    def two(function: Callable[[Expr, Expr], Expr], left: Pair, right: Pair) -> Pair:
        means = by_two[function]
        return function(left[0], right[0]), lambda values: means(left[1](values), right[1](values))

    def number(function: Callable[[Expr, int], Expr], left: Pair, n: int) -> Pair:
        means = by_number[function]
        return function(left[0], n), lambda values: means(left[1](values), n)

    return st.one_of(
        st.builds(two, st.sampled_from(list(by_two)), children, children),
        st.builds(number, st.sampled_from(list(by_number)), children, st.integers(1, 9)),
    )


@given(
    st.recursive(_leaves, _combined, max_leaves=12),
    st.fixed_dictionaries({name: st.integers(0, 50) for name in NAMES}),
)
def test_folding_keeps_the_value(pair: Pair, values: dict[str, int]) -> None:
    expr, means = pair
    assert evaluate(expr, values) == means(values)


@pytest.mark.parametrize("op", ["<", "<=", "==", "!="])
@given(st.integers(), st.integers())
def test_comparisons_of_literals(op: str, a: int, b: int) -> None:
    holds = {"<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne}[op](a, b)
    assert compare(op, a, b) == Const(int(holds), BOOL)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("folded", "plain"),
    [
        (X + 0, X),
        (0 + X, X),
        (X + 2 + 3, X + 5),
        (X - 3 + 5, X + 2),
        (X + 2 - 2, X),
        (X - X, Const(0)),
        (X * 1, X),
        (X * 0, Const(0)),
        (4 * X, X * 4),
        (X * 2 * 3, X * 6),
        (X // 1, X),
        (X * 8 // 4, X * 2),
        (X % 1, Const(0)),
        (X * 8 % 4, Const(0)),
        (X * 2 // 4, X // 2),
        (X * 2 % 4, X % 2 * 2),
        ((X + 2) + Y, X + Y + 2),
        (minimum(X, X), X),
        (both(TRUE, X < Y), X < Y),
        (both(X < Y, TRUE), X < Y),
        (both(FALSE, X < Y), FALSE),
        (all_of(()), TRUE),
        (select(TRUE, X, Y), X),
        (select(FALSE, X, Y), Y),
    ],
)
def test_what_folds_away(folded: Expr, plain: Expr) -> None:
    assert folded == plain


def test_types() -> None:
    assert (X < Y).dtype == BOOL
    assert (X + Y).dtype == X.dtype
    assert isinstance(X + Y, Bin)


def test_what_is_no_number() -> None:
    with pytest.raises(LoweringError, match="is not a number"):
        evaluate(X + Y, {"x": 1})


def test_the_value_of_named_constants_is_a_plain_number() -> None:
    """Host code adds such numbers up at each call: with the names of constants that takes ten times as long."""
    assert type(evaluate(X, {"x": named("BM", 64)})) is int


_VALUES = {"BM": 64, "BK": 8, "STAGES": 4, "THREADS": 96}
BM, BK, STAGES, THREADS = (named(name, value, free=True) for name, value in _VALUES.items())


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (-(BM + 4), "-(BM + 4)"),
        ((1 - STAGES) * (BM + 4), "(1 - STAGES) * (BM + 4)"),
        ((BM + 4) * (STAGES - 1), "(STAGES - 1) * (BM + 4)"),
        ((1 - STAGES) * (BM + 4) * BK, "(1 - STAGES) * (BM + 4) * BK"),
        ((BM + 4) * (BK + 2), "(BM + 4) * (BK + 2)"),
        (BM * BK + BM * 2 + BK + 3, "BM * BK + BM * 2 + BK + 3"),
        ((BM * BK // 4 + THREADS - 1) // THREADS, "(BM * BK / 4 + THREADS - 1) / THREADS"),
        (BM * BK // 4 // THREADS, "BM * BK / (THREADS * 4)"),
    ],
)
def test_numbers_by_the_names_of_constants(number: int, text: str) -> None:
    assert isinstance(number, Named)
    assert text_of(number)[0] == text
    values = {base.name: base.value for base in number.bases}
    assert eval(text.replace("/", "//"), {}, values) == number
