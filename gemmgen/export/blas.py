"""The exported BLAS: its routines, the kernels that compute them, the C source around both, and how it is built."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Literal

from gemmgen import driver, presets
from gemmgen.backends.files import environment
from gemmgen.backends.layout import LIMIT, lay_out
from gemmgen.errors import LoweringError, ScheduleError, UserError, attempt
from gemmgen.ir.dtypes import C64, C128, F32, F64, DType
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.source import EntryPoint, Source
from gemmgen.spec import GemmSpec, Order

#: The name of the library, and of its source.
LIBRARY = "gemmgen_blas"
FLAGS = ("-std=c99", "-O3", "-fPIC", "-shared", "-Wall", "-Wextra")
LIBRARIES = ("-ldl", "-lpthread")
#: Compilers that are looked for where $CC names none.
COMPILERS = ("cc", "gcc", "clang")
#: Arguments that the library's host code sets, in this order: of a product, and of a transposition.
ARGUMENTS = ("m", "n", "k", "alpha", "a", "lda", "b", "ldb", "beta", "c", "ldc")
TRANSPOSE_ARGUMENTS = ("rows", "cols", "a", "lda", "b", "ldb")
#: Work-items of the kernel that transposes a matrix.
TRANSPOSE_BLOCK = 16
LARGEST_BLOCK = 2**16
#: Kernels count rows and columns beyond the last one, up to a block further.
LARGEST_SPAN = 2**30


@dataclass(frozen=True, slots=True)
class Routine:
    """`sgemm` and its like.

    Attributes:
        letter: what its names begin with.
        c_type: an element in C99.
        conj: C's function that conjugates one; None where elements are real.
    """

    letter: str
    dtype: DType
    c_type: str
    conj: str | None = None

    @property
    def name(self) -> str:
        return f"{self.letter}gemm"

    @property
    def complex(self) -> bool:
        return self.conj is not None

    @property
    def real(self) -> str:
        """The type of a real number."""
        return self.c_type.removesuffix(" complex")

    @property
    def fortran(self) -> str:
        """The head of `sgemm_`: all by reference."""
        real = self.c_type
        params = ["const char *transa", "const char *transb", "const int *m", "const int *n", "const int *k"]
        params += [f"const {real} *alpha", f"const {real} *a", "const int *lda", f"const {real} *b", "const int *ldb"]
        return f"void {self.name}_({', '.join([*params, f'const {real} *beta', f'{real} *c', 'const int *ldc'])})"

    @property
    def cblas(self) -> str:
        """The head of `cblas_sgemm`: complex numbers are passed by their addresses."""
        value, pointer = ("const void *", "void *") if self.complex else (f"{self.c_type} ", f"{self.c_type} *")
        params = ["int layout", "int transa", "int transb", "int m", "int n", "int k", f"{value}alpha"]
        params += [f"const {pointer}a", "int lda", f"const {pointer}b", "int ldb"]
        return f"void cblas_{self.name}({', '.join([*params, f'{value}beta', f'{pointer}c', 'int ldc'])})"


#: The routines of the library. A type more is a row here.
ROUTINES = (
    Routine("s", F32, "float"),
    Routine("d", F64, "double"),
    Routine("c", C64, "float complex", "conjf"),
    Routine("z", C128, "double complex", "conj"),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A preset of the library.

    Attributes:
        device: what it is for, where others have a better one; named as in C.
        letters: the routines that it is for.
    """

    preset: str
    device: Literal["ANY", "GPU", "CPU"] = "ANY"
    letters: str = "sdcz"


#: Preset for whatever no other one serves: barriers there cost more than they bring.
PLAINEST = "tile_8x8"
#: The best first: a device takes the first one that it can run. By vectors of a CPU's own; with Intel's sub-groups;
#: through local memory; the plainest. Sub-groups don't pass complex numbers around: of these `vec4_4x4` is the quickest
#: to build of the presets that are about as fast on a CPU.
CHOICES = (
    Choice("cpu_6x64_copied", "CPU", "s"),
    Choice("cpu_6x16_v8_copied", "CPU", "sd"),
    Choice("sg16_block_16x2", letters="sd"),
    Choice("smem_8x8_double", "GPU", "sd"),
    Choice(PLAINEST, letters="sd"),
    Choice("vec4_4x4", letters="cz"),
)


@dataclass(frozen=True, slots=True)
class Op:
    """What a product does to a matrix before it multiplies.

    Attributes:
        letter: as the kernels' names have it.
        constant: as C calls it.
        order: in which the matrix then lies.
    """

    letter: str
    constant: str
    order: Order


