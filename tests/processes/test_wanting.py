"""On a machine that lacks what some tests need, they are skipped in words and counted; in CI that is red."""

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
