"""Features of Hopper in CUDA C++: roles and clusters, TMA loads and stores, matrix instructions of a warpgroup. The
statements, and what the template of their functions is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gemmgen.backends.clike import CLike
from gemmgen.backends.simt import PAIRS_OF_FLOATS
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.dtypes import F32, I32
from gemmgen.ir.expr import Expr, as_int
from gemmgen.ir.instructions import LINES, TILE_LINE_BYTES, Instruction
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.operands import TRANSPOSED_BYTES
from gemmgen.ir.stmt import Body, Multiply, PointerInit, Store, TmaCopy, VectorCopy
from gemmgen.ir.swizzle import mask
from gemmgen.ir.synchronization import Barrier, MultiplyGroup, SetMaxRegisters, StoreGroup
from gemmgen.ir.walk import of_kind, walk
from gemmgen.launch import map_name

#: Descriptors of tiles count in so many bytes.
UNIT = 16
#: Type of the sums -> its name, what PTX calls it, and how assembler takes it.
_SUMS = {F32: ("float", "f32", "f"), I32: ("int", "s32", "r")}
#: Type of the sums -> the macro that lists some of a thread's.
_LISTED = {F32: "ACC", I32: "INT_ACC"}
#: Bytes of a line that swizzles -> what descriptors call that (PTX ISA, "Matrix descriptor", bits 62 and 63).
LAYOUT_TYPES = {128: 1, 64: 2, 32: 3}
#: Steps with groups of TMA stores, and of matrix instructions -> the instructions that take them.
STORE_STEPS = {
    "fence": "fence_proxy_async",
    "commit": "cp_async_bulk_commit_group",
    "wait": "cp_async_bulk_wait_group_read",
}
MULTIPLY_STEPS = {"fence": "wgmma_fence", "commit": "wgmma_commit_group", "wait": "wgmma_wait_group"}
#: Characters of a line of operands.
WIDTH = 88


def functions(kernel: Kernel, types: Mapping[str, str]) -> dict[str, object]:
    """What the template is told of the functions that a kernel's statements call."""
    body = kernel.body
    views = (s.view for s in of_kind(PointerInit, body) if s.view.layout.swizzle)
    products = [s for s in of_kind(Multiply, body) if s.atom.scope == "warpgroup"]
    atoms, anew = [s.atom for s in products], any(s.accumulate is not None for s in products)
    puts = _puts(body, types)
    lines = {s.dst.layout.swizzle for s in of_kind(VectorCopy, body) if is_put(s)}  # of C, and so one
    return {
        "used": set(_called(kernel)),
        "batch": _of_batch(body),
        "cluster": kernel.cluster,
        "tiles": [_tile(view, kernel) for view in {_tile_function(view, kernel): view for view in views}.values()],
        "sums": _sums(atoms),
        "multiplications": [_multiplication(atom, types) for atom in dict.fromkeys(atoms)],
        "anew": anew,
        "swizzle": next(({"line": line, "mask": mask(line)} for line in lines), None),
        "puts": puts,
    }


def _called(kernel: Kernel) -> Iterator[str]:
    for stmt in walk(kernel.body):
        match stmt:
            case TmaCopy():
                yield "tma_store" if stmt.mbarrier is None else _load_function(stmt.src)
            case StoreGroup(verb):
                yield STORE_STEPS[verb]
            case Store(buffer=Buffer(distributed=groups)) | VectorCopy(dst=Buffer(distributed=groups)) if groups > 1:
                yield "map_shared_rank"
            case Barrier(groups=groups, part=("arrive" | "wait") as part) if groups > 1:
                yield f"cluster_{part}"
            case Barrier(role_items=items, groups=groups) if items and groups > 1:
                yield "cluster_sync"
            case Barrier(role_items=items) if items:
                yield "named_barrier_sync"
            case Barrier(groups=groups) if groups > 1:
                yield "cluster_sync_relaxed"
            case SetMaxRegisters():
                yield "setmaxnreg_inc" if stmt.increase else "setmaxnreg_dec"
            case MultiplyGroup(pending=pending, sums=Buffer()) if pending:
                yield "wgmma_wait_sums"
            case MultiplyGroup() if stmt.sums is None:
                yield MULTIPLY_STEPS[stmt.verb] + ("_held" if stmt.taken else "")


# --- TMA ------------------------------------------------------------------------------------------


def tma_copy(stmt: TmaCopy, printer: CLike) -> str:
    """The statement that begins a load or a store."""
    if (tells := stmt.mbarrier) is None:
        matrix, own = map_name(stmt.dst, printer.kernel), printer.address(stmt.src, stmt.src_index)
        return f"tma_store_{len(stmt.dst_index)}d(&{matrix}, {_place(stmt.dst_index, printer)}, {own});"
    to, matrix = printer.address(stmt.dst, stmt.dst_index), map_name(stmt.src, printer.kernel)
    barrier = f"&{printer.memory(tells.name)}[{printer.expr(tells.index)}]"
    name, _, how = _load_function(stmt.src).partition("tma_load")
    function = f"{name}tma_load_{len(stmt.src_index)}d{how}"
    return f"{function}({to}, &{matrix}, {_place(stmt.src_index, printer)}, {barrier});"


