"""A person is forgotten in every kind of archive: nothing in it names them any more."""

import re
from pathlib import Path

import msgspec
import pytest

from peik.archive.store import Archive, RecordKind
from peik.erasure.model import ErasedPerson, is_clean
from peik.erasure.parts import ArchivePart
from tests.archive.places import PLACES, Place, opened
from tests.archive.samples import CHANNEL, NOW, event, line, log, message, session

PERSON = 912345678
MARKER = "saffron-and-rosewater"


@pytest.fixture(params=PLACES, ids=lambda place: place.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made: Place = request.param(tmp_path)
    return made


async def fill(archive: Archive) -> None:
    theirs = message(1, chat_id=CHANNEL, sender_id=PERSON, text=MARKER, raw=f'{{"from":{PERSON}}}')
    private = message(2, chat_id=PERSON, sender_id=1, text=MARKER)
    await archive.keep_messages([theirs, msgspec.structs.replace(theirs, edited_at_ms=NOW), private, message(3)])
    await archive.keep_events([event("e1", user_id=PERSON, payload=f'"{MARKER}"'), event("e2", chat_id=PERSON)])
    await archive.feed([line("k1", user_id=PERSON, body=f'"{MARKER}"'), line("k2", chat_id=PERSON), line("k3")])
    await archive.add_session(session("s1", metadata=f'{{"owner":{PERSON},"shop":5}}'))
    await archive.keep_logs([log("sent", fields=f'{{"chat":{PERSON}}}'), log("sent", fields='{"chat":5}')])


async def remains(archive: Archive) -> list[str]:
    found = []
    for kind in RecordKind:
        page, _ = await archive.page(kind, after=None, limit=100)
        found += [f"{kind}: {one}" for one in map(str, map(msgspec.to_builtins, page)) if _WORDS.search(one)]
    return found


_WORDS = re.compile(rf"{MARKER}|(?<!\d){PERSON}(?!\d)")


async def test_nothing_in_an_archive_names_them(place: Place) -> None:
    async with opened(place) as archive:

        async def ready() -> Archive:
            return archive

        await fill(archive)
        assert len({one.partition(":")[0] for one in await remains(archive)}) == 6
        part, person = ArchivePart(ready), ErasedPerson(user_id=PERSON)
        looked = await part.forget(person, is_dry=True)
        assert await part.forget(person, is_dry=False) == looked
        assert is_clean(await part.forget(person, is_dry=False))
        assert await remains(archive) == []
        kept = await archive.session("s1")
        assert kept is not None
        assert msgspec.json.decode(kept.metadata) == {"owner": 0, "shop": 5}
        assert [one.message_id for one in (await archive.page(RecordKind.MESSAGES, after=None, limit=9))[0]] == [3]  # type: ignore[union-attr]
    path = getattr(place, "path", None)
    if path is not None:
        assert MARKER.encode() not in path.read_bytes()
