"""Cases that nobody chose: what is not refused must be right, on every size, in the interpreter and on devices.

`strategies` draws cases (it needs hypothesis), `checks` says what must hold of one, `search` looks for one of which it
does not, `case` writes that to a file from which it can be run again.
"""

from __future__ import annotations

from importlib.util import find_spec

from gemmgen.errors import ToolError

INSTALL = 'pip install "gemmgen[fuzz]"'


def require_hypothesis() -> None:
    """Raises: ToolError with the command that installs it."""
    if find_spec("hypothesis") is None:
        raise ToolError(
            f"hypothesis, which draws the cases and makes those that fail small, is not installed: {INSTALL}"
        )
