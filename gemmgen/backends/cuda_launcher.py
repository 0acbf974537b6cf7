"""The C function that launches the kernels of a CUDA source; NVRTC, compiling for the device alone, does not see it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gemmgen.backends.clike import CLike
from gemmgen.backends.cuda_checks import launch_checks
from gemmgen.backends.files import section, sections
from gemmgen.backends.lines import fold_line, wrapped
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.meetings import Handover
from gemmgen.ir.sizes import GROUPS
from gemmgen.ir.walk import walk
from gemmgen.ir.workspace import Workspace
from gemmgen.launch import map_name, passed, tensor_maps
from gemmgen.source import TensorMap

#: Where the functions stand that launchers call.
HOST = "cuda/host.cu"


def awaited(kernel: Kernel) -> frozenset[str]:
    """The matrices that the kernels before write while this one begins."""
    awaits = (stmt for stmt in walk(kernel.body) if isinstance(stmt, Handover))
    return frozenset(buffer.name for step in awaits for buffer in step.buffers)


def grid(printer: CLike) -> str:
    """Blocks along each dimension."""
    kernel = printer.kernel
    if kernel.persistent:  # in one line
        return printer.expr(kernel.grid[1])
    layers = [] if kernel.layers is None else [kernel.layers.name]
    return ", ".join([*map(printer.expr, reversed(kernel.grid)), *layers])


def launcher(
    file: CLike, printers: Sequence[CLike], params: list[str], workspaces: Sequence[Workspace], detail: str
) -> str:
    """The whole function.

    Args:
        file: prints all kernels as one.
        printers: those of each, in the order in which they run.
        params: the function's.
        workspaces: the memory between the kernels.
        detail: the namespace of the functions that it calls.
    """
    empty = " || ".join(f"{var.name} < 1" for var in file.kernel.extents)
    what = f"the kernel{'s' if len(printers) > 1 else ''} on a stream; matrices"
    skips, what = file.no_product(), what + (" and the arrays of their addresses" if file.spec.listed else "")
    kernels = [p.kernel for p in printers]
    checks = launch_checks(file, kernels, workspaces)
    lines = [
        "#ifndef __CUDACC_RTC__",
        f"namespace {detail} {{",
        "",
        *_functions(kernels, checks.functions),
        f"}} // namespace {detail}",
        "",
        f"// Queues {what} are in the device's memory.",
        "// It returns an error, and launches nothing, where the kernels can't take them.",
        *wrapped(f'extern "C" cudaError_t {file.kernel.name}_launch(', params),
        "{",
        f"    using namespace {detail};",
        "",
        *([f"    if ({empty}) {{", "        return cudaSuccess;", "    }"] if empty else []),
        *([f"    if ({skips}) {{", "        k = 0; // so that A and B are not read", "    }"] if skips else []),
        *checks.lines,
        *(_counted() if any(kernel.asks_device for kernel in kernels) else []),
    ]
    for i, printer in enumerate(printers):
        # CUDA refuses a grid of no blocks.
        needed = file.needed(printer.kernel)
        opening = "    {" if needed is None else f"    if ({needed[0]}) {{"
        lines += [opening] if len(printers) > 1 else []
        inner = _launching(printer, file, last=i + 1 == len(printers))
        lines += [f"    {line}" for line in inner] if len(printers) > 1 else inner
        lines += ["    }"] if len(printers) > 1 else []
    return "\n".join([*lines, "}", "#endif"]) + "\n"


def _counted() -> list[str]:
    """The statements that ask how many blocks the device has room for, one on each multiprocessor."""
    return [
        f"    int {GROUPS.name} = 0;",
        f"    const cudaError_t counted = multiprocessors(&{GROUPS.name});",
        "    if (counted != cudaSuccess) {",
        "        return counted;",
        "    }",
    ]


def _functions(kernels: Sequence[Kernel], checking: Collection[str]) -> list[str]:
    """The functions that the launches of kernels call, and those that check what they are given."""
    maps = [tensor_map for kernel in kernels for tensor_map in tensor_maps(kernel)]
    counted = {_counter(kernel) for kernel in kernels if kernel.persistent}
    counted |= {"multiprocessors"} if any(kernel.asks_device for kernel in kernels) else set()
    named = "tensor_map_of_batch" if any(tensor_map.batch for tensor_map in maps) else "tensor_map"
    made = section(HOST, named, **_swizzling(maps)) if maps else []
    return [*sections(HOST, checking), *made, *sections(HOST, counted)]


def _swizzling(maps: Sequence[TensorMap]) -> dict[str, str]:
    """How a file's maps swizzle: all alike, or each as the caller says."""
    if _agree(maps):
        return {"swizzling": _swizzle(maps[0]), "also": ""}
    return {"swizzling": "swizzle", "also": ", CUtensorMapSwizzle swizzle"}


def _agree(maps: Sequence[TensorMap]) -> bool:
    return len({tensor_map.swizzle for tensor_map in maps}) == 1


