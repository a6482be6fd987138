"""The webhook of accounts in virtual time: every line in order, signed, from its place on, however long nobody answered."""

import asyncio
import itertools
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from peik.accounts.events import PushBack, PushFailed, PushRefused, SessionFed
from peik.accounts.feeds import BATCH_BYTES, BATCH_LINES, PAUSE_S_MAX, READER, FeedPush, Feeds
from peik.archive.store import ArchiveRetention, FeedRecord, LineKind
from peik.core.events import Event, Events, StoreFailed, Surprise
from peik.errors import StartError
from peik.outbox.store import Poster
from peik.telegram.push import HttpPoster
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.house import House, play_closed
from tests.accounts.inline_archive import InlineArchive, opened
from tests.outbox.receivers import HANGS, Heard, Receivers, verified

SECRET = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"
URL = "https://shop.example/accounts?key=hidden"
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


class Post:
    """An archive whose feeds are filled by hand, and who posts them. `open` begins anew, as a restart does."""

    def __init__(self, clock: VirtualClock, archive: InlineArchive) -> None:
        self.clock = clock
        self.archive = archive
        self.receivers = Receivers(clock)
        self.poster: Poster = self.receivers
        self.url = URL
        self.is_ours = True
        self.told: list[Event] = []
        self._numbers: dict[str, int] = {}

    def open(self) -> None:
        self.events = Events()
        self.events.listen(self.told.extend)
        self.feeds = Feeds(self.archive, self.clock, self.events)
        pushing = FeedPush(
            url=self.url,
            archive=self.archive,
            feeds=self.feeds,
            poster=self.poster,
            secret=self._secret,
            may_push=lambda: self.is_ours,
            clock=self.clock,
            events=self.events,
        )
        self.running = asyncio.create_task(pushing.run())

    async def _secret(self) -> str:
        return SECRET

    async def die(self) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])

    async def feed(self, session_id: str, count: int = 1, body: str = "{}") -> None:
        lines = []
        for _ in range(count):
            self._numbers[session_id] = number = self._numbers.get(session_id, 0) + 1
            lines.append(
                FeedRecord(
                    session_id=session_id,
                    agent_id="a",
                    key=f"m {number}",
                    kind=LineKind.MESSAGE,
                    body=body,
                    at_ms=self.clock.wall_ms(),
                )
            )
        await self.archive.feed(lines)
        self.events.tell(SessionFed(session_id=session_id, count=count))

    def heard(self) -> list[str]:
        return [line["id"] for heard in self.receivers.heard for line in heard.message["data"]["lines"]]

    def told_of(self, kind: type[Event]) -> list[Any]:
        return [one for one in self.told if isinstance(one, kind)]


def posting(
    story: Callable[[Post], Coroutine[Any, Any, None]], answer: Callable[[Heard], int] = lambda heard: 200
) -> None:
    async def main(clock: VirtualClock) -> None:
        with tempfile.TemporaryDirectory(prefix="peik-push-") as folder:
            post = Post(clock, await opened(Path(folder)))
            post.receivers.answer = answer
            post.open()
            await asyncio.sleep(2)
            await story(post)
            await post.die()
            await post.archive.close()
            assert not post.told_of(Surprise)

    run_virtual(main)


def test_what_comes_is_posted_soon_signed_and_as_it_is() -> None:
    async def story(post: Post) -> None:
        await post.feed("s1", body='{"text":"hello"}')
        at_ms = post.clock.wall_ms()
        await asyncio.sleep(0.5)
        (heard,) = post.receivers.heard
        assert heard.url == URL
        message = verified(SECRET, heard.headers, heard.body, now_s=post.clock.wall_s())
        assert message["type"] == "session.lines"
        (line,) = message["data"]["lines"]
        assert line["at"].startswith("2026-")
        assert {name: line[name] for name in line if name != "at"} == {
            "id": "s1:1", "session_id": "s1", "agent_id": "a", "number": 1, "type": "message",
            "data": {"text": "hello"},
        }  # fmt: skip
        assert await post.archive.places(READER) == {"@": 1, "s1": 1}
        assert post.clock.wall_ms() - at_ms < 1000
        await asyncio.sleep(600)
        assert len(post.receivers.heard) == 1

    posting(story)


def test_lines_are_in_order_for_each_session_and_go_in_batches() -> None:
    async def story(post: Post) -> None:
        await post.feed("s1", 250)
        await post.feed("s2", 30)
        await asyncio.sleep(5)
        for session_id, count in (("s1", 250), ("s2", 30)):
            mine = [one for one in post.heard() if one.startswith(session_id)]
            assert mine == [f"{session_id}:{number}" for number in range(1, count + 1)]
        assert len(post.receivers.heard) <= 5
        assert max(len(one.message["data"]["lines"]) for one in post.receivers.heard) == BATCH_LINES
        assert post.receivers.all_at_once_max == 1

    posting(story)


