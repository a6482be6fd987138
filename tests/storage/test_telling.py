"""News between nodes: what is told is heard, merged, never too long, and never one's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.core.nodes import News
from peik.storage.news import LINE_BYTES_MAX, NewsPause, NodeNews


def heard(*lines: str, besides: str = "me") -> News:
    telling = NodeNews()
    for line in lines:
        telling.hear(line, besides=besides)
    return telling.news()


def test_what_is_told_is_heard_as_it_was() -> None:
    telling = NodeNews()
    telling.accepted(7, 10, 12)
    telling.accepted(7, 13, 13)
    telling.accepted(7, 200, 201)
    telling.accepted(8, 14, 14)
    telling.ended(7, [3, 4])
    telling.lanes.add(9)
    telling.chats.add(8)
    telling.arrivals.add(7)
    telling.consumers()
    telling.records()
    telling.leases()
    telling.jobs()
    telling.due(500)
    telling.due(400)
    telling.due(None)
    assert heard(telling.line("other")) == News(
        accepted=((7, 10, 13), (7, 200, 201), (8, 14, 14)),
        ended={7: (3, 4)},
        lanes=frozenset({9}),
        chats=frozenset({8}),
        arrivals=frozenset({7}),
        is_consumers=True,
        is_records=True,
        is_leases=True,
        is_jobs=True,
        due_at_ms=400,
    )


def test_ones_own_news_are_none_and_nothing_is_nothing() -> None:
    telling = NodeNews()
    assert not telling
    telling.ended(7, [])
    assert not telling
    telling.records()
    assert telling
    assert heard(telling.line("me")) == News()


def test_lines_of_another_kind_are_reason_to_look_everywhere() -> None:
    assert heard("hello") == heard('{"a": 1}') == News(is_all=True)


def test_several_lines_are_merged_as_if_they_had_been_told_at_once() -> None:
    one, two, both = NodeNews(), NodeNews(), NodeNews()
    for telling in (one, both):
        telling.accepted(7, 1, 2)
        telling.ended(7, [5])
    for telling in (two, both):
        telling.accepted(7, 3, 4)
        telling.ended(7, [6])
        telling.lanes.add(8)
    one.add(two)
    assert (
        heard(one.line("a"))
        == heard(both.line("a"))
        == News(accepted=((7, 1, 4),), ended={7: (5, 6)}, lanes=frozenset({8}))
    )


def test_too_many_to_name_are_told_without_their_names() -> None:
    telling = NodeNews()
    telling.ended(7, range(10**9, 10**9 + 2000))
    telling.accepted(8, 1, 1)
    assert heard(telling.line("a")) == News(accepted=((8, 1, 1),), ended={7: ()})
    for number in range(2000):
        telling.accepted(9, 99 * number, 99 * number)
    assert heard(telling.line("a")) == News(lanes=frozenset({8, 9}), ended={7: ()})
    for bot_id in range(10**9, 10**9 + 2000):
        telling.lanes.add(bot_id)
    telling.due(6)
    assert heard(telling.line("a")) == News(is_all=True, due_at_ms=6)


def test_a_line_by_itself_goes_at_once_and_each_of_a_row_waits_longer() -> None:
    pause, now, waited = NewsPause(), 100.0, list[float]()
    for _ in range(6):
        waited.append(pause.wait_s(now))
        now += waited[-1]
        pause.said(now)
    assert waited == pytest.approx([0, 0.005, 0.01, 0.02, 0.02, 0.02])
    assert pause.wait_s(now + 0.021) == 0
    pause.said(now + 0.021)
    assert pause.wait_s(now + 0.022) == pytest.approx(0.004)


@given(st.data())
def test_no_line_is_too_long_and_none_hides_anything(data: st.DataObject) -> None:
    ids = st.integers(1, 10**15)
    telling = NodeNews()
    accepted = data.draw(st.lists(st.tuples(st.integers(1, 5), ids), max_size=600))
    ended = data.draw(st.lists(st.tuples(st.integers(1, 5), ids), max_size=600))
    for bot_id, letter_id in accepted:
        telling.accepted(bot_id, letter_id, letter_id)
    for bot_id, letter_id in ended:
        telling.ended(bot_id, [letter_id])
    line = telling.line("a-node")
    assert len(line) <= LINE_BYTES_MAX
    news = heard(line)
    for bot_id, letter_id in accepted:
        is_named = any(bot == bot_id and first <= letter_id <= last for bot, first, last in news.accepted)
        assert news.is_all or bot_id in news.lanes or is_named
    for bot_id, letter_id in ended:
        assert news.is_all or not news.ended[bot_id] or letter_id in news.ended[bot_id]
