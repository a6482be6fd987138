"""Keys of the API, and webhooks that wait to be told, as every SQL store keeps them."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, TypeVar

import msgspec

from peik.admin.model import Key, Scope
from peik.errors import Conflict
from peik.outbox.store import Hook, HookContent, HookDeferred, HooksDue, LetterView
from peik.secrets.seals import Seals, place_of_key, place_of_secret
from peik.storage.sql import NamedQuery, Row, SqlSession
from peik.storage.sqlite.rows import STATE_OF_PHASE

T = TypeVar("T")

KEYS_MAX = 1000  # they are all kept in memory, and read whole when one changes

_scopes = msgspec.json.Decoder(tuple[Scope, ...]).decode
_bot_ids = msgspec.json.Decoder(frozenset[int]).decode


class SqlKeys(ABC):
    """The ports `KeyStore` and `HookStore`, for a store to inherit."""

    seals: Seals
    key_sql: ClassVar[dict[str, NamedQuery]]
    hook_sql: ClassVar[dict[str, NamedQuery]]

    @abstractmethod
    async def _in_read(self, work: Callable[[SqlSession], Awaitable[T]], *, is_whole: bool = False) -> T:
        """`is_whole`: all queries of it see one snapshot."""

    @abstractmethod
    async def _in_commit(self, work: Callable[[SqlSession], Awaitable[T]], *, is_record: bool = False) -> T:
        """Run something in the next commit. `is_record`: the other nodes read their records again."""

    @abstractmethod
    async def _due_hooks(self, one: SqlSession, *, at_ms: int, after: str, endpoints: int, each: int) -> HooksDue: ...

    @abstractmethod
    async def _view(self, one: SqlSession, letter_id: int, at_ms: int) -> LetterView | None: ...

    # ---- keys ----

    async def keys(self) -> tuple[int, list[Key]]:
        """Every key in force, and the generation that they are of."""

        async def work(one: SqlSession) -> tuple[int, list[Key]]:
            generation = await one.number(self.key_sql["generation"])
            return generation, [_key(row) for row in await one.rows(self.key_sql["keys"])]

        return await self._in_read(work, is_whole=True)

    async def keys_generation(self) -> int:
        return await self._in_read(lambda one: one.number(self.key_sql["generation"]))

    async def add_key(self, key: Key, *, webhook_secret: str | None) -> Key:
        """It gets its id here. Raises Conflict if there are too many."""
        sealed = self.seals.maybe_seal(webhook_secret, place=place_of_key(key.digest))
        bound = {
            "digest": key.digest,
            "name": key.name,
            "scopes": msgspec.json.encode(key.scopes).decode(),
            "bot_ids": None if key.bot_ids is None else msgspec.json.encode(sorted(key.bot_ids)).decode(),
            "created_at": key.created_at_ms,
            "expires_at": key.expires_at_ms,
            "webhook_url": key.webhook_url,
            "webhook_secret": sealed,
        }

        async def work(one: SqlSession) -> int:
            await self._lock_keys(one)
            if await one.number(self.key_sql["count"]) >= KEYS_MAX:
                detail = f"There are {KEYS_MAX} keys. Revoke those that nobody uses."
                raise Conflict(code="too_many_keys", detail=detail)
            ((key_id,),) = await one.returned(self.key_sql["add"], **bound)
            return int(key_id)

        return msgspec.structs.replace(key, id=await self._in_commit(work, is_record=True))

    async def _lock_keys(self, one: SqlSession) -> None:
        """Generations are given one after the other; on a file, where one writes at a time, they are so anyway."""
        if "lock_keys" in self.key_sql:
            await one.run(self.key_sql["lock_keys"])

    async def revoke_key(self, key_id: int, *, at_ms: int) -> bool:
        """Whether there was such a key."""

        async def work(one: SqlSession) -> bool:
            await self._lock_keys(one)
            return bool(await one.run(self.key_sql["revoke"], key=key_id, at=at_ms))

        return await self._in_commit(work, is_record=True)

    async def note_key_use(self, used: Mapping[int, int]) -> None:
        await self._in_commit(lambda one: one.write_many(self.key_sql["note_use"], list(used.items())))

    async def secret(self, name: str, candidate: str) -> str:
        """The secret of this name; the candidate, if there is none yet."""
        place = place_of_secret(name)
        sealed = self.seals.seal(candidate, place=place)

        async def work(one: SqlSession) -> str:
            await one.run(self.key_sql["keep_secret"], name=name, value=sealed)
            found = await one.text(self.key_sql["secret"], name=name)
            assert found is not None
            return found

        return self.seals.open(await self._in_commit(work), place=place)

    # ---- webhooks ----

    async def hooks_due(self, *, at_ms: int, after: str, endpoints: int, each: int) -> HooksDue:
        """What is due at the endpoints after a given one, the oldest of each first."""
        return await self._in_read(
            lambda one: self._due_hooks(one, at_ms=at_ms, after=after, endpoints=endpoints, each=each), is_whole=True
        )

    def _hook(self, row: Row) -> Hook:
        hook_id, endpoint, url, secret, letter_id, phase, at, tries, digest = row
        return Hook(
            id=hook_id,
            endpoint=endpoint,
            url=url,
            secret=None if secret is None else self.seals.open(secret, place=place_of_key(digest)),
            letter_id=letter_id,
            state=STATE_OF_PHASE[phase],
            at_ms=at,
            tries=tries,
        )

    async def hook_content(self, hook: Hook) -> HookContent:
        async def work(one: SqlSession) -> HookContent:
            body = await one.text(self.hook_sql["body"], hook=hook.id)
            if body is not None:
                return HookContent(body=body)
            return HookContent(letter=await self._view(one, hook.letter_id, hook.at_ms))

        return await self._in_read(work, is_whole=True)

    async def settle_hooks(self, over: Sequence[int], deferred: Sequence[HookDeferred]) -> None:
        rows = [(one.hook_id, one.due_at_ms, one.tries, one.body) for one in deferred]

        async def work(one: SqlSession) -> None:
            await one.write_many(self.hook_sql["drop"], [(hook_id,) for hook_id in over])
            await one.write_many(self.hook_sql["defer"], rows)

        await self._in_commit(work)


def _key(row: Row) -> Key:
    key_id, digest, name, scopes, bot_ids, created_at, expires_at, last_used_at, webhook_url = row
    return Key(
        id=key_id,
        digest=digest,
        name=name,
        scopes=_scopes(scopes),
        bot_ids=None if bot_ids is None else _bot_ids(bot_ids),
        created_at_ms=created_at,
        expires_at_ms=expires_at,
        last_used_at_ms=last_used_at,
        webhook_url=webhook_url,
    )
