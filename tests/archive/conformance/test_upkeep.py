"""States of chats, counts, retention, forgetting, durability, and pages for a copy."""

import msgspec

from peik.archive.store import (
    ArchiveRetention,
    ChatState,
    EventFilter,
    Fed,
    KeptCounts,
    LogFilter,
    MessageFilter,
    ReaderPlace,
    Record,
    RecordKind,
    Tallied,
    UpdatesState,
)
from tests.archive.places import Place, opened
from tests.archive.samples import CHANNEL, CHAT, NOW, PERSON, event, line, log, member, message, session


async def test_the_state_of_a_chat_is_the_last_that_was_saved(place: Place) -> None:
    one = ChatState(session_id="s1", chat_id=CHANNEL, title="کانال", newest_id=9, access=b"\0", updated_at_ms=NOW)
    other = ChatState(session_id="s1", chat_id=CHAT, crawled_to=0, crawl_until_ms=NOW, crawled=7, checked_to=3)
    async with opened(place) as archive:
        assert await archive.chat_states("s1") == []
        for state in (other, msgspec.structs.replace(one, access=None), one):
            await archive.save_chat_state(state)
        await archive.save_chat_state(ChatState(session_id="s2", chat_id=CHAT))
    async with opened(place) as archive:
        assert await archive.chat_states("s1") == [one, other]


async def test_counts_are_of_all_or_of_an_agent(place: Place) -> None:
    async with opened(place) as archive:
        await archive.add_session(session())
        await archive.keep_messages([message(1), message(1, edited_at_ms=NOW), message(2, agent_id="boris")])
        await archive.keep_events([event()])
        assert await archive.tally() == Tallied(sessions=1, messages=2, versions=1, events=1)
        assert await archive.tally("anna") == Tallied(sessions=1, messages=1, versions=1, events=1)
        assert await archive.tally("boris") == Tallied(sessions=0, messages=1, versions=0, events=0)


async def test_retention_lets_go_of_what_was_archived_long_ago(place: Place) -> None:
    async with opened(place) as archive:
        for number in range(6):
            at = {"created_at_ms": NOW + number, "session_id": f"s{number % 2}"}
            await archive.keep_messages([message(number, **at), message(number, text="new", edited_at_ms=NOW, **at)])
            await archive.keep_events([event(f"e{number}", **at)])
        forever = ArchiveRetention()
        assert await archive.clean(forever, at_ms=NOW * 2, limit=100) == 0
        four_days = ArchiveRetention(messages_ms=1000, events_ms=1000)
        assert await archive.clean(four_days, at_ms=NOW + 1004, limit=3) == 6
        assert await archive.clean(four_days, at_ms=NOW + 1004, limit=3) == 2
        assert await archive.clean(four_days, at_ms=NOW + 1004, limit=3) == 0
        assert await archive.tally() == Tallied(sessions=0, messages=2, versions=2, events=2)
        found, _ = await archive.messages(MessageFilter(text="new"), cursor=None, limit=9)
        assert [one.message_id for one in found] == [5, 4]
        left, _ = await archive.events(EventFilter(), cursor=None, limit=9)
        assert [one.event_id for one in left] == ["e5", "e4"]


async def test_who_is_in_a_chat_and_who_was(place: Place) -> None:
    async with opened(place) as archive:
        was, now = member(1, role="member", until_ms=NOW + 10), member(1, role="admin", since_ms=NOW + 10)
        gone, other = member(2, until_ms=NOW + 20, name="Gone\0"), member(3, chat_id=CHAT)
        await archive.save_members([now, was, gone, other, member(4)])
        await archive.save_members([])

        async def there(at_ms: int | None, *, after: int = 0, limit: int = 9) -> list[tuple[int, str]]:
            found = await archive.members("s1", CHANNEL, at_ms=at_ms, after=after, limit=limit)
            return [(one.user_id, one.role) for one in found]

        assert await there(None) == [(1, "admin"), (4, "member")]
        assert await there(None, limit=1) == [(1, "admin")]
        assert await there(None, after=1) == [(4, "member")]
        assert await there(NOW - 1) == []
        assert await there(NOW + 9) == [(1, "member"), (2, "member"), (4, "member")]
        assert await there(NOW + 10) == [(1, "admin"), (2, "member"), (4, "member")]
        await archive.save_members([member(4, until_ms=NOW + 30, name="Renamed")])
        assert await there(None) == [(1, "admin")]
        assert (await archive.members("s1", CHANNEL, at_ms=NOW, after=3, limit=9))[0].name == "Renamed"
        assert (await archive.members("s1", CHANNEL, at_ms=NOW, after=1, limit=9))[0].name == "Gone\ufffd"
        assert await archive.members("s2", CHANNEL, at_ms=None, after=0, limit=9) == []
        old = ArchiveRetention(events_ms=1)
        assert await archive.clean(old, at_ms=NOW + 21, limit=1) == 1
        assert await archive.clean(old, at_ms=NOW + 21, limit=9) == 0, "what holds until then stays"
        assert await there(NOW + 9) == [(2, "member"), (4, "member")]


