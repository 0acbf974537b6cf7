"""What a work-item does with vectors of its own, in languages that have a type for them."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.backends.printer import Printer
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Select, as_int, mod
from gemmgen.ir.functions import MATH
from gemmgen.ir.stmt import For, Store, VectorCopy
from gemmgen.ir.vectors import place_in
from gemmgen.ir.walk import map_expr, substitute, walk_expr
from gemmgen.records import dataclass

#: How tightly operators bind, from C's grammar; higher binds tighter.
PRECEDENCE: dict[str, int] = {
    sign: level
    for level, signs in {1: "||", 2: "&& ^", 3: "&", 4: "== !=", 5: "< <=", 7: "+ -", 8: "* / %"}.items()
    for sign in signs.split()
}
TERNARY, UNARY, POSTFIX = 1, 9, 10


@dataclass(frozen=True)
class VectorWords:
    """How a language says it; what stands in braces is filled in.

    Attributes:
        type: of a vector, by its `element` and `width`.
        load, store: a vector from memory, and to it, at any alignment.
        splat: a vector of one number.
        choice: of each element `then` where the `condition` holds, else `other`.
        half: the lower or upper half (`lo`, `hi`) of a vector.
        single: an element of a vector, by its number.
        element: an element of vectors that lie one after the other, by its place from the first one's `address`, or as
            the element `inside` a `vector`.
        begins_with_number: whether a number may stand where a vector is declared, for all of its elements.
    """

    type: str
    load: str
    store: str
    splat: str
    choice: str
    half: str
    single: str
    element: str
    begins_with_number: bool = False


def unfused(node: Expr) -> Expr:
    """A multiply-add of whole numbers as a sum and a product: languages have `fma` for floats alone."""
    match node:
        case Call("fma", (a, b, c), dtype) if not dtype.is_float:
            return Bin("+", c, Bin("*", a, b))
    return node


def vector_name(printer: Printer, buffer: Buffer, index: tuple[Expr, ...]) -> str:
    """The vector that begins at an element: `acc[i][j]`."""
    *outer, last = index
    whole = buffer.extents[-1] // buffer.vector
    places = [*outer, last // buffer.vector] if whole > 1 else outer
    return buffer.name + "".join(f"[{printer.expr(place)}]" for place in places)


def vector_element(printer: Printer, words: VectorWords, buffer: Buffer, index: tuple[Expr, ...]) -> str:
    """A single element of an array of vectors, which lie one after the other."""
    *outer, last = index
    if (number := as_int(last)) is not None:
        return words.single.format(vector=vector_name(printer, buffer, index), number=number % buffer.vector)
    line = buffer.name + "".join(f"[{printer.expr(place)}]" for place in outer)
    return words.element.format(
        type=printer.types[buffer.dtype.name],
        address=line if buffer.extents[-1] > buffer.vector else f"&{line}",
        place=printer.expr(last),
        vector=vector_name(printer, buffer, index),
        inside=printer.expr(mod(last, buffer.vector)),
    )


def vector_copy_text(printer: Printer, words: VectorWords, move: VectorCopy) -> str:
    """A whole vector between memory and registers."""
    width = move.width
    if move.src.vector > 1:
        value = vector_name(printer, move.src, move.src_index)
    else:
        value = words.load.format(width=width, place=printer.address(move.src, move.src_index))
    value = printer.converted(value, move.src.dtype, move.dst.dtype, width)
    if move.dst.vector > 1:
        return f"{vector_name(printer, move.dst, move.dst_index)} = {value};"
    return words.store.format(width=width, value=value, place=printer.address(move.dst, move.dst_index))


def vector_loop(printer: Printer, words: VectorWords, loop: For) -> Iterator[str]:
    """A loop over a vector's elements: a statement for each of its own."""
    spell = _Spelling(printer, words, loop)
    for stmt in loop.body:
        if not isinstance(stmt, Store):
            raise LoweringError(f"{type(stmt).__name__} in a loop over a vector's elements")
        yield spell.store(stmt)


class _Spelling:
    """The expressions of one such loop."""

    def __init__(self, printer: Printer, words: VectorWords, loop: For) -> None:
        self.printer, self.words, self.var = printer, words, loop.var
        self.width = as_int(loop.stop) or 0

    def store(self, stmt: Store) -> str:
        """An assignment, or a store to where single elements lie."""
        first = self._first(stmt.index)
        if stmt.buffer.vector == self.width:
            name = vector_name(self.printer, stmt.buffer, first)
            match unfused(stmt.value):
                case Bin("+" | "-" | "*" | "/" as sign, old, by) if old == Load(stmt.buffer, stmt.index):
                    return f"{name} {sign}= {self._within(by)};"
            return f"{name} = {self._within(stmt.value)};"
        value = self._within(stmt.value)
        return self.words.store.format(width=self.width, value=value, place=self.printer.address(stmt.buffer, first))

    def value(self, node: Expr) -> tuple[str, int]:
        """A vector, or a number where all elements have the same; and how tightly it binds."""
        if not self._varies(node):
            return self.printer.expr(node, PRECEDENCE["+"]), POSTFIX
        match unfused(node):
            case Load(buffer, index) if buffer.vector == self.width:
                return vector_name(self.printer, buffer, self._first(index)), POSTFIX
            case Load(buffer, index) if buffer.vector == 2 * self.width:
                first = self._first(index)
                into = place_in(first[-1], buffer.vector) or 0
                whole = vector_name(self.printer, buffer, (*first[:-1], first[-1] - into))
                return self.words.half.format(vector=whole, half="hi" if into else "lo"), POSTFIX
            case Load(buffer, index) if buffer.space is not Space.IMAGE:
                place = self.printer.address(buffer, self._first(index))
                return self.words.load.format(width=self.width, place=place), POSTFIX
            case Call("neg", (negated,)):
                return f"-{self._within(negated, POSTFIX)}", UNARY
            case Call(name, args, dtype) if name == "fma" or name in MATH:
                texts = ", ".join(self._splat(x, dtype) for x in args)
                return f"{self.printer.math(name, dtype)}({texts})", POSTFIX
            case Bin("+" | "-" | "*" | "/" | "<" | "<=" | "==" | "!=" as op, a, b):
                level = PRECEDENCE[op]
                # As single elements are added: a sum on the right stands as it is.
                return f"{self._within(a, level)} {op} {self._within(b, level + (op != '+'))}", level
            case Select(condition, then, other):
                sides = (self._splat(x, then.dtype) for x in (then, other))
                names = dict(zip(("then", "other"), sides, strict=True))
                return self.words.choice.format(condition=self._within(condition, TERNARY + 1), **names), TERNARY
        raise LoweringError(f"vectors have no {node}")

    def _within(self, node: Expr, level: int = 0) -> str:
        """In parentheses where what is around it binds tighter."""
        text, bound = self.value(node)
        return f"({text})" if bound < level else text

    def _splat(self, node: Expr, dtype: DType) -> str:
        """A vector, of the same number where it is one."""
        text, _ = self.value(node)
        type_ = self.printer.vector_type(dtype, self.width)
        return text if self._varies(node) else self.words.splat.format(type=type_, value=text)

    def _varies(self, node: Expr) -> bool:
        return self.var in walk_expr(node)

    def _first(self, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Where the vector begins."""
        rewrite = substitute({self.var: Const(0)})
        return tuple(map_expr(place, rewrite) for place in index)
