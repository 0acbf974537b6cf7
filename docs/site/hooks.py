"""MkDocs' hooks: pages of what stands in the repository outside `docs`, and pictures made as the site is built.

Pages link to files of the repository as they do on a code host (`../generated/cuda/naive.cu`). Each such file becomes
a page of its own under `source/`, and each folder a list. A comment `<!-- explain NAME -->` in a page becomes what
`gemmgen explain` draws of a preset, `<!-- banks NAME TARGET -->` and `<!-- waves NAME TARGET -->` its other pictures,
and `<!-- diff A B LANGUAGE -->` the lines in which two emitted files differ. `<!-- chart NAME -->` becomes a chart of
recorded figures: see `reference.CHARTS`.
"""

from __future__ import annotations

import difflib
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

SITE = Path(__file__).resolve().parent
ROOT = SITE.parents[1]
sys.path[:0] = [str(SITE), str(ROOT)]

import reference  # noqa: E402  (beside this file, which MkDocs loads by its path)

LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
CODE = re.compile(r"^(```(?:.|\n)*?^```|(?: {4,}.*\n)+)", re.MULTILINE)
#: The comment at the head of an emitted file.
HEAD = re.compile(r"(?://.*\n|\s*\n)*")
EXPLAIN = re.compile(r"^<!-- explain (\w+) -->$", re.MULTILINE)
VIEW = re.compile(r"^<!-- (banks|waves) (\w+) (\w+) -->$", re.MULTILINE)
CHART = re.compile(r"^<!-- chart (\w+) -->$", re.MULTILINE)
DIFF = re.compile(r"^<!-- diff (\w+) (\w+) (\w+) -->$", re.MULTILINE)
#: Longer files are named, not shown.
MOST_BYTES = 150_000
#: By the end of a file's name: how it is coloured.
LANGUAGES = {
    ".c": "c",
    ".cl": "opencl",
    ".cpp": "cpp",
    ".cu": "cuda",
    ".hip": "cuda",
    ".hpp": "cpp",
    ".ipynb": "json",
    ".json": "json",
    ".py": "python",
    ".sh": "bash",
    ".toml": "toml",
    ".yml": "yaml",
}
HIDDEN = "---\nsearch:\n  exclude: true\n---\n\n"


# --- addresses ------------------------------------------------------------------------------------


def page_of(path: str) -> str:
    """The page of a file or a folder of the repository, in the site's tree of sources."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "docs":
        return "index.md"
    if (ROOT / path).is_dir():
        return f"source/{path}/index.md"
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def linked(text: str, path: str) -> Iterator[str]:
    """The files and folders of the repository outside `docs` that a text at `path` links to."""
    for _, target, _ in LINK.findall(CODE.sub("", text)):
        found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if not found.startswith(("docs/", "..")) and (ROOT / found).exists():
            yield found


def relinked(text: str, path: str, page: str) -> str:
    """A text of the repository with its links as they are from its page."""

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[2]))
        if target.startswith("..") or not (ROOT / target).exists():
            return match[0]
        wanted = target.removeprefix("docs/") if target.startswith("docs/") else page_of(target)
        return f"{match[1]}{posixpath.relpath(wanted, posixpath.dirname(page) or '.')}{match[3]}"

    return "".join(
        part if CODE.fullmatch(part) else LINK.sub(link, part) for part in CODE.split(text) if part is not None
    )


# --- pages of the repository ----------------------------------------------------------------------


def shown(path: str) -> str:
    """The page of a file or a folder, in Markdown with the links of the repository."""
    file = ROOT / path
    if file.is_dir():
        entries = sorted(each for each in file.iterdir() if not each.name.startswith(("_", ".")))
        names = (each.name + "/" * each.is_dir() for each in entries)
        return f"{HIDDEN}# {path}\n\n" + "".join(f"- [{name}]({file.name}/{name})\n" for name in names)
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix == ".md":
        return text
    if len(text) > MOST_BYTES:
        return f"{HIDDEN}# {file.name}\n\n`{path}` of the repository has {len(text):,} bytes and is not shown here.\n"
    fence = "`" * 5
    return f"{HIDDEN}# {file.name}\n\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def repository_pages(texts: dict[str, str]) -> dict[str, str]:
    """Pages of all that texts link to, of what these link to, and so on: the text of each by its file's path."""
    found: dict[str, str] = {}
    waiting = [target for path, text in texts.items() for target in linked(text, path)]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = shown(path)
        if (ROOT / path).is_dir():
            waiting += [target for target in linked(found[path], path) if (ROOT / target).is_file()]
        elif path.endswith(".md"):
            waiting += linked(found[path], path)
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the reference, and of what pages link to in the repository."""
    made = reference.pages()
    texts = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    texts |= {f"docs/{uri}": text for uri, text in made.items()}
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    named = re.findall(r"\bsource/(\S+\.md)", Path(config.config_file_path).read_text("utf-8"))
    found = repository_pages(texts | {"": "".join(f"[]({path})" for path in named)})
    for path, text in found.items():
        # A list links to files alone: a folder in it may have no page.
        plain = re.sub(r"- \[([^]]*/)\]\([^)]*\)", r"- \1", text) if (ROOT / path).is_dir() else text
        uri = page_of(path)
        files.append(File.generated(config, uri, content=relinked(plain, path, uri)))
    return files


# --- what is drawn as the site is built -----------------------------------------------------------


def explained(match: re.Match[str]) -> str:
    """What `gemmgen explain` draws of a preset."""
    return reference.drawing(match[1])


def difference(match: re.Match[str]) -> str:
    """The lines in which the emitted files of two presets differ, without their head comments."""
    folder, end = {"opencl": ("opencl", "cl"), "cuda": ("cuda", "cu")}[match[3]]
    files = [ROOT / "generated" / folder / f"{name}.{end}" for name in (match[1], match[2])]
    old, new = (HEAD.sub("", file.read_text("utf-8"), count=1).splitlines() for file in files)
    lines = list(difflib.unified_diff(old, new, files[0].name, files[1].name, n=2, lineterm=""))
    title = f"{match[1]} to {match[2]}: {sum(line[:1] == '+' for line in lines[2:])} lines added"
    body = "\n".join(["```diff", *lines, "```"])
    return f'??? example "{title}"\n' + "".join(f"    {line}\n" for line in body.splitlines())


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draws what comments of a page ask for, and turns its links into the repository into links to pages."""
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown
    markdown = DIFF.sub(difference, EXPLAIN.sub(explained, markdown))
    markdown = VIEW.sub(lambda found: reference.view(*found.groups()), markdown)
    markdown = CHART.sub(lambda found: reference.CHARTS[found[1]](), markdown)
    return relinked(markdown, str(PurePosixPath("docs") / uri), uri)
