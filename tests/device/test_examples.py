"""Every example of the README and of the docs runs as it is printed. A page's commands share a process, and so do its
blocks of Python. Examples for NVIDIA's GPUs run where there is one; measurements and searches, which take minutes, are
only understood.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from gemmgen import presets
from gemmgen.errors import DeviceError
from gemmgen.fuzz.case import Case
from gemmgen.spec import GemmSpec
from tests.support import skips
from tests.support.docs import PAGES, ROOT, blocks_of, page_name

#: Runs commands one after the other, each as the console script does, and tells how each ended.
RUNNER = """
import contextlib, io, json, sys
from gemmgen.cli import main
for command in json.load(sys.stdin):
    sys.argv, out, code = ["gemmgen", *command], io.StringIO(), 0
    out.reconfigure = lambda **_: None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    print(json.dumps([code, out.getvalue()]), file=sys.__stdout__, flush=True)
"""
COMMAND = re.compile(r"^ {4,}((?:[A-Z_]+=\S+ )*gemmgen [a-z].*)$", re.MULTILINE)
#: Those within a sentence that are whole; others only name a command and an option of it.
WITHIN_TEXT = re.compile(r"`(gemmgen [a-z]+(?: -[^`\n]*){2,})`")
#: What a machine may lack that an example measures against, compiles with, or runs on. CI lets no test skip for it.
LACKING = re.compile(
    r"is not installed|is not on this machine|can't be (?:found|loaded)|apt-get install|pip install|no device matches|"
    r"No module named 'dask'|sub_group = .* has no sub-groups|lacks .*sub_groups"
)
MISSING = "something is missing here"
UNTUNED = re.compile(r"gemmgen: (?:there (?:is no record for|are no records of)|\S+ has records of a CPU)")
#: What takes minutes, with an option that is refused: so all else of the command is understood, and nothing runs.
ONLY_UNDERSTOOD = {
    "bench": (("--seed", "-1"), "--seed -1 < 0: give 0 or more"),
    "fuzz": (("--examples", "x"), "examples 'x' is no whole number"),
    "tune": (("--seed", "-1"), "--seed -1: give 0"),
}


@cache
def has_gpu() -> bool:
    if find_spec("cupy") is None:
        return False
    from gemmgen.runtime.cuda_devices import cuda_devices

    try:
        return bool(cuda_devices())
    except DeviceError:
        return False


#: Blocks of Python that need what not every machine has.
NEEDS: dict[str, tuple[re.Pattern[str], Callable[[], bool]]] = {
    skips.TORCH: (re.compile(r"^import .*\btorch\b", re.MULTILINE), lambda: not find_spec("torch")),
    skips.GPU: (re.compile(r'backend="cuda"|generated\.cuda|import cupy'), lambda: not has_gpu()),
}


def commands(page: Path) -> list[tuple[dict[str, str], list[str]]]:
    """The commands of a page: what they set in the environment, and their arguments."""
    found = []
    text = re.sub(r"\\\n +", "", page.read_text())
    for line in (line for pattern in (COMMAND, WITHIN_TEXT) for line in pattern.findall(text) if "..." not in line):
        words = shlex.split(line, comments=True)
        start = words.index("gemmgen")
        found.append((dict(word.split("=", 1) for word in words[:start]), words[start + 1 :]))
    return found


def is_for_gpus(command: list[str]) -> bool:
    """Whether it needs an NVIDIA GPU: what is printed for one does not."""
    return command[0] in ("run", "bench", "fuzz", "tune") and "cuda" in command


def prepare(folder: Path) -> None:
    """The files that examples read."""
    np.save(folder / "A.npy", np.ones((20, 30), np.float32))
    np.save(folder / "B.npy", np.ones((30, 10), np.float32))
    text = (ROOT / "generated" / "opencl" / "naive.cl").read_text()
    (folder / "mine.cl").write_text(text.replace("\nnaive(", "\ngemm("))
    (folder / "layers.txt").write_text("128x4096x4096 12\n")
    (folder / "model.py").write_text("import numpy, gemmgen\ngemmgen.gemm(numpy.eye(64), numpy.eye(64))\n")
    device = {"backend": "opencl", "device": "a CPU", "cores": 2, "driver": "1", "compiler": "1"}
    records = json.dumps({"format": "gemmgen tuned", "version": 1, **device, "gemmgen": "0.1.0"})
    for name in ("mine.jsonl", "yours.jsonl"):
        (folder / name).write_text(f"{records}\n")
    (folder / "failures").mkdir()
    case = Case(GemmSpec(), presets.load("naive").schedule, (5, 4, 3))
    (folder / "failures" / "fuzz-1234abcd.toml").write_text(case.to_toml())


def run(folder: Path, wanted: list[tuple[dict[str, str], list[str]]]) -> list[tuple[int, str]]:
    """How each command ended, and what it said."""
    out = []
    for settings in {tuple(each.items()): each for each, _ in wanted}.values():
        group = [command for each, command in wanted if each == settings]
        result = subprocess.run(
            [sys.executable, "-c", RUNNER],
            input=json.dumps(group),
            capture_output=True,
            text=True,
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
                "XDG_DATA_HOME": str(folder),
                "COLUMNS": "100",
                "NO_COLOR": "1",
                **settings,
            },
        )
        ended = [json.loads(line) for line in result.stdout.splitlines()]
        assert len(ended) == len(group), result.stderr
        out += [(int(code), str(said)) for code, said in ended]
    return out


def is_only_understood(command: list[str]) -> bool:
    """Whether what takes minutes is left out, after the command line was read."""
    return command[0] in ONLY_UNDERSTOOD and not {"--replay", "--calibrate"} & set(command)


def problems_in(said: str) -> list[str]:
    """The problems that a command complains of, one or several."""
    first, *listed = said.splitlines() or [""]
    return [line.removeprefix("  - ") for line in listed] or [first.removeprefix("gemmgen: ")]


def complaint(command: list[str], code: int, said: str) -> str | None:
    """What is wrong with how a command ended."""
    if is_only_understood(command):
        added, expected = ONLY_UNDERSTOOD[command[0]]
        # What the machine lacks is said as well, and first.
        told = [problem for problem in problems_in(said) if not LACKING.search(problem)]
        is_as_expected = code == 2 and len(told) == 1 and told[0].startswith(expected)
        return None if is_as_expected else f"{shlex.join([*command, *added])}: {said}"
    # A machine where nothing was tuned has nothing to show, and takes no records of another.
    untuned = code == 2 and UNTUNED.match(said)
    return None if code == 0 or untuned else f"{shlex.join(command)}: exit code {code}: {said}"


def test_what_a_machine_lacks_hides_no_complaint() -> None:
    """A command that is only understood is told of with the option that was added to it, or its refusal misleads."""
    command, lacks = ["tune", "--shapes", "300x400x500"], "tuning needs Optuna: pip install 'gemmgen[tune]'"
    refused, wrong = "--seed -1: give 0 to 4294967295", "size '3' is not like 4096"
    assert complaint(command, 2, f"gemmgen: {refused}\n") is None
    assert complaint(command, 2, f"gemmgen: 2 problems\n  - {lacks}\n  - {refused}\n") is None
    assert complaint(command, 2, f"gemmgen: 2 problems\n  - {wrong}\n  - {refused}\n") is not None
    told = complaint(command, 2, f"gemmgen: {lacks}\n")
    assert told is not None
    assert told.startswith("tune --shapes 300x400x500 --seed -1: ")


PAGES_WITH_COMMANDS = [page for page in PAGES if commands(page)]


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=page_name)
def test_commands(page: Path, tmp_path: Path) -> None:
    prepare(tmp_path)
    wanted = [(settings, command) for settings, command in commands(page) if not is_for_gpus(command)]
    wanted.sort(key=lambda each: sorted(each[0].items()))
    given = [
        (settings, [*command, *ONLY_UNDERSTOOD[command[0]][0]]) if is_only_understood(command) else (settings, command)
        for settings, command in wanted
    ]
    problems, missing = [], []
    for (_, command), (code, said) in zip(wanted, run(tmp_path, given), strict=True):
        if code == 2 and LACKING.search(said) and command[0] in ("bench", "fuzz", "inspect", "export", "run"):
            missing.append(f"{shlex.join(command)}: {said.strip().splitlines()[-1]}")
        elif problem := complaint(command, code, said):
            problems.append(problem)
    assert not problems, "\n".join(problems)
    if missing:
        reason = skips.GPU if all("CUDA" in text for text in missing) else MISSING
        pytest.skip(f"{reason}: {'; '.join(missing)}; all others ran")


@pytest.mark.parametrize(
    "page", [p for p in PAGES_WITH_COMMANDS if any(is_for_gpus(c) for _, c in commands(p))], ids=page_name
)
def test_commands_for_gpus(page: Path, tmp_path: Path) -> None:
    if not has_gpu():
        pytest.skip(f"{skips.GPU}, and CuPy")
    prepare(tmp_path)
    wanted = [(settings, command) for settings, command in commands(page) if is_for_gpus(command)]
    given = [(settings, [*command, *ONLY_UNDERSTOOD.get(command[0], ((), ""))[0]]) for settings, command in wanted]
    ended = zip(wanted, run(tmp_path, given), strict=True)
    problems = [problem for (_, command), how in ended if (problem := complaint(command, *how))]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks_of(p, "python")], ids=page_name)
def test_python(page: Path, tmp_path: Path) -> None:
    """All blocks of a page, one after the other."""
    blocks = blocks_of(page, "python")
    left_out = {
        reason: [block for block in blocks if pattern.search(block) and is_missing()]
        for reason, (pattern, is_missing) in NEEDS.items()
    }
    ran = [block for block in blocks if not any(block in group for group in left_out.values())]
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(ran)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )
    *_, last = result.stderr.splitlines() or [""]
    if result.returncode and LACKING.search(last):
        pytest.skip(f"{MISSING}: {last}")
    assert result.returncode == 0, result.stderr
    if reasons := [reason for reason, group in left_out.items() if group]:
        pytest.skip(f"{' and '.join(reasons)}: all other blocks ran")
