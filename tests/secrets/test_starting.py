"""What a start makes of the secrets in its store: sealed, renewed, or refused before anything polls or sends."""

import asyncio
import base64
from pathlib import Path

import pytest

from peik.core import events
from peik.core.documents import Filing
from peik.errors import Conflict, StartError
from peik.secrets import service
from peik.secrets.seals import is_sealed, key_id_of, seals_of
from peik.secrets.service import COLLECTION, Custodian
from peik.storage.executor import InlineExecutor
from peik.storage.sqlite.store import SqliteStore
from tests.outbox.story import BOT, TOKEN, Stage, play_closed

ONE, TWO, THREE = (base64.b64encode(bytes([number] * 32)).decode() for number in (1, 2, 3))


async def texts(stage: Stage) -> dict[str, str]:
    return {one.place: one.text for one in await stage.peik.store.sealed.kept()}


def with_key(stage: Stage, **settings: str) -> Stage:
    """From the next start on."""
    for name in ("secret_key", "secret_key_old"):
        stage._settings.pop(name, None)
    stage._settings.update(settings)
    return stage


def notices(stage: Stage) -> str:
    return " ".join(one.words for one in stage.events_of(events.SecretsNotice))


def files_of(stage: Stage) -> bytes:
    return b"".join(path.read_bytes() for path in Path(stage._folder).rglob("*") if path.is_file())


def test_without_a_key_nothing_changes() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            assert (await texts(stage)) == {f"bot:{BOT}": TOKEN}
        assert notices(stage) == ""

    play_closed(story)


def test_the_next_start_with_a_key_seals_what_is_plain_and_letters_go_on() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            await stage.ended(await stage.text(5, "before"))
        assert TOKEN.encode() in files_of(stage)
        async with with_key(stage, secret_key=ONE).open():
            assert "1 sealed" in notices(stage)
            assert all(map(is_sealed, (await texts(stage)).values()))
            await stage.ended(await stage.text(5, "after"))
            assert TOKEN.encode() not in files_of(stage)
        async with stage.open():  # the token comes from the store as well as from the settings
            assert stage.peik.outbox.service.bot(BOT).token.reveal() == TOKEN
        assert stage.texts(5) == ["before", "after"]
        assert TOKEN.encode() not in files_of(stage)

    play_closed(story)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "PEIK_SECRET_KEY is not set"),
        ({"secret_key": TWO}, "sealed with another key than PEIK_SECRET_KEY"),
        ({"secret_key_old": ONE}, "PEIK_SECRET_KEY_OLD is set without PEIK_SECRET_KEY"),
        ({"secret_key": "too short"}, "too short"),
    ],
)
def test_a_start_without_the_key_is_refused_before_anything_is_sent_or_changed(
    settings: dict[str, str], words: str
) -> None:
    async def story(stage: Stage) -> None:
        async with with_key(stage, secret_key=ONE).open():
            letter_id = await stage.text(5, "must wait", send_at_ms=stage.clock.wall_ms() + 1000)
            before = await texts(stage)
        await asyncio.sleep(60)  # it is due now
        with pytest.raises(StartError, match=words):
            async with with_key(stage, **settings).open():
                raise AssertionError("it started")
        assert stage.texts(5) == []
        async with with_key(stage, secret_key=ONE).open():
            assert await texts(stage) == before
            await stage.ended(letter_id)

    play_closed(story)


def test_a_start_with_the_old_key_seals_anew_and_then_does_without_it() -> None:
    async def story(stage: Stage) -> None:
        async with with_key(stage, secret_key=ONE).open():
            pass
        async with with_key(stage, secret_key=f"{TWO},{ONE}").open():
            # It opens both, and seals as the store is sealed: other nodes may not have the new key yet.
            await stage.peik.outbox.service.change_bot(BOT, paused=None)
            assert {key_id_of(text) for text in (await texts(stage)).values()} == set(seals_of(ONE).key_ids)
        async with with_key(stage, secret_key=TWO, secret_key_old=ONE).open():
            assert "2 sealed again" in notices(stage)
        async with with_key(stage, secret_key=TWO).open():
            assert {key_id_of(text) for text in (await texts(stage)).values()} == set(seals_of(TWO).key_ids)
            await stage.ended(await stage.text(5, "still the same bot"))

    play_closed(story)


def test_rotating_while_letters_go_on() -> None:
    async def story(stage: Stage) -> None:
        async with with_key(stage, secret_key=ONE).open():
            pass
        async with with_key(stage, secret_key=f"{TWO},{ONE}").open():
            standing = await stage.peik.secrets.standing()
            assert (standing.sealed, standing.older) == (0, 2)
            assert standing.advice is not None
            done = await stage.peik.secrets.rotate()
            assert (done.sealed, done.renewed) == (0, 2)
            assert (await stage.peik.secrets.standing()).older == 0
            await stage.ended(await stage.text(5, "sent"))

    play_closed(story)


# ---- several nodes: the store says who lives, the documents who has which keys ----


class Neighbours:
    """A NodeStore's part that says who lives."""

    def __init__(self, node: str, living: list[str]) -> None:
        self.node = node
        self._living = living

    async def nodes(self) -> list["Neighbour"]:
        return [Neighbour(name) for name in self._living]


class Neighbour:
    def __init__(self, name: str) -> None:
        self.name = name


