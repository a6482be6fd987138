"""How the text of a setting is read: one function per kind of value, each raising ValueError with words for people."""

import enum
import io
import ipaddress
import math
import tomllib
import urllib.parse
from collections.abc import Sequence
from pathlib import Path

import msgspec
from dotenv import dotenv_values
from dotenv.parser import parse_stream

from peik.core.quiet import Quiet, checked_quiet
from peik.core.units import Rate, parse_duration_s, parse_size_bytes
from peik.errors import Problem, StartError

TELEGRAM = "https://api.telegram.org"


class RouteKind(enum.StrEnum):
    DIRECT = "direct"
    HTTP = "http"
    SOCKS5 = "socks5"
    MIRROR = "mirror"
    LOCAL = "local"


class PendingId(enum.StrEnum):
    """What a message that is not sent yet is called."""

    PROVISIONAL = "provisional"
    ZERO = "zero"


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
    "redis+sentinel": StoreKind.REDIS,
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


class SessionsServer(msgspec.Struct, frozen=True, kw_only=True):
    """Where accounts sign in, if not at Telegram."""

    address: str
    port: int
    dc_id: int
    key: Path | None  # a file; None: it has Telegram's own

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"mtproto://{host}:{self.port}?dc={self.dc_id}" + (f"&key={self.key}" if self.key else "")


class Redelivery(msgspec.Struct, frozen=True, kw_only=True):
    """For how long what a poller confirmed may be handed again: of any bot, and of those that have a time of their own."""

    usual_s: float = 30.0
    own: tuple[tuple[int, float], ...] = ()

    def of(self, bot_id: int) -> float:
        return dict(self.own).get(bot_id, self.usual_s)


Parsed = (
    str
    | int
    | float
    | bool
    | Path
    | Sequence[RouteAddress]
    | SessionsServer
    | Sequence[str]
    | Sequence[Path]
    | Sequence[tuple[str, str]]
    | Quiet
    | Rate
    | Redelivery
    | None
)


def parse_flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"{text!r} is neither yes nor no")


def parse_whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def parse_port(text: str) -> int:
    number = parse_whole(text)
    if not 0 <= number <= 65535:
        raise ValueError("a port is between 0 and 65535")
    return number


def parse_positive(text: str) -> int:
    number = parse_whole(text)
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


def parse_root(text: str) -> str:
    parts = _web_address(text)
    if parts is None or parts.username is not None or parts.query or parts.fragment:
        raise ValueError("an API root looks like https://host, http://host:port or https://host/path, and nothing more")
    return text.rstrip("/")


def parse_store(text: str) -> str:
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


def parse_lease(text: str) -> float:
    seconds = parse_duration_s(text)
    if not 1 <= seconds <= 600:
        raise ValueError("a lease lasts between 1s and 10m")
    return seconds


def parse_routes(text: str) -> tuple[RouteAddress, ...]:
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


def parse_sessions_server(text: str) -> SessionsServer:
    form = "mtproto://IP:port?dc=2&key=/path/key.pem"
    parts = urllib.parse.urlsplit(text.strip())
    told = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme != "mtproto" or parts.path.strip("/") or not told.keys() <= {"dc", "key"}:
        raise ValueError(f"it should be like {form}")
    try:
        address = ipaddress.ip_address(parts.hostname or "").compressed
    except ValueError:
        raise ValueError(f"it should be like {form}, with an address of IP: sessions hold no names") from None
    dc = told.get("dc", "2")
    if parts.port is None or not dc.isdecimal() or not 0 < int(dc) < 10_000:
        raise ValueError(f"it should be like {form}")
    return SessionsServer(
        address=address, port=parts.port, dc_id=int(dc), key=Path(told["key"]) if told.get("key") else None
    )


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
            root = parse_root(f"{protocol}://{rest}")
            return RouteAddress(
                kind=RouteKind(kind), name=f"{kind}+{protocol}://{urllib.parse.urlsplit(root).netloc}", api_root=root
            )
        case "https":
            raise ValueError("a proxy is http:// or socks5://; another root of the API is mirror+https://")
        case "tg" | "mtproto" | "mtproxy":
            raise ValueError(
                "MTProto proxies carry accounts only, not the Bot API; use socks5:// or http://. For accounts there is "
                "PEIK_SESSIONS_PROXY"
            )
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


