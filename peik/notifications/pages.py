"""Pages: notifications. What was sent lately and a test; who is linked to which chat; the templates."""

import secrets
from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.model import Role
from peik.core.letter import Priority
from peik.errors import NotFound
from peik.notifications.answers import NotificationAnswer
from peik.notifications.model import NoticeView, NotifyRequest, Template
from peik.web.dashboard.board import Board, Page, Visitor, must_see, must_see_all
from peik.web.dashboard.fields import PAGE, Fields, bots_seen
from peik.web.responses import svg

if TYPE_CHECKING:
    from peik.notifications.links import NewCode
    from peik.notifications.service import NotificationService

TEXT_CHARS_MAX = 4096
MINUTES_DEFAULT = 15.0
BLANK = Template(type="", language="", text="<b>{title}</b>\n{message}")


class NotificationPages:
    def __init__(self, board: Board, service: "NotificationService") -> None:
        self._board = board
        self._service = service

    def table(self) -> tuple[Page, ...]:
        base = "/admin/notifications"
        user, template = f"{base}/users/{{user_id}}", f"{base}/templates/{{type}}/{{language}}"
        return (
            ("GET", base, self.show_recent, Role.VIEWER, ""),
            ("POST", base, self.send, Role.OPERATOR, "notifications.send"),
            ("GET", f"{base}/users", self.show_users, Role.VIEWER, ""),
            ("POST", f"{base}/users", self.make_code, Role.OPERATOR, "notifications.link"),
            ("POST", f"{user}/unlink", self.unlink, Role.OPERATOR, "notifications.unlink"),
            ("GET", f"{base}/templates", self.show_templates, Role.VIEWER, ""),
            ("POST", f"{base}/templates", self.save_template, Role.OPERATOR, "notifications.template"),
            ("GET", template, self.show_template, Role.VIEWER, ""),
            ("POST", f"{template}/remove", self.remove_template, Role.OPERATOR, "notifications.remove_template"),
        )

    # ---- notifications ----

    async def show_recent(self, request: Request, visitor: Visitor) -> Response:
        fields = Fields.asked(request)
        user_id = fields.text("user_id")
        found = await self._service.recent(user_id=user_id, before=fields.text("cursor"), limit=PAGE)
        return self._board.page(
            request,
            visitor,
            "notifications.html",
            rows=[(one.notice, NotificationAnswer.of(one)) for one in found if _sees_notice(visitor, one)],
            asked={"user_id": user_id or ""},
            priorities=[int(priority) for priority in Priority],
            key=secrets.token_hex(16),  # a form that is sent twice sends one
            url=fields.address("/admin/notifications", "user_id"),
            cursor=found[-1].notice.id if len(found) == PAGE else None,
        )

    async def send(self, request: Request, visitor: Visitor) -> Response:
        fields = await Fields.sent(request)
        priority = fields.whole("priority")
        wanted = NotifyRequest(
            type=fields.need("type"),
            user_id=fields.need("user_id"),
            title=fields.text("title") or "",
            message=fields.text("message", chars_max=TEXT_CHARS_MAX) or "",
            language=fields.text("language"),
            priority=Priority.HIGH if priority is None else priority,
            idempotency_key=fields.text("key"),
            bot_ids=visitor.bot_ids,
        )
        self._board.note(request, target=wanted.user_id)
        (notice,) = await self._service.notify([wanted])
        said = "notifications_sent" if notice.is_over else "notifications_waits"
        return self._board.back(request, visitor, "/admin/notifications", said=said, user=wanted.user_id)

    # ---- users ----

    async def show_users(
        self,
        request: Request,
        visitor: Visitor,
        *,
        made: "NewCode | None" = None,
        made_for: str | None = None,
        picture: Markup | None = None,
    ) -> Response:
        fields = Fields.asked(request)
        named, after = fields.text("user_id"), fields.text("cursor")
        if named is not None:
            one = await self._service.links.user(named)
            found = [] if one is None else [one]
        else:
            found = await self._service.links.users(after=after, limit=PAGE)
        return self._board.page(
            request,
            visitor,
            "notifications_users.html",
            users=await self._service.links.seen(found, visitor.bot_ids),
            bots=[bot for bot in bots_seen(self._board.peik.outbox.service, visitor) if not bot.token.is_account],
            asked={"user_id": named or ""},
            minutes=MINUTES_DEFAULT,
            url=fields.address("/admin/notifications/users", "user_id"),
            cursor=found[-1].user_id if named is None and len(found) == PAGE else None,
            made=made,
            made_for=made_for,
            picture=picture,
        )

    async def make_code(self, request: Request, visitor: Visitor) -> Response:
        """The page with the code: there is no other that shows it."""
        fields = await Fields.sent(request)
        user_id, bot_id = fields.need("user_id"), fields.id("bot_id")
        self._board.note(request, target=user_id)
        bot = self._board.peik.outbox.service.bot(bot_id)
        must_see(visitor, bot.bot_id)
        await self._seen(visitor, user_id, may_be_new=True)
        minutes = fields.decimal("minutes") or MINUTES_DEFAULT
        made = await self._service.links.new_code(
            user_id,
            bot_id=bot.bot_id,
            expires_s=minutes * 60,
            language=fields.text("language"),
            bot_ids=visitor.bot_ids,
        )
        drawn = None if made.url is None else svg(made.url)
        picture = None if drawn is None else Markup(drawn)  # noqa: S704  drawn by us, of squares
        return await self.show_users(request, visitor, made=made, made_for=user_id, picture=picture)

    async def unlink(self, request: Request, visitor: Visitor) -> Response:
        user_id = request.path_params["user_id"]
        await self._seen(visitor, user_id)
        await self._service.links.unlink(user_id, why=f"by {visitor.name}")
        return self._board.back(
            request, visitor, "/admin/notifications/users", said="notifications_unlinked", user=user_id
        )

    async def _seen(self, visitor: Visitor, user_id: str, *, may_be_new: bool = False) -> None:
        """Raises NotFound for a user of another bot, in the words for one who is not there."""
        user = await self._service.links.user(user_id)
        is_seen = may_be_new if user is None else bool(await self._service.links.seen([user], visitor.bot_ids))
        if not is_seen:
            raise NotFound(code="unknown_user", detail=f"Nobody is known as {user_id}.")

    # ---- templates ----

    async def show_templates(self, request: Request, visitor: Visitor) -> Response:
        return await self._templates(request, visitor, BLANK)

    async def show_template(self, request: Request, visitor: Visitor) -> Response:
        path = request.path_params
        return await self._templates(
            request, visitor, await self._service.templates.get(path["type"], path["language"])
        )

    async def _templates(self, request: Request, visitor: Visitor, edited: Template) -> Response:
        fields = Fields.asked(request)
        found = await self._service.templates.all(after=fields.text("cursor"), limit=PAGE)
        return self._board.page(
            request,
            visitor,
            "notifications_templates.html",
            templates=found,
            edited=edited,
            url="/admin/notifications/templates",
            cursor=f"{found[-1].type}/{found[-1].language}" if len(found) == PAGE else None,
        )

    async def save_template(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        fields = await Fields.sent(request)
        text = fields.need("text", chars_max=TEXT_CHARS_MAX)
        saved = await self._service.templates.save(fields.need("type"), fields.need("language"), text)
        self._board.note(request, target=f"{saved.type}/{saved.language}")
        return self._template_back(request, visitor, "notifications_template_saved", saved.type, saved.language)

    async def remove_template(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        path = request.path_params
        await self._service.templates.remove(path["type"], path["language"])
        return self._template_back(request, visitor, "notifications_template_removed", path["type"], path["language"])

    def _template_back(self, request: Request, visitor: Visitor, said: str, kind: str, language: str) -> Response:
        return self._board.back(
            request, visitor, "/admin/notifications/templates", said=said, type=kind, language=language
        )


def _sees_notice(visitor: Visitor, view: NoticeView) -> bool:
    bot_id = view.notice.request.bot_id
    return visitor.bot_ids is None or (bot_id is not None and visitor.key.serves(bot_id))
