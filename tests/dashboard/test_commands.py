"""`peik admins` and `peik audit` on a store that is really there."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from peik.admin import cli
from peik.admin.model import Role
from peik.admin.people import People
from peik.clock import SystemClock
from peik.storage.sqlite.store import SqliteStore

PASSWORD = "correct horse battery"
APP = typer.Typer()
APP.add_typer(cli.app, name="admins")
APP.command()(cli.audit)


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = tmp_path / "peik.db"

    async def make() -> None:
        made = SqliteStore(path, clock=SystemClock(), is_owner=True)
        await made.open()
        await made.close()

    asyncio.run(make())
    return f"sqlite:///{path}"


def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    ended = CliRunner().invoke(APP, list(arguments), input=stdin)
    return ended.exit_code, ended.stdout, ended.stderr


def documents(*arguments: str) -> Any:
    code, out, _ = run(*arguments, "--json")
    assert code == 0
    return json.loads(out)


def test_people_are_added_listed_changed_and_removed(store: str) -> None:
    terms = ("--store", store)
    assert run("admins", "add", "Mina", "--role", "operator", *terms, stdin=PASSWORD + "\n")[:2] == (
        0,
        "mina may sign in as operator.\n",
    )
    code, _, said = run("admins", "add", "mina", *terms, stdin=PASSWORD + "\n")
    assert (code != 0, "already" in said) == (True, True)
    assert run("admins", "add", "ali", *terms, stdin="short\n")[0] != 0
    assert run("admins", "add", "ali", *terms)[0] != 0
    (person,) = documents("admins", "list", *terms)["people"]
    assert (person["name"], person["role"]) == ("mina", "operator")
    assert "password" not in person
    assert "mina" in run("admins", "list", *terms)[1]
    assert run("admins", "password", "mina", *terms, stdin="another horse battery\n")[0] == 0
    assert asyncio.run(_is_right(store, "mina", "another horse battery")) is Role.OPERATOR
    assert run("admins", "remove", "mina", *terms)[0] == 0
    assert run("admins", "remove", "mina", *terms)[0] != 0
    lines = documents("audit", *terms)["audit"]
    assert [(line["action"], line["outcome"]) for line in lines] == [
        ("people.remove", "refused"),
        ("people.remove", "done"),
        ("people.password", "done"),
        ("people.add", "refused"),
        ("people.add", "refused"),
        ("people.add", "done"),
    ]
    assert {line["who"] for line in lines} == {"command line"}
    assert PASSWORD not in json.dumps(lines)
    assert len(documents("audit", "--action", "people.add", "--since", "1h", "--limit", "2", *terms)["audit"]) == 2
    assert "people.password" in run("audit", *terms)[1]


def test_without_a_store_none_is_made(tmp_path: Path) -> None:
    path = tmp_path / "nothing.db"
    code, _, said = run("admins", "list", "--store", f"sqlite:///{path}")
    assert (code != 0, "There is no" in said, path.exists()) == (True, True, False)


async def _is_right(store: str, name: str, password: str) -> Role | None:
    opened = SqliteStore(Path(store.removeprefix("sqlite:///")), clock=SystemClock(), is_owner=True)
    await opened.open()
    try:
        person = await People(opened.documents, SystemClock()).is_right(name, password)
        return None if person is None else person.role
    finally:
        await opened.close()
