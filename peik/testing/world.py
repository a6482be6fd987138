"""Everything the simulated Telegram knows, and the few ways to find or make it. Time and chance come from outside."""

import base64
import binascii
import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec

from peik.core.token import Token
from peik.errors import BadInput
from peik.testing.answer import Counters, Delivery, Json, Ledger, Params, Pending, Refusal, UploadedFile, digest, encode
from peik.testing.faults import BotPace, Faults, Options
from peik.testing.updates import DAY_S, DEFAULT_TYPES, Deliveries, UpdateEvent, UpdateQueue, expiry, queue_id

# Who and where: people, chats, topics and what each bot may do in them. State only; the rules of methods are
# elsewhere.


ChatType = Literal["private", "group", "supergroup", "channel"]
Status = Literal["creator", "administrator", "member", "restricted", "left", "kicked"]

SUPERGROUP_BASE = -1_000_000_000_000  # supergroups and channels have ids below this


# What an administrator may do, and what a restricted member may.
RIGHTS = (
    "is_anonymous", "can_manage_chat", "can_delete_messages", "can_manage_video_chats", "can_restrict_members",
    "can_promote_members", "can_change_info", "can_invite_users", "can_post_stories", "can_edit_stories",
    "can_delete_stories", "can_send_welcome_messages",
)  # fmt: skip
PERMISSIONS = (
    "can_send_messages", "can_send_audios", "can_send_documents", "can_send_photos", "can_send_videos",
    "can_send_video_notes", "can_send_voice_notes", "can_send_polls", "can_send_other_messages",
    "can_add_web_page_previews", "can_react_to_messages", "can_edit_tag", "can_change_info", "can_invite_users",
    "can_pin_messages", "can_manage_topics",
)  # fmt: skip


_OF_ALL = frozenset({"can_change_info", "can_invite_users", "can_pin_messages", "can_manage_topics"})


class SimStory(msgspec.Struct, kw_only=True):
    """A story on somebody's page."""

    id: int
    by: int  # the bot that has posted it
    content: Json
    is_protected: bool = False


class SimUser(msgspec.Struct, kw_only=True):
    """A person, or the face of a bot."""

    id: int
    first_name: str
    last_name: str | None = None
    is_bot: bool = False
    username: str | None = None
    language_code: str | None = None
    is_deactivated: bool = False
    is_reachable: bool = True  # False: a bot must not write first
    personal_chat: int = 0  # a channel of theirs that their profile shows
    photos: list[list[Json]] = msgspec.field(default_factory=list)  # of the profile, each in its sizes, newest first
    audios: list[Json] = msgspec.field(default_factory=list)  # of the profile, newest first
    is_premium: bool = False
    bio: str = ""
    emoji_status: str = ""
    emoji_status_until: int = 0
    stars: int = 0
    gift_types: dict[str, bool] = msgspec.field(
        default_factory=dict
    )  # which gifts they take; what is not named they take
    stories: dict[int, SimStory] = msgspec.field(default_factory=dict)
    last_story_id: int = 0

    def as_json(self) -> Json:
        face: Json = {"id": self.id, "is_bot": self.is_bot, "first_name": self.first_name}
        if self.last_name:
            face["last_name"] = self.last_name
        if self.username:
            face["username"] = self.username
        if self.language_code:
            face["language_code"] = self.language_code
        if self.is_premium:
            face["is_premium"] = True
        return face


class Topic(msgspec.Struct, kw_only=True):
    id: int
    name: str
    icon_color: int = 7322096
    icon_custom_emoji_id: str = ""
    is_closed: bool = False
    is_hidden: bool = False

    def as_json(self) -> Json:
        face: Json = {"name": self.name, "icon_color": self.icon_color}
        return face | ({"icon_custom_emoji_id": self.icon_custom_emoji_id} if self.icon_custom_emoji_id else {})


