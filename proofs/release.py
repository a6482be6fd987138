"""`make release VERSION=1.2.3`: everything that a release is, from one commit, or nothing. Works in a clone of its own; what is
published (push, upload) stays with a person, who is told the lines to type. Needs the package index."""

import argparse
import datetime
import hashlib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from proofs.package import ROOT, run, try_program

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:(a|b|rc)(\d+))?")
INIT = Path("peik/__init__.py")
CHANGELOG = Path("CHANGELOG.md")
# What builds and looks at a release; none of it is part of Peik.
TOOLS = ("build>=1.3,<2", "twine>=6.1", "cyclonedx-bom>=7,<8", "shiv>=1.0.8,<2")
SIGNED_FOR = "file"  # the namespace of ssh-keygen's signatures, as git and others use it
BINARY_NAME = "peik.pyz"


class Impossible(Exception):
    """Why there can be no release, in a sentence."""


# ---- the version and the changelog: text in, text out ----


def rank(version: str) -> tuple[int, int, int, int, int]:
    """To compare by. A version under development is before its own release. Raises Impossible."""
    found = VERSION.fullmatch(version.removesuffix(".dev0"))
    if found is None:
        raise Impossible(f"{version!r} is not a version: write 1.2.3, or 1.2.3rc1.")
    stage = {"a": 0, "b": 1, "rc": 2, None: 3}[found[4]]
    return int(found[1]), int(found[2]), int(found[3]), -1 if version.endswith(".dev0") else stage, int(found[5] or 0)


def next_version(version: str) -> str:
    """What is worked on after it."""
    major, minor, patch, stage, _ = rank(version)
    return f"{major}.{minor}.{patch + (stage == 3)}.dev0"


def versioned(text: str, version: str) -> str:
    """peik/__init__.py with another version."""
    told, count = re.subn(r'^__version__ = ".*"$', f'__version__ = "{version}"', text, flags=re.MULTILINE)
    assert count == 1
    return told


def released(changelog: str, version: str, day: datetime.date) -> str:
    """What stood under Unreleased stands under the version. Raises Impossible if there is nothing."""
    if not notes(changelog, "Unreleased"):
        raise Impossible("CHANGELOG.md says nothing under Unreleased: what would this release be for?")
    return changelog.replace("## Unreleased\n", f"## [{version}] - {day.isoformat()}\n", 1)


def begun(changelog: str) -> str:
    """With a place for what comes next."""
    place = changelog.index("\n## ") + 1
    return f"{changelog[:place]}## Unreleased\n\n{changelog[place:]}"


