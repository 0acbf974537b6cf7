"""What is written once: the load of a tile that a pipeline's prologue and its loop have in common, and in it the copy
of an operand, whose width lines' beginnings choose; a loop with and without branches before its loads; elements
of 4 and 8 bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from gemmgen.backends.files import rendered
from gemmgen.backends.printer import Printer
from gemmgen.ir.affine import conjunction
from gemmgen.ir.constants import WIDTH, by_width
from gemmgen.ir.dtypes import BOOL, F32, I8
from gemmgen.ir.expr import Bin, Expr, Var
from gemmgen.ir.kernel import Kernel, conversions, uses_calls
from gemmgen.ir.stmt import Body, Comment, For, If, Let, Stmt, VectorCopy
from gemmgen.ir.walk import bodies, exprs, map_body, of_kind, walk_expr
from gemmgen.positions import K_LOAD, LOAD_STAGE

#: What the function is called, and its parameters: where the step of K begins, and the stage that is filled.
LOAD_TILES = "load_tiles"
_PARAMETERS = (K_LOAD, LOAD_STAGE)
#: The function of a loop that is called with and without branches before its loads, and its parameter.
ALONG_K, ALIGNED = "multiply_along_k", Var("aligned", BOOL)


def small_integers(
    kernel: Kernel, qualifier: str, element: str, as_float: str | None = None, called: Collection[str] = ()
) -> list[str]:
    """The functions for elements of int4 and int8 that a kernel calls.

    Args:
        element: what the language calls a byte.
        as_float: what takes an integer's bits for a float32, where that costs less than a conversion.
        called: which of them functions of moves call.
    """
    nibbles = uses_calls(kernel, {"nibble"})
    int8 = as_float is not None and ((I8, F32, 1) in conversions(kernel) or "from_int8" in called)
    and_xor = (nibbles and as_float is not None) or "and_xor" in called
    if not (nibbles or int8 or and_xor):
        return []
    said = {"qualifier": qualifier, "as_float": as_float, "element": element}
    return rendered("small_integers.j2", **said, nibbles=nibbles, int8=int8, and_xor=and_xor)


def repeated(body: Sequence[Stmt]) -> tuple[int, Stmt] | None:
    """A load that several statements of a body have, and the first of those that do."""
    found = [[load for nested in bodies(stmt) for load in _loads(nested)] for stmt in body]
    found = [own + loads for own, loads in zip(_own(body), found, strict=True)]
    for i, loads in enumerate(found):
        for load in loads:
            if any(load in others for others in found[i + 1 :]):
                # Before the comment on what calls it.
                return i - int(i > 0 and isinstance(body[i - 1], Comment)), load
    return None


def load_function(printer: Printer, load: Stmt) -> Iterator[str]:
    """The definition of what loads a tile, which is called from the prologue and from the loop."""
    yield ""
    yield "    // Begins the loads of the tiles at k_load to a stage."
    yield f"    const auto {LOAD_TILES} = [&]({', '.join(f'int {var.name}' for var in _PARAMETERS)}) {{"
    # Behind its name it is printed as any other statement.
    yield from ("    " + line for line in printer.indented((load,), 2))
    yield "    };"


def is_load(body: Sequence[Stmt], at: int) -> bool:
    """Whether a statement of a body is the load of a tile: the only one that the name of its step stands before."""
    if not 0 < at < len(body) or isinstance(body[at], Let):
        return False
    before = body[at - 1]
    return isinstance(before, Let) and before.var == K_LOAD and not _names_step(body[at + 1 :])


def _names_step(body: Sequence[Stmt]) -> bool:
    """Whether statements use the step's name that stands before them, not one of their own."""
    for stmt in body:
        if isinstance(stmt, Let) and stmt.var == K_LOAD:
            return False
        if any(K_LOAD in walk_expr(expr) for expr in exprs(stmt)) or any(map(_names_step, bodies(stmt))):
            return True
    return False


def _own(body: Sequence[Stmt]) -> list[list[Stmt]]:
    return [[stmt] if is_load(body, at) else [] for at, stmt in enumerate(body)]


