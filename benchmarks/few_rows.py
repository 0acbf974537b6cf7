"""Families of products beside cuBLAS, on this machine's GPU: few rows, few columns, large K, batches of heads, others.

    python benchmarks/few_rows.py --family gemv
    python benchmarks/few_rows.py --family rows --dtypes float32
    python benchmarks/few_rows.py --all --shapes 20
    python benchmarks/few_rows.py --family even --dtypes tf32,3xtf32,int8,float64 --layouts row
    python benchmarks/few_rows.py --family gemv --dtypes bfloat16 --layouts row,col --schedules mine.toml --shapes 4

Of each family some drawn shapes, odd ones among them, in each type and layout of B. Ours is what `gemmgen.choose`
names, or each schedule of a file (a table each, as in `gemmgen/candidates.toml`). Launches are captured in graphs, each
with operands of its own, which together are larger than the L2 cache; ours and cuBLAS' are replayed in turns. Printed
is cuBLAS' time by ours, the geometric mean and the worst; and the time that a copy of as many bytes takes, by ours.

cuBLAS is called by torch, float8 by `torch._scaled_mm`, int8 by `torch._int_mm`, which needs more than 16 rows: of
fewer it is given 17. `tf32` is float32 that both may round to TF32; `3xtf32` is our float32 by three products of TF32,
beside SGEMM. Of these two the largest error is printed, in units of cuBLAS', both against float64.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import exp, log, prod
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen import candidates
from gemmgen.api.compile import cuda_kernel
from gemmgen.choose import choose
from gemmgen.errors import UserError
from gemmgen.ir.dtypes import BF16, FLOAT8, I8, MATRIX_DTYPES, DType
from gemmgen.ir.target import Target
from gemmgen.kernel_names import kernel_name
from gemmgen.options.documents import document_of
from gemmgen.runtime.cuda_devices import pick, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order

#: m, n, k, and for a batch how many products.
Shape = tuple[int, ...]

#: Bytes of operands that are gone through before the first ones come again: three times the L2 cache.
ROTATED = 160 << 20
#: Copies of the long operand at least and at most; rounds of replays.
LEAST, MOST, ROUNDS = 3, 48, 9
#: How far an element may be off, of the largest one: a coarse sieve; `gemmgen run --validate` is the fine one.
OFF = 0.02
#: Rows that `torch._int_mm` takes at least.
INT_ROWS = 17


def gemv(rng: random.Random, number: int) -> Shape:
    """1 to 8 rows; N and K of 2k to 16k, every fifth pair odd."""
    n, k = (round(2 ** rng.uniform(11, 14)) // 64 * 64 for _ in range(2))
    odd = number % 5 == 4
    return rng.choice((1, 1, 2, 3, 4, 5, 6, 8)), n + odd, k + odd


def columns(rng: random.Random, number: int) -> Shape:
    """The same with 1 to 8 columns."""
    m, n, k = gemv(rng, number)
    return n, m, k


def rows(rng: random.Random, number: int) -> Shape:
    """8 to 64 rows, large N."""
    n, k = round(2 ** rng.uniform(12, 14)) // 64 * 64, round(2 ** rng.uniform(11, 13)) // 64 * 64
    odd = number % 5 == 4
    return rng.choice((8, 12, 16, 24, 32, 48, 64)), n + odd, k + odd


def deep(rng: random.Random, number: int) -> Shape:
    """Large K: around 100x100x100000 and 16x16x8192."""
    large = number % 2 == 0
    m, n = (round((100 if large else 16) * 2 ** rng.uniform(-0.7, 0.7)) for _ in range(2))
    return m, n, round((100_000 if large else 8192) * 2 ** rng.uniform(-0.7, 0.7))


def even(rng: random.Random, _: int) -> Shape:
    """Three sizes from 512 to 4096: products that arithmetic bounds."""
    m, n, k = (round(2 ** rng.uniform(9, 12)) // 64 * 64 for _ in range(3))
    return m, n, k


def _around(rng: random.Random, number: int, *sizes: int) -> Shape:
    """Sizes within a factor of two, every fifth shape odd."""
    unit = 1 if number % 5 == 4 else 16
    return tuple(max(unit, round(size * 2 ** rng.uniform(-1, 1)) // unit * unit) for size in sizes)


def tokens(rng: random.Random, number: int) -> Shape:
    """197 to 577 rows, of a layer."""
    _, n, k = _around(rng, number, 8, 2048, 1536)
    return rng.randint(197, 577), n, k


def many(rng: random.Random, number: int) -> Shape:
    """1,000 rows and more, of a layer."""
    _, n, k = _around(rng, number, 8, 3072, 2048)
    return round(1000 * 2 ** rng.uniform(0, 3)), n, k


def square(rng: random.Random, number: int) -> Shape:
    """Around 1024 cubed."""
    return _around(rng, number, 1024, 1024, 1024)


def wide(rng: random.Random, number: int) -> Shape:
    """Around 128x14336x4096."""
    return _around(rng, number, 128, 14336, 4096)


def heads(rng: random.Random, number: int) -> Shape:
    """Batches around 192 of 197x64x197, and 256 of 100x99x101."""
    if number % 2:
        return *(round(size * 2 ** rng.uniform(-0.5, 0.5)) for size in (100, 99, 101)), 256
    tokens = rng.randint(128, 320)
    return (tokens, 64, tokens, 192) if number % 4 else (tokens, tokens, 64, 192)


def small(rng: random.Random, _: int) -> Shape:
    """Batches around 4096 of 32 cubed."""
    return *(rng.choice((16, 24, 32, 32, 48, 64)) for _ in range(3)), round(4096 * 2 ** rng.uniform(-1, 1))


def short(rng: random.Random, _: int) -> Shape:
    """A large C of any size, K of 20 to 200."""
    return rng.randint(1000, 6000), rng.randint(1000, 6000), rng.randint(20, 200)


def free(rng: random.Random, number: int) -> Shape:
    """Three sizes from 16 to 16,384 of 10^7 to 10^11 multiply-adds, every second shape odd."""
    while True:
        sizes = (round(2 ** rng.uniform(4, 14)) for _ in range(3))
        m, n, k = (size if number % 2 else size // 16 * 16 for size in sizes)
        if 1e7 < m * n * k < 1e11:
            return m, n, k


FAMILIES: dict[str, Callable[[random.Random, int], Shape]] = {
    "gemv": gemv,
    "columns": columns,
    "rows": rows,
    "deep": deep,
    "even": even,
    "tokens": tokens,
    "many": many,
    "square": square,
    "wide": wide,
    "heads": heads,
    "small": small,
    "short": short,
    "free": free,
}
#: With `--all`: families, and the types and layouts of B in which they are asked for.
ALL: tuple[tuple[str, str, str], ...] = (
    ("tokens", "bfloat16", "col"),
    ("tokens", "float8_e4m3fn", "col"),
    ("many", "bfloat16", "col"),
    ("many", "float8_e4m3fn", "col"),
    ("square", "bfloat16", "row"),
    ("wide", "bfloat16", "row"),
    ("heads", "bfloat16", "row"),
    ("small", "bfloat16", "row"),
    ("small", "float32", "row"),
    ("short", "bfloat16", "row"),
    ("even", "tf32", "row"),
    ("even", "3xtf32", "row"),
    ("even", "int8", "row"),
    ("even", "float64", "row"),
    ("gemv", "float32", "col"),
    ("gemv", "bfloat16", "col"),
    ("rows", "float32", "row"),
    ("deep", "bfloat16", "row"),
)


def _by_three_products(shape: Shape, cores: int) -> Iterator[Schedule]:
    """The block by how many of C there are, and K in parts where they leave half of the multiprocessors without one."""
    large = shape[0] * shape[1] >= cores * 128 * 128
    one = candidates.load("wgmma_3xtf32_128x128_s3" if large else "wgmma_3xtf32_64x128_s4").schedule
    m, n, k = shape
    parts = max(1, cores // candidates.blocks_of(one, (m, n, k), products=1))
    yield one if parts == 1 else one.but(split_k=parts, name=None)
    yield candidates.load("mma_3xtf32_8x8_16x16").schedule


#: Ways to multiply float32 beside its own.
WAYS_OF_FLOAT32 = ("tf32", "3xtf32")


@dataclass
class Contender:
    """What is timed: a graph of launches."""

    name: str
    replay: Callable[[], None]
    count: int
    times: list[float] = field(default_factory=list)

    def time(self) -> None:
        """Once to warm up, once timed; microseconds of a launch."""
        import torch

        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.replay()
        begin.record()
        self.replay()
        end.record()
        end.synchronize()
        self.times.append(begin.elapsed_time(end) * 1e3 / self.count)


# --- operands -------------------------------------------------------------------------------------


def matrix(dtype: DType, rows: int, cols: int, order: Order, products: tuple[int, ...] = ()) -> Any:
    """Random, stored by rows or columns; of a batch, as many one after the other."""
    import torch

    shape = (*products, *((rows, cols) if order == "row" else (cols, rows)))
    if dtype == I8:
        found = torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")
    else:
        found = torch.randn(shape, device="cuda").to(getattr(torch, dtype.name))
    return found if order == "row" else found.transpose(-1, -2)


def operands(spec: GemmSpec, shape: Shape) -> list[tuple[Any, Any, Any]]:
    """A, B and C, as often as it takes to be larger than the cache."""
    import torch

    m, n, k, *products = shape
    read = (m * k + n * k) * prod(products) * spec.dtype.size
    count = max(LEAST, min(MOST, ROTATED // int(read) + 1))
    kind = getattr(torch, spec.result.name)
    return [
        (
            matrix(spec.dtype, m, k, spec.a_order, tuple(products)),
            matrix(spec.dtype, k, n, spec.b_order, tuple(products)),
            torch.empty((*products, m, n), dtype=kind, device="cuda"),
        )
        for _ in range(count)
    ]


def aligned(spec: GemmSpec, shape: Shape) -> GemmSpec:
    """The assumptions that matrices of this size without gaps meet, as `gemm` makes them: of whole vectors or none."""
    m, n, k, *_ = shape
    unit, lines = 16 // spec.dtype.size, (k if spec.a_order == "row" else m, n if spec.b_order == "row" else k, n)
    a, b, c = (1 if line % unit else unit for line in lines)
    return replace(spec, ld_multiple=(a, b, c))


# --- contenders -----------------------------------------------------------------------------------


def captured(name: str, launch: Callable[[Any, Any, Any], object], given: list[tuple[Any, Any, Any]]) -> Contender:
    """A launch for each of the operands, in a graph."""
    import torch

    for each in given:
        launch(*each)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for each in given:
            launch(*each)
    return Contender(name, graph.replay, len(given))


def ours(spec: GemmSpec, schedule: Schedule, given: list[tuple[Any, Any, Any]], shape: Shape) -> Contender:
    """A kernel of gemmgen. Raises: UserError where it does not take these matrices."""
    import torch

    kernel = cuda_kernel(with_assumptions(spec, schedule, shape), schedule, pick())
    return captured(
        kernel_name(schedule, spec),
        lambda a, b, c: kernel(a, b, c, stream=torch.cuda.current_stream().cuda_stream),
        given,
    )


def with_assumptions(spec: GemmSpec, schedule: Schedule, shape: Shape) -> GemmSpec:
    """TMA needs assumptions, which these matrices meet; other kernels find out for themselves."""
    return aligned(spec, shape) if schedule.by_warpgroups or schedule.tma else spec


def cublas(spec: GemmSpec, given: list[tuple[Any, Any, Any]], rounds: bool = False) -> Contender:
    """cuBLAS, by torch. Raises: RuntimeError where it takes no such matrices."""
    import torch

    if spec.dtype in FLOAT8:
        one = torch.ones((), device="cuda")
        kind = getattr(torch, spec.result.name)

        def launch(a: Any, b: Any, c: Any) -> None:
            torch._scaled_mm(a, b, one, one, out_dtype=kind, use_fast_accum=True, out=c)

        return captured("cublas", launch, given)
    if spec.dtype == I8:
        (m, k), n = given[0][0].shape, given[0][1].shape[1]
        padded = [(torch.zeros((max(INT_ROWS, m), k), dtype=torch.int8, device="cuda"), b) for _, b, _ in given]
        outs = [torch.empty((max(INT_ROWS, m), n), dtype=torch.int32, device="cuda") for _ in given]
        tripled = [(a, b, c) for (a, b), c in zip(padded, outs, strict=True)]
        return captured("cublas", lambda a, b, c: torch._int_mm(a, b, out=c), tripled)
    torch.backends.cuda.matmul.allow_tf32 = rounds
    return captured("cublas", lambda a, b, c: torch.matmul(a, b, out=c), given)


def furthest_off(given: list[tuple[Any, Any, Any]]) -> float:
    """How far C's element that is furthest off is, against float64."""
    a, b, c = given[-1]
    return float((c.double() - a.double() @ b.double()).abs().max())


