"""`peik doctor`, which gathers the facts that `peik.monitoring.doctor` judges, and `peik nodes`.

The doctor makes no store. Where there is one, a test job goes through it and stays there as long as jobs are kept; nothing is
sent unless `--send` says so; and opening a server's store brings its schema up to date, as every opening does.
"""

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from peik.cli.client import Document
from peik.cli.command import CommandContext, Exit, asks
from peik.cli.help import Listing
from peik.core.units import parse_size_bytes
from peik.errors import Conflict

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.monitoring.cost import Demand, Plan
    from peik.monitoring.doctor import Finding

_USERS = re.compile(r"([1-9]\d{0,8})(k?)", re.IGNORECASE)


def doctor(
    users: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="USERS",
            help="The verdict before a launch for so many users a day: 1k, 5k, 10k. "
            "With letters instead, 1M/day, 30M/month or 200/s: what so many need.",
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
    context = CommandContext({}, is_json=as_json, may_create=False)
    if users is not None and "/" in users:
        _plan(context, users)
        return
    users_a_day, room_bytes = _users(users), _size(disk)
    from peik.monitoring.checks import examine
    from peik.monitoring.checks_scene import DoctorWanted
    from peik.monitoring.doctor import Grade, worst

    wanted = DoctorWanted(
        users_a_day=users_a_day,
        room_bytes=room_bytes,
        channels=tuple(name for name in (channels or "").replace(",", " ").split()),
        bot_id=bot,
        support=support,
        may_send=send,
    )
    with context.waiting("Looking around"):
        found = examine({name: value for name, value in (("store", store), ("url", url)) if value is not None}, wanted)
    grade = worst(found)
    context.show({"grade": grade, "findings": found}, lambda: _drawn(found))
    if grade is Grade.RED:
        raise typer.Exit(Exit.PROBLEM)


def _users(text: str | None) -> int | None:
    if text is None:
        return None
    match = _USERS.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(
            "Write how many users a day: 1k, 5k, 10k or 2500; or how many letters: 1M/day, 30M/month, 200/s.",
            param_hint="--for",
        )
    return int(match[1]) * (1000 if match[2] else 1)


def _plan(context: CommandContext, text: str) -> None:
    """What so many letters need, from what each was measured to cost. Nothing here is looked at."""
    from peik.monitoring.cost import DAY_S, StoreDays, advice, advised, bots_needed, plans, read_demand

    demand = read_demand(text)
    if demand is None:
        raise typer.BadParameter("Write how many letters: 1M/day, 1B/day, 30M/month or 200/s.", param_hint="--for")
    config = context.config
    days = StoreDays(
        letters=config.keep_completed / DAY_S, arrivals=config.keep_arrivals / DAY_S, log=config.keep_log / DAY_S
    )
    found = plans(demand, days)
    best = advised(found)
    document = {
        "for": text,
        "letters_per_day": demand.letters_per_day,
        "average_per_s": demand.average_per_s,
        "peak_per_s": demand.peak_per_s,
        "bots": bots_needed(demand),
        "advised": best.store,
        "plans": found,
    }
    context.show(document, lambda: _drawn_plan(demand, found, best, advice(demand, best)))


def _drawn_plan(demand: "Demand", found: "Sequence[Plan]", best: "Plan", words: str) -> "RenderableType":
    from rich.console import Group

    from peik.cli.output import plain, table
    from peik.monitoring.cost import rows_of

    rows = [(what, *cells) for what, cells in rows_of(demand, found)]
    stores = [f"→ {plan.store}" if plan is best else str(plan.store) for plan in found]
    return Group(table(("", *stores), rows, empty=""), plain(words))


def _size(text: str) -> int:
    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--disk") from None


def _drawn(found: "list[Finding]") -> "RenderableType":
    from peik.cli.output import plain, table

    rows = [
        (plain(one.grade, one.grade), one.name, plain(f"{one.words} → {one.fix}" if one.fix else one.words))
        for one in found
    ]
    return table(("", "what", "how it stands"), rows, empty="")


# `peik nodes`, `peik nodes drain|resume`: who serves which bots, and letting one go.


if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.cli.client import PeikClient
    from peik.monitoring.nodes import NodeApi

_LOOK_S = 0.2  # how often a node that drains is looked at
_BOTS_SHOWN = 3


app = typer.Typer(cls=Listing, help="The nodes of the store: who serves which bots. Alone it lists them.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="As `peik nodes` shows it.")]


def _api() -> "type[NodeApi]":
    from peik.monitoring.nodes import NodeApi  # late: see tests/cli/test_shape.py

    return NodeApi


@asks(app, "list")
def show_all(context: CommandContext) -> None:
    """List the nodes that live, and the bots that each of them serves."""
    page = context.client.document(_api().list_nodes)
    found = page["nodes"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import age, plain, table

        rows = [
            (
                "→" if node["is_this"] else "",
                node["name"],
                plain(node["state"], "yellow" if node["state"] == "draining" else "green"),
                len(node["bots"]),
                "yes" if node["does_chores"] else "",
                node["version"],
                node["address"],
                age(node["started_at"]),
                age(node["seen_at"]),
                _some(node["bots"]),
            )
            for node in found
        ]
        columns = ("", "node", "state", "bots", "chores", "version", "address", "up", "seen", "serves")
        return table(columns, rows, counts=("bots",), empty="No node runs on this store: start one with `peik serve`.")

    context.show(page, draw)


def _some(bots: list[str]) -> str:
    shown = ", ".join(bots[:_BOTS_SHOWN])
    return shown if len(bots) <= _BOTS_SHOWN else f"{shown} and {len(bots) - _BOTS_SHOWN} more"


@asks(app)
def drain(
    context: CommandContext,
    name: Name,
    wait: Annotated[bool, typer.Option("--wait", help="Until it serves no bot any more.")] = False,
) -> None:
    """Have a node let its bots go to the others. It goes on accepting letters; stop it when it serves none."""
    client = context.client
    node = client.document(_api().drain, name=name)
    if not _others(client, name):
        context.note("No other node takes bots: they wait until one is started, or this one is resumed.")
    if wait:
        node = _watched(context, client, node)
    held = _held(node)
    sentence = f"Node {name} serves no bot any more." if not held else f"Node {name} lets go of its bots: {held} to go."
    context.say(node, sentence)


@asks(app)
def resume(context: CommandContext, name: Name) -> None:
    """Let a node that was drained take bots again."""
    context.say(context.client.document(_api().resume, name=name), f"Node {name} takes bots again.")


def _watched(context: CommandContext, client: "PeikClient", node: Document) -> Document:
    """The node once it holds nothing. One that has ended holds nothing either."""
    held = _held(node)
    with context.progress(f"Draining {node['name']}", held, is_bytes=False) as grow:
        while held:
            time.sleep(_LOOK_S)
            node = _found(client, node)
            if node["state"] == "active":
                raise Conflict(
                    code="resumed", detail=f"Node {node['name']} was resumed by somebody; it keeps its bots."
                )
            grow(held - _held(node))
            held = _held(node)
    return node


def _found(client: "PeikClient", before: Document) -> Document:
    for node in _all(client):
        if node["name"] == before["name"]:
            return node
    return {**before, "state": "draining", "bots": [], "does_chores": False}


def _others(client: "PeikClient", name: str) -> bool:
    return any(node["name"] != name and node["state"] == "active" for node in _all(client))


def _all(client: "PeikClient") -> list[Document]:
    found = client.document(_api().list_nodes)["nodes"]
    assert isinstance(found, list)
    return found


def _held(node: Document) -> int:
    bots = node["bots"]
    assert isinstance(bots, list)
    return len(bots) + bool(node["does_chores"])
