"""What a second GPU of a machine brings: to a search, and to a product of dask's arrays.

    python benchmarks/two_gpus.py --seconds 60 --size 65536 --json two_gpus.json

Trials a minute of `gemmgen tune --local` with one worker and with two, for the same product and from no records. Then
a product of float16 matrices by `gemmgen.dask.matmul`, x in two blocks of rows and y on each GPU beforehand; the same
blocks on one GPU; and from host arrays, of a quarter of the size. Sums of small whole numbers are compared with NumPy's
in some rows and columns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

if TYPE_CHECKING:
    import cupy
    import dask.array as da
    import numpy.typing as npt
    from distributed import Client

#: Timed products, and rows of a matrix until they repeat.
ROUNDS, REPEATED = 5, 4096


def trials(workers: int, seconds: float) -> float:
    """Trials a minute of a search by so many workers."""
    command = [sys.executable, "-m", "gemmgen", "tune", "--backend", "cuda", "--shapes", "3000x3000x3000"]
    command += ["--dtype", "bfloat16", "--local", str(workers), "--minutes", str(seconds / 60), "--json"]
    with tempfile.TemporaryDirectory() as folder:
        kept = {"XDG_DATA_HOME": folder, "XDG_CACHE_HOME": folder}
        done = subprocess.run(command, env={**os.environ, **kept}, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        row = json.loads(done.stdout)["tuned"][0]
    print(f"tune, {workers} workers: {row}", flush=True)
    return float(row["measured"] + row["failed"]) / seconds * 60


def drawn(seed: int, rows: int, columns: int) -> cupy.ndarray:
    """Small whole numbers on the worker's GPU."""
    import cupy

    few = cupy.random.default_rng(seed).integers(-2, 3, (min(rows, REPEATED), columns)).astype(np.float16)
    return cupy.tile(few, (rows // len(few), 1))


def spread(client: Client, workers: list[str], rows: int, columns: int) -> da.Array:
    """A matrix of a block of rows on each of these workers, under the names by which dask knows them."""
    import dask.array as da
    from distributed import wait

    name = f"drawn-{time.time()}"
    blocks = {
        (name, i, 0): client.submit(drawn, i, rows, columns, workers=[worker], key=(name, i, 0))
        for i, worker in enumerate(workers)
    }
    wait(list(blocks.values()))
    return da.Array(blocks, name, ((rows,) * len(workers), (columns,)), meta=np.empty((0, 0), np.float16))


def on_gpus(client: Client, workers: list[str], size: int) -> tuple[float, bool]:
    """Seconds of a product whose x is spread over workers and whose y each of them has; whether it was right."""
    from distributed import futures_of, wait

    import gemmgen.dask

    x = spread(client, [workers[i % len(workers)] for i in range(2)], size // 2, size)
    y = spread(client, workers[:1], size, size)
    if len(workers) > 1:
        # Else the scheduler drops copies after two seconds, and each product sends y again.
        client.amm.stop()
        client.replicate(futures_of(y))
    times = []

    def made() -> da.Array:
        begin = time.perf_counter()
        kept = client.persist(gemmgen.dask.matmul(x, y).map_blocks(_synchronized))
        wait(kept)
        times.append(time.perf_counter() - begin)
        return kept

    kept = made()
    some = client.compute(kept[:: size // 4, :: size // 4]).result()
    for _ in range(ROUNDS):
        # Else the next product is taken for this one.
        client.cancel(kept)
        time.sleep(0.5)
        kept = made()
    left, right = (client.compute(each).result() for each in (x[:: size // 4], y[:, :: size // 4]))
    expected = left.get().astype(np.float64) @ right.get().astype(np.float64)
    return median(times[1:]), bool(np.array_equal(some.get(), expected.astype(np.float16)))


def _synchronized(block: cupy.ndarray) -> cupy.ndarray:
    import cupy

    cupy.cuda.Device().synchronize()
    return block


def _to_gpu(block: npt.NDArray[np.float16]) -> cupy.ndarray:
    import cupy

    return cupy.asarray(block)


def _from_gpu(block: cupy.ndarray) -> npt.NDArray[np.float16]:
    import cupy

    return cast("npt.NDArray[np.float16]", cupy.asnumpy(block))


def from_host(size: int) -> float:
    """Seconds of a product of NumPy's arrays, which workers copy to their GPUs."""
    import dask.array as da

    import gemmgen.dask

    rng = np.random.default_rng(0)
    x, y = (rng.integers(-2, 3, (size, size), dtype=np.int8).astype(np.float16) for _ in range(2))
    times = []
    for _ in range(3):
        there = (da.from_array(each, chunk).map_blocks(_to_gpu) for each, chunk in ((x, (size // 2, size)), (y, size)))
        product = gemmgen.dask.matmul(*there).map_blocks(_from_gpu)
        begin = time.perf_counter()
        product.compute()
        times.append(time.perf_counter() - begin)
    return min(times)


def products(size: int) -> dict[str, object]:
    """One GPU beside two."""
    import distributed

    from gemmgen.tuning.workers import VISIBLE, _gpus

    found: dict[str, object] = {}
    gpus = _gpus(None)
    if len(gpus) < 2:
        raise SystemExit("one GPU here: this compares two")
    hub = {"cls": distributed.Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard": False}}
    for count in (1, 2):
        made = {
            f"gpu {i}": {
                "cls": distributed.Nanny,
                "options": {"nthreads": 1, "memory_limit": 0, "env": {VISIBLE: gpus[i]}},
            }
            for i in range(count)
        }
        cluster = distributed.SpecCluster(workers=made, scheduler=hub, silence_logs=40)
        with cluster, distributed.Client(cluster) as client:
            seconds, is_right = on_gpus(client, list(made), size)
            host = from_host(size // 4)
        found[f"{count}"] = {"seconds": seconds, "right": is_right, "from host, size / 4": host}
        rate = 2 * size**3 / seconds / 1e12
        print(f"{size} cubed, {count} GPUs: {seconds:.3f} s, {rate:.0f} TFLOP/s, right: {is_right}", flush=True)
        print(f"{size // 4} cubed from host arrays, {count} GPUs: {host:.3f} s", flush=True)
    return found


def main() -> None:
    """Print, and keep where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--size", type=int, default=65536)
    parser.add_argument("--json", type=Path)
    said = parser.parse_args()
    found: dict[str, object] = {"products": products(said.size)}
    one, two = (trials(count, said.seconds) for count in (1, 2))
    found["trials a minute"] = [one, two]
    print(f"trials a minute: {one:.1f} by one, {two:.1f} by two: {two / one:.2f}")
    if said.json:
        said.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