AS_IS = Op("n", "AS_IS", "row")
TRANSPOSED = Op("t", "TRANSPOSED", "col")
CONJUGATED = Op("c", "CONJUGATED", "col")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel as the library holds it; the fields are those of its C twin.

    Attributes:
        vector_bytes: of vectors that the device must have natively; 0 for any.
        sub_group: work-items of a sub-group that it is written for; 0 for any.
        block: rows and columns of the result that `groups` (down, across) of them share.
        lines: the text, a C string literal for each of its lines.
        span: elements that matrices must span less than.
    """

    name: str
    options: str
    extensions: str
    local_bytes: int
    vector_bytes: int
    device: str
    sub_group: int
    group: tuple[int, int]
    block: tuple[int, int]
    groups: tuple[int, int]
    lines: tuple[str, ...]
    span: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """How products with such ops are computed.

    Attributes:
        kernels: names of the one that multiplies and of those that transpose A and B first, None where they don't.
    """

    ops: tuple[Op, Op]
    kernels: tuple[str, str | None, str | None]

    def __str__(self) -> str:
        """The row of the C table."""
        return ", ".join([op.constant for op in self.ops] + [f"&{name}" if name else "NULL" for name in self.kernels])


# --- the kernels ----------------------------------------------------------------------------------


def kernels_of(routine: Routine, choices: Sequence[Choice] = CHOICES) -> tuple[tuple[Kernel, ...], tuple[Recipe, ...]]:
    """The kernels of a routine, and what each is used for, the best first.

    Raises: ScheduleError for a preset that the library can't use, with every reason.
    """
    kernels: dict[str, Kernel] = {}
    recipes: list[Recipe] = []
    problems: list[str] = []
    ops = (AS_IS, TRANSPOSED, CONJUGATED) if routine.complex else (AS_IS, TRANSPOSED)
    for choice in (choice for choice in choices if routine.letter in choice.letters):
        for pair in product(ops, ops):
            if (found := attempt(problems, _recipe, routine, choice, pair)) is not None:
                recipes.append(found[0])
                kernels |= {kernel.name: kernel for kernel in found[1]}
    if problems:
        raise ScheduleError(dict.fromkeys(problems))
    return tuple(kernels.values()), tuple(recipes)


def _recipe(routine: Routine, choice: Choice, ops: tuple[Op, Op]) -> tuple[Recipe, list[Kernel]]:
    """How one kind of product is computed: by the preset as it is or, where it can't take a column-major matrix, after
    that was transposed.
    """
    schedule = presets.load(choice.preset).schedule
    refused: tuple[str, ...] = ()
    # As few matrices are transposed as can be.
    for before in product((False, True), repeat=2):
        if any(first and op is AS_IS for first, op in zip(before, ops, strict=True)):
            continue
        a, b = (AS_IS if first else op for first, op in zip(before, ops, strict=True))
        conj_a, conj_b = a is CONJUGATED, b is CONJUGATED
        spec = GemmSpec(dtype=routine.dtype, a_order=a.order, b_order=b.order, conj_a=conj_a, conj_b=conj_b)
        if problems := driver.refusals(spec, schedule):
            refused = refused or problems
            continue
        if any(before) and schedule.sub_group is None:
            # Only sub-groups transpose matrices, and a device that runs this preset need not have them.
            continue
        gemm = _gemm(f"{routine.name}_{a.letter}{b.letter}_{choice.preset}", choice, schedule, spec)
        transpose = _transpose(routine) if any(before) else None
        of_a, of_b = (transpose.name if transpose and first else None for first in before)
        return Recipe(ops, (gemm.name, of_a, of_b)), [gemm, *([transpose] if transpose else [])]
    remedy = f"or leave out {routine.dtype} by --dtype"
    raise ScheduleError(f"preset {choice.preset} cannot serve {routine.name}: {x}, {remedy}" for x in refused)


def _gemm(name: str, choice: Choice, schedule: Schedule, spec: GemmSpec) -> Kernel:
    """The product's kernel. Raises: ScheduleError for one that the host code can't launch."""
    source = driver.emit(spec, replace(schedule, name=name))
    entry = source.entry_points[0]
    for problem, there in (
        ("runs several kernels, and the library launches one", len(source.entry_points) > 1),
        ("reads images, and the library passes buffers", any(x.kind == "image" for x in entry.arguments)),
        ("needs matrices aligned, and a program's are not", source.alignment > spec.dtype.size),
    ):
        if there:
            raise ScheduleError(f"preset {choice.preset} {problem}: use one such as {PLAINEST}")
    vector_bytes = schedule.vector * spec.dtype.size if schedule.vector > 1 else 0
    return _kernel(source, entry, ARGUMENTS, "mn", choice.device, vector_bytes)


def _transpose(routine: Routine) -> Kernel:
    """The kernel that transposes a matrix."""
    spec, name = GemmSpec(dtype=routine.dtype), f"{routine.letter}transpose"
    source = driver.emit_transpose(spec, TRANSPOSE_BLOCK, name=name)
    return _kernel(source, source.entry_points[0], TRANSPOSE_ARGUMENTS, ("rows", "cols"), "ANY")


def _kernel(
    source: Source,
    entry: EntryPoint,
    arguments: tuple[str, ...],
    axes: Sequence[str],
    device: str,
    vector_bytes: int = 0,
) -> Kernel:
    taken = tuple(argument.name for argument in entry.arguments)
    if taken != arguments:
        raise LoweringError(f"{entry.name} takes {', '.join(taken)}; the exported library sets {', '.join(arguments)}")
    (rows, down), (cols, across) = (block_of(entry, axes, axis) for axis in (0, 1))
    return Kernel(
        name=entry.name,
        options=" ".join(source.build_options),
        extensions="".join(f"{extension} " for extension in source.extensions),
        local_bytes=entry.local_bytes,
        vector_bytes=vector_bytes,
        device=device,
        sub_group=entry.sub_group or 0,
        group=entry.group,
        block=(rows, cols),
        groups=(down, across),
        lines=tuple(map(literal, lay_out(source.text, LIMIT - _AROUND).splitlines())),
        span=min(source.span, LARGEST_SPAN),
    )


def block_of(entry: EntryPoint, axes: Sequence[str], axis: int) -> tuple[int, int]:
    """How many rows (columns) of the result some groups share, and how many groups. Raises: ScheduleError."""

    def count(size: int, other: int = 1) -> int:
        sizes = (size, other) if axis == 0 else (other, size)
        return entry.groups({"k": 1, **dict(zip(axes, sizes, strict=True))})[1 + axis]

    groups = count(1)
    block = bisect_right(range(1, LARGEST_BLOCK), groups, key=count)
    probes = ((1, 7), (block, 5000), (block + 1, 1), (12345, 6), (99999, 54321))
    if any(count(size, other) != -(-size // block) * groups for size, other in probes):
        raise ScheduleError(
            f"{entry.name} is launched with a grid that is no number of groups for each block of C: use another preset"
        )
    return block, groups


# --- the source -----------------------------------------------------------------------------------


def blas_source(routines: Sequence[Routine] = ROUTINES, choices: Sequence[Choice] = CHOICES) -> str:
    """The library's source, kernels included.

    Args:
        choices: presets, if not those that are known to serve.

    Raises: ScheduleError for presets that it can't use, with every reason.
    """
    kernels: list[Kernel] = []
    recipes: dict[Routine, tuple[Recipe, ...]] = {}
    problems: list[str] = []
    for routine in routines:
        if (found := attempt(problems, kernels_of, routine, choices)) is not None:
            kernels += found[0]
            recipes[routine] = found[1]
    if problems:
        raise ScheduleError(problems)
    skeletons = environment().overlay(trim_blocks=True, lstrip_blocks=True)
    text = skeletons.get_template("export/blas.c.j2").render(
        library=LIBRARY,
        flags=" ".join(FLAGS),
        libraries=" ".join(LIBRARIES),
        names=[routine.name for routine in routines],
        complex=any(routine.complex for routine in routines),
        span=min(kernel.span for kernel in kernels),
        kernels=kernels,
        routines=routines,
        recipes=recipes,
    )
    return lay_out(text)


#: Columns of the indentation, the quotes and the end of a line that is a string literal.
_AROUND = 8 + len('"\\n",')


def literal(line: str) -> str:
    """A line of text as a C string literal, its end included."""
    # Two question marks in a row may begin a trigraph.
    return '"' + _escaped(line).replace("??", '?" "?') + '\\n"'


def _escaped(text: str) -> str:
    """As it stands inside a C string literal."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


