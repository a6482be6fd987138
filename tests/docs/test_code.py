"""Every block of Python on any page can be read, and Peik has what it imports of it. Most of them are also run, by the tests of
their pages."""

import ast
import importlib
import textwrap

import pytest

from tests.docs.pages import NAMES, blocks

PYTHON = [
    pytest.param(block, id=f"{name}-{number}") for name in NAMES for number, block in enumerate(blocks(name, "python"))
]
LIKE_A_SHELL = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@pytest.mark.parametrize("block", PYTHON)
def test_python_can_be_read_and_peik_has_what_it_imports(block: str) -> None:
    tree = compile(textwrap.dedent(block), "the page", "exec", LIKE_A_SHELL, dont_inherit=True)
    for one in ast.walk(tree):
        # Integrations bring whole client libraries along, which takes seconds; tests/integrations looks at those.
        if isinstance(one, ast.ImportFrom) and one.module in ("peik", "peik.testing"):
            module = importlib.import_module(one.module)
            assert not [name.name for name in one.names if not hasattr(module, name.name)]


def test_there_are_many() -> None:
    assert len(PYTHON) > 20
