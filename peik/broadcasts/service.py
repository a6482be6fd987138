"""What callers ask of broadcasts: to make them, to see how they stand, to start, halt and end them."""

import hashlib
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from peik.broadcasts.audience import Audience, ContactAudience, ListAudience, recipient_of, unreachable
from peik.broadcasts.dispatch import CONTACT_COLUMNS, check_placeholders, params_for, preview_of
from peik.broadcasts.model import (
    KEY_COLLECTION,
    Broadcast,
    BroadcastLettersPort,
    Canary,
    Estimate,
    Paid,
    Phase,
    PhaseStep,
    Recipient,
    RecipientState,
    check_recipients,
    checked_canary,
    checked_paid,
    estimated,
    work_ms,
)
from peik.broadcasts.repository import BroadcastRepository, moved, told, unknown
from peik.clock import Clock, zone_of
from peik.core.call import read_call
from peik.core.documents import ContactStore, DocumentStore, Filing
from peik.core.events import Events
from peik.core.letter import Chat, OnUncertain
from peik.core.methods import MethodClass
from peik.core.quiet import Quiet, checked_quiet, done_at
from peik.errors import BadInput, Conflict, Unavailable

# A broadcast as somebody asks for it: checked, and made into one that can be stored.


PARAMS_BYTES_MAX = 64 * 1024
NAME_CHARS_MAX = 200
KEY_CHARS_MAX = 255
DIGESTED = 10_000
AHEAD_MS_MAX = 366 * 86_400_000  # so far a start may be put into the future

_encode = msgspec.json.Encoder(order="sorted").encode


class BroadcastRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A broadcast as somebody asks for it. The parameters are those of the method, without chat_id."""

    method: str
    params: Mapping[str, Any]
    audience: Audience
    bot_id: int | None = None
    name: str | None = None
    canary: Canary | None = None
    quiet: Quiet | None = None
    paid: Paid | None = None
    on_uncertain: OnUncertain | None = None
    start: bool = False
    start_at_ms: int | None = None
    key: str | None = None  # of idempotency, within its bot
    created_by: str | None = None


def drafted(request: BroadcastRequest, *, bot_id: int, number: int, at_ms: int) -> Broadcast:
    """The broadcast, with `number` below 100,000 in its id. Raises BadInput."""
    check_terms(request, at_ms)
    params = {name: value for name, value in request.params.items() if name not in ("chat_id", "allow_paid_broadcast")}
    encoded = msgspec.json.encode(params)
    if len(encoded) > PARAMS_BYTES_MAX:
        raise BadInput(code="params_too_large", detail=f"params holds at most {PARAMS_BYTES_MAX} bytes of JSON.")
    audience = request.audience
    draft = Broadcast(
        id=id_of(at_ms, number),
        bot_id=bot_id,
        name=request.name,
        method=request.method,
        params=encoded.decode(),
        wanted=audience.wanted if isinstance(audience, ContactAudience) else None,
        columns=audience.columns if isinstance(audience, ListAudience) else (),
        canary=request.canary,
        quiet=request.quiet,
        paid=request.paid,
        on_uncertain=request.on_uncertain,
        created_at_ms=at_ms,
        created_by=request.created_by,
        moved_at_ms=at_ms,
        total=len(audience.recipients) if isinstance(audience, ListAudience) else 0,
    )
    check_placeholders(params, CONTACT_COLUMNS if isinstance(audience, ContactAudience) else audience.columns)
    draft = msgspec.structs.replace(draft, method=(call := _checked_call(draft)).method, weight=call.weight)
    if request.start_at_ms is not None and request.start_at_ms > at_ms:
        return _surely(moved(draft, PhaseStep.SCHEDULE, at_ms=at_ms, until_ms=request.start_at_ms))
    is_due = request.start or request.start_at_ms is not None
    return _surely(moved(draft, PhaseStep.START, at_ms=at_ms)) if is_due else draft


def id_of(at_ms: int, number: int) -> str:
    """In the order of time."""
    return f"{at_ms:013d}{number:05d}"


def _surely(broadcast: Broadcast | None) -> Broadcast:
    assert broadcast is not None
    return broadcast


def check_terms(request: BroadcastRequest, at_ms: int) -> None:
    if request.canary is not None:
        checked_canary(request.canary)
    if request.quiet is not None:
        zone_of(checked_quiet(request.quiet).tz)
    if request.paid is not None:
        checked_paid(request.paid)
    elif request.params.get("allow_paid_broadcast"):
        raise BadInput(
            code="bad_paid", detail="A paid broadcast is asked for with paid: {stars_max}, so that it has a cap."
        )
    if request.name is not None and not 0 < len(request.name) <= NAME_CHARS_MAX:
        raise BadInput(code="bad_name", detail=f"name has 1 to {NAME_CHARS_MAX} characters.")
    if request.key is not None and not 0 < len(request.key) <= KEY_CHARS_MAX:
        raise BadInput(code="bad_idempotency_key", detail=f"An idempotency key has 1 to {KEY_CHARS_MAX} characters.")
    if request.start_at_ms is not None:
        check_start(request.start_at_ms, at_ms)
    if isinstance(request.audience, ContactAudience):
        since_ms, before_ms = request.audience.wanted.seen_since_ms, request.audience.wanted.seen_before_ms
        if since_ms is not None and before_ms is not None and since_ms >= before_ms:
            raise BadInput(
                code="bad_audience", detail="seen_since is not before seen_before: nobody fits.", field="seen_since"
            )


def check_start(start_at_ms: int, at_ms: int) -> None:
    if start_at_ms - at_ms > AHEAD_MS_MAX:
        raise BadInput(code="bad_time", detail="A broadcast starts within a year.")


class _Call(msgspec.Struct, frozen=True):
    method: str
    weight: int


def _checked_call(draft: Broadcast) -> _Call:
    """Whether it can be sent to anybody at all."""
    reading = read_call(draft.method, params_for(draft, 1, None))
    if reading.kind is not MethodClass.SEND or reading.chat != 1:
        raise BadInput(
            code="not_a_send",
            detail=f"{reading.method} does not send a message to a chat, so it cannot be a broadcast.",
        )
    if reading.awaits is not None:
        raise BadInput(code="not_a_send", detail="A broadcast cannot refer to another letter.")
    return _Call(reading.method, max(1, reading.weight))


def shelved(key: str, bot_id: int) -> str:
    return hashlib.sha256(f"{bot_id}\0{key}".encode()).hexdigest()


def digest_of(request: BroadcastRequest, bot_id: int) -> str:
    """Equal for the same broadcast, no matter who asks for it and when."""
    audience = request.audience
    plain = msgspec.structs.replace(
        request, key=None, created_by=None, bot_id=bot_id, audience=ListAudience(recipients=())
    )
    digest = hashlib.sha256(_encode(plain))
    if isinstance(audience, ContactAudience):  # sets have no order
        wanted = msgspec.structs.asdict(audience.wanted)
        digest.update(_encode({name: _in_order(value) for name, value in wanted.items()}))
        return digest.hexdigest()
    digest.update(_encode(audience.columns))
    for first in range(0, len(audience.recipients), DIGESTED):  # a million of them are no copy of a million
        digest.update(_encode(audience.recipients[first : first + DIGESTED]))
    return digest.hexdigest()


def _in_order(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else value


# Makes broadcasts: recipients first, a page at a time, and last the one commit that makes them a broadcast.


FILED = 1000  # recipients in one commit
IDS_TRIED = 20


class _Key(msgspec.Struct, frozen=True):
    id: str
    digest: str


class BroadcastMaker:
    def __init__(
        self,
        *,
        documents: DocumentStore,
        letters: BroadcastLettersPort,
        clock: Clock,
        events: Events,
        chance: random.Random,
    ) -> None:
        self._documents = documents
        self._book = BroadcastRepository(documents)
        self.letters = letters
        self._clock = clock
        self._events = events
        self._chance = chance

    async def create(self, request: BroadcastRequest) -> Broadcast:
        """Durably; its recipients too, if they are given. Of a key that was used before, the broadcast of that time. Raises
        BadInput, NotFound, Conflict (another broadcast under the same key) and StoreUnavailable."""
        bot_id = self.letters.bot_id(request.bot_id)
        key = None if request.key is None else shelved(request.key, bot_id)
        draft = drafted(request, bot_id=bot_id, number=self._number(), at_ms=self._clock.wall_ms())
        digest = ""
        if key is not None:
            digest = digest_of(request, bot_id)
            known = await self._known(key, digest)
            if known is not None:
                return known
            draft = msgspec.structs.replace(draft, key=key)
        if isinstance(request.audience, ListAudience):
            draft = await self._write_down(draft, request.audience)
        more = []
        if key is not None:
            body = msgspec.json.encode(_Key(draft.id, digest)).decode()
            more = [Filing(collection=KEY_COLLECTION, key=key, body=body, version=0)]
        try:
            # The last commit, and the one that counts: recipients without a broadcast are swept away.
            await self._book.add(draft, more)
        except Conflict:
            known = None if key is None else await self._known(key, digest)
            if known is None:
                raise
            await self._book.clear(draft.id)
            return known
        self._events.tell(told(draft))
        return draft

    async def _known(self, key: str, digest: str) -> Broadcast | None:
        document = await self._documents.document(KEY_COLLECTION, key)
        if document is None:
            return None
        noted = msgspec.json.decode(document.body, type=_Key)
        if noted.digest != digest:
            raise Conflict(
                code="idempotency_key_reused",
                detail="This key was used for another broadcast. Use a new key for a new one.",
            )
        return await self._book.get(noted.id)

    def _number(self) -> int:
        return self._chance.randrange(100_000)

    async def _write_down(self, draft: Broadcast, audience: ListAudience) -> Broadcast:
        """The draft, under an id that nobody else has."""
        for first in range(0, len(audience.recipients), FILED):
            page = audience.recipients[first : first + FILED]
            lines = [
                (number, Recipient(chat=chat, values=values))
                for number, (chat, values) in enumerate(page, start=first + 1)
            ]
            if first:
                await self._book.write(draft.id, lines)
            else:
                draft = await self._begun(draft, lines)
        return draft

    async def _begun(self, draft: Broadcast, lines: Sequence[tuple[int, Recipient]]) -> Broadcast:
        for _ in range(IDS_TRIED):
            try:
                await self._book.begin(draft.id, lines)
            except Conflict:  # two of one millisecond drew the same number
                draft = msgspec.structs.replace(draft, id=id_of(draft.created_at_ms, self._number()))
            else:
                return draft
        raise Unavailable(code="busy", detail="Very many broadcasts are made at once. Ask again.")


_UNWRITTEN = (Phase.DRAFT, Phase.SCHEDULED)  # known chats are not written down yet
PAGE_MAX = 1000
SCANNED_MAX = 20_000  # lines of a ledger that one question looks at

Line = tuple[int, Recipient]


class BroadcastService:
    def __init__(
        self,
        *,
        documents: DocumentStore,
        contacts: ContactStore,
        letters: BroadcastLettersPort,
        clock: Clock,
        events: Events,
        chance: random.Random,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """`look` wakes the engine, if it is in this process."""
        self._book = BroadcastRepository(documents)
        self._making = BroadcastMaker(documents=documents, letters=letters, clock=clock, events=events, chance=chance)
        self._contacts = contacts
        self.letters = letters
        self._clock = clock
        self._events = events
        self._look = look

    # ---- making ----

    async def create(self, request: BroadcastRequest) -> Broadcast:
        """Durably; its recipients too, if they are given. Of a key that was used before, the broadcast of that time. Raises
        BadInput, NotFound, Conflict (another broadcast under the same key) and StoreUnavailable."""
        made = await self._making.create(request)
        self._look()
        return made

    async def audience_of(self, broadcast_id: str) -> Audience:
        """Whom it is for, to make another one for the same. Raises NotFound."""
        found = await self.get(broadcast_id)
        if found.wanted is not None:
            return ContactAudience(wanted=found.wanted)
        recipients: list[tuple[Chat, dict[str, str] | None]] = []
        while lines := await self._book.lines(found.id, first=len(recipients) + 1, limit=PAGE_MAX):
            recipients += [(line.chat, line.values) for _, line in lines]
        return ListAudience(recipients=tuple(recipients), columns=found.columns)

    async def edit(self, broadcast_id: str, request: BroadcastRequest, *, has_same_list: bool = False) -> Broadcast:
        """The draft as it is asked for now. `has_same_list`: its recipients stay as they were given, and `request.audience` has
        only their columns. Other recipients make a draft with a new id, and the old one goes after it: what a crash leaves
        is one draft too many, and never one with the recipients of both. Raises NotFound, BadInput, Conflict."""
        found = await self.get(broadcast_id)
        if found.phase is not Phase.DRAFT:
            raise Conflict(code="wrong_phase", detail=f"Broadcast {found.id} is {found.phase}: only a draft is edited.")
        is_in_place = has_same_list or (found.wanted is not None and isinstance(request.audience, ContactAudience))
        terms = msgspec.structs.replace(request, on_uncertain=found.on_uncertain, start=False, start_at_ms=None)
        if not is_in_place:
            made = await self.create(msgspec.structs.replace(terms, key=None))
            await self.delete(found.id)
            return made
        bot_id = self.letters.bot_id(request.bot_id)
        new = drafted(terms, bot_id=bot_id, number=0, at_ms=self._clock.wall_ms())

        def change(old: Broadcast) -> Broadcast:
            if old.phase is not Phase.DRAFT:
                raise Conflict(code="wrong_phase", detail=f"Broadcast {old.id} was begun a moment ago.")
            return msgspec.structs.replace(
                old,
                bot_id=new.bot_id,
                name=new.name,
                method=new.method,
                params=new.params,
                weight=new.weight,
                wanted=new.wanted,
                canary=new.canary,
                quiet=new.quiet,
                paid=new.paid,
                moved_at_ms=new.moved_at_ms,
            )

        changed = await self._book.change(found.id, change)
        assert changed is not None
        self._events.tell(told(changed[1]))
        return changed[1]

    # ---- looking ----

    async def get(self, broadcast_id: str) -> Broadcast:
        """Raises NotFound."""
        return await self._book.get(_checked_id(broadcast_id))

    async def find(
        self, *, bot_ids: frozenset[int] | None = None, before: str | None = None, limit: int = 50
    ) -> list[Broadcast]:
        """The newest first, of these bots or of all."""
        _check_limit(limit)
        found: list[Broadcast] = []
        while len(found) < limit:
            page = await self._book.newest(before=before, limit=limit)
            found += [one for one in page if bot_ids is None or one.bot_id in bot_ids]
            if len(page) < limit:
                break
            before = page[-1].id
        return found[:limit]

    async def recipients(
        self, broadcast_id: str, *, state: RecipientState | None = None, after: int | None = None, limit: int = 50
    ) -> tuple[list[Line], int | None]:
        """Lines of the ledger in their order, and where to go on. A page may have fewer than there are: so many lines are
        looked at, and no more. Raises NotFound."""
        _check_limit(limit)
        await self.get(broadcast_id)
        found: list[Line] = []
        place = after or 0
        for _ in range(SCANNED_MAX // PAGE_MAX):
            page = await self._book.lines(broadcast_id, first=place + 1, limit=PAGE_MAX if state else limit)
            for number, line in page:
                place = number
                if state is None or line.state is state:
                    found.append((number, line))
                if len(found) == limit:
                    return found, place
            if len(page) < (PAGE_MAX if state else limit):
                return found, None
        return found, place

    async def ledger(self, broadcast_id: str, *, state: RecipientState | None = None) -> AsyncIterator[list[Line]]:
        """The whole ledger, page by page. Raises NotFound."""
        place: int | None = 0
        while place is not None:
            lines, place = await self.recipients(broadcast_id, state=state, after=place, limit=PAGE_MAX)
            yield lines

    async def first(self, broadcast_id: str, limit: int) -> list[Recipient]:
        """Those who come first, of known chats as they are now; those who are known to be out of reach are among them only
        if they were given. Raises NotFound."""
        found = await self.get(broadcast_id)
        if found.wanted is not None and found.phase in _UNWRITTEN:
            wanted = found.wanted if found.wanted.is_gone else msgspec.structs.replace(found.wanted, is_gone=False)
            known = await self._contacts.contacts(found.bot_id, wanted, after=None, limit=limit)
            return [recipient_of(contact, is_out=contact.is_gone) for contact in known]
        return [line for _, line in await self._book.lines(found.id, first=1, limit=limit)]

    async def like(self, broadcast_id: str, chat: Chat) -> Recipient:
        """The recipient with this chat, with what fills the placeholders for him. Raises NotFound, BadInput."""
        found = await self.get(broadcast_id)
        if found.wanted is not None and isinstance(chat, int):
            contact = await self._contacts.contact(found.bot_id, chat)
            if contact is not None:
                return recipient_of(contact, is_out=contact.is_gone)
        place = 1
        while found.wanted is None and place < SCANNED_MAX:
            lines = await self._book.lines(found.id, first=place, limit=PAGE_MAX)
            for _, line in lines:
                if line.chat == chat:
                    return line
            if len(lines) < PAGE_MAX:
                break
            place += PAGE_MAX
        raise BadInput(
            code="no_recipient",
            detail=f"{chat} is not among the recipients, or not among the first {SCANNED_MAX}.",
            field="like",
        )

    async def message_for(self, broadcast_id: str, recipient: Recipient | None) -> bytes:
        """The parameters of its call, as this recipient would get them. Raises NotFound."""
        found = await self.get(broadcast_id)
        chat, values = (1, None) if recipient is None else (recipient.chat, recipient.values)
        return params_for(found, chat, values)

    async def estimate(self, broadcast_id: str) -> Estimate:
        """What it would take if it began now; or what is left of it. Sends nothing. Raises NotFound."""
        found = await self.get(broadcast_id)
        recipients, suppressed, is_least = await self._counted(found)
        per_s = self.letters.per_s(found.bot_id)
        needed_ms = work_ms(recipients * max(1, found.weight), per_s)
        begins_ms = max(self._clock.wall_ms(), found.start_at_ms or 0 if found.phase is Phase.SCHEDULED else 0)
        zone = zone_of("UTC" if found.quiet is None else found.quiet.tz)
        return estimated(
            recipients=recipients,
            suppressed=suppressed,
            is_least=is_least,
            weight=found.weight,
            per_s=per_s,
            done_at_ms=done_at(begins_ms, needed_ms, found.quiet, zone),
            paid=found.paid,
        )

    async def _counted(self, found: Broadcast) -> tuple[int, int, bool]:
        """Recipients, those who are suppressed, and whether there may be more of these: of a long list only so many lines
        are looked at."""
        if found.phase not in (*_UNWRITTEN, Phase.SNAPSHOTTING):
            return found.pending + found.queued, found.counts.suppressed, False
        if found.wanted is not None:
            total = await self._contacts.count_contacts(found.bot_id, found.wanted)
            if found.wanted.is_gone is not None:
                return (0, total, False) if found.wanted.is_gone else (total, 0, False)
            gone = await self._contacts.count_contacts(
                found.bot_id, msgspec.structs.replace(found.wanted, is_gone=True)
            )
            return total - gone, gone, False
        chats = await unreachable(found.bot_id, self.letters, self._contacts)
        if not chats:
            return found.total, 0, False
        suppressed = 0
        for first in range(1, min(found.total, SCANNED_MAX) + 1, PAGE_MAX):
            page = await self._book.lines(found.id, first=first, limit=PAGE_MAX)
            suppressed += sum(line.chat in chats for _, line in page)
        return found.total - suppressed, suppressed, found.total > SCANNED_MAX

    async def preview(self, broadcast_id: str, chat: Chat, *, like: Chat | None = None) -> int:
        """Send it to one chat, as the recipient `like` would get it, or the first one. The letter's id. Raises NotFound,
        BadInput."""
        found = await self.get(broadcast_id)
        if like is not None:
            recipient: Recipient | None = await self.like(broadcast_id, like)
        else:
            recipient = next(iter(await self.first(broadcast_id, 1)), None)
        letter = preview_of(found, chat, recipient)
        (letter_id,) = await self.letters.accept(found.bot_id, [letter])
        return letter_id

    # ---- changing ----

    async def start(self, broadcast_id: str, *, at_ms: int | None = None, recipients: int | None = None) -> Broadcast:
        """Begin, now or at a time. `recipients`: how many the caller believes will get it. Raises NotFound, and Conflict if it
        has begun, or if they are not so many."""
        now_ms = self._clock.wall_ms()
        if recipients is not None:
            check_recipients(recipients, (await self._counted(await self.get(broadcast_id)))[0])
        if at_ms is None or at_ms <= now_ms:
            return await self._step(broadcast_id, PhaseStep.START)
        check_start(at_ms, now_ms)
        return await self._step(broadcast_id, PhaseStep.SCHEDULE, until_ms=at_ms)

    async def pause(self, broadcast_id: str) -> Broadcast:
        """Halt. What still waits in the outbox is taken back; what is in flight ends. Raises NotFound, Conflict."""
        return await self._step(broadcast_id, PhaseStep.PAUSE)

    async def resume(self, broadcast_id: str) -> Broadcast:
        """Go on, also after it stopped itself. Raises NotFound, Conflict."""
        return await self._step(broadcast_id, PhaseStep.RESUME)

    async def cancel(self, broadcast_id: str) -> Broadcast:
        """End it: nobody who has had nothing yet gets anything. Raises NotFound, Conflict."""
        return await self._step(broadcast_id, PhaseStep.CANCEL)

    async def recall(self, broadcast_id: str) -> Broadcast:
        """End it, and delete what was sent. Telegram deletes only what is younger than 48 hours. Raises NotFound, Conflict."""
        return await self._step(broadcast_id, PhaseStep.RECALL)

    async def _step(self, broadcast_id: str, step: PhaseStep, *, until_ms: int | None = None) -> Broadcast:
        def change(old: Broadcast) -> Broadcast:
            new = moved(old, step, at_ms=self._clock.wall_ms(), until_ms=until_ms)
            if new is None:
                raise Conflict(code="wrong_phase", detail=_why_not(old, step))
            return new

        changed = await self._book.change(_checked_id(broadcast_id), change)
        assert changed is not None
        self._events.tell(told(changed[1]))
        self._look()
        return changed[1]

    async def delete(self, broadcast_id: str) -> None:
        """Forget one that was never begun, or that is over. Raises NotFound, Conflict."""
        found = await self.get(broadcast_id)
        if not _may_be_deleted(found):
            raise Conflict(code="wrong_phase", detail=f"Broadcast {found.id} is {found.phase}: cancel it first.")
        if not await self._book.remove(found.id, may=_may_be_deleted):
            raise Conflict(code="wrong_phase", detail=f"Broadcast {found.id} was begun a moment ago: cancel it first.")


def _may_be_deleted(found: Broadcast) -> bool:
    return found.phase is Phase.DRAFT or found.phase.is_final


def _why_not(found: Broadcast, step: PhaseStep) -> str:
    if found.phase is Phase.QUIET and step is PhaseStep.RESUME:
        return f"Broadcast {found.id} rests in its quiet hours, and goes on by itself."
    return f"Broadcast {found.id} is {found.phase}: it cannot {step} from there."


def _checked_id(broadcast_id: str) -> str:
    if not (broadcast_id.isascii() and broadcast_id.isdigit() and len(broadcast_id) <= 18):
        raise unknown(broadcast_id)
    return broadcast_id


def _check_limit(limit: int) -> None:
    if not 0 < limit <= PAGE_MAX:
        raise BadInput(code="bad_limit", detail=f"limit must be between 1 and {PAGE_MAX}.")
