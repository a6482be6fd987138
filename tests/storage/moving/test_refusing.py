"""What a move refuses: a store in use, a target that holds something else, an origin that changed. And what it says of it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from peik.clock import SystemClock
from peik.core.token import Token
from peik.errors import BadInput, Conflict, NotFound, Problem, StartError
from peik.outbox.store import BotRecord
from peik.storage.moving.ends import MoveProgress
from peik.storage.moving.move import Ends, MoveWatch, count, end_of, move, take_back
from peik.storage.moving.records import KINDS, MovedLetter
from tests.storage.acts import accept, draft
from tests.storage.all_places import PLACES
from tests.storage.moving.filling import fill, fitted, folder, moved, records, url_of
from tests.storage.places import Place, SqlitePlace


@pytest.fixture(params=PLACES, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> type[Place]:
    return request.param


@pytest.fixture
def origin(tmp_path: Path) -> Place:
    return SqlitePlace(folder(tmp_path, "from"))


async def fill_little(place: Place) -> None:
    async with place.open() as store:
        await accept(store, draft(text="one"))


async def refused(origin: Place, target: Place, **more: object) -> str:
    with pytest.raises(Problem) as caught:
        await moved(origin, target, **more)
    return caught.value.code


async def test_a_store_that_is_served_is_neither_read_nor_written(kind: type[Place], tmp_path: Path) -> None:
    one, other = kind(folder(tmp_path, "from")), kind(folder(tmp_path, "to"))
    await fill_little(one)
    async with one.open():
        assert await refused(one, other) == "origin_in_use"
        async with other.open():
            assert await refused(one, other, while_in_use=True) == "target_in_use"
        told: list[str] = []
        third = kind(folder(tmp_path, "third"))
        ends = Ends(origin=end_of(url_of(one)), target=end_of(url_of(third)))
        await move(ends, clock=SystemClock(), while_in_use=True, watch=MoveWatch(warn=told.append))
        assert "is in use" in told[0]
    assert fitted(await records(third)) == fitted(await records(one), ends.target.fit)
    assert await refused(one, third) == "target_not_empty", "a rehearsal is not taken for the move"


async def test_a_target_that_holds_something_else_is_refused(kind: type[Place], origin: Place, tmp_path: Path) -> None:
    target = kind(folder(tmp_path, "to"))
    await fill_little(origin)
    await fill_little(target)
    before = fitted(await records(target))
    assert await refused(origin, target) == "target_not_empty"
    assert fitted(await records(target)) == before


async def test_a_finished_move_says_so_and_changes_nothing(kind: type[Place], origin: Place, tmp_path: Path) -> None:
    target = kind(folder(tmp_path, "to"))
    async with origin.open() as store:
        await fill(store)
    first = await moved(origin, target)
    again = await moved(origin, target)
    assert (first.was_done, again.was_done) == (False, True)
    assert again.digests == first.digests
    async with target.open() as store:  # it is served now, and asked once more
        await accept(store, draft(text="later"))
        assert (await moved(origin, target)).was_done
    assert await refused(SqlitePlace(await other_origin(tmp_path)), target) == "target_not_empty"


async def test_a_finished_move_is_not_called_so_if_its_origin_was_served_since(origin: Place, tmp_path: Path) -> None:
    target = SqlitePlace(folder(tmp_path, "to"))
    await fill_little(origin)
    await moved(origin, target)
    await take_back(end_of(url_of(origin)))
    await fill_little(origin)
    assert await refused(origin, target) == "origin_changed"


async def test_a_store_that_was_moved_away_is_not_served(kind: type[Place], tmp_path: Path) -> None:
    one, other = kind(folder(tmp_path, "from")), SqlitePlace(folder(tmp_path, "to"))
    await fill_little(one)
    await moved(one, other)
    shown = end_of(url_of(other)).shown
    with pytest.raises(StartError, match="--take-back") as told:
        async with one.open():
            pass
    assert shown in str(told.value)
    assert (await moved(one, other)).was_done, "it may be asked again"
    assert await refused(one, SqlitePlace(folder(tmp_path, "third"))) == "origin_moved"
    assert await take_back(end_of(url_of(one))) == shown
    assert await take_back(end_of(url_of(one))) is None
    async with one.open():
        pass
    async with other.open():
        pass


async def test_a_store_that_was_only_tried_out_goes_on_being_served(kind: type[Place], tmp_path: Path) -> None:
    one, other = kind(folder(tmp_path, "from")), SqlitePlace(folder(tmp_path, "to"))
    await fill_little(one)
    async with one.open():
        await moved(one, other, while_in_use=True)
    async with one.open():
        pass


async def test_a_crash_between_the_two_notes_leaves_neither_store_to_be_served(origin: Place, tmp_path: Path) -> None:
    target = SqlitePlace(folder(tmp_path, "to"))
    await fill_little(origin)
    await moved(origin, target)
    connection = apsw.Connection(str(target.path))
    ((text,),) = connection.execute("SELECT progress FROM moving").fetchall()
    half = {**msgspec.json.decode(str(text)), "ended_at_ms": None}
    connection.execute("UPDATE moving SET progress = ?", (msgspec.json.encode(half).decode(),))
    connection.close()
    for place in (origin, target):
        with pytest.raises(StartError):
            async with place.open():
                pass
    assert not (await moved(origin, target)).was_done
    async with target.open():
        pass


async def other_origin(tmp_path: Path) -> Path:
    made = folder(tmp_path, "another")
    await fill_little(SqlitePlace(made))
    return made


async def test_a_half_moved_store_is_known_by_its_marker(kind: type[Place], origin: Place, tmp_path: Path) -> None:
    target = kind(folder(tmp_path, "to"))
    await fill_little(origin)
    end = end_of(url_of(target))
    await end.open(is_target=True)
    await end.begin(MoveProgress(origin="sqlite:///elsewhere.db", fingerprint="", run="r", began_at_ms=1))
    await end.close()
    with pytest.raises(StartError, match="holds only a part"):
        async with target.open():
            pass
    await end.open(is_target=True)
    await end.write("letters", [], MoveProgress(origin="x", fingerprint="", run="r", began_at_ms=1, ended_at_ms=2))
    await end.close()
    async with target.open():
        pass


async def test_a_half_moved_store_is_no_origin(origin: Place, tmp_path: Path) -> None:
    await fill_little(origin)
    end = end_of(url_of(origin))
    await end.open(is_target=True)
    await end.begin(MoveProgress(origin="elsewhere", fingerprint="", run="r", began_at_ms=1))
    await end.close()
    assert await refused(origin, SqlitePlace(folder(tmp_path, "to"))) == "origin_half_moved"


async def test_who_was_replaced_writes_nothing_any_more(kind: type[Place], tmp_path: Path) -> None:
    end = end_of(url_of(kind(folder(tmp_path, "to"))))
    await end.open(is_target=True)
    first = MoveProgress(origin="x", fingerprint="", run="first", began_at_ms=1)
    await end.begin(first)
    await end.begin(msgspec.structs.replace(first, run="second"))
    with pytest.raises(Conflict, match="taken this move over"):
        await end.write("letters", [a_letter()], first)
    assert (await end.counts())["letters"] == 0
    await end.close()


def a_letter() -> MovedLetter:
    row = (1, 7, 1, 0, 0, 5, 0, 1, "sendMessage", "{}", 1, 5, 2000)
    rest = dict.fromkeys(MovedLetter.__struct_fields__[len(row) :]) | {"attempts_made": 0, "uncertain_tries": 0}
    return MovedLetter(*row, **rest)  # type: ignore[arg-type]


async def test_an_origin_that_was_served_in_between_is_not_moved_on(
    kind: type[Place], origin: Place, tmp_path: Path
) -> None:
    target = kind(folder(tmp_path, "to"))
    await fill_little(origin)
    await interrupt(origin, target)
    await fill_little(origin)
    assert await refused(origin, target) == "origin_changed"


async def interrupt(origin: Place, target: Place) -> None:
    """A move that ends after its first step."""

    def stop(records: int) -> None:
        raise KeyboardInterrupt

    ends = Ends(origin=end_of(url_of(origin)), target=end_of(url_of(target)))
    with pytest.raises(KeyboardInterrupt):
        await move(ends, clock=SystemClock(), watch=MoveWatch(step=stop))


async def test_what_somebody_accepts_meanwhile_is_noticed(kind: type[Place], tmp_path: Path) -> None:
    origin = kind(folder(tmp_path, "from"))
    await fill_little(origin)

    async def accept_one() -> None:
        async with origin.open(is_owner=False) as store:
            await accept(store, draft(text="meanwhile"))

    assert await disturbed(origin, SqlitePlace(folder(tmp_path, "to")), "Moving", accept_one) == "origin_changed"


async def test_a_target_that_lost_something_is_not_called_the_same(
    kind: type[Place], origin: Place, tmp_path: Path
) -> None:
    target = kind(folder(tmp_path, "to"))
    await fill_little(origin)

    async def lose_one() -> None:
        match target:
            case SqlitePlace():
                apsw.Connection(str(target.path)).execute("DELETE FROM letters")
            case _ if hasattr(target, "run"):
                await target.run("DELETE FROM letters")
            case _:
                with target.server.client() as client:
                    (key,) = client.scan_iter(match=f"{target.prefix}*:letters")
                    client.hdel(key, *client.hkeys(key))

    assert await disturbed(origin, target, "Comparing", lose_one) == "not_the_same"


async def disturbed(origin: Place, target: Place, stage: str, deed: Callable[[], Coroutine[Any, Any, None]]) -> str:
    """A move during which somebody else does something, on a thread and a loop of its own."""

    def begin(words: str, total: int) -> None:
        if words == stage:
            thread = threading.Thread(target=lambda: asyncio.run(deed()))
            thread.start()
            thread.join()

    ends = Ends(origin=end_of(url_of(origin)), target=end_of(url_of(target)))
    with pytest.raises(Conflict) as caught:
        await move(ends, clock=SystemClock(), watch=MoveWatch(begin=begin))
    return caught.value.code


async def test_counting_changes_nothing(origin: Place, tmp_path: Path) -> None:
    await fill_little(origin)
    before = names(tmp_path)
    counts = await count(end_of(url_of(origin)))
    assert (counts["letters"], counts["bots"], counts["files"]) == (1, 2, 0)
    assert set(counts) == {*KINDS, "files"}
    assert names(tmp_path) - before <= {"peik.db-wal", "peik.db-shm"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


async def test_what_a_store_cannot_keep_is_kept_as_that_store_keeps_it(kind: type[Place], tmp_path: Path) -> None:
    """PostgreSQL's texts hold no NUL, and Telegram's words may."""
    one, other = SqlitePlace(folder(tmp_path, "from")), kind(folder(tmp_path, "to"))
    async with one.open() as store:
        await store.shut_chat(7, 5, "Forbidden\0", at_ms=1)
    await moved(one, other)
    (chat,) = (await records(other))["chats"]
    assert chat.shut_reason == ("Forbidden\ufffd" if kind.__name__ == "PostgresPlace" else "Forbidden\0")


async def test_an_origin_that_is_not_there_is_told(kind: type[Place], tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="Look at --from"):
        await moved(kind(folder(tmp_path, "from")), SqlitePlace(folder(tmp_path, "to")))


async def test_a_store_is_not_moved_to_itself(origin: Place) -> None:
    await fill_little(origin)
    assert await refused(origin, origin) == "same_store"


@pytest.mark.parametrize("url", ["peik.db", "sqlite://peik.db", "mongodb://host", "sqlite://"])
def test_an_address_that_names_no_store_is_told(url: str) -> None:
    with pytest.raises(BadInput, match="A store is"):
        end_of(url)


def test_no_record_shows_a_secret() -> None:
    bot = BotRecord(bot_id=1, token=Token("1:secret"))
    assert "secret" not in repr(KINDS["bots"](1, bot.token.reveal(), None, "off", None, None, None, None, 0))
