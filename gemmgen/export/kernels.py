"""Which kernels the exported BLAS holds, and for which products each is used."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from gemmgen import driver, presets
from gemmgen.errors import LoweringError, ScheduleError
from gemmgen.export.routines import Routine
from gemmgen.ir.dtypes import DType
from gemmgen.schedule import Schedule
from gemmgen.source import EntryPoint, Source
from gemmgen.spec import GemmSpec, Order

#: What the library's host code sets, in this order.
ARGUMENTS = ("m", "n", "k", "alpha", "a", "lda", "b", "ldb", "beta", "c", "ldc")
TURN_ARGUMENTS = ("rows", "cols", "a", "lda", "b", "ldb")
#: Lanes of the kernel that turns a matrix around.
TURN_BLOCK = 16
LARGEST_BLOCK = 2**16
#: Kernels count rows and columns beyond the last one, up to a block further.
LARGEST_SPAN = 2**30


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


#: The best first: a device takes the first one that it can run. By vectors of a CPU's own; with Intel's sub-groups;
#: through local memory; for whatever is left, where barriers cost more than they bring.
CHOICES = (
    Choice("cpu_6x64_copied", "CPU", "s"),
    Choice("cpu_6x16_v8_copied", "CPU"),
    Choice("sg16_block_16x2"),
    Choice("smem_8x8_double", "GPU"),
    Choice("tile_8x8"),
)
#: Of complex numbers, which sub-groups don't pass around. It is the quickest to build of those about as fast on a CPU.
COMPLEX_CHOICES = (Choice("vec4_4x4"),)


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
    """How products with such ops are computed; names of kernels, None where a matrix is taken as it lies."""

    op_a: str
    op_b: str
    gemm: str
    turn_a: str | None = None
    turn_b: str | None = None

    def __str__(self) -> str:
        """The row of the C table."""
        kernels = (f"&{name}" if name else "NULL" for name in (self.gemm, self.turn_a, self.turn_b))
        return ", ".join((self.op_a, self.op_b, *kernels))


#: A letter for each way in which a matrix may lie, as the kernels' names have it; how C calls it; its order.
#: The last one conjugates, too.
WAYS: tuple[tuple[str, str, Order], ...] = (
    ("n", "AS_IS", "row"),
    ("t", "TRANSPOSED", "col"),
    ("c", "CONJUGATED", "col"),
)


def kernels_of(
    routine: Routine, choices: tuple[Choice, ...] | None = None
) -> tuple[tuple[Kernel, ...], tuple[Recipe, ...]]:
    """The kernels of a routine, and what each is used for, the best first.

    Args:
        choices: the presets, if not those of the table.

    Raises: ScheduleError for a preset that the library can't use, with every reason.
    """
    kernels: dict[str, Kernel] = {}
    recipes: list[Recipe] = []
    problems: list[str] = []
    ways = WAYS if routine.complex else WAYS[:2]
    table = COMPLEX_CHOICES if routine.complex else CHOICES
    for choice in choices or tuple(choice for choice in table if routine.letter in choice.letters):
        for way_a, way_b in product(ways, ways):
            try:
                recipe, needed = _recipe(routine, choice, way_a, way_b)
            except ScheduleError as error:
                problems += error.problems
                continue
            recipes.append(recipe)
            kernels |= {kernel.name: kernel for kernel in needed}
    if problems:
        raise ScheduleError(tuple(dict.fromkeys(problems)))
    return tuple(kernels.values()), tuple(recipes)


def _recipe(
    routine: Routine, choice: Choice, way_a: tuple[str, str, Order], way_b: tuple[str, str, Order]
) -> tuple[Recipe, list[Kernel]]:
    """How one kind of product is computed: by the preset as it is or, where it can't take a column-major matrix, after
    that was turned around.
    """
    schedule = presets.load(choice.preset).schedule
    refused: tuple[str, ...] = ()
    # As few matrices are turned as can be.
    for turn_a, turn_b in ((False, False), (False, True), (True, False), (True, True)):
        if (turn_a and way_a[0] == "n") or (turn_b and way_b[0] == "n"):
            continue
        letters = ("n" if turn_a else way_a[0]) + ("n" if turn_b else way_b[0])
        spec = _spec(routine.dtype, letters)
        if problems := driver.refusals(spec, schedule):
            refused = refused or problems
            continue
        if (turn_a or turn_b) and schedule.sub_group is None:
            # Only sub-groups turn matrices around, and a device that runs this preset need not have them.
            continue
        gemm = _gemm(routine, choice, schedule, spec, letters)
        turn = _turn(routine) if turn_a or turn_b else None
        names = (turn.name if turn and turned else None for turned in (turn_a, turn_b))
        return Recipe(way_a[1], way_b[1], gemm.name, *names), [gemm, *([turn] if turn else [])]
    remedy = f"or leave out {routine.dtype} by --dtype"
    raise ScheduleError([f"preset {choice.preset} cannot serve {routine.name}: {x}, {remedy}" for x in refused])


def _spec(dtype: DType, letters: str) -> GemmSpec:
    orders = {letter: order for letter, _, order in WAYS}
    a, b = letters[0], letters[1]
    return GemmSpec(dtype=dtype, a_order=orders[a], b_order=orders[b], conj_a=a == "c", conj_b=b == "c")


def _gemm(routine: Routine, choice: Choice, schedule: Schedule, spec: GemmSpec, letters: str) -> Kernel:
    """The product's kernel. Raises: ScheduleError for one that the host code can't launch."""
    name = f"{routine.name}_{letters}_{choice.preset}"
    source = driver.emit(spec, replace(schedule, name=name))
    entry = source.entry_points[0]
    for problem, there in (
        ("runs several kernels, and the library launches one", len(source.entry_points) > 1),
        ("reads images, and the library passes buffers", any(x.kind == "image" for x in entry.arguments)),
        ("needs matrices aligned, and a program's are not", source.alignment > spec.dtype.size),
    ):
        if there:
            raise ScheduleError(f"preset {choice.preset} {problem}: use one such as {CHOICES[-1].preset}")
    vector_bytes = schedule.vector * spec.dtype.size if schedule.vector > 1 else 0
    return _kernel(source, entry, ARGUMENTS, "mn", choice.device, vector_bytes)


def _turn(routine: Routine) -> Kernel:
    """The kernel that turns a matrix around."""
    name = f"{routine.letter}transpose"
    source = driver.emit_transpose(GemmSpec(dtype=routine.dtype), TURN_BLOCK, name=name)
    return _kernel(source, source.entry_points[0], TURN_ARGUMENTS, ("rows", "cols"), "ANY")


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
        lines=tuple(map(literal, source.text.splitlines())),
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


def literal(line: str) -> str:
    """A line of text as a C string literal, its end included."""
    escaped = line.replace("\\", "\\\\").replace('"', '\\"')
    # Two question marks in a row may begin a trigraph.
    return '"' + escaped.replace("??", '?" "?') + '\\n"'
