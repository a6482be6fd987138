"""After sealing, no byte of a token is left in any file of a SQLite store."""

import base64
from pathlib import Path
from typing import Any

import apsw

from peik.core.token import Token
from peik.outbox.store import BotRecord
from peik.secrets import service
from peik.secrets.seals import PLAIN, Seals, seals_of
from peik.secrets.service import OWED
from peik.storage.sqlite import erasure
from tests.storage.places import SqlitePlace

OLD, NEW = (base64.b64encode(bytes([number] * 32)).decode() for number in (1, 2))
TOKENS = [f"{number}:AAE-a-token-that-must-not-stay-{number}" for number in range(1001, 1041)]


async def opened(place: SqlitePlace, seals: Seals) -> Any:
    place.seals = seals
    store = place.make(is_owner=True)
    await store.open()
    return store


async def fill(place: SqlitePlace) -> None:
    """Bots on several pages, some of which have moved: their old cells lie in free parts of pages."""
    store = await opened(place, PLAIN)
    for text in TOKENS:
        await store.save_bot(BotRecord(bot_id=Token(text).bot_id, token=Token(text)))
    for text in TOKENS:  # too long for where it was
        await store.save_bot(BotRecord(bot_id=Token(text).bot_id, token=Token(text), me="m" * 900))
    for text in TOKENS[::3]:
        await store.save_bot(BotRecord(bot_id=Token(text).bot_id, token=Token(text), me="m"))
    await store.close()


def traces(place: SqlitePlace, *texts: str) -> set[str]:
    """Which of the texts are in any file beside the database, its log among them."""
    held = b"".join(path.read_bytes() for path in place.path.parent.rglob("*") if path.is_file())
    return {text for text in texts if text.encode() in held}


async def test_no_byte_of_a_token_is_left_after_a_start_with_a_key(place: SqlitePlace) -> None:
    await fill(place)
    assert traces(place, *TOKENS) == {*TOKENS}
    seals = seals_of(NEW)
    store = await opened(place, seals)
    done = await service.settle(store.sealed, seals, may_rewrite=True)
    assert (done.sealed, done.left) == (len(TOKENS), None)
    assert traces(place, *TOKENS) == set()  # while it is open: the log is empty, too
    assert (await service.standing(store.sealed, seals)).is_scrubbed
    assert [bot.token.reveal() for bot in await store.bots()] == TOKENS
    await store.close()
    assert traces(place, *TOKENS) == set()


async def test_a_start_that_died_before_it_wiped_them_is_made_up_for(place: SqlitePlace) -> None:
    await fill(place)
    seals = seals_of(NEW)
    store = await opened(place, seals)
    left = (await service.settle(store.sealed, seals)).left  # may not write the file anew: somebody waits
    assert left is not None
    assert traces(place, *TOKENS)
    await place.crash(store)
    store = await opened(place, seals)
    assert OWED in {one.place for one in await store.sealed.kept()}
    assert (await service.settle(store.sealed, seals, may_rewrite=True)).left is None
    assert traces(place, *TOKENS) == set()
    await store.close()


async def test_what_an_older_key_sealed_is_wiped_as_well(place: SqlitePlace) -> None:
    await fill(place)
    old = seals_of(OLD)
    store = await opened(place, old)
    await service.settle(store.sealed, old, may_rewrite=True)
    await store.close()
    mark = f"sealed:{old.key_ids[0]}:"
    assert traces(place, mark) == {mark}
    both = seals_of(f"{NEW},{OLD}")
    store = await opened(place, both)
    done = await service.settle(store.sealed, both, may_rewrite=True)
    assert (done.renewed, done.left) == (len(TOKENS) + 1, None)
    assert traces(place, mark, *TOKENS) == set()
    await store.close()


async def test_while_somebody_reads_the_log_what_is_left_is_told_and_owed(place: SqlitePlace) -> None:
    await fill(place)
    reader = apsw.Connection(str(place.path))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM bots").fetchall()
    seals = seals_of(NEW)
    place.seals = seals
    store = place.make(is_owner=True)
    store._busy_ms = 50
    await store.open()
    left = (await service.settle(store.sealed, seals, may_rewrite=True)).left
    assert left is not None
    assert "Another process reads" in left
    reader.close()
    assert (await service.settle(store.sealed, seals, may_rewrite=True)).left is None
    assert traces(place, *TOKENS) == set()
    await store.close()


async def test_a_text_is_found_where_two_parts_of_the_file_meet(tmp_path: Path) -> None:
    file = tmp_path / "bytes"
    for before in range(12):
        file.write_bytes(b"." * before + b"secret" + b"." * 9)
        assert erasure._has_traces(file, ["secret"], chunk_bytes=8)
        assert not erasure._has_traces(file, ["secretly"], chunk_bytes=8)
