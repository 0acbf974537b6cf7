#!/usr/bin/env bash
# What is checked and measured on a GPU of NVIDIA, by parts; results go to a folder, for benchmarks/results.
#
#     benchmarks/gpu.sh FOLDER PART...        parts: tests wgmma matrices tables fp32 choose repeats sanitizer
#
# Each part is bounded, so that a kernel that hangs costs no more than its part. CuPy, torch and pytest-xdist are needed.
# TOOLS, NAMES (of presets) and SECONDS_EACH narrow down what the sanitizer does, the last two of them the repeats, too.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1
out=${1:?a folder for the results}
shift
mkdir -p "$out"

bench() { timeout 200 python3 -m gemmgen bench --backend cuda --vs cublas "$@"; }
checked() { timeout "$1" python3 -m pytest -q -p no:cacheprovider -p no:benchmark "${@:2}"; }

tests() {
    checked 200 -n 8 tests/device/test_cuda_*.py tests/device/test_{epilogues,prologues,complex}.py \
        --deselect tests/device/test_cuda_wgmma.py | tail -40
}

wgmma() {
    # What waits for a copy that never comes hangs: nothing is timed before all is right.
    checked 200 -x -p no:xdist tests/device/test_cuda_{wgmma,box_stores}.py | tail -20 || return
    bench --preset wgmma_64x64_s8,wgmma_64x128_s4,wgmma_64x128_s4_2x1,wgmma_128x144_s4,wgmma_192x192_s4,wgmma_128x256_s4,wgmma_128x256_s4_turns --sizes 512,1000,1024,1536,2048,3072,4096,8192,16384 \
        --json "$out/wgmma_bf16.json"
}

matrices() {
    bench --preset mma_f64_4x8_16x8 --sizes 1024,2048,4096,8192 --json "$out/mma_f64.json"
    bench --preset mma_s8_8x16_16x8 --sizes 1024,4096,8192 --json "$out/mma_s8.json"
    bench --preset mma_3xtf32_8x8_16x16 --sizes 1024,2048,4096 --json "$out/mma_3xtf32.json"
}

tables() {
    timeout 300 python3 benchmarks/tables_cuda.py "$out"
}

fp32() {
    local ring=mbarrier_8x16_16x16
    local presets=$ring,${ring}_packed_a,${ring}_stream,${ring}_packed,${ring}_boxes_packed,${ring}_split7,async_8x8_8x16,async_8x4_8x16
    presets+=,mbarrier_8x16_8x8_slices4,mbarrier_8x16_8x8_slices4_packed,mbarrier_8x8_4x8_slices8
    presets+=,mbarrier_8x8_8x8_split128,mbarrier_8x8_2x16_split8
    bench --best --preset "$presets" --sizes 512,1024,2048,4096,8192,16384,4095,1000x999x1001,128x14336x4096,64x64x65536 \
        --json "$out/best.json"
    bench --best --preset "$presets" --sizes 16x4096x4096,256:256,1024:64 --json "$out/best_more.json"
    bench --best --preset mbarrier_8x16_16x16_atomic7,mbarrier_8x8_8x8_atomic128,mbarrier_8x8_2x16_atomic8 \
        --sizes 128x14336x4096,64x64x65536,16x4096x4096 --json "$out/atomic.json"
}

choose() {
    timeout 150 python3 benchmarks/choose_cuda.py --shapes 40 --seed 7 --jobs 15
    timeout 150 python3 benchmarks/choose_cuda.py --shapes 40 --seed 8 --jobs 15 --dtype bfloat16
}

# Eight processes, each with every eighth preset: compiling is most of the work. side_by_side SECONDS COMMAND...
side_by_side() {
    local part
    for part in 0 1 2 3 4 5 6 7; do
        timeout "$1" "${@:2}" python3 benchmarks/check_cuda.py $how --part "$part/8" >"$out/part$part.txt" 2>&1 &
    done
    wait
    grep -h "FAILED\|SUMMARY\|Error\|hazard" "$out"/part?.txt | sort | uniq -c | head -40
    echo "$(cat "$out"/part?.txt | grep -c ' ok ') presets, $(cat "$out"/part?.txt | grep -c ' failed$') of 8 parts done"
    rm -f "$out"/part?.txt
}

repeats() {
    how="--repeats 300 ${NAMES:-}" side_by_side "${SECONDS_EACH:-100}" env
}

sanitizer() {
    local tool
    for tool in ${TOOLS:-memcheck racecheck synccheck initcheck}; do
        echo "-- $tool"
        how="--small ${NAMES:-}" side_by_side "${SECONDS_EACH:-90}" compute-sanitizer --tool "$tool"
    done
}

for part in "$@"; do
    declare -F "$part" >/dev/null || { echo "no part $part: see the head of $0" >&2; exit 2; }
    printf '\n== %s\n' "$part"
    "$part" 2>&1 | tee "$out/$part.txt"
done
