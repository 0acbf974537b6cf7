"""Roles, copies of boxes and matrix instructions of a warpgroup in CUDA C++: the statements, and the functions with PTX
that they call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gemmgen.backends.clike import CLike
from gemmgen.backends.cuda_stores import place, words
from gemmgen.backends.files import section, sections
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.dtypes import F32, I32
from gemmgen.ir.expr import as_int
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.meetings import Barrier, Mbarrier, MultiplyGroup, RegisterShare
from gemmgen.ir.stmt import BoxCopy, Move, Multiply, Point, Store
from gemmgen.ir.walk import walk
from gemmgen.ir.warpgroup_matrix import LINE_BYTES, LINES, TURNED_BYTES, WarpgroupAtom
from gemmgen.launch import map_name

#: Descriptors of tiles count in so many bytes.
UNIT = 16
#: Type of the sums -> its name, what PTX calls it, and how assembler takes it.
_SUMS = {F32: ("float", "f32", "f"), I32: ("int", "s32", "r")}
#: Type of the sums -> the macro that lists some of a thread's.
_LISTED = {F32: "SUMS", I32: "INT_SUMS"}
#: Bytes of a line that swizzles -> what descriptors call that (PTX ISA, "Matrix descriptor", bits 62 and 63).
LAYOUT_TYPES = {128: 1, 64: 2, 32: 3}
#: Characters of a line of operands.
WIDTH = 88


def box_copy(stmt: BoxCopy, tells: Mbarrier, printer: CLike) -> str:
    """The statement that begins a copy."""
    to, matrix = printer.address(stmt.dst, stmt.dst_index), map_name(stmt.src, printer.kernel)
    barrier = f"&{tells.name}[{printer.expr(tells.index)}]"
    return f"{_copy_function(stmt.src)}({to}, &{matrix}, {place(stmt.src_index, printer)}, {barrier});"


def _copy_function(matrix: Buffer) -> str:
    return "copy_box_once" if matrix.streamed else "copy_box" if matrix.shared == 1 else "copy_box_to_all"


def point(stmt: Point, printer: CLike) -> str:
    """The descriptor of a tile, where a view begins."""
    block = as_int(stmt.view.layout.strides[0]) or 0
    several = as_int(stmt.view.shape[0]) != 1
    size = block * stmt.view.dtype.size if several else UNIT
    tile = printer.address(stmt.buffer, stmt.index)
    return f"const unsigned long long {stmt.view.name} = {_tile_function(stmt.view, printer.kernel)}<{size}>({tile});"


def _tile_function(view: Buffer, kernel: Kernel) -> str:
    """By name, lines of 128 bytes are meant where it says nothing else."""
    line = view.layout.swizzle
    return ("" if kernel.cluster == 1 else "own_") + "matrix_tile" + (f"_of_{line}" if line != LINE_BYTES else "")


def _described_by(view: Buffer, kernel: Kernel, source: str) -> list[str]:
    """The function that makes a tile's descriptor: the lines' swizzle, and how far from eight of them to the next."""
    line, key = view.layout.swizzle, "matrix_tile" if kernel.cluster == 1 else "own_matrix_tile"
    said = {"line": line, "eight": LINES * line, "stride": LINES * line // UNIT, "layout": LAYOUT_TYPES[line]}
    return section(source, key, function=_tile_function(view, kernel), **said)


def multiply(stmt: Multiply, atom: WarpgroupAtom, printer: CLike) -> str:
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
    return f"{_function(atom)}({sums}, {a}, {b});"


def _described(view: Buffer, index: tuple[object, ...], printer: CLike) -> str:
    offset = view.layout.offset(index) // (UNIT // view.dtype.size)  # type: ignore[arg-type]
    return view.name if as_int(offset) == 0 else f"{view.name} + {printer.expr(offset)}"


def role(stmt: MultiplyGroup | RegisterShare) -> list[str]:
    """The statements about instructions under way, or about registers."""
    match stmt:
        case RegisterShare(registers, more):
            return [f"registers_{'more' if more else 'fewer'}<{registers}>();"]
        case MultiplyGroup("fence", taken=Buffer() as held):
            return [f"wgmma_fence({held.name});"]
        case MultiplyGroup("wait", pending, None):
            return [f"wgmma_wait<{pending}>();"]
        case MultiplyGroup("wait", _, Buffer() as sums):
            rows = as_int(sums.shape[0]) or 0
            return [f"wgmma_wait({_rows(sums.name, row)});" for row in range(0, rows, 2)]
    return [f"wgmma_{stmt.verb}();"]


def _rows(sums: str, row: int) -> str:
    """Where two rows of a lane's sums begin."""
    return f"&{sums}[{row}]" if row else sums


