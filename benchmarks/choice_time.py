"""What a choice costs for sizes that a process has not seen: by records and the prior, and by the prior alone.

    python benchmarks/choice_time.py --count 200

Needs no GPU: the device is an H100 as it describes itself, with the records that come with gemmgen. The first choice of
each kind of product, a type with its orders and the alignment of its lines, finds out which designs there are. Such
choices are told by themselves, but for the first one of a type, which is not counted. Each choice is timed in several
processes, each of which sees its sizes for the first time, and the least counts: so jobs beside disturb less. As
`timeit` does, it leaves out Python's garbage collection: of some 2,000 choices one waits for a whole one, 10 ms in a
process like this. Prints milliseconds of the processor's time.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen.choose import choose
from gemmgen.ir.target import TARGETS
from gemmgen.options import build_spec
from gemmgen.spec import GemmSpec
from gemmgen.tuning.device import DeviceKey
from gemmgen.tuning.job import assuming_no_gaps
from gemmgen.tuning.recorded import Book, recorded
from gemmgen.tuning.records import Store

H100 = replace(TARGETS["sm_90a"], clock=1980, memory_rate=3_352_320, cache_bytes=50 << 20)
KEY = DeviceKey("cuda", "NVIDIA H100 80GB HBM3", 132, "580", "NVRTC", "0.1.0")
KINDS = (("bfloat16", "row,col"), ("float16", "row,row"), ("float8_e4m3fn", "row,col"), ("float32", "row,row"))
Shape = tuple[int, int, int]
#: Milliseconds of a choice, and whether it is the first of its kind of product.
Timed = tuple[float, bool]


def timed(kind: GemmSpec, count: int, seed: int, choice: Callable[[GemmSpec, Shape], object]) -> list[Timed]:
    """Choices for sizes that are drawn, those of layers: any rows, widths that are multiples of 8."""
    draw, seen = random.Random(seed), set[GemmSpec]()
    found = list[Timed]()
    for _ in range(count + 1):
        shape = round(2 ** draw.uniform(5, 13)), 8 * draw.randint(16, 1024), 8 * draw.randint(16, 1024)
        spec = assuming_no_gaps(kind, shape)
        before = time.process_time()
        choice(spec, shape)
        found.append(((time.process_time() - before) * 1e3, spec not in seen))
        seen.add(spec)
    return found[1:]


def timings(count: int) -> dict[str, list[Timed]]:
    """Of each type and way."""
    gc.disable()
    found = dict[str, list[Timed]]()
    with tempfile.TemporaryDirectory() as folder:
        book = Book(KEY, Store(Path(folder) / "tuned"), H100)

        def front_door(spec: GemmSpec, shape: Shape) -> object:
            return recorded(book, spec, shape, H100) or choose(spec, shape, H100)

        for dtype, layout in KINDS:
            kind = build_spec(dtype=dtype, layout=layout)
            found[f"{dtype} {layout}"] = timed(kind, count, 1, front_door)
            found[f"{dtype} {layout}, the prior alone"] = timed(
                kind, count, 2, lambda spec, shape: choose(spec, shape, H100)
            )
    return found


def main() -> None:
    """Print a line a type and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="sizes of each type")
    parser.add_argument("--processes", type=int, default=7, help="so many time each choice, one after the other")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        runs = list(pool.map(timings, [arguments.count] * arguments.processes))
    for name in runs[0]:
        least = sorted(map(min, zip(*(run[name] for run in runs), strict=True)))
        first = max((ms for ms, is_first in least if is_first), default=0.0)
        later = [ms for ms, is_first in least if not is_first]
        middle, ninth = later[len(later) // 2], later[len(later) * 9 // 10]
        print(
            f"{name}: median {middle:.2f}, ninth decile {ninth:.2f}, worst {later[-1]:.2f} ms; "
            f"the first of a kind of product at most {first:.2f} ms"
        )


if __name__ == "__main__":
    main()
