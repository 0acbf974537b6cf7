"""The command line. One module a command; heavy modules are imported when a command needs them."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from importlib import import_module
from itertools import pairwise
from typing import Annotated, ParamSpec, TypeVar, cast

import typer
from typer.core import TyperCommand, TyperGroup

from gemmgen.cli.output import complain, examples
from gemmgen.errors import LoweringError, UserError

P = ParamSpec("P")
T = TypeVar("T")


def _bare_flags(get_params: Callable[P, list[T]]) -> Callable[P, list[T]]:
    """The parameters, with flags shown in the help without a value."""

    @wraps(get_params)
    def bare(*args: P.args, **kwargs: P.kwargs) -> list[T]:
        found = get_params(*args, **kwargs)
        for parameter in found:
            if getattr(parameter, "is_flag", False):
                parameter.__dict__["metavar"] = ""
        return found

    return bare


def _each_once(parse_args: Callable[P, T]) -> Callable[P, T]:
    """The parser, which refuses a single-valued option that is given twice, and a flag that is set both ways, since the
    first value would be ignored.

    Raises: UserError with every such option.
    """

    @wraps(parse_args)
    def parse(*args: P.args, **kwargs: P.kwargs) -> T:
        command, _, words = cast("tuple[object, object, list[str]]", args)
        problems = []
        for option in getattr(command, "params", ()):
            if getattr(option, "is_flag", False):
                names = option.opts, option.secondary_opts
                on, off = (next((name for name in each if name in words), None) for each in names)
                if on and off:
                    problems.append(f"{on} and {off} are both given: leave one out")
                continue
            if getattr(option, "multiple", False):
                continue
            given = _values(words, getattr(option, "opts", ()))
            if len(set(given)) > 1:
                problems.append(f"{max(option.opts, key=len)} is given as {' and as '.join(given)}: leave one out")
        if problems:
            raise UserError(problems)
        return parse_args(*args, **kwargs)

    return parse


def _values(words: list[str], names: Sequence[str]) -> list[str]:
    """The values that follow an option's names in a command line."""
    long = [f"{name}=" for name in names if name.startswith("--")]
    inline = [word.split("=", 1)[1] for word in words if word.startswith(tuple(long))]
    return [value for word, value in pairwise(words) if word in names] + inline


class _Command(TyperCommand):
    get_params = _bare_flags(TyperCommand.get_params)
    parse_args = _each_once(TyperCommand.parse_args)


class _Group(TyperGroup):
    get_params = _bare_flags(TyperGroup.get_params)


#: Where a command is not the function of its own name in a module of that name: both, and its examples.
_ELSEWHERE = {
    "presets": ("listing", "presets", "PRESETS_EXAMPLES"),
    "fields": ("listing", "fields_of_schedules", "FIELDS_EXAMPLES"),
    "devices": ("listing", "devices", "DEVICES_EXAMPLES"),
}
#: All of them, in the order of the help.
COMMANDS = {
    name: _ELSEWHERE.get(name, (name, name, "EXAMPLES"))
    for name in (
        *("emit", "export", "explain", "inspect", "fetch", "run", "bench", "tune", "tuned", "fuzz"),
        *("presets", "cache", "fields", "devices"),
    )
}
_EPILOG = examples(
    "gemmgen emit --backend opencl --tile 32x2",
    "gemmgen explain --preset block_read_32x2_1x8",
    "gemmgen run -k naive -M 1000 -K 500 -N 700 -v",
    "gemmgen --install-completion",
)


def _version(wanted: bool) -> None:
    if wanted:
        import gemmgen

        typer.echo(f"gemmgen {gemmgen.__version__}")
        raise typer.Exit


def _gemmgen(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Generate, explain and run matrix multiplication kernels: C = alpha * A * B + beta * C."""


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with some of the commands; only their modules are imported."""
    app = typer.Typer(
        name="gemmgen",
        cls=_Group,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(epilog=_EPILOG)(_gemmgen)
    for name in names:
        module, function, examples = COMMANDS[name]
        found = vars(import_module(f"gemmgen.cli.{module}"))
        app.command(name, cls=_Command, epilog=found[examples])(found[function])
    return app


def main() -> None:
    """The console script. Exit codes: 0, 1 (wrong result, or a bug of gemmgen), 2 (bad input)."""
    # Commands create many small records and end soon. Garbage collection would cost a tenth of the time.
    gc.set_threshold(100_000)
    if hasattr(signal, "SIGPIPE"):
        # If the reader of a pipe ends (`| head`), the process ends silently.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Drawings and device names are not ASCII, but a terminal's encoding may be.
            stream.reconfigure(errors="replace")
    if not os.environ.get("COLUMNS", "1").strip("0"):
        # A terminal that does not know its width says 0, in which nothing would be printed.
        del os.environ["COLUMNS"]
    words = sys.argv[1:]
    # All commands are for the help, for completion and for a name that is none.
    named = [] if words == ["--version"] else words[:1] if words[:1] and words[0] in COMMANDS else COMMANDS
    try:
        application(named)()
    except UserError as error:
        complain(error.problems, error.works)
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
