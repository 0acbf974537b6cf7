"""`joint_matrix` in SYCL: the types of fragments, and the calls on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gemmgen.backends.clike import CLike
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.kernel import Kernel, fragments_of
from gemmgen.ir.stmt import FragmentApply, Multiply, VectorCopy
from gemmgen.ir.walk import of_kind, places

#: What the types of fragments are called, by their use.
FRAGMENTS = {"a": "FragmentA", "b": "FragmentB", "accumulator": "FragmentC"}
#: SYCL's headers for the run-time compiler.
MATRIX_HEADERS = ("ext/oneapi/matrix/matrix.hpp", "group_barrier.hpp", "multi_ptr.hpp", "sub_group.hpp")
EXTENSIONS = ("sycl_ext_oneapi_matrix", "sycl_ext_intel_matrix")


def uses_fragments(kernel: Kernel) -> bool:
    """Whether a kernel multiplies by `joint_matrix`."""
    return bool(fragments_of(kernel.body))


def fragment_types(kernel: Kernel, types: Mapping[str, str]) -> list[dict[str, object]]:
    """The types of fragments, for templates/sycl/joint_matrix.hpp.j2."""
    multiply = next(of_kind(Multiply, kernel.body), None)
    if multiply is None or not uses_fragments(kernel):
        return []
    atom = multiply.atom
    shapes = {"a": (atom.rows, atom.depth), "b": (atom.depth, atom.cols), "accumulator": (atom.rows, atom.cols)}
    columns = {s.dst for s in of_kind(VectorCopy, kernel.body) if _by_columns(s)}
    return [
        {
            "name": FRAGMENTS[use],
            "use": use,
            "element": types[buffer.dtype.name],
            "rows": shapes[use][0],
            "cols": shapes[use][1],
            "layout": None if use == "accumulator" else "col_major" if buffer in columns else "row_major",
        }
        for buffer, use in sorted(fragments_of(kernel.body).items(), key=lambda x: x[1] == "accumulator")
    ]


def _by_columns(move: VectorCopy) -> bool:
    """Whether lines in memory are columns of a fragment of B: each lane has one."""
    layout = move.atom.fragment
    return layout is not None and move.dst.name.startswith("b_") and layout.cols.lanes == 1


def load_text(printer: CLike, move: VectorCopy) -> str:
    """The call that loads a fragment, or fills it element by element."""
    to, matrix, pitch = printer.element(move.dst, move.dst_index[:-1]), move.src, move.src.layout.strides[-2]
    if move.atom.aligned:
        numbers: tuple[Expr, ...] = (*move.extent, pitch, *move.src_index[-2:])
        verb = "load_fragment"
    else:
        # Rows and columns as the fragment has them.
        back = -1 if _by_columns(move) else 1
        steps = (pitch, Const(1))[::back]
        numbers = (*move.extent[::back], *steps, *move.src_index[-2:][::back])
        verb = "load_elements"
    return f"{verb}(sub_group, {to}, {matrix.name}, {', '.join(map(printer.expr, numbers))});"


def load_functions(kernel: Kernel, types: Mapping[str, str], zero: Callable[[DType], str]) -> dict[str, object]:
    """The functions that load fragments, for the same: the type of elements, a zero of that, and whether
    both functions are called.
    """
    loads = [s for s in of_kind(VectorCopy, kernel.body) if s.atom.fragment is not None]
    dtype = loads[0].src.dtype
    return {
        "element": types[dtype.name],
        "zero": zero(dtype),
        "by_elements": any(not load.atom.aligned for load in loads),
    }


def multiply_text(printer: CLike, stmt: Multiply) -> str:
    """The call that multiplies fragments."""
    acc, a, b = (printer.element(buffer, index[:-1]) for buffer, index in places(stmt))
    return f"matrix::joint_matrix_mad(sub_group, {acc}, {a}, {b}, {acc});"


def apply_opening(printer: CLike, stmt: FragmentApply, element: str) -> str:
    """The line before what is done to each element."""
    fragment = printer.element(stmt.fragment, stmt.index)
    params = f"{element} &{stmt.element.name}, int {stmt.row.name}, int {stmt.col.name}"
    return f"intel::joint_matrix_apply(sub_group, {fragment}, [&]({params}) {{"