def right(spec: GemmSpec, given: list[tuple[Any, Any, Any]]) -> bool:
    """Whether C is about A B."""
    import torch

    a, b, c = given[-1]
    wide = torch.float64 if spec.dtype not in FLOAT8 else torch.float32
    wanted = a.to(wide) @ b.to(wide)
    return bool((c.to(wide) - wanted).abs().max() < OFF * wanted.abs().max())


# --- running --------------------------------------------------------------------------------------


def build(request: tuple[GemmSpec, Schedule, Shape]) -> None:
    """Compile what a product of these sizes runs, which stays on disk."""
    spec, schedule, shape = request
    with suppress(Exception):  # said when it would be timed
        given = operands(spec, shape)[:1]
        kernel = cuda_kernel(with_assumptions(spec, schedule, shape), schedule, pick())
        kernel(*given[0])


def compare(
    spec: GemmSpec, shape: Shape, schedules: list[Schedule], way: str = ""
) -> Iterator[tuple[str, float, float, float]]:
    """Each schedule's name and microseconds, cuBLAS' beside it (not a number where it takes none), and of a way to
    multiply float32 the error beside cuBLAS'.
    """
    import torch

    given, found, errors = operands(spec, shape), list[Contender](), dict[str, float]()
    for schedule in schedules:
        try:
            given[-1][2].fill_(-1 if not spec.result.is_float else float("nan"))
            found.append(ours(spec, schedule, given, shape))
            torch.cuda.synchronize()
        except (UserError, RuntimeError) as error:
            print(f"# {kernel_name(schedule, spec)} is left out at {shape}: {str(error)[:200]}", flush=True)
            continue
        if not right(spec, given):
            print(f"# {kernel_name(schedule, spec)} is wrong at {shape}", flush=True)
        if way:
            errors[found[-1].name] = furthest_off(given)
            break
    with suppress(RuntimeError, ValueError):
        found.append(cublas(spec, given, rounds=way == "tf32"))
        errors["cublas"] = furthest_off(given) if way else 1.0
    for _ in range(ROUNDS):
        for each in found:
            each.time()
    theirs = next((median(x.times) for x in found if x.name == "cublas"), float("nan"))
    for each in found:
        if each.name != "cublas":
            yield each.name, median(each.times), theirs, errors.get(each.name, 0.0) / errors.get("cublas", 1.0)


