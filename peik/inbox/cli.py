"""`peik arrivals`, `consumers`, `inbox` and `recover`: updates that came in, who reads them, and where they come from."""

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from peik.cli.arguments import moment, secret, unshielded
from peik.cli.client import Document, Filters, page_of, some
from peik.cli.command import CommandContext, Exit, asks
from peik.cli.filters import PAGE, Bot, Cursor, Limit, Yes, count_pages, counted, is_confirmed, refuse_both
from peik.contacts.cli import only_bot
from peik.core.letter import State
from peik.outbox.cli_bots import known_bots

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.inbox.api import ArrivalApi, ConsumerApi


def _arrivals() -> "type[ArrivalApi]":
    from peik.inbox.api import ArrivalApi  # with all that it needs: help is shown without

    return ArrivalApi


def _consumers() -> "type[ConsumerApi]":
    from peik.inbox.api import ConsumerApi

    return ConsumerApi


# ---- the filters that lists of arrivals share, as options ----

_PANEL = "Which arrivals"


def _filter(name: str, metavar: str, text: str, *, least: int | None = None) -> Any:
    return typer.Option(name, metavar=metavar, help=text, min=least, rich_help_panel=_PANEL)


OfBot = Annotated[str | None, _filter("--bot", "ID", "Of this bot.")]
OfConsumer = Annotated[str | None, _filter("--consumer", "NAME", "As this consumer sees them.")]
OfType = Annotated[str | None, _filter("--type", "TYPE", "Of this type, such as message.")]
OfChat = Annotated[str | None, _filter("--chat", "CHAT", "Of this chat, by its number.")]
OfUser = Annotated[str | None, _filter("--user", "ID", "Of this user.")]
Since = Annotated[str | None, _filter("--since", "TIME", "Received since: 1h (ago), 2026-11-15T08:30.")]
Until = Annotated[str | None, _filter("--until", "TIME", "Received until: 10m (ago), 2026-11-15T08:30.")]
WithText = Annotated[str | None, _filter("--text", "WORDS", "With these words in the update.")]
OfFirst = Annotated[int | None, _filter("--first", "N", "From this number on.", least=0)]
OfLast = Annotated[int | None, _filter("--last", "N", "Up to this number.", least=0)]
ForConsumer = Annotated[str, typer.Option("--consumer", metavar="NAME", help="Who gets them.")]


def filters(
    *,
    state: str | None = None,
    consumer: str | None = None,
    bot: str | None,
    kind: str | None,
    chat: str | None,
    user: str | None,
    since: str | None,
    until: str | None,
    first: int | None = None,
    last: int | None = None,
    text: str | None,
) -> dict[str, str]:
    """As in the query of GET /v1/arrivals."""
    return some(
        state=state,
        consumer=consumer,
        bot_id=bot,
        type=kind,
        chat_id=None if chat is None else unshielded(chat),
        user_id=user,
        since=moment(since, "--since", is_past=True),
        until=moment(until, "--until", is_past=True),
        first_number=None if first is None else str(first),
        last_number=None if last is None else str(last),
        text=text,
    )


_NOUN = "dead arrival"
_REPLAY_PAGE = 500
_WORDS_MAX = 60

app = typer.Typer(no_args_is_help=True, help="Updates that came in: look, hand on again, acknowledge.")

ArrivalId = Annotated[str, typer.Argument(metavar="ID", help="The arrival's id.")]


class ArrivalState(enum.StrEnum):
    """Those that arrivals can be found by. Which ones are active is known to whoever works on them."""

    WAITING = "waiting"
    DELAYED = "delayed"
    COMPLETED = "completed"
    FAILED = "failed"


InState = Annotated[
    ArrivalState | None, typer.Option("--state", help="How it stands with the consumer.", rich_help_panel=_PANEL)
]


# ---- looking ----


