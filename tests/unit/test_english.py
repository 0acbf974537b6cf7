"""The English of the pages, by docs/style/english.py, and what that finds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.support.docs import ROOT, page_name

SCRIPT = ROOT / "docs" / "style" / "english.py"
_spec = importlib.util.spec_from_file_location("english", SCRIPT)
assert _spec is not None and _spec.loader is not None
english = importlib.util.module_from_spec(_spec)
# Its records look their module up.
sys.modules["english"] = english
_spec.loader.exec_module(english)

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_pages(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = english.main([str(page)])
    assert code == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One short sentence. And another.\n", []),
        ("word " * 30 + "ends.\n", ["a line of 155", "a sentence of 31 words"]),
        ("word " * 15 + "\n" + "word " * 16 + "\n", ["a sentence of 31 words"]),
        ("word " * 15 + "ends. Again " + "word\n" * 16, []),
        ("    code " + "word " * 40 + "\n", []),
        ("```\n" + "word " * 40 + "\n```\n", []),
        ("| a |\n|---|\n| " + "word " * 20 + "; " + "word " * 20 + " |\n", []),
        ("| a |\n|---|\n| " + "`x`, " * 40 + " |\n", []),
        ("| a |\n|---|\n| " + "word " * 31 + " |\n", ["a sentence of 31 words"]),
        ("The tile comes by boxes.\n", ["'boxes': the field says TMA tile"]),
        ("Set `boxes` or `--set k_step=8`.\n", ["'k_step': the field says block_k"]),
        ("---\ntitle: a raster\n---\n\nA raster.\n", ["'raster': the field says threadblock swizzle"]),
    ],
)
def test_findings(text: str, found: list[str]) -> None:
    findings = [problem for _, problem in english.findings(text)]
    assert len(findings) == len(found), findings
    assert all(problem.startswith(part) for problem, part in zip(findings, found, strict=True)), findings


def test_a_finding_names_its_line() -> None:
    assert [line for line, _ in english.findings("---\na: b\n---\n\nOne.\n\nA raster.\n")] == [7]
