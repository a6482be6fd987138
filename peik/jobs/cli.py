"""`peik jobs list|show|queue|cancel|retry|kinds|pause|resume|rate|stats|used|hosts`: long work, and how it goes."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from peik.cli.arguments import moment, pair, seconds, unshielded
from peik.cli.client import ANSWER_S, Document, page_of, some
from peik.cli.command import CommandContext, Exit, asks
from peik.cli.filters import Cursor, Limit
from peik.core.letter import State
from peik.outbox.cli import noted_within, noting_ctrl_c

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.jobs.api import JobApi


def _api() -> "type[JobApi]":
    from peik.jobs.api import JobApi  # with all that it needs: help is shown without

    return JobApi


# Waiting for a job with its progress in sight. Ctrl-C ends the waiting at once, and never the job.


LOOK_S = 0.5  # how often it is looked at, if it does not end before
_NAP_S = 0.05  # at least, between two looks


def wait_for_end(context: CommandContext, job_id: str, wait_s: float) -> Document:
    """The job once it has ended, or as it stands when the time is over."""
    try:
        ended = _looked_at(context, job_id, wait_s)
    except KeyboardInterrupt:  # the second one, in the middle of a look
        ended = None
    if ended is None:
        context.note(f"Job {job_id} goes on without being waited for.")
        raise typer.Exit(Exit.INTERRUPTED)
    return ended


def _looked_at(context: CommandContext, job_id: str, wait_s: float) -> Document | None:
    deadline = time.monotonic() + wait_s
    with noting_ctrl_c() as is_noted, _bar(context) as draw:
        while True:
            left_s = deadline - time.monotonic()
            look_s = max(min(LOOK_S, left_s), 0.0)
            query = {"wait": f"{look_s:.3f}s"} if look_s else {}
            job = context.client.document(_api().get_job, job_id=job_id, query=query, timeout_s=look_s + ANSWER_S)
            if job["ended_at"] is not None or left_s <= 0:
                return job
            draw(job)
            if noted_within(_NAP_S, is_noted):
                return None


@contextlib.contextmanager
def _bar(context: CommandContext) -> Iterator[Callable[[Document], None]]:
    """A bar that shows how far a job is, in a terminal only. It is drawn at each look and by no thread of its own."""
    if context.is_json or not sys.stderr.isatty():
        yield lambda job: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from peik.cli.output import console, plain

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[doing]}", markup=False),
    )
    with Progress(*columns, console=console(stderr=True), auto_refresh=False, transient=True) as bars:
        task = bars.add_task("", total=None, doing="")

        def draw(job: Document) -> None:
            done = job["progress"] if job["state"] == State.ACTIVE else None
            words, doing = f"Job {job['id']} {standing(job)}", plain(job["progress_text"] or "").plain
            if isinstance(done, int | float):
                bars.update(task, total=1.0, completed=done, description=words, doing=doing, refresh=True)
            else:
                bars.update(task, total=None, completed=0, description=words, doing=doing, refresh=True)

        yield draw


def standing(job: Document) -> str:
    """How a job stands, to go on with after its name."""
    match job["state"]:
        case State.ACTIVE:
            return "was told to end" if job["is_cancelling"] else "runs"
        case State.WAITING if isinstance(job.get("position"), int):
            eta_s = job.get("eta_s")
            about = f", about {eta_s:.0f} s" if isinstance(eta_s, int | float) else ""
            return f"waits, number {job['position']} in line{about}"
        case State.WAITING:
            return "waits"
        case State.DELAYED:
            return "is put off"
        case other:
            return f"is {other}"


app = typer.Typer(no_args_is_help=True, help="Long jobs: queue, watch, cancel, run again.")

_WHICH = "Which jobs"
_TERMS = "Terms"
_TELLING = "Who hears of it"
_COUNTS = ("waiting", "delayed", "active", "completed", "failed", "cancelled")
_PRIORITIES = {2: "critical", 1: "high", 0: "normal", -1: "bulk"}
_HOST_STYLES = {"open": "red", "probing": "yellow", "closed": "green"}

JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
Kind = Annotated[str, typer.Argument(metavar="KIND", help="What is to be done, such as download.")]
Wait = Annotated[
    str | None,
    typer.Option("--wait", metavar="TIME", help="Wait so long for its end, such as 10m. Ctrl-C leaves it going on."),
]


def _told(words: str, metavar: str = "ID") -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(metavar=metavar, help=words, rich_help_panel=_TELLING)
    return option


# ---- looking ----


@asks(app, "list")
def show_all(
    context: CommandContext,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="Of this kind.", rich_help_panel=_WHICH)] = None,
    user: Annotated[str | None, typer.Option(metavar="USER", help="Of this user.", rich_help_panel=_WHICH)] = None,
    state: Annotated[State | None, typer.Option(help="In this state.", rich_help_panel=_WHICH)] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Queued since: 1h (ago), 2026-11-15T08:30.", rich_help_panel=_WHICH),
    ] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List jobs, the newest first."""
    wanted = some(
        kind=kind,
        user=None if user is None else unshielded(user),
        state=state,
        since=moment(since, "--since", is_past=True),
    )
    page = context.client.document(_api().list_jobs, query={**wanted, **page_of(cursor, limit)})
    found = page["jobs"]
    assert isinstance(found, list)
    context.show(page, lambda: _jobs_table(found))
    if page["next"] is not None:
        context.note(f"There may be more: --cursor {page['next']}")


