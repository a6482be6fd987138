"""What callers may ask about notifications. What it accepted is filed before it answers, and goes out whatever happens."""

import asyncio
import contextlib
import re
import secrets
import zlib
from collections.abc import Collection, Sequence

import msgspec

from peik.clock import Clock
from peik.core.call import read_call
from peik.core.documents import DocumentStore, Filing
from peik.core.events import Events
from peik.core.letter import Priority
from peik.core.quiet import Quiet
from peik.errors import BadInput, Conflict, Forbidden, NotFound, Problem, TooLarge, Unavailable
from peik.notifications.links import Links, in_turn, not_linked
from peik.notifications.model import (
    NOTICES,
    TEXT_UNITS_MAX,
    USERS,
    Bots,
    Notice,
    NoticeView,
    NotificationLettersPort,
    Notified,
    NotifyRequest,
    Parcel,
    RenderedText,
    User,
    checked_language,
    checked_type,
    checked_user,
    collection_of,
    digest_at,
    filed,
    read,
    rendered,
    units_of,
)
from peik.notifications.queue import NotificationDispatch, Packing, Releasing, after_quiet, calls_of, put_off
from peik.notifications.repeats import Repeats, bot_key, digest_asked, taken
from peik.notifications.templates import Templates
from peik.outbox.service import check_tries

# Reads requests into notices: everything that can be wrong with one is found here, before anything is promised.


REQUEST_BYTES_MAX = 64 * 1024
METADATA_BYTES_MAX = 6 * 1024  # of the 8 that a letter takes: Peik adds its own
KEY_CHARS_MAX = 200
DIGEST_S_MAX = 86400.0
DIGEST_S_MIN = 5.0
_CHAT = re.compile("@[A-Za-z0-9_]{1,64}")


