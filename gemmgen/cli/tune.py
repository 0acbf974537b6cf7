"""`gemmgen tune`: measure schedules on a device and keep what is found."""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli.declared import Text, flag, option
from gemmgen.cli.output import complain, document, examples, print_table, say
from gemmgen.cli.request import DTYPES
from gemmgen.errors import UserError, attempt

if TYPE_CHECKING:
    from gemmgen.options.specs import SpecTexts
    from gemmgen.spec import GemmSpec
    from gemmgen.tuning.records import Store
    from gemmgen.tuning.runners import Runner
    from gemmgen.tuning.study import Place, Product, Progress, Search

EXAMPLES = examples(
    "gemmgen tune --shapes 1024,128x4096x4096 --minutes 2",
    "gemmgen tune --shapes 4096 --dtype bfloat16 --epilogue bias --epilogue gelu --minutes 10",
    "gemmgen tune --shapes 4x4096x4096 --backend cuda --dtype float16 --layout row,col --b-dtype int8 --prologue-b "
    "'b * b_scale'",
    "gemmgen tune --model layers.txt --backend cuda --minutes 60",
    "gemmgen tune --trace model.py --minutes 10",
    "gemmgen tune --shapes 4096 --local 2 --minutes 10",
)
#: The exit code after Ctrl-C.
INTERRUPTED = 130
#: A line of --model: a shape, how often it is computed, a type, a layout.
_WEIGHTED = re.compile(
    r"(\S+)(?:\s+([0-9]{1,9}(?:\.[0-9]{1,9})?))?(?:\s+([a-z][a-z0-9_]{0,30}))?(?:\s+((?:row|col)(?:,(?:row|col)){1,2}))?"
)


#: That the sampler, NumPy's, takes.
MOST_SEEDS = 2**32
_STORAGE = "Where Optuna keeps its studies; by itself a journal beside the records."
_MODEL, _TRACE = (
    "A file with a size a line, and how often it is computed.",
    "The sizes that gemm is asked for by a Python script.",
)
_EPILOGUE = "As of emit: bias, gelu ... Can be repeated."
_SCHEDULER = "Of Dask, whose workers measure: tcp://HOST:8786."
_CALIBRATE = "Measure the device's constants for the cost model first, in about a minute."


def tune(
    shapes: Annotated[Text, option("--shapes", "MxNxK[,...]", "Sizes, as of bench: 4096, 128x4096x512.")] = None,
    model: Annotated[Path | None, option("--model", "FILE", _MODEL)] = None,
    trace: Annotated[Path | None, option("--trace", "SCRIPT", _TRACE)] = None,
    dtype: Annotated[Text, option("--dtype", "TYPE", DTYPES)] = None,
    layout: Annotated[Text, option("--layout", "A[,B[,C]]", "row or col, for all or for each.")] = None,
    c_dtype: Annotated[Text, option("--c-dtype", "TYPE", "C's, as of emit.")] = None,
    a_dtype: Annotated[Text, option("--a-dtype", "TYPE", "What A is stored in, as of emit.")] = None,
    b_dtype: Annotated[Text, option("--b-dtype", "TYPE", "The same of B: int4 of weights, say.")] = None,
    prologue_a: Annotated[Text, option("--prologue-a", "FORMULA", "Of A's elements, as of emit.")] = None,
    prologue_b: Annotated[Text, option("--prologue-b", "FORMULA", "The same of B: 'b * b_scale_128'.")] = None,
    epilogue: Annotated[list[str] | None, option("--epilogue", "FUNCTION", _EPILOGUE)] = None,
    allow_tf32: Annotated[bool, flag("--allow-tf32", "float32 may be rounded to TF32, as of emit.")] = False,
    minutes: Annotated[float, option("--minutes", "N", "For all sizes together, by their weights.")] = 10.0,
    backend: Annotated[str, option("--backend", "NAME", "opencl, cuda or sycl.")] = "opencl",
    device: Annotated[Text, option("--device", "DEVICE", "Its number or part of its name (gemmgen devices).")] = None,
    storage: Annotated[Text, option("--storage", "URL", _STORAGE)] = None,
    scheduler: Annotated[Text, option("--scheduler", "ADDRESS", _SCHEDULER)] = None,
    local: Annotated[int | None, option("--local", "N", "N workers of Dask on this machine.")] = None,
    seed: Annotated[int, option("--seed", "N", "Of the sampler.")] = 0,
    calibrate: Annotated[bool, flag("--calibrate", _CALIBRATE)] = False,
    as_json: Annotated[bool, flag("--json", "One JSON document in place of the table.")] = False,
) -> None:
    """Measure schedules for sizes on a device, and keep them: gemm and the commands then take the fastest.

    Every result is checked before its time counts. Ctrl-C loses nothing that was measured, and the same command goes
    on. What is kept, `gemmgen tuned` shows. Exit code 1 if a result was wrong or every schedule of a size
    failed, 130 after Ctrl-C.
    """
    from gemmgen.tuning.records import Store
    from gemmgen.tuning.study import require_optuna

    problems = list(_misfits(minutes, scheduler, local, seed))
    attempt(problems, require_optuna)
    place = attempt(problems, _place, backend, device)
    products: list[Product] | None = []
    if not (calibrate and (shapes, model, trace) == (None, None, None)):
        texts = _texts(dtype, layout, c_dtype, (a_dtype, b_dtype), (prologue_a, prologue_b), epilogue, allow_tf32)
        products = attempt(problems, _products, shapes, model, trace, texts, backend)
    problems += _uncalibrated(place) if calibrate and place is not None else ()
    store = Store()
    if not problems:
        attempt(problems, _writable, store)
    if problems or place is None or products is None:
        raise UserError(problems)
    runner = _runner(place, scheduler, local, None if device is None else place.number)
    try:
        _use_constants(runner, place, store, calibrate)
        found, stopped = _search(runner, place, products, store, storage, minutes * 60, seed)
    finally:
        runner.close()
    if products or as_json:
        _report(found, place, as_json)
    if faults := [text for progress in found for text in progress.wrong or filter(None, [progress.fault])]:
        complain(faults)
    raise typer.Exit(INTERRUPTED if stopped else 1 if faults else 0)


