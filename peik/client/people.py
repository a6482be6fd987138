"""The part of the library that is about people: links between users of a company and their chats, and notifications to them."""

import datetime
import urllib.parse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from peik.client.calls import When, instant_ms
from peik.core.letter import Priority
from peik.core.units import parse_duration_s, rfc3339
from peik.errors import BadInput
from peik.notifications.answers import notification_view, user_view
from peik.notifications.links import CODE_S
from peik.notifications.model import Attachment, NotifyRequest, User

if TYPE_CHECKING:
    from peik.app.runtime import Runtime
    from peik.client.remote import RemoteTransport

T = TypeVar("T")


class LinkCode(msgspec.Struct, frozen=True, kw_only=True):
    """A code that links one chat, once. `url` None: Telegram could not be asked for the bot's name."""

    user_id: str
    bot_id: str
    code: str
    url: str | None
    expires_at: datetime.datetime


class UserInfo(msgspec.Struct, frozen=True, kw_only=True):
    user_id: str
    linked: bool
    bot_id: str | None = None
    chat_id: str | None = None
    linked_at: datetime.datetime | None = None
    language: str | None = None


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that is durable. `letter_id` None: it waits until `due_at`."""

    id: str
    letter_id: str | None
    state: str
    due_at: datetime.datetime | None = None
    failed_reason: str | None = None


class OutreachCounter(Protocol):
    """Where the library asks: at a Peik in this process, or at one far away."""

    async def link(self, user_id: str, *, bot_id: int | None, expires_s: float, language: str | None) -> LinkCode: ...

    async def user(self, user_id: str) -> UserInfo: ...

    async def unlink(self, user_id: str) -> UserInfo: ...

    async def notify(self, request: NotifyRequest) -> Notification: ...

    async def notification(self, notification_id: str) -> Notification: ...


class OutreachCalls:
    """Users, links and notifications. See docs/notifications.md."""

    def _outreach(self) -> OutreachCounter:
        raise NotImplementedError

    async def link(
        self,
        user_id: str,
        *,
        bot_id: int | None = None,
        expires_in: float | str = CODE_S,
        language: str | None = None,
    ) -> LinkCode:
        """A code, with its url, that links whoever opens it first to this user. An older one of his is over."""
        try:
            expires_s = parse_duration_s(expires_in) if isinstance(expires_in, str) else expires_in
        except ValueError as error:
            raise BadInput(code="bad_expires_in", detail=f"expires_in: {error}.") from None
        return await self._outreach().link(user_id, bot_id=bot_id, expires_s=expires_s, language=language)

    async def linked(self, user_id: str) -> UserInfo:
        """Whether a user has linked a chat, and which."""
        return await self._outreach().user(user_id)

    async def unlink(self, user_id: str) -> UserInfo:
        """Undo it. Raises NotFound if there was nothing to undo."""
        return await self._outreach().unlink(user_id)

    async def notify(
        self,
        user_id: str | None,
        message: str,
        *,
        type: str = "note",  # noqa: A002  as REST calls it
        title: str = "",
        chat_id: int | str | None = None,
        bot_id: int | None = None,
        language: str | None = None,
        data: Mapping[str, str | int | float | bool] | None = None,
        priority: int = Priority.HIGH,
        is_html: bool = False,
        attachment: tuple[str, Mapping[str, Any]] | None = None,
        digest: float | str | None = None,
        send_at: When | None = None,
        expires_at: When | None = None,
        idempotency_key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Notification:
        """Notify a user in the chat that he linked, or (with None and `chat_id`) a chat: now, or when quiet hours, a digest or
        the rate allow it. `attachment` is a method and its parameters, such as ("sendPhoto", {"photo": url})."""
        try:
            digest_s = parse_duration_s(digest) if isinstance(digest, str) else digest
        except ValueError as error:
            raise BadInput(code="bad_digest", detail=f"digest: {error}.") from None
        return await self._outreach().notify(
            NotifyRequest(
                type=type,
                title=title,
                message=message,
                user_id=user_id,
                chat_id=chat_id,
                bot_id=bot_id,
                language=language,
                data=dict(data or {}),
                priority=priority,
                is_html=is_html,
                attachment=None if attachment is None else Attachment(method=attachment[0], params=dict(attachment[1])),
                digest_s=digest_s,
                send_at_ms=instant_ms(send_at, "send_at"),
                expires_at_ms=instant_ms(expires_at, "expires_at"),
                idempotency_key=idempotency_key,
                metadata=dict(metadata or {}),
            )
        )

    async def notification(self, notification: Notification | str) -> Notification:
        """As it stands."""
        name = notification.id if isinstance(notification, Notification) else notification
        return await self._outreach().notification(name)


_decode_code = msgspec.json.Decoder(LinkCode).decode
_decode_user = msgspec.json.Decoder(UserInfo).decode
_decode_notification = msgspec.json.Decoder(Notification).decode
_encode = msgspec.json.Encoder().encode


class LocalOutreach:
    """The Peik in this process. Answers are read from the words of REST, so that both sides cannot but say the same."""

    def __init__(self, office: "Callable[[], Runtime]") -> None:
        self._office = office

    async def link(self, user_id: str, *, bot_id: int | None, expires_s: float, language: str | None) -> LinkCode:
        links = self._office().notifications.links
        made = await links.new_code(user_id, bot_id=bot_id, expires_s=expires_s, language=language)
        return LinkCode(
            user_id=user_id,
            bot_id=str(made.bot_id),
            code=made.code,
            url=made.url,
            expires_at=datetime.datetime.fromtimestamp(made.expires_at_ms / 1000, datetime.UTC),
        )

    async def user(self, user_id: str) -> UserInfo:
        found = await self._office().notifications.links.user(user_id)
        return _decode_user(_encode(user_view(found or User(user_id=user_id))))

    async def unlink(self, user_id: str) -> UserInfo:
        return _decode_user(_encode(user_view(await self._office().notifications.links.unlink(user_id))))

    async def notify(self, request: NotifyRequest) -> Notification:
        (notice,) = await self._office().notifications.notify([request])
        return await self.notification(notice.id)

    async def notification(self, notification_id: str) -> Notification:
        view = await self._office().notifications.notification(notification_id)
        return _decode_notification(_encode(notification_view(view)))


class RemoteOutreach:
    """A `peik serve` far away."""

    def __init__(self, counter: "RemoteTransport") -> None:
        self._counter = counter

    async def link(self, user_id: str, *, bot_id: int | None, expires_s: float, language: str | None) -> LinkCode:
        body = {"bot_id": bot_id, "expires_in": expires_s, "language": language}
        return await self._ask(_decode_code, "POST", _path(user_id), body)

    async def user(self, user_id: str) -> UserInfo:
        return await self._ask(_decode_user, "GET", _path(user_id))

    async def unlink(self, user_id: str) -> UserInfo:
        return await self._ask(_decode_user, "DELETE", _path(user_id))

    async def notify(self, request: NotifyRequest) -> Notification:
        return await self._ask(_decode_notification, "POST", "/v1/notifications", _body(request))

    async def notification(self, notification_id: str) -> Notification:
        path = f"/v1/notifications/{urllib.parse.quote(notification_id, safe='')}"
        return await self._ask(_decode_notification, "GET", path)

    async def _ask(
        self, decode: Callable[[bytes], T], verb: str, path: str, body: Mapping[str, object] | None = None
    ) -> T:
        from peik.client.remote import read  # which knows of this module

        reply = await self._counter.exchange(verb, path, body=b"" if body is None else _encode(body))
        return read(decode, reply)


def _path(user_id: str) -> str:
    return f"/v1/users/{urllib.parse.quote(user_id, safe='')}/link"


def _body(request: NotifyRequest) -> dict[str, object]:
    given: dict[str, object] = {
        "type": request.type,
        "title": request.title,
        "message": request.message,
        "user_id": request.user_id,
        "chat_id": request.chat_id,
        "bot_id": request.bot_id,
        "language": request.language,
        "data": request.data,
        "priority": request.priority,
        "parse_mode": "HTML" if request.is_html else None,
        "attachment": None if request.attachment is None else msgspec.structs.asdict(request.attachment),
        "digest": False if request.digest_s == 0 else request.digest_s,
        "send_at": rfc3339(request.send_at_ms),
        "expires_at": rfc3339(request.expires_at_ms),
        "idempotency_key": request.idempotency_key,
        "metadata": request.metadata,
    }
    return {name: value for name, value in given.items() if value is not None}