class Checking:
    def __init__(self, *, documents: DocumentStore, bots: Bots, templates: Templates, quiet: Quiet | None) -> None:
        self._documents = documents
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
        documents = await self._documents.those(USERS, sorted(names))
        users = {name: read(document, User) for name, document in documents.items()}
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
        said = RenderedText(
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
    if request.terms is not None:
        check_tries(request.terms.attempts, request.terms.backoff_ms, request.terms.timeout_ms)
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
        if call.method == "sendMessage" and not call.params.get("text"):
            raise BadInput(code="text_empty", detail="The text is empty; Telegram refuses empty messages.")
        read_call(call.method, msgspec.json.encode(call.params))


BATCH_MAX = 500
LOCKS = 64


class NotificationTerms(msgspec.Struct, frozen=True, kw_only=True):
    rate_max: int = 30  # messages an hour to one person; 0: no bound
    quiet: Quiet | None = None  # for users without hours of their own
    keep_ms: int = 7 * 86400 * 1000


class NotificationService:
    def __init__(
        self,
        *,
        documents: DocumentStore,
        letters: NotificationLettersPort,
        links: Links,
        templates: Templates,
        checking: Checking,
        packing: Packing,
        handing: NotificationDispatch,
        releasing: Releasing,
        clock: Clock,
        events: Events,
    ) -> None:
        self._documents = documents
        self._letters = letters
        self.links = links
        self.templates = templates
        self._checking = checking
        self._packing = packing
        self._handing = handing
        self._releasing = releasing
        self._repeats = Repeats(documents)
        self._clock = clock
        self._events = events
        self._last_ms = 0
        self._turns = [asyncio.Lock() for _ in range(LOCKS)]

    async def notify(self, requests: Sequence[NotifyRequest]) -> list[Notice]:
        """Accept notifications, all or none. When this returns, each goes out, waits for its time, or its failure can be seen.
        What was accepted before is answered with that, also if it would be refused by now.

        Raises NotFound for a user who has linked no chat, BadInput, Conflict for a key that was used for another one.
        """
        if not requests:
            raise BadInput(code="empty_batch", detail="There is no notification in the batch.")
        if len(requests) > BATCH_MAX:
            detail = f"A batch holds at most {BATCH_MAX} notifications; send several."
            raise TooLarge(code="batch_too_large", detail=detail)
        at_ms = self._clock.wall_ms()
        earlier = await self._repeats.of(requests)
        checked = await self._checking.check(requests, at_ms=at_ms, passed=earlier)
        ids = self._new_ids(len(checked), at_ms)
        notices = [msgspec.structs.replace(one, id=own) for one, own in zip(checked, ids, strict=True)]
        accepted = iter(await self._accept(notices, at_ms) if notices else [])
        return [earlier[at] if at in earlier else next(accepted) for at in range(len(requests))]

    async def _accept(self, notices: Sequence[Notice], at_ms: int) -> list[Notice]:
        """In their order, each as it stands now; of a repeat, the first."""
        ids = {notice.id for notice in notices}
        async with contextlib.AsyncExitStack() as stack:
            for lock in self._locks(notices):
                await stack.enter_async_context(lock)
            answers, parcels = await in_turn(lambda: self._file(notices, at_ms))
        handed = await self._hand_over(parcels)
        for notice in answers:
            if notice.id in ids:
                self._tell(handed.get(notice.id, notice))
        return [handed.get(notice.id, notice) for notice in answers]

    def _new_ids(self, count: int, at_ms: int) -> list[str]:
        """In the order of acceptance here, also within one millisecond: what waits goes out in the order of ids."""
        self._last_ms = max(at_ms, self._last_ms + 1)
        return [f"{self._last_ms:011x}{index:03x}{secrets.token_hex(5)}" for index in range(count)]

    def _locks(self, notices: Sequence[Notice]) -> list[asyncio.Lock]:
        """Those of one person are filed one after the other: each counts what the one before has taken of his rate. Between
        nodes the versions of documents do the same, less gently. Always in one order, so that nobody waits in a ring."""
        return [self._turns[at] for at in sorted({zlib.crc32(one.recipient.encode()) % LOCKS for one in notices})]

    async def _file(self, notices: Sequence[Notice], at_ms: int) -> tuple[list[Notice], list[Parcel]]:
        known = await self._repeats.under([key for key in map(bot_key, notices) if key is not None])
        answers: list[Notice] = []
        new: dict[str, Notice] = {}
        filings: list[Filing] = []
        keys: dict[str, Notice] = {}
        for notice in notices:
            key = bot_key(notice)
            earlier = None if key is None else known.get(key) or keys.get(key)
            if earlier is not None:
                if earlier.digest != notice.digest:
                    raise _reused(notice)
                answers.append(earlier)
                continue
            answers.append(notice)
            new[notice.id] = notice
            filings.append(filed(collection_of(notice.recipient), notice.id, {}))
            filings += taken(notice)
            if key is not None:
                keys[key] = notice
        now = [notice for notice in new.values() if notice.due_at_ms <= at_ms]
        later = [notice for notice in new.values() if notice.due_at_ms > at_ms]
        plan = await self._packing.plan(now, at_ms=at_ms, may_merge=False)
        filings += [*put_off(later), *plan.filings]
        if filings:
            await self._documents.file(filings)
        waiting = {notice.id: notice for notice in plan.put_off}
        for notice in [*later, *plan.put_off]:
            self._releasing.expect(notice.due_at_ms)
        return [waiting.get(notice.id, notice) for notice in answers], plan.parcels

    async def _hand_over(self, parcels: Sequence[Parcel]) -> dict[str, Notice]:
        try:
            return {notice.id: notice for notice in await self._handing.over(parcels)}
        except Unavailable:
            # They are accepted all the same: their parcels are durable, and anyone who does the chores hands them over.
            self._releasing.look()
            return {}

    def _tell(self, notice: Notice) -> None:
        request = notice.request
        self._events.tell(
            Notified(
                bot_id=request.bot_id or 0,
                notification_id=notice.id,
                user_id=request.user_id or "",
                type=request.type,
                letter_id=notice.letter_ids[0] if notice.letter_ids else None,
            )
        )

    # ---- looking ----

    async def notification(self, notice_id: str) -> NoticeView:
        document = (
            await self._documents.document(NOTICES, notice_id) if notice_id.isalnum() and notice_id.isascii() else None
        )
        if document is None:
            raise NotFound(code="unknown_notification", detail="There is no such notification here (any more).")
        return (await self._views([read(document, Notice)]))[0]

    async def recent(self, *, user_id: str | None = None, before: str | None = None, limit: int) -> list[NoticeView]:
        """The newest first: of a user, or of all."""
        if user_id is None:
            documents = await self._documents.documents(NOTICES, after=before, limit=limit, is_backwards=True)
        else:
            collection = collection_of(f"u/{checked_user(user_id)}")
            lines = await self._documents.documents(collection, after=before, limit=limit, is_backwards=True)
            found = await self._documents.those(NOTICES, [line.key for line in lines])
            documents = [found[line.key] for line in lines if line.key in found]
        return await self._views([read(document, Notice) for document in documents])

    async def _views(self, notices: Sequence[Notice]) -> list[NoticeView]:
        ids = sorted({letter_id for notice in notices for letter_id in notice.letter_ids})
        letters = {view.id: view for view in await self._letters.letters(ids)} if ids else {}
        return [
            NoticeView(notice=one, letters=[letters[each] for each in one.letter_ids if each in letters])
            for one in notices
        ]


def _reused(notice: Notice) -> Conflict:
    return Conflict(
        code="idempotency_key_reused",
        detail=f"The key {notice.request.idempotency_key!r} was used for another notification.",
    )
