"""Products with an epilogue in bfloat16, beside cuBLASLt's and torch.compile's, on this machine's GPU.

    python benchmarks/epilogues.py
    python benchmarks/epilogues.py --epilogues bias,gelu --drawn 0 --skip cublas

Contenders: `gemmgen.gemm` with the epilogue, by choice; the plain product, ours and torch's (cuBLASLt); cuBLASLt's
fused product, where torch calls it (`addmm`, `_addmm_activation`); `torch.compile` of the same expression, and by its
mode max-autotune, which takes minutes and is left out by default. B lies by columns, as weights of a layer do.

Launches are captured in graphs, each with operands of its own, which together are larger than the L2 cache. The graphs
are replayed in turns. C is filled with NaN before, and compared with float32's after.

The target is the time of the faster plain product, plus that of the bytes that the epilogue adds at the rate of a copy,
times 1.03 (bias, scale, relu) or 1.05. Ratios are medians over rounds of another's time by ours, with the tenth and the
ninetieth percentile: above 1 ours is faster. The plain product of SwiGLU has both halves; `in two` is two of our
products, the second of which reads what the first has stored. `beta` adds to C in place.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from drawn_shapes import drawn
from few_rows import Contender, captured, copy_rate

import gemmgen
from gemmgen.runtime.cuda_devices import pick

Shape = tuple[int, int, int]
Matrices = dict[str, Any]

SHAPES: tuple[Shape, ...] = (
    (2048, 3072, 768),
    (8192, 14336, 4096),
    (4096, 4096, 4096),
    (512, 4096, 11008),
    (8192, 1024, 4096),
)
#: Drawn shapes have at least so many rows and columns: others are memory-bound products, which `few_rows.py` has.
LEAST = 256
ROTATED, ROUNDS = 160 << 20, 9
#: How far an element may be off, of the largest one: a coarse sieve; `gemmgen run --validate` is the fine one.
OFF = 0.02
SIZE = 2


@dataclass(frozen=True)
class Case:
    """An epilogue.

    Attributes:
        ours: the functions, and what they take.
        torch: the same for a product, by torch.
        cublas: by cuBLASLt's own epilogue, where it has one.
        added: elements that are read besides: of a `row` of C, or of all of C.
        allowed: how many times the target's time it may take.
    """

    ours: tuple[str, ...]
    torch: Callable[[Matrices, Any], Any]
    cublas: Callable[[Matrices], Any] | None = None
    added: tuple[str, ...] = ()
    allowed: float = 1.05


def _with_activation(x: Matrices, use_gelu: bool) -> Any:
    return torch._addmm_activation(x["bias"], x["a"], x["b"], use_gelu=use_gelu)


F = torch.nn.functional
CASES: dict[str, Case] = {
    "bias": Case(
        ("bias",), lambda x, p: p + x["bias"], lambda x: torch.addmm(x["bias"], x["a"], x["b"]), ("bias",), 1.03
    ),
    "scale": Case(("scale",), lambda x, p: p * x["scale"], None, ("scale",), 1.03),
    "relu": Case(("relu",), lambda _, p: torch.relu(p), None, (), 1.03),
    "bias_relu": Case(
        ("bias", "relu"),
        lambda x, p: torch.relu(p + x["bias"]),
        lambda x: _with_activation(x, False),
        ("bias",),
        1.03,
    ),
    "gelu": Case(("bias", "gelu"), lambda x, p: F.gelu(p + x["bias"]), None, ("bias",)),
    "gelu_tanh": Case(
        ("bias", "gelu_tanh"),
        lambda x, p: F.gelu(p + x["bias"], approximate="tanh"),
        lambda x: _with_activation(x, True),
        ("bias",),
    ),
    "silu": Case(("silu",), lambda _, p: F.silu(p)),
    "residual": Case(
        ("residual",),
        lambda x, p: p + x["residual"],
        lambda x: torch.addmm(x["residual"], x["a"], x["b"]),
        ("residual",),
    ),
    "beta": Case((), lambda x, p: p + x["residual"], lambda x: x["sum"].addmm_(x["a"], x["b"]), ("residual",)),
    "swiglu": Case(("swiglu",), lambda _, p: _halves(p)),
}


def _halves(p: Any) -> Any:
    gate, up = p.chunk(2, -1)
    return F.silu(gate) * up


# --- contenders -----------------------------------------------------------------------------------


def matrices(shape: Shape, name: str) -> Matrices:
    """Of one launch. Sums have a variance of about one, so that functions are not at their ends everywhere."""
    m, n, k = shape
    cols = n * 2 if name == "swiglu" else n
    b = (torch.randn(cols, k, device="cuda") / math.sqrt(k)).to(torch.bfloat16).T

    def new(*size: int) -> Any:
        return torch.randn(*size, device="cuda").to(torch.bfloat16)

    found = {"a": new(m, k), "b": b, "bias": new(n), "scale": new(n), "residual": new(m, n)}
    out, plain = (torch.full((m, x), float("nan"), dtype=torch.bfloat16, device="cuda") for x in (n, cols))
    if name == "beta":  # C itself, which each launch adds to
        out = found["residual"].clone()
    return {**found, "out": out, "plain": plain, "sum": found["residual"].clone()}


def operands(shape: Shape, name: str) -> list[Matrices]:
    """As often as it takes to be larger than the cache."""
    m, n, k = shape
    one = (m * k + n * k + m * n) * SIZE
    return [matrices(shape, name) for _ in range(max(2, min(24, ROTATED // one + 1)))]


def ours(case: Case, name: str, x: Matrices) -> Any:
    """By choice."""
    if name == "beta":
        return gemmgen.gemm(x["a"], x["b"], x["out"], beta=1, out=x["out"])
    given = {each: x[each] for each in case.added}
    return gemmgen.gemm(x["a"], x["b"], epilogue=case.ours, out=x["out"], **given)


def in_two(x: Matrices) -> Any:
    """SwiGLU by two products."""
    n, functions = x["out"].shape[1], ("silu", "expr: acc * residual")
    up = gemmgen.gemm(x["a"], x["b"][:, n:], out=x["plain"][:, :n])
    return gemmgen.gemm(x["a"], x["b"][:, :n], epilogue=functions, residual=up, out=x["out"])


def compiled(case: Case, mode: str | None) -> Callable[[Matrices], Any]:
    """`torch.compile` of the expression."""

    def expression(x: Matrices) -> Any:
        return case.torch(x, x["a"] @ x["b"])

    return torch.compile(expression, dynamic=False, mode=mode)


def calls(case: Case, name: str, skipped: Collection[str]) -> dict[str, Callable[[Matrices], Any]]:
    """Of each contender that is not skipped."""
    found: dict[str, Callable[[Matrices], Any]] = {
        "ours": lambda x: ours(case, name, x),
        "our plain": lambda x: gemmgen.gemm(x["a"], x["b"], out=x["plain"]),
        "plain": lambda x: torch.matmul(x["a"], x["b"], out=x["plain"]),
    }
    if name == "swiglu":
        found["in two"] = in_two
    if case.cublas is not None:
        found["cublas"] = case.cublas
    found["compile"] = compiled(case, None)
    found["autotune"] = compiled(case, "max-autotune-no-cudagraphs")
    return {each: call for each, call in found.items() if each not in skipped}


def right(case: Case, x: Matrices, result: Any) -> bool:
    """Whether it is about what float32 gives."""
    wide = {name: value.float() for name, value in x.items() if name not in ("out", "plain", "sum")}
    wanted = case.torch(wide, wide["a"] @ wide["b"])
    return bool(((result.float() - wanted).abs().max() < OFF * wanted.abs().max()).item())


def prepared(request: tuple[str, Shape, frozenset[str]]) -> None:
    """Compile what a case runs, which stays on disk."""
    name, shape, skipped = request
    torch.compiler.reset()
    with suppress(Exception):  # said when it is timed
        x = matrices(shape, name)
        for call in calls(CASES[name], name, {*skipped, "autotune"}).values():
            call(x)


# --- measuring ------------------------------------------------------------------------------------


def contenders(name: str, shape: Shape, skipped: Collection[str]) -> Iterator[Contender]:
    """Graphs of all that run, compared before."""
    case, given = CASES[name], operands(shape, name)
    for each, call in calls(case, name, skipped).items():

        def launch(x: Matrices, _: None, __: None, call: Callable[[Matrices], Any] = call) -> Any:
            return call(x)

        try:
            result = call(given[-1])
            if "plain" not in each and not right(case, given[-1], result):
                print(f"# {each} is WRONG: {name} at {shape}", flush=True)
            yield captured(each, launch, [(x, None, None) for x in given])
        except (RuntimeError, ValueError, TypeError, torch._dynamo.exc.TorchDynamoException) as error:
            print(f"# {each} is left out: {name} at {shape}: {str(error).splitlines()[0][:150]}", flush=True)


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, tenth and ninetieth percentile."""
    tenths = quantiles(values, n=10)
    return median(values), tenths[0], tenths[-1]


