"""REST: notifications to users and chats, and the templates that they are written by."""

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.contacts.api import CHAT_ID_PATTERN, CURSOR_PATTERN, TYPES
from peik.core.letter import Priority, State
from peik.core.quiet import Quiet
from peik.core.units import parse_duration_s, rfc3339
from peik.errors import BadInput, NotFound
from peik.notifications.answers import CLEARED, notification_view, state_of, template_view, user_view
from peik.notifications.links import CODE_S, Links, not_linked, unknown
from peik.notifications.model import (
    LANGUAGE_PATTERN,
    TYPE_PATTERN,
    USER_PATTERN,
    Attachment,
    Notice,
    NoticeView,
    NotifyRequest,
    User,
    checked_user,
)
from peik.notifications.service import NotificationService
from peik.web.access import Access, Caller
from peik.web.bodies import read_body, read_limit
from peik.web.openapi import BOT, ID, LIMIT, SECONDS, TIME, WORD, Json, OperationRow, in_path, in_query, nullable, shape
from peik.web.parse import decode, instant_ms, parse_id
from peik.web.responses import Route, json_response

# REST: users of a company, the codes that link them to their chats, and what is known of them.


_SMALL_BODY = 64 * 1024


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


class UserRoutes:
    def __init__(self, links: Links, access: Access) -> None:
        self._links = links
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (
            ("GET", "/v1/users", self.list_users, "listUsers", "users"),
            ("PATCH", "/v1/users/{user_id}", self.change, "changeUser", "users"),
            ("POST", "/v1/users/{user_id}/link", self.link, "linkUser", "users"),
            ("GET", "/v1/users/{user_id}/link", self.show, "getLink", "users"),
            ("DELETE", "/v1/users/{user_id}/link", self.unlink, "unlinkUser", "users"),
        )

    async def list_users(self, request: Request) -> Response:
        """Users that were ever given a code, in the order of their ids."""
        caller = self._access.admit(request, "read")
        limit = read_limit(request)
        after = request.query_params.get("cursor")
        users = await self._links.users(after=None if after is None else checked_user(after), limit=limit)
        cursor = users[-1].user_id if len(users) == limit else None
        seen = await self._links.seen(users, caller.key.bot_ids)
        return json_response({"users": [user_view(one) for one in seen], "next_cursor": cursor})

    async def link(self, request: Request) -> Response:
        """Make a code that links one chat to this user, once, within a quarter of an hour.

        It is shown this once; an older one of the same user is over."""
        caller = self._access.admit(request, "send")
        user_id = checked_user(request.path_params["user_id"])
        text = await read_body(request, bytes_max=_SMALL_BODY)
        body = decode(LinkBody, text) if text.strip() else LinkBody()
        asked = parse_id(body.bot_id, "bot_id") if isinstance(body.bot_id, str) else body.bot_id
        made = await self._links.new_code(
            user_id,
            bot_id=caller.bot_id_of(asked),
            expires_s=seconds_of(body.expires_in, "expires_in", CODE_S),
            language=body.language,
            bot_ids=caller.key.bot_ids,
        )
        answer = {
            "user_id": user_id,
            "bot_id": str(made.bot_id),
            "code": made.code,
            "url": made.url,
            "expires_at": rfc3339(made.expires_at_ms),
        }
        return json_response(answer, 201)

    async def show(self, request: Request) -> Response:
        """Whether this user has linked a chat: which one, by which bot, since when."""
        caller = self._access.admit(request, "read")
        user_id = checked_user(request.path_params["user_id"])
        return json_response(user_view(await self._own(user_id, caller) or User(user_id=user_id)))

    async def unlink(self, request: Request) -> Response:
        """Undo the link; a code that was given out is over as well. What waits for this user fails as user_not_linked."""
        caller = self._access.admit(request, "send")
        user_id = checked_user(request.path_params["user_id"])
        if await self._own(user_id, caller) is None:
            raise not_linked(user_id)
        return json_response(user_view(await self._links.unlink(user_id)))

    async def change(self, request: Request) -> Response:
        """Set the language that this user is written to in, or hours in which only what is critical is sent."""
        caller = self._access.admit(request, "send")
        user_id = checked_user(request.path_params["user_id"])
        if await self._own(user_id, caller) is None:
            raise unknown(user_id)
        body = decode(UserBody, await read_body(request, bytes_max=_SMALL_BODY))
        quiet: Quiet | msgspec.UnsetType | None = msgspec.UNSET
        if body.quiet is None:
            quiet = None
        elif isinstance(body.quiet, UserQuietBody):
            quiet = Quiet(start=body.quiet.start, end=body.quiet.end, tz=body.quiet.tz)
        return json_response(user_view(await self._links.change(user_id, language=body.language, quiet=quiet)))

    async def _own(self, user_id: str, caller: Caller) -> User | None:
        """None: there is nobody of this name for the caller. Whether there is for others is not told."""
        user = await self._links.user(user_id)
        return user if user is not None and await self._links.seen([user], caller.key.bot_ids) else None


