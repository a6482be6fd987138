"""`peik import`: what a bot had before Peik, from its own file, by one command."""

import datetime
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from peik.cli.arguments import moment, pair
from peik.cli.client import Document, PeikClient
from peik.cli.command import Exit, Visit, asks
from peik.cli.filters import Yes
from peik.clock import SystemClock
from peik.errors import BadInput, NotFound, Problem
from peik.settings.config import Config
from peik.storage.cli import address

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.importing.sources import ImportSource
    from peik.importing.transfer import ImportPart, ImportPlan, ImportWanted

_WHAT = "What to bring"
_STAY = {  # by how a message stood
    "sent": "they were sent",
    "failed": "they had failed; --pending failed brings those, and nothing else",
    "in doubt": "somebody was sending them, and whether they arrived nobody knows",
    "unknown": "their status is none that Peik knows",
    "old": "they are older than --since",
}
_TOLD = 10  # troubles that are shown; `--json` has more


def register(app: typer.Typer, panel: str) -> None:
    asks(app, "import", may_create=True, rich_help_panel=panel)(bring_over)


def bring_over(
    visit: Visit,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|URL", help="A SQLite file, CSV, JSON lines, or postgresql://…, or @FILE with that."
        ),
    ],
    bot: Annotated[str | None, typer.Option(metavar="BOT", help="Whose it was, if there are several bots.")] = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE", help="The messages to send, if they are not found by themselves.", rich_help_panel=_WHAT
        ),
    ] = None,
    people: Annotated[
        str | None, typer.Option(metavar="TABLE", help="The bot's users, likewise.", rich_help_panel=_WHAT)
    ] = None,
    mapped: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="ROLE=COLUMN",
            help="Which column is chat, text, status, user …; repeat it.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    pending: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD",
            help="The status of messages to send; repeat it. Others then are not.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Leave out messages written before: 7d, 2026-11-15.", rich_help_panel=_WHAT),
    ] = None,
    last_update: Annotated[
        int | None,
        typer.Option(
            metavar="ID",
            min=1,
            help="The last update that the bot handled, if the file does not say.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="letters, people or offset; repeat it.", rich_help_panel=_WHAT),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the source, in idempotency keys. By default the file's.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be brought, and bring nothing.")] = False,
    yes: Yes = False,
) -> None:
    """Bring over what a bot had before Peik: messages that are not sent yet, its users, its place in Telegram's updates.

    The file is only read. Stop the old program first. Running it again doubles nothing."""
    from peik.importing.sources import source_of
    from peik.importing.transfer import look

    wanted = _wanted(table, people, mapped, pending, since, last_update, only, name, bot or _only_token(visit))
    read = source_of(address(source))
    try:
        with visit.waiting("Reading"):
            plan = look(read, wanted)
        if not plan.parts and plan.last_update_id is None:
            raise BadInput(code="nothing_found", detail=_nothing(plan))
        if dry_run:
            visit.show(_document(plan, [], is_dry=True), lambda: _drawn(plan, is_done=False))
            return
        bot_id = _bot_id(visit, bot)
        if not (yes or visit.is_json):
            _print(plan)
        visit.confirm(f"Bring this to bot {bot_id} at {visit.counter.place}?", is_sure=yes)
        told = _bring(visit, read, plan, wanted, bot_id)
    finally:
        read.close()
    visit.show(_document(plan, told, is_dry=False), lambda: _drawn(plan, is_done=True))
    for sentence in told:
        visit.note(sentence)
    if any(part.troubled for part in plan.parts):
        raise typer.Exit(Exit.PROBLEM)