async def test_a_person_is_forgotten(place: Place) -> None:
    async with opened(place) as archive:
        theirs = [message(1), message(1, text="edited", edited_at_ms=NOW), message(2, chat_id=CHANNEL)]
        await archive.keep_messages([*theirs, message(3, sender_id=PERSON + 1), message(4, sender_id=None)])
        await archive.keep_events([event("theirs", user_id=PERSON), event("other", user_id=1), event("nobody")])
        await archive.save_chat_state(ChatState(session_id="s1", chat_id=PERSON, title="Their name"))
        await archive.save_chat_state(ChatState(session_id="s1", chat_id=CHANNEL, title="A channel"))
        await archive.save_members([member(), member(until_ms=NOW + 1, since_ms=NOW - 1), member(PERSON + 1)])
        told = {"messages": 2, "versions": 1, "events": 1, "chat_states": 1, "members": 2, "feed": 0}
        assert await archive.forget_person(PERSON) == told
        assert await archive.forget_person(PERSON) == dict.fromkeys(told, 0)
        found, _ = await archive.messages(MessageFilter(), cursor=None, limit=9)
        assert [one.message_id for one in found] == [4, 3]
        assert await archive.messages(MessageFilter(text="edited"), cursor=None, limit=9) == ([], None)
        assert await archive.keep_messages([message(1)]) == KeptCounts(new=1)


async def test_the_private_chats_with_a_person_are_forgotten_whoever_wrote(place: Place) -> None:
    async with opened(place) as archive:
        ours = message(1, chat_id=PERSON, sender_id=1)
        await archive.keep_messages([ours, msgspec.structs.replace(ours, text="edited", edited_at_ms=NOW), message(2)])
        await archive.keep_messages([message(3, sender_id=1)])
        await archive.keep_events([event("read", chat_id=PERSON, user_id=1), event("other", chat_id=CHAT, user_id=1)])
        await archive.feed([line("a", chat_id=PERSON, user_id=1), line("b", chat_id=CHAT, user_id=1)])
        told = {"messages": 2, "versions": 1, "events": 1, "chat_states": 0, "members": 0, "feed": 1}
        assert await archive.count_person(PERSON) == told
        assert await archive.forget_person(PERSON) == told
        assert await archive.count_person(PERSON) == dict.fromkeys(told, 0)
        found, _ = await archive.messages(MessageFilter(), cursor=None, limit=9)
        assert [one.message_id for one in found] == [3]
        assert [one.key for one in await archive.fed("s1", after=0, limit=9)] == ["b"]


async def test_lines_of_the_log_are_dropped_by_themselves(place: Place) -> None:
    async with opened(place) as archive:
        theirs, other = log("sent", fields='{"chat":77}'), log("sent", fields='{"chat":78}')
        await archive.keep_logs([theirs, other])
        assert await archive.drop_logs([theirs]) == 1
        assert await archive.drop_logs([theirs]) == 0
        assert await archive.logs(LogFilter(), cursor=None, limit=9) == ([other], None)


async def test_what_is_put_is_there_as_it_was(place: Place) -> None:
    given: dict[RecordKind, list[Record]] = {
        RecordKind.SESSIONS: [session(f"s{n}", version=n + 4, secret=b"x") for n in range(5)],
        RecordKind.UPDATES_STATES: [UpdatesState(session_id=f"s{n}", state=b"\0") for n in range(5)],
        RecordKind.CHAT_STATES: [ChatState(session_id=f"s{n % 2}", chat_id=CHANNEL + n) for n in range(5)],
        RecordKind.MEMBERS: [
            member(n, session_id=f"s{n % 2}", until_ms=n or None, name="ن", username=f"u{n}" if n else None)
            for n in range(5)
        ],
        RecordKind.MESSAGES: [message(n, deleted_at_ms=n or None, text=f"n{n}", edited_at_ms=n) for n in range(5)],
        RecordKind.VERSIONS: [message(n % 2, edited_at_ms=n, text="old") for n in range(5)],
        RecordKind.EVENTS: [event(f"e{n}", user_id=n) for n in range(5)],
        RecordKind.FEED: [line(f"k{n}", session_id=f"s{n % 2}", number=n + 3, user_id=n) for n in range(5)],
        RecordKind.PLACES: [
            *(ReaderPlace(reader=f"r{n % 2}", session_id=f"s{n}", number=n + 1, at_ms=NOW + n) for n in range(5)),
            # How far the feeds went: see peik.archive.rules.
            *(ReaderPlace(reader="", session_id=f"s{n}", number=n + 9, at_ms=0) for n in range(3)),
        ],
        RecordKind.LOGS: [log(f"l{n % 2}", at_ms=NOW + n, fields=f'{{"n": {n}}}') for n in range(5)],
    }
    async with opened(place) as archive:
        assert await archive.progress() is None
        for _ in range(2):
            for kind, records in given.items():
                await archive.put(kind, records, f"at {kind}")
        assert await archive.progress() == "at logs"
        for kind, records in given.items():
            found: list[Record] = []
            after = None
            while True:
                page, after = await archive.page(kind, after=after, limit=2)
                found += page
                if after is None:
                    break
            assert sorted(map(repr, map(msgspec.json.encode, found))) == sorted(
                map(repr, map(msgspec.json.encode, records))
            )
        found_by_word, _ = await archive.messages(MessageFilter(text="N3"), cursor=None, limit=9)
        assert [one.message_id for one in found_by_word] == [3]
        # A copy that begins again does not take numbers back.
        await archive.put(RecordKind.FEED, given[RecordKind.FEED], "again")
        await archive.put(RecordKind.PLACES, [ReaderPlace(reader="", session_id="s2", number=1, at_ms=0)], "again")
        assert await archive.fed_to() == {
            "s0": Fed(first=3, last=9),
            "s1": Fed(first=4, last=10),
            "s2": Fed(first=12, last=11),
        }
        assert await archive.places("r1") == {"s1": 2, "s3": 4}
        assert await archive.feed([line("k0", session_id="s0"), line("new", session_id="s0")]) == 1
        assert [one.number for one in await archive.fed("s0", after=5, limit=9)] == [7, 10]


async def test_what_weakens_the_promise_is_said(place: Place) -> None:
    async with opened(place) as archive:
        told = await archive.durability()
        assert all("fsync" in sentence for sentence in told)  # the suite's own PostgreSQL runs without
        assert archive.trouble() is None