def _jobs_table(jobs: list[Document]) -> "RenderableType":
    from peik.cli.output import age, state, table

    rows = [
        (
            job["id"],
            state(job["state"]),
            age(job["created_at"]),
            job["kind"],
            job["user"],
            job["attempts_made"],
            _percent(job["progress"]),
            job["failed_reason"] or job["progress_text"],
        )
        for job in jobs
    ]
    columns = ("id", "state", "age", "kind", "user", "tries", "done", "words")
    return table(
        columns, rows, right=("id", "tries", "done"), shrinking=("user", "kind"), empty="There are no such jobs."
    )


def _percent(progress: object) -> str | None:
    return f"{int(progress * 100 + 1e-9)} %" if isinstance(progress, int | float) else None


@asks(app)
def show(context: CommandContext, job_id: JobId, wait: Wait = None) -> None:
    """Show a job: how far it is, its place in the line, and every run so far."""
    wait_s = seconds(wait, "--wait")
    if wait_s is not None:
        _see_through(context, job_id, wait_s)
        return
    job = context.client.document(_api().get_job, job_id=job_id)
    context.show(job, lambda: _job_page(job))


def _see_through(context: CommandContext, job_id: str, wait_s: float) -> None:
    job = wait_for_end(context, job_id, wait_s)
    context.show(job, lambda: _job_page(job))
    state = State(str(job["state"]))
    if state is not State.COMPLETED:
        raise typer.Exit(Exit.LETTER_FAILED if state.is_final else Exit.NOT_IN_TIME)


def _job_page(job: Document) -> "RenderableType":
    from rich.console import Group

    from peik.cli.output import facts, plain, state, table, when

    priority = job["priority"]
    timeout_ms = job["timeout_ms"]
    head = facts(
        [
            ("job", job["id"]),
            ("state", state(job["state"])),
            ("it", standing(job) if job["ended_at"] is None else None),
            ("done", _percent(job["progress"])),
            ("doing", job["progress_text"]),
            ("reason", None if job["failed_reason"] is None else plain(job["failed_reason"], "red")),
            ("result", _json(job["result"])),
            ("kind", job["kind"]),
            ("user", job["user"]),
            ("params", _json(job["params"] or None)),
            ("metadata", _json(job["metadata"])),
            ("told of in", _chat(job["notice"])),
            ("priority", _PRIORITIES.get(priority, priority) if isinstance(priority, int) else priority),
            ("attempts", f"{job['attempts_made']} of {job['attempts']}"),
            ("time limit", f"{timeout_ms / 1000:g} s" if isinstance(timeout_ms, int) else None),
            ("key", job["idempotency_key"]),
            ("node", job["node"]),
            ("bytes used", job["bytes_used"] or None),
            ("queued", when(job["created_at"])),
            ("due", when(job["due_at"])),
            ("began", when(job["started_at"])),
            ("ended", when(job["ended_at"])),
        ]
    )
    history = job["history"]
    lines = history if isinstance(history, list) else []
    if not lines:
        return head
    rows = [(when(line["at"]), line["run"], line["end"], line["node"], line["reason"]) for line in lines]
    return Group(head, "", table(("ended", "run", "how", "node", "reason"), rows, right=("run",), empty=""))


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _chat(notice: object) -> str | None:
    if not isinstance(notice, dict):
        return None
    by = f" by bot {notice['bot_id']}" if notice.get("bot_id") else ""
    return f"{notice['chat_id']}{by}"


@asks(app)
def stats(context: CommandContext) -> None:
    """Count the jobs of each kind in each state."""
    counted = context.client.document(_api().get_stats)
    kinds = counted["kinds"]
    assert isinstance(kinds, dict)

    def draw() -> "RenderableType":
        from rich.text import Text

        from peik.cli.output import amount, state, table

        def cells(counts: dict[str, int]) -> list[object]:
            return [Text(amount(counts[name]), style=state(name).style if counts[name] else "dim") for name in _COUNTS]

        rows = [[kind, *cells(counts)] for kind, counts in kinds.items()]
        return table(("kind", *_COUNTS), rows, counts=_COUNTS, empty="There are no jobs, and nobody here does any.")

    context.show(counted, draw)


@asks(app)
def kinds(context: CommandContext) -> None:
    """List the kinds of jobs: what waits and runs, which of them rest and since when, and how fast they may go."""
    page = context.client.document(_api().list_kinds)
    found = page["kinds"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import age, plain, table

        counts = [msgspec.convert(one["counts"], dict[str, int]) for one in found]
        rows = [
            (
                one["kind"],
                plain("rests", "yellow") if one["is_paused"] else plain("goes", "green"),
                age(one["since"]),
                one["rate"],
                one["concurrency"],
                stand["waiting"] + stand["delayed"],
                stand["active"],
                one["why"],
            )
            for one, stand in zip(found, counts, strict=True)
        ]
        columns = ("kind", "it", "since", "rate", "at once", "waits", "runs", "why")
        empty = "There are no jobs, and nobody here does any."
        return table(columns, rows, right=("at once", "waits", "runs"), empty=empty)

    context.show(page, draw)


@asks(app)
def pause(
    context: CommandContext,
    kind: Kind,
    why: Annotated[str | None, typer.Option(metavar="WORDS", help="Why, for whoever wonders.")] = None,
) -> None:
    """Let a kind of jobs rest on all nodes: nothing of it begins until it is resumed. What runs goes on to its end."""
    body = {"paused": True} if why is None else {"paused": True, "why": why}
    found = context.client.document(_api().change_kind, kind=kind, body=body)
    context.say(found, f"Jobs of {kind} rest: what runs goes on to its end, and nothing begins.")


@asks(app)
def resume(context: CommandContext, kind: Kind) -> None:
    """Go on with a kind of jobs that rests."""
    found = context.client.document(_api().change_kind, kind=kind, body={"paused": False})
    context.say(found, f"Jobs of {kind} go on.")


@asks(app)
def rate(
    context: CommandContext,
    kind: Kind,
    given: Annotated[str, typer.Argument(metavar="RATE", help="30/m, 2/s burst 10, or off.")],
) -> None:
    """Bound how many jobs of a kind begin, over all nodes."""
    found = context.client.document(_api().change_kind, kind=kind, body={"rate": given})
    context.say(
        found, f"Jobs of {kind} begin at {found['rate']}." if found["rate"] else f"Jobs of {kind} have no rate."
    )


@asks(app)
def used(
    context: CommandContext,
    kind: Kind,
    user: Annotated[str, typer.Argument(metavar="USER", help="Left out: nobody in particular.")] = "",
) -> None:
    """Show what a user has had of a kind of jobs today, and what the day allows."""
    found = context.client.document(_api().get_used, query={"kind": kind, "user": unshielded(user)})

    def draw() -> "RenderableType":
        from peik.cli.output import amount, facts

        def of(name: str) -> str:
            had, most = found[name], found[f"{name}_max"]
            assert isinstance(had, int)
            return amount(had) + (f" of {amount(most)}" if isinstance(most, int) else "")

        named = [("kind", found["kind"]), ("user", found["user"])]
        return facts([*named, ("jobs today (UTC)", of("jobs")), ("bytes today", of("bytes"))])

    context.show(found, draw)


@asks(app)
def hosts(context: CommandContext) -> None:
    """List the outside hosts that jobs of the Peik that is asked talk to, and which are left alone for a while."""
    from peik.jobs.api import HostApi

    page = context.client.document(HostApi.list_hosts)
    found = page["hosts"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import age, plain, table

        rows = [
            (
                host["host"],
                plain(host["state"], _HOST_STYLES.get(str(host["state"]), "")),
                age(host["since"]),
                None if host["retry_s"] is None else f"{host['retry_s']:.0f} s",
                host["why"],
            )
            for host in found
        ]
        columns = ("host", "state", "since", "tried in", "why")
        return table(columns, rows, empty="No job of this node has talked to an outside host yet.")

    context.show(page, draw)
    context.note(f"As node {page['node']} has met them.")


# ---- doing ----


@asks(app)
def queue(
    context: CommandContext,
    kind: Kind,
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A parameter of the job, as text; again for more.")
    ] = None,
    params: Annotated[str | None, typer.Option(metavar="JSON", help="Parameters as a JSON object.")] = None,
    user: Annotated[str | None, typer.Option(metavar="USER", help="Whose it is: turns and limits go by it.")] = None,
    metadata: Annotated[str | None, typer.Option(metavar="JSON", help="What you want to find with it again.")] = None,
    wait: Wait = None,
    priority: Annotated[
        int, typer.Option(min=-1, max=2, help="2 critical, 1 high, 0 normal, -1 bulk.", rich_help_panel=_TERMS)
    ] = 0,
    attempts: Annotated[int | None, typer.Option(min=1, help="How often it is tried.", rich_help_panel=_TERMS)] = None,
    backoff: Annotated[
        str | None, typer.Option(metavar="TIME", help="The wait after its first failure.", rich_help_panel=_TERMS)
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="The time limit of one run.", rich_help_panel=_TERMS)
    ] = None,
    run_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Not before: 10m (from now), 2026-11-15T08:30.", rich_help_panel=_TERMS),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Queued once, however often it is asked for.", rich_help_panel=_TERMS),
    ] = None,
    chat: Annotated[str | None, _told("A chat that is told how it goes: a number or @name.", "CHAT")] = None,
    bot: Annotated[str | None, _told("The bot that tells; not needed if there is one only.")] = None,
    thread: Annotated[str | None, _told("The topic of the chat.")] = None,
    reply_to: Annotated[str | None, _told("The message that is replied to.")] = None,
    language: Annotated[str | None, _told("In which it is told, such as fa.", "CODE")] = None,
    label: Annotated[str | None, _told("What the job is called there.", "WORDS")] = None,
) -> None:
    """Queue a job. Once its id is printed it is durable: it will be done, or its failure will be seen."""
    wait_s = seconds(wait, "--wait")
    given = {
        "params": _object(params, "--params") | dict(pair(one, "--param") for one in param or ()),
        "user": None if user is None else unshielded(user),
        "metadata": None if metadata is None else _object(metadata, "--metadata"),
        "priority": priority,
        "attempts": attempts,
        "backoff_ms": _ms(backoff, "--backoff"),
        "timeout_ms": _ms(timeout, "--timeout"),
        "run_at": moment(run_at, "--run-at"),
        "idempotency_key": idempotency_key,
        "notice": _notice(chat, bot_id=bot, thread_id=thread, reply_to=reply_to, language=language, label=label),
    }
    job: Document = {"kind": kind, **{name: value for name, value in given.items() if value is not None}}
    queued = context.client.document(_api().queue, body=job)
    if wait_s is not None:
        _see_through(context, str(queued["id"]), wait_s)
        return
    context.say(queued, f"Queued as job {queued['id']}, {queued['state']}.")
    if not context.client.is_running:
        context.note("No Peik is running: it is done when a process that knows its kind is started.")


def _object(text: str | None, option: str) -> Document:
    try:
        return {} if text is None else msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"This is not a JSON object: {error}.", param_hint=option) from None


def _ms(text: str | None, option: str) -> int | None:
    found = seconds(text, option)
    return None if found is None else round(found * 1000)


def _notice(chat: str | None, **more: str | None) -> Document | None:
    given = {name: unshielded(value) for name, value in more.items() if value is not None}
    if chat is None:
        if given:
            raise typer.BadParameter("Say which chat is to be told: --chat.")
        return None
    return {"chat_id": unshielded(chat), **given}


@asks(app)
def cancel(context: CommandContext, job_id: JobId) -> None:
    """Cancel a job. One that runs is told to end, and ends soon after."""
    job = context.client.document(_api().cancel, job_id=job_id)
    context.say(job, f"Job {job_id} {standing(job)}.")


@asks(app)
def retry(context: CommandContext, job_id: JobId) -> None:
    """Run a failed or cancelled job again, with all of its attempts."""
    job = context.client.document(_api().retry, job_id=job_id)
    context.say(job, f"Job {job_id} is queued again, at the end of its line.")
