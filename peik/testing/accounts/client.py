"""One account's connection to the simulated Telegram: the port `Client`."""

import asyncio
import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from peik.accounts.client import (
    AccessOf,
    ChatMember,
    ClientError,
    CodeSent,
    Dialog,
    DialogPage,
    HistoryGap,
    Listener,
    Me,
    MemberPage,
    PhoneContact,
    Qr,
    Trouble,
)
from peik.accounts.markup import BadMarkup, parse, units
from peik.archive.store import Direction, Happening, Message
from peik.clock import Clock
from peik.core.outcome import NetworkFault, Reply
from peik.errors import described
from peik.telegram.port import Request
from peik.testing.accounts.boxes import (
    CHANNEL_BASE,
    Box,
    Chat,
    Event,
    Happened,
    Keys,
    Kind,
    Person,
    Post,
    Removed,
    SessionKey,
)

# What an account sends to the simulated Telegram, and how that answers: as the Bot API would.


TEXT_MAX = 4096
DIALOGS_PAGE = 100
_MEDIA = {
    "sendPhoto": "photo",
    "sendDocument": "document",
    "sendVideo": "video",
    "sendAnimation": "animation",
    "sendAudio": "audio",
    "sendVoice": "voice",
    "sendLocation": "location",
}


class _Refused(Exception):
    def __init__(self, words: str, code: int = 400) -> None:
        super().__init__(words)
        self.code = code


