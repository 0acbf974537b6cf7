"""The IR as text, for people: what `gemmgen emit --stop-after PASS` prints and what messages quote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import BOOL
from gemmgen.ir.elementwise import Step
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Select, Var
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import (
    Alloc,
    Block,
    BlockPayload,
    Body,
    Comment,
    CooperativeCopy,
    EpilogueStore,
    Fill,
    For,
    FragmentApply,
    FragmentLoad,
    If,
    InstructionStmt,
    Let,
    Mma,
    Multiply,
    PayloadAdvance,
    PlaceStmt,
    PointerIncrement,
    PointerInit,
    Prefetch,
    Reduction,
    Registers,
    Return,
    Stmt,
    Store,
    Tile,
    TileMma,
    TileStmt,
    TmaCopy,
    VectorCopy,
)
from gemmgen.ir.synchronization import (
    AsyncGroup,
    Barrier,
    DependentLaunch,
    Mbarrier,
    MultiplyGroup,
    Pipe,
    PipeOp,
    SetMaxRegisters,
    StoreGroup,
    SyncStmt,
)

_INDENT = "  "

#: How tightly an operator binds. `&` is set apart on purpose: C disagrees with most readers about
#: it, so it is enclosed within any other operator, and so are its operands.
_BINDING: dict[str, int] = {
    "&&": 1,
    "==": 2,
    "!=": 2,
    "<": 2,
    "<=": 2,
    "&": 1,
    "^": 1,
    "+": 4,
    "-": 4,
    "*": 5,
    "/": 5,
    "%": 5,
}
_SELECT = 0
_ATOMIC = 6


def show(kernel: Kernel) -> str:
    """The whole kernel: its head, a blank line and its statements, one a line."""
    return "\n".join((*_head(kernel), "", *_lines(kernel.body, _INDENT))) + "\n"


def show_stmt(stmt: Stmt) -> str:
    """A statement with all that it holds."""
    return "\n".join(_lines((stmt,), ""))


def headline(stmt: Stmt) -> str:
    """The first line of a statement: a loop or a condition without its body."""
    return next(_lines((stmt,), ""))


def show_expr(node: Expr) -> str:
    """An expression with no more parentheses than it needs."""
    return _expr(node, 0)


def show_index(buffer: Buffer, index: Iterable[Expr]) -> str:
    """`name[i, j]`."""
    return f"{buffer.name}[{', '.join(map(show_expr, index))}]"


# --- expressions ----------------------------------------------------------------------------------


def _expr(node: Expr, binding: int) -> str:
    """The text of `node` where everything looser than `binding` needs parentheses."""
    match node:
        case Const(value, dtype):
            return _const(value, dtype == BOOL, dtype.is_float)
        case Var(name, _):
            return name
        case Load(buffer, index):
            return show_index(buffer, index)
        case Call("convert", (value,), dtype):
            return f"{dtype}({show_expr(value)})"
        case Call(function, args, _):
            return f"{function}({', '.join(map(show_expr, args))})"
        case Bin("min", a, b):
            return f"min({show_expr(a)}, {show_expr(b)})"
        case Bin():
            return _parenthesised(_bin(node), _BINDING[node.op], binding)
        case Select(condition, then, other):
            text = f"{_expr(condition, 1)} ? {_expr(then, 1)} : {_expr(other, _SELECT)}"
            return _parenthesised(text, _SELECT, binding)


def _const(value: complex, is_bool: bool, is_float: bool) -> str:
    if is_bool:
        return "true" if value else "false"
    if not isinstance(value, int | float):
        return f"({value.real!r}, {value.imag!r})"
    text = repr(float(value)) if is_float else str(value)
    return f"({text})" if text.startswith("-") else text


def _bin(node: Bin) -> str:
    own = _BINDING[node.op]
    # Only `&&` reads the same from either side; comparisons do not chain.
    left = own + 1 if own == 2 else own
    right = own if node.op == "&&" else own + 1
    if node.op in ("&", "^"):
        left = right = _ATOMIC
    return f"{_expr(node.a, left)} {node.op} {_expr(node.b, right)}"


def _parenthesised(text: str, own: int, binding: int) -> str:
    return f"({text})" if own < binding else text


# --- the head -------------------------------------------------------------------------------------


def _head(kernel: Kernel) -> Iterator[str]:
    yield f"kernel {kernel.name}"
    for param in kernel.params:
        if isinstance(param, Buffer):
            yield f"{_INDENT}param {_declared(param)}"
        else:
            yield f"{_INDENT}param {param.name}: {param.dtype}"
    yield f"{_INDENT}group {kernel.group[0]} x {kernel.group[1]}"
    grid_z = "" if kernel.grid_z is None else f" x {kernel.grid_z.name}"
    yield f"{_INDENT}grid {_expr(kernel.grid[0], 1)} x {_expr(kernel.grid[1], 1)}{grid_z}"
    if kernel.sub_group is not None:
        yield f"{_INDENT}sub_group {kernel.sub_group}"
    if kernel.swapped:
        yield f"{_INDENT}operands swapped: C^T = B^T * A^T"
    for value in kernel.nonnegative:
        yield f"{_INDENT}assume {show_expr(value)} >= 0"
    for condition in kernel.assumptions:
        yield f"{_INDENT}assume {show_expr(condition)}"


def _declared(buffer: Buffer) -> str:
    shape = ", ".join(map(show_expr, buffer.shape))
    text = f"{buffer.name}: {buffer.space.value} {buffer.dtype}[{shape}]"
    if not _is_packed(buffer):
        text += f" strides ({', '.join(map(show_expr, buffer.layout.strides))})"
    if buffer.layout.ends:
        text += " of matrices that end at each line"
    if buffer.space in (Space.GLOBAL, Space.IMAGE):
        text += ", written" if buffer.writable else ", read only"
    return text


def _is_packed(buffer: Buffer) -> bool:
    """Whether the strides follow from the shape, so that there is no need to print them."""
    step: Expr = Const(1)
    for extent, stride in zip(reversed(buffer.shape), reversed(buffer.layout.strides), strict=True):
        if stride != step:
            return False
        step = extent * step
    return True


# --- statements -----------------------------------------------------------------------------------


def _lines(body: Body, indent: str) -> Iterator[str]:
    for stmt in body:
        match stmt:
            case For():
                yield f"{indent}{_for(stmt)}"
                yield from _block(stmt.body, indent + _INDENT)
            case If(condition, then, orelse):
                yield f"{indent}if {show_expr(condition)}{' (warp specialisation)' if stmt.roles else ''}:"
                yield from _block(then, indent + _INDENT)
                if orelse:
                    yield f"{indent}else:"
                    yield from _lines(orelse, indent + _INDENT)
            case FragmentApply():
                names = f"{stmt.row.name}, {stmt.col.name}, element {stmt.element.name}"
                yield f"{indent}for each ({names}) of fragment {show_index(stmt.fragment, stmt.index)}:"
                yield from _block(stmt.body, indent + _INDENT)
            case Block(inner, apart, parts):
                yield f"{indent}block{'' if apart is None else f', {parts} parts by {show_expr(apart)} apart'}:"
                yield from _block(inner, indent + _INDENT)
            case _ if isinstance(stmt, TileStmt):
                yield indent + _on_tiles(stmt)
            case _:
                yield indent + _on_elements(stmt)


def _block(body: Body, indent: str) -> Iterator[str]:
    if body:
        yield from _lines(body, indent)
    else:
        yield f"{indent}nothing"


def _for(stmt: For) -> str:
    bounds = f"{_expr(stmt.start, 4)}..{_expr(stmt.stop, 4)}"
    step = f" step {stmt.step}" if stmt.step != 1 else ""
    notes = [word for word, holds in (("unroll", stmt.unroll), ("exact", stmt.exact and stmt.step != 1)) if holds]
    notes += [f"unroll by {stmt.unroll_factor}"] if stmt.unroll_factor else []
    note = f" ({', '.join(notes)})" if notes else ""
    return f"for {stmt.var.name} in {bounds}{step}{note}:"


def _on_elements(
    stmt: Alloc | Let | Store | InstructionStmt | SyncStmt | PlaceStmt | Return | Comment,
) -> str:
    match stmt:
        case TmaCopy():
            dst, src = show_index(stmt.dst, stmt.dst_index), show_index(stmt.src, stmt.src_index)
            barrier = stmt.mbarrier
            counted = "" if barrier is None else f", mbarrier {barrier.name}[{show_expr(barrier.index)}]"
            whose = "" if stmt.src.multicast == 1 else f", multicast to {stmt.src.multicast} groups"
            return f"{dst} <- tma_{'store' if barrier is None else 'load'} {src}{whose}{counted}"
        case Multiply():
            acc, a = show_index(stmt.acc, stmt.acc_index), show_index(stmt.a, stmt.a_index)
            anew = "" if stmt.accumulate is None else f", anew where {show_expr(stmt.accumulate)} is 0"
            return f"{acc} += {a} * {show_index(stmt.b, stmt.b_index)} by {stmt.atom.name}{anew}"
        case Alloc(buffer, reuses):
            return f"alloc {_declared(buffer)}{', reusing local memory' if reuses else ''}"
        case Let(var, value):
            return f"let {var.name}: {var.dtype} = {show_expr(value)}"
        case Store(buffer, index, value):
            return f"{show_index(buffer, index)} = {show_expr(value)}"
        case VectorCopy():
            dst, src = show_index(stmt.dst, stmt.dst_index), show_index(stmt.src, stmt.src_index)
            valid = "" if stmt.valid is None else f", {show_expr(stmt.valid)} of them inside"
            at = "" if stmt.byte_place is None else f", at byte {', '.join(map(show_expr, stmt.byte_place))}"
            at += "" if stmt.from_element is None else f" from element {show_expr(stmt.from_element)}"
            at += _within(stmt.extent)
            what = f"{stmt.atom.name} x{stmt.width}{' ahead' if stmt.ahead else ''}"
            return f"{dst} <- vector_copy {what} {src}{valid}{at}"
        case Return():
            return "return"
        case Comment(text):
            return f"# {text}"
        case _ if isinstance(stmt, PlaceStmt):
            return _on_places(stmt)
    return _on_sync(stmt)


def _on_places(stmt: PlaceStmt) -> str:
    match stmt:
        case PointerInit(view, buffer, index, which):
            name = view.name if which is None else f"{view.name}[{show_expr(which)}]"
            return f"pointer {name} = &{show_index(buffer, index)}"
        case Prefetch(buffer, index, writes):
            what = "" if stmt.atom is None else f"{stmt.atom.name} x{stmt.atom.widths[0]} "
            written = ", to be written" if writes else ""
            return f"prefetch {what}{show_index(buffer, index)}{written}{_within(stmt.extent)}"
        case PointerIncrement(view, by):
            return f"pointer {view.name} += {show_expr(by)}"
        case BlockPayload(payload, which, matrix, index):
            return f"payload {_numbered(payload, which)} = {show_index(matrix, index)}{_within(stmt.extent)}"
        case PayloadAdvance(payload, which, axis, by):
            return f"payload {_numbered(payload, which)} += {by} {('rows', 'columns')[axis]}"


def _numbered(payload: Buffer, which: tuple[Expr, ...]) -> str:
    return f"{payload.name}[{', '.join(map(show_expr, which))}]" if which else payload.name


def _within(extent: tuple[Expr, ...]) -> str:
    return f", zeros past {' x '.join(map(show_expr, extent))}" if extent else ""


def _on_sync(stmt: SyncStmt) -> str:
    match stmt:
        case Barrier(memory):
            who = " of the sub-group" if stmt.of_sub_group else f" of {stmt.role_items}" if stmt.role_items else ""
            who += f" of {stmt.groups} groups" if stmt.groups > 1 else ""
            what = "" if stmt.part == "all" else "arrive at " if stmt.part == "arrive" else "wait for "
            return f"{what}barrier local{who}" if memory == "local" else f"{what}barrier{who} (no memory)"
        case AsyncGroup("commit"):
            return "commit async group"
        case AsyncGroup(_, pending):
            return f"wait until {pending} async groups are pending"
        case Mbarrier("init", name, count):
            return f"init mbarriers {name}[{count}]" + (f", {stmt.arrivals} arrivals" if stmt.arrivals else "")
        case Mbarrier("expect", name, _, index):
            return f"arrive at mbarrier {name}[{show_expr(index)}], expect {stmt.bytes} bytes"
        case MultiplyGroup("wait", pending, sums):
            what = "" if sums is None else f", {sums.name} is there"
            return f"wait until {pending} groups of matrix instructions are pending{what}"
        case MultiplyGroup(verb):
            return f"{verb} matrix instructions"
        case StoreGroup("wait", pending):
            return f"wait until {pending} groups of stores read local memory"
        case StoreGroup(verb):
            return f"{verb} TMA stores"
        case SetMaxRegisters(registers):
            return f"setmaxnreg {registers}"
        case Mbarrier("wait", name, _, index, parity):
            return f"wait for mbarrier {name}[{show_expr(index)}] parity {show_expr(parity)}"
        case Mbarrier(verb, name, _, index):
            whose = "" if stmt.rank is None else f" of group {show_expr(stmt.rank)}"
            return f"{verb.replace('_copies', ' with copies')} at mbarrier {name}[{show_expr(index)}]{whose}"
        case DependentLaunch("release"):
            return "launch dependent kernels"
        case DependentLaunch(_, buffers):
            return f"wait for the kernels before: {', '.join(b.name for b in buffers)}"


def _on_tiles(stmt: TileStmt) -> str:
    match stmt:
        case Fill(dst, value):
            return f"fill {_registers(dst)} = {show_expr(value)}"
        case FragmentLoad(dst, src, atom, width, ahead):
            way = f"fragment_load {atom.name} x{width}{' ahead' if ahead else ''}"
            return f"{_registers(dst)} <- {way} {_tile(src)}{_made(stmt.prologue)}"
        case CooperativeCopy():
            part = "" if stmt.part == "all" else f" {stmt.part}"
            via = f" via {stmt.via.name}" if stmt.via is not None else ""
            how = f"cooperative_copy{part} x{stmt.width}"
            return f"{_tile(stmt.dst)} <- {how} {_tile(stmt.src)}{via}{_made(stmt.prologue)}"
        case Mma():
            operands = zip((stmt.a, stmt.b), (stmt.a_k, stmt.b_k), stmt.conj, strict=True)
            a, b = (f"{'conj ' if c else ''}{_registers(r)}[k {show_expr(k)}]" for r, k, c in operands)
            return f"mma {stmt.atom.name} {_registers(stmt.acc)} += {a} * {b} depth {stmt.depth}"
        case TileMma(acc, a, b, atom, line, anew):
            left = _tile(a) if isinstance(a, Tile) else _registers(a)
            which = "" if line is None else f", line {line} along K"
            return f"mma {atom.name} {_registers(acc)} {'' if anew else '+'}= {left} * {_tile(b)}{which}"
        case Reduction(dst, src, planes, atom, width):
            return f"{_registers(dst)} <- reduction of {planes} {atom.name} x{width} {_tile(src)}"
        case EpilogueStore(dst, acc, alpha, beta, _, width, steps):
            old = f" + {_expr(beta, 5)} * {dst.buffer.name}" if beta != Const(0.0, beta.dtype) else ""
            wide = f" x{width}" if width > 1 else ""
            then = "".join(f", then {step.name}: {show_expr(step.value)}" for step in steps)
            then += "" if stmt.via is None else f", by TMA from {stmt.via.name}"
            return f"epilogue_store{wide} {_tile(dst)} = {_expr(alpha, 5)} * {_registers(acc)}{old}{then}"
        case PipeOp(verb, pipe):
            return f"{verb} {_pipe(pipe)}"


def _made(prologue: Step | None) -> str:
    return "" if prologue is None else f", made into {show_expr(prologue.value)}"


def _pipe(pipe: Pipe) -> str:
    stages = "1 stage" if pipe.stages == 1 else f"{pipe.stages} stages"
    through = ", through registers" if pipe.through_registers else ""
    batch = f", {pipe.batch} at a time" if pipe.batch > 1 else ""
    return f"{pipe.name} ({stages}{batch}, sync {pipe.sync}{through})"


def _tile(tile: Tile) -> str:
    transposed = " transposed" if tile.transposed else ""
    pipe = f" of {tile.pipe.name}" if tile.pipe is not None else ""
    return f"{show_index(tile.buffer, tile.origin)} {tile.rows}x{tile.cols}{transposed}{pipe}"


def _registers(registers: Registers) -> str:
    slot = f"[slot {show_expr(registers.slot)}]" if registers.slot is not None else ""
    pipe = f" of {registers.pipe.name}" if registers.pipe is not None else ""
    return f"{registers.buffer.name}{slot}{pipe}"