def seconds_of(value: str | float | None, name: str, default: float) -> float:
    """Seconds as a number, or a time as people write it."""
    if value is None:
        return default
    try:
        return parse_duration_s(value) if isinstance(value, str) else float(value)
    except ValueError as error:
        raise BadInput(code=f"bad_{name}", detail=f"{name}: {error}.") from None


_BODY_MAX = 16 * 1024 * 1024
ID_PATTERN = "^[0-9a-f]{1,40}$"
_FILES = {"photo": "sendPhoto", "document": "sendDocument"}

_Time = int | float | str | None


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
    send_at: _Time = None
    expires_at: _Time = None
    idempotency_key: str | None = None
    webhook_url: str | None = None
    metadata: dict[str, Any] = {}


class NotificationBatch(msgspec.Struct, forbid_unknown_fields=True):
    notifications: list[NotificationBody]


class TemplateBody(msgspec.Struct, forbid_unknown_fields=True):
    text: str


class NotificationRoutes:
    def __init__(self, desk: NotificationService, access: Access) -> None:
        self._desk = desk
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (
            ("POST", "/v1/notifications", self.notify, "notify", "notifications"),
            ("POST", "/v1/notifications/batch", self.notify_many, "notifyMany", "notifications"),
            ("GET", "/v1/notifications", self.list_recent, "listNotifications", "notifications"),
            ("GET", "/v1/notifications/{notification_id}", self.show, "getNotification", "notifications"),
            ("GET", "/v1/templates", self.list_templates, "listTemplates", "notifications"),
            ("GET", "/v1/templates/{type}/{language}", self.show_template, "getTemplate", "notifications"),
            ("PUT", "/v1/templates/{type}/{language}", self.save_template, "saveTemplate", "notifications"),
            ("DELETE", "/v1/templates/{type}/{language}", self.remove_template, "removeTemplate", "notifications"),
        )

    async def notify(self, request: Request) -> Response:
        """Notify a user by the chat that he linked, or a chat: now, or when quiet hours, a digest or his rate allow it."""
        caller = self._access.admit(request, "send")
        body = decode(NotificationBody, await read_body(request, bytes_max=_SMALL_BODY * 2))
        wanted = request_of(body, caller, key=request.headers.get("idempotency-key"))
        (notice,) = await self._desk.notify([wanted])
        return json_response(_accepted(notice), 202)

    async def notify_many(self, request: Request) -> Response:
        """The same for up to 500, all or none."""
        caller = self._access.admit(request, "send")
        body = decode(NotificationBatch, await read_body(request, bytes_max=_BODY_MAX))
        notices = await self._desk.notify([request_of(one, caller) for one in body.notifications])
        return json_response({"notifications": [_accepted(notice) for notice in notices]}, 202)

    async def list_recent(self, request: Request) -> Response:
        """Notifications of a user, or of all, the newest first."""
        caller = self._access.admit(request, "read")
        query, limit = request.query_params, read_limit(request)
        if unknown := set(query) - {"user_id", "cursor", "limit"}:
            detail = f"There is no filter {', '.join(sorted(unknown))}. There are: user_id, cursor, limit."
            raise BadInput(code="unknown_filter", detail=detail)
        before = query.get("cursor")
        if before is not None and re.fullmatch(ID_PATTERN, before) is None:
            raise BadInput(code="bad_cursor", detail="cursor is the next_cursor of the page before.")
        views = await self._desk.recent(user_id=query.get("user_id"), before=before, limit=limit)
        cursor = views[-1].notice.id if len(views) == limit else None
        shown = [notification_view(view) for view in views if _sees(caller, view)]
        return json_response({"notifications": shown, "next_cursor": cursor})

    async def show(self, request: Request) -> Response:
        """One notification: where it stands, and the letters that it became."""
        caller = self._access.admit(request, "read")
        view = await self._desk.notification(request.path_params["notification_id"])
        if not _sees(caller, view):
            raise NotFound(code="unknown_notification", detail="There is no such notification here (any more).")
        return json_response(notification_view(view))

    # ---- templates ----

    async def list_templates(self, request: Request) -> Response:
        """All templates, in the order of types and languages."""
        self._access.admit(request, "read")
        limit = read_limit(request)
        after = request.query_params.get("cursor")
        if after is not None and not (after.isascii() and after.isprintable() and len(after) <= 200):
            raise BadInput(code="bad_cursor", detail="cursor is the next_cursor of the page before.")
        found = await self._desk.templates.all(after=after, limit=limit)
        cursor = f"{found[-1].type}/{found[-1].language}" if len(found) == limit else None
        return json_response({"templates": [template_view(one) for one in found], "next_cursor": cursor})

    async def show_template(self, request: Request) -> Response:
        """The template of a type in a language, as it was given; not what would stand in for it."""
        self._access.admit(request, "read")
        return json_response(template_view(await self._desk.templates.get(*_template(request))))

    async def save_template(self, request: Request) -> Response:
        """Give a type a text in a language: HTML of Telegram's with {title}, {message} and names of your data in it.

        `default` as type or language stands for all that have none of their own."""
        self._access.admit(request, "send").must_serve_all()
        body = decode(TemplateBody, await read_body(request, bytes_max=_SMALL_BODY))
        return json_response(template_view(await self._desk.templates.save(*_template(request), body.text)))

    async def remove_template(self, request: Request) -> Response:
        """Forget a template; what would stand in for it is used from then on."""
        self._access.admit(request, "send").must_serve_all()
        await self._desk.templates.remove(*_template(request))
        return Response(status_code=204)


