"""Messages, events and the log as a client of REST finds them: a real server, and an archive with something in it."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from peik.archive.sqlite.archive import SqliteArchive
from peik.archive.store import Direction
from peik.errors import StoreUnavailable
from tests.archive.samples import CHANNEL, CHAT, NOW, PERSON, event, line, log, message, session
from tests.web.accounts import House, house, until

A = TypeVar("A", bound=SqliteArchive)
NOW_S = NOW // 1000


def play(
    folder: Path,
    story: Callable[[House, A], Coroutine[Any, Any, None]],
    kind: type[A] = SqliteArchive,  # type: ignore[assignment]
) -> None:
    """A house, and its archive to put something into."""
    archive = kind(folder / "peik.db.archive")

    async def whole() -> None:
        async with house(folder, make_archive=lambda config: archive) as built:
            await story(built, archive)

    asyncio.run(whole())


async def fill(archive: SqliteArchive) -> None:
    """Two agents' accounts; a chat with an edited and a deleted message; a channel."""
    await archive.add_session(session("s1", is_active=False))
    await archive.add_session(session("s2", agent_id="boris", is_active=False))
    await archive.keep_messages(
        [
            message(1, text="tea at noon", raw='{"id": 1}', media='{"name": "a.ogg"}', kind="voice"),
            message(2, text="no tea", direction=Direction.SENT, sender_id=9),
            message(3, text="چای ظهر"),
            message(4, chat_id=CHANNEL, sender_id=CHANNEL, text="news"),
            message(5, session_id="s2", agent_id="boris", text="coffee"),
        ]
    )
    await archive.keep_messages(
        [message(1, text="tea at one", edited_at_ms=NOW + 60_000, raw='{"id": 1, "e": 1}', kind="voice")]
    )
    await archive.mark_deleted("s1", CHAT, [3], at_ms=NOW + 90_000)


