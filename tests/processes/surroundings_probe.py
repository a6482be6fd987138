"""What a test sees of the caller's environment; `test_make.py` has make run this. It is no test of its own."""

import os
import resource
import sys

from tests.surroundings import GIVEN, KEPT


def test_nothing_of_the_shell_reaches_a_test() -> None:
    ours = {"TMPDIR"}  # by conftest.py
    strange = {name for name in os.environ if name not in {*KEPT, *GIVEN, *ours} and not name.startswith("PYTEST_")}
    assert not strange
    assert "PYTEST_ADDOPTS" not in os.environ
    assert not sys.flags.optimize
    assert not sys.flags.dont_write_bytecode


def test_as_many_files_may_be_open_as_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard
