"""`peik dead list|causes|show|retry|clear`: letters that failed."""

from typing import TYPE_CHECKING, Annotated

import typer

from peik.core.letter import State
from peik.doors.commands.filters import (
    Cursor,
    Limit,
    OfBot,
    OfChat,
    OfMethod,
    OfType,
    OfUser,
    Since,
    WithError,
    WithText,
    Yes,
    filters,
)
from peik.doors.commands.letters import show_letters, status
from peik.doors.commands.many import PAGE, count_pages, counted, is_confirmed, refuse_both
from peik.doors.commands.visit import Visit, asks
from peik.doors.commands.words import moment

if TYPE_CHECKING:
    from rich.console import RenderableType

_NOUN = "dead letter"

DeadSince = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Dead since: 1h (ago), 2026-11-15T08:30.")
]

app = typer.Typer(no_args_is_help=True, help="Letters that failed: look, send again, clear away.")


@asks(app, "list")
def show_all(
    visit: Visit,
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
    show_letters(visit, wanted, cursor=cursor, limit=limit, empty="There are no dead letters.", is_dead=True)


asks(app, "show")(status)


@asks(app)
def causes(visit: Visit, bot: OfBot = None, since: DeadSince = None, limit: Limit = 20) -> None:
    """Show what the newest dead letters died of, the most frequent cause first."""
    page = visit.counter.causes(bot, moment(since, "--since", is_past=True), limit=limit)
    found = page["causes"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.doors.commands.printing import table

        rows = [(one["count"], one["reason"], ", ".join(one["methods"][:3]), one["newest_id"]) for one in found]
        columns = ("letters", "died of", "methods", "newest")
        return table(columns, rows, right=("letters", "newest"), empty="There are no dead letters.")

    visit.show(page, draw)


_All = Annotated[bool, typer.Option("--all", help="All dead letters. Also meant if nothing is said.")]


@asks(app)
def retry(
    visit: Visit,
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
        visit.say(visit.counter.retry(letter_id), f"Letter {letter_id} is sent again, at the end of its lane.")
        return
    refuse_both(wanted, is_all=is_all)
    if not is_confirmed(visit, "Send {} again?", _NOUN, lambda: _count(visit, wanted), is_sure=yes):
        visit.say({"retried": 0}, "There are no such dead letters.")
        return
    with visit.waiting("Sending dead letters again…"):
        answer = visit.counter.retry_dead(wanted)
    visit.say(answer, f"{counted(answer['retried'], _NOUN)} sent again.")


@asks(app)
def clear(
    visit: Visit,
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
    if not is_confirmed(visit, "Clear {} away for good?", _NOUN, lambda: _count(visit, wanted), is_sure=yes):
        visit.say({"cleared": 0}, "There are no such dead letters.")
        return
    with visit.waiting("Clearing dead letters away…"):
        answer = visit.counter.clear_dead(wanted)
    visit.say(answer, f"{counted(answer['cleared'], _NOUN)} cleared away.")


def _count(visit: Visit, wanted: dict[str, str]) -> int:
    """How many dead letters a filter finds, counted up to a bound: nobody should wait for the exact number."""
    if not set(wanted) - {"bot_id"}:
        stats = visit.counter.stats()
        bots = stats["bots"]
        assert isinstance(bots, dict)
        return int(bots.get(wanted["bot_id"], {"failed": 0})["failed"] if wanted else str(stats["failed"]))
    failed = {**wanted, "state": State.FAILED}
    return count_pages(lambda cursor: visit.counter.letters(failed, cursor=cursor, limit=PAGE), "letters")
