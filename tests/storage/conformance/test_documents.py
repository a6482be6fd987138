"""Documents on their collections: all of a filing or nothing, of two writers one, and every page in the order of keys."""

import asyncio
import random
from pathlib import Path

import pytest

from peik.core.documents import BODY_BYTES_MAX, FILED_BYTES_MAX, FILINGS_MAX, DocumentStore, Filing, StoredDocument
from peik.errors import BadInput, Conflict
from tests.storage.all_places import LIVES_ON_SERVERS, PLACES
from tests.storage.places import Place, SqlitePlace

STEPS = 150
LIVES = 20
COLLECTIONS = ("audit", "broadcasts", "broadcast:7")
KEYS = ("A", "B", "a", "a-1", "a.1", "a1", "a10", "a2", "~", "0")  # in no alphabet's order but that of bytes


def sheet(key: str, body: str | None = "{}", *, collection: str = "audit", version: int | None = None) -> Filing:
    return Filing(collection=collection, key=key, body=body, version=version)


async def keys_of(documents: DocumentStore, **how: object) -> list[str]:
    return [document.key for document in await documents.documents("audit", **{"limit": 100} | how)]  # type: ignore[arg-type]


async def test_a_paper_is_there_after_a_crash_and_its_version_counts_its_changes(place: Place) -> None:
    async with place.open() as store:
        await store.documents.file([sheet("a", '{"n": 1}', version=0)])
        await store.documents.file([sheet("a", '{"n": 2}', version=1)])
        await place.crash(store)
    async with place.open() as store:
        assert await store.documents.document("audit", "a") == StoredDocument(
            collection="audit", key="a", body='{"n": 2}', version=2
        )
        assert await store.documents.document("audit", "b") is None
        assert await store.documents.document("other", "a") is None


async def test_what_is_not_as_expected_is_refused_with_all_that_came_along(place: Place) -> None:
    async with place.open() as store:
        await store.documents.file([sheet("there"), sheet("changed"), sheet("leaving")])
        await store.documents.file([sheet("changed")])
        for wrong in (
            sheet("there", version=0),
            sheet("changed", version=1),
            sheet("changed", None, version=1),
            sheet("nowhere", version=1),
            sheet("nowhere", None, version=3),
        ):
            with pytest.raises(Conflict, match="in the meantime") as refused:
                await store.documents.file([sheet("new", collection="new"), sheet("leaving", None), wrong])
            assert refused.value.code == "paper_changed"
        assert await keys_of(store.documents) == ["changed", "leaving", "there"]
        assert await store.documents.collections("") == ["audit"]


async def test_of_several_filings_of_one_paper_the_last_counts_and_it_is_one_change(place: Place) -> None:
    async with place.open() as store:
        await store.documents.file([sheet("a", "1", version=0), sheet("b", "1"), sheet("a", "2"), sheet("b", None)])
        assert await store.documents.document("audit", "a") == StoredDocument(
            collection="audit", key="a", body="2", version=1
        )
        assert await store.documents.document("audit", "b") is None
        with pytest.raises(BadInput):
            await store.documents.file([sheet("a"), sheet("a", version=1)])


async def test_one_that_was_taken_away_is_new_when_it_comes_again(place: Place) -> None:
    async with place.open() as store:
        await store.documents.file([sheet("a"), sheet("b")])
        await store.documents.file([sheet("a")])
        await store.documents.file(
            [sheet("a", None, version=2), sheet("never", None), sheet("neither", None, version=0)]
        )
        assert await keys_of(store.documents) == ["b"]
        await store.documents.file([sheet("a", version=0)])
        found = await store.documents.those("audit", ["a", "b", "c", "a"])
        assert {key: document.version for key, document in found.items()} == {"a": 1, "b": 1}


async def test_bodies_come_back_byte_for_byte(place: Place) -> None:
    bodies = ['{"a":  1 }', '"\\u0000 سلام 🙂 \U0010ffff"', "[]", '"' + "x" * (BODY_BYTES_MAX - 2) + '"', '"12 34"', ""]
    async with place.open() as store:
        await store.documents.file([sheet(f"k{index}", body) for index, body in enumerate(bodies)])
        assert [document.body for document in await store.documents.documents("audit", limit=10)] == bodies


