"""Which notification a key stands for. It is filed under the bot, so that no key is ever used for two, and under the user who was
named, so that a repeat is known whatever has changed since: he may have no bot by now, or another one."""

from collections.abc import Iterable, Sequence

import msgspec

from peik.core.documents import DocumentStore, Filing
from peik.notifications.model import KEYS, NOTICES, Notice, NotifyRequest, digest_of, filed, read


class KeptRepeat(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    digest: str


class Repeats:
    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def of(self, requests: Sequence[NotifyRequest]) -> dict[int, Notice]:
        """By their places, those that are the same, word for word, as one that was accepted before under their key. One that
        went by a bot that the caller may not use is none of his."""
        keys = {at: key for at, one in enumerate(requests) if (key := _named_key(one)) is not None}
        if not keys:
            return {}
        kept = await self._kept(keys.values())
        same = {at: kept[key].id for at, key in keys.items() if key in kept and _is_same(requests[at], kept[key])}
        notices = await self._notices(same.values())
        found = {at: notices[own] for at, own in same.items() if own in notices}
        return {at: notice for at, notice in found.items() if _is_his(requests[at], notice)}

    async def under(self, keys: Sequence[str]) -> dict[str, Notice]:
        """By key of a bot: what was accepted under it before."""
        if not keys:
            return {}
        kept = await self._kept(keys)
        notices = await self._notices([one.id for one in kept.values()])
        return {key: notices[one.id] for key, one in kept.items() if one.id in notices}

    async def _kept(self, keys: Iterable[str]) -> dict[str, KeptRepeat]:
        return {
            key: read(document, KeptRepeat)
            for key, document in (await self._documents.those(KEYS, sorted(set(keys)))).items()
        }

    async def _notices(self, ids: Iterable[str]) -> dict[str, Notice]:
        found = await self._documents.those(NOTICES, sorted(set(ids)))
        return {own: read(document, Notice) for own, document in found.items()}


def digest_asked(request: NotifyRequest) -> str:
    """Of what was asked for, no matter who asked."""
    asked = msgspec.to_builtins(msgspec.structs.replace(request, bot_ids=None, hook=None))
    if request.terms is None:
        del asked["terms"]  # requests had none once, and their keys are still good
    return digest_of(msgspec.json.encode(asked).decode())


def bot_key(notice: Notice) -> str | None:
    key = notice.request.idempotency_key
    return None if key is None else digest_of(f"{notice.request.bot_id}\0{key}")


def taken(notice: Notice) -> list[Filing]:
    """Its key is its own from now on. Under the bot it must be free; under a name the newest one counts."""
    kept = KeptRepeat(id=notice.id, digest=notice.digest)
    return [filed(KEYS, key, kept, version) for key, version in _keys(notice)]


def freed(notice: Notice) -> list[Filing]:
    return [filed(KEYS, key, None) for key, _ in _keys(notice)]


def _keys(notice: Notice) -> list[tuple[str, int | None]]:
    of_bot, named = bot_key(notice), _named_key(notice.request)
    return [] if of_bot is None or named is None else [(of_bot, 0), (named, None)]


def _named_key(request: NotifyRequest) -> str | None:
    if request.idempotency_key is None:
        return None
    name = f"u/{request.user_id}" if request.user_id is not None else f"c/{request.chat_id}"
    return digest_of(f"{name}\0{request.idempotency_key}")


def _is_same(request: NotifyRequest, kept: KeptRepeat) -> bool:
    return digest_asked(request) == kept.digest


def _is_his(request: NotifyRequest, notice: Notice) -> bool:
    return request.bot_ids is None or notice.request.bot_id in request.bot_ids