def request_of(body: NotificationBody, caller: Caller, *, key: str | None = None) -> NotifyRequest:
    """The service's request, told to the webhook of the caller's key like its letters. A key in the body wins over the header."""
    if body.parse_mode not in (None, "HTML"):
        raise BadInput(code="bad_parse_mode", detail="parse_mode is HTML, or left out for plain text.")
    own = caller.key.id if body.webhook_url is None and caller.key.webhook_url is not None else body.webhook_url
    user_id = None if body.user_id is None else str(body.user_id)
    asked = parse_id(body.bot_id, "bot_id") if isinstance(body.bot_id, str) else body.bot_id
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
        hook=own,
        bot_ids=caller.key.bot_ids,
    )


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


def _template(request: Request) -> tuple[str, str]:
    return request.path_params["type"], request.path_params["language"]


def _accepted(notice: Notice) -> dict[str, object]:
    """As it stands right after: its letters, if it has any, wait."""
    state = "waiting" if notice.failed_reason is None else state_of(NoticeView(notice=notice, letters=[]))
    return {
        "id": notice.id,
        "letter_id": str(notice.letter_ids[0]) if notice.letter_ids else None,
        "state": state,
        "due_at": notification_view(NoticeView(notice=notice, letters=[]))["due_at"],
    }


def _sees(caller: Caller, view: NoticeView) -> bool:
    bot_id = view.notice.request.bot_id
    return bot_id is None or caller.sees(bot_id)


# The OpenAPI document's part of users, notifications, templates and contacts: one row per operation.


_TEXT: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer"}
_FLAG: Json = {"type": "boolean"}
_USER_ID: Json = {"type": "string", "pattern": USER_PATTERN}
_TYPE: Json = {"type": "string", "pattern": TYPE_PATTERN}
_LANGUAGE: Json = {"type": "string", "pattern": LANGUAGE_PATTERN}
_NOTICE_ID: Json = {"type": "string", "pattern": ID_PATTERN}
_CHAT: Json = {"type": "string"}
_MOMENT: Json = {"anyOf": [TIME, SECONDS | {"exclusiveMaximum": 1e11}]}
_STATE: Json = {
    "type": "string",
    "enum": [*(str(state) for state in State), CLEARED],
    "description": "waiting until its time, then as its letters stand; cleared: they are kept no more.",
}
_NEXT = nullable(_TEXT) | {"description": "The cursor of the next page; null at the end."}
_QUIET = shape(start=_TEXT, end=_TEXT, tz=_TEXT)

