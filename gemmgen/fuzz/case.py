"""One case: what is computed, how, for which target, and on which numbers. As a TOML file it can be run again."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Literal, cast, get_args
from zlib import crc32

from gemmgen.epilogue import OPERANDS
from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import DType
from gemmgen.kernel_names import kernel_name
from gemmgen.options import read_document, read_text, schedule_to_toml
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order

#: `normal` numbers are checked within the bound on rounding; `whole` ones, small, must come out exactly; so must
#: `short` ones on every device as in the interpreter: their products are exact, their sums are not, so that
#: the order of summation shows in the last bits.
Data = Literal["normal", "whole", "short"]
#: Stands for the target that a device is, in a case that was found on one.
OF_DEVICE = "device"
#: Elements whose multiples matrices begin on where their addresses are given: what vectors of any type ask for.
ADDRESSED = 16
_HEAD = "[case]"


@dataclass(frozen=True, slots=True)
class Case:
    """One product to try.

    Attributes:
        backend, target: what it is emitted for; `OF_DEVICE` for whatever the device of that backend offers.
        size: M, N and K.
        count: products of a batch.
        pads: elements by which the lines of A, B and C are longer than they need be, at least; also the gap between
            matrices of a batch.
        offsets: elements by which A, B and C begin later than where device memory does.
        alpha, beta: as the spec folds them, or as they are passed; in files complex ones are texts.
        seed: of the numbers.
    """

    spec: GemmSpec
    schedule: Schedule
    size: tuple[int, int, int]
    backend: str = "opencl"
    target: str = "intel"
    count: int = 1
    pads: tuple[int, int, int] = (0, 0, 0)
    offsets: tuple[int, int, int] = (0, 0, 0)
    alpha: complex = 1.0
    beta: complex = 0.0
    data: Data = "normal"
    seed: int = 0

    def __str__(self) -> str:
        size = "x".join(map(str, self.size)) + (f", {self.count} of them" if self.spec.batched else "")
        name = kernel_name(self.schedule, self.spec)
        return f"{name} for {self.target}: {self.spec.label()}, {size}, {self.data} numbers"

    @property
    def multiplies(self) -> bool:
        """Whether A and B are read: not where alpha is 0, but by a kernel whose K is folded, as it can't be told."""
        return self.alpha != 0 or (self.spec.alpha is None and self.spec.k is not None)

    def sizes(self) -> dict[str, int]:
        """The integers of a call, other than leading dimensions and strides."""
        batch = {"batch_count": self.count} if self.spec.batched else {}
        return {**dict(zip("mnk", self.size, strict=True)), **batch}

    def arguments(self) -> dict[str, complex]:
        """The numbers that a kernel is launched with, other than leading dimensions and strides: as launchers have it,
        K is 0 where A and B must not be read.
        """
        k = {} if self.multiplies or self.spec.k is not None else {"k": 0}
        return {**self.sizes(), **k, "alpha": self.alpha, "beta": self.beta}

    def shape(self, name: str) -> tuple[int, int, int]:
        """Products, rows and columns of a matrix; what an epilogue takes for rows or columns is one row."""
        sizes = dict(zip("mnk", self.size, strict=True))
        axes = {"a": "mk", "b": "kn", "c": "mn"}.get(name) or OPERANDS[name].axes
        if len(axes) == 1:
            return 1, 1, OPERANDS[name].extents(*self.size)[0]
        return self.count, sizes[axes[0]], sizes[axes[1]]

    def order(self, name: str) -> Order:
        """Of a matrix."""
        return {"a": self.spec.a_order, "b": self.spec.b_order}.get(name, self.spec.c_order)

    def pitch(self, name: str) -> tuple[int, int]:
        """Leading dimension and stride of a matrix, as the spec assumes them."""
        _, rows, cols = self.shape(name)
        slow, fast = (rows, cols) if self.order(name) == "row" else (cols, rows)
        pad = self.pads["abc".index(name) if name in "abc" else 2]
        unit = self.spec.ld_unit(name if name in "abc" else "c")
        ld = round_up(max(1, fast + pad), unit)
        return ld, round_up(slow * ld + pad, max(unit, ADDRESSED if self.spec.listed else 1))

    def offset(self, name: str) -> int:
        """Where a matrix begins."""
        return self.offsets["abc".index(name)] if name in "abc" else 0

    def place(self, name: str) -> tuple[int, ...]:
        """Which of the matrices in memory each product takes: of those whose addresses are given, not in order."""
        is_reversed = self.spec.listed and name in "abc"
        return tuple(range(self.count))[:: -1 if is_reversed else 1]

    # --- files ------------------------------------------------------------------------------------

    def to_toml(self) -> str:
        """The schedule, the spec where it says something, and the rest."""
        return "\n".join(
            (
                schedule_to_toml(self.schedule),
                "[spec]",
                *_lines(self.spec),
                "",
                _HEAD,
                *(f"{f.name} = {_value(getattr(self, f.name))}" for f in fields(self) if f.name not in _DOCUMENT),
                "",
            )
        )

    def file_name(self) -> str:
        """The same for the same case."""
        return f"fuzz-{crc32(self.to_toml().encode()):08x}.toml"

    @classmethod
    def from_toml(cls, text: str, where: str) -> Case:
        """Raises: SpecError, ScheduleError with every problem, each led by `where`."""
        document, _, _ = text.partition(f"\n{_HEAD}\n")
        known = read_document(document, where)
        table: Mapping[str, object] = tomllib.loads(text).get("case", {})
        values = {key: _parsed(key, value) for key, value in table.items() if key in _PLAIN}
        needed = {name for name, f in _PLAIN.items() if f.default is MISSING}
        problems = [f"[case] lacks {name}" for name in sorted(needed - set(table))]
        problems += [
            f"unknown key {key!r} in [case]: known are {', '.join(_PLAIN)}" for key in table if key not in values
        ]
        problems += [
            f"{key} = {table[key]!r} in [case] is not what fuzz saves: {_LIKE.get(key, 'text')}"
            for key, value in values.items()
            if value is None
        ]
        if problems:
            raise SpecError(f"{where}: {problem}" for problem in problems)
        return cls(known.spec, known.schedule, **values)  # type: ignore[arg-type]