class SimMember(msgspec.Struct, kw_only=True):
    """Somebody's standing in a chat; for a bot also what it may do there."""

    status: Status = "member"
    can_send: bool = True
    can_pin: bool = True
    can_delete: bool = True
    can_be_edited: bool = False  # an administrator whom the bot has made
    rights: dict[str, bool] = msgspec.field(default_factory=dict)  # of an administrator; what is not named is given
    permissions: dict[str, bool] = msgspec.field(default_factory=dict)  # of a restricted member, likewise
    until: int = 0
    title: str = ""
    tag: str = ""
    spoke_at: float = float("-inf")  # where messages are slowed

    @property
    def is_inside(self) -> bool:
        return self.status not in {"left", "kicked"}

    def may(self, right: str) -> bool:
        """Has an administrator this right? A creator has all, others have none."""
        if self.status == "administrator":
            own = {"can_pin_messages": self.can_pin, "can_delete_messages": self.can_delete}
            return self.rights.get(right, own.get(right, True))
        return self.status == "creator"

    def as_json(self, user: SimUser) -> Json:
        """A ChatMember. Each status has fields of its own, and strict libraries refuse one that lacks them."""
        face: Json = {"user": user.as_json(), "status": self.status}
        match self.status:
            case "creator":
                face["is_anonymous"] = False
            case "administrator":
                names = (*RIGHTS, "can_pin_messages", "can_manage_tags")
                rights = {name: self.may(name) and (name != "is_anonymous" or name in self.rights) for name in names}
                face |= {"can_be_edited": self.can_be_edited, **self.rights, **rights}
            case "restricted":
                permissions = {name: self.permissions.get(name, self.can_send) for name in PERMISSIONS}
                face |= {"is_member": True, "until_date": self.until, **permissions}
            case "kicked":
                face["until_date"] = self.until
        if self.tag and self.status in {"member", "restricted"}:
            face["tag"] = self.tag
        return face | ({"custom_title": self.title} if self.title else {})


class SimChat(msgspec.Struct, kw_only=True):
    """One chat. A private one belongs to one bot and one person, so each pair has its own message numbers."""

    id: int
    type: ChatType
    title: str | None = None
    username: str | None = None
    user: SimUser | None = None  # of a private chat
    is_forum: bool = False
    parent: int = 0  # the channel, of whose direct messages these are
    is_lenient: bool = False  # made by its first use: any thread exists, any bot is a member
    is_blocked: bool = False  # private: the person has stopped the bot
    is_deleted: bool = False
    migrated_to: int | None = None
    last_message_id: int = 0
    active_at: float = float("-inf")  # when a person last wrote or pressed here
    messages: dict[int, Json] = msgspec.field(default_factory=dict)
    ephemeral: dict[int, Json] = msgspec.field(default_factory=dict)  # seen by one person, and by ids of their own
    topics: dict[int, Topic] = msgspec.field(default_factory=dict)
    members: dict[int, SimMember] = msgspec.field(default_factory=dict)
    bills: dict[int, Json] = msgspec.field(default_factory=dict)  # of invoices and paid media: what no message shows
    reactions: dict[int, dict[int, list[Json]]] = msgspec.field(default_factory=dict)  # by message and person
    pinned: list[int] = msgspec.field(default_factory=list)
    more: Json = msgspec.field(default_factory=dict)  # what getChat tells beside the face: description, permissions …
    links: dict[str, Json] = msgspec.field(default_factory=dict)  # invite links, by themselves
    comers: dict[str, set[int]] = msgspec.field(default_factory=dict)  # who has come by which link
    requests: dict[int, Json] = msgspec.field(default_factory=dict)  # who asks to be let in
    guard: int = 0  # the bot that is asked about each of them
    banned: set[int] = msgspec.field(default_factory=set)  # channels in whose name nobody may write here
    boosts: dict[int, list[Json]] = msgspec.field(default_factory=dict)  # by person
    drafts: dict[int, Json] = msgspec.field(default_factory=dict)  # what a bot is still writing, by its own ids
    face: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)  # as_json, encoded once: it is in every message

    def __post_init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Encode the face anew: something in it has changed."""
        self.face = msgspec.Raw(encode(self.as_json()))

    @property
    def is_private(self) -> bool:
        return self.type == "private"

    def as_json(self) -> Json:
        face: Json = {"id": self.id, "type": self.type}
        if self.title is not None:
            face["title"] = self.title
        if self.username:
            face["username"] = self.username
        if self.user is not None:
            face["first_name"] = self.user.first_name
            if self.user.last_name:
                face["last_name"] = self.user.last_name
            if self.user.username:
                face["username"] = self.user.username
        if self.is_forum:
            face["is_forum"] = True
        if self.parent:
            face["is_direct_messages"] = True
        return face

    def next_message_id(self) -> int:
        self.last_message_id += 1
        return self.last_message_id


# Files that bots and people have uploaded: their ids, their places, and their contents as far as memory allows.


# Kind: how an id of it begins (as Telegram's do), its folder, its usual ending.
KINDS = {
    "photo": ("AgACAgQAAxk", "photos", "jpg"),
    "document": ("BQACAgQAAxk", "documents", "bin"),
    "audio": ("CQACAgQAAxk", "music", "mp3"),
    "video": ("BAACAgQAAxk", "videos", "mp4"),
    "animation": ("CgACAgQAAxk", "animations", "mp4"),
    "voice": ("AwACAgQAAxk", "voice", "oga"),
    "video_note": ("DQACAgQAAxk", "video_notes", "mp4"),
    "sticker": ("CAACAgQAAxk", "stickers", "webp"),
    "live_photo": ("AwLPAgQAAxk", "videos", "mp4"),
}


class StoredFile(msgspec.Struct, kw_only=True):
    """One file as one bot knows it: ids are per bot (docs/telegram.md, Sizes and files)."""

    file_id: str
    unique_id: str
    kind: str
    size_bytes: int
    path: str
    filename: str
    content_type: str
    content: bytes | None
    face: Json = msgspec.field(default_factory=dict)  # what Telegram says of it besides
    thumb: Json | None = None
    sizes: list[Json] = msgspec.field(default_factory=list)  # of a photo, smallest first

    def as_json(self) -> Json:
        return {"file_id": self.file_id, "file_unique_id": self.unique_id, "file_size": self.size_bytes}


def _unique(kind: str, digest: bytes) -> str:
    """As long as Telegram's are: those of photos have a letter more."""
    text = binascii.b2a_base64(digest, newline=False).decode().replace("+", "-").replace("/", "_")
    return f"AQAD{text}" if kind == "photo" else f"AgAD{text[:11]}"


