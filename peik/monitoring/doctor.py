"""What `peik doctor` makes of facts: one finding for each, green, yellow or red, with the fix in a line. It asks nobody."""

import enum
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from peik import __version__
from peik.admin.model import weakness_of
from peik.admin.oidc import OidcLook
from peik.alerts.looks import BACKUP_LATE, Memory
from peik.core.nodes import CHORES, NodeRecord
from peik.core.outcome import Delivered, Limited, Moved, Outcome, Refused, Uncertain, Unsent
from peik.monitoring.log_file import BEAT_S

SKEW_S_GOOD = 1.0
SKEW_S_MAX = 10.0  # send_at and expires_at are off by so much, on one node and not on another
ROOM_BYTES_GOOD = 1024**3
ROOM_BYTES_MIN = 100 * 1024**2
FILES_GOOD = 4096
FILES_SPARE = 512  # for the store, files and the way to Telegram; see peik.web.server

# Of the sentences about a store's settings those that cost little, or of which nothing is known.
_MILD = ("up to a second", "turns it on for itself", "cannot be told", "a single server")
_ADVICE = ("Set", "Turn", "Name", "Check", "Take", "Run")


class Grade(enum.StrEnum):
    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    grade: Grade
    words: str
    fix: str | None = None


def worst(findings: Iterable[Finding]) -> Grade:
    grades = {finding.grade for finding in findings}
    return next(grade for grade in reversed(Grade) if grade in grades or grade is Grade.GREEN)


def of_durability(sentences: Sequence[str], *, failover_loses: bool = False) -> list[Finding]:
    found = [_weak(sentence) for sentence in sentences]
    if not sentences:
        found.append(Finding(name="durability", grade=Grade.GREEN, words="What was accepted outlives a power cut."))
    if failover_loses:  # how much that matters is theirs to say
        words = "A copy of the store follows, and no commit waits for it: a failover loses what it had not heard (docs/nodes.md)."
        found.append(Finding(name="failover", grade=Grade.GREEN, words=words))
    return found


def _weak(sentence: str) -> Finding:
    words, _, last = sentence.rpartition(". ")
    has_advice = bool(words) and last.startswith(_ADVICE)
    return Finding(
        name="durability",
        grade=Grade.YELLOW if any(part in sentence for part in _MILD) else Grade.RED,
        words=f"{words}." if has_advice else sentence,
        fix=last if has_advice else None,
    )


def of_clock(skew_s: float | None) -> Finding:
    """`skew_s`: how far this machine is ahead of the store. None: there was nobody to compare with."""
    if skew_s is None:
        words = "No node runs on the store, so its clock could not be compared with this machine's."
        return Finding(name="clock", grade=Grade.GREEN, words=words)
    if abs(skew_s) < SKEW_S_GOOD:
        return Finding(name="clock", grade=Grade.GREEN, words="This machine and the store agree on the time.")
    words = f"This machine is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the store."
    grade = Grade.YELLOW if abs(skew_s) < SKEW_S_MAX else Grade.RED
    return Finding(name="clock", grade=grade, words=words, fix="Run NTP on both (timedatectl set-ntp true).")


def of_secrets(*, plain: int, sealed: int, advice: str | None) -> list[Finding]:
    """Nothing, if there is nothing secret in the store yet."""
    if advice is not None:
        words = (
            f"{plain} token(s) and other secrets lie in the store as plain text."
            if plain
            else "Not all is sealed as it should be."
        )
        return [Finding(name="secrets", grade=Grade.YELLOW, words=words, fix=advice)]
    words = f"All {sealed} token(s) and other secrets in the store are sealed with PEIK_SECRET_KEY."
    return [Finding(name="secrets", grade=Grade.GREEN, words=words)] if sealed else []


def of_room(folder: str, free_bytes: int) -> Finding:
    words = f"{free_bytes / 1024**3:.1f} GB are free in {folder}."
    if free_bytes >= ROOM_BYTES_GOOD:
        return Finding(name="room", grade=Grade.GREEN, words=words)
    grade = Grade.YELLOW if free_bytes >= ROOM_BYTES_MIN else Grade.RED
    return Finding(name="room", grade=grade, words=words, fix="Free some room, or give the folder a larger disk.")