def _swizzle(tensor_map: TensorMap) -> str:
    """What the driver calls it."""
    return f"CU_TENSOR_MAP_SWIZZLE_{f'{tensor_map.swizzle}B' if tensor_map.swizzle else 'NONE'}"


def _counter(kernel: Kernel) -> str:
    """The function that says how many blocks of a kernel run at once."""
    return "blocks_at_once" if kernel.cluster == 1 else "clustered_at_once"


def _launching(printer: CLike, file: CLike, last: bool) -> list[str]:
    """The statements that launch a kernel, and end the function with what came of it."""
    kernel = printer.kernel
    rows, cols = kernel.group
    given = passed(kernel)
    names = (map_name(p, kernel) if isinstance(p, Buffer) and p.box is not None else p.name for p in given)
    arguments = f"        {', '.join(names)}"
    taken = "return" if last else "const cudaError_t launched ="
    if awaited(kernel):
        launch = [*_early(printer), f"    {taken} cudaLaunchKernelEx(&config, {kernel.name},", f"{arguments});"]
    else:
        launch = [
            f"    {kernel.name}<<<grid, block, {printer.dynamic_bytes()}, stream>>>(",
            f"{arguments});",
            f"    {taken} cudaGetLastError();",
        ]
    return [
        *(line for tensor_map in tensor_maps(kernel) for line in _made(tensor_map, printer, file)),
        *_permission(printer),
        *_grid(printer),
        f"    const dim3 block({cols}, {rows});",
        *launch,
        *([] if last else ["    if (launched != cudaSuccess) {", "        return launched;", "    }"]),
    ]


def _grid(printer: CLike) -> list[str]:
    """The statements that say how many blocks there are."""
    kernel = printer.kernel
    if not kernel.persistent:
        return [f"    const dim3 grid({grid(printer)});"]
    rows, cols = kernel.group
    asked = f"{_counter(kernel)}(&most, {kernel.name}, {rows * cols}, {printer.dynamic_bytes()}"
    asked += f", {kernel.cluster});" if kernel.cluster > 1 else ");"
    return [
        "    // No more blocks than run at once: each goes on until all of C is computed.",
        "    int most = 0;",
        *fold_line(f"    const cudaError_t asked = {asked}"),
        "    if (asked != cudaSuccess) {",
        "        return asked;",
        "    }",
        f"    const int blocks = {grid(printer)};",
        "    const dim3 grid(blocks < most ? blocks : most);",
    ]


def _early(printer: CLike) -> list[str]:
    """What a launch is told that may begin while the kernel before ends."""
    config = {"gridDim": "grid", "blockDim": "block", "dynamicSmemBytes": printer.dynamic_bytes(), "stream": "stream"}
    return [
        "    // It may begin while the kernel before ends, which it awaits.",
        "    cudaLaunchAttribute early = {};",
        "    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;",
        "    early.val.programmaticStreamSerializationAllowed = 1;",
        "    cudaLaunchConfig_t config = {};",
        *(f"    config.{name} = {value};" for name, value in config.items()),
        "    config.attrs = &early;",
        "    config.numAttrs = 1;",
    ]


def _made(tensor_map: TensorMap, printer: CLike, file: CLike) -> list[str]:
    """The statements that make a map. Where nothing is read there is none, and no copy."""
    lines, length, pitch = map(printer.expr, (tensor_map.lines, tensor_map.length, tensor_map.pitch))
    name, dtype, (high, wide) = tensor_map.name, tensor_map.dtype, tensor_map.box
    kind = dtype.name.upper() if dtype.size > 1 else "UINT8"
    call = f"make_map(&{name}, CU_TENSOR_MAP_DATA_TYPE_{kind}, {dtype.size}, {tensor_map.operand}, "
    how = "" if _agree(tensor_maps(printer.kernel)) else f", {_swizzle(tensor_map)}"
    batch = "".join(f", {printer.expr(x)}" for x in tensor_map.batch or ())
    call += f"{lines}, {length}, {pitch}{batch}, {high}, {wide}{how})"
    read = None if tensor_map.operand == "c" else file.reads_operands()
    return [
        f"    CUtensorMap {name} = {{}};",
        *fold_line(f"    const cudaError_t {name}_made = {f'{read} ? {call} : cudaSuccess' if read else call};"),
        f"    if ({name}_made != cudaSuccess) {{",
        f"        return {name}_made;",
        "    }",
    ]


def _permission(printer: CLike) -> list[str]:
    """A kernel with more shared memory than the fixed limit says so before it is launched."""
    if not (size := printer.dynamic_bytes()):
        return []
    return [
        "    const cudaError_t allowed = cudaFuncSetAttribute(",
        f"        {printer.kernel.name}, cudaFuncAttributeMaxDynamicSharedMemorySize, {size});",
        "    if (allowed != cudaSuccess) {",
        "        return allowed;",
        "    }",
    ]
