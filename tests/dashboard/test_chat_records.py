"""One chat is found among all that something is known of, on every store, whichever way it orders them."""

from hypothesis import example, given
from hypothesis import strategies as st

from peik.contacts.pages import places_before

numbers = st.one_of(st.integers(min_value=-(10**13), max_value=10**13), st.integers(-30, 30)).filter(bool)
names = st.from_regex(r"@[a-z0-9_]{1,32}", fullmatch=True)


@given(chat=numbers, others=st.sets(numbers))
@example(chat=1, others={10, 100, -1})
@example(chat=-1, others={-10, 1})
@example(chat=-10, others={-1, -100, -11})
def test_nothing_is_between_a_number_and_its_place(chat: int, others: set[int]) -> None:
    as_number, as_text = places_before(chat)
    assert isinstance(as_number, int)
    text = "" if as_text is None else str(as_text)
    assert as_number < chat
    assert text < str(chat)
    for other in others - {chat}:
        assert not as_number < other < chat
        assert not text < str(other) < str(chat)


@given(chat=names, others=st.sets(names))
def test_nothing_is_between_a_name_and_its_place(chat: str, others: set[str]) -> None:
    (place,) = places_before(chat)
    assert isinstance(place, str)
    assert place < chat
    assert not [other for other in others - {chat} if place < other < chat]
