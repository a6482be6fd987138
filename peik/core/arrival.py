"""An arrival: an update that Peik promised to deliver. Values, and how Telegram's JSON is read into them."""

import hashlib
import json
import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from peik.core.letter import Chat
from peik.errors import BadInput

# Asked for by name, so that nothing is filtered before it reaches us: a filtered update is lost for good (docs/telegram.md,
# Update types).
UPDATE_TYPES = (
    "message", "edited_message", "channel_post", "edited_channel_post", "business_connection", "business_message",
    "edited_business_message", "deleted_business_messages", "guest_message", "message_reaction",
    "message_reaction_count", "inline_query", "chosen_inline_result", "callback_query", "shipping_query",
    "pre_checkout_query", "purchased_paid_media", "poll", "poll_answer", "my_chat_member", "chat_member",
    "chat_join_request", "chat_boost", "removed_chat_boost", "managed_bot", "subscription",
    "stopped_message_generation",
)  # fmt: skip

# What a consumer gets that does not say what it wants, as at Telegram (docs/telegram.md, Update types).
OPTIONAL_TYPES = frozenset({"chat_member", "message_reaction", "message_reaction_count"})

UNKNOWN_TYPE = "unknown"  # an update that holds nothing but its id, or nothing that looks like a type

DEFAULT_CONSUMER = "default"

WIRE_ID_MAX = 2**31 - 1  # official ids are int32, and several libraries keep them so


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """One update as Telegram gave it, read just so far that it can be filed."""

    update_id: int  # Telegram's own
    type: str
    lane: Chat  # the chat, or the user, or a text such as "poll:7"; arrivals of one lane are delivered in order
    user_id: int | None = None
    message_id: int | None = None
    sent_at_ms: int | None = None  # None: Telegram does not say (a button press, a query)
    payload: str  # a JSON object: the whole update but for its update_id
    digest: bytes  # of the payload: the same update under another id has the same


FORGOTTEN_LANE = (
    "forgotten"  # of arrivals whose person was forgotten: they keep their place in the order and nothing else
)


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """An update that is durable here. `number` is its place in the order of its bot."""

    id: int
    bot_id: int
    number: int
    epoch: int
    update_id: int
    type: str
    lane: Chat
    user_id: int | None = None
    message_id: int | None = None
    sent_at_ms: int | None = None
    received_at_ms: int
    payload: str
    replay_of: int | None = None  # the arrival that is delivered once more
    only_for: int | None = None  # the consumer that a replay is for

    def wire(self) -> bytes:
        """The update as a bot gets it, under Peik's own number."""
        head = b'{"update_id":%d' % wire_id(self.number)
        rest = self.payload.encode()[1:]
        return head + (rest if rest == b"}" else b"," + rest)


def wire_id(number: int) -> int:
    """A number as it may be shown to bots: from 1 up, under 2³¹, and round again after two thousand million."""
    return (number - 1) % WIRE_ID_MAX + 1


def number_near(shown: int, *, near: int) -> int:
    """The number behind a wire id, of all that it can stand for the one nearest to `near`."""
    number = shown + (near - shown) // WIRE_ID_MAX * WIRE_ID_MAX
    return min((number, number + WIRE_ID_MAX), key=lambda one: abs(one - near))


def is_wanted(kind: str, allowed: frozenset[str] | None) -> bool:
    """Whether a consumer gets updates of this type. None: it did not say, and gets what Telegram would give."""
    return kind not in OPTIONAL_TYPES if allowed is None else kind in allowed


# ---- reading ----


# Telegram's ids have 52 bits at most. What is larger is not Telegram's, and does not fit into a store either.
_Number = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
_Instant = Annotated[int, msgspec.Meta(ge=0, le=2**43)]  # in seconds; it must still fit in milliseconds
_UpdateId = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
_Name = Annotated[str, msgspec.Meta(max_length=128)]


class _Id(msgspec.Struct):
    id: _Number


class _Message(msgspec.Struct):
    chat: _Id | None = None
    message_id: _Number | None = None