def _wanted(
    table: str | None,
    people: str | None,
    mapped: list[str] | None,
    pending: list[str] | None,
    since: str | None,
    last_update: int | None,
    only: list[str] | None,
    name: str | None,
    bot_id: str | None,
) -> "ImportWanted":
    from peik.importing.rows import ROLES, TableKind, instant_ms_of, word_of
    from peik.importing.transfer import ImportWanted

    kinds = frozenset({TableKind.LETTERS, TableKind.PEOPLE, TableKind.OFFSET})
    if only:
        names = {str(kind) for kind in kinds}
        if wrong := sorted(set(only) - names):
            raise typer.BadParameter(f"{', '.join(wrong)} is none of {', '.join(sorted(names))}.", param_hint="--only")
        kinds = frozenset(TableKind(one) for one in only)
    columns = dict(pair(one, "--map") for one in mapped or [])
    if wrong := sorted(set(columns) - ROLES):
        raise typer.BadParameter(
            f"{', '.join(wrong)} is no role of a column. There are: {', '.join(sorted(ROLES))}.", param_hint="--map"
        )
    return ImportWanted(
        name=name,
        table=table,
        people_table=people,
        columns=columns,
        pending=frozenset(word_of(word) for word in pending or []),
        since_ms=instant_ms_of(moment(since, "--since", is_past=True)),
        last_update_id=last_update,
        bot_id=bot_id,
        kinds=kinds,
    )


def _only_token(visit: Visit) -> str | None:
    """The bot of the settings, if there is one."""
    tokens = visit.config.tokens()
    return tokens[0].partition(":")[0] if len(tokens) == 1 else None


def _nothing(plan: "ImportPlan") -> str:
    found = "".join(f"\n  {sentence}" for sentence in plan.left)
    return f"There is nothing in {plan.name} that Peik can bring over.{found}"


def _bot_id(visit: Visit, asked: str | None) -> str:
    """The bot that is meant. In a store that is new, the bots of the settings are added as `peik serve` would."""
    from peik.outbox.api import BotApi

    counter, config = visit.counter, visit.config
    known = _bots(counter.document(BotApi.list_bots))
    if not known and not counter.is_running:
        for token in config.tokens():
            counter.document(BotApi.add_bot, body={"token": token, "inbound": config.inbound})
        known = _bots(counter.document(BotApi.list_bots))
    if asked is not None:
        if asked not in known:
            raise NotFound(code="unknown_bot", detail=f"Bot {asked} is not known here.")
        return asked
    if not known:
        raise NotFound(code="no_bot", detail="No bot is known yet. Set BOT_TOKEN, or add one: peik bots add")
    if len(known) > 1:
        raise BadInput(code="which_bot", detail="There are several bots: say which with --bot.")
    return known[0]


def _bots(page: Document) -> list[str]:
    found = page["bots"]
    assert isinstance(found, list)
    return [str(bot["bot_id"]) for bot in found]


def _bring(visit: Visit, read: "ImportSource", plan: "ImportPlan", wanted: "ImportWanted", bot_id: str) -> list[str]:
    from peik.importing.transfer import bring

    total = sum(part.ready for part in plan.parts)
    try:
        with visit.progress("Bringing", total, is_bytes=False) as advance:
            return bring(read, plan, wanted, visit.counter.taker(bot_id), advance)
    except KeyboardInterrupt:
        visit.note("What was brought stays. Start again to go on; nothing is doubled.")
        raise typer.Exit(Exit.INTERRUPTED) from None
    except Problem:
        visit.note("What was brought stays. Start again to go on; nothing is doubled.")
        raise


# ---- telling ----


def _document(plan: "ImportPlan", told: list[str], *, is_dry: bool) -> Document:
    return {
        "name": plan.name,
        "dry_run": is_dry,
        "tables": [
            {
                "table": part.shape.table,
                "kind": str(part.shape.kind),
                "columns": dict(part.shape.columns),
                "rows": part.rows,
                "ready": part.ready,
                "left": {str(standing): count for standing, count in part.standings.items()},
                "unknown_words": dict(part.words),
                "errors": part.troubled,
                "error_rows": list(part.troubles),
                **({} if is_dry else {"brought": part.brought, "known": part.known}),
            }
            for part in plan.parts
        ],
        "last_update_id": plan.last_update_id,
        "not_brought": list(plan.left),
        "notes": told,
    }


