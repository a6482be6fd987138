"""The part of the library that is about broadcasts: `peik.broadcasts`, the same on a Peik in this process and on one far away."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from peik.broadcasts.audience import Audience, ContactAudience, listed, read_csv
from peik.broadcasts.model import Canary, Paid, PhaseStep, RecipientState, read_recipient_state
from peik.broadcasts.service import BroadcastRequest
from peik.client.calls import When, instant_ms
from peik.core.call import chat_key
from peik.core.documents import ContactFilter
from peik.core.letter import Chat, OnUncertain
from peik.core.quiet import Quiet
from peik.errors import BadInput

PAGE = 200


class BroadcastCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Recipients, by where they stand."""

    pending: int = 0
    queued: int = 0
    delivered: int = 0
    failed: int = 0
    blocked: int = 0
    suppressed: int = 0
    cancelled: int = 0
    recalled: int = 0


class BroadcastInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A broadcast as it stands. `steps` is what can be asked of it now."""

    id: str
    bot_id: str
    method: str
    state: str
    name: str | None = None
    reason: str | None = None
    steps: tuple[str, ...] = ()
    total: int = 0
    counts: BroadcastCounts = BroadcastCounts()
    unrecalled: int = 0
    progress: float = 0.0
    eta_s: float | None = None
    created_at: datetime.datetime | None = None
    start_at: datetime.datetime | None = None
    started_at: datetime.datetime | None = None
    quiet_until: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ("completed", "cancelled", "recalled")


class BroadcastEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """What it would take, or what is left of it."""

    recipients: int
    suppressed: int
    messages: int
    is_least: bool = False  # of a long list: suppressed are at least so many, recipients at most
    per_s: float | None = None
    duration_s: float = 0.0
    done_at: datetime.datetime | None = None
    stars: float = 0.0
    stars_most: float = 0.0
    stars_max: float | None = None


class RecipientInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the ledger."""

    number: str
    chat_id: str
    state: str
    letter_id: str | None = None
    message_ids: tuple[str, ...] = ()
    error: str | None = None
    values: dict[str, str] | None = None
    uncertain_tries: int = 0
    queued_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None


class BroadcastsCounter(Protocol):
    """Where the library asks. Raises what `peik.errors` draws, the same on both sides."""

    async def create(self, request: BroadcastRequest) -> BroadcastInfo: ...

    async def get(self, broadcast_id: str) -> BroadcastInfo: ...

    async def find(self, *, bot_id: int | None, before: str | None, limit: int) -> list[BroadcastInfo]: ...

    async def step(self, broadcast_id: str, step: PhaseStep, *, at_ms: int | None) -> BroadcastInfo: ...

    async def estimate(self, broadcast_id: str) -> BroadcastEstimate: ...

    async def preview(self, broadcast_id: str, chat: Chat) -> str: ...

    async def recipients(
        self, broadcast_id: str, *, state: RecipientState | None, after: int | None, limit: int
    ) -> tuple[list[RecipientInfo], int | None]: ...

    async def delete(self, broadcast_id: str) -> None: ...