class _Body(msgspec.Struct, rename={"sender": "from"}):
    """What any payload may hold that says where it belongs. Everything else is not looked at."""

    chat: _Id | None = None
    sender: _Id | None = None
    user: _Id | None = None
    voter_chat: _Id | None = None
    message: _Message | None = None
    message_id: _Number | None = None
    date: _Instant | None = None
    edit_date: _Instant | None = None
    poll_id: _Name | None = None


class _PollBody(msgspec.Struct):
    id: _Name


_decode_top = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_body = msgspec.json.Decoder(_Body).decode
_decode_poll = msgspec.json.Decoder(_PollBody).decode
_decode_many = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_id = msgspec.json.Decoder(_UpdateId).decode
_TYPE = re.compile(r"[a-z][a-z0-9_]{0,63}")  # it is shown, filtered by, and part of a path into JSON


def read_updates(result: bytes) -> tuple[list[Update], int]:
    """The updates of a getUpdates answer, in order, and how many things in it were none at all.

    One that cannot be read must not keep the others from us. Raises BadInput if there is nothing to read in it.
    """
    try:
        each = _decode_many(result)
    except (msgspec.DecodeError, RecursionError):
        raise BadInput(code="bad_updates", detail="getUpdates was not answered with a list.") from None
    updates = []
    for one in each:
        try:
            updates.append(read_update(bytes(one)))
        except BadInput:
            continue
    if each and not updates:
        raise BadInput(code="bad_updates", detail="getUpdates was answered with something that holds no updates.")
    return updates, len(each) - len(updates)


def read_update(text: bytes) -> Update:
    """One update, of whatever type, known or not. Raises BadInput if it is none at all."""
    plain = _USUAL.match(text)
    if plain is not None and plain[2] in _BODIED:
        try:
            body = _decode_body(text[plain.end() : -1])
            payload = b"{" + text[plain.start(2) - 1 :]
            return _filed(int(plain[1]), plain[2].decode(), body, None, payload, payload.decode())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # something about it is unusual
    return _read_any(text)


def _read_any(text: bytes) -> Update:
    try:
        top = _decode_top(text)
        update_id = _decode_id(top.pop("update_id"))
        payload = msgspec.json.encode(top)
        words = payload.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, RecursionError):
        raise BadInput(code="bad_update", detail="This is not an update: a JSON object with an update_id.") from None
    kind = _kind(top)
    body, poll_id = _read_body(kind, top)
    return _filed(update_id, kind, body, poll_id, payload, words)


def _filed(update_id: int, kind: str, body: _Body | None, poll_id: str | None, payload: bytes, words: str) -> Update:
    date = None if body is None else body.edit_date or body.date
    sender = None if body is None else body.sender or body.user
    return Update(
        update_id=update_id,
        type=kind,
        lane=_lane(kind, body, poll_id),
        user_id=None if sender is None else sender.id,
        message_id=_message_id(body),
        sent_at_ms=None if date is None else date * 1000,
        payload=words,
        digest=hashlib.blake2b(payload, digest_size=8).digest(),
    )


def mended(text: bytes) -> bytes | None:
    """JSON that is broken in its characters only, made whole: half a surrogate, bytes that are not UTF-8, raw control
    characters. None if it is not JSON at all. One such text of a user must not stop all that comes after it."""
    try:
        value = json.loads(text.decode(errors="replace"), strict=False)
        whole = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    except (ValueError, RecursionError):
        return None
    return whole.encode()


_KNOWN = frozenset(UPDATE_TYPES)

# Telegram always writes an update like this: its id, and one object under its type. Then what is filed is a piece of what
# came, and nothing has to be taken apart and put together again.
_USUAL = re.compile(rb'\{"update_id":([1-9]\d{0,9}),\s*"([a-z_]+)":(?=\{)')
_BODIED = frozenset(name.encode() for name in _KNOWN - {"poll"})


def _kind(top: dict[str, msgspec.Raw]) -> str:
    """The type: what we know, else what looks like a type that we shall know one day."""
    for name in top:
        if name in _KNOWN:
            return name
    return next((name for name in top if _TYPE.fullmatch(name)), UNKNOWN_TYPE)


