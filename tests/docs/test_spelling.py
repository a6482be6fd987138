"""No word of any page is a known misspelling (codespell's own list) or one that docs/words.md replaces."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import NAMES, ROOT, prose

OTHER_LANGUAGES = ("README.fa.md", "README.ru.md", "README.uz.md")


def misspelt(*files: str, text: str | None = None) -> str:
    command = [sys.executable, "-m", "codespell_lib", "--disable-colors"]
    said = subprocess.run(
        [*command, *(files or ["-"])], cwd=ROOT, input=text, capture_output=True, text=True, check=False
    )
    assert not said.stderr, said.stderr
    return said.stdout


def test_no_page_has_a_misspelt_word() -> None:
    assert misspelt(*(name for name in NAMES if name not in OTHER_LANGUAGES)) == ""


def test_a_misspelt_word_is_found() -> None:
    assert "receive" in misspelt(text="what we recieve\n")


# Of the second table of docs/words.md, what is wrong nearly everywhere. Words with a good use as well are for the reader.
NOT_USED = (
    "afresh|anew|by turns|hence|in good order|in vain|keeps? book|lest|likewise|of before|of then|oftener"
    "|shall|thousand million|thus|upon|utili[sz]e[sd]?|whatsoever|whence|without a word|whilst|please note|in order to"
)
_NOT_USED = re.compile(rf"(?<![\w-])(?:{NOT_USED})(?![\w-])", re.IGNORECASE)


def not_used(text: str) -> list[str]:
    return [found[0].lower() for found in _NOT_USED.finditer(" ".join(text.split()))]


def plain(name: str) -> str:
    """The prose of a page without its code."""
    return re.sub(r"`[^`]*`", "", "\n".join(prose(name)))


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """What a module may say: its texts, and not what explains its code."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    explains = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in explains:
            yield node.lineno, node.value


def test_no_page_uses_a_word_that_the_word_list_replaces() -> None:
    pages = [name for name in NAMES if name not in (*OTHER_LANGUAGES, "CHANGELOG.md", "docs/words.md")]
    assert [(name, *found) for name in pages if (found := not_used(plain(name)))] == []


def test_no_message_uses_a_word_that_the_word_list_replaces() -> None:
    said = [
        (path.relative_to(ROOT).as_posix(), line, *found)
        for path in sorted((ROOT / "peik").rglob("*.py"))
        for line, text in messages(path)
        if (found := not_used(text))
    ]
    assert said == []


def test_words_that_are_not_used_are_in_the_word_list_and_are_found(tmp_path: Path) -> None:
    table = "\n".join(prose("docs/words.md")).partition("## Not used")[2]
    for word in re.sub(r"keeps\?|\[sz\]e\[sd\]\?", "", NOT_USED).split("|"):
        assert word.lower() in table.lower(), word
    assert not_used("It begins anew, without a\nword.") == ["anew", "without a word"]
    module = tmp_path / "module.py"
    module.write_text('"""Read anew."""\nWORDS = f"{1} is read anew"\n')
    assert [not_used(text) for _, text in messages(module)] == [["anew"]]
