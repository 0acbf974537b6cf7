"""Products of NumPy's arrays that nobody tuned for, by `gemmgen.gemm` and by `numpy.matmul` (or MKL, torch), on a CPU.

    python benchmarks/drawn_cpu.py --seed $(git rev-parse HEAD) --count 12 --json rows.json
    python benchmarks/drawn_cpu.py --seed $(git rev-parse HEAD) --count 60 --families from_128 --vs mkl
    python benchmarks/drawn_cpu.py --families few_rows,batch --platform Portable --vs numpy

Each library has a process of its own, since thread pools disturb each other. They take turns, with a pause after each,
so that other jobs of the machine slow both. A ratio is the median over the turns of the peer's time by ours. `--kernel`
leaves no product to NumPy itself. Beside MKL, both write to a C that is there. Results are compared.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

#: Seconds of a turn, and of the pause after it: OpenBLAS' threads spin for 0.1 s after a product, MKL's for 0.2 s.
TURN, PAUSE, PAUSE_OF_MKL = 0.02, 0.15, 0.25
#: Multiply-adds of a product at most.
MOST = 2**33
ROUNDS = 9
#: Of the products from 128 up, the part whose C has fewer rows or columns.
SKINNY = 0.25
#: Parts of the peer's result that ours may be away, by type.
WITHIN = {"float64": 1e-11, "complex128": 1e-11, "float16": 2e-2, "bfloat16": 2e-2, "int8": 0}


@dataclass(frozen=True)
class Drawn:
    """A product: its sizes, what lies in between of its elements, and how its matrices are stored.

    Attributes:
        layout: `n` or `t` for A and for B, whether it is a transposed view; or `s`, whether its rows are apart.
    """

    family: str
    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str = "float32"
    layout: str = "nn"

    def __str__(self) -> str:
        batch = f"{self.batch}x" if self.batch > 1 else ""
        return f"{batch}{self.m}x{self.n}x{self.k} {self.dtype} {self.layout}"


def draw(family: str, rng: random.Random) -> Drawn:
    """One of a family."""

    def size(low: float, high: float) -> int:
        return round(math.exp(rng.uniform(math.log(low), math.log(high))))

    def near(value: int) -> int:
        """Every second one a multiple of 16."""
        return max(16, value // 16 * 16) if rng.random() < 0.5 else value

    big = [near(size(100, 4096)) for _ in range(3)]
    if family == "from_128":
        sizes = [near(size(128, 4096)) for _ in range(3)]
        if rng.random() < SKINNY:
            sizes[rng.randrange(2)] = size(8, 128)
        return Drawn(family, *sizes)
    if family == "few_rows":
        return Drawn(family, rng.randint(1, 16), big[0], big[1])
    if family == "few_columns":
        return Drawn(family, big[0], rng.randint(1, 16), big[1])
    if family == "tall":
        return Drawn(family, near(size(5000, 200000)), size(4, 80), size(4, 80))
    if family == "deep":
        return Drawn(family, size(4, 150), size(4, 150), near(size(5000, 200000)))
    if family == "batch":
        side = size(4, 100)
        return Drawn(family, side, size(4, 100), size(4, 100), size(4, 400))
    if family == "layouts":
        return Drawn(family, *big, layout=rng.choice(["nt", "tn", "tt", "sn", "ns", "ts"]))
    if family == "vector":
        m, n = rng.choice([(1, big[0]), (big[0], 1)])
        return Drawn(family, m, n, big[1], layout=rng.choice(["nn", "nt", "tn"]))
    if family == "small":
        return Drawn(family, *(size(4, 128) for _ in range(3)))
    if family in {"float64", "float16", "bfloat16", "int8", "int32", "complex64", "complex128"}:
        small = family != "float64"
        m, n, k = (near(size(60, 700 if small else 2048)) for _ in range(3))
        return Drawn(family, m, n, k, dtype=family)
    assert family == "float32", family
    return Drawn(family, *big)


def parse(text: str) -> Drawn:
    """A product: how many, sizes, type and layout."""
    sizes, dtype, layout = text.split(":")
    batch, m, n, k = map(int, sizes.split("x"))
    return Drawn("named", m, n, k, batch, dtype, layout)


#: Families of `--families`, but for the products from 128 up, which are for comparisons with MKL.
FAMILIES = (
    *("few_rows", "few_columns", "tall", "deep", "batch", "layouts", "vector", "small"),
    *("float32", "float64", "float16", "bfloat16", "int8", "int32", "complex64", "complex128"),
)


def matrix(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, layout: str) -> np.ndarray:
    """Random elements, stored as asked."""
    rows, cols = shape[-2:]
    stored = {"n": shape, "t": (*shape[:-2], cols, rows), "s": (*shape[:-2], rows, cols + 24)}[layout]
    if dtype.startswith("int"):
        x = rng.integers(-5, 6, stored).astype(dtype)
    elif dtype.startswith("complex"):
        x = (rng.standard_normal(stored) + 1j * rng.standard_normal(stored)).astype(dtype)
    else:
        import ml_dtypes

        x = rng.standard_normal(stored, np.float32).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    return {"n": lambda: x, "t": lambda: x.swapaxes(-1, -2), "s": lambda: x[..., :cols]}[layout]()


def product(peer: str, drawn: Drawn) -> Callable[[], object]:
    """A call that computes it."""
    rng, batch = np.random.default_rng(1), (drawn.batch,) if drawn.batch > 1 else ()
    a = matrix(rng, (*batch, drawn.m, drawn.k), drawn.dtype, drawn.layout[0])
    b = matrix(rng, (*batch, drawn.k, drawn.n), drawn.dtype, drawn.layout[1])
    if peer == "numpy":
        return lambda: np.matmul(a, b)
    if peer == "torch":
        import torch

        def tensor(x: np.ndarray) -> torch.Tensor:
            if drawn.dtype == "bfloat16":
                return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
            return torch.from_numpy(x)

        x, y = tensor(a), tensor(b)
        return lambda: (x @ y).to(torch.float32) if drawn.dtype == "bfloat16" else x @ y
    if peer == "mkl":
        from gemmgen.bench.libraries import product_of

        of_mkl = product_of("mkl", a, b, None)

        def call(_held: object = (a, b)) -> np.ndarray:  # MKL is given their addresses alone
            of_mkl.run(1)
            return of_mkl.result()

        return call
    import gemmgen
    from gemmgen.runtime.opencl_devices import pick

    platform, into = os.environ.get("DRAWN_PLATFORM"), "DRAWN_INTO" in os.environ
    given = {"out": np.empty((*batch, drawn.m, drawn.n), drawn.dtype)} if into else {}
    if platform is not None:
        given["device"] = pick(platform=platform, type="cpu")
    return lambda: gemmgen.gemm(a, b, **given)


def serve(peer: str) -> None:
    """Answer the parent: a product to prepare, or the seconds of a turn."""
    call: Callable[[], object] = object
    once = 0.0
    for line in sys.stdin:
        if line.startswith("{"):
            call = product(peer, Drawn(**json.loads(line)))
            result = np.asarray(call())
            result = np.ascontiguousarray(result).view(result.real.dtype).astype(np.float64)
            for _ in range(2 if once > 0.5 else 14):  # beyond a calibration
                begin = time.perf_counter()
                call()
                once = time.perf_counter() - begin
                if once > 0.3:
                    break
            about = {}
            if peer == "gemmgen":
                import gemmgen

                about = {"by": str(gemmgen.last_choice())}
            # A few projections stand for the result.
            rows = np.random.default_rng(2).standard_normal(result.shape)
            answer = {"sum": float((result * rows).sum()), "size": float(np.sqrt((result**2).sum())), **about}
        else:
            times = []
            clock = time.process_time if "DRAWN_ONE_CORE" in os.environ else time.perf_counter
            end = time.perf_counter() + TURN
            while not times or time.perf_counter() < end:
                begin = clock()
                call()
                times.append(clock() - begin)
            answer = {"median": median(times), "least": min(times)}
        print(json.dumps(answer), flush=True)


def start(peer: str, given: argparse.Namespace) -> subprocess.Popen[str]:
    """A process for one library."""
    env = dict(os.environ) | {"GEMMGEN_COMPILE_ASIDE": "0"}
    if given.one_core:
        env |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "DRAWN_ONE_CORE": "1"}
    if given.vs == "mkl":
        env["DRAWN_INTO"] = "1"
    if given.kernel:
        env["GEMMGEN_NUMPY"] = "0"
    if given.platform:
        env["DRAWN_PLATFORM"] = given.platform
    command = [sys.executable, __file__, "--serve", peer]
    if given.one_core:
        command = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


def ask(process: subprocess.Popen[str], what: str, pause: float = PAUSE) -> dict[str, float]:
    """A process' answer, after which its threads come to rest."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(what + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    time.sleep(pause)
    return json.loads(line)


def compare(
    drawn: Drawn, ours: subprocess.Popen[str], peer: subprocess.Popen[str], given: argparse.Namespace
) -> dict[str, object]:
    """A row."""
    theirs_is = replace(drawn, dtype=given.peer_dtype) if given.peer_dtype else drawn
    said = [ask(process, json.dumps(asdict(x))) for process, x in ((ours, drawn), (peer, theirs_is))]
    pause = PAUSE_OF_MKL if given.vs == "mkl" and not given.one_core else PAUSE
    within = WITHIN.get(drawn.dtype, 1e-4) * max(1e-30, said[1]["size"])
    assert abs(said[0]["sum"] - said[1]["sum"]) <= within, (drawn, said)
    turns = []
    for index in range(given.rounds):
        order = (ours, peer) if index % 2 else (peer, ours)
        both = {process: ask(process, "turn", pause) for process in order}
        turns.append((both[ours], both[peer]))
    ratio = median(theirs["median"] / mine["median"] for mine, theirs in turns)
    least = [min(turn[at]["least"] for turn in turns) for at in (0, 1)]
    return {
        **asdict(drawn),
        "ratio": round(ratio, 3),
        "of_the_least": round(least[1] / least[0], 3),
        "us": [round(1e6 * median(turn[at]["median"] for turn in turns), 1) for at in (0, 1)],
        "by": said[0]["by"],
    }