@asks(app, "list")
def show_all(
    context: CommandContext,
    state: InState = None,
    consumer: OfConsumer = None,
    bot: OfBot = None,
    kind: OfType = None,
    chat: OfChat = None,
    user: OfUser = None,
    since: Since = None,
    until: Until = None,
    first: OfFirst = None,
    last: OfLast = None,
    text: WithText = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List arrivals, the newest first, and how each stands with the default consumer or another."""
    wanted = filters(
        state=state, consumer=consumer, bot=bot, kind=kind, chat=chat, user=user,
        since=since, until=until, first=first, last=last, text=text,
    )  # fmt: skip
    _show(context, wanted, cursor=cursor, limit=limit, empty="There are no such arrivals.")


@asks(app)
def dead(
    context: CommandContext,
    consumer: OfConsumer = None,
    bot: OfBot = None,
    kind: OfType = None,
    chat: OfChat = None,
    user: OfUser = None,
    since: Since = None,
    until: Until = None,
    first: OfFirst = None,
    last: OfLast = None,
    text: WithText = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List dead arrivals: those that a handler or a push could not be brought to take."""
    wanted = filters(
        state=State.FAILED, consumer=consumer, bot=bot, kind=kind, chat=chat, user=user,
        since=since, until=until, first=first, last=last, text=text,
    )  # fmt: skip
    _show(context, wanted, cursor=cursor, limit=limit, empty="There are no dead arrivals.", is_dead=True)


def _page(context: CommandContext, wanted: Filters, *, cursor: str | None, limit: int) -> Document:
    return context.client.document(_arrivals().list_arrivals, query={**wanted, **page_of(cursor, limit)})


def _show(
    context: CommandContext,
    wanted: dict[str, str],
    *,
    cursor: str | None,
    limit: int,
    empty: str,
    is_dead: bool = False,
) -> None:
    page = _page(context, wanted, cursor=cursor, limit=limit)
    found = page["arrivals"]
    assert isinstance(found, list)
    context.show(page, lambda: _table(found, empty=empty, is_dead=is_dead))
    if page["next_cursor"] is not None:
        context.note(f"There may be more: --cursor {page['next_cursor']}")


@asks(app)
def show(context: CommandContext, arrival_id: ArrivalId) -> None:
    """Show an arrival: the update itself, how it stands with each consumer, and every try."""
    arrival = context.client.document(_arrivals().get_arrival, arrival_id=arrival_id)
    context.show(arrival, lambda: _whole(arrival))


# ---- dead ones ----

_All = Annotated[bool, typer.Option("--all", help="All dead arrivals. Also meant if nothing is said.")]


@asks(app)
def retry(
    context: CommandContext,
    arrival_id: Annotated[str | None, typer.Argument(metavar="ID", help="One dead arrival.")] = None,
    is_all: _All = False,
    consumer: OfConsumer = None,
    bot: OfBot = None,
    kind: OfType = None,
    chat: OfChat = None,
    user: OfUser = None,
    since: Since = None,
    until: Until = None,
    first: OfFirst = None,
    last: OfLast = None,
    text: WithText = None,
    yes: Yes = False,
) -> None:
    """Hand dead arrivals on once more: one, or those of a filter, or all. Asks first if it is not one."""
    wanted = filters(
        consumer=consumer, bot=bot, kind=kind, chat=chat, user=user,
        since=since, until=until, first=first, last=last, text=text,
    )  # fmt: skip
    if arrival_id is not None:
        if is_all or set(wanted) - {"consumer"}:
            raise typer.BadParameter("Name one arrival, or say which ones by filters; not both.")
        made = context.client.document(_arrivals().retry, arrival_id=arrival_id, query=some(consumer=consumer))
        context.say(made, f"Arrival {arrival_id} is handed on once more, as arrival {made['id']}.")
        return
    refuse_both(wanted, is_all=is_all)
    if not is_confirmed(context, "Hand {} on once more?", _NOUN, lambda: _count(context, wanted), is_sure=yes):
        context.say({"retried": 0}, "There are no such dead arrivals.")
        return
    body: Document = {**wanted, **_numbers(first, last)}
    with context.waiting("Handing dead arrivals on once more…"):
        answer = context.client.document(_arrivals().retry_dead, body=body, timeout_s=None)
    context.say(answer, f"{counted(answer['retried'], _NOUN)} handed on once more.")


@asks(app)
def clear(
    context: CommandContext,
    is_all: _All = False,
    consumer: OfConsumer = None,
    bot: OfBot = None,
    kind: OfType = None,
    chat: OfChat = None,
    user: OfUser = None,
    since: Since = None,
    until: Until = None,
    first: OfFirst = None,
    last: OfLast = None,
    text: WithText = None,
    yes: Yes = False,
) -> None:
    """Forget dead arrivals: those of a filter, or all. Asks first. The updates stay as long as any others."""
    wanted = filters(
        consumer=consumer, bot=bot, kind=kind, chat=chat, user=user,
        since=since, until=until, first=first, last=last, text=text,
    )  # fmt: skip
    refuse_both(wanted, is_all=is_all)
    if not is_confirmed(context, "Forget {} for good?", _NOUN, lambda: _count(context, wanted), is_sure=yes):
        context.say({"cleared": 0}, "There are no such dead arrivals.")
        return
    with context.waiting("Clearing dead arrivals away…"):
        answer = context.client.document(_arrivals().clear_dead, query=wanted, timeout_s=None)
    context.say(answer, f"{counted(answer['cleared'], _NOUN)} cleared away.")


def _count(context: CommandContext, wanted: dict[str, str]) -> int:
    failed = {**wanted, "state": State.FAILED}
    return count_pages(lambda cursor: _page(context, failed, cursor=cursor, limit=PAGE), "arrivals")


def _numbers(first: int | None, last: int | None) -> dict[str, int]:
    """As a body has them."""
    given = (("first_number", first), ("last_number", last))
    return {name: value for name, value in given if value is not None}


# ---- again, and done ----


@asks(app)
def replay(
    context: CommandContext,
    consumer: ForConsumer = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many it would be.")] = False,
    state: InState = None,
    bot: OfBot = None,
    kind: OfType = None,
    chat: OfChat = None,
    user: OfUser = None,
    since: Since = None,
    until: Until = None,
    first: OfFirst = None,
    last: OfLast = None,
    text: WithText = None,
    yes: Yes = False,
) -> None:
    """Hand arrivals to a consumer once more, with new numbers, for it alone. Asks first; no other consumer notices."""
    wanted: Document = {
        **filters(
            state=state, bot=bot, kind=kind, chat=chat, user=user,
            since=since, until=until, text=text,
        ),
        **_numbers(first, last),
        "consumer": consumer,
    }  # fmt: skip

    def replayed(**how: object) -> Document:
        return context.client.document(_arrivals().replay, body={**wanted, **how}, timeout_s=None)

    with context.waiting("Counting…"):
        counted = replayed(dry_run=True)
    count = counted["would_replay"]
    assert isinstance(count, int)
    if dry_run:
        context.say(counted, f"{_many(count)} would be handed to {consumer} once more.")
        return
    if count:
        context.confirm(f"Hand {_many(count)} to {consumer} once more?", is_sure=yes)
    done, cursor = 0, None
    with context.progress("Replaying", count, is_bytes=False) as advance:
        while count:
            page = replayed(limit=_REPLAY_PAGE, cursor=cursor)
            handed, cursor = page["replayed"], page["next_cursor"]
            assert isinstance(handed, int)
            done += handed
            advance(handed)
            if cursor is None:
                break
    context.say({"replayed": done}, f"{_many(done)} handed to {consumer} once more.")


def _many(count: int) -> str:
    return "1 arrival" if count == 1 else f"{count:,} arrivals"


@asks(app)
def ack(
    context: CommandContext,
    consumer: Annotated[str, typer.Argument(metavar="CONSUMER", help="Who is done with them.")],
    number: Annotated[int | None, typer.Option(metavar="N", help="With everything up to this number.")] = None,
    update_id: Annotated[
        int | None, typer.Option(metavar="N", help="With everything up to this update, as it got it.")
    ] = None,
    bot: Bot = None,
) -> None:
    """Say that a consumer is done with everything up to an arrival: it is not handed to it again."""
    if (number is None) == (update_id is None):
        raise typer.BadParameter("Say --number or --update-id.")
    named = {"number": number} if number is not None else {"update_id": update_id}
    body: Document = {"consumer": consumer, **named, **some(bot_id=bot)}
    answer = context.client.document(_arrivals().acknowledge, body=body)
    context.say(answer, f"{consumer} is done with everything up to number {answer['acknowledged_up_to']}.")


@asks(app)
def seen(
    context: CommandContext,
    chat: Annotated[str, typer.Argument(metavar="CHAT", help="The chat's number.")],
    messages: Annotated[list[str], typer.Argument(metavar="MESSAGE", help="Numbers of messages in it.")],
    bot: Bot = None,
) -> None:
    """Note messages that a program has handled itself: they are not handed to the default consumer."""
    noted = [{"chat_id": unshielded(chat), "message_id": message} for message in messages]
    answer = context.client.document(_arrivals().seen, body={"messages": noted, **some(bot_id=bot)})
    context.say(answer, f"Noted {answer['noted']}; {answer['matched']} of them had arrived already.")


# ---- arrivals as people look at them: a line in a list, or one with the update and its whole history ----


def _table(arrivals: Sequence[Document], *, empty: str, is_dead: bool = False) -> "RenderableType":
    """The last column is what one looks for first: why an arrival is dead, or what it says."""
    from peik.cli.output import table

    columns = ["id", "number", "age", "chat", "type", "says", "consumer", "tries", "reason"]
    if not is_dead:
        columns = ["id", "number", "state", "age", "chat", "user", "type", "says"]
    if len({arrival["bot_id"] for arrival in arrivals}) > 1:
        columns.insert(2, "bot")
    rows = [[_cells(arrival)[column] for column in columns] for arrival in arrivals]
    return table(columns, rows, right=("id", "number", "tries"), shrinking=("says", "type"), empty=empty)


def _cells(arrival: Document) -> dict[str, object]:
    from peik.cli.output import age, state

    given_up = next((one for one in _deliveries(arrival) if one["state"] == "failed"), {})
    text = str(arrival["text"] or "")
    return {
        "id": arrival["id"],
        "number": arrival["number"],
        "state": state(arrival["state"] or "not its"),
        "age": age(arrival["received_at"]),
        "bot": arrival["bot_id"],
        "chat": arrival["chat_id"] or arrival["lane"],
        "user": arrival["user_id"],
        "type": arrival["type"],
        "says": text if len(text) <= _WORDS_MAX else text[: _WORDS_MAX - 1] + "…",
        "consumer": given_up.get("consumer"),
        "tries": given_up.get("tries"),
        "reason": given_up.get("failed_reason"),
    }


def _whole(arrival: Document) -> "RenderableType":
    from rich.console import Group

    from peik.cli.output import facts, plain, state, table, when

    head = facts(
        [
            ("arrival", arrival["id"]),
            ("number", arrival["number"]),
            ("update id", f"{arrival['update_id']} here, {arrival['telegram_update_id']} at Telegram"),
            ("bot", arrival["bot_id"]),
            ("type", arrival["type"]),
            ("chat", arrival["chat_id"] or arrival["lane"]),
            ("user", arrival["user_id"]),
            ("message", arrival["message_id"]),
            ("says", arrival["text"]),
            ("sent", when(arrival["sent_at"])),
            ("received", when(arrival["received_at"])),
            ("replay of", arrival["replay_of"]),
            ("trace", arrival["trace"]),
        ]
    )
    deliveries = _deliveries(arrival)
    rows = [
        (
            one["consumer"],
            state(one["state"]),
            one["tries"],
            when(one["due_at"]),
            when(one["settled_at"]),
            one["failed_reason"],
        )
        for one in deliveries
    ]
    columns = ("consumer", "state", "tries", "due", "settled", "reason")
    parts: list[RenderableType] = [head, "", table(columns, rows, right=("tries",), empty="Nobody reads it.")]
    tries = [(one["consumer"], line) for one in deliveries for line in _lines(one)]
    if tries:
        told = [(when(line.get("at")), name, _words(line)) for name, line in tries]
        parts += ["", table(("tried", "consumer", "what happened"), told, empty="")]
    parts += ["", _answers(arrival)]
    return Group(*parts, "", plain(msgspec.json.encode(arrival["update"]).decode()))


def _answers(arrival: Document) -> "RenderableType":
    """The letters that answer it, with what Telegram calls them, and how long after the update."""
    from peik.cli.output import state, table

    found = arrival["answers"]
    assert isinstance(found, list)
    rows = [
        (
            one["letter_id"],
            state(one["state"]),
            one["method"],
            ", ".join(one["message_ids"]),
            _after(one["accepted_after_ms"]),
            _after(one["finished_after_ms"]),
            one["trace_certainty"],
        )
        for one in found
    ]
    columns = ("answer", "state", "method", "message", "accepted after", "ended after", "it is")
    return table(columns, rows, right=("answer", "message"), empty="No letter answers it.")


def _after(after_ms: object) -> str | None:
    return f"{after_ms / 1000:.3f} s" if isinstance(after_ms, int) else None


def _deliveries(arrival: Document) -> list[Document]:
    found = arrival["deliveries"]
    assert isinstance(found, list)
    return found


def _lines(delivery: Document) -> list[Document]:
    history = delivery["history"]
    return history if isinstance(history, list) else []


def _words(line: Document) -> str:
    return "; ".join(f"{name}: {value}" for name, value in line.items() if name != "at" and value is not None)


# ---- who reads updates, and where they come from ----

consumers = typer.Typer(no_args_is_help=True, help="Who reads the updates of a bot, and how far each is.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The consumer's name.")]


