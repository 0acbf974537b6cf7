"""Epilogues drawn by hypothesis: functions of the table, and formulas put together at random.

What is drawn stays far from the largest number of the sums' type, beyond which there is no bound to hold results to.
"""

from __future__ import annotations

from hypothesis import strategies as st

from gemmgen import epilogue
from gemmgen.epilogue import EXPRESSION, FUNCTIONS
from gemmgen.ir.dtypes import DType

#: Numbers for functions that are given some.
GIVEN = {"leaky_relu": ("0.25", "-2", "0"), "clamp": ("-1, 1", "0, 6", "-3, -3")}
#: Functions of whole numbers.
WHOLE = ("bias", "row_bias", "relu", "clamp", "residual", "scale", "row_scale")
NAMES = ("acc", "acc", *epilogue.NAMES)
#: Formulas of one part, of two and of four, such that no argument is outside of what a function takes.
OF_ONE = (
    *("-({})", "abs({})", "tanh({})", "erf({})", "exp(min({}, 3))", "log(1 + abs({}))", "sqrt(abs({}))"),
    *("rsqrt(1 + abs({}))", "{} / 8"),
)
OF_TWO = ("({} + {})", "({} - {})", "({} * {})", "min({}, {})", "max({}, {})", "({} / (2 + abs({})))")
OF_FOUR = ("({} if {} < {} else {})", "({} if {} >= {} else {})", "(fma({}, {}, {}) - {})")
#: The same of whole numbers, whose sums must not leave their type.
WHOLE_OF_ONE, WHOLE_OF_TWO, WHOLE_OF_FOUR = ("-({})", "abs({})"), OF_TWO[:2] + OF_TWO[3:5], OF_FOUR[:2]


def formulas(dtype: DType) -> st.SearchStrategy[str]:
    """Texts of formulas, where `dtype` is that of the sums; the simplest is `acc`."""
    numbers = ("0.5", "2", "-1.25") if dtype.is_float else ("2", "-7", "100")
    shapes = (OF_ONE, OF_TWO, OF_FOUR) if dtype.is_float else (WHOLE_OF_ONE, WHOLE_OF_TWO, WHOLE_OF_FOUR)

    def larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        made = [
            st.tuples(st.sampled_from(shape), *[parts] * count) for shape, count in zip(shapes, (1, 2, 4), strict=True)
        ]
        return st.one_of(made).map(lambda drawn: drawn[0].format(*drawn[1:]))

    return st.recursive(st.sampled_from((*NAMES, *numbers)), larger, max_leaves=4)


@st.composite
def epilogues(draw: st.DrawFn, dtype: DType) -> tuple[str, ...]:
    """None in most cases; else a formula, functions of the table, each once, or both."""
    kind = draw(st.sampled_from(["none", "none", "none", "table", "formula", "both"]))
    if kind == "none" or dtype.real is not None:
        return ()
    known = tuple(FUNCTIONS) if dtype.is_float else WHOLE
    out: list[str] = []
    if kind != "formula":
        for name in draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True)):
            given = draw(st.sampled_from(GIVEN[name])) if name in GIVEN else None
            out.append(name if given is None else f"{name}({given})")
    if kind != "table":
        # Before the others, as those of the table grow by no more than a cube.
        out.insert(0, f"{EXPRESSION} {draw(formulas(dtype))}")
    return tuple(out)
