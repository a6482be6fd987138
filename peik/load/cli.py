"""`peik load`: a load test of a Peik of its own, of a running one behind a simulated Telegram, or, with care, of a real one."""

import contextlib
import datetime
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from peik.cli.command import CommandContext, Exit, exit_of, tell

if TYPE_CHECKING:
    from peik.load.place import LoadPlace
    from peik.load.plan import LoadWork
    from peik.load.report import Result
    from peik.load.run import Limit

T = TypeVar("T")
_PLACE, _REAL, _BOT = "Where", "The real Telegram", "A downloader bot"


class LoadWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Where the load goes."""

    url: str | None
    key: str
    sim: str | None
    store: str | None
    seed: int
    is_unpaced: bool


def load(
    letters: Annotated[str | None, typer.Option(metavar="RATE", help="Letters: 50/s, 300/m. [default: 50/s]")] = None,
    updates: Annotated[
        str | None, typer.Option(metavar="RATE", help="Messages of people, each answered by its bot. [default: 20/s]")
    ] = None,
    span: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="TIME", help="How long. Memory is judged from 3m on. [default: 60s, downloads 15m]"
        ),
    ] = None,
    bots: Annotated[int, typer.Option(min=1, max=200, help="How many bots.")] = 3,
    chats: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many people each bot knows.")] = 500,
    profile: Annotated[
        str | None,
        typer.Option(metavar="1k|5k|10k", help="The busiest minute of a day with so many new users, instead of rates."),
    ] = None,
    find_limit: Annotated[
        bool, typer.Option("--find-limit", help="Raise the rate until it is too much, and say how much is not.")
    ] = False,
    step: Annotated[str, typer.Option(metavar="TIME", help="Of each step of --find-limit.")] = "10s",
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the figure of --find-limit, for peik doctor --for.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with plots there, one file.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", rich_help_panel=_PLACE, help="Of the Peik that is started; a file of its own."),
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", rich_help_panel=_PLACE, help="A running Peik, instead of starting one.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", rich_help_panel=_PLACE, help="An admin's key; others on this machine can read it."),
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", rich_help_panel=_PLACE, help="A file with the key; or PEIK_KEY.")
    ] = None,
    sim: Annotated[
        str | None,
        typer.Option(
            metavar="URL", rich_help_panel=_PLACE, help="The control address of the simulated Telegram behind it."
        ),
    ] = None,
    downloads: Annotated[
        bool,
        typer.Option(
            "--downloads", rich_help_panel=_BOT, help="Load a downloader bot: people send it links to pages of ours."
        ),
    ] = False,
    program: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", rich_help_panel=_BOT, help="The bot. [default: the example, in a checkout]"),
    ] = None,
    stages: Annotated[
        str, typer.Option(metavar="USERS,…", rich_help_panel=_BOT, help="New users a day, one stage after the other.")
    ] = "500,5000,10000",
    takes: Annotated[
        str, typer.Option(metavar="TIME", rich_help_panel=_BOT, help="How long a film takes to come.")
    ] = "10s",
    size: Annotated[str, typer.Option(metavar="SIZE", rich_help_panel=_BOT, help="Of a film.")] = "500K",
    seed: Annotated[int, typer.Option(help="Of all chance: moments, chats.")] = 1,
    real: Annotated[
        bool, typer.Option("--real", rich_help_panel=_REAL, help="The Peik of --url talks to the real Telegram.")
    ] = False,
    chat: Annotated[
        str | None, typer.Option(metavar="ID", rich_help_panel=_REAL, help="Your own chat, which gets every letter.")
    ] = None,
    bot: Annotated[int | None, typer.Option(metavar="ID", rich_help_panel=_REAL, help="The bot that writes.")] = None,
    yes: Annotated[bool, typer.Option("--yes", rich_help_panel=_REAL, help="Do it without being asked.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Load Peik and count: latencies from the moment each piece was due, what was lost or doubled, whether memory grows.
    Starts a Peik and a simulated Telegram of its own, unless --url names one. docs/load.md says how to read it."""
    context = CommandContext({}, is_json=as_json, may_create=False)
    shown = "" if url is None else key or _key(url, key_file)
    span_s = _read(span or ("15m" if downloads else "60s"), "--for", _span)
    step_s = _read(step, "--step", _span)
    if downloads:
        for name, is_given in (
            ("--url", url),
            ("--store", store),
            ("--profile", profile),
            ("--find-limit", find_limit),
        ):
            if is_given:
                raise typer.BadParameter(
                    "Not together with --downloads: the bot has a Peik of its own.", param_hint=name
                )
        _downloads(context, program, stages, span_s=span_s, takes=takes, size=size, seed=seed, report=report)
        return
    if real:
        _real(context, url, shown, chat=chat, bot=bot, letters=letters, span_s=span_s, is_sure=yes, report=report)
        return
    if (url is None) != (sim is None):
        raise typer.BadParameter("A running Peik is named by both, --url and --sim.", param_hint="--url, --sim")
    if url is not None and store is not None:
        raise typer.BadParameter("A running Peik has its own store.", param_hint="--store")
    where = LoadWanted(url=url, key=shown, sim=sim, store=store, seed=seed, is_unpaced=find_limit)
    if find_limit:
        found = _told(context, _searched(context, where, step_s=step_s, bots=bots, chats=chats))
        _show_limit(context, found, write)
        raise typer.Exit(Exit.PROBLEM if found.broken or not found.letters_per_s else Exit.SUCCESS)
    if write is not None:
        raise typer.BadParameter("Only --find-limit finds a figure to keep.", param_hint="--write")
    work = _work(letters, updates, profile, span_s=span_s, bots=bots, chats=chats)
    _show(context, _told(context, _loaded(context, where, work)), report)


