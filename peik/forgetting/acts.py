"""Acts of forgetting, on paper. An act is filed before its work begins, so that whoever starts next can end it; once it is
over it says what was done and no longer to whom."""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable

import msgspec

from peik.core.forgetting import Found, Gone, Person, added
from peik.errors import Conflict
from peik.forgetting.papers import SHELF
from peik.paper_ports import Filing, Paper, PaperStore

PAGE = 500
SECRET = "forgetting"  # noqa: S105  under this name the store keeps what the marks of persons are made with
_MARK_CHARS = 24


class Act(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # rises with time
    mark: str  # of the person: the same one has the same, and nobody can tell who it is without the store's own secret
    who: str  # asked for it
    begun_at_ms: int
    user_id: int | None = None  # None: it is over, and nobody knows any more
    names: tuple[str, ...] = ()
    bot_id: int | None = None
    ended_at_ms: int | None = None
    looks_at_ms: int = 0  # not again before
    found: dict[str, Gone] = {}

    @property
    def is_over(self) -> bool:
        return self.ended_at_ms is not None

    @property
    def person(self) -> Person:
        assert self.user_id is not None, "it is over"
        return Person(user_id=self.user_id, names=frozenset(self.names), bot_id=self.bot_id)


class Acts:
    def __init__(self, papers: PaperStore, *, secret: Callable[[str, str], Awaitable[str]]) -> None:
        """`secret`: what the store keeps under a name, or keeps from now on."""
        self._papers = papers
        self._secret = secret

    async def mark_of(self, user_id: int) -> str:
        key = await self._secret(SECRET, secrets.token_hex(32))
        return hmac.new(key.encode(), str(user_id).encode(), hashlib.sha256).hexdigest()[:_MARK_CHARS]

    async def begin(self, person: Person, *, who: str, at_ms: int) -> Act:
        """Durable from here on. An act about the same person that is still open is gone on with."""
        for act in await self.open():
            if (act.user_id, act.bot_id) == (person.user_id, person.bot_id):
                known = msgspec.structs.replace(act, names=tuple(sorted({*act.names, *person.names})), looks_at_ms=0)
                await self._file(known, version=None)
                return known
        act = Act(
            id=f"{at_ms:014d}-{secrets.token_hex(4)}",
            mark=await self.mark_of(person.user_id),
            who=who,
            begun_at_ms=at_ms,
            user_id=person.user_id,
            names=tuple(sorted(person.names)),
            bot_id=person.bot_id,
        )
        await self._file(act, version=0)
        return act

    async def go_on(self, act: Act, found: Found, *, looks_at_ms: int) -> Act:
        known = msgspec.structs.replace(act, found=added([act.found, _done(found)]), looks_at_ms=looks_at_ms)
        await self._file(known, version=None)
        return known

    async def end(self, act: Act, found: Found, *, at_ms: int) -> Act:
        """From here on nobody knows whom it was about."""
        over = msgspec.structs.replace(
            act, found=added([act.found, _done(found)]), user_id=None, names=(), ended_at_ms=at_ms
        )
        await self._file(over, version=None)
        return over

    async def open(self) -> list[Act]:
        return [act for act in await self.all() if not act.is_over]

    async def all(self) -> list[Act]:
        """The oldest first."""
        found: list[Act] = []
        after: str | None = None
        while page := await self._papers.papers(SHELF, after=after, limit=PAGE):
            after = page[-1].key
            found += [_read(paper) for paper in page]
        return found

    async def sweep(self, *, before_ms: int) -> None:
        """Acts that were over before then are of no use to anybody."""
        old = [act for act in await self.all() if act.ended_at_ms is not None and act.ended_at_ms < before_ms]
        if old:
            await self._papers.file([Filing(shelf=SHELF, key=act.id, body=None) for act in old])

    async def _file(self, act: Act, *, version: int | None) -> None:
        body = msgspec.json.encode(act).decode()
        try:
            await self._papers.file([Filing(shelf=SHELF, key=act.id, body=body, version=version)])
        except Conflict:
            raise AssertionError(f"two acts have the id {act.id}") from None


def _done(found: Found) -> Found:
    """What is left is counted when it goes."""
    return {place: msgspec.structs.replace(gone, left=0) for place, gone in found.items()}


def _read(paper: Paper) -> Act:
    return msgspec.json.decode(paper.body, type=Act)
