"""`peik broadcast create|list|show|estimate|preview|start|pause|resume|cancel|recall|delete|ledger`: one message to many."""

import contextlib
import enum
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from peik.broadcasts.model import Phase, RecipientState
from peik.cli.arguments import moment, pair, seconds, unshielded
from peik.cli.client import Document, page_of, some
from peik.cli.command import CommandContext, Exit, asks
from peik.cli.filters import Cursor, Limit, Yes
from peik.core.letter import OnUncertain
from peik.errors import Unavailable
from peik.outbox.cli import noted_within, noting_ctrl_c

# The ledger of a broadcast, written to a file or to standard output, page by page.


PAGE = 1000


class Format(enum.StrEnum):
    CSV = "csv"
    JSONL = "jsonl"


def write_ledger(
    ask: Callable[[Mapping[str, str]], Document],
    wanted: Format | None,
    output: Path | None,
    *,
    on_lines: Callable[[int], None],
) -> None:
    """`ask` gives one page. Without a format the name of the file decides."""
    from peik.broadcasts.api import csv_of, ledger_head

    kind = wanted or (Format.CSV if output is not None and output.suffix == ".csv" else Format.JSONL)
    with _opened(output) as file:
        if kind is Format.CSV:
            file.write(ledger_head().decode())
        cursor: str | None = None
        while True:
            page = ask(page_of(cursor, PAGE))
            lines: Any = page["recipients"]
            file.write(csv_of(lines) if kind is Format.CSV else _jsonl(lines))
            on_lines(len(lines))
            if page["next_cursor"] is None:
                return
            cursor = str(page["next_cursor"])


@contextlib.contextmanager
def _opened(output: Path | None) -> Iterator[IO[str]]:
    if output is None:
        yield sys.stdout
        return
    try:
        file = output.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise typer.BadParameter(f"{output} cannot be written: {error.strerror}.", param_hint="--output") from None
    with file:
        yield file


def _jsonl(lines: list[Any]) -> str:
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


# Waiting for a broadcast with its progress in sight. Ctrl-C ends the waiting at once, and never the broadcast.


LOOK_S = 0.5
_HALTED = (Phase.DRAFT, Phase.PAUSED, Phase.STOPPED)


def see_through(context: CommandContext, look: Callable[[], Document], wait_s: float) -> Document:
    """The broadcast once it has ended or halted, or as it stands when the time is over."""
    deadline = time.monotonic() + wait_s
    found = look()
    shown = 0
    with noting_ctrl_c() as is_noted, context.progress("Recipients", _total(found), is_bytes=False) as grow:
        while not _is_over(found) and time.monotonic() < deadline:
            if noted_within(LOOK_S, is_noted):
                context.note(f"Broadcast {found['id']} goes on without being waited for.")
                raise typer.Exit(Exit.INTERRUPTED)
            found = look()
            grow(_done(found) - shown)
            shown = _done(found)
    return found


def _is_over(found: Document) -> bool:
    phase = Phase(str(found["state"]))
    return phase.is_final or phase in _HALTED


def _total(found: Document) -> int:
    total = found["total"]
    return total if isinstance(total, int) else 0


def _done(found: Document) -> int:
    progress = found["progress"]
    return round(progress * _total(found)) if isinstance(progress, int | float) else 0


if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.broadcasts.api import BroadcastApi
    from peik.cli.remote import RestClient

app = typer.Typer(no_args_is_help=True, help="Broadcasts: one message to many chats, in the pace of the bot.")

_WHAT = "What is sent"
_WHOM = "To whom"
_HOW = "How"

BroadcastId = Annotated[str, typer.Argument(metavar="ID", help="The broadcast's id.")]
Wait = Annotated[
    str | None,
    typer.Option("--wait", metavar="TIME", help="Wait so long for its end, such as 1h. Ctrl-C leaves it going on."),
]