def _function(atom: WarpgroupAtom) -> str:
    return f"wgmma_m64n{atom.cols}k{atom.depth}"


# --- functions ------------------------------------------------------------------------------------


def warpgroup_functions(kernel: Kernel, types: Mapping[str, str], source: str) -> list[str]:
    """The functions that a kernel's statements call, each once."""
    named = set(_plain(kernel))
    behind = {name for name in named if name.startswith("wgmma")}
    lines = sections(source, named - behind, **words(kernel.body))
    views = (s.view for s in walk(kernel.body) if isinstance(s, Point) and s.view.layout.swizzle)
    for view in {_tile_function(view, kernel): view for view in views}.values():
        lines += _described_by(view, kernel, source)
    lines += sections(source, behind)
    atoms = [s.atom for s in walk(kernel.body) if isinstance(s, Multiply) and isinstance(s.atom, WarpgroupAtom)]
    for i, atom in enumerate(dict.fromkeys(atoms)):
        total, _, hold = _SUMS[atom.sums]
        listed = _LISTED[atom.sums]
        lines += section(source, "lane_sums", macro=listed, hold=hold) if not i else []
        values = atom.c.cols.values
        operands = _folded([f"{listed}({col})" for col in range(0, values, 2)], 19)
        lines += section(source, "wgmma_wait_all", values=values, operands=operands, total=total)
        lines += _multiplication(atom, types, source, operands)
    return (
        [*lines, *(f"#undef {_LISTED[sums]}" for sums in dict.fromkeys(atom.sums for atom in atoms)), ""]
        if atoms
        else lines
    )


def _plain(kernel: Kernel) -> Iterator[str]:
    for stmt in walk(kernel.body):
        match stmt:
            case BoxCopy(tells=Mbarrier()):
                yield _copy_function(stmt.src)
            case Store(buffer=Buffer(spread=groups)) | Move(dst=Buffer(spread=groups)) if groups > 1:
                yield "in_block"
            case Barrier(groups=groups, part=("arrive" | "wait") as part) if groups > 1:
                yield f"cluster_{part}"
            case Barrier(role_items=items, groups=groups) if items and groups > 1:
                yield "cluster_sync"
            case Barrier(role_items=items) if items:
                yield "role_barrier"
            case Barrier(groups=groups) if groups > 1:
                yield "cluster_barrier"
            case RegisterShare():
                yield "registers_more" if stmt.more else "registers_fewer"
            case MultiplyGroup() if stmt.sums is None:
                yield f"wgmma_{stmt.verb}" + ("_held" if stmt.taken else "")


def _multiplication(atom: WarpgroupAtom, types: Mapping[str, str], source: str, operands: str) -> list[str]:
    """The function of an instruction."""
    values = atom.c.cols.values
    count = atom.c.rows.values * values
    total, kind, _ = _SUMS[atom.sums]
    turned = (atom.b_turned,) if atom.held else (atom.a_turned, atom.b_turned)
    orders = "".join(f", {int(x)}" for x in turned) if atom.dtype.size == TURNED_BYTES else ""
    named = _lines(", ".join(f"%{i}" for i in range(count)), WIDTH - 20)
    said = {
        "function": _function(atom),
        "total": total,
        "kind": kind,
        "cols": atom.cols,
        "values": values,
        "depth": atom.depth,
        "short": atom.short,
        "named": f"\n{' ' * 17}".join(f'"{line}"' for line in named),
        "a_place": ", ".join(f"%{count + i}" for i in range(4)) if atom.held else count,
        "b_place": count + (4 if atom.held else 1),
        "element": types[atom.dtype.name],
        # Factors of 1, which whole numbers have none of; and the orders, in which others than 16 bits have no say.
        "modes": (", 1, 1" if atom.sums.is_float else "") + orders,
        "operands": operands,
    }
    return section(source, "wgmma_held" if atom.held else "wgmma", **said)


def _folded(operands: list[str], indent: int) -> str:
    """Operands in lines behind an indent, without that of the first."""
    return f"\n{' ' * indent}".join(line.rstrip() for line in _lines(", ".join(operands), WIDTH - indent))


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
