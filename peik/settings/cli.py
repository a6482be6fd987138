"""`peik config show|example|texts`, and every setting as a flag of `peik serve`: all made from the one table of settings."""

import inspect
import itertools
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peik.cli.command import CommandContext, tell
from peik.errors import StartError
from peik.inbox.texts import built_in
from peik.settings.config import find, load, read, shown_address
from peik.settings.table import REDIS, SETTINGS, Setting, SettingGroup

# `.env.example`, `.env.production` and `.env.crawler`: every setting with its meaning and default, made from the one table of
# settings.


_WIDTH = 100

# What a server that people rely on must be told; without a value each of them is as if it were not there.
MUST: dict[str, str] = {
    "bot_tokens": "From @BotFather.",
    "admin_key": "For example from `openssl rand -hex 32`.",
    "secret_key": "For example from `openssl rand -base64 32`. Keep a copy elsewhere: it opens sealed backups.",
    "admin_chats": "Write to the bot first, so that it may write to you.",
    "alert_urls": "Telegram itself may be what is down.",
}
# What is safer on a server than the default, which is for trying Peik out.
CHOSEN: dict[str, tuple[str, str]] = {
    "backup_every": ("24h", "A copy elsewhere is still up to you."),
    "gateway_open": ("off", "A bot has to be added before it is served."),
    "log_format": ("json", "For whatever collects logs."),
}
# The crawler: what compose.yaml reads, by its own names, and what accounts of people need.
CRAWLER: tuple[tuple[str, str, str], ...] = (
    ("COMPOSE_PROFILES", "crawler", "So that `docker compose up -d` brings app, telegram-redis and telegram-mongodb."),
    ("TELEGRAM_MONGODB_USER", "admin", "MongoDB's root user, made with its first start."),
    ("TELEGRAM_MONGODB_PASSWORD", "", "Letters and digits: `openssl rand -hex 24`. It makes that MongoDB the archive."),
    ("TELEGRAM_REDIS_PASSWORD", "", "Letters and digits, too. It makes that Redis the store."),
    ("TELEGRAM_API_ID", "", "The number of your application at my.telegram.org."),
    ("TELEGRAM_API_HASH", "", "The hash that goes with it."),
)
# What compose.yaml reads besides. None of them begins with PEIK_: Peik refuses such a name if it is no setting.
COMPOSE: tuple[tuple[str, str, str], ...] = (
    (
        "COMPOSE_PROFILES",
        "",
        "What runs beside Peik, comma-separated: crawler, redis, mongodb, postgres, prometheus, grafana, bot-api.",
    ),
    ("LISTEN", "127.0.0.1:8000", "Where Peik can be reached on this machine. Others should come through TLS only."),
    ("APP_MEMORY", "1g", "How much memory Peik may take."),
    (
        "TELEGRAM_REDIS_PASSWORD",
        "",
        "Profiles crawler and redis: letters and digits. It makes that Redis the store, unless PEIK_STORE is set.",
    ),
    (
        "TELEGRAM_MONGODB_PASSWORD",
        "",
        "Profiles crawler and mongodb: letters and digits. It makes that MongoDB the archive, unless PEIK_ARCHIVE is set.",
    ),
    (
        "TELEGRAM_MONGODB_USER",
        "peik",
        "Profiles crawler and mongodb: MongoDB's root user, made with its first start; what was made stays.",
    ),
    (
        "POSTGRES_PASSWORD",
        "",
        "Profile postgres: letters and digits. Set PEIK_STORE to postgresql://peik:PASSWORD@postgres:5432/peik as well.",
    ),
    ("REDIS_MEMORY", "1g", "How much memory Redis may take: all that waits is in it."),
    (
        "REDIS_MAXMEMORY",
        "700mb",
        "When Redis refuses more; less than REDIS_MEMORY, for it needs room to rewrite its log.",
    ),
    ("MONGODB_MEMORY", "2g", "How much memory MongoDB may take."),
    ("POSTGRES_MEMORY", "1g", "How much memory PostgreSQL may take."),
    ("PROMETHEUS_LISTEN", "127.0.0.1:9090", "Profiles prometheus and grafana: where Prometheus can be reached."),
    ("GRAFANA_LISTEN", "127.0.0.1:3000", "Profile grafana: where it can be reached."),
    ("GRAFANA_PASSWORD", "", "Profile grafana: of its user admin."),
    (
        "BOT_API_IMAGE",
        "aiogram/telegram-bot-api:latest",
        "Profile bot-api: the image. Set TELEGRAM_API_ID and TELEGRAM_API_HASH, and PEIK_API_ROOT to http://bot-api:8081.",
    ),
)