def parse_archive(text: str) -> str:
    scheme, _, rest = text.partition("://")
    if scheme not in _ARCHIVES or not rest:
        # What was written may hold a password, so that it is not quoted.
        raise ValueError(
            "an archive is sqlite:///file, postgresql://user:password@host/database or mongodb://host/database"
        )
    return text


def parse_message_log(text: str) -> str:
    scheme, _, rest = text.partition("://")
    if scheme not in ("sqlite", "postgresql", "postgres") or len(rest) < 2 or (scheme == "sqlite" and rest[0] != "/"):
        # What was written may hold a password, so that it is not quoted.
        raise ValueError("a message log is postgresql://user:password@host/database or sqlite:///file")
    return text


def parse_webhook(text: str) -> str:
    parts = _web_address(text)
    if parts is None or parts.fragment:
        raise ValueError("it looks like https://host/path")
    return text


def parse_keep(text: str) -> float | None:
    """How long; None: for ever."""
    return None if text.strip().lower() in ("off", "forever") else parse_duration_s(text)


def parse_every(text: str) -> float | None:
    """How often; None: never."""
    if text.strip().lower() == "off":
        return None
    seconds = parse_duration_s(text)
    if seconds < 60:
        raise ValueError("less than a minute apart makes no sense; write 24h, or off")
    return seconds


def parse_level(text: str) -> str:
    if text.lower() not in ("debug", "info", "warning", "error"):
        raise ValueError("a log level is debug, info, warning or error")
    return text.lower()


def parse_log_format(text: str) -> str:
    if text not in ("auto", "json", "text"):
        raise ValueError("the log format is auto, json or text")
    return text


def parse_log_size(text: str) -> int:
    size = parse_size_bytes(text)
    if size < 1024:
        raise ValueError("a file of less than 1k holds no log; write 20M")
    return size


def parse_inbound(text: str) -> str:
    if text not in ("polling", "webhook", "off"):
        raise ValueError("it is polling, webhook or off")
    return text


def parse_pending_id(text: str) -> PendingId:
    try:
        return PendingId(text.strip().lower())
    except ValueError:
        raise ValueError("it is provisional or zero") from None


def parse_metrics(text: str) -> str:
    if text not in ("key", "open"):
        raise ValueError("it is key or open")
    return text


def parse_redelivery(text: str) -> Redelivery:
    """30s, off, or with times of single bots: 30s,123456=off."""
    usual_s, own = Redelivery().usual_s, {}
    for one in filter(None, map(str.strip, text.split(","))):
        bot, is_own, time = one.rpartition("=")
        time_s = 0.0 if time.strip().lower() in ("off", "0") else parse_duration_s(time)
        if not is_own:
            usual_s = time_s
        elif bot.strip().isascii() and bot.strip().isdigit():
            own[int(bot)] = time_s
        else:
            raise ValueError("a time of a bot's own is written with its number: 30s,123456=off")
    return Redelivery(usual_s=usual_s, own=tuple(own.items()))


def parse_missed(text: str) -> str:
    if text not in ("process", "notify", "both", "drop"):
        raise ValueError("it is process, notify, both or drop")
    return text


def parse_language(text: str) -> str:
    if text.lower() not in ("en", "fa", "ru", "uz"):
        raise ValueError("the language is en, fa, ru or uz")
    return text.lower()


def parse_quiet(text: str) -> Quiet | None:
    """From when to when, and where: 22:00-08:00 Asia/Tehran. off: never."""
    if text.strip().lower() in ("", "off"):
        return None
    hours, _, zone = text.strip().partition(" ")
    start, _, end = hours.partition("-")
    try:
        return checked_quiet(Quiet(start=start, end=end, tz=zone.strip() or "UTC"))
    except Problem:
        raise ValueError("quiet hours look like 22:00-08:00 Asia/Tehran; off is none") from None


def parse_percent(text: str) -> float:
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise ValueError("it looks like 10%, and is between 0% and 100%")
    return percent


