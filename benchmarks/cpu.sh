#!/usr/bin/env bash
# What is measured on a CPU, by parts; results go to a folder, for benchmarks/results. On an idle machine.
#
#     benchmarks/cpu.sh FOLDER PART...
#     parts: peak small large skinny float64 one_core pocl clblast launch cold choose      (some 25 minutes in all)
#
# DEVICE and POCL are the numbers that `gemmgen devices` gives the runtimes (1 and 0). OpenBLAS is told to run its AVX-512
# kernels, which it does not by itself on processors that it does not know; CORETYPE= (nothing) leaves the choice to it.
# VS names the peers: numpy, or VS=numpy,mkl on Intel's processors.
# PRIORITY is put before each command, such as PRIORITY="chrt -r 1" beside other jobs.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
out=${1:?a folder for the results}
shift
mkdir -p "$out"
device=${DEVICE:-1} pocl=${POCL:-0} priority=${PRIORITY:-} coretype=${CORETYPE-SKYLAKEX}
[ -z "$coretype" ] || export OPENBLAS_CORETYPE=$coretype

bench() { $priority timeout 400 python3 -m gemmgen bench --backend opencl -d "$device" --vs "${VS:-numpy}" "$@"; }

peak() {
    gcc -O2 -mavx512f -mfma -pthread benchmarks/cpu_peak.c -o "$out/cpu_peak" && $priority "$out/cpu_peak"
    rm -f "$out/cpu_peak"
}

small() { bench --sizes 256,512,1000,1023,1024 --rounds 21 --json "$out/small.json"; }

large() { bench --sizes 2048,4096 --rounds 11 --json "$out/large.json"; }

skinny() {
    bench --sizes 64x4096x4096,4096x64x4096,4096x4096x64,100x100x100000,8192x1x8192 --rounds 9 --json "$out/skinny.json"
}

float64() { bench --sizes 512,1024,2048 --dtype float64 --rounds 9 --json "$out/float64.json"; }

one_core() {
    local last=$(($(nproc) - 1))
    OPENBLAS_NUM_THREADS=1 priority="$priority taskset -c $last" \
        bench --sizes 512,1024,2048 --rounds 9 --json "$out/one_core.json"
}

pocl() { device=$pocl bench --sizes 512,1000,1024,2048 --rounds 9 --json "$out/pocl.json"; }

clblast() {
    $priority timeout 400 python3 -m gemmgen bench --backend opencl -d "$device" --vs clblast --sizes 256,512,1024 \
        --rounds 5 --json "$out/clblast.json"
}

launch() {
    for number in "$device" "$pocl"; do
        $priority timeout 100 python3 - "$number" <<'PYTHON'
import statistics
import sys
import time

import numpy as np
import pyopencl.array as cl_array

import gemmgen

number = int(sys.argv[1])
kernel = gemmgen.compile(gemmgen.GemmSpec(), "cpu_6x64", device=number)
a, c = np.ones((16, 16), np.float32), np.zeros((16, 16), np.float32)
b, bias = a.copy(), np.ones(16, np.float32)
there = [cl_array.to_device(kernel.queue, x) for x in (a, b, c)]
calls = {
    "NumPy's arrays": lambda: kernel(a, b, c),
    "arrays on the device": lambda: kernel(*there, return_event=True)[1].wait(),
    "gemmgen.gemm": lambda: gemmgen.gemm(a, b, c, device=number),
    "the same, out=c": lambda: gemmgen.gemm(a, b, out=c, device=number),
    "the same, bias and relu": lambda: gemmgen.gemm(a, b, c, epilogue=["bias", "relu"], bias=bias, device=number),
}
for name, call in calls.items():
    times = []
    for _ in range(420):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    print(f"{kernel.device.name}: 16x16, {name}: {min(times[20:]):.1f} us, median {statistics.median(times[20:]):.1f}")
PYTHON
    done
}

cold() {
    local program='
import time
begin = time.perf_counter()
import numpy as np
import gemmgen
a, b = np.ones((512, 512), np.float32), np.ones((512, 512), np.float32)
gemmgen.gemm(a, b)
gemmgen.gemm(a, b)
print(f"{1e3 * (time.perf_counter() - begin):.0f} ms from the first import to the second result of 512")'
    unset PYTHONDONTWRITEBYTECODE
    export PYTHONPYCACHEPREFIX=$out/pyc XDG_CACHE_HOME=$out/cache
    python3 -c "$program" >/dev/null  # what an installation has compiled
    for _ in 1 2 3 4 5; do PYOPENCL_NO_CACHE=1 GEMMGEN_NO_CACHE=1 $priority python3 -c "$program" | sed 's/$/, compiled anew/'; done
    for _ in 1 2 3 4 5; do $priority python3 -c "$program" | sed 's/$/, from the cache/'; done
    rm -rf "$out/pyc" "$out/cache"
}

choose() {
    $priority timeout 300 python3 benchmarks/choose_cpu.py --shapes 30 --seed 2026
    $priority timeout 100 python3 benchmarks/choose_cpu.py --sizes 1x100000x3,8192x1x8192,3x3x100000,30x4000x30,48x48x48
}

for part in "$@"; do
    declare -F "$part" >/dev/null || { echo "no part $part: see the head of $0" >&2; exit 2; }
    printf '\n== %s\n' "$part"
    "$part" 2>&1 | tee "$out/$part.txt"
done
