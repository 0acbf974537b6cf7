"""`gemmgen tuned`: what was measured: list, show, merge, export, import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli.declared import Text, flag, option
from gemmgen.cli.output import complain, deliver, document, examples, path_problems, print_table, say
from gemmgen.errors import UserError, attempt, suggest

if TYPE_CHECKING:
    from gemmgen.cli.request import Request
    from gemmgen.runtime.device import Device
    from gemmgen.schedule import Schedule
    from gemmgen.spec import GemmSpec
    from gemmgen.tuning.device import DeviceKey
    from gemmgen.tuning.records import Line, Records

EXAMPLES = examples(
    "gemmgen tuned list",
    "gemmgen tuned show --device xeon",
    "gemmgen tuned export --device xeon -o xeon.jsonl",
    "gemmgen tuned merge mine.jsonl yours.jsonl -o both.jsonl",
    "gemmgen tuned import both.jsonl --device xeon",
)
ACTIONS = ("list", "show", "merge", "export", "import")
#: The largest file that is read.
_MOST_BYTES = 256 << 20


def tuned(
    action: Annotated[str, typer.Argument(metavar="ACTION", help=f"{', '.join(ACTIONS)}.")],
    files: Annotated[list[Path] | None, typer.Argument(metavar="[FILE...]", help="Of merge and import.")] = None,
    backend: Annotated[str, option("--backend", "NAME", "opencl, cuda or sycl.")] = "opencl",
    device: Annotated[Text, option("--device", "DEVICE", "Its number or part of its name.")] = None,
    output: Annotated[Path | None, option("-o --output", "FILE", "Of merge and export; else standard output.")] = None,
    as_json: Annotated[bool, flag("--json", "One JSON document, of list and show.")] = False,
) -> None:
    """What was measured by gemmgen tune.

    list: the devices that there are records of. show: the best schedule of each product on a device. export: a device's
    records as a file. merge: several files of one device as one. import: files of the same device, from elsewhere.
    What is imported is data from a stranger: each schedule is validated for the device, and its result is checked
    before it is used.
    """
    given = files or []
    problems = path_problems(output, "tuned.jsonl")
    if action not in ACTIONS:
        problems.append(f"{action!r} does not exist: {suggest(action, ACTIONS)}")
    elif action in ("merge", "import") and not given:
        problems.append(f"gemmgen tuned {action} takes files: name those that gemmgen tuned export has written")
    elif given and action in ("list", "show", "export"):
        problems.append(f"gemmgen tuned {action} takes no files: leave out {given[0]}")
    if output is not None and action not in ("merge", "export"):
        problems.append(f"-o means nothing to gemmgen tuned {action}: leave it out")
    if problems:
        raise UserError(problems)
    if action == "list":
        _list(as_json)
    elif action == "show":
        _show(_records_of(backend, device), as_json)
    elif action == "export":
        deliver(_records_of(backend, device).text(), output)
    elif action == "merge":
        deliver(_merged(given).text(), output)
    else:
        _import(given, backend, device)


def _records_of(backend: str, device: str | None) -> Records:
    """Raises: UserError where there are none."""
    from gemmgen.tuning.records import Store

    _, key = _device(backend, device)
    store = Store()
    found = store.read(key)
    if not found.lines and not found.machine and store.stamp(key) is not None:
        path = store.folder / key.file_name
        raise UserError(f"{path} has no record of {key} that can be read: restore it, or delete it and tune again")
    if not found.lines:
        raise UserError(f"there are no records of {key}: measure some by gemmgen tune --shapes 1024 --minutes 1")
    return found


def _device(backend: str, device: str | None) -> tuple[Device, DeviceKey]:
    from gemmgen.runtime.selection import pick
    from gemmgen.tuning.device import key_of

    found = pick(backend, device=device)
    return found, key_of(backend, found, found.target)


def _list(as_json: bool) -> None:
    from gemmgen.tuning.records import Store

    found = Store().all()
    if as_json:
        rows = [{"device": str(x.key), "file": str(path), "configurations": len(x.lines)} for path, x in found]
        say(document("tuned", rows))
        return
    if not found:
        say(f"no records in {Store().folder}: gemmgen tune measures\n")
    for path, records in found:
        products = len({(line.spec, line.shape, line.products) for line in records.lines})
        said = f"products: {products}; configurations: {len(records.lines)}; by gemmgen {records.key.gemmgen}"
        say(f"{records.key}\n  {said}\n  {path}\n")


def _best(records: Records) -> list[tuple[Line, int]]:
    """The best line of each product, and how many there are."""
    found: dict[tuple[str, int, tuple[int, int, int]], list[Line]] = {}
    for line in records.lines:
        found.setdefault((line.spec, line.products, line.shape), []).append(line)
    return [(min(lines, key=lambda line: line.rank), len(lines)) for _, lines in sorted(found.items())]


def _show(records: Records, as_json: bool) -> None:
    from gemmgen.kernel_names import kernel_name

    best = [(line.measurement(), count) for line, count in _best(records)]
    if as_json:
        rows = [
            {
                "product": x.spec.label(),
                "shape": list(x.shape),
                "products": x.products,
                "milliseconds": x.seconds * 1e3,
                "spread": x.spread,
                "gflops": x.gflops,
                "schedule": kernel_name(x.schedule, x.spec),
                "checked": x.checked,
                "configurations": count,
            }
            for x, count in best
        ]
        say(document("tuned", rows, device=str(records.key)))
        return
    shown = []
    for x, count in best:
        product = "x".join(map(str, x.shape)) + (f" x{x.products}" if x.products > 1 else "") + f" {x.spec.label()}"
        figures = f"{x.seconds * 1e3:.4g}", f"{x.spread:.0%}", f"{x.gflops:.1f}", str(count)
        shown.append((product, *figures, "yes" if x.checked else "before use", kernel_name(x.schedule, x.spec)))
    print_table(str(records.key), ("product", "ms", "spread", "GFLOP/s", "of", "checked", "schedule"), shown)


def from_records(request: Request, backend: str, device: str | None) -> Request:
    """The options of the schedule that records have for a request's product. Raises: UserError with every problem."""
    spec, place, key = _asked(request, backend, device)
    from gemmgen.tuning.recorded import ask

    found = ask(backend, place, place.target, spec, None)
    if found is None:
        remedy = f"measure it by gemmgen tune --shapes {spec.m}x{spec.n}x{spec.k}, or leave out --tuned"
        raise UserError(f"there is no record for {spec.m}x{spec.n}x{spec.k} {spec.dtype} on {key}: {remedy}")
    return _by(request, found.schedule)