def copy_rate() -> float:
    """Bytes a microsecond that a copy of 1 GiB reads and writes."""
    import torch

    source, to = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    one = captured("copy", lambda a, _, c: c.copy_(a), [(source, None, to)])
    for _ in range(ROUNDS):
        one.time()
    return 2 * (1 << 30) / median(one.times)


def typed(name: str, b_order: Order, batched: bool = False) -> GemmSpec:
    """The spec of a type: 8-bit floats give bfloat16, int8 gives int32."""
    dtype = MATRIX_DTYPES["float32" if name in WAYS_OF_FLOAT32 else name]
    result = BF16 if dtype in FLOAT8 else None
    spec = GemmSpec(dtype=dtype, b_order=b_order, c_dtype=result, alpha=1.0, beta=0.0, batched=batched)
    return replace(spec, allow_tf32=name == "tf32")


def schedules_of(path: Path | None) -> list[Schedule]:
    """Those of a file."""
    if path is None:
        return []
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return [replace(document_of(table, name).schedule, name=name) for name, table in tables.items()]


def mean(ratios: list[float]) -> float:
    """Geometric."""
    known = [x for x in ratios if x == x]
    return exp(sum(map(log, known)) / len(known)) if known else float("nan")


@dataclass(frozen=True)
class Row:
    """What is compared at once: a shape in a type, and our schedules."""

    family: str
    dtype: str
    spec: GemmSpec
    shape: Shape
    schedules: list[Schedule]

    @staticmethod
    def of(family: str, dtype: str, b_order: Order, shape: Shape, named: list[Schedule], target: Target) -> Row:
        """With the choice, where no schedules are named."""
        spec = typed(dtype, b_order, batched=len(shape) > 3)
        if dtype == "3xtf32":
            return Row(family, dtype, spec, shape, named or [*_by_three_products(shape, target.cores)])
        m, n, k, *products = shape
        chosen = named or [choose(aligned(spec, shape), (m, n, k), target, *products)]
        return Row(family, dtype, spec, shape, chosen)

    def measure(self, rate: float) -> Iterator[tuple[str, float, float]]:
        """Of each schedule: its key in the table, cuBLAS' time by ours, and that of a copy by ours."""
        m, n, k, *products = self.shape
        moved = ((m * k + k * n) * self.spec.dtype.size + m * n * self.spec.result.size) * prod(products)
        way = self.dtype if self.dtype in WAYS_OF_FLOAT32 else ""
        for name, us, theirs, off in compare(self.spec, self.shape, self.schedules, way):
            key = f"{self.family} {self.dtype} {self.spec.b_order}"
            size = "x".join(map(str, (m, n, k))) + (f" of {products[0]}" if products else "")
            row = f"{theirs / us:.3f}  {moved / us / rate:.3f}  {key} {size}"
            error = f", error {off:.2f} of cublas'" if way else ""
            print(f"{row}  {us:.2f} us, cublas {theirs:.2f}{error}  {name}", flush=True)
            yield key if way or len(self.schedules) == 1 else f"{key} {name}", theirs / us, moved / us / rate