def measure(name: str, shape: Shape, rate: float, skipped: Collection[str]) -> dict[str, Any]:
    """A row; `rate` is of a copy, in bytes a microsecond."""
    case, found = CASES[name], list(contenders(name, shape, skipped))
    for _ in range(ROUNDS):
        for each in found:
            each.time()
    times, (m, n, _) = {each.name: each.times for each in found}, shape
    if "ours" not in times:
        return {"epilogue": name, "shape": shape}
    moved = sum(m * n if x == "residual" else n for x in case.added) * SIZE
    plain = [min(pair) for pair in zip(*(times[x] for x in ("our plain", "plain") if x in times), strict=True)]
    target = [(us + moved / rate) * case.allowed for us in plain]
    ratios = {
        other: spread([b / a for a, b in zip(times["ours"], of, strict=True)])
        for other, of in (("target", target), *times.items())
        if other != "ours"
    }
    us = {each: median(x) for each, x in times.items()}
    return {"epilogue": name, "shape": shape, "us": us, "target_us": median(target), "ratios": ratios}


def line(row: dict[str, Any]) -> str:
    """The ratio to the target first."""
    size = "x".join(map(str, row["shape"]))
    if "ratios" not in row:
        return f"       {row['epilogue']} {size}: ours is missing"
    to, low, high = row["ratios"]["target"]
    others = "  ".join(f"{x} {r[0]:.2f}" for x, r in row["ratios"].items() if x != "target")
    us = f"{row['us']['ours']:.1f} us, target {row['target_us']:.1f}"
    return f"{to:.3f} ({low:.2f}-{high:.2f})  {row['epilogue']:9} {size:16} {us}; {others}"