def notes(changelog: str, heading: str) -> str:
    """What stands under a heading of the changelog."""
    found = re.search(rf"^## \[?{re.escape(heading)}\]?.*\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)
    return found[1].strip() if found else ""


# ---- the release ----


class Release:
    def __init__(self, version: str, *, repository: Path, folder: Path, out: Path) -> None:
        self.version = version
        self.tag = f"v{version}"
        self._repository = repository
        self._clone = folder / "clone"
        self._tools = folder / "tools"
        self._folder = folder
        self.out = out

    def check(self) -> None:
        """Raises Impossible before anything is made."""
        asked = rank(self.version)
        if _git(self._repository, "status", "--porcelain", "--untracked-files=no"):
            raise Impossible("There are uncommitted changes: a release is made of a commit.")
        if _git(self._repository, "tag", "--list", self.tag):
            raise Impossible(f"There is a tag {self.tag} already.")
        now = re.search(r'__version__ = "(.*)"', (self._repository / INIT).read_text(encoding="utf-8"))
        assert now is not None
        if asked <= rank(now[1]):
            raise Impossible(f"{self.version} is not after {now[1]}, which the repository is at.")

    def commit(self, key: Path) -> None:
        """The release's commit and its signed tag, and the commit with which work goes on; in the clone alone."""
        run("git", "clone", "--quiet", self._repository, self._clone)
        for name in ("user.name", "user.email"):
            _git(self._clone, "config", name, _git(self._repository, "config", name))
        init, changelog = self._clone / INIT, self._clone / CHANGELOG
        init.write_text(versioned(init.read_text(encoding="utf-8"), self.version), encoding="utf-8")
        told = released(changelog.read_text(encoding="utf-8"), self.version, datetime.datetime.now(datetime.UTC).date())
        changelog.write_text(told, encoding="utf-8")
        _git(self._clone, "commit", "--quiet", "--all", "--message", f"Release {self.version}")
        signing = ("-c", "gpg.format=ssh", "-c", f"user.signingkey={key}")
        _git(self._clone, *signing, "tag", "--sign", "--message", f"Peik {self.version}", self.tag)
        after = next_version(self.version)
        init.write_text(versioned(init.read_text(encoding="utf-8"), after), encoding="utf-8")
        changelog.write_text(begun(told), encoding="utf-8")
        _git(self._clone, "commit", "--quiet", "--all", "--message", f"Begin {after}")
        _git(self._clone, "checkout", "--quiet", self.tag)
        (self.out / "changes.txt").write_text(notes(told, self.version) + "\n", encoding="utf-8")

    def build(self) -> None:
        """sdist and wheel, twice: the same commit makes the same bytes. Then what an index would say of them."""
        run(sys.executable, "-m", "venv", self._tools)
        run(self._python, "-m", "pip", "install", "--quiet", *TOOLS)
        for name in ("first", "second"):
            run(self._python, "-m", "build", "--outdir", self._folder / name, self._clone, also=self._dated)
        made = {path.name: path.read_bytes() for path in (self._folder / "first").iterdir()}
        if made != {path.name: path.read_bytes() for path in (self._folder / "second").iterdir()}:
            raise Impossible("Built twice, and not twice the same. Two builds of one commit must not differ.")
        for path in (self._folder / "first").iterdir():
            shutil.copy(path, self.out)
        run(self._python, "-m", "twine", "check", "--strict", *(self.out / name for name in made))

    def pack(self) -> None:
        """All of it in one file, for machines with this Python and this processor; tried as the wheel is."""
        target = self.out / BINARY_NAME
        shiv = (
            self._tools / "bin/shiv",
            "--quiet",
            "--reproducible",
            "--extend-pythonpath",
            "--console-script",
            "peik",
        )
        run(*shiv, "--python", "/usr/bin/env python3", "--output-file", target, self._wheel, also=self._dated)
        place = self._folder / "packed"
        place.mkdir()
        unpacked = {"SHIV_ROOT": str(self._folder / "unpacked")}
        try_program(sys.executable, target, place=place, name=BINARY_NAME, also=unpacked)

    def list_parts(self) -> None:
        """The bill of materials: the wheel with its usual extras, in an environment that has nothing else."""
        environment = self._folder / "parts"
        run(sys.executable, "-m", "venv", "--without-pip", environment)
        extras = "postgres,redis,mongo,sessions,alerts"  # as in the image
        pip = (self._python, "-m", "pip", "--python", environment / "bin/python", "install", "--quiet")
        run(*pip, f"{self._wheel}[{extras}]")
        described = ("--pyproject", self._clone / "pyproject.toml", "--mc-type", "application", "--output-reproducible")
        target = self.out / f"peik-{self.version}.cdx.json"
        run(self._tools / "bin/cyclonedx-py", "environment", *described, "-o", target, environment / "bin/python")
        told = json.loads(target.read_text(encoding="utf-8"))
        told["metadata"]["component"]["version"] = self.version  # pyproject.toml leaves it to peik/__init__.py
        target.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")

    def sign(self, key: Path) -> None:
        """SHA256SUMS of everything, and its signature, which is checked at once."""
        sums = self.out / "SHA256SUMS"
        files = sorted(path for path in self.out.iterdir() if path.name != sums.name)
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
        sums.write_text("".join(lines), encoding="utf-8")
        run("ssh-keygen", "-Y", "sign", "-n", SIGNED_FOR, "-f", key, sums)
        public = run("ssh-keygen", "-y", "-f", key).strip()
        allowed = self.out / "allowed_signers"
        allowed.write_text(f'peik namespaces="{SIGNED_FOR},git" {public}\n', encoding="utf-8")
        verify(self.out)
        run("git", "-c", f"gpg.ssh.allowedSignersFile={allowed}", "-C", self._clone, "verify-tag", self.tag)

    def land(self) -> None:
        """Only now the repository hears of it: both commits and the tag."""
        branch = _git(self._repository, "branch", "--show-current")
        _git(self._clone, "checkout", "--quiet", branch)
        _git(self._repository, "pull", "--quiet", "--ff-only", str(self._clone), branch)
        _git(self._repository, "fetch", "--quiet", str(self._clone), f"refs/tags/{self.tag}:refs/tags/{self.tag}")

    @property
    def _python(self) -> Path:
        return self._tools / "bin/python"

    @property
    def _wheel(self) -> Path:
        (wheel,) = self.out.glob("*.whl")
        return wheel

    @property
    def _dated(self) -> dict[str, str]:
        """The time of the commit in place of now, wherever a tool writes one down."""
        return {"SOURCE_DATE_EPOCH": _git(self._clone, "log", "-1", "--format=%ct", self.tag)}


def verify(folder: Path) -> None:
    """As anybody does who downloaded it: docs/release.md has the same two lines. Ends the program if it is not so."""
    sums = folder / "SHA256SUMS"
    signers = ("-f", folder / "allowed_signers", "-I", "peik")
    run(
        *("ssh-keygen", "-Y", "verify", *signers, "-n", SIGNED_FOR, "-s", f"{sums}.sig"),
        given=sums.read_text(encoding="utf-8"),
    )
    run("sha256sum", "--check", "--strict", sums.name, cwd=folder)


def make(version: str, *, repository: Path, key: Path | None, is_dry: bool, is_tested: bool) -> Path:
    """The folder with what was made. Raises Impossible."""
    out = repository / "dist" / version
    with tempfile.TemporaryDirectory(prefix="peik-release-") as name:
        release = Release(version, repository=repository, folder=Path(name), out=out)
        release.check()
        if not is_tested:
            _step("make test gate")
            run("make", "test", "gate", cwd=repository, within_s=None)
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        signing = key or _throwaway_key(Path(name))
        for step, words in (
            (lambda: release.commit(signing), "version, changelog, commit and signed tag"),
            (release.build, "sdist and wheel, built twice, and looked at"),
            (release.pack, "one file, tried"),
            (release.list_parts, "bill of materials"),
            (lambda: release.sign(signing), "checksums, signed and verified"),
        ):
            _step(words)
            step()
        if not is_dry:
            release.land()
    return out


def _throwaway_key(folder: Path) -> Path:
    key = folder / "throwaway"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "of a dry run", "-f", key)
    return key


