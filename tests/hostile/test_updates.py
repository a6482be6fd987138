"""Updates from somebody who is not Telegram: nothing is confirmed that is not stored, and no good neighbour is lost."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peik.core import events
from peik.core.outcome import NetworkFault, Reply
from peik.telegram.port import Request
from tests.hostile.offices import Heard, Resident, resident
from tests.inbox.sources import Bench, stored_in
from tests.outbox.story import BOT, Stage, play_closed

EXAMPLES = int(os.environ.get("TEST_HOSTILE_EXAMPLES", "800")) // 16
LONG_S = 600.0  # of virtual time: more than all that is put off
NOTHING = b'{"ok":true,"result":[]}'


class Impostor:
    """Somebody who answers in Telegram's place, and remembers with which offset he was asked."""

    def __init__(self, answers: list[Reply]) -> None:
        self._answers = answers[::-1]
        self.asked: list[tuple[int | None, set[str]]] = []  # the offset, and what was stored by then
        self.stored: Callable[[], Any] = lambda: None

    async def carry(self, request: Request) -> Reply:
        if request.method != "getUpdates":
            return Reply(status=200, body=b'{"ok":true,"result":{"url":""}}')
        self.asked.append((json.loads(request.params).get("offset"), await self.stored()))
        await asyncio.sleep(1.0 if self._answers else 50.0)  # as a long poll that finds something, or nothing
        return self._answers.pop() if self._answers else Reply(status=200, body=NOTHING)

    def when_back(self, ring: Callable[[], None]) -> None: ...

    @property
    def has_said_all(self) -> bool:
        return not self._answers


def polled(*answers: Reply, for_s: float = LONG_S) -> tuple[Impostor, set[str], list[events.Event]]:
    """Who was asked what, the texts that are stored in the end, and what was told. A poller that dies raises here."""
    found: list[Any] = []

    async def story(stage: Stage) -> None:
        bench = await Bench.open(stage)

        async def stored() -> set[str]:
            return {name for one in await stored_in(bench.store) for name in _texts_in(json.loads(one.payload))}

        impostor = Impostor(list(answers))
        impostor.stored = stored
        bench.way = impostor  # type: ignore[assignment]
        try:
            await bench.run_for(for_s)
            found.extend([impostor, await stored(), bench.told])
        finally:
            await bench.store.close()

    play_closed(story)
    return found[0], found[1], found[2]


def _texts_in(payload: dict[str, Any]) -> set[str]:
    return {str(payload["mark"])} if "mark" in payload else set()


def update(update_id: int, mark: str, **more: object) -> bytes:
    """A good one, with a mark to know it by."""
    return msgspec.json.encode({"update_id": update_id, **more, "mark": mark})


def answered(*each: bytes) -> Reply:
    return Reply(status=200, body=b'{"ok":true,"result":[' + b",".join(each) + b"]}")


# ---- answers that are none ----

NO_ANSWERS = {
    "not a list": b'{"ok":true,"result":{"update_id":5,"message":{}}}',
    "a text": b'{"ok":true,"result":"[]"}',
    "null": b'{"ok":true,"result":null}',
    "no result": b'{"ok":true}',
    "only things that are none": b'{"ok":true,"result":[1,"x",null,[],{}]}',
    "ids that are none": b'{"ok":true,"result":[{"update_id":-5},{"update_id":0},{"update_id":"7"},{"update_id":1e300}]}',
    "an id beyond all numbers": b'{"ok":true,"result":[{"update_id":%b,"message":{}}]}' % (b"9" * 400),
    "half an answer": b'{"ok":true,"result":[{"update_id":5,"mess',
    "a nest": b'{"ok":true,"result":[{"update_id":5,"message":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
    "a page": b"<html>welcome to the hotel</html>",
    "nothing at all": b"",
    "noise": bytes(range(256)),
    "five megabytes of noise": b"\xff" * (5 << 20),
    "a no that is none": b'{"ok":false}',
    "a no with odd figures": b'{"ok":false,"error_code":"x","parameters":{"retry_after":"soon"}}',
}  # fmt: skip


