"""Broadcasts asked of the Peik in this process, and of one far away. Both answers are read from the words of REST."""

import asyncio
import csv
import io
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from peik.broadcasts.answers import broadcast_view, estimate_view, recipient_view
from peik.broadcasts.audience import ContactAudience, ListAudience
from peik.broadcasts.model import Broadcast, PhaseStep, RecipientState
from peik.broadcasts.service import BroadcastRequest
from peik.client.broadcasts import BroadcastEstimate, BroadcastInfo, RecipientInfo
from peik.client.remote import BATCH_TIMEOUT_S, encode, read, with_query
from peik.core.documents import ContactFilter
from peik.core.letter import Chat
from peik.core.units import rfc3339

if TYPE_CHECKING:
    from peik.app.runtime import Runtime
    from peik.broadcasts.service import BroadcastService
    from peik.client.remote import RemoteTransport


class _Found(msgspec.Struct):
    broadcasts: list[BroadcastInfo]


class _Ledger(msgspec.Struct):
    recipients: list[RecipientInfo]
    next_cursor: str | None = None


class _Preview(msgspec.Struct):
    letter_id: str


_decode = msgspec.json.Decoder(BroadcastInfo).decode
_decode_found = msgspec.json.Decoder(_Found).decode
_decode_ledger = msgspec.json.Decoder(_Ledger).decode
_decode_estimate = msgspec.json.Decoder(BroadcastEstimate).decode
_decode_preview = msgspec.json.Decoder(_Preview).decode


class LocalBroadcasts:
    def __init__(self, office: "Callable[[], Runtime]") -> None:
        """`office` raises Unavailable once it is closed."""
        self._office = office

    async def create(self, request: BroadcastRequest) -> BroadcastInfo:
        return self._shown(await self._desk.create(request))

    async def get(self, broadcast_id: str) -> BroadcastInfo:
        return self._shown(await self._desk.get(broadcast_id))

    async def find(self, *, bot_id: int | None, before: str | None, limit: int) -> list[BroadcastInfo]:
        bot_ids = None if bot_id is None else frozenset({bot_id})
        return [self._shown(one) for one in await self._desk.find(bot_ids=bot_ids, before=before, limit=limit)]

    async def step(self, broadcast_id: str, step: PhaseStep, *, at_ms: int | None) -> BroadcastInfo:
        desk = self._desk
        match step:
            case PhaseStep.START:
                return self._shown(await desk.start(broadcast_id, at_ms=at_ms))
            case PhaseStep.PAUSE:
                return self._shown(await desk.pause(broadcast_id))
            case PhaseStep.RESUME:
                return self._shown(await desk.resume(broadcast_id))
            case PhaseStep.CANCEL:
                return self._shown(await desk.cancel(broadcast_id))
            case _:
                assert step is PhaseStep.RECALL, step
                return self._shown(await desk.recall(broadcast_id))

    async def estimate(self, broadcast_id: str) -> BroadcastEstimate:
        return _decode_estimate(encode(estimate_view(await self._desk.estimate(broadcast_id))))

    async def preview(self, broadcast_id: str, chat: Chat) -> str:
        return str(await self._desk.preview(broadcast_id, chat))

    async def recipients(
        self, broadcast_id: str, *, state: RecipientState | None, after: int | None, limit: int
    ) -> tuple[list[RecipientInfo], int | None]:
        lines, place = await self._desk.recipients(broadcast_id, state=state, after=after, limit=limit)
        shown = {"recipients": [recipient_view(number, line) for number, line in lines]}
        return _decode_ledger(encode(shown)).recipients, place

    async def delete(self, broadcast_id: str) -> None:
        await self._desk.delete(broadcast_id)

    @property
    def _desk(self) -> "BroadcastService":
        return self._office().broadcasts

    def _shown(self, found: Broadcast) -> BroadcastInfo:
        now_ms = self._office().clock.wall_ms()
        return _decode(encode(broadcast_view(found, per_s=self._desk.per_s(found.bot_id), now_ms=now_ms)))


