"""`ocloc` of today beside the system's own: Debian's newest packages, unpacked into the user's data folder.

Nothing is installed and nothing is replaced, and no root is needed. The packages come from the archive that the
system's own packages come from, and apt checks their signatures.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gemmgen.errors import ToolError
from gemmgen.inspect.toolchain import version
from gemmgen.tools import fetched

#: The release of Debian that has the newest packages; the compiler, what it compiles with, and the libraries of C and
#: C++ that these are linked with, which may be newer than the system's.
SUITE = "sid"
PACKAGES = ("intel-ocloc", "libigc2", "libigdfcl2", "libc6", "libstdc++6", "libgcc-s1", "zlib1g")
_SOURCES = Path("/etc/apt")
_SECONDS = 600
#: Folders of the packages that no compiler reads.
_UNREAD = ("usr/share", "etc", "usr/lib/x86_64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/audit")
_START = """#!/bin/sh
# Written by gemmgen fetch. The libraries beside it may be newer than the system's, and so may their loader.
exec {loader} --library-path {libraries} {program} "$@"
"""


def fetch_ocloc() -> tuple[Path, str]:
    """Download it, in place of an earlier one.

    Returns: the program, and its version.
    Raises: ToolError if this is no Debian, or with what apt said.
    """
    missing = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if missing:
        raise ToolError(
            f"{' and '.join(missing)} not found: ocloc is fetched from Debian's archive. Elsewhere install "
            "intel-ocloc from your system's packages, or Intel's compute-runtime release; it is found on PATH"
        )
    place = fetched("ocloc").parents[1]
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix=".ocloc-", dir=place.parent) as name:
        draft = Path(name) / "ocloc"
        _unpack(Path(name), draft / "files")
        write_start(draft, place)
        shutil.rmtree(place, ignore_errors=True)
        draft.rename(place)
    version.cache_clear()
    return fetched("ocloc"), version("ocloc")


def archive(folder: Path = _SOURCES) -> tuple[str, str]:
    """The address of the archive of this system's packages, and the file with its keys (empty if apt knows them).

    Raises: ToolError if no file of apt's names a Debian archive.
    """
    for file in sorted(folder.glob("sources.list.d/*.sources")):
        for block in re.split(r"\n\s*\n", file.read_text("utf-8", "replace")):
            fields = dict(re.findall(r"^([\w-]+): *(\S+)", block, re.MULTILINE))
            if "deb" in fields.get("Types", "") and _is_debian(fields.get("URIs", "")):
                return fields["URIs"], fields.get("Signed-By", "")
    for file in (folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))):
        text = file.read_text("utf-8", "replace") if file.is_file() else ""
        for options, address in re.findall(r"^deb +(?:\[([^]]*)\] +)?(\S+)", text, re.MULTILINE):
            if _is_debian(address):
                key = re.search(r"signed-by=(\S+)", options)
                return address, key[1] if key else ""
    raise ToolError(
        f"{folder} names no Debian archive: ocloc is fetched from Debian's. Elsewhere install intel-ocloc from your "
        "system's packages, or Intel's compute-runtime release; it is found on PATH"
    )


def _is_debian(address: str) -> bool:
    return address.rstrip("/").endswith("/debian")


def _unpack(folder: Path, files: Path) -> None:
    """Download the packages into a folder and unpack them into another, without the system's lists of packages."""
    address, key = archive()
    for part in ("preferences.d", "lists/partial", "cache/archives/partial", "packages"):
        (folder / part).mkdir(parents=True)
    (folder / "sources.list").write_text(f"deb {f'[signed-by={key}] ' if key else ''}{address} {SUITE} main\n")
    (folder / "status").touch()
    places = {
        "Dir::Etc::sourcelist": "sources.list",
        "Dir::Etc::preferencesparts": "preferences.d",
        "Dir::State::lists": "lists",
        "Dir::State::status": "status",
        "Dir::Cache": "cache",
    }
    options = [word for key, name in places.items() for word in ("-o", f"{key}={folder / name}")]
    for option in ("Dir::Etc::sourceparts=/dev/null", "APT::Sandbox::User=", "Debug::NoLocking=1"):
        options += ["-o", option]
    _run(["apt-get", "-qq", *options, "update"], folder)
    _run(["apt-get", "-qq", *options, "download", *PACKAGES], folder / "packages")
    files.mkdir(parents=True)
    for package in sorted((folder / "packages").glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(files)], folder)
    for name in _UNREAD:
        shutil.rmtree(files / name, ignore_errors=True)


def write_start(draft: Path, place: Path) -> None:
    """The program that the others call: it starts the compiler with the libraries that came with it.

    Args:
        place: where all of `draft` will lie.
    """
    files = draft / "files"
    loader = next(files.rglob("ld-linux-x86-64.so.2"), None)
    program = next((f for f in sorted((files / "usr" / "bin").glob("ocloc*")) if f.is_file()), None)
    if loader is None or program is None:
        raise ToolError(f"Debian's packages {', '.join(PACKAGES)} hold no ocloc for x86-64: please report it")
    folders = dict.fromkeys(file.parent for file in sorted(files.rglob("*.so*")))
    start = draft / "bin" / "ocloc"
    start.parent.mkdir()

    def placed(path: Path) -> str:
        return f"'{place / path.relative_to(draft)}'"

    libraries = ":".join(str(place / folder.relative_to(draft)) for folder in folders)
    start.write_text(_START.format(loader=placed(loader), libraries=f"'{libraries}'", program=placed(program)))
    start.chmod(0o755)


def _run(command: Sequence[str], folder: Path) -> None:
    """Raises: ToolError with the last words of a command that fails."""
    try:
        result = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{command[0]} did not end in {_SECONDS} s: is the network there?") from None
    if result.returncode:
        said = "\n    ".join((result.stderr or result.stdout).strip().splitlines()[-4:])
        raise ToolError(f"{command[0]} ended with exit code {result.returncode}:\n    {said}")
