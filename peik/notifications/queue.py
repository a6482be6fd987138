"""Makes parcels of notices that may go now, and puts off those that may not: for the rate of a person, or for hours in
which he is to be left alone, as they are by now.

A parcel is filed with its calls before any of them is made, in one commit with all that led to it. Anyone who finishes it, this
life or the next, makes the same calls under the same keys.
"""

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from peik.clock import Clock, zone_of
from peik.core.documents import DocumentStore, Filing, StoredDocument
from peik.core.events import Events, StoreFailed, Surprise
from peik.core.letter import Priority
from peik.core.quiet import Quiet, quiet_until
from peik.errors import BadInput, Problem, Unavailable, described
from peik.notifications.links import in_turn
from peik.notifications.model import (
    CAPTION_UNITS_MAX,
    CAPTIONED,
    NOTICES,
    PARCELS,
    RATES,
    USERS,
    WAITING,
    Notice,
    NotificationLettersPort,
    OutgoingNotice,
    Parcel,
    Rates,
    User,
    filed,
    fresh,
    may_go_at,
    merged,
    read,
    rendered,
    units_of,
    waiting_key,
)
from peik.notifications.upkeep import Cleaning
from peik.wakeup import Wakeup

BUNDLE_MAX = 50  # notices in one digest
BUNDLE_CHARS_MAX = 40_000  # of their words; a document has its bounds
HTML = {"parse_mode": "HTML"}


class PackingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be filed in one commit, and what can be handed over after it."""

    filings: list[Filing]
    parcels: list[Parcel]
    put_off: list[Notice]


class Packing:
    def __init__(self, documents: DocumentStore, *, rate_max: int, quiet: Quiet | None = None) -> None:
        self._documents = documents
        self._rate_max = rate_max  # messages an hour to one person; 0: no bound
        self._quiet = quiet  # for users without hours of their own

    async def plan(self, notices: Sequence[Notice], *, at_ms: int, may_merge: bool) -> PackingPlan:
        """Decide about notices that are due, in their order. Nothing is written here."""
        users = await self._users(notices)
        rates = await self._documents.those(RATES, sorted({notice.recipient for notice in notices}))
        plan = PackingPlan(filings=[], parcels=[], put_off=[])
        # In the order of ids within a person, whatever others do: a stable sort.
        for recipient, group in itertools.groupby(sorted(notices, key=_recipient), key=_recipient):
            document = rates.get(recipient)
            before = [] if document is None else fresh(read(document, Rates).sent_ms, at_ms=at_ms)
            sent = list(before)
            for bundle in _bundles(group, may_merge=may_merge):
                self._decide(plan, bundle, users, sent, at_ms)
            if sent != before and self._rate_max:
                version = 0 if document is None else document.version
                plan.filings.append(filed(RATES, recipient, Rates(sent_ms=tuple(sent[-self._rate_max :])), version))
        return plan

    async def _users(self, notices: Iterable[Notice]) -> dict[str, User]:
        names = {one.request.user_id for one in notices if one.request.user_id is not None}
        return {
            name: read(document, User) for name, document in (await self._documents.those(USERS, sorted(names))).items()
        }

    def _decide(
        self, plan: PackingPlan, bundle: list[Notice], users: dict[str, User], sent: list[int], at_ms: int
    ) -> None:
        first = bundle[0].request
        address = _address(bundle[0], users)
        if address is None:
            plan.filings.extend(_over(bundle, "user_not_linked"))
            return
        late = [one for one in bundle if one.request.expires_at_ms is not None and one.request.expires_at_ms <= at_ms]
        plan.filings.extend(_over(late, "expired"))
        bundle = [one for one in bundle if one not in late]
        if not bundle:
            return
        go_at = self._go_at(users.get(first.user_id or ""), sent, at_ms)
        if go_at > at_ms and first.priority < Priority.CRITICAL:
            waiting = [msgspec.structs.replace(one, due_at_ms=go_at) for one in bundle]
            plan.put_off.extend(waiting)
            plan.filings.extend(put_off(waiting))
            return
        try:
            parcel = _parcel(bundle, *address, at_ms=at_ms)
        except BadInput as problem:  # it was accepted by a Peik that had other rules; nobody else is to wait for it
            plan.filings.extend(_over(bundle, f"{problem.code}: {problem.detail}"))
            return
        sent.append(at_ms)
        plan.parcels.append(parcel)
        plan.filings.append(filed(PARCELS, parcel.id, parcel))
        plan.filings.extend(filed(NOTICES, one.id, one) for one in bundle)

    def _go_at(self, user: User | None, sent: list[int], at_ms: int) -> int:
        """When the next may go to this person. His hours are asked again: he may have changed them, we may be late, and what
        the rate puts off may fall into them."""
        go_at = may_go_at(sent, at_ms=at_ms, rate_max=self._rate_max) if self._rate_max else at_ms
        try:
            return after_quiet(go_at, user, usual=self._quiet)
        except BadInput:  # a zone that this machine does not know: better at a bad time than never
            return go_at


def after_quiet(at_ms: int, user: User | None, *, usual: Quiet | None) -> int:
    """The same instant, or the end of the quiet hours in which it lies: of the user's own, else of the usual ones."""
    quiet = usual if user is None or user.quiet is None else user.quiet
    return at_ms if quiet is None else quiet_until(at_ms, quiet, zone_of(quiet.tz)) or at_ms