def send(telegram: "Accounts", person: Person, request: Request, *, random_id: int) -> Reply:
    """One try. The same random id of the same person is the same message."""
    try:
        telegram.check_flood(request.method)
        call = _Call(telegram, person, request, random_id)
        act = _ACTS.get(request.method)
        if act is not None:
            result = act(call)
        elif request.method in _MEDIA:
            result = call.say("caption", _MEDIA[request.method])
        else:
            raise _Refused(f"{request.method} is not possible as an account")
    except ClientError as flood:
        seconds = int(-(-flood.wait_s // 1))
        return _answer(429, f"Too Many Requests: retry after {seconds}", parameters={"retry_after": seconds})
    except BadMarkup as error:
        return _answer(400, f"Bad Request: can't parse entities: {error}")
    except _Refused as error:
        return _answer(error.code, f"{'Forbidden' if error.code == 403 else 'Bad Request'}: {error}")
    return Reply(status=200, body=msgspec.json.encode({"ok": True, "result": result}))


def _answer(code: int, words: str, **more: object) -> Reply:
    body = {"ok": False, "error_code": code, "description": words, **more}
    return Reply(status=code, body=msgspec.json.encode(body))


class _Call:
    def __init__(self, telegram: "Accounts", person: Person, request: Request, random_id: int) -> None:
        self._telegram = telegram
        self._person = person
        self._params: dict[str, Any] = msgspec.json.decode(request.params)
        self._random_id = random_id

    def say(self, field: str, kind: str) -> dict[str, Any]:
        chat = self._chat("chat_id")
        text, _ = parse(str(self._params.get(field) or ""), self._params.get("parse_mode"))
        if kind == "text" and not text.strip():
            raise _Refused("message text is empty")
        if units(text) > TEXT_MAX:
            raise _Refused("message is too long")
        reply = self._params.get("reply_parameters") or {}
        return self._shown(chat, self._sent(chat, text, kind, self._random_id, reply.get("message_id")))

    def forward(self, *, is_many: bool, is_copy: bool) -> Any:
        source, chat = self._chat("from_chat_id"), self._chat("chat_id")
        ids = self._params["message_ids"] if is_many else [self._params["message_id"]]
        made = []
        for index, message_id in enumerate(ids):
            post = self._post(source, int(message_id))
            made.append(self._sent(chat, post.text, post.kind, self._random_id + index, None))
        if is_many or is_copy:
            found = [{"message_id": one.message_id} for one in made]
            return found if is_many else found[0]
        return self._shown(chat, made[0])

    def edit(self) -> dict[str, Any]:
        chat = self._chat("chat_id")
        post = self._post(chat, int(self._params["message_id"]))
        if post.sender_id not in (self._person.user_id, chat.chat_id):
            raise _Refused("message can't be edited")
        text, _ = parse(str(self._params.get("text") or ""), self._params.get("parse_mode"))
        if text == post.text:
            raise _Refused("message is not modified")
        self._telegram.edit(chat, post, text)
        return self._shown(chat, self._post(chat, post.message_id))

    def delete(self, *, is_many: bool) -> bool:
        chat = self._chat("chat_id")
        ids = self._params["message_ids"] if is_many else [self._params["message_id"]]
        box = chat.box_of(self._person)
        self._telegram.delete(chat, *(box.posts[int(one)] for one in ids if int(one) in box.posts))
        return True

    def note(self, event_type: str) -> bool:
        chat = self._chat("chat_id")
        post = self._post(chat, int(self._params["message_id"]))
        self._telegram.happen(chat, event_type, number=post.number, by=self._person.user_id)
        return True

    def _sent(self, chat: Chat, text: str, kind: str, random_id: int, reply_to: int | None) -> Post:
        if not chat.may_write(self._person):
            raise _Refused("CHAT_WRITE_FORBIDDEN", 403)
        known = self._person.sent.get(random_id)
        if known is not None:
            post = chat.box_of(self._person).posts.get(known[1])
            if post is None:
                raise _Refused("the message was deleted since")
            return post
        post = self._telegram.say(chat, self._person, text, kind=kind, reply_to=reply_to)
        self._person.sent[random_id] = (post.chat_id, post.message_id)
        self._telegram.deliveries.append(post)
        return post

    def _chat(self, field: str) -> Chat:
        value = self._params.get(field)
        if isinstance(value, str) and value.startswith("@"):
            person = self._telegram.named(value[1:])
        else:
            try:
                chat_id = int(value)  # type: ignore[arg-type]  # what is no number is caught
            except (TypeError, ValueError):
                raise _Refused("chat_id is empty") from None
            known = self._person.chats.get(chat_id)
            if known is not None:
                return known
            person = self._telegram.by_id(chat_id)
        if person is None:
            raise _Refused("chat not found")
        return self._telegram.private(self._person, person)

    def _post(self, chat: Chat, message_id: int) -> Post:
        post = chat.box_of(self._person).posts.get(message_id)
        if post is None or post.chat_id != chat.id_for(self._person):
            raise _Refused("MESSAGE_ID_INVALID")
        return post

    def _shown(self, chat: Chat, post: Post) -> dict[str, Any]:
        shown = {
            "message_id": post.message_id,
            "chat": {"id": post.chat_id, "type": chat.kind},
            "date": post.at_ms // 1000,
        }
        if post.text:
            shown["text" if post.kind == "text" else "caption"] = post.text
        return shown


_ACTS: dict[str, Callable[[_Call], Any]] = {
    "sendMessage": lambda call: call.say("text", "text"),
    "forwardMessage": lambda call: call.forward(is_many=False, is_copy=False),
    "forwardMessages": lambda call: call.forward(is_many=True, is_copy=False),
    "copyMessage": lambda call: call.forward(is_many=False, is_copy=True),
    "copyMessages": lambda call: call.forward(is_many=True, is_copy=True),
    "editMessageText": _Call.edit,
    "deleteMessage": lambda call: call.delete(is_many=False),
    "deleteMessages": lambda call: call.delete(is_many=True),
    "pinChatMessage": lambda call: call.note("pinned"),
    "setMessageReaction": lambda call: call.note("reaction"),
}


STATE_S = 1.0
BATCH_MAX = 200
FILE_CHUNK = 512 * 1024


class _Place(msgspec.Struct, array_like=True):
    """Where the account is: in its own order, and in that of each channel."""

    pts: int
    channels: dict[int, int]


class SimClient:
    def __init__(
        self, telegram: "Accounts", clock: Clock, *, session_id: str, agent_id: str, secret: str | None
    ) -> None:
        self._telegram = telegram
        self._clock = clock
        self._session_id = session_id
        self._agent_id = agent_id
        self._secret = secret
        self._key: SessionKey | None = None
        self._listener: Listener | None = None
        self._place = _Place(0, {})
        self._news = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self.qr_news = asyncio.Event()

    # Connecting.

    async def connect(self) -> Me | None:
        await asyncio.sleep(0)
        if self._telegram.is_down:
            raise ClientError(Trouble.OFFLINE, "Telegram cannot be reached: ConnectionError.")
        keys = self._telegram.keys
        key = keys.new() if self._secret is None else keys.find(self._secret)
        self._secret = key.secret
        if key.ended is not None:
            if key.person is None:
                return None
            raise ClientError(Trouble.REVOKED, key.ended)
        if key.client is not None and key.client is not self:
            why = "Its key was used from two places at once, so Telegram ended the session. Sign in again."
            self._telegram.end_key(key, why)
            raise ClientError(Trouble.REVOKED, why)
        key.client = self
        self._key = key
        if key.person is not None:
            self._telegram.note_asked(key.person, "connect")
        return None if key.person is None else _me(key.person)

    async def disconnect(self) -> None:
        pump, self._pump = self._pump, None
        self._leave()
        if pump is not None:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    @property
    def is_connected(self) -> bool:
        return self._key is not None

    def secret(self) -> str:
        return self._secret or ""

    def cut(self, error: ClientError) -> None:
        """The connection ends from the other side."""
        listener, self._listener = self._listener, None
        self._leave()
        if self._pump is not None and self._pump is not asyncio.current_task():
            self._pump.cancel()
        if listener is not None:
            listener.on_lost(error)

    def _leave(self) -> None:
        if self._key is not None and self._key.client is self:
            self._key.client = None
        self._key = None

    def _open_key(self, method: str = "") -> SessionKey:
        if self._telegram.is_down and self._key is not None:
            self.cut(ClientError(Trouble.OFFLINE, "The connection ended."))
        if self._key is None:
            raise ClientError(Trouble.OFFLINE, "Telegram cannot be reached: ConnectionError.")
        if method:
            self._telegram.check_flood(method)
        return self._key

    def _person(self, method: str = "") -> Person:
        person = self._open_key(method).person
        if person is None:
            raise ClientError(Trouble.REVOKED, "Telegram does not know this session any more. Sign in again.")
        if method:
            self._telegram.note_asked(person, method)
        return person

    # Signing in.

    async def send_code(self, phone: str, *, by_sms: bool = False) -> CodeSent:
        await asyncio.sleep(0)
        return self._telegram.keys.send_code(self._open_key("send_code"), phone, by_sms=by_sms)

    async def sign_in(self, phone: str, code: str, code_hash: str) -> Me:
        await asyncio.sleep(0)
        key = self._open_key("sign_in")
        return _me(self._telegram.keys.sign_in(key, phone=phone, code=code, code_hash=code_hash))

    async def give_password(self, password: str) -> Me:
        await asyncio.sleep(0)
        return _me(self._telegram.keys.give_password(self._open_key("give_password"), password))

    async def qr(self) -> Qr:
        await asyncio.sleep(0)
        self.qr_news.clear()
        return self._telegram.keys.qr(self._open_key("qr"))

    async def qr_scanned(self, *, timeout_s: float) -> Me | None:
        key = self._open_key()
        try:
            async with asyncio.timeout(timeout_s):
                await self.qr_news.wait()
        except TimeoutError:
            return None
        if key.awaits_password is not None:
            raise ClientError(Trouble.PASSWORD_NEEDED, "This account has a password (two-step verification).")
        return _me(self._person())

    async def log_out(self) -> None:
        await asyncio.sleep(0)
        self._listener = None
        key = self._open_key()
        key.ended, key.person = "It was signed out.", None
        await self.disconnect()

    # Seeing.

    async def listen(self, listener: Listener, state: bytes | None) -> None:
        person = self._person()
        if state is None:
            channels = {chat.chat_id: chat.box.pts for chat in person.chats.values() if chat.box is not None}
            self._place = _Place(person.box.pts, channels)
        else:
            self._place = msgspec.msgpack.decode(state, type=_Place)
        self._listener = listener
        self._news.set()
        self._pump = asyncio.create_task(self._hand_on(person, listener), name=f"updates of {person.user_id}")

    def wake(self) -> None:
        self._news.set()

    async def _hand_on(self, person: Person, listener: Listener) -> None:
        saved, saved_at = b"", float("-inf")
        try:
            while True:
                self._news.clear()
                while await self._hand_on_some(person, listener):  # noqa: ASYNC110  others get their turn
                    await asyncio.sleep(0)
                state = msgspec.msgpack.encode(self._place)
                left_s = saved_at + STATE_S - self._clock.mono()
                if state != saved and left_s <= 0:
                    await listener.on_state(state)
                    saved, saved_at = state, self._clock.mono()
                try:
                    async with asyncio.timeout(None if state == saved else max(left_s, 0.001)):
                        await self._news.wait()
                except TimeoutError:
                    continue
        except Exception as error:  # noqa: BLE001  a listener that cannot keep it must not lose it
            words = f"What was seen could not be kept, and is asked for again: {described(error)}"
            self.cut(ClientError(Trouble.OFFLINE, words))

    async def _hand_on_some(self, person: Person, listener: Listener) -> bool:
        """The next of every order. Whether there was anything."""
        place = self._place
        events = person.box.since(place.pts)
        if events is None:
            place.pts = person.box.pts
            await listener.on_gap(HistoryGap(chat_id=None))
            return True
        if events:
            await self._tell(person, listener, events[:BATCH_MAX])
            place.pts += min(len(events), BATCH_MAX)
            return True
        for chat in [one for one in person.chats.values() if one.box is not None]:
            assert chat.box is not None, "chosen so"
            pts = place.channels.setdefault(chat.chat_id, person.joined.get(chat.chat_id, 0))
            events = chat.box.since(pts)
            if events is None:
                place.channels[chat.chat_id] = chat.box.pts
                await listener.on_gap(HistoryGap(chat_id=chat.chat_id))
                return True
            if events:
                await self._tell(person, listener, events[:BATCH_MAX])
                place.channels[chat.chat_id] = pts + min(len(events), BATCH_MAX)
                return True
        return False

    async def _tell(self, person: Person, listener: Listener, events: list[Event]) -> None:
        messages: list[Message] = []
        for event in events:
            if isinstance(event, Post):
                messages.append(self.message(person, event))
                continue
            if messages:
                await listener.on_messages(messages)
                messages = []
            if isinstance(event, Removed):
                await listener.on_deleted(event.chat_id, event.message_ids)
            else:
                await listener.on_happenings([self._happening(event)])
        if messages:
            await listener.on_messages(messages)

    def message(self, person: Person, post: Post) -> Message:
        return Message(
            session_id=self._session_id,
            agent_id=self._agent_id,
            chat_id=post.chat_id,
            message_id=post.message_id,
            direction=Direction.SENT if post.sender_id == person.user_id else Direction.RECEIVED,
            sender_id=post.sender_id,
            date_ms=post.at_ms // 1000 * 1000,
            edited_at_ms=post.edited_at_ms,
            kind=post.kind,
            text=post.text,
            reply_to=post.reply_to,
            grouped_id=post.grouped_id,
            media=self._telegram.described(post),
            raw=msgspec.json.encode(post).decode(),
            created_at_ms=self._clock.wall_ms(),
        )

    def _happening(self, event: Happened) -> Happening:
        name = f"{self._session_id}|{event.event_type}|{event.chat_id}|{event.payload}"
        return Happening(
            event_id=hashlib.blake2b(name.encode(), digest_size=16).hexdigest(),
            session_id=self._session_id,
            agent_id=self._agent_id,
            event_type=event.event_type,
            chat_id=event.chat_id,
            payload=event.payload,
            created_at_ms=self._clock.wall_ms(),
        )

    async def dialogs(self, following: bytes | None = None) -> DialogPage:
        await asyncio.sleep(0)
        person = self._person("dialogs")
        start = int(following or b"0")
        end = start + DIALOGS_PAGE
        found = [self._dialog(person, chat) for chat in [*person.chats.values()][start:end]]
        return DialogPage(dialogs=found, following=b"%d" % end if end < len(person.chats) else None)

    def _dialog(self, person: Person, chat: Chat) -> Dialog:
        chat_id = chat.id_for(person)
        return Dialog(
            chat_id=chat_id,
            title=chat.title_for(person),
            kind=chat.kind,
            top_message_id=max(_ids_of(chat, person), default=0),
            access=str(chat_id).encode(),
        )

    async def history(
        self, chat_id: int, access: bytes | None, *, below: int | None, above: int, limit: int
    ) -> list[Message]:
        await asyncio.sleep(0)
        person = self._person("history")
        chat = person.chats.get(chat_id)
        if chat is None:
            raise ClientError(Trouble.REFUSED, "chat not found")
        posts = chat.box_of(person).posts
        ids = [one for one in _ids_of(chat, person) if one > above and (below is None or one < below)]
        return [self.message(person, posts[one]) for one in sorted(ids, reverse=True)[:limit]]

    async def count(self, chat_id: int, access: bytes | None) -> int:
        await asyncio.sleep(0)
        person = self._person("history")
        chat = person.chats.get(chat_id)
        if chat is None:
            raise ClientError(Trouble.REFUSED, "chat not found")
        return len(_ids_of(chat, person))

    async def download(
        self,
        chat_id: int,
        access: bytes | None,
        message_id: int,
        *,
        file_id: str,
        offset: int,
        take: Callable[[bytes], Awaitable[bool]],
    ) -> bool:
        await asyncio.sleep(0)
        person = self._person("download")
        chat = person.chats.get(chat_id)
        post = None if chat is None else chat.box_of(person).posts.get(message_id)
        if post is None or post.file_id != file_id:
            return False
        whole = self._telegram.files[file_id]
        for start in range(offset, len(whole), FILE_CHUNK):
            if not await take(whole[start : start + FILE_CHUNK]):
                return False
            self._person()  # the line may be gone by now
        return True

    async def members(self, chat_id: int, access: bytes | None, *, offset: int, limit: int) -> MemberPage:
        await asyncio.sleep(0)
        person = self._person("members")
        chat = person.chats.get(chat_id)
        if chat is None or chat.kind == "private":
            raise ClientError(Trouble.REFUSED, "This chat is no group and no channel: it has no members.")
        if chat.kind == "channel" and person is not chat.members[0]:
            raise ClientError(Trouble.REFUSED, "Telegram refused it: CHAT_ADMIN_REQUIRED.")
        found = [
            ChatMember(
                user_id=one.user_id,
                name=one.first_name,
                username=one.username,
                role="owner" if one is chat.members[0] else "member",
            )
            for one in chat.members
        ]
        end = offset + limit
        shown = found[: self._telegram.members_shown]
        return MemberPage(
            members=shown[offset:end],
            following=end if end < len(shown) else None,
            is_whole=end >= len(shown) == len(found),
        )

    # Asking for the account.

    async def join(self, link: str) -> Dialog:
        await asyncio.sleep(0)
        person = self._person("join")
        chat = self._telegram.let_in(person, link)
        return self._dialog(person, chat)

    async def contacts(self) -> list[PhoneContact]:
        await asyncio.sleep(0)
        person = self._person("contacts")
        return [self._contact(user_id, name) for user_id, name in person.contacts.items()]

    async def add_contacts(self, wanted: Sequence[PhoneContact]) -> tuple[list[PhoneContact], list[str]]:
        await asyncio.sleep(0)
        person = self._person("add_contacts")
        found = []
        for one in wanted:
            other = self._telegram.by_phone.get(one.phone or "")
            if other is not None:
                person.contacts[other.user_id] = one.first_name
                found.append(self._contact(other.user_id, one.first_name))
        return found, []

    def _contact(self, user_id: int, name: str) -> PhoneContact:
        other = self._telegram.by_id(user_id)
        phone, username = (None, None) if other is None else (other.phone, other.username)
        return PhoneContact(phone=phone, first_name=name, user_id=user_id, username=username)

    # Sending.

    async def carry(self, request: Request, *, random_id: int, access_of: AccessOf | None = None) -> Reply:
        await asyncio.sleep(0)
        try:
            self._open_key()
        except ClientError as error:
            return Reply(fault=NetworkFault.NOT_TRIED, left=False, detail=error.words)
        try:
            person = self._person()
        except ClientError as error:
            body = {"ok": False, "error_code": 401, "description": f"Unauthorized: {error.words}"}
            return Reply(status=401, body=msgspec.json.encode(body))
        self._telegram.note_asked(person, request.method)
        reply = send(self._telegram, person, request, random_id=random_id)
        if reply.status == 200 and self._telegram.is_answer_lost(request.method):
            return Reply(fault=NetworkFault.RESET, detail="the connection was closed")
        return reply


def _me(person: Person) -> Me:
    return Me(user_id=person.user_id, phone=person.phone, username=person.username, first_name=person.first_name)


def _ids_of(chat: Chat, person: Person) -> list[int]:
    chat_id = chat.id_for(person)
    return [one.message_id for one in chat.box_of(person).posts.values() if one.chat_id == chat_id]


# The simulated Telegram of accounts: what people do, and what goes wrong.


class Accounts:
    """Everything that happens, happens by a call of one of these methods."""

    def __init__(self, clock: Clock, *, seed: int = 0) -> None:
        self._clock = clock
        self._chance = random.Random(seed)
        self.by_phone: dict[str, Person] = {}
        self._chats: list[Chat] = []
        self._number = 0
        self._last_user_id = 1_000
        self._last_chat_id = 5_000
        self._floods: dict[str, list[float]] = defaultdict(list)
        self._lost_answers: dict[str, int] = defaultdict(int)
        self.keys = Keys(clock, self._chance, self.by_phone.get)
        self.asked: Counter[tuple[int, str, int]] = Counter()  # by account, method and second of the clock
        self.files: dict[str, bytes] = {}
        self._invites: dict[str, tuple[Chat, bool]] = {}
        self.is_down = False  # no way there
        self.members_shown: int | None = None  # so many of a chat; None: all
        self.deliveries: list[Post] = []  # what `carry` made, each once

    # Who connects.

    def clients(
        self, *, session_id: str, agent_id: str, secret: str | None, file: str | None, proxy: str | None
    ) -> SimClient:
        """The port `ClientFactory`. A file is a name for a key; a proxy changes nothing."""
        return SimClient(self, self._clock, session_id=session_id, agent_id=agent_id, secret=secret or file)

    # People.

    def register(
        self, phone: str, *, first_name: str = "", username: str | None = None, password: str | None = None
    ) -> Person:
        self._last_user_id += 1
        person = Person(self._last_user_id, phone, first_name or f"Person {self._last_user_id}", username, password)
        self.by_phone[phone] = person
        return person

    def ban(self, person: Person) -> None:
        person.is_banned = True
        self.revoke(person, why="Telegram has banned the account.")

    def code_of(self, phone: str) -> str:
        return self.keys.code_of(phone)

    def scan(self, url: str, person: Person) -> None:
        """A device of this person scans a QR code. Raises ValueError if that is over."""
        key = self.keys.scan(url, person)
        if key.client is not None:
            key.client.qr_news.set()

    def revoke(self, person: Person, *, why: str = "The session was ended from another device. Sign in again.") -> None:
        """The person ends all sessions."""
        for key in self.keys.of(person):
            self.end_key(key, why)

    def end_key(self, key: SessionKey, why: str) -> None:
        key.ended = why
        if key.client is not None:
            key.client.cut(ClientError(Trouble.REVOKED, why))

    # Chats.

    def private(self, one: Person, other: Person) -> Chat:
        known = one.chats.get(other.user_id)
        return known or self._add(Chat("private", 0, "", [one, other]))

    def group(self, title: str, *members: Person) -> Chat:
        self._last_chat_id += 1
        return self._add(Chat("group", -self._last_chat_id, title, list(members)))

    def channel(self, title: str, owner: Person, *members: Person, is_broadcast: bool = False) -> Chat:
        """A supergroup, in which all write; or a channel, in which the owner does."""
        self._last_chat_id += 1
        kind: Kind = "channel" if is_broadcast else "supergroup"
        writers = {owner.user_id} if is_broadcast else None
        return self._add(Chat(kind, CHANNEL_BASE - self._last_chat_id, title, [owner, *members], Box(), writers))

    def invite(self, chat: Chat, *, asks_admin: bool = False) -> str:
        """A link that lets who has it into a group or a channel; or lets them ask to be let in."""
        link = f"https://t.me/+{self._chance.getrandbits(64):016x}"
        self._invites[link] = (chat, asks_admin)
        return link

    def let_in(self, person: Person, link: str) -> Chat:
        """Raises REFUSED."""
        chat, asks_admin = self._invites.get(link, (None, False))
        if chat is None:
            raise ClientError(Trouble.REFUSED, "Telegram refused it: INVITE_HASH_EXPIRED.")
        if person not in chat.members:
            if asks_admin:
                raise ClientError(
                    Trouble.REFUSED, "The request to join was sent; an admin of the chat has to let it in."
                )
            chat.members.append(person)
            person.chats[chat.id_for(person)] = chat
            if chat.box is not None:
                person.joined[chat.chat_id] = chat.box.pts
        return chat

    def _add(self, chat: Chat) -> Chat:
        self._chats.append(chat)
        for person in chat.members:
            person.chats[chat.id_for(person)] = chat
            if chat.box is not None:
                person.joined[chat.chat_id] = chat.box.pts
        return chat

    def leave(self, person: Person, chat: Chat) -> None:
        chat.members.remove(person)
        del person.chats[chat.id_for(person)]

    def described(self, post: Post) -> str | None:
        """The file that a message carries, as the archive keeps it."""
        if post.file_id is None:
            return None
        told = {"id": post.file_id, "type": "application/octet-stream", "size": len(self.files[post.file_id])}
        return msgspec.json.encode(told).decode()

    # What people do, from whichever device.

    def say(
        self,
        chat: Chat,
        sender: Person,
        text: str,
        *,
        kind: str = "text",
        reply_to: int | None = None,
        grouped_id: int | None = None,
        file: bytes | None = None,
    ) -> Post:
        """The message as its sender sees it. `reply_to` is an id as the sender sees it. The same file again is the same one."""
        self._number += 1
        file_id = None
        if file is not None:
            file_id = str(int.from_bytes(hashlib.blake2b(file, digest_size=7).digest(), "big"))
            self.files[file_id] = file
        own: Post | None = None
        for person, box in chat.boxes():
            post = Post(
                chat_id=chat.chat_id if person is None else chat.id_for(person),
                message_id=box.next_id(),
                number=self._number,
                sender_id=chat.chat_id if chat.kind == "channel" else sender.user_id,
                at_ms=self._clock.wall_ms(),
                text=text,
                kind=kind,
                reply_to=reply_to,
                grouped_id=grouped_id,
                file_id=file_id,
            )
            box.put(post)
            if person is None or person is sender:
                own = post
        assert own is not None, "who speaks is there"
        self._wake(chat)
        return own

    def edit(self, chat: Chat, post: Post, text: str) -> None:
        for _, box in chat.boxes():
            for there in [one for one in box.posts.values() if one.number == post.number]:
                # Telegram counts whole seconds, and two edits within one look alike.
                at_ms = max(self._clock.wall_ms() // 1000 * 1000, there.edited_at_ms, there.at_ms)
                box.put(msgspec.structs.replace(there, text=text, edited_at_ms=at_ms))
        self._wake(chat)

    def delete(self, chat: Chat, *posts: Post) -> None:
        """For everybody."""
        numbers = {post.number for post in posts}
        for _, box in chat.boxes():
            ids = tuple(one.message_id for one in box.posts.values() if one.number in numbers)
            if ids:
                box.put(Removed(chat_id=chat.chat_id if chat.box is not None else None, message_ids=ids))
        self._wake(chat)

    def happen(self, chat: Chat, event_type: str, **payload: object) -> None:
        """Something that is no message: a reaction, somebody who read."""
        for person, box in chat.boxes():
            chat_id = chat.chat_id if person is None else chat.id_for(person)
            text = msgspec.json.encode(payload, order="deterministic").decode()
            box.put(Happened(chat_id=chat_id, event_type=event_type, payload=text))
        self._wake(chat)

    def _wake(self, chat: Chat) -> None:
        for person in chat.members:
            for key in self.keys.of(person):
                if key.client is not None:
                    key.client.wake()

    # What goes wrong.

    def forget(self, place: Person | Chat) -> None:
        """From now on nobody can be told what happened there before: who was away has a gap."""
        box = place.box
        assert box is not None, "a private chat or a basic group has no order of its own: forget its people's"
        box.forgotten = box.pts

    def flood(self, method: str, wait_s: float, *, times: int = 1) -> None:
        """The next calls of this method (sendMessage, send_code, history, …) are told to wait."""
        self._floods[method].extend([wait_s] * times)

    def lose_answer(self, method: str, *, times: int = 1) -> None:
        """The next sends by this method arrive, and their answers do not."""
        self._lost_answers[method] += times

    def cut(self, person: Person) -> None:
        """The connections of this person break."""
        for key in self.keys.of(person):
            if key.client is not None:
                key.client.cut(ClientError(Trouble.OFFLINE, "The connection ended."))

    # What clients ask.

    def named(self, username: str) -> Person | None:
        return next((one for one in self.by_phone.values() if one.username == username), None)

    def by_id(self, user_id: int) -> Person | None:
        return next((one for one in self.by_phone.values() if one.user_id == user_id), None)

    def check_flood(self, method: str) -> None:
        """Raises FLOOD once for every time that was ordered."""
        if self._floods[method]:
            wait_s = self._floods[method].pop(0)
            raise ClientError(Trouble.FLOOD, f"Telegram asks to wait {wait_s:.0f} s (FLOOD_WAIT).", wait_s=wait_s)

    def note_asked(self, person: Person, method: str) -> None:
        self.asked[person.user_id, method, int(self._clock.mono())] += 1

    def busiest(self) -> dict[str, int]:
        """How often the busiest account was asked for each method in one second: what Telegram limits and bans for."""
        most: dict[str, int] = {}
        for (_, method, _), count in self.asked.items():
            most[method] = max(count, most.get(method, 0))
        return most

    def is_answer_lost(self, method: str) -> bool:
        if self._lost_answers[method] == 0:
            return False
        self._lost_answers[method] -= 1
        return True
