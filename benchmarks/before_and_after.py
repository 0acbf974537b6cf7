"""Speed of emitted CUDA files beside the same files of another commit, on this machine's GPU.

    mkdir old && for f in $(git ls-tree --name-only 26f4535e generated/cuda/); do
        git show 26f4535e:$f > old/$(basename $f); done
    python benchmarks/before_and_after.py old generated/cuda

Files of one name are compiled by nvcc into libraries and called by their own launchers. Launches of each are captured
in a graph and replayed in pairs, the order changing from pair to pair. Operands are random; each launch takes the next
of several sets, which together exceed twice the L2 cache. The ratio is before / after: above 1, the later is faster.
torch is needed, since it has all types. With --json FILE all ratios are kept.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from statistics import median

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen import candidates
from gemmgen.bench.records import Size, median_interval, parse_sizes

#: The least duration of a replay of a graph, and the launches in it, where the sets of operands need no more.
REPLAY, LAUNCHES = 0.002, 2
#: Of a preset at a size: the time of all pairs, and their number.
SECONDS, PAIRS = 0.25, (7, 41)
#: Bytes of each array of packed operands or partial sums: more than any file needs at sizes up to 4096.
WORKSPACE = 1 << 30
C_TYPES = {"int": ctypes.c_int, "float": ctypes.c_float, "double": ctypes.c_double}
TENSOR_TYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "__half": torch.float16,
    "__nv_bfloat16": torch.bfloat16,
    "__nv_fp8_e4m3": torch.float8_e4m3fn,
    "signed char": torch.int8,
    "int": torch.int32,
}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a launcher."""

    type: str
    name: str

    @property
    def element(self) -> torch.dtype:
        """Of what it points to."""
        return TENSOR_TYPES[self.type.removeprefix("const ").rstrip(" *")]


@dataclass
class File:
    """An emitted file, compiled; its launcher, with the types of the parameters."""

    parameters: tuple[Parameter, ...]
    launcher: ctypes._CFuncPtr

    @classmethod
    def compile(cls, source: Path, into: Path, architecture: str) -> File:
        """By nvcc, into a shared library."""
        text = source.read_text(encoding="utf-8")
        found = re.search(rf"cudaError_t\s+{source.stem}_launch\((.*?)\)\s*{{", text, re.DOTALL)
        assert found, f"{source} has no launcher"
        parameters = []
        for parameter in found[1].split(","):
            kind, star, name = re.fullmatch(r"\s*([\w\s]+?)\s*(\*?)(\w+)\s*", parameter).groups()  # type: ignore[union-attr]
            parameters.append(Parameter(kind + star, name))
        into.mkdir(parents=True, exist_ok=True)
        library = into / f"{source.stem}.so"
        code = f"arch=compute_{architecture},code=sm_{architecture}"
        options = ["-std=c++17", "-O3", "-gencode", code, "-shared", "-Xcompiler", "-fPIC"]
        subprocess.run(["nvcc", *options, "-o", str(library), str(source)], check=True)
        launcher = getattr(ctypes.CDLL(str(library)), f"{source.stem}_launch")
        launcher.argtypes = [C_TYPES.get(p.type, ctypes.c_void_p) for p in parameters]
        return cls(tuple(parameters), launcher)

    def launch(self, values: dict[str, object]) -> int:
        """Queue one product on the current stream; CUDA's error number."""
        stream = torch.cuda.current_stream().cuda_stream
        known = {**values, "stream": stream}
        return int(self.launcher(*(known[p.name] for p in self.parameters)))


