"""REST: notifications to users and chats, and the templates that they are written by."""

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.core.letter import Priority
from peik.doors.access import Access, Caller
from peik.doors.bodies import decode, instant_ms, parse_id, read_body
from peik.doors.queries import read_limit
from peik.doors.replies import Route, json_response
from peik.doors.rest_users import seconds_of
from peik.errors import BadInput, NotFound
from peik.notifications.desk import NotificationsDesk
from peik.notifications.shown import notification_view, state_of, template_view
from peik.notifications.values import Attachment, Notice, NoticeView, NotifyRequest

_BODY_MAX = 16 * 1024 * 1024
_SMALL_BODY = 64 * 1024
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
    def __init__(self, desk: NotificationsDesk, access: Access) -> None:
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
    """The desk's request, told to the webhook of the caller's key as its letters are. A key in the body wins over the header."""
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
