"""`peik import`: what a bot had before Peik, from its own file, by one command."""

from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import to_builtins

from peik.cli.arguments import moment, pair
from peik.cli.client import Document
from peik.cli.command import CommandContext, Exit, asks
from peik.cli.filters import Yes
from peik.errors import BadInput, NotFound, Problem
from peik.storage.cli import address

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.importing.crawler import CrawlerImport
    from peik.importing.sources import ImportSource
    from peik.importing.transfer import ImportPart, ImportPlan, ImportWanted

_WHAT = "What to bring"
_STAY = {  # by how a message stood
    "sent": "they were sent",
    "failed": "they had failed; --pending failed brings those, and nothing else",
    "in doubt": "somebody was sending them, and whether they arrived nobody knows",
    "unknown": "their status is none that Peik knows",
    "old": "they are older than --since",
}
_TOLD = 10  # troubles that are shown; `--json` has more


def register(app: typer.Typer, panel: str) -> None:
    asks(app, "import", may_create=True, has_archive=True, rich_help_panel=panel)(bring_over)


def bring_over(
    context: CommandContext,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|URL",
            help="A SQLite file, CSV, JSON lines, postgresql://…, or mongodb://… of a crawler; or @FILE with that.",
        ),
    ],
    bot: Annotated[str | None, typer.Option(metavar="BOT", help="Whose it was, if there are several bots.")] = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE", help="The messages to send, if they are not found by themselves.", rich_help_panel=_WHAT
        ),
    ] = None,
    people: Annotated[
        str | None, typer.Option(metavar="TABLE", help="The bot's users, in the same way.", rich_help_panel=_WHAT)
    ] = None,
    mapped: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="ROLE=COLUMN",
            help="Which column is chat, text, status, user …; repeat it.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    pending: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD",
            help="The status of messages to send; repeat it. Others then are not.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Leave out messages written before: 7d, 2026-11-15.", rich_help_panel=_WHAT),
    ] = None,
    last_update: Annotated[
        int | None,
        typer.Option(
            metavar="ID",
            min=1,
            help="The last update that the bot handled, if the file does not say.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="letters, people, offset or bots; of a crawler sessions, messages, events or logs; repeat it.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the source, in idempotency keys. By default the file's.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be brought, and bring nothing.")] = False,
    yes: Yes = False,
) -> None:
    """Bring over what a bot had before Peik: messages that are not sent yet, its users, its place in Telegram's updates.
    From mongodb://… it is what a crawler kept, which goes into the archive: accounts, messages, events, the log.

    What is there is only read. Stop the old program first. Running it again doubles nothing."""
    from peik.importing.sources import source_of
    from peik.importing.transfer import look

    named = address(source)
    if named.startswith(("mongodb://", "mongodb+srv://")):
        if table or people or mapped or pending or since or last_update or name or bot:
            raise typer.BadParameter("Of a crawler only --only, --dry-run and --yes count.", param_hint="SOURCE")
        _bring_crawler(context, named, only=only, is_dry=dry_run, is_sure=yes)
        return
    wanted = _wanted(table, people, mapped, pending, since, last_update, only, name, bot or _only_token(context))
    read = source_of(named)
    try:
        with context.waiting("Reading"):
            plan = look(read, wanted)
        if not plan.parts and plan.last_update_id is None and not plan.tokens:
            raise BadInput(code="nothing_found", detail=_nothing(plan))
        if dry_run:
            context.show(_document(plan, [], is_dry=True), lambda: _drawn(plan, is_done=False))
            return
        if not (yes or context.is_json):
            _print(plan)
        told = _add_bots(context, plan, is_sure=yes)
        if plan.parts or plan.last_update_id is not None:
            bot_id = _bot_id(context, bot)
            context.confirm(f"Bring this to bot {bot_id} at {context.client.place}?", is_sure=yes)
            told += _bring(context, read, plan, wanted, bot_id)
    finally:
        read.close()
    context.show(_document(plan, told, is_dry=False), lambda: _drawn(plan, is_done=True))
    for sentence in told:
        context.note(sentence)
    if any(part.troubled for part in plan.parts):
        raise typer.Exit(Exit.PROBLEM)


def _wanted(
    table: str | None,
    people: str | None,
    mapped: list[str] | None,
    pending: list[str] | None,
    since: str | None,
    last_update: int | None,
    only: list[str] | None,
    name: str | None,
    bot_id: str | None,
) -> "ImportWanted":
    from peik.importing.rows import ROLES, TableKind, instant_ms_of, word_of
    from peik.importing.transfer import ImportWanted

    kinds = frozenset(TableKind) - {TableKind.RECEIVED}
    if only:
        names = {str(kind) for kind in kinds}
        if wrong := sorted(set(only) - names):
            raise typer.BadParameter(f"{', '.join(wrong)} is none of {', '.join(sorted(names))}.", param_hint="--only")
        kinds = frozenset(TableKind(one) for one in only)
    columns = dict(pair(one, "--map") for one in mapped or [])
    if wrong := sorted(set(columns) - ROLES):
        raise typer.BadParameter(
            f"{', '.join(wrong)} is no role of a column. There are: {', '.join(sorted(ROLES))}.", param_hint="--map"
        )
    return ImportWanted(
        name=name,
        table=table,
        people_table=people,
        columns=columns,
        pending=frozenset(word_of(word) for word in pending or []),
        since_ms=instant_ms_of(moment(since, "--since", is_past=True)),
        last_update_id=last_update,
        bot_id=bot_id,
        kinds=kinds,
    )


def _only_token(context: CommandContext) -> str | None:
    """The bot of the settings, if there is one."""
    tokens = context.config.tokens()
    return tokens[0].partition(":")[0] if len(tokens) == 1 else None


def _add_bots(context: CommandContext, plan: "ImportPlan", *, is_sure: bool) -> list[str]:
    """The bots whose tokens were found. Their tokens are sealed in the store."""
    from peik.outbox.api import BotApi

    known = _bots(context.client.document(BotApi.list_bots))
    new = [token for token in plan.tokens if str(token.bot_id) not in known]
    if not new:
        return []
    named = ", ".join(str(token.bot_id) for token in new)
    context.confirm(f"Add the bots {named} at {context.client.place}?", is_sure=is_sure)
    for token in new:
        body = {"token": token.reveal(), "inbound": context.config.inbound}
        context.client.document(BotApi.add_bot, body=body)
    return [f"Added: bot {token.bot_id}." for token in new]


def _nothing(plan: "ImportPlan") -> str:
    found = "".join(f"\n  {sentence}" for sentence in plan.left)
    return f"There is nothing in {plan.name} that Peik can bring over.{found}"


def _bot_id(context: CommandContext, asked: str | None) -> str:
    """The bot that is meant. In a store that is new, the bots of the settings are added as `peik serve` would."""
    from peik.outbox.api import BotApi

    client, config = context.client, context.config
    known = _bots(client.document(BotApi.list_bots))
    if not known and not client.is_running:
        for token in config.tokens():
            client.document(BotApi.add_bot, body={"token": token, "inbound": config.inbound})
        known = _bots(client.document(BotApi.list_bots))
    if asked is not None:
        if asked not in known:
            raise NotFound(code="unknown_bot", detail=f"Bot {asked} is not known here.")
        return asked
    if not known:
        raise NotFound(code="no_bot", detail="No bot is known yet. Set BOT_TOKEN, or add one: peik bots add")
    if len(known) > 1:
        raise BadInput(code="which_bot", detail="There are several bots: say which with --bot.")
    return known[0]


def _bots(page: Document) -> list[str]:
    found = page["bots"]
    assert isinstance(found, list)
    return [str(bot["bot_id"]) for bot in found]


def _bring(
    context: CommandContext, read: "ImportSource", plan: "ImportPlan", wanted: "ImportWanted", bot_id: str
) -> list[str]:
    from peik.importing.transfer import ImportTarget, bring

    total = sum(part.ready for part in plan.parts)
    try:
        with context.progress("Bringing", total, is_bytes=False) as advance:
            return bring(read, plan, wanted, ImportTarget(context.client, bot_id), advance)
    except KeyboardInterrupt:
        context.note("What was brought stays. Start again to go on; nothing is doubled.")
        raise typer.Exit(Exit.INTERRUPTED) from None
    except Problem:
        context.note("What was brought stays. Start again to go on; nothing is doubled.")
        raise


def _bring_crawler(context: CommandContext, url: str, *, only: list[str] | None, is_dry: bool, is_sure: bool) -> None:
    from peik.importing.crawler import KINDS, import_crawler, look_at_crawler

    if wrong := sorted(set(only or []) - set(KINDS)):
        raise typer.BadParameter(f"{', '.join(wrong)} is none of {', '.join(KINDS)}.", param_hint="--only")

    with context.waiting("Reading"):
        found = look_at_crawler(url, context.config, kinds=frozenset(only or KINDS))
    if not is_dry:
        if not (is_sure or context.is_json):
            for part in found.parts:
                context.note(f"{part.collection}: {part.documents:,} documents ({part.kind}).")
        context.confirm(f"Bring this from {found.origin} to {found.target}?", is_sure=is_sure)
    total = sum(part.documents for part in found.parts)
    try:
        with context.progress("Reading" if is_dry else "Bringing", total, is_bytes=False) as step:
            import_crawler(url, context.config, found, is_dry=is_dry, step=step)
    except (KeyboardInterrupt, Problem) as stopped:
        if not is_dry:
            context.note("What was brought stays. Start again to go on; nothing is doubled.")
        if isinstance(stopped, Problem):
            raise
        raise typer.Exit(Exit.INTERRUPTED) from None
    context.show({**to_builtins(found), "dry_run": is_dry}, lambda: _crawler_drawn(found, is_dry=is_dry))
    if any(part.troubled for part in found.parts):
        raise typer.Exit(Exit.PROBLEM)


# ---- telling ----


def _document(plan: "ImportPlan", told: list[str], *, is_dry: bool) -> Document:
    return {
        "name": plan.name,
        "dry_run": is_dry,
        "tables": [
            {
                "table": part.shape.table,
                "kind": str(part.shape.kind),
                "columns": dict(part.shape.columns),
                "rows": part.rows,
                "ready": part.ready,
                "left": {str(standing): count for standing, count in part.standings.items()},
                "unknown_words": dict(part.words),
                "errors": part.troubled,
                "error_rows": list(part.troubles),
                **({} if is_dry else {"brought": part.brought, "known": part.known}),
            }
            for part in plan.parts
        ],
        "last_update_id": plan.last_update_id,
        "bots": [str(token.bot_id) for token in plan.tokens],
        "not_brought": list(plan.left),
        "notes": told,
    }


def _print(plan: "ImportPlan") -> None:
    from peik.cli.output import console

    console(stderr=True).print(_drawn(plan, is_done=False))


def _drawn(plan: "ImportPlan", *, is_done: bool) -> "RenderableType":
    from rich.console import Group

    from peik.cli.output import plain

    lines = [line for part in plan.parts for line in _told(part, is_done=is_done)]
    if plan.last_update_id is not None and not is_done:
        lines.append(f"The bot handled updates up to {plan.last_update_id}. Peik would go on behind it.")
    if plan.tokens and not is_done:
        named = ", ".join(str(token.bot_id) for token in plan.tokens)
        lines.append(f"Tokens of bots: {named}. Peik would seal them, and show them to nobody.")
    lines += [f"Not brought: {sentence}" for sentence in plan.left]
    return Group(*map(plain, lines))


def _told(part: "ImportPart", *, is_done: bool) -> list[str]:
    from peik.importing.rows import TableKind

    is_letters = part.shape.kind is TableKind.LETTERS
    what = "messages" if is_letters else "people"
    table = part.shape.table
    if is_done:
        lines = [f"{table}: {part.brought:,} {what} brought, {part.known:,} that Peik had already."]
    else:
        read = ", ".join(f"{role} from {column}" for role, column in part.shape.columns.items())
        lines = [f"{table}: {part.ready:,} of {part.rows:,} rows are {what} to bring ({read})."]
        if part.oldest_ms is not None:
            from peik.core.units import rfc3339

            lines.append(f"- the oldest was written {rfc3339(part.oldest_ms)}; --since leaves old ones out")
        if part.first is not None:
            lines.append(f"- the first goes {part.first}")
    lines += [f"- {count:,} stay: {_STAY[standing]}" for standing, count in part.standings.items()]
    if part.words:
        words = ", ".join(f"{word or 'nothing'} ({count:,})" for word, count in sorted(part.words.items()))
        lines.append(f"- what they are called: {words}. Say --pending with what means 'to be sent'.")
    if part.troubled:
        lines.append(f"- {part.troubled:,} cannot be brought:")
        lines += [f"  {sentence}" for sentence in part.troubles[:_TOLD]]
        if part.troubled > _TOLD:
            lines.append(f"  and {part.troubled - _TOLD:,} more")
    return lines


def _crawler_drawn(found: "CrawlerImport", *, is_dry: bool) -> "RenderableType":
    from rich.console import Group

    from peik.cli.output import plain

    lines: list[str] = []
    for part in found.parts:
        how = "can be brought" if is_dry else "brought"
        known = "" if is_dry or part.kind == "logs" else f", {part.known:,} that were there already"
        lines.append(f"{part.collection}: {part.brought:,} of {part.documents:,} {part.kind} {how}{known}.")
        if part.troubled:
            lines.append(f"- {part.troubled:,} are not as they should be:")
            lines += [f"  {sentence}" for sentence in part.troubles[:_TOLD]]
            if part.troubled > _TOLD:
                lines.append(f"  and {part.troubled - _TOLD:,} more")
    lines += [f"Not brought: the collection {name}, which Peik does not know." for name in found.left]
    return Group(*map(plain, lines))
