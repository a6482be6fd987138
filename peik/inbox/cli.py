"""`peik arrivals list|show|dead|retry|clear|replay|ack|seen`: updates that came in, and what became of them."""

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from peik.cli.arguments import moment, unshielded
from peik.cli.bulk import PAGE, count_pages, counted, is_confirmed, refuse_both
from peik.cli.client import Document
from peik.cli.command import Visit, asks
from peik.cli.filters import Bot, Cursor, Limit, Yes
from peik.core.letter import State

# The filters that lists of arrivals share, as options.


_PANEL = "Which arrivals"

OfBot = Annotated[str | None, typer.Option("--bot", metavar="ID", help="Of this bot.", rich_help_panel=_PANEL)]
OfConsumer = Annotated[
    str | None,
    typer.Option("--consumer", metavar="NAME", help="As this consumer sees them.", rich_help_panel=_PANEL),
]
ForConsumer = Annotated[str, typer.Option("--consumer", metavar="NAME", help="Who gets them.")]
OfType = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Of this type, such as message.", rich_help_panel=_PANEL),
]
OfChat = Annotated[
    str | None, typer.Option("--chat", metavar="CHAT", help="Of this chat, by its number.", rich_help_panel=_PANEL)
]
OfUser = Annotated[str | None, typer.Option("--user", metavar="ID", help="Of this user.", rich_help_panel=_PANEL)]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Received since: 1h (ago), 2026-11-15T08:30.", rich_help_panel=_PANEL),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="TIME", help="Received until: 10m (ago), 2026-11-15T08:30.", rich_help_panel=_PANEL
    ),
]
OfFirst = Annotated[
    int | None, typer.Option("--first", metavar="N", min=0, help="From this number on.", rich_help_panel=_PANEL)
]
OfLast = Annotated[
    int | None, typer.Option("--last", metavar="N", min=0, help="Up to this number.", rich_help_panel=_PANEL)
]
WithText = Annotated[
    str | None,
    typer.Option("--text", metavar="WORDS", help="With these words in the update.", rich_help_panel=_PANEL),
]


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
    given = {
        "state": state,
        "consumer": consumer,
        "bot_id": bot,
        "type": kind,
        "chat_id": None if chat is None else unshielded(chat),
        "user_id": user,
        "since": moment(since, "--since", is_past=True),
        "until": moment(until, "--until", is_past=True),
        "first_number": None if first is None else str(first),
        "last_number": None if last is None else str(last),
        "text": text,
    }
    return {name: value for name, value in given.items() if value is not None}


if TYPE_CHECKING:
    from rich.console import RenderableType

_NOUN = "dead arrival"
_REPLAY_PAGE = 500

app = typer.Typer(no_args_is_help=True, help="Updates that came in: look, hand on again, acknowledge.")

ArrivalId = Annotated[str, typer.Argument(metavar="ID", help="The arrival's id.")]


class ArrivalState(enum.StrEnum):
    """Those that arrivals can be found by. Which ones are active is known to whoever works on them."""

    WAITING = "waiting"
    DELAYED = "delayed"
    COMPLETED = "completed"
    FAILED = "failed"


InState = Annotated[
    ArrivalState | None,
    typer.Option("--state", help="How it stands with the consumer.", rich_help_panel="Which arrivals"),
]


# ---- looking ----


