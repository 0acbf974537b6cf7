"""Proving that one integer expression stays below another.

Expressions become linear forms over atoms (variables, built-in ids, and anything that isn't linear). A
form is proved to be >= 0 by putting the extreme value of each loop variable and id in, and by taking away
facts known to be >= 0, until only non-negative terms remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from math import gcd

from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Var, all_of, as_int
from gemmgen.ir.walk import walk_expr
from gemmgen.records import cached_property, dataclass


@dataclass(frozen=True, slots=True)
class Affine:
    """constant + sum of coefficient * atom."""

    terms: tuple[tuple[Expr, int], ...]
    constant: int

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        """self + factor * other."""
        if not other.terms:
            return Affine(self.terms, self.constant + factor * other.constant)
        total = dict(self.terms)
        for atom, coefficient in other.terms:
            total[atom] = total.get(atom, 0) + factor * coefficient
        return Affine(tuple((atom, c) for atom, c in total.items() if c), self.constant + factor * other.constant)

    def coefficient(self, atom: Expr) -> int:
        return next((c for other, c in self.terms if other == atom), 0)


@dataclass(frozen=True)
class Knowledge:
    """What is known at a place in a kernel.

    Attributes:
        lets: values of names, to look through them.
        upper: the largest value of a loop variable, as an expression.
        multiples: what a loop variable is always a multiple of.
        facts: forms that are >= 0.
        held: conditions that hold, to be recognised as they are written; what is not linear is known by these alone.
        group: work-items of a group (rows, columns).
        sub_group: lanes of a sub-group, if any.
    """

    lets: Mapping[Expr, Expr]
    upper: Mapping[Expr, Expr]
    facts: tuple[Expr, ...]
    group: tuple[int, int]
    sub_group: int | None
    held: tuple[Expr, ...] = ()
    multiples: Mapping[Expr, int] = field(default_factory=dict)

    def with_let(self, var: Var, value: Expr) -> Knowledge:
        """The scope behind a name. A place that is loaded from memory is known by its name alone."""
        loads = [part for part in walk_expr(value) if isinstance(part, Load)]
        if loads and all(load.buffer.places for load in loads):
            return self
        return replace(self, lets={**self.lets, var: value})

    def with_upper(self, var: Var, value: Expr) -> Knowledge:
        return replace(self, upper={**self.upper, var: value})

    def with_loop(self, var: Var, start: Expr, step: int, last: Expr) -> Knowledge:
        """The scope inside a loop."""
        unit = gcd(step, self._unit(self.affine(start)))
        return replace(self.with_upper(var, last), multiples={**self.multiples, var: unit})

    def is_multiple(self, node: Expr, unit: int) -> bool:
        """Whether an expression is always a multiple of a number."""
        return self._unit(self.affine(node)) % unit == 0

    def _unit(self, form: Affine) -> int:
        """What a form is always a multiple of."""
        return gcd(form.constant, *(c * self._unit_of(atom) for atom, c in form.terms))

    def _unit_of(self, atom: Expr) -> int:
        match atom:
            case Bin("*", a, b):
                return self._unit(self.affine(a)) * self._unit(self.affine(b))
        return self.multiples.get(atom, 1)

    def with_condition(self, condition: Expr) -> Knowledge:
        """The scope inside an `If` on it."""
        terms = tuple(conjunction(condition))
        facts = (side for term in terms for fact in _facts_of(term) for side in self._sides(fact))
        return replace(self, facts=(*self.facts, *facts), held=(*self.held, *terms))

    def _sides(self, fact: Expr) -> Iterator[Expr]:
        """A fact, and what it says of either side of a minimum: neither is below it."""
        yield fact
        for atom, coefficient in self.affine(fact).terms:
            if coefficient > 0 and isinstance(atom, Bin) and atom.op == "min":
                for side in (atom.a, atom.b):
                    yield from self._sides(fact - atom * coefficient + side * coefficient)

    def holds(self, condition: Expr) -> bool:
        """Whether a comparison or a conjunction of them is provably true."""
        return all(term in self.held or self._divides(term) or self._follows(term) for term in conjunction(condition))

    def _divides(self, condition: Expr) -> bool:
        """Whether it says that a number divides what a multiple of it is known to divide."""
        if (asked := _divisor(condition)) is None:
            return False
        known = (_divisor(term) for term in self.held)
        return any(x is not None and x[0] == asked[0] and x[1] % asked[1] == 0 for x in known)

    def _follows(self, condition: Expr) -> bool:
        facts = _facts_of(condition)
        return bool(facts) and all(self._non_negative(fact) for fact in facts)

    def unproved(self, condition: Expr) -> Expr:
        """What is left of a conjunction without its parts that are provably true."""
        return all_of(term for term in conjunction(condition) if not self.holds(term))

    def contradicts(self, condition: Expr) -> bool:
        """Whether a comparison, or a part of a conjunction, is provably false."""
        facts = (fact for term in conjunction(condition) for fact in _facts_of(term))
        return any(self._non_negative(Const(-1) - fact) for fact in facts)

    def affine(self, node: Expr) -> Affine:
        """The linear form of an expression, names looked through."""
        if (value := as_int(node)) is not None:
            return Affine((), int(value))
        match node:
            case Var() if (inner := self.lets.get(node)) is not None:
                return self.affine(inner)
            case Bin("+", a, b):
                return self.affine(a).plus(self.affine(b))
            case Bin("-", a, b):
                return self.affine(a).plus(self.affine(b), -1)
            case Bin("*", a, Const(int(factor))):
                return Affine((), 0).plus(self.affine(a), int(factor))
        return Affine(((node, 1),), 0)

    def _greatest(self, atom: Expr) -> Affine | None:
        """An upper bound of an atom that is no minimum."""
        match atom:
            case Var() if (bound := self.upper.get(atom)) is not None:
                return self.affine(bound)
            case Bin("%", _, Const(int(modulus))):
                return Affine((), int(modulus) - 1)
            case Bin("/", a, Const(int(divisor))):
                form = self.affine(a)
                tops = [x - 1 for x in self._held_below(form)]
                tops += [] if (top := self._constant_bound(form)) is None else [top]
                return Affine((), min(tops) // int(divisor)) if tops else None
            case Call("local_id", (Const(int(dimension)),), _):
                own = self.group[1 - dimension], self.group[0] * self.group[1]
                return Affine((), min(*own, *self._held_below(Affine(((atom, 1),), 0))) - 1)
            case Call("lane_id", _, _) if self.sub_group:
                return Affine((), self.sub_group - 1)
        return None

    def _held_below(self, form: Affine) -> Iterator[int]:
        """The numbers that held conditions say a form is less than, as the work-items of a role are, or those that a
        tile has elements for.
        """
        for condition in self.held:
            match condition:
                case Bin("<", a, Const(int(number))) if self.affine(a) == form:
                    yield number

    def _constant_bound(self, form: Affine) -> int | None:
        total = form.constant
        for atom, coefficient in form.terms:
            top = self._greatest(atom) if coefficient > 0 else Affine((), 0)
            if top is None or top.terms:
                return None
            total += coefficient * top.constant
        return total

    def _non_negative(self, node: Expr) -> bool:
        return self._proved(self.affine(node))

    def _proved(self, form: Affine) -> bool:
        """Whether a form is >= 0."""
        if self._settled(form, self._known):
            return True
        for atom, coefficient in sorted(form.terms, key=self._last):
            if coefficient > 0:
                continue
            rest = form.plus(Affine(((atom, 1),), 0), -coefficient)
            if isinstance(atom, Bin) and atom.op == "min":
                # Not above either of the two: one that proves it is enough.
                tops = [self.affine(side) for side in (atom.a, atom.b)]
            elif (top := self._greatest(atom)) is not None:
                tops = [top]
            else:
                continue
            if any(self._proved(rest.plus(top, coefficient)) for top in tops):
                return True
            break
        return any(self._proved_in_wholes(form, atom, c) for atom, c in form.terms if c > 1)

    def _proved_in_wholes(self, form: Affine, whole: Expr, unit: int) -> bool:
        """Whether a form in which x is rounded up to whole units is >= 0: with e of whole units and less than x, what
        x is rounded up to is e and a unit at least.
        """
        match whole:
            case Bin("/", a, Const(int(divisor))) if divisor == unit:
                size = self.affine(a).plus(Affine((), 1 - unit))
            case _:
                return False
        others = [(atom, c) for atom, c in form.terms if atom != whole]
        even = tuple((atom, c) for atom, c in others if not c * self._unit_of(atom) % unit)
        constant = (form.constant + unit) // unit * unit
        rest = Affine(tuple(term for term in others if term not in even), form.constant - constant + unit)
        return self._proved(rest) and self._proved(size.plus(Affine(even, constant - 1)))

    def _last(self, term: tuple[Expr, int]) -> int:
        """Loop variables last, since facts are told in terms of them: from the inside out, those with a constant bound
        before the others.
        """
        bound = self.upper.get(term[0]) if isinstance(term[0], Var) else None
        if bound is None:
            return 0
        outwards = len(self.upper) - [*self.upper].index(term[0])
        return outwards if as_int(bound) is not None else len(self.upper) + outwards

    @cached_property
    def _known(self) -> tuple[Affine, ...]:
        return tuple(map(self.affine, self.facts))

    def _settled(self, form: Affine, facts: tuple[Affine, ...]) -> bool:
        """Whether the form is a sum of facts and of terms that can't be negative: places are not, elements may be."""
        if form.constant >= 0 and all(c >= 0 for _, c in form.terms):
            return not any(self._is_data(atom) for atom, _ in form.terms)
        # Only a fact that lessens what stands in the way is of use; in which order they are taken doesn't matter.
        short = next((atom for atom, c in form.terms if c < 0), None)
        for i, known in enumerate(facts):
            if (known.constant if short is None else known.coefficient(short)) >= 0:
                continue
            shared = [form.coefficient(atom) // c for atom, c in known.terms if c < 0 and form.coefficient(atom) < 0]
            rest = form.plus(known, -max(shared, default=1))
            if self._settled(rest, facts[:i] + facts[i + 1 :]):
                return True
        return False

    def _is_data(self, atom: Expr) -> bool:
        """Whether it comes from memory, as whole numbers of matrices do, which epilogues compare with each other."""
        for node in walk_expr(atom):
            inner = self.lets.get(node) if isinstance(node, Var) else None
            if isinstance(node, Load) or (inner is not None and self._is_data(inner)):
                return True
        return False


def conjunction(condition: Expr) -> Iterator[Expr]:
    """The parts of `a && b && ...`."""
    match condition:
        case Bin("&&", a, b):
            yield from conjunction(a)
            yield from conjunction(b)
        case _:
            yield condition


def _divisor(condition: Expr) -> tuple[Expr, int] | None:
    """What is divided by which number, if that is what a comparison says."""
    match condition:
        case Bin("==", Bin("%", what, Const(int(by))), Const(0)):
            return what, by
    return None


def _facts_of(condition: Expr) -> tuple[Expr, ...]:
    """The forms whose being >= 0 a comparison states; none for what is not linear."""
    match condition:
        case Bin("<", a, b):
            return (b - a - 1,)
        case Bin("<=", a, b):
            return (b - a,)
    return ()
