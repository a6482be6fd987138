"""What was handed on a moment ago, by where its answer would go: how a call of a bot that says nothing finds its update.

In memory and bounded: the oldest are forgotten first, and a restart forgets all. Then letters have no trace, and nothing else
is amiss. A reply to a message, or an answer to a button, is certain; any other call to a chat is likely to answer what the same
consumer got from that chat last.
"""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from peik.clock import Clock
from peik.core.arrival import Arrival
from peik.core.events import Event, HandedOn
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