def of_open_files(most: int, *, polled: int) -> Finding:
    """`most`: the hard limit, which `peik serve` takes. Each bot that is polled holds a connection."""
    words = f"A process may open {most} files; {polled} bot(s) are polled."
    if most >= max(FILES_GOOD, 2 * polled + FILES_SPARE):
        return Finding(name="open files", grade=Grade.GREEN, words=words)
    grade = Grade.YELLOW if most >= polled + 2 * FILES_SPARE else Grade.RED
    return Finding(name="open files", grade=grade, words=words, fix="Raise it: LimitNOFILE=65536, or ulimit -Hn 65536.")


class _Fault(msgspec.Struct, frozen=True):
    """Of Python itself, in something that Peik uses; fixed from these releases of 3.11, 3.12 … on."""

    words: str
    mended: dict[int, int]


# `http.cookies` (CVE-2024-7592) is not here: Peik reads cookies by itself. Nor are faults of modules, or of ways to call them,
# that Peik has no use for.
_FAULTS = (
    _Fault("tarfile takes long for a hostile backup (CVE-2024-6232)", {11: 10, 12: 6}),
    _Fault("tarfile may not come to the end of one (CVE-2025-8194)", {11: 14, 12: 12, 13: 6}),
    _Fault("ipaddress takes some private addresses for public ones (CVE-2024-4032)", {11: 10, 12: 4}),
    _Fault("html.parser takes long for hostile markup of an account's letter (CVE-2025-6069)", {11: 14, 12: 12, 13: 6}),
)


def of_python(version: tuple[int, int, int]) -> Finding:
    """What is known of an interpreter by its number alone."""
    _, minor, micro = version
    shown = ".".join(map(str, version))
    found = [fault for fault in _FAULTS if micro < fault.mended.get(minor, 0)]
    if not found:
        return Finding(name="python", grade=Grade.GREEN, words=f"Python {shown} has no known fault in what Peik uses.")
    words = f"Python {shown} has known faults in what Peik uses: {'; '.join(fault.words for fault in found)}."
    newest = max(fault.mended[minor] for fault in found)
    fix = f"Bring it to 3.{minor}.{newest} or newer, unless your distribution has mended it under the old number."
    return Finding(name="python", grade=Grade.YELLOW, words=words, fix=fix)


def of_route(name: str, outcome: Outcome, *, has_other: bool) -> Finding:
    match outcome:
        case Unsent(why=why) | Uncertain(why=why):
            grade = Grade.YELLOW if has_other else Grade.RED
            fix = "Check the network, or name another way in PEIK_ROUTES."
            return Finding(name="route", grade=grade, words=f"Telegram does not answer by {name} ({why}).", fix=fix)
        case Delivered() | Limited() | Moved() | Refused():
            return Finding(name="route", grade=Grade.GREEN, words=f"Telegram answers by {name}.")


def of_bot(bot_id: int, outcome: Outcome) -> Finding:
    match outcome:
        case Delivered(result=result):
            return Finding(name="bot", grade=Grade.GREEN, words=f"Bot {bot_id} is @{_username(result)}.")
        case Refused(words=words):
            fix = f"Get its token from @BotFather: peik bots token {bot_id}"
            return Finding(name="bot", grade=Grade.RED, words=f"Telegram refuses bot {bot_id}: {words}.", fix=fix)
        case Limited(retry_after_s=wait_s):
            words = f"Telegram asks bot {bot_id} to wait {wait_s:.0f} s."
            return Finding(name="bot", grade=Grade.YELLOW, words=words, fix="Wait; Peik does the same.")
        case Moved() | Unsent() | Uncertain():
            words = f"Bot {bot_id} could not be asked about."
            return Finding(name="bot", grade=Grade.YELLOW, words=words, fix="Look at the routes above, and ask again.")


class _Me(msgspec.Struct):
    username: str = ""


