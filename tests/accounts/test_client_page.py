"""The examples on the page run."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "sessions.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=["an account", "a program"])
def test_the_example_runs(block: str) -> None:
    exec(compile(block, str(PAGE), "exec"), {})