@pytest.mark.parametrize("what", NO_ANSWERS)
def test_an_answer_that_is_none_confirms_nothing_and_what_follows_is_taken_in(what: str) -> None:
    impostor, stored, _ = polled(
        answered(update(10, "before")), Reply(status=200, body=NO_ANSWERS[what]), answered(update(11, "after"))
    )
    assert stored == {"before", "after"}
    assert [offset for offset, _ in impostor.asked][:4] == [None, 11, 11, 12]


def test_a_source_that_says_nothing_but_nonsense_is_told_and_asked_on() -> None:
    nonsense = [Reply(status=200, body=body) for body in NO_ANSWERS.values()] * 2
    impostor, stored, told = polled(*nonsense, answered(update(11, "after")), for_s=3 * LONG_S)
    assert stored == {"after"}
    assert any(isinstance(event, events.SourceFailed) for event in told)
    assert {offset for offset, _ in impostor.asked} == {None, 12}


# ---- good ones among bad ones ----

JUNK = [
    *(b"1", b'"x"', b"null", b"[]", b"{}", b'{"message":{"text":"no id"}}', b'{"update_id":-1,"message":{}}'),
    *(
        b'{"update_id":"5"}',
        b'{"update_id":%d}' % 2**60,
        b'{"update_id":1.5}',
        b'{"update_id":true}',
        b'{"update_id":[1]}',
    ),
]
_numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
_names = st.sampled_from(["id", "chat", "from", "message", "date", "text"])
_odd = st.recursive(
    st.none() | st.booleans() | _numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=8,
)
_kinds = st.sampled_from(
    ["message", "poll", "callback_query", "my_chat_member", "brand_new_type", "", "UPPER", "x" * 200, "a.b", '"', "\0"]
)
_bodies = st.dictionaries(_kinds, _odd, max_size=2)
_ids = st.one_of(st.integers(1, 40), st.integers(1, 2**53), st.sampled_from([2**31 - 1, 2**31, 2**53]))


@st.composite
def _answers(draw: st.DrawFn) -> list[tuple[list[bytes], set[str], int]]:
    """Some answers: what each holds, the marks of its good ones, and how many of it are none. No id comes twice."""
    ids = iter(draw(st.lists(_ids, unique=True, min_size=1, max_size=12)))
    made = []
    for number in range(draw(st.integers(1, 4))):
        each, marks, junk = [], set(), 0
        for place in range(draw(st.integers(0, 4))):
            update_id = next(ids, None)
            if update_id is None or draw(st.integers(0, 3)) == 0:
                each.append(draw(st.sampled_from(JUNK)))
                junk += 1
                continue
            mark = f"{number}-{place}"
            each.append(update(update_id, mark, **draw(_bodies)))
            marks.add(mark)
        made.append((each, marks, junk))
    return made


@settings(max_examples=EXAMPLES, derandomize=True)
@given(_answers())
def test_whatever_stands_beside_them_good_updates_are_stored_before_anything_is_confirmed(
    answers: list[tuple[list[bytes], set[str], int]],
) -> None:
    impostor, stored, told = polled(*(answered(*each) for each, _, _ in answers))
    assert impostor.has_said_all, "the poller stopped asking"
    assert stored == {mark for _, marks, _ in answers for mark in marks}
    # When it asked next, everything good that had been said before was stored already.
    for number, (_, by_then) in enumerate(impostor.asked[: len(answers) + 1]):
        assert by_then == {mark for _, marks, _ in answers[:number] for mark in marks}
    # What was left out beside good ones was told.
    left_out = sum(1 for _, marks, junk in answers if marks and junk)
    assert len([event for event in told if isinstance(event, events.Surprise)]) == left_out


def test_an_answer_of_five_megabytes_is_taken_in() -> None:
    large = [update(10 + number, str(number), text="x" * (1 << 20)) for number in range(5)]
    _, stored, _ = polled(answered(*large), answered(update(15, "5")))
    assert stored == {str(number) for number in range(6)}


