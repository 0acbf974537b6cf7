"""`gemmgen bench`: measure kernels against libraries."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli.declared import Text, complete_presets, flag, option
from gemmgen.cli.output import complain, deliver, examples, path_problems, wide_console, write
from gemmgen.cli.request import Request, strict_problems
from gemmgen.errors import DeviceError, UserError, attempt

if TYPE_CHECKING:
    from gemmgen.bench.records import Row
    from gemmgen.bench.session import Job, Plan

#: The exit code after Ctrl-C, by the convention of shells: 128 + SIGINT.
INTERRUPTED = 130

EXAMPLES = examples(
    "gemmgen bench --backend cuda --preset smem_8x8_double --sizes 1024,4095,128x14336x4096",
    "gemmgen bench --backend cuda --best --sizes 512,1024,2048,4096 --vs cublas,numpy --json bench.json",
    "gemmgen bench --backend opencl --preset L3_SIMD_32x2_1x8 --sizes 1024 --vs clblast,mkl,numpy -d xeon",
    "gemmgen bench --backend cuda --best --sizes 512,1024,2048,4096,8192 --plot bench.svg",
    "gemmgen bench --backend cuda --preset mma_8x16_16x8 --sizes 4096 --vs cublas",
)


Backend = Annotated[Text, option("--backend", "NAME", "cuda or opencl. By itself cuda where there is such a GPU.")]
Presets = Annotated[list[str] | None, option("--preset", "NAME[,NAME]", "Can be repeated.", complete_presets)]
Schedules = Annotated[list[Path] | None, option("--schedule", "FILE.toml", "A schedule in TOML. Can be repeated.")]
Best = Annotated[
    bool, flag("--best", "The fastest preset per size; of those named, if any, else of all reproducible ones.")
]
Sizes = Annotated[
    str, option("--sizes", "N|MxNxK|B:N,...", "Such as 512,128x14336x4096 (M x N x K), 256:64 (a batch).")
]
_PEERS = "Of cublas, cublas_tf32, clblast, mkl, numpy; '' for none. By itself cublas on cuda, numpy on opencl."
Peers = Annotated[Text, option("--vs", "NAME[,NAME]", _PEERS)]
_DTYPE = "float32, float64; also float16, bfloat16, float8_*, int8 (cuda)."
Dtype = Annotated[Text, option("--dtype", "TYPE", _DTYPE)]
LdMultiple = Annotated[Text, option("--ld-multiple", "N", "Assume this of leading dimensions; else matrices choose.")]
Strict = Annotated[bool, flag("--strict", "Refuse CUDA kernels whose registers spill, by ptxas' word.")]
Rounds = Annotated[
    int | None, option("--rounds", "N", "Of each contender, by itself 9; 6 or more give a ratio's interval.")
]
Device = Annotated[Text, option("-d --device", "D", "Number or part of a name.")]
Seed = Annotated[int, option("--seed", "N", "Of the random numbers.")]
Json = Annotated[Path | None, option("--json", "FILE", "Where every figure is written as JSON.")]
Plot = Annotated[Path | None, option("--plot", "FILE.png|svg", "Where a picture is drawn: rate over size.")]
Csv = Annotated[Path | None, option("--csv", "FILE", "Where the rows are written as CSV.")]


def bench(
    backend: Backend = None,
    preset: Presets = None,
    schedule: Schedules = None,
    best: Best = False,
    sizes: Sizes = "4096",
    vs: Peers = None,
    dtype: Dtype = None,
    ld_multiple: LdMultiple = None,
    strict: Strict = False,
    rounds: Rounds = None,
    device: Device = None,
    seed: Seed = 0,
    json: Json = None,
    csv: Csv = None,
    plot: Plot = None,
) -> None:
    """Measure kernels against libraries: the ratio first, above 1 where ours is faster.

    Results are checked against float64 before anything is timed. Contenders take turns, by device time (graph replays
    on CUDA, events on OpenCL), each block warmed up by its first half. The table has medians of the rounds, the 95 %
    bootstrap interval of the ratio, and the spread (slowest - fastest) / median. A ratio with a wide interval is marked
    with ?, and a remedy follows. mkl and numpy (the CPU's) and clblast (on the same device) each take turns in a
    process of their own. Without --preset, --schedule and --best the kernel is measured that gemmgen.gemm takes. Clocks
    are left as they are. Ctrl-C ends the measurement: what was measured by then is printed and written. Exit code 1 if
    a result is wrong, 130 after Ctrl-C.
    """
    from gemmgen.bench import records
    from gemmgen.bench.plot import check as check_plot
    from gemmgen.bench.session import Plan
    from gemmgen.runtime.selection import pick

    rounds = records.ROUNDS if rounds is None else rounds
    backend = backend or _backend_there(device)
    problems = _option_problems(backend, rounds, seed) + strict_problems(strict, backend)
    problems += _path_problems({"--json": json, "--csv": csv, "--plot": plot})
    attempt(problems, check_plot, plot)
    measured = attempt(problems, records.parse_sizes, sizes)
    peers = attempt(problems, _peers, vs, backend)
    jobs = attempt(problems, _jobs, backend, device, preset or [], schedule or [], best, ld_multiple, dtype)
    asked = _types(dtype) if dtype else [spec.dtype.name for spec, _ in jobs or ()]
    attempt(problems, records.check_dtypes, asked, peers or (), backend)
    if problems or measured is None or peers is None or jobs is None:
        raise UserError(problems)
    exact = ld_multiple is not None
    chosen = pick(backend, device=device)
    plan = Plan(backend, jobs, measured, peers, best, exact, strict, rounds, seed, chosen, dtype and asked[0])
    rows, failure = _measure(plan)
    about = _about(plan, failure)
    if json is not None and rows:
        deliver(records.to_json(rows, about), json)
    if csv is not None and rows:
        deliver(records.to_csv(rows), csv)
    if plot is not None and rows:
        _draw(rows, plan, about, plot)
    if isinstance(failure, UserError):
        raise failure
    passed = all(row.ours.accuracy.passed for row in rows)
    raise typer.Exit(INTERRUPTED if failure is not None else 0 if passed else 1)


def _path_problems(files: Mapping[str, Path | None]) -> list[str]:
    problems = [
        problem
        for name, path in files.items()
        for problem in path_problems(path, "bench.png" if name == "--plot" else f"bench.{name[2:]}", name)
    ]
    for (name, path), (other, again) in combinations(files.items(), 2):
        if path is not None and again is not None and path.resolve() == again.resolve():
            problems.append(f"{name} and {other} both go to {path}: name two files")
    return problems


def _option_problems(backend: str, rounds: int, seed: int) -> list[str]:
    from gemmgen.bench.records import FEWEST_ROUNDS, LIMIT_OF_ROUNDS

    problems = []
    if backend not in ("cuda", "opencl"):
        problems.append(f"backend {backend!r} can't be measured: use cuda or opencl")
    if not 1 <= rounds <= LIMIT_OF_ROUNDS:
        problems.append(f"--rounds {rounds}: give 1 to {LIMIT_OF_ROUNDS}; {FEWEST_ROUNDS} or more give an interval")
    if seed < 0:
        problems.append(f"--seed {seed} < 0: give 0 or more")
    return problems


def _peers(vs: str | None, backend: str) -> tuple[str, ...]:
    """The libraries to compare with, all of them available; the backend's default if none is named. Raises: UserError
    with every problem.
    """
    from gemmgen.bench.libraries import require
    from gemmgen.bench.records import USUAL_PEERS, parse_peers

    peers = parse_peers(USUAL_PEERS.get(backend, "") if vs is None else vs)
    require(peers)
    return peers


def _jobs(
    backend: str,
    device: str | None,
    named: list[str],
    files: list[Path],
    best: bool,
    ld_multiple: str | None,
    dtype: str | None,
) -> tuple[Job, ...]:
    """The kernels and sizes to measure. Raises: UserError with every problem."""
    from gemmgen.bench.session import candidates
    from gemmgen.options import build_spec
    from gemmgen.runtime.selection import pick

    presets = [name.strip() for text in named for name in text.split(",")]
    problems: list[str] = []
    asked = attempt(problems, build_spec, dtype=dtype, ld_multiple=ld_multiple)
    if ld_multiple is not None and not (presets or files or best):
        problems.append("--ld-multiple is for --preset, --schedule and --best: give one, or leave it out")
    if best and not presets and not files and asked is not None:
        assumed = None if ld_multiple is None else asked.ld_multiple
        dtype, target = asked.dtype.name, pick(backend, device=device).target
        presets = list(candidates(asked.dtype, target, assumed))
        if not presets:
            raise UserError(f"no preset multiplies {asked.dtype} on {target.name}: use another --dtype or device")
    requests = [Request(preset=name, ld_multiple=ld_multiple, dtype=dtype) for name in dict.fromkeys(presets)]
    requests += [Request(schedule_file=path, ld_multiple=ld_multiple, dtype=dtype) for path in files]
    found = [attempt(problems, request.resolve) for request in requests]
    if problems:
        raise UserError(dict.fromkeys(problems))
    return tuple((job[0], job[1]) for job in found if job is not None)


def _types(dtype: str) -> list[str]:
    """The element type that is named; none where it is no type, of which `_jobs` tells."""
    from gemmgen.spec import parse_dtype

    found = attempt([], parse_dtype, dtype)
    return [] if found is None else [found.name]


def _backend_there(device: str | None) -> str:
    """CUDA if it has a GPU that `device` selects, or else OpenCL."""
    from gemmgen.runtime.selection import pick

    try:
        pick("cuda", device=device)
    except DeviceError:
        return "opencl"
    return "cuda"


def _about(plan: Plan, failure: BaseException | None) -> dict[str, object]:
    """The conditions of the figures, and the cause of an early end."""
    import platform

    from gemmgen import __version__

    found: dict[str, object] = {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": shlex.join(["gemmgen", *sys.argv[1:]]),
        "gemmgen": __version__,
        "python": platform.python_version(),
        "seed": plan.seed,
    }
    found |= {"rounds": plan.rounds, "device": str(plan.device)}
    from gemmgen.bench.libraries import about

    found |= about(plan.peers)
    if plan.backend == "cuda" or "cublas" in plan.peers:
        from gemmgen.bench.cuda import about as about_gpu

        found |= about_gpu(plan.device if plan.backend == "cuda" else None)
    if failure is not None:
        found["ended_early_by"] = str(failure) or "Ctrl-C"
    return found


def _draw(rows: list[Row], plan: Plan, about: Mapping[str, object], path: Path) -> None:
    from gemmgen.bench.plot import draw

    roof = about.get("roof_tflops") if plan.backend == "cuda" else None
    known, kind = roof if isinstance(roof, float) else None, path.suffix[1:].lower()
    write(path, lambda file: draw(rows, plan.best, known, str(plan.device), file, kind))


def _measure(plan: Plan) -> tuple[list[Row], BaseException | None]:
    """Measure, and print the table. Returns the rows, and the cause of an early end, if there was one."""
    from dataclasses import replace

    from gemmgen.bench.libraries import cautions
    from gemmgen.bench.session import run
    from gemmgen.progress import progress

    steps = len(plan.sizes) * (2 + max(1, len(plan.jobs)) + len(plan.peers) + plan.rounds)
    warnings = cautions(plan.peers)
    rows: list[Row] = []
    failure: BaseException | None = None
    with progress(steps) as tick:
        try:
            for row in run(replace(plan, warn=warnings.append, tick=tick)):
                rows.append(row)  # noqa: PERF402  (one by one: those before an error stay)
        except (KeyboardInterrupt, UserError) as error:
            failure = error
    if isinstance(failure, KeyboardInterrupt):
        warnings.append(f"ended by Ctrl-C: {_so_far(plan, rows)}")
    warnings += _uncertain(rows)
    if warnings:
        complain(warnings)
    if rows:
        _show(plan, rows)
    return rows, failure


def _so_far(plan: Plan, rows: list[Row]) -> str:
    """A message with the number of rows that were measured before the end."""
    sizes = dict.fromkeys(row.size for row in rows)
    if not sizes:
        return "nothing was measured by then"
    rounds = len(rows[-1].ours.rounds)
    last = "" if rounds == plan.rounds else f", the last one in {rounds} of {plan.rounds} rounds"
    return f"{len(sizes)} of {len(plan.sizes)} sizes were measured by then{last}"


def _uncertain(rows: list[Row]) -> list[str]:
    """A warning for each remedy, with the uncertain ratios to which it applies."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.remedy and row.peer is not None:
            interval = f" ({row.interval})" if row.interval else ""
            found.setdefault(row.remedy, []).append(f"{row.ours.name} at {row.size} beside {row.peer.name}{interval}")
    return [f"the ratio of {', '.join(ratios)} is uncertain: {what}" for what, ratios in found.items()]


def _show(plan: Plan, rows: list[Row]) -> None:
    """Print the table, with the ratio first."""
    from rich.table import Table

    from gemmgen.bench.records import percent, three_digits

    table = Table(box=None, pad_edge=False)
    titles = ("ratio", "95 %", "size", "preset", "variant", "TFLOP/s", "peer", "TFLOP/s", "us", "spread")
    for title in (*titles, "error", "peer's"):
        # If the line is too short, the preset's name is shortened, never a figure.
        left, folds = title in ("95 %", "preset", "variant", "peer"), title == "preset"
        table.add_column(title, justify="left" if left else "right", no_wrap=not folds, overflow="fold")
    for row in rows:
        peer, failed = row.peer, "" if row.ours.accuracy.passed else " WRONG"
        table.add_row(
            _figure(row.ratio) + (" ?" if row.remedy else ""),
            "-" if row.interval is None else str(row.interval),
            str(row.size),
            row.ours.name,
            row.ours.variant,
            three_digits(row.ours.rate(row.size)),
            peer.name if peer else "-",
            three_digits(peer.rate(row.size)) if peer else "-",
            three_digits(row.ours.seconds * 1e6),
            percent(row.ours.spread) + (f"/{percent(peer.spread)}" if peer else ""),
            f"{row.ours.accuracy.error:.2e}{failed}",
            f"{peer.accuracy.error:.2e}" if peer else "-",
        )
    console = wide_console()
    console.print(table, highlight=False)
    worst = max(row.ours.accuracy.worst for row in rows)
    console.print(
        f"{plan.device}; medians of {plan.rounds} rounds, and of their ratios; errors are |C - float64| / |float64|, "
        f"elements reach {worst:.2g} of their bound gamma_(K+3) |A| |B| at most",
        highlight=False,
        soft_wrap=True,
    )


def _figure(ratio: float | None) -> str:
    from gemmgen.bench.records import three_digits

    return "-" if ratio is None else three_digits(ratio)
