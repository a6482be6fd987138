"""What a letter answers is kept with it, and found by it."""

from peik.core.letter import Enclosed
from peik.outbox.store import LetterFilter, Store
from tests.storage.acts import NOW, SENT, accept, attempt, draft, edit, enclosed, front, left_in_flight, mark
from tests.storage.places import Place


async def traced(store: Store, trace: str, **more: object) -> list[tuple[int, str | None]]:
    page = await store.page(LetterFilter(trace=trace, **more), before=None, limit=10)  # type: ignore[arg-type]
    assert page.cursor is None
    return [(view.id, view.trace) for view in page.letters]


async def test_a_letter_keeps_its_trace_wherever_it_is_read(place: Place) -> None:
    async with place.open() as store:
        files: tuple[Enclosed, ...] = (enclosed("b"),)
        ids = await accept(
            store,
            draft(1, trace="a7"),
            draft(1),
            draft(1, trace="~a7", enclosed=files),
            draft(2, trace="4bf92f3577b34da6a3ce929d0e0e4736"),
        )
        assert [one.trace for one in await front(store, 1)] == ["a7", None, "~a7"]
        views = [await store.letter(letter_id) for letter_id in ids]
        expected = ["a7", None, "~a7", "4bf92f3577b34da6a3ce929d0e0e4736"]
        assert [view and view.trace for view in views] == expected
        found = {view.id: view.trace for view in await store.letters(ids)}
        assert found == dict(zip(ids, expected, strict=True))


async def test_what_a_dead_owner_had_in_flight_keeps_its_trace(place: Place) -> None:
    async with place.open() as store:
        await accept(store, draft(1, trace="a7"))
        await mark(store, *await front(store, 1))
        assert [one.trace for one in await left_in_flight(store)] == ["a7"]


async def test_letters_are_found_by_what_they_answer_for_certain_or_likely(place: Place) -> None:
    async with place.open() as store:
        each = (draft(1, trace="a7"), draft(1, trace="a70"), draft(2, trace="~a7"), draft(1), edit(trace="a7"))
        (exact,), (other,), (likely,), _, (edited,) = [await accept(store, one) for one in each]
        assert await traced(store, "a7") == [(edited, "a7"), (likely, "~a7"), (exact, "a7")]
        assert await traced(store, "a7", chat=1) == [(edited, "a7"), (exact, "a7")]
        assert await traced(store, "a70") == [(other, "a70")]
        assert await traced(store, "a8") == []
        assert (await store.count(LetterFilter(trace="a7"), most=10)).letters == 3


async def test_a_trace_is_found_after_its_letter_has_ended(place: Place) -> None:
    async with place.open() as store:
        (done,) = await accept(store, draft(1, trace="a7"))
        (letter,) = await front(store, 1)
        await attempt(store, letter, SENT, NOW)
        assert await traced(store, "a7") == [(done, "a7")]
        assert await traced(store, "a7", since_ms=NOW, until_ms=NOW + 1) == [(done, "a7")]
