"""Letters to a person that is forgotten, and those that name them. Ended ones go; what waits is taken back first."""

from collections.abc import Awaitable, Callable

from peik.clock import Clock
from peik.core.forgetting import Found, Gone, Person, names
from peik.core.letter import State
from peik.errors import Conflict, NotFound
from peik.forgetting_ports import Forgetting
from peik.ports import LetterFilter, LetterView, Store

PAGE = 500
DROPPED_AT_ONCE = 200
BROADCAST = (
    "broadcast:"  # what the type of such a letter begins with; its user_id is the number of a line, and nobody's name
)
FRESH_MS = 60_000  # so long a broadcast may need to write down what became of a letter of its own
_OPEN = (State.WAITING, State.DELAYED)


class LettersPart:
    """The port `Part`."""

    def __init__(
        self,
        store: Store,
        forgetting: Forgetting,
        *,
        clock: Clock,
        cancel: Callable[[int], Awaitable[object]],
        cancel_all: Callable[[LetterFilter], Awaitable[int]],
    ) -> None:
        """`cancel` and `cancel_all` tell everybody who waits for such a letter, as they do for anybody."""
        self._store = store
        self._forgetting = forgetting
        self._clock = clock
        self._cancel = cancel
        self._cancel_all = cancel_all

    async def forget(self, person: Person, *, is_dry: bool) -> Found:
        if not is_dry:
            for chat in (person.user_id, f"user:{person.user_id}"):
                await self._cancel_all(LetterFilter(bot_id=person.bot_id, chat=chat))
        return {
            "letters": await self._letters(person, is_dry=is_dry),
            "message_log": await self._logged(person, is_dry=is_dry),
            "idempotency_keys": await self._keys(person, is_dry=is_dry),
        }

    async def _letters(self, person: Person, *, is_dry: bool) -> Gone:
        found, ended, cursor = Gone(), list[int](), None
        while True:
            page = await self._store.page(LetterFilter(bot_id=person.bot_id), before=cursor, limit=PAGE)
            for view in page.letters:
                match await self._judged(person, view, is_dry=is_dry):
                    case True:
                        ended.append(view.id)
                    case False:
                        found += Gone(left=1)
            cursor = page.cursor
            if is_dry:
                found, ended = found + Gone(removed=len(ended)), []
            elif ended and (len(ended) >= DROPPED_AT_ONCE or cursor is None):
                found, ended = found + await self._drop(ended), []
            if cursor is None:
                return found

    async def _judged(self, person: Person, view: LetterView, *, is_dry: bool) -> bool | None:
        """Whether it can go now; None: it is no matter of this person's."""
        is_theirs = is_about(person, view)
        if not is_theirs and not _names(person, view):
            return None
        if view.state.is_final:
            return not self._is_fresh(view)
        if not is_theirs or view.state not in _OPEN:
            return False  # somebody else's, which still has to be sent; or one in flight
        if not is_dry:
            try:
                await self._cancel(view.id)
            except (Conflict, NotFound):
                return False  # it left a moment ago
        return True

    def _is_fresh(self, view: LetterView) -> bool:
        at_ms = view.settled_at_ms or 0
        return is_broadcast(view) and self._clock.wall_ms() - at_ms < FRESH_MS

    async def _drop(self, ids: list[int]) -> Gone:
        gone = 0
        for start in range(0, len(ids), DROPPED_AT_ONCE):
            gone += await self._forgetting.drop_letters(ids[start : start + DROPPED_AT_ONCE])
        return Gone(removed=gone, left=len(ids) - gone)

    async def _logged(self, person: Person, *, is_dry: bool) -> Gone:
        gone, cursor = 0, None
        while True:
            page, cursor = await self._forgetting.logged(cursor, PAGE)
            theirs = [
                line.id
                for line in page
                if person.bot_id in (None, line.bot_id)
                and (person.is_chat(line.chat) or person.is_called(line.user_id) or names(person, line.error))
            ]
            gone += len(theirs) if is_dry or not theirs else await self._forgetting.drop_logged(theirs)
            if cursor is None:
                return Gone(removed=gone)

    async def _keys(self, person: Person, *, is_dry: bool) -> Gone:
        """Those of letters went with them. A key may also name somebody whose letter went before."""
        gone, cursor = 0, None
        while True:
            page, cursor = await self._forgetting.kept_keys(cursor, PAGE)
            theirs = [one for one in page if person.bot_id in (None, one.bot_id) and names(person, one.key)]
            gone += len(theirs) if is_dry or not theirs else await self._forgetting.drop_keys(theirs)
            if cursor is None:
                return Gone(removed=gone)


def is_broadcast(view: LetterView) -> bool:
    return view.message_type is not None and view.message_type.startswith(BROADCAST)


def is_about(person: Person, view: LetterView) -> bool:
    return person.is_chat(view.chat) or (person.is_called(view.user_id) and not is_broadcast(view))


def _names(person: Person, view: LetterView) -> bool:
    labels = None if is_broadcast(view) else view.metadata
    return names(person, view.params, view.result, view.history, view.failed_reason, labels)
