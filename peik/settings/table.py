"""All settings in one table. A row feeds the loader, the docs, the help and the checks."""

import enum
from collections.abc import Callable
from pathlib import Path

import msgspec

from peik.core.units import parse_duration_s, parse_rate, parse_size_bytes
from peik.settings.values import (
    TELEGRAM,
    Parsed,
    parse_archive,
    parse_auto,
    parse_count,
    parse_every,
    parse_files,
    parse_flag,
    parse_inbound,
    parse_issuer,
    parse_keep,
    parse_kinds,
    parse_language,
    parse_lease,
    parse_level,
    parse_log_format,
    parse_log_size,
    parse_message_log,
    parse_metrics,
    parse_missed,
    parse_names,
    parse_networks,
    parse_oidc_roles,
    parse_pending_id,
    parse_per_s,
    parse_percent,
    parse_port,
    parse_positive,
    parse_quiet,
    parse_redelivery,
    parse_root,
    parse_routes,
    parse_scope,
    parse_sessions_server,
    parse_store,
    parse_webhook,
)


class SettingGroup(enum.StrEnum):
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
    group: SettingGroup = SettingGroup.OTHER

    @property
    def variable(self) -> str:
        return f"PEIK_{self.name.upper()}"

    @property
    def argument(self) -> str:
        """A secret has a flag for the file that it is in: what stands on a command line is no secret."""
        return f"{self.name}_file" if self.is_secret else self.name

    @property
    def flag(self) -> str:
        """Of `peik serve`; clients' own settings have none."""
        return f"--{self.argument.replace('_', '-')}"

    def variables(self) -> tuple[str, ...]:
        """Every name under which it is looked for, those of files that hold it included."""
        names = (self.variable, *self.also)
        return (*names, *(f"{name}_FILE" for name in names)) if self.is_secret or self.has_secret else names