def _username(result: bytes) -> str:
    try:
        return msgspec.json.decode(result, type=_Me).username
    except msgspec.DecodeError:
        return ""


def of_nodes(nodes: Sequence[NodeRecord], bot_ids: Sequence[int]) -> Finding:
    if not nodes:
        return Finding(
            name="nodes", grade=Grade.YELLOW, words="No node runs on the store.", fix="Start one: peik serve"
        )
    served = {bot_id for node in nodes for bot_id in node.bots}
    idle = [bot_id for bot_id in (CHORES, *bot_ids) if bot_id not in served]
    versions = sorted({node.version for node in nodes if node.version})
    if idle and all(node.is_draining for node in nodes):
        fix = f"Resume one: peik nodes resume {nodes[0].name}"
        return Finding(name="nodes", grade=Grade.RED, words="All nodes drain, and nobody serves the bots.", fix=fix)
    if idle:
        words = f"{len(idle)} bot(s) or chores are served by no node just now."
        return Finding(name="nodes", grade=Grade.YELLOW, words=words, fix="Ask again after the time of a lease.")
    if len(versions) > 1:
        words = f"Nodes run different versions of Peik: {', '.join(versions)}."
        return Finding(name="nodes", grade=Grade.YELLOW, words=words, fix="Bring all of them to the newest.")
    return Finding(name="nodes", grade=Grade.GREEN, words=f"{len(nodes)} node(s) serve {len(bot_ids)} bot(s).")


def of_running(url: str, health: Mapping[str, object] | None, *, is_named: bool) -> Finding:
    """`is_named`: somebody set this address, so that a Peik is meant to be there."""
    if health is None:
        fix = "Start it with `peik serve`, or set PEIK_URL to where it is."
        grade = Grade.RED if is_named else Grade.YELLOW
        return Finding(name="running", grade=grade, words=f"No Peik answers at {url}.", fix=fix)
    if health.get("status") != "ok":
        return Finding(
            name="running", grade=Grade.RED, words=f"The Peik at {url} cannot store.", fix=f"See {url}/health."
        )
    if health.get("version") != __version__:
        words = f"The Peik at {url} has version {health.get('version')}, this command {__version__}."
        return Finding(name="running", grade=Grade.YELLOW, words=words, fix="Bring both to the newest.")
    return Finding(name="running", grade=Grade.GREEN, words=f"A Peik answers at {url}.")


# What `peik doctor` makes of the facts that matter before a launch: one finding for each, as in `peik.monitoring.doctor`.


BACKUP_S_USUAL = 86_400.0
BACKUP_S_MAX = 7 * 86_400.0
WEBHOOK_ERROR_S = 3600.0
LOG_SILENCE_S = 2 * BEAT_S + 60.0  # a log that is written has a line of its own every beat
PENDING_MANY = 1000
MEMORY_PERCENT_MAX = 80.0


class Seen(enum.StrEnum):
    """How a bot stands in a channel, as far as a sponsor gate needs it."""

    ADMIN = "admin"
    MEMBER = "member"
    OUTSIDE = "outside"


def of_memory(memory: Memory | None, *, percent_max: float = MEMORY_PERCENT_MAX) -> Finding:
    if memory is None:
        return Finding(name="memory", grade=Grade.GREEN, words="How much memory there is cannot be told here.")
    words = f"{memory.used_percent:.0f} % of {memory.total / 1024**3:.1f} GB of {memory.of} are in use."
    if memory.used_percent <= percent_max:
        return Finding(name="memory", grade=Grade.GREEN, words=words)
    return Finding(name="memory", grade=Grade.YELLOW, words=words, fix="Look what takes it, or give more.")


