"""A folder that the language's own toolkit builds: kernel and launcher, a program that checks and measures them, and a
`CMakeLists.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from textwrap import wrap

from gemmgen import driver
from gemmgen.backends import backend as find_backend
from gemmgen.backends.clike import CLike
from gemmgen.backends.files import environment
from gemmgen.backends.layout import lay_out
from gemmgen.backends.opencl_launcher import HOST_TYPES
from gemmgen.backends.text import computes
from gemmgen.backends.vectors import PRECEDENCE
from gemmgen.epilogue import OPERANDS, UP, applied
from gemmgen.errors import ScheduleError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.dtypes import BF16, F8_E4M3, F8_E5M2, F16, F64, DType
from gemmgen.ir.expr import Var
from gemmgen.ir.instructions import cut_sums, product_error
from gemmgen.ir.kernel import Kernel, together
from gemmgen.ir.sizes import GROUPS, Workspace
from gemmgen.ir.target import Target
from gemmgen.ir.walk import in_numbers, map_expr, substitute, walk_expr
from gemmgen.oracle import MORE_ROUNDINGS, least
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.source import Source
from gemmgen.spec import LARGEST_SIZE, GemmSpec, Order

#: Sizes that the program takes where none are given, or the nearest that meet the spec's assumptions.
SHAPE = (509, 258, 131)
#: Matrices of a batch then.
BATCH = 3
#: Bits of the exponent and of the mantissa of small floats, and whether they have infinities.
SMALL = {BF16: (8, 7, 1), F16: (5, 10, 1), F8_E4M3: (4, 3, 0), F8_E5M2: (5, 2, 1)}
#: What a launcher's parameters are called in the program; a residual lies as C does.
SAME = {"batch_count": "batch", "ldr": "ldc", "stride_r": "stride_c"}
#: Roundings of an epilogue's functions, of numbers as large as what they take and make.
STEP_ROUNDINGS = 32
#: Factors of the product of small integers, which are neither 0 nor 1.
EXACT = {"alpha": 2, "beta": -1}
#: Folded factors up to this keep small integers exact in all types.
SMALL_INTEGER = 16
#: What CUDA and HIP call the types of alpha and beta.
SIMT_TYPES = {
    "float64": "double",
    "float32": "float",
    "complex64": "float2",
    "complex128": "double2",
    "int64": "long long",
    "int32": "int",
}


@dataclass(frozen=True, slots=True)
class Language:
    """What a project in a language is made of.

    Attributes:
        form: of the emitted source.
        suffix: of its file.
        main: the program's file.
        template: of the program.
        alone: the option that emits the kernel and its launcher without a program.
        fields: what the program's template is told of the kernel.
        build: what that of the `CMakeLists.txt` is told.
    """

    form: str | None
    suffix: str
    main: str
    template: str
    alone: str
    fields: Callable[[Source, Kernel, Target], Mapping[str, object]]
    build: Callable[[Source], Mapping[str, str]] = lambda _: {}


def project_files(
    spec: GemmSpec, schedule: Schedule, backend: str = "opencl", target: Target | None = None
) -> dict[str, str]:
    """The files of a project by their names.

    Raises: ScheduleError for what its program can't check; SpecError.
    """
    find_backend(backend)
    if backend not in LANGUAGES:
        *others, last = LANGUAGES
        raise ScheduleError(f"--project is not for backend {backend!r}: use {', '.join(others)} or {last}")
    language = LANGUAGES[backend]
    target = target or driver.default_target(spec, schedule, backend)
    source, program = driver.emit_program(spec, schedule, backend, target, language.form)
    kernel = f"{source.name}{language.suffix}"
    if problems := _problems(source, language.alone):
        raise ScheduleError(problems)
    main = environment().get_template(f"project/{language.template}")
    printer = find_backend("opencl")(target, together(program), None, spec, source.name)
    fields = {**_fields(source, schedule, printer), **language.fields(source, together(program), target)}
    return {
        kernel: source.text,
        language.main: lay_out(main.render(**fields)),
        "CMakeLists.txt": _cmake(source, {"target": target.name, **language.build(source)}),
    }


def _problems(source: Source, form: str) -> list[str]:
    """Why a program can't check a product."""
    spec = source.spec
    remedy = f"emit the kernel and its launcher alone, by {form}"
    problems = []
    if spec.epilogue and not spec.accumulator.is_float:
        problems.append(f"a project's program checks epilogues of floats, not of {spec.accumulator}: {remedy}")
    if formulas := [text for text in (spec.prologue_a, spec.prologue_b) if text]:
        problems.append(f"a project's program checks plain products, not prologues ({', '.join(formulas)}): {remedy}")
    if spec.alpha == 0:
        problems.append(f"a project's program checks products, but alpha = 0 leaves none: {remedy}")
    if spec.grouped:
        problems.append(f"a project's program has matrices of one size, not groups: {remedy}")
    if spec.listed:
        problems.append(f"a project's program has matrices a stride apart, not listed ones: {remedy}")
    if any(argument.kind == "image" for entry in source.entry_points for argument in entry.arguments):
        problems.append(
            f"a project's program has matrices in buffers, but {source.name} reads images: {remedy}, or use a preset "
            "that reads buffers, such as L3_SIMD_32x2_1x8"
        )
    return problems


