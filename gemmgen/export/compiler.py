"""Makes a shared library of a C source, by the compiler of the machine."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gemmgen.errors import UserError

FLAGS = ("-std=c99", "-O3", "-fPIC", "-shared", "-Wall", "-Wextra")
LIBRARIES = ("-ldl", "-lpthread")
#: Compilers that are looked for where $CC names none.
COMPILERS = ("cc", "gcc", "clang")


def compiler_command() -> list[str]:
    """The compiler and its own options: $CC, else the first one found. Raises: UserError."""
    if named := os.environ.get("CC"):
        try:
            command = shlex.split(named)
        except ValueError as error:
            raise UserError(f"CC={named} can't be split into words ({error}): name a C compiler") from None
        if not command or shutil.which(command[0]) is None:
            raise UserError(
                f"CC={named} is not on this machine: name a C compiler, or take --source and build elsewhere"
            )
        return command
    for name in COMPILERS:
        if shutil.which(name):
            return [name]
    raise UserError(
        f"no C compiler found ({', '.join(COMPILERS)}): install one (apt-get install gcc), set CC, or take --source"
    )


def shared_library(text: str, command: Sequence[str], defines: Sequence[tuple[str, str]] = ()) -> bytes:
    """The library made of a source.

    Args:
        command: the compiler with its own options.
        defines: macros that are strings, and what they say.

    Raises: UserError with what the compiler said.
    """
    with tempfile.TemporaryDirectory(prefix="gemmgen-export-") as folder:
        source, library = Path(folder, "source.c"), Path(folder, "library.so")
        source.write_text(text)
        strings = [f'-D{name}="{_escaped(value)}"' for name, value in defines]
        try:
            result = subprocess.run(
                [*command, *FLAGS, *strings, "-o", str(library), str(source), *LIBRARIES],
                check=False,
                capture_output=True,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise UserError(f"{command[0]} can't be run ({error.strerror}): set CC to a C compiler") from None
        if result.returncode or not library.is_file():
            said = (result.stderr or result.stdout).strip()
            raise UserError(f"{shlex.join(command)} does not compile the library:\n{said}")
        return library.read_bytes()


def _escaped(value: str) -> str:
    """A path inside a C string literal."""
    return value.replace("\\", "\\\\").replace('"', '\\"')
