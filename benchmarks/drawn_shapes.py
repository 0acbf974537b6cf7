"""Shapes of networks' layers, drawn by a commit's hash, on this machine's GPU: what `gemm` chooses, beside cuBLAS.

    python benchmarks/drawn_shapes.py --commit $(git rev-parse HEAD) --dtype bfloat16 --count 40 --json rows.json

Contenders of each shape: the choice by the prior; what records say; `torch.matmul`; and the fastest of the algorithms
that cuBLASLt proposes. With `--tune 60` records are those of a search of 60 seconds for each shape, before all else.
Each product of a graph has matrices of its own, so many that they come from memory. Times are medians of replays. A
ratio is the faster library's time to ours. No shape lies within 2 % of a recorded one in all three sizes. Kernels are
compiled by many processes before.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen.choose import choose
from gemmgen.errors import UserError
from gemmgen.ir.dtypes import FLOAT8
from gemmgen.kernel_names import kernel_name
from gemmgen.options import build_spec
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, pick
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.tuning import shipped
from gemmgen.tuning.job import Job, assuming_no_gaps
from gemmgen.tuning.on_cuda import CudaContestant, compile_only
from gemmgen.tuning.recorded import ask
from gemmgen.tuning.records import Store, parse

Shape = tuple[int, int, int]
#: Widths of layers: transformers, vision and diffusion models; what else they are multiples of.
WIDTHS = (
    320,
    384,
    512,
    640,
    768,
    896,
    1024,
    1152,
    1280,
    1536,
    1664,
    2048,
    2304,
    2560,
    3072,
    3584,
    4096,
    5120,
    6144,
    8192,
)
#: Width of a layer's output beside its input.
RATIOS = (1, 1, 1, 3, 4, 8 / 3, 3.5, 1.25, 0.25)
UNITS = (128, 64, 32, 16, 8, 8)
#: Part of the shapes whose sizes are any numbers; multiply-adds at most.
ODD, MOST = 0.1, 2**39
#: How near no record may be in all three sizes.
NEAR = 0.02
ROUNDS, REPLAYS = 3, 5


def drawn(
    commit: str, dtype: str, count: int, layouts: Sequence[str], taken: Sequence[Shape] = ()
) -> Iterator[tuple[Shape, str]]:
    """Shapes and layouts: 1 to 8192 rows, about as many in each power of two."""
    rng = random.Random(f"{commit} {dtype}")
    found = 0
    while found < count:
        rows = round(2 ** rng.uniform(0, 13))
        inner, unit = rng.choice(WIDTHS), rng.choice(UNITS)
        width = inner * rng.choice(RATIOS) * rng.uniform(0.8, 1.25)
        sizes = [rows, max(unit, round(width / unit) * unit), inner]
        if rng.random() < 0.5:
            sizes[1:] = sizes[:0:-1]
        if rng.random() < ODD:
            sizes = [size + rng.randint(-3, 3) for size in sizes]
        shape = max(1, sizes[0]), max(8, sizes[1]), max(8, sizes[2])
        layout = rng.choice(layouts)
        near = any(all(abs(a - b) <= NEAR * b for a, b in zip(shape, other, strict=True)) for other in taken)
        if math.prod(shape) <= MOST and not near:
            found += 1
            yield shape, layout


def as_read(shape: Shape, layout: str) -> str:
    """The layout as `gemm` and torch read such matrices: a single row of A, or column of B, is one line of elements
    however it is said to lie.
    """
    (m, n, _), (of_a, of_b) = shape, layout.split(",")
    return ",".join(("row" if m == 1 else of_a, "col" if n == 1 else of_b))


# --- libraries ------------------------------------------------------------------------------------


class _Heuristic(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


#: cudaDataType_t; CUBLAS_COMPUTE_32F; attributes of a product; of a preference.
_TYPES = {"bfloat16": 14, "float16": 2, "float32": 0, "float8_e4m3fn": 28, "float8_e5m2": 29}
_COMPUTE_32F, _TRANSA, _TRANSB, _A_SCALE, _B_SCALE, _FAST, _WORKSPACE = 68, 3, 4, 17, 18, 25, 1
_ALGORITHMS, _BYTES = 30, 32 << 20


class Lt:
    """cuBLASLt by ctypes: C by rows is C^T by columns, so that A and B change places."""

    def __init__(self) -> None:
        import torch

        root = Path(torch.__file__).parents[1] / "nvidia"
        names = [str(path) for path in root.rglob("libcublasLt.so.*")]
        self.library = ctypes.CDLL((names or ["libcublasLt.so.13"])[0])
        self.handle = ctypes.c_void_p()
        _good(self.library.cublasLtCreate(ctypes.byref(self.handle)))
        self.workspace = torch.empty(_BYTES, dtype=torch.uint8, device="cuda")
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)
        self.scale = torch.ones((), device="cuda")

    def launches(self, spec: GemmSpec, shape: Shape) -> Iterator[Callable[[int, int, int, int], None]]:
        """A function for each algorithm, which queues a product of matrices at addresses on a stream."""
        (m, n, k), own = shape, self.library
        kind, result = _TYPES[spec.dtype.name], _TYPES[spec.result.name]
        product, preference = ctypes.c_void_p(), ctypes.c_void_p()
        _good(own.cublasLtMatmulDescCreate(ctypes.byref(product), _COMPUTE_32F, 0))
        transposed = {_TRANSA: spec.b_order == "col", _TRANSB: spec.a_order == "col"}
        for key, value in transposed.items():
            number = ctypes.c_int(value)
            _good(own.cublasLtMatmulDescSetAttribute(product, key, ctypes.byref(number), ctypes.c_size_t(4)))
        if spec.dtype in FLOAT8:
            for key in (_A_SCALE, _B_SCALE):
                place = ctypes.c_void_p(self.scale.data_ptr())
                _good(own.cublasLtMatmulDescSetAttribute(product, key, ctypes.byref(place), ctypes.c_size_t(8)))
            fast = ctypes.c_int8(1)
            _good(own.cublasLtMatmulDescSetAttribute(product, _FAST, ctypes.byref(fast), ctypes.c_size_t(1)))
        extents = [
            (kind, *((k, n) if transposed[_TRANSA] else (n, k))),
            (kind, *((m, k) if transposed[_TRANSB] else (k, m))),
            (result, n, m),
        ]
        layouts = []
        for dtype, rows, cols in extents:
            layout = ctypes.c_void_p()
            given = ctypes.c_uint64(rows), ctypes.c_uint64(cols), ctypes.c_int64(rows)
            _good(own.cublasLtMatrixLayoutCreate(ctypes.byref(layout), dtype, *given))
            layouts.append(layout)
        _good(own.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
        size = ctypes.c_uint64(_BYTES)
        _good(own.cublasLtMatmulPreferenceSetAttribute(preference, _WORKSPACE, ctypes.byref(size), ctypes.c_size_t(8)))
        found, count = (_Heuristic * _ALGORITHMS)(), ctypes.c_int()
        b, a, c = layouts
        _good(
            own.cublasLtMatmulAlgoGetHeuristic(
                self.handle, product, b, a, c, c, preference, _ALGORITHMS, found, ctypes.byref(count)
            )
        )
        for each in found[: count.value]:

            def launch(a_at: int, b_at: int, c_at: int, stream: int, each: _Heuristic = each) -> None:
                places = [ctypes.c_void_p(x) for x in (a_at, b_at, c_at)]
                of_c = (ctypes.byref(self.zero), places[2], c, places[2], c)
                room = ctypes.c_void_p(self.workspace.data_ptr()), ctypes.c_size_t(_BYTES), ctypes.c_void_p(stream)
                one = ctypes.byref(self.one)
                _good(
                    own.cublasLtMatmul(
                        self.handle, product, one, places[1], b, places[0], a, *of_c, ctypes.byref(each.algo), *room
                    )
                )

            yield launch


def _good(code: int) -> None:
    if code:
        raise RuntimeError(f"cuBLASLt says {code}")


# --- measuring ------------------------------------------------------------------------------------


@dataclass
class Graphed:
    """Products of a library in a graph, as `CudaContestant` has its own."""

    name: str
    graph: object
    stream: object
    count: int

    def seconds(self, count: int) -> list[float]:
        """Of a product, from each of so many replays."""
        import cupy

        begin, end, times = cupy.cuda.Event(), cupy.cuda.Event(), []
        for _ in range(count):
            begin.record(self.stream)
            self.graph.launch(self.stream)  # type: ignore[attr-defined]
            end.record(self.stream)
            end.synchronize()
            times.append(float(cupy.cuda.get_elapsed_time(begin, end)) * 1e-3 / self.count)
        return times


def captured(name: str, queue: Callable[[int, int], None], sets: int) -> Graphed:
    """Of a function that queues the product of one set of matrices on a stream."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    queue(0, stream.ptr)
    stream.synchronize()
    count = sets
    while True:
        with stream:
            stream.begin_capture()
            try:
                for number in range(count):
                    queue(number % sets, stream.ptr)
            finally:
                graph = stream.end_capture()
        made = Graphed(name, graph, stream, count)
        took = made.seconds(2)[-1] * count
        if took > 2e-4 or count > 2000:
            return made
        count *= math.ceil(2e-4 / max(took, 1e-6))


