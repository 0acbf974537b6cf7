"""`gemmgen fuzz`: run random cases until one fails."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli.declared import WHERE, Device, DeviceType, Platform, Text, option
from gemmgen.cli.output import examples, say, write
from gemmgen.cli.request import number
from gemmgen.errors import LoweringError, UserError, attempt

if TYPE_CHECKING:
    from gemmgen.fuzz.case import Case
    from gemmgen.fuzz.checks import Place
    from gemmgen.fuzz.search import Found, Search

EXAMPLES = examples(
    "gemmgen fuzz",
    "gemmgen fuzz --minutes 10 --seed 7 --save failures",
    "gemmgen fuzz --backend opencl -d xeon --minutes 5",
    "gemmgen fuzz --replay failures/fuzz-1234abcd.toml",
)
_LONGEST = 7 * 24 * 60


def fuzz(
    minutes: Annotated[str, option("--minutes", "N", "How long to look.")] = "1",
    examples: Annotated[Text, option("--examples", "N", "Cases to try, at most; else as time allows.")] = None,
    seed: Annotated[str, option("--seed", "N", "Of the cases: the same ones each time.")] = "0",
    save: Annotated[Path, option("--save", "DIR", "Where cases that fail are saved.")] = Path(),
    replay: Annotated[Path | None, option("--replay", "FILE.toml", "Run one that was saved, and nothing else.")] = None,
    backend: Annotated[
        Text, option("--backend", "NAME", "interp (nothing else runs them), opencl, sycl or cuda.", panel=WHERE)
    ] = None,
    platform: Platform = None,
    type_: DeviceType = None,
    device: Device = None,
) -> None:
    """Look for a product that is wrong: any spec, schedule, target, size and numbers that are not refused.

    Each case runs in the interpreter, which reports races, accesses out of bounds and reads of what nothing wrote, and,
    with a device, there by each way to call it, twice, and from two threads at once. Results must lie within the bound
    on rounding or be exact, the device's bits be the interpreter's, and canaries around all memory live. What fails
    is made small and saved. Exit codes: 0, 1 (something failed), 2 (bad input).
    """
    from gemmgen.fuzz import require_hypothesis
    from gemmgen.fuzz.devices import places

    problems: list[str] = []
    chosen = (platform, device, type_)
    if replay is not None:
        case, place = _saved(replay, backend, *chosen)
        sys.exit(0 if _replay(case, place) else 1)
    attempt(problems, require_hypothesis)
    seconds = 60 * number("minutes", minutes, problems, _LONGEST, float, may_be_zero=False)
    most = None if examples is None else number("examples", examples, problems, may_be_zero=False)
    start = number("seed", seed, problems)
    found = attempt(problems, places, "interp" if backend is None else backend, *chosen)
    problems += _folder_problems(save)
    if problems or found is None:
        raise UserError(problems)
    from gemmgen.runtime.cache import user_cache

    # Otherwise hypothesis would keep its database in the current folder.
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(user_cache("gemmgen") / "hypothesis"))
    from gemmgen.fuzz.search import Search

    failures = _look(Search(found, start, seconds, most))
    for failure in failures:
        _tell(failure, save)
    if failures:
        raise typer.Exit(1)


def _folder_problems(folder: Path) -> list[str]:
    """Problems with the folder for failing cases, reported before the search begins."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        whose = "" if there == folder else f", as {there} is a file"
        return [f"--save {folder} is no folder{whose}: name one, it is created where it is missing"]
    return [] if os.access(there, os.W_OK) else [f"--save {folder}: {there} can't be written to: choose another"]


def _saved(
    path: Path, backend: str | None, platform: str | None, device: str | None, type_: str | None
) -> tuple[Case, Place]:
    """A saved case, and its backend and device: as saved, unless a device is named."""
    from gemmgen.errors import suggest
    from gemmgen.fuzz.case import OF_DEVICE, load
    from gemmgen.fuzz.checks import Place
    from gemmgen.fuzz.devices import places
    from gemmgen.ir.target import TARGETS

    case = load(path)
    if backend not in (None, "interp") or case.target == OF_DEVICE:
        (place,) = places(case.backend if backend is None else backend, platform, device, type_)
        return case, place
    if case.target not in TARGETS:
        raise UserError(f"{path}: target {case.target!r} does not exist: {suggest(case.target, TARGETS)}")
    return case, Place.named(case.backend, case.target)


def _replay(case: Case, place: Place) -> bool:
    """Whether a case passes."""
    from gemmgen.fuzz.checks import check

    say(f"{case}\n")
    try:
        check(case, place)
    except UserError:
        raise  # the case is refused now, or the device is missing
    except Exception as error:  # noqa: BLE001  (any exception is the failure for which the case was saved)
        say(f"failed: {_words(error)}\n")
        return False
    say("passed\n")
    return True


def _look(search: Search) -> list[Found]:
    """Search for failing cases, with their progress."""
    from gemmgen.kernel_names import kernel_name
    from gemmgen.progress import shown

    say(f"{', '.join(place.label for place in search.places)}\n")
    with shown(search.seconds) as show:
        search.report = lambda case: show(
            search.elapsed, f"case {search.tried}: {kernel_name(case.schedule, case.spec)}"
        )
        failures = search.failures()
    say(f"{search.tried} case{'s' * (search.tried != 1)}, {len(failures)} of them fail\n")
    return failures


def _tell(failure: Found, folder: Path) -> None:
    """Save a case, and print the command that runs it again."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / failure.case.file_name()
    write(path, lambda file: file.write(failure.case.to_toml().encode()))
    say(f"\n{failure.case}\n  {_words(failure.error)}\n  gemmgen fuzz --replay {shlex.quote(str(path))}\n")


def _words(error: Exception) -> str:
    kind = "" if isinstance(error, LoweringError) else f"{type(error).__name__}: "
    return f"{kind}{error}"
