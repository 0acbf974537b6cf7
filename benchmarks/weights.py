"""Products by weights of 8 and 4 bits beside the plain product, on this machine's GPU.

    python benchmarks/weights.py
    python benchmarks/weights.py --shapes 4096x14336 --rows 1,16 --bits 4

Contenders: `gemmgen.gemm` of bfloat16 rows by `gemmgen.prepack`ed weights; by the weights in bfloat16, ours and
torch's; torch's `_weight_int4pack_mm` for 4 bits. Launches are captured in graphs, each with operands of its own, which
together are larger than the L2 cache. The graphs are replayed in turns. Results are compared with float32's by the
weights as they are rounded.

Printed are the time of the faster plain product by ours, that of torch's int4 by ours, and the part of a copy's rate
that ours reads the weights at.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch

import gemmgen

# Else a kernel for any size runs first, while the special one is compiled.
os.environ.setdefault("GEMMGEN_COMPILE_ASIDE", "0")

#: N and K of layers, and rows of x.
SHAPES = "4096x4096,14336x4096,4096x14336"
ROWS = "1,4,16,512"
#: Bits, group along K, and whether there are zero points.
KINDS = ((8, None, False), (8, 128, False), (4, 128, False), (4, 32, True))
#: Bytes of operands that are gone through before the first ones come again; rounds; the largest relative error.
ROTATED, ROUNDS, OFF = 160 << 20, 9, 0.02
#: What torch's packed int4 is laid out for.
INNER = 8


def packed_like(n: int, k: int, bits: int, group: int | None, zeros: bool, rng: np.random.Generator) -> gemmgen.Packed:
    """Weights of a kind: one rounded block, repeated, whose rows begin elsewhere each time."""
    block = rng.standard_normal((k, 64)).astype(np.float32)
    return gemmgen.prepack(np.tile(block, (1, -(-n // 64)))[:, :n], bits=bits, group=group, zero_points=zeros)


def torchs(x: torch.Tensor, n: int, k: int) -> Callable[[], torch.Tensor] | None:
    """Torch's product by int4 in groups of 128, where it has one."""
    with suppress(RuntimeError, AttributeError):
        halves = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device="cuda")
        laid = torch.ops.aten._convert_weight_to_int4pack(halves, INNER)
        scales = torch.ones(k // 128, n, 2, dtype=torch.bfloat16, device="cuda")
        torch.ops.aten._weight_int4pack_mm(x, laid, 128, scales)
        return lambda: torch.ops.aten._weight_int4pack_mm(x, laid, 128, scales)
    return None


def captured(calls: Sequence[Callable[[], object]]) -> torch.cuda.CUDAGraph:
    """A graph of calls, each of which has run before."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def timed(graphs: dict[str, tuple[torch.cuda.CUDAGraph, int]]) -> dict[str, float]:
    """Microseconds of a launch, the graphs in turns."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name, (graph, count) in graphs.items():
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / count)
    return {name: median(each) for name, each in times.items()}


def copy_rate() -> float:
    """Bytes a microsecond that a copy reads and writes."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    graph = captured([lambda: target.copy_(source)])
    microseconds = timed({"copy": (graph, 1)})["copy"]
    return 2.0 * int(source.numel()) / microseconds


def measure(m: int, n: int, k: int, bits: Sequence[int], rate: float) -> None:
    """A line for each kind."""
    rng = np.random.default_rng(25)
    sets = max(2, -(-ROTATED // (2 * n * k)))
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    plain = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16).T for _ in range(sets)]
    outs = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
    ours = captured([partial(gemmgen.gemm, x, w, out=c) for w, c in zip(plain, outs, strict=True)])
    cublas = captured([partial(torch.matmul, x, w, out=c) for w, c in zip(plain, outs, strict=True)])
    graphs = {"plain": (ours, sets), "torch": (cublas, sets)}
    for of_bits, group, zeros in KINDS:
        if of_bits not in bits:
            continue
        first = packed_like(n, k, of_bits, group, zeros, rng)
        count = max(2, -(-ROTATED // first.nbytes))
        many = [gemmgen.Packed(first.values, first.scales, first.zeros, group, k) for _ in range(count)]
        results: list[Any] = [torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16) for _ in many]
        calls = [partial(gemmgen.gemm, x, w, out=c) for w, c in zip(many, results, strict=True)]
        here = {**graphs, "packed": (captured(calls), count)}
        peers = [torchs(x, n, k) for _ in range(count)] if (of_bits, group) == (4, 128) else []
        if peers and all(peers):
            here["int4"] = captured([each for each in peers if each is not None]), count
        us = timed(here)
        wanted = x.float() @ torch.as_tensor(first.dequantized(), device="cuda")
        off = float((results[-1].float() - wanted).norm() / wanted.norm())
        faster = min(us["plain"], us["torch"]) / us["packed"]
        int4 = f"  int4 {us['int4'] / us['packed']:5.2f}" if "int4" in us else ""
        memory = (first.nbytes + 2 * m * (n + k)) / rate / us["packed"]
        kind = f"int{of_bits} {'column' if group is None else group}{' zeros' if zeros else ''}"
        said = f"plain {faster:5.2f}{int4}  memory {memory:.2f}{'' if off < OFF else f'  WRONG {off:.3g}'}"
        print(f"{m:4} rows {n:6}x{k:<6} {kind:15} {us['packed']:8.1f} us  {said}", flush=True)
        del many, calls, here


def main() -> None:
    """All of it, a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=SHAPES, help="N and K")
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--bits", default="8,4")
    said = parser.parse_args()
    rate = copy_rate()
    print(f"{torch.cuda.get_device_name()}, a copy reads and writes {rate * 1e-6:.2f} TB/s", flush=True)
    for shape in said.shapes.split(","):
        n, k = map(int, shape.split("x"))
        for m in map(int, said.rows.split(",")):
            measure(m, n, k, [*map(int, said.bits.split(","))], rate)


if __name__ == "__main__":
    main()
