"""Every line that a page tells to install something by: it is of a form that works today from a checkout, all pages follow one
variable, and extras are those of the project. `make package` types each of them in an empty environment."""

import re
import tomllib

import pytest

from docs.pages.install import SOURCE, commands, followed, pages
from tests.docs.pages import ROOT, read

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
NOT_FOR_USERS = {"dev", "bench", "docs"}
LINES = sorted(
    {
        (path.relative_to(ROOT).as_posix(), *line)
        for path in pages()
        for line in commands(path.read_text(encoding="utf-8"))
    }
)
ELSEWHERE = {"aiogram"}  # packages of others


@pytest.mark.parametrize(("page", "program", "what"), LINES)
def test_a_line_installs_what_there_is(page: str, program: str, what: str) -> None:
    bare = what.strip("'")
    if what.startswith("-r "):
        assert (ROOT / what.removeprefix("-r ")).is_file()
        return
    if what.startswith("-e "):  # what is not in the wheel
        assert what == "-e '.[examples]'"
        return
    name, _, extras = bare.rstrip("]").partition("[")
    assert name == SOURCE or what in ELSEWHERE
    if name == SOURCE:
        assert set(filter(None, extras.split(","))) <= EXTRAS
        assert not extras or what.startswith("'"), "a shell would take the brackets for a pattern"


def test_there_are_many_and_all_pages_follow_the_variable() -> None:
    assert len(LINES) > 12
    assert {program.rsplit("/", 1)[-1].split()[0] for _, program, _ in LINES} == {"pip", "pipx"}
    for path in pages():
        text = path.read_text(encoding="utf-8")
        assert followed(text) == text, f"{path}: run docs/generate.py"


def test_on_the_day_it_is_on_an_index_one_variable_says_so_everywhere() -> None:
    for path in pages():
        told = followed(path.read_text(encoding="utf-8"), "peik")
        assert not [what for _, what in commands(told) if what.strip("'").startswith(".")], path
        assert "not on a package index" not in told
        for line in told.splitlines():
            if re.search(r"pipx? install '?peik", line):
                assert not re.search(r"checkout|clone|клон|repozitoriy|مخزن", line), (path, line)


def test_it_changes_only_what_installs_peik() -> None:
    text = (
        "pip install '.[redis]'   # in a checkout; more below\n"
        "/opt/bin/pip install --upgrade . && x\npip install -e '.[examples]'  # in a checkout\n"
        "`pip install aiogram`, see `peik[sessions]`, pip install -r requirements.txt\n"
    )
    assert followed(text, ".") == text
    assert followed(text, "peik") == (
        "pip install 'peik[redis]'   # more below\n"
        "/opt/bin/pip install --upgrade peik && x\npip install -e '.[examples]'  # in a checkout\n"
        "`pip install aiogram`, see `peik[sessions]`, pip install -r requirements.txt\n"
    )


def test_extras_are_named_once_and_all_of_them() -> None:
    rows = [line.split(" | ") for line in read("docs/install.md").splitlines() if re.match(r"\| `", line)]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(named) == sorted(EXTRAS - NOT_FOR_USERS)
    for row in rows:
        brought = {
            re.split(r"[\[>=<,]", one)[0]
            for name in re.findall(r"`(\w+)`", row[0])
            for one in PROJECT["optional-dependencies"][name]
        }
        said = set(re.split(r"[;,] ", row[2].strip(" |")))
        assert brought - {"peik"} == said - {"hiredis"}, row
