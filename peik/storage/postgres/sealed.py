"""What is secret in the PostgreSQL store, as it is stored: read, replaced, and its tables written anew."""

from collections.abc import Awaitable, Callable, Sequence

from peik.secrets.seals import KeptSecret, SealChange, is_secret
from peik.storage.postgres import session
from peik.storage.postgres.commit import PostgresBatch
from peik.storage.postgres.errors import is_refusal, translate
from peik.storage.postgres.inbox import PostgresWrite
from peik.storage.postgres.queries import load
from peik.storage.postgres.session import PostgresSession

_SQL = load("sealed.sql")


class PostgresSealed:
    """See `peik.secrets.seals.SealStore`."""

    def __init__(self, *, write: PostgresWrite, connect: Callable[[], Awaitable[PostgresSession]]) -> None:
        self._write = write
        self._connect = connect

    async def kept(self) -> list[KeptSecret]:
        async def read(batch: PostgresBatch) -> list[KeptSecret]:
            rows = [tuple(row) for row in await batch.session.rows(_SQL["kept"])]
            return [KeptSecret(place=place, text=text) for place, text in rows if is_secret(text)]

        return await self._write(read)  # by the writer, so that nothing that was stored before is missing

    async def change(self, changes: Sequence[SealChange]) -> int:
        async def work(batch: PostgresBatch) -> int:
            return sum([await _change(batch.session, one) for one in changes])

        return await self._write(work)

    async def is_ours(self) -> bool:
        return True

    async def scrub(self, traces: Sequence[str], *, may_rewrite: bool) -> str | None:
        """The tables are small, and are locked for as long as it takes to write them anew. The server's own log, its replicas
        and its backups are not ours to change."""
        if not may_rewrite:
            return (
                "Old rows are left in the tables until the server reuses their room; the next start writes them anew."
            )
        one = await self._connect()
        try:
            for name in ("rewrite_bots", "rewrite_keys", "rewrite_consumers", "rewrite_secrets"):
                await one.connection.execute(_SQL[name].text)
        except Exception as error:
            if not is_refusal(error):
                raise
            return f"The tables could not be written anew, and old rows may be left in them: {translate(error)}"
        finally:
            await session.end(one)
        return None


async def _change(one: PostgresSession, change: SealChange) -> int:
    kind, _, name = change.place.partition(":")
    if kind == "secret" and change.before is None:
        return await one.run(_SQL["make_secret"], name=name, after=change.after)
    if kind == "secret" and change.after is None:
        return await one.run(_SQL["drop_secret"], name=name, before=change.before)
    bound: dict[str, object]
    match kind:
        case "bot":
            bound = {"bot": int(name)}
        case "key":
            bound = {"digest": bytes.fromhex(name)}
        case "consumer":
            bot_id, _, whose = name.partition("@")
            bound = {"bot": int(bot_id), "name": whose}
        case _:
            bound = {"name": name}
    return await one.run(_SQL[f"change_{kind}"], before=change.before, after=change.after, **bound)