def put_off(notices: Iterable[Notice]) -> Iterator[Filing]:
    for one in notices:
        yield filed(NOTICES, one.id, one)
        yield filed(WAITING, waiting_key(one), {})


def calls_of(notices: Sequence[Notice], chat_id: int | str) -> tuple[OutgoingNotice, ...]:
    """What is sent for them. Raises BadInput if a template cannot be filled."""
    chat = {"chat_id": chat_id}
    if len(notices) > 1:
        return tuple(_text(chat, text) for text in merged([one.said for one in notices]))
    notice, attachment = notices[0], notices[0].request.attachment
    text = rendered(notice.said)
    if attachment is None:
        return (_text(chat, text),)
    params: dict[str, Any] = {**attachment.params, **chat}
    if not text:
        return (OutgoingNotice(method=attachment.method, params=params),)
    if attachment.method == "sendMessage" and not params.get("text"):  # buttons, say, under the words
        return (OutgoingNotice(method=attachment.method, params={**params, "text": text, **HTML}),)
    has_room = attachment.method in CAPTIONED and "caption" not in params and units_of(text) <= CAPTION_UNITS_MAX
    if has_room:
        return (OutgoingNotice(method=attachment.method, params={**params, "caption": text, **HTML}),)
    return (_text(chat, text), OutgoingNotice(method=attachment.method, params=params))


def _text(chat: dict[str, int | str], text: str) -> OutgoingNotice:
    return OutgoingNotice(method="sendMessage", params={**chat, "text": text, **HTML})


def _recipient(notice: Notice) -> str:
    return notice.recipient


def _bundles(notices: Iterable[Notice], *, may_merge: bool) -> Iterator[list[Notice]]:
    """Those of one type that may go as one, where the first of them stood; and each of the others alone."""
    bundles: dict[object, list[Notice]] = {}
    sizes: dict[object, int] = {}
    for notice in notices:
        request = notice.request
        key: object = (request.type, request.bot_id, request.hook, request.priority, request.terms)
        if not may_merge or request.attachment is not None or request.digest_s == 0:
            key = notice.id
        size = len(request.title) + len(request.message) + len(notice.said.template or "")
        if key in bundles and (len(bundles[key]) >= BUNDLE_MAX or sizes[key] + size > BUNDLE_CHARS_MAX):
            bundles[(key, notice.id)] = bundles.pop(key)  # full
        bundles.setdefault(key, []).append(notice)
        sizes[key] = size if len(bundles[key]) == 1 else sizes[key] + size
    yield from sorted(bundles.values(), key=lambda bundle: bundle[0].id)


def _address(notice: Notice, users: dict[str, User]) -> tuple[int, int | str] | None:
    """Bot and chat, as they are now: he may have moved while it waited."""
    request = notice.request
    if request.user_id is None:
        assert request.bot_id is not None
        assert request.chat_id is not None
        return request.bot_id, request.chat_id
    user = users.get(request.user_id)
    return None if user is None or user.link is None else (user.link.bot_id, user.link.chat_id)