def libraries(spec: GemmSpec, shape: Shape, kept: CudaContestant, lt: Lt | None) -> Iterator[Graphed]:
    """torch's product, and the fastest algorithm of cuBLASLt."""
    import torch

    held = kept._matrices
    sets = [
        tuple(torch.from_dlpack(x) if not isinstance(x, torch.Tensor) else x for x in held.of(i))
        for i in range(held.sets)
    ]
    one = torch.ones((), device="cuda")

    def queue(number: int, stream: int) -> None:
        a, b, c = sets[number]
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            if spec.dtype in FLOAT8:
                torch._scaled_mm(a, b, one, one, out_dtype=c.dtype, use_fast_accum=True, out=c)
            else:
                torch.matmul(a, b, out=c)

    with suppress(RuntimeError):
        yield captured("torch", queue, len(sets))
    if lt is None:
        return
    found: list[tuple[float, Graphed]] = []
    for launch in lt.launches(spec, shape):

        def run(number: int, stream: int, launch: Callable[[int, int, int, int], None] = launch) -> None:
            launch(*(x.data_ptr() for x in sets[number]), stream)

        with suppress(RuntimeError):
            made = captured("cublasLt", run, len(sets))
            found.append((min(made.seconds(2)), made))
    if found:
        yield min(found, key=lambda x: x[0])[1]


