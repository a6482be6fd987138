"""Reads requests into notices: everything that can be wrong with one is found here, before anything is promised."""

import re
from collections.abc import Collection, Sequence

import msgspec

from peik.core.call import read_call
from peik.core.letter import Priority
from peik.core.notification import TEXT_UNITS_MAX, Said, digest_at, rendered, units_of
from peik.core.quiet import Quiet
from peik.errors import BadInput, Forbidden, NotFound, Problem, TooLarge
from peik.notifications.links import not_linked
from peik.notifications.packing import after_quiet, calls_of
from peik.notifications.ports import Bots
from peik.notifications.repeats import digest_asked
from peik.notifications.templates import Templates
from peik.notifications.values import (
    USERS,
    Notice,
    NotifyRequest,
    User,
    checked_language,
    checked_type,
    checked_user,
    read,
)
from peik.paper_ports import PaperStore

REQUEST_BYTES_MAX = 64 * 1024
METADATA_BYTES_MAX = 6 * 1024  # of the 8 that a letter takes: Peik adds its own
KEY_CHARS_MAX = 200
DIGEST_S_MAX = 86400.0
DIGEST_S_MIN = 5.0
_CHAT = re.compile("@[A-Za-z0-9_]{1,64}")


class Checking:
    def __init__(self, *, papers: PaperStore, bots: Bots, templates: Templates, quiet: Quiet | None) -> None:
        self._papers = papers
        self._bots = bots
        self._templates = templates
        self._quiet = quiet

    async def check(
        self, requests: Sequence[NotifyRequest], *, at_ms: int, passed: Collection[int] = ()
    ) -> list[Notice]:
        """Notices without ids, each with its time, of all but those at the places that have passed before. Raises Problem,
        naming the one of a batch that is wrong."""
        new = [(index, one) for index, one in enumerate(requests) if index not in passed]
        names = {one.user_id for _, one in new if one.user_id is not None}
        for name in names:
            checked_user(name)
        papers = await self._papers.those(USERS, sorted(names))
        users = {name: read(paper, User) for name, paper in papers.items()}
        notices = []
        for index, request in new:
            try:
                user = None if request.user_id is None else users.get(request.user_id)
                notices.append(await self._checked(request, user, at_ms))
            except Problem as problem:
                if len(requests) == 1:
                    raise
                detail = f"Notification {index} of the batch: {problem.detail}"
                raise type(problem)(code=problem.code, detail=detail) from None
        return notices

    async def _checked(self, request: NotifyRequest, user: User | None, at_ms: int) -> Notice:
        _check_shape(request)
        given = digest_asked(request)
        request, chat_id = self._addressed(request, user)
        language = request.language or (None if user is None else user.language)
        template = await self._templates.find(request.type, language)
        said = Said(
            title=request.title,
            message=request.message,
            data=request.data,
            is_html=request.is_html,
            template=None if template is None else template.text,
        )
        notice = Notice(
            id="",
            request=request,
            said=said,
            created_at_ms=at_ms,
            due_at_ms=self._due(request, user, at_ms),
            digest=given,
        )
        _check_calls(notice, chat_id)
        if request.expires_at_ms is not None and request.expires_at_ms <= notice.due_at_ms:
            detail = "It would expire before it could go out: mind expires_at, quiet hours and the digest's window."
            raise BadInput(code="already_expired", detail=detail)
        return notice

    def _addressed(self, request: NotifyRequest, user: User | None) -> tuple[NotifyRequest, int | str]:
        """With the bot that it goes by, and the chat that it would go to now."""
        chat_id: int | str
        if request.user_id is not None:
            if user is None or user.link is None:
                raise not_linked(request.user_id)
            bot_id, chat_id = user.link.bot_id, user.link.chat_id
            if request.bot_id not in (None, bot_id):
                detail = f"{request.user_id} is linked to bot {bot_id}, not to {request.bot_id}. Leave bot_id out."
                raise NotFound(code="user_not_linked", detail=detail)
            if (
                user.owner is not None
                and request.bot_id is None
                and request.bot_ids is None
                and self._bots.are_several()
            ):
                detail = (
                    f"{request.user_id} was made by a key of bot {bot_id} alone: say that bot_id if you mean that user."
                )
                raise BadInput(code="which_bot", detail=detail)
        else:
            assert request.chat_id is not None
            bot_id, chat_id = self._bots.named(request.bot_id), request.chat_id
        if request.bot_ids is not None and bot_id not in request.bot_ids:
            raise Forbidden(code="wrong_bot", detail=f"This key is not for bot {bot_id}.")
        return msgspec.structs.replace(request, bot_id=bot_id, bot_ids=None), chat_id

    def _due(self, request: NotifyRequest, user: User | None, at_ms: int) -> int:
        """What is critical waits for nothing but its own time."""
        due_ms = max(at_ms, request.send_at_ms or 0)
        if request.priority >= Priority.CRITICAL:
            return due_ms
        if request.digest_s:
            due_ms = digest_at(due_ms, int(request.digest_s * 1000))
        return after_quiet(due_ms, user, usual=self._quiet)


def _check_shape(request: NotifyRequest) -> None:
    checked_type(request.type)
    if request.language is not None:
        checked_language(request.language)
    if (request.user_id is None) == (request.chat_id is None):
        raise BadInput(code="which_recipient", detail="Name either the user (user_id) or the chat (chat_id).")
    if isinstance(request.chat_id, str) and _CHAT.fullmatch(request.chat_id) is None:
        raise BadInput(code="bad_chat_id", detail="A chat is named by its number, or by @name.")
    if request.priority not in {int(one) for one in Priority}:
        raise BadInput(code="bad_priority", detail="priority is 2 (critical), 1, 0 or -1.")
    if not (request.title.strip() or request.message.strip()) and request.attachment is None:
        raise BadInput(code="empty_notification", detail="There is neither a title nor a message.")
    if request.digest_s and not DIGEST_S_MIN <= request.digest_s <= DIGEST_S_MAX:
        raise BadInput(code="bad_digest", detail="digest is a time from 5s to 24h, or false.")
    if request.idempotency_key is not None and not 0 < len(request.idempotency_key) <= KEY_CHARS_MAX:
        raise BadInput(code="bad_idempotency_key", detail=f"An idempotency key has 1 to {KEY_CHARS_MAX} characters.")
    if len(msgspec.json.encode(request.metadata)) > METADATA_BYTES_MAX:
        raise BadInput(code="metadata_too_large", detail=f"Metadata holds at most {METADATA_BYTES_MAX} bytes of JSON.")
    if len(msgspec.json.encode(request)) > REQUEST_BYTES_MAX:
        raise TooLarge(code="notification_too_large", detail=f"It is larger than {REQUEST_BYTES_MAX} bytes.")


def _check_calls(notice: Notice, chat_id: int | str) -> None:
    """Raises BadInput as the outbox would, and what Telegram would say to a text that is too long."""
    if units_of(rendered(notice.said)) > TEXT_UNITS_MAX:
        detail = f"With title and template the text is longer than {TEXT_UNITS_MAX} characters."
        raise BadInput(code="text_too_long", detail=detail)
    for call in calls_of([notice], chat_id):
        read_call(call.method, msgspec.json.encode(call.params))