def test_messages_are_found_by_all_that_they_are(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await fill(archive)
        found = (await house.get("/v1/messages"))["messages"]
        assert [one["message_id"] for one in found] == ["5", "4", "3", "2", "1"]
        newest, edited = found[1], found[4]
        assert (newest["session_id"], newest["chat_id"], newest["sender_id"]) == ("s1", str(CHANNEL), str(CHANNEL))
        assert newest["date"] == "2027-01-15T08:00:04.000Z"
        assert (edited["text"], edited["edited_at"]) == ("tea at one", "2027-01-15T08:01:00.000Z")
        assert found[2]["deleted_at"] == "2027-01-15T08:01:30.000Z"
        assert "raw" not in edited
        for query, ids in (
            ("session_id=s2", "5"), ("agent_id=anna", "4321"), (f"chat_id={CHANNEL}", "4"), ("chat_id=5", "5321"),
            ("direction=sent", "2"), ("direction=received", "5431"), ("sender_id=9", "2"), (f"sender_id={CHANNEL}", "4"),
            ("kind=voice", "1"), ("text=TEA", "21"), ("text=tea%20one", "1"), ("text=te", ""), ("text=!!", ""),
            (f"text={quote('چاي')}", "3"), ("deleted=true", "3"), ("deleted=false", "5421"),
            (f"since={NOW_S + 4}", "54"), (f"until={NOW_S + 2}", "1"), ("since=2027-01-15T08:00:05Z", "5"),
            (f"since=2027-01-15T11:30:03%2B03:30&until={NOW_S + 5}.5", "543"),
            ("agent_id=anna&text=tea&direction=sent", "2"), ("session_id=nobody", ""), ("kind=%27%20OR%201=1", ""),
        ):  # fmt: skip
            listed = (await house.get(f"/v1/messages?{query}"))["messages"]
            assert "".join(one["message_id"] for one in listed) == ids, query
            assert await house.get(f"/v1/messages/count?{query}") == {"count": len(ids)}, query

    play(tmp_path, story)


def test_pages_follow_each_other_while_others_come(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await archive.keep_messages([message(number) for number in range(1, 251)])
        page = await house.get("/v1/messages")
        assert len(page["messages"]) == 100
        seen = [one["message_id"] for one in page["messages"]]
        await archive.keep_messages([message(number) for number in range(251, 261)])
        while page["next"] is not None:
            page = await house.get(f"/v1/messages?limit=70&cursor={page['next']}")
            seen += [one["message_id"] for one in page["messages"]]
        assert seen == [str(number) for number in range(250, 0, -1)]
        assert len((await house.get("/v1/messages?limit=1000"))["messages"]) == 260

    play(tmp_path, story)


def test_a_message_is_shown_whole_with_what_it_was_before(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await fill(archive)
        shown = await house.get(f"/v1/messages/s1/{CHAT}/1")
        assert (shown["text"], shown["raw"]) == ("tea at one", {"id": 1, "e": 1})
        assert [(one["text"], one["raw"]) for one in shown["versions"]] == [
            ("tea at noon", {"id": 1}), ("tea at one", {"id": 1, "e": 1}),
        ]  # fmt: skip
        assert shown["versions"][0]["media"] == {"name": "a.ogg"}
        assert (await house.get(f"/v1/messages/s1/{CHANNEL}/4"))["versions"][0]["text"] == "news"
        for path, answer in (
            (f"s1/{CHAT}/99", (404, "no_such_message")), (f"s2/{CHAT}/1", (404, "no_such_message")),
            ("s1/x/1", (422, "bad_chat_id")), (f"s1/{CHAT}/1.5", (422, "bad_message_id")),
            (f"s1/{CHAT}/{'9' * 19}", (422, "bad_message_id")), (f"%00/{CHAT}/1", (422, "bad_session_id")),
        ):  # fmt: skip
            assert await house.code("GET", f"/v1/messages/{path}") == answer, path

    play(tmp_path, story)


def test_events_and_the_log_are_listed_and_filtered(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await archive.keep_events(
            [
                event("a", payload='{"who": "Sara"}', chat_id=CHANNEL, user_id=PERSON),
                event("b", event_type="read", created_at_ms=NOW + 1000),
                event("c", session_id="s2", agent_id="boris", created_at_ms=NOW + 2000),
            ]
        )
        await archive.keep_logs(
            [
                log("sent", level="debug", bot_id=7),
                log("failed", level="error", session_id="s1", fields='{"why": "Чай"}', at_ms=NOW + 1000),
                log("slow", level="warning", at_ms=NOW + 2000),
            ]
        )
        found = (await house.get("/v1/events"))["events"]
        assert [one["event_id"] for one in found] == ["c", "b", "a"]
        assert (found[2]["payload"], found[2]["chat_id"]) == ({"who": "Sara"}, str(CHANNEL))
        for query, ids in (
            ("session_id=s1", "ba"), ("agent_id=boris", "c"), ("event_type=read", "b"), (f"chat_id={CHANNEL}", "a"),
            (f"since={NOW_S + 1}", "cb"), (f"until={NOW_S + 1}", "a"), ("limit=2", "cb"),
        ):  # fmt: skip
            page = await house.get(f"/v1/events?{query}")
            assert "".join(one["event_id"] for one in page["events"]) == ids, query
        assert [one["event_id"] for one in (await house.get(f"/v1/events?cursor={page['next']}"))["events"]] == ["a"]
        found = (await house.get("/v1/logs"))["logs"]
        assert [one["event"] for one in found] == ["slow", "failed", "sent"]
        assert found[1] == {
            "at": "2027-01-15T08:00:01.000Z", "level": "error", "event": "failed", "node": "one", "session_id": "s1",
            "bot_id": None, "fields": {"why": "Чай"},
        }  # fmt: skip
        for query, names in (
            ("level=warning", ["slow", "failed"]), ("event=sent", ["sent"]), ("session_id=s1", ["failed"]),
            ("bot_id=7", ["sent"]), (f"since={NOW_S + 1}", ["slow", "failed"]), (f"until={NOW_S + 1}", ["sent"]),
            (f"text={quote('чай')}", ["failed"]), ("text=SLO", ["slow"]), ("text=%25", []), ("limit=1", ["slow"]),
        ):  # fmt: skip
            page = await house.get(f"/v1/logs?{query}")
            assert [one["event"] for one in page["logs"]] == names, query
        assert (await house.get(f"/v1/logs?cursor={page['next']}"))["logs"] == found[1:]

    play(tmp_path, story)


def test_a_person_is_forgotten_for_good_and_what_is_left_is_counted(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await fill(archive)
        await archive.keep_events([event("a", user_id=PERSON), event("b", user_id=9)])
        assert await house.get("/v1/messages/stats") == {"sessions": 2, "messages": 5, "versions": 1, "events": 2}
        assert (await house.get("/v1/messages/stats?agent_id=boris"))["messages"] == 1
        removed = (await house.post("/v1/messages/forget", {"user_id": str(PERSON)}))["removed"]
        assert (removed["messages"], removed["versions"], removed["events"]) == (3, 1, 1)
        assert [one["message_id"] for one in (await house.get("/v1/messages"))["messages"]] == ["4", "2"]
        assert (await house.post("/v1/messages/forget", {"user_id": 9}))["removed"]["messages"] == 1
        assert (await house.get("/v1/messages/stats"))["events"] == 0
        for body, answer in (
            ({}, "bad_request"), ({"user_id": None}, "bad_request"), ({"user_id": "Sara"}, "bad_user_id"),
            ({"user_id": 10**30}, "bad_user_id"), ({"user_id": 9, "really": True}, "bad_request"),
        ):  # fmt: skip
            assert await house.code("POST", "/v1/messages/forget", json=body) == (422, answer), body

    play(tmp_path, story)


def test_what_cannot_be_meant_is_refused_with_its_name(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        for path, answer in (
            ("messages?colour=red", "unknown_filter"), ("messages?sesion_id=s1", "unknown_filter"),
            ("messages/count?limit=5", "unknown_filter"), ("messages/stats?chat_id=5", "unknown_filter"),
            ("events?text=x", "unknown_filter"), ("logs?agent_id=a", "unknown_filter"),
            ("messages?chat_id=@name", "bad_chat_id"), ("messages?sender_id=1e3", "bad_sender_id"),
            (f"messages?sender_id={quote('۱۲')}", "bad_sender_id"), ("events?chat_id=--5", "bad_chat_id"),
            ("messages?direction=up", "bad_direction"), ("messages?deleted=maybe", "bad_deleted"),
            ("messages?since=yesterday", "bad_time"), ("messages?until=2027-01-15T08:00:05", "bad_time"),
            ("messages?since=nan", "bad_time"), ("messages?since=-1", "bad_time"), ("events?until=1e300", "bad_time"),
            ("messages?text=", "bad_filter"), (f"messages?text={'a' * 201}", "bad_filter"),
            ("messages?agent_id=%00", "bad_filter"), ("logs?level=loud", "bad_level"), ("logs?bot_id=x", "bad_bot_id"),
            ("messages?limit=0", "bad_limit"), ("events?limit=1001", "bad_limit"), ("logs?limit=ten", "bad_limit"),
            ("messages?cursor=x", "bad_cursor"), ("messages?cursor=", "bad_cursor"), ("events?cursor=1.zz", "bad_cursor"),
            (f"logs?cursor={'1' * 10_000}", "bad_cursor"), ("messages/export?cursor=5", "bad_cursor"),
        ):  # fmt: skip
            assert await house.code("GET", f"/v1/{path}") == (422, answer), path
        assert (await house.call("PUT", "/v1/messages"))[0] == 405

    play(tmp_path, story)


ASKED = (
    ("GET", "/v1/messages"), ("GET", "/v1/messages/count"), ("GET", "/v1/messages/export"),
    ("GET", "/v1/messages/stream"), ("GET", "/v1/messages/stats"), ("GET", "/v1/messages/s1/5/1"),
    ("GET", "/v1/events"), ("GET", "/v1/events/stream"), ("GET", "/v1/logs"),
    ("POST", "/v1/messages/forget"), ("DELETE", "/v1/readers/shop"),
)  # fmt: skip


async def is_sender(house: House, user_id: int) -> bool:
    return house.runtime.outbox.service.known(user_id) is not None


def test_a_key_opens_no_more_than_it_is_for(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        ali = house.telegram.register("+998900000001", first_name="Ali")
        await house.signed_in(ali)
        await until(lambda: is_sender(house, ali.user_id))
        sends = (await house.post("/v1/keys", {"name": "s", "scopes": ["admin"], "bot_ids": [str(ali.user_id)]}))["key"]
        reads = (await house.post("/v1/keys", {"name": "r", "scopes": ["read"]}))["key"]
        for verb, path in ASKED:
            body = {"json": {"user_id": 5}} if verb == "POST" else {}
            assert await house.code(verb, path, key=None, **body) == (401, "no_key"), path
            assert await house.code(verb, path, key=sends, **body) == (403, "wrong_bot"), path
            if verb != "GET":
                assert await house.code(verb, path, key=reads, **body) == (403, "wrong_scope"), path
            elif not path.endswith(("stream", "/1")):
                assert (await house.raw(verb, path, key=reads))[0] == 200, path

    play(tmp_path, story)


def test_without_accounts_it_is_said_what_to_set(tmp_path: Path) -> None:
    async def story() -> None:
        async with house(tmp_path, has_accounts=False) as built:
            for verb, path in ASKED:
                assert await built.code(verb, path, json={"user_id": 5}) == (409, "no_sessions"), path

    asyncio.run(story())


class Away(SqliteArchive):
    """One that cannot be opened."""

    async def open(self) -> None:
        raise StoreUnavailable(code="store_gone", detail="No way there.")


def test_while_the_archive_is_away_it_is_said_so(tmp_path: Path) -> None:
    async def story() -> None:
        archive = Away(tmp_path / "peik.db.archive")
        async with house(tmp_path, make_archive=lambda config: archive, is_open=False) as built:
            for verb, path in ASKED:
                status, answer, headers = await built.raw(verb, path, json={"user_id": 5})
                assert (status, b'"archive_away"' in answer) == (503, True), path
                assert headers["retry-after"] == "2"

    asyncio.run(story())


def test_a_reader_that_says_itself_how_far_it_is(tmp_path: Path) -> None:
    async def story(house: House, archive: SqliteArchive) -> None:
        await archive.feed([line("a"), line("b"), line("c")])
        assert await house.get("/v1/readers/crm") == {"reader": "crm", "places": {}}
        status, answer = await house.call("PUT", "/v1/readers/crm", json={"places": {"s1": 2}})
        assert (status, answer["places"]) == (200, {"s1": 2})
        status, answer = await house.call("PUT", "/v1/readers/crm", json={"places": {"s1": 1}})
        assert answer["places"] == {"s1": 2}, "a place never goes back"
        assert await house.code("PUT", "/v1/readers/a%20%0A", json={"places": {}}) == (422, "bad_reader")
        assert await house.code("PUT", "/v1/readers/crm", json={"places": {"s1": -1}}) == (422, "bad_request")
        assert await house.code("GET", "/v1/messages/stream?kinds=message,nothing") == (422, "bad_kinds")

    play(tmp_path, story)
