"""The design's rules, as far as source text shows them: who imports whom, how long things are, who knows a backend."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gemmgen"
MODULES = sorted(PACKAGE.rglob("*.py"))
MODULE_LINES = 400
FUNCTION_LINES = 50

#: Part of gemmgen -> its layer. A part imports from layers below its own and from itself; within a layer, see PEERS.
LAYERS = {
    "errors": 0,
    "fields": 0,
    "ir": 1,
    "names": 2,
    "formulas": 2,
    "epilogue": 3,
    "prologue": 3,
    "spec": 3,
    "schedule": 3,
    "source": 3,
    "methods": 3,
    "passes": 4,
    "backends": 4,
    "reference": 4,
    "options": 4,
    "presets": 5,
    "oracle": 5,
    "sweeps": 5,
    "driver": 6,
    "waves": 6,
    "choose": 7,
    "explain": 7,
    "runtime": 8,
    "module": 9,
    "bench": 9,
    "inspect": 9,
    "export": 10,
    "fuzz": 10,
    "cli": 11,
}
#: The layer whose parts may import one another: a schedule, a spec and what they are written in.
PEERS = {3}
#: They choose a backend; all others ask the target's features.
MAY_NAME_BACKENDS = {"backends", "bench", "cli", "driver", "inspect", "runtime"}
BACKENDS = {"opencl", "sycl", "cuda"}


def part_of(module: Path) -> str:
    """The part of gemmgen that a file belongs to: a folder, or a module at the top."""
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(module: Path) -> str:
    return str(module.relative_to(PACKAGE))


def parse(module: Path) -> ast.Module:
    return ast.parse(module.read_text(), str(module))


def imported_parts(tree: ast.Module) -> set[str]:
    """Parts of gemmgen that a module imports, at its top or in a function."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} if node.module else set()
    paths = [name.split(".") for name in names]
    return {path[1] for path in paths if path[0] == "gemmgen" and len(path) > 1}


def may_import(importer: str, imported: str) -> bool:
    upper, lower = LAYERS[importer], LAYERS[imported]
    return importer == imported or lower < upper or (lower == upper and upper in PEERS)


# `gemmgen/__init__.py` offers the public names, and `__main__` calls the command line: they stand above all layers.
@pytest.mark.parametrize("module", [m for m in MODULES if not part_of(m).startswith("__")], ids=name_of)
def test_imports_only_what_stands_below(module: Path) -> None:
    importer = part_of(module)
    assert importer in LAYERS, f"give gemmgen.{importer} a layer in LAYERS"
    imported = imported_parts(parse(module)) & {part_of(m) for m in MODULES}
    assert not {part for part in imported if part in LAYERS and not may_import(importer, part)}


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


def test_templates_never_look_into_the_schedule() -> None:
    templates = [path for path in (ROOT / "templates").rglob("*") if path.is_file()]
    assert templates
    assert not [path.name for path in templates if "schedule." in path.read_text()]


def test_emit_needs_neither_numpy_nor_pyopencl(tmp_path: Path) -> None:
    script = """
import sys
from gemmgen.cli import main
try:
    main()
except SystemExit as exit:
    assert not exit.code, exit.code
heavy = {"numpy", "pyopencl", "cupy", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
"""
    for arguments in (["--help"], ["emit", "--backend", "opencl", "--tile", "32x2", "-o", str(tmp_path / "kernel.cl")]):
        command = [sys.executable, "-c", script, *arguments]
        result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert result.returncode == 0, result.stderr
