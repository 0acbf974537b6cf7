"""Matrices for `gemmgen run`: read from files, generated, checked and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import BinaryIO, Self, cast

import numpy as np
from numpy.typing import NDArray

from gemmgen.epilogue import OPERANDS, odd_columns
from gemmgen.errors import UserError, attempt
from gemmgen.ir.dtypes import BF16, FLOAT8, I8, MATRIX_DTYPES, STORED, DType
from gemmgen.ir.numeric import in_pairs, numpy_dtype
from gemmgen.options import build_spec
from gemmgen.oracle import answer
from gemmgen.records import dataclass
from gemmgen.spec import GemmSpec

Sizes = tuple[str | None, str | None, str | None]
Matrix = NDArray[np.number]
_DEFAULT_SIZE = 1024


@dataclass(frozen=True, slots=True)
class Matrices:
    """A, B, the arrays of prologues and an epilogue by name, and C if the kernel reads it.

    Attributes:
        halves: columns of B for each column of C, as the spec has it.
    """

    a: Matrix
    b: Matrix
    c: Matrix | None
    operands: Mapping[str, Matrix] = field(default_factory=dict)
    halves: int = 1

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N, K of the product: N is columns of C."""
        return self.a.shape[-2], self.b.shape[-1] // self.halves, self.a.shape[-1]

    @property
    def count(self) -> int:
        """The number of products."""
        return max(x.shape[0] if x.ndim == 3 else 1 for x in (self.a, self.b))

    def ordered(self, spec: GemmSpec) -> Self:
        """The same matrices in the spec's types and orders."""
        elements, result = (spec.element(x) for x in "ab"), numpy_dtype(spec.result)
        types = (numpy_dtype(I8 if x.pairs else x) for x in elements)
        c = None if self.c is None else ordered(cast("Matrix", self.c.astype(result, copy=False)), spec.c_order)
        a, b = (cast("Matrix", x.astype(t, copy=False)) for x, t in zip((self.a, self.b), types, strict=True))
        typed = {
            name: cast("Matrix", self.operands[name].astype(numpy_dtype(spec.operand(name)), copy=False))
            for name in spec.operands
        }
        operands = {name: x if x.ndim == 1 else ordered(x, spec.c_order) for name, x in typed.items()}
        return type(self)(ordered(a, spec.a_order), ordered(b, spec.b_order), c, operands, spec.halves)

    def stored(self, spec: GemmSpec) -> Self:
        """The same as kernels take them: two elements of int4 a byte."""
        a, b = (
            ordered(cast("Matrix", in_pairs(x, axis)), order) if spec.element(name).pairs else x
            for name, x, axis, order in (("a", self.a, -1, spec.a_order), ("b", self.b, -2, spec.b_order))
        )
        return replace(self, a=a, b=b)


