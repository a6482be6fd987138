"""Every page that people read, and what tests ask of one: its blocks of code, its prose, its links, its anchors."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)
_FENCE = re.compile(r"^ *(`{3,})(\w*)")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, *languages: str) -> list[str]:
    """The fenced blocks in these languages, in order."""
    found: list[str] = []
    language: str | None = None
    for line in read(name).splitlines():
        fence = _FENCE.match(line)
        if fence and language is None:
            language = fence[2]
            if language in languages:
                found.append("")
        elif fence:
            language = None
        elif language in languages and language is not None:
            found[-1] += line + "\n"
    return found


def prose(name: str) -> Iterator[str]:
    """The lines that are not within a fence."""
    is_code = False
    for line in read(name).splitlines():
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            yield line


def links(name: str) -> list[str]:
    """What its links and pictures lead to; code between single backticks has none."""
    return [link for line in prose(name) for link in _LINK.findall(re.sub(r"(?<!\[)`[^`]*`(?!\])", "", line))]


def headings(name: str) -> list[tuple[int, str]]:
    return [(len(found[1]), found[2]) for line in prose(name) if (found := re.match(r"(#+) (.*)", line))]


def anchors(name: str) -> set[str]:
    """As GitHub and our site make them: the words in small letters, with a line for each space; a repeat is numbered."""
    made: set[str] = set()
    for _, title in headings(name):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        anchor = re.sub(r"[^\w -]", "", plain).strip().replace(" ", "-")
        number = 0
        while (numbered := f"{anchor}-{number}" if number else anchor) in made:
            number += 1
        made.add(numbered)
    return made
