"""8-bit floats with scales of 1x128 for A and 128x128 for B, on this machine's GPU.

    python benchmarks/block_scales.py

Ours beside our plain product of 8-bit floats, torch's with a scale for each row and column, and torch's with the same
scales of blocks, where this torch and CUDA have it (cuBLAS 12.9). Launches are captured in graphs, each with operands
of its own, which together are larger than the L2 cache, and replayed in turns. Results of both with scales of blocks
are compared with float32's of the same numbers.

Printed is the time of each by ours with scales of blocks; above 1 ours is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch

import gemmgen

Shape = tuple[int, int, int]

#: Of DeepSeek-V3's layers, and a square.
SHAPES: tuple[Shape, ...] = (
    (4096, 4096, 4096),
    (4096, 7168, 2048),
    (4096, 2112, 7168),
    (128, 7168, 2048),
    (64, 24576, 1536),
)
BLOCK = 128
#: Bytes of operands that are gone through before the first ones come again; rounds; how far an element may be off.
ROTATED, ROUNDS, OFF = 160 << 20, 9, 0.02
PROLOGUES = {"prologue_a": "a * a_scale_128", "prologue_b": "b * b_scale_128x128"}


def operands(shape: Shape) -> dict[str, Any]:
    """A [m, k] and B [n, k] in 8 bits, scales [m, k / 128] and [n / 128, k / 128], and one for each row and column."""
    m, n, k = shape
    a, b = (torch.randn(x, k, device="cuda").to(torch.float8_e4m3fn) for x in (m, n))
    of_a, of_b = torch.rand(k // BLOCK, m, device="cuda"), torch.rand(k // BLOCK, -(-n // BLOCK), device="cuda")
    rows, cols = torch.ones(m, 1, device="cuda"), torch.ones(1, n, device="cuda")
    by_columns = of_b.T.contiguous().T
    return {"a": a, "b": b, "of_a": of_a, "of_b": of_b, "by_columns": by_columns, "rows": rows, "cols": cols}


def wanted(x: dict[str, Any]) -> Any:
    """The product in float32."""
    a = x["a"].float() * x["of_a"].T.repeat_interleave(BLOCK, 1)
    each = x["of_b"].T.repeat_interleave(BLOCK, 0)[: x["b"].shape[0]].repeat_interleave(BLOCK, 1)
    return a @ (x["b"].float() * each).T


def ours(x: dict[str, Any]) -> Any:
    """With scales of blocks."""
    scales = {"a_scale_128": x["of_a"].view(-1), "b_scale_128x128": x["of_b"].view(-1)}
    return gemmgen.gemm(x["a"], x["b"].T, **PROLOGUES, **scales)


def torchs(x: dict[str, Any], scale_a: Any, scale_b: Any) -> Any:
    """`torch._scaled_mm`."""
    return torch._scaled_mm(x["a"], x["b"].T, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16)


def measure(shape: Shape) -> None:
    """A line."""
    m, n, k = shape
    sets = [operands(shape) for _ in range(max(2, -(-ROTATED // (m * k + n * k))))]
    calls: dict[str, Callable[[dict[str, Any]], Any]] = {
        "ours": ours,
        "our plain": lambda x: gemmgen.gemm(x["a"], x["b"].T),
        "torch rows": lambda x: torchs(x, x["rows"], x["cols"]),
        "torch blocks": lambda x: torchs(x, x["of_a"].T, x["by_columns"]),
    }
    graphs: dict[str, Any] = {}
    right = wanted(sets[-1])
    for name, call in calls.items():
        try:
            result = [call(x) for x in sets][-1]
        except (RuntimeError, ValueError) as error:
            print(f"{name}: {str(error).splitlines()[0]}", flush=True)
            continue
        if name in ("ours", "torch blocks") and ((result.float() - right).abs().max() > OFF * right.abs().max()).item():
            print(f"{name}: WRONG", flush=True)
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for x in sets:
                call(x)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / len(sets))
    us = {name: median(x) for name, x in times.items()}
    rate = 2 * m * n * k / us["ours"] / 1e6
    peers = "  ".join(f"{name} {x / us['ours']:5.2f}" for name, x in us.items() if name != "ours")
    print(f"{m}x{n}x{k}: ours {us['ours']:8.1f} us, {rate:6.0f} TFLOP/s  {peers}", flush=True)


if __name__ == "__main__":
    for each in SHAPES:
        measure(each)
