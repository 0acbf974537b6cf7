"""The design's rules, as far as source text shows them: who imports whom, how long things are, who knows a backend."""

from __future__ import annotations

import ast
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from gemmgen.backends import BACKENDS
from tests.support.tools import ran

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gemmgen"
MODULES = sorted(PACKAGE.rglob("*.py"))
MODULE_LINES = 700
FUNCTION_LINES = 50

#: The only modules whose types hold each other: an expression loads from a buffer, whose extents are expressions.
ONE_TYPE = ("gemmgen.ir.expr", "gemmgen.ir.buffer")
#: They choose a backend; all others ask the target's features.
MAY_NAME_BACKENDS = {"api", "bench", "cli", "runtime"}


def layers() -> dict[str, int]:
    """Part of gemmgen -> its layer, from the lowest, as `docs/ir.md` draws them: names, then what they are."""
    drawing = (ROOT / "docs" / "ir.md").read_text().split("\n## Layers\n", 1)[1].split("\n\n")[1]
    rows = [re.split(r" {3,}", line.strip())[0].split() for line in drawing.splitlines()]
    return {part: layer for layer, row in enumerate(reversed(rows)) for part in row}


LAYERS = layers()


def part_of(module: Path) -> str:
    """The part of gemmgen that a file belongs to: a folder, or a module at the top."""
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(module: Path) -> str:
    return str(module.relative_to(PACKAGE))


def parse(module: Path) -> ast.Module:
    return ast.parse(module.read_text(), str(module))


def imported(tree: ast.Module) -> set[str]:
    """All that a module imports, at its top, in a function or for its types; modules may be followed by a name."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} if node.module else set()
    return names


def module_name(module: Path) -> str:
    return ".".join(("gemmgen", *module.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


# `gemmgen/__init__.py` offers the public names, and `__main__` calls the command line: they stand above all layers.
@pytest.mark.parametrize("module", [m for m in MODULES if not part_of(m).startswith("__")], ids=name_of)
def test_imports_only_what_stands_below(module: Path) -> None:
    importer = part_of(module)
    assert importer in LAYERS, f"give gemmgen.{importer} a place in the drawing of docs/ir.md"
    parts = {name.split(".")[1] for name in imported(parse(module)) if name.startswith("gemmgen.")} & LAYERS.keys()
    assert not {part for part in parts if part != importer and LAYERS[part] >= LAYERS[importer]}


def test_what_is_drawn_is_there() -> None:
    assert LAYERS.keys() == {part for module in MODULES if not (part := part_of(module)).startswith("__")}


def test_no_function_of_a_package_has_the_name_of_a_module_in_it() -> None:
    """Which would take its place as soon as somebody imports it."""
    for package in PACKAGE.rglob("__init__.py"):
        named = {x.name for x in ast.parse(package.read_text()).body if isinstance(x, ast.FunctionDef | ast.ClassDef)}
        assert not named & {module.stem for module in package.parent.glob("*.py")}, package


def test_no_modules_import_one_another() -> None:
    """Neither in functions, nor for types alone."""
    known = {module_name(module): module for module in MODULES if module != PACKAGE / "__init__.py"}
    graph: dict[str, set[str]] = {}
    for name, module in known.items():
        found = imported(parse(module))
        graph[name] = {x for x in found | {x.rpartition(".")[0] for x in found} if x in known and x != name}
    graph[ONE_TYPE[0]].remove(ONE_TYPE[1])
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError, which names them


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Its lines without its docstring, which says as much as users need."""
    first = function.body[0]
    told = ast.get_docstring(function, clean=False) is not None
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if told else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_length(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= MODULE_LINES
    functions = [x for x in ast.walk(parse(module)) if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert not {x.name: length for x in functions if (length := lines_of_code(x)) > FUNCTION_LINES}


@pytest.mark.parametrize("module", [m for m in MODULES if part_of(m) not in MAY_NAME_BACKENDS], ids=name_of)
def test_asks_features_instead_of_a_backend(module: Path) -> None:
    compared = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(parse(module))
        if isinstance(node, ast.Compare | ast.MatchValue)
        and any(isinstance(leaf, ast.Constant) and leaf.value in BACKENDS for leaf in ast.walk(node))
    ]
    assert not compared


def test_every_dataclass_is_quick_to_define() -> None:
    """Except where nothing starts: figures of `benchmarks/static` are bound to the files of `inspect`."""
    others = [module for module in MODULES if part_of(module) != "inspect"]
    assert [name_of(x) for x in others if "dataclasses.dataclass" in imported(parse(x))] == ["records.py"]


def test_templates_never_look_into_the_schedule() -> None:
    templates = [path for path in (ROOT / "templates").rglob("*") if path.is_file()]
    assert templates
    assert not [path.name for path in templates if "schedule." in path.read_text()]


def test_commands_import_what_they_need(tmp_path: Path) -> None:
    script = """
import sys
from gemmgen.cli import main
try:
    main()
except SystemExit as exit:
    assert not exit.code, exit.code
heavy = {"numpy", "pyopencl", "cupy", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
ours = {name.removeprefix("gemmgen.") for name in sys.modules if name.startswith("gemmgen.")}
others = {"backends.cuda", "backends.sycl", "cpu", "choice"} & ours
assert not others, others
if "--help" in sys.argv:
    needless = {name for name in ours - {"backends"} if not name.startswith(("cli", "errors", "records"))}
else:
    commands = {f"cli.{name}" for name in ("bench", "cache", "explain", "export", "fuzz", "inspect", "listing", "run")}
    needless = commands & ours
assert not needless, needless
"""
    for arguments in (["--help"], ["emit", "--backend", "opencl", "--tile", "32x2", "-o", str(tmp_path / "kernel.cl")]):
        command = [sys.executable, "-c", script, *arguments]
        ran(command, cwd=ROOT)
