"""Link codes in the hands of somebody who means no good: shown again, elsewhere, by others, or only seen in passing."""

import json
from typing import Any

import pytest

from peik.contacts.model import read_sighting
from peik.core.arrival import Arrival, read_update
from peik.notifications.links import TRIES_MAX
from peik.notifications.model import CODES, TRIES, LinkRefused
from peik.notifications.templates import load_outreach
from tests.notifications.outreach import AZIZ, LENA, THIEF, House
from tests.notifications.test_links import tell
from tests.outbox.story import BOT

WORDS = load_outreach()
CODE = "peik-" + "A" * 22


def test_a_code_cannot_be_guessed_and_its_text_is_kept_nowhere() -> None:
    async def story(house: House) -> None:
        codes = {(await house.links.new_code(f"user-{number}")).code for number in range(20)}
        assert len(codes) == 20
        assert {len(code) for code in codes} == {len(CODE)}  # 128 bits
        documents = await house.stage.peik.store.documents.documents(CODES, limit=100)
        assert len(documents) == 20
        assert not [code for code in codes for document in documents if code in document.key + document.body]

    tell(story)


def test_a_used_code_brings_no_link_back_that_was_undone_or_moved() -> None:
    async def story(house: House) -> None:
        first = await house.linked("lena", LENA)
        await house.links.unlink("lena")
        house.says(LENA, f"/start {first.code}")
        await house.until(lambda: len(house.got(LENA)) == 2)
        assert house.got(LENA)[1] == WORDS["ru"]["wrong"]  # not "linked", which would be a lie
        assert await house.link("lena") is None

        second = await house.linked("lena", LENA)
        await house.linked("lena", AZIZ)
        house.says(LENA, f"/start {second.code}")
        await house.until(lambda: len(house.got(LENA)) == 4)
        assert house.got(LENA)[3] == WORDS["ru"]["wrong"]
        link = await house.link("lena")
        assert link is not None
        assert link.chat_id == AZIZ

    tell(story)


def test_used_codes_count_as_guesses_and_one_chats_guesses_lock_no_other() -> None:
    async def story(house: House) -> None:
        code = await house.linked("lena", LENA)
        for _ in range(TRIES_MAX):
            house.says(THIEF, f"/start {code.code}")
        await house.until(lambda: len(house.stage.events_of(LinkRefused)) == TRIES_MAX)
        own = await house.links.new_code("thief")
        house.says(THIEF, f"/start {own.code}")
        await house.until(lambda: len(house.stage.events_of(LinkRefused)) == TRIES_MAX + 1)
        assert await house.link("thief") is None
        await house.linked("aziz", AZIZ)
        assert await house.stage.peik.store.documents.count_documents(TRIES) == 1

    tell(story)


PERSON = {"id": THIEF, "is_bot": False, "first_name": "T"}
PRIVATE = {"id": THIEF, "type": "private", "first_name": "T"}


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("edited_message", {"chat": PRIVATE, "from": PERSON, "text": f"/start {CODE}", "edit_date": 2}),
        ("channel_post", {"chat": {"id": -100, "type": "channel", "title": "C"}, "text": CODE}),
        ("message", {"chat": {"id": -5, "type": "group", "title": "G"}, "from": PERSON, "text": f"/start {CODE}"}),
        ("message", {"chat": PRIVATE, "from": {**PERSON, "id": 99}, "text": f"/start {CODE}"}),
        ("message", {"chat": PRIVATE, "text": CODE}),
        ("message", {"chat": PRIVATE, "from": PERSON, "text": f"look: /start {CODE}"}),
        ("message", {"chat": PRIVATE, "from": PERSON, "caption": CODE, "photo": []}),
        ("business_message", {"chat": PRIVATE, "from": PERSON, "text": CODE}),
    ],
    ids=["edited", "channel", "group", "somebody else", "nobody", "in a sentence", "caption", "business"],
)
def test_a_code_is_shown_only_by_a_person_who_writes_it_to_the_bot(type_: str, body: dict[str, Any]) -> None:
    update = {"update_id": 7, type_: {"message_id": 1, "date": 1_760_000_000, **body}}
    read = read_update(json.dumps(update).encode())
    arrival = Arrival(
        id=1, bot_id=BOT, number=1, epoch=1, update_id=7, type=read.type, lane=read.lane, received_at_ms=1, payload=read.payload,
    )  # fmt: skip
    seen = read_sighting(arrival)
    assert seen is None or seen.code is None