# ---- what is asked for ----


def _work(
    letters: str | None, updates: str | None, profile: str | None, *, span_s: float, bots: int, chats: int
) -> "LoadWork":
    from peik.load.plan import LETTERS_MAX, PROFILES, LoadWork, parse_rate
    from peik.load.plan import profile as rates_of

    letters_per_s = _read(letters or "50/s", "--letters", parse_rate)
    updates_per_s = _read(updates or "20/s", "--updates", parse_rate)
    if profile is not None:
        if profile not in PROFILES or letters is not None or updates is not None:
            words = f"One of {', '.join(PROFILES)}, and without --letters and --updates."
            raise typer.BadParameter(words, param_hint="--profile")
        letters_per_s, updates_per_s = rates_of(PROFILES[profile])
    work = LoadWork(letters_per_s=letters_per_s, updates_per_s=updates_per_s, for_s=span_s, bots=bots, chats=chats)
    if not 1 <= work.sends <= LETTERS_MAX:
        words = f"That would be {work.sends:,} letters; a run has 1 to {LETTERS_MAX:,}."
        raise typer.BadParameter(words, param_hint="--for")
    return work


def _span(text: str) -> float:
    from peik.load.plan import parse_span

    return parse_span(text)


def _read(text: str, name: str, parse: Callable[[str], float]) -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=name) from None


def _key(url: str, key_file: Path | None) -> str:
    from peik.settings.config import load as load_settings

    flags = {"url": url} | ({} if key_file is None else {"key_file": str(key_file)})
    config = load_settings(flags)
    return config.key or config.admin_key or ""


# ---- runs ----


@contextlib.asynccontextmanager
async def _place(context: CommandContext, where: LoadWanted, bots: int) -> "AsyncIterator[LoadPlace]":
    from peik.load.place import own_place, running_place

    if where.url is not None and where.sim is not None:
        async with running_place(where.url, key=where.key, sim=where.sim, bots=bots, note=context.note) as place:
            yield place
    else:
        async with own_place(bots=bots, store=where.store, is_unpaced=where.is_unpaced, seed=where.seed) as place:
            yield place


async def _loaded(context: CommandContext, where: LoadWanted, work: "LoadWork") -> "Result":
    from peik.load.run import run

    async with _place(context, where, work.bots) as place:
        with context.progress("Letters", work.sends, is_bytes=False) as grow:
            return await run(place, work, seed=where.seed, grow=grow)


async def _searched(context: CommandContext, where: LoadWanted, *, step_s: float, bots: int, chats: int) -> "Limit":
    from peik.load.run import find_limit, run

    async with _place(context, where, bots) as place:
        with context.watching("Starting") as say:

            async def one_step(work: "LoadWork") -> "Result":
                say(f"{work.letters_per_s + work.updates_per_s:.0f} letters a second")
                return await run(place, work, seed=where.seed, grow=lambda done: None)

            return await find_limit(one_step, step_s=step_s, bots=bots, chats=chats)


