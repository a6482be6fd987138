"""What waited through an outage, what a policy does with it, and who is told: decisions only. Words are in `notice`."""

import enum
import re
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import msgspec

from peik.core.arrival import Arrival, Span, spans_of

# What somebody wanted who wrote or pressed while nobody was there: read from an update, as far as it takes to tell
# him.


class MissedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A missed message or press, with what is needed to tell its sender. `content` names a kind of media, or is "text"."""

    number: int
    chat: int
    may_tell: bool
    language: str | None = None
    message_id: int | None = None
    thread: int | None = None
    content: str = "text"
    text: str | None = None
    query_id: str | None = None  # of a press
    received_at_ms: int = 0


class _Person(msgspec.Struct):
    id: int
    is_bot: bool = False
    language_code: str | None = None


class _Chat(msgspec.Struct):
    id: int
    type: str = ""


class _Replied(msgspec.Struct, rename={"sender": "from"}):
    sender: _Person | None = None


class _Message(msgspec.Struct, rename={"sender": "from"}):
    chat: _Chat
    date: int
    message_id: int | None = None
    sender: _Person | None = None
    sender_chat: _Chat | None = None
    text: str | None = None
    caption: str | None = None
    reply_to_message: _Replied | None = None
    message_thread_id: int | None = None
    is_topic_message: bool = False


class _Press(msgspec.Struct, rename={"sender": "from"}):
    id: str
    sender: _Person
    message: _Message | None = None


class _Member(msgspec.Struct):
    status: str = ""


class _Change(msgspec.Struct):
    chat: _Chat
    new_chat_member: _Member


_Body = TypeVar("_Body")
_Decode = Callable[[msgspec.Raw], _Body]
_decode_top = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_message = msgspec.json.Decoder(_Message).decode
_decode_press = msgspec.json.Decoder(_Press).decode
_decode_change = msgspec.json.Decoder(_Change).decode

# What a person can send again, the most telling name first: an animation comes with a document, a venue with a location.
# Everything else that is called a message (a payment, a new member, a pinned message) is a fact.
CONTENTS = (
    "text", "photo", "animation", "video", "voice", "audio", "video_note", "sticker", "document", "contact", "venue",
    "location", "poll", "dice", "game", "story", "paid_media", "checklist", "web_app_data", "users_shared", "chat_shared",
)  # fmt: skip


def read_wish(arrival: Arrival, *, bot_id: int, username: str | None, began_at_ms: int) -> MissedMessage | None:
    """The wish in a message, an edit or a press. None: it is a fact, or nothing that we can read."""
    if arrival.type == "callback_query":
        return _read_press(arrival)
    message = _read(arrival, _decode_message)
    raw = _read(arrival, _decode_top)
    content = next((name for name in CONTENTS if name in (raw or ())), None)
    if message is None or content is None:
        return None
    if arrival.type == "edited_message" and (message.date + 1) * 1000 <= began_at_ms:
        return None  # a change to something that was there before the outage
    return MissedMessage(
        number=arrival.number,
        chat=message.chat.id,
        may_tell=_may_tell(message, bot_id=bot_id, username=username),
        language=None if message.sender is None else message.sender.language_code,
        message_id=message.message_id,
        thread=message.message_thread_id if message.is_topic_message else None,
        content=content,
        text=message.text or message.caption,
        received_at_ms=arrival.received_at_ms,
    )


def read_standing(arrival: Arrival) -> tuple[int, bool] | None:
    """Of a my_chat_member: the chat, and whether the bot is still inside, or not blocked."""
    change = _read(arrival, _decode_change)
    return None if change is None else (change.chat.id, change.new_chat_member.status not in ("kicked", "left"))


def _read_press(arrival: Arrival) -> MissedMessage | None:
    press = _read(arrival, _decode_press)
    if press is None:
        return None
    message = press.message
    # Without a message it was pressed under an inline result somewhere: its sender may never have met the bot.
    return MissedMessage(
        number=arrival.number,
        chat=press.sender.id if message is None else message.chat.id,
        may_tell=message is not None and message.chat.type != "channel" and not press.sender.is_bot,
        language=press.sender.language_code,
        message_id=None if message is None else message.message_id,
        thread=message.message_thread_id if message is not None and message.is_topic_message else None,
        content="press",
        query_id=press.id,
        received_at_ms=arrival.received_at_ms,
    )


def _may_tell(message: _Message, *, bot_id: int, username: str | None) -> bool:
    """In private always; in a group only who spoke to this bot; never a channel, and never another bot."""
    sender = message.sender
    if sender is None or sender.is_bot or message.sender_chat is not None:
        return False
    if message.chat.type == "private":
        return True
    if message.chat.type not in ("group", "supergroup"):
        return False
    replied = message.reply_to_message
    if replied is not None and replied.sender is not None and replied.sender.id == bot_id:
        return True
    return _is_addressed(message.text or message.caption or "", username)


_COMMAND = re.compile(r"/\w+(?:@(\w+))?")
_MENTION = re.compile(r"(?<!\w)@(\w+)")


def _is_addressed(text: str, username: str | None) -> bool:
    command = _COMMAND.match(text)
    if command is not None:
        named = command.group(1)
        return named is None or username is None or named.lower() == username.lower()
    return username is not None and username.lower() in (name.lower() for name in _MENTION.findall(text))


def _read(arrival: Arrival, decode: _Decode[_Body]) -> _Body | None:
    """The body of an update. Tomorrow's Bot API is not an error: what cannot be read is None."""
    try:
        raw = _decode_top(arrival.payload).get(arrival.type)
        return None if raw is None else decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


