"""How pages tell to install Peik. All of them follow one variable; `docs/generate.py` writes it into them."""

import re
from collections.abc import Iterator
from pathlib import Path

from docs.pages.markdown import ROOT
from peik.errors import INSTALL_FROM

SOURCE = INSTALL_FROM

# Spoken of where pip is given ".", and of no use to who installs from an index.
_IN_A_CHECKOUT = re.compile(
    "in a clone of this repository; |در پوشهٔ همین مخزن؛ |в клоне репозитория; |repozitoriy nusxasida; "
    "|(?<=# )in a checkout(?:[;:] )?|(?<!#) in a checkout"
)
_UNTIL_INDEXED = re.compile(r"<!-- while there is no index -->\n.*?<!-- end -->\n\n?", re.DOTALL)
_INSTALL = r"pipx? install(?: --upgrade)?"
_COMMAND = re.compile(rf"(?P<program>[\w./]*{_INSTALL}) (?P<what>(?:-[re] )?'?[\w.\[\],>=-]+'?)")
_OURS = re.compile(rf"(?P<before>{_INSTALL} )'?(?:\.|peik)(?P<extras>\[[\w,]+\])?'?(?=[\s`;&)]|$)")


def pages() -> list[Path]:
    """Every page that people read, but the changelog: that tells of other days."""
    found = [
        path
        for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "examples/**/*.md")
        for path in ROOT.glob(pattern)
    ]
    return sorted(path for path in found if path.name != "CHANGELOG.md")


def commands(text: str) -> Iterator[tuple[str, str]]:
    """What a page tells to install: the program with its path, and what it is given."""
    for found in _COMMAND.finditer(text):
        yield found["program"], found["what"]


def followed(text: str, source: str = SOURCE) -> str:
    """The page, installing Peik from there."""
    if source != ".":
        text = _UNTIL_INDEXED.sub("", text)
    return "\n".join(_line(line, source) for line in text.split("\n"))


def _line(line: str, source: str) -> str:
    def ours(found: re.Match[str]) -> str:
        extras = found["extras"] or ""
        return found["before"] + (f"'{source}{extras}'" if extras else source)

    told, count = _OURS.subn(ours, line)
    if count and source != ".":
        told = _IN_A_CHECKOUT.sub("", told)
    return re.sub(r"\s+#\s*$", "", told) if told != line else line


def write_install() -> None:
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if (told := followed(text)) != text:
            path.write_text(told, encoding="utf-8")