def _downloads(
    context: CommandContext,
    program: str | None,
    stages: str,
    *,
    span_s: float,
    takes: str,
    size: str,
    seed: int,
    report: Path | None,
) -> None:
    from peik.core.units import parse_size_bytes
    from peik.load.downloads import (
        PROGRAM,
        DownloadWork,
        downloads_drawn,
        downloads_html,
        limits_of,
        planned_files,
        run_downloads,
    )

    days = tuple(int(one) for one in stages.split(",") if one.strip().isdecimal() and int(one) > 0)
    if not days or len(days) != len(stages.split(",")):
        raise typer.BadParameter("Numbers of new users a day, such as 500,5000.", param_hint="--stages")
    size_bytes = int(_read(size, "--size", parse_size_bytes))
    if not 10_000 <= size_bytes <= 45_000_000:
        raise typer.BadParameter("From 10K to 45M: Telegram takes no more of a bot.", param_hint="--size")
    at_once, per_person = limits_of()
    work = DownloadWork(
        program=program or PROGRAM,
        stages=days,
        for_s=span_s,
        takes_s=_read(takes, "--takes", _span),
        size_bytes=size_bytes,
        at_once=at_once,
        per_person=per_person,
    )
    with context.progress("Files", planned_files(work), is_bytes=False) as grow:
        found = _told(context, run_downloads(work, seed=seed, grow=grow))
    if report is not None:
        report.write_text(downloads_html(found, made_at=_now()), encoding="utf-8")
        context.note(f"The report is in {report}.")
    context.show(found, lambda: downloads_drawn(found))
    if not found.is_good:
        raise typer.Exit(Exit.PROBLEM)


def _real(
    context: CommandContext,
    url: str | None,
    key: str,
    *,
    chat: str | None,
    bot: int | None,
    letters: str | None,
    span_s: float,
    is_sure: bool,
    report: Path | None,
) -> None:
    from peik.load.plan import parse_rate
    from peik.load.run import PER_S, REAL_PER_S_MAX, run_real

    if url is None or chat is None:
        raise typer.BadParameter("The real Telegram needs --url, --key and --chat.", param_hint="--real")
    per_s = PER_S if letters is None else _read(letters, "--letters", parse_rate)
    if not 0 < per_s <= REAL_PER_S_MAX:
        words = f"At most {REAL_PER_S_MAX:g}/s to the real Telegram: more is a flood, and bots are banned for it."
        raise typer.BadParameter(words, param_hint="--letters")
    count = max(1, round(per_s * span_s))
    question = f"This sends {count} real messages to chat {chat} through {url}, by a bot that Telegram may limit for it. Go on?"
    context.confirm(question, is_sure=is_sure)
    context.note(f"{count} real messages to chat {chat}, {per_s:g} a second.")
    target: int | str = int(chat) if chat.lstrip("-").isdecimal() else chat
    with context.waiting("Sending to the real Telegram"):
        result = _told(context, run_real(url, key=key, chat=target, bot_id=bot, per_s=per_s, for_s=span_s))
    _show(context, result, report)


def _told(context: CommandContext, work: Coroutine[Any, Any, T]) -> T:
    """What it gives. A problem is told as those of other commands are, and a signal leaves no process behind."""
    import asyncio

    import uvloop

    from peik.errors import Problem, StartError

    async def until_signal() -> T:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await work

    try:
        return uvloop.run(until_signal())
    except (Problem, StartError) as problem:
        tell(problem, is_json=context.is_json)
        raise typer.Exit(exit_of(problem) if isinstance(problem, Problem) else Exit.PROBLEM) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(Exit.INTERRUPTED) from None


# ---- showing ----


def _show(context: CommandContext, result: "Result", report: Path | None) -> None:
    from peik.load.report import drawn, html

    if report is not None:
        report.write_text(html(result, made_at=_now()), encoding="utf-8")
        context.note(f"The report is in {report}.")
    context.show(result, lambda: drawn(result))
    if not result.is_good:
        raise typer.Exit(Exit.PROBLEM)


def _show_limit(context: CommandContext, found: "Limit", write: Path | None) -> None:
    from peik.load.report import limit_drawn
    from peik.monitoring.doctor import LoadFigure, write_load_figure

    if write is not None and found.letters_per_s and not found.broken:
        machine = f"{found.machine.system}, {found.machine.cores} cores"
        figure = LoadFigure(
            letters_per_s=found.letters_per_s, store=found.machine.store, measured_at=_now(), machine=machine
        )
        write_load_figure(write, figure)
        context.note(f"The figure is in {write}.")
    context.show(found, lambda: limit_drawn(found))
    sys.stdout.flush()


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
