"""Who is signed in at the dashboard. The browser has 256 random bits; kept is only their hash, in the store, for all nodes.

A sign-in is over when it was not used for long, when it is old, when its key is revoked, replaced or over, and when its person is
removed or changed. That is looked at with every request, so nothing has to be told to anybody.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable

import msgspec

from peik.admins.people import People, Person
from peik.clock import Clock
from peik.core.key import Key, Scope, digest_of
from peik.core.role import Role, role_of
from peik.errors import Conflict, StoreUnavailable
from peik.paper_ports import Filing, Paper, PaperStore

SHELF = "sign_ins"
IDLE_MS = 12 * 3_600_000
AGE_MS = 7 * 86_400_000
OWN_MAX = 50  # of one person or key; the oldest gives way
SEEN_MS = 5 * 60_000  # how exactly its last use is kept: one small commit in five minutes
_PAGE = 500
_SCOPE: dict[Role, Scope] = {Role.VIEWER: "read", Role.OPERATOR: "send", Role.ADMIN: "admin"}


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    """As it is kept, under the hash of the browser's token."""

    who: str
    person: str | None  # by name and password, or
    key_digest: str | None  # by an API key
    stamp: str | None
    since_ms: int
    seen_ms: int
    address: str


class SignedIn(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who is signed in, as of this request."""

    name: str
    role: Role
    key: Key
    csrf: str


class SignIns:
    def __init__(
        self,
        papers: PaperStore,
        people: People,
        clock: Clock,
        *,
        find_key: Callable[[bytes], Key | None],
        admin_key: str,
    ) -> None:
        self._papers = papers
        self._people = people
        self._clock = clock
        self._find_key = find_key
        self._admin = Key(id=0, name="the admin key", digest=digest_of(admin_key), scopes=("admin",))

    def key(self, text: str) -> Key | None:
        """The key of this text, if there is one and its time is not over."""
        return self._valid(digest_of(text.strip()))

    async def sign_in_key(self, key: Key, *, address: str) -> str:
        """The token for the browser."""
        return await self._keep(who_of(key), address=address, key_digest=key.digest.hex())

    async def sign_in_person(self, person: Person, *, address: str) -> str:
        return await self._keep(person.name, address=address, person=person.name, stamp=person.stamp)

    async def find(self, token: str) -> SignedIn | None:
        """Who shows this token; None: nobody (any more)."""
        paper = await self._papers.paper(SHELF, _place(token))
        if paper is None:
            return None
        kept = msgspec.json.decode(paper.body, type=SignIn)
        now_ms = self._clock.wall_ms()
        if _is_over(kept, now_ms):
            return None
        key = await self._key_of(kept)
        if key is None:
            return None
        if now_ms - kept.seen_ms >= SEEN_MS:
            await self._note_seen(paper, kept, now_ms)
        return SignedIn(name=kept.who, role=role_of(key), key=key, csrf=csrf_of(token))

    async def sign_out(self, token: str) -> None:
        await self._papers.file([Filing(shelf=SHELF, key=_place(token), body=None)])

    async def sign_out_everywhere(self, token: str) -> None:
        """All sign-ins of the same person, or by the same key."""
        paper = await self._papers.paper(SHELF, _place(token))
        if paper is None:
            return
        own = msgspec.json.decode(paper.body, type=SignIn)
        await self._take_away(lambda one: _owner(one) == _owner(own))

    async def sweep(self) -> None:
        """Let go of those that are over."""
        now_ms = self._clock.wall_ms()
        await self._take_away(lambda one: _is_over(one, now_ms))

    async def _take_away(self, is_meant: Callable[[SignIn], bool]) -> None:
        after = None
        while page := await self._papers.papers(SHELF, after=after, limit=_PAGE):
            meant = [paper for paper in page if is_meant(msgspec.json.decode(paper.body, type=SignIn))]
            if meant:
                await self._papers.file([Filing(shelf=SHELF, key=paper.key, body=None) for paper in meant])
            after = page[-1].key

    async def _keep(
        self,
        who: str,
        *,
        address: str,
        person: str | None = None,
        key_digest: str | None = None,
        stamp: str | None = None,
    ) -> str:
        token = secrets.token_urlsafe(32)
        now_ms = self._clock.wall_ms()
        kept = SignIn(
            who=who, person=person, key_digest=key_digest, stamp=stamp, since_ms=now_ms, seen_ms=now_ms, address=address
        )
        await self._papers.file([_filing(_place(token), kept, version=0)])
        await self._keep_bounded(kept)
        return token

    async def _keep_bounded(self, newest: SignIn) -> None:
        """Nobody fills the store by signing in."""
        if await self._papers.count_papers(SHELF) <= OWN_MAX:
            return
        own: list[tuple[int, str]] = []
        after = None
        while page := await self._papers.papers(SHELF, after=after, limit=_PAGE):
            after = page[-1].key
            kept = [(msgspec.json.decode(paper.body, type=SignIn), paper.key) for paper in page]
            own += [(one.seen_ms, key) for one, key in kept if _owner(one) == _owner(newest)]
        old = sorted(own, reverse=True)[OWN_MAX:]
        if old:
            await self._papers.file([Filing(shelf=SHELF, key=key, body=None) for _, key in old])

    async def _key_of(self, kept: SignIn) -> Key | None:
        """What the sign-in opens now."""
        if kept.person is None:
            return self._valid(bytes.fromhex(kept.key_digest or ""))
        person = await self._people.person(kept.person)
        if person is None or person.stamp != kept.stamp:
            return None
        return Key(id=0, name=person.name, digest=b"", scopes=(_SCOPE[person.role],))

    def _valid(self, digest: bytes) -> Key | None:
        key = self._find_key(digest) or self._admin
        is_known = hmac.compare_digest(key.digest, digest)
        return key if is_known and not key.is_over(self._clock.wall_ms()) else None

    async def _note_seen(self, paper: Paper, kept: SignIn, now_ms: int) -> None:
        seen = msgspec.structs.replace(kept, seen_ms=now_ms)
        try:
            await self._papers.file([_filing(paper.key, seen, version=paper.version)])
        except Conflict:
            return  # another request of the same browser has noted it, or it signed out
        except StoreUnavailable:
            return  # when the store fails the dashboard is needed most; the next request notes it


def who_of(key: Key) -> str:
    """Whom the audit log names. Names of people hold no blanks, so that a key is never taken for somebody."""
    return "admin key" if key.id == 0 else f"key {key.name}"


def csrf_of(token: str) -> str:
    """What forms of this browser carry. Whoever does not know its token cannot know this."""
    return hashlib.blake2b(token.encode(), key=b"csrf of a form", digest_size=16).hexdigest()


def _owner(kept: SignIn) -> tuple[str | None, str | None]:
    return kept.person, kept.key_digest


def _is_over(kept: SignIn, now_ms: int) -> bool:
    return now_ms - kept.seen_ms > IDLE_MS or now_ms - kept.since_ms > AGE_MS


def _place(token: str) -> str:
    return hashlib.blake2b(token.encode(), digest_size=32).hexdigest()


def _filing(key: str, kept: SignIn, *, version: int) -> Filing:
    return Filing(shelf=SHELF, key=key, body=msgspec.json.encode(kept).decode(), version=version)
