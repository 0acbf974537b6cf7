"""Grouped products beside torch's, and beside a loop of single products, on this machine.

    python benchmarks/grouped.py --device cpu --dtypes float32
    python benchmarks/grouped.py --device gpu --dtypes bfloat16 --kinds rows,k
    python benchmarks/grouped.py --device gpu --schedule mma_8x16_16x8
    python benchmarks/grouped.py --device gpu --dtypes bfloat16 --kinds swiglu
    python benchmarks/grouped.py --device gpu --dtypes float8_e4m3fn --kinds rows

Groups are even or skewed: skewed ones have rows in proportion to 1, 1/2, 1/3 and so on, in random order, the last of
them none. On a GPU launches are captured in graphs, each with operands of its own, which together are larger than the
L2 cache; those of a loop need the ends on the host, which it is given for nothing. Ours, `torch._grouped_mm` and the
loop are replayed in turns. On a CPU, ours is called beside a loop of NumPy's products, with a pause between, since
threads of OpenBLAS spin after a call. Each result is compared with the loop's.

`swiglu` is the first layer of experts: rows, and two halves of B's columns. Its peers make it of their products by
`silu(gate) * up` (a fused kernel of `torch.compile` on a GPU); `plain` is ours without it.

8-bit floats are groups of rows, with a scale for each row of A and each column of a group's B, B's lines along K, C in
bfloat16. Peers are `torch._scaled_grouped_mm` and a loop of `torch._scaled_mm`, left out where a group's rows are no
multiple of 16; `blocks` is ours with DeepSeek's scales, 1x128 of A and 128x128 of B, in their place.

Printed is the time of each peer by ours; above 1 ours is faster.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

import gemmgen

Shape = tuple[int, int, int, int]

#: Total rows (or K), N, K (or M) and groups: a few large experts, many small ones.
SHAPES: dict[str, tuple[Shape, ...]] = {
    "gpu": ((8192, 4096, 2048, 8), (4096, 2048, 4096, 64), (1024, 2048, 4096, 128)),
    "cpu": ((1024, 768, 512, 8), (512, 512, 512, 32)),
}
#: Bytes of operands that are gone through before the first ones come again: three times the L2 cache.
ROTATED = 160 << 20
#: Rounds of replays, the pause between libraries on a CPU in seconds, how far an element may be off of the largest one.
ROUNDS, PAUSE, OFF = 9, 0.25, 0.03


def ends_of(total: int, groups: int, skewed: bool, rng: np.random.Generator) -> Any:
    """Where groups end."""
    shares = 1 / np.arange(1, groups + 1) if skewed else np.ones(groups)
    if skewed:
        shares[-1] = 0
        rng.shuffle(shares)
    return np.round(np.cumsum(shares) / shares.sum() * total).astype(np.int32)


def shapes(kind: str, total: int, n: int, k: int, groups: int) -> tuple[tuple[int, ...], ...]:
    """Those of A, B and the products; of groups of K, A is the transpose of what lies in memory, as a gradient's is."""
    if kind == "k":
        return (total, k), (total, n), (groups, k, n)
    cols = n * 2 if kind == "swiglu" else n
    return (total, k), (groups, k, cols), (total, cols)


def epilogue_of(kind: str) -> tuple[str, ...]:
    """Of ours."""
    return ("swiglu",) if kind == "swiglu" else ()


def halves(product: Any) -> tuple[Any, Any]:
    """The columns of a gate's two halves."""
    n = product.shape[1] // 2
    return product[:, :n], product[:, n:]


def loop(kind: str, a: Any, b: Any, ends: list[int], out: Any, multiply: Callable[[Any, Any, Any], Any]) -> Any:
    """A product for each group."""
    begin = 0
    for group, end in enumerate(ends):
        if kind != "k":
            if end > begin:
                multiply(a[begin:end], b[group], out[begin:end])
        else:
            multiply(a[:, begin:end], b[begin:end], out[group])
        begin = end
    return out


# --- on a CPU -------------------------------------------------------------------------------------


def on_cpu(kind: str, dtype: str, shape: Shape, skewed: bool, schedule: str | None) -> None:
    """Ours beside a loop of NumPy's products."""
    rng, (total, n, _, groups) = np.random.default_rng(25), shape
    ends = ends_of(total, groups, skewed, rng)
    *sizes, size = shapes(kind, *shape)
    first, second = (rng.standard_normal(x).astype(dtype) for x in sizes)
    a = first.T if kind == "k" else first
    product, epilogue = np.zeros(size, dtype), epilogue_of(kind)
    wanted = np.zeros((total, n), dtype) if epilogue else product
    out = np.zeros_like(wanted)

    def ours() -> None:
        gemmgen.grouped(a, second, ends, epilogue=epilogue, out=out, schedule=schedule)

    def theirs() -> None:
        loop(kind, a, second, ends.tolist(), product, lambda x, y, c: np.matmul(x, y, out=c))
        if epilogue:
            gate, up = halves(product)
            np.multiply(gate / (1 + np.exp(-gate)), up, out=wanted)

    times: dict[str, list[float]] = {"ours": [], "loop": []}
    for _ in range(ROUNDS):
        for name, call in (("ours", ours), ("loop", theirs)):
            time.sleep(PAUSE)
            call()  # the first one after a pause wakes threads
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    report(kind, dtype, shape, skewed, {name: median(x) * 1e6 for name, x in times.items()}, right(out, wanted))


def right(out: Any, wanted: Any) -> bool:
    """Whether results agree."""
    return bool(abs(out - wanted).max() <= OFF * abs(wanted).max())


# --- on a GPU -------------------------------------------------------------------------------------


