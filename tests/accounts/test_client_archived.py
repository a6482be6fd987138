"""A client of each kind in front of the real archive: what was seen is in it, once, and the state after it."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from peik.accounts.client import AccountClient
from peik.archive.sqlite.archive import SqliteArchive
from peik.archive.store import Message, MessageFilter, Session
from peik.clock import SystemClock
from tests.accounts.listening import Notebook, until
from tests.accounts.test_client import PHONE, SimWorld, TlWorld


class Archiving(Notebook):
    def __init__(self, archive: SqliteArchive) -> None:
        super().__init__()
        self._archive = archive

    async def on_messages(self, messages: Sequence[Message]) -> None:
        await self._archive.keep_messages(messages)
        await super().on_messages(messages)

    async def on_deleted(self, chat_id: int | None, message_ids: Sequence[int]) -> None:
        await self._archive.mark_deleted("s", chat_id, message_ids, at_ms=time.time_ns() // 1_000_000)
        await super().on_deleted(chat_id, message_ids)

    async def on_state(self, state: bytes) -> None:
        await self._archive.save_updates_state("s", state)
        await super().on_state(state)


@pytest.mark.parametrize("kind", [TlWorld, SimWorld])
def test_seen_twice_is_kept_once(kind: type, tmp_path: Path) -> None:
    async def main() -> None:
        world = kind(SystemClock())
        archive = SqliteArchive(tmp_path / "a.archive")
        await archive.open()
        await archive.add_session(Session(session_id="s", agent_id="a"))

        async def listen(secret: str | None, state: bytes | None) -> tuple[AccountClient, Archiving]:
            client: AccountClient = world.factory(session_id="s", agent_id="a", secret=secret, file=None, proxy=None)
            if await client.connect() is None:
                sent = await client.send_code(PHONE)
                await client.sign_in(PHONE, world.code(), sent.code_hash)
            listener = Archiving(archive)
            await client.listen(listener, state)
            return client, listener

        client, listener = await listen(None, None)
        await until(lambda: listener.states)
        old = await archive.updates_state("s")
        for number in range(50):
            world.write(f"private {number}")
            world.post(f"post {number}")
        await until(lambda: len(listener.messages) == 100)
        secret = client.secret()
        await client.disconnect()
        client, listener = await listen(secret, old)  # as after a crash
        await until(lambda: len(listener.messages) == 100)
        await client.disconnect()
        found, _ = await archive.messages(MessageFilter(session_id="s"), cursor=None, limit=500)
        assert sorted(one.text for one in found) == sorted(
            f"{kind} {n}" for kind in ("private", "post") for n in range(50)
        )
        await archive.close()

    asyncio.run(main())