def _read_body(kind: str, top: dict[str, msgspec.Raw]) -> tuple[_Body | None, str | None]:
    """A body that is not as we know it is stored all the same: tomorrow's Bot API is not an error."""
    raw = top.get(kind)
    if raw is None:
        return None, None
    try:
        poll_id = _decode_poll(raw).id if kind == "poll" else None
        return _decode_body(raw), poll_id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None, None


def _lane(kind: str, body: _Body | None, poll_id: str | None) -> Chat:
    """The chat if there is one. A user's queries share the lane of the private chat with him: it has the same number."""
    if poll_id is not None:
        return f"poll:{poll_id}"
    if body is None:
        return kind
    if body.chat is not None:
        return body.chat.id
    if body.message is not None and body.message.chat is not None:
        return body.message.chat.id
    sender = body.sender or body.user or body.voter_chat
    return kind if sender is None else sender.id


def _message_id(body: _Body | None) -> int | None:
    if body is None:
        return None
    if body.message is not None:
        return body.message.message_id
    return body.message_id


# ---- what an update says of its chat ----


class _Standing(msgspec.Struct):
    status: str


class _StandingChange(msgspec.Struct):
    new_chat_member: _Standing


class _StandingUpdate(msgspec.Struct):
    my_chat_member: _StandingChange


_decode_standing = msgspec.json.Decoder(_StandingUpdate).decode
_SPOKEN = frozenset({"message", "edited_message", "channel_post", "edited_channel_post"})
_INSIDE = frozenset({"creator", "administrator", "member"})
_OUTSIDE = frozenset({"left", "kicked"})


def opens_chat(update: Update) -> bool | None:
    """Whether this shows that the bot can be written with in the chat of its lane. False: that it cannot. None: neither."""
    if update.type in _SPOKEN:
        return True
    if update.type != "my_chat_member":
        return None
    try:
        status = _decode_standing(update.payload).my_chat_member.new_chat_member.status
    except msgspec.DecodeError:
        return None
    return True if status in _INSIDE else False if status in _OUTSIDE else None


# What a consumer has behind it: everything up to a watermark, and spans of numbers above. Pure arithmetic.
#
# The watermark is the highest number below which nothing is open. One arrival that is still being worked on keeps it
# where it is, and what is done beyond stands in spans meanwhile: few, however much that is, since only what is open
# parts them.


Span = tuple[int, int]  # (first, last), both included


class ConsumerProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Everything up to `watermark` is over, and so are the spans above it: apart, in order, and not touching it."""

    watermark: int
    spans: tuple[Span, ...] = ()

    def is_over(self, number: int) -> bool:
        return number <= self.watermark or any(first <= number <= last for first, last in self.spans)


def advanced(progress: ConsumerProgress, over: Iterable[Span]) -> ConsumerProgress:
    """Progress after these are over too. It never goes back."""
    (_, watermark), *rest = joined([(0, progress.watermark), *progress.spans, *over])
    return ConsumerProgress(watermark=watermark, spans=tuple(rest))


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same numbers in as few spans as possible, in order."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if first > last:
            continue
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def spans_of(numbers: Sequence[int]) -> list[Span]:
    return joined([(number, number) for number in numbers])


# Telegram's update ids and its 24 hours, as arithmetic: what a jump in the ids means, and when unread updates expire.
#
# Ids rise by one (docs/telegram.md, Update ids). So a gap means updates that expired or were taken by another
# hand, unless the numbering itself started over: after a silent week, on another server, or when the numbers were used
# up.


DAY_MS = 24 * 3600 * 1000
# After a week without updates the next id is random. Our last update may have lain at Telegram for a day before we had
# it, so that by our own clock the silence may be a day shorter.
SILENT_MS = 6 * DAY_MS
THRESHOLDS = (75, 50, 25, 10)  # per cent of the day that are left
# The queue holds this many updates at most: no push can be further behind the newest than this.
DISORDER_MAX = 100_000
# An inline query lives 30 s, and nothing shorter. Anyone who asks again within this cannot have missed one by its age.
SHORTEST_LIFE_S = 20.0


class Continuous(msgspec.Struct, frozen=True):
    """Nothing is missing."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """This many updates were there once and are not any more."""

    count: int


class Unclear(msgspec.Struct, frozen=True):
    """The ids do not allow to know whether anything is missing."""


class IdsReset(msgspec.Struct, frozen=True):
    """The numbering started over, lower: another epoch."""


Reading = Continuous | Gap | Unclear | IdsReset


def read_ids(
    ids: Sequence[int], *, expected: int | None, silent_ms: int | None, may_have_holes: bool = False
) -> Reading:
    """What the ids of a batch say, in the order in which they came.

    `expected` is the offset that was asked with, None if there was none; `silent_ms` how long ago the last update came.
    `may_have_holes`: some of these ids may have come by webhook meanwhile, out of order and one by one.
    """
    if expected is None:
        return Unclear()
    if ids[0] < expected:
        return IdsReset()
    missing = ids[-1] - expected + 1 - len(ids)
    if missing <= 0:
        return Continuous()
    if may_have_holes or silent_ms is None or silent_ms >= SILENT_MS:
        return Unclear()
    return Gap(count=missing)


def is_pushed_anew(update_id: int, *, newest: int | None) -> bool:
    """Whether a pushed id shows that the numbering started over. Pushes come out of order: a little lower means nothing."""
    return newest is not None and update_id < newest - DISORDER_MAX


# ---- the day ----


def expires_at_ms(contact_at_ms: int) -> int:
    """When the oldest update that may wait unread expires: it came, at the earliest, right after the last contact."""
    return contact_at_ms + DAY_MS


def percent_left(*, contact_at_ms: int, now_ms: int) -> int:
    """How much of the day is left, rounded up. A clock that was put back makes it no more than 100."""
    left = math.ceil((expires_at_ms(contact_at_ms) - now_ms) * 100 / DAY_MS)
    return min(max(left, 0), 100)


def crossed(*, before: int, now: int) -> int | None:
    """The lowest threshold that was reached between two looks. None: none was."""
    return min((one for one in THRESHOLDS if now <= one < before), default=None)


def is_over_a_day(away_ms: int) -> bool:
    """Whether updates may have expired in such a time, whatever the ids say."""
    return away_ms > DAY_MS


# When letters of one bot came, by their numbers. It remembers stretches of numbers, not letters: a million take no
# more room.


STRETCHES_MAX = 1024
BLUR = 0.05  # what waited for so long may be known so inexactly, in parts of that time


class Ages:
    """Letters come in the order of their numbers. When there are too many stretches, neighbours become one, which came when the
    first of them did: those that lie close together for how long ago they are. A few hundred are left then, of any time."""

    __slots__ = ("_at", "_first", "_last")

    def __init__(self) -> None:
        self._first: list[int] = []
        self._last: list[int] = []
        self._at: list[float] = []

    def came(self, first: int, last: int, now: float) -> None:
        if self._last and first <= self._last[-1]:
            return  # it is known when these came
        if len(self._last) >= STRETCHES_MAX:
            self._join(now)
        self._first.append(first)
        self._last.append(last)
        self._at.append(now)

    def at(self, number: int) -> float | None:
        """When the letter of this number came. None: nobody saw it come."""
        place = bisect_left(self._last, number)
        if place < len(self._last) and self._first[place] <= number:
            return self._at[place]
        return None

    def _join(self, now: float) -> None:
        firsts, lasts, ats = self._first[:1], self._last[:1], self._at[:1]
        for first, last, at in zip(self._first[1:], self._last[1:], self._at[1:], strict=True):
            if at - ats[-1] <= BLUR * (now - at):
                lasts[-1] = last
            else:
                firsts.append(first)
                lasts.append(last)
                ats.append(at)
        if len(lasts) >= STRETCHES_MAX // 2:  # a clock of centuries: what is oldest is least missed
            half = len(lasts) // 2
            firsts, lasts, ats = firsts[half:], lasts[half:], ats[half:]
        self._first, self._last, self._at = firsts, lasts, ats
