#!/usr/bin/env bash
# What is tested and measured on GPUs of NVIDIA, by parts, spread over the GPUs of a machine; a file a part in a folder.
#
#     benchmarks/gpu.sh FOLDER PART...
#     benchmarks/gpu.sh out tests,1/4 tests,2/4 tests,3/4 tests,4/4 epilogues weights
#     benchmarks/gpu.sh out drawn,bfloat16,1/2 drawn,bfloat16,2/2 tuned,float32,1/4 exhaustive,float32,1/4,sm_80
#
# Parts are the functions below; what follows a comma are their arguments. They begin in the order that is given, each
# on the first GPU that is free, with caches of its own: name long ones first. A part takes at most SECONDS_EACH (500),
# so that a kernel that hangs costs no more. GPUS says which GPUs (all), COMMIT what shapes are drawn by (HEAD), COUNT
# how many of them. AFTER leaves out so many shapes of an exhaustive table, and no further one is begun after BEGIN_UNTIL
# seconds (450). CuPy, torch and pytest-xdist are needed; compute-sanitizer for the part of its name.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
folder=${1:?a folder for the results}
shift
mkdir -p "$folder"
read -ra gpus <<<"${GPUS:-$(nvidia-smi --query-gpu=index --format=csv,noheader | tr '\n' ' ')}"
jobs=$(($(nproc) / ${#gpus[@]} - 1))
commit=${COMMIT:-$(git rev-parse HEAD)}

bounded() { timeout "${SECONDS_EACH:-500}" "$@"; }
measure() { bounded python3 "benchmarks/$1.py" "${@:2}"; }

# tests,2/4: every fourth file of the tests of devices.
tests() {
    local part=${1:-1/1}
    # What waits for a copy that never comes hangs: each test has its limit.
    bounded python3 -m pytest -q -m "" -p no:cacheprovider -p no:benchmark --timeout 120 -n "$jobs" \
        $(ls tests/device/test_*.py | awk -v part="${part%/*}" -v parts="${part#*/}" 'NR % parts == part % parts')
}

# The choice for drawn shapes beside cuBLAS; the same after a minute's search a shape.
drawn() {
    measure drawn_shapes --commit "$commit" --dtype "$1" --part "${2:-1/1}" --count "${COUNT:-200}" \
        --processes "$jobs" --json "$result.json" "${@:3}"
}
tuned() { COUNT=${COUNT:-16} drawn "$1" "${2:-1/1}" --tune 60; }

# exhaustive,float32,1/4,sm_80: what the choice and a search lose, with what an older GPU has.
exhaustive() {
    measure exhaustive --commit "$commit" --dtype "$1" --part "${2:-1/1}" ${3:+--target "$3"} --count "${COUNT:-24}" \
        --builders "$jobs" --seconds "${BEGIN_UNTIL:-450}" --output "$result.jsonl.gz" ${AFTER:+--after "$AFTER"}
}

epilogues() { measure epilogues --jobs "$jobs" --json "$result.json"; }
weights() { measure weights; }
invariant() { measure invariant --jobs "$jobs" ${1:+--dtypes "${1//+/,}"} ${2:+--layouts "${2//+/,}"}; }
grouped() { measure grouped --device gpu --dtypes "${1:-bfloat16}" ${2:+--kinds "${2//+/,}"}; }
block_scales() { measure block_scales; }
streaming() { measure streaming; }
# families,gemv,int8+float16,col: a family of products, in some types and layouts of B.
families() {
    measure few_rows --family "$1" ${2:+--dtypes "${2//+/,}"} ${3:+--layouts "${3//+/,}"} \
        --jobs "$jobs" --shapes "${COUNT:-20}"
}
host_time() { measure host_time --json "$result.json"; }
first_calls() { measure first_calls --json "$result.json"; }
tables() { measure tables_cuda "$folder"; }

# NAMES of presets: each the same bits 300 times; and the checks of memory, races and barriers.
repeats() { measure check_cuda --repeats 300 ${NAMES:-}; }
sanitizer() { bounded compute-sanitizer --tool "${1:-memcheck}" python3 benchmarks/check_cuda.py --small ${NAMES:-}; }

for part in "$@"; do
    declare -F "${part%%,*}" >/dev/null || { echo "no part ${part%%,*}: see $0" >&2; exit 2; }
done

# A pipe holds the GPUs that are free.
free=$(mktemp -u)
mkfifo "$free"
exec 3<>"$free"
rm "$free"
printf '%s\n' "${gpus[@]}" >&3
for part in "$@"; do
    read -ru 3 gpu
    (
        IFS=, read -ra words <<<"$part"
        result=$folder/${part//[,\/]/_}
        export CUDA_VISIBLE_DEVICES=$gpu XDG_CACHE_HOME=$folder/.cache$gpu XDG_DATA_HOME=$folder/.data$gpu
        SECONDS=0
        "${words[@]}" >"$result.txt" 2>&1
        echo "== $part on GPU $gpu: exit code $?, $SECONDS s"
        tail -n 3 "$result.txt"
        echo "$gpu" >&3
    ) &
done
wait