class Broadcasts:
    """One call to many chats. See docs/broadcasts.md. A broadcast is named by its id, or by what was answered for it."""

    def __init__(self, counter: Callable[[], BroadcastsCounter]) -> None:
        self._counter = counter

    async def create(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        chat_ids: Iterable[int | str] | None = None,
        csv: str | bytes | None = None,
        contacts: ContactFilter | None = None,
        bot_id: int | None = None,
        name: str | None = None,
        start: bool = False,
        send_at: When | None = None,
        canary: Canary | None = None,
        quiet: Quiet | None = None,
        stars_max: float | None = None,
        on_uncertain: OnUncertain | str | None = None,
        idempotency_key: str | None = None,
    ) -> BroadcastInfo:
        """Make one, durably: for a list of chats, the rows of a CSV with a column chat_id, or known chats. `params` has no
        chat_id; other columns fill {placeholders} in text and caption. With `start` it begins at once, with `send_at` then."""
        chats = None if chat_ids is None else list(chat_ids)  # in the thread of whoever gives them
        audience = await asyncio.to_thread(_audience, chats, csv, contacts)  # a million rows take seconds
        return await self._counter().create(
            BroadcastRequest(
                method=method,
                params=_plain(params),
                audience=audience,
                bot_id=bot_id,
                name=name,
                start=start,
                start_at_ms=instant_ms(send_at, "send_at"),
                canary=canary,
                quiet=quiet,
                paid=None if stars_max is None else Paid(stars_max=stars_max),
                on_uncertain=None if on_uncertain is None else _on_uncertain(on_uncertain),
                key=idempotency_key,
            )
        )

    async def get(self, broadcast: BroadcastInfo | str) -> BroadcastInfo:
        """As it stands."""
        return await self._counter().get(_id(broadcast))

    async def find(self, *, bot_id: int | None = None) -> AsyncIterator[BroadcastInfo]:
        """All of them, the newest first, read page by page."""
        before: str | None = None
        while page := await self._counter().find(bot_id=bot_id, before=before, limit=PAGE):
            for one in page:
                yield one
            before = page[-1].id

    async def start(self, broadcast: BroadcastInfo | str, *, send_at: When | None = None) -> BroadcastInfo:
        """Begin, now or then. Raises Conflict if it has begun."""
        return await self._counter().step(_id(broadcast), PhaseStep.START, at_ms=instant_ms(send_at, "send_at"))

    async def pause(self, broadcast: BroadcastInfo | str) -> BroadcastInfo:
        """Halt. What waits is taken back; what is in flight ends."""
        return await self._counter().step(_id(broadcast), PhaseStep.PAUSE, at_ms=None)

    async def resume(self, broadcast: BroadcastInfo | str) -> BroadcastInfo:
        """Go on, also after it stopped itself."""
        return await self._counter().step(_id(broadcast), PhaseStep.RESUME, at_ms=None)

    async def cancel(self, broadcast: BroadcastInfo | str) -> BroadcastInfo:
        """End it: nobody else gets it."""
        return await self._counter().step(_id(broadcast), PhaseStep.CANCEL, at_ms=None)

    async def recall(self, broadcast: BroadcastInfo | str) -> BroadcastInfo:
        """End it, and delete what was sent. Telegram deletes only what is younger than 48 hours."""
        return await self._counter().step(_id(broadcast), PhaseStep.RECALL, at_ms=None)

    async def estimate(self, broadcast: BroadcastInfo | str) -> BroadcastEstimate:
        """How many would get it, how long it takes, what it may cost. Nothing is sent."""
        return await self._counter().estimate(_id(broadcast))

    async def preview(self, broadcast: BroadcastInfo | str, chat_id: int | str) -> str:
        """Send it to one chat, ahead of other letters. The letter's id."""
        return await self._counter().preview(_id(broadcast), chat_key(str(chat_id)))

    async def ledger(
        self, broadcast: BroadcastInfo | str, *, state: RecipientState | str | None = None
    ) -> AsyncIterator[RecipientInfo]:
        """Its recipients in their order, read page by page: `async for line in peik.broadcasts.ledger(id, state="failed")`."""
        wanted = None if state is None else read_recipient_state(state)
        after: int | None = 0
        while after is not None:
            lines, after = await self._counter().recipients(_id(broadcast), state=wanted, after=after, limit=PAGE)
            for line in lines:
                yield line

    async def delete(self, broadcast: BroadcastInfo | str) -> None:
        """Forget one that was never begun, or that is over, with its ledger."""
        await self._counter().delete(_id(broadcast))


def _id(broadcast: BroadcastInfo | str) -> str:
    name = broadcast.id if isinstance(broadcast, BroadcastInfo) else broadcast
    if not (name.isascii() and name.isdigit()):
        raise BadInput(code="bad_broadcast_id", detail="A broadcast is named by the digits of its id.")
    return name


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON reads them again, so that both ways say the same."""
    try:
        return msgspec.json.decode(msgspec.json.encode(dict(params)), type=dict[str, Any])
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(code="bad_params", detail=f"params cannot be written as JSON: {error}.") from None


def _audience(chat_ids: list[int | str] | None, csv: str | bytes | None, contacts: ContactFilter | None) -> Audience:
    if sum(one is not None for one in (chat_ids, csv, contacts)) != 1:
        raise BadInput(code="bad_audience", detail="Say to whom: one of chat_ids, csv and contacts.")
    if chat_ids is not None:
        return listed(chat_ids)
    if csv is not None:
        return read_csv(csv.encode() if isinstance(csv, str) else csv)
    assert contacts is not None
    return ContactAudience(wanted=contacts)


def _on_uncertain(text: str) -> OnUncertain:
    try:
        return OnUncertain(text)
    except ValueError:
        raise BadInput(code="bad_on_uncertain", detail='on_uncertain is "resend" or "hold".') from None