def build_all(rows: list[Row], jobs: int) -> None:
    """What all of them run, by many processes."""
    requests = {
        (x, row.spec, tuple(size % 64 for size in row.shape), aligned(row.spec, row.shape).ld_multiple): (
            row.spec,
            x,
            row.shape,
        )
        for row in rows
        for x in row.schedules
    }
    with get_context("spawn").Pool(jobs) as pool:
        pool.map(build, requests.values(), chunksize=1)


def main() -> None:
    """All of it, a table last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="gemv", choices=sorted(FAMILIES))
    parser.add_argument("--all", action="store_true", help="all families, in the types that they are asked for")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--layouts", default="row,col", help="of B")
    parser.add_argument("--shapes", type=int, default=20, help="of each family")
    parser.add_argument("--seed", type=int, default=25)
    parser.add_argument("--schedules", type=Path, help="a file of schedules, in place of the choice")
    parser.add_argument("--jobs", type=int, default=12, help="processes that compile, before anything is timed")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further shape is begun after so many")
    said, begin = parser.parse_args(), time.perf_counter()
    asked = ALL if said.all else [(said.family, x, y) for x in said.dtypes.split(",") for y in said.layouts.split(",")]
    named, target, plan = schedules_of(said.schedules), target_of(pick()), list[list[Row]]()
    for family, dtype, order in asked:
        rng = random.Random(said.seed)
        drawn = [FAMILIES[family](rng, number) for number in range(said.shapes)]
        plan.append([Row.of(family, dtype, order, shape, named, target) for shape in drawn])
    # One of each in turns, so that all have some where the time ends.
    rows = [row for turn in zip(*plan, strict=True) for row in turn] if said.all else [row for x in plan for row in x]
    build_all(rows, said.jobs)
    rate = copy_rate()
    print(f"# {pick()}, copy {rate * 1e-6:.2f} TB/s, compiled in {time.perf_counter() - begin:.0f} s", flush=True)
    table: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if time.perf_counter() - begin > said.seconds:
            print("# no time for more", flush=True)
            break
        for key, by_cublas, by_copy in row.measure(rate):
            table.setdefault(key, []).append((by_cublas, by_copy))
    print("\nof cuBLAS, worst; of a copy's rate, worst")
    for key, pairs in table.items():
        by, of = zip(*pairs, strict=True)
        print(f"{mean([*by]):.3f} {min(by):.3f}  {mean([*of]):.3f} {min(of):.3f}  {key} ({len(by)})")


if __name__ == "__main__":
    main()
