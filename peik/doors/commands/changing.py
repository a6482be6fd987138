"""`peik cancel` and `change`: letters that wait are taken back, or get another priority or time."""

from typing import Annotated

import typer

from peik.core.letter import State
from peik.doors.commands.counter import Document
from peik.doors.commands.filters import OfBot, OfChat, OfMethod, OfType, OfUser, Since, WithText, Yes, filters
from peik.doors.commands.many import counted, is_confirmed
from peik.doors.commands.visit import Visit
from peik.doors.commands.words import moment


def cancel(
    visit: Visit,
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
        visit.say(visit.counter.cancel(letter_id), f"Letter {letter_id} is cancelled.")
        return

    def count() -> int:
        return int(str(visit.counter.cancel_all(wanted, dry_run=True)["count"]))

    if not is_confirmed(visit, "Take {} back?", "letter", count, is_sure=yes):
        visit.say({"cancelled": 0}, "There are no such letters to take back.")
        return
    with visit.waiting("Taking letters back…"):
        answer = visit.counter.cancel_all(wanted, dry_run=False)
    visit.say(answer, f"{counted(answer['cancelled'], 'letter')} cancelled.")


def change(
    visit: Visit,
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="The letter's id.")],
    priority: Annotated[int | None, typer.Option(min=-1, max=2, help="2 critical, 1 high, 0 normal, -1 bulk.")] = None,
    send_at: Annotated[str | None, typer.Option(metavar="TIME", help="now, 10m (from now), 2026-11-15T08:30.")] = None,
) -> None:
    """Give a letter that waits another priority or time; now also ends the wait after a failed try."""
    at = send_at if send_at == "now" else moment(send_at, "--send-at")
    given: Document = {"priority": priority, "send_at": at}
    changed = visit.counter.change(letter_id, {name: value for name, value in given.items() if value is not None})
    visit.say(changed, f"Letter {letter_id} is {changed['state']}, with priority {changed['priority']}.")
