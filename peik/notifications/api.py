"""REST: users of a company and the codes that link them to their chats; notifications to users and chats, and the templates that
they are written by."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from peik.core.letter import Priority
from peik.core.quiet import Quiet
from peik.core.units import parse_duration_s, rfc3339
from peik.errors import BadInput, NotFound
from peik.notifications.answers import (
    ID_PATTERN,
    AcceptedNotificationAnswer,
    AcceptedNotificationsAnswer,
    LinkCodeAnswer,
    NotificationAnswer,
    NotificationsAnswer,
    TemplateAnswer,
    TemplatesAnswer,
    UserAnswer,
    UsersAnswer,
)
from peik.notifications.links import CODE_S, not_linked, unknown
from peik.notifications.model import (
    LANGUAGE_PATTERN,
    TYPE_PATTERN,
    USER_PATTERN,
    Attachment,
    LetterTerms,
    NoticeView,
    NotifyRequest,
    User,
    checked_user,
)
from peik.outbox.api import BackoffBody
from peik.web.access import Caller
from peik.web.openapi import LIMIT_DEFAULT
from peik.web.operations import operation
from peik.web.parse import LIMIT, WORD_CURSOR, Param, Time, id_of, instant_ms, key_up_to, word_like

if TYPE_CHECKING:
    from peik.notifications.links import Links
    from peik.notifications.service import NotificationService

_BODY_MAX = 128 * 1024
_BATCH_MAX = 16 * 1024 * 1024
_TASK = {"user_id": "lena", "type": "task_assigned", "title": "Task 17", "message": "Amir Temur 1, at noon"}
_FILES = {"photo": "sendPhoto", "document": "sendDocument"}

# ---- what is asked for ----


def _user(text: str, name: str) -> str:
    return checked_user(text)


def _notice_cursor(text: str, name: str) -> str:
    if re.fullmatch(ID_PATTERN, text) is None:
        raise _bad_cursor()
    return text


def _template_cursor(text: str, name: str) -> str:
    if not (text.isascii() and text.isprintable() and len(text) <= 200):
        raise _bad_cursor()
    return text


def _bad_cursor() -> BadInput:
    return BadInput(code="bad_cursor", detail="cursor is the next_cursor of the page before.")


_USER = Param(_user, {"type": "string", "pattern": USER_PATTERN})
_NOTICE_CURSOR = Param(_notice_cursor, {"type": "string", "pattern": ID_PATTERN}, WORD_CURSOR.text)
_TEMPLATE_CURSOR = Param(_template_cursor, {"type": "string"}, WORD_CURSOR.text)

UserInPath = Annotated[str, _USER]
TypeInPath = Annotated[str, word_like(TYPE_PATTERN)]
LanguageInPath = Annotated[str, word_like(LANGUAGE_PATTERN)]


class UsersQuery(msgspec.Struct, frozen=True, kw_only=True):
    cursor: Annotated[str | None, _USER.saying(WORD_CURSOR.text)] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT


class NotificationsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user_id: Annotated[str | None, _USER.saying("Of this user.")] = None
    cursor: Annotated[str | None, _NOTICE_CURSOR] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT


class TemplatesQuery(msgspec.Struct, frozen=True, kw_only=True):
    cursor: Annotated[str | None, _TEMPLATE_CURSOR] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT


class NotificationHeaders(msgspec.Struct, frozen=True, kw_only=True):
    idempotency_key: Annotated[
        str | None,
        key_up_to(200, "A repeat with the same key, while the notification is kept, is the same notification."),
    ] = None


class LinkBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/users/{user_id}/link`. `expires_in`: seconds, or a time such as 15m."""

    bot_id: int | str | None = None
    expires_in: int | float | str | None = None
    language: str | None = None


class UserQuietBody(msgspec.Struct, forbid_unknown_fields=True):
    start: str
    end: str
    tz: str = "UTC"


class UserBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PATCH /v1/users/{user_id}`. Null: as Telegram says of the language, as the settings say of quiet hours."""

    language: str | msgspec.UnsetType | None = msgspec.UNSET
    quiet: UserQuietBody | msgspec.UnsetType | None = msgspec.UNSET


class LocationBody(msgspec.Struct, forbid_unknown_fields=True):
    latitude: float
    longitude: float


class AttachmentBody(msgspec.Struct, forbid_unknown_fields=True):
    """Any call that sends; the chat is put in."""

    method: str
    params: dict[str, Any] = {}


class NotificationBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/notifications`. `photo` and `document` are URLs or file ids. `digest`: a time such as 10m to gather others of
    the type in; false: never with others."""

    type: str
    title: str = ""
    message: str = ""
    user_id: int | str | None = None
    user: int | str | None = msgspec.field(name="userId", default=None)  # the same, as JavaScript writes it
    chat_id: int | str | None = None
    bot_id: int | str | None = None
    language: str | None = None
    data: dict[str, str | int | float | bool] = {}
    priority: int = int(Priority.HIGH)
    parse_mode: str | None = None
    photo: str | None = None
    document: str | None = None
    location: LocationBody | None = None
    attachment: AttachmentBody | None = None
    digest: int | float | str | bool | None = None
    send_at: Time = None
    expires_at: Time = None
    idempotency_key: str | None = None
    webhook_url: str | None = None
    metadata: dict[str, Any] = {}
    attempts: int | None = None
    backoff_ms: int | None = None
    backoff: BackoffBody | None = None
    timeout_ms: int | None = None
    timeout: int | None = None  # BullMQ's word for the same
    message_type: str | None = None  # of its letters; else its type
    kind: str | None = msgspec.field(name="messageType", default=None)  # the same, as JavaScript writes it


class NotificationBatch(msgspec.Struct, forbid_unknown_fields=True):
    notifications: list[NotificationBody]


class TemplateBody(msgspec.Struct, forbid_unknown_fields=True):
    text: str


def request_of(body: NotificationBody, caller: Caller, *, key: str | None = None) -> NotifyRequest:
    """The service's request, told to the webhook of the caller's key like its letters. A key in the body wins over the header."""
    if body.parse_mode not in (None, "HTML"):
        raise BadInput(code="bad_parse_mode", detail="parse_mode is HTML, or left out for plain text.")
    own = caller.key.id if body.webhook_url is None and caller.key.webhook_url is not None else body.webhook_url
    asked_user = body.user if body.user_id is None else body.user_id
    user_id = None if asked_user is None else str(asked_user)
    asked = id_of(body.bot_id, "bot_id")
    return NotifyRequest(
        type=body.type,
        title=body.title,
        message=body.message,
        user_id=user_id,
        chat_id=_chat(body.chat_id),
        bot_id=asked if user_id is not None else caller.bot_id_of(asked),
        language=body.language,
        data=body.data,
        priority=body.priority,
        is_html=body.parse_mode is not None,
        attachment=_attachment(body),
        idempotency_key=body.idempotency_key or key,
        digest_s=_digest_s(body.digest),
        send_at_ms=instant_ms(body.send_at, "send_at"),
        expires_at_ms=instant_ms(body.expires_at, "expires_at"),
        metadata=body.metadata,
        terms=_terms(body),
        hook=own,
        bot_ids=caller.key.bot_ids,
    )


def _terms(body: NotificationBody) -> LetterTerms | None:
    backoff = body.backoff or BackoffBody()
    terms = LetterTerms(
        attempts=body.attempts,
        backoff_ms=backoff.delay if body.backoff_ms is None else body.backoff_ms,
        backoff=backoff.type,
        timeout_ms=body.timeout if body.timeout_ms is None else body.timeout_ms,
        message_type=body.kind if body.message_type is None else body.message_type,
    )
    return None if terms == LetterTerms() else terms


def _chat(value: int | str | None) -> int | str | None:
    is_number = isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit() and len(value) < 18
    return int(value) if value is not None and is_number else value


def _attachment(body: NotificationBody) -> Attachment | None:
    given: list[Attachment] = []
    for name, method in _FILES.items():
        value = getattr(body, name)
        if value is not None:
            given.append(Attachment(method=method, params={name: value}))
    if body.location is not None:
        given.append(Attachment(method="sendLocation", params=msgspec.structs.asdict(body.location)))
    if body.attachment is not None:
        given.append(Attachment(method=body.attachment.method, params=body.attachment.params))
    if len(given) > 1:
        raise BadInput(code="several_attachments", detail="Only one of photo, document, location and attachment.")
    return given[0] if given else None


def _digest_s(value: str | float | bool | None) -> float | None:
    if value is None or value is True:
        return None
    return 0.0 if value is False else seconds_of(value, "digest", 0.0)


def seconds_of(value: str | float | None, name: str, default: float) -> float:
    """Seconds as a number, or a time as people write it."""
    if value is None:
        return default
    try:
        return parse_duration_s(value) if isinstance(value, str) else float(value)
    except ValueError as error:
        raise BadInput(code=f"bad_{name}", detail=f"{name}: {error}.") from None


# ---- users, and the codes that link them to their chats ----


class UserApi:
    def __init__(self, links: "Links") -> None:
        self._links = links

    @operation("GET", "/v1/users", name="listUsers", tag="users", scope="read", problems=(422, 503))
    async def list_users(self, caller: Caller, query: UsersQuery) -> UsersAnswer:
        """Users that were ever given a code, in the order of their ids."""
        users = await self._links.users(after=query.cursor, limit=query.limit)
        cursor = users[-1].user_id if len(users) == query.limit else None
        seen = await self._links.seen(users, caller.key.bot_ids)
        return UsersAnswer(users=[UserAnswer.of(one) for one in seen], next_cursor=cursor)

    @operation(
        "PATCH",
        "/v1/users/{user_id}",
        name="changeUser",
        tag="users",
        scope="send",
        problems=(403, 404, 413, 422, 503),
        example={"language": "fa", "quiet": {"start": "22:00", "end": "08:00", "tz": "Asia/Tehran"}},
    )
    async def change(self, caller: Caller, user_id: UserInPath, body: UserBody) -> UserAnswer:
        """Set the language that this user is written to in, or hours in which only what is critical is sent."""
        if await self._own(user_id, caller) is None:
            raise unknown(user_id)
        quiet: Quiet | msgspec.UnsetType | None = msgspec.UNSET
        if body.quiet is None:
            quiet = None
        elif isinstance(body.quiet, UserQuietBody):
            quiet = Quiet(start=body.quiet.start, end=body.quiet.end, tz=body.quiet.tz)
        return UserAnswer.of(await self._links.change(user_id, language=body.language, quiet=quiet))

    @operation(
        "POST",
        "/v1/users/{user_id}/link",
        name="linkUser",
        tag="users",
        scope="send",
        is_traffic=True,
        status=201,
        problems=(403, 404, 409, 413, 422, 503),
        example={"expires_in": "15m", "language": "fa"},
    )
    async def link(self, caller: Caller, user_id: UserInPath, body: LinkBody | None = None) -> LinkCodeAnswer:
        """Make a code that links one chat to this user, once, within a quarter of an hour.

        It is shown this once; an older one of the same user is over."""
        body = body or LinkBody()
        made = await self._links.new_code(
            user_id,
            bot_id=caller.bot_id_of(id_of(body.bot_id, "bot_id")),
            expires_s=seconds_of(body.expires_in, "expires_in", CODE_S),
            language=body.language,
            bot_ids=caller.key.bot_ids,
        )
        return LinkCodeAnswer(
            user_id=user_id,
            bot_id=str(made.bot_id),
            code=made.code,
            url=made.url,
            expires_at=rfc3339(made.expires_at_ms),
        )

    @operation("GET", "/v1/users/{user_id}/link", name="getLink", tag="users", scope="read", problems=(403, 422, 503))
    async def get_link(self, caller: Caller, user_id: UserInPath) -> UserAnswer:
        """Whether this user has linked a chat: which one, by which bot, since when."""
        return UserAnswer.of(await self._own(user_id, caller) or User(user_id=user_id))

    @operation(
        "DELETE",
        "/v1/users/{user_id}/link",
        name="unlinkUser",
        tag="users",
        scope="send",
        problems=(403, 404, 422, 503),
    )
    async def unlink(self, caller: Caller, user_id: UserInPath) -> UserAnswer:
        """Undo the link; a code that was given out is over as well. What waits for this user fails as user_not_linked."""
        if await self._own(user_id, caller) is None:
            raise not_linked(user_id)
        return UserAnswer.of(await self._links.unlink(user_id))

    async def _own(self, user_id: str, caller: Caller) -> User | None:
        """None: there is nobody of this name for the caller. Whether there is for others is not told."""
        user = await self._links.user(user_id)
        return user if user is not None and await self._links.seen([user], caller.key.bot_ids) else None


# ---- notifications and templates ----


class NotificationApi:
    def __init__(self, notifications: "NotificationService") -> None:
        self._notifications = notifications

    @operation(
        "POST",
        "/v1/notifications",
        name="notify",
        tag="notifications",
        scope="send",
        is_traffic=True,
        status=202,
        problems=(403, 404, 409, 413, 422, 503),
        example=_TASK,
        body_bytes_max=_BODY_MAX,
    )
    async def notify(
        self, caller: Caller, body: NotificationBody, headers: NotificationHeaders
    ) -> AcceptedNotificationAnswer:
        """Notify a user by the chat that he linked, or a chat: now, or when quiet hours, a digest or his rate allow it."""
        wanted = request_of(body, caller, key=headers.idempotency_key)
        (notice,) = await self._notifications.notify([wanted])
        return AcceptedNotificationAnswer.of(notice)

    @operation(
        "POST",
        "/v1/notifications/batch",
        name="notifyMany",
        tag="notifications",
        scope="send",
        is_traffic=True,
        status=202,
        problems=(403, 404, 409, 413, 422, 503),
        example={"notifications": [_TASK]},
        body_bytes_max=_BATCH_MAX,
    )
    async def notify_many(self, caller: Caller, body: NotificationBatch) -> AcceptedNotificationsAnswer:
        """The same for up to 500, all or none."""
        notices = await self._notifications.notify([request_of(one, caller) for one in body.notifications])
        return AcceptedNotificationsAnswer(notifications=[AcceptedNotificationAnswer.of(one) for one in notices])

    @operation(
        "GET", "/v1/notifications", name="listNotifications", tag="notifications", scope="read", problems=(422, 503)
    )
    async def list_recent(self, caller: Caller, query: NotificationsQuery) -> NotificationsAnswer:
        """Notifications of a user, or of all, the newest first."""
        views = await self._notifications.recent(user_id=query.user_id, before=query.cursor, limit=query.limit)
        cursor = views[-1].notice.id if len(views) == query.limit else None
        shown = [NotificationAnswer.of(view) for view in views if _sees(caller, view)]
        return NotificationsAnswer(notifications=shown, next_cursor=cursor)

    @operation(
        "GET",
        "/v1/notifications/{notification_id}",
        name="getNotification",
        tag="notifications",
        scope="read",
        problems=(404, 422, 503),
    )
    async def get_notification(
        self, caller: Caller, notification_id: Annotated[str, word_like(ID_PATTERN)]
    ) -> NotificationAnswer:
        """One notification: where it stands, and the letters that it became."""
        view = await self._notifications.notification(notification_id)
        if not _sees(caller, view):
            raise NotFound(code="unknown_notification", detail="There is no such notification here (any more).")
        return NotificationAnswer.of(view)

    # ---- templates ----

    @operation("GET", "/v1/templates", name="listTemplates", tag="notifications", scope="read", problems=(422, 503))
    async def list_templates(self, caller: Caller, query: TemplatesQuery) -> TemplatesAnswer:
        """All templates, in the order of types and languages."""
        found = await self._notifications.templates.all(after=query.cursor, limit=query.limit)
        cursor = f"{found[-1].type}/{found[-1].language}" if len(found) == query.limit else None
        return TemplatesAnswer(templates=[TemplateAnswer.of(one) for one in found], next_cursor=cursor)

    @operation(
        "GET",
        "/v1/templates/{type}/{language}",
        name="getTemplate",
        tag="notifications",
        scope="read",
        problems=(404, 422, 503),
    )
    async def get_template(self, caller: Caller, type: TypeInPath, language: LanguageInPath) -> TemplateAnswer:  # noqa: A002
        """The template of a type in a language, as it was given; not what would stand in for it."""
        return TemplateAnswer.of(await self._notifications.templates.get(type, language))

    @operation(
        "PUT",
        "/v1/templates/{type}/{language}",
        name="saveTemplate",
        tag="notifications",
        scope="send",
        is_for_all=True,
        problems=(403, 413, 422, 503),
        example={"text": "<b>{title}</b> №{number}\n{message}"},
    )
    async def save_template(
        self,
        caller: Caller,
        type: TypeInPath,  # noqa: A002
        language: LanguageInPath,
        body: TemplateBody,
    ) -> TemplateAnswer:
        """Give a type a text in a language: HTML of Telegram's with {title}, {message} and names of your data in it.

        `default` as type or language stands for all that have none of their own."""
        return TemplateAnswer.of(await self._notifications.templates.save(type, language, body.text))

    @operation(
        "DELETE",
        "/v1/templates/{type}/{language}",
        name="removeTemplate",
        tag="notifications",
        scope="send",
        is_for_all=True,
        problems=(403, 404, 422, 503),
    )
    async def remove_template(self, caller: Caller, type: TypeInPath, language: LanguageInPath) -> None:  # noqa: A002
        """Forget a template; what would stand in for it is used from then on."""
        await self._notifications.templates.remove(type, language)


def _sees(caller: Caller, view: NoticeView) -> bool:
    bot_id = view.notice.request.bot_id
    return bot_id is None or caller.key.serves(bot_id)
