"""The example on the page runs."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "sessions.md"


def test_the_example_runs() -> None:
    [block] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), {})