def tune(dtype: str, layout: str, shapes: Sequence[Shape], seconds: float, data: str) -> None:
    """Search for shapes by the command that a user gives; its records are kept in the folder `data`."""
    options = {
        "shapes": ",".join("x".join(map(str, shape)) for shape in shapes),
        "dtype": dtype,
        "layout": layout,
        "minutes": f"{seconds * len(shapes) / 60:.3f}",
        "backend": "cuda",
    }
    given = [text for name, value in options.items() for text in (f"--{name}", value)]
    environment = {**os.environ, "XDG_DATA_HOME": data}
    command = [sys.executable, "-m", "gemmgen", "tune", *given]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        print(f"# tuning {options['shapes']}: {done.stderr[-300:]}", file=sys.stderr)


def schedules(spec: GemmSpec, shape: Shape, info: CudaDeviceInfo, records: bool) -> dict[str, Schedule]:
    """What is compared, by what decided."""
    kept, target = assuming_no_gaps(spec, shape), info.target
    found = {"prior": choose(kept, shape, target)}
    if records:
        said = ask("cuda", info, target, kept, shape)
        found["records"] = found["prior"] if said is None else said.schedule
    return {name: each.but(name=None) for name, each in found.items()}


def _compile(text: str) -> None:
    with suppress(Exception):  # said when it would be timed
        compile_only(Job.read(text), pick())


