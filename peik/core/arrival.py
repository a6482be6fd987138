"""An arrival: an update that Peik promised to hand on. Values, and how Telegram's JSON is read into them."""

import hashlib

import msgspec

from peik.core.letter import Chat
from peik.core.problem import BadInput

# TELEGRAM.md §9. Asked for by name, so that nothing is filtered before it reaches us: a filtered update is lost for good.
UPDATE_TYPES = (
    "message", "edited_message", "channel_post", "edited_channel_post", "business_connection", "business_message",
    "edited_business_message", "deleted_business_messages", "guest_message", "message_reaction",
    "message_reaction_count", "inline_query", "chosen_inline_result", "callback_query", "shipping_query",
    "pre_checkout_query", "purchased_paid_media", "poll", "poll_answer", "my_chat_member", "chat_member",
    "chat_join_request", "chat_boost", "removed_chat_boost", "managed_bot", "subscription",
)  # fmt: skip

# What a consumer gets that does not say what it wants, as at Telegram (§1.2).
OPTIONAL_TYPES = frozenset({"chat_member", "message_reaction", "message_reaction_count"})

DEFAULT_CONSUMER = "default"

_WIRE_IDS = 2**31 - 1  # official ids are int32, and several libraries keep them so


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """One update as Telegram gave it, read just so far that it can be filed."""

    update_id: int  # Telegram's own
    type: str
    lane: Chat  # the chat, or the user, or a text such as "poll:7"; arrivals of one lane are handed on in order
    user_id: int | None = None
    message_id: int | None = None
    sent_at_ms: int | None = None  # None: Telegram does not say (a button press, a query)
    payload: str  # a JSON object: the whole update but for its update_id
    digest: bytes  # of the payload: the same update under another id has the same


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
    replay_of: int | None = None  # the arrival that is handed on once more
    only_for: int | None = None  # the consumer that a replay is for

    def wire(self) -> bytes:
        """The update as a bot gets it, under Peik's own number."""
        head = b'{"update_id":%d' % wire_id(self.number)
        rest = self.payload.encode()[1:]
        return head + (rest if rest == b"}" else b"," + rest)


def wire_id(number: int) -> int:
    """A number as it may be shown to bots: from 1 up, under 2³¹, and round again after two thousand million."""
    return (number - 1) % _WIRE_IDS + 1


def number_near(shown: int, *, near: int) -> int:
    """The number behind a wire id, of all that it can stand for the one nearest to `near`."""
    number = shown + (near - shown) // _WIRE_IDS * _WIRE_IDS
    return min((number, number + _WIRE_IDS), key=lambda one: abs(one - near))


def is_wanted(kind: str, allowed: frozenset[str] | None) -> bool:
    """Whether a consumer gets updates of this type. None: it did not say, and gets what Telegram would give."""
    return kind not in OPTIONAL_TYPES if allowed is None else kind in allowed


# ---- reading ----


class _Id(msgspec.Struct):
    id: int


class _Message(msgspec.Struct):
    chat: _Id | None = None
    message_id: int | None = None


class _Body(msgspec.Struct, rename={"sender": "from"}):
    """What any payload may hold that says where it belongs. Everything else is not looked at."""

    chat: _Id | None = None
    sender: _Id | None = None
    user: _Id | None = None
    voter_chat: _Id | None = None
    message: _Message | None = None
    message_id: int | None = None
    date: int | None = None
    edit_date: int | None = None
    poll_id: str | None = None


class _PollBody(msgspec.Struct):
    id: str


_decode_top = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_body = msgspec.json.Decoder(_Body).decode
_decode_poll = msgspec.json.Decoder(_PollBody).decode
_decode_many = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_id = msgspec.json.Decoder(int).decode


def read_updates(result: bytes) -> list[Update]:
    """The updates of a getUpdates answer, in order. Raises BadInput if it is not a list of updates."""
    try:
        each = _decode_many(result)
    except msgspec.DecodeError:
        raise BadInput(code="bad_updates", detail="getUpdates was not answered with a list.") from None
    return [read_update(bytes(one)) for one in each]


def read_update(text: bytes) -> Update:
    """One update, of whatever type, known or not. Raises BadInput if it is none at all."""
    try:
        top = _decode_top(text)
        update_id = _decode_id(top.pop("update_id"))
        payload = msgspec.json.encode(top).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, RecursionError):
        raise BadInput(code="bad_update", detail="This is not an update: a JSON object with an update_id.") from None
    kind = next((name for name in top if name in _KNOWN), next(iter(top), "unknown"))
    body, poll_id = _read_body(kind, top)
    date = None if body is None else body.edit_date or body.date
    sender = None if body is None else body.sender or body.user
    return Update(
        update_id=update_id,
        type=kind,
        lane=_lane(kind, body, poll_id),
        user_id=None if sender is None else sender.id,
        message_id=_message_id(body),
        sent_at_ms=None if date is None else date * 1000,
        payload=payload,
        digest=hashlib.blake2b(payload.encode(), digest_size=8).digest(),
    )


_KNOWN = frozenset(UPDATE_TYPES)


def _read_body(kind: str, top: dict[str, msgspec.Raw]) -> tuple[_Body | None, str | None]:
    """A body that is not as we know it is stored all the same: tomorrow's Bot API is not an error."""
    raw = top.get(kind)
    if raw is None:
        return None, None
    try:
        poll_id = _decode_poll(raw).id if kind == "poll" else None
        return _decode_body(raw), poll_id
    except msgspec.DecodeError:
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