class FileShelf:
    """All files of one bot. Ids are kept for ever, contents only up to a budget, oldest first to go."""

    def __init__(self, bot_id: int, *, bytes_max: int) -> None:
        self._bot_id = bot_id
        self._bytes_max = bytes_max
        self._bytes = 0
        self.by_id: dict[str, StoredFile] = {}
        self.by_path: dict[str, StoredFile] = {}
        self._full: deque[StoredFile] = deque()

    def put(self, kind: str, upload: UploadedFile, *, mark: bytes = b"") -> StoredFile:
        """Keep a file. `mark` tells it apart instead of its bytes: what is made of another file has the same."""
        prefix, folder, ending = KINDS.get(kind, KINDS["document"])
        number = len(self.by_id)
        unique = hashlib.blake2b(mark or upload.content, digest_size=9, person=kind.encode()[:16])
        suffix = upload.filename.rpartition(".")[2] if "." in upload.filename else ending
        stored = StoredFile(
            file_id=f"{prefix}{self._bot_id:x}Z{number:08x}Q",
            unique_id=_unique(kind, unique.digest()),
            kind=kind,
            size_bytes=len(upload.content),
            path=f"{folder}/file_{number}.{suffix}",
            filename=upload.filename,
            content_type=upload.content_type,
            content=upload.content,
        )
        self.by_id[stored.file_id] = self.by_path[stored.path] = stored
        self._full.append(stored)
        self._bytes += stored.size_bytes
        while self._bytes > self._bytes_max and len(self._full) > 1:
            oldest = self._full.popleft()
            oldest.content = None
            self._bytes -= oldest.size_bytes
        return stored


