"""What is measured and what came of it: sizes, timings, rows; as JSON and as CSV. Nothing heavy is imported."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from gemmgen.bench.statistics import Interval, median_interval, remedy
from gemmgen.errors import SpecError, UserError
from gemmgen.ir.dtypes import BF16, F16, F32, F64, FLOAT8, I8
from gemmgen.spec import GemmSpec

#: Peers that can be measured -> what they are.
PEERS = {
    "cublas": "NVIDIA's library, by torch.mm (TF32 off) or else cupy.matmul",
    "cublas_tf32": "the same with TF32 on, float32 alone, by torch",
    "clblast": "CLBlast on the same device by OpenCL, in a process of its own",
    "mkl": "MKL's sgemm on the CPU, in a process of its own",
    "numpy": "numpy.matmul on the CPU, in a process of its own",
}
#: The peer of a backend where none is named.
USUAL_PEERS = {"cuda": "cublas", "opencl": "numpy"}
#: Types other than float32 that are measured by a backend, and the peers that multiply them.
MEASURED = {
    "cuda": ((F16.name, BF16.name, F64.name, I8.name, *map(str, FLOAT8)), frozenset({"cublas"})),
    "opencl": ((F64.name,), frozenset({"clblast", "mkl", "numpy"})),
}


@dataclass(frozen=True, slots=True)
class Size:
    """One product, or `batch` of them; 0 where it is of no batch."""

    m: int
    n: int
    k: int
    batch: int = 0

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * (self.batch or 1)

    def shape(self, rows: int, cols: int) -> tuple[int, ...]:
        """The shape of an array that holds such matrices."""
        return (self.batch, rows, cols) if self.batch else (rows, cols)

    def __str__(self) -> str:
        one = str(self.m) if self.m == self.n == self.k else f"{self.m}x{self.n}x{self.k}"
        return f"{self.batch}:{one}" if self.batch else one


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far a result is from float64.

    Attributes:
        error: |C - reference| / |reference|, in the Frobenius norm.
        worst: the largest error of an element, as a part of its bound gamma_(K+3) |A| |B|; infinite for a NaN.
    """

    error: float
    worst: float

    @property
    def passed(self) -> bool:
        """NaN never passes."""
        return self.worst <= 1


def variant(spec: GemmSpec) -> str:
    """A kernel by what it is promised of sizes and leading dimensions."""
    if max(spec.multiple_of) > 1:
        return f"whole {'x'.join(map(str, spec.multiple_of))}"
    return "any ld" if spec.ld_multiple == 1 else f"ld % {spec.ld_multiple} = 0"


@dataclass(frozen=True, slots=True)
class Timing:
    """One contender on one size.

    Attributes:
        rounds: seconds of one product, hot, one value per round.
        cold: seconds of one product right after a pause; None where none was asked for.
        variant: which of a kernel's variants ran; empty for a library.
    """

    name: str
    rounds: tuple[float, ...]
    accuracy: Accuracy
    cold: float | None = None
    variant: str = ""

    @property
    def seconds(self) -> float:
        """The median of the rounds."""
        return median(self.rounds)

    @property
    def spread(self) -> float:
        """(Slowest - fastest) / median."""
        return (max(self.rounds) - min(self.rounds)) / self.seconds

    def rate(self, size: Size) -> float:
        """TFLOP/s."""
        return size.flops / self.seconds / 1e12


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel against a peer, or alone."""

    size: Size
    ours: Timing
    peer: Timing | None = None

    @property
    def ratio(self) -> float | None:
        """How much faster ours is: the median of the rounds' ratios, peer's time over ours, as what slows a machine
        down for a round slows both.
        """
        return None if self.peer is None else median(self._ratios())

    @property
    def interval(self) -> Interval | None:
        """Of the ratio, at 95 % confidence; None without a peer, or of too few rounds."""
        return None if self.peer is None else median_interval(self._ratios())

    @property
    def remedy(self) -> str:
        """What makes the ratio certain; empty where it is, or where there is none."""
        if self.peer is None or self.ratio is None:
            return ""
        both = self.ours, self.peer
        spread, seconds = max(one.spread for one in both), min(one.seconds for one in both)
        return remedy(self.interval, self.ratio, len(self.ours.rounds), spread, seconds)

    def _ratios(self) -> tuple[float, ...]:
        theirs = self.peer.rounds if self.peer else ()
        return tuple(peer / ours for ours, peer in zip(self.ours.rounds, theirs, strict=True))

    @property
    def cold_ratio(self) -> float | None:
        """The peer's time over ours, right after a pause."""
        if self.peer is None or self.peer.cold is None or self.ours.cold is None:
            return None
        return self.peer.cold / self.ours.cold

    def flat(self) -> dict[str, object]:
        """The row as a record without nesting."""
        interval = self.interval
        record: dict[str, object] = {
            "size": str(self.size),
            "m": self.size.m,
            "n": self.size.n,
            "k": self.size.k,
            "batch": self.size.batch,
            "preset": self.ours.name,
            "variant": self.ours.variant,
            "peer": self.peer.name if self.peer else None,
            "ratio": self.ratio,
            "ratio_low": interval.low if interval else None,
            "ratio_high": interval.high if interval else None,
            "cold_ratio": self.cold_ratio,
        }
        for who, timing in (("ours", self.ours), ("peer", self.peer)):
            record |= {
                f"{who}_tflops": timing.rate(self.size) if timing else None,
                f"{who}_us": timing.seconds * 1e6 if timing else None,
                f"{who}_spread": timing.spread if timing else None,
                f"{who}_cold_us": timing.cold * 1e6 if timing and timing.cold is not None else None,
                f"{who}_error": timing.accuracy.error if timing else None,
                f"{who}_of_bound": timing.accuracy.worst if timing else None,
            }
        return record


