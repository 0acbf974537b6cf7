"""The command line. One module a command; nothing heavy is imported before a command needs it."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import pairwise
from typing import Annotated, ParamSpec, TypeVar, cast

import typer
from typer.core import TyperCommand, TyperGroup

from gemmgen.cli import bench, cache, emit, explain, export, fuzz, inspect, listing, run
from gemmgen.cli.output import complain
from gemmgen.errors import LoweringError, UserError

P = ParamSpec("P")
T = TypeVar("T")


def _bare_flags(get_params: Callable[P, list[T]]) -> Callable[P, list[T]]:
    """The same parameters, of which flags are not shown to take a value: none does."""

    @wraps(get_params)
    def bare(*args: P.args, **kwargs: P.kwargs) -> list[T]:
        found = get_params(*args, **kwargs)
        for parameter in found:
            if getattr(parameter, "is_flag", False):
                parameter.__dict__["metavar"] = ""
        return found

    return bare


def _each_once(parse_args: Callable[P, T]) -> Callable[P, T]:
    """The same, but for an option that is given twice and counts once: the first would be dropped in silence.

    Raises: UserError with every one of them.
    """

    @wraps(parse_args)
    def parse(*args: P.args, **kwargs: P.kwargs) -> T:
        command, _, words = cast("tuple[object, object, list[str]]", args)
        problems = []
        for option in getattr(command, "params", ()):
            if getattr(option, "is_flag", False) or getattr(option, "multiple", False):
                continue
            given = _values(words, getattr(option, "opts", ()))
            if len(set(given)) > 1:
                problems.append(f"{max(option.opts, key=len)} is given as {' and as '.join(given)}: leave one out")
        if problems:
            raise UserError(problems)
        return parse_args(*args, **kwargs)

    return parse


def _values(words: list[str], names: Sequence[str]) -> list[str]:
    """What follows an option's names in a command line."""
    long = [f"{name}=" for name in names if name.startswith("--")]
    inline = [word.split("=", 1)[1] for word in words if word.startswith(tuple(long))]
    return [value for word, value in pairwise(words) if word in names] + inline


class _Command(TyperCommand):
    get_params = _bare_flags(TyperCommand.get_params)
    parse_args = _each_once(TyperCommand.parse_args)


class _Group(TyperGroup):
    get_params = _bare_flags(TyperGroup.get_params)


app = typer.Typer(
    name="gemmgen",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        import gemmgen

        typer.echo(f"gemmgen {gemmgen.__version__}")
        raise typer.Exit


@app.callback(
    epilog="\n\n".join(
        (
            "[bold]Examples[/bold]",
            "gemmgen emit --backend opencl --tile 32x2",
            "gemmgen explain --preset block_read_32x2_1x8",
            "gemmgen run -k naive -M 1000 -K 500 -N 700 -v",
            "gemmgen --install-completion",
        )
    )
)
def _gemmgen(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Generate, explain and run matrix multiplication kernels: C = alpha * A * B + beta * C."""


app.command("emit", cls=_Command, epilog=emit.EXAMPLES)(emit.emit)
app.command("export", cls=_Command, epilog=export.EXAMPLES)(export.export)
app.command("explain", cls=_Command, epilog=explain.EXAMPLES)(explain.explain)
app.command("inspect", cls=_Command, epilog=inspect.EXAMPLES)(inspect.inspect)
app.command("run", cls=_Command, epilog=run.EXAMPLES)(run.run)
app.command("bench", cls=_Command, epilog=bench.EXAMPLES)(bench.bench)
app.command("fuzz", cls=_Command, epilog=fuzz.EXAMPLES)(fuzz.fuzz)
app.command("presets", cls=_Command, epilog=listing.PRESETS_EXAMPLES)(listing.presets)
app.command("cache", cls=_Command, epilog=cache.EXAMPLES)(cache.cache)
app.command("devices", cls=_Command, epilog=listing.DEVICES_EXAMPLES)(listing.devices)


def main() -> None:
    """The console script. Exit codes: 0, 1 (wrong result, or a bug of gemmgen), 2 (bad input)."""
    # Commands make many small records and end soon: looking for cycles among them all the time costs a tenth.
    gc.set_threshold(100_000)
    if hasattr(signal, "SIGPIPE"):
        # A reader that has seen enough (`| head`) ends the process in silence, wherever it stands.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Pictures and device names are not ASCII, a terminal may be.
            stream.reconfigure(errors="replace")
    try:
        app()
    except UserError as error:
        complain(error.problems)
        sys.exit(2)
    except LoweringError as error:
        complain([f"{error} (a bug of gemmgen: please report it with this command line)"])
        sys.exit(1)
    except MemoryError as error:
        complain([f"{str(error) or 'out of memory'}: there is not so much here: give smaller sizes, or fewer products"])
        sys.exit(2)
    except OSError as error:
        complain([f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")])
        sys.exit(2)
