"""What is measured and what came of it: sizes, timings, rows, how certain a ratio is; as JSON and as CSV.

Nothing heavy is imported.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from statistics import median

from gemmgen.errors import SpecError, UserError
from gemmgen.ir.dtypes import BF16, F16, F32, F64, FLOAT8, I8
from gemmgen.records import dataclass
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
#: Of the intervals that hold the true median, in repeated measurements.
CONFIDENCE = 0.95
#: Samples that are drawn with replacement from the rounds, and the seed of the draw: the same rounds give the same
#: interval.
RESAMPLES = 10_000
SEED = 0
#: Rounds that an interval needs: of n rounds all lie on one side of the true median with probability 2^(1-n).
FEWEST_ROUNDS = 6
#: Rounds where none are asked for: an odd number, so that the median is one of them.
ROUNDS = 9
#: Half of a block, in seconds: long enough for clocks to settle under the load, and for events to be exact.
HALF_BLOCK = 0.025
#: Halves of a block that go by before the one that is timed, where a host's clock times: cores need longer to wake.
HOST_WARM_UP = 2
#: Products of one block at most.
MOST_LAUNCHES = 2000
#: A ratio whose interval is wider than this part of it is uncertain.
WIDE = 0.1
#: More rounds than these are no remedy that is offered: the machine is too busy.
MOST_ROUNDS = 101
#: More are not measured: they take hours, and their interval is no narrower than their clocks' drift.
LIMIT_OF_ROUNDS = 100_000
#: Rounds that differ by more than this part of their median were disturbed.
DISTURBED = 1.0
#: Products shorter than this, in seconds, take about as long as the call that starts them.
SHORT = 50e-6


def launches(seconds: float) -> int:
    """How many products of that duration make half a block."""
    return max(1, min(MOST_LAUNCHES, round(HALF_BLOCK / max(seconds, 1e-9))))


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
    """A kernel by what it assumes of sizes and leading dimensions."""
    if max(spec.multiple_of) > 1:
        return f"whole {'x'.join(map(str, spec.multiple_of))}"
    return "any ld" if spec.ld_multiple == 1 else f"ld % {spec.ld_units} = 0"


@dataclass(frozen=True, slots=True)
class Timing:
    """One contender on one size.

    Attributes:
        rounds: seconds of one product, one value per round.
        variant: which of a kernel's variants ran; empty for a library.
    """

    name: str
    rounds: tuple[float, ...]
    accuracy: Accuracy
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


# --- how certain a ratio is ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interval:
    """The ends of a confidence interval."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{three_digits(self.low)} to {three_digits(self.high)}"

    def width(self, estimate: float) -> float:
        """As a part of the estimate that it belongs to."""
        return (self.high - self.low) / estimate


@lru_cache(maxsize=256)
def median_interval(values: tuple[float, ...]) -> Interval | None:
    """The percentile bootstrap interval of the values' median; None for fewer than `FEWEST_ROUNDS`."""
    if len(values) < FEWEST_ROUNDS:
        return None
    import numpy as np

    drawn = np.random.default_rng(SEED).choice(np.array(values), (RESAMPLES, len(values)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.median(drawn, axis=1), (tail, 1 - tail))
    return Interval(float(low), float(high))


def remedy(interval: Interval | None, ratio: float, rounds: int, spread: float, seconds: float) -> str:
    """What makes a ratio certain; empty where it is.

    Args:
        interval: the ratio's; None where there were too few rounds.
        rounds: how many there were.
        spread: of the contender whose rounds differ more, (slowest - fastest) / median.
        seconds: of one product, by the faster contender.
    """
    if interval is None:
        return f"{FEWEST_ROUNDS} rounds or more give an interval: --rounds {ROUNDS}"
    width = interval.width(ratio)
    if width <= WIDE:
        return ""
    # An interval is as wide as one over the square root of the rounds.
    needed = math.ceil(rounds * (width / WIDE) ** 2) | 1
    if spread <= DISTURBED and needed <= MOST_ROUNDS:
        return f"more rounds narrow the interval: --rounds {needed}"
    if seconds < SHORT:
        return "a product takes about as long as its call: measure a larger size, or a batch (--sizes 64:N)"
    return f"something else uses this machine (rounds differ by {percent(spread)}): measure while it is idle"


def three_digits(value: float) -> str:
    """A figure with three significant digits, without an exponent: 0.0123, 1.05, 234, 12300."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = int(f"{value:.2e}".partition("e")[2])
    return f"{round(value, 2 - exponent):.{max(0, 2 - exponent)}f}"


def percent(part: float) -> str:
    """A part of one as a percentage: 2.5%, 31%, 900%."""
    return f"{part:.1%}" if part < 0.0995 else f"{part:.0%}"


# --- rows -----------------------------------------------------------------------------------------


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

    def flat(self) -> dict[str, object]:
        """The row as a record without nesting."""
        interval = self.interval
        return {
            "size": str(self.size),
            **asdict(self.size),
            "preset": self.ours.name,
            "variant": self.ours.variant,
            "peer": self.peer.name if self.peer else None,
            "ratio": self.ratio,
            "ratio_low": interval.low if interval else None,
            "ratio_high": interval.high if interval else None,
            **_figures("ours", self.ours, self.size),
            **_figures("peer", self.peer, self.size),
        }


def _figures(who: str, timing: Timing | None, size: Size) -> dict[str, float | None]:
    """What a record says of a contender; nothing where there is none."""
    keys = ("tflops", "us", "spread", "error", "of_bound")
    if timing is None:
        return {f"{who}_{key}": None for key in keys}
    off = timing.accuracy.error, timing.accuracy.worst
    found = timing.rate(size), timing.seconds * 1e6, timing.spread, *off
    return {f"{who}_{key}": value for key, value in zip(keys, found, strict=True)}


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


def check_measurable(spec: GemmSpec, what: str) -> None:
    """Raises: SpecError for a kernel (`what`) of anything else than A * B of one type."""
    if spec.beta not in (None, 0.0) or spec.alpha not in (None, 1.0):
        raise SpecError(f"{what} has alpha or beta folded in, but A * B is measured: leave them run-time")
    if spec.operands or spec.names_c or spec.a_dtype or spec.b_dtype or spec.prologue_a or spec.prologue_b:
        raise SpecError(f"{what} takes other arrays, but A * B of one type is measured: leave them out")


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
