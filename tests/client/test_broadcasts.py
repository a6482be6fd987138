"""Broadcasts through the library, and letters that are changed or taken back by a filter: the same on both ways in."""

import asyncio
import datetime
import threading
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from peik import Peik
from peik.broadcasts.api import AudienceBody, audience_of
from peik.broadcasts.audience import ContactAudience
from peik.broadcasts.model import Canary
from peik.client.broadcasts import BroadcastInfo, _audience
from peik.core.documents import ContactFilter
from peik.core.letter import State
from peik.errors import BadInput, Conflict, NotFound
from peik.testing import SimServer
from tests.client.counters import both, play

PEOPLE = [11, 12, 13]


async def until(peik: Peik, broadcast: BroadcastInfo, state: str) -> BroadcastInfo:
    while (found := await peik.broadcasts.get(broadcast)).state != state:  # noqa: ASYNC110  over REST there is none
        await asyncio.sleep(0.05)
    return found


@both
def test_a_broadcast_from_its_draft_to_its_recall(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        rows = "chat_id,name\n" + "".join(f"{chat},N{chat}\n" for chat in PEOPLE)
        made = await peik.broadcasts.create(
            "sendMessage", {"text": "Salam {name}"}, csv=rows, name="news", canary=Canary(count=1), idempotency_key="46"
        )
        again = await peik.broadcasts.create(
            "sendMessage", {"text": "Salam {name}"}, csv=rows, name="news", canary=Canary(count=1), idempotency_key="46"
        )
        assert (again.id, made.state, made.total, made.counts.pending) == (made.id, "draft", 3, 3)
        assert (await peik.broadcasts.estimate(made)).recipients == 3
        await peik.wait(await peik.broadcasts.preview(made, 9))
        assert (await peik.broadcasts.start(made)).state != "draft"
        done = await until(peik, made, "completed")
        assert (done.counts.delivered, done.progress, done.is_over) == (3, 1.0, True)
        lines = [line async for line in peik.broadcasts.ledger(made, state="delivered")]
        assert [(line.chat_id, line.values) for line in lines] == [(str(one), {"name": f"N{one}"}) for one in PEOPLE]
        sent = {one.chat_id: one.text for one in sim.telegram.sent.where(method="sendMessage")}
        assert sent == {9: "Salam N11", **{chat: f"Salam N{chat}" for chat in PEOPLE}}
        with pytest.raises(Conflict):
            await peik.broadcasts.pause(made)
        await peik.broadcasts.recall(made)
        assert (await until(peik, made, "recalled")).counts.recalled == 3
        assert [one.id async for one in peik.broadcasts.find()] == [made.id]
        await peik.broadcasts.delete(made)
        with pytest.raises(NotFound):
            await peik.broadcasts.get(made)

    play(way, tmp_path, story)


@both
def test_a_broadcast_is_put_off_and_ended(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
        put_off = await peik.broadcasts.create("sendMessage", {"text": "a"}, chat_ids=PEOPLE, send_at=tomorrow)
        assert (put_off.state, put_off.start_at is not None) == ("scheduled", True)
        known = await peik.broadcasts.create(
            "sendMessage", {"text": "b"}, contacts=ContactFilter(languages=frozenset({"fa"}))
        )
        assert (await peik.broadcasts.start(known, send_at=tomorrow)).state == "scheduled"
        estimate = await peik.broadcasts.estimate(put_off)
        assert (estimate.recipients, estimate.is_least) == (3, False)
        for one in (put_off, known):
            await peik.broadcasts.cancel(one)
            await until(peik, one, "cancelled")
        assert Counter([line.state async for line in peik.broadcasts.ledger(put_off)]) == {"cancelled": 3}
        assert not sim.telegram.sent.where(method="sendMessage")
        for audience in ({}, {"chat_ids": [1], "csv": "chat_id\n1\n"}):
            with pytest.raises(BadInput, match="one of"):
                await peik.broadcasts.create("sendMessage", {"text": "a"}, **audience)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="digits"):
            await peik.broadcasts.get("../bots")

    play(way, tmp_path, story)


@both
def test_letters_are_changed_and_taken_back_by_a_filter(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, sim: SimServer) -> None:
        tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
        later = [await peik.send_text(chat, "later", send_at=tomorrow) for chat in PEOPLE]
        changed = await peik.change_letter(later[0], priority=2, send_at="now")
        assert changed.id == later[0].id
        assert (await peik.wait(later[0])).state is State.COMPLETED
        assert (
            await peik.change_letter(later[1], send_at=tomorrow + datetime.timedelta(days=1))
        ).state is State.DELAYED
        assert await peik.cancel_letters(chat_id=PEOPLE[1]) == 1
        assert await peik.cancel_letters(state="delayed") == 1
        assert [(await peik.get_job_status(one)).state for one in later[1:]] == [State.CANCELLED] * 2
        with pytest.raises(BadInput, match="filter"):
            await peik.cancel_letters()
        with pytest.raises(BadInput, match="taken back"):
            await peik.cancel_letters(state="failed")
        with pytest.raises(Conflict):
            await peik.change_letter(later[0], priority=1)

    play(way, tmp_path, story)


def test_a_filter_of_known_chats_means_the_same_there() -> None:
    wanted = ContactFilter(
        types=frozenset({"private"}),
        languages=frozenset({"fa"}),
        seen_since_ms=1_700_000_000_000,
        seen_before_ms=1_800_000_000_000,
        is_gone=False,
        text="ali",
        campaign="promo",
    )
    assert None not in msgspec.structs.astuple(wanted), "one of every field"
    body = msgspec.json.decode(_audience(None, None, wanted), type=AudienceBody)
    assert audience_of(body) == ContactAudience(wanted=wanted)


@pytest.mark.parametrize("audience", ["chat_ids", "csv"])
def test_a_long_list_is_read_beside_the_loop(audience: str, tmp_path: Path) -> None:
    """The loop goes round while it is read: a list of our own says in which thread it is asked."""
    threads: set[int] = set()

    class Chat(str):
        def __str__(self) -> str:
            threads.add(threading.get_ident())
            return str.__str__(self)

    class Rows(str):
        def encode(self, *args: object) -> bytes:  # type: ignore[override]
            threads.add(threading.get_ident())
            return str.encode(self)

    async def story(peik: Peik, sim: SimServer) -> None:
        given = {"chat_ids": [Chat("5")]} if audience == "chat_ids" else {"csv": Rows("chat_id\n5\n")}
        await peik.broadcasts.create("sendMessage", {"text": "a"}, **given)  # type: ignore[arg-type]
        assert threads
        assert threading.get_ident() not in threads

    play("open", tmp_path, story)
