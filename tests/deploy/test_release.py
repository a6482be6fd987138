"""`make release` in a repository of its own: version, changelog, commits, signed tag, signed checksums. What needs the package
index (wheel, one file, bill of materials) is tried by `make release VERSION=… ARGS=--dry-run`."""

import datetime
import subprocess
from pathlib import Path

import pytest

from peik import __version__
from proofs.release import Impossible, Release, begun, main, next_version, notes, rank, released, verify, versioned
from tests import wanting

CHANGELOG = (
    "# Changelog\n\nThe form.\n\n## Unreleased\n\n### Added\n- A thing.\n\n## [0.1.0] - 2026-01-02\n\n- Begun.\n"
)
DAY = datetime.date(2026, 11, 19)


def git(place: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", place, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "repository"
    (place / "peik").mkdir(parents=True)
    (place / "peik" / "__init__.py").write_text('"""Peik."""\n\n__version__ = "0.2.0.dev0"\n', encoding="utf-8")
    (place / "CHANGELOG.md").write_text(CHANGELOG, encoding="utf-8")
    git(tmp_path, "init", "--quiet", "--initial-branch=main", str(place))
    for name, value in (("user.name", "A releaser"), ("user.email", "releaser@example.org")):
        git(place, "config", name, value)
    git(place, "add", ".")
    git(place, "commit", "--quiet", "--message", "Begin")
    return place


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    try:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    except FileNotFoundError:
        wanting.skip("ssh-keygen", wanting.packaged("openssh-client"))
    return file


def release(repository: Path, tmp_path: Path, version: str = "0.2.0") -> Release:
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    return Release(version, repository=repository, folder=tmp_path, out=out)


def test_versions_are_in_their_order() -> None:
    ordered = ["0.1.0", "0.2.0.dev0", "0.2.0a1", "0.2.0b1", "0.2.0rc1", "0.2.0rc2", "0.2.0", "0.10.0", "1.0.0"]
    assert sorted(ordered, key=rank) == ordered
    assert rank(__version__)
    for wrong in ("1.0", "v1.0.0", "1.0.0-beta", ""):
        with pytest.raises(Impossible, match="not a version"):
            rank(wrong)
    assert [next_version(one) for one in ("0.2.0", "1.0.0rc1")] == ["0.2.1.dev0", "1.0.0.dev0"]


def test_the_changelog_gets_its_section_and_a_place_for_the_next() -> None:
    told = released(CHANGELOG, "0.2.0", DAY)
    assert notes(told, "0.2.0") == "### Added\n- A thing."
    assert "## [0.2.0] - 2026-11-19\n" in told
    assert "Unreleased" not in told
    assert begun(told).index("## Unreleased\n\n## [0.2.0]") > 0
    with pytest.raises(Impossible, match="says nothing"):
        released(begun(told), "0.2.1", DAY)


def test_the_projects_own_files_are_of_the_form_that_it_reads() -> None:
    root = Path(__file__).parents[2]
    assert '__version__ = "9.9.9"' in versioned((root / "peik" / "__init__.py").read_text(encoding="utf-8"), "9.9.9")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    assert notes(changelog, "Unreleased" if "dev" in __version__ else __version__)


@pytest.mark.parametrize(
    ("version", "spoil", "words"),
    [
        ("0.1.9", "", "not after 0.2.0.dev0"),
        ("0.2.0", "tag", "a tag v0.2.0 already"),
        ("0.2.0", "edit", "uncommitted changes"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_made(
    version: str, spoil: str, words: str, repository: Path, tmp_path: Path
) -> None:
    if spoil == "tag":
        git(repository, "tag", "v0.2.0")
    if spoil == "edit":
        (repository / "CHANGELOG.md").write_text("else", encoding="utf-8")
    with pytest.raises(Impossible, match=words):
        release(repository, tmp_path, version).check()


def test_nothing_is_released_without_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["9.9.9"]) == 1
    assert "A release is signed" in capsys.readouterr().out


def test_the_repository_hears_of_it_at_the_end_and_anybody_can_verify_it(
    repository: Path, tmp_path: Path, key: Path
) -> None:
    before = git(repository, "rev-parse", "HEAD")
    made = release(repository, tmp_path)
    made.check()
    made.commit(key)
    (made.out / "peik-0.2.0.tar.gz").write_bytes(b"a build")
    made.sign(key)
    assert git(repository, "rev-parse", "HEAD") == before
    assert git(repository, "tag") == ""

    made.land()
    assert git(repository, "log", "--format=%s").splitlines() == ["Begin 0.2.1.dev0", "Release 0.2.0", "Begin"]
    assert '__version__ = "0.2.0"' in git(repository, "show", "v0.2.0:peik/__init__.py")
    assert '__version__ = "0.2.1.dev0"' in (repository / "peik" / "__init__.py").read_text(encoding="utf-8")
    assert "## Unreleased" in (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "-----BEGIN SSH SIGNATURE-----" in git(repository, "cat-file", "tag", "v0.2.0")
    assert (made.out / "changes.txt").read_text(encoding="utf-8") == "### Added\n- A thing.\n"
    with pytest.raises(Impossible, match="already"):
        release(repository, tmp_path).check()

    verify(made.out)
    (made.out / "peik-0.2.0.tar.gz").write_bytes(b"another build")
    with pytest.raises(SystemExit, match="FAILED"):
        verify(made.out)
    sums = made.out / "SHA256SUMS"
    sums.write_text(sums.read_text(encoding="utf-8").replace("a", "b"), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"(?i)signature"):
        verify(made.out)
