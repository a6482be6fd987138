"""What Peik imports is declared in pyproject.toml: by the core if a Peik without extras needs it, else by an extra."""

import ast
import functools
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOOLS = {"bench", "demo", "dev", "docs", "examples"}  # extras of the checkout: nothing in the package may rely on them
# What those who use these modules have themselves: an integration is of no use without the library that it is for.
BROUGHT = {
    "aiogram": {"peik.integrations.aiogram"},
    "aiohttp": {"peik.integrations.aiogram"},  # aiogram brings these three
    "multidict": {"peik.integrations.aiogram"},
    "yarl": {"peik.integrations.aiogram"},
    "django": {"peik.integrations.django", "peik.integrations.django.management.commands.peik"},
    "python-telegram-bot": {"peik.integrations.ptb"},
    "psycopg": {"peik.client.enqueue"},  # the caller's own connection
    "sqlalchemy": {"peik.client.enqueue"},
}
NOT_IMPORTED = {"tzdata"}  # zoneinfo reads it
# What must start where no extra is installed: every program, command, page and operation, the library, the simulated Telegram.
# But for the demo of accounts, which is loaded when it is asked for and says what is missing.
STARTS = re.compile(
    r"(?!peik\.demo\.crawler$)peik\.(app|cli|client|load|demo|testing|web)(\..+)?|(.+\.)?__main__|.+\.(api|cli|pages|wiring)(_\w+)?"
)


class Imported(msgspec.Struct, frozen=True):
    module: str  # where
    name: str  # what, with dots
    is_lazy: bool  # in a function, or caught if it is missing: not needed before somebody asks for it


def _named(requirement: str) -> Iterator[str]:
    """The packages that a requirement names, with those that its extras are called after: `redis[hiredis]` brings both."""
    found = re.match(r"([\w.-]+)(?:\[([^]]*)\])?", requirement)
    assert found is not None
    for name in (found[1], *(found[2] or "").split(",")):
        if name:
            yield _usual(name.strip())


def _usual(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


CORE = {name for one in PROJECT["dependencies"] for name in _named(one)}
EXTRAS = {
    name
    for extra, requirements in PROJECT["optional-dependencies"].items()
    if extra not in TOOLS
    for one in requirements
    for name in _named(one)
}


@functools.cache
def _files() -> dict[str, Path]:
    paths = (path.relative_to(ROOT) for path in (ROOT / "peik").rglob("*.py"))
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): ROOT / path for path in paths}


@functools.cache
def _imports(module: str) -> tuple[Imported, ...]:
    tree = ast.parse(_files()[module].read_text(encoding="utf-8"))
    return tuple(Imported(module, name, is_lazy) for name, is_lazy in _walk(tree.body, is_lazy=False))


def _walk(nodes: Iterable[ast.AST], *, is_lazy: bool) -> Iterator[tuple[str, bool]]:
    for node in nodes:
        match node:
            case ast.Import():
                yield from ((one.name, is_lazy) for one in node.names)
            case ast.ImportFrom():
                assert node.module is not None
                assert node.level == 0, "imports are whole"
                yield node.module, is_lazy
                # What is imported may be a module itself.
                yield from ((f"{node.module}.{one.name}", is_lazy) for one in node.names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from _walk(node.orelse, is_lazy=is_lazy)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from _walk(ast.iter_child_nodes(node), is_lazy=True)
            case ast.Try(handlers=handlers) if any("ImportError" in ast.unparse(one) for one in handlers):
                yield from _walk(ast.iter_child_nodes(node), is_lazy=True)
            case _:
                yield from _walk(ast.iter_child_nodes(node), is_lazy=is_lazy)


@functools.cache
def _distributions() -> dict[str, list[str]]:
    return {top: [*map(_usual, names)] for top, names in importlib.metadata.packages_distributions().items()}


def _packages_of(name: str) -> set[str]:
    """The packages that one import is from; none if it is Python's or our own."""
    top = name.partition(".")[0]
    if top == "peik" or top in sys.stdlib_module_names:
        return set()
    return set(_distributions().get(top, [top]))


def _all() -> Iterator[Imported]:
    return (one for module in _files() for one in _imports(module))


def _at_once() -> set[str]:
    """The modules that are loaded by who imports any of `STARTS`, by what stands in the files."""
    seen: set[str] = set()
    found = [one for start in _files() if STARTS.fullmatch(start) for one in (start, *_parents(start))]
    while found:
        module = found.pop()
        if module in seen:
            continue
        seen.add(module)
        for one in _imports(module):
            if not one.is_lazy and one.name in _files():
                found += [one.name, *_parents(one.name)]
    return seen


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def test_every_package_that_is_imported_is_declared() -> None:
    undeclared = {
        f"{one.module} imports {one.name}"
        for one in _all()
        for package in (_packages_of(one.name),)
        if package and not package & (CORE | EXTRAS)
        if not any(one.module in BROUGHT.get(name, ()) for name in package)
    }
    assert undeclared == set()


def test_a_start_without_extras_needs_what_the_core_declares() -> None:
    loaded = _at_once()
    assert {"peik.app.rest", "peik.web.server", "peik.storage.sqlite"} <= loaded  # it is followed all the way
    beyond = {
        f"{module} imports {one.name}"
        for module in loaded
        for one in _imports(module)
        if not one.is_lazy and (package := _packages_of(one.name)) and not package & CORE
    }
    assert beyond == set()


def test_nothing_is_declared_that_nobody_imports() -> None:
    imported = {package for one in _all() for package in _packages_of(one.name)}
    assert (CORE | EXTRAS) - imported == NOT_IMPORTED
    modules = {name: {one.module for one in _all() if name in _packages_of(one.name)} for name in BROUGHT}
    assert modules == BROUGHT


@pytest.mark.parametrize("name", ["starlette", "uvicorn", "redis", "telethon"])
def test_what_is_built_on_in_depth_is_bounded_above_wherever_it_is_named(name: str) -> None:
    extras = (one for requirements in PROJECT["optional-dependencies"].values() for one in requirements)
    named = [one for one in (*PROJECT["dependencies"], *extras) if name in _named(one)]
    assert named
    assert [one for one in named if "<" not in one] == []
