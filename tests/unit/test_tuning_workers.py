"""Workers of a cluster of this machine's, a GPU each. They start without any GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("distributed", reason='needs Dask: pip install "gemmgen[tune]"')

#: That compiling workers have no device to measure on shows in who runs what asks for one.
CODE = """
import os
import distributed
from gemmgen.tuning.workers import RESOURCE, VISIBLE, _workers_of_gpus

if __name__ == "__main__":
    workers, compilers = _workers_of_gpus(2, ["4", "7"])
    hub = {"cls": distributed.Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard": False}}
    with distributed.SpecCluster(workers=workers, scheduler=hub) as cluster, distributed.Client(cluster) as client:
        seen = [client.submit(os.getenv, VISIBLE, resources={RESOURCE: 1}, pure=False) for _ in range(8)]
        here = client.run(lambda dask_worker: (str(dask_worker.name), os.environ[VISIBLE]))
        pairs = sorted(pair for pair in here.values() if pair[0] not in compilers)
        print(pairs, {each.result() for each in seen} <= {"4", "7"}, len(here) == 2 + len(compilers))
"""


def test_each_worker_has_one_gpu() -> None:
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=200, check=False)
    assert result.stdout.strip() == "[('device 0', '4'), ('device 1', '7')] True True", result.stderr[-2000:]