def of_admin_key(key: str | None, *, file_mode: int | None) -> Finding:
    """`file_mode`: of the file that the key lies in, if nobody has set one. None: there is none yet."""
    if key is not None:
        if (weakness := weakness_of(key)) is not None:
            fix = "Leave it out, so that Peik makes one, or set a long random one."
            return Finding(
                name="admin key", grade=Grade.RED, words=f"PEIK_ADMIN_KEY can be guessed: {weakness}.", fix=fix
            )
        return Finding(name="admin key", grade=Grade.GREEN, words="PEIK_ADMIN_KEY looks like chance.")
    if file_mode is not None and file_mode & 0o077:
        words = "Others on this machine may read the file with the admin key."
        return Finding(name="admin key", grade=Grade.RED, words=words, fix="Take the rights away: chmod 600")
    words = "The admin key is made at the first start." if file_mode is None else "The admin key was made by Peik."
    return Finding(name="admin key", grade=Grade.GREEN, words=words)


def of_backup(
    made_at_ms: int | None, *, now_ms: int, every_s: float | None, newest_is_broken: bool, is_launch: bool
) -> Finding:
    """`every_s`: as the settings want them. Before a launch, none at all is red."""
    fix = "Set PEIK_BACKUP_EVERY=24h, or run: peik backup create"
    if newest_is_broken:
        words = "The newest backup was tried out, and is broken."
        return Finding(name="backup", grade=Grade.RED, words=words, fix="Make another: peik backup create")
    if made_at_ms is None:
        grade = Grade.RED if is_launch else Grade.YELLOW
        return Finding(name="backup", grade=grade, words="There is no backup of this store.", fix=fix)
    age_s = max(0.0, (now_ms - made_at_ms) / 1000)
    words = f"The last good backup is {_ago(age_s)} old."
    if age_s <= BACKUP_LATE * (every_s or BACKUP_S_USUAL):
        return Finding(name="backup", grade=Grade.GREEN, words=words)
    is_red = is_launch and age_s > max(BACKUP_S_MAX, BACKUP_LATE * (every_s or 0.0))
    return Finding(name="backup", grade=Grade.RED if is_red else Grade.YELLOW, words=words, fix=fix)


def _ago(age_s: float) -> str:
    if age_s < 7200:
        return f"{age_s / 60:.0f} min"
    return f"{age_s / 3600:.0f} h" if age_s < 2 * 86_400 else f"{age_s / 86_400:.0f} days"


def of_alerts(chats: int, addresses: int) -> Finding:
    if not chats and not addresses:
        fix = "Set PEIK_ADMIN_CHATS to your own chat, PEIK_ALERT_URLS, or both."
        return Finding(name="alerts", grade=Grade.YELLOW, words="Nobody is told if something breaks.", fix=fix)
    words = f"Alerts go to {chats} chat(s) and {addresses} other address(es)."
    return Finding(name="alerts", grade=Grade.GREEN, words=words)


def of_alert_sent(way: str, why: str | None) -> Finding:
    """`why`: what came in between; None: it arrived."""
    if why is None:
        return Finding(name="test alert", grade=Grade.GREEN, words=f"A test alert went to {way}.")
    fix = "A person has to write to the bot first; see docs/alerts.md."
    return Finding(name="test alert", grade=Grade.RED, words=f"The test alert did not go to {way}: {why}", fix=fix)


def of_log(path: str | None, *, age_s: float | None, can_write: bool, is_archived: bool, is_running: bool) -> Finding:
    """`age_s`: of the last line in the file; None: there is no file, or nothing in it."""
    if path is None:
        if is_archived:
            return Finding(name="log", grade=Grade.GREEN, words="The log is kept in the archive.")
        words = "The log goes to stderr only: it lasts as long as whoever started Peik keeps it."
        return Finding(name="log", grade=Grade.YELLOW, words=words, fix="Set PEIK_LOG_FILE=logs/peik.log")
    if not can_write:
        fix = "Give this user the right to write there, or name another PEIK_LOG_FILE."
        return Finding(name="log", grade=Grade.RED, words=f"{path} cannot be written.", fix=fix)
    last = f"nothing is in {path}" if age_s is None else f"the last line in {path} is {_ago(age_s)} old"
    if not is_running:
        fix = "Start Peik, and ask again."
        words = f"No Peik runs that could write the log: {last}."
        return Finding(name="log", grade=Grade.YELLOW, words=words, fix=fix)
    if age_s is None or age_s > LOG_SILENCE_S:
        fix = "Start that Peik with the same PEIK_LOG_FILE, and look at what it says on stderr."
        return Finding(name="log", grade=Grade.YELLOW, words=f"A Peik runs, and {last}: it does not grow.", fix=fix)
    return Finding(name="log", grade=Grade.GREEN, words=f"The log grows: {last}.")