def measure(contenders: dict[str, CudaContestant | Graphed]) -> dict[str, float]:
    """The median of each, in turns."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name in random.sample(list(contenders), len(contenders)):
            times[name] += contenders[name].seconds(REPLAYS)
    return {name: median(values) for name, values in times.items()}


def summary(rows: Sequence[dict[str, object]], name: str) -> str:
    """Of the ratios to the faster library."""
    ratios = []
    for row in rows:
        us = cast("dict[str, float]", row["us"])
        rivals = [us[x] for x in ("torch", "cublasLt") if x in us]
        if name in us and rivals:
            ratios.append(min(rivals) / us[name])
    if not ratios:
        return f"{name}: none"
    middle = math.exp(sum(map(math.log, ratios)) / len(ratios))
    tenth = sorted(ratios)[len(ratios) // 10]
    return f"{name}: geomean {middle:.3f}, tenth percentile {tenth:.3f}, worst {min(ratios):.3f} of {len(ratios)}"


def main() -> None:
    """Measure, and write a row a shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--layouts", default="row,row/row,col/col,row/col,col", help="of A and B, apart by /")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--records", action="store_true", help="also what records say")
    parser.add_argument("--tune", type=float, metavar="SECONDS", help="search for each shape before; as --records then")
    parser.add_argument("--part", default="1/1", help="2/4: the second of four parts of the shapes, a process a GPU")
    parser.add_argument("--processes", type=int, default=max(1, len(os.sched_getaffinity(0)) - 2))
    parser.add_argument("--json", type=Path)
    said = parser.parse_args()
    layouts = ["row,col"] if said.dtype.startswith("float8") else said.layouts.split("/")
    files = [path.read_text(encoding="utf-8") for path in shipped("cuda")]
    known = [*(each for _, each in Store().all()), *(parse(text, "shipped") for text in files)]
    taken = [line.shape for each in known for line in each.lines] if said.records or said.tune else []
    info, plan, (part, parts) = pick(), [], map(int, said.part.split("/"))
    found_shapes = list(drawn(said.commit, said.dtype, said.count, layouts, list(dict.fromkeys(taken))))
    own = [(shape, as_read(shape, layout)) for shape, layout in found_shapes[part - 1 :: parts]]
    if said.tune:
        os.environ["XDG_DATA_HOME"] = data = tempfile.mkdtemp()
        for alike in dict.fromkeys(layout for _, layout in own):
            tune(said.dtype, alike, [shape for shape, layout in own if layout == alike], said.tune, data)
    for shape, layout in own:
        spec = build_spec(dtype=said.dtype, layout=layout)
        plan.append((shape, layout, spec, schedules(spec, shape, info, said.records or said.tune is not None)))
    jobs = [Job("cuda", None, spec, shape, 1, each) for shape, _, spec, found in plan for each in found.values()]
    with get_context("spawn").Pool(said.processes) as pool:
        pool.map(_compile, dict.fromkeys(job.text() for job in jobs), chunksize=1)
    rows: list[dict[str, object]] = []
    lt: Lt | None = None
    try:
        lt = Lt()
    except (OSError, RuntimeError) as error:
        print(f"# no cuBLASLt: {error}", file=sys.stderr)
    for shape, layout, spec, found in plan:
        contenders: dict[str, CudaContestant | Graphed] = {}
        for name, schedule in found.items():
            try:
                made = CudaContestant(Job("cuda", None, spec, shape, 1, schedule), None, info)
                if not made.is_right():
                    print(f"# WRONG {shape} {layout} {kernel_name(schedule, spec)}", file=sys.stderr)
                    continue
                contenders[name] = made
            except UserError as error:
                print(f"# {shape} {kernel_name(schedule, spec)}: {str(error)[:200]}", file=sys.stderr)
        if not contenders:
            continue
        first = cast("CudaContestant", next(iter(contenders.values())))
        try:
            for each in libraries(spec, shape, first, lt):
                contenders[each.name] = each
        except RuntimeError as error:
            print(f"# libraries at {shape} {layout}: {error}", file=sys.stderr)
        us = {name: round(value * 1e6, 2) for name, value in measure(contenders).items()}
        names = {name: kernel_name(schedule, spec) for name, schedule in found.items()}
        rows.append({"shape": shape, "layout": layout, "us": us, "schedules": names})
        if said.json:  # at each row, so that a run that is cut short keeps what it has
            about = {"device": str(info), "commit": said.commit, "dtype": said.dtype}
            said.json.write_text(json.dumps({"about": about, "rows": rows}, indent=0) + "\n")
    print(f"{info}, {said.dtype}, {len(rows)} shapes")
    for name in ("prior", "records", "torch"):
        print(summary(rows, name))


if __name__ == "__main__":
    main()
