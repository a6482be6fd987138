"""What the stores share when people look for letters: how many are looked at, who is still open, what letters died of."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from peik.core.cause import cause_of
from peik.core.letter import State
from peik.core.lifecycle import UNCERTAIN
from peik.ports import Cause, LetterFilter, LetterPage, LetterView

# A page that most letters fit is full after the first look. One that few fit costs what the second costs, and says where to go
# on: nobody waits for a walk through a million letters, and no engine waits behind it.
LOOKED_FIRST = 1_000
LOOKED_MAX = 50_000
CAUSES_LOOKED_MAX = 50_000
CLOCK_SLACK_MS = 3600 * 1000  # clocks are set back now and then: ids rise with time only so far

Death = tuple[str | None, str, int, int, int]  # reason, method, how many, the newest id, when the last of them died


# Ways that ask each bot for its own. Where very many letters stand there, the newest of all letters are looked at before: they
# nearly always make a page, however many bots there are.
BOT_BY_BOT = ("newest_waiting", "newest_delayed")

ENDS = (State.COMPLETED, State.FAILED, State.CANCELLED)


def way_of(wanted: LetterFilter) -> str:
    """The query that walks the letters of this state, the newest first. Both SQL stores name them alike."""
    if wanted.trace is not None:
        return "newest_traced"
    match wanted.state:
        case None:
            return "newest"
        case State.ACTIVE:
            return "newest_active"
        case State.WAITING:
            return "newest_waiting" if wanted.chat is None else "newest_waiting_of_chat"
        case State.DELAYED:
            return "newest_delayed"
        case _:
            return "newest_ended"


async def find(
    page: Callable[..., Awaitable[LetterPage]], wanted: LetterFilter, *, before: int | None, limit: int
) -> list[LetterView]:
    """Letters by a filter, page after page until there are enough, so that others are served in between."""
    found: list[LetterView] = []
    while True:
        one = await page(wanted, before=before, limit=limit - len(found))
        found += one.letters
        if len(found) >= limit or one.cursor is None:
            return found
        before = one.cursor


async def find_open(
    page: Callable[..., Awaitable[LetterPage]], wanted: LetterFilter, *, limit: int
) -> list[LetterView]:
    """Letters of a filter that somebody could still take back."""
    found: list[LetterView] = []
    for state in (State.WAITING, State.DELAYED):
        if wanted.state in (None, state) and len(found) < limit:
            narrowed = msgspec.structs.replace(wanted, state=state)
            found += await find(page, narrowed, before=None, limit=limit - len(found))
    return found


def turned(letters: list[LetterView], *, limit: int, oldest_looked: int | None) -> LetterPage:
    """A page of what was found. `oldest_looked`: where the look ended for its bound; None: it saw the end."""
    if len(letters) >= limit:
        return LetterPage(letters=letters, cursor=letters[-1].id)
    return LetterPage(letters=letters, cursor=oldest_looked, is_cut=oldest_looked is not None)


def grouped(deaths: Iterable[Death], *, limit: int) -> list[Cause]:
    """What letters died of, the most frequent first."""
    methods: dict[str, Counter[str]] = defaultdict(Counter)
    newest: dict[str, tuple[int, int]] = {}
    for reason, method, letters, newest_id, newest_at_ms in deaths:
        cause = cause_of(reason)
        methods[cause][method] += letters
        newest[cause] = max(newest.get(cause, (0, 0)), (newest_at_ms, newest_id))
    causes = [
        Cause(
            reason=cause,
            is_uncertain=cause == UNCERTAIN,
            letters=counts.total(),
            methods=tuple(method for method, _ in counts.most_common()),
            newest_id=newest[cause][1],
            newest_at_ms=newest[cause][0],
        )
        for cause, counts in methods.items()
    ]
    return sorted(causes, key=lambda one: (-one.letters, one.reason))[:limit]
