"""What `peik doctor` makes of facts: one finding for each, green, yellow or red, with the fix in a line. It asks nobody."""

import enum
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from peik import __version__
from peik.core.outcome import Delivered, Limited, Moved, Outcome, Refused, Uncertain, Unsent
from peik.node_ports import CHORES, NodeRecord

SKEW_S_GOOD = 1.0
SKEW_S_MAX = 10.0  # send_at and expires_at are off by so much, on one node and not on another
ROOM_BYTES_GOOD = 1024**3
ROOM_BYTES_MIN = 100 * 1024**2
FILES_GOOD = 4096
FILES_SPARE = 512  # for the store, files and the way to Telegram; see peik.doors.listening

# Of the sentences about a store's settings those that cost little, or of which nothing is known.
_MILD = ("up to a second", "turns it on for itself", "cannot be told")
_ADVICE = ("Set", "Turn", "Name", "Check")


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


def of_durability(sentences: Sequence[str]) -> list[Finding]:
    if not sentences:
        return [Finding(name="durability", grade=Grade.GREEN, words="What was accepted outlives a power cut.")]
    return [_weak(sentence) for sentence in sentences]


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
    """Of Python itself, in something that Peik uses; mended from these releases of 3.11, 3.12 … on."""

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
