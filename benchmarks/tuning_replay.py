"""How searches converge on a recorded table: writes benchmarks/results/tuning_replay.json, which the site draws.

    python benchmarks/tuning_replay.py

The table (`tests/support/tuning_table.jsonl`) has every legal schedule of a small space, measured once on a CPU by
`benchmarks/tuning_table.py`. A search that is replayed on it needs no device and has no noise.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gemmgen.tuning.study import STRATEGIES  # noqa: E402  (after the path)
from tests.unit.test_tuning_replay import searched  # noqa: E402

SEEDS, TRIALS = 5, 40


def main() -> None:
    """Replay each strategy with each seed, and write the mean of the best so far."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "tuning_replay.json")
    file = parser.parse_args().out
    curves = {}
    for strategy in STRATEGIES:
        replays = [searched(strategy, seed, TRIALS)[0] for seed in range(SEEDS)]
        curves[strategy] = [round(mean(x.regret(count) for x in replays), 4) for count in range(1, TRIALS + 1)]
        print(strategy, *(f"{curves[strategy][count - 1]:.2f}" for count in (5, 10, 20, 40)))
    file.write_text(json.dumps({"seeds": SEEDS, "best_so_far": curves}, indent=1) + "\n")


if __name__ == "__main__":
    main()
