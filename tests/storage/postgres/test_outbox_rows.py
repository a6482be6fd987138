"""What `enqueue` stores is what the service and the store would have stored, column by column; it refuses what they refuse."""

import asyncio
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peik.core.letter import LetterCall
from peik.core.methods import known_methods
from peik.outbox.service import _digest as service_digest
from tests.storage.all_places import LIVES_ON_SERVERS
from tests.storage.postgres.outbox_service import SENDING, Counters, counters

EXAMPLES = 8 * LIVES_ON_SERVERS

PAST, LATER, MUCH_LATER = (datetime.datetime(year, 5, 6, 7, 8, 9, 123000, datetime.UTC) for year in (2001, 2090, 2091))

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
anything = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.5, 1.0, 51.3380]) | texts
references = st.sampled_from([{"letter": 1}, {"letter": "2"}, '{"letter": "1"}', {"letter": "x"}, {"letter": 0}])
message_ids = st.sampled_from([5, "5", " 05 ", "", None, 6]) | references | anything
PARAMS: dict[str, st.SearchStrategy[Any]] = {
    "chat_id": st.sampled_from(
        [
            1,
            "1",
            " -100123 ",
            "@Name",
            "name",
            "007",
            "-0",
            "",
            "  ",
            None,
            1.0,
            10**30,
            -(2**63),
            True,
            "@" + "x" * 256,
        ]
    ),
    "message_thread_id": st.sampled_from([None, 0, 3, "3", " 4 ", "+5", "", "x", 10**19, 1.5, [1]]),
    "user_id": st.sampled_from([None, "", 9, "9", " 9", "nine", 10**25, {}]),
    "inline_message_id": st.sampled_from([None, "", "AAA", "7", 7]),
    "business_connection_id": st.sampled_from([None, "", "bc", "\x07"]),
    "message_id": message_ids,
    "reply_to_message_id": message_ids,
    "reply_parameters": st.builds(lambda one: {"message_id": one}, message_ids)
    | st.just('{"message_id": {"letter": 1}}'),
    "ephemeral_message_id": anything | st.lists(anything, max_size=2),
    "receiver_user_id": anything | st.dictionaries(texts, anything, max_size=2),
    "text": anything
    | st.sampled_from(["x" * 4096, "😀" * 4097, " \u2003\u3000", "{not json", '[1, {"b": 1, "a": 2.50}]']),
    "caption": anything | st.sampled_from(["x" * 4096, "x" * 4097]),
    "parse_mode": st.sampled_from([None, "", "HTML", []]),
    "entities": st.sampled_from([None, [], [{"type": "bold"}]]),
    "caption_entities": st.sampled_from([None, [], "[]"]),
    "media": st.sampled_from([None, [], [1, 2, 3], "[1, 2]", "[1,", {}]),
    "message_ids": st.sampled_from([None, [], [4, 5, 6, 7], "[4, 5]", 4]),
    "reply_markup": st.dictionaries(texts, anything, max_size=3),
}
TERMS: dict[str, st.SearchStrategy[Any]] = {
    "priority": st.integers(-2, 3),
    "attempts": st.sampled_from([1, 100, 0, 101]),
    "backoff_ms": st.sampled_from([0, 86_400_000, -1, 86_400_001]),
    "timeout_ms": st.sampled_from([1, 3_600_000, 0, 3_600_001]),
    "on_uncertain": st.sampled_from(["resend", "hold"]),
    "backoff": st.sampled_from(["exponential", "fixed"]),
    "idempotency_key": st.sampled_from(["one", "two", "", "k" * 255, "k" * 256]),
    "send_at": st.sampled_from([PAST, LATER, MUCH_LATER]),
    "expires_at": st.sampled_from([PAST, LATER]),
    "metadata": st.sampled_from(
        [
            {},
            {"user_id": 5, "message_type": "é"},
            {"user_id": None},
            {"order": [1, {"a": 1.5}]},
            {"x": "y" * 9000},
            [],
            1,
        ]
    ),
    "bot_id": st.just(404),
}
# What would be refused for another reason nearly always is left to the story of each field.
right = {
    "chat_id": st.sampled_from([1, "1", "@Name", "name", -100123]),
    "text": st.just("hi"),
    "message_id": st.just(5),
}
known = st.sampled_from(sorted(known_methods()))
methods = known | st.sampled_from(
    ["SENDMESSAGE", "editmessagetext", "sendNews", "EditNews", "setNews", "giftNews", "frob", "a-b", ""]
)


def some(of: dict[str, st.SearchStrategy[Any]], *, most: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.lists(st.sampled_from(sorted(of)), max_size=most, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: of[name] for name in names})
    )


calls = st.tuples(
    methods | st.just("editMessageText"),
    st.builds(lambda one, other: {**one, **other}, st.fixed_dictionaries(right), some(PARAMS, most=3))
    | some(PARAMS, most=5),
    some(TERMS, most=2),
)


class Room:
    """Both counters, open for all examples of a property, on a loop of their own."""

    def __init__(self, folder: Path) -> None:
        self._runner = asyncio.Runner()
        self._opening = counters(folder)
        self.counters: Counters = self._runner.run(self._opening.__aenter__())

    def run(self, story: Any) -> Any:
        return self._runner.run(story)

    def close(self) -> None:
        self._runner.run(self._opening.__aexit__(None, None, None))
        self._runner.close()


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    made = Room(tmp_path_factory.mktemp("room"))
    yield made
    made.close()


