"""What was handed on a moment ago, by where its answer would go: how a call of a bot that says nothing finds its update.

In memory and bounded: the oldest are forgotten first, and a restart forgets all. Then letters have no trace, and nothing else
is amiss. A reply to a message, or an answer to a button, is certain; any other call to a chat is likely to answer what the same
consumer got from that chat last.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence

import msgspec

from peik.clock import Clock
from peik.core.arrival import Arrival
from peik.core.events import Event, HandedOn
from peik.core.letter import Priority, is_edit
from peik.core.methods import MethodClass
from peik.core.trace import likely, trace_of

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


def _whole(value: int | str | None) -> int | None:
    if isinstance(value, str):
        digits = value.removeprefix("-")
        return int(value) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None
    return value


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
