"""CUDA's instructions that C++ has no words for: copies under way, mbarriers, kernels that follow early, matrix
instructions of a warp. The statements, and what the template of their functions is told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import groupby

from gemmgen.backends.clike import CLike
from gemmgen.backends.shared_struct import MBARRIER, MBARRIER_BYTES, Member, member_of
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Space
from gemmgen.ir.dtypes import F32, F64, I32
from gemmgen.ir.expr import Call
from gemmgen.ir.instructions import Instruction
from gemmgen.ir.kernel import Kernel, allocs
from gemmgen.ir.stmt import Body, Multiply, Stmt, TmaCopy, VectorCopy
from gemmgen.ir.synchronization import AsyncGroup, DependentLaunch, Mbarrier, MbarrierVerb
from gemmgen.ir.walk import exprs, of_kind, walk, walk_expr
from gemmgen.launch import tensor_maps

#: Functions of elements before they are multiplied -> those that they are printed as.
MATRIX_CALLS = {
    "tf32": "cvt_rna_tf32",
    "tf32_head": "tf32_high",
    "tf32_rest": "tf32_low",
    "tf32_finite_rest": "tf32_low_finite",
}
#: Steps with mbarriers, and with the kernels before and after -> the instructions that take them.
MBARRIER_STEPS: Mapping[MbarrierVerb, str] = {
    "init": "mbarrier_init",
    "arrive": "mbarrier_arrive",
    "arrive_copies": "cp_async_mbarrier_arrive",
    "expect": "mbarrier_arrive_expect_tx",
    "wait": "mbarrier_wait",
}
HANDOVERS = {"release": "griddepcontrol_launch_dependents", "await": "griddepcontrol_wait"}
#: Bytes that a lane gets of a matrix.
WORD = 4
#: Size of an element -> what that is.
_PARTS = {4: "an element", 2: "two neighbours", 1: "four neighbours"}
#: Operand and number of matrices -> what one instruction loads.
_LOADED = {
    "a_x4": "16 rows of A, 32 bytes deep in K",
    "b_x2": "8 columns of B, 32 bytes deep in K",
    "b_x4": "16 columns of B, 32 bytes deep in K",
    "bytes_x4": "four 8 x 16 matrices of bytes, transposed by pairs of bytes",
}
#: Type of the sums -> what PTX calls it, and how assembler takes it.
_SUMS = {F32: ("f32", "f"), I32: ("s32", "r")}


def functions(body: Body) -> set[str]:
    """The functions that a kernel's statements call, but for moves and multiplications."""
    called = {n.function for s in walk(body) for root in exprs(s) for n in walk_expr(root) if isinstance(n, Call)}
    named = {MATRIX_CALLS[name] for name in called & MATRIX_CALLS.keys()}
    return named | {name for stmt in walk(body) for name in _called(stmt)}


def _called(stmt: Stmt) -> tuple[str, ...]:
    match stmt:
        case AsyncGroup(verb, _):
            return (f"cp_async_{verb}_group",)
        case Mbarrier(verb):
            if stmt.rank is not None:
                return ("mbarrier_arrive_cluster",)
            return (MBARRIER_STEPS[verb], *(("prefetch_tensormap", "fence_mbarrier_init") if stmt.arrivals else ()))
        case DependentLaunch(verb):
            return (HANDOVERS[verb],)
    return ()


# --- mbarriers ------------------------------------------------------------------------------------


def mbarrier(step: Mbarrier, printer: CLike) -> list[str]:
    """The statements of a step."""
    barrier = f"&{printer.memory(step.name)}[{printer.expr(step.index)}]"
    match step.verb:
        case "init":
            return _init(step, printer)
        case "wait":
            return [f"{MBARRIER_STEPS[step.verb]}({barrier}, {printer.expr(step.parity)});"]
        case "expect":
            return [f"{MBARRIER_STEPS[step.verb]}({barrier}, {printer.number(step.bytes)});"]
    if step.rank is not None:
        return [f"mbarrier_arrive_cluster({barrier}, {printer.expr(step.rank)});"]
    return [f"{MBARRIER_STEPS[step.verb]}({barrier});"]


def mbarriers(kernel: Kernel) -> list[Mbarrier]:
    """The arrays of them, as they are made ready."""
    return [s for s in of_kind(Mbarrier, kernel.body) if s.verb == "init"]


def swizzles(kernel: Kernel) -> bool:
    """Whether lines of shared memory swizzle, so that all of it is asked for at the launch, mbarriers too: the first
    line stands where shared memory begins.
    """
    boxes = any(of_kind(TmaCopy, kernel.body))
    return boxes or any(s.buffer.layout.swizzle for s in allocs(kernel, Space.LOCAL))


def _init(step: Mbarrier, printer: CLike) -> list[str]:
    """What makes an array of mbarriers ready."""
    rows, cols = printer.kernel.group
    which = printer.expr(step.index)
    if step.arrivals:
        return _init_for_copies(step, which, printer)
    alike = [x for x in mbarriers(printer.kernel) if not x.arrivals and (x.count, x.index) == (step.count, step.index)]
    if step != alike[0]:
        return []
    return [
        f"if ({which} < {printer.number(step.count)}) {{",
        *(f"    mbarrier_init(&{printer.memory(x.name)}[{which}], {printer.number(rows * cols)});" for x in alike),
        "}",
    ]