@asks(app, "list")
def show_all(
    visit: Visit,
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
    _show(visit, wanted, cursor=cursor, limit=limit, empty="There are no such arrivals.")


@asks(app)
def dead(
    visit: Visit,
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
    _show(visit, wanted, cursor=cursor, limit=limit, empty="There are no dead arrivals.", is_dead=True)


def _show(
    visit: Visit, wanted: dict[str, str], *, cursor: str | None, limit: int, empty: str, is_dead: bool = False
) -> None:
    page = visit.counter.inbox.arrivals(wanted, cursor=cursor, limit=limit)
    found = page["arrivals"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.inbox.tables import arrivals_table

        return arrivals_table(found, empty=empty, is_dead=is_dead)

    visit.show(page, draw)
    if page["next_cursor"] is not None:
        visit.note(f"There may be more: --cursor {page['next_cursor']}")


@asks(app)
def show(visit: Visit, arrival_id: ArrivalId) -> None:
    """Show an arrival: the update itself, how it stands with each consumer, and every try."""
    arrival = visit.counter.inbox.arrival(arrival_id)

    def draw() -> "RenderableType":
        from peik.inbox.tables import arrival_page

        return arrival_page(arrival)

    visit.show(arrival, draw)


# ---- dead ones ----

_All = Annotated[bool, typer.Option("--all", help="All dead arrivals. Also meant if nothing is said.")]


@asks(app)
def retry(
    visit: Visit,
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
        made = visit.counter.inbox.retry(arrival_id, consumer)
        visit.say(made, f"Arrival {arrival_id} is handed on once more, as arrival {made['id']}.")
        return
    refuse_both(wanted, is_all=is_all)
    if not is_confirmed(visit, "Hand {} on once more?", _NOUN, lambda: _count(visit, wanted), is_sure=yes):
        visit.say({"retried": 0}, "There are no such dead arrivals.")
        return
    with visit.waiting("Handing dead arrivals on once more…"):
        answer = visit.counter.inbox.retry_dead(wanted)
    visit.say(answer, f"{counted(answer['retried'], _NOUN)} handed on once more.")


@asks(app)
def clear(
    visit: Visit,
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
    if not is_confirmed(visit, "Forget {} for good?", _NOUN, lambda: _count(visit, wanted), is_sure=yes):
        visit.say({"cleared": 0}, "There are no such dead arrivals.")
        return
    with visit.waiting("Clearing dead arrivals away…"):
        answer = visit.counter.inbox.clear_dead(wanted)
    visit.say(answer, f"{counted(answer['cleared'], _NOUN)} cleared away.")


def _count(visit: Visit, wanted: dict[str, str]) -> int:
    failed = {**wanted, "state": State.FAILED}
    return count_pages(lambda cursor: visit.counter.inbox.arrivals(failed, cursor=cursor, limit=PAGE), "arrivals")


# ---- again, and done ----


@asks(app)
def replay(
    visit: Visit,
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
        "consumer": consumer,
    }  # fmt: skip
    wanted |= {name: value for name, value in (("first_number", first), ("last_number", last)) if value is not None}
    with visit.waiting("Counting…"):
        counted = visit.counter.inbox.replay({**wanted, "dry_run": True})
    count = counted["would_replay"]
    assert isinstance(count, int)
    if dry_run:
        visit.say(counted, f"{_arrivals(count)} would be handed to {consumer} once more.")
        return
    if count:
        visit.confirm(f"Hand {_arrivals(count)} to {consumer} once more?", is_sure=yes)
    done, cursor = 0, None
    with visit.progress("Replaying", count, is_bytes=False) as advance:
        while count:
            page = visit.counter.inbox.replay({**wanted, "limit": _REPLAY_PAGE, "cursor": cursor})
            replayed, cursor = page["replayed"], page["next_cursor"]
            assert isinstance(replayed, int)
            done += replayed
            advance(replayed)
            if cursor is None:
                break
    visit.say({"replayed": done}, f"{_arrivals(done)} handed to {consumer} once more.")


def _arrivals(count: int) -> str:
    return "1 arrival" if count == 1 else f"{count:,} arrivals"


@asks(app)
def ack(
    visit: Visit,
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
    whose = {} if bot is None else {"bot_id": bot}
    answer = visit.counter.inbox.acknowledge({"consumer": consumer, **named, **whose})
    visit.say(answer, f"{consumer} is done with everything up to number {answer['acknowledged_up_to']}.")


@asks(app)
def seen(
    visit: Visit,
    chat: Annotated[str, typer.Argument(metavar="CHAT", help="The chat's number.")],
    messages: Annotated[list[str], typer.Argument(metavar="MESSAGE", help="Numbers of messages in it.")],
    bot: Bot = None,
) -> None:
    """Note messages that a program has handled itself: they are not handed to the default consumer."""
    noted = [{"chat_id": unshielded(chat), "message_id": message} for message in messages]
    answer = visit.counter.inbox.note_seen({"messages": noted, **({} if bot is None else {"bot_id": bot})})
    visit.say(answer, f"Noted {answer['noted']}; {answer['matched']} of them had arrived already.")