def _parcel(bundle: Sequence[Notice], bot_id: int, chat_id: int | str, *, at_ms: int) -> Parcel:
    first = bundle[0].request
    ends = [one.request.expires_at_ms for one in bundle]
    metadata: dict[str, Any] = {**first.metadata} if len(bundle) == 1 else {}
    own_type = None if first.terms is None else first.terms.message_type
    metadata |= {"message_type": own_type or first.type, "notification_id": bundle[0].id}
    if len(bundle) > 1:
        metadata["notification_ids"] = [one.id for one in bundle]
    if first.user_id is not None:
        metadata["user_id"] = first.user_id
    return Parcel(
        id=bundle[0].id,
        notice_ids=tuple(one.id for one in bundle),
        bot_id=bot_id,
        calls=calls_of(bundle, chat_id),
        priority=first.priority,
        packed_at_ms=at_ms,
        chat_id=chat_id,
        type=first.type,
        user_id=first.user_id,
        hook=first.hook,
        expires_at_ms=None if None in ends else max(one for one in ends if one is not None),
        metadata=metadata,
        terms=first.terms,
    )


def _over(notices: Iterable[Notice], reason: str) -> Iterator[Filing]:
    for one in notices:
        yield filed(NOTICES, one.id, msgspec.structs.replace(one, failed_reason=reason))


# Hands parcels to the outbox, and notes what became of them.


FEW = 100  # notices that are noted in one commit: a document has at most 256 KB, and a commit 32 MB


class NotificationDispatch:
    def __init__(self, documents: DocumentStore, letters: NotificationLettersPort) -> None:
        self._documents = documents
        self._letters = letters

    async def over(self, parcels: Sequence[Parcel]) -> list[Notice]:
        """Their notices, as they are filed now. Raises Unavailable; then the parcels lie where they can be found, and are
        handed over later. To hand one over twice gives the same letters."""
        return [notice for few in _few(parcels) for notice in await self._over(few)]

    async def _over(self, parcels: Sequence[Parcel]) -> list[Notice]:
        try:
            accepted = await self._letters.accept(parcels)
        except Unavailable:
            raise
        except Problem as problem:
            if len(parcels) == 1:
                return await self._note(parcels, [()], reason=f"{problem.code}: {problem.detail}")
            return [notice for parcel in parcels for notice in await self._over([parcel])]
        return await self._note(parcels, [tuple(ids) for ids in accepted], reason=None)

    async def _note(
        self, parcels: Sequence[Parcel], letters: Sequence[tuple[int, ...]], *, reason: str | None
    ) -> list[Notice]:
        ids = [notice_id for parcel in parcels for notice_id in parcel.notice_ids]
        found = await self._documents.those(NOTICES, ids)
        filings: list[Filing] = []
        notices: list[Notice] = []
        for parcel, letter_ids in zip(parcels, letters, strict=True):
            filings.append(filed(PARCELS, parcel.id, None))
            for notice_id in parcel.notice_ids:
                if notice_id in found:
                    known = read(found[notice_id], Notice)
                    notices.append(msgspec.structs.replace(known, letter_ids=letter_ids, failed_reason=reason))
                    filings.append(filed(NOTICES, notice_id, notices[-1]))
        await self._documents.file(filings)
        return notices


def _few(parcels: Sequence[Parcel]) -> Iterator[list[Parcel]]:
    few: list[Parcel] = []
    notices = 0
    for parcel in parcels:
        if few and notices + len(parcel.notice_ids) > FEW:
            yield few
            few, notices = [], 0
        few.append(parcel)
        notices += len(parcel.notice_ids)
    if few:
        yield few


# Lets go what waited: for the end of quiet hours, of a digest's window, of an hour that was full. One node does it
# for all.
#
# It also finishes parcels that a life before it had packed and not handed over, and clears away what is old.


PAGE = 500
CHARS_MAX = 2_000_000  # of notices in one commit, which has a bound: each is filed again, and once more in its parcel
LOOK_S_MAX = 300.0  # look again at the latest after so long, whatever was heard
PARCEL_S = 10.0  # a younger parcel is being handed over by the node that packed it
RETRY_S = 2.0
SLACK_S = 0.002  # a timer may ring a hair before its time


