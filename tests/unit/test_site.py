"""The site of `docs/site`: it is built without a warning, and each page opens without an error."""

from __future__ import annotations

import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.browser import problems_of_pages
from tests.support.docs import ROOT
from tests.support.tools import ran, tool

CONFIGURATION = ROOT / "docs" / "site" / "mkdocs.yml"
#: What a page loads by itself; a plain link loads nothing.
LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=\"?(https?:)?//", re.IGNORECASE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the built site: links and anchors are checked, any warning is an error."""
    if find_spec("mkdocs") is None or find_spec("material") is None:
        pytest.skip("MkDocs is not installed: pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(CONFIGURATION), "-d", str(folder)]
    ran(command, cwd=ROOT)
    return folder


def test_every_page_is_in_the_navigation() -> None:
    text = CONFIGURATION.read_text("utf-8")
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    pages = {page for page in pages if not page.startswith(("adr/", "notebook/"))}
    assert pages <= set(re.findall(r"[\w/-]+\.md", text)), "name it in docs/site/mkdocs.yml, under nav"


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not LOADED.search(page.read_text("utf-8")), page


def test_what_the_build_writes(site: Path) -> None:
    """A page of the code's own: commands, fields, presets, sources, drawings and differences."""
    assert "--stop-after" in (site / "reference/commands/index.html").read_text("utf-8")
    assert "thread_vector" in (site / "reference/fields/index.html").read_text("utf-8")
    assert "Static figures" in (site / "reference/presets/smem_8x8/index.html").read_text("utf-8")
    assert (site / "source/generated/opencl/smem_8x8.cl/index.html").is_file()
    step = (site / "ladder/4-shared-memory/index.html").read_text("utf-8")
    assert '<svg class="gemmgen"' in step and "128x128 of C by 16x16" in step
    assert "tile_8x8 to smem_8x8" in step and "a_shared" in step


def test_faults_of_a_page_are_seen(tmp_path: Path) -> None:
    faults = (
        '<img src="no.png"><script src="no.js"></script><script>console.error("said"); throw Error("thrown")</script>'
    )
    (tmp_path / "right.html").write_text("<html><head></head><body><h1>right</h1></body></html>")
    (tmp_path / "wrong.html").write_text(f"<html><head></head><body>{faults}</body></html>")
    browser = shutil.which("chromium") or tool("chromium-headless-shell")
    found = problems_of_pages(browser, tmp_path, ["right.html", "wrong.html"], tmp_path / "profile", 60)
    assert all(problem.startswith("/wrong.html: ") for problem in found)
    for part in ("missing: ", "broken image", "said", "thrown"):
        assert any(part in problem for problem in found), part


def test_every_page_opens_in_a_browser(site: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or tool("chromium-headless-shell")
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))
    assert len(pages) > 100
    assert problems_of_pages(browser, site, pages, tmp_path, 600) == []
