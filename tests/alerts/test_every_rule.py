"""Every rule of the table has a test that raises it by its real cause; whoever adds one has to add that, too."""

import ast
from pathlib import Path

from peik.alerts.rules import BY_NAME


def marked() -> set[str]:
    """The rules that tests of this folder are marked with. That a marked test raises its rule, conftest.py looks at."""
    found = set()
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
                for mark in function.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.raises_alert":
                        found.add(ast.literal_eval(mark.args[0]))
    return found


def test_every_rule_is_raised_by_its_real_cause() -> None:
    assert marked() == set(BY_NAME)
