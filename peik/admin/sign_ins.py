"""Who is signed in at the dashboard. The browser has 256 random bits; kept is only their hash, in the store, for all nodes.

A sign-in is over when it was not used for long, when it is old, when its key is revoked, replaced or over, and when its person is
removed or changed. That is looked at with every request, so nothing has to be told to anybody.
"""

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import AsyncIterator, Callable

import msgspec

from peik.admin.model import Key, Role, Scope, digest_of, role_of
from peik.admin.oidc import Identity
from peik.admin.people import People, Person
from peik.clock import Clock
from peik.core.documents import DocumentStore, Filing, StoredDocument
from peik.errors import Conflict, Forbidden, NotFound, StoreUnavailable

COLLECTION = "sign_ins"
IDLE_MS = 12 * 3_600_000
AGE_MS = 7 * 86_400_000
OIDC_AGE_MS = 12 * 3_600_000  # then the provider is asked again: who has left is not told to us
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
    oidc: str | None = None  # by OpenID Connect: the issuer, and what it calls him
    role: Role | None = None  # as it said


class OidcPerson(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who is signed in by OpenID Connect, as of the last sign-in."""

    name: str
    subject: str  # what the provider calls him; it stays the same
    role: Role
    since_ms: int
    seen_ms: int
    ends_at_ms: int
    browsers: int


class SignedIn(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who is signed in, as of this request."""

    name: str
    role: Role
    key: Key
    csrf: str


class SignIns:
    def __init__(
        self,
        documents: DocumentStore,
        people: People,
        clock: Clock,
        *,
        find_key: Callable[[bytes], Key | None],
        admin_key: str,
        oidc_stamp: str | None = None,
    ) -> None:
        """`oidc_stamp`: of the provider that is believed, and of the roles it gives; None: there is none."""
        self._oidc_stamp = oidc_stamp
        self._documents = documents
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

    async def sign_in_oidc(self, identity: Identity, *, address: str) -> str:
        return await self._keep(
            identity.name, address=address, stamp=self._oidc_stamp, oidc=identity.subject, role=identity.role
        )

    async def find(self, token: str) -> SignedIn | None:
        """Who shows this token; None: nobody (any more)."""
        document = await self._documents.document(COLLECTION, _place(token))
        if document is None:
            return None
        kept = msgspec.json.decode(document.body, type=SignIn)
        now_ms = self._clock.wall_ms()
        if _is_over(kept, now_ms):
            return None
        key = await self._key_of(kept)
        if key is None:
            return None
        if now_ms - kept.seen_ms >= SEEN_MS:
            await self._note_seen(document, kept, now_ms)
        return SignedIn(name=kept.who, role=role_of(key), key=key, csrf=csrf_of(token))

    async def sign_out(self, token: str) -> None:
        await self._documents.file([Filing(collection=COLLECTION, key=_place(token), body=None)])

    async def sign_out_everywhere(self, token: str) -> None:
        """All sign-ins of the same person, or by the same key."""
        document = await self._documents.document(COLLECTION, _place(token))
        if document is None:
            return
        own = msgspec.json.decode(document.body, type=SignIn)
        await self._take_away(lambda one: _owner(one) == _owner(own))

    @property
    def has_oidc(self) -> bool:
        return self._oidc_stamp is not None

    async def by_oidc(self) -> list[OidcPerson]:
        """Everybody who is signed in so, the last first."""
        now_ms = self._clock.wall_ms()
        found: dict[str, list[SignIn]] = {}
        async for _, kept in self._all():
            if kept.oidc is not None and kept.stamp == self._oidc_stamp and not _is_over(kept, now_ms):
                found.setdefault(kept.oidc, []).append(kept)
        people = [_oidc_person(subject, own) for subject, own in found.items()]
        return sorted(people, key=lambda one: one.since_ms, reverse=True)

    async def sign_out_oidc(self, subject: str) -> str:
        """Everywhere; the name. Raises NotFound."""
        meant = [one for one in await self.by_oidc() if one.subject == subject]
        if not meant:
            raise NotFound(code="not_signed_in", detail="Nobody is signed in that way (any more).")
        await self._take_away(lambda one: one.oidc is not None and _subject_of(one.oidc) == subject)
        return meant[0].name

    async def sweep(self) -> None:
        """Let go of those that are over."""
        now_ms = self._clock.wall_ms()
        await self._take_away(lambda one: _is_over(one, now_ms))

    async def _take_away(self, is_meant: Callable[[SignIn], bool]) -> None:
        gone = [key async for key, kept in self._all() if is_meant(kept)]
        for start in range(0, len(gone), _PAGE):
            some = gone[start : start + _PAGE]
            await self._documents.file([Filing(collection=COLLECTION, key=key, body=None) for key in some])

    async def _all(self) -> AsyncIterator[tuple[str, SignIn]]:
        """With the key of each."""
        after = None
        while page := await self._documents.documents(COLLECTION, after=after, limit=_PAGE):
            for document in page:
                yield document.key, msgspec.json.decode(document.body, type=SignIn)
            after = page[-1].key

    async def _keep(
        self,
        who: str,
        *,
        address: str,
        person: str | None = None,
        key_digest: str | None = None,
        stamp: str | None = None,
        oidc: str | None = None,
        role: Role | None = None,
    ) -> str:
        token = secrets.token_urlsafe(32)
        now_ms = self._clock.wall_ms()
        kept = SignIn(
            who=who,
            person=person,
            key_digest=key_digest,
            stamp=stamp,
            since_ms=now_ms,
            seen_ms=now_ms,
            address=address,
            oidc=oidc,
            role=role,
        )
        await self._documents.file([_filing(_place(token), kept, version=0)])
        await self._keep_bounded(kept)
        return token

    async def _keep_bounded(self, newest: SignIn) -> None:
        """Nobody fills the store by signing in."""
        if await self._documents.count_documents(COLLECTION) <= OWN_MAX:
            return
        own = [(one.seen_ms, key) async for key, one in self._all() if _owner(one) == _owner(newest)]
        old = sorted(own, reverse=True)[OWN_MAX:]
        if old:
            await self._documents.file([Filing(collection=COLLECTION, key=key, body=None) for _, key in old])

    async def _key_of(self, kept: SignIn) -> Key | None:
        """What the sign-in opens now."""
        if kept.oidc is not None:
            if self._oidc_stamp is None or kept.stamp != self._oidc_stamp or kept.role is None:
                return None
            return Key(id=0, name=kept.who, digest=b"", scopes=(_SCOPE[kept.role],))
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

    async def _note_seen(self, document: StoredDocument, kept: SignIn, now_ms: int) -> None:
        seen = msgspec.structs.replace(kept, seen_ms=now_ms)
        try:
            await self._documents.file([_filing(document.key, seen, version=document.version)])
        except Conflict:
            return  # another request of the same browser has noted it, or it signed out
        except StoreUnavailable:
            return  # when the store fails the dashboard is needed most; the next request notes it


def who_of(key: Key) -> str:
    """Whom the audit log names. Names of people hold no blanks, so that a key is never taken for somebody."""
    if key.id < 0:
        return key.name  # nobody's key: the library, or the command line
    return "admin key" if key.id == 0 else f"key {key.name}"


def csrf_of(token: str) -> str:
    """What forms of this browser carry. Anyone who does not know its token cannot know this."""
    return hashlib.blake2b(token.encode(), key=b"csrf of a form", digest_size=16).hexdigest()


def _owner(kept: SignIn) -> tuple[str | None, str | None, str | None]:
    return kept.person, kept.key_digest, kept.oidc


def _oidc_person(subject: str, own: list[SignIn]) -> OidcPerson:
    last = max(own, key=lambda one: one.since_ms)
    return OidcPerson(
        name=last.who,
        subject=_subject_of(subject),
        role=last.role or Role.VIEWER,
        since_ms=last.since_ms,
        seen_ms=max(one.seen_ms for one in own),
        ends_at_ms=min(last.since_ms + OIDC_AGE_MS, last.seen_ms + IDLE_MS),
        browsers=len(own),
    )


def _subject_of(identity: str) -> str:
    """Without the issuer, of which there is one at a time."""
    return identity.partition(" ")[2]


def _is_over(kept: SignIn, now_ms: int) -> bool:
    age_ms = AGE_MS if kept.oidc is None else OIDC_AGE_MS
    return now_ms - kept.seen_ms > IDLE_MS or now_ms - kept.since_ms > age_ms


def _place(token: str) -> str:
    return hashlib.blake2b(token.encode(), digest_size=32).hexdigest()


def _filing(key: str, kept: SignIn, *, version: int) -> Filing:
    return Filing(collection=COLLECTION, key=key, body=msgspec.json.encode(kept).decode(), version=version)


# Brakes guessing: after too many failed sign-ins, a name or an address is refused for a while.
#
# An attempt counts before it is looked at, and is taken back if it was right: a thousand guesses at once are no more
# than five. Where somebody has signed in lately his attempts are counted apart, so that strangers elsewhere cannot
# lock him out by his name. In a browser in which he has they are counted by that alone: behind a proxy that is not
# believed, all come from one address.


ATTEMPTS_COLLECTION = "sign_in_attempts"
HOMES = "sign_in_homes"  # who has signed in from which network, and in which browser, all only as hashes
HOME_MS = 30 * 86_400_000
FAILURES_MAX = 5
WINDOW_MS = 15 * 60_000
REFUSED_MS = 15 * 60_000


class Attempts:
    def __init__(self, documents: DocumentStore, clock: Clock) -> None:
        self._documents = documents
        self._clock = clock

    async def begin(self, *, name: str | None, address: str, device: str = "") -> list[str]:
        """Count one, for the name and the address, or for the browser alone if it is known; what it was counted under. `device`:
        the word that the browser has kept. Raises Forbidden (`locked_out`)."""
        places = await self._places(name, address, device)
        while True:
            try:
                await self._count(places)
            except Conflict:
                continue  # somebody else tried at the same moment, and counts as well
            return places

    async def _places(self, name: str | None, address: str, device: str) -> list[str]:
        where = _attempt_place("address", _network(address))
        if name is None:
            return [where]
        home, browser = _home(name, address), _browser(name, device)
        known = await self._documents.those(HOMES, [home, browser])
        if browser in known:
            return [browser]
        return [where, home if home in known else _attempt_place("name", name.strip().lower())]

    async def forgive(self, places: list[str], *, name: str | None = None, address: str = "", device: str = "") -> None:
        """It was right: what it was counted under begins anew, and whoever has this name is at home at this address and in this
        browser."""
        filings = [Filing(collection=ATTEMPTS_COLLECTION, key=place, body=None) for place in places]
        if name is not None:
            homes = [_home(name, address), *([_browser(name, device)] if device else ())]
            filings += [Filing(collection=HOMES, key=home, body=str(self._clock.wall_ms())) for home in homes]
        await self._documents.file(filings)

    async def sweep(self, *, at_ms: int) -> None:
        """Let go of those that are over; of homes that are too old at this settled time."""
        now_ms = self._clock.wall_ms()
        await self._let_go(ATTEMPTS_COLLECTION, lambda body: not _recent(body, now_ms))
        await self._let_go(HOMES, lambda body: int(body) < at_ms - HOME_MS)

    async def _let_go(self, collection: str, is_over: Callable[[str], bool]) -> None:
        after = None
        while page := await self._documents.documents(collection, after=after, limit=_PAGE):
            over = [document for document in page if is_over(document.body)]
            if over:
                await self._documents.file(
                    [Filing(collection=collection, key=document.key, body=None) for document in over]
                )
            after = page[-1].key

    async def _count(self, places: list[str]) -> None:
        now_ms = self._clock.wall_ms()
        known = await self._documents.those(ATTEMPTS_COLLECTION, places)
        filings = []
        for place in places:
            document = known.get(place)
            recent = [] if document is None else _recent(document.body, now_ms)
            if len(recent) >= FAILURES_MAX:
                raise Forbidden(
                    code="locked_out", detail="Too many sign-ins failed. Wait a quarter of an hour, and try again."
                )
            filings.append(
                Filing(
                    collection=ATTEMPTS_COLLECTION,
                    key=place,
                    body=msgspec.json.encode([*recent, now_ms]).decode(),
                    version=0 if document is None else document.version,
                )
            )
        await self._documents.file(filings)


def _recent(body: str, now_ms: int) -> list[int]:
    """The attempts that still count: those of the last while, and all of them while somebody is refused for them."""
    times = msgspec.json.decode(body, type=list[int])
    if len(times) >= FAILURES_MAX and 0 <= now_ms - times[-1] < REFUSED_MS:  # a clock set back locks nobody for long
        return times
    return [at_ms for at_ms in times if 0 <= now_ms - at_ms < WINDOW_MS and len(times) < FAILURES_MAX]


def _attempt_place(kind: str, text: str) -> str:
    return f"{kind}:{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def _home(name: str, address: str) -> str:
    return _attempt_place("home", f"{name.strip().lower()} {_network(address)}")


def _browser(name: str, device: str) -> str:
    return _attempt_place("browser", f"{name.strip().lower()} {device}")


def _network(address: str) -> str:
    """Anyone who has one address of IPv6 has all of its last 64 bits."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


# Brakes those who are refused again and again: each time is a line of the audit log, and nobody may fill the store
# with them.
#
# Counted in memory, on each node by itself: what is lost with it is a minute.


REFUSED_MAX = 300
WINDOW_S = 60.0
NAMES_MAX = 10_000


class Refusals:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}  # since when, how often

    def check(self, who: str) -> None:
        """Before a line is begun. Raises Forbidden (`refused_too_often`)."""
        since, count = self._counts.get(who, (0.0, 0))
        if count >= REFUSED_MAX and self._clock.mono() - since < WINDOW_S:
            raise Forbidden(
                code="refused_too_often", detail="You were refused too often. Wait a minute, and do what you may."
            )

    def note(self, who: str) -> None:
        """Somebody was not allowed what he asked for."""
        now = self._clock.mono()
        since, count = self._counts.get(who, (now, 0))
        if now - since >= WINDOW_S:
            since, count = now, 0
        if who not in self._counts and len(self._counts) >= NAMES_MAX:
            self._counts.clear()
        self._counts[who] = since, count + 1
