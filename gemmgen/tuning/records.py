"""What was measured, one readable file a device: a line of JSON for the device, and one for each configuration.

Files lie in the user's data folder under the rules of `gemmgen.runtime.cache`: the folder is the user's own, a file
appears as a whole or not at all, links are not followed. Writers take turns by a lock, so that processes and threads
lose nothing of each other's.

A line is data, whoever wrote it: it is parsed, and its spec and schedule are built by the same checks as a TOML file's.
Nothing in it is executed. What another machine measured is `unchecked` until this one has checked its result.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import TypeGuard

from gemmgen import tuning
from gemmgen.choice import machine as gpu
from gemmgen.cpu import machine as cpu
from gemmgen.errors import ScheduleError, UserError
from gemmgen.options import schedule_of, schedule_to_toml, spec_of
from gemmgen.records import dataclass
from gemmgen.runtime.cache import own_folder, read_own, write_own
from gemmgen.schedule import Schedule
from gemmgen.spec import LARGEST_SIZE, GemmSpec
from gemmgen.tuning.device import DeviceKey
from gemmgen.tuning.space import Shape

#: Constants that files of records may hold: of GPUs, and of CPUs.
KEPT = (*gpu.MEASURED, *cpu.MEASURED)
#: The format's name and number, in the first line of a file.
FORMAT, VERSION = "gemmgen tuned", 1
#: A file that is larger, or has longer lines, is none of gemmgen's.
MOST_BYTES, LONGEST_LINE = 256 << 20, 8192
_MOST_RUNS = 1 << 30
#: Fields of a spec that change how fast a schedule is; sizes are kept apart, and factors and assumptions are left out.
KIND: tuple[str, ...] = (
    *("dtype", "a_order", "b_order", "c_order", "c_dtype", "batched", "conj_a", "conj_b"),
    *("epilogue", "a_dtype", "b_dtype", "prologue_a", "prologue_b", "emulate", "allow_tf32"),
)


def kind_of(spec: GemmSpec) -> GemmSpec:
    """What records have of a spec: without sizes, factors and assumptions."""
    plain = GemmSpec(dtype=spec.dtype)
    known = {key: getattr(spec, key) for key in KIND}
    # Types that go without saying.
    known |= {f"{x}_dtype": None for x in "ab" if spec.element(x) == spec.dtype}
    known |= {"c_dtype": None} if spec.result == plain.result else {}
    return GemmSpec(**known)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A configuration and its time.

    Attributes:
        spec: what `kind_of` has of it.
        shape: m, n and k.
        products: of a batch.
        seconds: the median time of a product.
        spread: the middle half of the times, as a part of the median.
        runs: how many were timed.
        compared: whether it took turns with the best others, so that its time may be compared with theirs.
        checked: whether its result was checked on this device.
    """

    spec: GemmSpec
    shape: Shape
    products: int
    schedule: Schedule
    seconds: float
    spread: float
    runs: int
    compared: bool = False
    checked: bool = True

    @property
    def gflops(self) -> float:
        """Of its median time."""
        m, n, k = self.shape
        return self.spec.dtype.flops * m * n * k * self.products / self.seconds / 1e9