@pytest.mark.parametrize(
    "filing",
    [
        sheet(""),
        sheet("k" * 201),
        sheet("é"),
        sheet("line\nbreak"),
        sheet("a", collection=""),
        sheet("a", collection="s" * 101),
        sheet("a", "x" * (BODY_BYTES_MAX + 1)),
        sheet("a", "é" * (BODY_BYTES_MAX // 2 + 1)),
        sheet("a", "a\0b"),
        sheet("a", "\ud800"),
    ],
)
async def test_what_not_every_store_could_keep_none_keeps(place: Place, filing: Filing) -> None:
    async with place.open() as store:
        with pytest.raises(BadInput) as refused:
            await store.documents.file([sheet("before"), filing])
        assert refused.value.code == "bad_paper"
        assert await store.documents.collections("") == []


async def test_one_commit_has_its_bounds(place: Place) -> None:
    async with place.open() as store:
        await store.documents.file([])
        await store.documents.file([sheet(f"{number:05d}") for number in range(FILINGS_MAX)])
        with pytest.raises(BadInput):
            await store.documents.file([sheet(f"{number:05d}") for number in range(FILINGS_MAX + 1)])
        large = "x" * BODY_BYTES_MAX
        with pytest.raises(BadInput):
            await store.documents.file(
                [sheet(str(number), large) for number in range(FILED_BYTES_MAX // len(large) + 1)]
            )
        assert await store.documents.count_documents("audit") == FILINGS_MAX
        assert await store.documents.clear_collection("audit", limit=FILINGS_MAX - 1) == FILINGS_MAX - 1
        assert await keys_of(store.documents) == [f"{FILINGS_MAX - 1:05d}"]


async def test_pages_go_by_the_bytes_of_keys_in_both_directions(place: Place) -> None:
    async with place.open() as store:
        await store.documents.file([sheet(key) for key in KEYS])
        every = sorted(KEYS)
        assert await keys_of(store.documents) == every
        assert await keys_of(store.documents, limit=3) == every[:3]
        assert await keys_of(store.documents, after=every[2], limit=3) == every[3:6]
        assert await keys_of(store.documents, after=every[2], until=every[5]) == every[3:5]
        assert await keys_of(store.documents, after="a0", until="a2") == ["a1", "a10"]
        assert await keys_of(store.documents, is_backwards=True) == every[::-1]
        assert await keys_of(store.documents, is_backwards=True, after=every[4], limit=2) == [every[3], every[2]]
        assert await keys_of(store.documents, is_backwards=True, after=every[4], until=every[1]) == [every[3], every[2]]


async def test_shelves_are_told_by_how_their_names_begin(place: Place) -> None:
    async with place.open() as store:
        names = ["broadcast:1", "broadcast:2", "broadcasts", "Broadcast:1", "audit", "broadcast:1x"]
        await store.documents.file([sheet("a", collection=name) for name in names])
        assert await store.documents.collections("broadcast:") == ["broadcast:1", "broadcast:1x", "broadcast:2"]
        assert await store.documents.collections("broadcast:1") == ["broadcast:1", "broadcast:1x"]
        assert await store.documents.collections("") == sorted(names)
        await store.documents.file([sheet("a", None, collection="broadcast:1")])
        assert await store.documents.collections("broadcast:") == ["broadcast:1x", "broadcast:2"]


async def test_a_shelf_is_cleared_from_its_lowest_key_on(place: Place) -> None:
    async with place.open() as store:
        await store.documents.file([sheet(f"{number:04d}") for number in range(2500)])
        assert await store.documents.clear_collection("audit", until="0005", limit=3) == 3
        assert await store.documents.clear_collection("audit", until="0005", limit=3) == 2
        assert await store.documents.clear_collection("audit", until="0005", limit=3) == 0
        assert await keys_of(store.documents, limit=2) == ["0005", "0006"]
        assert await store.documents.clear_collection("audit", limit=2200) == 2200
        assert await store.documents.count_documents("audit") == 295
        assert await store.documents.clear_collection("audit", limit=2200) == 295
        assert await store.documents.clear_collection("nothing", limit=1) == 0
        assert (await store.documents.count_documents("audit"), await store.documents.collections("")) == (0, [])


async def test_of_two_nodes_that_change_one_paper_one_wins_each_time(place: Place) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:

        async def add(documents: DocumentStore, times: int) -> None:
            while times:
                before = await documents.document("audit", "count")
                body, version = ("1", 0) if before is None else (str(int(before.body) + 1), before.version)
                try:
                    await documents.file(
                        [sheet("count", body, version=version), sheet(body, collection="seen", version=0)]
                    )
                except Conflict:
                    continue
                times -= 1

        await asyncio.gather(*(add(store.documents, 10) for store in (one, other, one, other)))
        assert await other.documents.document("audit", "count") == StoredDocument(
            collection="audit", key="count", body="40", version=40
        )
        assert await one.documents.count_documents("seen") == 40


async def test_two_nodes_with_the_same_shelves_in_another_order_do_not_stand_in_each_others_way(place: Place) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:

        async def fill(documents: DocumentStore, name: str, collections: tuple[str, ...]) -> None:
            for turn in range(15):
                await documents.file([sheet(f"{name}{turn}", collection=collection) for collection in collections])

        await asyncio.gather(fill(one.documents, "a", COLLECTIONS), fill(other.documents, "b", COLLECTIONS[::-1]))
        assert [await one.documents.count_documents(collection) for collection in COLLECTIONS] == [30, 30, 30]


async def test_one_who_is_refused_hurts_nobody_who_shares_the_commit(place: Place) -> None:
    async with place.open() as store:
        await store.documents.file([sheet("taken")])
        filings = [[sheet("taken" if number % 3 == 0 else f"{number}", version=0)] for number in range(30)]
        ended = await asyncio.gather(*(store.documents.file(one) for one in filings), return_exceptions=True)
        assert [isinstance(one, Conflict) for one in ended] == [number % 3 == 0 for number in range(30)]
        assert await store.documents.count_documents("audit") == 21


async def test_whoever_dies_on_the_way_has_filed_all_of_a_call_or_nothing(place: Place) -> None:
    async with place.open() as store:

        async def file_all(number: int) -> int:
            await store.documents.file([sheet(f"{number:03d}", collection=collection) for collection in COLLECTIONS])
            return number

        calls = [asyncio.create_task(file_all(number)) for number in range(200)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        await place.crash(store)
        for call in calls:
            call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
    async with place.open() as store:
        found = [
            [document.key for document in await store.documents.documents(collection, limit=1000)]
            for collection in COLLECTIONS
        ]
        assert found[0] == found[1] == found[2]
        assert {f"{number:03d}" for number in ended if isinstance(number, int)} <= set(found[0])
        assert [await store.documents.count_documents(collection) for collection in COLLECTIONS] == [len(found[0])] * 3


class Model:
    """What documents are, in plain Python."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], StoredDocument] = {}

    def file(self, filings: list[Filing]) -> bool:
        folded: dict[tuple[str, str], Filing] = {}
        for filing in filings:
            name = (filing.collection, filing.key)
            standing = self.documents.get(name)
            if filing.version is not None and filing.version != (standing.version if standing else 0):
                return False
            folded[name] = filing
        for name, filing in folded.items():
            before = self.documents.pop(name, None)
            if filing.body is not None:
                version = before.version + 1 if before else 1
                self.documents[name] = StoredDocument(
                    collection=filing.collection, key=filing.key, body=filing.body, version=version
                )
        return True

    def page(self, collection: str, low: str | None, high: str | None) -> list[StoredDocument]:
        found = [document for (on, _), document in self.documents.items() if on == collection]
        found = [one for one in found if (low is None or one.key > low) and (high is None or one.key < high)]
        return sorted(found, key=lambda document: document.key)


async def live(place: Place, chance: random.Random) -> None:
    """A life of two nodes: whatever is filed, read and cleared is as the model says."""
    model = Model()
    async with place.open() as one, place.open(is_owner=False) as other:
        for step in range(STEPS):
            documents: DocumentStore = chance.choice((one, other)).documents
            collection = chance.choice(COLLECTIONS)
            match chance.choice(("file", "file", "file", "page", "page", "clear")):
                case "file":
                    names = {(chance.choice(COLLECTIONS), chance.choice(KEYS)) for _ in range(chance.randint(1, 4))}
                    filings = [
                        sheet(key, chance.choice((f'"{step}"', f'"{step}"', None)), collection=on, version=expected)
                        for on, key in sorted(names)
                        for expected in [chance.choice((None, None, 0, 1, 2))]
                    ]
                    try:
                        await documents.file(filings)
                    except Conflict:
                        assert not Model.file(model, filings)
                    else:
                        assert model.file(filings)
                case "page":
                    low, high = (chance.choice((None, *KEYS)) for _ in range(2))
                    wanted = model.page(collection, low, high)
                    limit = chance.randint(1, 12)
                    assert await documents.documents(collection, after=low, until=high, limit=limit) == wanted[:limit]
                    backwards = await documents.documents(
                        collection, after=high, until=low, limit=limit, is_backwards=True
                    )
                    assert backwards == wanted[::-1][:limit]
                case _:
                    below, limit = chance.choice((None, *KEYS)), chance.randint(1, 4)
                    gone = model.page(collection, None, below)[:limit]
                    assert await documents.clear_collection(collection, until=below, limit=limit) == len(gone)
                    for document in gone:
                        del model.documents[document.collection, document.key]
            assert await documents.count_documents(collection) == len(model.page(collection, None, None))
        assert await one.documents.collections("") == sorted({collection for collection, _ in model.documents})


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
async def test_lives_are_as_the_model_says(kind: type[SqlitePlace], tmp_path: Path) -> None:
    for seed in range(LIVES if kind is SqlitePlace else LIVES_ON_SERVERS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        await live(kind(folder), random.Random(seed))
