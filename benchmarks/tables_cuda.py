"""The tables of tensor cores beside cuBLAS: for each size the best of the presets, type by type, on this machine's GPU.

    python benchmarks/tables_cuda.py FOLDER                     # all of them; FOLDER/NAME.json
    python benchmarks/tables_cuda.py FOLDER float16 columns     # some

Each row is a call of `gemmgen bench --best`, whose command line stands in its file, of the presets that the chooser's
model puts first (all, where it knows none). They share a process, and all kernels are compiled beforehand, by processes
side by side: compiling is most of the work. CuPy and torch are needed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen import candidates, driver
from gemmgen.bench.records import Size, parse_sizes
from gemmgen.choice import prior
from gemmgen.choice.machine import machine_of
from gemmgen.cli.bench import bench
from gemmgen.cli.request import Request
from gemmgen.errors import GemmgenError
from gemmgen.options import schedule_to_toml
from gemmgen.runtime import variants
from gemmgen.runtime.cuda import CudaKernel
from gemmgen.runtime.cuda_devices import pick, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Sizes of the table of issue 7, and those of types for which there are fewer goals.
WHOLE = (
    "512,1000,1024,1536,2048,3072,4096,8192,16384,4095,4096x14336x4096,128x14336x4096,64x4096x14336,16x4096x4096,"
    "64x64x65536"
)
#: Presets that are tried at a size, of those that the model knows.
TRIED = 5
LARGE = "1024,2048,4096,8192,16384"
CUBES = "512,1024,1536,2048,3072,4096,8192,16384"
#: What column-major lines of B say in a preset's table.
BY_COLUMNS = '\n[spec]\nb_order = "col"\n'

# Sizes share all kernels.
driver.emit = cache(driver.emit)  # type: ignore[assignment]


@dataclass(frozen=True)
class Table:
    """A call of `gemmgen bench`.

    Attributes:
        family: what the atoms of its presets are.
        dtype: instead of the presets' own.
        columns: whether B is column-major.
        rows: whether it is row-major, so that presets for the other order alone are left out.
    """

    family: tuple[str, ...]
    sizes: str
    dtype: str | None = None
    peer: str = "cublas"
    columns: bool = False
    rows: bool = False

    @property
    def names(self) -> list[str]:
        """The presets."""
        loaded = [(name, candidates.load(name)) for name in candidates.names()]
        family = [(name, x.spec.b_order) for name, x in loaded if x.schedule.atom in self.family]
        return [name for name, b_order in family if not self.rows or b_order == "row"]


TABLES = {
    "bfloat16": Table(("wgmma",), WHOLE, rows=True),
    "float16": Table(("wgmma",), WHOLE, "float16", rows=True),
    "columns": Table(("wgmma",), WHOLE, columns=True),
    "float8": Table(("wgmma_f8",), CUBES),
    "tf32": Table(("wgmma_tf32",), CUBES, peer="cublas_tf32"),
    "3xtf32": Table(("wgmma_3xtf32",), "512," + LARGE),
    "3xtf32_by_warps": Table(("mma_3xtf32",), "512," + LARGE),
}


def by_columns(name: str, folder: Path) -> Path:
    """A schedule for a column-major B, as a file."""
    path, known = folder / f"{name}_columns.toml", candidates.load(name)
    text = schedule_to_toml(replace(known.schedule, name=path.stem))
    what = f'dtype = "{known.spec.dtype}"\nld_multiple = {known.spec.ld_multiple}\n'
    path.write_text(f"{text}{BY_COLUMNS}{what}", encoding="utf-8")
    return path


def requests(table: Table, folder: Path) -> list[Request]:
    """The kernels of a table."""
    if table.columns:
        return [Request(schedule_file=by_columns(name, folder)) for name in table.names]
    return [Request(preset=name, dtype=table.dtype) for name in table.names]


def kernels(table: Table, folder: Path) -> Iterator[tuple[GemmSpec, Schedule]]:
    """The same, and their variants for matrices that meet assumptions."""
    for request in requests(table, folder):
        spec, schedule, *_ = request.resolve()
        yield spec, schedule
        if spec.ld_multiple == 1:
            for assumed in variants.more_assumptions(spec, schedule):
                yield assumed, schedule


def build(kernel: tuple[GemmSpec, Schedule]) -> None:
    """Compile it, which stays on disk."""
    gpu = pick()
    with suppress(Exception):  # said when it would be timed
        CudaKernel.from_source(driver.emit(*kernel, "cuda", target_of(gpu)), gpu)


def likely(table: Table, size: Size) -> list[str]:
    """The presets that can be fastest at a size, and that its lines allow."""
    ranked = []
    for name in table.names:
        preset = candidates.load(name)
        spec, shape = preset.spec, (size.m, size.n, size.k)
        if size.n % spec.ld_unit("b") == size.k % spec.ld_unit("a") == 0:
            (cost,) = prior.costs(spec, [preset.schedule], shape, machine_of(target_of(pick())))
            ranked.append((cost, name))
    return [name for _, name in sorted(ranked)][:TRIED]


def measure(table: Table, path: Path, folder: Path) -> None:
    """One table; its figures to a file."""
    found: dict[str, list[object]] = {"about": [], "rows": []}
    for size in parse_sizes(table.sizes):
        names = likely(table, size)
        files = [by_columns(name, folder) for name in names] if table.columns else []
        named = [f"--schedule {file.name}" for file in files] or ["--preset " + ",".join(names)]
        kind = ["--dtype", table.dtype] if table.dtype else []
        sys.argv[1:] = ["bench", "--best", *" ".join(named).split(), *kind, "--sizes", str(size), "--vs", table.peer]
        one = folder / "one.json"
        chosen = [] if files else names
        try:
            bench(
                preset=chosen,
                schedule=files,
                best=True,
                sizes=str(size),
                vs=table.peer,
                dtype=table.dtype,
                json=one,
            )
        except typer.Exit as end:
            if end.exit_code:
                print(f"{path.stem} {size}: a result is wrong", flush=True)
            told = json.loads(one.read_text(encoding="utf-8"))
            found["about"].append(told["about"])
            found["rows"] += told["rows"]
            path.write_text(json.dumps(found, indent=1), encoding="utf-8")
        except GemmgenError as error:
            print(f"{path.stem} {size}: {error}", flush=True)


def main() -> None:
    """Measure the tables that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(TABLES)}")
    parser.add_argument("--jobs", type=int, default=15, help="processes that compile")
    arguments, begin = parser.parse_args(), time.perf_counter()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    wanted = {name: TABLES[name] for name in arguments.names or TABLES}
    with tempfile.TemporaryDirectory() as written:
        needed = [kernel for table in wanted.values() for kernel in kernels(table, Path(written))]
        with get_context("spawn").Pool(arguments.jobs) as pool:
            pool.map(build, needed, chunksize=1)
        print(f"{len(needed)} kernels compiled within {time.perf_counter() - begin:.0f} s", flush=True)
        for name, table in wanted.items():
            measure(table, arguments.folder / f"{name}.json", Path(written))
            print(f"== {name}, {time.perf_counter() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