def load_or_random(
    specs: Sequence[GemmSpec],
    sizes: Sizes,
    a_file: Path | None,
    b_file: Path | None,
    seed: int,
    check: bool,
    count: int | None = None,
    typed: bool = True,
) -> Matrices:
    """The matrices of a run, shared by all of its specs; `count` of each for a batch.

    Args:
        typed: whether to check that files hold the spec's types. If not, problems with their types are reported
            already.

    Raises: UserError with every problem.
    """
    problems: list[str] = []
    spec = specs[0]
    a = attempt(problems, _load, "a", a_file, spec, check, typed)
    b = attempt(problems, _load, "b", b_file, spec, check, typed)
    if count is not None and all(x is not None and x.ndim == 2 for x in (a, b)):
        one = f"--batch {count}, but --a and --b hold one matrix each"
        problems.append(f"{one}: name a file of {count}, or leave --batch out")
    known = asked(sizes, problems)
    m = _agree("M", problems, {"-M": known.m, "the rows of --a": a.shape[-2] if a is not None else None})
    if b is not None and spec.gate is not None and b.shape[-1] % spec.halves:
        problems.append(f"--b {b_file}: {odd_columns(spec.gate.short, f'has {b.shape[-1]}')}")
    whose = "the columns of --b" if spec.gate is None else "half the columns of --b"
    n = _agree("N", problems, {"-N": known.n, whose: spec.columns(b.shape[-1]) if b is not None else None})
    depths = a.shape[-1] if a is not None else None, b.shape[-2] if b is not None else None
    k = _agree("K", problems, {"-K": known.k, "the columns of --a": depths[0], "the rows of --b": depths[1]})
    for x, file in (("a", a_file), ("b", b_file)):
        types = sorted({str(other.element(x)) for other in specs})
        if len(types) > 1 and file:
            problems.append(f"kernels of {' and '.join(types)} can't share a file's matrices: run them apart")
    for units in {spec.multiple_of for spec in specs}:
        attempt(problems, GemmSpec, m, n, k, multiple_of=units)
    if problems:
        raise UserError(dict.fromkeys(problems))
    rng = np.random.default_rng(seed)
    given = [x.shape[0] for x in (a, b) if x is not None and x.ndim == 3]
    batch = () if count is None else (max(given, default=count),)
    a = _random(rng, spec.element("a"), (*batch, m, k)) if a is None else a
    b = _random(rng, spec.element("b"), (*batch, k, n * spec.halves)) if b is None else b
    c = _random(rng, spec.result, (*batch, m, n)) if any(s.beta or s.names_c for s in specs) else None
    shapes = {name: operand.extents(m, n, k) for name, operand in OPERANDS.items()}
    shapes |= {name: (*batch, *shape) for name, shape in shapes.items() if len(shape) == 2}
    names = dict.fromkeys(name for other in specs for name in other.operands)
    drawn = {name: _random(rng, spec.operand(name), shapes[name]) for name in names}
    return Matrices(a, b, c, drawn, spec.halves)


def asked(sizes: Sizes, problems: list[str]) -> GemmSpec:
    """A spec with the given sizes."""
    problems += [
        f"-{axis} 0 leaves nothing to time: give 1 or more (gemmgen.gemm and compiled kernels do take 0)"
        for axis, text in zip("MNK", sizes, strict=True)
        if text == "0"
    ]
    rows, cols, depth = (None if text == "0" else text for text in sizes)
    return attempt(problems, build_spec, m=rows, n=cols, k=depth) or GemmSpec()


def _agree(axis: str, problems: list[str], said: dict[str, int | None]) -> int:
    """The size of an axis on which all sources agree."""
    known = {who: size for who, size in said.items() if size is not None}
    if len(set(known.values())) > 1:
        sizes = ", ".join(f"{size} by {who}" for who, size in known.items())
        problems.append(f"{axis} is {sizes}: give matrices and sizes that agree")
    return next(iter(known.values()), _DEFAULT_SIZE)