def _load_function(matrix: Buffer) -> str:
    """Without the number of its coordinates."""
    return (
        "tma_load_evict_first" if matrix.evict_first else "tma_load" if matrix.multicast == 1 else "tma_load_multicast"
    )


def store_group(stmt: StoreGroup) -> str:
    """The statement about stores under way."""
    return STORE_STEPS[stmt.verb] + (f"<{stmt.pending}>();" if stmt.verb == "wait" else "();")


def _place(index: Sequence[Expr], printer: CLike) -> str:
    """The coordinates of a TMA tile as PTX counts them, from the fast axis."""
    return ", ".join(map(printer.expr, reversed(index)))


def _of_batch(body: Body) -> bool:
    """Whether tensor maps are of a batch's matrices."""
    boxes = (x for copy in of_kind(TmaCopy, body) for x in (copy.dst, copy.src) if x.tma_tile is not None)
    return any(len(matrix.shape) > 2 for matrix in boxes)


# --- sums on their way to shared memory -----------------------------------------------------------


def is_put(move: VectorCopy) -> bool:
    """Whether it goes to lines that swizzle."""
    return bool(move.dst.layout.swizzle)


def put(move: VectorCopy, printer: CLike) -> str:
    """The statement that puts down a part of the sums."""
    to, own = printer.address(move.dst, move.dst_index), printer.address(move.src, move.src_index)
    if move.atom.matrices is None:
        return f"{_put_function(move)}({to}, {own});"
    row, col = move.src_index
    return f"{_put_function(move)}({to}, {own}, {printer.address(move.src, (row + 1, col))});"


def _put_function(move: VectorCopy) -> str:
    if move.atom.matrices is None:
        return "st_shared_2_trans" if move.atom.element_step == (1, 0) else "st_shared_v2"
    return f"stmatrix_x{move.width // 2}{'_trans' if move.atom.matrices.transposed else ''}"