def _print(plan: "ImportPlan") -> None:
    from peik.cli.output import console

    console(stderr=True).print(_drawn(plan, is_done=False))


def _drawn(plan: "ImportPlan", *, is_done: bool) -> "RenderableType":
    from rich.console import Group

    from peik.cli.output import plain

    lines = [line for part in plan.parts for line in _told(part, is_done=is_done)]
    if plan.last_update_id is not None and not is_done:
        lines.append(f"The bot handled updates up to {plan.last_update_id}. Peik would go on behind it.")
    lines += [f"Not brought: {sentence}" for sentence in plan.left]
    return Group(*map(plain, lines))


def _told(part: "ImportPart", *, is_done: bool) -> list[str]:
    from peik.importing.rows import TableKind

    is_letters = part.shape.kind is TableKind.LETTERS
    what = "messages" if is_letters else "people"
    table = part.shape.table
    if is_done:
        lines = [f"{table}: {part.brought:,} {what} brought, {part.known:,} that Peik had already."]
    else:
        read = ", ".join(f"{role} from {column}" for role, column in part.shape.columns.items())
        lines = [f"{table}: {part.ready:,} of {part.rows:,} rows are {what} to bring ({read})."]
        if part.oldest_ms is not None:
            from peik.core.units import rfc3339

            lines.append(f"- the oldest was written {rfc3339(part.oldest_ms)}; --since leaves old ones out")
        if part.first is not None:
            lines.append(f"- the first goes {part.first}")
    lines += [f"- {count:,} stay: {_STAY[standing]}" for standing, count in part.standings.items()]
    if part.words:
        words = ", ".join(f"{word or 'nothing'} ({count:,})" for word, count in sorted(part.words.items()))
        lines.append(f"- what they are called: {words}. Say --pending with what means 'to be sent'.")
    if part.troubled:
        lines.append(f"- {part.troubled:,} cannot be brought:")
        lines += [f"  {sentence}" for sentence in part.troubles[:_TOLD]]
        if part.troubled > _TOLD:
            lines.append(f"  and {part.troubled - _TOLD:,} more")
    return lines


# Peik as an import reaches it: over REST, or its store by the very functions that REST uses.


if TYPE_CHECKING:
    from peik.outbox.service import OutboxService
    from peik.outbox.store import BotRecord
    from peik.storage.open import AnyStore

Ask = Callable[..., Document]
FILE_S = 300.0  # for a batch on a slow disk


class ImportTaker:
    """See `peik.importing.transfer.Taker`. `ask` is a call of REST: verb, path, query, body."""

    def __init__(self, counter: PeikClient, ask: Ask, bot_id: str) -> None:
        self._counter = counter
        self._ask = ask
        self._bot_id = bot_id

    def newest_id(self) -> int:
        from peik.outbox.api import LetterApi

        found = self._counter.document(LetterApi.list_letters, query={"limit": "1"})["letters"]
        assert isinstance(found, list)
        return int(found[0]["id"]) if found else 0

    def accept(self, letters: Sequence[Document]) -> list[int]:
        body = {"letters": [{**letter, "bot_id": self._bot_id} for letter in letters]}
        ids = self._ask("POST", "/v1/letters/batch", body=body, timeout_s=FILE_S)["ids"]
        assert isinstance(ids, list)
        return [int(one) for one in ids]

    def add_people(self, people: Sequence[Document]) -> int:
        body = {"bot_id": self._bot_id, "contacts": list(people)}
        new = self._ask("POST", "/v1/imports/contacts", body=body, timeout_s=FILE_S)["new"]
        assert isinstance(new, int)
        return new

    def set_last_update(self, last_update_id: int) -> str:
        body = {"bot_id": self._bot_id, "last_update_id": last_update_id}
        try:
            self._ask("POST", "/v1/imports/offset", body=body)
        except Problem as problem:  # of the store, or told by REST
            if problem.code != "inbox_begun":
                raise
            return problem.detail
        return f"Peik goes on behind update {last_update_id}: what the bot has handled is not handed on again."

    def note(self, name: str, table: str) -> Document | None:
        found = self._ask("GET", "/v1/imports", {"bot_id": self._bot_id})["imports"]
        assert isinstance(found, list)
        note = next((one for one in found if (one["name"], one["table"]) == (name, table)), None)
        if note is None:
            return None
        begun_at = datetime.datetime.fromisoformat(note["begun_at"])
        return {**note, "begun_at_ms": int(begun_at.timestamp() * 1000)}

    def keep_note(self, note: Document) -> None:
        begun_at_ms = note["begun_at_ms"]
        assert isinstance(begun_at_ms, int)
        body = {name: note[name] for name in ("name", "table", "place", "letters")}
        self._ask("PUT", "/v1/imports", body={**body, "bot_id": self._bot_id, "begun_at": begun_at_ms / 1000})


