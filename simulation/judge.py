"""The invariants, looked at whenever something happens that could break one, and once more at the end.

They are listed in docs/world.md.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from peik.core.arrival import read_update, wire_id
from peik.core.letter import is_edit
from peik.core.methods import classify
from peik.core.nodes import CHORES
from peik.core.outcome import Reply
from peik.telegram.port import Request
from peik.testing.answer import Delivery, Ledger
from peik.testing.updates import SHORT_LIVES_S, QueueId, UpdateEvent, UpdateQueue
from simulation.network import Try
from simulation.promises import Promise, Promises, Row, Witness

# What Telegram itself tolerates (docs/telegram.md, Flood limits). Peik's own figures are a little below them.
CHAT_PER_S = 1.0
CHAT_BURST = 5
GROUP_PER_MIN = 20
BULK_PER_S = 30
MINUTE_S = 60.0
LATE_MS = 3000  # a mark may be on its way to the disk when the time is over
BACKOFF_S = 1.9  # the least that a letter waits after a try in doubt
HOLD_SLACK_S = 1.5  # in a group: a letter of another thread may have been on its way to the wire when the 429 came


class Judge:
    """Raises nothing: what is wrong is kept in `wrong`, and the world stops at its next step."""

    def __init__(
        self,
        promises: Promises,
        witness: Witness,
        *,
        now: Callable[[], float],
        step: Callable[[], int],
        wall_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self._promises = promises
        self._witness = witness
        self._now = now
        self._step = step
        self._wall_ms = wall_ms
        self.has_jumped = False  # the wall clock was set
        self.wrong: list[str] = []
        self.repeats = 0
        self._holds: dict[tuple[str, int, object], tuple[float, float]] = {}
        self._began: dict[str, float] = {}  # processes
        self._stored_at: dict[tuple[int, object, int], float] = {}  # holds: when they were first seen in the store
        self._tries: dict[tuple[int, int], list[Try]] = {}

    def note(self, what: str) -> None:
        self.wrong.append(what)

    def began(self, process: str) -> None:
        """A process starts. Whatever is stored by now, it can know."""
        self.look_at_holds()
        self._began[process] = self._now()

    # ---- a try leaves ----

    def left(self, one: Try) -> Promise | None:
        """A process sends a request to Telegram."""
        promise = self.promise_of(one.request)
        if promise is None:
            return None
        promise.tries += 1
        promise.unheard += 1
        row = self.row_of(promise)
        one.epoch = None if row is None else row.epoch
        if row is None:
            self.note(f"{promise.name} was sent, and the store does not know it")
        elif not row.is_marked:
            self.note(f"{promise.name} was sent without a mark")
        elif row.phase != 0:
            self.note(f"{promise.name} was sent in phase {row.phase}")
        params = msgspec.json.decode(one.request.params)
        self._check_time(promise)
        self._check_file(one, promise, params)
        self._check_hold(one, promise, params)
        self._check_stored_hold(one, promise, params)
        chat = params.get("chat_id")
        one.is_bulk = promise.priority is not None and promise.priority <= 0
        if isinstance(chat, int):
            self._tries.setdefault((promise.bot_id, chat), []).append(one)
        return promise

    def _check_time(self, promise: Promise) -> None:
        if self.has_jumped:
            return  # by a clock that was set, anything may be early or late
        if self._now() < promise.not_before and not promise.is_retried:
            self.note(f"{promise.name} was tried again without a pause")
        wall_ms = self._wall_ms()
        if promise.send_at_ms is not None and wall_ms < promise.send_at_ms:
            self.note(f"{promise.name} was sent {promise.send_at_ms - wall_ms} ms too early")
        if promise.expires_at_ms is not None and wall_ms > promise.expires_at_ms + LATE_MS:
            self.note(f"{promise.name} was sent {wall_ms - promise.expires_at_ms} ms after its end")

    def _check_file(self, one: Try, promise: Promise, params: dict[str, object]) -> None:
        """A file goes with its letter, whole; or by the id that Telegram gave it."""
        if promise.method != "sendDocument" or isinstance(params.get("document"), str):
            return
        contents = [one.path.read_bytes() for one in one.request.enclosures]
        if contents != [promise.name.encode()]:
            self.note(f"{promise.name} was sent with {contents!r}")

    def row_of(self, promise: Promise) -> Row | None:
        if promise.letter_id is not None:
            return self._witness.letter(promise.letter_id)
        return self._witness.named(promise.bot_id, promise.chat, promise.name)

    def promise_of(self, request: Request) -> Promise | None:
        _, kind = classify(request.method)
        if kind is None or not kind.is_queued:
            return None
        params = msgspec.json.decode(request.params)
        return self._promises.of_text(str(params.get("text") or params.get("caption") or ""))

    def _check_hold(self, one: Try, promise: Promise, params: dict[str, object]) -> None:
        chat = params.get("chat_id")
        since, until = self._holds.get((one.process.name, promise.bot_id, chat), (0.0, 0.0))
        slack_s = HOLD_SLACK_S if isinstance(chat, int) and chat < 0 else 0.0
        if since + slack_s <= self._now() < until - 0.01:
            self.note(f"{promise.name} was sent to {chat} {until - self._now():.2f} s before a hold ended")

    def _check_stored_hold(self, one: Try, promise: Promise, params: dict[str, object]) -> None:
        """A hold that was stored before a process began is one that it keeps."""
        if self.has_jumped:
            return
        for held in (params.get("chat_id"), None):
            until_ms = self._witness.held_until(promise.bot_id, held)
            stored_at = self._stored_at.get((promise.bot_id, held, until_ms), float("inf"))
            left_ms = until_ms - self._wall_ms()
            if stored_at < self._began.get(one.process.name, 0.0) and left_ms > 10:
                whom = "the bot" if held is None else f"chat {held}"
                self.note(f"{promise.name} was sent {left_ms} ms before a stored hold of {whom} ended")

    def look_at_holds(self) -> None:
        for bot_id, chat, until_ms in self._witness.holds():
            self._stored_at.setdefault((bot_id, chat, until_ms), self._now())

    # ---- the pace ----

    def _check_pace(self) -> None:
        """Over all that has left by now. What did not reach Telegram, or was refused by it, does not count there either."""
        for (_, chat), tries in self._tries.items():
            # Edits have a minute of their own in groups, and no second to keep in private chats.
            sends = [one for one in tries if not is_edit(one.request.method)]
            for left in self._in_one_memory(sends):
                wrong = _crowded(left) if chat < 0 else _hurried(left)
                if wrong:
                    self.note(f"{wrong} to chat {chat}")
            edits = [one for one in tries if is_edit(one.request.method)] if chat < 0 else []
            for left in self._in_one_memory(edits):
                if _crowded(left):
                    self.note(f"{GROUP_PER_MIN + 1} edits in a minute in chat {chat}")
        for bot_id in {bot_id for bot_id, _ in self._tries}:
            bulk = [one for (own, _), tries in self._tries.items() if own == bot_id for one in tries if one.is_bulk]
            if _rushed(sorted(one.started_at for one in bulk if one.reply is None or _may_count(one.reply))):
                self.note(f"more than {BULK_PER_S} letters of bulk of {bot_id} in a second")
        horizon = self._now() - 2 * MINUTE_S
        self._tries = {key: [one for one in tries if one.started_at > horizon] for key, tries in self._tries.items()}

    def _in_one_memory(self, tries: list[Try]) -> Iterator[list[float]]:
        """When tries left that one pace knows of. By a clock that was set, a new process cannot tell how old the last are."""
        by_process: dict[str, list[float]] = {}
        for one in tries:
            if one.reply is None or _may_count(one.reply):
                by_process.setdefault(one.process.name if self.has_jumped else "", []).append(one.started_at)
        yield from by_process.values()

    # ---- its answer is heard ----

    def told(self, one: Try) -> None:
        """A process hears what became of its request."""
        promise = self.promise_of(one.request)
        reply = one.reply
        if promise is None or reply is None:
            return
        promise.unheard -= 1
        promise.last_status = reply.status or None
        if reply.status == 429:
            wait_s = _retry_after(reply)
            chat = msgspec.json.decode(one.request.params).get("chat_id")
            key = (one.process.name, promise.bot_id, chat)
            known = self._holds.get(key, (0.0, 0.0))
            self._holds[key] = max(known, (self._now(), self._now() + wait_s), key=lambda hold: hold[1])
            promise.doubts += 1  # soon after a 5xx it counts as one
        elif 400 <= reply.status < 500:
            promise.refusals += reply.status not in (401, 404)  # those are of the bot, and no letter dies of them
        elif reply.status != 200 and reply.left:
            promise.doubts += 1
            row = self.row_of(promise)
            if row is not None and row.epoch == one.epoch:  # nobody has taken it over, and settled it long ago
                promise.not_before = self._now() + BACKOFF_S

    # ---- it takes effect ----

    def delivered(self, delivery: Delivery) -> None:
        promise = self._promises.of_text(delivery.text)
        if promise is None:
            return  # a notice or an alert of Peik's own
        is_first = not promise.deliveries
        promise.deliveries.append(self._step())
        if is_first:
            self._check_order(promise)
            return
        self.repeats += 1
        if promise.is_at_most_once and not promise.is_retried:
            self.note(f"{promise.name} may arrive at most once, and arrived {len(promise.deliveries)} times")

    def _check_order(self, promise: Promise) -> None:
        if not promise.keeps_order:
            return
        for other in self._promises.by_lane[promise.lane]:
            if other is promise or other.deliveries or not other.keeps_order or other.acked_at is None:
                continue
            if other.acked_at < promise.asked_at and not self._is_over(other):
                self.note(f"{promise.name} overtook {other.name} in {promise.lane}")

    def _is_over(self, promise: Promise) -> bool:
        """Whether it needs no turn any more: it ended, or Telegram's no to it is about to be stored."""
        if promise.last_status is not None and 400 <= promise.last_status < 500 and promise.last_status != 429:
            return True
        row = self.row_of(promise)
        return row is not None and row.phase >= 2

    # ---- its sender is told ----

    def acknowledged(self, promise: Promise) -> None:
        """From now on it must never be lost: so it is in the store at this moment."""
        if not self.is_stored(promise):
            self.note(f"{promise.name} was accepted, and is not in the store")

    def is_over_for_good(self, promise: Promise) -> bool:
        row = self.row_of(promise)
        return row is not None and row.phase in (2, 4)

    def is_stored(self, promise: Promise) -> bool:
        return self.row_of(promise) is not None

    # ---- at any time ----

    def look(self) -> None:
        """Whatever was acknowledged is in the store, and the pace was kept."""
        self._check_pace()
        self.look_at_holds()
        known = self._witness.known_ids()
        for promise in self._promises:
            if promise.letter_id is not None and promise.letter_id not in known:
                self.note(f"{promise.name} was accepted as {promise.letter_id}, and is gone")

    # ---- at the end ----

    def verdict(self, *, deaths: int) -> Iterator[str]:
        """What is wrong with how it all ended. `deaths`: how often a process died with tries in hand."""
        rows = {row.id: row for row in self._witness.letters()}
        yield from self._last_edits(rows)
        named = {found.name: row for row in rows.values() if (found := self._promises.of_text(row.text)) is not None}
        for promise in self._promises:
            row = rows.get(promise.letter_id) if promise.letter_id is not None else named.get(promise.name)
            yield from self._end_of(promise, row, deaths)
            if row is not None and row.merged_into is not None:
                yield from self._end_of_merged(promise, row, rows.get(row.merged_into))

    def _end_of(self, promise: Promise, row: Row | None, deaths: int) -> Iterator[str]:
        if row is None:
            if promise.acked_at is not None:
                yield f"{promise.name} was accepted, and is not in the store"
            elif promise.deliveries:
                yield f"{promise.name} was delivered, and is not in the store"
            return
        arrived = len(promise.deliveries)
        if row.phase < 2:
            yield f"{promise.name} has not ended: phase {row.phase}"
        if row.phase == 2 and not arrived and not promise.is_retried and row.merged_into is None:
            yield f"{promise.name} is completed, and never arrived"
        if row.phase == 3 and row.merged_into is None:
            yield from self._why_failed(promise, row)
        if row.phase == 4 and not promise.is_retried:
            yield f"{promise.name} was cancelled, and nobody asked for it"
        if row.merged_into is not None and row.merged_into <= row.id:
            yield f"{promise.name} gave way to an older edit"
        if promise.is_hooked and not promise.heard:
            yield f"nobody was told how {promise.name} ended"
        if arrived > 1 + row.uncertain_tries and not promise.is_retried:
            yield f"{promise.name} arrived {arrived} times, with {row.uncertain_tries} uncertain tries"
        if row.uncertain_tries > promise.doubts + promise.unheard + deaths and not promise.is_retried:
            yield f"{promise.name} has {row.uncertain_tries} uncertain tries where there were {promise.doubts}"

    def _end_of_merged(self, promise: Promise, row: Row, newer: Row | None) -> Iterator[str]:
        """An edit that gave way ends as the newer one does, unless that was never sent: then it comes back."""
        if newer is None:
            yield f"{promise.name} gave way to a letter that is not in the store"
            return
        if row.phase == 4:
            return  # it was taken back itself
        is_expired_unsent = newer.phase == 3 and newer.failed_reason == "expired" and not newer.uncertain_tries
        if newer.phase == 4 or is_expired_unsent:
            yield f"{promise.name} ended with a newer edit that was never sent"
        other = self._promises.of_text(newer.text)
        was_touched = promise.is_retried or other is None or other.is_retried
        if (row.phase, row.failed_reason) != (newer.phase, newer.failed_reason) and not was_touched:
            yield f"{promise.name} gave way, and did not end as the newer edit did"

    def _last_edits(self, rows: dict[int, Row]) -> Iterator[str]:
        """Of several edits of one message the last that was asked for is what it shows in the end."""
        wanted: dict[str, Promise] = {}
        shown: dict[str, Promise] = {}
        for promise in self._promises:
            if promise.target is None or promise.is_retried:
                continue
            name = promise.target.name
            row = None if promise.letter_id is None else rows.get(promise.letter_id)
            if row is not None and row.phase == 2 and row.merged_into is None:
                wanted[name] = promise
            if promise.deliveries and (name not in shown or shown[name].deliveries[-1] < promise.deliveries[-1]):
                shown[name] = promise
        for name, promise in wanted.items():
            last = shown.get(name)
            if last is not None and (last.doubts or last.unheard):
                continue  # a try in doubt may take effect long after it was given up
            if last is None or last.asked_at < promise.asked_at:
                yield f"{name} does not show its last edit, {promise.name}"

    def _why_failed(self, promise: Promise, row: Row) -> Iterator[str]:
        reason = row.failed_reason or ""
        match reason:
            case "uncertain":
                if not promise.is_at_most_once and row.uncertain_tries <= 10:
                    yield f"{promise.name} failed as uncertain after {row.uncertain_tries} uncertain tries"
            case "expired":
                if promise.expires_at_ms is None:
                    yield f"{promise.name} expired, and had no end"
            case _ if reason.startswith("it refers to letter"):
                if promise.target is None or _is_sure(promise.target):
                    yield f"{promise.name} failed although its letter arrived: {reason}"
            case _:
                if not promise.refusals and not reason.startswith(("Forbidden", "Bad Request")):
                    yield f"{promise.name} failed without a refusal: {reason}"


