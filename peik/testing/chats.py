"""Who and where: people, chats, topics and what each bot may do in them. State only; the rules of methods are elsewhere."""

from typing import Literal

import msgspec

from peik.testing.answer import encode
from peik.testing.params import Json

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


class User(msgspec.Struct, kw_only=True):
    """A person, or the face of a bot."""

    id: int
    first_name: str
    is_bot: bool = False
    username: str | None = None
    language_code: str | None = None
    is_deactivated: bool = False
    is_reachable: bool = True  # False: a bot must not write first

    def as_json(self) -> Json:
        face: Json = {"id": self.id, "is_bot": self.is_bot, "first_name": self.first_name}
        if self.username:
            face["username"] = self.username
        if self.language_code:
            face["language_code"] = self.language_code
        return face


class Topic(msgspec.Struct, kw_only=True):
    id: int
    name: str
    icon_color: int = 7322096
    is_closed: bool = False


class Member(msgspec.Struct, kw_only=True):
    """Somebody's standing in a chat; for a bot also what it may do there."""

    status: Status = "member"
    can_send: bool = True
    can_pin: bool = True
    can_delete: bool = True

    @property
    def is_inside(self) -> bool:
        return self.status not in {"left", "kicked"}

    def as_json(self, user: User) -> Json:
        """A ChatMember. Each status has fields of its own, and strict libraries refuse one that lacks them."""
        face: Json = {"user": user.as_json(), "status": self.status}
        match self.status:
            case "creator":
                face["is_anonymous"] = False
            case "administrator":
                rights = dict.fromkeys(RIGHTS, True) | {"is_anonymous": False, "can_delete_messages": self.can_delete}
                face |= {"can_be_edited": False, **rights, "can_pin_messages": self.can_pin}
            case "restricted":
                face |= {"is_member": True, "until_date": 0, **dict.fromkeys(PERMISSIONS, self.can_send)}
            case "kicked":
                face["until_date"] = 0
        return face


class Chat(msgspec.Struct, kw_only=True):
    """One chat. A private one belongs to one bot and one person, so each pair has its own message numbers."""

    id: int
    type: ChatType
    title: str | None = None
    username: str | None = None
    user: User | None = None  # of a private chat
    is_forum: bool = False
    is_lenient: bool = False  # made by its first use: any thread exists, any bot is a member
    is_blocked: bool = False  # private: the person has stopped the bot
    is_deleted: bool = False
    migrated_to: int | None = None
    last_message_id: int = 0
    active_at: float = float("-inf")  # when a person last wrote or pressed here
    messages: dict[int, Json] = msgspec.field(default_factory=dict)
    topics: dict[int, Topic] = msgspec.field(default_factory=dict)
    members: dict[int, Member] = msgspec.field(default_factory=dict)
    pinned: list[int] = msgspec.field(default_factory=list)
    face: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)  # as_json, encoded once: it is in every message

    def __post_init__(self) -> None:
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
            if self.user.username:
                face["username"] = self.user.username
        if self.is_forum:
            face["is_forum"] = True
        return face

    def next_message_id(self) -> int:
        self.last_message_id += 1
        return self.last_message_id
