"""What `peik doctor` makes of the facts that matter before a launch: one finding for each, as in `peik.ops.doctor`."""

import enum

from peik.core.key_strength import weakness_of
from peik.core.outcome import Delivered, Limited, Moved, Outcome, Refused, Uncertain, Unsent
from peik.ops.alert_machine import Memory
from peik.ops.doctor import Finding, Grade

BACKUP_S_USUAL = 86_400.0
BACKUP_LATE = 1.5  # times the usual: one may be under way
BACKUP_S_MAX = 7 * 86_400.0
WEBHOOK_ERROR_S = 3600.0
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
    if age_s is not None:
        return Finding(name="log", grade=Grade.GREEN, words=f"The last line in {path} is {_ago(age_s)} old.")
    if is_running:
        fix = "Start that Peik with the same PEIK_LOG_FILE, and look at what it says on stderr."
        return Finding(name="log", grade=Grade.YELLOW, words=f"A Peik runs, and nothing is in {path}.", fix=fix)
    return Finding(name="log", grade=Grade.GREEN, words=f"The log will be written to {path}.")


def of_panel(url: str, status: int | None) -> Finding:
    """`status` of the sign-in page; None: no answer."""
    if status == 200:
        return Finding(name="panel", grade=Grade.GREEN, words=f"The admin panel answers at {url}.")
    words = f"The admin panel at {url} {'does not answer' if status is None else f'answers with {status}'}."
    fix = "Look at the log of that Peik, and at what stands before it."
    return Finding(name="panel", grade=Grade.RED, words=words, fix=fix)


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
        fix = "Stop the program that set it; a running Peik takes the webhook away."
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