def _option(panel: str, words: str, metavar: str | None = None) -> Any:
    return typer.Option(metavar=metavar, help=words, rich_help_panel=panel)


def _api() -> "type[BroadcastApi]":
    from peik.broadcasts.api import BroadcastApi  # with all that it needs: help is shown without

    return BroadcastApi


def _running(context: CommandContext) -> "RestClient":
    """Broadcasts are made and run by a running Peik."""
    from peik.cli.remote import RestClient

    client = context.client
    if not isinstance(client, RestClient):
        raise Unavailable(
            code="not_running", detail="Broadcasts need a running Peik: start `peik serve`, or say --url."
        )
    return client


# ---- making ----


@asks(app)
def create(
    context: CommandContext,
    text: Annotated[str | None, _option(_WHAT, "The text, or the caption of another method.", "TEXT")] = None,
    method: Annotated[str, _option(_WHAT, "The Bot API's method.", "METHOD")] = "sendMessage",
    param: Annotated[list[str] | None, _option(_WHAT, "A parameter, as text; again for more.", "NAME=VALUE")] = None,
    params: Annotated[str | None, _option(_WHAT, "Parameters as a JSON object.", "JSON")] = None,
    bot: Annotated[str | None, _option(_WHAT, "The bot; not needed if there is one only.", "ID")] = None,
    chat: Annotated[list[str] | None, _option(_WHOM, "A chat: a number or @name; again for more.", "CHAT")] = None,
    csv: Annotated[Path | None, _option(_WHOM, "A CSV with chat_id; its columns fill {placeholders}.", "FILE")] = None,
    contacts: Annotated[bool, _option(_WHOM, "Known chats of the bot.")] = False,
    language: Annotated[list[str] | None, _option(_WHOM, "Known chats with this language.", "CODE")] = None,
    chat_type: Annotated[list[str] | None, _option(_WHOM, "Known chats of this type.", "TYPE")] = None,
    campaign: Annotated[str | None, _option(_WHOM, "Known chats that came by it.", "NAME")] = None,
    seen_since: Annotated[str | None, _option(_WHOM, "Known chats that wrote since: 30d (ago).", "TIME")] = None,
    seen_before: Annotated[str | None, _option(_WHOM, "Known chats that have been silent since.", "TIME")] = None,
    name: Annotated[str | None, _option(_HOW, "What it is called.", "WORDS")] = None,
    canary: Annotated[str | None, _option(_HOW, "So many go first: 100, or 5%.", "COUNT")] = None,
    canary_limit: Annotated[float, _option(_HOW, "It stops if more of those fail: 0.2.", "SHARE")] = 0.2,
    quiet: Annotated[str | None, _option(_HOW, "Nothing is sent between: 22:00-08:00.", "HOURS")] = None,
    tz: Annotated[str, _option(_HOW, "The time zone of the quiet hours.", "ZONE")] = "UTC",
    paid_up_to: Annotated[float | None, _option(_HOW, "Paid: it stops before it costs more Stars.", "STARS")] = None,
    on_uncertain: Annotated[OnUncertain | None, _option(_HOW, "What to do after a try that may have arrived.")] = None,
    send_at: Annotated[str | None, _option(_HOW, "Start then: 10m (from now), 2026-11-15T08:30.", "TIME")] = None,
    start: Annotated[bool, _option(_HOW, "Start it at once.")] = False,
    idempotency_key: Annotated[str | None, _option(_HOW, "Made once, however often it is asked for.", "KEY")] = None,
) -> None:
    """Make a broadcast. It waits to be started, unless you say --start or --send-at."""
    wanted = {
        "languages": language,
        "types": chat_type,
        "campaign": campaign,
        "seen_since": moment(seen_since, "--seen-since", is_past=True),
        "seen_before": moment(seen_before, "--seen-before", is_past=True),
    }
    given = {
        "method": method,
        "params": _params(method, text, param, params),
        "audience": _audience(chat, csv, {name: one for name, one in wanted.items() if one is not None}, contacts),
        "bot_id": bot,
        "name": name,
        "canary": _canary(canary, canary_limit),
        "quiet": _quiet(quiet, tz),
        "paid": None if paid_up_to is None else {"stars_max": paid_up_to},
        "on_uncertain": on_uncertain,
        "send_at": moment(send_at, "--send-at"),
        "start": start,
        "idempotency_key": idempotency_key,
    }
    body: Document = {name: value for name, value in given.items() if value is not None}
    made = _running(context).document(_api().create, body=body)
    context.say(made, f"Broadcast {made['id']} is {made['state']}, with {made['total']} recipients written down.")