#: What tells configurations apart: spec, sizes, schedule, as text.
Identity = tuple[str, Shape, int, str]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file whose spec and schedule are not built yet."""

    spec: str
    shape: Shape
    products: int
    schedule: str
    seconds: float
    spread: float
    runs: int
    compared: bool
    checked: bool

    @property
    def identity(self) -> Identity:
        return self.spec, self.shape, self.products, self.schedule

    @property
    def rank(self) -> tuple[bool, float]:
        """The smaller, the better: a comparison in turns outweighs a single look."""
        return not self.compared, self.seconds

    def built_schedule(self, where: str = "record") -> Schedule:
        """Its schedule. Raises: ScheduleError with every problem."""
        return schedule_of(_parsed_table(self.schedule, where), where)

    def measurement(self, where: str = "record") -> Measurement:
        """With spec and schedule. Raises: ScheduleError with every problem."""
        spec = kind_of(spec_of(_parsed_table(self.spec, where), where))
        kept = (self.seconds, self.spread, self.runs, self.compared, self.checked)
        return Measurement(spec, self.shape, self.products, self.built_schedule(where), *kept)

    @classmethod
    def of(cls, made: Measurement) -> Line:
        kept = (made.seconds, made.spread, made.runs, made.compared, made.checked)
        return cls(spec_text(made.spec), made.shape, made.products, schedule_text(made.schedule), *kept)

    def text(self) -> str:
        """As it stands in a file."""
        told = {
            "shape": list(self.shape),
            "products": self.products,
            "milliseconds": self.seconds * 1e3,
            "spread": round(self.spread, 4),
            "runs": self.runs,
            "compared": self.compared,
            "checked": self.checked,
        }
        return f'{{"spec": {self.spec}, "schedule": {self.schedule}, {json.dumps(told)[1:]}'


def spec_text(spec: GemmSpec) -> str:
    """What `kind_of` has of a spec, as JSON: the fields that are not as a plain spec has them."""
    plain, told = GemmSpec(), dict[str, object]()
    for key in KIND:
        value = getattr(spec, key)
        if key == "dtype" or value != getattr(plain, key):
            told[key] = list(value) if isinstance(value, tuple) else value if isinstance(value, bool) else str(value)
    return json.dumps(told)


def schedule_text(schedule: Schedule) -> str:
    """A schedule without its name as JSON, in the words of a TOML file."""
    return json.dumps(tomllib.loads(schedule_to_toml(schedule.but(name=None))))


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Records:
    """A device's.

    Attributes:
        machine: constants of the device that were measured on it (`gemmgen tune --calibrate`).
    """

    key: DeviceKey
    lines: tuple[Line, ...]
    machine: Mapping[str, float] = field(default_factory=dict)

    def text(self) -> str:
        """A whole file: the best of each product first."""
        machine = {"machine": dict(self.machine)} if self.machine else {}
        head = json.dumps({"format": FORMAT, "version": VERSION, **asdict(self.key), **machine})
        ordered = sorted(self.lines, key=lambda line: (line.spec, line.products, line.shape, line.rank, line.schedule))
        return "\n".join((head, *(line.text() for line in ordered))) + "\n"

    def merged(self, others: Iterable[Line]) -> Records:
        """With others'. Of the same configuration what was checked counts, then what was compared, then more runs."""
        found = {line.identity: line for line in self.lines}
        for line in others:
            known = found.get(line.identity)
            if known is None or _weight(line) >= _weight(known):
                found[line.identity] = line
        return replace(self, lines=tuple(found.values()))


def _weight(line: Line) -> tuple[bool, bool, int]:
    return line.checked, line.compared, line.runs


def parse(text: str, where: str, problems: list[str] | None = None) -> Records:
    """The records of a file's text.

    Args:
        problems: takes what is wrong with single lines, which are then left out.

    Raises: UserError where it is no file of records, or with every wrong line if nobody takes them.
    """
    head, *rest = text.splitlines() or [""]
    key, machine = _key(head, where), _machine(head)
    wrong: list[str] = [] if problems is None else problems
    lines: list[Line] = []
    for number, content in enumerate(rest, 2):
        line = _line(content) if content.strip() else None
        if isinstance(line, str):
            wrong.append(f"{where}, line {number}: {line}")
        elif line is not None:
            lines.append(line)
    if wrong and problems is None:
        raise UserError(wrong)
    return Records(key, tuple(lines), machine)


def _key(head: str, where: str) -> DeviceKey:
    try:
        told = _table(json.loads(head[:LONGEST_LINE]))
    except (ValueError, RecursionError):
        told = {}
    if told.get("format") != FORMAT:
        raise UserError(f"{where} holds no records: give a file that gemmgen tuned export has written")
    if told.get("version") != VERSION:
        raise UserError(f"{where} has format {told.get('version')!r}, not {VERSION}: export it by this gemmgen")
    given = {each.name: told.get(each.name) for each in fields(DeviceKey)}
    kinds = {each.name: int if each.name == "cores" else str for each in fields(DeviceKey)}
    wrong = [name for name, value in given.items() if type(value) is not kinds[name]]
    if wrong:
        raise UserError(f"{where}: its first line has no {', '.join(wrong)}: export it again")
    return DeviceKey(**given)  # type: ignore[arg-type]


def _machine(head: str) -> dict[str, float]:
    """The constants in a first line that is one; those that are no numbers are left out."""
    told = _table(json.loads(head[:LONGEST_LINE])).get("machine")
    known = told.items() if isinstance(told, dict) else ()
    return {key: float(value) for key, value in known if key in KEPT and _time(value) and value > 0}


