"""Named constants: integers that know which of a schedule's numbers they are made of, such as `BM` or `BM * BK / 4`.

A `Named` is an `int`, so that whoever computes or decides with it needs to know nothing. Sums, products and quotients
of it keep its names; all else (`%`, `min`, a comparison) sees the number alone. Backends print the names where the
file defines them.

A form is a sum of products of names with rational coefficients: what divides evenly now is taken to divide evenly. It
is canonical: equal forms have equal text, however they came about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from math import gcd, prod
from typing import TYPE_CHECKING, TypeAlias

from gemmgen.records import dataclass

if TYPE_CHECKING:
    from fractions import Fraction

#: Products that have a name of their own: a block tile is a thread tile times the threads beside one another.
PRODUCTS: Mapping[tuple[str, str], str] = {
    ("THREADS_M", "TM"): "BM",
    ("THREADS_N", "TN"): "BN",
    ("THREADS_M", "THREADS_N"): "THREADS",
}
_PAIRS = (("BM", "BN"), ("TM", "TN"), ("MR", "NR"), ("TILES_M", "TILES_N"), ("THREADS_M", "THREADS_N"))
#: What the constants of a product are called that computes its transpose.
TRANSPOSED: Mapping[str, str] = {**dict(_PAIRS), **{b: a for a, b in _PAIRS}}
#: What the threads of a block come from.
THREADS: Mapping[str, tuple[str, str]] = {"product": ("THREADS_M", "THREADS_N"), "sum": ("CONSUMERS", "PRODUCERS")}
#: What the width of a copy is called in the text that copies of several widths have in common.
WIDTH = "width"
#: How tightly the text of a form binds: as a sum, as a product, as a name.
SUM, PRODUCT, NAME = 1, 2, 3

#: Names in the order in which factors stand.
ORDER = (
    *("SPLIT_K", "SLICES", "STAGES", "GROUP_M", "CLUSTER", "BM", "BN", "BK", "KC", "MC", "ROWS"),
    *("TM", "TN", "MR", "NR", "TILES_M", "TILES_N", "LANES_K", "LOAD_K"),
    *("THREADS_M", "THREADS_N", "THREADS", "CONSUMERS", "PRODUCERS"),
)
#: Factors in order -> the coefficient.
Form: TypeAlias = "dict[tuple[str, ...], int | Fraction]"


@dataclass(frozen=True, slots=True)
class Base:
    """A constant that a form is made of.

    Attributes:
        free: whether the text stays as it is when its value changes.
    """

    name: str
    value: int
    free: bool


class Named(int):
    """An integer made of named constants.

    Attributes:
        form: its canonical form.
        bases: the constants that it is made of.
    """

    form: Form
    bases: frozenset[Base]

    @property
    def free(self) -> bool:
        """Whether a reader may change its value in the text."""
        return any(base.free for base in self.bases)

    def renamed(self, names: Mapping[str, str]) -> int:
        """The same number of constants by other names."""
        bases = frozenset(replace(base, name=names.get(base.name, base.name)) for base in self.bases)
        form = {_factors(_renamed(x, names) for x in factors): c for factors, c in self.form.items()}
        return _made(int(self), form, bases)

    def __getnewargs__(self) -> tuple[int]:
        return (int(self),)

    def __add__(self, other: int) -> int:
        return _combined(self, other, int(self) + int(other), _sum(self.form, _form(other))) if _is(other) else _no()

    __radd__ = __add__

    def __sub__(self, other: int) -> int:
        return self + -other if _is(other) else _no()

    def __rsub__(self, other: int) -> int:
        return -self + other if _is(other) else _no()

    def __mul__(self, other: int) -> int:
        if not _is(other):
            return _no()
        return _combined(self, other, int(self) * int(other), _product(self.form, _form(other)))

    __rmul__ = __mul__

    def __neg__(self) -> int:
        return self * -1

    def __floordiv__(self, other: int) -> int:
        return _quotient(self, other) if _is(other) else _no()

    def __rfloordiv__(self, other: int) -> int:
        return _quotient(other, self) if _is(other) else _no()


def _is(other: object) -> bool:
    """Whether it is a number, and not an array, which computes by itself."""
    return isinstance(other, int)


def _no() -> int:
    return NotImplemented  # type: ignore[no-any-return]


def named(name: str, value: int, free: bool = False) -> int:
    """A constant of that name; what is no more than 1 needs none."""
    if value <= 1:
        return value
    return _made(value, {(name,): 1}, frozenset({Base(name, int(value), free)}))


def width_of(number: int) -> int | None:
    """The width that a number is made of, where it is one of several that have their text in common."""
    bases = number.bases if isinstance(number, Named) else ()
    return next((base.value for base in bases if base.name == WIDTH), None)


def by_width(width: int) -> bool:
    """Whether a width is one of several that have their text in common."""
    return width_of(width) is not None


def is_free(number: int | None) -> bool:
    """Whether a number has another value when somebody changes a constant in the text."""
    return isinstance(number, Named) and number.free


def text_of(number: Named) -> tuple[str, int]:
    """A number by its names, and how tightly that binds."""
    return _text(number.form)


def said(number: int) -> str:
    """A number as a comment says it: by its names if it has any."""
    return text_of(number)[0] if isinstance(number, Named) else str(number)


def whole_parts(number: Named) -> list[tuple[str, int]]:
    """The products that a number has some part of, and which: what must divide evenly."""
    found = []
    for factors, c in number.form.items():
        exact = _exact(c)
        if exact.denominator > 1:
            found.append((_term(factors, exact.numerator)[0], exact.denominator))
    return found


def divides(number: int, unit: int) -> bool:
    """Whether a number is a multiple of a unit, and its text says so: of a sum, each of its terms."""
    if number % unit:
        return False
    part = number // unit
    return not (isinstance(number, Named) and isinstance(part, Named) and len(number.form) > 1 and whole_parts(part))


def evenly(number: int, unit: int) -> tuple[str, str] | None:
    """That a number is a multiple of a unit: both as whole products, or None where neither has a name."""
    scale = max([1, *(_exact(c).denominator for x in (number, unit) for c in _form(x).values())])
    above, below = number * scale, unit * scale
    if not isinstance(above, Named) and not isinstance(below, Named):
        return None
    (top, tight), (bottom, bound) = (text_of(x) if isinstance(x, Named) else (str(x), NAME) for x in (above, below))
    return f"({top})" if tight == SUM else top, bottom if bound == NAME else f"({bottom})"


# --- forms ----------------------------------------------------------------------------------------


def _made(value: int, form: Form, bases: frozenset[Base]) -> int:
    if not any(form):  # no names in it
        return int(value)
    made = int.__new__(Named, value)
    made.form, made.bases = form, bases
    return made


def _form(number: int) -> Form:
    if isinstance(number, Named):
        return number.form
    return {(): int(number)} if number else {}


def _bases(number: int) -> frozenset[Base]:
    return number.bases if isinstance(number, Named) else frozenset()


def _combined(a: int, b: int, value: int, form: Form) -> int:
    return _made(value, form, _bases(a) | _bases(b))


def _sum(a: Form, b: Form) -> Form:
    total = dict(a)
    for factors, coefficient in b.items():
        total[factors] = _whole(_exact(total.get(factors, 0) + coefficient))
    return {factors: c for factors, c in total.items() if c}


def _product(a: Form, b: Form) -> Form:
    total: Form = {}
    for x, c in a.items():
        for y, d in b.items():
            total = _sum(total, {_factors((*x, *y)): c * d})
    return total


def _factors(names: Iterable[str]) -> tuple[str, ...]:
    """In order, and products by the names that they have."""
    left = sorted(names, key=_place)
    for (one, other), product in PRODUCTS.items():
        while one in left and other in left:
            left.remove(one)
            left.remove(other)
            left = sorted([*left, product], key=_place)
    return tuple(left)


def _place(factor: str) -> tuple[int, str]:
    return (ORDER.index(factor) if factor in ORDER else len(ORDER)), factor


def _quotient(a: int, b: int) -> int:
    """a / b rounded down; by name where neither is negative, as C rounds the others otherwise."""
    value = int(a) // int(b)
    if int(a) == 0:
        return 0
    if not isinstance(b, Named) and value * b == a:
        return _combined(a, b, value, {factors: _whole(_exact(c) / b) for factors, c in _form(a).items()})
    if int(a) < 0 < int(b) and value * int(b) == int(a):
        return -_quotient(-a, b)
    if int(a) < 0 or int(b) < 0:
        return value
    above, below = _reduced(_form(a), _form(b))
    if len(below) > 1 and (ratio := _ratio(above, below)) is not None:
        return _combined(a, b, value, ratio)
    if below == {(): 1}:
        return _combined(a, b, value, above)
    top, tight = _text(above)
    bottom, bound = _text(below)
    text = f"{f'({top})' if tight == SUM else top} / {bottom if bound == NAME else f'({bottom})'}"
    return _combined(a, b, value, {(text,): 1})


def _renamed(factor: str, names: Mapping[str, str]) -> str:
    return re.sub(r"[A-Z_]+", lambda word: names.get(word[0], word[0]), factor)


def _exact(number: int | Fraction) -> Fraction:
    # Imported late: calls whose source is known need none, and it takes 3 ms of a start.
    from fractions import Fraction

    return Fraction(number)


def _whole(number: Fraction) -> int | Fraction:
    return int(number) if number.denominator == 1 else number


def _reduced(above: Form, below: Form) -> tuple[Form, Form]:
    """Both without the factors that all of their terms share."""
    # A sum with a part of a product keeps it: (BM * BK / 4 + THREADS - 1) / THREADS rounds up whole vectors.
    scaled = len(above) == 1 or all(isinstance(c, int) for c in above.values())
    scale = _exact(1)
    for c in (*above.values(), *below.values()) if scaled else ():
        scale = max(scale, _exact(_exact(c).denominator))
    common = gcd(*(int(c * scale) for c in (*above.values(), *below.values()))) if scaled else 1
    above, below = ({f: _whole(c * scale / common) for f, c in form.items()} for form in (above, below))
    for factor in sorted({x for factors in below for x in factors}, key=_place):
        # A product may share one of the two that it is made of.
        pairs: list[tuple[str, tuple[str, ...]]] = [(factor, ())]
        pairs += [
            (whole, (other,)) for (x, y), whole in PRODUCTS.items() for f, other in ((x, y), (y, x)) if f == factor
        ]
        for of_above, left in pairs:
            if all(of_above in f for f in above) and all(factor in f for f in below) and above:
                above = {_without(f, of_above, left): c for f, c in above.items()}
                below = {_without(f, factor, ()): c for f, c in below.items()}
                break
    return above, below


def _ratio(above: Form, below: Form) -> Form | None:
    """Of two sums, where one is the other times a product."""
    for top, c in above.items():
        rest, bottom = list(top), next(iter(below))
        for factor in bottom:
            if factor not in rest:
                break
            rest.remove(factor)
        else:
            ratio: Form = {_factors(rest): _whole(_exact(c) / below[bottom])}
            if _product(below, ratio) == above:
                return ratio
    return None


def _without(factors: tuple[str, ...], factor: str, left: tuple[str, ...]) -> tuple[str, ...]:
    rest = list(factors)
    rest.remove(factor)
    return _factors((*rest, *left))


def _text(form: Form) -> tuple[str, int]:
    terms: list[tuple[tuple[str, ...], int | Fraction]] = sorted(
        form.items(), key=lambda term: (term[1] < 0, -len(term[0]), [*map(_place, term[0])])
    )
    if not terms:
        return "0", NAME
    if shared := _shared(form):
        left: Form = {}
        for factors, c in form.items():
            others = list(factors)
            for factor in shared:
                others.remove(factor)
            left[tuple(others)] = c
        whole = all(isinstance(c, int) for c in left.values())
        unit = gcd(*map(int, left.values())) if whole else 1
        left = {rest: _whole(_exact(c) / unit) for rest, c in left.items()}
        inner, tight = _text(left)
        text = " * ".join([f"({inner})" if tight == SUM else inner, *shared, *([str(unit)] if unit > 1 else [])])
        return text, PRODUCT
    if len(terms) > 3 and (apart := _in_factors(form)) is not None:
        return " * ".join(f"({_text(factor)[0]})" for factor in apart), PRODUCT
    texts = [_term(factors, abs(_exact(c))) for factors, c in terms]
    out, tight = texts[0]
    if terms[0][1] < 0 and len(terms) > 1:
        return f"-({_text({factors: -c for factors, c in form.items()})[0]})", PRODUCT
    if terms[0][1] < 0:
        return f"-({out})" if tight < NAME else f"-{out}", PRODUCT
    if len(terms) == 1:
        return out, tight
    for (text, _), (_, coefficient) in zip(texts[1:], terms[1:], strict=True):
        out += f" {'-' if coefficient < 0 else '+'} {text}"
    return out, SUM


def _in_factors(form: Form) -> tuple[Form, Form] | None:
    """A sum as one of a name and a number times another sum; None if it is no such product."""
    for name in sorted({x for factors in form for x in factors}, key=_place):
        of_name: Form = {_without(f, name, ()): c for f, c in form.items() if name in f}
        rest: Form = {f: c for f, c in form.items() if name not in f}
        for one, its, other, others in ((rest, (), of_name, (name,)), (of_name, (name,), rest, ())):
            ratio = (_ratio(other, one) or {}).get(())
            if isinstance(ratio, int):
                sign = 1 if max(one.values()) > 0 else -1
                return {its: sign, others: ratio * sign}, _product(one, {(): sign})
    return None


def _shared(form: Form) -> tuple[str, ...]:
    """The names that all terms of a sum have as factors."""
    if len(form) < 2:
        return ()
    return tuple(x for x in dict.fromkeys(next(iter(form))) if "/" not in x and all(x in factors for factors in form))


def _term(factors: tuple[str, ...], coefficient: int | Fraction) -> tuple[str, int]:
    exact = _exact(coefficient)
    if not factors:
        return str(exact.numerator), NAME
    # One quotient may stand first, since products are grouped from the left.
    first, *others = sorted(factors, key=lambda x: ("/" not in x, _place(x)))
    parts = [first, *(f"({x})" if "/" in x else x for x in others)]
    parts += [] if exact.numerator == 1 else [str(exact.numerator)]
    text = " * ".join(parts) + ("" if exact.denominator == 1 else f" / {exact.denominator}")
    return text, PRODUCT if " " in text else NAME


# --- of a file ------------------------------------------------------------------------------------


def constants_of(part: object) -> dict[str, int]:
    """The constants that kernels are made of, and their values: not those that have several."""
    found: dict[str, set[int]] = {}
    for base in _used(part, {}):
        found.setdefault(base.name, set()).add(base.value)
    known = {name: next(iter(values)) for name, values in found.items() if len(values) == 1 and name != WIDTH}
    for total, parts in THREADS.items():
        if known.keys() >= {*parts}:
            known["THREADS"] = prod(known[x] for x in parts) if total == "product" else sum(known[x] for x in parts)
    for (threads, own), block in PRODUCTS.items():
        # A tile of one row or column has no name of its own, but quotients may be named after it.
        if known.keys() >= {threads, block} and known[threads] == known[block]:
            known[own] = 1
    return known


def free_of(part: object) -> frozenset[str]:
    """Those of the constants that may be changed in the text."""
    return frozenset(base.name for base in _used(part, {}) if base.free)


def _used(part: object, known: dict[int, frozenset[Base]]) -> frozenset[Base]:
    if isinstance(part, Named):
        return part.bases
    if isinstance(part, tuple):
        return frozenset[Base]().union(*(_used(x, known) for x in part))
    if not is_dataclass(part):
        return frozenset()
    if id(part) not in known:
        known[id(part)] = frozenset()  # of what is seen again nothing is new
        known[id(part)] = frozenset[Base]().union(*(_used(getattr(part, x.name), known) for x in fields(part)))
    return known[id(part)]
