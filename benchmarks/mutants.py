"""Whether the tests notice that the source is wrong: a copy of it is given small faults, one at a time, and tests run.

python benchmarks/mutants.py --seed 1 --count 40              # goldens first, then the quick tests
python benchmarks/mutants.py --seed 1 --stage 'tests/interp'  # other tests: arguments of pytest, several stages in turn
python benchmarks/mutants.py --seed 1 --number 7,19           # some of them again

The same seed makes the same faults as long as the source is the same. A fault is caught when a stage fails or takes
longer than --seconds, which is a loop without end. What is not caught is printed at the end: the program is the same
with it, or a test is missing.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("ir", "passes", "backends")
STAGES = (
    "tests/golden/test_presets.py -k emitted",
    "tests/golden/test_sycl.py tests/golden/test_documents.py -k emitted",
    "tests/interp tests/unit tests/golden tests/known_bugs",
)
OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHERS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Mult: ast.FloorDiv}
ORDERED = (ast.Sub, ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift)


@dataclass(frozen=True)
class Mutant:
    """A fault: what stands between two places of a file's text is replaced."""

    file: Path
    line: int
    begin: int
    end: int
    text: str
    before: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {_short(self.before)}  ->  {_short(self.text)}"


def _short(text: str) -> str:
    return re.sub(r"\s+", " ", text)[:70]


def mutants(file: Path) -> Iterator[Mutant]:
    """All faults that can be put into a file."""
    content = file.read_bytes()
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in ast.walk(ast.parse(content)):
        changed = list(_changes(node))
        if isinstance(node, ast.expr | ast.stmt) and changed:
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            before = content[begin:end].decode()
            name = file.relative_to(ROOT)
            yield from (Mutant(name, node.lineno, begin, end, text, before) for text in changed if text != before)


def _changes(node: ast.AST) -> Iterator[str]:
    """The faulty texts of a node."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in OPPOSITES:
            yield f"({ast.unparse(ast.Compare(node.left, [OPPOSITES[type(op)]()], node.comparators))})"
        case ast.BinOp(left=left, op=op, right=right):
            if type(op) in OTHERS and not isinstance(left, ast.Constant | ast.JoinedStr):
                yield f"({ast.unparse(ast.BinOp(left, OTHERS[type(op)](), right))})"
            if isinstance(op, ORDERED):
                yield f"({ast.unparse(ast.BinOp(right, op, left))})"
        case ast.BoolOp(op=op, values=values):
            yield f"({ast.unparse(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"bool({ast.unparse(operand)})"
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            yield from (str(value + 1), f"({value - 1})")
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "pass"
        case ast.If(test=test, body=body, orelse=[]) if isinstance(body[-1], ast.Return | ast.Raise | ast.Continue):
            # What is dealt with early is not.
            yield ast.unparse(ast.If(ast.BoolOp(ast.And(), [ast.Constant(False), test]), body, [])).replace(
                "\n", "\n" + " " * node.col_offset
            )


def chosen(seed: int, count: int) -> list[Mutant]:
    """Faults of every kind and part, by chance. None in text that is only shown, such as messages."""
    files = sorted(file for folder in FOLDERS for file in (ROOT / "gemmgen" / folder).rglob("*.py"))
    every = [mutant for file in files for mutant in mutants(file)]
    return random.Random(seed).sample(every, count)


def copied(target: Path) -> None:
    """The files under version control, and those that could be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


def caught_by(folder: Path, stages: Sequence[str], seconds: float) -> str | None:
    """The first test that fails; None where all stages pass."""
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    for stage in stages:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-rfE", *shlex.split(stage)]
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output = process.communicate(timeout=seconds)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"more than {seconds:g} s of {stage}"
        if process.returncode == 5:
            sys.exit(f"no test is of {stage}")
        if process.returncode:
            found = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
            return found[1] if found else f"exit status {process.returncode} of {stage}"
    return None


def main() -> int:
    """The exit status: 0 if all faults were caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--number", default="", help="only these of them, such as 3,17")
    parser.add_argument("--stage", action="append", help="arguments of pytest; may be given again")
    parser.add_argument("--seconds", type=float, default=600.0, help="for a stage")
    arguments = parser.parse_args()
    wanted = {int(number) for number in arguments.number.split(",") if number}
    stages, escaped, total = arguments.stage or STAGES, [], 0
    with tempfile.TemporaryDirectory(prefix="gemmgen-mutants-") as name:
        folder = Path(name)
        copied(folder)
        for number, mutant in enumerate(chosen(arguments.seed, arguments.count)):
            if wanted and number not in wanted:
                continue
            file, start = folder / mutant.file, time.monotonic()
            whole = file.read_bytes()
            file.write_bytes(whole[: mutant.begin] + mutant.text.encode() + whole[mutant.end :])
            found = caught_by(folder, stages, arguments.seconds)
            file.write_bytes(whole)
            total += 1
            if found is None:
                escaped.append(f"{number}: {mutant}")
            print(f"{number:3} {time.monotonic() - start:5.0f} s  {mutant}  {found or 'NOT CAUGHT'}", flush=True)
    print(f"{total - len(escaped)} of {total} caught", *escaped, sep="\n")
    return bool(escaped)


if __name__ == "__main__":
    sys.exit(main())
