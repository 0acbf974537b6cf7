#!/usr/bin/env bash
# What ncu says of each step of the ladder at 4096, on this machine's GPU: benchmarks/ncu_ladder.sh [preset ...]
# Share of time that the FMA pipe works, of cycles that issue an instruction, and warps stalled per issued instruction.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

presets=("$@")
if ((${#presets[@]} == 0)); then
    presets=(naive_16x16 vec4_4x4 tile_8x8 smem_8x8 smem_8x8_transposed smem_8x8_reg_double smem_8x8_double
        async_8x8_16x16 mbarrier_8x16_16x16)
fi
stalls=(short_scoreboard long_scoreboard barrier wait dispatch_stall math_pipe_throttle mio_throttle lg_throttle
    no_instruction)
metrics=gpu__time_duration.sum,sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active
metrics+=,sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active
metrics+=,smsp__issue_active.avg.pct_of_peak_sustained_active
for stall in "${stalls[@]}"; do
    metrics+=,smsp__average_warps_issue_stalled_${stall}_per_issue_active.ratio
done
for preset in "${presets[@]}"; do
    echo "== $preset"
    # The second launch: the first one finds a cold cache.
    ncu --kernel-name "$preset" --launch-skip 1 --launch-count 1 --metrics "$metrics" \
        python3 -m gemmgen run --backend cuda -k "$preset" -M 4096 -N 4096 -K 4096 2>&1 |
        grep -E "gpu__time|sm__|smsp__" || echo "no figures"
done
