"""The narrow port to an MTProto client: one account's connection, and what can go wrong with it, as facts.

Telethon stands behind it (`peik.accounts.telethon`), and for tests a faithful fake (`peik.testing.accounts`).
"""

import enum
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from peik.archive.store import Happening, Message, Session
from peik.core.outcome import Reply
from peik.telegram.port import Request


class Trouble(enum.StrEnum):
    """Why Telegram, or the way there, said no."""

    OFFLINE = "offline"  # no way there; try again
    FLOOD = "flood"  # wait `wait_s`
    BAD_CODE = "bad_code"
    CODE_EXPIRED = "code_expired"
    PASSWORD_NEEDED = "password_needed"  # noqa: S105
    BAD_PASSWORD = "bad_password"  # noqa: S105
    BAD_PHONE = "bad_phone"
    PHONE_BANNED = "phone_banned"
    NOT_REGISTERED = "not_registered"  # the number has no account: Peik makes none
    REVOKED = "revoked"  # the session was ended: by its owner, by Telegram, or since its key was used twice at once
    BAD_KEYS = "bad_keys"  # api_id and api_hash
    REFUSED = "refused"  # anything else that will not change by itself


class ClientError(Exception):
    """What a client raises, always. `words` are for people, and hold no secret."""

    def __init__(self, trouble: Trouble, words: str, *, wait_s: float = 0.0) -> None:
        super().__init__(words)
        self.trouble = trouble
        self.words = words
        self.wait_s = wait_s


class Me(msgspec.Struct, frozen=True, kw_only=True):
    user_id: int
    phone: str | None
    username: str | None
    first_name: str = ""
    is_bot: bool = False


class CodeSent(msgspec.Struct, frozen=True, kw_only=True):
    code_hash: str
    way: str  # app, sms, call, flash_call, missed_call, email, fragment
    length: int | None = None
    timeout_s: float | None = None  # until another way may be asked for


class Qr(msgspec.Struct, frozen=True, kw_only=True):
    url: str  # tg://login?token=…
    expires_at_ms: int


