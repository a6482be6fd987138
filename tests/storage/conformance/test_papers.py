"""Papers on their shelves: all of a filing or nothing, of two writers one, and every page in the order of keys."""

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
SHELVES = ("audit", "broadcasts", "broadcast:7")
KEYS = ("A", "B", "a", "a-1", "a.1", "a1", "a10", "a2", "~", "0")  # in no alphabet's order but that of bytes


def sheet(key: str, body: str | None = "{}", *, shelf: str = "audit", version: int | None = None) -> Filing:
    return Filing(shelf=shelf, key=key, body=body, version=version)


async def keys_of(papers: DocumentStore, **how: object) -> list[str]:
    return [paper.key for paper in await papers.papers("audit", **{"limit": 100} | how)]  # type: ignore[arg-type]


async def test_a_paper_is_there_after_a_crash_and_its_version_counts_its_changes(place: Place) -> None:
    async with place.open() as store:
        await store.papers.file([sheet("a", '{"n": 1}', version=0)])
        await store.papers.file([sheet("a", '{"n": 2}', version=1)])
        await place.crash(store)
    async with place.open() as store:
        assert await store.papers.paper("audit", "a") == StoredDocument(
            shelf="audit", key="a", body='{"n": 2}', version=2
        )
        assert await store.papers.paper("audit", "b") is None
        assert await store.papers.paper("other", "a") is None


async def test_what_is_not_as_expected_is_refused_with_all_that_came_along(place: Place) -> None:
    async with place.open() as store:
        await store.papers.file([sheet("there"), sheet("changed"), sheet("leaving")])
        await store.papers.file([sheet("changed")])
        for wrong in (
            sheet("there", version=0),
            sheet("changed", version=1),
            sheet("changed", None, version=1),
            sheet("nowhere", version=1),
            sheet("nowhere", None, version=3),
        ):
            with pytest.raises(Conflict, match="in the meantime") as refused:
                await store.papers.file([sheet("new", shelf="new"), sheet("leaving", None), wrong])
            assert refused.value.code == "paper_changed"
        assert await keys_of(store.papers) == ["changed", "leaving", "there"]
        assert await store.papers.shelves("") == ["audit"]


async def test_of_several_filings_of_one_paper_the_last_counts_and_it_is_one_change(place: Place) -> None:
    async with place.open() as store:
        await store.papers.file([sheet("a", "1", version=0), sheet("b", "1"), sheet("a", "2"), sheet("b", None)])
        assert await store.papers.paper("audit", "a") == StoredDocument(shelf="audit", key="a", body="2", version=1)
        assert await store.papers.paper("audit", "b") is None
        with pytest.raises(BadInput):
            await store.papers.file([sheet("a"), sheet("a", version=1)])


async def test_one_that_was_taken_away_is_new_when_it_comes_again(place: Place) -> None:
    async with place.open() as store:
        await store.papers.file([sheet("a"), sheet("b")])
        await store.papers.file([sheet("a")])
        await store.papers.file([sheet("a", None, version=2), sheet("never", None), sheet("neither", None, version=0)])
        assert await keys_of(store.papers) == ["b"]
        await store.papers.file([sheet("a", version=0)])
        found = await store.papers.those("audit", ["a", "b", "c", "a"])
        assert {key: paper.version for key, paper in found.items()} == {"a": 1, "b": 1}


async def test_bodies_come_back_byte_for_byte(place: Place) -> None:
    bodies = ['{"a":  1 }', '"\\u0000 سلام 🙂 \U0010ffff"', "[]", '"' + "x" * (BODY_BYTES_MAX - 2) + '"', '"12 34"', ""]
    async with place.open() as store:
        await store.papers.file([sheet(f"k{index}", body) for index, body in enumerate(bodies)])
        assert [paper.body for paper in await store.papers.papers("audit", limit=10)] == bodies


