"""Whether a text names a person, and what is left of it without them."""

import msgspec
import pytest

from peik.erasure.model import ErasedCounts, ErasedPerson, added, hollow, is_clean, is_over, names, reworded, scrubbed

ANN = ErasedPerson(user_id=912345678, names=frozenset({"ann", "42"}))
SHORT = ErasedPerson(user_id=77)


@pytest.mark.parametrize(
    "text",
    [
        '{"chat_id":912345678}',
        '{"chat_id":"912345678"}',
        '{"from":{"id":912345678}}',
        '{"user_ids":[1,912345678]}',
        '{"reply_markup":"{\\"user_id\\":912345678}"}',
        '{"text":"see tg://user?id=912345678"}',
        '{"customer":912345678}',
        '{"user_id":"ann"}',
        "order/912345678",
        "user-912345678",
        "912345678",
        "ann",
    ],
)
def test_a_text_names_the_person(text: str) -> None:
    assert names(ANN, text)
    assert not names(ANN, scrubbed(ANN, text))


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        '{"message_id":912345678}',
        '{"file_size":912345678,"date":912345678}',
        '{"chat_id":-912345678}',
        '{"chat_id":-100912345678}',
        '{"text":"9123456789"}',
        '{"file_id":"AgACx912345678y"}',
        '{"chat_id":"-912345678"}',
        '{"text":"ann"}',
        '{"number":"42"}',
        "-912345678",
        "annabel",
    ],
)
def test_a_text_names_somebody_else_or_nobody(text: str | None) -> None:
    assert not names(ANN, text)
    assert text is None or scrubbed(ANN, text) == text


def test_a_short_number_in_a_sentence_is_nobody() -> None:
    assert not names(SHORT, '{"text":"77 apples"}')
    assert names(SHORT, '{"chat_id":77}')
    assert scrubbed(SHORT, "77 apples") == "77 apples"


def test_what_they_wrote_inside_somebody_elses_update_goes() -> None:
    quoted = {
        "message_id": 5, "date": 1, "text": "secret", "photo": [{"file_id": "x"}],
        "chat": {"id": -7, "type": "group", "title": "Us"}, "from": {"id": 912345678, "is_bot": False, "first_name": "Ann"},
    }  # fmt: skip
    update = {
        "message": {"message_id": 6, "from": {"id": 1, "first_name": "Bo"}, "text": "yes", "reply_to_message": quoted}
    }
    left = msgspec.json.decode(scrubbed(ANN, msgspec.json.encode(update).decode()))
    assert left["message"]["text"] == "yes"
    assert left["message"]["from"] == {"id": 1, "first_name": "Bo"}
    assert left["message"]["reply_to_message"] == {
        "message_id": 5,
        "date": 1,
        "chat": {"id": -7, "type": "group", "title": "Us"},
        "from": {"id": 0, "is_bot": False, "first_name": ""},
    }


def test_their_own_update_keeps_its_shape_and_nothing_else() -> None:
    update = {
        "message": {
            "message_id": 5, "date": 9, "text": "secret", "location": {"latitude": 35.7, "longitude": 51.4},
            "chat": {"id": 912345678, "type": "private", "first_name": "Ann"}, "from": {"id": 912345678, "is_bot": False},
            "entities": [{"type": "phone_number", "offset": 0, "length": 6}], "contact": {"phone_number": "+98912"},
        }
    }  # fmt: skip
    assert msgspec.json.decode(hollow(ANN, msgspec.json.encode(update).decode())) == {
        "message": {
            "message_id": 5, "date": 9, "text": "", "location": {"latitude": 0.0, "longitude": 0.0},
            "chat": {"id": 0, "type": "private", "first_name": ""}, "from": {"id": 0, "is_bot": False},
            "entities": [{"type": "phone_number", "offset": 0, "length": 0}], "contact": {"phone_number": ""},
        }
    }  # fmt: skip
    assert hollow(ANN, "no JSON") == "{}"


def test_figures_stay_what_they_are_and_words_lose_the_person() -> None:
    document = '{"delivered":912345678,"who":"ann","target":"7/ann/912345678","detail":"chat 912345678"}'
    assert reworded(ANN, document) == '{"delivered":912345678,"who":"ann","target":"7/0/0","detail":"chat 0"}'


def test_what_was_found_adds_up() -> None:
    whole = added([{"letters": ErasedCounts(removed=2)}, {"letters": ErasedCounts(left=1), "jobs": ErasedCounts()}])
    assert whole == {"letters": ErasedCounts(removed=2, left=1), "jobs": ErasedCounts()}
    assert not is_over(whole)
    assert not is_clean(whole)
    assert is_clean({"jobs": ErasedCounts()})