def _is_sure(promise: Promise) -> bool:
    """Whether Peik itself knows that it arrived, and nobody has touched it since."""
    return bool(promise.deliveries) and not promise.is_retried and not promise.is_at_most_once


def _may_count(reply: Reply) -> bool:
    return reply.left and not 400 <= reply.status < 500


def _crowded(left: list[float]) -> str | None:
    for place in range(GROUP_PER_MIN, len(left)):
        if left[place] - left[place - GROUP_PER_MIN] < MINUTE_S - 0.1:
            return f"{GROUP_PER_MIN + 1} messages in a minute"
    return None


def _rushed(left: list[float]) -> bool:
    return any(left[place] - left[place - BULK_PER_S] < 0.9 for place in range(BULK_PER_S, len(left)))


def _hurried(left: list[float]) -> str | None:
    """A leaky bucket: n messages in a row need n - burst seconds."""
    for last in range(CHAT_BURST, len(left)):
        for first in range(last - CHAT_BURST + 1):
            count, took_s = last - first + 1, left[last] - left[first]
            if took_s < (count - CHAT_BURST) / CHAT_PER_S - 0.1:
                return f"{count} messages in {took_s:.2f} s"
    return None


class WatchedLedger(Ledger):
    """Telegram's own record of what took effect; the judge looks over its shoulder."""

    def __init__(self, tell: Callable[[Delivery], None]) -> None:
        super().__init__()
        self._tell = tell

    def add(self, delivery: Delivery) -> None:
        super().add(delivery)
        self._tell(delivery)


