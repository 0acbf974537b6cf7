"""How searches converge on a recorded table: writes benchmarks/results/tuning_replay.json, which the site draws.

    python benchmarks/tuning_replay.py
    python benchmarks/tuning_replay.py --gpu

The table (`tests/support/tuning_table.jsonl`) has every legal schedule of a small space, measured once on a CPU by
`benchmarks/tuning_table.py`. A search that is replayed on it needs no device and has no noise.

With `--gpu` searches are replayed on the tables of 96 products that `benchmarks/exhaustive.py` has measured on an H200.
A line a type is printed: the time of the table's best by that of the search's, after so many measurements.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gemmgen.tuning.study import STRATEGIES  # noqa: E402  (after the path)
from tests.support.tables import summary  # noqa: E402
from tests.unit.test_tuning_replay import of_gpu, searched, searched_on_gpu  # noqa: E402

SEEDS, TRIALS = 5, 40
#: After how many measurements searches on a GPU are looked at.
COUNTS = (10, 20, 40)


def replay_on_gpu() -> None:
    """Print how close searches come to the best of each table: geomean, worst, and the part within 3 %."""
    # On a GPU the sampler is not asked, so that the other two draw the same neighbours.
    for strategy in ("prior", "random"):
        ratios = defaultdict[str, list[list[float]]](list)
        for table in of_gpu():
            found = searched_on_gpu(table, strategy, 0, COUNTS[-1])
            row = [1 / found.regret(count) for count in COUNTS]
            for group in (table.spec.dtype.name, "all"):
                ratios[group].append(row)
        for group, rows in ratios.items():
            for count, column in zip(COUNTS, zip(*rows, strict=True), strict=True):
                print(f"{strategy}, {group}, after {count}: {summary(column)}")


def main() -> None:
    """Replay each strategy with each seed, and write the mean of the best so far."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "tuning_replay.json")
    parser.add_argument("--gpu", action="store_true", help="on the tables of an H200")
    said = parser.parse_args()
    if said.gpu:
        replay_on_gpu()
        return
    file = said.out
    curves = {}
    for strategy in STRATEGIES:
        replays = [searched(strategy, seed, TRIALS)[0] for seed in range(SEEDS)]
        curves[strategy] = [round(mean(x.regret(count) for x in replays), 4) for count in range(1, TRIALS + 1)]
        print(strategy, *(f"{curves[strategy][count - 1]:.2f}" for count in (5, 10, 20, 40)))
    file.write_text(json.dumps({"seeds": SEEDS, "best_so_far": curves}, indent=1) + "\n")


if __name__ == "__main__":
    main()