@asks(consumers, "list")
def show_consumers(context: CommandContext, bot: Bot = None) -> None:
    """List the consumers, how far each is and what waits for it."""
    page = context.client.document(_consumers().list_consumers, query=some(bot_id=bot))
    found = page["consumers"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import age, plain, table

        rows = [
            (
                one["bot_id"],
                one["name"],
                one["kind"],
                one["open"],
                one["handed"],
                one["delayed"],
                plain(one["failed"], "red" if one["failed"] else ""),
                age(one["oldest_open_at"]),
                age(one["seen_at"]) or "never",
                one["url"],
            )
            for one in found
        ]
        columns = ("bot", "name", "kind", "open", "in hand", "delayed", "dead", "oldest", "seen", "pushed to")
        return table(columns, rows, counts=("open", "in hand", "delayed", "dead"), empty="Nobody reads updates yet.")

    context.show(page, draw)


@asks(consumers, "set")
def set_consumer(
    context: CommandContext,
    name: Name,
    push_to: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Push its updates there.")] = None,
    no_push: Annotated[bool, typer.Option("--no-push", help="Push nothing: it reads for itself.")] = False,
    secret_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the secret that pushes show, as Telegram's do.")
    ] = None,
    types: Annotated[
        str | None, typer.Option(metavar="TYPES", help="Only updates of these types, comma-separated.")
    ] = None,
    connections: Annotated[int | None, typer.Option(min=1, max=100, help="Pushes at once.")] = None,
    bot: Bot = None,
) -> None:
    """Push a consumer's updates to an address, or let it read for itself again. Made if there is none."""
    if (push_to is None) != no_push:
        raise typer.BadParameter("Say --push-to with an address, or --no-push.")
    wanted: Document = {"url": push_to, "max_connections": connections}
    if types is not None:
        wanted["allowed_updates"] = [kind.strip() for kind in types.split(",") if kind.strip()]
    if secret_file is not None:
        wanted["secret"] = secret(None, secret_file, "")
    bot_id = only_bot(context, bot)
    answer = context.client.document(_consumers().set_consumer, bot_id=bot_id, name=name, body=wanted)
    context.say(answer, f"Updates of {name} are pushed." if push_to else f"{name} reads for itself.")


