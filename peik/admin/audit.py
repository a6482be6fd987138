"""The audit log: who did what to Peik, by whichever door, and what came of it.

A line is begun before the deed and ended after it. Without its beginning nothing is done, so that no deed is missing; a crash
in between leaves a line that says so: begun, and nobody knows.
"""

import asyncio
import contextlib
import enum
import secrets

import msgspec

from peik.admin.model import ActionTaken
from peik.admin.sign_ins import Attempts, Refusals, SignIns
from peik.clock import Clock
from peik.core.documents import DocumentStore, Filing, StoredDocument
from peik.core.events import Events, StoreFailed, Surprise
from peik.errors import Conflict, StoreUnavailable, described

COLLECTION = "audit"
KEEP_S = 90 * 86_400.0
DETAIL_CHARS_MAX = 500
SCAN_MAX = 5_000  # lines that one question looks at
REPEAT_S = 60.0  # what is alike within such a time is one line
REPEATS_MAX = 10_000
_PAGE = 500
_SWEEP = 1_000


class Outcome(enum.StrEnum):
    BEGUN = "begun"  # still under way, or cut off by a crash
    DONE = "done"
    REFUSED = "refused"


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # rises with time; also the cursor
    at_ms: int
    who: str
    action: str
    target: str
    outcome: Outcome
    detail: str = ""
    address: str = ""


class _Repeat(msgspec.Struct):
    """A line that stands for many."""

    line: AuditLine
    since: float
    times: int = 0
    version: int = 0


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """`cursor` None: there are no older ones. A page may be short of its limit and have a cursor all the same."""

    lines: list[AuditLine]
    cursor: str | None