def _git(place: Path, *words: str) -> str:
    return run("git", "-C", place, *words).strip()


def _step(words: str) -> None:
    print(f"- {words}", flush=True)


def main(given: Sequence[str]) -> int:
    asked = argparse.ArgumentParser(prog="make release", description=__doc__)
    asked.add_argument("version")
    asked.add_argument("--key", type=Path, help="the private ssh key to sign with; a dry run makes one to throw away")
    asked.add_argument("--dry-run", action="store_true", help="make everything in dist/VERSION; commit and tag nothing")
    asked.add_argument("--tested", action="store_true", help="leave out make test gate: it passed on this commit")
    said = asked.parse_args(given)
    try:
        if said.key is None and not said.dry_run:
            raise Impossible(
                "A release is signed. Name a key: make release VERSION=1.2.3 ARGS='--key ~/.ssh/id_ed25519'."
            )
        is_tested = said.tested or said.dry_run
        out = make(said.version, repository=ROOT, key=said.key, is_dry=said.dry_run, is_tested=is_tested)
    except Impossible as error:
        print(f"No release: {error}")
        return 1
    for path in sorted(out.iterdir()):
        print(f"  {path.stat().st_size:>11,}  {path.relative_to(ROOT)}")
    if said.dry_run:
        print("A dry run: nothing was committed or tagged.")
        return 0
    print(_LEFT.format(version=said.version, wheel=f"dist/{said.version}/peik-{said.version}"))
    return 0


_LEFT = """Committed and tagged as v{version}, here alone. What is left is yours:
  git push --follow-tags
  twine upload {wheel}*.whl {wheel}.tar.gz
  docker build -f deploy/Dockerfile --build-arg VERSION={version} --build-arg REVISION=$(git rev-parse v{version}) \\
    -t peik:{version} ."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