def test_long_lines_go_in_smaller_batches_and_one_that_is_too_long_goes_alone() -> None:
    async def story(post: Post) -> None:
        await post.feed("s1", 5, body=f'"{"x" * (BATCH_BYTES // 2 - 10)}"')
        await post.feed("s1", 1, body=f'"{"x" * BATCH_BYTES * 2}"')
        await post.feed("s1", 1)
        await asyncio.sleep(5)
        assert [len(one.message["data"]["lines"]) for one in post.receivers.heard] == [2, 2, 1, 1, 1]

    posting(story)


def test_the_first_time_it_begins_with_what_is_new_and_then_always_from_its_place() -> None:
    async def main(clock: VirtualClock) -> None:
        with tempfile.TemporaryDirectory(prefix="peik-push-") as folder:
            post = Post(clock, await opened(Path(folder)))
            post.events = Events()
            await post.feed("old", 500)
            post.open()
            await asyncio.sleep(10)
            assert post.heard() == []
            await post.die()
            await post.feed("old", 2)
            await post.feed("new", 2)
            post.open()
            await asyncio.sleep(10)
            assert post.heard() == ["new:1", "new:2", "old:501", "old:502"]
            await post.die()
            await post.archive.close()

    run_virtual(main)


def test_the_first_session_of_all_is_told_from_its_first_line_though_nothing_was_there_before_a_restart() -> None:
    async def story(post: Post) -> None:
        await post.die()
        await post.feed("s1", 3)
        post.open()
        await asyncio.sleep(5)
        assert post.heard() == ["s1:1", "s1:2", "s1:3"]

    posting(story)


