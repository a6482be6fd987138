"""Pages: accounts of people. Registering, signing in by phone or QR, running, and the histories of their chats."""

from typing import TYPE_CHECKING

import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from peik.accounts.answers import SessionAnswer, SessionChatAnswer
from peik.accounts.registry import health_of, kept_of
from peik.admin.model import Role
from peik.archive.store import Session, SessionFilter, SessionState
from peik.errors import BadInput, Conflict, NotFound
from peik.web.dashboard.board import Board, Page, Visitor, must_see_all
from peik.web.dashboard.fields import PAGE, Fields
from peik.web.parse import whole_number
from peik.web.responses import svg

if TYPE_CHECKING:
    from peik.accounts.service import AccountService

QR_LOOK_S = 5  # how often the page of a QR code looks whether somebody has scanned it
CHATS_MAX = 200
_OVER = frozenset({SessionState.ACTIVE, SessionState.PASSWORD_NEEDED, SessionState.PAUSED, SessionState.FLOOD_WAIT})
_PROXY_CHARS_MAX = 500


class SessionPages:
    """What accounts see belongs to no bot: all of this is for those who see every bot."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._sessions = board.peik.accounts

    def table(self) -> tuple[Page, ...]:
        one = "/admin/sessions/{session_id}"
        return (
            ("GET", "/admin/sessions", self.show_all, Role.VIEWER, ""),
            ("POST", "/admin/sessions", self.make, Role.ADMIN, "sessions.make"),
            ("GET", one, self.show, Role.VIEWER, ""),
            ("GET", f"{one}/qr", self.show_qr, Role.ADMIN, ""),
            ("POST", f"{one}/code", self.send_code, Role.ADMIN, "sessions.code"),
            ("POST", f"{one}/sign-in", self.sign_in, Role.ADMIN, "sessions.sign_in"),
            ("POST", f"{one}/password", self.give_password, Role.ADMIN, "sessions.password"),
            ("POST", f"{one}/leave-sign-in", self.leave_sign_in, Role.ADMIN, "sessions.leave_sign_in"),
            ("POST", f"{one}/start", self.start, Role.ADMIN, "sessions.start"),
            ("POST", f"{one}/stop", self.stop, Role.ADMIN, "sessions.stop"),
            ("POST", f"{one}/restart", self.restart, Role.ADMIN, "sessions.restart"),
            ("POST", f"{one}/log-out", self.log_out, Role.ADMIN, "sessions.log_out"),
            ("POST", f"{one}/activate", self.activate, Role.ADMIN, "sessions.activate"),
            ("POST", f"{one}/deactivate", self.deactivate, Role.ADMIN, "sessions.deactivate"),
            ("POST", f"{one}/proxy", self.set_proxy, Role.ADMIN, "sessions.proxy"),
            ("POST", f"{one}/delete", self.delete, Role.ADMIN, "sessions.delete"),
            ("POST", f"{one}/chats/{{chat_id}}/crawl", self.crawl, Role.ADMIN, "sessions.crawl"),
            ("POST", f"{one}/chats/{{chat_id}}/stop-crawl", self.stop_crawl, Role.ADMIN, "sessions.stop_crawl"),
        )

    # ---- looking ----

    async def show_all(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        if self._sessions is None:
            return no_sessions(self._board, request, visitor)
        fields = Fields.asked(request)
        state = fields.text("state")
        wanted = SessionFilter(
            agent_id=fields.text("agent_id"), states=None if state is None else frozenset({_state(state)})
        )
        phone, found = fields.text("phone"), []
        trouble = self._sessions.trouble()
        if trouble is None and phone is not None:
            one = await self._sessions.get_session_by_phone(phone)
            found = [one] if one is not None else []
        elif trouble is None:
            found = await self._sessions.archive.sessions(wanted, after=fields.text("cursor"), limit=PAGE + 1)
        return self._board.page(
            request,
            visitor,
            "sessions.html",
            sessions=found[:PAGE],
            health={one.session_id: health_of(one) for one in found[:PAGE]},
            running=frozenset(self._sessions.running()),
            trouble=trouble,
            asked={name: fields.text(name) or "" for name in ("agent_id", "state", "phone")},
            states=tuple(SessionState),
            url=fields.address("/admin/sessions", "agent_id", "state"),
            cursor=found[PAGE - 1].session_id if len(found) > PAGE else None,
        )

    async def show(self, request: Request, visitor: Visitor) -> Response:
        service = self._service(visitor)
        session = await service.session(_id(request))
        return self._board.page(
            request,
            visitor,
            "session.html",
            session=session,
            view=SessionAnswer.of(session),
            metadata=msgspec.json.decode(session.metadata),
            chats=[
                SessionChatAnswer.of(chat, kept_of(session))
                for chat in (await service.chats(session.session_id))[:CHATS_MAX]
            ],
            is_running=session.session_id in service.running(),
        )

    async def show_qr(self, request: Request, visitor: Visitor) -> Response:
        """The code to be scanned now. It is worth an account for a minute, so it is drawn for admins only; the page asks again
        until somebody has scanned it."""
        service = self._service(visitor)
        session = await service.session(_id(request))
        if session.state in _OVER:
            return RedirectResponse(_page_of(session), 303)
        qr = await service.signing_in.qr(session.session_id)
        picture = svg(qr.url)
        return self._board.page(
            request,
            visitor,
            "session_qr.html",
            session=session,
            picture=None if picture is None else Markup(picture),  # noqa: S704  drawn by us, of squares
            address=qr.url,
            expires_at_ms=qr.expires_at_ms,
            look_s=QR_LOOK_S,
        )

    # ---- registering ----

    async def make(self, request: Request, visitor: Visitor) -> Response:
        service = self._service(visitor)
        fields = await Fields.sent(request)
        session = await service.create_session(
            fields.need("agent_id"),
            phone=fields.text("phone"),
            proxy=fields.text("proxy", chars_max=_PROXY_CHARS_MAX),
            file=fields.text("file"),
            session_id=fields.text("session_id"),
        )
        self._board.note(request, target=session.session_id)
        return self._back(request, visitor, session, "sessions_made")

    async def set_proxy(self, request: Request, visitor: Visitor) -> Response:
        """An empty field: straight."""
        proxy = (await Fields.sent(request)).text("proxy", chars_max=_PROXY_CHARS_MAX)
        session = await self._service(visitor).set_proxy(_id(request), proxy)
        return self._back(request, visitor, session, "sessions_changed")

    async def activate(self, request: Request, visitor: Visitor) -> Response:
        session = await self._service(visitor).activate_session(_id(request))
        return self._back(request, visitor, session, "sessions_changed")

    async def deactivate(self, request: Request, visitor: Visitor) -> Response:
        session = await self._service(visitor).deactivate_session(_id(request))
        return self._back(request, visitor, session, "sessions_changed")

    async def delete(self, request: Request, visitor: Visitor) -> Response:
        session_id = _id(request)
        if not await self._service(visitor).delete_session(session_id):
            raise NotFound(code="no_such_session", detail=f"There is no session {session_id}.")
        return self._board.back(request, visitor, "/admin/sessions", said="sessions_deleted", id=session_id)

    # ---- signing in ----

    async def send_code(self, request: Request, visitor: Visitor) -> Response:
        fields = await Fields.sent(request)
        session = await self._service(visitor).signing_in.begin(
            _id(request), fields.text("phone"), by_sms=fields.is_on("by_sms")
        )
        return self._back(request, visitor, session, "sessions_code_sent")

    async def sign_in(self, request: Request, visitor: Visitor) -> Response:
        code = (await Fields.sent(request)).need("code")
        return self._signed(request, visitor, await self._service(visitor).signing_in.give_code(_id(request), code))

    async def give_password(self, request: Request, visitor: Visitor) -> Response:
        password = (await Fields.sent(request)).secret("password")
        return self._signed(
            request, visitor, await self._service(visitor).signing_in.give_password(_id(request), password)
        )

    def _signed(self, request: Request, visitor: Visitor, session: Session) -> Response:
        is_in = session.state is SessionState.ACTIVE
        return self._back(request, visitor, session, "sessions_signed_in" if is_in else "sessions_password_needed")

    async def leave_sign_in(self, request: Request, visitor: Visitor) -> Response:
        session = await self._service(visitor).signing_in.cancel(_id(request))
        return self._back(request, visitor, session, "sessions_changed")

    # ---- running ----

    async def start(self, request: Request, visitor: Visitor) -> Response:
        session = await self._service(visitor).crew.start(_id(request))
        return self._back(request, visitor, session, "sessions_started")

    async def stop(self, request: Request, visitor: Visitor) -> Response:
        session = await self._service(visitor).crew.stop(_id(request))
        return self._back(request, visitor, session, "sessions_stopped")

    async def restart(self, request: Request, visitor: Visitor) -> Response:
        session = await self._service(visitor).restart(_id(request))
        return self._back(request, visitor, session, "sessions_restarted")

    async def log_out(self, request: Request, visitor: Visitor) -> Response:
        session = await self._service(visitor).log_out(_id(request))
        return self._back(request, visitor, session, "sessions_logged_out")

    async def crawl(self, request: Request, visitor: Visitor) -> Response:
        until_ms = (await Fields.sent(request)).instant_ms("until") or 0
        chat_id = whole_number(request.path_params["chat_id"], "chat_id")
        await self._service(visitor).crawl(_id(request), chat_id, until_ms=until_ms)
        return self._crawled(request, visitor, "sessions_crawling", chat_id)

    async def stop_crawl(self, request: Request, visitor: Visitor) -> Response:
        chat_id = whole_number(request.path_params["chat_id"], "chat_id")
        await self._service(visitor).stop_crawl(_id(request), chat_id)
        return self._crawled(request, visitor, "sessions_crawl_stopped", chat_id)

    # ---- ----

    def _service(self, visitor: Visitor) -> "AccountService":
        return the_service(self._sessions, visitor)

    def _back(self, request: Request, visitor: Visitor, session: Session, said: str) -> Response:
        return self._board.back(request, visitor, _page_of(session), said=said, id=session.session_id)

    def _crawled(self, request: Request, visitor: Visitor, said: str, chat_id: int) -> Response:
        return self._board.back(request, visitor, f"/admin/sessions/{_id(request)}", said=said, chat=chat_id)


def the_service(sessions: "AccountService | None", visitor: Visitor) -> "AccountService":
    """Raises Conflict if nothing in the settings asks for accounts."""
    must_see_all(visitor)
    if sessions is None:
        raise Conflict(
            code="no_sessions",
            detail="Peik keeps no accounts here: set TELEGRAM_API_ID and TELEGRAM_API_HASH, or PEIK_ARCHIVE to read one.",
        )
    return sessions


def no_sessions(board: Board, request: Request, visitor: Visitor) -> Response:
    """A page that says how to turn accounts on."""
    must_see_all(visitor)
    return board.page(request, visitor, "no_sessions.html")


def _page_of(session: Session) -> str:
    return f"/admin/sessions/{session.session_id}"


def _id(request: Request) -> str:
    return str(request.path_params["session_id"])


def _state(text: str) -> SessionState:
    try:
        return SessionState(text)
    except ValueError:
        raise BadInput(code="bad_state", detail=f"state is one of {', '.join(SessionState)}.") from None
