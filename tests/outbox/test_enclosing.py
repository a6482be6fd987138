"""Files on their way out of a node that did not accept them: brought when they are needed, and only then."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peik.clock import Clock
from peik.core.letter import Enclosed, Letter, State
from peik.core.token import Token
from peik.errors import StoreUnavailable
from peik.outbox.attachments import Attachments
from peik.outbox.store import BotRecord
from peik.storage.executor import InlineExecutor
from peik.storage.shared_spool import SharedSpool
from peik.storage.sqlite.store import SqliteStore
from peik.testing.virtual import VirtualClock, run_virtual
from tests.outbox.story import Stage
from tests.outbox.story import play as told
from tests.storage.file_stores import MemoryFiles, as_file, chunks

BOT = 7
SENT = b'{"message_id":11,"document":{"file_id":"AgAD"}}'


class Two:
    """One node that accepts and one that sends."""

    def __init__(self, folder: Path, store: SqliteStore, clock: Clock) -> None:
        self.files = MemoryFiles()
        self.accepting = SharedSpool(folder / "accepting", self.files, bytes_max=100)
        self.sending = SharedSpool(folder / "sending", self.files, bytes_max=100)
        self.enclosing = Attachments(BOT, store, self.sending, clock)
        self._letters = 0

    async def accept(self, *contents: bytes, method: str = "sendDocument") -> Letter:
        kept = [await self.accepting.keep(chunks(content), size_bytes_max=100) for content in contents]
        self._letters += 1
        return Letter(
            id=self._letters,
            bot_id=BOT,
            number=self._letters,
            method=method,
            params="{}",
            chat=5,
            enclosed=tuple(map(as_file, kept)),
        )

    def is_here(self, file: Enclosed) -> bool:
        return self.sending.path_of(file.blob).exists()


def play(story: Callable[[Two], Coroutine[Any, Any, None]], folder: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with _store(folder, clock) as store:
            two = Two(folder, store, clock)
            await story(two)
            await two.sending.close()
            await two.accepting.close()

    run_virtual(main)


@asynccontextmanager
async def _store(folder: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(folder / "peik.db", clock=clock, executor=lambda name: InlineExecutor())
    await store.open()
    try:
        await store.save_bot(BotRecord(bot_id=BOT, token=Token(f"{BOT}:secret")))
        yield store
    finally:
        await store.close()


def test_all_files_of_a_letter_are_here_when_it_is_prepared(tmp_path: Path) -> None:
    async def story(two: Two) -> None:
        letter = await two.accept(b"one", b"two", method="sendMediaGroup")
        await two.enclosing.prepare(letter)
        _, enclosures = two.enclosing.fill(letter)
        assert [enclosure.path.read_bytes() for enclosure in enclosures] == [b"one", b"two"]
        assert two.enclosing.spoiled(letter) is None

    play(story, tmp_path)


def test_a_file_that_telegram_has_is_not_brought(tmp_path: Path) -> None:
    async def story(two: Two) -> None:
        first = await two.accept(b"report")
        await two.enclosing.prepare(first)
        await two.enclosing.delivered(first, SENT)
        two.enclosing.landed(first)
        again = await two.accept(b"report")
        await two.enclosing.prepare(again)
        params, enclosures = two.enclosing.fill(again)
        assert (msgspec.json.decode(params), enclosures) == ({"document": "AgAD"}, ())
        assert not two.is_here(again.enclosed[0])

    play(story, tmp_path)


def test_a_file_whose_id_telegram_refused_is_brought_for_the_next_try(tmp_path: Path) -> None:
    async def story(two: Two) -> None:
        first = await two.accept(b"report")
        await two.enclosing.delivered(first, SENT)
        again = await two.accept(b"report")
        await two.enclosing.prepare(again)
        two.enclosing.forget(again)
        two.enclosing.landed(again)
        await two.enclosing.prepare(again)
        assert not two.enclosing.is_reused(again)
        assert two.is_here(again.enclosed[0])

    play(story, tmp_path)


def test_a_file_that_is_gone_ends_the_try_with_plain_words_and_not_the_preparing(tmp_path: Path) -> None:
    async def story(two: Two) -> None:
        letter = await two.accept(b"one", b"two", method="sendMediaGroup")
        await two.files.drop_files([letter.enclosed[1].blob])
        await two.enclosing.prepare(letter)
        assert two.enclosing.spoiled(letter) == "the file 'report.pdf' is not in the store any more"
        two.enclosing.landed(letter)
        assert two.enclosing.spoiled(letter) is None

    play(story, tmp_path)


def test_a_store_that_is_away_is_no_lost_file(tmp_path: Path) -> None:
    async def story(two: Two) -> None:
        letter = await two.accept(b"report")
        two.files.is_away = True
        with pytest.raises(StoreUnavailable):
            await two.enclosing.prepare(letter)
        assert two.enclosing.spoiled(letter) is None
        two.files.is_away = False
        await two.enclosing.prepare(letter)
        assert two.is_here(letter.enclosed[0])

    play(story, tmp_path)


def test_a_letter_whose_file_is_gone_ends_as_a_dead_letter_that_says_so() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.dark(True)
        kept = await stage.peik.spool.keep(chunks(b"report"), size_bytes_max=100)
        letter_id = await stage.accept("sendDocument", params={"chat_id": 5}, enclosed=(as_file(kept),))
        stage.peik.spool.remove([kept.blob])
        stage.telegram.dark(False)
        view = await stage.ended(letter_id)
        assert view.state is State.FAILED
        assert "the file 'report.pdf' is not in the folder of files any more" in (view.failed_reason or "")
        assert stage.carrier.uploads == 0

    told(story)
