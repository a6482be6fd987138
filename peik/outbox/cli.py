"""`peik send`, `status`, `letters`, `resolve`, `stats` and `lanes`."""

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from peik.cli.arguments import moment, pair, seconds, unshielded
from peik.cli.client import Document, Filters, ended, page_of, some
from peik.cli.command import CommandContext, Exit, asks
from peik.cli.filters import (
    PAGE,
    Bot,
    Cursor,
    Limit,
    OfBot,
    OfChat,
    OfMethod,
    OfTrace,
    OfType,
    OfUser,
    Since,
    WithError,
    WithText,
    Yes,
    count_pages,
    counted,
    filters,
    is_confirmed,
    refuse_both,
)
from peik.cli.help import SENDING
from peik.core.letter import OnUncertain, State

# `peik cancel` and `change`: letters that wait are taken back, or get another priority or time.


def cancel(
    context: CommandContext,
    letter_id: Annotated[str | None, typer.Argument(metavar="ID", help="One letter.")] = None,
    state: Annotated[
        State | None, typer.Option(help="In this state: waiting or delayed.", rich_help_panel="Which letters")
    ] = None,
    bot: OfBot = None,
    chat: OfChat = None,
    user: OfUser = None,
    kind: OfType = None,
    method: OfMethod = None,
    since: Since = None,
    text: WithText = None,
    yes: Yes = False,
) -> None:
    """Take back a letter that has not been sent yet, or all of a filter. Asks first if it is not one."""
    wanted = filters(
        state=state, bot=bot, chat=chat, user=user, kind=kind, method=method, since=since, text=text, error=None
    )
    if (letter_id is None) is (not wanted):
        raise typer.BadParameter("Name one letter, or say which ones by filters; not both.")
    if letter_id is not None:
        context.say(context.client.document(_api().cancel, letter_id=letter_id), f"Letter {letter_id} is cancelled.")
        return

    def cancelled(*, is_dry: bool) -> Document:
        return context.client.document(_api().cancel_all, body={**wanted, "dry_run": is_dry}, timeout_s=None)

    def count() -> int:
        return int(str(cancelled(is_dry=True)["count"]))

    if not is_confirmed(context, "Take {} back?", "letter", count, is_sure=yes):
        context.say({"cancelled": 0}, "There are no such letters to take back.")
        return
    with context.waiting("Taking letters back…"):
        answer = cancelled(is_dry=False)
    context.say(answer, f"{counted(answer['cancelled'], 'letter')} cancelled.")


def change(
    context: CommandContext,
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="The letter's id.")],
    priority: Annotated[int | None, typer.Option(min=-1, max=2, help="2 critical, 1 high, 0 normal, -1 bulk.")] = None,
    send_at: Annotated[str | None, typer.Option(metavar="TIME", help="now, 10m (from now), 2026-11-15T08:30.")] = None,
) -> None:
    """Give a letter that waits another priority or time; now also ends the wait after a failed try."""
    at = send_at if send_at == "now" else moment(send_at, "--send-at")
    given: Document = {"priority": priority, "send_at": at}
    body = {name: value for name, value in given.items() if value is not None}
    changed = context.client.document(_api().change, letter_id=letter_id, body=body)
    context.say(changed, f"Letter {letter_id} is {changed['state']}, with priority {changed['priority']}.")


if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.outbox.api import LetterApi


def _api() -> "type[LetterApi]":
    from peik.outbox.api import LetterApi  # with all that it needs: help is shown without

    return LetterApi


def listed(context: CommandContext, wanted: Filters, *, cursor: str | None, limit: int) -> Document:
    return context.client.document(_api().list_letters, query={**wanted, **page_of(cursor, limit)})


_TERMS = "Terms of delivery"
_METHODS = {
    "photo": "sendPhoto",
    "document": "sendDocument",
    "video": "sendVideo",
    "audio": "sendAudio",
    "voice": "sendVoice",
    "animation": "sendAnimation",
    "sticker": "sendSticker",
    "video_note": "sendVideoNote",
}
_COUNTS = ("waiting", "delayed", "active", "completed", "failed", "cancelled")
_WATCH_S = 1.0
_NAP_S = 0.05  # how long Ctrl-C is noted and not honoured

