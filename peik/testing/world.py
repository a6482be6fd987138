"""Everything the simulated Telegram knows, and the few ways to find or make it. Time and chance come from outside."""

import random
from collections import deque
from collections.abc import Callable

import msgspec

from peik.core.problem import BadInput
from peik.core.token import Token
from peik.testing.answer import Pending, Refusal, UploadedFile, encode
from peik.testing.bots import Bot
from peik.testing.chats import SUPERGROUP_BASE, Chat, Member, User
from peik.testing.faults import Faults
from peik.testing.ledger import Counters, Delivery, Ledger, digest
from peik.testing.options import Options
from peik.testing.params import Json, Params
from peik.testing.updates import DAY_S, Event, expiry, queue_id

CHAT_ID_END = 1 << 52  # ids have at most 52 significant bits, says the Bot API


class Call(msgspec.Struct, kw_only=True):
    """One request to one method."""

    bot: Bot
    method: str
    params: Params
    files: dict[str, UploadedFile]
    now: float


class World:
    """The state. `Telegram` adds the verbs."""

    def __init__(self, *, now: Callable[[], float], chance: random.Random, options: Options | None = None) -> None:
        self.now = now
        self.chance = chance
        self.options = options if options is not None else Options()
        self.faults = Faults(now=now, chance=chance)
        # Told of each new update of a bot with a webhook; a pusher waits for it.
        self.updated: Callable[[Bot], None] | None = None
        self.forget()

    def forget(self) -> None:
        """Start again with nobody and nothing. Options and faults stay."""
        self.bots: dict[int, Bot] = {}
        self.by_token: dict[str, Bot] = {}
        self.users: dict[int, User] = {}
        self.chats: dict[int, Chat] = {}  # all but private ones
        self.by_username: dict[str, Chat | User] = {}
        self.sent = Ledger(self.options.ledger_max)
        self.applied = Ledger(self.options.ledger_max)
        self.counters = Counters()
        self.awaited: list[tuple[int, Pending]] = []  # who waits for that many deliveries
        self._kept: deque[tuple[Chat, int]] = deque()

    # Bots

    def enter(self, token_text: str) -> Bot:
        """The bot of a token, made on first use if any token may. Raises the 401 or 404."""
        bot = self.by_token.get(token_text)
        if bot is not None:
            return bot
        try:
            token = Token(token_text)
        except BadInput:
            # The cloud's nginx does not know such a path; a local server names the reason (docs/telegram.md, Refusals).
            if self.options.mode == "cloud":
                raise Refusal(404, "Not Found") from None
            raise Refusal(401, "Unauthorized: invalid token specified") from None
        # A bot has one token: another secret for the same number was revoked, or never valid.
        if not self.options.accept_any_token or token.bot_id in self.bots or token.reveal() != token_text:
            raise Refusal(401, "Unauthorized")
        return self.add_bot(token_text)

    def add_bot(self, token_text: str, *, username: str = "", first_name: str = "") -> Bot:
        """A new bot, or the same with a new token. Raises BadInput if the token has not the form of one."""
        bot_id = Token(token_text).bot_id
        known = self.bots.get(bot_id)
        if known is not None:
            self.by_token.pop(known.token_text, None)
            known.token_text = token_text
            self.by_token[token_text] = known
            return known
        face = User(
            id=bot_id, first_name=first_name or f"Bot {bot_id}", is_bot=True, username=username or f"peik_{bot_id}_bot"
        )
        bot = Bot(token_text=token_text, user=face, now=self.now(), chance=self.chance, options=self.options)
        self.bots[bot_id] = self.by_token[token_text] = bot
        self.users[bot_id] = face
        return bot

    # Chats

    def find_chat(self, bot: Bot, where: object) -> Chat | None:
        """The chat of a `chat_id`, number or @name, seen from this bot; made on first use if any chat may."""
        if type(where) is not int:
            text = str(where).strip()
            if text.startswith("@"):
                named = self.by_username.get(text[1:].lower())
                if not isinstance(named, User):
                    return named
                where = named.id
            else:
                try:
                    where = int(text)
                except ValueError:
                    return None
        assert isinstance(where, int)
        if abs(where) >= CHAT_ID_END:
            return None
        return self._dialog(bot, where) if where > 0 else self._group(where)

    def dialog(self, bot: Bot, user: User) -> Chat:
        """The private chat of a bot and a person."""
        chat = bot.dialogs.get(user.id)
        if chat is None:
            chat = bot.dialogs[user.id] = Chat(id=user.id, type="private", user=user)
        return chat

    def _dialog(self, bot: Bot, user_id: int) -> Chat | None:
        chat = bot.dialogs.get(user_id)
        if chat is not None:
            return chat
        user = self.users.get(user_id)
        if user is not None:
            return self.dialog(bot, user)
        if not self.options.accept_any_chat:
            return None
        user = self.users[user_id] = User(id=user_id, first_name=f"User {user_id}")
        chat = self.dialog(bot, user)
        chat.is_lenient = True
        return chat

    def _group(self, chat_id: int) -> Chat | None:
        chat = self.chats.get(chat_id)
        if chat is None and self.options.accept_any_chat and chat_id != 0:
            is_super = chat_id <= SUPERGROUP_BASE
            chat = Chat(
                id=chat_id, type="supergroup" if is_super else "group", title=f"Group {chat_id}", is_lenient=True
            )
            self.chats[chat_id] = chat
        return chat

    def member(self, chat: Chat, bot: Bot) -> Member:
        """The bot's standing in a group or channel. A lenient chat takes in every bot, as administrator."""
        found = chat.members.get(bot.id)
        if found is None:
            found = Member(status="administrator" if chat.is_lenient else "left")
            chat.members[bot.id] = found
        return found

    # Messages

    def keep(self, chat: Chat, message_id: int, message: Json) -> None:
        """Remember a message, so that it can be edited, answered and copied; the oldest of all is forgotten."""
        chat.messages[message_id] = message
        self._kept.append((chat, message_id))
        if len(self._kept) > self.options.messages_max:
            old_chat, old_id = self._kept.popleft()
            old_chat.messages.pop(old_id, None)

    def note_sent(self, call: Call, chat: Chat, *, message_id: int, thread_id: int | None, text: str) -> None:
        """Enter one delivered message into the ledger."""
        delivery = Delivery(
            number=self.sent.total + 1,
            at=call.now,
            bot_id=call.bot.id,
            chat_id=chat.id,
            thread_id=thread_id,
            message_id=message_id,
            method=call.method,
            text=text,
            digest=digest(call.params, call.files),
        )
        self.sent.add(delivery)
        if self.awaited:
            self._tell_awaited()

    def _tell_awaited(self) -> None:
        now = self.now()
        for count, pending in self.awaited:
            if self.sent.total >= count:
                pending.hasten(now)
        self.awaited = [(count, pending) for count, pending in self.awaited if count > self.sent.total]

    def note_applied(self, call: Call, *, chat_id: int = 0, message_id: int = 0, text: str = "") -> None:
        """Enter one other write that took effect: an edit, a deletion, an answer."""
        delivery = Delivery(
            number=self.applied.total + 1,
            at=call.now,
            bot_id=call.bot.id,
            chat_id=chat_id,
            thread_id=None,
            message_id=message_id,
            method=call.method,
            text=text,
            digest=digest(call.params, call.files),
        )
        self.applied.add(delivery)

    # Updates

    def push(self, bot: Bot, kind: str, payload: Json, *, date: float | None = None) -> Event | None:
        """Queue an update for a bot; None if it is filtered, too old or over a cap. `date` is the message's own."""
        now = self.now()
        if kind not in bot.allowed:
            # Filtered before the push: it is never stored and takes no id (docs/telegram.md, The update queue).
            self.counters.updates_filtered += 1
            return None
        if date is not None and date <= now - DAY_S:
            return None
        expires_at = expiry(kind, now=now, date=date)
        line = queue_id(kind, payload)
        event = bot.queue.push(kind, encode(payload), now=now, expires_at=expires_at, queue_id=line)
        if event is None:
            self.counters.updates_discarded += 1
            return None
        self.counters.updates_queued += 1
        if bot.poller.parked is not None:
            bot.poller.parked.hasten(now + self.options.poll_batch_s)
        if bot.webhook is not None:
            bot.webhook.deliveries.offer(event)
            if self.updated is not None:
                self.updated(bot)
        return event