def _texts(
    dtype: Text,
    layout: Text,
    c_dtype: Text,
    stored: tuple[Text, Text],
    prologues: tuple[Text, Text],
    epilogue: list[str] | None,
    allow_tf32: bool,
) -> SpecTexts:
    """The options of a product: those of its types, of A and B as they are stored, and of what these are made into."""
    (a_dtype, b_dtype), (prologue_a, prologue_b) = stored, prologues
    return {
        "dtype": dtype,
        "layout": layout,
        "c_dtype": c_dtype,
        "a_dtype": a_dtype,
        "b_dtype": b_dtype,
        "prologue_a": prologue_a,
        "prologue_b": prologue_b,
        "epilogue": epilogue,
        "allow_tf32": allow_tf32,
    }


def _misfits(minutes: float, scheduler: str | None, local: int | None, seed: int) -> Iterator[str]:
    """What is wrong with numbers, and with what excludes another."""
    if not 0 < minutes <= 100_000:
        yield f"--minutes {minutes:g}: give more than 0, and at most 100,000: 10, say"
    if scheduler is not None and local is not None:
        yield "--scheduler and --local exclude one another: drop one"
    if local is not None and not 1 <= local <= 256:
        yield f"--local {local}: give 1 to 256 workers"
    if not 0 <= seed < MOST_SEEDS:
        yield f"--seed {seed}: give 0 to {MOST_SEEDS - 1}"


# --- what, and where ------------------------------------------------------------------------------


def _place(backend: str, device: str | None) -> Place:
    """Raises: DeviceError, UserError."""
    from gemmgen.runtime.selection import pick
    from gemmgen.tuning.device import key_of
    from gemmgen.tuning.study import Place

    found = pick(backend, device=device)
    return Place(backend, found.number, found.target, key_of(backend, found, found.target))


def _products(
    shapes: str | None,
    model: Path | None,
    trace: Path | None,
    texts: SpecTexts,
    backend: str,
) -> list[Product]:
    """What is to be tuned, the weightiest first. Raises: UserError with every problem."""
    from gemmgen.bench.records import parse_sizes
    from gemmgen.options import build_spec

    problems: list[str] = []
    if sum(given is not None for given in (shapes, model, trace)) != 1:
        problems.append("sizes come from one of --shapes 1024,128x4096x4096, --model FILE and --trace SCRIPT: give one")
    spec = attempt(problems, build_spec, **texts)
    if problems or spec is None:
        if shapes is not None:
            attempt(problems, parse_sizes, shapes)
        raise UserError(problems)
    if trace is not None:
        said = (f"--{name.replace('_', '-')}" for name, value in texts.items() if value)
        if wrong := [f"{option} comes from --trace: leave it out" for option in said]:
            raise UserError(wrong)
        found = _traced(trace, backend)
    else:
        lines = [(shapes, 1.0, spec)] if shapes is not None else _weighted(model, texts)
        found = _sized(lines)
    return sorted(found, key=lambda product: -product.weight)