LetterId = Annotated[str, typer.Argument(metavar="ID", help="The letter's id.")]


def register(app: typer.Typer) -> None:
    asks(app, rich_help_panel=SENDING)(send)
    asks(app, rich_help_panel=SENDING)(status)
    asks(app, rich_help_panel=SENDING)(letters)
    asks(app, rich_help_panel=SENDING)(log)
    asks(app, rich_help_panel=SENDING)(cancel)
    asks(app, rich_help_panel=SENDING)(change)
    asks(app, rich_help_panel=SENDING)(resolve)
    asks(app, rich_help_panel=SENDING)(stats)
    asks(app, rich_help_panel=SENDING)(lanes)


# ---- send ----


def send(
    context: CommandContext,
    chat: Annotated[str, typer.Argument(metavar="CHAT", help="A number or @name.")],
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="What to say, or the caption; - reads standard input.")
    ] = None,
    method: Annotated[str | None, typer.Option(metavar="METHOD", help="Another method than sendMessage.")] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A parameter of the method; again for more.")
    ] = None,
    params: Annotated[str | None, typer.Option(metavar="JSON", help="Parameters as a JSON object.")] = None,
    file: Annotated[
        list[str] | None, typer.Option(metavar="FIELD=PATH", help="A file to upload, such as photo=cat.jpg.")
    ] = None,
    bot: Bot = None,
    wait: Annotated[
        str | None, typer.Option(metavar="TIME", help="Wait so long for Telegram's answer, such as 30s.")
    ] = None,
    priority: Annotated[
        int, typer.Option(min=-1, max=2, help="2 critical, 1 high, 0 normal, -1 bulk.", rich_help_panel=_TERMS)
    ] = 0,
    send_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Not before: 10m (from now), 2026-11-15T08:30.", rich_help_panel=_TERMS),
    ] = None,
    expires_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Fail if not sent by then.", rich_help_panel=_TERMS)
    ] = None,
    on_uncertain: Annotated[
        OnUncertain | None, typer.Option(help="After a try that may have arrived.", rich_help_panel=_TERMS)
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Sent once, however often it is asked for.", rich_help_panel=_TERMS),
    ] = None,
) -> None:
    """Hand in a letter. Once its id is printed it is durable: it will be delivered, or its failure will be seen."""
    attached = [(field, Path(path)) for field, path in (pair(one, "--file") for one in file or ())]
    method = method or _method_of(attached)
    wait_s = seconds(wait, "--wait")
    terms = {
        "bot_id": bot,
        "priority": priority,
        "send_at": moment(send_at, "--send-at"),
        "expires_at": moment(expires_at, "--expires-at"),
        "on_uncertain": on_uncertain,
        "idempotency_key": idempotency_key,
    }
    letter: Document = {"method": method, "params": _params(method, chat, text, params, param or ())}
    letter |= {name: value for name, value in terms.items() if value is not None}
    size = sum(path.stat().st_size for _, path in attached if path.is_file())
    with context.progress("Uploading", size) as on_bytes:
        accepted = context.client.accept(letter, attached, on_bytes)
    if wait_s is None:
        context.say(accepted, f"Accepted as letter {accepted['id']}, {accepted['state']}.")
        if not context.client.is_running:
            context.note("No Peik is running: it goes out when `peik serve` is started.")
        return
    _wait(context, str(accepted["id"]), wait_s)


def _wait(context: CommandContext, letter_id: str, wait_s: float) -> None:
    words = f"Letter {letter_id} is accepted; waiting for Telegram's answer…"
    if not context.client.is_running:
        words = f"Letter {letter_id} is accepted; waiting for somebody to start `peik serve`…"
    with context.waiting(words):
        found = ended(
            context.client,
            _api().get_letter,
            is_over=lambda letter: letter["finished_at"] is not None,
            timeout_s=wait_s,
            letter_id=letter_id,
        )
    state = State(str(found["state"]))
    context.say(found, _told(found, state, letter_id))
    if state is not State.COMPLETED:
        raise typer.Exit(Exit.LETTER_FAILED if state.is_final else Exit.NOT_IN_TIME)


