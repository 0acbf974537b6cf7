"""SYCL kernels beside oneMKL's SYCL product and beside the same presets in OpenCL C, on the CPU device.

    pip install "gemmgen[sycl,cpu]" onemkl-sycl-blas onemkl-sycl-include
    python benchmarks/sycl/compare.py --size 512 --size 1024
    python benchmarks/sycl/compare.py --without-onemkl --preset tile_8x8

All take NumPy arrays in place and are waited for; they take turns, so that what else the machine does meets all alike.
Ratios above 1 mean that SYCL's kernel is the faster one. A ratio is the median of those of the rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import gemmgen
from gemmgen.runtime.sycl_devices import pick
from gemmgen.runtime.sycl_library import library

Floats = NDArray[np.float32]
PRESETS = ("naive", "register_8x8_4x4", "L3_SIMD_32x2_1x8", "sg16_block_16x2", "smem_8x8", "smem_8x8_transposed")
Product = Callable[[Floats, Floats, Floats], object]


def onemkl() -> Product:
    """oneMKL's product on the device that gemmgen picks, by a function that g++ compiles now."""
    lib = library().parent
    blas = next(iter(sorted(lib.glob("libmkl_sycl_blas.so.*"))), None)
    if blas is None:
        sys.exit("oneMKL is not in this environment: pip install onemkl-sycl-blas onemkl-sycl-include")
    # Its SYCL half leaves it to the program to bring its C half, whose parts need one another.
    parts = ("libmkl_intel_ilp64.so", "libmkl_tbb_thread.so", "libmkl_core.so", "libtbb.so.12")
    libraries = [str(blas), *(str(min(lib.glob(f"{part}*"))) for part in parts), str(library())]
    source, out = Path(__file__).with_name("onemkl.cpp"), Path(tempfile.mkdtemp(), "onemkl.so")
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-isystem", str(lib.parent / "include"), str(source)]
    linking = ["-Wl,--no-as-needed", *libraries, f"-Wl,-rpath,{lib}", "-o", str(out)]
    subprocess.run([*command, *linking], check=True)
    number = pick().number
    function = ctypes.CDLL(str(out)).onemkl_gemm

    def product(a: Floats, b: Floats, c: Floats) -> None:
        (m, k), n = a.shape, b.shape[1]
        places = (ctypes.c_void_p(x.ctypes.data) for x in (a, b, c))
        if function(number, m, n, k, *places):
            sys.exit("oneMKL failed")

    return product


def timed(product: Product, a: Floats, b: Floats, c: Floats) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    product(a, b, c)
    return time.perf_counter() - start


def compare(size: int, rounds: int, presets: Sequence[str], peer: Product | None) -> None:
    """A line for each preset."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    c, expected = np.empty((size, size), np.float32), a @ b
    for name in presets:
        products: dict[str, Product] = {
            "sycl": gemmgen.compile(None, name, backend="sycl"),
            "opencl": gemmgen.compile(None, name, backend="opencl", device=pick().name),
        }
        if peer is not None:
            products["onemkl"] = peer
        for product in products.values():
            product(a, b, c)
            assert np.allclose(c, expected, atol=1e-5 * size)
        times = np.array([[timed(p, a, b, c) for p in products.values()] for _ in range(rounds)])
        ratios = np.median(times[:, 1:] / times[:, :1], axis=0)
        speed = 2e-9 * size**3 / np.median(times[:, 0])
        sys.stdout.write(f"{size:6} {name:22} {speed:8.1f} GFLOP/s" + "".join(f" {x:9.3f}" for x in ratios) + "\n")


def main() -> None:
    """Read the options, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, action="append", help="of square matrices; can be repeated")
    parser.add_argument("--preset", action="append", help="can be repeated")
    parser.add_argument("--without-onemkl", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    sys.stdout.write(f"{pick()}, {os.cpu_count()} cores\n")
    sys.stdout.write(f"{'size':>6} {'preset':22} {'SYCL':>16} {'/ OpenCL':>9} {'/ oneMKL':>9}\n")
    peer = None if options.without_onemkl else onemkl()
    for size in options.size or (512,):
        compare(size, options.rounds, options.preset or PRESETS, peer)


if __name__ == "__main__":
    main()