# --- the library ----------------------------------------------------------------------------------


def compiler_command() -> list[str]:
    """The C compiler and its own options: $CC, else the first one found. Raises: UserError."""
    if named := os.environ.get("CC"):
        try:
            command = shlex.split(named)
        except ValueError as error:
            raise UserError(f"CC={named} can't be split into words ({error}): name a C compiler") from None
        if not command or shutil.which(command[0]) is None:
            raise UserError(
                f"CC={named} is not on this machine: name a C compiler, or take --source and build elsewhere"
            )
        return command
    for name in COMPILERS:
        if shutil.which(name):
            return [name]
    raise UserError(
        f"no C compiler found ({', '.join(COMPILERS)}): install one (apt-get install gcc), set CC, or take --source"
    )


def shared_library(text: str, command: Sequence[str], defines: Sequence[tuple[str, str]] = ()) -> bytes:
    """The library made of a source.

    Args:
        command: the compiler with its own options.
        defines: macros that are strings, and what they say.

    Raises: UserError with what the compiler said.
    """
    with tempfile.TemporaryDirectory(prefix="gemmgen-export-") as folder:
        source, library = Path(folder, "source.c"), Path(folder, "library.so")
        source.write_text(text)
        strings = [f'-D{name}="{_escaped(value)}"' for name, value in defines]
        try:
            result = subprocess.run(
                [*command, *FLAGS, *strings, "-o", str(library), str(source), *LIBRARIES],
                check=False,
                capture_output=True,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise UserError(f"{command[0]} can't be run ({error.strerror}): set CC to a C compiler") from None
        if result.returncode or not library.is_file():
            said = (result.stderr or result.stdout).strip()
            why = f":\n{said}" if said else f", and ends with status {result.returncode}: set CC to a C compiler"
            raise UserError(f"{shlex.join(command)} does not compile the library{why}")
        return library.read_bytes()
