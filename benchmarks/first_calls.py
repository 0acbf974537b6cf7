"""First calls on a GPU, and what calls keep: cold processes, a stream of new sizes, memory over many sizes.

    python benchmarks/first_calls.py --json benchmarks/results/first_calls.json

Every figure comes from processes of their own. In each of them the GPU's context is made and torch or CuPy imported
before the clock starts. The disk cache is an empty folder that all of them share. Python's files are compiled first.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import gemmgen

#: Processes of a figure.
TIMES = 5
#: What each process does first. `now` waits for the GPU.
BEGIN = {
    "torch": """
import time, torch
import torch as library
random = lambda m, n, dtype="float32": torch.randn(m, n, device="cuda").to(getattr(torch, dtype))
now = lambda: (torch.cuda.synchronize(), time.perf_counter())[1]
torch.matmul(random(64, 64), random(64, 64))
""",
    "cupy": """
import time, cupy
random = lambda m, n, dtype="float32": cupy.random.standard_normal((m, n)).astype(dtype)
now = lambda: (cupy.cuda.Device().synchronize(), time.perf_counter())[1]
random(64, 64) @ random(64, 64)
""",
}
#: The first call of a process: its import of gemmgen, and the call, in milliseconds.
COLD = """
a, b = random({m}, {k}, "{dtype}"), random({k}, {n}, "{dtype}")
begin = now()
import gemmgen
imported = now()
gemmgen.gemm(a, b)
print((imported - begin) * 1e3, (now() - imported) * 1e3)
"""
#: 40 new sizes after one of their type: the longest call in milliseconds, as its caller waits for it.
STREAM = """
import gemmgen
gemmgen.gemm(random(64, {unit} * 16, "{dtype}"), random({unit} * 16, {unit} * 8, "{dtype}"))
longest = []
for turn in range(40):
    m, n, k = ({unit} * (5 + (turn * step) % 41) for step in (7, 11, 13))
    a, b = random(m, k, "{dtype}"), random(k, n, "{dtype}")
    begin = now()
    gemmgen.gemm(a, b)
    longest.append(now() - begin)
print(max(longest) * 1e3, sorted(longest)[-2] * 1e3)
"""
#: 32 values of M in a row, by a kernel with workspaces: MB that are kept behind, the most at once, the largest alone.
MEMORY = """
import gemmgen
from gemmgen import candidates
kernel = gemmgen.compile(schedule=candidates.load("mbarrier_8x16_16x16_split7").schedule, backend="cuda")
b = random(4096, 4096)
before = torch.cuda.memory_allocated()
kernel(random(4096, 4096), b)
now()
one, kept = torch.cuda.max_memory_allocated() - before, torch.cuda.memory_reserved()
torch.cuda.reset_peak_memory_stats()
for m in range(128, 4097, 128):
    kernel(random(m, 4096), b)
now()
most, still = torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before
print(*(size * 1e-6 for size in (still, most, one, torch.cuda.memory_reserved() - kept)))
"""
#: 100,000 calls: microseconds of one, and the growth of the process and of the GPU's memory in MB.
MANY = """
import resource, gemmgen
a, b = [random(64, 64) for _ in range(8)], [random(64, 64) for _ in range(8)]
size = lambda: int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
for turn in range(5000):
    gemmgen.gemm(a[turn % 8], b[turn % 8])
begin, host, device = now(), size(), torch.cuda.memory_reserved()
for turn in range(100_000):
    gemmgen.gemm(a[turn % 8], b[(turn + 1) % 8])
print((now() - begin) * 10, (size() - host) * 1e-6, (torch.cuda.memory_reserved() - device) * 1e-6)
"""


def ran(library: str, script: str, cache: str) -> list[float]:
    """The numbers that a process prints."""
    command = [sys.executable, "-c", BEGIN[library] + script]
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return [float(number) for number in done.stdout.split()]


def cold(cache: str) -> Iterator[dict[str, object]]:
    """First calls: in the first process that has such a call, and the median of later ones."""
    for library, dtype, m, n, k in (
        ("torch", "float32", 1000, 1000, 1000),
        ("torch", "bfloat16", 1024, 1024, 1024),
        ("torch", "float32", 64, 64, 65536),
        ("cupy", "float32", 1000, 1000, 1000),
    ):
        if library == "cupy" and find_spec("cupy") is None:
            continue
        script = COLD.format(dtype=dtype, m=m, n=n, k=k)
        _, first = ran(library, script, cache)
        later = [ran(library, script, cache) for _ in range(TIMES)]
        imports, calls = (statistics.median(column) for column in zip(*later, strict=True))
        name = f"{library}, {dtype} {m}x{n}x{k}"
        yield {"first call": name, "compiled": first, "import": imports, "from disk": calls}


def figures(cache: str) -> Iterator[dict[str, object]]:
    """Each as it is measured, which takes minutes in all."""
    yield from cold(cache)
    for unit, dtype in ((8, "bfloat16"), (8, "float32"), (7, "float32")):
        longest, second = ran("torch", STREAM.format(unit=unit, dtype=dtype), cache)
        yield {"40 new sizes": f"{dtype}, multiples of {unit}", "longest": longest, "second": second}
    kept, most, largest, reserved = ran("torch", MEMORY, cache)
    yield {"32 values of M": "MB", "kept": kept, "most": most, "largest alone": largest, "reserved": reserved}
    each, host, device = ran("torch", MANY, cache)
    yield {"100,000 calls": "us, MB", "each": each, "host's growth": host, "GPU's growth": device}


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    compileall.compile_dir(str(Path(gemmgen.__file__).parent), quiet=1)  # as pip does, unless it is told not to
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for row in figures(cache):
            text = (
                f"{key} {value:.1f}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()
            )
            print(*text, flush=True)
            rows.append(row)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
