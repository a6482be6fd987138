"""What a machine may lack that tests need. Such a test is skipped and says what to install, and a run counts them at its end, by
what was missing. In CI nothing may be: `tests.machine` says so before the first test, and here it is a failure."""

import importlib
import os
import re
from types import ModuleType
from typing import NoReturn

import pytest

_WANTED = re.compile(r"for want of .+")


def is_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def words(what: str, how: str) -> str:
    return f"for want of {what}: {how}"


def packaged(*packages: str) -> str:
    """How Debian's packages are installed."""
    return f"sudo apt-get install {' '.join(packages)}"


def skip(what: str, how: str) -> NoReturn:
    """Ends the test that asked."""
    (pytest.fail if is_ci() else pytest.skip)(words(what, how))


def imported(module: str, how: str) -> ModuleType:
    """A module of an extra; else the end of the test that asked, or of all tests of a file that asked at its top."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        if is_ci():
            pytest.fail(words(module, how))
        pytest.skip(words(module, how), allow_module_level=True)


def fold(reports: list[pytest.TestReport]) -> None:
    """So that pytest counts them by what was missing, in one line each, and not by where."""
    for report in reports:
        if isinstance(report.longrepr, tuple) and (found := _WANTED.search(str(report.longrepr[2]))):
            report.longrepr = ("tests", None, found[0])  # type: ignore[assignment]  as pytest itself says "nowhere"
