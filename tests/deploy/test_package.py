"""The wheel that is built here and now, without network: what is in it, what it says of itself, and that it runs by itself."""

import email.message
import email.parser
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from peik import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# As pip asks the backend, in a process of its own: it looks at the folder that it is in.
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    ran = subprocess.run([sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return folder / ran.stdout.split()[-1]


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    return email.parser.Parser().parsestr(_read(wheel, "METADATA"))


def _read(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as file:
        return file.read(f"peik-{__version__}.dist-info/{name}").decode()


def test_all_of_the_package_is_inside_and_nothing_else(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tree = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "peik").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert inside == tree
    assert "peik/py.typed" in inside
    for kind in (".sql", ".lua", ".html", ".css", ".js", ".toml", ".pyi"):  # what runs without being Python
        assert any(name.endswith(kind) for name in inside), kind


def test_it_says_what_it_is(metadata: email.message.Message, wheel: Path) -> None:
    assert metadata["Name"] == "peik"
    assert metadata["Version"] == __version__
    assert metadata["Summary"] == PROJECT["description"]
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "MIT" in _read(wheel, "licenses/LICENSE")
    assert _read(wheel, "entry_points.txt").split() == ["[console_scripts]", "peik", "=", "peik.app.cli:main"]
    assert set(metadata.get_all("Provides-Extra") or []) == set(PROJECT["optional-dependencies"])
    classifiers = metadata.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    assert metadata["Requires-Python"] == ">=3.11"
    assert f"Programming Language :: Python :: {sys.version_info[0]}.{sys.version_info[1]}" in classifiers


def test_the_changelog_speaks_of_the_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    is_released = "dev" not in __version__
    assert headings[0].startswith(f"[{__version__}]" if is_released else "Unreleased")


def test_requirements_txt_installs_what_the_crawler_needs() -> None:
    """pip reads it, and finds Peik with the extras of accounts, Redis and MongoDB, and all that these want.

    Its report would say it more briefly, but not that of every pip: the one of Debian 12 leaves the extras out.
    """
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-build-isolation"]
    ran = subprocess.run([*pip, "-r", "requirements.txt"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    wanted = re.findall(r"^Requirement already satisfied: ([\w.-]+).*\(from peik==", ran.stdout, re.MULTILINE)
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for extra in ("sessions", "redis", "mongo") for line in extras[extra])]
    needed = {one.name for one in map(Requirement, lines) if one.marker is None or one.marker.evaluate()}
    assert set(wanted) == needed


def test_it_runs_where_there_is_no_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PEIK_", "BOT_", "REDIS_"))}
    told = "import peik, sys; print(peik.__file__); from peik.app.cli import main; sys.argv = ['peik', *sys.argv[1:]]; main()"
    ran = subprocess.run(
        [sys.executable, "-c", told, "config", "texts"],
        cwd=tmp_path,
        env=kept | {"PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    place, _, texts = ran.stdout.partition("\n")
    assert Path(place).is_relative_to(tmp_path)
    assert tomllib.loads(texts)
