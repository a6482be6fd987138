"""No word of any page is a known misspelling. The list of those is codespell's own, in its package."""

import subprocess
import sys

from tests.docs.pages import NAMES, ROOT

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