_USER = shape(
    user_id=_USER_ID,
    linked=_FLAG,
    bot_id=nullable(ID),
    chat_id=nullable(_CHAT),
    linked_at=nullable(TIME),
    language=nullable(_TEXT),
    quiet=nullable(_QUIET) | {"description": "Null: as the settings say."},
    code_expires_at=nullable(TIME) | {"description": "Of a code that was given out and not used yet."},
)
_NOTIFICATION = shape(
    id=_NOTICE_ID,
    user_id=nullable(_USER_ID),
    chat_id=nullable(_CHAT),
    bot_id=nullable(ID),
    type=_TYPE,
    title=_TEXT,
    message=_TEXT,
    priority=_WHOLE,
    state=_STATE,
    failed_reason=nullable(_TEXT),
    letter_id=nullable(ID) | {"description": "The first of its letters."},
    letter_ids={"type": "array", "items": ID},
    due_at=nullable(TIME) | {"description": "While it waits."},
    created_at=TIME,
    metadata=nullable({"type": "object"}),
)
_TEMPLATE = shape(type=_TYPE, language=_TEXT, text=_TEXT)
_CONTACT = shape(
    bot_id=ID,
    chat_id=_CHAT,
    type={"type": "string", "enum": list(TYPES)},
    name=nullable(_TEXT),
    username=nullable(_TEXT),
    language=nullable(_TEXT),
    first_seen_at=TIME,
    last_seen_at=TIME,
    gone=_FLAG | {"description": "The bot was blocked there, or thrown out."},
    campaign=nullable(_TEXT) | {"description": "What stood behind the first /start."},
)
_COUNTS: Json = {"type": "object", "additionalProperties": _WHOLE}

OUTREACH_SCHEMAS: Json = {
    "User": _USER,
    "Users": shape(users={"type": "array", "items": {"$ref": "#/components/schemas/User"}}, next_cursor=_NEXT),
    "LinkCode": shape(
        user_id=_USER_ID,
        bot_id=ID,
        code=_TEXT | {"description": "Shown this once."},
        url=nullable(_TEXT) | {"description": "Null: Telegram could not be asked for the bot's name."},
        expires_at=TIME,
    ),
    "Notification": _NOTIFICATION,
    "Notifications": shape(
        notifications={"type": "array", "items": {"$ref": "#/components/schemas/Notification"}}, next_cursor=_NEXT
    ),
    "AcceptedNotification": shape(id=_NOTICE_ID, letter_id=nullable(ID), state=_STATE, due_at=nullable(TIME)),
    "AcceptedNotifications": shape(
        notifications={"type": "array", "items": {"$ref": "#/components/schemas/AcceptedNotification"}}
    ),
    "Template": _TEMPLATE,
    "Templates": shape(
        templates={"type": "array", "items": {"$ref": "#/components/schemas/Template"}}, next_cursor=_NEXT
    ),
    "Contact": _CONTACT,
    "Contacts": shape(contacts={"type": "array", "items": {"$ref": "#/components/schemas/Contact"}}, next_cursor=_NEXT),
    "ContactStats": shape(
        bot_id=ID,
        total=_WHOLE,
        gone=_WHOLE,
        by_type=_COUNTS,
        by_language=_COUNTS | {"description": "Of private chats. Empty: not known; other: none of the usual ones."},
        since=nullable(TIME),
        new=_WHOLE,
        by_campaign=_COUNTS | {"description": "Of those that are new since then. Empty: they came by none."},
    ),
}

_OF_USER = (in_path("user_id", _USER_ID),)
_OF_TEMPLATE = (in_path("type", _TYPE), in_path("language", _LANGUAGE))
_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
    "description": "A repeat with the same key, while the notification is kept, is the same notification.",
}
_TASK = {"user_id": "lena", "type": "task_assigned", "title": "Task 17", "message": "Amir Temur 1, at noon"}

