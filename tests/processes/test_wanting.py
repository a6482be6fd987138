"""On a machine that lacks what some tests need, they are skipped in words and counted; in CI that is red."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = "for want of redis-server: sudo apt-get install redis-server"


def run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Without any program but Python."""
    bare = {"PATH": "/nowhere", "HOME": "/nowhere", **environment}
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env=bare,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )


def test_what_is_missing_skips_its_tests_and_is_counted() -> None:
    ran = run("pytest", "-q", "-p", "no:cacheprovider", "tests/storage/conformance/test_keys.py", "-k", "RedisPlace")
    assert ran.returncode == 0, ran.stdout
    assert f"tests: {WORDS}" in ran.stdout
    assert ran.stdout.count(WORDS) == 1, "one line, however many tests"
    assert "passed" not in ran.stdout


@pytest.mark.parametrize("told", ["true", "1"])
def test_in_ci_it_is_red(told: str) -> None:
    ran = run("tests.machine", CI=told)
    assert ran.returncode == 1, ran.stdout
    assert "Nothing may be missing in CI. Not here:" in ran.stdout
    assert "redis-server" in ran.stdout
    assert "chromium" in ran.stdout


@pytest.mark.parametrize(("environment", "is_red"), [({}, False), ({"CI": "true"}, True)])
@pytest.mark.parametrize("is_at_the_top", [True, False])
def test_so_is_a_module_that_is_not_there(
    is_at_the_top: bool, environment: dict[str, str], is_red: bool, tmp_path: Path
) -> None:
    asks = "wanting.imported('peik_of_nowhere', 'pip install it')"
    lines = ["from tests import wanting", asks if is_at_the_top else "", "def test_it() -> None:", f"    {asks}"]
    (tmp_path / "test_asking.py").write_text("\n".join(lines), encoding="utf-8")
    ran = run("pytest", "-q", "-p", "no:cacheprovider", "-rs", str(tmp_path), **environment)
    assert (ran.returncode in (1, 2)) == is_red, ran.stdout
    assert "for want of peik_of_nowhere: pip install it" in ran.stdout
    assert "passed" not in ran.stdout


def test_nothing_is_skipped_by_another_way() -> None:
    silent = re.compile(r"pytest\.importor" + "skip")
    asking = [path.relative_to(ROOT).as_posix() for path in ROOT.joinpath("tests").rglob("*.py")
              if "node_modules" not in path.parts and silent.search(path.read_text(encoding="utf-8"))]  # fmt: skip
    assert asking == []