class Policy(enum.StrEnum):
    """What becomes of messages that waited through an outage."""

    PROCESS = "process"
    NOTIFY = "notify"
    BOTH = "both"
    DROP = "drop"


class Nature(enum.Enum):
    """What an update is to the person behind it."""

    WISH = "wish"  # a message: somebody wants something, and can ask again
    PRESS = "press"  # of a button: the same, and Telegram shows an answer for a moment
    FLEETING = "fleeting"  # a query that cannot be answered any more once it was missed
    FACT = "fact"  # something happened, no matter who was there to see it


class Deed(enum.Enum):
    HAND_ON = "hand on"
    TELL = "tell"
    TELL_AND_HAND_ON = "tell and hand on"
    LEAVE = "leave"  # neither


# Queries live for 30 and 150 seconds, and an answer is taken for 10 or 20 of them (docs/telegram.md, Answers in time).
_NATURES = {
    "message": Nature.WISH,
    "edited_message": Nature.WISH,
    "callback_query": Nature.PRESS,
    "inline_query": Nature.FLEETING,
    "shipping_query": Nature.FLEETING,
    "pre_checkout_query": Nature.FLEETING,
}

# The whole rule. Facts are delivered whatever the policy: nobody can make them happen again.
DEEDS: dict[tuple[Policy, Nature], Deed] = {
    (Policy.PROCESS, Nature.WISH): Deed.HAND_ON,
    (Policy.PROCESS, Nature.PRESS): Deed.HAND_ON,
    (Policy.NOTIFY, Nature.WISH): Deed.TELL,
    (Policy.NOTIFY, Nature.PRESS): Deed.TELL,
    (Policy.BOTH, Nature.WISH): Deed.TELL_AND_HAND_ON,
    (Policy.BOTH, Nature.PRESS): Deed.TELL_AND_HAND_ON,
    (Policy.DROP, Nature.WISH): Deed.LEAVE,
    (Policy.DROP, Nature.PRESS): Deed.LEAVE,
    **{(policy, Nature.FLEETING): Deed.LEAVE for policy in Policy},
    **{(policy, Nature.FACT): Deed.HAND_ON for policy in Policy},
}


class Absence(msgspec.Struct, frozen=True, kw_only=True):
    """When Peik or its default consumer was away."""

    began_at_ms: int
    ended_at_ms: int
    recovered_from_ms: int | None = None  # the source was away until then: what it fetched may be as old as the absence
    missed_after_ms: int


def is_missed(arrival: Arrival, absence: Absence) -> bool:
    """Whether it waited too long while somebody was away. What a person replays on purpose never did."""
    if arrival.replay_of is not None:
        return False
    since_ms = arrival.sent_at_ms
    if since_ms is None:
        # Nobody can know when a button was pressed that was fetched after an absence.
        recovered_from_ms = absence.recovered_from_ms
        is_recovered = recovered_from_ms is not None and arrival.received_at_ms >= recovered_from_ms
        since_ms = absence.began_at_ms if is_recovered else arrival.received_at_ms
    return absence.ended_at_ms - max(since_ms, absence.began_at_ms) > absence.missed_after_ms