def custodian(stage: Stage, name: str, living: list[str], key: str) -> Custodian:
    store = stage.peik.store
    told = events.Events()
    told.listen(stage.told.extend)
    return Custodian(
        store.sealed,
        seals_of(key),
        documents=store.documents,
        nodes=Neighbours(name, living),  # type: ignore[arg-type]
        clock=stage.clock,
        events=told,
    )


def test_nothing_is_sealed_until_every_node_that_lives_has_the_key() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            living = ["a", "b"]
            first = custodian(stage, "a", living, ONE)
            await first.begin()
            assert first.is_waiting
            assert "b did not say so yet" in notices(stage)
            with pytest.raises(Conflict, match="Restart them"):
                await first.rotate()
            assert first._seals.seal("a secret", place="secret:new") == "a secret"  # which b could not read
            assert await texts(stage) == {f"bot:{BOT}": TOKEN}
            waiting = asyncio.create_task(first.run())
            await asyncio.sleep(60)
            assert not waiting.done()
            living[1] = "b, started anew"
            second = custodian(stage, "b, started anew", living, ONE)
            await second.begin()
            assert not second.is_waiting
            assert all(map(is_sealed, (await texts(stage)).values()))
            await waiting

    play_closed(story)


def test_a_store_that_fails_just_when_all_have_the_key_is_sealed_a_little_later() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            living = ["a", "b"]
            first = custodian(stage, "a", living, ONE)
            await first.begin()
            living.remove("b")
            connection = stage.peik.store._connection
            connection.execute("PRAGMA query_only = ON")
            waiting = asyncio.create_task(first.run())
            while "could not be sealed yet" not in notices(stage):  # noqa: ASYNC110  virtual time
                await asyncio.sleep(1)
            assert first.is_waiting
            connection.execute("PRAGMA query_only = OFF")
            await waiting
            assert all(map(is_sealed, (await texts(stage)).values()))

    play_closed(story)


def test_a_node_that_went_is_not_waited_for() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            living = ["a", "b"]
            first = custodian(stage, "a", living, ONE)
            await first.begin()
            living.remove("b")
            await first.run()
            assert all(map(is_sealed, (await texts(stage)).values()))

    play_closed(story)


def test_a_key_is_not_changed_before_every_node_has_the_new_one() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            living = ["a", "b"]
            await custodian(stage, "b", ["b"], ONE).begin()
            first = custodian(stage, "a", living, f"{TWO},{ONE}")
            await first.begin()
            with pytest.raises(Conflict, match="b"):
                await first.rotate()
            await custodian(stage, "b", living, f"{ONE},{TWO}").begin()
            await first.rotate()
            assert {key_id_of(text) for text in (await texts(stage)).values() if is_sealed(text)} == {
                seals_of(TWO).key_ids[0]
            }
            with pytest.raises(StartError, match="another key"):
                await custodian(stage, "c", living, THREE).begin()

    play_closed(story)


def test_what_a_node_sealed_with_the_old_key_after_the_change_is_renewed_by_the_next_start() -> None:
    async def story(stage: Stage) -> None:
        async with with_key(stage, secret_key=f"{ONE},{TWO}").open():
            late = stage.peik.store.seals
            await custodian(stage, "other", [], f"{TWO},{ONE}").rotate()
            await stage.peik.outbox.service.change_bot(BOT, paused=None)
            assert key_id_of((await texts(stage))[f"bot:{BOT}"]) == late.key_ids[0]
        async with with_key(stage, secret_key=f"{ONE},{TWO}").open():  # in whichever order they stand
            assert {key_id_of(text) for text in (await texts(stage)).values() if is_sealed(text)} == {late.key_ids[1]}

    play_closed(story)


def test_what_nodes_said_that_are_long_gone_is_taken_away() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            documents = stage.peik.store.documents
            await documents.file([Filing(collection=COLLECTION, key="old", body='{"keys":[],"at_ms":1}')])
            await custodian(stage, "a", ["a"], ONE).begin()
            assert [one.key for one in await documents.documents(COLLECTION, limit=9)] == ["a"]

    play_closed(story)


def test_a_node_that_is_up_seals_as_another_does_since_its_rotation() -> None:
    async def story(stage: Stage) -> None:
        async with with_key(stage, secret_key=ONE).open():
            pass
        async with with_key(stage, secret_key=f"{TWO},{ONE}").open():
            neighbour = seals_of(f"{TWO},{ONE}")
            await service.follow(stage.peik.store.sealed, neighbour)
            assert neighbour.key_in_use == seals_of(ONE).key_ids[0]
            await stage.peik.secrets.rotate()
            await service.follow(stage.peik.store.sealed, neighbour)
            assert neighbour.key_in_use == seals_of(TWO).key_ids[0]

    play_closed(story)


def test_a_process_beside_an_owner_without_the_key_seals_nothing() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            path = Path(stage._folder) / "peik.db"
            store = SqliteStore(path, clock=stage.clock, is_owner=False, executor=lambda name: InlineExecutor())
            await store.open()
            seals = seals_of(ONE)
            nodes = Neighbours("beside", ["beside"])
            beside = Custodian(
                store.sealed,
                seals,
                documents=store.documents,
                nodes=nodes,
                clock=stage.clock,
                events=events.Events(),  # type: ignore[arg-type]
            )
            await beside.begin()
            assert seals.seal("a secret", place="secret:x") == "a secret"
            await store.close()

    play_closed(story)