@pytest.mark.parametrize(
    "filing",
    [
        sheet(""),
        sheet("k" * 201),
        sheet("é"),
        sheet("line\nbreak"),
        sheet("a", shelf=""),
        sheet("a", shelf="s" * 101),
        sheet("a", "x" * (BODY_BYTES_MAX + 1)),
        sheet("a", "é" * (BODY_BYTES_MAX // 2 + 1)),
        sheet("a", "a\0b"),
        sheet("a", "\ud800"),
    ],
)
async def test_what_not_every_store_could_keep_none_keeps(place: Place, filing: Filing) -> None:
    async with place.open() as store:
        with pytest.raises(BadInput) as refused:
            await store.papers.file([sheet("before"), filing])
        assert refused.value.code == "bad_paper"
        assert await store.papers.shelves("") == []


async def test_one_commit_has_its_bounds(place: Place) -> None:
    async with place.open() as store:
        await store.papers.file([])
        await store.papers.file([sheet(f"{number:05d}") for number in range(FILINGS_MAX)])
        with pytest.raises(BadInput):
            await store.papers.file([sheet(f"{number:05d}") for number in range(FILINGS_MAX + 1)])
        large = "x" * BODY_BYTES_MAX
        with pytest.raises(BadInput):
            await store.papers.file([sheet(str(number), large) for number in range(FILED_BYTES_MAX // len(large) + 1)])
        assert await store.papers.count_papers("audit") == FILINGS_MAX
        assert await store.papers.clear_shelf("audit", limit=FILINGS_MAX - 1) == FILINGS_MAX - 1
        assert await keys_of(store.papers) == [f"{FILINGS_MAX - 1:05d}"]


async def test_pages_go_by_the_bytes_of_keys_in_both_directions(place: Place) -> None:
    async with place.open() as store:
        await store.papers.file([sheet(key) for key in KEYS])
        every = sorted(KEYS)
        assert await keys_of(store.papers) == every
        assert await keys_of(store.papers, limit=3) == every[:3]
        assert await keys_of(store.papers, after=every[2], limit=3) == every[3:6]
        assert await keys_of(store.papers, after=every[2], until=every[5]) == every[3:5]
        assert await keys_of(store.papers, after="a0", until="a2") == ["a1", "a10"]
        assert await keys_of(store.papers, is_backwards=True) == every[::-1]
        assert await keys_of(store.papers, is_backwards=True, after=every[4], limit=2) == [every[3], every[2]]
        assert await keys_of(store.papers, is_backwards=True, after=every[4], until=every[1]) == [every[3], every[2]]


async def test_shelves_are_told_by_how_their_names_begin(place: Place) -> None:
    async with place.open() as store:
        names = ["broadcast:1", "broadcast:2", "broadcasts", "Broadcast:1", "audit", "broadcast:1x"]
        await store.papers.file([sheet("a", shelf=name) for name in names])
        assert await store.papers.shelves("broadcast:") == ["broadcast:1", "broadcast:1x", "broadcast:2"]
        assert await store.papers.shelves("broadcast:1") == ["broadcast:1", "broadcast:1x"]
        assert await store.papers.shelves("") == sorted(names)
        await store.papers.file([sheet("a", None, shelf="broadcast:1")])
        assert await store.papers.shelves("broadcast:") == ["broadcast:1x", "broadcast:2"]


async def test_a_shelf_is_cleared_from_its_lowest_key_on(place: Place) -> None:
    async with place.open() as store:
        await store.papers.file([sheet(f"{number:04d}") for number in range(2500)])
        assert await store.papers.clear_shelf("audit", until="0005", limit=3) == 3
        assert await store.papers.clear_shelf("audit", until="0005", limit=3) == 2
        assert await store.papers.clear_shelf("audit", until="0005", limit=3) == 0
        assert await keys_of(store.papers, limit=2) == ["0005", "0006"]
        assert await store.papers.clear_shelf("audit", limit=2200) == 2200
        assert await store.papers.count_papers("audit") == 295
        assert await store.papers.clear_shelf("audit", limit=2200) == 295
        assert await store.papers.clear_shelf("nothing", limit=1) == 0
        assert (await store.papers.count_papers("audit"), await store.papers.shelves("")) == (0, [])


async def test_of_two_nodes_that_change_one_paper_one_wins_each_time(place: Place) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:

        async def add(papers: DocumentStore, times: int) -> None:
            while times:
                before = await papers.paper("audit", "count")
                body, version = ("1", 0) if before is None else (str(int(before.body) + 1), before.version)
                try:
                    await papers.file([sheet("count", body, version=version), sheet(body, shelf="seen", version=0)])
                except Conflict:
                    continue
                times -= 1

        await asyncio.gather(*(add(store.papers, 10) for store in (one, other, one, other)))
        assert await other.papers.paper("audit", "count") == StoredDocument(
            shelf="audit", key="count", body="40", version=40
        )
        assert await one.papers.count_papers("seen") == 40


async def test_two_nodes_with_the_same_shelves_in_another_order_do_not_stand_in_each_others_way(place: Place) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:

        async def fill(papers: DocumentStore, name: str, shelves: tuple[str, ...]) -> None:
            for turn in range(15):
                await papers.file([sheet(f"{name}{turn}", shelf=shelf) for shelf in shelves])

        await asyncio.gather(fill(one.papers, "a", SHELVES), fill(other.papers, "b", SHELVES[::-1]))
        assert [await one.papers.count_papers(shelf) for shelf in SHELVES] == [30, 30, 30]


async def test_one_who_is_refused_hurts_nobody_who_shares_the_commit(place: Place) -> None:
    async with place.open() as store:
        await store.papers.file([sheet("taken")])
        filings = [[sheet("taken" if number % 3 == 0 else f"{number}", version=0)] for number in range(30)]
        ended = await asyncio.gather(*(store.papers.file(one) for one in filings), return_exceptions=True)
        assert [isinstance(one, Conflict) for one in ended] == [number % 3 == 0 for number in range(30)]
        assert await store.papers.count_papers("audit") == 21


async def test_whoever_dies_on_the_way_has_filed_all_of_a_call_or_nothing(place: Place) -> None:
    async with place.open() as store:

        async def file_all(number: int) -> int:
            await store.papers.file([sheet(f"{number:03d}", shelf=shelf) for shelf in SHELVES])
            return number

        calls = [asyncio.create_task(file_all(number)) for number in range(200)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        await place.crash(store)
        for call in calls:
            call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
    async with place.open() as store:
        found = [[paper.key for paper in await store.papers.papers(shelf, limit=1000)] for shelf in SHELVES]
        assert found[0] == found[1] == found[2]
        assert {f"{number:03d}" for number in ended if isinstance(number, int)} <= set(found[0])
        assert [await store.papers.count_papers(shelf) for shelf in SHELVES] == [len(found[0])] * 3


class Model:
    """What papers are, in plain Python."""

    def __init__(self) -> None:
        self.papers: dict[tuple[str, str], StoredDocument] = {}

    def file(self, filings: list[Filing]) -> bool:
        folded: dict[tuple[str, str], Filing] = {}
        for filing in filings:
            name = (filing.shelf, filing.key)
            standing = self.papers.get(name)
            if filing.version is not None and filing.version != (standing.version if standing else 0):
                return False
            folded[name] = filing
        for name, filing in folded.items():
            before = self.papers.pop(name, None)
            if filing.body is not None:
                version = before.version + 1 if before else 1
                self.papers[name] = StoredDocument(
                    shelf=filing.shelf, key=filing.key, body=filing.body, version=version
                )
        return True

    def page(self, shelf: str, low: str | None, high: str | None) -> list[StoredDocument]:
        found = [paper for (on, _), paper in self.papers.items() if on == shelf]
        found = [one for one in found if (low is None or one.key > low) and (high is None or one.key < high)]
        return sorted(found, key=lambda paper: paper.key)


async def live(place: Place, chance: random.Random) -> None:
    """A life of two nodes: whatever is filed, read and cleared is as the model says."""
    model = Model()
    async with place.open() as one, place.open(is_owner=False) as other:
        for step in range(STEPS):
            papers: DocumentStore = chance.choice((one, other)).papers
            shelf = chance.choice(SHELVES)
            match chance.choice(("file", "file", "file", "page", "page", "clear")):
                case "file":
                    names = {(chance.choice(SHELVES), chance.choice(KEYS)) for _ in range(chance.randint(1, 4))}
                    filings = [
                        sheet(key, chance.choice((f'"{step}"', f'"{step}"', None)), shelf=on, version=expected)
                        for on, key in sorted(names)
                        for expected in [chance.choice((None, None, 0, 1, 2))]
                    ]
                    try:
                        await papers.file(filings)
                    except Conflict:
                        assert not Model.file(model, filings)
                    else:
                        assert model.file(filings)
                case "page":
                    low, high = (chance.choice((None, *KEYS)) for _ in range(2))
                    wanted = model.page(shelf, low, high)
                    limit = chance.randint(1, 12)
                    assert await papers.papers(shelf, after=low, until=high, limit=limit) == wanted[:limit]
                    backwards = await papers.papers(shelf, after=high, until=low, limit=limit, is_backwards=True)
                    assert backwards == wanted[::-1][:limit]
                case _:
                    below, limit = chance.choice((None, *KEYS)), chance.randint(1, 4)
                    gone = model.page(shelf, None, below)[:limit]
                    assert await papers.clear_shelf(shelf, until=below, limit=limit) == len(gone)
                    for paper in gone:
                        del model.papers[paper.shelf, paper.key]
            assert await papers.count_papers(shelf) == len(model.page(shelf, None, None))
        assert await one.papers.shelves("") == sorted({shelf for shelf, _ in model.papers})


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: kind.__name__)
async def test_lives_are_as_the_model_says(kind: type[SqlitePlace], tmp_path: Path) -> None:
    for seed in range(LIVES if kind is SqlitePlace else LIVES_ON_SERVERS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        await live(kind(folder), random.Random(seed))