SETTINGS: tuple[Setting, ...] = (
    Setting(name="store", group=SettingGroup.PLACES, default="sqlite:///peik.db", parse=parse_store, has_secret=True, help="Where letters are kept: sqlite:///file, postgresql://user:password@host/database or redis://:password@host:port. See stores.md."),
    Setting(name="home", group=SettingGroup.PLACES, default=".", parse=Path, help="Where this node keeps what is its own (a copy of the admin key, a cache of files) if letters are kept by a server; with SQLite that is beside the file."),
    Setting(name="files", group=SettingGroup.PLACES, default=None, parse=Path, help="A folder that all nodes share, for files of letters. By default files go into PostgreSQL or Redis, or beside the SQLite file."),
    Setting(name="files_in_store", group=SettingGroup.PLACES, default="20M", parse=parse_size_bytes, help="The largest file that PostgreSQL or Redis keep. For larger ones, set PEIK_FILES."),
    Setting(name="lease", group=SettingGroup.PLACES, default="10s", parse=parse_lease, help="How long the bots of a node that died wait for another one, with PostgreSQL or Redis. Below 5s a slow network can look like a death."),
    Setting(name="backups", group=SettingGroup.PLACES, default=None, parse=Path, help="The folder that backups go to; by default beside the database. Better on another disk. See backups.md."),
    Setting(name="backup_every", group=SettingGroup.PLACES, default="off", parse=parse_every, help="How often a running Peik makes a backup and tries it out: 24h. off: only `peik backup create` does."),
    Setting(name="backup_keep", group=SettingGroup.PLACES, default="7", parse=parse_positive, help="How many backups of a store are kept; older ones go."),
    Setting(name="backup_also", group=SettingGroup.PLACES, default="", parse=parse_files, help="SQLite files of your own that go into each backup, comma-separated: downloader.db."),
    Setting(name="backup_before_upgrade", group=SettingGroup.PLACES, default="on", parse=parse_flag, help="Copy the SQLite file beside itself before a new version of Peik changes its schema. The copy of the change before goes then."),
    Setting(name="host", group=SettingGroup.PLACES, default="127.0.0.1", parse=str, help="The address to listen on."),
    Setting(name="port", group=SettingGroup.PLACES, default="8081", parse=parse_port, help="The port to listen on; 0 takes any free one."),
    Setting(name="processes", group=SettingGroup.PLACES, default="1", parse=parse_positive, help="How many processes serve there, each a node that uses one core; with PostgreSQL or Redis. Each has the port after it as well: 8082, 8083. See nodes.md."),
    Setting(name="api_root", group=SettingGroup.WAYS, default=TELEGRAM, parse=parse_root, help="The Bot API that Peik talks to."),
    Setting(name="routes", group=SettingGroup.WAYS, default="direct", parse=parse_routes, is_secret=True, help="The ways there, comma-separated, the best first: direct, http://user:password@host:port, socks5://…, mirror+https://host/path, local+http://host:port. See routes.md."),
    Setting(name="route_trial", group=SettingGroup.WAYS, default="5s", parse=parse_duration_s, help="How long a better route must have answered again before letters return to it. It doubles, up to 32 times this, each time the route soon fails again."),
    Setting(name="bot_tokens", group=SettingGroup.ACCESS, default=None, parse=str, is_secret=True, also=("BOT_TOKEN", "TELEGRAM_BOT_TOKEN"), help="Bots to serve from the start, comma-separated."),
    Setting(name="admin_key", group=SettingGroup.ACCESS, default=None, parse=str, is_secret=True, help="Full access to the REST API. Made at the first start if not set, and kept in a file that only you can read."),
    Setting(name="metrics", group=SettingGroup.ACCESS, default="key", parse=parse_metrics, help="Who may read GET /metrics: key (a key with the scope read that is for all bots), or open (whoever reaches the port)."),
    Setting(name="rate_key", group=SettingGroup.ACCESS, default="off", parse=parse_rate, help="How often a key, or a bot by its token, may ask: 50/s, or 50/s burst 200. A key can have a rate of its own. See security.md."),
    Setting(name="rate_ip", group=SettingGroup.ACCESS, default="50/s burst 500", parse=parse_rate, help="How often an address may ask that has not shown a valid key or token within the hour."),
    Setting(name="rate_wrong", group=SettingGroup.ACCESS, default="30/m burst 30", parse=parse_rate, help="How many different wrong keys and tokens an address may show."),
    Setting(name="trusted_proxies", group=SettingGroup.ACCESS, default="127.0.0.1,::1", parse=parse_networks, help="Proxies whose X-Forwarded-For and X-Forwarded-Proto are believed: addresses and networks, comma-separated; off: nobody's."),
    Setting(name="oidc_issuer", group=SettingGroup.ACCESS, default=None, parse=parse_issuer, help="The OpenID Connect provider by which people sign in at the dashboard: its issuer, https://sso.example/realms/work. Needs peik[oidc]. See dashboard.md."),
    Setting(name="oidc_client_id", group=SettingGroup.ACCESS, default=None, parse=str.strip, help="What the provider calls this Peik."),
    Setting(name="oidc_client_secret", group=SettingGroup.ACCESS, default=None, parse=str, is_secret=True, help="The secret that the provider gave with it; a public client has none."),
    Setting(name="oidc_scope", group=SettingGroup.ACCESS, default="openid profile email", parse=parse_scope, help="What the provider is asked for."),
    Setting(name="oidc_claim", group=SettingGroup.ACCESS, default="groups", parse=str.strip, help="The claim that roles come from: groups, roles, realm_access.roles, email, hd."),
    Setting(name="oidc_roles", group=SettingGroup.ACCESS, default="", parse=parse_oidc_roles, help="Which value of the claim gives which role: peik-admins=admin, support=operator, *=viewer. * is everybody whom the provider lets in. Between values that hold commas, write semicolons."),
    Setting(name="oidc_name", group=SettingGroup.ACCESS, default="OpenID Connect", parse=str.strip, help="What the button on the sign-in page calls the provider."),
    Setting(name="oidc_url", group=SettingGroup.ACCESS, default=None, parse=parse_root, help="Where browsers find the dashboard, if its host is not what they ask for: https://peik.example. The provider is told to come back to /admin/sign-in/oidc/back there."),
    Setting(name="tls_cert", group=SettingGroup.ACCESS, default=None, parse=Path, help="The certificate, with its chain, to speak HTTPS with (PEM). A renewed one is taken up within a minute. Needs PEIK_TLS_KEY."),
    Setting(name="tls_key", group=SettingGroup.ACCESS, default=None, parse=Path, help="The file with its private key (PEM)."),
    Setting(name="ca_file", group=SettingGroup.WAYS, default=None, parse=Path, help="Certificate authorities (PEM) to believe besides those of the system: for a Bot API server, webhooks and a Peik with certificates of your own."),
    Setting(name="in_flight", group=SettingGroup.DELIVERY, default="64", parse=parse_positive, also=("QUEUE_MAX_CONCURRENT_JOBS",), help="Calls in flight per bot, at most one per lane."),
    Setting(name="attempts", group=SettingGroup.DELIVERY, default=None, parse=parse_positive, also=("QUEUE_DEFAULT_ATTEMPTS",), help="How often a letter is tried; 5 if nothing is set. If it is set, tries that may have arrived count, too; else only those that Telegram refused for now, and up to 10 uncertain ones besides. What never left, and 429, counts nothing."),
    Setting(name="backoff_ms", group=SettingGroup.DELIVERY, default="2000", parse=parse_positive, also=("QUEUE_BACKOFF_DELAY",), help="The wait after the first refusal in milliseconds; it doubles, up to a minute."),
    Setting(name="timeout", group=SettingGroup.DELIVERY, default="75s", parse=parse_duration_s, help="How long one try may take. Telegram itself can take 10 s and more for a healthy send."),
    Setting(name="upload_timeout", group=SettingGroup.DELIVERY, default="500s", parse=parse_duration_s, help="The same for uploads, after the last byte was sent."),
    Setting(name="pace", group=SettingGroup.DELIVERY, default="on", parse=parse_flag, help="Keep to Telegram's limits. Off only for a local Bot API server or a benchmark."),
    Setting(name="grace", group=SettingGroup.DELIVERY, default="20s", parse=parse_duration_s, help="On SIGTERM: how long to wait for what is in flight."),
    Setting(name="inbound", group=SettingGroup.INBOX, default="polling", parse=parse_inbound, help="How updates of the bots named in the settings come in when they are first seen: polling, webhook (needs PEIK_PUBLIC_URL) or off. Each bot can be changed later."),
    Setting(name="public_url", group=SettingGroup.INBOX, default=None, parse=parse_root, help="Where Telegram can reach this Peik, for webhooks: https://bot.example.com."),
    Setting(name="poll_timeout", group=SettingGroup.INBOX, default="50s", parse=parse_duration_s, help="How long one poll waits for updates; Telegram allows 50 s. Shorter where a network cuts silent connections."),
    Setting(name="update_types", group=SettingGroup.INBOX, default="", parse=parse_names, help="Types of updates to ask Telegram for beyond those that this Peik knows, comma-separated."),
    Setting(name="missed", group=SettingGroup.INBOX, default="process", parse=parse_missed, help="What becomes of messages that waited through an outage: process (hand them on), notify (tell the user instead), both, or drop. See missed.md."),
    Setting(name="missed_after", group=SettingGroup.INBOX, default="60s", parse=parse_duration_s, help="How long a message must have waited to count as missed."),
    Setting(name="polling_redelivery", group=SettingGroup.INBOX, default="30s", parse=parse_redelivery, help="For how long an update that a poller confirmed is handed again if that poller dies, unless a call of the bot showed before that it was dealt with. off: an offset is believed, as Telegram does. 30s,123456=off says it for single bots. See inbox.md."),
    Setting(name="texts", group=SettingGroup.INBOX, default=None, parse=Path, help="A TOML file with your own words for notices; `peik config texts` prints the built-in ones."),
    Setting(name="handlers", group=SettingGroup.INBOX, default="32", parse=parse_positive, help="Updates handed on at once to one consumer's handlers, at most one per chat."),
    Setting(name="handler_timeout", group=SettingGroup.INBOX, default="60s", parse=parse_duration_s, help="How long a handler or a push may take with one update."),
    Setting(name="handler_attempts", group=SettingGroup.INBOX, default="5", parse=parse_positive, help="How often an update is given to a handler that fails, before it is a dead arrival."),
    Setting(name="user_rate", group=SettingGroup.INBOX, default="off", parse=parse_per_s, help="How many updates of one user are handed on: 30/m. What is too much waits; the user is told once."),
    Setting(name="catch_up_rate", group=SettingGroup.INBOX, default="50/s", parse=parse_per_s, help="How fast what waited through an outage is handed on, per consumer."),
    Setting(name="notify_rate", group=SettingGroup.INBOX, default="30/h", parse=parse_per_s, help="How many notifications one user gets; what is too much waits, and goes together. off: no limit. See notifications.md."),
    Setting(name="notify_quiet", group=SettingGroup.INBOX, default="off", parse=parse_quiet, help="When users without hours of their own are sent only what is critical: 22:00-08:00 Asia/Tehran."),
    Setting(name="keep_arrivals", group=SettingGroup.BOUNDS, default="7d", parse=parse_duration_s, help="How long arrivals are kept after every consumer had them."),
    Setting(name="keep_unread", group=SettingGroup.BOUNDS, default="30d", parse=parse_duration_s, help="How long arrivals are kept that a consumer has not read."),
    Setting(name="consumer_idle", group=SettingGroup.BOUNDS, default="7d", parse=parse_duration_s, help="How long a consumer other than the default one may be unused before it is forgotten."),
    Setting(name="consumers_max", group=SettingGroup.BOUNDS, default="100", parse=parse_positive, help="How many consumers a bot may have besides the default one."),
    Setting(name="admin_chats", group=SettingGroup.ALERTS, default="", parse=parse_names, help="Chats that alerts go to, comma-separated: ids or @names."),
    Setting(name="alert_urls", group=SettingGroup.ALERTS, default="", parse=parse_names, is_secret=True, help="Where alerts go besides, comma-separated addresses of Apprise: mailto://…, slack://…, json://…; a comma within one is %2C. Needs peik[alerts]. See alerts.md."),
    Setting(name="alerts_off", group=SettingGroup.ALERTS, default="", parse=parse_names, help="Rules that nobody is told of, comma-separated, for example disk,memory. They are shown all the same."),
    Setting(name="alert_language", group=SettingGroup.ALERTS, default="en", parse=parse_language, help="The language of alerts: en, fa (Persian), ru or uz."),
    Setting(name="alert_disk", group=SettingGroup.ALERTS, default="10%", parse=parse_percent, help="An alert if less of a disk is free."),
    Setting(name="alert_memory", group=SettingGroup.ALERTS, default="80%", parse=parse_percent, help="An alert if more of the memory is in use: of the container's limit, else of the machine."),
    Setting(name="alert_slow", group=SettingGroup.ALERTS, default="30s", parse=parse_duration_s, help="An alert if answers take longer: of Telegram, or of those who handle updates."),
    Setting(name="alert_dead", group=SettingGroup.ALERTS, default="50", parse=parse_count, help="An alert if there are more dead letters."),
    Setting(name="alert_wait", group=SettingGroup.ALERTS, default="10m", parse=parse_duration_s, help="An alert if a letter waits for longer, or letters had waited for longer when they were delivered."),
    Setting(name="alert_failures", group=SettingGroup.ALERTS, default="20%", parse=parse_percent, help="An alert if more of the letters that ended within 10 minutes failed."),
    Setting(name="archive", group=SettingGroup.SESSIONS, default=None, parse=parse_archive, has_secret=True, help="Where accounts and what they see are kept: sqlite:///file, postgresql://… or mongodb://host/database. By default beside the store; Redis keeps none, so that one is to be named with it. See archive.md."),
    Setting(name="telegram_api_id", group=SettingGroup.SESSIONS, default=None, parse=parse_positive, also=("TELEGRAM_API_ID",), help="The number of your application at my.telegram.org. With it and its hash, Peik signs in as accounts of people. See sessions.md."),
    Setting(name="telegram_api_hash", group=SettingGroup.SESSIONS, default=None, parse=str, is_secret=True, also=("TELEGRAM_API_HASH",), help="The hash that goes with it."),
    Setting(name="sessions_server", group=SettingGroup.SESSIONS, default=None, parse=parse_sessions_server, help="Another server than Telegram's own for accounts that sign in: mtproto://IP:port?dc=2&key=/path/of/its/public/key.pem, such as a test server."),
    Setting(name="sessions_proxy", group=SettingGroup.SESSIONS, default=None, parse=str.strip, is_secret=True, help="The proxy of accounts that have none of their own: socks5://, http:// or, to Telegram only, mtproxy://SECRET@host:port."),
    Setting(name="sessions_dir", group=SettingGroup.SESSIONS, default=None, parse=Path, help="A folder with session files of Telethon, for accounts that run from files."),
    Setting(name="sessions_media", group=SettingGroup.SESSIONS, default=None, parse=Path, help="A folder for the files of messages that accounts see: each is fetched once, after its message is archived. All nodes need the same one. Off by default. See sessions.md."),
    Setting(name="sessions_media_max", group=SettingGroup.SESSIONS, default="20M", parse=parse_size_bytes, help="The largest file that is fetched."),
    Setting(name="sessions_media_kinds", group=SettingGroup.SESSIONS, default="", parse=parse_kinds, help="Of which kinds of messages files are fetched, comma-separated: photo,voice,document. By default of all."),
    Setting(name="secret_key", group=SettingGroup.SESSIONS, default=None, parse=str, is_secret=True, help="What tokens of bots, keys of accounts, other secrets and backups are sealed with: 32 bytes in base64 or a long passphrase; older ones behind it, after commas. If it is not set, tokens lie open in the store; for accounts a key is made at the first start, and kept in a file that only you can read. Several nodes need the same one. See secrets.md."),
    Setting(name="secret_key_old", group=SettingGroup.SESSIONS, default=None, parse=str, is_secret=True, help="What PEIK_SECRET_KEY was before: the next start seals everything again, with the new one. Then it is not needed any more."),
    Setting(name="secrets_plain", group=SettingGroup.SESSIONS, default="off", parse=parse_flag, help="Store keys of accounts as they are, without PEIK_SECRET_KEY: for those who encrypt the disk or the database themselves."),
    Setting(name="sessions_webhook", group=SettingGroup.SESSIONS, default=None, parse=parse_webhook, has_secret=True, help="Where new messages and events of accounts are posted to, signed. Off by default."),
    Setting(name="keep_messages", group=SettingGroup.SESSIONS, default="off", parse=parse_keep, help="How long archived messages are kept; off: for ever."),
    Setting(name="keep_events", group=SettingGroup.SESSIONS, default="off", parse=parse_keep, help="How long archived events are kept; off: for ever."),
    Setting(name="keep_feed", group=SettingGroup.SESSIONS, default="7d", parse=parse_duration_s, help="How long what was told of accounts can be heard again by a stream or a webhook that was away."),
    Setting(name="keep_sessions", group=SettingGroup.SESSIONS, default="off", parse=parse_keep, help="How long accounts that are revoked, failed or deactivated stay registered after their last use; off: until they are deleted."),
    Setting(name="log_in_archive", group=SettingGroup.LOG, default="off", parse=parse_flag, help="Keep the log in the archive as well, to be read with `peik logs`."),
    Setting(name="keep_logs", group=SettingGroup.LOG, default="14d", parse=parse_duration_s, help="How long it is kept there."),
    Setting(name="work", group=SettingGroup.JOBS, default=None, parse=Path, help="Where jobs keep their files while they run; by default beside the database. See jobs.md."),
    Setting(name="work_max", group=SettingGroup.JOBS, default="20G", parse=parse_size_bytes, help="How much room all jobs of this machine together may take there."),
    Setting(name="work_free", group=SettingGroup.JOBS, default="1G", parse=parse_size_bytes, help="How much must stay free on that disk: with less, jobs that need a folder wait."),
    Setting(name="jobs", group=SettingGroup.JOBS, default=None, parse=parse_positive, also=("MAX_CONCURRENT_DOWNLOADS",), help="How many jobs of a kind run at once over all nodes, unless the kind says so itself; by default 16 for each core of this machine."),
    Setting(name="jobs_per_user", group=SettingGroup.JOBS, default="2", parse=parse_positive, also=("MAX_DOWNLOADS_PER_USER",), help="How many of them for one user."),
    Setting(name="keep_jobs", group=SettingGroup.JOBS, default="7d", parse=parse_duration_s, help="How long jobs that are done or cancelled are kept."),
    Setting(name="keep_failed_jobs", group=SettingGroup.JOBS, default="30d", parse=parse_duration_s, help="How long jobs that failed are kept."),
    Setting(name="gateway_wait", group=SettingGroup.GATEWAY, default="4s", parse=parse_duration_s, help="How long a send through the gateway waits for Telegram's answer before it is answered with a message that is not there yet (PEIK_PENDING_ID). The letter goes on either way."),
    Setting(name="pending_id", group=SettingGroup.GATEWAY, default="provisional", parse=parse_pending_id, help="Which message_id such a message has: provisional (from 2,000,000,000 up; every later call may name it) or zero. See gateway.md."),
    Setting(name="gateway_open", group=SettingGroup.GATEWAY, default="on", parse=parse_flag, help="Serve bots that are not known yet: their token is checked with Telegram once. Off: only bots that were added before."),
    Setting(name="trace_likely", group=SettingGroup.GATEWAY, default="60s", parse=parse_duration_s, help="For how long after an update was handed to a bot a call of that bot to the same chat is likely its answer, if the call does not say what it answers; 0: never. See tracing.md."),
    Setting(name="file_cache", group=SettingGroup.GATEWAY, default="256M", parse=parse_size_bytes, help="How much room files fetched through /file/bot… may take on disk, beside the database; 0 keeps none."),
    Setting(name="upload_max", group=SettingGroup.BOUNDS, default=None, parse=parse_size_bytes, help="The largest file to accept; by default 50M for Telegram's own API root and 2000M for any other."),
    Setting(name="body_max", group=SettingGroup.BOUNDS, default="64M", parse=parse_size_bytes, help="The largest JSON request to accept."),
    Setting(name="wait_max", group=SettingGroup.BOUNDS, default="5m", parse=parse_duration_s, help="The longest ?wait= of a REST call."),
    Setting(name="hooks_allow_private", group=SettingGroup.ACCESS, default="off", parse=parse_flag, help="Let webhooks of results lead to loopback, private and link-local addresses. Whoever holds a key can then make Peik knock there. See webhooks.md."),
    Setting(name="pushes_allow_private", group=SettingGroup.ACCESS, default="auto", parse=parse_auto, help="Let updates be pushed to loopback and private addresses. auto: those of bots that you have added by their token (here, over REST, at the dashboard), unless Peik listens beyond this machine and its gateway is open (PEIK_GATEWAY_OPEN); never to link-local addresses and metadata services, and never those of a bot that came by itself. See security.md."),
    Setting(name="keep_completed", group=SettingGroup.BOUNDS, default="7d", parse=parse_duration_s, help="How long delivered and cancelled letters are kept."),
    Setting(name="keep_dead", group=SettingGroup.BOUNDS, default="30d", parse=parse_duration_s, help="How long dead letters are kept."),
    Setting(name="message_log", group=SettingGroup.BOUNDS, default=None, parse=parse_message_log, has_secret=True, help="Where the table `telegram_message_logs` is kept if the store is Redis: postgresql://user:password@host/database or sqlite:///file. SQLite and PostgreSQL as stores have it themselves. See letters.md."),
    Setting(name="keep_log", group=SettingGroup.BOUNDS, default="90d", parse=parse_duration_s, help="How long the message log is kept."),
    Setting(name="clock_settles", group=SettingGroup.BOUNDS, default="1h", parse=parse_duration_s, help="How long a clock that was set forward must hold before anything goes by its age."),
    Setting(name="keep_audit", group=SettingGroup.BOUNDS, default="90d", parse=parse_duration_s, help="How long the audit log is kept: who did what at the dashboard, over REST and on the command line."),
    Setting(name="log_level", group=SettingGroup.LOG, default="info", parse=parse_level, also=("LOG_LEVEL",), help="debug shows every letter."),
    Setting(name="log_format", group=SettingGroup.LOG, default="auto", parse=parse_log_format, also=("LOG_FORMAT",), help="auto: for people in a terminal, JSON elsewhere."),
    Setting(name="log_file", group=SettingGroup.LOG, default=None, parse=Path, help="Write the log to this file as well, as JSON lines: logs/peik.log. Each node needs its own. See monitoring.md."),
    Setting(name="log_file_max", group=SettingGroup.LOG, default="20M", parse=parse_log_size, help="How large it grows before a new one is begun."),
    Setting(name="log_files", group=SettingGroup.LOG, default="10", parse=parse_positive, help="How many older ones are kept beside it: peik.log.1 is the newest of them."),
    Setting(name="url", group=SettingGroup.CLIENT, default=None, parse=parse_root, help="Where the command line finds a running Peik; by default at the host and port above. If none answers, it works on the store itself."),
    Setting(name="key", group=SettingGroup.CLIENT, default=None, parse=str, is_secret=True, help="The key that the command line shows to a running Peik; by default the admin key, from the settings or from its file beside the database."),
)  # fmt: skip

# Names that others use, too. Together they are one address of a store.
REDIS: tuple[tuple[str, str], ...] = (
    ("REDIS_HOST", "The host of Redis. Without PEIK_STORE it selects Redis as the store."),
    ("REDIS_PORT", "Its port; 6379 if it is not set."),
    ("REDIS_PASSWORD", "Its password, if it has one."),
    ("REDIS_DB", "The number of its database; 0 if it is not set."),
)