def of_scaled(ends: Any, host: list[int], shape: Shape, schedule: str | None) -> dict[str, Callable[..., Any]]:
    """What multiplies groups of rows of 8-bit floats."""
    import torch

    total, n, k, groups = shape

    def scales(*size: int) -> Any:
        return torch.rand(size, device="cuda") + 0.5

    rows, cols, of_blocks = scales(total), scales(groups, n), -(-k // 128)
    blocks = {
        "a_scale_128": scales(of_blocks * total),
        "b_scale_128x128": scales(groups, of_blocks * -(-n // 128)),
    }
    by_blocks = {"prologue_a": "a * a_scale_128", "prologue_b": "b * b_scale_128x128", **blocks}
    own = {"epilogue": ("row_scale", "scale"), "row_scale": rows, "scale": cols}
    fast = {"out_dtype": torch.bfloat16, "use_fast_accum": True}

    def by_loop(a: Any, b: Any, c: Any, _: Any) -> Any:
        begin = 0
        for group, end in enumerate(host):
            if end > begin:
                of_rows, of_cols = rows[begin:end, None], cols[group][None]
                torch._scaled_mm(a[begin:end], b[group], of_rows, of_cols, out=c[begin:end], **fast)
            begin = end
        return c

    return {
        "ours": lambda a, b, _, c: gemmgen.grouped(a, b, ends, out=c, schedule=schedule, **own),
        "torch": lambda a, b, _, __: torch._scaled_grouped_mm(a, b, rows, cols, offs=ends, **fast),
        "loop": by_loop,
        "blocks": lambda a, b, _, c: gemmgen.grouped(a, b, ends, out=c, **by_blocks),
    }


def on_gpu(kind: str, dtype: str, shape: Shape, skewed: bool, schedule: str | None) -> None:
    """Ours beside torch's and a loop, by graphs."""
    import torch

    scaled = dtype.startswith("float8")
    if scaled and kind != "rows":
        print(f"{kind:6} {dtype}: groups of rows alone", flush=True)
        return
    rng, (total, n, _, groups) = np.random.default_rng(25), shape
    host = ends_of(total, groups, skewed, rng)
    ends, element = torch.as_tensor(host, device="cuda"), getattr(torch, dtype)
    *sizes, product = shapes(kind, *shape)
    epilogue, rotated = epilogue_of(kind), sum(int(np.prod(x)) for x in sizes) * element.itemsize
    sets = []
    for _ in range(max(2, -(-ROTATED // rotated))):
        first, second = (torch.randn(x, device="cuda").to(element) for x in sizes)
        if scaled:
            second = second.transpose(1, 2).contiguous().transpose(1, 2)
        both = torch.zeros(product, device="cuda", dtype=torch.bfloat16 if scaled else element)
        out = torch.zeros((total, n), device="cuda", dtype=element) if epilogue else both
        sets.append((first.T if kind == "k" else first, second, both, out))
    finish = torch.compile(_gated, dynamic=False) if epilogue else lambda product: product

    def by_loop(a: Any, b: Any, both: Any, _: Any) -> Any:
        return finish(loop(kind, a, b, host.tolist(), both, lambda x, y, z: torch.matmul(x, y, out=z)))

    calls: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
        "ours": lambda a, b, _, c: gemmgen.grouped(a, b, ends, epilogue=epilogue, out=c, schedule=schedule),
        "torch": lambda a, b, _, __: finish(torch._grouped_mm(a, b, offs=ends)),
        "loop": by_loop,
    }
    if epilogue:
        calls["plain"] = lambda a, b, both, _: gemmgen.grouped(a, b, ends, out=both, schedule=schedule)
    if scaled:
        calls = of_scaled(ends, host.tolist(), shape, schedule)
    elif dtype != "bfloat16":
        del calls["torch"]
    graphs, results = {}, {}
    for name, call in calls.items():
        try:
            results[name] = [call(*given) for given in sets][-1].clone()
        except RuntimeError as error:
            if name not in ("torch", "loop") or "CUBLAS_STATUS_NOT_SUPPORTED" not in str(error):
                raise
            # cuBLAS takes no groups of 8-bit floats whose rows are no multiple of 16.
            print(f"# {name} does not take this: {str(error)[:80]}", flush=True)
            continue
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for given in sets:
                call(*given)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end) * 1e3 / len(sets))
    agrees = all(right(results["ours"].double(), results[x].double()) for x in ("loop", "torch") if x in results)
    report(kind, dtype, shape, skewed, {name: median(x) for name, x in times.items()}, agrees)


def _gated(product: Any) -> Any:
    import torch

    gate, up = halves(product)
    return torch.nn.functional.silu(gate) * up


def report(
    kind: str, dtype: str, shape: tuple[int, ...], skewed: bool, microseconds: dict[str, float], agrees: bool
) -> None:
    """A line."""
    ours, size = microseconds["ours"], "x".join(map(str, shape[:3]))
    peers = "  ".join(f"{name} {us / ours:5.2f}" for name, us in microseconds.items() if name != "ours")
    even = "skewed" if skewed else "even"
    wrong = "" if agrees else "  WRONG"
    print(f"{kind:6} {dtype:8} {size:>15} {shape[3]:4} {even:6}  ours {ours:9.1f} us  {peers}{wrong}", flush=True)


def main() -> None:
    """All of it, a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--kinds", default="rows,k,swiglu")
    parser.add_argument("--schedule", help="a preset, in place of the choice")
    arguments = parser.parse_args()
    measure = on_cpu if arguments.device == "cpu" else on_gpu
    for kind in arguments.kinds.split(","):
        for dtype in arguments.dtypes.split(","):
            for shape in SHAPES[arguments.device]:
                for skewed in (False, True):
                    measure(kind, dtype, shape, skewed, arguments.schedule)


if __name__ == "__main__":
    main()
