"""One account's connection to the simulated Telegram: the port `Client`."""

import asyncio
import hashlib
from typing import TYPE_CHECKING

import msgspec

from peik.archive_ports import Direction, Happening, Message
from peik.carrier_ports import Request
from peik.clock import Clock
from peik.core.reply import Fault, Reply
from peik.errors import described
from peik.sessions.client import ClientError, CodeSent, Dialog, Gap, Listener, Me, Qr, Trouble
from peik.testing.accounts.boxes import Chat, Event, Happened, Person, Post, Removed
from peik.testing.accounts.keys import Key
from peik.testing.accounts.sending import send

if TYPE_CHECKING:
    from peik.testing.accounts.telegram import Accounts

STATE_S = 1.0
BATCH_MAX = 200


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
        self._key: Key | None = None
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

    def _open_key(self, method: str = "") -> Key:
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
            await listener.on_gap(Gap(chat_id=None))
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
                await listener.on_gap(Gap(chat_id=chat.chat_id))
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

    async def dialogs(self) -> list[Dialog]:
        await asyncio.sleep(0)
        person = self._person("dialogs")
        return [
            Dialog(
                chat_id=chat_id,
                title=chat.title_for(person),
                kind=chat.kind,
                top_message_id=max(_ids_of(chat, person), default=0),
                access=str(chat_id).encode(),
            )
            for chat_id, chat in person.chats.items()
        ]

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

    # Sending.

    async def carry(self, request: Request, *, random_id: int) -> Reply:
        await asyncio.sleep(0)
        try:
            self._open_key()
        except ClientError as error:
            return Reply(fault=Fault.NOT_TRIED, left=False, detail=error.words)
        try:
            person = self._person()
        except ClientError as error:
            body = {"ok": False, "error_code": 401, "description": f"Unauthorized: {error.words}"}
            return Reply(status=401, body=msgspec.json.encode(body))
        reply = send(self._telegram, person, request, random_id=random_id)
        if reply.status == 200 and self._telegram.is_answer_lost(request.method):
            return Reply(fault=Fault.RESET, detail="the connection was closed")
        return reply


def _me(person: Person) -> Me:
    return Me(user_id=person.user_id, phone=person.phone, username=person.username, first_name=person.first_name)


def _ids_of(chat: Chat, person: Person) -> list[int]:
    chat_id = chat.id_for(person)
    return [one.message_id for one in chat.box_of(person).posts.values() if one.chat_id == chat_id]