@pytest.mark.parametrize("answer", [HANGS, 302, 404, 503])
def test_an_endpoint_that_fails_is_tried_again_ever_more_patiently_and_loses_nothing(answer: int) -> None:
    async def story(post: Post) -> None:
        await post.feed("s1", 3)
        await asyncio.sleep(HOUR_S)
        tries = post.receivers.heard
        gaps = [round(later.at_s - sooner.at_s) for sooner, later in itertools.pairwise(tries)]
        each = 15 if answer == HANGS else 0
        assert gaps[:9] == [each + pause for pause in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
        assert set(gaps[9:]) == {each + PAUSE_S_MAX}
        assert len({(one.id, one.body) for one in tries}) == 1
        assert await post.archive.places(READER) == {"@": 1}
        await post.feed("s1", 2)
        post.receivers.answer = lambda heard: 204
        count = len(tries)
        await asyncio.sleep(PAUSE_S_MAX + 20)
        assert [line["id"] for one in tries[count:] for line in one.message["data"]["lines"]] == [
            f"s1:{number}" for number in range(1, 6)
        ]
        (failed,), (back,) = post.told_of(PushFailed), post.told_of(PushBack)
        assert failed.endpoint == back.endpoint == "https://shop.example", "no path: it may hold a secret"
        assert back.away_s > 3000
        assert not back.is_left

    posting(story, lambda heard: answer)


def test_410_means_that_these_lines_are_not_wanted() -> None:
    async def story(post: Post) -> None:
        await post.feed("s1", 3)
        await asyncio.sleep(600)
        assert post.heard() == ["s1:1", "s1:2", "s1:3"]
        assert [one.count for one in post.told_of(PushRefused)] == [3]
        assert post.told_of(PushFailed) == []
        post.receivers.answer = lambda heard: 200
        await post.feed("s1")
        await asyncio.sleep(5)
        assert post.heard()[3:] == ["s1:4"]

    posting(story, lambda heard: 410)


def test_only_the_node_with_the_chores_posts_and_the_next_one_goes_on() -> None:
    async def story(post: Post) -> None:
        post.receivers.answer = lambda heard: 500
        await post.feed("s1", 2)
        await asyncio.sleep(10)
        post.is_ours = False
        await asyncio.sleep(10)
        count = len(post.receivers.heard)
        post.receivers.answer = lambda heard: 200
        await asyncio.sleep(600)
        assert len(post.receivers.heard) == count
        assert [one.is_left for one in post.told_of(PushBack)] == [True]
        await post.archive.save_places(READER, {"s1": 1}, at_ms=post.clock.wall_ms())  # by the other node, meanwhile
        post.is_ours = True
        await asyncio.sleep(5)
        assert post.receivers.heard[count:][0].message["data"]["lines"][0]["id"] == "s1:2"
        assert len(post.receivers.heard) == count + 1

    posting(story)


def test_an_archive_that_is_away_costs_no_line_and_tells_none_twice() -> None:
    async def story(post: Post) -> None:
        def fails_meanwhile(heard: Heard) -> int:
            post.archive.is_down = True
            return 200

        post.receivers.answer = fails_meanwhile
        await post.feed("s1", 150)
        await asyncio.sleep(60)
        assert post.told_of(StoreFailed)
        post.receivers.answer = lambda heard: 200
        post.archive.is_down = False
        await asyncio.sleep(10)
        assert post.heard() == [f"s1:{number}" for number in range(1, 151)]
        post.receivers.answer = fails_meanwhile
        await post.feed("s1")
        await asyncio.sleep(60)
        post.archive.is_down = False
        await asyncio.sleep(10)
        await post.die()
        assert (await post.archive.places(READER))["s1"] == 151, "no line came that would have taken it along"

    posting(story)


def test_a_crash_before_the_place_was_saved_tells_lines_again_and_none_is_left_out() -> None:
    async def story(post: Post) -> None:
        def dies(heard: Heard) -> int:
            post.archive.is_down = True
            return 200

        post.receivers.answer = dies
        await post.feed("s1", 2)
        await asyncio.sleep(1)
        await post.die()
        post.archive.is_down = False
        post.receivers.answer = lambda heard: 200
        post.open()
        await post.feed("s1")
        await asyncio.sleep(5)
        assert post.heard() == ["s1:1", "s1:2", "s1:1", "s1:2", "s1:3"]

    posting(story)


def test_after_weeks_of_an_outage_and_a_restart_what_is_still_kept_is_told() -> None:
    async def story(post: Post) -> None:
        week = ArchiveRetention(feed_ms=int(7 * DAY_S * 1000))
        for _ in range(21):
            await post.feed("s1")
            await asyncio.sleep(DAY_S)
            await post.archive.clean(week, at_ms=post.clock.wall_ms(), limit=1000)
        await post.die()
        post.receivers.heard.clear()
        post.receivers.answer = lambda heard: 200
        post.open()
        await asyncio.sleep(5)
        kept = [line.number for line in await post.archive.fed("s1", after=0, limit=100)]
        assert 5 < len(kept) < 10, "a week of them"
        assert post.heard() == [f"s1:{number}" for number in kept]

    posting(story, lambda heard: 500)


def test_the_places_of_quiet_sessions_are_not_forgotten() -> None:
    async def story(post: Post) -> None:
        await post.feed("s1")
        for _ in range(8):
            await asyncio.sleep(HOUR_S / 2)
            at_ms = post.clock.wall_ms()
            await post.archive.clean(ArchiveRetention(feed_ms=int(2 * HOUR_S * 1000)), at_ms=at_ms, limit=1000)
        assert await post.archive.places(READER) == {"@": 1, "s1": 1}

    posting(story)


def test_a_session_of_any_name_can_be_told_of() -> None:
    async def story(post: Post) -> None:
        await post.feed("Али")
        await asyncio.sleep(5)
        assert post.heard() == ["Али:1"]
        assert post.receivers.heard[0].id.isascii()

    posting(story)


def test_a_machine_of_our_own_network_is_not_spoken_to() -> None:
    async def main(clock: VirtualClock) -> None:
        with tempfile.TemporaryDirectory(prefix="peik-push-") as folder:
            post = Post(clock, await opened(Path(folder)))
            post.url, post.poster = "http://127.0.0.1:9/", HttpPoster(may_be_private=False)
            post.open()
            await asyncio.sleep(2)
            await post.feed("s1")
            await asyncio.sleep(5)
            (failed,) = post.told_of(PushFailed)
            assert "PEIK_HOOKS_ALLOW_PRIVATE is off" in failed.why
            await post.die()
            await post.archive.close()

    run_virtual(main)


# ---- the whole way ----


def test_what_an_account_sees_is_posted_with_the_secret_of_all_webhooks() -> None:
    async def story(house: House) -> None:
        house.poster = receivers = Receivers(house.clock)
        async with house.open():
            session = await house.sign_in(house.ali)
            await house.connected(house.ali)
            house.accounts.say(house.private, house.sara, "hello")
            await house.until(lambda: receivers.heard)
            heard = receivers.heard[-1]
            secret = await house.peik.outbox.hooks.own_secret()
            lines = verified(secret, heard.headers, heard.body, now_s=house.clock.wall_s())["data"]["lines"]
            assert [(line["session_id"], line["data"]["text"]) for line in lines] == [(session.session_id, "hello")]
            assert heard.url == "https://shop.example/"

    play_closed(story, sessions_webhook="https://Shop.example")


def test_an_address_of_our_own_network_is_refused_at_the_start() -> None:
    async def story(house: House) -> None:
        with pytest.raises(StartError, match=r"PEIK_SESSIONS_WEBHOOK: .*not on the open internet"):
            async with house.open():
                pass

    play_closed(story, sessions_webhook="http://10.0.0.1/hook")