_DOCUMENT = ("spec", "schedule")
_PLAIN = {f.name: f for f in fields(Case) if f.name not in _DOCUMENT}
_THREE = ("size", "pads", "offsets")
_FACTORS = ("alpha", "beta")
_COUNTS = ("count", "seed")
#: What fuzz saves under a key, in words.
_LIKE = {
    **dict.fromkeys(_THREE, "three whole numbers"),
    **dict.fromkeys(_FACTORS, 'a number, or a text such as "1+2j"'),
    **dict.fromkeys(_COUNTS, "a whole number"),
    "data": f"one of {', '.join(get_args(Data))}",
}


def load(path: Path) -> Case:
    """A case that was saved. Raises: UserError, SpecError, ScheduleError with every problem."""
    return Case.from_toml(read_text(path, "--replay", "a file that fuzz has saved"), str(path))


def _parsed(key: str, value: object) -> object:
    """A value of [case] as `Case` has it; None for one that fuzz does not save."""
    if key in _THREE:
        good = isinstance(value, list) and len(value) == 3 and all(map(_is_whole, value))
        return tuple(cast("list[int]", value)) if good else None
    if key in _FACTORS and isinstance(value, str):
        try:
            return complex(value)
        except ValueError:
            return None
    if key in _FACTORS:
        return value if type(value) in (int, float) else None
    if key in _COUNTS:
        return value if _is_whole(value) else None
    return value if isinstance(value, str) and (key != "data" or value in get_args(Data)) else None


def _is_whole(value: object) -> bool:
    return type(value) is int and value >= 0


def _lines(spec: GemmSpec) -> list[str]:
    """What a spec says that is not said anyway."""
    return [f"{f.name} = {_value(x)}" for f in fields(spec) if (x := getattr(spec, f.name)) != f.default]


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | DType():
            return f'"{value}"'
        case complex():
            return f'"{value:g}"'
        case tuple():
            return f"[{', '.join(map(_value, value))}]"
    return str(value)


def round_up(size: int, unit: int) -> int:
    """The next multiple of a unit."""
    return -(-size // unit) * unit
