"""What can be observed of accounts and their archive, as events. `bot_id` is the account's user id where it is known."""

from peik.core.events import Event


class SessionUp(Event, frozen=True, kw_only=True):
    """It is connected, and everything since its last place is on the way."""

    session_id: str


class SessionDown(Event, frozen=True, kw_only=True):
    """Its connection ended, or could not be made; it is tried again after `retry_s`."""

    session_id: str
    why: str
    retry_s: float


class SessionCalm(Event, frozen=True, kw_only=True):
    """What was told by `SessionDown` is over: it is connected, or it is not to run here any more."""

    session_id: str


class SessionFlooded(Event, frozen=True, kw_only=True):
    """Telegram asks this account to wait."""

    session_id: str
    wait_s: float


class SessionRevoked(Event, frozen=True, kw_only=True):
    """Telegram ended the session. Somebody has to sign in again. Told once."""

    session_id: str
    why: str


class SessionUnfit(Event, frozen=True, kw_only=True):
    """It cannot run until somebody mends it: its key cannot be opened, its proxy cannot be right."""

    session_id: str
    why: str


class SessionLockLost(Event, frozen=True, kw_only=True):
    """This node could not prove its right to run the session any more, and has disconnected it."""

    session_id: str


class ArchiveGap(Event, frozen=True, kw_only=True):
    """Telegram cannot replay what happened there (None: in private chats and basic groups). The history is read."""

    session_id: str
    chat_id: int | None


class HolesFilled(Event, frozen=True, kw_only=True):
    """Messages of a chat that were missing in the archive, or deleted unseen, were found in its history."""

    session_id: str
    chat_id: int
    found: int
    deleted: int


class ChatUnread(Event, frozen=True, kw_only=True):
    """The history of a chat cannot be read: what is missing there stays so."""

    session_id: str
    chat_id: int
    why: str


class ChatBehind(Event, frozen=True, kw_only=True):
    """The history of a chat (None: the list of chats) cannot be read just now. It is tried again after `retry_s`, and the
    others go on."""

    session_id: str
    chat_id: int | None
    why: str
    retry_s: float


class ChatReadAgain(Event, frozen=True, kw_only=True):
    """What was told by `ChatBehind` is over."""

    session_id: str
    chat_id: int | None


class CrawlAdvanced(Event, frozen=True, kw_only=True):
    """A chat's history is archived from its end down to `crawled_to`; `is_done`: as far as was asked for."""

    session_id: str
    chat_id: int
    crawled_to: int
    crawled: int
    is_done: bool


class MembersRead(Event, frozen=True, kw_only=True):
    """The list of a chat's members was read. `is_whole`: Telegram showed all of them; else nobody is said to have left."""

    session_id: str
    chat_id: int
    members: int
    is_whole: bool
    joined: int
    left: int


class FileFetched(Event, frozen=True, kw_only=True):
    """The file of a message is in PEIK_SESSIONS_MEDIA now."""

    session_id: str
    chat_id: int
    size_bytes: int


class FileGivenUp(Event, frozen=True, kw_only=True):
    """The file of a message cannot be had from Telegram: it is not asked for any more."""

    session_id: str
    chat_id: int
    message_id: int
    why: str


class ArchiveAway(Event, frozen=True, kw_only=True):
    """The archive cannot be opened. Sessions wait, bots do not."""

    why: str


class ArchiveBack(Event, frozen=True, kw_only=True):
    """The archive is open."""


class SessionFed(Event, frozen=True, kw_only=True):
    """Lines joined a session's feed: whoever listens may look."""

    session_id: str
    count: int


class SessionNotice(Event, frozen=True, kw_only=True):
    """Something about keys of accounts that the owner of this installation has to know."""

    words: str


class PushFailed(Event, frozen=True, kw_only=True):
    """The webhook of accounts does not take what is new. It is kept, and tried again. Told once until `PushBack`."""

    endpoint: str
    why: str


class PushBack(Event, frozen=True, kw_only=True):
    """It takes it again; or another node has to do with it now."""

    endpoint: str
    away_s: float
    is_left: bool = False


class PushRefused(Event, frozen=True, kw_only=True):
    """The webhook said that it does not want these lines (410): it is not told of them again."""

    endpoint: str
    count: int


class LogDropped(Event, frozen=True, kw_only=True):
    """The archive could not keep up with the log, and so many lines of it are not there. Told when it could again."""

    count: int
