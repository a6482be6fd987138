"""What was lost and what came twice, counted against the ledger of the simulated Telegram, letter by letter."""

from collections import Counter
from collections.abc import Iterable, Mapping
from urllib.parse import quote

import msgspec

from peik.load.drive import Drive, LoadFate, LoadRequest
from peik.load.place import LoadPlace, decoded

PAGE = 20_000
LOOKED_UP_MAX = 200  # of letters that Peik itself is asked about; beyond that they count as the worst they can be


class ArrivedLetters(msgspec.Struct, frozen=True):
    """A line of the ledger."""

    number: int
    at: float
    text: str

    @property
    def mark(self) -> str:
        return self.text.partition(" ")[0]


class KnownLetters(msgspec.Struct, frozen=True):
    """What Peik says of a letter."""

    state: str
    uncertain_tries: int


class LoadCounts(msgspec.Struct, frozen=True, kw_only=True):
    letters: int  # asked for, answers of bots among them
    accepted: int
    refused: int
    unknown: int  # no answer came; they may have been accepted, and are neither lost nor expected
    delivered: int
    waiting: int
    failed: int
    lost: int
    doubled: int
    uncertain_tries: int  # of those that came twice
    doubled_by_habit: int  # more often than uncertain tries explain
    updates: int
    updates_lost: int
    updates_doubled: int

    def faults(self) -> list[str]:
        """What must never be, however much is asked, in words."""
        return _said(
            (self.lost, "{} letters were lost"),
            (self.doubled_by_habit, "{} letters came twice without an uncertain try"),
            (self.updates_lost, "{} updates never reached their bot"),
            (self.updates_doubled, "{} updates reached their bot twice"),
        )

    def broken(self) -> list[str]:
        """With it what was merely too much. Empty: everything is where it belongs."""
        return self.faults() + _said(
            (self.waiting, "{} letters still wait"),
            (self.failed, "{} letters failed"),
            (self.refused + self.unknown, "{} letters were not accepted"),
        )


def _said(*found: tuple[int, str]) -> list[str]:
    return [words.format(f"{count:,}") for count, words in found if count]


def counted(
    asked: Mapping[str, LoadRequest],
    arrived: Mapping[str, int],
    known: Mapping[str, KnownLetters | None],
    got: "Updates",
) -> LoadCounts:
    """`arrived` is how often each mark is in the ledger; `known` what Peik says of those that are not there once."""
    fates = Counter(one.fate for one in asked.values())
    missing = [mark for mark, one in asked.items() if one.fate is LoadFate.ACCEPTED and not arrived.get(mark)]
    states = Counter(_end_of(known.get(mark)) for mark in missing)
    repeats = {mark: count - 1 for mark, count in arrived.items() if count > 1}
    tries = {mark: one.uncertain_tries if (one := known.get(mark)) is not None else 0 for mark in repeats}
    return LoadCounts(
        letters=len(asked),
        accepted=fates[LoadFate.ACCEPTED],
        refused=fates[LoadFate.REFUSED],
        unknown=fates[LoadFate.UNKNOWN],
        delivered=fates[LoadFate.ACCEPTED] - len(missing),
        waiting=states["waiting"],
        failed=states["failed"],
        lost=states["lost"],
        doubled=sum(repeats.values()),
        uncertain_tries=sum(tries.values()),
        doubled_by_habit=sum(max(0, count - tries[mark]) for mark, count in repeats.items()),
        updates=got.written,
        updates_lost=got.lost,
        updates_doubled=got.doubled,
    )


def _end_of(known: KnownLetters | None) -> str:
    """Of a letter that was accepted and is not in the ledger. If Peik says that it was delivered, it lies: lost."""
    if known is None or known.state in ("completed", "cancelled"):
        return "lost"
    return "failed" if known.state == "failed" else "waiting"


class Updates(msgspec.Struct, frozen=True, kw_only=True):
    written: int
    lost: int
    doubled: int

    @classmethod
    def of(cls, written: Iterable[str], got: Mapping[str, int]) -> "Updates":
        marks = list(written)
        times = [got.get(mark, 0) for mark in marks]
        return cls(written=len(marks), lost=times.count(0), doubled=sum(count - 1 for count in times if count > 1))


async def count(drive: Drive, arrivals: Iterable[ArrivedLetters]) -> LoadCounts:
    arrived = Counter(one.mark for one in arrivals)
    odd = [mark for mark, count in arrived.items() if count > 1]
    odd += [mark for mark, one in drive.asked.items() if one.fate is LoadFate.ACCEPTED and not arrived[mark]]
    known = {
        mark: await look_up(drive.place, mark, drive.asked[mark].chat)
        for mark in odd[:LOOKED_UP_MAX]
        if mark in drive.asked
    }
    return counted(drive.asked, arrived, known, Updates.of(drive.written, drive.got))


class _Page(msgspec.Struct):
    letters: list[KnownLetters]
    next_cursor: str | None = None


async def look_up(place: LoadPlace, mark: str, chat: int) -> KnownLetters | None:
    """What Peik has of the letter with this mark. None: nothing, however far one looks."""
    query = f"/v1/letters?text={quote(mark)}&chat_id={chat}&limit=2"
    page = decoded(await place.peik.ask("GET", query), _Page, "Peik")
    while not page.letters and page.next_cursor is not None:  # a page looks at this many letters and not further
        page = decoded(await place.peik.ask("GET", f"{query}&cursor={quote(page.next_cursor)}"), _Page, "Peik")
    return page.letters[0] if page.letters else None


class _Sent(msgspec.Struct):
    class Result(msgspec.Struct):
        total: int
        deliveries: list[ArrivedLetters]

    result: Result


async def total_of(place: LoadPlace) -> int:
    """How many lines the ledger has."""
    return (await _sent(place, after=0, limit=0)).total


async def ledger(place: LoadPlace, mark: str, *, after: int) -> list[ArrivedLetters]:
    """What came with this mark since line `after`."""
    found: list[ArrivedLetters] = []
    while page := (await _sent(place, after=after, limit=PAGE)).deliveries:
        found += [one for one in page if one.text.startswith(mark)]
        after = page[-1].number
    return found


async def _sent(place: LoadPlace, *, after: int, limit: int) -> _Sent.Result:
    reply = await place.sim.ask("GET", f"/sim/sent?after={after}&limit={limit}")
    return decoded(reply, _Sent, "The simulated Telegram").result