def main() -> None:
    """Measure, and sum up each family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--count", type=int, default=8, help="products of a family")
    parser.add_argument("--families", default=",".join(FAMILIES), help="or from_128: sizes from 128, skinny ones too")
    parser.add_argument("--products", default="", help="in place of families, such as 64x128x128x128:float32:nn")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--platform", default="", help="of OpenCL, by a part of its name")
    parser.add_argument("--vs", default="numpy", choices=("numpy", "mkl", "torch"))
    parser.add_argument("--peer-dtype", default="", help="what the peer multiplies, in place of the product's type")
    parser.add_argument("--kernel", action="store_true", help="leave nothing to NumPy itself")
    parser.add_argument("--one-core", action="store_true", help="on one core, by processor time: beside other jobs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve)
        return
    ours, peer = start("gemmgen", given), start(given.vs, given)
    rows = []
    for family in ["named"] if given.products else given.families.split(","):
        rng, mine = random.Random(f"{given.seed} {family}"), []
        named = [parse(text) for text in given.products.split(",") if text]
        while len(mine) < (len(named) or given.count):
            drawn = named[len(mine)] if named else draw(family, rng)
            if drawn.batch * drawn.m * drawn.n * drawn.k > MOST:
                continue
            row = compare(drawn, ours, peer, given)
            mine.append(row)
            print(f"{row['ratio']:6.2f} {row['of_the_least']:6.2f}  {drawn}  us {row['us']}  {row['by']}", flush=True)
        ratios = [float(str(row["ratio"])) for row in mine]
        geomean, tenth = math.exp(float(np.mean(np.log(ratios)))), float(np.percentile(ratios, 10))
        print(f"# {family}: {len(mine)}, geomean {geomean:.3f}, tenth {tenth:.2f}, worst {min(ratios):.2f}", flush=True)
        rows += mine
        if given.json:
            given.json.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    for process in (ours, peer):
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


if __name__ == "__main__":
    main()
