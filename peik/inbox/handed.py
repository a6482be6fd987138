"""What was handed on a moment ago, by where its answer would go: how a call of a bot that says nothing finds its update.

In memory and bounded: the oldest are forgotten first, and a restart forgets all. Then letters have no trace, and nothing else
is amiss. A reply to a message, or an answer to a button, is certain; any other call to a chat is likely to answer what the same
consumer got from that chat last.

Below that: what polling bots have confirmed and not surely dealt with. `AnswerJudge` says which update a call deals with,
`PollerHand` what a poller that starts afresh is handed again (docs/inbox.md).
"""

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from peik.clock import Clock
from peik.core.arrival import Arrival, ConsumerProgress, advanced, spans_of
from peik.core.events import Event, HandedOn
from peik.core.letter import Chat, Priority, is_edit
from peik.core.methods import MethodClass
from peik.core.trace import likely, trace_of
from peik.inbox.store import HandingAgain

HANDED_MAX = 20_000  # keys; an arrival has one or two of them, about 300 bytes each
LIKELY_S = 60.0
EXACT_S = 3600.0  # a reply to what was handed on longer ago is rare, and not worth the room

_Key = tuple[int, str, int | str]  # the bot, what the last one is, and which


class _Note(msgspec.Struct, frozen=True):
    trace: str
    at: float


class _Press(msgspec.Struct):
    id: str


class _Pressed(msgspec.Struct):
    callback_query: _Press


class _ReplyTo(msgspec.Struct):
    message_id: int | None = None
    chat_id: int | str | None = None


class _Said(msgspec.Struct):
    """What of a call's parameters says what it answers. A form carries numbers as text, and objects as JSON in text."""

    chat_id: int | str | None = None
    reply_parameters: _ReplyTo | str | None = None
    reply_to_message_id: int | str | None = None
    callback_query_id: str | None = None


_decode_pressed = msgspec.json.Decoder(_Pressed).decode
_decode_said = msgspec.json.Decoder(_Said).decode
_decode_reply = msgspec.json.Decoder(_ReplyTo).decode


class Handed:
    def __init__(self, *, clock: Clock, likely_s: float, keys_max: int = HANDED_MAX) -> None:
        self._clock = clock
        self._likely_s = likely_s  # 0: nothing is called likely
        self._keys_max = keys_max
        self._notes: OrderedDict[_Key, _Note] = OrderedDict()  # the newest last

    def __len__(self) -> int:
        return len(self._notes)

    def listen(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, HandedOn):
                for arrival in event.arrivals:
                    self.note(arrival, event.consumer)

    def note(self, arrival: Arrival, consumer: str) -> None:
        """This arrival goes to this consumer now."""
        note = _Note(trace_of(arrival.bot_id, arrival.number), self._clock.mono())
        if self._likely_s > 0:
            self._keep((arrival.bot_id, f"chat:{consumer}", arrival.lane), note)
        if arrival.type == "callback_query":
            press = _press_in(arrival)
            if press is not None:
                self._keep((arrival.bot_id, "press", press), note)
        elif arrival.message_id is not None:
            self._keep((arrival.bot_id, f"message:{arrival.lane}", arrival.message_id), note)

    def _keep(self, key: _Key, note: _Note) -> None:
        self._notes[key] = note
        self._notes.move_to_end(key)
        if len(self._notes) > self._keys_max:
            self._notes.popitem(last=False)

    def exactly(self, bot_id: int, params: bytes) -> str | None:
        """The trace of what a call surely answers, by what its parameters name."""
        if not self._notes:
            return None
        said = _said_in(params)
        if said is None:
            return None
        if said.callback_query_id is not None:
            return self._found((bot_id, "press", said.callback_query_id), EXACT_S)
        reply = _reply_in(said)
        if reply is None:
            return None
        chat, message_id = reply
        return self._found((bot_id, f"message:{chat}", message_id), EXACT_S)

    def likely(self, bot_id: int, consumer: str, params: bytes) -> str | None:
        """The trace of what this consumer got last from the chat that a call goes to, written as likely."""
        if not self._notes or self._likely_s <= 0:
            return None
        said = _said_in(params)
        chat = None if said is None else _whole(said.chat_id)
        if chat is None:
            return None
        found = self._found((bot_id, f"chat:{consumer}", chat), self._likely_s)
        return None if found is None else likely(found)

    def _found(self, key: _Key, within_s: float) -> str | None:
        note = self._notes.get(key)
        return None if note is None or self._clock.mono() - note.at > within_s else note.trace


