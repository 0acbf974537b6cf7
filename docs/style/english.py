"""Checks the English of pages in Markdown, as far as a program can: short sentences, short lines, the field's words.

    python docs/style/english.py README.md docs/*.md

Prints each finding with its file and line, and ends with 1 if there is any. Code and tables may have long lines.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

WORDS = Path(__file__).with_name("words.toml")
LONGEST_SENTENCE = 30
LONGEST_LINE = 120
#: A change is one line, however long its sentence.
LONGEST_CHANGE = 160
#: Where a sentence ends: not after abbreviations, nor inside numbers.
END = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!vs)[.!?][)\"']*\s+(?=[\"'(*\[]?[A-Z0-9`\x00])")
#: A piece of code stands for one word.
CODE = "\x00"
#: The same in a table, where `;` ends a claim.
END_IN_TABLE = re.compile(f"{END.pattern}|;\\s")
SPOKEN = re.compile(r"[\w\x00]")


@dataclass(frozen=True, slots=True)
class Word:
    """A word that is not used.

    Attributes:
        find: what finds it.
        use: the field's terms.
        code: whether code is searched, too.
    """

    find: re.Pattern[str]
    use: str
    code: bool


@cache
def words() -> tuple[Word, ...]:
    """The words of words.toml."""
    rows = tomllib.loads(WORDS.read_text("utf-8"))["word"]
    return tuple(Word(re.compile(row["find"], re.IGNORECASE), row["use"], row.get("code", False)) for row in rows)


def findings(text: str, longest: int = LONGEST_LINE) -> Iterator[tuple[int, str]]:
    """Each finding in a page, with its line, which may have so many characters at most."""
    # A page may begin with YAML for the site.
    front = re.match(r"---\n.*?\n---\n", text, re.DOTALL)
    skipped = front[0].count("\n") if front else 0
    text = text[front.end() :] if front else text
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    free = _lines_of(tokens, ("fence", "code_block", "table_open", "html_block"))
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > longest and number not in free:
            yield number + skipped, f"a line of {len(line)} characters: break it at {longest}"
    for before, token in pairwise(tokens):
        if token.type == "inline" and token.map is not None:
            in_table = before.type in ("td_open", "th_open")
            for problem in (*_long_sentences(token, in_table), *_words_of(token)):
                yield token.map[0] + 1 + skipped, problem


def _lines_of(tokens: list[Token], kinds: tuple[str, ...]) -> set[int]:
    return {n + 1 for token in tokens if token.type in kinds and token.map for n in range(*token.map)}


def _prose(token: Token, code: bool = False) -> str:
    """The text that is read: links by their text, code as one word or as it stands."""
    parts = []
    for child in token.children or ():
        if child.type == "code_inline":
            parts.append(child.content if code else CODE)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif child.type == "text":
            parts.append(child.content)
    return "".join(parts)


def _long_sentences(token: Token, in_table: bool) -> Iterator[str]:
    for sentence in (END_IN_TABLE if in_table else END).split(_prose(token)):
        # A table may list names.
        counted = sentence.replace(CODE, "") if in_table else sentence
        count = sum(bool(SPOKEN.search(word)) for word in counted.split())
        if count > LONGEST_SENTENCE:
            begin = sentence.replace(CODE, "`...`")[:60].strip()
            yield f"a sentence of {count} words: make it two ({begin} ...)"


def _words_of(token: Token) -> Iterator[str]:
    prose, everything = _prose(token), _prose(token, code=True)
    for word in words():
        if found := word.find.search(everything if word.code else prose):
            yield f"{found[0]!r}: the field says {word.use}"


def main(paths: list[str]) -> int:
    """Checks files; the exit code."""
    problems = [
        f"{path}:{line}: {problem}"
        for path in paths
        for line, problem in findings(
            Path(path).read_text("utf-8"), LONGEST_CHANGE if Path(path).name == "CHANGELOG.md" else LONGEST_LINE
        )
    ]
    sys.stdout.writelines(f"{problem}\n" for problem in problems)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
