"""What a choice costs for sizes that a process has not seen: by records and the prior, and by the prior alone.

    python benchmarks/choice_time.py --count 200

Needs no GPU: the device is an H100 as it describes itself, with the records that come with gemmgen. The first choice of
each type is not counted. Prints wall and processor time, in milliseconds.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen.choose import choose
from gemmgen.ir.target import TARGETS
from gemmgen.options import build_spec
from gemmgen.spec import GemmSpec
from gemmgen.tuning.device import DeviceKey
from gemmgen.tuning.job import promised
from gemmgen.tuning.recorded import Book, recorded
from gemmgen.tuning.records import Store

H100 = replace(TARGETS["sm_90a"], clock=1980, memory_rate=3_352_320, cache_bytes=50 << 20)
KEY = DeviceKey("cuda", "NVIDIA H100 80GB HBM3", 132, "580", "NVRTC", "0.1.0")
KINDS = (("bfloat16", "row,col"), ("float16", "row,row"), ("float8_e4m3fn", "row,col"), ("float32", "row,row"))
Shape = tuple[int, int, int]


def timed(kind: GemmSpec, count: int, seed: int, choice: Callable[[GemmSpec, Shape], object]) -> str:
    """Of choices for sizes that are drawn, those of layers: any rows, widths that are multiples of 8."""
    draw = random.Random(seed)
    wall, busy = list[float](), list[float]()
    for number in range(count + 1):
        shape = round(2 ** draw.uniform(5, 13)), 8 * draw.randint(16, 1024), 8 * draw.randint(16, 1024)
        spec = promised(kind, shape)
        before = time.perf_counter(), time.process_time()
        choice(spec, shape)
        after = time.perf_counter(), time.process_time()
        if number:
            wall.append((after[0] - before[0]) * 1e3)
            busy.append((after[1] - before[1]) * 1e3)
    told = []
    for name, values in (("wall", sorted(wall)), ("processor", sorted(busy))):
        told.append(f"{name} median {values[count // 2]:.2f}, ninth decile {values[count * 9 // 10]:.2f}")
    return f"{'; '.join(told)}, worst {max(busy):.2f} ms"


def main() -> None:
    """Print a line a type and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as folder:
        book = Book(KEY, Store(Path(folder) / "tuned"), H100)

        def front_door(spec: GemmSpec, shape: Shape) -> object:
            return recorded(book, spec, shape, H100) or choose(spec, shape, H100)

        for dtype, layout in KINDS:
            kind = build_spec(dtype=dtype, layout=layout)
            print(f"{dtype} {layout}: {timed(kind, count, 1, front_door)}")
            alone = timed(kind, count, 2, lambda spec, shape: choose(spec, shape, H100))
            print(f"{dtype} {layout}, the prior alone: {alone}")


if __name__ == "__main__":
    main()
