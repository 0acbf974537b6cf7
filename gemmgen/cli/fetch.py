"""`gemmgen fetch`: download a compiler for `gemmgen inspect`, without root."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from gemmgen.cli.declared import completing
from gemmgen.cli.output import examples, say
from gemmgen.errors import UserError, suggest

complete_tools = completing(lambda: import_module("gemmgen.tools").FETCHED)
EXAMPLES = examples("gemmgen fetch ocloc")


def fetch(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="ocloc.", autocompletion=complete_tools)],
) -> None:
    """Bring a compiler into the user's data folder: ocloc, Intel's for GPUs from Xe-LP on, of today.

    About 70 MB from Debian's archive, through apt, which checks signatures; nothing is installed. gemmgen inspect asks
    it before one on PATH. The same command later brings the newest again.
    """
    from gemmgen.inspect.fetch import fetch_ocloc
    from gemmgen.tools import FETCHED

    if tool not in FETCHED:
        raise UserError(f"{tool!r} is not fetched: {suggest(tool, FETCHED)}")
    program, version = fetch_ocloc()
    say(f"{tool} {version}: {program}\n")