def of_panel(url: str, status: int | None) -> Finding:
    """`status` of the sign-in page; None: no answer."""
    if status == 200:
        return Finding(name="panel", grade=Grade.GREEN, words=f"The admin panel answers at {url}.")
    words = f"The admin panel at {url} {'does not answer' if status is None else f'answers with {status}'}."
    fix = "Look at the log of that Peik, and at what stands before it."
    return Finding(name="panel", grade=Grade.RED, words=words, fix=fix)


def of_oidc(issuer: str, look: OidcLook | str) -> Finding:
    """`look`: what the provider answered, or why it did not."""
    if isinstance(look, str):
        fix = (
            "Write PEIK_OIDC_ISSUER as the provider does, and let this machine reach it. Keys and passwords still work."
        )
        return Finding(name="oidc", grade=Grade.RED, words=f"Nobody can sign in by {issuer}: {look}.", fix=fix)
    if not look.keys:
        words = f"{issuer} shows no key that ID tokens could be signed with."
        return Finding(name="oidc", grade=Grade.RED, words=words, fix="Give its realm or client a key pair (RS256).")
    words = f"{issuer} answers, and shows {look.keys} key(s) that ID tokens are signed with."
    return Finding(name="oidc", grade=Grade.GREEN, words=words)


def of_oidc_claim(
    claim: str, roles: Sequence[tuple[str, str]], *, scope: str, scopes: frozenset[str], refused: str | None
) -> Finding:
    """`refused`: what the claim held when the last one who came got no role. None: the last one got one, or nobody came."""
    given = ", ".join(f"{value} is {role}" for value, role in roles)
    words, fix = f"Roles come from the claim {claim}: {given}.", None
    wanted = claim.partition(".")[0]
    if wanted in scopes and wanted not in scope.split():
        words = f"The provider has a scope {wanted}, which is not asked for: the claim {claim} may be empty."
        fix = f'Set PEIK_OIDC_SCOPE="{scope} {wanted}".'
    elif refused is not None:
        words = f"The last one who came was given no role: {refused}."
        fix = "Let the provider put the claim into ID tokens, or change PEIK_OIDC_CLAIM or PEIK_OIDC_ROLES."
    return Finding(name="oidc claim", grade=Grade.GREEN if fix is None else Grade.YELLOW, words=words, fix=fix)


def of_oidc_address(
    back_url: str, *, is_set: bool, is_alone: bool, refused_status: int, panel_status: int | None
) -> Finding:
    """`is_alone`: nothing but this machine reaches Peik. `panel_status`: of the sign-in page there; None: nobody asked."""
    if refused_status:
        words = f"The provider answers a sign-in that comes back to {back_url} with {refused_status}."
        fix = "Name this address at the provider, to the slash, and look at PEIK_OIDC_CLIENT_ID."
        return Finding(name="oidc address", grade=Grade.RED, words=words, fix=fix)
    if not is_set and not is_alone:
        words = "Where browsers come back to is taken from what they ask for, which a proxy may change."
        fix = "Set PEIK_OIDC_URL to where browsers find the panel: https://peik.example"
        return Finding(name="oidc address", grade=Grade.YELLOW, words=words, fix=fix)
    if not back_url.startswith("https:") and not is_alone:
        words = f"Browsers come back to {back_url}, where anybody on the way can read the code."
        return Finding(name="oidc address", grade=Grade.YELLOW, words=words, fix="Put TLS before it, and write https:.")
    if panel_status not in (None, 200):
        said = f"answers with {panel_status}" if panel_status else "does not answer from here"
        words = f"Browsers come back to {back_url}, whose sign-in page {said}."
        fix = "Look at PEIK_OIDC_URL, and at what stands before Peik."
        return Finding(name="oidc address", grade=Grade.YELLOW, words=words, fix=fix)
    return Finding(name="oidc address", grade=Grade.GREEN, words=f"Browsers come back to {back_url}.")