@asks(consumers)
def remove(context: CommandContext, name: Name, bot: Bot = None, yes: Yes = False) -> None:
    """Forget a consumer and how far it was."""
    bot_id = only_bot(context, bot)
    context.confirm(f"Forget the consumer {name} and how far it was?", is_sure=yes)
    context.client.document(_consumers().remove_consumer, bot_id=bot_id, name=name)
    context.say({"bot_id": bot_id, "name": name, "removed": True}, f"The consumer {name} is forgotten.")


def inbox(context: CommandContext, bot: Bot = None) -> None:
    """Show where each bot's updates come from, how far they are, and what waits to be read."""
    page = context.client.document(_arrivals().get_inbox, query=some(bot_id=bot))
    found = page["bots"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from rich.console import Group

        from peik.cli.output import age, table

        rows = [
            (
                one["bot_id"],
                one["source"],
                age(one["seen_at"]) or "never",
                age(one["received_at"]) or "never",
                one["last_update_id"],
                one["expired"],
                sum(consumer["open"] - consumer["handed"] + consumer["delayed"] for consumer in one["consumers"]),
                sum(consumer["handed"] for consumer in one["consumers"]),
                sum(consumer["failed"] for consumer in one["consumers"]),
            )
            for one in found
        ]
        columns = ("bot", "updates", "asked", "last came", "last id", "expired", "unread", "in hand", "dead")
        bots = table(columns, rows, right=("last id",), counts=columns[5:], empty="No bot yet: peik bots add")
        return Group(bots, *_handed_again(found))

    context.show(page, draw)


def _handed_again(bots: list[Document]) -> list["RenderableType"]:
    """What bots were handed that had died, and why: the last time, with the first of them to look at."""
    from peik.cli.output import plain, when

    lines: list[RenderableType] = []
    for bot in bots:
        consumers = bot["consumers"]
        assert isinstance(consumers, list)
        for consumer in consumers:
            again = consumer["handed_again"]
            if again is not None:
                arrivals = " ".join(again["arrival_ids"])
                lines.append(
                    plain(
                        f"{consumer['bot_id']} {consumer['name']}: {_many(again['count'])} handed again, the last time"
                        f" {when(again['at'])}: {arrivals}. {again['reason']}"
                    )
                )
    return lines


def recover(context: CommandContext, bot: Bot = None) -> None:
    """Fetch everything that Telegram has kept, once, store it, and say what it was."""
    bot_ids = [bot] if bot is not None else _all_bots(context)
    reports = []
    for bot_id in bot_ids:
        with context.waiting(f"Asking Telegram what it has kept for bot {bot_id}…"):
            reports.append(context.client.document(_arrivals().recover, bot_id=bot_id, timeout_s=None))
    context.show({"bots": reports}, lambda: _reports(reports))
    if not reports:
        raise typer.Exit(Exit.NOT_FOUND)


def _all_bots(context: CommandContext) -> list[str]:
    found = known_bots(context)["bots"]
    assert isinstance(found, list)
    return [str(one["bot_id"]) for one in found]


def _reports(reports: list[Document]) -> "RenderableType":
    from rich.console import Group

    from peik.cli.output import plain

    return Group(*(plain(_sentence(report)) for report in reports)) if reports else plain("No bot is known yet.")


def _sentence(report: Document) -> str:
    expired = "not known how many" if report["expired"] is None else report["expired"]
    return (
        f"Bot {report['bot_id']}: found {report['found']}, stored {report['stored']}, "
        f"duplicates {report['duplicates']}, expired {expired}, in {report['took_s']} s."
    )