def _random(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Matrix:
    if dtype.pairs:
        return rng.integers(-8, 8, shape).astype(np.int8)
    if not dtype.is_float:
        return rng.integers(-128, 128, shape).astype(dtype.name)
    numbers = rng.uniform(-1, 1, shape)
    if dtype.real is not None:
        numbers = numbers + 1j * rng.uniform(-1, 1, shape)
    return cast("Matrix", numbers.astype(numpy_dtype(dtype)))


def ordered(matrix: Matrix, order: str) -> Matrix:
    """The matrices, stored row-major or column-major."""
    if order == "row":
        return np.ascontiguousarray(matrix)
    return np.ascontiguousarray(matrix.swapaxes(-1, -2)).swapaxes(-1, -2)


def stored_type(files: Mapping[str, Path | None], said: Mapping[str, str | None]) -> str | None:
    """The element type of the files' matrices, if no option gives it; None if the files don't determine it.

    Args:
        files: the files of `a` and `b`.
        said: `--a-dtype` and `--b-dtype`, by the same names. A file with such an option does not determine the type.

    Raises: UserError if the files have different types, or a type that no kernel multiplies.
    """
    types: dict[str, str] = {}
    for name, path in files.items():
        if path is None or said[name] is not None:
            continue
        content = _read(name, path, "float32", only_look=True)
        if content.dtype.kind != "V":  # a file of bfloat16 says only how long an element is
            types[name] = content.dtype.newbyteorder("=").name
    if not types:
        return None
    if len(set(types.values())) > 1:
        held = " and ".join(f"--{name} {files[name]} ({dtype})" for name, dtype in types.items())
        wider = np.result_type(*types.values()).name
        common = wider if wider in MATRIX_DTYPES else "float32"
        other = next(name for name, dtype in types.items() if dtype != common)
        stored = map(str, STORED.get(MATRIX_DTYPES[common], ()))
        option = f"use --dtype {common} --{other}-dtype {types[other]}, or " if types[other] in stored else ""
        remedy = f"{option}{_writing('both', common)}"
        raise UserError(f"{held} are of two types: {remedy}")
    (name, dtype), *_ = types.items()
    if dtype not in MATRIX_DTYPES:
        remedy = _writing("it", "float32")
        raise UserError(f"--{name} {files[name]} holds {dtype}, which no kernel multiplies: {remedy}")
    return dtype


def _writing(what: str, dtype: str) -> str:
    """How to write a file of such elements, for messages."""
    before = ", after import ml_dtypes" if dtype in map(str, (BF16, *FLOAT8)) else ""
    return f"write {what} by numpy.save(path, matrix.astype('{dtype}')){before}"


def _read(name: str, path: Path, stored: str, only_look: bool = False) -> NDArray[np.generic]:
    """The array of a file; with `only_look` mapped, not read. Raises: UserError."""
    option, remedy = f"--{name}", _writing("it", stored)
    try:
        content = np.load(path, allow_pickle=False, mmap_mode="r" if only_look else None)
    except OSError as error:
        raise UserError(f"{option} {path} can't be read: {error.strerror or error}: name an .npy file") from None
    except (ValueError, EOFError, SyntaxError):
        raise UserError(f"{option} {path} is no .npy file of numbers: {remedy}") from None
    if not isinstance(content, np.ndarray):
        raise UserError(f"{option} {path} is an archive of several arrays: give one as an .npy file; {remedy}")
    if content.dtype.kind not in "biufcV":  # V: bfloat16, of which a file says only the length
        raise UserError(f"{option} {path} holds {content.dtype.name}, which is no number: {remedy}")
    numbers = cast("NDArray[np.generic]", content)
    return numbers if only_look else numbers.astype(numbers.dtype.newbyteorder("="), copy=False)


def _load(name: str, path: Path | None, spec: GemmSpec, check: bool, typed: bool) -> Matrix | None:
    """A matrix from a file. Raises: UserError."""
    if path is None:
        return None
    option, stored = f"--{name}", spec.element(name)
    if stored.pairs:
        raise UserError(
            f"{option} {path} is no file of {stored}, of which NumPy has none: leave it out, for random ones"
        )
    dtype, content = numpy_dtype(stored), _read(name, path, str(stored))
    problems = []
    if content.dtype.kind == dtype.kind == "V" and content.dtype.itemsize == dtype.itemsize:
        content = content.view(dtype)  # a file of bfloat16 says only how long an element is
    if typed and content.dtype != dtype:
        problems.append(f"{option} {path} holds {content.dtype}, not {stored}: {_other_type(name, content, spec)}")
    if content.ndim not in ((2, 3) if spec.batched else (2,)):
        remedy = "give --batch" if content.ndim == 3 else "reshape it to rows and columns"
        problems.append(f"{option} {path} has {content.ndim} dimension{'s' * (content.ndim != 1)}, not 2: {remedy}")
    elif 0 in content.shape:
        problems.append(f"{option} {path} is empty ({'x'.join(map(str, content.shape))}): give 1x1 or more")
    if not problems and check and not np.isfinite(cast("Matrix", content)).all():
        problems.append(f"{option} {path} holds NaN or infinities, for which there is no error bound: leave out -v")
    if problems:
        raise UserError(problems)
    return cast("Matrix", content)


def _other_type(name: str, content: NDArray[np.generic], spec: GemmSpec) -> str:
    """The problem of a file with another type than the spec's, with a remedy."""
    held = content.dtype.newbyteorder("=").name
    written = _writing("it", str(spec.element(name)))
    if content.dtype == "V2":  # bfloat16, of which a file says only the length
        stored = f"--{name}-dtype bfloat16, or " if BF16 in STORED.get(spec.dtype, ()) else ""
        return f"use {stored}--dtype bfloat16 if A and B both hold it, or {written}"
    if held in map(str, STORED.get(spec.dtype, ())):
        return f"use --{name}-dtype {held}, or {written}"
    return f"use --dtype {held}, or {written}" if held in MATRIX_DTYPES else written


def save(file: BinaryIO, matrix: Matrix) -> None:
    """Write an .npy file."""
    np.save(file, matrix, allow_pickle=False)


@dataclass(frozen=True, slots=True)
class Check:
    """The error of a result against float64, compared with the componentwise bound of rounding errors.

    Attributes:
        worst: the largest error as a part of its element's bound; infinite if there is a NaN.
        error: the largest absolute error.
        bound: the name of the bound.
        unknown: a message about elements without a value to compare with. The errors are those of the others.
    """

    worst: float
    error: float
    bound: str = "gamma_K |A||B|"
    unknown: str = ""

    @property
    def passed(self) -> bool:
        """NaN never passes."""
        return self.worst <= 1 and not self.unknown

    def __str__(self) -> str:
        verdict = "passed: " if self.passed else f"FAILED: {self.unknown}"
        return f"validation {verdict}error {self.error:.3g} at most, {self.worst:.3g} of the bound {self.bound}"

    @classmethod
    def of(
        cls,
        data: Matrices,
        spec: GemmSpec,
        result: Matrix,
        product_error: float = 0.0,
        cut: tuple[int, int] | None = None,
    ) -> Self:
        """The check of a result by `gemmgen.oracle`, with the spec's constant factors, or else 1 and 0."""
        factors = 1.0 if spec.alpha is None else spec.alpha, spec.beta or 0.0
        right = answer(spec, (data.a, data.b, data.c), factors, data.operands, product_error, cut=cut)
        parts, distances = right.parts(result), right.distance(result)
        unknown = right.unknown & (parts > 1)
        worst, distance = (float(x.max(initial=0, where=~unknown)) for x in (parts, distances))
        sums = spec.accumulator
        if not sums.is_float:
            return cls(worst, distance, "0 of whole numbers")
        gamma = "gamma_K" if sums.real is None else "2 gamma_2K"
        more = f" + {product_error:.2g} |A||B| of rounded elements" if product_error else ""
        more += "" if cut is None else f" + sums cut to {cut[0]} bits"
        more += " through the prologue" if spec.prologue_a or spec.prologue_b else ""
        more += " through the epilogue" * bool(spec.epilogue)
        more += f" and of rounding to {spec.result}" * (spec.result != sums)
        return cls(worst, distance, f"{gamma} |A||B|{more}", _unknown(spec, unknown))


def _unknown(spec: GemmSpec, unknown: NDArray[np.bool_]) -> str:
    """The message about elements without a value; empty if there are none."""
    if not unknown.any():
        return ""
    first = ", ".join(map(str, np.argwhere(unknown)[0]))
    said = f"{unknown.sum():,} of {unknown.size:,} elements, the first at ({first}), have no number for an answer, "
    if formulas := [x for x in (spec.prologue_a, spec.prologue_b, *spec.epilogue) if x is not None]:
        named = ", ".join(formulas)
        return (
            f"{said}since {named} leaves where its functions have values: keep it there, as max(acc, 0.001) does in a "
            "log, or give matrices by --a and --b; of the others, "
        )
    return f"{said}since A or B holds what is none: give others; of the rest, "
