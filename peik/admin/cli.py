"""`peik admins add|list|remove|password`: the people of the dashboard; and `peik audit`: who did what.

People are kept in the store, and these commands work on it whether or not a Peik is running: what is changed counts at once.
"""

import functools
import getpass
import inspect
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from peik.admin.model import Role
from peik.cli.client import Document, document_for
from peik.cli.command import CommandContext, Exit, tell
from peik.errors import BadInput, Problem, StartError, Unavailable
from peik.settings.config import Config, load
from peik.settings.values import StoreKind

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.admin.audit import Audit
    from peik.admin.people import People, Person
    from peik.storage.open import AnyStore

app = typer.Typer(no_args_is_help=True, help="The people who may sign in at the dashboard by name and password.")
T = TypeVar("T")
_CLI = "command line"  # as the audit log calls us

Store = Annotated[str | None, typer.Option(metavar="URL", help="The store to work on.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Letters a-z, digits, dots, dashes.")]
PasswordFrom = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from stdin, for scripts, instead of asking for it.")
]


def _told(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose problems are told as those of all commands."""

    @functools.wraps(function)
    def command(**given: Any) -> None:
        try:
            function(**given)
        except (Problem, StartError) as problem:
            raise typer.Exit(tell(problem, is_json=given["as_json"])) from None
        except (typer.Abort, KeyboardInterrupt, EOFError):
            raise typer.Exit(Exit.INTERRUPTED) from None

    command.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return command


@app.command()
@_told
def add(
    name: Name,
    role: Annotated[Role, typer.Option(help="What they may do.")] = Role.VIEWER,
    password_stdin: PasswordFrom = False,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Let somebody sign in at the dashboard by name and password."""
    password = _password(is_from_stdin=password_stdin)

    async def work(opened: "AnyStore") -> "Person":
        return await _audited(opened, "people.add", name, lambda people: people.add(name, role, password))

    person = _on_store(store, work)
    _say(_person_view(person), f"{person.name} may sign in as {person.role}.", as_json=as_json)


@app.command("list")
@_told
def show_all(store: Store = None, as_json: AsJson = False) -> None:
    """List the people, without their passwords."""

    async def work(opened: "AnyStore") -> "list[Person]":
        return await _people(opened).everybody()

    found = [_person_view(person) for person in _on_store(store, work)]

    def draw() -> "RenderableType":
        from peik.cli.output import age, table

        rows = [(one["name"], one["role"], age(one["created_at"]), age(one["changed_at"])) for one in found]
        return table(("name", "role", "added", "changed"), rows, empty="Nobody yet: peik admins add NAME")

    CommandContext({}, is_json=as_json, may_create=False).show({"people": found}, draw)


@app.command()
@_told
def remove(name: Name, store: Store = None, as_json: AsJson = False) -> None:
    """Remove somebody, who is signed out at once."""

    async def work(opened: "AnyStore") -> None:
        await _audited(opened, "people.remove", name, lambda people: people.remove(name))

    _on_store(store, work)
    _say({"name": name, "removed": True}, f"{name} is removed.", as_json=as_json)


@app.command()
@_told
def password(name: Name, password_stdin: PasswordFrom = False, store: Store = None, as_json: AsJson = False) -> None:
    """Give somebody a new password; they are signed out everywhere."""
    given = _password(is_from_stdin=password_stdin)

    async def work(opened: "AnyStore") -> "Person":
        return await _audited(opened, "people.password", name, lambda people: people.set_password(name, given))

    person = _on_store(store, work)
    _say(_person_view(person), f"{person.name} has a new password, and is signed out everywhere.", as_json=as_json)


@_told
def audit(
    who: Annotated[str | None, typer.Option(help="Only what they did.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this: letter.retry (dashboard), retryLetter (REST).")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="1h (ago), 2026-11-15T08:30.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many lines.")] = 50,
    url: Annotated[str | None, typer.Option(metavar="URL", help="The running Peik to ask, and nothing else.")] = None,
    store: Store = None,
    key_file: Annotated[str | None, typer.Option(metavar="FILE", help="A file with the key to show.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show who did what to Peik, by whichever door, the newest first."""
    from peik.cli.arguments import moment

    flags = {"url": url, "store": store} | ({} if key_file is None else {"key_file": key_file})
    query = {"who": who, "action": action, "since": moment(since, "--since", is_past=True), "limit": str(limit)}
    filters = {field: value for field, value in query.items() if value is not None}
    context = CommandContext(flags, is_json=as_json, may_create=False)
    try:
        page = _audit_page(context, filters, store)
    finally:
        context.close()
    lines = page["audit"]
    assert isinstance(lines, list)

    def draw() -> "RenderableType":
        from peik.cli.output import age, table

        rows = [
            (age(one["at"]), one["who"], one["action"], one["target"], one["outcome"], one["detail"], one["address"])
            for one in lines
        ]
        return table(("when", "who", "what", "of", "outcome", "detail", "from"), rows, empty="Nothing was done.")

    context.show(page, draw)


def _audit_page(context: CommandContext, filters: dict[str, str], store: str | None) -> Document:
    from peik.admin.api import AuditApi, AuditQuery
    from peik.cli.in_process import COMMAND_LINE
    from peik.web.parse import read_query

    if store is None:
        return context.client.document(AuditApi.list_audit, query=filters)

    async def work(opened: "AnyStore") -> Document:
        query = read_query(AuditQuery, filters)
        return document_for(await AuditApi(_audit(opened)).list_audit(COMMAND_LINE, query))

    return _on_store(store, work)


# ---- the store ----


def _on_store(named: str | None, work: "Callable[[AnyStore], Awaitable[T]]") -> T:
    """What the work found, on the store of the settings. Raises Unavailable if there is none."""
    from peik.clock import SystemClock
    from peik.storage.open import store_of

    config = load({} if named is None else {"store": named})
    _must_exist(config)

    async def run() -> T:
        store = store_of(config, clock=SystemClock())
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    import asyncio  # late: see tests/cli/test_shape.py

    return asyncio.run(run())


def _must_exist(config: Config) -> None:
    if config.store_kind is StoreKind.SQLITE and not config.sqlite_path.absolute().exists():
        raise Unavailable(
            code="no_store",
            detail=f"There is no {config.sqlite_path.absolute()}. Start `peik serve` there, or name another: --store.",
        )


def _people(store: "AnyStore") -> "People":
    from peik.admin.people import People
    from peik.clock import SystemClock

    return People(store.documents, SystemClock())


def _audit(store: "AnyStore") -> "Audit":
    from peik.admin.audit import Audit
    from peik.clock import SystemClock
    from peik.core.events import Events

    return Audit(store.documents, SystemClock(), Events())


async def _audited(store: "AnyStore", action: str, name: str, deed: "Callable[[People], Awaitable[T]]") -> T:
    audit = _audit(store)
    line = await audit.begin(who=_CLI, action=action, target=name)
    try:
        done = await deed(_people(store))
    except Problem as problem:
        await audit.end(line, is_done=False, detail=f"{problem.code}: {problem.detail}")
        raise
    await audit.end(line, is_done=True)
    return done


# ---- asking and telling ----


def _password(*, is_from_stdin: bool) -> str:
    if is_from_stdin or not sys.stdin.isatty():
        given = sys.stdin.readline().rstrip("\r\n")
        if not given:
            raise BadInput(code="no_password", detail="There was no password on stdin.")
        return given
    given = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != given:
        raise BadInput(code="not_the_same", detail="The two are not the same. Nothing was changed.")
    return given


def _person_view(person: "Person") -> dict[str, Any]:
    from peik.core.units import rfc3339

    return {
        "name": person.name,
        "role": person.role,
        "created_at": rfc3339(person.created_at_ms),
        "changed_at": rfc3339(person.changed_at_ms),
    }


def _say(document: dict[str, Any], sentence: str, *, as_json: bool) -> None:
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() if as_json else sentence
    sys.stdout.write(text + "\n")