async def check_all_alike(both: Counters) -> None:
    letters = await both.everything("letters")
    for rows in letters:
        for row in rows:
            row["settled_at"] = row["settled_at"] is not None  # a merge is made at the commit, a moment after the call
    assert letters[0] == letters[1]
    one, other = await both.everything("tallies")
    assert one == other
    one, other = await both.everything("idempotency")
    assert one == other
    assert await both.connections[0].fetch("SELECT 1 FROM enqueued") == []


@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(brought=st.lists(calls, min_size=1, max_size=6))
def test_any_calls_make_the_rows_that_the_service_makes_or_are_refused_alike(room: Room, brought: list[Any]) -> None:
    async def story() -> None:
        await room.counters.begin_anew()
        for method, params, terms in brought:
            one, other = await room.counters.bring(method, params, **terms)
            assert one == other, (method, params, terms)
        await check_all_alike(room.counters)

    room.run(story())


KEY = {"idempotency_key": "k"}
EDIT = {"chat_id": 1, "message_id": 5, "text": "new"}
STORIES: dict[str, list[tuple[str, dict[str, Any], dict[str, Any], str]]] = {
    "lengths": [
        ("sendMessage", {"chat_id": 1, "text": "😀" * 4096}, {}, ""),
        ("sendMessage", {"chat_id": 1, "text": "😀" * 4097}, {}, "text_too_long"),
        ("sendMessage", {"chat_id": 1, "text": "x" * 5000, "parse_mode": "HTML"}, {}, ""),
        ("sendMessage", {"chat_id": 1, "text": "x" * 5000, "entities": []}, {}, ""),
        ("sendMessage", {"chat_id": 1, "text": " \u3000\x85"}, {}, "text_empty"),
        ("sendPhoto", {"chat_id": 1, "caption": "x" * 4097}, {}, "caption_too_long"),
        ("sendPhoto", {"chat_id": 1, "caption": "x" * 4097, "caption_entities": []}, {}, ""),
        ("sendPhoto", {"chat_id": 1, "p": "x" * (2**20 - 23)}, {}, ""),  # with {"p": "", "chat_id": 1}: 2**20
        ("sendPhoto", {"chat_id": 1, "p": "x" * (2**20 - 22)}, {}, "params_too_large"),
        ("sendMessage", SENDING, {"metadata": {"x": "y" * 8183}}, ""),  # with {"x": ""}: 8192
        ("sendMessage", SENDING, {"metadata": {"x": "y" * 8184}}, "metadata_too_large"),
    ],
    "keys": [
        ("sendMessage", SENDING, KEY, ""),
        ("sendmessage", {"text": "hi", "chat_id": "1"}, KEY, ""),
        ("sendMessage", SENDING, {**KEY, "expires_at": PAST}, ""),  # a repeat of one that was in time
        ("sendMessage", SENDING, {"idempotency_key": "new", "expires_at": PAST}, "already_expired"),
        ("sendMessage", {"chat_id": 1, "text": "ho"}, KEY, "idempotency_key_reused"),
        ("sendPhoto", SENDING, KEY, "idempotency_key_reused"),
    ],
    "edits": [
        ("editMessageText", EDIT, {}, ""),
        ("editMessageText", EDIT, {"send_at": LATER}, ""),
        ("editMessageText", {**EDIT, "chat_id": " 1 ", "message_id": "05"}, {}, ""),
        ("editMessageText", {**EDIT, "message_id": {"letter": 1}}, {}, ""),
        ("editMessageCaption", EDIT, {}, ""),
        ("editMessageText", {**EDIT, "business_connection_id": "7"}, {"priority": 2}, ""),
        ("editMessageText", EDIT, {"send_at": PAST}, ""),
        ("editMessageText", EDIT, {"send_at": MUCH_LATER, "expires_at": LATER}, "expires_before_sent"),
    ],
}


@pytest.mark.parametrize("name", STORIES)
def test_what_is_at_the_edge_is_taken_or_refused_alike(room: Room, name: str) -> None:
    async def story() -> None:
        await room.counters.begin_anew()
        for method, params, terms, code in STORIES[name]:
            one, other = await room.counters.bring(method, params, **terms)
            assert one == other
            assert isinstance(one, int) if not code else one == code
        await check_all_alike(room.counters)

    room.run(story())


@pytest.mark.parametrize("method", sorted(known_methods()))
def test_every_method_is_queued_and_counted_as_the_service_does(room: Room, method: str) -> None:
    async def story() -> None:
        await room.counters.begin_anew()
        whole = {**SENDING, "message_id": 5, "user_id": 3, "media": [1, 2], "message_ids": [1, 2, 3]}
        for params in (whole, whole, {}, {"user_id": 3}, {"chat_id": -1, "message_thread_id": 8}):
            one, other = await room.counters.bring(method, params)
            assert one == other
        await check_all_alike(room.counters)

    room.run(story())


@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(params=some(PARAMS, most=6))
def test_a_key_that_was_used_at_one_door_is_known_at_the_other(room: Room, params: dict[str, Any]) -> None:
    async def story() -> None:
        one = room.counters.connections[0]
        digest, written = await one.fetchrow("SELECT digest_of('sendMessage', $1), $1::jsonb::text", json.dumps(params))
        assert digest == service_digest(LetterCall(method="", params=written.encode()), "sendMessage")

    room.run(story())