class Game(msgspec.Struct, kw_only=True):
    """A game of a bot, as @BotFather knows it, with its scores."""

    title: str
    description: str = ""
    photo: list[Json] = msgspec.field(default_factory=list)
    animation: Json | None = None
    scores: dict[int, int] = msgspec.field(default_factory=dict)

    def as_json(self, world: "World") -> Json:
        face: Json = {"title": self.title, "description": self.description, "photo": self.photo}
        if self.animation is not None:
            face["animation"] = self.animation
        if self.scores:
            rows = sorted(self.scores.items(), key=lambda row: -row[1])
            lines = [f"{place}. {world.users[who].first_name} - {score}" for place, (who, score) in enumerate(rows, 1)]
            face["text"] = "\n".join(lines)
        return face


class StickerSet(msgspec.Struct, kw_only=True):
    """A sticker set; `stickers` are the faces of its files, in order."""

    name: str
    title: str
    kind: str
    owner_id: int = 0  # the bot that may change it
    needs_repainting: bool = False
    thumbnail: Json | None = None
    stickers: list[StoredFile] = msgspec.field(default_factory=list)


# One bot as Telegram keeps it: its token, its queue, its way of receiving, and its recent past.


class SimPoller(msgspec.Struct, kw_only=True):
    """What getUpdates remembers from call to call (docs/telegram.md, Polling)."""

    offset: int = 0
    started_at: float = float("-inf")
    parked: Pending | None = None
    next_conflict_at: float = float("-inf")  # the first 409 in 3 s is immediate, the following are held back


class Webhook(msgspec.Struct, kw_only=True):
    """A webhook as it was set, and how it fares."""

    url: str
    secret_token: str = ""
    ip_address: str = ""
    connections_max: int = 40
    certificate: bytes = b""  # the only one that a push trusts
    deliveries: Deliveries
    error_at: float | None = None
    error: str = ""


class SimQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the bot that must be answered soon: a press, an inline query, a checkout.

    See docs/telegram.md, Answers in time.
    """

    kind: str
    asked_at: float
    chat_id: int | None
    user_id: int = 0


class SimBot:
    """Plain state; the rules are with the methods."""

    def __init__(self, *, token_text: str, user: SimUser, now: float, chance: random.Random, options: Options) -> None:
        self.id = user.id
        self.token_text = token_text
        self.user = user
        self.face = msgspec.Raw(encode(user.as_json()))  # it is in every message the bot sends
        self.started_at = now
        self.logged_out_until = float("-inf")
        self.dialogs: dict[int, SimChat] = {}  # private chats, by the person's id
        self.pace = BotPace()
        self.queue = UpdateQueue(chance, jumps=options.mode == "cloud")
        self.allowed = DEFAULT_TYPES  # shared by getUpdates and setWebhook, kept from call to call
        self.poller = SimPoller()
        self.webhook: Webhook | None = None
        self.webhook_set_at = float("-inf")
        self.webhook_check: Pending | None = None  # a setWebhook whose connection is being tried
        self.files = FileShelf(user.id, bytes_max=options.files_bytes_max)
        self.queries: dict[tuple[str, str], SimQuery] = {}  # by kind and id
        self.settings: dict[str, object] = {}  # what set… has set and get… gives back
        self.games: dict[str, Game] = {}
        self.connections: dict[str, Json] = {}  # business connections, by id
        self.transactions: list[Json] = []  # of Stars, oldest first
        self.checkouts: dict[str, Json] = {}  # pre-checkout queries that would be paid, by id
        self.results: dict[str, Json] = {}  # of the last answer to an inline query, and prepared ones, by id
        self.prepared: dict[str, frozenset[str]] = {}  # to which chats those may be sent, if not to all
        self.answers: dict[str, Json] = {}  # to queries of people, by their ids
        self.inline: dict[str, Json] = {}  # messages that people have sent by way of this bot, by their inline ids
        self.managed: dict[int, Json] = {}  # bots that this one manages, and who may use them
        self.invoices: dict[str, Json] = {}  # that stand behind links
        self.subscriptions: dict[str, Json] = {}  # paid in Stars, by the charge that began them
        self.buttons: dict[str, Json] = {}  # prepared for Mini Apps
        self.passport_errors: dict[int, list[object]] = {}  # by person
        self.may_verify = False  # for an organization of its own
        self.verified: dict[int, str] = {}  # people and chats, with what is said of them

    def __repr__(self) -> str:
        return f"Bot({self.id})"


CHAT_ID_END = 1 << 52  # ids have at most 52 significant bits, says the Bot API


class SimCall(msgspec.Struct, kw_only=True):
    """One request to one method."""

    bot: SimBot
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
        self.updated: Callable[[SimBot], None] | None = None
        # What lies at an address that a request names instead of a file; None for what nobody has put there.
        self.web: Callable[[str], UploadedFile | None] = lambda url: None
        # Told when something is scheduled; whoever has a clock calls `run_due` then.
        self.wake: Callable[[float], None] | None = None
        # What a server has fetched for the last requests; None for what could not be had.
        self.fetched: dict[str, UploadedFile | None] = {}
        self._scheduled = 0
        self.forget()

    def forget(self) -> None:
        """Start again with nobody and nothing. Options and faults stay."""
        self.bots: dict[int, SimBot] = {}
        self.by_token: dict[str, SimBot] = {}
        self.users: dict[int, SimUser] = {}
        self.chats: dict[int, SimChat] = {}  # all but private ones
        self.by_username: dict[str, SimChat | SimUser] = {}
        self.sent = Ledger(self.options.ledger_max)
        self.applied = Ledger(self.options.ledger_max)
        self.counters = Counters()
        self.awaited: list[tuple[int, Pending]] = []  # who waits for that many deliveries
        self._kept: deque[tuple[SimChat, int]] = deque()
        self.polls: dict[str, tuple[int, Json]] = {}  # by id: the bot that asked, and the poll
        self.votes: dict[str, dict[int, list[int]]] = {}  # by poll and person
        self.sticker_sets: dict[str, StickerSet] = {}  # by name, in small letters
        self.gifts: dict[int, dict[str, Json]] = {}  # by owner, a person or a channel, and by their own ids
        self.gifts_sold: dict[str, int] = {}  # how many of which
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []  # a heap of what happens by itself, and when

    # What happens by itself

    def schedule(self, at: float, act: Callable[[], None]) -> None:
        """Let something happen at that instant: with the next request after it, or by itself where there is a clock."""
        self._scheduled += 1
        heapq.heappush(self.agenda, (at, self._scheduled, act))
        if self.wake is not None:
            self.wake(at)

    def run_due(self) -> None:
        """Let happen what is due."""
        while self.agenda and self.agenda[0][0] <= self.now():
            heapq.heappop(self.agenda)[2]()

    # Bots

    def enter(self, token_text: str) -> SimBot:
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

    def add_bot(self, token_text: str, *, username: str = "", first_name: str = "") -> SimBot:
        """A new bot, or the same with a new token. Raises BadInput if the token has not the form of one."""
        bot_id = Token(token_text).bot_id
        known = self.bots.get(bot_id)
        if known is not None:
            self.by_token.pop(known.token_text, None)
            known.token_text = token_text
            self.by_token[token_text] = known
            return known
        face = SimUser(
            id=bot_id, first_name=first_name or f"Bot {bot_id}", is_bot=True, username=username or f"peik_{bot_id}_bot"
        )
        bot = SimBot(token_text=token_text, user=face, now=self.now(), chance=self.chance, options=self.options)
        self.bots[bot_id] = self.by_token[token_text] = bot
        self.users[bot_id] = face
        return bot

    # Chats

    def find_chat(self, bot: SimBot, where: object) -> SimChat | None:
        """The chat of a `chat_id`, number or @name, seen from this bot; made on first use if any chat may."""
        if type(where) is not int:
            text = str(where).strip()
            if text.startswith("@"):
                named = self.by_username.get(text[1:].lower())
                if not isinstance(named, SimUser):
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

    def dialog(self, bot: SimBot, user: SimUser) -> SimChat:
        """The private chat of a bot and a person."""
        chat = bot.dialogs.get(user.id)
        if chat is None:
            chat = bot.dialogs[user.id] = SimChat(id=user.id, type="private", user=user)
        return chat

    def _dialog(self, bot: SimBot, user_id: int) -> SimChat | None:
        chat = bot.dialogs.get(user_id)
        if chat is not None:
            return chat
        user = self.users.get(user_id)
        if user is not None:
            return self.dialog(bot, user)
        if not self.options.accept_any_chat:
            return None
        user = self.users[user_id] = SimUser(id=user_id, first_name=f"User {user_id}")
        chat = self.dialog(bot, user)
        chat.is_lenient = True
        return chat

    def _group(self, chat_id: int) -> SimChat | None:
        chat = self.chats.get(chat_id)
        if chat is None and self.options.accept_any_chat and chat_id != 0:
            is_super = chat_id <= SUPERGROUP_BASE
            chat = SimChat(
                id=chat_id, type="supergroup" if is_super else "group", title=f"Group {chat_id}", is_lenient=True
            )
            self.chats[chat_id] = chat
        return chat

    def member(self, chat: SimChat, bot: SimBot) -> SimMember:
        """The bot's standing in a group or channel. A lenient chat takes in every bot, as administrator."""
        found = chat.members.get(bot.id)
        if found is None:
            found = SimMember(status="administrator" if chat.is_lenient else "left")
            chat.members[bot.id] = found
        return found

    def may(self, chat: SimChat, bot: SimBot, right: str) -> bool:
        """Has the bot this right in a group or channel? Of a group's members some are had by all, unless forbidden."""
        member = self.member(chat, bot)
        if member.status == "member" and chat.type != "channel" and right in _OF_ALL:
            return self.permits(chat, member, right)
        return member.may(right)

    def permits(self, chat: SimChat, member: SimMember, permission: str) -> bool:
        """May this member do what members may, unless it is forbidden to all or to this one?"""
        if chat.type == "channel" or member.status in {"administrator", "creator"}:
            return True
        general = chat.more.get("permissions")
        if isinstance(general, dict) and not general.get(permission, True):
            return False
        return member.status != "restricted" or member.permissions.get(permission, True)

    # Messages

    def keep(self, chat: SimChat, message_id: int, message: Json) -> None:
        """Remember a message, so that it can be edited, answered and copied; the oldest of all is forgotten."""
        chat.messages[message_id] = message
        self._kept.append((chat, message_id))
        if len(self._kept) > self.options.messages_max:
            old_chat, old_id = self._kept.popleft()
            old_chat.messages.pop(old_id, None)
            if old_chat.reactions:
                old_chat.reactions.pop(old_id, None)

    def let_expire(self, chat: SimChat, message_id: int) -> None:
        """Where a timer deletes messages, this one goes in its time."""
        seconds = chat.more.get("message_auto_delete_time")
        if isinstance(seconds, int):
            self.schedule(self.now() + seconds, lambda: self._let_go(chat, message_id))

    @staticmethod
    def _let_go(chat: SimChat, message_id: int) -> None:
        chat.messages.pop(message_id, None)

    def note_sent(self, call: SimCall, chat: SimChat, *, message_id: int, thread_id: int | None, text: str) -> None:
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

    def note_applied(self, call: SimCall, *, chat_id: int = 0, message_id: int = 0, text: str = "") -> None:
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

    def push(self, bot: SimBot, kind: str, payload: Json, *, date: float | None = None) -> UpdateEvent | None:
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


# One push of one update to a webhook: where it goes and what it carries.


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """To be POSTed once; then `Telegram.push_done` wants to know."""

    bot_id: int
    webhook: Webhook
    event: UpdateEvent

    @property
    def url(self) -> str:
        return self.webhook.url

    @property
    def body(self) -> bytes:
        return self.event.body

    def headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip, deflate"}
        if self.webhook.secret_token:
            headers["X-Telegram-Bot-Api-Secret-Token"] = self.webhook.secret_token
        parts = urlsplit(self.webhook.url)
        if parts.username:
            # Credentials in the URL are sent as HTTP Basic auth (docs/telegram.md, Setting a webhook).
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        return headers