def decided(request: Request, backend: str, device: str | None) -> tuple[Request, str]:
    """The options of the schedule that gemm takes for a request's product, and what decided. Raises: UserError."""
    spec, place, key = _asked(request, backend, device)
    from gemmgen.choose import choose
    from gemmgen.tuning.recorded import ask

    found = ask(backend, place, place.target, spec, None)
    if found is not None:
        return _by(request, found.schedule), f"{found}: {found.seconds * 1e3:.4g} ms on {key}"
    return _by(request, choose(spec, None, place.target)), f"{_model(place)}, as there is no record on {key}"


def _model(place: Device) -> str:
    """What chooses where nothing was measured."""
    return "the prior" if "async_copy" in place.target.features else "the cost model"


def _asked(request: Request, backend: str, device: str | None) -> tuple[GemmSpec, Device, DeviceKey]:
    """The product of a request, and the backend's device. Raises: UserError with every problem."""
    problems: list[str] = []
    if not request.is_open:
        problems.append("--tuned takes the schedule from records: leave out --preset, --schedule, --method and --set")
    if None in (request.m, request.n, request.k):
        problems.append("--tuned finds a record by its sizes: give -M, -N and -K")
    there = attempt(problems, _device, backend, device)
    spec = attempt(problems, lambda: request.resolve(backend=backend)[0])
    if problems or there is None or spec is None:
        raise UserError(problems)
    return spec, *there


def _by(request: Request, schedule: Schedule) -> Request:
    """The request with the options of a schedule."""
    from dataclasses import replace

    from gemmgen.methods import departures
    from gemmgen.schedule import text_of

    sets = [f"{field}={text_of(value)}" for field, value in departures(schedule).items()]
    shape = text_of(schedule.tile), text_of(schedule.group)
    return replace(request, method=schedule.method, tile=shape[0], group=shape[1], sets=sets)


# --- files from elsewhere -------------------------------------------------------------------------


def _read(path: Path) -> Records:
    """Raises: UserError with every wrong line."""
    from gemmgen.tuning.records import parse

    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is no text: give a file that gemmgen tuned export has written") from None
    if len(data) > _MOST_BYTES:
        raise UserError(f"{path} is larger than {_MOST_BYTES >> 20} MB: give the records of one device")
    return parse(text, str(path))


def _merged(files: Sequence[Path]) -> Records:
    """Raises: UserError with every problem."""
    problems: list[str] = []
    found = [(path, records) for path in files if (records := attempt(problems, _read, path)) is not None]
    if found:
        path, first = found[0]
        problems += (
            f"{other} has records of {records.key}, but {path} of {first.key}: merge files of one device"
            for other, records in found[1:]
            if records.key != first.key
        )
    if problems:
        raise UserError(problems)
    total = found[0][1]
    for _, records in found[1:]:
        total = total.merged(records.lines)
    return total


def _import(files: Sequence[Path], backend: str, device: str | None) -> None:
    """Keep what files have of a device, unchecked. Raises: UserError with every problem."""
    from gemmgen.tuning.records import Store

    problems: list[str] = []
    there, key = _device(backend, device)
    kept: list[Line] = []
    for path in files:
        records = attempt(problems, _read, path)
        if records is None:
            continue
        if not records.key.is_same_device(key):
            problems.append(f"{path} has records of {records.key}, but this device is {key}: name the one by --device")
            continue
        lines, refused = _validated(records, there, backend, str(path))
        kept += lines
        if refused:
            complain(refused)
    if problems:
        raise UserError(problems)
    Store().add(key, kept)
    say(f"{len(kept)} configurations of {key}: each is checked before its first use\n")


def _validated(records: Records, device: Device, backend: str, where: str) -> tuple[list[Line], list[str]]:
    """The lines whose schedules the device can run, marked as unchecked; and why others were left out."""
    from dataclasses import replace

    from gemmgen import driver
    from gemmgen.errors import ScheduleError
    from gemmgen.tuning.job import assuming_no_gaps
    from gemmgen.tuning.records import Line

    lines: list[Line] = []
    refused: list[str] = []
    for number, line in enumerate(records.lines, 2):
        try:
            made = line.measurement(f"{where}, line {number}")
        except ScheduleError as error:
            refused += error.problems
            continue
        # As matrices without gaps have them, which some schedules need.
        spec = assuming_no_gaps(made.spec, made.shape)
        if wrong := driver.refusals_of(spec, made.schedule, backend, device.target):
            refused.append(f"{where}, line {number} is left out: {wrong[0]}")
        else:
            lines.append(Line.of(replace(made, checked=False)))
    return lines, refused