@dataclass
class Operands:
    """Sets of A, B and C of a preset at a size, and all other arguments of its launcher."""

    sets: list[tuple[torch.Tensor, ...]]
    scalars: dict[str, object]
    others: dict[str, torch.Tensor]

    @classmethod
    def random(cls, file: File, orders: tuple[str, str], size: Size, beta: float, aligned: bool) -> Operands:
        """As many sets as twice the L2 cache takes, normal numbers; lines as close as the sizes allow, or aligned."""
        kinds = {p.name: p.element for p in file.parameters if p.type.endswith("*")}
        shapes = {"a": (size.m, size.k), "b": (size.k, size.n), "c": (size.m, size.n)}
        stored = {x: shape[::-1] if order == "col" else shape
                  for (x, shape), order in zip(shapes.items(), (*orders, "row"), strict=True)}  # fmt: skip
        pitches = {x: -(-length // 16) * 16 if aligned else length for x, (_, length) in stored.items()}
        bytes_of_set = sum(lines * pitches[x] * kinds[x].itemsize for x, (lines, _) in stored.items())
        cache = torch.cuda.get_device_properties(0).L2_cache_size
        sets = [
            tuple(_matrix(stored[x][0], pitches[x], kinds[x]) for x in "abc")
            for _ in range(2 + 2 * cache // bytes_of_set)
        ]
        number = int if any(p.name == "alpha" and p.type == "int" for p in file.parameters) else float
        scalars = {"m": size.m, "n": size.n, "k": size.k, "alpha": number(1), "beta": number(beta)}
        scalars |= {f"ld{x}": pitch for x, pitch in pitches.items()}
        extra = [x for x in kinds if x not in "abc"]
        return cls(sets, scalars, {x: torch.zeros(WORKSPACE, dtype=torch.uint8, device="cuda") for x in extra})

    def values(self, index: int) -> dict[str, object]:
        """The arguments of a launch with one of the sets."""
        named = dict(zip("abc", self.sets[index % len(self.sets)], strict=True)) | self.others
        return self.scalars | {x: tensor.data_ptr() for x, tensor in named.items()}


def _matrix(lines: int, pitch: int, kind: torch.dtype) -> torch.Tensor:
    if not kind.is_floating_point:
        return torch.randint(-8, 9, (lines, pitch), dtype=kind, device="cuda")
    return torch.randn((lines, pitch), dtype=torch.float64 if kind == torch.float64 else torch.float32,
                       device="cuda").to(kind)  # fmt: skip


def same_result(files: tuple[File, File], operands: Operands) -> str:
    """Whether both compute the same bits, or how far they are apart, relative to the result's norm."""
    c, found = operands.sets[0][2], []
    before = c.clone()
    for file in files:
        c.copy_(before)
        error = file.launch(operands.values(0))
        assert not error, f"CUDA error {error}"
        torch.cuda.synchronize()
        found.append(c.clone())
    c.copy_(before)
    if torch.equal(*found):
        return "same"
    first, second = (x.double() for x in found)
    return f"{float((first - second).norm() / second.norm()):.1e}"


def captured(file: File, operands: Operands, launches: int) -> torch.cuda.CUDAGraph:
    """A graph of some launches, each with the next set of operands."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for i in range(launches):
            error = file.launch(operands.values(i))
            assert not error, f"CUDA error {error}"
    return graph


def seconds(graph: torch.cuda.CUDAGraph) -> float:
    """Of one replay, on the device."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


def compare(files: tuple[File, File], operands: Operands) -> tuple[list[float], float]:
    """Ratios before / after of all pairs, and the median time of a launch of the later file."""
    least = max(LAUNCHES, len(operands.sets))
    probe = captured(files[1], operands, least)
    seconds(probe)
    launches = max(least, min(1000, int(REPLAY / seconds(probe) * least)))
    graphs = [captured(file, operands, launches) for file in files]
    for graph in graphs:
        once = seconds(graph)
    pairs = max(PAIRS[0], min(PAIRS[1], int(SECONDS / 2 / once)))
    ratios, times = [], []
    for i in range(pairs):
        taken = {x: seconds(graphs[x]) for x in ((0, 1), (1, 0))[i % 2]}
        ratios.append(taken[0] / taken[1])
        times.append(taken[1] / launches)
    return ratios, median(times)


def measure(name: str, files: tuple[File, File], size: Size, beta: float) -> dict[str, object]:
    """One preset at one size; printed as well."""
    spec = candidates.load(name).spec
    for aligned in (False, True):
        operands = Operands.random(files[1], (spec.a_order, spec.b_order), size, beta, aligned)
        if not any(file.launch(operands.values(0)) for file in files):
            break
    result = same_result(files, operands)
    ratios, taken = compare(files, operands)
    interval = median_interval(tuple(ratios))
    assert interval is not None
    speed = 2 * size.m * size.n * size.k / taken / 1e12
    middle = median(ratios)
    print(
        f"{name:34} {size!s:>15} {beta:4g} {'padded' if aligned else '':6} {speed:8.2f} {middle:7.4f} "
        f"{interval.low:7.4f} {interval.high:7.4f} {len(ratios):4} {result:>8}{'  slower' if middle < 0.99 else ''}",
        flush=True,
    )
    about = {"preset": name, "size": str(size), "beta": beta, "padded": aligned, "result": result}
    return {**about, "tflops": speed, "ratio": middle, "low": interval.low, "high": interval.high, "ratios": ratios}


def main() -> None:
    """A line for each preset and size; then how many are slower."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("presets", nargs="*", help="all that stand in both folders if none is named")
    parser.add_argument("--sizes", default="4096,1024,2047x2049x2050")
    parser.add_argument("--betas", default="0,0,0.5", help="one for each size")
    parser.add_argument("--libraries", type=Path, default=Path("/tmp/before_and_after"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    major, minor = torch.cuda.get_device_capability()
    architecture = f"{major}{minor}" + ("a" if major == 9 else "")
    folders = (arguments.before, arguments.after)
    names = arguments.presets or sorted(
        file.stem for file in folders[0].glob("*.cu") if (folders[1] / file.name).exists()
    )
    begin = time.perf_counter()
    with ThreadPoolExecutor() as pool:
        jobs = [[pool.submit(File.compile, folder / f"{name}.cu", arguments.libraries / str(side), architecture)
                 for side, folder in zip(count(), folders)] for name in names]  # fmt: skip
        compiled = {name: (old.result(), new.result()) for name, (old, new) in zip(names, jobs, strict=True)}
    device = torch.cuda.get_device_name()
    print(f"{device}, {datetime.now(UTC):%Y-%m-%d}; {2 * len(names)} files in {time.perf_counter() - begin:.0f} s")
    print(
        f"{'preset':34} {'size':>15} beta {'':6} {'TFLOP/s':>8} {'ratio':>7} {'95 %':>7} {'':7} {'n':>4} {'result':>8}"
    )
    sizes = [parse_sizes(size)[0] for size in arguments.sizes.split(",")]
    cases = list(zip(sizes, map(float, arguments.betas.split(",")), strict=True))
    rows = [measure(name, compiled[name], size, beta) for name in names for size, beta in cases]
    slower = sorted((row["ratio"], row["preset"], row["size"]) for row in rows if row["ratio"] < 0.99)  # type: ignore[operator, type-var]
    print(f"{len(rows)} compared, {len(slower)} slower by more than 1 %, {time.perf_counter() - begin:.0f} s")
    if arguments.json:
        about = {"device": device, "command": " ".join(sys.argv), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
        arguments.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