def _press_in(arrival: Arrival) -> str | None:
    try:
        return _decode_pressed(arrival.payload).callback_query.id
    except msgspec.DecodeError:
        return None


def _said_in(params: bytes) -> _Said | None:
    try:
        return _decode_said(params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _reply_in(said: _Said) -> tuple[int, int] | None:
    """The chat and the message that a call replies to."""
    to = said.reply_parameters
    if isinstance(to, str):
        try:
            to = _decode_reply(to)
        except (msgspec.DecodeError, RecursionError):
            return None
    message_id = _whole(said.reply_to_message_id if to is None else to.message_id)
    chat = _whole(said.chat_id if to is None or to.chat_id is None else to.chat_id)
    return None if message_id is None or chat is None else (chat, message_id)


def _whole(value: object) -> int | None:
    if isinstance(value, str):
        digits = value.removeprefix("-")
        return int(value) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None
    return value if isinstance(value, int) else None


# Who waits for an answer: what a call of a bot that says no priority is worth (docs/letters.md, Order and priority).
#
# In memory and bounded, as above. What is forgotten, or was handed on by another process, makes an answer a normal letter.

ANSWER_S = 180.0  # a person who wrote longer ago does not look at the chat any more
ANSWERS_MAX = 3  # a press is answered by a few calls: the menu changes, something is sent
CROWD_CHATS = 20  # so many new chats within CROWD_S that nobody asked from make a caller's letters bulk
CROWD_S = 60.0
MET_S = 600.0  # a chat that was written to within this is no new one
CALLERS_MAX = 1_000
_WRITTEN = frozenset({"message", "business_message", "guest_message"})

_Caller = tuple[int, str]  # the bot and the consumer that the call names


class _Addressee(msgspec.Struct):
    chat_id: int | str | None = None


class _Asked:
    """What a chat is waiting for."""

    __slots__ = ("answers", "handed_at", "number", "written_at")

    def __init__(self, now: float) -> None:
        self.answers = 0  # so many calls are answers still
        self.written_at = self.handed_at = now - 2 * ANSWER_S  # when it wrote last, and when its bot heard of it
        self.number = 0  # of the newest arrival


_decode_addressee = msgspec.json.Decoder(_Addressee).decode


class AnswerJudge:
    """What a gateway call is worth that does not say it: an answer is high, what a caller writes to ever new chats unasked is
    bulk, and anything else is normal."""

    def __init__(self, *, clock: Clock, chats_max: int = HANDED_MAX) -> None:
        self._clock = clock
        self._chats_max = chats_max
        self._asked: OrderedDict[tuple[int, int], _Asked] = OrderedDict()  # by bot and chat, the newest last
        self._met: OrderedDict[tuple[_Caller, int | str], tuple[float, float]] = (
            OrderedDict()
        )  # first and last written to
        self._crowds: OrderedDict[_Caller, deque[float]] = OrderedDict()  # when each met its last new chats

    def __len__(self) -> int:
        return len(self._asked) + len(self._met) + len(self._crowds)

    def listen(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, HandedOn):
                for arrival in event.arrivals:
                    self.note(arrival)

    def note(self, arrival: Arrival) -> None:
        """This arrival is on its way to whoever answers it."""
        is_press = arrival.type == "callback_query"
        if not (is_press or arrival.type in _WRITTEN) or not isinstance(arrival.lane, int):
            return
        key = (arrival.bot_id, arrival.lane)
        asked, now = self._asked.get(key), self._clock.mono()
        if asked is None:
            asked = self._asked[key] = _Asked(now)
            if len(self._asked) > self._chats_max:
                self._asked.popitem(last=False)
        else:
            if arrival.number <= asked.number:
                return  # it goes to another consumer as well, or once more
            self._asked.move_to_end(key)
        if now - asked.handed_at > ANSWER_S:
            asked.answers = 0
        # What waited through an outage was written long ago: nobody is looking, and Telegram does not take it for an answer.
        since_ms = arrival.received_at_ms if arrival.sent_at_ms is None else arrival.sent_at_ms
        written_at = now - max(0, self._clock.wall_ms() - since_ms) / 1000
        asked.number, asked.handed_at, asked.written_at = arrival.number, now, max(asked.written_at, written_at)
        asked.answers = ANSWERS_MAX if is_press else min(asked.answers + 1, ANSWERS_MAX)

    def priority(self, bot_id: int, consumer: str, method: str, kind: MethodClass, params: bytes) -> Priority:
        """What this call is worth, now that it is made: it may be the answer that a chat waited for."""
        chat = _addressee_in(params)
        if chat is None:
            return Priority.NORMAL
        now = self._clock.mono()
        if self._asked and isinstance(chat, int):
            asked = self._asked.get((bot_id, chat))
            if asked is not None and now - asked.handed_at <= ANSWER_S:
                if not asked.answers:
                    return Priority.NORMAL
                # To delete or to pin something is no answer yet: what is shown is.
                asked.answers -= kind is MethodClass.SEND or is_edit(method)
                return Priority.HIGH if now - asked.written_at <= ANSWER_S else Priority.NORMAL
        if kind is not MethodClass.SEND:
            return Priority.NORMAL  # news are sent; what changes a message writes to nobody new
        return Priority.BULK if self._is_unasked((bot_id, consumer), chat, now) else Priority.NORMAL

    def _is_unasked(self, caller: _Caller, chat: int | str, now: float) -> bool:
        """Whether this caller writes to ever new chats, and this is one of them."""
        crowd = self._crowds.get(caller)
        if crowd is None:
            crowd = self._crowds[caller] = deque(maxlen=CROWD_CHATS)
            if len(self._crowds) > CALLERS_MAX:
                self._crowds.popitem(last=False)
        first_at, last_at = self._met.get((caller, chat), (now, -MET_S))
        if now - last_at >= MET_S:
            first_at = now
            self._crowds.move_to_end(caller)
        is_crowd = len(crowd) == CROWD_CHATS and now - crowd[0] <= CROWD_S
        if first_at == now:
            crowd.append(now)
        self._met[caller, chat] = (first_at, now)
        self._met.move_to_end((caller, chat))
        if len(self._met) > self._chats_max:
            self._met.popitem(last=False)
        return is_crowd and now - first_at <= CROWD_S


def _addressee_in(params: bytes) -> int | str | None:
    try:
        chat = _decode_addressee(params).chat_id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    number = _whole(chat)
    return chat if number is None else number


# What pollers have in hand: updates that one confirmed, until there is evidence that they were dealt with.
#
# Libraries confirm an update before its handler is done, so that an offset alone says only that the update reached the
# bot. The durable watermark therefore stays at what is evidenced; how far a poller has confirmed lives here, in memory.
# After a restart of Peik a poller that goes on says it again by its offset, and one that starts afresh is given what is
# above the watermark: twice rather than never. Pure bookkeeping: no await, no store. See docs/inbox.md.


REPLACED_S = 10.0  # a poller that another one sent away, and that does not ask again for so long, has ended
DEATHS_MAX = 3  # alone in hand so often in a row, and an update is given up
ALONE_S = 1.0  # so long an update stays alone after the first death; four times as long after each further one
RUNS_MAX = 8  # pollers of one consumer that are known apart; what is more has nothing in hand
SHOWN_AGAIN = 10  # so many of those that were handed again last are named
# The first sign of work rather than of its end: many bots set it when they begin with an update.
_NO_EVIDENCE = frozenset({"setMessageReaction"})
# Nobody answers these as a rule. They do not keep what people write from being cleared.
_SELDOM_ANSWERED = frozenset(
    {
        "edited_message", "channel_post", "edited_channel_post", "business_connection", "edited_business_message",
        "deleted_business_messages", "message_reaction", "message_reaction_count", "chosen_inline_result", "poll",
        "poll_answer", "my_chat_member", "chat_member", "chat_boost", "removed_chat_boost", "managed_bot", "subscription",
        "stopped_message_generation",
    }
)  # fmt: skip


class PollerRun:
    """One life of a poller, as far as its offsets tell it from others."""

    __slots__ = (
        "answered_at", "asked", "first", "high", "is_closed", "is_long", "items", "last", "parked", "replaced_at",
        "seen_at", "worked",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.asked: int | None = None  # the number that its offset confirmed last; None: it gave none
        self.first: int | None = None  # that it was given, before it gave an offset
        self.last: int | None = None  # the last of the last answer; a bot that counts by it may go back
        self.high: int | None = None  # the highest that it was given
        self.seen_at = self.answered_at = now  # its last sign of life, and when it was last answered
        self.replaced_at: float | None = None  # another one took its place
        self.parked = 0  # its polls that wait here
        self.is_closed = False  # its connection was, while it waited
        self.is_long = False  # it has polled with a timeout
        self.items: dict[int, PolledUpdate] = {}  # confirmed by it, in the order in which that was
        self.worked: list[tuple[int, float]] = []  # what it dealt with, and when; both rise

    def dealt_with(self, number: int, now: float) -> None:
        """What it has of later numbers may wait in a line behind that one: many programs handle one after the other."""
        while self.worked and self.worked[-1][0] >= number:
            self.worked.pop()
        self.worked.append((number, now))

    def at_work_since(self, update: "PolledUpdate") -> float | None:
        """From when it may have been at work on this: since it has confirmed it, and dealt with what stood before it."""
        if update.handed_at is None:
            return None
        place = bisect_left(self.worked, (update.number,))
        return max(update.handed_at, self.worked[place - 1][1]) if place else update.handed_at

    def may_say(self, number: int) -> bool:
        """Whether an offset that confirms this can be its next one: a repeat, or something that it was given."""
        if number in (self.asked, self.last):
            return True
        low = self.first if self.asked is None else self.asked
        return low is not None and self.high is not None and low <= number <= self.high


class PolledUpdate:
    """An update that a poller was given and that is not over. `handed_at` is None until an offset confirms it."""

    __slots__ = (
        "arrival_id", "calls", "handed_at", "is_answered", "is_seldom_answered", "kind", "lane", "message_id", "names",
        "number", "thread", "user_id", "username",
    )  # fmt: skip

    def __init__(self, arrival: Arrival) -> None:
        self.number = arrival.number
        self.arrival_id = arrival.id
        self.kind = arrival.type
        self.lane = arrival.lane
        self.user_id = arrival.user_id
        self.message_id = arrival.message_id
        self.is_seldom_answered = arrival.type in _SELDOM_ANSWERED
        self.handed_at: float | None = None
        self.is_answered = False
        self.calls = 0  # to its chat since it was given, that name no update
        told = _naming_in(arrival)
        message = told if told.message is None else told.message
        self.thread = message.message_thread_id
        self.username = None if told.sender is None or told.sender.username is None else told.sender.username.lower()
        self.names = tuple(one for one in (told.id, told.inline_message_id) if isinstance(one, str))


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A poller ended with these in hand: those that are handed again, and the one that is given up if any."""

    again: tuple[PolledUpdate, ...]
    dead: PolledUpdate | None
    deaths: int


class PollerHand:
    """What the pollers of one consumer were given, have confirmed, and have not been seen to deal with."""

    def __init__(self, consumer_id: int, progress: ConsumerProgress, *, window_s: float) -> None:
        self.consumer_id = consumer_id
        self.window_s = window_s
        self.cover = progress  # what no poll is given: over, or in the hand of a poller that lives
        self.known_to = progress.watermark  # nothing up to here is unknown: it is over, or somebody was given it
        self.over: list[int] = []  # dealt with, and not stored yet
        self.again: HandingAgain | None = None  # for people
        self.tries: dict[int, int] = {}  # how often those were handed that are handed again
        self._progress = progress
        self._runs: list[PollerRun] = []
        self._given: dict[int, PolledUpdate] = {}  # not confirmed yet
        self._skipped: list[int] = []  # between those: of types that the consumer does not want
        self._lanes: dict[Chat, dict[int, PolledUpdate]] = {}
        self._names: dict[str, PolledUpdate] = {}
        self._again: set[int] = set()  # to be handed again, and not given to anybody yet
        self._deaths = 0
        self._alone: dict[int, int] = {}  # at how many deaths in a row it was alone in hand
        self._is_careful = False
        self._first: int | None = None  # which goes alone
        self._first_until = 0.0

    # ---- what is in hand ----

    def handed(self, now: float) -> list[int]:
        """The numbers that pollers have confirmed and not been seen to deal with. Of one that is gone they wait again."""
        return [number for run in self._runs if not self._is_silent(run, now) for number in run.items]

    def waits(self, now: float) -> bool:
        """Whether something waits that a poller had in hand which is gone."""
        return any(run.items and self._is_silent(run, now) for run in self._runs)

    def _is_silent(self, run: PollerRun, now: float) -> bool:
        if run.is_closed or run.parked:
            return run.is_closed
        return now >= max(run.seen_at, run.answered_at) + max(self.window_s, REPLACED_S)

    def is_idle(self) -> bool:
        return not (self._given or self._again or self.over or any(run.items for run in self._runs))

    def follow(self, progress: ConsumerProgress) -> None:
        """What is over by the store: settled here, by another node, or by hand."""
        now_over = advanced(self._progress, [(1, progress.watermark), *progress.spans])
        if now_over == self._progress:
            return  # what was read a moment ago may be older than what was stored since
        self._progress = now_over
        self.cover = advanced(self.cover, [(1, now_over.watermark), *now_over.spans])
        self.known_to = max(self.known_to, now_over.watermark)
        for held in (self._given, *(run.items for run in self._runs)):
            for number in [number for number in held if now_over.is_over(number)]:
                self._forget(held.pop(number))
        for number in [number for number in self.tries if now_over.is_over(number)]:
            del self.tries[number]
        self._again = {number for number in self._again if not now_over.is_over(number)}

    def put_off(self, at: float) -> None:
        """Another node was polled at that time: what was handed before may have been handed again since."""
        for run in self._runs:
            for update in run.items.values():
                if update.handed_at is not None and update.handed_at < at:
                    update.handed_at = at

    # ---- polls ----

    def come(self, number: int | None, now: float, *, is_short: bool) -> tuple[PollerRun, bool]:
        """Whose poll this is that confirms up to a number, and whether that poller has just started. None: it said nothing
        that confirms anything."""
        run = self._whose(number)
        is_new = run is None
        if run is None:
            run = PollerRun(now)
            self._runs.append(run)
            self._runs.sort(key=lambda one: (bool(one.items), one.parked, one.seen_at))
            idle = [one for one in self._runs if not one.items and not one.parked and one is not run]
            for one in idle[: max(0, len(self._runs) - RUNS_MAX)]:
                self._runs.remove(one)
        run.seen_at = now
        run.is_closed, run.replaced_at = False, None
        is_farewell = is_short and run.is_long
        run.is_long = run.is_long or not is_short
        if number is not None:
            self._confirm(run, number, now)
        run.asked = number
        # It has gone on asking. And a program that asks once more without waiting, after long polls, says goodbye:
        # libraries do so when they end in good order, with their last offset.
        self._expire(run, now if is_farewell else now - self.window_s)
        return run, is_new

    def _whose(self, number: int | None) -> PollerRun | None:
        newest = sorted(self._runs, key=lambda run: run.seen_at, reverse=True)
        if number is not None:
            found = next((run for run in newest if run.may_say(number)), None)
            if found is not None:
                return found
            if number > self._progress.watermark:
                # Above all that anybody was given here: other nodes are polled too, or somebody skips what he does not want.
                is_above = number > max((run.high or 0 for run in newest), default=0)
                return next((run for run in newest if is_above and not run.is_closed), None)
        # It confirms nothing that is open, as the first poll of any program.
        return next((run for run in newest if run.asked is None and run.high is None), None)

    def _confirm(self, run: PollerRun, number: int, now: float) -> None:
        for update in [one for one in self._given.values() if one.number <= number]:
            del self._given[update.number]
            update.handed_at = now
            run.items[update.number] = update
            if update.is_answered:
                self._end(update)
        self.over += [one for one in self._skipped if one <= number]
        self._skipped = [one for one in self._skipped if one > number]
        if number <= self.cover.watermark:
            return
        spans, first = [], self.cover.watermark + 1
        for kept in sorted(one for one in self._again if one <= number):
            spans.append((first, kept - 1))
            first = kept + 1
        self.cover = advanced(self.cover, [*spans, (first, number)])

    def _expire(self, run: PollerRun, before: float) -> None:
        """What a poller has had in hand since then counts as dealt with."""
        for update in list(run.items.values()):
            since = run.at_work_since(update)
            if since is not None and since <= before:
                self._end(update)
        run.worked = [one for one in run.worked if one[1] > before]

    def learn(self, arrivals: Iterable[Arrival], skipped: Iterable[int], up_to: int) -> None:
        """What somebody was given before we knew: by another node, or before Peik was started anew."""
        for arrival in arrivals:
            self._add(arrival)
        self._skipped += skipped
        self.known_to = max(self.known_to, up_to)

    def give(self, run: PollerRun, arrivals: Sequence[Arrival], skipped: Iterable[int], now: float) -> list[Arrival]:
        """These go to a poller now, without some between them. Those that are handed again."""
        again = [arrival for arrival in arrivals if arrival.number in self._again]
        self._again.difference_update(arrival.number for arrival in again)
        self.learn(arrivals, skipped, arrivals[-1].number)
        run.first = arrivals[0].number if run.first is None else run.first
        run.last = arrivals[-1].number
        run.high = max(run.high or 0, run.last)
        run.answered_at = now
        if self._is_careful:
            self._first = arrivals[0].number
            self._first_until = now + min(self.window_s, ALONE_S * 4 ** (self._deaths - 1))
        return again

    def _add(self, arrival: Arrival) -> None:
        if arrival.number in self._given:
            return
        update = self._given[arrival.number] = PolledUpdate(arrival)
        self._lanes.setdefault(update.lane, {})[update.number] = update
        for name in update.names:
            self._names[name] = update

    def at_once(self, now: float) -> int | None:
        """How many a poll may be given now. None: as many as it asks for. After a death one goes alone, and the next when
        that one was survived: else nobody would know which of many it is that kills a bot."""
        if not self._is_careful:
            return None
        if self._first is None or self._first in self._given:
            return 1
        if now < self._first_until and any(self._first in run.items for run in self._runs):
            return 0
        self._is_careful = False
        return None

    def again_at(self) -> float | None:
        """When a poll that waits has to look again, though nothing has come."""
        found = [run.replaced_at + REPLACED_S for run in self._runs if run.replaced_at is not None and run.items]
        if self._is_careful and self._first is not None and self._first not in self._given:
            found.append(self._first_until)
        return min(found, default=None)

    def close(self, run: PollerRun, now: float) -> None:
        """Its connection was closed while it waited: until now it was there."""
        if not run.is_closed:
            run.seen_at, run.is_closed = now, True
            self._expire(run, now - self.window_s)

    # ---- deaths ----

    def ended(self, run: PollerRun, now: float, *, is_new: bool) -> Ended | None:
        """Take from pollers that have ended what they had in hand without evidence: the one that asks now is handed it."""
        left: list[PolledUpdate] = []
        is_death = False
        for other in self._runs:
            if other is run or not other.items or not self._is_over(other, now, is_new=is_new):
                continue
            self._expire(other, other.seen_at - self.window_s)
            left += other.items.values()
            other.items = {}
            is_death = is_death or other.is_long or now < other.seen_at + self.window_s
        if not left:
            return None
        if is_new and run.asked is not None:  # what its first offset confirms it has
            for update in left:
                if update.number <= run.asked:
                    update.handed_at = now
                    run.items[update.number] = update
            left = [update for update in left if update.number > run.asked]
        if not is_death:
            left = self._of_who_never_waits(left)
        if not left:
            return None
        dead = self._killer(left) if is_death else None
        if dead is not None:
            run.items[dead.number] = dead
            self._end(dead, is_stored=True)
            left.remove(dead)
        self.hand_again(left, one_by_one=is_death)
        return Ended(again=tuple(sorted(left, key=lambda one: one.number)), dead=dead, deaths=self._deaths)

    def _is_over(self, run: PollerRun, now: float, *, is_new: bool) -> bool:
        if run.replaced_at is not None and not run.parked:
            return run.is_closed or now >= run.replaced_at + REPLACED_S
        # Between two polls: one that starts meanwhile is as a rule the same program once more.
        return self._is_silent(run, now) or (is_new and not run.parked)

    def _of_who_never_waits(self, left: Sequence[PolledUpdate]) -> list[PolledUpdate]:
        """What is handed again of programs that never asked with a timeout, and come back after a while: as a rule they fetch,
        handle, confirm and end, as by cron. Nothing tells that from a death for sure, so they are believed the third time."""
        believed = [update for update in left if self.tries.get(update.number, 0) >= DEATHS_MAX - 1]
        for update in believed:
            self._end(update)
        return [update for update in left if update not in believed]

    def _killer(self, left: Sequence[PolledUpdate]) -> PolledUpdate | None:
        self._deaths += 1
        if len(left) != 1:
            self._alone.clear()
            return None
        number = left[0].number
        self._alone = {number: self._alone.get(number, 0) + 1}
        return left[0] if self._alone[number] >= DEATHS_MAX else None

    def note_again(self, ended: Ended, *, at_ms: int) -> None:
        """For people who ask what was handed again."""
        before = 0 if self.again is None else self.again.count
        ids = tuple(update.arrival_id for update in ended.again[:SHOWN_AGAIN])
        self.again = HandingAgain(count=before + len(ended.again), at_ms=at_ms, arrival_ids=ids, deaths=ended.deaths)

    def hand_again(self, left: Sequence[PolledUpdate], *, one_by_one: bool = True) -> None:
        """These are for whoever asks next, before all that is newer."""
        for update in left:
            self._forget(update)
            self._again.add(update.number)
            self.tries[update.number] = self.tries.get(update.number, 0) + 1
        held = [number for run in self._runs for number in run.items]
        self.cover = advanced(self._progress, spans_of([*held, *self.over]))
        # Numbers that nobody sees lie between them; and what was given to nobody is above.
        self._is_careful, self._first = bool(self._again) and one_by_one, None

    # ---- evidence ----

    def answered(self, method: str, params: bytes, now: float) -> bool:
        """A call of the bot: which updates it deals with. Whether something is over by it."""
        if method in _NO_EVIDENCE or not self._lanes:
            return False
        try:
            said = _decode_call(params)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        before = len(self.over)
        for update in self._dealt_with(said):
            update.is_answered = True
            if update.handed_at is not None:
                self._end(update, answered_at=now)
        return len(self.over) > before

    def _dealt_with(self, said: "_Call") -> list[PolledUpdate]:
        if said.query is not None:
            named = self._names.get(said.query)
            return [] if named is None else [named]
        reply = _reply_in(said)
        chat = _whole(said.chat_id)
        chat = reply[0] if reply is not None and reply[0] in self._lanes else chat
        held = None if chat is None else self._lanes.get(chat)
        if not held:
            return []
        target = reply[1] if reply is not None else _whole(said.message_id)
        if target is not None:
            named_here = [update for update in held.values() if update.message_id == target]
            # What is not here is a message of the bot's own: its edit may belong to any update, or to none.
            if named_here or (reply is None and len(held) > 1):
                return named_here
        who = _whole(said.user_id)
        if who is not None:
            return [update for update in held.values() if update.user_id == who]
        return _counted(self._meant(said, held.values()))

    def _meant(self, said: "_Call", held: Iterable[PolledUpdate]) -> list[PolledUpdate]:
        """Which updates of a chat a call may answer that names none of them."""
        waiting = [one for one in held if not one.is_answered]
        found = [one for one in waiting if not one.is_seldom_answered] or waiting
        thread = _whole(said.message_thread_id)
        if thread is not None:
            found = [one for one in found if one.thread == thread]
        return [one for one in found if said.mentions(one)] or found

    def _end(self, update: PolledUpdate, *, is_stored: bool = False, answered_at: float | None = None) -> None:
        """It is dealt with. Stored soon, with others."""
        for run in self._runs:
            if run.items.pop(update.number, None) is not None and answered_at is not None:
                run.dealt_with(update.number, answered_at)
        self._forget(update)
        self._alone.pop(update.number, None)
        self.tries.pop(update.number, None)
        self.cover = advanced(self.cover, [(update.number, update.number)])
        if not is_stored:
            self.over.append(update.number)
        if update.number == self._first and not is_stored:
            self._is_careful = False
        if not self._again and not self.tries:
            self._deaths = 0

    def _forget(self, update: PolledUpdate) -> None:
        lane = self._lanes.get(update.lane)
        if lane is not None and lane.pop(update.number, None) is not None and not lane:
            del self._lanes[update.lane]
        for name in update.names:
            if self._names.get(name) is update:
                del self._names[name]


def _counted(found: list[PolledUpdate]) -> list[PolledUpdate]:
    """Several of one chat may be in hand, and handled at the same time or one after the other: which of them a call deals with
    cannot be known, only that all are when there were as many calls."""
    for one in found:
        one.calls += 1
    return found if max((one.calls for one in found), default=0) >= len(found) else []


class _Person(msgspec.Struct):
    id: int | None = None
    username: str | None = None


class _NamingMessage(msgspec.Struct):
    message_thread_id: int | None = None


class _Naming(msgspec.Struct, rename={"sender": "from"}):
    """What of an update a call can name it by, beside its chat and message."""

    id: str | int | None = None
    inline_message_id: str | None = None
    message_thread_id: int | None = None
    message: _NamingMessage | None = None
    sender: _Person | None = None


class _Entity(msgspec.Struct):
    user: _Person | None = None


class _Call(_Said):
    """A call as evidence."""

    inline_query_id: str | None = None
    shipping_query_id: str | None = None
    pre_checkout_query_id: str | None = None
    guest_query_id: str | None = None
    chat_join_request_query_id: str | None = None
    inline_message_id: str | None = None
    message_id: Any = None  # {"letter": …} too
    message_thread_id: int | str | None = None
    user_id: int | str | None = None
    text: str = ""
    caption: str = ""
    entities: list[_Entity] | str = ""
    caption_entities: list[_Entity] | str = ""

    @property
    def query(self) -> str | None:
        """The query, or the message of an inline query, that is answered."""
        return (
            self.callback_query_id
            or self.inline_query_id
            or self.shipping_query_id
            or self.pre_checkout_query_id
            or self.guest_query_id
            or self.chat_join_request_query_id
            or self.inline_message_id
        )

    def mentions(self, update: PolledUpdate) -> bool:
        words = f"{self.text}{self.caption}"
        if update.username is not None and f"@{update.username}" in words.lower():
            return True
        if update.user_id is None:
            return False
        if f"tg://user?id={update.user_id}" in words:
            return True
        named = [one for some in (self.entities, self.caption_entities) for one in _entities_in(some)]
        return any(one.user is not None and one.user.id == update.user_id for one in named)


_decode_naming = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_body = msgspec.json.Decoder(_Naming).decode
_decode_call = msgspec.json.Decoder(_Call).decode
_decode_entities = msgspec.json.Decoder(list[_Entity]).decode


def _naming_in(arrival: Arrival) -> _Naming:
    try:
        return _decode_body(_decode_naming(arrival.payload)[arrival.type])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, RecursionError):
        return _Naming()


def _entities_in(said: list[_Entity] | str) -> list[_Entity]:
    try:
        return _decode_entities(said) if isinstance(said, str) and said else said if isinstance(said, list) else []
    except (msgspec.DecodeError, RecursionError):
        return []
