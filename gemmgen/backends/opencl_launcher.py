"""The C header that builds an OpenCL program and launches its kernels, for C99 and C++.

It holds the program's text, so that it is one file, and a program that was compiled with it needs no other: nothing is
looked for at run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from textwrap import wrap

from gemmgen.backends.clike import CLike
from gemmgen.backends.layout import LIMIT, lay_out
from gemmgen.backends.reach import FAR, Reach, is_matrix, reaches
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Expr, Var
from gemmgen.ir.kernel import Kernel, local_bytes
from gemmgen.ir.sizes import Workspace
from gemmgen.ir.walk import walk_expr
from gemmgen.launch import broken_assumptions, given_shape, products

#: Extensions that a host asks the device for before it builds.
REQUIRED_SIZE = "cl_intel_required_subgroup_size"
MATRICES = "cl_intel_subgroup_matrix_multiply_accumulate"
#: What the host calls the types of arguments and of elements; 16-bit floats are bits to it.
HOST_TYPES: dict[str, str] = {
    "float64": "cl_double",
    "float32": "cl_float",
    "float16": "cl_half",
    "bfloat16": "cl_ushort",
    "complex64": "cl_float2",
    "complex128": "cl_double2",
    "int64": "cl_long",
    "int32": "cl_int",
    "int16": "cl_short",
    "int8": "cl_char",
}
#: Errors of OpenCL by their numbers, 0 first and then downwards; None where a number means nothing.
ERRORS: tuple[str | None, ...] = (
    *"SUCCESS DEVICE_NOT_FOUND DEVICE_NOT_AVAILABLE COMPILER_NOT_AVAILABLE MEM_OBJECT_ALLOCATION_FAILURE".split(),
    *"OUT_OF_RESOURCES OUT_OF_HOST_MEMORY PROFILING_INFO_NOT_AVAILABLE MEM_COPY_OVERLAP".split(),
    *"IMAGE_FORMAT_MISMATCH IMAGE_FORMAT_NOT_SUPPORTED BUILD_PROGRAM_FAILURE MAP_FAILURE".split(),
    *"MISALIGNED_SUB_BUFFER_OFFSET EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST COMPILE_PROGRAM_FAILURE".split(),
    *"LINKER_NOT_AVAILABLE LINK_PROGRAM_FAILURE DEVICE_PARTITION_FAILED KERNEL_ARG_INFO_NOT_AVAILABLE".split(),
    *(None,) * 10,
    *"INVALID_VALUE INVALID_DEVICE_TYPE INVALID_PLATFORM INVALID_DEVICE INVALID_CONTEXT".split(),
    *"INVALID_QUEUE_PROPERTIES INVALID_COMMAND_QUEUE INVALID_HOST_PTR INVALID_MEM_OBJECT".split(),
    *"INVALID_IMAGE_FORMAT_DESCRIPTOR INVALID_IMAGE_SIZE INVALID_SAMPLER INVALID_BINARY".split(),
    *"INVALID_BUILD_OPTIONS INVALID_PROGRAM INVALID_PROGRAM_EXECUTABLE INVALID_KERNEL_NAME".split(),
    *"INVALID_KERNEL_DEFINITION INVALID_KERNEL INVALID_ARG_INDEX INVALID_ARG_VALUE INVALID_ARG_SIZE".split(),
    *"INVALID_KERNEL_ARGS INVALID_WORK_DIMENSION INVALID_WORK_GROUP_SIZE INVALID_WORK_ITEM_SIZE".split(),
    *"INVALID_GLOBAL_OFFSET INVALID_EVENT_WAIT_LIST INVALID_EVENT INVALID_OPERATION INVALID_GL_OBJECT".split(),
    *"INVALID_BUFFER_SIZE INVALID_MIP_LEVEL INVALID_GLOBAL_WORK_SIZE INVALID_PROPERTY".split(),
    *"INVALID_IMAGE_DESCRIPTOR INVALID_COMPILER_OPTIONS INVALID_LINKER_OPTIONS".split(),
    *"INVALID_DEVICE_PARTITION_COUNT INVALID_PIPE_SIZE INVALID_DEVICE_QUEUE INVALID_SPEC_ID".split(),
    "MAX_SIZE_RESTRICTION_EXCEEDED",
)
INDENT = "    "
#: Room for the options of all kinds of devices.
OPTION_BYTES = 256


def launcher_fields(file: CLike, printers: Sequence[CLike], workspaces: Sequence[Workspace]) -> Mapping[str, object]:
    """What the header's skeleton says beside the kernels' text.

    Args:
        file: prints all kernels as one.
        printers: those of each, in the order in which they run.
        workspaces: the memory between the kernels.
    """
    # The host does not see the constants of the kernels.
    file, printers = replace(file, constants={}), [replace(printer, constants={}) for printer in printers]
    kernels = [printer.kernel for printer in printers]
    if any(kernel.persistent or kernel.asks_device for kernel in kernels):
        raise LoweringError(f"no header launches {file.kernel.name}, whose grid depends on the device")
    name, extensions = file.kernel.name, file.extensions()
    between = {w.name: _workspace(w, file) for w in workspaces}
    found = list(reaches(file, kernels))
    matrices = [p for p in file.kernel.launcher_params if isinstance(p, Buffer)]
    too_far = [*(text for x in found for text in _too_far(x)), *_reached(workspaces, between)]
    refused = [*broken_assumptions(file.kernel, file.spec, signs=True), *too_far]
    empty = " || ".join(f"{var.name} < 1" for var in file.kernel.extents)
    launch = _launch_params(file.kernel)
    return {
        "comment": comment,
        "quoted": quoted,
        "error_names": _error_names(),
        "extensions": extensions,
        "lanes": _lanes(kernels) if REQUIRED_SIZE in extensions else [],
        "items": max(rows * cols for rows, cols in (kernel.group for kernel in kernels)),
        "local_bytes": max(map(local_bytes, kernels)),
        "asks_for_gpu": bool(file.gpu_options()),
        "options": [" ".join(file.build_options()), *_options_of_devices(file)],
        "option_bytes": OPTION_BYTES,
        "workspaces": list(between.values()),
        "spans": [_span(file, x) for x in found],
        "images": [p.name for p in matrices if p.space is Space.IMAGE],
        "refused": " || ".join(refused),
        "needs": list(_needs(file, matrices, between)),
        "empty": empty,
        "skips": _is_zero(file) if file.no_product() is not None else None,
        "opening": f"static inline cl_int {name}_launch({', '.join(launch)})",
        "steps": [
            _step(printer, file, before, is_last=printer is printers[-1])
            for printer, before in zip(printers, [None, *kernels], strict=False)
        ],
        "example": _example(file.kernel),
    }


def comment(text: str) -> list[str]:
    """A sentence as lines of a comment."""
    return wrap(text, 100, initial_indent="// ", subsequent_indent="//     ")


def quoted(text: str) -> list[str]:
    """The lines of a text as string literals of C, which begin no trigraphs."""
    lines = (
        line.replace("\\", "\\\\").replace('"', '\\"').replace("??", "?\\?")
        for line in lay_out(text, LIMIT - len('"",\\n')).splitlines()
    )
    return [f'"{line}\\n"' for line in lines]


def step_name(kernel: Kernel, program: str) -> str:
    """What a kernel is for, in a word."""
    others = "transpose" if kernel.scalars[0].name == "rows" else "product"
    return kernel.name.removeprefix(program).strip("_") or others


def _options_of_devices(file: CLike) -> Iterator[str]:
    """What the compilers of some devices are told besides, as C."""
    otherwise = f"\n{' ' * 17}"
    if gpu := file.gpu_options():
        yield f'{file.kernel.name}_is_gpu_of_intel(device){otherwise}? " {" ".join(gpu)}"{otherwise}: ""'
    if software := file.matrix_options():
        name = file.kernel.name
        has = f"{otherwise}&& ".join(f'{name}_has_extension(device, "{x}")' for x in file.matrix_extensions())
        yield f'{has}{otherwise}? " {software[0]}"{otherwise}: " {software[1]}"'


def _error_names() -> list[str]:
    items = [f'"CL_{name}",' if name else "NULL," for name in ERRORS]
    return wrap(" ".join(items), 92)


def _lanes(kernels: Sequence[Kernel]) -> list[int]:
    """Sizes of sub-groups that are asked for."""
    return sorted({kernel.sub_group for kernel in kernels if kernel.sub_group})


def _host_type(dtype: DType) -> str:
    return HOST_TYPES[dtype.name]


def _launch_params(kernel: Kernel) -> list[str]:
    """The parameters of the function that launches."""
    given = (
        f"cl_mem {p.name}" if isinstance(p, Buffer) else f"{_host_type(p.dtype)} {p.name}"
        for p in kernel.launcher_params
    )
    around = ["cl_uint wait_count", "const cl_event *wait_for", "cl_event *done"]
    return [f"const struct {kernel.name} *built", "cl_command_queue queue", *given, *around]


def _example(kernel: Kernel) -> list[str]:
    """A call, for the head comment."""
    given = ["&built", "queue", *(p.name for p in kernel.launcher_params), "0", "NULL", "NULL"]
    return lay_out(f"error = {kernel.name}_launch({', '.join(given)});", LIMIT - len("//     ")).splitlines()


def _is_zero(file: CLike, sign: str = "==", between: str = "&&") -> str:
    """Whether alpha is zero, as the host asks; complex numbers have no other names for their parts in C99."""
    alpha = next(var for var in file.kernel.scalars if var.name == "alpha")
    zero = file.literal(0, alpha.dtype.real or alpha.dtype)[0]
    parts = ["alpha"] if alpha.dtype.real is None else ["alpha.s[0]", "alpha.s[1]"]
    return f" {between} ".join(f"{part} {sign} {zero}" for part in parts)


# --- what is checked before a launch --------------------------------------------------------------


def _span(file: CLike, reach: Reach) -> Mapping[str, str]:
    """What the launcher says of how far a matrix reaches."""
    call = f"{file.kernel.name}_span({reach.lines}, {reach.length}, {reach.pitch})"
    return {"name": reach.name, "call": call, "read": _is_zero(file, "!=", "||") if reach.is_unread else ""}


def _too_far(reach: Reach) -> Iterator[str]:
    yield f"{reach.name}_span < 0"
    if reach.limit < FAR:
        yield f"{reach.name}_span >= (cl_long)1 << {reach.limit.bit_length() - 1}"


def _reached(workspaces: Sequence[Workspace], between: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """Where memory between kernels is larger than their places are counted by."""
    for x in workspaces:
        if x.reach < FAR:
            made = between[x.name]
            yield f"{x.name}_bytes / sizeof({made['type']}) >= (size_t)1 << {x.reach.bit_length() - 1}"


def _needs(
    file: CLike, matrices: Sequence[Buffer], between: Mapping[str, Mapping[str, object]]
) -> Iterator[Mapping[str, object]]:
    """How large buffers must be."""
    layers = products(file.kernel)
    for p in matrices:
        if p.space is Space.IMAGE:
            continue
        size = f"sizeof({_host_type(p.dtype)})"
        if p.name in between:
            yield {"name": p.name, "elements": f"(cl_long){p.name}_bytes", "bytes": 1, "line": ""}
        elif not is_matrix(p):
            yield {
                "name": p.name,
                "elements": " * ".join(map(file.expr, given_shape(p))) or "1",
                "bytes": size,
                "line": "",
            }
        elif p.batch_stride is not None and layers is not None:
            more = f"{p.name}_span > 0 ? ({layers.name} - 1) * {file.expr(p.batch_stride)} : 0"
            line = f"const cl_long {p.name}_more = {more};"
            yield {"name": p.name, "elements": f"{p.name}_span + {p.name}_more", "bytes": size, "line": line}
        else:
            yield {"name": p.name, "elements": f"{p.name}_span", "bytes": size, "line": ""}


def _workspace(workspace: Workspace, file: CLike) -> Mapping[str, object]:
    """The function that says how large it must be."""
    used = {node.name for node in walk_expr(workspace.elements) if isinstance(node, Var)}
    names = [p.name for p in file.kernel.launcher_params if p.name in used]
    function = f"{file.kernel.name}_{workspace.name}_bytes"
    return {
        "name": workspace.name,
        "type": _host_type(workspace.dtype),
        "elements": file.expr(workspace.elements),
        "opening": f"static inline size_t {function}({', '.join(f'cl_long {x}' for x in names) or 'void'})",
        "line": f"const size_t {workspace.name}_bytes = {function}({', '.join(names)});",
    }


# --- a kernel ------------------------------------------------------------------------------------


def _step(printer: CLike, file: CLike, before: Kernel | None, is_last: bool) -> Mapping[str, object]:
    """What sets the arguments of a kernel, and its launch after the one before."""
    kernel, member = printer.kernel, step_name(printer.kernel, file.kernel.name)
    taken = "return" if before is None and is_last else "error ="
    (rows, cols), (down, across) = kernel.group, kernel.grid
    pairs = [
        f"{{sizeof(cl_mem), &{p.name}}}," if isinstance(p, Buffer) else f"{{sizeof {p.name}, &{p.name}}},"
        for p in kernel.given
    ]
    layers = "1" if kernel.grid_z is None else f"(size_t){kernel.grid_z.name}"
    groups = [_as_size(printer, across), _as_size(printer, down), layers]
    after = ("wait_count", "wait_for")
    if before is not None:
        after = ("1", f"&{step_name(before, file.kernel.name)}_done")
    tables = [f"{member}_arguments", str(len(pairs)), f"{member}_groups", f"{member}_group"]
    given = ["queue", f"built->{member}", *tables, *after, "done" if is_last else f"&{member}_done"]
    return {
        "name": kernel.name,
        "member": member,
        "arguments": _filled(pairs),
        "call": f"{taken} {file.kernel.name}_enqueue({', '.join(given)});",
        "groups": f"const size_t {member}_groups[3] = {{{', '.join(groups)}}};",
        "group": [str(cols), str(rows), "1"],
    }


def _filled(items: Sequence[str]) -> list[str]:
    """Items over as few lines as fit."""
    lines = [""]
    for item in items:
        if lines[-1] and len(lines[-1]) + len(item) > 90:
            lines.append("")
        lines[-1] += f" {item}" if lines[-1] else item
    return [f"{INDENT * 2}{line}" for line in lines]


def _as_size(printer: CLike, extent: Expr) -> str:
    text = printer.expr(extent)
    return text if text.isdecimal() else f"(size_t)({text})"
