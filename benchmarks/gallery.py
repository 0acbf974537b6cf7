"""The CUDA kernels of docs/gallery.md beside what they are compared with, on this machine's GPU.

    git clone https://github.com/siboehm/SGEMM_CUDA
    git clone https://github.com/pranjalssh/fast.cu
    python benchmarks/gallery.py --siboehm SGEMM_CUDA --fast fast.cu

Each takes its turns in another order, round by round, on the same random A, B and C; a turn is as many launches as take
a fiftieth of a second. cuBLAS is torch's. fast.cu reads B by columns and stores C by columns; all others have rows.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from before_and_after import File

from gemmgen.bench.records import median_interval

ROOT = Path(__file__).resolve().parents[1]
TURN, ROUNDS = 0.02, 11
Launch = Callable[[], object]


@dataclass(frozen=True)
class Pair:
    """A preset, and the kernel that it is compared with, by its number in a repository."""

    preset: str
    peer: str
    number: int
    sizes: tuple[int, ...] = (4096, 8192)


PAIRS = (
    Pair("naive", "siboehm", 1, (4096,)),
    Pair("naive_16x16", "siboehm", 2, (4096,)),
    Pair("smem_8x8", "siboehm", 6),
    Pair("async_8x8_16x16", "siboehm", 10),
    Pair("async_8x8_16x16", "siboehm", 12),
    Pair("wgmma_128x256_s4", "fast", 5),
    Pair("wgmma_128x256_s4_turns", "fast", 12),
)


def shim(name: str, clone: Path, into: Path) -> Path:
    """The library of a repository's kernels."""
    (into / "cublas_v2.h").touch()  # siboehm's headers include it, and use nothing of it
    library = into / f"{name}.so"
    options = [
        "-std=c++17",
        "-O3",
        "-gencode",
        "arch=compute_90a,code=sm_90a",
        "-DNDEBUG",
        "-w",
        "-shared",
        "-Xcompiler",
        "-fPIC",
    ]
    folders = ["-I", str(clone), "-I", str(clone / "src"), "-I", str(into)]
    subprocess.run(["nvcc", *options, *folders, "-o", library, ROOT / f"benchmarks/gallery/{name}.cu"], check=True)
    return library


def loaded(library: Path, copy: Path) -> ctypes._CFuncPtr:
    """Its entry, in a copy of its own: fast.cu keeps the tensor maps of the first matrices that it gets."""
    shutil.copy(library, copy)
    found = ctypes.CDLL(str(copy)).peer
    found.argtypes = [ctypes.c_int] * 4 + [ctypes.c_void_p] * 3
    return found


def seconds(launch: Launch, launches: int) -> float:
    """Of a launch, in a turn."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")
    begin.record()
    for _ in range(launches):
        launch()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000 / launches


def rounds(contenders: dict[str, Launch]) -> dict[str, list[float]]:
    """Times of a launch of each, round by round."""
    launches = {}
    for name, launch in contenders.items():
        seconds(launch, 2)
        launches[name] = max(2, int(TURN / seconds(launch, 2)))
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name in random.sample(list(contenders), len(contenders)):
            taken[name].append(seconds(contenders[name], launches[name]))
    return taken


def measure(pair: Pair, size: int, ours: File, peer: ctypes._CFuncPtr) -> None:
    """A line: both, cuBLAS, and the ratios with their intervals."""
    kind = torch.float32 if pair.peer == "siboehm" else torch.bfloat16
    a, b, c, d, e = (torch.randn(size, size, device="cuda").to(kind) for _ in range(5))
    values = dict.fromkeys(("m", "n", "k", "lda", "ldb", "ldc"), size) | {"alpha": 1.0, "beta": 0.0}
    values |= {x: t.data_ptr() for x, t in zip("abc", (a, b, c), strict=True)}
    rights = torch.mm(a, b), torch.mm(a, b.T if pair.peer == "fast" else b)
    contenders: dict[str, Launch] = {
        "ours": lambda: ours.launch(values),
        "peer": lambda: peer(pair.number, size, size, size, a.data_ptr(), b.data_ptr(), d.data_ptr()),
        "cublas": lambda: torch.mm(a, b, out=e),
    }
    assert not contenders["ours"](), "ours was refused"
    assert not contenders["peer"](), "the peer was refused"
    torch.cuda.synchronize()
    for what, found, right in (("ours", c, rights[0]), ("peer", d.T if pair.peer == "fast" else d, rights[1])):
        error = float((found.double() - right.double()).norm() / right.double().norm())
        assert error < 0.01, f"{what} is off by {error}"
    taken = rounds(contenders)
    rates = {name: 2e-12 * size**3 / median(times) for name, times in taken.items()}
    line = f"{pair.preset:24} {pair.peer:>8} {pair.number:2} {size:5}"
    for name in contenders:
        line += f" {rates[name]:8.2f}"
    for other in ("peer", "cublas"):
        ratios = tuple(theirs / own for own, theirs in zip(taken["ours"], taken[other], strict=True))
        interval = median_interval(ratios)
        assert interval is not None
        line += f"  {median(ratios):6.3f} ({interval.low:.3f} to {interval.high:.3f})"
    print(line, flush=True)


def main() -> None:
    """A line for each pair and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--siboehm", type=Path, required=True)
    parser.add_argument("--fast", type=Path, required=True)
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
    print(
        f"{torch.cuda.get_device_name()}, {datetime.now(UTC):%Y-%m-%d}; TFLOP/s, ratios of speeds with 95 % intervals"
    )
    print(f"{'preset':24} {'peer':>11} {'size':>5} {'ours':>8} {'peer':>8} {'cuBLAS':>8}  of the peer, of cuBLAS")
    with tempfile.TemporaryDirectory() as folder:
        peers = {name: shim(name, getattr(arguments, name), Path(folder)) for name in ("siboehm", "fast")}
        for pair in PAIRS:
            source = ROOT / f"generated/cuda/{pair.preset}.cu"
            for size in pair.sizes:
                peer = loaded(peers[pair.peer], Path(folder) / f"{pair.peer}_{pair.number}_{size}.so")
                measure(pair, size, File.compile(source, Path(folder), "90a"), peer)


if __name__ == "__main__":
    main()