OUTREACH_OPERATIONS: dict[str, OperationRow] = {
    "listUsers": OperationRow(
        answers={200: "Users"},
        parameters=(in_query("cursor", _USER_ID, "The next_cursor of the page before."), LIMIT),
        problems=(422, 503),
    ),
    "changeUser": OperationRow(
        answers={200: "User"},
        parameters=_OF_USER,
        body=UserBody,
        example={"language": "fa", "quiet": {"start": "22:00", "end": "08:00", "tz": "Asia/Tehran"}},
        problems=(403, 404, 413, 422, 503),
    ),
    "linkUser": OperationRow(
        answers={201: "LinkCode"},
        parameters=_OF_USER,
        body=LinkBody,
        example={"expires_in": "15m", "language": "fa"},
        problems=(403, 404, 409, 413, 422, 503),
        is_body_optional=True,
    ),
    "getLink": OperationRow(answers={200: "User"}, parameters=_OF_USER, problems=(403, 422, 503)),
    "unlinkUser": OperationRow(answers={200: "User"}, parameters=_OF_USER, problems=(403, 404, 422, 503)),
    "notify": OperationRow(
        answers={202: "AcceptedNotification"},
        parameters=(_KEY,),
        body=NotificationBody,
        example=_TASK,
        problems=(403, 404, 409, 413, 422, 503),
    ),
    "notifyMany": OperationRow(
        answers={202: "AcceptedNotifications"},
        body=NotificationBatch,
        example={"notifications": [_TASK]},
        problems=(403, 404, 409, 413, 422, 503),
    ),
    "listNotifications": OperationRow(
        answers={200: "Notifications"},
        parameters=(
            in_query("user_id", _USER_ID, "Of this user."),
            in_query("cursor", _NOTICE_ID, "The next_cursor of the page before."),
            LIMIT,
        ),
        problems=(422, 503),
    ),
    "getNotification": OperationRow(
        answers={200: "Notification"}, parameters=(in_path("notification_id", _NOTICE_ID),), problems=(404, 422, 503)
    ),
    "listTemplates": OperationRow(
        answers={200: "Templates"},
        parameters=(in_query("cursor", _TEXT, "The next_cursor of the page before."), LIMIT),
        problems=(422, 503),
    ),
    "getTemplate": OperationRow(answers={200: "Template"}, parameters=_OF_TEMPLATE, problems=(404, 422, 503)),
    "saveTemplate": OperationRow(
        answers={200: "Template"},
        parameters=_OF_TEMPLATE,
        body=TemplateBody,
        example={"text": "<b>{title}</b> №{number}\n{message}"},
        problems=(403, 413, 422, 503),
    ),
    "removeTemplate": OperationRow(answers={204: ""}, parameters=_OF_TEMPLATE, problems=(403, 404, 422, 503)),
    "listContacts": OperationRow(
        answers={200: "Contacts"},
        parameters=(
            BOT,
            in_query("type", _TEXT, "Of these types, comma-separated."),
            in_query("language", _TEXT, "Of these languages, comma-separated; fa also means fa-IR, empty: not known."),
            in_query("seen_since", _MOMENT, "Seen then or later."),
            in_query("seen_before", _MOMENT, "Not seen since then."),
            in_query("gone", {"type": "string", "enum": ["true", "false"]}, "Whether the bot was blocked there."),
            in_query("text", WORD, "In name or username."),
            in_query("campaign", WORD, "Came by this campaign."),
            in_query("cursor", {"type": "string", "pattern": CURSOR_PATTERN}, "The next_cursor of the page before."),
            LIMIT,
        ),
        problems=(403, 404, 422, 503),
    ),
    "getContactStats": OperationRow(
        answers={200: "ContactStats"},
        parameters=(BOT, in_query("since", _MOMENT, "New since then; left out: all.")),
        problems=(403, 404, 422, 503),
    ),
    "getContact": OperationRow(
        answers={200: "Contact"},
        parameters=(in_path("bot_id"), in_path("chat_id", {"type": "string", "pattern": CHAT_ID_PATTERN})),
        problems=(403, 404, 422, 503),
    ),
}