def to_json(rows: Iterable[Row], about: Mapping[str, object]) -> str:
    """Every row with its rounds, after what is known of the machine."""
    records = [
        row.flat()
        | {
            "ours_rounds_us": [s * 1e6 for s in row.ours.rounds],
            "peer_rounds_us": [s * 1e6 for s in row.peer.rounds] if row.peer else None,
        }
        for row in rows
    ]
    return json.dumps({"about": dict(about), "rows": records}, indent=1) + "\n"


def to_csv(rows: Iterable[Row]) -> str:
    """One line a row."""
    records = [row.flat() for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


# --- options --------------------------------------------------------------------------------------


def parse_sizes(text: str) -> tuple[Size, ...]:
    """Sizes such as `512,4095,128x14336x4096` (M x N x K), and `256:64`, a batch of 256 of 64x64x64.

    Raises: SpecError with every problem.
    """
    problems = []
    sizes = []
    for part in (part.strip() for part in text.split(",")):
        if not re.fullmatch(r"([0-9]{1,99}:)?[0-9]{1,99}(x[0-9]{1,99}x[0-9]{1,99})?", part):
            problems.append(f"size {part!r} is not like 4096, 128x14336x4096 (M x N x K) or 256:64 (a batch)")
            continue
        count, _, one = part.rpartition(":")
        extents = [int(number) for number in one.split("x")]
        m, n, k = extents * 3 if len(extents) == 1 else extents
        if not all(0 < extent < 2**31 - 1024 for extent in (m, n, k, int(count or 1))):
            problems.append(f"size {part}: give whole numbers from 1 to {2**31 - 1025}")
            continue
        too_long = dict.fromkeys(f"{x} x {y}" for x, y in ((m, k), (k, n), (m, n)) if x * y >= 2**31)
        problems += (f"size {part} has a matrix of {what} >= 2^31 elements: give a smaller one" for what in too_long)
        sizes.append(Size(m, n, k, int(count or 0)))
    if problems:
        raise SpecError(problems)
    return tuple(dict.fromkeys(sizes))


def parse_peers(text: str) -> tuple[str, ...]:
    """Peers such as `cublas,numpy`; none for an empty text. Raises: UserError with every problem."""
    names = [part.strip().lower() for part in text.split(",") if part.strip()]
    problems = [f"peer {name!r} does not exist: give some of {', '.join(PEERS)}" for name in names if name not in PEERS]
    if problems:
        raise UserError(problems)
    return tuple(dict.fromkeys(names))


def check_dtypes(dtypes: Iterable[str], peers: Iterable[str], backend: str) -> None:
    """Raises: SpecError for element types that can't be measured side by side, or by a peer, with every problem."""
    found = list(dict.fromkeys(dtypes))
    problems = []
    if len(found) > 1:
        problems.append(f"kernels of {' and '.join(found)} are no comparison: measure them apart, or give --dtype")
    for dtype in found:
        if dtype == F32.name:
            continue
        types, able = MEASURED.get(backend, ((), frozenset()))
        if dtype not in types:
            known = ", ".join((F32.name, *types))
            problems.append(
                f"{dtype} can't be measured on {backend}: use {known}, or time kernels by gemmgen run --dtype {dtype}"
            )
        others = [name for name in peers if name not in able]
        if others:
            problems.append(f"{', '.join(others)} multiply other types here, not {dtype}: leave them out of --vs")
    if problems:
        raise SpecError(problems)
