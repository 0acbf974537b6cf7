"""Every preset's machine code against what is kept in benchmarks/static; fails on anything worse. All of them are
compiled, where the test compiles those whose source has changed.

python benchmarks/check_static.py                   # compare
python benchmarks/check_static.py --update          # keep what is found now
python benchmarks/check_static.py --vendor intel --preset 'block_read_*'
"""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen import presets
from gemmgen.errors import UserError
from gemmgen.inspect import baseline

ROOT = Path(__file__).resolve().parents[1]


def check(vendor: str, pattern: str, update: bool) -> list[str]:
    """What is worse than it was."""
    kept = baseline.read(ROOT, vendor)
    reason = baseline.why_not(kept, vendor)
    if reason and not update:
        print(f"{vendor}: not compared: {reason}")
        return []
    problems: list[str] = []
    rows, sources = (
        {name: row for name, row in part.items() if name in presets.names()} for part in (kept.presets, kept.sources)
    )
    for name in presets.names():
        if not fnmatchcase(name, pattern):
            continue
        kernels = baseline.made(name, vendor)
        now = baseline.collect(kernels)
        shown = {target: figures.get("share", "-") for target, figures in now.items()}
        print(f"{name:26}", *(f"{target} {value}" for target, value in shown.items()), flush=True)
        problems += [] if update else baseline.worse(name, rows.get(name, {}), now)
        rows[name], sources[name] = now, baseline.fingerprint(kernels)
    if update:
        baseline.write(ROOT, vendor, baseline.Kept(baseline.versions(vendor), sources, rows))
    return problems


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="keep what is found instead of comparing with it")
    parser.add_argument("--vendor", choices=tuple(baseline.TOOLS), help="only this one's targets")
    parser.add_argument("--preset", default="*", help="only those that match")
    arguments = parser.parse_args()
    try:
        vendors = (arguments.vendor,) if arguments.vendor else tuple(baseline.TOOLS)
        problems = [p for vendor in vendors for p in check(vendor, arguments.preset, arguments.update)]
    except UserError as error:
        problems = list(error.problems)
    for problem in problems:
        print(f"worse: {problem}", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