class RemoteBroadcasts:
    def __init__(self, counter: "RemoteTransport") -> None:
        self._counter = counter

    async def create(self, request: BroadcastRequest) -> BroadcastInfo:
        body = await asyncio.to_thread(lambda: encode(_broadcast_body(request)))  # a million rows take seconds
        return read(_decode, await self._counter.exchange("POST", _PATH, body=body, timeout_s=BATCH_TIMEOUT_S))

    async def get(self, broadcast_id: str) -> BroadcastInfo:
        return read(_decode, await self._counter.exchange("GET", f"{_PATH}/{broadcast_id}"))

    async def find(self, *, bot_id: int | None, before: str | None, limit: int) -> list[BroadcastInfo]:
        told = {"bot_id": bot_id, "cursor": before, "limit": limit}
        query = {name: str(value) for name, value in told.items() if value is not None}
        return read(_decode_found, await self._counter.exchange("GET", with_query(_PATH, query))).broadcasts

    async def step(self, broadcast_id: str, step: PhaseStep, *, at_ms: int | None) -> BroadcastInfo:
        body = b"" if at_ms is None else encode({"send_at": rfc3339(at_ms)})
        return read(_decode, await self._counter.exchange("POST", f"{_PATH}/{broadcast_id}/{step}", body=body))

    async def estimate(self, broadcast_id: str) -> BroadcastEstimate:
        return read(_decode_estimate, await self._counter.exchange("POST", f"{_PATH}/{broadcast_id}/estimate"))

    async def preview(self, broadcast_id: str, chat: Chat) -> str:
        body = encode({"chat_id": chat})
        reply = await self._counter.exchange("POST", f"{_PATH}/{broadcast_id}/preview", body=body)
        return read(_decode_preview, reply).letter_id

    async def recipients(
        self, broadcast_id: str, *, state: RecipientState | None, after: int | None, limit: int
    ) -> tuple[list[RecipientInfo], int | None]:
        told = {"state": state, "cursor": after or None, "limit": limit}
        query = {name: str(value) for name, value in told.items() if value is not None}
        path = with_query(f"{_PATH}/{broadcast_id}/recipients", query)
        page = read(_decode_ledger, await self._counter.exchange("GET", path))
        return page.recipients, None if page.next_cursor is None else int(page.next_cursor)

    async def delete(self, broadcast_id: str) -> None:
        await self._counter.exchange("DELETE", f"{_PATH}/{broadcast_id}")


_PATH = "/v1/broadcasts"


def _broadcast_body(request: BroadcastRequest) -> dict[str, object]:
    """`POST /v1/broadcasts` of a request: only what was given."""
    given: dict[str, object] = {
        "method": request.method,
        "params": dict(request.params),
        "audience": _audience(request.audience),
        "bot_id": request.bot_id,
        "name": request.name,
        "canary": request.canary,
        "quiet": request.quiet,
        "paid": request.paid,
        "on_uncertain": request.on_uncertain,
        "start": request.start or None,
        "send_at": rfc3339(request.start_at_ms),
        "idempotency_key": request.key,
    }
    return {name: value for name, value in given.items() if value is not None}


def _audience(audience: ListAudience | ContactAudience) -> dict[str, object]:
    if isinstance(audience, ContactAudience):
        return {"contacts": _contacts(audience.wanted)}
    if not audience.columns:
        return {"chat_ids": [chat for chat, _ in audience.recipients]}
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["chat_id", *audience.columns])
    for chat, values in audience.recipients:
        writer.writerow([str(chat), *((values or {}).get(name, "") for name in audience.columns)])
    return {"csv": text.getvalue()}


def _contacts(wanted: ContactFilter) -> dict[str, object]:
    told: dict[str, object] = {
        "types": None if wanted.types is None else sorted(wanted.types),
        "languages": None if wanted.languages is None else sorted(wanted.languages),
        "seen_since": rfc3339(wanted.seen_since_ms),
        "seen_before": rfc3339(wanted.seen_before_ms),
        "gone": wanted.is_gone,
        "text": wanted.text,
        "campaign": wanted.campaign,
    }
    return {name: value for name, value in told.items() if value is not None}
