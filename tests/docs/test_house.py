"""The shape of the package: what was won must not creep back. `make house` says more, with each place.

A bound here may fall, and never rise. Whoever needs a new file joins two others, or says in the commit why the bound moves.
"""

from pathlib import Path

import pytest

from proofs.house import WALKS, figures, modules, strange, undeclared, walk

BOUNDS = {
    "files": 455,
    "modules at the root": 5,
    "folders at the root": 29,
    "public class names in more than one file": 10,
    "modules that end in -ing": 15,
    "modules imported once, by a sibling": 60,
    "protocols": 60,
    "pass-through functions": 60,
    "references to what is not in the repository": 0,
    "names in comments of what is not in the code": 0,
    "operations without a declaration": 0,
    "operations that are not declared on their method": 0,
}


def test_nothing_has_crept_back() -> None:
    found = {figure.name: figure for figure in figures(modules())}
    assert set(BOUNDS) <= set(found)
    wrong = {name: found[name] for name, most in BOUNDS.items() if found[name].value > most}
    assert not wrong, "\n".join(
        f"{name}: {one.value}, at most {BOUNDS[name]}\n{one.examples}" for name, one in wrong.items()
    )


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_is_read_from_the_page(title: str) -> None:
    assert 5 < len(walk(title)) <= WALKS[title]


# ---- what finds them does find them ----


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / "peik" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "said",
    [
        '"""See `gone`."""',
        "# as `one.gone` does",
        '"""`Gone.one` knows."""',
        "one = 1  # see gone.py",
        "# peik/gone/one.py",
    ],
)
def test_a_name_that_is_nowhere_in_the_code_is_found(said: str, tmp_path: Path) -> None:
    assert len(list(strange(written(tmp_path, one=f"{said}\n")))) == 1


@pytest.mark.parametrize(
    "said",
    [
        '"""See `one` and `other`."""',
        "# `other.table` and one.py, peik/other.py",
        "# `a sentence` of code, `x = 1`, `GET /v1/x`, `PEIK_STORE=…`",
        'here = "gone"  # `gone` is a word of data',
    ],
)
def test_what_is_there_is_not_strange(said: str, tmp_path: Path) -> None:
    folder = written(tmp_path, one=f"{said}\n", other="table = ()\n")
    assert list(strange(folder)) == []


def test_a_route_without_a_declaration_is_found(tmp_path: Path) -> None:
    text = """
class Routes:
    def table(self):
        return (("GET", "/v1/a", self.a, "getA", "tag"), ("GET", "/v1/b", self.b, "getB", "tag"))

A_OPERATIONS: dict[str, Operation] = {"getA": Operation(answers={200: "A"})}
"""
    assert undeclared(modules(written(tmp_path, api=text) / "peik")) == ["getB (peik.api)"]