def mean(values: Sequence[float]) -> float:
    """Geometric."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Of each epilogue, over its shapes: geometric mean and worst of the ratios."""
    for name in dict.fromkeys(row["epilogue"] for row in rows):
        found = [row["ratios"] for row in rows if row["epilogue"] == name and "ratios" in row]
        others = ("target", "our plain", "plain", "in two", "cublas", "compile", "autotune")
        values = {other: [x[other][0] for x in found if other in x] for other in others}
        yield f"{name:9} " + "  ".join(f"{key} {mean(of):.2f} ({min(of):.2f})" for key, of in values.items() if of)


def main() -> None:
    """A line for each, and a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epilogues", default=",".join(CASES))
    parser.add_argument("--drawn", type=int, default=3, help="drawn shapes besides the named ones")
    parser.add_argument("--named", type=int, default=len(SHAPES), help="so many of the named ones")
    parser.add_argument("--commit", default="epilogues", help="what shapes are drawn by")
    parser.add_argument("--skip", default="autotune", help="contenders to leave out: autotune, compile, cublas, plain")
    parser.add_argument("--jobs", type=int, default=12, help="processes that compile, before anything is timed")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further row is begun after so many")
    parser.add_argument("--json", type=Path)
    said, begin = parser.parse_args(), time.perf_counter()
    large = (x for x, _ in drawn(said.commit, "bfloat16", 10_000, ["row,col"]) if min(x[:2]) >= LEAST)
    shapes = [*SHAPES[: said.named], *islice((x for x in large if not any(size % 8 for size in x[1:])), said.drawn)]
    skipped = frozenset(said.skip.split(","))
    plan = [(name, shape, skipped) for shape in shapes for name in said.epilogues.split(",")]
    with get_context("spawn").Pool(said.jobs) as pool:
        pool.map(prepared, plan, chunksize=1)
    rate, rows = copy_rate(), list[dict[str, Any]]()
    print(f"# {pick()}, copy {rate * 1e-6:.2f} TB/s, compiled in {time.perf_counter() - begin:.0f} s", flush=True)
    for name, shape, _ in plan:
        if time.perf_counter() - begin > said.seconds:
            print("# no time for more", flush=True)
            break
        rows.append(measure(name, shape, rate, skipped))
        print(line(rows[-1]), flush=True)
        torch.compiler.reset()
        if said.json:
            said.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print("\nours, of each: geometric mean (worst)", *summary(rows), sep="\n")


if __name__ == "__main__":
    main()