def _loads(body: Body) -> list[Stmt]:
    own = [stmt for stmts in _own(body) for stmt in stmts]
    return own + [load for stmt in body for nested in bodies(stmt) for load in _loads(nested)]


def has_loads(body: Body) -> bool:
    """Whether there is any."""
    return any(stmt.var == K_LOAD for stmt in of_kind(Let, body))


def written_once(printer: Printer, branch: If) -> Iterator[str] | None:
    """The text of a branch whose sides have theirs in common: one function and its calls. None for any other branch."""
    if len(ways := ways_by_width(branch)) > 1:
        return copies_by_width(printer, ways)
    loop = loop_of_both(branch) if printer.inner_functions else None
    return None if loop is None else versions(printer, branch, loop)


def ways_by_width(branch: If) -> list[tuple[If, int]]:
    """Copies of an operand by several widths, of which lines' beginnings choose, and their widths; none where a branch
    is another.
    """
    found: list[tuple[If, int]] = []
    here: Body = (branch,)
    while len(here) == 1 and isinstance(way := here[0], If):
        widths = {stmt.width for stmt in of_kind(VectorCopy, way.then) if by_width(stmt.width)}
        if len(widths) != 1:
            break
        found.append((way, int(widths.pop())))
        here = way.orelse
    return found


def copies_by_width(printer: Printer, ways: Sequence[tuple[If, int]]) -> Iterator[str]:
    """A function of the width, which is a constant where it is called, and its calls; where the text of one width is
    another, each by itself.
    """
    constants, texts = printer.constants, []
    for way, width in ways:
        printer.constants = {**constants, WIDTH: width}
        texts.append([*printer.indented(way.then, 2)])
    printer.constants = constants
    matrix = next(stmt.src.name for stmt in of_kind(VectorCopy, ways[0][0].then))
    name, common = f"load_{matrix}", all(text == texts[0] for text in texts)
    if common:
        yield f"const auto {name} = [&](int {WIDTH}) {{"
        yield from texts[0]
        yield "};"
    for i, (way, width) in enumerate(ways):
        yield f"{'} else ' if i else ''}if ({printer.expr(way.condition)}) {{"
        yield from [f"    {name}({width});"] if common else printer.indented(way.then, 2)
    yield "} else {"
    yield from printer.indented(ways[-1][0].orelse, 2)
    yield "}"


def loop_of_both(branch: If) -> For | None:
    """The loop of a branch between a loop and the same one with branches inside, which its condition decides."""
    others = [stmt for stmt in branch.orelse if not isinstance(stmt, Comment)]
    match branch.then, others:
        case (For() as plain,), [For() as general] if plain != general:
            conditions = tuple(conjunction(branch.condition))
            decided = map_body(general.body, lambda stmt: _decided(stmt, conditions))
            return general if plain == replace(general, body=decided) else None
    return None


def _decided(stmt: Stmt, conditions: tuple[Expr, ...]) -> Body:
    """A statement where the conditions hold."""
    return stmt.then if isinstance(stmt, If) and stmt.condition in conditions else (stmt,)


def versions(printer: Printer, branch: If, general: For) -> Iterator[str]:
    """A function of whether the branch's condition holds, which is a constant where it is called, and its calls."""
    conditions = tuple(conjunction(branch.condition))

    def asked(stmt: Stmt) -> Body:
        if not (isinstance(stmt, If) and stmt.condition in conditions):
            return (stmt,)
        either = Bin("||", ALIGNED, stmt.condition) if conditions[1:] else ALIGNED
        return (replace(stmt, condition=either),)

    comments = tuple(stmt for stmt in branch.orelse if isinstance(stmt, Comment))
    yield f"const auto {ALONG_K} = [&](bool {ALIGNED.name}) {{"
    yield from printer.indented(map_body((general,), asked), 2)
    yield "};"
    yield f"if ({printer.expr(branch.condition)}) {{"
    yield f"    {ALONG_K}(true);"
    yield "} else {"
    yield from printer.indented(comments, 2)
    yield f"    {ALONG_K}(false);"
    yield "}"