def env_example() -> str:
    """`.env.example`: nothing in it is set."""
    lines = [
        "# Settings of Peik. Copy this to .env and take away the # of what you change.",
        "# The environment wins over this file, and flags win over both. Made by: peik config example",
        *_by_group(SETTINGS),
        *_of_others(),
    ]
    return "\n".join(lines) + "\n"


def env_production() -> str:
    """`.env.production`: what must be set first, then what is chosen for a server, then all the rest behind a #.

    Lines are plain NAME=value, which Peik, Docker Compose and systemd read alike."""
    by_name = {setting.name: setting for setting in SETTINGS}
    lines = [
        "# Settings of Peik on a server. Copy this to .env (or /etc/peik/peik.env), fill it in, and chmod 600 it.",
        "# Values stand as they are, without quotes. Made by: peik config example --production",
        "",
        "# ---- To be filled in ----",
    ]
    for name, advice in MUST.items():
        lines += [*_explained(by_name[name], advice), f"{by_name[name].variable}="]
    lines += ["", "# ---- Chosen for a server ----"]
    for name, (value, why) in CHOSEN.items():
        shown = f"{why} The default is {by_name[name].default}."
        lines += [*_explained(by_name[name], shown), f"{by_name[name].variable}={value}"]
    rest = [setting for setting in SETTINGS if setting.name not in MUST and setting.name not in CHOSEN]
    return "\n".join([*lines, *_by_group(rest), *_of_others()]) + "\n"


def env_crawler() -> str:
    """`.env.crawler`: accounts of people on Redis and MongoDB, by a plain `docker compose up -d`."""
    by_name = {setting.name: setting for setting in SETTINGS}
    named = {name for name, _, _ in CRAWLER}
    lines = [
        "# Settings of Peik as a crawler: accounts of people, with Redis as the store and MongoDB as the archive.",
        "# Copy this to .env, fill it in, chmod 600 it, and: docker compose up -d. Made by: peik config example --crawler",
        "",
        "# ---- To be filled in ----",
    ]
    for name, value, words in CRAWLER:
        lines += [*_wrapped(words), f"{name}={value}"]
    keys = ("admin_key", "secret_key")
    for name in keys:
        lines += [*_explained(by_name[name], MUST[name]), f"{by_name[name].variable}="]
    rest = [one for one in SETTINGS if one.name not in keys and not named & set(one.also)]
    return "\n".join([*lines, *_by_group(rest), *_of_others(but=named)]) + "\n"


def grouped(settings: Iterable[Setting] = SETTINGS) -> list[Setting]:
    return sorted(settings, key=lambda setting: list(SettingGroup).index(setting.group))


def _by_group(settings: Iterable[Setting]) -> Iterator[str]:
    for group, members in itertools.groupby(grouped(settings), key=lambda setting: setting.group):
        yield from ("", f"# ---- {group} ----")
        for setting in members:
            yield from _explained(setting)
            yield f"#{setting.variable}={setting.default or ''}"


def _explained(setting: Setting, more: str = "") -> Iterator[str]:
    words = setting.help + (f" {more}" if more else "")
    if setting.also:
        words += f" Also read from {', '.join(setting.also)}."
    if setting.is_secret or setting.has_secret:
        words += f" {setting.variable}_FILE names a file with it instead."
    return _wrapped(words)