def asking_store(
    config: Config,
    *,
    store: "AnyStore",
    desk: "OutboxService",
    run: Callable[[Coroutine[object, object, Any]], Any],
    know_chats: "Callable[[BotRecord], Coroutine[object, object, None]]",
    is_running: bool,
) -> Ask:
    """The calls of REST that an import makes, answered by the store."""
    from peik.importing.api import (
        ImportBody,
        LastUpdateBody,
        PeopleBody,
        contacts_of,
        last_update_of,
        note_of,
        note_view,
    )
    from peik.importing.service import import_desk_of
    from peik.outbox.api import BatchBody, call_of
    from peik.web.parse import decode, parse_id

    clock = SystemClock()
    imports = import_desk_of(config, store, clock=clock)

    def bot_of(asked: object) -> "BotRecord":
        return desk.bot(parse_id(str(asked), "bot_id"))

    async def accept(raw: bytes) -> Document:
        calls = [call_of(letter) for letter in decode(BatchBody, raw).letters]
        await know_chats(desk.bot(calls[0].bot_id))
        return {"ids": [str(one.letter_id) for one in await desk.accept(calls)]}

    async def contacts(raw: bytes) -> Document:
        body = decode(PeopleBody, raw)
        bot_id = bot_of(body.bot_id).bot_id
        people = contacts_of(bot_id, body, now_ms=clock.wall_ms())
        new = await imports.add_contacts(bot_id, people)
        return {"new": new, "known": len(people) - new}

    async def offset(raw: bytes) -> Document:
        body = decode(LastUpdateBody, raw)
        bot = bot_of(body.bot_id)
        is_received = is_running and bot.inbound != "off"
        await imports.set_last_update(bot.bot_id, last_update_of(body), is_received=is_received)
        return {"bot_id": str(bot.bot_id), "last_update_id": body.last_update_id}

    async def keep(raw: bytes) -> Document:
        body = decode(ImportBody, raw)
        note = note_of(bot_of(body.bot_id).bot_id, body)
        await imports.keep_note(note)
        return note_view(note)

    works = {
        "/v1/letters/batch": accept,
        "/v1/imports/contacts": contacts,
        "/v1/imports/offset": offset,
        "/v1/imports": keep,
    }

    async def notes(bot_id: str) -> Document:
        return {"imports": [note_view(note) for note in await imports.notes(bot_of(bot_id).bot_id)]}

    def ask(
        verb: str,
        path: str,
        query: dict[str, str] | None = None,
        *,
        body: Document | None = None,
        timeout_s: float | None = None,
    ) -> Document:
        work = notes((query or {})["bot_id"]) if verb == "GET" else works[path](msgspec.json.encode(body))
        document: Document = run(work)
        return document

    return ask
