"""The page on MTProto bots and its example: code that can be read by who runs it, with names that exist."""

import ast
import importlib
import re
import subprocess
from pathlib import Path

import pytest

from tests.clients import node as nodes

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/mtproto.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_examples_compile_and_import_what_is_there(block: str) -> None:
    tree = compile(block, "docs/mtproto.md", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert imports
    for node in imports:
        module = importlib.import_module(node.module or "")
        assert all(hasattr(module, name.name) for name in node.names)


def test_the_page_has_its_examples() -> None:
    assert len(BLOCKS) >= 3


def test_the_gramjs_example_is_javascript() -> None:
    subprocess.run([nodes.wanted(), "--check", ROOT / "examples/gramjs/seen.mjs"], check=True)