def _retry_after(reply: Reply) -> float:
    parameters = msgspec.json.decode(reply.body).get("parameters", {})
    return float(parameters.get("retry_after", 0))


# The invariants of leases: who sends has the right to, one at a time, and whoever takes over knows what the last one
# knew.


_HOLDER = """
SELECT s.epoch, s.node, n.ends_at FROM model_leases AS s LEFT JOIN model_nodes AS n ON n.name = s.node WHERE s.bot_id = ?
"""
_HOLDS = "SELECT chat, held_until FROM chats WHERE bot_id = ? AND held_until > ?"
_SLACK_MS = 10


def process_of(node: str) -> str:
    """Of the store's node: it has a new name whenever Peik is opened anew within one process."""
    return node.partition("/")[0]


class LeaseRules:
    """`now_ms` is the server's clock. `note` hears what is wrong."""

    def __init__(self, witness: Witness, *, now_ms: Callable[[], int], note: Callable[[str], None]) -> None:
        self._witness = witness
        self._now_ms = now_ms
        self._note = note
        self.has_jumped = False  # some wall clock was set
        self.grants = 0
        self._epochs: dict[int, int] = {}  # by bot: the last that was given
        self._holds: dict[int, dict[object, int]] = {}  # by bot: what was known when its lease was last taken
        self._flights: dict[str, list[Try]] = {}  # by promise

    def granted(self, bot_id: int, epoch: int, node: str) -> None:
        """The server gave a lease away."""
        if epoch <= self._epochs.get(bot_id, 0):
            self._note(f"the epoch of {bot_id} did not rise: {epoch}")
        self.grants += 1
        self._epochs[bot_id] = epoch
        if bot_id != CHORES:
            self._holds[bot_id] = dict(self._witness.look(_HOLDS, bot_id, self._now_ms()))

    def left(self, one: Try, promise: Promise, row: Row | None, chat: object) -> None:
        """A request leaves a node. Nothing happens in between: what the node believes now must be so at the server now."""
        if row is None or row.epoch is None:
            return  # told of already
        for bot_id, node in self._witness.look("SELECT bot_id, node FROM model_epochs WHERE epoch = ?", row.epoch):
            if (bot_id, process_of(node)) != (promise.bot_id, one.process.name):
                self._note(f"{promise.name} was sent by {one.process} under epoch {row.epoch}, which is that of {node}")
        for epoch, node, ends_at in self._witness.look(_HOLDER, promise.bot_id):
            if epoch != row.epoch or node is None or process_of(node) != one.process.name:
                self._note(f"{promise.name} was sent by {one.process} under epoch {row.epoch}, and {node} has {epoch}")
            elif ends_at <= self._now_ms():
                self._note(f"{promise.name} was sent by {one.process} {self._now_ms() - ends_at} ms after its lease")
        held_until = self._holds.get(promise.bot_id, {}).get(chat, 0)
        if held_until - _SLACK_MS > self._now_ms() and not self.has_jumped:
            self._note(f"{promise.name} was sent to {chat} in a hold that was stored before {one.process} took over")
        flights = self._flights.setdefault(promise.name, [])
        elsewhere = [other for other in flights if other.process is not one.process and other.reply is None]
        if row.uncertain_tries < len(elsewhere) and not promise.is_retried:
            self._note(f"{promise.name} was sent by {one.process} while {elsewhere[-1].process} had it in flight")
        flights.append(one)

    def lost(self, nodes: Iterable[str]) -> Iterator[str]:
        """What nobody who lives has. After two calm lease times there must be nothing."""
        living = set(nodes)
        for bot_id, node in self._witness.look("SELECT bot_id, node FROM model_leases"):
            if node is not None and process_of(node) not in living:
                yield f"the lease of {bot_id} is still that of {node}"

    def uneven(self, nodes: Iterable[str]) -> Iterator[str]:
        """Who has more than its share. It lets go when nothing of a bot is in flight any more."""
        living = set(nodes)
        leases = self._witness.look("SELECT node FROM model_leases")
        most = -(-len(leases) // max(1, len(living)))
        held = Counter(process_of(node) for (node,) in leases if node is not None)
        for name, count in held.items():
            if count > most:
                yield f"{name} has {count} of {len(leases)} leases, more than its share of {most}"


# The invariants of the inbox: nothing is confirmed before its commit, all is stored once and in order, and handed on.


if TYPE_CHECKING:
    from simulation.clients import Draft, Program
    from simulation.promises import Witness


class WatchedQueue(UpdateQueue):
    """Telegram's queue of a bot. Whatever an offset deletes must be committed at that very moment."""

    def __init__(
        self, chance: random.Random, is_stored: Callable[[UpdateEvent], bool], tell: Callable[[str], None]
    ) -> None:
        super().__init__(chance)
        self._is_stored = is_stored
        self._tell = tell
        self._is_confirming = False
        self.all: list[UpdateEvent] = []
        self.given_up: set[int] = set()  # by id(): what Telegram itself let go before anybody had it

    def push(
        self, kind: str, payload: bytes, *, now: float, expires_at: float, queue_id: QueueId | None
    ) -> UpdateEvent | None:
        event = super().push(kind, payload, now=now, expires_at=expires_at, queue_id=queue_id)
        if event is not None:
            self.all.append(event)
        return event

    def drop(self, event: UpdateEvent) -> None:
        if not event.is_gone and not self._is_stored(event):
            if self._is_confirming:
                self._tell(f"update {event.id} was confirmed, and is not stored")
            self.given_up.add(id(event))
        super().drop(event)

    def _delete_below(self, offset: int) -> None:
        with self._confirming():
            super()._delete_below(offset)

    def clear(self, *, keep: int = 0) -> None:
        with self._confirming():
            super().clear(keep=keep)

    @contextlib.contextmanager
    def _confirming(self) -> Iterator[None]:
        self._is_confirming = True
        yield
        self._is_confirming = False


def verdict(queue: WatchedQueue, witness: "Witness", program: "Program", *, handed_all: bool) -> Iterator[str]:
    """What is wrong with a bot's inbox when all is quiet. `handed_all`: nothing was to be kept from the program."""
    bot_id = program.bot_id
    lines: dict[QueueId, int] = {}
    twins = Counter(read_update(event.body).digest for event in queue.all)
    for place, event in enumerate(queue.all):
        update = read_update(event.body)
        found = witness.numbers_of(bot_id, update)
        if twins[update.digest] > 1 and len(found) <= twins[update.digest]:
            continue  # the same thing happened twice within a second
        if len(found) > 1 or (not found and id(event) not in queue.given_up):
            yield f"update {place} ({event.id}) of {bot_id} is stored {len(found)} times"
        for number in found:
            if number < lines.get(event.queue_id, 0):
                yield f"update {place} ({event.id}) of {bot_id} is out of order"
            lines[event.queue_id] = number
    rows = witness.look("SELECT number, lane, type FROM arrivals WHERE bot_id = ? ORDER BY number", bot_id)
    numbers = [row[0] for row in rows]
    if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        yield f"the numbers of {bot_id} have gaps"
    yield from _handed(program, rows, handed_all=handed_all)


def _handed(program: "Program", rows: list[tuple[int, object, str]], *, handed_all: bool) -> Iterator[str]:
    lanes = {wire_id(number): lane for number, lane, _ in rows}
    last: dict[object, int] = {}
    for number in program.order:
        lane = lanes.get(number)
        if lane is None:
            yield f"the program of {program.bot_id} got update {number}, which is not stored"
            continue
        if number < last.get(lane, 0):
            yield f"the program of {program.bot_id} got update {number} after a later one of {lane}"
        last[lane] = number
    if handed_all:
        missing = not_handed(program, [(number, kind) for number, _, kind in rows])
        if missing:
            yield f"the program of {program.bot_id} never got {len(missing)} updates: {missing[:5]}"


def not_handed(program: "Program", rows: list[tuple[int, str]]) -> list[int]:
    """Numbers that a program should have got by now. A query that is too old to be answered is not handed on."""
    return [number for number, kind in rows if kind not in SHORT_LIVES_S and wire_id(number) not in program.handed]


# ---- messages that are used before they are sent ----


def draft_verdict(draft: "Draft", witness: Witness, messages: Mapping[int, Any]) -> Iterator[str]:
    """What is wrong with a message that a bot changed, answered or took back as soon as it had said it."""
    versions = [str(one["text"]) for one in messages.values() if _is_of(draft.name, one)]
    for one in messages.values():
        to = one.get("reply_to_message")
        if one.get("text") == f"to {draft.name}" and not (isinstance(to, dict) and _is_of(draft.name, to)):
            yield f"an answer to {draft.name} stands under {to!r}"
    if draft.was_never_sent and versions:
        yield f"{draft.name} was taken back before it was sent, and is there: {versions}"
    letters = [draft.letter_id, *draft.others]
    rows = [witness.letter(one) for one in letters if one is not None]
    # What was refused is dead and seen; after an uncertain try there may be a second one that nobody can name.
    is_known = all(row is not None and row.phase in (2, 4) and not row.uncertain_tries for row in rows)
    if not (draft.is_clear and is_known and draft.message_id):
        return
    if draft.is_taken_back and versions:
        yield f"{draft.name} was taken back, and is there: {versions}"
    if not draft.is_taken_back and draft.letter_id is not None and versions != [draft.shown]:
        yield f"{draft.name} should read {draft.shown!r}, and there is {versions}"


def _is_of(name: str, message: Mapping[str, Any]) -> bool:
    return str(message.get("text", "")).startswith(f"{name} ")
