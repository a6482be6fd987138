"""The simulated Telegram of accounts: what people do, and what goes wrong."""

import random
from collections import Counter, defaultdict

import msgspec

from peik.accounts.client import ClientError, Trouble
from peik.clock import Clock
from peik.testing.accounts.boxes import CHANNEL_BASE, Box, Chat, Happened, Keys, Kind, Person, Post, Removed, SessionKey
from peik.testing.accounts.client import SimClient


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
        self._invites: dict[str, tuple[Chat, bool]] = {}
        self.is_down = False  # no way there
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
    ) -> Post:
        """The message as its sender sees it. `reply_to` is an id as the sender sees it."""
        self._number += 1
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