class Releasing:
    def __init__(
        self,
        *,
        documents: DocumentStore,
        packing: Packing,
        handing: NotificationDispatch,
        cleaning: Cleaning,
        clock: Clock,
        events: Events,
    ) -> None:
        self._documents = documents
        self._packing = packing
        self._handing = handing
        self._cleaning = cleaning
        self._clock = clock
        self._events = events
        self._bell = Wakeup()
        self._is_stale = True
        self._due_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin, under the lease of the chores."""
        self.stop()
        self._is_stale = True
        self._task = group.create_task(self._run(), name="notifications")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def look(self) -> None:
        """Another node may have put something off."""
        self._is_stale = True
        self._bell.ring()

    def expect(self, due_at_ms: int) -> None:
        """Something is due then."""
        at = self._mono(due_at_ms)
        if at < self._due_at:
            self._due_at = at
            self._bell.ring()

    def _mono(self, at_ms: int) -> float:
        return self._clock.mono() + (at_ms - self._clock.wall_ms()) / 1000 + SLACK_S

    async def _run(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while not task.cancelling():  # asked: a library can swallow a cancellation on Python 3.11
            if self._is_stale or self._clock.mono() >= self._due_at:
                await self._surely()
            await self._bell.wait(None if self._is_stale else self._due_at)

    async def _surely(self) -> None:
        self._is_stale = False
        self._due_at = self._clock.mono() + LOOK_S_MAX  # what is put off while we look makes it sooner
        try:
            await self.release()
            await self._cleaning.look()
        except Unavailable as error:
            self._events.tell(StoreFailed(what="notifications that wait", why=error.detail))
            self._due_at = self._clock.mono() + RETRY_S
        except Exception as error:  # noqa: BLE001  told of; and what waits is looked at again
            self._events.tell(Surprise(where="notifications that wait", error=described(error)))
            self._due_at = self._clock.mono() + LOOK_S_MAX

    async def release(self) -> None:
        """Everything that is due."""
        await self._finish()
        while await in_turn(self._release):
            pass
        first = await self._documents.documents(WAITING, limit=1)
        if first:
            self.expect(_due_of(first[0].key))

    async def _release(self) -> bool:
        """A page of it. Whether there may be more."""
        at_ms = self._clock.wall_ms()
        page = await self._documents.documents(WAITING, until=f"{at_ms + 1:015d}", limit=PAGE)
        if not page:
            return False
        found = await self._documents.those(NOTICES, [_id_of(document.key) for document in page])
        is_full = len(page) == PAGE
        page, is_cut = _fitting(page, found)
        notices = [read(found[_id_of(document.key)], Notice) for document in page if _id_of(document.key) in found]
        due = [notice for notice in notices if not notice.is_over]
        plan = await self._packing.plan(sorted(due, key=lambda one: one.id), at_ms=at_ms, may_merge=True)
        stays = {waiting_key(notice) for notice in plan.put_off}
        gone = [filed(WAITING, document.key, None, document.version) for document in page if document.key not in stays]
        await self._documents.file([*gone, *plan.filings])
        await self._handing.over(plan.parcels)
        return is_full or is_cut

    async def _finish(self) -> None:
        """Parcels that somebody packed and did not hand over: before a crash, or while the store was away."""
        after: str | None = None
        while page := await self._documents.documents(PARCELS, after=after, limit=PAGE):
            after = page[-1].key
            parcels = [read(document, Parcel) for document in page]
            limit_ms = self._clock.wall_ms() - int(PARCEL_S * 1000)
            await self._handing.over([one for one in parcels if one.packed_at_ms <= limit_ms])
            young = [one.packed_at_ms for one in parcels if one.packed_at_ms > limit_ms]
            if young:
                self.expect(min(young) + int(PARCEL_S * 1000))


def _fitting(page: Sequence[StoredDocument], found: Mapping[str, StoredDocument]) -> tuple[list[StoredDocument], bool]:
    """As many of them as go into one commit, with what is made of them; and whether some do not."""
    fitting: list[StoredDocument] = []
    left = CHARS_MAX
    for document in page:
        notice = found.get(_id_of(document.key))
        left -= len(notice.body) if notice is not None else 0
        if left < 0 and fitting:
            return fitting, True
        fitting.append(document)
    return fitting, False


def _due_of(key: str) -> int:
    return int(key.partition("/")[0])


def _id_of(key: str) -> str:
    return key.partition("/")[2]
