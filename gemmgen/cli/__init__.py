"""The command line. One module a command; nothing heavy is imported before a command needs it."""

from __future__ import annotations

import gc
import signal
import sys
from typing import Annotated

import typer

from gemmgen.cli import bench, emit, explain, export, fuzz, inspect, listing, run
from gemmgen.cli.output import complain
from gemmgen.errors import LoweringError, UserError

app = typer.Typer(
    name="gemmgen",
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


app.command("emit", epilog=emit.EXAMPLES)(emit.emit)
app.command("export", epilog=export.EXAMPLES)(export.export)
app.command("explain", epilog=explain.EXAMPLES)(explain.explain)
app.command("inspect", epilog=inspect.EXAMPLES)(inspect.inspect)
app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("bench", epilog=bench.EXAMPLES)(bench.bench)
app.command("fuzz", epilog=fuzz.EXAMPLES)(fuzz.fuzz)
app.command("presets", epilog=listing.PRESETS_EXAMPLES)(listing.presets)
app.command("devices", epilog=listing.DEVICES_EXAMPLES)(listing.devices)


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