def of_webhook(
    bot_id: int,
    *,
    inbound: str,
    host: str | None,
    own_host: str | None,
    error: str,
    error_age_s: float,
    pending: int,
) -> Finding:
    """`host`: where Telegram pushes to, None: nowhere; `own_host`: that of PEIK_PUBLIC_URL."""

    def graded(grade: Grade, words: str, fix: str | None = None) -> Finding:
        return Finding(name="webhook", grade=grade, words=words, fix=fix)

    if inbound == "polling" and host is not None:
        fix = (
            "A running Peik takes that webhook away. Stop the program that set it, or leave the updates to it: PEIK_INBOUND=off "
            f"before the first start, `peik bots inbound {bot_id} off` later."
        )
        return graded(Grade.YELLOW, f"Bot {bot_id} is polled, and its webhook leads to {host}.", fix)
    if inbound == "webhook":
        if own_host is None:
            return graded(
                Grade.RED, f"Bot {bot_id} needs a webhook, and Peik has no address for it.", "Set PEIK_PUBLIC_URL."
            )
        if host != own_host:
            fix = "A running Peik sets it; if not, see docs/inbox-sources.md."
            return graded(Grade.YELLOW, f"The webhook of bot {bot_id} leads to {host or 'nowhere'}.", fix)
        if error and error_age_s < WEBHOOK_ERROR_S:
            fix = "Look at the certificate and at what stands before Peik."
            return graded(Grade.YELLOW, f"Pushes to bot {bot_id} failed {_ago(error_age_s)} ago: {error}.", fix)
    if pending > PENDING_MANY and inbound != "off":
        fix = "Start Peik: Telegram keeps them for 24 hours."
        return graded(Grade.YELLOW, f"{pending} updates of bot {bot_id} wait at Telegram.", fix)
    way = {"polling": "is polled, and has no webhook", "webhook": "gets its updates by webhook"}
    return graded(Grade.GREEN, f"Bot {bot_id} {way.get(inbound, 'leaves its updates to others')}.")


def of_channel(channel: str, outcome: Outcome, seen: Seen | None) -> Finding:
    """`seen`: how the bot stands there, if Telegram said so."""
    fix = f"Make the bot an administrator of {channel}."
    match outcome:
        case Delivered() if seen is Seen.ADMIN:
            return Finding(name="channel", grade=Grade.GREEN, words=f"The bot sees who is in {channel}.")
        case Delivered() if seen is Seen.MEMBER:
            words = f"The bot is in {channel}, but only administrators surely see who else is."
            return Finding(name="channel", grade=Grade.YELLOW, words=words, fix=fix)
        case Delivered():
            return Finding(name="channel", grade=Grade.RED, words=f"The bot is not in {channel}.", fix=fix)
        case Refused(words=words):
            return Finding(name="channel", grade=Grade.RED, words=f"The bot cannot see {channel}: {words}.", fix=fix)
        case Limited() | Moved() | Unsent() | Uncertain():
            words = f"{channel} could not be asked about."
            return Finding(name="channel", grade=Grade.YELLOW, words=words, fix="Ask again.")


def of_support(contact: str | None) -> Finding:
    if contact is not None and contact.strip():
        return Finding(name="support", grade=Grade.GREEN, words=f"People who need help are sent to {contact.strip()}.")
    fix = "Set SUPPORT_CONTACT for the bot, or name it here with --support."
    return Finding(name="support", grade=Grade.RED, words="There is nobody whom users can ask for help.", fix=fix)


