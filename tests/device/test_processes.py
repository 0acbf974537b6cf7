"""Calls in processes of their own: threads whose first calls meet, caches that can't be written to, Ctrl-C in the
midst of a kernel, and threads that are still at it when the process ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gemmgen.runtime import cache, waiting
from gemmgen.runtime.opencl_devices import DeviceInfo
from tests.device.naive import DEVICES

PROCESSES = 20
#: Their first calls differ in type, so that each asks for a kernel of its own on the same device.
THREADS = """
import sys
import threading
import numpy as np
import gemmgen

wrong, together = [], threading.Barrier(8)

def calls(dtype):
    a = np.ones((24, 24), dtype)
    together.wait()
    try:
        assert all((gemmgen.gemm(a, a, device=DEVICE) == 24).all() for _ in range(3))
    except BaseException as error:
        wrong.append(f"{dtype.__name__}: {error!r}")

types = [np.float32, np.float64, np.float16, np.int8, np.complex64, np.complex128, np.float32, np.float64]
threads = [threading.Thread(target=calls, args=(dtype,)) for dtype in types]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit("; ".join(wrong) or None)
"""
#: A kernel of seconds, slow on purpose.
LONG = """
import sys
import time
import numpy as np
import gemmgen

def started():
    print("started", flush=True)

kernel = gemmgen.compile(None, "naive", device=DEVICE)
small, a, b = np.ones((8, 8), np.float32), np.ones((1700, 1700), np.float32), np.ones((1700, 1700), np.float32)
large = np.ones((256, 256), np.float32)
kernel(small, small)
kernel(large, large)
"""
#: Seconds that the kernel above has yet to run when Ctrl-C comes, half a second after it began, at least.
LEFT_OVER = 0.3
#: Seconds in which a process ends that has no reason not to; the kernel takes longer on the machine that is fastest.
SOON = 10

on_all = pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.platform.split()[0])


def environment(folder: Path | str, off: str = "answers") -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(folder), cache.OFF: off}


def run(code: str, device: DeviceInfo, folder: Path | str, off: str = "") -> subprocess.CompletedProcess[str]:
    """With warnings as errors."""
    command = [sys.executable, "-W", "error", "-c", code.replace("DEVICE", str(device.number))]
    return subprocess.run(command, capture_output=True, text=True, env=environment(folder, off), timeout=200)


@pytest.mark.parametrize("device", DEVICES[-1:], ids=lambda device: device.platform.split()[0])
def test_threads_whose_first_calls_meet(device: DeviceInfo, tmp_path: Path) -> None:
    """Two contexts of one device, and one of them gone, was what most such processes ended up with. The first process
    has nothing to find on disk, so that its threads compile at the same time, of which no warning comes out.
    """
    results = [run(THREADS, device, tmp_path)]
    with ThreadPoolExecutor(2) as pool:
        results += pool.map(lambda _: run(THREADS, device, tmp_path), range(PROCESSES - 1))
    assert [(result.returncode, result.stderr) for result in results] == [(0, "")] * PROCESSES


@pytest.mark.parametrize("device", DEVICES[-1:], ids=lambda device: device.platform.split()[0])
def test_where_nothing_can_be_kept_it_computes_and_says_so_once(device: DeviceInfo, tmp_path: Path) -> None:
    """PoCL is none of the platforms then: it ends where it can keep nothing."""
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    code = THREADS.replace("DEVICE", repr(device.name))
    result = run(code, device, in_the_way)
    assert result.returncode == 0, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("gemmgen keeps nothing on disk")
    assert str(in_the_way) in line
    assert in_the_way.read_bytes() == b""
    quiet = run(code, device, in_the_way, "1")
    assert (quiet.returncode, quiet.stderr) == (0, "")


def interrupted(command: list[str], after: str, seconds: float, folder: Path) -> tuple[int, float, str, str]:
    """The exit code of a process that gets a SIGINT some seconds after it has said something, the seconds that it takes
    to end, and all that it said.
    """
    process = subprocess.Popen(
        command, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    said = ""
    while after not in said:
        line = process.stdout.readline()
        assert line, process.communicate()
        said += line
    time.sleep(seconds)
    assert process.poll() is None, "its kernel is too quick for this test"
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=300)
    return process.returncode, time.monotonic() - begin, said + out, error


@on_all
def test_ctrl_c_ends_the_command(device: DeviceInfo, tmp_path: Path) -> None:
    size = "-M 4000 -N 4000 -K 4000".split()
    command = [sys.executable, "-u", "-m", "gemmgen", "run", "-k", "naive", "-d", str(device.number), *size, "-i", "1"]
    code, seconds, _, error = interrupted(command, "\nnaive", 4, tmp_path)
    assert (code, error) == (130, "")
    assert seconds < SOON


@on_all
def test_ctrl_c_is_heard_in_a_call(device: DeviceInfo, tmp_path: Path) -> None:
    """The kernel goes on, and a call that comes then waits for it; arrays that go meanwhile stay where it works."""
    code = f"""{LONG}
started()
try:
    kernel(a, b)
except KeyboardInterrupt:
    begin = time.monotonic()
del a, b
assert (kernel(large, large) == 256).all()
print(time.monotonic() - begin)
"""
    command = [sys.executable, "-c", code.replace("DEVICE", str(device.number))]
    status, _, said, error = interrupted(command, "started", 0.5, tmp_path)
    assert (status, error) == (0, "")
    assert float(said.splitlines()[1]) > LEFT_OVER


@on_all
@pytest.mark.parametrize("what", ["small, small", "a[:300], b", "a, b", "compile"])
def test_a_daemon_thread_within_a_call_at_exit(device: DeviceInfo, tmp_path: Path, what: str) -> None:
    """The process ends soon and with its own exit code, whether the call takes microseconds or longer than anyone would
    wait, and while a kernel is compiled.
    """
    call = "gemmgen.compile(gemmgen.GemmSpec(m=next(sizes)), 'naive', device=DEVICE)"
    code = f"""{LONG}
import threading
from itertools import count
sizes = count(1)

def calls():
    while True:
        {call if what == "compile" else f"kernel({what})"}

for _ in range(3):
    threading.Thread(target=calls, daemon=True).start()
time.sleep(0.7)
sys.exit(7)
"""
    begin = time.monotonic()
    result = run(code, device, tmp_path, "1" if what == "compile" else "answers")
    assert (result.returncode, result.stderr) == (7, "")
    assert time.monotonic() - begin < SOON + 5


@on_all
def test_short_calls_are_waited_for_as_before(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread waits for what is known to take less than 50 ms; what takes longer has one."""
    import numpy as np

    import gemmgen

    heard: list[int] = []
    original = waiting._heard

    def count(call: Callable[[], object]) -> object:
        heard.append(1)
        return original(call)

    monkeypatch.setattr(waiting, "_heard", count)
    kernel = gemmgen.compile(None, "naive", device=device.handle)
    a = np.ones((96, 96), np.float32)
    for _ in range(5):
        assert (kernel(a, a) == 96).all()
    assert len(heard) == 1, "the first call of a kind, of which nothing is known"
    monkeypatch.setattr(waiting, "SHORT", 0)
    assert (kernel(a, a) == 96).all()
    assert len(heard) == 2