def test_the_same_update_many_times_is_one_arrival() -> None:
    same = update(10, "same")
    impostor, stored, _ = polled(answered(same, same, same), answered(same, update(11, "next"), same))
    assert stored == {"same", "next"}
    assert max(offset or 0 for offset, _ in impostor.asked) <= 12


def test_texts_that_are_broken_in_their_characters_only_are_taken_in() -> None:
    broken = b'{"update_id":10,"mark":"a","text":"\\ud83d"}', b'{"update_id":11,"mark":"b","text":"\xff"}'
    _, stored, _ = polled(answered(*broken, update(12, "c")))
    assert stored == {"a", "b", "c"}


@pytest.mark.parametrize("status", [200, 204, 302, 400, 401, 403, 404, 409, 429, 500, 502])
def test_no_status_with_updates_in_its_body_confirms_what_is_not_stored(status: int) -> None:
    body = answered(update(10, "early")).body
    impostor, stored, _ = polled(Reply(status=status, body=body), answered(update(11, "late")), for_s=3 * LONG_S)
    confirmed = max(offset or 0 for offset, _ in impostor.asked)
    assert "late" in stored
    assert confirmed == 12
    if status >= 300:
        assert impostor.asked[1][0] is None, "an error was taken for a yes"


def test_a_connection_that_breaks_confirms_nothing() -> None:
    impostor, stored, _ = polled(
        Reply(fault=NetworkFault.RESET),
        Reply(fault=NetworkFault.GARBLED),
        Reply(fault=NetworkFault.DNS, left=False),
        answered(update(3, "a")),
    )
    assert stored == {"a"}
    assert [offset for offset, _ in impostor.asked][:4] == [None] * 4


# ---- pushes ----

SECRET = b"x-telegram-bot-api-secret-token"


@pytest.fixture(scope="module")
def peik() -> Iterator[Resident]:
    with resident(public_url="https://bot.example.com") as one:
        assert one.rest("PATCH", f"/v1/bots/{BOT}", json={"inbound": "webhook"}).status == 200
        yield one
        assert one.surprises() == []
        assert one.crashes == []


def push(peik: Resident, body: bytes) -> Heard:
    secret = peik.run(peik.peik.inbox.receiver.pushed.secret(BOT)).encode()
    heard = peik.ask("POST", f"/webhook/{BOT}", headers=[(SECRET, secret)], body=body)
    assert heard is not None
    return heard


def arrivals(peik: Resident) -> int:
    return len(peik.state()["arrivals"])


_pushes = st.one_of(
    st.tuples(_ids, _bodies).map(lambda pair: update(pair[0], f"pushed {pair[0]}", **pair[1])),
    st.tuples(_ids, _bodies, st.integers(0, 99)).map(
        lambda three: update(three[0], f"cut {three[0]}", **three[1])[: -three[2] - 1]
    ),
    st.sampled_from([*JUNK, *NO_ANSWERS.values()]),
    st.binary(max_size=60),
)


@settings(max_examples=6 * EXAMPLES, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_pushes)
def test_a_push_is_answered_200_only_if_it_is_stored(peik: Resident, body: bytes) -> None:
    before = arrivals(peik)
    heard = push(peik, body)
    added = arrivals(peik) - before
    if heard.status == 200:
        known = {json.loads(body.decode(errors="replace"))["update_id"]}
        assert added == 1 or known <= {row for rows in peik.state()["arrivals"] for row in rows}, (
            "stored now, or before"
        )
    else:
        assert added == 0
        assert heard.status in (400, 413)  # never 410, on which Telegram removes the webhook
        assert heard.headers["content-type"] == "application/problem+json"


def test_after_all_of_this_good_pushes_are_taken_in_and_handed_on(peik: Resident) -> None:
    before = arrivals(peik)
    assert push(peik, update(2**40 + 7, "good", message={"chat": {"id": 5}, "message_id": 1})).status == 200
    assert arrivals(peik) == before + 1
    assert peik.rest("GET", "/v1/arrivals", query="limit=1000").status == 200
