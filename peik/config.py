"""All settings in one table. Environment, `.env`, `peik.toml` and flags are read here, once, into one frozen value.

A row feeds the loader, the docs and the checks; below this module nothing reads the environment.
"""

import difflib
import enum
import ipaddress
import math
import os
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from peik.core.problem import Problem
from peik.core.quiet import Quiet, checked_quiet
from peik.core.rate import Rate, parse_rate
from peik.core.units import parse_duration_s, parse_size_bytes
from peik.errors import StartError
from peik.settings_files import read_env, read_toml

TELEGRAM = "https://api.telegram.org"
JOBS_PER_CORE = 16  # they wait for the network most of the time


class RouteKind(enum.StrEnum):
    DIRECT = "direct"
    HTTP = "http"
    SOCKS5 = "socks5"
    MIRROR = "mirror"
    LOCAL = "local"


class StoreKind(enum.StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgresql"
    REDIS = "redis"


STORE_KINDS = {
    "sqlite": StoreKind.SQLITE,
    "postgresql": StoreKind.POSTGRES,
    "postgres": StoreKind.POSTGRES,
    "redis": StoreKind.REDIS,
    "rediss": StoreKind.REDIS,
    "unix": StoreKind.REDIS,
}


class RouteAddress(msgspec.Struct, frozen=True, kw_only=True):
    """One way to Telegram as it was written. Only `name` may be shown: it holds no user, password or path."""

    kind: RouteKind
    name: str
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = ""
    api_root: str | None = None  # of a mirror or a local server; the others lead to PEIK_API_ROOT

    def __repr__(self) -> str:
        return f"RouteAddress({self.name})"


Parsed = str | int | float | bool | Path | Sequence[RouteAddress] | Sequence[str] | Quiet | Rate | None


class Group(enum.StrEnum):
    """What belongs together in the help of `peik serve`, the docs and `.env.example`."""

    PLACES = "Places"
    WAYS = "The way to Telegram"
    ACCESS = "Bots and access"
    DELIVERY = "Delivery"
    INBOX = "Inbox"
    SESSIONS = "Accounts and archive"
    GATEWAY = "Gateway"
    JOBS = "Long jobs"
    ALERTS = "Alerts"
    BOUNDS = "Bounds and keeping"
    LOG = "Log"
    CLIENT = "Command line"
    OTHER = "Other"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `name` is the field of Config; the environment says PEIK_NAME, or one of `also`."""

    name: str
    default: str | None
    parse: Callable[[str], Parsed]
    help: str
    also: tuple[str, ...] = ()
    is_secret: bool = False
    has_secret: bool = False  # a part of it may be one
    group: Group = Group.OTHER

    @property
    def variable(self) -> str:
        return f"PEIK_{self.name.upper()}"

    def variables(self) -> tuple[str, ...]:
        """Every name under which it is looked for, those of files that hold it included."""
        names = (self.variable, *self.also)
        return (*names, *(f"{name}_FILE" for name in names)) if self.is_secret or self.has_secret else names


def _flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"{text!r} is neither yes nor no")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _port(text: str) -> int:
    number = _whole(text)
    if not 0 <= number <= 65535:
        raise ValueError("a port is between 0 and 65535")
    return number


def _positive(text: str) -> int:
    number = _whole(text)
    if number < 1:
        raise ValueError("it must be at least 1")
    return number


def _web_address(text: str) -> urllib.parse.SplitResult | None:
    try:
        parts = urllib.parse.urlsplit(text)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if is_one else None


def _root(text: str) -> str:
    parts = _web_address(text)
    if parts is None or parts.username is not None or parts.query or parts.fragment:
        raise ValueError("an API root looks like https://host, http://host:port or https://host/path, and nothing more")
    return text.rstrip("/")


def _store(text: str) -> str:
    scheme, _, rest = text.partition("://")
    if scheme not in STORE_KINDS or not rest:
        # What was written may hold a password, so that it is not quoted.
        raise ValueError(
            "a store is sqlite:///peik.db (a file here), sqlite:////var/lib/peik/peik.db (a file anywhere), "
            "postgresql://user:password@host/database or redis://:password@host:port"
        )
    if STORE_KINDS[scheme] is StoreKind.SQLITE and (not rest.startswith("/") or len(rest) < 2):
        raise ValueError("a file is named with three slashes, or four from the root: sqlite:///peik.db")
    return text


def _lease(text: str) -> float:
    seconds = parse_duration_s(text)
    if not 1 <= seconds <= 600:
        raise ValueError("a lease lasts between 1s and 10m")
    return seconds


def _routes(text: str) -> tuple[RouteAddress, ...]:
    named: list[RouteAddress] = []
    seen: set[RouteAddress] = set()
    for number, written in enumerate(filter(None, map(str.strip, text.split(","))), 1):
        try:
            route = _route(written)
        except ValueError as error:
            # What was written may hold a password, so that it is counted and not quoted.
            raise ValueError(f"route {number}: {error}") from None
        if route in seen:
            raise ValueError(f"route {number}: {route.name} is there twice")
        twins = sum(other.name == route.name for other in seen)
        seen.add(route)
        named.append(msgspec.structs.replace(route, name=f"{route.name} #{twins + 1}") if twins else route)
    if not named:
        raise ValueError("it names no route; write direct, or leave it out")
    return tuple(named)


def _route(written: str) -> RouteAddress:
    scheme, _, rest = written.partition("://")
    match scheme.lower():
        case "direct" if not rest:
            return RouteAddress(kind=RouteKind.DIRECT, name="direct")
        case "http":
            return _proxy(RouteKind.HTTP, rest)
        case "socks5" | "socks5h":
            return _proxy(RouteKind.SOCKS5, rest)
        case "mirror+https" | "mirror+http" | "local+https" | "local+http":
            kind, _, protocol = scheme.lower().partition("+")
            root = _root(f"{protocol}://{rest}")
            return RouteAddress(
                kind=RouteKind(kind), name=f"{kind}+{protocol}://{urllib.parse.urlsplit(root).netloc}", api_root=root
            )
        case "https":
            raise ValueError("a proxy is http:// or socks5://; another root of the API is mirror+https://")
        case "tg" | "mtproto":
            raise ValueError("MTProto proxies carry Telegram's apps only, not the Bot API; use socks5:// or http://")
        case _:
            known = "direct, http://host:port, socks5://host:port, mirror+https://host/path, local+http://host:port"
            raise ValueError(f"it is none of {known}")


_LOGIN_BYTES_MAX = 255  # SOCKS5 counts each in one byte


def _proxy(kind: RouteKind, rest: str) -> RouteAddress:
    form = f"{kind}://host:port or {kind}://user:password@host:port"
    hint = "within user and password write %2F for a slash, %40 for an at, %3A for a colon, %2C for a comma"
    try:
        parts = urllib.parse.urlsplit(f"{kind}://{rest}")
        is_proxy = bool(parts.hostname and parts.port) and parts.path in ("", "/")
    except ValueError:
        is_proxy = False
    if not is_proxy or parts.query or parts.fragment:
        raise ValueError(f"a proxy looks like {form}; {hint}")
    user, password = (urllib.parse.unquote(text or "") for text in (parts.username, parts.password))
    if max(len(user.encode()), len(password.encode())) > _LOGIN_BYTES_MAX:
        raise ValueError("the user or the password is too long for a proxy")
    host, port = parts.hostname or "", parts.port or 0
    named = f"[{host}]" if ":" in host else host
    return RouteAddress(kind=kind, name=f"{kind}://{named}:{port}", host=host, port=port, user=user, password=password)


_ARCHIVES = ("sqlite", "postgresql", "postgres", "mongodb", "mongodb+srv")


def _archive(text: str) -> str:
    scheme, _, rest = text.partition("://")
    if scheme not in _ARCHIVES or not rest:
        # What was written may hold a password, so that it is not quoted.
        raise ValueError(
            "an archive is sqlite:///file, postgresql://user:password@host/database or mongodb://host/database"
        )
    return text


def _webhook(text: str) -> str:
    parts = _web_address(text)
    if parts is None or parts.fragment:
        raise ValueError("it looks like https://host/path")
    return text


def _keep(text: str) -> float | None:
    """How long; None: for ever."""
    return None if text.strip().lower() in ("off", "forever") else parse_duration_s(text)


def _every(text: str) -> float | None:
    """How often; None: never."""
    if text.strip().lower() == "off":
        return None
    seconds = parse_duration_s(text)
    if seconds < 60:
        raise ValueError("less than a minute apart makes no sense; write 24h, or off")
    return seconds


def _level(text: str) -> str:
    if text.lower() not in ("debug", "info", "warning", "error"):
        raise ValueError("a log level is debug, info, warning or error")
    return text.lower()


def _log_format(text: str) -> str:
    if text not in ("auto", "json", "text"):
        raise ValueError("the log format is auto, json or text")
    return text


def _log_size(text: str) -> int:
    size = parse_size_bytes(text)
    if size < 1024:
        raise ValueError("a file of less than 1k holds no log; write 20M")
    return size


def _inbound(text: str) -> str:
    if text not in ("polling", "webhook", "off"):
        raise ValueError("it is polling, webhook or off")
    return text


def _metrics(text: str) -> str:
    if text not in ("key", "open"):
        raise ValueError("it is key or open")
    return text


def _missed(text: str) -> str:
    if text not in ("process", "notify", "both", "drop"):
        raise ValueError("it is process, notify, both or drop")
    return text


def _quiet(text: str) -> Quiet | None:
    """From when to when, and where: 22:00-08:00 Asia/Tehran. off: never."""
    if text.strip().lower() in ("", "off"):
        return None
    hours, _, zone = text.strip().partition(" ")
    start, _, end = hours.partition("-")
    try:
        return checked_quiet(Quiet(start=start, end=end, tz=zone.strip() or "UTC"))
    except Problem:
        raise ValueError("quiet hours look like 22:00-08:00 Asia/Tehran; off is none") from None


def _percent(text: str) -> float:
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise ValueError("it looks like 10%, and is between 0% and 100%")
    return percent


def _count(text: str) -> int:
    number = _whole(text)
    if number < 0:
        raise ValueError("it must be at least 0")
    return number


def _rate(text: str) -> float:
    """So many a second: 0.5, 20/s, 30/m. 0 or off: no limit."""
    if text.strip().lower() == "off":
        return 0.0
    figure, _, unit = text.partition("/")
    per_s = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}.get(unit.strip().lower())
    try:
        rate = float(figure)
    except ValueError:
        rate = -1.0
    if per_s is None or not 0 <= rate < math.inf:
        raise ValueError("a rate looks like 20/s, 30/m or 100/h; off is no limit")
    return rate / per_s


def _networks(text: str) -> tuple[str, ...]:
    """Addresses and networks, each as it was written. off: none."""
    names = () if text.strip().lower() == "off" else _names(text)
    for name in names:
        try:
            ipaddress.ip_network(name)
        except ValueError:
            raise ValueError(f"{name!r} is not an address or a network such as 10.0.0.0/8; off is none") from None
    return names


def _auto(text: str) -> bool | None:
    """None: Peik decides."""
    return None if text.strip().lower() == "auto" else _flag(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


SETTINGS: tuple[Setting, ...] = (
    Setting(name="store", group=Group.PLACES, default="sqlite:///peik.db", parse=_store, has_secret=True, help="Where letters are kept: sqlite:///file, postgresql://user:password@host/database or redis://:password@host:port. See stores.md."),
    Setting(name="home", group=Group.PLACES, default=".", parse=Path, help="Where this node keeps what is its own (a copy of the admin key, a cache of files) if letters are kept by a server; with SQLite that is beside the file."),
    Setting(name="files", group=Group.PLACES, default=None, parse=Path, help="A folder that all nodes share, for files of letters. By default files go into PostgreSQL or Redis, or beside the SQLite file."),
    Setting(name="files_in_store", group=Group.PLACES, default="20M", parse=parse_size_bytes, help="The largest file that PostgreSQL or Redis shall keep. For larger ones, set PEIK_FILES."),
    Setting(name="lease", group=Group.PLACES, default="10s", parse=_lease, help="How long the bots of a node that died wait for another one, with PostgreSQL or Redis. Below 5s a slow network can look like a death."),
    Setting(name="backups", group=Group.PLACES, default=None, parse=Path, help="The folder that backups go to; by default beside the database. Better on another disk. See backups.md."),
    Setting(name="backup_every", group=Group.PLACES, default="off", parse=_every, help="How often a running Peik makes a backup and tries it out: 24h. off: only `peik backup create` does."),
    Setting(name="backup_keep", group=Group.PLACES, default="7", parse=_positive, help="How many backups of a store are kept; older ones go."),
    Setting(name="host", group=Group.PLACES, default="127.0.0.1", parse=str, help="The address to listen on."),
    Setting(name="port", group=Group.PLACES, default="8081", parse=_port, help="The port to listen on; 0 takes any free one."),
    Setting(name="api_root", group=Group.WAYS, default=TELEGRAM, parse=_root, help="The Bot API that Peik talks to."),
    Setting(name="routes", group=Group.WAYS, default="direct", parse=_routes, is_secret=True, help="The ways there, comma-separated, the best first: direct, http://user:password@host:port, socks5://…, mirror+https://host/path, local+http://host:port. See routes.md."),
    Setting(name="route_trial", group=Group.WAYS, default="5s", parse=parse_duration_s, help="How long a better route must have answered again before letters return to it. It doubles, up to 32 times this, each time the route soon fails again."),
    Setting(name="bot_tokens", group=Group.ACCESS, default=None, parse=str, is_secret=True, also=("BOT_TOKEN", "TELEGRAM_BOT_TOKEN"), help="Bots to serve from the start, comma-separated."),
    Setting(name="admin_key", group=Group.ACCESS, default=None, parse=str, is_secret=True, help="Full access to the REST API. Made at the first start if not set, and kept in a file that only you can read."),
    Setting(name="metrics", group=Group.ACCESS, default="key", parse=_metrics, help="Who may read GET /metrics: key (a key with the scope read that is for all bots), or open (whoever reaches the port)."),
    Setting(name="rate_key", group=Group.ACCESS, default="off", parse=parse_rate, help="How often a key, or a bot by its token, may ask: 50/s, or 50/s burst 200. A key can have a rate of its own. See security.md."),
    Setting(name="rate_ip", group=Group.ACCESS, default="50/s burst 500", parse=parse_rate, help="How often an address may ask that has not shown a valid key or token within the hour."),
    Setting(name="rate_wrong", group=Group.ACCESS, default="30/m burst 30", parse=parse_rate, help="How many different wrong keys and tokens an address may show."),
    Setting(name="trusted_proxies", group=Group.ACCESS, default="127.0.0.1,::1", parse=_networks, help="Proxies whose X-Forwarded-For and X-Forwarded-Proto are believed: addresses and networks, comma-separated; off: nobody's."),
    Setting(name="tls_cert", group=Group.ACCESS, default=None, parse=Path, help="The certificate, with its chain, to speak HTTPS with (PEM). A renewed one is taken up within a minute. Needs PEIK_TLS_KEY."),
    Setting(name="tls_key", group=Group.ACCESS, default=None, parse=Path, help="The file with its private key (PEM)."),
    Setting(name="ca_file", group=Group.WAYS, default=None, parse=Path, help="Certificate authorities (PEM) to believe besides those of the system: for a Bot API server, webhooks and a Peik with certificates of your own."),
    Setting(name="in_flight", group=Group.DELIVERY, default="64", parse=_positive, also=("QUEUE_MAX_CONCURRENT_JOBS",), help="Calls in flight per bot, at most one per lane."),
    Setting(name="attempts", group=Group.DELIVERY, default="5", parse=_positive, also=("QUEUE_DEFAULT_ATTEMPTS",), help="How often a letter that Telegram refuses for now is tried."),
    Setting(name="backoff_ms", group=Group.DELIVERY, default="2000", parse=_positive, also=("QUEUE_BACKOFF_DELAY",), help="The wait after the first refusal in milliseconds; it doubles, up to a minute."),
    Setting(name="timeout", group=Group.DELIVERY, default="75s", parse=parse_duration_s, help="How long one try may take. Telegram itself can take 10 s and more for a healthy send."),
    Setting(name="upload_timeout", group=Group.DELIVERY, default="500s", parse=parse_duration_s, help="The same for uploads, after the last byte was sent."),
    Setting(name="pace", group=Group.DELIVERY, default="on", parse=_flag, help="Keep to Telegram's limits. Off only for a local Bot API server or a benchmark."),
    Setting(name="grace", group=Group.DELIVERY, default="20s", parse=parse_duration_s, help="On SIGTERM: how long to wait for what is in flight."),
    Setting(name="inbound", group=Group.INBOX, default="polling", parse=_inbound, help="How updates of the bots named in the settings come in when they are first seen: polling, webhook (needs PEIK_PUBLIC_URL) or off. Each bot can be changed later."),
    Setting(name="public_url", group=Group.INBOX, default=None, parse=_root, help="Where Telegram can reach this Peik, for webhooks: https://bot.example.com."),
    Setting(name="poll_timeout", group=Group.INBOX, default="50s", parse=parse_duration_s, help="How long one poll waits for updates; Telegram allows 50 s. Shorter where a network cuts silent connections."),
    Setting(name="update_types", group=Group.INBOX, default="", parse=_names, help="Types of updates to ask Telegram for beyond those that this Peik knows, comma-separated."),
    Setting(name="missed", group=Group.INBOX, default="process", parse=_missed, help="What becomes of messages that waited through an outage: process (hand them on), notify (tell the user instead), both, or drop. See missed.md."),
    Setting(name="missed_after", group=Group.INBOX, default="60s", parse=parse_duration_s, help="How long a message must have waited to count as missed."),
    Setting(name="texts", group=Group.INBOX, default=None, parse=Path, help="A TOML file with your own words for notices; `peik config texts` prints the built-in ones."),
    Setting(name="handlers", group=Group.INBOX, default="32", parse=_positive, help="Updates handed on at once to one consumer's handlers, at most one per chat."),
    Setting(name="handler_timeout", group=Group.INBOX, default="60s", parse=parse_duration_s, help="How long a handler or a push may take with one update."),
    Setting(name="handler_attempts", group=Group.INBOX, default="5", parse=_positive, help="How often an update is given to a handler that fails, before it is a dead arrival."),
    Setting(name="user_rate", group=Group.INBOX, default="off", parse=_rate, help="How many updates of one user are handed on: 30/m. What is too much waits; the user is told once."),
    Setting(name="catch_up_rate", group=Group.INBOX, default="50/s", parse=_rate, help="How fast what waited through an outage is handed on, per consumer."),
    Setting(name="notify_rate", group=Group.INBOX, default="30/h", parse=_rate, help="How many notifications one user gets; what is too much waits, and goes together. off: no limit. See notifications.md."),
    Setting(name="notify_quiet", group=Group.INBOX, default="off", parse=_quiet, help="When users without hours of their own are sent only what is critical: 22:00-08:00 Asia/Tehran."),
    Setting(name="keep_arrivals", group=Group.BOUNDS, default="7d", parse=parse_duration_s, help="How long arrivals are kept after every consumer had them."),
    Setting(name="keep_unread", group=Group.BOUNDS, default="30d", parse=parse_duration_s, help="How long arrivals are kept that a consumer has not read."),
    Setting(name="consumer_idle", group=Group.BOUNDS, default="7d", parse=parse_duration_s, help="How long a consumer other than the default one may be unused before it is forgotten."),
    Setting(name="admin_chats", group=Group.ALERTS, default="", parse=_names, help="Chats that alerts go to, comma-separated: ids or @names."),
    Setting(name="alert_urls", group=Group.ALERTS, default="", parse=_names, is_secret=True, help="Where alerts go besides, comma-separated addresses of Apprise: mailto://…, slack://…, json://…; a comma within one is %2C. Needs peik[alerts]. See alerts.md."),
    Setting(name="alerts_off", group=Group.ALERTS, default="", parse=_names, help="Rules that nobody is told of, comma-separated, for example disk,memory. They are shown all the same."),
    Setting(name="alert_disk", group=Group.ALERTS, default="10%", parse=_percent, help="An alert if less of a disk is free."),
    Setting(name="alert_memory", group=Group.ALERTS, default="80%", parse=_percent, help="An alert if more of the memory is in use: of the container's limit, else of the machine."),
    Setting(name="alert_slow", group=Group.ALERTS, default="30s", parse=parse_duration_s, help="An alert if answers take longer: of Telegram, or of those who handle updates."),
    Setting(name="alert_dead", group=Group.ALERTS, default="50", parse=_count, help="An alert if there are more dead letters."),
    Setting(name="alert_wait", group=Group.ALERTS, default="10m", parse=parse_duration_s, help="An alert if a letter waits for longer, or letters had waited for longer when they were delivered."),
    Setting(name="alert_failures", group=Group.ALERTS, default="20%", parse=_percent, help="An alert if more of the letters that ended within 10 minutes failed."),
    Setting(name="archive", group=Group.SESSIONS, default=None, parse=_archive, has_secret=True, help="Where accounts and what they see are kept: sqlite:///file, postgresql://… or mongodb://host/database. By default beside the store; Redis keeps none, so that one is to be named with it. See archive.md."),
    Setting(name="telegram_api_id", group=Group.SESSIONS, default=None, parse=_positive, also=("TELEGRAM_API_ID",), help="The number of your application at my.telegram.org. With it and its hash, Peik signs in as accounts of people. See sessions.md."),
    Setting(name="telegram_api_hash", group=Group.SESSIONS, default=None, parse=str, is_secret=True, also=("TELEGRAM_API_HASH",), help="The hash that goes with it."),
    Setting(name="sessions_dir", group=Group.SESSIONS, default=None, parse=Path, help="A folder with session files of Telethon, for accounts that run from files."),
    Setting(name="secret_key", group=Group.SESSIONS, default=None, parse=str, is_secret=True, help="What tokens of bots, keys of accounts, other secrets and backups are sealed with: 32 bytes in base64 or a long passphrase; older ones behind it, after commas. If it is not set, tokens lie open in the store; for accounts a key is made at the first start, and kept in a file that only you can read. Several nodes need the same one. See secrets.md."),
    Setting(name="secret_key_old", group=Group.SESSIONS, default=None, parse=str, is_secret=True, help="What PEIK_SECRET_KEY was before: the next start seals everything anew, with the new one. Then it is not needed any more."),
    Setting(name="secrets_plain", group=Group.SESSIONS, default="off", parse=_flag, help="Store keys of accounts as they are, without PEIK_SECRET_KEY: for those who encrypt the disk or the database themselves."),
    Setting(name="sessions_webhook", group=Group.SESSIONS, default=None, parse=_webhook, has_secret=True, help="Where new messages and events of accounts are posted to, signed. Off by default."),
    Setting(name="keep_messages", group=Group.SESSIONS, default="off", parse=_keep, help="How long archived messages are kept; off: for ever."),
    Setting(name="keep_events", group=Group.SESSIONS, default="off", parse=_keep, help="How long archived events are kept; off: for ever."),
    Setting(name="keep_feed", group=Group.SESSIONS, default="7d", parse=parse_duration_s, help="How long what was told of accounts can be heard again by a stream or a webhook that was away."),
    Setting(name="keep_sessions", group=Group.SESSIONS, default="off", parse=_keep, help="How long accounts that are revoked, failed or deactivated stay registered after their last use; off: until they are deleted."),
    Setting(name="log_in_archive", group=Group.LOG, default="off", parse=_flag, help="Keep the log in the archive as well, to be read with `peik logs`."),
    Setting(name="keep_logs", group=Group.LOG, default="14d", parse=parse_duration_s, help="How long it is kept there."),
    Setting(name="work", group=Group.JOBS, default=None, parse=Path, help="Where jobs keep their files while they run; by default beside the database. See jobs.md."),
    Setting(name="work_max", group=Group.JOBS, default="20G", parse=parse_size_bytes, help="How much room all jobs of this machine together may take there."),
    Setting(name="work_free", group=Group.JOBS, default="1G", parse=parse_size_bytes, help="How much must stay free on that disk: with less, jobs that need a folder wait."),
    Setting(name="jobs", group=Group.JOBS, default=None, parse=_positive, also=("MAX_CONCURRENT_DOWNLOADS",), help="How many jobs of a kind run at once over all nodes, unless the kind says so itself; by default 16 for each core of this machine."),
    Setting(name="jobs_per_user", group=Group.JOBS, default="2", parse=_positive, also=("MAX_DOWNLOADS_PER_USER",), help="How many of them for one user."),
    Setting(name="keep_jobs", group=Group.JOBS, default="7d", parse=parse_duration_s, help="How long jobs that are done or cancelled are kept."),
    Setting(name="keep_failed_jobs", group=Group.JOBS, default="30d", parse=parse_duration_s, help="How long jobs that failed are kept."),
    Setting(name="gateway_wait", group=Group.GATEWAY, default="4s", parse=parse_duration_s, help="How long a send through the gateway waits for Telegram's answer before it is answered with message_id 0. The letter goes on either way."),
    Setting(name="gateway_open", group=Group.GATEWAY, default="on", parse=_flag, help="Serve bots that are not known yet: their token is checked with Telegram once. Off: only bots that were added before."),
    Setting(name="trace_likely", group=Group.GATEWAY, default="60s", parse=parse_duration_s, help="For how long after an update was handed to a bot a call of that bot to the same chat is likely its answer, if the call does not say what it answers; 0: never. See tracing.md."),
    Setting(name="file_cache", group=Group.GATEWAY, default="256M", parse=parse_size_bytes, help="How much room files fetched through /file/bot… may take on disk, beside the database; 0 keeps none."),
    Setting(name="upload_max", group=Group.BOUNDS, default=None, parse=parse_size_bytes, help="The largest file to accept; by default 50M for Telegram's own API root and 2000M for any other."),
    Setting(name="body_max", group=Group.BOUNDS, default="64M", parse=parse_size_bytes, help="The largest JSON request to accept."),
    Setting(name="wait_max", group=Group.BOUNDS, default="5m", parse=parse_duration_s, help="The longest ?wait= of a REST call."),
    Setting(name="hooks_allow_private", group=Group.ACCESS, default="off", parse=_flag, help="Let webhooks of results lead to loopback, private and link-local addresses. Whoever holds a key can then make Peik knock there. See webhooks.md."),
    Setting(name="pushes_allow_private", group=Group.ACCESS, default="auto", parse=_auto, help="Let updates be pushed to loopback and private addresses. auto: unless Peik listens beyond this machine and its gateway is open to bots that nobody has added (PEIK_GATEWAY_OPEN). See security.md."),
    Setting(name="keep_completed", group=Group.BOUNDS, default="7d", parse=parse_duration_s, help="How long delivered and cancelled letters are kept."),
    Setting(name="keep_dead", group=Group.BOUNDS, default="30d", parse=parse_duration_s, help="How long dead letters are kept."),
    Setting(name="keep_log", group=Group.BOUNDS, default="90d", parse=parse_duration_s, help="How long the message log is kept."),
    Setting(name="keep_audit", group=Group.BOUNDS, default="90d", parse=parse_duration_s, help="How long the audit log is kept: who did what at the dashboard, over REST and on the command line."),
    Setting(name="log_level", group=Group.LOG, default="info", parse=_level, also=("LOG_LEVEL",), help="debug shows every letter."),
    Setting(name="log_format", group=Group.LOG, default="auto", parse=_log_format, also=("LOG_FORMAT",), help="auto: for people in a terminal, JSON elsewhere."),
    Setting(name="log_file", group=Group.LOG, default=None, parse=Path, help="Write the log to this file as well, as JSON lines: logs/peik.log. Each node needs its own. See monitoring.md."),
    Setting(name="log_file_max", group=Group.LOG, default="20M", parse=_log_size, help="How large it grows before a new one is begun."),
    Setting(name="log_files", group=Group.LOG, default="10", parse=_positive, help="How many older ones are kept beside it: peik.log.1 is the newest of them."),
    Setting(name="url", group=Group.CLIENT, default=None, parse=_root, help="Where the command line finds a running Peik; by default at the host and port above. If none answers, it works on the store itself."),
    Setting(name="key", group=Group.CLIENT, default=None, parse=str, is_secret=True, help="The key that the command line shows to a running Peik; by default the admin key, from the settings or from its file beside the database."),
)  # fmt: skip

# Names that others use, too. Together they are one address of a store.
REDIS: tuple[tuple[str, str], ...] = (
    ("REDIS_HOST", "The host of Redis. Without PEIK_STORE it selects Redis as the store."),
    ("REDIS_PORT", "Its port; 6379 if it is not set."),
    ("REDIS_PASSWORD", "Its password, if it has one."),
    ("REDIS_DB", "The number of its database; 0 if it is not set."),
)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting in force. Built by `load`."""

    store: str
    home: Path
    files: Path | None
    files_in_store: int
    lease: float
    backups: Path | None
    backup_every: float | None
    backup_keep: int
    host: str
    port: int
    api_root: str
    routes: tuple[RouteAddress, ...]
    route_trial: float
    bot_tokens: str | None
    admin_key: str | None
    in_flight: int
    attempts: int
    backoff_ms: int
    timeout: float
    upload_timeout: float
    pace: bool
    grace: float
    inbound: str
    metrics: str
    rate_key: Rate | None
    rate_ip: Rate | None
    rate_wrong: Rate | None
    trusted_proxies: tuple[str, ...]
    tls_cert: Path | None
    tls_key: Path | None
    ca_file: Path | None
    public_url: str | None
    poll_timeout: float
    update_types: tuple[str, ...]
    missed: str
    missed_after: float
    texts: Path | None
    handlers: int
    handler_timeout: float
    handler_attempts: int
    user_rate: float
    catch_up_rate: float
    notify_rate: float
    notify_quiet: Quiet | None
    keep_arrivals: float
    keep_unread: float
    consumer_idle: float
    admin_chats: tuple[str, ...]
    alert_urls: tuple[str, ...]
    alerts_off: tuple[str, ...]
    alert_disk: float
    alert_memory: float
    alert_slow: float
    alert_dead: int
    alert_wait: float
    alert_failures: float
    archive: str | None
    telegram_api_id: int | None
    telegram_api_hash: str | None
    sessions_dir: Path | None
    secret_key: str | None
    secret_key_old: str | None
    secrets_plain: bool
    sessions_webhook: str | None
    keep_messages: float | None
    keep_events: float | None
    keep_feed: float
    keep_sessions: float | None
    log_in_archive: bool
    keep_logs: float
    work: Path | None
    work_max: int
    work_free: int
    jobs: int | None
    jobs_per_user: int
    keep_jobs: float
    keep_failed_jobs: float
    gateway_wait: float
    gateway_open: bool
    trace_likely: float
    file_cache: int
    upload_max: int | None
    body_max: int
    wait_max: float
    hooks_allow_private: bool
    pushes_allow_private: bool | None
    keep_completed: float
    keep_dead: float
    keep_log: float
    keep_audit: float
    log_level: str
    log_format: str
    log_file: Path | None
    log_file_max: int
    log_files: int
    url: str | None
    key: str | None

    def __repr__(self) -> str:
        return "Config(…)"  # secrets are in it

    @property
    def store_kind(self) -> StoreKind:
        return STORE_KINDS[self.store.partition("://")[0]]

    @property
    def store_shown(self) -> str:
        """The store's address without what may be secret in it."""
        return shown_address(self.store)

    @property
    def is_beyond_this_machine(self) -> bool:
        """Whether others than programs of this machine may reach the doors."""
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"

    @property
    def pushes_may_be_private(self) -> bool:
        if self.pushes_allow_private is not None:
            return self.pushes_allow_private
        return not (self.is_beyond_this_machine and self.gateway_open)

    @property
    def secret_keys(self) -> str | None:
        """All keys of secrets, the one that seals first; None: there is none."""
        return ",".join(filter(None, (self.secret_key, self.secret_key_old))) if self.secret_key is not None else None

    @property
    def jobs_at_once(self) -> int:
        return self.jobs or JOBS_PER_CORE * (os.cpu_count() or 1)

    @property
    def has_sessions(self) -> bool:
        """Whether anything of accounts was asked for. If not, no archive is made and nothing of them is loaded."""
        return self.archive is not None or self.telegram_api_id is not None or self.log_in_archive

    @property
    def sqlite_path(self) -> Path:
        assert self.store_kind is StoreKind.SQLITE
        return Path(self.store.partition("://")[2][1:])

    def beside(self, suffix: str) -> Path:
        """A file or folder of this node, beside the database or in its home."""
        if self.store_kind is StoreKind.SQLITE:
            path = self.sqlite_path.absolute()
            return path.with_name(path.name + suffix)
        return self.home.absolute() / f"peik{suffix}"

    @property
    def upload_bytes_max(self) -> int:
        if self.upload_max is not None:
            return self.upload_max
        is_cloud = any(
            route.kind is RouteKind.MIRROR or (route.api_root or self.api_root) == TELEGRAM for route in self.routes
        )
        return (50 if is_cloud else 2000) * 1024 * 1024

    def tokens(self) -> list[str]:
        return [token.strip() for token in (self.bot_tokens or "").split(",") if token.strip()]


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a setting before it is read, and where it was found. The text of a secret is a secret."""

    text: str | None
    source: str

    def __repr__(self) -> str:
        return f"Given({self.source})"


def load(
    flags: Mapping[str, str | None] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Config:
    """Flags win over the environment, that over `.env`, that over `peik.toml`. Raises StartError with the fix."""
    return read(find(flags, environment=environment, folder=folder))


def load_traced(
    flags: Mapping[str, str | None] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> tuple[Config, dict[str, str]]:
    """The same, and for every setting where its value was found."""
    found = find(flags, environment=environment, folder=folder)
    return read(found), {name: given.source for name, given in found.items()}


def find(
    flags: Mapping[str, str | None] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> dict[str, Given]:
    """Every setting by name as it was written, and where. Raises StartError for a name that is no setting."""
    sources = _sources(flags or {}, os.environ if environment is None else environment, folder or Path())
    found = {setting.name: _first(setting, sources) for setting in SETTINGS}
    if found["store"].source == _DEFAULT:
        for label, source in sources:
            if source.get("REDIS_HOST"):
                where = f"{label} REDIS_HOST" if label == _ENVIRONMENT else label
                found["store"] = Given(text=_redis(source), source=where)
                break
    return found


def _redis(source: Mapping[str, str | None]) -> str:
    """The store that REDIS_HOST and its siblings name."""
    password = source.get("REDIS_PASSWORD")
    user = f":{urllib.parse.quote(password, safe='')}@" if password else ""
    host = source["REDIS_HOST"] or ""
    place = f"[{host}]" if ":" in host else host
    return f"redis://{user}{place}:{source.get('REDIS_PORT') or 6379}/{source.get('REDIS_DB') or 0}"


def shown_address(url: str) -> str:
    """A store's address without user, password and options."""
    try:
        parts = urllib.parse.urlsplit(url)
        place = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that cannot be read"
    return f"{parts.scheme}://{place}{port}{parts.path}"


def read(found: Mapping[str, Given]) -> Config:
    values: dict[str, Parsed] = {}
    for setting in SETTINGS:
        given = found[setting.name]
        try:
            values[setting.name] = None if given.text is None else setting.parse(given.text)
        except ValueError as error:
            raise StartError(f"{setting.variable}: {error}.") from None
    return msgspec.convert(values, Config)


_DEFAULT = "default"
_ENVIRONMENT = "environment"
_Sources = Sequence[tuple[str, Mapping[str, str | None]]]


def _sources(flags: Mapping[str, str | None], environment: Mapping[str, str], folder: Path) -> _Sources:
    named = {f"PEIK_{name.upper()}": value for name, value in flags.items()}
    file = {f"PEIK_{name.upper()}": value for name, value in read_toml(folder / "peik.toml").items()}
    dotenv = read_env(folder / ".env")
    sources: _Sources = (("flag", named), (_ENVIRONMENT, environment), (".env", dotenv), ("peik.toml", file))
    for label, source in sources:
        _refuse_unknown(label, source)
    return sources


def _first(setting: Setting, sources: _Sources) -> Given:
    for label, source in sources:
        for variable in setting.variables():
            text = source.get(variable)
            if not text:
                continue
            if variable not in (setting.variable, *setting.also):
                return Given(text=_file(variable, text), source=text)
            return Given(text=text, source=f"{label} {variable}" if label == _ENVIRONMENT else label)
    return Given(text=setting.default, source=_DEFAULT)


def _file(variable: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise StartError(f"{variable}={path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise StartError(f"{variable}={path} cannot be read: it is not text.") from None


def _refuse_unknown(label: str, source: Mapping[str, str | None]) -> None:
    known = {variable for setting in SETTINGS for variable in setting.variables()}
    for name in source:
        if name.startswith("PEIK_") and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {_written(near[0], label)}?" if near else ""
            raise StartError(f"{_written(name, label)} is not a setting of Peik.{hint}")


def _written(variable: str, label: str) -> str:
    """A variable as it is written in that source."""
    if label == "peik.toml":
        return f"{variable.removeprefix('PEIK_').lower()} (in peik.toml)"
    return variable
