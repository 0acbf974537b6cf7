"""The records of a device as gemmgen ships them: of each product the fastest few, and what was compared in turns.

python benchmarks/ship_records.py ~/.local/share/gemmgen/tuned/nvidia-h100-....jsonl -o gemmgen/tuning/shipped
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen.tuning.records import Line, Records, parse

#: Schedules of a product.
KEPT = 8


def fastest(records: Records) -> Records:
    """What is shipped of a device's records."""
    found: dict[tuple[object, ...], list[Line]] = defaultdict(list)
    for line in sorted(records.lines, key=lambda line: line.rank):
        if line.checked:
            found[line.spec, line.products, line.shape].append(line)
    kept = [replace(line, seconds=float(f"{line.seconds:.5g}")) for lines in found.values() for line in lines[:KEPT]]
    machine = {name: float(f"{value:.4g}") for name, value in records.machine.items()}
    return replace(records, lines=tuple(kept), machine=machine)


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    said = parser.parse_args()
    records = parse(said.file.read_text(encoding="utf-8"), said.file.name)
    name = re.sub(r"[^a-z0-9]+", "-", records.key.device.lower()).strip("-")
    path = said.output / f"{records.key.backend}-{name}.jsonl"
    path.write_text(fastest(records).text(), encoding="utf-8")
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