def _params(method: str, text: str | None, param: list[str] | None, params: str | None) -> Document:
    try:
        whole: Document = {} if params is None else msgspec.json.decode(params, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"This is not a JSON object: {error}.", param_hint="--params") from None
    whole |= dict(pair(one, "--param") for one in param or ())
    if text is not None:
        whole["text" if method.lower() == "sendmessage" else "caption"] = text
    return whole


def _audience(chats: list[str] | None, csv: Path | None, wanted: Document, contacts: bool) -> Document:
    given: Document = {}
    if chats:
        given["chat_ids"] = [unshielded(one) for one in chats]
    if csv is not None:
        try:
            given["csv"] = csv.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"{csv} cannot be read: {error}.", param_hint="--csv") from None
    if contacts or wanted:
        given["contacts"] = wanted
    if len(given) != 1:
        raise typer.BadParameter("Say to whom in one way: --chat, --csv, or --contacts with what they have in common.")
    return given


def _canary(text: str | None, limit: float) -> Document | None:
    if text is None:
        return None
    number = text.removesuffix("%")
    if not number.replace(".", "", 1).isdigit() or ("%" not in text and "." in text):
        raise typer.BadParameter("A canary is a number of recipients, or a share such as 5%.", param_hint="--canary")
    return {"percent": float(number), "limit": limit} if "%" in text else {"count": int(number), "limit": limit}


def _quiet(hours: str | None, tz: str) -> Document | None:
    if hours is None:
        return None
    start, dash, end = hours.partition("-")
    if not dash:
        raise typer.BadParameter("Quiet hours are such as 22:00-08:00.", param_hint="--quiet")
    return {"start": start.strip(), "end": end.strip(), "tz": tz}


# ---- looking ----


