"""`peik schedules put|list|show|runs|edits|pause|resume|run|delete`: recurring work."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from peik.cli.arguments import moment, pair, unshielded
from peik.cli.client import Document, page_of, some
from peik.cli.command import CommandContext, asks
from peik.cli.filters import Bot, Cursor, Limit, Yes
from peik.errors import Unavailable
from peik.schedules.model import MissedRuns, OverlapPolicy

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.cli.remote import RestClient
    from peik.schedules.api import ScheduleApi

app = typer.Typer(no_args_is_help=True, help="Recurring work: letters, broadcasts and jobs by cron.")

_WHEN = "When"
_WHAT = "What is made"
ScheduleName = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]


def _option(panel: str, words: str, metavar: str | None = None) -> Any:
    return typer.Option(metavar=metavar, help=words, rich_help_panel=panel)


def _api() -> "type[ScheduleApi]":
    from peik.schedules.api import ScheduleApi  # with all that it needs: help is shown without

    return ScheduleApi


def _running(context: CommandContext) -> "RestClient":
    from peik.cli.remote import RestClient

    client = context.client
    if not isinstance(client, RestClient):
        raise Unavailable(code="not_running", detail="Schedules need a running Peik: start `peik serve`, or say --url.")
    return client


@asks(app)
def put(
    context: CommandContext,
    name: ScheduleName,
    cron: Annotated[str, _option(_WHEN, 'Such as "30 9 * * 1-5", or @daily.', "CRON")],
    tz: Annotated[str, _option(_WHEN, "Its time zone.", "ZONE")] = "UTC",
    starts: Annotated[str | None, _option(_WHEN, "Not before.", "TIME")] = None,
    ends: Annotated[str | None, _option(_WHEN, "Not after.", "TIME")] = None,
    times: Annotated[int | None, _option(_WHEN, "So often, and then never again.", "N")] = None,
    missed: Annotated[
        MissedRuns, _option(_WHEN, "What becomes of times at which Peik was not there.")
    ] = MissedRuns.ONCE,
    overlap: Annotated[
        OverlapPolicy, _option(_WHEN, "If the broadcast or job of the time before goes on.")
    ] = OverlapPolicy.SKIP,
    chat: Annotated[list[str] | None, _option(_WHAT, "A letter to this chat; several: a broadcast.", "CHAT")] = None,
    contacts: Annotated[bool, _option(_WHAT, "A broadcast to the known chats of the bot.")] = False,
    job: Annotated[str | None, _option(_WHAT, "A job of this kind.", "KIND")] = None,
    text: Annotated[str | None, _option(_WHAT, "The text; %{date} and others are filled in.", "TEXT")] = None,
    method: Annotated[str, _option(_WHAT, "The Bot API's method.", "METHOD")] = "sendMessage",
    param: Annotated[list[str] | None, _option(_WHAT, "A parameter, as text; again for more.", "NAME=VALUE")] = None,
    body: Annotated[
        str | None, _option(_WHAT, "All of it as REST takes it; cron and tz are put into it.", "JSON")
    ] = None,
    bot: Annotated[str | None, _option(_WHAT, "The bot; not needed if there is one only.", "ID")] = None,
    title: Annotated[str | None, _option(_WHAT, "What people see.", "WORDS")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show when it would be due.")] = False,
) -> None:
    """Make a schedule, or change it to this."""
    given: Document = {
        "cron": cron,
        "tz": tz,
        "starts_at": moment(starts, "--starts"),
        "ends_at": moment(ends, "--ends"),
        "runs_max": times,
        "missed": missed,
        "overlap": overlap,
        "bot_id": bot,
        "title": title,
    }
    whole = _body(body) | {key: value for key, value in given.items() if value is not None}
    if body is None:
        whole |= _work(chat or [], contacts=contacts, job=job, method=method, params=_params(method, text, param))
    if dry_run:
        found = _running(context).document(_api().preview, body=whole)
        context.show(found, lambda: _preview_page(found, whole["tz"]))
        return
    saved = _running(context).document(_api().put, name=name, body=whole)
    context.say(saved, f"Schedule {name} is {saved['state']}; next: {_soon(saved)}.")


def _body(text: str | None) -> Document:
    try:
        return {} if text is None else msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"This is not a JSON object: {error}.", param_hint="--body") from None


def _params(method: str, text: str | None, param: list[str] | None) -> Document:
    params: Document = dict(pair(one, "--param") for one in param or ())
    if text is not None:
        params["text" if method.lower() == "sendmessage" else "caption"] = text
    return params


def _work(chats: list[str], *, contacts: bool, job: str | None, method: str, params: Document) -> Document:
    if (bool(chats), contacts, job is not None).count(True) != 1:
        raise typer.BadParameter("Say what is made: --chat, --contacts, --job, or all of it as --body.")
    if job is not None:
        return {"job": {"kind": job, "params": params}}
    if contacts or len(chats) > 1:
        audience: Document = {} if contacts else {"chat_ids": [unshielded(one) for one in chats]}
        return {"broadcast": {"method": method, "params": params, **audience}}
    return {"letter": {"method": method, "params": {"chat_id": unshielded(chats[0]), **params}}}


# ---- looking ----


@asks(app, "list")
def show_all(context: CommandContext, bot: Bot = None, limit: Limit = 50, cursor: Cursor = None) -> None:
    """List schedules by their names."""
    page = _running(context).document(_api().list_schedules, query=some(bot_id=bot, **page_of(cursor, limit)))
    context.show(page, lambda: _table(page["schedules"]))
    if page["next_cursor"] is not None:
        context.note(f"There may be more: --cursor {page['next_cursor']}")


@asks(app)
def show(context: CommandContext, name: ScheduleName) -> None:
    """Show a schedule: what it makes, and when it is due next."""
    found = _running(context).document(_api().get, name=name)
    context.show(found, lambda: _page(found))


@asks(app)
def runs(context: CommandContext, name: ScheduleName, limit: Limit = 20, cursor: Cursor = None) -> None:
    """Show what became of its due times, the newest first: also those that were missed."""
    page = _running(context).document(_api().runs, name=name, query=page_of(cursor, limit))
    context.show(page, lambda: _runs_table(page["runs"], _running(context).document(_api().get, name=name)["tz"]))
    if page["next_cursor"] is not None:
        context.note(f"There may be more: --cursor {page['next_cursor']}")


@asks(app)
def edits(context: CommandContext, name: ScheduleName) -> None:
    """Show how it was before each change, the newest first."""
    page = _running(context).document(_api().edits, name=name)
    context.show(page, lambda: _edits_table(page["edits"]))


# ---- doing ----


@asks(app)
def pause(context: CommandContext, name: ScheduleName) -> None:
    """Make nothing until it is resumed."""
    found = _running(context).document(_api().pause, name=name)
    context.say(found, f"Schedule {name} is {found['state']}.")


@asks(app)
def resume(context: CommandContext, name: ScheduleName) -> None:
    """Go on with the next due time. What was due meanwhile is left out."""
    found = _running(context).document(_api().resume, name=name)
    context.say(found, f"Schedule {name} is {found['state']}; next: {_soon(found)}.")


@asks(app)
def run(context: CommandContext, name: ScheduleName) -> None:
    """Run it once, now, besides its due times."""
    made = _running(context).document(_api().run, name=name)
    context.say(made, f"Schedule {name}: {made['state']}. {_made(made)}".strip())


@asks(app)
def delete(context: CommandContext, name: ScheduleName, yes: Yes = False) -> None:
    """Delete a schedule, and what is known of its runs. What it has made stays."""
    context.confirm(f"Delete schedule {name}?", is_sure=yes)
    _running(context).document(_api().delete, name=name)
    context.say({"name": name}, f"Schedule {name} is deleted.")


# ---- as people look at them ----

_STYLES = {
    "active": "green", "paused": "yellow", "ended": "dim", "done": "green", "missed": "red", "refused": "red",
    "skipped": "yellow", "firing": "cyan",
}  # fmt: skip


def _soon(one: Document) -> str:
    from peik.cli.output import when

    due: Any = one["next"]
    return when(due[0], one["tz"]) if due else "never"


def _kind(one: Document) -> str:
    return next((name for name in ("letter", "broadcast", "job") if one[name] is not None), "")


def _made(run: Document) -> str:
    found = [(name, run[f"{name}_id"]) for name in ("letter", "broadcast", "job")]
    return next((f"{name} {made}" for name, made in found if made is not None), str(run["reason"] or ""))


def _table(found: Any) -> "RenderableType":
    from peik.cli.output import age, plain, table

    rows = [
        (
            one["name"],
            plain(one["state"], _STYLES.get(one["state"], "")),
            _kind(one),
            one["cron"],
            one["tz"],
            age(one["next"][0]) if one["next"] else "",
            plain(one["last_state"] or "", _STYLES.get(one["last_state"], "")),
            one["title"],
        )
        for one in found
    ]
    columns = ("name", "state", "makes", "cron", "zone", "next", "last", "title")
    return table(columns, rows, shrinking=(), empty="There are no schedules.")


def _page(one: Document) -> "RenderableType":
    from peik.cli.output import facts, plain, when

    state, due, tz = str(one["state"]), one["next"], one["tz"]
    assert isinstance(due, list)
    work = one[_kind(one)]
    return facts(
        [
            ("schedule", one["name"]),
            ("title", one["title"]),
            ("state", plain(state, _STYLES.get(state, ""))),
            ("cron", f"{one['cron']} ({one['tz']})"),
            *(("next" if not number else "", when(at, tz)) for number, at in enumerate(due)),
            (_kind(one), msgspec.json.encode(work).decode()),
            ("bot", one["bot_id"]),
            ("missed", one["missed"]),
            ("overlap", one["overlap"]),
            ("begins", when(one["starts_at"], tz)),
            ("ends", when(one["ends_at"], tz)),
            ("runs", one["runs"] if one["runs_max"] is None else f"{one['runs']} of {one['runs_max']}"),
            ("last", f"{one['last_state']}, {when(one['last_due_at'], tz)}" if one["last_due_at"] else None),
            ("made", f"{when(one['created_at'], tz)} {one['created_by'] or ''}".strip()),
            ("changed", f"{when(one['changed_at'], tz)} {one['changed_by'] or ''}".strip()),
        ]
    )


def _preview_page(found: Document, tz: object) -> "RenderableType":
    from peik.cli.output import facts, when

    due = found["next"]
    assert isinstance(due, list)
    lines = [("next" if not number else "", when(at, tz)) for number, at in enumerate(due)]
    return facts([*lines, ("sends", msgspec.json.encode(found["params"]).decode())])


def _runs_table(found: Any, tz: object) -> "RenderableType":
    from peik.cli.output import plain, table, when

    rows = [
        (
            when(one["due_at"], tz),
            plain(one["state"], _STYLES.get(one["state"], "")),
            one["count"] if one["state"] == "missed" else "",
            one["by"] or ("late" if one["is_late"] else ""),
            _made(one),
        )
        for one in found
    ]
    return table(("due", "state", "count", "why", "made"), rows, counts=("count",), empty="It has not been due yet.")


def _edits_table(found: Any) -> "RenderableType":
    from peik.cli.output import table, when

    rows = [(one["revision"], when(one["until"]), one["by"], one["cron"], one["tz"], _kind(one)) for one in found]
    return table(("revision", "until", "changed by", "cron", "zone", "made"), rows, empty="Nobody has changed it yet.")
