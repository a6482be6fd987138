"""`peik doctor`: gathers the facts that `peik.ops.doctor` and `peik.ops.launch` judge.

It makes no store. Where there is one, a test job goes through it and stays there as long as jobs are kept; nothing is sent
unless `--send` says so; and opening a server's store brings its schema up to date, as every opening does.
"""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from peik.core.units import parse_size_bytes
from peik.doors.commands.exits import Exit
from peik.doors.commands.visit import Visit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.ops.doctor import Finding

_USERS = re.compile(r"([1-9]\d{0,8})(k?)", re.IGNORECASE)


def doctor(
    users: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="USERS", help="The verdict before a launch for so many users a day: 1k, 5k, 10k."
        ),
    ] = None,
    disk: Annotated[str, typer.Option(metavar="SIZE", help="What must be free for that verdict.")] = "50G",
    channels: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Channels of a sponsor gate whose members the bot must see: @one,@two."),
    ] = None,
    bot: Annotated[int | None, typer.Option(metavar="ID", help="The bot that must see them; else the first.")] = None,
    support: Annotated[
        str | None,
        typer.Option(metavar="CONTACT", envvar="SUPPORT_CONTACT", help="Whom users can ask for help."),
    ] = None,
    send: Annotated[bool, typer.Option("--send", help="Send a real test alert, and wait until it arrived.")] = False,
    store: Annotated[str | None, typer.Option(metavar="URL", help="As if this flag were given.")] = None,
    url: Annotated[str | None, typer.Option(metavar="URL", help="The running Peik that should answer.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Look whether Peik can work here, and before a launch whether it is ready: settings, store, backup, machine, Telegram,
    each bot, the panel, alerts, a test job. docs/doctor.md lists all of it."""
    users_a_day, room_bytes = _users(users), _size(disk)
    from peik.doors.commands.examining import examine
    from peik.doors.commands.examining_scene import Wanted
    from peik.ops.doctor import Grade, worst

    wanted = Wanted(
        users_a_day=users_a_day,
        room_bytes=room_bytes,
        channels=tuple(name for name in (channels or "").replace(",", " ").split()),
        bot_id=bot,
        support=support,
        may_send=send,
    )
    visit = Visit({}, is_json=as_json, may_create=False)
    with visit.waiting("Looking around"):
        found = examine({name: value for name, value in (("store", store), ("url", url)) if value is not None}, wanted)
    grade = worst(found)
    visit.show({"grade": grade, "findings": found}, lambda: _drawn(found))
    if grade is Grade.RED:
        raise typer.Exit(Exit.PROBLEM)


def _users(text: str | None) -> int | None:
    if text is None:
        return None
    match = _USERS.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter("Write how many users a day: 1k, 5k, 10k or 2500.", param_hint="--for")
    return int(match[1]) * (1000 if match[2] else 1)


def _size(text: str) -> int:
    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--disk") from None


def _drawn(found: "list[Finding]") -> "RenderableType":
    from peik.doors.commands.printing import plain, table

    rows = [
        (plain(one.grade, one.grade), one.name, plain(f"{one.words} → {one.fix}" if one.fix else one.words))
        for one in found
    ]
    return table(("", "what", "how it stands"), rows, empty="")