def _sized(lines: Sequence[tuple[str, float, GemmSpec]]) -> list[Product]:
    """Raises: UserError with every problem."""
    from dataclasses import replace

    from gemmgen.bench.records import parse_sizes
    from gemmgen.tuning.study import Product

    problems: list[str] = []
    found: list[Product] = []
    for text, weight, spec in lines:
        for size in attempt(problems, parse_sizes, text) or ():
            batched = replace(spec, batched=size.batch > 0)
            found.append(Product(batched, (size.m, size.n, size.k), size.batch or 1, weight))
    if problems:
        raise UserError(problems)
    return list(dict.fromkeys(found))


def _weighted(path: Path | None, texts: SpecTexts) -> list[tuple[str, float, GemmSpec]]:
    """The lines of a file: a size, how often it is computed, and the spec, whose type and layout a line may have of its
    own. Raises: UserError with every wrong line.
    """
    from gemmgen.bench.records import parse_sizes
    from gemmgen.options import build_spec, read_text

    assert path is not None
    text = read_text(path, "--model", "a file with a size a line")
    found: list[tuple[str, float, GemmSpec]] = []
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        wrong: list[str] = []
        content = line.partition("#")[0].strip()
        match = _WEIGHTED.fullmatch(content)
        if match is not None and float(match[2] or 1) > 0:
            attempt(wrong, parse_sizes, match[1])
            of_line = texts.copy()
            of_line["dtype"], of_line["layout"] = match[3] or texts.get("dtype"), match[4] or texts.get("layout")
            spec = attempt(wrong, build_spec, **of_line)
            found += [(match[1], float(match[2] or 1), spec)] if spec is not None else []
        elif content:
            wrong.append(f"{content!r} is not like 128x4096x4096 12 (a size, and how often)")
        problems += (f"{path}, line {number}: {problem}" for problem in wrong)
    if not found and not problems:
        problems.append(f"--model {path} has no sizes: give one a line, such as 128x4096x4096 12")
    if problems:
        raise UserError(problems)
    return found


def _traced(script: Path, backend: str) -> list[Product]:
    """What a script asks gemm for, run in this process, each with how often. Raises: UserError."""
    import runpy
    from collections import Counter

    from gemmgen.api import kernels
    from gemmgen.tuning.records import kind_of
    from gemmgen.tuning.study import Product

    if not script.is_file():
        raise UserError(f"--trace {script} is no file: give a Python script that calls gemmgen")
    try:
        compile(script.read_bytes(), str(script), "exec")
    except (SyntaxError, ValueError) as error:
        raise UserError(f"--trace {script} is no Python script ({error}): give one that calls gemmgen") from None
    kernels.asked = []
    with _as_by_itself(script):
        runpy.run_path(str(script), run_name="__main__")
    found = Counter((kind_of(spec), shape, products) for at, spec, shape, products in kernels.asked if at == backend)
    if not found:
        raise UserError(f"--trace {script} has asked gemm for nothing on {backend}: name another script or --backend")
    return [Product(*each, weight=float(count)) for each, count in found.items()]


@contextmanager
def _as_by_itself(script: Path) -> Iterator[None]:
    """Where a script runs: with no arguments, and modules beside it found. Raises: UserError where it fails."""
    arguments, folders = sys.argv, sys.path
    sys.argv, sys.path = [str(script)], [str(script.resolve().parent), *folders]
    try:
        with suppress(SystemExit):
            yield
    except Exception as error:  # noqa: BLE001  (whatever the script raises)
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(script)), None)
        said = "".join(traceback.format_exception_only(error)).strip()
        raise UserError(f"--trace {script} failed in line {line} ({said}): it must run by itself first") from None
    finally:
        sys.argv, sys.path = arguments, folders


