"""Every setting in force. Environment, `.env`, `peik.toml` and flags are read here, once, into one frozen value.

Below this module nothing reads the environment.
"""

import difflib
import ipaddress
import os
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from peik.core.address import AddressReach
from peik.core.quiet import Quiet
from peik.core.units import Rate
from peik.errors import StartError
from peik.settings.table import SETTINGS, Setting
from peik.settings.values import (
    STORE_KINDS,
    TELEGRAM,
    Parsed,
    PendingId,
    Redelivery,
    RouteAddress,
    RouteKind,
    SessionsServer,
    StoreKind,
    read_env,
    read_toml,
)

JOBS_PER_CORE = 16  # they wait for the network most of the time


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
    backup_also: tuple[Path, ...]
    backup_before_upgrade: bool
    host: str
    port: int
    processes: int
    api_root: str
    routes: tuple[RouteAddress, ...]
    route_trial: float
    bot_tokens: str | None
    admin_key: str | None
    in_flight: int
    attempts: int | None
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
    oidc_issuer: str | None
    oidc_client_id: str | None
    oidc_client_secret: str | None
    oidc_scope: str
    oidc_claim: str
    oidc_roles: tuple[tuple[str, str], ...]
    oidc_name: str
    oidc_url: str | None
    tls_cert: Path | None
    tls_key: Path | None
    ca_file: Path | None
    public_url: str | None
    poll_timeout: float
    update_types: tuple[str, ...]
    missed: str
    missed_after: float
    polling_redelivery: Redelivery
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
    consumers_max: int
    admin_chats: tuple[str, ...]
    alert_urls: tuple[str, ...]
    alerts_off: tuple[str, ...]
    alert_language: str
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
    sessions_server: SessionsServer | None
    sessions_proxy: str | None
    sessions_media: Path | None
    sessions_media_max: int
    sessions_media_kinds: tuple[str, ...]
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
    pending_id: PendingId
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
    message_log: str | None
    keep_log: float
    clock_settles: float
    keep_audit: float
    log_level: str
    log_format: str
    log_file: Path | None
    log_file_max: int
    log_files: int
    url: str | None
    key: str | None
    is_store_by_redis_host: bool = False  # and by no PEIK_STORE: the variable may be meant for another program

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
        """Whether others than programs of this machine may reach it over HTTP."""
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"

    def pushes_reach(self, *, is_guest: bool) -> AddressReach:
        """Whereto updates of a bot may be pushed. A guest may be a stranger's, wherever Peik listens."""
        if self.pushes_allow_private is not None:
            return AddressReach.private(self.pushes_allow_private)
        is_refused = is_guest or (self.is_beyond_this_machine and self.gateway_open)
        return AddressReach.PUBLIC if is_refused else AddressReach.INSIDE

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


class GivenSetting(msgspec.Struct, frozen=True, kw_only=True):
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


def find(
    flags: Mapping[str, str | None] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> dict[str, GivenSetting]:
    """Every setting by name as it was written, and where. Raises StartError for a name that is no setting."""
    sources = _sources(flags or {}, os.environ if environment is None else environment, folder or Path())
    found = {setting.name: _first(setting, sources) for setting in SETTINGS}
    if found["store"].source == DEFAULT:
        for label, source in sources:
            if source.get(_REDIS_HOST):
                found["store"] = GivenSetting(text=_redis(source), source=f"{label} {_REDIS_HOST}")
                break
    return found


def _redis(source: Mapping[str, str | None]) -> str:
    """The store that REDIS_HOST and its siblings name."""
    password = source.get("REDIS_PASSWORD")
    user = f":{urllib.parse.quote(password, safe='')}@" if password else ""
    host = source[_REDIS_HOST] or ""
    place = f"[{host}]" if ":" in host else host
    return f"redis://{user}{place}:{source.get('REDIS_PORT') or 6379}/{source.get('REDIS_DB') or 0}"


def shown_address(url: str) -> str:
    """A store's address without user, password and options."""
    try:
        parts = urllib.parse.urlsplit(url)
        places = parts.netloc.rpartition("@")[2]
        if re.fullmatch(r"[\w.-]+(:\d+)?(,[\w.-]+(:\d+)?)+", places, re.ASCII):  # several servers, or sentinels
            return f"{parts.scheme}://{places}{parts.path}"
        place = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that cannot be read"
    return f"{parts.scheme}://{place}{port}{parts.path}"


def read(found: Mapping[str, GivenSetting]) -> Config:
    values: dict[str, Parsed] = {}
    for setting in SETTINGS:
        given = found[setting.name]
        try:
            values[setting.name] = None if given.text is None else setting.parse(given.text)
        except ValueError as error:
            raise StartError(f"{setting.variable}: {error}.") from None
    by_redis_host = found["store"].source.endswith(f" {_REDIS_HOST}")
    return msgspec.convert({**values, "is_store_by_redis_host": by_redis_host}, Config)


DEFAULT = "default"  # where a setting was found that nobody gave
_ENVIRONMENT = "environment"
_REDIS_HOST = "REDIS_HOST"
_Sources = Sequence[tuple[str, Mapping[str, str | None]]]


def _sources(flags: Mapping[str, str | None], environment: Mapping[str, str], folder: Path) -> _Sources:
    named = {f"PEIK_{name.upper()}": value for name, value in flags.items()}
    file = {f"PEIK_{name.upper()}": value for name, value in read_toml(folder / "peik.toml").items()}
    dotenv = read_env(folder / ".env")
    sources: _Sources = (("flag", named), (_ENVIRONMENT, environment), (".env", dotenv), ("peik.toml", file))
    for label, source in sources:
        _refuse_unknown(label, source)
    return sources


def _first(setting: Setting, sources: _Sources) -> GivenSetting:
    for label, source in sources:
        for variable in setting.variables():
            text = source.get(variable)
            if not text:
                continue
            if variable not in (setting.variable, *setting.also):
                return GivenSetting(text=_file(variable, text), source=text)
            return GivenSetting(text=text, source=f"{label} {variable}" if label == _ENVIRONMENT else label)
    return GivenSetting(text=setting.default, source=DEFAULT)


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
