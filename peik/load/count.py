"""What was lost and what came twice, counted against the ledger of the simulated Telegram, letter by letter."""

from collections import Counter
from collections.abc import Iterable, Mapping
from urllib.parse import quote

import msgspec

from peik.load.drive import Asked, Drive, Fate
from peik.load.place import Place, decoded

PAGE = 20_000
LOOKED_UP_MAX = 200  # of letters that Peik itself is asked about; beyond that they count as the worst they can be


class Arrived(msgspec.Struct, frozen=True):
    """A line of the ledger."""

    number: int
    at: float
    text: str

    @property
    def mark(self) -> str:
        return self.text.partition(" ")[0]


class Known(msgspec.Struct, frozen=True):
    """What Peik says of a letter."""

    state: str
    uncertain_tries: int


class Counts(msgspec.Struct, frozen=True, kw_only=True):
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
    asked: Mapping[str, Asked], arrived: Mapping[str, int], known: Mapping[str, Known | None], got: "Updates"
) -> Counts:
    """`arrived` is how often each mark is in the ledger; `known` what Peik says of those that are not there once."""
    fates = Counter(one.fate for one in asked.values())
    missing = [mark for mark, one in asked.items() if one.fate is Fate.ACCEPTED and not arrived.get(mark)]
    states = Counter(_end_of(known.get(mark)) for mark in missing)
    repeats = {mark: count - 1 for mark, count in arrived.items() if count > 1}
    tries = {mark: one.uncertain_tries if (one := known.get(mark)) is not None else 0 for mark in repeats}
    return Counts(
        letters=len(asked),
        accepted=fates[Fate.ACCEPTED],
        refused=fates[Fate.REFUSED],
        unknown=fates[Fate.UNKNOWN],
        delivered=fates[Fate.ACCEPTED] - len(missing),
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


def _end_of(known: Known | None) -> str:
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


async def count(drive: Drive, arrivals: Iterable[Arrived]) -> Counts:
    arrived = Counter(one.mark for one in arrivals)
    odd = [mark for mark, count in arrived.items() if count > 1]
    odd += [mark for mark, one in drive.asked.items() if one.fate is Fate.ACCEPTED and not arrived[mark]]
    known = {
        mark: await look_up(drive.place, mark, drive.asked[mark].chat)
        for mark in odd[:LOOKED_UP_MAX]
        if mark in drive.asked
    }
    return counted(drive.asked, arrived, known, Updates.of(drive.written, drive.got))


class _Page(msgspec.Struct):
    letters: list[Known]
    next_cursor: str | None = None


async def look_up(place: Place, mark: str, chat: int) -> Known | None:
    """What Peik has of the letter with this mark. None: nothing, however far one looks."""
    query = f"/v1/letters?text={quote(mark)}&chat_id={chat}&limit=2"
    page = decoded(await place.peik.ask("GET", query), _Page, "Peik")
    while not page.letters and page.next_cursor is not None:  # a page looks at so many letters and not further
        page = decoded(await place.peik.ask("GET", f"{query}&cursor={quote(page.next_cursor)}"), _Page, "Peik")
    return page.letters[0] if page.letters else None


class _Sent(msgspec.Struct):
    class Result(msgspec.Struct):
        total: int
        deliveries: list[Arrived]

    result: Result


async def total_of(place: Place) -> int:
    """How many lines the ledger has."""
    return (await _sent(place, after=0, limit=0)).total


async def ledger(place: Place, mark: str, *, after: int) -> list[Arrived]:
    """What came with this mark since line `after`."""
    found: list[Arrived] = []
    while page := (await _sent(place, after=after, limit=PAGE)).deliveries:
        found += [one for one in page if one.text.startswith(mark)]
        after = page[-1].number
    return found


async def _sent(place: Place, *, after: int, limit: int) -> _Sent.Result:
    reply = await place.sim.ask("GET", f"/sim/sent?after={after}&limit={limit}")
    return decoded(reply, _Sent, "The simulated Telegram").result