class MissedNotice(msgspec.Struct, frozen=True, kw_only=True):
    """One chat's notice: of its first message, or of its first press if it has no messages, and how many more there are."""

    first: MissedMessage
    more: int


class MissedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about a range of arrivals. `over` are not delivered."""

    over: list[Span]
    notices: list[MissedNotice]
    missed: int
    handed: int
    told: int  # of those that are not handed on


class _Told:
    """What one chat has missed."""

    __slots__ = ("count", "first", "numbers")

    def __init__(self, first: MissedMessage) -> None:
        self.first = first
        self.count = 0
        self.numbers: list[int] = []

    def add(self, wish: MissedMessage) -> None:
        self.count += 1
        self.numbers.append(wish.number)


class MissedLedger:
    """Takes a bot's open arrivals in the order of their numbers, and says in the end what becomes of them."""

    def __init__(
        self,
        policy: Policy,
        absence: Absence,
        *,
        bot_id: int,
        username: str | None = None,
        earlier: Sequence[Absence] = (),
    ) -> None:
        self._policy = policy
        self._absence = absence
        self._earlier = earlier  # settled before: what was missed then has been dealt with, and nobody is told twice
        self._bot_id = bot_id
        self._username = username
        self._chats: dict[int, _Told] = {}
        self._gone: set[int] = set()  # chats that the bot was thrown out of, or that blocked it
        self._left: list[int] = []
        self._missed = 0
        self.presses: list[MissedMessage] = []  # to be answered, if that is still possible

    @property
    def chats(self) -> int:
        """How many chats, at most, a notice will go to."""
        return len(self._chats) + len(self.presses)

    def add(self, arrival: Arrival) -> None:
        if arrival.type == "my_chat_member" and self._policy is not Policy.PROCESS:
            self._note_standing(arrival)
        if not is_missed(arrival, self._absence) or self._is_dealt_with(arrival):
            return
        self._missed += 1
        nature = _NATURES.get(arrival.type, Nature.FACT)
        wish: MissedMessage | None = None
        if nature in (Nature.WISH, Nature.PRESS) and self._policy is not Policy.PROCESS:
            wish = read_wish(
                arrival, bot_id=self._bot_id, username=self._username, began_at_ms=self._absence.began_at_ms
            )
            nature = Nature.FACT if wish is None else nature
        match DEEDS[self._policy, nature]:
            case Deed.LEAVE:
                self._left.append(arrival.number)
            case Deed.TELL | Deed.TELL_AND_HAND_ON:
                assert wish is not None
                self._note(wish, arrival.type)
            case Deed.HAND_ON:
                pass

    def _is_dealt_with(self, arrival: Arrival) -> bool:
        return any(
            arrival.received_at_ms <= earlier.ended_at_ms and is_missed(arrival, earlier) for earlier in self._earlier
        )

    def _note(self, wish: MissedMessage, kind: str) -> None:
        self._gone.discard(wish.chat)  # who writes has unblocked the bot
        if kind == "callback_query":
            self.presses.append(wish)
        elif not wish.may_tell:
            pass
        elif kind == "message":
            self._chats.setdefault(wish.chat, _Told(wish)).add(wish)
        elif wish.chat in self._chats:
            # An edit shares the fate of the message that it changes, and is not one more.
            self._chats[wish.chat].numbers.append(wish.number)

    def _note_standing(self, arrival: Arrival) -> None:
        standing = read_standing(arrival)
        if standing is not None:
            chat, is_inside = standing
            (self._gone.discard if is_inside else self._gone.add)(chat)

    def close(self, answered: Collection[int] = ()) -> MissedVerdict:
        """The end of the range. `answered`: the numbers of presses whose sender has been told by an alert.

        Where nobody can be told, what came is delivered instead: nothing is lost in silence.
        """
        over = list(self._left)
        is_instead = self._policy is Policy.NOTIFY
        for press in self.presses:
            if press.number in answered:
                over += [press.number] if is_instead else []
            elif press.may_tell:
                self._chats.setdefault(press.chat, _Told(press)).add(press)
        notices = []
        for chat, told in self._chats.items():
            if chat not in self._gone:
                notices.append(MissedNotice(first=told.first, more=told.count - 1))
                over += told.numbers if is_instead else []
        return MissedVerdict(
            over=spans_of(over),
            notices=notices,
            missed=self._missed,
            handed=self._missed - len(over),
            told=len(over) - len(self._left),
        )
