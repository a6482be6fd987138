"""The part of the library that is about people: links between users of a company and their chats, and notifications to them."""

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from peik.client.calls import When, instant_ms
from peik.core.letter import Priority
from peik.core.units import parse_duration_s, rfc3339
from peik.errors import BadInput
from peik.notifications.api import LinkBody, NotificationApi, UserApi
from peik.notifications.links import CODE_S

if TYPE_CHECKING:
    from peik.client.transport import Transport


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


class OutreachCalls:
    """Users, links and notifications. See docs/notifications.md."""

    def _open_transport(self) -> "Transport":
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
        body = LinkBody(bot_id=bot_id, expires_in=expires_s, language=language)
        return await self._open_transport().ask(UserApi.link, into=LinkCode, user_id=user_id, body=body)

    async def linked(self, user_id: str) -> UserInfo:
        """Whether a user has linked a chat, and which."""
        return await self._open_transport().ask(UserApi.get_link, into=UserInfo, user_id=user_id)

    async def unlink(self, user_id: str) -> UserInfo:
        """Undo it. Raises NotFound if there was nothing to undo."""
        return await self._open_transport().ask(UserApi.unlink, into=UserInfo, user_id=user_id)

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
        given = {
            "type": type,
            "title": title,
            "message": message,
            "user_id": user_id,
            "chat_id": chat_id,
            "bot_id": bot_id,
            "language": language,
            "data": dict(data or {}),
            "priority": priority,
            "parse_mode": "HTML" if is_html else None,
            "attachment": None if attachment is None else {"method": attachment[0], "params": dict(attachment[1])},
            "digest": False if digest_s == 0 else digest_s,
            "send_at": rfc3339(instant_ms(send_at, "send_at")),
            "expires_at": rfc3339(instant_ms(expires_at, "expires_at")),
            "idempotency_key": idempotency_key,
            "metadata": dict(metadata or {}),
        }
        body = {name: value for name, value in given.items() if value is not None}
        return await self._open_transport().ask(NotificationApi.notify, into=Notification, body=body)

    async def notification(self, notification: Notification | str) -> Notification:
        """As it stands."""
        name = notification.id if isinstance(notification, Notification) else notification
        return await self._open_transport().ask(
            NotificationApi.get_notification, into=Notification, notification_id=name
        )