def _cmake(source: Source, more: Mapping[str, str]) -> str:
    template = environment().get_template(f"project/CMakeLists.{source.backend}.j2")
    return template.render(name=source.name, shape=" ".join(map(str, _shape(source.spec))), **more)


def _sycl_options(source: Source) -> Mapping[str, str]:
    """What the head comment's command tells the compiler, but for what CMake knows by itself."""
    head = re.sub(r"\n// {4,}", " ", source.text)
    (command,) = re.findall(r"^// Build +icpx (.*?) \S+\.cpp\b", head, re.MULTILINE)
    return {"options": " ".join(word for word in command.split() if not word.startswith(("-std=", "-O")))}


def _shape(spec: GemmSpec) -> list[int]:
    """m, n and k: those that the spec fixes, else the nearest that meet its assumptions."""
    assumed = zip((spec.m, spec.n, spec.k), SHAPE, spec.multiple_of, strict=True)
    return [-(-wish // unit) * unit if size is None else size for size, wish, unit in assumed]


def _fields(source: Source, schedule: Schedule, printer: CLike) -> Mapping[str, object]:
    """What programs of all languages say; `printer` is that of C."""
    spec, sums = source.spec, source.spec.accumulator
    types = {x: spec.element(x) for x in "ab"} | {"c": spec.result}
    parts = 1 if spec.dtype.real is None else 2
    m, n, k = _shape(spec)
    alpha, beta = _factors(spec)
    stored = sorted({dtype.real or dtype for dtype in types.values()}, key=lambda dtype: dtype.name)
    of_b = "p.n" if spec.gate is None else f"{spec.halves} * p.n"
    unit = 0.5**sums.digits * parts * (2 if (sums.real or sums) == F64 else 1)
    return {
        "name": source.name,
        "computes": [f'"{line}"' for line in wrap(computes(spec), 85, drop_whitespace=False)],
        "batched": spec.batched,
        "parts": parts,
        "whole": not sums.is_float,
        "flops": f"{spec.dtype.flops * spec.halves}.0",
        "types": [_element(dtype) for dtype in stored],
        "small": any(dtype in SMALL for dtype in stored),
        "finite": F8_E4M3 in stored,
        "more_roundings": MORE_ROUNDINGS,
        "unit": repr(unit),
        "more_error": _more_error(schedule, spec),
        "least_sum": repr(2 * least(sums)),
        "rounded": spec.result != sums,
        "c_unit": repr(0.5**spec.result.digits),
        "least_c": repr(least(spec.result)),
        "ld": "long long" if spec.is_wide else "int",
        "largest": LARGEST_SIZE,
        "defaults": f"{m}, {n}, {k}, {BATCH if spec.batched else 1}, {alpha}, {beta}, 0, 0, 0, 0, 0, 0",
        "assumptions": _assumptions(spec),
        "exact_factors": None if spec.epilogue else _exact_factors(spec),
        **_epilogue(spec, unit, printer),
        "gate": spec.gate is not None,
        "a": _matrix(source, "a", spec.a_order, types["a"], ("p.m", "p.k"), ("i", "x")),
        "b": _matrix(source, "b", spec.b_order, types["b"], ("p.k", of_b), ("x", "j")),
        "c": _matrix(source, "c", spec.c_order, types["c"], ("p.m", "p.n"), ("i", "j")),
    }


# --- elements -------------------------------------------------------------------------------------


def _element(dtype: DType) -> Mapping[str, str]:
    """How the program reads and writes numbers of a type."""
    if dtype in SMALL:
        exponent, mantissa, infinity = SMALL[dtype]
        bits = f"{exponent}, {mantissa}, {infinity}"
        held = "unsigned short" if dtype.size > 1 else "unsigned char"
        return {
            "name": dtype.name,
            "value": f"decode(((const {held} *)array)[i], {bits})",
            "store": f"(({held} *)array)[i] = ({held})encode(value, {bits})",
        }
    held = {
        "float64": "double",
        "float32": "float",
        "int64": "long long",
        "int32": "int",
        "int16": "short",
        "int8": "signed char",
    }[dtype.name]
    plain = dtype == F64
    return {
        "name": dtype.name,
        "value": f"((const {held} *)array)[i]" if plain else f"(double)((const {held} *)array)[i]",
        "store": f"(({held} *)array)[i] = {'value' if plain else f'({held})value'}",
    }


def _more_error(schedule: Schedule, spec: GemmSpec) -> str:
    """What matrix instructions lose besides: of the elements that they round, and of what they add up."""
    off, cut = product_error(schedule.atom, spec.dtype), cut_sums(schedule.atom, spec.dtype)
    text = f" + {off!r}" if off else ""
    if cut is not None:
        kept, depth = cut
        text += f" + (k / {depth} + 1) * {(depth + 1) * 2.0 ** (1 - kept)!r}"
    return text


# --- the product ----------------------------------------------------------------------------------


def _matrix(
    source: Source, name: str, order: Order, dtype: DType, shape: tuple[str, str], index: tuple[str, str]
) -> Mapping[str, object]:
    """How a matrix lies in memory."""
    lines, length = shape if order == "row" else shape[::-1]
    slow, fast = index if order == "row" else index[::-1]
    boxed = any(x.operand == name for entry in source.entry_points for x in entry.maps)
    unit = max(source.spec.ld_unit(name), 16 // dtype.size if boxed else 1)
    conj = dict(zip("ab", source.spec.conj, strict=True)).get(name, False)
    return {
        "type": (dtype.real or dtype).name,
        "bytes": dtype.size,
        "whole": int(not dtype.is_float),
        "lines": lines,
        "length": length,
        "unit": unit,
        "conj": conj,
        "at": f"z * p->stride_{name} + (long long){slow} * p->ld{name} + {fast}",
    }


def _epilogue(spec: GemmSpec, unit: float, printer: CLike) -> Mapping[str, object]:
    """An epilogue's functions in double, and what they take, as the program's loops over C have it.

    Args:
        unit: how far a rounding of sums is off.
        printer: of C.
    """
    functions = applied(spec.epilogue, F64)
    used = frozenset[str]().union(*(function.names for function in functions))
    arrays = [name for name in spec.operands if OPERANDS[name].of == "c"]
    elements = {"n": "p.n", "m": "p.m", "mn": "p.stride_c * p.batch"}
    places = {"n": "(size_t)j", "m": "(size_t)i", "mn": "at"}
    values = {
        UP: "p->alpha[0] * sums[p->n + j]",
        "c": f"{spec.result}_at(before, at)",
        "row": "(double)i",
        "col": "(double)j",
    }
    values |= {name: f"{spec.result}_at({name}, {places[OPERANDS[name].axes]})" for name in arrays}
    given = {name: value for name, value in values.items() if name in used}
    return {
        "steps": [printer.expr(function.value) for function in functions],
        "operands": [{"name": name, "elements": elements[OPERANDS[name].axes]} for name in arrays],
        "names_c": spec.names_c,
        "taken": list(given),
        "given": list(given.items()),
        "arguments": "".join(f", own_{name}" for name in given if name != UP),
        "sizes": "".join(f" + fabs(own_{name})" for name in given) + " + fabs(sum * own_up)" * (UP in given),
        "step_unit": repr(STEP_ROUNDINGS * unit),
    }


def _factors(spec: GemmSpec) -> list[str]:
    """alpha and beta where none are given."""
    values = (1.0 if spec.alpha is None else spec.alpha, 0.0 if spec.beta is None else spec.beta)
    return [f"{{{float(x.real)!r}, {float(x.imag)!r}}}" for x in values]


def _exact_factors(spec: GemmSpec) -> list[str] | None:
    """The statements that choose factors for small integers; None where folded ones make the product inexact."""
    folded = {"alpha": spec.alpha, "beta": spec.beta}
    for value in folded.values():
        if value is not None and not all(x == int(x) and abs(x) <= SMALL_INTEGER for x in (value.real, value.imag)):
            return None
    chosen = [name for name, value in folded.items() if value is None]
    return [f"p.{name}[{part}] = {EXACT[name] if part == 0 else 0}.0;" for name in chosen for part in (0, 1)]


def _assumptions(spec: GemmSpec) -> list[tuple[str, str]]:
    """What must not hold of sizes and factors, and what the kernel was made for instead."""
    found = [] if spec.gate is None else [("p.n >= 1 << 30", "2 N columns of B that an int counts")]
    for axis, size, unit in zip("mnk", (spec.m, spec.n, spec.k), spec.multiple_of, strict=True):
        if size is not None:
            found.append((f"p.{axis} != {size}", f"{axis.upper()} = {size}"))
        elif unit > 1:
            found.append((f"p.{axis} % {unit} != 0", f"{axis.upper()} a multiple of {unit}"))
    for name, value in (("alpha", spec.alpha), ("beta", spec.beta)):
        if value is not None:
            real, imaginary = float(value.real), float(value.imag)
            test = f"p.{name}[0] != {real!r} || p.{name}[1] != {imaginary!r}"
            found.append((test, f"{name} = {value:g}"))
    return found


# --- the launch -----------------------------------------------------------------------------------


def _opencl(source: Source, kernel: Kernel, _: Target) -> Mapping[str, object]:
    """What a program in C says of the launch."""
    return {
        "scalars": [_scalar(var, HOST_TYPES, "{{", "}}") for var in _run_time_factors(kernel)],
        "workspaces": [_bytes_of_workspace(w, kernel) for w in source.workspaces],
        "launch": _launch_by_header(source, kernel),
    }


#: What a program in CUDA C++ or HIP calls its GPUs, the variable that shows it some of them, and what describes one.
GPUS: Mapping[str, Mapping[str, str]] = {
    "cuda": {"gpu": "an NVIDIA GPU", "visible": "CUDA_VISIBLE_DEVICES", "properties": "cudaDeviceProp"},
    "hip": {"gpu": "an AMD GPU", "visible": "HIP_VISIBLE_DEVICES", "properties": "hipDeviceProp_t"},
}


def _simt(source: Source, kernel: Kernel, target: Target) -> Mapping[str, object]:
    """What a program in CUDA C++ or HIP says of it. The launcher's declaration is the one that the source has."""
    api = source.backend
    (declared,) = re.findall(rf'^extern "C" {api}Error_t\s{source.name}_launch\(([^)]*)\)', source.text, re.MULTILINE)
    declared = " ".join(declared.split())
    given = []
    for param in declared.split(", "):
        kind, star, name = param.rpartition("*" if "*" in param else " ")
        place = "0" if name == "stream" else _given(source, name.strip(), "device" if star == "*" else "")
        given.append(f"({kind.strip()} *){place}" if star == "*" else place)
    call = f"const {api}Error_t error = {source.name}_launch({', '.join(given)});"
    printer = find_backend(api)(target, kernel, None, source.spec, source.name)
    return {
        "api": api,
        "suffix": find_backend(api).suffix,
        **GPUS[api],
        "includes": re.findall(r"^#include <(?:cuda\w*|hip/\w+)\.h>$", source.text, re.MULTILINE),
        "declaration": f'extern "C" {api}Error_t {source.name}_launch({declared});',
        "scalars": [_scalar(var, SIMT_TYPES, "{", "}") for var in _run_time_factors(kernel)],
        "asks_device": source.asks_device,
        "workspaces": [_elements_of_workspace(w, kernel, printer) for w in source.workspaces],
        "launch": call,
    }


def _sycl(source: Source, kernel: Kernel, target: Target) -> Mapping[str, object]:
    """What a program in SYCL says of it, by the header's own declaration of its launcher."""
    (declared,) = re.findall(rf"^inline sycl::event\s+{source.name}\(([^)]*) = {{}}\)", source.text, re.MULTILINE)
    given, kinds = [], {}
    for param in re.split(r",\s+", declared)[1:-1]:
        kind, _, name = param.replace("*", "* ").rpartition(" ")
        kinds[name] = kind = " ".join(kind.split())
        place = _given(source, name, "device" if kind.endswith("*") else "")
        given.append(f"static_cast<{kind}>({place})" if kind.endswith("*") else place)
    printer = find_backend("sycl")(target, kernel, None, source.spec, source.name)
    return {
        "scalars": [_scalar(var, SIMT_TYPES, "{", "}", kinds[var.name]) for var in _run_time_factors(kernel)],
        "workspaces": [_elements_of_workspace(w, kernel, printer) for w in source.workspaces],
        "launch": f"sycl::event done = ::{source.name}({', '.join(['queue', *given])});",
    }


def _given(source: Source, name: str, member: str) -> str:
    """What the program gives a launcher's parameter.

    Args:
        member: where its matrices have what the launcher takes; empty for a number.
    """
    if member:
        return f"x->{name}" if any(w.name == name for w in source.workspaces) else f"x->{name}.{member}"
    return name if name in ("alpha", "beta") else _in_problem(name, "p->")


def _run_time_factors(kernel: Kernel) -> list[Var]:
    return [var for var in kernel.scalars if var.name in ("alpha", "beta")]


def _scalar(
    var: Var, types: Mapping[str, str], opening: str, closing: str, named: str | None = None
) -> Mapping[str, str]:
    """A run-time factor in the type that the launcher takes, which may be `named` otherwise."""
    parts, kind = f"p->{var.name}", named or types[var.dtype.name]
    if (real := var.dtype.real) is None:
        return {"type": kind, "name": var.name, "value": f"({kind}){parts}[0]"}
    both = ", ".join(f"({types[real.name]}){parts}[{part}]" for part in (0, 1))
    return {"type": kind, "name": var.name, "value": f"{opening}{both}{closing}"}


def _in_problem(name: str, problem: str) -> str:
    """A size, a leading dimension or a stride of the program's."""
    return f"{problem}{SAME.get(name, name)}"


def _bytes_of_workspace(workspace: Workspace, kernel: Kernel) -> Mapping[str, object]:
    """The header's function that says how large it must be."""
    used = {node.name for node in walk_expr(workspace.elements) if isinstance(node, Var)}
    given = ", ".join(_in_problem(p.name, "p.") for p in kernel.launcher_params if p.name in used)
    return {"name": workspace.name, "bytes": [f"{' ' * 23}{kernel.name}_{workspace.name}_bytes({given})"]}


def _elements_of_workspace(workspace: Workspace, kernel: Kernel, printer: CLike) -> Mapping[str, object]:
    """How many elements it must have, as the head comment says."""
    sizes = {p: Var(_in_problem(p.name, "p."), p.dtype) for p in kernel.launch_params if isinstance(p, Var)}
    sizes.pop(GROUPS, None)
    elements = in_numbers(map_expr(workspace.elements, substitute(sizes)))
    # From the left on, all factors are 64 bits wide.
    text = f"const long long {workspace.name} = 1LL * {printer.expr(elements, PRECEDENCE['*'])};"
    return {"name": workspace.name, "line": text, "size": workspace.dtype.size}


def _launch_by_header(source: Source, kernel: Kernel) -> str:
    """The call of the header's function."""
    params = kernel.launcher_params
    given = [_given(source, param.name, "buffer" if isinstance(param, Buffer) else "") for param in params]
    call = ", ".join(["&device->built", "device->queue", *given, "0", "NULL", "NULL"])
    return f"const cl_int error = {kernel.name}_launch({call});"


#: The languages that projects are written in.
LANGUAGES: Mapping[str, Language] = {
    "opencl": Language("header", ".h", "main.c", "main_opencl.c.j2", "--form header", _opencl),
    "cuda": Language(None, ".cu", "main.cu", "main_simt.j2", "-o kernel.cu", _simt),
    "hip": Language(None, ".hip", "main.hip", "main_simt.j2", "-o kernel.hip", _simt),
    "sycl": Language("header", ".hpp", "main.cpp", "main_sycl.cpp.j2", "-o kernel.hpp", _sycl, _sycl_options),
}
