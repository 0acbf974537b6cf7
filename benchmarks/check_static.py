"""Every preset's machine code against what is kept in benchmarks/static; fails on anything worse. All of them are
compiled, where the test compiles those whose source has changed.

python benchmarks/check_static.py                   # compare
python benchmarks/check_static.py --update          # keep what is found now
python benchmarks/check_static.py --compiler ocloc --preset 'block_read_*'
"""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from gemmgen import candidates
from gemmgen.errors import UserError
from tests.support import baseline

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


ROOT = Path(__file__).resolve().parents[1]


def check(compiler: str, pattern: str, update: bool) -> list[str]:
    """What is worse than it was, by the same version of the compiler. Raises: ToolError if it is missing."""
    kept = baseline.read(ROOT, compiler)
    changes = baseline.changes(kept, compiler)
    if changes:
        print(f"{compiler}: {changes}: reported, and no failure until --update keeps it")
    problems: list[str] = []
    rows, sources = (
        {name: row for name, row in part.items() if name in candidates.names()} for part in (kept.presets, kept.sources)
    )
    for name in candidates.names():
        if not fnmatchcase(name, pattern):
            continue
        kernels = baseline.made(name, compiler)
        now = baseline.collect(kernels)
        shown = {target: figures.get("share", "-") for target, figures in now.items()}
        print(f"{name:26}", *(f"{target} {value}" for target, value in shown.items()), flush=True)
        worse = [] if update else baseline.worse(name, rows.get(name, {}), now)
        for problem in worse if changes else ():
            print(f"    {problem}")
        problems += [] if changes else worse
        rows[name], sources[name] = now, baseline.fingerprint(kernels)
    if update:
        baseline.write(ROOT, compiler, baseline.Baseline(baseline.versions(compiler), sources, rows))
    return problems


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="keep what is found instead of comparing with it")
    parser.add_argument("--compiler", choices=tuple(baseline.TOOLS), help="only this one's targets")
    parser.add_argument("--preset", default="*", help="only those that match")
    arguments = parser.parse_args()
    try:
        compilers = (arguments.compiler,) if arguments.compiler else tuple(baseline.TOOLS)
        problems = [p for each in compilers for p in check(each, arguments.preset, arguments.update)]
    except UserError as error:
        problems = list(error.problems)
    for problem in problems:
        print(f"worse: {problem}", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