def _of_others(but: Collection[str] = ()) -> Iterator[str]:
    yield from ("", "# ---- Redis by its own names ----")
    for name, words in REDIS:
        yield from (*_wrapped(words), f"#{name}=")
    yield from ("", "# ---- Only for compose.yaml ----")
    for name, default, words in COMPOSE:
        if name not in but:
            yield from (*_wrapped(words), f"#{name}={default}")


def _wrapped(words: str) -> Iterator[str]:
    yield ""
    yield from textwrap.wrap(words, _WIDTH, initial_indent="# ", subsequent_indent="# ")


if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(no_args_is_help=True, help="Settings: what is in force, and where it comes from.")

MASK = "***"


@app.command()
def show(
    store: Annotated[str | None, typer.Option(metavar="URL", help="As if this flag were given.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Show every setting, its value and where that comes from. Secrets are masked."""
    context = CommandContext({}, is_json=as_json, may_create=False)
    try:
        found = find({} if store is None else {"store": store})
        read(found)  # what would stop `peik serve` stops this as well
    except StartError as error:
        raise typer.Exit(tell(error, is_json=as_json)) from None
    rows = [
        {
            "name": setting.name,
            "variable": setting.variable,
            "value": _shown(setting, found[setting.name].text),
            "source": found[setting.name].source,
            "secret": setting.is_secret,
        }
        for setting in SETTINGS
    ]

    def draw() -> "RenderableType":
        from peik.cli.output import plain, table

        lines = [
            (
                row["variable"],
                plain("-" if row["value"] is None else row["value"], "dim" if row["source"] == "default" else ""),
                plain(row["source"], "dim" if row["source"] == "default" else "green"),
            )
            for row in rows
        ]
        return table(("setting", "value", "from"), lines, empty="")

    context.show({"settings": rows}, draw)


def _shown(setting: Setting, text: str | None) -> str | None:
    """Secrets are masked, whatever they are; a default is no secret."""
    if text is not None and setting.has_secret:
        return shown_address(text)
    return MASK if setting.is_secret and text is not None and text != setting.default else text


@app.command()
def example(
    production: Annotated[
        bool, typer.Option("--production", help="One for a server, with what must be set first.")
    ] = False,
    crawler: Annotated[
        bool, typer.Option("--crawler", help="One for accounts of people on Redis and MongoDB, by Docker Compose.")
    ] = False,
) -> None:
    """Print an `.env` with every setting, its meaning and its default."""
    typer.echo(env_crawler() if crawler else env_production() if production else env_example(), nl=False)


@app.command()
def texts() -> None:
    """Print the words of notices to users, as TOML: copy what you change into a file and name it in PEIK_TEXTS."""
    typer.echo(built_in(), nl=False)


# ---- flags ----


def with_settings(run: Callable[..., int]) -> Callable[..., None]:
    """A command that takes every setting as a flag, and runs with what is in force. Options of its own stand behind the first
    argument of `run`, which is the settings."""
    _, *own = inspect.signature(run).parameters.values()

    def command(**flags: Any) -> None:
        given = {one.name: flags.pop(one.name) for one in own}
        raise typer.Exit(run(load({name: value for name, value in flags.items() if value is not None}), **given))

    served = [setting for setting in grouped() if setting.group is not SettingGroup.CLIENT]
    signature = inspect.Signature([*own, *(_flag(setting) for setting in served)])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    command.__doc__ = run.__doc__
    return command


def _flag(setting: Setting) -> inspect.Parameter:
    words = setting.help + (f" [default: {setting.default}]" if setting.default and not setting.is_secret else "")
    option = typer.Option(
        setting.flag,
        help=("A file with this. " if setting.is_secret else "") + words.replace("[", "\\["),
        metavar="FILE" if setting.is_secret else "VALUE",
        rich_help_panel=setting.group,
        show_default=False,
    )
    return inspect.Parameter(
        setting.argument, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option]
    )