def _told(letter: Document, state: State, letter_id: str) -> str:
    if state is State.COMPLETED:
        result = letter["result"]
        number = result.get("message_id") if isinstance(result, dict) else None
        return f"Letter {letter_id} is delivered" + (f" as message {number}." if number else ".")
    if state.is_final:
        return f"Letter {letter_id} is {state}: {letter['failed_reason'] or 'taken back'}."
    return f"Letter {letter_id} is still {state}. {letter.get('why') or ''}".rstrip()


def _method_of(attached: list[tuple[str, Path]]) -> str:
    return next((_METHODS[field] for field, _ in attached if field in _METHODS), "sendMessage")


def _params(method: str, chat: str, text: str | None, whole: str | None, single: "list[str] | tuple[()]") -> Document:
    chat = unshielded(chat)
    made: Document = {"chat_id": int(chat) if chat.removeprefix("-").isdigit() else chat}
    if text is not None:
        words = _piped() if text == "-" else unshielded(text)
        made["text" if method.lower() == "sendmessage" else "caption"] = words
    if whole is not None:
        try:
            made |= msgspec.json.decode(whole, type=dict[str, object])
        except msgspec.DecodeError as error:
            raise typer.BadParameter(f"This is not a JSON object: {error}.", param_hint="--params") from None
    return made | dict(pair(one, "--param") for one in single)


def _piped() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise typer.BadParameter("What comes from standard input is not text in UTF-8.") from None


# ---- looking ----


def status(context: CommandContext, letter_id: LetterId) -> None:
    """Show a letter: how it stands, why it waits, and every try so far."""
    letter = context.client.document(_api().get_letter, letter_id=letter_id)
    context.show(letter, lambda: _page(letter))


def _page(letter: Document) -> "RenderableType":
    from peik.outbox.tables import letter_page

    return letter_page(letter)


