"""Users, templates and notifications as REST and the dashboard show them. Ids are strings, times are RFC 3339."""

from typing import Annotated, Any

import msgspec

from peik.core.letter import State
from peik.core.units import rfc3339
from peik.notifications.model import TYPE_PATTERN, USER_PATTERN, Notice, NoticeView, Template, User
from peik.outbox.store import LetterView
from peik.web.operations import Id, Moment

WAITING = "waiting"
CLEARED = "cleared"
ID_PATTERN = "^[0-9a-f]{1,40}$"

NextCursor = Annotated[str | None, msgspec.Meta(description="The cursor of the next page; null at the end.")]
_UserId = Annotated[str, msgspec.Meta(pattern=USER_PATTERN)]
_NoticeId = Annotated[str, msgspec.Meta(pattern=ID_PATTERN)]
_Type = Annotated[str, msgspec.Meta(pattern=TYPE_PATTERN)]
_State = Annotated[
    str,
    msgspec.Meta(
        description="waiting until its time, then as its letters stand; cleared: they are kept no more.",
        extra_json_schema={"enum": [*(str(state) for state in State), CLEARED]},
    ),
]


class UserQuietAnswer(msgspec.Struct, frozen=True, kw_only=True):
    start: str
    end: str
    tz: str


class UserAnswer(msgspec.Struct, frozen=True, kw_only=True):
    user_id: _UserId
    linked: bool
    bot_id: Id | None
    chat_id: str | None
    linked_at: Moment | None
    language: str | None
    quiet: Annotated[UserQuietAnswer | None, msgspec.Meta(description="Null: as the settings say.")]
    code_expires_at: Annotated[
        Moment | None, msgspec.Meta(description="Of a code that was given out and not used yet.")
    ]

    @classmethod
    def of(cls, user: User) -> "UserAnswer":
        link, quiet = user.link, user.quiet
        return cls(
            user_id=user.user_id,
            linked=link is not None,
            bot_id=None if link is None else str(link.bot_id),
            chat_id=None if link is None else str(link.chat_id),
            linked_at=None if link is None else rfc3339(link.since_ms),
            language=user.language,
            quiet=None if quiet is None else UserQuietAnswer(start=quiet.start, end=quiet.end, tz=quiet.tz),
            code_expires_at=rfc3339(user.code_expires_at_ms),
        )


class UsersAnswer(msgspec.Struct, frozen=True, kw_only=True):
    users: list[UserAnswer]
    next_cursor: NextCursor


class LinkCodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    user_id: _UserId
    bot_id: Id
    code: Annotated[str, msgspec.Meta(description="Shown this once.")]
    url: Annotated[str | None, msgspec.Meta(description="Null: Telegram could not be asked for the bot's name.")]
    expires_at: Moment

    def __repr__(self) -> str:
        return f"LinkCodeAnswer(user_id={self.user_id!r})"  # anyone who has the code is that user


class TemplateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    type: _Type
    language: str
    text: str

    @classmethod
    def of(cls, template: Template) -> "TemplateAnswer":
        return cls(type=template.type, language=template.language, text=template.text)


class TemplatesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    templates: list[TemplateAnswer]
    next_cursor: NextCursor


class NotificationAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: _NoticeId
    user_id: _UserId | None
    chat_id: str | None
    bot_id: Id | None
    type: _Type
    title: str
    message: str
    priority: int
    state: _State
    failed_reason: str | None
    letter_id: Annotated[Id | None, msgspec.Meta(description="The first of its letters.")]
    letter_ids: list[Id]
    due_at: Annotated[Moment | None, msgspec.Meta(description="While it waits.")]
    created_at: Moment
    metadata: dict[str, Any] | None

    @classmethod
    def of(cls, view: NoticeView) -> "NotificationAnswer":
        notice, request = view.notice, view.notice.request
        return cls(
            id=notice.id,
            user_id=request.user_id,
            chat_id=None if request.chat_id is None else str(request.chat_id),
            bot_id=None if request.bot_id is None else str(request.bot_id),
            type=request.type,
            title=request.title,
            message=request.message,
            priority=request.priority,
            state=state_of(view),
            failed_reason=_reason(view),
            letter_id=_letter_id(notice),
            letter_ids=[str(one) for one in notice.letter_ids],
            due_at=_due_at(notice),
            created_at=rfc3339(notice.created_at_ms),
            metadata=request.metadata or None,
        )


class NotificationsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    notifications: list[NotificationAnswer]
    next_cursor: NextCursor


class AcceptedNotificationAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: _NoticeId
    letter_id: Id | None
    state: _State
    due_at: Moment | None

    @classmethod
    def of(cls, notice: Notice) -> "AcceptedNotificationAnswer":
        """As it stands right after: its letters, if it has any, wait."""
        return cls(
            id=notice.id,
            letter_id=_letter_id(notice),
            state=WAITING if notice.failed_reason is None else State.FAILED,
            due_at=_due_at(notice),
        )


class AcceptedNotificationsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    notifications: list[AcceptedNotificationAnswer]


def _letter_id(notice: Notice) -> str | None:
    return str(notice.letter_ids[0]) if notice.letter_ids else None


def _due_at(notice: Notice) -> str | None:
    return None if notice.is_over else rfc3339(notice.due_at_ms)


def state_of(view: NoticeView) -> str:
    """waiting, then as its letters stand: failed if one of them is, completed once all are. cleared: they are kept no more."""
    if view.notice.failed_reason is not None:
        return State.FAILED
    if not view.notice.letter_ids:
        return WAITING
    if not view.letters:
        return CLEARED
    order = (State.FAILED, State.CANCELLED, State.ACTIVE, State.WAITING, State.DELAYED, State.COMPLETED)
    return min((letter.state for letter in view.letters), key=order.index)


def _reason(view: NoticeView) -> str | None:
    failed = (letter.failed_reason for letter in view.letters if _is_dead(letter))
    return view.notice.failed_reason or next(failed, None)


def _is_dead(letter: LetterView) -> bool:
    return letter.state is State.FAILED