def parse_count(text: str) -> int:
    number = parse_whole(text)
    if number < 0:
        raise ValueError("it must be at least 0")
    return number


def parse_per_s(text: str) -> float:
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


def parse_networks(text: str) -> tuple[str, ...]:
    """Addresses and networks, each as it was written. off: none."""
    names = () if text.strip().lower() == "off" else parse_names(text)
    for name in names:
        try:
            ipaddress.ip_network(name)
        except ValueError:
            raise ValueError(f"{name!r} is not an address or a network such as 10.0.0.0/8; off is none") from None
    return names


def parse_auto(text: str) -> bool | None:
    """None: Peik decides."""
    return None if text.strip().lower() == "auto" else parse_flag(text)


def parse_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_issuer(text: str) -> str:
    """As the provider writes it: to a slash more or less it would be another one."""
    parts = _web_address(text)
    if parts is None or parts.username is not None or parts.query or parts.fragment or not text.isascii():
        raise ValueError("an issuer looks like https://sso.example/realms/work")
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise ValueError("an issuer begins with https://; without TLS nothing that it says can be believed")
    return text


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_scope(text: str) -> str:
    names = text.split()
    if "openid" not in names:
        raise ValueError("openid is one of the scopes, or there is no OpenID Connect")
    return " ".join(names)


def parse_oidc_roles(text: str) -> tuple[tuple[str, str], ...]:
    """Values of the claim, each with its role."""
    found = []
    for one in filter(None, map(str.strip, text.split(";" if ";" in text else ","))):
        value, _, role = (part.strip() for part in one.rpartition("="))
        if not value or role not in ("viewer", "operator", "admin"):
            raise ValueError("roles look like peik-admins=admin, support=operator, *=viewer")
        found.append((value, role))
    return tuple(found)


_FILE_KINDS = ("photo", "video", "video_note", "animation", "audio", "voice", "document", "sticker")


def parse_kinds(text: str) -> tuple[str, ...]:
    """Of messages that carry files."""
    kinds = parse_names(text)
    for kind in kinds:
        if kind not in _FILE_KINDS:
            raise ValueError(f"{kind[:40]!r} is no kind of messages with files; there are {', '.join(_FILE_KINDS)}")
    return kinds


def parse_files(text: str) -> tuple[Path, ...]:
    """Files of different names: each goes by its own."""
    paths = tuple(Path(name) for name in parse_names(text))
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        raise ValueError("has two files of one name; they need different ones")
    return paths


# Reads the two files that settings may lie in, `.env` and `peik.toml`. What cannot be read is told with the file, the
# line and the fix: a setting that is passed over in silence is found out much later, and elsewhere.


def read_env(path: Path) -> dict[str, str | None]:
    """The variables of an `.env`; none if there is no such file. Raises StartError."""
    text = _text(path)
    for binding in parse_stream(io.StringIO(text)):
        if binding.error:
            blank = binding.original.string[
                : -len(binding.original.string.lstrip())
            ]  # lines before it count as its own
            line = binding.original.line + blank.count("\n")
            # The line itself may hold a token, and is not shown.
            raise StartError(f"{path}, line {line}: this is not NAME=value. Mend it, or put # before it.")
    return dict(dotenv_values(stream=io.StringIO(text)))


def read_toml(path: Path) -> dict[str, str]:
    """The settings of a `peik.toml`; none if there is no such file. Raises StartError."""
    try:
        table = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise StartError(f"{path} is not valid TOML: {error}.") from None
    return {name: ",".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in table.items()}


def _text(path: Path) -> str:
    if not path.is_file():  # a folder named .env is a virtual environment of somebody's
        return ""
    try:
        return path.read_text(encoding="utf-8-sig")  # Windows puts a mark before the first name
    except OSError as error:
        words = (
            f"{path} cannot be read: {error.strerror}. Give this user the right to read it, or start Peik elsewhere."
        )
        raise StartError(words) from None
    except UnicodeDecodeError:
        raise StartError(f"{path} cannot be read: it is not text in UTF-8. Save it as UTF-8.") from None