def letters(
    context: CommandContext,
    state: Annotated[State | None, typer.Option(help="In this state.", rich_help_panel="Which letters")] = None,
    bot: OfBot = None,
    chat: OfChat = None,
    user: OfUser = None,
    kind: OfType = None,
    method: OfMethod = None,
    since: Since = None,
    text: WithText = None,
    error: WithError = None,
    trace: OfTrace = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List letters, the newest first."""
    wanted = filters(
        state=state, bot=bot, chat=chat, user=user, kind=kind, method=method, since=since, text=text, error=error,
        trace=trace,
    )  # fmt: skip
    show_letters(context, wanted, cursor=cursor, limit=limit, empty="There are no such letters.")


def log(
    context: CommandContext,
    state: Annotated[State | None, typer.Option(help="In this state.", rich_help_panel="Which letters")] = None,
    bot: OfBot = None,
    chat: OfChat = None,
    user: OfUser = None,
    kind: OfType = None,
    method: OfMethod = None,
    since: Since = None,
    text: WithText = None,
    error: WithError = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """Show the message log: what was sent, to whom, and what became of it, also of letters that are gone."""
    wanted = filters(
        state=state, bot=bot, chat=chat, user=user, kind=kind, method=method, since=since, text=text, error=error
    )
    page = context.client.document(_api().list_log, query={**wanted, **page_of(cursor, limit)})
    found = page["messages"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.outbox.tables import log_table

        return log_table(found)

    context.show(page, draw)
    if page["next_cursor"] is not None:
        context.note(f"There may be more: --cursor {page['next_cursor']}")


def show_letters(
    context: CommandContext,
    wanted: dict[str, str],
    *,
    cursor: str | None,
    limit: int,
    empty: str,
    is_dead: bool = False,
) -> None:
    page = listed(context, wanted, cursor=cursor, limit=limit)
    found = page["letters"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.outbox.tables import letters_table

        return letters_table(found, empty=empty, is_dead=is_dead)

    context.show(page, draw)
    if page["next_cursor"] is not None:
        context.note(f"There may be more: --cursor {page['next_cursor']}")


def resolve(
    context: CommandContext,
    letter_id: LetterId,
    arrived: Annotated[
        bool | None,
        typer.Option("--arrived/--not-arrived", help="Whether it is in the chat; if not, it is sent again."),
    ] = None,
) -> None:
    """Say what became of an uncertain letter, after a look into the chat."""
    if arrived is None:
        raise typer.BadParameter("Say --arrived or --not-arrived.")
    words = "is completed." if arrived else "is sent again."
    context.say(
        context.client.document(_api().resolve, letter_id=letter_id, body={"arrived": arrived}),
        f"Letter {letter_id} {words}",
    )


# ---- counting ----


def stats(
    context: CommandContext,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on showing them, once a second, until Ctrl-C.")
    ] = False,
) -> None:
    """Count the letters in each state, over all and per bot."""
    if not watch:
        counted = context.client.document(_api().get_stats)
        context.show(counted, lambda: _counts(counted))
        return
    if context.is_json:
        raise typer.BadParameter("--watch is for people; ask again and again for JSON.")
    _watch(context)


def _watch(context: CommandContext) -> None:
    with noting_ctrl_c() as is_noted:
        if sys.stdout.isatty():
            _draw_until(is_noted, context)
        else:
            _write_until(is_noted, context)
    raise KeyboardInterrupt


def _draw_until(is_noted: Callable[[], bool], context: CommandContext) -> None:
    from rich.live import Live

    from peik.cli.output import console

    with Live(_counts(context.client.document(_api().get_stats)), console=console(), auto_refresh=False) as live:
        while not noted_within(_WATCH_S, is_noted):
            live.update(_counts(context.client.document(_api().get_stats)), refresh=True)


def _write_until(is_noted: Callable[[], bool], context: CommandContext) -> None:
    while True:
        counted = context.client.document(_api().get_stats)
        sys.stdout.write(" ".join(f"{name}: {counted[name]}" for name in _COUNTS) + "\n")
        sys.stdout.flush()
        if noted_within(_WATCH_S, is_noted):
            return


@contextlib.contextmanager
def noting_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Ctrl-C is noted and then heeded: an exception that comes while some object is being freed is only printed, and lost.
    The note takes no lock: what it interrupts may be holding it. A second Ctrl-C does not wait to be heeded."""
    is_noted = False

    def note(number: int, frame: object) -> None:
        nonlocal is_noted
        if is_noted:
            raise KeyboardInterrupt
        is_noted = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: is_noted
    finally:
        signal.signal(signal.SIGINT, before)


def noted_within(time_s: float, is_noted: Callable[[], bool]) -> bool:
    """Waits in naps: a signal that raises nothing does not end a sleep."""
    deadline = time.monotonic() + time_s
    while not is_noted() and time.monotonic() < deadline:
        time.sleep(_NAP_S)
    return is_noted()


def _counts(counted: Document) -> "RenderableType":
    from rich.text import Text

    from peik.cli.output import amount, state, table

    def row(name: str, counts: Document, style: str = "") -> list[object]:
        cells = []
        for column in _COUNTS:
            number = counts[column]
            assert isinstance(number, int)
            cells.append(Text(amount(number), style=state(column).style if number else "dim"))
        return [Text(name, style=style), *cells]

    bots = counted["bots"]
    assert isinstance(bots, dict)
    rows = [row(bot_id, counts) for bot_id, counts in bots.items()]
    if len(rows) != 1:
        rows.append(row("all", counted, "bold"))
    return table(("bot", *_COUNTS), rows, counts=_COUNTS, empty="")


def lanes(context: CommandContext, bot: Bot = None, chat: OfChat = None, limit: Limit = 50) -> None:
    """List lanes that have letters, and why the first of each is waiting."""
    query = some(bot_id=bot, chat_id=None if chat is None else unshielded(chat), limit=str(limit))
    page = context.client.document(_api().list_lanes, query=query)
    found = page["lanes"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import table

        rows = [(one["chat_id"], one["thread_id"], one["waiting"], one["head"], one["why"]) for one in found]
        columns = ("chat", "topic", "waiting", "first", "why it waits")
        return table(columns, rows, right=("first",), counts=("waiting",), empty="Nothing is waiting.")

    context.show(page, draw)


# `peik dead list|causes|show|retry|clear`: letters that failed.


if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.outbox.api import LetterApi


_NOUN = "dead letter"

DeadSince = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Dead since: 1h (ago), 2026-11-15T08:30.")
]

app = typer.Typer(no_args_is_help=True, help="Letters that failed: look, send again, clear away.")


@asks(app, "list")
def show_all(
    context: CommandContext,
    bot: OfBot = None,
    chat: OfChat = None,
    user: OfUser = None,
    kind: OfType = None,
    method: OfMethod = None,
    since: Since = None,
    text: WithText = None,
    error: WithError = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List dead letters, the newest first."""
    wanted = filters(
        state=State.FAILED, bot=bot, chat=chat, user=user, kind=kind, method=method, since=since, text=text, error=error
    )
    show_letters(context, wanted, cursor=cursor, limit=limit, empty="There are no dead letters.", is_dead=True)


asks(app, "show")(status)


@asks(app)
def causes(context: CommandContext, bot: OfBot = None, since: DeadSince = None, limit: Limit = 20) -> None:
    """Show what the newest dead letters died of, the most frequent cause first."""
    query = some(bot_id=bot, since=moment(since, "--since", is_past=True), limit=str(limit))
    page = context.client.document(_api().list_causes, query=query)
    found = page["causes"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import table

        rows = [(one["count"], one["reason"], ", ".join(one["methods"][:3]), one["newest_id"]) for one in found]
        columns = ("letters", "died of", "methods", "newest")
        return table(columns, rows, right=("newest",), counts=("letters",), empty="There are no dead letters.")

    context.show(page, draw)


_All = Annotated[bool, typer.Option("--all", help="All dead letters. Also meant if nothing is said.")]


@asks(app)
def retry(
    context: CommandContext,
    letter_id: Annotated[str | None, typer.Argument(metavar="ID", help="One dead letter.")] = None,
    is_all: _All = False,
    bot: OfBot = None,
    chat: OfChat = None,
    user: OfUser = None,
    kind: OfType = None,
    method: OfMethod = None,
    since: Since = None,
    text: WithText = None,
    error: WithError = None,
    yes: Yes = False,
) -> None:
    """Send dead letters again: one, or those of a filter, or all. Asks first if it is not one."""
    wanted = filters(bot=bot, chat=chat, user=user, kind=kind, method=method, since=since, text=text, error=error)
    if letter_id is not None:
        if wanted or is_all:
            raise typer.BadParameter("Name one letter, or say which ones by filters; not both.")
        answer = context.client.document(_api().retry, letter_id=letter_id)
        context.say(answer, f"Letter {letter_id} is sent again, at the end of its lane.")
        return
    refuse_both(wanted, is_all=is_all)
    if not is_confirmed(context, "Send {} again?", _NOUN, lambda: _count(context, wanted), is_sure=yes):
        context.say({"retried": 0}, "There are no such dead letters.")
        return
    with context.waiting("Sending dead letters again…"):
        answer = context.client.document(_api().retry_dead, body=wanted, timeout_s=None)
    context.say(answer, f"{counted(answer['retried'], _NOUN)} sent again.")


@asks(app)
def clear(
    context: CommandContext,
    is_all: _All = False,
    bot: OfBot = None,
    chat: OfChat = None,
    user: OfUser = None,
    kind: OfType = None,
    method: OfMethod = None,
    since: Since = None,
    text: WithText = None,
    error: WithError = None,
    yes: Yes = False,
) -> None:
    """Clear dead letters away: those of a filter, or all. Asks first. A line of each stays in the message log."""
    wanted = filters(bot=bot, chat=chat, user=user, kind=kind, method=method, since=since, text=text, error=error)
    refuse_both(wanted, is_all=is_all)
    if not is_confirmed(context, "Clear {} away for good?", _NOUN, lambda: _count(context, wanted), is_sure=yes):
        context.say({"cleared": 0}, "There are no such dead letters.")
        return
    with context.waiting("Clearing dead letters away…"):
        answer = context.client.document(_api().clear_dead, query=wanted, timeout_s=None)
    context.say(answer, f"{counted(answer['cleared'], _NOUN)} cleared away.")


def _count(context: CommandContext, wanted: dict[str, str]) -> int:
    """How many dead letters a filter finds, counted up to a bound: nobody should wait for the exact number."""
    if not set(wanted) - {"bot_id"}:
        stats = context.client.document(_api().get_stats)
        bots = stats["bots"]
        assert isinstance(bots, dict)
        return int(bots.get(wanted["bot_id"], {"failed": 0})["failed"] if wanted else str(stats["failed"]))
    failed = {**wanted, "state": State.FAILED}
    return count_pages(lambda cursor: listed(context, failed, cursor=cursor, limit=PAGE), "letters")