@asks(app, "list")
def show_all(
    context: CommandContext,
    bot: Annotated[str | None, typer.Option(metavar="ID", help="Of this bot.")] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List broadcasts, the newest first."""
    query = some(bot_id=bot, **page_of(cursor, limit))
    page = _running(context).document(_api().list_broadcasts, query=query)
    context.show(page, lambda: broadcasts_table(page["broadcasts"]))
    if page["next_cursor"] is not None:
        context.note(f"There may be more: --cursor {page['next_cursor']}")


@asks(app)
def show(context: CommandContext, broadcast_id: BroadcastId, wait: Wait = None) -> None:
    """Show a broadcast: how far it is, who got it and who did not; with --wait, once it has ended."""
    _shown(context, _running(context).document(_api().get, broadcast_id=broadcast_id), wait)


def _shown(context: CommandContext, found: Document, wait: str | None) -> None:
    wait_s = seconds(wait, "--wait")
    if wait_s is not None:
        found = see_through(context, lambda: _running(context).document(_api().get, broadcast_id=found["id"]), wait_s)
    context.show(found, lambda: broadcast_page(found))


@asks(app)
def estimate(context: CommandContext, broadcast_id: BroadcastId) -> None:
    """A dry run: how many would get it, how long it takes and what it may cost. Nothing is sent."""
    found = _running(context).document(_api().estimate, broadcast_id=broadcast_id, timeout_s=None)
    context.show(found, lambda: estimate_page(found))


@asks(app)
def ledger(
    context: CommandContext,
    broadcast_id: BroadcastId,
    state: Annotated[RecipientState | None, typer.Option(help="Only those that stand so.")] = None,
    output_format: Annotated[
        Format | None, typer.Option("--format", help="All of it as a file, on standard output.")
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it there instead.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> None:
    """Show what became of each recipient; with --format, all of them as CSV or JSON Lines."""
    running = _running(context)

    def asked(pages: Mapping[str, str]) -> Document:
        query = {**some(state=state), **pages}
        return running.document(_api().recipients, broadcast_id=broadcast_id, query=query)

    if output_format is not None or output is not None:
        total = running.document(_api().get, broadcast_id=broadcast_id)["total"]
        with context.progress("Recipients", total if isinstance(total, int) else 0, is_bytes=False) as grow:
            write_ledger(asked, output_format, output, on_lines=grow)
        return
    page = asked(page_of(cursor, limit))
    context.show(page, lambda: ledger_table(page["recipients"]))
    if page["next_cursor"] is not None:
        context.note(f"There may be more: --cursor {page['next_cursor']}")


# ---- doing ----


@asks(app)
def preview(
    context: CommandContext,
    broadcast_id: BroadcastId,
    chat: Annotated[str, typer.Argument(metavar="CHAT", help="Yours: a number or @name.")],
    like: Annotated[
        str | None, typer.Option(metavar="CHAT", help="With the values of this recipient, not of the first.")
    ] = None,
) -> None:
    """Send it to one chat, to see what it looks like."""
    body = {"chat_id": unshielded(chat)} | ({} if like is None else {"like": unshielded(like)})
    sent = _running(context).document(_api().preview, broadcast_id=broadcast_id, body=body)
    context.say(sent, f"On its way as letter {sent['letter_id']}.")


@asks(app)
def start(
    context: CommandContext,
    broadcast_id: BroadcastId,
    send_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not now but then: 10m, 2026-11-15T08:30.")
    ] = None,
    recipients: Annotated[
        int | None, typer.Option(metavar="N", help="Only if it goes to so many, or about so many known chats.")
    ] = None,
    wait: Wait = None,
) -> None:
    """Start a broadcast that was made."""
    at = moment(send_at, "--send-at")
    body = {name: value for name, value in (("send_at", at), ("recipients", recipients)) if value is not None}
    _shown(context, _running(context).document(_api().start, broadcast_id=broadcast_id, body=body), wait)


@asks(app)
def pause(context: CommandContext, broadcast_id: BroadcastId) -> None:
    """Halt a broadcast. What waits in the outbox is taken back."""
    found = _running(context).document(_api().pause, broadcast_id=broadcast_id)
    context.say(found, f"Broadcast {broadcast_id} is {found['state']}.")


@asks(app)
def resume(context: CommandContext, broadcast_id: BroadcastId, wait: Wait = None) -> None:
    """Let a broadcast go on that was paused, or that stopped itself."""
    _shown(context, _running(context).document(_api().resume, broadcast_id=broadcast_id), wait)


@asks(app)
def cancel(context: CommandContext, broadcast_id: BroadcastId) -> None:
    """End a broadcast: nobody else gets it."""
    found = _running(context).document(_api().cancel, broadcast_id=broadcast_id)
    context.say(found, f"Broadcast {broadcast_id} is {found['state']}.")


@asks(app)
def recall(context: CommandContext, broadcast_id: BroadcastId, yes: Yes = False, wait: Wait = None) -> None:
    """End a broadcast and delete what it has sent. Telegram deletes only what is younger than 48 hours."""
    context.confirm(f"Delete all that broadcast {broadcast_id} has sent?", is_sure=yes)
    _shown(context, _running(context).document(_api().recall, broadcast_id=broadcast_id), wait)


@asks(app)
def delete(context: CommandContext, broadcast_id: BroadcastId, yes: Yes = False) -> None:
    """Forget a broadcast that was never started, or that is over, with its ledger."""
    context.confirm(f"Forget broadcast {broadcast_id} and its ledger?", is_sure=yes)
    _running(context).document(_api().delete, broadcast_id=broadcast_id)
    context.say({"id": broadcast_id}, f"Broadcast {broadcast_id} is forgotten.")


# ---- as people look at them ----

_STYLES = {
    "completed": "green", "recalled": "green", "running": "cyan", "canary": "cyan", "snapshotting": "cyan",
    "recalling": "cyan", "stopped": "red", "paused": "yellow", "quiet": "yellow", "cancelled": "dim",
}  # fmt: skip
_ENDS = {"delivered": "green", "recalled": "green", "failed": "red", "blocked": "red", "queued": "cyan"}


def broadcasts_table(found: Any) -> "RenderableType":
    from peik.cli.output import age, plain, table

    rows = [
        (
            one["id"],
            plain(one["state"], _STYLES.get(one["state"], "")),
            age(one["created_at"]),
            one["name"] or one["method"],
            one["total"],
            one["counts"]["delivered"],
            f"{one['progress']:.0%}",
            one["reason"],
        )
        for one in found
    ]
    columns = ("id", "state", "age", "name", "total", "delivered", "done", "words")
    return table(
        columns,
        rows,
        right=("id", "done"),
        counts=("total", "delivered"),
        shrinking=("name",),
        empty="There are no broadcasts.",
    )


def broadcast_page(one: Document) -> "RenderableType":
    from peik.cli.output import facts, plain, when

    counts: Any = one["counts"]
    state, eta_s, progress = str(one["state"]), one["eta_s"], one["progress"]
    return facts(
        [
            ("broadcast", one["id"]),
            ("state", plain(state, _STYLES.get(state, ""))),
            ("why", one["reason"]),
            ("name", one["name"]),
            ("method", one["method"]),
            ("bot", one["bot_id"]),
            ("done", f"{progress:.1%}" if isinstance(progress, int | float) else None),
            ("about to take", f"{eta_s:.0f} s" if isinstance(eta_s, int | float) else None),
            ("recipients", one["total"]),
            *((name, number or None) for name, number in counts.items()),
            ("not recalled", one["unrecalled"] or None),
            ("quiet until", when(one["quiet_until"])),
            ("made", when(one["created_at"])),
            ("starts", when(one["start_at"])),
            ("started", when(one["started_at"])),
            ("ended", when(one["ended_at"])),
        ]
    )


def estimate_page(one: Document) -> "RenderableType":
    from peik.cli.output import facts, when

    per_s, is_paid = one["per_s"], one["stars_max"] is not None
    return facts(
        [
            ("recipients", one["recipients"]),
            ("suppressed", f"at least {one['suppressed']}" if one["is_least"] else one["suppressed"]),
            ("messages", one["messages"]),
            ("a second", per_s if per_s is not None else "as many as can be"),
            ("takes", f"{one['duration_s']} s"),
            ("done", when(one["done_at"])),
            ("Stars", f"about {one['stars']}, at most {one['stars_most']}" if is_paid else None),
            ("stops at", f"{one['stars_max']} Stars" if is_paid else None),
        ]
    )


def ledger_table(lines: Any) -> "RenderableType":
    from peik.cli.output import plain, table, when

    rows = [
        (
            one["number"],
            one["chat_id"],
            plain(one["state"], _ENDS.get(one["state"], "")),
            one["letter_id"],
            one["message_id"],
            when(one["ended_at"]),
            one["error"],
        )
        for one in lines
    ]
    columns = ("number", "chat", "state", "letter", "message", "ended", "words")
    return table(
        columns,
        rows,
        right=("number", "chat", "letter", "message"),
        shrinking=(),
        empty="There are no such recipients.",
    )