def of_job(took_s: float | None, why: str | None) -> Finding:
    """`took_s`: from queueing to the stored end; None: it did not get there, because of `why`."""
    if took_s is not None:
        words = f"A test job was queued, done and stored in {took_s * 1000:.0f} ms."
        return Finding(name="job", grade=Grade.GREEN, words=words)
    fix = "Look at the store above, and at PEIK_WORK; see docs/jobs.md."
    return Finding(name="job", grade=Grade.RED, words=f"A test job was not done: {why or 'nobody knows why'}", fix=fix)


# How many new users a day this Peik can take: what was measured, divided by what a user is assumed to cost.
#
# It is an estimate for bots that fetch something for people: a user makes up to five requests, and a request is one
# job and four messages. What a letter, a job and Peik itself take below are assumptions, not measurements.


# What `peik load --find-limit --write` has measured, as a small file that the doctor reads instead of assuming.


SUFFIX = ".load.json"  # beside the database, or in PEIK_HOME: there the doctor looks by itself


class LoadFigure(msgspec.Struct, frozen=True, kw_only=True):
    """Letters a second, answers of bots among them, that this machine kept up with."""

    letters_per_s: float
    store: str
    measured_at: str  # ISO 8601
    machine: str = ""


def write_load_figure(path: Path, figure: LoadFigure) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(figure), indent=1) + b"\n")


def read_load_figure(path: Path) -> LoadFigure | None:
    """None if there is none. Raises ValueError if it is something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=LoadFigure)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"{path} is no figure of `peik load`: {error}") from None


REQUESTS = 5  # of one new user, at most
PEAK = 0.10 * 3 / 3600  # a tenth of a day comes in its busiest hour, and thrice that in its busiest minute: per second
LETTERS = 4  # of one request: it was taken up, how far it is, that it is done, the file
COMMITS = (
    3 * LETTERS + 5
)  # a letter is accepted, marked, settled; an update comes and is read; a job comes, begins, ends
RUN_S = 20.0  # of a job
RUN_BYTES = 24 * 1024**2  # of memory, while it runs
BASE_BYTES = 400 * 1024**2  # of Peik itself with its caches full
LETTER_BYTES = 1500  # in the store, with its indexes
LOG_BYTES = 500  # of a line of the message log
ARRIVAL_BYTES = 2000
SPARE = 1.5  # green: half as much again as is needed
ROOM_BYTES = 50 * 1024**3


class MeasuredCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """What is None could not be measured."""

    commits_per_s: float | None
    letters_per_s: float | None  # of all bots together; None: no pace is kept
    memory_bytes: int | None
    room_bytes: int
    load: LoadFigure | None = None  # of a load test; it says more than commits do


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings keep, and how much room jobs may take."""

    letters_s: float
    arrivals_s: float
    log_s: float
    work_bytes: int


def findings(
    users: int, measured: MeasuredCapacity, keeping: Keeping, *, room_bytes: int = ROOM_BYTES
) -> list[Finding]:
    """`room_bytes`: what must be free in any case."""
    a_second = users * REQUESTS * PEAK
    found = [
        _of_commits(a_second * COMMITS, measured.commits_per_s),
        *([] if measured.load is None else [_of_load(a_second * LETTERS, measured.load)]),
        _of_pace(a_second * LETTERS, measured.letters_per_s),
        _of_memory(BASE_BYTES + a_second * RUN_S * RUN_BYTES, measured.memory_bytes),
        _of_room(max(room_bytes, _stored_bytes(users, keeping) + keeping.work_bytes), measured.room_bytes),
    ]
    return [*found, _of_most(users, most(measured, keeping))]


def most(measured: MeasuredCapacity, keeping: Keeping) -> int:
    """How many new users a day, by whatever is short first."""
    bounds = [(measured.room_bytes - keeping.work_bytes) / _stored_bytes(1, keeping)]
    if measured.load is not None:
        bounds.append(measured.load.letters_per_s / (REQUESTS * PEAK * LETTERS))
    elif measured.commits_per_s is not None:
        bounds.append(measured.commits_per_s / (REQUESTS * PEAK * COMMITS))
    if measured.letters_per_s is not None:
        bounds.append(measured.letters_per_s / (REQUESTS * PEAK * LETTERS))
    if measured.memory_bytes is not None:
        bounds.append((measured.memory_bytes - BASE_BYTES) / (REQUESTS * PEAK * RUN_S * RUN_BYTES))
    return max(0, int(min(bounds)))