def _line(content: str) -> Line | str:
    """A line, or what is wrong with it."""
    if len(content) > LONGEST_LINE:
        return f"{len(content):,} characters > {LONGEST_LINE:,}: leave it out"
    try:
        told = _table(json.loads(content))
        spec, schedule = _table(told["spec"]), _table(told["schedule"])
        shape, products, runs = told["shape"], told["products"], told["runs"]
        seconds, spread = told["milliseconds"], told["spread"]
        compared, checked = told["compared"], told["checked"]
    except (ValueError, KeyError, RecursionError) as error:
        return f"no measured configuration ({type(error).__name__}): leave it out"
    if not (isinstance(shape, list) and len(shape) == 3 and all(_whole(x, LARGEST_SIZE) for x in shape)):
        return f"shape {shape!r} is not three whole numbers from 1 to {LARGEST_SIZE}: correct it"
    if not _whole(products, LARGEST_SIZE) or not _whole(runs, _MOST_RUNS):
        return f"products {products!r}, runs {runs!r}: give whole numbers from 1"
    if not _time(seconds) or seconds == 0 or not _time(spread):
        return f"milliseconds {seconds!r}, spread {spread!r}: give numbers above 0"
    if not isinstance(compared, bool) or not isinstance(checked, bool):
        return f"compared {compared!r}, checked {checked!r}: give true or false"
    m, n, k = shape
    texts = json.dumps(spec), json.dumps(schedule)
    return Line(texts[0], (m, n, k), products, texts[1], seconds / 1e3, spread, runs, compared, checked)


def _parsed_table(text: str, where: str) -> dict[str, object]:
    try:
        return _table(json.loads(text))
    except (ValueError, RecursionError):
        raise ScheduleError(f"{where}: neither spec nor schedule are JSON") from None


def _table(value: object) -> dict[str, object]:
    """An object of JSON. Raises: ValueError."""
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


def _whole(value: object, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _time(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


# --- on disk --------------------------------------------------------------------------------------


class Store:
    """The files of all devices in a folder.

    Args:
        folder: None for the user's data folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return tuning.folder() if self._folder is None else self._folder

    def read(self, key: DeviceKey) -> Records:
        """A device's; empty where there are none, and without lines that are damaged. Raises: nothing."""
        try:
            with own_folder(self.folder) as folder:
                return _read(folder, key)
        except OSError:
            return Records(key, ())

    def all(self) -> list[tuple[Path, Records]]:
        """Every device's, with its file; files that are none are left out. Raises: OSError."""
        if not self.folder.is_dir():
            return []
        with own_folder(self.folder) as folder:
            names = sorted(path.name for path in self.folder.glob("*.jsonl"))
            found = [(name, _parsed(folder, name)) for name in names]
        return [(self.folder / name, records) for name, records in found if records is not None]

    def add(self, key: DeviceKey, made: Iterable[Measurement | Line]) -> None:
        """Keep measurements. Raises: OSError."""
        lines = [Line.of(each) if isinstance(each, Measurement) else each for each in made]
        self.change(key, lambda records: records.merged(lines))

    def change(self, key: DeviceKey, make: Callable[[Records], Records]) -> None:
        """Replace a device's records by what a function makes of them; others wait. Raises: OSError."""
        with own_folder(self.folder) as folder, _locked(folder):
            write_own(folder, key.file_name, make(_read(folder, key)).text().encode())

    def stamp(self, key: DeviceKey) -> tuple[int, int] | None:
        """What changes with a device's file; None where there is none."""
        try:
            about = (self.folder / key.file_name).lstat()
        except OSError:
            return None
        return about.st_mtime_ns, about.st_size


@contextmanager
def _locked(folder: int) -> Iterator[None]:
    """The only writer in a folder, of all processes and threads."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(".lock", flags, 0o600, dir_fd=folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _read(folder: int, key: DeviceKey) -> Records:
    found = _parsed(folder, key.file_name)
    return found if found is not None and found.key == key else Records(key, ())


def _parsed(folder: int, name: str) -> Records | None:
    try:
        data = read_own(folder, name)
    except OSError:
        return None
    if data is None or len(data) > MOST_BYTES:
        return None
    try:
        return parse(data.decode(), name, [])
    except (UserError, UnicodeDecodeError):
        return None