def _init_for_copies(step: Mbarrier, which: str, printer: CLike) -> list[str]:
    """What makes all mbarriers ready that copies tell or wait for, behind the last of their declarations. One thread
    does: several would take turns, in a loop, since the instruction's address must be the same for all of a warp. Maps
    are fetched meanwhile.
    """
    kernel = printer.kernel
    alike = [other for other in mbarriers(kernel) if other.arrivals]
    if step != alike[-1]:
        return []
    loops: list[str] = []
    for count, arrays in groupby(alike, lambda other: printer.number(other.count)):
        var = "stage" if not loops else "i"
        loops += [
            "    #pragma unroll",
            f"    for (int {var} = 0; {var} < {count}; ++{var}) {{",
            *(
                f"        mbarrier_init(&{printer.memory(other.name)}[{var}], {printer.number(other.arrivals)});"
                for other in arrays
            ),
            "    }",
        ]
    return [
        f"if ({which} == 0) {{",
        *(f"    prefetch_tensormap(&{tensor_map.name});" for tensor_map in tensor_maps(kernel)),
        *loops,
        "    fence_mbarrier_init();",
        "}",
    ]


def member(step: Mbarrier, printer: CLike) -> Member:
    """An array of mbarriers in shared memory."""
    declared = f"{MBARRIER} {member_of(step.name)}[{printer.number(step.count)}]"
    return Member(member_of(step.name), declared, MBARRIER_BYTES * int(step.count), MBARRIER_BYTES, asked=False)


# --- matrix instructions of a warp ----------------------------------------------------------------


def multiply(stmt: Multiply, printer: CLike) -> str:
    """The statement: rows 0 to 7 of the sums and of A, then rows 8 to 15, then B. Raises: LoweringError."""
    if stmt.atom.scope != "warp":
        raise LoweringError(f"{printer.name} has no {stmt.atom.name}")
    high, wide = (stmt.a, stmt.a_index), (stmt.b, stmt.b_index)
    if stmt.atom.rows < stmt.atom.cols:
        high, wide = wide, high
    tall = ((stmt.acc, stmt.acc_index), high)
    (acc, acc_below), (a, a_below) = (
        ((buffer, index), (buffer, (*index[:-2], index[-2] + 1, index[-1]))) for buffer, index in tall
    )
    texts = [printer.address(buffer, index) for buffer, index in (acc, acc_below, a, a_below, wide)]
    return f"{_function(stmt.atom)}({', '.join(texts)});"


def load(move: VectorCopy, printer: CLike) -> str:
    """The statement that fills an operand by lines."""
    return f"{_loader(move)}({printer.addresses(move)});"


def loads(body: Body, types: Mapping[str, str]) -> list[dict[str, object]]:
    """The functions that fill operands by lines."""
    found = {
        _loader(s): s for s in of_kind(VectorCopy, body) if s.atom.matrices is not None and s.dst.space is Space.PRIVATE
    }
    words: list[dict[str, object]] = []
    for name, move in sorted(found.items()):
        transposed = move.atom.matrices is not None and move.atom.matrices.transposed
        words.append(
            {
                "name": name,
                "what": _LOADED[name.removeprefix("ldmatrix_").replace("_trans", "")],
                "matrices": 2 if "_x2" in name else 4,
                "order": (2, 1) if name.startswith("ldmatrix_a") else (1, 2),
                "element": types[move.src.dtype.name],
                "trans": ".trans" if transposed else "",
                "part": f"{_PARTS[move.src.dtype.size]} of a {'column' if transposed else 'line'}",
            }
        )
    return words


def multiplications(body: Body, types: Mapping[str, str], features: Collection[str]) -> list[dict[str, object]]:
    """The functions that multiply."""
    atoms = dict.fromkeys(s.atom for s in of_kind(Multiply, body) if s.atom.scope == "warp")
    words: list[dict[str, object]] = []
    for atom in atoms:
        if atom.dtype is F64:
            way = "mma_f64" if "tall_f64" in features else "mma_f64_by_eight"
            words.append({"way": way, "name": _function(atom)})
            continue
        kind, hold = _SUMS[atom.sums]
        element, total = types[atom.dtype.name], types[atom.sums.name]
        said = {"depth": atom.depth, "short": atom.short, "kind": kind, "hold": hold}
        words.append({"way": "mma", "name": _function(atom), "element": element, "total": total, **said})
    return words


def _function(atom: Instruction) -> str:
    return f"mma_m16n8k{atom.depth}"


def _loader(move: VectorCopy) -> str:
    operand, _, transposed = move.atom.name.removeprefix("ldmatrix_").partition("_")
    matrices = move.width * move.src.dtype.size // WORD
    return f"ldmatrix_{operand}_x{matrices}" + ("_trans" if transposed else "")