def _writable(store: Store) -> None:
    """Raises: UserError where records can't be kept, which would be found out after the first measurement."""
    from gemmgen.runtime.cache import own_folder

    try:
        with own_folder(store.folder):
            pass
    except OSError as error:
        remedy = "name a folder of your own by XDG_DATA_HOME"
        raise UserError(f"records can't be kept in {store.folder} ({error.strerror or error}): {remedy}") from None


def _runner(place: Place, scheduler: str | None, local: int | None, device: int | None) -> Runner:
    from gemmgen.tuning.runners import LocalRunner

    if scheduler is not None or local is not None:
        from gemmgen.tuning.workers import DaskRunner

        return DaskRunner(place.backend, scheduler, local, device, on_gpus=place.backend == "cuda")
    return LocalRunner(is_alone="vectors" in place.target.features)


# --- the search -----------------------------------------------------------------------------------


def _search(
    runner: Runner,
    place: Place,
    products: Sequence[Product],
    store: Store,
    storage: str | None,
    seconds: float,
    seed: int,
) -> tuple[list[Progress], bool]:
    """How far each product came, and whether Ctrl-C ended the search."""
    from gemmgen.progress import shown
    from gemmgen.tuning.study import Search, open_storage

    opened = open_storage(storage, store, place.key)
    total = sum(product.weight for product in products)
    found: list[Progress] = []
    begin = time.monotonic()
    with shown(seconds) as show:

        def tell(progress: Progress) -> None:
            show(min(seconds, time.monotonic() - begin), _so_far(progress))

        searches = [Search(runner, place, each, store, opened, seed=seed, tell=tell) for each in products]
        for product, search, after in zip_longest(products, searches, searches[1:]):
            found.append(search.progress)
            try:
                search.run(seconds * product.weight / total, meanwhile=partial(_ahead, runner, after))
            except KeyboardInterrupt:
                return found, True
    return found, False


def _uncalibrated(place: Place) -> Iterator[str]:
    """Why a device can't be calibrated, if it can't."""
    if {"async_copy", "vectors"}.isdisjoint(place.target.features):
        yield f"--calibrate is for CPUs and GPUs of CUDA, not for {place.key}: leave it out"


def _use_constants(runner: Runner, place: Place, store: Store, anew: bool) -> None:
    """Take the constants of the device that were measured, now if asked for."""
    from dataclasses import replace

    from gemmgen.ir.target import calibrate

    if anew:
        from gemmgen.tuning.calibrate import measured

        found = measured(runner, place, lambda text: typer.echo(text, err=True))
        store.change(place.key, lambda records: replace(records, machine={**records.machine, **found}))
    calibrate(place.target, store.read(place.key).machine)


def _ahead(runner: Runner, search: Search | None) -> None:
    """Compile what the next search begins with."""
    from gemmgen.tuning.runners import LocalRunner

    if search is not None and isinstance(runner, LocalRunner):
        runner.ahead(search.first(runner.width))


def _so_far(progress: Progress) -> str:
    gain = f", {progress.untuned / progress.best:.2f}x the untuned choice" if progress.untuned and progress.best else ""
    best = f", best {progress.best * 1e3:.4g} ms{gain}" if progress.best else ""
    return f"{progress.product}: {progress.trials} measured{best}"


def _report(found: Sequence[Progress], place: Place, as_json: bool) -> None:
    from gemmgen.kernel_names import kernel_name

    rows = [
        {
            "product": str(progress.product),
            "measured": progress.trials,
            "failed": progress.failed,
            "untuned_ms": progress.untuned * 1e3 or None,
            "best_ms": progress.best * 1e3 or None,
            "schedule": None if progress.schedule is None else kernel_name(progress.schedule, progress.product.spec),
        }
        for progress in found
    ]
    if as_json:
        say(document("tuned", rows, device=str(place.key)))
        return
    shown = []
    for progress in found:
        gain = f"{progress.untuned / progress.best:.2f}" if progress.untuned and progress.best else "-"
        times = [f"{x * 1e3:.4g}" if x else "-" for x in (progress.untuned, progress.best)]
        name = "-" if progress.schedule is None else kernel_name(progress.schedule, progress.product.spec)
        shown.append((str(progress.product), str(progress.trials), *times, gain, name))
    print_table(str(place.key), ("product", "measured", "untuned ms", "best ms", "gain", "schedule"), shown)
