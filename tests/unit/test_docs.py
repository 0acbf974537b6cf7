"""What the docs name is there, and the C and C++ that they print compiles. Their SYCL is compiled in tests/golden."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from ctypes.util import find_library
from pathlib import Path

import pytest
import typer.main

from gemmgen import driver, presets
from gemmgen.cli import application
from tests.support.docs import PAGES, ROOT, blocks, page_name
from tests.support.tools import ran, tool

#: But for those that stand for several, `machines/TARGET.toml`.
FILE = re.compile(r"[a-z0-9_./-]+\.(?:py|toml|md|sh|yml)")
#: Pages that the site's build writes; that checks links to them itself (test_site.py).
WRITTEN = re.compile(r"docs/reference/(?:commands|fields|presets/\w+)\.md$")
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")
#: Options of other programs, and of gemmgen's scripts and tests.
OTHERS = {"--update-golden", "--use_fast_math", "--dist", "--data-races", "--durations", "--force-reinstall"}
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")


def options() -> set[str]:
    """What commands and the scripts of `benchmarks` take."""
    found = set(OTHERS)
    for command in (typer.main.get_command(application()), *typer.main.get_command(application()).commands.values()):  # type: ignore[attr-defined]
        names = (name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts))
        found |= {"--help", *names}
    for script in (ROOT / "benchmarks").glob("*.py"):
        found |= set(re.findall(r'"(--[a-z][\w-]*)"', script.read_text()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_what_is_named_is_there(page: Path) -> None:
    text = page.read_text()
    code = re.findall(r"`([^`\n]+)`", text) + re.findall(r"^ {4,}gemmgen (?:.*\\\n)*.*$", text, re.MULTILINE)
    named = {option for part in code for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", part)}
    assert named <= options()
    parts = (".github", "benchmarks", "docs", "examples", "gemmgen", "generated", "templates", "tests")
    files = [str(path.relative_to(ROOT)) for part in parts for path in (ROOT / part).rglob("*.*")]
    for name in (part for part in code if FILE.fullmatch(part) and "/" in part):
        assert any(f"/{file}".endswith(f"/{name}") for file in files), name


def heading(line: str) -> str:
    """What a link calls it."""
    return re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text()):
        target = page.parent / path if path else page
        if WRITTEN.search(str(target.resolve())):
            continue
        assert target.exists(), path
        if anchor:
            assert anchor in map(heading, re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)), anchor


def test_the_readme_is_short() -> None:
    """A page that is read to its end."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_readmes_cpp_runs_as_printed(tmp_path: Path) -> None:
    """Its five lines stand in the whole program of docs/cpp.md, which multiplies on a CPU."""
    runtime = pytest.importorskip("gemmgen.runtime.icd")
    library = runtime.intel_cpu_library()
    loader = find_library("OpenCL")
    if library is None or loader is None or not Path("/usr/include/CL/opencl.hpp").is_file():
        pytest.skip("apt-get install ocl-icd-opencl-dev opencl-clhpp-headers, and the extra cpu")
    (lines,) = re.findall(r"^```cpp\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    (program,) = (text for text in blocks("cpp.md", "cpp") if "int main" in text)
    assert lines.count("\n") == 5 and textwrap.indent(lines, "    ") in program
    (tmp_path / "gemm.cpp").write_text(program)
    kernel = (ROOT / "generated" / "opencl" / "smem_8x8.cl").read_text()
    (tmp_path / "smem_8x8.cl").write_text(kernel)
    build = [tool("g++"), "-std=c++17", "-Wall", "-Wextra", "-Werror", "gemm.cpp", "-o", "gemm", f"-l:{loader}"]
    subprocess.run(build, cwd=tmp_path, check=True)
    environment = {**os.environ, "OCL_ICD_VENDORS": str(library)}
    result = subprocess.run([tmp_path / "gemm"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.stdout == "100 100\n", result.stderr


def test_cuda_is_called_as_printed(tmp_path: Path) -> None:
    """Its declarations are those of the files, and with them the callers compile."""
    text = "\n".join(blocks("cpp.md", "cuda"))
    emitted = "".join(path.read_text() for path in (ROOT / "generated" / "cuda").glob("*.cu"))
    declared = re.findall(r'^extern "C" [^;{]*', text, re.MULTILINE)
    assert len(declared) == 2 and all(declaration in emitted for declaration in declared)
    file = tmp_path / "caller.cpp"
    file.write_text(text)
    command = [tool("nvcc"), "-x", "c++", "-std=c++17", "-Xcompiler", ",".join(WARNINGS), "-c", str(file)]
    ran([*command, "-o", str(tmp_path / "caller.o")])


def test_opencl_is_called_as_printed(tmp_path: Path) -> None:
    """With as many arguments as the kernel has, and its launch."""
    by_header, text = blocks("cpp.md", "c")
    kernel = (ROOT / "generated" / "opencl" / "smem_8x8.cl").read_text()
    (parameters,) = re.findall(r"__kernel void\ssmem_8x8\(([^)]*)\)", kernel)
    (arguments,) = re.findall(r"arguments\[\] = \{\n(.*?)\n    \};", text, re.DOTALL)
    assert arguments.count("{") == parameters.count(",") + 1
    assert "global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}" in kernel and "local size {16, 16}" in kernel
    runtime = pytest.importorskip("gemmgen.runtime.sycl_library")
    try:
        include = runtime.library().parent.parent / "include"  # the wheel brings OpenCL's headers
    except runtime.DeviceError as error:
        pytest.skip(str(error))
    preset = presets.load("smem_8x8")
    (tmp_path / "smem_8x8.h").write_text(driver.emit(preset.spec, preset.schedule, form="header").text)
    file = tmp_path / "caller.c"
    for caller in (text, by_header):
        file.write_text(caller)
        command = [tool("gcc"), "-std=c99", "-isystem", str(include), "-DCL_TARGET_OPENCL_VERSION=120", *WARNINGS]
        ran([*command, "-fsyntax-only", str(file)])


def test_the_gallery_counts_lines() -> None:
    """Of files that are generated, as they are now."""
    text = (ROOT / "docs" / "gallery.md").read_text("utf-8")
    rows = re.findall(r"\]\(\.\./(generated/[^)]*)\) \| [^|]* \| (\d+) \|", text)
    counted = {name: len((ROOT / name).read_text("utf-8").splitlines()) for name, _ in rows}
    assert len(rows) == 10
    assert {name: int(lines) for name, lines in rows} == counted