class Dialog(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: int  # as the Bot API writes it
    title: str
    kind: str  # private, group, supergroup, channel
    top_message_id: int
    access: bytes  # what `history` needs to open it again after a restart


class DialogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some of an account's chats, those with the newest messages first; pinned ones before."""

    dialogs: list[Dialog]
    following: bytes | None = None  # what the next page is asked for with; None: this is the last


class PhoneContact(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody in the account's list of contacts; without a user id, somebody who is to be added to it."""

    phone: str | None
    first_name: str
    last_name: str = ""
    user_id: int | None = None
    username: str | None = None


class ChatMember(msgspec.Struct, frozen=True, kw_only=True):
    user_id: int
    name: str
    username: str | None = None
    role: str = "member"  # owner, admin, member, restricted, banned


class MemberPage(msgspec.Struct, frozen=True, kw_only=True):
    members: list[ChatMember]
    following: int | None = None  # the offset of the next page; None: this is the last
    is_whole: bool = False  # of the last: with those before, all that there are


AccessOf = Callable[[int], Awaitable[bytes | None]]  # by the id of a chat; None: not known


class HistoryGap(msgspec.Struct, frozen=True, kw_only=True):
    """Telegram said that it cannot replay what happened: the chat, or (None) the whole account, has to be read from its
    history."""

    chat_id: int | None


class Listener(Protocol):
    """Who takes what a session sees. Each call returns when it is durable; only then does the client's state go on, so that a
    crash repeats and never loses."""

    async def on_messages(self, messages: Sequence[Message]) -> None: ...

    async def on_deleted(self, chat_id: int | None, message_ids: Sequence[int]) -> None: ...

    async def on_happenings(self, happenings: Sequence[Happening]) -> None: ...

    async def on_gap(self, gap: HistoryGap) -> None: ...

    async def on_state(self, state: bytes) -> None:
        """Where the account is in Telegram's updates, after everything before was taken."""

    def on_lost(self, error: ClientError) -> None:
        """The connection ended and the client does not mend it by itself: REVOKED, or it gave up. Not after `disconnect`."""


class AccountClient(Protocol):
    """One account. Everything raises ClientError and nothing else. Never two at once on one key."""

    async def connect(self) -> Me | None:
        """Who is signed in. None: nobody, which for a key that was signed in once means REVOKED: Telegram forgets such keys
        and then cannot tell them from new ones. A key whose sign-in still lacks the password is nobody's either. Raises REVOKED
        where Telegram does say it."""

    async def disconnect(self) -> None: ...

    @property
    def is_connected(self) -> bool: ...

    def secret(self) -> str:
        """What is to be kept, encrypted: with it the account is signed in again. It may change until somebody is signed in,
        as Telegram may send a phone to another data centre. Empty before the first connect."""

    # signing in
    async def send_code(self, phone: str, *, by_sms: bool = False) -> CodeSent: ...

    async def sign_in(self, phone: str, code: str, code_hash: str) -> Me: ...

    async def give_password(self, password: str) -> Me: ...

    async def qr(self) -> Qr:
        """A picture to be scanned by a device that is signed in. Ask again when it is over."""

    async def qr_scanned(self, *, timeout_s: float) -> Me | None:
        """Until it is; None when the time is over."""

    async def log_out(self) -> None:
        """At Telegram, too: the key is worth nothing from then on."""

    # seeing
    async def listen(self, listener: Listener, state: bytes | None) -> None:
        """From now on, and everything since `state` first; once for each connect. A listener that raises ends the connection:
        `on_lost` says OFFLINE, and what it did not take comes again from the last state.

        What the account sends through `carry` is seen as well."""

    async def dialogs(self, following: bytes | None = None) -> DialogPage:
        """One request: an account of thousands of chats that asked for all of them at once would be limited."""

    async def history(
        self, chat_id: int, access: bytes | None, *, below: int | None, above: int, limit: int
    ) -> list[Message]:
        """Messages with ids below and above these, the newest first. `below` None: from the newest. Fewer than `limit`: there
        are no more."""

    async def count(self, chat_id: int, access: bytes | None) -> int:
        """How many messages the history has, as Telegram says."""

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
        """The file of a message, from `offset` on, piece by piece, as long as `take` wants more. Whether all of it was taken;
        not where the message is gone, or has another file by now."""

    async def members(self, chat_id: int, access: bytes | None, *, offset: int, limit: int) -> MemberPage:
        """Members of a group or a channel. Raises REFUSED where they are not shown."""

    # asking for the account
    async def join(self, link: str) -> Dialog:
        """The chat of an invite link or of a public name; at once if it is a member already. Raises REFUSED, also if an admin
        has to let it in first."""

    async def contacts(self) -> list[PhoneContact]: ...

    async def add_contacts(self, wanted: Sequence[PhoneContact]) -> tuple[list[PhoneContact], list[str]]:
        """Those who have an account, and the phones that Telegram wants to be given again later. At most CONTACTS_MAX."""

    # sending
    async def carry(self, request: Request, *, random_id: int, access_of: AccessOf | None = None) -> Reply:
        """A method of the Bot API done as this account. The same random id again is the same message to Telegram, for a time
        that Telegram does not tell. `access_of`: what opens a chat that was seen before this connection. Never raises: what
        happened is in the reply, as with a carrier."""


class ClientFactory(Protocol):
    """Makes the client of one session. What it sees is filed under `session_id` and `agent_id` from the start.

    Raises BadInput for a secret, a file or a proxy that cannot be right."""

    def __call__(
        self, *, session_id: str, agent_id: str, secret: str | None, file: str | None, proxy: str | None
    ) -> AccountClient: ...


# What running sessions ask of others: a piece of the archive, rights with names, and a line to Telegram.


class SessionLocks(Protocol):
    """Rights with names, to one node at a time: see `peik.core.nodes.NodeStore`."""

    @property
    def lease_s(self) -> float | None: ...

    async def take_lock(self, name: str) -> bool: ...

    async def drop_lock(self, name: str) -> None: ...


class Rights(Protocol):
    """For which accounts this node acts: those whose letters it sends, as they go out by the account's connection."""

    def may_run(self, session: Session) -> bool: ...

    async def enlist(self, sessions: Sequence[Session]) -> None:
        """These are to run: letters may go out for their accounts from now on. Raises StoreUnavailable."""