class Audit:
    def __init__(self, documents: DocumentStore, clock: Clock, events: Events, *, keep_s: float = KEEP_S) -> None:
        self._documents = documents
        self._clock = clock
        self._events = events
        self._keep_s = keep_s
        self.refusals = Refusals(clock)
        self._repeats: dict[tuple[str, ...], _Repeat] = {}

    async def begin(self, *, who: str, action: str, target: str, address: str = "") -> AuditLine:
        """Before the deed. Raises StoreUnavailable: then it must not be done."""
        line = self._line(who=who, action=action, target=target, outcome=Outcome.BEGUN, detail="", address=address)
        await self._documents.file([_filing(line, version=0)])
        return line

    async def end(self, line: AuditLine, *, is_done: bool, target: str | None = None, detail: str = "") -> None:
        """After the deed, which stands whatever becomes of this: a store that fails leaves the line as it was begun."""
        ended = msgspec.structs.replace(
            line,
            outcome=Outcome.DONE if is_done else Outcome.REFUSED,
            target=line.target if target is None else target[:DETAIL_CHARS_MAX],
            detail=detail[:DETAIL_CHARS_MAX],
        )
        self._tell(ended)
        try:
            await self._documents.file([_filing(ended, version=1)])
        except (StoreUnavailable, Conflict):
            return

    async def note(
        self, *, who: str, action: str, target: str, is_done: bool, detail: str = "", address: str = ""
    ) -> None:
        """A whole line at once, of what is over."""
        outcome = Outcome.DONE if is_done else Outcome.REFUSED
        line = self._line(who=who, action=action, target=target, outcome=outcome, detail=detail, address=address)
        await self._documents.file([_filing(line, version=0)])
        self._tell(line)

    async def note_refused_again(self, *, who: str, action: str, target: str, detail: str, address: str) -> None:
        """A refusal of which there may be thousands: one line for a minute, written anew at the second, fourth, eighth … of them.
        It never says more than there were, and never less than half. A store that fails is no matter: nothing was done."""
        about, now = (who, action, target, detail, address), self._clock.mono()
        repeat = self._repeats.get(about)
        if repeat is None or now - repeat.since >= REPEAT_S:
            if len(self._repeats) >= REPEATS_MAX:
                self._repeats.clear()
            line = self._line(
                who=who, action=action, target=target, outcome=Outcome.REFUSED, detail=detail, address=address
            )
            repeat = self._repeats[about] = _Repeat(line, now)
            self._tell(line)
        repeat.times += 1
        if repeat.times & (repeat.times - 1):
            return
        version, repeat.version = repeat.version, repeat.version + 1
        said = detail if repeat.times == 1 else f"{detail}, {repeat.times} times or more"
        with contextlib.suppress(StoreUnavailable, Conflict):
            await self._documents.file([_filing(msgspec.structs.replace(repeat.line, detail=said), version=version)])

    async def find(
        self,
        *,
        who: str | None = None,
        action: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> AuditPage:
        """The newest first. `action` matches whole, or as a beginning before a dot: `letters` finds `letters.retry`."""
        found: list[AuditLine] = []
        after = cursor if cursor is not None else None if until_ms is None else _key_at(until_ms)
        until = None if since_ms is None else _key_at(since_ms)
        looked = 0
        while looked < SCAN_MAX:
            page = await self._documents.documents(COLLECTION, after=after, until=until, limit=_PAGE, is_backwards=True)
            for document in page:
                after = document.key
                looked += 1
                line = _read(document)
                if _is_wanted(line, who, action):
                    found.append(line)
                    if len(found) == limit:
                        return AuditPage(lines=found, cursor=after)
            if len(page) < _PAGE:
                return AuditPage(lines=found, cursor=None)
        return AuditPage(lines=found, cursor=after)

    async def sweep(self, *, at_ms: int) -> int:
        """Let go of what is too old; how many lines went."""
        until = _key_at(at_ms - int(self._keep_s * 1000))
        gone = 0
        while (count := await self._documents.clear_collection(COLLECTION, until=until, limit=_SWEEP)) == _SWEEP:
            gone += count
        return gone + count

    def _line(self, *, who: str, action: str, target: str, outcome: Outcome, detail: str, address: str) -> AuditLine:
        at_ms = self._clock.wall_ms()
        return AuditLine(
            id=f"{_key_at(at_ms)}-{secrets.token_hex(4)}",  # several nodes write at once
            at_ms=at_ms,
            who=who,
            action=action,
            target=target[:DETAIL_CHARS_MAX],
            outcome=outcome,
            detail=detail[:DETAIL_CHARS_MAX],
            address=address,
        )

    def _tell(self, line: AuditLine) -> None:
        is_done = line.outcome is Outcome.DONE
        self._events.tell(ActionTaken(who=line.who, action=line.action, target=line.target, is_done=is_done))


def _is_wanted(line: AuditLine, who: str | None, action: str | None) -> bool:
    if who is not None and line.who != who:
        return False
    return action is None or line.action == action or line.action.startswith(f"{action}.")


def _key_at(at_ms: int) -> str:
    return f"{max(at_ms, 0):014d}"


def _read(document: StoredDocument) -> AuditLine:
    return msgspec.json.decode(document.body, type=AuditLine)


def _filing(line: AuditLine, *, version: int) -> Filing:
    return Filing(collection=COLLECTION, key=line.id, body=msgspec.json.encode(line).decode(), version=version)


# Lets go of what is over: old lines of the audit log, old sign-ins, old failures. Any node may, as often as it likes.


EVERY_S = 3600.0


class AdminUpkeep:
    def __init__(self, *, audit: Audit, sign_ins: SignIns, attempts: Attempts, clock: Clock, events: Events) -> None:
        self._audit = audit
        self._sign_ins = sign_ins
        self._attempts = attempts
        self._clock = clock
        self._events = events

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.once()
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="the audit log", why=error.detail))
            except Conflict:
                pass  # another node was at the same; the rest goes the next time
            except Exception as error:  # noqa: BLE001  nobody waits for this task: what ends it would end it in silence
                self._events.tell(Surprise(where="upkeep of the dashboard", error=described(error)))
            await asyncio.sleep(EVERY_S)

    async def once(self) -> None:
        await self._audit.sweep(at_ms=self._clock.wall_ms())
        await self._sign_ins.sweep()
        await self._attempts.sweep(at_ms=self._clock.wall_ms())
