"""Products of few rows, or of few columns, beside cuBLAS, on this machine's GPU.

    python benchmarks/few_rows.py --family gemv
    python benchmarks/few_rows.py --family rows --dtypes float32
    python benchmarks/few_rows.py --family gemv --dtypes bfloat16 --layouts row,col --schedules mine.toml --shapes 4

Of each family some drawn shapes, odd ones among them, in each type and layout of B. Ours is what `gemmgen.choose`
names, or each schedule of a file (a table each, as in `gemmgen/candidates.toml`). Launches are captured in graphs, each
with operands of its own, which together are larger than the L2 cache; ours and cuBLAS' are replayed in turns. Printed
is cuBLAS' time by ours, the geometric mean and the worst; and the time that a copy of as many bytes takes, by ours.

cuBLAS is called by torch, float8 by `torch._scaled_mm`, int8 by `torch._int_mm`, which needs more than 16 rows: of
fewer it is given 17.
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
from math import exp, log
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen.api.compile import cuda_kernel
from gemmgen.choose import choose
from gemmgen.errors import UserError
from gemmgen.ir.dtypes import BF16, FLOAT8, I8, MATRIX_DTYPES, DType
from gemmgen.kernel_names import kernel_name
from gemmgen.options.documents import document_of
from gemmgen.runtime.cuda_devices import pick, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order

Shape = tuple[int, int, int]

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


FAMILIES: dict[str, Callable[[random.Random, int], Shape]] = {
    "gemv": gemv,
    "columns": columns,
    "rows": rows,
    "deep": deep,
    "even": even,
}


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


def matrix(dtype: DType, rows: int, cols: int, order: Order) -> Any:
    """Random, stored by rows or columns."""
    import torch

    shape = (rows, cols) if order == "row" else (cols, rows)
    if dtype == I8:
        found = torch.randint(-128, 128, shape, dtype=torch.int8, device="cuda")
    else:
        found = torch.randn(shape, device="cuda").to(getattr(torch, dtype.name))
    return found if order == "row" else found.t()


def operands(spec: GemmSpec, shape: Shape) -> list[tuple[Any, Any, Any]]:
    """A, B and C, as often as it takes to be larger than the cache."""
    import torch

    m, n, k = shape
    count = max(LEAST, min(MOST, ROTATED // ((m * k + n * k) * spec.dtype.size) + 1))
    kind = getattr(torch, spec.result.name)
    return [
        (
            matrix(spec.dtype, m, k, spec.a_order),
            matrix(spec.dtype, k, n, spec.b_order),
            torch.empty((m, n), dtype=kind, device="cuda"),
        )
        for _ in range(count)
    ]


def aligned(spec: GemmSpec, shape: Shape) -> GemmSpec:
    """What matrices of this size without gaps keep of promises."""
    m, n, k = shape
    unit, lines = 16 // spec.dtype.size, {k if spec.a_order == "row" else m, n if spec.b_order == "row" else k, n}
    return spec if any(line % unit for line in lines) else replace(spec, ld_multiple=unit)


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

    kernel = cuda_kernel(promised(spec, schedule, shape), schedule, pick())
    return captured(
        kernel_name(schedule, spec),
        lambda a, b, c: kernel(a, b, c, stream=torch.cuda.current_stream().cuda_stream),
        given,
    )


def promised(spec: GemmSpec, schedule: Schedule, shape: Shape) -> GemmSpec:
    """What TMA has to be promised of these matrices; other kernels find out for themselves."""
    return aligned(spec, shape) if schedule.by_warpgroups or schedule.tma else spec


def cublas(spec: GemmSpec, given: list[tuple[Any, Any, Any]]) -> Contender:
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
    return captured("cublas", lambda a, b, c: torch.matmul(a, b, out=c), given)


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
        kernel = cuda_kernel(promised(spec, schedule, shape), schedule, pick())
        kernel(*given[0])


def compare(spec: GemmSpec, shape: Shape, schedules: list[Schedule]) -> Iterator[tuple[str, float, float]]:
    """Each schedule's name and microseconds, and cuBLAS' microseconds beside it (not a number where it takes none)."""
    import torch

    given, found = operands(spec, shape), []
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
    with suppress(RuntimeError, ValueError):
        found.append(cublas(spec, given))
    for _ in range(ROUNDS):
        for each in found:
            each.time()
    theirs = next((median(x.times) for x in found if x.name == "cublas"), float("nan"))
    for each in found:
        if each.name != "cublas":
            yield each.name, median(each.times), theirs


def copy_rate() -> float:
    """Bytes a microsecond that a copy of 1 GiB reads and writes."""
    import torch

    source, to = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    one = captured("copy", lambda a, _, c: c.copy_(a), [(source, None, to)])
    for _ in range(ROUNDS):
        one.time()
    return 2 * (1 << 30) / median(one.times)


def typed(name: str, b_order: Order) -> GemmSpec:
    """The spec of a type: 8-bit floats give bfloat16, int8 gives int32."""
    dtype = MATRIX_DTYPES[name]
    return GemmSpec(dtype=dtype, b_order=b_order, c_dtype=BF16 if dtype in FLOAT8 else None, alpha=1.0, beta=0.0)


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


def main() -> None:
    """All of it, a table last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="gemv", choices=sorted(FAMILIES))
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--layouts", default="row,col", help="of B")
    parser.add_argument("--shapes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=25)
    parser.add_argument("--schedules", type=Path, help="a file of schedules, in place of the choice")
    parser.add_argument("--jobs", type=int, default=12, help="processes that compile, before anything is timed")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further shape is begun after so many")
    arguments, begin = parser.parse_args(), time.perf_counter()
    rng, named = random.Random(arguments.seed), schedules_of(arguments.schedules)
    drawn = [FAMILIES[arguments.family](rng, number) for number in range(arguments.shapes)]
    specs = [typed(x, order) for x in arguments.dtypes.split(",") for order in arguments.layouts.split(",")]
    target = target_of(pick())
    plan = [(spec, shape, named or [choose(aligned(spec, shape), shape, target)]) for spec in specs for shape in drawn]
    requests = {
        (x, spec, tuple(size % 64 for size in shape), aligned(spec, shape).ld_multiple): (spec, x, shape)
        for spec, shape, xs in plan
        for x in xs
    }
    with get_context("spawn").Pool(arguments.jobs) as pool:
        pool.map(build, requests.values(), chunksize=1)
    rate = copy_rate()
    print(f"# {pick()}, copy {rate * 1e-6:.2f} TB/s, compiled in {time.perf_counter() - begin:.0f} s", flush=True)
    table: dict[str, list[tuple[float, float]]] = {}
    for spec, (m, n, k), schedules in plan:
        if time.perf_counter() - begin > arguments.seconds:
            print("# no time for more", flush=True)
            break
        moved = (m * k + k * n) * spec.dtype.size + m * n * spec.result.size
        for name, us, theirs in compare(spec, (m, n, k), schedules):
            key = f"{spec.dtype} {spec.b_order}" + (f" {name}" if named else "")
            table.setdefault(key, []).append((theirs / us, moved / us / rate))
            row = f"{theirs / us:.3f}  {moved / us / rate:.3f}  {spec.dtype} {spec.b_order} {m}x{n}x{k}"
            print(f"{row}  {us:.2f} us, cublas {theirs:.2f}  {name}", flush=True)
    print(f"\n{arguments.family}: of cuBLAS, worst; of a copy's rate, worst")
    for key, pairs in table.items():
        by, of = zip(*pairs, strict=True)
        print(f"{mean([*by]):.3f} {min(by):.3f}  {mean([*of]):.3f} {min(of):.3f}  {key} ({len(by)})")


if __name__ == "__main__":
    main()