def _puts(body: Body, types: Mapping[str, str]) -> list[dict[str, object]]:
    """The functions that put sums down."""
    found = (s for s in of_kind(VectorCopy, body) if is_put(s))
    moves = {(s.atom, s.width, s.dst.dtype, s.src.dtype): s for s in found}
    words: list[dict[str, object]] = []
    for (atom, width, dtype, sums), move in moves.items():
        name = _put_function(move)
        said: dict[str, object] = {"name": name, "element": types[dtype.name]}
        if atom.matrices is None:
            hold, length = "f" if dtype.is_float else "r", move.dst.layout.swizzle // dtype.size
            words.append({**said, "kind": name, "hold": hold, "length": length})
            continue
        if dtype not in PAIRS_OF_FLOATS:
            raise LoweringError(f"CUDA makes no pairs of {dtype}")
        pair, make = PAIRS_OF_FLOATS[dtype]
        transposed = atom.matrices.transposed
        said |= {"kind": "stmatrix", "below": " " * len(name), "sum": types[sums.name], "pair": pair, "make": make}
        said |= {"matrices": width // 2}
        words.append({**said, "lines": "transposed, " if transposed else "", "trans": ".trans" if transposed else ""})
    return words


# --- matrix instructions of a warpgroup -----------------------------------------------------------


def point(stmt: PointerInit, printer: CLike) -> str:
    """The descriptor of a tile, where a view begins."""
    block = as_int(stmt.view.layout.strides[0]) or 0
    # Along K an instruction stays within a line.
    several = as_int(stmt.view.shape[0]) != 1 and not _lies_along_k(stmt.view, printer.kernel)
    size = printer.number(block * stmt.view.dtype.size if several else UNIT)
    tile = printer.address(stmt.buffer, stmt.index)
    return f"const unsigned long long {stmt.view.name} = {_tile_function(stmt.view, printer.kernel)}<{size}>({tile});"


def _lies_along_k(view: Buffer, kernel: Kernel) -> bool:
    """Whether K is the fast axis of a tile."""
    return any(
        (stmt.a == view and not stmt.atom.a_transposed) or (stmt.b == view and not stmt.atom.b_transposed)
        for stmt in of_kind(Multiply, kernel.body)
    )


def _tile_function(view: Buffer, kernel: Kernel) -> str:
    """By name, lines of 128 bytes are meant where it says nothing else."""
    line = view.layout.swizzle
    return (
        ("" if kernel.cluster == 1 else "own_") + "matrix_descriptor" + (f"_{line}b" if line != TILE_LINE_BYTES else "")
    )


def _tile(view: Buffer, kernel: Kernel) -> dict[str, object]:
    """The function that makes a tile's descriptor: the lines' swizzle, and how far from eight of them to the next."""
    line = view.layout.swizzle
    said = {"line": line, "lines": LINES, "layout": LAYOUT_TYPES[line]}
    return {"name": _tile_function(view, kernel), "own": kernel.cluster > 1, **said}


def multiply(stmt: Multiply, atom: Instruction, printer: CLike) -> str:
    """The statement: two rows of a lane's sums, and descriptors of A and B."""
    row, col = stmt.acc_index
    if as_int(col) != 0:
        raise LoweringError("a warpgroup's sums begin in a middle column")
    sums = stmt.acc.name if as_int(row) == 0 else f"&{stmt.acc.name}[{printer.expr(row)}]"
    b = _described(stmt.b, stmt.b_index, printer)
    if atom.held:
        *which, row, col = stmt.a_index  # none of several where a step is one instruction
        a = ", ".join(printer.address(stmt.a, (*which, line, col)) for line in (row, row + 1))
    else:
        a = _described(stmt.a, stmt.a_index, printer)
    accumulate = "" if stmt.accumulate is None else f", {printer.expr(stmt.accumulate)} > 0"
    return f"{_function(atom)}({sums}, {a}, {b}{accumulate});"


def _described(view: Buffer, index: tuple[object, ...], printer: CLike) -> str:
    offset = view.layout.offset(index) // (UNIT // view.dtype.size)  # type: ignore[arg-type]
    return view.name if as_int(offset) == 0 else f"{view.name} + {printer.expr(offset)}"


def role(stmt: MultiplyGroup | SetMaxRegisters, printer: CLike) -> list[str]:
    """The statements about instructions under way, or about registers."""
    match stmt:
        case SetMaxRegisters(registers, more):
            return [f"setmaxnreg_{'inc' if more else 'dec'}<{registers}>();"]
        case MultiplyGroup("fence", taken=Buffer() as held):
            fragments = [f"{held.name}[{printer.expr(which)}]" for which in stmt.which] or [held.name]
            return [f"wgmma_fence({', '.join(fragments)});"]
        case MultiplyGroup("wait", pending, None):
            return [f"wgmma_wait_group<{pending}>();"]
        case MultiplyGroup("wait", pending, Buffer() as sums):
            rows, function = as_int(sums.shape[0]) or 0, f"wgmma_wait_sums<{pending}>" if pending else "wgmma_wait_all"
            return [f"{function}({_rows(sums.name, row)});" for row in range(0, rows, 2)]
    return [f"{MULTIPLY_STEPS[stmt.verb]}();"]


def _rows(sums: str, row: int) -> str:
    """Where two rows of a lane's sums begin."""
    return f"&{sums}[{row}]" if row else sums


def _function(atom: Instruction) -> str:
    return f"wgmma_m64n{atom.cols}k{atom.depth}"


def _sums(atoms: Sequence[Instruction]) -> dict[str, object] | None:
    """The macro that lists some of a thread's sums."""
    if not atoms:
        return None
    _, _, hold = _SUMS[atoms[0].sums]
    return {"macro": _LISTED[atoms[0].sums], "hold": hold}


def _multiplication(atom: Instruction, types: Mapping[str, str]) -> dict[str, object]:
    """The function of an instruction."""
    values = atom.c.cols.values
    count = atom.c.rows.values * values
    total, kind, _ = _SUMS[atom.sums]
    transposed = (atom.b_transposed,) if atom.held else (atom.a_transposed, atom.b_transposed)
    orders = "".join(f", {int(x)}" for x in transposed) if atom.dtype.size == TRANSPOSED_BYTES else ""
    named = _lines(", ".join(f"%{i}" for i in range(count)), WIDTH - 20)
    return {
        "held": atom.held,
        "name": _function(atom),
        "total": total,
        "kind": kind,
        "cols": atom.cols,
        "columns": values,
        "count": count,
        "depth": atom.depth,
        "short": atom.short,
        "named": f"\n{' ' * 17}".join(f'"{line}"' for line in named),
        "a_place": ", ".join(f"%{count + i}" for i in range(4)) if atom.held else count,
        "b_place": count + (4 if atom.held else 1),
        "accumulate_place": count + (5 if atom.held else 2),
        "element": types[atom.dtype.name],
        # Factors of 1, which whole numbers have none of; and the orders, in which others than 16 bits have no say.
        "modes": (", 1, 1" if atom.sums.is_float else "") + orders,
        "operands": _folded([f"{_LISTED[atom.sums]}({col})" for col in range(0, values, 2)], 4),
    }


def _folded(operands: list[str], indent: int) -> str:
    """A macro's operands in lines behind an indent, without that of the first."""
    return f" \\\n{' ' * indent}".join(line.rstrip() for line in _lines(", ".join(operands), WIDTH - indent))


def _lines(text: str, width: int) -> list[str]:
    """Text in lines that end behind a comma and a blank."""
    lines = [""]
    for part in text.split(", "):
        piece = f"{part}, "
        if len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    lines[-1] = lines[-1].removesuffix(", ")
    return lines