def verdict(users: int, found: Iterable[Finding]) -> Finding:
    """Over everything that was found."""
    grades = [one.grade for one in found]
    reds, yellows = grades.count(Grade.RED), grades.count(Grade.YELLOW)
    if reds:
        words = f"Not ready for {users:,} users a day: {reds} red."
        return Finding(name="verdict", grade=Grade.RED, words=words, fix="Mend what is red above, and ask again.")
    if yellows:
        words = f"Ready for {users:,} users a day, with {yellows} yellow."
        return Finding(name="verdict", grade=Grade.YELLOW, words=words, fix="Read what is yellow above.")
    return Finding(name="verdict", grade=Grade.GREEN, words=f"Ready for {users:,} users a day.")


def _stored_bytes(users: int, keeping: Keeping) -> float:
    a_day = (
        LETTERS * (LETTER_BYTES * keeping.letters_s + LOG_BYTES * keeping.log_s) + ARRIVAL_BYTES * keeping.arrivals_s
    )
    return users * REQUESTS * a_day / 86_400


def _of_commits(needed: float, measured: float | None) -> Finding:
    if measured is None:
        fix = "Start `peik serve` once, and ask again."
        return Finding(
            name="commits", grade=Grade.YELLOW, words="There is no store yet to measure commits on.", fix=fix
        )
    words = f"The store makes {measured:.0f} commits a second, one by one; the busiest minute needs {needed:.0f}."
    return _graded("commits", words, measured / needed, "Use a faster disk (an SSD), or a store nearer by.")


def _of_load(needed: float, load: LoadFigure) -> Finding:
    words = (
        f"A load test of {load.measured_at[:10]} kept up with {load.letters_per_s:.0f} letters a second on {load.store}; the "
        f"busiest minute needs {needed:.0f}."
    )
    return _graded(
        "load test", words, load.letters_per_s / needed, "Use a faster machine; measure: peik load --find-limit."
    )


def _of_pace(needed: float, measured: float | None) -> Finding:
    if measured is None:
        return Finding(name="pace", grade=Grade.GREEN, words="No pace is kept: PEIK_PACE is off.")
    words = f"Telegram lets the bots send {measured:.0f} letters a second; the busiest minute needs {needed:.0f}."
    return _graded("pace", words, measured / needed, "Share the users among several bots.")


def _of_memory(needed: float, measured: int | None) -> Finding:
    if measured is None:
        words = "How much memory there is cannot be told here."
        return Finding(name="memory for it", grade=Grade.YELLOW, words=words, fix=f"Have {_gb(needed)} at least.")
    words = f"There are {_gb(measured)} of memory; jobs of the busiest minute and Peik need {_gb(needed)}."
    return _graded("memory for it", words, measured / needed, "Give more memory, or let fewer jobs run: PEIK_JOBS.")


def _of_room(needed: float, free: int) -> Finding:
    words = f"{_gb(free)} of the disk are free; {_gb(needed)} are needed."
    if free >= needed:
        return Finding(name="room for it", grade=Grade.GREEN, words=words)
    fix = "Use a larger disk, keep less (PEIK_KEEP_LOG), or give jobs less (PEIK_WORK_MAX); --disk sets the least."
    return Finding(name="room for it", grade=Grade.RED, words=words, fix=fix)


def _of_most(users: int, can: int) -> Finding:
    words = f"By what was measured, about {float(f'{can:.2g}'):,.0f} new users a day can be served."
    return _graded("capacity", words, can / users, "See above what is short.")


def _graded(name: str, words: str, times: float, fix: str) -> Finding:
    if times >= SPARE:
        return Finding(name=name, grade=Grade.GREEN, words=words)
    return Finding(name=name, grade=Grade.YELLOW if times >= 1 else Grade.RED, words=words, fix=fix)


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1024**3:.1f} GB"
