"""What an installation holds, and that its files agree with one another."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import gemmgen
from tests.support.tools import ran


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    """The [project] table."""
    project: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return project


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unpacked wheel of the working tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    ran(command, cwd=root)
    (archive,) = folder.glob("*.whl")
    with zipfile.ZipFile(archive) as content:
        names = content.namelist()
        assert len(names) == len(set(names)), "a file is in the wheel twice"
        content.extractall(folder / "site")
    return folder / "site"


def test_wheel_holds_templates_generated_kernels_and_presets(wheel: Path, root: Path) -> None:
    def files(folder: Path) -> set[str]:
        return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts}

    for source, installed in (("gemmgen", "gemmgen"), ("templates", "templates"), ("generated", "generated")):
        target = wheel / "gemmgen" if installed == "gemmgen" else wheel / "gemmgen" / installed
        missing = files(root / source) - files(target)
        assert files(root / source)
        assert missing == ({"generated.py"} if source == "gemmgen" else set())
    assert (wheel / "gemmgen" / "py.typed").is_file()
    assert not {top.name for top in wheel.iterdir() if not top.name.startswith("gemmgen")}


def test_wheel_works_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    script = """
import sys, importlib.resources
import gemmgen, gemmgen.generated.opencl
from gemmgen.cli import main
assert gemmgen.__file__.startswith(sys.argv.pop(1)), gemmgen.__file__
assert (importlib.resources.files("gemmgen.templates") / "opencl").is_dir()
main()
"""
    command = [sys.executable, "-P", "-c", script, str(wheel), "emit", "--backend", "opencl", "--tile", "32x2"]
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    result = ran(command, cwd=tmp_path, env=environment)
    assert "__kernel" in result.stdout


def test_nothing_but_the_package_is_found_in_it() -> None:
    """With the checkout's root on its path, `pkgutil.walk_packages` went on for ever: gemmgen.gemmgen.gemmgen."""
    found = {x.name for x in pkgutil.iter_modules(gemmgen.__path__)}
    assert {"api", "generated"} <= found and not found & {"gemmgen", "tests", "benchmarks"}
    assert importlib.import_module("gemmgen.generated.opencl").__file__ is not None


def test_versions_agree(root: Path) -> None:
    cited = re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == gemmgen.__version__


def test_pages_name_the_extras_that_exist(root: Path, project: dict[str, Any]) -> None:
    """In their commands no others; in the table of docs/install.md all that users need."""
    text = (root / "README.md").read_text() + (install := (root / "docs" / "install.md").read_text())
    used = {extra for group in re.findall(r'"?\.\[([a-z0-9,]+)\]"?', text) for extra in group.split(",")}
    assert used and used <= set(project["optional-dependencies"])
    first_cells = "".join(re.findall(r"^\| (`[^|]*`) \|", install, re.MULTILINE))
    assert {*re.findall(r"`([a-z0-9]+)`", first_cells)} == {*project["optional-dependencies"]} - {"dev", "docs", "test"}


def test_cuda_is_the_newest_of_its_extras(project: dict[str, Any]) -> None:
    extras = project["optional-dependencies"]
    assert extras["cuda"] == ["gemmgen[cuda13]"]
    assert all(extras[f"cuda{n}"][0].startswith(f"cupy-cuda{n}x>=") for n in (12, 13))


def test_tools_that_judge_are_pinned_exactly(project: dict[str, Any]) -> None:
    dev = project["optional-dependencies"]["dev"]
    for tool in ("ruff", "mypy"):
        assert any(re.fullmatch(rf"{tool}==[\d.]+", requirement) for requirement in dev)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str, root: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", (root / name).read_text())
    assert not [link for link in links if not (root / link).exists()]


def test_the_conda_recipe_has_the_same_dependencies(root: Path, project: dict[str, Any]) -> None:
    """Each name with the same bounds; how the recipe builds is unverified."""
    recipe = (root / "conda" / "meta.yaml").read_text("utf-8")
    run = recipe.partition("  run:\n")[2].partition("  run_constrained:\n")[0]
    found = {line.removeprefix("    - ").replace(" ", "") for line in run.splitlines()}
    assert found == {*project["dependencies"], f"python{project['requires-python']}"}


def test_dir_lists_what_is_for_users() -> None:
    assert {name for name in dir(gemmgen) if not name.startswith("__")} >= set(gemmgen.__all__)
    assert {"Path", "import_module", "TYPE_CHECKING", "_HOMES"}.isdisjoint(dir(gemmgen))
