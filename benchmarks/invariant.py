"""What `invariant=True` costs on this machine's GPU, beside `gemm`'s free choice and torch's product.

    python benchmarks/invariant.py
    python benchmarks/invariant.py --dtypes bfloat16 --layouts col --shapes 4096x4096

Of N and K each, 14 numbers of rows from 1 to 8192. Launches are captured in graphs, each with operands of its own,
which together are larger than the L2 cache, and replayed in turns; the kernels are compiled before by many processes.
Printed are the free choice's time by that of the invariant one, and torch's: for each number of rows, then the
geometric mean and the worst.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from math import exp, log
from multiprocessing import get_context
from typing import Any

import torch
from weights import ROTATED, captured, timed

import gemmgen

# Else a kernel for any size runs first, while the special one is compiled.
os.environ.setdefault("GEMMGEN_COMPILE_ASIDE", "0")

ROWS = (*(1 << n for n in range(14)),)
SHAPES = "4096x4096,14336x4096,1024x1024,64x65536"
#: Copies of the operands at least and at most.
LEAST, MOST = 2, 80

#: Type, order of B, m, n, k.
Product = tuple[str, str, int, int, int]


def operands(product: Product) -> tuple[torch.Tensor, torch.Tensor]:
    """A and B, random."""
    name, order, m, n, k = product
    kind = getattr(torch, name)
    x = torch.randn(m, k, device="cuda", dtype=kind)
    by_rows = torch.randn(*((k, n) if order == "row" else (n, k)), device="cuda", dtype=kind)
    return x, by_rows if order == "row" else by_rows.T


def build(product: Product) -> None:
    """Compile what both choices run, which stays on disk."""
    x, w = operands(product)
    gemmgen.gemm(x, w)
    gemmgen.gemm(x, w, invariant=True)


def measure(product: Product) -> tuple[float, float]:
    """The free choice's time by the invariant one's, and torch's."""
    name, _, m, n, k = product
    size = getattr(torch, name).itemsize * k * (m + n)
    given = [operands(product) for _ in range(max(LEAST, min(MOST, -(-ROTATED // size))))]
    into: list[Any] = [torch.empty(m, n, device="cuda", dtype=x.dtype) for x, _ in given]
    ways = {"free": gemmgen.gemm, "invariant": partial(gemmgen.gemm, invariant=True), "torch": torch.matmul}
    graphs, kernels = {}, list[str]()
    for way, call in ways.items():
        calls = [partial(call, x, w, out=c) for (x, w), c in zip(given, into, strict=True)]
        graphs[way] = (captured(calls), len(calls))
        choice = gemmgen.last_choice()
        kernels += [choice.kernel] if choice is not None and way != "torch" else []
    us = timed(graphs)
    of_free, of_torch = us["free"] / us["invariant"], us["torch"] / us["invariant"]
    times = f"{us['free']:9.2f} {us['invariant']:9.2f} {us['torch']:9.2f} us"
    print(f"  {m:5} rows {times}  {of_free:.2f} {of_torch:.2f}  {'  '.join(kernels)}", flush=True)
    return of_free, of_torch


def summary(ratios: tuple[float, ...]) -> str:
    """Geometric mean and worst."""
    return f"{exp(sum(map(log, ratios)) / len(ratios)):.2f} ({min(ratios):.2f})"


def main() -> None:
    """All of it, a line for each number of rows, then one for all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--layouts", default="col,row", help="of B")
    parser.add_argument("--shapes", default=SHAPES, help="N and K")
    parser.add_argument("--jobs", type=int, default=12, help="processes that compile")
    said = parser.parse_args()
    shapes = [tuple(map(int, x.split("x"))) for x in said.shapes.split(",")]
    each = [(x, y, n, k) for x in said.dtypes.split(",") for y in said.layouts.split(",") for n, k in shapes]
    with get_context("spawn").Pool(said.jobs) as pool:
        pool.map(build, [(name, order, m, n, k) for name, order, n, k in each for m in ROWS], chunksize=1)
    for name, order, n, k in each:
        free, torchs = zip(*(measure((name, order, m, n, k)) for m in ROWS), strict=True)
        print(f"{name} {order} {n}x{k}: of the free choice {summary(free)}, of torch {summary(torchs)}", flush=True)


if __name__ == "__main__":
    main()
